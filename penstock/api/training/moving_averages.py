"""Exponential moving averages of variables and tensors."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api.export import export, resolve
from penstock.api.initializers import Zeros
from penstock.api.training.optimizer import var_key
from penstock.api.training.slot_creator import create_slot, create_zeros_slot, is_resource_variable
from penstock.api.variable_lists import moving_average_variables, trainable_variables
from penstock.api.variable_scope import get_variable, variable_scope
from penstock.api.variables import Variable, lifted
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.keys import GraphKeys
from penstock.graph.raw import raw


def assign_moving_average(
    variable: Any, value: Any, decay: Any, zero_debias: bool = True, name: str | None = None
) -> Any:
    """variable -= (1 - decay) * (variable - value); with `zero_debias`, as if the average had not begun at zero."""
    graph = get_default_graph()
    with graph.name_scope("AssignMovingAvg" if name is None else name) as scope:
        weight = convert_to_tensor(1.0 - decay, name="decay")
        if weight.dtype != variable.dtype.base_dtype:
            weight = resolve("cast")(weight, variable.dtype.base_dtype)
        if zero_debias:
            delta = _zero_debias(variable, value, weight)
        else:
            delta = (variable - value) * weight
        return resolve("assign_sub")(variable, delta, name=scope)


def _zero_debias(unbiased: Any, value: Any, weight: Any) -> Any:
    """The step that takes the unbiased average to its next value; keeps the biased one and a step counter beside it."""
    graph = get_default_graph()
    with variable_scope(unbiased.op.name, values=[unbiased, value, weight]):
        with graph.colocate_with(unbiased.op), lifted():
            biased = get_variable("biased", initializer=Zeros(), shape=unbiased.shape, dtype=unbiased.dtype.base_dtype, trainable=False,
                                  use_resource=is_resource_variable(unbiased))  # fmt: skip
            count = get_variable("local_step", shape=[], dtype=unbiased.dtype.base_dtype, initializer=Zeros(), trainable=False,
                                 use_resource=is_resource_variable(unbiased))  # fmt: skip
        update_biased = resolve("assign_sub")(biased, (biased - value) * weight, name=graph.get_name_scope() + "/")
        update_count = count.assign_add(1)
        with graph.control_dependencies([update_biased, update_count]):
            average = biased.read_value() / (1 - raw.Pow(1.0 - weight, count.read_value()))
            return unbiased - average


@export("train.ExponentialMovingAverage")
class ExponentialMovingAverage:
    """Keeps shadow copies: shadow = decay * shadow + (1 - decay) * value.

    `num_updates` makes the decay smaller at the beginning: min(decay, (1 + num_updates) / (10 + num_updates)).
    `zero_debias` corrects averages of tensors, which begin at zero; those of variables begin at the variable's initial value.
    """

    def __init__(
        self, decay: Any, num_updates: Any = None, zero_debias: bool = False, name: str = "ExponentialMovingAverage"
    ) -> None:
        self._decay = decay
        self._num_updates = num_updates
        self._zero_debias = zero_debias
        self._name = name
        self._averages: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        return self._name

    def apply(self, var_list: Any = None) -> Operation:
        """An op that updates the averages of `var_list` (default: the trainable variables); makes them if need be."""
        if var_list is None:
            var_list = trainable_variables()
        debias: set[Any] = set()
        for var in var_list:
            if var.dtype.base_dtype not in (dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64):
                raise TypeError(f"The variables must be half, float, or double: {var.name}")
            if _key(var) in self._averages:
                continue
            with lifted() as graph:
                if isinstance(var, Variable):
                    average = create_slot(var, var.initialized_value(), self._name, colocate_with_primary=True)
                    graph.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, var)
                else:
                    average = create_zeros_slot(
                        var, self._name, colocate_with_primary=var.op.type in ("Variable", "VariableV2", "VarHandleOp")
                    )
                    if self._zero_debias:
                        debias.add(_key(var))
            self._averages[_key(var)] = average
        with get_default_graph().name_scope(self._name) as scope:
            decay = convert_to_tensor(self._decay, dtype=dtypes.float32, name="decay")
            if self._num_updates is not None:
                updates = resolve("cast")(self._num_updates, dtypes.float32, name="num_updates")
                decay = resolve("minimum")(decay, (1.0 + updates) / (10.0 + updates))
            done = [
                assign_moving_average(self._averages[_key(v)], v, decay, zero_debias=_key(v) in debias)
                for v in var_list
            ]
            return resolve("group")(*done, name=scope)

    def average(self, var: Any) -> Any:
        """The variable that holds the average of `var`, or None."""
        return self._averages.get(_key(var))

    def average_name(self, var: Any) -> str:
        """What the average of `var` is called in checkpoints."""
        if _key(var) in self._averages:
            return self._averages[_key(var)].op.name
        return get_default_graph().unique_name(var.op.name + "/" + self._name, mark_as_used=False)

    def variables_to_restore(self, moving_avg_variables: Any = None) -> dict[str, Any]:
        """{name: variable} for a Saver that restores variables from their averages where they have one."""
        if moving_avg_variables is None:
            moving_avg_variables = trainable_variables() + moving_average_variables()
        moving = {var_key(v): v for v in moving_avg_variables}
        result = {self.average_name(v): v for v in moving.values()}
        names = {v.name for v in moving.values()}
        for variable in get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES):
            if variable.name not in names and variable.op.name not in result:
                result[variable.op.name] = variable
        return result


def _key(value: Any) -> Any:
    return value if isinstance(value, Tensor) else var_key(value)
