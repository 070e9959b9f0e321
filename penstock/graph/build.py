"""Making nodes: attribute inference and validation, then creation under the graph's scopes.

`create_node` takes what is already right and only applies scopes, control flow and shape inference; `create_op` takes
tensors and attributes, infers and checks the rest in TF's words. `check_attrs` and `output_dtypes` serve importers too.
"""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.dtypes import DType
from penstock.formats.attr_value import FuncAttr, TensorAttr
from penstock.graph.ir import Graph, Operation, Tensor, capture_trace
from penstock.graph.opdef import MISSING, ArgDef, AttrDef, OpDef
from penstock.graph.shape_inference import infer_shapes
from penstock.names import check_op_name
from penstock.shapes import TensorShape


def create_node(
    graph: Graph, opdef: OpDef, inputs: list[Tensor], attrs: dict[str, Any], out_dtypes: list[DType], name: str
) -> Operation:
    """Adds a checked node under the graph's scopes: control inputs, device, colocation, shapes, control-flow context."""
    if graph._finalized:
        graph._check_not_finalized()
    controllers = graph._controllers
    control: list[Operation] | tuple = graph._control_inputs_for([t.op for t in inputs]) if controllers else ()
    op = graph.add_node(opdef, inputs, attrs, name, out_dtypes, control)
    op.trace = capture_trace()
    if graph._attr_scopes or graph._gradient_overrides or graph._container or graph._original_op is not None:
        _apply_attr_scopes(graph, op)
    try:
        infer_shapes(op)
    except Exception:
        graph.remove_node(op)  # a node that was refused leaves nothing behind
        raise
    if graph._device_cache != "":
        op.device = graph._device_for(op)
    context = graph._control_flow_context
    if context is not None:
        op._control_flow_context = context
        context.AddOp(op)
    if controllers:
        graph._record_op_seen(op)
    if graph._colocation_stack:
        _apply_colocation(graph, op)
    return op


def _apply_attr_scopes(graph: Graph, op: Operation) -> None:
    extra: dict[str, Any] = {}
    for key, value in graph._attr_scopes.items():
        if key in op.attrs:
            continue
        if callable(value):
            value = value(op.node_def)
            if value is None:
                continue
        if hasattr(value, "WhichOneof"):
            from penstock.formats.attr_value import decode

            value = decode(value)
        extra[key] = value
    if "_gradient_op_type" not in op.attrs and op.type in graph._gradient_overrides:
        extra["_gradient_op_type"] = graph._gradient_overrides[op.type].encode()
    if graph._container and op.op_def.stateful and op.attrs.get("container") == b"":
        extra["container"] = graph._container.encode()
    if extra:
        op.attrs = {**op.attrs, **extra}
    op._original_op = graph._original_op


def _apply_colocation(graph: Graph, op: Operation) -> None:
    groups: list[bytes] = []
    for other in graph._colocation_stack:
        groups.extend(g for g in other.colocation_groups() if g not in groups)
        if other.device:
            op.device = other.device
    # Colocation scopes win over a `_class` that an attribute scope gave.
    op.attrs = {**op.attrs, "_class": sorted(groups)}


def create_op(graph: Graph, op_type: str, inputs: list[Tensor], attrs: dict[str, Any], name: str | None) -> Operation:
    """A node from tensors and attributes: infers type attributes, fills in defaults, checks everything."""
    opdef = graph.op_def(op_type)
    for i, tensor in enumerate(inputs):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"Input #{i} is not a tensor: {tensor}")
        if tensor.graph is not graph:
            if graph.building_function:
                inputs[i] = graph.capture(tensor)  # type: ignore[attr-defined]
                continue
            raise ValueError(f"{tensor!r} must be from the same graph as the new operation of type {op_type}.")
    attrs = {k: canonical_attr(opdef.attrs.get(k), v, opdef) for k, v in attrs.items()}
    if name is None:
        name = op_type
    unique = check_op_name(name[:-1] if name.endswith("/") else graph.unique_name(name))
    attrs = complete_attrs(opdef, inputs, attrs, unique)
    return create_node(graph, opdef, inputs, attrs, output_dtypes(opdef, attrs), unique)


# ---------------------------------------------------------------------------------------------------------------------
# Attributes

_CASTS = {"int": int, "float": float, "bool": bool}
_MAX_COUNT = 1 << 22  # inputs or outputs of one argument: more of them are taken for damage


