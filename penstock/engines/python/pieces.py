"""Lines for nodes that take arrays apart and join them, and for short sums, where static shapes say all there is to know.

    a, b = x[s1], x[s2]              Split at a constant axis
    y = x[s]                         Slice, StridedSlice with constant bounds; x[s].copy() where little of a large x is wanted
    y = sliced(x), part(x)           StridedSlice, Slice with constant bounds, of shapes that are not known; Pad likewise
    y = x.reshape((4, 1))            ExpandDims, Squeeze
    y = concatenate((a, b), 1)       ConcatV2 at a constant axis
    y = add(a, b)                    AddN of two or three arrays
    y = add_reduce(x, 0)             BiasAddGrad of a matrix of few rows

Their kernels look at axes, bounds and shapes in every call, which takes longer than the work itself on arrays of some thousand elements: the
steps of an unrolled recurrent network are made of these. Every form gives bit for bit what the kernel gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Operation, Tensor
from penstock.ops.arrange import padded, padded_shape
from penstock.ops.kernels import views
from penstock.ops.kernels.slices import slice_index
from penstock.ops.slicing import part_index
from penstock.shapes import is_fully_defined

_CONSTANTS = ("Const", "HostConst")
_BOUNDS: dict[str, tuple[int, ...]] = {"Split": (0,), "Slice": (1, 2), "ConcatV2": (-1,), "StridedSlice": (1, 2, 3), "ExpandDims": (1,)}
_SHAPING = _BOUNDS | {
    "All": (1,), "Any": (1,), "ArgMax": (1,), "ArgMin": (1,), "GatherV2": (2,), "OneHot": (1,), "Pad": (1,), "PadV2": (1,), "ScatterNd": (2,), "SplitV": (1, 2), "StridedSliceGrad": (0,), "Tile": (1,), "TopKV2": (1,),
    "UnsortedSegmentSum": (2,),
}  # fmt: skip
"""The inputs that must be constants for a node's shape to follow from those of its other inputs."""
_DERIVED = frozenset((
    "AddN", "AddV2", "Unpack", "_MatMulColumns", "_SumOfProducts", "_SumOfProductsAndRows", "Softmax", "LogSoftmax", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits",
    "Elu", "EluGrad", "ClipByValue", "L2Loss", "Pack", "ReciprocalGrad", "Rsqrt", "RsqrtGrad", "Select", "Selu", "SeluGrad", "Softplus", "SoftplusGrad", "SqrtGrad", "SquaredDifference", "Squeeze",
    "Cholesky", "ComplexAbs", "ConcatOffset", "Cumprod", "Cumsum", "Einsum", "Equal", "FloorDiv", "FloorMod", "GatherNd", "InTopKV2", "MatrixBandPart", "MatrixDeterminant", "MatrixInverse", "MatrixSolve",
    "MatrixTriangularSolve", "MaxPool", "MaxPoolGrad", "NotEqual", "RealDiv", "Reciprocal", "ReverseSequence", "ReverseV2", "Roll", "Size",
))  # fmt: skip
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_MOST_SUMMANDS = 3
SHORT_SUM = 1 << 15
"""Elements from which on sums are better computed by an engine, on threads."""
FEW_ROWS = 512
"""Rows up to which the kernel of BiasAddGrad sums a matrix in one go."""

# What has no dimensions becomes one of NumPy's scalars where that is possible: it is several times as quick with them as with arrays.

_add_reduce = np.add.reduce  # a new object whenever it is asked for


def derives_shape(op: Operation) -> bool:
    """Whether the static shapes of the results follow from those of the inputs and from constants."""
    if op.type in _SHAPING:
        return all(op.inputs[i].op.type in _CONSTANTS for i in _SHAPING[op.type])
    return op.type in _DERIVED and op.attrs.get("incompatible_shape_error", True)  # Equal may give a single answer for shapes that do not fit


