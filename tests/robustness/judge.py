"""What may happen to a graph that makes no sense: it is refused, or it runs, or a step fails with a typed error. Nothing else.

`judge` imports a GraphDef into a graph that has a small sound part of its own, runs a few random fetches in one session, and checks
after everything that the sound part still gives its answer.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

import penstock as tf

# What TF itself calls internal, in its words: a fetch out of the middle of a loop, division by zero, a variable that is gone, a call with too few results.
TF_INTERNAL = ("has already been set", "Unexpected error in binary operator", "Invalid variable reference", "Expect ")
SLOW = 60.0  # seconds, generous for a loaded machine: a single import or step that takes longer counts as a hang

try:
    import resource
except ImportError:  # not on this platform
    resource = None


@contextlib.contextmanager
def limited_memory(extra: int = 3 << 30) -> Iterator[None]:
    """Allocations of absurd size must fail at once, and not take the machine's memory first."""
    if resource is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + extra if hard == resource.RLIM_INFINITY else min(used + extra, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Finding(Exception):
    """Something that must not happen."""


def allowed(error: BaseException) -> bool:
    """Typed errors. An InternalError says itself that it is a bug; so do all others."""
    if isinstance(error, tf.errors.OpError):
        return not isinstance(error, tf.errors.InternalError) or any(text in error.message for text in TF_INTERNAL)
    return type(error) in (ValueError, TypeError) or isinstance(error, (UnicodeError, OverflowError))


def _fingerprint(graph: Any) -> tuple:
    return tuple(graph._nodes), tuple(sorted(graph._names_in_use)), tuple(graph.functions), tuple(graph.gradient_functions)


@contextlib.contextmanager
def _watched(what: str) -> Iterator[None]:
    start = time.monotonic()
    try:
        yield
    except Exception as error:
        if not allowed(error):
            raise Finding(f"{what}: {type(error).__name__}: {str(error)[:300]}\n{_where(error)}") from error
        _check_text(what, error)
        raise
    finally:
        if time.monotonic() - start > SLOW:
            raise Finding(f"{what} took {time.monotonic() - start:.1f} s")


def _where(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, tf.errors.InternalError) and error.__cause__ is not None else error
    return "".join(traceback.format_exception(type(cause), cause, cause.__traceback__)[-8:])


def _check_text(what: str, error: BaseException) -> None:
    """The message of a typed error must be printable and of a size that people read."""
    text = str(error)
    if len(text) > 200_000:
        raise Finding(f"{what}: the message of a {type(error).__name__} has {len(text)} characters: {text[:200]}")


def judge(graph_def: Any, r: random.Random, fetches: int = 3, timeout_ms: int = 500) -> str:
    """Imports and runs; "refused", "failed" (a step raised) or "ran". Raises Finding if anything else happened."""
    with _engine(r.choice(("1", "eager", "eager", "0"))):
        return _judge(graph_def, r, fetches, timeout_ms)


@contextlib.contextmanager
def _engine(mode: str) -> Iterator[None]:
    """Generated code at once, when warm, or never."""
    before = os.environ.get("PENSTOCK_REGIONS")
    os.environ["PENSTOCK_REGIONS"] = mode
    try:
        yield
    finally:
        if before is None:
            del os.environ["PENSTOCK_REGIONS"]
        else:
            os.environ["PENSTOCK_REGIONS"] = before


def _judge(graph_def: Any, r: random.Random, fetches: int, timeout_ms: int) -> str:
    graph = tf.Graph()
    outcome = "ran"
    config = tf.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=2)
    config.allow_soft_placement = r.random() < 0.5
    with graph.as_default():
        with tf.name_scope("good"):
            good = tf.constant([1.0, 2.0], name="x") * tf.placeholder(tf.float32, [], name="factor") + 1.0
        with tf.Session(graph=graph, config=config) as session:
            before = _fingerprint(graph)
            prefix = r.choice(("", "", "import"))
            try:
                with _watched("import_graph_def"):
                    tf.import_graph_def(graph_def, name=prefix)
            except Finding:
                raise
            except Exception:
                outcome = "refused"
                names = _fingerprint(graph)
                if names[0] != before[0] or names[2:] != before[2:]:
                    raise Finding(f"a refused import left something behind: {set(names[0]) ^ set(before[0])} {set(names[2]) ^ set(before[2])}") from None
            if outcome == "ran":
                outcome = _run(graph, session, r, fetches, timeout_ms)
            _check_good(session, good)
            if outcome != "refused":
                _round_trip(graph)
    return outcome


