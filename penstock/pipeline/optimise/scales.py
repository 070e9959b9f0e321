"""Scaled products: a number that multiplies a batch of products, or an operand of theirs, is multiplied in while a product is written.

    matmul(a, b) * c             -> _ScaledBatchMatMul(a, b, scale=c)
    matmul(a * c, b)             -> _ScaledBatchMatMul(a, b, scale=c), if only products read a * c

Attention divides its scores by the square root of their depth, and the gradients too: two passes over the largest arrays of the layer.
The multiplication may vanish only if nothing else needs what it gives. Acts on nodes of CPUs while the oneDNN engine is on.
"""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.graph.bind import engine_is_on
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.pipeline.optimise.edit import Edit, is_pure
from penstock.pipeline.optimise.remapping import only_reader
from penstock.pipeline.optimise.sums import leave_out

_PRODUCT = "BatchMatMulV2"
SMALLEST = 1 / 256
"""Of the numbers that move from an operand behind the product, which may overflow where the scaled operand would not: by no more than this."""


def scale_products(graph: Graph, context: Any) -> Graph:
    """a number times a batch of products -> one node"""
    if not engine_is_on("onednn") or not any(op.type == _PRODUCT for op in graph):
        return graph
    edit = Edit(graph)
    for op in graph:
        if op.type != "Mul" or op.attrs["T"] is not dtypes.float32 or op.control_inputs or "device:CPU" not in op.device:
            continue
        found = _value_and_number(op)
        if found is None:
            continue
        value, scale = found
        product = value.op
        if _is_product(product, op) and product not in edit.retyped and only_reader(product) is op and product.name not in context.targets:
            edit.retyped[op] = _scaled(product, list(product.inputs), scale)
            if product.control_inputs:
                edit.controls[op] = list(product.control_inputs)
            edit.why.append(f"{op.name} = {product.name}, scaled")
            continue
        if not SMALLEST <= abs(scale) <= 1 / SMALLEST:
            continue
        waits: dict[Operation, None] = {}
        gone = _with_identities(op, context.targets, waits)
        scaled = gone[-1].outputs[0]
        readers = list(scaled._consumers or ())
        if not readers or len(set(readers)) < len(readers) or any(n.name in context.targets or not _only_joins(n) for n in gone):
            continue
        if not all(_is_product(r, op) and r not in edit.retyped and not _is_scaled(r) for r in readers):
            continue
        for reader in readers:
            edit.retyped[reader] = _scaled(reader, [value if t is scaled else t for t in reader.inputs], scale)
            leave_out(edit, reader, gone, waits)
        edit.why.append(f"{op.name} goes into {', '.join(r.name for r in readers)}")
    if not edit:
        return graph
    context.note(edit)
    return edit.apply(context.roots(graph))


def _with_identities(op: Operation, targets: frozenset[str], waits: dict[Operation, None]) -> list[Operation]:
    """A node and the Identities behind it, by which gradients wait for each other; what these wait for goes into `waits`."""
    gone = [op]
    while len(readers := gone[-1].outputs[0]._consumers or ()) == 1 and readers[0].type == "Identity":
        joins = readers[0].control_inputs
        if any(c.type != "NoOp" or c.name in targets for c in joins):
            break
        waits.update((c, None) for join in joins for c in join.control_inputs if c not in gone and not is_pure(c))
        gone.append(readers[0])
    return gone


def _only_joins(op: Operation) -> bool:
    """Whether only nodes that join gradients wait for `op`."""
    return all(c.type == "NoOp" for c in op._control_outputs or ())


def _value_and_number(op: Operation) -> tuple[Tensor, float] | None:
    """The operands of a multiplication of which one is a constant number."""
    for value, number in (op.inputs, op.inputs[::-1]):
        source = number.op
        if number.dims == () and source.type in ("Const", "HostConst") and not source.control_inputs and value.dims != ():
            return value, float(source.attrs["value"].array)
    return None


def _is_product(op: Operation, other: Operation) -> bool:
    return op.type == _PRODUCT and op.attrs["T"] is dtypes.float32 and op.device == other.device


def _is_scaled(product: Operation) -> bool:
    """Whether a number follows the product that will go into it."""
    reader = only_reader(product)
    return reader is not None and reader.type == "Mul" and _value_and_number(reader) is not None


def _scaled(product: Operation, inputs: list[Tensor], scale: float) -> tuple[str, list[Tensor], dict[str, Any]]:
    attrs = {name: product.attrs[name] for name in ("T", "adj_x", "adj_y")}
    return "_ScaledBatchMatMul", inputs, {**attrs, "scale": scale}
