"""Products, factorisations and solvers: values against NumPy, gradients against finite differences."""

import numpy as np
import pytest

import penstock as tf

RNG = np.random.default_rng(3)


def run(fetches, feeds=None):
    with tf.Session() as sess:
        return sess.run(fetches, feeds)


def check_gradient(function, value, tolerance=1e-6):
    """d function / d value by tf.gradients and by central differences, in float64."""
    x = tf.placeholder(tf.float64, value.shape)
    y = function(x)
    slope = tf.gradients(y, x)[0]
    with tf.Session() as sess:
        got = sess.run(slope, {x: value})
        want = np.zeros_like(value)
        for i in np.ndindex(value.shape):
            step = np.zeros_like(value)
            step[i] = 1e-6
            want[i] = (sess.run(y, {x: value + step}) - sess.run(y, {x: value - step})) / 2e-6
    assert np.allclose(got, want, rtol=tolerance, atol=tolerance), (got, want)


# -- products ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.int32])
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_matmul(dtype, ta, tb):
    a = (RNG.standard_normal((3, 4)) * 3).astype(dtype)
    b = (RNG.standard_normal((4, 5)) * 3).astype(dtype)
    product = run(tf.matmul(a.T.copy() if ta else a, b.T.copy() if tb else b, transpose_a=ta, transpose_b=tb))
    wide = np.float32 if dtype == np.float16 else dtype
    assert product.dtype == dtype
    assert np.allclose(product, (a.astype(wide) @ b.astype(wide)).astype(dtype), rtol=1e-2 if dtype == np.float16 else 1e-5)


def test_half_products_accumulate_in_float():
    a = np.ones((1, 4096), np.float16)
    assert run(tf.matmul(a, a.T.copy()))[0, 0] == 4096


def test_batched_matmul_broadcasts():
    a, b = RNG.standard_normal((2, 1, 3, 4)), RNG.standard_normal((5, 4, 2))
    assert np.allclose(run(tf.matmul(a, b)), a @ b)
    x, y = tf.constant(a), tf.constant(b)
    dx, dy = run(tf.gradients(tf.matmul(x, y), [x, y]))
    assert dx.shape == a.shape and dy.shape == b.shape
    assert np.allclose(dx, np.broadcast_to((np.ones((3, 2)) @ np.swapaxes(b, -1, -2)).sum(0), (2, 1, 3, 4)))


def test_matmul_errors():
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Matrix size-incompatible: In\[0\]: \[2,3\], In\[1\]: \[2,2\]"):
        run(tf.raw_ops.MatMul(a=x, b=y), {x: np.zeros((2, 3)), y: np.zeros((2, 2))})
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 3 and 2"):
        tf.matmul(tf.zeros([2, 3]), tf.zeros([2, 2]))
    with pytest.raises(ValueError, match="Only one of `transpose_a` and `adjoint_a`"):
        tf.matmul(tf.zeros([2, 2]), tf.zeros([2, 2]), transpose_a=True, adjoint_a=True)


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)), ("ij,kl->ijkl", (2, 3), (4, 5)),
    ("ijk,jk->i", (2, 3, 4), (3, 4)), ("ii->", (3, 3)), ("iij->ji", (3, 3, 2)), ("...ij,...jk->...ik", (5, 1, 2, 3), (4, 3, 2)), ("a...,a...->...", (3, 2, 2), (3, 2, 2)),
    ("ij,ij,jk->k", (2, 3), (2, 3), (3, 4)), ("ab,bc,cd,de->ae", (2, 3), (3, 4), (4, 2), (2, 5)), ("i,ij->", (2,), (2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda c: c[0])
def test_einsum(case):
    equation, *shapes = case
    arrays = [RNG.standard_normal(s) for s in shapes]
    assert np.allclose(run(tf.einsum(equation, *arrays)), np.einsum(equation, *arrays))


@pytest.mark.parametrize("case", [c for c in EQUATIONS if len(c) <= 3], ids=lambda c: c[0])
def test_einsum_gradient(case):
    equation, *shapes = case
    arrays = [RNG.standard_normal(s) for s in shapes]
    for i in range(len(arrays)):
        weights = RNG.standard_normal(np.einsum(equation, *arrays).shape)

        def loss(x, i=i, weights=weights):
            return tf.reduce_sum(tf.einsum(equation, *[x if j == i else a for j, a in enumerate(arrays)]) * weights)

        check_gradient(loss, arrays[i])


def test_einsum_repeats_a_label_in_the_output():
    assert run(tf.raw_ops.Einsum(inputs=[tf.constant([1.0, 2.0])], equation="i->ii")).tolist() == [[1, 0], [0, 2]]


@pytest.mark.parametrize(("axes", "shapes"), [(1, ((2, 3), (3, 4))), (0, ((2,), (3,))), ([[1, 2], [0, 1]], ((2, 3, 4), (3, 4, 5))), ([0, 1], ((2, 3), (4, 2)))])
def test_tensordot(axes, shapes):
    a, b = (RNG.standard_normal(s) for s in shapes)
    assert np.allclose(run(tf.tensordot(a, b, axes)), np.tensordot(a, b, axes))
    x, y = tf.placeholder(tf.float64), tf.placeholder(tf.float64)
    assert np.allclose(run(tf.tensordot(x, y, axes), {x: a, y: b}), np.tensordot(a, b, axes))


# -- factorisations ---------------------------------------------------------------------------------------------------

SQUARE = RNG.standard_normal((3, 3)) + 3 * np.eye(3)
SYMMETRIC = SQUARE @ SQUARE.T
TALL = RNG.standard_normal((4, 3))
WEIGHTS = RNG.standard_normal((4, 4))


def test_cholesky():
    factor = run(tf.cholesky(SYMMETRIC))
    assert np.allclose(factor @ factor.T, SYMMETRIC) and np.allclose(factor, np.tril(factor))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cholesky decomposition was not successful"):
        run(tf.cholesky(-np.eye(2)))
    rhs = RNG.standard_normal((3, 2))
    assert np.allclose(run(tf.cholesky_solve(tf.cholesky(SYMMETRIC), rhs)), np.linalg.solve(SYMMETRIC, rhs))


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3)])
def test_svd_and_qr_rebuild_their_input(shape):
    x = RNG.standard_normal((2, *shape))
    s, u, v = run(tf.svd(x))
    assert np.allclose(u * s[:, None, :] @ np.swapaxes(v, -1, -2), x)
    assert np.allclose(run(tf.svd(x, compute_uv=False)), s)
    q, r = run(tf.qr(x))
    assert np.allclose(q @ r, x) and np.allclose(r, np.triu(r))


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3)])
def test_svd_gradient(shape):
    x = RNG.standard_normal(shape)
    k = min(shape)

    def loss(a):
        s, u, v = tf.svd(a)
        # Squares do not see the signs of singular vectors, which are arbitrary.
        return tf.reduce_sum(s * s * s) + tf.reduce_sum(u * u * WEIGHTS[: shape[0], :k]) + tf.reduce_sum(v * v * WEIGHTS[: shape[1], :k])

    check_gradient(loss, x, 1e-5)


