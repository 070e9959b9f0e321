"""Statements -> a traced computation: calls by the ops' rules, branches as lax.cond, loops as lax.while_loop, those with stacks as lax.scan.

Values are JAX tracers, NumPy arrays (known when compiling) and `Var`s. What depends on known values alone stays known: shapes and what is
computed from shapes never become part of the program.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from penstock.dtypes import resource
from penstock.engines.python.arrays import ARRAY_OPS
from penstock.engines.python.expressions import needed_inputs
from penstock.engines.python.structure import Assign, Branch, Call, Loop
from penstock.engines.python.walk import everything, reads
from penstock.engines.xla import padded, series
from penstock.engines.xla.arrays import Access, Array, LoopArrays, array_call
from penstock.engines.xla.elimination import SOLVED, can_eliminate
from penstock.engines.xla.loops import (
    STACK_OPS,
    Body,
    Rounds,
    Stacked,
    cond,
    counted_loop,
    known_rounds,
    probe,
    scan,
    stack_call,
    stacks_in,
    while_loop,
    work_of,
)
from penstock.engines.xla.reporting import DOUBTFUL, HARMLESS, INDEXED, VECTORS, places_in
from penstock.engines.xla.rule import (
    DOUBTS,
    Dynamic,
    Unsupported,
    Var,
    find_rule,
    jnp,
    lax,
    static_ints,
    within,
)
from penstock.engines.xla.sizes import Padded, Symbolic, is_padded
from penstock.graph.bind import input_ranges
from penstock.graph.ir import Operation, Tensor

FOLD = 1 << 16
"""Elements up to which a value that is known when compiling is computed then; larger ones are made by the program."""

WRITTEN_OUT = 1000
"""Statements that a loop may become if all of its rounds are written one after another."""

PASSES_VARS = frozenset(("Identity", "Enter", "Switch", "RefIdentity"))


class CannotLower(Exception):
    """A node has no place in a program: `op`, and why."""

    def __init__(self, op: Operation | None, why: str, is_dynamic: bool = False) -> None:
        super().__init__(f"{op.name} ({op.type}): {why}" if op is not None else why)
        self.op = op
        self.is_dynamic = is_dynamic


STREAMS = frozenset(("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt"))
"""Ops that go on with a stream of random numbers from step to step: where they are in it is an argument of the program."""


class Counting:
    """What a program whose loops may run for long keeps of them, so that it can end in the middle and go on in the next call.

    `saved` has the variables of each loop that stands outside of other control flow, in order, the first `begun` of which had begun; it is None while they
    are being looked for. `states` and `begin` get the same, as they are at the end, `moved` what says whether a loop came on. Loops of at
    most `short` work that are known to end are not counted."""

    def __init__(self, begun: Any, saved: list[Any] | None, short: int) -> None:
        self.begun = begun
        self.saved = saved
        self.short = short
        self.states: list[tuple] = []
        self.begin: list[Any] = []
        self.moved: list[Any] = []


class Tracer:
    """Runs statements on traced values. `env` maps root tensors to values; `streams` has a place in a stream (three uint64) for each node that draws
    random numbers, and `drawn` gets the number of elements that it draws."""

    def __init__(self, env: dict[Tensor, Any], root: Callable[[Tensor], Tensor], streams: dict[Operation, Any] | None = None) -> None:
        self.env = env
        self.root = root
        self.streams = streams or {}
        self.drawn: dict[Operation, int] = {}
        self.round: Any = None  # of the loop around it, for what it draws
        self.looks: set[Tensor] | None = None  # inputs that can be looked at before the program starts; None: nobody reports anything
        self.given: set[Tensor] = set()  # inputs whose values come with each step
        self.checks: list[tuple[Tensor, int | None, int]] = []
        self.doubts: list[Any] | None = None  # conditions under which the program's results are worth nothing; None: nobody would look
        self.rounds: Counting | None = None  # set if loops must end when `left` says so
        self.is_inside = False
        self.stacked: dict[Tensor, Any] = {}  # the padded axes of what is on each stack, or what its numbers are
        self.room: int | None = None  # of what has room to spare: loops run as often, most likely
        self.left: Any = None  # rounds that loops may still run; below 0 when one had to end before it was over

    def value(self, tensor: Tensor) -> Any:
        try:
            return self.env[self.root(tensor)]
        except KeyError:
            raise CannotLower(tensor.op, "is used outside of its branch") from None

    def run(self, block: list) -> None:
        for statement in block:
            if isinstance(statement, Call):
                self.call(statement.node)
            elif isinstance(statement, Assign):
                op = statement.node.op
                self.env[op.outputs[0]] = self.plain(op.inputs[statement.index])
                self.env[op.outputs[1]] = np.asarray(statement.index, np.int32)
            elif isinstance(statement, Branch):
                self.branch(statement)
            else:
                self.loop(statement)

    def plain(self, tensor: Tensor) -> Any:
        """The value, read if it is a variable."""
        value = self.value(tensor)
        if isinstance(value, Symbolic):
            return value.traced()
        if isinstance(value, Padded):
            raise CannotLower(tensor.op, "an array with room to spare in an unusual place")
        return value.value if isinstance(value, Var) else value

    def raw(self, tensor: Tensor, axes: dict[int, Any]) -> Any:
        """The value, whose padded axes have to be these."""
        value = self.value(tensor)
        if not axes:
            return self.plain(tensor)
        if not isinstance(value, Padded) or value.axes != axes:
            raise CannotLower(tensor.op, "a loop variable of several sizes")
        return value.value

    # -- calls ------------------------------------------------------------------------------------------------------------

    def call(self, node: Any) -> None:
        op: Operation = node.op
        if op.type in STACK_OPS:
            try:
                found = self._stack(op)
            except Unsupported as reason:
                raise CannotLower(op, str(reason)) from None
            if found is not None:
                self.env[op.outputs[0]] = found
            return
        if op.type in ARRAY_OPS:
            self._array(op)
            return
        if len(needed_inputs(node)) < len(op.inputs):  # a Reshape between static shapes: nobody computes the shape
            self.env[op.outputs[0]] = jnp.reshape(self.plain(op.inputs[0]), op.outputs[0].dims)
            return
        values = [self.value(t) for t in op.inputs]
        if op.type in PASSES_VARS and values and isinstance(values[0], Var):
            for tensor in op.outputs:
                self.env[tensor] = values[0]
            return
        try:
            results = self._results(node, op, values)
        except Dynamic:
            raise CannotLower(op, "needs a value that is known only when the step runs", True) from None
        except Unsupported as reason:
            raise CannotLower(op, str(reason) or "has no form for these inputs") from None
        except CannotLower:
            raise
        except Exception as error:  # wrong shapes and the like: the kernel knows how to say it
            raise CannotLower(op, f"{type(error).__name__}: {error}") from error
        for tensor, value in zip(op.outputs, results, strict=True):
            if not isinstance(value, Var) and value.dtype != tensor.dtype.base_dtype.np:
                raise CannotLower(op, f"its rule gave {value.dtype} for {tensor.dtype.base_dtype.name}")
            self.env[tensor] = value
        if results and not is_padded((*values, *results)):
            series.follow(node, values, results[0])

    def _stack(self, op: Operation) -> Any:
        """What a node of a stack gives. Sizes of what is on one are the same for all of it."""
        found = stack_call(op, self.value, lambda t: v.value if isinstance(v := self.value(t), Padded) else self.plain(t))
        if op.type != "StackV2":
            handle = self.root(op.inputs[0])
            if op.type == "StackPushV2":
                pushed = self.value(op.inputs[1])
                what = pushed.axes if isinstance(pushed, Padded) else pushed.items if isinstance(pushed, Symbolic) else {}
                if self.stacked.setdefault(handle, what) != what:
                    raise Unsupported("values of several sizes on one stack")
            elif what := self.stacked.get(handle):
                found = Padded(found, what) if isinstance(what, dict) else Symbolic(what, found.dtype, found.ndim)
        return found

    def _array(self, op: Operation) -> None:
        try:
            self.env.update(array_call(op, self.value, self.plain, self.is_inside))
            self._settle([v for v in map(self.env.get, map(self.root, op.inputs[:1])) if isinstance(v, Array)])
        except Dynamic:
            raise CannotLower(op, "needs a value that is known only when the step runs", True) from None
        except Unsupported as reason:
            raise CannotLower(op, str(reason)) from None

    def _settle(self, arrays: Iterable[Array]) -> None:
        """What TensorArrays made in this block doubt becomes the program's doubt."""
        for array in arrays:
            if array.doubt is not None and array.is_inner is self.is_inside:
                if self.doubts is None:
                    raise Unsupported("an index into a TensorArray is not known, and nobody would look whether it is right")
                self.doubts.append(array.doubt)
                array.doubt = None

    def _results(self, node: Any, op: Operation, values: list[Any]) -> list[Any]:
        opdef = op.op_def
        if op in self.streams:
            return [self._draw(op, values)]
        if _is_known(values) and not opdef.stateful and not node.needs_ctx and _is_small(op, values):
            found = node.fn(*values)
            return [np.asarray(v) for v in ([found] if node.plain else found)]
        rule = find_rule(opdef)
        if rule is None:
            raise Unsupported("has no rule for XLA")
        args: list[Any] = []
        for arg, (start, stop, is_list) in zip(opdef.inputs, input_ranges(op), strict=True):
            part = values[start:stop]
            if not arg.is_ref and opdef.inputs and not _takes_resource(op, start, stop):
                part = [v.value if isinstance(v, Var) else v for v in part]
            args.append(part if is_list else part[0])
        token = DOUBTS.set(self.doubts)
        try:
            if self.looks is not None and rule.may_raise(op.attrs) and not _is_harmless(op, args):
                if op.type in INDEXED:
                    self._check_indices(op, args)
                elif op.type in VECTORS and not is_padded(values):
                    self._check_vectors(op, args)
                elif op.type in HARMLESS and self.doubts is not None and not is_padded(args[1:]):
                    self.doubts.append(jnp.any(~HARMLESS[op.type](args[1])))
                elif op.type not in SOLVED or self.doubts is None or is_padded(values) or not can_eliminate(args[0].shape, args[0].dtype):  # else its rule doubts
                    raise Unsupported("its kernel reports bad data, which a program cannot")
            if self.looks is None and op.type in ("Slice", "StridedSlice"):
                self.checks += [(t, low, high) for t, low, high in places_in(op, self.root, args[0].shape, args[2] if _is_known([args[2]]) else None) if t in self.given]
            run = functools.partial(rule.fn, **{name: op.attrs[name] for name in rule.attrs})
            if is_padded(values):
                return padded.call(op, args, run)
            found = run(*args)
        finally:
            DOUBTS.reset(token)
        if opdef.plain_output:
            return [found]
        return [] if found is None else list(found)

    def _check_indices(self, op: Operation, args: list[Any]) -> None:
        position, low, bound = INDEXED[op.type]
        tensor = self.root(op.inputs[position])
        if self.looks is not None and tensor in self.looks:
            self.checks.append((tensor, low, bound(args, op.attrs)))
        else:
            indices = args[position]
            each = series.series_of(indices)
            within(indices if each is None else each, low, bound(args, op.attrs))

    def _check_vectors(self, op: Operation, args: list[Any]) -> None:
        position, bounds = VECTORS[op.type]
        each = series.series_of(args[position])
        indices = args[position] if each is None else each
        if indices.ndim:  # else the rule refuses them
            for place, size in zip(range(indices.shape[-1]), bounds(args)):
                within(indices[..., place], 0, size)

    def _draw(self, op: Operation, values: list[Any]) -> Any:
        from penstock.engines.xla import philox

        place = self.streams[op]
        stream = philox.Stream(place[0], place[1], place[2])
        shape = static_ints(values[0])
        if values[0].ndim != 1 or min(shape, default=0) < 0:
            raise Unsupported("no shape")
        self.drawn[op] = math.prod(shape)
        if self.round is not None:  # each round goes on where the last one ended
            stream = stream.skip(self.round * np.uint64(self.drawn[op] * philox.RESERVED_PER_OUTPUT))
        dtype = op.outputs[0].dtype.np
        if op.type == "RandomUniformInt":
            if _is_known(values[1:]):
                if values[1] >= values[2]:
                    raise Unsupported("an empty range")
            elif self.looks is not None:
                if self.doubts is None:
                    raise Dynamic
                self.doubts.append(jnp.reshape(values[1] >= values[2], ()))
            return philox.uniform_int(stream, shape, values[1], values[2], dtype)
        draw = {"RandomUniform": philox.uniform, "RandomStandardNormal": philox.normal, "TruncatedNormal": philox.truncated_normal}
        return draw[op.type](stream, shape, dtype)

    # -- control flow -----------------------------------------------------------------------------------------------------

    def branch(self, statement: Branch) -> None:
        pred = self.plain(statement.pred)
        handles = stacks_in(statement, self.root)
        if isinstance(pred, (np.ndarray, np.generic)) and not handles:
            self.run(statement.yes if bool(pred) else statement.no)
            return
        merges = merged(statement)
        counts = self.rounds is not None and _has_loops([statement])
        doubts = self._may_doubt([statement])
        reasons: list[Any] = []  # there may turn out to be none

        def side(block: list) -> Body:
            def run(carry: tuple, known: tuple, stacks: dict[Tensor, Stacked]) -> tuple:
                tracer = self.inner(self.left if counts else None)
                tracer.env.update(stacks)
                tracer.run(block)
                if tracer.doubts and not doubts:
                    raise Unsupported("a doubt that does not come out of a branch")
                reasons.extend(tracer.doubts or ())
                return (*(jnp.asarray(tracer.plain(t)) for t in merges), *([_any(tracer.doubts)] if doubts else ()), *([tracer.left] if counts else ()))

            return run

        try:
            found = cond(pred, {handle: self.env[handle] for handle in handles}, (side(statement.yes), side(statement.no)))
        except TypeError as error:
            raise CannotLower(statement.switch.op, f"the two branches differ: {error}") from None
        except Unsupported as reason:
            raise CannotLower(statement.switch.op, str(reason)) from None
        if counts:
            self.left = found[-1]
            found = found[:-1]
        if doubts:
            if reasons and self.doubts is not None:
                self.doubts.append(found[-1])
            found = found[:-1]
        self.env.update(zip(merges, found, strict=True))

    def _may_doubt(self, block: list) -> bool:
        """Whether a block inside of control flow may have a reason for doubt, which has to come out of there."""
        return self.doubts is not None and any(isinstance(s, Call) and s.node.op.type in DOUBTFUL for s in everything(block))

    def inner(self, left: Any = None) -> Tracer:
        """A tracer for statements inside of one: what it finds is not known here."""
        tracer = Tracer(dict(self.env), self.root)
        tracer.looks = self.looks
        tracer.checks = self.checks
        tracer.doubts = None if self.doubts is None else []
        tracer.rounds = self.rounds
        tracer.left = left
        tracer.room = self.room
        tracer.stacked = self.stacked
        tracer.is_inside = True
        return tracer

    def loop(self, statement: Loop, by_rounds: bool = False) -> None:
        """`by_rounds`: each round has its own shapes, so that it has to be known how many there are."""
        handles = stacks_in(statement, self.root)
        try:
            arrays = LoopArrays(statement, self.root, self.env)
        except Unsupported as reason:
            raise CannotLower(statement.loop_cond.op, str(reason)) from None
        draws = {s.node.op: self.streams[s.node.op] for s in statement.body if isinstance(s, Call) and s.node.op in self.streams}
        rounds = known_rounds(statement, self.root, self.env) if handles or arrays or by_rounds or draws else None
        if draws and rounds is None:
            raise CannotLower(statement.loop_cond.op, "how often the loop runs is not known, and it draws random numbers")
        if handles and rounds is None and (self.doubts is None or self.is_inside):
            raise CannotLower(statement.loop_cond.op, "how often the loop runs is not known, and it needs stacks", True)
        known = list(rounds.values) if rounds is not None else []
        carried = [(merge.op.outputs[0], start, next_) for merge, start, next_ in statement.carried if merge.op.outputs[0] not in known]
        merges = [tensor for tensor, _, _ in carried]
        axes = {t: v.axes for t, start, _ in carried if isinstance(v := self.value(start), Padded)}
        first = tuple(self.value(start).value if t in axes else jnp.asarray(self.plain(start), t.dtype.base_dtype.np) for t, start, _ in carried)
        n = len(first)
        doubts = self._may_doubt([statement])
        if doubts:  # one more variable, behind the loop's own
            first = (*first, jnp.zeros((), bool))
        n_own = len(first)
        reasons: list[Any] = []  # there may turn out to be none
        # Loops inside go on with what this one has left: it is one more of its variables.
        counts_inside = self.rounds is not None and _has_loops(statement.body)
        if self.rounds is not None and (_has_loops(statement.cond) or self.left is None):
            raise CannotLower(statement.loop_cond.op, "a loop in the condition of a loop")

        def inner(carry: tuple, others: Iterable[tuple[Tensor, Any]] = (), left: Any = None) -> Tracer:
            tracer = self.inner(left)
            tracer.env.update((t, Padded(v, axes[t]) if t in axes else v) for t, v in zip(merges, carry))
            tracer.env.update(others)
            tracer.run(statement.cond)
            return tracer

        def goes_on(carry: tuple) -> Any:
            again = jnp.reshape(inner(carry).plain(statement.again), ())
            return again & ~carry[n] if doubts else again

        def one(
            carry: tuple, left: Any, values: tuple = (), stacks: dict[Tensor, Stacked] | None = None, log: list[Access] | None = None
        ) -> tuple[tuple, Any]:
            with series.frame():
                for tensor, value in zip(known, values):
                    series.note(value, rounds.values[tensor] if rounds is not None else None)
                tracer = inner(carry, zip(known, values), left)
                tracer.env.update(stacks or {})
                if draws:
                    tracer.streams = draws
                    tracer.round = values[len(known)] if len(values) > len(known) else np.uint64(0)
                if log is not None:
                    arrays.attempt(tracer.env, log)
                elif arrays:
                    arrays.enter(tracer.env, carry[n_own:])
                tracer.run(statement.body)
            if rounds is not None:
                self.drawn.update((op, rounds.number * tracer.drawn.get(op, 0)) for op in draws)
            new = tuple(jnp.asarray(tracer.raw(next_, axes.get(t, {}))) for t, _, next_ in carried)
            if doubts:
                new = (*new, carry[n] | _any(tracer.doubts))
                reasons.extend(tracer.doubts or ())
            elif tracer.doubts:
                raise Unsupported("a doubt that does not come out of a loop")
            return (*new, *(arrays.leave() if arrays and log is None else ())), tracer.left

        def body(carry: tuple, values: tuple = (), stacks: dict[Tensor, Stacked] | None = None) -> tuple:
            if not counts_inside:
                return one(carry, None, values, stacks)[0]
            new, left = one(carry[:-1], carry[-1], values, stacks)
            return (*new, left)

        stacks = {handle: self.env[handle] for handle in handles}
        try:
            if arrays:
                self._try(arrays, rounds, first, stacks, one)
                first = (*first, *arrays.first())
            if not handles and rounds is None:
                last = self._while(statement, first, goes_on, one, counts_inside)
            else:
                if counts_inside:
                    first = (*first, self.left)
                if rounds is None:
                    last, doubt = while_loop(first, stacks, goes_on, body, arrays.most or self.room)
                    assert self.doubts is not None
                    self.doubts.append(doubt)
                else:
                    each = tuple(rounds.values.values())
                    if draws:
                        each = (*each, np.arange(rounds.number, dtype=np.uint64))
                    last = self._rounds(rounds.number, each, stacks, first, body, len(list(everything(statement.body))))
                if counts_inside:
                    self.left = last[-1]
        except TypeError as error:
            if rounds is None and not handles and not arrays and not by_rounds:
                self.loop(statement, True)
                return
            raise CannotLower(statement.loop_cond.op, f"a loop variable changes its shape: {error}") from None
        except Unsupported as reason:
            raise CannotLower(statement.loop_cond.op, str(reason)) from None
        after = inner(last, rounds.last.items() if rounds is not None else ())
        self.env = after.env
        if self.doubts is not None:
            self.doubts += [*([last[n]] if reasons else ()), *(after.doubts or ())]
        if arrays:
            arrays.end(last[n_own:])
            try:
                self._settle(arrays.arrays)
            except Unsupported as reason:
                raise CannotLower(statement.loop_cond.op, str(reason)) from None

    def _try(self, arrays: LoopArrays, rounds: Rounds | None, first: tuple, stacks: dict[Tensor, Stacked], one: Callable[..., tuple[tuple, Any]]) -> None:
        """A trial round: what it does to TensorArrays, and what that means for all rounds."""
        if rounds is not None and not rounds.number:
            arrays.arrays.clear()
            return
        log: list[Access] = []
        values = tuple(v[0] for v in rounds.values.values()) if rounds is not None else ()
        probe(first, values, stacks, lambda carry, known, mine: one(carry, self.left, known, mine, log)[0])
        arrays.learn(log, rounds.number if rounds is not None else None)

    def _while(self, statement: Loop, first: tuple, goes_on: Callable[[tuple], Any], one: Callable[..., tuple[tuple, Any]], counts_inside: bool) -> tuple:
        """A loop without stacks: it counts its rounds, unless it is known to end soon."""
        counting = self.rounds
        if counting is None or (not counts_inside and self._is_short(statement, counting.short)):
            return lax.while_loop(goes_on, lambda carry: one(carry, None)[0], first)
        left = self.left
        if not self.is_inside and counting.saved is not None:
            number = len(counting.states)
            saved = counting.saved[number] if number < len(counting.saved) else ()
            if [v.shape for v in saved] != [v.shape for v in first]:
                raise TypeError("it was none of those that are counted")  # when they were looked for, since its variables change their shapes
            first = tuple(lax.select(number < counting.begun, old, new) for old, new in zip(saved, first))
        last, self.left, moved = counted_loop(first, left, goes_on, one, counts_inside)
        if not self.is_inside:
            counting.states.append(last)
            counting.begin.append(left >= 0)
            counting.moved.append(moved)
        return last

    def _is_short(self, statement: Loop, most: int) -> bool:
        """Whether it is known that the loop ends, and soon."""
        work = work_of([*statement.cond, *statement.body])
        if work is None or work > most:
            return False
        rounds = known_rounds(statement, self.root, self.env)
        return rounds is not None and rounds.number * work <= most

    def _rounds(self, number: int, known: tuple, stacks: dict[Tensor, Stacked], first: tuple, body: Body, size: int) -> tuple:
        """A loop whose rounds are known: as a scan, or written out if that is not too long and the rounds differ in more than numbers."""
        last = first
        is_short = number * size <= WRITTEN_OUT
        if number > 1 or (number and not is_short):
            before = {handle: list(stack.blocks) for handle, stack in stacks.items()}
            try:
                return scan(number, first, known, stacks, body)
            except (TypeError, Unsupported, CannotLower):
                if not is_short:
                    raise
                for handle, blocks in before.items():
                    stacks[handle].blocks = blocks
        for i in range(number):
            last = body(last, tuple(values[i] for values in known), stacks)
        return last


