"""Batches of tf.train.Example protos that are written in the usual way, column by column: values are taken from where they lie in the bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.ops.native import examples, making, texts
from penstock.ops.native.examples import Places

if TYPE_CHECKING:
    from penstock.ops.kernels.examples import Dense, Sparse

_TAGS = {dtypes.string: examples.BYTES, dtypes.float32: examples.FLOATS, dtypes.int64: examples.INTEGERS}


def parse_usual(serialized: Sequence[bytes], sparse: Sequence[Sparse], dense: Sequence[Dense]) -> list[np.ndarray] | None:
    """Sparse indices, values and shapes, then dense values. None if there is something to report, or protobuf is needed to read them."""
    wanted = [*sparse, *dense]
    if not serialized or any(d.is_variable for d in dense):
        return None
    data = np.empty(len(serialized), object)
    data[:] = serialized
    places = examples.find(data, [w.key.encode() for w in wanted])
    if places is None:
        return None
    triples, values = [], []
    for k, feature in enumerate(wanted):
        found = _values(data, places, k, feature.dtype)
        if found is None:
            return None
        column, counts = found
        if k < len(sparse):
            triples.append(_sparse(column, counts))
            continue
        dims = dense[k - len(sparse)].dims
        size = math.prod(dims)  # type: ignore[arg-type]
        if not size or (counts != size).any():
            return None
        values.append(column.reshape(len(data), *dims))  # type: ignore[misc]
    return [t[0] for t in triples] + [t[1] for t in triples] + [t[2] for t in triples] + values


def _values(serialized: np.ndarray, places: Places, k: int, dtype: DType) -> tuple[np.ndarray, np.ndarray] | None:
    """All values of one feature, and how many each example has; None if its type is another one."""
    kinds, starts, lengths = places.kinds[:, k], places.starts[:, k], places.lengths[:, k]
    if ((kinds != 0) & (kinds != _TAGS[dtype])).any():
        return None
    lengths = np.ascontiguousarray(lengths)
    addresses = making.pointers(serialized) + (starts + texts.LETTERS)
    if dtype is dtypes.string:
        counts = places.are_there[:, k].astype(np.int64)
        column = making.make(addresses, lengths)
        return (column if counts.all() else column[counts > 0]), counts
    joined = np.empty(int(lengths.sum()), np.uint8)
    making.gather(addresses, lengths, joined)
    if dtype is dtypes.float32:
        return None if (lengths & 3).any() else (joined.view("<f4"), lengths >> 2)
    return _integers(joined, lengths)


def _integers(data: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Numbers of seven bits a byte, the lowest first; the last byte of each is below 128."""
    are_last = data < 128
    if are_last.all():
        return data.astype(np.int64), lengths
    bounds = np.cumsum(lengths)
    if not are_last[bounds[lengths > 0] - 1].all():
        return None
    ends = np.flatnonzero(are_last)
    firsts = np.concatenate(([0], ends[:-1] + 1))
    widths = ends - firsts + 1
    if widths.max() > 10:
        return None
    values = np.zeros(ends.size, np.uint64)
    for k in range(int(widths.max())):
        chosen = np.flatnonzero(widths > k)
        values[chosen] |= (data[firsts[chosen] + k] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * k)
    before = np.concatenate(([0], np.cumsum(are_last)))
    return values.view(np.int64), before[bounds] - before[bounds - lengths]


def _sparse(values: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    indices = np.empty((len(values), 2), np.int64)
    indices[:, 0] = np.repeat(np.arange(len(counts)), counts)
    indices[:, 1] = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    return indices, values, np.array([len(counts), counts.max()], np.int64)
