"""Samples as test cases: every sample of a declaration, for the types that the op allows.

The generated tests (`tests/ops/test_samples.py`) and the comparison with TensorFlow (`conformance/test_ops.py`) both read these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.dtypes import DType
from penstock.graph.opdef import MISSING, OPS, ArgDef, OpDef
from penstock.ops.samples import Program, Recipe

_PREFERRED = (dtypes.float32, dtypes.int32, dtypes.string, dtypes.complex64, dtypes.bool)


class Case:
    """One sample of one op with concrete inputs: `inputs[name]` is an array, or a list of arrays for a list argument."""

    def __init__(self, opdef: OpDef, index: int, inputs: dict[str, Any], attrs: dict[str, Any], dtype: DType | None) -> None:
        self.opdef = opdef
        self.index = index
        self.inputs = inputs
        self.attrs = attrs
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"{self.opdef.name}[{self.index}]" + (f"-{self.dtype.name}" if self.dtype is not None else "")


def samples_of(opdef: OpDef) -> list[Any]:
    """The declaration's samples; a function that makes them is called here."""
    return _made(opdef.samples)


def errors_of(opdef: OpDef) -> list[Any]:
    """The declaration's error cases, likewise."""
    return _made(opdef.errors)


def _made(values: Iterable[Any] | Callable[[], Iterable[Any]]) -> list[Any]:
    return list(values() if callable(values) else values)


def programs(opdef: OpDef) -> list[Program]:
    return [s for s in samples_of(opdef) if isinstance(s, Program)]


def cases(opdef: OpDef, every_type: bool = False) -> Iterator[Case]:
    """The op's sample cases: for its usual type, and with `every_type` for all types that the op allows."""
    for index, sample in enumerate(samples_of(opdef)):
        if not isinstance(sample, Program):
            yield from expand(opdef, index, sample, every_type)


def expand(opdef: OpDef, index: int, sample: dict[str, Any], every_type: bool = False) -> Iterator[Case]:
    """One sample as cases."""
    attrs = {k: v for k, v in sample.items() if k in opdef.attrs and not any(a.name == k for a in opdef.inputs)}
    tied = {name for arg in opdef.inputs for name in (arg.type_attr, arg.list_attr)}
    for name, attr in opdef.attrs.items():
        if attr.kind == "type" and attr.default is MISSING and name not in attrs and name not in tied:
            attrs[name] = next((t for t in _PREFERRED if attr.allowed is None or t in attr.allowed), None)
    main = _adaptable_attr(opdef, sample, attrs)
    if main is None:
        yield Case(opdef, index, _inputs(opdef, sample, attrs, {}), attrs, None)
        return
    for dtype in _types(opdef, main, every_type):
        yield Case(opdef, index, _inputs(opdef, sample, attrs, {main: dtype}), attrs, dtype)


def _adaptable_attr(opdef: OpDef, sample: dict[str, Any], attrs: dict[str, Any]) -> str | None:
    """The type attribute that a recipe without dtype leaves open; the first argument's comes first."""
    for arg in opdef.inputs:
        if arg.type_attr and arg.type_attr not in attrs and opdef.attrs[arg.type_attr].default is MISSING:
            values = sample[arg.name] if isinstance(sample[arg.name], (list, tuple)) and arg.is_list else [sample[arg.name]]
            if any(isinstance(v, Recipe) and v.dtype is None for v in values):
                return arg.type_attr
    return None


def _types(opdef: OpDef, attr: str, every_type: bool) -> list[DType]:
    allowed = opdef.attrs[attr].allowed
    usual = next((t for t in _PREFERRED if allowed is None or t in allowed), None)
    if usual is None:
        usual = dtypes.ordered(allowed or ())[0]
    if not every_type:
        return [usual]
    pool = allowed if allowed is not None else {dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.bool, dtypes.complex64, dtypes.uint8, dtypes.float16, dtypes.bfloat16}
    rest = [t for t in dtypes.ordered(pool) if t is not usual and not t.is_quantized and t not in (dtypes.string, dtypes.resource, dtypes.variant)]
    return [usual, *rest]


def _inputs(opdef: OpDef, sample: dict[str, Any], attrs: dict[str, Any], types: dict[str, DType]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for position, arg in enumerate(opdef.inputs):
        value = sample[arg.name]
        if arg.is_list:
            result[arg.name] = [_array(opdef, arg, v, attrs, types, 100 * position + i) for i, v in enumerate(value)]
        else:
            result[arg.name] = _array(opdef, arg, value, attrs, types, 100 * position)
    return result


def _array(opdef: OpDef, arg: ArgDef, value: Any, attrs: dict[str, Any], types: dict[str, DType], seed: int) -> np.ndarray:
    dtype = _arg_dtype(opdef, arg, value, attrs, types)
    if isinstance(value, Recipe):
        array = value.make(None if dtype is None else dtype.np, seed)
        return array
    if isinstance(value, np.ndarray) and dtype is None:
        return value
    if dtype is not None and dtype is dtypes.string:
        array = np.array(value, dtype=object)
        flat = [v.encode() if isinstance(v, str) else v for v in array.ravel()]
        result = np.empty(array.shape, dtype=object)
        result.ravel()[:] = flat
        return result
    return np.array(value, dtype=None if dtype is None else dtype.np)


def _arg_dtype(opdef: OpDef, arg: ArgDef, value: Any, attrs: dict[str, Any], types: dict[str, DType]) -> DType | None:
    if arg.dtype is not None:
        return arg.dtype
    if arg.list_attr:
        return None
    if arg.type_attr in types:
        return types[arg.type_attr]
    if arg.type_attr in attrs:
        return dtypes.as_dtype(attrs[arg.type_attr])
    if isinstance(value, np.ndarray):
        return dtypes.from_np(value.dtype)
    if isinstance(value, Recipe) and value.dtype is not None:
        return None
    default = opdef.attrs[arg.type_attr].default
    if default is not MISSING:
        return default
    allowed = opdef.attrs[arg.type_attr].allowed
    if allowed is None:
        return None if not isinstance(value, Recipe) else dtypes.float32
    if isinstance(value, Recipe):
        return next((t for t in _PREFERRED if t in allowed), dtypes.ordered(allowed)[0])
    natural = dtypes.from_np(np.array(value).dtype)
    return natural if natural in allowed else next((t for t in _PREFERRED if t in allowed), dtypes.ordered(allowed)[0])


def sampled_ops() -> list[OpDef]:
    """Every op that has samples, by name."""
    return [OPS[name] for name in sorted(OPS) if OPS[name].samples]
