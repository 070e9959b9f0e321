"""`raw.Op(inputs..., name=None, attr=...)` for every registered op: the functions that the public API is made of.

The result is the output tensor; several outputs come as a named tuple with TF's names, a list output as a list, and an
op without outputs as the Operation.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from penstock.graph.apply import apply_op
from penstock.graph.bind import arg_ranges
from penstock.graph.ir import Operation
from penstock.graph.opdef import OPS, OpDef, lookup


def results_of(op: Operation) -> Any:
    """What a raw function returns for `op`."""
    opdef = op.op_def
    if opdef.plain_output:
        return op.outputs[0]
    if not opdef.outputs:
        return op
    parts = [list(op.outputs[a:b]) if is_list else op.outputs[a] for a, b, is_list in arg_ranges(opdef.outputs, op.attrs)]
    if len(parts) == 1:
        return parts[0] or op  # an empty output list leaves nothing but the operation
    return _result_class(opdef)(*parts)


_result_classes: dict[str, Any] = {}


def _result_class(opdef: OpDef) -> Any:
    found = _result_classes.get(opdef.name)
    if found is None:
        found = _result_classes[opdef.name] = collections.namedtuple(opdef.name, [a.name for a in opdef.outputs], rename=True)  # type: ignore[misc] # noqa: PYI024
    return found


_AXIS = {"reduction_indices": "axis"}
PYTHON_NAMES: dict[str, dict[str, str]] = {
    **dict.fromkeys(("All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum"), _AXIS),
    "ExpandDims": {"dim": "axis"},
    "Select": {"t": "x", "e": "y"},
    "Split": {"split_dim": "axis"},
    "SplitV": {"split_dim": "axis"},
    "Squeeze": {"squeeze_dims": "axis"},
    "Where": {"input": "condition"},
}
"""Arguments that TF's `tf.raw_ops` calls otherwise than the op's signature does; both names are taken here."""


def make_raw(opdef: OpDef) -> Callable[..., Any]:
    """The raw function of one op: inputs by position or TF's argument name, attributes by keyword."""
    names = [arg.name for arg in opdef.inputs]
    attrs = opdef.attrs
    renamed = {python: own for own, python in PYTHON_NAMES.get(opdef.name, {}).items()}

    def raw_op(*args: Any, name: str | None = None, **keywords: Any) -> Any:
        values = list(args)
        if renamed:
            keywords = {renamed.get(key, key): value for key, value in keywords.items()}
        if len(values) != len(names):
            if len(values) > len(names):
                raise TypeError(f"{opdef.name} takes at most {len(names)} inputs ({', '.join(names)}); attributes go by keyword")
            for missing in names[len(values) :]:
                if missing not in keywords:
                    raise TypeError(f"{opdef.name}() missing a required argument: '{missing}'")
                values.append(keywords.pop(missing))
        for key in keywords:
            if key not in attrs and not key.startswith("_"):
                raise TypeError(f"{opdef.name}() got an unexpected keyword argument '{key}'")
        return results_of(apply_op(opdef, values, keywords, name))

    raw_op.__name__ = raw_op.__qualname__ = opdef.name
    raw_op.__doc__ = opdef.signature
    return raw_op


class _Raw:
    """Namespace of raw functions; made on first use and kept."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        opdef = lookup(name)
        function = make_raw(opdef)
        setattr(self, name, function)
        return function

    def __dir__(self) -> list[str]:
        return sorted(name for name in OPS if not name.startswith("_"))


raw: Any = _Raw()
