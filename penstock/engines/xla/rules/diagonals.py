"""Diagonals and bands of matrices: building, reading and replacing them."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engines.xla.checks import need, refusals
from penstock.engines.xla.rule import jnp, lax, rule, static, static_ints
from penstock.engines.xla.values import array, const, size_of
from penstock.ops.diagonals import LEFT_LEFT, length_of, longest, matrix_size, start_of

# -- bands ------------------------------------------------------------------------------------------------------------


def _band(k: Any) -> tuple[int, int]:
    values = static_ints(k)
    need(len(values) in (1, 2) and values[0] <= values[-1], "no band")
    return values[0], values[-1]


def _distance(rows: int, columns: int) -> Any:
    """column - row of every cell."""
    return lax.broadcasted_iota(np.int32, (rows, columns), 1) - lax.broadcasted_iota(np.int32, (rows, columns), 0)


def _written(matrix: Any, stacked: Any, lower: int, upper: int, align: bytes) -> Any:
    """`matrix` with its band replaced by the rows of `stacked`."""
    rows, columns = matrix.shape[-2:]
    distance = _distance(rows, columns)
    for d in range(lower, upper + 1):
        n = length_of(d, rows, columns)
        if n <= 0:
            continue
        begin = start_of(d, n, stacked.shape[-1], align)
        diagonal = stacked[..., upper - d, begin : begin + n]
        # One element a row, in the row where it belongs.
        before = max(-d, 0)
        room = [(0, 0, 0)] * (diagonal.ndim - 1) + [(before, rows - before - n, 0)]
        matrix = jnp.where(distance == d, lax.pad(diagonal, const(0, diagonal), room)[..., None], matrix)
    return matrix


def _read(x: Any, d: int) -> Any:
    return jnp.diagonal(x, d, -2, -1)


def _diag(diagonal: Any, k: Any, num_rows: Any, num_cols: Any, padding: Any, align: bytes) -> Any:
    lower, upper = _band(k)
    count = upper - lower + 1
    need(diagonal.ndim >= 1 and (count == 1 or (diagonal.ndim >= 2 and diagonal.shape[-2] == count)), "another number of diagonals")
    with refusals():
        rows, columns = matrix_size(diagonal.shape[-1], lower, upper, int(static(num_rows)), int(static(num_cols)))
    diagonal = array(diagonal)
    stacked = diagonal if count > 1 else diagonal[..., None, :]
    blank = jnp.broadcast_to(array(padding), (*stacked.shape[:-2], rows, columns))
    return _written(blank, stacked, lower, upper, align)


def _diag_part(x: Any, k: Any, padding: Any, align: bytes) -> Any:
    lower, upper = _band(k)
    need(x.ndim >= 2, "no matrix")
    rows, columns = x.shape[-2:]
    need(all(-rows < d < columns or d == 0 for d in (lower, upper)), "a band outside of the matrix")
    x = array(x)
    if lower == upper:
        return _read(x, lower)
    width = longest(lower, upper, rows, columns)
    parts = []
    for d in range(upper, lower - 1, -1):
        diagonal = _read(x, d)
        begin = start_of(d, diagonal.shape[-1], width, align)
        room = [(0, 0, 0)] * (diagonal.ndim - 1) + [(begin, width - begin - diagonal.shape[-1], 0)]
        parts.append(lax.pad(diagonal, array(padding), room))
    return jnp.stack(parts, -2)


def _set_diag(x: Any, diagonal: Any, k: Any, align: bytes) -> Any:
    lower, upper = _band(k)
    need(x.ndim >= 2, "no matrix")
    rows, columns = x.shape[-2:]
    need(all(-rows < d < columns or d == 0 for d in (lower, upper)), "a band outside of the matrix")
    count = upper - lower + 1
    want = x.shape[:-2] + ((count,) if count > 1 else ()) + (longest(lower, upper, rows, columns),)
    need(diagonal.shape == want, "diagonals of another shape")
    diagonal = array(diagonal)
    return _written(array(x), diagonal if count > 1 else diagonal[..., None, :], lower, upper, align)


MAIN = np.array(0, np.int32)
FITTING = np.array(-1, np.int32)


@rule("MatrixDiag", "BatchMatrixDiag")
def matrix_diag(diagonal: Any) -> Any:
    return _diag(diagonal, MAIN, FITTING, FITTING, const(0, diagonal), LEFT_LEFT)


@rule("MatrixDiagV2")
def matrix_diag_v2(diagonal: Any, k: Any, num_rows: Any, num_cols: Any, padding: Any) -> Any:
    return _diag(diagonal, k, num_rows, num_cols, padding, LEFT_LEFT)


@rule("MatrixDiagV3")
def matrix_diag_v3(diagonal: Any, k: Any, num_rows: Any, num_cols: Any, padding: Any, *, align: bytes) -> Any:
    return _diag(diagonal, k, num_rows, num_cols, padding, align)


@rule("MatrixDiagPart", "BatchMatrixDiagPart")
def matrix_diag_part(x: Any) -> Any:
    need(x.ndim >= 2, "no matrix")
    return _read(x, 0)


@rule("MatrixDiagPartV2")
def matrix_diag_part_v2(x: Any, k: Any, padding: Any) -> Any:
    return _diag_part(x, k, padding, LEFT_LEFT)


@rule("MatrixDiagPartV3")
def matrix_diag_part_v3(x: Any, k: Any, padding: Any, *, align: bytes) -> Any:
    return _diag_part(x, k, padding, align)


@rule("MatrixSetDiag", "BatchMatrixSetDiag")
def matrix_set_diag(x: Any, diagonal: Any) -> Any:
    return _set_diag(x, diagonal, MAIN, LEFT_LEFT)


@rule("MatrixSetDiagV2")
def matrix_set_diag_v2(x: Any, diagonal: Any, k: Any) -> Any:
    return _set_diag(x, diagonal, k, LEFT_LEFT)


@rule("MatrixSetDiagV3")
def matrix_set_diag_v3(x: Any, diagonal: Any, k: Any, *, align: bytes) -> Any:
    return _set_diag(x, diagonal, k, align)


@rule("MatrixBandPart", "BatchMatrixBandPart")
def matrix_band_part(x: Any, num_lower: Any, num_upper: Any) -> Any:
    need(x.ndim >= 2 and num_lower.ndim == 0 and num_upper.ndim == 0, "no matrix")
    low, high = int(static(num_lower)), int(static(num_upper))
    rows, columns = x.shape[-2:]
    need(low <= rows and high <= columns, "a band wider than the matrix")
    distance = _distance(rows, columns)
    inside = ((distance >= -low) | (low < 0)) & ((distance <= high) | (high < 0))
    return jnp.where(inside, array(x), const(0, x))


# -- diagonals of tensors ---------------------------------------------------------------------------------------------


@rule("Diag")
def diag(diagonal: Any) -> Any:
    need(diagonal.ndim >= 1, "a scalar")
    flat = jnp.reshape(diagonal, (-1,))
    return jnp.reshape(matrix_diag(flat), diagonal.shape * 2)


@rule("DiagPart")
def diag_part(x: Any) -> Any:
    half = x.ndim // 2
    need(x.ndim % 2 == 0 and x.shape[:half] == x.shape[half:], "no square")
    n = size_of(x.shape[:half])
    return jnp.reshape(_read(jnp.reshape(x, (n, n)), 0), x.shape[:half])
