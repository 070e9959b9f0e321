"""oneDNN as a shared library: found, loaded, checked and called through ctypes, without a compiler or headers.

The C API of oneDNN v3 is small: opaque handles, int64 arrays of dimensions, one struct (`Arg`, an execution argument). Its numbers
(enumerations) are those of the published headers. `get()` gives the one `Library` of the process, or None once and for all if there
is none: the package `onednn-cpu-gomp` is not installed, the version is another, or a first small product comes out wrong. The reason
is logged once (logger "penstock.engines"), and NumPy's kernels go on computing.

Threads
- oneDNN computes on OpenMP threads. `set_threads(n)` sets how many a primitive may use; by default one per CPU of the process.
  A primitive is made for a number of threads and must run with that number, so it is part of the key under which it is cached.
- Each thread of ours that calls the library has OpenMP threads of its own. Two calls at the same time, each on all cores, would wait for
  each other's threads at every turn; so calls that use several threads take turns (`all_cores`). OpenMP's threads of all but one of ours
  are let go after the call: where there are more of them than cores, idle or not, libgomp's threads hardly spin and sleep between kernels.
- OpenMP's threads would spin for milliseconds after each parallel region, which ruins everything else on a busy machine. libgomp reads
  its settings when it is loaded; ours is a spin of a fraction of a millisecond, unless the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT.
- All that holds while the cores are there. Where others compute too, kernels get fewer threads: see `crowd`.
- OpenMP does not survive a fork. In a child whose parent has already used the library, kernels are NumPy's, and the log says so.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from _thread import get_ident
from collections.abc import Callable
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint, c_void_p
from time import perf_counter_ns as clock
from time import thread_time_ns as thread_clock
from typing import Any

import numpy as np

from penstock.engines.memory import keep_freed_memory
from penstock.engines.onednn import crowd
from penstock.ops.kernels.threads import wish

log = logging.getLogger("penstock.engines")

PACKAGE = "onednn-cpu-gomp"
SPIN = "3000"
"""GOMP_SPINCOUNT: about 150 us. The threads are then still there for the next kernel of a step, with some Python in between; to wake
one that sleeps takes 50 us, as long as a product of medium size. Longer would only hurt what runs after the step."""

MOVES_AFTER = 300
"""After so many calls of other threads, with none of the thread that keeps OpenMP threads between them, another one keeps some."""
_PAUSE_SOFT = 1

# -- the published numbers ----------------------------------------------------------------------------------------------

F16, BF16, F32, S32 = 1, 2, 3, 4
TAG_ANY = 1
FORWARD_TRAINING, FORWARD_INFERENCE, BACKWARD = 64, 96, 128
CONVOLUTION_DIRECT = 0x1
LEFT_TO_RIGHT, RNN_OVERWRITE = 1, 1
POOLING_MAX, POOLING_AVG_EXCLUDE_PADDING = 0x1FF, 0x3FF
SOFTMAX_ACCURATE, SOFTMAX_LOG = 0x30000, 0x30001
BINARY_ADD, BINARY_MUL, BINARY_MAX, BINARY_DIV, BINARY_SUB, BINARY_LT = 0x1FFF0, 0x1FFF1, 0x1FFF2, 0x1FFF4, 0x1FFF5, 0x1FFF9
USE_GLOBAL_STATS, USE_SCALE, USE_SHIFT, FUSE_NORM_RELU = 0x1, 0x2, 0x4, 0x8

ELTWISE = {
    "relu": 0x20, "tanh": 0x21, "elu": 0x22, "sqrt": 0x25, "linear": 0x26, "softplus": 0x27, "sigmoid": 0x29, "gelu_tanh": 0x2B, "swish": 0x2C,
    "clip": 0x2E, "pow": 0x30, "gelu_erf": 0x31, "square": 0x23, "abs": 0x24,
}  # fmt: skip
"""Elementwise functions that can follow a convolution or a product; each takes two numbers, alpha and beta."""

ARG_SRC, ARG_SRC_1, ARG_DST, ARG_WEIGHTS, ARG_BIAS, ARG_MEAN, ARG_VARIANCE, ARG_SCALE, ARG_SHIFT = 1, 2, 17, 33, 41, 49, 50, 51, 52
ARG_WORKSPACE, ARG_SCRATCHPAD = 64, 80
ARG_DIFF_SRC, ARG_DIFF_DST, ARG_DIFF_WEIGHTS, ARG_DIFF_BIAS, ARG_DIFF_SCALE, ARG_DIFF_SHIFT = 129, 145, 161, 169, 255, 256
ARG_SRC_ITER, ARG_SRC_ITER_C, ARG_DST_ITER, ARG_DST_ITER_C, ARG_WEIGHTS_ITER, ARG_WEIGHTS_PEEPHOLE = 2, 3, 18, 19, 34, 35
ARG_DIFF_SRC_ITER, ARG_DIFF_SRC_ITER_C, ARG_DIFF_DST_ITER, ARG_DIFF_DST_ITER_C, ARG_DIFF_WEIGHTS_ITER = 130, 131, 146, 147, 162
ARG_POST_OP = 32768  # times (index of the post-op + 1), or'd with the argument

QUERY_IMPL_INFO = 8
QUERY_SRC, QUERY_DIFF_SRC, QUERY_WEIGHTS, QUERY_DIFF_WEIGHTS, QUERY_DST, QUERY_DIFF_DST = 129, 130, 131, 132, 133, 134
QUERY_WORKSPACE, QUERY_SCRATCHPAD = 135, 136

_STATUS = ("success", "out of memory", "invalid arguments", "unimplemented", "last implementation reached", "runtime error")
UNIMPLEMENTED = 3
FORKED = -1  # our own: the process was forked after the library had been used
_RUNTIME_SEQUENTIAL, _RUNTIME_OPENMP = 1, 2
_ISA_AVX512_BF16 = 0xE7

Dims = c_int64 * 12
Float = c_float


class Arg(ctypes.Structure):
    """dnnl_exec_arg_t: which argument, and its memory object."""

    _fields_ = (("arg", c_int), ("memory", c_void_p))


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", c_int), ("minor", c_int), ("patch", c_int), ("hash", c_char_p), ("cpu_runtime", c_uint), ("gpu_runtime", c_uint),
    )  # fmt: skip


class OneDnnError(RuntimeError):
    """A call of the library failed. `status` is its answer; UNIMPLEMENTED means that it has no such primitive."""

    def __init__(self, what: str, status: int) -> None:
        self.status = status
        reason = _STATUS[status] if 0 <= status < len(_STATUS) else "forked" if status == FORKED else f"status {status}"
        super().__init__(f"oneDNN: {what}: {reason}")


_H, _OUT, _DIMS = c_void_p, POINTER(c_void_p), POINTER(c_int64)

# Everything but the execution takes microseconds and is called with the GIL held, which is quicker than to let go of it.
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "dnnl_engine_create": (_OUT, c_int, c_size_t),
    "dnnl_engine_destroy": (_H,),
    "dnnl_stream_create": (_OUT, _H, c_uint),
    "dnnl_stream_destroy": (_H,),
    "dnnl_memory_desc_create_with_strides": (_OUT, c_int, _DIMS, c_int, _DIMS),
    "dnnl_memory_desc_create_with_tag": (_OUT, c_int, _DIMS, c_int, c_int),
    "dnnl_memory_desc_clone": (_OUT, _H),
    "dnnl_memory_desc_destroy": (_H,),
    "dnnl_memory_create": (_OUT, _H, _H, _H),
    "dnnl_memory_set_data_handle": (_H, _H),
    "dnnl_memory_destroy": (_H,),
    "dnnl_primitive_attr_create": (_OUT,),
    "dnnl_primitive_attr_set_scratchpad_mode": (_H, c_int),
    "dnnl_primitive_attr_set_post_ops": (_H, _H),
    "dnnl_primitive_attr_destroy": (_H,),
    "dnnl_post_ops_create": (_OUT,),
    "dnnl_post_ops_append_eltwise": (_H, c_int, c_float, c_float),
    "dnnl_post_ops_append_sum": (_H, c_float, c_int32, c_int),
    "dnnl_post_ops_append_binary": (_H, c_int, _H),
    "dnnl_post_ops_destroy": (_H,),
    "dnnl_primitive_desc_query": (_H, c_int, c_int, _H),
    "dnnl_primitive_desc_destroy": (_H,),
    "dnnl_primitive_create": (_OUT, _H),
    "dnnl_primitive_destroy": (_H,),
    "dnnl_reorder_primitive_desc_create": (_OUT, _H, _H, _H, _H, _H),
    "dnnl_convolution_forward_primitive_desc_create": (_OUT, _H, c_int, c_int, _H, _H, _H, _H, _DIMS, _DIMS, _DIMS, _DIMS, _H),
    "dnnl_convolution_backward_data_primitive_desc_create": (_OUT, _H, c_int, _H, _H, _H, _DIMS, _DIMS, _DIMS, _DIMS, _H, _H),
    "dnnl_convolution_backward_weights_primitive_desc_create": (_OUT, _H, c_int, _H, _H, _H, _H, _DIMS, _DIMS, _DIMS, _DIMS, _H, _H),
    "dnnl_pooling_forward_primitive_desc_create": (_OUT, _H, c_int, c_int, _H, _H, _DIMS, _DIMS, _DIMS, _DIMS, _DIMS, _H),
    "dnnl_pooling_backward_primitive_desc_create": (_OUT, _H, c_int, _H, _H, _DIMS, _DIMS, _DIMS, _DIMS, _DIMS, _H, _H),
    "dnnl_batch_normalization_forward_primitive_desc_create": (_OUT, _H, c_int, _H, _H, c_float, c_uint, _H),
    "dnnl_batch_normalization_backward_primitive_desc_create": (_OUT, _H, c_int, _H, _H, _H, c_float, c_uint, _H, _H),
    "dnnl_layer_normalization_forward_primitive_desc_create": (_OUT, _H, c_int, _H, _H, _H, c_float, c_uint, _H),
    "dnnl_layer_normalization_backward_primitive_desc_create": (_OUT, _H, c_int, _H, _H, _H, _H, c_float, c_uint, _H, _H),
    "dnnl_softmax_forward_primitive_desc_create": (_OUT, _H, c_int, c_int, _H, _H, c_int, _H),
    "dnnl_softmax_backward_primitive_desc_create": (_OUT, _H, c_int, _H, _H, _H, c_int, _H, _H),
    "dnnl_matmul_primitive_desc_create": (_OUT, _H, _H, _H, _H, _H, _H),
    "dnnl_eltwise_forward_primitive_desc_create": (_OUT, _H, c_int, c_int, _H, _H, c_float, c_float, _H),
    "dnnl_binary_primitive_desc_create": (_OUT, _H, c_int, _H, _H, _H, _H),
    "dnnl_lstm_forward_primitive_desc_create": (_OUT, _H, c_int, c_int, *[_H] * 11, c_uint, _H),
    "dnnl_lstm_backward_primitive_desc_create": (_OUT, _H, c_int, c_int, *[_H] * 22, c_uint, _H, _H),
    "dnnl_gru_forward_primitive_desc_create": (_OUT, _H, c_int, c_int, *[_H] * 7, c_uint, _H),
}  # fmt: skip
_SGEMM = (c_char, c_char, c_int64, c_int64, c_int64, c_float, _H, c_int64, _H, c_int64, c_float, _H, c_int64)


class Library:
    """The loaded library: its functions, one CPU engine, and how many threads it may use.

    `execute(primitive, stream, count, args)`, `sgemm(...)` and `together(code, argument, threads, 0)` run without the GIL; everything in `call(name, ...)` with it.
    """

    _let_go: Callable[[int], int] | None = None  # ends the OpenMP threads of the calling thread

    def __init__(self, path: str) -> None:
        self.path = path
        quick, slow = ctypes.PyDLL(path), ctypes.CDLL(path)
        quick.dnnl_version.restype = POINTER(_Version)
        version = quick.dnnl_version().contents
        self.version = (version.major, version.minor, version.patch)
        if version.major != 3:
            raise OSError(f"{path} is oneDNN {'.'.join(map(str, self.version))}; version 3 is needed")
        if version.cpu_runtime not in (_RUNTIME_SEQUENTIAL, _RUNTIME_OPENMP):
            raise OSError(f"{path} was built for threads other than OpenMP's (runtime {version.cpu_runtime})")
        self._functions: dict[str, Callable[..., int]] = {}
        for name, argtypes in _PROTOTYPES.items():
            function = getattr(quick, name)
            function.argtypes, function.restype = argtypes, c_int
            self._functions[name] = function
        self.query_md: Callable[..., int | None] = quick.dnnl_primitive_desc_query_md
        quick.dnnl_primitive_desc_query_md.argtypes, quick.dnnl_primitive_desc_query_md.restype = (_H, c_int, c_int), _H
        self.md_size: Callable[[Any], int] = quick.dnnl_memory_desc_get_size
        quick.dnnl_memory_desc_get_size.argtypes, quick.dnnl_memory_desc_get_size.restype = (_H,), c_size_t
        self.md_equal: Callable[[Any, Any], int] = quick.dnnl_memory_desc_equal
        quick.dnnl_memory_desc_equal.argtypes, quick.dnnl_memory_desc_equal.restype = (_H, _H), c_int
        self.set_data_handle = self._functions["dnnl_memory_set_data_handle"]
        self.execute: Callable[..., int] = slow.dnnl_primitive_execute
        slow.dnnl_primitive_execute.argtypes, slow.dnnl_primitive_execute.restype = (_H, _H, c_int, POINTER(Arg)), c_int
        self.sgemm: Callable[..., int] = slow.dnnl_sgemm
        slow.dnnl_sgemm.argtypes, slow.dnnl_sgemm.restype = _SGEMM, c_int
        self.together = self._parallel(slow, version.cpu_runtime == _RUNTIME_OPENMP)
        self.has_bf16 = (quick.dnnl_get_effective_cpu_isa() & _ISA_AVX512_BF16) == _ISA_AVX512_BF16
        self._omp_threads = threading.local()
        self._set_omp_threads = self._openmp(version.cpu_runtime == _RUNTIME_OPENMP)
        self.used = False  # whether anything ran: what matters after a fork
        self.preparing: threading.Thread | None = None
        self.all_cores = threading.Lock()
        self._home, self._visits = 0, 0  # the thread of ours that keeps OpenMP threads, and calls of others since it ran
        self.engine = self.create("dnnl_engine_create", 1, 0)

    def _openmp(self, is_parallel: bool) -> Callable[[int], None] | None:
        if not is_parallel:
            return None
        # Found among the library's own dependencies, so that it is the libgomp that it uses.
        function = ctypes.PyDLL(self.path).omp_set_num_threads
        function.argtypes, function.restype = (c_int,), None
        pause = getattr(ctypes.CDLL(self.path), "omp_pause_resource_all", None)  # libgomp has it since GCC 9
        if pause is not None:
            pause.argtypes, pause.restype = (c_int,), c_int
            self._let_go = pause
        return function

    def _parallel(self, library: ctypes.CDLL, is_parallel: bool) -> Callable[..., int | None]:
        """`together(code, argument, threads, 0)`: the function at the address `code` is called with the argument, an address, on OpenMP's threads, once on each."""
        function = getattr(library, "GOMP_parallel", None) if is_parallel else None
        if function is None:
            return lambda code, argument, *_: ctypes.CFUNCTYPE(None, c_void_p)(code)(argument)
        function.argtypes, function.restype = (_H, _H, c_uint, c_uint), None
        return function

    def prepare_products(self) -> None:
        """Lets another thread call `sgemm` a first time, which writes all its machine code: 20 ms, for which a later step would have to wait."""
        if self.preparing is not None or budget() < 2:
            return
        sides = np.ones((3, 8, 8), np.float32)
        a, b, c = (side.ctypes.data for side in sides)

        def run(_kept: np.ndarray = sides) -> None:
            self.use_threads(1)
            self.sgemm(b"N", b"N", 8, 8, 8, 1.0, a, 8, b, 8, 0.0, c, 8)

        self.preparing = threading.Thread(target=run, name="penstock-onednn", daemon=True)
        self.preparing.start()

    def call(self, name: str, *args: Any) -> None:
        """Calls a function of the API; OneDnnError if it does not succeed."""
        status = self._functions[name](*args)
        if status:
            raise OneDnnError(name, status)

    def create(self, name: str, *args: Any) -> int:
        """Calls a function that gives a new handle."""
        handle = c_void_p()
        self.call(name, byref(handle), *args)
        return handle.value  # type: ignore[return-value]

    def use_threads(self, number: int) -> None:
        """Sets the number of OpenMP threads for what this thread makes or runs next."""
        mine = self._omp_threads
        if getattr(mine, "number", 0) != number:
            if self._set_omp_threads is not None:
                self._set_omp_threads(number)
            mine.number = number

    def forget_threads(self) -> None:
        """Their number is not known in this thread."""
        self._omp_threads.number = 0

    def openmp_setter(self) -> int:
        """The address of `omp_set_num_threads`, 0 if there are no OpenMP threads. Who calls it sets it back."""
        return ctypes.cast(self._set_omp_threads, c_void_p).value or 0 if self._set_omp_threads is not None else 0  # type: ignore[arg-type]

    def run(self, threads: int, function: Callable[..., int | None], *args: Any) -> int | None:
        """Calls `execute`, `sgemm` or `together` with a number of threads. What uses several uses all cores: one at a time."""
        mine = self._omp_threads
        if getattr(mine, "number", 0) != threads:
            self.use_threads(threads)
        if threads == 1:
            if crowd.limit:
                crowd.look()
            return function(*args)
        start = begun = clock()
        cpu = thread_clock()
        try:
            if threads * 2 <= _threads:  # there is room for another one
                return function(*args)
            with self.all_cores:
                begun = clock()
                if self._home == get_ident():
                    self._visits = 0
                    return function(*args)
                return self._visit(function, *args)
        finally:
            crowd.record(clock() - start, begun - start, thread_clock() - cpu, _threads)
            if crowd.limit:
                crowd.look()

    def _visit(self, function: Callable[..., int | None], *args: Any) -> int | None:
        """A call of another thread than the one whose OpenMP threads wait for the next kernel. After many of them it is that one."""
        if self._home == 0 or self._visits >= MOVES_AFTER or self._let_go is None:
            self._home, self._visits = get_ident(), 0
            return function(*args)
        self._visits += 1
        try:
            return function(*args)
        finally:
            self._let_go(_PAUSE_SOFT)

    def describe(self) -> str:
        return f"oneDNN {'.'.join(map(str, self.version))} ({self.path}), {threads()} threads"


