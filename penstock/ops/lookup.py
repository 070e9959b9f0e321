"""Lookup tables: hash tables from keys to values, filled once (HashTable) or changed at will (MutableHashTable and relatives).

Ops come in two forms: the older ones name a table by a ref string, those with V2 by a resource handle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import NOT_DIFFERENTIABLE, no_outputs, op, scalar, vector
from penstock.ops.kernels.tables import TABLE_TYPE, DenseTable, MutableTable, StaticTable, Table, text_file_entries
from penstock.ops.resources import Ref, ResourceHandle, carried, pair_of
from penstock.ops.state import resource_key
from penstock.shapes import TensorShape, dims_of, format_dims, merge_dims

# -- making tables ----------------------------------------------------------------------------------------------------


def _handle(ctx: Any, table: Table, key: tuple[str, str]) -> ResourceHandle:
    return ResourceHandle(
        ctx.device.name, key[0], key[1], TABLE_TYPE, ((table.key_dtype, ()), (table.value_dtype, table.value_shape))
    )


def _find_or_make(ctx: Any, cls: type[Table], container: bytes, shared_name: bytes, node: Operation, key_dtype: DType, value_dtype: DType,
                  *more: Any) -> tuple[Table, tuple[str, str]]:  # fmt: skip
    key = resource_key(container, shared_name, node)
    table = ctx.resources.lookup_or_create(*key, Table, lambda: cls(key_dtype, value_dtype, *more))
    table.check_types(key_dtype, value_dtype, node.name)
    return table, key


def _as_ref(ctx: Any, table: Table, key: tuple[str, str]) -> Ref:
    ref = Ref(None, (2,), key[1])  # type: ignore[arg-type]
    ref.value = np.array([part.encode() for part in key], dtype=object)
    return ref


def _maker(cls: type[Table], wrap: Any) -> Any:
    def kernel(
        ctx: Any, *, container: bytes, shared_name: bytes, key_dtype: DType, value_dtype: DType, node: Operation
    ) -> Any:
        return wrap(ctx, *_find_or_make(ctx, cls, container, shared_name, node, key_dtype, value_dtype))

    return kernel


def _tensor_maker(wrap: Any) -> Any:
    def kernel(ctx: Any, *, container: bytes, shared_name: bytes, key_dtype: DType, value_dtype: DType, value_shape: TensorShape,
               node: Operation) -> Any:  # fmt: skip
        return wrap(
            ctx,
            *_find_or_make(
                ctx, MutableTable, container, shared_name, node, key_dtype, value_dtype, dims_of(value_shape)
            ),
        )

    return kernel


def dense_kernel(ctx: Any, empty_key: Any, deleted_key: Any, *, container: bytes, shared_name: bytes, key_dtype: DType, value_dtype: DType,
                 value_shape: TensorShape, node: Operation) -> ResourceHandle:  # fmt: skip
    made = _find_or_make(
        ctx,
        DenseTable,
        container,
        shared_name,
        node,
        key_dtype,
        value_dtype,
        dims_of(value_shape),
        empty_key,
        deleted_key,
    )
    return _handle(ctx, *made)


def old_dense_kernel(ctx: Any, empty_key: Any, *, container: bytes, shared_name: bytes, key_dtype: DType, value_dtype: DType,
                     value_shape: TensorShape, node: Operation) -> Ref:  # fmt: skip
    return _as_ref(
        ctx,
        *_find_or_make(
            ctx, DenseTable, container, shared_name, node, key_dtype, value_dtype, dims_of(value_shape), empty_key, None
        ),
    )


def _anonymous(ctx: Any, table: Table, node: Operation) -> ResourceHandle:
    handle = _handle(ctx, table, ("", f"{node.name}/{id(table)}"))
    handle.resource = table
    return handle


def anonymous_static(ctx: Any, *, key_dtype: DType, value_dtype: DType, node: Operation) -> ResourceHandle:
    return _anonymous(ctx, StaticTable(key_dtype, value_dtype), node)


def anonymous_mutable(ctx: Any, *, key_dtype: DType, value_dtype: DType, node: Operation) -> ResourceHandle:
    return _anonymous(ctx, MutableTable(key_dtype, value_dtype), node)


def anonymous_tensors(
    ctx: Any, *, key_dtype: DType, value_dtype: DType, value_shape: TensorShape, node: Operation
) -> ResourceHandle:
    return _anonymous(ctx, MutableTable(key_dtype, value_dtype, dims_of(value_shape)), node)


def anonymous_dense(ctx: Any, empty_key: Any, deleted_key: Any, *, key_dtype: DType, value_dtype: DType, value_shape: TensorShape,
                    node: Operation) -> ResourceHandle:  # fmt: skip
    return _anonymous(ctx, DenseTable(key_dtype, value_dtype, dims_of(value_shape), empty_key, deleted_key), node)


_SHARED = "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = false; "
_TYPES = "key_dtype: type; value_dtype: type"
_VALUE = "; value_shape: shape = shape()"
_DENSE = _VALUE + "; initial_num_buckets: int = 131072; max_load_factor: float = 0.800000012"

op(
    f"HashTable() -> (table_handle: ref string) [{_SHARED}{_TYPES}] stateful",
    shape=vector(2),
    numpy=_maker(StaticTable, _as_ref),
)
op(
    f"HashTableV2() -> (table_handle: resource) [{_SHARED}{_TYPES}] stateful",
    shape=scalar,
    numpy=_maker(StaticTable, _handle),
)
op(
    f"MutableHashTable() -> (table_handle: ref string) [{_SHARED}{_TYPES}] stateful",
    shape=vector(2),
    numpy=_maker(MutableTable, _as_ref),
)
op(
    f"MutableHashTableV2() -> (table_handle: resource) [{_SHARED}{_TYPES}] stateful",
    shape=scalar,
    numpy=_maker(MutableTable, _handle),
)
op(
    f"MutableHashTableOfTensors() -> (table_handle: ref string) [{_SHARED}{_TYPES}{_VALUE}] stateful",
    shape=vector(2),
    numpy=_tensor_maker(_as_ref),
)
op(
    f"MutableHashTableOfTensorsV2() -> (table_handle: resource) [{_SHARED}{_TYPES}{_VALUE}] stateful",
    shape=scalar,
    numpy=_tensor_maker(_handle),
)
op(f"MutableDenseHashTable(empty_key: key_dtype) -> (table_handle: ref string) [{_SHARED}{_TYPES}{_DENSE}] stateful",
   shape=vector(2), numpy=old_dense_kernel)  # fmt: skip
op(f"MutableDenseHashTableV2(empty_key: key_dtype, deleted_key: key_dtype) -> (table_handle: resource) [{_SHARED}{_TYPES}{_DENSE}] stateful",
   shape=scalar, numpy=dense_kernel)  # fmt: skip
op(f"AnonymousHashTable() -> (table_handle: resource) [{_TYPES}] stateful", shape=scalar, numpy=anonymous_static)
op(
    f"AnonymousMutableHashTable() -> (table_handle: resource) [{_TYPES}] stateful",
    shape=scalar,
    numpy=anonymous_mutable,
)
op(
    f"AnonymousMutableHashTableOfTensors() -> (table_handle: resource) [{_TYPES}{_VALUE}] stateful",
    shape=scalar,
    numpy=anonymous_tensors,
)
op(f"AnonymousMutableDenseHashTable(empty_key: key_dtype, deleted_key: key_dtype) -> (table_handle: resource) [{_TYPES}{_DENSE}] stateful",
   shape=scalar, numpy=anonymous_dense)  # fmt: skip


# -- using tables -----------------------------------------------------------------------------------------------------


def find_table(ctx: Any, handle: Any) -> Table:
    """The table behind a resource handle or a ref string."""
    if isinstance(handle, ResourceHandle):
        found = carried(handle, Table)
        return found if found is not None else ctx.resources.lookup(handle.container, handle.name, Table)
    container, name = pair_of(handle)
    return ctx.resources.lookup(container, name, Table)


def find_kernel(ctx: Any, handle: Any, keys: Any, default: Any, *, Tin: DType, Tout: DType) -> np.ndarray:
    table = find_table(ctx, handle)
    table.check_signature(handle, (Tin, Tout), Tout)
    return table.find(np.asarray(keys), np.asarray(default))


def insert_kernel(ctx: Any, handle: Any, keys: Any, values: Any, *, Tin: DType, Tout: DType) -> None:
    table = find_table(ctx, handle)
    table.check_signature(handle, (Tin, Tout))
    table.insert(np.asarray(keys), np.asarray(values))


def import_kernel(ctx: Any, handle: Any, keys: Any, values: Any, *, Tin: DType, Tout: DType) -> None:
    table = find_table(ctx, handle)
    table.check_signature(handle, (Tin, Tout))
    table.replace(np.asarray(keys), np.asarray(values))


def initialize_kernel(ctx: Any, handle: Any, keys: Any, values: Any, *, Tkey: DType, Tval: DType) -> None:
    table = find_table(ctx, handle)
    table.check_signature(handle, (Tkey, Tval))
    table.initialize(np.asarray(keys), np.asarray(values))


def text_file_kernel(ctx: Any, handle: Any, filename: Any, *, key_index: int, value_index: int, vocab_size: int, delimiter: bytes,
                     offset: int) -> None:  # fmt: skip
    table = find_table(ctx, handle)
    if np.ndim(filename):
        raise InvalidArgumentError(f"filename should be a single string, but got {format_dims(np.shape(filename))}")
    path = np.asarray(filename, dtype=object).item().decode()
    table.initialize(*text_file_entries(table, path, key_index, value_index, vocab_size, delimiter, offset))


def remove_kernel(ctx: Any, handle: Any, keys: Any) -> None:
    find_table(ctx, handle).remove(np.asarray(keys))


def size_kernel(ctx: Any, handle: Any) -> np.int64:
    return np.int64(len(find_table(ctx, handle)))


def export_kernel(ctx: Any, handle: Any) -> tuple[np.ndarray, np.ndarray]:
    return find_table(ctx, handle).export()


def find_shape(c: Any) -> Dims:
    keys, default = c.dims(1), c.dims(2)
    if keys is None or default is None:
        return None
    # A default of the full result's shape is allowed too.
    return default if default[: len(keys)] == keys and keys else keys + default


def initialize_shape(c: Any) -> list[Dims]:
    merge_dims(c.dims(1), c.dims(2))
    return []


def insert_shape(c: Any) -> list[Dims]:
    keys, values = c.dims(1), c.dims(2)
    if keys is not None and values is not None:
        merge_dims(keys, values[: len(keys)])
    return []


def export_shape(c: Any) -> list[Dims]:
    return [(None,), None]


for _version, _kind, _flag in (("", "ref string", ""), ("V2", "resource", " stateful")):
    op(f"LookupTableFind{_version}(table_handle: {_kind}, keys: Tin, default_value: Tout) -> (values: Tout) [Tin: type; Tout: type]{_flag}",
       shape=find_shape, numpy=find_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
    op(f"LookupTableInsert{_version}(table_handle: {_kind}, keys: Tin, values: Tout) -> () [Tin: type; Tout: type]{_flag}",
       shape=insert_shape, numpy=insert_kernel)  # fmt: skip
    op(f"LookupTableImport{_version}(table_handle: {_kind}, keys: Tin, values: Tout) -> () [Tin: type; Tout: type]{_flag}",
       shape=insert_shape, numpy=import_kernel)  # fmt: skip
    op(
        f"LookupTableSize{_version}(table_handle: {_kind}) -> (size: int64){_flag}",
        shape=scalar,
        numpy=size_kernel,
        grad=NOT_DIFFERENTIABLE,
    )
    op(f"LookupTableExport{_version}(table_handle: {_kind}) -> (keys: Tkeys, values: Tvalues) [Tkeys: type; Tvalues: type]{_flag}",
       shape=export_shape, numpy=export_kernel)  # fmt: skip
    op(f"InitializeTable{_version}(table_handle: {_kind}, keys: Tkey, values: Tval) -> () [Tkey: type; Tval: type]{_flag}",
       shape=initialize_shape, numpy=initialize_kernel)  # fmt: skip
    op(f"InitializeTableFromTextFile{_version}(table_handle: {_kind}, filename: string) -> () [key_index: int >= -2; value_index: int >= -2;"
       f" vocab_size: int >= -1 = -1; delimiter: string = '\\t'; offset: int = 0]{_flag}",
       shape=no_outputs, numpy=text_file_kernel)  # fmt: skip
op(
    "LookupTableRemoveV2(table_handle: resource, keys: Tin) -> () [Tin: type] stateful",
    shape=no_outputs,
    numpy=remove_kernel,
)
