"""Which statements go to XLA together: segments.

A block's statements are sorted anew, so that those that can be lowered stand together as far as data and effects allow: as much as is
ready goes into one segment, then what must run on the host, then the next segment. Statements with effects keep their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.dtypes import resource, string
from penstock.engines.python.arrays import NEW, find_arrays
from penstock.engines.python.stacks import find_stacks
from penstock.engines.python.structure import Assign, Branch, Call, Loop
from penstock.engines.python.walk import everything, makes, paths, reads, subblocks
from penstock.engines.xla.elimination import SOLVED, can_eliminate
from penstock.engines.xla.lower import PASSES_VARS, STREAMS, merged
from penstock.engines.xla.reporting import REPORTING
from penstock.engines.xla.rule import find_rule
from penstock.engines.xla.streams import state_of
from penstock.graph.ir import Operation, Tensor


class Segment(NamedTuple):
    """Statements that run as one program. `inputs` and `outputs` are root tensors."""

    statements: list
    inputs: list[Tensor]
    outputs: list[Tensor]
    policy: Any

    @property
    def blocks(self) -> tuple[list, ...]:
        return (self.statements,)

    @property
    def nodes(self) -> list[Any]:
        return [n for s in self.statements for n in nodes_of(s)]


class Policy:
    """What may go to XLA, and what is worth it. This one is for accelerators: everything that has a rule."""

    smallest = 1
    largest = part = 1 << 30
    """Nodes of one segment, and of each if there are more than that. The whole of a computation has few results, and much of it may turn out to be needless or the same;
    a part has all that others read. XLA's compiler takes 4 ms for each of 1,000 nodes of a tangle's part, 12 ms of 4,000, and the code is no faster for it."""
    piece = 1 << 30
    """Statements after which fusion has to stop, see lower.run_in_pieces."""

    def __init__(self) -> None:
        self.excluded: set[Operation] = set()  # nodes that turned out to have no place in a program
        self.stacks: set[Operation] = set()  # nodes of stacks and TensorArrays that nobody outside of the program knows
        self.arrays: dict[Operation, Tensor] = {}  # which of these are nodes of TensorArrays, and their handles
        self.leaky: set[int] = set()  # ids of branches whose sides compute what is read outside of them
        self.leaked: set[Tensor] = set()  # what is read so: there is no value if the other side was taken

    def lowers(self, node: Any) -> bool:
        """Whether the node may be part of a program, as far as it alone is concerned."""
        return node.op in self.stacks or self.takes(node)

    def takes(self, node: Any) -> bool:
        op: Operation = node.op
        if op in self.excluded or any(t.dtype.base_dtype is string for t in (*op.inputs, *op.outputs)):  # also one among others, as in IdentityN
            return False
        if op.type in STREAMS:
            return is_stream(node)
        return find_rule(op.op_def) is not None or (op.type in PASSES_VARS and bool(node.refs))

    def worth(self, statements: list) -> bool:
        return True


class CpuPolicy(Policy):
    """For CPUs: many small nodes, and loops of them. Heavy kernels are better off with oneDNN and BLAS, state with NumPy's arrays that change in
    place, and whatever may report bad data stays with the kernel that does."""

    smallest = 24
    largest = 4000
    part = 1000
    piece = 100
    small_array = 1 << 15
    small_flops = 1 << 21

    def takes(self, node: Any) -> bool:
        op: Operation = node.op
        if op.type in STREAMS:
            return op not in self.excluded and is_stream(node) and _size(op.outputs[0]) <= self.small_array
        rule = find_rule(op.op_def)
        if rule is None or (rule.may_raise(op.attrs) and op.type not in REPORTING and not _is_about_shapes(op)) or op in self.excluded or op.op_def.stateful or node.needs_ctx or node.refs:
            return False
        if touches_variable(op):
            return False
        size = max((_size(t) for t in (*op.inputs, *op.outputs)), default=0)
        if size > self.small_array or any(not _is_numeric(t) for t in (*op.inputs, *op.outputs)):
            return False
        return not rule.heavy or self._is_small_product(op) or _is_small_system(op)

    def _is_small_product(self, op: Operation) -> bool:
        if op.type not in _PRODUCTS or any(t.dims is None or None in t.dims for t in op.inputs):
            return False
        return _flops(op) <= self.small_flops

    def worth(self, statements: list) -> bool:
        return any(isinstance(s, Loop) for s in statements) or sum(len(nodes_of(s)) for s in statements) >= self.smallest

    def may_take(self, node: Any) -> bool:
        """Whether it could be that it `takes` the node, as far as can be told without the rules."""
        op: Operation = node.op
        if op in self.excluded or (op.op_def.stateful and op.type not in STREAMS) or node.refs or touches_variable(op):
            return False
        return not _is_convolution(op) and all(_size(t) <= self.small_array and _is_numeric(t) for t in (*op.inputs, *op.outputs))


class StatePolicy(Policy):
    """For CPUs, when a whole step can be one program, state and all: training steps of small networks. Weights live in the program then."""

    piece = 100
    largest_array = 1 << 20
    largest_flops = 1 << 23

    def takes(self, node: Any) -> bool:
        op: Operation = node.op
        if op.type in PASSES_VARS and node.refs and op not in self.excluded:
            return True
        if op.type in STREAMS:
            return op not in self.excluded and is_stream(node) and _size(op.outputs[0]) <= self.largest_array
        rule = find_rule(op.op_def)
        if rule is None or op in self.excluded or (rule.may_raise(op.attrs) and op.type not in REPORTING and not _is_about_shapes(op)):
            return False
        if op.op_def.stateful and not touches_variable(op):
            return False
        tensors = (*op.inputs, *op.outputs)
        if any(_size(t) > self.largest_array or not (_is_numeric(t) or t.dtype is resource) for t in tensors):
            return False
        return not rule.heavy or (op.type in _PRODUCTS and _flops(op) <= self.largest_flops) or _is_small_system(op)

    def may_take(self, node: Any) -> bool:
        """Whether it could be that it `takes` the node, as far as can be told without the rules."""
        op: Operation = node.op
        if _is_convolution(op) or (op.type in _PRODUCTS and _flops(op) > self.largest_flops):
            return False
        return all(_size(t) <= self.largest_array for t in (*op.inputs, *op.outputs))

    def is_whole(self, block: list) -> bool:
        """Whether a block with segments is one program and nothing but handles beside it."""
        segments = [s for s in block if isinstance(s, Segment)]
        return len(segments) == 1 and all(isinstance(s, Segment) or (isinstance(s, Call) and s.node.op.type in HANDLES) for s in block)


_PRODUCTS = ("MatMul", "BatchMatMulV2", "_FusedMatMul")


def _flops(op: Operation) -> int:
    """Of a product, if sizes that are not known are 1: when the step runs, its time decides."""
    a, out = (t.dims for t in (op.inputs[0], op.outputs[0]))
    if a is None or out is None or len(a) < 2:
        return 0
    is_across = op.attrs.get("transpose_a") or op.attrs.get("adj_x")
    return 2 * math.prod(n or 1 for n in out) * (a[-2 if is_across else -1] or 1)


def _is_small_system(op: Operation) -> bool:
    return op.type in SOLVED and can_eliminate(op.inputs[0].dims, op.inputs[0].dtype.np)


def _is_convolution(op: Operation) -> bool:
    return "Conv2D" in op.type or "Conv3D" in op.type


def may_be_worth_it(block: list, cpu: CpuPolicy) -> bool:
    """Whether XLA could get anything of a block on a CPU, as far as can be told without its rules: to load JAX for them takes seconds in which steps have half of the
    interpreter's time, and convolutional networks have nothing to gain."""
    if any(isinstance(s, Loop) for s in everything(block)):
        return True
    nodes = [s.node for s in everything(block) if isinstance(s, Call)]
    return sum(map(cpu.may_take, nodes)) >= cpu.smallest or all(map(StatePolicy().may_take, nodes))


