"""The state machine by itself: a driver that finishes ready nodes in random order must always come to the same result."""

from __future__ import annotations

import random
from collections import deque

import numpy as np
import pytest

from penstock import dtypes, errors
from penstock.ops.context import DEAD, OpContext
from penstock.runtime.call_frame import MISSING, CallFrame
from penstock.runtime.executor import Executor, Step
from penstock.runtime.executor.plan import ENTER, NOOP, PLAIN, ExecutorPlan
from penstock.runtime.executor.state import PartitionState

from .graphs import Builder, cpu, executor, run
from .programs import Emitter, interpret, random_program


class RandomDriver:
    """Runs a plan by choosing among the ready nodes at random."""

    def __init__(self, plan: ExecutorPlan, args=(), seed=0, pick=None):
        self.rng = random.Random(seed)
        self.frame = CallFrame(list(args), plan.n_retvals)
        self.ready: deque = deque()
        self.overs = 0
        self.ran: list[tuple[str, str, int]] = []
        self.pick = pick or (lambda n: self.rng.randrange(n))
        self.most_open: dict[str, int] = {}
        plan.connect()
        self.state = PartitionState(plan, self.ready, self._over, ctx=OpContext(Step(self.frame), cpu()[0]))

    def _over(self, state):
        self.overs += 1
        assert not self.ready and not state.dead

    def run(self):
        state = self.state
        state.start()
        while self.ready:
            i = self.pick(len(self.ready))
            self.ready.rotate(-i)
            node, it = self.ready.popleft()
            self.ran.append((node.name, it.frame.plan.name, it.number))
            self.most_open[it.frame.plan.name] = max(self.most_open.get(it.frame.plan.name, 0), it.frame.open)
            if PLAIN < node.kind <= NOOP:
                state.flow(node, it)
                continue
            inputs = it.values[node.a : node.b]
            it.values[node.a : node.b] = node.nones
            assert DEAD not in [i for i in inputs if i is DEAD] or node.transfer
            result = node.fn(state.ctx, *inputs) if node.needs_ctx else node.fn(*inputs)
            if node.plain:
                state.finish_plain(node, it, result)
            else:
                state.finish(node, it, () if result is None else result)
        assert self.overs == 1, "over must be called exactly once"
        assert state.busy == 0
        root = state.root
        assert root.frames_open == 0 and not root.children, "a frame was never cleaned up"
        return self.frame.take_retvals(allow_dead=True)


def outcomes(builder: Builder, *args, seeds=12):
    """The results, which must be the same for every order."""
    plan = executor(builder).plan
    first = None
    for seed in range(seeds):
        got = RandomDriver(plan, args, seed).run()
        got = [None if v is MISSING else np.asarray(v).tolist() for v in got]
        assert first is None or got == first, f"seed {seed} gave {got} instead of {first}"
        first = got
    return first


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed):
    rng = random.Random(seed)
    program = random_program(rng, 3, 3)
    builder = Builder()
    values = [builder.arg(i, dtypes.int32).outputs[0] for i in range(3)]
    for i, value in enumerate(Emitter(builder).emit(program, values)):
        builder.ret(i, value)
    plan = executor(builder)
    for start in ([1, 2, 3], [4, 0, 7]):
        expected = interpret(program, start)
        args = [np.int32(v) for v in start]
        for order in range(4):
            got = RandomDriver(plan.plan, args, order).run()
            assert [int(v) for v in got] == expected, program
        assert [int(v) for v in run(plan, *args, general=True)] == expected