# -- finding and loading ------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_library: Library | None = None
_tried = False
_threads = 0


def get() -> Library | None:
    """The library, loaded at the first call; None if kernels are to be NumPy's."""
    return _library if _tried else _load_once()


def _load_once() -> Library | None:
    global _library, _tried
    with _lock:
        if not _tried:
            try:
                _library = load()
                keep_freed_memory()
                log.debug("%s computes heavy kernels", _library.describe())
            except (OSError, AttributeError, OneDnnError, ImportError) as error:
                log.warning("oneDNN is not used, NumPy computes heavy kernels: %s", error)
            _tried = True
    return _library


def load() -> Library:
    """Loads and checks the library; OSError, AttributeError or OneDnnError with the reason if it cannot be used."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise OSError(f"there is no package {PACKAGE} for {sys.platform} {os.uname().machine if hasattr(os, 'uname') else ''}".rstrip())
    problems = []
    for path in _candidates():
        try:
            library = _open(path)
        except OSError as error:
            hint = " (GCC's OpenMP library; Debian and Ubuntu: apt install libgomp1)" if "libgomp" in str(error) else ""
            problems.append(f"{error}{hint}")
            continue
        _check(library)
        return library
    raise OSError("; ".join(problems) or f"install {PACKAGE}")


def _candidates() -> list[str]:
    """Where the library may be: a path the user gave, the installed package's files, where the dynamic linker looks."""
    given = os.environ.get("PENSTOCK_ONEDNN_LIBRARY")
    if given:
        return [given]
    found = []
    from importlib import metadata

    try:
        for file in metadata.files(PACKAGE) or ():
            if file.name == "libdnnl.so.3":
                found.append(str(file.locate().resolve()))  # type: ignore[attr-defined]
    except metadata.PackageNotFoundError:
        pass
    return [*found, "libdnnl.so.3"]


