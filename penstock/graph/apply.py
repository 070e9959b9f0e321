"""Applying an op to Python arguments: converts inputs, infers attributes, names the node.

This is the function behind every op of the public API, so it is written for the common case: all inputs are tensors
of the right types already. Constants made from Python values are named `Op/x` as in TF, inside the op's own scope.
"""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from penstock import dtypes
from penstock.dtypes import DType
from penstock.graph.bind import arg_ranges
from penstock.graph.build import arg_dtypes, canonical_attr, check_attr, check_attrs, create_node, output_dtypes
from penstock.graph.convert import convert_to_tensor, natural_dtype
from penstock.graph.defaults import get_default_graph, graph_scope
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.opdef import MISSING, ArgDef, OpDef
from penstock.names import check_scope_name
from penstock.shapes import TensorShape

_UNKNOWN_SHAPE = TensorShape(None)


def apply_op(opdef: OpDef, args: list[Any], attrs: dict[str, Any], name: str | None = None) -> Operation:
    """Adds one node of type `opdef` to the inputs' graph (or the default graph) and returns it."""
    graph = _graph_for(args)
    name = name or opdef.name
    scope = name[:-1] if name.endswith("/") else graph.unique_name(check_scope_name(name, at_root=not graph._name_stack))
    usual = None if attrs else tuple([value.dtype if value.__class__ is Tensor else None for value in args])
    if usual is not None and opdef.build_plan is not None and usual in opdef.build_plan:
        known, types = opdef.build_plan[usual]
        inputs = list(args)
        if graph.building_function:
            inputs = _captured(graph, scope, opdef, inputs, known)
        return create_node(graph, opdef, inputs, known.copy(), types, scope)
    known = {}
    for key, value in attrs.items():
        attr = opdef.attrs.get(key)
        if value is not None:
            known[key] = canonical_attr(attr, value, opdef)
        elif attr is not None and attr.kind == "shape":
            known[key] = _UNKNOWN_SHAPE  # everywhere else, None means that the attribute is not given
    if len(known) != len(attrs):
        _unknown_shapes(opdef, attrs, known)
    inputs = _fast_inputs(opdef, args, known)
    if inputs is None:
        inputs = _converted_inputs(graph, scope, opdef, args, known)
        known = check_attrs(opdef, known, scope, True)
        if graph.building_function:
            inputs = _captured(graph, scope, opdef, inputs, known)
        refs = _ref_ops(opdef, inputs, known)
        if refs:
            # What writes to a variable stays with it.
            with contextlib.ExitStack() as colocation:
                for op in refs:
                    colocation.enter_context(graph.colocate_with(op))
                return create_node(graph, opdef, inputs, known, output_dtypes(opdef, known), scope)
    else:
        known = check_attrs(opdef, known, scope, True)
        if usual is not None:
            _remember(opdef, usual, known)
        if graph.building_function:
            inputs = _captured(graph, scope, opdef, inputs, known)
    return create_node(graph, opdef, inputs, known, output_dtypes(opdef, known), scope)


def _remember(opdef: OpDef, types: tuple[DType | None, ...], attrs: dict[str, Any]) -> None:
    """Tensors of the same types as inputs give the same attributes and outputs, where no other attribute is given: most nodes of a graph are like
    one before them. Lists are left out, since each node has its own."""
    if not any(value.__class__ is list for value in attrs.values()):
        plan = opdef.build_plan
        if plan is None:
            plan = opdef.build_plan = {}
        plan[types] = attrs.copy(), output_dtypes(opdef, attrs)


def _captured(graph: Any, scope: str, opdef: OpDef, inputs: list[Tensor], attrs: dict[str, Any]) -> list[Tensor]:
    """In a function's body, tensors from outside become arguments of the function."""
    if all(tensor.op.graph is graph for tensor in inputs):
        return inputs
    old = graph._name_stack
    graph._name_stack = scope
    try:
        inside = [graph.capture(tensor) for tensor in inputs]
    finally:
        graph._name_stack = old
    wanted = arg_dtypes(opdef.inputs, attrs)
    if any(want._is_ref_dtype and not tensor.dtype._is_ref_dtype for tensor, want in zip(inside, wanted, strict=True)):
        got, want = ([f"tf.{d.name}" for d in types] for types in ([t.dtype for t in inside], wanted))
        raise TypeError(
            f"In op '{opdef.name}', input types ([{', '.join(got)}]) are not compatible with expected types ([{', '.join(want)}]). A function "
            "cannot take a reference variable from outside; use a resource variable (use_resource=True)."
        )
    return inside


