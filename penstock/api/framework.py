"""The framework's public names: graphs, scopes, dtypes, errors, protos, sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from penstock import dtypes, errors, names, shapes
from penstock.api.export import export, export_lazy, export_value
from penstock.formats.proto.names import MODULE_OF
from penstock.graph import convert, defaults
from penstock.graph.defaults import get_default_graph
from penstock.graph.importer import import_graph_def as _import_graph_def
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.raw import raw
from penstock.session.base import InteractiveSession, Session

# -- classes and values -----------------------------------------------------------------------------------------------

for _class in (Graph, Operation, Tensor, Session, InteractiveSession):
    export_value(_class.__name__, _class)
export_value("DType", dtypes.DType)
export_value("dtypes.DType", dtypes.DType)
export_value("as_dtype", dtypes.as_dtype)
export_value("TensorShape", shapes.TensorShape)
export_value("Dimension", shapes.Dimension)
export_value("dimension_value", shapes.dimension_value)
export_value("compat.dimension_value", shapes.dimension_value)
export_value("dimension_at_index", shapes.dimension_at_index)
export_value("compat.dimension_at_index", shapes.dimension_at_index)
export_value("DeviceSpec", names.DeviceSpec)
export_value("OpError", errors.OpError)
export_value("QUANTIZED_DTYPES", dtypes.QUANTIZED_DTYPES)
for _dtype in dtypes.ALL_DTYPES:
    export_value(_dtype.name, _dtype)
for _alias, _dtype in (("half", dtypes.float16), ("double", dtypes.float64)):
    export_value(_alias, _dtype)
    export_value(f"dtypes.{_alias}", _dtype)
export_value("GRAPH_DEF_VERSION", 2474)
export_value("GRAPH_DEF_VERSION_MIN_CONSUMER", 0)
export_value("GRAPH_DEF_VERSION_MIN_PRODUCER", 0)
export_value("version.GRAPH_DEF_VERSION", 2474)
export_value("raw_ops", raw)

for _message in MODULE_OF:
    export_lazy(_message, f"penstock.formats.protos:{_message}") if _message in {
        "AttrValue", "ConfigProto", "Event", "GPUOptions", "GraphDef", "GraphOptions", "HistogramProto", "LogMessage", "MetaGraphDef",
        "NameAttrList", "NodeDef", "OptimizerOptions", "RunMetadata", "RunOptions", "SessionLog", "Summary", "SummaryMetadata", "TensorInfo",
        "CallableOptions", "TensorProto", "TensorShapeProto", "OpDef", "OpList", "FunctionDef", "VersionDef",
    } else None  # fmt: skip
for _message in ("ClusterDef", "JobDef", "ServerDef", "SaverDef", "Example", "Features", "Feature", "FeatureList", "FeatureLists", "SequenceExample",
                 "BytesList", "FloatList", "Int64List"):  # fmt: skip
    if _message in MODULE_OF:
        export_lazy(f"train.{_message}", f"penstock.formats.protos:{_message}")
export_lazy("make_tensor_proto", "penstock.formats.tensor_proto:make_tensor_proto")
export_lazy("make_ndarray", "penstock.formats.tensor_proto:make_ndarray")
export_lazy("SparseTensor", "penstock.graph.composite:SparseTensor")
export_lazy("sparse.SparseTensor", "penstock.graph.composite:SparseTensor")
export_lazy("SparseTensorValue", "penstock.graph.composite:SparseTensorValue")
export_lazy("IndexedSlices", "penstock.graph.composite:IndexedSlices")
export_lazy("IndexedSlicesValue", "penstock.graph.composite:IndexedSlicesValue")

# -- default graph and session ----------------------------------------------------------------------------------------

export_value("get_default_graph", defaults.get_default_graph)
export_value("reset_default_graph", defaults.reset_default_graph)
export_value("get_default_session", defaults.get_default_session)
export_value("convert_to_tensor", convert.convert_to_tensor)
export_value("convert_to_tensor_or_indexed_slices", convert.convert_to_tensor_or_indexed_slices)
export_value("register_tensor_conversion_function", convert.register_tensor_conversion_function)
export_value("import_graph_def", _import_graph_def)
export_value("graph_util.import_graph_def", _import_graph_def)


@export("convert_to_tensor_or_sparse_tensor")
def convert_to_tensor_or_sparse_tensor(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """A SparseTensor as it is (a SparseTensorValue as one), everything else as a Tensor."""
    from penstock.graph.composite import SparseTensor, SparseTensorValue

    if isinstance(value, SparseTensorValue):
        value = SparseTensor.from_value(value)
    if isinstance(value, SparseTensor):
        if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
            raise RuntimeError(f"Sparse dtype mismatch. Requested: {dtypes.as_dtype(dtype).name}, Actual: {value.dtype.name}")
        return value
    return convert.convert_to_tensor(value, dtype, name)


@export("is_symbolic_tensor")
def is_symbolic_tensor(tensor: Any) -> bool:
    """True for tensors of a graph, sparse tensors and indexed slices."""
    from penstock.graph.composite import IndexedSlices, SparseTensor

    return isinstance(tensor, (Tensor, SparseTensor, IndexedSlices))


@export("is_tensor")
def is_tensor(x: Any) -> bool:
    """True for tensors, sparse tensors, indexed slices and variables."""
    from penstock.graph.composite import IndexedSlices, SparseTensor

    return isinstance(x, (Tensor, SparseTensor, IndexedSlices)) or hasattr(x, "_as_graph_element")


# -- scopes -----------------------------------------------------------------------------------------------------------


@export("device")
def device(device_name_or_function: Any) -> Any:
    """Puts ops made inside on a device: a name, a DeviceSpec, a function of the Operation, or None."""
    return get_default_graph().device(device_name_or_function)


@export("colocate_with")
def colocate_with(op: Any, ignore_existing: bool = False) -> Any:
    """Ops made inside share `op`'s device."""
    from penstock.graph.composite import IndexedSlices

    if isinstance(op, IndexedSlices):
        op = op.values
    op = getattr(op, "_as_graph_element", lambda: op)() if op is not None and not isinstance(op, (Tensor, Operation)) else op
    return get_default_graph().colocate_with(op, ignore_existing)


