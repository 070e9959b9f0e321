"""tf.layers: values against tf.nn, and the names, variables, losses and updates of TensorFlow 1.15."""

import numpy as np
import pytest

import penstock as tf

R = np.random.RandomState(0)
IMAGE = R.randn(2, 6, 7, 3).astype(np.float32)
layers = tf.layers


def run(fetches, feed=None):
    with tf.Session() as s:
        s.run(tf.global_variables_initializer())
        return s.run(fetches, feed)


def variables():
    return [v.op.name for v in tf.global_variables()]


def value_of(name):
    return next(v for v in tf.global_variables() if v.op.name == name)


# -- names and sharing ------------------------------------------------------------------------------------------------


def test_names():
    x = tf.placeholder(tf.float32, [None, 4])
    a = layers.dense(x, 3, activation=tf.nn.relu)
    b = layers.dense(a, 2)
    with tf.variable_scope("outer"):
        c = layers.dense(b, 2, name="mine")
    assert (a.op.name, b.op.name, c.op.name) == ("dense/Relu", "dense_1/BiasAdd", "outer/mine/BiasAdd")
    assert variables() == ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias", "outer/mine/kernel", "outer/mine/bias"]
    assert [v.op.name for v in tf.trainable_variables()] == variables()


def test_reuse():
    x = tf.placeholder(tf.float32, [None, 4])
    a = layers.dense(x, 3, name="d")
    b = layers.dense(x, 3, name="d", reuse=True)
    assert variables() == ["d/kernel", "d/bias"] and (a.op.name, b.op.name) == ("d/BiasAdd", "d_1/BiasAdd")
    with pytest.raises(ValueError, match="already exists"):
        layers.dense(x, 3, name="d")
    with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
        layers.dense(x, 3, name="d")
    with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
        layers.dense(x, 3, name="d")
    assert variables() == ["d/kernel", "d/bias", "s/d/kernel", "s/d/bias"]


def test_a_layer_object_shares_its_variables():
    layer = layers.Dense(3, kernel_initializer=tf.ones_initializer())
    x = tf.constant([[1.0, 2.0]])
    assert not layer.built and layer.weights == []
    with pytest.raises(ValueError, match="has not been used yet"):
        layer.scope_name
    a, b = layer(x), layer.apply(2 * x)
    assert variables() == ["dense/kernel", "dense/bias"] and layer.scope_name == "dense" and layer.count_params() == 9
    assert [v.op.name for v in layer.trainable_variables] == variables() and layer.kernel is layer.trainable_variables[0]
    got = run([a, b])
    np.testing.assert_array_equal(got, [[[3, 3, 3]], [[6, 6, 6]]])


def test_a_layer_of_ones_own():
    class Scale(layers.Layer):
        def build(self, input_shape):
            self.w = self.add_weight("w", [input_shape[-1].value], initializer=tf.constant_initializer(2.0))
            self.n = self.add_variable("n", [], initializer=tf.zeros_initializer(), trainable=False)

        def call(self, inputs):
            return inputs * self.w

    layer = Scale(name="sc")
    y = layer(np.ones((2, 3), np.float32))
    assert run(y).tolist() == [[2, 2, 2]] * 2
    assert [v.op.name for v in layer.trainable_weights] == ["sc/w"] and [v.op.name for v in layer.non_trainable_weights] == ["sc/n"]
    assert [v.op.name for v in tf.trainable_variables()] == ["sc/w"]


def test_regularizers_and_constraints():
    x = tf.constant([[1.0, 2.0]])
    layers.dense(
        x, 3, name="d", kernel_initializer=tf.ones_initializer(), kernel_regularizer=lambda w: 0.5 * tf.reduce_sum(w), activity_regularizer=tf.reduce_sum
    )
    layers.dense(x, 3, name="d", kernel_regularizer=lambda w: 0.5 * tf.reduce_sum(w), reuse=True)
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert losses[0].op.name.startswith("d/kernel/Regularizer/") and len(losses) == 2
    assert run(losses) == [3.0, 9.0] and run(tf.losses.get_regularization_loss()) == 12.0