class TestLoops:
    def counting(self, n, parallel=10):
        b = Builder()
        exits = b.while_loop(
            "loop",
            [0, 0],
            lambda i, s: b("Less", i, b.inside(n)),
            lambda i, s: [b("AddV2", i, b.inside(1)), b("AddV2", s, i)],
            parallel,
        )
        for i, e in enumerate(exits):
            b.ret(i, e)
        return b

    @pytest.mark.parametrize("n", [0, 1, 2, 25])
    @pytest.mark.parametrize("parallel", [1, 2, 10])
    def test_sum(self, n, parallel):
        assert outcomes(self.counting(n, parallel), seeds=5) == [n, n * (n - 1) // 2]

    @pytest.mark.parametrize("parallel", [1, 2, 3, 10])
    def test_no_more_iterations_at_a_time_than_allowed(self, parallel):
        # Newest first: the counter runs ahead as far as it may.
        b = Builder()
        exits = b.while_loop(
            "loop",
            [0, 0],
            lambda i, s: b("Less", i, b.inside(30)),
            lambda i, s: [b("AddV2", i, b.inside(1)), b("Identity", b("Identity", b("Identity", b("AddV2", s, i))))],
            parallel,
        )
        b.ret(0, exits[1])
        driver = RandomDriver(executor(b).plan, pick=lambda n: n - 1)
        assert [int(v) for v in driver.run()] == [435]
        assert driver.most_open["loop"] <= parallel
        if parallel > 1:
            assert driver.most_open["loop"] > 1, "iterations should overlap"

    def test_nested(self):
        b = Builder()

        def body(i, total):
            inner = b.while_loop(
                "inner",
                [b.inside(0), total],
                lambda j, t: b("Less", j, b.inside(3)),
                lambda j, t: [b("AddV2", j, b.inside(1)), b("AddV2", t, j)],
            )
            return [b("AddV2", i, b.const(1, control=[i])), inner[1]]

        exits = b.while_loop("outer", [0, 0], lambda i, t: b("Less", i, b.inside(4)), body)
        b.ret(0, exits[1])
        assert outcomes(b) == [12]

    def test_invariants_reach_every_iteration(self):
        b = Builder()
        x = b.arg(0, dtypes.int32)
        exits = b.while_loop(
            "loop",
            [0, 0],
            lambda i, s, x: b("Less", i, b.inside(5)),
            lambda i, s, x: [b("AddV2", i, b.inside(1)), b("AddV2", s, x)],
            invariants=[x],
        )
        b.ret(0, exits[1])
        assert outcomes(b, np.int32(7)) == [35]

    def test_an_enter_that_nobody_reads(self):
        b = Builder()
        exits = b.while_loop("loop", [0], lambda i: b("Less", i, b.inside(3)), lambda i: [b("AddV2", i, b.inside(1))])
        slow = b("Identity", b("Identity", b("Identity", b.const(1))))
        b("Enter", slow, frame_name="loop")
        b.ret(0, exits[0])
        assert outcomes(b, seeds=20) == [3]

    def test_exit_values_of_the_last_iteration_only(self):
        b = self.counting(6)
        driver = RandomDriver(executor(b).plan, seed=3)
        driver.run()
        exits = [row for row in driver.ran if row[0].startswith("Exit")]
        assert [row[2] for row in exits] == [6, 6]


class TestDeadness:
    def test_switch(self):
        b = Builder()
        p = b.arg(0, dtypes.bool)
        s = b("Switch", 5, p)
        b.ret(0, s.outputs[0])
        b.ret(1, b("AddV2", s.outputs[1], 1))
        assert outcomes(b, np.True_) == [None, 6]
        assert outcomes(b, np.False_) == [5, None]

    def test_merge_takes_the_live_input_and_says_which(self):
        b = Builder()
        p = b.arg(0, dtypes.bool)
        merge = b.cond(p, [10, 20], lambda x, y: [b("AddV2", x, y)], lambda x, y: [b("Sub", x, y)])[0]
        b.ret(0, merge)
        b.ret(1, merge.outputs[1])
        assert outcomes(b, np.True_) == [30, 1]
        assert outcomes(b, np.False_) == [-10, 0]

    def test_merge_of_dead_inputs_is_dead(self):
        b = Builder()
        s = b("Switch", 5, np.True_)
        dead = b("Identity", s.outputs[0])
        b.ret(0, b("Merge", dead, b("Neg", s.outputs[0])))
        assert outcomes(b) == [None]

    def test_merge_waits_for_its_control_inputs(self):
        b = Builder()
        slow = b("Identity", b("Identity", b.arg(0, dtypes.int32)))
        s = b("Switch", 5, np.True_)
        merge = b("Merge", s.outputs[0], s.outputs[1], control=[slow])
        b.ret(0, merge)
        plan = executor(b).plan
        for seed in range(10):
            driver = RandomDriver(plan, [np.int32(0)], seed)
            assert [int(v) for v in driver.run()] == [5]
            order = [row[0] for row in driver.ran]
            assert order.index(merge.name) > order.index(slow.name)

    def test_a_control_input_of_a_merge_may_be_dead(self):
        b = Builder()
        s = b("Switch", 5, np.True_)
        dead = b("Identity", s.outputs[0])
        b.ret(0, b("Merge", s.outputs[0], s.outputs[1], control=[dead]))
        # All data inputs dead, and the control input comes last or first.
        b.ret(1, b("Merge", dead, dead, control=[b("Identity", b("Identity", b.const(1)))]))
        assert outcomes(b, seeds=20) == [5, None]

    def test_dead_control_inputs_make_a_node_dead(self):
        b = Builder()
        s = b("Switch", 5, np.True_)
        dead = b("Identity", s.outputs[0])
        b.ret(0, b("Identity", b.const(7), control=[dead]))
        b.ret(1, b("Identity", b.const(8), control=[b("Identity", s.outputs[1])]))
        assert outcomes(b) == [None, 8]

    def test_control_edges_of_a_switch_are_alive(self):
        b = Builder()
        s = b("Switch", 5, np.True_)
        b.ret(0, b("Identity", b.const(7), control=[s]))
        assert outcomes(b) == [7]

    def test_control_trigger_revives(self):
        b = Builder()
        s = b("Switch", 5, np.True_)
        dead = b("Identity", s.outputs[0])
        no_op = b("NoOp", control=[dead])
        trigger = b("ControlTrigger", control=[dead, b.const(1)])
        b.ret(0, b("Identity", b.const(7), control=[trigger]))
        b.ret(1, b("Identity", b.const(7), control=[no_op]))
        assert outcomes(b) == [7, None]

    @pytest.mark.parametrize("constant", [False, True])
    def test_a_loop_on_the_untaken_side(self, constant):
        b = Builder()
        p = b.arg(0, dtypes.bool)

        def loop(x):
            invariants = [x] if constant else []
            return [
                b.while_loop(
                    "loop",
                    [x],
                    lambda i, *_: b("Less", i, b.inside(5)),
                    lambda i, *inv: [b("AddV2", i, inv[0] if inv else b.inside(1))],
                    invariants=invariants,
                )[0]
            ]

        merge = b.cond(p, [1], loop, lambda x: [b("Neg", x)])[0]
        b.ret(0, merge)
        b.ret(1, b("Merge", merge, merge).outputs[1])
        assert outcomes(b, np.True_)[0] == 5
        assert outcomes(b, np.False_)[0] == -1

    def test_nested_loops_on_the_untaken_side(self):
        b = Builder()
        p = b.arg(0, dtypes.bool)

        def inner(i):
            return b.while_loop(
                "inner", [i], lambda j: b("Less", j, b.inside(9)), lambda j: [b("AddV2", j, b.inside(4))]
            )

        def loop(x):
            return [b.while_loop("outer", [x], lambda i: b("Less", i, b.inside(8)), lambda i: inner(i))[0]]

        b.ret(0, b.cond(p, [1], loop, lambda x: [b("Neg", x)])[0])
        assert outcomes(b, np.True_) == [9]
        assert outcomes(b, np.False_) == [-1]

    def test_cond_inside_of_a_loop(self):
        b = Builder()

        def body(i, s):
            odd = b("Equal", b("FloorMod", i, b.inside(2)), b.inside(1))
            merge = b.cond(odd, [i, s], lambda i, s: [b("AddV2", s, i)], lambda i, s: [b("Identity", s)])[0]
            return [b("AddV2", i, b.const(1, control=[i])), merge]

        exits = b.while_loop("loop", [0, 0], lambda i, s: b("Less", i, b.inside(10)), body)
        b.ret(0, exits[1])
        assert outcomes(b) == [25]


class TestPlans:
    def test_inputs_from_different_frames(self):
        b = Builder()
        outside = b.const(1)
        enter = b("Enter", 1, frame_name="f")
        b("AddV2", enter, outside, name="mixed")
        with pytest.raises(errors.InvalidArgumentError, match="The node 'mixed' has inputs from different frames"):
            executor(b)

    def test_exit_outside_of_a_loop(self):
        b = Builder()
        b("Exit", 1, name="lonely")
        with pytest.raises(errors.InvalidArgumentError, match="lonely"):
            executor(b)

    def test_cycles(self):
        b = Builder()
        first = b("Identity", 1, name="first")
        second = b("Identity", first, name="second")
        first._update_input(0, second.outputs[0])
        with pytest.raises(
            errors.InvalidArgumentError, match="contains a cycle with 2 nodes, including: first, second"
        ):
            executor(b)

    def test_order_follows_edges_then_creation(self):
        b = Builder()
        late = b("Identity", 1, name="late")
        early = b("Identity", 1, name="early")
        late._add_control_input(early)
        third = b("Identity", 1, name="third")
        names = [n.name for n in executor(b).plan.nodes if n.op in (late, early, third)]
        assert names == ["early", "late", "third"]

    def test_frames(self):
        b = TestLoops().counting(3)
        plan: ExecutorPlan = executor(b).plan
        frames = {n.frame.name for n in plan.nodes}
        assert frames == {"", "loop"}
        assert plan.straight is None
        enters = [n for n in plan.nodes if n.kind == ENTER]
        assert all(n.frame.name == "" and n.child.n_enters == 2 for n in enters)

    def test_an_empty_graph(self):
        b = Builder()
        assert run(b) == []
        assert run(b, general=True) == []
        assert isinstance(executor(b), Executor)
