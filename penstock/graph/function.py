"""Library functions: a signature, and a body graph for each set of attribute values.

A body is an ordinary Graph whose inputs are `_Arg` nodes and whose results are `_Retval` nodes, so that passes and the
executor need no second notion of a graph. Bodies of imported functions are built from their FunctionDef on first use, per
instantiation of the function's own attributes (T, N, ...), and kept; `function_def.py` does the translation.

`call_shapes` tells what is known of a call's results before it runs, from the body and the shapes of the arguments.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.dtypes import DType
from penstock.formats.attr_value import FuncAttr, TensorAttr, decode
from penstock.graph.build import arg_dtypes, output_dtypes
from penstock.graph.function_def import body_from_proto, body_to_proto, opdef_from_proto, opdef_to_proto
from penstock.graph.ir import Dims, Graph, Operation, Tensor
from penstock.graph.opdef import OpDef
from penstock.graph.shape_inference import infer_shapes
from penstock.shapes import TensorShape, compatible_dims, merge_dims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Function", "attr_key", "call_shapes", "called_function", "calls_itself", "closure", "opdef_from_proto", "opdef_to_proto"]


class Function:
    """A function of a graph's library.

    `op_def` is the signature it is called with; `control_ret` names body nodes that must run although no result needs
    them; `attrs` are the function's own (such as `_noinline`). Functions made from Python code have
    `python_gradient(op, *dys)` if the program gave one, and `trace(graph, args)`, which builds the body's nodes once more in another
    graph: gradients of bodies with loops need the loops' own records, which a copy of the nodes does not have.
    """

    def __init__(
        self,
        name: str,
        op_def: OpDef,
        attrs: dict[str, Any] | None = None,
        proto: Any = None,
        body: Graph | None = None,
        control_ret: list[str] | None = None,
        library: dict[str, Function] | None = None,
    ) -> None:
        self.name = name
        self.op_def = op_def
        self.attrs = attrs or {}
        self.control_ret = control_ret or []
        self.library: dict[str, Function] = library if library is not None else {}
        self.description = ""
        self.python_gradient: Callable[..., Any] | None = None
        self.trace: Callable[[Any, list[Tensor]], list[Tensor]] | None = None
        self._proto = proto
        self._bodies: dict[Any, Graph] = {}
        self._own_body = body
        self._shapes: dict[Any, list[Any]] = {}
        self._callees: frozenset[str] | None = None
        op_def.shape_rule = _call_rule

    # -- protos ---------------------------------------------------------------------------------------------------------

    @classmethod
    def from_proto(cls, proto: Any, graph: Graph | None = None) -> Function:
        """Reads the signature; the body is read when it is first needed."""
        if not proto.signature.name:
            raise ValueError("A FunctionDef needs a signature with a name")
        attrs = {key: decode(value) for key, value in proto.attr.items()}
        return cls(
            proto.signature.name,
            opdef_from_proto(proto.signature),
            attrs,
            proto,
            control_ret=list(proto.control_ret.values()),
            library=graph.functions if graph is not None else None,
        )

    def to_proto(self) -> Any:
        """The FunctionDef."""
        if self._proto is None:
            assert self._own_body is not None
            self._proto = body_to_proto(self, self._own_body)
        return self._proto

    @property
    def definition(self) -> Any:
        return self.to_proto()

    def same_as(self, other: Function) -> bool:
        return self is other or self.to_proto() == other.to_proto()

    # -- bodies ---------------------------------------------------------------------------------------------------------

    def body(self, attrs: dict[str, Any] | None = None, library: dict[str, Function] | None = None) -> Graph:
        """The body graph for these attribute values (none for a function without type parameters). InvalidArgumentError or
        NotFoundError if the definition is broken."""
        if self._own_body is not None:
            return self._own_body
        declared = {k: v for k, v in (attrs or {}).items() if k in self.op_def.attrs}
        key = attr_key(declared)
        found = self._bodies.get(key)
        if found is None:
            with _Open(self.name):
                found = body_from_proto(self, declared, library if library is not None else self.library)
            self._bodies[key] = found
        return found

    def input_dtypes(self, attrs: dict[str, Any] | None = None) -> list[DType]:
        return arg_dtypes(self.op_def.inputs, attrs or {})

    def output_dtypes(self, attrs: dict[str, Any] | None = None) -> list[DType]:
        return output_dtypes(self.op_def, attrs or {})

    @property
    def stateful(self) -> bool:
        return self.op_def.stateful

    def size(self) -> int:
        """How many nodes the body has, arguments and results aside."""
        return len(self._own_body) if self._own_body is not None else len(self._proto.node_def)

    def callees(self) -> frozenset[str]:
        """Names of the functions that this one's body mentions."""
        if self._callees is None:
            found: set[str] = set()
            if self._own_body is not None:
                for op in self._own_body:
                    found.update(mentioned(op.type, op.attrs.values()))
            else:
                for node in self._proto.node_def:
                    values = [decode(v) for v in node.attr.values() if v.HasField("func") or (v.HasField("list") and v.list.func)]
                    found.update(mentioned(node.op, values))
            self._callees = frozenset(found)
        return self._callees

    def add_to_graph(self, graph: Graph) -> None:
        """Adds this function, and those it calls, to `graph`'s library."""
        if graph.functions.get(self.name) is self:
            return
        for function in closure([self.name], {**self.library, self.name: self}):
            graph._add_function(function)

    def __repr__(self) -> str:
        return f"<Function {self.name}>"


