"""Singular values, QR and what is made of them, for stacks of small matrices in machine code."""

import numpy as np
import pytest

from penstock.ops.kernels import lapack, matrices
from penstock.ops.native import rotations

RANDOM = np.random.RandomState(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n"), [(3, 3), (8, 8), (16, 5), (5, 16), (1, 4), (4, 1)])
def test_singular_values_and_vectors(dtype, m, n):
    x = RANDOM.randn(5, 4, m, n).astype(dtype)
    u, s, vh = lapack.svd(x, full_matrices=False)
    k, near = min(m, n), 4 * max(m, n) * np.finfo(dtype).eps
    assert u.shape == (5, 4, m, k) and s.shape == (5, 4, k) and vh.shape == (5, 4, k, n)
    np.testing.assert_allclose((u * s[..., None, :]) @ vh, x, atol=10 * near)
    np.testing.assert_allclose(np.swapaxes(u, -1, -2) @ u, np.broadcast_to(np.eye(k), (5, 4, k, k)), atol=near)
    np.testing.assert_allclose(vh @ np.swapaxes(vh, -1, -2), np.broadcast_to(np.eye(k), (5, 4, k, k)), atol=near)
    np.testing.assert_allclose(s, np.linalg.svd(x.astype(np.float64), compute_uv=False), atol=10 * near)
    np.testing.assert_allclose(lapack.svd(x, compute_uv=False), s, atol=10 * near)


def test_a_matrix_without_full_rank_is_left_to_lapack():
    x = RANDOM.randn(16, 4, 4)
    x[3, :, 2] = x[3, :, 1]
    x[5] = 0
    u, s, vh = lapack.svd(x)
    np.testing.assert_allclose((u * s[..., None, :]) @ vh, x, atol=1e-12)
    np.testing.assert_allclose(np.swapaxes(u, -1, -2) @ u, np.broadcast_to(np.eye(4), x.shape), atol=1e-12)


def test_what_is_not_finite_is_left_to_lapack():
    x = RANDOM.randn(16, 4, 4)
    x[3, 1, 1] = np.nan
    assert not rotations.can_rotate(x)
    with pytest.raises(np.linalg.LinAlgError):
        lapack.eigh(x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_numbers(dtype):
    largest = np.finfo(dtype).max * dtype(0.9)
    x = np.tile(np.diag(np.array([largest, 1, 2], dtype)), (20, 1, 1))
    with np.errstate(over="raise", invalid="raise"):
        for values in (lapack.eigh(x)[0], lapack.eigvalsh(x)):
            np.testing.assert_array_equal(values, np.broadcast_to(np.array([1, 2, largest], dtype), (20, 3)))
        np.testing.assert_allclose(lapack.svd(x, compute_uv=False), np.broadcast_to(np.array([largest, 2, 1], dtype), (20, 3)), rtol=1e-6)
        np.testing.assert_array_equal(lapack.qr(x)[1], x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (20, 5, 5), (2, 3, 24, 24)])
@pytest.mark.parametrize("is_symmetric", [True, False])
def test_square_roots(dtype, shape, is_symmetric):
    x = RANDOM.randn(*shape) + (1j * RANDOM.randn(*shape) if np.dtype(dtype).kind == "c" else 0)
    x = x @ matrices.adjoint(x) + shape[-1] * np.eye(shape[-1])
    x = (x + matrices.adjoint(x)) / 2 if is_symmetric else x + np.triu(RANDOM.randn(*shape))
    x = x.astype(dtype)
    root = matrices.square_root(x)
    assert root.dtype == dtype
    near = 40 * shape[-1] * np.finfo(dtype).eps
    np.testing.assert_allclose(root @ root, x, atol=near * np.abs(x).max())


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (20, 5, 5), (2, 3, 24, 24)])
@pytest.mark.parametrize("kind", ["real", "Hermitian", "indefinite", "other"])
def test_logarithms(dtype, shape, kind):
    x = RANDOM.randn(*shape) + (0 if kind == "real" else 1j * RANDOM.randn(*shape))
    x = x @ matrices.adjoint(x) + shape[-1] * np.eye(shape[-1])
    x = (x + matrices.adjoint(x)) / 2
    if kind == "indefinite":
        x = x - 2 * shape[-1] * np.eye(shape[-1])
    if kind == "other":
        x = x + np.triu(RANDOM.randn(*shape))
    found = matrices.logarithm(x.astype(dtype))
    assert found.dtype == dtype and found.shape == shape
    values, vectors = np.linalg.eig(found.astype(np.complex128))
    back = (vectors * np.exp(values)[..., None, :]) @ np.linalg.inv(vectors)
    np.testing.assert_allclose(back, x, atol=400 * shape[-1] * np.finfo(dtype).eps * np.abs(x).max())
    if kind in ("real", "Hermitian"):
        np.testing.assert_allclose(found, matrices.adjoint(found), atol=1e-6)


