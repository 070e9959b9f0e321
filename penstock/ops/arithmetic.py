"""Elementwise arithmetic on two arguments, with broadcasting; sums of many arguments; clipping."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InternalError, InvalidArgumentError
from penstock.ops import native
from penstock.ops.broadcasting import binary, broadcast_shape, conj, incompatible_shapes, reduce_to
from penstock.ops.declare import broadcast, merge_same, op, same_as
from penstock.ops.kernels import periods
from penstock.ops.kernels.numeric import NARROW, narrow, widen
from penstock.ops.native import looped, vectors
from penstock.ops.samples import arr, empty, ints, normal, strings, uniform
from penstock.shapes import dims_of, format_dims, merge_dims

NAN, INF = float("nan"), float("inf")

BROADCASTS = [
    dict(x=normal(2, 3), y=normal(2, 3)), dict(x=normal(2, 1, 3), y=normal(4, 1)), dict(x=normal(), y=normal(3)),
    dict(x=normal(), y=normal()), dict(x=empty(0, 3), y=normal(3)), dict(x=normal(1), y=empty(0)),
]  # fmt: skip
NONZERO = [
    dict(x=ints(2, 3, lo=-9, hi=9), y=ints(2, 3, lo=1, hi=5)), dict(x=ints(2, 1, 3, lo=-9, hi=9), y=ints(4, 1, lo=1, hi=5)),
    dict(x=ints(4, lo=-9, hi=9), y=arr(2)), dict(x=empty(0, 3), y=ints(3, lo=1)),
]  # fmt: skip
SPECIAL = dict(x=arr([5, -5, 5, -5, 0, NAN, 1, INF, -0.0], dtype=np.float32), y=arr([INF, INF, -3, 3, 0, 1, NAN, 2, 2], dtype=np.float32))
SIGNS = dict(x=arr([7, -7, 7, -7], dtype=np.int32), y=arr([2, 2, -2, -2], dtype=np.int32))
MISFITS = [(dict(x=normal(2), y=normal(3)), InvalidArgumentError, r"Incompatible shapes: \[2\] vs\. \[3\]")]
BY_ZERO = [(dict(x=arr([7, 1], dtype=np.int32), y=arr([0, 2], dtype=np.int32)), InvalidArgumentError, "Integer division by zero")]

# -- sums, differences, products --------------------------------------------------------------------------------------


def add_kernel(x: Any, y: Any) -> Any:
    try:
        z = np.add(x, y)
    except ValueError:
        raise incompatible_shapes(x, y) from None
    if z.__class__ is bytes:  # NumPy unwraps an object that stands alone
        return np.array(z, dtype=object)
    return z


add_kernel.ufunc = np.add  # type: ignore[attr-defined]


def add_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    return reduce_to(g, op.x, op.y, lambda: dz, lambda: dz)


op("Add(x: T, y: T) -> (z: T) [T: type in {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128, string}]",
   shape=broadcast, numpy=add_kernel, grad=add_grad,
   samples=[*BROADCASTS, SPECIAL, dict(x=strings(["a", "b"]), y=strings([["c"], ["d"]])), dict(x=strings("a"), y=strings("b"))],
   errors=MISFITS)  # fmt: skip

op("AddV2(x: T, y: T) -> (z: T) [T: type in FLOATS|INTS|COMPLEX] commutative aggregate",
   shape=broadcast, numpy=binary(np.add), grad=add_grad, samples=[*BROADCASTS, SPECIAL], errors=MISFITS)

op("Sub(x: T, y: T) -> (z: T) [T: type in FLOATS|INTS|COMPLEX]",
   shape=broadcast, numpy=binary(np.subtract),
   grad=lambda g, op, dz: reduce_to(g, op.x, op.y, lambda: dz, lambda: g.Neg(dz)),
   samples=[*BROADCASTS, SPECIAL], errors=MISFITS)  # fmt: skip

op("Mul(x: T, y: T) -> (z: T) [T: type in FLOATS|INTS|COMPLEX] commutative",
   shape=broadcast, numpy=binary(np.multiply),
   grad=lambda g, op, dz: reduce_to(g, op.x, op.y, lambda: g.Mul(dz, conj(g, op.y)), lambda: g.Mul(conj(g, op.x), dz)),
   samples=[*BROADCASTS, SPECIAL], errors=MISFITS)  # fmt: skip


@binary
@looped
def mul_no_nan(x: Any, y: Any) -> Any:
    return np.where(y == 0, x.dtype.type(0), x * y)


def mul_no_nan_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    return reduce_to(g, op.x, op.y, lambda: g.MulNoNan(dz, op.y), lambda: g.MulNoNan(op.x, dz))


op("MulNoNan(x: T, y: T) -> (z: T) [T: type in FLOATS|COMPLEX]",
   shape=broadcast, numpy=mul_no_nan, grad=mul_no_nan_grad, samples=[*BROADCASTS, SPECIAL], errors=MISFITS)  # fmt: skip


_difference = periods.spread(np.subtract)


@binary
def squared_difference(x: Any, y: Any) -> Any:
    d = _difference(x, y)
    return d * np.conj(d) if d.dtype.kind == "c" else np.square(d)


def squared_difference_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    def slope() -> Any:
        return g.Mul(g.Mul(dz, g.const(2, dz.dtype)), g.Sub(op.x, op.y))

    return reduce_to(g, op.x, op.y, slope, lambda: g.Neg(slope()))


op("SquaredDifference(x: T, y: T) -> (z: T) [T: type in {bfloat16, half, float, double, int32, int64, complex64, complex128}] commutative",
   shape=broadcast, numpy=squared_difference, grad=squared_difference_grad, samples=[*BROADCASTS, SPECIAL], errors=MISFITS)

# -- division ---------------------------------------------------------------------------------------------------------


def _check_divisor(x: Any, y: Any, error: Any = InvalidArgumentError, text: str = "Integer division by zero") -> None:
    if y.__class__ is not np.ndarray and y:  # a number
        return
    if not np.all(y) and 0 not in broadcast_shape(x, y):
        raise error(text)


_EXACT = 1 << 51
"""Quotients of whole numbers up to here come out right if they are taken in float64 and cut off: they are no nearer to the next whole number than that."""


def _are_exact(x: np.ndarray) -> bool:
    return bool(-_EXACT < x.min() and x.max() < _EXACT)


def in_doubles(formula: Any) -> Any:
    """A kernel for integers that are divided one by one: in float64 where that is exact, by a loop in machine code. NumPy divides twice as slowly,
    but quickly by a single number."""
    loop = native.Loop(formula)

    def with_loop(plain: Any) -> Any:
        def kernel(x: Any, y: Any) -> Any:
            if x.size >= native.SMALL and x.shape == y.shape and (x.dtype == np.int32 or (x.dtype == np.int64 and _are_exact(x) and _are_exact(y))):
                found = loop.run(x, y)
                if found is not None:
                    return found
            return plain(x, y)

        return kernel

    return with_loop


@in_doubles(lambda x, y: np.trunc(x / y))
@binary
def truncated_quotient(x: Any, y: Any) -> Any:
    """C's integer division, rounding towards zero."""
    q = np.floor_divide(x, y)
    if x.dtype.kind == "i":
        q = np.where((q < 0) & (q * y != x), q + x.dtype.type(1), q)
    return q


