"""What a value looks like: `tf.TensorSpec`, `tf.SparseTensorSpec`, `tf.IndexedSlicesSpec`, and which spec a value has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock import dtypes
from penstock.graph.composite import IndexedSlices, SparseTensor
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.shapes import TensorShape, as_shape


def _wider(a: TensorShape, b: TensorShape) -> TensorShape:
    """The narrowest shape that both are compatible with."""
    if a.dims is None or b.dims is None or a.rank != b.rank:
        return TensorShape(None)
    return TensorShape([x if x == y else None for x, y in zip(a.as_list(), b.as_list(), strict=True)])


def _within(a: TensorShape, b: TensorShape) -> bool:
    """Whether all values of shape `a` are of shape `b`."""
    if b.dims is None:
        return True
    if a.dims is None or a.rank != b.rank:
        return False
    return all(y is None or x == y for x, y in zip(a.as_list(), b.as_list(), strict=True))


class TypeSpec:
    """The base of specs. Two specs of one class are equal if their parts are."""

    value_type: Any = None

    def __init__(self) -> None:
        raise TypeError(f"Can't instantiate abstract class {type(self).__name__}")

    def _parts(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a value, or values of another spec, can be of this spec."""
        other = spec_or_value if isinstance(spec_or_value, TypeSpec) else type_spec_from_value(spec_or_value)
        if type(other) is not type(self):
            return False
        return all(_compatible(a, b) for a, b in zip(self._parts(), other._parts(), strict=True))

    def is_subtype_of(self, other: Any) -> bool:
        """Whether every value of this spec is one of the other spec."""
        if type(other) is not type(self):
            return False
        pairs = zip(self._parts(), other._parts(), strict=True)
        return all(_within(a, b) if isinstance(a, TensorShape) else a == b for a, b in pairs)

    def most_specific_common_supertype(self, others: Sequence[Any]) -> Any:
        """The narrowest spec that takes values of this spec and of the others; None if there is none."""
        parts = list(self._parts())
        for other in others:
            if type(other) is not type(self):
                return None
            for i, part in enumerate(other._parts()):
                if isinstance(part, TensorShape):
                    parts[i] = _wider(parts[i], part)
                elif part != parts[i]:
                    return None
        return type(self)(*parts)

    def most_specific_compatible_type(self, other: Any) -> Any:
        """The narrowest spec that takes values of both; ValueError if there is none."""
        found = self.most_specific_common_supertype([other])
        if found is None:
            raise ValueError(f"No TypeSpec is compatible with both {self} and {other}")
        return found

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(_same(a, b) for a, b in zip(self._parts(), other._parts(), strict=True))  # type: ignore[attr-defined]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((type(self), *(repr(part) for part in self._parts())))

    def __reduce__(self) -> Any:
        return type(self), self._parts()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(part) for part in self._parts())})"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, TensorShape):
        return isinstance(b, TensorShape) and (a.dims is None) == (b.dims is None) and (a.dims is None or a.as_list() == b.as_list())
    return a == b


def _compatible(a: Any, b: Any) -> bool:
    return a.is_compatible_with(b) if isinstance(a, TensorShape) else a == b


class TensorSpec(TypeSpec):
    """A tensor's shape, dtype and (optional) name.

    >>> tf.TensorSpec([None, 3], tf.float32).is_compatible_with(tf.zeros([2, 3]))
    True
    """

    value_type = Tensor

    def __init__(self, shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> None:
        self._shape = as_shape(shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._name = name

    shape = property(lambda self: self._shape)
    dtype = property(lambda self: self._dtype)
    name = property(lambda self: self._name)

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> TensorSpec:
        """The spec of a tensor; its name is that of the tensor's op unless given."""
        return cls(tensor.shape, tensor.dtype, name or tensor.op.name)

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> TensorSpec:
        """A spec with the shape and dtype of another one, and its name unless given."""
        return cls(spec.shape, spec.dtype, name or spec.name)

    def _parts(self) -> tuple[Any, ...]:
        return self._shape, self._dtype, self._name

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        other = spec_or_value if isinstance(spec_or_value, TypeSpec) else type_spec_from_value(spec_or_value)
        return isinstance(other, TensorSpec) and self._dtype == other._dtype and self._shape.is_compatible_with(other._shape)

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self._shape}, dtype={self._dtype!r}, name={self._name!r})"


class SparseTensorSpec(TypeSpec):
    """The shape and dtype of a SparseTensor."""

    value_type = SparseTensor

    def __init__(self, shape: Any = None, dtype: Any = dtypes.float32) -> None:
        self._shape = as_shape(shape)
        self._dtype = dtypes.as_dtype(dtype)

    shape = property(lambda self: self._shape)
    dtype = property(lambda self: self._dtype)

    def _parts(self) -> tuple[Any, ...]:
        return self._shape, self._dtype


class IndexedSlicesSpec(TypeSpec):
    """The dense shape and the dtypes of IndexedSlices."""

    value_type = IndexedSlices

    def __init__(
        self, shape: Any = None, dtype: Any = dtypes.float32, indices_dtype: Any = dtypes.int64, dense_shape_dtype: Any = None,
        indices_shape: Any = None,
    ) -> None:  # fmt: skip
        self._shape = as_shape(shape)
        self._values_dtype = dtypes.as_dtype(dtype)
        self._indices_dtype = dtypes.as_dtype(indices_dtype)
        self._dense_shape_dtype = None if dense_shape_dtype is None else dtypes.as_dtype(dense_shape_dtype)
        self._indices_shape = as_shape([None] if indices_shape is None else indices_shape)

    def _parts(self) -> tuple[Any, ...]:
        return self._shape, self._values_dtype, self._indices_dtype, self._dense_shape_dtype, self._indices_shape


class TensorArraySpec(TypeSpec):
    """What the elements of a TensorArray look like."""

    def __init__(self, element_shape: Any = None, dtype: Any = dtypes.float32, dynamic_size: bool = False, infer_shape: bool = True) -> None:
        self._element_shape = as_shape(element_shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._dynamic_size = dynamic_size
        self._infer_shape = infer_shape

    def _parts(self) -> tuple[Any, ...]:
        return self._element_shape, self._dtype, self._dynamic_size, self._infer_shape


def type_spec_from_value(value: Any) -> TypeSpec:
    """The spec of a tensor, a SparseTensor, IndexedSlices, or anything that can become a tensor."""
    if isinstance(value, SparseTensor):
        return SparseTensorSpec(value.get_shape(), value.dtype)
    if isinstance(value, IndexedSlices):
        dense = value.dense_shape
        inner = value.values.shape
        shape = TensorShape(None) if inner.dims is None else TensorShape([None, *inner.as_list()[1:]])
        return IndexedSlicesSpec(shape, value.values.dtype, value.indices.dtype, None if dense is None else dense.dtype, value.indices.shape)
    if not isinstance(value, Tensor):
        try:
            value = convert_to_tensor(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"Could not build a TypeSpec for {value!r} with type {type(value).__name__}") from error
    return TensorSpec(value.shape, value.dtype)
