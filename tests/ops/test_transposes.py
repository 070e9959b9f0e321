"""Axes in another order, by machine code: every permutation of shapes of all kinds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from penstock.ops import array, native
from penstock.ops.native import transposes

pytestmark = pytest.mark.skipif(not native.available(), reason="no loops in machine code here")

SHAPES = [(17, 33), (16, 16), (3, 100), (2, 5), (5, 3, 40), (2, 3, 17, 19), (2, 17, 19, 5), (1, 40, 1, 50), (2, 3, 4, 5, 20), (20, 1, 30), (900, 21), (21, 900), (7, 70, 7, 9)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind, other", [(np.int8, np.uint8), (np.int16, np.float16), (np.int32, np.float32), (np.int64, np.complex64)])
def test_every_permutation_of_arrays_and_slices(shape, kind, other, monkeypatch):
    monkeypatch.setattr(transposes, "_LARGE", 1)
    bounds = np.iinfo(kind)
    x = np.random.default_rng(0).integers(bounds.min, bounds.max, shape, kind)
    used = 0
    for axes in itertools.permutations(range(len(shape))):
        for view in (x.transpose(axes), x[..., 1:].view(other).transpose(axes), x[::-1].transpose(axes)):
            found = transposes.turned(view)
            if found is not None:
                used += 1
                assert found.flags.c_contiguous and found.dtype == view.dtype
                np.testing.assert_array_equal(found.view(kind), np.ascontiguousarray(view).view(kind))
    assert used or max(shape) < transposes._SIDES[x.itemsize]


def test_large_arrays_on_several_threads():
    x = np.random.default_rng(0).standard_normal((3, 150, 41, 64)).astype(np.float32)
    for axes in ((0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 3, 2)):
        found = transposes.turned(x.transpose(axes))
        assert found is not None
        np.testing.assert_array_equal(found, x.transpose(axes))


def test_others_are_left_to_numpy():
    x = np.zeros((300, 300), np.float32)
    assert transposes.turned(x) is None
    assert transposes.turned(np.zeros((300, 300), np.complex128).T) is None  # 16 bytes each
    assert transposes.turned(x[:100, :100].T) is None  # small
    assert transposes.turned(np.broadcast_to(np.zeros(1, np.float32), (300, 300))) is None
    assert transposes.turned(x[:, ::2].T) is None


def test_transpose_gives_an_array_of_its_own():
    x = np.random.default_rng(0).standard_normal((200, 300)).astype(np.float32)
    y = array.transpose_kernel(x, np.array([1, 0]))
    assert y.flags.c_contiguous
    np.testing.assert_array_equal(y, x.T)
