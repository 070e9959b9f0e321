"""Products of bytes with int32 sums: TF's quantised ops on oneDNN's u8 x s8 primitives.

The primitives multiply unsigned bytes with signed weights. Unsigned weights become signed ones by taking 128 away, and the steps that
stand for zero are taken account of afterwards:

    sum (a - za)(b - zb)  =  sum a (b - 128)  +  (128 - zb) sum a  -  za (sum b - n zb)

For a convolution, the sums of a over each window are one more output channel, of ones. Everything is exact modulo 2**32, as NumPy's
kernel is. CPUs without VNNI saturate sums of two products, so the check is
for bfloat16 instructions, which come with it.

Constant weights are laid out once. Others are laid out in every call, which is worth it where each of them is used often enough.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock import errors
from penstock.engines.memory import address, aligned_empty
from penstock.engines.onednn import conv
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Library, OneDnnError
from penstock.engines.onednn.plan import FLOPS_PER_US, Reordered, channels_last_strides, contiguous, planned, strides_of
from penstock.engines.onednn.primitives import Buffer, Maker
from penstock.graph.ir import Operation
from penstock.ops.kernels import quantized_products as numpy_kernels
from penstock.ops.kernels.window import layout, slides_of

S32, S8, U8 = 4, 5, 6
MIN_FLOPS = 2e6
"""Below, NumPy is as quick, or the time matters less than that of compiling a primitive."""
MIN_USES = 8
"""How often weights that may change must be used in a call: rows of a matrix, places of an image."""
_BYTE, _INT32 = np.dtype(np.uint8), np.dtype(np.int32)

Kernel = Callable[..., Any]


class MatrixSpec(NamedTuple):
    """Unsigned (rows, inner) times signed (inner, columns)."""

    rows: int
    inner: int
    columns: int


class ByteMatMul:
    def __init__(self, m: Maker, spec: MatrixSpec) -> None:
        self.shape = (spec.rows, spec.columns)
        src, dst = m.md((spec.rows, spec.inner), (spec.inner, 1), U8), m.md(self.shape, strides_of(self.shape), S32)
        dims = (spec.inner, spec.columns)
        plain = m.md(dims, strides_of(dims), S8)
        pd = m.pd("matmul", src, m.md(dims, None, S8), None, dst, m.attr())
        weights = m.query(pd, lib.QUERY_WEIGHTS)
        self.main = m.primitive(pd, [(lib.ARG_SRC, src), (lib.ARG_WEIGHTS, weights), (lib.ARG_DST, dst)])
        self.weights = Reordered(m, plain, weights)

    def run(self, x: np.ndarray, weights: Buffer) -> np.ndarray:
        out = aligned_empty(self.shape, _INT32)
        self.main.run(address(x), weights.address, address(out))
        return out


class ByteConv:
    def __init__(self, m: Maker, spec: conv.Spec) -> None:
        self.shape = spec.shape(spec.dst_dims)
        src, dst = m.md(spec.src_dims, channels_last_strides(spec.src_dims), U8), m.md(spec.dst_dims, channels_last_strides(spec.dst_dims), S32)
        dims, strides = spec.weight_dims()
        geometry = spec.geometry()
        pd = m.pd("convolution_forward", lib.FORWARD_INFERENCE, lib.CONVOLUTION_DIRECT, src, m.md(dims, None, S8), None, dst, *geometry, m.attr())
        weights = m.query(pd, lib.QUERY_WEIGHTS)
        self.main = m.primitive(pd, [(lib.ARG_SRC, src), (lib.ARG_WEIGHTS, weights), (lib.ARG_DST, dst)])
        self.weights = Reordered(m, m.md(dims, strides, S8), weights)

    def run(self, x: np.ndarray, weights: Buffer) -> np.ndarray:
        out = aligned_empty(self.shape, _INT32)
        self.main.run(address(x), weights.address, address(out))
        return out


def _signed(w: np.ndarray) -> np.ndarray:
    """w - 128 of unsigned bytes, w of signed ones."""
    return (w ^ np.uint8(128)).view(np.int8) if w.dtype == _BYTE else w


def _int32(value: int) -> Any:
    """The int32 that is `value` modulo 2**32."""
    return np.array(value, np.int64).astype(np.int32)


class Products:
    """The products of one node: `matmul` and `conv2d` as NumPy's kernels call them, with the node's weights laid out once."""

    def __init__(self, library: Library, name: str, is_constant: bool = True) -> None:
        self.library = library
        self.name = name
        self.is_constant = is_constant
        self._known: tuple[Any, Any] = (None, None)

    def _prepared(self, plan: Any, w: np.ndarray, lay_out: Callable[[], tuple[Buffer, np.ndarray]]) -> tuple[Buffer, np.ndarray]:
        """The weights in the plan's layout and their sums. Constant ones are kept alive here, and their address names them."""
        if not self.is_constant:
            return lay_out()
        key, value = self._known
        now = (plan, address(w), w.shape, w.strides)
        if key is None or key[1:] != now[1:] or key[0] is not plan:
            value = (*lay_out(), w)
            self._known = (now, value)
        return value[:2]

    def _or_numpy(self, ours: Callable[[], np.ndarray | None], theirs: Callable[[], np.ndarray]) -> np.ndarray:
        try:
            found = ours()
        except OneDnnError as error:
            if error.status != lib.FORKED:
                lib.log.warning("%s in '%s'; NumPy computes it", error, self.name)
            found = None
        return theirs() if found is None else found

    def matmul(self, x: np.ndarray, y: np.ndarray, zero_x: int, zero_y: int) -> np.ndarray:
        return self._or_numpy(lambda: self._matmul(x, y, zero_x, zero_y), lambda: numpy_kernels.int_matmul(x, y, zero_x, zero_y))

    def _matmul(self, x: np.ndarray, y: np.ndarray, zero_x: int, zero_y: int) -> np.ndarray | None:
        (rows, inner), columns = x.shape, y.shape[1]
        flops = 2.0 * rows * inner * columns
        if flops < MIN_FLOPS or x.dtype != _BYTE or not (self.is_constant or rows >= MIN_USES):
            return None
        x = contiguous(x)
        spec = MatrixSpec(rows, inner, columns)
        plan = planned(ByteMatMul, self.library, flops / FLOPS_PER_US, spec)
        if plan is None:
            return None
        weights, sums = self._prepared(plan, y, lambda: (plan.weights.laid_out(contiguous(_signed(y))), y.sum(0, dtype=np.int64)))
        out = plan.run(x, weights)
        shift = 128 - zero_y if y.dtype == _BYTE else -zero_y
        if shift:
            out += x.sum(1, dtype=np.int32)[:, None] * _int32(shift)
        if zero_x:
            out -= ((sums - inner * zero_y) * zero_x).astype(np.int32)
        return out

    def conv2d(self, x: np.ndarray, w: np.ndarray, zero_x: int, zero_w: int, *, strides: Any, padding: bytes, dilations: Any, depthwise_: bool = False) -> np.ndarray:
        attrs = dict(strides=strides, padding=padding, dilations=dilations, depthwise_=depthwise_)
        return self._or_numpy(lambda: self._conv2d(x, w, zero_x, zero_w, **attrs), lambda: numpy_kernels.int_conv2d(x, w, zero_x, zero_w, **attrs))

    def _conv2d(self, x: np.ndarray, w: np.ndarray, zero_x: int, zero_w: int, *, strides: Any, padding: bytes, dilations: Any, depthwise_: bool) -> np.ndarray | None:
        shift = 128 - zero_w if w.dtype == _BYTE else -zero_w
        if x.dtype != _BYTE or not 0 <= zero_x <= 255 or (depthwise_ and (shift or zero_x)):
            return None
        lay = layout(b"NHWC")
        try:
            slides = slides_of(lay, x.shape[1:3], w.shape[:2], strides, padding, dilations)
            if zero_x and any(s.before or s.after for s in slides):
                # The primitive's border is 0; here zero is another byte.
                x = np.pad(x, [(0, 0), *((s.before, s.after) for s in slides), (0, 0)], constant_values=zero_x)
                slides = slides_of(lay, x.shape[1:3], w.shape[:2], strides, b"VALID", dilations)
        except errors.InvalidArgumentError:
            return None
        depth = x.shape[3]
        channels = depth * w.shape[3] if depthwise_ else w.shape[3]
        spec = conv.Spec(x.shape[0], depth, channels + (shift != 0), depth if depthwise_ else 1, tuple(slides), True, _BYTE, depthwise_)
        if any(s.out <= 0 for s in slides) or spec.flops < MIN_FLOPS:
            return None
        if not self.is_constant and x.shape[0] * slides[0].out * slides[1].out < MIN_USES:
            return None
        plan = planned(ByteConv, self.library, spec.flops / FLOPS_PER_US, spec)
        if plan is None:
            return None
        weights, sums = self._prepared(plan, w, lambda: (plan.weights.laid_out(_with_ones(w) if shift else _signed(w)), w.sum((0, 1, 2), dtype=np.int64)))
        out = plan.run(contiguous(x), weights)
        if shift:
            out = out[..., :-1] + out[..., -1:] * _int32(shift)
        if zero_x:
            out -= ((sums - w[..., 0].size * zero_w) * zero_x).astype(np.int32)
        return out


