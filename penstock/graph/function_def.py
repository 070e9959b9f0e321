"""FunctionDef <-> body graph, and OpDef protos <-> signatures.

A body is an ordinary Graph whose inputs are `_Arg` nodes and whose results are `_Retval` nodes. In a FunctionDef, nodes name their
inputs by argument: `x` (an argument of the function, or all of a list argument), `x:1` (one element of a list argument), `node:out:0`
(one element of an output), `node:out` (all of an output).

What is wrong with a FunctionDef is an InvalidArgumentError (NotFoundError for ops that are not registered), in TF's words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.dtypes import DType, as_dtype
from penstock.formats import protos
from penstock.formats.attr_value import FuncAttr, Placeholder, decode, encode
from penstock.graph.bind import arg_ranges
from penstock.graph.build import arg_dtypes
from penstock.graph.importer import GraphReader
from penstock.graph.ir import Dims, Graph, Operation, Tensor
from penstock.graph.opdef import MISSING, OPS, ArgDef, AttrDef, OpDef

if TYPE_CHECKING:
    from penstock.graph.function import Function


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
        if not (a.type or a.type_attr or a.type_list_attr):
            raise errors.InvalidArgumentError(f"Argument '{a.name}' of function '{proto.name}' has no type")
        for name in (a.type_attr, a.number_attr, a.type_list_attr):
            if name and name not in attrs:
                raise errors.NotFoundError(f"attr not found: {name} (argument '{a.name}' of function '{proto.name}')")
        dtype = as_dtype(a.type) if a.type else None
        return ArgDef(a.name, dtype, a.type_attr, a.number_attr, a.type_list_attr, a.is_ref)

    result = OpDef(proto.name, [arg(a) for a in proto.input_arg], [arg(a) for a in proto.output_arg], attrs)
    for args in (result.inputs, result.outputs):
        names = [a.name for a in args]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise errors.InvalidArgumentError(f"Duplicated arg name: {twice} in function '{proto.name}'")
    result.stateful = proto.is_stateful
    result.signature = signature_text(result)
    result.shape_rule = None
    return result


def signature_text(opdef: OpDef) -> str:
    """The signature as error messages show it."""
    return f"{opdef.name}({', '.join(map(repr, opdef.inputs))}) -> ({', '.join(map(repr, opdef.outputs))})"


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
    """Reads a function's nodes.

    State
        args     argument name -> its `_Arg` tensors
        kinds    node name -> (attributes, signature), as far as they were needed to count outputs
    """

    def __init__(self, graph: Graph, function: Function, attrs: dict[str, Any]) -> None:
        # A body may be colocated with nodes of the caller's graph, which are not here.
        super().__init__(graph, function._proto.node_def, internal=True, validate_colocation=False)
        self.trace = ()  # errors tell where the call was made, not where its body was read
        self.function = function
        self.own_attrs = attrs
        self.args: dict[str, list[Tensor]] = {}
        self.kinds: dict[str, tuple[dict, OpDef]] = {}
        self.node_of = {node.name: node for node in self.nodes}

    def _attrs(self, node: Any, opdef: OpDef) -> dict[str, Any]:
        if any(value.WhichOneof("value") in ("placeholder", "list", "func") for value in node.attr.values()):
            node = self._substituted(node, opdef)
        return super()._attrs(node, opdef)

    def _substituted(self, node: Any, opdef: OpDef) -> Any:
        """The node with attribute placeholders replaced by the values of this instantiation."""
        result = protos.NodeDef()
        result.CopyFrom(node)
        for key, value in node.attr.items():
            decoded = _substitute(decode(value), self.own_attrs)
            declared = opdef.attrs.get(key)
            if decoded is not None:
                result.attr[key].CopyFrom(encode(decoded, declared.kind if declared else None))
        return result

    def _parse_inputs(self, node: Any, by_name: dict[str, Any]) -> tuple[list[tuple[str, int]], list[str]]:
        data: list[tuple[str, int]] = []
        control: list[str] = []
        for i, text in enumerate(node.input):
            if text.startswith("^"):
                if text[1:] not in by_name and text[1:] not in self.args:
                    raise ValueError(f"input[{i}] == '{text}', is not found. In {{{{node {node.name}}}}}")
                control.append(text[1:])
            elif control:
                raise ValueError(f"Node '{node.name}': Control dependencies must come after regular dependencies")
            else:
                found = self._items(text)
                if found is None:
                    raise ValueError(f"input {text} is not found: {{{{node {node.name}}}}}")
                data += found
        return data, control

    def _items(self, text: str) -> list[tuple[str, int]] | None:
        """The tensors that `text` names, as (argument or node, flat index); None if it names nothing."""
        name, _, rest = text.partition(":")
        tensors = self.args.get(name)
        if tensors is not None:
            if not rest:
                return [(name, k) for k in range(len(tensors))]
            return [(name, int(rest))] if rest.isdigit() and int(rest) < len(tensors) else None
        if name not in self.node_of or not rest:
            return None
        output, _, index = rest.partition(":")
        start, stop = self._output_range(name, output)
        if not index:
            return [(name, k) for k in range(start, stop)] if start <= stop else None
        return [(name, start + int(index))] if index.isdigit() and start + int(index) < stop else None

    def _output_range(self, name: str, output: str) -> tuple[int, int]:
        """Flat range of an output argument of a node; (1, 0) if there is none of that name."""
        known = self.kinds.get(name)
        if known is None:
            node = self.node_of[name]
            opdef = self.graph.op_def(node.op)
            known = self.kinds[name] = (self._attrs(node, opdef), opdef)
        attrs, opdef = known
        for arg, (start, stop, _) in zip(opdef.outputs, arg_ranges(opdef.outputs, attrs), strict=True):
            if arg.name == output:
                return start, stop
        return 1, 0

    def _input(self, node: Any, where: tuple[str, int]) -> Tensor | None:
        tensors = self.args.get(where[0])
        return tensors[where[1]] if tensors is not None else super()._input(node, where)

    def _known(self, source: str) -> bool:
        return source in self.args

    def results(self, arg: ArgDef, wanted: list[DType]) -> list[Tensor]:
        """The tensors that output `arg` returns."""
        source = self.function._proto.ret.get(arg.name)
        if source is None:
            raise ValueError(f"Return {arg.name} missing.")
        found = self._items(source)
        if found is None:
            raise ValueError(f"Return {arg.name} -> {source} is not found.")
        tensors = [self.args[name][k] if name in self.args else self.names[name].outputs[k] for name, k in found]
        if [t.dtype.base_dtype for t in tensors] != [t.base_dtype for t in wanted]:
            got, want = (", ".join(t.name for t in types) for types in ([t.dtype for t in tensors], wanted))
            raise ValueError(f"Invalid ret types {arg.name} : ({want}) vs. ({got})")
        return tensors


def _substitute(value: Any, attrs: dict[str, Any]) -> Any:
    if isinstance(value, Placeholder):
        if value.name not in attrs:
            raise ValueError(f"Failed to bind all placeholders in ${value.name}")
        return attrs[value.name]
    if isinstance(value, list):
        return [_substitute(v, attrs) for v in value]
    if isinstance(value, FuncAttr) and value.attrs:
        return FuncAttr(value.name, {k: _substitute(v, attrs) for k, v in value.attrs.items()})
    return value


def body_from_proto(function: Function, attrs: dict[str, Any], library: dict[str, Function]) -> Graph:
    """Builds the body of `function` for these attribute values."""
    missing = sorted({n.op for n in function._proto.node_def if n.op not in OPS and n.op not in library})
    if missing:
        raise errors.NotFoundError(
            f"Op type not registered {', '.join(map(repr, missing))} in binary running in this process, needed by function "
            f"'{function.name}'. Declare the op with penstock.ops.declare.op(...), or avoid the calls of this function."
        )
    try:
        return _read_body(function, attrs, library)
    except errors.OpError as error:
        raise errors.make_error(error.error_code, f"Function '{function.name}': {error.message}") from error
    except (ValueError, TypeError, KeyError) as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise errors.InvalidArgumentError(f"Function '{function.name}': {text}") from error


def _read_body(function: Function, attrs: dict[str, Any], library: dict[str, Function]) -> Graph:
    graph = Graph()
    graph.functions = library
    proto = function._proto
    for key, declared in function.op_def.attrs.items():
        if attrs.get(key) is None:
            if declared.default is MISSING:
                raise errors.NotFoundError(f"attr not found: {key}. Calls of '{function.name}' must give it a value.")
            attrs = {**attrs, key: declared.default}
    reader = _BodyReader(graph, function, attrs)
    clash = next((arg.name for arg in function.op_def.inputs if arg.name in reader.node_of), None)
    if clash is not None:
        raise ValueError(f"Node '{clash}' is not unique: an argument has the same name")
    index = 0
    for position, arg in enumerate(function.op_def.inputs):
        tensors = []
        extra = proto.arg_attr[position].attr if position in proto.arg_attr else {}
        for k, dtype in enumerate(arg_dtypes([arg], attrs)):
            name = arg.name if not arg.is_list else f"{arg.name}_{k}"
            tensors.append(_add_arg(graph, name, dtype, index, k, extra))
            index += 1
        reader.args[arg.name] = tensors
        if tensors:
            reader.names[arg.name] = tensors[0].op  # what `^arg` waits for
    reader.read()
    index = 0
    for arg in function.op_def.outputs:
        for tensor in reader.results(arg, arg_dtypes([arg], attrs)):
            add_retval(graph, tensor, index, f"{arg.name}_RetVal")
            index += 1
    graph._control_ret = [reader.names[n] for n in proto.control_ret.values() if n in reader.names]  # type: ignore[attr-defined]
    return graph


def _add_arg(graph: Graph, name: str, dtype: DType, index: int, element: int, extra: Any) -> Tensor:
    attrs: dict[str, Any] = {"T": dtype.base_dtype, "index": index}
    dims: Dims = None
    for key, value in extra.items():
        decoded = decode(value)
        if key == "_output_shapes" and isinstance(decoded, list):
            dims = decoded[element]._dims if element < len(decoded) else None
        else:
            attrs[key] = decoded
    while name in graph or graph.is_name_used(name):
        name += "_"
    return graph.add_node(OPS["_Arg"], [], attrs, graph.unique_name(name), [dtype.base_dtype], dims=[dims]).outputs[0]


def add_retval(graph: Graph, tensor: Tensor, index: int, name: str) -> Operation:
    """Makes `tensor` result `index` of the body."""
    attrs = {"T": tensor.dtype.base_dtype, "index": index}
    return graph.add_node(OPS["_Retval"], [tensor], attrs, graph.unique_name(name), [])


# ---------------------------------------------------------------------------------------------------------------------
# Body -> FunctionDef


class _Names:
    """Names within one FunctionDef: results, arguments and nodes share a namespace."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def unique(self, name: str) -> str:
        base, count = name, 0
        while name in self.used:
            name = f"{base}_{count}"
            count += 1
        self.used.add(name)
        return name

    def normal(self, name: str) -> str:
        """An argument's name: lower-case letters, digits and underscores, starting with a letter."""
        text = re.sub(r"[^a-z0-9]", "_", name.lower()).lstrip("0123456789_")
        return self.unique(text or "unknown")


