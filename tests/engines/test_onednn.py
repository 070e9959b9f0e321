"""oneDNN's kernels against NumPy's: every sample of every op they cover, grids of attributes, layouts, sizes; threads, forks, fallbacks."""

import gc
import itertools
import logging
import os
import threading

import ml_dtypes
import numpy as np
import pytest

import penstock as tf
from penstock import dtypes
from penstock.engines import onednn
from penstock.engines.onednn import binding, conv, fused, kernels, library, matmul, primitives, product_kernels
from penstock.graph.bind import bind
from penstock.graph.opdef import OPS
from penstock.ops.cases import cases
from penstock.runtime import kernels as _installs  # noqa: F401  (the engine is offered when the runtime is loaded)

needs_library = pytest.mark.skipif(library.get() is None, reason="there is no oneDNN here: NumPy computes")
BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Nothing is too small, so that small arrays test what large ones will use."""
    for name in dir(binding):
        if name.startswith(("MIN_", "BLAS_")):
            monkeypatch.setattr(binding, name, 0)
    monkeypatch.delenv("PENSTOCK_ENGINES", raising=False)


@pytest.fixture
def runs(monkeypatch):
    """Counts what the library was asked to compute."""
    loaded, count = library.get(), [0]

    def counted(function):
        def call(*args):
            count[0] += 1
            return function(*args)

        return call

    for name in ("execute", "sgemm", "together"):
        monkeypatch.setattr(loaded, name, counted(getattr(loaded, name)))
    return count


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def node(name, inputs, **attrs):
    """An operation whose inputs are placeholders of the arrays' types (or tensors)."""
    opdef = OPS[name]
    args = []
    for arg, value in zip(opdef.inputs, inputs, strict=True):
        dtype = dtypes.as_dtype(attrs[arg.type_attr]) if arg.type_attr in attrs else dtypes.from_np(np.asarray(value).dtype)
        args.append(tf.placeholder(arg.dtype or dtype, np.shape(value)))
    result = getattr(tf.raw_ops, name)(*args, **attrs)
    while not isinstance(result, tf.Tensor):
        result = result[0]
    return result.op


def kernels_of(op):
    """The node's kernel with the engine, and NumPy's."""
    fast = bind(op).fn
    os.environ["PENSTOCK_ENGINES"] = "numpy"
    try:
        return fast, bind(op).fn
    finally:
        del os.environ["PENSTOCK_ENGINES"]


def agree(got, expected, what=""):
    got, expected = ([v] if isinstance(v, (np.ndarray, np.generic)) else list(v) for v in (got, expected))
    assert len(got) == len(expected), what
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype, what
        a, b = a.astype(np.float64), b.astype(np.float64)
        narrow = expected[0].dtype == BF16
        scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0)) or 1.0
        np.testing.assert_allclose(a, b, rtol=1e-2 if narrow else 1e-5, atol=scale * (1e-2 if narrow else 2e-6), err_msg=str(what))


def compare(name, inputs, runs=None, **attrs):
    """Runs both kernels on `inputs`; with `runs`, oneDNN must have computed."""
    fast, slow = kernels_of(node(name, inputs, **attrs))
    before = runs[0] if runs else 0
    got = fast(*inputs)
    if runs:
        assert runs[0] > before, f"{name} {attrs} was left to NumPy"
    agree(got, slow(*inputs), (name, attrs, [np.shape(v) for v in inputs]))
    return got


# -- what is covered ----------------------------------------------------------------------------------------------------


def test_the_list_of_covered_ops_is_the_kernels_own():
    assert sorted(kernels.MAKERS) == list(onednn.COVERED)
    assert all(name in OPS for name in onednn.COVERED)


def test_what_stands_between_is_the_kernels_own():
    assert sorted(kernels.BETWEEN) == list(onednn.BETWEEN)