def div_kernel(x: Any, y: Any) -> Any:
    if x.dtype.kind in "iu":
        _check_divisor(x, y)
        return truncated_quotient(x, y)
    return true_divide(x, y)


true_divide = binary(np.true_divide)


def real_div_kernel(x: Any, y: Any) -> Any:
    if x.dtype.kind in "iu":
        return true_divide(x, y).astype(x.dtype)
    return true_divide(x, y)


def truncate_div_kernel(x: Any, y: Any) -> Any:
    if x.dtype.kind in "iu":
        _check_divisor(x, y, InternalError, "Unexpected error in binary operator (only integer div and mod should have errors)")
        return truncated_quotient(x, y)
    z = true_divide(widen(x), widen(y))
    return narrow(z if z.dtype.kind == "c" else np.trunc(z), x.dtype)


floor_of_quotient = in_doubles(lambda x, y: np.floor(x / y))(binary(np.floor_divide))


def floor_div_kernel(x: Any, y: Any) -> Any:
    if x.dtype.kind in "iu":
        _check_divisor(x, y)
        return floor_of_quotient(x, y)
    z = true_divide(x, y)  # a narrow type's quotient is rounded first, as in TF
    return z if z.dtype.kind == "c" else narrow(np.floor(widen(z)), x.dtype)