def argument_names(inputs: list[str], outputs: list[str], given_outputs: list[str] | None = None) -> tuple[list[str], list[str]]:
    """The names that TF gives to a function's arguments and results, from the names of the nodes behind them."""
    names = _Names()
    if given_outputs:
        results = list(given_outputs)
        if len(set(results)) != len(results):
            twice = next(n for n in results if results.count(n) > 1)
            raise errors.InvalidArgumentError(f"Cannot have duplicate output names. Name '{twice}' appears more than once in 'output_names' array.")
        names.used.update(results)
    else:
        results = [names.normal(name) for name in outputs]
    return [names.normal(name) for name in inputs], results


def body_to_proto(function: Function, body: Graph) -> Any:
    """The FunctionDef of a function whose body was built here."""
    proto = protos.FunctionDef()
    proto.signature.CopyFrom(opdef_to_proto(function.op_def))
    if function.description:
        proto.signature.description = function.description
    for key, value in function.attrs.items():
        proto.attr[key].CopyFrom(encode(value, None))
    args = sorted((op for op in body if op.type == "_Arg"), key=lambda op: op.attrs["index"])
    rets = sorted((op for op in body if op.type == "_Retval"), key=lambda op: op.attrs["index"])
    names = _Names()
    names.used.update(a.name for a in (*function.op_def.inputs, *function.op_def.outputs))
    name_of = {op: function.op_def.inputs[i].name for i, op in enumerate(args)}
    nodes = [op for op in body if op.type not in ("_Arg", "_Retval")]
    for op in nodes:
        name_of[op] = names.unique(op.name)
    renamed = {op.name.encode(): name_of[op].encode() for op in nodes if name_of[op] != op.name}
    arguments = set(args)
    for i, op in enumerate(args):
        if op.attrs["T"].name not in ("resource", "variant"):
            proto.arg_attr[i].attr["_output_shapes"].CopyFrom(encode([op.outputs[0].shape], "list(shape)"))
        for key, value in op.attrs.items():
            if key.startswith("_") and key != "_output_shapes":
                proto.arg_attr[i].attr[key].CopyFrom(encode(value, None))

    def reference(tensor: Tensor) -> str:
        op = tensor.op
        if op in arguments:
            return name_of[op]
        for arg, (start, stop, _) in zip(op.op_def.outputs, arg_ranges(op.op_def.outputs, op.attrs), strict=True):
            if start <= tensor.value_index < stop:
                return f"{name_of[op]}:{arg.name}:{tensor.value_index - start}"
        raise AssertionError(tensor)

    for op in nodes:
        node = op.node_def
        node.name = name_of[op]
        del node.input[:]
        node.input.extend(reference(t) for t in op.inputs)
        node.input.extend(sorted("^" + name_of[c] for c in op.control_inputs))
        if renamed and "_class" in op.attrs:
            classes: list[bytes] = op.attrs["_class"]
            groups = [b"loc:@" + renamed.get(c[5:], c[5:]) if c.startswith(b"loc:@") else c for c in classes]
            node.attr["_class"].CopyFrom(encode(groups, "list(string)"))
        proto.node_def.append(node)
    for i, op in enumerate(rets):
        proto.ret[function.op_def.outputs[i].name] = reference(op.inputs[0])
    control: list[Operation] = getattr(body, "_control_ret", [])
    for op in control:
        proto.control_ret[name_of[op]] = name_of[op]
        proto.signature.control_output.append(name_of[op])
    return proto
