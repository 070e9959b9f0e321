"""What an op is: its signature, its attributes, and where the rest of its meaning hangs.

`OpDef` is the one record of an op. The signature part (arguments, attributes, flags) is TensorFlow's OpDef; the
behaviour part (shape rule, kernels, gradient, samples) is filled in by `penstock.ops.declare.op`. The registry `OPS`
maps names to records; graphs, passes and executors all read the same one.

A signature is written in one line:

    Sum(input: T, reduction_indices: Tidx) -> (output: T) [T: type in NUMBERS; keep_dims: bool = false] stateful
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any

from penstock import dtypes, errors
from penstock.dtypes import DType
from penstock.shapes import TensorShape


class _Missing:
    """The default of an attribute that has none."""

    def __repr__(self) -> str:
        return "<no default>"


MISSING = _Missing()


class ArgDef:
    """One input or output argument. Exactly one of `dtype`, `type_attr`, `list_attr` is set; `number_attr` may join the
    first two (`N*T`)."""

    __slots__ = ("dtype", "is_ref", "list_attr", "name", "number_attr", "type_attr")

    def __init__(
        self,
        name: str,
        dtype: DType | None = None,
        type_attr: str = "",
        number_attr: str = "",
        list_attr: str = "",
        is_ref: bool = False,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.type_attr = type_attr
        self.number_attr = number_attr
        self.list_attr = list_attr
        self.is_ref = is_ref

    @property
    def is_list(self) -> bool:
        return bool(self.number_attr or self.list_attr)

    def __repr__(self) -> str:
        kind = self.type_attr or self.list_attr or (self.dtype.name if self.dtype else "?")
        kind = f"list {kind}" if self.list_attr else kind
        kind = f"{self.number_attr}*{kind}" if self.number_attr else kind
        return f"{self.name}: {'ref ' if self.is_ref else ''}{kind}"


class AttrDef:
    """One attribute: kind as in TF's OpDef ("int", "list(type)", "func", ...), default, allowed values, minimum."""

    __slots__ = ("allowed", "default", "kind", "minimum", "name")

    def __init__(
        self, name: str, kind: str, default: Any = MISSING, allowed: frozenset | None = None, minimum: int | None = None
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.allowed = allowed
        self.minimum = minimum

    def __repr__(self) -> str:
        return f"AttrDef({self.name}: {self.kind}, default={self.default!r})"


_FROM_SIGNATURE = ("aggregate", "attrs", "commutative", "deprecated", "inputs", "outputs", "plain_output", "stateful", "uninitialized_ok")


class OpDef:
    """Everything Penstock knows about one op type."""

    __slots__ = (
        "aggregate", "async_kernel", "attrs", "build_plan", "commutative", "deprecated", "errors", "expensive", "gradient",
        "host_memory", "inputs", "kernel", "kernel_plan", "kernels", "name", "outputs", "plain_output", "samples",
        "shape_rule", "signature", "stateful", "uninitialized_ok", "where",
    )  # fmt: skip

    def __init__(
        self, name: str, inputs: list[ArgDef], outputs: list[ArgDef], attrs: dict[str, AttrDef], flags: Iterable[str] = ()
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.outputs = outputs
        self.attrs = attrs
        flags = list(flags)
        self.stateful = "stateful" in flags
        self.commutative = "commutative" in flags
        self.aggregate = "aggregate" in flags
        self.uninitialized_ok = "uninitialized_ok" in flags
        self.deprecated = next((int(f.split("@")[1]) for f in flags if f.startswith("deprecated@")), 0)
        self.signature = ""
        self.where = ""
        self.shape_rule: Callable[[Any], Any] | None = None
        self.kernel: Callable[..., Any] | None = None
        self.async_kernel: Callable[..., Any] | None = None
        self.kernels: dict[str, Callable[..., Any]] = {}  # kernels of further device types
        self.gradient: Any = MISSING
        self.samples: Any = ()
        self.errors: Any = ()
        self.expensive = False
        self.host_memory: frozenset[str] = frozenset()
        self.build_plan: Any = None  # filled on first use by graph.apply
        self.kernel_plan: Any = None  # filled on first use by runtime.kernels
        # One plain output: the kernel's result is the value itself.
        self.plain_output = len(outputs) == 1 and not outputs[0].is_list

    @classmethod
    def declared(cls, signature: str) -> OpDef:
        """An op whose signature line is read when somebody first asks for a part of it: hundreds are declared, few are used."""
        op = cls.__new__(cls)
        op.name = signature[: signature.index("(")].strip()
        op.signature = signature
        return op

    def __getattr__(self, name: str) -> Any:
        # Only reached while a slot is empty: the signature has not been read yet.
        if name not in _FROM_SIGNATURE:
            raise AttributeError(name)
        parsed = parse_signature(self.signature)
        for slot in _FROM_SIGNATURE:
            setattr(self, slot, getattr(parsed, slot))
        self.signature = parsed.signature
        return getattr(self, name)

    def has_kernel(self, device_type: str) -> bool:
        if device_type == "CPU":
            return self.kernel is not None or self.async_kernel is not None
        return device_type in self.kernels

    def __repr__(self) -> str:
        return f"<OpDef {self.name}>"


OPS: dict[str, OpDef] = {}


def register(opdef: OpDef) -> OpDef:
    """Adds `opdef` to the registry; a second op of the same name is an AlreadyExistsError."""
    if opdef.name in OPS:
        raise errors.AlreadyExistsError(f"Op with name {opdef.name} already registered at {OPS[opdef.name].where}")
    OPS[opdef.name] = opdef
    return opdef


def lookup(name: str) -> OpDef:
    """The OpDef called `name`; NotFoundError in TF's words, with near names, if there is none."""
    found = OPS.get(name)
    if found is None:
        import difflib

        near = difflib.get_close_matches(name, OPS, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise errors.NotFoundError(
            f"Op type not registered '{name}' in binary running on this machine. Make sure the Op and Kernel are registered "
            f"in the binary running in this process ({len(OPS)} ops are registered).{hint} "
            "An op can be added with penstock.ops.declare.op(...)."
        )
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Parsing of signature lines

_HEAD = re.compile(r"\s*(\w+)\((.*?)\)\s*->\s*\((.*?)\)\s*(?:\[(.*)\])?\s*([^\]]*)$", re.S)
_ATTR = re.compile(r"\s*(\w+)\s*:\s*(list\(\w+\)|\w+)\s*(?:in\s+(\{.*?\}|[A-Z_|]+))?\s*(?:>=\s*(-?\d+))?\s*(?:=\s*(.*))?$", re.S)
_TYPE_NAMES = {"float": "float32", "double": "float64", "half": "float16"}


def parse_signature(line: str) -> OpDef:
    """Reads one signature line (see the module's docstring) into an OpDef without behaviour."""
    match = _HEAD.match(line)
    if match is None:
        raise ValueError(f"not an op signature: {line!r}")
    name, ins, outs, attrs, flags = match.groups()
    attr_defs = {a.name: a for a in map(_parse_attr, _split(attrs or "", ";"))}
    opdef = OpDef(
        name,
        [_parse_arg(a, attr_defs) for a in _split(ins, ",")],
        [_parse_arg(a, attr_defs) for a in _split(outs, ",")],
        attr_defs,
        flags.split(),
    )
    opdef.signature = " ".join(line.split())
    return opdef


def _split(text: str, separator: str) -> list[str]:
    """Splits at `separator` outside of brackets and quotes."""
    if not text.strip():
        return []
    if not any(c in text for c in "{[('\""):
        return [part.strip() for part in text.split(separator)]
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            if c == quote and text[i - 1] != "\\":
                quote = ""
        elif c in "'\"":
            quote = c
        elif c in "{[(":
            depth += 1
        elif c in "}])":
            depth -= 1
        elif c == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return parts


def _parse_arg(text: str, attrs: dict[str, AttrDef]) -> ArgDef:
    name, _, kind = (part.strip() for part in text.partition(":"))
    is_ref = kind.startswith("ref ")
    kind = kind[4:] if is_ref else kind
    if kind.startswith("list "):
        return ArgDef(name, list_attr=kind[5:], is_ref=is_ref)
    number, star, rest = kind.partition("*")
    number, kind = (number, rest) if star else ("", kind)
    # An attribute may be called like a type (Bitcast's `type`), so attributes come first.
    if kind in attrs:
        return ArgDef(name, type_attr=kind, number_attr=number, is_ref=is_ref)
    return ArgDef(name, dtype=_dtype(kind), number_attr=number, is_ref=is_ref)


def _dtype(text: str) -> DType:
    return dtypes.as_dtype(_TYPE_NAMES.get(text, text))


def _type_set(text: str) -> frozenset[DType]:
    if text.startswith("{"):
        return frozenset(_dtype(t.strip()) for t in text[1:-1].split(","))
    return frozenset().union(*(getattr(dtypes, part) for part in text.split("|")))


def _parse_attr(text: str) -> AttrDef:
    match = _ATTR.match(text)
    if match is None:
        raise ValueError(f"not an attribute: {text!r}")
    name, kind, allowed, minimum, default = match.groups()
    base = kind[5:-1] if kind.startswith("list(") else kind
    allowed_set: frozenset | None = None
    if allowed is not None:
        allowed_set = (
            _type_set(allowed)
            if base == "type"
            else frozenset(_quoted(part) for part in _split(allowed[1:-1], ","))
        )
    value = MISSING if default is None else _parse_default(kind, base, default.strip())
    return AttrDef(name, kind, value, allowed_set, None if minimum is None else int(minimum))


def _quoted(text: str) -> bytes:
    """A quoted string's bytes. Escapes are rare, and `literal_eval` is a compiler."""
    return ast.literal_eval(text).encode() if "\\" in text else text[1:-1].encode()


def _parse_default(kind: str, base: str, text: str) -> Any:
    if kind.startswith("list("):
        return [_parse_default(base, base, part) for part in _split(text[1:-1], ",")]
    if base == "type":
        return _dtype(text)
    if base == "bool":
        return text == "true"
    if base == "int":
        return int(text)
    if base == "float":
        return float(text)
    if base == "string":
        return _quoted(text)
    if base == "shape":
        if text == "shape(unknown)":
            return TensorShape(None)
        return TensorShape([None if d in ("?", "-1") else int(d) for d in re.findall(r"\?|-?\d+", text)])
    raise ValueError(f"cannot read the default {text!r} of an attribute of kind {kind}")
