"""`tf.Variable`: the class that programs name, and what reference and resource variables have in common.

`tf.Variable(...)` makes a `RefVariable` (TF1's default) or a `ResourceVariable`, through the graph's variable creators;
both are instances of `tf.Variable`. The lists of variables and the ops that initialise them are in `variable_lists.py`.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api.export import export, export_value
from penstock.graph import defaults
from penstock.graph.convert import convert_to_tensor, register_tensor_conversion_function
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.keys import GraphKeys
from penstock.graph.raw import raw
from penstock.graph.tensor import TensorReference
from penstock.shapes import TensorShape, dims_of

export_value("GraphKeys", GraphKeys)


@export("VariableSynchronization")
class VariableSynchronization(enum.Enum):
    """When copies of a distributed variable are brought together."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


@export("VariableAggregation")
class VariableAggregation(enum.Enum):
    """How copies of a distributed variable are combined."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3

    def __hash__(self) -> int:
        return hash(self.value)


_resource_by_default = False


@export("enable_resource_variables")
def enable_resource_variables() -> None:
    """Makes resource variables the default kind from now on."""
    global _resource_by_default
    _resource_by_default = True


@export("disable_resource_variables")
def disable_resource_variables() -> None:
    """Makes reference variables, TF1's default, the default kind again."""
    global _resource_by_default
    _resource_by_default = False


@export("resource_variables_enabled")
def resource_variables_enabled() -> bool:
    """Whether `tf.Variable` makes resource variables unless told otherwise."""
    return _resource_by_default


@contextlib.contextmanager
def lifted() -> Iterator[Graph]:
    """Ops made inside belong to the outermost graph and to no loop, branch or control scope; names stay as they are.

    Variables are made under it, so that they exist before any loop or function that uses them.
    """
    graph = defaults.get_default_graph()
    outer = graph
    while outer.building_function and getattr(outer, "outer_graph", None) is not None:
        outer = outer.outer_graph  # type: ignore[attr-defined]
    if outer is graph:
        with graph.control_dependencies(None):
            yield graph
        return
    scope = graph.get_name_scope()
    with outer.as_default(), outer.name_scope(scope + "/" if scope else None), outer.control_dependencies(None):
        yield outer


def default_variable_creator(next_creator: Any = None, **kwargs: Any) -> Variable:
    """The innermost creator: decides between the two kinds of variables."""
    use_resource = kwargs.pop("use_resource", None)
    if kwargs.get("variable_def") is not None:
        use_resource = kwargs["variable_def"].is_resource
    if use_resource is None:
        from penstock.api.variable_scope import get_variable_scope

        use_resource = get_variable_scope().use_resource
    if use_resource is None:
        use_resource = _resource_by_default
    if use_resource:
        from penstock.api.resource_variable import ResourceVariable

        return ResourceVariable(**kwargs)
    from penstock.api.ref_variable import RefVariable

    return RefVariable(**kwargs)


def _creators(graph: Graph) -> list[Callable[..., Any]]:
    return graph.__dict__.setdefault("_variable_creators", [])


@export("variable_creator_scope")
@contextlib.contextmanager
def variable_creator_scope(variable_creator: Callable[..., Any]) -> Iterator[None]:
    """Variables made inside pass through `variable_creator(next_creator, **kwargs)`, which may change the arguments, call
    `next_creator(**kwargs)`, or make something else. Inner scopes are asked first."""
    graph = defaults.get_default_graph()
    stack = _creators(graph)
    stack.append(variable_creator)
    try:
        yield
    finally:
        if not stack or stack[-1] is not variable_creator:
            raise RuntimeError("Exiting variable_creator_scope without proper nesting.")
        stack.pop()


class _VariableMeta(type):
    """Calling `tf.Variable` goes through the graph's creators; calling a subclass makes an instance of it."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Variable:
            return super().__call__(*args, **kwargs)
        names = _ARGUMENTS
        if len(args) > len(names):
            raise TypeError(f"Variable() takes at most {len(names)} arguments, got {len(args)}")
        for name, value in zip(names, args):
            if name in kwargs:
                raise TypeError(f"Variable() got multiple values for argument '{name}'")
            kwargs[name] = value
        unknown = [name for name in kwargs if name not in names]
        if unknown:
            raise TypeError(f"Variable() got an unexpected keyword argument '{unknown[0]}'")
        return make_variable(**{**_DEFAULTS, **kwargs})


def make_variable(**kwargs: Any) -> Any:
    """Runs the graph's creators, innermost scope first, down to the default one."""
    creator: Callable[..., Any] = lambda **kw: default_variable_creator(None, **kw)  # noqa: E731
    for outer in _creators(defaults.get_default_graph()):
        creator = _chained(outer, creator)
    return creator(**kwargs)


