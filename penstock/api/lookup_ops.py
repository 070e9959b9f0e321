"""`tf.lookup`: tables from keys to values, for vocabularies and feature maps."""

from __future__ import annotations

import itertools
from typing import Any

from penstock import dtypes
from penstock.api.export import export, resolve
from penstock.graph.composite import SparseTensor
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.keys import GraphKeys
from penstock.graph.raw import raw

_uids = itertools.count()


@export("tables_initializer", "initializers.tables_initializer", "initialize_all_tables")
def tables_initializer(name: str = "init_all_tables") -> Operation:
    """An op that fills all tables of the default graph."""
    found = get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS)
    return resolve("group")(*found, name=name) if found else raw.NoOp(name=name)


@export("lookup.TextFileIndex")
class TextFileIndex:
    """Which part of a line: the whole of it, or its number (a column is given by its index)."""

    WHOLE_LINE = -2
    LINE_NUMBER = -1


class TableInitializer:
    """Fills a table: `initialize(table)` returns the op that does it."""

    def __init__(self, key_dtype: Any, value_dtype: Any) -> None:
        self._key_dtype = dtypes.as_dtype(key_dtype)
        self._value_dtype = dtypes.as_dtype(value_dtype)

    @property
    def key_dtype(self) -> dtypes.DType:
        return self._key_dtype

    @property
    def value_dtype(self) -> dtypes.DType:
        return self._value_dtype

    def initialize(self, table: Any) -> Operation:
        raise NotImplementedError

    def _check(self, table: Any) -> None:
        if (table.key_dtype, table.value_dtype) != (self._key_dtype, self._value_dtype):
            raise TypeError(
                f"Invalid key/value dtypes, expected {table.key_dtype!r}->{table.value_dtype!r} but got {self._key_dtype!r}->{self._value_dtype!r}."
            )


@export("lookup.KeyValueTensorInitializer")
class KeyValueTensorInitializer(TableInitializer):
    """Fills a table from a tensor of keys and a tensor of values."""

    def __init__(
        self, keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None, name: str | None = None
    ) -> None:
        self._keys = convert_to_tensor(keys, dtype=key_dtype, name="keys")
        self._values = convert_to_tensor(values, dtype=value_dtype, name="values")
        self._name = name if name is not None else "key_value_init"
        super().__init__(self._keys.dtype, self._values.dtype)

    def initialize(self, table: Any) -> Operation:
        self._check(table)
        graph = get_default_graph()
        with graph.name_scope(self._name):
            op = raw.LookupTableImportV2(table.resource_handle, self._keys, self._values)
        graph.add_to_collection(GraphKeys.TABLE_INITIALIZERS, op)
        return op


