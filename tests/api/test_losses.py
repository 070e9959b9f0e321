"""tf.losses against NumPy: each loss, weights, reductions, the collection."""

import numpy as np
import pytest

import penstock as tf

Y = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], np.float32)
P = np.array([[0.7, 0.2, 0.4], [0.1, 0.9, 0.6]], np.float32)
W = np.array([[2.0], [0.0]], np.float32)


def run(fetch, feed=None):
    with tf.Session() as s:
        return s.run(fetch, feed)


def huber(y, p, d=1.0):
    e = np.abs(p - y)
    return np.where(e <= d, 0.5 * e * e, d * e - 0.5 * d * d)


def xent(y, x):
    return np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))


ELEMENTS = {
    "absolute_difference": lambda y, p: np.abs(p - y),
    "mean_squared_error": lambda y, p: (p - y) ** 2,
    "huber_loss": huber,
    "log_loss": lambda y, p: -y * np.log(p + 1e-7) - (1 - y) * np.log(1 - p + 1e-7),
    "hinge_loss": lambda y, p: np.maximum(0, 1 - (2 * y - 1) * p),
    "sigmoid_cross_entropy": xent,
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_and_the_default_reduction(name):
    each = ELEMENTS[name](Y, P)
    function = getattr(tf.losses, name)
    none, mean, weighted = run([
        function(Y, P, reduction=tf.losses.Reduction.NONE), function(Y, P), function(Y, P, weights=W),
    ])
    np.testing.assert_allclose(none, each, rtol=1e-5)
    np.testing.assert_allclose(mean, each.mean(), rtol=1e-5)
    # SUM_BY_NONZERO_WEIGHTS: the second row does not count at all.
    np.testing.assert_allclose(weighted, 2 * each[0].sum() / 3, rtol=1e-5)
    assert len(tf.losses.get_losses()) == 3


def test_reductions():
    each = (P - Y) ** 2
    w = np.array([[2.0], [1.0]], np.float32)
    kinds = tf.losses.Reduction
    values = {k: run(tf.losses.mean_squared_error(Y, P, w, reduction=k)) for k in (kinds.SUM, kinds.MEAN, kinds.SUM_OVER_BATCH_SIZE)}
    total = (each * w).sum()
    np.testing.assert_allclose(values[kinds.SUM], total, rtol=1e-5)
    np.testing.assert_allclose(values[kinds.MEAN], total / (3 * w.sum()), rtol=1e-5)
    np.testing.assert_allclose(values[kinds.SUM_OVER_BATCH_SIZE], total / 6, rtol=1e-5)


def test_all_weights_zero_give_zero():
    assert run(tf.losses.mean_squared_error(Y, P, weights=0.0)) == 0.0


def test_softmax_losses_agree():
    logits = np.array([[1.0, 2.0, 0.5], [0.1, -1.0, 3.0]], np.float32)
    labels = np.array([1, 2])
    expected = (np.log(np.exp(logits).sum(1)) - logits[np.arange(2), labels]).mean()
    onehot = np.eye(3, dtype=np.float32)[labels]
    dense, sparse, column = run([
        tf.losses.softmax_cross_entropy(onehot, logits),
        tf.losses.sparse_softmax_cross_entropy(labels, logits),
        tf.losses.sparse_softmax_cross_entropy(labels[:, None], logits, weights=np.ones((2, 1), np.float32)),
    ])
    np.testing.assert_allclose([dense, sparse, column], expected, rtol=1e-5)
    smooth = run(tf.losses.softmax_cross_entropy(onehot, logits, label_smoothing=0.3))
    soft = onehot * 0.7 + 0.1
    np.testing.assert_allclose(smooth, -(soft * (logits - np.log(np.exp(logits).sum(1, keepdims=True)))).sum(1).mean(), rtol=1e-5)


def test_cosine_distance_and_pairwise_error():
    a = Y / np.linalg.norm(Y, axis=1, keepdims=True)
    b = P / np.linalg.norm(P, axis=1, keepdims=True)
    np.testing.assert_allclose(run(tf.losses.cosine_distance(a, b, axis=1)), (1 - (a * b).sum(1)).mean(), rtol=1e-5)
    d = P - Y
    pairs = sum((d[:, i] - d[:, j]) ** 2 for i in range(3) for j in range(3) if i < j) / 3
    np.testing.assert_allclose(run(tf.losses.mean_pairwise_squared_error(Y, P)), pairs.sum(), rtol=1e-4)


def test_total_loss_collects_everything():
    tf.losses.mean_squared_error(Y, P)
    tf.losses.absolute_difference(Y, P, loss_collection=None)
    tf.losses.add_loss(tf.constant(2.0))
    tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, tf.constant(3.0))
    np.testing.assert_allclose(run(tf.losses.get_total_loss()), ((P - Y) ** 2).mean() + 5.0, rtol=1e-5)
    np.testing.assert_allclose(run(tf.losses.get_total_loss(add_regularization_losses=False)), ((P - Y) ** 2).mean() + 2.0, rtol=1e-5)


def test_weights_must_have_the_rank_of_the_values():
    with pytest.raises(ValueError, match="weights can not be broadcast to values"):
        tf.losses.mean_squared_error(Y, P, weights=[1.0, 2.0, 3.0])
    w = tf.placeholder(tf.float32)
    loss = tf.losses.mean_squared_error(Y, P, weights=w)
    assert run(loss, {w: 1.0}) == pytest.approx(((P - Y) ** 2).mean())
    with pytest.raises(tf.errors.InvalidArgumentError, match="weights can not be broadcast to values"):
        run(loss, {w: [1.0, 2.0, 3.0]})


def test_bad_arguments():
    with pytest.raises(ValueError, match="Argument `labels` must not be None"):
        tf.losses.mean_squared_error(None, P)
    with pytest.raises(ValueError, match="Invalid Reduction Key"):
        tf.losses.mean_squared_error(Y, P, reduction="average")
    with pytest.raises(ValueError, match="are incompatible"):
        tf.losses.mean_squared_error(Y[:1], P)
    with pytest.raises(ValueError, match="You must specify argument `axis`"):
        tf.losses.cosine_distance(Y, P)


def test_gradients_pass_through_weights():
    x = tf.constant(P)
    (grad,) = run(tf.gradients(tf.losses.mean_squared_error(Y, x, weights=W), [x]))
    np.testing.assert_allclose(grad, 2 * (P - Y) * W / 3, rtol=1e-5)
