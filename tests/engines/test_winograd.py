"""Winograd's way to convolve: against the definition in float64, for all that may follow a convolution, and where it is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock as tf
from penstock.engines.memory import address
from penstock.engines.onednn import conv, library, winograd
from penstock.engines.onednn.plan import channels_last_strides, planned
from penstock.engines.onednn.primitives import FLOAT32, Add, Eltwise
from penstock.ops.kernels.window import layout, slides_of

pytestmark = pytest.mark.skipif(library.get() is None, reason="there is no oneDNN here: NumPy computes")


def spec_of(batch: int, size: tuple[int, int], depth: int, out: int, padding: bytes = b"SAME", stride: int = 1, dilation: int = 1, explicit: Any = ()) -> conv.Spec:
    ones = (1, stride, stride, 1), (1, dilation, dilation, 1)
    slides = slides_of(layout(b"NHWC"), size, (3, 3), ones[0], padding, ones[1], explicit)
    return conv.Spec(batch, depth, out, 1, tuple(slides), True, FLOAT32)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def by_definition(spec: conv.Spec, x: np.ndarray, filter: np.ndarray) -> np.ndarray:
    (top, bottom), (left, right) = ((s.before, s.after) for s in spec.slides)
    wide = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    rows, columns = (s.out for s in spec.slides)
    seen = [wide[:, i : i + rows, j : j + columns] @ filter[i, j].astype(np.float64) for i in range(3) for j in range(3)]
    return np.sum(seen, axis=0)


def plan_of(spec: conv.Spec, has_bias: bool = False, post_ops: Any = ()) -> winograd.Winograd:
    found = library.get()
    assert found is not None
    plan = planned(winograd.Winograd, found, spec.microseconds, spec, FLOAT32 if has_bias else None, post_ops, True)
    assert plan is not None
    return plan


EXPLICIT = (0, 0, 2, 0, 1, 3, 0, 0)
SHAPES = [
    spec_of(1, (14, 14), 32, 32),
    spec_of(2, (7, 9), 16, 24),
    spec_of(1, (5, 8), 35, 17),
    spec_of(3, (9, 6), 16, 16, b"VALID"),
    spec_of(1, (3, 3), 16, 18, b"VALID"),
    spec_of(2, (6, 5), 20, 16, b"EXPLICIT", explicit=EXPLICIT),
    spec_of(2, (9, 8), 21, 100),
    spec_of(1, (8, 12), 16, 128),
]


TOGETHER, APART = [(size, 0) for size in (1, 20_000, 4 << 20)], [(0, size) for size in (20_000, 60_000, 1 << 20)]
"""Sizes of strips that all threads take through each step together, and of those that each has by itself."""


def choose(monkeypatch: pytest.MonkeyPatch, strip: tuple[int, int]) -> None:
    monkeypatch.setattr(winograd, "STRIP_BYTES", strip[0])
    monkeypatch.setattr(winograd, "OWN_BYTES", strip[1])
    monkeypatch.setattr(winograd, "FEW_TILES", 1)
    monkeypatch.setattr(winograd, "LITTLE_WAITING", 0)


@pytest.mark.parametrize("strip", [*TOGETHER, *APART])
@pytest.mark.parametrize("spec", SHAPES, ids=lambda s: f"{s.batch}x{s.slides[0].size}x{s.slides[1].size}x{s.depth}")
def test_as_by_definition(spec: conv.Spec, strip: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, strip)
    post_ops = (Add(spec.dst_dims, channels_last_strides(spec.dst_dims)), Eltwise("relu"))
    found = library.get()
    assert found is not None
    x, filter = normal(*spec.shape(spec.src_dims)), normal(*spec.filter_shape, seed=1)
    bias, addend = normal(spec.out_depth, seed=2), normal(*spec.shape(spec.dst_dims), seed=3)
    expected = by_definition(spec, x, filter)
    with conv.Maker(found, 2) as m:
        plain = winograd.Winograd(m, spec, None, (), True)
        full = winograd.Winograd(m, spec, FLOAT32, post_ops, True)
        changing = winograd.Winograd(m, spec, FLOAT32, post_ops, False)
    if strip in (*TOGETHER, APART[-1]):
        assert plain.is_apart is full.is_apart is (strip in APART)
    near = 1e-6 * np.abs(expected).max() + 1e-6
    for _ in range(2):  # the second time buffers are full of the first time's values
        np.testing.assert_allclose(plain.constant.run(x, filter), expected, atol=near, rtol=0)
        for run in (full.constant.run, changing.run):
            np.testing.assert_allclose(run(x, filter, bias, addend), np.maximum(expected + bias + addend, 0), atol=near, rtol=0)


@pytest.mark.parametrize("strip", [*TOGETHER, *APART])
@pytest.mark.parametrize("spec", SHAPES, ids=lambda s: f"{s.batch}x{s.slides[0].size}x{s.slides[1].size}x{s.depth}")
def test_gradient_of_the_input(spec: conv.Spec, strip: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, strip)
    found = library.get()
    assert found is not None
    filter, dy = normal(*spec.filter_shape), normal(*spec.shape(spec.dst_dims), seed=1)
    (top, bottom), (left, right) = ((s.before, s.after) for s in spec.slides)
    wide = np.zeros([spec.batch, *(s.size + s.before + s.after for s in spec.slides), spec.depth])
    for i in range(3):
        for j in range(3):
            wide[:, i : i + dy.shape[1], j : j + dy.shape[2]] += dy @ filter[i, j].T.astype(np.float64)
    expected = wide[:, top : wide.shape[1] - bottom, left : wide.shape[2] - right]
    with conv.Maker(found, 2) as m:
        got = winograd.BackwardInput(m, spec).run(filter, dy)
    np.testing.assert_allclose(got, expected, atol=1e-6 * np.abs(expected).max() + 1e-6, rtol=0)


@pytest.mark.parametrize("strip", [*TOGETHER, *APART])
@pytest.mark.parametrize("spec", [s for s in SHAPES if s.depth % 4 == 0 and s.out_depth % 16 == 0] + [spec_of(2, (7, 9), 20, 80), spec_of(4, (6, 6), 16, 64)])
def test_gradient_of_the_filter(spec: conv.Spec, strip: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, strip)
    found = library.get()
    assert found is not None
    x, dy = normal(*spec.shape(spec.src_dims)), normal(*spec.shape(spec.dst_dims), seed=1)
    wide = np.pad(x.astype(np.float64), ((0, 0), *((s.before, s.after) for s in spec.slides), (0, 0)))
    rows, columns = (s.out for s in spec.slides)
    expected = [[np.einsum("nhwc,nhwo->co", wide[:, i : i + rows, j : j + columns], dy) for j in range(3)] for i in range(3)]
    with conv.Maker(found, 2) as m:
        plan = winograd.BackwardFilter(m, spec, True)
    near = 2e-6 * np.abs(expected).max()
    for _ in range(2):
        dw, db = plan.run(x, dy)
        np.testing.assert_allclose(dw, expected, atol=near, rtol=0)
        np.testing.assert_allclose(db, dy.sum((0, 1, 2), dtype=np.float64), atol=near, rtol=0)


def test_about_as_accurate_as_the_definition_in_float32() -> None:
    spec = spec_of(1, (14, 14), 256, 256)
    x, filter = normal(1, 14, 14, 256), normal(3, 3, 256, 256, seed=1)
    exact = by_definition(spec, x, filter)
    found = library.get()
    assert found is not None
    direct = planned(conv.Forward, found, spec.microseconds, spec, None, (), False)
    errors = [np.abs(p.constant.run(x, filter) - exact).max() for p in (direct, plan_of(spec))]
    assert errors[1] < 3 * errors[0]


def test_transformed_filter() -> None:
    filter = normal(3, 3, 2, 4)
    expected = np.einsum("ai,bj,ijco->abco", winograd.FILTER, winograd.FILTER, filter.astype(np.float64))
    np.testing.assert_array_equal(winograd.transformed(filter), expected.reshape(16, 2, 4).astype(np.float32))


@pytest.mark.parametrize("strip", [TOGETHER[1], APART[1]])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [(0, 0, 0, 0), (0, 6, 6, 3), (1, 11, 10, 17)])
def test_no_result_where_cells_are_not_finite(value: float, place: tuple[int, ...], strip: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The transforms spread such cells over tiles of results; the definition is asked then."""
    choose(monkeypatch, strip)
    spec = spec_of(2, (12, 11), 20, 18)
    x, filter = normal(2, 12, 11, 20), normal(3, 3, 20, 18, seed=1)
    found = library.get()
    assert found is not None
    with conv.Maker(found, 2) as m:
        plan = winograd.Winograd(m, spec, None, (Eltwise("relu"),), True)
    assert plan.is_apart is (strip in APART)
    assert plan.constant.run(x, filter) is not None
    right = x[place]
    x[place] = value
    assert plan.constant.run(x, filter) is None
    x[place] = right
    assert plan.constant.run(x, filter) is not None


