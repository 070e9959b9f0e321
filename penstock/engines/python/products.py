"""Many small independent products of matrices, computed together.

A product of two 64x64 matrices takes 5 us, too little to hand it to another thread, and TensorFlow computes such products on all cores. Products
of the same shape that do not wait for each other become one statement: matrices are laid side by side (constants once, others when the line
runs), and a batch of them is multiplied in one call without the interpreter's lock.

With oneDNN a group is one call of its batched product, whose threads meet in a few microseconds; singles that nobody wants but for their sum are added by a
loop in machine code (`native.added_products`). Without these, NumPy multiplies batches on our own threads; it calls BLAS once for each matrix of a batch, as it does
for a single one, so that results are bit for bit the same. Products that are big enough for BLAS or oneDNN to use several threads by themselves stay as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.memory import keep_freed_memory
from penstock.engines.onednn.batches import batched_product
from penstock.engines.python import elementwise, parallel
from penstock.engines.python.elementwise import Fused
from penstock.engines.python.expressions import is_pure, variables_read
from penstock.engines.python.structure import Branch, Call, Loop, Offloaded
from penstock.engines.xla.backend import is_deterministic
from penstock.graph.ir import Operation, Tensor
from penstock.ops.native import added_products
from penstock.shapes import is_fully_defined

LARGEST = 262144
"""Multiplications of one product. NumPy's OpenBLAS would wake threads of its own for more."""
SMALLEST, SMALLEST_MOVED = 4096, 32768
"""Below that, calls are all that counts; the second holds if matrices have to be moved."""
SMALLEST_TOTAL = 512
"""Elements of products that are added on several threads."""
FEWEST = 4
WORTH = 3_000_000
"""Multiplications of a whole group: about 60 us."""
BATCH = 1_000_000
"""Multiplications of what one thread does at a time, at least: about 20 us."""
BATCHES = 8
"""More than that only make threads meet at the interpreter's lock more often; fewer leave one waiting for the other."""
MOST_BYTES = 8 << 20
"""Results of one group, which live until the last of them is not needed any more; and constants laid side by side."""

_FLOATS = (np.float32, np.float64)
Root = Callable[[Tensor], Tensor]


class Products(NamedTuple):
    """Nodes of one kind; `sides` says for each operand how it comes (see Runner), `inputs` are the values that the line reads."""

    nodes: list[Any]
    sides: tuple[Any, Any]
    inputs: list[Tensor]
    outputs: list[Tensor]
    total: Any = None
    """The AddN of all of them, in their order, if nobody else reads them: then its result is the only output."""


def find_products(block: list, root: Root, sure: Container[Tensor], constants: dict[Tensor, Any], readers: dict[Tensor, int]) -> list:
    """The block with groups of products made into Products; blocks inside of it likewise. `readers` counts who reads a value."""
    result: list = []
    waiting = list(block)
    counts: dict[Any, int] = {}
    for statement in waiting:
        key = _key(statement, root, sure)
        if key is not None:
            counts[key] = counts.get(key, 0) + 1
    while waiting:
        first = waiting[0]
        if isinstance(first, Branch):
            yes, no = (find_products(inner, root, sure, constants, readers) for inner in (first.yes, first.no))
            first = first._replace(yes=yes, no=no)
        elif isinstance(first, Loop):
            cond, body = (find_products(inner, root, sure, constants, readers) for inner in (first.cond, first.body))
            first = first._replace(cond=cond, body=body)
        elif isinstance(first, Offloaded):
            first = first._replace(host=find_products(first.host, root, sure, constants, readers))
        elif counts and isinstance(first, Call):
            key = _key(first, root, sure)
            if key is not None and counts[key] >= FEWEST:
                batch, before, rest = _collect(waiting, key, root, sure)
                group = _group(batch, root, constants)
                if group is not None:
                    total = _total(group, rest, root, readers)
                    if total is not None:
                        group = group._replace(total=total.node, outputs=total.node.op.outputs)
                        rest = [s for s in rest if s is not total]
                    waiting = [*before, group, *rest]
                    continue
                counts[key] -= 1
        result.append(first)
        del waiting[0]
    return result


def _key(statement: Any, root: Root, sure: Container[Tensor]) -> Any:
    """What products must have in common; None for everything else."""
    if not isinstance(statement, Call) or statement.node.op.type != "MatMul" or variables_read(statement.node):
        return None
    op: Operation = statement.node.op
    a, b = (root(t) for t in op.inputs)
    if a is b or a not in sure or b not in sure or a.dtype.np.type not in _FLOATS or not is_fully_defined(a.dims) or not is_fully_defined(b.dims):
        return None
    if not SMALLEST <= _work(op, a, b) <= LARGEST:
        return None
    return a.dims, b.dims, a.dtype, op.attrs["transpose_a"], op.attrs["transpose_b"]


