"""The global step: the one counter of training steps that a graph has."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api.export import export
from penstock.api.initializers import Zeros
from penstock.api.variable_scope import get_variable
from penstock.api.variables import Variable, VariableAggregation
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Graph, Tensor
from penstock.graph.keys import GraphKeys


@export("train.global_step")
def global_step(sess: Any, global_step_tensor: Any) -> int:
    """The number of steps that training in `sess` has made."""
    return int(sess.run(global_step_tensor))


@export("train.get_global_step")
def get_global_step(graph: Graph | None = None) -> Any:
    """The graph's global step, or None if it has none."""
    graph = graph or get_default_graph()
    found = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(found) == 1:
        step = found[0]
    elif not found:
        try:
            step = graph.get_tensor_by_name("global_step:0")
        except KeyError:
            return None
    else:
        raise ValueError("Multiple tensors in global_step collection.")
    assert_global_step(step)
    return step


@export("train.create_global_step")
def create_global_step(graph: Graph | None = None) -> Any:
    """Makes the graph's global step, an int64 variable that starts at 0. ValueError if there is one already."""
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError('"global_step" already exists.')
    with graph.as_default(), graph.name_scope(None):
        return get_variable(
            GraphKeys.GLOBAL_STEP, shape=[], dtype=dtypes.int64, initializer=Zeros(), trainable=False,
            aggregation=VariableAggregation.ONLY_FIRST_REPLICA, collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )  # fmt: skip


@export("train.get_or_create_global_step")
def get_or_create_global_step(graph: Graph | None = None) -> Any:
    """The graph's global step, made if there is none."""
    graph = graph or get_default_graph()
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


@export("train.assert_global_step")
def assert_global_step(global_step_tensor: Any) -> None:
    """TypeError unless this can be a global step: a variable or tensor, an integer, a scalar."""
    if not isinstance(global_step_tensor, (Variable, Tensor)):
        raise TypeError(f'Existing "global_step" must be a Variable or Tensor: {global_step_tensor}.')
    if not global_step_tensor.dtype.base_dtype.is_integer:
        raise TypeError(f'Existing "global_step" does not have integer type: {global_step_tensor.dtype}')
    shape = global_step_tensor.shape
    if shape.rank not in (0, None):
        raise TypeError(f'Existing "global_step" is not scalar: {shape}')
