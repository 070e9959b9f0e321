"""Kernels of TF's ops through oneDNN: for each op a maker that `graph.bind` asks when a node is bound.

A maker looks at the node's attributes and gives a kernel with the inputs of NumPy's one, or None if oneDNN has nothing for such a node.
The kernel remembers the plan for the shapes it met last; for new shapes it asks for another, and where there is none (sizes too small
to be worth it, empty arrays, shapes that do not fit) it calls NumPy's kernel, which also words every error.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock import errors
from penstock.engines import blas
from penstock.engines.memory import aligned_empty
from penstock.engines.onednn import conv, crowd, elementwise, matmul, norm, pool
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Library, OneDnnError
from penstock.engines.onednn.primitives import BFLOAT16, CODES, FLOAT32, Eltwise, PostOps
from penstock.graph.ir import Operation, Tensor
from penstock.ops.kernels.window import Layout, layout, slides_of

Kernel = Callable[..., Any]

# Products of more multiplications than this (matrices), or more elements of the matrix (vectors), NumPy's OpenBLAS shares out among
# threads of its own, which then spin for 20 ms and take a core from everything else. So larger products never get there.
BLAS_ALONE, BLAS_ALONE_VECTOR = 262144, 9216

# Vectors times matrices up to this size are quicker with BLAS on one thread than with oneDNN on two: all of it waits for memory.
LARGE_VECTOR_PRODUCT = 262144

# Below these sizes NumPy is as quick, or the time matters less than that of loading the library and compiling a primitive.
MIN_CONV_FLOPS = 2e4
MIN_DEPTHWISE_FLOPS = 5e3
MIN_BATCH_FLOPS = 3e6
MIN_NARROW_FLOPS = 1e5
MIN_FUSED_FLOPS = 1e5
MIN_POOL_SIZE = 512
MIN_NORM_SIZE = 1024
MIN_SOFTMAX_SIZE = 2048


def library_for(dtype: np.dtype) -> Library | None:
    """The library, if it computes with that type on this CPU."""
    library = lib.get()
    return None if library is None or (dtype == BFLOAT16 and not library.has_bf16) else library


def is_constant(tensor: Tensor) -> bool:
    """True if the tensor is the same array in every step."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor.op.type == "Const"


def _remembering(op: Operation, fallback: Kernel, key_of: Kernel, prepare: Kernel) -> Kernel:
    """A kernel that asks `prepare(*inputs)` for a function of the inputs whenever `key_of(*inputs)` changes; None means `fallback`."""
    last: tuple[Any, Kernel, int] = (None, fallback, 0)

    def kernel(*inputs: Any) -> Any:
        nonlocal last
        key = key_of(*inputs)
        known, run, limit = last
        if known != key or limit != crowd.limit:
            limit = crowd.limit
            run = prepare(*inputs) or fallback
            last = (key, run, limit)
        try:
            return run(*inputs)
        except OneDnnError as error:
            last = (key, fallback, limit)
            if error.status != lib.FORKED:  # that one has been told already
                lib.log.warning("%s in '%s' (%s); NumPy computes it", error, op.name, op.type)
            return fallback(*inputs)

    return kernel


def _shape_1(x: Any) -> Any:
    return x.shape


def _shapes_2(x: Any, y: Any) -> Any:
    return x.shape, y.shape


def _layouts_2(x: Any, y: Any) -> Any:
    return x.shape, y.shape, x.strides, y.strides


# -- convolutions -------------------------------------------------------------------------------------------------------


