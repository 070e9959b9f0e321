"""Loops with stacks.

The gradient of a loop keeps what each round computed on stacks, which the gradient's own loop empties. In a program a stack is blocks of values, the last
one on top: what a loop of `n` rounds pushes is one block of `n` values, the stacked results of a `lax.scan`, and a loop that pops takes such a block
as what its scan goes over. For that the number of rounds must be known when compiling. It is found by computing the loop's counters with the kernels
themselves, which asks for nothing but that they start from known values and depend on each other only.

If the rounds are not known, what they push goes to a buffer that has room for so many of them, and the gradient's loop has to take exactly that
many back. The program finds out whether that was so, and says it beside its results: if not, they are worth nothing, and the host computes.

A loop without stacks that may run for long counts its rounds, and ends when it had as many as it was given: nothing stops a program from outside.
Its variables go out then, and the next call goes on from there (`pace`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.python.expressions import needed_inputs
from penstock.engines.python.structure import Branch, Call, Loop
from penstock.engines.python.walk import everything, makes
from penstock.engines.xla.rule import Unsupported, find_rule, jax, jnp, lax
from penstock.engines.xla.series import note, series_of
from penstock.graph.ir import Operation, Tensor

MOST_CALLS = 20_000
"""Kernels that may be called to find out how often a loop runs."""
SMALL = 16
"""Elements of what a counter may be."""
SHAPES = frozenset(("Shape", "Size", "Rank"))
STACK_OPS = frozenset(("StackV2", "StackPushV2", "StackPopV2"))


MOST_ROUNDS, MOST_BYTES, FEWEST_ROUNDS = 256, 1 << 20, 16
"""Room for what a loop of unknown rounds pushes: for so many of them, if it is not too big; with less than that it is not worth trying."""

BOUNDED_BYTES = 1 << 26
"""Room for a loop whose TensorArrays say how often it can run at most."""


LEAST_WORK = 16
"""What a call takes at least, in elements."""


class Unsure(NamedTuple):
    """A block that a loop of unknown rounds has pushed: (room, values per round, *shape), and how many rounds there were."""

    buffer: Any
    rounds: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return (-1, *self.buffer.shape[2:])


class Stacked:
    """A stack while a program is traced: blocks of values, (count, *shape) each. In the body of a loop, `noted` has blocks of one value and what that is in
    each round, as far as it is known."""

    def __init__(self, blocks: list[Any], series: np.ndarray | None = None) -> None:
        self.blocks = blocks
        self.noted: dict[int, tuple[Any, np.ndarray]] = {}
        if series is not None:
            self.note(blocks[0], series)

    def note(self, block: Any, series: np.ndarray) -> None:
        self.noted[id(block)] = (block, series)

    def series(self, block: Any) -> np.ndarray | None:
        found = self.noted.get(id(block))
        return None if found is None else found[1]

    def push(self, block: Any) -> None:
        """Puts a block on top."""
        if block.shape[0]:
            self.blocks.append(block)

    def take(self, count: int) -> Any:
        """The last `count` values as one block. The host says it if there are fewer."""
        parts: list[Any] = []
        while count:
            if not self.blocks:
                parts.append(self.more(count))
                break
            block = self.blocks.pop()
            if isinstance(block, Unsure):
                raise Unsupported("a stack whose size depends on data")
            n = block.shape[0]
            if n > count:
                self.blocks.append(block[: n - count])
                block = block[n - count :]
            parts.append(block)
            count -= block.shape[0]
        return joined(parts[::-1])

    def more(self, count: int) -> Any:
        raise Unsupported("an empty stack")

    def take_unsure(self, per_round: int) -> Unsure:
        """The last block, whose rounds must have left as much as those that take it want."""
        block = self.blocks.pop() if self.blocks else None
        if not isinstance(block, Unsure) or block.buffer.shape[1] != per_round:
            raise Unsupported("how often a loop takes from a stack is not known")
        return block

    def shape(self) -> tuple[int, ...]:
        """Of the value on top."""
        if not self.blocks:
            raise Unsupported("an empty stack")
        return self.blocks[-1].shape[1:]

    @property
    def height(self) -> int:
        return sum(block.shape[0] for block in self.blocks)

    def constant(self) -> np.ndarray | None:
        """The value, if it is known and all there are are equal."""
        if not self.blocks or not all(isinstance(block, np.ndarray) for block in self.blocks):
            return None
        first = self.blocks[0][0]
        return first if all((block == first).all() for block in self.blocks) else None


class Probe(Stacked):
    """A stack in a trial run of a loop's body: counts what is taken from below what the body itself has pushed."""

    def __init__(self, below: Stacked, dtype: np.dtype) -> None:
        super().__init__([])
        self.below = below
        self.dtype = dtype
        self.taken = 0

    def more(self, count: int) -> Any:
        known = self.below.constant()
        block = jnp.zeros((count, *self.below.shape()), self.dtype) if known is None else _repeated(known, count)
        top = self.below.blocks[-1] if self.below.blocks else None  # itself a trial's, with nothing in it
        if not self.taken and count == 1 and isinstance(top, np.ndarray):
            self.note(block, top[::-1])
        self.taken += count
        return block

    def shape(self) -> tuple[int, ...]:
        return super().shape() if self.blocks else self.below.shape()

    def constant(self) -> np.ndarray | None:
        return super().constant() if self.blocks else self.below.constant()


