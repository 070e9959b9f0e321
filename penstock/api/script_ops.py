"""Python functions as ops: `tf.py_func` and `tf.numpy_function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import dtypes
from penstock.api.export import export
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Graph
from penstock.graph.raw import raw
from penstock.ops.debug import PY_FUNCTIONS


def _outermost(graph: Graph) -> Graph:
    while graph.building_function and getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph  # type: ignore[attr-defined]
    return graph


@export("py_func")
def py_func(func: Callable[..., Any], inp: Any, Tout: Any, stateful: bool = True, name: str | None = None) -> Any:
    """An op that calls `func` with NumPy values of `inp` and returns its results as tensors of types `Tout`.

    The function lives as long as the graph, runs in this process only, and cannot be saved. Declare it stateless
    (`stateful=False`) only if equal arguments give equal results; it may then be computed once. `set_shape` tells what is
    known of the results' shapes.
    """
    if not callable(func):
        raise ValueError(f"Expected func to be callable. Received func={func} of type {type(func)}.")
    many = isinstance(Tout, (list, tuple))
    types = [dtypes.as_dtype(t) for t in (Tout if many else [Tout])]
    token = PY_FUNCTIONS.add(func, _outermost(get_default_graph()))
    op = raw.PyFunc if stateful else raw.PyFuncStateless
    result = op(list(inp), token=token, Tout=types, name=name)
    return result if many or not isinstance(result, list) else result[0]


@export("numpy_function")
def numpy_function(
    func: Callable[..., Any] | None = None,
    inp: Any = None,
    Tout: Any = None,
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """Same as `py_func`."""
    if func is None:
        raise ValueError("numpy_function needs a function")
    return py_func(func, inp, Tout, stateful=stateful, name=name)
