"""Do the quick ways of running a graph give what the plain one gives? Random programs are run both ways and compared.

    python -m tests.engines.agree --graphs 10000 --seed 0 --modes regions

Every program (`tests.random_graphs`) is built once and run in a session of its own for each mode: the same runs, the same feeds, all
variables read after every run. `off` interprets node by node with NumPy kernels; the other modes must give the same values, and fail
with the same error at the same node. Where they do not, the program is made smaller while it still fails, and printed.

A mode is a set of environment variables and module constants (`tests.engines.modes`). Modes that round differently are compared within a tolerance;
where that is exceeded, the plain run is repeated with noise of one rounding in every kernel, and values which that noise moves
as far are not counted: a comparison or a rounding to whole numbers stood between.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import itertools
import multiprocessing
import os
import re
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

os.environ.setdefault("PENSTOCK_CHECK", "1")

import penstock as tf
from penstock import errors
from penstock.engines.python import elementwise
from tests import random_graphs
from tests.engines.modes import GROUPS, MODES, Mode, setting
from tests.random_graphs import Program, make

SECONDS = 20
"""A program that takes longer is stuck."""
TOLERANCE = {"float16": (2e-2, 2e-3), "bfloat16": (8e-2, 4e-2), "float32": (2e-4, 2e-5), "float64": (1e-9, 1e-11), "complex64": (5e-4, 5e-5), "complex128": (1e-9, 1e-11)}
NOISE = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 1e-13, "complex64": 1e-6, "complex128": 1e-13}
NOISES = 8
"""How often the plain run is repeated with noise until all differences are explained: a comparison falls either way by chance."""


# -- running -------------------------------------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """How a run failed. A message may hold numbers that a tolerance allows to differ."""

    kind: str
    node: str
    message: str


class Outcome(NamedTuple):
    """What one run gave: values and the variables after it, or a Failure."""

    what: str
    values: Any
    state: list[Any]


def outcomes(program: Program, mode: Mode) -> list[Outcome]:
    """Every run of the program in a new session, in order."""
    options = tf.RunOptions(timeout_in_ms=60000) if mode.deadline else None
    result = []
    with setting(mode), tf.Session(graph=program.graph, config=tf.ConfigProto(device_count={"CPU": program.devices})) as sess:
        try:
            sess.run(program.init)
        except errors.OpError as error:  # a graph that cannot be placed fails at once, whatever is run
            return [Outcome("init", _failure(error), [])]
        threads = functools.partial(_step_of_threads, has_xla="PENSTOCK_XLA" in mode.env)
        step = {"run": _step_of_run, "callable": _step_of_callables, "threads": threads}[mode.how](sess, options)
        for run in program.runs:
            values: Any
            try:
                values = step(run)
            except errors.OpError as error:
                values = _failure(error)
            result.append(Outcome(run.what, values, sess.run(program.reads) if program.reads else []))
    return result


Step = Callable[[random_graphs.Run], Any]


def _step_of_run(sess: Any, options: Any) -> Step:
    return lambda run: sess.run(run.fetches, run.feeds, options=options)


def _step_of_callables(sess: Any, options: Any) -> Step:
    """Each set of fetches and feeds is made once and called from then on."""
    made: dict[Any, Any] = {}

    def step(run: random_graphs.Run) -> Any:
        key = tuple(run.fetches), tuple(run.feeds)
        if key not in made:
            made[key] = sess.make_callable(list(run.fetches), list(run.feeds))
        return made[key](*run.feeds.values())

    return step


def _step_of_threads(sess: Any, options: Any, has_xla: bool) -> Step:
    """Two threads: a run that changes nothing takes place on both of them several times at once, and all must give the same; others alternate."""
    count = itertools.count()
    pools = [ThreadPoolExecutor(1), ThreadPoolExecutor(1)]

    def step(run: random_graphs.Run) -> Any:
        once = functools.partial(sess.run, run.fetches, run.feeds, options=options)
        if run.what in ("trouble", "dead") or any(random_graphs.touches_state(f) for f in run.fetches):
            return pools[next(count) % 2].submit(once).result(SECONDS)
        both = [pool.submit(lambda: [once() for _ in range(3)]) for pool in pools]
        found = [values for future in both for values in future.result(SECONDS)]
        for other in found[1:]:
            for fetch, a, b in zip(run.fetches, found[0], other):
                text = difference(_coarse(a), _coarse(b), False) if has_xla else difference(a, b, False)
                if text is not None:
                    raise AssertionError(f"threads of one session: {getattr(fetch, 'name', fetch)}: {text}")
        return found[-1]

    return step


def _coarse(value: Any) -> Any:
    """A value for a tolerance that does not know of noise: doubles may have been made of floats, which threads round differently while one of
    them already runs XLA's program."""
    coarse = {"float64": np.float32, "complex128": np.complex64}.get(np.asarray(value).dtype.name)
    return value if coarse is None else np.asarray(value).astype(coarse)


