"""What state looks like to kernels: handles, references, and variables.

A `ResourceHandle` is the run-time value of a resource tensor: a name in a container of a device. A `Ref` is the run-time
value of a ref tensor, and what a variable's handle leads to: the variable itself.

A variable keeps one value. Readers get that object, without a copy, and keep seeing what they read: a writer replaces the
value, or writes into it only if nobody else can see it. Whether that is so follows from the array's reference count, taken
after the writer has made the variable empty; readers that meet an empty variable wait for the writer's lock.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from penstock import errors
from penstock.dtypes import DType
from penstock.graph.ir import Dims

DEFAULT_CONTAINER = "localhost"


class ResourceHandle:
    """Names a resource: (device, container, name, type)."""

    __slots__ = ("__weakref__", "container", "device", "dtypes_and_shapes", "name", "resource", "type_name")

    # Several handles can be packed into an array, which is then an array of objects.
    shape = ()
    ndim = 0
    dtype = np.dtype(object)

    def __init__(
        self, device: str, container: str, name: str, type_name: str, dtypes_and_shapes: Any = (), resource: Any = None
    ) -> None:
        self.device = device
        self.container = container
        self.name = name
        self.type_name = type_name
        self.dtypes_and_shapes = dtypes_and_shapes
        self.resource = resource  # anonymous resources live as long as their handle

    def __repr__(self) -> str:
        return f"<ResourceHandle {self.type_name} {self.container}/{self.name} on {self.device}>"


def carried(handle: Any, cls: Any) -> Any:
    """The object that `handle` carries itself, or None if it only names one; InvalidArgumentError, in TF's words, if it is no `cls`."""
    if handle.__class__ is not ResourceHandle:
        raise errors.InvalidArgumentError(
            f"A resource handle is needed, got a {type(handle).__name__} of shape {np.shape(handle)}"
        )
    found = handle.resource
    if found is not None and not isinstance(found, cls):
        raise errors.InvalidArgumentError(
            f"Trying to access a handle's resource using the wrong type. The handle points to a resource (name '{handle.name}') of type "
            f"'{handle.type_name}' but you are trying to access the resource as type '{getattr(cls, 'type_name', cls.__name__)}'"
        )
    return found


def pair_of(handle: Any) -> tuple[str, str]:
    """(container, name) out of a handle of TF1's first kind: a vector of two strings, or a reference to one."""
    pair = handle.read() if isinstance(handle, Ref) else handle
    if np.shape(pair) != (2,) or not all(isinstance(part, bytes) for part in pair):
        raise errors.InvalidArgumentError(
            f"A resource handle must be a 2-element vector of strings, but had shape: {list(np.shape(pair))}"
        )
    return pair[0].decode("utf-8", "replace"), pair[1].decode("utf-8", "replace")


def _references_of_a_local() -> int:
    box = [np.zeros(1)]
    value = box[0]
    box[0] = None  # type: ignore[call-overload]
    return getrefcount(value)


_ALONE = _references_of_a_local()  # what getrefcount says of an object that only a local name holds
_SLACK = 64  # bytes by which memory may exceed the array that lies in it, so that this begins where a cache line begins


def _owns_memory(value: np.ndarray) -> bool:
    """Whether nobody can see the array's memory but through the array itself, and all of that memory is the array's."""
    base = value.base
    if base is None:
        return True
    return (
        base.__class__ is np.ndarray
        and base.base is None
        and getrefcount(base) <= _ALONE + 1
        and base.nbytes <= value.nbytes + _SLACK
    )


variables: weakref.WeakValueDictionary[int, Ref] = weakref.WeakValueDictionary()
"""All there are, by their ids."""


