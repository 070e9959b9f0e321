"""Library functions: FunctionDef <-> `Function` with a body graph.

A body is an ordinary Graph whose inputs are `_Arg` nodes and whose results are `_Retval` nodes, so that passes and the
executor need no second notion of a graph. Bodies are built from their FunctionDef on first use, per instantiation of the
function's own attributes (T, N, ...), and kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.dtypes import DType, as_dtype
from penstock.formats import protos
from penstock.formats.attr_value import FuncAttr, Placeholder, decode, encode
from penstock.graph.bind import arg_ranges
from penstock.graph.build import arg_dtypes, output_dtypes
from penstock.graph.importer import GraphReader
from penstock.graph.ir import Dims, Graph, Operation, Tensor
from penstock.graph.opdef import MISSING, OPS, ArgDef, AttrDef, OpDef

if TYPE_CHECKING:
    from collections.abc import Callable


class Function:
    """A function of a graph's library.

    `op_def` is the signature it is called with; `control_ret` names body nodes that must run although no result needs
    them; `attrs` are the function's own (such as `_noinline`); `gradient_name` the function that computes its gradient.
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
        self._proto = proto
        self._bodies: dict[Any, Graph] = {}
        self._own_body = body
        self.python_gradient: Callable[..., Any] | None = None

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
        if self._proto is None:
            assert self._own_body is not None
            self._proto = body_to_proto(self, self._own_body)
        return self._proto

    @property
    def definition(self) -> Any:
        return self.to_proto()

    def same_as(self, other: Function) -> bool:
        return self.to_proto() == other.to_proto()

    # -- bodies ---------------------------------------------------------------------------------------------------------

    def body(self, attrs: dict[str, Any] | None = None, library: dict[str, Function] | None = None) -> Graph:
        """The body graph for these attribute values (none for a function without type parameters)."""
        if self._own_body is not None:
            return self._own_body
        declared = {k: v for k, v in (attrs or {}).items() if k in self.op_def.attrs}
        key = repr(sorted(declared.items(), key=lambda item: item[0])) if declared else ""
        found = self._bodies.get(key)
        if found is None:
            found = self._bodies[key] = body_from_proto(self, declared, library if library is not None else self.library)
        return found

    def input_dtypes(self, attrs: dict[str, Any] | None = None) -> list[DType]:
        return arg_dtypes(self.op_def.inputs, attrs or {})

    def output_dtypes(self, attrs: dict[str, Any] | None = None) -> list[DType]:
        return output_dtypes(self.op_def, attrs or {})

    def output_dims(self, attrs: dict[str, Any] | None = None) -> list[Dims]:
        """Static shapes of the results, as far as the body alone tells."""
        rets = sorted((op for op in self.body(attrs) if op.type == "_Retval"), key=lambda op: op.attrs["index"])
        return [op.inputs[0].dims for op in rets]

    @property
    def stateful(self) -> bool:
        return self.op_def.stateful

    def callees(self) -> set[str]:
        """Names of the functions that this one's body calls."""
        found: set[str] = set()

        def look(op_type: str, values: Any) -> None:
            if op_type in self.library:
                found.add(op_type)
            for value in values:
                for item in value if isinstance(value, list) else (value,):
                    if isinstance(item, FuncAttr):
                        found.add(item.name)

        if self._own_body is not None:
            for op in self._own_body:
                look(op.type, op.attrs.values())
        else:
            for node in self._proto.node_def:
                look(node.op, [decode(v) for v in node.attr.values() if v.WhichOneof("value") in ("func", "list")])
        return found

    def add_to_graph(self, graph: Graph) -> None:
        """Adds this function, and those it calls, to `graph`'s library."""
        if graph.functions.get(self.name) is self:
            return
        graph._add_function(self)
        for other in list(self.library.values()):
            if other.name not in graph.functions:
                graph._add_function(other)

    def __repr__(self) -> str:
        return f"<Function {self.name}>"


def opdef_from_proto(proto: Any) -> OpDef:
    """An OpDef proto (a function's signature, or an op list's entry) as an OpDef without behaviour."""
    attrs: dict[str, AttrDef] = {}
    for a in proto.attr:
        default = decode(a.default_value) if a.HasField("default_value") else MISSING
        allowed = None
        if a.HasField("allowed_values"):
            allowed = frozenset(decode(a.allowed_values))
        attrs[a.name] = AttrDef(a.name, a.type, default, allowed, a.minimum if a.has_minimum else None)

    def arg(a: Any) -> ArgDef:
        dtype = as_dtype(a.type) if a.type else None
        return ArgDef(a.name, dtype, a.type_attr, a.number_attr, a.type_list_attr, a.is_ref)

    result = OpDef(proto.name, [arg(a) for a in proto.input_arg], [arg(a) for a in proto.output_arg], attrs)
    result.stateful = proto.is_stateful
    result.signature = f"{proto.name}({', '.join(map(repr, result.inputs))}) -> ({', '.join(map(repr, result.outputs))})"
    result.shape_rule = None
    return result


