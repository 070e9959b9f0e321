"""tf.nn through a Session: values against NumPy, node names and errors as TensorFlow has them."""

import numpy as np
import pytest

import penstock as tf

RNG = np.random.default_rng(0)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(fetches, feeds=None):
    with tf.Session() as sess:
        return sess.run(fetches, feeds)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


# -- activations ------------------------------------------------------------------------------------------------------


def test_activations():
    x = np.array([-2.0, -0.5, 0.0, 1.0, 8.0], np.float32)
    expected = {
        "relu": [0, 0, 0, 1, 8],
        "relu6": [0, 0, 0, 1, 6],
        "elu": [np.expm1(-2), np.expm1(-0.5), 0, 1, 8],
        "selu": [1.7580993 * np.expm1(-2), 1.7580993 * np.expm1(-0.5), 0, 1.050701, 8.405608],
        "softplus": np.log1p(np.exp(x)),
        "softsign": x / (1 + np.abs(x)),
        "leaky_relu": [-0.4, -0.1, 0, 1, 8],
        "swish": x / (1 + np.exp(-x)),
        "crelu": [0, 0, 0, 1, 8, 2, 0.5, 0, 0, 0],
    }
    values = run({name: getattr(tf.nn, name)(x) for name in expected})
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, 1e-5, 1e-6, err_msg=name)


def test_bias_add():
    x, b = random(2, 3, 4, 5), random(5)
    last, first = run([tf.nn.bias_add(x, b), tf.nn.bias_add(x, b[:3], data_format="NCHW")])
    np.testing.assert_array_equal(last, x + b)
    np.testing.assert_array_equal(first, x + b[:3, None, None])
    with pytest.raises(ValueError, match="`data_format` must be of the form"):
        tf.nn.bias_add(x, b, data_format="HW")


@pytest.mark.parametrize("axis", [-1, 0, 1, -2])
def test_softmax_axis(axis):
    x = random(2, 3, 4)
    unknown = tf.placeholder(tf.float32)
    values = run([tf.nn.softmax(x, axis), tf.nn.log_softmax(x, axis=axis), tf.nn.softmax(unknown, axis=axis)], {unknown: x})
    np.testing.assert_allclose(values[0], softmax(x, axis), 1e-5)
    np.testing.assert_allclose(values[1], np.log(softmax(x, axis)), 1e-5, 1e-6)
    np.testing.assert_allclose(values[2], softmax(x, axis), 1e-5)


def test_softmax_arguments():
    x = tf.placeholder(tf.float32, [2, 3])
    assert tf.nn.softmax(x).name == "Softmax:0"
    assert tf.nn.softmax(x, dim=0).shape.as_list() == [2, 3]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"`dim` must be in the range \[-2, 2\)"):
        tf.nn.softmax(x, axis=5)
    with pytest.raises(ValueError, match="both"):
        tf.nn.softmax(x, axis=1, dim=1)


def test_dropout_draws_tensorflows_numbers():
    x = tf.constant(np.arange(1, 13, dtype=np.float32).reshape(3, 4))
    y = tf.nn.dropout(x, keep_prob=0.5, seed=7)
    with tf.Session() as sess:
        # Recorded from TensorFlow 2.21.
        assert sess.run(y).tolist() == [[0, 4, 0, 0], [10, 12, 0, 16], [18, 20, 22, 0]]
        assert sess.run(y).tolist() == [[2, 4, 0, 0], [10, 0, 0, 0], [18, 0, 22, 24]]


def test_dropout_forms():
    x = np.ones((4, 100), np.float32)
    rate = tf.placeholder(tf.float32, [])
    rows = tf.nn.dropout(tf.placeholder_with_default(x, [None, 100]), rate=0.5, noise_shape=[None, 1], seed=1)
    values = run([tf.nn.dropout(x, rate=rate, seed=2), rows, tf.nn.dropout(x, rate=0.0)], {rate: 0.75})
    assert set(np.unique(values[0])) == {0, 4}
    assert all(len(set(row)) == 1 for row in values[1])
    np.testing.assert_array_equal(values[2], x)
    for kwargs, text in (
        (dict(rate=1.5), r"in the range \[0, 1\). Received: rate=1.5"),
        (dict(keep_prob=0.5, rate=0.5), "Cannot specify both 'keep_prob' and 'rate'"),
        (dict(), "`rate` must be provided"),
    ):
        with pytest.raises(ValueError, match=text):
            tf.nn.dropout(x, **kwargs)
    with pytest.raises(ValueError, match="must be a floating point tensor"):
        tf.nn.dropout(np.ones(3, np.int32), rate=0.5)