@export("lookup.TextFileInitializer")
class TextFileInitializer(TableInitializer):
    """Fills a table from the lines of a text file."""

    def __init__(
        self,
        filename: Any,
        key_dtype: Any,
        key_index: int,
        value_dtype: Any,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        if not isinstance(filename, Tensor) and not filename:
            raise ValueError("`filename` argument required for tf.lookup.TextFileInitializer")
        key_dtype, value_dtype = dtypes.as_dtype(key_dtype), dtypes.as_dtype(value_dtype)
        if key_index < -2:
            raise ValueError(f"`key_index` should be >= -2, received: {key_index}.")
        if value_index < -2:
            raise ValueError(f"`value_index` should be >= -2, received: {value_index}.")
        for index, dtype, what in ((key_index, key_dtype, "key"), (value_index, value_dtype, "value")):
            if index == TextFileIndex.LINE_NUMBER and dtype not in (dtypes.int64, dtypes.int32):
                raise ValueError(
                    f"`{what}_dtype` must be int64 if `{what}_index` is {TextFileIndex.LINE_NUMBER}, received: {dtype}"
                )
            if index == TextFileIndex.WHOLE_LINE and dtype not in (dtypes.string, dtypes.int64, dtypes.int32):
                raise ValueError(
                    f"`{what}_dtype` should be either integer or string for `{what}_index` {TextFileIndex.WHOLE_LINE}, received: {dtype}"
                )
        if vocab_size is not None and vocab_size <= 0:
            raise ValueError(f"`vocab_size` should be > 0, received: {vocab_size}")
        self._filename = filename
        self._key_index = key_index
        self._value_index = value_index
        self._vocab_size = vocab_size
        self._delimiter = delimiter
        self._offset = value_index_offset
        self._name = name
        super().__init__(key_dtype, value_dtype)

    def initialize(self, table: Any) -> Operation:
        self._check(table)
        graph = get_default_graph()
        with graph.name_scope(self._name or "text_file_init"):
            filename = convert_to_tensor(self._filename, dtypes.string, name="asset_filepath")
            op = raw.InitializeTableFromTextFileV2(
                table.resource_handle, filename, key_index=self._key_index, value_index=self._value_index,
                vocab_size=-1 if self._vocab_size is None else self._vocab_size, delimiter=self._delimiter, offset=self._offset,
            )  # fmt: skip
        graph.add_to_collection(GraphKeys.TABLE_INITIALIZERS, op)
        if filename.op.type == "Const":
            # Saved models carry the file along.
            graph.add_to_collection(GraphKeys.ASSET_FILEPATHS, filename)
        return op


class _Table:
    """What all tables of this module share: a handle, types, size, lookup."""

    def __init__(self, handle: Tensor, key_dtype: Any, value_dtype: Any, default_value: Any) -> None:
        self._resource_handle = handle
        self._key_dtype = dtypes.as_dtype(key_dtype)
        self._value_dtype = dtypes.as_dtype(value_dtype)
        self._default_value = default_value

    @property
    def resource_handle(self) -> Tensor:
        return self._resource_handle

    @property
    def key_dtype(self) -> dtypes.DType:
        return self._key_dtype

    @property
    def value_dtype(self) -> dtypes.DType:
        return self._value_dtype

    @property
    def default_value(self) -> Any:
        return self._default_value

    @property
    def name(self) -> str:
        return self._resource_handle.op.name.split("/")[-1]

    def size(self, name: str | None = None) -> Tensor:
        """The number of entries."""
        return self._in_scope(name, "Size", lambda: raw.LookupTableSizeV2(self._resource_handle))

    def _in_scope(self, name: str | None, what: str, build: Any) -> Any:
        graph = self._resource_handle.graph
        with graph.name_scope(f"{self.name}_{what}" if name is None else name):
            return build()

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The values of `keys` (a tensor, or a SparseTensor, whose values are looked up)."""
        sparse = keys if isinstance(keys, SparseTensor) else None
        tensor = convert_to_tensor(
            sparse.values if sparse is not None else keys, dtype=self._key_dtype_for(keys), name="keys"
        )
        if tensor.dtype.base_dtype != self._key_dtype:
            raise TypeError(f"Dtype of argument `keys` must be {self._key_dtype}, received: {tensor.dtype}")
        values = self._in_scope(
            name, "Lookup", lambda: raw.LookupTableFindV2(self._resource_handle, tensor, self._default_value)
        )
        return values if sparse is None else SparseTensor(sparse.indices, values, sparse.dense_shape)

    def _key_dtype_for(self, keys: Any) -> Any:
        return None if isinstance(keys, (Tensor, SparseTensor)) else self._key_dtype

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)

    def export(self, name: str | None = None) -> tuple[Tensor, Tensor]:
        """(keys, values) of all entries."""
        build = lambda: raw.LookupTableExportV2(self._resource_handle, Tkeys=self._key_dtype, Tvalues=self._value_dtype)  # noqa: E731
        keys, values = self._in_scope(name, "export_values", build)
        return keys, values


@export("lookup.StaticHashTable")
class StaticHashTable(_Table):
    """A table that an initializer fills once.

    >>> init = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64))       # doctest: +SKIP
    >>> table = tf.lookup.StaticHashTable(init, default_value=-1)                                   # doctest: +SKIP
    >>> sess.run(tf.tables_initializer()); sess.run(table.lookup(tf.constant(["b", "x"])))          # doctest: +SKIP
    array([ 2, -1])
    """

    def __init__(
        self,
        initializer: TableInitializer,
        default_value: Any,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        if not isinstance(initializer, TableInitializer):
            raise TypeError(
                f"initializer must be a table initializer such as tf.lookup.KeyValueTensorInitializer, got {initializer!r}"
            )
        default = convert_to_tensor(default_value, dtype=initializer.value_dtype)
        types = {"key_dtype": initializer.key_dtype, "value_dtype": initializer.value_dtype}
        if experimental_is_anonymous:
            handle = raw.AnonymousHashTable(**types)
        else:
            handle = raw.HashTableV2(shared_name=f"table_{next(_uids)}", name=name or "hash_table", **types)
        super().__init__(handle, initializer.key_dtype, initializer.value_dtype, default)
        self._init_op = initializer.initialize(self)

    @property
    def initializer(self) -> Operation:
        return self._init_op


@export("lookup.StaticVocabularyTable")
class StaticVocabularyTable:
    """Ids of a vocabulary's words, and hashed ids behind them for `num_oov_buckets` kinds of words that are not in it."""

    def __init__(self, initializer: TableInitializer | None, num_oov_buckets: int, lookup_key_dtype: Any = None, name: str | None = None,
                 experimental_is_anonymous: bool = False) -> None:  # fmt: skip
        if num_oov_buckets is None or num_oov_buckets <= 0:
            raise ValueError(f"`num_oov_buckets` must be > 0; use StaticHashTable. Received: {num_oov_buckets}.")
        self._table: StaticHashTable | None = None
        if initializer is not None:
            if initializer.key_dtype != dtypes.string and not initializer.key_dtype.is_integer:
                raise TypeError(f"Invalid `key_dtype`, expected integer or string, but got {initializer.key_dtype}")
            if initializer.value_dtype != dtypes.int64:
                raise TypeError(f"Invalid `value_dtype`, expected {dtypes.int64} but got {initializer.value_dtype}.")
            self._table = StaticHashTable(
                initializer, default_value=-1, name=name, experimental_is_anonymous=experimental_is_anonymous
            )
        self._name = name or (self._table.name if self._table is not None else "hash_bucket")
        self._num_oov_buckets = num_oov_buckets
        self._key_dtype = (
            dtypes.as_dtype(lookup_key_dtype)
            if lookup_key_dtype is not None
            else initializer.key_dtype
            if initializer is not None
            else dtypes.string
        )

    @property
    def key_dtype(self) -> dtypes.DType:
        return self._key_dtype

    @property
    def value_dtype(self) -> dtypes.DType:
        return dtypes.int64

    @property
    def name(self) -> str:
        return self._name

    @property
    def resource_handle(self) -> Tensor | None:
        return None if self._table is None else self._table.resource_handle

    @property
    def initializer(self) -> Operation:
        return raw.NoOp() if self._table is None else self._table.initializer

    def size(self, name: str | None = None) -> Tensor:
        """Words and buckets together."""
        known = self._table.size() if self._table is not None else convert_to_tensor(0, dtypes.int64)
        return known + self._num_oov_buckets

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The ids of `keys`."""
        if isinstance(keys, SparseTensor):
            return SparseTensor(keys.indices, self.lookup(keys.values, name), keys.dense_shape)
        tensor = convert_to_tensor(keys, dtype=None if isinstance(keys, Tensor) else self._key_dtype, name="keys")
        if tensor.dtype.base_dtype != self._key_dtype:
            raise TypeError(f"Dtype of argument `keys` must be {self._key_dtype}, received: {tensor.dtype}")
        graph = tensor.graph
        with graph.name_scope(f"{self._name}_Lookup" if name is None else name):
            text = tensor if self._key_dtype == dtypes.string else raw.AsString(tensor)
            buckets = raw.StringToHashBucketFast(text, num_buckets=self._num_oov_buckets, name="hash_bucket")
            if self._table is None:
                return buckets
            ids = self._table.lookup(
                tensor if tensor.dtype == self._table.key_dtype else raw.Cast(tensor, DstT=self._table.key_dtype)
            )
            return raw.SelectV2(raw.NotEqual(ids, self._table.default_value), ids, buckets + self._table.size())

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)


class _MutableTable(_Table):
    def insert(self, keys: Any, values: Any, name: str | None = None) -> Operation:
        """An op that adds entries, replacing those of equal key."""
        keys = convert_to_tensor(keys, self._key_dtype, name="keys")
        values = convert_to_tensor(values, self._value_dtype, name="values")
        return self._in_scope(
            name, "lookup_table_insert", lambda: raw.LookupTableInsertV2(self._resource_handle, keys, values)
        )

    insert_or_assign = insert

    def remove(self, keys: Any, name: str | None = None) -> Operation:
        """An op that removes entries; keys that are not there are ignored."""
        keys = convert_to_tensor(keys, self._key_dtype, name="keys")
        return self._in_scope(name, "lookup_table_remove", lambda: raw.LookupTableRemoveV2(self._resource_handle, keys))

    erase = remove


@export("lookup.experimental.MutableHashTable")
class MutableHashTable(_MutableTable):
    """A table that ops insert into and remove from."""

    def __init__(self, key_dtype: Any, value_dtype: Any, default_value: Any, name: str = "MutableHashTable", checkpoint: bool = True,
                 experimental_is_anonymous: bool = False) -> None:  # fmt: skip
        default = convert_to_tensor(default_value, dtype=value_dtype)
        types: dict[str, Any] = {"key_dtype": key_dtype, "value_dtype": value_dtype}
        anonymous = experimental_is_anonymous
        shared = {} if anonymous else {"shared_name": f"table_{next(_uids)}"}
        if default.dims:
            function = raw.AnonymousMutableHashTableOfTensors if anonymous else raw.MutableHashTableOfTensorsV2
            handle = function(value_shape=default.shape, name=name, **types, **shared)
        else:
            function = raw.AnonymousMutableHashTable if anonymous else raw.MutableHashTableV2
            handle = function(name=name, **types, **shared)
        super().__init__(handle, key_dtype, value_dtype, default)


@export("lookup.experimental.DenseHashTable")
class DenseHashTable(_MutableTable):
    """A mutable table with two reserved keys, as TF's dense tables need them."""

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        empty_key: Any,
        deleted_key: Any,
        initial_num_buckets: int | None = None,
        name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
        experimental_is_anonymous: bool = False,
    ) -> None:
        default = convert_to_tensor(default_value, dtype=value_dtype, name="default_value")
        empty = convert_to_tensor(empty_key, dtype=key_dtype, name="empty_key")
        deleted = convert_to_tensor(deleted_key, dtype=key_dtype, name="deleted_key")
        options = {
            "value_dtype": value_dtype,
            "value_shape": default.shape,
            "initial_num_buckets": initial_num_buckets,
            "name": name,
        }
        if experimental_is_anonymous:
            handle = raw.AnonymousMutableDenseHashTable(empty, deleted, **options)
        else:
            handle = raw.MutableDenseHashTableV2(empty, deleted, shared_name=f"table_{next(_uids)}", **options)
        super().__init__(handle, key_dtype, value_dtype, default)
