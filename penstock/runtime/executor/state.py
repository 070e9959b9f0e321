"""The state machine of one partition in one step. No threads, no kernels, no clocks: events in, nodes ready out.

Events are `finish_*` (a node's kernel has given its outputs), `flow` (run a control-flow node here and now) and `retire` (a node
ended without outputs that matter). What became ready is appended to `ready` as `(NodePlan, Iteration)`.

State of a PartitionState
    ready        queue of nodes to run, shared by all partitions that one driver drives
    dead         nodes that are ready but dead: they pass their deadness on without running
    busy         iterations in which something is ready or running; `over(self)` is called, once, when it falls to 0
    step, ctx, record    for the driver alone: the Step, its OpContext here, and where rows of step stats go

State of an Iteration (the root frame has one, a loop many at a time)
    frame, number    where it is
    pending          per node, how many inputs are still to come; DEAD_BIT is added once a dead one came. For a Merge: bit 0 until a
                     live input has come, control inputs by twos; the next entry counts dead inputs
    values           input slots, see plan.py
    busy             nodes of this iteration that are ready or running
    frames_open      child frames that are not done
    children         frame name -> child Frame, or None

State of a Frame
    iterations       number -> Iteration, those not done yet
    count            number of the newest iteration
    pending_inputs   Enters that have not come yet
    next_roots       (NextIteration node, value): the next iteration, held back by `parallel_iterations`
    invariants       (constant Enter, value): given to every iteration
    dead_exits       Exits that were dead in the newest iteration; dead for the parent if the frame ends so

Rules, all TF1's
    A node is ready when all inputs have come; dead if any was dead. A Merge is ready with its first live input, and dead when all
    inputs are dead or its Enter is. A ControlTrigger is never dead; Send and Recv run though dead.
    A dead NextIteration ends the loop. An iteration is done when nothing in it is left, the one before is done, and all Enters have come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.ops.context import DEAD
from penstock.ops.control_flow import predicate
from penstock.runtime.executor.plan import ENTER, EXIT, MERGE, NEXT, NOOP, SWITCH, ExecutorPlan, FramePlan, NodePlan
from penstock.runtime.frame_id import child_frame_id
from penstock.runtime.kernels import read_ref

DEAD_BIT = 1 << 40

_INDEXES = [np.int32(i) for i in range(16)]


class Frame:
    """See the module's docstring."""

    __slots__ = (
        "_id", "count", "dead_exits", "invariants", "iterations", "next_roots", "open", "parent", "pending_inputs", "plan",
    )  # fmt: skip

    def __init__(self, plan: FramePlan, parent: Iteration | None, state: PartitionState) -> None:
        self.plan = plan
        self.parent = parent
        self.pending_inputs = plan.n_enters
        self.count = 0
        self.open = 1
        self.next_roots: list[tuple[NodePlan, Any]] = []
        self.invariants: list[tuple[NodePlan, Any]] = []
        self.dead_exits: list[NodePlan] = []
        self.iterations = {0: Iteration(self, 0, state)}
        self._id: int | None = None

    @property
    def id(self) -> int:
        """TF's number for this frame, computed only for those who send values out of it."""
        if self._id is None:
            parent = self.parent
            self._id = 0 if parent is None else child_frame_id(parent.frame.id, parent.number, self.plan.name)
        return self._id


class Iteration:
    """See the module's docstring."""

    __slots__ = ("busy", "children", "frame", "frames_open", "number", "pending", "state", "values")

    def __init__(self, frame: Frame, number: int, state: PartitionState) -> None:
        self.frame = frame
        self.number = number
        self.state = state
        self.pending = frame.plan.pending.copy()
        self.values: list[Any] = [None] * frame.plan.n_values
        self.busy = 0
        self.frames_open = 0
        self.children: dict[str, Frame] | None = None

    @property
    def frame_iter(self) -> str:
        """ "frame:iteration" as rendezvous keys have it."""
        return f"{self.frame.id}:{self.number}"

    def __repr__(self) -> str:
        return f"<Iteration {self.frame.plan.name or 'root'}:{self.number}>"


