"""From a client's graph and a signature to one graph per device.

    place -> prune -> optimise -> partition

The client's graph is placed as a whole, once, and every signature is pruned from it (`place_pruned_graph` turns the two around).

`compile_step` is the table of contents of this folder. Every stage is a pure function from graph to graph; `Trail` remembers what
each one made, for `Session.explain` and for dumps.

A signature that is fed the same shapes again and again is compiled once more for these (`refine`, between prune and optimise).

One stage comes later, when a partition is warm: `regions.group`, by which the executor gets fewer, larger nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.graph.ir import Dims, Graph
from penstock.graph.rewrite import Copier
from penstock.graph.spec import check_partitioned, check_placed, check_pruned, check_well_formed, checking
from penstock.pipeline.custom import POST_PARTITIONING, POST_PLACEMENT, POST_REWRITE_FOR_EXEC, PRE_PLACEMENT, run_passes
from penstock.pipeline.memory import ensure_memory_types
from penstock.pipeline.optimise import OptimiserOptions, optimise
from penstock.pipeline.optimise.edit import Edit, roots_of
from penstock.pipeline.partition import partition
from penstock.pipeline.place import Placer, place_body
from penstock.pipeline.prune import prune
from penstock.pipeline.shapes import refine
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
    shapes: tuple[Dims, ...] | None = None
    """Of the fed values, if the partitions are for these shapes only."""


def compile_step(graph: Graph, signature: Signature, placer: Placer, options: CompileOptions, trail: Trail | None = None) -> dict[str, Graph]:
    """The partitions that compute `signature`: {device: graph}."""
    trail = trail or Trail()
    trail.add("graph", graph)

    graph = run_passes(PRE_PLACEMENT, graph, trail)
    if not options.place_pruned_graph:
        placement = placer.place(graph)
        trail.add("place", graph)
        placed = run_passes(POST_PLACEMENT, graph, trail)
        pruned = prune(placed, signature, lambda op: placement.get(op.name) or op.device, options.client_device, placer.meets_client)
        trail.add("prune", pruned)
    else:
        pruned = prune(graph, signature, lambda op: op.device, options.client_device)
        trail.add("prune", pruned)
        placement = placer.place(pruned)
        for op in pruned:
            op.device = placement[op.name]
        trail.add("place", pruned)
        pruned = run_passes(POST_PLACEMENT, pruned, trail)
    pruned = run_passes(POST_REWRITE_FOR_EXEC, pruned, trail)
    checking(check_pruned, pruned, len(signature.feeds), len(signature.fetches), signature.targets, signature.through_rendezvous)
    checking(check_placed, pruned, [d.name for d in placer.devices])

    if options.shapes is not None:
        pruned = refine(pruned, options.shapes)
        trail.add("refine", pruned)

    optimised = optimise(pruned, options.optimiser, trail, placer)
    checking(check_well_formed, optimised, "optimise")

    partitions = partition(optimised, options.incarnations, options.compress_transfers)
    trail.add("partition", partitions)
    partitions = ensure_memory_types(partitions, placer.kinds, options.incarnations)
    partitions = run_passes(POST_PARTITIONING, partitions, trail)
    checking(check_partitioned, partitions)
    return partitions


def compile_function(
    body: Graph, placer: Placer, options: CompileOptions, trail: Trail | None = None, device: str = "", args: dict[int, str] | None = None
) -> dict[str, Graph]:
    """The partitions of a library function's body: what its results need, and its effects. `device` is where it runs by default,
    `args` says on which devices the resources are that its arguments bring."""
    trail = trail or Trail()
    placement = place_body(body, placer, device or placer.default, args or {})
    copier = Copier(body)
    for op in body:
        copier.clone(op, placement[op.name])
    placed = copier.wire()
    control_ret = frozenset(op.name for op in getattr(body, "_control_ret", ()))
    effects = frozenset(op.name for op in placed if op.op_def.stateful)
    targets = control_ret | effects
    needed = Edit(placed).apply(roots_of(placed, targets))
    optimised = optimise(needed, options.optimiser._replace(targets=targets), trail, placer)
    return ensure_memory_types(partition(optimised, options.incarnations, options.compress_transfers), placer.kinds, options.incarnations)
