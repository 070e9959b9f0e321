"""The same computations written for other packages, each as its users would write them: `WORKLOADS[name]() -> step()`.

Names are those of `benchmarks/workloads.py`; a workload that a package has no natural form for is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Setups = dict[str, Callable[[], Callable[[], Any]]]


def register(table: Setups, name: str) -> Callable[[Callable], Callable]:
    """Decorator: puts a setup function into a package's table."""

    def add(setup: Callable[[], Callable[[], Any]]) -> Callable:
        table[name] = setup
        return setup

    return add
