"""Peak memory for the page: runs `benchmarks/memory.py`'s programs in fresh processes and keeps what fails apart from what does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.table import OURS, THEIRS


@dataclass
class Footprint:
    """Megabytes that the peak of training lies above what stood before the graph, and the size of the variables in it."""

    name: str
    megabytes: dict[str, float] = field(default_factory=dict)
    variables: float = 0.0
    notes: list[str] = field(default_factory=list)


def measure(names: Iterable[str] | None = None, packages: tuple[str, ...] = (OURS, THEIRS), timeout: float = 90.0) -> list[Footprint]:
    from benchmarks import memory

    return [_one(name, packages, timeout) for name in (memory.PROGRAMS if names is None else names)]


def _one(name: str, packages: tuple[str, ...], timeout: float) -> Footprint:
    result = Footprint(name)
    for package in packages:
        command = [sys.executable, "-m", "benchmarks.memory", "--measure", package, name]
        try:
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout)
            variables, above = done.stdout.strip().splitlines()[-1].split()
            result.variables, result.megabytes[package] = float(variables), float(above)
        except (subprocess.SubprocessError, ValueError, IndexError, OSError) as error:
            result.notes.append(f"{package}: {type(error).__name__}")
    return result
