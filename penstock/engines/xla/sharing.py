"""A training step in two halves, so that several clients' steps can run at the same time.

    results, new state = step(values, state)            # one program: it holds the variables for as long as it runs
    carried = first(values, state)                      # reads them: products, convolutions, gradients
    results, new state = second(state, carried)         # updates them, as they are by then: a fraction of the time

The second half has what follows the heavy operations on the way to a new value: the optimizer's formula, a counter's sum, rows added to an embedding. So no update is lost that another
client makes in between, and readers see variables as they were between two updates: TensorFlow, which writes into what others are reading, promises less.

Two halves take a little longer than one whole, and while others read, new values need memory of their own. So steps are whole until they meet (`Clients`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any, NamedTuple

from penstock.engines.xla import backend

MEETINGS = 16
"""Steps that have met another one, after which the halves are compiled."""
STAYS = 100
"""Steps without a meeting after which they are whole again."""

LIGHT = frozenset(
    (
        "abs", "add", "add_any", "and", "broadcast_in_dim", "ceil", "clamp", "convert_element_type", "copy", "div", "dynamic_update_slice", "eq", "exp",
        "expand_dims", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "not",
        "or", "pow", "rem", "reshape", "round", "rsqrt", "scatter", "scatter-add", "scatter-max", "scatter-min", "scatter-mul", "scatter-sub", "scatter_add", "scatter_mul",
        "select_n", "sign", "sqrt", "square", "squeeze", "stop_gradient", "sub", "tanh", "xor",
    )
)  # fmt: skip
"""JAX's operations that may be part of the second half: what they take is a pass over the variable."""
_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call")
_BARRIER = "optimization_barrier"


class Halves(NamedTuple):
    """Both halves, compiled. `first(values, constants, kept, state)` gives two lists, what is carried over, `second(values, constants, kept, state, *carried)` what
    the whole program gives. The first of the lists is used up."""

    first: Callable[..., tuple[list[Any], list[Any]]]
    second: Callable[..., tuple[list[Any], list[Any]]]


class Clients:
    """Threads whose steps work on the same variables.

    readers   steps in their first half: what they read must not be written over
    halves    the program in halves, once there is one
    """

    __slots__ = ("_crowd", "_make", "_meetings", "halves", "readers")

    def __init__(self, make: Callable[[], Halves | None]) -> None:
        self._make: Callable[[], Halves | None] | None = make
        self.halves: Halves | None = None
        self.readers = 0
        self._meetings = self._crowd = 0

    def is_crowd(self, lock: RLock) -> bool:
        """Whether a step that begins now should run in halves. `lock` is that of the variables."""
        if self.readers or not lock.acquire(False):
            self._crowd = STAYS
            self._meetings += 1
            if self._meetings >= MEETINGS and self._make is not None:
                make, self._make = self._make, None
                backend.in_background(lambda: self.compile(make))
        else:
            lock.release()
            if self._crowd:
                self._crowd -= 1
        return self._crowd > 0 and self.halves is not None

    def compile(self, make: Callable[[], Halves | None]) -> None:
        self.halves = make()


def halves(jax: Any, program: Callable[..., Any], args: tuple[list[Any], ...]) -> Halves | None:
    """The halves of `program(values, constants, kept, state) -> (results, new state)`, for arguments like `args`; None if an update cannot be
    told from what it takes to compute it."""
    closed, shape = jax.make_jaxpr(program, return_shape=True)(*args)
    traced = closed.jaxpr
    n_results, n_new = map(len, shape)
    state = traced.invars[len(traced.invars) - n_new :]
    late = _late(traced, n_results)
    first, second = [], []
    for eqn, is_late in zip(traced.eqns, late):
        (second if is_late else first).append(eqn)
    made = {id(v) for eqn in first for v in eqn.outvars}
    carried = list({id(v): v for v in (*(v for eqn in second for v in eqn.invars), *traced.outvars) if id(v) in made}.values())
    if not carried or not _is_complete(traced, late, state, n_results):
        return None
    spare, rest = _fitting(carried, traced.outvars[n_results:])
    from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

    def function(eqns: list[Any], more: list[Any], results: list[Any], n: int) -> Callable[..., tuple[list[Any], list[Any]]]:
        names = traced.debug_info._replace(arg_names=None, result_paths=None)
        part = jaxpr_as_fun(ClosedJaxpr(traced.replace(eqns=eqns, invars=[*traced.invars, *more], outvars=results, debug_info=names), closed.consts))

        def run(*args: list[Any]) -> tuple[list[Any], list[Any]]:
            values = part(*jax.tree.leaves(args))
            return values[:n], values[n:]

        return run

    run_first, run_second = function(first, [], [*spare, *rest], len(spare)), function(second, [*spare, *rest], traced.outvars, n_results)

    specs = [[jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in part] for part in (spare, rest)]
    return Halves(
        jax.jit(run_first).lower(*args).compile(),
        jax.jit(run_second, donate_argnums=(4,)).lower(*args, *specs).compile(),
    )


def _fitting(carried: Sequence[Any], new: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Those whose memory new values may take, since the old values' is being read by others; and the rest."""
    wanted = [(v.aval.shape, v.aval.dtype) for v in new]
    parts: tuple[list[Any], list[Any]] = ([], [])
    for v in carried:
        kind = (v.aval.shape, v.aval.dtype)
        fits = kind in wanted
        if fits:
            wanted.remove(kind)
        parts[0 if fits else 1].append(v)
    return parts


def _is_light(eqn: Any) -> bool:
    name = eqn.primitive.name
    if name in _CALLS:
        inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
        return inner is not None and all(map(_is_light, inner.jaxpr.eqns))
    return name in LIGHT or name == _BARRIER


def _late(traced: Any, n_results: int) -> list[bool]:
    """Which operations belong to the second half: the light ones that only new values, and others of that half, depend on."""
    early_reads: set[int] = set()
    late = [False] * len(traced.eqns)
    wanted = {id(v) for v in traced.outvars}
    for i in range(len(traced.eqns) - 1, -1, -1):
        eqn = traced.eqns[i]
        outputs = {id(v) for v in eqn.outvars}
        late[i] = bool(outputs & wanted) and not outputs & early_reads and _is_light(eqn)
        (wanted if late[i] else early_reads).update(map(id, eqn.invars))
    return late


def _is_complete(traced: Any, late: Sequence[bool], state: Sequence[Any], n_results: int) -> bool:
    """Whether the second half reads the old value of every variable whose new one depends on it: else updates that others make in between would be lost."""
    whole, second = ({id(v): {id(v)} for v in state} for _ in range(2))
    for eqn, is_late in zip(traced.eqns, late):
        for known, takes_part in ((whole, True), (second, is_late)):
            if takes_part:
                found = set().union(*(known.get(id(v), ()) for v in eqn.invars))
                for v in eqn.outvars:
                    known[id(v)] = found
    new = traced.outvars[n_results:]
    return any(late) and all(id(old) in second.get(id(v), ()) or id(old) not in whole.get(id(v), ()) for old, v in zip(state, new))
