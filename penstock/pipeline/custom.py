"""Passes that users add, at the four points where TensorFlow lets them.

    register_pass(PRE_PLACEMENT, "mine", lambda graph: ...)

A pass is a function from graph to graph that leaves its input alone (see `graph.rewrite.Copier`); at POST_PARTITIONING it gets and
returns {device: graph}. Passes of one point run in the order of registration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import errors

PRE_PLACEMENT = "pre_placement"
POST_PLACEMENT = "post_placement"
POST_REWRITE_FOR_EXEC = "post_rewrite_for_exec"
POST_PARTITIONING = "post_partitioning"
POINTS = (PRE_PLACEMENT, POST_PLACEMENT, POST_REWRITE_FOR_EXEC, POST_PARTITIONING)

_passes: dict[str, dict[str, Callable[[Any], Any]]] = {point: {} for point in POINTS}


def register_pass(point: str, name: str, function: Callable[[Any], Any]) -> None:
    """Adds a pass at one of `POINTS`; it applies to everything that is compiled from now on."""
    if point not in _passes:
        raise errors.InvalidArgumentError(f"There is no point {point!r} for passes; choose one of {', '.join(POINTS)}")
    if name in _passes[point]:
        raise errors.AlreadyExistsError(f"A pass called {name!r} is registered at {point} already")
    _passes[point][name] = function


def unregister_pass(point: str, name: str) -> None:
    """Takes a pass out again; NotFoundError if it is not there."""
    if _passes.get(point, {}).pop(name, None) is None:
        raise errors.NotFoundError(f"No pass called {name!r} is registered at {point}")


def run_passes(point: str, graph: Any, trail: Any = None) -> Any:
    """The graph (or partitions) after all passes of `point`. An exception in a pass says which pass it was."""
    for name, function in _passes[point].items():
        try:
            result = function(graph)
        except errors.OpError:
            raise
        except Exception as error:
            raise errors.InternalError(f"The user's pass {name!r} at {point} failed: {error!r}") from error
        if result is None:
            raise errors.InternalError(f"The user's pass {name!r} at {point} returned None; a pass returns a graph, its input if nothing changes")
        graph = result
        if trail is not None:
            trail.add(f"{point}/{name}", graph)
    return graph


def any_passes(point: str) -> bool:
    return bool(_passes[point])
