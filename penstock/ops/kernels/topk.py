"""Largest entries along the last dimension: TopK, NthElement, InTopK."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import errors
from penstock.ops import native
from penstock.ops.kernels.numeric import widen
from penstock.ops.kernels.window import show
from penstock.ops.native import folds, ranks
from penstock.ops.native.frames import share_out


def top_k(x, k, index_type: Any = np.int32):
    """The `k` largest entries of each row and where they are: largest first, and of equal ones the first comes first."""
    if np.ndim(k):
        raise errors.InvalidArgumentError(f"k must be scalar, got shape {show(np.shape(k))}")
    k = int(k)
    if k < 0:
        raise errors.InvalidArgumentError(f"Need k >= 0, got {k}")
    if np.ndim(x) < 1:
        raise errors.InvalidArgumentError(f"input must be >= 1-D, got shape {show(np.shape(x))}")
    n = x.shape[-1]
    if n < k:
        raise errors.InvalidArgumentError(f"input must have at least k columns. Had {n}, needed {k}")
    shape = (*x.shape[:-1], k)
    if 0 in shape:
        return [np.zeros(shape, x.dtype), np.zeros(shape, index_type)]
    flat = x.reshape(-1, n)
    wide = widen(flat)
    if k == 1:
        index = _largest_numbers(wide)[:, None]
    elif len(wide) == 1 and n <= ONE_SHORT_ROW and (found := _largest_of_one(wide[0], k)) is not None:
        return [flat[0].take(found).reshape(shape), found.astype(index_type).reshape(shape)]
    else:
        index = _among_candidates(wide, k) if n >= LEAST_IN_A_GROUP * GROUPS * k else None
        if index is not None:
            pass
        elif k <= MOST_ROUNDS and wide.size >= MANY and n >= folds.FEWEST and _is_narrow(wide) and native.available() and not (wide != wide).any():
            index = _in_rounds(wide, k)
        elif 4 * k < n and not (wide != wide).any():
            index = _largest(wide, k)
        else:
            index = _descending(wide)[:, :k]
    values = flat.reshape(-1).take(index + n * np.arange(len(flat))[:, None])
    return [values.reshape(shape), index.astype(index_type).reshape(shape)]


def _largest_numbers(x: np.ndarray) -> np.ndarray:
    """Where the largest number of each row is, the first of equal ones. What is no number does not count, unlike where more entries are wanted: as in TensorFlow, mostly."""
    index = np.argmax(x, -1)
    if x.dtype.kind == "f":
        found = x[np.arange(len(x)), index]
        for row in np.flatnonzero(found != found):
            numbers = np.flatnonzero(x[row] == x[row])
            if numbers.size:
                index[row] = numbers[np.argmax(x[row, numbers])]
    return index


def _descending(x: np.ndarray) -> np.ndarray:
    """Indices that sort each row downwards, equal entries in their own order."""
    rows, n = x.shape
    if x.dtype.kind not in "iuf" or not SHORT < n < 1 << 31 or x.size < FEW or (x != x).any():
        return _stably_descending(x)
    is_narrow = _is_narrow(x)
    if not is_narrow and n < WIDE_FROM:
        return _stably_descending(x)
    result = np.empty((rows, n), np.int64)
    sort = _sort_together if is_narrow else _sort_apart

    def run(start: int, end: int) -> None:
        sort(x[start:end], result[start:end])

    share_out(rows, n * WORK, run)
    return result


def _in_rounds(x: np.ndarray, k: int) -> np.ndarray:
    """As `_descending(x)[:, :k]`: the maximum of each row's numbers, which end with where they are, then that of the others, and so on."""
    rows, n = x.shape
    found = np.empty((rows, k), np.int64)
    step = max(TOGETHER // n, 16)

    def run(start: int, end: int) -> None:
        for first in range(start, end, step):
            part = slice(first, min(first + step, end))
            keys = _ordered(x[part])
            keys <<= 32
            keys |= np.arange(n - 1, -1, -1)
            for i in range(k):
                if i:
                    np.copyto(keys, -1 << 63, where=keys == found[part, i - 1, None])
                largest = folds.fold(np.maximum, keys)
                if largest is None:
                    largest = np.maximum.reduce(keys, 1)
                found[part, i] = largest

    share_out(rows, n * WORK, run)
    found &= 0xFFFFFFFF
    return n - 1 - found


def _stably_descending(x: np.ndarray) -> np.ndarray:
    return x.shape[-1] - 1 - np.argsort(x[:, ::-1], -1, kind="stable")[:, ::-1]


def _is_narrow(x: np.ndarray) -> bool:
    """Whether 32 bits hold each value."""
    return x.itemsize <= 4 or (x.dtype == np.int64 and x.size > 0 and -(1 << 31) <= int(x.min()) and int(x.max()) < 1 << 31)


def _sort_together(x: np.ndarray, out: np.ndarray) -> None:
    """The complement of a value and its index in one number: sorting numbers is quicker than sorting indices by value."""
    np.invert(_ordered(x), out=out)
    out <<= 32
    out |= np.arange(x.shape[-1])
    out.sort(-1)
    out &= 0xFFFFFFFF


def _sort_apart(x: np.ndarray, out: np.ndarray) -> None:
    """Without regard to the order of equal entries, which is quicker; then those of them that stand together by index."""
    out[:] = np.argsort(-x if x.dtype.kind == "f" else ~x, -1)
    ranked = np.take_along_axis(x, out, -1)
    differs = ranked[:, 1:] != ranked[:, :-1]
    again = np.flatnonzero(~differs.all(1))
    if again.size:
        keys = out[again]
        keys[:, 1:] |= np.cumsum(differs[again], 1) << 32
        keys.sort(-1)
        out[again] = keys & 0xFFFFFFFF


MANY, MOST_ROUNDS = 1 << 13, 3
"""Entries from which on, and largest ones up to which, maxima are sought again and again."""
TOGETHER = 1 << 15
"""Entries that stay in the cache meanwhile."""
WIDE_FROM = 128
"""Entries of a row of 8 bytes each, from which on it pays to set equal ones right afterwards."""
WORK = 16
"""Numbers that are added in the time that one is sorted in."""
SHORT, FEW = 16, 256
"""Entries of a row, and of all rows, for which a plain sort is the quickest."""
GROUPS = 4
LEAST_IN_A_GROUP = 4
"""`_among_candidates` divides a row into at least GROUPS times k groups of at least LEAST_IN_A_GROUP entries."""


def _ordered(x: np.ndarray) -> np.ndarray:
    """32 bits with a sign, as int64, in the order of `x`, which has at most 32 bits and no NaN."""
    if x.dtype.kind != "f":
        return x.astype(np.int64) - (1 << 31) if x.dtype == np.uint32 else x.astype(np.int64)
    bits = (x.astype(np.float32, copy=False) + np.float32(0)).view(np.int32)  # adding 0 makes -0.0 equal to 0.0
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)


