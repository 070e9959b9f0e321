"""tf.gradients and what belongs to it: hessians, custom gradients, the registry of gradient functions."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

from penstock import dtypes
from penstock.api.export import export, export_value
from penstock.backprop.check import compute_gradient, compute_gradient_error
from penstock.backprop.engine import UnconnectedGradients, gradients
from penstock.backprop.rules import RegisterGradient, not_differentiable, register_gradient
from penstock.backprop.slices import AggregationMethod
from penstock.graph import nest
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor, convert_to_tensor_or_indexed_slices
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw

export_value("gradients", gradients)
export_value("AggregationMethod", AggregationMethod)
export_value("test.compute_gradient", compute_gradient)
export_value("test.compute_gradient_error", compute_gradient_error)
export_value("UnconnectedGradients", UnconnectedGradients)
export_value("RegisterGradient", RegisterGradient)
export_value("NotDifferentiable", not_differentiable)
export_value("no_gradient", not_differentiable)
export_value("NoGradient", not_differentiable)

for _name in ("nest.flatten", "nest.pack_sequence_as", "nest.map_structure", "nest.assert_same_structure", "nest.is_nested"):
    export_value(_name, getattr(nest, _name.split(".")[1]))


@export("hessians")
def hessians(
    ys: Any,
    xs: Any,
    name: str = "hessians",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
) -> list[Tensor]:
    """Second derivatives of the sum of `ys` with respect to each x: tensors of shape x.shape + x.shape.

    >>> tf.hessians(tf.reduce_sum(x ** 3), [x])
    """
    from penstock.api.control_flow import while_loop
    from penstock.api.tensor_array import TensorArray

    xs = list(xs) if isinstance(xs, (list, tuple)) else [xs]
    options: dict[str, Any] = {
        "colocate_gradients_with_ops": colocate_gradients_with_ops, "gate_gradients": gate_gradients, "aggregation_method": aggregation_method,
    }  # fmt: skip
    result = []
    for gradient, x in zip(gradients(ys, xs, **options), xs, strict=True):
        x = convert_to_tensor(x) if not hasattr(x, "handle") else x
        value = convert_to_tensor(x)
        # One dimension, so that its entries can be counted.
        flat = raw.Reshape(gradient, constant([-1], dtypes.int32))
        n = raw.Size(value)

        def row(j: Any, rows: Any, flat: Any = flat, x: Any = x) -> Any:
            entry = raw.StridedSlice(flat, raw.Pack([j], axis=0), raw.Pack([raw.AddV2(j, 1)], axis=0), constant([1], dtypes.int32), shrink_axis_mask=1)
            return raw.AddV2(j, 1, name="add"), rows.write(j, gradients(entry, x)[0])

        loop_vars = [constant(0, dtypes.int32), TensorArray(value.dtype.base_dtype, n)]
        _, rows = while_loop(lambda j, _, n=n: raw.Less(j, n), row, loop_vars)
        shape = raw.Shape(value)
        result.append(raw.Reshape(rows.stack(), raw.ConcatV2([shape, shape], 0)))
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Custom gradients

_numbers = itertools.count()


@export("custom_gradient")
def custom_gradient(f: Callable[..., Any] | None = None) -> Any:
    """Decorator for a function with a gradient of its own: `f(*x)` returns `(y, grad_fn)`.

    `grad_fn(*dy)` returns the gradients with respect to the arguments. If `f` uses (resource) variables, `grad_fn` takes a
    keyword argument `variables` and returns `(grads, gradients of the variables)`.

    >>> @tf.custom_gradient
    ... def log1pexp(x):
    ...     e = tf.exp(x)
    ...     return tf.math.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))
    """
    if f is None:
        return custom_gradient

    @functools.wraps(f)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return _apply_custom(f, args, kwargs)

    return decorated


def _variables_of(graph: Any) -> dict[Tensor, Any]:
    """handle -> resource variable, for every variable that the graph's collections know."""
    found = {}
    for key in list(graph.collections):
        for item in graph.get_collection(key):
            handle = getattr(item, "handle", None)
            if isinstance(handle, Tensor) and handle.dtype == dtypes.resource and hasattr(item, "read_value"):
                found[handle] = item
    return found


