"""Segments and their compiled forms.

    outputs = program(ctx, stop, *inputs)          # what the generated code calls

A `Program` is compiled per combination of shapes. It has a host form beside it (`host`, generated Python for the same statements), which computes when XLA
cannot, and words errors. Variables come as `Ref`s or handles: their values are arguments of the compiled function, new values are results, and what is
written is donated, so that XLA updates it in place. `device` has the programs of accelerators, `hot` those of CPUs.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock import errors
from penstock.engines.python.structure import Loop
from penstock.engines.python.walk import everything
from penstock.engines.xla import backend
from penstock.engines.xla.lower import STREAMS, CannotLower, Counting, Tracer, run_in_pieces
from penstock.engines.xla.pace import STUCK, UNFINISHED, Pace
from penstock.engines.xla.packs import Pack
from penstock.engines.xla.rule import REPORTS, Var
from penstock.engines.xla.segments import Segment
from penstock.engines.xla.sizes import Padded, Size, Symbolic
from penstock.engines.xla.varying import Cuts, Padding
from penstock.graph.ir import Tensor
from penstock.shapes import compatible_dims

MOST_SHAPES = 16
"""Combinations of shapes that one segment is compiled for; others run on the host."""
EMBED = 4096
"""Elements up to which a constant is part of the program; larger ones are arguments."""
_WIDE = ("int64", "uint64", "float64", "complex128")
KNOWN_SIZE = 64
"""Elements up to which whole numbers that come from outside may become part of the program."""


SHORT, SHORT_ON_DEVICE = 1 << 26, 1 << 36
"""Work of a loop, in elements, that is over before anybody wants to stop it."""


class Given(NamedTuple):
    """What a program is compiled for: (input, shape) of values, (input, array) of values that it may count on, (input, shape or None, type,
    declared shape) of variables, which of these are the same, and which sizes there is room for."""

    plain: list[tuple]
    known: list[tuple]
    variables: list[tuple]
    aliases: tuple[int, ...]
    padding: Padding | None = None


class Compiled(NamedTuple):
    """A program for one combination of shapes.

    `read` and `written` number the variables whose values go in and come out; a variable that is both is donated.
    `outputs` has a row per output: ("value", number of the result), ("known", array) or ("var", number of the variable). `draws` says how many
    random numbers each stream gives; `checks`, which inputs hold indices, and their bounds. `doubtful`: the last result says whether to throw all of them
    away and compute on the host. `is_wide`: it has to be called within `backend.x64()`, because of
    64-bit values from the host, or because it is a function of jax.jit's. `pace`: it has loops that may run for long, and is called by `pace.run`.
    `pack`: how the variables that it updates come and go, if not one by one. `padding`: it takes many sizes, and `cuts` says which results have to be cut.
    """

    call: Callable[..., Any]
    read: tuple[int, ...]
    written: tuple[int, ...]
    outputs: tuple[tuple[str, Any], ...]
    draws: tuple[int, ...] = ()
    checks: tuple[tuple[Any, ...], ...] = ()
    doubtful: bool = False
    is_wide: bool = False
    pace: Pace | None = None
    pack: Pack | None = None
    padding: Padding | None = None
    cuts: dict[int, Cuts] = {}


_HOST_VALUES = (np.ndarray, np.generic)


def in_range(checks: tuple[tuple[Any, ...], ...], inputs: Sequence[Any]) -> bool:
    """Whether all indices are. If not, the host's form reports it. What is on a device is not looked at: that would wait for it."""
    for position, low, bound in checks:
        indices = inputs[position]
        if not isinstance(indices, _HOST_VALUES):
            continue
        if indices.size == 1:
            if not indices.item() < bound or (low is not None and indices.item() < low):
                return False
        elif indices.size and not (indices.max() < bound and (low is None or low <= indices.min())):
            return False
    return True