class Ref:
    """A variable: one value (None: uninitialised, or in a writer's hands), its lock, its type and declared shape."""

    __slots__ = ("__weakref__", "dims", "dtype", "lock", "name", "value")

    shape = ()
    type_name = "N10tensorflow3VarE"  # how TF's messages call the class

    def __init__(self, dtype: DType, dims: Dims, name: str = "") -> None:
        self.dtype = dtype
        self.dims = dims
        self.name = name
        self.value: Any = None
        self.lock = threading.RLock()
        variables[id(self)] = self

    def peek(self) -> Any:
        """The current value, or None if there is none yet."""
        value = self.value
        if value is None:
            with self.lock:  # a writer may be at work
                value = self.value
        return value

    def read(self) -> Any:
        """The current value; FailedPreconditionError if there is none yet."""
        value = self.value
        if value is None:
            value = self.peek()
            if value is None:
                raise errors.FailedPreconditionError(f"Attempting to use uninitialized value {self.name}")
        return value

    def assign(self, value: Any) -> None:
        """Makes `value` the variable's value. Values are immutable, so it is shared; views are copied, lest they keep a
        bigger array alive or show what somebody else writes."""
        if value.__class__ is np.ndarray and (
            not _owns_memory(value) or not value.flags.writeable or not value.flags.c_contiguous
        ):
            value = np.array(value, copy=True, order="C")
        with self.lock:
            self.value = value

    def take(self) -> np.ndarray:
        """The value as an array that is safe to write into; the variable is empty until `put`. Call with the lock held."""
        value = self.read()
        self.value = None
        if (
            value.__class__ is not np.ndarray
            or getrefcount(value) > _ALONE
            or (value.base is not None and not _owns_memory(value))
        ):
            return np.array(value, copy=True, order="C")
        flags = value.flags
        if not flags.writeable or not flags.c_contiguous:
            return np.array(value, copy=True, order="C")
        return value

    def put(self, value: Any) -> None:
        """Ends what `take` began. Call with the lock held."""
        self.value = value

    def own_array(self) -> np.ndarray:
        """The array, safe to write into while the lock is held and nobody reads without it; see `take` for the strict way."""
        value = self.value = self.take()
        return value

    def update(self, function: Callable[..., Any], operand: Any) -> None:
        """value = function(value, operand), in place where nobody else looks. `function` takes `out=`, as ufuncs do."""
        with self.lock:
            value = self.read()
            if value.__class__ is not np.ndarray:
                self.value = function(value, operand)
                return
            self.value = None
            try:
                if getrefcount(value) <= _ALONE and _owns_memory(value) and value.flags.writeable:
                    function(value, operand, out=value)
                else:
                    value = function(value, operand)
            finally:
                self.value = value

    def __repr__(self) -> str:
        return f"<Ref {self.name} {self.dtype.name} {'uninitialized' if self.value is None else np.shape(self.value)}>"


class Owned:
    """`with Owned(a, b) as (x, y):` locks the variables and hands out their arrays to write into."""

    __slots__ = ("arrays", "refs")

    def __init__(self, *refs: Ref) -> None:
        self.refs = refs
        self.arrays: list[np.ndarray] = []

    def __enter__(self) -> list[np.ndarray]:
        self.arrays = acquire(self.refs)
        return self.arrays

    def __exit__(self, *exc_info: object) -> None:
        release(self.refs, self.arrays)
        self.arrays = []


def acquire(refs: Sequence[Ref]) -> list[np.ndarray]:
    """Locks the variables and gives their arrays, to write into until `release`. FailedPreconditionError if one has no value."""
    _lock(refs)
    taken: list[np.ndarray] = []
    try:
        for ref in refs:
            if ref.value is None:
                ref.read()
        for i, ref in enumerate(refs):
            value = ref.value
            if value is None:  # a variable that stands for two arguments, the second time
                value = taken[refs.index(ref, 0, i)]
            else:
                ref.value = None
                if value.__class__ is not np.ndarray or getrefcount(value) > _ALONE or value.base is not None or not value.flags.carray:
                    ref.value = value
                    del value  # for `take`, who counts
                    value = ref.take()
            taken.append(value)
        return taken
    except BaseException:
        release(refs, taken)
        raise


def take_free(refs: Sequence[Ref], taken: list[Ref], arrays: list[np.ndarray]) -> bool:
    """As `acquire`, if nobody has to be waited for and nothing has to be copied. What it has taken is at the end of the lists, for `release`: all of them, or fewer."""
    for ref in refs:
        if not ref.lock.acquire(False):
            return False
        value = ref.value
        ref.value = None  # before the count: from here on, nobody else gets it
        if value.__class__ is not np.ndarray or getrefcount(value) > _ALONE or value.base is not None or not value.flags.carray:
            ref.value = value
            ref.lock.release()
            return False
        taken.append(ref)
        arrays.append(value)
    return True


def _lock(refs: Sequence[Ref]) -> None:
    """All of them. Who finds one taken begins again, in one order for all, so that two cannot wait for each other. One variable may stand twice."""
    for i, ref in enumerate(refs):
        if not ref.lock.acquire(False):
            for other in refs[:i]:
                other.lock.release()
            for other in sorted(refs, key=id):
                other.lock.acquire()
            return


def release(refs: Sequence[Ref], arrays: Sequence[np.ndarray]) -> None:
    """Gives back what `acquire` gave; only as many variables get a value as there are arrays."""
    for ref, array in zip(refs, arrays):
        ref.value = array
    for ref in refs:
        ref.lock.release()
