"""How far sequences are from each other: Levenshtein's distance, of many pairs at once."""

from __future__ import annotations

import numpy as np

from penstock.ops.native import distances as native


def levenshtein(a: list[int], b: list[int]) -> int:
    """How many elements have to be inserted, deleted or replaced to get from `a` to `b`."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


class Sequences:
    """Sequences of codes, one behind the other; a place in [0, count) names each. `rows` says where each element belongs."""

    def __init__(self, rows: np.ndarray, codes: np.ndarray, count: int) -> None:
        are_sorted = not (rows[1:] < rows[:-1]).any()
        self.codes = codes if are_sorted else codes[np.argsort(rows, kind="stable")]
        self.lengths = np.bincount(rows, minlength=count)
        self.starts = np.cumsum(self.lengths) - self.lengths

    def table(self, blank: int) -> np.ndarray:
        """A row for each sequence, filled up with `blank`."""
        result = np.full((self.lengths.size, int(self.lengths.max(initial=0))), blank, np.int64)
        result[np.arange(result.shape[1]) < self.lengths[:, None]] = self.codes
        return result

    def one(self, i: int) -> list[int]:
        return self.codes[self.starts[i] : self.starts[i] + self.lengths[i]].tolist()


def distances(a: Sequences, b: Sequences) -> np.ndarray:
    """The distance of each pair: a row of the usual table after the other, for all pairs at once unless they differ much in length."""
    found = native.distances(a.codes, a.lengths, b.codes, b.lengths)
    if found is not None:
        return found
    width, height = (int(s.lengths.max(initial=0)) for s in (b, a))
    cells = int((a.lengths * b.lengths).sum())
    if 12_000 * height + 6 * height * (width + 1) * a.lengths.size > 150 * cells:  # nanoseconds, roughly
        return np.array([levenshtein(a.one(i), b.one(i)) for i in range(a.lengths.size)], np.int64)
    left, right = a.table(-1), b.table(-2)
    steps = np.arange(width + 1)
    row = np.repeat(steps[None], len(left), 0)
    result = b.lengths.copy()
    for i in range(1, height + 1):
        change = row[:, :-1] + (left[:, i - 1, None] != right)
        best = np.empty_like(row)
        best[:, 0] = i
        np.minimum(row[:, 1:] + 1, change, out=best[:, 1:])
        best -= steps  # an insertion costs one, so that it is free if each column counts for one less than the one before
        np.minimum.accumulate(best, axis=1, out=best)
        best += steps
        row = best
        ended = np.flatnonzero(a.lengths == i)
        result[ended] = row[ended, b.lengths[ended]]
    return result