@pytest.mark.parametrize("strip", [TOGETHER[1], APART[-1]], ids=str)
def test_one_step_that_is_not_finite_leaves_no_doubt_about_the_next(strip: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tile has computed beyond an image of odd size is no addend of the next tile's."""
    choose(monkeypatch, strip)
    spec = spec_of(1, (7, 9), 32, 32)
    plan = plan_of(spec, post_ops=(Add(spec.dst_dims, channels_last_strides(spec.dst_dims)),))
    x, filter, addend = normal(*spec.shape(spec.src_dims)), normal(*spec.filter_shape, seed=1), normal(*spec.shape(spec.dst_dims), seed=2)
    bad = x.copy()
    bad[0, -1, -1, 0] = np.nan
    assert plan.run(bad, filter, addend) is None
    y = plan.run(x, filter, addend)
    assert y is not None
    np.testing.assert_allclose(y, by_definition(spec, x, filter) + addend, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_gradients_do_not_depend_on_which_thread_is_quicker(threads: int) -> None:
    spec = spec_of(16, (16, 16), 32, 64)
    found = library.get()
    assert found is not None
    x, filter, dy = normal(16, 16, 16, 32), normal(3, 3, 32, 64, seed=1), normal(16, 16, 16, 64, seed=2)
    with conv.Maker(found, threads) as m:
        of_filter, of_input = winograd.BackwardFilter(m, spec, True), winograd.BackwardInput(m, spec)
    assert of_filter.is_apart and of_input.turned.is_apart
    first, *others = ([*of_filter.run(x, dy), of_input.run(filter, dy)] for _ in range(8))
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("spec", "threads", "expected"),
    [
        (spec_of(32, (16, 16), 32, 64), 2, (1, 8)),  # an image for each thread
        (spec_of(32, (8, 8), 64, 64), 2, (4, 4)),
        (spec_of(1, (56, 56), 64, 64), 2, (1, 2)),
        (spec_of(1, (14, 14), 256, 256), 2, None),  # few tiles, and many weights
        (spec_of(3, (10, 10), 64, 64), 2, None),  # one thread would wait for the other
        (spec_of(3, (10, 10), 64, 64), 1, (3, 5)),
    ],
)
def test_strips_of_one_s_own(spec: conv.Spec, threads: int, expected: tuple[int, int] | None) -> None:
    assert winograd._of_own(spec, threads) == expected


@pytest.mark.parametrize("activation", [None, tf.nn.relu, tf.nn.relu6, tf.nn.leaky_relu])
@pytest.mark.parametrize("follows", ["", "bias", "sum", "bias sum", "norm sum"])
def test_what_is_not_finite_stays_where_its_windows_are(activation: Any, follows: str) -> None:
    x, addend = normal(2, 16, 16, 64), normal(2, 16, 16, 64, seed=3)
    filter, bias = normal(3, 3, 64, 64, seed=1), normal(64, seed=2)
    x[0, 5, 5, 3], x[1, 0, 15, 0], addend[0, 12, 12, 5] = np.inf, np.nan, np.nan
    expected = by_definition(spec_of(2, (16, 16), 64, 64), x, filter).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        fed, other = tf.placeholder(tf.float32, x.shape), tf.placeholder(tf.float32, x.shape)
        y = tf.nn.conv2d(fed, filter, padding="SAME")
        if "bias" in follows:
            y, expected = tf.nn.bias_add(y, bias), expected + bias
        if "norm" in follows:
            ones, zeros = np.ones(64, np.float32), np.zeros(64, np.float32)
            y, expected = tf.nn.fused_batch_norm(y, ones, bias, zeros, ones, 1e-6, is_training=False)[0], expected + bias
        if "sum" in follows:
            y, expected = y + other, expected + addend
        if activation is not None:
            y = activation(y)
            joined = follows == "bias" and activation is not tf.nn.leaky_relu  # as TensorFlow joins them, so that NaN becomes 0
            expected = np.where(np.isnan(expected), 0 if joined else np.nan, expected)
            expected = session.run(activation(expected))
        got = session.run(y, {fed: x, other: addend})
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)