def is_stream(node: Any) -> bool:
    """Whether the node goes on with a stream of random numbers, whose place is known."""
    return node.op.type in STREAMS and state_of(node) is not None


def _is_about_shapes(op: Operation) -> bool:
    """Whole numbers, a few of them: most likely known when compiling. If they are not, the tracer refuses the node."""
    return all(t.dtype.np is not None and t.dtype.np.kind in "iu" and t.dims is not None and len(t.dims) <= 1 and _size(t) <= 8 for t in op.inputs)


def touches_variable(op: Operation) -> bool:
    """Whether the op takes a variable itself, not only its value."""
    return any(t.dtype is resource for t in op.inputs) or any(arg.is_ref for arg in op.op_def.inputs)


def find_segments(
    block: list, root: Callable[[Tensor], Tensor], constants: Mapping[Tensor, Any], results: Sequence[Tensor], policy: Policy
) -> list:
    """The block with segments in it. `results` are read after it; `constants` need not be handed in."""
    known = set(constants)
    policy.leaky, policy.leaked = _leaky(block, root, results)
    stacks = {**_stacks(block, root, constants, results, policy), **_arrays(block, root, results, policy)}
    policy.arrays = {op: handle for handle, ops in stacks.items() if handle.op.type == NEW for op in ops}
    while True:
        policy.stacks = {op for ops in stacks.values() for op in ops}
        new = _in_block(block, root, policy)
        torn = _torn(new, stacks)
        if not torn:
            break
        for handle in torn:
            del stacks[handle]
    readers: dict[Tensor, set[int]] = {}
    for statement in everything(new):
        for tensor in reads(statement):
            readers.setdefault(root(tensor), set()).add(id(statement))
    for tensor in results:
        readers.setdefault(root(tensor), set()).add(0)
    return _completed(new, root, known, readers)


