"""Parsing of tf.train.Example and tf.train.SequenceExample protos into dense, sparse and ragged arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.kernels.example_columns import parse_usual
from penstock.ops.kernels.texts import dtype_text
from penstock.shapes import format_dims

_KINDS = {"float_list": dtypes.float32, "int64_list": dtypes.int64, "bytes_list": dtypes.string}


class Dense(NamedTuple):
    """A feature of fixed size; a first dimension of None means any number of rows, padded with `default`."""

    key: str
    dtype: DType
    dims: Dims
    default: Any

    @property
    def is_variable(self) -> bool:
        return bool(self.dims) and self.dims[0] is None  # type: ignore[index]


class Sparse(NamedTuple):
    """A feature with any number of values."""

    key: str
    dtype: DType


class Ragged(NamedTuple):
    """A feature with any number of values, as values and row splits."""

    key: str
    dtype: DType
    splits: DType


def _parse(cls: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return cls.FromString(data)
    except DecodeError:
        text = data[:100].decode("latin-1")
        raise InvalidArgumentError(f"Could not parse example input, value: '{text}'") from None


def kind_of(feature: Any) -> DType | None:
    """The type of a feature's values; None if it has no list at all."""
    kind = feature.WhichOneof("kind")
    return None if kind is None else _KINDS[kind]


def values_of(feature: Any, dtype: DType) -> np.ndarray:
    """The values of a feature of that type."""
    if dtype is dtypes.float32:
        values = feature.float_list.value
        n = len(values)
        if n < 16:
            return np.fromiter(values, np.float32, n)
        # The packed bytes are the array already, behind a tag and a length.
        return np.frombuffer(feature.float_list.SerializeToString(), np.uint8)[-4 * n :].view(np.float32)
    if dtype is dtypes.int64:
        values = feature.int64_list.value
        return np.fromiter(values, np.int64, len(values))
    values = feature.bytes_list.value
    result = np.empty(len(values), dtype=object)
    result[:] = list(values)
    return result


def _empty(shape: Sequence[int], dtype: DType) -> np.ndarray:
    return np.full(shape, b"", dtype=object) if dtype is dtypes.string else np.zeros(shape, dtype.np)


def _columns(lengths: Sequence[int]) -> np.ndarray:
    """0, 1, ... length - 1 for each length."""
    return np.concatenate([np.arange(n) for n in lengths]) if lengths else np.zeros(0, np.int64)


def _joined(parts: list[np.ndarray], dtype: DType) -> np.ndarray:
    return np.concatenate(parts) if parts else _empty([0], dtype)


# -- examples ---------------------------------------------------------------------------------------------------------


def parse_examples(
    serialized: Sequence[bytes], names: Sequence[bytes], sparse: Sequence[Sparse], dense: Sequence[Dense], ragged: Sequence[Ragged] = (),
    single: bool = False,
) -> list[Any]:  # fmt: skip
    """Sparse indices, values and shapes, dense values, ragged values and splits; `single` leaves out the batch dimension."""
    if not single and not ragged:
        found = parse_usual(serialized, sparse, dense)
        if found is not None:
            return found
    from penstock.formats.protos import Example

    features = [_parse(Example, data).features.feature for data in serialized]
    return parse_features(features, names, sparse, dense, ragged, single)


def parse_features(
    features: Sequence[Any], names: Sequence[bytes], sparse: Sequence[Sparse], dense: Sequence[Dense], ragged: Sequence[Ragged] = (),
    single: bool = False,
) -> list[Any]:  # fmt: skip
    """As `parse_examples`, of the features of each example."""

    def prefix(i: int) -> str:
        return "" if single else f"Name: {_name(names, i)}, "

    def place(key: str, i: int) -> str:
        return f"Key: {key}.  " if single else f"{prefix(i)}Key: {key}, Index: {i}.  "

    def parts_of(w: Sparse | Ragged) -> list[np.ndarray]:
        return [_any_values(f, w, lambda i=i: place(w.key, i)) for i, f in enumerate(features)]

    triples = [_sparse_at_once(features, s, single) or _sparse_column(parts_of(s), s.dtype, single) for s in sparse]
    result: list[Any] = [t[0] for t in triples] + [t[1] for t in triples] + [t[2] for t in triples]
    for d in dense:
        column = _dense_at_once(features, d, single)
        result.append(_dense_column(features, d, prefix, place, single) if column is None else column)
    ragged_parts = [parts_of(r) for r in ragged]
    result += [_joined(parts, r.dtype) for parts, r in zip(ragged_parts, ragged, strict=True)]
    result += [_splits([len(p) for p in parts], r.splits, single) for parts, r in zip(ragged_parts, ragged, strict=True)]
    return result