def test_gradients_of_what_is_not_finite() -> None:
    spec = spec_of(4, (28, 28), 64, 64)
    x, filter, dy = normal(4, 28, 28, 64), normal(3, 3, 64, 64, seed=1), normal(4, 28, 28, 64, seed=2)
    x[0, 3, 3, 1], dy[1, 6, 6, 2] = np.inf, np.nan
    found = library.get()
    assert found is not None
    checked = conv.backward_input(found, spec), conv.backward_filter(found, spec, True)
    direct = planned(conv.BackwardInput, found, spec.microseconds, spec, False), planned(conv.BackwardFilter, found, spec.microseconds, spec, True)
    np.testing.assert_array_equal(checked[0].run(filter, dy), direct[0].run(filter, dy))
    for got, expected in zip(checked[1].run(x, dy), direct[1].run(x, dy), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_weights_given_by_address() -> None:
    spec = spec_of(1, (14, 14), 32, 32)
    plan = plan_of(spec, has_bias=True)
    x, filter, bias = normal(1, 14, 14, 32), normal(3, 3, 32, 32, seed=1), normal(32, seed=2)
    weights, vector = plan.weights.laid_out(filter), plan.vector(bias)
    got = plan.run_at(x, weights.address, (address(vector),))
    np.testing.assert_allclose(got, by_definition(spec, x, filter) + bias, atol=1e-4)


# -- which plan ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (spec_of(1, (14, 14), 256, 256), True),
        (spec_of(1, (28, 28), 128, 128), True),
        (spec_of(8, (14, 14), 256, 256), True),
        (spec_of(1, (56, 56), 64, 64), True),
        (spec_of(1, (112, 112), 16, 16), False),  # the transforms take too long
        (spec_of(32, (32, 32), 16, 32), True),
        (spec_of(32, (8, 8), 32, 32), True),
        (spec_of(1, (56, 56), 32, 32), True),
        (spec_of(1, (7, 7), 512, 512), False),  # the filter does
        (spec_of(1, (4, 4), 32, 32), False),
        (spec_of(1, (28, 28), 256, 256, stride=2), False),
        (spec_of(1, (28, 28), 256, 256, dilation=2), False),
        (spec_of(1, (28, 28), 256, 256)._replace(channels_last=False), False),
        (spec_of(1, (28, 28), 256, 256)._replace(groups=2), False),
    ],
)
def test_where_it_pays(spec: conv.Spec, expected: bool) -> None:
    assert winograd.pays(spec) is expected


