"""Segments at run time: compiled per shape, with variables as arguments and results.

    outputs = program(ctx, stop, *inputs)          # what the generated code calls

A `Program` has a host form beside it (`host`, generated Python for the same statements), which computes when XLA cannot, and words errors.

Variables come as `Ref`s or handles. Their values are arguments of the compiled function, new values are results; what is written is
donated, so that XLA updates it in place, unless somebody else still holds the value.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock import errors
from penstock.engines.python.structure import Loop
from penstock.engines.xla import backend
from penstock.engines.xla.lower import STREAMS, CannotLower, Tracer, run_in_pieces
from penstock.engines.xla.rule import REPORTS, Var
from penstock.engines.xla.segments import Segment
from penstock.graph import spec
from penstock.graph.ir import Tensor
from penstock.ops.random import generator
from penstock.ops.resource_variables import find_or_create
from penstock.ops.resources import Ref, ResourceHandle, hold, raw_value
from penstock.shapes import compatible_dims

MOST_SHAPES = 16
"""Combinations of shapes that one segment is compiled for; others run on the host."""
EMBED = 4096
"""Elements up to which a constant is part of the program; larger ones are arguments."""
KNOWN_SIZE = 64
"""Elements up to which whole numbers that come from outside may become part of the program."""


class Given(NamedTuple):
    """What a program is compiled for: (input, shape) of values, (input, array) of values that it may count on, (input, shape or None, type,
    declared shape) of variables, and which of these are the same."""

    plain: list[tuple]
    known: list[tuple]
    variables: list[tuple]
    aliases: tuple[int, ...]


class Compiled(NamedTuple):
    """A program for one combination of shapes.

    `read` and `written` number the variables whose values go in and come out; a variable that is both is donated.
    `outputs` has a row per output: ("value", number of the result), ("known", array) or ("var", number of the variable). `draws` says how many
    random numbers each stream gives; `checks`, which inputs hold indices, and their bounds.
    """

    call: Callable[..., Any]
    read: tuple[int, ...]
    written: tuple[int, ...]
    outputs: tuple[tuple[str, Any], ...]
    draws: tuple[int, ...] = ()
    checks: tuple[tuple[int, int], ...] = ()


class Program:
    """A segment and its compiled forms. See the module's docstring."""

    reports = False
    """Whether kernels of this device report bad data, so that a program must not swallow it."""

    def __init__(
        self, segment: Segment, root: Callable[[Tensor], Tensor], constants: dict[Tensor, np.ndarray], device: Any = None
    ) -> None:
        self.statements = segment.statements
        self.inputs = segment.inputs
        self.outputs = segment.outputs
        self.policy = segment.policy
        self.root = root
        self.device = device  # a jax.Device, or None for the CPU that NumPy's arrays are on
        self.embedded = {t: a for t, a in constants.items() if a.size <= EMBED}
        self.large = [(t, a) for t, a in constants.items() if a.size > EMBED]
        self.host: Callable[..., tuple] = _no_host
        self.handles: list[Any] = []  # nodes that give the last inputs: where variables are, which need not be asked in every step
        self.forms: dict[Any, Compiled | None] = {}
        self.why = ""
        self._constants: list[Any] | None = None
        nodes = segment.nodes
        self.streams = [node for node in nodes if node.op.type in STREAMS]
        self._names = [node.op.name for node in nodes]
        self.node = nodes[-1] if nodes else _asker(segment.statements[-1])  # whom to name if it fails as a whole

    def describe(self) -> str:
        """For people: how much there is in it."""
        names = self._names
        return f"{len(names)} nodes through XLA, {names[0]} to {names[-1]}" if names else "control flow through XLA"

    # -- compiling --------------------------------------------------------------------------------------------------------

    def compile(self, given: Given) -> Compiled:
        """The program for these shapes. Raises CannotLower."""
        jax = backend.start()
        token = REPORTS.set(self.reports)
        try:
            with backend.x64():
                return self._compile(jax, *given)
        finally:
            REPORTS.reset(token)

    def _compile(self, jax: Any, plain: list[tuple], known: list[tuple], variables: list[tuple], aliases: tuple[int, ...]) -> Compiled:
        found: dict[str, Any] = {}
        count = max(aliases, default=-1) + 1
        firsts = [aliases.index(k) for k in range(count)]
        specs = [jax.ShapeDtypeStruct(shape, _dtype(t)) for t, shape in plain]
        constant_specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for _, a in self.large]
        shapes = [variables[i][1] for i in firsts]
        types = [variables[i][2] for i in firsts]
        held = [None if s is None else jax.ShapeDtypeStruct(s, d) for s, d in zip(shapes, types)]

        random = {node.op: i for i, node in enumerate(self.streams)}

        def trace(values: list[Any], constants: list[Any], old: list[Any], places: list[Any]) -> tuple[list[Any], list[Any]]:
            env: dict[Tensor, Any] = {**self.embedded, **dict(known)}
            env.update((t, v) for (t, _), v in zip(self.large, constants))
            env.update((t, v) for (t, _), v in zip(plain, values))
            states = [Var(v, d) for v, d in zip(old, types)]
            env.update((row[0], states[aliases[i]]) for i, row in enumerate(variables))
            tracer = Tracer(env, self.root, {op: places[i] for op, i in random.items()})
            tracer.looks = {t for t, _ in plain} if self.reports else None
            run_in_pieces(tracer, self.statements, self.outputs, self.policy.piece)
            found["checks"] = tuple((self.inputs.index(t), bound) for t, bound in tracer.checks)
            found["read"] = tuple(i for i, s in enumerate(states) if s.is_read)
            found["written"] = tuple(i for i, s in enumerate(states) if s.is_written)
            rows: list[tuple[str, Any]] = []
            results: list[Any] = []
            for tensor in self.outputs:
                try:
                    value = tracer.value(tensor)
                except KeyError:
                    raise CannotLower(tensor.op, "is used outside of its branch") from None
                if isinstance(value, Var):
                    rows.append(("var", states.index(value)))
                elif isinstance(value, (np.ndarray, np.generic)):
                    rows.append(("known", np.asarray(value)))
                else:
                    rows.append(("value", len(results)))
                    results.append(value)
            found["outputs"] = tuple(rows)
            found["draws"] = tuple(tracer.drawn.get(op, 0) for op in random)
            new = [jax.numpy.asarray(states[i].value, types[i]) for i in found["written"]]
            found["new_shapes"] = [v.shape for v in new]
            return results, new

        places = [jax.ShapeDtypeStruct((3,), np.uint64)] * len(random)
        if held:
            jax.eval_shape(trace, specs, constant_specs, held, places)  # to learn what is read and written
        read, written = found.get("read", ()), found.get("written", ())
        kept = [i for i in read if i not in written]
        donated = [i for i in read if i in written]

        def run(values: list[Any], constants: list[Any], keeps: list[Any], gives: list[Any], places: Any = ()) -> Any:
            old: list[Any] = [None] * count
            for i, v in zip(kept, keeps):
                old[i] = v
            for i, v in zip(donated, gives):
                old[i] = v
            return trace(values, constants, old, places)

        options: dict[str, Any] = {"donate_argnums": (3,)} if donated else {}
        args: Any = (specs, constant_specs, [held[i] for i in kept], [held[i] for i in donated])
        if places:
            args = (*args, places)
        if self.device is not None:
            place = jax.sharding.SingleDeviceSharding(self.device)
            args = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=place), args)
        jitted = jax.jit(run, **options)
        lowered = jitted.lower(*args)
        # A device's program is called as jax.jit's own, whose way to the device is the shortest; it compiles in the first call.
        call = jitted if self.device is not None else lowered.compile()
        self._check_shapes(found["written"], [variables[i] for i in firsts], found["new_shapes"])
        return Compiled(call, (*kept, *donated), found["written"], found["outputs"], found["draws"], found["checks"])

    def _check_shapes(self, written: tuple[int, ...], variables: list[tuple], shapes: list[tuple[int, ...]]) -> None:
        """A value must fit the shape that its variable was declared with. The kernels word it."""
        for i, shape in zip(written, shapes):
            if not compatible_dims(shape, variables[i][3]):
                raise CannotLower(None, f"a value of shape {shape} for {variables[i][0].op.name}")

    def form_for(self, key: Any, given: Given) -> Compiled | None:
        """The compiled form, made now if need be; None if there is none."""
        if key in self.forms:
            return self.forms[key]
        form: Compiled | None = None
        if len(self.forms) >= MOST_SHAPES:
            self.why = f"more than {MOST_SHAPES} combinations of shapes"
        else:
            try:
                form = self.compile(given)
            except CannotLower as reason:
                if reason.is_dynamic and self._know_more(given):
                    return None
                self.why = str(reason)
                if reason.op is not None:
                    self.policy.excluded.add(reason.op)
                backend.log.debug("Stays with NumPy: %s", reason)
            self.forms[key] = form
        return form


    def _know_more(self, given: Given) -> bool:
        """A rule needs to know a value: shapes and axes that come from outside become part of the program from now on. True if there are any."""
        return False


