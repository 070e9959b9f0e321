"""What a library function's signature must say before anybody may call it."""

from __future__ import annotations

from typing import Any

from penstock.dtypes import DType
from penstock.graph.opdef import MISSING, AttrDef, OpDef

_KINDS = frozenset(("string", "int", "float", "bool", "type", "shape", "tensor", "func"))


def check_signature(op_def: OpDef, checked_kind: Any) -> None:
    """Every argument has a name of its own and one type, by attributes that the signature declares. ValueError otherwise."""
    for attr in op_def.attrs.values():
        _check_attr(op_def, attr, checked_kind)
    for args in (op_def.inputs, op_def.outputs):
        names = [arg.name for arg in args]
        if not all(names) or len(set(names)) != len(names):
            raise ValueError(f"Function '{op_def.name}': arguments need names of their own, got {names}")
        for arg in args:
            if sum((arg.dtype is not None, bool(arg.type_attr), bool(arg.list_attr))) != 1 or (arg.list_attr and arg.number_attr):
                raise ValueError(f"Function '{op_def.name}': exactly one of type, type_attr, type_list_attr must be set for argument '{arg.name}'")
            for name, kind in ((arg.type_attr, "type"), (arg.list_attr, "list(type)"), (arg.number_attr, "int")):
                if name and (name not in op_def.attrs or op_def.attrs[name].kind != kind):
                    raise ValueError(f"Function '{op_def.name}': argument '{arg.name}' needs an attribute '{name}' of type {kind}")


def _check_attr(op_def: OpDef, attr: AttrDef, checked_kind: Any) -> None:
    is_list = attr.kind.startswith("list(") and attr.kind.endswith(")")
    base = attr.kind[5:-1] if is_list else attr.kind
    if not attr.name or base not in _KINDS:
        raise ValueError(f"Function '{op_def.name}': attribute '{attr.name}' has no valid type: '{attr.kind}'")
    cls: Any = {"type": DType, "string": bytes}.get(base)
    if attr.allowed is not None and (cls is None or not all(isinstance(v, cls) for v in attr.allowed)):
        raise ValueError(f"Function '{op_def.name}': the allowed values of attribute '{attr.name}' are not of its type {attr.kind}")
    if attr.minimum is not None and attr.kind != "int" and not is_list:
        raise ValueError(f"Function '{op_def.name}': attribute '{attr.name}' of type {attr.kind} cannot have a minimum")
    if attr.default is not MISSING:
        attr.default = checked_kind(f"Function '{op_def.name}'", attr, attr.default)
