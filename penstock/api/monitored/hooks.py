"""The hooks that come with TF: stop at a step, log tensors, count steps, look for NaNs, save checkpoints, ..."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import errors
from penstock.api import logging as log
from penstock.api.export import resolve, table
from penstock.api.monitored.run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from penstock.api.training.global_step import get_global_step
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.keys import GraphKeys


class SecondOrStepTimer:
    """Says when it is time again: every so many seconds, or every so many steps."""

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self._every_secs = every_secs
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Forgets when it was last time."""
        self._last_triggered_step: int | None = None
        self._last_triggered_time: float | None = None

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether it is time at this step. The first step always is; the same step is not twice."""
        if self._last_triggered_step is None:
            return True
        if self._last_triggered_step == step:
            return False
        if self._every_secs is not None:
            assert self._last_triggered_time is not None
            return time.time() >= self._last_triggered_time + self._every_secs
        assert self._every_steps is not None
        return step >= self._last_triggered_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Notes that it was time; (seconds, steps) since the last time, or (None, None)."""
        now = time.time()
        elapsed = None if self._last_triggered_time is None else now - self._last_triggered_time
        steps = None if self._last_triggered_step is None else step - self._last_triggered_step
        self._last_triggered_time = now
        self._last_triggered_step = step
        return elapsed, steps

    def last_triggered_step(self) -> int | None:
        return self._last_triggered_step


class _NeverTriggerTimer(SecondOrStepTimer):
    def __init__(self) -> None:
        self.reset()

    def should_trigger_for_step(self, step: int) -> bool:
        return False


def _timer(every_secs: float | None, every_steps: int | None) -> SecondOrStepTimer:
    return SecondOrStepTimer(every_secs, every_steps)


def _needed_global_step(hook: Any) -> Any:
    step = get_global_step()
    if step is None:
        raise RuntimeError(f"Global step should be created to use {type(hook).__name__}.")
    return step


class LoggingTensorHook(SessionRunHook):
    """Logs tensors every N steps, every N seconds, or at the end. `tensors` is a list or a dict from tags to tensors (or their names)."""

    def __init__(self, tensors: Any, every_n_iter: int | None = None, every_n_secs: float | None = None, at_end: bool = False,
                 formatter: Callable[[dict], str] | None = None) -> None:  # fmt: skip
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        if not only_at_end and (every_n_iter is None) == (every_n_secs is None):
            raise ValueError("either at_end and/or exactly one of every_n_iter and every_n_secs must be provided.")
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}.")
        if isinstance(tensors, dict):
            self._tag_order = list(tensors)
        else:
            self._tag_order = [_tag(t) for t in tensors]
            tensors = dict(zip(self._tag_order, tensors, strict=True))
        self._tensors = tensors
        self._formatter = formatter
        self._timer = _NeverTriggerTimer() if only_at_end else _timer(every_n_secs, every_n_iter)
        self._log_at_end = at_end

    def begin(self) -> None:
        self._timer.reset()
        self._iter_count = 0
        graph = get_default_graph()
        self._current_tensors = {tag: graph.as_graph_element(t) for tag, t in self._tensors.items()}

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self._should_trigger = self._timer.should_trigger_for_step(self._iter_count)
        return SessionRunArgs(self._current_tensors) if self._should_trigger else None

    def _log_tensors(self, values: dict) -> None:
        with np.printoptions(suppress=True):
            elapsed, _ = self._timer.update_last_triggered_step(self._iter_count)
            if self._formatter:
                log.info(self._formatter(values))
                return
            text = ", ".join(f"{tag} = {values[tag]}" for tag in self._tag_order)
            log.info(text if elapsed is None else f"{text} ({elapsed:.3f} sec)")

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._should_trigger:
            self._log_tensors(run_values.results)
        self._iter_count += 1

    def end(self, session: Any) -> None:
        if self._log_at_end:
            self._log_tensors(session.run(self._current_tensors))


def _tag(item: Any) -> str:
    return item.name if isinstance(item, Tensor) or hasattr(item, "name") else item


class StopAtStepHook(SessionRunHook):
    """Stops after `num_steps` more steps, or once the global step reaches `last_step`."""

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = num_steps
        self._last_step = last_step

    def begin(self) -> None:
        self._global_step_tensor = _needed_global_step(self)

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = int(session.run(self._global_step_tensor)) + self._num_steps

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        # The fetched value may be from before the step.
        if run_values.results + 1 >= self._last_step and run_context.session.run(self._global_step_tensor) >= self._last_step:
            run_context.request_stop()


class CheckpointSaverListener:
    """Is told when a CheckpointSaverHook saves. `after_save` may return True to end training."""

    def begin(self) -> None:
        pass

    def before_save(self, session: Any, global_step_value: int) -> None:
        pass

    def after_save(self, session: Any, global_step_value: int) -> Any:
        pass

    def end(self, session: Any, global_step_value: int) -> None:
        pass


