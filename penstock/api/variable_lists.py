"""Which variables a graph has, ops that initialise them, and ops that say which are not initialised."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import variables as _variables
from penstock.api.export import export, export_value, resolve
from penstock.graph.constant import constant
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.keys import GraphKeys
from penstock.graph.raw import raw

export_value("is_variable_initialized", _variables.is_variable_initialized)


@export("global_variables")
def global_variables(scope: str | None = None) -> list[Any]:
    """The variables that are shared by all of a program, in the order they were made; those of `scope` if given."""
    return get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


@export("all_variables")
def all_variables() -> list[Any]:
    """The older name of `global_variables`."""
    return global_variables()


@export("local_variables")
def local_variables(scope: str | None = None) -> list[Any]:
    """Variables of one process that are not saved, such as metrics' counters."""
    return get_default_graph().get_collection(GraphKeys.LOCAL_VARIABLES, scope)


@export("trainable_variables")
def trainable_variables(scope: str | None = None) -> list[Any]:
    """The variables that optimizers change."""
    return get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


@export("model_variables")
def model_variables(scope: str | None = None) -> list[Any]:
    """The variables of the MODEL_VARIABLES collection."""
    return get_default_graph().get_collection(GraphKeys.MODEL_VARIABLES, scope)


@export("moving_average_variables")
def moving_average_variables(scope: str | None = None) -> list[Any]:
    """The variables that have moving averages."""
    return get_default_graph().get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


def _saveable_variables(scope: str | None = None) -> list[Any]:
    return get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES, scope) + get_default_graph().get_collection(
        GraphKeys.SAVEABLE_OBJECTS, scope
    )


@export("variables_initializer", "initializers.variables", "initialize_variables")
def variables_initializer(var_list: Any, name: str = "init") -> Operation:
    """An op that initialises the variables of `var_list`, in any order."""
    if var_list:
        return resolve("group")(*[v.initializer for v in var_list], name=name)
    return raw.NoOp(name=name)


@export("global_variables_initializer", "initializers.global_variables")
def global_variables_initializer() -> Operation:
    """An op that initialises all global variables."""
    return variables_initializer(global_variables())


@export("initialize_all_variables")
def initialize_all_variables() -> Operation:
    """The older name of `global_variables_initializer`."""
    return global_variables_initializer()


@export("local_variables_initializer", "initializers.local_variables")
def local_variables_initializer() -> Operation:
    """An op that initialises all local variables."""
    return variables_initializer(local_variables())


@export("initialize_local_variables")
def initialize_local_variables() -> Operation:
    """The older name of `local_variables_initializer`."""
    return local_variables_initializer()


@export("assert_variables_initialized")
def assert_variables_initialized(var_list: Any = None) -> Tensor | None:
    """An op that fails with FailedPreconditionError if one of the variables has no value."""
    if var_list is None:
        var_list = global_variables() + local_variables()
    if not var_list:
        var_list = [
            op.outputs[0] for op in get_default_graph() if op.type in ("Variable", "VariableV2", "AutoReloadVariable")
        ]
    if not var_list:
        return None
    ranks = []
    for variable in var_list:
        with get_default_graph().colocate_with(variable.op):
            ranks.append(raw.Rank(variable))
    return ranks[0] if len(ranks) == 1 else raw.Pack(ranks, name="stack")


@export("report_uninitialized_variables")
def report_uninitialized_variables(var_list: Any = None, name: str = "report_uninitialized_variables") -> Tensor:
    """A string vector with the names of the variables that have no value."""
    if var_list is None:
        var_list = global_variables() + local_variables()
    if not var_list:
        var_list = [
            op.outputs[0] for op in get_default_graph() if op.type in ("Variable", "VariableV2", "AutoReloadVariable")
        ]
    graph = get_default_graph()
    with graph.name_scope(name):
        ready = [_variables.is_variable_initialized(v) for v in var_list]
        with graph.device("/cpu:0"):
            if not var_list:
                return constant(np.array([], dtype=object), dtype=dtypes.string)
            missing = raw.LogicalNot(raw.Pack(ready, name="stack"))
            names = constant([v.op.name for v in var_list])
            return resolve("boolean_mask")(names, missing)
