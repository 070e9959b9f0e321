"""Gradients against finite differences: the Jacobian that backprop gives, and the one that the values themselves show.

A complex number counts as two real ones. Rows belong to elements of x, columns to elements of y.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.backprop.engine import gradients
from penstock.graph.composite import IndexedSlices
from penstock.graph.constant import constant
from penstock.graph.defaults import get_default_session
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def _real_view(array: np.ndarray) -> np.ndarray:
    """All numbers of `array` in one real vector; a view, so that writes reach the array."""
    flat = array.reshape(-1)
    if flat.dtype.kind == "c":
        return flat.view(np.float32 if flat.dtype == np.complex64 else np.float64)
    return flat


def _session(session: Any) -> Any:
    session = session or get_default_session()
    if session is None:
        raise ValueError("Gradients are checked by running the graph: open a session first (`with tf.Session():`), or pass one.")
    return session


def theoretical_jacobian(session: Any, x: Tensor, x_value: np.ndarray, y: Tensor, y_shape: Any, feed: dict) -> np.ndarray:
    """d y / d x by backprop, one run per element of y."""
    dtype = y.dtype.base_dtype
    dy = raw.Placeholder(dtype=dtype, shape=y_shape)
    (dx,) = gradients(y, [x], grad_ys=[dy])
    seed = np.zeros(y_shape, dtype.np)
    parts = _real_view(seed)
    columns = []
    for i in range(parts.size):
        parts[...] = 0
        parts[i] = 1
        if dx is None:
            value: Any = np.zeros_like(x_value)
        else:
            value = session.run(dx, {x: x_value, dy: seed, **feed})
        if isinstance(dx, IndexedSlices):
            dense = np.zeros_like(x_value)
            np.add.at(dense, value.indices, value.values)
            value = dense
        columns.append(np.array(_real_view(np.ascontiguousarray(np.asarray(value, x_value.dtype))), dtype=np.float64))
    rows = _real_view(np.array(x_value)).size
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))


def numeric_jacobian(session: Any, x: Tensor, x_value: np.ndarray, y: Tensor, y_shape: Any, delta: float, feed: dict) -> np.ndarray:
    """d y / d x by central differences, two runs per element of x."""
    moved = np.array(x_value)
    parts = _real_view(moved)
    rows = []
    for i in range(parts.size):
        kept = parts[i]
        values = []
        for sign in (1, -1):
            parts[i] = kept + sign * delta
            value = np.asarray(session.run(y, {x: moved.copy(), **feed}))
            values.append(np.array(_real_view(np.ascontiguousarray(value)), dtype=np.float64))
        parts[i] = kept
        rows.append((values[0] - values[1]) / (2 * delta))
    columns = _real_view(np.zeros(y_shape, y.dtype.base_dtype.np)).size
    return np.stack(rows) if rows else np.zeros((0, columns))


def compute_gradient(
    x: Any,
    x_shape: Any,
    y: Tensor,
    y_shape: Any,
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: dict | None = None,
    session: Any = None,
) -> Any:
    """(theoretical, numerical) Jacobian of `y` with respect to `x`; a list of pairs if `x` is a list.

    Runs in the default session. `init_targets` are run first; values of x are random unless `x_init_value` gives them.
    """
    session = _session(session)
    for target in init_targets or ():
        session.run(target)
    xs = list(x) if isinstance(x, (list, tuple)) else [x]
    shapes = list(x_shape) if isinstance(x, (list, tuple)) else [x_shape]
    given = list(x_init_value) if isinstance(x, (list, tuple)) and x_init_value is not None else [x_init_value] * len(xs)
    random = np.random.default_rng(0)
    values = []
    for tensor, shape, value in zip(xs, shapes, given, strict=True):
        kind = tensor.dtype.base_dtype.np
        if value is None:
            value = random.uniform(-1, 1, shape).astype(kind)
            if kind.kind == "c":
                value = (value + 1j * random.uniform(-1, 1, shape)).astype(kind)
        values.append(np.ascontiguousarray(np.asarray(value, dtype=kind)))
    if y.dtype.base_dtype.np.kind not in "fc" and not y.dtype.is_floating:
        raise TypeError(f"y must be of a floating-point type to have a gradient, it is {y.dtype.name}")
    feed = dict(extra_feed_dict or {})
    result = []
    for tensor, value in zip(xs, values, strict=True):
        others = {**feed, **{t: v for t, v in zip(xs, values, strict=True) if t is not tensor}}
        theory = theoretical_jacobian(session, tensor, value, y, y_shape, others)
        numeric = numeric_jacobian(session, tensor, value, y, y_shape, delta, others)
        result.append((theory, numeric))
    return result if isinstance(x, (list, tuple)) else result[0]


def compute_gradient_error(
    x: Any,
    x_shape: Any,
    y: Tensor,
    y_shape: Any,
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: dict | None = None,
    session: Any = None,
) -> float:
    """The largest difference between the two Jacobians of `compute_gradient`."""
    pairs = compute_gradient(x, x_shape, y, y_shape, x_init_value, delta, init_targets, extra_feed_dict, session)
    error = 0.0
    for theory, numeric in pairs if isinstance(pairs, list) else [pairs]:
        if theory.size:
            error = max(error, float(np.abs(theory - numeric).max()))
    return error


def directional_error(session: Any, y: Any, xs: list[Tensor], values: list[np.ndarray], feed: dict | None = None, delta: float = 1e-5, seed: int = 0) -> float:
    """A cheap check for generated tests: backprop against differences along one random direction per x.

    The result is the largest error relative to the size of the derivative. An x counts only if it has a gradient, and if the
    function is smooth where it is: differences to both sides must agree. Two runs per x and one for the gradients.
    """
    random = np.random.default_rng(seed)
    ys = [t for t in (y if isinstance(y, (list, tuple)) else [y]) if t.dtype.is_floating or t.dtype.is_complex]
    base = {**(feed or {}), **dict(zip(xs, values, strict=True))}
    outputs = [np.asarray(v) for v in session.run(ys, base)]
    weights = []
    for value in outputs:
        w = random.standard_normal(value.shape)
        if value.dtype.kind == "c":
            w = w + 1j * random.standard_normal(value.shape)
        weights.append(w.astype(value.dtype))
    grads = gradients(ys, xs, grad_ys=[constant(w) for w in weights])
    known = [g for g in grads if g is not None]
    found = iter(session.run(known, base))
    worst = 0.0
    for x, value, grad in zip(xs, values, grads, strict=True):
        direction = random.standard_normal(value.shape)
        if value.dtype.kind == "c":
            direction = direction + 1j * random.standard_normal(value.shape)
        if grad is None:
            continue
        dense = next(found)
        if isinstance(grad, IndexedSlices):
            total = np.zeros_like(value)
            np.add.at(total, dense.indices, dense.values)
            dense = total
        theory = float(np.real(np.sum(np.conj(np.asarray(dense)) * direction)))
        sums = []
        for sign in (1, 0, -1):
            moved = (value + sign * delta * direction).astype(value.dtype)
            results = session.run(ys, {**base, x: moved})
            sums.append(sum(float(np.real(np.sum(np.conj(w) * np.asarray(r)))) for w, r in zip(weights, results, strict=True)))
        numeric = (sums[0] - sums[2]) / (2 * delta)
        right, left = (sums[0] - sums[1]) / delta, (sums[1] - sums[2]) / delta
        if abs(right - left) > 1e-2 * max(1.0, abs(numeric)):
            continue
        worst = max(worst, abs(theory - numeric) / max(1.0, abs(numeric)))
    return worst