def _failure(error: errors.OpError) -> Failure:
    return Failure(type(error).__name__, error.op.name if error.op is not None else "", error.message)


@contextlib.contextmanager
def noise(seed: int) -> Iterator[None]:
    """Every synchronous kernel's floating results are a rounding error off."""
    from penstock.runtime.executor import plan

    bind = plan.bind_node
    rng = np.random.RandomState(seed)

    def moved(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [moved(v) for v in value]
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.name in NOISE:
            return (value * (1 + NOISE[value.dtype.name] * rng.uniform(-1, 1, value.shape))).astype(value.dtype)
        return value

    def noisy(*args: Any) -> Any:
        bound = bind(*args)
        if bound.is_async or args[0].type in ("Const", "HostConst"):
            return bound
        fn = bound.fn
        return bound._replace(fn=lambda *inputs: moved(fn(*inputs)))

    plan.bind_node = noisy
    try:
        yield
    finally:
        plan.bind_node = bind


# -- comparing -----------------------------------------------------------------------------------------------------------------


def difference(a: Any, b: Any, exact: bool) -> str | None:
    """How two values differ, in words; None if they agree."""
    if a is None or b is None:
        return None if a is b else f"{a!r} and {b!r}"
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
    if a.dtype.kind in "OUS":
        return None if a.tolist() == b.tolist() else f"{a.tolist()} and {b.tolist()}"
    if a.tobytes() == b.tobytes():
        return None
    name = a.dtype.name
    if exact or name not in TOLERANCE:
        wide = a.astype(np.float64) if name in ("float16", "bfloat16") else a
        other = b.astype(np.float64) if name in ("float16", "bfloat16") else b
        if name not in TOLERANCE:
            bad = wide != other
        else:
            nan = np.isnan(wide) & np.isnan(other)
            bad = ~nan & (wide != other)
            if a.dtype.kind != "c":
                bad |= ~nan & (np.signbit(wide) != np.signbit(other))
            else:  # NumPy itself rounds a complex product in one way or another, by where its operands lie in memory
                bad &= ~np.isclose(wide, other, rtol=1e-6 if name == "complex64" else 1e-14, atol=0)
    else:
        rtol, atol = TOLERANCE[name]
        kind = np.complex128 if a.dtype.kind == "c" else np.float64
        wide, other = a.astype(kind), b.astype(kind)
        bad = ~np.isclose(wide, other, rtol=rtol, atol=atol * max(1.0, _scale(wide)), equal_nan=True)
    if not bad.any():
        return None
    where = tuple(int(i[0]) for i in np.nonzero(bad)) if bad.ndim else ()
    return f"{int(bad.sum())} of {bad.size} {name} elements; at {list(where)}: {wide[where]!r} and {other[where]!r}"


def _scale(values: np.ndarray) -> float:
    """How large an array's elements are: sums of large ones may leave small ones that are not exact."""
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 1.0


class Difference(NamedTuple):
    """The first place at which a mode differs: number of the run, which value, and how."""

    mode: str
    run: int
    place: str
    text: str


def must_be_equal(name: str, program: Program) -> bool:
    """Whether a mode must give the same bits: not where sums over whole large arrays go tile by tile, and not where there are complex numbers
    (NumPy rounds their products by where the operands lie in memory: two plain runs differ)."""
    if not MODES[name].exact or any(np.size(v) >= elementwise.MIN_SIZE for run in program.runs for v in run.feeds.values()):
        return False
    return not any(t.dtype.is_complex for op in program.graph.get_operations() for t in op.outputs)


def compare(name: str, program: Program, plain: Sequence[Outcome], other: Sequence[Outcome]) -> list[Difference]:
    """All places at which two lists of outcomes differ."""
    exact = must_be_equal(name, program)
    found = []
    for i, (a, b) in enumerate(zip(plain, other)):
        if isinstance(a.values, Failure) or isinstance(b.values, Failure):
            if not (isinstance(a.values, Failure) and isinstance(b.values, Failure)):
                if isinstance(a.values, Failure) and _type_of(program, a.values.node) in MODES[name].silent:
                    continue
                found.append(Difference(name, i, "", f"plain: {_short(a.values)}; {name}: {_short(b.values)}"))
            elif (a.values if exact else a.values[:2]) != (b.values if exact else b.values[:2]):
                found.append(Difference(name, i, "", f"plain: {a.values}; {name}: {b.values}"))
        else:
            for fetch, x, y in zip(program.runs[i].fetches, a.values, b.values):
                text = difference(x, y, exact)
                if text is not None:
                    found.append(Difference(name, i, fetch.name, f"{text} (plain, {name})"))
        for read, x, y in zip(program.reads, a.state, b.state):
            text = difference(x, y, exact)
            if text is not None:
                found.append(Difference(name, i, f"variable {getattr(read, 'name', read)}", f"{text} (plain, {name})"))
    return found


def _type_of(program: Program, node: str) -> str:
    """The type of a node of the program; empty for one inside of a function."""
    try:
        return program.graph.get_operation_by_name(node).type
    except (KeyError, ValueError):
        return ""


def _short(value: Any) -> str:
    return str(value) if isinstance(value, Failure) else "values"


class Result(NamedTuple):
    """What became of one seed. `repaired` steps failed in the plain run and were left out; `unstable` modes differ by what noise explains."""

    seed: int
    program: Program
    differences: list[Difference]
    repaired: list[str]
    unstable: list[str]


def check(seed: int, modes: Sequence[str], skip: Collection[int] = (), runs: int | None = None, repair: bool = True) -> Result:
    """Builds the program of `seed`, runs it plainly and in each mode, and compares."""
    skip = set(skip)
    repaired: list[str] = []
    while True:
        program = make(tf, seed, skip, runs)
        plain = outcomes(program, MODES["off"])
        broken = next((o for o in plain if isinstance(o.values, Failure) and o.what not in ("trouble", "dead", "fed")), None)
        if broken is None or not repair:
            break
        step = re.match(r"s(\d+)", broken.values.node)
        repaired.append(f"{broken.values.kind} {program.kinds.get(int(step[1]) if step else -1)}: {broken.values.message.splitlines()[0][:90]}")
        if step is None or int(step[1]) in skip:
            program = program._replace(runs=[])
            break
        skip.add(int(step[1]))
    program, plain = _without_failed_feeds(program, plain)
    found: list[Difference] = []
    unstable: list[str] = []
    for name in modes:
        new = compare(name, program, plain, outcomes(program, MODES[name]))
        if new and not must_be_equal(name, program):
            stable = new
            for draw in range(NOISES):
                with noise(draw):
                    shaky = {(d.run, d.place) for d in compare(name, program, plain, outcomes(program, MODES["off"]))}
                stable = [d for d in stable if (d.run, d.place) not in shaky]
                if not stable:
                    break
            if len(stable) < len(new):
                unstable.append(name)
            new = stable
        found += new
    return Result(seed, program, found, repaired, unstable)


def _without_failed_feeds(program: Program, plain: list[Outcome]) -> tuple[Program, list[Outcome]]:
    """Without the runs that failed because of what a value in the middle was replaced with, and all after them: what they left behind depends on how
    far they came."""
    bad = next((i for i, o in enumerate(plain) if o.what == "fed" and isinstance(o.values, Failure)), len(plain))
    return program._replace(runs=program.runs[:bad]) if bad < len(plain) else program, plain[:bad]


def modes_for(seed: int, groups: Sequence[str]) -> list[str]:
    """The modes in which the program of `seed` is run."""
    result = []
    for group in groups:
        always, sometimes = GROUPS[group] if group in GROUPS else ([group], [])
        result += always
        if sometimes:
            result.append(sometimes[seed % len(sometimes)])
    return result


# -- making a failing program smaller ---------------------------------------------------------------------------------------------


def shrink(seed: int, mode: str, skip: Collection[int] = ()) -> tuple[set[int], int | None]:
    """Steps that can be left out, and the number of runs that is enough, so that the program still differs."""

    def fails(left_out: set[int], runs: int | None) -> bool:
        try:
            with time_limit(SECONDS):
                return bool(check(seed, [mode], left_out, runs, repair=False).differences)
        except Exception:
            return False

    gone = set(skip)
    progress = True
    while progress:
        progress = False
        for step in reversed(range(12)):
            if step not in gone and fails(gone | {step}, None):
                gone.add(step)
                progress = True
    runs = next((n for n in range(1, 10) if fails(gone, n)), None)
    return gone, runs


def story(result: Result) -> str:
    """A disagreement for people: where, how, and the part of the graph that leads there."""
    out = io.StringIO()
    program = result.program
    for d in result.differences[:6]:
        print(f"  {d.mode}, run {d.run} ({program.runs[d.run].what if program.runs else ''}), {d.place}: {d.text}", file=out)
    first = result.differences[0]
    run = program.runs[first.run]
    named = [f for f in run.fetches if getattr(f, "name", "") == first.place]
    lines = listing(program, named or run.fetches)
    for line in lines[-80:]:
        print("    " + line[:240], file=out)
    for tensor, value in list(run.feeds.items())[:12]:
        print(f"    feed {tensor.name} = {np.asarray(value).tolist() if np.size(value) < 20 else np.shape(value)}", file=out)
    return out.getvalue()


def listing(program: Program, fetches: Sequence[Any]) -> list[str]:
    """The nodes before `fetches`, one line each."""
    ops = random_graphs._ancestors([f.op if hasattr(f, "op") else f for f in fetches])
    lines = []
    for op in program.graph.get_operations():
        if op in ops:
            attrs = {k: v for k, v in op.attrs.items() if k not in ("T", "dtype", "Tidx", "shape", "_class", "Index") and "value" not in k and not (k == "_output_shapes")}
            if op.type == "Const":
                array = op.attrs["value"].array
                attrs = {"value": array.tolist() if array.size < 12 else f"{array.dtype}{array.shape}"}
            inputs = [t.name.removesuffix(":0") for t in op.inputs] + [f"^{c.name}" for c in op.control_inputs]
            shapes = ",".join(f"{t.dtype.name}{t.shape}" for t in op.outputs)
            place = f" @{op.device}" if op.device else ""
            lines.append(f"{op.name} = {op.type}({', '.join(inputs)}) {attrs if attrs else ''} {shapes}{place}")
    return lines


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the main thread if the block takes longer."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    outer = signal.setitimer(signal.ITIMER_REAL, seconds, 2)  # a step that takes the first for an error of its own is followed by others
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *outer)  # a limit around this one, as the tests have, starts again


