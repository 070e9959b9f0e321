"""`tf.io.parse_example` and its relatives, `tf.decode_csv`, and the classes that describe features."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock import dtypes as _dtypes
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.sparse_ops import sparse_merge, sparse_reorder
from penstock.graph.composite import SparseTensor
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape


@export("FixedLenFeature", "io.FixedLenFeature")
class FixedLenFeature(NamedTuple):
    """A feature with `shape` values in every example; without `default_value` it is required."""

    shape: Any
    dtype: Any
    default_value: Any = None


@export("VarLenFeature", "io.VarLenFeature")
class VarLenFeature(NamedTuple):
    """A feature with any number of values; becomes a SparseTensor."""

    dtype: Any


@export("FixedLenSequenceFeature", "io.FixedLenSequenceFeature")
class FixedLenSequenceFeature(NamedTuple):
    """A feature with any number of rows of `shape`; becomes a dense tensor, padded with `default_value`."""

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


@export("SparseFeature", "io.SparseFeature")
class SparseFeature(NamedTuple):
    """A sparse tensor kept as two or more features: its indices (`index_key`, one or several) and its values."""

    index_key: Any
    value_key: str
    dtype: Any
    size: Any
    already_sorted: bool = False


class _Params:
    """The arguments of a parsing op: keys, types, defaults and shapes, in the order of the sorted keys."""

    def __init__(self, features: Any, kinds: tuple[type, ...]) -> None:
        self.sparse: dict[str, Any] = {}
        self.dense: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self.shapes: dict[str, TensorShape] = {}
        for key in sorted(features or {}):
            feature = features[key]
            if not isinstance(feature, kinds):
                raise ValueError(f"Unsupported {type(feature).__name__} {feature} for key {key!r}")
            self._add(key, feature)

    def _add(self, key: str, feature: Any) -> None:
        if isinstance(feature, VarLenFeature):
            self._need_type(key, feature)
            self._add_sparse(key, feature.dtype)
        elif isinstance(feature, SparseFeature):
            self._add_sparse_feature(key, feature)
        elif isinstance(feature, FixedLenFeature):
            self._add_fixed(key, feature)
        else:
            self._add_sequence(key, feature)

    @staticmethod
    def _need_type(key: str, feature: Any) -> None:
        if not feature.dtype:
            raise ValueError(f"Missing type for feature {key}. Received feature={feature}")

    def _add_sparse(self, key: str, dtype: Any) -> None:
        dtype = _dtypes.as_dtype(dtype)
        if key in self.sparse:
            if self.sparse[key] != dtype:
                raise ValueError(f"Conflicting type {self.sparse[key]} vs {dtype} for feature {key}.")
        else:
            self.sparse[key] = dtype

    def _add_sparse_feature(self, key: str, feature: SparseFeature) -> None:
        if not feature.index_key:
            raise ValueError(f"Missing index_key for SparseFeature {feature}.")
        if not feature.value_key:
            raise ValueError(f"Missing value_key for SparseFeature {feature}.")
        if not feature.dtype:
            raise ValueError(f"Missing type for feature {key}. Received feature={feature}.")
        for index_key in [feature.index_key] if isinstance(feature.index_key, str) else sorted(feature.index_key):
            self._add_sparse(index_key, _dtypes.int64)
        self._add_sparse(feature.value_key, feature.dtype)

    def _add_fixed(self, key: str, feature: FixedLenFeature) -> None:
        if not feature.dtype:
            raise ValueError(f"Missing type for feature {key}. Received feature={feature}.")
        if feature.shape is None:
            raise ValueError(f"Missing shape for feature {key}. Received feature={feature}.")
        shape = TensorShape(feature.shape)
        if shape.ndims and shape.as_list()[0] is None:
            raise ValueError(f"First dimension of shape for feature {key} unknown. Consider using FixedLenSequenceFeature. Received feature={feature}.")
        if not shape.is_fully_defined():
            raise ValueError(f"All dimensions of shape for feature {key} need to be known but received {shape}.")
        self.dense[key] = _dtypes.as_dtype(feature.dtype)
        self.shapes[key] = shape
        if feature.default_value is not None:
            self.defaults[key] = feature.default_value

    def _add_sequence(self, key: str, feature: FixedLenSequenceFeature) -> None:
        if not feature.dtype:
            raise ValueError(f"Missing type for feature {key}. Received feature={feature}.")
        if feature.shape is None:
            raise ValueError(f"Missing shape for feature {key}. Received feature={feature}.")
        self.dense[key] = _dtypes.as_dtype(feature.dtype)
        self.shapes[key] = TensorShape(feature.shape)
        if feature.allow_missing:
            self.defaults[key] = None
        if feature.default_value is not None:
            self.defaults[key] = feature.default_value

    def with_any_length(self, features: Any) -> None:
        """FixedLenSequenceFeatures in plain examples: an unknown first dimension, and a value to pad with."""
        for key, feature in (features or {}).items():
            if isinstance(feature, FixedLenSequenceFeature):
                if not feature.allow_missing:
                    raise ValueError("Unsupported: FixedLenSequenceFeature requires allow_missing to be True.")
                self.shapes[key] = TensorShape([None]).concatenate(feature.shape)

    def default_tensors(self) -> list[Tensor]:
        tensors = []
        for key, dtype in self.dense.items():
            shape, value = self.shapes[key], self.defaults.get(key)
            if shape.ndims and shape.as_list()[0] is None:
                # What is missing at the end of a row is padded with this one value.
                if value is None:
                    tensors.append(constant("" if dtype is _dtypes.string else 0, dtype))
                else:
                    tensors.append(raw.Reshape(convert_to_tensor(value, dtype, name=_default_name(key)), []))
            elif value is None:
                tensors.append(constant([], dtype))
            else:
                tensors.append(raw.Reshape(convert_to_tensor(value, dtype, name=_default_name(key)), shape.as_list()))
        return tensors


def _default_name(key: str) -> str:
    return "key_" + re.sub("[^A-Za-z0-9_.\\-/]", "_", key)


def _check_features(features: Any) -> None:
    if not features:
        raise ValueError(f"Argument `features` cannot be None or falsy. Got {features}")
    for key, feature in features.items():
        if not isinstance(feature, (VarLenFeature, SparseFeature, FixedLenFeature, FixedLenSequenceFeature)):
            raise ValueError(f"Unsupported {type(feature).__name__} {feature} for key {key!r}")


def _parse(features: Any, serialized: Tensor, names: Any, name: str | None) -> dict[str, Any]:
    params = _Params(features, (VarLenFeature, SparseFeature, FixedLenFeature, FixedLenSequenceFeature))
    params.with_any_length(features)
    defaults = params.default_tensors()
    result = raw.ParseExampleV2(
        serialized, _strings([]) if names is None else names, _strings(list(params.sparse)), _strings(list(params.dense)), _strings([]),
        defaults, num_sparse=len(params.sparse), sparse_types=list(params.sparse.values()), Tdense=list(params.dense.values()),
        dense_shapes=[params.shapes[key] for key in params.dense], ragged_value_types=[], ragged_split_types=[], name=name,
    )  # fmt: skip
    tensors = _by_key(params, result.sparse_indices, result.sparse_values, result.sparse_shapes, result.dense_values)
    return _with_sparse_features(features, tensors)


def _strings(values: Sequence[str]) -> np.ndarray:
    """Keys as an array, which becomes a constant inside of the op's own name."""
    return np.array(list(values), dtype=object)