class Program:
    """A segment and its compiled forms. See the module's docstring."""

    reports = False
    """Whether kernels of this device report bad data, so that a program must not swallow it."""
    packs = False
    """Whether small variables are joined."""

    def __init__(
        self, segment: Segment, root: Callable[[Tensor], Tensor], constants: dict[Tensor, np.ndarray], device: Any = None
    ) -> None:
        self.statements = segment.statements
        self.has_loops = any(isinstance(part, Loop) for part in everything(segment.statements))
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
        self.is_full = False  # further shapes run on the host
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
        return self._traced(self._compile, jax, *given)

    def _traced(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)`, which traces rules."""
        token = REPORTS.set(self.reports)
        try:
            with backend.x64():
                return function(*args)
        finally:
            REPORTS.reset(token)

    def _compile(self, jax: Any, plain: list[tuple], known: list[tuple], variables: list[tuple], aliases: tuple[int, ...], padding: Padding | None) -> Compiled:
        found: dict[str, Any] = {}
        count = max(aliases, default=-1) + 1
        firsts = [aliases.index(k) for k in range(count)]
        specs = [jax.ShapeDtypeStruct(shape, dtype_of(t)) for t, shape in plain]
        if padding is not None:
            specs.append(jax.ShapeDtypeStruct((len(padding.groups),), np.int32))
        constant_specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for _, a in self.large]
        shapes = [variables[i][1] for i in firsts]
        types = [variables[i][2] for i in firsts]
        held = [None if s is None else jax.ShapeDtypeStruct(s, d) for s, d in zip(shapes, types)]

        random = {node.op: i for i, node in enumerate(self.streams)}

        short = SHORT if self.device is None else SHORT_ON_DEVICE

        def trace(values: list[Any], constants: list[Any], old: list[Any], places: list[Any], pace: Any = None, saved: Any = None) -> tuple:
            env: dict[Tensor, Any] = {**self.embedded, **dict(known)}
            env.update((t, v) for (t, _), v in zip(self.large, constants))
            env.update((t, v) for (t, _), v in zip(plain, values))
            sizes: list[Size] = []
            if padding is not None:
                sizes = [Size(values[-1][i], room) for i, room in enumerate(padding.rooms)]
                env.update(_with_room(padding, sizes, [t for t, _ in plain], values))
            states = [Var(v, d) for v, d in zip(old, types)]
            env.update((row[0], states[aliases[i]]) for i, row in enumerate(variables))
            tracer = Tracer(env, self.root, {op: places[i] for op, i in random.items()})
            tracer.given = {t for t, _ in plain}
            if self.reports:
                tracer.looks = {t for t, _ in plain}
                tracer.doubts = []
            tracer.room = max((size.room for size in sizes), default=None)
            left = None
            if pace is not None:
                tracer.rounds = Counting(pace[1], saved, short)
                tracer.left = left = pace[0]
            run_in_pieces(tracer, self.statements, self.outputs, self.policy.piece)
            found["loops"] = tracer.rounds.states if tracer.rounds is not None and tracer.left is not left else None
            found["checks"] = tuple((self.inputs.index(t), *bounds) for t, *bounds in tracer.checks)
            for state, value in zip(states, old):
                if tracer.doubts and state.is_written:
                    if value is None:
                        raise CannotLower(None, "a variable without a value is written, which may have to be taken back")
                    state.is_read = True
            found["read"] = tuple(i for i, s in enumerate(states) if s.is_read)
            found["written"] = tuple(i for i, s in enumerate(states) if s.is_written)
            rows: list[tuple[str, Any]] = []
            results: list[Any] = []
            cuts: dict[int, Cuts] = {}
            own: list[Size] = []  # sizes that are found by the program

            def number_of(size: Size) -> int:
                if size in sizes:
                    return sizes.index(size)
                if size not in own:
                    own.append(size)
                return ~(len(self.outputs) + own.index(size))

            for tensor in self.outputs:
                try:
                    value = tracer.value(tensor)
                except KeyError:
                    raise CannotLower(tensor.op, "is used outside of its branch") from None
                if isinstance(value, Symbolic):
                    value = value.traced()
                elif isinstance(value, Padded):
                    cuts[len(rows)] = tuple((axis, number_of(size.base), size.factor) for axis, size in value.axes.items())
                    value = value.value
                if isinstance(value, Var):
                    rows.append(("var", states.index(value)))
                elif isinstance(value, (np.ndarray, np.generic)):
                    rows.append(("known", np.asarray(value)))
                else:
                    rows.append(("value", len(results)))
                    results.append(value)
            for size in own:
                rows.append(("value", len(results)))
                results.append(size.number)
            if tracer.doubts:
                results.append(jax.numpy.any(jax.numpy.stack(tracer.doubts)))
            found["doubtful"] = bool(tracer.doubts)
            found["outputs"] = tuple(rows)
            found["cuts"] = cuts
            found["draws"] = tuple(tracer.drawn.get(op, 0) for op in random)
            new = [jax.numpy.asarray(states[i].value, types[i]) for i in found["written"]]
            found["new_shapes"] = [v.shape for v in new]
            if tracer.doubts:
                if any(v.shape != old[i].shape for i, v in zip(found["written"], new)):
                    raise CannotLower(None, "a variable gets another shape, which may have to be taken back")
                # The host computes then, from what they were.
                new = [jax.numpy.where(results[-1], old[i], v) for i, v in zip(found["written"], new)]
            if found["loops"] is None:
                return results, new
            assert tracer.rounds is not None
            unfinished = tracer.left < 0
            # As if nothing had happened. What is written without being read stays where it is.
            new = [v if old[i] is None or v.shape != old[i].shape else jax.numpy.where(unfinished, old[i], v) for i, v in zip(found["written"], new)]
            moved = sum((m.astype(np.int32) for m in tracer.rounds.moved), np.int32(0))
            rest = jax.numpy.where(unfinished, jax.numpy.where(moved > 0, UNFINISHED, STUCK), tracer.left)
            begun = sum((b.astype(np.int32) for b in tracer.rounds.begin), np.int32(0))
            return results, new, jax.numpy.stack([rest, begun]).astype(np.int32), tracer.rounds.states

        places = [jax.ShapeDtypeStruct((3,), np.uint64)] * len(random)
        budget: Any = jax.ShapeDtypeStruct((2,), np.int32) if self.has_loops else None
        if held or budget is not None:
            jax.eval_shape(trace, specs, constant_specs, held, places, budget)  # to learn what is read and written, and which loops may run for long
        loops = found.get("loops")
        counted: list[Any] = []
        if loops is not None:
            counted = [budget, [tuple(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in carry) for carry in loops]]
            for i in set(found["read"]) & set(found["written"]):
                if found["new_shapes"][found["written"].index(i)] != shapes[i]:
                    raise CannotLower(None, "a variable gets another shape behind a loop")
        read, written = found.get("read", ()), found.get("written", ())
        kept = [i for i in read if i not in written]
        donated = [i for i in read if i in written]

        pack = None
        if self.packs and donated and not counted and tuple(donated) == written and found["new_shapes"] == [shapes[i] for i in donated]:
            pack = Pack.of(jax, found["new_shapes"], [types[i] for i in donated])

        def run(values: list[Any], constants: list[Any], keeps: list[Any], gives: list[Any], *more: Any) -> Any:
            old: list[Any] = [None] * count
            if pack is not None:
                gives = pack.opened(gives)
            for i, v in zip(kept, keeps):
                old[i] = v
            for i, v in zip(donated, gives):
                old[i] = v
            traced = trace(values, constants, old, more[0] if places else [], *more[len(more) - len(counted) :])
            return traced if pack is None else (traced[0], pack.closed(traced[1]))

        options: dict[str, Any] = {"donate_argnums": (3,)} if donated else {}
        gives = [held[i] for i in donated]
        args: Any = (specs, constant_specs, [held[i] for i in kept], gives if pack is None else pack.specs(gives))
        args = (*args, *([places] if places else ()), *counted)
        if self.device is not None:
            place = jax.sharding.SingleDeviceSharding(self.device)
            args = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=place), args)
        jitted = jax.jit(run, **options)
        lowered = jitted.lower(*args)
        self._check_size(lowered.out_info)
        # A device's program is called as jax.jit's own, whose way to the device is 10 us shorter; it compiles in the first call.
        call = jitted if self.device is not None else _executable(lowered)
        # Donated values are on the device already.
        from_host = [*specs, *constant_specs, *(held[i] for i in kept), *places]
        is_wide = self.device is not None or any(spec.dtype.name in _WIDE for spec in from_host)
        self._check_shapes(found["written"], [variables[i] for i in firsts], found["new_shapes"])
        pace = None
        if counted:
            def put(value: Any) -> Any:
                return jax.device_put(value, self.device)

            idle = jax.tree.map(lambda spec: put(np.zeros(spec.shape, spec.dtype)), counted[1])
            pace = Pace(idle, [found["written"].index(i) for i in donated], put)
        return Compiled(
            call, (*kept, *donated), found["written"], found["outputs"], found["draws"], found["checks"], found["doubtful"], is_wide, pace, pack, padding,
            found["cuts"],
        )  # fmt: skip

    def _check_size(self, results: Any) -> None:
        """What cannot fit into the device's memory is refused here: XLA may go and take the host's for it, until the system ends the process."""
        limit = backend.memory_limit(self.device)
        rows = [(math.prod(r.shape) * r.dtype.itemsize, r) for r in backend.leaves(results)] if limit else []
        if sum(size for size, _ in rows) > limit:
            largest = max(rows, key=lambda row: row[0])[1]
            raise errors.ResourceExhaustedError(
                f"OOM when allocating tensor with shape[{','.join(map(str, largest.shape))}] and type {largest.dtype.name} on {self.device}: "
                f"what this step gives takes {sum(size for size, _ in rows):,} bytes, and the device has {limit:,}"
            )

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
            self.is_full = True
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


    def leave_loops(self) -> None:
        """Loops turned out to run for too long: the next program, if there is one, does without what they are in."""
        for statement in self.statements:
            if any(isinstance(part, Loop) for part in everything([statement])):
                self.policy.excluded.add(_asker(statement).op)

    def _know_more(self, given: Given) -> bool:
        """A rule needs to know a value: shapes and axes that come from outside become part of the program from now on. True if there are any."""
        return False


def _with_room(padding: Padding, sizes: list[Size], tensors: list[Tensor], values: list[Any]) -> dict[Tensor, Padded]:
    """The values that have room to spare."""
    axes: dict[int, dict[int, Size]] = {}
    for size, members in zip(sizes, padding.groups):
        for number, axis in members:
            axes.setdefault(number, {})[axis] = size
    return {tensors[number]: Padded(values[number], found) for number, found in axes.items()}


_executables: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()


def _executable(lowered: Any) -> Any:
    """The executable of a program. Where a network has the same layer many times, many programs are the same one."""
    # The text says nothing of arguments that nobody reads, which are checked all the same.
    key = (hashlib.sha256(lowered.as_text().encode()).digest(), lowered.in_tree, lowered.out_tree, str(lowered.in_avals))
    found = _executables.get(key)
    if found is None:
        _executables[key] = found = lowered.compile()
    return found


def _asker(statement: Any) -> Any:
    return statement.loop_cond if isinstance(statement, Loop) else statement.switch


def _no_host(*args: Any) -> tuple:
    raise AssertionError("the segment has no host form yet")


def dtype_of(tensor: Tensor) -> np.dtype:
    return tensor.dtype.base_dtype.np