def _open(path: str) -> Library:
    # Where there are more OpenMP threads than cores, libgomp hardly spins, unless waiting is to be active: then a third of SPIN.
    quiet = {} if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys() else {"GOMP_SPINCOUNT": SPIN, "OMP_WAIT_POLICY": "ACTIVE"}
    os.environ.update(quiet)
    try:
        return Library(path)
    finally:
        for name in quiet:
            os.environ.pop(name, None)


def _check(library: Library) -> None:
    """A small product through descriptors, primitive, memory and execution must come out right."""
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(6, dtype=np.float32).reshape(3, 2) - 2
    result = np.zeros((2, 2), np.float32)
    library.use_threads(1)
    mds = []
    for array in (a, b, result):
        dims, strides = Dims(*array.shape), Dims(array.shape[1], 1)
        mds.append(library.create("dnnl_memory_desc_create_with_strides", 2, dims, F32, strides))
    pd = library.create("dnnl_matmul_primitive_desc_create", library.engine, mds[0], mds[1], None, mds[2], None)
    primitive = library.create("dnnl_primitive_create", pd)
    stream = library.create("dnnl_stream_create", library.engine, 1)
    memories = [
        library.create("dnnl_memory_create", md, library.engine, array.ctypes.data)
        for md, array in zip(mds, (a, b, result), strict=True)
    ]
    args = (Arg * 3)(*(Arg(arg, memory) for arg, memory in zip((ARG_SRC, ARG_WEIGHTS, ARG_DST), memories, strict=True)))
    status = library.execute(primitive, stream, 3, args)
    for name, handles in (("memory", memories), ("stream", [stream]), ("primitive", [primitive]), ("primitive_desc", [pd]), ("memory_desc", mds)):
        for handle in handles:
            library.call(f"dnnl_{name}_destroy", handle)
    if status or not np.array_equal(result, a @ b):
        raise OSError(f"{library.path} gave a wrong answer (status {status}) to a first small product")


