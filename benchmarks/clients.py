"""Several client threads in one session: how much work they get done together.

    python -m benchmarks.clients                                    all programs with 1, 2, 4 and 8 clients, some minutes
    python -m benchmarks.clients --only MLP --clients 2 4 --rounds 5

Each package lives in a process of its own, the other ones are stopped meanwhile (`workers.py`). A round lets all clients run the same step for a moment;
its result is the number of steps that ended, over the time. Ratios are ours over TensorFlow's: above 1, we get more done. "CPU" is what a step of theirs takes of all cores' time over what ours
takes: where it is above 1 and the ratio is not, cores were idle. "others" is the part of the machine that other processes had, which should be nothing. Numbers of clients come in turn in the same process, as threads that stay.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from benchmarks import models, sequences, table, timing, worker, workloads
from benchmarks.table import OURS, PLAIN, THEIRS
from benchmarks.workers import Failed, Pool

BURST = 0.02
"""Seconds for which clients run between two looks at whether there is anything left to compile."""
LIMIT, TIMEOUT = 20.0, 120.0


# -- programs -----------------------------------------------------------------------------------------------------------


def mlp(tf: Any, batch: int, training: bool, width: int = 256, by_callable: bool = False) -> Callable[[], Any]:
    """Two hidden layers."""
    x = tf.placeholder(tf.float32, [batch, 64])
    labels = tf.placeholder(tf.int64, [batch])
    rng = np.random.RandomState(0)
    sizes = [64, width, width, 10]
    variables = [tf.Variable((rng.randn(m, n) / np.sqrt(m)).astype(np.float32)) for m, n in itertools.pairwise(sizes)]
    y = x
    for i, w in enumerate(variables):
        y = tf.matmul(y, w)
        if i < 2:
            y = tf.nn.relu(y)
    fetch: Any = y
    if training:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=y))
        fetch = [loss, tf.train.GradientDescentOptimizer(0.01).minimize(loss)]
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    images, classes = rng.randn(batch, 64).astype(np.float32), rng.randint(0, 10, batch)
    if by_callable:
        call = sess.make_callable(fetch, [x])
        return lambda: call(images)
    feeds = {x: images, labels: classes} if training else {x: images}
    return lambda: sess.run(fetch, feeds)


def add(tf: Any, by_callable: bool = False) -> Callable[[], Any]:
    """Nothing but an addition: what a step costs by itself."""
    x = tf.placeholder(tf.float32, [4])
    y = x + 1.0
    sess = tf.Session()
    value = np.ones(4, np.float32)
    if by_callable:
        call = sess.make_callable(y, [x])
        return lambda: call(value)
    return lambda: sess.run(y, {x: value})


WORKLOADS: dict[str, Callable[..., Callable[[], Any]]] = {
    "add": add,
    "add, callable": lambda tf: add(tf, by_callable=True),
    "scalar chain of 2,000": workloads.WORKLOADS["2,000-op scalar chain"],
    "MLP forward, batch 32": lambda tf: mlp(tf, 32, False),
    "MLP forward, batch 32, callable": lambda tf: mlp(tf, 32, False, by_callable=True),
    "MLP forward, batch 256": lambda tf: mlp(tf, 256, False),
    "MLP training, batch 32": lambda tf: mlp(tf, 32, True),
    "MLP training, batch 256": lambda tf: mlp(tf, 256, True),
    "embedding, sparse SGD": lambda tf: sequences.embedding(tf, adagrad=False),
    "LSTM training, unrolled": sequences.lstm_training,
    "attention, forward": lambda tf: sequences.attention(tf, training=False),
    "attention, training": lambda tf: sequences.attention(tf, training=True),
    "CNN forward, batch 32": models.cnn_forward,
    "CNN training, batch 32": models.cnn_training,
    "MobileNet v2, frozen": models.frozen("MobileNet v2"),
}
"""By this name the workers look for what they shall run."""


# -- a package's side -----------------------------------------------------------------------------------------------------


class Clients(worker.Worker):
    """A worker whose rounds are those of several threads."""

    _threads: ThreadPoolExecutor | None = None
    _number = 0

    def clients(self, number: int, seconds: float, limit: float) -> dict[str, Any]:
        """So many of them from now on; warms up."""
        if number != self._number:
            if self._threads is not None:
                self._threads.shutdown()
            self._threads, self._number = ThreadPoolExecutor(number), number
        return {"seconds": timing.settle(self.package, lambda: self._run(BURST), seconds, limit)}

    def round(self, seconds: float) -> dict[str, Any]:
        before = time.process_time()
        steps, count = self._run(seconds)
        return {"steps": steps, "cpu": (time.process_time() - before) / count}

    def _run(self, seconds: float) -> tuple[float, int]:
        """Steps a second of all clients together, and how many there were."""
        assert self._threads is not None and self.step is not None
        gate, step, clock = threading.Barrier(self._number), self.step, time.perf_counter

        def client() -> tuple[float, float, int]:
            gate.wait()
            begin = now = clock()
            n = 0
            while now < begin + seconds:
                step()
                n += 1
                now = clock()
            return begin, now, n

        parts = [future.result() for future in [self._threads.submit(client) for _ in range(self._number)]]
        return sum(n / (end - begin) for begin, end, n in parts), sum(n for _, _, n in parts)


# -- the table ------------------------------------------------------------------------------------------------------------


class Rates(NamedTuple):
    """Steps a second and seconds of CPU a step by package; part of the machine that others had meanwhile."""

    steps: dict[str, float]
    cpu: dict[str, float]
    others: float


def measure(pool: Pool, name: str, numbers: list[int], packages: list[str], rounds: int, seconds: float) -> Iterator[tuple[int, Rates]]:
    """Rates by number of clients, as they come."""
    for package in packages:
        pool.ask(package, "setup", TIMEOUT, module="benchmarks.clients", name=name)
    for number in numbers:
        for package in packages:
            pool.ask(package, "clients", TIMEOUT, number=number, seconds=1.0, limit=LIMIT)
        answers: dict[str, list[dict[str, float]]] = {package: [] for package in packages}
        before = pool.clock()
        for i in range(rounds):
            for package in packages if i % 2 == 0 else reversed(packages):
                answers[package].append(pool.ask(package, "round", TIMEOUT, seconds=seconds))
        steps, cpu = ({p: statistics.median(a[what] for a in rows) for p, rows in answers.items()} for what in ("steps", "cpu"))
        yield number, Rates(steps, cpu, table.share(before, pool.clock()))
    for package in packages:
        pool.drop(package, TIMEOUT)


def heading() -> str:
    return f"{'steps a second':<34}{'clients':>8}{'Penstock':>11}{'TensorFlow':>12}{'ratio':>8}{'CPU':>7}{'without XLA':>13}{'ratio':>8}{'CPU':>7}{'others':>8}"


def line(name: str, number: int, rates: Rates) -> str:
    """A row of the table."""

    def ratios(package: str) -> str:
        if package not in rates.steps:
            return f"{'-':>8}{'-':>7}"
        return f"{rates.steps[package] / rates.steps[THEIRS]:>7.2f}x{rates.cpu[THEIRS] / rates.cpu[package]:>6.2f}x"

    shown = [f"{rates.steps[package]:,.0f}" if package in rates.steps else "-" for package in (OURS, THEIRS, PLAIN)]
    return f"{name:<34}{number:>8}{shown[0]:>11}{shown[1]:>12}{ratios(OURS)}{shown[2]:>13}{ratios(PLAIN)}{rates.others:>8.0%}"


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    packages = [OURS, THEIRS, *([] if options.no_plain else [PLAIN])]
    pool = Pool(table.ENVIRONMENTS, "benchmarks.clients")
    behind = []
    try:
        print(heading(), flush=True)
        for name in (n for n in WORKLOADS if any(text in n for text in options.only)):
            try:
                for number, rates in measure(pool, name, options.clients, packages, options.rounds, options.seconds):
                    print(line(name, number, rates), flush=True)
                    steps = rates.steps
                    behind += [f"{name} with {number} ({p}: {steps[p] / steps[THEIRS]:.2f}x)" for p in packages if steps[p] < steps[THEIRS]]
            except Failed as error:
                print(f"{name:<34}failed: {error}", flush=True)
    finally:
        pool.close()
    print(f"\nLess than TensorFlow: {', '.join(behind) or 'none'}.")
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="programs whose name contains one of these")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="time per package and round")
    parser.add_argument("--no-plain", action="store_true", help="only with XLA")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    if sys.argv[1:] in (["penstock"], ["tensorflow"]):
        worker.main(Clients)
    else:
        sys.exit(main())
