"""Stacks of matrices on several threads, triangular systems and LU by NumPy's own LAPACK."""

import numpy as np
import pytest

from penstock.errors import InvalidArgumentError
from penstock.ops.kernels import blas, lapack, matrices
from penstock.ops.native import triangular

RANDOM = np.random.RandomState(0)


@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "qr", "svd", "eigh", "eigvalsh", "cholesky"])
def test_stacks_give_what_numpy_gives(name):
    x = RANDOM.randn(6, 20, 24, 24)
    x = x @ np.swapaxes(x, -1, -2) + 24 * np.eye(24)
    got, want = getattr(lapack, name)(x), getattr(np.linalg, name)(x)
    for mine, numpys in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        if name == "eigh":
            mine, numpys = np.abs(mine), np.abs(numpys)  # the sign of a vector is open
        np.testing.assert_allclose(mine, numpys, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "eigh", "eigvalsh", "cholesky", "solve"])
def test_single_precision_stays_what_it_is(name, dtype):
    x = (RANDOM.randn(3, 9, 9) + (1j * RANDOM.randn(3, 9, 9) if dtype is np.complex64 else 0)).astype(dtype)
    x = x @ np.swapaxes(x, -1, -2).conj() + 9 * np.eye(9, dtype=dtype)
    arrays = [x, x[..., :2]] if name == "solve" else [x]
    got, want = getattr(lapack, name)(*arrays), getattr(np.linalg, name)(*arrays)
    for mine, numpys in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        assert mine.dtype == numpys.dtype
        if name == "eigh" and mine.ndim == 3:
            mine, numpys = np.abs(mine), np.abs(numpys)  # the sign of a vector is open
        np.testing.assert_allclose(mine, numpys, rtol=1e-3, atol=1e-4)
    wide = RANDOM.randn(4, 7).astype(dtype)
    for options in (dict(), dict(full_matrices=False), dict(compute_uv=False)):
        parts = lapack.svd(wide, **options)
        for mine, numpys in zip(parts, np.linalg.svd(wide, **options), strict=True):
            assert mine.shape == numpys.shape and mine.dtype == numpys.dtype


@pytest.mark.parametrize("name", ["inv", "solve", "cholesky"])
def test_failures_in_single_precision(name):
    x = np.zeros((2, 3, 3), np.float32)
    with pytest.raises(np.linalg.LinAlgError):
        getattr(lapack, name)(*([x, x] if name == "solve" else [x]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(64, 64), (150, 150), (5, 50, 50), (2, 3, 130, 130), (500, 3, 3), (70, 48, 48)])
def test_inverses_of_large_matrices(shape, dtype):
    x = (RANDOM.randn(*shape) + 3 * np.eye(shape[-1])).astype(dtype)
    got = lapack.inv(x)
    assert got.dtype == dtype and got.shape == shape
    np.testing.assert_allclose(got @ x, np.broadcast_to(np.eye(shape[-1]), shape), atol=1e-2 if dtype is np.float32 else 1e-8)


def test_blas_stays_on_one_thread():
    functions = blas._functions()
    if functions is not None:
        before, seen = functions[0](), []
        lapack.on_one_thread(lambda x: seen.append(functions[0]()))(0)
        assert seen == [1] and functions[0]() == before


def test_a_stack_is_shared_out(monkeypatch):
    calls = []
    monkeypatch.setattr(lapack.threads, "parallel_for", lambda n, work: calls.append(n) or [work(i) for i in range(n)])
    x = RANDOM.randn(30, 40, 40)
    np.testing.assert_array_equal(lapack.det(x), np.linalg.det(x))
    assert calls == [4]


def test_a_singular_matrix_anywhere_in_a_stack_is_an_error():
    x = RANDOM.randn(30, 40, 40)
    x[17] = 0
    with pytest.raises(np.linalg.LinAlgError):
        lapack.inv(x)