@needs_library
@pytest.mark.parametrize("name", onednn.BETWEEN)
def test_between_convolutions_results_are_numpys_to_the_bit(name, runs):
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, 3e38, -3e38], np.float32)
    x = np.random.RandomState(0).randn(3, 61, 31, 16).astype(np.float32)
    y = np.random.RandomState(1).randn(*x.shape).astype(np.float32)
    for at in (slice(0, 144), slice(-144, None)):
        x.reshape(-1)[at], y.reshape(-1)[at] = np.repeat(special, 12), np.tile(special, 12)
    inputs = {"Relu": [x], "LeakyRelu": [x], "AddN": [[x, y, x + 1]]}.get(name, [x, y])
    flat = inputs[0] if name == "AddN" else inputs
    with tf.Graph().as_default() as graph, np.errstate(all="ignore"):
        pools = [tf.nn.avg_pool2d(tf.placeholder(tf.float32, x.shape), 1, 1, "SAME") for _ in flat]
        op = {"Relu": tf.nn.relu, "LeakyRelu": tf.nn.leaky_relu, "LeakyReluGrad": lambda *a: tf.raw_ops.LeakyReluGrad(gradients=a[0], features=a[1]), "AddN": lambda *a: tf.add_n(a), "AddV2": tf.add}.get(name, lambda *a: graph.create_op(name, a, [tf.float32]).outputs[0])(*pools).op
        assert op.type == name
        fast, slow = kernels_of(op)
        before = runs[0]
        got = fast(*flat)
        assert runs[0] > before
        expected = slow(*flat)
        np.testing.assert_array_equal(got, expected)
        # Another shape, and a view; then one that is too small.
        np.testing.assert_array_equal(fast(*[v[:2, ::-1] for v in flat]), slow(*[v[:2, ::-1] for v in flat]))
        before = runs[0]
        np.testing.assert_array_equal(fast(*[v[:1, :2] for v in flat]), slow(*[v[:1, :2] for v in flat]))
        assert runs[0] == before


@needs_library
@pytest.mark.parametrize("name", onednn.COVERED)
def test_every_sample_agrees_with_numpy(name, runs):
    computed = set()
    for case in cases(OPS[name]):
        inputs = [case.inputs[arg.name] for arg in case.opdef.inputs]
        inputs = [np.asarray(value) for value in inputs]
        types = {v.dtype for v in inputs}
        before = runs[0]
        compare(name, inputs, **case.attrs)
        if runs[0] > before:
            computed |= types
            assert types & {np.dtype(np.float32), BF16}
    if OPS[name].samples:
        assert np.dtype(np.float32) in computed


# -- convolutions -------------------------------------------------------------------------------------------------------


def spatial(fmt, rows, columns, other=1):
    return [other, rows, columns, other] if fmt == "NHWC" else [other, other, rows, columns]


def shape_of(fmt, n, h, w, c):
    return (n, h, w, c) if fmt == "NHWC" else (n, c, h, w)


def conv_cases():
    for fmt, groups, window, stride, dilation, padding in itertools.product(
        ("NHWC", "NCHW"), (1, 2), ((1, 1), (3, 3), (2, 3)), (1, 2), (1, 2), ("SAME", "VALID", "EXPLICIT")
    ):
        attrs = dict(strides=spatial(fmt, stride, stride), dilations=spatial(fmt, dilation, dilation), padding=padding, data_format=fmt)
        if padding == "EXPLICIT":
            pads = {"NHWC": [0, 0, 1, 2, 0, 3, 0, 0], "NCHW": [0, 0, 0, 0, 1, 2, 0, 3]}
            attrs["explicit_paddings"] = pads[fmt]
        yield fmt, groups, window, attrs


def out_shape(name, x, w, attrs):
    op = node(name, [x, w], **attrs)
    return tuple(op.outputs[0].shape.as_list())


@pytest.fixture(params=["laid out", "as it is"])
def way(request, monkeypatch):
    """What happens to the filter depends on sizes; here it does not."""
    most = 0 if request.param == "laid out" else 1 << 30
    for name in ("FEW_POSITIONS", "SOME_POSITIONS", "MANY_POSITIONS", "LARGE_FILTER", "FEW_CHANNELS"):
        monkeypatch.setattr(conv, name, most)
    return request.param