def test_trainable_false():
    layers.dense(tf.zeros([1, 2]), 3, trainable=False)
    assert tf.trainable_variables() == [] and len(tf.global_variables()) == 2


def test_input_checks():
    with pytest.raises(ValueError, match="expected min_ndim=2, found ndim=1"):
        layers.dense(tf.zeros([3]), 2)
    with pytest.raises(ValueError, match="last dimension of the inputs to `Dense` should be defined"):
        layers.dense(tf.placeholder(tf.float32, [3, None]), 2)
    with pytest.raises(ValueError, match="expected ndim=4, found ndim=3"):
        layers.conv2d(tf.zeros([3, 4, 5]), 2, 3)
    layer = layers.Dense(2)
    layer(tf.zeros([1, 3]))
    with pytest.raises(ValueError, match="to have value 3 but received input with shape"):
        layer(tf.zeros([1, 4]))
    with pytest.raises(ValueError, match="`kernel_size` argument must be a tuple of 2 integers"):
        layers.Conv2D(2, (1, 2, 3))
    with pytest.raises(TypeError, match="Keyword argument not understood"):
        layers.Dense(2, colour="red")


# -- core -------------------------------------------------------------------------------------------------------------


def test_dense_over_more_dimensions():
    x = R.randn(2, 3, 4).astype(np.float32)
    y = layers.dense(tf.constant(x), 5, use_bias=False)
    kernel, got = run([value_of("dense/kernel"), y])
    np.testing.assert_allclose(got, x @ kernel, rtol=1e-4, atol=1e-5)
    assert layers.Dense(5).compute_output_shape([None, 3, 4]).as_list() == [None, 3, 5]


def test_flatten():
    x = tf.placeholder(tf.float32, [None, 2, 3])
    y = layers.flatten(x)
    assert y.op.name == "flatten/Reshape" and y.shape.as_list() == [None, 6]
    assert run(y, {x: np.arange(12).reshape(2, 2, 3)}).shape == (2, 6)
    z = layers.flatten(tf.constant(IMAGE), data_format="channels_first")
    np.testing.assert_array_equal(run(z), IMAGE.transpose(0, 2, 3, 1).reshape(2, -1))


def test_dropout():
    x = tf.ones([100])
    training = tf.placeholder_with_default(False, [])
    off, on, either = layers.dropout(x), layers.dropout(x, 0.25, training=True, seed=1), layers.dropout(x, training=training)
    a, b, c = run([off, on, either])
    assert a.tolist() == c.tolist() == [1.0] * 100 and off.op.name == "dropout/Identity"
    np.testing.assert_allclose(np.unique(b), [0, 4 / 3], rtol=1e-5)
    assert 5 < (b == 0).sum() < 45
    assert 0 < (run(either, {training: True}) == 0).sum() < 100
    rows = run(layers.dropout(tf.ones([4, 50]), noise_shape=[4, 1], training=True, seed=2))
    assert all(len(set(row)) == 1 for row in rows.tolist())


# -- convolutions -----------------------------------------------------------------------------------------------------


def test_conv2d():
    x = tf.constant(IMAGE)
    y = layers.conv2d(x, 4, (3, 2), strides=2, padding="same", activation=tf.nn.relu, bias_initializer=tf.ones_initializer())
    kernel = value_of("conv2d/kernel")
    assert kernel.shape.as_list() == [3, 2, 3, 4] and y.op.name == "conv2d/Relu"
    a, b = run([y, tf.nn.relu(tf.nn.conv2d(x, kernel, [1, 2, 2, 1], "SAME") + 1.0)])
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    dilated = layers.conv2d(x, 4, 3, dilation_rate=2, name="a")
    np.testing.assert_allclose(*run([dilated, tf.nn.conv2d(x, value_of("a/kernel"), [1, 1, 1, 1], "VALID", dilations=[1, 2, 2, 1])]), rtol=1e-5, atol=1e-5)
    assert layers.Conv2D(4, 3, dilation_rate=2).compute_output_shape([2, 6, 7, 3]).as_list() == dilated.shape.as_list()


