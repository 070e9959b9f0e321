"""How cost grows: with nodes, elements, devices and threads. The programs, and the curves measured with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks import timing
from benchmarks.table import OURS, THEIRS, Effort
from benchmarks.workers import Failed, Pool

MOST_PATIENCE = 60.0
"""Seconds until large graphs are as quick as they get: XLA compiles a tangle of 10,000 nodes for more than 10, beside the steps."""
Setup = Callable[..., Callable[[], Any]]
WORKLOADS: dict[str, Setup] = {}


def program(setup: Setup) -> Setup:
    WORKLOADS[setup.__name__] = setup
    return setup


# -- the programs -------------------------------------------------------------------------------------------------------


@program
def chain(tf: Any, nodes: int) -> Callable[[], Any]:
    """Each node takes the one before it."""
    x = tf.placeholder(tf.float32, [4])
    y = x
    for i in range(nodes):
        y = y + x if i % 2 else tf.sin(y)
    sess = tf.Session()
    data = np.linspace(0.1, 0.4, 4, dtype=np.float32)
    return lambda: sess.run(y, {x: data})


@program
def tangle(tf: Any, nodes: int) -> Callable[[], Any]:
    """Each node takes two of the twenty before it."""
    rng = np.random.RandomState(0)
    x = tf.placeholder(tf.float32, [4])
    values = [x, x * 0.5]
    kinds = [tf.maximum, tf.minimum, tf.multiply]  # and a cosine now and then: values stay between -1 and 1
    while len(values) < nodes:
        a, b = (values[max(0, len(values) - 1 - rng.randint(20))] for _ in range(2))
        values.append(tf.cos(a) if len(values) % 4 == 0 else kinds[rng.randint(3)](a, b))
    total = tf.add_n(values[-20:])
    sess = tf.Session()
    data = np.linspace(0.1, 0.4, 4, dtype=np.float32)
    return lambda: sess.run(total, {x: data})


def _elements(tf: Any, count: int, apply: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """On a variable, so that only the scalar is fed."""
    v = tf.get_variable("v", [count], initializer=tf.ones_initializer())
    x = tf.placeholder(tf.float32, [])
    y = apply(v, x)
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    return lambda: sess.run(y, {x: 2.0})


@program
def one_add(tf: Any, count: int) -> Callable[[], Any]:
    return _elements(tf, count, lambda v, x: v + x)


@program
def ten_elementwise(tf: Any, count: int) -> Callable[[], Any]:
    def apply(v: Any, x: Any) -> Any:
        y = v
        for _ in range(3):
            y = tf.maximum(y * x + v, 0.5)
        return y - x

    return _elements(tf, count, apply)


def _on_devices(tf: Any, count: int, y: Any, x: Any) -> Callable[[], Any]:
    sess = tf.Session(config=tf.ConfigProto(device_count={"CPU": count}))
    data = np.ones((64, 64), np.float32)
    return lambda: sess.run(y, {x: data})


@program
def round_robin(tf: Any, count: int) -> Callable[[], Any]:
    """48 small ops one after the other, each on the next device."""
    x = tf.placeholder(tf.float32, [64, 64])
    y = x
    for i in range(48):
        with tf.device(f"/cpu:{i % count}"):
            y = tf.tanh(y) + x
    return _on_devices(tf, count, y, x)


@program
def branches(tf: Any, count: int) -> Callable[[], Any]:
    """A branch of ten matmuls on every device, summed on the first."""
    x = tf.placeholder(tf.float32, [64, 64])
    ends = []
    for i in range(count):
        with tf.device(f"/cpu:{i}"):
            y = x
            for _ in range(10):
                y = tf.matmul(y, x) * (1.0 / 64)
            ends.append(y)
    with tf.device("/cpu:0"):
        total = tf.add_n(ends)
    return _on_devices(tf, count, total, x)


def _threads(tf: Any, count: int) -> Any:
    return tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=count, inter_op_parallelism_threads=count))


@program
def threads_elementwise(tf: Any, count: int) -> Callable[[], Any]:
    """30 elementwise ops on 1M floats."""
    x = tf.placeholder(tf.float32, [1_000_000])
    y = x
    for _ in range(10):
        y = tf.maximum(y * 1.01 + 0.5, x)
    total = tf.reduce_sum(y)
    sess, data = _threads(tf, count), np.linspace(0, 1, 1_000_000, dtype=np.float32)
    return lambda: sess.run(total, {x: data})


@program
def threads_matmul(tf: Any, count: int) -> Callable[[], Any]:
    """A 1024x1024 matmul."""
    x = tf.placeholder(tf.float32, [1024, 1024])
    y = tf.reduce_max(tf.matmul(x, x))
    sess, data = _threads(tf, count), np.ones((1024, 1024), np.float32)
    return lambda: sess.run(y, {x: data})


@program
def threads_convolution(tf: Any, count: int) -> Callable[[], Any]:
    """A 3x3 convolution of 8 images of 56x56x64."""
    x = tf.placeholder(tf.float32, [8, 56, 56, 64])
    filter = tf.constant(np.random.RandomState(0).randn(3, 3, 64, 64).astype(np.float32))
    y = tf.reduce_max(tf.nn.conv2d(x, filter, strides=[1, 1, 1, 1], padding="SAME"))
    sess, data = _threads(tf, count), np.ones((8, 56, 56, 64), np.float32)
    return lambda: sess.run(y, {x: data})


# -- the curves ---------------------------------------------------------------------------------------------------------


@dataclass
class Curve:
    """Seconds by package at every size."""

    title: str
    axis: str
    points: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def curves(pool: Pool, effort: Effort, is_quick: bool = False, packages: tuple[str, ...] = (OURS, THEIRS)) -> Iterator[Curve]:
    """All curves, each as soon as it is complete."""
    nodes = [10, 100, 1_000] if is_quick else [10, 100, 1_000, 10_000, 100_000]
    patient = effort if is_quick else dataclasses.replace(effort, limit=MOST_PATIENCE)
    for name, what in (("chain", "chain"), ("tangle", "tangle (each node takes two of the twenty before it)")):
        parts = {part: Curve(f"{what}: {part}", "nodes") for part in ("build", "first run", "warm step")}
        for size in nodes:
            _introduce(pool, packages)
            point = _point(pool, name, size, packages, patient, parts["warm step"].notes)
            for part, curve in parts.items():
                curve.points.append((size, {p: times[part] for p, times in point.items() if part in times}))
        yield from parts.values()
    sizes = [1, 100, 10_000] if is_quick else [10**i for i in range(9)]
    yield _curve(pool, "one_add", "one add", "elements", sizes, packages, effort)
    yield _curve(pool, "ten_elementwise", "ten elementwise ops", "elements", sizes, packages, effort)
    counts = [1, 2] if is_quick else [1, 2, 4, 8, 16]
    yield _curve(pool, "round_robin", "48 small ops in turn on all devices", "devices", counts, packages, effort)
    yield _curve(pool, "branches", "ten 64x64 matmuls on each device", "devices", counts, packages, effort)
    for name in ("threads_elementwise", "threads_matmul", "threads_convolution")[: 1 if is_quick else 3]:
        text = (WORKLOADS[name].__doc__ or name).rstrip(".")
        yield _curve(pool, name, text[0].lower() + text[1:], "threads", [1, 2], packages, effort, is_fresh=True)


def _introduce(pool: Pool, packages: tuple[str, ...]) -> None:
    """What a package imports when it is first used is not a matter of size: new processes, also those that replace one which still compiled, use it once before."""
    for package in packages:
        if not pool.is_used(package):
            _point(pool, "tangle", 100, (package,), dataclasses.replace(Effort.quick(), limit=20.0), [])  # one that still compiled would be replaced again


def _curve(
    pool: Pool, name: str, title: str, axis: str, sizes: list[int], packages: tuple[str, ...], effort: Effort, is_fresh: bool = False
) -> Curve:  # fmt: skip
    """`is_fresh`: every point in new processes, because TensorFlow makes its thread pools once a process."""
    curve = Curve(title, axis)
    for size in sizes:
        if is_fresh:
            for package in packages:
                pool.restart(package)
        point = _point(pool, name, size, packages, effort, curve.notes)
        curve.points.append((size, {p: times["warm step"] for p, times in point.items() if "warm step" in times}))
    if is_fresh:
        for package in packages:
            pool.restart(package)
    return curve


def _point(pool: Pool, name: str, size: int, packages: tuple[str, ...], effort: Effort, notes: list[str]) -> dict[str, dict[str, float]]:
    """Build, first run and warm step of one program at one size, packages in alternation."""
    result: dict[str, dict[str, float]] = {}
    rounds: dict[str, list[float]] = {}
    for package in packages:
        try:
            made = pool.ask(package, "setup", effort.timeout, module=__name__, name=name, arguments=[size])
            result[package] = {"build": made["build"], "first run": made["first"]}
            if pool.ask(package, "settle", effort.timeout, seconds=effort.settle, limit=effort.limit).get("compiling"):
                notes.append(f"{size:,}: {package} was still compiling after a warm-up of {effort.limit:g} s")
            rounds[package] = []
        except Failed as error:
            notes.append(f"{size:,}: {error}")
    for i in range(effort.rounds):
        for package in list(rounds) if i % 2 == 0 else list(reversed(rounds)):
            try:
                rounds[package].append(pool.ask(package, "round", effort.timeout, seconds=effort.seconds)["seconds"])
            except Failed as error:
                notes.append(f"{size:,}: {error}")
                del rounds[package]
    for package, times in rounds.items():
        result[package]["warm step"] = timing.median(times)
        try:
            pool.drop(package, effort.timeout)
        except Failed as error:
            notes.append(f"{size:,}: {error}")
    return result
