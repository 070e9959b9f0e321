"""tf.nn.rnn_cell: RNNCell, BasicRNNCell, BasicLSTMCell, LSTMCell, GRUCell and MultiRNNCell, with TF 1.15's variable names.

A cell is a function `(inputs, state) -> (output, new state)` with variables: `kernel` takes inputs and state side by side. Called
by `tf.nn.dynamic_rnn`, a BasicLSTMCell makes "rnn/basic_lstm_cell/kernel" and "rnn/basic_lstm_cell/bias". TensorFlow 2.21 has
no `tf.nn.rnn_cell` without another package, so cells are tested on their own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock import dtypes
from penstock.api import array_ops, math_ops
from penstock.api.clip_ops import clip_by_value
from penstock.api.framework import name_scope
from penstock.api.initializers import Constant, Zeros
from penstock.api.layers.base import InputSpec, Layer
from penstock.api.nn.activations import bias_add
from penstock.api.partitioned import fixed_size_partitioner
from penstock.api.rnn import parts
from penstock.api.variable_scope import get_variable_scope, variable_scope
from penstock.graph import nest
from penstock.graph.constant import constant
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

KERNEL = "kernel"
BIAS = "bias"


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM: `c`, what it remembers, and `h`, what it last put out."""

    c: Any
    h: Any

    @property
    def dtype(self) -> Any:
        if self.c.dtype != self.h.dtype:
            raise TypeError(f"Inconsistent internal state: {self.c.dtype} vs {self.h.dtype}")
        return self.c.dtype


def _zeros_of_size(size: Any, batch_size: Any, dtype: Any) -> Any:
    def zeros(s: Any) -> Tensor:
        full = parts.join_shapes(batch_size, s)
        value = array_ops.zeros(full, dtype=dtype)
        value.set_shape(parts.join_shapes(batch_size, s, static=True))
        return value

    return nest.map_structure(zeros, size)