def _work(op: Operation, a: Tensor, b: Tensor) -> int:
    first: Any = a.dims
    second: Any = b.dims
    return first[0] * first[1] * second[0 if op.attrs["transpose_b"] else 1]


def _collect(waiting: list, key: Any, root: Root, sure: Container[Tensor]) -> tuple[list, list, list]:
    """Products that can be computed together, the statements that go before them, and those that go after: what needs one of them, and
    whatever must not change places with such a statement."""
    batch, before, rest = [waiting[0]], [], []
    out = waiting[0].node.op.outputs[0]
    most = MOST_BYTES // max(1, int(np.prod(out.dims)) * out.dtype.np.itemsize)
    after: set[Tensor] = set(waiting[0].node.op.outputs)
    is_ordered = False
    for statement in waiting[1:]:
        if isinstance(statement, Call) and not any(root(t) in after for t in statement.node.op.inputs):
            if len(batch) < most and _key(statement, root, sure) == key:
                batch.append(statement)
                after.update(statement.node.op.outputs)
                continue
            if not is_ordered or (is_pure(statement.node) and not variables_read(statement.node)):
                before.append(statement)
                continue
        rest.append(statement)
        after.update(elementwise.outputs_of(statement))
        is_ordered = is_ordered or not (isinstance(statement, (Fused, Products)) or (isinstance(statement, Call) and is_pure(statement.node)))
    return batch, before, rest


def _group(batch: list, root: Root, constants: dict[Tensor, Any]) -> Products | None:
    nodes = [s.node for s in batch]
    op: Operation = nodes[0].op
    work = _work(op, root(op.inputs[0]), root(op.inputs[1]))
    if len(nodes) < FEWEST or len(nodes) * work < WORTH:
        return None
    sides, inputs = [], []
    for i in range(2):
        tensors = [root(n.op.inputs[i]) for n in nodes]
        if all(t is tensors[0] for t in tensors):
            if tensors[0] in constants:
                sides.append(np.ascontiguousarray(constants[tensors[0]]))
            else:
                sides.append("shared")
                inputs.append(tensors[0])
        elif all(t in constants for t in tensors) and len(nodes) * constants[tensors[0]].nbytes <= MOST_BYTES:
            sides.append(np.stack([constants[t] for t in tensors]))
        elif work < SMALLEST_MOVED:
            return None
        else:
            sides.append("moved")
            inputs += tensors
    if not any(side == "moved" if isinstance(side, str) else side.ndim == 3 for side in sides):
        return None  # the same product again and again: each has its own result, which may be written over
    return Products(nodes, (sides[0], sides[1]), inputs, [n.op.outputs[0] for n in nodes])


def _total(group: Products, rest: list, root: Root, readers: dict[Tensor, int]) -> Any:
    """The statement that adds all products of a group, if it alone reads them."""
    dims: Any = group.outputs[0].dims
    if dims[0] * dims[1] < SMALLEST_TOTAL or any(readers.get(t) != 1 for t in group.outputs):
        return None
    sums = (s for s in rest if isinstance(s, Call) and s.node.op.type == "AddN")
    return next((s for s in sums if [root(t) for t in s.node.op.inputs] == group.outputs), None)