def _among_candidates(x: np.ndarray, k: int) -> np.ndarray | None:
    """As `_descending(x)[:, :k]`, if few entries of each row come into question; otherwise None.

    The k-th largest of the maxima of groups is no larger than the k-th largest entry, and not much smaller.
    """
    rows, n = x.shape
    groups = max(GROUPS * k, 64)
    size = n // groups
    if size < LEAST_IN_A_GROUP:
        return None
    maxima = np.maximum.reduce(x[:, : size * groups].reshape(rows, size, groups), 1)
    bound = np.partition(maxima, groups - k, -1)[:, groups - k, None]
    rest = x[:, size * groups :]
    if (maxima != maxima).any() or (rest != rest).any():
        return None
    at = np.flatnonzero(x >= bound)
    row = at // n
    counts = np.bincount(row, minlength=rows)
    most = int(counts.max())
    if most > max(4 * k, 64):
        return None
    # One row of candidates for each row of x; what fills up short ones comes last, since each has k candidates or more.
    column = np.arange(at.size) - np.repeat(np.cumsum(counts) - counts, counts)
    values = np.full((rows, most), x.min() if x.dtype.kind in "iu" else -np.inf, x.dtype)
    index = np.zeros((rows, most), np.int64)
    values[row, column] = x.reshape(-1)[at]
    index[row, column] = at - row * n
    return np.take_along_axis(index, _descending(values)[:, :k], -1)


