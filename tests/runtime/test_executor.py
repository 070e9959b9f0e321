"""Executors as sessions use them: results, errors, refs."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest

from penstock import dtypes, errors
from penstock.formats.attr_value import TensorAttr
from penstock.runtime.executor.plan import topological_order
from penstock.runtime.resources import OpSegment

from . import executor_ops  # noqa: F401 - declares what the tests run
from .graphs import Builder, cpu, declare, executor, run

both = pytest.mark.parametrize("general", [False, True], ids=["straight", "general"])


def test_arguments_come_where_the_first_that_needs_them_waits():
    """What needs no argument comes first, in the order of creation, though arguments are made last."""
    b = Builder()
    c = b("Const", name="c", value=TensorAttr(dtypes.float32, np.float32(1)), dtype=dtypes.float32)
    early, late, both_of_them = (b("AddV2", c, c, name=name) for name in ("early", "late", "both"))
    free = b("Mul", c, c, name="free")
    x, y = b.arg(0), b.arg(1)
    for op, (first, second) in ((early, (x, c)), (late, (y, c)), (both_of_them, (early, y))):
        op._update_input(0, b.tensor(first))
        op._update_input(1, b.tensor(second))
    b.ret(0, both_of_them)
    order = [op.name for op in topological_order(b.graph)]
    assert order == [c.name, free.name, x.name, early.name, y.name, late.name, both_of_them.name, b.graph.get_operations()[-1].name]


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
        assert not [w for w in recwarn.list if issubclass(w.category, RuntimeWarning)] and np.geterr() == before

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
