"""The arithmetic of TF's training ops, in the order in which TF's C++ does it, in place on `var` and its slots.

Every function takes arrays (whole variables, tiles of them, or gathered rows) and scalars of the variables' own type, so
that float32 stays float32 and rounding follows TF's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError

Array = Any


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x)."""
    root = np.sqrt(x)
    return np.divide(root.dtype.type(1), root, out=root if isinstance(root, np.ndarray) else None)


def _one(x: Array) -> Any:
    return x.dtype.type(1)


def adam_rate(lr: Any, beta1_power: Any, beta2_power: Any) -> Any:
    """The learning rate with Adam's correction for moments that began at zero."""
    one = beta1_power.dtype.type(1)
    return lr * np.sqrt(one - beta2_power) / (one - beta1_power)


def gradient_descent(var: Array, alpha: Any, delta: Array) -> None:
    var -= delta * alpha


def momentum(var: Array, accum: Array, lr: Any, grad: Array, momentum: Any, *, use_nesterov: bool) -> None:
    accum *= momentum
    accum += grad
    if use_nesterov:
        step = grad * lr
        step += accum * momentum * lr
        var -= step
    else:
        var -= accum * lr


def sparse_momentum(var: Array, accum: Array, lr: Any, grad: Array, momentum: Any, *, use_nesterov: bool) -> None:
    accum *= momentum
    accum += grad
    if use_nesterov:
        var -= grad * lr + accum * (momentum * lr)
    else:
        var -= accum * lr


def keras_momentum(var: Array, accum: Array, lr: Any, grad: Array, momentum: Any, *, use_nesterov: bool) -> None:
    step = grad * lr
    accum *= momentum
    accum -= step
    if use_nesterov:
        var += accum * momentum - step
    else:
        var += accum


def adagrad(var: Array, accum: Array, lr: Any, grad: Array, *, update_slots: bool) -> None:
    if update_slots:
        accum += grad * grad
    step = grad * lr
    step *= rsqrt(accum)
    var -= step


def adagrad_v2(var: Array, accum: Array, lr: Any, epsilon: Any, grad: Array, *, update_slots: bool) -> None:
    if update_slots:
        accum += grad * grad
    root = np.sqrt(accum)
    root += epsilon
    var -= (grad * lr) / root


def adagrad_da(var: Array, gradient_accumulator: Array, gradient_squared_accumulator: Array, grad: Array, lr: Any, l1: Any, l2: Any,
               global_step: Any) -> None:  # fmt: skip
    gradient_accumulator += grad
    gradient_squared_accumulator += grad * grad
    step = var.dtype.type(global_step)
    below = l2 * step * lr + np.sqrt(gradient_squared_accumulator)
    if l1 > 0:
        shrunk = np.maximum(np.abs(gradient_accumulator) - l1 * step, var.dtype.type(0))
        var[...] = lr * -np.sign(gradient_accumulator) * shrunk / below
    else:
        var[...] = -lr * gradient_accumulator / below


def sparse_adagrad_da(var: Array, gradient_accumulator: Array, gradient_squared_accumulator: Array, grad: Array, lr: Any, l1: Any, l2: Any,
                      global_step: Any) -> None:  # fmt: skip
    gradient_accumulator += grad
    gradient_squared_accumulator += grad * grad
    step = var.dtype.type(global_step)
    below = l2 + np.sqrt(gradient_squared_accumulator) / (step * lr)
    if l1 > 0:
        var[...] = (
            -np.sign(gradient_accumulator)
            * np.maximum(np.abs(gradient_accumulator) / step - l1, var.dtype.type(0))
            / below
        )
    else:
        var[...] = -(gradient_accumulator / step) / below


def adadelta(var: Array, accum: Array, accum_update: Array, lr: Any, rho: Any, epsilon: Any, grad: Array) -> None:
    rest = _one(var) - rho
    accum *= rho
    accum += grad * grad * rest
    update = np.sqrt(accum_update + epsilon)
    update *= rsqrt(accum + epsilon)
    update *= grad
    var -= update * lr
    accum_update *= rho
    update *= update
    update *= rest
    accum_update += update