def test_square_root_of_a_defective_matrix():
    x = np.array([[2.0, 1.0], [0.0, 2.0]])
    root = matrices.square_root(x)
    np.testing.assert_allclose(root @ root, x, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize(("m", "n"), [(6, 4), (4, 6), (5, 5)])
def test_least_squares_of_least_norm(dtype, m, n):
    a, b = RANDOM.randn(20, m, n).astype(dtype), RANDOM.randn(20, m, 2).astype(dtype)
    a[3, :, 1] = a[3, :, 0]
    a[4] = 0
    got = matrices.least_squares(a, b, 0.0, False)
    assert got.dtype == dtype
    want = np.linalg.pinv(a.astype(np.complex128), rcond=np.finfo(dtype).eps * 10) @ b
    np.testing.assert_allclose(got, want, rtol=1e-3 if dtype is not np.float64 else 1e-8, atol=1e-3 if dtype is not np.float64 else 1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize(("count", "m", "n"), [(1, 40, 40), (1, 60, 13), (1, 13, 60), (30, 9, 5), (30, 5, 9), (2, 70, 70), (600, 1, 4), (600, 4, 1)])
@pytest.mark.filterwarnings("error")
def test_least_squares_whatever_the_rank(dtype, count, m, n):
    random = np.random.RandomState(m * n)
    a, b = random.randn(2, count, m, n).astype(dtype), random.randn(2, count, m, 3).astype(dtype)
    a[0, 0, -1] = 0
    a[1, -1] = np.outer(a[1, -1, :, 0], a[1, -1, 0])
    got = matrices.least_squares(a, b, 0.0, False)
    tolerance = 1e-9 if dtype is np.float64 else 1e-4
    assert got.dtype == dtype and got.shape == (2, count, n, 3)
    want = np.linalg.pinv(a.astype(np.complex128), rcond=np.finfo(dtype).eps * min(m, n)) @ b
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * abs(want).max())
    swapped = np.swapaxes(np.ascontiguousarray(np.swapaxes(a, -1, -2)), -1, -2)
    np.testing.assert_array_equal(matrices.least_squares(swapped, b, 0.0, False), got)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n"), [(3, 3), (8, 8), (16, 5), (5, 16), (1, 4), (4, 1)])
@pytest.mark.parametrize("full", [False, True])
def test_qr_has_the_signs_of_lapack(dtype, m, n, full):
    for count in (8, 37):
        x = RANDOM.randn(count, m, n)
        x[1] *= 1e30
        x[2] = np.triu(x[2])
        mode = "complete" if full else "reduced"
        x = x.astype(dtype)
        (q, r), (want_q, want_r) = lapack.qr(x, mode), np.linalg.qr(x.astype(np.float64), mode)
        np.testing.assert_array_equal(lapack.triangle(x), r[:, : min(m, n)])
        assert q.dtype == r.dtype == dtype and q.shape == want_q.shape
        size, near = np.abs(x).max((1, 2), keepdims=True), 4 * max(m, n) * np.finfo(dtype).eps
        np.testing.assert_allclose(np.matmul(q, r / size), x / size, atol=near)
        np.testing.assert_allclose(np.swapaxes(q, 1, 2) @ q, np.broadcast_to(np.eye(q.shape[-1]), (count, *q.shape[-1:] * 2)), atol=near)
        np.testing.assert_allclose(r / size, want_r / size, atol=1e-3)
        assert (np.tril(r, -1) == 0).all()


def test_qr_of_columns_of_zeros():
    x = RANDOM.randn(16, 4, 4)
    x[0], x[1, :, 0], x[2, :, 2] = 0, 0, 0
    q, r = lapack.qr(x)
    np.testing.assert_allclose(q @ r, x, atol=1e-13)
    np.testing.assert_allclose(np.swapaxes(q, 1, 2) @ q, np.broadcast_to(np.eye(4), x.shape), atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize(("shape", "columns"), [((1000, 3), 3), ((20, 5, 8), 2), ((500, 8), 1), ((2, 100), 7), ((40, 32), 40)])
def test_systems(dtype, shape, columns):
    n = shape[-1]
    a = (RANDOM.randn(*shape, n) + n * np.eye(n)).astype(dtype)
    b = RANDOM.randn(*shape[:-1], n, columns).astype(dtype)
    x = lapack.solve(a, b)
    assert x.dtype == dtype
    np.testing.assert_allclose(a @ x, b, atol=1e-3 if dtype is not np.float64 else 1e-9)


def test_a_system_without_solution():
    a = RANDOM.randn(500, 8, 8)
    a[17, 3] = a[17, 4]
    with pytest.raises(np.linalg.LinAlgError):
        lapack.solve(a, a)