def _ref_ops(opdef: OpDef, inputs: list[Tensor], attrs: dict[str, Any]) -> list[Operation]:
    """The ops behind the arguments that are variables."""
    if not any(arg.is_ref for arg in opdef.inputs):
        return []
    ranges = zip(opdef.inputs, arg_ranges(opdef.inputs, attrs), strict=True)
    return [tensor.op for arg, (start, stop, _) in ranges if arg.is_ref for tensor in inputs[start:stop]]


def _unknown_shapes(opdef: OpDef, attrs: dict[str, Any], known: dict[str, Any]) -> None:
    """None for an attribute means its default, but for a shape it is a value: nothing is known."""
    for key, value in attrs.items():
        attr = opdef.attrs.get(key)
        if value is None and attr is not None and attr.kind == "shape":
            known[key] = TensorShape(None)


def _graph_for(args: list[Any]) -> Graph:
    """The graph that the inputs agree on; inside a function's body, the body."""
    default = get_default_graph()
    if default.building_function:
        return default
    first: Any = None
    for value in args:
        if value.__class__ is Tensor and (first is None or value.op.graph is first.graph):  # nearly always
            if first is None:
                first = value
            continue
        for item in value if value.__class__ in (list, tuple) else (value,):
            graph = item.op.graph if item.__class__ is Tensor else getattr(item, "graph", None) if hasattr(item, "_as_graph_element") else None
            if graph is None:
                continue
            if first is None:
                first = item
            elif first.graph is not graph:
                raise ValueError(f"{item!r} must be from the same graph as {first!r}.")
    return default if first is None else first.graph


def _fast_inputs(opdef: OpDef, args: list[Any], known: dict[str, Any]) -> list[Tensor] | None:
    """The inputs as they are, if every one is a Tensor of a fitting type; fills `known`. None if conversion is needed."""
    if len(args) != len(opdef.inputs):
        raise TypeError(f"{opdef.name} takes {len(opdef.inputs)} inputs ({', '.join(a.name for a in opdef.inputs)}), got {len(args)}")
    types: dict[str, DType] = {}
    for arg, value in zip(opdef.inputs, args):
        if value.__class__ is not Tensor or arg.is_ref:
            return None
        dtype: DType = value.dtype
        if dtype._is_ref_dtype:
            dtype = dtype.base_dtype
        if arg.type_attr:
            if arg.number_attr:
                return None
            want = known.get(arg.type_attr) or types.get(arg.type_attr)
            if want is None:
                types[arg.type_attr] = dtype
            elif want is not dtype:
                return None
        elif arg.dtype is not dtype or arg.number_attr:
            return None
    for key, dtype in types.items():
        attr = opdef.attrs[key]
        if attr.allowed is not None and dtype not in attr.allowed:
            return None
    known.update(types)
    return list(args)


def _converted_inputs(graph: Graph, scope: str, opdef: OpDef, args: list[Any], known: dict[str, Any]) -> list[Tensor]:
    old = graph._name_stack
    graph._name_stack = scope
    try:
        with graph_scope(graph):
            inputs: list[Tensor] = []
            inferred_from: dict[str, str] = {}
            for arg, value in zip(opdef.inputs, args, strict=True):
                inputs += _convert_argument(opdef, arg, value, known, inferred_from)
            return inputs
    finally:
        graph._name_stack = old


def _convert_argument(opdef: OpDef, arg: ArgDef, value: Any, known: dict[str, Any], source: dict[str, str]) -> list[Tensor]:
    if arg.is_list:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"Expected list for '{arg.name}' argument to '{opdef.name}' Op, not {value!r}.")
        return _convert_list(opdef, arg, list(value), known, source)
    want = arg.dtype if arg.dtype is not None else known.get(arg.type_attr)
    prefer = None
    if want is None:
        attr = opdef.attrs[arg.type_attr]
        # The default type is for values whose own type the op does not take.
        if attr.default is not MISSING and (attr.allowed is None or natural_dtype(value) not in attr.allowed):
            prefer = attr.default
    tensor = _convert_one(opdef, arg, value, want, prefer, source)
    dtype = tensor.dtype.base_dtype
    if arg.type_attr and arg.type_attr not in known:
        _infer_type(opdef, arg, dtype, known, source)
    return [tensor]


def _convert_one(
    opdef: OpDef, arg: ArgDef, value: Any, want: DType | None, prefer: DType | None, source: dict[str, str]
) -> Tensor:
    try:
        tensor = convert_to_tensor(value, want, name=arg.name, as_ref=arg.is_ref, preferred_dtype=prefer)
    except TypeError as error:
        if want is None:
            raise
        raise TypeError(f"Expected {want.name} passed to parameter '{arg.name}' of op '{opdef.name}', got {value!r} of type '{type(value).__name__}' instead. Error: {error}") from error
    except ValueError as error:
        if want is None or not hasattr(value, "dtype"):
            raise
        got = convert_to_tensor(value).dtype.name
        _type_mismatch(opdef, arg, got, want, source, error)
    if want is not None and tensor.dtype.base_dtype is not want:
        _type_mismatch(opdef, arg, tensor.dtype.name, want, source, None)
    if arg.is_ref and not tensor.dtype._is_ref_dtype:
        raise TypeError(f"'{opdef.name}' Op requires that input '{arg.name}' be a mutable tensor (e.g.: a tf.Variable)")
    return tensor


