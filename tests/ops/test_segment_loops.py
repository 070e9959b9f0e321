"""Segments in one pass give what one row after the other gives."""

import numpy as np
import pytest

from penstock.errors import InvalidArgumentError
from penstock.ops import segment, sparse_segment
from penstock.ops.native import segments

pytestmark = pytest.mark.skipif(not segments.native.available(), reason="no machine code here")


def _one_by_one(ufunc, rows, ids, count, gap, scale=""):
    result = np.full((count, *rows.shape[1:]), segments.identity(ufunc, rows.dtype))
    sizes = np.bincount(ids, minlength=count)
    with np.errstate(all="ignore"):
        for i, row in zip(ids.tolist(), rows, strict=True):
            ufunc(result[i], row, out=result[i])
    for i, size in enumerate(sizes.tolist()):
        if not size:
            result[i] = gap
        elif scale == segments.QUOTIENT:
            result[i] /= rows.dtype.type(size)
        elif scale:
            result[i] *= rows.dtype.type(1 / (np.sqrt(size) if scale == segments.ROOT else size))
    return result


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("width", [2, 3, 8, 16, 17, 64, 100, 128, 133, 300, 1025])
@pytest.mark.parametrize("is_picked", [False, True])
def test_groups_of_any_width(dtype, width, is_picked):
    random = np.random.RandomState(width)
    for n, count, id_type in ((1, 1, np.int32), (1, 5, np.int64), (40, 13, np.int32), (40, 100, np.int64), (300, 4, np.int32)):
        ids = np.sort(random.randint(0, count, n)).astype(id_type)
        data = (random.randn(n, width) * 3).astype(dtype)
        if np.dtype(dtype).kind == "f":
            data[random.rand(n, width) < 0.05] = -0.0
            data[random.rand(n, width) < 0.02] = np.nan
            data[random.rand(n, width) < 0.01] = np.inf
        picks = random.randint(0, n, n).astype(np.int64 if id_type == np.int32 else np.int32) if is_picked else None
        rows = data if picks is None else data[picks]
        for ufunc, gap in ((np.add, 0), (np.multiply, 1), (np.maximum, 0), (np.minimum, 0)):
            got, want = segments.reduce_groups(ufunc, data, ids, count, gap, picks), _one_by_one(ufunc, rows, ids, count, gap)
            np.testing.assert_array_equal(got, want)
            if ufunc is np.add:
                np.testing.assert_array_equal(np.signbit(np.asarray(got)), np.signbit(want))
        if np.dtype(dtype).kind == "f":
            for scale in (segments.QUOTIENT, segments.SHARE, segments.ROOT):
                np.testing.assert_array_equal(segments.reduce_groups(np.add, data, ids, count, 0, picks, scale), _one_by_one(np.add, rows, ids, count, 0, scale))


@pytest.mark.parametrize("shape", [(200, 3, 5), (200, 6)])
def test_views(shape):
    random = np.random.RandomState(0)
    data, ids = random.randn(*shape), np.sort(random.randint(0, 20, 400))[::2]
    want = _one_by_one(np.add, data, ids, 20, 0)
    for view in (np.asfortranarray(data), data[::-1].copy()[::-1], np.concatenate([data, data], -1)[..., : shape[-1]]):
        np.testing.assert_array_equal(segments.reduce_groups(np.add, view, ids, 20, 0), want)


def test_many_rows_on_several_threads():
    random = np.random.RandomState(0)
    data = random.randn(40_000, 70).astype(np.float32)
    for ids in (np.sort(random.randint(0, 3000, 40_000)), np.repeat([0, 7], [39_999, 1]), np.repeat([2, 9], [5, 39_995])):
        count = int(ids[-1]) + 3
        np.testing.assert_array_equal(segments.reduce_groups(np.maximum, data, ids, count, 0), _one_by_one(np.maximum, data, ids, count, 0))
        for at, number in ((5, count), (20_000, -1), (39_999, -5), (0, -1), (30_000, 0)):
            bad = ids.copy()
            bad[at] = number
            assert (np.diff(bad) >= 0).all() or segments.reduce_groups(np.add, data, bad, count, 0) is None


@pytest.mark.parametrize("ids", [[-1, 0, 2], [0, 2, 1], [0, 1, 3], [3, 3, 3], [1, -1, 1]])
def test_bad_ids_and_picks(ids):
    data, good = np.ones((3, 4)), np.array([0, 1, 1])
    assert segments.reduce_groups(np.add, data, np.array(ids), 3, 0) is None
    assert segments.reduce_groups(np.add, data, good, 3, 0, np.array([0, 2, -1])) is None
    assert segments.reduce_groups(np.add, data, good, 3, 0, np.array([0, 3, 1])) is None
    assert segments.reduce_groups(np.add, data, good, 3, 0, np.array([0, 1])) is None
    assert segments.reduce_groups(np.add, data[:2], good, 3, 0) is None
    with pytest.raises(InvalidArgumentError, match="out of range"):
        sparse_segment._selected(data, np.array([0, 3, 1]), good, None, "")
    with pytest.raises(InvalidArgumentError, match="same size"):
        segment.segment_mean_kernel(data[:2], good)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_means_of_vectors(dtype):
    data, ids = np.arange(1, 8).astype(dtype), np.array([0, 0, 2, 2, 2, 5, 5], np.int32)
    np.testing.assert_array_equal(segment.segment_mean_kernel(data, ids), np.array([1.5, 0, 4, 0, 0, 6.5], dtype))
    np.testing.assert_array_equal(segment.segment_mean_kernel(data[:, None], ids), np.array([1.5, 0, 4, 0, 0, 6.5], dtype)[:, None])
