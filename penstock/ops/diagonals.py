"""Diagonals and bands of matrices: building, reading and replacing them.

A band `k = [lower, upper]` is stored as rows of equal length, the upper diagonal first; short diagonals are padded on the
side that `align` says: "RIGHT_LEFT" puts superdiagonals to the right and subdiagonals to the left. The V2 ops always align to the left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.declare import op, same_as, with_rank_at_least
from penstock.ops.samples import arr, empty, normal
from penstock.shapes import Dims, format_dims, merge_dim, merge_dims

LEFT_LEFT = b"LEFT_LEFT"

# -- geometry ---------------------------------------------------------------------------------------------------------


def band(k: Any) -> tuple[int, int]:
    """(lower, upper) of a diagonal index."""
    if k.ndim > 1:
        raise InvalidArgumentError(f"diag_index must be a scalar or vector, received shape: {format_dims(k.shape)}")
    values = np.ravel(k).tolist()
    if len(values) not in (1, 2):
        raise InvalidArgumentError(f"diag_index must have only one or two elements, received {len(values)} elements.")
    lower, upper = values[0], values[-1]
    if lower > upper:
        raise InvalidArgumentError(f"lower_diag_index must not be larger than upper_diag_index: {lower} > {upper}")
    return lower, upper


def check_band(lower: int, upper: int, rows: int, columns: int, dot: str = ".") -> None:
    for name, d in (("lower", lower), ("upper", upper)):
        if not ((-rows < d < columns) or d == 0):
            raise InvalidArgumentError(f"{name}_diag_index is out of bound: {d}{dot} It must be between {-rows} and {columns}")


def longest(lower: int, upper: int, rows: int, columns: int) -> int:
    """The length of the longest diagonal in the band."""
    return min(rows + min(upper, 0), columns + min(-lower, 0))


def length_of(d: int, rows: int, columns: int) -> int:
    return min(rows + min(0, d), columns - max(0, d))


def start_of(d: int, length: int, width: int, align: bytes) -> int:
    """Where a diagonal begins in its padded row."""
    left_above = align in (LEFT_LEFT, b"LEFT_RIGHT")
    left_below = align in (LEFT_LEFT, b"RIGHT_LEFT")
    return 0 if (d >= 0 and left_above) or (d <= 0 and left_below) else width - length


def diagonal_index(d: int, length: int) -> tuple[Any, Any]:
    """(rows, columns) of diagonal `d`."""
    steps = np.arange(length)
    return steps + max(-d, 0), steps + max(d, 0)


def _scalar(value: Any, name: str) -> Any:
    if value.ndim:
        raise InvalidArgumentError(f"{name} must be a scalar")
    return value


# -- kernels ----------------------------------------------------------------------------------------------------------


def diag_kernel(diagonal: Any, k: Any, num_rows: Any, num_cols: Any, padding: Any, align: bytes) -> Any:
    diagonal = np.asarray(diagonal)
    if diagonal.ndim < 1:
        raise InvalidArgumentError(f"diagonal must be at least 1-dim, received shape: {format_dims(diagonal.shape)}")
    lower, upper = band(k)
    count = upper - lower + 1
    if count > 1 and (diagonal.ndim < 2 or diagonal.shape[-2] != count):
        raise InvalidArgumentError("The number of diagonals provided in the input does not match the lower_diag_index and upper_diag_index range.")
    width = diagonal.shape[-1]
    rows, columns = matrix_size(width, lower, upper, int(num_rows), int(num_cols))
    stacked = diagonal if count > 1 else diagonal[..., None, :]
    result = np.full((*stacked.shape[:-2], rows, columns), _scalar(padding, "padding_value"), dtype=diagonal.dtype)
    write_band(result, stacked, lower, upper, align)
    return result


def matrix_size(width: int, lower: int, upper: int, rows: int, columns: int) -> tuple[int, int]:
    """The size of the matrix with such a band; -1 stands for the smallest that fits."""
    least_rows, least_columns = width - min(upper, 0), width + max(lower, 0)
    if rows != -1 and rows < least_rows:
        raise InvalidArgumentError("The number of rows is too small.")
    if columns != -1 and columns < least_columns:
        raise InvalidArgumentError("The number of columns is too small.")
    if rows == -1 and columns == -1:
        rows = columns = max(least_rows, least_columns)
    elif rows == -1:
        rows = least_rows
    elif columns == -1:
        columns = least_columns
    if rows != least_rows and columns != least_columns:
        raise InvalidArgumentError("The number of rows or columns is not consistent with the specified d_lower, d_upper, and diagonal.")
    return rows, columns


def write_band(matrix: np.ndarray, stacked: np.ndarray, lower: int, upper: int, align: bytes) -> None:
    rows, columns = matrix.shape[-2:]
    width = stacked.shape[-1]
    for d in range(lower, upper + 1):
        n = length_of(d, rows, columns)
        begin = start_of(d, n, width, align)
        matrix[(..., *diagonal_index(d, n))] = stacked[..., upper - d, begin : begin + n]


def diag_part_kernel(x: Any, k: Any, padding: Any, align: bytes) -> Any:
    x = np.asarray(x)
    if x.ndim < 2:
        raise InvalidArgumentError(f"input must be at least 2-dim, received shape: {format_dims(x.shape)}")
    lower, upper = band(k)
    rows, columns = x.shape[-2:]
    check_band(lower, upper, rows, columns)
    if lower == upper:
        return x[(..., *diagonal_index(lower, length_of(lower, rows, columns)))]
    width = longest(lower, upper, rows, columns)
    result = np.full((*x.shape[:-2], upper - lower + 1, width), _scalar(padding, "padding_value"), dtype=x.dtype)
    for d in range(lower, upper + 1):
        n = length_of(d, rows, columns)
        begin = start_of(d, n, width, align)
        result[..., upper - d, begin : begin + n] = x[(..., *diagonal_index(d, n))]
    return result


def set_diag_kernel(x: Any, diagonal: Any, k: Any, align: bytes) -> Any:
    x, diagonal = np.asarray(x), np.asarray(diagonal)
    if x.ndim < 2:
        raise InvalidArgumentError(f"input must be at least 2-dim, received shape: {format_dims(x.shape)}")
    lower, upper = band(k)
    rows, columns = x.shape[-2:]
    check_band(lower, upper, rows, columns, "")
    count = upper - lower + 1
    want = x.shape[:-2] + ((count,) if count > 1 else ()) + (longest(lower, upper, rows, columns),)
    if diagonal.shape != want:
        raise InvalidArgumentError(
            "Either first dimensions of diagonal don't match input.shape[:-2], or diagonal.shape[:-1] is not equal to the longests diagonal in range "
            f"[lower_diag_index:upper_diag_index].\nInput shape: {format_dims(x.shape)}\nDiagonal shape: {format_dims(diagonal.shape)}\n"
            f"Expected diagonal shape: {format_dims(want)}"
        )
    result = x.copy()
    write_band(result, diagonal if count > 1 else diagonal[..., None, :], lower, upper, align)
    return result


ZERO = np.array(0, dtype=np.int32)


def _zero_of(x: Any) -> Any:
    return np.array(b"", dtype=object) if x.dtype.hasobject else np.zeros((), dtype=x.dtype)


# -- shapes -----------------------------------------------------------------------------------------------------------


def _known_band(c: Any, i: int) -> tuple[int, int] | None:
    k = c.const(i)
    if k is None:
        return None
    try:
        return band(k)
    except InvalidArgumentError as error:
        raise ValueError(error.message) from None


def diag_shape(c: Any) -> Dims:
    dims = with_rank_at_least(c, 0, 1)
    return None if dims is None else (*dims, dims[-1])


def diag_v2_shape(c: Any) -> Dims:
    dims = with_rank_at_least(c, 0, 1)
    known = _known_band(c, 1)
    if dims is None or known is None:
        return None
    lower, upper = known
    count = upper - lower + 1
    if count > 1:
        if len(dims) < 2:
            raise ValueError(f"Shape must be at least rank 2 but is rank {len(dims)}")
        if dims[-2] not in (None, count):
            raise ValueError("The number of rows of `diagonal` doesn't match the number of diagonals implied from `d_lower` and `d_upper`.")
    batch = dims[: -2 if count > 1 else -1]
    sizes = [c.const(i) for i in (2, 3)]
    if dims[-1] is None or any(s is None for s in sizes):
        return *batch, None, None
    try:
        return *batch, *matrix_size(dims[-1], lower, upper, *(int(s) for s in sizes))
    except InvalidArgumentError as error:
        raise ValueError(error.message) from None


def diag_part_shape(c: Any) -> Dims:
    dims = with_rank_at_least(c, 0, 2)
    if dims is None:
        return None
    rows, columns = dims[-2:]
    return *dims[:-2], None if rows is None or columns is None else min(rows, columns)


def diag_part_v2_shape(c: Any) -> Dims:
    dims = with_rank_at_least(c, 0, 2)
    known = _known_band(c, 1)
    if dims is None or known is None:
        return None
    lower, upper = known
    rows, columns = dims[-2:]
    count = (upper - lower + 1,) if upper > lower else ()
    if rows is None or columns is None:
        return *dims[:-2], *count, None
    try:
        check_band(lower, upper, rows, columns)
    except InvalidArgumentError as error:
        raise ValueError(error.message) from None
    return *dims[:-2], *count, longest(lower, upper, rows, columns)


def set_diag_shape(c: Any) -> Dims:
    x, d = with_rank_at_least(c, 0, 2), with_rank_at_least(c, 1, 1)
    if x is None or d is None:
        return x
    rows, columns = x[-2:]
    least = None if rows is None or columns is None else min(rows, columns)
    merge_dim(least, d[-1])
    return *merge_dims(x[:-2], d[:-1]), *x[-2:]  # type: ignore[misc]


def set_diag_v2_shape(c: Any) -> Dims:
    x, d = with_rank_at_least(c, 0, 2), with_rank_at_least(c, 1, 1)
    known = _known_band(c, 2)
    if x is None or d is None or known is None:
        return x
    lower, upper = known
    rows, columns = x[-2:]
    if rows is not None and columns is not None:
        try:
            check_band(lower, upper, rows, columns)
        except InvalidArgumentError as error:
            raise ValueError(error.message) from None
    batch = d[: -2 if upper > lower else -1]
    return *merge_dims(x[:-2], batch), *x[-2:]  # type: ignore[misc]


# -- gradients --------------------------------------------------------------------------------------------------------


def _zero(g: Any, t: Any) -> Any:
    return g.const(0, t.dtype)


def diag_part_grad(g: Any, op: Any, dy: Any) -> Any:
    dims = op.input.dims
    if dims is not None and dims[-1] is not None and dims[-1] == dims[-2]:
        return g.MatrixDiag(dy)
    return g.MatrixSetDiag(g.ZerosLike(op.input), dy)


def diag_part_v2_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    return [g.MatrixSetDiagV2(g.ZerosLike(op.input), dy, op.k), None, None]


def diag_part_v3_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    dims = op.input.dims
    if dims is not None and None not in dims[-2:]:
        sizes = (np.int32(n) for n in dims[-2:])
        return [g.MatrixDiagV3(dy, op.k, *sizes, _zero(g, dy), align=op.attr("align")), None, None]
    return [g.MatrixSetDiagV3(g.ZerosLike(op.input), dy, op.k, align=op.attr("align")), None, None]


def set_diag_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    return [g.MatrixSetDiag(dy, g.ZerosLike(op.diagonal)), g.MatrixDiagPart(dy)]


def set_diag_v2_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    return [g.MatrixSetDiagV2(dy, g.ZerosLike(op.diagonal), op.k), g.MatrixDiagPartV2(dy, op.k, _zero(g, dy)), None]


def set_diag_v3_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    align = op.attr("align")
    return [g.MatrixSetDiagV3(dy, g.ZerosLike(op.diagonal), op.k, align=align), g.MatrixDiagPartV3(dy, op.k, _zero(g, dy), align=align), None]


# -- declarations -----------------------------------------------------------------------------------------------------

ALIGN = "align: string in {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'"
MATRICES = [dict(input=normal(3, 4)), dict(input=normal(2, 4, 3)), dict(input=empty(0, 3, 3))]
BANDS = [dict(input=normal(3, 4), k=0), dict(input=normal(2, 4, 3), k=[-1, 1]), dict(input=normal(3, 5), k=2), dict(input=normal(5, 3), k=[-3, -1])]

for _name, _deprecated in (("MatrixDiag", ""), ("BatchMatrixDiag", " deprecated@14")):
    op(f"{_name}(diagonal: T) -> (output: T) [T: type]{_deprecated}",
       shape=diag_shape, numpy=lambda d: diag_kernel(d, ZERO, -1, -1, _zero_of(d), LEFT_LEFT), grad=lambda g, op, dy: g.MatrixDiagPart(dy),
       samples=[] if _deprecated else [dict(diagonal=normal(3)), dict(diagonal=normal(2, 3)), dict(diagonal=empty(2, 0))])
for _name, _deprecated in (("MatrixDiagPart", ""), ("BatchMatrixDiagPart", " deprecated@14")):
    op(f"{_name}(input: T) -> (diagonal: T) [T: type]{_deprecated}",
       shape=diag_part_shape, numpy=lambda x: diag_part_kernel(x, ZERO, _zero_of(x), LEFT_LEFT), grad=diag_part_grad, samples=[] if _deprecated else MATRICES)
for _name, _deprecated in (("MatrixSetDiag", ""), ("BatchMatrixSetDiag", " deprecated@14")):
    op(f"{_name}(input: T, diagonal: T) -> (output: T) [T: type]{_deprecated}",
       shape=set_diag_shape, numpy=lambda x, d: set_diag_kernel(x, d, ZERO, LEFT_LEFT), grad=set_diag_grad,
       samples=[] if _deprecated else [dict(input=normal(3, 4), diagonal=normal(3)), dict(input=normal(2, 4, 3), diagonal=normal(2, 3))])  # fmt: skip

op("MatrixDiagV2(diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T) -> (output: T) [T: type]",
   shape=diag_v2_shape, numpy=lambda d, k, rows, cols, padding: diag_kernel(d, k, rows, cols, padding, LEFT_LEFT),
   grad=lambda g, op, dy: [g.MatrixDiagPartV2(dy, op.k, _zero(g, dy)), None, None, None, None],
   samples=[dict(diagonal=normal(3), k=1, num_rows=-1, num_cols=-1, padding_value=arr(9)), dict(diagonal=normal(2, 2, 3), k=[-1, 0], num_rows=3, num_cols=3, padding_value=arr(0))])


def matrix_diag_v3(d: Any, k: Any, rows: Any, cols: Any, padding: Any, *, align: bytes) -> Any:
    return diag_kernel(d, k, rows, cols, padding, align)


op(f"MatrixDiagV3(diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T) -> (output: T) [T: type; {ALIGN}]",
   shape=diag_v2_shape, numpy=matrix_diag_v3,
   grad=lambda g, op, dy: [g.MatrixDiagPartV3(dy, op.k, _zero(g, dy), align=op.attr("align")), None, None, None, None],
   samples=[dict(diagonal=normal(3), k=1, num_rows=-1, num_cols=-1, padding_value=arr(9)), dict(diagonal=normal(2, 3), k=-1, num_rows=-1, num_cols=3, padding_value=arr(0)),
            *[dict(diagonal=normal(2, 3, 3), k=[-1, 1], num_rows=3, num_cols=4, padding_value=arr(0), align=a) for a in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")]],
   errors=[(dict(diagonal=normal(2, 3), k=[0, 1], num_rows=2, num_cols=-1, padding_value=arr(0)), InvalidArgumentError, "The number of rows is too small."),
           (dict(diagonal=normal(2, 3), k=[0, 1], num_rows=5, num_cols=5, padding_value=arr(0)), InvalidArgumentError, "not consistent with the specified d_lower"),
           (dict(diagonal=normal(3), k=[1, 0], num_rows=3, num_cols=3, padding_value=arr(0)), InvalidArgumentError, "lower_diag_index must not be larger than upper_diag_index: 1 > 0")])  # fmt: skip

op("MatrixDiagPartV2(input: T, k: int32, padding_value: T) -> (diagonal: T) [T: type]",
   shape=diag_part_v2_shape, numpy=lambda x, k, padding: diag_part_kernel(x, k, padding, LEFT_LEFT), grad=diag_part_v2_grad,
   samples=[{**s, "padding_value": arr(7)} for s in (BANDS[0], BANDS[2], BANDS[3])])  # fmt: skip


def matrix_diag_part_v3(x: Any, k: Any, padding: Any, *, align: bytes) -> Any:
    return diag_part_kernel(x, k, padding, align)


op(f"MatrixDiagPartV3(input: T, k: int32, padding_value: T) -> (diagonal: T) [T: type; {ALIGN}]",
   shape=diag_part_v2_shape, numpy=matrix_diag_part_v3, grad=diag_part_v3_grad,
   samples=[{**s, "padding_value": arr(7), "align": a} for s, a in zip(BANDS, ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"), strict=True)],
   errors=[(dict(input=normal(3, 4), k=4, padding_value=arr(0)), InvalidArgumentError, "lower_diag_index is out of bound: 4. It must be between -3 and 4")])

op("MatrixSetDiagV2(input: T, diagonal: T, k: int32) -> (output: T) [T: type]",
   shape=set_diag_v2_shape, numpy=lambda x, d, k: set_diag_kernel(x, d, k, LEFT_LEFT), grad=set_diag_v2_grad,
   samples=[dict(input=normal(3, 4), diagonal=normal(3), k=1), dict(input=normal(2, 4, 3), diagonal=normal(2, 2, 3), k=[-1, 0])])  # fmt: skip


def matrix_set_diag_v3(x: Any, d: Any, k: Any, *, align: bytes) -> Any:
    return set_diag_kernel(x, d, k, align)


op(f"MatrixSetDiagV3(input: T, diagonal: T, k: int32) -> (output: T) [T: type; {ALIGN}]",
   shape=set_diag_v2_shape, numpy=matrix_set_diag_v3, grad=set_diag_v3_grad,
   samples=[dict(input=normal(3, 4), diagonal=normal(3), k=1),
            *[dict(input=normal(2, 4, 3), diagonal=normal(2, 3, 3), k=[-1, 1], align=a) for a in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")]],
   errors=[(dict(input=normal(3, 4), diagonal=normal(2), k=0), InvalidArgumentError, "Either first dimensions of diagonal don't match input.shape")])  # fmt: skip

# -- bands ------------------------------------------------------------------------------------------------------------


def band_part_kernel(x: Any, num_lower: Any, num_upper: Any) -> Any:
    x = np.asarray(x)
    if x.ndim < 2:
        raise InvalidArgumentError(f"input must be at least 2-dim, received shape: {format_dims(x.shape)}")
    rows, columns = x.shape[-2:]
    for name, value, size, what in (("num_lower", num_lower, rows, "rows"), ("num_upper", num_upper, columns, "columns")):
        if value.ndim:
            raise InvalidArgumentError(f"{name} must be scalar, got shape {format_dims(value.shape)}")
        if value > size:
            raise InvalidArgumentError(f"{name} must be negative or less or equal to number of {what} ({size}) got: {int(value)}")
    if not x.size:
        return x.copy()
    low, high = int(num_lower), int(num_upper)
    first, end = 0 if low < 0 else max(rows - 1 - low, 0), rows + columns if high < 0 else rows + high
    if x.dtype.kind in "fiu" and x.dtype.isbuiltin:
        bits = _UNSIGNED[x.itemsize]
        kept = np.zeros(rows + columns - 1, bits)
        kept[first:end] = np.iinfo(bits).max
        return (x.view(bits) & _by_distance(kept, rows, columns)).view(x.dtype)
    inside = np.zeros(rows + columns - 1, bool)
    inside[first:end] = True
    return np.where(_by_distance(inside, rows, columns), x, _zero_of(x))


def _by_distance(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The matrix whose element (i, j) is values[rows - 1 + j - i]: a view, no larger than they are."""
    size = values.itemsize
    return np.ndarray((rows, columns), values.dtype, values, (rows - 1) * size, (-size, size))


