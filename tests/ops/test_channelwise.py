"""Convolutions of few channels, each on its own: machine code against the kernels' other forms."""

from __future__ import annotations

import numpy as np
import pytest

from penstock import dtypes
from penstock.engines.onednn.window_kernels import Window
from penstock.ops import native
from penstock.ops.kernels import channelwise, conv, depthwise
from penstock.ops.native import channels

pytestmark = pytest.mark.skipif(not native.available(), reason="no loops in machine code here")


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    monkeypatch.setattr(channels, "LEAST", 1)
    monkeypatch.setattr(channels, "MOST_CHANNELS", 14)
    monkeypatch.setattr(channels, "MOST_OF_SMALL_WINDOWS", 14)
    monkeypatch.setattr(channelwise, "MOST_RESULTS", 5)


@pytest.fixture
def both(monkeypatch):
    """A function's results in machine code and without it; the first must have been used."""

    def call(function, *args, **attrs):
        count = [0]
        for name in ("correlate", "weight_gradient"):
            def counted(*args, known=getattr(channels, name)):
                count[0] += 1
                return known(*args)

            monkeypatch.setattr(channels, name, counted)
        got = function(*args, **attrs)
        assert count == [1]
        with monkeypatch.context() as patch:
            patch.setattr(channelwise, "suits", lambda *_: False)
            expected = function(*args, **attrs)
        assert got.shape == expected.shape and got.dtype == expected.dtype
        scale = np.abs(expected[np.isfinite(expected)]).max()
        np.testing.assert_allclose(got.astype(float), expected.astype(float), 1e-3 if got.dtype == np.float16 else 1e-5, 1e-5 * scale)
        return got

    return call


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


CASES = [
    # size, window, dilations, padding
    ((5, 6), (3, 3), (1, 1), b"SAME"),
    ((9, 70), (2, 5), (2, 3), b"VALID"),
    ((1, 4500), (1, 9), (1, 1), b"SAME"),
    ((13, 11), (11, 11), (1, 1), b"SAME"),
    ((4, 40), (3, 1), (1, 1), b"VALID"),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("depth", "multiplier"), [(1, 1), (2, 1), (3, 1), (5, 1), (7, 1), (8, 1), (12, 1), (3, 2), (1, 5)])
def test_depthwise_convolutions(case, depth, multiplier, both):
    size, window, dilations, padding = case
    x, w = normal(2, *size, depth), normal(*window, depth, multiplier)
    attrs = dict(strides=[1, 1, 1, 1], padding=padding, dilations=[1, *dilations, 1])
    y = both(depthwise.depthwise_conv2d, x, w, **attrs)
    dy = normal(*y.shape)
    both(depthwise.depthwise_conv2d_backprop_input, np.array(x.shape), w, dy, **attrs)
    both(depthwise.depthwise_conv2d_backprop_filter, x, np.array(w.shape), dy, **attrs)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_groups_of_one_channel_and_channels_first(both, dtype):
    x, w = normal(2, 3, 8, 20, dtype=dtype), normal(3, 3, 1, 6, dtype=dtype)
    attrs = dict(strides=[1, 1, 1, 1], padding=b"EXPLICIT", explicit_paddings=[0, 0, 0, 0, 1, 2, 0, 1], data_format=b"NCHW", dilations=[1, 1, 1, 1])
    y = both(conv.conv2d, x, w, **attrs)
    dy = normal(*y.shape, dtype=dtype)
    both(conv.conv2d_backprop_input, np.array(x.shape), w, dy, **attrs)
    both(conv.conv2d_backprop_filter, x, np.array(w.shape), dy, **attrs)


def test_three_dimensions(both):
    x, w = normal(2, 4, 5, 18, 1), normal(3, 2, 5, 1, 1)
    attrs = dict(strides=[1] * 5, padding=b"SAME")
    y = both(conv.conv3d, x, w, **attrs)
    dy = normal(*y.shape)
    both(conv.conv3d_backprop_input, np.array(x.shape), w, dy, **attrs)
    both(conv.conv3d_backprop_filter, x, np.array(w.shape), dy, **attrs)


def test_many_rows_on_several_threads(both):
    x, w = normal(3, 90, 120, 3), normal(5, 5, 3, 1)
    attrs = dict(strides=[1, 1, 1, 1], padding=b"SAME")
    y = both(depthwise.depthwise_conv2d, x, w, **attrs)
    both(depthwise.depthwise_conv2d_backprop_filter, x, np.array(w.shape), y, **attrs)


def test_infinities_stay_where_they_are(both):
    x = normal(1, 6, 40, 3)
    x[0, 2, 39, 1], x[0, 3, 0, 2] = np.inf, np.nan
    y = both(depthwise.depthwise_conv2d, x, normal(3, 3, 3, 1), strides=[1, 1, 1, 1], padding=b"SAME")
    assert np.isfinite(y[..., 0]).all() and np.isnan(y[0, 2:5, :2, 2]).all() and np.isinf(y[0, 1:4, 38:, 1]).all()


def test_no_images():
    x, w = np.zeros((0, 8, 8, 3), np.float32), normal(3, 3, 3, 1)
    attrs = dict(strides=[1, 1, 1, 1], padding=b"SAME")
    assert depthwise.depthwise_conv2d(x, w, **attrs).shape == x.shape
    assert not depthwise.depthwise_conv2d_backprop_filter(x, np.array(w.shape), x, **attrs).any()


def test_onednn_leaves_them_alone():
    attrs = dict(data_format=b"NHWC", strides=[1, 1, 1, 1], padding=b"SAME", T=dtypes.float32)
    window = Window(attrs, True)
    assert window.spec((8, 32, 32, 3), (5, 5, 3, 1)) is None
    assert window.spec((8, 32, 32, 32), (5, 5, 32, 1)) is not None
    assert Window(attrs | {"strides": [1, 2, 2, 1]}, True).spec((8, 32, 32, 3), (5, 5, 3, 1)) is not None
    assert Window(attrs, False).spec((8, 1, 900, 1), (1, 65, 1, 1)) is None
    assert Window(attrs, False).spec((8, 32, 32, 3), (5, 5, 3, 3)) is not None
    assert Window(attrs, False).spec((8, 32, 32, 1), (5, 5, 1, 8)) is not None


def test_no_images_and_two_filters_for_each_channel():
    x, w = normal(0, 20, 20, 3), normal(3, 3, 3, 2)
    options = dict(strides=[1] * 4, padding=b"SAME")
    assert depthwise.depthwise_conv2d(x, w, **options).shape == (0, 20, 20, 6)
    dy = normal(0, 20, 20, 6)
    assert depthwise.depthwise_conv2d_backprop_input(np.array(x.shape), w, dy, **options).shape == x.shape
    np.testing.assert_array_equal(depthwise.depthwise_conv2d_backprop_filter(x, np.array(w.shape), dy, **options), np.zeros_like(w))


def test_parts_are_summed_in_one_order(monkeypatch):
    slides = [channelwise.Slide(60, 3, 1, 1, 60, 1, 1)] * 2
    x, dy = channelwise.pad(normal(8, 60, 60, 3), slides), normal(8, 60, 60, 3)
    results = []
    for order in (1, -1):
        monkeypatch.setattr(native.threads, "parallel_for", lambda count, work, order=order: [work(i) for i in range(count)[::order]])
        results.append(channels.weight_gradient(x, dy, slides))
    np.testing.assert_array_equal(*results)
