"""`tf.train.MonitoredSession` and its relatives: sessions with hooks, queue runners, recovery and an orderly end.

A monitored session is made of layers, each of which runs the one below: recoverable (makes a new session when a worker was lost),
coordinated (stops with its coordinator, reports errors of queue runners), hooked (asks the hooks), and the tf.Session itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from penstock import errors
from penstock.api import logging as log
from penstock.api.export import table
from penstock.api.monitored.hooks import CheckpointSaverHook, StepCounterHook, SummarySaverHook
from penstock.api.monitored.run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from penstock.api.monitored.scaffold import (
    USE_DEFAULT,
    ChiefSessionCreator,
    Scaffold,
    SessionCreator,
    WorkerSessionCreator,
)
from penstock.api.training.coordinator import Coordinator
from penstock.api.training.queue_runner import start_queue_runners
from penstock.formats import protos
from penstock.graph.defaults import get_default_graph
from penstock.graph.keys import GraphKeys

_PREEMPTION_ERRORS = (errors.AbortedError, errors.UnavailableError)


class _WrappedSession:
    """A session around a session."""

    def __init__(self, sess: Any) -> None:
        self._sess: Any = sess
        self._wrapped_is_stoppable = isinstance(sess, _WrappedSession)

    @property
    def graph(self) -> Any:
        return self._sess.graph

    @property
    def sess_str(self) -> str:
        return self._sess.sess_str

    def should_stop(self) -> bool:
        """Whether the loop should end: the session is closed, or somebody asked for it."""
        if self._check_stop():
            return True
        if self._sess is not None:
            return self._wrapped_is_stoppable and self._sess.should_stop()
        return True

    def _check_stop(self) -> bool:
        return False

    def close(self) -> None:
        if self._sess is not None:
            try:
                self._sess.close()
            except _PREEMPTION_ERRORS as error:
                log.error("An error occurred when attempting to close the session. This may be due to a preemption in a connected worker or parameter server. Error: %s", error)
            finally:
                self._sess = None

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        return self._sess.run(fetches, feed_dict, options, run_metadata)

    def run_step_fn(self, step_fn: Callable[..., Any], raw_session: Any, run_with_hooks: Callable[..., Any] | None) -> Any:
        # `run_with_hooks` of the outermost layer that has hooks below it.
        run_with_hooks = run_with_hooks or self.run
        return step_fn(_MonitoredSession.StepContext(raw_session, run_with_hooks))


class _RecoverableSession(_WrappedSession):
    """Makes a new session when a worker or parameter server was lost."""

    def __init__(self, sess_creator: Any) -> None:
        self._sess_creator = sess_creator
        super().__init__(self._create_session())

    def _create_session(self) -> Any:
        while True:
            try:
                return self._sess_creator.create_session()
            except _PREEMPTION_ERRORS as error:
                log.info("An error was raised while a session was being created. This may be due to a preemption of a connected worker or parameter server. A new session will be created. Error: %s", error)

    def _check_stop(self) -> bool:
        try:
            return self._sess is not None and self._sess._check_stop()
        except _PREEMPTION_ERRORS as error:
            log.info("An error was raised while considering whether the session is complete. A new session will be created on the next session.run(). Error: %s", error)
            self.close()
            self._sess = self._create_session()
            return False

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        while True:
            try:
                if self._sess is None:
                    self._sess = self._create_session()
                return self._sess.run(fetches, feed_dict, options, run_metadata)
            except _PREEMPTION_ERRORS as error:
                self._lost(error)

    def run_step_fn(self, step_fn: Callable[..., Any], raw_session: Any, run_with_hooks: Callable[..., Any] | None) -> Any:
        while True:
            try:
                if self._sess is None:
                    self._sess = self._create_session()
                    # The old one is gone, and so is its raw session.
                    raw_session = self._sess._coordinated_creator_session()
                return self._sess.run_step_fn(step_fn, raw_session, run_with_hooks=None)
            except _PREEMPTION_ERRORS as error:
                self._lost(error)

    def _lost(self, error: Exception) -> None:
        log.info("An error was raised. This may be due to a preemption in a connected worker or parameter server. The current session will be closed and a new session will be created. Error: %s", error)
        self.close()
        self._sess = None


class _CoordinatedSession(_WrappedSession):
    """Stops with its coordinator, and raises what its threads reported."""

    def __init__(self, sess: Any, coord: Coordinator, stop_grace_period_secs: float = 120) -> None:
        super().__init__(sess)
        self._coord = coord
        self._stop_grace_period_secs = stop_grace_period_secs

    def _coordinated_creator_session(self) -> Any:
        return self._sess._sess

    def _check_stop(self) -> bool:
        # Raises what was reported since the last run.
        self._coord.raise_requested_exception()
        return self._coord.should_stop()

    def close(self) -> None:
        self._coord.request_stop()
        try:
            self._coord.join(stop_grace_period_secs=self._stop_grace_period_secs, ignore_live_threads=True)
        finally:
            try:
                super().close()
            except Exception as error:
                # Whatever else went wrong has been reported by the coordinator.
                log.debug("Ignored exception while closing the session: %s", error)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._sess.run(*args, **kwargs)
        except _PREEMPTION_ERRORS:
            raise
        except Exception as original:
            # A thread's error is more telling than the step that it made fail.
            try:
                self._coord.raise_requested_exception()
            except _PREEMPTION_ERRORS:
                raise
            except Exception:
                raise original from None
            raise


class _HookedSession(_WrappedSession):
    """Asks the hooks before and after every run."""

    def __init__(self, sess: Any, hooks: list[SessionRunHook]) -> None:
        super().__init__(sess)
        self._hooks = hooks
        self._should_stop = False

    def _check_stop(self) -> bool:
        return self._should_stop

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        # A flat list, because the session recognises those that it has run before.
        width = len(fetches) if fetches.__class__ in (list, tuple) else 0
        actual: list[Any] = list(fetches) if width else [fetches]
        places: dict[SessionRunHook, int] = {}
        context = SessionRunContext(original_args=SessionRunArgs(fetches, feed_dict), session=self._sess)
        options = options or protos.RunOptions()
        feeds = self._before_run(context, actual, places, feed_dict, options)
        metadata = run_metadata if run_metadata is not None else protos.RunMetadata() if self._wants_metadata(options) else None
        # Plain runs take the session's fast road.
        plain = metadata is None and not options.ByteSize()
        outputs = self._sess.run(fetches=actual, feed_dict=feeds, options=None if plain else options, run_metadata=metadata)
        metadata = protos.RunMetadata() if metadata is None else metadata
        for hook in self._hooks:
            results = outputs[places[hook]] if hook in places else None
            hook.after_run(context, SessionRunValues(results=results, options=options, run_metadata=metadata))
        self._should_stop = self._should_stop or context.stop_requested
        return fetches.__class__(outputs[:width]) if width else outputs[0]

    @staticmethod
    def _wants_metadata(options: Any) -> bool:
        return options.trace_level != protos.RunOptions.NO_TRACE or options.output_partition_graphs

    def _before_run(self, context: SessionRunContext, fetches: list, places: dict, caller_feeds: Any, options: Any) -> Any:
        """Adds the hooks' fetches, and notes where; the feeds of all."""
        feeds: dict = {}
        for hook in self._hooks:
            request = hook.before_run(context)
            if request is None:
                continue
            if request.fetches is not None:
                places[hook] = len(fetches)
                fetches.append(request.fetches)
            if request.feed_dict:
                self._check_disjoint(feeds, request.feed_dict, "Same tensor is fed by two hooks.")
                feeds.update(request.feed_dict)
            if request.options:
                _merge_options(options, request.options)
        if not feeds:
            return caller_feeds
        if not caller_feeds:
            return feeds
        self._check_disjoint(caller_feeds, feeds, "Same tensor is fed by a SessionRunHook and user.")
        return {**caller_feeds, **feeds}

    @staticmethod
    def _check_disjoint(one: dict, other: dict, text: str) -> None:
        common = [key for key in one if key in other]
        if common:
            raise RuntimeError(f"{text} Conflicting tensors: {common}")


