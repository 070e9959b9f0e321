"""Parsing: CSV records, serialised tensors, tf.train.Example and tf.train.SequenceExample protos."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import DataLossError, InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import op, same_as, scalar, unknown, with_rank
from penstock.ops.kernels.csv import decode_csv
from penstock.ops.kernels.examples import Dense, Ragged, Sequences, Sparse, parse_examples, parse_sequences
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.samples import arr, normal, strings
from penstock.shapes import TensorShape, dims_of, format_dims


def _texts(keys: Any) -> list[str]:
    """Keys from an attribute, a list of scalars or a vector, as str."""
    flat = [key.item() if isinstance(key, np.ndarray) else key for key in (keys.ravel() if isinstance(keys, np.ndarray) else keys)]
    return [key.decode() for key in flat]


def _batch(serialized: Any, names: Any, most: int) -> tuple[list[bytes], list[bytes], bool]:
    """(protos, names, whether it is a single one)."""
    if np.ndim(serialized) > most:
        raise InvalidArgumentError(f"Expected serialized to be a {'vector' if most else 'scalar'}, got shape: {format_dims(np.shape(serialized))}")
    if names is not None and np.size(names) and np.shape(names) != np.shape(serialized):
        raise InvalidArgumentError(
            f"Expected names have the same shape as serialized: name.shape={format_dims(np.shape(names))}, "
            f"serialized.shape={format_dims(np.shape(serialized))}"
        )
    return np.ravel(serialized).tolist(), [] if names is None else np.ravel(names).tolist(), np.ndim(serialized) == 0


# -- CSV and tensors --------------------------------------------------------------------------------------------------


def csv_kernel(records: Any, defaults: list[Any], *, OUT_TYPE: list[DType], field_delim: bytes, use_quote_delim: bool, na_value: bytes,
               select_cols: list[int]) -> list[np.ndarray]:  # fmt: skip
    return decode_csv(records, defaults, OUT_TYPE, field_delim, use_quote_delim, na_value, select_cols)


def csv_shape(c: Any) -> list[Dims]:
    for i in range(1, c.n):
        dims = c.dims(i)
        if dims is not None and (len(dims) > 1 or (len(dims) == 1 and dims[0] is not None and dims[0] > 1)):
            raise ValueError("Shape of a default must be a length-0 or length-1 vector, or a scalar.")
    return [c.dims(0) for _ in c.attrs["OUT_TYPE"]]


op("DecodeCSV(records: string, record_defaults: list OUT_TYPE) -> (output: list OUT_TYPE)"
   " [OUT_TYPE: list(type) in {float, double, int32, int64, string} >= 1; field_delim: string = ','; use_quote_delim: bool = true;"
   " na_value: string = ''; select_cols: list(int) = []]",
   shape=csv_shape, numpy=csv_kernel,
   samples=[
       dict(records=strings(["1,2.5,abc", ',-4,"x ""y"", z"']),
            record_defaults=[arr([7], np.int32), arr([0.5], np.float32), strings(["d"])]),
       dict(records=strings("a;NA;c"), record_defaults=[arr([7.5], np.float64), strings([""])], field_delim=";", na_value="NA", select_cols=[1, 2]),
       dict(records=strings([["1"], ["2"]]), record_defaults=[arr([7], np.int64)]),
   ],
   errors=[
       (dict(records=strings(["1,2"]), record_defaults=[arr([7], np.int32)]), InvalidArgumentError, "Expect 1 fields but have 2 in record 0"),
       (dict(records=strings(["x"]), record_defaults=[arr([7], np.int32)]), InvalidArgumentError, "Field 0 in record 0 is not a valid int32: x"),
       (dict(records=strings(['"x']), record_defaults=[strings([""])]), InvalidArgumentError, "Quoted field has to end with quote"),
   ])  # fmt: skip


def serialize_kernel(tensor: Any, *, T: DType) -> np.ndarray:
    from penstock.formats.tensor_proto import from_array

    result = np.empty((), dtype=object)
    result[()] = from_array(np.asarray(tensor), T, raw=True).SerializeToString()
    return result


def parse_tensor_kernel(serialized: Any, *, out_type: DType) -> Any:
    from google.protobuf.message import DecodeError

    from penstock.dtypes import as_dtype
    from penstock.formats.protos import TensorProto
    from penstock.formats.tensor_proto import to_array

    if np.ndim(serialized):
        raise InvalidArgumentError(f"Expected `serialized` to be a scalar, got shape: {format_dims(np.shape(serialized))}")
    data = serialized.item()
    try:
        proto = TensorProto.FromString(data)
    except DecodeError:
        raise InvalidArgumentError(f"Could not parse `serialized` as TensorProto, base64: {base64.b64encode(data).decode()}") from None
    held = as_dtype(proto.dtype) if proto.dtype else None
    if held is not out_type:
        name = "invalid" if held is None else dtype_text(held)
        raise InvalidArgumentError(f"Type mismatch between parsed tensor ({name}) and dtype ({dtype_text(out_type)})")
    try:
        return to_array(proto)
    except (ValueError, DataLossError) as error:
        raise InvalidArgumentError(f"Could not parse `serialized` as TensorProto: {error}") from error


op("SerializeTensor(tensor: T) -> (serialized: string) [T: type]",
   shape=scalar, numpy=serialize_kernel, samples=[dict(tensor=normal(2, 3)), dict(tensor=strings(["a", "bc"])), dict(tensor=normal())])  # fmt: skip
op("ParseTensor(serialized: string) -> (output: out_type) [out_type: type]",
   shape=unknown, numpy=parse_tensor_kernel,
   samples=[dict(serialized=strings(b'\x08\x01\x12\x04\x12\x02\x08\x02"\x08\x00\x00\x80?\x00\x00\x00@'), out_type="float32")],
   errors=[(dict(serialized=strings(b"\xff"), out_type="float32"), InvalidArgumentError, "Could not parse `serialized` as TensorProto, base64: /w==")])  # fmt: skip


# -- examples ---------------------------------------------------------------------------------------------------------


def _dense(keys: Sequence[str], types: Sequence[DType], shapes: Sequence[TensorShape], defaults: Sequence[Any]) -> list[Dense]:
    if not len(keys) == len(types) == len(shapes):
        raise InvalidArgumentError(f"len(dense_keys) != len(dense_shapes): {len(keys)} vs. {len(shapes)}")
    return [Dense(k, t, dims_of(s), d) for k, t, s, d in zip(keys, types, shapes, defaults, strict=True)]


def _sparse(keys: Sequence[str], types: Sequence[DType]) -> list[Sparse]:
    if len(keys) != len(types):
        raise InvalidArgumentError(f"len(sparse_keys) != len(sparse_types): {len(keys)} vs. {len(types)}")
    return [Sparse(k, t) for k, t in zip(keys, types, strict=True)]


def _ragged(keys: Sequence[str], types: Sequence[DType], splits: Sequence[DType]) -> list[Ragged]:
    if not len(keys) == len(types) == len(splits):
        raise InvalidArgumentError(f"len(ragged_keys) != len(ragged_value_types): {len(keys)} vs. {len(types)}")
    return [Ragged(k, t, s) for k, t, s in zip(keys, types, splits, strict=True)]


def parse_example_kernel(serialized: Any, names: Any, sparse_keys: list[Any], dense_keys: list[Any], defaults: list[Any], *,
                         sparse_types: list[DType], Tdense: list[DType], dense_shapes: list[TensorShape]) -> list[Any]:  # fmt: skip
    data, titles, _ = _batch(serialized, names, 1)
    return parse_examples(data, titles, _sparse(_texts(sparse_keys), sparse_types), _dense(_texts(dense_keys), Tdense, dense_shapes, defaults))


def parse_example_v2_kernel(serialized: Any, names: Any, sparse_keys: Any, dense_keys: Any, ragged_keys: Any, defaults: list[Any], *,
                            sparse_types: list[DType], Tdense: list[DType], dense_shapes: list[TensorShape], ragged_value_types: list[DType],
                            ragged_split_types: list[DType]) -> list[Any]:  # fmt: skip
    data, titles, single = _batch(serialized, names, 1)
    return parse_examples(
        data, titles, _sparse(_texts(sparse_keys), sparse_types), _dense(_texts(dense_keys), Tdense, dense_shapes, defaults),
        _ragged(_texts(ragged_keys), ragged_value_types, ragged_split_types), single,
    )  # fmt: skip


def parse_single_kernel(serialized: Any, defaults: list[Any], *, sparse_keys: list[bytes], dense_keys: list[bytes], sparse_types: list[DType],
                        Tdense: list[DType], dense_shapes: list[TensorShape]) -> list[Any]:  # fmt: skip
    data, _, _ = _batch(serialized, None, 0)
    dense = _dense(_texts(dense_keys), Tdense, dense_shapes, defaults)
    return parse_examples(data, [], _sparse(_texts(sparse_keys), sparse_types), dense, single=True)


def example_shape(n_sparse: str) -> Any:
    def rule(c: Any) -> list[Dims]:
        serialized: Any = c.dims(0) if n_sparse == "num_sparse" else with_rank(c, 0, 1)
        if serialized is not None and len(serialized) > 1:
            raise ValueError(f"Shape must be at most rank 1 but is rank {len(serialized)}")
        n = c.attrs[n_sparse]
        rank = None if serialized is None else 1 + len(serialized)
        indices, sizes = ((None, rank), (rank,))
        shapes: list[Dims] = [indices] * n + [(None,)] * n + [sizes] * n
        shapes += [None if serialized is None else (*serialized, *dims_of(s)) for s in c.attrs["dense_shapes"]]  # type: ignore[misc]
        n_ragged = len(c.attrs.get("ragged_value_types", ()))
        batch = serialized[0] if serialized else None
        return shapes + [(None,)] * n_ragged + [(None if batch is None else batch + 1,)] * n_ragged

    return rule


def single_example_shape(c: Any) -> list[Dims]:
    with_rank(c, 0, 0)
    n = c.attrs["num_sparse"]
    return [(None, 1)] * n + [(None,)] * n + [(1,)] * n + [dims_of(s) for s in c.attrs["dense_shapes"]]


_EXAMPLE = b"\n\x1c\n\r\n\x01a\x12\x08\x12\x06\n\x04\x00\x00\xc0?\n\x0b\n\x01b\x12\x06\x1a\x04\n\x02\x01\x02"  # a: [1.5], b: [1, 2]
_SPARSE = "sparse_types: list(type) in {float, int64, string} >= 0; Tdense: list(type) in {float, int64, string} >= 0; dense_shapes: list(shape) >= 0"
_OUT = "sparse_indices: {0}*int64, sparse_values: list sparse_types, sparse_shapes: {0}*int64, dense_values: list Tdense"
op("ParseExample(serialized: string, names: string, sparse_keys: Nsparse*string, dense_keys: Ndense*string, dense_defaults: list Tdense)"
   f" -> ({_OUT.format('Nsparse')}) [Nsparse: int >= 0; Ndense: int >= 0; {_SPARSE}]",
   shape=example_shape("Nsparse"), numpy=parse_example_kernel, expensive=True,
   samples=[
       dict(serialized=strings([_EXAMPLE, b""]), names=strings(["x", "y"]), sparse_keys=[strings("b")], dense_keys=[strings("a")],
            dense_defaults=[arr([7.5], np.float32)], sparse_types=["int64"], dense_shapes=[[1]]),
   ],
   errors=[
       (dict(serialized=strings([b""]), names=strings(["x"]), sparse_keys=[strings("b")], dense_keys=[strings("a")],
             dense_defaults=[arr([], np.float32)], sparse_types=["int64"], dense_shapes=[[]]),
        InvalidArgumentError, r"Name: x, Feature: a \(data type: float\) is required but could not be found"),
   ])  # fmt: skip
op("ParseExampleV2(serialized: string, names: string, sparse_keys: string, dense_keys: string, ragged_keys: string, dense_defaults: list Tdense)"
   f" -> ({_OUT.format('num_sparse')}, ragged_values: list ragged_value_types, ragged_row_splits: list ragged_split_types)"
   " [Tdense: list(type) in {float, int64, string} >= 0; num_sparse: int >= 0; sparse_types: list(type) in {float, int64, string} >= 0;"
   " ragged_value_types: list(type) in {float, int64, string} >= 0; ragged_split_types: list(type) in {int32, int64} >= 0;"
   " dense_shapes: list(shape) >= 0]",
   shape=example_shape("num_sparse"), numpy=parse_example_v2_kernel, expensive=True,
   samples=[
       dict(serialized=strings([_EXAMPLE, b""]), names=strings([]), sparse_keys=strings(["b"]), dense_keys=strings(["a"]),
            ragged_keys=strings(["c"]), dense_defaults=[arr(7.5, np.float32)], num_sparse=1, sparse_types=["int64"],
            ragged_value_types=["int64"], ragged_split_types=["int32"], dense_shapes=[[]]),
       dict(serialized=strings(_EXAMPLE), names=strings([]), sparse_keys=strings(["b"]), dense_keys=strings(["a"]), ragged_keys=strings([]),
            dense_defaults=[arr(7.5, np.float32)], num_sparse=1, sparse_types=["int64"], ragged_value_types=[], ragged_split_types=[],
            dense_shapes=[[]]),
   ])  # fmt: skip
op(f"ParseSingleExample(serialized: string, dense_defaults: list Tdense) -> ({_OUT.format('num_sparse')})"
   f" [num_sparse: int >= 0; sparse_keys: list(string) >= 0; dense_keys: list(string) >= 0; {_SPARSE}]",
   shape=single_example_shape, numpy=parse_single_kernel, expensive=True,
   samples=[
       dict(serialized=strings(_EXAMPLE), dense_defaults=[arr([], np.float32)], num_sparse=1, sparse_keys=["b"], dense_keys=["a"],
            sparse_types=["int64"], dense_shapes=[[]]),
   ])  # fmt: skip


def json_example_kernel(texts: Any) -> np.ndarray:
    from google.protobuf.json_format import ParseError

    from penstock.ops.kernels.json_examples import example_of  # what it needs is not needed by others

    result = np.empty(texts.size, dtype=object)
    for i, text in enumerate(texts.ravel().tolist()):
        try:
            result[i] = example_of(text)
        except ParseError as error:
            raise InvalidArgumentError(f"Error while parsing JSON: {error}") from error
    return result.reshape(texts.shape)


op("DecodeJSONExample(json_examples: string) -> (binary_examples: string)",
   shape=same_as("json_examples"), numpy=json_example_kernel,
   errors=[(dict(json_examples=strings(['{"x"'])), InvalidArgumentError, "Error while parsing JSON")])  # fmt: skip


# -- sequence examples ------------------------------------------------------------------------------------------------

_V2_ORDER = (
    "context_sparse_indices", "context_sparse_values", "context_sparse_shapes", "context_dense_values", "context_ragged_values",
    "context_ragged_row_splits", "feature_list_sparse_indices", "feature_list_sparse_values", "feature_list_sparse_shapes",
    "feature_list_dense_values", "feature_list_dense_lengths", "feature_list_ragged_values", "feature_list_ragged_outer_splits",
    "feature_list_ragged_inner_splits",
)  # fmt: skip
_V1_ORDER = tuple(name for name in _V2_ORDER if "ragged" not in name)
_SINGLE_ORDER = tuple(name for name in _V1_ORDER if "lengths" not in name)


def _flat(parts: dict[str, list[Any]], order: Sequence[str]) -> list[Any]:
    return [value for name in order for value in parts[name]]


def sequence_v2_kernel(serialized: Any, debug_name: Any, context_sparse_keys: Any, context_dense_keys: Any, context_ragged_keys: Any,
                       list_sparse_keys: Any, list_dense_keys: Any, list_ragged_keys: Any, assume_empty: Any, defaults: list[Any], *,
                       context_sparse_types: list[DType], Tcontext_dense: list[DType], context_dense_shapes: list[TensorShape],
                       context_ragged_value_types: list[DType], context_ragged_split_types: list[DType],
                       feature_list_sparse_types: list[DType], feature_list_dense_types: list[DType],
                       feature_list_dense_shapes: list[TensorShape], feature_list_ragged_value_types: list[DType],
                       feature_list_ragged_split_types: list[DType]) -> list[Any]:  # fmt: skip
    data, names, single = _batch(serialized, debug_name, 1)
    dense_keys = _texts(list_dense_keys)
    wanted = Sequences(
        _sparse(_texts(context_sparse_keys), context_sparse_types),
        _dense(_texts(context_dense_keys), Tcontext_dense, context_dense_shapes, defaults),
        _ragged(_texts(context_ragged_keys), context_ragged_value_types, context_ragged_split_types),
        _sparse(_texts(list_sparse_keys), feature_list_sparse_types),
        _dense(dense_keys, feature_list_dense_types, feature_list_dense_shapes, [None] * len(dense_keys)),
        _ragged(_texts(list_ragged_keys), feature_list_ragged_value_types, feature_list_ragged_split_types),
        frozenset(key for key, empty in zip(dense_keys, np.ravel(assume_empty), strict=True) if empty),
    )
    return _flat(parse_sequences(data, names, wanted, single), _V2_ORDER)


def sequence_kernel(serialized: Any, debug_name: Any, defaults: list[Any], *, feature_list_dense_missing_assumed_empty: list[bytes],
                    context_sparse_keys: list[bytes], context_dense_keys: list[bytes], feature_list_sparse_keys: list[bytes],
                    feature_list_dense_keys: list[bytes], context_sparse_types: list[DType], Tcontext_dense: list[DType],
                    context_dense_shapes: list[TensorShape], feature_list_sparse_types: list[DType], feature_list_dense_types: list[DType],
                    feature_list_dense_shapes: list[TensorShape]) -> list[Any]:  # fmt: skip
    data, names, _ = _batch(serialized, debug_name, 1)
    wanted = Sequences(
        _sparse(_texts(context_sparse_keys), context_sparse_types),
        _dense(_texts(context_dense_keys), Tcontext_dense, context_dense_shapes, defaults), [],
        _sparse(_texts(feature_list_sparse_keys), feature_list_sparse_types),
        _dense(_texts(feature_list_dense_keys), feature_list_dense_types, feature_list_dense_shapes, [None] * len(feature_list_dense_keys)), [],
        frozenset(_texts(feature_list_dense_missing_assumed_empty)),
    )  # fmt: skip
    return _flat(parse_sequences(data, names, wanted, False), _V1_ORDER)


def single_sequence_kernel(serialized: Any, assume_empty: Any, context_sparse_keys: list[Any], context_dense_keys: list[Any],
                           list_sparse_keys: list[Any], list_dense_keys: list[Any], defaults: list[Any], debug_name: Any, *,
                           context_sparse_types: list[DType], Tcontext_dense: list[DType], context_dense_shapes: list[TensorShape],
                           feature_list_sparse_types: list[DType], feature_list_dense_types: list[DType],
                           feature_list_dense_shapes: list[TensorShape]) -> list[Any]:  # fmt: skip
    data, _, _ = _batch(serialized, None, 0)
    name = np.ravel(debug_name).tolist()
    wanted = Sequences(
        _sparse(_texts(context_sparse_keys), context_sparse_types),
        _dense(_texts(context_dense_keys), Tcontext_dense, context_dense_shapes, defaults), [],
        _sparse(_texts(list_sparse_keys), feature_list_sparse_types),
        _dense(_texts(list_dense_keys), feature_list_dense_types, feature_list_dense_shapes, [None] * len(list_dense_keys)), [],
        frozenset(_texts(assume_empty)),
    )  # fmt: skip
    return _flat(parse_sequences(data, name if name and name[0] else [], wanted, True), _SINGLE_ORDER)


def sequence_shape(order: Sequence[str], single: bool = False) -> Any:
    def rule(c: Any) -> list[Dims]:
        serialized: Any = () if single else c.dims(0)
        a = c.attrs
        rank = None if serialized is None else len(serialized)

        def plus(k: int) -> int | None:
            return None if rank is None else rank + k

        def batched(dims: Any) -> Dims:
            return None if serialized is None or dims is None else (*serialized, *dims)

        rows = (None if not serialized or serialized[0] is None else serialized[0] + 1,)
        shapes: dict[str, list[Dims]] = {
            "context_sparse_indices": [(None, plus(1))] * a["Ncontext_sparse"],
            "context_sparse_values": [(None,)] * a["Ncontext_sparse"],
            "context_sparse_shapes": [(plus(1),)] * a["Ncontext_sparse"],
            "context_dense_values": [batched(dims_of(s)) for s in a["context_dense_shapes"]],
            "context_ragged_values": [(None,) for _ in a.get("context_ragged_value_types", ())],
            "context_ragged_row_splits": [rows for _ in a.get("context_ragged_split_types", ())],
            "feature_list_sparse_indices": [(None, plus(2))] * a["Nfeature_list_sparse"],
            "feature_list_sparse_values": [(None,)] * a["Nfeature_list_sparse"],
            "feature_list_sparse_shapes": [(plus(2),)] * a["Nfeature_list_sparse"],
            "feature_list_dense_values": [batched((None, *dims_of(s))) for s in a["feature_list_dense_shapes"]],  # type: ignore[misc]
            "feature_list_dense_lengths": [serialized] * a["Nfeature_list_dense"],
            "feature_list_ragged_values": [(None,) for _ in a.get("feature_list_ragged_value_types", ())],
            "feature_list_ragged_outer_splits": [rows for _ in a.get("feature_list_ragged_split_types", ())],
            "feature_list_ragged_inner_splits": [(None,) for _ in a.get("feature_list_ragged_split_types", ())],
        }
        return _flat(shapes, order)

    return rule


_F = "in {float, int64, string} >= 0 = []"
_CONTEXT_OUT = ("context_sparse_indices: Ncontext_sparse*int64, context_sparse_values: list context_sparse_types,"
                " context_sparse_shapes: Ncontext_sparse*int64, context_dense_values: list Tcontext_dense")  # fmt: skip
_LIST_OUT = ("feature_list_sparse_indices: Nfeature_list_sparse*int64, feature_list_sparse_values: list feature_list_sparse_types,"
             " feature_list_sparse_shapes: Nfeature_list_sparse*int64, feature_list_dense_values: list feature_list_dense_types")  # fmt: skip
_COUNTS = ("Ncontext_sparse: int >= 0 = 0; Ncontext_dense: int >= 0 = 0; Nfeature_list_sparse: int >= 0 = 0; Nfeature_list_dense: int >= 0 = 0;"
           f" context_sparse_types: list(type) {_F}; Tcontext_dense: list(type) {_F}; feature_list_dense_types: list(type) {_F};"
           f" context_dense_shapes: list(shape) >= 0 = []; feature_list_sparse_types: list(type) {_F};"
           " feature_list_dense_shapes: list(shape) >= 0 = []")  # fmt: skip
op("ParseSequenceExample(serialized: string, debug_name: string, context_dense_defaults: list Tcontext_dense)"
   f" -> ({_CONTEXT_OUT}, {_LIST_OUT}, feature_list_dense_lengths: Nfeature_list_dense*int64)"
   " [feature_list_dense_missing_assumed_empty: list(string) >= 0; context_sparse_keys: list(string) >= 0; context_dense_keys: list(string) >= 0;"
   f" feature_list_sparse_keys: list(string) >= 0; feature_list_dense_keys: list(string) >= 0; {_COUNTS}]",
   shape=sequence_shape(_V1_ORDER), numpy=sequence_kernel, expensive=True)  # fmt: skip
op("ParseSingleSequenceExample(serialized: string, feature_list_dense_missing_assumed_empty: string, context_sparse_keys: Ncontext_sparse*string,"
   " context_dense_keys: Ncontext_dense*string, feature_list_sparse_keys: Nfeature_list_sparse*string,"
   " feature_list_dense_keys: Nfeature_list_dense*string, context_dense_defaults: list Tcontext_dense, debug_name: string)"
   f" -> ({_CONTEXT_OUT}, {_LIST_OUT}) [{_COUNTS}]",
   shape=sequence_shape(_SINGLE_ORDER, single=True), numpy=single_sequence_kernel, expensive=True)  # fmt: skip
op("ParseSequenceExampleV2(serialized: string, debug_name: string, context_sparse_keys: string, context_dense_keys: string,"
   " context_ragged_keys: string, feature_list_sparse_keys: string, feature_list_dense_keys: string, feature_list_ragged_keys: string,"
   " feature_list_dense_missing_assumed_empty: bool, context_dense_defaults: list Tcontext_dense)"
   f" -> ({_CONTEXT_OUT}, context_ragged_values: list context_ragged_value_types, context_ragged_row_splits: list context_ragged_split_types,"
   f" {_LIST_OUT}, feature_list_dense_lengths: Nfeature_list_dense*int64, feature_list_ragged_values: list feature_list_ragged_value_types,"
   " feature_list_ragged_outer_splits: list feature_list_ragged_split_types, feature_list_ragged_inner_splits: list feature_list_ragged_split_types)"
   f" [Ncontext_sparse: int >= 0 = 0; Tcontext_dense: list(type) {_F}; context_sparse_types: list(type) {_F};"
   f" context_ragged_value_types: list(type) {_F}; context_ragged_split_types: list(type) in {{int32, int64}} >= 0 = [];"
   " context_dense_shapes: list(shape) >= 0 = []; Nfeature_list_sparse: int >= 0 = 0; Nfeature_list_dense: int >= 0 = 0;"
   f" feature_list_dense_types: list(type) {_F}; feature_list_sparse_types: list(type) {_F}; feature_list_ragged_value_types: list(type) {_F};"
   " feature_list_ragged_split_types: list(type) in {int32, int64} >= 0 = []; feature_list_dense_shapes: list(shape) >= 0 = []]",
   shape=sequence_shape(_V2_ORDER), numpy=sequence_v2_kernel, expensive=True)  # fmt: skip
