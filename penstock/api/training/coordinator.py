"""`tf.train.Coordinator`: lets several threads stop together and report the first error; `tf.train.LooperThread`."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock import errors
from penstock.api.export import export
from penstock.forks import renewed

_log = logging.getLogger("tensorflow")  # the name that TF1 programs know


@export("train.Coordinator")
class Coordinator:
    """Stops a group of threads together.

    Any thread may call `request_stop`, with the exception that made it give up; the others ask `should_stop` and end; `join` waits for
    all of them and raises that exception. Errors of `clean_stop_exception_types` (default: OutOfRangeError) stop without being raised.

        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        try:
            while not coord.should_stop():
                sess.run(train_op)
        except Exception as e:
            coord.request_stop(e)
        finally:
            coord.request_stop()
            coord.join(threads)
    """

    def __init__(self, clean_stop_exception_types: tuple[type[BaseException], ...] | None = None) -> None:
        self._clean_stop_exception_types = (errors.OutOfRangeError,) if clean_stop_exception_types is None else tuple(clean_stop_exception_types)
        self._lock = renewed(threading.Lock())
        self._stop_event = threading.Event()
        self._error: BaseException | None = None
        self._joined = False
        self._registered_threads: set[threading.Thread] = set()

    def _filter_exception(self, ex: Any) -> BaseException | None:
        """The exception to report: None for the clean ones. Takes an exception or what sys.exc_info() gives."""
        if isinstance(ex, tuple):
            if len(ex) != 3 or not isinstance(ex[1], BaseException):
                return ValueError(f"ex must be a tuple or sys.exc_info must return the current exception: {ex}")
            error: Any = ex[1].with_traceback(ex[2]) if ex[2] is not None else ex[1]
        else:
            error = ex
        return None if isinstance(error, self._clean_stop_exception_types) else error

    def request_stop(self, ex: Any = None) -> None:
        """Asks all threads to stop. `ex`, an exception or `sys.exc_info()`, is raised by `join`; only the first one counts."""
        with self._lock:
            error = self._filter_exception(ex)
            if self._joined:
                # Nobody will ask any more, so that it must be raised here.
                if error is not None:
                    raise error
                return
            if not self._stop_event.is_set():
                if error is not None and self._error is None:
                    _log.info("Error reported to Coordinator: %s, %s", type(error), error)
                    self._error = error
                self._stop_event.set()

    def clear_stop(self) -> None:
        """Makes the coordinator usable again: `should_stop` is False from now on."""
        with self._lock:
            self._joined = False
            self._error = None
            self._stop_event.clear()

    def should_stop(self) -> bool:
        """Whether a stop was requested."""
        return self._stop_event.is_set()

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """`with coord.stop_on_exception():` turns an exception into a request to stop, and swallows it."""
        try:
            yield
        except BaseException:
            self.request_stop(ex=sys.exc_info())

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Waits until a stop is requested; False if `timeout` seconds passed without."""
        return self._stop_event.wait(timeout)

    def register_thread(self, thread: threading.Thread) -> None:
        """Adds a thread to those that `join` waits for."""
        with self._lock:
            self._registered_threads.add(thread)

    def join(self, threads: Iterable[threading.Thread] | None = None, stop_grace_period_secs: float = 120, ignore_live_threads: bool = False) -> None:
        """Waits until all threads have ended, given and registered ones; raises the exception that was reported.

        After a stop is requested they have `stop_grace_period_secs`; RuntimeError names those that still run then, unless
        `ignore_live_threads`.
        """
        with self._lock:
            waited = list(self._registered_threads.union(threads or ()))
        while not self._stop_event.is_set() and _join_one(waited, 0.05):
            pass
        deadline = time.monotonic() + stop_grace_period_secs
        while time.monotonic() < deadline and _join_one(waited, min(0.5, stop_grace_period_secs)):
            pass
        alive = [t.name for t in waited if t.is_alive()]
        with self._lock:
            self._joined = True
            self._registered_threads = set()
            if self._error is not None:
                raise self._error
            if alive:
                text = "Coordinator stopped with threads still running: " + " ".join(alive)
                if not ignore_live_threads:
                    raise RuntimeError(text)
                _log.info(text)

    @property
    def joined(self) -> bool:
        return self._joined

    def raise_requested_exception(self) -> None:
        """Raises the exception that was reported to `request_stop`, if there was one."""
        with self._lock:
            if self._error is not None:
                raise self._error


def _join_one(threads: list[threading.Thread], timeout: float) -> bool:
    """Waits up to `timeout` for one of the threads that still run; False if none does."""
    for thread in threads:
        if thread.is_alive():
            thread.join(timeout)
            return True
    return False


@export("train.LooperThread")
class LooperThread(threading.Thread):
    """A daemon thread that calls a function again and again until its coordinator stops.

    Every `timer_interval_secs` seconds, or without a pause if that is None. Subclasses may define `run_loop`, `start_loop`, `stop_loop`.
    """

    def __init__(self, coord: Coordinator, timer_interval_secs: float | None, target: Callable[..., Any] | None = None, args: Any = None,
                 kwargs: Any = None) -> None:  # fmt: skip
        if not isinstance(coord, Coordinator):
            raise ValueError(f"'coord' argument must be a Coordinator: {coord}")
        super().__init__()
        self.daemon = True
        self._coord = coord
        self._timer_interval_secs = timer_interval_secs
        if target:
            self._callback: Callable[..., Any] | None = target
            self._callback_args = args or ()
            self._callback_kwargs = kwargs or {}
        elif args or kwargs:
            raise ValueError("'args' and 'kwargs' argument require that you also pass 'target'")
        else:
            self._callback = None
        coord.register_thread(self)

    @staticmethod
    def loop(coord: Coordinator, timer_interval_secs: float | None, target: Callable[..., Any], args: Any = None, kwargs: Any = None) -> LooperThread:
        """Starts a LooperThread and returns it."""
        looper = LooperThread(coord, timer_interval_secs, target=target, args=args, kwargs=kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        with self._coord.stop_on_exception():
            self.start_loop()
            if self._timer_interval_secs is None:
                while not self._coord.should_stop():
                    self.run_loop()
            else:
                next_time = time.monotonic()
                while not self._coord.wait_for_stop(max(0.0, next_time - time.monotonic())):
                    next_time += self._timer_interval_secs
                    self.run_loop()
            self.stop_loop()

    def start_loop(self) -> None:
        """Called when the thread starts."""

    def stop_loop(self) -> None:
        """Called when the thread stops."""

    def run_loop(self) -> None:
        """Called at every turn."""
        if self._callback:
            self._callback(*self._callback_args, **self._callback_kwargs)
