"""One package in a process of its own, told over a pipe what to do: `python -m benchmarks.worker tensorflow`.

A line of JSON comes in, a line goes out. While another worker's turn lasts, this process is stopped as a whole (`workers.py`), so that
spinning threads of one package's pools never take time from another's. The commands:

    {"do": "setup", "module": M, "name": N, "arguments": [...]}   builds and runs once -> build, first, values (a digest of the result)
    {"do": "settle", "seconds": S, "limit": L}                    warms up -> seconds, compiling (still)
    {"do": "round", "seconds": S}                                 -> seconds a call
    {"do": "once", "module": M, "name": N}                        a workload that times itself -> seconds
    {"do": "about"}                                               -> name and version of the package
    {"do": "drop"}                                                forgets the workload -> compiling (still)
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
import zlib
from typing import Any

import numpy as np

from benchmarks import timing

PEERS = {
    "jax": "benchmarks.peers.with_jax",
    "torch": "benchmarks.peers.with_torch",
    "openvino": "benchmarks.peers.with_openvino",
    "onnxruntime": "benchmarks.peers.with_onnxruntime",
}
"""Packages with an API of their own, and the module that has the workloads written for each."""


class Worker:
    """Holds one workload at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.peer = importlib.import_module(PEERS[name]) if name in PEERS else None
        self.package = None if self.peer else timing.load(name)
        self.step: timing.Step | None = None

    def setup(self, module: str, name: str, arguments: list[Any] | None = None) -> dict[str, Any]:
        self.drop()
        start = time.perf_counter()
        if self.peer is not None:
            if name not in self.peer.WORKLOADS:
                return {"absent": True}
            self.step = self.peer.WORKLOADS[name]()
        else:
            found = importlib.import_module(module)
            make = (found.CASES if hasattr(found, "CASES") else found.WORKLOADS)[name]
            with self.package.Graph().as_default():
                self.step = make(self.package, *(arguments or []))
        built = time.perf_counter()
        result = self.step()
        return {"build": built - start, "first": time.perf_counter() - built, "values": digest(result)}

    def settle(self, seconds: float, limit: float) -> dict[str, Any]:
        assert self.step is not None
        spent = timing.settle(self.package, self.step, seconds, limit)
        return {"seconds": spent, "compiling": timing.compiling(self.package)}

    def round(self, seconds: float) -> dict[str, Any]:
        assert self.step is not None
        return {"seconds": timing.round_of(self.step, seconds)}

    def once(self, module: str, name: str) -> dict[str, Any]:
        gc.collect()
        if self.peer is not None:
            return {"absent": True}
        return {"seconds": importlib.import_module(module).ONCE[name](self.package)}

    def about(self) -> dict[str, Any]:
        from importlib import metadata

        distribution = {"tensorflow": "tensorflow-cpu"}.get(self.name, self.name)
        try:
            return {"name": self.name, "version": metadata.version(distribution)}
        except metadata.PackageNotFoundError:
            return {"name": self.name, "version": "from source"}

    def drop(self) -> dict[str, Any]:
        self.step = None
        gc.collect()
        return {"compiling": timing.compiling(self.package)}


def digest(result: Any) -> list[float]:
    """A few numbers that two packages that computed the same agree on: mean and largest size of each fetched array, the check sum of strings."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [number for part in result for number in digest(part)]
    if isinstance(result, bytes) or (isinstance(result, np.ndarray) and result.dtype == object):
        values = np.ravel(np.asarray(result, object)).tolist()
        return [float(len(values)), float(zlib.crc32(b"\0".join(values)))]
    if not isinstance(result, (np.ndarray, np.generic, float)):
        return []
    sizes = np.abs(np.asarray(result, np.complex128 if np.iscomplexobj(result) else np.float64))
    return [float(f(sizes)) for f in (np.mean, np.max)] if sizes.size else []


def die_with_parent() -> None:
    """A stopped process would not notice that its coordinator is gone; Linux can end it then."""
    if sys.platform == "linux":
        kill_me_then = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(kill_me_then, signal.SIGKILL)


def main(kind: type[Worker] = Worker) -> None:
    die_with_parent()
    # What packages print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = kind(sys.argv[1])
    answers.write('{"ready": true}\n')
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(worker, command.pop("do"))(**command)
        except Exception as error:
            worker.drop()
            answer = {"error": f"{type(error).__name__}: {error}".strip().splitlines()[0][:200]}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