def _leaky(block: list, root: Callable[[Tensor], Tensor], results: Sequence[Tensor]) -> tuple[set[int], set[Tensor]]:
    """Branches that another branch on the same predicate goes on where they ended, and the values that pass from one to the other."""
    made_in: dict[Tensor, tuple[int, ...]] = {}
    read_in: list[tuple[Tensor, tuple[int, ...]]] = [(root(t), ()) for t in results]

    def walk(block: list, around: tuple[int, ...]) -> None:
        for statement in block:
            read_in.extend((root(tensor), around) for tensor in reads(statement))
            # A Merge has its value after the branch.
            made_in.update((tensor, around[:-1] if isinstance(statement, Assign) else around) for tensor in makes(statement))
            for inner in subblocks(statement):
                walk(inner, (*around, id(statement)) if isinstance(statement, Branch) else around)

    walk(block, ())
    found = [(branch, tensor) for tensor, around in read_in for branch in made_in.get(tensor, ()) if branch not in around]
    return {branch for branch, _ in found}, {tensor for _, tensor in found}


def _arrays(block: list, root: Callable[[Tensor], Tensor], results: Sequence[Tensor], policy: Policy) -> dict[Tensor, list[Operation]]:
    """The nodes of each TensorArray that a program could hold, those of its gradients among them: what happens to it must not depend on data."""
    local = find_arrays(paths(block), reads, root, results)
    found: dict[Tensor, list[Operation]] = {}
    unfit: set[Tensor] = set()
    if local:
        for use in _uses(block, local, ()):
            maker = local[use.op].maker
            found.setdefault(maker.outputs[0], []).append(use.op)
            if use.is_in_condition or use.branches or use.op in policy.excluded or maker.attrs["dtype"].np.kind not in "biufcV":
                unfit.add(maker.outputs[0])
    return {handle: ops for handle, ops in found.items() if handle not in unfit}


class _Use(NamedTuple):
    """A node of a stack, and where it stands: (statement, number of its block) around it, from the outermost on."""

    op: Operation
    place: tuple[tuple[Any, int], ...]

    @property
    def branches(self) -> list[Any]:
        return [statement for statement, _ in self.place if isinstance(statement, Branch)]

    @property
    def is_in_condition(self) -> bool:
        return any(isinstance(statement, Loop) and not number for statement, number in self.place)