_LISTS = {dtype: name for name, dtype in _KINDS.items()}


def _lists(features: Sequence[Any], key: str, dtype: DType) -> list[Any] | None:
    """The values of one feature in each example; None if it is of another type in one of them."""
    name = _LISTS[dtype]
    result = []
    for row in features:
        feature = row.get(key)
        if feature is None:
            result.append(())
            continue
        values = getattr(feature, name).value
        if not values and feature.WhichOneof("kind") not in (None, name):
            return None
        result.append(values)
    return result


def _one_array(lists: list[Any], dtype: DType) -> np.ndarray:
    values = list(itertools.chain.from_iterable(lists))
    if dtype is not dtypes.string:
        return np.array(values, dtype.np)
    result = np.empty(len(values), object)
    result[:] = values
    return result


def _sparse_at_once(features: Sequence[Any], s: Sparse, single: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The three parts of a sparse feature; None if there is something to report."""
    lists = _lists(features, s.key, s.dtype)
    if lists is None or single:
        return None
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    values = _one_array(lists, s.dtype)
    indices = np.empty((len(values), 2), np.int64)
    indices[:, 0] = np.repeat(np.arange(len(lists)), lengths)
    indices[:, 1] = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return indices, values, np.array([len(lists), lengths.max(initial=0)], np.int64)


def _dense_at_once(features: Sequence[Any], d: Dense, single: bool) -> np.ndarray | None:
    """The values of a feature of fixed size that every example has; None if it is another one, or something is wrong with it."""
    if single or d.is_variable or not features:
        return None
    size = math.prod(d.dims)  # type: ignore[arg-type]
    lists = _lists(features, d.key, d.dtype) if 0 < size < MANY_VALUES else None
    if lists is None or any(len(values) != size for values in lists):
        return None
    return _one_array(lists, d.dtype).reshape(len(lists), *d.dims)  # type: ignore[misc]


MANY_VALUES = 64
"""From so many values on, a feature's own bytes are faster read than one value after the other."""


def _name(names: Sequence[bytes], i: int) -> str:
    return names[i].decode(errors="replace") if len(names) else "<unknown>"


def _any_values(features: Any, wanted: Sparse | Ragged, place: Callable[[], str]) -> np.ndarray:
    feature = features.get(wanted.key)
    kind = None if feature is None else kind_of(feature)
    if kind is None:
        return _empty([0], wanted.dtype)
    if kind is not wanted.dtype:
        raise InvalidArgumentError(
            f"{place()}Data types don't match. Expected type: {dtype_text(wanted.dtype)}, Actual type: {dtype_text(kind)}"
        )
    return values_of(feature, kind)


def _sparse_column(parts: list[np.ndarray], dtype: DType, single: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lengths = [len(p) for p in parts]
    values = _joined(parts, dtype)
    columns = _columns(lengths)
    if single:
        return columns.reshape(-1, 1).astype(np.int64), values, np.array(lengths, np.int64)
    rows = np.repeat(np.arange(len(parts)), lengths)
    return np.stack([rows, columns], axis=1).astype(np.int64), values, np.array([len(parts), max(lengths, default=0)], np.int64)


def _splits(lengths: Sequence[int], dtype: DType, single: bool = False) -> np.ndarray:
    return np.zeros(0, dtype.np) if single else np.concatenate([[0], np.cumsum(lengths)]).astype(dtype.np)


def _dense_column(features: Sequence[Any], d: Dense, prefix: Callable[[int], str], place: Callable[[str, int], str], single: bool) -> np.ndarray:
    assert d.dims is not None
    rows: list[np.ndarray] = []
    for i, row in enumerate(features):
        feature = row.get(d.key)
        kind = None if feature is None else kind_of(feature)
        if kind is None:
            rows.append(_default_row(d, lambda i=i: prefix(i)))
            continue
        if kind is not d.dtype:
            raise InvalidArgumentError(
                f"{place(d.key, i)}Data types don't match. Data type: {dtype_text(kind)} but expected type: {dtype_text(d.dtype)}"
            )
        rows.append(_shaped(values_of(feature, kind), d, lambda i=i: place(d.key, i)))
    if single:
        return rows[0]
    if not d.is_variable:
        return np.stack(rows) if rows else _empty([0, *d.dims], d.dtype)  # type: ignore[list-item]
    return _padded(rows, (max((len(r) for r in rows), default=0), *d.dims[1:]), d)


def _default_row(d: Dense, prefix: Callable[[], str]) -> np.ndarray:
    if d.is_variable:
        return _empty([0, *d.dims[1:]], d.dtype)  # type: ignore[index]
    default = np.asarray(d.default)
    size = int(np.prod(d.dims))  # type: ignore[arg-type]
    if default.size != size or not default.size:
        if default.size == 1 and size:
            return np.full(d.dims, default.reshape(()), dtype=d.dtype.np)  # type: ignore[arg-type]
        raise InvalidArgumentError(f"{prefix()}Feature: {d.key} (data type: {dtype_text(d.dtype)}) is required but could not be found.")
    return default.reshape(d.dims)  # type: ignore[arg-type]


def _shaped(values: np.ndarray, d: Dense, place: Callable[[], str]) -> np.ndarray:
    assert d.dims is not None
    if d.is_variable:
        stride = int(np.prod(d.dims[1:]))  # type: ignore[arg-type]
        if stride and len(values) % stride:
            raise InvalidArgumentError(
                f"{place()}Number of {dtype_text(d.dtype)} values is not a multiple of stride length. Saw {len(values)} values but output "
                f"shape is: {format_dims(d.dims)}"
            )
        return values.reshape((len(values) // stride if stride else 0, *d.dims[1:]))  # type: ignore[arg-type]
    if len(values) != int(np.prod(d.dims)):  # type: ignore[arg-type]
        raise InvalidArgumentError(
            f"{place()}Number of {dtype_text(d.dtype)} values != expected.  Values size: {len(values)} but output shape: {format_dims(d.dims)}"
        )
    return values.reshape(d.dims)  # type: ignore[arg-type]


def _padded(rows: list[np.ndarray], dims: Sequence[Any], d: Dense) -> np.ndarray:
    out = _empty([len(rows), *dims], d.dtype)
    if d.default is not None and np.size(d.default):
        out[...] = np.ravel(d.default)[0]
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


# -- sequence examples ------------------------------------------------------------------------------------------------


class Sequences(NamedTuple):
    """What to parse from SequenceExamples. `assume_empty` holds the keys of dense lists that may be missing."""

    context_sparse: Sequence[Sparse]
    context_dense: Sequence[Dense]
    context_ragged: Sequence[Ragged]
    list_sparse: Sequence[Sparse]
    list_dense: Sequence[Dense]
    list_ragged: Sequence[Ragged]
    assume_empty: frozenset[str]


def parse_sequences(serialized: Sequence[bytes], names: Sequence[bytes], wanted: Sequences, single: bool) -> dict[str, list[Any]]:
    """The parts by the names of ParseSequenceExampleV2's outputs."""
    from penstock.formats.protos import SequenceExample

    messages = [_parse(SequenceExample, data) for data in serialized]
    contexts = [message.context.feature for message in messages]
    lists = [message.feature_lists.feature_list for message in messages]

    def context_kind(features: Any, w: Any, i: int) -> None:
        kind = kind_of(features[w.key]) if w.key in features else None
        if kind is not None and kind is not w.dtype:
            raise InvalidArgumentError(
                f"Name: {_name(names, i)}, Context feature: {w.key}.  Data types don't match. Expected type: {dtype_text(w.dtype)}"
            )

    for i, features in enumerate(contexts):
        for w in (*wanted.context_sparse, *wanted.context_dense, *wanted.context_ragged):
            context_kind(features, w, i)
    flat = parse_features(contexts, names, wanted.context_sparse, wanted.context_dense, wanted.context_ragged, single)
    ns, nd, nr = len(wanted.context_sparse), len(wanted.context_dense), len(wanted.context_ragged)
    result = {
        "context_sparse_indices": flat[:ns],
        "context_sparse_values": flat[ns : 2 * ns],
        "context_sparse_shapes": flat[2 * ns : 3 * ns],
        "context_dense_values": flat[3 * ns : 3 * ns + nd],
        "context_ragged_values": flat[3 * ns + nd : 3 * ns + nd + nr],
        "context_ragged_row_splits": flat[3 * ns + nd + nr :],
    }
    triples = [_sparse_lists(lists, s, names, single) for s in wanted.list_sparse]
    result["feature_list_sparse_indices"] = [t[0] for t in triples]
    result["feature_list_sparse_values"] = [t[1] for t in triples]
    result["feature_list_sparse_shapes"] = [t[2] for t in triples]
    pairs = [_dense_lists(lists, d, names, single, d.key in wanted.assume_empty) for d in wanted.list_dense]
    result["feature_list_dense_values"] = [p[0] for p in pairs]
    result["feature_list_dense_lengths"] = [p[1] for p in pairs]
    ragged = [_ragged_lists(lists, r, names, single) for r in wanted.list_ragged]
    result["feature_list_ragged_values"] = [t[0] for t in ragged]
    result["feature_list_ragged_outer_splits"] = [t[1] for t in ragged]
    result["feature_list_ragged_inner_splits"] = [t[2] for t in ragged]
    return result


def _steps(lists: Any, key: str, dtype: DType, name: str) -> list[np.ndarray] | None:
    """The values of each step of a feature list; None if there is no such list."""
    if key not in lists:
        return None
    steps = []
    for i, feature in enumerate(lists[key].feature):
        kind = kind_of(feature)
        if kind is None:
            steps.append(_empty([0], dtype))
            continue
        if kind is not dtype:
            raise InvalidArgumentError(
                f"Name: {name}, Feature list: {key}, Index: {i}.  Data types don't match. Expected type: {dtype_text(dtype)}"
            )
        steps.append(values_of(feature, dtype))
    return steps


def _sparse_lists(lists: Sequence[Any], s: Sparse, names: Sequence[bytes], single: bool) -> tuple[Any, Any, Any]:
    every = [_steps(row, s.key, s.dtype, _name(names, i)) or [] for i, row in enumerate(lists)]
    parts = [p for steps in every for p in steps]
    lengths = [len(p) for p in parts]
    batch = np.repeat(np.repeat(np.arange(len(every)), [len(steps) for steps in every]), lengths)
    time = np.repeat(_columns([len(steps) for steps in every]), lengths)
    indices = np.stack([batch, time, _columns(lengths)], axis=1).astype(np.int64)
    shape = np.array([len(every), max((len(steps) for steps in every), default=0), max(lengths, default=0)], np.int64)
    return (indices[:, 1:] if single else indices), _joined(parts, s.dtype), (shape[1:] if single else shape)


def _dense_lists(lists: Sequence[Any], d: Dense, names: Sequence[bytes], single: bool, may_be_missing: bool) -> tuple[Any, Any]:
    assert d.dims is not None
    size = int(np.prod(d.dims))  # type: ignore[arg-type]
    rows = []
    for i, row in enumerate(lists):
        steps = _steps(row, d.key, d.dtype, _name(names, i))
        if steps is None:
            if not may_be_missing:
                raise InvalidArgumentError(
                    f"Name: {_name(names, i)}, Feature list '{d.key}' is required but could not be found.  Did you mean to include it in "
                    "feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?"
                )
            steps = []
        for t, values in enumerate(steps):
            if len(values) != size:
                raise InvalidArgumentError(
                    f"Name: {_name(names, i)}, Key: {d.key}, Index: {t}.  Number of values != expected.  values size: {len(values)} but "
                    f"output shape: {format_dims(d.dims)}"
                )
        rows.append(np.stack(steps).reshape((len(steps), *d.dims)) if steps else _empty([0, *d.dims], d.dtype))  # type: ignore[arg-type,list-item]
    if single:
        return rows[0], np.int64(len(rows[0]))
    longest = max((len(r) for r in rows), default=0)
    return _padded(rows, (longest, *d.dims), d._replace(default=None)), np.array([len(r) for r in rows], np.int64)


def _ragged_lists(lists: Sequence[Any], r: Ragged, names: Sequence[bytes], single: bool) -> tuple[Any, Any, Any]:
    every = [_steps(row, r.key, r.dtype, _name(names, i)) or [] for i, row in enumerate(lists)]
    parts = [p for steps in every for p in steps]
    outer = _splits([len(steps) for steps in every], r.splits, single)
    return _joined(parts, r.dtype), outer, _splits([len(p) for p in parts], r.splits)