class DeviceProgram(Program):
    """A segment on an accelerator: always compiled, values stay on the device."""

    regenerate: Callable[[], None] | None = None
    """Called when a node turned out to have no place in a program: the code must be written anew without it."""

    _last: _Plan | None = None

    known_inputs: frozenset[Tensor] = frozenset()
    """Inputs whose values, not only shapes, programs are compiled for."""

    def _know_more(self, given: Given) -> bool:
        more = {t for t, shape in given.plain if _dtype(t).kind in "iub" and int(np.prod(shape)) <= KNOWN_SIZE}
        found = bool(more - self.known_inputs)
        self.known_inputs |= more
        return found

    def __call__(self, ctx: Any, stop: Any, *inputs: Any) -> tuple:
        last = self._last
        if last is not None and last.version == ctx.resources.version:
            # As in the last step: the same variables, the same shapes of what comes in.
            values = [inputs[i] for i in last.plain]
            if [inputs[i] for i in last.variables] == last.objects and [v.shape for v in values] == last.shapes:
                try:
                    return self._run(last, values)
                except (_Changed, TypeError):
                    self._last = None  # a variable has another shape now, or none
        n = len(inputs)
        every = (*inputs, *(node.fn(ctx) for node in self.handles))
        plan = self._plan(ctx, every, n)
        if plan is None:
            return self._on_host(ctx, stop, inputs)
        try:
            results = self._run(plan, [inputs[i] for i in plan.plain])
        except _Changed:
            return self(ctx, stop, *inputs)
        self._last = None if self.known_inputs else plan
        return results

    def _plan(self, ctx: Any, inputs: tuple, n: int) -> _Plan | None:
        """How to run with these inputs, the first `n` of which come in every step; None if only the host can."""
        seen = self._look(ctx, inputs, n)
        form = self.forms.get(seen.key)
        if form is None:
            n_known = len(self.known_inputs)
            form = self.form_for(seen.key, seen.given)
            if form is None:
                return self._plan(ctx, inputs, n) if len(self.known_inputs) > n_known else None
        return self._planned(ctx, inputs, seen, form)

    def _look(self, ctx: Any, inputs: tuple, n: int) -> _Seen:
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
                held = raw_value(ref)
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
        return _Seen(key, Given(plain, known, variables, aliases), refs, positions, shapes)

    def _planned(self, ctx: Any, inputs: tuple, seen: _Seen, form: Compiled) -> _Plan:
        positions, aliases = seen.positions, seen.given.aliases
        refs = [seen.refs[aliases.index(k)] for k in range(max(aliases, default=-1) + 1)]
        written = set(form.written)
        locked = sorted((refs[i] for i in form.written), key=id)
        return _Plan(
            form, *positions, seen.shapes, [inputs[i] for i in positions[1]], ctx.resources.version, refs,
            [ref.lock.acquire for ref in locked], [ref.lock.release for ref in locked], [refs[i] for i in form.written],
            [refs[i] for i in form.read if i not in written], [refs[i] for i in form.read if i in written],
        )  # fmt: skip

    def _run(self, plan: _Plan, values: list[Any]) -> tuple:
        try:
            with backend.x64():
                return self._dispatch(plan, values)
        except (errors.OpError, _Changed, TypeError):
            raise
        except Exception as error:
            raise device_error(error) from error

    def _dispatch(self, plan: _Plan, values: list[Any]) -> tuple:
        if self._constants is None:
            self._constants = [self._put(a) for _, a in self.large]
        for i, value in enumerate(values):
            if not backend.is_device_array(value):
                # A copy: the transfer goes on while the caller may already write into what it has fed.
                values[i] = self._put(np.array(value))
        form = plan.form
        array, getrefcount = backend.array_class(), sys.getrefcount
        value = None
        more = [self._places(form)] if form.draws else []
        if not plan.refs:
            results, _ = form.call(values, self._constants, [], [], *more)
            return self._packed(form, results, plan.refs)
        for acquire in plan.acquire:
            acquire()
        try:
            kept = [value if (value := ref.value).__class__ is array else self._read(ref) for ref in plan.kept]
            taken: list[Any] = []
            try:
                for ref in plan.donated:
                    value = ref.value
                    if value.__class__ is array:  # the usual case, without a call
                        ref.value = None
                        if getrefcount(value) <= _ALONE:
                            taken.append(value)
                            continue
                        ref.value = value
                    value = None
                    taken.append(self._take(ref))
                value = None
                results, new = form.call(values, self._constants, kept, taken, *more)
            except BaseException:
                for ref, value in zip(plan.donated, taken):
                    if not value.is_deleted():
                        ref.value = value
                raise
            for ref, value in zip(plan.written, new):
                ref.value = value
        finally:
            for release in plan.release:
                release()
        return self._packed(form, results, plan.refs)

    def _places(self, form: Compiled) -> list[Any]:
        """Where each stream is now; it moves on by what the program draws."""
        places = []
        for node, count in zip(self.streams, form.draws):
            attrs = node.op.attrs
            taken = generator(node.fn.state, attrs["seed"], attrs["seed2"]).reserve_outputs(count)
            counter = taken.counter
            places.append(np.array([taken.key, counter & 0xFFFFFFFFFFFFFFFF, counter >> 64], np.uint64))
        return places

    def _put(self, value: Any) -> Any:
        import jax

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
                raise _Changed
            if not backend.is_device_array(value):
                value = ref.value = self._put(value)
        return value

    def _take(self, ref: Ref) -> Any:
        """A variable's value, which belongs to nobody else: it will be written over. The lock is held."""
        value = ref.value
        if value is None:
            raise _Changed
        if not backend.is_device_array(value):
            value = self._put(value)
        ref.value = None
        if sys.getrefcount(value) > _ALONE:
            import jax.numpy as jnp

            value = jnp.copy(value)
        return value

    def _packed(self, form: Compiled, results: list[Any], refs: list[Ref]) -> tuple:
        return tuple(
            results[what] if kind == "value" else what if kind == "known" else refs[what] for kind, what in form.outputs
        )

    def _on_host(self, ctx: Any, stop: Any, inputs: tuple) -> tuple:
        if self.regenerate is not None:
            self.regenerate()
        return self.host(ctx, stop, *[backend.to_host(v) for v in inputs])


