"""Crops and regions drawn at random: TensorFlow's for the same seeds; glimpses; fractional pooling and its gradients."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from penstock.ops.kernels import distorted, fractional, glimpses
from penstock.ops.philox import PhiloxState

SETTINGS = dict(aspect_ratio_range=[0.75, 1.33], area_range=[0.05, 1.0], max_attempts=100, use_image_if_no_bounding_boxes=False)


def test_crops_keep_enough_of_a_box():
    where = np.array([[[0.2, 0.3, 0.7, 0.9]]], np.float32)
    for seed in range(20):
        begin, size, box = distorted.sample(np.array([80, 120, 3], np.int32), where, 0.6, PhiloxState(seed, 5), **SETTINGS)
        top, left, rows, columns = int(begin[0]), int(begin[1]), int(size[0]), int(size[1])
        assert begin[2] == 0 and size[2] == -1 and begin.dtype == size.dtype == np.int32
        np.testing.assert_allclose(box[0, 0], [top / 80, left / 120, (top + rows) / 80, (left + columns) / 120], 1e-6)
        common = (min(top + rows, 56) - max(top, 16)) * (min(left + columns, 108) - max(left, 36))
        assert common / (40 * 72) >= 0.6 and 0.7 < columns / rows < 1.4


def test_crops_are_tensorflows():
    where = np.array([[[0.1, 0.2, 0.5, 0.9]]], np.float32)
    begin, size, _ = distorted.sample(np.array([80, 120, 3], np.int32), where, 0.3, PhiloxState(3, 1), **SETTINGS)
    assert begin.tolist() == [18, 9, 0] and size.tolist() == [43, 52, -1]


@pytest.mark.parametrize("overlapping", [False, True])
def test_fractional_pooling(overlapping):
    x = np.random.default_rng(0).standard_normal((2, 9, 11, 3))
    attrs = dict(pooling_ratio=[1.0, 1.4, 1.7, 1.0], overlapping=overlapping, deterministic=True, seed=3, seed2=1, state=SimpleNamespace())
    for pseudo in (False, True):
        largest, rows, columns = fractional.fractional_max_pool(x, pseudo_random=pseudo, **attrs)
        means, *_ = fractional.fractional_avg_pool(x, pseudo_random=pseudo, **attrs)
        assert rows[0] == columns[0] == 0 and rows[-1] == 9 and columns[-1] == 11 and largest.shape == (2, 6, 6, 3)
        dy = np.random.default_rng(1).standard_normal(largest.shape)
        dx, da = np.zeros(x.shape), np.zeros(x.shape)
        for i in range(6):
            for j in range(6):
                region = np.s_[:, rows[i] : rows[i + 1] + overlapping, columns[j] : columns[j + 1] + overlapping]
                cells = x[region]
                np.testing.assert_array_equal(largest[:, i, j], cells.max((1, 2)))
                np.testing.assert_allclose(means[:, i, j], cells.mean((1, 2)), 1e-12)
                dx[region] += (cells == cells.max((1, 2), keepdims=True)) * dy[:, i : i + 1, j : j + 1]
                da[region] += dy[:, i : i + 1, j : j + 1] / (cells.shape[1] * cells.shape[2])
        np.testing.assert_allclose(fractional.fractional_max_pool_grad(x, largest, dy, rows, columns, overlapping=overlapping), dx, 1e-12)
        found = fractional.fractional_avg_pool_grad(np.array(x.shape), dy, rows, columns, overlapping=overlapping)
        np.testing.assert_allclose(found, da, 1e-12)


def test_borders_are_tensorflows():
    gen = PhiloxState(4, 2)
    assert fractional.borders(7, 5, lambda words: gen.reserve_words(words).words(words).tolist(), False).tolist() == [0, 2, 4, 5, 6, 7]


def test_glimpses_of_the_border_are_noise_within_the_range():
    x = np.random.default_rng(0).uniform(5, 9, (2, 6, 8, 2)).astype(np.float32)
    offsets = np.array([[0, 0], [-1, -1]], np.float32)
    attrs = dict(centered=True, normalized=True)
    for kind, uniform in ((b"uniform", True), (b"gaussian", False)):
        glimpse = glimpses.extract_glimpse(x, np.array([4, 4], np.int32), offsets, uniform_noise=uniform, noise=kind, **attrs)
        np.testing.assert_array_equal(glimpse[0], x[0, 1:5, 2:6])
        np.testing.assert_array_equal(glimpse[1, 2:, 2:], x[1, :2, :2])
        assert (glimpse >= 5).all() and (glimpse <= 9).all()
    zeros = glimpses.extract_glimpse(x, np.array([4, 4], np.int32), offsets, uniform_noise=False, noise=b"zero", **attrs)
    assert not zeros[1, :2].any()


@pytest.mark.parametrize("size", [[0, 3], [3, 0], [20, 20]])
def test_glimpses_of_any_size(size):
    x = np.random.default_rng(0).uniform(5, 9, (2, 6, 8, 2)).astype(np.float32)
    for offsets in ([[0, 0], [-1, -1]], [[100, 0], [0, -9]]):
        for noise in (b"uniform", b"gaussian", b"zero"):
            found = glimpses.extract_glimpse(x, np.int32(size), np.float32(offsets), centered=True, normalized=False, uniform_noise=noise == b"uniform", noise=noise)
            assert found.shape == (2, *size, 2) and found.dtype == np.float32
            if found.size and noise != b"zero":
                assert x.min() <= found.min() and found.max() <= x.max() and not np.array_equal(found[0], found[1])
