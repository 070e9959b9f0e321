"""Training steps on a GPU: Penstock against the same computation written in JAX and jitted.

    python -m benchmarks.gpu --write docs/performance.md

Both submit steps without waiting for them; a round ends when the device is done. Rounds alternate, medians are compared. Runs on any
platform that PENSTOCK_GPU_PLATFORM names, with --small where that is a CPU.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Step = Callable[[], None]
Sync = Callable[[], Any]


def _weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    fan_in = int(np.prod(shape[:-1]))
    return (rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


# -- Penstock -------------------------------------------------------------------------------------------------------------


class OursTrainer:
    """A graph on /gpu:0 with Adam; the data are constants on the device."""

    def __init__(self, build: Callable[..., Any], sizes: dict[str, int]) -> None:
        import penstock as tf

        self.tf = tf
        graph = tf.Graph()
        with graph.as_default(), tf.device("/gpu:0"):
            self.loss = build(_Ours(tf), sizes)
            train = tf.train.AdamOptimizer(1e-3).minimize(self.loss)
        self.session = tf.Session(graph=graph, config=tf.ConfigProto(allow_soft_placement=True))
        with graph.as_default():
            self.session.run(tf.global_variables_initializer())
        self.step = self.session.make_callable(train)
        self.sync = self.session.make_callable(self.loss)


class _Ours:
    """What the models need, in TF1's words."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self.rng = np.random.default_rng(0)

    def data(self, array: np.ndarray) -> Any:
        return self.tf.constant(array)

    def weight(self, *shape: int) -> Any:
        name = f"w{len(self.tf.global_variables())}"
        return self.tf.get_variable(name, initializer=_weights(self.rng, *shape), use_resource=True)

    def matmul(self, a: Any, b: Any) -> Any:
        return self.tf.matmul(a, b)

    def relu(self, x: Any) -> Any:
        return self.tf.nn.relu(x)

    def conv(self, x: Any, w: Any) -> Any:
        return self.tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")

    def pool(self, x: Any) -> Any:
        return self.tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")

    def reshape(self, x: Any, shape: list[int]) -> Any:
        return self.tf.reshape(x, shape)

    def transpose(self, x: Any, order: list[int]) -> Any:
        return self.tf.transpose(x, order)

    def softmax(self, x: Any) -> Any:
        return self.tf.nn.softmax(x)

    def mean(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return self.tf.reduce_mean(x, axis, keepdims)

    def rsqrt(self, x: Any) -> Any:
        return self.tf.rsqrt(x)

    def square(self, x: Any) -> Any:
        return self.tf.square(x)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.tf.reduce_mean(self.tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


# -- JAX ------------------------------------------------------------------------------------------------------------------


class JaxTrainer:
    """The same, by jax.jit with donated parameters and a plain Adam."""

    def __init__(self, build: Callable[..., Any], sizes: dict[str, int]) -> None:
        import jax
        import jax.numpy as jnp

        probe = _Jax(jax, None)
        jax.eval_shape(lambda: build(probe, sizes))  # collects parameters and data
        device = jax.devices()[0]
        self.params = [jax.device_put(w, device) for w in probe.made]
        data = [jax.device_put(d, device) for d in probe.datas]
        self.state = [(jnp.zeros_like(p), jnp.zeros_like(p)) for p in self.params]
        self.count = jnp.zeros((), jnp.float32)

        def loss_of(params: Any, data: Any) -> Any:
            return build(_Jax(jax, params, data), sizes)

        def update(params: Any, state: Any, count: Any, data: Any) -> Any:
            _, grads = jax.value_and_grad(loss_of)(params, data)
            count = count + 1
            rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
            new_params, new_state = [], []
            for p, g, (m, v) in zip(params, grads, state):
                m = m + (g - m) * (1 - 0.9)
                v = v + (g * g - v) * (1 - 0.999)
                new_params.append(p - rate * m / (jnp.sqrt(v) + 1e-8))
                new_state.append((m, v))
            return new_params, new_state, count

        self._update = jax.jit(update, donate_argnums=(0, 1, 2))
        self._loss = jax.jit(loss_of)
        self._data = data

    def step(self) -> None:
        self.params, self.state, self.count = self._update(self.params, self.state, self.count, self._data)

    def sync(self) -> float:
        return float(self._loss(self.params, self._data))


class _Jax:
    def __init__(self, jax: Any, params: Any, data: Any = None) -> None:
        self.jax, self.jnp = jax, jax.numpy
        self.rng = np.random.default_rng(0)
        self.params = None if params is None else iter(params)
        self.inputs = None if data is None else iter(data)
        self.made: list[np.ndarray] = []
        self.datas: list[np.ndarray] = []

    def data(self, array: np.ndarray) -> Any:
        if self.inputs is not None:
            return next(self.inputs)
        self.datas.append(array)
        return self.jnp.asarray(array)

    def weight(self, *shape: int) -> Any:
        if self.params is not None:
            return next(self.params)
        self.made.append(_weights(self.rng, *shape))
        return self.jnp.asarray(self.made[-1])

    def matmul(self, a: Any, b: Any) -> Any:
        return self.jnp.matmul(a, b)

    def relu(self, x: Any) -> Any:
        return self.jax.nn.relu(x)

    def conv(self, x: Any, w: Any) -> Any:
        return self.jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def pool(self, x: Any) -> Any:
        return self.jax.lax.reduce_window(x, -self.jnp.inf, self.jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")

    def reshape(self, x: Any, shape: list[int]) -> Any:
        return self.jnp.reshape(x, shape)

    def transpose(self, x: Any, order: list[int]) -> Any:
        return self.jnp.transpose(x, order)

    def softmax(self, x: Any) -> Any:
        return self.jax.nn.softmax(x)

    def mean(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return self.jnp.mean(x, axis, keepdims=keepdims)

    def rsqrt(self, x: Any) -> Any:
        return self.jax.lax.rsqrt(x)

    def square(self, x: Any) -> Any:
        return self.jnp.square(x)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        logp = self.jax.nn.log_softmax(logits)
        return -self.jnp.mean(self.jnp.take_along_axis(logp, labels[:, None], 1))


# -- models ---------------------------------------------------------------------------------------------------------------


def mlp(api: Any, sizes: dict[str, int]) -> Any:
    rng = np.random.default_rng(1)
    batch, width = sizes["batch"], sizes["width"]
    x = api.data(rng.standard_normal((batch, 784)).astype(np.float32))
    labels = api.data(rng.integers(0, 10, batch).astype(np.int32))
    last = 784
    for _ in range(3):
        x = api.relu(api.matmul(x, api.weight(last, width)) + api.weight(width))
        last = width
    return api.cross_entropy(api.matmul(x, api.weight(last, 10)) + api.weight(10), labels)


def cnn(api: Any, sizes: dict[str, int]) -> Any:
    rng = np.random.default_rng(1)
    batch, width = sizes["batch"], sizes["width"]
    x = api.data(rng.standard_normal((batch, 32, 32, 3)).astype(np.float32))
    labels = api.data(rng.integers(0, 10, batch).astype(np.int32))
    last = 3
    for scale in (1, 2, 4):
        x = api.relu(api.conv(x, api.weight(3, 3, last, width * scale)) + api.weight(width * scale))
        x = api.pool(api.relu(api.conv(x, api.weight(3, 3, width * scale, width * scale)) + api.weight(width * scale)))
        last = width * scale
    x = api.reshape(x, [batch, 16 * last])
    return api.cross_entropy(api.matmul(x, api.weight(16 * last, 10)) + api.weight(10), labels)


def transformer(api: Any, sizes: dict[str, int]) -> Any:
    rng = np.random.default_rng(1)
    batch, length, width, heads = sizes["batch"], sizes["length"], sizes["width"], sizes["heads"]
    x = api.data(rng.standard_normal((batch, length, width)).astype(np.float32))
    labels = api.data(rng.integers(0, 10, batch).astype(np.int32))

    def norm(v: Any) -> Any:
        centred = v - api.mean(v, -1, True)
        return centred * api.rsqrt(api.mean(api.square(centred), -1, True) + 1e-5) * (api.weight(width) + 1.0) + api.weight(width)

    def linear(v: Any, inputs: int, outputs: int) -> Any:
        flat = api.matmul(api.reshape(v, [batch * length, inputs]), api.weight(inputs, outputs)) + api.weight(outputs)
        return api.reshape(flat, [batch, length, outputs])

    def split(v: Any) -> Any:
        return api.transpose(api.reshape(v, [batch, length, heads, width // heads]), [0, 2, 1, 3])

    h = norm(x)
    q, k, v = (split(linear(h, width, width)) for _ in range(3))
    scores = api.softmax(api.matmul(q, api.transpose(k, [0, 1, 3, 2])) * float((width // heads) ** -0.5))
    mixed = api.reshape(api.transpose(api.matmul(scores, v), [0, 2, 1, 3]), [batch, length, width])
    x = x + linear(mixed, width, width)
    h = api.relu(linear(norm(x), width, 4 * width))
    x = x + linear(h, 4 * width, width)
    pooled = api.mean(x, 1)
    return api.cross_entropy(api.matmul(pooled, api.weight(width, 10)) + api.weight(10), labels)


MODELS = {
    "MLP (784-1024x3-10, batch 512)": (mlp, {"batch": 512, "width": 1024}, {"batch": 16, "width": 32}),
    "MLP (784-256x3-10, batch 64)": (mlp, {"batch": 64, "width": 256}, {"batch": 8, "width": 16}),
    "CNN (6 convolutions, batch 256)": (cnn, {"batch": 256, "width": 64}, {"batch": 4, "width": 4}),
    "transformer block (512 wide, 8 heads, 32 x 256)": (
        transformer, {"batch": 32, "length": 256, "width": 512, "heads": 8}, {"batch": 2, "length": 8, "width": 16, "heads": 2},
    ),
}  # fmt: skip


def time_round(trainer: Any, steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        trainer.step()
    trainer.sync()
    return (time.perf_counter() - start) / steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.7, help="of one round")
    parser.add_argument("--write", metavar="PAGE", help="put the table into this page, between its marks for GPUs")
    options = parser.parse_args()
    import jax

    device = jax.devices()[0]
    head = f"{device.device_kind}, JAX {jax.__version__}, {datetime.date.today()}; medians of {options.rounds} alternating rounds"
    rows = []
    print(head)
    print(f"{'training step':<50}{'Penstock':>12}{'JAX':>12}{'ratio':>8}   loss after the same number of steps")
    for name, (build, large, small) in MODELS.items():
        if options.only not in name:
            continue
        sizes = small if options.small else large
        trainers = {"penstock": OursTrainer(build, sizes), "jax": JaxTrainer(build, sizes)}
        losses = []
        for trainer in trainers.values():
            for _ in range(10):
                trainer.step()
            losses.append(float(trainer.sync()))
        steps = max(5, int(options.seconds / time_round(trainers["jax"], 20)))
        times: dict[str, list[float]] = {key: [] for key in trainers}
        for _ in range(options.rounds):
            for key, trainer in trainers.items():
                times[key].append(time_round(trainer, steps))
        ours, theirs = (statistics.median(times[key]) for key in trainers)
        row = f"{name:<50}{ours * 1e6:>9.0f} us{theirs * 1e6:>9.0f} us{ours / theirs:>7.3f}x"
        print(f"{row}   {losses[0]:.5f} {losses[1]:.5f}", flush=True)
        rows.append(f"| {name} | {ours * 1e6:.0f} us | {theirs * 1e6:.0f} us | {ours / theirs:.3f} |")
    if options.write:
        write(options.write, head, rows)
    return 0


BEGIN, END = "<!-- gpu: begin -->", "<!-- gpu: end -->"


def write(page: str, head: str, rows: list[str]) -> None:
    """Replaces what stands between the marks."""
    with open(page) as file:
        text = file.read()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = ["| training step | Penstock | JAX | Penstock's time / JAX's |", "|---|---|---|---|", *rows]
    with open(page, "w") as file:
        file.write("\n".join([before + BEGIN, "", head + ".", "", *table, "", END + after]))


if __name__ == "__main__":
    sys.exit(main())