def joined(blocks: list[Any]) -> Any:
    """Blocks as one block."""
    if len(blocks) == 1:
        return blocks[0]
    if len({block.shape[1:] for block in blocks}) > 1:
        raise Unsupported("values of several shapes on one stack")
    return (np if all(isinstance(block, np.ndarray) for block in blocks) else jnp).concatenate(blocks)


def _repeated(value: np.ndarray, count: int) -> np.ndarray:
    return np.broadcast_to(value, (count, *value.shape))


def stack_call(op: Operation, value: Callable[[Tensor], Any], plain: Callable[[Tensor], Any]) -> Any:
    """What a node of STACK_OPS gives. What a push gives has the name of what was pushed."""
    if op.type == "StackV2":
        return Stacked([])
    stack = value(op.inputs[0])
    if op.type == "StackPushV2":
        pushed = plain(op.inputs[1])
        block = np.asarray(pushed)[None] if isinstance(pushed, np.generic) else pushed[None]
        if (series := series_of(pushed)) is not None:
            stack.note(block, series)
        stack.push(block)
        return None
    block = stack.take(1)
    value = block.reshape(block.shape[1:])
    note(value, stack.series(block))
    return value


def stacks_in(statement: Loop | Branch, root: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Handles of the stacks that are pushed to or popped from inside, without those that are made there."""
    inside = [part for part in everything([statement]) if part is not statement]
    made = {t for s in inside for t in makes(s)}
    found = (root(s.node.op.inputs[0]) for s in inside if isinstance(s, Call) and s.node.op.type in ("StackPushV2", "StackPopV2"))
    return list(dict.fromkeys(t for t in found if t not in made))


class Rounds(NamedTuple):
    """How often a loop runs, and what those of its variables are that could be computed: in each round, and after the last."""

    number: int
    values: dict[Tensor, np.ndarray]
    last: dict[Tensor, np.ndarray]


def known_rounds(loop: Loop, root: Callable[[Tensor], Tensor], env: dict[Tensor, Any]) -> Rounds | None:
    """The number of rounds, if it depends on known values only. `env` has the values around the loop."""
    firsts = {m.op.outputs[0]: env[root(first)] for m, first, _ in loop.carried}
    nexts = {m.op.outputs[0]: root(next_) for m, _, next_ in loop.carried}
    counting = {t for t, v in firsts.items() if _is_number(v)}
    inside = {t for part in (loop.cond, loop.body) for s in everything(part) for t in makes(s)}
    while True:
        known, calls = _computable(loop, root, env, counting, inside, set(firsts))
        stay = {t for t in counting if nexts[t] in known or (nexts[t] not in inside and nexts[t] not in firsts and _is_number(env.get(nexts[t])))}
        if stay == counting:
            break
        counting = stay
    again = root(loop.again)
    if again not in known:
        return None
    values = {t: firsts[t] for t in counting}
    history: dict[Tensor, list[Any]] = {t: [] for t in counting}

    def run(nodes: list[Any]) -> None:
        for node in nodes:
            if isinstance(node, Known):
                values[node.op.outputs[0]] = node.value
                continue
            values[node.op.outputs[0]] = node.fn(*[values[r] if (r := root(t)) in values else env[r] for t in node.op.inputs])

    try:
        for count in range(MOST_CALLS // max(1, sum(map(len, calls))) + 1):
            run(calls[0])
            if not bool(values[again] if again in values else env[again]):
                each = {t: np.array(found, t.dtype.np) for t, found in history.items()}
                return Rounds(count, each, {t: np.asarray(values[t]) for t in counting})
            for tensor, found in history.items():
                found.append(values[tensor])
            run(calls[1])
            values.update([(t, values[nexts[t]] if nexts[t] in values else env[nexts[t]]) for t in counting])
    except Exception:  # a kernel that has something to report does so when the step runs
        return None
    return None


class Known(NamedTuple):
    """In the place of a node: what it gives in every round."""

    op: Operation
    value: Any


def _computable(
    loop: Loop, root: Callable[[Tensor], Tensor], env: dict[Tensor, Any], counting: set[Tensor], inside: set[Tensor], carried: set[Tensor]
) -> tuple[set[Tensor], tuple[list[Any], list[Any]]]:
    """What follows in each round from the counting variables and what is known around the loop: the tensors, the nodes of the condition and of the body."""
    known = set(counting)
    calls: tuple[list[Any], list[Any]] = ([], [])

    def is_known(tensor: Tensor) -> bool:
        return tensor in known or (tensor not in inside and tensor not in carried and _is_number(env.get(tensor)))

    for block, nodes in zip((loop.cond, loop.body), calls):
        for statement in block:
            if not isinstance(statement, Call):
                continue
            node = statement.node
            op: Operation = node.op
            if op.op_def.stateful or node.needs_ctx or node.refs or not node.plain or len(needed_inputs(node)) < len(op.inputs):
                continue
            dims = op.outputs[0].dims
            if dims is None or None in dims or math.prod(n or 0 for n in dims) > SMALL:
                continue
            if op.type in SHAPES and (shape := getattr(env.get(root(op.inputs[0])), "shape", None)) is not None and root(op.inputs[0]) not in carried:
                known.add(op.outputs[0])
                nodes.append(Known(op, node.fn(np.broadcast_to(np.zeros((), bool), shape))))
            elif op.inputs and all(is_known(root(t)) for t in op.inputs):
                known.add(op.outputs[0])
                nodes.append(node)
    if is_known(root(loop.again)):
        known.add(root(loop.again))
    return known, calls


def _is_number(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf" and value.size <= SMALL


Body = Callable[[tuple, tuple, dict[Tensor, Stacked]], tuple]
"""Runs one round: gets the loop's variables, those that are known, and the round's stacks; gives the variables' next values."""


def scan(count: int, first: tuple, known: tuple, stacks: dict[Tensor, Stacked], body: Body) -> tuple:
    """The loop's variables after `count` rounds. `known` are arrays that have a value for each round. Changes `stacks`."""
    per_round = _effects(first, tuple(values[0] for values in known), stacks, body)
    popped = [handle for handle, (taken, _) in per_round.items() if taken]
    pushed = [handle for handle, (_, left) in per_round.items() if left]
    if set(popped) & set(pushed):
        raise Unsupported("a loop that takes from a stack and pushes to it")
    blocks = []
    same: dict[Tensor, np.ndarray] = {}  # what every round takes, where that is known
    each_round: dict[Tensor, np.ndarray] = {}  # what it takes in which round
    for handle in popped:
        taken = per_round[handle][0]
        constant = stacks[handle].constant()
        block = stacks[handle].take(count * taken)
        if constant is not None:
            same[handle] = _repeated(constant, taken)
        else:
            blocks.append(block.reshape((count, taken, *block.shape[1:])))
            if taken == 1 and isinstance(block, np.ndarray):
                each_round[handle] = block[::-1]
    # The first round takes what is on top. Going through everything from behind costs nothing, turning the blocks around does.
    backwards = bool(popped) and not pushed
    if backwards:
        known = tuple(values[::-1] for values in known)
    else:
        blocks = [jnp.flip(block, 0) for block in blocks]
    varying = [handle for handle in popped if handle not in same]
    known_left: dict[Tensor, np.ndarray] = {}

    def step(carry: tuple, each: tuple) -> tuple[tuple, tuple]:
        mine = {handle: Stacked([]) for handle in stacks}
        mine.update((handle, Stacked([block], each_round.get(handle))) for handle, block in (*zip(varying, each[1]), *same.items()))
        carry = body(carry, each[0], mine)
        left = {handle: joined(mine[handle].blocks) for handle in pushed}
        for handle, block in left.items():
            if isinstance(block, np.ndarray):
                # What is an array here does not depend on which round it is.
                known_left[handle] = np.tile(block, (count, *[1] * (block.ndim - 1)))
            elif (values := mine[handle].series(block)) is not None:
                known_left[handle] = values
        return carry, tuple(block for handle, block in left.items() if handle not in known_left)

    last, left = lax.scan(step, first, (known, tuple(blocks)), length=count, reverse=backwards)
    for handle, block in known_left.items():
        stacks[handle].push(block)
    for handle, block in zip([handle for handle in pushed if handle not in known_left], left):
        stacks[handle].push(block.reshape((-1, *block.shape[2:])))
    return last


def while_loop(first: tuple, stacks: dict[Tensor, Stacked], cond: Callable[[tuple], Any], body: Body, most: int | None = None) -> tuple[tuple, Any]:
    """The loop's variables after an unknown number of rounds, and whether there is reason to doubt them. Changes `stacks`. More than `most` rounds are wrong
    anyway."""
    probes = _probes(first, (), stacks, body)
    blocks = {handle: stacks[handle].take_unsure(probe.taken) for handle, probe in probes.items() if probe.taken}
    left = {handle: joined(probe.blocks) for handle, probe in probes.items() if probe.blocks}
    if set(blocks) & set(left):
        raise Unsupported("a loop that takes from a stack and pushes to it")
    sizes = [math.prod(block.shape) * block.dtype.itemsize for block in left.values()]
    rooms = [block.buffer.shape[0] for block in blocks.values()]
    if most is not None and most * sum(sizes) <= BOUNDED_BYTES:
        rooms.append(most)
    elif sizes:
        rooms += [MOST_ROUNDS, MOST_BYTES // max(1, sum(sizes))]
    room = min(rooms, default=MOST_ROUNDS)
    if room < FEWEST_ROUNDS and most is None and not blocks:
        raise Unsupported("what the loop pushes is large")

    def goes_on(state: tuple) -> Any:
        done, carry, _ = state
        return cond(carry) & (done < room)

    def step(state: tuple) -> tuple:
        done, carry, buffers = state
        mine = {handle: Stacked([]) for handle in stacks}
        for handle, block in blocks.items():
            mine[handle].push(lax.dynamic_index_in_dim(block.buffer, jnp.maximum(block.rounds - 1 - done, 0), 0, keepdims=False))
        carry = body(carry, (), mine)
        new = [jnp.asarray(joined(mine[handle].blocks)) for handle in left]
        return done + 1, carry, tuple(lax.dynamic_update_index_in_dim(b, v, done, 0) for b, v in zip(buffers, new))

    empty = tuple(_unwritten((room, *block.shape), block.dtype) for block in left.values())
    done, last, buffers = lax.while_loop(goes_on, step, (jnp.zeros((), np.int32), first, empty))
    doubt = cond(last)
    for block in blocks.values():
        doubt = doubt | (block.rounds != done)
    for handle, buffer in zip(left, buffers):
        stacks[handle].push(Unsure(buffer, done))
    return last, doubt


def _unwritten(shape: tuple[int, ...], dtype: Any) -> Any:
    """Room that nobody reads before it is written."""
    make = getattr(jax.lax, "empty", None)  # since JAX 0.7
    return jnp.zeros(shape, dtype) if make is None else make(shape, dtype)


def counted_loop(
    first: tuple, left: Any, cond: Callable[[tuple], Any], body: Callable[[tuple, Any], tuple[tuple, Any]], counts_inside: bool
) -> tuple[tuple, Any, Any]:
    """The loop's variables when it is over or `left` rounds have run, its own and those of loops inside, whichever comes first; how many are left, -1 if
    it is not over; and whether it came on. A round that could not end is as if it had not begun."""

    def goes_on(state: tuple) -> Any:
        left, _, carry = state
        return cond(carry) & (left > 0)

    def step(state: tuple) -> tuple:
        left, done, carry = state
        new, left = body(carry, left - 1)
        if not counts_inside:
            return left, done, new
        broken = left < 0
        return left, done | ~broken, tuple(lax.select(broken, a, b) for a, b in zip(carry, new, strict=True))

    after, done, last = lax.while_loop(goes_on, step, (left, jnp.zeros((), bool), first))
    return last, jnp.where((after < 0) | cond(last), -1, after), done if counts_inside else after != left


def work_of(block: list) -> int | None:
    """About how much a block computes, in elements; None if that is not known."""
    total = 0
    for statement in everything(block):
        if not isinstance(statement, Call):
            continue
        op: Operation = statement.node.op
        sizes = [math.prod(n for n in t.dims) if t.dims is not None and None not in t.dims else None for t in (*op.inputs, *op.outputs)]  # type: ignore[misc]
        if None in sizes:
            return None
        known = [n for n in sizes if n is not None]
        rule = find_rule(op.op_def)
        if rule is not None and rule.heavy and len(op.inputs) > 1:
            # As a product of matrices: every element of one meets a row of the other. For convolutions and the like it is too much.
            total += known[0] * max(1, known[1] // max(1, (op.inputs[1].dims or (1,))[0] or 1))
        total += max(known, default=0) + LEAST_WORK
    return total


def cond(pred: Any, stacks: dict[Tensor, Stacked], sides: tuple[Body, Body]) -> tuple:
    """What the side gives that `pred` says. Changes `stacks`: what one side pushes or pops, the other does too, with zeros, so that how much is on a stack
    does not depend on data. Whoever lets a stack be used like that has seen that the same side pops what was pushed."""
    probes = [_probes((), (), stacks, side) for side in sides] if stacks else []
    given: dict[Tensor, Any] = {}
    left: dict[Tensor, Any] = {}
    for handle, stack in stacks.items():
        taken = [found[handle].taken for found in probes]
        blocks = [found[handle].blocks for found in probes]
        if min(taken) or all(blocks) or (max(taken) and any(blocks)):
            raise Unsupported("a stack that both sides of a branch use")
        if max(taken):
            given[handle] = stack.take(max(taken))
        elif any(blocks):
            block = joined(blocks[0] or blocks[1])
            left[handle] = (block.shape, block.dtype)

    def run(side: Body) -> Callable[[], tuple[tuple, tuple]]:
        def one() -> tuple[tuple, tuple]:
            mine = {handle: Stacked([given[handle]] if handle in given else []) for handle in stacks}
            found = side((), (), mine)
            return found, tuple(jnp.asarray(joined(mine[h].blocks)) if mine[h].blocks else jnp.zeros(*like) for h, like in left.items())

        return one

    if isinstance(pred, (np.ndarray, np.generic)):
        found, new = run(sides[0] if bool(pred) else sides[1])()
    else:
        found, new = lax.cond(jnp.reshape(pred, ()), run(sides[0]), run(sides[1]))
    for handle, block in zip(left, new):
        stacks[handle].push(block)
    return found


def probe(first: tuple, known: tuple, stacks: dict[Tensor, Stacked], body: Body) -> None:
    """A trial round that computes nothing. What it notes of values that it takes from stacks holds if every round takes one."""
    if any(found.taken > 1 for found in _probes(first, known, stacks, body).values()):
        raise Unsupported("a loop with TensorArrays that takes several values at a time from a stack")


def _effects(first: tuple, known: tuple, stacks: dict[Tensor, Stacked], body: Body) -> dict[Tensor, tuple[int, int]]:
    """How many values a round takes from each stack and how many it leaves there."""
    return {handle: (probe.taken, probe.height) for handle, probe in _probes(first, known, stacks, body).items()}


def _probes(first: tuple, known: tuple, stacks: dict[Tensor, Stacked], body: Body) -> dict[Tensor, Probe]:
    """The stacks after a trial round that computes nothing."""
    probes: dict[Tensor, Probe] = {}

    def trial(first: tuple, known: tuple) -> tuple:
        probes.update((handle, Probe(stack, handle.op.attrs["elem_type"].np)) for handle, stack in stacks.items())
        return body(first, known, dict(probes))

    jax.eval_shape(trial, first, known)
    return probes
