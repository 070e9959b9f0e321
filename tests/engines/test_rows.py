"""Normalised rows, scaled products, transposed operands and sums of products: what the optimiser joins, what it leaves, and the numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import binding, product_kernels
from penstock.engines.onednn import library as lib

pytestmark = pytest.mark.skipif(lib.get() is None, reason="oneDNN is not here")

ROWS, DEPTH = 48, 64


@pytest.fixture(autouse=True)
def fresh() -> Any:
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


def _data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def _types(sess: Any, fetches: Any, feeds: Any) -> Counter:
    return Counter(op.type for stage in sess.explain(fetches, feeds).stages if stage.name == "optimise/remapping" for op in stage.graph)


def _close(found: Any, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5 * max(1.0, float(np.abs(wanted).max())))


def _layer_norm(x: Any, epsilon: float = 1e-6, by_hand: bool = False) -> tuple[Any, Any, Any]:
    scale = tf.constant(1 + 0.1 * _data(DEPTH, seed=1))
    offset = tf.constant(_data(DEPTH, seed=2))
    scale, offset = tf.identity(tf.placeholder_with_default(scale, [DEPTH])), tf.identity(tf.placeholder_with_default(offset, [DEPTH]))
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    if by_hand:
        return (x - mean) * tf.rsqrt(variance + epsilon) * scale + offset, scale, offset
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, epsilon), scale, offset


def _reference(x: np.ndarray, dy: np.ndarray) -> list[np.ndarray]:
    """y and the gradients of x, scale and offset, in float64."""
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    scale, offset = (1 + 0.1 * _data(DEPTH, seed=1)).astype(np.float64), _data(DEPTH, seed=2).astype(np.float64)
    root = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    normal, slope = (x - x.mean(-1, keepdims=True)) * root, dy * scale
    dx = root * (slope - slope.mean(-1, keepdims=True) - normal * (slope * normal).mean(-1, keepdims=True))
    others = tuple(range(x.ndim - 1))
    return [normal * scale + offset, dx, (dy * normal).sum(others), dy.sum(others)]


# -- layer norm ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(ROWS, DEPTH), (4, ROWS, DEPTH)])
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_layer_norm_is_one_node(shape: tuple[int, ...], by_hand: bool) -> None:
    x = tf.placeholder(tf.float32, shape)
    y, _, _ = _layer_norm(x, by_hand=by_hand)
    feeds = {x: _data(*shape)}
    with tf.Session() as sess:
        assert _types(sess, y, feeds)["_LayerNorm"] == 1 and not _types(sess, y, feeds)["Rsqrt"]
        for _ in range(5):
            found = sess.run(y, feeds)
    _close(found, _reference(feeds[x], feeds[x])[0])


@pytest.mark.parametrize("shape", [(ROWS, DEPTH), (4, ROWS, DEPTH)])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("by_hand", [False, True])
def test_its_gradient_is_one_node(shape: tuple[int, ...], residual: bool, by_hand: bool) -> None:
    x, dy = tf.placeholder(tf.float32, shape), tf.placeholder(tf.float32, shape)
    y, scale, offset = _layer_norm(x, by_hand=by_hand)
    results = [y, *tf.gradients(y + x if residual else y, [x, scale, offset], dy)]
    if residual:  # x has one more gradient, dy itself, which AddN adds
        results[1] = tf.add_n([results[1], x])
    feeds = {x: _data(*shape), dy: _data(*shape, seed=3)}
    with tf.Session() as sess:
        types = _types(sess, results, feeds)
        assert types["_LayerNorm"] == types["_LayerNormGrad"] == 1 and not types["RsqrtGrad"]
        for _ in range(5):
            found = sess.run(results, feeds)
    wanted = _reference(feeds[x], feeds[dy])
    if residual:
        wanted[1] = wanted[1] + feeds[dy] + feeds[x]
    for a, b in zip(found, wanted, strict=True):
        _close(a, b)


@pytest.mark.parametrize("reads", ["centred", "normal", "gradient of the rows"])
def test_what_somebody_reads_of_one_written_by_hand_stays(reads: str) -> None:
    x, dy = tf.placeholder(tf.float32, [ROWS, DEPTH]), tf.placeholder(tf.float32, [ROWS, DEPTH])
    scale, offset = tf.placeholder(tf.float32, [DEPTH]), tf.placeholder(tf.float32, [DEPTH])
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    centred = x - mean
    normal = centred * tf.rsqrt(variance + 1e-6)
    dx, dnormal = tf.gradients(normal * scale + offset, [x, normal], dy)
    read = {"centred": centred, "normal": normal, "gradient of the rows": dnormal}[reads]
    feeds = {x: _data(ROWS, DEPTH), dy: _data(ROWS, DEPTH, seed=3), scale: 1 + 0.1 * _data(DEPTH, seed=1), offset: _data(DEPTH, seed=2)}
    with tf.Session() as sess:
        assert not _types(sess, [dx, read], feeds)["_LayerNormGrad"]
        found = sess.run([dx, read], feeds)
    wide = feeds[x].astype(np.float64)
    middle = wide - wide.mean(-1, keepdims=True)
    wanted = {"centred": middle, "normal": middle / np.sqrt(wide.var(-1, keepdims=True) + 1e-6), "gradient of the rows": feeds[dy] * feeds[scale]}[reads]
    _close(found[0], _reference(feeds[x], feeds[dy])[1])
    _close(found[1], wanted)


def test_what_somebody_reads_stays() -> None:
    x = tf.placeholder(tf.float32, [ROWS, DEPTH])
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    y = tf.nn.batch_normalization(x, mean, variance, tf.ones([DEPTH]), tf.fill([DEPTH], 2.0), 1e-6)
    feeds = {x: _data(ROWS, DEPTH)}
    with tf.Session() as sess:
        assert not _types(sess, [y, variance], feeds)["_LayerNorm"]
        found, spread = sess.run([y, variance], feeds)
    _close(spread, feeds[x].astype(np.float64).var(-1, keepdims=True))
    _close(found, 2 * (feeds[x] - feeds[x].mean(-1, keepdims=True)) / feeds[x].std(-1, keepdims=True) + 1)


def test_a_batch_norm_over_rows_stays() -> None:
    x = tf.placeholder(tf.float32, [ROWS, DEPTH])
    mean, variance = tf.nn.moments(x, [0], keepdims=True)
    y = tf.nn.batch_normalization(x, mean, variance, tf.ones([DEPTH]), tf.ones([DEPTH]), 1e-6)
    with tf.Session() as sess:
        assert not _types(sess, y, {x: _data(ROWS, DEPTH)})["_LayerNorm"]


def test_variables_are_read_before_they_change() -> None:
    """A training step of a layer norm: gradients are those of the old values."""
    shape = (ROWS, DEPTH)
    start, s, o = _data(*shape), (1 + 0.1 * _data(DEPTH, seed=1)).astype(np.float32), _data(DEPTH, seed=2)
    x, scale, offset = (tf.get_variable(name, initializer=tf.constant(v)) for name, v in (("x", start), ("scale", s), ("offset", o)))
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    y = tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-6)
    target = tf.placeholder(tf.float32, shape)
    loss = tf.reduce_sum(tf.square(y - target)) / 2
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    feeds = {target: _data(*shape, seed=5)}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert _types(sess, [loss, train], feeds)["_LayerNormGrad"] == 1
        values: list[Any] = [v.astype(np.float64) for v in (start, s, o)]
        for _ in range(6):
            found = sess.run([loss, train], feeds)[0]
            x_, s_, o_ = values
            root = 1 / np.sqrt(x_.var(-1, keepdims=True) + 1e-6)
            normal = (x_ - x_.mean(-1, keepdims=True)) * root
            dy = normal * s_ + o_ - feeds[target]
            np.testing.assert_allclose(found, (dy**2).sum() / 2, rtol=1e-4)
            slope = dy * s_
            dx = root * (slope - slope.mean(-1, keepdims=True) - normal * (slope * normal).mean(-1, keepdims=True))
            values = [x_ - 0.01 * dx, s_ - 0.01 * (dy * normal).sum(0), o_ - 0.01 * dy.sum(0)]
        for variable, wanted in zip((x, scale, offset), values, strict=True):
            _close(sess.run(variable), wanted)


# -- softmax and batches of products ------------------------------------------------------------------------------------


def test_attention_and_its_gradient() -> None:
    """Heads are views of a matrix's columns, results lie as their Transpose wants them, scales are part of products."""
    batch, length, heads, width = 2, 32, 4, 32
    x = tf.placeholder(tf.float32, [batch, length, heads * width])
    q = tf.transpose(tf.reshape(x, [batch, length, heads, width]), [0, 2, 1, 3])
    scores = tf.nn.softmax(tf.matmul(q, q, transpose_b=True) * 0.25)
    y = tf.reshape(tf.transpose(tf.matmul(scores, q), [0, 2, 1, 3]), [batch, length, heads * width])
    dx = tf.gradients(tf.reduce_sum(y * y) / 2, x)[0]
    feeds = {x: 0.5 * _data(batch, length, heads * width)}
    with tf.Session() as sess:
        types = _types(sess, [y, dx], feeds)
        assert types["_ScaledBatchMatMul"] == 3 and types["_SoftmaxGrad"] == 1
        for _ in range(5):
            found = sess.run([y, dx], feeds)
    v = feeds[x].astype(np.float64).reshape(batch, length, heads, width).transpose(0, 2, 1, 3)
    e = np.exp(v @ v.swapaxes(-1, -2) * 0.25)
    p = e / e.sum(-1, keepdims=True)
    out = p @ v
    dp = out @ v.swapaxes(-1, -2)
    ds = (dp - (dp * p).sum(-1, keepdims=True)) * p * 0.25
    dv = p.swapaxes(-1, -2) @ out + ds @ v + ds.swapaxes(-1, -2) @ v
    for a, b in zip(found, (out, dv), strict=True):
        _close(a, b.transpose(0, 2, 1, 3).reshape(batch, length, heads * width))


