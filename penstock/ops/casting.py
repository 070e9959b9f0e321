"""Conversion between element types, and complex numbers: building them, taking them apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import UnimplementedError
from penstock.ops.broadcasting import broadcast_shape, reduce_to
from penstock.ops.declare import broadcast, op, same_as
from penstock.ops.kernels import conversions
from penstock.ops.kernels.numeric import NARROW, SINGLE, narrow, to_single, widen
from penstock.ops.kernels.tiled import LARGE, is_large
from penstock.ops.samples import arr, bools, empty, ints, normal, strings

# -- Cast -------------------------------------------------------------------------------------------------------------

_SMALL_INTS = frozenset((dtypes.int8, dtypes.int16, dtypes.uint8, dtypes.uint16))
_BITS_LOST = {  # low mantissa bits that Truncate clears: (source, target) -> (integer view, bits)
    (dtypes.float64, dtypes.float32): (np.uint64, 29),
    (dtypes.float64, dtypes.bfloat16): (np.uint64, 45),
    (dtypes.float64, dtypes.float16): (np.uint64, 42),
    (dtypes.float32, dtypes.bfloat16): (np.uint32, 16),
    (dtypes.float32, dtypes.float16): (np.uint32, 13),
}


def cast_kernel(x: Any, *, SrcT: DType, DstT: DType, Truncate: bool) -> Any:
    """Whole numbers wrap around, floats lose their fraction; what does not fit into an integer gives x86's sentinel,
    the smallest value (0 in the types below 32 bits); complex numbers lose their imaginary part."""
    if SrcT is DstT:
        return x
    if x.dtype.hasobject or DstT.np.hasobject:
        raise UnimplementedError(f"Cast {SrcT.name} to {DstT.name} is not supported")
    if x.size >= LARGE and not Truncate and conversions.can_convert(x.dtype, DstT.np) and is_large(x):
        return conversions.convert(x, DstT.np)
    target = DstT.np
    if not Truncate and (found := conversions.convert_halves(x, target)) is not None:
        return found
    if SrcT.is_complex and not DstT.is_complex:
        x = x.real
    if x.dtype.kind not in "iub" and DstT.is_integer:
        return _float_to_int(x, DstT)
    if Truncate and (SrcT, DstT) in _BITS_LOST:
        x = _cleared(x, *_BITS_LOST[SrcT, DstT])
    if x.dtype in NARROW:
        x = to_single(x)
    if target in NARROW:  # by way of float32, as in TF
        return narrow(x.astype(SINGLE, copy=False), target)
    return x.astype(target, copy=False)


def _float_to_int(x: Any, want: DType) -> Any:
    x = widen(x)
    if want in _SMALL_INTS:
        return x.astype(np.int32).astype(want.np)
    if want is dtypes.uint32:
        return x.astype(np.int64).astype(np.uint32)
    return x.astype(want.np)


def _cleared(x: Any, word: Any, bits: int) -> Any:
    """`x` with the low mantissa bits cleared, except where that would turn a NaN into an infinity."""
    mask = ~word((1 << bits) - 1)
    return np.where(np.isnan(x), x, (np.asarray(x).view(word) & mask).view(x.dtype))


_DIFFERENTIABLE = dtypes.FLOATS | dtypes.COMPLEX


def cast_grad(g: Any, op: Any, dy: Any) -> Any:
    if op.attr("SrcT") in _DIFFERENTIABLE and op.attr("DstT") in _DIFFERENTIABLE:
        return g.Cast(dy, DstT=op.attr("SrcT"))
    return None


def _cast_samples() -> list[dict[str, Any]]:
    types = [*dtypes.ordered(dtypes.REALS | dtypes.COMPLEX), dtypes.bool]
    samples: list[dict[str, Any]] = [dict(x=normal(2, 3, scale=3, dtype=s.np), DstT=d) for s in types for d in types if s is not d]
    samples += [dict(x=arr([0.0, 0.5, -2.7, 300.0, -300.0], dtype=np.float32), DstT=d) for d in (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.bool)]
    samples += [dict(x=ints(5, lo=-70000, hi=70000, dtype=np.int32), DstT=d) for d in (dtypes.int8, dtypes.uint16, dtypes.float16, dtypes.bfloat16)]
    samples += [dict(x=arr([1.2345678, -3.9999, 1e-8], dtype=np.float64), DstT=d, Truncate=True) for d in (dtypes.float32, dtypes.float16, dtypes.bfloat16)]
    return [*samples, dict(x=empty(0, 2), DstT=dtypes.int32), dict(x=bools(3), DstT=dtypes.float32), dict(x=strings(["a"]), DstT=dtypes.string)]


op("Cast(x: SrcT) -> (y: DstT) [SrcT: type; DstT: type; Truncate: bool = false]",
   shape=same_as("x"), numpy=cast_kernel, grad=cast_grad, samples=_cast_samples,
   errors=[(dict(x=strings(["1"]), DstT=dtypes.int32), UnimplementedError, "Cast string to int32 is not supported"),
           (dict(x=ints(2, dtype=np.int64), DstT=dtypes.string), UnimplementedError, "Cast int64 to string is not supported")])  # fmt: skip

# -- complex numbers --------------------------------------------------------------------------------------------------

PARTS = "[T: type in {complex64, complex128} = complex64; Tout: type in {float, double} = float]"
COMPLEX_SAMPLES = [
    dict(input=normal(2, 3, dtype=np.complex64)), dict(input=empty(0, dtype=np.complex64)),
    dict(input=normal(3, dtype=np.complex128), Tout=dtypes.float64), dict(input=arr([0, 1j, -1, -1j, 3 + 4j], dtype=np.complex64)),
]  # fmt: skip


def _part(function: Any) -> Any:
    def kernel(x: Any, *, Tout: DType) -> Any:
        y = function(x)
        return y if y.dtype == Tout.np else y.astype(Tout.np)

    return kernel


def _as_complex(g: Any, real: Any, imag: Any = None) -> Any:
    zeros = g.ZerosLike(real if real is not None else imag)
    tout = dtypes.complex128 if zeros.dtype.base_dtype is dtypes.float64 else dtypes.complex64
    return g.Complex(zeros if real is None else real, zeros if imag is None else imag, Tout=tout)


def complex_abs_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.DivNoNan(g.Mul(_as_complex(g, dy), op.x), _as_complex(g, op.y))


def angle_grad(g: Any, op: Any, dy: Any) -> Any:
    tout = op.attr("Tout")
    re, im = g.Real(op.input, Tout=tout), g.Imag(op.input, Tout=tout)
    return g.Mul(g.Neg(_as_complex(g, dy)), g.Reciprocal(g.Complex(im, re, Tout=op.attr("T"))))


op(f"ComplexAbs(x: T) -> (y: Tout) {PARTS}",
   shape=same_as("x"), numpy=_part(np.absolute), grad=complex_abs_grad,
   samples=[{"x" if k == "input" else k: v for k, v in s.items()} for s in COMPLEX_SAMPLES])
op(f"Real(input: T) -> (output: Tout) {PARTS}",
   shape=same_as("input"), numpy=_part(lambda x: x.real), grad=lambda g, op, dy: _as_complex(g, dy), samples=COMPLEX_SAMPLES)
op(f"Imag(input: T) -> (output: Tout) {PARTS}",
   shape=same_as("input"), numpy=_part(lambda x: x.imag), grad=lambda g, op, dy: _as_complex(g, None, dy), samples=COMPLEX_SAMPLES)
op(f"Angle(input: T) -> (output: Tout) {PARTS}",
   shape=same_as("input"), numpy=_part(np.angle), grad=angle_grad, samples=COMPLEX_SAMPLES)  # fmt: skip


def conj_kernel(x: Any) -> Any:
    return np.conjugate(x) if hasattr(x, "dtype") else x


op("Conj(input: T) -> (output: T) [T: type in {complex64, complex128, variant} = complex64]",
   shape=same_as("input"), numpy=conj_kernel, grad=lambda g, op, dy: g.Conj(dy), samples=[dict(input=normal(2, 3)), dict(input=empty(0))])


def complex_kernel(real: Any, imag: Any, *, Tout: DType) -> Any:
    # real + 1j * imag would turn an infinite part into a NaN in the other one.
    result = np.empty(broadcast_shape(real, imag), dtype=Tout.np)
    result.real = real
    result.imag = imag
    return result


def complex_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    tout = op.attr("T")
    return reduce_to(g, op.real, op.imag, lambda: g.Real(dy, Tout=tout), lambda: g.Imag(dy, Tout=tout))


op("Complex(real: T, imag: T) -> (out: Tout) [T: type in {float, double} = float; Tout: type in {complex64, complex128} = complex64]",
   shape=broadcast, numpy=complex_kernel, grad=complex_grad,
   samples=[dict(real=normal(2, 3, dtype=np.float32), imag=normal(3, dtype=np.float32)),
            dict(real=normal(3, dtype=np.float64), imag=normal(3, dtype=np.float64), Tout=dtypes.complex128),
            dict(real=arr([float("inf"), 1, 0], dtype=np.float32), imag=arr([1, float("nan"), float("-inf")], dtype=np.float32)),
            dict(real=empty(0, dtype=np.float32), imag=empty(0, dtype=np.float32))])  # fmt: skip