def test_small_functions():
    x, w, b = random(2, 3), random(3, 4), random(4)
    values = run([
        tf.nn.xw_plus_b(x, w, b), tf.nn.relu_layer(x, w, b), tf.nn.zero_fraction([[0, 1], [0, 3.0]]), tf.nn.l2_loss(x),
        tf.nn.l2_normalize(x, 1), tf.nn.in_top_k(x, [0, 2], 2), tf.nn.top_k(x, 2),
    ])  # fmt: skip
    np.testing.assert_allclose(values[0], x @ w + b, 1e-5, 1e-5)
    np.testing.assert_allclose(values[1], np.maximum(x @ w + b, 0), 1e-5, 1e-5)
    assert values[2] == 0.5
    np.testing.assert_allclose(values[3], (x**2).sum() / 2, 1e-6)
    np.testing.assert_allclose(values[4], x / np.sqrt((x**2).sum(1, keepdims=True)), 1e-5)
    order = np.argsort(-x, 1)
    assert values[5].tolist() == [0 in order[0, :2], 2 in order[1, :2]]
    np.testing.assert_array_equal(values[6].indices, order[:, :2])


# -- losses -----------------------------------------------------------------------------------------------------------


def test_softmax_cross_entropies():
    x, labels = random(2, 5, 3), softmax(random(2, 5, 3))
    classes = RNG.integers(0, 3, (2, 5))
    expected = -(labels * np.log(softmax(x))).sum(-1)
    open_x = tf.placeholder(tf.float32)
    losses = [
        tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=x),
        tf.nn.softmax_cross_entropy_with_logits_v2(labels, x),
        tf.nn.softmax_cross_entropy_with_logits_v2(np.moveaxis(labels, -1, 1), np.moveaxis(x, -1, 1), axis=1),
        tf.nn.softmax_cross_entropy_with_logits_v2(labels, open_x),
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=x),
    ]
    assert losses[0].name == "softmax_cross_entropy_with_logits_sg/Reshape_2:0"
    values = run(losses, {open_x: x})
    for value in values[:4]:
        np.testing.assert_allclose(value, expected, 1e-5, 1e-6)
    np.testing.assert_allclose(values[4], -np.log(np.take_along_axis(softmax(x), classes[..., None], -1))[..., 0], 1e-5, 1e-6)


def test_labels_get_gradients_in_v2_only():
    x, labels = tf.constant(random(2, 3)), tf.constant(softmax(random(2, 3)))
    assert tf.gradients(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=x), [labels]) == [None]
    (grad,) = tf.gradients(tf.nn.softmax_cross_entropy_with_logits_v2(labels, x), [labels])
    value, logits = run([grad, x])
    np.testing.assert_allclose(value, -np.log(softmax(logits)), 1e-5)


def test_sparse_label_checks():
    logits = tf.placeholder(tf.float32, [2, 3])
    with pytest.raises(ValueError, match=r"`labels.shape.rank` must equal `logits.shape.rank - 1`"):
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.placeholder(tf.int32, [2, 3]), logits=logits)
    with pytest.raises(ValueError, match=r"must equal `logits\.shape` except for the last dimension"):
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.placeholder(tf.int32, [4]), logits=logits)
    with pytest.raises(ValueError, match="Both `labels` and `logits` must be provided"):
        tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 7], logits=logits)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"label value of 7 which is outside the valid range of \[0, 3\)"):
        run(loss, {logits: random(2, 3)})


def test_sigmoid_losses():
    x, z = random(2, 3) * 10, np.abs(random(2, 3))
    plain = np.maximum(x, 0) - x * z + np.log1p(np.exp(-np.abs(x)))
    weight = 1 + (2.5 - 1) * z
    weighted = (1 - z) * x + weight * (np.log1p(np.exp(-np.abs(x))) + np.maximum(-x, 0))
    values = run([
        tf.nn.sigmoid_cross_entropy_with_logits(labels=z, logits=x),
        tf.nn.weighted_cross_entropy_with_logits(labels=z, logits=x, pos_weight=2.5),
        tf.nn.log_poisson_loss(z, x / 10),
    ])  # fmt: skip
    np.testing.assert_allclose(values[0], plain, 1e-5, 1e-6)
    np.testing.assert_allclose(values[1], weighted, 1e-5, 1e-5)
    np.testing.assert_allclose(values[2], np.exp(x / 10) - x / 10 * z, 1e-5, 1e-5)
    with pytest.raises(ValueError, match=r"must have the same shape, received \(\(2, 4\) vs \(2, 3\)\)"):
        tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.zeros([2, 3]), logits=tf.zeros([2, 4]))


