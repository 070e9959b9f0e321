"""Max and average pooling in two and three dimensions, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError, UnimplementedError
from penstock.graph.ir import Dims
from penstock.ops.conv import attrs_of, sizes_shape
from penstock.ops.declare import op, with_rank
from penstock.ops.kernels import pool
from penstock.ops.kernels.window import Layout, check_explicit_paddings, layout, static_size
from penstock.ops.samples import arr, empty, ints, normal, program
from penstock.shapes import merge_dims

# -- shapes -----------------------------------------------------------------------------------------------------------


def pooled(dims: Any, lay: Layout, ksize: Any, strides: Any, padding: bytes, pads: Any = ()) -> tuple:
    """The shape after pooling `dims`; the window may cover channels."""
    spatial = (
        static_size(size, k, stride, padding, 1, pair)
        for size, k, stride, pair in zip(
            lay.of_spatial(dims), lay.of_spatial(ksize), lay.of_spatial(strides), lay.pairs(pads), strict=True
        )
    )
    sizes = tuple(spatial)
    depth = dims[lay.channel]
    if ksize[lay.channel] != 1 or strides[lay.channel] != 1:
        depth = static_size(depth, ksize[lay.channel], strides[lay.channel], padding)
    return lay.build(dims[0], sizes, depth)


def check_window(c: Any, rank: int, ksize_text: str, stride_text: str) -> None:
    for name, text in (("strides", stride_text), ("ksize", ksize_text)):
        values = c.attrs[name]
        if len(values) != rank:
            raise ValueError(f"{text} attribute to contain {rank} values, but got: {len(values)}")


def pool_shape(c: Any) -> Dims:
    if c.attrs.get("data_format") == b"NCHW_VECT_C":
        return with_rank(c, 0, 5) and (None,) * 5
    lay = layout(c.attrs.get("data_format", b"NHWC"))
    kind = c.op.type if c.op.type in ("AvgPool", "MaxPool") else "MaxPool"
    check_window(c, 4, f"{kind} requires the ksize", f"{kind} requires the stride")
    pads = c.attrs.get("explicit_paddings", ())
    check_explicit_paddings(c.attrs["padding"], pads, lay)
    return pooled(with_rank(c, 0, 4), lay, c.attrs["ksize"], c.attrs["strides"], c.attrs["padding"], pads)


def pool3d_shape(c: Any) -> Dims:
    check_window(c, 5, "Pool3D requires the ksize", "Pool3D ops require the stride")
    lay = layout(c.attrs["data_format"])
    return pooled(with_rank(c, 0, 5), lay, c.attrs["ksize"], c.attrs["strides"], c.attrs["padding"])


def pool_v2_shape(c: Any, first: int = 1) -> Dims:
    """Window and strides are inputs `first` and the one after it."""
    dims = with_rank(c, 0, 4)
    for i in (first, first + 1):
        (length,) = with_rank(c, i, 1)  # type: ignore[misc]
        if length not in (None, 4):
            raise ValueError(f"Dimension must be 4 but is {length}")
    ksize, strides = c.const(first), c.const(first + 1)
    if ksize is None or strides is None or c.attrs["data_format"] == b"NCHW_VECT_C":
        return None
    return pooled(dims, layout(c.attrs["data_format"]), ksize.tolist(), strides.tolist(), c.attrs["padding"])


def grad_grad_shape(shape: Any) -> Any:
    """Like the pooled output; the incoming gradient is like the input."""

    def rule(c: Any) -> Dims:
        dims = shape(c)
        merge_dims(c.dims(0), c.dims(2))
        return merge_dims(c.dims(1), dims)

    return rule


def like_input(rank: int) -> Any:
    return lambda c: with_rank(c, 0, rank)


# -- samples ----------------------------------------------------------------------------------------------------------

# (input, output, attributes)
CASES: list[tuple[tuple, tuple, dict[str, Any]]] = [
    ((2, 5, 6, 3), (2, 2, 3, 3), dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")),
    ((2, 5, 6, 3), (2, 3, 3, 3), dict(ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME")),
    ((1, 4, 5, 2), (1, 4, 5, 2), dict(ksize=[1, 2, 3, 1], strides=[1, 1, 1, 1], padding="SAME")),
    ((1, 7, 7, 1), (1, 3, 3, 1), dict(ksize=[1, 1, 2, 1], strides=[1, 3, 3, 1], padding="SAME")),
]
CASES_3D: list[tuple[tuple, tuple, dict[str, Any]]] = [
    ((1, 4, 5, 6, 2), (1, 2, 2, 3, 2), dict(ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID")),
    ((1, 3, 4, 5, 2), (1, 3, 2, 3, 2), dict(ksize=[1, 2, 3, 3, 1], strides=[1, 1, 2, 2, 1], padding="SAME")),
]


def forward(arg: str, cases: Any) -> list[dict[str, Any]]:
    return [{arg: normal(*x), **attrs} for x, _, attrs in cases]


def backward(cases: Any) -> list[dict[str, Any]]:
    """Samples of MaxPoolGrad, which finds the maxima itself: `orig_output` only needs the right shape."""
    return [dict(orig_input=ints(*x, lo=0, hi=9), orig_output=normal(*y), grad=normal(*y), **attrs) for x, y, attrs in cases]


def pooled_first(pool: str, name: str, like: int, cases: Any, as_tensors: bool = False) -> list[Any]:
    """Program samples of an op that needs the true `orig_output`; its gradient is like the input (0) or the output (1)."""

    def sample(x_dims: tuple, y_dims: tuple, attrs: dict[str, Any]) -> Any:
        def fn(tf: Any) -> Any:
            r = np.random.default_rng(2)
            x = tf.constant(r.permutation(int(np.prod(x_dims))).reshape(x_dims).astype(np.float32))
            grad = tf.constant(r.standard_normal((x_dims, y_dims)[like]).astype(np.float32))
            y = getattr(tf.raw_ops, pool)(input=x, **attrs)
            window = {k: tf.constant(v, tf.int32) for k, v in attrs.items() if k != "padding"} if as_tensors else {}
            return getattr(tf.raw_ops, name)(orig_input=x, orig_output=y, grad=grad, **{**attrs, **window})

        return program(fn)

    return [sample(*case) for case in cases]


def as_inputs(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same samples with window and strides as tensors."""
    return [{**s, "ksize": arr(s["ksize"], np.int32), "strides": arr(s["strides"], np.int32)} for s in samples]


