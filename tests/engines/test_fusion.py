"""Fused nodes: which chains become one, which do not, and that values, types and errors stay what they were."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import penstock as tf
from penstock import errors
from penstock.engines.onednn import binding, fused, library
from penstock.graph.opdef import OPS

BF16 = np.dtype(ml_dtypes.bfloat16)
needs_library = pytest.mark.skipif(library.get() is None, reason="there is no oneDNN here: NumPy computes")


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    for name in dir(binding):
        if name.startswith(("MIN_", "BLAS_")):
            monkeypatch.setattr(binding, name, 0)
    monkeypatch.delenv("PENSTOCK_ENGINES", raising=False)
    with tf.Graph().as_default():
        yield


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def session(remapping=True):
    config = tf.ConfigProto()
    if not remapping:
        config.graph_options.rewrite_options.remapping = 2
    return tf.Session(config=config)


def types(fetches, feeds=(), sess=None):
    """The types of the nodes that a step executes, and nodes by type."""
    explanation = (sess or session()).explain(fetches, list(feeds))
    return [op.type for part in explanation.partitions.values() for op in part]


def nodes(fetches, feeds, op_type):
    explanation = session().explain(fetches, list(feeds))
    return [op for part in explanation.partitions.values() for op in part if op.type == op_type]


def same(fetches, feeds, rtol=1e-5, times=3):
    """Values with and without the pass agree, in cold and warm steps; gives them."""
    expected = session(remapping=False).run(fetches, feeds)
    for sess in (session(), session(remapping=True)):
        for _ in range(times):
            got = sess.run(fetches, feeds)
            np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(expected, np.float64), rtol=rtol, atol=rtol * np.abs(np.asarray(expected, np.float64)).max())
            assert got.dtype == expected.dtype
    return got


ACTIVATIONS = [None, tf.nn.relu, tf.nn.relu6, tf.nn.elu, lambda x: tf.nn.leaky_relu(x, 0.3), tf.tanh, tf.sigmoid]


def parameters(depth):
    """Scale, offset, mean and variance of a batch normalisation."""
    return [np.abs(normal(depth, seed=i)) + 0.5 for i in range(10, 14)]


def batch_norm(x, values, data_format="NHWC"):
    scale, offset, mean, variance = values
    return tf.nn.fused_batch_norm(x, scale, offset, mean=mean, variance=variance, epsilon=1e-3, is_training=False, data_format=data_format)[0]


def convolution(kind, constant, follow, addend, activation, data_format="NHWC", dtype=np.float32, batch=2):
    """(result, feeds) of a convolution and what follows it."""
    first = data_format == "NCHW"
    x = normal(*((batch, 8, 7, 6) if first else (batch, 7, 6, 8)), dtype=dtype)
    feeds = {}

    def operand(value):
        value = value.astype(dtype)
        if constant:
            return tf.constant(value)
        fed = tf.placeholder(value.dtype, value.shape)
        feeds[fed] = value
        return fed

    image = tf.placeholder(dtype, x.shape)
    feeds[image] = x
    if kind == "depthwise":
        y = tf.nn.depthwise_conv2d(image, operand(normal(3, 3, 8, 2, seed=1)), [1, 1, 1, 1], "SAME", data_format=data_format)
    else:
        y = tf.nn.conv2d(image, operand(normal(3, 3, 8, 16, seed=1) / 8), strides=[1, 1, 1, 1], padding="SAME", data_format=data_format)
    if "bias" in follow:
        y = tf.nn.bias_add(y, operand(normal(16, seed=2)), data_format=data_format)
    if "norm" in follow:
        y = batch_norm(y, [operand(v) for v in parameters(16)] if dtype == np.float32 else parameters(16), data_format)
    if addend:
        other = tf.placeholder(dtype, y.shape)
        feeds[other] = normal(*y.shape.as_list(), seed=3, dtype=dtype)
        y = y + other
    return (y if activation is None else activation(y)), feeds


@needs_library
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("kind", ["plain", "depthwise"])
def test_what_follows_a_convolution_goes_with_it(kind, constant, data_format):
    for follow, addend, activation in itertools.product([(), ("bias",), ("norm",), ("bias", "norm")], [False, True], [None, tf.nn.relu, tf.nn.relu6]):
        if not follow:
            activation = None  # stays apart: see the test of NaN
        if not follow and not addend:
            continue
        with tf.Graph().as_default():
            y, feeds = convolution(kind, constant, follow, addend, activation, data_format)
            same(y, feeds, rtol=2e-5)
            alone = addend and kind == "depthwise"  # a depthwise convolution takes no sum along
            found = types(y, feeds)
            name = "_FusedConv2D" if kind == "plain" else "_FusedDepthwiseConv2dNative"
            if not alone or follow:
                assert name in found and not {"Conv2D", "DepthwiseConv2dNative", "BiasAdd", "FusedBatchNormV3"} & set(found)
            if not alone:
                assert not {"AddV2", "Relu"} & set(found)
                assert ("Relu6" in found) == (addend and activation is tf.nn.relu6)  # behind a sum it would lose NaN


@needs_library
def test_both_sides_of_a_sum():
    """One convolution takes the sum along; the other one still takes its own normalisation."""
    x = tf.placeholder(tf.float32, [1, 6, 6, 8])
    short, y = (batch_norm(tf.nn.conv2d(x, normal(n, n, 8, 16, seed=n), strides=1, padding="SAME"), parameters(16)) for n in (1, 3))
    y = tf.nn.relu(y + short)
    feeds = {x: normal(1, 6, 6, 8)}
    same(y, feeds, rtol=2e-5)
    assert sorted(op.attrs["fused_ops"] for op in nodes(y, feeds, "_FusedConv2D")) == [[b"FusedBatchNorm"], [b"FusedBatchNorm", b"Add", b"Relu"]]
    assert not {"Conv2D", "FusedBatchNormV3", "AddV2", "Relu"} & set(types(y, feeds))


@needs_library
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(activation):
    y, feeds = convolution("plain", True, ("bias",), True, activation)
    same(y, feeds, rtol=1e-4)
    b, bias = normal(16, 32, seed=1) / 4, normal(32, seed=2)
    for constant in (False, True):
        left, right = tf.placeholder(tf.float32, [None, 16]), tf.constant(b) if constant else tf.placeholder(tf.float32, b.shape)
        y = tf.matmul(left, right) + bias
        y = y if activation is None else activation(y)
        for rows in (1, 9, 40):
            feeds = {left: normal(rows, 16, seed=rows)} | ({} if constant else {right: b})
            same(y, feeds, rtol=1e-4)
        assert "_FusedMatMul" in types(y, feeds)


@needs_library
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("activation", [*ACTIVATIONS[1:], lambda x: tf.nn.leaky_relu(x, 0.0)])
def test_nan_and_infinities_pass_where_they_pass_in_tensorflow(activation, constant):
    """Without a bias or a batch normalisation TensorFlow joins nothing, so that NaN stays NaN also behind ReLU. What does not touch NaN may be joined."""
    for kind in ("plain", "depthwise", "matmul"):
        with tf.Graph().as_default():
            if kind == "matmul":
                x = tf.placeholder(tf.float32, [32, 16])
                feeds = {x: normal(32, 16)}
                y = activation(tf.matmul(x, tf.constant(normal(16, 24)) if constant else tf.Variable(normal(16, 24)).initialized_value()))
            else:
                y, feeds = convolution(kind, constant, (), False, activation)
            image = next(t for t in feeds if t.shape.rank != 4 or t.shape[0] == 2)
            rows = feeds[image].reshape(-1, feeds[image].shape[-1])
            rows[2, 1], rows[9, 2], rows[20, 3] = np.nan, np.inf, -np.inf
            assert np.isnan(_same_kinds(y, feeds)).any()


def _same_kinds(fetch, feeds):
    """With and without the pass NaN and infinities stand in the same places."""
    expected = session(remapping=False).run(fetch, feeds)
    for _ in range(3):
        got = session().run(fetch, feeds)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        np.testing.assert_array_equal(got[np.isinf(expected)], expected[np.isinf(expected)])
        assert np.isfinite(got[np.isfinite(expected)]).all()
    return got


@needs_library
@pytest.mark.parametrize("kind", ["plain", "depthwise"])
def test_bfloat16_is_rounded_once(kind):
    for constant, follow in itertools.product((False, True), [("bias",), ("norm",)]):
        if kind == "depthwise" and follow == ("norm",):
            continue
        with tf.Graph().as_default():
            y, feeds = convolution(kind, constant, follow, False, tf.nn.relu, dtype=BF16)
            assert any(t.startswith("_Fused") for t in types(y, feeds))
            same(y, feeds, rtol=2e-2)


@needs_library
def test_constant_weights_are_laid_out_once_and_shapes_take_turns(monkeypatch):
    made = []
    old = fused._Conv._weights
    monkeypatch.setattr(fused._Conv, "_weights", lambda self, plan, filter: made.append(old(self, plan, filter)) or made[-1])
    x = tf.placeholder(tf.float32, [None, 7, 6, 8])
    y = tf.nn.relu(batch_norm(tf.nn.conv2d(x, normal(3, 3, 8, 16), strides=[1, 1, 1, 1], padding="SAME"), parameters(16)))
    sess = session()
    for batch in (1, 2, 1, 2, 3, 1, 2):
        sess.run(y, {x: normal(batch, 7, 6, 8)})
    assert len(made) == 3 and len({b.address for b in made}) < 3


def test_folding_is_exact_for_exact_numbers():
    w, bias = np.arange(18, dtype=np.float32).reshape(3, 3, 1, 2), np.array([1, 2], np.float32)
    vectors = np.array([2, 4], np.float32), np.array([1, 0], np.float32), np.array([3, 1], np.float32), np.array([3.75, 0.0], np.float32)
    folded, shift = fused.fold_batch_norm(w, bias, *vectors, 0.25)
    np.testing.assert_array_equal(folded, w * [1, 8])
    np.testing.assert_array_equal(shift, [1 + (1 - 3) * 1, 0 + (2 - 1) * 8])


@needs_library
def test_a_padding_goes_into_the_convolution():
    x, w = normal(2, 9, 9, 4), normal(3, 3, 4, 8, seed=1)
    image = tf.placeholder(tf.float32, x.shape)
    padded = tf.pad(image, [[0, 0], [1, 2], [0, 3], [0, 0]])
    plain = tf.nn.conv2d(padded, w, strides=[1, 2, 2, 1], padding="VALID")
    for y, name in ((plain, "Conv2D"), (tf.nn.elu(plain), "_FusedConv2D")):
        same(y, {image: x})
        found = types(y, [image])
        assert name in found and "Pad" not in found
    assert "Pad" in types([plain, padded], [image])
    deep = tf.nn.conv2d(tf.pad(image, [[0, 0], [1, 1], [1, 1], [0, 4]]), normal(3, 3, 8, 8), strides=[1, 1, 1, 1], padding="VALID")
    assert "Pad" in types(deep, [image])


def chain():
    x = tf.placeholder(tf.float32, [2, 7, 6, 8], name="x")
    c = tf.nn.conv2d(x, normal(3, 3, 8, 16), strides=[1, 1, 1, 1], padding="SAME", name="conv")
    b = tf.nn.bias_add(c, normal(16), name="bias")
    return x, c, b, tf.nn.relu(b, name="relu")


def test_values_that_others_need_stay():
    x, c, b, y = chain()
    data = {x: normal(2, 7, 6, 8)}
    assert types(y, [x]).count("_FusedConv2D") == 1
    assert set(types([y, b], [x])) >= {"_FusedConv2D", "Relu"}
    assert set(types([y, c], [x])) >= {"Conv2D", "BiasAdd", "Relu"}
    assert set(types([y, b.op], [x])) >= {"Relu"}  # asked for as a target
    for fetches in ([y, b], [y, c, b]):
        for value, expected in zip(session().run(fetches, data), session(False).run(fetches, data)):
            np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    with tf.control_dependencies([b]):
        late = tf.identity(x)
    assert "Relu" in types([y, late], [x])
    twice = y + tf.nn.elu(b)
    assert {"Relu", "Elu"} <= set(types(twice, [x]))


def test_the_pass_can_be_switched_off(monkeypatch):
    x, _, _, y = chain()
    assert "_FusedConv2D" not in types(y, [x], session(remapping=False))
    explanation = session().explain(y, [x])
    stage = next(s for s in explanation.stages if s.name == "optimise/remapping")
    assert stage.notes == ("fused 1 chains: relu = conv + bias + relu",)
    monkeypatch.setenv("PENSTOCK_ENGINES", "numpy")
    assert "_FusedConv2D" not in types(y, [x])


def test_training_mode_is_no_affine_function():
    x = tf.placeholder(tf.float32, [2, 7, 6, 8])
    y = tf.nn.conv2d(x, normal(3, 3, 8, 4), strides=[1, 1, 1, 1], padding="SAME")
    y = tf.nn.relu(tf.nn.fused_batch_norm(y, np.ones(4, np.float32), np.zeros(4, np.float32), is_training=True)[0])
    assert {"Conv2D", "FusedBatchNormV3"} <= set(types(y, [x]))


@pytest.mark.parametrize("warm", [False, True])
def test_an_error_names_the_node_at_fault(warm):
    x = tf.placeholder(tf.float32, None)
    x.set_shape([None, None, None, None])
    bias = tf.placeholder(tf.float32, [None])
    c = tf.nn.conv2d(x, normal(3, 3, 8, 16), strides=[1, 1, 1, 1], padding="SAME", name="the_conv")
    y = tf.nn.relu(tf.nn.bias_add(c, bias, name="the_bias"), name="the_relu")
    sess = session()
    assert "_FusedConv2D" in types(y, [x, bias], sess)
    for _ in range(4 * warm):
        sess.run(y, {x: normal(1, 5, 5, 8), bias: normal(16)})
    with pytest.raises(errors.InvalidArgumentError, match="input depth must be evenly divisible") as caught:
        sess.run(y, {x: normal(1, 5, 5, 7), bias: normal(16)})
    assert caught.value.op is c.op and "{{node the_conv}}" in str(caught.value) and "executed as part of: the_relu (_FusedConv2D)" in str(caught.value)
    with pytest.raises(errors.InvalidArgumentError, match="as many biases") as caught:
        sess.run(y, {x: normal(1, 5, 5, 8), bias: normal(9)})
    assert caught.value.op.name == "the_bias"


def test_variables_train_through_fused_nodes():
    x = tf.placeholder(tf.float32, [None, 6, 6, 3])
    w = tf.get_variable("w", initializer=normal(3, 3, 3, 8) / 3)
    b = tf.get_variable("b", initializer=normal(8, seed=1))
    d = tf.get_variable("d", initializer=normal(6 * 6 * 8, 4, seed=2) / 9)
    y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME"), b))
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.reshape(y, [-1, 6 * 6 * 8]), d)))
    train = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
    losses = []
    for remapping in (True, False):
        sess = session(remapping)
        sess.run(tf.global_variables_initializer())
        losses.append([sess.run([loss, train], {x: normal(5, 6, 6, 3, seed=i)})[0] for i in range(8)])
    np.testing.assert_allclose(*losses, rtol=2e-5)


@needs_library
def test_a_graph_that_tensorflow_optimised_runs():
    """Nodes that come without `_fused_nodes`, and steps in an order of their own."""
    x, w, bias = normal(1, 5, 5, 4), normal(3, 3, 4, 8), normal(8)
    y, feeds = chain_from_graph_def([b"BiasAdd", b"Relu"], x, w, bias)
    expected = session().run(tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME"), bias)))
    np.testing.assert_allclose(session().run(y, feeds), expected, rtol=1e-5, atol=1e-5)
    y, feeds = chain_from_graph_def([b"Relu", b"BiasAdd"], x, w, bias)
    expected = session().run(tf.nn.bias_add(tf.nn.relu(tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME")), bias))
    np.testing.assert_allclose(session().run(y, feeds), expected, rtol=1e-5, atol=1e-5)
    y, feeds = chain_from_graph_def([b"Softplus"], x, w, bias)
    with pytest.raises(errors.UnimplementedError, match=r"Fusion is not implemented: \[Softplus\]"):
        session().run(y, feeds)


def chain_from_graph_def(fused_ops, x, w, bias):
    graph = tf.GraphDef()
    for name, value in (("x", x), ("w", w), ("bias", bias)):
        node = graph.node.add(name=name, op="Const")
        node.attr["dtype"].type = 1
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    node = graph.node.add(name="fused", op="_FusedConv2D", input=["x", "w", "bias"])
    node.attr["T"].type = 1
    node.attr["TArgs"].list.type.append(1)
    node.attr["num_args"].i = 1
    node.attr["strides"].list.i.extend([1, 1, 1, 1])
    node.attr["padding"].s = b"SAME"
    node.attr["fused_ops"].list.s.extend(fused_ops)
    (y,) = tf.import_graph_def(graph, return_elements=["fused:0"])
    return y, {}


def test_the_ops_have_tensorflows_signatures():
    assert [a.name for a in OPS["_FusedConv2D"].inputs] == ["input", "filter", "args", "host_args"]
    assert set(OPS["_FusedMatMul"].attrs) == {"transpose_a", "transpose_b", "T", "num_args", "fused_ops", "epsilon", "leakyrelu_alpha"}


@needs_library
def test_a_plan_that_fails_gives_way_to_numpy(monkeypatch, caplog):
    x, _, _, y = chain()
    sess = session()
    data = {x: normal(2, 7, 6, 8)}
    expected = sess.run(y, data)
    monkeypatch.setattr(library.get(), "execute", lambda *args: 5)
    with caplog.at_level("WARNING", "penstock.engines"):
        np.testing.assert_allclose(sess.run(y, data), expected, rtol=1e-5, atol=1e-5)
    assert "runtime error in 'relu' (_FusedConv2D); NumPy computes it" in caplog.text


def bias_gradients(follow=lambda db: db, data_format="NHWC"):
    """(gradients of filter and bias, feeds) of a convolution with a bias."""
    x = normal(*((2, 3, 7, 6) if data_format == "NCHW" else (2, 7, 6, 3)))
    image = tf.placeholder(tf.float32, x.shape)
    w, b = tf.placeholder(tf.float32, [3, 3, 3, 8]), tf.placeholder(tf.float32, [8])
    y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(image, w, strides=[1, 1, 1, 1], padding="SAME", data_format=data_format), b, data_format=data_format))
    dw, db = tf.gradients(tf.reduce_sum(tf.square(y)), [w, b])
    return [dw, follow(db)], {image: x, w: normal(3, 3, 3, 8, seed=1), b: normal(8, seed=2)}


@needs_library
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_the_gradient_of_a_bias_comes_with_that_of_the_filter(data_format):
    fetches, feeds = bias_gradients(data_format=data_format)
    found = types(fetches, feeds)
    assert "_MklNativeConv2DBackpropFilterWithBias" in found and "BiasAddGrad" not in found
    plain = session(remapping=False)
    assert "BiasAddGrad" in types(fetches, feeds, plain)
    sess = session()
    for _ in range(3):
        for got, expected in zip(sess.run(fetches, feeds), plain.run(fetches, feeds)):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_a_filter_gradient_that_waits_for_the_bias_gradient_stays_apart():
    """Joined, the node would have to wait for itself."""
    x = tf.placeholder(tf.float32, [2, 7, 6, 3])
    dy = tf.placeholder(tf.float32, [2, 7, 6, 8])
    db = tf.raw_ops.BiasAddGrad(out_backprop=dy)
    used = tf.reduce_sum(db)
    with tf.control_dependencies([used]):
        dw = tf.nn.conv2d_backprop_filter(x, [3, 3, 3, 8], dy, [1, 1, 1, 1], "SAME")
    assert "BiasAddGrad" in types([dw, used], [x, dy])
    got = session().run([dw, used], {x: normal(2, 7, 6, 3), dy: normal(2, 7, 6, 8, seed=1)})
    np.testing.assert_allclose(got[1], normal(2, 7, 6, 8, seed=1).sum(), rtol=1e-4)
    # Who only waits for the sums waits for what they are made of instead.
    with tf.control_dependencies([db]):
        dw = tf.nn.conv2d_backprop_filter(x, [3, 3, 3, 8], dy, [1, 1, 1, 1], "SAME")
    assert "_MklNativeConv2DBackpropFilterWithBias" in types([dw, db], [x, dy])
    first, second = session().run([dw, db], {x: normal(2, 7, 6, 3), dy: normal(2, 7, 6, 8, seed=1)})
    np.testing.assert_allclose(first, got[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(second, normal(2, 7, 6, 8, seed=1).sum((0, 1, 2)), rtol=1e-4, atol=1e-4)


def test_a_gradient_that_nobody_reads_is_not_computed():
    """The gradient of a fed image: TF's control edges make everybody wait for it."""
    x = tf.placeholder(tf.float32, [2, 7, 6, 3])
    w = tf.get_variable("w", initializer=normal(3, 3, 3, 8))
    y = tf.nn.relu(tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME"))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(y))
    sess = session()
    sess.run(tf.global_variables_initializer())
    for _ in range(5):
        sess.run(train, {x: normal(2, 7, 6, 3)})
    assert "Conv2DBackpropFilter" in sess.explain(train, [x]).code and "Conv2DBackpropInput" not in sess.explain(train, [x]).code
