"""Conversion between element types, bit patterns, and the parts of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.engines.xla.checks import need
from penstock.engines.xla.rule import Unsupported, jnp, lax, rule
from penstock.engines.xla.values import const, is_complex, narrow, widen
from penstock.ops.casting import _BITS_LOST, _SMALL_INTS

# -- Cast -------------------------------------------------------------------------------------------------------------

_PLAIN = dtypes.REALS | dtypes.COMPLEX | {dtypes.bool}


@rule("Cast")
def cast(x: Any, *, SrcT: DType, DstT: DType, Truncate: bool) -> Any:
    if SrcT is DstT:
        return x
    if not {SrcT, DstT} <= _PLAIN:
        raise Unsupported(f"casts from {SrcT.name} to {DstT.name}")
    if is_complex(x) and not DstT.is_complex:
        x = jnp.real(x)
    if x.dtype.kind not in "iub" and DstT.is_integer:
        return float_to_int(widen(x), DstT)
    if DstT.np == np.bool_:
        return x != const(0, x)
    if SrcT.np == np.bool_ and not DstT.is_integer:
        # Not as a conversion: XLA takes the product of one with a number for a choice, and 0 * inf for 0.
        return jnp.where(x, np.ones((), DstT.np), np.zeros((), DstT.np))
    if Truncate and (SrcT, DstT) in _BITS_LOST:
        x = _cleared(x, *_BITS_LOST[SrcT, DstT])
    return x.astype(DstT.np)


def float_to_int(x: Any, want: DType) -> Any:
    """What x86 gives: the smallest value where the float does not fit, and small types by way of int32."""
    if want in _SMALL_INTS:
        return _signed(x, np.int32).astype(want.np)
    if want.np == np.uint32:
        return _signed(x, np.int64).astype(np.uint32)
    if want.np == np.uint64:
        half = const(2.0**63, x)
        above = _signed(x - half, np.int64).astype(np.uint64) ^ np.uint64(1 << 63)
        return jnp.where(x >= half, above, _signed(x, np.int64).astype(np.uint64))
    return _signed(x, want.np)


def _signed(x: Any, dtype: Any) -> Any:
    least = np.iinfo(dtype).min
    inside = (x >= const(float(least), x)) & (x < const(-float(least), x))
    return jnp.where(inside, x.astype(dtype), np.array(least, dtype))


def _cleared(x: Any, word: Any, bits: int) -> Any:
    mask = ~word((1 << bits) - 1)
    cleared = lax.bitcast_convert_type(lax.bitcast_convert_type(x, word) & mask, x.dtype)
    return jnp.where(jnp.isnan(x), x, cleared)


@rule("Bitcast")
def bitcast(x: Any, *, T: DType, type: DType) -> Any:
    if T.is_complex or type.is_complex:
        raise Unsupported("bit patterns of complex numbers")
    have, want = T.np.itemsize, type.np.itemsize
    if have < want:
        need(x.ndim > 0 and x.shape[-1] * have == want, "a last dimension that does not make an element")
    return lax.bitcast_convert_type(x, type.np)


# -- complex numbers --------------------------------------------------------------------------------------------------


@rule("ComplexAbs")
def complex_abs(x: Any, *, Tout: DType) -> Any:
    return narrow(jnp.abs(x), Tout.np)


@rule("Real")
def real(x: Any, *, Tout: DType) -> Any:
    return narrow(jnp.real(x), Tout.np)


@rule("Imag")
def imag(x: Any, *, Tout: DType) -> Any:
    return narrow(jnp.imag(x), Tout.np)


@rule("Angle")
def angle(x: Any, *, Tout: DType) -> Any:
    return narrow(jnp.arctan2(jnp.imag(x), jnp.real(x)), Tout.np)


@rule("Conj")
def conj(x: Any) -> Any:
    return jnp.conj(x)


@rule("Complex")
def complex_(real: Any, imag: Any, *, Tout: DType) -> Any:
    return narrow(lax.complex(*jnp.broadcast_arrays(real, imag)), Tout.np)