def real_div_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    x, y = conj(g, op.x), conj(g, op.y)
    return reduce_to(g, op.x, op.y, lambda: g.RealDiv(dz, y), lambda: g.Mul(dz, g.RealDiv(g.RealDiv(g.Neg(x), y), y)))


def div_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    x, y = conj(g, op.x), conj(g, op.y)
    return reduce_to(g, op.x, op.y, lambda: g.Div(dz, y), lambda: g.Mul(dz, g.Div(g.Div(g.Neg(x), y), y)))


def no_gradients(g: Any, op: Any, dz: Any) -> list[None]:
    """Integer-valued steps pass no gradient on."""
    return [None, None]


op("Div(x: T, y: T) -> (z: T) [T: type in FLOATS|INTS|COMPLEX]",
   shape=broadcast, numpy=div_kernel, grad=div_grad, samples=[*NONZERO, SPECIAL, SIGNS], errors=MISFITS + BY_ZERO)
op("RealDiv(x: T, y: T) -> (z: T) [T: type in FLOATS|INTS|COMPLEX]",
   shape=broadcast, numpy=real_div_kernel, grad=real_div_grad, samples=[*NONZERO, SPECIAL], errors=MISFITS)
op("TruncateDiv(x: T, y: T) -> (z: T) [T: type in FLOATS|INTS|COMPLEX]",
   shape=broadcast, numpy=truncate_div_kernel, grad=no_gradients, samples=[*NONZERO, SPECIAL, SIGNS], errors=MISFITS)
op("FloorDiv(x: T, y: T) -> (z: T) [T: type in FLOATS|INTS|COMPLEX]",
   shape=broadcast, numpy=floor_div_kernel, grad=no_gradients,
   samples=[*NONZERO, SPECIAL, SIGNS, dict(x=arr([93.4, 34.1, -18.45], dtype=np.float16), y=arr([-1.004, 0.3376, -0.00672], dtype=np.float16))],
   errors=MISFITS + BY_ZERO)  # fmt: skip


@binary
@looped
def div_no_nan(x: Any, y: Any) -> Any:
    return np.where(y == 0, x.dtype.type(0), np.true_divide(x, y))


def div_no_nan_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    x, y = conj(g, op.x), conj(g, op.y)
    return reduce_to(g, op.x, op.y, lambda: g.DivNoNan(dz, y), lambda: g.Mul(dz, g.DivNoNan(g.DivNoNan(g.Neg(x), y), y)))


op("DivNoNan(x: T, y: T) -> (z: T) [T: type in FLOATS|COMPLEX]",
   shape=broadcast, numpy=div_no_nan, grad=div_no_nan_grad, samples=[*NONZERO, *BROADCASTS, SPECIAL], errors=MISFITS)


def _float_remainder(x: Any, y: Any) -> Any:
    """np.fmod, exactly: the product is not rounded. NaN where the quotient has too many bits for that, or something is infinite."""
    dividend, divisor = np.abs(x), np.abs(y)
    quotient = np.trunc(dividend / divisor)
    rest = dividend - quotient * divisor
    rest = np.where(rest < 0, rest + divisor, rest)  # the quotient had been rounded up
    return np.where(quotient < 1 << 52, np.copysign(rest, x), np.nan)


def _floored_float_remainder(x: Any, y: Any) -> Any:
    """The rest with the divisor's sign; one that is zero keeps the dividend's, as in TF."""
    return _with_sign_of(y, _float_remainder(x, y))