def _stacks(
    block: list, root: Callable[[Tensor], Tensor], constants: Mapping[Tensor, Any], results: Sequence[Tensor], policy: Policy
) -> dict[Tensor, list[Operation]]:
    """The nodes of each stack that a program could hold: how much is on it must not depend on data."""
    local = find_stacks(paths(block), reads, root, results, constants.get)
    uses: dict[Tensor, list[_Use]] = {}
    unfit: set[Tensor] = set()
    if local:
        for use in _uses(block, local, ()):
            op = use.op
            handle = op.outputs[0] if op.type == "StackV2" else root(op.inputs[0])
            uses.setdefault(handle, []).append(use)
            kind = handle.op.attrs["elem_type"].np
            if use.is_in_condition or op in policy.excluded or local[op].max_size >= 0 or kind is None or kind.kind == "O":
                unfit.add(handle)
    plain = {handle: found for handle, found in uses.items() if handle not in unfit and not any(use.branches for use in found)}
    fit = {handle: found for handle, found in uses.items() if handle in plain or (handle not in unfit and _is_matched(found, plain, root))}
    return {handle: [use.op for use in found] for handle, found in fit.items()}


def _uses(block: list, local: Container[Operation], place: tuple[tuple[Any, int], ...]) -> Iterator[_Use]:
    for statement in block:
        if isinstance(statement, Call) and statement.node.op in local:
            yield _Use(statement.node.op, place)
        for number, inner in enumerate(subblocks(statement)):
            yield from _uses(inner, local, (*place, (statement, number)))


def _is_matched(uses: list[_Use], others: Mapping[Tensor, list[_Use]], root: Callable[[Tensor], Tensor]) -> bool:
    """Whether a stack that is used in branches is popped exactly if it was pushed to: the predicate of the one that pops is what a stack kept of the
    predicate of the one that pushes, round by round of the same loops."""
    push, pop = _pair(uses)
    if push is None or pop is None or any(len(use.branches) != 1 or use.place[-1][0] is not use.branches[0] for use in (push, pop)):
        return False
    if push.place[-1][1] != pop.place[-1][1] or any(use.branches for use in uses if use is not push and use is not pop):
        return False
    kept = root(pop.branches[0].pred).op
    other = others.get(root(kept.inputs[0])) if kept.type == "StackPopV2" else None
    if other is None:
        return False
    first, second = _pair(other)
    if first is None or second is None or root(first.op.inputs[1]) is not root(push.branches[0].pred):
        return False
    return _same_place(first.place, push.place[:-1]) and _same_place(second.place, pop.place[:-1])


def _same_place(a: tuple[tuple[Any, int], ...], b: tuple[tuple[Any, int], ...]) -> bool:
    return len(a) == len(b) and all(x[0] is y[0] and x[1] == y[1] for x, y in zip(a, b))


def _pair(uses: list[_Use]) -> tuple[_Use | None, _Use | None]:
    """The only push and the only pop."""
    found = [[use for use in uses if use.op.type == kind] for kind in ("StackPushV2", "StackPopV2")]
    return (found[0][0], found[1][0]) if [len(f) for f in found] == [1, 1] else (None, None)


def _torn(block: list, stacks: Mapping[Tensor, list[Operation]]) -> list[Tensor]:
    """Stacks that are used in a segment and outside of it."""
    inside: dict[Operation, int] = {}
    for statement in everything(block):
        if isinstance(statement, Segment):
            inside.update((node.op, id(statement)) for node in statement.nodes)
    return [handle for handle, ops in stacks.items() if len({inside.get(op) for op in ops}) > 1]


def _completed(block: list, root: Callable[[Tensor], Tensor], known: set[Tensor], readers: dict[Tensor, set[int]]) -> list:
    result = []
    for statement in block:
        if isinstance(statement, Segment):
            inside = list(everything(statement.statements))
            ids = {id(s) for s in inside}
            made = {t for s in inside for t in makes(s)}
            inputs = dict.fromkeys(t for s in inside for t in map(root, reads(s)) if t not in made and t not in known)
            outputs = [t for t in made if readers.get(t, set()) - ids]
            order = {t: i for i, t in enumerate(t for s in inside for t in makes(s))}
            statement = statement._replace(inputs=list(inputs), outputs=sorted(outputs, key=order.__getitem__))
        elif isinstance(statement, Branch):
            statement = statement._replace(
                yes=_completed(statement.yes, root, known, readers), no=_completed(statement.no, root, known, readers)
            )
        elif isinstance(statement, Loop):
            statement = statement._replace(
                cond=_completed(statement.cond, root, known, readers), body=_completed(statement.body, root, known, readers)
            )
        result.append(statement)
    return result


