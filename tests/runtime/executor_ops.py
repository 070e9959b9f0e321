"""Ops that the executor's tests declare for themselves: they fail, count, wait, answer later or on other threads."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from penstock import errors

from .graphs import declare


def declare_ops():
    declare("TestFail(x: T) -> (y: T) [T: type; kind: string]", kernel=_fail)
    declare("TestSplit(x: T) -> (a: T, b: T) [T: type]", kernel=lambda x: [x, x + 1])
    declare("TestLie(x: T) -> (a: T, b: T) [T: type]", kernel=lambda x: [x])
    declare("TestCount() -> (n: int32) stateful", kernel=_count)
    declare("TestStepId() -> (n: int64)", kernel=lambda ctx: np.int64(ctx.step_id))
    declare("TestKeep(x: T) -> (y: T) [T: type]", kernel=_keep)
    declare(
        "TestLater(x: T) -> (y: T) [T: type]",
        async_kernel=lambda ctx, done, x: threading.Timer(0.01, done, [x]).start(),
    )
    declare("TestNow(x: T) -> (y: T) [T: type]", async_kernel=lambda ctx, done, x: done(x))
    declare("TestTwice(x: T) -> (y: T) [T: type]", async_kernel=_twice)
    declare("TestAsyncRaise(x: T) -> (y: T) [T: type]", async_kernel=_async_raise)
    declare(
        "TestAsyncFail(x: T) -> (y: T) [T: type]",
        async_kernel=lambda ctx, done, x: done(None, errors.DataLossError("async boom")),
    )
    declare("TestWait() -> (y: int32) stateful", async_kernel=_wait)
    declare("TestHeavy(x: T) -> (y: T) [T: type; seconds: float]", kernel=_heavy, expensive=True)
    declare("TestRefAdd(ref: ref T, x: T) -> (y: ref T) [T: type]", kernel=_ref_add)
    declare(
        "TestPeek(ref: ref T) -> (y: bool) [T: type] uninitialized_ok",
        kernel=lambda ref: np.bool_(ref.value is not None),
    )


def _fail(x, *, kind):
    raise {
        b"value": ValueError("bad value"),
        b"index": IndexError("bad index"),
        b"type": TypeError("bad type"),
        b"overflow": OverflowError("too big"),
        b"memory": MemoryError(),
        b"not_implemented": NotImplementedError("not yet"),
        b"runtime": RuntimeError("odd"),
        b"recursion": RecursionError("deep"),
        b"op": errors.OutOfRangeError("end of it"),
    }[kind]


def _count(*, state):
    state.n = getattr(state, "n", 0) + 1
    return np.int32(state.n)


def _keep(ctx, x):
    ctx.step_resources["kept"] = x
    return x


def _twice(ctx, done, x):
    done(x)
    with pytest.raises(errors.InternalError, match="called done twice"):
        done(x)


def _async_raise(ctx, done, x):
    raise ValueError("raised, not reported")


def _wait(ctx, done):
    """Ends only when the step is cancelled, a little later."""
    token = ctx.cancellation.register(
        lambda: threading.Timer(0.02, done, [None, errors.CancelledError("Wait was cancelled")]).start()
    )
    if token is None:
        done(None, errors.CancelledError("Wait was cancelled at once"))


def _heavy(x, *, seconds):
    if meeting is None:
        time.sleep(seconds)
    else:
        meeting.wait(60)
    threads_seen.add(threading.get_ident())
    return x


threads_seen: set[int] = set()
meeting: threading.Barrier | None = None
"""Where those that run at the same time meet, instead of taking their time."""


def _ref_add(ref, x):
    with ref.lock:
        ref.value = ref.value + x
    return ref


declare_ops()
