"""The machine code of a sweep (see `sweeps`): loops over rows, phases and columns around what `compiler` writes for each trace.

The function is `f(table)`. The table holds the number of rows, the number of columns, the addresses of all arrays and of the totals, and the numbers, 8 bytes each.
Registers: rdi the table, r10 the row (or the first element of a tile), rsi the column, r11 the element (row * columns + column); rax and r9 are for anybody; the others hold the first addresses.
"""

from __future__ import annotations

import numpy as np

from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import QUARTER, R9, R10, R11, RAX, RDI, RSI, Mem
from penstock.ops.native.compiler import _ACTIVE, Code
from penstock.ops.native.sweeps import COLUMN, ROW, SIZES, TILE, Accumulator, Plan
from penstock.ops.native.vectors import Node, Trace

_ADDRESSES = (asm.RCX, asm.RDX, asm.R8, asm.RBX, asm.R12, asm.R13, asm.R14, asm.R15)
_START = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}


class SweepCode(Code):
    """Writes the machine code of one plan. If it `streams`, whole vectors of results, which begin with a cache line, are stored past the caches."""

    def __init__(self, plan: Plan, streams: bool = False) -> None:
        self.plan, self.compute, self.streams = plan, plan.compute, streams
        self.bits = int(plan.compute[1:])
        super().__init__(Trace(), 512 // self.bits, ())
        vectors = self.files["vector"]
        vectors.all = [r for r in vectors.all if r < 32 - plan.n_registers]
        self._forget_all()
        self.n_nodes = 0
        self.in_body = False

    def write(self) -> bytes:
        a = self.asm
        a.raw(0x53, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57)  # push rbx, r12, r13, r14, r15
        frame_at = self._prologue()
        for i, register in zip(range(len(self.plan.arrays)), _ADDRESSES):
            a.scalar(asm.MOVE, register, self._table(2 + i))
        for i, (v, type) in enumerate(self.plan.numbers):
            if v in self.plan.held:
                self._hold_number(self.plan.held[v], self._table(3 + len(self.plan.arrays) + i), type)
        for accumulator in self.plan.totals:
            self._clear(accumulator)
        a.set_number(R10, 0)
        row = next(self.labels)
        a.label(row)
        for phase in self.plan.phases:
            self.in_body = False
            if phase.before.nodes:
                a.set_number(RAX, 1)
                a.mask_from(_ACTIVE, RAX)  # one element of a column
                self._straight(phase.before)
            for _, accumulator in phase.reductions:
                self._clear(accumulator)
            self.in_body = True
            if phase.body.nodes:
                self._row(phase.body)
            for node, accumulator in phase.reductions:
                self._spread(node, accumulator)
        a.with_number(0, R10, TILE if self.plan.has_tiles else 1)
        a.scalar(asm.CMP, R10, self._table(1 if self.plan.has_tiles else 0))
        a.jump(row, asm.BELOW)
        if self.plan.totals:
            self._write_totals()
        if self.streams:
            a.raw(0x0F, 0xAE, 0xF8)  # sfence: what was streamed is seen by whoever hears that it is done
        a.raw(0x48, 0x89, 0xEC, 0x5D)  # mov rsp, rbp; pop rbp
        a.raw(0x41, 0x5F, 0x41, 0x5E, 0x41, 0x5D, 0x41, 0x5C, 0x5B)  # pop r15, r14, r13, r12, rbx
        a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
        code = bytearray(a.finish())
        code[frame_at:frame_at + 4] = (64 * self.n_slots).to_bytes(4, "little")
        return bytes(code)

    def _table(self, index: int) -> Mem:
        return Mem(RDI, 8 * index)

    def _straight(self, trace: Trace) -> None:
        self._begin(trace)
        self.n_nodes += len(self.nodes) if self.in_body else 0
        self._emit_all()
        self._forget_all()

    def _row(self, trace: Trace) -> None:
        """The loop over the elements of a row, or of a tile: whole vectors, then the rest."""
        a, top, end = self.asm, next(self.labels), next(self.labels)
        a.set_number(RSI, 0)
        a.scalar(asm.MOVE, R11, R10)
        if not self.plan.has_tiles:
            a.scalar(asm.MULTIPLY, R11, self._table(1))
        self._begin(trace)
        is_twice = not self.plan.has_tiles and self._is_written_twice()  # tiles do not wait for memory
        if is_twice:
            whole, rest = next(self.labels), next(self.labels)
            self._set_active()
            a.label(whole)
            self._set_columns()
            a.scalar(asm.SUB, R9, RSI)
            a.with_number(7, R9, self.lanes)
            a.jump(rest, asm.BELOW)
            self._emit_whole()
            self._next_vector()
            a.jump(whole)
            a.label(rest)
            a.with_number(7, R9, 0)
            a.jump(end, asm.ZERO)
        a.label(top)
        if not is_twice:
            self._set_columns()
            a.scalar(asm.SUB, R9, RSI)
            a.set_number(RAX, self.lanes)
            a.scalar(asm.CMP, R9, RAX)
            a.scalar(asm.MOVE_IF_ABOVE, R9, RAX)
        a.set_number(RAX, -1)
        a.low_bits(RAX, R9)
        a.mask_from(_ACTIVE, RAX)
        self._straight(trace)
        if not is_twice:
            self._next_vector()
            self._set_columns()
            a.scalar(asm.CMP, RSI, R9)
            a.jump(top, asm.BELOW)
        a.label(end)

    def _next_vector(self) -> None:
        self.asm.with_number(0, RSI, self.lanes)
        self.asm.with_number(0, R11, self.lanes)

    def _set_columns(self) -> None:
        """The number of elements of this row, or tile, into r9."""
        self.asm.scalar(asm.MOVE, R9, self._table(1))
        if self.plan.has_tiles:
            self.asm.scalar(asm.SUB, R9, R10)
            self.asm.set_number(RAX, TILE)
            self.asm.scalar(asm.CMP, R9, RAX)
            self.asm.scalar(asm.MOVE_IF_ABOVE, R9, RAX)

    # -- numbers and columns ----------------------------------------------------------------------------------------------------

    def _hold_number(self, node: Node, place: Mem, type: str) -> None:
        if type == "bool":
            self.asm.vector(f"broadcast.i{self.bits}", 0, place)
            self.asm.vector(f"cmp.i{self.bits}", 1, 0, self.asm.constant(0, f"i{self.bits}"), immediate=4)
            self.asm.mask_move(1, self._slot(node), store=True)
        else:
            self.asm.vector(f"broadcast.{type}", 0, place)
            self.asm.vector(f"store.{type}", 0, self._slot(node))

    def _emit_hold(self, node: Node, type: str) -> None:
        (value,) = node.inputs
        register = self._load(value, ())
        if value.type == "mask":
            self.asm.mask_move(register, self._slot(node.data), store=True)
        else:
            self.asm.vector(f"store.{value.type}", register, self._slot(node.data))

    # -- arrays -----------------------------------------------------------------------------------------------------------------

    def _memory(self, index: int, stored: str) -> Mem:
        """Where the elements of this turn lie in an array."""
        kind = self.plan.arrays[index][0]
        base = _ADDRESSES[index] if index < len(_ADDRESSES) else RAX
        if base == RAX:
            self.asm.scalar(asm.MOVE, RAX, self._table(2 + index))
        return Mem(base, index={ROW: RSI, COLUMN: R10}.get(kind, R11), scale=SIZES[stored])

    def _emit_read(self, node: Node, type: str) -> None:
        index, stored = node.data
        if stored == "bool":
            memory = self._memory(index, stored)
            vector = self._free_register(self.files["vector"], ())
            self.asm.vector("load.u8", vector, memory, mask=_ACTIVE, zero=True, length=QUARTER)
            self.asm.vector("test.u8", self._result(node, ()), vector, vector, length=QUARTER)
            self.files["vector"].free.append(vector)
            return
        register = self._result(node, ())
        memory = self._memory(index, stored)
        if self.in_body:
            self.asm.vector(f"load.{stored}", register, memory, mask=self.active, zero=self.active > 0)
        else:
            self.asm.vector(f"broadcast.{stored}", register, memory)

    def _emit_write(self, node: Node, type: str) -> None:
        (value,) = node.inputs
        index, stored = node.data
        if stored == "bool":
            self._write_truths(value, self._memory(index, stored))
            return
        store = "stream" if self.streams and not self.active else "store"
        self.asm.vector(f"{store}.{stored}", self._load(value, ()), self._memory(index, stored), mask=self.active)

    # -- reductions ---------------------------------------------------------------------------------------------------------------

    def _clear(self, accumulator: Accumulator) -> None:
        type = "f64" if accumulator.wide else self.compute
        for register in accumulator.registers:
            self.asm.vector(f"broadcast.{type}", register, self.asm.constant(_START[accumulator.op], type)._replace(broadcast=False))

    def _emit_accumulate(self, node: Node, type: str) -> None:
        (value,) = node.inputs
        accumulator: Accumulator = node.data
        source = self._load(value, ())
        if accumulator.wide:
            low, high = accumulator.registers
            vectors = self.files["vector"]
            part = self._free_register(vectors, (source,))
            wide = self._free_register(vectors, (source, part))
            self.asm.vector("load.f32", part, source, mask=self.active, zero=self.active > 0)
            self.asm.vector("f32_to_f64", wide, part)
            self.asm.vector("add.f64", low, low, wide)
            self.asm.vector("upper_half", part, wide, immediate=1)
            self.asm.vector("f32_to_f64", wide, wide)
            self.asm.vector("add.f64", high, high, wide)
            vectors.free += [part, wide]
        else:
            self._combine(accumulator, accumulator.registers[0], source, self.active)

    def _combine(self, accumulator: Accumulator, register: int, source: int, active: int) -> None:
        """register = register op source in the active lanes. Extremes are NaN where one is; the instruction gives its second operand then."""
        self.asm.vector(f"{accumulator.op}.{self.compute}", register, source, register, mask=active)
        if accumulator.op in ("max", "min"):
            masks = self.files["mask"]
            unordered = self._free_register(masks, ())
            self.asm.vector(f"cmp.{self.compute}", unordered, source, source, immediate=asm.UNORDERED, mask=active)
            self.asm.vector(f"load.{self.compute}", register, source, mask=unordered)
            masks.free.append(unordered)

    def _spread(self, node: Node, accumulator: Accumulator) -> None:
        """All lanes of a reduction into one, and that into all lanes."""
        a, register = self.asm, accumulator.registers[0]
        wide = accumulator.wide
        if wide:
            a.vector("add.f64", register, register, accumulator.registers[1])
        bits = 64 if wide else self.bits
        lanes = 512 // bits
        shift = lanes // 2
        while shift:
            places = (np.arange(lanes) ^ shift).astype(f"i{bits // 8}")
            a.vector(f"load.i{bits}", 0, a.table(places))
            a.vector(f"permute.i{bits}", 1, 0, register)
            if wide:
                a.vector("add.f64", register, register, 1)
            else:
                self._combine(accumulator, register, 1, 0)
            shift //= 2
        if wide:
            a.vector("f64_to_f32", register, register)
            a.vector("broadcast.f32", register, register)
        a.vector(f"store.{self.compute}", register, self._slot(node))

    def _write_totals(self) -> None:
        a = self.asm
        a.scalar(asm.MOVE, RAX, self._table(2 + len(self.plan.arrays)))
        registers = [r for accumulator in self.plan.totals for r in accumulator.registers]
        for i, register in enumerate(registers):
            a.vector("store.i64", register, Mem(RAX, 64 * i))
