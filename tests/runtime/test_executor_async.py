"""Executors as sessions use them: asynchronous kernels, cancellation, the pool, leaks, forks."""

from __future__ import annotations

import gc
import os
import threading
import time

import numpy as np
import pytest

from penstock import errors
from penstock.ops.context import DEAD
from penstock.runtime.call_frame import CallFrame
from penstock.runtime.cancellation import CancellationManager
from penstock.runtime.executor import Step, run_step, run_step_async
from penstock.runtime.threads import WorkPool
from tests import steps

from . import executor_ops
from .executor_ops import threads_seen
from .graphs import Builder, declare, executor, run

both = pytest.mark.parametrize("general", [False, True], ids=["straight", "general"])


class TestAsync:
    @pytest.mark.parametrize("op", ["TestLater", "TestNow", "TestTwice"])
    def test_done(self, op):
        b = Builder()
        x = b(op, b.arg(0))
        b.ret(0, b("AddV2", x, b(op, x)))
        assert float(run(b, np.float32(2))[0]) == 4

    @pytest.mark.parametrize(
        ("op", "cls"), [("TestAsyncRaise", errors.InvalidArgumentError), ("TestAsyncFail", errors.DataLossError)]
    )
    def test_errors(self, op, cls):
        b = Builder()
        b.ret(0, b(op, b.arg(0), name="a"))
        with pytest.raises(cls) as info:
            run(b, np.float32(1))
        assert info.value.op.name == "a" and "float32[]" in "\n".join(info.value.story)

    def test_the_first_error_wins_and_nothing_runs_afterwards(self):
        ran = []
        declare("TestAfter(x: T) -> (y: T) [T: type]", kernel=lambda x: (ran.append(1), x)[1])
        b = Builder()
        wait = b("TestWait")
        b("TestAfter", wait)
        b("TestFail", b("TestLater", 1), kind="op")
        start = time.monotonic()
        with pytest.raises(errors.OutOfRangeError, match="end of it"):
            run(b)
        # The waiting kernel was told, and its callback, 20 ms later, was waited for.
        assert time.monotonic() - start >= 0.02
        assert not ran

    def test_cancel_from_outside(self):
        manager = CancellationManager()
        b = Builder()
        b.ret(0, b("TestWait", name="w"))
        e = executor(b)
        steps.once(steps.is_waiting, manager.start_cancel)
        with pytest.raises(errors.CancelledError, match="Wait was cancelled") as info:
            run(e, cancellation=manager)
        assert info.value.op.name == "w"
        with pytest.raises(errors.CancelledError):
            run(e, cancellation=manager)

    def test_cancelling_a_loop_without_any_waiting(self):
        manager = CancellationManager()
        b = Builder()
        b.while_loop("loop", [0], lambda i: b("GreaterEqual", i, b.inside(0)), lambda i: [b("Mul", i, b.inside(1))])
        threading.Timer(0.05, lambda: manager.start_cancel(errors.CancelledError("Session was closed"))).start()
        with pytest.raises(errors.CancelledError, match="Session was closed"):
            run(b, cancellation=manager)

    def test_a_cancelled_session_starts_nothing(self):
        manager = CancellationManager()
        manager.start_cancel()
        b = Builder()
        b.ret(0, 1)
        for general in (False, True):
            with pytest.raises(errors.CancelledError):
                run(b, cancellation=manager, general=general)

    @pytest.mark.parametrize("op", ["TestWait", "loop"])
    def test_deadline(self, op):
        b = Builder()
        if op == "loop":
            b.while_loop("loop", [0], lambda i: b("GreaterEqual", i, b.inside(0)), lambda i: [b("Mul", i, b.inside(1))])
        else:
            b("TestWait", name="w")
        e = executor(b)
        with pytest.raises(errors.DeadlineExceededError, match="Timed out waiting") as info:
            run(e, timeout=0.5)
        if op == "TestWait":
            assert "waiting for: w" in "\n".join(info.value.story)
        b = Builder()
        b.ret(0, b("TestLater", 3))
        assert int(run(b, timeout=60)[0]) == 3

    def test_managers_are_left_when_the_step_ends(self):
        manager = CancellationManager()
        b = Builder()
        b.ret(0, b("TestLater", 3))
        run(b, cancellation=manager)
        assert not manager._children and not manager._callbacks

    @both
    def test_step_resources_are_cleared(self, general):
        b = Builder()
        b.ret(0, b("TestKeep", b.arg(0)))
        step = Step(CallFrame([np.float32(1)], 1))
        e = executor(b)
        if general:
            e.straight = e.compiler = None
        run_step([e], step)
        assert not step.step_resources

    def test_run_async(self):
        b = Builder()
        b.ret(0, b("AddV2", b("TestLater", 3), b("TestLater", 4)))
        pool = WorkPool(1, "test-async")
        frame, ended = CallFrame([], 1), threading.Event()
        outcome = []
        run_step_async([executor(b)], Step(frame, pool=pool), lambda error: (outcome.append(error), ended.set()))
        assert ended.wait(60)
        assert outcome == [None] and int(frame.take_retvals()[0]) == 7
        pool.close()

    def test_run_async_errors(self):
        b = Builder()
        b("TestFail", b("TestLater", 1), kind="op")
        outcome, ended = [], threading.Event()
        run_step_async([executor(b)], Step(), lambda error: (outcome.append(error), ended.set()))
        assert ended.wait(60) and isinstance(outcome[0], errors.OutOfRangeError)
        manager = CancellationManager()
        manager.start_cancel()
        run_step_async([executor(b)], Step(cancellation=manager), outcome.append)
        assert isinstance(outcome[1], errors.CancelledError)


