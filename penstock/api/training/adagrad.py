"""Optimizers that divide by the root of accumulated squared gradients: Adagrad and its relatives, Adadelta, RMSProp, FTRL."""

from __future__ import annotations

from typing import Any

from penstock.api.export import export, resolve
from penstock.api.initializers import Constant, Ones
from penstock.api.training.optimizer import Optimizer
from penstock.graph.composite import IndexedSlices
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


class _SparseByRows(Optimizer):
    """For optimizers whose sparse update of a reference variable is the resource one with another op."""

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Any:
        return self._apply_dense(grad, handle)

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _casts(self, var: Any, *values: Any) -> list[Any]:
        return [self._cast(v, var) for v in values]


@export("train.AdagradOptimizer")
class AdagradOptimizer(_SparseByRows):
    """accumulator += grad**2; var -= learning_rate * grad / sqrt(accumulator)."""

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        if initial_accumulator_value <= 0.0:
            raise ValueError(f"initial_accumulator_value must be positive: {initial_accumulator_value}")
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = initial_accumulator_value
        self._learning_rate_tensor: Any = None

    def _create_slots(self, var_list: list[Any]) -> None:
        for v in var_list:
            dtype = v.dtype.base_dtype
            if v.shape.is_fully_defined():
                first: Any = Constant(self._initial_accumulator_value, dtype=dtype)
            else:
                first = self._like(v, dtype)
            self._get_or_make_slot_with_initializer(v, first, v.shape, dtype, "accumulator", self._name)

    def _like(self, v: Any, dtype: Any) -> Any:
        def first() -> Tensor:
            value = resolve("cast")(self._initial_accumulator_value, dtype)
            return resolve("fill")(resolve("shape")(v), value)

        return first

    def _prepare(self) -> None:
        self._learning_rate_tensor = convert_to_tensor(
            self._call_if_callable(self._learning_rate), name="learning_rate"
        )

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        return self._training_op(
            "ApplyAdagrad", var, [self.get_slot(var, "accumulator")], self._cast(self._learning_rate_tensor, grad), grad
        )

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        rate = self._cast(self._learning_rate_tensor, grad)
        return self._training_op(
            "SparseApplyAdagrad", handle, [self.get_slot(handle, "accumulator")], rate, grad, indices
        )