class _Seen(NamedTuple):
    """What came in: the key of its form, the description to compile one from, the variables, positions of values and of variables."""

    key: Any
    given: Given
    refs: list[Ref]
    positions: tuple[list[int], list[int]]
    shapes: list[tuple[int, ...]]


class _Plan(NamedTuple):
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


def _references_of_a_local() -> int:
    box = [object()]
    value = box.pop()
    return sys.getrefcount(value)


_ALONE = _references_of_a_local()


class _Changed(Exception):
    """A variable lost its value between two looks."""


class HotProgram(Program):
    """A segment on a CPU: runs as generated Python until XLA's form is compiled, then both are timed, and the faster one stays."""

    reports = True
    TRIALS = 7

    def __init__(self, *args: Any, eager: bool = False) -> None:
        super().__init__(*args)
        self.eager = eager
        self.contests: dict[Any, _Contest] = {}

    def __call__(self, ctx: Any, stop: Any, *inputs: Any) -> tuple:
        values = [value.peek() if isinstance(value, Ref) else value for value in inputs]
        try:
            key = tuple([value.shape for value in values])
        except AttributeError:  # a variable without a value
            return self.host(ctx, stop, *inputs)
        contest = self.contests.get(key)
        if contest is None:
            contest = self._begin(key)
        choice = contest.choice
        form = contest.form
        if choice is _HOST or form is None or (form.checks and not _in_range(form.checks, values)):
            return self.host(ctx, stop, *inputs)
        try:
            return self._through_xla(form, values) if choice is _XLA else self._trial(contest, ctx, stop, inputs, values)
        except JAX_ERRORS as error:
            # Nothing has been changed yet, so Python can have the last word.
            contest.choice = _HOST
            backend.log.warning("XLA failed, and is not used any more here: %s: %s (%s)", self.describe(), type(error).__name__, error)
            return self.host(ctx, stop, *inputs)

    def _through_xla(self, form: Any, values: list[Any]) -> tuple:
        if self._constants is None:
            self._constants = [a for _, a in self.large]
        with backend.x64():
            results, _ = form.call(values, self._constants, [], [])
        return tuple(
            [np.asarray(results[what])[()] if kind == "value" else what for kind, what in form.outputs]
        )

    def _trial(self, contest: _Contest, ctx: Any, stop: Any, inputs: tuple, values: list[Any]) -> tuple:
        start = time.perf_counter_ns()
        if contest.turn & 1:
            result = self._through_xla(contest.form, values)
            contest.xla = min(contest.xla, time.perf_counter_ns() - start)
        else:
            result = self.host(ctx, stop, *inputs)
            contest.python = min(contest.python, time.perf_counter_ns() - start)
        contest.turn += 1
        if contest.turn >= 2 * self.TRIALS:
            contest.choice = _XLA if contest.xla < contest.python else _HOST
            backend.log.debug(
                "%s: Python %.0f us, XLA %.0f us", self.describe(), contest.python / 1e3, contest.xla / 1e3
            )
        return result

    def _begin(self, key: Any) -> _Contest:
        contest = _Contest()
        if len(self.contests) >= MOST_SHAPES or not backend.is_available():
            contest.choice = _HOST
            if len(self.contests) >= 4 * MOST_SHAPES:
                return contest  # not even remembered
        self.contests[key] = contest
        if contest.choice is None:
            if self.eager:
                _compile_for(self, key, self._given(key), contest)
                contest.choice = contest.choice or _XLA
            else:
                # Not worth finishing for a program that is gone by then.
                me, given = weakref.ref(self), self._given(key)
                backend.in_background(lambda: (alive := me()) and _compile_for(alive, key, given, contest))
        return contest

    def _given(self, key: Any) -> Given:
        return Given(list(zip(self.inputs, key)), [], [], ())