def test_filters_that_may_change_pay_later() -> None:
    found = library.get()
    assert found is not None
    small, large = spec_of(1, (10, 10), 256, 256), spec_of(32, (16, 16), 64, 64)
    assert isinstance(conv.forward_plan(found, small, is_constant=True), winograd.Winograd)
    assert isinstance(conv.forward_plan(found, small, is_constant=False), conv.Forward)
    assert isinstance(conv.forward_plan(found, large, is_constant=False), winograd.Winograd)
    assert isinstance(conv.backward_input(found, large), conv.Checked)
    assert isinstance(conv.backward_filter(found, large, True), conv.Checked)


@pytest.mark.parametrize("activation", ["relu", "relu6", "elu", "tanh"])
@pytest.mark.parametrize("has_addend", [False, True])
def test_in_a_frozen_graph(activation: str, has_addend: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    inner = winograd.Winograd.run_at
    monkeypatch.setattr(winograd.Winograd, "run_at", lambda *args: runs.append(1) or inner(*args))
    spec = spec_of(1, (14, 14), 128, 256)
    x, filter = normal(1, 14, 14, 128), normal(3, 3, 128, 256, seed=1) / 16
    vectors = [normal(256, seed=i) for i in range(2, 5)] + [np.abs(normal(256, seed=5)) + 0.5]
    addend = normal(1, 14, 14, 256, seed=6)
    with tf.Graph().as_default(), tf.Session() as sess:
        images, more = tf.placeholder(tf.float32, x.shape), tf.placeholder(tf.float32, addend.shape)
        y = tf.nn.conv2d(images, tf.constant(filter), strides=1, padding="SAME")
        scale, offset, mean, variance = map(tf.constant, vectors)
        y = tf.nn.fused_batch_norm(y, scale, offset, mean, variance, epsilon=1e-3, is_training=False)[0]
        y = getattr(tf.nn, activation)(y + more if has_addend else y) * 2.0
        got = [sess.run(y, {images: x, more: addend}) for _ in range(2)]
    scale, offset, mean, variance = (v.astype(np.float64) for v in vectors)
    z = (by_definition(spec, x, filter) - mean) * scale / np.sqrt(variance + 1e-3) + offset + (addend if has_addend else 0)
    functions: dict[str, Any] = {
        "relu": lambda v: np.maximum(v, 0), "relu6": lambda v: np.clip(v, 0, 6), "elu": lambda v: np.where(v > 0, v, np.expm1(v)), "tanh": np.tanh,
    }  # fmt: skip
    assert len(runs) == (2 if activation in ("relu", "relu6") else 0)  # others do not come with the transforms
    for result in got:
        np.testing.assert_allclose(result, functions[activation](z) * 2, atol=2e-4, rtol=1e-5)


def test_batches_of_several_sizes_share_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    inner = winograd.transformed
    monkeypatch.setattr(winograd, "transformed", lambda filter: made.append(1) or inner(filter))
    filter = normal(3, 3, 256, 256, seed=1) / 32
    with tf.Graph().as_default(), tf.Session() as sess:
        images = tf.placeholder(tf.float32, [None, 14, 14, 256])
        bias = normal(256, seed=2)
        y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(images, tf.constant(filter), strides=1, padding="SAME"), tf.constant(bias)))
        for batch in (1, 3, 5, 1):
            x = normal(batch, 14, 14, 256, seed=batch)
            expected = np.maximum(by_definition(spec_of(batch, (14, 14), 256, 256), x, filter) + bias, 0)
            np.testing.assert_allclose(sess.run(y, {images: x}), expected, atol=1e-4)
    assert len(made) == 1
