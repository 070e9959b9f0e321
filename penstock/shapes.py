"""Static shapes: raw dims tuples for the inside of Penstock, TF1's `TensorShape` and `Dimension` for its users.

Raw dims are the currency of shape rules: a tuple of `int` or `None` (unknown size), or `None` for unknown rank.
The plain functions (`merge_dims`, `broadcast_dims`, ...) work on raw dims and raise ValueError in the words of TF's
shape inference. `TensorShape` wraps one such tuple in TF1's interface, where indexing and iterating give
`Dimension` objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

Dims = tuple[int | None, ...] | None
"""Raw dims: sizes, None for an unknown size; None instead of a tuple for an unknown rank."""


# -- raw dims ----------------------------------------------------------------------------------------------------


def dims_of(shape: Any) -> Dims:
    """Raw dims of anything that TF takes as a shape.

    That is a TensorShape, None, a TensorShapeProto, one size, or an iterable of sizes, where a size is an int, None
    or a Dimension. Negative sizes are errors (only a proto says -1 for unknown).

    >>> dims_of([2, None]), dims_of(7), dims_of(None)
    ((2, None), (7,), None)
    """
    if shape is None:
        return None
    if shape.__class__ is TensorShape:
        return shape._dims
    if isinstance(shape, (list, tuple)):
        return tuple([_size(d) for d in shape])
    if isinstance(shape, TensorShape):
        return shape._dims
    if hasattr(shape, "dim") and hasattr(shape, "unknown_rank"):
        if shape.unknown_rank:
            return None
        return tuple([None if d.size == -1 else _checked_size(d.size) for d in shape.dim])
    try:
        sizes = iter(shape)
    except TypeError:
        return (_dimension_size(shape),)
    converted = []
    for d in sizes:
        try:
            converted.append(_size(d))
        except TypeError as error:
            raise TypeError(
                f"Failed to convert '{shape!r}' to a shape: '{d!r}'could not be converted to a dimension. A shape "
                "should either be single dimension (e.g. 10), or an iterable of dimensions (e.g. [1, 10, None])."
            ) from error
    return tuple(converted)


def _size(value: Any) -> int | None:
    """One size inside a list."""
    if value.__class__ is int:
        if value >= 0:
            return value
    elif value is None:
        return None
    return _dimension_size(value)


def _dimension_size(value: Any) -> int | None:
    if isinstance(value, Dimension):
        return value._value
    if value is None:
        return None
    try:
        number = int(value.__index__())
    except AttributeError:
        raise TypeError(
            "Dimension value must be integer or None or have an __index__ method, got value "
            f"'{value!r}' with type '{type(value)!r}'"
        ) from None
    return _checked_size(number)


def _checked_size(number: int) -> int:
    if number < 0:
        raise ValueError(f"Dimension {number} must be >= 0")
    return number


def format_dims(dims: Dims) -> str:
    """Raw dims as TF's runtime prints them.

    >>> format_dims((2, None)), format_dims(()), format_dims(None)
    ('[2,?]', '[]', '<unknown>')
    """
    if dims is None:
        return "<unknown>"
    return "[" + ",".join(["?" if d is None else str(d) for d in dims]) + "]"


def is_fully_defined(dims: Dims) -> TypeGuard[tuple[int, ...]]:
    """True if the rank and every size are known."""
    return dims is not None and None not in dims


def num_elements(dims: Dims) -> int | None:
    """The product of the sizes, or None if any is unknown."""
    if dims is None:
        return None
    total = 1
    for d in dims:
        if d is None:
            return None
        total *= d
    return total


def compatible_dims(a: Dims, b: Dims) -> bool:
    """True if one tensor could have both shapes."""
    if a is None or b is None or a == b:
        return True
    if len(a) != len(b):
        return False
    for x, y in zip(a, b):  # noqa: SIM110 - every step checks its feeds here, and a loop is quicker
        if x != y and x is not None and y is not None:
            return False
    return True


def merge_dims(a: Dims, b: Dims) -> Dims:
    """The shape of a tensor that has both shapes: what either knows. ValueError if they contradict each other.

    >>> merge_dims((2, None), (None, 3))
    (2, 3)
    """
    if a is None or a == b:
        return b
    if b is None:
        return a
    if len(a) != len(b):
        raise ValueError(f"Shapes must be equal rank, but are {len(a)} and {len(b)}")
    merged = []
    for i, (x, y) in enumerate(zip(a, b)):
        if x is None:
            merged.append(y)
        elif y is None or x == y:
            merged.append(x)
        else:
            raise ValueError(
                f"Dimension {i} in both shapes must be equal, but are {x} and {y}. "
                f"Shapes are {format_dims(a)} and {format_dims(b)}."
            )
    return tuple(merged)


def merge_dim(x: int | None, y: int | None) -> int | None:
    """One size out of two descriptions of it. ValueError if they differ."""
    if x is None or x == y:
        return y
    if y is None:
        return x
    raise ValueError(f"Dimensions must be equal, but are {x} and {y}")


def broadcast_dims(a: Dims, b: Dims) -> Dims:
    """The shape of an elementwise result, as far as it is known. ValueError if the shapes cannot broadcast.

    An unknown size against a size above 1 gives the known one, since anything else would fail when run; against
    another unknown size, 1 or 0 it stays open.

    >>> broadcast_dims((8, 1, None), (3, 5))
    (8, 3, 5)
    """
    if a is None or b is None:
        return None
    if a == b and None not in a:
        return a
    if len(a) < len(b):
        longer, shorter = b, a
    else:
        longer, shorter = a, b
    offset = len(longer) - len(shorter)
    out = list(longer)
    for i, y in enumerate(shorter, offset):
        x = out[i]
        if x == y:
            continue
        if x is None:
            if y != 1:
                out[i] = y if y else None
        elif y is None:
            if x <= 1:
                out[i] = None
        elif x == 1:
            out[i] = y
        elif y != 1:
            first, second = (x, y) if longer is a else (y, x)
            raise ValueError(f"Dimensions must be equal, but are {first} and {second}")
    return tuple(out)


def concat_dims(a: Dims, b: Dims) -> Dims:
    """The dims of `a` followed by those of `b`; unknown if either rank is."""
    return None if a is None or b is None else a + b


# -- TF1's classes -----------------------------------------------------------------------------------------------


class Dimension:
    """One size of a TensorShape: `value` is an int, or None if unknown.

    Arithmetic gives Dimensions, and anything with an unknown operand is unknown: `Dimension(None) + 1` is
    `Dimension(None)`, and comparing with it gives None, which is neither True nor False.
    """

    __slots__ = ("_value",)

    def __init__(self, value: Any):
        self._value = _dimension_size(value)

    @property
    def value(self) -> int | None:
        return self._value

    def __repr__(self) -> str:
        return f"Dimension({self._value!r})"

    def __str__(self) -> str:
        return "?" if self._value is None else str(self._value)

    def __int__(self) -> int:
        return self._value  # type: ignore[return-value]  # None raises TypeError, as in TF

    __index__ = __int__

    def __bool__(self) -> bool:
        return bool(self._value)

    def _pair(self, other: Any) -> tuple[int, int] | None:
        """Both sizes, or None if either is unknown."""
        y = _dimension_size(other)
        if self._value is None or y is None:
            return None
        return self._value, y

    def __eq__(self, other: object) -> Any:
        try:
            pair = self._pair(other)
        except (TypeError, ValueError):
            return NotImplemented
        return None if pair is None else pair[0] == pair[1]

    def __ne__(self, other: object) -> Any:
        try:
            pair = self._pair(other)
        except (TypeError, ValueError):
            return NotImplemented
        return None if pair is None else pair[0] != pair[1]

    __hash__ = None  # type: ignore[assignment]  # equality is not two-valued

    def __lt__(self, other: Any) -> Any:
        pair = self._pair(other)
        return None if pair is None else pair[0] < pair[1]

    def __le__(self, other: Any) -> Any:
        pair = self._pair(other)
        return None if pair is None else pair[0] <= pair[1]

    def __gt__(self, other: Any) -> Any:
        pair = self._pair(other)
        return None if pair is None else pair[0] > pair[1]

    def __ge__(self, other: Any) -> Any:
        pair = self._pair(other)
        return None if pair is None else pair[0] >= pair[1]

    def _combine(self, other: Any, function: Any) -> Dimension:
        pair = self._pair(other)
        return Dimension(None if pair is None else function(*pair))

    def _try_combine(self, other: Any, function: Any) -> Any:
        try:
            other = _dimension_size(other)
        except (TypeError, ValueError):
            return NotImplemented
        return self._combine(other, function)

    def __add__(self, other: Any) -> Any:
        return self._try_combine(other, lambda x, y: x + y)

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __sub__(self, other: Any) -> Any:
        return self._try_combine(other, lambda x, y: x - y)

    def __rsub__(self, other: Any) -> Any:
        return self._combine(other, lambda x, y: y - x)

    def __mul__(self, other: Any) -> Any:
        return self._try_combine(other, lambda x, y: x * y)

    def __rmul__(self, other: Any) -> Any:
        return self * other

    def __floordiv__(self, other: Any) -> Any:
        return self._try_combine(other, lambda x, y: x // y)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._combine(other, lambda x, y: y // x)

    def __mod__(self, other: Any) -> Any:
        return self._combine(other, lambda x, y: x % y)

    def __rmod__(self, other: Any) -> Any:
        return self._combine(other, lambda x, y: y % x)

    def __truediv__(self, other: Any) -> Any:
        raise TypeError(
            f"unsupported operand type(s) for /: 'Dimension' and '{type(other).__name__}', please use // instead"
        )

    def __rtruediv__(self, other: Any) -> Any:
        raise TypeError(
            f"unsupported operand type(s) for /: '{type(other).__name__}' and 'Dimension', please use // instead"
        )

    def is_compatible_with(self, other: Any) -> bool:
        """True if the sizes are equal or one is unknown."""
        pair = self._pair(other)
        return pair is None or pair[0] == pair[1]

    def assert_is_compatible_with(self, other: Any) -> None:
        if not self.is_compatible_with(other):
            raise ValueError(f"Dimensions {self} and {other} are not compatible")

    def merge_with(self, other: Any) -> Dimension:
        """The known size of the two. ValueError if they differ."""
        other = as_dimension(other)
        self.assert_is_compatible_with(other)
        return Dimension(other._value if self._value is None else self._value)

    def __reduce__(self):
        return Dimension, (self._value,)


class TensorShape:
    """The shape of a tensor, as far as it is known before running, with TF1's behaviour.

    `TensorShape(None)` has an unknown rank, `TensorShape([2, None])` one unknown size. Indexing and iterating give
    `Dimension`s; `as_list()` gives ints and Nones.
    """

    __slots__ = ("__weakref__", "_dims")
    _dims: Dims

    def __init__(self, dims: Any):
        self._dims = dims_of(dims)

    @classmethod
    def from_dims(cls, dims: Dims) -> TensorShape:
        """Wraps raw dims without looking at them: the fast road for dims that are known to be right."""
        shape = cls.__new__(cls)
        shape._dims = dims
        return shape

    @property
    def dims(self) -> list[Dimension] | None:
        """A list of Dimensions, or None if the rank is unknown."""
        return None if self._dims is None else [Dimension(d) for d in self._dims]

    @property
    def rank(self) -> int | None:
        """The number of dimensions, or None if unknown."""
        return None if self._dims is None else len(self._dims)

    ndims = rank

    def as_list(self) -> list[int | None]:
        """The sizes as ints and Nones. ValueError if the rank is unknown."""
        if self._dims is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(self._dims)

    def num_elements(self) -> int | None:
        """The number of elements, or None if not all sizes are known."""
        return num_elements(self._dims)

    def is_fully_defined(self) -> bool:
        """True if the rank and every size are known."""
        return self._dims is not None and None not in self._dims

    def as_proto(self) -> Any:
        """A TensorShapeProto, with -1 for unknown sizes."""
        from penstock.formats.protos import TensorShapeProto

        proto = TensorShapeProto()
        if self._dims is None:
            proto.unknown_rank = True
        else:
            for d in self._dims:
                proto.dim.add().size = -1 if d is None else d
        return proto

    # -- combining

    def merge_with(self, other: Any) -> TensorShape:
        """What either shape knows. ValueError if they contradict each other."""
        other = as_shape(other)
        try:
            return TensorShape.from_dims(merge_dims(self._dims, other._dims))
        except ValueError:
            raise ValueError(f"Shapes {self} and {other} are not compatible") from None

    def concatenate(self, other: Any) -> TensorShape:
        """The dimensions of this shape followed by those of `other`."""
        return TensorShape.from_dims(concat_dims(self._dims, dims_of(other)))

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return as_shape(other).concatenate(self)

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:
        """The tightest shape that covers both: sizes on which they agree, unknown elsewhere."""
        a, b = self._dims, dims_of(other)
        if a is None or b is None or len(a) != len(b):
            return unknown_shape()
        return TensorShape.from_dims(tuple([x if x == y else None for x, y in zip(a, b)]))

    def is_subtype_of(self, other: Any) -> bool:
        """True if every tensor of this shape also has the shape `other`."""
        if not isinstance(other, TensorShape):
            return False
        a, b = self._dims, other._dims
        if b is None:
            return True
        return a is not None and len(a) == len(b) and all(y is None or x == y for x, y in zip(a, b))

    def most_specific_common_supertype(self, others: Iterable[Any]) -> TensorShape | None:
        """The tightest shape that covers this and all others, or None if one is not a TensorShape."""
        result = self
        for other in others:
            if not isinstance(other, TensorShape):
                return None
            result = result.most_specific_compatible_shape(other)
        return result

    # -- checks

    def is_compatible_with(self, other: Any) -> bool:
        """True if one tensor could have both shapes."""
        return compatible_dims(self._dims, dims_of(other))

    def assert_is_compatible_with(self, other: Any) -> None:
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {other} are incompatible")

    def assert_same_rank(self, other: Any) -> None:
        other = as_shape(other)
        if self.rank is not None and other.rank is not None and self.rank != other.rank:
            raise ValueError(f"Shapes {self} and {other} must have the same rank")

    def assert_has_rank(self, rank: int | None) -> None:
        if self.rank not in (None, rank):
            raise ValueError(f"Shape {self} must have rank {rank}")

    def assert_is_fully_defined(self) -> None:
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def with_rank(self, rank: int) -> TensorShape:
        """This shape, known to have the given rank. ValueError if it has another one."""
        try:
            return self.merge_with(unknown_shape(rank=rank))
        except ValueError:
            raise ValueError(f"Shape {self} must have rank {rank}") from None

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """This shape, if its rank is unknown or at least `rank`; else ValueError."""
        if self.rank is not None and self.rank < rank:
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """This shape, if its rank is unknown or at most `rank`; else ValueError."""
        if self.rank is not None and self.rank > rank:
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    # -- as a sequence

    def __len__(self) -> int:
        if self._dims is None:
            raise ValueError("Cannot take the length of shape with unknown rank.")
        return len(self._dims)

    def __bool__(self) -> bool:
        return self._dims is not None

    def __iter__(self) -> Iterator[Dimension]:
        if self._dims is None:
            raise ValueError("Cannot iterate over a shape with unknown rank.")
        return iter([Dimension(d) for d in self._dims])

    def __getitem__(self, key: int | slice) -> Any:
        dims = self._dims
        if dims is not None:
            if isinstance(key, slice):
                return TensorShape.from_dims(dims[key])
            return Dimension(dims[key])
        if not isinstance(key, slice):
            return Dimension(None)
        if key.step is not None:
            raise ValueError("Steps are not yet handled")
        start = key.start if key.start is not None else 0
        if key.stop is None or start < 0 or key.stop < 0:
            return unknown_shape()
        return unknown_shape(rank=key.stop - start)

    # -- comparing and printing

    def __eq__(self, other: object) -> Any:
        try:
            return self._dims == dims_of(other)
        except TypeError:
            return NotImplemented

    def __ne__(self, other: object) -> Any:
        try:
            other_dims = dims_of(other)
        except TypeError:
            return NotImplemented
        return self._dims != other_dims

    def __hash__(self) -> int:
        return hash(self._dims)

    def __str__(self) -> str:
        if self._dims is None:
            return "<unknown>"
        sizes = ["?" if d is None else str(d) for d in self._dims]
        return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"

    def __repr__(self) -> str:
        return f"TensorShape({self.dims!r})"

    def __reduce__(self):
        return TensorShape, (self._dims,)


# -- helpers with TF's names -------------------------------------------------------------------------------------


def as_dimension(value: Any) -> Dimension:
    """A Dimension from a Dimension, an int or None."""
    return value if isinstance(value, Dimension) else Dimension(value)


def as_shape(shape: Any) -> TensorShape:
    """A TensorShape from anything that TF takes as a shape."""
    return shape if isinstance(shape, TensorShape) else TensorShape(shape)


def unknown_shape(rank: int | None = None, **kwargs: Any) -> TensorShape:
    """A shape of which only the rank, or nothing at all, is known (`ndims=` is the old name of `rank=`)."""
    if rank is None and "ndims" in kwargs:
        rank = kwargs.pop("ndims")
    if kwargs:
        raise TypeError(f"Unknown argument: {kwargs}")
    return TensorShape.from_dims(None if rank is None else (None,) * rank)


def dimension_value(dimension: Any) -> Any:
    """The int or None inside a Dimension; other values pass through (`tf.dimension_value`)."""
    return dimension._value if isinstance(dimension, Dimension) else dimension


def dimension_at_index(shape: TensorShape, index: int) -> Dimension:
    """The Dimension at an index, unknown if the rank is (`tf.dimension_at_index`)."""
    return Dimension(None) if shape._dims is None else Dimension(shape._dims[index])