def _with_ones(w: np.ndarray) -> np.ndarray:
    return np.concatenate([_signed(w), np.ones((*w.shape[:-1], 1), np.int8)], -1)


def _kernel(name: str, products: Products) -> Kernel:
    """NumPy's kernel of an op over our products."""
    relu, requantize = "Relu" in name, "Requantize" in name
    has_sum, dequantize = "Sum" in name, "Dequantize" in name
    if name == "QuantizedMatMul":
        return numpy_kernels.matmul_with(products.matmul)
    if name == "QuantizedConv2D":
        return numpy_kernels.conv2d_with(products.conv2d)
    if name.startswith("QuantizedMatMul"):
        return numpy_kernels.fused_matmul(relu, requantize, products.matmul, dequantize)
    return numpy_kernels.fused_conv("WithBias" in name, relu, requantize, "Depthwise" in name, products.conv2d, has_sum)


def maker(op: Operation, fallback: Kernel) -> Kernel | None:
    """The kernel of a quantised product."""
    from penstock.engines.onednn.binding import is_constant

    library = lib.get()
    if library is None or not library.has_bf16:
        return None
    kernel = _kernel(op.type, Products(library, op.name, is_constant(op.inputs[1])))
    names = [p.name for p in inspect.signature(kernel).parameters.values() if p.kind is p.KEYWORD_ONLY]
    attrs = {name: op if name == "node" else op.attrs[name] for name in names}
    return lambda *inputs: kernel(*inputs, **attrs)