class TestPool:
    def wide(self, seconds=0.03):
        b = Builder()
        x = b.arg(0)
        branches = [b("TestHeavy", b("AddV2", x, float(i)), seconds=seconds) for i in range(3)]
        b.ret(0, b("AddV2", branches[0], b("AddV2", branches[1], branches[2])))
        return b

    def test_heavy_kernels_run_at_the_same_time(self, monkeypatch):
        pool = WorkPool(2, "test-heavy")
        e = executor(self.wide())
        assert e.plan.wide
        e.straight = e.compiler = None
        assert float(run(e, np.float32(1), pool=pool)[0]) == 6  # learns what they cost
        threads_seen.clear()
        monkeypatch.setattr(executor_ops, "meeting", threading.Barrier(3))
        assert float(run(e, np.float32(1), pool=pool)[0]) == 6
        assert len(threads_seen) == 3  # each on a thread of its own: the pool's two and the caller's
        pool.close()

    def test_wide_programs_find_their_way(self, monkeypatch):
        monkeypatch.setenv("PENSTOCK_XLA", "0")  # importing JAX on a thread would spoil what is timed
        pool = WorkPool(2, "test-wide")

        def choice(seconds):
            e = executor(self.wide(seconds))
            for _ in range(12):
                assert float(run(e, np.float32(1), pool=pool)[0]) == 6
            return e._chooser.choice

        # They are timed: one may be held up by what the machine has to do besides.
        assert any(choice(0.03) is True for _ in range(5))
        assert any(choice(0.0) is False for _ in range(5))
        pool.close()

    def test_one_thread_is_no_pool(self):
        pool = WorkPool(1, "test-one")
        e = executor(self.wide(0.001))
        e.straight = e.compiler = None
        threads_seen.clear()
        for _ in range(3):
            run(e, np.float32(1), pool=pool)
        assert threads_seen == {threading.get_ident()}
        pool.close()

    def test_errors_on_the_pool(self):
        def fail(x):
            time.sleep(0.005)
            raise ValueError("on the pool")

        declare("TestHeavyFail(x: T) -> (y: T) [T: type]", kernel=fail, expensive=True)
        pool = WorkPool(2, "test-fail")
        b = Builder()
        x = b.arg(0)
        for i in range(3):
            b("TestHeavyFail", x, name=f"h{i}")
        e = executor(b)
        for node in e.plan.nodes:
            node.cost = 1e9
        with pytest.raises(errors.InvalidArgumentError, match="on the pool"):
            run(e, np.float32(1), pool=pool, general=True)
        pool.close()

    def test_no_deadlock_with_one_thread(self):
        """Kernels that wait for one another, more of them than there are threads."""
        gate = []

        def meet(ctx, done, x):
            gate.append(done)
            if len(gate) == 6:
                for d in gate:
                    d(x)

        declare("TestMeet(x: T) -> (y: T) [T: type]", async_kernel=meet)
        pool = WorkPool(1, "test-deadlock")
        b = Builder()
        x = b.arg(0)
        ops = [b("TestMeet", x) for _ in range(6)]
        b.ret(0, b("NoOp", control=ops) and x)
        assert float(run(b, np.float32(1), pool=pool, timeout=60)[0]) == 1
        pool.close()


class TestLeaks:
    def graphs(self):
        b = Builder()
        exits = b.while_loop(
            "loop", [0], lambda i: b("Less", i, b.inside(5)), lambda i: [b("AddV2", i, b("TestNow", b.inside(1)))]
        )
        b.ret(0, exits[0])
        yield executor(b), ()
        b = Builder()
        b.ret(0, b("AddV2", b.arg(0), b.arg(0)))
        yield executor(b), (np.float32(1),)

    def test_steps_leave_no_garbage(self):
        """Nothing of a step waits for the garbage collector: arrays would live on for a while."""
        for e, args in self.graphs():
            run(e, *args)
            found = []
            gc.disable()
            try:
                for _ in range(5):  # threads that other tests have left may leave some
                    gc.collect()
                    run(e, *args)
                    found.append(gc.collect())
            finally:
                gc.enable()
            assert min(found) == 0

    def test_steps_leave_no_threads(self):
        before = {t.name for t in threading.enumerate()}
        for e, args in self.graphs():
            for _ in range(3):
                run(e, *args)
        assert {t.name for t in threading.enumerate()} <= before


def test_dead_is_a_singleton():
    import copy
    import pickle

    assert pickle.loads(pickle.dumps(DEAD)) is DEAD and copy.deepcopy(DEAD) is DEAD


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_steps_after_fork():
    """A forked child has none of the parent's threads, and runs steps all the same."""
    b = Builder()
    b.ret(0, b("AddV2", b("TestLater", 3), 4))
    e = executor(b)
    pool = WorkPool(2, "test-fork")
    wide = executor(TestPool().wide(0.001))
    wide.straight = e.compiler = None
    for _ in range(2):
        run(wide, np.float32(1), pool=pool, timeout=60)
    assert int(run(e, timeout=60)[0]) == 7
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ok = int(run(e, timeout=60)[0]) == 7 and float(run(wide, np.float32(1), pool=pool, timeout=60)[0]) == 6
            code = 0 if ok else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    pool.close()
