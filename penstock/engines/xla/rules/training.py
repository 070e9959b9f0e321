"""Training ops: one formula for each optimizer, for dense and sparse gradients, reference and resource variables.

A formula takes the variable and its slots, then what the op takes, by the names of the op's arguments, and returns the new values of
the variable and its slots. The order of operations is that of the CPU kernels. Sparse ops apply it to the named rows; a row that is
named twice is updated twice, in order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import resource
from penstock.engines.xla.checks import is_known, need
from penstock.engines.xla.rule import Var, jnp, lax, rule
from penstock.engines.xla.values import array
from penstock.graph.opdef import OPS

Values = tuple[Any, ...]
_GRADIENTS = ("grad", "delta")

# -- formulas ---------------------------------------------------------------------------------------------------------


def gradient_descent(var: Any, alpha: Any, delta: Any) -> Values:
    return (var - delta * alpha,)


def momentum(var: Any, accum: Any, lr: Any, grad: Any, momentum: Any, *, use_nesterov: bool) -> Values:
    accum = accum * momentum + grad
    step = grad * lr + accum * momentum * lr if use_nesterov else accum * lr
    return var - step, accum


def keras_momentum(var: Any, accum: Any, lr: Any, grad: Any, momentum: Any, *, use_nesterov: bool) -> Values:
    step = grad * lr
    accum = accum * momentum - step
    return var + (accum * momentum - step if use_nesterov else accum), accum


def adagrad(var: Any, accum: Any, lr: Any, grad: Any, *, update_slots: bool) -> Values:
    accum = accum + grad * grad if update_slots else accum
    return var - grad * lr * lax.rsqrt(accum), accum


def adagrad_v2(var: Any, accum: Any, lr: Any, epsilon: Any, grad: Any, *, update_slots: bool) -> Values:
    accum = accum + grad * grad if update_slots else accum
    return var - grad * lr / (jnp.sqrt(accum) + epsilon), accum


def adagrad_da(var: Any, gradients: Any, squares: Any, grad: Any, lr: Any, l1: Any, l2: Any, global_step: Any) -> Values:
    gradients, squares = gradients + grad, squares + grad * grad
    step = global_step.astype(var.dtype)
    # Without l1 this is -lr * gradients / below, exactly.
    shrunk = jnp.maximum(jnp.abs(gradients) - _positive(l1) * step, _zero(var))
    return lr * -jnp.sign(gradients) * shrunk / (l2 * step * lr + jnp.sqrt(squares)), gradients, squares


def sparse_adagrad_da(var: Any, gradients: Any, squares: Any, grad: Any, lr: Any, l1: Any, l2: Any, global_step: Any) -> Values:
    gradients, squares = gradients + grad, squares + grad * grad
    step = global_step.astype(var.dtype)
    shrunk = jnp.maximum(jnp.abs(gradients) / step - _positive(l1), _zero(var))
    return -jnp.sign(gradients) * shrunk / (l2 + jnp.sqrt(squares) / (step * lr)), gradients, squares


def adadelta(var: Any, accum: Any, accum_update: Any, lr: Any, rho: Any, epsilon: Any, grad: Any) -> Values:
    rest = 1 - rho
    accum = accum * rho + grad * grad * rest
    update = jnp.sqrt(accum_update + epsilon) * lax.rsqrt(accum + epsilon) * grad
    return var - update * lr, accum, accum_update * rho + update * update * rest


def adam(
    var: Any, m: Any, v: Any, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Any, *,
    use_nesterov: bool,
) -> Values:  # fmt: skip
    alpha = lr * jnp.sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    step = (grad * (1 - beta1) + beta1 * m) * alpha if use_nesterov else m * alpha
    return var - step / (jnp.sqrt(v) + epsilon), m, v


def adam_amsgrad(
    var: Any, m: Any, v: Any, vhat: Any, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Any
) -> Values:
    alpha = lr * jnp.sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    vhat = jnp.maximum(vhat, v)
    return var - m * alpha / (jnp.sqrt(vhat) + epsilon), m, v, vhat


def adamax(var: Any, m: Any, v: Any, beta1_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Any) -> Values:
    m = m + (grad - m) * (1 - beta1)
    v, size = beta2 * v, jnp.abs(grad)
    v = jnp.where(size > v, size, v)  # no maximum: a gradient that is NaN leaves it as it is
    return var - lr / (1 - beta1_power) * (m / (v + epsilon)), m, v


def rmsprop(var: Any, ms: Any, mom: Any, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any) -> Values:
    ms = ms + (grad * grad - ms) * (1 - rho)
    mom = mom * momentum + grad * lr / jnp.sqrt(epsilon + ms)
    return var - mom, ms, mom


def centered_rmsprop(var: Any, mg: Any, ms: Any, mom: Any, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any) -> Values:
    ms = ms + (grad * grad - ms) * (1 - rho)
    mg = mg + (grad - mg) * (1 - rho)
    mom = mom * momentum + grad * lr / jnp.sqrt(ms - mg * mg + epsilon)
    return var - mom, mg, ms, mom


def sparse_rmsprop(var: Any, ms: Any, mom: Any, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any) -> Values:
    ms = ms * rho + grad * grad * (1 - rho)
    mom = mom * momentum + lax.rsqrt(ms + epsilon) * lr * grad
    return var - mom, ms, mom


def sparse_centered_rmsprop(
    var: Any, mg: Any, ms: Any, mom: Any, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Any
) -> Values:
    ms = ms * rho + grad * grad * (1 - rho)
    mg = mg * rho + grad * (1 - rho)
    mom = mom * momentum + lax.rsqrt(ms + epsilon - mg * mg) * lr * grad
    return var - mom, mg, ms, mom


def add_sign(var: Any, m: Any, lr: Any, alpha: Any, sign_decay: Any, beta: Any, grad: Any) -> Values:
    m = m * beta + grad * (1 - beta)
    return var - lr * (alpha + sign_decay * (jnp.sign(grad) * jnp.sign(m))) * grad, m


def power_sign(var: Any, m: Any, lr: Any, logbase: Any, sign_decay: Any, beta: Any, grad: Any) -> Values:
    m = m * beta + grad * (1 - beta)
    return var - lr * jnp.exp(logbase * sign_decay * (jnp.sign(grad) * jnp.sign(m))) * grad, m


def proximal_gradient_descent(var: Any, alpha: Any, l1: Any, l2: Any, delta: Any) -> Values:
    return (_shrunk(var - delta * alpha, alpha, l1, l2),)


def sparse_proximal_gradient_descent(var: Any, alpha: Any, l1: Any, l2: Any, grad: Any) -> Values:
    return proximal_gradient_descent(var, alpha, l1, l2, grad)


def proximal_adagrad(var: Any, accum: Any, lr: Any, l1: Any, l2: Any, grad: Any) -> Values:
    accum = accum + grad * grad
    rate = lr * lax.rsqrt(accum)
    return _shrunk(var - grad * rate, rate, l1, l2), accum


def _shrunk(prox: Any, rate: Any, l1: Any, l2: Any) -> Any:
    """Towards zero by rate * l1 (not at all without l1), then scaled by l2."""
    return jnp.sign(prox) * jnp.maximum(jnp.abs(prox) - rate * _positive(l1), _zero(prox)) / (1 + rate * l2)


def _positive(l1: Any) -> Any:
    return jnp.maximum(l1, _zero(l1))


def _zero(x: Any) -> np.ndarray:
    return np.zeros((), x.dtype)


def ftrl(
    var: Any, accum: Any, linear: Any, grad: Any, lr: Any, l1: Any, l2: Any, lr_power: Any, *, multiply_linear_by_lr: bool
) -> Values:
    return _ftrl(var, accum, linear, grad, grad, lr, l1, l2, lr_power, multiply_linear_by_lr)


def ftrl_v2(
    var: Any, accum: Any, linear: Any, grad: Any, lr: Any, l1: Any, l2: Any, l2_shrinkage: Any, lr_power: Any, *,
    multiply_linear_by_lr: bool,
) -> Values:  # fmt: skip
    pull = grad + 2 * l2_shrinkage * var
    return _ftrl(var, accum, linear, grad, pull, lr, l1, l2, lr_power, multiply_linear_by_lr)


def sparse_ftrl(
    var: Any, accum: Any, linear: Any, grad: Any, lr: Any, l1: Any, l2: Any, lr_power: Any, *, multiply_linear_by_lr: bool
) -> Values:
    return _ftrl(var, accum, linear, grad, grad, lr, l1, l2, lr_power, multiply_linear_by_lr, sparse=True)


def sparse_ftrl_v2(
    var: Any, accum: Any, linear: Any, grad: Any, lr: Any, l1: Any, l2: Any, l2_shrinkage: Any, lr_power: Any, *,
    multiply_linear_by_lr: bool,
) -> Values:  # fmt: skip
    pull = grad + 2 * l2_shrinkage * var
    return _ftrl(var, accum, linear, grad, pull, lr, l1, l2, lr_power, multiply_linear_by_lr, sparse=True)


def _ftrl(
    var: Any, accum: Any, linear: Any, grad: Any, pull: Any, lr: Any, l1: Any, l2: Any, lr_power: Any, by_lr: bool, sparse: bool = False
) -> Values:
    """`pull` is the gradient that moves the linear term: with shrinkage in version 2. What is NaN gives 0 in a dense update, and NaN in a sparse one."""
    new = accum + grad * grad
    root, old = _to_minus(new, lr_power), _to_minus(accum, lr_power)
    if by_lr:
        linear = linear + (pull * lr - (root - old) * var)
        bound, below = l1 * lr, root + 2 * l2 * lr
    else:
        linear = linear + (pull - (root - old) / lr * var)
        bound, below = l1, root / lr + 2 * l2
    if sparse:
        return (jnp.maximum(jnp.minimum(linear, bound), -bound) - linear) / below, new, linear
    above = bound * jnp.sign(linear) - linear
    return jnp.where(jnp.abs(linear) > bound, above / below, _zero(var)), new, linear


def _to_minus(x: Any, power: Any) -> Any:
    """x ** -power; a square root for the usual power of -0.5."""
    if is_known(power):
        return jnp.sqrt(x) if power == -0.5 else x**-power
    return jnp.where(power == -0.5, jnp.sqrt(x), x**-power)


# -- from formulas to rules -------------------------------------------------------------------------------------------


def _checked(names: list[str], slots: int, variables: list[Any], rest: Values) -> None:
    """Shapes and types, as far as dense and sparse ops have them in common."""
    first = variables[0]
    need(first.dtype.kind not in "iuc", "training of integers or complex numbers")
    for value in variables:
        need(value.shape == first.shape and value.dtype == first.dtype, "slots that do not fit the variable")
    for name, value in zip(names[slots:], rest, strict=True):
        if name not in ("global_step", "indices"):
            need(value.dtype == first.dtype, "arguments of another type than the variable")
        if name not in (*_GRADIENTS, "indices"):
            need(value.ndim == 0, "a hyperparameter that is not a scalar")


def _dense(formula: Callable[..., Values], names: list[str], slots: int) -> Callable[..., Values]:
    at = next(i for i, name in enumerate(names) if name in _GRADIENTS) - slots

    def update(values: list[Any], rest: Values, attrs: dict[str, Any]) -> Values:
        _checked(names, slots, values, rest)
        need(rest[at].shape == values[0].shape, "a gradient of another shape than the variable")
        return formula(*values, *rest, **attrs)

    return update


def _occurrences(indices: Any) -> Any:
    """For each index, how many of the same stand before it."""
    n = indices.shape[0]
    order = jnp.argsort(indices, stable=True)
    ranked = indices[order]
    starts = jnp.where(ranked[1:] != ranked[:-1], np.arange(1, n), 0)
    start = lax.cummax(jnp.concatenate([np.zeros(1, starts.dtype), starts]))
    return jnp.zeros(n, start.dtype).at[order].set(np.arange(n) - start, unique_indices=True)


def _sparse(formula: Callable[..., Values], names: list[str], slots: int) -> Callable[..., Values]:
    """Runs `formula` over the named rows: those that are named first, then those that are named a second time, and so on."""
    at = next(i for i, name in enumerate(names) if name in _GRADIENTS) - slots
    at_indices = names.index("indices") - slots

    def update(values: list[Any], rest: Values, attrs: dict[str, Any]) -> Values:
        _checked(names, slots, values, rest)
        gradient, indices = rest[at], jnp.asarray(rest[at_indices])
        need(values[0].ndim >= 1 and indices.ndim == 1 and gradient.shape == (*indices.shape, *values[0].shape[1:]),
             "a gradient that does not fit the rows")  # fmt: skip
        if 0 in indices.shape or 0 in values[0].shape:
            return tuple(values)
        arguments = [v for i, v in enumerate(rest) if i != at_indices]
        rows = values[0].shape[0]
        nowhere = np.asarray(rows, indices.dtype)
        indices = jnp.where(indices < 0, nowhere, indices)  # JAX would count from the end
        nth = _occurrences(indices)
        passes = jnp.max(jnp.where(indices < rows, nth, 0)) + 1

        def one_pass(state: tuple[Any, Values]) -> tuple[Any, Values]:
            k, arrays = state
            chosen = jnp.where(nth == k, indices, nowhere)
            parts = [a.at[chosen].get(mode="fill", fill_value=1) for a in arrays]
            new = formula(*parts, *arguments, **attrs)
            return k + 1, tuple(a.at[chosen].set(n, mode="drop") for a, n in zip(arrays, new, strict=True))

        return lax.while_loop(lambda state: state[0] < passes, one_pass, (jnp.zeros((), passes.dtype), tuple(values)))[1]

    return update


def _attach(name: str, formula: Callable[..., Values], sparse: bool = False) -> None:
    """The rules of `name` and `Resource<name>`, as far as there are such ops."""
    wanted = [p for p in inspect.signature(formula).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for op_type in (name, f"Resource{name}"):
        if op_type not in OPS:
            continue
        names = [arg.name for arg in OPS[op_type].inputs]
        slots = sum(arg.is_ref or arg.dtype is resource for arg in OPS[op_type].inputs)
        _attach_one(op_type, (_sparse if sparse else _dense)(formula, names, slots), slots, wanted)


def _attach_one(op_type: str, update: Callable[..., Values], slots: int, wanted: list[inspect.Parameter]) -> None:
    is_resource = op_type.startswith("Resource")

    def apply(*args: Any, **attrs: Any) -> Var | None:
        variables: tuple[Var, ...] = args[:slots]
        old = [array(var.value) for var in variables]
        for var, value, before in zip(variables, update(old, args[slots:], attrs), old, strict=True):
            if value is not before:
                var.value = value
        return None if is_resource else variables[0]

    # Which attributes a rule wants is read off its signature.
    inputs = inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)
    apply.__signature__ = inspect.Signature([inputs, *wanted])  # type: ignore[attr-defined]
    rule(op_type, raises="Sparse" in op_type)(apply)


for _name, _formula in (
    ("GradientDescent", gradient_descent),
    ("Momentum", momentum),
    ("KerasMomentum", keras_momentum),
    ("Adagrad", adagrad),
    ("AdagradV2", adagrad_v2),
    ("AdagradDA", adagrad_da),
    ("Adadelta", adadelta),
    ("Adam", adam),
    ("AdamWithAmsgrad", adam_amsgrad),
    ("AdaMax", adamax),
    ("RMSProp", rmsprop),
    ("CenteredRMSProp", centered_rmsprop),
    ("AddSign", add_sign),
    ("PowerSign", power_sign),
    ("Ftrl", ftrl),
    ("FtrlV2", ftrl_v2),
    ("ProximalGradientDescent", proximal_gradient_descent),
    ("ProximalAdagrad", proximal_adagrad),
):
    _attach(f"Apply{_name}", _formula)

for _name, _formula in (
    ("Momentum", momentum),
    ("KerasMomentum", keras_momentum),
    ("Adagrad", adagrad),
    ("AdagradV2", adagrad_v2),
    ("AdagradDA", sparse_adagrad_da),
    ("Adadelta", adadelta),
    ("RMSProp", sparse_rmsprop),
    ("CenteredRMSProp", sparse_centered_rmsprop),
    ("Ftrl", sparse_ftrl),
    ("FtrlV2", sparse_ftrl_v2),
    ("ProximalGradientDescent", sparse_proximal_gradient_descent),
    ("ProximalAdagrad", proximal_adagrad),
):
    _attach(f"SparseApply{_name}", _formula, sparse=True)
