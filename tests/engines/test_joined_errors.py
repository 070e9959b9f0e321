"""Nodes that a pass joins: an error names the node that the user wrote, in its own words, and not what it was made part of."""

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from penstock.engines.onednn import library as onednn_library
from penstock.graph import parts
from penstock.graph.bind import engine_is_on

needs_library = pytest.mark.skipif(onednn_library.get() is None or not engine_is_on("onednn"), reason="needs oneDNN")


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def claimed(tensor, shape):
    """A value that says of itself that it has this shape, whatever comes."""
    tensor = tf.identity(tensor)
    tensor.set_shape(shape)
    return tensor


def fed(shape=None, name=None):
    return tf.placeholder(tf.float32, shape, name)


def sum_of_products():
    pairs = [(fed([None, 64]), fed([None, 64])) for _ in range(4)]
    total = tf.add_n([tf.matmul(a, b, transpose_a=True, name=f"product_{i}") for i, (a, b) in enumerate(pairs)], name="total")
    good = {t: normal(8, 64) for pair in pairs for t in pair}
    return total, good, {pairs[2][0]: normal(7, 64)}, "_SumOfProducts", "product_2", "MatMul", r"^Matrix size-incompatible: In\[0\]: \[7,64\], In\[1\]: \[8,64\]\n"


def gradient_of_softmax():
    x, dy = fed([None, None]), fed([None, None])
    y = tf.nn.softmax(x, name="softmax")
    dx = tf.gradients(y, x, dy)[0]
    return dx, {x: normal(4, 6), dy: normal(4, 6)}, {dy: normal(4, 7)}, "_SoftmaxGrad", "gradients/softmax_grad/Mul", "Mul", r"^Incompatible shapes: \[4,7\] vs. \[4,6\]\n"


def scaled_products():
    a, b = fed([None] * 4), fed([None] * 4)
    y = tf.multiply(tf.matmul(a, b, transpose_b=True, name="scores"), 0.125, name="scaled")
    wrong = r"^Matrix size-incompatible: In\[0\]: \[2,3,4,5\], In\[1\]: \[2,3,6,7\] 0 1\n"
    return y, {a: normal(2, 3, 4, 5), b: normal(2, 3, 6, 5)}, {b: normal(2, 3, 6, 7)}, "_ScaledBatchMatMul", "scores", "BatchMatMulV2", wrong


def layer_norm():
    given, scale, offset = fed(), fed([16]), fed([16])
    x = tf.py_func(lambda x: x, [given], tf.float32)
    x.set_shape([None, 16])
    mean, variance = tf.nn.moments(x, [1], keep_dims=True)
    y = tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-5, name="norm")
    good = {given: normal(4, 16), scale: normal(16), offset: normal(16)}
    return y, good, {given: normal(4, 17)}, "_LayerNorm", "norm/mul_2", "Mul", r"^Incompatible shapes: \[4,1[67]\] vs. \[4,1[67]\]\n"


def lstm(weights):
    given = fed()
    x = claimed(given, [3, 6, 5])
    c = h = tf.zeros([3, 8])
    w, b = weights(normal(13, 32) / 4), weights(normal(32) / 4)
    for t in range(6):
        with tf.name_scope(f"step_{t}"):
            i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([x[:, t], h], 1, name="both"), w), b), 4, 1)
            c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
            h = tf.tanh(c) * tf.sigmoid(o)
    return given, h, w, b


CONCAT = r"^ConcatOp : Dimension 0 in both shapes must be equal: shape\[0\] = \[4,5\] vs. shape\[1\] = \[3,8\]\n"


def lstm_steps():
    given, h, _, _ = lstm(tf.constant)
    return h, {given: normal(3, 6, 5)}, {given: normal(4, 6, 5)}, "_LSTMSteps", "step_0/both", "ConcatV2", CONCAT


def trained_lstm():
    given, h, w, b = lstm(lambda value: tf.Variable(value, use_resource=True))
    dw, db = tf.gradients(tf.reduce_sum(h * h), [w, b])
    return [h, dw, db], {given: normal(3, 6, 5)}, {given: normal(4, 6, 5)}, "_LSTMTraining", "step_0/both", "ConcatV2", CONCAT


def product_with_bias():
    a, bias = fed(), fed()
    y = tf.nn.relu(tf.nn.bias_add(tf.matmul(claimed(a, [None, 5]), normal(5, 6), name="product"), bias, name="biased"), name="out")
    wrong = r"^Must provide as many biases as the last dimension of the input tensor: \[7\] vs. \[4,6\]\n"
    return y, {a: normal(4, 5), bias: normal(6)}, {bias: normal(7)}, "_FusedMatMul", "biased", "BiasAdd", wrong