def test_eigenvalue_gradient():
    def loss(a):
        e, v = tf.self_adjoint_eig((a + tf.transpose(a)) / 2)
        return tf.reduce_sum(e * e * [1.0, 2.0, 3.0]) + tf.reduce_sum(v * v * WEIGHTS[:3, :3])

    check_gradient(loss, SYMMETRIC, 1e-5)


@pytest.mark.parametrize("case", ["cholesky", "inverse", "det", "logdet", "solve", "triangular", "qr", "ls_tall", "ls_wide", "sqrtm", "expm", "trace"])
def test_gradients(case):
    functions = {
        "cholesky": lambda a: tf.reduce_sum(tf.cholesky((a + tf.transpose(a)) / 2) * WEIGHTS[:3, :3]),
        "inverse": lambda a: tf.reduce_sum(tf.matrix_inverse(a) * WEIGHTS[:3, :3]),
        "det": tf.matrix_determinant,
        "logdet": lambda a: tf.linalg.slogdet(a)[1],
        "solve": lambda a: tf.reduce_sum(tf.matrix_solve(a, a + WEIGHTS[:3, :3]) * WEIGHTS[:3, :3]),
        "triangular": lambda a: tf.reduce_sum(tf.matrix_triangular_solve(a, a + WEIGHTS[:3, :3], lower=False) * WEIGHTS[:3, :3]),
        "qr": lambda a: tf.reduce_sum(tf.qr(a)[0] * WEIGHTS[:3, :3]) + tf.reduce_sum(tf.qr(a)[1] * WEIGHTS[1:, 1:]),
        "ls_tall": lambda a: tf.reduce_sum(tf.raw_ops.MatrixSolveLs(matrix=tf.concat([a, a * a], 0), rhs=tf.constant(np.vstack([WEIGHTS, WEIGHTS])[:6]), l2_regularizer=0.3)),
        "ls_wide": lambda a: tf.reduce_sum(tf.raw_ops.MatrixSolveLs(matrix=a[:2], rhs=tf.constant(WEIGHTS[:2]), l2_regularizer=0.3) * WEIGHTS[:3]),
        "sqrtm": lambda a: tf.reduce_sum(tf.linalg.sqrtm(a) * WEIGHTS[:3, :3]),
        "expm": lambda a: tf.reduce_sum(tf.linalg.expm(a / 3) * WEIGHTS[:3, :3]),
        "trace": lambda a: tf.trace(tf.matmul(a, a)),
    }  # fmt: skip
    check_gradient(functions[case], SYMMETRIC / 10 if case in ("cholesky", "sqrtm") else SQUARE, 2e-5)


