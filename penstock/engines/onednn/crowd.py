"""How many threads a kernel gets when it does not have the cores to itself.

oneDNN's threads share out a kernel evenly and wait for the last one. Where another process keeps a core busy, or other threads of this one
run kernels too, the last one comes late every time: two threads on what is left of two cores are several times slower than one. So the time
that callers of kernels on several threads spend without computing (`record`) is summed up: until their turn comes, and in the kernel. Where one
is too large a part, and for the second also no core is idle, kernels get fewer threads from then on: the next step of `ladder`. After a pause the step before it is tried again; the pause grows while that fails.
Before that, threads of our own that share a core are moved apart (`elbow_room`).

`limit` is what holds now, 0 if nothing does. A program may want fewer for its own steps (`ops.kernels.threads.wish`). Plans are made for a number of threads, so whoever remembers a plan remembers
the `stamp` with it.
PENSTOCK_SHARE_CORES=0 switches it off, and so does TF_DETERMINISTIC_OPS=1: sums depend on the number of threads.
"""

from __future__ import annotations

import os
from time import perf_counter_ns as clock

from penstock.engines.onednn import elbow_room
from penstock.ops.kernels.threads import is_deterministic, wish

WINDOW_NS, BAD_WINDOWS, LOOK_NS, FAR_NS = 10_000_000, 3, 60_000_000, 240_000_000
"""Time in kernels after which it is judged; how many times in a row it must be bad, or for how long, for fewer threads: a first step has to wait
for new threads and new pages. What lies farther apart is not in a row: who else computed in between, while this process waited for work or was stopped, says nothing."""
TOO_MUCH = 0.3
"""Part of that time without computing that is too much. Waiting for threads to wake up is a few percent."""
MOST_IDLE = 0.25
"""CPUs that may be idle meanwhile; if there are more, it is nobody else who keeps our threads waiting."""
FIRST_PAUSE_NS, LONGEST_PAUSE_NS = 200_000_000, 3_200_000_000

limit = 0
calls = 0
"""How many kernels have run on several threads."""
_budget = 0
_wall = _waited = _cpu = 0
_since: tuple[int, float] | None = None
_level = _bad = 0
_pause = FIRST_PAUSE_NS
_retry_at = _judged_at = 0
_on: bool | None = None


def ladder(budget: int) -> list[int]:
    """Numbers of threads, from all of them down to one."""
    steps = [max(budget, 1)]
    while steps[-1] > 1:
        steps.append(max(1, steps[-1] * 3 // 4))
    return steps


def is_on() -> bool:
    global _on
    if _on is None:
        _on = os.environ.get("PENSTOCK_SHARE_CORES", "1").strip() != "0" and not is_deterministic()
    return _on


def record(wall: int, waited: int, cpu: int, budget: int) -> None:
    """A kernel on several threads took `wall` ns, `waited` of them until its turn came, `cpu` of them computing in the calling thread;
    `budget` threads are there in all."""
    global _wall, _waited, _cpu, _budget, calls
    # Threads may come between these lines; a window that is a little wrong does no harm.
    _budget = budget
    calls += 1
    _wall += wall
    _waited += waited
    _cpu += cpu
    if _wall >= WINDOW_NS:
        kernels = max(_wall - _waited, 1)
        is_queue, is_late = _waited > TOO_MUCH * _wall, kernels - _cpu > TOO_MUCH * kernels
        _wall = _waited = _cpu = 0
        _judge(is_queue, is_late)


def _judge(is_queue: bool, is_late: bool) -> None:
    global _pause, _bad, _since, _judged_at
    now = clock()
    is_far, _judged_at = now - _judged_at > FAR_NS, now
    if not (is_queue or is_late):
        _bad = 0
        if not limit:
            _pause = FIRST_PAUSE_NS
        return
    _bad = 1 if is_far else _bad + 1
    if is_late and not _bad & (_bad - 1):  # the first time, the second, the fourth and so on: a crowd is not looked through again and again
        elbow_room.make()
    if is_queue:
        if _bad >= BAD_WINDOWS:
            _step(1)
    elif _since is None or _bad == 1:
        _since = (now, idle_ns())
    elif now - _since[0] >= LOOK_NS:
        # Two threads on one core, and nobody on the other, is a whim of the system's; `elbow_room` moves one of them.
        passed, idle = now - _since[0], idle_ns() - _since[1]
        _since = None
        if idle < MOST_IDLE * passed:
            _step(1)
        else:
            _bad = 0


def idle_ns() -> float:
    """How long the CPUs of this process have been idle, all together; without end where the system does not tell, which is no
    reason for fewer threads."""
    try:
        mine = {f"cpu{n}" for n in os.sched_getaffinity(0)}
        with open("/proc/stat") as file:
            rows = [line.split() for line in file if line.startswith("cpu")]
        return sum(int(row[4]) + int(row[5]) for row in rows if row[0] in mine) * 1e9 / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return float("inf")


def stamp() -> int:
    """What the number of threads of this thread's kernels depends on."""
    return limit << 16 | wish.number


def look() -> None:
    """Called now and then while there is a limit: tries more threads when it is time for it."""
    if limit and clock() >= _retry_at:
        _step(-1)


def _step(direction: int) -> None:
    global limit, _level, _pause, _retry_at, _wall, _waited, _cpu, _bad
    if not is_on():
        return
    steps = ladder(_budget)
    level = min(max(_level + direction, 0), len(steps) - 1)
    _retry_at = clock() + _pause
    if direction > 0:
        _pause = min(_pause * 2, LONGEST_PAUSE_NS)
    _level = level
    _wall = _waited = _cpu = _bad = 0
    limit = 0 if level == 0 else steps[level]


def reset() -> None:
    """Whatever was in the way is gone: all threads again."""
    global limit, _level, _pause, _wall, _waited, _cpu, _on, _bad
    limit = _level = _wall = _waited = _cpu = _bad = 0
    _pause = FIRST_PAUSE_NS
    _on = None