def _merge_options(options: Any, more: Any) -> None:
    """Adds one hook's wishes: the most tracing, the longest timeout."""
    options.trace_level = max(options.trace_level, more.trace_level)
    options.timeout_in_ms = max(options.timeout_in_ms, more.timeout_in_ms)
    options.inter_op_thread_pool = max(options.inter_op_thread_pool, more.inter_op_thread_pool)
    options.output_partition_graphs = options.output_partition_graphs or more.output_partition_graphs
    options.report_tensor_allocations_upon_oom = options.report_tensor_allocations_upon_oom or more.report_tensor_allocations_upon_oom


class _CoordinatedSessionCreator(SessionCreator):
    """Makes coordinated sessions with queue runners and hooks."""

    def __init__(self, session_creator: SessionCreator, hooks: list[SessionRunHook], stop_grace_period_secs: float) -> None:
        self._session_creator = session_creator
        self._hooks = hooks
        self._stop_grace_period_secs = stop_grace_period_secs
        self.coord: Coordinator | None = None
        self.tf_sess: Any = None

    def create_session(self) -> _CoordinatedSession:
        self.tf_sess = self._session_creator.create_session()
        # Errors that end the input are clean only in the main thread, where they end the loop.
        self.coord = Coordinator(clean_stop_exception_types=())
        if get_default_graph().get_collection(GraphKeys.QUEUE_RUNNERS):
            start_queue_runners(sess=self.tf_sess, coord=self.coord)
        for hook in self._hooks:
            hook.after_create_session(self.tf_sess, self.coord)
        return _CoordinatedSession(_HookedSession(self.tf_sess, self._hooks), self.coord, self._stop_grace_period_secs)