def mentioned(op_type: str, values: Iterable[Any]) -> Iterable[str]:
    """Names of functions that a node may call: its type, and its function attributes."""
    yield op_type
    for value in values:
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, FuncAttr):
                yield item.name


def closure(names: Iterable[str], library: dict[str, Function]) -> list[Function]:
    """The functions of `library` that `names` lead to, themselves first."""
    found: dict[str, Function] = {}
    stack = [name for name in names if name in library]
    while stack:
        name = stack.pop()
        if name in found:
            continue
        function = found[name] = library[name]
        stack.extend(n for n in function.callees() if n in library and n not in found)
    return list(found.values())


def calls_itself(name: str, library: dict[str, Function]) -> bool:
    """Whether calling `name` may lead to `name` again."""
    seen: set[str] = set()
    stack = [name]
    while stack:
        function = library.get(stack.pop())
        for callee in function.callees() if function is not None else ():
            if callee == name:
                return True
            if callee in library and callee not in seen:
                seen.add(callee)
                stack.append(callee)
    return False


def attr_key(value: Any) -> Any:
    """A hashable stand-in for an attribute's value: equal for equal values, different for different ones."""
    if isinstance(value, dict):
        return tuple((k, attr_key(value[k])) for k in sorted(value))
    if isinstance(value, list):
        return ("list", *map(attr_key, value))
    if isinstance(value, FuncAttr):
        return "func", value.name, attr_key(value.attrs)
    if isinstance(value, TensorShape):
        return "shape", value._dims  # unknown shapes do not equal each other as TensorShapes
    if isinstance(value, (TensorAttr, DType)):
        return value
    return value.__class__.__name__, value


CALLS = frozenset(("PartitionedCall", "StatefulPartitionedCall"))


def called_function(op: Operation, library: dict[str, Function] | None = None) -> tuple[Function, dict[str, Any]] | None:
    """(function, attributes) that a call node calls; None if `op` is no call, or of a function that is not there."""
    functions = op.graph.functions if library is None else library
    if op.type in CALLS:
        attr = op.attrs["f"]
        function, attrs = functions.get(attr.name), attr.attrs
    else:
        function, attrs = functions.get(op.type), op.attrs
    return None if function is None else (function, attrs)


# ---------------------------------------------------------------------------------------------------------------------
# Static shapes of calls

_DEEPEST = 24  # calls within calls that shapes are followed through
_Known = tuple[Dims, "list[tuple[DType, Dims]] | None"]


class _Opened(threading.local):
    def __init__(self) -> None:
        self.names: list[str] = []


