"""Loops that leave rows early or write to places that are given: the same as naive formulas, and nothing is written elsewhere."""

import numpy as np
import pytest

from penstock import errors
from penstock.ops import counting
from penstock.ops.array import invert_permutation_kernel
from penstock.ops.kernels import topk


def naive_in_top_k(x, targets, k):
    """TensorFlow's loop: a row that has found more than k larger ones is left before what is not finite."""
    found = []
    for row, target in zip(x.tolist(), targets.tolist(), strict=True):
        if not 0 <= target < len(row):
            found.append(False)
            continue
        larger = sum(value > row[target] for value in row)
        found.append(larger < k and bool(np.isfinite(row).all()))
    return found


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("rows", "classes"), [(1, 64), (64, 1), (3, 100), (37, 15), (37, 16), (29, 17), (200, 33), (300, 1001)])
@pytest.mark.parametrize("k", [-1, 0, 1, 3, 20, 1 << 30])
def test_in_top_k(rows, classes, dtype, k):
    random = np.random.RandomState(rows + classes)
    x = random.randint(-50, 50, (rows, classes)).astype(np.float32)
    targets = random.randint(-1, classes + 1, rows).astype(dtype)
    targets[:1] = np.iinfo(dtype).min if rows > 1 else 0
    for bad in (None, np.nan, np.inf, -np.inf):
        if bad is not None:
            x[random.randint(0, rows, rows // 3 + 1), random.randint(0, classes, rows // 3 + 1)] = bad
        for given in (x, np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], x[::-1]):
            with np.errstate(all="ignore"):
                got = topk.in_top_k(given, targets, np.asarray(k, dtype))
            assert got.dtype == bool
            assert got.tolist() == naive_in_top_k(given, targets, k)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 1000, 70001])
def test_inverse_of_a_permutation(dtype, n):
    order = np.random.RandomState(n).permutation(n).astype(dtype)
    for given in (order, np.repeat(order, 3)[::3], order[::-1]):
        got = invert_permutation_kernel(given)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got[given], np.arange(n))
        np.testing.assert_array_equal(np.argsort(given), got)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("n", [64, 1000])
def test_what_is_no_permutation(dtype, n):
    order = np.random.RandomState(n).permutation(n).astype(dtype)
    for bad in (n, -1, np.iinfo(dtype).max, np.iinfo(dtype).min):
        for at in (0, n // 2, n - 1):
            given = order.copy()
            given[at] = bad
            with pytest.raises(errors.InvalidArgumentError, match=f"{bad} is not between 0 and {n}"):
                invert_permutation_kernel(given)
    order[n // 3] = order[5]
    with pytest.raises(errors.InvalidArgumentError, match=f"{order[5]} is duplicated in the input"):
        invert_permutation_kernel(order)


@pytest.mark.parametrize("places", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize(("n", "bins"), [(64, 7), (1000, 1), (1000, 0), (5001, 100), (999, 5000)])
def test_sums_of_weights(dtype, places, n, bins):
    random = np.random.RandomState(n + bins)
    values, weights = random.randint(0, 2 * bins + 3, n).astype(places), (random.randn(n) * 1000).astype(dtype)
    values[:2] = np.iinfo(places).max
    for x, w in ((values, weights), (np.repeat(values, 2)[::2], weights[::-1])):
        want = np.zeros(bins, dtype)
        for place, weight in zip(x.tolist(), w, strict=True):
            if place < bins:
                want[place] += weight
        got = counting.dense_bincount_kernel(x, np.asarray(bins, places), w, binary_output=False)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(counting.bincount_kernel(x, bins, w), want)
    with pytest.raises(errors.InvalidArgumentError, match="must be non-negative"):
        counting.dense_bincount_kernel(-values[2:], np.asarray(bins, places), weights[2:], binary_output=False)