SMALL = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")


def pool_errors(arg: str) -> list[Any]:
    x = {arg: normal(1, 4, 4, 2)}
    return [
        ({arg: normal(4, 4, 2), **SMALL}, InvalidArgumentError, "tensor_in_shape must have 2 spatial dimensions"),
        ({**x, **SMALL, "ksize": [2, 2, 2, 1]}, UnimplementedError, "Pooling is not yet supported on the batch dimension"),
        ({**x, **SMALL, "ksize": [1, 6, 6, 1], "strides": [1, 1, 1, 1]}, InvalidArgumentError, "Computed output size would be negative: -1"),
        ({**x, **SMALL, "ksize": [1, 0, 2, 1]}, InvalidArgumentError, "Sliding window ksize must be positive"),
    ]  # fmt: skip


# -- maximum ----------------------------------------------------------------------------------------------------------

MAX = ("ksize", "strides", "padding", "data_format")


def max_pool_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.MaxPoolGrad(op.input, op.output, dy, **attrs_of(op, (*MAX, "explicit_paddings")))


def max_pool_grad_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    x, y, _ = op.inputs
    return [g.ZerosLike(x), g.ZerosLike(y), g.MaxPoolGradGrad(x, y, dy, **attrs_of(op, MAX))]


def max_pool_grad_grad_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    x, y, _ = op.inputs
    return [g.ZerosLike(x), g.ZerosLike(y), g.MaxPoolGrad(x, y, dy, **attrs_of(op, MAX))]


