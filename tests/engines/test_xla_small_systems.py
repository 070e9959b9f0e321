"""Inverses, systems and factorisations of small matrices inside of programs: as the kernels have them, errors included."""

import numpy as np
import pytest

import penstock as tf
from penstock import errors

pytest.importorskip("jax")

from penstock.engines.xla import elimination
from penstock.engines.xla.hot import Doubt, HotProgram


@pytest.fixture
def ran(monkeypatch):
    """Of each call of a program, whether it stood by its results."""
    found = []
    real = HotProgram._through_xla

    def through(self, *args):
        try:
            results = real(self, *args)
        except Doubt:
            found.append(False)
            raise
        found.append(True)
        return results

    monkeypatch.setattr(HotProgram, "_through_xla", through)
    return found


def systems(how, n):
    """What is done with the matrices x in a loop of two rounds."""
    def once(x):
        if how == "inverse":
            return tf.matrix_inverse(x)
        if how == "adjoint":
            return tf.matrix_inverse(x, adjoint=True)
        if how == "solve":
            return tf.matrix_solve(x, x[..., :1] + tf.ones([n, 3], x.dtype))
        if how == "solve adjoint":
            return tf.matrix_solve(x, x * 2, adjoint=True)
        return tf.cholesky(x)

    def build(x):
        y = once(x)
        return tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y + once(x * (1.0 + tf.cast(i, x.dtype)))), [0, tf.zeros_like(y)])[1]

    return build


def result(monkeypatch, xla, build, value):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager" if xla == "eager" else "0")
    monkeypatch.setenv("PENSTOCK_XLA", xla)
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(value.dtype, value.shape)
        y = build(x)
        for _ in range(2):  # the first step is the host's
            sess.run(y, {x: np.broadcast_to(np.eye(value.shape[-1], dtype=value.dtype), value.shape)})
        try:
            return sess.run(y, {x: value})
        except errors.InvalidArgumentError as error:
            return error.op.type, error.message


def both(monkeypatch, build, value):
    return result(monkeypatch, "0", build, value), result(monkeypatch, "eager", build, value)


def matrices(n, dtype, *batch):
    """Symmetric and positive definite below the diagonal, with other numbers above: rows change places, and Cholesky sees one triangle only."""
    x = np.random.RandomState(n).randn(*batch, n, n)
    x = x @ np.swapaxes(x, -1, -2) + 0.5 * np.eye(n)
    return (x + 3 * np.triu(np.ones((n, n)), 1)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("n", range(1, elimination.LARGEST + 1))
@pytest.mark.parametrize("how", ["inverse", "adjoint", "solve", "solve adjoint", "cholesky"])
def test_small_matrices_are_part_of_programs(monkeypatch, ran, how, n, batch, dtype):
    plain, other = both(monkeypatch, systems(how, n), matrices(n, dtype, *batch))
    assert ran and all(ran)
    np.testing.assert_allclose(other, plain, rtol=2e-4 if dtype == np.float32 else 1e-11, atol=1e-5 if dtype == np.float32 else 1e-12)
    assert other.dtype == dtype


def test_zeros_on_the_diagonal_are_no_reason_for_doubt(monkeypatch, ran):
    x = np.array([[0, 2, 0], [0, 0, 4], [8, 0, 0]], np.float32)
    plain, other = both(monkeypatch, systems("inverse", 3), x)
    assert ran and all(ran)
    np.testing.assert_array_equal(other, plain)


@pytest.mark.parametrize("how", ["inverse", "solve", "cholesky"])
@pytest.mark.parametrize("value", [
    [[1, 2], [2, 4]], [[0, 0], [0, 0]], [[1, 0], [0, np.nan]], [[np.nan, 0], [0, 1]], [[np.inf, 0], [0, 1]], [[1, np.inf], [0, 1]], [[1, 1], [1, 1 + 1e-7]],
    [[0.1, 0.3], [0.7, 2.1]], [[1, 0], [0, 1e-12]], [[1e-39, 0], [0, 1e-39]], [[1, 2], [2, 1]], [[-1, 0], [0, 1]],
])  # fmt: skip
def test_whatever_is_wrong_is_as_the_kernels_have_it(monkeypatch, ran, how, value):
    plain, other = both(monkeypatch, systems(how, 2), np.array(value, np.float32))
    assert len(ran) == 2
    if isinstance(plain, tuple):
        assert other == plain
    else:
        np.testing.assert_allclose(other, plain, rtol=1e-4)


def test_a_singular_matrix_among_others(monkeypatch, ran):
    x = matrices(3, np.float32, 4)
    x[2, 2] = 0
    plain, other = both(monkeypatch, systems("inverse", 3), x)
    assert ran == [True, False]
    assert other == plain
    assert plain[0] == "MatrixInverse" and "Input is not invertible." in plain[1]


@pytest.mark.parametrize("n, dtype", [(elimination.LARGEST + 1, np.float32), (2, np.float16), (2, np.complex64)])
def test_other_matrices_stay_with_the_kernels(monkeypatch, ran, n, dtype):
    x = matrices(n, np.float32).astype(dtype)
    plain, other = both(monkeypatch, systems("inverse", n), x)
    np.testing.assert_array_equal(other, plain)