def adam(var: Array, m: Array, v: Array, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Array, *,
         use_nesterov: bool) -> None:  # fmt: skip
    one = _one(var)
    alpha = adam_rate(lr, beta1_power, beta2_power)
    rest = one - beta1
    temp = np.subtract(grad, m, out=np.empty_like(m))  # an array, for a single number too
    temp *= rest
    m += temp
    np.multiply(grad, grad, out=temp)
    temp -= v
    temp *= one - beta2
    v += temp
    root = np.sqrt(v, out=temp)
    root += epsilon
    if use_nesterov:
        step = grad * rest
        step += beta1 * m
        step *= alpha
    else:
        step = m * alpha
    step /= root
    var -= step


def adam_amsgrad(var: Array, m: Array, v: Array, vhat: Array, beta1_power: Any, beta2_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any,
                 grad: Array) -> None:  # fmt: skip
    one = _one(var)
    alpha = adam_rate(lr, beta1_power, beta2_power)
    m += (grad - m) * (one - beta1)
    v += (grad * grad - v) * (one - beta2)
    np.maximum(vhat, v, out=vhat)
    var -= (m * alpha) / (np.sqrt(vhat) + epsilon)


def adamax(
    var: Array, m: Array, v: Array, beta1_power: Any, lr: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Array
) -> None:
    one = _one(var)
    m += (grad - m) * (one - beta1)
    v *= beta2
    size = np.abs(grad)
    np.copyto(v, size, where=size > v)  # no maximum: a gradient that is NaN leaves it as it is, as in TF
    var -= lr / (one - beta1_power) * (m / (v + epsilon))


def rmsprop(var: Array, ms: Array, mom: Array, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Array) -> None:
    temp = np.multiply(grad, grad, out=np.empty_like(ms))  # an array, for a single number too
    temp -= ms
    temp *= _one(var) - rho
    ms += temp
    np.add(epsilon, ms, out=temp)
    np.sqrt(temp, out=temp)
    step = grad * lr
    step /= temp
    mom *= momentum
    mom += step
    var -= mom


def centered_rmsprop(
    var: Array, mg: Array, ms: Array, mom: Array, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Array
) -> None:
    rest = _one(var) - rho
    ms += (grad * grad - ms) * rest
    mg += (grad - mg) * rest
    below = ms - mg * mg
    below += epsilon
    mom *= momentum
    mom += (grad * lr) / np.sqrt(below)
    var -= mom


def sparse_rmsprop(
    var: Array, ms: Array, mom: Array, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Array
) -> None:
    ms *= rho
    ms += grad * grad * (_one(var) - rho)
    mom *= momentum
    mom += rsqrt(ms + epsilon) * lr * grad
    var -= mom


def sparse_centered_rmsprop(
    var: Array, mg: Array, ms: Array, mom: Array, lr: Any, rho: Any, momentum: Any, epsilon: Any, grad: Array
) -> None:
    rest = _one(var) - rho
    ms *= rho
    ms += grad * grad * rest
    mg *= rho
    mg += grad * rest
    mom *= momentum
    mom += rsqrt((ms + epsilon) - mg * mg) * lr * grad
    var -= mom


def add_sign(var: Array, m: Array, lr: Any, alpha: Any, sign_decay: Any, beta: Any, grad: Array) -> None:
    m *= beta
    m += grad * (_one(var) - beta)
    agree = np.sign(grad) * np.sign(m)
    var -= lr * (alpha + sign_decay * agree) * grad


def power_sign(var: Array, m: Array, lr: Any, logbase: Any, sign_decay: Any, beta: Any, grad: Array) -> None:
    m *= beta
    m += grad * (_one(var) - beta)
    agree = np.sign(grad) * np.sign(m)
    var -= lr * np.exp(logbase * sign_decay * agree) * grad


def proximal_gradient_descent(var: Array, alpha: Any, l1: Any, l2: Any, delta: Array) -> None:
    prox = var - delta * alpha
    _shrink(var, prox, alpha, l1, l2)


def proximal_adagrad(var: Array, accum: Array, lr: Any, l1: Any, l2: Any, grad: Array) -> None:
    if not lr > 0:
        raise InvalidArgumentError("lr is not a positive scalar: []")
    _check_strengths(l1, l2)
    accum += grad * grad
    rate = lr * rsqrt(accum)
    prox = var - grad * rate
    _shrink(var, prox, rate, l1, l2)


