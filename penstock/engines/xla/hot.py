"""Programs of CPUs: compiled in the background, timed against generated Python in real steps, kept if they are faster."""

from __future__ import annotations

import logging
import os
import sys
import time
import weakref
from itertools import starmap
from typing import Any

import numpy as np

from penstock.engines.xla import backend
from penstock.engines.xla.device import ALONE, ALONE_IN_A_LIST, Changed, DeviceProgram, Plan, Seen, in_one_go
from penstock.engines.xla.match import Match, begin
from penstock.engines.xla.pace import TooLong, run
from penstock.engines.xla.program import MOST_SHAPES, Compiled, Given, Program, in_range
from penstock.engines.xla.streams import Reserved
from penstock.engines.xla.varying import Padding, Varying, cut
from penstock.graph import spec
from penstock.ops.bundles import Bundle, HeldRef, hold, put_raw, untied
from penstock.ops.resources import Ref

_HOST, _XLA = "host", "xla"
PAUSE = 10
"""A program that has been compiled for some shapes is compiled for others only if the compiler has had a pause this many times as long as its work took.
Where each step brings another shape (lengths of sequences, say), it would take a core, and turns at the interpreter's lock, from all of them."""
MOST_MET = 64
"""Combinations of shapes that are known to have come once."""
MOST_WAITS = 500
"""Steps for which the trial of one program for many sizes keeps others waiting: its sizes may not come again."""
HOPELESS = 4
"""So many combinations of shapes for which there is no program, and none that has been tried: nothing will come of it."""
_rested_at = 0
"""When the pause is over, in nanoseconds."""
JAX_ERRORS = (RuntimeError, TypeError)
"""What a compiled program may raise. Kernels raise OpErrors, ValueErrors and the like in the host's form, which are not among them."""


class Doubt(Changed, RuntimeError):
    """A program found that it had no room for what it computed. Nothing has been changed."""


class Contest(Match):
    """Two forms of one segment for one combination of shapes. `choice` is None until one has won.

    What the parts of a step do to each other shows in whole steps only, which have the last word (`runtime.executor.compiled.Final`).
    """

    __slots__ = ("choice", "form", "plan")

    def __init__(self, block: int = 2) -> None:
        super().__init__(block)
        self.choice: str | None = None
        self.form: Compiled | None = None
        self.plan: Plan | None = None

    def decide(self, program: Program, trials: int) -> None:
        """The faster form wins."""
        times = self.times(trials)
        self.choice = _XLA if self.is_won(trials) else _HOST
        backend.log.debug("%s: Python %.0f us, XLA %.0f us; %s", program.describe(), *(ns / 1e3 for ns in times), self.choice)

    def reopen(self) -> None:
        """Another look, unless something has gone wrong with XLA's form meanwhile."""
        if self.choice is not None and self.form is not None and self.scores:
            self.choice = None
            self.begin_look()

    def give_up(self) -> None:
        """Python computes from now on."""
        self.choice = _HOST
        self.scores.clear()
        self.rest = 0

    def compile(self, program: Program, key: Any, given: Given) -> None:
        """Gets XLA's form; without one, Python has won."""
        form = None
        try:
            form = program.form_for(key, given)
        except Exception as error:
            if spec.enabled:
                raise
            # Whatever XLA cannot do, Python can: a step must not fail for it. To do without XLA where there are no elements costs nothing.
            level = logging.DEBUG if any(0 in shape for _, shape in given.plain) else logging.WARNING
            backend.log.log(level, "Not compiled by XLA: %s (%s: %s)", program.describe(), type(error).__name__, error)
        if form is None:
            self.choice = _HOST
        self.form = form