class RNNCell(Layer):
    """The base class of cells. Subclasses have `state_size`, `output_size`, and either `call(inputs, state)` or `__call__`."""

    def __init__(self, trainable: bool = True, name: str | None = None, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(trainable=trainable, name=name, dtype=dtype, **kwargs)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> tuple[Any, Any]:
        """(output, new state) for one step; variables are made in `scope`, by default one named after the class."""
        if scope is not None:
            with variable_scope(scope, custom_getter=self._remember) as opened:
                return super().__call__(inputs, state, scope=opened)
        with variable_scope(get_variable_scope(), custom_getter=self._remember):
            return super().__call__(inputs, state)

    def _remember(self, getter: Any, *args: Any, **kwargs: Any) -> Any:
        """Variables that `call` gets become the layer's."""
        variable = getter(*args, **kwargs)
        known = self._trainable_weights if getattr(variable, "trainable", True) else self._non_trainable_weights
        if all(variable is not other for other in known):
            known.append(variable)
        return variable

    @property
    def state_size(self) -> Any:
        """The size(s) of the state: numbers, shapes, or tuples of them."""
        raise NotImplementedError("Abstract method")

    @property
    def output_size(self) -> Any:
        """The size of the output: a number or a shape."""
        raise NotImplementedError("Abstract method")

    def build(self, input_shape: Any) -> None:
        self.built = True

    def get_initial_state(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
        """The zero state for a batch like `inputs`, or of this size and type."""
        if inputs is not None:
            inputs = convert_to_tensor(inputs, name="inputs")
            batch_size = inputs.shape.as_list()[0] if inputs.shape.dims and inputs.shape.as_list()[0] is not None else array_ops.shape(inputs)[0]
            dtype = inputs.dtype
        if batch_size is None or dtype is None:
            raise ValueError(
                f"batch_size and dtype cannot be None while constructing initial state: batch_size={batch_size}, dtype={dtype}"
            )
        return self.zero_state(batch_size, dtype)

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """The state filled with zeros."""
        with name_scope(type(self).__name__ + "ZeroState", values=[batch_size]):
            return _zeros_of_size(self.state_size, batch_size, dtype)


class _LayerCell(RNNCell):
    """A cell that makes its variables in `build`, as layers do."""

    def __call__(self, inputs: Any, state: Any, scope: Any = None, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return Layer.__call__(self, inputs, state, *args, scope=scope, **kwargs)

    def _input_size(self, inputs_shape: Any) -> int:
        size = inputs_shape.as_list()[-1] if inputs_shape.dims is not None else None
        if size is None:
            raise ValueError(f"Expected inputs.shape[-1] to be known, saw shape: {inputs_shape}")
        return size


def _activation(given: Any, default: Any) -> Any:
    if given is None:
        return default
    if isinstance(given, str):
        from penstock.api.export import resolve

        return resolve("nn." + given)
    return given


class BasicRNNCell(_LayerCell):
    """output = state = activation(W [inputs, state] + b), with tanh by default."""

    def __init__(self, num_units: int, activation: Any = None, reuse: Any = None, name: str | None = None, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self.input_spec = InputSpec(ndim=2)
        self._num_units = num_units
        self._activation = _activation(activation, math_ops.tanh)

    @property
    def state_size(self) -> int:
        return self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def build(self, input_shape: Any) -> None:
        depth = self._input_size(input_shape)
        self._kernel = self.add_variable(KERNEL, shape=[depth + self._num_units, self._num_units])
        self._bias = self.add_variable(BIAS, shape=[self._num_units], initializer=Zeros(dtype=self.dtype))
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        gates = raw.MatMul(array_ops.concat([inputs, state], 1), self._kernel)
        output = self._activation(bias_add(gates, self._bias))
        return output, output


class GRUCell(_LayerCell):
    """The gated recurrent unit of Cho et al. Variables: gates/kernel, gates/bias, candidate/kernel, candidate/bias."""

    def __init__(
        self, num_units: int, activation: Any = None, reuse: Any = None, kernel_initializer: Any = None, bias_initializer: Any = None,
        name: str | None = None, dtype: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self.input_spec = InputSpec(ndim=2)
        self._num_units = num_units
        self._activation = _activation(activation, math_ops.tanh)
        self._kernel_initializer = kernel_initializer
        self._bias_initializer = bias_initializer

    @property
    def state_size(self) -> int:
        return self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def build(self, input_shape: Any) -> None:
        depth = self._input_size(input_shape) + self._num_units
        # Gates start open, so that the first steps of training change the state little.
        gate_bias = self._bias_initializer or Constant(1.0, dtype=self.dtype)
        candidate_bias = self._bias_initializer or Zeros(dtype=self.dtype)
        self._gate_kernel = self.add_variable("gates/" + KERNEL, shape=[depth, 2 * self._num_units], initializer=self._kernel_initializer)
        self._gate_bias = self.add_variable("gates/" + BIAS, shape=[2 * self._num_units], initializer=gate_bias)
        self._candidate_kernel = self.add_variable("candidate/" + KERNEL, shape=[depth, self._num_units], initializer=self._kernel_initializer)
        self._candidate_bias = self.add_variable("candidate/" + BIAS, shape=[self._num_units], initializer=candidate_bias)
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        gates = bias_add(raw.MatMul(array_ops.concat([inputs, state], 1), self._gate_kernel), self._gate_bias)
        reset, update = array_ops.split(value=math_ops.sigmoid(gates), num_or_size_splits=2, axis=1)
        candidate = raw.MatMul(array_ops.concat([inputs, reset * state], 1), self._candidate_kernel)
        candidate = self._activation(bias_add(candidate, self._candidate_bias))
        new = update * state + (1 - update) * candidate
        return new, new


class BasicLSTMCell(_LayerCell):
    """An LSTM without extras. The state is an LSTMStateTuple (c, h), or with `state_is_tuple=False` both side by side."""

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, state_is_tuple: bool = True, activation: Any = None, reuse: Any = None,
        name: str | None = None, dtype: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self.input_spec = InputSpec(ndim=2)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple
        self._activation = _activation(activation, math_ops.tanh)

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self._num_units) if self._state_is_tuple else 2 * self._num_units

    @property
    def output_size(self) -> int:
        return self._num_units

    def build(self, input_shape: Any) -> None:
        depth = self._input_size(input_shape)
        self._kernel = self.add_variable(KERNEL, shape=[depth + self._num_units, 4 * self._num_units])
        self._bias = self.add_variable(BIAS, shape=[4 * self._num_units], initializer=Zeros(dtype=self.dtype))
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        one = constant(1, dtype=dtypes.int32)
        c, h = state if self._state_is_tuple else array_ops.split(value=state, num_or_size_splits=2, axis=one)
        gates = bias_add(raw.MatMul(array_ops.concat([inputs, h], 1), self._kernel), self._bias)
        # i: input gate, j: new input, f: forget gate, o: output gate.
        i, j, f, o = array_ops.split(value=gates, num_or_size_splits=4, axis=one)
        forget_bias = constant(self._forget_bias, dtype=f.dtype)
        kept = raw.Mul(c, math_ops.sigmoid(math_ops.add(f, forget_bias)))
        new_c = math_ops.add(kept, raw.Mul(math_ops.sigmoid(i), self._activation(j)))
        new_h = raw.Mul(self._activation(new_c), math_ops.sigmoid(o))
        new = LSTMStateTuple(new_c, new_h) if self._state_is_tuple else array_ops.concat([new_c, new_h], 1)
        return new_h, new


class LSTMCell(_LayerCell):
    """An LSTM with peepholes (`use_peepholes`), clipping (`cell_clip`) and a projection of the output (`num_proj`, `proj_clip`).

    Variables: kernel, bias, with peepholes w_f_diag, w_i_diag, w_o_diag, with a projection projection/kernel.
    """

    def __init__(
        self, num_units: int, use_peepholes: bool = False, cell_clip: float | None = None, initializer: Any = None, num_proj: int | None = None,
        proj_clip: float | None = None, num_unit_shards: int | None = None, num_proj_shards: int | None = None, forget_bias: float = 1.0,
        state_is_tuple: bool = True, activation: Any = None, reuse: Any = None, name: str | None = None, dtype: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse, name=name, dtype=dtype, **kwargs)
        self.input_spec = InputSpec(ndim=2)
        self._num_units = num_units
        self._use_peepholes = use_peepholes
        self._cell_clip = cell_clip
        self._initializer = initializer
        self._num_proj = num_proj
        self._proj_clip = proj_clip
        self._num_unit_shards = num_unit_shards
        self._num_proj_shards = num_proj_shards
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple
        self._activation = _activation(activation, math_ops.tanh)
        self._output_size = num_proj if num_proj else num_units

    @property
    def state_size(self) -> Any:
        if self._state_is_tuple:
            return LSTMStateTuple(self._num_units, self._output_size)
        return self._num_units + self._output_size

    @property
    def output_size(self) -> int:
        return self._output_size

    def build(self, input_shape: Any) -> None:
        depth = self._input_size(input_shape)
        shards = None if self._num_unit_shards is None else fixed_size_partitioner(self._num_unit_shards)
        self._kernel = self.add_variable(
            KERNEL, shape=[depth + self._output_size, 4 * self._num_units], initializer=self._initializer, partitioner=shards
        )
        self._bias = self.add_variable(BIAS, shape=[4 * self._num_units], initializer=Zeros(dtype=self.dtype))
        if self._use_peepholes:
            self._w_f_diag = self.add_variable("w_f_diag", shape=[self._num_units], initializer=self._initializer)
            self._w_i_diag = self.add_variable("w_i_diag", shape=[self._num_units], initializer=self._initializer)
            self._w_o_diag = self.add_variable("w_o_diag", shape=[self._num_units], initializer=self._initializer)
        if self._num_proj is not None:
            shards = None if self._num_proj_shards is None else fixed_size_partitioner(self._num_proj_shards)
            self._proj_kernel = self.add_variable(
                f"projection/{KERNEL}", shape=[self._num_units, self._num_proj], initializer=self._initializer, partitioner=shards
            )
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        sigmoid = math_ops.sigmoid
        if self._state_is_tuple:
            c_prev, m_prev = state
        else:
            c_prev = raw.Slice(state, [0, 0], [-1, self._num_units])
            m_prev = raw.Slice(state, [0, self._num_units], [-1, self._output_size])
        gates = bias_add(raw.MatMul(array_ops.concat([inputs, m_prev], 1), self._kernel), self._bias)
        i, j, f, o = array_ops.split(value=gates, num_or_size_splits=4, axis=1)
        if self._use_peepholes:
            kept = sigmoid(f + self._forget_bias + self._w_f_diag * c_prev) * c_prev
            c = kept + sigmoid(i + self._w_i_diag * c_prev) * self._activation(j)
        else:
            c = sigmoid(f + self._forget_bias) * c_prev + sigmoid(i) * self._activation(j)
        if self._cell_clip is not None:
            c = clip_by_value(c, -self._cell_clip, self._cell_clip)
        m = sigmoid(o + self._w_o_diag * c) * self._activation(c) if self._use_peepholes else sigmoid(o) * self._activation(c)
        if self._num_proj is not None:
            m = raw.MatMul(m, self._proj_kernel)
            if self._proj_clip is not None:
                m = clip_by_value(m, -self._proj_clip, self._proj_clip)
        return m, LSTMStateTuple(c, m) if self._state_is_tuple else array_ops.concat([c, m], 1)


class MultiRNNCell(RNNCell):
    """Cells on top of each other: each takes the output of the one below. Variables: multi_rnn_cell/cell_0/..."""

    def __init__(self, cells: Any, state_is_tuple: bool = True) -> None:
        super().__init__()
        if not cells:
            raise ValueError("Must specify at least one cell for MultiRNNCell.")
        if not nest.is_nested(cells):
            raise TypeError(f"cells must be a list or tuple, but saw: {cells}.")
        self._cells = list(cells)
        self._state_is_tuple = state_is_tuple
        if not state_is_tuple and any(nest.is_nested(c.state_size) for c in self._cells):
            raise ValueError(f"Some cells return tuples of states, but the flag state_is_tuple is not set.  State sizes are: {[c.state_size for c in self._cells]}")

    @property
    def state_size(self) -> Any:
        sizes = tuple(cell.state_size for cell in self._cells)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> Any:
        return self._cells[-1].output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        with name_scope(type(self).__name__ + "ZeroState", values=[batch_size]):
            if self._state_is_tuple:
                return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)
        return super().zero_state(batch_size, dtype)

    @property
    def trainable_weights(self) -> list[Any]:
        return [w for cell in self._cells if isinstance(cell, Layer) for w in cell.trainable_weights] if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Any]:
        found = [w for cell in self._cells if isinstance(cell, Layer) for w in cell.non_trainable_weights]
        if self.trainable:
            return found
        return [w for cell in self._cells if isinstance(cell, Layer) for w in cell.trainable_weights] + found

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        position = 0
        current = inputs
        new_states = []
        for i, cell in enumerate(self._cells):
            with variable_scope(f"cell_{i}"):
                if self._state_is_tuple:
                    if not nest.is_nested(state):
                        raise ValueError(f"Expected state to be a tuple of length {len(self.state_size)}, but received: {state}")
                    part = state[i]
                else:
                    part = raw.Slice(state, [0, position], [-1, cell.state_size])
                    position += cell.state_size
                current, new = cell(current, part)
                new_states.append(new)
        return current, tuple(new_states) if self._state_is_tuple else array_ops.concat(new_states, 1)