_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


for _name, _types, _deprecated in (("MatrixBandPart", "num_lower: Tindex, num_upper: Tindex", ""), ("BatchMatrixBandPart", "num_lower: int64, num_upper: int64", " deprecated@14")):
    op(f"{_name}(input: T, {_types}) -> (band: T) [T: type{'' if _deprecated else '; Tindex: type in INDEX = int64'}]{_deprecated}",
       shape=same_as("input"), numpy=band_part_kernel, grad=lambda g, op, dy: [g.MatrixBandPart(dy, op.num_lower, op.num_upper), None, None],
       samples=[] if _deprecated else [dict(input=normal(3, 4), num_lower=1, num_upper=0), dict(input=normal(2, 4, 3), num_lower=-1, num_upper=1),
                                       dict(input=normal(3, 3), num_lower=0, num_upper=-1), dict(input=empty(0, 3, 3), num_lower=0, num_upper=0)],
       errors=[] if _deprecated else [(dict(input=normal(3, 3), num_lower=4, num_upper=0), InvalidArgumentError, r"num_lower must be negative or less or equal to number of rows \(3\) got: 4")])  # fmt: skip

# -- diagonals of tensors ---------------------------------------------------------------------------------------------


def tensor_diag_kernel(diagonal: Any) -> Any:
    if diagonal.ndim < 1:
        raise InvalidArgumentError("Input must be at least rank 1, got 0")
    return np.diag(np.ravel(diagonal)).reshape(diagonal.shape * 2)


