"""`tf.train.Optimizer`: computing gradients, keeping slots, and applying gradients to variables.

A subclass says what slots it needs (`_create_slots`), which numbers become tensors (`_prepare`), and which op updates a
variable: `_apply_dense`, `_resource_apply_dense`, `_apply_sparse`, `_resource_apply_sparse`. Programs write their own
optimizers by overriding exactly these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import dtypes
from penstock.api.export import export, resolve
from penstock.api.training import slot_creator
from penstock.api.training.slot_creator import is_resource_variable
from penstock.api.variable_lists import trainable_variables
from penstock.api.variables import Variable, lifted, make_variable
from penstock.graph import nest
from penstock.graph.composite import IndexedSlices
from penstock.graph.convert import convert_to_tensor, convert_to_tensor_or_indexed_slices
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.keys import GraphKeys
from penstock.graph.raw import raw

_TRAINABLE_TYPES = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)


def var_key(variable: Any) -> Any:
    """What slots are kept under: the same for all objects that stand for one variable."""
    return variable.graph, variable.op.name if not hasattr(variable, "handle") else variable.handle.op.name


def deduplicate(values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Sums rows that belong to the same index: (values, indices) with every index once."""
    unique, positions = raw.Unique(indices)
    count = resolve("shape")(unique)[0]
    return raw.UnsortedSegmentSum(values, positions, count), unique