# -- convolutions -----------------------------------------------------------------------------------------------------


def test_conv2d_arguments():
    x, w = random(2, 8, 8, 4), random(3, 3, 4, 5)
    forms = [
        tf.nn.conv2d(x, w, [1, 2, 2, 1], "SAME"), tf.nn.conv2d(x, filters=w, strides=2, padding="SAME"), tf.nn.conv2d(x, w, [2, 2], "SAME"),
        tf.nn.conv2d(x, w, 2, [[0, 0], [0, 1], [0, 1], [0, 0]], name="padded"),
    ]  # fmt: skip
    assert forms[3].name == "padded:0"
    values = run(forms)
    for value in values[1:]:
        np.testing.assert_allclose(value, values[0], 1e-5, 1e-5)
    for args, kwargs, text in (
        ((x, w, [1, 2, 3], "SAME"), {}, "strides should be of length 1, 2 or 4"),
        ((x, w, 1, "SAME"), dict(filters=w), "Cannot specify both 'filter' and 'filters'"),
        ((x, w, 1, [[0, 0], [1, 1]]), {}, "it must be of size 4"),
        ((x, w, 1, "EXPLICIT"), {}, "'EXPLICIT' is not a valid value"),
        ((x, random(9, 9, 4, 5), 1, "VALID"), {}, "Negative dimension size caused by subtracting 9 from 8"),
    ):
        with pytest.raises(ValueError, match=text):
            tf.nn.conv2d(*args, **kwargs)


def test_layouts_agree():
    x, w = random(2, 8, 8, 4), random(3, 3, 4, 6)
    nchw = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    pairs = [
        (tf.nn.conv2d(x, w, 2, "SAME"), tf.nn.conv2d(nchw, w, 2, "SAME", data_format="NCHW")),
        (tf.nn.max_pool(x, 2, 2, "SAME"), tf.nn.max_pool(nchw, 2, 2, "SAME", data_format="NCHW")),
        (tf.nn.avg_pool(x, 3, 2, "SAME"), tf.nn.avg_pool(nchw, 3, 2, "SAME", data_format="NCHW")),
        (tf.nn.depthwise_conv2d(x, w[..., :2], [1, 1, 1, 1], "SAME", rate=[2, 2]),
         tf.nn.depthwise_conv2d(nchw, w[..., :2], [1, 1, 1, 1], "SAME", rate=[2, 2], data_format="NCHW")),
        (tf.nn.convolution(x, w, "SAME", dilation_rate=[2, 1]), tf.nn.convolution(nchw, w, "SAME", dilation_rate=[2, 1], data_format="NCHW")),
    ]  # fmt: skip
    for last, first in run(pairs):
        np.testing.assert_allclose(first.transpose(0, 2, 3, 1), last, 1e-4, 1e-4)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_dilated_convolutions_agree(padding):
    x, w = random(2, 9, 8, 4), random(3, 3, 4, 5)
    dynamic = tf.placeholder(tf.float32, [None, None, None, 4])
    values = run([
        tf.nn.conv2d(x, w, 1, padding, dilations=2), tf.nn.atrous_conv2d(x, w, 2, padding), tf.nn.convolution(x, w, padding, dilation_rate=[2, 2]),
        tf.nn.convolution(dynamic, w, padding, dilation_rate=[2, 2]),
    ], {dynamic: x})  # fmt: skip
    for value in values[1:]:
        np.testing.assert_allclose(value, values[0], 1e-4, 1e-4)
    with pytest.raises(ValueError, match="not supported in conjunction"):
        tf.nn.convolution(x, w, padding, strides=[2, 2], dilation_rate=[2, 2])