@pytest.mark.parametrize("by_code", [True, False])
@pytest.mark.parametrize("columns", [3, 70])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (7, 7), (60, 60), (3, 61, 61), (100, 4, 4)])
def test_triangles(shape, dtype, columns, by_code, monkeypatch):
    if not by_code:
        monkeypatch.setattr(triangular, "can_solve", lambda dtype: False)
    n = shape[-1]
    a = (RANDOM.randn(*shape) + n * np.eye(n)).astype(dtype)
    b = RANDOM.randn(*shape[:-1], columns).astype(dtype)
    for lower in (True, False):
        for adjoint in (True, False):
            x = matrices.solve_triangular(a, b, lower, adjoint)
            triangle = np.tril(a) if lower else np.triu(a)
            np.testing.assert_allclose((np.swapaxes(triangle, -1, -2) if adjoint else triangle) @ x, b, atol=1e-5)


def test_one_triangle_for_many_right_hand_sides():
    a, b = np.tril(RANDOM.randn(5, 5) + 5 * np.eye(5)), RANDOM.randn(4, 3, 5, 2)
    np.testing.assert_allclose(a @ matrices.solve_triangular(a, b, True, False), b, atol=1e-12)
    np.testing.assert_allclose(a.T @ matrices.solve_triangular(a[None], b, True, True), b, atol=1e-12)
    assert matrices.solve_triangular(a, np.zeros((2, 5, 0)), True, False).shape == (2, 5, 0)


def test_a_zero_on_the_diagonal_gives_infinity():
    a = np.eye(40)
    a[3, 3] = 0
    with np.errstate(all="ignore"):
        assert np.isinf(matrices.solve_triangular(a, np.ones((40, 1)), True, False)[3, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 4), (60, 60), (3, 60, 60), (100, 4, 4), (100, 16, 16)])
def test_lu(shape, dtype):
    x = RANDOM.randn(*shape).astype(dtype)
    factors, order = matrices.lu(x)
    lower, upper = np.tril(factors, -1) + np.eye(shape[-1], dtype=dtype), np.triu(factors)
    np.testing.assert_allclose(lower @ upper, np.take_along_axis(x, order[..., None], -2), atol=1e-4)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_no_lu_of_what_cannot_be_inverted(value):
    with pytest.raises(InvalidArgumentError, match="Input is not invertible"):
        matrices.lu(np.full((30, 30), value))


@pytest.mark.parametrize("order", ["C", "F"])
def test_lu_leaves_its_input_alone(order):
    for n in (16, 140):
        x = np.array(RANDOM.randn(n, n), order=order)
        before = x.copy()
        factors, order_of_rows = matrices.lu(x)
        np.testing.assert_array_equal(x, before)
        np.testing.assert_allclose((np.tril(factors, -1) + np.eye(n)) @ np.triu(factors), x[order_of_rows], atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape, n, columns", [((), 5, 2), ((3,), 2, 1), ((2, 3), 40, 3), ((4,), 100, 1), ((3,), 1, 2)])
def test_tridiagonal_systems_are_solved_as_without_lapack(monkeypatch, dtype, shape, n, columns):
    random = np.random.RandomState(n)
    diagonals, rhs = random.randn(*shape, 3, n).astype(dtype), random.randn(*shape, n, columns).astype(dtype)
    found = matrices.tridiagonal_solve(diagonals, rhs, True)
    monkeypatch.setattr(lapack, "can_compute", lambda dtype: False)
    want = matrices.tridiagonal_solve(diagonals, rhs, True)
    assert found.dtype == dtype and found.flags.c_contiguous
    np.testing.assert_allclose(found, want, rtol=1e-3 if dtype == np.float32 else 1e-9)


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
def test_a_singular_tridiagonal_system_among_others():
    diagonals = np.stack([np.zeros((3, 4)), np.ones((3, 4))])
    found = matrices.tridiagonal_solve(diagonals, np.ones((2, 4, 1)), True)
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1].ravel(), [1, 0, 0, 1], atol=1e-12)