@export("train.AdagradDAOptimizer")
class AdagradDAOptimizer(_SparseByRows):
    """Adagrad with dual averaging, for sparse linear models; needs the global step."""

    def __init__(
        self,
        learning_rate: Any,
        global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "AdagradDA",
    ) -> None:
        if initial_gradient_squared_accumulator_value <= 0.0:
            raise ValueError(
                f"initial_gradient_squared_accumulator_value must be positive: {initial_gradient_squared_accumulator_value}"
            )
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_gradient_squared_accumulator_value = initial_gradient_squared_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._global_step = global_step
        self._global_step_on_worker: Any = None

    def _create_slots(self, var_list: list[Any]) -> None:
        for v in var_list:
            with v.graph.colocate_with(v.op):
                shape, dtype = v.shape.as_list(), v.dtype.base_dtype
                total = constant(0.0, shape=shape, dtype=dtype)
                squares = constant(self._initial_gradient_squared_accumulator_value, shape=shape, dtype=dtype)
            self._get_or_make_slot(v, total, "gradient_accumulator", self._name)
            self._get_or_make_slot(v, squares, "gradient_squared_accumulator", self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = convert_to_tensor(self._learning_rate, name="learning_rate")
        with get_default_graph().colocate_with(self._learning_rate_tensor.op):
            self._global_step_on_worker = raw.Identity(self._global_step) + 1

    def _parts(self, var: Any) -> tuple[list[Any], list[Any]]:
        slots = [self.get_slot(var, "gradient_accumulator"), self.get_slot(var, "gradient_squared_accumulator")]
        step = raw.Identity(self._global_step_on_worker)
        return slots, [
            *self._casts(
                var, self._learning_rate_tensor, self._l1_regularization_strength, self._l2_regularization_strength
            ),
            step,
        ]

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        slots, numbers = self._parts(var)
        return self._training_op("ApplyAdagradDA", var, slots, grad, *numbers)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        slots, numbers = self._parts(handle)
        return self._training_op("SparseApplyAdagradDA", handle, slots, grad, indices, *numbers)


@export("train.AdadeltaOptimizer")
class AdadeltaOptimizer(_SparseByRows):
    """Steps scaled by the ratio of running averages of updates and gradients."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Any = 0.95,
        epsilon: Any = 1e-08,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._rho = rho
        self._epsilon = epsilon

    def _create_slots(self, var_list: list[Any]) -> None:
        for v in var_list:
            self._zeros_slot(v, "accum", self._name)
            self._zeros_slot(v, "accum_update", self._name)

    def _prepare(self) -> None:
        self._lr_t = convert_to_tensor(self._call_if_callable(self._lr), name="lr")
        self._rho_t = convert_to_tensor(self._call_if_callable(self._rho), name="rho")
        self._epsilon_t = convert_to_tensor(self._call_if_callable(self._epsilon), name="epsilon")

    def _parts(self, var: Any) -> tuple[list[Any], list[Any]]:
        slots = [self.get_slot(var, "accum"), self.get_slot(var, "accum_update")]
        return slots, self._casts(var, self._lr_t, self._rho_t, self._epsilon_t)

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        slots, numbers = self._parts(var)
        return self._training_op("ApplyAdadelta", var, slots, *numbers, grad)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        slots, numbers = self._parts(handle)
        return self._training_op("SparseApplyAdadelta", handle, slots, *numbers, grad, indices)


@export("train.RMSPropOptimizer")
class RMSPropOptimizer(_SparseByRows):
    """Steps divided by the root of a running average of squared gradients; `centered` uses their variance instead."""

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._decay = decay
        self._momentum = momentum
        self._epsilon = epsilon
        self._centered = centered

    def _create_slots(self, var_list: list[Any]) -> None:
        for v in var_list:
            if v.shape.is_fully_defined():
                first: Any = Ones(dtype=v.dtype.base_dtype)
            else:
                first = lambda v=v: raw.OnesLike(v)  # noqa: E731
            self._get_or_make_slot_with_initializer(v, first, v.shape, v.dtype.base_dtype, "rms", self._name)
            if self._centered:
                self._zeros_slot(v, "mg", self._name)
            self._zeros_slot(v, "momentum", self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = convert_to_tensor(
            self._call_if_callable(self._learning_rate), name="learning_rate"
        )
        self._decay_tensor = convert_to_tensor(self._call_if_callable(self._decay), name="decay")
        self._momentum_tensor = convert_to_tensor(self._call_if_callable(self._momentum), name="momentum")
        self._epsilon_tensor = convert_to_tensor(self._call_if_callable(self._epsilon), name="epsilon")

    def _parts(self, var: Any) -> tuple[str, list[Any], list[Any]]:
        slots = [self.get_slot(var, name) for name in (["mg"] if self._centered else []) + ["rms", "momentum"]]
        numbers = self._casts(
            var, self._learning_rate_tensor, self._decay_tensor, self._momentum_tensor, self._epsilon_tensor
        )
        return "ApplyCenteredRMSProp" if self._centered else "ApplyRMSProp", slots, numbers

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        kind, slots, numbers = self._parts(var)
        return self._training_op(kind, var, slots, *numbers, grad)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        kind, slots, numbers = self._parts(handle)
        return self._training_op("Sparse" + kind, handle, slots, *numbers, grad, indices)


@export("train.ProximalAdagradOptimizer")
class ProximalAdagradOptimizer(_SparseByRows):
    """Adagrad with L1 and L2 regularization applied as a shrinking step."""

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        if initial_accumulator_value <= 0.0:
            raise ValueError(f"initial_accumulator_value must be positive: {initial_accumulator_value}")
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = initial_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _create_slots(self, var_list: list[Any]) -> None:
        for v in var_list:
            with v.graph.colocate_with(v.op):
                first = constant(self._initial_accumulator_value, shape=v.shape.as_list(), dtype=v.dtype.base_dtype)
            self._get_or_make_slot(v, first, "accumulator", self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = convert_to_tensor(self._learning_rate, name="learning_rate")
        self._l1_tensor = convert_to_tensor(self._l1_regularization_strength, name="l1_regularization_strength")
        self._l2_tensor = convert_to_tensor(self._l2_regularization_strength, name="l2_regularization_strength")

    def _numbers(self, var: Any) -> list[Any]:
        return self._casts(var, self._learning_rate_tensor, self._l1_tensor, self._l2_tensor)

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        return self._training_op(
            "ApplyProximalAdagrad", var, [self.get_slot(var, "accumulator")], *self._numbers(var), grad
        )

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        return self._training_op(
            "SparseApplyProximalAdagrad",
            handle,
            [self.get_slot(handle, "accumulator")],
            *self._numbers(handle),
            grad,
            indices,
        )


@export("train.FtrlOptimizer")
class FtrlOptimizer(_SparseByRows):
    """ "Follow the regularized leader", for sparse linear models with L1, L2 and shrinking L2 regularization."""

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float | None = None,
    ) -> None:
        super().__init__(use_locking, name)
        for label, value, bad in (
            ("initial_accumulator_value", initial_accumulator_value, initial_accumulator_value < 0.0),
            ("l1_regularization_strength", l1_regularization_strength, l1_regularization_strength < 0.0),
            ("l2_regularization_strength", l2_regularization_strength, l2_regularization_strength < 0.0),
            (
                "l2_shrinkage_regularization_strength",
                l2_shrinkage_regularization_strength,
                l2_shrinkage_regularization_strength < 0.0,
            ),
        ):
            if bad:
                raise ValueError(f"{label} {value} needs to be greater than or equal to zero")
        if learning_rate_power > 0.0:
            raise ValueError(f"learning_rate_power {learning_rate_power} needs to be negative or zero")
        self._learning_rate = learning_rate
        self._learning_rate_power = learning_rate_power
        self._initial_accumulator_value = initial_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._beta = 0.0 if beta is None else beta
        self._l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self._accum_name = accum_name
        self._linear_name = linear_name

    def _create_slots(self, var_list: list[Any]) -> None:
        def first(shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
            return resolve("ones")(shape, dtype=dtype) * self._initial_accumulator_value

        for v in var_list:
            self._get_or_make_slot_with_initializer(
                v, first, v.shape, v.dtype.base_dtype, "accum", self._accum_name or self._name
            )
            self._zeros_slot(v, "linear", self._linear_name or self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = convert_to_tensor(self._learning_rate, name="learning_rate")
        self._l1_tensor = convert_to_tensor(self._l1_regularization_strength, name="l1_regularization_strength")
        # A learning rate of the form 1 / (beta + ...) is the same as more L2 regularization.
        self._l2_tensor = self._l2_regularization_strength + self._beta / (
            2.0 * resolve("maximum")(self._learning_rate, 1e-36)
        )
        self._beta_tensor = convert_to_tensor(self._beta, name="beta")
        self._l2_shrinkage_tensor = convert_to_tensor(
            self._l2_shrinkage_regularization_strength, name="l2_shrinkage_regularization_strength"
        )
        self._learning_rate_power_tensor = convert_to_tensor(self._learning_rate_power, name="learning_rate_power")

    def _parts(self, var: Any) -> tuple[str, list[Any], list[Any]]:
        slots = [self.get_slot(var, "accum"), self.get_slot(var, "linear")]
        numbers = [self._learning_rate_tensor, self._l1_tensor, self._l2_tensor]
        shrinks = self._l2_shrinkage_regularization_strength > 0.0
        numbers += [self._l2_shrinkage_tensor] if shrinks else []
        return (
            "ApplyFtrlV2" if shrinks else "ApplyFtrl",
            slots,
            self._casts(var, *numbers, self._learning_rate_power_tensor),
        )

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        kind, slots, numbers = self._parts(var)
        return self._training_op(kind, var, slots, grad, *numbers)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        kind, slots, numbers = self._parts(handle)
        return self._training_op("Sparse" + kind, handle, slots, grad, indices, *numbers)
