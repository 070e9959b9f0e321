"""Optionals: values (variants) that hold components or nothing. TF's functional branches keep intermediate results in these."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import op, scalar
from penstock.ops.samples import program
from penstock.shapes import TensorShape, dims_of


class Optional:
    """Components, or None."""

    __slots__ = ("components",)

    def __init__(self, components: list[Any] | None = None) -> None:
        self.components = components

    def zeros_like(self) -> Optional:
        """What ZerosLike gives: zeros for every component, nothing for nothing."""
        return self if self.components is None else Optional([_zeros(c) for c in self.components])

    def __add__(self, other: Any) -> Optional:
        if not isinstance(other, Optional):
            return NotImplemented
        if self.components is None or other.components is None:
            if self.components is not other.components:
                raise InvalidArgumentError("Cannot add optionals because one has a value and the other doesn't.")
            return self
        if len(self.components) != len(other.components):
            raise InvalidArgumentError("Cannot add optionals because they have different numbers of components.")
        return Optional([a + b for a, b in zip(self.components, other.components, strict=True)])

    def __repr__(self) -> str:
        return "OptionalNone" if self.components is None else f"Optional({self.components!r})"


def _zeros(value: Any) -> Any:
    zeros = getattr(value, "zeros_like", None)
    return np.zeros_like(value) if zeros is None else zeros()


def checked(value: Any) -> Optional:
    if not isinstance(value, Optional):
        raise InvalidArgumentError("Input is not an Optional.")
    return value


def get_kernel(optional: Any, *, output_types: list[DType], output_shapes: list[TensorShape]) -> list[Any]:
    components = checked(optional).components
    if components is None:
        raise InvalidArgumentError("The given optional does not have a value.")
    if len(components) != len(output_types):
        raise InvalidArgumentError(f"The given optional has {len(components)} components, expected {len(output_types)}.")
    for i, (value, shape) in enumerate(zip(components, output_shapes, strict=True)):
        if not TensorShape(np.shape(value)).is_compatible_with(shape):
            raise InvalidArgumentError(
                f"Shapes for component {i} not compatible: {TensorShape(np.shape(value))} vs. {shape}."
            )
    return list(components)


def get_shape(c: Any) -> list[Dims]:
    shapes = c.attrs["output_shapes"]
    if len(shapes) != len(c.op.outputs):
        raise ValueError("`output_shapes` must be the same length as `output_types`")
    return [dims_of(shape) for shape in shapes]


def get_grad(g: Any, op: Any, *dys: Any) -> Any:
    return g.OptionalFromValue(list(dys))


def from_value_grad(g: Any, op: Any, dy: Any) -> Any:
    types, shapes = [t.dtype for t in op.inputs], [t.shape for t in op.inputs]
    return g.OptionalGetValue(dy, output_types=types, output_shapes=shapes)


def _sample(tf: Any) -> Any:
    full = tf.raw_ops.OptionalFromValue(components=[tf.constant([1.0, 2.0]), tf.constant("a")])
    values = tf.raw_ops.OptionalGetValue(optional=full, output_types=[tf.float32, tf.string], output_shapes=[tf.TensorShape([2]), tf.TensorShape([])])
    return [tf.raw_ops.OptionalHasValue(optional=full), tf.raw_ops.OptionalHasValue(optional=tf.raw_ops.OptionalNone()), list(values)]


op("OptionalFromValue(components: list Toutput_types) -> (optional: variant) [Toutput_types: list(type) >= 1]",
   shape=scalar, numpy=lambda components: Optional(list(components)), grad=from_value_grad, samples=[program(_sample)])  # fmt: skip
op("OptionalGetValue(optional: variant) -> (components: list output_types) [output_types: list(type) >= 1; output_shapes: list(shape) >= 1]",
   shape=get_shape, numpy=get_kernel, grad=get_grad, samples=[program(_sample)])  # fmt: skip
op("OptionalHasValue(optional: variant) -> (has_value: bool)",
   shape=scalar, numpy=lambda optional: np.bool_(checked(optional).components is not None), samples=[program(_sample)])  # fmt: skip
op("OptionalNone() -> (optional: variant)", shape=scalar, numpy=lambda: Optional(), samples=[program(_sample)])
