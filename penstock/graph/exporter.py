"""Graph -> GraphDef."""

from __future__ import annotations

from typing import Any

from penstock.formats import protos
from penstock.formats.attr_value import FuncAttr, TensorAttr, encode
from penstock.graph.ir import Graph, Operation
from penstock.shapes import TensorShape


def node_def(op: Operation, add_shapes: bool = False) -> Any:
    """The NodeDef of one operation."""
    node = protos.NodeDef(name=op.name, op=op.type, device=op.device)
    node.input.extend(t._as_node_def_input() for t in op.inputs)
    node.input.extend(sorted("^" + c.name for c in op.control_inputs))
    declared = op.op_def.attrs
    for key, value in op.attrs.items():
        attr = declared.get(key)
        node.attr[key].CopyFrom(encode(value, attr.kind if attr is not None else None))
    if add_shapes:
        node.attr["_output_shapes"].CopyFrom(encode([t.shape for t in op.outputs], "list(shape)"))
    return node


def graph_def(graph: Graph, from_version: int | None = None, add_shapes: bool = False) -> Any:
    """The GraphDef of a whole graph, functions included."""
    result = protos.GraphDef()
    result.versions.CopyFrom(graph.graph_def_versions)
    start = 0 if from_version is None else from_version
    size = 0
    for op in graph:
        if op.id < start:
            continue
        value = op.attrs.get("value")
        if isinstance(value, TensorAttr):
            size += value.array.nbytes
            if size >= 1 << 31:
                raise ValueError("GraphDef cannot be larger than 2GB.")
        result.node.append(node_def(op, add_shapes))
    if graph.functions:
        library = result.library
        for function in graph.functions.values():
            library.function.append(function.to_proto())
        for name, gradient in graph.gradient_functions.items():
            library.gradient.add(function_name=name, gradient_func=gradient)
    return result


def public_value(value: Any) -> Any:
    """An attribute in the form that `Operation.get_attr` gives: messages for shapes, tensors and functions."""
    if isinstance(value, list):
        return [public_value(v) for v in value]
    if isinstance(value, TensorShape):
        return value.as_proto()
    if isinstance(value, TensorAttr):
        return encode(value, "tensor").tensor
    if isinstance(value, FuncAttr):
        return encode(value, "func").func
    return value