def _with_sign_of(y: Any, rest: Any) -> Any:
    return np.where((rest != 0) & ((rest < 0) ^ (y < 0)), rest + y, rest)


def in_floats(formula: Any) -> Any:
    """A kernel for floats that NumPy takes one by one: by a loop in machine code, and by NumPy where that gives NaN."""
    loop = native.Loop(formula)

    def with_loop(plain: Any) -> Any:
        def kernel(x: Any, y: Any) -> Any:
            if x.dtype.kind == "f" and x.itemsize >= 4 and x.size >= native.SMALL and y.shape in (x.shape, ()):
                found = loop.run(x, y)
                if found is not None:
                    left = np.isnan(found)
                    if left.any():
                        found[left] = plain(x[left], np.broadcast_to(y, x.shape)[left])
                    return found
            return plain(x, y)

        return kernel

    return with_loop


@in_floats(_floored_float_remainder)
@in_doubles(lambda x, y: x - np.floor(x / y) * y)
@binary
def floored_remainder(x: Any, y: Any) -> Any:
    return np.mod(x, y) if x.dtype.kind in "iu" else _with_sign_of(y, np.fmod(x, y))


@in_floats(_float_remainder)
@in_doubles(lambda x, y: x - np.trunc(x / y) * y)
@binary
def truncated_remainder(x: Any, y: Any) -> Any:
    return np.fmod(x, y)


def floor_mod_kernel(x: Any, y: Any) -> Any:
    if x.dtype.kind in "iu":
        _check_divisor(x, y)
        return floored_remainder(x, y)
    return narrow(floored_remainder(widen(x), widen(y)), x.dtype)


def mod_kernel(x: Any, y: Any) -> Any:
    if x.dtype.kind in "iu":
        _check_divisor(x, y)
    return narrow(truncated_remainder(widen(x), widen(y)), x.dtype)


def truncate_mod_kernel(x: Any, y: Any) -> Any:
    if x.dtype.kind in "iu":
        _check_divisor(x, y, InternalError, "Unexpected error in binary operator (only integer div and mod should have errors)")
    return narrow(truncated_remainder(widen(x), widen(y)), x.dtype)


def floor_mod_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    return reduce_to(g, op.x, op.y, lambda: dz, lambda: g.Mul(dz, g.Neg(g.FloorDiv(op.x, op.y))))


op("FloorMod(x: T, y: T) -> (z: T) [T: type in FLOATS|INTS]",
   shape=broadcast, numpy=floor_mod_kernel, grad=floor_mod_grad, samples=[*NONZERO, SPECIAL, SIGNS], errors=MISFITS + BY_ZERO)
op("Mod(x: T, y: T) -> (z: T) [T: type in {int32, int64, half, bfloat16, float, double}]",
   shape=broadcast, numpy=mod_kernel, samples=[*NONZERO, SPECIAL, SIGNS], errors=MISFITS + BY_ZERO)
op("TruncateMod(x: T, y: T) -> (z: T) [T: type in {int32, int64, bfloat16, half, float, double}]",
   shape=broadcast, numpy=truncate_mod_kernel, samples=[*NONZERO, SPECIAL, SIGNS], errors=MISFITS)

# -- powers -----------------------------------------------------------------------------------------------------------

power = binary(np.power)


def _squared_on(x: Any, y: Any) -> Any:
    """x ** y of whole numbers, bit by bit of y."""

    def step(result: Any, square: Any, bits: Any) -> Any:
        return vectors.select((bits & 1) != 0, result * square, result), square * square, bits >> 1

    return vectors.repeat(lambda result, square, bits: bits != 0, step, x.like(1), x, y)[0]


_whole_powers = native.Loop(_squared_on, "same")


def _same_power(x: np.ndarray, exponent: int) -> np.ndarray:
    """x ** exponent of whole numbers, in as few products as the exponent has bits, twice."""
    result, square = None, x
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if exponent:
            square = square * square
    return np.ones_like(x) if result is None else result.copy() if result is x else result