def _check_good(session: Any, good: Any) -> None:
    try:
        value = session.run(good, {"good/factor:0": 3.0})
    except tf.errors.InvalidArgumentError as error:
        # A graph is placed as a whole: one node that cannot be placed stops every step, as in TF.
        if not error.message.startswith(("Cannot assign a device", "Malformed device specification", "Cannot colocate nodes")):
            raise Finding(f"the session is of no use any more: {error}") from error
        return
    except Exception as error:
        raise Finding(f"the session is of no use any more: {type(error).__name__}: {error}\n{_where(error)}") from error
    if not np.array_equal(value, [4.0, 7.0]):
        raise Finding(f"the sound part now gives {value}")


def _run(graph: Any, session: Any, r: random.Random, fetches: int, timeout_ms: int) -> str:
    outcome = "ran"
    ops = [op for op in graph.get_operations() if not op.name.startswith("good/")]
    if not ops:
        return outcome
    feeds = {}
    for op in ops:
        if op.type == "Placeholder" and r.random() < 0.8:
            feeds[op.outputs[0]] = np.ones([2 if d is None else d for d in op.outputs[0].dims or ()], op.outputs[0].dtype.np) if _small(op.outputs[0].dims) else 1
    initializers = [op for op in ops if op.type in ("Assign", "AssignVariableOp")]
    sets = [[r.choice(ops)] for _ in range(fetches)] + [r.sample(ops, min(len(ops), 3))] + [[op] for op in ops if op.name.endswith("subject")]
    if initializers:
        sets.insert(0, initializers)
    for targets in sets:
        wanted: list[Any] = [r.choice(op.outputs) if op.outputs and r.random() < 0.9 else op for op in targets]
        fed = feeds if r.random() < 0.8 else None
        first: Any = None
        start = time.monotonic()
        try:
            with _watched(f"run of {[w.name for w in wanted]}"):
                first = session.run(wanted, fed, options=tf.RunOptions(timeout_in_ms=timeout_ms))
        except Finding:
            raise
        except Exception as error:
            outcome = "failed"
            first = error
        if time.monotonic() - start < timeout_ms / 2000:
            _run_again(session, wanted, fed, first)
    return outcome


def _run_again(session: Any, wanted: list[Any], feeds: Any, first: Any) -> None:
    """Without a deadline a step takes other roads (straight-line and generated code): they must come to the same end."""
    ops = _behind(wanted, feeds or ())
    if any(op.op_def.async_kernel is not None or op.op_def.kernel is None and op.type in op.graph.functions for op in ops):
        return  # it may wait, this time without end
    for _ in range(2):
        second: Any = None
        try:
            with _watched(f"second run of {[w.name for w in wanted]}"):
                second = session.run(wanted, feeds)
        except Finding:
            raise
        except Exception as error:
            second = error
        if any(op.op_def.stateful for op in ops) or not all(hasattr(w, "op") for w in wanted):
            continue  # what nobody reads need not be computed, and cannot fail then
        if isinstance(first, Exception) or isinstance(second, Exception):
            # Which of several errors comes first may differ; whether there is one must not.
            if not (isinstance(first, Exception) and isinstance(second, Exception)):
                raise Finding(f"run of {[w.name for w in wanted]}: first {_shown(first)}, then {_shown(second)}")
        elif not all(_same(a, b) for a, b in zip(first, second, strict=True)):
            raise Finding(f"run of {[w.name for w in wanted]}: first {_shown(first)}, then {_shown(second)}")


def _behind(wanted: list[Any], feeds: Any) -> set[Any]:
    """The operations that a step runs."""
    found: set[Any] = set()
    todo = [getattr(w, "op", w) for w in wanted]
    while todo:
        op = todo.pop()
        if op not in found:
            found.add(op)
            todo += [t.op for t in op.inputs if t not in feeds] + list(op.control_inputs)
    return found


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, (np.ndarray, np.generic)) or not isinstance(b, (np.ndarray, np.generic)):
        return type(a) is type(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind not in "fc":
        return a.tobytes() == b.tobytes() if a.dtype != object else str(a.tolist()) == str(b.tolist())
    return np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


def _shown(value: Any) -> str:
    return f"{type(value).__name__}: {str(value)[:300]}"


def _small(dims: Any) -> bool:
    total = 1
    for d in dims or ():
        total *= 2 if d is None else d or 1
    return total < 10_000


def _round_trip(graph: Any) -> None:
    """What was accepted can be written and read again."""
    try:
        with _watched("as_graph_def"):
            written = graph.as_graph_def()
    except Finding:
        raise
    except ValueError as error:
        if "larger than 2GB" in str(error):
            return
        raise Finding(f"an accepted graph cannot be written: {error}") from error
    except Exception as error:
        raise Finding(f"an accepted graph cannot be written: {error}\n{_where(error)}") from error
    again = tf.Graph()
    with again.as_default():
        try:
            tf.import_graph_def(written, name="")
        except Exception as error:
            raise Finding(f"an accepted graph, written, is refused: {type(error).__name__}: {error}\n{_where(error)}") from error
    if list(again._nodes) != list(graph._nodes):
        raise Finding("an accepted graph, written and read, has other nodes")
