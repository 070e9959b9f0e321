"""Primitives made once and run many times: descriptors, memory objects, scratchpads, and the cache around them.

A `Primitive` is oneDNN's compiled code for one operation on fixed shapes, types and attributes, for a number of threads. It is run
with addresses of arrays: nothing is copied. Making one takes from 0.1 to some milliseconds, so whoever needs one asks `cached(key, make)`,
which keeps the `CAPACITY` used last.

- Memory objects (oneDNN's pairs of descriptor and address) belong to a run: every primitive has a stack of sets of them, and a run takes
  one, so that threads may run one primitive at the same time.
- Scratchpads are ours too (user mode): buffers out of one pool serve all primitives, as many as run at the same time.
- Weights that are known to be constant are brought into the primitive's own layout once (`ConstantWeights`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.memory import ALIGNMENT, address, arena
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Arg, Dims, Library, OneDnnError
from penstock.ops.kernels.numeric import BFLOAT16

CAPACITY = 1024
"""Plans kept by `cached`. oneDNN keeps as many primitives in a cache of its own."""

FLOAT32 = np.dtype(np.float32)
CODES = {FLOAT32: lib.F32, BFLOAT16: lib.BF16}

PARALLEL_COPY = 128 << 10
"""Reorders of fewer bytes run on one thread. Larger ones run on several, also because the data then lie in the caches of all cores."""

# -- buffers ------------------------------------------------------------------------------------------------------------

class Buffer(NamedTuple):
    """Memory of our own, and its aligned address."""

    array: np.ndarray
    address: int
    size: int


def buffer(size: int) -> Buffer:
    array = np.empty(size + ALIGNMENT, np.uint8)
    start = address(array)
    return Buffer(array, start + -start % ALIGNMENT, size)


def lasting_buffer(size: int) -> Buffer:
    """A buffer for what stays, such as weights."""
    array = arena.take(size)
    return Buffer(array, address(array), size)


class BufferPool:
    """Buffers for the time of a run. As many are kept as were needed at the same time; the largest survive."""

    KEPT = 8

    def __init__(self) -> None:
        self._free: list[Buffer] = []

    def take(self, size: int) -> Buffer:
        free = self._free
        try:
            found = free.pop()
        except IndexError:
            return buffer(size)
        # One that is too small is dropped: a larger one will come back in its place.
        return found if found.size >= size else buffer(size)

    def give(self, used: Buffer) -> None:
        if len(self._free) < self.KEPT:
            self._free.append(used)

    def clear(self) -> None:
        self._free.clear()


scratch = BufferPool()

# -- attributes of a primitive -------------------------------------------------------------------------------------------


class Eltwise(NamedTuple):
    """Post-op: an elementwise function of the result; `name` out of library.ELTWISE."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


class Sum(NamedTuple):
    """Post-op: what stood in the destination before is added, times `scale`."""

    scale: float = 1.0


class Add(NamedTuple):
    """Post-op: a tensor of the destination's rank, broadcast along dimensions of size 1, is added; of the destination's type
    unless `dtype` says otherwise."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype | None = None


class Multiply(NamedTuple):
    """Post-op: as `Add`, but a factor."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype | None = None


class Subtract(NamedTuple):
    """Post-op: as `Add`, but subtracted."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype | None = None


class Less(NamedTuple):
    """Post-op: 1 where the result is less than an operand as that of `Add`, else 0, also for NaN."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype | None = None