def pow_kernel(x: Any, y: Any) -> Any:
    kind = x.dtype.kind
    if kind == "i" and (y < 0).any():
        if 0 in broadcast_shape(x, y):
            return power(x, np.abs(y))
        raise InvalidArgumentError("Integers to negative integer powers are not allowed")
    if kind == "i" and np.size(x) >= native.SMALL and x.itemsize >= 4 and np.shape(x) == np.shape(y):
        found = _whole_powers.run(x, y)
        if found is not None:
            return found
    if kind == "i" and np.ndim(y) == 0 and np.size(x) >= native.SMALL:
        return _same_power(x, int(y))
    return power(x, y)


def pow_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    x, y, z = conj(g, op.x), conj(g, op.y), conj(g, op.z)

    def slope_in_y() -> Any:
        # log(x) only where it is real; elsewhere the slope is taken as 0.
        mask = g.NotEqual(x, 0) if x.dtype.is_complex else g.Greater(x, 0)
        safe = g.SelectV2(mask, x, g.OnesLike(x))
        log = g.SelectV2(mask, g.Log(safe), g.ZerosLike(x))
        return g.Mul(g.Mul(dz, z), log)

    one = g.const(1, x.dtype)
    return reduce_to(g, op.x, op.y, lambda: g.Mul(g.Mul(dz, y), g.Pow(x, g.Sub(y, one))), slope_in_y)


op("Pow(x: T, y: T) -> (z: T) [T: type in {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}]",
   shape=broadcast, numpy=pow_kernel, grad=pow_grad,
   samples=[dict(x=uniform(2, 3, lo=0.5, hi=3), y=ints(2, 3, lo=0, hi=4)), dict(x=ints(2, 1, 3, lo=1, hi=4), y=ints(4, 1, lo=0, hi=3)),
            dict(x=uniform(3), y=arr(2)), dict(x=empty(0), y=ints(1)), SPECIAL, dict(x=ints(3, lo=-3, hi=3), y=arr(3))],
   errors=[*MISFITS, (dict(x=arr([1, 2], dtype=np.int32), y=arr([-1, 0], dtype=np.int32)), InvalidArgumentError,
                      "Integers to negative integer powers are not allowed")])  # fmt: skip


@binary
def xlogy(x: Any, y: Any) -> Any:
    return _zero_where_zero(x, np.log(widen(y)))


@binary
def xlog1py(x: Any, y: Any) -> Any:
    return _zero_where_zero(x, np.log1p(widen(y)))


@binary
@looped
def xdivy(x: Any, y: Any) -> Any:
    return np.where(x == 0, x.dtype.type(0), np.true_divide(x, y))


def _zero_where_zero(x: Any, factor: Any) -> Any:
    return narrow(np.where(x == 0, factor.dtype.type(0), widen(x) * factor), x.dtype)


def _not_zero(g: Any, x: Any) -> Any:
    return g.Cast(g.NotEqual(x, 0), DstT=x.dtype)


def xlogy_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    x, y = op.x, op.y
    return reduce_to(g, op.x, op.y, lambda: g.Mul(g.Xlogy(_not_zero(g, x), y), dz), lambda: g.Mul(g.Xdivy(x, y), dz))


def xlog1py_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    x, y = op.x, op.y
    return reduce_to(g, op.x, op.y, lambda: g.Mul(g.Xlog1py(_not_zero(g, x), y), dz),
                     lambda: g.Mul(g.Xdivy(x, g.AddV2(y, 1)), dz))  # fmt: skip


def xdivy_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    x, y = op.x, op.y
    return reduce_to(g, op.x, op.y, lambda: g.Mul(g.Xdivy(_not_zero(g, x), y), dz),
                     lambda: g.Mul(g.Xdivy(g.Neg(x), g.Square(y)), dz))  # fmt: skip