def sum_behind_a_convolution():
    x, other = fed([None, 8, 8, 3]), fed([None, 8, 8, 4])
    y = tf.nn.relu(tf.add(tf.nn.conv2d(x, normal(3, 3, 3, 4), strides=1, padding="SAME"), other, name="short_cut"))
    wrong = r"^Incompatible shapes: \[2,8,8,4\] vs. \[3,8,8,4\]\n"
    return y, {x: normal(2, 8, 8, 3), other: normal(2, 8, 8, 4)}, {other: normal(3, 8, 8, 4)}, "_FusedConv2D", "short_cut", "AddV2", wrong


def padded_convolution():
    x = fed()
    y = tf.nn.conv2d(tf.pad(claimed(x, [None] * 4), [[0, 0], [1, 1], [1, 1], [0, 0]], name="padded"), normal(3, 3, 3, 4), strides=1, padding="VALID")
    return y, {x: normal(2, 8, 8, 3)}, {x: normal(8, 8, 3)}, "Conv2D", "padded", "Pad", r"^The first dimension of paddings must be the rank of inputs\[4,2\] \[8,8,3\]\n"


PROGRAMS = [
    sum_of_products, gradient_of_softmax, scaled_products, layer_norm, lstm_steps, trained_lstm, product_with_bias, sum_behind_a_convolution, padded_convolution,
]  # fmt: skip


@needs_library
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_node_at_fault_is_named(program, warm):
    fetches, good, bad, joined, name, kind, words = program()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert joined in {op.type for part in sess.explain(fetches, list(good)).partitions.values() for op in part}
        for _ in range(5 * warm):
            sess.run(fetches, good)
        with pytest.raises(errors.InvalidArgumentError, match=words) as caught:
            sess.run(fetches, {**good, **bad})
        error = caught.value
        assert error.op is tf.get_default_graph().get_operation_by_name(name) and error.node_def.op == kind
        told = str(error)
        assert f"[[{{{{node {name}}}}}]]" in told and f"Node: {name} = {kind}(" in told and __file__ in told and "executed as part of: " in told
        sess.run(fetches, good)  # and the session goes on


@needs_library
def test_a_product_that_comes_late_is_told_by_its_shape():
    w = tf.Variable(normal(200, 100), use_resource=False)
    a, b = fed(), fed()
    slope = tf.matmul(claimed(a, [None, 200]), claimed(b, [None, 100]), transpose_a=True, name="slope")
    train = tf.train.GradientDescentOptimizer(0.1).apply_gradients([(slope, w)])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(5):
            sess.run(train, {a: normal(30, 200), b: normal(30, 100)})
        with pytest.raises(errors.InvalidArgumentError, match=r"var and delta do not have the same shape\[200,100\] \[201,100\]") as caught:
            sess.run(train, {a: normal(30, 201), b: normal(30, 100)})
        assert "input slope:0: float32[201,100]" in str(caught.value)
        with pytest.raises(errors.InvalidArgumentError, match="Matrix size-incompatible") as caught:
            sess.run(train, {a: normal(31, 200), b: normal(30, 100)})
        assert caught.value.op.name == "slope"


@needs_library
def test_where_no_single_node_fails_all_are_named(monkeypatch):
    """As for want of memory, or if an engine itself fails."""
    total, good, bad, *_ = sum_of_products()
    with tf.Session() as sess:
        monkeypatch.setattr(parts, "find_failure", lambda *args: None)
        with pytest.raises(errors.InvalidArgumentError) as caught:
            sess.run(total, {**good, **bad})
        assert caught.value.op is total.op and "stands for: product_0, product_1, product_2, product_3, total" in str(caught.value)


def test_parts_that_are_joined_themselves():
    """Two passes, one after the other: the first one's nodes are found behind the second one's."""
    a, b = fed(name="a"), fed(name="b")
    inner = tf.matmul(claimed(a, [None, None]), claimed(b, [None, None]), name="inner")
    outer, end = tf.negative(inner, name="outer"), tf.exp(inner, name="end")
    outer.op.parts = parts.Parts([inner.op], list(inner.op.inputs))
    end.op.parts = parts.Parts([outer.op], list(outer.op.inputs))
    assert [op.name for op in parts.nodes(outer.op)] == ["inner"]
    failure = parts.find_failure(outer.op, [normal(2, 3), normal(2, 3)])
    assert failure is not None and failure.op is inner.op and [x.shape for x in failure.inputs] == [(2, 3), (2, 3)]
    assert parts.find_failure(outer.op, [normal(2, 3), normal(3, 3)]) is None
    assert parts.find_failure(outer.op, [None, normal(3, 3)]) is None
    assert [op.name for op in parts.nodes(end.op)] == ["inner"]