def threads() -> int:
    """How many threads a primitive may use, as things are."""
    number = budget()
    if crowd.limit:
        number = min(number, crowd.limit)
    return min(number, wish.number) if wish.number else number


def budget() -> int:
    """How many there are."""
    return _threads or _default_threads()


def _default_threads() -> int:
    """One per CPU that this process may use, or what OMP_NUM_THREADS says."""
    from penstock.engines import onednn

    if onednn.budget is not None:
        number = onednn.budget()
    else:
        number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wish = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    set_threads(min(number, int(wish)) if wish.isdigit() else number)
    return _threads


def set_threads(number: int) -> None:
    """Sets how many threads a primitive may use; the caller knows limits of the container and the session's configuration."""
    global _threads
    _threads = max(1, int(number))
    crowd.reset()


# -- forks --------------------------------------------------------------------------------------------------------------


def _after_fork() -> None:
    """OpenMP's threads are gone, but it does not know: after a first use in the parent, the child computes with NumPy."""
    global _lock, _library, _tried
    _lock = threading.Lock()
    if _library is not None:
        if _library.used:
            log.warning("oneDNN ran before this process was forked: here NumPy computes heavy kernels")
            # Plans that kernels remember meet this answer, and give way to NumPy.
            _library.execute = _library.sgemm = _library.together = lambda *args: FORKED
            _library.all_cores = threading.Lock()
            _library = None
        else:
            _library._omp_threads = threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