def test_conv1d_and_conv3d():
    x = tf.constant(IMAGE[:, :, 0])
    y = layers.conv1d(x, 4, 3, padding="same")
    np.testing.assert_allclose(*run([y, tf.nn.conv1d(x, value_of("conv1d/kernel"), 1, "SAME")]), rtol=1e-5, atol=1e-5)
    v = tf.constant(R.randn(1, 4, 4, 4, 2).astype(np.float32))
    z = layers.conv3d(v, 3, 2, strides=(1, 2, 1))
    assert z.op.name == "conv3d/BiasAdd" and z.shape.as_list() == [1, 3, 2, 3, 3]
    np.testing.assert_allclose(*run([z, tf.nn.conv3d(v, value_of("conv3d/kernel"), [1, 1, 2, 1, 1], "VALID")]), rtol=1e-5, atol=1e-5)


def test_separable_convolutions():
    x = tf.constant(IMAGE)
    y = layers.separable_conv2d(x, 5, 3, depth_multiplier=2, padding="same")
    names = ["separable_conv2d/depthwise_kernel", "separable_conv2d/pointwise_kernel", "separable_conv2d/bias"]
    assert variables() == names and value_of(names[1]).shape.as_list() == [1, 1, 6, 5]
    expected = tf.nn.separable_conv2d(x, value_of(names[0]), value_of(names[1]), [1, 1, 1, 1], "SAME")
    np.testing.assert_allclose(*run([y, expected]), rtol=1e-5, atol=1e-5)
    line = tf.constant(IMAGE[:, :, 0])
    z = layers.separable_conv1d(line, 5, 3, strides=2)
    depth, point = value_of("separable_conv1d/depthwise_kernel"), value_of("separable_conv1d/pointwise_kernel")
    got, d, p = run([z, depth, point])
    columns = [np.einsum("bkc,kc->bc", IMAGE[:, i : i + 3, 0], d[:, :, 0]) @ p[0] for i in (0, 2)]
    np.testing.assert_allclose(got, np.stack(columns, 1), rtol=1e-4, atol=1e-5)


def test_transposed_convolutions():
    x = tf.placeholder(tf.float32, [None, 6, None, 3])
    y = layers.conv2d_transpose(x, 4, 3, strides=2)
    assert y.shape.as_list() == [None, 13, None, 4]
    kernel = value_of("conv2d_transpose/kernel")
    assert kernel.shape.as_list() == [3, 3, 4, 3]
    same = layers.conv2d_transpose(x, 4, 3, strides=2, padding="same", name="s")
    expected = tf.nn.conv2d_transpose(x, kernel, [2, 13, 15, 4], [1, 2, 2, 1], "VALID")
    a, b, c = run([y, expected, same], {x: IMAGE})
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert c.shape == (2, 12, 14, 4)
    z = layers.conv3d_transpose(tf.zeros([1, 2, 3, 4, 5]), 6, 2, strides=2)
    assert z.shape.as_list() == [1, 4, 6, 8, 6]


# -- pooling ----------------------------------------------------------------------------------------------------------


