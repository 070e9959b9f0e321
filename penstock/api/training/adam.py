"""Adam."""

from __future__ import annotations

from typing import Any

from penstock.api.export import export, resolve
from penstock.api.training.optimizer import Optimizer
from penstock.graph.composite import IndexedSlices
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


@export("train.AdamOptimizer")
class AdamOptimizer(Optimizer):
    """Adam: steps by running averages of gradients and of their squares, corrected for their start at zero.

    Sparse gradients are applied as if they were dense: the averages of all rows decay in every step.
    """

    def __init__(self, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999, epsilon: Any = 1e-08, use_locking: bool = False,
                 name: str = "Adam") -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon

    def _get_beta_accumulators(self) -> tuple[Any, Any]:
        graph = get_default_graph()
        return self._get_non_slot_variable("beta1_power", graph), self._get_non_slot_variable("beta2_power", graph)

    def _create_slots(self, var_list: list[Any]) -> None:
        # The powers live beside the variable whose name comes first, so that the choice does not depend on the list's order.
        first = min(var_list, key=lambda v: v.name)
        self._create_non_slot_variable(self._call_if_callable(self._beta1), "beta1_power", first)
        self._create_non_slot_variable(self._call_if_callable(self._beta2), "beta2_power", first)
        for v in var_list:
            self._zeros_slot(v, "m", self._name)
            self._zeros_slot(v, "v", self._name)

    def _prepare(self) -> None:
        self._lr_t = convert_to_tensor(self._call_if_callable(self._lr), name="learning_rate")
        self._beta1_t = convert_to_tensor(self._call_if_callable(self._beta1), name="beta1")
        self._beta2_t = convert_to_tensor(self._call_if_callable(self._beta2), name="beta2")
        self._epsilon_t = convert_to_tensor(self._call_if_callable(self._epsilon), name="epsilon")

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        numbers = [
            self._cast(t, var)
            for t in (*self._get_beta_accumulators(), self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        ]
        return self._training_op("ApplyAdam", var, [self.get_slot(var, "m"), self.get_slot(var, "v")], *numbers, grad)

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Any:
        return self._apply_dense(grad, handle)

    def _apply_sparse_shared(self, grad: Tensor, var: Any, indices: Tensor, scatter_add: Any) -> Any:
        beta1_power, beta2_power = (self._cast(p, var) for p in self._get_beta_accumulators())
        lr, beta1, beta2, epsilon = (
            self._cast(t, var) for t in (self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        )
        rate = lr * raw.Sqrt(1 - beta2_power) / (1 - beta1_power)
        graph = get_default_graph()
        m = self.get_slot(var, "m")
        scaled = grad * (1 - beta1)
        m_t = resolve("assign")(m, m * beta1, use_locking=self._use_locking)
        with graph.control_dependencies([m_t]):
            m_t = scatter_add(m, indices, scaled)
        v = self.get_slot(var, "v")
        scaled = (grad * grad) * (1 - beta2)
        v_t = resolve("assign")(v, v * beta2, use_locking=self._use_locking)
        with graph.control_dependencies([v_t]):
            v_t = scatter_add(v, indices, scaled)
        root = raw.Sqrt(v_t)
        update = resolve("assign_sub")(var, rate * m_t / (root + epsilon), use_locking=self._use_locking)
        return resolve("group")(*[update, m_t, v_t])

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        def scatter_add(x: Any, i: Tensor, v: Tensor) -> Any:
            return resolve("scatter_add")(x, i, v, use_locking=self._use_locking)

        return self._apply_sparse_shared(grad.values, var, grad.indices, scatter_add)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        def scatter_add(x: Any, i: Tensor, v: Tensor) -> Any:
            with get_default_graph().control_dependencies([raw.ResourceScatterAdd(x.handle, i, v)]):
                return x.value()

        return self._apply_sparse_shared(grad, handle, indices, scatter_add)

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        graph = get_default_graph()
        with graph.control_dependencies(update_ops):
            beta1_power, beta2_power = self._get_beta_accumulators()
            with graph.colocate_with(beta1_power.op):
                first = beta1_power.assign(beta1_power * self._beta1_t, use_locking=self._use_locking)
                second = beta2_power.assign(beta2_power * self._beta2_t, use_locking=self._use_locking)
        return resolve("group")(*[*update_ops, first, second], name=name_scope)
