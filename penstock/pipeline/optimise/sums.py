"""Sums of products: the gradient of a weight that an unrolled loop uses in every step is a sum over the steps, and can be summed while the
products are computed.

    add_n(matmul(a1, b1, transpose_a), matmul(a2, b2, transpose_a), ...) -> _SumOfProducts([a1, a2, ...], [b1, b2, ...])
    ... and add_n(bias_add_grad(b1), bias_add_grad(b2), ...)             -> _SumOfProductsAndRows, which gives both

One array is written instead of one for each step, and none of them is read again. A product may vanish only if nothing else needs it:
one reader, no control edge behind it, not asked for by name. Acts on nodes of CPUs while the oneDNN engine is on, whose product adds
to what is there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock import dtypes
from penstock.graph.bind import engine_is_on
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.pipeline.optimise.edit import Edit, is_pure
from penstock.pipeline.optimise.remapping import comes_before
from penstock.shapes import num_elements

MIN_PRODUCTS = 3
MIN_SIZE = 4096
"""Elements of the result; below, the products themselves are what takes time."""


def sum_products(graph: Graph, context: Any) -> Graph:
    """add_n(matmul(a, b), ...) -> one sum of products"""
    if not engine_is_on("onednn"):
        return graph
    edit = Edit(graph)
    biases: dict[frozenset[Tensor], _Bias] | None = None
    for op in graph:
        if op.type != "AddN" or op.attrs["T"] is not dtypes.float32 or op.attrs["N"] < MIN_PRODUCTS or "device:CPU" not in op.device:
            continue
        dims = op.outputs[0].dims
        if dims is None or len(dims) != 2 or (num_elements(dims) or 0) < MIN_SIZE:
            continue
        waits: dict[Operation, None] = {}
        products = [_product(t, op, context.targets, waits) for t in op.inputs]
        found = [p for p in products if p is not None]
        if len(set(found)) < len(products):
            continue
        inputs = [p.inputs[0] for p in found] + [p.inputs[1] for p in found]
        edit.retyped[op] = ("_SumOfProducts", inputs, {"N": len(found), "T": op.attrs["T"]})
        edit.why.append(f"{op.name} = sum of {len(found)} products")
        leave_out(edit, op, found, waits)
        biases = _find_biases(graph, context.targets) if biases is None else biases
        bias = biases.get(frozenset(_behind(p.inputs[1]) for p in found))
        if bias is not None and len(bias.parts) == len(found) and bias.total.device == op.device and not comes_before(bias.total, op):
            _join_bias(edit, op, bias)
    if not edit:
        return graph
    context.note(edit)
    return edit.apply(context.roots(graph))


class _Bias(NamedTuple):
    """The gradient of a bias that was added in each step: a sum of sums of rows."""

    total: Operation
    parts: list[Operation]
    waits: dict[Operation, None]


def _find_biases(graph: Graph, targets: frozenset[str]) -> dict[frozenset[Tensor], _Bias]:
    """Such sums, by what they sum up."""
    result = {}
    for op in graph:
        if op.type != "AddN" or op.attrs["T"] is not dtypes.float32 or op.attrs["N"] < MIN_PRODUCTS or op.control_inputs or op.name in targets:
            continue
        waits: dict[Operation, None] = {}
        parts = []
        for tensor in op.inputs:
            part, reader = behind_identities(tensor, op, targets, waits)
            is_sum = part.type == "BiasAddGrad" and part.attrs["data_format"] == b"NHWC" and not part.control_inputs
            if not is_sum or len(part.inputs[0].dims or ()) != 2 or not vanishes(part, reader, targets):
                break
            parts.append(part)
        rows = frozenset(_behind(p.inputs[0]) for p in parts)
        if len(rows) == len(op.inputs):
            result[rows] = _Bias(op, parts, waits)
    return result


def _join_bias(edit: Edit, op: Operation, bias: _Bias) -> None:
    """Lets the sum of products give the sum of rows too."""
    old = bias.total.outputs[0]
    rows = Tensor(op, 1, old.dtype, old.dims)
    _, inputs, attrs = edit.retyped[op]
    edit.retyped[op] = ("_SumOfProductsAndRows", inputs, attrs)
    edit.more_outputs[op] = [rows]
    edit.redirect[old] = rows
    leave_out(edit, op, bias.parts, bias.waits)
    for waiting in bias.total._control_outputs or ():
        controls = edit.controls.get(waiting, waiting.control_inputs)
        edit.controls[waiting] = list(dict.fromkeys(op if c is bias.total else c for c in controls))
    edit.why.append(f"{bias.total.name} comes with it")


def _behind(tensor: Tensor) -> Tensor:
    while tensor.op.type == "Identity" and not tensor.op.inputs[0].dtype._is_ref_dtype:
        tensor = tensor.op.inputs[0]
    return tensor


def leave_out(edit: Edit, reader: Operation, gone: list[Operation], waits: dict[Operation, None]) -> None:
    """Nobody waits for nodes that are part of `reader` now; what they waited for, it waits for."""
    if waits:
        edit.controls[reader] = list(dict.fromkeys([*edit.controls.get(reader, reader.control_inputs), *waits]))
    for waiting in {c for op in gone for c in op._control_outputs or ()}:
        edit.controls[waiting] = [c for c in edit.controls.get(waiting, waiting.control_inputs) if c not in gone]


def _product(tensor: Tensor, reader: Operation, targets: frozenset[str], waits: dict[Operation, None]) -> Operation | None:
    """The product that `tensor` is, if only `reader` needs it. `tf.gradients` puts an Identity behind each, which waits for all gradients of
    one node; that is no reason to compute them one by one. What else it waits for, as reads of variables, goes into `waits`."""
    op, reader = behind_identities(tensor, reader, targets, waits)
    is_product = op.type == "MatMul" and op.attrs["transpose_a"] and not op.attrs["transpose_b"] and op.attrs["T"] is dtypes.float32
    return op if is_product and not op.control_inputs and vanishes(op, reader, targets) else None


def behind_identities(tensor: Tensor, reader: Operation, targets: frozenset[str], waits: dict[Operation, None]) -> tuple[Operation, Operation]:
    """The node whose value `tensor` is, behind Identities that only `reader` needs, and who reads it."""
    op = tensor.op
    while op.type == "Identity" and vanishes(op, reader, targets) and all(_only_joins(c, targets) for c in op.control_inputs):
        waits.update((c, None) for join in op.control_inputs for c in join.control_inputs if not is_pure(c))
        reader, op = op, op.inputs[0].op
    return op, reader


def vanishes(op: Operation, reader: Operation, targets: frozenset[str]) -> bool:
    """Whether nothing is left that needs `op` if `reader` does not."""
    return (
        op.device == reader.device
        and op.name not in targets
        and len(op.outputs[0]._consumers or ()) == 1
        and all(_only_joins(c, targets) for c in op._control_outputs or ())
    )


def _only_joins(op: Operation, targets: frozenset[str]) -> bool:
    """Whether `op` only waits, and nobody asks for it."""
    return op.type == "NoOp" and op.name not in targets