def test_a_scale_that_somebody_reads_stays() -> None:
    a, b = tf.placeholder(tf.float32, [3, 8, 8]), tf.placeholder(tf.float32, [3, 8, 8])
    scaled = a * 0.5
    results = [tf.matmul(scaled, b), tf.exp(scaled)]
    feeds = {a: _data(3, 8, 8), b: _data(3, 8, 8, seed=1)}
    with tf.Session() as sess:
        assert not _types(sess, results, feeds)["_ScaledBatchMatMul"]
        found = sess.run(results, feeds)
    _close(found[0], (feeds[a] * 0.5) @ feeds[b])


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (2, 0, 1, 3), (1, 0, 2, 3)])
def test_products_of_views(order: tuple[int, ...]) -> None:
    a, b = tf.placeholder(tf.float32, [4, 6, 32, 32]), tf.placeholder(tf.float32, [4, 6, 32, 32])
    y = tf.transpose(tf.matmul(tf.transpose(a, order), tf.transpose(b, order), transpose_a=True), order)
    feeds = {a: _data(4, 6, 32, 32), b: _data(4, 6, 32, 32, seed=1)}
    with tf.Session() as sess:
        found = [sess.run(y, feeds) for _ in range(5)][-1]
    wanted = feeds[a].transpose(order).swapaxes(-1, -2) @ feeds[b].transpose(order)
    _close(found, wanted.transpose(order))


