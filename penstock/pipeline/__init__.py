"""From a client's graph and a signature to one graph per device.

    prune -> optimise -> partition          (the client's graph was placed as a whole before; see `place`)

`compile_step` is the table of contents of this folder. Every stage is a pure function from graph to graph; `Trail` remembers what
each one made, for `Session.explain` and for dumps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.graph.ir import Graph
from penstock.pipeline.optimise import OptimiserOptions, optimise
from penstock.pipeline.partition import partition
from penstock.pipeline.place import Placer
from penstock.pipeline.prune import prune
from penstock.pipeline.signature import Signature


class StageRecord(NamedTuple):
    """What one stage made: its name, the graph (or {device: graph}), how long it took, and notes."""

    stage: str
    result: Any
    seconds: float
    notes: tuple[str, ...] = ()


class Trail:
    """Remembers every stage's result. With `watch`, also calls it with each record as it comes."""

    def __init__(self, watch: Callable[[StageRecord], None] | None = None) -> None:
        self.records: list[StageRecord] = []
        self.watch = watch
        self._last = time.perf_counter()

    def add(self, stage: str, result: Any, notes: tuple[str, ...] = ()) -> None:
        now = time.perf_counter()
        record = StageRecord(stage, result, now - self._last, notes)
        self.records.append(record)
        if self.watch is not None:
            self.watch(record)
        self._last = time.perf_counter()


class CompileOptions(NamedTuple):
    """How to compile: which device the client is on, and what the passes may do."""

    client_device: str
    incarnations: dict[str, int]
    optimiser: OptimiserOptions = OptimiserOptions()
    place_pruned_graph: bool = False
    compress_transfers: bool = False


def compile_step(graph: Graph, signature: Signature, placer: Placer, options: CompileOptions, trail: Trail | None = None) -> dict[str, Graph]:
    """The partitions that compute `signature`: {device: graph}."""
    trail = trail or Trail()
    trail.add("graph", graph)

    if not options.place_pruned_graph:
        placement = placer.place(graph)
        trail.add("place", graph)
        pruned = prune(graph, signature, lambda op: placement[op.name], options.client_device)
        trail.add("prune", pruned)
    else:
        pruned = prune(graph, signature, lambda op: op.device, options.client_device)
        trail.add("prune", pruned)
        placement = placer.place(pruned)
        for op in pruned:
            op.device = placement[op.name]
        trail.add("place", pruned)

    optimised = optimise(pruned, options.optimiser, trail)
    trail.add("optimise", optimised)

    partitions = partition(optimised, options.incarnations, options.compress_transfers)
    trail.add("partition", partitions)
    return partitions