class _MonitoredSession:
    """What MonitoredSession and SingularMonitoredSession have in common."""

    _starts_queue_runners = True

    def __init__(self, session_creator: SessionCreator | None, hooks: Any, should_recover: bool, stop_grace_period_secs: float = 120) -> None:
        self._graph_was_finalized = get_default_graph().finalized
        self._hooks: list[SessionRunHook] = list(hooks or [])
        for hook in self._hooks:
            hook.begin()
        self._coordinated_creator = _CoordinatedSessionCreator(session_creator or ChiefSessionCreator(), self._hooks, stop_grace_period_secs)
        self._sess: Any = _RecoverableSession(self._coordinated_creator) if should_recover else self._coordinated_creator.create_session()

    @property
    def graph(self) -> Any:
        """The session's graph, or None once it is closed."""
        return None if self._tf_sess() is None else self._coordinated_creator.tf_sess.graph

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """As `tf.Session.run`, with the hooks."""
        return self._sess.run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Calls `step_fn(step_context)`, which may run the raw session, run with hooks, or ask to stop."""
        arguments = list(inspect.signature(step_fn).parameters)
        if "step_context" not in arguments:
            raise ValueError(f"`step_fn` may either have one `step_context` argument, or `self` and `step_context` arguments if it's an instance method. Got {arguments} instead.")
        return self._sess.run_step_fn(step_fn, self._tf_sess(), run_with_hooks=None)

    class StepContext:
        """What `run_step_fn` gives to its function."""

        def __init__(self, session: Any, run_with_hooks_fn: Callable[..., Any]) -> None:
            self._session = session
            self._run_with_hooks_fn = run_with_hooks_fn

        @property
        def session(self) -> Any:
            return self._session

        def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
            """As `MonitoredSession.run`."""
            return self._run_with_hooks_fn(*args, **kwargs)

        def request_stop(self) -> None:
            """Ends the loop, by a StopIteration that the session's `with` takes for a good end."""
            raise StopIteration("step_fn has requested the iterations to stop.")

    def should_stop(self) -> bool:
        """Whether the loop should end."""
        return self._sess is None or self._sess.should_stop()

    def close(self) -> None:
        """Ends the session: hooks' `end`, then queue runners, then the session itself."""
        self._close_internal()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, exception_type: type[BaseException] | None, exception_value: object, traceback: object) -> bool:
        if exception_type in (errors.OutOfRangeError, StopIteration):
            exception_type = None
        self._close_internal(exception_type)
        # The end of the input is a good end.
        return exception_type is None

    def _close_internal(self, exception_type: Any = None) -> None:
        try:
            if not exception_type:
                for hook in self._hooks:
                    hook.end(self._coordinated_creator.tf_sess)
        finally:
            try:
                if self._sess is None:
                    raise RuntimeError("Session is already closed.")
                self._sess.close()
            finally:
                self._sess = None
                self._coordinated_creator.tf_sess = None
                self._coordinated_creator.coord = None
                if not self._graph_was_finalized:
                    get_default_graph()._unsafe_unfinalize()

    def _is_closed(self) -> bool:
        return self._coordinated_creator.tf_sess is None

    def _tf_sess(self) -> Any:
        return self._coordinated_creator.tf_sess


class MonitoredSession(_MonitoredSession):
    """A session with hooks that initialises the model, starts queue runners, and makes itself anew when a worker is lost.

        with tf.train.MonitoredSession(hooks=[tf.train.StopAtStepHook(last_step=100)]) as sess:
            while not sess.should_stop():
                sess.run(train_op)
    """

    def __init__(self, session_creator: SessionCreator | None = None, hooks: Any = None, stop_grace_period_secs: float = 120) -> None:
        super().__init__(session_creator, hooks, should_recover=True, stop_grace_period_secs=stop_grace_period_secs)