@needs_library
def test_convolutions_and_their_gradients(runs, way):
    for fmt, groups, window, attrs in conv_cases():
        x, w = normal(*shape_of(fmt, 2, 9, 8, 8)), normal(*window, 8 // groups, 16, seed=1)
        dy = normal(*out_shape("Conv2D", x, w, attrs), seed=2)
        compare("Conv2D", [x, w], runs, **attrs)
        compare("Conv2DBackpropInput", [np.array(x.shape, np.int32), w, dy], runs, **attrs)
        compare("Conv2DBackpropFilter", [x, np.array(w.shape, np.int32), dy], runs, **attrs)


@needs_library
def test_depthwise_convolutions_and_their_gradients(runs):
    for fmt, multiplier, window, attrs in conv_cases():
        x, w = normal(*shape_of(fmt, 2, 9, 8, 16)), normal(*window, 16, multiplier, seed=1)
        dy = normal(*out_shape("DepthwiseConv2dNative", x, w, attrs), seed=2)
        compare("DepthwiseConv2dNative", [x, w], runs, **attrs)
        compare("DepthwiseConv2dNativeBackpropInput", [np.array(x.shape, np.int32), w, dy], runs, **attrs)
        compare("DepthwiseConv2dNativeBackpropFilter", [x, np.array(w.shape, np.int32), dy], runs, **attrs)


@needs_library
@pytest.mark.skipif(library.get() is not None and not library.get().has_bf16, reason="this CPU has no bfloat16")
def test_convolutions_of_bfloat16_add_up_in_float32(runs):
    x, w = normal(2, 9, 8, 16, dtype=BF16), normal(3, 3, 16, 32, dtype=BF16, seed=1)
    compare("Conv2D", [x, w], runs, strides=[1, 1, 1, 1], padding="SAME")
    # 256 ones and a sum that bfloat16 could not count in steps of one
    y = compare("Conv2D", [np.ones((1, 4, 4, 257), BF16), np.ones((1, 1, 257, 16), BF16)], runs, strides=[1, 1, 1, 1], padding="SAME")
    assert (y == BF16.type(257)).all()


@needs_library
def test_some_of_the_input_may_lie_beyond_the_last_window(runs, way):
    x, w = normal(1, 8, 8, 4), normal(2, 2, 4, 8, seed=1)
    attrs = dict(strides=[1, 3, 3, 1], padding="VALID")
    dy = normal(*out_shape("Conv2D", x, w, attrs), seed=2)
    compare("Conv2D", [x, w], runs, **attrs)
    dx = compare("Conv2DBackpropInput", [np.array(x.shape, np.int32), w, dy], runs, **attrs)
    assert not dx[:, 2].any() and not dx[:, 5].any()
    compare("Conv2DBackpropFilter", [x, np.array(w.shape, np.int32), dy], runs, **attrs)


@needs_library
def test_arrays_of_any_kind(runs, way):
    """Slices, transposed arrays, read-only ones, ones that begin anywhere."""
    attrs = dict(strides=[1, 1, 1, 1], padding="SAME")
    x, w = normal(2, 6, 6, 8), normal(3, 3, 8, 16, seed=1)
    odd = np.frombuffer(b"x" + x.tobytes(), np.float32, offset=1).reshape(x.shape)
    for a in (normal(4, 6, 6, 8)[::2], np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3), odd):
        compare("Conv2D", [a, w], runs, **attrs)
    for a in (x, w):
        a.flags.writeable = False
    compare("Conv2D", [x, w], runs, **attrs)
    compare("Conv2D", [x, np.asfortranarray(w)], runs, **attrs)
    compare("MatMul", [normal(20, 8)[::2], normal(8, 12)[:, ::3]], runs)
    compare("MaxPool", [normal(2, 6, 6, 8)[:, ::2]], runs, ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="VALID")


@needs_library
def test_nothing_to_compute_is_left_to_numpy(runs):
    y = compare("Conv2D", [np.zeros((0, 6, 6, 8), np.float32), normal(3, 3, 8, 16)], strides=[1, 1, 1, 1], padding="SAME")
    assert y.shape == (0, 6, 6, 16)
    compare("MatMul", [np.zeros((0, 3), np.float32), normal(3, 2)])
    compare("MatMul", [np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)])
    compare("Softmax", [np.zeros((0, 3), np.float32)])
    assert runs[0] == 0


@needs_library
def test_other_types_are_left_to_numpy(runs):
    for dtype in (np.float16, np.float64):
        compare("Conv2D", [normal(1, 6, 6, 8, dtype=dtype), normal(3, 3, 8, 16, dtype=dtype)], strides=[1, 1, 1, 1], padding="SAME")
    assert runs[0] == 0


