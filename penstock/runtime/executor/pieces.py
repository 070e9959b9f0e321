"""Straight programs of very many calls as plain functions, a few hundred calls each: what steps run as until the real code is there.

    def piece(v, ctx):
        r3=v[3];v[3]=None;r7=v[7]           what is read before it is written: taken over, or a constant, which stays
        r3=f0(r3,r7)                        a call, one line
        r4,r5=t if len(t:=f1(r3))==2 else wrong(t);r3=t=None
        v[4]=r4;v[5]=r5                     what is there at the end

The interpreter's loop takes 0.3 us for a node, of which a third is its own. It takes seconds of the interpreter's lock to write good code for 100,000 nodes
(`engines.python`), so that this is done at leisure, and steps have to be quick without it. A piece takes some microseconds for a node, in the first step: a small part of what that
step does anyway. Registers are those of the program, and so is the order in which values are let go of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import Any

LEAST = 20_000
"""Calls from which on code is too long in coming."""
PART = 400
"""Calls of one function."""
_FILE = "<penstock piece>"
_FIRST_LINE = 3


class WrongNumber(Exception):
    """A kernel gave `results`, which are more or fewer than its outputs."""

    def __init__(self, results: Any) -> None:
        super().__init__("a wrong number of outputs")
        self.results = results


def _wrong(results: Any) -> Any:
    raise WrongNumber(results)


def pieces_of(program: list[tuple], constants: Collection[int]) -> list[Callable[[list[Any], Any], None]]:
    """The functions: `piece(registers, ctx)` one after the other are the program. `constants` are registers that nobody writes."""
    names: dict[int, str] = {}  # of kernels, by id
    scope: dict[str, Any] = {"wrong": _wrong}
    made = []
    for start in range(0, len(program), PART):
        calls = program[start : start + PART]
        source = _source(calls, names, scope, constants)
        exec(compile(source, _FILE, "exec"), scope)
        made.append(scope.pop("piece"))
    return made


def _source(calls: list[tuple], names: dict[int, str], scope: dict[str, Any], constants: Collection[int]) -> str:
    taken: dict[int, None] = {}  # registers that are read before they are written
    written: set[int] = set()
    alive: dict[int, None] = {}
    lines = []
    for kind, fn, ins, more, out, free in calls:
        name = names.get(id(fn))
        if name is None:
            name = names[id(fn)] = f"f{len(names)}"
            scope[name] = fn
        registers = () if kind == 0 else (ins,) if kind == 1 else (ins, more) if kind == 2 else ins
        taken.update((r, None) for r in registers if r not in written)
        read = ",".join([f"r{r}" for r in registers])
        call = f"{name}(ctx,{read})" if kind in (4, 6) else f"{name}({read})"
        outs = (out,) if kind < 5 else out
        if kind < 5:
            line = f" r{out}={call}"
        elif not out:
            line = f" {call}"
        else:
            line = f" {','.join([f'r{r}' for r in out])},=t if len(t:={call})=={len(out)} else wrong(t);t=None"
        written.update(outs)
        alive.update(dict.fromkeys(outs))
        if free is not None:
            line += ";" + "=".join([f"r{r}" for r in free]) + "=None"
            written.update(free)
            for r in free:
                alive.pop(r, None)
        lines.append(line)
    first = ";".join([f"r{r}=v[{r}]" if r in constants else f"r{r}=v[{r}];v[{r}]=None" for r in taken])
    last = _left(taken, written, alive, constants)
    return "\n".join(["def piece(v,ctx):", f" {first or 'pass'}", *lines, f" {last or 'pass'}", ""])


def _left(taken: Iterable[int], written: set[int], alive: dict[int, None], constants: Collection[int]) -> str:
    """The end of a piece: registers that hold something get it back."""
    kept = [r for r in taken if r not in written and r not in constants]
    return ";".join([f"v[{r}]=r{r}" for r in (*kept, *alive)])


def place(traceback: TracebackType | None) -> tuple[int, dict[str, Any]] | None:
    """Which call of a piece an error came out of, and the piece's names; None if it came from elsewhere."""
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code.co_filename == _FILE:
            return traceback.tb_lineno - _FIRST_LINE, frame.f_locals
        traceback = traceback.tb_next
    return None