def canonical_attr(attr: AttrDef | None, value: Any, opdef: OpDef) -> Any:
    """`value` in the Python form that attribute `attr` is kept in; TypeError if it is of the wrong kind."""
    if hasattr(value, "WhichOneof"):
        from penstock.formats.attr_value import decode

        value = decode(value)
    if attr is None or value is None:
        return value
    kind = attr.kind
    if kind.startswith("list("):
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            raise TypeError(f"Expected list for attr {attr.name}, obtained {type(value).__name__} instead.")
        inner = kind[5:-1]
        return [_canonical(attr.name, inner, v, opdef) for v in value]
    return _canonical(attr.name, kind, value, opdef)


def _canonical(name: str, kind: str, value: Any, opdef: OpDef) -> Any:
    if kind == "type":
        if value.__class__ is not DType:
            try:
                value = dtypes.as_dtype(value)
            except TypeError as error:
                raise TypeError(f"Expected DataType for argument '{name}' not {value!r}.") from error
        return value.base_dtype if value._is_ref_dtype else value
    if kind == "string":
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return value.encode()
        raise TypeError(f"Expected string for argument '{name}' not {value!r}.")
    if kind == "int":
        if value.__class__ is int:
            return value
        try:
            if isinstance(value, (str, bytes, float)) and not (isinstance(value, float) and value == int(value)):
                raise TypeError
            return int(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"Expected int for argument '{name}' not {value!r}.") from error
    if kind == "bool":
        if isinstance(value, (bool, int)) or value.__class__.__name__ in ("bool_", "bool"):
            return bool(value)
        raise TypeError(f"Expected bool for argument '{name}' not {value!r}.")
    if kind == "float":
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            return float(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"Expected float for argument '{name}' not {value!r}.") from error
    if kind == "shape":
        if isinstance(value, TensorShape):
            return value
        try:
            return TensorShape(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"Error converting {value!r} (arg name = {name}) to a TensorShape: {error}") from error
    if kind == "func":
        if isinstance(value, FuncAttr):
            return value
        if isinstance(value, (str, bytes)):
            return FuncAttr(value if isinstance(value, str) else value.decode(), {})
        if hasattr(value, "add_to_graph"):
            from penstock.graph.defaults import get_default_graph

            value.add_to_graph(get_default_graph())
            return FuncAttr(value.name, {})
        raise TypeError(f"Don't know how to convert {value!r} to a func for argument {name}")
    if kind == "tensor":
        if isinstance(value, TensorAttr):
            return value
        if hasattr(value, "tensor_shape"):
            from penstock.formats.tensor_proto import to_array

            return TensorAttr(dtypes.as_dtype(value.dtype), to_array(value))
        from penstock.formats.values import convert_typed

        dtype, array = convert_typed(value)
        return TensorAttr(dtype, array)
    raise AssertionError(f"unknown kind of attribute: {kind}")


def complete_attrs(opdef: OpDef, inputs: list[Tensor], attrs: dict[str, Any], name: str) -> dict[str, Any]:
    """All of the op's attributes: given, inferred from the inputs' types, or default; checked against the signature."""
    result = dict(attrs)
    index = 0
    for arg in opdef.inputs:
        index = _infer_from(opdef, arg, inputs, index, result, name)
    if index != len(inputs):
        raise ValueError(
            f"NodeDef '{name}' expected inputs '{_signature_types(opdef, result)}' do not match {len(inputs)} inputs specified; Op<{opdef.signature}>"
        )
    return check_attrs(opdef, result, name)


def _infer_from(opdef: OpDef, arg: ArgDef, inputs: list[Tensor], index: int, attrs: dict[str, Any], name: str) -> int:
    """Reads attributes off the inputs that belong to `arg`, from flat position `index`; the position after them."""
    if arg.number_attr:
        count = attrs.get(arg.number_attr)
        if count is None:
            # Only one list of unknown length can stand in a signature without N given: it takes what is left.
            others = sum(1 for a in opdef.inputs if a is not arg)
            count = attrs[arg.number_attr] = len(inputs) - others
    elif arg.list_attr:
        types = attrs.get(arg.list_attr)
        if types is None:
            position = opdef.inputs.index(arg)
            after = len(opdef.inputs) - position - 1
            types = attrs[arg.list_attr] = [t.dtype.base_dtype for t in inputs[index : len(inputs) - after]]
        count = len(types)
    else:
        count = 1
    if index + count > len(inputs):
        raise ValueError(f"NodeDef '{name}': op {opdef.name} needs more inputs than the {len(inputs)} specified; Op<{opdef.signature}>")
    for i in range(index, index + count):
        tensor = inputs[i]
        got = tensor.dtype
        if arg.is_ref and not got._is_ref_dtype:
            raise TypeError(f"Input '{arg.name}' of '{opdef.name}' Op requires l-value input (a reference to a variable), but {tensor.name} is none")
        got = got.base_dtype
        if arg.list_attr:
            want = attrs[arg.list_attr][i - index]
        elif arg.type_attr:
            want = attrs.setdefault(arg.type_attr, got)
        else:
            want = arg.dtype
        if got is not want:
            raise TypeError(
                f"Input '{arg.name}' of '{opdef.name}' Op has type {got.name} that does not match expected type of {want.name}."  # type: ignore[union-attr]
            )
    return index + count


