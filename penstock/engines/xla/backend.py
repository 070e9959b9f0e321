"""JAX, when it is there: loading it, its devices, its settings, and the thread that compiles.

JAX is imported when a GPU is looked for or a region is hot, never before. Settings that XLA reads once (memory fraction, determinism)
must be known by then; a later wish that comes too late is logged.

After a fork the child leaves XLA alone: its threads did not come along.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.engines.onednn import crowd
from penstock.engines.turns import beside, expect, importing
from penstock.engines.xla import apart
from penstock.ops.interrupts import Uninterrupted
from penstock.ops.kernels.threads import is_deterministic as is_deterministic

log = logging.getLogger("penstock.xla")

OFF, AUTO, EAGER = "0", "1", "eager"

_forked = False
_started = False
_threads = 0  # how many XLA may use on CPUs; 0: as many as it likes
_pool = 0  # how many it has, once it has any
_NUMBERS = ("PJRT_NPROC", "NPROC")


def mode() -> str:
    """What PENSTOCK_XLA says: 0 never, 1 for hot regions if it is faster (the default), eager at once and always."""
    text = os.environ.get("PENSTOCK_XLA", AUTO).strip().lower()
    return OFF if text in ("0", "off", "false", "no") else EAGER if text == "eager" else AUTO


@functools.lru_cache(maxsize=1)
def _is_installed() -> bool:
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("jax", "jaxlib"))
    except (ImportError, ValueError):
        return False


def is_available() -> bool:
    """Whether programs can be compiled here: JAX is installed, and this process was not forked from one that used it."""
    return not _forked and _is_installed()


def limit_threads(number: int) -> None:
    """XLA gets so many threads on CPUs (`intra_op_parallelism_threads`) if it has none yet. If it has more by then, it gets nothing more to do."""
    global _threads
    _threads = number


def fits() -> bool:
    """Whether XLA keeps to the number of threads on CPUs."""
    return not _threads or not _pool or _pool <= _threads


def start() -> Any:
    """The jax module, ready: rules registered, cache on disk set up, threads counted."""
    global _started, _pool
    with Uninterrupted(), importing():
        import jax

    if not _started:
        with Uninterrupted(), importing():  # nothing of it can begin twice
            _started = True
            import penstock.engines.xla.rules  # noqa: F401  (registers them)

            _set_up_cache(jax)
            _run_at_once(jax)
            _pool = _start_threads(jax)
            apart.install(jax, lambda: _pool)
    return jax


def _start_threads(jax: Any) -> int:
    """Makes XLA's threads for CPUs, and gives their number. XLA reads it out of the environment when JAX finds its devices; the program may
    have asked for these before, or have set the number."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        is_late = bool(jax._src.xla_bridge.backends_are_initialized())
    except AttributeError:
        is_late = True
    if not _threads or is_late or any(name in os.environ for name in _NUMBERS):
        return next((int(text) for name in _NUMBERS if (text := os.environ.get(name, "")).isdigit()), cpus)
    os.environ[_NUMBERS[0]] = str(_threads)
    try:
        jax.devices()
    finally:
        os.environ.pop(_NUMBERS[0], None)
    return _threads


def _run_at_once(jax: Any) -> None:
    """Programs of CPUs run on the thread that calls them, which waits for them anyway: handing a small one to another thread and back takes longer
    than running it. JAX's own switch says otherwise if the user has set it; once JAX has begun to compute it stays as it is."""
    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
        with contextlib.suppress(AttributeError, ValueError):  # another version of JAX
            jax.config.update("jax_cpu_enable_async_dispatch", False)