class SingularMonitoredSession(_MonitoredSession):
    """As MonitoredSession, but without recovery; `raw_session()` is the tf.Session inside."""

    def __init__(self, hooks: Any = None, scaffold: Scaffold | None = None, master: str = "", config: Any = None, checkpoint_dir: str | None = None,
                 stop_grace_period_secs: float = 120, checkpoint_filename_with_path: str | None = None) -> None:  # fmt: skip
        creator = ChiefSessionCreator(
            scaffold=scaffold, master=master, config=config, checkpoint_dir=checkpoint_dir, checkpoint_filename_with_path=checkpoint_filename_with_path
        )
        super().__init__(creator, hooks, should_recover=False, stop_grace_period_secs=stop_grace_period_secs)

    def raw_session(self) -> Any:
        return self._tf_sess()


def MonitoredTrainingSession(master: str = "", is_chief: bool = True, checkpoint_dir: str | None = None, scaffold: Scaffold | None = None,
                             hooks: Any = None, chief_only_hooks: Any = None, save_checkpoint_secs: Any = USE_DEFAULT,
                             save_summaries_steps: Any = USE_DEFAULT, save_summaries_secs: Any = USE_DEFAULT, config: Any = None,
                             stop_grace_period_secs: float = 120, log_step_count_steps: int | None = 100, max_wait_secs: float = 7200,
                             save_checkpoint_steps: Any = USE_DEFAULT, summary_dir: str | None = None, save_graph_def: bool = True) -> MonitoredSession:  # fmt: skip
    """A MonitoredSession for training: the chief initialises, saves checkpoints every 600 s and summaries every 100 steps; other workers
    wait for it. Without `checkpoint_dir` (and `summary_dir`) nothing is saved."""
    if save_summaries_steps is USE_DEFAULT and save_summaries_secs is USE_DEFAULT:
        save_summaries_steps, save_summaries_secs = 100, None
    elif save_summaries_secs is USE_DEFAULT:
        save_summaries_secs = None
    elif save_summaries_steps is USE_DEFAULT:
        save_summaries_steps = None
    if save_checkpoint_steps is USE_DEFAULT and save_checkpoint_secs is USE_DEFAULT:
        save_checkpoint_steps, save_checkpoint_secs = None, 600
    elif save_checkpoint_secs is USE_DEFAULT:
        save_checkpoint_secs = None
    elif save_checkpoint_steps is USE_DEFAULT:
        save_checkpoint_steps = None
    scaffold = scaffold or Scaffold()
    if not is_chief:
        creator = WorkerSessionCreator(scaffold=scaffold, master=master, config=config, max_wait_secs=max_wait_secs)
        return MonitoredSession(creator, hooks=hooks or [], stop_grace_period_secs=stop_grace_period_secs)
    every = list(chief_only_hooks or [])
    summary_dir = summary_dir or checkpoint_dir
    if summary_dir:
        if log_step_count_steps and log_step_count_steps > 0:
            every.append(StepCounterHook(output_dir=summary_dir, every_n_steps=log_step_count_steps))
        if (save_summaries_steps and save_summaries_steps > 0) or (save_summaries_secs and save_summaries_secs > 0):
            _need("summary.FileWriterCache", "Summaries")
            every.append(SummarySaverHook(scaffold=scaffold, save_steps=save_summaries_steps, save_secs=save_summaries_secs, output_dir=summary_dir))
    if checkpoint_dir and ((save_checkpoint_secs and save_checkpoint_secs > 0) or (save_checkpoint_steps and save_checkpoint_steps > 0)):
        if scaffold.saver is None:
            _need("train.Saver", "Checkpoints")
        every.append(
            CheckpointSaverHook(
                checkpoint_dir, save_steps=save_checkpoint_steps, save_secs=save_checkpoint_secs, scaffold=scaffold, save_graph_def=save_graph_def
            )
        )
    if hooks:
        every.extend(hooks)
    creator = ChiefSessionCreator(scaffold=scaffold, checkpoint_dir=checkpoint_dir, master=master, config=config)
    return MonitoredSession(creator, hooks=every, stop_grace_period_secs=stop_grace_period_secs)


def _need(name: str, what: str) -> None:
    if name not in table():
        raise errors.UnimplementedError(f"{what} of a MonitoredTrainingSession need tf.{name}, which is not there. Pass checkpoint_dir=None and summary_dir=None, or save_*=None, to train without.")