class Window:
    """The attributes of a convolution: geometry for shapes."""

    def __init__(self, attrs: dict[str, Any], is_depthwise: bool) -> None:
        a = attrs
        self.lay: Layout = layout(a["data_format"])
        self.strides, self.padding = a["strides"], a["padding"]
        self.dilations = a.get("dilations") or (1,) * self.lay.rank
        self.explicit = a.get("explicit_paddings", ())
        self.dtype: np.dtype = a["T"].np
        self.is_depthwise = is_depthwise

    @property
    def is_supported(self) -> bool:
        rank = self.lay.rank
        return (
            self.dtype in CODES
            and len(self.strides) == len(self.dilations) == rank
            and all(v[0] == v[self.lay.channel] == 1 for v in (self.strides, self.dilations))
        )

    def spec(self, x: Sequence[int], filter: Sequence[int], dy: Sequence[int] | None = None) -> conv.Spec | None:
        """The convolution of these shapes; None if they do not fit, are empty, or too small."""
        lay = self.lay
        if len(x) != lay.rank or len(filter) != lay.rank or 0 in x or 0 in filter:
            return None
        depth = x[lay.channel]
        if self.is_depthwise:
            if filter[-2] != depth:
                return None
            groups, out_depth = depth, depth * filter[-1]
        else:
            groups, out_depth = depth // filter[-2], filter[-1]
            if not groups or depth % filter[-2] or out_depth % groups:
                return None
        try:
            slides = slides_of(lay, lay.of_spatial(x), filter[:-2], self.strides, self.padding, self.dilations, self.explicit)
        except errors.InvalidArgumentError:
            return None
        spec = conv.Spec(x[0], depth, out_depth, groups, tuple(slides), lay.channels_last, self.dtype, self.is_depthwise)
        least = MIN_DEPTHWISE_FLOPS if self.is_depthwise else MIN_CONV_FLOPS
        if any(s.out <= 0 for s in slides) or spec.flops < least:
            return None
        return spec if dy is None or tuple(dy) == spec.shape(spec.dst_dims) else None


def conv_forward(is_depthwise: bool) -> Kernel:
    """Conv2D, Conv3D, DepthwiseConv2dNative."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        window = Window(op.attrs, is_depthwise)
        if not window.is_supported:
            return None
        constant = is_constant(op.inputs[1])

        def prepare(x: np.ndarray, filter: np.ndarray) -> Kernel | None:
            spec = window.spec(x.shape, filter.shape)
            library = library_for(window.dtype) if spec else None
            plan = conv.forward(library, spec, is_constant=constant) if library and spec else None
            return plan and plan.run

        return _remembering(op, fallback, _shapes_2, prepare)

    return maker


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(np.asarray(value).ravel().tolist())


def conv_backward_input(is_depthwise: bool, from_sizes: bool = True) -> Kernel:
    """...BackpropInput(input_sizes or input, filter, out_backprop)."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        window = Window(op.attrs, is_depthwise)
        if not window.is_supported:
            return None
        lay = window.lay

        def key_of(x: Any, filter: np.ndarray, dy: np.ndarray) -> Any:
            return x.tobytes() if from_sizes else x.shape, filter.shape, dy.shape

        def prepare(x: Any, filter: np.ndarray, dy: np.ndarray) -> Kernel | None:
            sizes = _sizes(x) if from_sizes else x.shape
            if len(sizes) == lay.rank - 2 and filter.ndim == dy.ndim == lay.rank:
                sizes = lay.build(dy.shape[0], sizes, filter.shape[-2])
            spec = window.spec(sizes, filter.shape, dy.shape)
            library = library_for(window.dtype) if spec else None
            plan = conv.backward_input(library, spec) if library and spec else None
            if plan is None:
                return None
            run = plan.run
            return lambda _, filter, dy: run(filter, dy)

        return _remembering(op, fallback, key_of, prepare)

    return maker


