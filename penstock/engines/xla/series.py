"""What is known of a value that differs from round to round of a loop.

A loop whose rounds are known is traced once for all of them, so that its counters are tracers. What each of them is in which round is known all the
same, and noted here, in the frame of the loop: whoever needs to know (an index into a TensorArray, which must be in range) asks with `series_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from penstock.graph.ir import Operation

MOST_CALLS = 20_000
"""Rounds for which a node is computed ahead, to know what it gives in each."""
SMALL = 4
"""Elements of what is worth knowing."""

_FRAME: ContextVar[dict[int, tuple[Any, np.ndarray]] | None] = ContextVar("_FRAME", default=None)


@contextmanager
def frame() -> Iterator[None]:
    """The body of a loop is traced: what is noted of values belongs to its rounds, and nothing of the loops around it does."""
    token = _FRAME.set({})
    try:
        yield
    finally:
        _FRAME.reset(token)


def note(value: Any, values: np.ndarray | None) -> None:
    """`value` is values[i] in round i."""
    found = _FRAME.get()
    if found is not None and values is not None:
        found[id(value)] = (value, values)  # which keeps the tracer, and so its number


def series_of(value: Any) -> np.ndarray | None:
    """What `value` is in each round, if that has been noted."""
    found = _FRAME.get()
    if not found:
        return None
    entry = found.get(id(value))
    return None if entry is None else entry[1]


def follow(node: Any, inputs: Sequence[Any], result: Any) -> None:
    """Notes what a node gives, if its inputs are known in each round."""
    if not _FRAME.get() or isinstance(result, (np.ndarray, np.generic)):
        return
    op: Operation = node.op
    if not node.plain or node.needs_ctx or op.op_def.stateful or node.refs or result.size > SMALL or result.dtype.kind not in "biu":
        return
    known = [series_of(v) for v in inputs]
    if all(k is None for k in known) or any(k is None and not isinstance(v, (np.ndarray, np.generic)) for k, v in zip(known, inputs)):
        return
    rounds = next(len(k) for k in known if k is not None)
    if rounds > MOST_CALLS:
        return
    try:
        found = [node.fn(*(v if k is None else k[i] for k, v in zip(known, inputs))) for i in range(rounds)]
    except Exception:  # a kernel that has something to report does so when the step runs
        return
    note(result, np.array(found, result.dtype))
