"""`tf.graph_util`: cutting, freezing and cleaning GraphDefs."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api.export import export
from penstock.formats import protos
from penstock.formats.tensor_proto import from_array


def _node_name(text: str) -> str:
    return text[1:] if text.startswith("^") else text.split(":")[0]


@export("graph_util.extract_sub_graph")
def extract_sub_graph(graph_def: Any, dest_nodes: list[str]) -> Any:
    """The part of `graph_def` that `dest_nodes` need, in the order of the original; functions and versions are kept."""
    graph_def = protos.coerce(graph_def, protos.GraphDef, "graph_def")
    if isinstance(dest_nodes, str):
        raise TypeError("dest_nodes must be an iterable of strings.")
    by_name = {node.name: node for node in graph_def.node}
    keep: set[str] = set()
    stack = list(dest_nodes)
    for name in stack:
        if name not in by_name:
            raise AssertionError(f"{name} is not in graph")
    while stack:
        name = stack.pop()
        if name in keep:
            continue
        keep.add(name)
        stack.extend(_node_name(text) for text in by_name[name].input if _node_name(text) in by_name)
    result = protos.GraphDef()
    result.node.extend(node for node in graph_def.node if node.name in keep)
    result.library.CopyFrom(graph_def.library)
    result.versions.CopyFrom(graph_def.versions)
    return result


@export("graph_util.must_run_on_cpu")
def must_run_on_cpu(node: Any, pin_variables_on_cpu: bool = False) -> bool:
    """True if a node can only run on a CPU: strings, int32 constants, and, if asked for, variables."""
    node_def = getattr(node, "node_def", node)
    if pin_variables_on_cpu and node_def.op in ("Variable", "VariableV2"):
        return True
    if node_def.op == "Const":
        return node_def.attr["dtype"].type in (dtypes.string.as_datatype_enum, dtypes.int32.as_datatype_enum)
    if node_def.op in ("DynamicStitch", "ParallelDynamicStitch"):
        return node_def.attr["T"].type == dtypes.int32.as_datatype_enum
    if node_def.op == "Cast":
        return dtypes.int32.as_datatype_enum in (node_def.attr["SrcT"].type, node_def.attr["DstT"].type)
    return False


@export("graph_util.tensor_shape_from_node_def_name")
def tensor_shape_from_node_def_name(graph: Any, input_name: str) -> Any:
    """The static shape of a tensor named as in a NodeDef's input."""
    name = input_name if ":" in input_name else input_name + ":0"
    return graph.get_tensor_by_name(name).get_shape()


_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape")
_VARIABLES = ("Variable", "VariableV2", "VarHandleOp")
_PASSING = ("Identity", "Enter", "Switch", "RefEnter", "RefSwitch")


@export("graph_util.convert_variables_to_constants")
def convert_variables_to_constants(
    sess: Any,
    input_graph_def: Any,
    output_node_names: list[str],
    variable_names_whitelist: list[str] | None = None,
    variable_names_blacklist: list[str] | None = None,
) -> Any:
    """Freezes a graph: variables become constants with the values they have in `sess`, and only what the outputs need remains."""
    graph_def = extract_sub_graph(input_graph_def, output_node_names)
    by_name = {node.name: node for node in graph_def.node}

    def chosen(name: str) -> bool:
        if variable_names_whitelist is not None and name not in variable_names_whitelist:
            return False
        return variable_names_blacklist is None or name not in variable_names_blacklist

    variables = [node for node in graph_def.node if node.op in _VARIABLES and chosen(node.name)]
    reads = {node.name: _read_tensor(sess, node) for node in variables}
    values = sess.run(reads) if reads else {}

    def handle_source(text: str) -> str | None:
        """The variable that a resource input comes from, through nodes that only pass it on."""
        name = _node_name(text)
        while name in by_name:
            node = by_name[name]
            if node.op == "VarHandleOp":
                return name if name in values else None
            if node.op not in _PASSING:
                return None
            name = _node_name(node.input[0])
        return None

    result = protos.GraphDef()
    for node in graph_def.node:
        new = result.node.add()
        if node.name in values:
            _convert_variable(node, new, np.asarray(values[node.name]))
            continue
        source = handle_source(node.input[0]) if node.op in _READS and node.input else None
        if source is not None:
            _convert_read(node, new, source, result)
            continue
        new.CopyFrom(node)
        if node.op in _PASSING and node.input and handle_source(node.input[0]) is not None:
            variable = by_name[handle_source(node.input[0])]  # type: ignore[index]
            new.attr["T"].type = variable.attr["dtype"].type
    result.library.CopyFrom(graph_def.library)
    result.versions.CopyFrom(graph_def.versions)
    return result


