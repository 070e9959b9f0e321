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

log = logging.getLogger("penstock.xla")

OFF, AUTO, EAGER = "0", "1", "eager"

_forked = False
_started = False


def mode() -> str:
    """What PENSTOCK_XLA says: 0 never, 1 for hot regions if it is faster (the default), eager at once and always."""
    text = os.environ.get("PENSTOCK_XLA", AUTO).strip().lower()
    return OFF if text in ("0", "off", "false", "no") else EAGER if text == "eager" else AUTO


def is_deterministic() -> bool:
    """Whether results must repeat bit for bit: TF's own switch."""
    return os.environ.get("TF_DETERMINISTIC_OPS", "").strip().lower() in ("1", "true")


@functools.lru_cache(maxsize=1)
def _is_installed() -> bool:
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("jax", "jaxlib"))
    except (ImportError, ValueError):
        return False


def is_available() -> bool:
    """Whether programs can be compiled here: JAX is installed, and this process was not forked from one that used it."""
    return not _forked and _is_installed()


def start() -> Any:
    """The jax module, ready: rules registered, cache on disk set up."""
    global _started
    import jax

    if not _started:
        _started = True
        import penstock.engines.xla.rules  # noqa: F401  (registers them)

        _set_up_cache(jax)
    return jax


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
    except (OSError, AttributeError, ValueError) as error:
        log.info("Compiled programs are not kept on disk: %s", error)


def x64() -> contextlib.AbstractContextManager[Any]:
    """64-bit types, for this thread and block: TF has them, and JAX cuts them down unless asked."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax import experimental  # before JAX 0.8

    return experimental.enable_x64()  # type: ignore[attr-defined]


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
            self.work.put(function)
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name="penstock-xla", daemon=True)
                self.thread.start()

    def _run(self) -> None:
        while True:
            function = self.work.get()
            if self.is_closing:
                return
            try:
                function()
            except Exception:
                log.exception("A region could not be compiled by XLA; it goes on as it is")
            finally:
                del function
                with self.lock:
                    self.pending -= 1


    def close(self) -> None:
        """Lets what is being compiled end, and nothing begin: XLA's code does not survive that the interpreter goes away under it."""
        with self.lock:
            self.is_closing = True
            thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            self.work.put(lambda: None)
            thread.join(60.0)


_compiler = _Compiler()


def in_background(function: Callable[[], Any]) -> None:
    """Runs `function` on the compiler's thread."""
    _compiler.submit(function)


def is_idle() -> bool:
    """Whether nothing is being compiled."""
    return _compiler.pending == 0


def _after_fork() -> None:
    global _forked, _compiler
    _compiler = _Compiler()
    if _started:
        _forked = True


atexit.register(lambda: _compiler.close())

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