# -- one block ------------------------------------------------------------------------------------------------------------


def _in_block(block: list, root: Callable[[Tensor], Tensor], policy: Policy) -> list:
    statements = [_inner(s, root, policy) for s in block]
    takes = [_lowers(s, root, policy) for s in block]
    if not any(takes):
        return statements
    waiting, targets = _dependencies(block, root, policy)
    result: list = []
    ready: dict[bool, list[int]] = {False: [], True: []}  # by whether XLA takes them
    for i, n in enumerate(waiting):
        if n == 0:
            ready[takes[i]].append(i)
    done = 0
    first = True  # what only names variables need not stand between two segments
    while any(ready.values()):
        for for_xla in (False, True, False) if first else (True, False):
            batch: list[int] = []
            while True:
                now = sorted(i for i in ready[for_xla] if not first or _is_handle(block[i]))
                if not now:
                    break
                ready[for_xla] = [i for i in ready[for_xla] if not _is_handle(block[i])] if first else []
                for i in now:
                    batch.append(i)
                    for j in targets[i]:
                        waiting[j] -= 1
                        if not waiting[j]:
                            ready[takes[j]].append(j)
            done += len(batch)
            if for_xla:
                # In the order of the block: the same program whatever the order in which things became ready.
                result += _segments([(block[i], statements[i]) for i in sorted(batch)], policy)
            else:
                result += [statements[i] for i in batch]
            first = False
    assert done == len(block)
    return result


def _is_handle(statement: Any) -> bool:
    return isinstance(statement, Call) and statement.node.op.type in HANDLES


def _inner(statement: Any, root: Callable[[Tensor], Tensor], policy: Policy) -> Any:
    """The statement with segments inside, for when it cannot be part of one as a whole."""
    if isinstance(statement, Branch):
        return statement._replace(yes=_in_block(statement.yes, root, policy), no=_in_block(statement.no, root, policy))
    if isinstance(statement, Loop):
        return statement._replace(cond=_in_block(statement.cond, root, policy), body=_in_block(statement.body, root, policy))
    return statement


def _segments(batch: list[tuple[Any, Any]], policy: Policy) -> list:
    result: list = []
    part: list[tuple[Any, Any]] = []
    count = 0

    def close() -> None:
        nonlocal count
        originals = [original for original, _ in part]
        if originals and policy.worth(originals):
            result.append(Segment(originals, [], [], policy))
        else:
            result.extend(other for _, other in part)
        part.clear()
        count = 0

    most = policy.largest if sum(len(nodes_of(original)) for original, _ in batch) <= policy.largest else policy.part
    for pair in batch:
        size = len(nodes_of(pair[0]))
        if count and count + size > most:
            close()
        part.append(pair)
        count += size
    close()
    return result


_EFFECT, _REPORT = object(), object()


def _dependencies(block: list, root: Callable[[Tensor], Tensor], policy: Policy) -> tuple[list[int], list[list[int]]]:
    made_by: dict[Tensor, list[int]] = {}
    waiting = [0] * len(block)
    targets: list[list[int]] = [[] for _ in block]
    last_effect: dict[Any, int] = {}  # on each stack, and on anything else; of two things to report, the first one is
    for i, statement in enumerate(block):
        before: set[int] = set()
        touched: set[Any] = set()
        for part in everything([statement]):
            for tensor in reads(part):
                before.update(made_by.get(root(tensor), ()))
            if isinstance(part, Call) and part.node.op in policy.stacks:
                if part.node.op in policy.arrays:
                    touched.add(policy.arrays[part.node.op])
                elif part.node.op.type != "StackV2":
                    touched.add(root(part.node.op.inputs[0]))
            elif _has_effect(part):
                touched.add(_EFFECT)
            elif isinstance(part, Call) and _may_report(part.node.op):
                touched.add(_REPORT)
        # What has been written when something is reported is seen by whoever looks afterwards: neither may pass the other.
        for thing in (touched | {_EFFECT, _REPORT}) if touched & {_EFFECT, _REPORT} else touched:
            if thing in last_effect:
                before.add(last_effect[thing])
        last_effect.update(dict.fromkeys(touched, i))
        for j in before:
            if j != i:
                waiting[i] += 1
                targets[j].append(i)
        for part in everything([statement]):
            for tensor in makes(part):
                made_by.setdefault(tensor, []).append(i)
    return waiting, targets