def tensor_diag_part_kernel(x: Any) -> Any:
    if x.ndim % 2:
        raise InvalidArgumentError(f"The rank of the tensor should be even and positive, got shape {format_dims(x.shape)}")
    half = x.ndim // 2
    for i in range(half):
        if x.shape[i] != x.shape[i + half]:
            raise InvalidArgumentError(f"Invalid shape {format_dims(x.shape)}: dimensions {i} and {i + half} do not match.")
    size = int(np.prod(x.shape[:half]))
    return np.diagonal(np.reshape(x, (size, size))).reshape(x.shape[:half])


def tensor_diag_shape(c: Any) -> Dims:
    dims = with_rank_at_least(c, 0, 1)
    return None if dims is None else dims * 2


def tensor_diag_part_shape(c: Any) -> Dims:
    dims = c.dims(0)
    if dims is None:
        return None
    if len(dims) % 2 or not dims:
        raise ValueError(f"Input must have even and non-zero rank, input rank is {len(dims)}")
    half = len(dims) // 2
    return merge_dims(dims[:half], dims[half:])


_TYPES = "{bfloat16, half, float, double, int32, int64, complex64, complex128}"
op(f"Diag(diagonal: T) -> (output: T) [T: type in {_TYPES}]",
   shape=tensor_diag_shape, numpy=tensor_diag_kernel, grad=lambda g, op, dy: g.DiagPart(dy), samples=[dict(diagonal=normal(3)), dict(diagonal=normal(2, 3)), dict(diagonal=empty(0))])
op(f"DiagPart(input: T) -> (diagonal: T) [T: type in {_TYPES}]",
   shape=tensor_diag_part_shape, numpy=tensor_diag_part_kernel, grad=lambda g, op, dy: g.Diag(dy), samples=[dict(input=normal(3, 3)), dict(input=normal(2, 3, 2, 3))],
   errors=[(dict(input=normal(2, 3)), InvalidArgumentError, r"Invalid shape \[2,3\]: dimensions 0 and 1 do not match.")])  # fmt: skip