class Runner:
    """Computes a group: `runner(*inputs)` gives its outputs, views of one array, or the sum of all.

    A side is "shared" (one input for all products), "moved" (an input each, laid side by side here), one constant matrix, or a
    batch of them.
    """

    sides: Any

    def __init__(self, group: Products) -> None:
        op: Operation = group.nodes[0].op
        keep_freed_memory()
        self.adds = None if group.total is None else group.total.fn
        self.sides = group.sides
        self.count = len(group.nodes)
        self.kernels = [node.fn for node in group.nodes]
        self.across = (op.attrs["transpose_a"], op.attrs["transpose_b"])
        self.dims: tuple[int, ...] = op.outputs[0].dims  # type: ignore[assignment]
        self.dtype = op.outputs[0].dtype.np
        self.together = None if self.adds is not None else self._through_onednn(op)
        self.is_added = self.adds is not None and self._has_loop()
        if self.is_added:
            self.sides = tuple(side if isinstance(side, str) else _matrices(side, across) for side, across in zip(self.sides, self.across))
        self.batch = max(1, BATCH // _work(op, op.inputs[0], op.inputs[1]), -(-self.count // BATCHES))

    def __call__(self, *values: Any) -> Any:
        operands, waiting = [], list(values)
        for side in self.sides:
            n = (1 if side == "shared" else self.count) if isinstance(side, str) else 0
            operands.append(waiting[:n] if n else side)
            del waiting[:n]
        if self.is_added:
            return (added_products.added(*(_matrices(o, across) if isinstance(o, list) else o for o, across in zip(operands, self.across))),)
        if not all(v.flags.c_contiguous for v in values):
            return self._one_by_one(operands)
        if self.together is not None:
            found = self.together(*(_batch(operand) for operand in operands))
            if found is not None:
                return found
            self.together = None
        result = np.empty((self.count, *self.dims), self.dtype)
        total = None if self.adds is None else _Total(result, self.batch)
        size = self.batch

        def work(number: int) -> None:
            start = number * size
            stop = min(start + size, self.count)
            a, b = (_part(operand, start, stop, across) for operand, across in zip(operands, self.across))
            np.matmul(a, b, out=result[start:stop])
            if total is not None:
                total.add(number)

        parallel.parallel_for(-(-self.count // size), work)
        return result if total is None else (total.value,)

    def _has_loop(self) -> bool:
        """Whether the loop that adds products can do it. It wants rows that lie one after the other; what comes anew in each step would have to be copied."""
        turned = any(side == "moved" and across for side, across in zip(self.sides, self.across) if isinstance(side, str))
        return not turned and not is_deterministic() and added_products.fits(self.dtype, *self.dims)

    def _through_onednn(self, op: Operation) -> Callable[..., np.ndarray | None] | None:
        """The batched product, if oneDNN is there."""
        shapes = []
        for side, tensor in zip(self.sides, op.inputs):
            dims: Any = tensor.dims
            is_one = side == "shared" if isinstance(side, str) else side.ndim == 2
            shapes.append(dims if is_one else (self.count, *dims))
        return batched_product(shapes[0], shapes[1], self.across[0], self.across[1], self.dtype)

    def _one_by_one(self, operands: list[Any]) -> list[Any]:
        """Matrices that BLAS would read across: their products are not the same, bit for bit, when they are moved."""
        a, b = ([o] * self.count if isinstance(o, np.ndarray) and o.ndim == 2 else [o[0]] * self.count if len(o) == 1 else o for o in operands)
        found = [kernel(x, y) for kernel, x, y in zip(self.kernels, a, b)]
        return found if self.adds is None else [self.adds(*found)]


class _Total:
    """The sum of all products, one after the other, as AddN adds them. Who has computed a batch adds what can be added by then, so that
    the adding goes on beside the multiplying."""

    def __init__(self, products: np.ndarray, batch: int) -> None:
        self.value = np.empty(products.shape[1:], products.dtype)
        self._products = products
        self._batch = batch
        self._is_there = [False] * -(-len(products) // batch)
        self._next = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """Says that batch `number` is computed."""
        self._is_there[number] = True
        # Who finds the lock taken leaves its batch to the holder, who looks again after letting go.
        while self._next < len(self._is_there) and self._is_there[self._next] and self._lock.acquire(False):
            try:
                self._go_on()
            finally:
                self._lock.release()

    def _go_on(self) -> None:
        while self._next < len(self._is_there) and self._is_there[self._next]:
            start = self._next * self._batch
            part = self._products[start : start + self._batch]
            if start:
                part[0] += self.value
            np.add.reduce(part, axis=0, out=self.value)
            self._next += 1


def _batch(operand: Any) -> np.ndarray:
    """All matrices of one side, side by side, or the only one."""
    if isinstance(operand, np.ndarray):
        return operand
    if len(operand) == 1:
        return operand[0]
    return np.concatenate(operand).reshape(len(operand), *operand[0].shape)


def _matrices(operand: Any, across: bool) -> added_products.Side:
    """The matrices of one side, or the only one, as the loop reads them."""
    matrices = operand if isinstance(operand, list) else [operand] if operand.ndim == 2 else list(operand)
    return added_products.Side([np.ascontiguousarray(m.T if across else m) for m in matrices])


def _part(operand: Any, start: int, stop: int, across: bool) -> np.ndarray:
    if isinstance(operand, list):
        array = operand[0] if len(operand) == 1 else np.stack(operand[start:stop])
    else:
        array = operand if operand.ndim == 2 else operand[start:stop]
    return array.swapaxes(-1, -2) if across else array


def describe(group: Products) -> str:
    """For people: what the statement computes."""
    added = "" if group.total is None else f", added as {group.total.op.name} = AddN"
    return f"{len(group.nodes)} products, {group.nodes[0].op.name} to {group.nodes[-1].op.name}{added}"
