"""Optimise: an ordered list of named passes, each a pure function from graph to graph.

    PASSES is the whole story: passes run in its order. A pass names what it `requires` of earlier ones and what it `provides`, which is
    checked when this module is loaded. A pass gets a `Context` (roots, time budget, notes) and returns its input if it has nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.graph.ir import Graph, Operation
from penstock.pipeline.optimise.arithmetic import simplify_arithmetic
from penstock.pipeline.optimise.buckets import hash_numbers
from penstock.pipeline.optimise.cells import join_cells
from penstock.pipeline.optimise.columns import keep_columns
from penstock.pipeline.optimise.dependencies import clean_dependencies
from penstock.pipeline.optimise.duplicates import sum_duplicates, sum_in_updates
from penstock.pipeline.optimise.edit import Edit, roots_of
from penstock.pipeline.optimise.folding import fold_constants
from penstock.pipeline.optimise.inlining import inline_functions
from penstock.pipeline.optimise.norms import join_norms
from penstock.pipeline.optimise.pools import mask_pooled
from penstock.pipeline.optimise.remapping import remap
from penstock.pipeline.optimise.scales import scale_products
from penstock.pipeline.optimise.sharing import share_common_subexpressions
from penstock.pipeline.optimise.sums import sum_products
from penstock.pipeline.optimise.unrolled import join_unrolled
from penstock.pipeline.optimise.updates import update_in_place


class Pass(NamedTuple):
    """One pass: its name, its function, and the level of optimisation from which on it runs (0: L1, TF's default)."""

    name: str
    run: Callable[[Graph, Any], Graph]
    level: int = 0
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()


def _remapping(graph: Graph, context: Any) -> Graph:
    """Nodes that a kernel computes at once: sums and columns of products, normalised rows, LSTMs, updates, chains behind convolutions and products."""
    for step in (join_unrolled, sum_products, keep_columns, join_norms, join_cells, scale_products, hash_numbers, sum_in_updates, sum_duplicates, update_in_place, mask_pooled, remap):
        graph = step(graph, context)
    return graph


PASSES: list[Pass] = [
    Pass("function_inlining", inline_functions, provides=("inlined",)),
    Pass("constant_folding", fold_constants, requires=("inlined",)),
    Pass("arithmetic", simplify_arithmetic, requires=("inlined",)),
    Pass("common_subexpressions", share_common_subexpressions, requires=("inlined",)),
    Pass("dependencies", clean_dependencies, requires=("inlined",)),
    Pass("remapping", _remapping, requires=("inlined",)),
]


def _check(passes: list[Pass]) -> None:
    provided: set[str] = set()
    for p in passes:
        missing = set(p.requires) - provided
        if missing:
            raise AssertionError(f"pass {p.name} requires {sorted(missing)}, which no earlier pass provides")
        provided |= set(p.provides)


_check(PASSES)


class OptimiserOptions(NamedTuple):
    """`level` is TF's OptimizerOptions.Level (-1: none, 0: the default); `disabled` and `enabled` name single passes; `budget` is in seconds."""

    level: int = 0
    disabled: frozenset[str] = frozenset()
    enabled: frozenset[str] = frozenset()
    budget: float = 300.0
    targets: frozenset[str] = frozenset()


class Context:
    """What passes share: the signature's targets, the clock, the placer (for bodies of functions), and notes for `explain`."""

    def __init__(self, options: OptimiserOptions, placer: Any = None) -> None:
        self.targets = options.targets
        self.placer = placer
        self.deadline = time.monotonic() + options.budget if options.budget > 0 else float("inf")
        self.notes: list[str] = []

    def roots(self, graph: Graph) -> list[Operation]:
        return roots_of(graph, self.targets)

    def note(self, edit: Edit) -> None:
        self.notes.extend(edit.why)

    def expired(self) -> bool:
        return time.monotonic() > self.deadline


def optimise(graph: Graph, options: OptimiserOptions, trail: Any = None, placer: Any = None) -> Graph:
    """Runs the passes that `options` allow, in order, until the time budget is spent."""
    context = Context(options, placer)
    for p in PASSES:
        wanted = p.name in options.enabled or (options.level >= p.level and p.name not in options.disabled)
        if not wanted:
            continue
        if context.expired():
            context.notes.append(f"time budget spent before {p.name}")
            break
        context.notes = []
        graph = p.run(graph, context)
        if trail is not None:
            trail.add(f"optimise/{p.name}", graph, tuple(context.notes))
    return graph
