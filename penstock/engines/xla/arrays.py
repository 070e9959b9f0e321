"""TensorArrays in programs.

A TensorArray that only the program knows is a buffer of (size, *shape) while the program is traced, and a state for each slot: untouched, written,
read, or read and cleared. A loop carries the buffers that it touches among its variables.

What a TensorArray would complain about must not be computed. Outside of loops, indices are known when compiling, so are states, and a wrong access makes the
program impossible: the host has the last word then. A loop's body is tried first, which tells the shapes of what is written and, in each round, the
indices (`series`). If these are known, all accesses are gone through ahead and need no looking after. If not, the states are part of the program,
and it says beside its results whether something was wrong: then they are worth nothing, and the host computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from penstock.engines.python.arrays import ARRAY_OPS, GRADIENT, NEW, VALUE
from penstock.engines.python.structure import Call, Loop
from penstock.engines.python.walk import everything
from penstock.engines.xla.rule import Unsupported, jnp, lax, static, static_ints
from penstock.engines.xla.series import series_of
from penstock.engines.xla.sizes import LEAST, Padded, Size, Symbolic, symbolic
from penstock.graph.ir import Dims, Operation, Tensor
from penstock.shapes import compatible_dims, dims_of, is_fully_defined

UNTOUCHED, WRITTEN, READ, CLEARED = 0, 1, 2, 3
MOST_BYTES = 1 << 26
"""Size of a buffer up to which it is worth having."""
MOST_GROWN = 256
"""Slots of an array that grows as its data say."""
MOST_ACCESSES = 50_000
"""Accesses of a loop that are gone through ahead."""

Access = tuple["Array", str, Any]
"""The array, "write", "read" or "other", and the indices in each round, None if they are not known."""


class Array:
    """A TensorArray while a program is traced. `state` is a NumPy array while it is known, None in a body whose accesses have been gone through, else part of the
    program; `log` gets the accesses while a body is tried."""

    def __init__(self, size: int, dtype: np.dtype, dims: Dims, grows: bool, clears: bool, identical: bool, adds: bool = False) -> None:
        self.size = size
        self.dtype = dtype
        self.dims = dims
        self.shape: tuple[int, ...] | None = dims if is_fully_defined(dims) else None  # type: ignore[assignment]
        self.has_zeros = self.shape is not None  # what was never written reads as zeros
        self.grows = grows
        self.clears = clears
        self.identical = identical
        self.adds = adds
        self.count: Any = None  # of slots, of an array that grows as its data say: then `size` is the room for them
        self.limit: Size | None = None  # how many of the slots there really are, if there is room to spare
        self.buffer: Any = None
        self.state: Any = np.zeros(size, np.int8)
        self.doubt: Any = None
        self.gradients: dict[bytes, Array] = {}
        self.log: list[Access] | None = None
        self.is_inner = False

    def view(self) -> Array:
        """For the body of a loop: the same as far as it is known already."""
        result = Array(self.size, self.dtype, self.dims, self.grows, self.clears, self.identical, self.adds)
        result.shape, result.has_zeros, result.state, result.limit = self.shape, self.has_zeros, None, self.limit
        return result

    # -- one slot ---------------------------------------------------------------------------------------------------------

    def write(self, index: Any, value: Any) -> None:
        self._takes(value.shape)
        where = self._access("write", index)
        buffer = self._buffer()
        if self.adds:
            value = value + lax.dynamic_index_in_dim(buffer, where, 0, keepdims=False)
        self.buffer = lax.dynamic_update_index_in_dim(buffer, jnp.asarray(value, self.dtype), where, 0)

    def read(self, index: Any) -> Any:
        if self.shape is None:
            raise Unsupported("a TensorArray is read before the shape of its values is known")
        where = self._access("read", index)
        return lax.dynamic_index_in_dim(self._buffer(), where, 0, keepdims=False)

    def _access(self, kind: str, index: Any) -> Any:
        """Looks after an access; gives where in the buffer it goes."""
        is_known = isinstance(index, (np.ndarray, np.generic))
        if self.log is not None:
            self.log.append((self, kind, int(index) if is_known else series_of(index)))
            return jnp.zeros((), np.int32) if self.size else self._no_room()
        if self.state is None:
            return index
        if is_known and isinstance(self.state, np.ndarray) and self.limit is None:
            self.simulate(kind, int(index))
            return index
        if self.grows and self.count is None:
            raise Unsupported("a TensorArray grows as its data say")
        if not self.size:
            self._no_room()
        state = jnp.asarray(self.state)
        where = jnp.clip(index, 0, self.size - 1 if self.limit is None else self.limit.number - 1)
        now = lax.dynamic_index_in_dim(state, where, 0, keepdims=False)
        self._doubts((jnp.asarray(index) != where) | self._is_wrong(kind, now))
        if self.grows and kind == "write":
            self.count = jnp.maximum(self.count, where.astype(np.int32) + 1)
        elif self.grows:
            self._doubts(where >= self.count)
        self.state = lax.dynamic_update_index_in_dim(state, jnp.asarray(self._after(kind), np.int8), where, 0)
        return where

    def _no_room(self) -> Any:
        raise Unsupported("a TensorArray without slots")

    def simulate(self, kind: str, index: int) -> None:
        """An access whose index is known, to an array whose state is."""
        if kind == "write" and self.grows and index >= self.size:
            self.resize(index + 1)
        if not 0 <= index < self.size or bool(self._is_wrong(kind, self.state[index])):
            raise Unsupported("a TensorArray has something to complain about")
        if kind == "write" and self.identical:
            self.has_zeros = True
        self.state = self.state.copy()
        self.state[index] = self._after(kind)

    def resize(self, size: int) -> None:
        self.state = np.concatenate([self.state, np.zeros(size - self.size, np.int8)])
        if self.buffer is not None:
            self.buffer = jnp.concatenate([self.buffer, jnp.zeros((size - self.size, *self.buffer.shape[1:]), self.dtype)])
        self.size = size

    def leave_room(self) -> None:
        """From now on the data say how much of it there is, up to a room."""
        if self.count is None:
            assert self.shape is not None
            room = max(self.size, min(MOST_GROWN, MOST_BYTES // max(1, math.prod(self.shape) * self.dtype.itemsize)))
            self.count = jnp.asarray(self.size, np.int32)
            self.resize(room)

    def settle_size(self) -> Size:
        """How many slots there are, which does not change any more."""
        if self.limit is None:
            self.limit = Size(self.count, self.size)
            self.grows = False
            self._doubts(self.count < LEAST)
        return self.limit

    def _is_wrong(self, kind: str, state: Any) -> Any:
        if kind == "write":
            return state >= READ if self.adds else state != UNTOUCHED
        return (state == CLEARED) if self.has_zeros else (state == CLEARED) | (state == UNTOUCHED)

    def _after(self, kind: str) -> int:
        return WRITTEN if kind == "write" else CLEARED if self.clears else READ

    def _doubts(self, wrong: Any) -> None:
        self.doubt = wrong if self.doubt is None else self.doubt | wrong

    def _takes(self, shape: tuple[int, ...]) -> None:
        if self.shape is None:
            if not compatible_dims(self.dims, shape):
                raise Unsupported("a value does not fit into a TensorArray")
            self.shape = tuple(shape)
        elif self.shape != tuple(shape):
            raise Unsupported("values of several shapes in one TensorArray")

    def _buffer(self) -> Any:
        if self.buffer is None:
            assert self.shape is not None
            if self.size * math.prod(self.shape) * self.dtype.itemsize > MOST_BYTES:
                raise Unsupported("a large TensorArray")
            self.buffer = jnp.zeros((self.size, *self.shape), self.dtype)
        return self.buffer

    # -- many slots -------------------------------------------------------------------------------------------------------

    def gather(self, indices: Sequence[int], dims: Dims) -> Any:
        if not indices:
            if not is_fully_defined(dims):
                raise Unsupported("nothing is read from a TensorArray, of unknown shape")
            return jnp.zeros((0, *dims), self.dtype)  # type: ignore[misc]
        if self.shape is None or not compatible_dims(dims, self.shape):
            raise Unsupported("a TensorArray is read before the shape of its values is known")
        self._accesses("read", indices)
        buffer = self._buffer()
        if self.limit is not None:
            return Padded(buffer, {0: self.limit})
        return buffer if list(indices) == list(range(self.size)) else buffer[np.asarray(indices, np.int32)]

    def scatter(self, indices: Sequence[int], rows: Any) -> None:
        if not rows.ndim or len(indices) != rows.shape[0]:
            raise Unsupported("a TensorArray has something to complain about")
        if not indices:
            return
        self._takes(rows.shape[1:])
        self._accesses("write", indices)
        rows = jnp.asarray(rows, self.dtype)
        if self.buffer is None and list(indices) == list(range(self.size)):
            self.buffer = rows
            return
        where = self._buffer().at[np.asarray(indices, np.int32)]
        self.buffer = where.add(rows) if self.adds else where.set(rows)

    def _accesses(self, kind: str, indices: Sequence[int]) -> None:
        if self.count is not None and self.limit is None:
            raise Unsupported("a TensorArray grows as its data say")
        if self.log is not None:
            self.log.append((self, "other", None))
            if not self.size:
                self._no_room()
        elif isinstance(self.state, np.ndarray):
            for index in indices:
                self.simulate(kind, index)
        else:
            if self.state is None or len(set(indices)) < len(indices) or min(indices) < 0 or max(indices) >= self.size:
                raise Unsupported("a TensorArray has something to complain about")
            where = np.asarray(indices, np.int32)
            wrong = self._is_wrong(kind, self.state[where])
            self._doubts(jnp.any(wrong if self.limit is None else wrong & (where < self.limit.number)))
            self.state = self.state.at[where].set(self._after(kind))

    def concat(self, dims: Dims) -> tuple[Any, np.ndarray]:
        if not self.shape or not self.size or (self.grows and not isinstance(self.state, np.ndarray)):
            raise Unsupported("a TensorArray has something to complain about")
        value = self.gather(range(self.size), None if dims is None else (None, *dims))
        return value.reshape((-1, *self.shape[1:])), np.full(self.size, self.shape[0], np.int64)

    def split(self, value: Any, lengths: Sequence[int]) -> None:
        if self.grows and len(lengths) > self.size and isinstance(self.state, np.ndarray):
            self.resize(len(lengths))
        if not value.ndim or len(lengths) != self.size or len(set(lengths)) != 1 or lengths[0] < 0 or sum(lengths) != value.shape[0]:
            raise Unsupported("parts of several lengths")
        self.scatter(range(self.size), value.reshape((self.size, lengths[0], *value.shape[1:])))

    # -- gradients --------------------------------------------------------------------------------------------------------

    def gradient(self, source: bytes) -> Array:
        """The array of gradients. In a body it has been made before."""
        found = self.gradients.get(source)
        if found is None:
            if self.adds or self.shape is None or self.state is None or self.log is not None or self.count is not None:
                raise Unsupported("a TensorArray of gradients in an unusual place")
            self.grows = False
            found = self.gradients[source] = Array(self.size, self.dtype, self.shape, False, True, self.identical, True)
            found.limit = self.limit
            found.state = (self.state > UNTOUCHED).astype(np.int8)
            found.has_zeros = self.has_zeros
            found.is_inner = self.is_inner
        return found


def array_call(op: Operation, value: Callable[[Tensor], Any], plain: Callable[[Tensor], Any], is_inner: bool) -> dict[Tensor, Any]:
    """What a node of ARRAY_OPS gives, without flows: they are known by the names of those that went in."""
    kind, attrs = op.type, op.attrs
    if kind == NEW:
        given = value(op.inputs[0])
        limit = given.items[0] if isinstance(given, Symbolic) else None
        size = static(given if limit is None else limit.room)
        if size.ndim or size < 0:
            raise Unsupported("a TensorArray has something to complain about")
        dims = dims_of(attrs["element_shape"])
        made = Array(int(size), attrs["dtype"].np, dims, attrs["dynamic_size"], attrs["clear_after_read"], attrs["identical_element_shapes"])
        made.is_inner = is_inner
        made.limit = limit
        return {op.outputs[0]: made}
    array: Array = value(op.inputs[0])
    if kind == GRADIENT:
        return {op.outputs[0]: array.gradient(attrs["source"])}
    if kind == "TensorArraySizeV3":
        if array.grows and not isinstance(array.state, np.ndarray):
            if array.count is None or array.log is not None or array.is_inner is not is_inner:
                raise Unsupported("the size of a TensorArray that grows")
            array.settle_size()
        return {op.outputs[0]: np.asarray(array.size, np.int32) if array.limit is None else symbolic([array.limit], np.int32, 0)}
    if kind == "TensorArrayWriteV3":
        array.write(plain(op.inputs[1]), plain(op.inputs[2]))
    elif kind == "TensorArrayReadV3":
        return {op.outputs[0]: array.read(plain(op.inputs[1]))}
    elif kind == "TensorArrayGatherV3":
        return {op.outputs[0]: array.gather(_indices(array, value(op.inputs[1])), dims_of(attrs["element_shape"]))}
    elif kind == "TensorArrayScatterV3":
        rows = value(op.inputs[2])
        array.scatter(_indices(array, value(op.inputs[1])), _all_rows(array, rows) if isinstance(rows, Padded) else plain(op.inputs[2]))
    elif array.limit is not None:
        raise Unsupported("parts of a TensorArray with room to spare")
    elif kind == "TensorArrayConcatV3":
        return dict(zip(op.outputs, array.concat(dims_of(attrs["element_shape_except0"]))))
    else:
        array.split(plain(op.inputs[1]), static_ints(plain(op.inputs[2])))
    return {}


def _indices(array: Array, indices: Any) -> Sequence[int]:
    """Known indices; if there is room to spare, those of all slots."""
    if isinstance(indices, Padded) != (array.limit is not None) or (isinstance(indices, Padded) and not (indices.is_range and indices.axes[0] is array.limit)):
        raise Unsupported("some of the slots of a TensorArray with room to spare")
    return range(array.size) if isinstance(indices, Padded) else static_ints(indices)


def _all_rows(array: Array, rows: Padded) -> Any:
    if array.limit is None or rows.axes != {0: array.limit}:
        raise Unsupported("other rows than those of a TensorArray with room to spare")
    return rows.value


class LoopArrays:
    """The TensorArrays that a loop touches and does not make. Their buffers, and states where these are not known, are variables of the loop, behind its own."""

    def __init__(self, loop: Loop, root: Callable[[Tensor], Tensor], env: dict[Tensor, Any]) -> None:
        self.arrays: list[Array] = []
        self.is_sure: list[bool] = []
        self.most: int | None = None  # rounds, if each of them writes or clears another slot
        written: set[int] = set()
        new: set[int] = set()  # arrays whose gradients the loop would be the first to ask for
        for statement in everything([*loop.cond, *loop.body]):
            if not isinstance(statement, Call) or statement.node.op.type not in ARRAY_OPS or statement.node.op.type == NEW:
                continue
            op: Operation = statement.node.op
            handle = root(op.inputs[0])
            array = env.get(handle)
            if isinstance(array, Array):
                self._add(array)
                if op.type in VALUE:
                    written.add(id(array))
                if op.type == GRADIENT:
                    if op.attrs["source"] not in array.gradients:
                        new.add(id(array))
                    self._add(array.gradient(op.attrs["source"]))
        if written & new:
            raise Unsupported("a loop that writes to a TensorArray and asks for its gradient")
        for array in self.arrays:
            if array.log is not None:  # a loop around this one is being tried: it will not know what happens here
                array.log.append((array, "other", None))
                array.log = None
                array.state = jnp.zeros((array.size,), np.int8)

    def _add(self, array: Array) -> None:
        if not any(array is other for other in self.arrays):
            self.arrays.append(array)

    def __bool__(self) -> bool:
        return bool(self.arrays)

    # -- trying -----------------------------------------------------------------------------------------------------------

    def attempt(self, env: dict[Tensor, Any], log: list[Access]) -> None:
        """Puts arrays into `env` that note in `log` what happens to them."""
        self._views = [array.view() for array in self.arrays]
        for view in self._views:
            view.log = log
            if view.grows:
                view.size = max(1, view.size)
        self._bind(env)

    def learn(self, log: list[Access], rounds: int | None) -> None:
        """Goes through the accesses of all rounds. Arrays for which that is not possible get their states into the program."""
        number = {id(view): i for i, view in enumerate(self._views)}
        for array, view in zip(self.arrays, self._views):
            array.shape = view.shape
        unsure = {number[id(view)] for view, _, where in log if where is None or (not isinstance(where, int) and len(where) < (rounds or 0))}
        unsure |= {i for i, array in enumerate(self.arrays) if not isinstance(array.state, np.ndarray) or array.limit is not None}
        if rounds is None or rounds * len(log) > MOST_ACCESSES:
            unsure = set(range(len(self.arrays)))
        self.is_sure = [i not in unsure for i in range(len(self.arrays))]
        accesses = [(self.arrays[number[id(view)]], kind, where) for view, kind, where in log if self.is_sure[number[id(view)]]]
        for i in range(rounds or 0):
            for array, kind, where in accesses:
                array.simulate(kind, where if isinstance(where, int) else int(where[i]))
        once = [view for view, kind, where in log if not isinstance(where, int) and (not view.adds if kind == "write" else view.clears and kind == "read")]
        sizes = [view.size for view in once if not view.grows]
        self.most = min(sizes, default=None)
        for array, is_sure in zip(self.arrays, self.is_sure):
            if array.shape is None:
                raise Unsupported("a TensorArray is read before the shape of its values is known")
            if not is_sure and array.grows:
                array.leave_room()

    # -- as variables of the loop -----------------------------------------------------------------------------------------

    def first(self) -> tuple:
        """What the loop begins with."""
        return tuple(v for array, is_sure in zip(self.arrays, self.is_sure) for v in _leaves(array, is_sure))

    def enter(self, env: dict[Tensor, Any], values: Sequence[Any]) -> None:
        """Puts the arrays as they are in a round into `env`."""
        self._views = [array.view() for array in self.arrays]
        _fill(self._views, self.is_sure, values)
        self._bind(env)

    def leave(self) -> tuple:
        """What a round makes of them."""
        return tuple(v for view, is_sure in zip(self._views, self.is_sure) for v in _leaves(view, is_sure))

    def end(self, values: Sequence[Any]) -> None:
        """The arrays after the loop."""
        _fill(self.arrays, self.is_sure, values)

    def _bind(self, env: dict[Tensor, Any]) -> None:
        view_of = {id(array): view for array, view in zip(self.arrays, self._views)}
        for array, view in zip(self.arrays, self._views):
            view.gradients = {source: view_of.get(id(found), found) for source, found in array.gradients.items()}
        for tensor, value in env.items():
            if isinstance(value, Array) and id(value) in view_of:
                env[tensor] = view_of[id(value)]


def _leaves(array: Array, is_sure: bool) -> Iterable[Any]:
    buffer = array._buffer()
    if is_sure:
        return (buffer,)
    return (buffer, jnp.asarray(array.state), jnp.zeros((), bool) if array.doubt is None else array.doubt, *((array.count,) if array.grows else ()))


def _fill(arrays: list[Array], is_sure: list[bool], values: Sequence[Any]) -> None:
    rest = iter(values)
    for array, sure in zip(arrays, is_sure):
        array.buffer = next(rest)
        if not sure:
            array.state, array.doubt = next(rest), next(rest)
            if array.grows:
                array.count = next(rest)
