"""Stacks of matrices on several threads, triangular systems and LU by NumPy's own LAPACK."""

import numpy as np
import pytest

from penstock.errors import InvalidArgumentError
from penstock.ops.kernels import lapack, matrices

RANDOM = np.random.RandomState(0)


@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "qr", "svd", "eigh", "eigvalsh", "cholesky"])
def test_stacks_give_what_numpy_gives(name):
    x = RANDOM.randn(6, 20, 24, 24)
    x = x @ np.swapaxes(x, -1, -2) + 24 * np.eye(24)
    got, want = getattr(lapack, name)(x), getattr(np.linalg, name)(x)
    for mine, numpys in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        np.testing.assert_array_equal(mine, numpys)


def test_a_stack_is_shared_out(monkeypatch):
    calls = []
    monkeypatch.setattr(lapack.threads, "parallel_for", lambda n, work: calls.append(n) or [work(i) for i in range(n)])
    x = RANDOM.randn(30, 40, 40)
    np.testing.assert_array_equal(lapack.solve(x, x), np.linalg.solve(x, x))
    assert calls == [4]


def test_a_singular_matrix_anywhere_in_a_stack_is_an_error():
    x = RANDOM.randn(30, 40, 40)
    x[17] = 0
    with pytest.raises(np.linalg.LinAlgError):
        lapack.inv(x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 4), (60, 60), (3, 60, 60), (100, 4, 4)])
def test_triangles(shape, dtype):
    n = shape[-1]
    a = (RANDOM.randn(*shape) + n * np.eye(n)).astype(dtype)
    b = RANDOM.randn(*shape[:-1], 3).astype(dtype)
    for lower in (True, False):
        for adjoint in (True, False):
            x = matrices.solve_triangular(a, b, lower, adjoint)
            triangle = np.tril(a) if lower else np.triu(a)
            np.testing.assert_allclose((np.swapaxes(triangle, -1, -2) if adjoint else triangle) @ x, b, atol=1e-5)


def test_a_zero_on_the_diagonal_gives_infinity():
    a = np.eye(40)
    a[3, 3] = 0
    with np.errstate(all="ignore"):
        assert np.isinf(matrices.solve_triangular(a, np.ones((40, 1)), True, False)[3, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 4), (60, 60), (3, 60, 60), (100, 4, 4)])
def test_lu(shape, dtype):
    x = RANDOM.randn(*shape).astype(dtype)
    factors, order = matrices.lu(x)
    lower, upper = np.tril(factors, -1) + np.eye(shape[-1], dtype=dtype), np.triu(factors)
    np.testing.assert_allclose(lower @ upper, np.take_along_axis(x, order[..., None], -2), atol=1e-4)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_no_lu_of_what_cannot_be_inverted(value):
    with pytest.raises(InvalidArgumentError, match="Input is not invertible"):
        matrices.lu(np.full((30, 30), value))