def test_strides_that_a_product_can_read() -> None:
    x = _data(4, 6, 8, 16)
    assert product_kernels._strides(x) is None
    assert product_kernels._strides(x.transpose(0, 2, 1, 3)) == (768, 16, 128, 1)
    assert product_kernels._strides(x.swapaxes(-1, -2)) is None
    assert product_kernels._strides(np.broadcast_to(x[:1], x.shape)) is None
    assert product_kernels._strides(np.lib.stride_tricks.as_strided(x, (4, 5, 16), (384, 32, 4))) is None


# -- sums of products ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [8, 96])
def test_gradients_of_an_unrolled_layer(rows: int) -> None:
    """The gradients of weight and bias of all steps come out of one node."""
    steps = [tf.placeholder(tf.float32, [rows, 64]) for _ in range(4)]
    w, b = tf.placeholder_with_default(_data(64, 80, seed=1), [64, 80]), tf.placeholder_with_default(_data(80, seed=2), [80])
    loss = tf.add_n([tf.reduce_sum(tf.tanh(tf.nn.bias_add(tf.matmul(x, w), b))) for x in steps])
    results = tf.gradients(loss, [w, b])
    feeds = {x: 0.1 * _data(rows, 64, seed=i) for i, x in enumerate(steps)}
    with tf.Session() as sess:
        types = _types(sess, results, feeds)
        assert types["_SumOfProductsAndRows"] == 1 and not types["BiasAddGrad"] and not types["_SumOfProducts"]
        alone = _types(sess, results[:1], feeds)
        assert alone["_SumOfProducts"] == 1 and not alone["_SumOfProductsAndRows"]
        found = [sess.run(results, feeds) for _ in range(5)][-1]
    values = list(feeds.values())
    slopes = [1 - np.tanh(x.astype(np.float64) @ _data(64, 80, seed=1) + _data(80, seed=2)) ** 2 for x in values]
    _close(found[0], sum(x.T.astype(np.float64) @ g for x, g in zip(values, slopes, strict=True)))
    _close(found[1], sum(g.sum(0) for g in slopes))


# -- numbers that are infinite, or none ---------------------------------------------------------------------------------


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_log_softmax_hides_no_nan(special: float, monkeypatch: Any) -> None:
    monkeypatch.setattr(binding, "MIN_SOFTMAX_SIZE", 0)
    x = tf.placeholder(tf.float32, [ROWS, DEPTH])
    value = _data(ROWS, DEPTH)
    value[5, 3] = special
    value[7, 0] = -np.inf  # as a mask has it
    value[9] = -np.inf
    with tf.Session() as sess:
        found = sess.run(tf.nn.log_softmax(x), {x: value})
    with np.errstate(all="ignore"):
        wanted = value - np.max(value, 1, keepdims=True)
        wanted -= np.log(np.sum(np.exp(wanted), 1, keepdims=True))
    assert np.isnan(found[5]).all() and np.isnan(found[9]).all()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