def conv_backward_filter(is_depthwise: bool, from_sizes: bool = True, has_bias: bool = False) -> Kernel:
    """...BackpropFilter(input, filter_sizes or filter, out_backprop), which may give the gradient of a bias too."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        window = Window(op.attrs, is_depthwise)
        if not window.is_supported:
            return None

        def key_of(x: np.ndarray, filter: Any, dy: np.ndarray) -> Any:
            return x.shape, filter.tobytes() if from_sizes else filter.shape, dy.shape

        def prepare(x: np.ndarray, filter: Any, dy: np.ndarray) -> Kernel | None:
            spec = window.spec(x.shape, _sizes(filter) if from_sizes else filter.shape, dy.shape)
            library = library_for(window.dtype) if spec else None
            plan = conv.backward_filter(library, spec, has_bias) if library and spec else None
            if plan is None:
                return None
            run = plan.run
            return lambda x, _, dy: run(x, dy)

        return _remembering(op, fallback, key_of, prepare)

    return maker


# -- products -----------------------------------------------------------------------------------------------------------


def wakes_blas(spec: matmul.Spec) -> bool:
    rows, columns, inner = spec.sizes
    if inner == 1:  # the declared kernel computes outer products without BLAS
        return rows * columns > BLAS_ALONE
    if min(rows, columns) == 1:
        return max(rows, columns) * inner > BLAS_ALONE_VECTOR
    return rows * columns * inner > BLAS_ALONE


def is_vector_product(spec: matmul.Spec) -> bool:
    """A vector times a matrix that BLAS alone is best at."""
    rows, columns, inner = spec.sizes
    return inner > 1 and min(rows, columns) == 1 and max(rows, columns) * inner <= LARGE_VECTOR_PRODUCT


def product(a_flag: str, b_flag: str, types: Sequence[str], same_batches: bool = False) -> Kernel:
    """MatMul and the batched products; `types` are the attributes that must all be one type."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        dtype = op.attrs[types[0]].np
        if dtype not in CODES or any(op.attrs[name].np != dtype for name in types):
            return None
        across_a, across_b = op.attrs[a_flag], op.attrs[b_flag]
        order = None if op.type == "MatMul" else _order_of_reader(op)
        post_ops: PostOps = (Eltwise("linear", op.attrs["scale"], 0.0),) if op.type == "_ScaledBatchMatMul" else ()

        def prepare(a: np.ndarray, b: np.ndarray) -> Kernel | None:
            if min(a.ndim, b.ndim) < 2 or max(a.ndim, b.ndim) > 12 or not a.size or not b.size:
                return None
            if a.shape[-2 if across_a else -1] != b.shape[-1 if across_b else -2] or (same_batches and a.shape[:-2] != b.shape[:-2]):
                return None
            spec = matmul.Spec(a.shape, b.shape, across_a, across_b, dtype)
            try:
                shape, flops = spec.shape, spec.flops
            except ValueError:  # batches that do not broadcast
                return None
            if not (wakes_blas(spec) if dtype == FLOAT32 else flops >= MIN_NARROW_FLOPS) and (len(shape) == 2 or flops < MIN_BATCH_FLOPS):
                return None
            library = library_for(dtype)
            if library and dtype == FLOAT32 and len(shape) == 2 and is_vector_product(spec):
                run = blas.alone(fallback)
                if run is not None:
                    return run
            if library and len(shape) > 2:
                spec = spec._replace(a_strides=_strides(a), b_strides=_strides(b), order=order if order and len(order) == len(shape) else None)
            plan = matmul.matmul(library, spec, False, post_ops) if library else None
            return plan and plan.run

        return _remembering(op, fallback, _shapes_2 if op.type == "MatMul" else _layouts_2, prepare)

    return maker


