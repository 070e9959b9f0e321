"""Arithmetic, element by element, of two arguments with broadcasting; sums of many; clipping."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import Unsupported, integers, jnp, lax, rule
from penstock.engines.xla.rules.casting import float_to_int
from penstock.engines.xla.values import array, const, is_complex, is_int, narrow, wide, widen

# -- sums, differences, products --------------------------------------------------------------------------------------


@rule("Add", "AddV2")
def add(x: Any, y: Any) -> Any:
    return jnp.add(x, y)


@rule("Sub")
def sub(x: Any, y: Any) -> Any:
    return jnp.subtract(x, y)


@rule("Mul")
def mul(x: Any, y: Any) -> Any:
    return jnp.multiply(x, y)


@rule("MulNoNan")
def mul_no_nan(x: Any, y: Any) -> Any:
    return jnp.where(y == 0, const(0, x), jnp.multiply(x, y))


@rule("SquaredDifference")
def squared_difference(x: Any, y: Any) -> Any:
    d = jnp.subtract(x, y)
    return d * jnp.conj(d) if is_complex(d) else d * d


@rule("AddN", "AccumulateNV2")
def add_n(inputs: list[Any]) -> Any:
    need(all(x.shape == inputs[0].shape for x in inputs), "sums of different shapes")
    total = widen(array(inputs[0]))
    for x in inputs[1:]:
        total = total + widen(x)
    return narrow(total, inputs[0].dtype)


# -- division ---------------------------------------------------------------------------------------------------------


def _same_shape(x: Any, y: Any) -> tuple[Any, Any]:
    return tuple(jnp.broadcast_arrays(x, y))  # type: ignore[return-value]


def _truncated(x: Any, y: Any) -> Any:
    """C's quotient of whole numbers, which is also XLA's."""
    return lax.div(*_same_shape(x, y))


@rule("Div", raises=integers)
def div(x: Any, y: Any) -> Any:
    return _truncated(x, y) if is_int(x) else jnp.true_divide(x, y)


@rule("RealDiv")
def real_div(x: Any, y: Any, *, T: DType) -> Any:
    if not is_int(x):
        return jnp.true_divide(x, y)
    wide_x, wide_y = (jnp.asarray(v).astype(np.float64) for v in (x, y))
    return float_to_int(wide_x / wide_y, T)


@rule("TruncateDiv", raises=integers)
def truncate_div(x: Any, y: Any) -> Any:
    if is_int(x):
        return _truncated(x, y)
    z = jnp.true_divide(widen(x), widen(y))
    return narrow(z if is_complex(z) else jnp.trunc(z), x.dtype)


@rule("FloorDiv", raises=integers)
def floor_div(x: Any, y: Any) -> Any:
    if is_int(x):
        return jnp.floor_divide(x, y)
    z = jnp.true_divide(widen(x), widen(y))
    if is_complex(z):
        return z
    kind = jnp.finfo(x.dtype)  # a narrow type's quotient is rounded first; XLA would leave out conversions there and back
    return narrow(jnp.floor(z if z.dtype == x.dtype else lax.reduce_precision(z, kind.nexp, kind.nmant)), x.dtype)


@rule("DivNoNan")
def div_no_nan(x: Any, y: Any) -> Any:
    return jnp.where(y == 0, const(0, x), jnp.true_divide(x, y))


@rule("FloorMod", raises=integers)
@wide
def floor_mod(x: Any, y: Any) -> Any:
    return jnp.remainder(x, y)


@rule("Mod", "TruncateMod", raises=integers)
@wide
def truncated_mod(x: Any, y: Any) -> Any:
    return lax.rem(*_same_shape(x, y))


# -- powers -----------------------------------------------------------------------------------------------------------


@rule("Pow", raises=integers)
def power(x: Any, y: Any) -> Any:
    if is_int(x):
        known = isinstance(y, np.ndarray)
        bits = int(y.max(initial=0)).bit_length() if known else y.dtype.itemsize * 8 - 1
        return _whole_power(*_same_shape(x, y), bits)
    return _complex_power(x, y) if is_complex(x) else lax.pow(*_same_shape(x, y))


def _complex_power(x: Any, y: Any) -> Any:
    # XLA's own result at 0 has NaNs where NumPy has none.
    x, y = _same_shape(x, y)
    at_zero = jnp.where(y == 0, const(1, x), jnp.where(jnp.real(y) > 0, const(0, x), const(complex("nan+nanj"), x)))
    return jnp.where(x == 0, at_zero, lax.pow(jnp.where(x == 0, const(1, x), x), y))


def _whole_power(x: Any, y: Any, bits: int) -> Any:
    """By squaring, over all bits that an exponent may have; products wrap."""
    result = jnp.ones_like(x)
    for _ in range(bits):
        result = jnp.where((y & const(1, y)) == 1, result * x, result)
        x, y = x * x, y >> const(1, y)
    return result


@rule("Xlogy")
@wide
def xlogy(x: Any, y: Any) -> Any:
    return jnp.where(x == 0, const(0, x), x * jnp.log(y))


@rule("Xlog1py")
@wide
def xlog1py(x: Any, y: Any) -> Any:
    return jnp.where(x == 0, const(0, x), x * jnp.log1p(y))


@rule("Xdivy")
def xdivy(x: Any, y: Any) -> Any:
    return jnp.where(x == 0, const(0, x), jnp.true_divide(x, y))


# -- larger, smaller, angles, clipping --------------------------------------------------------------------------------


@rule("Maximum")
def maximum(x: Any, y: Any) -> Any:
    return jnp.maximum(x, y)


@rule("Minimum")
def minimum(x: Any, y: Any) -> Any:
    return jnp.minimum(x, y)


@rule("Atan2")
@wide
def atan2(y: Any, x: Any) -> Any:
    return jnp.arctan2(y, x)


@rule("NextAfter")
def next_after(x: Any, y: Any) -> Any:
    return lax.nextafter(*_same_shape(x, y))


@rule("ClipByValue")
def clip_by_value(t: Any, low: Any, high: Any) -> Any:
    for bound in (low, high):
        need(bound.size == 1 or bound.shape == t.shape, "bounds that broadcast")
    low, high = (jnp.reshape(b, ()) if b.shape != t.shape else b for b in (low, high))
    if is_complex(t):
        parts = (jnp.maximum(jnp.minimum(part(t), part(high)), part(low)) for part in (jnp.real, jnp.imag))
        return lax.complex(*parts)
    return jnp.maximum(jnp.minimum(t, high), low)


@rule("ApproximateEqual")
def approximate_equal(x: Any, y: Any, *, tolerance: float) -> Any:
    need(x.shape == y.shape, "different shapes")
    if is_int(x):
        if x.dtype.itemsize == 8:
            raise Unsupported("distances of 64 bits against a float")
        distance = jnp.where(x > y, x - y, y - x) if x.dtype.kind == "u" else jnp.abs(jnp.subtract(x, y))
        return distance.astype(np.float64) < np.float64(tolerance)
    distance = jnp.abs(jnp.subtract(x, y))
    return distance < const(tolerance, distance)
