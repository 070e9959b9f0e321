"""How many threads this process should use, and the pools that hold them.

The number of CPUs is what the scheduler really gives us: the affinity mask, cut down by cgroup limits (containers). Pools
start their threads when there is work, keep them as daemons, and start anew in a forked child. No kernel that may wait ever
holds a pool's thread; work that must wait goes to `run_blocking`, which always finds it a thread.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from penstock import errors
from penstock.ops.kernels import threads as of_kernels
from penstock.runtime.quiet import silence_thread

# -- how many ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def cpu_count() -> int:
    """CPUs that this process may use: affinity mask and cgroup limits, at least 1."""
    try:
        count = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not on every system
        count = os.cpu_count() or 1
    limit = cgroup_limit()
    return max(1, count if limit is None else min(count, math.ceil(limit)))


def cgroup_limit(root: str = "/") -> float | None:
    """The CPU limit of this process's control group (v1 or v2) or of one that contains it, in CPUs; None if unlimited."""
    limits = []
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            limits += _limits_up(os.path.join(root, "sys/fs/cgroup"), path, _limit_v2)
        elif "cpu" in controllers.split(","):
            for mount in (controllers, "cpu"):
                limits += _limits_up(os.path.join(root, "sys/fs/cgroup", mount), path, _limit_v1)
    return min(limits, default=None)


def _limits_up(base: str, path: str, read: Callable[[str], float | None]) -> list[float]:
    """The limits of a group and of all groups around it."""
    parts = [p for p in path.split("/") if p and p != ".."]
    folders = [os.path.join(base, *parts[:n]) for n in range(len(parts), -1, -1)]
    return [limit for limit in map(read, folders) if limit is not None]


def _limit_v2(folder: str) -> float | None:
    fields = " ".join(_lines(os.path.join(folder, "cpu.max"))).split()
    return _ratio(fields[0], fields[1]) if len(fields) == 2 else None


def _limit_v1(folder: str) -> float | None:
    quota = " ".join(_lines(os.path.join(folder, "cpu.cfs_quota_us")))
    period = " ".join(_lines(os.path.join(folder, "cpu.cfs_period_us")))
    return _ratio(quota, period)


def _ratio(quota: str, period: str) -> float | None:
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except (ValueError, ZeroDivisionError):  # "max", or a file that is not there
        return None


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().splitlines()
    except OSError:
        return []


# -- pools ---------------------------------------------------------------------------------------------------------


class WorkPool:
    """At most `num_threads` daemon threads that run what is submitted, first come first served."""

    def __init__(self, num_threads: int, name: str = "penstock-pool", idle_seconds: float | None = None) -> None:
        self.num_threads = num_threads
        self.name = name
        self._idle_seconds = idle_seconds
        self._closed = False
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._work: deque[Callable[[], Any]] = deque()
        self._threads = 0
        self._idle = 0

    def submit(self, function: Callable[[], Any]) -> None:
        """Runs `function()` on a thread of the pool. It must handle its own errors; one that escapes goes to
        `threading.excepthook` and the pool lives on."""
        with self._condition:
            if self._closed:
                raise errors.CancelledError(f"The thread pool {self.name!r} is closed")
            self._work.append(function)
            if self._idle >= len(self._work):
                self._condition.notify()
            elif self._threads < self.num_threads:
                self._threads += 1
                threading.Thread(target=self._run, args=(self._condition,), name=self.name, daemon=True).start()

    def close(self) -> None:
        """Lets the threads end once the work that is there is done."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _run(self, condition: threading.Condition) -> None:
        silence_thread()
        while True:
            with condition:
                self._idle += 1
                while not self._work:
                    if self._closed or (not condition.wait(self._idle_seconds) and not self._work):
                        self._idle -= 1
                        self._threads -= 1
                        return
                self._idle -= 1
                function = self._work.popleft()
            try:
                function()
            except BaseException as error:
                args = threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
                threading.excepthook(args)
            del function  # a finished task must not stay alive until the next one comes


_pools: weakref.WeakSet[WorkPool] = weakref.WeakSet()
_blocking = WorkPool(1 << 30, "penstock-blocking", idle_seconds=5.0)


def run_blocking(function: Callable[[], Any]) -> None:
    """Runs `function()` on a thread that may wait for as long as it likes."""
    _blocking.submit(function)


# -- one job on several threads ----------------------------------------------------------------------------------------


class _Shared:
    """A loop that several threads work on. Helpers that come late find it closed; only those at work are waited for."""

    __slots__ = ("_active", "_closed", "_count", "_done", "_lock", "_numbers", "_work", "error")

    def __init__(self, count: int, work: Callable[[int], Any]) -> None:
        self._count = count
        self._work = work
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._active = 0
        self._closed = False
        self._done = threading.Event()
        self.error: BaseException | None = None

    def take_part(self) -> None:
        work, numbers, count = self._work, self._numbers, self._count
        try:
            for i in numbers:
                if i >= count or self.error is not None:
                    return
                work(i)
        except BaseException as error:
            self.error = error

    def help(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._active += 1
        self.take_part()
        with self._lock:
            self._active -= 1
            if self._closed and not self._active:
                self._done.set()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if not self._active:
                return
        self._done.wait()


_intra_op = WorkPool(max(1, cpu_count() - 1), "penstock-intra-op", idle_seconds=5.0)  # all loops share them: more would only be in each other's way
_intra_op_limit = 0


def limit_intra_op(number: int) -> None:
    """At most `number` threads work on one loop from now on, in the whole process; 0: one per CPU."""
    global _intra_op_limit
    _intra_op_limit = number
    _intra_op.num_threads = max(1, (number or cpu_count()) - 1)


def parallel_for(count: int, work: Callable[[int], Any]) -> None:
    """Calls work(0) ... work(count - 1) in any order, in this thread and in helpers; returns when all have returned. The first
    error ends the loop and is raised."""
    helpers = min(count, _intra_op_limit or cpu_count(), of_kernels.wish.number or count) - 1
    if helpers <= 0:
        for i in range(count):
            work(i)
        return
    of_kernels.loops += 1
    shared = _Shared(count, work)
    for _ in range(helpers):
        _intra_op.submit(shared.help)
    shared.take_part()
    shared.close()
    if shared.error is not None:
        raise shared.error


# -- which pool a session uses ---------------------------------------------------------------------------------------

_lock = threading.Lock()
_process_pool: WorkPool | None = None
_named_pools: dict[str, tuple[int, WorkPool]] = {}


def _after_fork() -> None:
    """The parent's threads do not exist here: every pool starts empty, with locks that nobody holds."""
    global _lock
    _lock = threading.Lock()
    for pool in list(_pools):
        pool._reset()


