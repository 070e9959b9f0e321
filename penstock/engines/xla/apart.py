"""Compiling for CPUs in a process of its own (`compiler`), at low priority, while steps go on here.

XLA compiles with as many threads as there are cores, and steps would have to share these with it evenly: they ran at half their speed or less, for as long as half a minute. So what is compiled in the
background (`in_process_of_its_own`) is sent to a process that gets what steps leave of the cores. What it sends back is loaded here as JAX's cache on disk loads it, which takes a few milliseconds. It is the same code:
module, options and number of threads are the same.

JAX has no public place to say who compiles, so the function that asks XLA is wrapped, behind JAX's cache. What comes from other threads (the user's own JAX among them) passes through
as it is, and so does everything where that function is not as expected, where no process can be started, and where it fails.

There is one process, for one module at a time. It is killed at exit.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any

from penstock.engines.turns import away
from penstock.engines.xla import compiler

log = logging.getLogger("penstock.xla")

SWITCH = "PENSTOCK_XLA_PROCESS"
MOST_DEATHS = 3
"""How many new processes may die of one module, killed by somebody who wants memory or by the module itself, before this one has to compile everything."""
_here = threading.local()
_is_closing = False


class Unable(Exception):
    """The process cannot be started, or has gone."""


class Refused(Exception):
    """The process could not compile it: perhaps this one, which knows more libraries, can."""


class Process:
    """The process, once there is one."""

    def __init__(self) -> None:
        self.popen: subprocess.Popen[bytes] | None = None
        self.is_unable = False
        """Whether there is no hope for a process."""

    def compile(self, module: bytes, options: bytes, threads: int) -> bytes:
        """The executable. Raises Unable, Refused."""
        deaths = 0
        while True:
            deaths += self.popen is None  # who is there already may only have had nothing to do for a while
            if self.popen is None:
                self.popen = self._start(threads)
            try:
                return self._ask(self.popen, module, options)
            except (OSError, EOFError) as error:
                self.stop()
                if deaths == MOST_DEATHS or _is_closing:
                    raise Unable(f"its process ended: {error}") from error

    def _start(self, threads: int) -> subprocess.Popen[bytes]:
        try:
            from jaxlib import __file__ as place

            command = [sys.executable, os.path.abspath(compiler.__file__), os.path.dirname(os.path.dirname(os.path.abspath(place))), str(os.getpid())]
            env = {**os.environ, "PJRT_NPROC": str(threads), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            env.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
            with _ctrl_c_held():  # the terminal sends it to both; what is held here is held there for ever
                # Without buffers, whose locks a forked child might find shut.
                popen = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        except (OSError, TypeError, ValueError) as error:  # no interpreter, no memory, ...
            raise Unable(f"no process can be started: {error}") from error
        if _is_closing:
            popen.kill()
        return popen

    def _ask(self, popen: subprocess.Popen[bytes], module: bytes, options: bytes) -> bytes:
        assert popen.stdin is not None and popen.stdout is not None
        for part in (compiler.REQUEST.pack(len(options), len(module)), options, module):
            _write(popen.stdin, part)
        result, size = compiler.REPLY.unpack(_read(popen.stdout, compiler.REPLY.size))
        data = _read(popen.stdout, size)
        if result != compiler.DONE:
            raise Refused(data.decode(errors="replace"))
        return data

    def stop(self) -> None:
        """Ends the process."""
        popen, self.popen = self.popen, None
        if popen is not None:
            popen.kill()
            self._close_pipes(popen)
            popen.wait()

    def forget(self) -> None:
        """In a forked child: it is the parent's."""
        popen, self.popen = self.popen, None
        if popen is not None:
            self._close_pipes(popen)
            popen.returncode = 0  # not waited for

    @staticmethod
    def _close_pipes(popen: subprocess.Popen[bytes]) -> None:
        for pipe in (popen.stdin, popen.stdout):
            assert pipe is not None
            pipe.close()


def _write(pipe: IO[bytes], data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[pipe.write(rest) :]


def _read(pipe: IO[bytes], size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = pipe.read(size)
        if not part:
            raise EOFError("no reply")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


@contextlib.contextmanager
def _ctrl_c_held() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_process = Process()


@contextlib.contextmanager
def in_process_of_its_own() -> Iterator[None]:
    """What this thread compiles within the block, it need not compile itself."""
    _here.is_on = True
    try:
        yield
    finally:
        _here.is_on, _here.last = False, None


def install(jax: Any, threads: Callable[[], int]) -> None:
    """Wraps JAX's way to XLA's compiler. `threads` tells how many XLA has, since programs are compiled for their number."""
    if os.name != "posix" or os.environ.get(SWITCH, "1").strip() == "0":
        return
    try:
        module = jax._src.compiler
        original = module.backend_compile_and_load
        _keep_as_it_came(jax._src.compilation_cache)
    except AttributeError:  # another version of JAX
        log.info("Programs are compiled in this process: JAX %s has no place to put another one", jax.__version__)
        return

    @functools.wraps(original)
    def compile_and_load(client: Any, program: Any, devices: Any, options: Any, *more: Any, **named: Any) -> Any:
        if getattr(_here, "is_on", False) and not _process.is_unable and not any(more) and not named and client.platform == "cpu":
            found = _compiled(program, options, threads())
            if found is not None:
                executable = client.deserialize_executable(found, devices, options)
                _here.last = (executable, found)
                return executable
        with away():
            return original(client, program, devices, options, *more, **named)

    module.backend_compile_and_load = compile_and_load


class _AsItCame:
    """Stands for an executable where JAX's cache on disk asks for its bytes."""

    def __init__(self, data: bytes) -> None:
        self.serialize = lambda: data


def _keep_as_it_came(cache: Any) -> None:
    """JAX's `cache` gets the bytes that came from the process: an executable that was loaded has lost functions when it is written again."""
    original = cache.put_executable_and_time

    @functools.wraps(original)
    def put(key: Any, name: Any, executable: Any, *more: Any) -> None:
        last, _here.last = getattr(_here, "last", None), None
        original(key, name, _AsItCame(last[1]) if last is not None and last[0] is executable else executable, *more)

    cache.put_executable_and_time = put


def _compiled(program: Any, options: Any, threads: int) -> bytes | None:
    """The executable, None if this process has to compile it."""
    text = io.BytesIO()
    program.operation.write_bytecode(file=text)
    try:
        with away():
            return _process.compile(text.getvalue(), options.SerializeAsString(), threads)
    except Refused as reason:
        log.info("Compiled in this process, since the other one could not: %s", reason)
    except Unable as reason:
        if _is_closing:
            raise SystemExit from None  # nobody needs it any more
        _process.is_unable = True
        log.info("Programs are compiled in this process from now on: %s", reason)
    return None


def interrupt() -> None:
    """At exit: who waits for the process need not wait any longer."""
    global _is_closing
    _is_closing = True
    popen = _process.popen
    if popen is not None:
        popen.kill()


def close() -> None:
    """When nobody waits for it any more."""
    _process.stop()


def _after_fork() -> None:
    global _process
    _process.forget()
    _process = Process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
