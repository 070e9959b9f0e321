"""Operation and Graph: with Tensor, the objects that clients hold, passes rewrite and executors read.

State of an Operation
    graph, name, type, op_def    what it is; `op_def` is the registry's record (or a library function's signature)
    attrs                        name -> Python value (see formats.attr_value). The dict belongs to the op and is
                                 replaced, never edited, once another graph may share it
    inputs, outputs              flat lists of Tensors
    control_inputs               Operations that must finish first, without duplicates
    device                       requested device in clients' graphs, assigned device after placement
    id                           creation order within its graph
    origin                       the client's Operation this one stands for (None in a client's graph)
    parts                        what a node stands for that a pass made of several (`graph.parts.Parts`)
    trace                        (code, lasti, ...) of the creating stack, innermost first; formatted on demand

A Tensor is one of an Operation's outputs (`tensor.py`). The scope stacks of a client's graph (names, devices, control dependencies,
colocation) live in `scopes.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock import dtypes, errors
from penstock.dtypes import DType
from penstock.graph.opdef import OPS, OpDef, lookup
from penstock.graph.scopes import Scopes
from penstock.graph.tensor import Dims, Tensor

if TYPE_CHECKING:
    from penstock.formats.protos import GraphDef, NodeDef
    from penstock.graph.function import Function

_PACKAGE_PREFIX = __file__[: -len("graph/ir.py")]


def capture_trace(limit: int = 32) -> tuple:
    """The creating stack as one flat tuple (code, lasti, code, lasti, ...), innermost first: cheap to take, formatted only when
    somebody asks, and one object for the garbage collector instead of dozens."""
    frame = sys._getframe(2)
    trace: list[Any] = []
    while frame is not None and limit:
        trace += (frame.f_code, frame.f_lasti)
        frame = frame.f_back
        limit -= 1
    return tuple(trace)


def _line_of(code: Any, lasti: int) -> int:
    for start, stop, line in code.co_lines():
        if start <= lasti < stop and line is not None:
            return line
    return code.co_firstlineno


class Operation:
    """A node of a graph."""

    __slots__ = (
        "__dict__", "__weakref__", "_control_flow_context", "_control_outputs", "_original_op", "attrs", "control_inputs",
        "device", "graph", "id", "inputs", "name", "op_def", "origin", "outputs", "parts", "trace", "type",
    )  # fmt: skip

    def __init__(
        self, graph: Graph, name: str, op_def: OpDef, attrs: dict[str, Any], node_id: int, device: str = ""
    ) -> None:
        self.graph = graph
        self.name = name
        self.type = op_def.name
        self.op_def = op_def
        self.attrs = attrs
        self.id = node_id
        self.device = device
        self.inputs: list[Tensor] = []
        self.control_inputs: list[Operation] = []
        self.outputs: list[Tensor] = []
        self.origin: Operation | None = None
        self.parts: Any = None
        self.trace: tuple = ()
        self._control_outputs: list[Operation] | None = None
        self._control_flow_context: Any = None
        self._original_op: Operation | None = None

    # -- what TF1 programs ask of an op ---------------------------------------------------------------------------

    def values(self) -> tuple[Tensor, ...]:
        """The outputs."""
        return tuple(self.outputs)

    @property
    def control_outputs(self) -> list[Operation]:
        return list(self._control_outputs or ())

    @property
    def node_def(self) -> NodeDef:
        from penstock.graph.exporter import node_def

        return node_def(self)

    @property
    def traceback(self) -> list[tuple[str, int, str, str]]:
        """[(file, line, function, source line), ...], outermost first."""
        import linecache

        rows = []
        for code, lasti in reversed(list(zip(self.trace[::2], self.trace[1::2], strict=True))):
            line = _line_of(code, lasti)
            rows.append((code.co_filename, line, code.co_name, linecache.getline(code.co_filename, line).strip()))
        return rows

    @property
    def user_frame(self) -> tuple[str, int, str] | None:
        """(file, line, function) of the innermost frame outside of this package: the user's own line."""
        trace = (self.origin or self).trace
        for code, lasti in zip(trace[::2], trace[1::2], strict=True):
            if not code.co_filename.startswith(_PACKAGE_PREFIX):
                return code.co_filename, _line_of(code, lasti), code.co_name
        return None

    def colocation_groups(self) -> list[bytes]:
        groups = [c for c in self.attrs.get("_class", ()) if c.startswith(b"loc:@")]
        return groups or [b"loc:@" + self.name.encode()]

    def get_attr(self, name: str) -> Any:
        """The value of attribute `name`, in the Python form TF1 gives it; ValueError if there is no such attribute."""
        if name not in self.attrs:
            raise ValueError(f"Operation '{self.name}' has no attr named '{name}'.")
        from penstock.graph.exporter import public_value

        return public_value(self.attrs[name])

    def run(self, feed_dict: dict | None = None, session: Any = None) -> None:
        """Runs this operation in `session` (default: the default session)."""
        from penstock.graph.defaults import get_session

        get_session(self.graph, session, "execute operation").run(self, feed_dict)

    # -- changes that builders of loops and gradients need ----------------------------------------------------------

    def _set_attr(self, name: str, value: Any) -> None:
        if hasattr(value, "WhichOneof"):
            from penstock.formats.attr_value import decode

            value = decode(value)
        self.attrs = {**self.attrs, name: value}
        self.graph._changed(self)

    def _clear_attr(self, name: str) -> None:
        self.attrs = {k: v for k, v in self.attrs.items() if k != name}
        self.graph._changed(self)

    def _set_device(self, device: Any) -> None:
        self.device = device if isinstance(device, str) else device.to_string()
        self.graph._changed(self)

    def _add_control_inputs(self, ops: Iterable[Operation]) -> None:
        for op in ops:
            self._add_control_input(op)

    def _add_control_input(self, op: Operation) -> None:
        if op not in self.control_inputs:
            self.control_inputs.append(op)
            if op._control_outputs is None:
                op._control_outputs = []
            op._control_outputs.append(self)
            self.graph._changed(self)

    def _remove_all_control_inputs(self) -> None:
        for op in self.control_inputs:
            if op._control_outputs:
                op._control_outputs.remove(self)
        self.control_inputs = []
        self.graph._changed(self)

    def _update_input(self, index: int, tensor: Tensor) -> None:
        old = self.inputs[index]
        if old._consumers:
            old._consumers.remove(self)
        self.inputs[index] = tensor
        if tensor._consumers is None:
            tensor._consumers = []
        tensor._consumers.append(self)
        self.graph._changed(self)

    def _get_control_flow_context(self) -> Any:
        return self._control_flow_context

    def _set_control_flow_context(self, context: Any) -> None:
        self._control_flow_context = context

    @property
    def _id(self) -> int:
        return self.id

    def __str__(self) -> str:
        return str(self.node_def)

    def __repr__(self) -> str:
        return f"<tf.Operation '{self.name}' type={self.type}>"