class Contests(dict[Any, Contest]):
    """The contests of a program, by the key of its forms. With `eager`, XLA is compiled at once and wins if it can."""

    def __init__(self, eager: bool, has_loops: bool = False, block: int = 4) -> None:
        super().__init__()
        self.eager = eager
        self.block = block  # steps of one form in a row while both are on trial
        self.varying = Varying(has_loops)
        self.met: set[Any] = set()  # keys that came once
        self.waits = 0  # how often a program for many sizes was not begun because of another one

    @property
    def is_open(self) -> bool:
        """Whether it is not known yet who computes something."""
        return any(contest.choice is None for contest in list(self.values()))  # other threads may begin one

    def lost(self, form: Compiled) -> None:
        """Python computes from now on what this form was for."""
        for contest in self.values():
            if contest.form is form:
                contest.give_up()

    def find(self, program: Program, key: Any, rest: tuple, given: Given) -> Contest:
        """The contest for these shapes, or for many sizes, if they differ from step to step. `rest` is what else there is in a key."""
        contest = self.get(key)
        if contest is not None and (contest.form is not None or contest.choice is not None):
            return contest
        shapes = [shape for _, shape in given.plain]
        padding = self.varying.padding(shapes)
        if padding is not None:
            other = self._for_many(program, padding, shapes, rest, given)
            if other.choice is not _HOST or other.scores:  # else it could not be compiled, or had doubts
                return other
        elif contest is None and not self.eager and key not in self.met and len(self.met) < MOST_MET:
            self.met.add(key)
            return Contest(self.block)  # Python computes: shapes that do not come again are not worth a program
        return contest or self.begin(program, key, given)

    def _for_many(self, program: Program, padding: Padding, shapes: list[tuple[int, ...]], rest: tuple, given: Given) -> Contest:
        whole = padding.shapes(shapes)
        key = (padding, tuple(whole), *rest)
        contest = self.get(key)
        if contest is None:
            contest = self.begin(program, key, given._replace(plain=[(t, s) for (t, _), s in zip(given.plain, whole)], padding=padding))
        if contest.choice is None and contest.form is None:
            # Meanwhile one with more room will do, if there is one that has won.
            for wider in padding.wider():
                found = self.get((wider, tuple(wider.shapes(shapes)), *rest))
                if found is not None and found.choice is _XLA:
                    return found
        return contest

    def _is_trying(self) -> bool:
        """Whether another program for many sizes is on trial. They are few, so that the compiler needs no pause between them, but trials do: it takes a core from them.
        Programs for the shapes of one step do not count: these may never come again, and the trial would never end."""
        trying = any(contest.form is not None and contest.form.padding is not None and contest.choice is None for contest in self.values())
        self.waits = self.waits + 1 if trying else 0
        return trying and self.waits < MOST_WAITS

    def begin(self, program: Program, key: Any, given: Given) -> Contest:
        """The contest for shapes that have not been there yet."""
        contest = Contest(self.block)
        is_resting = time.perf_counter_ns() < _rested_at if given.padding is None else self._is_trying()
        if self and not self.eager and (is_resting or not backend.is_idle()):
            return contest  # Python computes, and the next step with such shapes asks again
        if len(self) >= MOST_SHAPES or not backend.is_available():
            contest.choice = _HOST
            if len(self) < 4 * MOST_SHAPES:  # later ones are not even remembered
                self[key] = contest
            return contest
        self[key] = contest
        if self.eager:
            contest.compile(program, key, given)
            contest.choice = contest.choice or _XLA
        else:
            # Not worth finishing for a program that is gone by then.
            found = weakref.ref(program)
            backend.in_background(lambda: (alive := found()) and _compile(contest, alive, key, given))
        return contest


def _compile(contest: Contest, program: Program, key: Any, given: Given) -> None:
    global _rested_at
    start = time.perf_counter_ns()
    try:
        contest.compile(program, key, given)
    finally:
        now = time.perf_counter_ns()
        _rested_at = now + PAUSE * (now - start)


