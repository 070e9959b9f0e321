"""The variables that `tf.get_variable` has made in a graph, and the rules of making and sharing them.

State of a VariableStore
    variables              full name -> Variable
    partitioned            full name -> PartitionedVariable
    open_counts            how often a variable scope of that full name was entered, for unique default names
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api.export import export, export_value
from penstock.api.initializers import GlorotUniform, Zeros
from penstock.api.partitioned import PartitionedVariable
from penstock.api.variables import (
    Variable,
    VariableAggregation,
    VariableSynchronization,
    checked_options,
    lifted,
    make_variable,
)
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Graph, Tensor
from penstock.graph.keys import GraphKeys
from penstock.shapes import TensorShape, dims_of, is_fully_defined


class _ReuseMode(enum.Enum):
    AUTO_REUSE = 1


AUTO_REUSE = _ReuseMode.AUTO_REUSE
export_value("AUTO_REUSE", AUTO_REUSE)


class _PartitionInfo:
    """What an initializer is told of the part it initialises."""

    def __init__(self, full_shape: Any, var_offset: Any) -> None:
        self._full_shape = list(full_shape)
        self._var_offset = list(var_offset)

    @property
    def full_shape(self) -> list[int]:
        return self._full_shape

    @property
    def var_offset(self) -> list[int]:
        return self._var_offset

    def single_offset(self, shape: Any) -> int:
        """The offset along the one dimension that is split; 0 if none is."""
        axis = self.single_slice_dim(shape)
        return 0 if axis is None else self._var_offset[axis]

    def single_slice_dim(self, shape: Any) -> int | None:
        """The one dimension that is split, None if none is; ValueError if there are several."""
        shape = TensorShape(shape).as_list()
        if len(shape) != len(self._full_shape):
            raise ValueError(
                f"Expected equal length, but received shape={shape} of length {len(shape)} while self.full_shape={self._full_shape} is of length {len(self._full_shape)}."
            )
        axes = [i for i, (part, whole) in enumerate(zip(shape, self._full_shape, strict=True)) if part != whole]
        if len(axes) > 1:
            raise ValueError(
                f"Cannot use single_slice_dim() with shape={shape} and self.full_shape={self._full_shape} since slice dim could be either dimension {axes[0]} or {axes[1]}."
            )
        return axes[0] if axes else None


class VariableStore:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.variables: dict[str, Any] = {}
        self.partitioned: dict[str, PartitionedVariable] = {}
        self.open_counts: dict[str, int] = {}

    # -- unique names of scopes ---------------------------------------------------------------------------------------

    def open_scope(self, name: str) -> None:
        self.open_counts[name] = self.open_counts.get(name, 0) + 1

    def close_subscopes(self, name: str | None) -> None:
        """Forgets the counts of scopes below `name` (all, if None): entering it anew counts from the start."""
        for key in self.open_counts:
            if not name or key.startswith(name + "/"):
                self.open_counts[key] = 0

    def count(self, name: str) -> int:
        return self.open_counts.get(name, 0)

    # -- getting ------------------------------------------------------------------------------------------------------

    def get(self, name: str, custom_getter: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
        """The variable called `name`, found or made; see `tf.get_variable` for the arguments."""
        kwargs["synchronization"], kwargs["aggregation"], kwargs["trainable"] = checked_options(
            kwargs.get("synchronization"), kwargs.get("aggregation"), kwargs.get("trainable"), name
        )
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = dtypes.float32
        if isinstance(kwargs["dtype"], dtypes.DType) or not isinstance(kwargs["dtype"], dtypes.DType):
            kwargs["dtype"] = dtypes.as_dtype(kwargs["dtype"]).base_dtype
        if custom_getter is not None:
            options = {
                "getter": self._get, "name": name, "shape": kwargs.get("shape"), "dtype": kwargs["dtype"],
                "initializer": kwargs.get("initializer"), "regularizer": kwargs.get("regularizer"), "reuse": kwargs.get("reuse"),
                "trainable": kwargs["trainable"], "collections": kwargs.get("collections"), "caching_device": kwargs.get("caching_device"),
                "partitioner": kwargs.get("partitioner"), "validate_shape": kwargs.get("validate_shape", True),
                "use_resource": kwargs.get("use_resource"), "synchronization": kwargs["synchronization"], "aggregation": kwargs["aggregation"],
            }  # fmt: skip
            if _accepts(custom_getter, "constraint"):
                options["constraint"] = kwargs.get("constraint")
            return custom_getter(**options)
        return self._get(name, **kwargs)

    def _get(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = dtypes.float32,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        constraint: Any = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
    ) -> Any:
        common = dict(
            dtype=dtype, initializer=initializer, regularizer=regularizer, reuse=reuse, trainable=trainable, collections=collections,
            caching_device=caching_device, validate_shape=validate_shape, use_resource=use_resource, constraint=constraint,
            synchronization=synchronization, aggregation=aggregation,
        )  # fmt: skip
        if partitioner is not None:
            if not callable(partitioner):
                raise ValueError(f"Partitioner must be callable, but received: {partitioner}")
            with get_default_graph().name_scope(None):
                return self._get_partitioned(name, shape, partitioner, **common)
        if reuse is True and partitioner is None and name in self.partitioned:
            return self._get_partitioned(name, shape, None, **common)
        if f"{name}/part_0" in self.variables:
            raise ValueError(
                f"No partitioner was provided, but a partitioned version of the variable was found: {name}/part_0. Perhaps a variable of the "
                "same name was already created with partitioning?"
            )
        return self._get_single(name, shape, **common)

    def _get_single(self, name: str, shape: Any, dtype: Any, initializer: Any, regularizer: Any, reuse: Any, trainable: Any, collections: Any,
                    caching_device: Any, validate_shape: bool, use_resource: Any, constraint: Any, synchronization: Any, aggregation: Any,
                    partition_info: Any = None) -> Any:  # fmt: skip
        dtype = dtypes.as_dtype(dtype)
        constant_init = initializer is not None and not callable(initializer)
        if shape is not None:
            shape = TensorShape(shape)
            if constant_init:
                raise ValueError("If initializer is a constant, do not specify shape.")
        if name in self.variables:
            return self._found(name, shape, dtype, reuse)
        if reuse is True:
            raise ValueError(
                f"Variable {name} does not exist, or was not created with tf.get_variable(). Did you mean to set reuse=tf.AUTO_REUSE in VarScope?"
            )
        if initializer is None:
            initializer = default_initializer(name, dtype)
            if shape is None:
                raise ValueError(
                    f"Variable {name} did not get an initializer, so its `shape` argument must be specified."
                )
        first: Any
        variable_dtype: Any = dtype.base_dtype
        if not callable(initializer):
            first = initializer
            variable_dtype = None
        else:
            if inspect.isclass(initializer):
                initializer = initializer()
            if shape is not None and shape.is_fully_defined():
                # Partitioned variables tell initializers that want to know which part they make.
                extra = (
                    {"partition_info": partition_info}
                    if partition_info is not None and _accepts(initializer, "partition_info")
                    else {}
                )
                first = functools.partial(initializer, shape.as_list(), dtype=dtype, **extra)
            elif not _required_arguments(initializer):
                first = initializer
            else:
                raise ValueError(
                    "The initializer passed is not valid. It should be a callable with no arguments and the shape should not be provided or an "
                    "instance of `tf.keras.initializers.*' and `shape` should be fully defined."
                )
        with lifted():
            variable = make_variable(
                initial_value=first, name=name, trainable=trainable, collections=collections, caching_device=caching_device,
                dtype=variable_dtype, validate_shape=validate_shape, constraint=constraint, use_resource=use_resource,
                synchronization=synchronization, aggregation=aggregation, variable_def=None, expected_shape=None, import_scope=None, shape=None,
            )  # fmt: skip
        self.variables[name] = variable
        if regularizer is not None:
            self._regularize(name, variable, regularizer)
        return variable

    def _found(self, name: str, shape: TensorShape | None, dtype: dtypes.DType, reuse: Any) -> Any:
        variable = self.variables[name]
        if reuse is None or reuse is False:
            raise ValueError(
                f"Variable {name} already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in VarScope?{_origin(variable)}"
            )
        if shape is not None and not shape.is_compatible_with(variable.shape):
            raise ValueError(
                f"Trying to share variable {name}, but specified shape {shape} and found shape {variable.shape}."
            )
        if not dtype.is_compatible_with(variable.dtype):
            raise ValueError(
                f"Trying to share variable {name}, but specified dtype {dtype.name} and found dtype {variable.dtype.name}."
            )
        return variable

    @staticmethod
    def _regularize(name: str, variable: Any, regularizer: Callable[..., Any]) -> None:
        graph = variable.graph
        with graph.colocate_with(variable.op), graph.name_scope(name + "/Regularizer/"), lifted():
            loss = regularizer(variable)
        if loss is not None:
            graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)

    # -- partitioned variables ----------------------------------------------------------------------------------------

    def _get_partitioned(self, name: str, shape: Any, partitioner: Any, dtype: Any, initializer: Any, regularizer: Any, reuse: Any,
                         **common: Any) -> PartitionedVariable:  # fmt: skip
        constant_init = initializer is not None and not callable(initializer)
        if constant_init and isinstance(initializer, Tensor) and not initializer.shape.is_fully_defined():
            raise ValueError("Partitioned variables need an initializer of known shape.")
        whole = TensorShape(shape)
        if constant_init:
            whole = whole.merge_with(_shape_of(initializer))
        if name in self.partitioned:
            if reuse is None or reuse is False:
                raise ValueError(
                    f"Partitioned variable with name {name} already exists. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in VarScope?"
                )
            found = self.partitioned[name]
            if not whole.is_compatible_with(found.get_shape()):
                raise ValueError(
                    f"Trying to reuse partitioned variable {name}, but specified shape {whole} and found shape {found.get_shape()}."
                )
            if not dtypes.as_dtype(dtype).is_compatible_with(found.dtype):
                raise ValueError(
                    f"Trying to reuse partitioned variable {name}, but specified dtype {dtypes.as_dtype(dtype).name} and found dtype {found.dtype.name}."
                )
            if partitioner is not None and list(_partitions(partitioner, whole, dtype)) != list(
                found._get_partitions()
            ):
                raise ValueError(
                    f"Trying to reuse partitioned variable {name}, but specified partitions {_partitions(partitioner, whole, dtype)} and found partitions {found._get_partitions()}."
                )
            return found
        if reuse is True:
            raise ValueError(
                f"PartitionedVariable {name} does not exist, or was not created with tf.get_variable(). Did you mean to set reuse=False or reuse=tf.AUTO_REUSE in VarScope?"
            )
        dims = dims_of(whole)
        if not is_fully_defined(dims):
            raise ValueError(
                f"Shape of a new partitioned variable ({name}) must be fully defined, but instead was {whole}."
            )
        partitions = _partitions(partitioner, whole, dtype)
        sizes = list(dims)
        if (
            f"{name}/part_0" in self.variables
            and reuse is not AUTO_REUSE
            and f"{name}/part_{int(np.prod(partitions)) - 1}" not in self.variables
        ):
            raise ValueError(
                f"Partitioner returned a different partitioning than what was already found. Partitioner returned {int(np.prod(partitions))} shards, and shard {name}/part_{int(np.prod(partitions)) - 1} was not found."
            )
        axis = next((i for i, n in enumerate(partitions) if n > 1), 0)
        if sum(n > 1 for n in partitions) > 1:
            raise NotImplementedError(
                f"Cannot slice variable {name}: only one dimension can be partitioned, got {partitions}"
            )
        parts = []
        offset = [0] * len(sizes)
        for i, length in enumerate(_lengths(sizes[axis], partitions[axis])):
            part_shape = list(sizes)
            part_shape[axis] = length
            info = _PartitionInfo(sizes, list(offset))
            if constant_init:
                part_init: Any = _slice_constant(initializer, offset, part_shape)
                given = None
            else:
                part_init = (
                    initializer if initializer is not None else default_initializer(name, dtypes.as_dtype(dtype))
                )
                given = part_shape
            with get_default_graph().name_scope(""):
                part = self._get_single(f"{name}/part_{i}", given, dtype=dtype, initializer=part_init, regularizer=regularizer, reuse=reuse,
                                        partition_info=info, **common)  # fmt: skip
            part._set_save_slice_info(Variable.SaveSliceInfo(name, list(sizes), list(offset), part_shape))
            parts.append(part)
            offset[axis] += length
        result = PartitionedVariable(
            name=name, shape=whole, dtype=dtypes.as_dtype(dtype), variable_list=parts, partitions=partitions
        )
        self.partitioned[name] = result
        return result


def _partitions(partitioner: Callable[..., Any], shape: TensorShape, dtype: Any) -> list[int]:
    result = partitioner(shape=shape, dtype=dtypes.as_dtype(dtype))
    if not isinstance(result, (list, tuple)):
        raise ValueError(f"Partitioner must return a sequence, but saw: {result}")
    if len(result) != shape.rank:
        raise ValueError(
            f"Partitioner returned a partition list that does not match the Variable's rank: {result} vs. {shape}"
        )
    if any(n < 1 for n in result):
        raise ValueError(f"Partitioner returned zero partitions for some axes: {result}")
    if sum(n > 1 for n in result) > 1:
        raise ValueError(f"Can only slice a variable along one dimension: shape: {shape}, partitioning: {result}")
    return list(result)


def _shape_of(value: Any) -> Any:
    return value.shape if isinstance(value, Tensor) else np.shape(value)


def _lengths(size: int, count: int) -> list[int]:
    """Lengths of `count` parts of `size` rows: the first ones are one row longer where it does not come out even."""
    base, longer = divmod(size, count)
    return [base + 1] * longer + [base] * (count - longer)


def _slice_constant(value: Any, offset: list[int], shape: list[int]) -> Any:
    if isinstance(value, Tensor):
        from penstock.graph.raw import raw

        return raw.Slice(value, list(offset), list(shape))
    index = tuple(slice(o, o + s) for o, s in zip(offset, shape, strict=True))
    return np.asarray(value)[index]


def default_initializer(name: str, dtype: dtypes.DType) -> Any:
    """What a variable without initializer starts with: Glorot's uniform numbers, or zeros if it is no float."""
    if dtype.is_floating:
        return GlorotUniform()
    if dtype.is_integer or dtype.is_bool or dtype == dtypes.string:
        return Zeros()
    raise ValueError(f"An initializer for variable {name} of {dtype.base_dtype} is required")


def _accepts(function: Callable[..., Any], name: str) -> bool:
    """Whether `function` takes a keyword argument called `name`."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _required_arguments(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def _origin(variable: Any) -> str:
    op = getattr(variable, "op", None)
    frame = getattr(op, "user_frame", None)
    if frame is None:
        return ""
    file, line, function = frame
    return f' Originally defined at:\n\n  File "{file}", line {line}, in {function}\n'


_KEY = ("__variable_store",)


def store_of(graph: Graph | None = None) -> VariableStore:
    """The graph's variable store, made on first use."""
    found = (graph or get_default_graph()).get_collection_ref(_KEY)
    if not found:
        found.append(VariableStore())
    return found[0]


@export("no_regularizer")
def no_regularizer(_: Any) -> None:
    """Use this as `regularizer=` to keep an outer scope's regularizer away."""
    return None
