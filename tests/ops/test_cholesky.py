"""Cholesky factors of stacks of small matrices in machine code."""

import numpy as np
import pytest

from penstock.ops.kernels import lapack
from penstock.ops.native import available, cholesky

pytestmark = pytest.mark.skipif(not available(), reason="no machine code here")


def _positive(*shape, dtype=np.float64):
    x = np.random.RandomState(sum(shape)).randn(*shape)
    return (x @ np.swapaxes(x, -1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1000, 3, 3), (64, 2, 2), (5, 13, 4, 4), (500, 8, 8), (2001, 16, 16)])
def test_factors_are_those_of_numpy(shape, dtype):
    x = _positive(*shape, dtype=dtype)
    assert cholesky.can_factor(x)
    got = lapack.cholesky(x)
    assert got.dtype == dtype and got.shape == shape and got.flags.c_contiguous
    np.testing.assert_allclose(got, np.linalg.cholesky(x.astype(np.float64)), atol=1e-5 if dtype is np.float32 else 1e-13)
    np.testing.assert_array_equal(got, np.tril(got))


def test_the_upper_triangle_is_not_read_and_the_input_left_alone():
    x = _positive(100, 5, 5)
    want = lapack.cholesky(x)
    x[:, 0, 1:] = np.nan
    before = x.copy()
    np.testing.assert_array_equal(lapack.cholesky(x), want)
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(lapack.cholesky(np.swapaxes(np.swapaxes(x, 1, 2).copy(), 1, 2)), want)


@pytest.mark.parametrize("at", [0, 70, 99])
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_one_matrix_that_is_not_positive_definite_is_an_error(at, value):
    x = _positive(100, 4, 4)
    x[at, 2, 2] = value
    assert cholesky.factor(x) is None
    with pytest.raises(np.linalg.LinAlgError):
        lapack.cholesky(x)


def test_nan_is_where_lapack_has_it():
    x = _positive(100, 4, 4, dtype=np.float32)
    x[70, 2, 1] = np.nan
    got = lapack.cholesky(x)
    np.testing.assert_array_equal(got[70], lapack.cholesky(x[70:71])[0])
    assert np.isnan(got[70, 2, 1]) and np.isfinite(np.delete(got, 70, 0)).all()


def test_what_is_left_to_lapack():
    for x in (_positive(63, 3, 3), _positive(100, 17, 17), _positive(100, 1, 1), _positive(100, 3, 3).astype(np.complex64), np.zeros((0, 3, 3)), np.zeros((100, 0, 0))):
        assert not cholesky.can_factor(x)