# -- the command ------------------------------------------------------------------------------------------------------------------


class Report(NamedTuple):
    """What a worker tells about one seed."""

    seed: int
    text: str  # empty: all agree
    ops: Counter[str]
    repaired: list[str]
    unstable: list[str]
    runs: Counter[str]


def examine(task: tuple[int, tuple[str, ...], bool, float]) -> Report:
    """Checks one seed; never raises."""
    seed, groups, small, random_graphs.share = task
    ops: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    try:
        with time_limit(SECONDS):
            result = check(seed, modes_for(seed, groups))
    except Exception as error:
        text = "".join(traceback.format_exception(error)[-6:])
        return Report(seed, f"seed {seed}: {type(error).__name__}: {error}\n{text}", ops, [], [], runs)
    program = result.program
    if program.runs:
        needed = random_graphs._ancestors([f.op if hasattr(f, "op") else f for r in program.runs for f in r.fetches])
        ops.update(op.type for op in needed)
        for function in program.graph.functions.values():
            ops.update(op.type for op in function.body().get_operations())
    runs.update(r.what for r in program.runs)
    text = ""
    if result.differences:
        text = f"seed {seed}: {len(result.differences)} differences\n"
        if small:
            mode = result.differences[0].mode
            gone, count = shrink(seed, mode, set(range(12)) - set(program.steps))
            result = check(seed, [mode], gone, count, repair=False)
            text += f"  smaller (--networks {random_graphs.share}): check({seed}, [{mode!r}], skip={sorted(gone)}, runs={count}, repair=False)\n"
        text += story(result) if result.differences else "  (gone after making it smaller)\n"
    return Report(seed, text, ops, result.repaired, result.unstable, runs)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.engines.agree", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--graphs", type=int, default=1000, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="the first one's seed")
    parser.add_argument("--modes", default="regions", help=f"groups ({', '.join(GROUPS)}) or single modes ({', '.join(MODES)}), separated by commas")
    parser.add_argument("--networks", type=float, default=random_graphs.share, help="the share of programs with a network in them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long")
    parser.add_argument("--coverage", action="store_true", help="print which ops were reached, and which were not")
    parser.add_argument("--as-found", action="store_true", help="do not make failing programs smaller")
    parser.add_argument("--stop", type=int, default=20, help="stop after so many failing programs")
    options = parser.parse_args(argv)
    groups = tuple(options.modes.split(","))
    tasks = [(seed, groups, not options.as_found, options.networks) for seed in range(options.seed, options.seed + options.graphs)]
    started = time.monotonic()
    done = failed = 0
    ops: Counter[str] = Counter()
    repaired: Counter[str] = Counter()
    unstable: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        reports = pool.imap_unordered(examine, tasks, chunksize=8) if options.workers > 1 else map(examine, tasks)
        for report in reports:
            done += 1
            ops.update(report.ops)
            runs.update(report.runs)
            repaired.update(report.repaired)
            unstable.update(report.unstable)
            if report.text:
                failed += 1
                print(report.text, flush=True)
            passed = time.monotonic() - started
            if done % 500 == 0:
                print(f"{done} of {options.graphs} programs, {failed} differ, {passed:.0f} s", flush=True)
            if failed >= options.stop or (options.seconds and passed > options.seconds):
                break
    passed = time.monotonic() - started
    print(f"{done} programs, seeds from {options.seed}, modes {options.modes}: {failed} differ. {passed:.0f} s, {passed / max(done, 1) * 1e3:.0f} ms each")
    print(f"runs: {dict(runs)}; left out because the plain run failed: {sum(repaired.values())}; moved by noise: {dict(unstable)}")
    if options.coverage:
        _coverage(ops, repaired)
    return 1 if failed else 0


def _coverage(ops: Counter[str], repaired: Counter[str]) -> None:
    from penstock.graph.opdef import OPS

    reached = {name for name in ops if name in OPS}
    print(f"{len(reached)} of {len(OPS)} op types. Not reached: {' '.join(sorted(set(OPS) - reached))}")
    for text, count in repaired.most_common(30):
        print(f"  {count} x {text}")
    for text, count in random_graphs.refused.most_common(20):
        print(f"  refused {count} x {text}")


if __name__ == "__main__":
    sys.exit(main())
