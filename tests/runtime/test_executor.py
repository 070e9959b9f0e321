"""Executors as sessions use them: results, errors, refs, asynchronous kernels, cancellation, the pool, leaks."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest

from penstock import dtypes, errors
from penstock.ops.context import DEAD
from penstock.runtime.call_frame import CallFrame
from penstock.runtime.cancellation import CancellationManager
from penstock.runtime.executor import Step, run_step, run_step_async
from penstock.runtime.resources import OpSegment
from penstock.runtime.threads import WorkPool

from .graphs import Builder, cpu, declare, executor, run

both = pytest.mark.parametrize("general", [False, True], ids=["straight", "general"])


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


waiting = threading.Semaphore(0)


def _wait(ctx, done):
    """Ends only when the step is cancelled, a little later."""
    token = ctx.cancellation.register(
        lambda: threading.Timer(0.02, done, [None, errors.CancelledError("Wait was cancelled")]).start()
    )
    if token is None:
        done(None, errors.CancelledError("Wait was cancelled at once"))
    waiting.release()


def _heavy(x, *, seconds):
    time.sleep(seconds)
    threads_seen.add(threading.get_ident())
    return x


threads_seen: set[int] = set()


def _ref_add(ref, x):
    with ref.lock:
        ref.value = ref.value + x
    return ref


declare_ops()


# ---------------------------------------------------------------------------------------------------------------------


class TestResults:
    @both
    def test_values(self, general):
        b = Builder()
        x, y = b.arg(0), b.arg(1)
        total = b("AddV2", x, y)
        b.ret(0, total)
        b.ret(2, b("Mul", total, total))
        b.ret(1, x)
        got = run(b, np.float32(2), np.float32(3), general=general)
        assert [float(v) for v in got] == [5, 2, 25]

    @both
    def test_many_outputs_and_unread_ones(self, general):
        b = Builder()
        split = b("TestSplit", b.arg(0))
        b("TestSplit", split)
        b("Neg", split)
        b.ret(0, b("AddV2", split.outputs[1], split.outputs[1]))
        assert float(run(b, np.float32(1), general=general)[0]) == 4

    @both
    def test_one_value_fetched_twice_and_read_later(self, general):
        b = Builder()
        x = b.arg(0)
        y = b("Neg", x)
        b.ret(0, y)
        b.ret(1, b("Neg", b("Neg", y)))
        b.ret(2, y)
        assert [float(v) for v in run(b, np.float32(1), general=general)] == [-1, -1, -1]

    @both
    def test_control_inputs_order_side_effects(self, general):
        log = []
        declare("TestLog(x: T) -> (y: T) [T: type; tag: string]", kernel=lambda x, *, tag: (log.append(tag), x)[1])
        b = Builder()
        last = b("TestLog", 1, tag="last")
        first = b("TestLog", 1, tag="first")
        last._add_control_input(b("NoOp", control=[first]))
        run(b, general=general)
        assert log == [b"first", b"last"]

    @both
    def test_too_few_arguments(self, general):
        b = Builder()
        b.ret(0, b.arg(1))
        with pytest.raises(errors.InvalidArgumentError, match=r"GetArg 1 is not within \[0, 1\)"):
            run(b, np.float32(1), general=general)

    def test_a_retval_set_twice(self):
        b = Builder()
        b.ret(0, 1)
        b.ret(0, 2)
        with pytest.raises(errors.InternalError, match=r"Retval\[0\] has already been set"):
            run(b)

    def test_kernel_state_outlives_steps_and_executors(self):
        b = Builder()
        b.ret(0, b("TestCount", name="count"))
        segment = OpSegment()
        first = executor(b, segment=segment)
        assert [int(run(first)[0]) for _ in range(3)] == [1, 2, 3]
        assert int(run(executor(b, segment=segment))[0]) == 4
        assert int(run(executor(b, segment=OpSegment()))[0]) == 1

    @both
    def test_no_floating_point_warnings(self, general, recwarn):
        before = np.geterr()
        b = Builder()
        b.ret(0, b("RealDiv", b.arg(0), b.arg(1)))
        assert np.isinf(run(b, np.float32(1), np.float32(0), general=general)[0])
        assert not recwarn.list and np.geterr() == before

    @both
    def test_values_die_early(self, general):
        alive = []

        def watch(x):
            alive.append(sum(r() is not None for r in refs))
            return x

        refs = []

        def fresh(x):
            y = np.array(x) + 1
            refs.append(weakref.ref(y))
            return y

        declare("TestFresh(x: T) -> (y: T) [T: type]", kernel=fresh)
        declare("TestWatch(x: T) -> (y: T) [T: type]", kernel=watch)
        b = Builder()
        x = b.arg(0)
        for _ in range(5):
            x = b("TestWatch", b("TestFresh", x))
        b.ret(0, x)
        run(b, np.zeros(4, np.float32), general=general)
        assert max(alive) <= 2

    def test_steps_of_one_executor_at_the_same_time(self):
        b = Builder()
        x = b("TestLater", b.arg(0))
        b.ret(0, b("AddV2", x, x))
        e = executor(b)
        results = {}
        threads = [
            threading.Thread(target=lambda i=i: results.update({i: float(run(e, np.float32(i))[0])})) for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {i: 2.0 * i for i in range(8)}


class TestErrors:
    @both
    @pytest.mark.parametrize(
        ("kind", "cls"),
        [
            ("value", errors.InvalidArgumentError),
            ("index", errors.InvalidArgumentError),
            ("type", errors.InvalidArgumentError),
            ("overflow", errors.InvalidArgumentError),
            ("memory", errors.ResourceExhaustedError),
            ("not_implemented", errors.UnimplementedError),
            ("runtime", errors.InternalError),
            ("recursion", errors.ResourceExhaustedError),
            ("op", errors.OutOfRangeError),
        ],
    )
    def test_classes(self, kind, cls, general):
        b = Builder()
        b.ret(0, b("TestFail", b.arg(0), kind=kind))
        with pytest.raises(cls) as info:
            run(b, np.float32(1), general=general)
        assert type(info.value) is cls

    @both
    def test_what_it_tells(self, general):
        b = Builder()
        failing = b("TestFail", b("Neg", b.arg(0)), kind="op", name="scope/bad")
        b.ret(0, failing)
        with pytest.raises(errors.OutOfRangeError) as info:
            run(b, np.zeros((2, 3), np.float32), general=general)
        error = info.value
        assert error.op is failing
        assert error.node_def.name == "scope/bad" and error.node_def.op == "TestFail"
        assert error.message == "end of it\n\t [[{{node scope/bad}}]]"
        story = "\n".join(error.story)
        assert "scope/bad = TestFail(" in story
        assert "device: /job:localhost/replica:0/task:0/device:CPU:0" in story
        assert "float32[2,3]" in story
        assert "running step" in story

    @both
    def test_the_clients_operation_is_named(self, general):
        client = Builder()
        original = client("TestFail", client.arg(0), kind="value", name="mine")
        b = Builder()
        node = b("TestFail", b.arg(0), kind="value", name="mine_rewritten")
        node.origin = original
        with pytest.raises(errors.InvalidArgumentError) as info:
            run(b, np.float32(1), general=general)
        assert info.value.op is original and "{{node mine}}" in info.value.message
        assert "executed as: mine_rewritten" in "\n".join(info.value.story)

    @both
    def test_errors_that_kernels_raise_again_and_again(self, general):
        shared = errors.OutOfRangeError("closed")

        def kernel(x):
            raise shared

        declare("TestShared(x: T) -> (y: T) [T: type]", kernel=kernel)
        b = Builder()
        b("TestShared", b.arg(0), name="a")
        e = executor(b)
        for _ in range(2):
            with pytest.raises(errors.OutOfRangeError) as info:
                run(e, np.float32(1), general=general)
            assert info.value.message == "closed\n\t [[{{node a}}]]"
        assert shared.message == "closed" and shared.op is None and not shared.story

    @both
    def test_wrong_number_of_outputs(self, general):
        b = Builder()
        b.ret(0, b("TestLie", b.arg(0)))
        with pytest.raises(errors.InternalError, match="gave 1 outputs; 2 were expected"):
            run(b, np.float32(1), general=general)

    @both
    def test_the_executor_goes_on_after_an_error(self, general):
        b = Builder()
        x = b.arg(0, dtypes.bool)
        declare("TestMaybe(x: bool) -> (y: bool)", kernel=lambda x: _raise(ValueError("no")) if x else x)
        b.ret(0, b("TestMaybe", x))
        e = executor(b)
        with pytest.raises(errors.InvalidArgumentError):
            run(e, np.True_, general=general)
        assert not run(e, np.False_, general=general)[0]

    def test_loops_say_where(self):
        b = Builder()
        declare(
            "TestAt(x: int32) -> (y: int32)",
            kernel=lambda x: _raise(ValueError("three")) if x == 3 else x + np.int32(1),
        )
        exits = b.while_loop("loop", [0], lambda i: b("Less", i, b.inside(9)), lambda i: [b("TestAt", i)])
        b.ret(0, exits[0])
        with pytest.raises(errors.InvalidArgumentError) as info:
            run(b)
        assert "iteration 3 of loop 'loop'" in "\n".join(info.value.story)

    def test_bad_predicate(self):
        b = Builder()
        b.ret(0, b("Switch", 1, b.arg(0, dtypes.bool), name="sw").outputs[1])
        with pytest.raises(
            errors.InvalidArgumentError, match=r"The second input must be a scalar, but it has shape \[2\]"
        ) as info:
            run(b, np.array([True, False]))
        assert info.value.op.name == "sw"
        assert int(run(b, np.array(True))[0]) == 1

    def test_a_dead_fetch(self):
        b = Builder()
        b.ret(0, b("Switch", 1, np.True_).outputs[0])
        with pytest.raises(errors.InvalidArgumentError, match=r"Retval\[0\] does not have value"):
            run(b)


def _raise(error):
    raise error


class TestRefs:
    def variable(self, b):
        return b("VariableV2", name="v", shape=_shape(), dtype=dtypes.float32)

    @both
    def test_reading_and_writing(self, general):
        b = Builder()
        v = self.variable(b)
        assign = b("Assign", v, b.arg(0))
        read = b("Identity", v, control=[assign])
        minus = b("Neg", read)  # the control edge keeps the write behind it
        b.ret(0, minus)
        b.ret(1, b("TestRefAdd", v, 3.0, control=[minus]))
        assert [float(x) for x in run(b, np.float32(3), general=general)] == [-3, 6]

    @both
    def test_uninitialized(self, general):
        device = cpu()[0]

        def attempt(make):
            b = Builder()
            make(b, self.variable(b))
            with pytest.raises(errors.FailedPreconditionError, match="Attempting to use uninitialized value v") as info:
                run(executor(b, device), general=general)
            return info.value.op.name

        assert attempt(lambda b, v: b("Identity", v, name="v/read")) == "v/read"
        assert attempt(lambda b, v: b("TestRefAdd", v, 1.0, name="add")) == "add"
        assert attempt(lambda b, v: b("AddV2", 1.0, v, name="sum")) == "sum"
        assert attempt(lambda b, v: b.ret(0, v)).startswith("_Retval")

    @both
    def test_ops_that_may_see_uninitialized_values(self, general):
        b = Builder()
        b.ret(0, b("TestPeek", self.variable(b)))
        assert not run(b, general=general)[0]

    def test_refs_through_control_flow(self):
        device = cpu()[0]
        b = Builder()
        b("Assign", self.variable(b), b.arg(0))
        run(executor(b, device), np.float32(4))
        b = Builder()
        v = self.variable(b)
        switch = b("RefSwitch", v, b.arg(0, dtypes.bool))
        merged = b("RefMerge", switch.outputs[0], b("RefIdentity", switch.outputs[1]))
        b.ret(0, b("TestRefAdd", merged, 1.0))
        b.ret(1, merged.outputs[1])
        plain = b("Switch", v, np.True_)  # a plain Switch reads the variable
        b.ret(2, b("Merge", plain.outputs[0], plain.outputs[1]))
        got = run(executor(b, device), np.True_)
        assert (float(got[0]), int(got[1])) == (5, 1) and float(got[2]) in (4, 5)

    def test_ref_select(self):
        b = Builder()
        refs = [b("VariableV2", name=n, shape=_shape(), dtype=dtypes.float32) for n in ("v", "w")]
        filled = [b("Assign", ref, float(i)) for i, ref in enumerate(refs)]
        b.ret(0, b("RefSelect", b.arg(0, dtypes.int32), *filled))
        e = executor(b)
        assert [float(run(e, np.int32(i))[0]) for i in (1, 0)] == [1, 0]
        with pytest.raises(errors.InvalidArgumentError, match=r"Index must be in the range \[0, 2\) but got 2"):
            run(e, np.int32(2))

    def test_ref_loop(self):
        device = cpu()[0]
        b = Builder()
        b("Assign", self.variable(b), b.arg(0))
        run(executor(b, device), np.float32(0))
        b = Builder()
        v = self.variable(b)
        ref = b("RefEnter", v, frame_name="loop", is_constant=True)
        exits = b.while_loop(
            "loop",
            [0],
            lambda i: b("Less", i, b.inside(4)),
            lambda i: [b("AddV2", i, b.const(1, control=[b("TestRefAdd", ref, b.const(np.float32(1), control=[i]))]))],
        )
        b.ret(0, exits[0])
        run(executor(b, device))
        b = Builder()
        b.ret(0, self.variable(b))
        assert float(run(executor(b, device))[0]) == 4


def _shape():
    from penstock.shapes import TensorShape

    return TensorShape([])


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
        threading.Timer(0.02, manager.start_cancel).start()
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
            run(e, timeout=0.05)
        if op == "TestWait":
            assert "waiting for: w" in "\n".join(info.value.story)
        b = Builder()
        b.ret(0, b("TestLater", 3))
        assert int(run(b, timeout=10)[0]) == 3

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
        start = time.monotonic()
        run_step_async([executor(b)], Step(frame, pool=pool), lambda error: (outcome.append(error), ended.set()))
        assert time.monotonic() - start < 5 and ended.wait(10)
        assert outcome == [None] and int(frame.take_retvals()[0]) == 7
        pool.close()

    def test_run_async_errors(self):
        b = Builder()
        b("TestFail", b("TestLater", 1), kind="op")
        outcome, ended = [], threading.Event()
        run_step_async([executor(b)], Step(), lambda error: (outcome.append(error), ended.set()))
        assert ended.wait(10) and isinstance(outcome[0], errors.OutOfRangeError)
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

    def test_heavy_kernels_run_at_the_same_time(self):
        pool = WorkPool(2, "test-heavy")
        e = executor(self.wide())
        assert e.plan.wide
        e.straight = e.compiler = None
        assert float(run(e, np.float32(1), pool=pool)[0]) == 6  # learns what they cost
        threads_seen.clear()
        assert float(run(e, np.float32(1), pool=pool)[0]) == 6
        assert len(threads_seen) == 3  # each on a thread of its own: the pool's two and the caller's
        pool.close()

    def test_wide_programs_find_their_way(self, monkeypatch):
        monkeypatch.setenv("PENSTOCK_XLA", "0")  # importing JAX on a thread would spoil what is timed
        pool = WorkPool(2, "test-wide")
        e = executor(self.wide())
        for _ in range(12):
            assert float(run(e, np.float32(1), pool=pool)[0]) == 6
        assert e._chooser.choice is True
        small = executor(self.wide(seconds=0.0))
        for _ in range(8):
            run(small, np.float32(1), pool=pool)
        assert small._chooser.choice is False
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
        assert float(run(b, np.float32(1), pool=pool, timeout=10)[0]) == 1
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
            gc.collect()
            gc.disable()
            try:
                run(e, *args)
                assert gc.collect() == 0
            finally:
                gc.enable()

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
        run(wide, np.float32(1), pool=pool, timeout=10)
    assert int(run(e, timeout=10)[0]) == 7
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ok = int(run(e, timeout=10)[0]) == 7 and float(run(wide, np.float32(1), pool=pool, timeout=10)[0]) == 6
            code = 0 if ok else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    pool.close()