def _type_mismatch(opdef: OpDef, arg: ArgDef, got: str, want: DType, source: dict[str, str], cause: Exception | None) -> NoReturn:
    if arg.type_attr and arg.type_attr in source:
        raise TypeError(
            f"Input '{arg.name}' of '{opdef.name}' Op has type {got} that does not match type {want.name} of argument '{source[arg.type_attr]}'."
        ) from cause
    raise TypeError(f"Input '{arg.name}' of '{opdef.name}' Op has type {got} that does not match expected type of {want.name}.") from cause


def _infer_type(opdef: OpDef, arg: ArgDef, dtype: DType, known: dict[str, Any], source: dict[str, str]) -> None:
    known[arg.type_attr] = dtype
    source[arg.type_attr] = arg.name
    attr = opdef.attrs[arg.type_attr]
    if attr.allowed is not None and dtype not in attr.allowed:
        allowed = ", ".join(t.name for t in dtypes.ordered(attr.allowed))
        raise TypeError(f"Value passed to parameter '{arg.name}' has DataType {dtype.name} not in list of allowed values: {allowed}")


def _convert_list(opdef: OpDef, arg: ArgDef, values: list[Any], known: dict[str, Any], source: dict[str, str]) -> list[Tensor]:
    if arg.number_attr:
        minimum = opdef.attrs[arg.number_attr].minimum
        if minimum is not None and len(values) < minimum:
            raise ValueError(f"List argument '{arg.name}' to '{opdef.name}' Op with length {len(values)} shorter than minimum length {minimum}.")
        if arg.number_attr in known and known[arg.number_attr] != len(values):
            raise ValueError(
                f"List argument '{arg.name}' to '{opdef.name}' Op with length {len(values)} must match length {known[arg.number_attr]} of argument "
                f"'{source.get(arg.number_attr, arg.number_attr)}'."
            )
        known[arg.number_attr] = len(values)
        source[arg.number_attr] = arg.name
        want = arg.dtype or known.get(arg.type_attr)
        if want is None:
            want = next((v.dtype.base_dtype for v in values if isinstance(v, Tensor) or hasattr(v, "_as_graph_element")), None)
        tensors = []
        for i, value in enumerate(values):
            try:
                tensor = convert_to_tensor(value, want, name=f"{arg.name}_{i}", as_ref=arg.is_ref)
            except (TypeError, ValueError) as error:
                if want is None or not hasattr(value, "dtype"):
                    raise
                got = ", ".join(v.dtype.base_dtype.name if hasattr(v, "dtype") else type(v).__name__ for v in values)
                raise TypeError(f"Tensors in list passed to '{arg.name}' of '{opdef.name}' Op have types [{got}] that don't all match.") from error
            tensors.append(tensor)
        if want is None and tensors:
            # Plain values decide for themselves: 1 next to 1.0 is no float.
            want = tensors[0].dtype.base_dtype
            if any(t.dtype.base_dtype is not want for t in tensors):
                got = ", ".join(t.dtype.base_dtype.name for t in tensors)
                raise TypeError(f"Tensors in list passed to '{arg.name}' of '{opdef.name}' Op have types [{got}] that don't all match.")
        if arg.type_attr and arg.type_attr not in known:
            if want is None:
                default = opdef.attrs[arg.type_attr].default
                if default is MISSING:
                    raise TypeError(f"Don't know how to infer type variable from empty input list passed to input '{arg.name}' of '{opdef.name}' Op.")
                want = default
            _infer_type(opdef, arg, want, known, source)
        return tensors
    given = known.get(arg.list_attr)
    if given is not None and len(given) != len(values):
        raise ValueError(f"List argument '{arg.name}' to '{opdef.name}' Op with length {len(values)} must match length {len(given)} of attr '{arg.list_attr}'.")
    tensors = [
        convert_to_tensor(v, None if given is None else given[i], name=f"{arg.name}_{i}", as_ref=arg.is_ref)
        for i, v in enumerate(values)
    ]
    if given is None:
        known[arg.list_attr] = [t.dtype.base_dtype for t in tensors]
        check_attr(opdef, opdef.attrs[arg.list_attr], known[arg.list_attr], opdef.name)
    return tensors
