"""Large arrays tile by tile give what they give in one go."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from penstock import dtypes
from penstock.ops import casting, compare
from penstock.ops.kernels import conversions, numeric, tiled

TYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.bool_]
N = 300


@pytest.fixture(params=["machine code", "NumPy"], autouse=True)
def small_tiles(request, monkeypatch):
    if request.param == "NumPy":
        monkeypatch.setenv("PENSTOCK_ENGINES", "numpy")
    monkeypatch.setattr(tiled, "LARGE", N)
    monkeypatch.setattr(casting, "LARGE", N)
    monkeypatch.setattr(tiled, "TILE", 77)


def numbers(dtype):
    rng = np.random.RandomState(0)
    x = np.where(rng.rand(N) < 0.5, rng.randn(N) * 50, rng.randn(N) * 10.0 ** rng.randint(-12, 12, N))
    x[:9] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 65519.9, 65520.0, 2.0**31, -(2.0**31)]
    with np.errstate(all="ignore"):
        return x.astype(dtype).reshape(30, 10)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("source", "target"), [(s, t) for s, t in itertools.product(TYPES, TYPES) if s is not t], ids=lambda t: t.__name__)
def test_conversions(source, target, monkeypatch):
    x = numbers(source)
    args = dict(SrcT=dtypes.as_dtype(source), DstT=dtypes.as_dtype(target), Truncate=False)
    assert tiled.is_large(x) and conversions.can_convert(x.dtype, np.dtype(target))
    found = casting.cast_kernel(x, **args)
    monkeypatch.setattr(casting, "LARGE", N + 1)
    expected = casting.cast_kernel(x, **args)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if np.dtype(target).kind in "iub":
        np.testing.assert_array_equal(found, expected)
    else:  # the bits of a NaN are free
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
        np.testing.assert_array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(expected)[~np.isnan(found)])


def one_by_one(x, target):
    """By way of float32 for halves and of 32 or 64 bits for shorter whole numbers."""
    y = x.astype(np.float32) if x.dtype in numeric.NARROW else x
    if np.dtype(target) in numeric.NARROW:
        return y.astype(np.float32).astype(target)
    if y.dtype.kind == "f" and np.dtype(target).kind in "iu" and np.dtype(target).itemsize < 8:
        y = y.astype(np.int64 if target is np.uint32 else np.int32)
    return y.astype(target)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("source", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("size", [63, 64, 65, 217, 300])
def test_conversions_of_any_size_and_stride(source, size):
    base = np.tile(numbers(source).ravel(), 2)
    for x in (base[:size], base[1 : 2 * size : 2][::-1], base[: size // 3 * 3].reshape(3, -1).T):
        for target in TYPES:
            if target is not source:
                found = casting.cast_kernel(x, SrcT=dtypes.as_dtype(source), DstT=dtypes.as_dtype(target), Truncate=False)
                expected = one_by_one(x, target)
                assert found.dtype == expected.dtype and found.shape == expected.shape
                if np.dtype(target).kind in "iub":
                    np.testing.assert_array_equal(found, expected)
                else:
                    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
                    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(expected)[~np.isnan(found)])


def test_what_is_no_number_or_lies_otherwise_is_converted_in_one_go():
    assert not conversions.can_convert(np.dtype(np.complex64), np.dtype(np.float32))
    assert not conversions.can_convert(np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(np.float32))
    x = numbers(np.float32)
    args = dict(SrcT=dtypes.float32, DstT=dtypes.float64, Truncate=False)
    np.testing.assert_array_equal(casting.cast_kernel(x.T, **args), x.T)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64])
@pytest.mark.parametrize("shift", [compare.left_shift, compare.right_shift])
def test_shifts(shift, dtype, monkeypatch):
    rng = np.random.RandomState(0)
    x, y = rng.randint(0, 100, (30, 10)).astype(dtype), rng.randint(-2 if np.issubdtype(dtype, np.signedinteger) else 0, 70, (30, 10)).astype(dtype)
    pairs = [(x, y), (x, y[0, 0]), (x[0, 0], y), (x, y[:1]), (x.T, y.T)]
    found = [shift(a, b) for a, b in pairs]
    assert tiled.is_large(x, y) and tiled.is_large(x, y[0, 0])
    monkeypatch.setattr(tiled, "LARGE", N + 1)
    for (a, b), have in zip(pairs, found):
        np.testing.assert_array_equal(have, shift(a, b), strict=True)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64])
def test_ufuncs(dtype):
    x, y = (np.random.RandomState(i).randint(0, 100, (30, 10)).astype(dtype) for i in range(2))
    add = tiled.tiled(np.add)
    for a, b in ((x, y), (x, y[0, 0]), (x[0, 0], y), (x, np.asarray(y[0, 0])), (x, y[:1]), (x.T, y.T), (x[:3], y[:3])):
        np.testing.assert_array_equal(add(a, b), a + b)
    z = x.copy()
    assert add(z, y, z) is z
    np.testing.assert_array_equal(z, x + y)


def test_errors_come_out_of_tiles():
    x = np.ones(N)

    def fail(out, x):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        tiled.into_tiles(fail, x.dtype, x)