@export("control_dependencies")
def control_dependencies(control_inputs: Any) -> Any:
    """Ops made inside run after `control_inputs`."""
    return get_default_graph().control_dependencies(control_inputs)


@export("container")
def container(container_name: str) -> Any:
    """Stateful ops made inside keep their state in this container."""
    return get_default_graph().container(container_name)


@export("init_scope")
@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    """Lifts ops out of control-flow scopes and function bodies."""
    graph = get_default_graph()
    while graph.building_function:
        graph = graph.outer_graph  # type: ignore[attr-defined]
    scope = graph.get_name_scope()
    with graph.as_default(), graph.control_dependencies(None), graph.name_scope(scope + "/" if scope else None):
        yield


@export("name_scope")
class name_scope:
    """`with tf.name_scope("layer", "default", [values])`: prefixes the names of ops made inside; gives the scope's name."""

    def __init__(self, name: str | None = None, default_name: str | None = None, values: Any = None) -> None:
        if not (default_name is None or isinstance(default_name, str)):
            raise TypeError(f"`default_name` type ({type(default_name)}) is not a string type. You likely meant to pass this into the `values` kwarg.")
        self._name = default_name if name is None else name
        self._default_name = default_name
        self._values = values
        if self._name is None and values is not None:
            raise ValueError(f"At least one of name ({name}) and default_name ({default_name}) must be provided.")

    @property
    def name(self) -> str | None:
        return self._name

    def __enter__(self) -> str:
        # Every operator on a tensor opens one of these: no generators and no ExitStack.
        graph = _graph_of(self._values)
        old = graph._enter_name_scope(self._name)
        defaults.push_graph(graph)
        self._open = [*getattr(self, "_open", ()), (graph, old)]
        scope = graph._name_stack
        return scope + "/" if scope else ""

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        graph, old = self._open.pop()
        graph._name_stack = old
        defaults.pop_graph(graph)


@export("op_scope")
def op_scope(values: Any, name: str | None, default_name: str | None = None) -> Any:
    """Deprecated order of `name_scope`'s arguments."""
    return name_scope(name, default_name=default_name, values=values)


def _graph_of(values: Any) -> Graph:
    default = get_default_graph()
    if default.building_function:
        return default
    first: Any = None
    for value in values or ():
        graph = getattr(value, "graph", None) if not isinstance(value, (str, bytes)) else None
        if isinstance(graph, Graph):
            if first is not None and first.graph is not graph:
                raise ValueError(f"{value!r} must be from the same graph as {first!r}.")
            first = value if first is None else first
    return default if first is None else first.graph


# -- collections --------------------------------------------------------------------------------------------------------


@export("add_to_collection")
def add_to_collection(name: Any, value: Any) -> None:
    """Adds `value` to a collection of the default graph."""
    get_default_graph().add_to_collection(name, value)


@export("add_to_collections")
def add_to_collections(names: Any, value: Any) -> None:
    """Adds `value` to several collections of the default graph."""
    get_default_graph().add_to_collections(names, value)


@export("get_collection")
def get_collection(key: Any, scope: str | None = None) -> list:
    """A copy of a collection of the default graph."""
    return get_default_graph().get_collection(key, scope)


@export("get_collection_ref")
def get_collection_ref(key: Any) -> list:
    """A collection of the default graph itself: changes to the list change the collection."""
    return get_default_graph().get_collection_ref(key)


# -- switches that have one position here -----------------------------------------------------------------------------


def _no_switch(name: str, doc: str) -> None:
    def switch() -> None:
        pass

    switch.__name__ = name
    switch.__doc__ = doc
    export_value(name, switch)


for _name in ("disable_eager_execution", "disable_v2_behavior", "disable_v2_tensorshape", "disable_tensor_equality", "disable_control_flow_v2"):
    _no_switch(_name, "TF1's behaviour is the only one here; accepted so that TF1 programs run unchanged.")


@export("executing_eagerly", "executing_eagerly_outside_functions")
def executing_eagerly() -> bool:
    """Always False: programs build graphs and run them in sessions."""
    return False


@export("enable_eager_execution", "enable_v2_behavior")
def enable_eager_execution(config: Any = None, device_policy: Any = None, execution_mode: Any = None) -> None:
    """Not available: Penstock runs graphs."""
    raise errors.UnimplementedError("Eager execution is not part of Penstock: build a graph and run it in a tf.Session.")

export_lazy("train.Timeline", "penstock.tools.timeline:Timeline")