def piece(op: Operation, inputs: Sequence[str], name_of: Callable[[Any, str], str], known: dict[str, Any]) -> str | None:
    """The expression of a node of these types over the names `inputs`, or None: call the kernel. `known` holds the values of constants."""
    write = _WRITERS.get(op.type)
    if write is None or not all(is_fully_defined(t.dims) for t in (*op.inputs, *op.outputs)):
        return None
    bounds = [inputs[i] for i in _BOUNDS.get(op.type, ())]
    if not all(name in known for name in bounds):
        return None
    return write(op, inputs, [known[name] for name in bounds], name_of)


def piece_of_any_shape(op: Operation, inputs: Sequence[str], name_of: Callable[[Any, str], str], known: dict[str, Any]) -> str | None:
    """The same where shapes are only known when arrays come."""
    if op.type not in _OF_ANY_SHAPE or op.outputs[0].dtype.np.hasobject or not all(name in known for name in inputs[1:]):
        return None
    kind, prefix = _OF_ANY_SHAPE[op.type]
    return f"{name_of(kind(op, *(np.asarray(known[name]) for name in inputs[1:])), prefix)}({inputs[0]})"


def _dims(tensor: Tensor) -> tuple[int, ...]:
    """The static shape, which `piece` has found to be complete."""
    return cast("tuple[int, ...]", tensor.dims)


def _axis(value: Any, rank: int) -> int | None:
    axis = int(value)
    return axis % rank if -rank <= axis < rank else None


def _part(name: str, index: tuple[Any, ...], name_of: Callable[[Any, str], str]) -> str:
    return f"{name}[{name_of(index, 'slice_')}]"


def _own_part(op: Operation, name: str, index: tuple[Any, ...], name_of: Callable[[Any, str], str]) -> str:
    """A copy where a small piece would keep a large array in memory."""
    size = op.inputs[0].dtype.np.itemsize
    part, whole = (size * math.prod(_dims(t)) for t in (op.outputs[0], op.inputs[0]))
    return _part(name, index, name_of) + ".copy()" * views.is_small(part, whole)


def _split(op: Operation, inputs: Sequence[str], bounds: list[Any], name_of: Callable[[Any, str], str]) -> str | None:
    dims = _dims(op.inputs[1])
    axis, count = _axis(bounds[0], len(dims)), op.attrs["num_split"]
    if axis is None or dims[axis] % count or count > 16:
        return None
    size = dims[axis] // count
    before = (slice(None),) * axis
    parts = [_part(inputs[1], (*before, slice(i * size, (i + 1) * size)), name_of) for i in range(count)]
    return f"({', '.join(parts)},)"


def _slice(op: Operation, inputs: Sequence[str], bounds: list[Any], name_of: Callable[[Any, str], str]) -> str | None:
    dims, (begin, size) = _dims(op.inputs[0]), bounds
    if not dims or np.shape(begin) != (len(dims),) or np.shape(size) != (len(dims),):
        return None
    index = []
    for start, length, limit in zip(begin.tolist(), size.tolist(), dims, strict=True):
        length = limit - start if length == -1 else length
        if not 0 <= start <= limit or not 0 <= length <= limit - start:
            return None
        index.append(slice(start, start + length))
    return _own_part(op, inputs[0], tuple(index), name_of)


def _strided_slice(op: Operation, inputs: Sequence[str], bounds: list[Any], name_of: Callable[[Any, str], str]) -> str | None:
    begin, end, strides = map(np.asarray, bounds)
    try:
        index = slice_index(_dims(op.inputs[0]), begin, end, strides, *(op.attrs[name] for name in _MASKS))
    except InvalidArgumentError:  # which the kernel reports
        return None
    if not _dims(op.outputs[0]) and op.inputs[0].dtype.np.kind in "biufc" and all(i.__class__ is int for i in index) and len(index) == len(_dims(op.inputs[0])):
        return _part(inputs[0], tuple(index), name_of)
    return _own_part(op, inputs[0], (*index, ...), name_of)


class _ByShape:
    """A node with constant bounds, for arrays whose shapes are only known when they come: what follows from bounds and shape is worked out once for each shape."""

    __slots__ = ("_bounds", "_found", "_op")
    MOST = 64

    def __init__(self, op: Operation, *bounds: Any) -> None:
        self._op, self._bounds = op, bounds
        self._found: dict[tuple[int, ...], Any] = {}

    def _of(self, shape: tuple[int, ...]) -> Any:
        found = self._found.get(shape)
        if found is None:
            if len(self._found) >= self.MOST:
                self._found.clear()
            self._found[shape] = found = self._work_out(shape)
        return found

    def _work_out(self, shape: tuple[int, ...]) -> Any:
        raise NotImplementedError


