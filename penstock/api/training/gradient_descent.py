"""Plain, proximal and momentum gradient descent."""

from __future__ import annotations

from typing import Any

from penstock.api.export import export
from penstock.api.training.optimizer import Optimizer
from penstock.graph.composite import IndexedSlices
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


@export("train.GradientDescentOptimizer")
class GradientDescentOptimizer(Optimizer):
    """var -= learning_rate * grad."""

    def __init__(self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent") -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._learning_rate_tensor: Any = None

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        return self._training_op("ApplyGradientDescent", var, [], self._cast(self._learning_rate_tensor, var), grad)

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Any:
        return self._apply_dense(grad, handle)

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        return raw.ResourceScatterAdd(handle.handle, indices, -grad * self._cast(self._learning_rate_tensor, grad))

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        delta = IndexedSlices(grad.values * self._cast(self._learning_rate_tensor, var), grad.indices, grad.dense_shape)
        return var.scatter_sub(delta, use_locking=self._use_locking)

    def _prepare(self) -> None:
        self._learning_rate_tensor = convert_to_tensor(
            self._call_if_callable(self._learning_rate), name="learning_rate"
        )


@export("train.MomentumOptimizer")
class MomentumOptimizer(Optimizer):
    """accumulation = momentum * accumulation + grad; var -= learning_rate * accumulation."""

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._use_nesterov = use_nesterov

    def _create_slots(self, var_list: list[Any]) -> None:
        for v in var_list:
            self._zeros_slot(v, "momentum", self._name)

    def _prepare(self) -> None:
        self._learning_rate_tensor = convert_to_tensor(
            self._call_if_callable(self._learning_rate), name="learning_rate"
        )
        self._momentum_tensor = convert_to_tensor(self._call_if_callable(self._momentum), name="momentum")

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        slot = self.get_slot(var, "momentum")
        rate, momentum = self._cast(self._learning_rate_tensor, var), self._cast(self._momentum_tensor, var)
        return self._training_op("ApplyMomentum", var, [slot], rate, grad, momentum, use_nesterov=self._use_nesterov)

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Any:
        return self._apply_dense(grad, handle)

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        slot = self.get_slot(handle, "momentum")
        rate, momentum = self._cast(self._learning_rate_tensor, handle), self._cast(self._momentum_tensor, handle)
        return self._training_op(
            "SparseApplyMomentum", handle, [slot], rate, grad, indices, momentum, use_nesterov=self._use_nesterov
        )


@export("train.ProximalGradientDescentOptimizer")
class ProximalGradientDescentOptimizer(Optimizer):
    """Gradient descent with L1 and L2 regularization applied as a shrinking step."""

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _prepare(self) -> None:
        self._learning_rate_tensor = convert_to_tensor(self._learning_rate, name="learning_rate")
        self._l1_tensor = convert_to_tensor(self._l1_regularization_strength, name="l1_regularization_strength")
        self._l2_tensor = convert_to_tensor(self._l2_regularization_strength, name="l2_regularization_strength")

    def _numbers(self, var: Any) -> list[Any]:
        return [self._cast(t, var) for t in (self._learning_rate_tensor, self._l1_tensor, self._l2_tensor)]

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        return self._training_op("ApplyProximalGradientDescent", var, [], *self._numbers(var), grad)

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Any:
        return self._apply_dense(grad, handle)

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        return self._training_op(
            "SparseApplyProximalGradientDescent", handle, [], *self._numbers(handle), grad, indices
        )