def _check_strengths(l1: Any, l2: Any) -> None:
    for name, value in (("l1", l1), ("l2", l2)):
        if not value >= 0:
            raise InvalidArgumentError(f"{name} regularization strength is not a non-negative scalar: []")


def _shrink(var: Array, prox: Array, rate: Any, l1: Any, l2: Any) -> None:
    below = _one(var) + rate * l2
    if l1 > 0:
        var[...] = np.sign(prox) * np.maximum(np.abs(prox) - rate * l1, var.dtype.type(0)) / below
    else:
        var[...] = prox / below


def ftrl(
    var: Array,
    accum: Array,
    linear: Array,
    grad: Array,
    lr: Any,
    l1: Any,
    l2: Any,
    lr_power: Any,
    *,
    multiply_linear_by_lr: bool,
) -> None:
    _ftrl(var, accum, linear, grad, grad, lr, l1, l2, lr_power, multiply_linear_by_lr)


def ftrl_v2(var: Array, accum: Array, linear: Array, grad: Array, lr: Any, l1: Any, l2: Any, l2_shrinkage: Any, lr_power: Any, *,
            multiply_linear_by_lr: bool) -> None:  # fmt: skip
    _ftrl(var, accum, linear, grad, _shrunk(var, grad, l2_shrinkage), lr, l1, l2, lr_power, multiply_linear_by_lr)


def sparse_ftrl(var: Array, accum: Array, linear: Array, grad: Array, lr: Any, l1: Any, l2: Any, lr_power: Any, *, multiply_linear_by_lr: bool) -> None:
    _check_ftrl(lr, l1, l2, lr_power, multiply_linear_by_lr)
    _ftrl(var, accum, linear, grad, grad, lr, l1, l2, lr_power, multiply_linear_by_lr, sparse=True)


def sparse_ftrl_v2(var: Array, accum: Array, linear: Array, grad: Array, lr: Any, l1: Any, l2: Any, l2_shrinkage: Any, lr_power: Any, *,
                   multiply_linear_by_lr: bool) -> None:  # fmt: skip
    _check_ftrl(lr, l1, l2, lr_power, multiply_linear_by_lr)
    if not l2_shrinkage >= 0:
        raise InvalidArgumentError("l2 shrinkage regularization strength is not a non-negative scalar: []")
    _ftrl(var, accum, linear, grad, _shrunk(var, grad, l2_shrinkage), lr, l1, l2, lr_power, multiply_linear_by_lr, sparse=True)


def _shrunk(var: Array, grad: Array, l2_shrinkage: Any) -> Array:
    return grad + var.dtype.type(2) * l2_shrinkage * var


def _check_ftrl(lr: Any, l1: Any, l2: Any, lr_power: Any, by_lr: bool) -> None:
    """Only the sparse ops look at these numbers."""
    if not (lr > 0 or (by_lr and lr >= 0)):
        raise InvalidArgumentError("lr is not a positive scalar (or zero if multiply_linear_by_lr is set): []")
    _check_strengths(l1, l2)
    if not lr_power <= 0:
        raise InvalidArgumentError("lr_power is not a non-positive scalar: []")


def _ftrl(
    var: Array,
    accum: Array,
    linear: Array,
    grad: Array,
    pull: Array,
    lr: Any,
    l1: Any,
    l2: Any,
    lr_power: Any,
    by_lr: bool,
    sparse: bool = False,
) -> None:
    """`pull` is the gradient that moves the linear term: with shrinkage in version 2. What is NaN gives 0 in a dense update, as in TF, and NaN in a sparse one."""
    two, zero = var.dtype.type(2), var.dtype.type(0)
    new = accum + grad * grad
    if float(lr_power) == -0.5:
        root, old = np.sqrt(new), np.sqrt(accum)
    else:
        root, old = new ** (-lr_power), accum ** (-lr_power)
    if by_lr:
        linear += pull * lr - (root - old) * var
        bound, below = l1 * lr, root + two * l2 * lr
    else:
        linear += pull - (root - old) / lr * var
        bound, below = l1, root / lr + two * l2
    if sparse:
        var[...] = (np.maximum(np.minimum(linear, bound), -bound) - linear) / below
    else:
        above = bound * np.sign(linear) - linear
        var[...] = np.where(np.abs(linear) > bound, above / below, zero)
    accum[...] = new