op("MaxPool(input: T) -> (output: T) [T: type in {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float;"
   " ksize: list(int) >= 4; strides: list(int) >= 4; padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = [];"
   " data_format: string in {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC']",
   shape=pool_shape, numpy=pool.max_pool, grad=max_pool_grad, expensive=True,
   samples=lambda: [*forward("input", CASES), dict(input=empty(0, 4, 4, 2), **SMALL),
                    dict(input=normal(2, 3, 4, 6), ksize=[1, 1, 1, 3], strides=[1, 1, 1, 3], padding="VALID"),
                    dict(input=normal(1, 4, 4, 2), ksize=[1, 2, 3, 1], strides=[1, 1, 2, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 0, 0, 2, 0, 0])],
   errors=pool_errors("input"))  # fmt: skip

op("MaxPoolGrad(orig_input: T, orig_output: T, grad: T) -> (output: T) [ksize: list(int) >= 4; strides: list(int) >= 4;"
   " padding: string in {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; data_format: string in {'NHWC', 'NCHW'} = 'NHWC';"
   " T: type in REALS = float]",
   shape=like_input(4), numpy=pool.max_pool_grad, grad=max_pool_grad_grad, expensive=True, samples=lambda: backward(CASES),
   errors=[(dict(orig_input=normal(1, 4, 4, 2), orig_output=normal(1, 1, 2, 2), grad=normal(1, 2, 2, 2), **SMALL), InvalidArgumentError, r"Expected orig_output shape to be \[1,2,2,2\], but got \[1,1,2,2\]"),
           (dict(orig_input=normal(1, 4, 4, 2), orig_output=normal(1, 2, 2, 2), grad=normal(1, 1, 2, 2), **SMALL), InvalidArgumentError, r"Expected grad shape to be \[1,2,2,2\], but got \[1,1,2,2\]")])  # fmt: skip

op("MaxPoolGradGrad(orig_input: T, orig_output: T, grad: T) -> (output: T) [ksize: list(int) >= 4; strides: list(int) >= 4;"
   " padding: string in {'SAME', 'VALID'}; data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; T: type in REALS]",
   shape=grad_grad_shape(pool_shape), numpy=pool.max_pool_grad_grad, grad=max_pool_grad_grad_grad, expensive=True,
   samples=pooled_first("MaxPool", "MaxPoolGradGrad", 0, CASES))  # fmt: skip


def max_pool_v2_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    x, ksize, strides = op.inputs
    return [g.MaxPoolGradV2(x, op.output, dy, ksize, strides, **attrs_of(op, ("padding", "data_format"))), None, None]


def max_pool_grad_v2_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    x, y, _, ksize, strides = op.inputs
    inner = g.MaxPoolGradGradV2(x, y, dy, ksize, strides, **attrs_of(op, ("padding", "data_format")))
    return [g.ZerosLike(x), g.ZerosLike(y), inner, None, None]


op("MaxPoolV2(input: T, ksize: int32, strides: int32) -> (output: T)"
   " [T: type in {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float; padding: string in {'SAME', 'VALID'};"
   " data_format: string in {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC']",
   shape=pool_v2_shape, numpy=pool.max_pool_v2, grad=max_pool_v2_grad, expensive=True, host_memory=["ksize", "strides"],
   samples=lambda: as_inputs(forward("input", CASES)),
   errors=[(dict(input=normal(1, 4, 4, 2), ksize=[1, 2, 2], strides=[1, 2, 2, 1], padding="VALID"), InvalidArgumentError, "Sliding window ksize field must specify 4 dimensions")])  # fmt: skip

op("MaxPoolGradV2(orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32) -> (output: T) [padding: string in {'SAME', 'VALID'};"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; T: type in REALS = float]",
   shape=like_input(4), numpy=pool.max_pool_grad_v2, grad=max_pool_grad_v2_grad, expensive=True, host_memory=["ksize", "strides"],
   samples=lambda: as_inputs(backward(CASES)))  # fmt: skip

op("MaxPoolGradGradV2(orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32) -> (output: T) [padding: string in {'SAME', 'VALID'};"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; T: type in REALS]",
   shape=grad_grad_shape(lambda c: pool_v2_shape(c, 3)), numpy=pool.max_pool_grad_grad_v2, expensive=True, host_memory=["ksize", "strides"],
   samples=pooled_first("MaxPool", "MaxPoolGradGradV2", 0, CASES, as_tensors=True))  # fmt: skip


