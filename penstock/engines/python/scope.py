"""What a writer of generated code knows: names of values, where they die, which arrays may be written into, and the lines so far.

State. `block` are the statements, `alias` other names for values, `guards` when results are alive. `names` are the values' names in the function that is being
written; `free` names whose value nobody needs any more, `spares` names of small arrays that results may be written into. `kills` says which
values are read for the last time at which place. `globals` are the generated module's, `lines` its source, `mapping` the node of each line. What is found out on the way
(see `codegen`): `used` values that somebody reads, `owned` arrays that nobody else holds, `sure` values whose static shape can be relied on, `late` gradients,
`counters`, `stacks` and `arrays` that have forms of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from penstock.engines.python.chains import Chained
from penstock.engines.python.code import Code, halt
from penstock.engines.python.counters import Counters
from penstock.engines.python.elementwise import Fused
from penstock.engines.python.expressions import (
    OUT_BY_NAME,
    ufunc_of,
)
from penstock.engines.python.structure import Offloaded, Structured
from penstock.engines.python.walk import makes, paths, reads
from penstock.graph.ir import Operation, Tensor
from penstock.ops import interrupts
from penstock.ops.context import DEAD
from penstock.ops.control_flow import predicate

SMALL, MOST_SPARES = 16384, 32
"""Arrays of up to so many bytes are kept, so many of a kind, for later results."""


class Scope:
    """The state, and what is done with names and lines."""

    constants_of: dict[Tensor, str]
    result_tensors: list[Tensor]
    used: set[Tensor]
    owned: dict[Tensor, tuple[int, ...]]
    sure: set[Tensor]
    late: dict[Operation, Any]
    counters: Counters
    stacks: dict[Operation, Any]
    arrays: dict[Operation, Any]

    def __init__(
        self,
        nodes: Sequence[Any],
        structured: Structured,
        code: Code,
        read_ref: Any,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        offload: Any,
    ) -> None:
        self.nodes = nodes
        self.offload = offload
        self.on_host = offload is None or not offload.keeps_values
        self.programs: list[tuple[Offloaded, tuple[int, ...], str]] = []
        self.block = structured.block
        self.alias = structured.alias
        self.guards = structured.guards
        self.switch_of = structured.switch_of
        self.loops: list[tuple[str, str]] = []  # (name, name of its counter) of the loops around what is being written
        self.code = code
        self.read_ref = read_ref
        self.inputs = inputs
        self.outputs = outputs
        self.names: dict[Tensor, str] = {}
        self.free: list[str] = []  # names whose value nobody needs any more; see `_let_go`
        self.n_names = 0
        self.spares: dict[Any, list[str]] = {}  # small arrays that nobody needs any more: results are written into them
        self.globals: dict[str, Any] = {
            "DEAD": DEAD,
            "predicate": predicate,
            "halt": halt,
            "interrupts": interrupts.came,
            "read_ref": read_ref,
            "count": itertools.count,
        }
        self.global_of: dict[int, str] = {}
        self.lines: list[str] = []
        self.mapping: dict[int, tuple[Any, list[str], tuple[str, str] | None]] = {}
        self.kills: dict[tuple[int, ...], list[Tensor]] = {}
        self.tiles: list[tuple[list[str], Any, str]] = []

    # -- names ------------------------------------------------------------------------------------------------------------

    def _root(self, tensor: Tensor) -> Tensor:
        alias = self.alias
        while tensor in alias:
            tensor = alias[tensor]
        return tensor

    def _name(self, tensor: Tensor) -> str:
        root = self._root(tensor)
        name = self.names.get(root)
        if name is None:
            name = self.names[root] = self._new_name()
        return name

    def _told(self, tensors: Sequence[Tensor]) -> list[str]:
        """The names of values for an error's story; some may be gone already."""
        return [self.names.get(self._root(t), "_") for t in tensors]

    def _new_name(self) -> str:
        if self.free:
            return self.free.pop()
        self.n_names += 1
        return f"v{self.n_names - 1}"

    def _new_function(self) -> None:
        """Another function begins: none of the names so far means anything in it, but for constants."""
        self.names = dict(self.constants_of)
        self.free = []
        self.spares = {}
        self.n_names = 0

    def _counted(self, op: Operation) -> str:
        counter, operator, number = self.counters.lines[op]
        return f"{self._name(counter)} {operator} {number}"

    def _constant(self, tensor: Tensor) -> Any:
        return self.globals.get(self.constants_of.get(tensor, ""))

    def _value(self, tensor: Tensor) -> str:
        return self._name(tensor)

    def _global(self, value: Any, prefix: str) -> str:
        name = self.global_of.get(id(value))
        if name is None:
            name = self.global_of[id(value)] = f"{prefix}{len(self.globals)}"
            self.globals[name] = value
        return name

    # -- when values die --------------------------------------------------------------------------------------------------

    def _read_at_end(self) -> list[Tensor]:
        preds = [pred for t in self.result_tensors for pred, _ in self.guards.get(t, ())]
        return [*self.result_tensors, *preds]

    def _find_kills(self) -> None:
        """After which statement each value is let go of: the last one that reads it, in the innermost block that holds its making
        and all its readers. Numbers are not worth a store."""
        places: dict[Tensor, list[tuple[int, ...]]] = {}
        made: set[Tensor] = set()
        self.used: set[Tensor] = set()
        for path, statement in paths(self.block):
            for tensor in reads(statement):
                root = self._root(tensor)
                self.used.add(root)
                places.setdefault(root, []).append(path)
            for tensor in makes(statement):
                made.add(tensor)
                places.setdefault(tensor, []).append(path)
            if isinstance(statement, Fused):
                self.used.update(node.op.outputs[0] for node in statement.nodes)
            elif isinstance(statement, Chained):
                self.used.update(self._root(t) for node in statement.nodes for t in node.op.inputs)
        kept = {self._root(t) for t in self._read_at_end()}
        self.used |= kept
        for tensor, where in places.items():
            if tensor in kept or tensor in self.constants_of:
                continue
            if tensor in made and tensor not in self.used:
                continue
            if tensor not in made:
                where = [*where, (0,)]  # arguments are there from the start
            depth = 0
            first = where[0]
            while len(first) > depth + 2 and all(len(p) > depth + 2 and p[: depth + 2] == first[: depth + 2] for p in where):
                depth += 2
            last = max(p[depth] for p in where)
            self.kills.setdefault((*first[:depth], last), []).append(tensor)

    def _let_go(self, path: tuple[int, ...]) -> list[tuple[str, Tensor]]:
        """The names of values that are read for the last time at `path` are free from now on. Gives those that hold more than a
        number: somebody must write over them."""
        held = []
        for tensor in self.kills.pop(path, ()):
            name = self.names.pop(tensor, None)
            if name is not None:
                self.free.append(name)
                if not is_number(tensor):
                    held.append((name, tensor))
        return held

    def _drop(self, held: list[tuple[str, Tensor]], indent: int) -> None:
        if held:
            self._line(indent, " = ".join(name for name, _ in held) + " = None")

    def _take(self, name: str, tensor: Tensor) -> str:
        """Makes a free name the tensor's."""
        if name in self.free:
            self.free.remove(name)
        self.names[tensor] = name
        return name

    # -- arrays that are used again ---------------------------------------------------------------------------------------

    def _reusable(self, node: Any, path: tuple[int, ...]) -> str | None:
        """The name of an array into which the node's ufunc may write its result: one that this function made, that nobody needs any
        more and nobody can have kept, nor a view of it, and whose size is right."""
        ufunc = ufunc_of(node)
        if not path or ufunc is None or ufunc.nin != len(node.op.inputs) or ufunc.nout != 1:
            return None
        out = node.op.outputs[0]
        if not out.dims or out not in self.sure or out not in self.used or None in out.dims:
            return None
        is_small = n_bytes(out) <= SMALL
        if is_small and ufunc in OUT_BY_NAME:
            return None  # naming an argument costs what it would win
        inputs = {self._root(t) for t in node.op.inputs}
        for tensor in self.kills.get(path, ()):
            if (
                tensor in inputs
                and tensor.dims == out.dims
                and tensor.dtype is out.dtype
                and self.owned.get(tensor) == path[:-1]
            ):
                return self._name(tensor)
        spares = self.spares.get((out.dims, out.dtype, path[:-1])) if is_small else None
        return spares.pop() if spares else None

    def _spare(self, held: list[tuple[str, Tensor]], path: tuple[int, ...], overwritten: Tensor | None = None) -> list[tuple[str, Tensor]]:
        """Keeps small arrays for later results; gives what is something else, or has a result in it already (`overwritten`)."""
        others = []
        for name, tensor in held:
            if tensor is not overwritten and self.owned.get(tensor) == path[:-1] and tensor in self.sure and tensor.dims and None not in tensor.dims:
                spares = self.spares.setdefault((tensor.dims, tensor.dtype, path[:-1]), [])
                if n_bytes(tensor) <= SMALL and len(spares) < MOST_SPARES:
                    spares.append(name)
                    self.free.remove(name)
                    continue
            others.append((name, tensor))
        return others

    # -- lines ------------------------------------------------------------------------------------------------------------

    def _line(self, indent: int, text: str, node: Any = None, inputs: Sequence[str] = ()) -> None:
        self.lines.append("    " * indent + text)
        if node is not None:
            self.mapping[len(self.lines)] = (node, list(inputs), self.loops[-1] if self.loops else None)


def n_bytes(tensor: Tensor) -> int:
    return math.prod(tensor.dims) * tensor.dtype.np.itemsize  # type: ignore[arg-type]


def is_number(tensor: Tensor) -> bool:
    return (
        tensor.dims == ()
        and tensor.dtype.is_numpy_compatible
        and tensor.dtype.np is not None
        and tensor.dtype.np.kind in "biufc"
    )