def opdef_to_proto(opdef: OpDef) -> Any:
    """The OpDef proto of a signature, as TF writes it."""
    proto = protos.OpDef(name=opdef.name, is_stateful=opdef.stateful, is_commutative=opdef.commutative, is_aggregate=opdef.aggregate)
    proto.allows_uninitialized_input = opdef.uninitialized_ok
    for source, target in ((opdef.inputs, proto.input_arg), (opdef.outputs, proto.output_arg)):
        for a in source:
            target.add(
                name=a.name, type=a.dtype.as_datatype_enum if a.dtype is not None else 0, type_attr=a.type_attr, number_attr=a.number_attr,
                type_list_attr=a.list_attr, is_ref=a.is_ref,
            )  # fmt: skip
    for attr in opdef.attrs.values():
        row = proto.attr.add(name=attr.name, type=attr.kind)
        if attr.default is not MISSING:
            row.default_value.CopyFrom(encode(attr.default, attr.kind))
        if attr.allowed is not None:
            base = attr.kind[5:-1] if attr.kind.startswith("list(") else attr.kind
            values = sorted(attr.allowed, key=lambda v: v if isinstance(v, bytes) else v.as_datatype_enum)
            row.allowed_values.CopyFrom(encode(values, f"list({base})"))
        if attr.minimum is not None:
            row.has_minimum = True
            row.minimum = attr.minimum
    return proto


# ---------------------------------------------------------------------------------------------------------------------
# FunctionDef -> body


class _BodyReader(GraphReader):
    """Reads a function's nodes, whose inputs name outputs by argument (`node:out:0`) rather than by flat index."""

    def __init__(self, graph: Graph, function: Function, attrs: dict[str, Any]) -> None:
        proto = function._proto
        super().__init__(graph, proto.node_def, internal=True)
        self.function = function
        self.own_attrs = attrs
        self.args: dict[str, list[Tensor]] = {}
        self.kinds: dict[str, tuple[dict, OpDef]] = {}
        self._where: dict[tuple[str, int], tuple[str, str, int]] = {}

    def _attrs(self, node: Any, opdef: OpDef) -> dict[str, Any]:
        if any(value.WhichOneof("value") in ("placeholder", "list", "func") for value in node.attr.values()):
            node = self._substituted(node)
        return super()._attrs(node, opdef)

    def _substituted(self, node: Any) -> Any:
        """Attribute placeholders take the values of this instantiation."""
        result = protos.NodeDef()
        result.CopyFrom(node)
        for key, value in node.attr.items():
            decoded = _substitute(decode(value), self.own_attrs, self.function.name)
            declared = self.graph.op_def(node.op).attrs.get(key)
            if decoded is not None:
                result.attr[key].CopyFrom(encode(decoded, declared.kind if declared else None))
        return result

    def _parse_inputs(self, node: Any, by_name: dict[str, Any]) -> tuple[list[tuple[str, int]], list[str]]:
        data: list[tuple[str, int]] = []
        control: list[str] = []
        for text in node.input:
            if text.startswith("^"):
                control.append(text[1:])
                source = text[1:]
            else:
                if control:
                    raise ValueError(f"Node '{node.name}': Control dependencies must come after regular dependencies")
                parts = text.split(":")
                source = parts[0]
                if source in by_name:
                    if len(parts) == 2 and parts[1].isdigit():
                        data.append((source, int(parts[1])))
                    else:
                        data.append((source, self._flat_index(by_name[source], parts[1:], text)))
                else:
                    data.append((source, int(parts[-1]) if len(parts) > 1 and parts[-1].isdigit() else 0))
            if source not in by_name and source not in self.args:
                raise ValueError(f"Node '{node.name}' of function '{self.function.name}': Unknown input node '{text}'")
        return data, control

    def _flat_index(self, producer: Any, parts: list[str], text: str) -> int:
        known = self.kinds.get(producer.name)
        if known is None:
            opdef = self.graph.op_def(producer.op)
            known = self.kinds[producer.name] = (self._attrs(producer, opdef), opdef)
        attrs, opdef = known
        if not parts:
            return 0
        for arg, (start, stop, _) in zip(opdef.outputs, arg_ranges(opdef.outputs, attrs), strict=True):
            if arg.name == parts[0]:
                offset = int(parts[1]) if len(parts) > 1 else 0
                if start + offset < stop:
                    return start + offset
        raise ValueError(f"Function '{self.function.name}': '{text}' names no output of '{producer.name}' ({opdef.name})")

    def _input(self, node: Any, where: tuple[str, int]) -> Tensor | None:
        if where[0] in self.args and where[0] not in self.names:
            tensors = self.args[where[0]]
            if where[1] >= len(tensors):
                raise ValueError(f"Function '{self.function.name}': argument '{where[0]}' has no element {where[1]}")
            return tensors[where[1]]
        return super()._input(node, where)

    def _known(self, source: str) -> bool:
        return source in self.args

    def resolve(self, text: str) -> Tensor:
        """A `ret` entry: an argument, or `node:out:index`."""
        parts = text.split(":")
        if parts[0] in self.names:
            op = self.names[parts[0]]
            index = self._flat_index(self._node(parts[0]), parts[1:], text)
            return op.outputs[index]
        tensors = self.args.get(parts[0])
        if tensors is None:
            raise ValueError(f"Function '{self.function.name}' returns '{text}', which is neither an argument nor a node")
        return tensors[int(parts[-1]) if len(parts) > 1 and parts[-1].isdigit() else 0]

    def _node(self, name: str) -> Any:
        return next(n for n in self.nodes if n.name == name)