class HotProgram(Program):
    """A segment on a CPU: runs as generated Python until XLA's form is compiled, then both are timed, and the faster one stays."""

    reports = True
    TRIALS = 7

    def __init__(self, *args: Any, eager: bool = False) -> None:
        super().__init__(*args)
        self.contests = Contests(eager, self.has_loops)

    @property
    def is_settled(self) -> bool:
        """Whether it is known for now who computes it: there is one contest at most, since shapes do not change, and one form has won; or none, if nobody
        has called it."""
        contests = self.contests
        return len(contests) == bool(contests.met) and all(contest.choice is not None for contest in contests.values())

    @property
    def standing(self) -> tuple[int, int] | None:
        """How many contests there have been, and how many turns they have taken; None if XLA has won one, or may get to its first one."""
        contests = list(self.contests.values())  # other threads may begin one
        if sum(c.choice is _HOST and c.form is None for c in contests) >= HOPELESS and not any(c.scores for c in contests):
            return 0, 0  # nor is it compiled for any other shapes
        if any(c.choice is _XLA or (c.choice is None and c.form is None) for c in contests) or time.perf_counter_ns() < _rested_at:
            return None
        if contests and all(c.choice is None for c in contests):
            return None
        return len(contests), sum(c.turn for c in contests)

    def __call__(self, ctx: Any, stop: Any, *inputs: Any) -> tuple:
        values = [value.peek() if isinstance(value, Ref) else value for value in inputs]
        try:
            key = tuple([value.shape for value in values])
        except AttributeError:  # a variable without a value
            return self.host(ctx, stop, *inputs)
        contest = self.contests.get(key)
        if contest is None or contest.form is None:
            contest = self.contests.find(self, key, (), Given(list(zip(self.inputs, key)), [], [], ()))
        choice = contest.choice
        form = contest.form
        contest.rest -= 1
        if not contest.rest:
            contest.reopen()
        if choice is _HOST or form is None or (form.checks and not in_range(form.checks, values)):
            return self.host(ctx, stop, *inputs)
        try:
            return self._through_xla(form, values, stop) if choice is _XLA else self._trial(contest, ctx, stop, inputs, values)
        except JAX_ERRORS as error:
            # Nothing has been changed yet, so Python can have the last word.
            contest.give_up()
            if not isinstance(error, Doubt):
                backend.log.warning("XLA failed, and is not used any more here: %s: %s (%s)", self.describe(), type(error).__name__, error)
            return self.host(ctx, stop, *inputs)

    def _through_xla(self, form: Any, values: list[Any], stop: Any) -> tuple:
        if self._constants is None:
            self._constants = [a for _, a in self.large]
        given = values if form.padding is None else form.padding.enter(values)
        reserved = Reserved(self.streams, form.draws)
        try:
            if form.is_wide:
                with backend.x64():
                    results, _ = self._called(form, given, stop, reserved.places)
            else:
                results, _ = self._called(form, given, stop, reserved.places)
            if form.doubtful and results[-1]:
                raise Doubt
        except BaseException:
            reserved.give_back()
            raise
        found = tuple(
            [np.asarray(results[what])[()] if kind == "value" else what for kind, what in form.outputs]
        )
        return cut(found, form.cuts, len(self.outputs), form.padding, values) if form.cuts else found

    def _called(self, form: Compiled, values: list[Any], stop: Any, places: list[Any]) -> Any:
        more = [places] if places else []
        if form.pace is None:
            return form.call(values, self._constants, [], [], *more)
        done: list[Any] = []
        try:
            run(form.call, form.pace, stop, values, self._constants or [], [], [], more, done)
        except TooLong:
            raise Doubt from None
        return done[0]

    def _trial(self, contest: Contest, ctx: Any, stop: Any, inputs: tuple, values: list[Any]) -> tuple:
        is_xla = contest.is_xlas_turn
        begun = begin()
        result = self._through_xla(contest.form, values, stop) if is_xla else self.host(ctx, stop, *inputs)
        contest.add(is_xla, begun)
        if contest.choice is None and contest.is_over(self.TRIALS):
            contest.decide(self, self.TRIALS)
        return result