def check_attrs(opdef: OpDef, attrs: dict[str, Any], name: str, from_python: bool = False) -> dict[str, Any]:
    """Fills in defaults and checks every declared attribute; unknown ones must start with an underscore.

    TF has two ways to refuse a string, one for calls `from_python` and one for nodes of a GraphDef.
    """
    declared = opdef.attrs
    for key, attr in declared.items():
        value = attrs.get(key, MISSING)
        if value is MISSING or value is None:
            if attr.default is MISSING:
                raise ValueError(f"NodeDef missing attr '{key}' from Op<{opdef.signature}>; NodeDef: '{name}' = {opdef.name}")
            default = attr.default
            attrs[key] = list(default) if default.__class__ is list else default
        elif attr.allowed is not None or attr.minimum is not None:
            check_attr(opdef, attr, value, name, from_python)
    if len(attrs) > len(declared):
        for key in attrs:
            if key not in declared and not key.startswith("_"):
                raise ValueError(
                    f"NodeDef mentions attr '{key}' not in Op<{opdef.signature}>; NodeDef: '{name}' = {opdef.name}. "
                    "(Check whether your GraphDef-interpreting binary is up to date with your GraphDef-generating binary.)"
                )
    return attrs


def check_attr(opdef: OpDef, attr: AttrDef, value: Any, name: str, from_python: bool = False) -> None:
    values = value if value.__class__ is list else (value,)
    if attr.allowed is not None:
        for v in values:
            if v not in attr.allowed:
                _refuse(opdef, attr, v, name, from_python)
    if attr.minimum is not None:
        size = len(value) if value.__class__ is list else value
        if size < attr.minimum:
            what = "Length for attr" if value.__class__ is list else "Value for attr"
            raise ValueError(f"{what} '{attr.name}' of {size} must be at least minimum {attr.minimum}\n\t; NodeDef: '{name}' = {opdef.name}")


def _refuse(opdef: OpDef, attr: AttrDef, value: Any, name: str, from_python: bool) -> None:
    assert attr.allowed is not None
    if isinstance(value, DType):
        allowed = ", ".join(t.name for t in dtypes.ordered(attr.allowed))
        argument = next((a.name for a in opdef.inputs if attr.name in (a.type_attr, a.list_attr)), None)
        if argument is not None:
            raise TypeError(f"Value passed to parameter '{argument}' has DataType {value.name} not in list of allowed values: {allowed}")
        raise TypeError(f"Value passed to parameter '{attr.name}' has DataType {value.name} not in list of allowed values: {allowed}")
    allowed = ", ".join('"' + v.decode() + '"' for v in sorted(attr.allowed))
    shown = value.decode(errors="replace") if isinstance(value, bytes) else value
    if from_python:
        raise ValueError(f"Attr '{attr.name}' of '{opdef.name}' Op passed string '{shown}' not in: {allowed}.")
    raise ValueError(f"Value for attr '{attr.name}' of \"{shown}\" is not in the list of allowed values: {allowed}\n\t; NodeDef: '{name}' = {opdef.name}; Op<{opdef.signature}>")


def output_dtypes(opdef: OpDef, attrs: dict[str, Any]) -> list[DType]:
    """The flat list of output types that the attributes give."""
    return arg_dtypes(opdef.outputs, attrs)


def arg_dtypes(args: list[ArgDef], attrs: dict[str, Any]) -> list[DType]:
    result: list[DType] = []
    for arg in args:
        if arg.list_attr:
            result.extend(attrs[arg.list_attr])
            continue
        dtype: DType = attrs[arg.type_attr] if arg.type_attr else arg.dtype  # type: ignore[assignment]
        if arg.is_ref:
            dtype = dtype._as_ref
        if arg.number_attr:
            count = attrs[arg.number_attr]
            if not 0 <= count <= _MAX_COUNT:
                raise ValueError(f"Value for number_attr() '{arg.number_attr}' of argument '{arg.name}' is {count}; it must be between 0 and {_MAX_COUNT}")
            result.extend([dtype] * count)
        else:
            result.append(dtype)
    return result


def _signature_types(opdef: OpDef, attrs: dict[str, Any]) -> str:
    return ", ".join(repr(arg) for arg in opdef.inputs)