POWERS = [dict(x=normal(2, 3), y=uniform(2, 3, lo=0.1, hi=3)), dict(x=arr([0, 1, 0, 2]), y=arr([0, 0.5, 3, 1])), dict(x=normal(2, 1), y=uniform(3)),
          dict(x=empty(0), y=uniform(1)), SPECIAL]  # fmt: skip
op("Xlogy(x: T, y: T) -> (z: T) [T: type in FLOATS|COMPLEX]", shape=broadcast, numpy=xlogy, grad=xlogy_grad, samples=POWERS, errors=MISFITS)
op("Xlog1py(x: T, y: T) -> (z: T) [T: type in FLOATS|COMPLEX]", shape=broadcast, numpy=xlog1py, grad=xlog1py_grad, samples=POWERS, errors=MISFITS)
op("Xdivy(x: T, y: T) -> (z: T) [T: type in FLOATS|COMPLEX]", shape=broadcast, numpy=xdivy, grad=xdivy_grad, samples=POWERS, errors=MISFITS)

# -- larger, smaller, angles ------------------------------------------------------------------------------------------


def _chosen_grad(compare: str) -> Any:
    def rule(g: Any, op: Any, dz: Any) -> list[Any]:
        zeros = g.ZerosLike(dz)
        mask = getattr(g, compare)(op.x, op.y)
        return reduce_to(g, op.x, op.y, lambda: g.SelectV2(mask, dz, zeros), lambda: g.SelectV2(mask, zeros, dz))

    return rule


op("Maximum(x: T, y: T) -> (z: T) [T: type in FLOATS|INTS]",
   shape=broadcast, numpy=binary(np.maximum), grad=_chosen_grad("GreaterEqual"), samples=[*BROADCASTS, SPECIAL], errors=MISFITS)
op("Minimum(x: T, y: T) -> (z: T) [T: type in FLOATS|INTS]",
   shape=broadcast, numpy=binary(np.minimum), grad=_chosen_grad("LessEqual"), samples=[*BROADCASTS, SPECIAL], errors=MISFITS)


def atan2_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    inverse = g.RealDiv(dz, g.AddV2(g.Square(op.x), g.Square(op.y)))
    return reduce_to(g, op.y, op.x, lambda: g.Mul(op.x, inverse), lambda: g.Mul(g.Neg(op.y), inverse))


op("Atan2(y: T, x: T) -> (z: T) [T: type in FLOATS]",
   shape=broadcast, numpy=binary(np.arctan2), grad=atan2_grad, samples=[*BROADCASTS, SPECIAL])


def next_after_grad(g: Any, op: Any, dz: Any) -> list[Any]:
    return reduce_to(g, op.x1, op.x2, lambda: dz, lambda: g.ZerosLike(dz))


op("NextAfter(x1: T, x2: T) -> (output: T) [T: type in {double, float} = float]",
   shape=broadcast, numpy=binary(np.nextafter), grad=next_after_grad,
   samples=[dict(x1=normal(2, 3), x2=normal(3)), dict(x1=arr([0.0, 1.0, INF, NAN]), x2=arr([1.0, 1.0, 0.0, 1.0])), dict(x1=empty(0), x2=normal(1))])  # fmt: skip

# -- sums of many, clipping -------------------------------------------------------------------------------------------


def add_n_kernel(inputs: list[Any], *, node: Any) -> Any:
    first = inputs[0]
    if not hasattr(first, "shape"):  # variants add by their own rule
        total = first
        for value in inputs[1:]:
            total = total + value
        return total
    for i, value in enumerate(inputs):
        if value.shape != first.shape:
            raise InvalidArgumentError(
                f"Inputs to operation {node.name} of type {node.type} must have the same size and shape.  "
                f"Input 0: {format_dims(first.shape)} != input {i}: {format_dims(value.shape)}"
            )
    if len(inputs) == 1:
        return first
    if first.dtype in NARROW:
        return narrow(_sum_in_order([widen(v) for v in inputs]), first.dtype)
    return _sum_in_order(inputs)


def _sum_in_order(inputs: list[Any]) -> Any:
    total = np.add(inputs[0], inputs[1])
    if total.__class__ is np.ndarray:
        for value in inputs[2:]:
            np.add(total, value, out=total)
    else:
        for value in inputs[2:]:
            total = np.add(total, value)
    return total