class PartitionState:
    """See the module's docstring."""

    __slots__ = ("busy", "ctx", "dead", "over", "plan", "ready", "record", "root", "step")

    def __init__(
        self, plan: ExecutorPlan, ready: deque, over: Callable[[PartitionState], Any], step: Any = None, ctx: Any = None
    ) -> None:
        self.plan = plan
        self.ready = ready
        self.over = over
        self.step = step
        self.ctx = ctx
        self.record: Any = None
        self.dead: list[tuple[NodePlan, Iteration]] = []
        self.busy = 0
        self.root: Iteration | None = None

    # -- events -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins: the nodes without inputs are ready."""
        root = self.root = Frame(self.plan.root, None, self).iterations[0]
        roots = self.plan.roots
        if not roots:
            self.over(self)
            return
        self._more_busy(root, len(roots))
        self.ready.extend([(node, root) for node in roots])

    def finish_plain(self, node: NodePlan, it: Iteration, value: Any) -> None:
        """`node` gave its one output, alive."""
        ready = self.ready
        before = len(ready)
        pending = it.pending
        values = it.values
        for target, pi, slot in node.edges0:
            values[slot] = value
            left = pending[pi] - 1
            pending[pi] = left
            if not left:
                ready.append((target, it))
            elif left == DEAD_BIT:
                self._ready_dead(target, it)
        if node.more:
            if node.merges:
                self._to_merges(node.merges[0], it, value)
            self._controls(node, it)
        busy = it.busy + len(ready) - before - 1
        it.busy = busy
        if not busy:
            self._idle(it)
        if self.dead:
            self._pass_on_deadness()

    def finish(self, node: NodePlan, it: Iteration, outputs: Any) -> None:
        """`node` gave its outputs, some of which may be DEAD."""
        ready = self.ready
        before = len(ready)
        for edges, value in zip(node.edges, outputs):
            if value is DEAD:
                self._dead_edges(edges, it)
            else:
                self._live_edges(edges, it, value)
        if node.more:
            for merges, value in zip(node.merges, outputs):
                if value is DEAD:
                    self._dead_to_merges(merges, it, False)
                else:
                    self._to_merges(merges, it, value)
            self._controls(node, it)
        it.busy += len(ready) - before
        self.retire(it)
        if self.dead:
            self._pass_on_deadness()

    def flow(self, node: NodePlan, it: Iteration) -> None:
        """Runs a live Switch, Merge, Enter, Exit, NextIteration, NoOp or ControlTrigger. An OpError leaves the state as it was."""
        kind = node.kind
        if kind == NOOP:
            self.finish(node, it, ())
            return
        a = node.a
        values = it.values
        value = values[a]
        if kind == MERGE:
            index = values[a + 1]
            for i, deref, name in node.refs:
                if i == index:
                    value = read_ref(value, deref, name)
            values[a] = None
            if node.only_first:
                self.finish_plain(node, it, value)
            else:
                self.finish(node, it, (value, _INDEXES[index] if index < 16 else np.int32(index)))
            return
        for i, deref, name in node.refs:
            if i == 0:
                value = read_ref(value, deref, name)
        if kind == SWITCH:
            taken = values[a + 1]
            if node.refs and node.refs[-1][0] == 1:
                taken = read_ref(taken, True, node.refs[-1][2])
            taken = bool(taken) if taken.__class__ is np.bool_ else predicate(taken)
            values[a] = values[a + 1] = None
            exits = node.exits[not taken]
            if exits is None or node.more:
                self.finish(node, it, (DEAD, value) if taken else (value, DEAD))
                return
            # The common Switch of a loop: one side goes on, on the other there are only Exits.
            if exits and it.number == it.frame.count:
                it.frame.dead_exits += exits
            ready = self.ready
            before = len(ready)
            self._live_edges(node.edges[taken], it, value)
            busy = it.busy = it.busy + len(ready) - before - 1
            if not busy:
                self._idle(it)
        else:
            values[a] = None
            if kind == NEXT:
                self._next_iteration(node, it, value)
            elif kind == ENTER:
                self._enter(node, it, value)
            else:
                parent = it.frame.parent
                assert kind == EXIT and parent is not None
                self._activate(node, parent, value)
            self.retire(it)
        if self.dead:
            self._pass_on_deadness()

    def retire(self, it: Iteration) -> None:
        """One node of `it` is through."""
        it.busy -= 1
        if not it.busy:
            self._idle(it)

    def drop(self, it: Iteration) -> None:
        """As `retire`, after the step has failed: nothing follows from it, so frames are left as they are."""
        it.busy -= 1
        if not it.busy:
            self._less_busy()

    # -- edges of the same iteration ----------------------------------------------------------------------------------

    def _live_edges(self, edges: tuple, it: Iteration, value: Any) -> None:
        pending, values = it.pending, it.values
        for target, pi, slot in edges:
            values[slot] = value
            left = pending[pi] - 1
            pending[pi] = left
            if not left:
                self.ready.append((target, it))
            elif left == DEAD_BIT:
                self._ready_dead(target, it)

    def _dead_edges(self, edges: tuple, it: Iteration) -> None:
        pending, values = it.pending, it.values
        for target, pi, slot in edges:
            values[slot] = DEAD
            left = pending[pi] - 1
            if left < DEAD_BIT:
                left += DEAD_BIT
            pending[pi] = left
            if left == DEAD_BIT:
                self._ready_dead(target, it)

    def _to_merges(self, merges: tuple, it: Iteration, value: Any) -> None:
        pending, values = it.pending, it.values
        for target, pi, slot, index in merges:
            count = pending[pi]
            if count & 1:  # the first live input decides
                pending[pi] = count - 1
                values[slot] = value
                values[slot + 1] = index
                if count == 1:
                    self.ready.append((target, it))

    def _dead_to_merges(self, merges: tuple, it: Iteration, from_enter: bool) -> None:
        pending = it.pending
        for target, pi, _, _ in merges:
            pending[pi + 1] += 1
            # A dead Enter means that the whole loop is dead: its other input will never come.
            if pending[pi] == 1 and (from_enter or pending[pi + 1] == target.n_inputs):
                self._ready_dead(target, it)

    def _controls(self, node: NodePlan, it: Iteration) -> None:
        pending = it.pending
        for target, pi in node.controls:
            left = pending[pi] - 1
            pending[pi] = left
            if not left:
                self.ready.append((target, it))
            elif left == DEAD_BIT:
                self._ready_dead(target, it)
        if node.control_merges:
            self._control_merges(node, it)

    def _dead_controls(self, node: NodePlan, it: Iteration) -> None:
        pending = it.pending
        for target, pi in node.controls:
            left = pending[pi] - 1
            if left < DEAD_BIT:
                left += DEAD_BIT
            pending[pi] = left
            if left == DEAD_BIT:
                self._ready_dead(target, it)
        if node.control_merges:
            self._control_merges(node, it)

    def _control_merges(self, node: NodePlan, it: Iteration) -> None:
        """A control input of a Merge counts alike, alive or dead."""
        pending = it.pending
        for target, pi in node.control_merges:
            left = pending[pi] - 2
            pending[pi] = left
            if not left:
                self.ready.append((target, it))
            elif left == 1 and pending[pi + 1] == target.n_inputs:
                self._ready_dead(target, it)

    def _ready_dead(self, node: NodePlan, it: Iteration) -> None:
        if node.transfer or node.trigger:
            self.ready.append((node, it))
        else:
            it.busy += 1
            if it.busy == 1:
                self._now_busy()
            self.dead.append((node, it))

    # -- edges into other iterations ----------------------------------------------------------------------------------

    def _activate(self, node: NodePlan, it: Iteration, value: Any) -> None:
        """Gives the one output of `node` to its consumers in `it`, which need not be its own iteration."""
        ready = self.ready
        before = len(ready)
        if value is DEAD:
            self._dead_edges(node.edges0, it)
            if node.more:
                if node.merges:
                    self._dead_to_merges(node.merges[0], it, node.kind == ENTER)
                self._dead_controls(node, it)
        else:
            self._live_edges(node.edges0, it, value)
            if node.more:
                if node.merges:
                    self._to_merges(node.merges[0], it, value)
                self._controls(node, it)
        if len(ready) != before:
            self._more_busy(it, len(ready) - before)

    def _pass_on_deadness(self) -> None:
        dead = self.dead
        while dead:
            node, it = dead.pop()
            it.values[node.a : node.b] = node.nones
            kind = node.kind
            if kind == ENTER:
                self._enter(node, it, DEAD)
            elif kind == EXIT:
                if it.number == it.frame.count:
                    it.frame.dead_exits.append(node)
            elif kind != NEXT:  # a dead NextIteration ends the loop: nothing follows
                ready = self.ready
                before = len(ready)
                for edges in node.edges:
                    self._dead_edges(edges, it)
                for merges in node.merges:
                    self._dead_to_merges(merges, it, False)
                self._dead_controls(node, it)
                it.busy += len(ready) - before
            self.retire(it)

    # -- frames -------------------------------------------------------------------------------------------------------

    def _enter(self, node: NodePlan, it: Iteration, value: Any) -> None:
        plan = node.child
        assert plan is not None
        children = it.children
        if children is None:
            children = it.children = {}
        frame = children.get(plan.name)
        if frame is None:
            frame = children[plan.name] = Frame(plan, it, self)
            it.frames_open += 1
        if node.constant:
            frame.invariants.append((node, value))
            # Iteration 0 cannot be done before all Enters have come, so all iterations up to now are there.
            for number in range(frame.count + 1):
                self._activate(node, frame.iterations[number], value)
        else:
            self._activate(node, frame.iterations[0], value)
        frame.pending_inputs -= 1
        if not frame.pending_inputs:
            first = frame.iterations.get(0)
            if first is not None and not first.busy:
                self._clean(frame, 0)

    def _next_iteration(self, node: NodePlan, it: Iteration, value: Any) -> None:
        frame = it.frame
        if it.number == frame.count:
            if frame.open == frame.plan.parallel_iterations:
                frame.next_roots.append((node, value))
                return
            self._new_iteration(frame)
        self._activate(node, frame.iterations[it.number + 1], value)

    def _new_iteration(self, frame: Frame) -> None:
        frame.count += 1
        frame.open += 1
        it = frame.iterations[frame.count] = Iteration(frame, frame.count, self)
        frame.dead_exits.clear()
        roots, frame.next_roots = frame.next_roots, []
        for node, value in roots:
            self._activate(node, it, value)
        for node, value in frame.invariants:
            self._activate(node, it, value)

    def _idle(self, it: Iteration) -> None:
        """Nothing of `it` is ready or running any more."""
        if it.frame.parent is not None:
            # Cleaning up may make nodes of other iterations ready, so the count goes down only afterwards.
            self._clean(it.frame, it.number)
        self._less_busy()

    def _clean(self, frame: Frame, number: int) -> None:
        """Ends `number` and the iterations after it as far as they are done, then perhaps the frame."""
        iterations = frame.iterations
        while number <= frame.count:
            it = iterations.get(number)
            if it is None or it.busy or it.frames_open:
                break
            if frame.pending_inputs if number == 0 else number - 1 in iterations:
                break
            del iterations[number]
            frame.open -= 1
            number += 1
            if frame.next_roots:
                self._new_iteration(frame)
        if not frame.pending_inputs and not frame.open:
            self._end(frame)

    def _end(self, frame: Frame) -> None:
        it = frame.parent
        assert it is not None and it.children is not None
        for node in frame.dead_exits:
            self._activate(node, it, DEAD)
        frame.dead_exits = []
        frame.invariants = []
        del it.children[frame.plan.name]
        it.frames_open -= 1
        if not it.busy and it.frame.parent is not None:
            self._clean(it.frame, it.number)

    # -- counting -------------------------------------------------------------------------------------------------------

    def _more_busy(self, it: Iteration, n: int) -> None:
        if not it.busy:
            self._now_busy()
        it.busy += n

    def _now_busy(self) -> None:
        self.busy += 1

    def _less_busy(self) -> None:
        self.busy -= 1
        if not self.busy:
            self.over(self)
