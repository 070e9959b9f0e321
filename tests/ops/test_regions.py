"""Maxima and sums over rectangles by machine code, against NumPy's way."""

import types

import ml_dtypes
import numpy as np
import pytest

from penstock import errors
from penstock.ops.kernels import fractional, pool
from penstock.ops.native import regions
from penstock.ops.native.regions import Axis

TYPES = [np.float32, np.float64, np.int32, np.int64]
DEPTHS = [1, 3, 8, 16, 17, 64, 70, 130]  # parts of a vector, whole ones, several turns, and what is left


@pytest.fixture(params=["machine code", "numpy"])
def way(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setenv("PENSTOCK_ENGINES", "numpy")
    return request.param


def numbers(shape, dtype, seed=0):
    return (np.random.RandomState(seed).randn(*shape) * 9).astype(dtype)


def slowly(op, x, rows, columns, start):
    out = np.full((len(x), len(rows.first), len(columns.first), x.shape[-1]), start, x.dtype)
    for i, (top, height) in enumerate(zip(*rows, strict=True)):
        for j, (left, width) in enumerate(zip(*columns, strict=True)):
            for y in range(top, top + height):
                for z in range(left, left + width):
                    out[:, i, j] = op(out[:, i, j], x[:, y, z])
    return out


ROWS, COLUMNS = Axis(np.array([0, 2, 3, 1, 5]), np.array([2, 1, 4, 0, 2])), Axis(np.array([4, 0, 1]), np.array([1, 5, 2]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("depth", DEPTHS)
def test_rectangles_of_any_size(dtype, depth):
    if not regions.can_fold(np.dtype(dtype)):
        pytest.skip("no machine code here")
    x = numbers((3, 7, 5, depth), dtype)
    np.testing.assert_allclose(regions.fold("add", x, ROWS, COLUMNS, 0), slowly(np.add, x, ROWS, COLUMNS, 0), rtol=1e-6, atol=1e-5)
    if np.dtype(dtype).kind == "f":
        x.ravel()[::7] = np.nan
    for name, op in (("max", np.maximum), ("fmax", np.fmax)):
        np.testing.assert_array_equal(regions.fold(name, x, ROWS, COLUMNS, -5), slowly(op, x, ROWS, COLUMNS, -5))


@pytest.mark.parametrize("axis", [Axis(np.array([0, 6]), np.array([1, 2])), Axis(np.array([-1]), np.array([1])), Axis(np.array([0]), np.array([-1]))])
def test_no_rectangle_beyond_the_image(axis):
    if not regions.can_fold(np.dtype(np.float32)):
        pytest.skip("no machine code here")
    x = numbers((1, 7, 7, 4), np.float32)
    inside = Axis(np.array([0]), np.array([7]))
    for rows, columns in ((axis, inside), (inside, axis)):
        with pytest.raises(IndexError):
            regions.fold("add", x, rows, columns, 0)
        with pytest.raises(IndexError):
            regions.spread(x, None, x, rows, columns)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("depth", [1, 17, 70])
def test_fractional_pools_with_and_without_machine_code(dtype, overlapping, depth, monkeypatch):
    x = numbers((2, 13, 11, depth), dtype)
    options = dict(pooling_ratio=[1, 1.44, 1.73, 1], pseudo_random=True, overlapping=overlapping, deterministic=True, seed=3, seed2=4, state=types.SimpleNamespace())
    results = []
    for engines in ("native", "numpy"):
        monkeypatch.setenv("PENSTOCK_ENGINES", engines)
        top, rows, columns = fractional.fractional_max_pool(x, **options)
        mean = fractional.fractional_avg_pool(x, **options)[0]
        dy = numbers(top.shape, dtype, 1)
        back = fractional.fractional_max_pool_grad(x, top, dy, rows, columns, overlapping=overlapping)
        spread = fractional.fractional_avg_pool_grad(np.array(x.shape), dy, rows, columns, overlapping=overlapping)
        results.append((top, mean, back, spread))
    for mine, numpys in zip(*results, strict=True):
        assert mine.dtype == numpys.dtype
        np.testing.assert_allclose(mine, numpys, rtol=1e-6, atol=1e-4)


def test_gradients_of_other_shapes_are_refused(way):
    x, rows = numbers((2, 4, 4, 3), np.float32), np.array([0, 2, 4])
    for shape in ((1, 2, 2, 3), (2, 2, 2, 5)):
        dy = numbers(shape, np.float32)
        with pytest.raises(errors.InvalidArgumentError, match="images of depth"):
            fractional.fractional_max_pool_grad(x, dy, dy, rows, rows, overlapping=False)
        with pytest.raises(errors.InvalidArgumentError, match="images of depth"):
            fractional.fractional_avg_pool_grad(np.array(x.shape), dy, rows, rows, overlapping=False)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("padding", [b"SAME", b"VALID"])
@pytest.mark.parametrize("order", [b"NHWC", b"NCHW"])
def test_pools_with_and_without_machine_code(dtype, padding, order, monkeypatch):
    x = np.random.RandomState(0).randint(-4, 4, (2, 9, 9, 9)).astype(dtype)  # ties are common
    x.ravel()[::23] = np.nan
    x.ravel()[1::29] = -0.0
    window = [1, 3, 2, 1] if order == b"NHWC" else [1, 1, 3, 2]
    strides = [1, 2, 1, 1] if order == b"NHWC" else [1, 1, 2, 1]
    options = dict(ksize=window, strides=strides, padding=padding, data_format=order)
    results = []
    for engines in ("native", "numpy"):
        monkeypatch.setenv("PENSTOCK_ENGINES", engines)
        y = pool.max_pool(x, **options)
        dy = numbers(y.shape, np.float32).round().astype(dtype)
        results.append((y, pool.avg_pool(x, **options), pool.max_pool_grad(x, y, dy, **options), pool.max_pool_grad_grad(x, y, x, **options)))
    for mine, numpys in zip(*results, strict=True):
        assert mine.dtype == numpys.dtype == dtype
        np.testing.assert_allclose(mine.astype(np.float64), numpys.astype(np.float64), rtol=2e-2 if dtype is ml_dtypes.bfloat16 else 2e-3, atol=1e-6)


def test_borders_that_nobody_can_foretell():
    options = dict(pooling_ratio=[1, 1.44, 1.73, 1], overlapping=False, deterministic=False, seed=0, seed2=0, state=types.SimpleNamespace())
    for pseudo in (False, True):
        found = set()
        for _ in range(30):
            _, rows, columns = fractional.fractional_max_pool(numbers((1, 40, 50, 1), np.float32), pseudo_random=pseudo, **options)
            for borders, size in ((rows, 40), (columns, 50)):
                assert borders.dtype == np.int64 and (borders[0], borders[-1]) == (0, size) and 1 <= np.diff(borders).min() <= np.diff(borders).max() <= 2 + pseudo
            found.add(tuple(rows.tolist()))
        assert len(found) > 1
