"""Cells around cells: DropoutWrapper, ResidualWrapper, DeviceWrapper. They add no variables and no scope of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from penstock.api import array_ops, math_ops, random_ops
from penstock.api.framework import device as device_scope
from penstock.api.framework import name_scope
from penstock.api.nn.activations import dropout
from penstock.api.rnn import parts
from penstock.api.rnn.cells import LSTMStateTuple, RNNCell
from penstock.api.tensor_array import TensorArray
from penstock.graph import nest
from penstock.graph.constant import constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw
from penstock.shapes import as_shape


class _Wrapper(RNNCell):
    """A cell that is another cell, with something done to its inputs, outputs or states."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        parts.assert_like_rnncell("cell", cell)
        self.cell = cell
        self._cell = cell

    @property
    def wrapped_cell(self) -> Any:
        return self.cell

    @property
    def state_size(self) -> Any:
        return self.cell.state_size

    @property
    def output_size(self) -> Any:
        return self.cell.output_size

    def build(self, input_shape: Any) -> None:
        self.cell.build(input_shape)
        self.built = True

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        with name_scope(type(self).__name__ + "ZeroState", values=[batch_size]):
            return self.cell.zero_state(batch_size, dtype)

    @property
    def trainable_weights(self) -> list[Any]:
        return self.cell.trainable_weights

    @property
    def non_trainable_weights(self) -> list[Any]:
        return self.cell.non_trainable_weights

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        return self._wrapped(inputs, state, scope)

    def _wrapped(self, inputs: Any, state: Any, scope: Any) -> tuple[Any, Any]:
        raise NotImplementedError


def _default_filter(substate: Any) -> Any:
    """What of a state is dropped: all but the memory of LSTMs and TensorArrays."""
    if isinstance(substate, LSTMStateTuple):
        return LSTMStateTuple(c=False, h=True)
    return not isinstance(substate, TensorArray)


def _walk_down(visit: Callable[[Any], Any], structure: Any) -> Any:
    """`visit` on each part of a structure; where it gives True or False (or a structure of them), that holds for all below."""
    wanted = visit(structure)
    if isinstance(wanted, bool):
        if not wanted or not nest.is_nested(structure):
            return nest.map_structure(lambda _: wanted, structure)
        if isinstance(structure, LSTMStateTuple):
            return nest.map_structure(lambda _: wanted, structure)
        children = [_walk_down(visit, child) for child in (structure.values() if isinstance(structure, dict) else structure)]
        return _rebuilt(structure, children)
    return wanted


def _rebuilt(like: Any, children: list[Any]) -> Any:
    if hasattr(like, "_fields"):
        return type(like)(*children)
    if isinstance(like, dict):
        return dict(zip(like, children, strict=True))
    return type(like)(children)