class Maximum(NamedTuple):
    """Post-op: the greater one of the result and an operand as that of `Add`; the operand if one of them is NaN."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype | None = None


PostOps = tuple[Eltwise | Sum | Add | Multiply | Subtract | Less | Maximum, ...]
_BINARY: dict[type, int] = {Add: lib.BINARY_ADD, Multiply: lib.BINARY_MUL, Subtract: lib.BINARY_SUB, Less: lib.BINARY_LT, Maximum: lib.BINARY_MAX}

# -- making -------------------------------------------------------------------------------------------------------------


class Maker:
    """Descriptors while a primitive is made; all are destroyed at the end of the `with`.

        with Maker(library, threads) as m:
            src = m.md((2, 3), (3, 1))
            pd = m.pd("matmul", src, weights, None, dst)
            primitive = m.primitive(pd, [(ARG_SRC, src), ...])
    """

    def __init__(self, library: Library, threads: int) -> None:
        self.library = library
        self.threads = threads
        self._made: list[tuple[str, int]] = []

    def __enter__(self) -> Maker:
        self.library.use_threads(self.threads)
        return self

    def __exit__(self, *exc: object) -> None:
        for name, handle in reversed(self._made):
            self.library.call(name, handle)

    def _keep(self, what: str, handle: int) -> int:
        self._made.append((f"dnnl_{what}_destroy", handle))
        return handle

    def md(self, dims: Sequence[int], strides: Sequence[int] | None = None, dtype: np.dtype | int = FLOAT32) -> int:
        """A memory descriptor; without strides, in whatever layout the primitive likes best. `dtype` may be oneDNN's own number."""
        if strides is None:
            make, last = "dnnl_memory_desc_create_with_tag", lib.TAG_ANY
        else:
            make, last = "dnnl_memory_desc_create_with_strides", Dims(*strides)
        return self._keep("memory_desc", self.library.create(make, len(dims), Dims(*dims), dtype if isinstance(dtype, int) else CODES[dtype], last))

    def attr(self, post_ops: PostOps = (), dtype: np.dtype = FLOAT32) -> int:
        """Attributes: scratchpads are ours, and what follows the operation."""
        call = self.library.call
        attr = self._keep("primitive_attr", self.library.create("dnnl_primitive_attr_create"))
        call("dnnl_primitive_attr_set_scratchpad_mode", attr, 1)
        if post_ops:
            ops = self._keep("post_ops", self.library.create("dnnl_post_ops_create"))
            for op in post_ops:
                if isinstance(op, Eltwise):
                    call("dnnl_post_ops_append_eltwise", ops, lib.ELTWISE[op.name], op.alpha, op.beta)
                elif isinstance(op, Sum):
                    call("dnnl_post_ops_append_sum", ops, op.scale, 0, 0)
                else:
                    call("dnnl_post_ops_append_binary", ops, _BINARY[type(op)], self.md(op.dims, op.strides, op.dtype or dtype))
            call("dnnl_primitive_attr_set_post_ops", attr, ops)
        return attr

    def post_op_args(self, post_ops: PostOps, dtype: np.dtype) -> list[tuple[int, int]]:
        """The arguments that post-ops bring: one for each tensor, in order."""
        return [
            (lib.ARG_POST_OP * (i + 1) | lib.ARG_SRC_1, self.md(op.dims, op.strides, op.dtype or dtype))
            for i, op in enumerate(post_ops)
            if not isinstance(op, (Eltwise, Sum))
        ]

    def pd(self, kind: str, *args: Any) -> int:
        """A primitive descriptor: dnnl_KIND_primitive_desc_create."""
        return self._keep("primitive_desc", self.library.create(f"dnnl_{kind}_primitive_desc_create", self.library.engine, *args))

    def query(self, pd: int, what: int, index: int = 0) -> int:
        """A memory descriptor that belongs to `pd`."""
        found = self.library.query_md(pd, what, index)
        if found is None:
            raise OneDnnError(f"query {what}", lib.UNIMPLEMENTED)
        return found

    def implementation(self, pd: int) -> str:
        """The name of the implementation that was chosen, such as "brgconv:avx512_core"."""
        text = c_char_p()
        self.library.call("dnnl_primitive_desc_query", pd, lib.QUERY_IMPL_INFO, 0, byref(text))
        return (text.value or b"").decode()

    def primitive(self, pd: int, args: Sequence[tuple[int, int]], threads: int = 0) -> Primitive:
        """The primitive of `pd`, whose runs take addresses in the order of `args` (argument, memory descriptor)."""
        return Primitive(self, pd, args, threads or self.threads)

    def reorder(self, source: int, target: int) -> Primitive | None:
        """Copies from one layout to another; None if they are the same."""
        if self.library.md_equal(source, target):
            return None
        engine = self.library.engine
        threads = self.threads if self.size(target) >= PARALLEL_COPY else 1
        self.library.use_threads(threads)
        pd = self._keep(
            "primitive_desc",
            self.library.create("dnnl_reorder_primitive_desc_create", source, engine, target, engine, self.attr()),
        )
        made = self.primitive(pd, [(lib.ARG_SRC, source), (lib.ARG_DST, target)], threads)
        self.library.use_threads(self.threads)
        return made

    def size(self, md: int) -> int:
        """Bytes of a tensor of that descriptor, padding of its layout included."""
        return self.library.md_size(md)


class _Set(NamedTuple):
    """What one run needs: a stream, the array of arguments, their memory objects, and the addresses these hold now."""

    stream: int
    args: Any
    memories: list[int]
    addresses: list[int]