os.register_at_fork(after_in_child=_after_fork)


def inter_op_threads(config: Any = None) -> int:
    """`inter_op_parallelism_threads` of a ConfigProto: 0 means one per CPU, a negative number none at all."""
    number = getattr(config, "inter_op_parallelism_threads", 0)
    return cpu_count() if number == 0 else max(number, 0)


def intra_op_threads(config: Any = None) -> int:
    """`intra_op_parallelism_threads` of a ConfigProto: 0 means one per CPU."""
    number = getattr(config, "intra_op_parallelism_threads", 0)
    return cpu_count() if number <= 0 else number


class SessionPools:
    """The inter-op pools that a session may choose from by `RunOptions.inter_op_thread_pool`.

    As in TF: `session_inter_op_thread_pool` lists them if it is there (those with a `global_name` are shared by all
    sessions of the process that use that name); otherwise there is one, shared by the process, unless
    `use_per_session_threads`. A pool of None runs everything in the caller's thread.
    """

    def __init__(self, config: Any = None) -> None:
        self._owned: list[WorkPool] = []
        options = list(getattr(config, "session_inter_op_thread_pool", ()))
        if options:
            self.pools = [self._from_options(option, config) for option in options]
        elif inter_op_threads(config) < 1:
            self.pools = [None]
        elif getattr(config, "use_per_session_threads", False):
            self.pools = [self._own(inter_op_threads(config))]
        else:
            self.pools = [process_pool(config)]

    def get(self, index: int = 0) -> WorkPool | None:
        """The pool for `RunOptions.inter_op_thread_pool`; -1 is the caller's thread."""
        if index == -1:
            return None
        if not 0 <= index < len(self.pools):
            raise errors.InvalidArgumentError(f"Invalid inter_op_thread_pool: {index}")
        return self.pools[index]

    def close(self) -> None:
        """Ends the threads of pools that belong to this session alone."""
        for pool in self._owned:
            pool.close()
        self._owned = []

    def _own(self, num_threads: int) -> WorkPool:
        pool = WorkPool(num_threads, "penstock-session")
        self._owned.append(pool)
        return pool

    def _from_options(self, option: Any, config: Any) -> WorkPool:
        if option.num_threads < 0:
            raise errors.InvalidArgumentError(
                f"session_inter_op_thread_pool: num_threads must not be negative, got {option.num_threads}"
            )
        number = option.num_threads or inter_op_threads(config) or 1
        name = option.global_name
        if not name:
            return self._own(number)
        with _lock:
            known = _named_pools.get(name)
            if known is None:
                known = _named_pools[name] = (option.num_threads, WorkPool(number, f"penstock-{name}"))
            elif known[0] != option.num_threads:
                raise errors.InvalidArgumentError(
                    f"Pool {name} configured previously with num_threads={known[0]}; cannot re-configure with "
                    f"num_threads={option.num_threads}"
                )
            return known[1]


def process_pool(config: Any = None) -> WorkPool:
    """The inter-op pool that sessions share. The first session's configuration decides its size, as in TF."""
    global _process_pool
    with _lock:
        if _process_pool is None:
            _process_pool = WorkPool(inter_op_threads(config) or 1, "penstock-inter-op")
        return _process_pool