class DropoutWrapper(_Wrapper):
    """Dropout on the inputs, outputs and states of a cell; each keep probability is a number or a tensor.

    With `variational_recurrent` the same elements are dropped at every step, which needs `dtype`, and `input_size` for inputs.
    """

    def __init__(
        self, cell: Any, input_keep_prob: Any = 1.0, output_keep_prob: Any = 1.0, state_keep_prob: Any = 1.0, variational_recurrent: bool = False,
        input_size: Any = None, dtype: Any = None, seed: int | None = None, dropout_state_filter_visitor: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(cell)
        if dropout_state_filter_visitor is not None and not callable(dropout_state_filter_visitor):
            raise TypeError("dropout_state_filter_visitor must be callable")
        self._filter = dropout_state_filter_visitor or _default_filter
        self._seed = seed
        self._variational = variational_recurrent
        self._keep: dict[str, Any] = {}
        for name, prob in (("input", input_keep_prob), ("state", state_keep_prob), ("output", output_keep_prob)):
            value = constant_value(prob) if isinstance(prob, Tensor) else prob
            if value is not None and not 0.0 <= float(value) <= 1.0:
                raise ValueError(f"Parameter {name}_keep_prob must be between 0 and 1: {value}")
            self._keep[name] = prob if value is None else float(value)
        self._noise: dict[str, Any] = {}
        if variational_recurrent:
            self._make_noise(dtype, input_size)

    def _make_noise(self, dtype: Any, input_size: Any) -> None:
        if dtype is None:
            raise ValueError("When variational_recurrent=True, dtype must be provided")

        def noise(size: Any, salt: str, index: int) -> Tensor:
            shape = array_ops.concat(([1], as_shape(size).as_list()), 0)
            return random_ops.random_uniform(shape, seed=self._gen_seed(salt, index), dtype=dtype)

        def structure(sizes: Any, salt: str) -> Any:
            flat = [noise(size, salt, i) for i, size in enumerate(nest.flatten(sizes))]
            return nest.pack_sequence_as(sizes, flat)

        if self._drops("input"):
            if input_size is None:
                raise ValueError("When variational_recurrent=True and input_keep_prob < 1.0 or is unknown, input_size must be provided")
            self._noise["input"] = structure(input_size, "input")
        self._noise["state"] = structure(self.cell.state_size, "state")
        self._noise["output"] = structure(self.cell.output_size, "output")

    def _gen_seed(self, salt_prefix: str, index: int) -> int | None:
        if self._seed is None:
            return None
        text = f"{self._seed}{salt_prefix}_{index}".encode()
        return int(hashlib.md5(text).hexdigest()[:8], 16) & 0x7FFFFFFF

    def _drops(self, what: str) -> bool:
        prob = self._keep[what]
        return not isinstance(prob, float) or prob < 1

    def _dropped(self, values: Any, salt: str, what: str, keep: Any = None) -> Any:
        keep_prob = self._keep[what]
        flat = nest.flatten(values)
        wanted = nest.flatten(keep) if keep is not None else [True] * len(flat)
        if self._variational:
            noise = nest.flatten(self._noise[what])
            flat = [self._with_noise(v, n, keep_prob) if w else v for v, n, w in zip(flat, noise, wanted, strict=True)]
        else:
            flat = [
                dropout(v, rate=1.0 - keep_prob, seed=self._gen_seed(salt, i)) if w else v
                for i, (v, w) in enumerate(zip(flat, wanted, strict=True))
            ]
        return nest.pack_sequence_as(values, flat)

    @staticmethod
    def _with_noise(value: Any, noise: Tensor, keep_prob: Any) -> Tensor:
        value = convert_to_tensor(value)
        kept = math_ops.divide(value, keep_prob) * raw.Floor(keep_prob + noise)
        kept.set_shape(value.shape)
        return kept

    def _wrapped(self, inputs: Any, state: Any, scope: Any) -> tuple[Any, Any]:
        if self._drops("input"):
            inputs = self._dropped(inputs, "input", "input")
        output, new_state = self.cell(inputs, state, scope=scope) if scope is not None else self.cell(inputs, state)
        if self._drops("state"):
            new_state = self._dropped(new_state, "state", "state", _walk_down(self._filter, new_state))
        if self._drops("output"):
            output = self._dropped(output, "output", "output")
        return output, new_state


class ResidualWrapper(_Wrapper):
    """Adds a cell's inputs to its outputs, or joins them by `residual_fn(inputs, outputs)`."""

    def __init__(self, cell: Any, residual_fn: Callable[[Any, Any], Any] | None = None) -> None:
        super().__init__(cell)
        self._residual_fn = residual_fn

    def _wrapped(self, inputs: Any, state: Any, scope: Any) -> tuple[Any, Any]:
        outputs, new_state = self.cell(inputs, state, scope=scope) if scope is not None else self.cell(inputs, state)

        def add(x: Any, y: Any) -> Any:
            x.shape.assert_is_compatible_with(y.shape)
            return x + y

        def default(x: Any, y: Any) -> Any:
            nest.assert_same_structure(x, y)
            return nest.map_structure(add, x, y)

        return (self._residual_fn or default)(inputs, outputs), new_state


class DeviceWrapper(_Wrapper):
    """A cell whose ops stand on a device."""

    def __init__(self, cell: Any, device: Any) -> None:
        super().__init__(cell)
        self._device = device

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        with name_scope(type(self).__name__ + "ZeroState", values=[batch_size]), device_scope(self._device):
            return self.cell.zero_state(batch_size, dtype)

    def _wrapped(self, inputs: Any, state: Any, scope: Any) -> tuple[Any, Any]:
        with device_scope(self._device):
            return self.cell(inputs, state, scope=scope) if scope is not None else self.cell(inputs, state)
