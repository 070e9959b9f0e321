"""Ops that talk to people: Assert, Print, PrintV2, calls of Python functions, and the time."""

from __future__ import annotations

import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import errors
from penstock.dtypes import DType
from penstock.dtypes import string as STRING
from penstock.errors import InvalidArgumentError
from penstock.forks import renewed
from penstock.graph.ir import Dims, Graph
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, same_as, scalar
from penstock.ops.interrupts import Interruptible
from penstock.ops.kernels.summarize import summarize as _summary
from penstock.ops.kernels.texts import dtype_text
from penstock.ops.samples import arr, normal

# -- Assert -----------------------------------------------------------------------------------------------------------


def assert_kernel(condition: Any, data: list[Any], *, summarize: int) -> None:
    if np.ndim(condition):
        raise InvalidArgumentError(f"In[0] should be a scalar: [{','.join(map(str, np.shape(condition)))}]")
    if not condition:
        raise InvalidArgumentError("assertion failed: " + " ".join(f"[{_summary(d, summarize)}]" for d in data))


def assert_shape(c: Any) -> list[Dims]:
    if c.dims(0):
        raise ValueError(f"Shape must be rank 0 but is rank {len(c.dims(0))}")
    return []


op("Assert(condition: bool, data: list T) -> () [T: list(type) >= 1; summarize: int = 3] stateful",
   shape=assert_shape, numpy=assert_kernel, grad=NOT_DIFFERENTIABLE,
   errors=[(dict(condition=False, data=[arr([1, 2, 3, 4], np.int32)]), InvalidArgumentError, r"assertion failed: \[1 2 3\.\.\.\]")])  # fmt: skip


# -- Print ------------------------------------------------------------------------------------------------------------


def print_kernel(x: Any, data: list[Any], *, message: bytes, first_n: int, summarize: int, state: Any) -> Any:
    count = state.count = getattr(state, "count", 0) + 1
    if first_n < 0 or count <= first_n:
        text = message.decode(errors="replace") + "".join(f"[{_summary(d, summarize)}]" for d in data)
        print(text, file=sys.stderr, flush=True)
    return x


op("Print(input: T, data: list U) -> (output: T) [T: type; U: list(type) >= 0; message: string = ''; first_n: int = -1; summarize: int = 3] stateful",
   shape=same_as("input"), numpy=print_kernel, grad=lambda g, op, dy, *_: [dy] + [None] * (len(op.inputs) - 1),
   samples=[dict(input=normal(2, 3), data=[arr([1, 2], np.int32)], message="m")])  # fmt: skip

_LOG_NAMES = {"log(info)": "INFO", "log(warning)": "WARNING", "log(error)": "ERROR"}


def print_v2_kernel(text: Any, *, output_stream: bytes, end: bytes) -> None:
    line = np.asarray(text, dtype=object)[()]
    shown = (line if isinstance(line, bytes) else bytes(line)).decode(errors="replace")
    stream, ending = output_stream.decode(), end.decode()
    if stream == "stdout":
        print(shown, end=ending, flush=True)
    elif stream == "stderr":
        print(shown, end=ending, file=sys.stderr, flush=True)
    elif stream in _LOG_NAMES:
        import logging

        logging.getLogger("penstock").log(getattr(logging, _LOG_NAMES[stream]), shown)
    elif stream.startswith("file://"):
        with open(stream[len("file://") :], "a", encoding="utf-8") as file:
            file.write(shown + ending)
    else:
        raise InvalidArgumentError(f"Unknown output stream: {stream} or Printed string tensor is not scalar")


def print_v2_shape(c: Any) -> list[Dims]:
    if c.dims(0):
        raise ValueError(f"Shape must be rank 0 but is rank {len(c.dims(0))}")
    return []


op("PrintV2(input: string) -> () [output_stream: string = 'stderr'; end: string = '\\n'] stateful",
   shape=print_v2_shape, numpy=print_v2_kernel)  # fmt: skip

op("Timestamp() -> (ts: double) stateful", shape=scalar, numpy=lambda: np.float64(time.time()), grad=NOT_DIFFERENTIABLE)


# -- Python functions -------------------------------------------------------------------------------------------------