def _chained(creator: Callable[..., Any], following: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **kwargs: creator(following, **kwargs)


_DEFAULTS: dict[str, Any] = {
    "initial_value": None, "trainable": None, "collections": None, "validate_shape": True, "caching_device": None, "name": None,
    "variable_def": None, "dtype": None, "expected_shape": None, "import_scope": None, "constraint": None, "use_resource": None,
    "synchronization": VariableSynchronization.AUTO, "aggregation": VariableAggregation.NONE, "shape": None,
}  # fmt: skip
_ARGUMENTS = tuple(_DEFAULTS)


class SaveSliceInfo:
    """Which part of a partitioned variable a Variable is."""

    def __init__(
        self,
        full_name: str | None = None,
        full_shape: Any = None,
        var_offset: Any = None,
        var_shape: Any = None,
        save_slice_info_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        if save_slice_info_def is not None:
            self.full_name: Any = prepend_scope(save_slice_info_def.full_name, import_scope)
            self.full_shape: Any = list(save_slice_info_def.full_shape)
            self.var_offset: Any = list(save_slice_info_def.var_offset)
            self.var_shape: Any = list(save_slice_info_def.var_shape)
        else:
            self.full_name = full_name
            self.full_shape = full_shape
            self.var_offset = var_offset
            self.var_shape = var_shape

    @property
    def spec(self) -> str:
        """The text by which checkpoints name the slice: "4 2 0,2:0,2"."""
        shape = " ".join(str(d) for d in self.full_shape) + " "
        parts = ":".join(f"{o},{s}" for o, s in zip(self.var_offset, self.var_shape, strict=True))
        return shape + parts

    def to_proto(self, export_scope: str | None = None) -> Any:
        from penstock.formats.protos import SaveSliceInfoDef

        if export_scope is not None and not self.full_name.startswith(export_scope):
            return None
        proto = SaveSliceInfoDef(full_name=strip_scope(self.full_name, export_scope))
        proto.full_shape.extend(self.full_shape)
        proto.var_offset.extend(self.var_offset)
        proto.var_shape.extend(self.var_shape)
        return proto


def prepend_scope(name: str, scope: str | None) -> str:
    """`name` as it is called once imported under `scope`."""
    return f"{scope.rstrip('/')}/{name}" if scope and name else name


def strip_scope(name: str, scope: str | None) -> str:
    """`name` as it is called once exported from `scope`."""
    prefix = f"{scope.rstrip('/')}/" if scope else ""
    return name[len(prefix) :] if prefix and name.startswith(prefix) else name


@export("Variable")
class Variable(metaclass=_VariableMeta):
    """A value that lives in a session and keeps its state between runs.

    >>> v = tf.Variable(3.0, name="v")          # doctest: +SKIP
    >>> sess.run(v.initializer)                 # doctest: +SKIP
    >>> sess.run(v.assign_add(1.0))             # doctest: +SKIP
    4.0

    A Variable can be used wherever a Tensor can. `tf.global_variables_initializer()` initialises all of them.
    """

    SaveSliceInfo = SaveSliceInfo

    # Operators are installed by the api layer; numpy must not broadcast over a Variable.
    __array_priority__ = 100

    _save_slice_info: SaveSliceInfo | None = None
    _constraint: Callable[..., Any] | None = None
    _trainable = True
    _synchronization: Any = VariableSynchronization.AUTO
    _aggregation: Any = VariableAggregation.NONE

    # -- what each kind of variable provides ------------------------------------------------------------------------

    @property
    def op(self) -> Operation:
        raise NotImplementedError

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def dtype(self) -> dtypes.DType:
        raise NotImplementedError

    @property
    def shape(self) -> TensorShape:
        raise NotImplementedError

    @property
    def initializer(self) -> Operation:
        """The op that gives the variable its initial value."""
        raise NotImplementedError

    @property
    def initial_value(self) -> Tensor:
        """The tensor that the initializer assigns."""
        raise NotImplementedError

    def value(self) -> Tensor:
        raise NotImplementedError

    def read_value(self) -> Tensor:
        raise NotImplementedError

    def assign(self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        raise NotImplementedError

    # -- shared -----------------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        return self.op.graph

    @property
    def device(self) -> str:
        return self.op.device

    @property
    def trainable(self) -> bool:
        return self._trainable

    @property
    def constraint(self) -> Callable[..., Any] | None:
        """The function that the variable's value is passed through after an update by an optimizer, or None."""
        return self._constraint

    @property
    def synchronization(self) -> VariableSynchronization:
        return self._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        return self._aggregation

    @property
    def _shared_name(self) -> str:
        return self.name[: self.name.index(":")]

    def get_shape(self) -> TensorShape:
        """Same as `shape`."""
        return self.shape

    @property
    def dims(self) -> Any:
        """The static shape as a raw tuple."""
        return dims_of(self.shape)

    def eval(self, session: Any = None) -> np.ndarray:
        """The variable's value in `session` (default: the default session)."""
        element = self._as_graph_element()
        return defaults.eval_using_default_session(element, None, element.graph, session)

    def load(self, value: Any, session: Any = None) -> None:
        """Writes `value` into the variable in `session`, without adding ops to the graph."""
        session = session or defaults.get_default_session()
        if session is None:
            raise ValueError(
                "Either session argument should be provided or default session should be established. The session was not provided and "
                "default session is not established."
            )
        session.run(self.initializer, {self.initializer.inputs[1]: value})

    def initialized_value(self) -> Tensor:
        """The variable's value if it is initialised, else its initial value."""
        from penstock.api.export import resolve

        with lifted():
            ready = is_variable_initialized(self)
            return resolve("cond")(ready, self.read_value, lambda: self.initial_value)

    def _as_graph_element(self) -> Tensor:
        raise NotImplementedError

    def _get_save_slice_info(self) -> SaveSliceInfo | None:
        return self._save_slice_info

    def _set_save_slice_info(self, save_slice_info: SaveSliceInfo | None) -> None:
        self._save_slice_info = save_slice_info

    def experimental_ref(self) -> TensorReference:
        return TensorReference(self)

    ref = experimental_ref

    @staticmethod
    def from_proto(variable_def: Any, import_scope: str | None = None) -> Any:
        """The Variable that a VariableDef describes, in the default graph."""
        return make_variable(**{**_DEFAULTS, "variable_def": variable_def, "import_scope": import_scope})

    def __getitem__(self, key: Any) -> Tensor:
        return sliced(self, key)

    def __iter__(self) -> Iterator[Tensor]:
        raise TypeError("'Variable' object is not iterable.")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise NotImplementedError(
            f"Cannot convert a symbolic Variable ({self.name}) to a numpy array. Fetch it with Session.run or Variable.eval."
        )

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}>"

    def _proto_details(self, proto: Any, export_scope: str | None) -> Any:
        proto.trainable = self._trainable
        proto.synchronization = self._synchronization.value
        proto.aggregation = self._aggregation.value
        if self._save_slice_info is not None:
            proto.save_slice_info_def.MergeFrom(self._save_slice_info.to_proto(export_scope))
        return proto

    def _init_details(self, proto: Any, import_scope: str | None) -> None:
        self._trainable = proto.trainable
        self._synchronization = VariableSynchronization(proto.synchronization)
        self._aggregation = VariableAggregation(proto.aggregation)
        if proto.HasField("save_slice_info_def"):
            self._save_slice_info = SaveSliceInfo(
                save_slice_info_def=proto.save_slice_info_def, import_scope=import_scope
            )


def sliced(variable: Variable, key: Any) -> Tensor:
    """variable[key], a tensor whose `assign` writes into the variable."""
    value = variable.value()
    result = value[key]  # type: ignore[index]
    node = result.op
    if node.type == "StridedSlice":
        result.assign = lambda value, name=None: variable._slice_assign(node, value, name)  # type: ignore[attr-defined]
    return result


# -- arguments that both kinds check ----------------------------------------------------------------------------------


def checked_collections(collections: Any, trainable: bool) -> list[Any]:
    """The collections a new variable joins: as given, or the global variables; plus the trainable ones."""
    if collections is None:
        collections = [GraphKeys.GLOBAL_VARIABLES]
    if not isinstance(collections, (list, tuple, set)):
        raise ValueError(
            f"collections argument to Variable constructor must be a list, tuple, or set. Got {collections} of type {type(collections)}"
        )
    if trainable and GraphKeys.TRAINABLE_VARIABLES not in collections:
        return [*collections, GraphKeys.TRAINABLE_VARIABLES]
    return list(collections)


def checked_options(
    synchronization: Any, aggregation: Any, trainable: bool | None, name: str | None
) -> tuple[VariableSynchronization, VariableAggregation, bool]:
    if aggregation is None:
        aggregation = VariableAggregation.NONE
    elif not isinstance(aggregation, VariableAggregation):
        raise ValueError(f"Invalid variable aggregation mode: {aggregation} for variable: {name}")
    if synchronization is None:
        synchronization = VariableSynchronization.AUTO
    elif not isinstance(synchronization, VariableSynchronization):
        raise ValueError(f"Invalid variable synchronization mode: {synchronization} for variable: {name}")
    if trainable is None:
        trainable = synchronization is not VariableSynchronization.ON_READ
    elif trainable and synchronization is VariableSynchronization.ON_READ:
        raise ValueError(
            "Synchronization value can be set to VariableSynchronization.ON_READ only for non-trainable variables."
        )
    return synchronization, aggregation, trainable


def is_variable_initialized(variable: Any) -> Tensor:
    """A bool tensor: whether the variable has a value."""
    if variable.op.type == "VarHandleOp" or (
        variable.dtype.base_dtype is variable.dtype and hasattr(variable, "handle")
    ):
        return raw.VarIsInitializedOp(variable.handle)
    return raw.IsVariableInitialized(variable)


# -- initial values that use other variables ----------------------------------------------------------------------------


def guarded_initial_value(name: str, initial_value: Tensor) -> Tensor:
    """`initial_value` with every variable that it reads replaced by that variable's `initialized_value()`.

    One op may then initialise all variables in any order. Values computed by loops are left alone.
    """
    if not any(op.type in _VARIABLE_OPS for op in _ancestors(initial_value.op)) or _has_cycle(initial_value.op):
        return initial_value
    copies: dict[Operation, Operation] = {}
    return _safe_tensor(name.replace(":", "_"), initial_value, copies)


_VARIABLE_OPS = ("Variable", "VariableV2", "VarHandleOp")
_LEFT_ALONE = ("IsVariableInitialized", "VarIsInitializedOp", "ReadVariableOp", "If")


def _ancestors(op: Operation) -> list[Operation]:
    seen = {op}
    order = [op]
    for node in order:
        if node.type in _LEFT_ALONE:
            continue
        for tensor in node.inputs:
            if tensor.op not in seen:
                seen.add(tensor.op)
                order.append(tensor.op)
    return order


def _has_cycle(op: Operation) -> bool:
    return any(node.type == "NextIteration" for node in _ancestors(op))


def _safe_tensor(suffix: str, tensor: Tensor, copies: dict[Operation, Operation]) -> Tensor:
    op = tensor.op
    if op.type in _VARIABLE_OPS:
        variable = _variable_of(op)
        return tensor if variable is None else variable.initialized_value()
    new = copies.get(op)
    if new is None:
        new = copies[op] = _safe_op(suffix, op, copies)
    return new.outputs[tensor.value_index]


def _safe_op(suffix: str, op: Operation, copies: dict[Operation, Operation]) -> Operation:
    if op.type in _LEFT_ALONE:
        return op
    inputs = [_safe_tensor(suffix, t, copies) for t in op.inputs]
    if all(a is b for a, b in zip(inputs, op.inputs, strict=True)):
        return op
    graph = op.graph
    kind = "Switch" if op.type == "RefSwitch" else op.type
    with graph.name_scope(None):
        return graph.create_op(kind, inputs, name=f"{op.name}_{suffix}", attrs=dict(op.attrs))


def _variable_of(op: Operation) -> Variable | None:
    for key in (GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES):
        for variable in op.graph.get_collection(key):
            if getattr(variable, "name", None) in (op.name, op.name + ":0"):
                return variable
    return None


# -- operators and conversion -------------------------------------------------------------------------------------------

_OPERATORS = (
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__div__", "__rdiv__", "__truediv__", "__rtruediv__", "__floordiv__",
    "__rfloordiv__", "__mod__", "__rmod__", "__pow__", "__rpow__", "__matmul__", "__rmatmul__", "__and__", "__rand__", "__or__", "__ror__",
    "__xor__", "__rxor__", "__lt__", "__le__", "__gt__", "__ge__", "__invert__", "__neg__", "__abs__",
)  # fmt: skip


def _operator(name: str) -> Callable[..., Any]:
    def apply(self: Variable, *args: Any) -> Any:
        method = getattr(Tensor, name, None)
        return NotImplemented if method is None else method(self.value(), *args)

    apply.__name__ = name
    apply.__doc__ = f"Tensor.{name} of the variable's value."
    return apply


for _name in _OPERATORS:
    setattr(Variable, _name, _operator(_name))


def _variable_to_tensor(value: Variable, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> Any:
    return value._dense_var_to_tensor(dtype=dtype, name=name, as_ref=as_ref)  # type: ignore[attr-defined]


register_tensor_conversion_function(Variable, _variable_to_tensor, 0)


def read_as(variable: Any, dtype: Any) -> None:
    """Refuses to read a variable as another dtype."""
    if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(variable.dtype):
        raise ValueError(
            f"Incompatible type conversion requested to type '{dtypes.as_dtype(dtype).name}' for variable of type '{variable.dtype.name}'"
            f" ({variable!r})"
        )


__all__ = ["Variable", "convert_to_tensor", "lifted", "make_variable"]
