"""Comparisons, truth values and bits: elementwise on two arguments, with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.broadcasting import binary, incompatible_shapes
from penstock.ops.declare import NOT_DIFFERENTIABLE, broadcast, merge_same, op
from penstock.ops.kernels.tiled import into_tiles, is_large
from penstock.ops.samples import arr, bools, empty, ints, normal, strings
from penstock.shapes import broadcast_dims, format_dims

NAN, INF = float("nan"), float("inf")
PAIRS = [
    dict(x=ints(2, 3, lo=0, hi=3), y=ints(2, 3, lo=0, hi=3)), dict(x=ints(2, 1, 3, lo=0, hi=3), y=ints(4, 1, lo=0, hi=3)),
    dict(x=arr(1), y=ints(3, hi=3)), dict(x=empty(0, 3), y=normal(3)), dict(x=arr(1), y=arr(1)),
    dict(x=arr([NAN, NAN, INF, 0.0, 1], dtype=np.float32), y=arr([NAN, 1, INF, -0.0, NAN], dtype=np.float32)),
]  # fmt: skip
TEXTS = [dict(x=strings(["a", "bc", ""]), y=strings(["a", "b", ""])), dict(x=strings("a"), y=strings(["a", "b"]))]
MISFITS = [(dict(x=normal(2), y=normal(3)), InvalidArgumentError, r"Incompatible shapes: \[2\] vs\. \[3\]")]

# -- comparisons ------------------------------------------------------------------------------------------------------


def comparison(ufunc: Any) -> Any:
    """Equality or its opposite; without `incompatible_shape_error`, shapes that do not fit are just unequal."""
    differ = np.bool_(ufunc is np.not_equal)

    def kernel(x: Any, y: Any, *, incompatible_shape_error: bool) -> Any:
        if x.__class__ is np.ndarray and x.dtype.hasobject:
            try:
                return np.asarray(ufunc(x, y), dtype=np.bool_)
            except ValueError:
                pass
        else:
            try:
                return ufunc(x, y)
            except ValueError:
                pass
        if incompatible_shape_error:
            raise incompatible_shapes(x, y)
        return differ

    kernel.ufunc = ufunc  # type: ignore[attr-defined]
    return kernel


def equality_shape(c: Any) -> Any:
    a, b = c.dims(0), c.dims(1)
    if c.attrs["incompatible_shape_error"]:
        return broadcast_dims(a, b)
    try:
        dims = broadcast_dims(a, b)
    except ValueError:
        return ()  # the answer will be one False
    if dims is None or a == b:
        return dims
    # Open sizes may still turn out not to fit.
    return dims if a is not None and b is not None and None not in a and None not in b else None


op("Equal(x: T, y: T) -> (z: bool) [T: type; incompatible_shape_error: bool = true] commutative",
   shape=equality_shape, numpy=comparison(np.equal), grad=NOT_DIFFERENTIABLE,
   samples=[*PAIRS, *TEXTS, dict(x=bools(3), y=bools(3)), dict(x=normal(2), y=normal(3), incompatible_shape_error=False)],
   errors=MISFITS)  # fmt: skip
op("NotEqual(x: T, y: T) -> (z: bool) [T: type; incompatible_shape_error: bool = true] commutative",
   shape=equality_shape, numpy=comparison(np.not_equal), grad=NOT_DIFFERENTIABLE,
   samples=[*PAIRS, *TEXTS, dict(x=bools(3), y=bools(3)), dict(x=normal(2), y=normal(3), incompatible_shape_error=False)],
   errors=MISFITS)  # fmt: skip

op("Less(x: T, y: T) -> (z: bool) [T: type in REALS]",
   shape=broadcast, numpy=binary(np.less), grad=NOT_DIFFERENTIABLE, samples=PAIRS, errors=MISFITS)
op("LessEqual(x: T, y: T) -> (z: bool) [T: type in REALS]",
   shape=broadcast, numpy=binary(np.less_equal), grad=NOT_DIFFERENTIABLE, samples=PAIRS, errors=MISFITS)
op("Greater(x: T, y: T) -> (z: bool) [T: type in REALS]",
   shape=broadcast, numpy=binary(np.greater), grad=NOT_DIFFERENTIABLE, samples=PAIRS, errors=MISFITS)
op("GreaterEqual(x: T, y: T) -> (z: bool) [T: type in REALS]",
   shape=broadcast, numpy=binary(np.greater_equal), grad=NOT_DIFFERENTIABLE, samples=PAIRS, errors=MISFITS)  # fmt: skip


def approximate_equal(x: Any, y: Any, *, tolerance: float) -> Any:
    if x.shape != y.shape:
        raise InvalidArgumentError(
            f"x and y must be of the same shape. x shape: {format_dims(x.shape)}. y shape: {format_dims(y.shape)}"
        )
    if x.dtype.kind == "u":
        distance = np.where(x > y, x - y, y - x)
    else:
        distance = np.absolute(np.subtract(x, y))
    return np.less(distance, distance.dtype.type(tolerance) if distance.dtype.kind not in "iu" else tolerance)


op("ApproximateEqual(x: T, y: T) -> (z: bool) [T: type in NUMBERS; tolerance: float = 9.99999975e-06] commutative",
   shape=merge_same, numpy=approximate_equal, grad=NOT_DIFFERENTIABLE,
   samples=[dict(x=arr([1, 2, 3]), y=arr([1, 2.000001, 3.1])), dict(x=arr([1, 2]), y=arr([2, 4]), tolerance=1.5), dict(x=empty(0), y=empty(0))],
   errors=[(dict(x=normal(2), y=normal(1)), InvalidArgumentError, "x and y must be of the same shape")])  # fmt: skip

# -- truth values -----------------------------------------------------------------------------------------------------

TRUTHS = [dict(x=bools(2, 3), y=bools(3)), dict(x=bools(), y=bools()), dict(x=bools(0), y=bools(1))]

op("LogicalAnd(x: bool, y: bool) -> (z: bool) commutative",
   shape=broadcast, numpy=binary(np.logical_and), grad=NOT_DIFFERENTIABLE, samples=TRUTHS)
op("LogicalOr(x: bool, y: bool) -> (z: bool) commutative",
   shape=broadcast, numpy=binary(np.logical_or), grad=NOT_DIFFERENTIABLE, samples=TRUTHS)  # fmt: skip

# -- bits -------------------------------------------------------------------------------------------------------------

BITS = [dict(x=ints(2, 3, lo=-99, hi=99), y=ints(3, lo=-99, hi=99)), dict(x=arr(5), y=arr(3)), dict(x=empty(0), y=ints(1))]
SHIFTS = [dict(x=ints(2, 3, lo=-99, hi=99), y=ints(3, lo=0, hi=7)), dict(x=arr([1, 1, 1, -1], dtype=np.int8), y=arr([-1, 9, 7, 3], dtype=np.int8)),
          dict(x=arr([127, -128, 1, -1], dtype=np.int8), y=arr([-1, 9, 7, 3], dtype=np.int8)), dict(x=empty(0), y=ints(1))]  # fmt: skip

op("BitwiseAnd(x: T, y: T) -> (z: T) [T: type in INTS] commutative",
   shape=broadcast, numpy=binary(np.bitwise_and), grad=NOT_DIFFERENTIABLE, samples=BITS, errors=MISFITS)
op("BitwiseOr(x: T, y: T) -> (z: T) [T: type in INTS] commutative",
   shape=broadcast, numpy=binary(np.bitwise_or), grad=NOT_DIFFERENTIABLE, samples=BITS, errors=MISFITS)
op("BitwiseXor(x: T, y: T) -> (z: T) [T: type in INTS] commutative",
   shape=broadcast, numpy=binary(np.bitwise_xor), grad=NOT_DIFFERENTIABLE, samples=BITS, errors=MISFITS)  # fmt: skip


def _shift(ufunc: np.ufunc) -> Any:
    """Shifts by less than 0 or by the word's width are undefined in C; TF clamps them."""

    @binary
    def kernel(x: Any, y: Any) -> Any:
        last = y.dtype.itemsize * 8 - 1

        def shift(out: np.ndarray, x: Any, y: Any) -> None:
            ufunc(x, np.clip(y, 0, last, out=out if y.ndim else None), out=out)

        return into_tiles(shift, x.dtype, x, y) if is_large(x, y) else ufunc(x, np.clip(y, 0, last))

    return kernel


left_shift, right_shift = _shift(np.left_shift), _shift(np.right_shift)


op("LeftShift(x: T, y: T) -> (z: T) [T: type in INTS]", shape=broadcast, numpy=left_shift, grad=NOT_DIFFERENTIABLE, samples=SHIFTS, errors=MISFITS)
op("RightShift(x: T, y: T) -> (z: T) [T: type in INTS]", shape=broadcast, numpy=right_shift, grad=NOT_DIFFERENTIABLE, samples=SHIFTS, errors=MISFITS)