def _may_report(op: Operation) -> bool:
    """Whether a program may have to doubt its results because of the node, so that its kernel can report what is wrong."""
    if op.type not in REPORTING:
        return False
    rule = find_rule(op.op_def)
    return rule is None or rule.may_raise(op.attrs)


HANDLES = frozenset(("VarHandleOp", "VariableV2", "Variable", "Const", "HostConst"))


def _has_effect(statement: Any) -> bool:
    """Whether its place among other statements matters beyond what it reads: it touches state, or what others may change."""
    if not isinstance(statement, Call):
        return isinstance(statement, Assign) and bool(statement.node.refs)
    op: Operation = statement.node.op
    if op.type in HANDLES:
        return False
    if op.op_def.stateful or statement.node.needs_ctx or statement.node.refs:
        return True
    return any(t.dtype._is_ref_dtype or not _is_numeric(t) or (t.op.type in PASSES_VARS and _is_live(t)) for t in op.inputs)


def _is_live(tensor: Tensor) -> bool:
    while tensor.op.type in PASSES_VARS and tensor.op.inputs:
        tensor = tensor.op.inputs[0]
        if tensor.dtype._is_ref_dtype:
            return True
    return False


def _lowers(statement: Any, root: Callable[[Tensor], Tensor], policy: Policy) -> bool:
    """Whether the whole statement can be part of a program."""
    if isinstance(statement, Call):
        return policy.lowers(statement.node)
    if isinstance(statement, (Branch, Loop)):
        inside = [s for s in everything([statement]) if s is not statement]
        if any(_asker(s) in policy.excluded for s in (statement, *inside)):
            return False
        if policy.leaked and any(root(t) in policy.leaked for s in inside for t in reads(s)):
            return False
        for part in inside:
            if isinstance(part, Call):
                if not policy.lowers(part.node) or (_has_effect(part) and part.node.op not in policy.stacks and not _only_reads(part.node) and not is_stream(part.node)):
                    return False
            elif isinstance(part, Assign) and part.node.refs:
                return False
        if isinstance(statement, Branch):
            if statement.switch.refs:
                return False
            return all(_is_closed(s, policy) for s in (statement, *inside) if isinstance(s, Branch))
        return all(_is_closed(s, policy) for s in inside if isinstance(s, Branch))
    return False


def _asker(statement: Any) -> Operation | None:
    """The node that is named if control flow itself has no place in a program."""
    if isinstance(statement, Loop):
        return statement.loop_cond.op
    return statement.switch.op if isinstance(statement, Branch) else None


def _only_reads(node: Any) -> bool:
    """Whether all that the node does to state is to read variables."""
    op: Operation = node.op
    return op.type == "ReadVariableOp" or (not op.op_def.stateful and not node.needs_ctx and not any(arg.is_ref for arg in (*op.op_def.inputs, *op.op_def.outputs)))


def _is_closed(statement: Branch, policy: Policy) -> bool:
    """Whether both sides give values to the same Merges, and are not empty of them unless it is about stacks."""
    if id(statement) in policy.leaky:
        return False
    assigned = [{s.node.op for s in side if isinstance(s, Assign)} for side in (statement.yes, statement.no)]
    return assigned[0] == assigned[1] and (bool(merged(statement)) or any(node.op in policy.stacks for node in nodes_of(statement)))


def nodes_of(statement: Any) -> list[Any]:
    """The nodes whose kernels a statement calls."""
    return [s.node for s in everything([statement]) if isinstance(s, Call)]


def _size(tensor: Tensor) -> int:
    return math.prod(n or 0 for n in tensor.dims) if tensor.dims is not None and None not in tensor.dims else 0


def _is_numeric(tensor: Tensor) -> bool:
    dtype = tensor.dtype.base_dtype
    return dtype.is_numpy_compatible and dtype.np is not None and dtype.np.kind != "O"
