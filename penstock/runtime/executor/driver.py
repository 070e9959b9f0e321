"""The shell around the state machines: calls kernels, takes in what finishes elsewhere, ends the step.

State of a Driver
    step         the root step; calls of functions become child steps that this same driver drives
    ready        (NodePlan, Iteration) to run, filled by the state machines
    heavy        (NodePlan, Iteration, inputs): expensive kernels set aside until nothing else is ready
    inbox        what other threads, and kernels that finish later, have to say: (Completion, result, error), or
                 (None, function, argument) for a call to be made in the driver's turn
    pending      Completions that have not come back
    current      the Completion of the asynchronous kernel, or of the caller whose callback, is running
    sleeping     the driver waits, or has returned: who posts must wake it
    over         the root step has ended

One thread at a time drives: the caller's own in `run`, or in `run_async` whichever comes first and then the pool's. State machines and
all fields but `inbox` belong to that thread. The first error of a step wins; the step is then cancelled, and it ends when every kernel
that is still out has called back, so that nothing of it runs afterwards.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.engines.python.code import Cancelled
from penstock.ops.context import DEAD, OpContext
from penstock.ops.interrupts import Uninterrupted, deliver, is_from_handler
from penstock.runtime.cancellation import at_deadline
from penstock.runtime.executor.completion import Completion, account, call_on_pool, doing, reason_of
from penstock.runtime.executor.joined import run_whole, together
from penstock.runtime.executor.plan import HEAVY, NOOP, PLAIN, SYNC, NodePlan
from penstock.runtime.executor.state import Iteration, PartitionState
from penstock.runtime.executor.step import Step
from penstock.runtime.executor.straight import wrong_number
from penstock.runtime.quiet import enter, leave
from penstock.runtime.story import as_op_error, explain
from penstock.runtime.threads import process_pool, run_blocking

if TYPE_CHECKING:
    from penstock.runtime.executor.shell import Executor

HEAVY_NS = 100_000
"""A kernel that takes longer than this is worth a hand-over to another thread."""

_clock = time.perf_counter_ns


class Driver:
    """Runs one step. See the module's docstring."""

    def __init__(self, executors: Sequence[Executor], step: Step, done: Callable[[Any], Any] | None = None) -> None:
        self.step = step
        self.executors = executors
        self.ready: deque[tuple[NodePlan, Iteration]] = deque()
        self.inbox: deque[tuple[Any, Any, Any]] = deque()
        self.heavy: list[tuple[NodePlan, Iteration, list[Any]]] = []
        self.pending: set[Completion] = set()
        self.current: Completion | None = None
        self.sleeping = False
        self.over = False
        self.thread = 0
        self._done = done
        self._deadline: Any = None
        self._pool = step.pool if step.pool is not None and step.pool.num_threads > 1 else None
        # Held while the driver works: whoever posts to a sleeping driver lets it go.
        self._gate = threading.Lock()
        if done is None:
            self._gate.acquire()

    # -- the two ways to run ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs the step in this thread; returns when it is over. Raises its error. Ctrl-C takes effect between two kernels, or in a round of a loop."""
        with Uninterrupted(self._interrupted):
            self._run_here()

    def _interrupted(self) -> None:
        self.post((None, lambda _: deliver(), None))

    def _run_here(self) -> None:
        token = enter()
        self.thread = threading.get_ident()
        try:
            self._start()
            drive = self._drive if self.step.collector is None else self._drive_traced
            while True:
                drive()
                if self.over:
                    break
                self._wait()
        except BaseException as error:
            self._give_up()
            self._drain()
            if isinstance(error, Exception) and not isinstance(error, errors.OpError) and not is_from_handler(error):
                raise errors.InternalError(f"The executor failed: {type(error).__name__}: {error}") from error
            raise
        finally:
            leave(token)
            self._end()
        error = self._outcome()
        if error is not None:
            raise error from error.__cause__

    def run_async(self) -> None:
        """Runs the step as far as it goes without waiting; the pool's threads go on as things arrive. At last
        `done(error or None)` is called."""
        try:
            self._start()
        except errors.OpError as error:
            self._end()
            assert self._done is not None
            self._done(error)
            return
        self._pump()

    def _pump(self) -> None:
        with Uninterrupted(self._interrupted):
            self._pump_on()

    def _pump_on(self) -> None:
        token = enter()
        self.thread = threading.get_ident()
        drive = self._drive if self.step.collector is None else self._drive_traced
        try:
            while True:
                drive()
                if self.over:
                    break
                with self._gate:
                    if not self.inbox:
                        self._check_not_stuck()
                        self.sleeping = True
                        return
        except BaseException as error:
            # Whoever drove must not wait for what is still out.
            self._give_up()
            run_blocking(partial(self._end_broken, error))
            if not isinstance(error, Exception):
                raise
            return
        finally:
            leave(token)
        error = self._outcome()
        self._end()
        assert self._done is not None
        self._done(error)

    def _end_broken(self, error: BaseException) -> None:
        self._drain()
        self._end()
        assert self._done is not None
        self._done(
            as_op_error(error) if isinstance(error, Exception) else errors.CancelledError("The step was interrupted")
        )

    def _start(self) -> None:
        step = self.step
        step.driver = self
        if not self._watch(step):
            raise reason_of(step, "Step was cancelled before it started")
        if step.timeout is not None:
            self._deadline = at_deadline(step.timeout, self._ring)
        self._launch(step, self.executors)

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.step.close()
        self.ready.clear()
        self.inbox.clear()

    def _outcome(self) -> errors.OpError | None:
        step = self.step
        if step.error is None and step.cancelling:
            return reason_of(step, "Step was cancelled")
        return step.error

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _drive(self) -> None:
        """Runs what is ready until nothing is."""
        ready, inbox = self.ready, self.inbox
        popleft = ready.popleft
        while True:
            if inbox:
                self._deliver()
            if not ready:
                if self.heavy:
                    self._run_heavy()
                elif not inbox:
                    return
                continue
            node, it = popleft()
            kind = node.kind
            if kind == PLAIN:
                values = it.values
                a = node.a
                b = node.b
                inputs = values[a:b]
                values[a:b] = node.nones
                try:
                    value = node.fn(*inputs)
                except Exception as error:
                    self._fail(node, it, inputs, error)
                    continue
                it.state.finish_plain(node, it, value)
                inputs = value = None  # what is dead must not live on in a local name
            elif kind <= NOOP:
                try:
                    it.state.flow(node, it)
                except errors.OpError as error:
                    self._fail(node, it, it.values[node.a : node.b], error)
            else:
                self._run(node, it)

    def _drive_traced(self) -> None:
        """As `_drive`, with a row of step stats per node."""
        ready, inbox = self.ready, self.inbox
        while True:
            if inbox:
                self._deliver()
            if not ready:
                if self.heavy:
                    self._run_heavy()
                elif not inbox:
                    return
                continue
            node, it = ready.popleft()
            if PLAIN < node.kind <= NOOP:
                start = _clock()
                state = it.state
                try:
                    state.flow(node, it)
                except errors.OpError as error:
                    self._fail(node, it, it.values[node.a : node.b], error)
                end = _clock()
                state.record(node, start, start, end, end, ())
            else:
                self._run(node, it)

    def _run(self, node: NodePlan, it: Iteration) -> None:
        inputs = it.values[node.a : node.b]
        it.values[node.a : node.b] = node.nones
        kind = node.kind
        if kind in (SYNC, PLAIN):
            self._call(node, it, inputs)
        elif kind == HEAVY:
            if self._pool is not None and node.cost > HEAVY_NS:
                self.heavy.append((node, it, inputs))
            else:
                self._call_timed(node, it, inputs)
        else:
            self._call_async(node, it, inputs)

    def _call(self, node: NodePlan, it: Iteration, inputs: list[Any]) -> None:
        state = it.state
        record = state.record
        start = _clock() if record is not None else 0
        try:
            if node.needs_ctx:
                ctx = state.ctx
                ctx.iteration = it if it.frame.parent is not None else None
                result = node.fn(ctx, *inputs)
            else:
                result = node.fn(*inputs)
        except Exception as error:
            self._fail(node, it, inputs, error)
            return
        if record is not None:
            end = _clock()
            record(node, start, start, end, _clock(), (result,) if node.plain else result or ())
        self._finish(node, it, inputs, result)

    def _call_timed(self, node: NodePlan, it: Iteration, inputs: list[Any]) -> None:
        start = _clock()
        self._call(node, it, inputs)
        account(node, _clock() - start)

    def _call_async(self, node: NodePlan, it: Iteration, inputs: list[Any]) -> None:
        state = it.state
        ctx = state.ctx
        ctx.iteration = it if it.frame.parent is not None else None
        completion = Completion(self, node, it, inputs)
        if state.record is not None:
            completion.start = _clock()
        outer, self.current = self.current, completion
        try:
            self.pending.add(completion)
            node.fn(ctx, completion, *inputs)
        except Exception as error:
            self._callback_failed(completion, error)
        except BaseException:
            # Interrupted before it could set anything up: nobody will call back.
            self.pending.discard(completion)
            raise
        finally:
            self.current = outer

    def _run_heavy(self) -> None:
        """Runs the kernels set aside: all but one on the pool, if there are several."""
        heavy, self.heavy = self.heavy, []
        pool = self._pool
        while len(heavy) > 1 and pool is not None:
            node, it, inputs = heavy.pop(0)
            completion = Completion(self, node, it, inputs)
            ctx = None
            if node.needs_ctx:
                # The shared context's `iteration` changes under a kernel that runs elsewhere.
                ctx = OpContext(it.state.step, it.state.ctx.device)
                ctx.iteration = it if it.frame.parent is not None else None
            if it.state.record is not None:
                completion.start = _clock()
            self.pending.add(completion)
            pool.submit(partial(call_on_pool, completion, ctx))
        node, it, inputs = heavy[0]
        self._call_timed(node, it, inputs)

    def _finish(self, node: NodePlan, it: Iteration, inputs: Sequence[Any], result: Any) -> None:
        """Hands a kernel's result to the state machine."""
        state = it.state
        if node.plain:
            if result is DEAD:
                state.finish(node, it, (DEAD,))
            else:
                state.finish_plain(node, it, result)
            return
        expected = len(node.edges)
        if not expected:
            result = ()
        elif result is None or len(result) != expected:
            self._fail(node, it, inputs, wrong_number(node, () if result is None else result))
            return
        state.finish(node, it, result)

    # -- what comes in from elsewhere ----------------------------------------------------------------------------------

    def post(self, event: tuple[Any, Any, Any]) -> None:
        """Puts an event into the inbox and wakes the driver. From any thread."""
        self.inbox.append(event)
        if self.sleeping:
            self._wake()

    def _wake(self) -> None:
        if self._done is None:
            try:
                self._gate.release()
            except RuntimeError:
                pass  # somebody else has just done it
            return
        with self._gate:
            if not self.sleeping:
                return
            self.sleeping = False
        (self.step.pool or process_pool()).submit(self._pump)

    def _wait(self) -> None:
        self.sleeping = True
        if not self.inbox:
            self._check_not_stuck()
            self._gate.acquire()
        self.sleeping = False

    def _check_not_stuck(self) -> None:
        if not self.pending and not self.inbox:
            raise errors.InternalError("The step cannot go on: nothing is ready and nothing is running")

    def _deliver(self) -> None:
        inbox = self.inbox
        while inbox:
            completion, result, error = inbox.popleft()
            if completion is None:
                result(error)
                continue
            self.pending.discard(completion)
            node, it = completion.node, completion.it
            state = it.state
            step = state.step
            if completion.start:
                end = _clock()
                outputs = (result,) if node.plain else result or ()
                state.record(node, completion.start, completion.start, end, end, outputs if error is None else ())
            if step.error is not None:
                state.drop(it)
            elif error is not None:
                self._fail(node, it, completion.inputs, error)
            elif step.cancelling:
                state.drop(it)
            else:
                self._finish(node, it, completion.inputs, result)

    # -- errors and cancellation --------------------------------------------------------------------------------------

    def _fail(self, node: NodePlan, it: Iteration, inputs: Sequence[Any], error: BaseException) -> None:
        """The kernel of `node` failed: the step's first error ends it."""
        state = it.state
        step = state.step
        if error.__class__ is Cancelled:
            self._cancelled(step)  # a region's loop may see it before we are told
        elif step.error is None:
            op = node.op
            loop = None
            if op.type == "_Region":
                error, op, inputs, loop = node.fn.blame(error) or (error, op, inputs, None)  # type: ignore[attr-defined]
            self._abort(step, explain(error, op, state.ctx.device.name, inputs, doing(step, it, loop), step.depth == 0))
        state.drop(it)

    def _callback_failed(self, completion: Completion | None, error: Exception) -> None:
        """A kernel, or a callback of it, raised instead of calling `done(None, error)`."""
        if completion is None or completion.called:
            if self.step.error is None:
                self._abort(self.step, as_op_error(error))
            return
        completion.called = True
        self.pending.discard(completion)
        self._fail(completion.node, completion.it, completion.inputs, error)

    def _abort(self, step: Step, error: errors.OpError) -> None:
        step.error = error
        self._purge(step)
        step.cancellation.start_cancel()
        if step._rendezvous is not None:
            step._rendezvous.abort(error)

    def _ring(self) -> None:
        self.post((None, self._too_late, None))
        self.step.cancellation.start_cancel()  # for loops of regions, which do not look into the inbox

    def _too_late(self, _: Any) -> None:
        step = self.step
        if step.error is None and not self.over:
            error = errors.DeadlineExceededError("Timed out waiting for notification")
            error.story.append(f"The step had {step.timeout:g} seconds; waiting for: {self._waiting_for()}")
            self._abort(step, error)

    def _waiting_for(self) -> str:
        names = sorted({c.node.name for c in self.pending})
        return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "nothing"

    def _watch(self, step: Step) -> bool:
        """Hears of the step's cancellation. False if it is cancelled already."""
        # Registered before any kernel's callback, so that the driver hears first.
        step._token = step.cancellation.register(lambda: self.post((None, self._cancelled, step)))
        return step._token is not None

    def _cancelled(self, step: Step) -> None:
        """Somebody outside cancelled the step: nothing new begins. Kernels that are still out say why they stopped."""
        if step.error is not None or step.cancelling or not step.busy:
            return
        step.cancelling = True
        self._purge(step)
        if step._rendezvous is not None:
            step._rendezvous.abort(reason_of(step, "RecvAsync is cancelled."))

    def _purge(self, step: Step) -> None:
        """Drops what is ready in `step`."""
        ready = self.ready
        dropped = []
        for _ in range(len(ready)):
            entry = ready.popleft()
            if entry[1].state.step is step:
                dropped.append(entry[1])
            else:
                ready.append(entry)
        dropped += [it for _, it, _ in self.heavy if it.state.step is step]
        self.heavy = [entry for entry in self.heavy if entry[1].state.step is not step]
        for it in dropped:
            it.state.drop(it)

    def _give_up(self) -> None:
        """The driver itself was interrupted, or broke: its counts can no longer be trusted."""
        self.ready.clear()
        self.heavy = []
        step = self.step
        if step.error is None:
            step.error = errors.CancelledError("The step was interrupted")
        step.cancellation.start_cancel()
        if step._rendezvous is not None:
            step._rendezvous.abort(step.error)

    def _drain(self) -> None:
        """Waits for every kernel that is still out. One that waits for a function to end is not: the function was given up."""
        while True:
            while self.inbox:
                completion = self.inbox.popleft()[0]
                self.pending.discard(completion)
            if all(completion.calls for completion in self.pending):
                return
            if self._done is not None:
                time.sleep(0.005)  # on a thread of its own, after a failure: no need to be clever
                continue
            self.sleeping = True
            if not self.inbox:
                self._gate.acquire()
            self.sleeping = False

    # -- steps and calls ------------------------------------------------------------------------------------------------

    def _launch(self, step: Step, executors: Sequence[Executor]) -> None:
        step.busy = len(executors)
        states = []
        for executor in executors:
            plan = executor.plan_for(step)
            plan.connect()
            state = PartitionState(
                plan, self.ready, self._partition_over, step, OpContext(step, executor.device)
            )
            if step.collector is not None:
                state.record = step.collector.recorder(executor.device.name)
            states.append(state)
        step.partitions = states
        for state in states:
            state.start()

    def _partition_over(self, state: PartitionState) -> None:
        step = state.step
        if state.root is not None:
            state.root.frame.iterations.clear()  # they hold each other: what a step leaves behind must not need the collector
            state.root = None
        step.busy -= 1
        if not step.busy:
            # In its own turn, because we may be deep inside of a state machine.
            self.inbox.append((None, self._step_over, step))

    def _step_over(self, step: Step) -> None:
        if step is self.step:
            self.over = True
            return
        error = step.error
        if error is None and step.cancelling:
            error = reason_of(step, "Function call was cancelled")
        step.close()
        self.reply(step, error)

    def call(self, step: Step, executors: Sequence[Executor], done_error: errors.OpError | None = None) -> None:
        """Runs `step`, a call of a function, in the driver's turn; with `done_error`, only reports that error. From any
        thread, but a call from a thread that does not drive cannot be tied to its node."""
        if threading.get_ident() == self.thread and self.current is not None:
            step.caller = self.current
            step.caller.calls += 1
        if done_error is not None:
            self.post((None, lambda _: self.reply(step, done_error), None))
        else:
            self.post((None, self._begin_call, (step, executors)))

    def _begin_call(self, call: tuple[Step, Sequence[Executor]]) -> None:
        step, executors = call
        parent = step.parent
        assert parent is not None
        step.driver = self
        if parent.error is not None or parent.cancelling:
            self.reply(step, errors.CancelledError("Function call was cancelled"))
            return
        try:
            error, is_done = None, run_whole(together(executors), step, executors[0].device)  # a called function has a rendezvous of its own
        except errors.OpError as caught:
            error, is_done = caught, True
        if is_done:
            step.close()
            self.reply(step, error)
        elif self._watch(step):
            self._launch(step, executors)
        else:
            error = reason_of(step, "Function call was cancelled")
            step.close()
            self.reply(step, error)

    def reply(self, step: Step, error: errors.OpError | None) -> None:
        """Tells the caller of a function how it went."""
        caller = step.caller
        if caller is not None:
            caller.calls -= 1
        results = None
        if error is None:
            try:
                results = step.call_frame.take_retvals()
            except errors.OpError as missing:
                error = missing
        done = step.done
        assert done is not None
        outer, self.current = self.current, caller
        try:
            if error is None:
                done(results)
            else:
                done(None, error)
        except Exception as failure:
            self._callback_failed(caller, failure)
        finally:
            self.current = outer