@needs_library
def test_shapes_that_do_not_fit_are_numpys_errors():
    fast, _ = kernels_of(node("Conv2D", [normal(1, 6, 6, 8), normal(3, 3, 8, 16)], strides=[1, 1, 1, 1], padding="VALID"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="input depth must be evenly divisible by filter depth: 7 vs 8"):
        fast(normal(1, 6, 6, 7), normal(3, 3, 8, 16))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Computed output size would be negative"):
        fast(normal(1, 1, 1, 8), normal(3, 3, 8, 16))
    assert fast(normal(1, 6, 6, 8), normal(3, 3, 8, 16)).shape == (1, 4, 4, 16)


# -- products -----------------------------------------------------------------------------------------------------------


@needs_library
@pytest.mark.parametrize("few_rows", [0, 16])
def test_products(runs, monkeypatch, few_rows):
    monkeypatch.setattr(matmul, "FEW_ROWS", few_rows)
    for across_a, across_b in itertools.product((False, True), repeat=2):
        a, b = normal(*((7, 5) if across_a else (5, 7))), normal(*((9, 7) if across_b else (7, 9)), seed=1)
        compare("MatMul", [a, b], runs, transpose_a=across_a, transpose_b=across_b)
        if library.get().has_bf16:
            compare("MatMul", [a.astype(BF16), b.astype(BF16)], runs, transpose_a=across_a, transpose_b=across_b)
        batch_a, batch_b = np.stack([a, 2 * a, -a]), np.stack([b, b + 1, b * b])
        compare("BatchMatMulV2", [batch_a, batch_b], runs, adj_x=across_a, adj_y=across_b)
        compare("BatchMatMulV2", [batch_a[:, None], batch_b[:2]], runs, adj_x=across_a, adj_y=across_b)
        compare("BatchMatMulV2", [a, batch_b], runs, adj_x=across_a, adj_y=across_b)
        compare("BatchMatMul", [batch_a, batch_b], runs, adj_x=across_a, adj_y=across_b)


@needs_library
def test_products_that_do_not_fit_are_numpys_errors():
    fast, _ = kernels_of(node("BatchMatMulV2", [normal(2, 3, 4), normal(2, 4, 5)]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="compatible batch dimensions"):
        fast(normal(2, 3, 4), normal(3, 4, 5))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Matrix size-incompatible"):
        fast(normal(2, 3, 4), normal(2, 3, 5))


# -- pooling, normalisation, softmax ------------------------------------------------------------------------------------


def pool_cases():
    for fmt, (window, stride), padding in itertools.product(("NHWC", "NCHW"), ((2, 2), (3, 2), (3, 1), (2, 3)), ("SAME", "VALID")):
        yield fmt, dict(ksize=spatial(fmt, window, window), strides=spatial(fmt, stride, stride), padding=padding, data_format=fmt)


@needs_library
def test_pooling_and_its_gradients(runs):
    for fmt, attrs in pool_cases():
        for c in (3, 16):
            x = normal(*shape_of(fmt, 2, 9, 8, c))
            y = compare("MaxPool", [x], runs, **attrs)
            dy = normal(*y.shape, seed=1)
            compare("MaxPoolGrad", [x, y.copy(), dy], runs, **attrs)
            compare("AvgPool", [x], runs, **attrs)
            compare("AvgPoolGrad", [np.array(x.shape, np.int32), dy], runs, **attrs)


@needs_library
def test_the_first_of_equal_maxima_gets_the_gradient(runs):
    for fmt, attrs in pool_cases():
        x = np.random.default_rng(0).integers(0, 2, shape_of(fmt, 2, 9, 8, 16)).astype(np.float32)
        y = compare("MaxPool", [x], **attrs)
        compare("MaxPoolGrad", [x, y.copy(), normal(*y.shape)], runs, **attrs)


@needs_library
def test_the_forward_pass_keeps_where_the_maxima_were_once_a_gradient_was_asked_for(runs):
    primitives.clear_cache()
    attrs = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    x = normal(2, 9, 8, 16)
    forward, _ = kernels_of(node("MaxPool", [x], **attrs))
    y = forward(x)
    backward, slow = kernels_of(node("MaxPoolGrad", [x, y, y], **attrs))
    before = runs[0]
    backward(x, y, y)
    assert runs[0] - before == 2  # the forward pass again, and the gradient
    y, other = forward(x), forward(-x)
    before = runs[0]
    agree(backward(x, y, y), slow(x, y, y))
    assert runs[0] - before == 1
    agree(backward(-x, other, y), slow(-x, other, y))
    agree(backward(x, y.copy(), y), slow(x, y, y))  # another array: its maxima are not known


@needs_library
def test_batch_normalisation(runs):
    for fmt, is_training, factor in itertools.product(("NHWC", "NCHW"), (True, False), (1.0, 0.25)):
        x = normal(*shape_of(fmt, 3, 5, 4, 16)) * 3 + 1
        scale, offset, mean, variance = (np.abs(normal(16, seed=i)) + 0.1 for i in range(4))
        attrs = dict(data_format=fmt, is_training=is_training, epsilon=1e-3)
        _, _, _, m, v, _ = compare(
            "FusedBatchNormV3", [x, scale, offset, mean, variance], runs, exponential_avg_factor=factor, **attrs
        )
        dy = normal(*x.shape, seed=5)
        compare("FusedBatchNormGradV3", [dy, x, scale, m, v, np.float32(0)], runs, **attrs)


@needs_library
def test_softmax(runs):
    for shape in ((5, 7), (3, 4, 33), (2, 1000), (6,)):
        for dtype in (np.float32, BF16) if library.get().has_bf16 else (np.float32,):
            x = (normal(*shape) * 10).astype(dtype)
            compare("Softmax", [x], runs)
            compare("LogSoftmax", [x], runs)
    rows = np.array([[-np.inf, 0, 0], [1e30, -1e30, 1e30]], np.float32)
    compare("Softmax", [rows], runs)


# -- keeping ------------------------------------------------------------------------------------------------------------


def constant_conv(w):
    x = tf.placeholder(tf.float32, [2, 6, 6, 8])
    y = tf.nn.conv2d(x, tf.identity(tf.constant(w)), [1, 1, 1, 1], "SAME")
    return kernels_of(y.op)


@needs_library
def test_constant_weights_are_laid_out_once(runs):
    x, w = normal(2, 6, 6, 8), normal(3, 3, 8, 16, seed=1)
    fast, slow = constant_conv(w)
    agree(fast(x, w), slow(x, w))
    before = runs[0]
    agree(fast(-x, w), slow(-x, w))
    assert runs[0] - before == 1
    other = w * 2  # the same plan for another node's constant
    agree(fast(x, other), slow(x, other))
    agree(fast(x, w), slow(x, w))


@needs_library
def test_laid_out_constants_die_with_their_array():
    known = primitives.ConstantWeights()
    w = normal(3, 4)
    known.get(w, lambda a: primitives.buffer(a.nbytes))
    assert len(known._known) == 1
    del w
    gc.collect()
    assert not known._known


@needs_library
def test_weights_of_variables_are_read_in_every_step():
    x = normal(2, 6, 6, 8)
    w = tf.Variable(normal(3, 3, 8, 16, seed=1))
    feed = tf.placeholder(tf.float32, x.shape)
    y = tf.nn.conv2d(feed, w, [1, 1, 1, 1], "SAME")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        first = sess.run(y, {feed: x})
        sess.run(w.assign_add(w))
        np.testing.assert_allclose(sess.run(y, {feed: x}), 2 * first, rtol=1e-5, atol=1e-4)


@needs_library
def test_the_cache_of_primitives_is_bounded(monkeypatch):
    monkeypatch.setattr(primitives, "CAPACITY", 4)
    for n in range(1, 10):
        compare("Softmax", [normal(n, 5)])
    assert len(primitives._cache) <= 4
    primitives.clear_cache()
    compare("Softmax", [normal(3, 5)])


@needs_library
def test_threads_may_share_a_primitive():
    x, w = normal(8, 14, 14, 16), normal(3, 3, 16, 32, seed=1)
    fast, slow = kernels_of(node("Conv2D", [x, w], strides=[1, 1, 1, 1], padding="SAME"))
    inputs = [x * (i + 1) for i in range(4)]
    expected = [slow(a, w) for a in inputs]
    wrong = []

    def work(i):
        for _ in range(10):
            try:
                agree(fast(inputs[i], w), expected[i])
            except AssertionError as error:
                wrong.append(error)

    pool = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    assert not wrong


@needs_library
def test_the_number_of_threads_is_honoured(monkeypatch, runs):
    monkeypatch.setattr(library, "_threads", 1)
    x, w = normal(8, 28, 28, 32), normal(3, 3, 32, 64, seed=1)
    compare("Conv2D", [x, w], runs, strides=[1, 1, 1, 1], padding="SAME")
    assert {p.main.threads for p in primitives._cache.values() if getattr(p, "shape", None) == (8, 28, 28, 64)} == {1}
    onednn.set_threads(2)
    compare("Conv2D", [x, w], runs, strides=[1, 1, 1, 1], padding="SAME")
    assert {p.main.threads for p in primitives._cache.values() if getattr(p, "shape", None) == (8, 28, 28, 64)} == {1, 2}


@needs_library
def test_a_failing_call_is_told_and_numpy_takes_over(monkeypatch, caplog):
    x, w = normal(1, 6, 6, 8), normal(3, 3, 8, 16, seed=1)
    fast, slow = kernels_of(node("Conv2D", [x, w], strides=[1, 1, 1, 1], padding="SAME"))
    fast(x, w)
    monkeypatch.setattr(library.get(), "execute", lambda *args: 1)
    with caplog.at_level(logging.WARNING, "penstock.engines"):
        agree(fast(x, w), slow(x, w))
        agree(fast(x, w), slow(x, w))
    assert len(caplog.records) == 1 and "out of memory" in caplog.text and "NumPy computes it" in caplog.text


# -- layers -------------------------------------------------------------------------------------------------------------


def test_layer_normalisation(monkeypatch):
    x, scale, shift = normal(3, 5, 24) * 2 + 1, normal(24, seed=1), normal(24, seed=2)
    got = fused.layer_norm(x, scale, shift, 1e-5)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(library, "_library", None)
    np.testing.assert_allclose(fused.layer_norm(x, scale, shift, 1e-5), got, rtol=1e-4, atol=1e-5)


@needs_library
def test_the_gradient_of_layer_normalisation():
    from penstock.engines.onednn import norm

    x, dy, scale, shift = normal(6, 24), normal(6, 24, seed=1), normal(24, seed=2), normal(24, seed=3)
    _, mean, variance = norm.layer_forward(library.get(), 6, 24, epsilon=1e-5).run(x, scale, shift)
    dx, d_scale, d_shift = norm.layer_backward(library.get(), 6, 24, epsilon=1e-5).run(dy, x, scale, mean, variance)
    inverse = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    unit = (x - x.mean(-1, keepdims=True)) * inverse
    g = dy * scale
    expected = inverse * (g - g.mean(-1, keepdims=True) - unit * (g * unit).mean(-1, keepdims=True))
    np.testing.assert_allclose(dx, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(d_scale, (dy * unit).sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(d_shift, dy.sum(0), rtol=1e-4, atol=1e-5)


@needs_library
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads by /proc")
def test_only_one_thread_of_ours_keeps_openmp_threads():
    loaded = library.get()
    if loaded._let_go is None:
        pytest.skip("a libgomp that cannot let threads go")
    plan = matmul.matmul(loaded, matmul.Spec((512, 512), (512, 512), False, False, np.dtype(np.float32)))
    if plan.main.threads == 1:
        pytest.skip("one core")
    a = normal(512, 512)
    expected = plan.run(a, a)
    threads = []

    def count():
        return len(os.listdir("/proc/self/task"))

    def other():
        before = count()
        result = plan.run(a, a)
        threads.append((before, count(), np.array_equal(result, expected)))

    def home():
        loaded._home, loaded._visits = 0, 0
        plan.run(a, a)
        worker = threading.Thread(target=other)
        worker.start()
        worker.join()

    try:
        runner = threading.Thread(target=home)
        runner.start()
        runner.join()
        (before, after, is_right), = threads
        assert is_right and after <= before
        # Whoever calls often enough with nobody else in between keeps threads from then on.
        loaded._visits = library.MOVES_AFTER
        plan.run(a, a)
        assert loaded._home == threading.get_ident()
    finally:
        loaded._home, loaded._visits = 0, 0


@pytest.mark.parametrize("other", [lambda b: b[:, ::-1], lambda b: b.transpose(0, 2, 1), lambda b: np.broadcast_to(b[:, :1], b.shape)], ids=["reversed", "transposed", "broadcast"])
def test_one_operand_is_read_as_it_lies_and_the_other_cannot_be(monkeypatch, other):
    """A view that a product reads as it is, times one that has to be copied."""
    monkeypatch.setattr(binding, "MIN_BATCH_FLOPS", 0)
    rng = np.random.RandomState(0)
    a, b = rng.randn(5, 4, 5).astype(np.float32).transpose(1, 0, 2), other(rng.randn(4, 5, 5).astype(np.float32))
    assert product_kernels._strides(a) is not None and product_kernels._strides(b) is None and not b.flags.c_contiguous
    with tf.Graph().as_default():
        x, y = tf.placeholder(tf.float32, [4, 5, 5]), tf.placeholder(tf.float32, [4, 5, 5])
        for left, right in ((a, b), (b, a)):
            kernel = bind(tf.matmul(x, y, transpose_b=True).op).fn
            np.testing.assert_allclose(kernel(left, right), left @ right.transpose(0, 2, 1), rtol=1e-4, atol=1e-5)
