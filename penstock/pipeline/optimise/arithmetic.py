"""Arithmetic simplification: local rewrites, each one rule with its own name.

A rule looks at one node and returns the tensor to read instead of its output (or a `Retype`), or None. Rules only fire where the value,
its type and its static shape stay the same; the docstring is the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.graph.ir import Graph, Operation, Tensor
from penstock.pipeline.optimise.edit import Edit, is_pure
from penstock.runtime.kernels import is_live


class Retype(NamedTuple):
    """Make the node an op of another type."""

    op_type: str
    inputs: list[Tensor]
    attrs: dict[str, Any]


class View(NamedTuple):
    """What a rule may ask about a node's inputs, with earlier rewrites of the same pass in force."""

    op: Operation
    inputs: list[Tensor]

    def constant(self, i: int) -> np.ndarray | None:
        producer = self.inputs[i].op
        return producer.attrs["value"].array if producer.type == "Const" else None

    def is_all(self, i: int, value: float) -> bool:
        """Whether input `i` is a constant whose elements all equal `value`."""
        array = self.constant(i)
        return array is not None and array.size > 0 and array.size <= 4096 and array.dtype != object and bool(np.all(array == value))

    def keeps_shape(self, i: int, other: int) -> bool:
        """Whether broadcasting input `i` against input `other` gives input `i`'s own shape."""
        array = self.constant(other)
        if array is not None and array.ndim == 0:
            return True
        dims, out = self.inputs[i].dims, self.op.outputs[0].dims
        return dims is not None and None not in dims and dims == out


def rule_times_one(v: View) -> Tensor | None:
    """x * 1 -> x"""
    for i, j in ((0, 1), (1, 0)):
        if v.is_all(j, 1) and v.keeps_shape(i, j):
            return v.inputs[i]
    return None


def rule_plus_zero(v: View) -> Tensor | None:
    """x + 0 -> x   (integers only: -0.0 + 0.0 is 0.0)"""
    if not v.op.outputs[0].dtype.is_integer:
        return None
    for i, j in ((0, 1), (1, 0)):
        if v.is_all(j, 0) and v.keeps_shape(i, j):
            return v.inputs[i]
    return None


def rule_minus_zero(v: View) -> Tensor | None:
    """x - 0 -> x"""
    return v.inputs[0] if v.is_all(1, 0) and v.keeps_shape(0, 1) else None


def rule_over_one(v: View) -> Tensor | None:
    """x / 1 -> x"""
    return v.inputs[0] if v.is_all(1, 1) and v.keeps_shape(0, 1) else None


def rule_power_one(v: View) -> Tensor | None:
    """x ** 1 -> x"""
    return v.inputs[0] if v.is_all(1, 1) and v.keeps_shape(0, 1) else None


def rule_power_two(v: View) -> Retype | None:
    """x ** 2 -> square(x)   (floating point)"""
    if v.is_all(1, 2) and v.keeps_shape(0, 1) and v.op.outputs[0].dtype.name in ("float32", "float64"):
        return Retype("Square", [v.inputs[0]], {"T": v.op.attrs["T"]})
    return None


def rule_double_negation(v: View) -> Tensor | None:
    """-(-x) -> x"""
    inner = v.inputs[0].op
    return inner.inputs[0] if inner.type == v.op.type else None


def rule_double_not(v: View) -> Tensor | None:
    """not (not x) -> x"""
    inner = v.inputs[0].op
    return inner.inputs[0] if inner.type == v.op.type else None


def rule_same_cast(v: View) -> Tensor | None:
    """cast(x, type of x) -> x"""
    return v.inputs[0] if v.op.attrs["SrcT"] is v.op.attrs["DstT"] else None


def rule_identity(v: View) -> Tensor | None:
    """identity(x) -> x"""
    return v.inputs[0]


def rule_same_reshape(v: View) -> Tensor | None:
    """reshape(x, shape of x) -> x"""
    dims = v.inputs[0].dims
    target = v.constant(1)
    if dims is not None and target is not None and None not in dims and tuple(target.tolist()) == dims:
        return v.inputs[0]
    return None


def rule_along_no_axis(v: View) -> Tensor | None:
    """reduce(x, []) -> x"""
    axes = v.constant(1)
    return v.inputs[0] if axes is not None and not axes.size else None