def test_triangular_solve_of_many_rows():
    n = 130
    a = np.tril(RNG.standard_normal((n, n))) + 10 * np.eye(n)
    b = RNG.standard_normal((n, 3))
    for lower in (True, False):
        for adjoint in (True, False):
            matrix = a if lower else a.T.copy()
            want = np.linalg.solve(matrix.T if adjoint else matrix, b)
            assert np.allclose(run(tf.matrix_triangular_solve(matrix, b, lower=lower, adjoint=adjoint)), want)


def test_singular_matrices():
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    for op, text in ((tf.matrix_inverse, "Input is not invertible"), (lambda m: tf.matrix_solve(m, np.ones((2, 1))), "Input matrix is not invertible"), (tf.linalg.lu, "not invertible")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            run(op(singular))


def test_lu():
    x = RNG.standard_normal((2, 4, 4))
    lu, p = run(tf.linalg.lu(x))
    lower, upper = np.tril(lu, -1) + np.eye(4), np.triu(lu)
    assert np.allclose(lower @ upper, np.take_along_axis(x, p[..., None], 1))
    assert np.allclose(run(tf.linalg.lu_reconstruct(lu, p)), x)
    assert np.allclose(run(tf.linalg.lu_matrix_inverse(tf.constant(lu), p)), np.linalg.inv(x))


def test_least_squares():
    rhs = RNG.standard_normal((4, 2))
    want = np.linalg.lstsq(TALL, rhs, rcond=None)[0]
    assert np.allclose(run(tf.matrix_solve_ls(TALL, rhs)), want)
    assert np.allclose(run(tf.matrix_solve_ls(TALL, rhs, fast=False)), want)
    assert np.allclose(run(tf.linalg.pinv(TALL)) @ rhs, want)
    assert run(tf.linalg.matrix_rank(np.array([[1.0, 2.0], [2.0, 4.0]]))) == 1


def test_tridiagonal():
    diagonals = RNG.standard_normal((3, 5))
    matrix = np.diag(diagonals[1]) + np.diag(diagonals[0, :-1], 1) + np.diag(diagonals[2, 1:], -1)
    rhs = RNG.standard_normal((5, 2))
    assert np.allclose(run(tf.linalg.tridiagonal_solve(diagonals, rhs)), np.linalg.solve(matrix, rhs))
    assert np.allclose(run(tf.linalg.tridiagonal_solve(matrix, rhs, diagonals_format="matrix")), np.linalg.solve(matrix, rhs))
    assert np.allclose(run(tf.linalg.tridiagonal_matmul(diagonals, rhs)), matrix @ rhs)
    check_gradient(lambda d: tf.reduce_sum(tf.linalg.tridiagonal_solve(d, rhs) ** 2), diagonals, 1e-4)


# -- diagonals --------------------------------------------------------------------------------------------------------


def test_diagonals():
    x = np.arange(12.0).reshape(3, 4)
    assert run(tf.matrix_diag_part(x)).tolist() == [0, 5, 10]
    assert run(tf.matrix_diag_part(x, k=(-1, 1))).tolist() == [[1, 6, 11], [0, 5, 10], [4, 9, 0]]
    assert run(tf.matrix_diag_part(x, k=(0, 2), align="RIGHT_LEFT", padding_value=7.0)).tolist() == [[7, 2, 7], [1, 6, 11], [0, 5, 10]]
    assert np.allclose(run(tf.matrix_band_part(x, 0, -1)), np.triu(x))
    assert run(tf.matrix_set_diag(x, [9.0, 9.0, 9.0]))[1].tolist() == [4, 9, 6, 7]
    assert run(tf.diag_part(tf.diag([[1.0, 2.0], [3.0, 4.0]]))).tolist() == [[1, 2], [3, 4]]
    assert run(tf.matrix_diag(tf.constant([True, False]))).tolist() == [[True, False], [False, False]]


def test_norms():
    x = RNG.standard_normal((3, 4))
    assert run(tf.norm(x)) == pytest.approx(np.linalg.norm(x))
    assert np.allclose(run(tf.norm(x, ord=1, axis=1)), np.linalg.norm(x, 1, 1))
    assert np.allclose(run(tf.norm(x, ord=3, axis=0)), np.linalg.norm(x, 3, 0))
    for order in ("fro", 1, 2, np.inf):
        assert run(tf.norm(x, ord=order, axis=(0, 1))) == pytest.approx(np.linalg.norm(x, order))
    with pytest.raises(ValueError, match="'ord' must be a supported vector norm"):
        tf.norm(x, ord="fro", axis=0)