def test_pooling():
    x = tf.constant(IMAGE)
    a, b = layers.max_pooling2d(x, 2, 2), layers.average_pooling2d(x, (2, 3), (1, 2), padding="same")
    assert (a.op.name, b.op.name) == ("max_pooling2d/MaxPool", "average_pooling2d/AvgPool")
    got = run([a, tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID"), b, tf.nn.avg_pool(x, [1, 2, 3, 1], [1, 1, 2, 1], "SAME")])
    np.testing.assert_array_equal(got[0], got[1])
    np.testing.assert_allclose(got[2], got[3], rtol=1e-6)
    line = IMAGE[:, :, 0]
    np.testing.assert_array_equal(run(layers.max_pooling1d(tf.constant(line), 2, 2)), line.reshape(2, 3, 2, 3).max(2))
    np.testing.assert_allclose(run(layers.average_pooling1d(tf.constant(line), 3, 3)), line.reshape(2, 2, 3, 3).mean(2), rtol=1e-5, atol=1e-6)
    cube = R.randn(1, 4, 4, 4, 2).astype(np.float32)
    blocks = cube.reshape(1, 2, 2, 2, 2, 2, 2, 2)
    np.testing.assert_array_equal(run(layers.max_pooling3d(tf.constant(cube), 2, 2)), blocks.max((2, 4, 6)))
    np.testing.assert_allclose(run(layers.average_pooling3d(tf.constant(cube), 2, 2)), blocks.mean((2, 4, 6)), rtol=1e-5, atol=1e-6)


# -- batch normalisation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape, axis", [((8, 4), -1), ((8, 5, 6, 4), -1), ((8, 4, 5, 6), 1)])
def test_batch_normalization_in_training(shape, axis):
    x = R.randn(*shape).astype(np.float32) * 3 + 1
    y = layers.batch_normalization(tf.constant(x), axis=axis, training=True, momentum=0.9, fused=False)
    axes = tuple(i for i in range(len(shape)) if i != axis % len(shape))
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert variables() == ["batch_normalization/" + n for n in ("gamma", "beta", "moving_mean", "moving_variance")]
    assert [v.op.name for v in tf.trainable_variables()] == variables()[:2]
    with tf.Session() as s:
        s.run(tf.global_variables_initializer())
        np.testing.assert_allclose(s.run(y), (x - mean) / np.sqrt(var + 1e-3), rtol=1e-3, atol=1e-4)
        s.run(updates)
        moving = s.run(tf.global_variables()[2:])
    np.testing.assert_allclose(moving[0], 0.1 * mean.ravel(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moving[1], 0.9 + 0.1 * var.ravel(), rtol=1e-4)


def test_fused_batch_normalization():
    x = R.randn(4, 5, 6, 3).astype(np.float32)
    training = tf.placeholder(tf.bool, [])
    y = layers.batch_normalization(tf.constant(x), training=training, momentum=0.5)
    names = {op.type for op in tf.get_default_graph().get_operations()}
    assert "FusedBatchNormV3" in names and [u.op.name for u in tf.get_collection("update_ops")] == [
        "batch_normalization/AssignMovingAvg", "batch_normalization/AssignMovingAvg_1",
    ]
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    count = x.size // 3
    with tf.Session() as s:
        s.run(tf.global_variables_initializer())
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        s.run(updates, {training: False})
        np.testing.assert_allclose(s.run(tf.global_variables()[2]), 0)
        trained, _ = s.run([y, updates], {training: True})
        np.testing.assert_allclose(trained, (x - mean) / np.sqrt(var + 1e-3), rtol=1e-3, atol=1e-4)
        moving_mean, moving_var = s.run(tf.global_variables()[2:])
        np.testing.assert_allclose(moving_mean, 0.5 * mean, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(moving_var, 0.5 + 0.5 * var * count / (count - 1), rtol=1e-4)
        inferred = s.run(y, {training: False})
        np.testing.assert_allclose(inferred, (x - moving_mean) / np.sqrt(moving_var + 1e-3), rtol=1e-3, atol=1e-4)


def test_batch_normalization_without_training_has_no_updates():
    layers.batch_normalization(tf.zeros([2, 3]))
    assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == []
    with pytest.raises(ValueError, match="fused=True only support 4D"):
        layers.batch_normalization(tf.zeros([2, 3]), fused=True)
    with pytest.raises(tf.errors.UnimplementedError, match="renorm"):
        layers.batch_normalization(tf.zeros([2, 3]), renorm=True)


def test_a_small_network_learns():
    tf.set_random_seed(1)
    x = tf.placeholder(tf.float32, [None, 8, 8, 1])
    labels = tf.placeholder(tf.int64, [None])
    y = layers.conv2d(x, 4, 3, activation=tf.nn.relu)
    y = layers.batch_normalization(layers.max_pooling2d(y, 2, 2), training=True)
    logits = layers.dense(layers.flatten(y), 2)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = tf.train.GradientDescentOptimizer(0.2).minimize(loss)
    data = R.randn(32, 8, 8, 1).astype(np.float32)
    truth = (data.mean((1, 2, 3)) > 0).astype(np.int64)
    data += truth[:, None, None, None]
    with tf.Session() as s:
        s.run(tf.global_variables_initializer())
        first = s.run(loss, {x: data, labels: truth})
        for _ in range(20):
            s.run(train, {x: data, labels: truth})
        assert s.run(loss, {x: data, labels: truth}) < 0.3 * first