class HotStateProgram(DeviceProgram):
    """A whole step on a CPU, variables and all. As a HotProgram it has to win; then the variables' values live in arrays of XLA's, which it
    updates in place, until somebody else asks for one (`HeldRef`)."""

    reports = True
    TRIALS, BLOCK = 8, 16
    """Steps of each form that count, and those in a row of one: whichever takes over the variables pays for it."""
    is_settled = False
    standing = None
    """It is the whole step, and needs no final: see `_lost`."""
    _held: type[HeldRef] = HeldRef
    packs = False
    _watched: Contest | None = None
    """The contest in which XLA's form has its turns now, or that is to be looked at again some steps later."""
    _lost: tuple[int, list[Any]] | None = None
    """When Python's form has won: the version of the resources and the shapes of inputs then. Variables may change their shapes, but whoever has won stays."""

    def __init__(self, *args: Any, eager: bool = False) -> None:
        super().__init__(*args)
        self.contests = Contests(eager, self.has_loops, self.BLOCK)

    def __call__(self, ctx: Any, stop: Any, *inputs: Any) -> tuple:
        contest = self._watched
        if contest is not None and contest.choice is not None:
            contest.rest -= 1
            if contest.rest <= 0:
                contest.reopen()
                self._last = self._lost = self._watched = None
            contest = None
        last = self._last
        if last is not None and last.version == ctx.resources.version:
            values = [inputs[i] for i in last.plain]
            if (
                [inputs[i] for i in last.variables] == last.objects
                and [v.shape for v in values] == last.shapes
                and (not last.form.checks or in_range(last.form.checks, inputs))
            ):
                begun = None if contest is None else begin()
                try:
                    results = self._run(last, values, stop)
                except (Changed, TypeError):
                    self._last = None
                else:
                    if contest is not None and begun is not None:
                        self._timed(contest, True, begun)
                    return results
        lost = self._lost
        if lost is not None and lost[0] == ctx.resources.version and [getattr(v, "shape", None) for v in inputs] == lost[1]:
            return self.host(ctx, stop, *inputs)
        n = len(inputs)
        every = (*inputs, *(node.fn(ctx) for node in self.handles))
        seen = self._look(ctx, every, n)
        contest = self.contests.get(seen.key)
        if contest is None or contest.form is None:
            contest = self.contests.find(self, seen.key, seen.key[1:], seen.given)
        form = contest.form
        if contest.choice is _HOST:
            self._lost = (ctx.resources.version, [getattr(v, "shape", None) for v in inputs])
        if contest.choice is _HOST or form is None or (form.checks and not in_range(form.checks, inputs)):
            return self.host(ctx, stop, *inputs)
        plan = self._planned(ctx, every, seen, form) if form.padding is None else self._plan_of(contest, ctx, every, seen, form)
        if contest.choice is None:
            return self._trial(contest, plan, ctx, stop, inputs)
        try:
            results = self._run(plan, [inputs[i] for i in plan.plain], stop)
        except (Changed, TypeError):
            return self.host(ctx, stop, *inputs)
        self._last = plan
        return results

    def _plan_of(self, contest: Contest, ctx: Any, every: tuple, seen: Seen, form: Compiled) -> Plan:
        """The plan of a form for many sizes, made once."""
        plan = contest.plan
        if plan is None or plan.version != ctx.resources.version or [every[i] for i in plan.variables] != plan.objects:
            plan = contest.plan = self._planned(ctx, every, seen, form)
        return plan

    def _run(self, plan: Plan, values: list[Any], stop: Any) -> tuple:
        form = plan.form
        results = super()._run(plan, values if form.padding is None else form.padding.enter(values), stop)
        return cut(results, form.cuts, len(self.outputs), form.padding, values) if form.cuts else results

    def _trial(self, contest: Contest, plan: Plan, ctx: Any, stop: Any, inputs: tuple) -> tuple:
        if not contest.turn and not backend.is_idle():  # the compiler takes a core from Python's form
            return self.host(ctx, stop, *inputs)
        is_xla = contest.is_xlas_turn
        begun = begin()
        if is_xla:
            try:
                results = self._run(plan, [inputs[i] for i in plan.plain], stop)
            except (Changed, TypeError):
                return self.host(ctx, stop, *inputs)
            self._last = plan
            self._watched = contest
        else:
            results = self.host(ctx, stop, *inputs)
        self._timed(contest, is_xla, begun)
        return results

    def _timed(self, contest: Contest, is_xla: bool, begun: tuple[int, int]) -> None:
        contest.add(is_xla, begun)
        if contest.choice is None and contest.is_over(self.TRIALS):
            contest.decide(self, self.TRIALS)
            self._watched = contest if contest.rest > 0 else None
            if contest.choice is _HOST:
                self._last = None
        elif not contest.is_xlas_turn:
            self._last = self._watched = None

    def _know_more(self, given: Given) -> bool:
        return False

    def _too_long(self, form: Compiled) -> Exception:
        self.contests.lost(form)
        return Doubt()

    def _dispatch(self, plan: Plan, values: list[Any], stop: Any) -> tuple:
        if not plan.form.draws:
            return self._stepped(plan, values, stop, [])
        reserved = Reserved(self.streams, plan.form.draws)
        try:
            return self._stepped(plan, values, stop, [reserved.places])
        except (Changed, TypeError):  # the host computes, or a form for a variable's new shape
            reserved.give_back()
            raise

    def _stepped(self, plan: Plan, values: list[Any], stop: Any, more: list[Any]) -> tuple:
        form = plan.form
        if self._constants is None:
            self._constants = [a for _, a in self.large]
        kept = [self._read(ref) for ref in plan.kept]
        bundle = plan.bundle
        if bundle is not None and bundle.values is not None:
            with bundle.lock:
                if bundle.values is not None:
                    return self._packed(form, self._step(bundle, form, values, kept, *more), plan.refs)
        for acquire in plan.acquire:
            acquire()
        try:
            taken: list[Any] = []
            done: list[Any] = []
            try:
                self._take_all(plan.donated, backend.array_class(), taken)
                if form.pace is None:
                    done += starmap(in_one_go(form.call), ((values, self._constants, kept, taken, *more),))
                else:
                    self._run_on(form, stop, values, kept, taken, more, done)
                results, new = done[0]
                # What was fed may change when the step is over, and errors belong to it.
                results = [np.asarray(v)[()] for v in results]
                if form.doubtful and results[-1]:
                    self.contests.lost(form)
                    raise Doubt
                for value in new[:1]:
                    value.block_until_ready()
                if bundle is not None:
                    bundle.tie(new)
                else:
                    for ref, value in zip(plan.written, new):
                        if ref.__class__ is HeldRef:
                            put_raw(ref, value)
                        else:
                            hold(ref, value)
            except BaseException:
                # Ctrl-C comes at any time: if the program has run, its new values are all there is.
                if done:
                    if bundle is not None:
                        bundle.untie()
                    for ref, value in zip(plan.written, done[0][1]):
                        hold(ref, value)
                else:
                    for ref, value in zip(plan.donated, taken):
                        if not value.is_deleted():
                            hold(ref, value)
                raise
        finally:
            for release in plan.release:
                release()
        return self._packed(form, results, plan.refs)

    def _step(self, bundle: Bundle, form: Compiled, *args: Any) -> list[Any]:
        results = super()._step(bundle, form, *args)
        for value in (bundle.values or ())[:1]:
            value.block_until_ready()
        results = [np.asarray(v)[()] for v in results]
        if form.doubtful and results[-1]:  # variables are what they were
            self.contests.lost(form)
            raise Doubt
        return results

    def _take_all(self, refs: list[Ref], array: type, taken: list[Any]) -> None:
        taken += map(untied, refs)
        if [value.__class__ for value in taken].count(array) == len(taken) and not any(map(_is_seen, taken)):
            for ref in refs:
                put_raw(ref, None)
            if not taken or max(map(sys.getrefcount, taken)) <= ALONE_IN_A_LIST:
                return
            for ref, value in zip(refs, taken):
                put_raw(ref, value)
            value = None
        taken.clear()
        for ref in refs:
            taken.append(self._take(ref))

    def _read(self, ref: Ref) -> Any:
        value = untied(ref)
        if value is None:
            value = ref.peek()
            if value is None:
                raise Changed
        return value

    def _take(self, ref: Ref) -> Any:
        value = untied(ref)
        if value is None:
            raise Changed
        if backend.is_device_array(value):
            ref.value = None
            # A view that somebody has (a fetch, another step) must not change under them.
            if sys.getrefcount(value) <= ALONE and not _is_seen(value):
                return value
        import jax.numpy as jnp

        with backend.x64():
            return jnp.array(value, copy=True)


def _is_seen(value: Any) -> bool:
    """Whether NumPy has a view of the array."""
    return getattr(value, "_npy_value", None) is not None


def _on_host(self: Any, ctx: Any, stop: Any, *inputs: Any) -> tuple:
    return self.host(ctx, stop, *inputs)


def _after_fork() -> None:
    """XLA's threads are not here: a program that has work for them would wait for ever."""
    if not backend.is_available():
        HotProgram.__call__ = HotStateProgram.__call__ = _on_host  # type: ignore[method-assign]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)  # behind `backend`, which knows by then