class Primitive:
    """Compiled code for one operation. `run(*addresses)` takes one address per argument."""

    __slots__ = ("__weakref__", "_arg_ids", "_execute", "_free", "_mds", "_set_address", "count", "handle", "implementation", "library", "scratch_size", "threads")

    def __init__(self, maker: Maker, pd: int, args: Sequence[tuple[int, int]], threads: int) -> None:
        library = maker.library
        self.library = library
        self.threads = threads
        self.implementation = maker.implementation(pd)
        scratchpad = library.query_md(pd, lib.QUERY_SCRATCHPAD, 0)
        self.scratch_size = library.md_size(scratchpad) if scratchpad is not None else 0
        if self.scratch_size:
            args = [*args, (lib.ARG_SCRATCHPAD, scratchpad)]  # type: ignore[list-item]
        self._arg_ids = [arg for arg, _ in args]
        self._mds = [library.create("dnnl_memory_desc_clone", md) for _, md in args]
        self.count = len(args)
        self._free: list[_Set] = []
        self._set_address = library.set_data_handle
        self.handle = library.create("dnnl_primitive_create", pd)

    def descriptor(self, index: int) -> int:
        """The memory descriptor of an argument."""
        return self._mds[index]

    def new_set(self) -> _Set:
        """What a run needs, none of its addresses set."""
        library = self.library
        library.used = True
        memories = [library.create("dnnl_memory_create", md, library.engine, None) for md in self._mds]
        args = (Arg * self.count)(*(Arg(arg, memory) for arg, memory in zip(self._arg_ids, memories, strict=True)))
        stream = library.create("dnnl_stream_create", library.engine, 1)
        return _Set(stream, args, memories, [0] * self.count)

    def run(self, *addresses: int) -> None:
        """Executes on the given addresses; the caller keeps their arrays alive."""
        library = self.library
        try:
            one = self._free.pop()
        except IndexError:
            one = self.new_set()
        stream, args, memories, known = one
        i = 0
        for a in addresses:
            if known[i] != a:
                self._set_address(memories[i], a)
                known[i] = a
            i += 1
        if self.scratch_size:
            pad = scratch.take(self.scratch_size)
            if known[i] != pad.address:
                self._set_address(memories[i], pad.address)
                known[i] = pad.address
            status = library.run(self.threads, library.execute, self.handle, stream, self.count, args)
            scratch.give(pad)
        else:
            status = library.run(self.threads, library.execute, self.handle, stream, self.count, args)
        self._free.append(one)
        if status:
            raise OneDnnError(f"execute {self.implementation}", status)

    def give_back(self, one: _Set) -> None:
        """For other runs, what `new_set` gave."""
        one.addresses[:] = [0] * self.count
        self._free.append(one)

    def __del__(self) -> None:
        try:
            call = self.library.call
            for one in self._free:
                for memory in one.memories:
                    call("dnnl_memory_destroy", memory)
                call("dnnl_stream_destroy", one.stream)
            for md in self._mds:
                call("dnnl_memory_desc_destroy", md)
            call("dnnl_primitive_destroy", self.handle)
        except (AttributeError, TypeError, OneDnnError):  # never finished, or the interpreter is going down
            pass

    def __repr__(self) -> str:
        return f"<Primitive {self.implementation}, {self.threads} threads>"


# -- keeping ------------------------------------------------------------------------------------------------------------

_cache: OrderedDict[Any, Any] = OrderedDict()
_cache_lock = threading.Lock()
dropped = 0
"""Plans that have had to make room for others."""


def cached(key: Any, make: Callable[[], Any]) -> Any:
    """What `make()` gives for `key`, kept while it is among the `CAPACITY` used last. None is kept too: there is no such primitive."""
    global dropped
    with _cache_lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    made = make()  # outside of the lock: it may take milliseconds
    with _cache_lock:
        made = _cache.setdefault(key, made)
        while len(_cache) > CAPACITY:
            _cache.popitem(last=False)
            dropped += 1
    return made


_layouts: weakref.WeakSet[ConstantWeights] = weakref.WeakSet()


def _after_fork() -> None:
    global _cache_lock
    _cache_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def clear_cache() -> None:
    """Forgets all primitives and buffers."""
    with _cache_lock:
        _cache.clear()
    scratch.clear()


class ConstantWeights:
    """Constant arrays in the layout that a primitive wants: made when first seen, forgotten when the array dies. `reorder` brings them into it."""

    __slots__ = ("__weakref__", "_known", "_reorder")

    def __init__(self, reorder: Primitive | None = None) -> None:
        self._known: dict[int, tuple[weakref.ref, Buffer]] = {}
        self._reorder = reorder

    @classmethod
    def laid_out_by(cls, reorder: Primitive) -> ConstantWeights:
        """One for all that want the same layout: the plans of a network for many sizes of what is fed, which all have the same weights."""
        equal = reorder.library.md_equal
        with _cache_lock:
            for other in list(_layouts):
                known = other._reorder
                if known is not None and all(equal(known.descriptor(i), reorder.descriptor(i)) for i in (0, 1)):
                    return other
            made = cls(reorder)
            _layouts.add(made)
            return made

    def get(self, array: np.ndarray, make: Callable[[np.ndarray], Buffer]) -> int:
        """The address of `array` as `make(array)` laid it out."""
        key = id(array)
        found = self._known.get(key)
        if found is not None and found[0]() is array:
            return found[1].address
        known = self._known
        made = make(array)
        known[key] = (weakref.ref(array, lambda _: known.pop(key, None)), made)
        return made.address
