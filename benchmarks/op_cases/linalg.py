"""Factorisations and functions of matrices, alone and in stacks (see `numbers`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.op_cases.numbers import Build, add_case, random

CASES: dict[str, Build] = {}


def case(name: str, function: Callable[..., Any], *arrays: Any, kind: str | None = None) -> None:
    add_case(CASES, name, function, *arrays, kind=kind)


def positive(count: int, n: int, kind: Any = np.float32) -> np.ndarray:
    """Symmetric matrices with positive eigenvalues."""
    x = random(count, n, n, kind=np.float64)
    return (x @ np.swapaxes(x, 1, 2) + n * np.eye(n)).astype(kind)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": lambda tf, x: tf.cholesky(x),
    "lu": lambda tf, x: list(tf.linalg.lu(x)),
    "qr": lambda tf, x: list(tf.qr(x)),
    "qr full": lambda tf, x: list(tf.qr(x, full_matrices=True)),
    "svd": lambda tf, x: list(tf.svd(x)),
    "svd values": lambda tf, x: tf.svd(x, compute_uv=False),
    "eigh": lambda tf, x: list(tf.self_adjoint_eig(x)),
    "eigvalsh": lambda tf, x: tf.self_adjoint_eigvals(x),
    "matrix_square_root": lambda tf, x: tf.linalg.sqrtm(x),
    "matrix_exponential": lambda tf, x: tf.linalg.expm(x / 10.0),
    "matrix_logarithm": lambda tf, x: tf.linalg.logm(tf.cast(x, tf.complex64)),
    "inverse": lambda tf, x: tf.matrix_inverse(x),
    "determinant": lambda tf, x: tf.matrix_determinant(x),
    "log_determinant": lambda tf, x: list(tf.linalg.slogdet(x)),
    "solve one": lambda tf, x: tf.matrix_solve(x, x[..., :1]),
    "solve": lambda tf, x: tf.matrix_solve(x, x + 1.0),
    "lstsq": lambda tf, x: tf.matrix_solve_ls(x, x[..., :1]),
    "lstsq slow": lambda tf, x: tf.matrix_solve_ls(x, x[..., :1], fast=False),
    "triangular": lambda tf, x: tf.matrix_triangular_solve(x, x + 1.0),
    "cholesky_solve": lambda tf, x: tf.cholesky_solve(x, x[..., :1]),
    "cholesky gradient": lambda tf, x: tf.gradients(tf.cholesky(x), x)[0],
}
for _name, _function in _FUNCTIONS.items():
    for _count, _n in ((1, 3), (1000, 3), (500, 8), (100, 32), (1, 100), (1, 300)):
        if (_n > 100 and _name in ("matrix_logarithm", "matrix_square_root", "svd", "lstsq slow")) or (_name == "matrix_logarithm" and _count > 100):
            continue
        case(f"{_name} {_count} of {_n} x {_n}", _function, positive(_count, _n))
    case(f"{_name} float64 500 of 8 x 8", _function, positive(500, 8, np.float64))
case("qr 200 of 20 x 8", lambda tf, x: list(tf.qr(x)), random(200, 20, 8))
case("qr 200 of 8 x 20", lambda tf, x: list(tf.qr(x)), random(200, 8, 20))
case("svd 200 of 20 x 8", lambda tf, x: list(tf.svd(x)), random(200, 20, 8))
case("lstsq 200 of 20 x 8", lambda tf, x: tf.matrix_solve_ls(x, x[..., :1]), random(200, 20, 8))
case("pinv 200 of 20 x 8", lambda tf, x: tf.linalg.pinv(x), random(200, 20, 8))
case("eigh complex64 100 of 8 x 8", lambda tf, x: list(tf.self_adjoint_eig(tf.cast(x, tf.complex64))), positive(100, 8))
case("tridiagonal_solve 100 of 100", lambda tf, d, x: tf.linalg.tridiagonal_solve(d, x, "compact"), random(100, 3, 100, low=1, high=2), random(100, 100))
case("adjoint 500 of 8 x 8", lambda tf, x: tf.linalg.adjoint(x), random(500, 8, 8, kind=np.complex64))
case("matrix_power by squaring", lambda tf, x: tf.matmul(tf.matmul(x, x), tf.matmul(x, x)), random(500, 8, 8))
case("norms of rows", lambda tf, x: tf.norm(x, axis=-1), random(1000, 1000))
case("cross 10^5", lambda tf, x, y: tf.cross(x, y), random(100_000, 3), random(100_000, 3, low=0))
