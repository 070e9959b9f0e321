"""Reductions of many rows at a time against NumPy's."""

import ml_dtypes
import numpy as np
import pytest

import penstock as tf
from penstock.ops import native
from penstock.ops.kernels import short_rows
from penstock.ops.native import folds, rowwise

pytestmark = [
    pytest.mark.skipif(not native.available(), reason="no loops in machine code here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
SHAPES = [(16, 4), (17, 5), (33, 16), (31, 17), (100, 100), (19, 257), (8, 8), (9, 31), (1000, 64), (2000, 100), (40, 4096)]
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def matrix(shape, dtype, seed=0):
    random = np.random.RandomState(seed)
    if np.dtype(dtype).kind == "i":
        return random.randint(-(1 << 31), 1 << 31, shape).astype(dtype)
    x = (random.randn(*shape) * 100).astype(dtype)
    for value in (np.nan, -np.nan, np.inf, -np.inf, -0.0):
        x[random.randint(shape[0], size=2), random.randint(shape[1], size=2)] = value
    x[-1] = random.choice([-np.inf, np.nan])
    return x


@pytest.fixture
def any_size(monkeypatch):
    monkeypatch.setattr(folds, "LEAST", 1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum, np.minimum])
def test_of_whole_numbers(any_size, ufunc, dtype, shape):
    x = matrix(shape, dtype)
    found = folds.fold(ufunc, x)
    if shape[0] < 64 // x.itemsize:
        assert found is None
    else:
        np.testing.assert_array_equal(found, ufunc.reduce(x, 1, dtype), strict=True)
    if ufunc is np.add and dtype is np.int32 and shape[0] >= 16:
        np.testing.assert_array_equal(folds.fold(ufunc, x, wide=True), ufunc.reduce(x, 1, np.int64), strict=True)


@pytest.mark.parametrize("shape", [s for s in SHAPES if s[0] >= 16])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum])
def test_extremes_with_nan_and_infinities(any_size, ufunc, dtype, shape):
    for seed in range(3):
        x = matrix(shape, dtype, seed)
        found, expected = folds.fold(ufunc, x), ufunc.reduce(x, 1)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_have_the_order_of_single_rows(dtype):
    for shape in ((1000, 8), (333, 100), (50, 1000), (17, 4096), (4096, 5)):
        x = np.random.RandomState(0).uniform(-1.2, 1.2, shape).astype(dtype)
        found, alone = folds.fold(np.multiply, x), rowwise.reduce_rows(np.multiply, x, (1,))
        assert (found is None) == (alone is None) == (shape[1] < 8)
        if found is not None:
            np.testing.assert_array_equal(found, alone)


def test_what_it_leaves_alone(any_size):
    x = matrix((100, 100), np.float32)
    for ufunc, rows in ((np.add, x), (np.maximum, x[:7]), (np.maximum, x[:, :3]), (np.maximum, x.astype(np.int8)), (np.multiply, x.astype(np.float16)), (np.logical_or, x)):
        assert folds.fold(ufunc, np.ascontiguousarray(rows)) is None
    assert short_rows.fold_rows(np.maximum, np.tile(x, (2, 2)).T, (1,), False) is None
    assert short_rows.fold_rows(np.maximum, np.tile(x, (2, 2)), (0,), False) is None
    assert folds.fold(np.maximum, np.zeros((0, 100), np.float32)) is None


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [(2,), (-1, 1), (1, 2), (0, 2), (0,), (0, 1, 2)])
def test_ops(dtype, axes, keepdims):
    x = matrix((40, 500), dtype if dtype is not np.uint8 else np.int32).astype(dtype).reshape(40, 20, 25)
    holder = tf.placeholder(x.dtype)
    results = {np.maximum: tf.reduce_max(holder, axes, keepdims), np.minimum: tf.reduce_min(holder, axes, keepdims)}
    if x.dtype.kind in "iu":
        results |= {np.add: tf.reduce_sum(holder, axes, keepdims), np.multiply: tf.reduce_prod(holder, axes, keepdims)}
    mean = tf.reduce_mean(holder, axes, keepdims)
    with tf.Session() as session:
        found, middle = session.run([list(results.values()), mean], {holder: x})
    for ufunc, got in zip(results, found):
        options = {} if x.dtype.kind not in "iu" else {"dtype": x.dtype}
        expected = np.asarray(ufunc.reduce(x, axes, keepdims=keepdims, **options))
        assert got.dtype == expected.dtype and got.shape == expected.shape
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64))
    if x.dtype.kind in "iu":
        exact = np.trunc(np.mean(x.astype(np.longdouble), axes, keepdims=keepdims)).astype(x.dtype)
        assert np.abs(middle.astype(np.float64) - exact.astype(np.float64)).max() <= (0 if dtype is not np.int64 else 1)
