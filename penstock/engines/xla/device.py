"""Programs of accelerators: always compiled, values stay on the device, variables are taken, donated and put back."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np

from penstock import errors
from penstock.engines.python.code import Cancelled
from penstock.engines.xla import backend
from penstock.engines.xla.pace import TooLong, run
from penstock.engines.xla.program import KNOWN_SIZE, Compiled, Given, Program, dtype_of, in_range
from penstock.engines.xla.streams import Reserved
from penstock.graph.ir import Tensor
from penstock.ops.bundles import Bundle, DeviceHeldRef, HeldRef, untied
from penstock.ops.interrupts import Uninterrupted
from penstock.ops.resource_variables import find_or_create
from penstock.ops.resources import Ref, ResourceHandle


class DeviceProgram(Program):
    """A segment on an accelerator: always compiled, values stay on the device."""

    regenerate: Callable[[], None] | None = None
    """Called when a node turned out to have no place in a program: the code must be written anew without it."""

    _last: Plan | None = None
    packs = True
    _steps = _ties = 0
    """How many steps there were on bundles, and how often one was tied."""

    known_inputs: frozenset[Tensor] = frozenset()
    """Inputs whose values, not only shapes, programs are compiled for."""

    def _know_more(self, given: Given) -> bool:
        more = {t for t, shape in given.plain if dtype_of(t).kind in "iub" and int(np.prod(shape)) <= KNOWN_SIZE}
        found = bool(more - self.known_inputs)
        self.known_inputs |= more
        return found

    _held: type[HeldRef] = DeviceHeldRef

    def __call__(self, ctx: Any, stop: Any, *inputs: Any) -> tuple:
        last = self._last
        if last is not None and last.version == ctx.resources.version:
            # As in the last step: the same variables, the same shapes of what comes in.
            values = [inputs[i] for i in last.plain]
            if [inputs[i] for i in last.variables] == last.objects and [v.shape for v in values] == last.shapes:
                if last.form.checks and not in_range(last.form.checks, inputs):
                    return self._reported(ctx, stop, inputs)
                try:
                    return self._run(last, values, stop)
                except TooLong:
                    return self._on_host(ctx, stop, inputs)
                except (Changed, TypeError):
                    self._last = None  # a variable has another shape now, or none
        n = len(inputs)
        every = (*inputs, *(node.fn(ctx) for node in self.handles))
        plan = self._plan(ctx, every, n)
        if plan is None:
            return self._on_host(ctx, stop, inputs)
        if plan.form.checks and not in_range(plan.form.checks, inputs):
            return self._reported(ctx, stop, inputs)
        try:
            results = self._run(plan, [inputs[i] for i in plan.plain], stop)
        except TooLong:
            return self._on_host(ctx, stop, inputs)
        except Changed:
            return self(ctx, stop, *inputs)
        self._last = None if self.known_inputs else plan
        return results

    def _plan(self, ctx: Any, inputs: tuple, n: int) -> Plan | None:
        """How to run with these inputs, the first `n` of which come in every step; None if only the host can."""
        seen = self._look(ctx, inputs, n)
        form = self.forms.get(seen.key)
        if form is None:
            n_known = len(self.known_inputs)
            form = self.form_for(seen.key, seen.given)
            if form is None:
                return self._plan(ctx, inputs, n) if len(self.known_inputs) > n_known else None
        return self._planned(ctx, inputs, seen, form)

    def _look(self, ctx: Any, inputs: tuple, n: int) -> Seen:
        plain: list[tuple] = []
        known: list[tuple] = []
        variables: list[tuple] = []
        refs: list[Ref] = []
        positions: tuple[list[int], list[int]] = ([], [])
        for i, (tensor, value) in enumerate(zip(self.inputs, inputs)):
            cls = value.__class__
            if cls is ResourceHandle or isinstance(value, Ref):
                ref = value if isinstance(value, Ref) else find_or_create(ctx, value, value.dtypes_and_shapes[0][0])
                refs.append(ref)
                held = untied(ref)
                if held is None:
                    held = ref.peek()
                variables.append((tensor, getattr(held, "shape", None), ref.dtype.np, ref.dims))
                held = None
                if i < n:
                    positions[1].append(i)
            elif tensor in self.known_inputs:
                known.append((tensor, backend.to_host(value)))
            else:
                plain.append((tensor, value.shape))
                positions[0].append(i)
        unique: dict[int, int] = {}
        aliases = tuple(unique.setdefault(id(ref), len(unique)) for ref in refs)
        shapes = [shape for _, shape in plain]
        key = (tuple(shapes), tuple(row[1] for row in variables), aliases, *((v.shape, v.tobytes()) for _, v in known))
        return Seen(key, Given(plain, known, variables, aliases), refs, positions, shapes)

    def _planned(self, ctx: Any, inputs: tuple, seen: Seen, form: Compiled) -> Plan:
        positions, aliases = seen.positions, seen.given.aliases
        refs = [seen.refs[aliases.index(k)] for k in range(max(aliases, default=-1) + 1)]
        written = set(form.written)
        locked = sorted((refs[i] for i in form.written), key=id)
        all_written = [refs[i] for i in form.written]
        donated = [refs[i] for i in form.read if i in written]
        return Plan(
            form, *positions, seen.shapes, [inputs[i] for i in positions[1]], ctx.resources.version, refs,
            [ref.lock.acquire for ref in locked], [ref.lock.release for ref in locked], all_written,
            [refs[i] for i in form.read if i not in written], donated, self._bundle(form, all_written, donated),
        )  # fmt: skip

    def _bundle(self, form: Compiled, written: list[Ref], donated: list[Ref]) -> Bundle | None:
        if form.pace is not None or not written or written != donated:
            return None
        return Bundle(written, self._held, form.pack and form.pack.split)

    def _run(self, plan: Plan, values: list[Any], stop: Any) -> tuple:
        try:
            if not plan.refs and not plan.form.is_wide:
                return self._dispatch(plan, values, stop)
            with Uninterrupted(), backend.x64():
                return self._dispatch(plan, values, stop)
        except (errors.OpError, Changed, TypeError, Cancelled, TooLong):
            raise
        except Exception as error:
            raise device_error(error) from error

    def _run_on(self, form: Compiled, stop: Any, values: list[Any], kept: list[Any], taken: list[Any], more: list[Any], done: list[Any]) -> None:
        """As a call, of a program that is called again until it is over."""
        assert form.pace is not None
        try:
            run(in_one_go(form.call), form.pace, stop, values, self._constants or [], kept, taken, more, done)
        except TooLong:
            raise self._too_long(form) from None

    def _too_long(self, form: Compiled) -> Exception:
        """Loops of this form run for longer than a call should: the host computes them from now on. The error to raise."""
        self.forms.update([(key, None) for key, found in self.forms.items() if found is form])
        self._last = None
        self.leave_loops()
        return TooLong()

    def _dispatch(self, plan: Plan, values: list[Any], stop: Any) -> tuple:
        if self._constants is None:
            self._constants = [self._put(a) for _, a in self.large]
        for i, value in enumerate(values):
            if not backend.is_device_array(value):
                # A copy: the transfer goes on while the caller may already write into what it has fed.
                values[i] = self._put(np.array(value))
        form = plan.form
        more = [self._places(form)] if form.draws else []
        if not plan.refs:
            if form.pace is None:
                results, _ = form.call(values, self._constants, [], [], *more)
            else:
                over: list[Any] = []
                self._run_on(form, stop, values, [], [], more, over)
                results, _ = over[0]
            return self._packed(form, results, plan.refs)
        array = backend.array_class()
        kept = [value if (value := ref.value).__class__ is array else self._read(ref) for ref in plan.kept]
        value = None
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
                self._take_all(plan.donated, array, taken)
                if form.pace is None:
                    given = taken if form.pack is None else form.pack.join(taken)
                    done += starmap(in_one_go(form.call), ((values, self._constants, kept, given, *more),))
                else:
                    self._run_on(form, stop, values, kept, taken, more, done)
                results, new = done[0]
                if bundle is not None:
                    bundle.tie(new)
                else:
                    for ref, value in zip(plan.written, new):
                        ref.value = value
            except BaseException:
                # Ctrl-C comes at any time: if the program has run, its new values are all there is.
                if done:
                    if bundle is not None:
                        bundle.untie()
                    for ref, value in zip(plan.written, done[0][1] if form.pack is None else form.pack.split(done[0][1])):
                        ref.value = value
                else:
                    for ref, value in zip(plan.donated, taken):
                        if not value.is_deleted():
                            ref.value = value
                raise
        finally:
            for release in plan.release:
                release()
        self._ties += 1
        if form.pack is not None and self._ties >= MOST_TIES and 4 * self._ties > self._steps:
            # Others look at the variables all the time: not worth joining them.
            self.packs = False
            self.forms.clear()
            self._last = None
        return self._packed(form, results, plan.refs)

    def _step(self, bundle: Bundle, form: Compiled, *args: Any) -> list[Any]:
        """One step on what the last one left, in the bundle. Its lock is held."""
        values: Any = bundle.values
        more = args[2:]
        self._steps += 1
        try:
            results, bundle.values = form.call(args[0], self._constants, args[1], values, *more)
        except BaseException:
            bundle.values = [None if value.is_deleted() else value for value in values]
            bundle.untie()
            raise
        return results

    def _take_all(self, refs: list[Ref], array: type, taken: list[Any]) -> None:
        """Fills `taken` with the variables' values, which will be written over. The locks are held."""
        taken += map(_VALUE, refs)
        if [value.__class__ for value in taken].count(array) == len(taken):  # as the last step left them
            for ref in refs:
                ref.value = None
            if not taken or max(map(sys.getrefcount, taken)) <= ALONE_IN_A_LIST:
                return
            for ref, value in zip(refs, taken):
                ref.value = value
            value = None
        taken.clear()
        for ref in refs:
            taken.append(self._take(ref))

    def _places(self, form: Compiled) -> list[Any]:
        """Where each stream is now; it moves on by what the program draws."""
        return list(Reserved(self.streams, form.draws).places)

    def _put(self, value: Any) -> Any:
        import jax

        with backend.x64():
            return jax.device_put(value, self.device)

    def _read(self, ref: Ref) -> Any:
        """A variable's value on the device; from now on it lives there."""
        value = ref.value
        if value is None:
            value = ref.peek()
        if backend.is_device_array(value):
            return value
        with ref.lock:
            value = ref.value
            if value is None:
                raise Changed
            if not backend.is_device_array(value):
                value = ref.value = self._put(value)
        return value

    def _take(self, ref: Ref) -> Any:
        """A variable's value, which belongs to nobody else: it will be written over. The lock is held."""
        value = ref.value
        if value is None:
            raise Changed
        if not backend.is_device_array(value):
            value = self._put(value)
        ref.value = None
        if sys.getrefcount(value) > ALONE:
            import jax.numpy as jnp

            with backend.x64():
                value = jnp.copy(value)
        return value

    def _packed(self, form: Compiled, results: list[Any], refs: list[Ref]) -> tuple:
        return tuple(
            results[what] if kind == "value" else what if kind == "known" else refs[what] for kind, what in form.outputs
        )

    def _on_host(self, ctx: Any, stop: Any, inputs: tuple) -> tuple:
        if self.regenerate is not None and not self.is_full:
            self.regenerate()
        return self._reported(ctx, stop, inputs)

    def _reported(self, ctx: Any, stop: Any, inputs: tuple) -> tuple:
        """By the host's kernels, which say what is wrong."""
        return self.host(ctx, stop, *[backend.to_host(v) for v in inputs])