class PyFunctions:
    """Functions by token. A token lives as long as the graph that holds it (`keep`), so that functions are not leaked."""

    def __init__(self) -> None:
        self._lock = renewed(threading.Lock())
        self._next = 0
        self._functions: weakref.WeakValueDictionary[str, _Held] = weakref.WeakValueDictionary()

    def add(self, function: Callable[..., Any], graph: Graph) -> str:
        """Registers `function` for as long as `graph` lives; its token."""
        held = _Held(function)
        with self._lock:
            token = f"pyfunc_{self._next}"
            self._next += 1
            self._functions[token] = held
        graph.__dict__.setdefault("_py_functions", []).append(held)
        return token

    def find(self, token: str) -> Callable[..., Any] | None:
        held = self._functions.get(token)
        return None if held is None else held.function

    def __len__(self) -> int:
        return len(self._functions)


class _Held:
    __slots__ = ("__weakref__", "function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


PY_FUNCTIONS = PyFunctions()

_BY_EXCEPTION: tuple[tuple[type[BaseException], Any], ...] = (
    (StopIteration, errors.OutOfRangeError),
    (MemoryError, errors.ResourceExhaustedError),
    (NotImplementedError, errors.UnimplementedError),
    (TypeError, errors.InvalidArgumentError),
    (ValueError, errors.InvalidArgumentError),
)


def _argument(value: Any) -> Any:
    """What the function gets: scalars as NumPy scalars (bytes for strings), arrays as copies that it may write to."""
    if isinstance(value, np.ndarray):
        return value[()] if value.ndim == 0 else value.copy()
    return value


def _result(value: Any, want: DType, position: int, token: str) -> Any:
    if want is STRING:
        # Another holder of the array could change it later, so that strings and shared arrays are copied.
        array = np.array(value, dtype=object)
        flat = [v if isinstance(v, bytes) else str(v).encode() for v in array.ravel()]
        result = np.empty(array.shape, dtype=object)
        result.ravel()[:] = flat
        return result
    array = np.asarray(value)
    if array.dtype != want.np:
        from penstock.dtypes import from_np

        try:
            got = dtype_text(from_np(array.dtype))
        except TypeError:
            got = str(array.dtype)
        raise InvalidArgumentError(f"{position}-th value returned by {token} is {got}, but expects {dtype_text(want)}")
    if array is value and (array.base is not None or sys.getrefcount(value) > _SHARED):
        array = array.copy()
    return array


_SHARED = 4  # the caller's list, its loop variable, our argument, getrefcount's


def py_func_kernel(inputs: list[Any], *, token: bytes, Tout: list[DType]) -> list[Any]:
    name = token.decode()
    function = PY_FUNCTIONS.find(name)
    if function is None:
        raise InvalidArgumentError(
            f"callback {name} is not found. A py_func belongs to the process and the graph that made it; it cannot be loaded from a file."
        )
    try:
        arguments = [_argument(v) for v in inputs]
        with Interruptible():
            returned = function(*arguments)
    except Exception as error:
        cls = next((to for kind, to in _BY_EXCEPTION if isinstance(error, kind)), errors.UnknownError)
        raise cls(f"{type(error).__name__}: {error}\n{traceback.format_exc()}\n") from error
    if returned is None:
        values = []
    elif isinstance(returned, (list, tuple)):
        values = list(returned)
    else:
        values = [returned]
    del returned
    if len(values) != len(Tout):
        raise InvalidArgumentError(f"{name} returns {len(values)} values, but expects to see {len(Tout)} values.")
    results = []
    for i, want in enumerate(Tout):
        value = values[i]
        results.append(_result(value, want, i, name))
    return results


def unknown_outputs(c: Any) -> list[Dims]:
    return [None for _ in c.attrs["Tout"]]


_PY_ATTRS = "[token: string; Tin: list(type) >= 0; Tout: list(type) >= 0]"
op(f"PyFunc(input: list Tin) -> (output: list Tout) {_PY_ATTRS} stateful",
   shape=unknown_outputs, numpy=py_func_kernel, grad=NOT_DIFFERENTIABLE, expensive=True)  # fmt: skip
op(f"PyFuncStateless(input: list Tin) -> (output: list Tout) {_PY_ATTRS}",
   shape=unknown_outputs, numpy=py_func_kernel, grad=NOT_DIFFERENTIABLE, expensive=True)  # fmt: skip