# -- maximum with its position ----------------------------------------------------------------------------------------


def with_argmax_grad(g: Any, op: Any, dy: Any, _: Any) -> Any:
    return g.MaxPoolGradWithArgmax(op.input, dy, op.argmax, **attrs_of(op, ("ksize", "strides", "padding", "include_batch_in_index")))


def argmax_samples() -> list[dict[str, Any]]:
    return [dict(input=ints(*x, lo=0, hi=9), include_batch_in_index=batch, **attrs) for x, _, attrs in CASES for batch in (False, True)]


ARGMAX_GRAD = dict(input=normal(2, 4, 4, 1), argmax=arr(np.array([[0, 2], [9, 15]] * 2).reshape(2, 2, 2, 1), np.int64), **SMALL)

op("MaxPoolWithArgmax(input: T) -> (output: T, argmax: Targmax) [ksize: list(int) >= 4; strides: list(int) >= 4;"
   " Targmax: type in {int32, int64} = int64; padding: string in {'SAME', 'VALID'}; include_batch_in_index: bool = false; T: type in REALS]",
   shape=pool_shape, numpy=pool.max_pool_with_argmax, grad=with_argmax_grad, expensive=True, samples=argmax_samples,
   errors=[(dict(input=normal(4, 4, 2), **SMALL), InvalidArgumentError, "tensor_in must be 4-dimensional"),
           (dict(input=empty(0, 4, 4, 2), **SMALL), InvalidArgumentError, "tensor_in must not be empty")])  # fmt: skip

op("MaxPoolGradWithArgmax(input: T, grad: T, argmax: Targmax) -> (output: T) [ksize: list(int) >= 4; strides: list(int) >= 4;"
   " padding: string in {'SAME', 'VALID'}; include_batch_in_index: bool = false; Targmax: type in {int32, int64}; T: type in REALS]",
   shape=like_input(4), numpy=pool.max_pool_grad_with_argmax, expensive=True,
   samples=[dict(ARGMAX_GRAD, grad=normal(2, 2, 2, 1))],
   errors=[(dict(ARGMAX_GRAD, grad=normal(1, 1, 2, 1)), InvalidArgumentError, "Expected grad shape to be")])  # fmt: skip

op("MaxPoolGradGradWithArgmax(input: T, grad: T, argmax: Targmax) -> (output: T) [ksize: list(int) >= 4; strides: list(int) >= 4;"
   " padding: string in {'SAME', 'VALID'}; include_batch_in_index: bool = false; Targmax: type in {int32, int64}; T: type in REALS]",
   shape=pool_shape, numpy=pool.max_pool_grad_grad_with_argmax, expensive=True)  # fmt: skip


# -- average ----------------------------------------------------------------------------------------------------------


def avg_pool_grad(name: str) -> Any:
    return lambda g, op, dy: getattr(g, name)(g.Shape(op.inputs[0]), dy, **attrs_of(op, MAX))


def avg_pool_grad_grad(name: str) -> Any:
    return lambda g, op, dy: [None, getattr(g, name)(dy, **attrs_of(op, MAX))]


def avg_backward(cases: Any) -> list[dict[str, Any]]:
    return [dict(orig_input_shape=arr(x, np.int32), grad=normal(*y), **attrs) for x, y, attrs in cases]


op("AvgPool(value: T) -> (output: T) [ksize: list(int) >= 4; strides: list(int) >= 4; padding: string in {'SAME', 'VALID'};"
   " data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; T: type in FLOATS]",
   shape=pool_shape, numpy=pool.avg_pool, grad=avg_pool_grad("AvgPoolGrad"), expensive=True,
   samples=lambda: [*forward("value", CASES), dict(value=empty(0, 4, 4, 2), **SMALL)], errors=pool_errors("value"))  # fmt: skip

