"""Tensor: a value that a graph computes, as clients hold it.

State
    op, value_index, dtype       which output of which op; ref outputs have a ref dtype
    dims                         static shape as a raw tuple (None: unknown dimension) or None (unknown rank)
    handle_data                  for resource tensors: [(dtype, dims), ...] of what the handle refers to
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.dtypes import DType
from penstock.shapes import TensorShape, dims_of, merge_dims

if TYPE_CHECKING:
    from penstock.graph.ir import Graph, Operation

Dims = tuple[int | None, ...] | None


class Tensor:
    """A value that a graph computes: output `value_index` of `op`."""

    __slots__ = ("__dict__", "__weakref__", "_consumers", "dims", "dtype", "handle_data", "op", "value_index")

    # Operators are installed by the api layer; numpy must not try to broadcast over a Tensor.
    __array_priority__ = 100

    def __init__(self, op: Operation, value_index: int, dtype: DType, dims: Dims = None) -> None:
        self.op = op
        self.value_index = value_index
        self.dtype = dtype
        self.dims = dims
        self.handle_data: list[tuple[DType, Dims]] | None = None
        self._consumers: list[Operation] | None = None

    @property
    def name(self) -> str:
        return f"{self.op.name}:{self.value_index}"

    @property
    def graph(self) -> Graph:
        return self.op.graph

    @property
    def device(self) -> str:
        return self.op.device

    @property
    def shape(self) -> TensorShape:
        return TensorShape.from_dims(self.dims)

    @property
    def ndim(self) -> int | None:
        return None if self.dims is None else len(self.dims)

    def get_shape(self) -> TensorShape:
        """Same as `shape`."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Merges `shape` into what is known statically; ValueError if they contradict each other."""
        self.dims = merge_dims(self.dims, dims_of(shape))

    _shape = shape

    def consumers(self) -> list[Operation]:
        """The operations that read this tensor."""
        return list(dict.fromkeys(self._consumers)) if self._consumers else []

    def _as_node_def_input(self) -> str:
        return self.op.name if self.value_index == 0 else self.name

    def eval(self, feed_dict: dict | None = None, session: Any = None) -> Any:
        """Runs this tensor in `session` (default: the default session)."""
        from penstock.graph.defaults import eval_using_default_session

        return eval_using_default_session(self, feed_dict, self.graph, session)

    def experimental_ref(self) -> Any:
        return TensorReference(self)

    ref = experimental_ref

    @property
    def _id(self) -> int:
        return id(self)

    if TYPE_CHECKING:  # installed by api/operators.py

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __rand__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __ror__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __rxor__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __getitem__(self, key: Any) -> Tensor: ...

    # Hash and equality are object's own, by identity, as in TF1 (and quicker than any method here could be).

    def __len__(self) -> int:
        raise TypeError(f"len is not well defined for a symbolic Tensor ({self.name}). Use tf.shape(x) or x.shape.")

    def __bool__(self) -> bool:
        raise TypeError(
            "Using a `tf.Tensor` as a Python `bool` is not allowed. Use `if t is not None:` instead of `if t:` to test if a "
            "tensor is defined, and use TensorFlow ops such as tf.cond to execute subgraphs conditioned on the value of a tensor."
        )

    __nonzero__ = __bool__

    def __iter__(self) -> Iterator[Tensor]:
        if self.dims is None:
            raise TypeError("Cannot iterate over a tensor with unknown shape.")
        if not self.dims:
            raise TypeError("Cannot iterate over a scalar tensor.")
        if self.dims[0] is None:
            raise TypeError("Cannot iterate over a tensor with unknown first dimension.")
        return iter([self[i] for i in range(self.dims[0])])  # type: ignore[index]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise NotImplementedError(
            f"Cannot convert a symbolic Tensor ({self.name}) to a numpy array. Fetch it with Session.run or Tensor.eval."
        )

    def __str__(self) -> str:
        shape = "" if self.dims is None else f", shape={self.shape}"
        device = f", device={self.op.device}" if self.op.device else ""
        return f'Tensor("{self.name}"{shape}, dtype={self.dtype.name}{device})'

    def __repr__(self) -> str:
        return f"<tf.Tensor '{self.name}' shape={self.shape} dtype={self.dtype.name}>"


class TensorReference:
    """A hashable stand-in for a Tensor (`tensor.ref()`), equal by identity of the tensor."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def deref(self) -> Any:
        return self._tensor

    def __hash__(self) -> int:
        return id(self._tensor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorReference) and other._tensor is self._tensor