def test_one_dimension():
    x, w = random(2, 9, 3), random(3, 3, 4)
    flat = tf.nn.conv2d(x[:, None], w[None], [1, 1, 2, 1], "SAME")[:, 0]
    values = run([flat, tf.nn.conv1d(x, w, 2, "SAME"), tf.nn.convolution(x, w, "SAME", strides=[2]),
                  tf.nn.conv1d(x.transpose(0, 2, 1), w, 2, "SAME", data_format="NCW") ])  # fmt: skip
    np.testing.assert_allclose(values[1], values[0], 1e-5, 1e-5)
    np.testing.assert_allclose(values[2], values[0], 1e-5, 1e-5)
    np.testing.assert_allclose(values[3].transpose(0, 2, 1), values[0], 1e-4, 1e-4)


def test_transposed_convolutions_are_gradients():
    w = random(3, 3, 5, 4)
    y = tf.constant(random(2, 4, 4, 4))
    x = tf.constant(random(2, 8, 8, 5))
    (expected,) = tf.gradients(tf.nn.conv2d(x, w, 2, "SAME"), [x], [y])
    (dilated,) = tf.gradients(tf.nn.atrous_conv2d(x, w, 2, "VALID"), [x], [y])
    values = run([
        expected, tf.nn.conv2d_transpose(y, w, [2, 8, 8, 5], [1, 2, 2, 1]), tf.nn.conv_transpose(y, w, [2, 8, 8, 5], 2),
        dilated, tf.nn.atrous_conv2d_transpose(y, w, [2, 8, 8, 5], 2, "VALID"),
    ])  # fmt: skip
    np.testing.assert_allclose(values[1], values[0], 1e-5, 1e-5)
    np.testing.assert_allclose(values[2], values[0], 1e-5, 1e-5)
    np.testing.assert_allclose(values[4], values[3], 1e-4, 1e-4)


def test_separable_convolution():
    x, d, p = random(2, 6, 6, 3), random(3, 3, 3, 2), random(1, 1, 6, 4)
    whole = np.einsum("hwcm,cmo->hwco", d, p[0, 0].reshape(3, 2, 4))
    values = run([tf.nn.separable_conv2d(x, d, p, [1, 1, 1, 1], "SAME"), tf.nn.conv2d(x, whole, 1, "SAME")])
    np.testing.assert_allclose(values[0], values[1], 1e-4, 1e-4)


# -- pooling and normalisation ----------------------------------------------------------------------------------------


def test_pooling_forms():
    x = random(2, 8, 8, 3)
    blocks = x.reshape(2, 4, 2, 4, 2, 3)
    values = run([
        tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID"), tf.nn.max_pool2d(x, 2, 2, "SAME"), tf.nn.pool(x, [2, 2], "MAX", "VALID", strides=[2, 2]),
        tf.nn.avg_pool(x, 2, 2, "VALID"), tf.nn.avg_pool_v2(x, 2, 2, "VALID"), tf.nn.max_pool1d(x[0], 2, 2, "VALID"), tf.nn.avg_pool3d(x[None], [1, 2, 2], [1, 2, 2], "VALID"),
    ])  # fmt: skip
    for value in values[:3]:
        np.testing.assert_array_equal(value, blocks.max((2, 4)))
    np.testing.assert_allclose(values[3], blocks.mean((2, 4)), 1e-5, 1e-6)
    np.testing.assert_allclose(values[4], blocks.mean((2, 4)), 1e-5, 1e-6)
    np.testing.assert_array_equal(values[5], x[0].reshape(8, 4, 2, 3).max(2))
    np.testing.assert_allclose(values[6][0], blocks.mean((2, 4)), 1e-5, 1e-6)
    with pytest.raises(ValueError, match="pooling with 'SAME' padding is not implemented for `dilation_rate` > 1"):
        tf.nn.pool(x, [2, 2], "MAX", "SAME", dilation_rate=[2, 2])


def test_dilated_pooling():
    x = random(1, 6, 6, 1)
    value = run(tf.nn.pool(x, [2, 2], "MAX", "VALID", dilation_rate=[2, 2]))
    expected = np.max([x[:, a : a + 4, b : b + 4] for a in (0, 2) for b in (0, 2)], 0)
    np.testing.assert_array_equal(value, expected)