def rule_reshape_of_reshape(v: View) -> Retype | None:
    """reshape(reshape(x, a), b) -> reshape(x, b)"""
    inner = v.inputs[0].op
    if inner.type != "Reshape" or inner.control_inputs:
        return None
    return Retype("Reshape", [inner.inputs[0], v.inputs[1]], v.op.attrs)


def rule_transpose_of_transpose(v: View) -> Tensor | None:
    """transpose(transpose(x, p), q) -> x   if q undoes p"""
    inner = v.inputs[0].op
    if inner.type != "Transpose":
        return None
    q, producer = v.constant(1), inner.inputs[1].op
    p = producer.attrs["value"].array if producer.type == "Const" else None
    if p is None or q is None or p.shape != q.shape or not np.array_equal(p[q], np.arange(p.size)):
        return None
    return inner.inputs[0]


def rule_trivial_transpose(v: View) -> Tensor | None:
    """transpose(x, [0, 1, ...]) -> x"""
    q = v.constant(1)
    return v.inputs[0] if q is not None and np.array_equal(q, np.arange(q.size)) else None


def rule_concat_of_one(v: View) -> Tensor | None:
    """add_n([x]) -> x"""
    return v.inputs[0] if len(v.inputs) == 1 else None


RULES: dict[str, list[Callable[[View], Tensor | Retype | None]]] = {
    "Mul": [rule_times_one],
    "Add": [rule_plus_zero],
    "AddV2": [rule_plus_zero],
    "Sub": [rule_minus_zero],
    "RealDiv": [rule_over_one],
    "Div": [rule_over_one],
    "Pow": [rule_power_one, rule_power_two],
    "Neg": [rule_double_negation],
    "LogicalNot": [rule_double_not],
    "Cast": [rule_same_cast],
    "Identity": [rule_identity],
    "StopGradient": [rule_identity],
    "PreventGradient": [rule_identity],
    "Snapshot": [rule_identity],
    "Reshape": [rule_same_reshape, rule_reshape_of_reshape],
    "Transpose": [rule_trivial_transpose, rule_transpose_of_transpose],
    "AddN": [rule_concat_of_one],
    "Sum": [rule_along_no_axis],
    "Prod": [rule_along_no_axis],
    "Max": [rule_along_no_axis],
    "Min": [rule_along_no_axis],
    "Mean": [rule_along_no_axis],
}
"""Op type -> rules, tried in this order."""


def simplify_arithmetic(graph: Graph, context: Any) -> Graph:
    """Applies every rule of `RULES` once over the graph, in the graph's order."""
    if not any(op.type in RULES for op in graph):
        return graph
    edit = Edit(graph)
    counts: dict[str, int] = {}
    for op in graph:
        rules = RULES.get(op.type)
        if rules is None or not is_pure(op) or op.control_inputs:
            continue
        if any(t.op.control_inputs for t in op.inputs if t.op.type == "Const"):
            continue  # the constant makes the node wait for something
        view = View(op, [edit.resolve(t) for t in op.inputs])
        # A value that comes out of control flow must keep the node between it and its consumers.
        for rule in rules:
            result = rule(view)
            if result is None or not _fits(op, result):
                continue
            counts[rule.__name__] = counts.get(rule.__name__, 0) + 1
            if isinstance(result, Retype):
                edit.retyped[op] = result
            else:
                edit.redirect[op.outputs[0]] = result
            break
    if not edit:
        return graph
    edit.why.extend(f"{name} {count} times: {_doc(name)}" for name, count in counts.items())
    context.note(edit)
    return edit.apply(context.roots(graph))


def _fits(op: Operation, result: Tensor | Retype) -> bool:
    if isinstance(result, Retype):
        return True
    producer = result.op
    if result.dtype is not op.outputs[0].dtype or producer.device != op.device:
        return False
    # A reference variable's value now is not its value later: the node takes it.
    if is_live(result):
        return op.type in ("Identity", "Snapshot")
    # Switch outputs may be dead and Identity nodes behind them carry control edges for a branch: leave these alone.
    return producer.type not in ("Switch", "RefSwitch", "Enter", "RefEnter", "Merge", "RefMerge", "_SwitchN")


def _doc(name: str) -> str:
    return next((rule.__doc__ or "" for rules in RULES.values() for rule in rules if rule.__name__ == name), "").strip()
