"""Resource variables: a handle that names the variable, and explicit reads and writes through it."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api.variables import (
    Variable,
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
from penstock.shapes import TensorShape, compatible_dims, dims_of


class ResourceVariable(Variable):
    """A variable behind a `VarHandleOp`. Every read is an op of its own, ordered by control dependencies like any other."""

    _initial_value: Any = None
    _initializer_op: Any = None
    _is_initialized_op: Any = None
    _cached_value: Tensor | None = None
    _caching_device: Any = None

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
                raise ValueError("The variable_def and initial_value args to `tf.Variable` are mutually exclusive.")
            self._from_proto(variable_def, import_scope)
            return
        self._synchronization, self._aggregation, self._trainable = checked_options(
            synchronization, aggregation, trainable, name
        )
        if initial_value is None:
            raise ValueError(
                "The `initial_value` arg to `tf.Variable` must be specified except when you are not providing a `variable_def`."
            )
        keys = checked_collections(collections, self._trainable)
        if constraint is not None and not callable(constraint):
            raise ValueError("The `constraint` argument must be a callable.")
        self._constraint = constraint
        with lifted() as graph:
            self._create(graph, initial_value, name, dtype, validate_shape, caching_device, shape)
            graph.add_to_collections(keys, self)

    def _create(self, graph: Graph, initial_value: Any, name: str | None, dtype: Any, validate_shape: bool, caching_device: Any,
                shape: Any) -> None:  # fmt: skip
        from_function = callable(initial_value)
        with graph.name_scope("Variable" if name is None else name) as scope:
            own = scope[:-1]
            with graph._attr_scope({"_class": [b"loc:@" + own.encode()]}):
                # The initial value is made where the variable is, whatever device scopes are open.
                with graph.name_scope("Initializer"), graph.device(None):
                    first = convert_to_tensor(
                        initial_value() if from_function else initial_value, name="initial_value", dtype=dtype
                    )
                if shape is not None:
                    if not compatible_dims(first.dims, dims_of(shape)):
                        raise ValueError(
                            f"In this `tf.Variable` creation, the initial value's shape ({first.shape}) is not compatible with the explicitly supplied `shape` argument ({shape})."
                        )
                    static = TensorShape(shape)
                else:
                    static = first.shape if validate_shape else TensorShape(None)
                self._handle = raw.VarHandleOp(
                    shape=static, dtype=first.dtype.base_dtype, shared_name=own, debug_name=scope, name=scope
                )
            self._initial_value = first
            with graph.name_scope("IsInitialized"):
                self._is_initialized_op = raw.VarIsInitializedOp(self._handle)
            with (
                graph.name_scope("Assign") as assign_scope,
                graph.colocate_with(None, ignore_existing=True),
                graph.device(self._handle.device or None),
            ):
                self._initializer_op = raw.AssignVariableOp(
                    self._handle, guarded_initial_value(own, first), name=assign_scope
                )
            with graph.name_scope("Read"), graph.device(self._handle.device or None):
                value = self._read()
                if caching_device is not None:
                    with graph.colocate_with(None, ignore_existing=True), graph.device(caching_device):
                        self._cached_value = raw.Identity(value)
            self._graph_element: Tensor = value
        self._caching_device = caching_device
        self._dtype = first.dtype.base_dtype
        self._name = own + ":0"
        self._static_shape = static

    def _from_proto(self, proto: Any, import_scope: str | None) -> None:
        if not proto.is_resource:
            raise ValueError(
                f"The `variable_def` you passed to `tf.Variable` is Trying to restore a TF 1.x Reference Variable as a TF 2.x ResourceVariable: {proto.variable_name}"
            )
        graph = defaults.get_default_graph()

        def element(name: str) -> Any:
            return graph.as_graph_element(prepend_scope(name, import_scope))

        self._handle = element(proto.variable_name)
        self._initializer_op = element(proto.initializer_name)
        self._initial_value = element(proto.initial_value_name) if proto.initial_value_name else None
        if proto.snapshot_name:
            snapshot = element(proto.snapshot_name)
            if snapshot.op.type != "ReadVariableOp":
                self._cached_value = snapshot
            self._graph_element = snapshot
        else:
            self._graph_element = self._read()
        self._dtype = self._handle.op.attrs["dtype"]
        self._static_shape = TensorShape(self._handle.op.attrs["shape"])
        self._name = self._handle.name
        self._init_details(proto, import_scope)

    def to_proto(self, export_scope: str | None = None) -> Any:
        """This variable as a VariableDef, with names relative to `export_scope`; None if it lies outside of that scope."""
        from penstock.formats.protos import VariableDef

        if export_scope is not None and not self._handle.name.startswith(export_scope):
            return None
        proto = VariableDef(
            variable_name=strip_scope(self._handle.name, export_scope),
            initializer_name=strip_scope(self._initializer_op.name, export_scope),
            is_resource=True,
        )
        if self._initial_value is not None:
            proto.initial_value_name = strip_scope(self._initial_value.name, export_scope)
        snapshot = self._cached_value if self._cached_value is not None else self._graph_element
        proto.snapshot_name = strip_scope(snapshot.name, export_scope)
        return self._proto_details(proto, export_scope)

    # -- properties -----------------------------------------------------------------------------------------------------

    @property
    def handle(self) -> Tensor:
        """The resource tensor that names the variable."""
        return self._handle

    @property
    def op(self) -> Operation:
        return self._handle.op

    @property
    def _control_input_op(self) -> Operation:
        """What a control dependency on the variable waits for: its handle, or the write; never a read."""
        return self.op

    @property
    def graph(self) -> Graph:
        return self._handle.graph

    @property
    def device(self) -> str:
        return self._handle.device

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        return self._static_shape

    def set_shape(self, shape: Any) -> None:
        """Narrows the static shape of later reads."""
        self._static_shape = self._static_shape.merge_with(shape)

    @property
    def initializer(self) -> Operation:
        return self._initializer_op

    @property
    def create(self) -> Operation:
        return self._initializer_op

    @property
    def initial_value(self) -> Tensor:
        return self._initial_value

    def is_initialized(self, name: str | None = None) -> Tensor:
        """A bool tensor: whether the variable has a value."""
        return raw.VarIsInitializedOp(self._handle, name=name)

    # -- reading ----------------------------------------------------------------------------------------------------------

    def _building_graph(self) -> Graph:
        """Where ops that use the variable go: its graph, or the function body that is being built."""
        default = defaults.get_default_graph()
        return default if default.building_function else self.graph

    def _read(self) -> Tensor:
        dtype = self.__dict__.get("_dtype") or self._handle.op.attrs["dtype"]
        value = raw.ReadVariableOp(self._handle, dtype=dtype)
        static = self.__dict__.get("_static_shape")
        if static is not None:
            value.set_shape(static)
        return value

    def value(self) -> Tensor:
        """A tensor that reads the variable (on its caching device, if it has one)."""
        if self._cached_value is not None:
            return self._cached_value
        with self._building_graph().colocate_with(None, ignore_existing=True):
            return self._read()

    def read_value(self) -> Tensor:
        """A new op that reads the variable when it runs."""
        with self._building_graph().name_scope("Read"):
            value = self._read()
        return raw.Identity(value)

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        """Rows of the variable, without reading all of it."""
        with self._building_graph().name_scope("Gather" if name is None else name) as scope:
            value = raw.ResourceGather(self._handle, indices, dtype=self._dtype, name=scope)
        return value

    def gather_nd(self, indices: Any, name: str | None = None) -> Tensor:
        """Slices of the variable, by index vectors, without reading all of it."""
        with self._building_graph().name_scope("GatherNd" if name is None else name) as scope:
            value = raw.ResourceGatherNd(self._handle, indices, dtype=self._dtype, name=scope)
        return raw.Identity(value)

    def _as_graph_element(self) -> Tensor:
        return self._graph_element

    def _dense_var_to_tensor(self, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> Tensor:
        read_as(self, dtype)
        return self._handle if as_ref else self.value()

    # -- writing ----------------------------------------------------------------------------------------------------------

    def _written(self, op: Operation, read_value: bool = True) -> Any:
        return UnreadVariable(self, op) if read_value else op

    def _value_to_write(self, value: Any) -> Tensor:
        return convert_to_tensor(value, dtype=self._dtype)

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Makes `value` the new value; the result is the variable after the assignment."""
        tensor = self._value_to_write(value)
        if not compatible_dims(dims_of(self._static_shape), tensor.dims):
            raise ValueError(
                f"Cannot assign value to variable ' {self._name}': Shape mismatch.The variable shape {self._static_shape}, and the assigned value shape {tensor.shape} are incompatible."
            )
        strict = self._static_shape.rank is not None and self._static_shape.is_fully_defined()
        return self._written(raw.AssignVariableOp(self._handle, tensor, validate_shape=strict, name=name), read_value)

    def assign_add(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Adds `delta`; the result is the variable after the addition."""
        return self._written(raw.AssignAddVariableOp(self._handle, self._value_to_write(delta), name=name), read_value)

    def assign_sub(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtracts `delta`; the result is the variable after the subtraction."""
        return self._written(raw.AssignSubVariableOp(self._handle, self._value_to_write(delta), name=name), read_value)

    def count_up_to(self, limit: int) -> Tensor:
        """Adds one and returns the value before; OutOfRangeError once the value has reached `limit`."""
        return raw.ResourceCountUpTo(self._handle, limit=limit, T=self._dtype)

    def _scatter(self, kind: str, delta: Any, name: str | None) -> Any:
        if not isinstance(delta, IndexedSlices):
            raise TypeError(f"Argument `sparse_delta` must be a `tf.IndexedSlices`. Received arg: {delta}")
        values = convert_to_tensor(delta.values, dtype=self._dtype)
        return self._written(getattr(raw, "ResourceScatter" + kind)(self._handle, delta.indices, values, name=name))

    def scatter_add(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Adds the slices to the rows they name."""
        return self._scatter("Add", sparse_delta, name)

    def scatter_sub(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Subtracts the slices from the rows they name."""
        return self._scatter("Sub", sparse_delta, name)

    def scatter_mul(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Multiplies the rows by the slices that name them."""
        return self._scatter("Mul", sparse_delta, name)

    def scatter_div(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Divides the rows by the slices that name them."""
        return self._scatter("Div", sparse_delta, name)

    def scatter_min(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Takes the minimum of rows and slices."""
        return self._scatter("Min", sparse_delta, name)

    def scatter_max(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Takes the maximum of rows and slices."""
        return self._scatter("Max", sparse_delta, name)

    def scatter_update(self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None) -> Any:
        """Replaces the rows that the slices name."""
        return self._scatter("Update", sparse_delta, name)

    def batch_scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Replaces rows within each batch entry."""
        from penstock.api.state_ops import batch_scatter_update

        return batch_scatter_update(self, sparse_delta.indices, sparse_delta.values, use_locking=use_locking, name=name)

    def _scatter_nd(self, kind: str, indices: Any, updates: Any, name: str | None) -> Any:
        values = convert_to_tensor(updates, dtype=self._dtype)
        return self._written(getattr(raw, "ResourceScatterNd" + kind)(self._handle, indices, values, name=name))

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Adds `updates` to the slices that index vectors name."""
        return self._scatter_nd("Add", indices, updates, name)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Subtracts `updates` from the slices that index vectors name."""
        return self._scatter_nd("Sub", indices, updates, name)

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Replaces the slices that index vectors name."""
        return self._scatter_nd("Update", indices, updates, name)

    def scatter_nd_min(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Takes the minimum of slices and `updates`."""
        return self._scatter_nd("Min", indices, updates, name)

    def scatter_nd_max(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Takes the maximum of slices and `updates`."""
        return self._scatter_nd("Max", indices, updates, name)

    def _slice_assign(self, node: Operation, value: Any, name: str | None) -> Any:
        masks = {key: node.attrs[key] for key in node.attrs if key.endswith("_mask")}
        tensor = self._value_to_write(value)
        with node.graph.name_scope(None):
            op = raw.ResourceStridedSliceAssign(
                self._handle, *node.inputs[1:], tensor, name=name or node.name + "/_assign", **masks
            )
        return self._written(op)


class UnreadVariable(ResourceVariable):
    """A variable as it is after a write: reading it waits for the write."""

    def __init__(self, variable: ResourceVariable, parent_op: Operation) -> None:
        vars(self).update(vars(variable))
        self._cached_value = None
        self._parent_op = parent_op
        self._graph_element: Any = None
        if not parent_op.graph.building_function:  # a function's body has no fetches
            with parent_op.graph.control_dependencies([parent_op]):
                self._graph_element = super()._read()

    def _as_graph_element(self) -> Tensor:
        return self.value() if self._graph_element is None else self._graph_element

    @property
    def op(self) -> Operation:
        """The write itself."""
        return self._parent_op

    @property
    def graph(self) -> Graph:
        return self._handle.graph

    def value(self) -> Tensor:
        with self._parent_op.graph.control_dependencies([self._parent_op]):
            return super()._read()

    def read_value(self) -> Tensor:
        with self._parent_op.graph.control_dependencies([self._parent_op]):
            return super().read_value()

    def __repr__(self) -> str:
        return f"<tf.Variable 'UnreadVariable' shape={self.shape} dtype={self.dtype.name}>"
