"""Runs one program under Penstock and under TensorFlow 1 (tf.compat.v1 with v2 behaviour off) and compares.

A program is a function of `tf`: it builds a graph in the default graph and returns what to fetch (any nested structure).

    run_both(lambda tf: tf.gradients(tf.constant(2.0) ** 2, ...))

Both must give equal results, or raise exceptions of the same class. `structure_of` gives a graph's nodes as text, for
comparisons of names and wiring.
"""

from __future__ import annotations

import difflib
import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # some of its kernels abort the process on odd shapes


@functools.cache
def tensorflow() -> Any:
    """TensorFlow as a TF1 program sees it."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.disable_control_flow_v2()
    tf.logging.set_verbosity(tf.logging.ERROR)
    return tf


@functools.cache
def penstock() -> Any:
    import penstock as tf

    return tf


class Outcome:
    """What a program gave: values of each run, or an exception and the phase ("build" or "run") it came from."""

    def __init__(self, values: list[Any] | None = None, error: BaseException | None = None, phase: str = "") -> None:
        self.values = values
        self.error = error
        self.phase = phase

    def __repr__(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__} while the program {self.phase}: {str(self.error)[:500]}"
        return repr(self.values)


def outcome(tf: Any, program: Callable[[Any], Any], feed: dict[str, Any] | None = None, runs: int = 1) -> Outcome:
    """Builds and runs `program` under one package. `feed` maps placeholders' names to values."""
    graph = tf.Graph()
    with graph.as_default(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fetches = program(tf)
        except Exception as error:
            return Outcome(error=error, phase="builds")
        try:
            with tf.Session(graph=graph) as session:
                if graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES):
                    session.run(tf.global_variables_initializer())
                named = {_tensor(graph, name): value for name, value in (feed or {}).items()}
                return Outcome(values=[session.run(fetches, named) for _ in range(runs)])
        except Exception as error:
            return Outcome(error=error, phase="runs")


def _tensor(graph: Any, name: str) -> Any:
    return graph.get_tensor_by_name(name if ":" in name else name + ":0")


def _message(error: BaseException) -> str:
    return getattr(error, "message", None) or str(error)


def run_both(
    program: Callable[[Any], Any],
    feed: dict[str, Any] | None = None,
    runs: int = 1,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    message: str | None = None,
) -> Any:
    """Runs under both packages and compares; Penstock's result of the last run (or its exception) for further checks.

    `message` is a text that the messages of both exceptions must hold.
    """
    theirs = outcome(tensorflow(), program, feed, runs)
    ours = outcome(penstock(), program, feed, runs)
    if (theirs.error is None) != (ours.error is None):
        detail = ours.error if ours.error is not None else theirs.error
        raise AssertionError(f"TensorFlow: {theirs!r}\nPenstock: {ours!r}") from detail
    if theirs.error is not None and ours.error is not None:
        kinds = {type(theirs.error).__name__, type(ours.error).__name__}
        # An error of the graph's own construction may come a little earlier or later, but it must be the same one.
        if len(kinds) != 1:
            raise AssertionError(f"TensorFlow: {theirs!r}\nPenstock: {ours!r}") from ours.error
        if message is not None:
            for who, error in (("TensorFlow", theirs.error), ("Penstock", ours.error)):
                assert message in _message(error), f"{who} says: {_message(error)}"
        return ours.error
    assert ours.values is not None and theirs.values is not None
    for a, b in zip(ours.values, theirs.values, strict=True):
        compare(a, b, rtol, atol, "result")
    return ours.values[-1]


def compare(ours: Any, theirs: Any, rtol: float = 1e-5, atol: float = 1e-6, where: str = "") -> None:
    """Equal structures of equal arrays (types included), within tolerances."""
    if hasattr(theirs, "_fields"):
        assert hasattr(ours, "_fields") or isinstance(ours, tuple), f"{where}: {type(ours)} for {type(theirs)}"
        assert len(ours) == len(theirs), where
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            compare(a, b, rtol, atol, f"{where}.{theirs._fields[i]}")
        return
    if isinstance(theirs, dict):
        assert isinstance(ours, dict) and set(ours) == set(theirs), f"{where}: {ours!r} for {theirs!r}"
        for key in theirs:
            compare(ours[key], theirs[key], rtol, atol, f"{where}[{key!r}]")
        return
    if isinstance(theirs, (list, tuple)):
        assert isinstance(ours, (list, tuple)) and len(ours) == len(theirs), f"{where}: {ours!r} for {theirs!r}"
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            compare(a, b, rtol, atol, f"{where}[{i}]")
        return
    if theirs is None or ours is None:
        assert ours is theirs, f"{where}: {ours!r} for {theirs!r}"
        return
    a, b = np.asarray(ours), np.asarray(theirs)
    assert a.dtype == b.dtype, f"{where}: {a.dtype} for {b.dtype}"
    assert a.shape == b.shape, f"{where}: shape {a.shape} for {b.shape}"
    if a.dtype == object or a.dtype.kind in "SUb":
        assert a.tolist() == b.tolist(), f"{where}: {a!r} for {b!r}"
        return
    if a.dtype.kind not in "iufcb":  # bfloat16 and the like
        a, b = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=where)


def structure_of(tf: Any, program: Callable[[Any], Any], attrs: tuple[str, ...] = ("frame_name", "is_constant", "_class")) -> list[str]:
    """The nodes of the graph that `program` builds, one line each, in the order they were made."""
    graph = tf.Graph()
    with graph.as_default(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program(tf)
    lines = []
    for node in graph.as_graph_def().node:
        extra = [f"{key}={' '.join(str(node.attr[key]).split())}" for key in attrs if key in node.attr]
        lines.append(" ".join([f"{node.name} = {node.op}({', '.join(node.input)})", *extra]))
    return lines


def same_structure(program: Callable[[Any], Any], keep: Callable[[str], bool] = lambda line: True) -> None:
    """Both packages must build the same nodes, as far as `keep` wants to look at them."""
    ours = [line for line in structure_of(penstock(), program) if keep(line)]
    theirs = [line for line in structure_of(tensorflow(), program) if keep(line)]
    assert ours == theirs, "\n".join(difflib.unified_diff(theirs, ours, "TensorFlow", "Penstock", lineterm="", n=1))