class CheckpointSaverHook(SessionRunHook):
    """Saves a checkpoint at the start, every N steps or seconds, and at the end."""

    def __init__(self, checkpoint_dir: str, save_secs: float | None = None, save_steps: int | None = None, saver: Any = None,
                 checkpoint_basename: str = "model.ckpt", scaffold: Any = None, listeners: Any = None, save_graph_def: bool = True) -> None:  # fmt: skip
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        log.info("Create CheckpointSaverHook.")
        self._saver = saver
        self._scaffold = scaffold
        self._checkpoint_dir = checkpoint_dir
        self._save_path = os.path.join(checkpoint_dir, checkpoint_basename)
        self._timer = _timer(save_secs, save_steps)
        self._listeners = list(listeners or [])
        self._save_graph_def = save_graph_def
        self._steps_per_run = 1

    def begin(self) -> None:
        self._global_step_tensor = _needed_global_step(self)
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        step = int(session.run(self._global_step_tensor))
        if self._save_graph_def:
            os.makedirs(self._checkpoint_dir, exist_ok=True)
            with open(os.path.join(self._checkpoint_dir, "graph.pbtxt"), "w") as file:
                file.write(str(get_default_graph().as_graph_def(add_shapes=True)))
        # The initial values are worth having, and show at once whether saving works at all.
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._timer.should_trigger_for_step(int(run_values.results) + self._steps_per_run):
            step = int(run_context.session.run(self._global_step_tensor))
            if self._timer.should_trigger_for_step(step):
                self._timer.update_last_triggered_step(step)
                if self._save(run_context.session, step):
                    run_context.request_stop()

    def end(self, session: Any) -> None:
        last = int(session.run(self._global_step_tensor))
        if last != self._timer.last_triggered_step():
            self._save(session, last)
        for listener in self._listeners:
            listener.end(session, last)

    def _save(self, session: Any, step: int) -> bool:
        """Saves; whether a listener wants to stop."""
        log.info("Saving checkpoints for %d into %s.", step, self._save_path)
        for listener in self._listeners:
            listener.before_save(session, step)
        self._get_saver().save(session, self._save_path, global_step=step, write_meta_graph=self._save_graph_def)
        stop = False
        for listener in self._listeners:
            if listener.after_save(session, step):
                log.info("A CheckpointSaverListener requested that training be stopped. listener: %s", listener)
                stop = True
        return stop

    def _get_saver(self) -> Any:
        if self._saver is not None:
            return self._saver
        if self._scaffold is not None:
            return self._scaffold.saver
        savers = get_default_graph().get_collection(GraphKeys.SAVERS)
        if not savers:
            raise RuntimeError(f"No items in collection {GraphKeys.SAVERS}. Please add a saver to the collection or provide a saver or scaffold.")
        if len(savers) > 1:
            raise RuntimeError(f"More than one item in collection {GraphKeys.SAVERS}. Please indicate which one to use by passing it to the constructor.")
        self._saver = savers[0]
        return self._saver


class StepCounterHook(SessionRunHook):
    """Logs how many steps a second there are, and writes it as a summary if it has a writer."""

    def __init__(self, every_n_steps: int | None = 100, every_n_secs: float | None = None, output_dir: str | None = None,
                 summary_writer: Any = None) -> None:  # fmt: skip
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._timer = _timer(every_n_secs, every_n_steps)
        self._summary_writer = summary_writer
        self._output_dir = output_dir
        self._last_global_step: int | None = None
        self._steps_per_run = 1

    def begin(self) -> None:
        if self._summary_writer is None and self._output_dir and "summary.FileWriterCache" in table():
            self._summary_writer = resolve("summary.FileWriterCache").get(self._output_dir)
        self._global_step_tensor = _needed_global_step(self)
        operation = getattr(self._global_step_tensor, "op", self._global_step_tensor)
        self._summary_tag = operation.name + "/sec"

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        stale = int(run_values.results)
        if self._timer.should_trigger_for_step(stale + self._steps_per_run):
            step = int(run_context.session.run(self._global_step_tensor))
            if self._timer.should_trigger_for_step(step):
                elapsed, steps = self._timer.update_last_triggered_step(step)
                if elapsed is not None and steps is not None:
                    self._log_and_record(steps, elapsed, step)
        if self._last_global_step is not None and stale == self._last_global_step:
            log.log_first_n(
                log.WARN,
                "It seems that global step (tf.train.get_global_step) has not been increased. Current value (could be stable): %s vs previous "
                "value: %s. You could increase the global step by passing tf.train.get_global_step() to Optimizer.apply_gradients or "
                "Optimizer.minimize.",
                5, stale, self._last_global_step,
            )  # fmt: skip
        self._last_global_step = stale

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        rate = elapsed_steps / max(elapsed_time, 1e-9)
        if self._summary_writer is not None:
            summary = resolve("Summary")
            self._summary_writer.add_summary(summary(value=[summary.Value(tag=self._summary_tag, simple_value=rate)]), global_step)
        log.info("%s: %g", self._summary_tag, rate)