def _largest(x: np.ndarray, k: int) -> np.ndarray:
    """As `_descending(x)[:, :k]` in linear time: all above the k-th value, then the first of those equal to it."""
    n = x.shape[-1]
    bound = np.partition(x, n - k, -1)[:, n - k, None]
    above = x >= bound
    if np.count_nonzero(above) > len(x) * k:  # more are equal to it than there is room for
        equal = x == bound
        above ^= equal
        above |= equal & (np.cumsum(equal, -1) <= k - above.sum(-1, keepdims=True))
    index = np.nonzero(above)[1].reshape(-1, k)
    order = _descending(np.take_along_axis(x, index, -1))
    return np.take_along_axis(index, order, -1)


ONE_SHORT_ROW = 4096
"""Entries of a row that stands alone, up to which the calls are what takes the time: fewer of them are better."""


def _largest_of_one(x: np.ndarray, k: int) -> np.ndarray | None:
    """As `_largest` for a vector; None if one of the largest is NaN."""
    n = len(x)
    last = np.partition(x, n - k)[n - k :]  # those above the k-th largest, in any order; NaN would be among them
    at = np.flatnonzero(x >= last[0])
    if at.size < k or (last != last).any():
        return None
    chosen = x.take(at)
    return at.take(at.size - 1 - np.argsort(chosen[::-1], kind="stable")[: -k - 1 : -1])


def nth_element(x, n, *, reverse):
    """The n-th smallest entry of each row, counted from 0 (`reverse`: the n-th largest)."""
    if np.ndim(n):
        raise errors.InvalidArgumentError(f"N must be scalar but has rank {np.ndim(n)}")
    n = int(n)
    if n < 0:
        raise errors.InvalidArgumentError(f"n must be non-negative but is {n}")
    if np.ndim(x) < 1:
        raise errors.InvalidArgumentError("Input must be at least rank 1 but is rank 0")
    size = x.shape[-1]
    if size <= n:
        raise errors.InvalidArgumentError(f"Input must have last dimension > n = {n}")
    at = size - 1 - n if reverse else n
    return np.partition(x, at, -1)[..., at]


FEW_CLASSES = 64
"""Numbers that NumPy looks at quickly enough."""


def in_top_k(predictions, targets, k):
    """Whether each target class is among the `k` largest of its row; rows that are not finite say no."""
    if np.ndim(k):
        raise errors.InvalidArgumentError(f"k must be 0-D, got shape {show(np.shape(k))}")
    if predictions.ndim != 2:
        raise errors.InvalidArgumentError("predictions must be 2-dimensional")
    if targets.ndim != 1:
        raise errors.InvalidArgumentError("targets must be 1-dimensional")
    rows, classes = predictions.shape
    if rows != targets.shape[0]:
        raise errors.InvalidArgumentError(
            f"First dimension of predictions {rows} must match length of targets {targets.shape[0]}"
        )
    if not rows or not classes:
        return np.zeros(rows, bool)
    if predictions.size >= FEW_CLASSES and (found := ranks.in_top_k(predictions, targets, int(k))) is not None:
        return found
    valid = (targets >= 0) & (targets < classes)
    chosen = np.take_along_axis(predictions, np.where(valid, targets, 0)[:, None], 1)
    larger = np.zeros(rows, np.int64)
    left, start, width = slice(None), 0, classes if predictions.size < MANY else max(64, 4 * int(k))
    while start < classes:  # most rows have found k larger ones after some columns, which says no
        part = predictions[left, start : start + width]
        larger[left] += _true_in_rows(part > chosen[left])
        valid[left] &= np.minimum.reduce(np.isfinite(part).view(np.uint8), 1).view(bool)
        start, width = start + width, 2 * width
        left = np.flatnonzero(valid & (larger < k))
        if not left.size:
            break
    return valid & (larger < k)


def _true_in_rows(truths: np.ndarray) -> np.ndarray:
    """truths.sum(1) in a third of the time: as bytes, no more of them at once than a byte can count."""
    numbers = truths.view(np.uint8)
    return sum(np.add.reduce(numbers[:, i : i + 255], 1, np.uint8).astype(np.int64) for i in range(0, truths.shape[1], 255))  # type: ignore[return-value]
