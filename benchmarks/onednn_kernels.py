"""Heavy kernels one by one: Penstock with oneDNN against TensorFlow (whose CPU kernels are oneDNN's too), each as a step of a session.

    python -m benchmarks.onednn_kernels [--only conv] [--rounds 5] [--wait 60]

Inputs are variables, so that nothing is folded and filters may change from step to step, as in training; rows marked "frozen" have
constant filters, as in inference. Both packages take turns; a round counts only if other processes left the machine alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.__main__ import load

Setup = Callable[[Any], Any]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def conv(kind: str, batch: int, size: int, depth: int, out: int, window: int, stride: int = 1, frozen: bool = False) -> Setup:
    """`kind`: forward, input or filter; "depthwise ..." for one filter a channel."""
    depthwise = kind.startswith("depthwise")
    kind = kind.removeprefix("depthwise ")

    def setup(tf: Any) -> Any:
        x, w = normal(batch, size, size, depth), normal(window, window, depth, 1 if depthwise else out)
        strides, positions = [1, stride, stride, 1], -(-size // stride)
        dy = tf.Variable(normal(batch, positions, positions, depth if depthwise else out))
        vx, vw = tf.Variable(x), tf.constant(w) if frozen else tf.Variable(w)
        raw = tf.raw_ops
        forward = raw.DepthwiseConv2dNative if depthwise else raw.Conv2D
        if kind == "forward":
            return forward(input=vx, filter=vw, strides=strides, padding="SAME")
        if kind == "input":
            op = raw.DepthwiseConv2dNativeBackpropInput if depthwise else raw.Conv2DBackpropInput
            return op(input_sizes=list(x.shape), filter=vw, out_backprop=dy, strides=strides, padding="SAME")
        op = raw.DepthwiseConv2dNativeBackpropFilter if depthwise else raw.Conv2DBackpropFilter
        return op(input=vx, filter_sizes=list(w.shape), out_backprop=dy, strides=strides, padding="SAME")

    return setup


def matmul(rows: int, columns: int, inner: int, across: tuple[bool, bool] = (False, False)) -> Setup:
    def setup(tf: Any) -> Any:
        a = normal(*((inner, rows) if across[0] else (rows, inner)))
        b = normal(*((columns, inner) if across[1] else (inner, columns)))
        return tf.matmul(tf.Variable(a), tf.Variable(b), transpose_a=across[0], transpose_b=across[1])

    return setup


def batch_matmul(batch: int, rows: int, columns: int, inner: int) -> Setup:
    return lambda tf: tf.matmul(tf.Variable(normal(batch, rows, inner)), tf.Variable(normal(batch, inner, columns)))


def pool(kind: str, batch: int, size: int, depth: int, window: int, stride: int) -> Setup:
    def setup(tf: Any) -> Any:
        attrs = dict(ksize=[1, window, window, 1], strides=[1, stride, stride, 1], padding="SAME")
        x, positions = tf.Variable(normal(batch, size, size, depth)), -(-size // stride)
        if kind in ("max", "avg"):
            return (tf.raw_ops.MaxPool if kind == "max" else tf.raw_ops.AvgPool)(**{"input" if kind == "max" else "value": x}, **attrs)
        dy = tf.Variable(normal(batch, positions, positions, depth))
        if kind == "max gradient":
            return tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=tf.nn.max_pool(x, **attrs), grad=dy, **attrs)
        return tf.raw_ops.AvgPoolGrad(orig_input_shape=[batch, size, size, depth], grad=dy, **attrs)

    return setup


def batch_norm(kind: str, batch: int, size: int, depth: int) -> Setup:
    def setup(tf: Any) -> Any:
        x = tf.Variable(normal(batch, size, size, depth))
        scale, offset, mean, variance = (tf.Variable(np.abs(normal(depth)) + i) for i in range(1, 5))
        attrs = dict(epsilon=1e-3, is_training=kind != "inference")
        if kind == "gradient":
            return tf.raw_ops.FusedBatchNormGradV3(
                y_backprop=x, x=x, scale=scale, reserve_space_1=mean, reserve_space_2=variance, reserve_space_3=mean, **attrs
            )[0]
        return tf.raw_ops.FusedBatchNormV3(x=x, scale=scale, offset=offset, mean=mean, variance=variance, **attrs)[0]

    return setup


def softmax(rows: int, classes: int) -> Setup:
    return lambda tf: tf.nn.softmax(tf.Variable(normal(rows, classes)))


def workloads() -> dict[str, Setup]:
    rows: dict[str, Setup] = {}
    resnet = [(224, 3, 64, 7, 2), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (56, 256, 128, 1, 2), (28, 128, 128, 3, 1), (14, 256, 256, 3, 1), (14, 1024, 256, 1, 1), (7, 512, 512, 3, 1)]
    for batch in (1, 32):
        for size, depth, out, window, stride in resnet:
            shape = f"{batch}x{size}x{size}x{depth} -> {out}, {window}x{window} / {stride}"
            for kind in ("forward", "frozen", "input", "filter"):
                frozen = kind == "frozen"
                rows[f"conv {kind:<8} {shape}"] = conv("forward" if frozen else kind, batch, size, depth, out, window, stride, frozen)
    for batch in (1, 32):
        for size, depth, stride in ((112, 32, 1), (56, 128, 2), (14, 512, 1)):
            for kind in ("forward", "input", "filter"):
                rows[f"depthwise {kind:<8} {batch}x{size}x{size}x{depth}, 3x3 / {stride}"] = conv(f"depthwise {kind}", batch, size, depth, 0, 3, stride)
    for batch, size, depth, out in ((128, 28, 1, 32), (128, 14, 32, 64)):
        for kind in ("forward", "input", "filter"):
            rows[f"conv {kind:<8} {batch}x{size}x{size}x{depth} -> {out}, 5x5 / 1"] = conv(kind, batch, size, depth, out, 5)
    for n in (64, 128, 256, 512, 1024):
        rows[f"matmul {n}"] = matmul(n, n, n)
    for r, c, k in ((1, 1000, 2048), (32, 1000, 2048), (128, 512, 784), (128, 10, 512)):
        rows[f"matmul {r}x{k} @ {k}x{c}"] = matmul(r, c, k)
    rows["matmul 784x128 ' @ 128x512"] = matmul(784, 512, 128, (True, False))
    rows["matmul 128x512 @ 784x512 '"] = matmul(128, 784, 512, (False, True))
    rows["batch matmul 96 of 64x64 @ 64x128"] = batch_matmul(96, 64, 128, 64)
    for kind in ("max", "avg", "max gradient", "avg gradient"):
        rows[f"{kind} pool 32x112x112x64, 3x3 / 2"] = pool(kind, 32, 112, 64, 3, 2)
        rows[f"{kind} pool 32x28x28x32, 2x2 / 2"] = pool(kind, 32, 28, 32, 2, 2)
    for kind in ("inference", "training", "gradient"):
        rows[f"batch norm {kind} 32x56x56x64"] = batch_norm(kind, 32, 56, 64)
        rows[f"batch norm {kind} 1x28x28x128"] = batch_norm(kind, 1, 28, 128)
    rows["softmax 128x1000"] = softmax(128, 1000)
    rows["softmax 4096x64"] = softmax(4096, 64)
    return rows


# -- timing -------------------------------------------------------------------------------------------------------------


def _busy() -> tuple[float, float]:
    """Ticks that all CPUs have worked, and ticks that there were."""
    with open("/proc/stat") as file:
        ticks = [int(v) for v in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _own() -> float:
    spent = os.times()
    return (spent.user + spent.system) * os.sysconf("SC_CLK_TCK")


def wait_for_quiet(deadline: float) -> bool:
    """Waits until the machine is idle; False if it is not by then."""
    while time.time() < deadline:
        before = _busy()
        time.sleep(0.2)
        after = _busy()
        if after[0] - before[0] <= 0.08 * (after[1] - before[1]):
            return True
    return False


def step_of(tf: Any, setup: Setup) -> Any:
    """One step of a session that computes what `setup` builds, without fetching it."""
    with tf.Graph().as_default():
        result = setup(tf)
        config = tf.ConfigProto(intra_op_parallelism_threads=os.cpu_count() or 1, inter_op_parallelism_threads=os.cpu_count() or 1)
        session = tf.Session(config=config)
        session.run(tf.global_variables_initializer())
        return session.make_callable(result.op)


def quarter(step: Any, seconds: float) -> float:
    """The time that a quarter of the calls stays below."""
    times, end = [], time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        step()
        now = time.perf_counter()
        times.append(now - start)
        if now > end and len(times) >= 3:
            return sorted(times)[len(times) // 4]


def alternate(steps: dict[str, Any], rounds: int, seconds: float, wait: float) -> tuple[dict[str, float], int]:
    """Seconds a step by package, and how many undisturbed rounds that comes from."""
    for step in steps.values():
        for _ in range(3):
            step()
    quiet: list[dict[str, float]] = []
    disturbed: list[dict[str, float]] = []
    deadline = time.time() + wait
    while len(quiet) < rounds and len(quiet) + len(disturbed) < 4 * rounds:
        is_idle = wait_for_quiet(deadline) if wait else True
        before, own = _busy(), _own()
        row = {name: quarter(step, seconds) for name, step in steps.items()}
        after = _busy()
        others = after[0] - before[0] - (_own() - own)
        (quiet if others < 0.06 * (after[1] - before[1]) else disturbed).append(row)
        if not is_idle and len(quiet) + len(disturbed) >= rounds:
            break
    rows = quiet or disturbed
    return {name: statistics.median(row[name] for row in rows) for name in steps}, len(quiet)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run workloads whose name contains this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="time per package and round")
    parser.add_argument("--wait", type=float, default=20, help="how long to wait for an idle machine, per workload")
    options = parser.parse_args()
    packages = {name: load(name) for name in ("penstock", "tensorflow")}
    from penstock.engines.onednn import library

    loaded = library.get()
    print(loaded.describe() if loaded else "no oneDNN: NumPy's kernels")
    print(f"{'kernel':<58}{'Penstock':>12}{'TensorFlow':>12}{'ratio':>8}  undisturbed rounds")
    ratios = []
    for name, setup in workloads().items():
        if options.only not in name:
            continue
        steps = {package: step_of(tf, setup) for package, tf in packages.items()}
        times, quiet = alternate(steps, options.rounds, options.seconds, options.wait)
        ratios.append(times["tensorflow"] / times["penstock"])
        print(f"{name:<58}{times['penstock'] * 1e6:>9.0f} us{times['tensorflow'] * 1e6:>9.0f} us{ratios[-1]:>7.2f}x  {quiet}", flush=True)
    print(f"{len(ratios)} kernels, {sum(r >= 1 for r in ratios)} at least as fast as TensorFlow, geometric mean {np.exp(np.mean(np.log(ratios))):.2f}x")


if __name__ == "__main__":
    main()
