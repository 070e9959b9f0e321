"""Workloads in JAX: functions under `jax.jit`, parameters donated in training, gradients by `jax.grad`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import models, peers

jax.config.update("jax_platforms", "cpu")
WORKLOADS: peers.Setups = {}
workload = functools.partial(peers.register, WORKLOADS)


def _call(function: Callable, *arguments: Any) -> Callable[[], Any]:
    """A step that gives NumPy arrays to a jitted function and gets NumPy arrays, as a session does."""
    jitted = jax.jit(function)
    return lambda: jax.device_get(jitted(*arguments))


def _train(loss: Callable, params: Any, batch: tuple, rate: float, optimizer: str = "sgd") -> Callable[[], Any]:
    """A step that updates the parameters in place (donated) and gives the loss."""
    params = jax.tree.map(jnp.asarray, params)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = {"adam": (zeros, jax.tree.map(jnp.zeros_like, params), jnp.zeros(())), "momentum": (zeros,)}.get(optimizer, ())

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(params: Any, state: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        if optimizer == "adam":
            m, v, t = state
            t = t + 1
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
            scale = rate * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            params = jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-8), params, m, v)
            state = (m, v, t)
        elif optimizer == "momentum":
            state = (jax.tree.map(lambda m, g: 0.9 * m + g, state[0], grads),)
            params = jax.tree.map(lambda p, m: p - rate * m, params, state[0])
        else:
            params = jax.tree.map(lambda p, g: p - rate * g, params, grads)
        return params, state, value

    held = [params, state]

    def step() -> Any:
        held[0], held[1], value = update(held[0], held[1], *batch)
        return jax.block_until_ready(value)

    return step


def _entropy(logits: Any, labels: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1))


def _normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.RandomState(seed).randn(*shape) * scale).astype(np.float32)


# -- calls, small ops, big ops -------------------------------------------------------------------------------------------


@workload("run of one add")
@workload("callable of one add")
def one_add() -> Callable[[], Any]:
    return _call(lambda x: x + 1.0, np.float32(2.0))


@workload("100 feeds and 100 fetches")
def many() -> Callable[[], Any]:
    return _call(lambda *xs: [x + 1.0 for x in xs], *(np.float32(i) for i in range(100)))


@workload("2,000-op scalar chain")
def scalar_chain() -> Callable[[], Any]:
    def run(x: Any) -> Any:
        y = x
        for _ in range(1000):
            y = jnp.sin(y) + x
        return y

    return _call(run, np.float32(0.5))


@workload("300-op chain on 1,000 floats")
def vector_chain() -> Callable[[], Any]:
    def run(x: Any) -> Any:
        y = x
        for _ in range(100):
            y = jnp.tanh(y) * 0.9 + x
        return y

    return _call(run, np.linspace(-1, 1, 1000, dtype=np.float32))


@workload("200 independent 64x64 matmuls")
def matmuls() -> Callable[[], Any]:
    rng = np.random.RandomState(0)
    weights = [rng.randn(64, 64).astype(np.float32) for _ in range(200)]
    return _call(lambda x: sum(x @ w for w in weights), rng.randn(64, 64).astype(np.float32))


@workload("30 elementwise ops on 1M floats")
def elementwise() -> Callable[[], Any]:
    def run(x: Any) -> Any:
        y = x
        for _ in range(10):
            y = jnp.maximum(y * 1.01 + 0.5, x)
        return jnp.sum(y)

    return _call(run, np.linspace(0, 1, 1_000_000, dtype=np.float32))


# -- training -----------------------------------------------------------------------------------------------------------


def _mlp(batch: int, optimizer: str) -> Callable[[], Any]:
    sizes = (256, 256, 128, 10)
    params = [(_normal(a, b, scale=(2 / (a + b)) ** 0.5), np.zeros(b, np.float32)) for a, b in itertools.pairwise(sizes)]

    def loss(params: Any, x: Any, y: Any) -> Any:
        for i, (w, b) in enumerate(params):
            x = x @ w + b
            x = jax.nn.relu(x) if i < 2 else x
        return _entropy(x, y)

    data = (_normal(batch, 256), np.random.RandomState(1).randint(0, 10, batch).astype(np.int32))
    return _train(loss, params, data, 1e-3 if optimizer == "adam" else 0.1, optimizer)


for _batch in (1, 128):
    for _optimizer in ("SGD", "Adam"):
        WORKLOADS[f"MLP training, batch {_batch}, {_optimizer}"] = functools.partial(_mlp, _batch, _optimizer.lower())


@workload("LSTM training, 20 steps unrolled")
def lstm(steps: int = 20, batch: int = 32, hidden: int = 128, inputs: int = 64) -> Callable[[], Any]:
    params = {"kernel": _normal(inputs + hidden, 4 * hidden, scale=0.07), "bias": np.zeros(4 * hidden, np.float32), "out": _normal(hidden, 10, scale=0.09)}

    def loss(params: Any, x: Any, labels: Any) -> Any:
        c = h = jnp.zeros([batch, hidden])
        for t in range(steps):
            i, j, f, o = jnp.split(jnp.concatenate([x[:, t], h], 1) @ params["kernel"] + params["bias"], 4, axis=1)
            c = c * jax.nn.sigmoid(f + 1.0) + jax.nn.sigmoid(i) * jnp.tanh(j)
            h = jnp.tanh(c) * jax.nn.sigmoid(o)
        return _entropy(h @ params["out"], labels)

    return _train(loss, params, (_normal(batch, steps, inputs), np.arange(batch, dtype=np.int32) % 10), 0.1)


def _attention_parts(batch: int = 8, length: int = 64, depth: int = 256, heads: int = 8) -> tuple[Any, Callable, np.ndarray]:
    layers = {"query": (depth, depth), "key": (depth, depth), "value": (depth, depth), "mix": (depth, depth), "inner": (depth, 4 * depth), "outer": (4 * depth, depth)}
    params: dict[str, Any] = {n: (_normal(a, b, scale=a**-0.5), np.zeros(b, np.float32)) for n, (a, b) in layers.items()}
    params |= {n: (np.ones(depth, np.float32), np.zeros(depth, np.float32)) for n in ("norm1", "norm2")}

    def norm(x: Any, parts: Any) -> Any:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-6) * parts[0] + parts[1]

    def block(params: Any, x: Any) -> Any:
        def dense(x: Any, name: str) -> Any:
            return x @ params[name][0] + params[name][1]

        q, k, v = (dense(x, n).reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for n in ("query", "key", "value"))
        scores = jax.nn.softmax(q @ k.swapaxes(-1, -2) * (depth // heads) ** -0.5)
        x = norm(x + dense((scores @ v).transpose(0, 2, 1, 3).reshape(batch, length, depth), "mix"), params["norm1"])
        return norm(x + dense(jax.nn.relu(dense(x, "inner")), "outer"), params["norm2"])

    return params, block, _normal(batch, length, depth)


@workload("attention block, forward")
def attention_forward() -> Callable[[], Any]:
    params, block, x = _attention_parts()
    return _call(block, jax.tree.map(jnp.asarray, params), x)


@workload("attention block, training")
def attention_training() -> Callable[[], Any]:
    params, block, x = _attention_parts()
    target = _normal(*x.shape, seed=1)
    return _train(lambda p, x: jnp.mean((block(p, x) - target) ** 2), params, (x,), 1e-3, "adam")


def _embedding(is_adagrad: bool, rows: int = 100_000, width: int = 64, batch: int = 256) -> Callable[[], Any]:
    """Gradients of the looked-up rows only, scattered into the donated table."""
    table, score = jnp.asarray(_normal(rows, width, scale=0.1)), jnp.asarray(_normal(width, 1, scale=width**-0.5))
    slots = (jnp.full_like(table, 0.1), jnp.full_like(score, 0.1)) if is_adagrad else ()
    ids, target = np.random.RandomState(0).randint(0, rows, batch).astype(np.int32), _normal(batch, 1)

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(table: Any, score: Any, slots: Any, ids: Any, target: Any) -> Any:
        value, (rows_grad, score_grad) = jax.value_and_grad(lambda r, s: jnp.mean((r @ s - target) ** 2), (0, 1))(table[ids], score)
        if is_adagrad:
            a, b = slots
            a, b = a.at[ids].add(rows_grad**2), b + score_grad**2
            return table.at[ids].add(-0.1 * rows_grad * lax.rsqrt(a[ids])), score - 0.1 * score_grad * lax.rsqrt(b), (a, b), value
        return table.at[ids].add(-0.1 * rows_grad), score - 0.1 * score_grad, slots, value

    held: list[Any] = [table, score, slots]

    def step() -> Any:
        *held[:], value = update(*held, ids, target)
        return jax.block_until_ready(value)

    return step


WORKLOADS["embedding, sparse SGD"] = functools.partial(_embedding, False)
WORKLOADS["embedding, sparse Adagrad"] = functools.partial(_embedding, True)


# -- loops --------------------------------------------------------------------------------------------------------------


@workload("while loop of 1,000 iterations")
def loop() -> Callable[[], Any]:
    return _call(lambda x: lax.while_loop(lambda c: c[0] < 1000, lambda c: (c[0] + 1, c[1] * 0.999 + 0.001), (0, x))[1], np.float32(3.0))


@workload("gradient through a 50-step loop")
def loop_gradient() -> Callable[[], Any]:
    def total(x: Any, w: Any) -> Any:
        return jnp.sum(lax.fori_loop(0, 50, lambda i, v: jnp.tanh(jnp.sum(w * v, 1)), x))

    return _call(jax.grad(total, (0, 1)), np.ones(16, np.float32), np.eye(16, dtype=np.float32) * 0.5)


def _dynamic_rnn(training: bool, steps: int = 20, batch: int = 32, hidden: int = 128, inputs: int = 64) -> Callable[[], Any]:
    """The LSTM of benchmarks/arrays.py as a scan."""
    params = {"kernel": _normal(inputs + hidden, 4 * hidden, scale=(inputs + hidden) ** -0.5), "bias": np.zeros(4 * hidden, np.float32)}
    params["out"] = _normal(hidden, 10, scale=hidden**-0.5)

    def run(p: Any, x: Any) -> Any:
        def cell(state: Any, x_t: Any) -> Any:
            c, h = state
            i, j, f, o = jnp.split(jnp.concatenate([x_t, h], 1) @ p["kernel"] + p["bias"], 4, 1)
            c = c * jax.nn.sigmoid(f + 1.0) + jax.nn.sigmoid(i) * jnp.tanh(j)
            h = jnp.tanh(c) * jax.nn.sigmoid(o)
            return (c, h), h

        zeros = jnp.zeros((batch, hidden))
        (_, h), outputs = lax.scan(cell, (zeros, zeros), jnp.swapaxes(x, 0, 1))
        return jnp.swapaxes(outputs, 0, 1), h

    x, labels = _normal(batch, steps, inputs), np.arange(batch, dtype=np.int32) % 10
    if not training:
        return _call(run, params, x)
    return _train(lambda p, x, y: _entropy(run(p, x)[1] @ p["out"], y), params, (x, labels), 0.1)


workload("dynamic_rnn, 20 steps")(lambda: _dynamic_rnn(False))
workload("dynamic_rnn training, 20 steps")(lambda: _dynamic_rnn(True))
workload("dynamic_rnn training, 50 steps, hidden 64")(lambda: _dynamic_rnn(True, steps=50, hidden=64))


def _mapped(x: Any) -> Any:
    return lax.map(lambda v: jnp.tanh(v) * 2.0 + jnp.sum(v), x)


def _scanned(x: Any) -> Any:
    def one(total: Any, v: Any) -> Any:
        total = total * 0.9 + jnp.tanh(v)
        return total, total

    return lax.scan(one, jnp.zeros(8), x)


workload("map_fn over 100 rows")(lambda: _call(_mapped, _normal(100, 8)))
workload("gradient of map_fn over 100 rows")(lambda: _call(jax.grad(lambda x: jnp.sum(_mapped(x))), _normal(100, 8)))
workload("scan over 100 rows")(lambda: _call(lambda x: _scanned(x)[1], _normal(100, 8)))
workload("gradient of scan over 100 rows")(lambda: _call(jax.grad(lambda x: jnp.sum(_scanned(x)[1])), _normal(100, 8)))
workload("foldl over 100 rows")(lambda: _call(lambda x: _scanned(x)[0], _normal(100, 8)))


@workload("while loop, 1,000 TensorArray writes")
def writes() -> Callable[[], Any]:
    def one(v: Any, _: Any) -> Any:
        v = v * 0.999 + 0.001
        return v, v

    return _call(lambda x: lax.scan(one, x, None, length=1000)[1], np.float32(3.0))


def _branches(x: Any) -> Any:
    return lax.fori_loop(0, 200, lambda i, v: lax.cond(jnp.sum(v) > 1.0, lambda v: v * 0.5 - 0.1, lambda v: jnp.tanh(v) + 0.7, v), x)


workload("cond in a loop of 200")(lambda: _call(_branches, _normal(4)))
workload("gradient of a cond in a loop of 200")(lambda: _call(jax.grad(lambda x: jnp.sum(_branches(x))), _normal(4)))


# -- convolutions -------------------------------------------------------------------------------------------------------


def _conv2d(x: Any, filter: Any, strides: Any, padding: str, groups: int = 1) -> Any:
    return lax.conv_general_dilated(x, filter, strides[1:3], padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups)


def _depthwise(x: Any, filter: Any, strides: Any, padding: str) -> Any:
    return _conv2d(x, filter.reshape(*filter.shape[:2], 1, -1), strides, padding, x.shape[-1])


def _norm(x: Any, scale: Any, offset: Any, mean: Any = None, variance: Any = None, epsilon: float = 1e-3, is_training: bool = True) -> Any:
    if is_training:
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    factor = scale * lax.rsqrt(variance + epsilon) if is_training else scale / np.sqrt(variance + epsilon)
    return x * factor + (offset - mean * factor), None, None


def _max_pool(x: Any, window: Any, strides: Any, padding: str) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)


def _avg_pool(x: Any, window: Any, strides: Any, padding: str) -> Any:
    counts = lax.reduce_window(jnp.ones((1, *x.shape[1:3], 1), x.dtype), 0.0, lax.add, window, strides, padding)
    return lax.reduce_window(x, 0.0, lax.add, window, strides, padding) / counts


TF = SimpleNamespace(
    constant=lambda value: value, identity=lambda x, name=None: x, pad=jnp.pad, reduce_mean=jnp.mean, matmul=jnp.matmul, concat=jnp.concatenate,
    nn=SimpleNamespace(
        conv2d=_conv2d, depthwise_conv2d=_depthwise, fused_batch_norm=_norm, relu=jax.nn.relu, relu6=jax.nn.relu6, max_pool=_max_pool,
        avg_pool=_avg_pool, softmax=jax.nn.softmax, bias_add=jnp.add,
    ),
)  # fmt: skip
"""The few functions that the networks of `models.py` are written with."""


def _frozen(name: str) -> Callable[[], Any]:
    return _call(lambda images: models.FROZEN[name](TF, images), models.image())


for _name in models.FROZEN:
    WORKLOADS[f"{_name}, frozen, batch 1"] = functools.partial(_frozen, _name)


def _cnn_params() -> dict[str, np.ndarray]:
    params = {}
    for i, (a, b) in enumerate(((3, 32), (32, 64), (64, 64))):
        params |= {f"filter{i}": _normal(3, 3, a, b, scale=(2 / (9 * a)) ** 0.5), f"bias{i}": np.zeros(b, np.float32)}
    for i, (a, b) in enumerate(((8 * 8 * 64, 128), (128, 10))):
        params |= {f"dense{i}": _normal(a, b, scale=(2 / a) ** 0.5), f"dense_bias{i}": np.zeros(b, np.float32)}
    return params


def _cnn(p: Any, x: Any) -> Any:
    for i in range(3):
        x = jax.nn.relu(_conv2d(x, p[f"filter{i}"], (1, 1, 1, 1), "SAME") + p[f"bias{i}"])
        x = _max_pool(x, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") if i < 2 else x
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ p["dense0"] + p["dense_bias0"])
    return x @ p["dense1"] + p["dense_bias1"]


@workload("CNN forward, batch 32")
def cnn_forward() -> Callable[[], Any]:
    return _call(lambda p, x: jax.nn.softmax(_cnn(p, x)), jax.tree.map(jnp.asarray, _cnn_params()), _normal(32, 32, 32, 3, seed=1))


def _cnn_training(optimizer: str) -> Callable[[], Any]:
    labels = np.random.RandomState(1).randint(0, 10, 32).astype(np.int32)
    return _train(lambda p, x, y: _entropy(_cnn(p, x), y), _cnn_params(), (_normal(32, 32, 32, 3, seed=1), labels), 0.01, optimizer)


WORKLOADS["CNN training, batch 32, SGD"] = functools.partial(_cnn_training, "sgd")
WORKLOADS["CNN training, batch 32, Momentum"] = functools.partial(_cnn_training, "momentum")