def _by_key(params: _Params, indices: Any, values: Any, shapes: Any, dense: Any) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for key, i, v, s in zip(params.sparse, indices, values, shapes, strict=True):
        tensors[key] = SparseTensor(i, v, s)
    tensors.update(zip(params.dense, dense, strict=True))
    return tensors


def _with_sparse_features(features: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """Puts SparseFeatures together from their indices and values, and leaves out what was only parsed for them."""
    result = dict(tensors)
    for key in sorted(features):
        feature = features[key]
        if isinstance(feature, SparseFeature):
            if isinstance(feature.index_key, str):
                ids: Any = tensors[feature.index_key]
            else:
                ids = [tensors[index_key] for index_key in feature.index_key]
            result[key] = _merged(ids, tensors[feature.value_key], feature)
    return {key: value for key, value in result.items() if key in features}


def _merged(ids: Any, values: SparseTensor, feature: SparseFeature) -> SparseTensor:
    sizes = feature.size if isinstance(feature.size, (list, tuple)) else [feature.size]
    id_list = ids if isinstance(ids, list) else [ids]
    if len(id_list) == 1:
        return sparse_merge(id_list[0], values, sizes[0], name=None, already_sorted=feature.already_sorted)
    columns = [raw.ExpandDims(raw.Cast(i.values, DstT=_dtypes.int64), 1) for i in id_list]
    kept = raw.StridedSlice(id_list[0].indices, [0, 0], [0, -1], [1, 1], begin_mask=3, end_mask=1)
    head = raw.StridedSlice(id_list[0].dense_shape, [0], [-1], [1], begin_mask=1)
    merged = SparseTensor(
        raw.ConcatV2([kept, *columns], 1), values.values, raw.ConcatV2([head, constant([int(s) for s in sizes], _dtypes.int64)], 0)
    )
    return merged if feature.already_sorted else sparse_reorder(merged)


@export("parse_example", "io.parse_example")
def parse_example(serialized: Any, features: Any, name: str | None = None, example_names: Any = None) -> dict[str, Any]:
    """Parses a vector of serialised `tf.train.Example`s into a dict of tensors and SparseTensors.

    `features` maps keys to FixedLenFeature, VarLenFeature, FixedLenSequenceFeature or SparseFeature.

    >>> import penstock as tf
    >>> example = tf.train.Example()
    >>> example.features.feature["x"].float_list.value.append(2.5)
    >>> parsed = tf.io.parse_example([example.SerializeToString()], {"x": tf.io.FixedLenFeature([], tf.float32)})
    >>> with tf.Session() as sess:
    ...     sess.run(parsed)["x"].tolist()
    [2.5]
    """
    _check_features(features)
    with name_scope(name, "ParseExample", [serialized, example_names]):
        tensor = convert_to_tensor(serialized, dtype=_dtypes.string, name="serialized")
        return _parse(features, tensor, example_names, name)


@export("parse_single_example", "io.parse_single_example")
def parse_single_example(serialized: Any, features: Any, name: str | None = None, example_names: Any = None) -> dict[str, Any]:
    """As `parse_example`, of one scalar string: without the batch dimension."""
    _check_features(features)
    with name_scope(name, "ParseSingleExample", [serialized, example_names]):
        tensor = _scalar(convert_to_tensor(serialized, dtype=_dtypes.string, name="serialized"), "serialized")
        names = None
        if example_names is not None:
            names = _scalar(convert_to_tensor(example_names, dtype=_dtypes.string, name="name"), "example_names")
        with name_scope(None, "ParseExample"):
            return _parse(features, tensor, names, None)


def _scalar(tensor: Tensor, what: str) -> Tensor:
    if tensor.shape.ndims not in (None, 0):
        raise ValueError(f"Input {what} must be a scalar")
    tensor.set_shape([])
    return tensor


def _parse_sequences(serialized: Tensor, context_features: Any, sequence_features: Any, names: Any) -> tuple[dict, dict, dict]:
    context = _Params(context_features, (VarLenFeature, FixedLenFeature))
    lists = _Params(sequence_features, (VarLenFeature, FixedLenSequenceFeature))
    for key, value in lists.defaults.items():
        if value is not None:
            raise ValueError(f"Value feature_list.dense_defaults[{key}] must be None")
    with name_scope(None, "ParseSequenceExample", [serialized, names]):
        defaults = context.default_tensors()
        result = raw.ParseSequenceExampleV2(
            serialized, _strings([]) if names is None else names, _strings(list(context.sparse)), _strings(list(context.dense)),
            _strings([]), _strings(list(lists.sparse)), _strings(list(lists.dense)), _strings([]),
            np.array([key in lists.defaults for key in lists.dense], bool), defaults,
            Ncontext_sparse=len(context.sparse), context_sparse_types=list(context.sparse.values()),
            Tcontext_dense=list(context.dense.values()), context_dense_shapes=[context.shapes[k] for k in context.dense],
            Nfeature_list_sparse=len(lists.sparse), feature_list_sparse_types=list(lists.sparse.values()), Nfeature_list_dense=len(lists.dense),
            feature_list_dense_types=list(lists.dense.values()), feature_list_dense_shapes=[lists.shapes[k] for k in lists.dense],
            context_ragged_value_types=[], context_ragged_split_types=[], feature_list_ragged_value_types=[], feature_list_ragged_split_types=[],
        )  # fmt: skip
    contexts = _by_key(context, result.context_sparse_indices, result.context_sparse_values, result.context_sparse_shapes, result.context_dense_values)
    sequences = _by_key(
        lists, result.feature_list_sparse_indices, result.feature_list_sparse_values, result.feature_list_sparse_shapes, result.feature_list_dense_values
    )
    return contexts, sequences, dict(zip(lists.dense, result.feature_list_dense_lengths, strict=True))


_NO_FEATURES = "Both context_features and sequence_features are None, but at least one should have values."


@export("io.parse_sequence_example")
def parse_sequence_example(serialized: Any, context_features: Any = None, sequence_features: Any = None, example_names: Any = None,
                           name: str | None = None) -> tuple[dict, dict, dict]:  # fmt: skip
    """Parses a vector of serialised `tf.train.SequenceExample`s: (context, sequences, lengths of the dense sequences)."""
    if not (context_features or sequence_features):
        raise ValueError(_NO_FEATURES)
    with name_scope(name, "ParseSequenceExample", [serialized, example_names]):
        tensor = convert_to_tensor(serialized, dtype=_dtypes.string, name="serialized")
        names = None if example_names is None else convert_to_tensor(example_names, dtype=_dtypes.string, name="example_names")
        return _parse_sequences(tensor, context_features, sequence_features, names)


@export("parse_single_sequence_example", "io.parse_single_sequence_example")
def parse_single_sequence_example(serialized: Any, context_features: Any = None, sequence_features: Any = None, example_name: Any = None,
                                  name: str | None = None) -> tuple[dict, dict]:  # fmt: skip
    """As `parse_sequence_example`, of one scalar string: (context, sequences)."""
    if not (context_features or sequence_features):
        raise ValueError(_NO_FEATURES)
    with name_scope(name, "ParseSingleSequenceExample", [serialized, example_name]):
        tensor = _scalar(convert_to_tensor(serialized, dtype=_dtypes.string, name="serialized"), "serialized")
        names = None
        if example_name is not None:
            names = _scalar(convert_to_tensor(example_name, dtype=_dtypes.string, name="example_name"), "example_name")
        return _parse_sequences(tensor, context_features, sequence_features, names)[:2]


@export("decode_csv", "io.decode_csv")
def decode_csv(records: Any, record_defaults: Any, field_delim: str = ",", use_quote_delim: bool = True, name: str | None = None,
               na_value: str = "", select_cols: Any = None) -> list[Tensor]:  # fmt: skip
    """The fields of CSV records, one tensor per column, in the shape of `records`.

    `record_defaults` has one element per column, whose type is the column's: a value for empty fields, or an empty tensor if the field is
    required. `select_cols` picks columns by their increasing numbers.
    """
    if select_cols is not None and any(b <= a for a, b in itertools.pairwise(select_cols)):
        raise ValueError("select_cols is not strictly increasing.")
    if select_cols is not None and select_cols and select_cols[0] < 0:
        raise ValueError("select_cols contains negative values.")
    if select_cols is not None and len(select_cols) != len(record_defaults):
        raise ValueError("Length of select_cols and record_defaults do not match.")
    return raw.DecodeCSV(
        records, record_defaults, field_delim=field_delim, use_quote_delim=use_quote_delim, na_value=na_value, select_cols=select_cols, name=name
    )


@export("decode_json_example", "io.decode_json_example")
def decode_json_example(json_examples: Any, name: str | None = None) -> Tensor:
    """JSON texts of `tf.train.Example`s as serialised protos."""
    return raw.DecodeJSONExample(json_examples, name=name)