def run_in_pieces(tracer: Tracer, block: list, outputs: list[Tensor], size: int) -> None:
    """Runs a block with a barrier after every `size` statements. XLA's fusion computes a value again for each of its readers, which in a
    tangle of small nodes multiplies the work (a program of 3,000 takes 4 ms; in pieces, 10 us) and the time to compile it."""
    last: dict[Tensor, int] = {}
    for i, statement in enumerate(block):
        for part in everything([statement]):
            last.update((tracer.root(tensor), i) for tensor in reads(part))
    for tensor in outputs:
        last[tracer.root(tensor)] = len(block)
    for start in range(0, len(block), size):
        stop = min(start + size, len(block))
        tracer.run(block[start:stop])
        if stop < len(block):
            env = tracer.env
            live = [t for t, v in env.items() if last.get(t, -1) >= stop and not isinstance(v, (Var, Stacked, Array, Padded, Symbolic, np.ndarray, np.generic))]
            env.update(zip(live, lax.optimization_barrier(tuple(env[t] for t in live))))


def merged(statement: Branch) -> list[Tensor]:
    """What both sides of a branch give a value to."""
    yes = {s.node.op for s in statement.yes if isinstance(s, Assign)}
    return [t for s in statement.no if isinstance(s, Assign) and s.node.op in yes for t in s.node.op.outputs]


def _any(doubts: list[Any] | None) -> Any:
    return functools.reduce(operator.or_, doubts) if doubts else jnp.zeros((), bool)


def _has_loops(block: list) -> bool:
    return any(isinstance(statement, Loop) for statement in everything(block))


def _is_harmless(op: Operation, args: list[Any]) -> bool:
    return op.type in HARMLESS and _is_known(args[1:]) and bool(np.all(HARMLESS[op.type](args[1])))


def _takes_resource(op: Operation, start: int, stop: int) -> bool:
    return stop > start and op.inputs[start].dtype is resource


def _is_known(values: list[Any]) -> bool:
    return all(isinstance(v, (np.ndarray, np.generic)) for v in values)


def _is_small(op: Operation, values: list[Any]) -> bool:
    sizes = [v.size for v in values]
    for tensor in op.outputs:
        if tensor.dims is not None and None not in tensor.dims:
            sizes.append(math.prod(n or 0 for n in tensor.dims))
    return max(sizes, default=0) <= FOLD