def _convert_variable(node: Any, new: Any, array: np.ndarray) -> None:
    """Variable -> Const of its value"""
    dtype = dtypes.as_dtype(node.attr["dtype"].type)
    new.name, new.op, new.device = node.name, "Const", node.device
    new.attr["dtype"].type = dtype.as_datatype_enum
    new.attr["value"].tensor.CopyFrom(from_array(array, dtype))
    new.input.extend(i for i in node.input if i.startswith("^"))


def _read_tensor(sess: Any, node: Any) -> Any:
    graph = sess.graph
    if node.op != "VarHandleOp":
        return graph.get_tensor_by_name(node.name + ":0")
    handle = graph.get_operation_by_name(node.name).outputs[0]
    for consumer in handle.consumers():
        if consumer.type == "ReadVariableOp" and not consumer.control_inputs:
            return consumer.outputs[0]
    from penstock.graph.raw import raw

    with graph.as_default(), graph.control_dependencies(None):
        return raw.ReadVariableOp(handle, dtype=dtypes.as_dtype(node.attr["dtype"].type))


def _convert_read(node: Any, new: Any, source: str, result: Any) -> None:
    new.name, new.device = node.name, node.device
    if node.op == "ReadVariableOp":
        new.op = "Identity"
        new.input.extend(node.input)
        new.attr["T"].type = node.attr["dtype"].type
        if "_class" in node.attr:
            new.attr["_class"].CopyFrom(node.attr["_class"])
    elif node.op == "VariableShape":
        new.op = "Shape"
        new.input.extend(node.input)
        new.attr["out_type"].CopyFrom(node.attr["out_type"])
        variable = next(n for n in result.node if n.name == source)
        new.attr["T"].type = variable.attr["dtype"].type
    elif node.op == "ResourceGather":
        axis = result.node.add(name=node.name + "/axis", op="Const", device=node.device)
        axis.attr["dtype"].type = dtypes.int32.as_datatype_enum
        axis.attr["value"].tensor.CopyFrom(from_array(np.array(node.attr["batch_dims"].i, np.int32), dtypes.int32))
        new.op = "GatherV2"
        new.input.extend([node.input[0], node.input[1], axis.name, *node.input[2:]])
        new.attr["Tparams"].type = node.attr["dtype"].type
        new.attr["Tindices"].CopyFrom(node.attr["Tindices"])
        new.attr["Taxis"].type = dtypes.int32.as_datatype_enum
        new.attr["batch_dims"].CopyFrom(node.attr["batch_dims"])
    else:
        new.op = "GatherNd"
        new.input.extend(node.input)
        new.attr["Tparams"].type = node.attr["dtype"].type
        new.attr["Tindices"].CopyFrom(node.attr["Tindices"])


@export("graph_util.remove_training_nodes")
def remove_training_nodes(input_graph: Any, protected_nodes: list[str] | None = None) -> Any:
    """Drops CheckNumerics and then Identity nodes that only pass values on, unless protected or used for control."""
    graph = protos.coerce(input_graph, protos.GraphDef, "input_graph")
    protected = set(protected_nodes or ())
    for kinds in (("CheckNumerics", "CheckNumericsV2", "Print"), ("Identity",)):
        graph = _spliced(graph, kinds, protected)
    return graph


def _spliced(graph: Any, kinds: tuple[str, ...], protected: set[str]) -> Any:
    by_name = {node.name: node for node in graph.node}
    control_sources = {text[1:] for node in graph.node for text in node.input if text.startswith("^")}
    spliced: dict[str, str] = {}
    for node in graph.node:
        if node.op not in kinds or node.name in protected or node.name in control_sources or "_class" in node.attr:
            continue
        if any(text.startswith("^") for text in node.input) or not node.input:
            continue
        if _node_name(node.input[0]) not in by_name:
            continue
        spliced[node.name] = node.input[0]

    def follow(text: str) -> str:
        seen = set()
        while not text.startswith("^") and _node_name(text) in spliced and _node_name(text) not in seen:
            seen.add(_node_name(text))
            text = spliced[_node_name(text)]
        return text

    result = protos.GraphDef()
    for node in graph.node:
        if node.name in spliced:
            continue
        new = result.node.add()
        new.CopyFrom(node)
        del new.input[:]
        new.input.extend(follow(text) for text in node.input)
    result.library.CopyFrom(graph.library)
    result.versions.CopyFrom(graph.versions)
    return result


