"""The first seconds of a process: how many steps there are within 1, 2, 5 and 10 seconds after the first result, while code is still written and programs are compiled.

    python -m benchmarks.early                                   all programs: Penstock, without XLA, TensorFlow
    python -m benchmarks.early --only "batch" --seconds 5
    python -m benchmarks.early penstock "batch of another size each step" 10      one fresh process; prints JSON

Most of the programs get arrays of other shapes from step to step, which is where code for single shapes comes late. Every process gets the machine for itself.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import timing
from benchmarks.arrays import Lstm
from benchmarks.sequences import _session, _weights
from benchmarks.table import ENVIRONMENTS, OURS, PLAIN, THEIRS, TITLES
from benchmarks.workers import SETTINGS

WINDOWS = (1.0, 2.0, 5.0, 10.0)
PROGRAMS: dict[str, Callable[[Any], Callable[[], Any]]] = {}


def program(name: str) -> Callable[[Callable], Callable]:
    def note(setup: Callable) -> Callable:
        PROGRAMS[name] = setup
        return setup

    return note


def _in_turn(sess: Any, fetches: Any, feeds: list[dict]) -> Callable[[], Any]:
    """A step with the next of the feeds."""
    place = iter(range(1 << 62))
    return lambda: sess.run(fetches, feeds[next(place) % len(feeds)])


# -- the programs -------------------------------------------------------------------------------------------------------


@program("batch of another size each step")
def changing_batch(tf: Any) -> Callable[[], Any]:
    """Training of an MLP, 1 to 256 rows."""
    x, labels = tf.placeholder(tf.float32, [None, 256]), tf.placeholder(tf.int32, [None])
    h = x
    for i, units in enumerate((256, 256)):
        h = tf.nn.relu(tf.matmul(h, _weights(tf, f"w{i}", int(h.shape[1]), units)) + tf.get_variable(f"b{i}", [units], initializer=tf.zeros_initializer()))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.matmul(h, _weights(tf, "out", 256, 10))))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    rng = np.random.RandomState(0)
    sizes = rng.randint(1, 257, 499)
    feeds = [{x: rng.randn(n, 256).astype(np.float32), labels: np.arange(n, dtype=np.int32) % 10} for n in sizes]
    return _in_turn(_session(tf), [loss, train], feeds)


@program("dynamic_rnn training, another length each step")
def changing_length(tf: Any) -> Callable[[], Any]:
    """10 to 60 steps of an LSTM."""
    x, labels = tf.placeholder(tf.float32, [16, None, 32]), tf.placeholder(tf.int32, [16])
    outputs, _ = tf.nn.dynamic_rnn(Lstm(tf, 32, 64), x, dtype=tf.float32)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.matmul(outputs[:, -1], _weights(tf, "out", 64, 10))))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    rng = np.random.RandomState(0)
    feeds = [{x: rng.randn(16, n, 32).astype(np.float32), labels: np.arange(16, dtype=np.int32) % 10} for n in rng.randint(10, 61, 199)]
    return _in_turn(_session(tf), [loss, train], feeds)


@program("attention, lengths in eight buckets")
def buckets(tf: Any) -> Callable[[], Any]:
    """Forward, eight sequences of 16 to 128 places."""
    x = tf.placeholder(tf.float32, [8, None, 128])
    length = tf.shape(x)[1]

    def split(name: str) -> Any:
        flat = tf.matmul(tf.reshape(x, [-1, 128]), _weights(tf, name, 128, 128))
        return tf.transpose(tf.reshape(flat, [8, length, 4, 32]), [0, 2, 1, 3])

    q, k, v = (split(name) for name in ("query", "key", "value"))
    scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 32**-0.5)
    mixed = tf.reshape(tf.transpose(tf.matmul(scores, v), [0, 2, 1, 3]), [8, length, 128])
    mean, variance = tf.nn.moments(mixed + x, [-1], keepdims=True)
    y = tf.reduce_mean((mixed + x - mean) * tf.rsqrt(variance + 1e-6), axis=1)
    rng = np.random.RandomState(0)
    feeds = [{x: rng.randn(8, n, 128).astype(np.float32)} for n in rng.choice(np.arange(16, 129, 16), 199)]
    return _in_turn(_session(tf), y, feeds)


@program("while loop, another number of rounds each step")
def changing_rounds(tf: Any) -> Callable[[], Any]:
    """50 to 250 rounds on eight numbers."""
    x, n = tf.placeholder(tf.float32, [8]), tf.placeholder(tf.int32, [])
    _, y = tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, tf.tanh(y * 1.5 + x)), [0, x])
    rng = np.random.RandomState(0)
    data = rng.randn(8).astype(np.float32)
    return _in_turn(_session(tf), y, [{x: data, n: int(rounds)} for rounds in rng.randint(50, 251, 199)])


@program("MLP training, batch 128")
def same_shapes(tf: Any) -> Callable[[], Any]:
    """The same shapes in every step."""
    from benchmarks import workloads

    return workloads.WORKLOADS["MLP training, batch 128, Adam"](tf)


@program("LSTM training, unrolled")
def unrolled(tf: Any) -> Callable[[], Any]:
    from benchmarks import workloads

    return workloads.WORKLOADS["LSTM training, 20 steps unrolled"](tf)


# -- measuring -----------------------------------------------------------------------------------------------------------


def steps_within(step: Callable[[], Any], windows: list[float]) -> dict[str, Any]:
    """How many steps end within each of the windows after the first one, and the slowest of them."""
    step()
    clock = time.perf_counter
    start = last = clock()
    ends: list[float] = []
    slowest = 0.0
    while last - start < windows[-1]:
        step()
        now = clock()
        slowest = max(slowest, now - last)
        ends.append(now - start)
        last = now
    return {"steps": [bisect.bisect_right(ends, seconds) for seconds in windows], "slowest": slowest}


def fresh(package: str, name: str, seconds: float) -> dict[str, Any]:
    """What a process of its own has to say."""
    env = {**os.environ, **SETTINGS, **ENVIRONMENTS.get(package, {})}
    command = [sys.executable, "-m", "benchmarks.early", package.split(":")[0], name, f"{seconds:g}"]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=seconds + 120, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def _windows(seconds: float) -> list[float]:
    return [w for w in WINDOWS if w <= seconds] or [seconds]


def _one(package: str, name: str, seconds: float) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    tf = timing.load(package)
    with tf.Graph().as_default():
        step = PROGRAMS[name](tf)
        answers.write(json.dumps(steps_within(step, _windows(seconds))) + "\n")
    answers.flush()
    os._exit(0)


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[2] in PROGRAMS:
        _one(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--seconds", type=float, default=WINDOWS[-1])
    parser.add_argument("--packages", default=",".join((OURS, PLAIN, THEIRS)))
    options = parser.parse_args()
    windows = _windows(options.seconds)
    for name in (n for n in PROGRAMS if options.only in n):
        print(f"\n{name}: steps within {', '.join(f'{w:g}' for w in windows)} s after the first result")
        theirs: list[int] = []
        for package in sorted(options.packages.split(","), key=THEIRS.__ne__):
            try:
                found = fresh(package, name, options.seconds)
            except subprocess.SubprocessError as error:
                print(f"  {TITLES.get(package, package):12} {type(error).__name__}")
                continue
            theirs = found["steps"] if package == THEIRS else theirs
            ratios = "  ".join(f"{n:6d}" + (f" ({n / max(t, 1):.2f}x)" if theirs and package != THEIRS else "") for n, t in zip(found["steps"], theirs or found["steps"]))
            print(f"  {TITLES.get(package, package):12} {ratios}   slowest {timing.show(found['slowest'])}", flush=True)


if __name__ == "__main__":
    main()
