"""A compiled region: its function, its source, and which node a line belongs to."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any, NamedTuple

from penstock.engines.turns import breathe
from penstock.graph.ir import Operation
from penstock.ops.interrupts import deliver


class Cancelled(Exception):
    """Raised by a loop whose step was cancelled."""


def halt(stop: Any) -> None:
    """In a loop of generated code: its step was cancelled, or Ctrl-C came."""
    if stop.is_cancelled:
        raise Cancelled
    deliver()


class Blame(NamedTuple):
    """A node, the inputs it was called with, and the innermost loop around it: its name and the number of the round."""

    node: Any
    inputs: list[Any]
    loop: tuple[str, int] | None


class Code:
    """A compiled region. `results` are the indexes of its _Retvals; `source` is for people."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = ""
        self.results: list[int] = []
        self.may_die = False
        self.needs_ctx = False
        self.has_loops = False
        self.run: Callable[..., tuple] = _not_compiled
        self.shortened: set[Operation] = set()  # nodes whose line is not a call of their kernel
        self.words: dict[Operation, str] = {}  # what to say if the line of such a node fails, where its kernel cannot
        self._lines: dict[int, tuple[Any, list[str], tuple[str, str] | None]] = {}
        self._globals: dict[str, Any] = {}
        self._filename = ""

    def blame(self, traceback: TracebackType | None) -> Blame | None:
        """The node whose line was running when an exception with this traceback was raised; None if it was none."""
        found = None
        while traceback is not None:
            frame = traceback.tb_frame
            if frame.f_code.co_filename == self._filename:
                found = (traceback.tb_lineno, frame)
            traceback = traceback.tb_next
        if found is None or found[0] not in self._lines:
            return None
        node, names, loop = self._lines[found[0]]
        known = found[1].f_locals
        inputs = [known[name] if name in known else self._globals.get(name) for name in names]
        return Blame(node, inputs, None if loop is None else (loop[0], known.get(loop[1], 0)))

    def __del__(self) -> None:
        # The generated functions and their globals hold each other, and with them constants that may be big.
        self._globals.clear()
        cache = getattr(linecache, "cache", None)  # nothing is left of it when the interpreter ends
        if cache is not None:
            cache.pop(self._filename, None)


def _not_compiled(*args: Any) -> tuple:
    raise AssertionError("the code is not compiled")


def compile_pieces(lines: list[str], filename: str) -> list[CodeType]:
    """Compiles function by function, each at its own line: one big compilation would hold the interpreter for long."""
    starts = [i for i, line in enumerate(lines) if line.startswith("def ")]
    found = []
    for a, b in itertools.pairwise([*starts, len(lines)]):
        found.append(_moved(compile("\n".join(lines[a:b]) + "\n", filename, "exec"), a))
        breathe()
    return found


def _moved(code: CodeType, lines: int) -> CodeType:
    """The code with the line numbers of the whole source, before which so many lines stand."""
    inner = tuple(_moved(value, lines) if isinstance(value, CodeType) else value for value in code.co_consts)
    return code.replace(co_firstlineno=code.co_firstlineno + lines, co_consts=inner)
