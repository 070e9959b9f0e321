"""The machine code of an update (see `updates`): a loop over rows around the loop over a row's elements that `compiler` writes.

The function is `f(table)`. The table holds, 8 bytes each, the number of rows, their elements, their bytes, and the addresses of array objects: the indices,
the variable and its slots, the gradient; then come the numbers. Where an array's elements lie is the first thing in the object: to look it up here takes no time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import RAX, RDI, Mem
from penstock.ops.native.compiler import _POINTERS, Code
from penstock.ops.native.vectors import Node, Trace

_TABLE, _ROWS, _INDICES, _GRADIENT = 3, 12, 13, 14
"""rbx, r12, r13, r14, which the caller wants back as they were: the table, rows to go, where the next index is, and where the next row of the gradient."""

_SAVE_MODE, _LOAD_MODE = (0x1AE, 3), (0x1AE, 2)
"""stmxcsr and ldmxcsr: opcode and digit."""
_FLUSH, _OR = 0x8040, 1
"""Results and operands that are too small to be normal numbers are zero."""


class UpdateCode(Code):
    """Writes the machine code of one formula."""

    def __init__(self, new: Callable[..., Any], n_arrays: int, n_numbers: int, type: str) -> None:
        trace = Trace(False, type)
        arrays = [trace.add("input", [], type, (i, type)) for i in range(n_arrays + 1)]
        size = int(type[1:]) // 8
        numbers = [trace.add("number", [], type, 8 * (5 + n_arrays) + size * i) for i in range(n_numbers)]
        for i, value in enumerate(new(*arrays, *numbers)):
            trace.add("output", [value], "none", (i, type, 0))
        super().__init__(trace, 64 // size, [64] * (n_arrays + 1))
        self.n_arrays = n_arrays

    def write(self) -> bytes:
        a = self.asm
        a.raw(0x53, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56)  # push rbx, r12, r13, r14
        frame_at = self._prologue()
        a.scalar(asm.MOVE, _TABLE, RDI)
        a.scalar(asm.MOVE, _ROWS, self._table(0))
        self._elements(_INDICES, 0)
        self._elements(_GRADIENT, 1 + self.n_arrays)
        old, new = self._mode(), self._mode()
        a.scalar(_SAVE_MODE[0], _SAVE_MODE[1], old, wide=False)
        a.scalar(asm.MOVE, RAX, old, wide=False)
        a.with_number(_OR, RAX, _FLUSH)
        a.scalar(asm.MOVE_TO_MEMORY, RAX, new, wide=False)
        a.scalar(_LOAD_MODE[0], _LOAD_MODE[1], new, wide=False)
        row = next(self.labels)
        a.label(row)
        a.scalar(asm.MOVE, RAX, Mem(_INDICES))
        a.scalar(asm.MULTIPLY, RAX, self._table(2))
        for i, register in zip(range(self.n_arrays), _POINTERS):
            self._elements(register, 1 + i)
            a.scalar(asm.ADD, register, RAX)
        a.scalar(asm.MOVE, _POINTERS[self.n_arrays], _GRADIENT)
        a.scalar(asm.MOVE, RDI, self._table(1))
        self._over_elements()
        a.with_number(0, _INDICES, 8)
        a.scalar(asm.ADD, _GRADIENT, self._table(2))
        a.with_number(5, _ROWS, 1)
        a.jump(row, asm.NOT_ZERO)
        a.scalar(_LOAD_MODE[0], _LOAD_MODE[1], old, wide=False)
        a.raw(0x48, 0x89, 0xEC, 0x5D, 0x41, 0x5E, 0x41, 0x5D, 0x41, 0x5C, 0x5B)  # mov rsp, rbp; pop rbp, r14, r13, r12, rbx
        a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
        code = bytearray(a.finish())
        code[frame_at : frame_at + 4] = (64 * self.n_slots).to_bytes(4, "little")
        return bytes(code)

    def _mode(self) -> Mem:
        """Room for a state of the unit that computes."""
        return self._slot(Node("mode", (), "none", None))

    def _table(self, index: int) -> Mem:
        return Mem(_TABLE, 8 * index)

    def _elements(self, register: int, i: int) -> None:
        """Where the elements of the table's i-th array lie."""
        self.asm.scalar(asm.MOVE, register, self._table(3 + i))
        self.asm.scalar(asm.MOVE, register, Mem(register, object.__basicsize__))

    def _emit_number(self, node: Node, type: str) -> None:
        self.asm.vector(f"broadcast.{node.type}", self._result(node, ()), Mem(_TABLE, node.data))