def _in_range(checks: tuple[tuple[int, int], ...], inputs: Sequence[Any]) -> bool:
    """Whether all indices are. If not, the host's form reports it."""
    for position, bound in checks:
        indices = inputs[position]
        if indices.size == 1:
            if not 0 <= indices.item() < bound:
                return False
        elif indices.size and not (0 <= indices.min() and indices.max() < bound):
            return False
    return True


class HotStateProgram(DeviceProgram):
    """A whole step on a CPU, variables and all. As a HotProgram it has to win; then the variables' values live in arrays of XLA's, which it
    updates in place, until somebody else asks for one (`HeldRef`)."""

    reports = True
    TRIALS = 8

    def __init__(self, *args: Any, eager: bool = False) -> None:
        super().__init__(*args)
        self.eager = eager
        self.contests: dict[Any, _Contest] = {}

    def __call__(self, ctx: Any, stop: Any, *inputs: Any) -> tuple:
        last = self._last
        if last is not None and last.version == ctx.resources.version:
            values = [inputs[i] for i in last.plain]
            if (
                [inputs[i] for i in last.variables] == last.objects
                and [v.shape for v in values] == last.shapes
                and (not last.form.checks or _in_range(last.form.checks, inputs))
            ):
                try:
                    return self._run(last, values)
                except (_Changed, TypeError):
                    self._last = None
        n = len(inputs)
        every = (*inputs, *(node.fn(ctx) for node in self.handles))
        seen = self._look(ctx, every, n)
        contest = self.contests.get(seen.key)
        if contest is None:
            contest = self._begin(seen)
        form = contest.form
        if contest.choice is _HOST or form is None or (form.checks and not _in_range(form.checks, inputs)):
            return self.host(ctx, stop, *inputs)
        plan = self._planned(ctx, every, seen, form)
        if contest.choice is None:
            return self._trial(contest, plan, ctx, stop, inputs)
        try:
            results = self._run(plan, [inputs[i] for i in plan.plain])
        except (_Changed, TypeError):
            return self.host(ctx, stop, *inputs)
        self._last = plan
        return results

    def _trial(self, contest: _Contest, plan: _Plan, ctx: Any, stop: Any, inputs: tuple) -> tuple:
        # One form after the other, not in turns: whichever takes over the variables pays for it once.
        start = time.perf_counter_ns()
        contest.turn += 1
        if contest.turn <= self.TRIALS:
            results = self.host(ctx, stop, *inputs)
            contest.python = min(contest.python, time.perf_counter_ns() - start)
            return results
        try:
            results = self._run(plan, [inputs[i] for i in plan.plain])
        except (_Changed, TypeError):
            return self.host(ctx, stop, *inputs)
        contest.xla = min(contest.xla, time.perf_counter_ns() - start)
        if contest.turn >= 2 * self.TRIALS:
            contest.choice = _XLA if contest.xla < contest.python else _HOST
            backend.log.debug("%s: Python %.0f us, XLA %.0f us", self.describe(), contest.python / 1e3, contest.xla / 1e3)
        return results

    def _begin(self, seen: _Seen) -> _Contest:
        contest = _Contest()
        if len(self.contests) >= MOST_SHAPES or not backend.is_available():
            contest.choice = _HOST
            if len(self.contests) >= 4 * MOST_SHAPES:
                return contest
        self.contests[seen.key] = contest
        if contest.choice is None:
            key, given = seen.key, seen.given
            if self.eager:
                _compile_for(self, key, given, contest)
                contest.choice = contest.choice or _XLA
            else:
                me = weakref.ref(self)
                backend.in_background(lambda: (alive := me()) and _compile_for(alive, key, given, contest))
        return contest

    def _know_more(self, given: Given) -> bool:
        return False

    def _dispatch(self, plan: _Plan, values: list[Any]) -> tuple:
        form = plan.form
        if self._constants is None:
            self._constants = [a for _, a in self.large]
        for acquire in plan.acquire:
            acquire()
        try:
            kept = [self._read(ref) for ref in plan.kept]
            taken: list[Any] = []
            try:
                for ref in plan.donated:
                    taken.append(self._take(ref))
                results, new = form.call(values, self._constants, kept, taken)
                # What was fed may change when the step is over, and errors belong to it.
                results = [np.asarray(v)[()] for v in results]
                for value in new[:1]:
                    value.block_until_ready()
            except BaseException:
                for ref, value in zip(plan.donated, taken):
                    if not value.is_deleted():
                        hold(ref, value)
                raise
            for ref, value in zip(plan.written, new):
                hold(ref, value)
        finally:
            for release in plan.release:
                release()
        return self._packed(form, results, plan.refs)

    def _read(self, ref: Ref) -> Any:
        value = raw_value(ref)
        if value is None:
            value = ref.peek()
            if value is None:
                raise _Changed
        return value

    def _take(self, ref: Ref) -> Any:
        value = raw_value(ref)
        if value is None:
            raise _Changed
        if backend.is_device_array(value):
            ref.value = None
            # A view that somebody has (a fetch, another step) must not change under them.
            if sys.getrefcount(value) <= _ALONE and not _is_seen(value):
                return value
        import jax.numpy as jnp

        return jnp.array(value, copy=True)