@export("train.Optimizer")
class Optimizer:
    """Base class of all optimizers.

    >>> train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)       # doctest: +SKIP
    """

    GATE_NONE = 0
    GATE_OP = 1
    GATE_GRAPH = 2

    def __init__(self, use_locking: bool, name: str, use_own_namescope_for_non_slot_vars: bool = False) -> None:
        if not name:
            raise ValueError("Must specify the optimizer name")
        self._use_locking = use_locking
        self._name = name
        self._slots: dict[str, dict[Any, Any]] = {}
        self._non_slot_dict: dict[Any, Any] = {}
        self._own_namescope = use_own_namescope_for_non_slot_vars

    def get_name(self) -> str:
        return self._name

    # -- gradients ----------------------------------------------------------------------------------------------------

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Operation:
        """An op that computes the gradients of `loss` and applies them to the variables once."""
        pairs = self.compute_gradients(
            loss, var_list=var_list, gate_gradients=gate_gradients, aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops, grad_loss=grad_loss,
        )  # fmt: skip
        if not any(g is not None for g, _ in pairs):
            raise ValueError(
                "No gradients provided for any variable, check your graph for ops that do not support gradients, between variables "
                f"{[str(v) for _, v in pairs]} and loss {loss}."
            )
        return self.apply_gradients(pairs, global_step=global_step, name=name)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """[(gradient, variable), ...]; the gradient is a Tensor, IndexedSlices, or None where there is none."""
        if callable(loss):
            loss = loss()
        if gate_gradients not in (Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH):
            raise ValueError(
                f"gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH.  Not {gate_gradients}"
            )
        self._assert_valid_dtypes([loss])
        if grad_loss is not None:
            self._assert_valid_dtypes([grad_loss])
        if var_list is None:
            var_list = trainable_variables() + get_default_graph().get_collection(
                GraphKeys.TRAINABLE_RESOURCE_VARIABLES
            )
        else:
            var_list = nest.flatten(var_list)
        var_list = var_list + get_default_graph().get_collection(GraphKeys._STREAMING_MODEL_PORTS)
        if not var_list:
            raise ValueError("No variables to optimize.")
        for variable in var_list:
            _check_variable(variable)
        grads = resolve("gradients")(
            loss, [_target(v) for v in var_list], grad_ys=grad_loss, aggregation_method=aggregation_method,
            gate_gradients=gate_gradients == Optimizer.GATE_OP, colocate_gradients_with_ops=colocate_gradients_with_ops,
        )  # fmt: skip
        if gate_gradients == Optimizer.GATE_GRAPH:
            grads = resolve("tuple")(grads)
        pairs = list(zip(grads, var_list, strict=True))
        self._assert_valid_dtypes([v for g, v in pairs if g is not None and v.dtype != dtypes.resource])
        return pairs

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Operation:
        """An op that applies gradients to their variables, and then adds one to `global_step` if there is one."""
        pairs = tuple(grads_and_vars)
        if not pairs:
            raise ValueError("No variables provided.")
        converted = []
        for grad, variable in pairs:
            _check_variable(variable)
            if grad is not None:
                try:
                    grad = convert_to_tensor_or_indexed_slices(grad)
                except TypeError:
                    raise TypeError(
                        f"Gradient must be convertible to a Tensor or IndexedSlices, or None: {grad}"
                    ) from None
                if not isinstance(grad, (Tensor, IndexedSlices)):
                    raise TypeError(f"Gradient must be a Tensor, IndexedSlices, or None: {grad}")
            converted.append((grad, variable))
        var_list = [v for g, v in converted if g is not None]
        if not var_list:
            raise ValueError(f"No gradients provided for any variable: {[str(v) for _, v in converted]}.")
        with lifted():
            self._create_slots(var_list)
        graph = get_default_graph()
        updates = []
        with graph.name_scope(self._name if name is None else name) as scope:
            self._prepare()
            for grad, variable in converted:
                if grad is None:
                    continue
                with graph.name_scope("update_" + variable.op.name), graph.colocate_with(variable.op):
                    updates.append(self._update(grad, variable))
            if global_step is None:
                done = self._finish(updates, scope)
            else:
                with graph.control_dependencies([self._finish(updates, "update")]), graph.colocate_with(global_step.op):
                    if is_resource_variable(global_step):
                        one = convert_to_tensor(1, dtype=global_step.dtype, name="value")
                        done = raw.AssignAddVariableOp(global_step.handle, one, name=scope)
                    else:
                        done = resolve("assign_add")(global_step, 1, name=scope)
        op = done if isinstance(done, Operation) else done.op
        trains = graph.get_collection_ref(GraphKeys.TRAIN_OP)
        if op not in trains:
            trains.append(op)
        return op

    def _update(self, grad: Any, variable: Any) -> Any:
        """The op that applies one gradient, the variable's constraint included."""
        if not isinstance(variable, Variable):
            raise NotImplementedError(f"Trying to update a Tensor {variable}")
        constraint = getattr(variable, "constraint", None)
        if isinstance(grad, IndexedSlices):
            if constraint is not None:
                raise RuntimeError("Cannot use a constraint function on a sparse variable.")
            if is_resource_variable(variable):
                return self._resource_apply_sparse_duplicate_indices(grad.values, variable, grad.indices)
            return self._apply_sparse_duplicate_indices(grad, variable)
        done = (
            self._resource_apply_dense(grad, variable)
            if is_resource_variable(variable)
            else self._apply_dense(grad, variable)
        )
        if constraint is None:
            return done
        with get_default_graph().control_dependencies([done]):
            return variable.assign(constraint(variable))

    # -- slots --------------------------------------------------------------------------------------------------------

    def get_slot(self, var: Any, name: str) -> Any:
        """The slot `name` of `var`, or None if the optimizer keeps none for it."""
        return self._slots.get(name, {}).get(var_key(var))

    def get_slot_names(self) -> list[str]:
        """The names of all slots, sorted."""
        return sorted(self._slots)

    def variables(self) -> list[Any]:
        """The variables that hold this optimizer's state in the default graph, sorted by name."""
        graph = get_default_graph()
        found = [v for v in self._non_slot_variables() if v.graph is graph]
        found += [slot for slots in self._slots.values() for slot in slots.values() if slot.graph is graph]
        return sorted(found, key=lambda v: v.name)

    def _slot_dict(self, slot_name: str) -> dict[Any, Any]:
        return self._slots.setdefault(slot_name, {})

    def _get_or_make_slot(self, var: Any, val: Any, slot_name: str, op_name: str) -> Any:
        slots = self._slot_dict(slot_name)
        if var_key(var) not in slots:
            slots[var_key(var)] = slot_creator.create_slot(var, val, op_name)
        return slots[var_key(var)]

    def _get_or_make_slot_with_initializer(
        self, var: Any, initializer: Any, shape: Any, dtype: Any, slot_name: str, op_name: str
    ) -> Any:
        slots = self._slot_dict(slot_name)
        if var_key(var) not in slots:
            slots[var_key(var)] = slot_creator.create_slot_with_initializer(var, initializer, shape, dtype, op_name)
        return slots[var_key(var)]

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Any:
        slots = self._slot_dict(slot_name)
        if var_key(var) not in slots:
            slots[var_key(var)] = slot_creator.create_zeros_slot(var, op_name)
        return slots[var_key(var)]

    def _non_slot_variables(self) -> Any:
        return self._non_slot_dict.values()

    def _create_non_slot_variable(self, initial_value: Any, name: str, colocate_with: Any) -> Any:
        """A variable of the optimizer as a whole (Adam's powers), made once per graph and kept beside a variable."""
        graph = colocate_with.graph
        key = (name, graph)
        found = self._non_slot_dict.get(key)
        if found is None:
            with graph.colocate_with(colocate_with.op):
                found = make_variable(
                    initial_value=initial_value, name=name, trainable=False, use_resource=is_resource_variable(colocate_with), collections=None,
                    validate_shape=True, caching_device=None, variable_def=None, dtype=None, expected_shape=None, import_scope=None,
                    constraint=None, synchronization=None, aggregation=None, shape=None,
                )  # fmt: skip
            self._non_slot_dict[key] = found
        return found

    def _get_non_slot_variable(self, name: str, graph: Any = None) -> Any:
        return self._non_slot_dict.get((name, graph))

    # -- what subclasses fill in --------------------------------------------------------------------------------------

    def _create_slots(self, var_list: list[Any]) -> None:
        """Makes the slots that `var_list` needs; none by default."""

    def _prepare(self) -> None:
        """Makes tensors of the optimizer's numbers; nothing by default."""

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        raise NotImplementedError

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Any:
        raise NotImplementedError

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        raise NotImplementedError

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        raise NotImplementedError

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        """Sums rows of equal index first; override where the update does not need that."""
        values, indices = deduplicate(grad.values, grad.indices)
        return self._apply_sparse(IndexedSlices(values, indices, grad.dense_shape), var)

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        values, unique = deduplicate(grad, indices)
        return self._resource_apply_sparse(values, handle, unique)

    def _finish(self, update_ops: list[Any], name_scope: str) -> Operation:
        """The op that stands for all updates."""
        return resolve("group")(*update_ops, name=name_scope)

    def _valid_dtypes(self) -> Any:
        return _TRAINABLE_TYPES

    def _assert_valid_dtypes(self, tensors: list[Any]) -> None:
        for tensor in tensors:
            dtype = tensor.dtype.base_dtype
            if dtype not in self._valid_dtypes():
                raise ValueError(f"Invalid type {dtype!r} for {tensor.name}, expected: {list(self._valid_dtypes())}.")

    def _call_if_callable(self, param: Any) -> Any:
        """Numbers may be given as functions that return them."""
        return param() if callable(param) and not isinstance(param, (Tensor, Variable)) else param

    # -- helpers for subclasses of this package -------------------------------------------------------------------------

    def _training_op(self, op_type: str, var: Any, slots: list[Any], *args: Any, **attrs: Any) -> Operation:
        """Runs raw op `op_type` (or its Resource version) on the variable, its slots and further arguments."""
        resource = is_resource_variable(var)
        function: Callable[..., Any] = getattr(raw, ("Resource" if resource else "") + op_type)
        held = [v.handle for v in (var, *slots)] if resource else [var, *slots]
        result = function(*held, *args, use_locking=self._use_locking, **attrs)
        return result if resource else result.op

    @staticmethod
    def _cast(value: Any, grad_or_var: Any) -> Any:
        """`value` in the type of a gradient or variable; a resource variable of that type is not read yet."""
        dtype = grad_or_var.dtype.base_dtype
        return value if is_resource_variable(value) and value.dtype == dtype else resolve("cast")(value, dtype)


def _check_variable(variable: Any) -> None:
    if not isinstance(variable, (Variable, Tensor)):
        raise NotImplementedError(f"Trying to optimize unsupported type {variable}")


def _target(variable: Any) -> Any:
    """What gradients are taken with respect to: the variable's op itself."""
    if isinstance(variable, Variable):
        return variable.handle if is_resource_variable(variable) else variable._ref()  # type: ignore[attr-defined]
    return variable
