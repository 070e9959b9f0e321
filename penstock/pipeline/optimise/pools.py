"""Gradients of a ReLU before a pool: the smaller array is masked.

    relu_grad(max_pool_grad(x, y, dy), x)  ->  max_pool_grad(x, y, relu_grad(dy, y)), where y = max_pool(x)

A gradient goes to the cell whose value the pool has given, so that it passes the ReLU if that value is above zero. With windows of 2 x 2 that is a
quarter of the elements.
"""

from __future__ import annotations

from typing import Any

from penstock.graph.ir import Graph, Operation, Tensor
from penstock.pipeline.optimise.edit import Edit
from penstock.pipeline.optimise.remapping import only_reader

_WINDOW = ("T", "ksize", "strides", "padding", "data_format", "explicit_paddings")


def mask_pooled(graph: Graph, context: Any) -> Graph:
    """relu_grad(max_pool_grad(x, y, dy), x) -> max_pool_grad(x, y, relu_grad(dy, y))"""
    edit = Edit(graph)
    for pool in graph:
        if pool.type != "MaxPoolGrad" or pool.control_inputs or pool.name in context.targets:
            continue
        mask = only_reader(pool)
        if mask is None or mask.type != "ReluGrad" or mask.control_inputs or mask.device != pool.device or not _is_shrinking(pool):
            continue
        x, y, dy = pool.inputs
        if mask.inputs[0] is not pool.outputs[0] or mask.inputs[1] is not x or not _is_pool_of(y, x, pool) or dy.dims is None or dy.dims != y.dims:
            continue
        masked = pool.outputs[0]
        edit.retyped[pool] = ("ReluGrad", [dy, y], {"T": pool.attrs["T"]})
        edit.dims[masked] = dy.dims
        edit.retyped[mask] = ("MaxPoolGrad", [x, y, masked], pool.attrs)
        edit.why.append(f"{mask.name} masks what {pool.name} spreads")
    if not edit:
        return graph
    context.note(edit)
    return edit.apply(context.roots(graph))


def _is_shrinking(pool: Operation) -> bool:
    return any(n > 1 for n in pool.attrs["strides"])


def _is_pool_of(y: Tensor, x: Tensor, gradient: Operation) -> bool:
    pool = y.op
    return pool.type == "MaxPool" and pool.inputs[0] is x and all(pool.attrs.get(name) == gradient.attrs.get(name) for name in _WINDOW)