_opened = _Opened()


class _Open:
    """`with _Open(name)`: the function's body is being looked at, so that a recursive function is not opened for ever."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        _opened.names.append(self.name)

    def __exit__(self, *exc_info: object) -> None:
        _opened.names.pop()


def call_shapes(function: Function, attrs: dict[str, Any], inputs: list[Tensor]) -> list[_Known] | None:
    """(dims, handle data) of each result, for arguments like `inputs`. None if nothing can be said: the body calls itself, or needs an
    op that is not there. ValueError if body and arguments contradict each other, or the body is malformed."""
    if len(_opened.names) >= _DEEPEST or function.name in _opened.names:
        return None
    key = (attr_key({k: v for k, v in attrs.items() if k in function.op_def.attrs}), tuple((t.dims, _handle_key(t)) for t in inputs))
    known = function._shapes.get(key)
    if known is None:
        try:
            body = function.body(attrs)
        except errors.NotFoundError:
            return None  # said when the function is called
        except errors.OpError as error:
            raise ValueError(error.message) from error
        with _Open(function.name):
            known = _shapes_of(function, body, inputs)
        function._shapes[key] = known
    return known


def _handle_key(tensor: Tensor) -> Any:
    return None if tensor.handle_data is None else tuple(tensor.handle_data)


def _shapes_of(function: Function, body: Graph, inputs: list[Tensor]) -> list[_Known]:
    args = sorted((op for op in body if op.type == "_Arg"), key=lambda op: op.attrs["index"])
    if len(args) != len(inputs):
        raise ValueError(f"Function '{function.name}' takes {len(args)} arguments, but {len(inputs)} are passed")
    graph = body
    if any(_tells_more(t, op.outputs[0]) for t, op in zip(inputs, args, strict=True)):
        graph = _inferred(body, {op.name: t for op, t in zip(args, inputs, strict=True)})
    rets = sorted((op for op in graph if op.type == "_Retval"), key=lambda op: op.attrs["index"])
    return [(op.inputs[0].dims, op.inputs[0].handle_data) for op in rets]


def _tells_more(given: Tensor, inside: Tensor) -> bool:
    return (given.dims is not None and given.dims != inside.dims) or (given.handle_data is not None and inside.handle_data is None)


def _inferred(body: Graph, given: dict[str, Tensor]) -> Graph:
    """A copy of `body` whose shapes follow from those of `given` (by argument)."""
    from penstock.graph.rewrite import copy, topological

    graph = copy(body)
    for op in topological(graph):
        outer = given.get(op.name) if op.type == "_Arg" else None
        if outer is not None:
            tensor = op.outputs[0]
            if compatible_dims(tensor.dims, outer.dims):
                tensor.dims = merge_dims(tensor.dims, outer.dims)
            tensor.handle_data = outer.handle_data or tensor.handle_data
            continue
        before = [t.dims for t in op.outputs]
        infer_shapes(op)
        for tensor, dims in zip(op.outputs, before, strict=True):
            # What held for any arguments holds for these.
            if compatible_dims(tensor.dims, dims):
                tensor.dims = merge_dims(tensor.dims, dims)
    return graph


def call_rule(op: Operation, function: Function | None, attrs: dict[str, Any]) -> list[Dims]:
    """The shape rule of a call: sets the results' handle data, returns their dims."""
    if function is None or op.attrs.get("_disable_call_shape_inference"):
        return [None] * len(op.outputs)
    known = call_shapes(function, attrs, op.inputs)
    if known is None:
        return [None] * len(op.outputs)
    dims: list[Dims] = []
    for i, tensor in enumerate(op.outputs):
        result = known[i] if i < len(known) else (None, None)
        dims.append(result[0])
        if result[1] is not None:
            tensor.handle_data = result[1]
    return dims


def _call_rule(c: Any) -> list[Dims]:
    """Shape rule of a node whose type is a function."""
    found = called_function(c.op)
    return call_rule(c.op, *(found if found is not None else (None, {})))
