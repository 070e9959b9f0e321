"""The coordinator's side of the workers: starts them, gives each its turn while the others are stopped, ends those that hang."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

READY = 120.0
"""Seconds that importing a package may take."""
SETTINGS = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": ""}
"""Of every process that is measured. Packages that pip installs have their bytecode; this one runs from its source and has to be allowed to keep it."""


class Failed(Exception):
    """A worker said no, died, or took too long; the message is for the table's notes."""


class Absent(Failed):
    """The package is not installed, or has no such workload."""


class Remote:
    """A worker process. It runs only during `ask`: outside of it the whole process is stopped."""

    def __init__(self, name: str, environment: dict[str, str] | None = None, module: str = "benchmarks.worker") -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env={**os.environ, **SETTINGS, **(environment or {})}, preexec_fn=os.setpgrp,
        )  # fmt: skip
        self._pending = b""
        self._read(READY)
        self._stop()

    def ask(self, do: str, timeout: float, **arguments: Any) -> dict[str, Any]:
        """One command and its answer."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise Failed(self._last_words("died")) from None
        answer = self._read(timeout)
        self._stop()
        if "error" in answer:
            raise Failed(answer["error"])
        if answer.get("absent"):
            raise Absent(f"nothing written for {self.name}")
        return answer

    def cpu(self) -> float:
        """Seconds of CPU that the process has used."""
        with open(f"/proc/{self._process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """Ends the worker, and whatever it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass

    def _read(self, timeout: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise Failed(f"no answer within {timeout:.0f} s")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise Failed(self._last_words("died"))
            self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        return json.loads(line)

    def _stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def _last_words(self, what: str) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{what}: {lines[-1][:160]}" if lines else f"{what} with status {self._process.returncode}"


class Pool:
    """Workers by name, started when first needed and started anew after a failure."""

    def __init__(self, environments: dict[str, dict[str, str]] | None = None, module: str = "benchmarks.worker") -> None:
        self._environments = environments or {}
        self._module = module
        self._workers: dict[str, Remote] = {}
        self._used: set[str] = set()
        self.missing: dict[str, str] = {}
        """Packages that could not be started, and why."""

    def ask(self, package: str, do: str, timeout: float, **arguments: Any) -> dict[str, Any]:
        """Asks a package's worker. A variant of a package is named `package:variant`."""
        if package in self.missing:
            raise Absent(self.missing[package])
        worker = self._workers.get(package)
        if worker is None:
            try:
                worker = self._workers[package] = Remote(package.split(":")[0], self._environments.get(package), self._module)
            except Failed as error:
                self.missing[package] = str(error)
                raise Absent(str(error)) from None
        if do == "setup":
            self._used.add(package)
        try:
            return worker.ask(do, timeout, **arguments)
        except Absent:
            raise
        except Failed as error:
            # It may hold a half-built workload or still be busy: the next one gets a fresh process.
            self.restart(package)
            raise Failed(f"{package}: {error}") from None

    def clock(self) -> tuple[float, float] | None:
        """Seconds of CPU that other processes have used, and that there were; None where the system does not say."""
        try:
            with open("/proc/stat") as file:
                ticks = [int(v) for v in file.readline().split()[1:9]]
            hertz = os.sysconf("SC_CLK_TCK")
            ours = sum(worker.cpu() for worker in self._workers.values()) + time.process_time()
        except (OSError, ValueError, IndexError):
            return None
        return (sum(ticks) - ticks[3] - ticks[4]) / hertz - ours, sum(ticks) / hertz

    def drop(self, package: str, timeout: float) -> None:
        """Makes a worker forget its workload. One that still compiles for it would disturb the next: it is replaced."""
        if self.ask(package, "drop", timeout).get("compiling"):
            self.restart(package)

    def is_used(self, package: str) -> bool:
        """Whether its process has built a program before."""
        return package in self._used

    def restart(self, package: str) -> None:
        self._used.discard(package)
        worker = self._workers.pop(package, None)
        if worker is not None:
            worker.close()

    def close(self) -> None:
        for name in list(self._workers):
            self.restart(name)
