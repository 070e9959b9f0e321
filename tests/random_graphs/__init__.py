"""Random TF1 programs with every kernel, control flow, state, several devices, changing feeds and errors on purpose.

    program = make(tf, seed)              # the same seed gives the same program
    program.graph, program.init           # to be run once
    for run in program.runs: session.run(run.fetches, run.feeds)
    session.run(program.reads)            # all variables

`tf` may be Penstock, or TensorFlow's compat.v1. `make(tf, seed, skip={3, 5})` leaves steps out; the rest stays what it was.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from . import control, frozen, kernels, networks, objects, plain, rarities, state, trouble
from .maker import Maker, Value

Step = Callable[[Maker], None]
REFUSED = (ValueError, TypeError, LookupError, NotImplementedError, AttributeError, AssertionError)

INNER: list[tuple[Step, int]] = [
    (kernels.kernel, 8), (plain.arithmetic, 10), (plain.shaping, 5), (plain.layer, 1), (control.cond, 3), (control.loop, 2), (control.case, 1), (control.switch_merge, 1), (control.functional, 1),
    (control.mapped, 1), (state.assign, 4), (state.optimizer, 1), (state.scatter, 2), (state.slices, 1), (objects.tensor_array, 2), (objects.tensor_list, 1), (objects.stack, 1), (objects.table, 1), (objects.odds, 2),
    (networks.inner, 1),
]  # fmt: skip
OUTER: list[tuple[Step, int]] = [
    (kernels.kernel, 30), (kernels.sample_program, 3), (plain.arithmetic, 14), (plain.shaping, 8), (plain.gradients, 7), (plain.layer, 4), (control.cond, 6), (control.loop, 7), (control.case, 2),
    (control.switch_merge, 3), (control.functional, 3), (control.mapped, 2), (state.assign, 6), (state.optimizer, 5), (state.scatter, 4), (state.slices, 2), (state.training, 2), (objects.tensor_array, 3),
    (objects.tensor_list, 2), (objects.stack, 2), (objects.queue, 3), (objects.table, 2), (objects.staging, 2), (objects.accumulator, 2), (objects.reader, 1), (objects.odds, 6), (trouble.error, 8),
    (trouble.uninitialised, 1), (plain.source, 3), (networks.crossings, 1), (networks.stateful_function, 1), (rarities.rarity, 3),
]  # fmt: skip
NETWORKS: list[tuple[Step, int]] = [
    (networks.layer_norm, 3), (networks.softmax, 2), (networks.attention, 2), (networks.lstm, 3), (networks.gru, 1), (networks.cells, 2), (networks.dynamic, 2), (networks.shared_products, 2),
    (networks.block, 3), (networks.perceptron, 2), (networks.large_optimizer, 3), (networks.embedding, 2),
    (frozen.convolutions, 6), (frozen.recurrent, 3), (frozen.products, 3), (frozen.tables, 5),
]  # fmt: skip

share = 0.25
"""Of programs that have a network in them, which takes as long as all the rest."""

refused: Counter[str] = Counter()
"""Why steps were left out: by kind of step and text of the error."""


class Run(NamedTuple):
    """One call of Session.run. `what`: full, part, targets, trouble, dead or fed (values in the middle of the graph are replaced)."""

    what: str
    fetches: list[Any]
    feeds: dict[Any, Any]


class Program(NamedTuple):
    """A program that is built. `steps` are the numbers of its steps, `devices` how many CPUs it wants."""

    seed: int
    graph: Any
    init: Any
    runs: list[Run]
    reads: list[Any]
    steps: list[int]
    devices: int
    kinds: dict[int, str]


def attempt(m: Maker, key: str, kinds: Sequence[tuple[Step, int]]) -> str:
    """One step of a kind that is drawn; a step that the graph refuses is left out."""
    m.begin(key)
    step = m.rng.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
    _build(m, key, step)
    return step.__name__


def _build(m: Maker, key: str, step: Step) -> None:
    before = len(m.pool), len(m.troubles), len(m.updates)
    lasts = [v.last for v in m.variables]
    try:
        with m.tf.name_scope(key):
            step(m)
    except REFUSED as error:
        refused[f"{step.__name__}: {type(error).__name__}: {str(error)[:60]}"] += 1
        del m.pool[before[0] :], m.troubles[before[1] :], m.updates[before[2] :]
        for v, last in zip(m.variables, lasts):
            v.last = last
        for v in m.variables[len(lasts) :]:
            v.last = []
    m.step = key


def make(tf: Any, seed: int, skip: Collection[int] = (), runs: int | None = None, only: Step | None = None) -> Program:
    """The program of this seed without the steps in `skip`; `only` draws all steps from one kind."""
    rng = random.Random(f"{seed}/program")
    graph = tf.Graph()
    devices = rng.choice([1, 1, 1, 2, 3, 4])
    n = rng.randint(3, 11)
    steps, kinds = [], {}
    with graph.as_default():
        tf.set_random_seed(seed % 1000 + 1)
        m = Maker(tf, seed, devices)
        for i in range(rng.randint(2, 3)):
            m.begin(f"in{i}")
            plain.source(m)
        if rng.random() < 0.04:
            m.begin("big")
            plain.big(m)
        network = rng.randrange(n) if rng.random() < share else -1
        for number in range(n):
            place = rng.randrange(devices)
            if number in skip:
                continue
            steps.append(number)
            with tf.device(f"/cpu:{place}" if devices > 1 else None):
                kinds[number] = attempt(m, f"s{number}", [(only, 1)] if only is not None else NETWORKS if number == network else OUTER)
        made_runs = _runs(tf, m, random.Random(f"{seed}/runs"), runs)
        reads = [v.variable.read_value() if v.resource else v.variable for v in m.variables]
        initialisers = [tf.global_variables_initializer(), *m.initialisers]
        init = tf.group(*initialisers)
    return Program(seed, graph, init, made_runs, reads, steps, devices, kinds)


def _runs(tf: Any, m: Maker, rng: random.Random, limit: int | None) -> list[Run]:
    """What to run: everything a few times with changing feeds, parts, targets only, and what must fail."""
    feeds = [{f.tensor: f.at(i) for f in m.feeds} for i in range(6)]
    m.begin("fetches")
    pool = [v for v in m.pool if v.tensor.dtype.base_dtype.name not in ("resource", "variant")]
    chosen = list(dict.fromkeys([*pool[-4:], *(m.pick(pool) for _ in range(4))])) if pool else []
    values = [v.tensor for v in chosen]
    updates = list(dict.fromkeys(m.updates))
    full = [*values, *updates]
    if not full:
        return []
    result = [Run("full", full, feeds[0]), Run("full", full, feeds[1])]
    if values and rng.random() < 0.5:
        part = [m.pick(pool).tensor]
        result.append(Run("part", part, feeds[1]))
    for tensor, feed, bad in m.troubles:
        if not touches_state(tensor):
            result.append(Run("trouble", [tensor], {**feeds[0], feed: bad}))
    for tensor in m.dead:
        if not touches_state(tensor):
            result.append(Run("dead", [tensor], feeds[0]))
    result += [Run("full", full, feeds[2]), Run("full", full, feeds[3])]
    # Other sets of fetches of the same session, and values in the middle given from outside.
    if rng.random() < 0.12:
        calm = [v for v in pool if not _ancestors([v.tensor.op], _WAITING)]
        result += [Run("part", list(dict.fromkeys(m.pick(calm).tensor for _ in range(n))), feeds[n]) for n in (1, 3) if calm]
    if rng.random() < 0.3:
        result.append(Run("targets", [t.op for t in values if not t.op.type.startswith("Placeholder")] + updates, feeds[4]))
    if rng.random() < 0.15:
        middle = [v for v in pool if _may_be_fed(v)]
        if middle:
            given = {v.tensor: m.uniform(v.tensor.shape.as_list(), v.kind) for v in dict.fromkeys(m.pick(middle) for _ in range(rng.randint(1, 2)))}
            result += [Run("fed", full, {**feeds[n], **given}) for n in (0, 1)]
    return [_needed(run) for run in (result if limit is None else result[:limit])]


_WAITING = ("Queue", "Barrier", "Accumulator", "Stage", "Reader", "Mutex")


def _may_be_fed(value: Value) -> bool:
    """Whether a value may be replaced: nothing before it has effects that others wait for."""
    tensor = value.tensor
    return value.kind in ("float32", "float64") and tensor.shape.is_fully_defined() and tensor.op.type not in ("Placeholder", "PlaceholderV2", "Const") and not touches_state(tensor)


def _needed(run: Run) -> Run:
    """The run with the feeds it can see."""
    ops = _ancestors([t if not hasattr(t, "op") else t.op for t in run.fetches])
    return run._replace(feeds={t: v for t, v in run.feeds.items() if t.op in ops})


def _ancestors(ops: list[Any], words: Sequence[str] = ()) -> set[Any]:
    """What leads to `ops`, and they; only those with one of `words` in the names of their types, if there are any."""
    seen: set[Any] = set()
    todo = list(ops)
    while todo:
        op = todo.pop()
        if op not in seen:
            seen.add(op)
            todo += [t.op for t in op.inputs]
            todo += op.control_inputs
    return {op for op in seen if any(w in op.type for w in words)} if words else seen


_HARMLESS = frozenset(("Assert", "CheckNumerics", "VarHandleOp", "VariableV2", "ReadVariableOp", "Placeholder", "PlaceholderWithDefault"))


def touches_state(fetch: Any) -> bool:
    """Whether a run that fails on the way to `fetch` might or might not have changed something."""
    return any(_is_stateful(op.op_def) for op in _ancestors([fetch.op if hasattr(fetch, "op") else fetch]) if op.type not in _HARMLESS)


def _is_stateful(op_def: Any) -> bool:
    if hasattr(op_def, "input_arg"):  # TensorFlow's message
        return op_def.is_stateful or any(a.is_ref for a in op_def.input_arg)
    return op_def.stateful or any(a.is_ref for a in op_def.inputs)