def _strides(x: np.ndarray) -> tuple[int, ...] | None:
    """Where the elements of an array lie that is a view with its dimensions in another order, if a product can read it as it is:
    heads of an attention layer, which are columns of one matrix. Anything else is copied."""
    if x.flags.c_contiguous or not x.size or x.strides[-1] != x.itemsize:
        return None
    if any(s < x.itemsize or s % x.itemsize for s in x.strides):
        return None
    by_size = sorted((s, n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1)
    if any(s * n > further for (s, n), (further, _) in itertools.pairwise(by_size)):  # elements that lie over each other
        return None
    return tuple(s // x.itemsize for s in x.strides)


def _order_of_reader(op: Operation) -> tuple[int, ...] | None:
    """The permutation of the Transpose that alone reads a product: if the result lies in that order, to transpose it takes no copy."""
    tensor = op.outputs[0]
    while len(tensor._consumers or ()) == 1:
        reader = tensor._consumers[0]  # type: ignore[index]
        if reader.type == "Identity":
            tensor = reader.outputs[0]
            continue
        source = reader.inputs[1].op if reader.type == "Transpose" and reader.inputs[0] is tensor else None
        if source is None or source.type not in ("Const", "HostConst"):
            return None
        order = tuple(np.ravel(source.attrs["value"].array).tolist())
        return order if sorted(order) == list(range(len(order))) and len(order) > 2 and order[-1] == len(order) - 1 else None
    return None


def product_columns(op: Operation, fallback: Kernel) -> Kernel | None:
    """_MatMulColumns: the product with some rows of `b`, transposed."""
    if op.attrs["T"].np != FLOAT32:
        return None
    start, stop = op.attrs["start"], op.attrs["start"] + op.attrs["count"]

    def prepare(a: np.ndarray, b: np.ndarray) -> Kernel | None:
        if a.ndim != 2 or b.ndim != 2 or not a.size or a.shape[1] != b.shape[1] or len(b) < stop:
            return None
        spec = matmul.Spec(a.shape, (stop - start, b.shape[1]), False, True, FLOAT32)
        library = library_for(FLOAT32) if wakes_blas(spec) else None
        plan = matmul.matmul(library, spec) if library else None
        if plan is None:
            return None
        run = plan.run
        return lambda a, b: run(a, b[start:stop])

    return _remembering(op, fallback, _shapes_2, prepare)


FEW_TO_SUM = 64
"""Rows of each of several products that add to one result up to which it is quicker to lay them one below the other first."""


def sum_of_products(op: Operation, fallback: Kernel) -> Kernel | None:
    """_SumOfProducts: products that add to one result; _SumOfProductsAndRows: with the sum of all rows of the second operands."""
    count, with_rows = op.attrs["N"], op.type == "_SumOfProductsAndRows"
    if op.attrs["T"].np != FLOAT32:
        return None

    def key_of(*inputs: np.ndarray) -> Any:
        return [x.shape for x in inputs]

    def prepare(*inputs: np.ndarray) -> Kernel | None:
        a, b = inputs[:count], inputs[count:]
        if any(x.ndim != 2 or y.ndim != 2 or not x.size or not y.size for x, y in zip(a, b, strict=True)):
            return None
        rows, columns = a[0].shape[1], b[0].shape[1]
        if any(x.shape != (len(y), rows) or y.shape[1] != columns for x, y in zip(a, b, strict=True)):
            return None
        library = library_for(FLOAT32)
        if library is None:
            return None
        if max(map(len, a)) <= FEW_TO_SUM:
            return together(library, sum(map(len, a)), rows, columns)
        plans = [matmul.Gemm(library, matmul.Spec(x.shape, y.shape, True, False, FLOAT32)) for x, y in zip(a, b, strict=True)]

        def run(*inputs: np.ndarray) -> Any:
            total = plans[0].run(inputs[0], inputs[count])
            for i in range(1, count):
                plans[i].add_to(total, 1.0, inputs[i], inputs[count + i])
            if not with_rows:
                return total
            sums = np.add.reduce(inputs[count], 0)
            for y in inputs[count + 1 :]:
                sums += np.add.reduce(y, 0)
            return [total, sums]

        return run

    def together(library: Library, inner: int, rows: int, columns: int) -> Kernel:
        """One product of all operands, laid one below the other. A column of ones gives the sum of rows."""
        plan = matmul.Gemm(library, matmul.Spec((inner, rows + with_rows), (inner, columns), True, False, FLOAT32))

        def run(*inputs: np.ndarray) -> Any:
            a, b = aligned_empty((inner, rows + with_rows), FLOAT32), aligned_empty((inner, columns), FLOAT32)
            np.concatenate(inputs[:count], 0, a[:, :rows])
            np.concatenate(inputs[count:], 0, b)
            if not with_rows:
                return plan.run(a, b)
            a[:, rows] = 1
            total = plan.run(a, b)
            return [total[:rows], total[rows]]

        return run

    return _remembering(op, fallback, key_of, prepare)


# -- pooling ------------------------------------------------------------------------------------------------------------


class _Pooling:
    """The attributes of a pooling: geometry for shapes."""

    def __init__(self, op: Operation, alg: int) -> None:
        a = op.attrs
        self.alg = alg
        self.dtype: np.dtype = a["T"].np
        self.ksize, self.strides, self.padding = a["ksize"], a["strides"], a["padding"]
        self.explicit = a.get("explicit_paddings", ())
        self.format = a["data_format"]

    @property
    def is_supported(self) -> bool:
        if self.dtype not in CODES or self.format not in (b"NHWC", b"NCHW", b"NDHWC", b"NCDHW"):
            return False
        self.lay = layout(self.format)
        if not len(self.ksize) == len(self.strides) == self.lay.rank:
            return False
        return min(self.ksize) > 0 and all(v[0] == v[self.lay.channel] == 1 for v in (self.ksize, self.strides))

    def spec(self, x: Sequence[int]) -> pool.Spec | None:
        lay = self.lay
        if len(x) != lay.rank or int(np.prod(x)) < max(MIN_POOL_SIZE, 1):
            return None
        try:
            slides = slides_of(
                lay, lay.of_spatial(x), lay.of_spatial(self.ksize), self.strides, self.padding, explicit_paddings=self.explicit
            )
        except errors.InvalidArgumentError:
            return None
        if any(s.out <= 0 or s.before >= s.window or s.after >= s.window for s in slides):
            return None
        return pool.Spec(self.alg, x[0], x[lay.channel], tuple(slides), lay.channels_last, self.dtype)


def pool_forward(alg: int) -> Kernel:
    """MaxPool, AvgPool and their three-dimensional versions."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        pooling = _Pooling(op, alg)
        if not pooling.is_supported:
            return None

        def prepare(x: np.ndarray) -> Kernel | None:
            spec = pooling.spec(x.shape)
            library = library_for(pooling.dtype) if spec else None
            plan = pool.forward(library, spec) if library and spec else None
            return plan and plan.run

        return _remembering(op, fallback, _shape_1, prepare)

    return maker


def max_pool_backward(op: Operation, fallback: Kernel) -> Kernel | None:
    """MaxPoolGrad(orig_input, orig_output, grad)."""
    pooling = _Pooling(op, lib.POOLING_MAX)
    if not pooling.is_supported:
        return None

    def key_of(x: np.ndarray, y: np.ndarray, dy: np.ndarray) -> Any:
        return x.shape, y.shape, dy.shape

    def prepare(x: np.ndarray, y: np.ndarray, dy: np.ndarray) -> Kernel | None:
        spec = pooling.spec(x.shape)
        if spec is None or not y.shape == dy.shape == spec.shape(spec.dst_dims):
            return None
        library = library_for(pooling.dtype)
        plan = pool.backward(library, spec) if library else None
        return plan and plan.run

    return _remembering(op, fallback, key_of, prepare)


def avg_pool_backward(op: Operation, fallback: Kernel) -> Kernel | None:
    """AvgPoolGrad(orig_input_shape, grad) and AvgPool3DGrad."""
    pooling = _Pooling(op, lib.POOLING_AVG_EXCLUDE_PADDING)
    if not pooling.is_supported:
        return None

    def key_of(sizes: np.ndarray, dy: np.ndarray) -> Any:
        return sizes.tobytes(), dy.shape

    def prepare(sizes: np.ndarray, dy: np.ndarray) -> Kernel | None:
        spec = pooling.spec(_sizes(sizes))
        if spec is None or dy.shape != spec.shape(spec.dst_dims):
            return None
        library = library_for(pooling.dtype)
        plan = pool.backward(library, spec) if library else None
        if plan is None:
            return None
        run = plan.run
        return lambda _, dy: run(dy)

    return _remembering(op, fallback, key_of, prepare)


# -- normalisation ------------------------------------------------------------------------------------------------------

_LAST = {b"NHWC": True, b"NDHWC": True, b"NCHW": False, b"NCDHW": False}


def _batch_spec(op: Operation, x: np.ndarray, vectors: Sequence[np.ndarray]) -> norm.BatchSpec | None:
    last = _LAST[op.attrs["data_format"]]
    if x.ndim not in (4, 5) or x.size < max(MIN_NORM_SIZE, 1):
        return None
    dims = (x.shape[0], x.shape[-1], *x.shape[1:-1]) if last else x.shape
    if any(v.shape != (dims[1],) for v in vectors):
        return None
    return norm.BatchSpec(dims, last, x.dtype, op.attrs["epsilon"], op.attrs["is_training"])


def _is_batch_type(op: Operation) -> bool:
    statistics = op.attrs.get("U", op.attrs["T"]).np
    return op.attrs["T"].np in CODES and statistics == FLOAT32 and op.attrs["data_format"] in _LAST


def batch_norm(results: int) -> Kernel:
    """FusedBatchNorm, V2, V3 with that many outputs."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        if not _is_batch_type(op):
            return None
        factor, is_training = op.attrs["exponential_avg_factor"], op.attrs["is_training"]
        given = not is_training or factor != 1.0  # whether mean and variance take part
        more = [np.zeros((), np.float32)] * (results - 5)

        def key_of(x: np.ndarray, scale: np.ndarray, offset: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Any:
            return x.shape, scale.shape, offset.shape, mean.shape, variance.shape

        def prepare(x: np.ndarray, scale: np.ndarray, offset: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Kernel | None:
            spec = _batch_spec(op, x, (scale, offset, mean, variance) if given else (scale, offset))
            library = library_for(x.dtype) if spec else None
            plan = norm.batch_forward(library, spec) if library and spec else None
            if plan is None:
                return None
            run = plan.run
            if not is_training:
                return lambda x, scale, offset, mean, variance: [run(x, scale, offset, mean, variance), mean, variance, mean, variance, *more]
            count = x.size // scale.shape[0]
            unbiased, rate = np.float32(count / max(count - 1, 1)), np.float32(factor)

            def train(x: np.ndarray, scale: np.ndarray, offset: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> list[np.ndarray]:
                y, batch_mean, batch_variance = run(x, scale, offset)
                # The variance handed on for moving averages is the unbiased one.
                new_mean, new_variance = batch_mean, batch_variance * unbiased
                if given:
                    new_mean = (1 - rate) * mean + rate * new_mean
                    new_variance = (1 - rate) * variance + rate * new_variance
                return [y, new_mean, new_variance, batch_mean, batch_variance, *more]

            return train

        return _remembering(op, fallback, key_of, prepare)

    return maker


def batch_norm_backward(op: Operation, fallback: Kernel) -> Kernel | None:
    """FusedBatchNormGrad, V2 and V3 (whose last input is not used)."""
    if not _is_batch_type(op):
        return None
    nothing = np.zeros(0, np.float32)

    def key_of(dy: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, variance: np.ndarray, *_: Any) -> Any:
        return dy.shape, x.shape, scale.shape, mean.shape, variance.shape

    def prepare(dy: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, variance: np.ndarray, *_: Any) -> Kernel | None:
        spec = _batch_spec(op, x, (scale, mean, variance)) if dy.shape == x.shape else None
        library = library_for(x.dtype) if spec else None
        plan = norm.batch_backward(library, spec) if library and spec else None
        if plan is None:
            return None
        run = plan.run
        return lambda dy, x, scale, mean, variance, *_: [*run(dy, x, scale, mean, variance), nothing, nothing]

    return _remembering(op, fallback, key_of, prepare)


def softmax(alg: int) -> Kernel:
    """Softmax and LogSoftmax, over the last dimension."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        dtype = op.attrs["T"].np
        if dtype not in CODES:
            return None

        def prepare(x: np.ndarray) -> Kernel | None:
            if x.ndim < 1 or x.size < max(MIN_SOFTMAX_SIZE, 1):
                return None
            library = library_for(dtype)
            classes = x.shape[-1]
            plan = norm.softmax(library, norm.SoftmaxSpec(alg, x.size // classes, classes, dtype)) if library else None
            return plan and (plan.run if alg != lib.SOFTMAX_LOG else _checked(plan.run, fallback))

        return _remembering(op, fallback, _shape_1, prepare)

    return maker


def _checked(log_softmax: Kernel, fallback: Kernel) -> Kernel:
    """oneDNN's exponential makes infinity of NaN, so that all the logarithms of a row with a NaN are -infinity: the first of each row tells."""

    def run(x: np.ndarray) -> Any:
        y = log_softmax(x)
        return y if np.isfinite(y[..., 0]).all() else fallback(x)

    return run


def softmax_backward(op: Operation, fallback: Kernel) -> Kernel | None:
    """_SoftmaxGrad, over the last dimension."""
    if op.attrs["T"].np != FLOAT32:
        return None

    def prepare(dy: np.ndarray, y: np.ndarray) -> Kernel | None:
        if y.ndim < 1 or dy.shape != y.shape or y.size < max(MIN_SOFTMAX_SIZE, 1):
            return None
        library = library_for(FLOAT32)
        classes = y.shape[-1]
        plan = norm.softmax_backward(library, norm.SoftmaxSpec(lib.SOFTMAX_ACCURATE, y.size // classes, classes, FLOAT32)) if library else None
        return plan and plan.run

    return _remembering(op, fallback, _shapes_2, prepare)


def layer_norm(op: Operation, fallback: Kernel) -> Kernel | None:
    """_LayerNorm."""
    if op.attrs["T"].np != FLOAT32:
        return None

    def prepare(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> Kernel | None:
        if x.ndim < 1 or x.size < max(MIN_NORM_SIZE, 1) or not scale.shape == offset.shape == x.shape[-1:]:
            return None
        library, depth = library_for(FLOAT32), x.shape[-1]
        plan = norm.layer_forward(library, x.size // depth, depth, FLOAT32, op.attrs["epsilon"]) if library else None
        if plan is None:
            return None
        run, rows = plan.run, (*x.shape[:-1], 1)

        def forward(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> list[np.ndarray]:
            y, mean, variance = run(x, scale, offset)
            return [y, mean.reshape(rows), variance.reshape(rows)]

        return forward

    return _remembering(op, fallback, _shapes, prepare)


def layer_norm_backward(op: Operation, fallback: Kernel) -> Kernel | None:
    """_LayerNormGrad."""
    if op.attrs["T"].np != FLOAT32:
        return None

    def prepare(dy: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> Kernel | None:
        rows = (*x.shape[:-1], 1)
        if x.ndim < 1 or x.size < max(MIN_NORM_SIZE, 1) or dy.shape != x.shape or scale.shape != x.shape[-1:] or not mean.shape == variance.shape == rows:
            return None
        library, depth = library_for(FLOAT32), x.shape[-1]
        plan = norm.layer_backward(library, x.size // depth, depth, FLOAT32, op.attrs["epsilon"]) if library else None
        return plan and plan.run

    return _remembering(op, fallback, _shapes, prepare)


MAKERS: dict[str, Callable[[Operation, Kernel], Kernel | None]] = {
    "_LayerNorm": layer_norm,
    "_LayerNormGrad": layer_norm_backward,
    "_SoftmaxGrad": softmax_backward,
    "Conv2D": conv_forward(False),
    "Conv2DBackpropInput": conv_backward_input(False),
    "Conv2DBackpropFilter": conv_backward_filter(False),
    "_MklNativeConv2DBackpropFilterWithBias": conv_backward_filter(False, has_bias=True),
    "Conv2DBackpropInputV2": conv_backward_input(False, from_sizes=False),
    "Conv2DBackpropFilterV2": conv_backward_filter(False, from_sizes=False),
    "DepthwiseConv2dNative": conv_forward(True),
    "DepthwiseConv2dNativeBackpropInput": conv_backward_input(True),
    "DepthwiseConv2dNativeBackpropFilter": conv_backward_filter(True),
    "Conv3D": conv_forward(False),
    "Conv3DBackpropInputV2": conv_backward_input(False),
    "Conv3DBackpropFilterV2": conv_backward_filter(False),
    "MatMul": product("transpose_a", "transpose_b", ["T"]),
    "BatchMatMul": product("adj_x", "adj_y", ["T"], same_batches=True),
    "BatchMatMulV2": product("adj_x", "adj_y", ["T"]),
    "BatchMatMulV3": product("adj_x", "adj_y", ["Ta", "Tb", "Tout"]),
    "_ScaledBatchMatMul": product("adj_x", "adj_y", ["T"]),
    "_MatMulColumns": product_columns,
    "_SumOfProducts": sum_of_products,
    "_SumOfProductsAndRows": sum_of_products,
    "MaxPool": pool_forward(lib.POOLING_MAX),
    "MaxPool3D": pool_forward(lib.POOLING_MAX),
    "MaxPoolGrad": max_pool_backward,
    "AvgPool": pool_forward(lib.POOLING_AVG_EXCLUDE_PADDING),
    "AvgPool3D": pool_forward(lib.POOLING_AVG_EXCLUDE_PADDING),
    "AvgPoolGrad": avg_pool_backward,
    "AvgPool3DGrad": avg_pool_backward,
    "FusedBatchNorm": batch_norm(5),
    "FusedBatchNormV2": batch_norm(5),
    "FusedBatchNormV3": batch_norm(6),
    "FusedBatchNormGrad": batch_norm_backward,
    "FusedBatchNormGradV2": batch_norm_backward,
    "FusedBatchNormGradV3": batch_norm_backward,
    "Softmax": softmax(lib.SOFTMAX_ACCURATE),
    "LogSoftmax": softmax(lib.SOFTMAX_LOG),
}

# -- between convolutions -----------------------------------------------------------------------------------------------

IMAGE_RANK = 4


def whole_arrays(kind: type, shapes: Kernel) -> Kernel:
    """Relu, LeakyRelu, their gradients and sums behind convolutions and the like; behind products of matrices the gradients, which take NumPy two passes and a
    conversion, and sums that only such nodes read. Others are left to NumPy, whose tiles join such nodes with their neighbours. The kernel's `over(i)` is a kernel that writes the result into input `i`, for callers who know that nobody else needs it."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        if op.attrs["T"].np != FLOAT32 or not 1 < len(op.inputs) + (kind in elementwise.UNARY) <= elementwise.MOST_SUMMANDS:
            return None
        slope = float(op.attrs.get("alpha", 0.0))
        if "alpha" in op.attrs and not 0 < slope <= 1:
            return None
        dims = op.inputs[0].dims
        if dims is None or len(dims) < 2 or any(t.dims != dims for t in op.inputs):
            return None
        if len(dims) < IMAGE_RANK:
            if kind in elementwise.UNARY or not any(_source(t).type in _HEAVY for t in op.inputs) or not (kind in elementwise.GRADIENTS or _only_heavy_read(op)):
                return None
        elif not any(t.op.type in _HEAVY for t in op.inputs):
            return None
        known = [n for n in dims if n is not None]
        if len(known) == len(dims) and int(np.prod(known)) < elementwise.MIN_SIZE:
            return None

        def prepare(*inputs: np.ndarray, over: int | None = None) -> Kernel | None:
            library = library_for(FLOAT32) if inputs[0].size >= elementwise.MIN_SIZE else None
            return elementwise.plan_for(kind, library, inputs, over, slope) if library else None

        kernel = _remembering(op, fallback, shapes, prepare)
        kernel.over = lambda i: _remembering(op, fallback, shapes, functools.partial(prepare, over=i))  # type: ignore[attr-defined]
        return kernel

    return maker


def _source(tensor: Tensor) -> Operation:
    """The node that computes a value, behind names and forms of it."""
    while tensor.op.type in ("Identity", "Reshape"):
        tensor = tensor.op.inputs[0]
    return tensor.op


def _only_heavy_read(op: Operation) -> bool:
    """Whether nobody reads a node whom a tile could join with it."""
    readers = [r for t in op.outputs for r in t._consumers or ()]
    return bool(readers) and all(_only_heavy_read(r) if r.type in ("Identity", "Reshape") else r.type in _HEAVY for r in readers)


def _shapes(*inputs: Any) -> Any:
    return [x.shape for x in inputs]


BETWEEN: dict[str, Callable[[Operation, Kernel], Kernel | None]] = {
    "AddN": whole_arrays(elementwise.Sum, _shapes),
    "AddV2": whole_arrays(elementwise.Sum, _shapes_2),
    "Relu": whole_arrays(elementwise.Relu, _shape_1),
    "ReluGrad": whole_arrays(elementwise.ReluGrad, _shapes_2),
    "LeakyRelu": whole_arrays(elementwise.LeakyRelu, _shape_1),
    "LeakyReluGrad": whole_arrays(elementwise.LeakyReluGrad, _shapes_2),
}
_HEAVY = frozenset((*MAKERS, *BETWEEN, "_FusedConv2D", "_FusedDepthwiseConv2dNative", "_FusedMatMul", "BiasAddGrad"))
