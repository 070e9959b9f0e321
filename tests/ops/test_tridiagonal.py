"""Eigenvalues of stacks of symmetric matrices in machine code."""

import numpy as np
import pytest

from penstock.ops.kernels import lapack
from penstock.ops.native import available, tridiagonal

RANDOM = np.random.RandomState(0)


def kinds(count, n):
    """Matrices of several kinds: any, positive, huge, tiny, with equal eigenvalues."""
    x = RANDOM.randn(count, n, n)
    yield x
    yield x @ np.swapaxes(x, 1, 2)
    yield x * 1e30
    yield x * 1e-30
    same = np.broadcast_to(np.eye(n), x.shape).copy()
    same[0], same[1] = 0, 1
    yield same
    apart = x.copy()  # nothing between the halves
    apart[:, n // 2 :, : n // 2] = 0
    yield apart
    line = np.arange(n)
    yield np.broadcast_to(2.0 * np.eye(n) - (abs(line[:, None] - line) == 1), x.shape)
    yield x * 10.0 ** -line[:, None] * 10.0 ** -line


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 3, 8, 16, 21, 32, 63])
@pytest.mark.parametrize("count", [8, 16, 37])
def test_eigenvalues_and_vectors(dtype, n, count):
    for x in kinds(count, n):
        x = x.astype(dtype)
        if not tridiagonal.can_reduce(x):
            pytest.skip("no machine code here")
        lower = np.tril(x).astype(np.float64)
        whole = lower + np.swapaxes(np.tril(lower, -1), 1, 2)
        values, vectors = lapack.eigh(x)
        assert values.dtype == vectors.dtype == dtype
        size = np.linalg.norm(whole, 2, (1, 2), keepdims=True) + np.finfo(np.float64).tiny
        near = 4 * n * np.finfo(dtype).eps
        v, e = vectors.astype(np.float64), values.astype(np.float64)
        assert np.abs((whole @ v - v * e[:, None]) / size).max() < near
        assert np.abs(np.swapaxes(v, 1, 2) @ v - np.eye(n)).max() < near
        assert (np.diff(e) >= 0).all()
        assert np.abs((lapack.eigvalsh(x) - e) / size[..., 0]).max() < near


def test_vectors_belong_to_their_matrix_in_any_stack():
    x = RANDOM.randn(3, 7, 20, 20)
    x = x + np.swapaxes(x, -1, -2)
    values, vectors = lapack.eigh(x)
    assert values.shape == (3, 7, 20) and vectors.shape == x.shape
    np.testing.assert_allclose(x @ vectors, vectors * values[..., None, :], atol=1e-12)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(x), atol=1e-12)


def test_what_does_not_converge_is_left_to_lapack(monkeypatch):
    if not available():
        pytest.skip("no machine code here")
    x = RANDOM.randn(40, 9, 9)
    want = np.linalg.eigvalsh(x)
    monkeypatch.setattr(tridiagonal, "_STEPS", 1)
    monkeypatch.setattr(tridiagonal, "_loop", tridiagonal._loop.__wrapped__)  # not the one made before
    assert tridiagonal.eigh(x) is None
    np.testing.assert_allclose(lapack.eigvalsh(x), want, atol=1e-13)
    np.testing.assert_allclose(lapack.eigh(x)[0], want, atol=1e-13)


def test_what_is_left_to_lapack():
    nan = np.ones((40, 4, 4))
    nan[3, 1, 1] = np.nan
    for x in (nan, RANDOM.randn(3, 3, 3), RANDOM.randn(40, 70, 70), RANDOM.randn(40, 1, 1), RANDOM.randn(40, 4, 4).astype(np.complex64), np.zeros((0, 4, 4))):
        assert not tridiagonal.can_reduce(x)