class Graph(Scopes):
    """A dataflow graph. Clients build it under its scopes; passes read it and make new ones."""

    PRODUCER_VERSION = 2474  # of the GraphDefs written here; TensorFlow 2.21 writes the same

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, Operation] = {}
        self._next_id = 0
        self._finalized = False
        self._change_log: list[str] = []  # names of nodes that were changed after they were made
        self.functions: dict[str, Function] = {}
        self.gradient_functions: dict[str, str] = {}
        self._producer = self.PRODUCER_VERSION
        self._min_consumer = 0
        self._edits = 0  # counts changes of existing nodes and of the function library
        self._seed: int | None = None
        self._collections: dict[Any, list] = {}
        self._unfeedable: set[Tensor] = set()
        self._unfetchable: set[Operation | Tensor] = set()

    # -- nodes ------------------------------------------------------------------------------------------------------

    def add_node(
        self,
        op_def: OpDef,
        inputs: list[Tensor],
        attrs: dict[str, Any],
        name: str,
        output_dtypes: list[DType],
        control_inputs: Iterable[Operation] = (),
        device: str = "",
        dims: list[Dims] | None = None,
    ) -> Operation:
        """Adds a node as told: no scopes, no checks, no shape inference. The floor that everything else stands on."""
        node_id = self._next_id
        self._next_id = node_id + 1
        op = Operation(self, name, op_def, attrs, node_id, device)
        op.inputs = inputs
        for tensor in inputs:
            consumers = tensor._consumers
            if consumers is None:
                tensor._consumers = [op]
            else:
                consumers.append(op)
        if control_inputs:
            op.control_inputs = list(dict.fromkeys(control_inputs))
            for other in op.control_inputs:
                if other._control_outputs is None:
                    other._control_outputs = []
                other._control_outputs.append(op)
        if dims is None:
            op.outputs = [Tensor(op, i, dtype) for i, dtype in enumerate(output_dtypes)]
        else:
            op.outputs = [Tensor(op, i, dtype, d) for i, (dtype, d) in enumerate(zip(output_dtypes, dims, strict=True))]
        self._nodes[name] = op
        return op

    def remove_node(self, op: Operation) -> None:
        """Takes `op` out again (a builder's roll-back, a pass's clean-up). Its consumers must be gone already."""
        del self._nodes[op.name]
        for tensor in op.inputs:
            if tensor._consumers and op in tensor._consumers:
                tensor._consumers.remove(op)
        for other in op.control_inputs:
            if other._control_outputs and op in other._control_outputs:
                other._control_outputs.remove(op)

    def find(self, name: str) -> Operation | None:
        return self._nodes.get(name)

    def op_def(self, op_type: str) -> OpDef:
        """The signature of `op_type`: a registered op, or a function of this graph's library."""
        found = OPS.get(op_type)
        if found is None:
            function = self.functions.get(op_type)
            found = lookup(op_type) if function is None else function.op_def
        return found

    def __iter__(self) -> Iterator[Operation]:
        return iter(list(self._nodes.values()))  # another thread may be adding nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def _changed(self, op: Operation) -> None:
        """Notes a change of an existing node, so that sessions that ran it can say so."""
        self._edits += 1
        self._change_log.append(op.name)

    # -- look-up ------------------------------------------------------------------------------------------------------

    def get_operations(self) -> list[Operation]:
        return list(self._nodes.values())

    def get_operation_by_name(self, name: str) -> Operation:
        """The Operation called `name`; KeyError if there is none, TypeError if `name` is no string."""
        if not isinstance(name, str):
            raise TypeError(f"Operation names are strings (or similar), not {type(name).__name__}.")
        return self.as_graph_element(name, allow_tensor=False, allow_operation=True)

    def get_tensor_by_name(self, name: str) -> Tensor:
        """The Tensor called `name` ("op:0"); KeyError if there is none, ValueError if the name is no tensor's name."""
        if not isinstance(name, str):
            raise TypeError(f"Tensor names are strings (or similar), not {type(name).__name__}.")
        return self.as_graph_element(name, allow_tensor=True, allow_operation=False)

    _get_operation_by_name_unsafe = get_operation_by_name

    def as_graph_element(self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True) -> Any:
        """The Tensor or Operation that `obj` (one of them, a name, or an object with `_as_graph_element`) stands for."""
        if not allow_tensor and not allow_operation:
            raise ValueError("allow_tensor and allow_operation can't both be False.")
        wanted = "Tensor or Operation" if allow_tensor and allow_operation else "Tensor" if allow_tensor else "Operation"
        if isinstance(obj, bytes):
            obj = obj.decode("utf-8", "surrogateescape")
        if isinstance(obj, str):
            return self._element_by_name(obj, allow_tensor, allow_operation)
        convert = getattr(obj, "_as_graph_element", None)
        if convert is not None:
            obj = convert()
        if isinstance(obj, Tensor) and allow_tensor:
            if obj.graph is not self:
                raise ValueError(f"Tensor {obj} is not an element of this graph.")
            return obj
        if isinstance(obj, Operation) and allow_operation:
            if obj.graph is not self:
                raise ValueError(f"Operation {obj!r} is not an element of this graph.")
            return obj
        raise TypeError(f"Can not convert a {type(obj).__name__} into a {wanted}.")

    def _element_by_name(self, name: str, allow_tensor: bool, allow_operation: bool) -> Any:
        if ":" in name:
            if not allow_tensor:
                raise ValueError(f"Name {name!r} appears to refer to a Tensor, not a Operation.")
            op_name, _, index = name.partition(":")
            if ":" in index or not index.isdigit():
                raise ValueError(
                    f"The name {name!r} looks a like a Tensor name, but is not a valid one. Tensor names must be of the form "
                    '"<op_name>:<output_index>".'
                )
            op = self._nodes.get(op_name)
            if op is None:
                raise KeyError(
                    f"The name {name!r} refers to a Tensor which does not exist. The operation, {op_name!r}, does not exist in "
                    "the graph."
                )
            if int(index) >= len(op.outputs):
                raise KeyError(
                    f"The name {name!r} refers to a Tensor which does not exist. The operation, {op_name!r}, exists but only "
                    f"has {len(op.outputs)} outputs."
                )
            return op.outputs[int(index)]
        op = self._nodes.get(name)
        if not allow_operation:
            if op is not None:
                raise ValueError(
                    f"The name {name!r} refers to an Operation, not a Tensor. Tensor names must be of the form "
                    '"<op_name>:<output_index>".'
                )
            raise ValueError(
                f"The name {name!r} looks like an (invalid) Operation name, not a Tensor. Tensor names must be of the form "
                '"<op_name>:<output_index>".'
            )
        if op is None:
            raise KeyError(f"The name {name!r} refers to an Operation not in the graph.")
        return op

    # -- versions, finality, feedability ------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Grows with every node and every change; sessions compare it to see whether they must extend."""
        return self._next_id + self._edits

    @property
    def graph_def_versions(self) -> Any:
        from penstock.formats.protos import VersionDef

        return VersionDef(producer=self._producer, min_consumer=self._min_consumer)

    @property
    def finalized(self) -> bool:
        return self._finalized

    def finalize(self) -> None:
        """Makes the graph read-only: adding a node is a RuntimeError from now on."""
        self._finalized = True

    def _unsafe_unfinalize(self) -> None:
        self._finalized = False

    def _check_not_finalized(self) -> None:
        if self._finalized:
            raise RuntimeError("Graph is finalized and cannot be modified.")

    def prevent_feeding(self, tensor: Tensor) -> None:
        self._unfeedable.add(tensor)

    def is_feedable(self, tensor: Tensor) -> bool:
        return tensor not in self._unfeedable

    def prevent_fetching(self, op: Operation | Tensor) -> None:
        self._unfetchable.add(op)

    def is_fetchable(self, tensor_or_op: Any) -> bool:
        if not self._unfetchable:
            return True
        return tensor_or_op not in self._unfetchable and getattr(tensor_or_op, "op", None) not in self._unfetchable

    @property
    def seed(self) -> int | None:
        return self._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        self._seed = seed

    @property
    def _last_id(self) -> int:
        return self._next_id

    @property
    def building_function(self) -> bool:
        return False

    # -- collections ----------------------------------------------------------------------------------------------------

    def add_to_collection(self, name: Any, value: Any) -> None:
        self._check_not_finalized()
        self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        for name in (names,) if isinstance(names, str) else dict.fromkeys(names):
            self.add_to_collection(name, value)

    def get_collection_ref(self, name: Any) -> list:
        """The list itself: changes to it change the collection."""
        return self._collections.setdefault(name, [])

    def get_collection(self, name: Any, scope: str | None = None) -> list:
        """A copy of the collection; with `scope`, only items whose name matches that regular expression at its start."""
        import re

        items = self._collections.get(name, [])
        if scope is None:
            return list(items)
        match = re.compile(scope).match
        return [item for item in items if hasattr(item, "name") and match(item.name)]

    def get_all_collection_keys(self) -> list:
        return [key for key in self._collections if isinstance(key, str)]

    def clear_collection(self, name: Any) -> None:
        self._check_not_finalized()
        self._collections.pop(name, None)

    @property
    def collections(self) -> list:
        return list(self._collections)

    # -- building and exporting, by way of the modules that do it -------------------------------------------------------

    def create_op(
        self,
        op_type: str,
        inputs: Iterable[Tensor],
        dtypes: Any = None,
        input_types: Any = None,
        name: str | None = None,
        attrs: dict[str, Any] | None = None,
        op_def: Any = None,
        compute_shapes: bool = True,
        compute_device: bool = True,
    ) -> Operation:
        """Creates an Operation from Tensors and attributes (AttrValues or Python values), under this graph's scopes."""
        from penstock.graph.build import create_op

        return create_op(self, op_type, list(inputs), attrs or {}, name)

    _create_op_internal = create_op

    def as_graph_def(self, from_version: int | None = None, add_shapes: bool = False) -> GraphDef:
        """This graph as a GraphDef. Nodes older than `from_version` are left out; `add_shapes` adds `_output_shapes`."""
        from penstock.graph.exporter import graph_def

        return graph_def(self, from_version, add_shapes)

    def _add_function(self, function: Function) -> None:
        known = self.functions.get(function.name)
        if function.name in OPS:
            raise ValueError(f"Cannot add function '{function.name}' because an op with the same name already exists.")
        if known is not None and known is not function and not known.same_as(function):
            raise ValueError(f"Cannot add function '{function.name}' because a different function with the same name already exists.")
        if known is None:
            self.functions[function.name] = function
            self._edits += 1

    def _is_function(self, name: str) -> bool:
        return name in self.functions

    def _get_function(self, name: str) -> Function | None:
        return self.functions.get(name)

    def _as_graph_element(self) -> Graph:
        raise TypeError("Can not convert a Graph into a Tensor or Operation.")


def ref_error(name: str) -> errors.OpError:
    """What reading an uninitialised ref variable says."""
    return errors.FailedPreconditionError(f"Attempting to use uninitialized value {name}")


RESOURCE = dtypes.resource