op("AvgPoolGrad(orig_input_shape: int32, grad: T) -> (output: T) [ksize: list(int) >= 4; strides: list(int) >= 4;"
   " padding: string in {'SAME', 'VALID'}; data_format: string in {'NHWC', 'NCHW'} = 'NHWC'; T: type in FLOATS]",
   shape=sizes_shape(0, 4), numpy=pool.avg_pool_grad, grad=avg_pool_grad_grad("AvgPool"), expensive=True, host_memory=["orig_input_shape"],
   samples=lambda: avg_backward(CASES),
   errors=[(dict(orig_input_shape=[4, 4, 2], grad=normal(1, 2, 2, 2), **SMALL), InvalidArgumentError, "must be 1-dimensional and 4 elements")])  # fmt: skip


# -- three dimensions -------------------------------------------------------------------------------------------------


def max_pool3d_grad(g: Any, op: Any, dy: Any) -> Any:
    return g.MaxPool3DGrad(op.input, op.output, dy, **attrs_of(op, MAX))


def max_pool3d_grad_grad(name: str) -> Any:
    def rule(g: Any, op: Any, dy: Any) -> list[Any]:
        x, y, _ = op.inputs
        return [g.ZerosLike(x), g.ZerosLike(y), getattr(g, name)(x, y, dy, **attrs_of(op, MAX))]

    return rule


op("MaxPool3D(input: T) -> (output: T) [ksize: list(int) >= 5; strides: list(int) >= 5; padding: string in {'SAME', 'VALID'};"
   " data_format: string in {'NDHWC', 'NCDHW'} = 'NDHWC'; T: type in {half, bfloat16, float}]",
   shape=pool3d_shape, numpy=pool.max_pool3d, grad=max_pool3d_grad, expensive=True, samples=lambda: forward("input", CASES_3D),
   errors=[(dict(input=normal(4, 4, 4, 2), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID"), InvalidArgumentError, "tensor_in must be 5-dimensional")])  # fmt: skip

op("MaxPool3DGrad(orig_input: TInput, orig_output: TInput, grad: T) -> (output: T) [ksize: list(int) >= 5; strides: list(int) >= 5;"
   " padding: string in {'SAME', 'VALID'}; data_format: string in {'NDHWC', 'NCDHW'} = 'NDHWC'; T: type in {half, bfloat16, float} = float;"
   " TInput: type in {half, bfloat16, float} = float]",
   shape=like_input(5), numpy=pool.max_pool3d_grad, grad=max_pool3d_grad_grad("MaxPool3DGradGrad"), expensive=True,
   samples=pooled_first("MaxPool3D", "MaxPool3DGrad", 1, CASES_3D))  # fmt: skip

op("MaxPool3DGradGrad(orig_input: T, orig_output: T, grad: T) -> (output: T) [ksize: list(int) >= 5; strides: list(int) >= 5;"
   " padding: string in {'SAME', 'VALID'}; data_format: string in {'NDHWC', 'NCDHW'} = 'NDHWC'; T: type in REALS]",
   shape=grad_grad_shape(pool3d_shape), numpy=pool.max_pool3d_grad_grad, grad=max_pool3d_grad_grad("MaxPool3DGrad"), expensive=True,
   samples=pooled_first("MaxPool3D", "MaxPool3DGradGrad", 0, CASES_3D))  # fmt: skip

op("AvgPool3D(input: T) -> (output: T) [ksize: list(int) >= 5; strides: list(int) >= 5; padding: string in {'SAME', 'VALID'};"
   " data_format: string in {'NDHWC', 'NCDHW'} = 'NDHWC'; T: type in FLOATS]",
   shape=pool3d_shape, numpy=pool.avg_pool3d, grad=avg_pool_grad("AvgPool3DGrad"), expensive=True, samples=lambda: forward("input", CASES_3D))  # fmt: skip

op("AvgPool3DGrad(orig_input_shape: int32, grad: T) -> (output: T) [ksize: list(int) >= 5; strides: list(int) >= 5;"
   " padding: string in {'SAME', 'VALID'}; data_format: string in {'NDHWC', 'NCDHW'} = 'NDHWC'; T: type in FLOATS]",
   shape=sizes_shape(0, 5), numpy=pool.avg_pool3d_grad, grad=avg_pool_grad_grad("AvgPool3D"), expensive=True, host_memory=["orig_input_shape"],
   samples=lambda: avg_backward(CASES_3D))  # fmt: skip
