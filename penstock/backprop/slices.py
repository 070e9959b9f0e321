"""Sums of gradients: tensors by AddN, IndexedSlices by joining their rows, both mixed by making them dense."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from penstock import dtypes
from penstock.graph.composite import IndexedSlices
from penstock.graph.constant import constant, known_value
from penstock.graph.control_flow import as_indexed_slices_list
from penstock.graph.convert import convert_to_tensor, register_tensor_conversion_function
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

_LARGE = 100_000_000  # elements: above that, TF warns when sparse gradients become dense


class AggregationMethod:
    """How gradients of one tensor are summed: all at once (ADD_N, DEFAULT), or pair by pair, which needs less memory at a
    time (EXPERIMENTAL_TREE, EXPERIMENTAL_ACCUMULATE_N)."""

    ADD_N = 0
    DEFAULT = ADD_N
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


def to_dense(value: IndexedSlices, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> Tensor:
    """IndexedSlices as one tensor; rows that come several times are added up."""
    if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
        raise ValueError(f"Tensor conversion requested dtype {dtypes.as_dtype(dtype).name} for IndexedSlices with dtype {value.dtype.name}")
    if value.dense_shape is None:
        raise ValueError(f"Tensor conversion requested for IndexedSlices for which there is no dense_shape information: {value!s}.")
    sizes = known_value(value.dense_shape)
    if sizes is not None and int(sizes.astype(object).prod()) >= _LARGE:
        warnings.warn(
            f"Converting sparse IndexedSlices to a dense Tensor with {int(sizes.astype(object).prod())} elements. This may consume a large amount of memory.",
            stacklevel=2,
        )
    elif sizes is None and value.dense_shape.dims is None and value.dense_shape.op.type != "VariableShape":
        warnings.warn(
            f"Converting sparse IndexedSlices({value}) to a dense Tensor of unknown shape. This may consume a large amount of memory.", stacklevel=2
        )
    rows = raw.StridedSlice(value.dense_shape, [0], [1], [1], shrink_axis_mask=1)
    return raw.UnsortedSegmentSum(value.values, value.indices, rows, name=name)


register_tensor_conversion_function(IndexedSlices, to_dense)


def add_n(inputs: Sequence[Any], name: str | None = None) -> Tensor:
    """tf.add_n; IndexedSlices are made dense, and one input is passed on."""
    tensors = [convert_to_tensor(v) for v in inputs]
    if len(tensors) == 1:
        return raw.Identity(tensors[0], name=name) if name else tensors[0]
    return raw.AddN(tensors, name=name)


def flattened(value: IndexedSlices) -> IndexedSlices:
    """IndexedSlices whose values are IndexedSlices themselves, as one level."""
    while isinstance(value.values, IndexedSlices):
        inner: Any = value.values
        value = IndexedSlices(inner.values, raw.GatherV2(value.indices, inner.indices, 0), value.dense_shape)
    return value


def sum_slices(grads: Sequence[Any]) -> Any:
    """The sum of IndexedSlices (and perhaps tensors): more rows, or a dense tensor if one of them is dense."""
    grads = [grad for grad in grads if grad is not None]
    if not grads:
        return None
    if len(grads) == 1:
        return grads[0]
    if any(isinstance(grad, Tensor) for grad in grads):
        return add_n(grads)
    joined = as_indexed_slices_list([flattened(grad) for grad in grads])
    return IndexedSlices(_concat([x.values for x in joined]), _concat([x.indices for x in joined]), joined[0].dense_shape)


def _concat(values: list[Tensor]) -> Tensor:
    with get_default_graph().name_scope("concat") as scope:
        return raw.ConcatV2(values, constant(0, dtypes.int32, name="axis"), name=scope)


def sum_gradients(grads: list[Any], op_name: str, method: int | None) -> Any:
    """The sum of all gradients that reached one tensor."""
    if method is None:
        method = AggregationMethod.DEFAULT
    if method not in (AggregationMethod.ADD_N, AggregationMethod.EXPERIMENTAL_TREE, AggregationMethod.EXPERIMENTAL_ACCUMULATE_N):
        raise ValueError(f"Invalid `aggregation_method` specified {method}.")
    if len(grads) == 1:
        return grads[0]
    if not all(isinstance(grad, Tensor) for grad in grads):
        return sum_slices(grads)
    graph = get_default_graph()
    if method != AggregationMethod.ADD_N:
        with graph.name_scope(op_name + "_gradient_sum"):
            total = grads[0]
            for grad in grads[1:]:
                total = add_n([total, grad])
            return total
    return _add_n_per_device(grads)


def _add_n_per_device(tensors: list[Tensor]) -> Tensor:
    """Sums on each device first, so that each device sends one tensor."""
    graph = get_default_graph()
    by_device: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        by_device.setdefault(tensor.device or "", []).append(tensor)
    sums = []
    for device in sorted(by_device):
        group = by_device[device]
        with graph.colocate_with(group[0].op, ignore_existing=True):
            sums.append(add_n(group))
    return add_n(sums)