def test_moments():
    x, w = random(4, 3, 2), np.abs(random(4, 1, 1))
    (mean, variance), (wm, wv), stats = run([
        tf.nn.moments(x, [0, 1]), tf.nn.weighted_moments(x, [0, 1], w, keep_dims=True),
        tf.nn.normalize_moments(*tf.nn.sufficient_statistics(x, [0, 1], shift=0.5)),
    ])  # fmt: skip
    np.testing.assert_allclose(mean, x.mean((0, 1)), 1e-5, 1e-6)
    np.testing.assert_allclose(variance, x.var((0, 1)), 1e-5)
    np.testing.assert_allclose(wm[0, 0], np.average(x, (0, 1), np.broadcast_to(w, x.shape)), 1e-4, 1e-6)
    np.testing.assert_allclose(wv[0, 0], np.average((x - wm) ** 2, (0, 1), np.broadcast_to(w, x.shape)), 1e-4)
    np.testing.assert_allclose(stats[0], x.mean((0, 1)), 1e-5, 1e-6)
    np.testing.assert_allclose(stats[1], x.var((0, 1)), 1e-4)


def test_batch_normalisation():
    x, mean, variance, offset, scale = random(3, 4, 4, 2), random(2), np.abs(random(2)) + 0.1, random(2), random(2)
    expected = (x - mean) / np.sqrt(variance + 1e-3) * scale + offset
    plain, bare, fused, trained = run([
        tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3), tf.nn.batch_normalization(x, mean, variance, None, None, 1e-3),
        tf.nn.fused_batch_norm(x, scale, offset, mean, variance, is_training=False), tf.nn.fused_batch_norm(x, scale, offset),
    ])  # fmt: skip
    np.testing.assert_allclose(plain, expected, 1e-4, 1e-4)
    np.testing.assert_allclose(bare, (x - mean) / np.sqrt(variance + 1e-3), 1e-4, 1e-4)
    np.testing.assert_allclose(fused[0], expected, 1e-4, 1e-4)
    np.testing.assert_allclose(trained[1], x.mean((0, 1, 2)), 1e-4, 1e-5)
    np.testing.assert_allclose(trained[0].var((0, 1, 2)), scale**2, 1e-2)
    with pytest.raises(ValueError, match="Both `mean` and `variance` must be a 1D tensor"):
        tf.nn.fused_batch_norm(x, scale, offset, is_training=False)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fmt", ["NHWC", "NCHW"])
def test_second_order_batch_norm(training, fmt):
    """The gradient of a gradient, against the same computation out of small ops."""
    x = tf.constant(random(2, 3, 3, 4) if fmt == "NHWC" else random(2, 4, 3, 3))
    scale, offset = tf.constant(random(4)), tf.constant(random(4))
    mean, variance = tf.constant(random(4)), tf.constant(np.abs(random(4)) + 0.5)
    weight = tf.constant(random(*x.shape.as_list()))
    axes, spread = ([0, 1, 2], [1, 1, 1, 4]) if fmt == "NHWC" else ([0, 2, 3], [1, 4, 1, 1])
    fused = tf.nn.fused_batch_norm(x, scale, offset, mean, variance, data_format=fmt, is_training=training)[0]
    if training:
        m = tf.reduce_mean(x, axes, keepdims=True)
        v = tf.reduce_mean(tf.square(x - m), axes, keepdims=True)
    else:
        m, v = tf.reshape(mean, spread), tf.reshape(variance, spread)
    small = (x - m) * tf.rsqrt(v + 1e-3) * tf.reshape(scale, spread) + tf.reshape(offset, spread)
    results = []
    for y in (fused, small):
        grads = tf.gradients(tf.square(y) * weight, [x, scale, offset])
        total = sum(tf.reduce_sum(tf.square(g)) for g in grads)
        results.append(tf.gradients(total, [x, scale]))
    for a, b in zip(*run(results), strict=True):
        np.testing.assert_allclose(a, b, 1e-2, 1e-3 * np.abs(b).max())


# -- embeddings and sampled losses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_embedding_lookup(strategy, parts):
    table, ids = random(10, 3), np.array([[0, 9, 4], [3, 3, 7]])
    split = [table[i::parts] for i in range(parts)] if strategy == "mod" else np.array_split(table, parts)
    found = tf.nn.embedding_lookup([tf.constant(p) for p in split], ids, partition_strategy=strategy)
    assert found.shape.as_list() == [2, 3, 3]
    np.testing.assert_array_equal(run(found), table[ids])


def test_embedding_of_a_variable():
    with tf.variable_scope("e", use_resource=True):
        table = tf.get_variable("table", initializer=random(5, 3))
    found = tf.nn.embedding_lookup(table, [3, 1], max_norm=1.0)
    (grad,) = tf.gradients(tf.nn.embedding_lookup(table, [3, 1, 3]), [table])
    assert isinstance(grad, tf.IndexedSlices)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        rows, all_rows = sess.run([found, table])
    norms = np.linalg.norm(all_rows[[3, 1]], axis=1, keepdims=True)
    np.testing.assert_allclose(rows, all_rows[[3, 1]] / np.maximum(norms, 1), 1e-5)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True])