def _handles_between(results: list[Tensor], arguments: list[Tensor]) -> list[Tensor]:
    """Handles of variables that `results` depend on other than by way of `arguments`."""
    stop = {t.op for t in arguments}
    handles: dict[Tensor, None] = {}
    seen: set[Operation] = set()
    stack = [t.op for t in results]
    while stack:
        op = stack.pop()
        if op in seen or op in stop:
            continue
        seen.add(op)
        for tensor in op.inputs:
            if tensor.dtype == dtypes.resource and tensor.op.type in ("VarHandleOp", "VarIsInitializedOp"):
                handles[tensor] = None
            stack.append(tensor.op)
    return list(handles)


def _apply_custom(f: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
    if kwargs:
        raise ValueError("The custom_gradient decorator currently supports keywords arguments only when eager execution is enabled.")
    graph = get_default_graph()
    name = f"CustomGradient-{next(_numbers)}"
    args = nest.map_structure(lambda x: convert_to_tensor_or_indexed_slices(x), args)
    flat_args = nest.flatten(args, expand_composites=True)
    before = set(_ref_variables(graph))
    result, grad_fn = f(*args)
    if set(_ref_variables(graph)) - before:
        raise TypeError(
            "All variables used by a function wrapped with @custom_gradient must be `ResourceVariable`s. Ensure that no `variable_scope` is "
            "created with `use_resource=False`."
        )
    flat_result = [convert_to_tensor(r) for r in nest.flatten(result, expand_composites=True)]
    known = _variables_of(graph)
    variables = [known[h] for h in _handles_between(flat_result, flat_args) if h in known]
    takes_variables = _takes_variables(grad_fn)
    if variables and not takes_variables:
        raise TypeError(
            "@tf.custom_gradient grad_fn must accept keyword argument 'variables', since function uses variables: "
            f"{[v.name for v in variables]}."
        )

    def internal(op: Operation, *dys: Any) -> list[Any]:
        dys = dys[: len(flat_result)]
        variable_grads: list[Any] = []
        if variables:
            input_grads, variable_grads = grad_fn(*dys, variables=variables)
            if len(variable_grads) != len(variables):
                raise ValueError("Must return gradient for each variable from @custom_gradient grad_fn.")
        else:
            input_grads = grad_fn(*dys)
        flat_grads = nest.flatten(input_grads)
        if len(flat_grads) != len(flat_args):
            raise ValueError(
                f"custom_gradient function expected to return {len(flat_args)} gradients, but returned {len(flat_grads)} instead."
            )
        # The op below passes results, arguments and variables on, so it has a gradient for each of them.
        return [None] * len(flat_result) + flat_grads + list(variable_grads)

    register_gradient(name, internal)
    with graph.gradient_override_map({"IdentityN": name}):
        passed = raw.IdentityN(flat_result + flat_args + [v.handle for v in variables])
    return nest.pack_sequence_as(result, list(passed)[: len(flat_result)], expand_composites=True)


def _ref_variables(graph: Any) -> list[Any]:
    return [op for op in graph if op.type in ("VariableV2", "Variable")]


def _takes_variables(grad_fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(grad_fn).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == "variables" or p.kind is p.VAR_KEYWORD for p in parameters)


@export("grad_pass_through")
def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, with the gradient of the identity function: what arrives at the result goes to the argument as it is."""

    @custom_gradient
    def passed(*args: Any, **kwargs: Any) -> Any:
        def grad(*dys: Any, variables: Any = None) -> Any:
            if variables is not None:
                return dys, [None] * len(variables)
            return dys

        return f(*args, **kwargs), grad

    return passed


@export("recompute_grad")
def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, whose intermediate results are computed again for the gradient instead of being kept in memory."""

    @custom_gradient
    def inner(*args: Any) -> Any:
        result = f(*args)

        def grad(*dys: Any, variables: Any = None) -> Any:
            graph = get_default_graph()
            with graph.control_dependencies(list(dys)):
                again = nest.map_structure(lambda x: raw.Identity(x) if isinstance(x, Tensor) else x, args)
                recomputed = f(*again)
            sources = [x for x in nest.flatten(again) if isinstance(x, Tensor)]
            found = gradients(nest.flatten(recomputed), sources + [v.handle for v in variables or []], grad_ys=list(dys))
            per_source = found[: len(sources)]
            return (per_source, found[len(sources) :]) if variables is not None else per_source

        return result, grad

    return inner