def add_n_grad(g: Any, op: Any, dsum: Any) -> list[Any]:
    return [dsum] * len(op.inputs)


def accumulate_shape(c: Any) -> Any:
    dims = dims_of(c.attrs["shape"])
    for i in range(c.n):
        dims = merge_dims(dims, c.dims(i))
    return dims


MANY = [dict(inputs=[normal(2, 3), normal(2, 3), normal(2, 3)]), dict(inputs=[normal(2)]), dict(inputs=[empty(0), empty(0)]), dict(inputs=[normal(), normal()])]

op("AddN(inputs: N*T) -> (sum: T) [N: int >= 1; T: type in {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32,"
   " bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, variant}] commutative aggregate",
   shape=merge_same, numpy=add_n_kernel, grad=add_n_grad, samples=MANY,
   errors=[(dict(inputs=[normal(2), normal(3)]), InvalidArgumentError, "must have the same size and shape")])  # fmt: skip
op("AccumulateNV2(inputs: N*T) -> (sum: T) [N: int >= 1; T: type in NUMBERS; shape: shape] commutative aggregate",
   shape=accumulate_shape, numpy=add_n_kernel, grad=add_n_grad, samples=[dict(inputs=[normal(2), normal(2)], shape=[2])])


def clip_kernel(t: Any, low: Any, high: Any) -> Any:
    for bound in (low, high):
        if bound.size != 1 and bound.shape != t.shape:
            raise InvalidArgumentError(
                "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. "
                f"input shape: {format_dims(t.shape)}clip_value_min shape: {format_dims(low.shape)}clip_value_max shape: {format_dims(high.shape)}"
            )
    low, high = (b.reshape(()) if b.shape != t.shape else b for b in (low, high))
    if t.dtype.kind == "c":  # TF clips the parts one by one
        result = np.empty(t.shape, dtype=t.dtype)
        result.real = np.maximum(np.minimum(t.real, high.real), low.real)
        result.imag = np.maximum(np.minimum(t.imag, high.imag), low.imag)
        return result
    if low.ndim == high.ndim == 0 and t.dtype.isbuiltin == 1 and low <= high:
        return np.clip(t, low, high)  # with numbers several times as quick as the two steps below
    return np.maximum(np.minimum(t, high), low)


def clip_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    t, low, high = op.t, op.clip_value_min, op.clip_value_max
    zeros = g.ZerosLike(dy)
    below, above = g.Less(t, low), g.Greater(t, high)
    inside = g.SelectV2(g.LogicalOr(below, above), zeros, dy)
    _, d_low = reduce_to(g, t, low, None, lambda: g.SelectV2(below, dy, zeros))
    _, d_high = reduce_to(g, t, high, None, lambda: g.SelectV2(above, dy, zeros))
    return [inside, d_low, d_high]


op("ClipByValue(t: T, clip_value_min: T, clip_value_max: T) -> (output: T) [T: type in NUMBERS]",
   shape=same_as("t"), numpy=clip_kernel, grad=clip_grad,
   samples=[dict(t=ints(2, 3, lo=-9, hi=9), clip_value_min=arr(1), clip_value_max=arr(4)),
            dict(t=ints(2, 3), clip_value_min=ints(2, 3, lo=0, hi=3), clip_value_max=ints(2, 3, lo=4, hi=7)),
            dict(t=empty(0), clip_value_min=arr(0), clip_value_max=arr(1)),
            dict(t=arr([1, NAN, 3], dtype=np.float32), clip_value_min=arr(2, dtype=np.float32), clip_value_max=arr(2.5, dtype=np.float32)),
            dict(t=arr([1, 2, 3]), clip_value_min=arr(3), clip_value_max=arr(1))],
   errors=[(dict(t=normal(3), clip_value_min=normal(2), clip_value_max=normal()), InvalidArgumentError, "must be either of the same shape as input")])  # fmt: skip