def _set_up_cache(jax: Any) -> None:
    """Compiled programs go to disk where JAX allows it, unless the user has said where, or PENSTOCK_XLA_CACHE=0."""
    wish = os.environ.get("PENSTOCK_XLA_CACHE", "")
    if wish == "0" or jax.config.jax_compilation_cache_dir:
        return
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = wish or os.path.join(home, "penstock", "xla")
    try:
        os.makedirs(folder, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", folder)
        _replace_broken_entries(jax._src.compilation_cache, folder)
    except (OSError, AttributeError, ValueError) as error:
        log.info("Compiled programs are not kept on disk: %s", error)


def _replace_broken_entries(cache: Any, folder: str) -> None:
    """JAX leaves a program on disk that it cannot read where it is, and warns of it at every start. It is removed here, so that it is written anew."""
    original = cache.get_executable_and_time

    @functools.wraps(original)
    def get(key: str, *more: Any) -> Any:
        try:
            return original(key, *more)
        except Exception as error:
            log.warning("A program is compiled anew, since the one in %s cannot be read (%s: %s)", folder, type(error).__name__, error)
            with contextlib.suppress(OSError):
                os.remove(os.path.join(folder, f"{key}-cache"))
            return None, None

    cache.get_executable_and_time = get


def memory_limit(device: Any) -> int:
    """Bytes that programs on a device may take; 0 if it does not say."""
    stats = device.memory_stats() if device is not None else None
    return int((stats or {}).get("bytes_limit", 0))


def leaves(tree: Any) -> list[Any]:
    """What is in lists and tuples of lists."""
    import jax

    return jax.tree.leaves(tree)


def x64() -> contextlib.AbstractContextManager[Any]:
    """64-bit types, for this thread and block: TF has them, and JAX cuts them down unless asked."""
    return _enable_x64()(True)


@functools.lru_cache(maxsize=1)
def _enable_x64() -> Callable[[bool], contextlib.AbstractContextManager[Any]]:
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64
    from jax import experimental  # before JAX 0.8

    return experimental.enable_x64  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=1)
def array_class() -> type:
    """The class of JAX's arrays. It has no public name."""
    import jax

    return type(jax.numpy.zeros(()))


def to_host(value: Any) -> Any:
    """A value as NumPy has it; what is on a device is copied."""
    return np.asarray(value) if is_device_array(value) else value


def is_device_array(value: Any) -> bool:
    cls = value.__class__
    return cls is not np.ndarray and cls.__name__ == "ArrayImpl"


# -- the compiler's thread ------------------------------------------------------------------------------------------------


class _Compiler:
    """One thread that compiles what it is given, in order. A daemon: it must not keep the process alive."""

    def __init__(self) -> None:
        self.work: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None
        self.pending = 0
        self.is_closing = False

    def submit(self, function: Callable[[], Any]) -> None:
        with self.lock:
            if self.is_closing:
                return
            self.pending += 1
            expect(1)
            self.work.put(function)
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="penstock-xla", daemon=True)
                self.thread.start()

    def _run(self) -> None:
        while True:
            function = self.work.get()
            if self.is_closing:
                return
            expect(-1)
            try:
                with beside(), apart.in_process_of_its_own():
                    function()
            except Exception:
                log.exception("A region could not be compiled by XLA; it goes on as it is")
            finally:
                del function
                with self.lock:
                    self.pending -= 1
                crowd.reset()  # what was in the way of other threads is done; a contest with them comes next

    def close(self) -> None:
        """Lets what is being compiled end, and nothing begin: XLA's code does not survive that the interpreter goes away under it."""
        with self.lock:
            self.is_closing = True
            thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            self.work.put(lambda: None)
            with Uninterrupted():
                apart.interrupt()
                thread.join(60.0)
                apart.close()


_compiler = _Compiler()


def in_background(function: Callable[[], Any]) -> None:
    """Runs `function` on the compiler's thread."""
    _compiler.submit(function)


def is_idle() -> bool:
    """Whether nothing is being compiled."""
    return _compiler.pending == 0


def _after_fork() -> None:
    global _forked, _compiler
    # A thread that had begun may have been importing JAX: the locks of its modules stay shut here for ever.
    if _started or _compiler.thread is not None:
        _forked = True
    _compiler = _Compiler()
    _compiler.is_closing = _forked


atexit.register(lambda: _compiler.close())

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