class _StridedPart(_ByShape):
    __slots__ = ()

    def _work_out(self, shape: tuple[int, ...]) -> Any:
        return (*slice_index(shape, *self._bounds, *(self._op.attrs[name] for name in _MASKS)), ...)

    def __call__(self, x: Any) -> Any:
        return views.piece(x[self._of(x.shape)])


class _Part(_ByShape):
    __slots__ = ()

    def _work_out(self, shape: tuple[int, ...]) -> Any:
        return (*part_index(shape, *self._bounds), ...)

    def __call__(self, x: Any) -> Any:
        return views.piece(x[self._of(x.shape)])


class _Padded(_ByShape):
    """With zeros."""

    __slots__ = ()

    def _work_out(self, shape: tuple[int, ...]) -> Any:
        return padded_shape(shape, *self._bounds)

    def __call__(self, x: Any) -> Any:
        return padded(x, *self._of(x.shape))


_OF_ANY_SHAPE: dict[str, tuple[type[_ByShape], str]] = {"StridedSlice": (_StridedPart, "sliced_"), "Slice": (_Part, "part_"), "Pad": (_Padded, "padded_")}


def _reshaped(op: Operation, inputs: Sequence[str], bounds: list[Any], name_of: Callable[[Any, str], str]) -> str | None:
    before, after = _dims(op.inputs[0]), _dims(op.outputs[0])
    if not before or op.inputs[0].dtype.np.kind not in "biufc":
        return None
    return f"{inputs[0]}.reshape({after})" if after else _part(inputs[0], (0,) * len(before), name_of)


def _concat(op: Operation, inputs: Sequence[str], bounds: list[Any], name_of: Callable[[Any, str], str]) -> str | None:
    shapes = [_dims(t) for t in op.inputs[:-1]]
    first, rank = shapes[0], len(shapes[0])
    axis = _axis(bounds[0], rank) if rank else None
    if axis is None or op.outputs[0].dtype.np.kind not in "biufc" or any(len(dims) != rank for dims in shapes):
        return None
    if any(dims[:axis] != first[:axis] or dims[axis + 1 :] != first[axis + 1 :] for dims in shapes):
        return None
    return f"{name_of(np.concatenate, 'concatenate_')}(({', '.join(inputs[:-1])}), {axis})"


def _add_n(op: Operation, inputs: Sequence[str], bounds: list[Any], name_of: Callable[[Any, str], str]) -> str | None:
    dims, kind = _dims(op.outputs[0]), op.outputs[0].dtype.np.type
    if not 2 <= len(inputs) <= _MOST_SUMMANDS or not dims or kind not in (np.float32, np.float64) or math.prod(dims) >= SHORT_SUM:
        return None
    if any(t.dims != dims for t in op.inputs):
        return None
    add = name_of(np.add, "add_")
    total = inputs[0]
    for name in inputs[1:]:
        total = f"{add}({total}, {name})"
    return total


def _bias_add_grad(op: Operation, inputs: Sequence[str], bounds: list[Any], name_of: Callable[[Any, str], str]) -> str | None:
    dims, kind = _dims(op.inputs[0]), op.inputs[0].dtype.np.type
    if len(dims) != 2 or not 0 < dims[0] <= FEW_ROWS or not dims[1] or kind not in (np.float32, np.float64) or op.attrs["data_format"] != b"NHWC":
        return None
    return f"{name_of(_add_reduce, 'add_reduce_')}({inputs[0]}, 0)"


_WRITERS: dict[str, Callable[..., str | None]] = {
    "Split": _split, "Slice": _slice, "StridedSlice": _strided_slice, "ExpandDims": _reshaped, "Squeeze": _reshaped, "ConcatV2": _concat, "AddN": _add_n,
    "BiasAddGrad": _bias_add_grad,
}  # fmt: skip
