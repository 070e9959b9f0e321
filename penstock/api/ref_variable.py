"""Reference variables: TF1's default kind, whose op's output is the variable itself."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api.variables import (
    Variable,
    VariableAggregation,
    VariableSynchronization,
    checked_collections,
    checked_options,
    guarded_initial_value,
    lifted,
    prepend_scope,
    read_as,
    strip_scope,
)
from penstock.graph import defaults
from penstock.graph.composite import IndexedSlices
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape


class RefVariable(Variable):
    """A variable made of a `VariableV2` op, an `Assign` that initialises it, and an `Identity` that reads it."""

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: str | None = None,
        constraint: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
    ) -> None:
        if variable_def is not None:
            if initial_value is not None:
                raise ValueError("variable_def and initial_value are mutually exclusive.")
            self._from_proto(variable_def, import_scope)
            return
        self._synchronization, self._aggregation, self._trainable = checked_options(
            synchronization, aggregation, trainable, name
        )
        if initial_value is None:
            raise ValueError("initial_value must be specified.")
        keys = checked_collections(collections, self._trainable)
        if constraint is not None and not callable(constraint):
            raise ValueError("The `constraint` argument must be a callable.")
        self._constraint = constraint
        with lifted() as graph:
            self._create(graph, initial_value, name, dtype, validate_shape, caching_device)
            graph.add_to_collections(keys, self)

    def _create(
        self, graph: Graph, initial_value: Any, name: str | None, dtype: Any, validate_shape: bool, caching_device: Any
    ) -> None:
        with graph.name_scope("Variable" if name is None else name) as scope:
            if callable(initial_value):
                own = scope[:-1].encode()
                # The initial value is made where the variable is, whatever device scopes are open.
                with graph._attr_scope({"_class": [b"loc:@" + own]}):
                    with graph.name_scope("Initializer"), graph.device(None):
                        first = convert_to_tensor(initial_value(), name="initial_value", dtype=dtype)
                    self._variable = self._variable_op(first, validate_shape, scope)
            else:
                first = convert_to_tensor(initial_value, name="initial_value", dtype=dtype)
                self._variable = self._variable_op(first, validate_shape, scope)
            self._initial_value: Any = first
            guarded = guarded_initial_value(self._variable.op.name, first)
            self._initializer_op = raw.Assign(self._variable, guarded, validate_shape=validate_shape, name="Assign").op
            if caching_device is not None:
                with graph.device(caching_device):
                    self._snapshot = raw.Identity(self._variable, name="read")
            else:
                with graph.colocate_with(self._variable.op):
                    self._snapshot = raw.Identity(self._variable, name="read")
        self._caching_device = caching_device

    @staticmethod
    def _variable_op(first: Tensor, validate_shape: bool, scope: str) -> Tensor:
        shape = first.shape if validate_shape else TensorShape(None)
        if validate_shape and not shape.is_fully_defined():
            raise ValueError(f"initial_value must have a shape specified: {first}")
        return raw.VariableV2(shape=shape, dtype=first.dtype.base_dtype, name=scope)

    def _from_proto(self, proto: Any, import_scope: str | None) -> None:
        graph = defaults.get_default_graph()

        def element(name: str) -> Any:
            return graph.as_graph_element(prepend_scope(name, import_scope))

        self._variable = element(proto.variable_name)
        self._initializer_op = element(proto.initializer_name)
        self._initial_value = element(proto.initial_value_name) if proto.initial_value_name else None
        self._snapshot = element(proto.snapshot_name)
        self._caching_device = None
        self._init_details(proto, import_scope)

    def to_proto(self, export_scope: str | None = None) -> Any:
        """This variable as a VariableDef, with names relative to `export_scope`; None if it lies outside of that scope."""
        from penstock.formats.protos import VariableDef

        if export_scope is not None and not self._variable.name.startswith(export_scope):
            return None
        proto = VariableDef(
            variable_name=strip_scope(self._variable.name, export_scope),
            initializer_name=strip_scope(self._initializer_op.name, export_scope),
            snapshot_name=strip_scope(self._snapshot.name, export_scope),
        )
        if self._initial_value is not None:
            proto.initial_value_name = strip_scope(self._initial_value.name, export_scope)
        return self._proto_details(proto, export_scope)

    # -- properties -----------------------------------------------------------------------------------------------------

    @property
    def op(self) -> Operation:
        return self._variable.op

    @property
    def name(self) -> str:
        return self._variable.name

    @property
    def dtype(self) -> dtypes.DType:
        return self._variable.dtype

    @property
    def shape(self) -> TensorShape:
        return self._variable.shape

    def set_shape(self, shape: Any) -> None:
        """Narrows the static shape."""
        self._variable.set_shape(shape)
        self._snapshot.set_shape(shape)

    @property
    def initializer(self) -> Operation:
        return self._initializer_op

    @property
    def initial_value(self) -> Tensor:
        return self._initial_value

    def _ref(self) -> Tensor:
        return self._variable

    def value(self) -> Tensor:
        """The last snapshot of the variable: what it is converted to when used as a tensor."""
        return self._snapshot

    def read_value(self) -> Tensor:
        """A new op that reads the variable when it runs."""
        return raw.Identity(self._variable, name="read")

    def _as_graph_element(self) -> Tensor:
        return self._variable

    def _dense_var_to_tensor(self, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> Tensor:
        read_as(self, dtype)
        return self._variable if as_ref else self._snapshot

    # -- writing ----------------------------------------------------------------------------------------------------------

    def _done(self, ref: Tensor, read_value: bool) -> Any:
        return ref if read_value else ref.op

    def assign(self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Makes `value` the new value; the result is the variable after the assignment."""
        return self._done(raw.Assign(self._variable, value, use_locking=use_locking, name=name), read_value)

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Adds `delta`; the result is the variable after the addition."""
        return self._done(raw.AssignAdd(self._variable, delta, use_locking=use_locking, name=name), read_value)

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtracts `delta`; the result is the variable after the subtraction."""
        return self._done(raw.AssignSub(self._variable, delta, use_locking=use_locking, name=name), read_value)

    def count_up_to(self, limit: int) -> Tensor:
        """Adds one and returns the value before; OutOfRangeError once the value has reached `limit`."""
        return raw.CountUpTo(self._variable, limit=limit)

    def _scatter(self, kind: str, delta: Any, use_locking: bool, name: str | None) -> Tensor:
        if not isinstance(delta, IndexedSlices):
            raise TypeError(f"sparse_delta is not IndexedSlices: {delta}")
        return getattr(raw, "Scatter" + kind)(
            self._variable, delta.indices, delta.values, use_locking=use_locking, name=name
        )

    def scatter_add(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Adds the slices to the rows they name."""
        return self._scatter("Add", sparse_delta, use_locking, name)

    def scatter_sub(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Subtracts the slices from the rows they name."""
        return self._scatter("Sub", sparse_delta, use_locking, name)

    def scatter_mul(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Multiplies the rows by the slices that name them."""
        return self._scatter("Mul", sparse_delta, use_locking, name)

    def scatter_div(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Divides the rows by the slices that name them."""
        return self._scatter("Div", sparse_delta, use_locking, name)

    def scatter_min(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Takes the minimum of rows and slices."""
        return self._scatter("Min", sparse_delta, use_locking, name)

    def scatter_max(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Takes the maximum of rows and slices."""
        return self._scatter("Max", sparse_delta, use_locking, name)

    def scatter_update(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Tensor:
        """Replaces the rows that the slices name."""
        return self._scatter("Update", sparse_delta, use_locking, name)

    def batch_scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        """Replaces rows within each batch entry."""
        from penstock.api.state_ops import batch_scatter_update

        return batch_scatter_update(self, sparse_delta.indices, sparse_delta.values, use_locking=use_locking, name=name)

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        """Adds `updates` to the slices that index vectors name."""
        return raw.ScatterNdAdd(self._variable, indices, updates, use_locking=True, name=name)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        """Subtracts `updates` from the slices that index vectors name."""
        return raw.ScatterNdSub(self._variable, indices, updates, use_locking=True, name=name)

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> Tensor:
        """Replaces the slices that index vectors name."""
        return raw.ScatterNdUpdate(self._variable, indices, updates, use_locking=True, name=name)

    def _slice_assign(self, node: Operation, value: Any, name: str | None) -> Tensor:
        masks = {key: node.attrs[key] for key in node.attrs if key.endswith("_mask")}
        graph = node.graph
        with graph.name_scope(None):
            return raw.StridedSliceAssign(
                self._variable, *node.inputs[1:], value, name=name or node.name + "/_assign", **masks
            )


__all__ = ["RefVariable", "VariableAggregation", "VariableSynchronization"]