def _is_seen(value: Any) -> bool:
    """Whether NumPy has a view of the array."""
    return getattr(value, "_npy_value", None) is not None


def _compile_for(program: Any, key: Any, given: Given, contest: _Contest) -> None:
    form = None
    try:
        form = program.form_for(key, given)
    except Exception as error:
        if spec.enabled:
            raise
        # Whatever XLA cannot do, Python can: a step must not fail for it.
        backend.log.warning("Not compiled by XLA: %s (%s: %s)", program.describe(), type(error).__name__, error)
    if form is None:
        contest.choice = _HOST
    contest.form = form


_HOST, _XLA = "host", "xla"
JAX_ERRORS = (RuntimeError, TypeError)
"""What a compiled program may raise. Kernels raise OpErrors, ValueErrors and the like in the host's form, which are not among them."""


class _Contest:
    """Two forms of one segment for one combination of shapes. `choice` is None until one has won."""

    __slots__ = ("choice", "form", "python", "turn", "xla")

    def __init__(self) -> None:
        self.choice: str | None = None
        self.form: Compiled | None = None
        self.turn = 0
        self.python = self.xla = float("inf")


def _asker(statement: Any) -> Any:
    return statement.loop_cond if isinstance(statement, Loop) else statement.switch


def _no_host(*args: Any) -> tuple:
    raise AssertionError("the segment has no host form yet")


def _dtype(tensor: Tensor) -> np.dtype:
    return tensor.dtype.base_dtype.np


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
