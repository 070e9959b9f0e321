"""Learning rates that change with the global step (`tf.train.exponential_decay` and so on). Each returns a scalar tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from penstock.api.export import export, resolve
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def _scoped(name: str | None, default: str) -> Any:
    return get_default_graph().name_scope(default if name is None else name)


def _need_step(global_step: Any, function: str) -> None:
    if global_step is None:
        raise ValueError(f"global_step is required for {function}.")


def _tf(name: str) -> Callable[..., Any]:
    return resolve(name)


@export("train.exponential_decay")
def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """learning_rate * decay_rate ** (global_step / decay_steps); with `staircase`, the exponent is rounded down."""
    _need_step(global_step, "exponential_decay")
    with _scoped(name, "ExponentialDecay") as scope:
        rate = convert_to_tensor(learning_rate, name="learning_rate")
        steps, factor = _tf("cast")(decay_steps, rate.dtype), _tf("cast")(decay_rate, rate.dtype)
        p = _tf("cast")(global_step, rate.dtype) / steps
        if staircase:
            p = raw.Floor(p)
        return _tf("multiply")(rate, raw.Pow(factor, p), name=scope)


@export("train.piecewise_constant", "train.piecewise_constant_decay")
def piecewise_constant(x: Any, boundaries: list[Any], values: list[Any], name: str | None = None) -> Tensor:
    """values[0] while x <= boundaries[0], values[1] up to boundaries[1], ..., values[-1] after the last boundary."""
    if len(boundaries) != len(values) - 1:
        raise ValueError("The length of boundaries should be 1 less than the length of values")
    with _scoped(name, "PiecewiseConstant") as scope:
        bounds = [convert_to_tensor(b) for b in boundaries]
        results = [convert_to_tensor(v) for v in values]
        step = convert_to_tensor(x)
        for i, bound in enumerate(bounds):
            if bound.dtype.base_dtype != step.dtype.base_dtype:
                # An int32 boundary may stand beside an int64 step; anything else is a mistake.
                if bound.dtype.base_dtype.name == "int32" and step.dtype.base_dtype.name == "int64":
                    bounds[i] = _tf("cast")(bound, step.dtype.base_dtype)
                else:
                    raise ValueError(
                        f"Boundaries ({bound.dtype.base_dtype}) must have the same dtype as x ({step.dtype.base_dtype})."
                    )
        for value in results[1:]:
            if value.dtype.base_dtype != results[0].dtype.base_dtype:
                raise ValueError(
                    f"Values must have elements all with the same dtype ({results[0].dtype.base_dtype} vs {value.dtype.base_dtype})."
                )
        if not bounds:
            return raw.Identity(results[0], name=scope)
        pairs = [(step <= bounds[0], lambda: results[0]), (step > bounds[-1], lambda: results[-1])]
        for low, high, value in zip(bounds[:-1], bounds[1:], results[1:-1], strict=True):
            inside = raw.LogicalAnd(step > low, step <= high)
            pairs.append((inside, lambda value=value: value))  # type: ignore[misc]
        return raw.Identity(_tf("case")(pairs, lambda: results[0], exclusive=True), name=scope)


@export("train.polynomial_decay")
def polynomial_decay(learning_rate: Any, global_step: Any, decay_steps: Any, end_learning_rate: Any = 0.0001, power: Any = 1.0, cycle: bool = False,
                     name: str | None = None) -> Tensor:  # fmt: skip
    """From `learning_rate` to `end_learning_rate` in `decay_steps`, along a polynomial; `cycle` starts anew, longer each time."""
    _need_step(global_step, "polynomial_decay")
    with _scoped(name, "PolynomialDecay") as scope:
        rate = convert_to_tensor(learning_rate, name="learning_rate")
        dtype = rate.dtype
        end, exponent = _tf("cast")(end_learning_rate, dtype), _tf("cast")(power, dtype)
        step, steps = _tf("cast")(global_step, dtype), _tf("cast")(decay_steps, dtype)
        if cycle:
            multiplier = _tf("where")(_tf("equal")(step, 0), 1.0, _tf("ceil")(step / decay_steps))
            steps = _tf("multiply")(steps, multiplier)
        else:
            step = _tf("minimum")(step, decay_steps)
        p = _tf("div")(step, steps)
        return _tf("add")(_tf("multiply")(rate - end, raw.Pow(1 - p, exponent)), end, name=scope)


@export("train.natural_exp_decay")
def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """learning_rate * exp(-decay_rate * global_step / decay_steps)."""
    factor = _tf("exp")(_tf("negative")(decay_rate))
    return exponential_decay(
        learning_rate, global_step, decay_steps, factor, staircase=staircase, name=name or "NaturalExpDecay"
    )


@export("train.inverse_time_decay")
def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Tensor:
    """learning_rate / (1 + decay_rate * global_step / decay_steps)."""
    _need_step(global_step, "inverse_time_decay")
    with _scoped(name, "InverseTimeDecay") as scope:
        rate = convert_to_tensor(learning_rate, name="learning_rate")
        steps, factor = _tf("cast")(decay_steps, rate.dtype), _tf("cast")(decay_rate, rate.dtype)
        p = _tf("cast")(global_step, rate.dtype) / steps
        if staircase:
            p = raw.Floor(p)
        one = _tf("cast")(_constant_one(), rate.dtype)
        return _tf("div")(rate, _tf("add")(one, _tf("multiply")(factor, p)), name=scope)


def _constant_one() -> Tensor:
    from penstock.graph.constant import constant

    return constant(1)


@export("train.cosine_decay")
def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, alpha: float = 0.0, name: str | None = None
) -> Tensor:
    """Half a cosine from `learning_rate` down to `alpha` times it, over `decay_steps`."""
    _need_step(global_step, "cosine_decay")
    with _scoped(name, "CosineDecay"):
        rate = convert_to_tensor(learning_rate, name="learning_rate")
        steps = _tf("cast")(decay_steps, rate.dtype)
        step = _tf("minimum")(_tf("cast")(global_step, rate.dtype), steps)
        completed = step / steps
        wave = 0.5 * (1.0 + raw.Cos(_pi() * completed))
        return _tf("multiply")(rate, (1 - alpha) * wave + alpha)


def _pi() -> Tensor:
    from penstock.graph.constant import constant

    return constant(math.pi)


@export("train.cosine_decay_restarts")
def cosine_decay_restarts(learning_rate: Any, global_step: Any, first_decay_steps: Any, t_mul: Any = 2.0, m_mul: Any = 1.0, alpha: Any = 0.0,
                          name: str | None = None) -> Tensor:  # fmt: skip
    """Cosine decay that restarts: periods grow by `t_mul`, and restarts begin at `m_mul` times the rate of the one before."""
    _need_step(global_step, "cosine_decay restarts")
    with _scoped(name, "SGDRDecay") as scope:
        rate = convert_to_tensor(learning_rate, name="initial_learning_rate")
        dtype = rate.dtype
        first, floor_ = _tf("cast")(first_decay_steps, dtype), _tf("cast")(alpha, dtype)
        longer, lower = _tf("cast")(t_mul, dtype), _tf("cast")(m_mul, dtype)
        completed = _tf("cast")(global_step, dtype) / first

        def compute(done: Any, geometric: bool) -> tuple[Any, Any]:
            if geometric:
                restart = raw.Floor(_tf("log")(1.0 - done * (1.0 - longer)) / _tf("log")(longer))
                total = (1.0 - raw.Pow(longer, restart)) / (1.0 - longer)
                done = (done - total) / raw.Pow(longer, restart)
            else:
                restart = raw.Floor(done)
                done = done - restart
            return restart, done

        restart, done = _tf("cond")(
            _tf("equal")(longer, 1.0), lambda: compute(completed, False), lambda: compute(completed, True)
        )
        wave = 0.5 * raw.Pow(lower, restart) * (1.0 + raw.Cos(_pi() * done))
        return _tf("multiply")(rate, (1 - floor_) * wave + floor_, name=scope)


@export("train.linear_cosine_decay")
def linear_cosine_decay(learning_rate: Any, global_step: Any, decay_steps: Any, num_periods: Any = 0.5, alpha: Any = 0.0, beta: Any = 0.001,
                        name: str | None = None) -> Tensor:  # fmt: skip
    """A line down to zero times a cosine, plus `beta`."""
    _need_step(global_step, "linear_cosine_decay")
    with _scoped(name, "LinearCosineDecay") as scope:
        rate = convert_to_tensor(learning_rate, name="learning_rate")
        dtype = rate.dtype
        steps, periods = _tf("cast")(decay_steps, dtype), _tf("cast")(num_periods, dtype)
        low, high = _tf("cast")(alpha, dtype), _tf("cast")(beta, dtype)
        step = _tf("minimum")(_tf("cast")(global_step, dtype), steps)
        line = (steps - step) / steps
        fraction = 2.0 * periods * (step / steps)
        wave = 0.5 * (1.0 + raw.Cos(_pi() * fraction))
        return _tf("multiply")(rate, (low + line) * wave + high, name=scope)


@export("train.noisy_linear_cosine_decay")
def noisy_linear_cosine_decay(learning_rate: Any, global_step: Any, decay_steps: Any, initial_variance: Any = 1.0, variance_decay: Any = 0.55,
                              num_periods: Any = 0.5, alpha: Any = 0.0, beta: Any = 0.001, name: str | None = None) -> Tensor:  # fmt: skip
    """Linear cosine decay whose line is shaken by noise that gets smaller."""
    _need_step(global_step, "noisy_linear_cosine_decay")
    with _scoped(name, "NoisyLinearCosineDecay") as scope:
        rate = convert_to_tensor(learning_rate, name="learning_rate")
        dtype = rate.dtype
        steps = _tf("cast")(decay_steps, dtype)
        variance, decay = _tf("cast")(initial_variance, dtype), _tf("cast")(variance_decay, dtype)
        periods = _tf("cast")(num_periods, dtype)
        low, high = _tf("cast")(alpha, dtype), _tf("cast")(beta, dtype)
        step = _tf("minimum")(_tf("cast")(global_step, dtype), steps)
        line = (steps - step) / steps
        spread = raw.Sqrt(variance / raw.Pow(1.0 + step, decay))
        noisy = line + _tf("random_normal")(line.shape, stddev=spread)
        fraction = 2.0 * periods * (step / steps)
        wave = 0.5 * (1.0 + raw.Cos(_pi() * fraction))
        return _tf("multiply")(rate, (low + noisy) * wave + high, name=scope)
