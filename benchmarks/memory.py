"""Peak memory of a training step, Penstock beside TensorFlow: `python -m benchmarks.memory`.

Each measurement is a process of its own. It loads the package and what it computes with, notes the resident memory, builds the graph,
initialises the variables, trains for some steps, and prints how far the peak went beyond that. So the figure holds the weights and the
optimizer's slots once (first column), and whatever a step needs besides: activations, gradients, any second copy of the weights. It begins
before the variables because zeros are not resident until somebody writes to them.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workers import SETTINGS


def big_mlp(tf: Any) -> Callable[[], Any]:
    """Three layers of 2,048 units, batch 64, Adam: 37 MB of weights, twice that in slots."""
    x = tf.placeholder(tf.float32, [64, 1024])
    h = x
    for i, units in enumerate((2048, 2048, 2048)):
        w = tf.get_variable(f"w{i}", [int(h.shape[1]), units], initializer=tf.random_normal_initializer(stddev=0.02, seed=i))
        h = tf.nn.relu(tf.matmul(h, w))
    return _training(tf, h, tf.train.AdamOptimizer(1e-3), {x: np.ones((64, 1024), np.float32)})


def cnn(tf: Any) -> Callable[[], Any]:
    """Four 3x3 convolutions on 64x64 images, batch 32, momentum."""
    x = tf.placeholder(tf.float32, [32, 64, 64, 3])
    h = x
    for i, channels in enumerate((32, 32, 64, 64)):
        w = tf.get_variable(f"w{i}", [3, 3, int(h.shape[3]), channels], initializer=tf.random_normal_initializer(stddev=0.05, seed=i))
        h = tf.nn.relu(tf.nn.conv2d(h, w, [1, 1, 1, 1], "SAME"))
        if i % 2:
            h = tf.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    return _training(tf, h, tf.train.MomentumOptimizer(1e-3, 0.9), {x: np.ones((32, 64, 64, 3), np.float32)})


def embedding(tf: Any) -> Callable[[], Any]:
    """A table of 500,000 x 64 (128 MB), 256 rows a step, Adagrad."""
    table = tf.get_variable("table", [500_000, 64], initializer=tf.zeros_initializer())
    ids = tf.placeholder(tf.int32, [256])
    rows = tf.nn.embedding_lookup(table, ids) + 1.0
    return _training(tf, rows, tf.train.AdagradOptimizer(0.1), {ids: np.arange(256, dtype=np.int32) * 7})


def _training(tf: Any, y: Any, optimizer: Any, feeds: dict) -> Callable[[], Any]:
    train = optimizer.minimize(tf.reduce_mean(tf.square(y)))
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    return lambda: sess.run(train, feeds)


PROGRAMS: dict[str, Callable[[Any], Callable[[], Any]]] = {"MLP, 3 x 2,048 units, Adam": big_mlp, "CNN, batch 32, momentum": cnn, "embedding, sparse Adagrad": embedding}


def _resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(package: str, program: str, steps: int) -> None:
    """Prints, in MB: the variables' own size, and how far the peak of it all is above what stood before the graph."""
    tf = load(package)
    with tf.Graph().as_default(), tf.Session() as sess:
        sess.run(tf.matmul(tf.ones([256, 256]), tf.ones([256, 256])))
    before = _resident()
    step = PROGRAMS[program](tf)
    for _ in range(steps):
        step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    variables = sum(int(np.prod([int(n) for n in v.shape])) * 4 for v in tf.global_variables()) / 2**20
    print(f"{variables:.1f} {peak - before:.1f}")


def load(name: str) -> Any:
    if name == "penstock":
        import contextlib

        import penstock

        with contextlib.suppress(ImportError):  # TensorFlow brings its compiler along when it is imported
            import jax  # noqa: F401
        return penstock
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.compat.v1.disable_v2_behavior()
    return tf.compat.v1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--measure", nargs=2, metavar=("PACKAGE", "PROGRAM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure, options.steps)
        return 0
    print(f"{'peak of training, MB':<40}{'variables':>12}{'Penstock':>12}{'TensorFlow':>12}{'ratio':>8}")
    for name in PROGRAMS:
        if options.only not in name:
            continue
        found = []
        for package in ("penstock", "tensorflow"):
            command = [sys.executable, "-m", "benchmarks.memory", "--steps", str(options.steps), "--measure", package, name]
            output = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **SETTINGS}).stdout.split("\n")[-2]
            found.append([float(number) for number in output.split()])
        (size, ours), (_, theirs) = found
        print(f"{name:<40}{size:>12.0f}{ours:>12.0f}{theirs:>12.0f}{theirs / ours:>7.2f}x", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