def _substitute(value: Any, attrs: dict[str, Any], where: str) -> Any:
    if isinstance(value, Placeholder):
        if value.name not in attrs:
            raise errors.InvalidArgumentError(f"Function '{where}' needs a value for its attribute '{value.name}'")
        return attrs[value.name]
    if isinstance(value, list):
        return [_substitute(v, attrs, where) for v in value]
    if isinstance(value, FuncAttr) and value.attrs:
        return FuncAttr(value.name, {k: _substitute(v, attrs, where) for k, v in value.attrs.items()})
    return value


def body_from_proto(function: Function, attrs: dict[str, Any], library: dict[str, Function]) -> Graph:
    """Builds the body of `function` for these attribute values."""
    graph = Graph()
    graph.functions = library
    proto = function._proto
    reader = _BodyReader(graph, function, attrs)
    index = 0
    arg_attrs = dict(proto.arg_attr.items())
    for position, arg in enumerate(function.op_def.inputs):
        tensors = []
        dtypes = arg_dtypes([arg], attrs)
        for k, dtype in enumerate(dtypes):
            name = arg.name if not arg.is_list else f"{arg.name}_{k}"
            node_attrs: dict[str, Any] = {"T": dtype.base_dtype, "index": index}
            extra = arg_attrs.get(position)
            dims: Dims = None
            if extra is not None:
                for key, value in extra.attr.items():
                    decoded = decode(value)
                    if key == "_output_shapes" and isinstance(decoded, list) and decoded:
                        dims = decoded[0]._dims
                    else:
                        node_attrs[key] = decoded
            op = graph.add_node(OPS["_Arg"], [], node_attrs, graph.unique_name(name), [dtype], dims=[dims])
            tensors.append(op.outputs[0])
            index += 1
        reader.args[arg.name] = tensors
    reader.read()
    index = 0
    for arg in function.op_def.outputs:
        count = len(arg_dtypes([arg], attrs))
        source = proto.ret.get(arg.name)
        if source is None:
            raise ValueError(f"Function '{function.name}' says nothing of its output '{arg.name}'")
        for k in range(count):
            tensor = reader.resolve(source if not arg.is_list else f"{source}:{k}" if source.count(":") < 2 else source)
            graph.add_node(
                OPS["_Retval"], [tensor], {"T": tensor.dtype.base_dtype, "index": index}, graph.unique_name(f"{arg.name}_RetVal"), []
            )
            index += 1
    graph._control_ret = [reader.names[n] for n in proto.control_ret.values() if n in reader.names]  # type: ignore[attr-defined]
    return graph


# ---------------------------------------------------------------------------------------------------------------------
# Body -> FunctionDef


def body_to_proto(function: Function, body: Graph) -> Any:
    """The FunctionDef of a function whose body was built here."""
    proto = protos.FunctionDef()
    proto.signature.CopyFrom(opdef_to_proto(function.op_def))
    for key, value in function.attrs.items():
        proto.attr[key].CopyFrom(encode(value, None))
    args = sorted((op for op in body if op.type == "_Arg"), key=lambda op: op.attrs["index"])
    rets = sorted((op for op in body if op.type == "_Retval"), key=lambda op: op.attrs["index"])
    arg_names = {op: function.op_def.inputs[i].name for i, op in enumerate(args)}
    for i, op in enumerate(args):
        if op.outputs[0].dims is not None:
            proto.arg_attr[i].attr["_output_shapes"].CopyFrom(encode([op.outputs[0].shape], "list(shape)"))

    def reference(tensor: Tensor) -> str:
        if tensor.op in arg_names:
            return arg_names[tensor.op]
        for arg, (start, stop, _) in zip(tensor.op.op_def.outputs, arg_ranges(tensor.op.op_def.outputs, tensor.op.attrs), strict=True):
            if start <= tensor.value_index < stop:
                return f"{tensor.op.name}:{arg.name}:{tensor.value_index - start}"
        raise AssertionError(tensor)

    for op in body:
        if op.type in ("_Arg", "_Retval"):
            continue
        node = op.node_def
        del node.input[:]
        node.input.extend(reference(t) for t in op.inputs)
        node.input.extend("^" + (arg_names.get(c) or c.name) for c in op.control_inputs)
        proto.node_def.append(node)
    for i, op in enumerate(rets):
        proto.ret[function.op_def.outputs[i].name] = reference(op.inputs[0])
    control: list[Operation] = getattr(body, "_control_ret", [])
    for op in control:
        proto.control_ret[op.name] = op.name
        proto.signature.control_output.append(op.name)
    return proto