class Seen(NamedTuple):
    """What came in: the key of its form, the description to compile one from, the variables, positions of values and of variables."""

    key: Any
    given: Given
    refs: list[Ref]
    positions: tuple[list[int], list[int]]
    shapes: list[tuple[int, ...]]


class Plan(NamedTuple):
    """A form and the variables it works on: positions of values and of variables among the inputs, what these were, and the variables by what
    happens to them."""

    form: Compiled
    plain: list[int]
    variables: list[int]
    shapes: list[tuple[int, ...]]
    objects: list[Any]
    version: int
    refs: list[Ref]
    acquire: list[Callable[[], Any]]  # of the locks of what is written, in one order for everybody
    release: list[Callable[[], Any]]
    written: list[Ref]
    kept: list[Ref]
    donated: list[Ref]
    bundle: Bundle | None  # of what is written, if all of it is donated


MOST_TIES = 8


def _references_of_a_local() -> int:
    box = [object()]
    value = box.pop()
    return sys.getrefcount(value)


ALONE = _references_of_a_local()
ALONE_IN_A_LIST = max(map(sys.getrefcount, [object()]))
"""What getrefcount says of an object that only a local name holds, and of one that only a list holds."""
_VALUE = operator.attrgetter("value")


def in_one_go(call: Callable[..., Any]) -> Callable[..., Any]:
    """The part of a program's call that is not Python: no signal comes between its end and the place where its results are put, if what calls
    it is not Python either (`starmap`). What was donated is gone by then, so that results must not get lost."""
    return getattr(call, "_call", None) or call


class Changed(Exception):
    """A variable lost its value between two looks."""


def device_error(error: Exception) -> errors.OpError:
    """An XLA run-time error as TF's class for it."""
    text = str(error)
    for word, cls in (
        ("RESOURCE_EXHAUSTED", errors.ResourceExhaustedError),
        ("INVALID_ARGUMENT", errors.InvalidArgumentError),
        ("FAILED_PRECONDITION", errors.FailedPreconditionError),
        ("UNIMPLEMENTED", errors.UnimplementedError),
    ):
        if word in text:
            return cls(text)
    return errors.InternalError(f"XLA: {type(error).__name__}: {text}")
