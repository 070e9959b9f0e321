"""`tf.train.QueueRunner`: threads that keep a queue filled by running its enqueue operations."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

from penstock import errors
from penstock.api.export import export
from penstock.api.training.coordinator import Coordinator
from penstock.forks import renewed
from penstock.formats import protos
from penstock.graph.defaults import get_default_graph, get_default_session
from penstock.graph.ir import Operation
from penstock.graph.keys import GraphKeys
from penstock.session.base import BaseSession

_log = logging.getLogger("tensorflow")  # the name that TF1 programs know


def _scoped_name(name: str, scope: str | None) -> str:
    return f"{scope}/{name}" if scope else name


def _without_scope(name: str, scope: str | None) -> str:
    return name.removeprefix(f"{scope}/") if scope else name


@export("train.QueueRunner", "train.queue_runner.QueueRunner")
class QueueRunner:
    """Runs the enqueue operations of a queue, each in a thread of its own, until the input ends or a coordinator stops.

    When all of them have ended because of `queue_closed_exception_types` (default: OutOfRangeError) the queue is closed. `close_op` and
    `cancel_op` default to closing the queue, and closing it with its pending enqueues cancelled.
    """

    def __init__(self, queue: Any = None, enqueue_ops: Any = None, close_op: Any = None, cancel_op: Any = None,
                 queue_closed_exception_types: Any = None, queue_runner_def: Any = None, import_scope: str | None = None) -> None:  # fmt: skip
        if queue_runner_def is not None:
            if queue or enqueue_ops:
                raise ValueError("queue_runner_def and queue are mutually exclusive.")
            self._init_from_proto(queue_runner_def, import_scope)
        else:
            self._init_from_args(queue, enqueue_ops, close_op, cancel_op, queue_closed_exception_types)
        self._lock = renewed(threading.Lock())
        # How many threads of this runner each session has.
        self._runs_per_session: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._exceptions_raised: list[BaseException] = []

    def _init_from_args(self, queue: Any, enqueue_ops: Any, close_op: Any, cancel_op: Any, closed_types: Any) -> None:
        if not queue or not enqueue_ops:
            raise ValueError("Must provide queue and enqueue_ops.")
        self._queue = queue
        self._enqueue_ops = enqueue_ops
        self._close_op = queue.close() if close_op is None else close_op
        self._cancel_op = queue.close(cancel_pending_enqueues=True) if cancel_op is None else cancel_op
        if closed_types is not None:
            if not isinstance(closed_types, tuple) or not closed_types or not all(
                isinstance(t, type) and issubclass(t, errors.OpError) for t in closed_types
            ):
                raise TypeError("queue_closed_exception_types, when provided, must be a tuple of tf.error types")
            self._queue_closed_exception_types = closed_types
        else:
            self._queue_closed_exception_types = (errors.OutOfRangeError,)

    def _init_from_proto(self, queue_runner_def: Any, import_scope: str | None) -> None:
        definition = protos.coerce(queue_runner_def, protos.QueueRunnerDef, "queue_runner_def")
        graph = get_default_graph()

        def element(name: str) -> Any:
            return graph.as_graph_element(_scoped_name(name, import_scope))

        self._queue = element(definition.queue_name)
        self._enqueue_ops = [element(name) for name in definition.enqueue_op_name]
        self._close_op = element(definition.close_op_name)
        self._cancel_op = element(definition.cancel_op_name)
        types = tuple(errors.exception_type_from_error_code(code) for code in definition.queue_closed_exception_types)
        # Protos written before the field was there mean OutOfRange.
        self._queue_closed_exception_types = types or (errors.OutOfRangeError,)

    @property
    def queue(self) -> Any:
        return self._queue

    @property
    def enqueue_ops(self) -> Any:
        return self._enqueue_ops

    @property
    def close_op(self) -> Operation:
        return self._close_op

    @property
    def cancel_op(self) -> Operation:
        return self._cancel_op

    @property
    def queue_closed_exception_types(self) -> tuple[type[BaseException], ...]:
        return self._queue_closed_exception_types

    @property
    def exceptions_raised(self) -> list[BaseException]:
        """Exceptions of the threads that had no coordinator to report to."""
        return self._exceptions_raised

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._queue.name

    def _run(self, sess: Any, enqueue_op: Operation, coord: Coordinator | None = None) -> None:
        """One thread: enqueues until the input ends, something fails, or a stop is requested."""
        counted = True
        try:
            enqueue = sess.make_callable(enqueue_op)
            while not (coord is not None and coord.should_stop()):
                try:
                    enqueue()
                except self._queue_closed_exception_types:
                    counted = False
                    if self._one_less(sess) == 0:
                        self._close(sess)
                    return
        except Exception as error:
            if coord is not None:
                coord.request_stop(error)
                return
            _log.error("Exception in QueueRunner: %s", error)
            with self._lock:
                self._exceptions_raised.append(error)
            raise
        finally:
            if counted:
                self._one_less(sess)

    def _one_less(self, sess: Any) -> int:
        with self._lock:
            self._runs_per_session[sess] -= 1
            return self._runs_per_session[sess]

    def _close(self, sess: Any) -> None:
        try:
            sess.run(self._close_op)
        except Exception as error:  # closed by somebody else, or the session is
            _log.debug("Ignored exception: %s", error)

    def _close_on_stop(self, sess: Any, cancel_op: Operation, coord: Coordinator) -> None:
        """One thread: closes the queue once a stop is requested, so that nobody waits for it."""
        coord.wait_for_stop()
        try:
            sess.run(cancel_op)
        except Exception as error:
            _log.debug("Ignored exception: %s", error)

    def create_threads(self, sess: Any, coord: Coordinator | None = None, daemon: bool = False, start: bool = False) -> list[threading.Thread]:
        """The threads that run the enqueue operations in `sess`; none if they run already. `start` starts them."""
        with self._lock:
            if self._runs_per_session.get(sess, 0) > 0:
                return []
            self._runs_per_session[sess] = len(self._enqueue_ops)
            self._exceptions_raised = []
        threads = [
            threading.Thread(target=self._run, args=(sess, op, coord), name=f"QueueRunnerThread-{self.name}-{op.name}")
            for op in self._enqueue_ops
        ]
        if coord is not None:
            threads.append(
                threading.Thread(
                    target=self._close_on_stop, args=(sess, self._cancel_op, coord), name=f"QueueRunnerThread-{self.name}-close_on_stop"
                )
            )
        for thread in threads:
            if coord is not None:
                coord.register_thread(thread)
            if daemon:
                thread.daemon = True
            if start:
                thread.start()
        return threads

    def to_proto(self, export_scope: str | None = None) -> Any:
        """This runner as a QueueRunnerDef; None if it is outside of `export_scope`."""
        if export_scope is not None and not self.queue.name.startswith(export_scope):
            return None
        definition = protos.QueueRunnerDef()
        definition.queue_name = _without_scope(self.queue.name, export_scope)
        definition.enqueue_op_name.extend(_without_scope(op.name, export_scope) for op in self.enqueue_ops)
        definition.close_op_name = _without_scope(self.close_op.name, export_scope)
        definition.cancel_op_name = _without_scope(self.cancel_op.name, export_scope)
        definition.queue_closed_exception_types.extend(
            errors.error_code_from_exception_type(cls)  # type: ignore[misc] # a code is an int
            for cls in self._queue_closed_exception_types
        )
        return definition

    @staticmethod
    def from_proto(queue_runner_def: Any, import_scope: str | None = None) -> QueueRunner:
        """The runner that `queue_runner_def` describes, in the default graph."""
        return QueueRunner(queue_runner_def=queue_runner_def, import_scope=import_scope)


@export("train.add_queue_runner", "train.queue_runner.add_queue_runner")
def add_queue_runner(qr: QueueRunner, collection: Any = GraphKeys.QUEUE_RUNNERS) -> None:
    """Adds a QueueRunner to a collection of the graph, for `start_queue_runners` to find."""
    get_default_graph().add_to_collection(collection, qr)


@export("train.start_queue_runners", "train.queue_runner.start_queue_runners")
def start_queue_runners(sess: Any = None, coord: Coordinator | None = None, daemon: bool = True, start: bool = True,
                        collection: Any = GraphKeys.QUEUE_RUNNERS) -> list[threading.Thread]:  # fmt: skip
    """Starts the threads of all queue runners of the graph, and returns them. `daemon` threads do not keep a program alive."""
    if sess is None:
        sess = get_default_session()
        if not sess:
            raise ValueError(
                "Cannot start queue runners: No default session is registered. Use `with sess.as_default()` or pass an explicit session to "
                "tf.start_queue_runners(sess=sess)"
            )
    if not isinstance(sess, BaseSession):
        if getattr(sess, "_starts_queue_runners", False):
            return []  # a monitored session has started them already
        raise TypeError(f"sess must be a `tf.Session` object. Given class: {sess.__class__}")
    threads: list[threading.Thread] = []
    for runner in sess.graph.get_collection(collection):
        threads.extend(runner.create_threads(sess, coord=coord, daemon=daemon, start=start))
    return threads