def test_embedding_lookup_sparse(combiner, weighted):
    table = random(6, 3)
    indices, ids = np.array([[0, 0], [0, 2], [1, 1], [2, 0]]), np.array([5, 1, 1, 0])
    weights = np.array([1.0, 3.0, 0.5, 2.0], np.float32)
    sparse = tf.SparseTensor(indices, ids, [3, 4])
    values = tf.SparseTensor(indices, weights, [3, 4]) if weighted else None
    w = weights if weighted else np.ones(4, np.float32)
    expected = np.zeros((3, 3))
    for row in range(3):
        mine = indices[:, 0] == row
        scale = {"sum": 1, "mean": w[mine].sum(), "sqrtn": np.sqrt((w[mine] ** 2).sum())}[combiner]
        expected[row] = (table[ids[mine]] * w[mine, None]).sum(0) / scale
    np.testing.assert_allclose(run(tf.nn.embedding_lookup_sparse(table, sparse, values, combiner=combiner)), expected, 1e-5, 1e-6)


def test_nce_loss_of_a_given_sample():
    weights, biases, inputs = random(10, 4), random(10), random(2, 4)
    labels, sampled = np.array([[2], [5]]), np.array([7, 2, 9])
    true_count, sampled_count = np.array([[0.3], [0.2]], np.float32), np.array([0.1, 0.2, 0.3], np.float32)
    loss = tf.nn.nce_loss(weights, biases, labels, inputs, 3, 10, sampled_values=(sampled, true_count, sampled_count))
    logits = np.concatenate([
        (inputs * weights[labels[:, 0]]).sum(1, keepdims=True) + biases[labels] - np.log(true_count),
        inputs @ weights[sampled].T + biases[sampled] - np.log(sampled_count),
    ], 1)  # fmt: skip
    targets = np.array([[1, 0, 0, 0]] * 2)
    expected = (np.maximum(logits, 0) - logits * targets + np.log1p(np.exp(-np.abs(logits)))).sum(1)
    np.testing.assert_allclose(run(loss), expected, 1e-4)


# -- all together -----------------------------------------------------------------------------------------------------


def test_a_small_network_learns():
    tf.set_random_seed(1)
    x = tf.placeholder(tf.float32, [None, 8, 8, 1])
    y = tf.placeholder(tf.int64, [None])
    w1, b1 = tf.Variable(tf.random_normal([3, 3, 1, 4], stddev=0.3)), tf.Variable(tf.zeros([4]))
    w2, b2 = tf.Variable(tf.random_normal([64, 2], stddev=0.1)), tf.Variable(tf.zeros([2]))
    hidden = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w1, 1, "SAME"), b1))
    pooled = tf.reshape(tf.nn.max_pool(hidden, 2, 2, "SAME"), [-1, 64])
    logits = tf.nn.xw_plus_b(pooled, w2, b2)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    variables = [w1, b1, w2, b2]
    step = tf.group(*(v.assign_sub(0.2 * g) for v, g in zip(variables, tf.gradients(loss, variables), strict=True)))
    # Horizontal and vertical stripes.
    stripes = np.zeros((64, 8, 8, 1), np.float32)
    labels = np.arange(64) % 2
    stripes[labels == 0, ::2] = 1
    stripes[labels == 1, :, ::2] = 1
    stripes += 0.3 * random(*stripes.shape)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        first = sess.run(loss, {x: stripes, y: labels})
        for _ in range(30):
            sess.run(step, {x: stripes, y: labels})
        last = sess.run(loss, {x: stripes, y: labels})
    assert last < 0.2 * first


@pytest.mark.parametrize(("default_id", "empty_row"), [(None, [0, 0]), (1, [10, 11])])
def test_safe_embedding_lookup_sparse(default_id, empty_row):
    table = np.array([[0, 1], [10, 11], [20, 21]], np.float32)
    ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0], [3, 2]], np.array([2, 0, -7, 1]), [4, 3])
    value = run(tf.nn.safe_embedding_lookup_sparse(table, ids, default_id=default_id))
    # Row 1 holds an invalid id only, row 2 nothing.
    np.testing.assert_array_equal(value, [[10, 11], empty_row, empty_row, [10, 11]])
