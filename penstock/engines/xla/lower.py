"""Statements -> a traced computation: calls by the ops' rules, branches as lax.cond, loops as lax.while_loop.

Values are JAX tracers, NumPy arrays (known when compiling) and `Var`s. What depends on known values alone stays known: shapes and what is
computed from shapes never become part of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import resource
from penstock.engines.python.expressions import needed_inputs
from penstock.engines.python.structure import Assign, Branch, Call, Loop
from penstock.engines.python.walk import everything, reads
from penstock.engines.xla.rule import Dynamic, Unsupported, Var, find_rule, jnp, lax, static_ints
from penstock.graph.bind import input_ranges
from penstock.graph.ir import Operation, Tensor

FOLD = 1 << 16
"""Elements up to which a value that is known when compiling is computed then; larger ones are made by the program."""

PASSES_VARS = frozenset(("Identity", "Enter", "Switch", "RefIdentity"))


class CannotLower(Exception):
    """A node has no place in a program: `op`, and why."""

    def __init__(self, op: Operation | None, why: str, is_dynamic: bool = False) -> None:
        super().__init__(f"{op.name} ({op.type}): {why}" if op is not None else why)
        self.op = op
        self.is_dynamic = is_dynamic


STREAMS = frozenset(("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt"))
"""Ops that go on with a stream of random numbers from step to step: where they are in it is an argument of the program."""


INDEXED: dict[str, tuple[int, Callable[[list[Any], dict[str, Any]], int]]] = {
    "SparseSoftmaxCrossEntropyWithLogits": (1, lambda args, attrs: args[0].shape[-1]),
    "Gather": (1, lambda args, attrs: args[0].shape[0]),
    "ResourceGather": (1, lambda args, attrs: args[0].shape[attrs.get("batch_dims", 0)]),
}
"""Ops whose kernel reports an index out of range: which argument has the indices, and what their bound is. A program can hold them if the indices come
from outside and are looked at before it starts."""


class Tracer:
    """Runs statements on traced values. `env` maps root tensors to values; `streams` has a place in a stream (three uint64) for each node that draws
    random numbers, and `drawn` gets the number of elements that it draws."""

    def __init__(self, env: dict[Tensor, Any], root: Callable[[Tensor], Tensor], streams: dict[Operation, Any] | None = None) -> None:
        self.env = env
        self.root = root
        self.streams = streams or {}
        self.drawn: dict[Operation, int] = {}
        self.looks: set[Tensor] | None = None  # inputs that can be looked at before the program starts; None: nobody reports anything
        self.checks: list[tuple[Tensor, int]] = []

    def value(self, tensor: Tensor) -> Any:
        return self.env[self.root(tensor)]

    def run(self, block: list) -> None:
        for statement in block:
            if isinstance(statement, Call):
                self.call(statement.node)
            elif isinstance(statement, Assign):
                op = statement.node.op
                self.env[op.outputs[0]] = self.plain(op.inputs[statement.index])
                self.env[op.outputs[1]] = np.asarray(statement.index, np.int32)
            elif isinstance(statement, Branch):
                self.branch(statement)
            else:
                self.loop(statement)

    def plain(self, tensor: Tensor) -> Any:
        """The value, read if it is a variable."""
        value = self.value(tensor)
        return value.value if isinstance(value, Var) else value

    # -- calls ------------------------------------------------------------------------------------------------------------

    def call(self, node: Any) -> None:
        op: Operation = node.op
        if len(needed_inputs(node)) < len(op.inputs):  # a Reshape between static shapes: nobody computes the shape
            self.env[op.outputs[0]] = jnp.reshape(self.plain(op.inputs[0]), op.outputs[0].dims)
            return
        values = [self.value(t) for t in op.inputs]
        if op.type in PASSES_VARS and values and isinstance(values[0], Var):
            for tensor in op.outputs:
                self.env[tensor] = values[0]
            return
        try:
            results = self._results(node, op, values)
        except Dynamic:
            raise CannotLower(op, "needs a value that is known only when the step runs", True) from None
        except Unsupported as reason:
            raise CannotLower(op, str(reason) or "has no form for these inputs") from None
        except CannotLower:
            raise
        except Exception as error:  # wrong shapes and the like: the kernel knows how to say it
            raise CannotLower(op, f"{type(error).__name__}: {error}") from error
        for tensor, value in zip(op.outputs, results, strict=True):
            if not isinstance(value, Var) and value.dtype != tensor.dtype.base_dtype.np:
                raise CannotLower(op, f"its rule gave {value.dtype} for {tensor.dtype.base_dtype.name}")
            self.env[tensor] = value

    def _results(self, node: Any, op: Operation, values: list[Any]) -> list[Any]:
        opdef = op.op_def
        if op in self.streams:
            return [self._draw(op, values)]
        if _is_known(values) and not opdef.stateful and not node.needs_ctx and _is_small(op, values):
            found = node.fn(*values)
            return [np.asarray(v) for v in ([found] if node.plain else found)]
        rule = find_rule(opdef)
        if rule is None:
            raise Unsupported("has no rule for XLA")
        args: list[Any] = []
        for arg, (start, stop, is_list) in zip(opdef.inputs, input_ranges(op), strict=True):
            part = values[start:stop]
            if not arg.is_ref and opdef.inputs and not _takes_resource(op, start, stop):
                part = [v.value if isinstance(v, Var) else v for v in part]
            args.append(part if is_list else part[0])
        if self.looks is not None and rule.may_raise(op.attrs):
            if op.type not in INDEXED:
                raise Unsupported("its kernel reports bad data, which a program cannot")
            self._check_indices(op, args)
        found = rule.fn(*args, **{name: op.attrs[name] for name in rule.attrs})
        if opdef.plain_output:
            return [found]
        return [] if found is None else list(found)

    def _check_indices(self, op: Operation, args: list[Any]) -> None:
        position, bound = INDEXED[op.type]
        tensor = self.root(op.inputs[position])
        if self.looks is None or tensor not in self.looks:
            raise Unsupported("its indices are computed inside of the program, where nobody could report a wrong one")
        self.checks.append((tensor, bound(args, op.attrs)))

    def _draw(self, op: Operation, values: list[Any]) -> Any:
        from penstock.engines.xla import philox

        place = self.streams[op]
        stream = philox.Stream(place[0], place[1], place[2])
        shape = static_ints(values[0])
        self.drawn[op] = math.prod(shape)
        dtype = op.outputs[0].dtype.np
        if op.type == "RandomUniformInt":
            return philox.uniform_int(stream, shape, values[1], values[2], dtype)
        draw = {"RandomUniform": philox.uniform, "RandomStandardNormal": philox.normal, "TruncatedNormal": philox.truncated_normal}
        return draw[op.type](stream, shape, dtype)

    # -- control flow -----------------------------------------------------------------------------------------------------

    def branch(self, statement: Branch) -> None:
        pred = self.plain(statement.pred)
        if isinstance(pred, (np.ndarray, np.generic)):
            self.run(statement.yes if bool(pred) else statement.no)
            return
        merges = merged(statement)
        ends: list[list[Any]] = [[], []]

        def side(block: list, index: int) -> Callable[[], tuple]:
            def run() -> tuple:
                inner = Tracer(dict(self.env), self.root)
                inner.run(block)
                ends[index] = [inner.plain(t) for t in merges]
                return tuple(jnp.asarray(v) for v in ends[index])

            return run

        try:
            found = lax.cond(jnp.reshape(pred, ()), side(statement.yes, 0), side(statement.no, 1))
        except TypeError as error:
            raise CannotLower(statement.switch.op, f"the two branches differ: {error}") from None
        self.env.update(zip(merges, found, strict=True))

    def loop(self, statement: Loop) -> None:
        merges = [merge.op.outputs[0] for merge, _, _ in statement.carried]
        first = [jnp.asarray(self.plain(start), t.dtype.base_dtype.np) for t, (_, start, _) in zip(merges, statement.carried)]
        again = statement.again

        def inner(carry: tuple) -> Tracer:
            tracer = Tracer(dict(self.env), self.root)
            tracer.env.update(zip(merges, carry))
            tracer.run(statement.cond)
            return tracer

        def cond(carry: tuple) -> Any:
            return jnp.reshape(inner(carry).plain(again), ())

        def body(carry: tuple) -> tuple:
            tracer = inner(carry)
            tracer.run(statement.body)
            return tuple(jnp.asarray(tracer.plain(next_)) for _, _, next_ in statement.carried)

        try:
            last = lax.while_loop(cond, body, tuple(first))
        except TypeError as error:
            raise CannotLower(statement.loop_cond.op, f"a loop variable changes its shape: {error}") from None
        self.env = inner(last).env


def run_in_pieces(tracer: Tracer, block: list, outputs: list[Tensor], size: int) -> None:
    """Runs a block with a barrier after every `size` statements. XLA's fusion computes a value again for each of its readers, which in a
    tangle of small nodes multiplies the work (a program of 3,000 takes 4 ms; in pieces, 10 us) and the time to compile it."""
    last: dict[Tensor, int] = {}
    for i, statement in enumerate(block):
        for part in everything([statement]):
            last.update((tracer.root(tensor), i) for tensor in reads(part))
    for tensor in outputs:
        last[tracer.root(tensor)] = len(block)
    for start in range(0, len(block), size):
        stop = min(start + size, len(block))
        tracer.run(block[start:stop])
        if stop < len(block):
            env = tracer.env
            live = [t for t, v in env.items() if last.get(t, -1) >= stop and not isinstance(v, (Var, np.ndarray, np.generic))]
            env.update(zip(live, lax.optimization_barrier(tuple(env[t] for t in live))))


def merged(statement: Branch) -> list[Tensor]:
    """What both sides of a branch give a value to."""
    yes = {s.node.op for s in statement.yes if isinstance(s, Assign)}
    return [t for s in statement.no if isinstance(s, Assign) and s.node.op in yes for t in s.node.op.outputs]


def _takes_resource(op: Operation, start: int, stop: int) -> bool:
    return stop > start and op.inputs[start].dtype is resource


def _is_known(values: list[Any]) -> bool:
    return all(isinstance(v, (np.ndarray, np.generic)) for v in values)


def _is_small(op: Operation, values: list[Any]) -> bool:
    sizes = [v.size for v in values]
    for tensor in op.outputs:
        if tensor.dims is not None and None not in tensor.dims:
            sizes.append(math.prod(n or 0 for n in tensor.dims))
    return max(sizes, default=0) <= FOLD
