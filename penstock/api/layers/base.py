"""tf.layers.Layer: what all layers share.

A layer finds its variable scope when it is first called (then `built` is False, and `build` makes the variables); later calls
find the same variables. Its state: `_scope`, the captured VariableScope, None before the first call; `_base_name`, what the
scope is called unless a name was given; `_reuse`, the `reuse` argument of the functional form; `_trainable_weights` and
`_non_trainable_weights`, in the order of creation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api import array_ops, math_ops
from penstock.api.framework import name_scope
from penstock.api.variable_scope import VariableScope, get_variable, variable_scope
from penstock.api.variables import Variable
from penstock.graph import nest
from penstock.graph.composite import SparseTensor
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.keys import GraphKeys
from penstock.shapes import TensorShape, as_shape


class InputSpec:
    """What a layer expects of an input: its rank, bounds of its rank, sizes of some axes."""

    def __init__(
        self, dtype: Any = None, shape: Any = None, ndim: int | None = None, max_ndim: int | None = None, min_ndim: int | None = None,
        axes: dict[int, Any] | None = None,
    ) -> None:  # fmt: skip
        self.dtype = None if dtype is None else dtypes.as_dtype(dtype).name
        self.shape = shape
        self.ndim = len(shape) if shape is not None else ndim
        self.max_ndim = max_ndim
        self.min_ndim = min_ndim
        self.axes = axes or {}

    def check(self, x: Any, layer: str, index: int) -> None:
        """ValueError if `x` does not fit."""
        start = f"Input {index} of layer {layer} is incompatible with the layer: "
        dims = x.shape.as_list() if x.shape.dims is not None else None
        if dims is None:
            if self.ndim is not None or self.min_ndim is not None or self.max_ndim is not None:
                raise ValueError(f"{start}its rank is undefined, but the layer requires a defined rank.")
            return
        rank = len(dims)
        if self.ndim is not None and rank != self.ndim:
            raise ValueError(f"{start}expected ndim={self.ndim}, found ndim={rank}. Full shape received: {dims}")
        if self.max_ndim is not None and rank > self.max_ndim:
            raise ValueError(f"{start}expected max_ndim={self.max_ndim}, found ndim={rank}")
        if self.min_ndim is not None and rank < self.min_ndim:
            raise ValueError(f"{start}: expected min_ndim={self.min_ndim}, found ndim={rank}. Full shape received: {dims}")
        for axis, size in self.axes.items():
            if size is not None and dims[int(axis)] not in (size, None):
                raise ValueError(f"{start}expected axis {axis} of input shape to have value {size} but received input with shape {dims}")

    def __repr__(self) -> str:
        parts = [f"{key}={value}" for key, value in vars(self).items() if value not in (None, {})]
        return f"InputSpec({', '.join(parts)})"


def snake_case(name: str) -> str:
    """BasicLSTMCell -> basic_lstm_cell."""
    text = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    text = re.sub(r"([a-z])([A-Z])", r"\1_\2", text).lower()
    return "private" + text if text.startswith("_") else text


def _unique_object_name(base: str) -> str:
    """dense_1, dense_2, ...: names of layers (not of their variables), counted per graph."""
    graph = get_default_graph()
    counts: dict[str, int] = graph.__dict__.setdefault("_layer_names", {}) if hasattr(graph, "__dict__") else {}
    counts[base] = counts.get(base, 0) + 1
    return f"{base}_{counts[base]}"


class Layer:
    """The base class of layers. Subclasses make variables in `build(input_shape)` with `add_weight` and compute in `call(inputs)`."""

    def __init__(self, trainable: bool = True, name: Any = None, dtype: Any = None, **kwargs: Any) -> None:
        scope = kwargs.pop("_scope", None)
        self._reuse = kwargs.pop("_reuse", None)
        activity_regularizer = kwargs.pop("activity_regularizer", None)
        if kwargs:
            raise TypeError("Keyword argument not understood:", next(iter(kwargs)))
        base = snake_case(type(self).__name__)
        if isinstance(name, VariableScope):
            self._name, self._base_name = _unique_object_name(base), name.name
        elif name:
            self._name = self._base_name = name
        else:
            self._name, self._base_name = _unique_object_name(base), base
        self.trainable = trainable
        self.built = False
        self.input_spec: Any = None
        self._activity_regularizer = activity_regularizer
        self._dtype = None if dtype is None else dtypes.as_dtype(dtype).base_dtype.name
        self._graph = get_default_graph()
        self._trainable_weights: list[Any] = []
        self._non_trainable_weights: list[Any] = []
        self._updates: list[Any] = []
        self._losses: list[Any] = []
        self._current_scope: Any = None
        self._scope: Any = None
        if scope:
            with variable_scope(scope) as captured:
                self._scope = captured

    # -- names --------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    @property
    def scope_name(self) -> str:
        """The name of the variable scope; known once the layer has been called."""
        if self._scope is None:
            raise ValueError(
                f'No name available for layer scope because the layer "{self._name}" has not been used yet. The scope name is determined '
                "the first time the layer instance is called. You must therefore call the layer before querying `scope_name`."
            )
        return self._scope.name

    @property
    def graph(self) -> Any:
        return self._graph

    @property
    def dtype(self) -> str | None:
        return self._dtype

    @property
    def activity_regularizer(self) -> Any:
        return self._activity_regularizer

    def _set_scope(self, scope: Any = None) -> None:
        if self._scope is None:
            if self._reuse:
                with variable_scope(scope if scope is not None else self._base_name) as captured:
                    self._scope = captured
            else:
                with variable_scope(scope, default_name=self._base_name) as captured:
                    self._scope = captured

    def _name_scope(self) -> str:
        return self._current_scope.original_name_scope

    # -- variables ----------------------------------------------------------------------------------------------------

    def add_weight(
        self, name: str, shape: Any, dtype: Any = None, initializer: Any = None, regularizer: Any = None, trainable: bool | None = None,
        constraint: Any = None, use_resource: bool | None = None, synchronization: Any = None, aggregation: Any = None, partitioner: Any = None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """A variable of the layer, made or, where the scope says so, found."""
        dtype = dtypes.as_dtype(dtype or self._dtype or dtypes.float32)
        trainable = True if trainable is None else trainable
        self._set_scope(None)
        reuse = self.built or self._reuse
        known = {id(v) for v in get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES)}
        options: dict[str, Any] = {}
        if synchronization is not None:
            options["synchronization"] = synchronization
        if aggregation is not None:
            options["aggregation"] = aggregation
        with variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as scope:
            self._current_scope = scope
            with name_scope(self._name_scope()):
                variable = get_variable(
                    name, shape=as_shape(shape), dtype=dtype, initializer=initializer, trainable=trainable and self.trainable,
                    constraint=constraint, use_resource=use_resource, partitioner=partitioner, **options,
                )  # fmt: skip
                if regularizer is not None and not ({id(v) for v in _pieces(variable)} <= known):
                    self._regularize(name, variable, regularizer)
        if trainable:
            self._trainable_weights.append(variable)
        else:
            self._non_trainable_weights.append(variable)
        return variable

    add_variable = add_weight

    def _regularize(self, name: str, variable: Any, regularizer: Callable[[Any], Any]) -> None:
        def loss_of(part: Any) -> Any:
            with name_scope(name + "/Regularizer"):
                return regularizer(part)

        for piece in _pieces(variable):
            self.add_loss(loss_of(piece))

    @property
    def trainable_weights(self) -> list[Any]:
        return _all_pieces(self._trainable_weights) if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Any]:
        if self.trainable:
            return _all_pieces(self._non_trainable_weights)
        return _all_pieces(self._trainable_weights) + _all_pieces(self._non_trainable_weights)

    @property
    def weights(self) -> list[Any]:
        return self.trainable_weights + self.non_trainable_weights

    @property
    def variables(self) -> list[Any]:
        return self.weights

    @property
    def trainable_variables(self) -> list[Any]:
        return self.trainable_weights

    @property
    def non_trainable_variables(self) -> list[Any]:
        return self.non_trainable_weights

    def count_params(self) -> int:
        """How many numbers the variables hold."""
        if not self.built:
            raise ValueError(f'You tried to call `count_params` on {self.name}, but the layer isn\'t built.')
        return int(sum(np.prod(v.shape.as_list()) for v in self.weights))

    # -- losses and updates -------------------------------------------------------------------------------------------

    def add_loss(self, losses: Any, inputs: Any = None) -> None:
        """Adds losses to the layer and to the collection of regularization losses."""
        found = [loss() if callable(loss) else loss for loss in nest.flatten(losses) if loss is not None]
        self._losses += found
        _collect(found, GraphKeys.REGULARIZATION_LOSSES)

    def add_update(self, updates: Any, inputs: Any = None) -> None:
        """Adds ops that training must run to the layer and to the collection `tf.GraphKeys.UPDATE_OPS`."""
        found = [u() if callable(u) else u for u in nest.flatten(updates) if u is not None]
        self._updates += found
        _collect(found, GraphKeys.UPDATE_OPS)

    @property
    def losses(self) -> list[Any]:
        return list(self._losses)

    @property
    def updates(self) -> list[Any]:
        return list(self._updates) if self.trainable else []

    # -- calling ------------------------------------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Makes the variables; called once, with the shape of the first input."""
        self.built = True

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Computes the outputs."""
        return inputs

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The shape of the outputs for a shape of inputs."""
        raise NotImplementedError

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        scope = kwargs.pop("scope", None)
        if isinstance(scope, VariableScope) or scope is None:
            self._set_scope(scope)
        else:
            self._set_scope(str(scope))
        # Once built, variables are only ever found again.
        reuse = True if self.built else self._reuse
        with variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as current:
            self._current_scope = current
            inputs = nest.map_structure(_as_tensor, inputs)
            flat = [x for x in nest.flatten(inputs) if hasattr(x, "shape")]
            with name_scope(self._name_scope()):
                self._check_inputs(flat)
                if not self.built:
                    if self._dtype is None and flat:
                        self._dtype = flat[0].dtype.base_dtype.name
                    shapes = nest.map_structure(lambda x: x.shape, inputs) if flat else None
                    self.build(shapes)
                    self.built = True
                    self._check_inputs(flat)
                outputs = self.call(inputs, *args, **kwargs)
                self._regularize_activity(outputs)
        return outputs

    def apply(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The same as calling the layer."""
        return self(inputs, *args, **kwargs)

    def _check_inputs(self, inputs: list[Any]) -> None:
        if self.input_spec is None:
            return
        specs = self.input_spec if isinstance(self.input_spec, (list, tuple)) else [self.input_spec]
        for i, (x, spec) in enumerate(zip(inputs, specs, strict=False)):
            spec.check(x, self.name, i)

    def _regularize_activity(self, outputs: Any) -> None:
        if self._activity_regularizer is None:
            return
        with name_scope("ActivityRegularizer"):
            for output in nest.flatten(outputs):
                loss = self._activity_regularizer(output)
                batch = math_ops.cast(array_ops.shape(output)[0], loss.dtype)
                self.add_loss(loss / batch)


def _as_tensor(x: Any) -> Any:
    if isinstance(x, (Tensor, SparseTensor)) or x is None:
        return x
    if isinstance(x, (np.ndarray, np.generic, float, int, Variable)):
        return convert_to_tensor(x)
    return x


def _pieces(variable: Any) -> list[Any]:
    """A variable, or the parts of a partitioned one."""
    return list(variable) if hasattr(variable, "_get_partitions") or type(variable).__name__ == "PartitionedVariable" else [variable]


def _all_pieces(variables: list[Any]) -> list[Any]:
    return [piece for variable in variables for piece in _pieces(variable)]


def _collect(items: list[Any], key: str) -> None:
    graph = get_default_graph()
    present = {id(x) for x in graph.get_collection(key)}
    for item in items:
        if id(item) not in present:
            graph.add_to_collection(key, item)