class NanLossDuringTrainingError(RuntimeError):
    """The loss became NaN."""

    def __str__(self) -> str:
        return "NaN loss during training."


class NanTensorHook(SessionRunHook):
    """Ends training when the loss is NaN: with NanLossDuringTrainingError, or, unless `fail_on_nan_loss`, quietly."""

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        self._loss_tensor = loss_tensor
        self._fail_on_nan_loss = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._loss_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if np.isnan(run_values.results):
            text = "Model diverged with loss = NaN."
            if self._fail_on_nan_loss:
                log.error(text)
                raise NanLossDuringTrainingError
            log.warning(text)
            run_context.request_stop()


class SummarySaverHook(SessionRunHook):
    """Writes summaries every N steps or seconds."""

    def __init__(self, save_steps: int | None = None, save_secs: float | None = None, output_dir: str | None = None, summary_writer: Any = None,
                 scaffold: Any = None, summary_op: Any = None) -> None:  # fmt: skip
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        self._summary_op = summary_op
        self._summary_writer = summary_writer
        self._output_dir = output_dir
        self._scaffold = scaffold
        self._timer = _timer(save_secs, save_steps)

    def begin(self) -> None:
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = resolve("summary.FileWriterCache").get(self._output_dir)
        self._next_step: int | None = None
        self._global_step_tensor = _needed_global_step(self)

    def _summaries(self) -> list[Any]:
        op = self._summary_op if self._summary_op is not None else self._scaffold.summary_op
        return [] if op is None else list(op) if isinstance(op, (list, tuple)) else [op]

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        self._request_summary = self._next_step is None or self._timer.should_trigger_for_step(self._next_step)
        requests: dict[str, Any] = {"global_step": self._global_step_tensor}
        if self._request_summary and self._summaries():
            requests["summary"] = self._summaries()
        return SessionRunArgs(requests)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._summary_writer is None:
            return
        stale = int(run_values.results["global_step"])
        step = stale + 1
        if self._next_step is None or self._request_summary:
            step = int(run_context.session.run(self._global_step_tensor))
        if self._next_step is None:
            self._summary_writer.add_session_log(resolve("SessionLog")(status=resolve("SessionLog").START), step)
        if self._request_summary:
            self._timer.update_last_triggered_step(step)
            for summary in run_values.results.get("summary", ()):
                self._summary_writer.add_summary(summary, step)
        self._next_step = step + 1

    def end(self, session: Any = None) -> None:
        if self._summary_writer is not None:
            self._summary_writer.flush()


class GlobalStepWaiterHook(SessionRunHook):
    """Holds a worker back until the global step has reached `wait_until_step`, for a slow start of many workers."""

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = wait_until_step
        self._worker_is_started = False

    def begin(self) -> None:
        self._global_step_tensor = _needed_global_step(self)

    def before_run(self, run_context: SessionRunContext) -> None:
        if self._worker_is_started:
            return
        if self._wait_until_step <= 0:
            self._worker_is_started = True
            return
        log.info("Waiting for global step %d before starting training.", self._wait_until_step)
        last_logged = 0
        while True:
            step = int(run_context.session.run(self._global_step_tensor))
            if step >= self._wait_until_step:
                self._worker_is_started = True
                return
            if step - last_logged > 1000:
                log.info("Waiting for global step %d before starting training. Current step is %d.", self._wait_until_step, step)
                last_logged = step
            time.sleep(0.5)


class FinalOpsHook(SessionRunHook):
    """Runs `final_ops` at the end; their values are `final_ops_values`."""

    def __init__(self, final_ops: Any, final_ops_feed_dict: dict | None = None) -> None:
        self._final_ops = final_ops
        self._final_ops_feed_dict = final_ops_feed_dict
        self._final_ops_values: Any = None

    @property
    def final_ops_values(self) -> Any:
        return self._final_ops_values

    def end(self, session: Any) -> None:
        if self._final_ops is None:
            return
        try:
            self._final_ops_values = session.run(self._final_ops, feed_dict=self._final_ops_feed_dict)
        except (errors.OutOfRangeError, StopIteration) as error:
            log.warning("An OutOfRangeError or StopIteration exception is raised by the code in FinalOpsHook. This typically means the Ops running by the FinalOpsHook have a dependency back to some input source, which should not happen.")
            raise error


class FeedFnHook(SessionRunHook):
    """Feeds what `feed_fn()` returns, a dict, in every run."""

    def __init__(self, feed_fn: Callable[[], dict]) -> None:
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())
