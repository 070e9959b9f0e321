"""From a trace to a function in memory: registers for its values, the loop over the elements around them.

The function is `f(n, *pointers)` (C's calling convention on Linux): pointers to the inputs, then to the outputs. Each turn of the loop takes as many
elements as a vector has lanes; the last one masks the lanes that are too many, so that no array needs padding.

Registers. The next instruction's operands are brought into registers; when all are taken, the value that is needed last goes (to a slot on the stack,
unless it is there already or is a constant). At the borders of branches and loops all values that are still needed are in their slots, so that what lies
behind a border can find them whatever happened in between. A slot is never used twice, so values live as long as anybody wants. What a loop carries stays
in registers of its own if there are enough and nothing branches within.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import FULL, HALF, QUARTER, RAX, RDI, RSP, Assembler, Mem
from penstock.ops.native.executable import function_at, into_memory
from penstock.ops.native.vectors import Node, Trace

_POINTERS = (asm.RSI, asm.RDX, asm.RCX, asm.R8, asm.R9)
_ACTIVE = 7
"""The k register that says which lanes hold elements."""
MOST_WHOLE = 64
"""Instructions of a loop that is written twice, without a mask for whole vectors. A masked store has the processor read what it writes over: in arrays that are in no cache, an addition took three
times as long. Loops of more instructions than that do not wait for memory."""
_PINNED = 16
"""At most so many registers belong to what a loop carries."""
VECTOR = 64  # bytes
_BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4}
_MOVES = frozenset(("input", "output", "read", "write"))
_BORDERS = frozenset(("if", "end", "loop", "unless", "again"))
_ONES = np.ones(64, np.uint8)
_COMMUTATIVE = frozenset(("add", "mul", "and", "or", "xor", "mul_low_halves"))
_FUSED = frozenset(("madd", "msub", "nmadd"))
_SHORT = {"u8": "u8", "i8": "u8", "u16": "u16", "i16": "u16"}
"""Whole numbers below 32 bits, and what stores them: bits that do not fit are lost."""


class Code:
    """Writes the machine code of one trace."""

    def __init__(self, trace: Trace, lanes: int, steps: Sequence[int]) -> None:
        self.asm = Assembler()
        self.lanes, self.steps = lanes, steps
        self.active = _ACTIVE  # 0 where all lanes hold elements
        self._begin(trace)
        self.files = {"mask": _File(range(1, _ACTIVE)), "vector": _File(range(32))}
        self.slots: dict[Node, int] = {}
        self.n_slots = 0
        self.now = 0
        self.labels = iter(range(1 << 30))
        self.open: list[tuple[int, int]] = []  # labels of the loops and branches around
        self.kept: list[dict[Node, int]] = []  # where values were when the branches around began
        self.pinned: dict[Node, int] = {}

    def _begin(self, trace: Trace) -> None:
        """What is written next."""
        self.trace = trace
        self.nodes = _needed(trace.nodes)
        self.uses: dict[Node, list[int]] = defaultdict(list)
        for i, node in enumerate(self.nodes):
            node.number = i
            for value in node.inputs:
                self.uses[value].append(i)
        for places in self.uses.values():
            places.reverse()  # the next use is the last element

    def write(self) -> bytes:
        a = self.asm
        frame_at = self._prologue()
        self._over_elements()
        a.raw(0x48, 0x89, 0xEC, 0x5D, 0xC5, 0xF8, 0x77, 0xC3)  # mov rsp, rbp; pop rbp; vzeroupper; ret
        code = bytearray(a.finish())
        code[frame_at:frame_at + 4] = (64 * self.n_slots).to_bytes(4, "little")
        return bytes(code)

    def _over_elements(self) -> None:
        """The loop over as many elements as rdi says, from the pointers on."""
        a, top, end = self.asm, next(self.labels), next(self.labels)
        if self._is_written_twice():
            whole, rest = next(self.labels), next(self.labels)
            self._set_active()
            a.with_number(7, RDI, self.lanes)
            a.jump(rest, asm.BELOW)
            a.label(whole)
            self._emit_whole()
            self._advance()
            a.with_number(7, RDI, self.lanes)
            a.jump(whole, asm.ABOVE_EQUAL)
            a.label(rest)
            a.with_number(7, RDI, 0)
            a.jump(end, asm.ZERO)
        a.label(top)
        # The lanes in use: the lowest min(n, lanes).
        a.set_number(asm.R10, self.lanes)
        a.scalar(asm.CMP, asm.R10, RDI)
        a.scalar(asm.MOVE_IF_ABOVE, asm.R10, RDI)
        a.set_number(RAX, -1)
        a.low_bits(RAX, asm.R10)
        a.mask_from(_ACTIVE, RAX)
        self._emit_all()
        self._advance()
        a.jump(top, asm.ABOVE)
        a.label(end)

    def _advance(self) -> None:
        """To the next elements."""
        for register, step in zip(_POINTERS, self.steps, strict=False):
            self.asm.with_number(0, register, step)
        self.asm.with_number(5, RDI, self.lanes)

    def _set_active(self) -> None:
        """All lanes are in use: few instructions want a mask even so."""
        self.asm.set_number(RAX, (1 << self.lanes) - 1)
        self.asm.mask_from(_ACTIVE, RAX)

    def _is_written_twice(self) -> bool:
        """Whether there is a form without a mask: what comes from memory or goes there fills vectors, so that nothing lies behind it."""
        if len(self.nodes) > MOST_WHOLE or any(node.name in _BORDERS for node in self.nodes):
            return False
        moved = [node.inputs[0] if node.inputs else node for node in self.nodes if node.name in _MOVES]
        return all(value.type == "mask" or _BYTES.get(value.type, 0) * self.lanes == VECTOR for value in moved)

    def _emit_whole(self) -> None:
        """What is to be written, for a vector whose lanes are all in use; after that it is to be written still."""
        self.active = 0
        self._emit_all()
        self.active = _ACTIVE
        self._forget_all()
        for node in self.nodes:
            self.slots.pop(node, None)
        self._begin(self.trace)

    def _prologue(self) -> int:
        """push rbp; mov rbp, rsp; and rsp, -64; sub rsp, frame. Gives where the size of the frame stands."""
        a = self.asm
        a.raw(0x55, 0x48, 0x89, 0xE5)
        a.with_number(4, RSP, -64)
        a.with_number(5, RSP, 0)
        return len(a._code) - 4

    # -- where values are ---------------------------------------------------------------------------------------------------

    def _file(self, value: Node) -> _File:
        return self.files["mask" if value.type == "mask" else "vector"]

    def _slot(self, value: Node) -> Mem:
        if value not in self.slots:
            self.slots[value] = self.n_slots
            self.n_slots += 1
        return Mem(RSP, 64 * self.slots[value])

    def _next_use(self, value: Node) -> int:
        places = self.uses[value]
        while places and places[-1] < self.now:
            places.pop()
        return places[-1] if places else 1 << 30

    def _free_register(self, file: _File, locked: Sequence[int]) -> int:
        if file.free:
            return file.free.pop()
        victim = max((v for r, v in file.holds.items() if r not in locked), key=self._next_use)
        if victim.name not in ("constant", "table") and self._next_use(victim) < 1 << 30 and victim not in self.slots:
            self._save(victim)
        return file.drop(victim)

    def _save(self, value: Node) -> None:
        register = self._file(value).where[value]
        memory = self._slot(value)
        if value.type == "mask":
            self.asm.mask_move(register, memory, store=True)
        else:
            self.asm.vector(f"store.{value.type}", register, memory)

    def _load(self, value: Node, locked: Sequence[int]) -> int:
        """The register of a value, which is brought into one if need be."""
        file = self._file(value)
        register = file.where.get(value)
        if register is not None:
            return register
        register = self._free_register(file, locked)
        if value.name == "constant":
            self.asm.vector(f"broadcast.{value.type}", register, self.asm.constant(value.data, value.type)._replace(broadcast=False))
        elif value.name == "table":
            self.asm.vector(f"load.{value.type}", register, self.asm.table(value.data))
        elif value.type == "mask":
            self.asm.mask_move(register, self._slot(value), store=False)
        else:
            self.asm.vector(f"load.{value.type}", register, Mem(RSP, 64 * self.slots[value]))
        file.put(register, value)
        return register

    def _last(self, value: Node, locked: Sequence[int]) -> int | Mem:
        """A value as an instruction's last operand, where constants and slots may stand as memory."""
        if value not in self._file(value).where:
            if value.name == "constant":
                return self.asm.constant(value.data, value.type)
            if value in self.slots and len(self.uses[value]) == 1:
                return Mem(RSP, 64 * self.slots[value])
        return self._load(value, locked)

    def _dies(self, value: Node) -> bool:
        """Whether nobody wants the register of a value after this instruction."""
        places = self.uses[value]
        return value.name in ("constant", "table") or all(p <= self.now for p in places)

    def _retire(self, node: Node) -> None:
        for value in {*node.inputs, node}:
            if value.type != "none" and self._dies(value) and value.name not in ("constant", "table"):
                self._file(value).forget(value)

    def _result(self, node: Node, locked: Sequence[int]) -> int:
        register = self._free_register(self._file(node), locked)
        self._file(node).put(register, node)
        return register

    def _take_over(self, node: Node, value: Node, locked: Sequence[int]) -> int:
        """A register that holds `value` and is the result's: the value's own if nobody wants it any more, else a copy."""
        register = self._load(value, locked)
        file = self._file(value)
        if self._dies(value) or value in self.slots:
            file.forget(value)
            file.free.remove(register)
        else:
            copy = self._free_register(file, [*locked, register])
            self.asm.vector("load.i64", copy, register)
            register = copy
        file.put(register, node)
        return register

    def _save_all(self) -> None:
        """Everything that is still needed goes to its slot as well."""
        for file in self.files.values():
            for value in [*file.where]:
                if value.name not in ("constant", "table") and value not in self.slots and self._next_use(value) < 1 << 30:
                    self._save(value)

    def _forget_all(self) -> None:
        """Registers are empty from here."""
        for file in self.files.values():
            file.clear()

    # -- instructions -------------------------------------------------------------------------------------------------------

    def _emit_all(self) -> None:
        for i, node in enumerate(self.nodes):
            self.now = i
            self._emit(node)
            self._retire(node)

    def _emit(self, node: Node) -> None:
        base, _, type = node.name.partition(".")
        inputs = node.inputs
        special = getattr(self, f"_emit_{base}", None)
        if special is not None:
            special(node, type)
        elif base in _FUSED:
            self._emit_fused(node, base, type)
        elif len(inputs) == 2:
            first, second = inputs
            if base in _COMMUTATIVE and (first.name == "constant" or first not in self._file(first).where):
                first, second = second, first
            left = self._load(first, ())
            right = self._last(second, (left,))
            self.asm.vector(node.name, self._result(node, _registers(left, right)), left, right, immediate=node.data)
        else:
            source = self._last(inputs[0], ())
            self.asm.vector(node.name, self._result(node, _registers(source)), source, immediate=node.data)

    def _emit_shl(self, node: Node, type: str) -> None:
        source = self._load(node.inputs[0], ())
        self.asm.vector(node.name, self._result(node, (source,)), source, immediate=node.data)

    _emit_shr = _emit_sar = _emit_shl

    def _emit_fused(self, node: Node, base: str, type: str) -> None:
        """a * b + c in the form that overwrites an operand which is no longer needed, and has a constant last."""
        a, b, c = node.inputs
        if a.name == "constant" or (b.name != "constant" and self._dies(b)):
            a, b = b, a
        if b.name == "constant" and c.name != "constant":
            if self._dies(c) and not self._dies(a):
                form, kept, middle, last = "231", c, a, b
            else:
                form, kept, middle, last = "132", a, c, b
        elif c.name != "constant" and self._dies(c) and not self._dies(a):
            form, kept, middle, last = "231", c, a, b
        else:
            form, kept, middle, last = "213", a, b, c
        if kept is middle or kept is last:  # the copy must not take the other operand along
            self._load(kept, ())
        second = self._load(middle, _registers(*(self._file(v).where[v] for v in (kept,) if v in self._file(v).where)))
        third = self._last(last, _registers(second, *(self._file(v).where[v] for v in (kept,) if v in self._file(v).where)))
        first = self._take_over_or_copy(node, kept, (middle, last), _registers(second, third))
        self.asm.vector(f"{base}{form}.{type}", first, second, third)

    def _take_over_or_copy(self, node: Node, kept: Node, others: tuple[Node, ...], locked: Sequence[int]) -> int:
        if kept not in others:
            return self._take_over(node, kept, locked)
        register = self._file(kept).where[kept]
        copy = self._free_register(self._file(kept), [*locked, register])
        self.asm.vector("load.i64", copy, register)
        self._file(kept).put(copy, node)
        return copy

    def _emit_cmp(self, node: Node, type: str) -> None:
        first, second = node.inputs
        left = self._load(first, ())
        right = self._last(second, (left,))
        self.asm.vector(node.name, self._result(node, ()), left, right, immediate=node.data)

    def _emit_blend(self, node: Node, type: str) -> None:
        mask, no, yes = node.inputs
        chosen = self._load(mask, ())
        left = self._load(no, ())
        right = self._last(yes, (left,))
        self.asm.vector(node.name, self._result(node, _registers(left, right)), left, right, mask=chosen)

    def _emit_mask(self, node: Node, name: str) -> None:
        registers: list[int] = []
        for value in node.inputs:
            registers.append(self._load(value, registers))
        self.asm.mask(name, self._result(node, registers), *registers)

    def _emit_same(self, node: Node, type: str) -> None:
        (value,) = node.inputs
        self._take_over(node, value, ())

    def _emit_lookup(self, node: Node, type: str) -> None:
        """Two tables of eight; the index is overwritten by the result."""
        index, low, high = node.inputs
        left = self._load(low, ())
        right = self._load(high, (left,))
        locked = [left, right]
        if index in self.files["vector"].where:
            locked.append(self.files["vector"].where[index])
        register = self._take_over(node, index, locked)
        self.asm.vector(f"lookup.{type}", register, left, right)

    def _emit_ternary(self, node: Node, type: str) -> None:
        """Any function of three bits (`data`: its truth table), or one number in the place of another; the first operand is overwritten."""
        first, second, third = node.inputs
        middle = self._load(second, ())
        last = self._last(third, (middle,))
        locked = _registers(middle, last)
        if first in self.files["vector"].where:
            locked.append(self.files["vector"].where[first])
        register = self._take_over_or_copy(node, first, (second, third), locked)
        self.asm.vector(node.name, register, middle, last, immediate=node.data)

    _emit_fixup = _emit_ternary

    # -- memory ---------------------------------------------------------------------------------------------------------------

    def _emit_input(self, node: Node, type: str) -> None:
        index, stored = node.data
        register = self._result(node, ())
        memory = Mem(_POINTERS[index])
        self._read(register, memory, stored, node.type)

    def _read(self, register: int, memory: Mem, stored: str, type: str) -> None:
        """The lanes in use; zero in the others."""
        if stored == type:
            self.asm.vector(f"load.{stored}", register, memory, mask=self.active, zero=self.active > 0)
        elif stored == "bf16":
            length = HALF if type == "f64" else FULL
            self.asm.vector("u16_to_i32", register, memory, mask=self.active, zero=self.active > 0, length=length)
            self.asm.vector("shl.i32", register, register, immediate=16, length=length)
            if type == "f64":
                self.asm.vector("f32_to_f64", register, register)
        elif stored in _SHORT:
            length = HALF if type == "f64" else FULL
            self.asm.vector(f"{stored}_to_i32", register, memory, mask=self.active, zero=self.active > 0, length=length)
            if type != "i32":
                self.asm.vector(f"i32_to_{type}", register, register)
        elif stored == "f16" and type == "f64":
            self.asm.vector("f16_to_f32", register, memory, mask=self.active, zero=self.active > 0, length=HALF)
            self.asm.vector("f32_to_f64", register, register)
        else:
            self.asm.vector(f"{stored}_to_{type}", register, memory, mask=self.active, zero=self.active > 0)

    def _emit_output(self, node: Node, type: str) -> None:
        (value,) = node.inputs
        index, stored, offset = node.data
        memory = Mem(_POINTERS[index], offset)
        if value.type == stored:
            self.asm.vector(f"store.{stored}", self._load(value, ()), memory, mask=self.active)
            return
        if stored == "bool":
            self._write_truths(value, memory)
            return
        source = self._load(value, ())
        if stored == "bf16":
            self.asm.vector("i32_to_u16", source, memory, mask=self.active)  # see `maths.to_bfloat16`
            return
        if (value.type, stored) == ("i64", "i32"):
            self.asm.vector("i64_to_i32", source, memory, mask=self.active)
            return
        register = self._free_register(self.files["vector"], (source,))
        if stored in _SHORT:  # by way of 32 bits: the upper ones are dropped
            length = HALF if value.type == "f64" else FULL
            self.asm.vector(f"{value.type}_to_i32", register, source)
            self.asm.vector(f"i32_to_u{stored[1:]}", register, memory, mask=self.active, length=length)
        elif (value.type, stored) == ("f32", "i32"):
            self.asm.vector("f32_to_i32", register, source)
            self.asm.vector("store.i32", register, memory, mask=self.active)
        elif (value.type, stored) == ("f64", "i64"):
            self.asm.vector("f64_to_i64", register, source)
            self.asm.vector("store.i64", register, memory, mask=self.active)
        elif (value.type, stored) == ("f64", "i32"):
            self.asm.vector("f64_to_i32", register, source)
            self.asm.vector("store.i32", register, memory, mask=self.active, length=HALF)
        elif value.type == "f64":
            self.asm.vector("f64_to_f32", register, source)
            if stored == "f16":
                self.asm.vector("f32_to_f16", register, memory, mask=self.active, length=HALF, immediate=0)
            else:
                self.asm.vector("store.f32", register, memory, mask=self.active, length=HALF)
        else:
            self.asm.vector("f32_to_f16", source, memory, mask=self.active, immediate=0)
        self.files["vector"].free.append(register)

    def _write_truths(self, value: Node, memory: Mem) -> None:
        """A mask as bytes of 0 and 1."""
        mask = self._load(value, ())
        vector = self._free_register(self.files["vector"], ())
        self.asm.vector("load.u8", vector, self.asm.table(_ONES), mask=mask, zero=True, length=QUARTER)
        self.asm.vector("store.u8", vector, memory, mask=_ACTIVE, length=QUARTER)  # of doubles there are eight: a quarter would be too much
        self.files["vector"].free.append(vector)

    def _emit_store_all(self, node: Node, type: str) -> None:
        """A whole vector, whatever the lanes in use."""
        (value,) = node.inputs
        index, offset = node.data
        self.asm.vector(f"store.{value.type}", self._load(value, ()), Mem(_POINTERS[index], offset))

    def _emit_memory(self, node: Node, type: str) -> None:
        index, offset, broadcast = node.data
        self.asm.vector(f"{'broadcast' if broadcast else 'load'}.{node.type}", self._result(node, ()), Mem(_POINTERS[index], offset))

    def _emit_narrow(self, node: Node, type: str) -> None:
        """Doubles rounded to single precision: `f64_to_f32` and back."""
        source = self._last(node.inputs[0], ())
        register = self._result(node, _registers(source))
        self.asm.vector("f64_to_f32", register, source)
        self.asm.vector("f32_to_f64", register, register)

    def _emit_round_f16(self, node: Node, type: str) -> None:
        """Singles rounded to half precision and back."""
        source = self._load(node.inputs[0], ())
        register = self._result(node, (source,))
        self.asm.vector("f32_to_f16", source, register, immediate=0)
        self.asm.vector("f16_to_f32", register, register)

    def _emit_single_bits(self, node: Node, type: str) -> None:
        """Doubles as the bits of singles, in the lower half of each lane."""
        source = self._last(node.inputs[0], ())
        register = self._result(node, _registers(source))
        self.asm.vector("f64_to_f32", register, source)
        self.asm.vector("u32_to_i64", register, register)

    def _emit_of_single_bits(self, node: Node, type: str) -> None:
        """Doubles of the singles whose bits are the lower half of each lane."""
        source = self._load(node.inputs[0], ())
        register = self._result(node, (source,))
        self.asm.vector("i64_to_i32", source, register)
        self.asm.vector("f32_to_f64", register, register)

    # -- branches and loops -----------------------------------------------------------------------------------------------------

    def _emit_variable(self, node: Node, type: str) -> None:
        self._store_variable(node, node.inputs[0])

    def _store_variable(self, variable: Node, value: Node) -> None:
        register = self._load(value, ())
        if variable in self.pinned:
            self.asm.vector("load.i64", self.pinned[variable], register)
        else:
            self.asm.vector(f"store.{variable.type}", register, self._slot(variable))

    def _emit_assign(self, node: Node, type: str) -> None:
        self._store_variable(*node.inputs)

    def _emit_value(self, node: Node, type: str) -> None:
        (variable,) = node.inputs
        register = self._result(node, ())
        if variable in self.pinned:
            self.asm.vector("load.i64", register, self.pinned[variable])
        else:
            self.asm.vector(f"load.{node.type}", register, Mem(RSP, 64 * self.slots[variable]))

    def _emit_if(self, node: Node, type: str) -> None:
        register = self._load(node.inputs[0], ())
        self.asm.mask("test", register, _ACTIVE)
        self._save_all()
        label = next(self.labels)
        self.open.append((label, -1))
        self.kept.append({value: r for file in self.files.values() for value, r in file.where.items()})
        self.asm.jump(label, asm.ZERO)

    def _emit_end(self, node: Node, type: str) -> None:
        """Registers that the branch has left alone still hold what they held."""
        kept = self.kept.pop()
        alone = {v: r for v, r in kept.items() if self._file(v).holds.get(r) is v}
        self._forget_all()
        for value, register in alone.items():
            file = self._file(value)
            file.free.remove(register)
            file.put(register, value)
        self.asm.label(self.open.pop()[0])

    def _emit_loop(self, node: Node, type: str) -> None:
        self._save_all()
        self._forget_all()
        if self._is_simple_loop() and len(node.inputs) <= _PINNED:
            for variable in node.inputs:
                register = self.pinned[variable] = self.files["vector"].all.pop(0)
                self.asm.vector(f"load.{variable.type}", register, self._slot(variable))
            self._forget_all()
        self.open.append((next(self.labels), next(self.labels)))
        self.asm.label(self.open[-1][0])

    def _is_simple_loop(self) -> bool:
        """Whether the loop that begins here holds no other border than its own."""
        inner = [n.name for n in self.nodes[self.now + 1:] if n.name in _BORDERS]
        return inner[:2] == ["unless", "again"]

    def _emit_unless(self, node: Node, type: str) -> None:
        register = self._load(node.inputs[0], ())
        self.asm.mask("test", register, _ACTIVE)
        if not self.pinned:
            self._save_all()
        self.asm.jump(self.open[-1][1], asm.ZERO)

    def _emit_again(self, node: Node, type: str) -> None:
        top, out = self.open.pop()
        self.asm.jump(top)
        self.asm.label(out)
        self._forget_all()
        for variable in node.inputs:
            if variable in self.pinned:
                register = self.pinned.pop(variable)
                self.asm.vector(f"store.{variable.type}", register, self._slot(variable))
                self.files["vector"].all.insert(0, register)
        self._forget_all()


class _File:
    """The registers of one kind: which are free, what the others hold."""

    def __init__(self, registers: Sequence[int]) -> None:
        self.all = [*reversed(registers)]
        self.clear()

    def clear(self) -> None:
        self.free = [*self.all]
        self.holds: dict[int, Node] = {}
        self.where: dict[Node, int] = {}

    def put(self, register: int, value: Node) -> None:
        self.holds[register], self.where[value] = value, register

    def drop(self, value: Node) -> int:
        register = self.where.pop(value)
        del self.holds[register]
        return register

    def forget(self, value: Node) -> None:
        if value in self.where:
            self.free.append(self.drop(value))


def _registers(*operands: int | Mem) -> list[int]:
    return [operand for operand in operands if not isinstance(operand, Mem)]


_EFFECTS = _BORDERS | {"output", "store_all", "assign", "write", "hold", "accumulate"}


def _needed(nodes: Sequence[Node]) -> list[Node]:
    """Without what has no effect."""
    wanted: set[Node] = set()
    kept = []
    for node in reversed(nodes):
        if node in wanted or node.name.partition(".")[0] in _EFFECTS:
            wanted.update(node.inputs)
            kept.append(node)
    return kept[::-1]


def compile_loop(
    formula: Callable[..., Any], inputs: Sequence[str], outputs: Sequence[str], compute: str, fuse: bool = True
) -> tuple[Any, float]:
    """The C function f(n, *pointers) that sets outputs[i] = formula(*inputs)[i] for n elements, and about how many instructions it takes for each.

    Types are f16, bf16, f32, f64, i32, i64, i8, u8, i16, u16 (where floats are computed), and bool for outputs; `compute` is the type in which the formula gets its arguments.
    """
    from penstock.ops.native import maths

    trace = Trace(fuse, compute)
    values = [trace.add("input", [], compute, (i, t)) for i, t in enumerate(inputs)]
    results = formula(*values)
    for i, (value, stored) in enumerate(zip(results if isinstance(results, (list, tuple)) else [results], outputs, strict=True)):
        if stored == "bf16":
            value = maths.to_bfloat16(value)
        trace.add("output", [value], "none", (len(inputs) + i, stored, 0))
    lanes = 64 // (int(compute[1:]) // 8)
    steps = [lanes * (1 if t == "bool" else int(t.lstrip("bfiu")) // 8) for t in (*inputs, *outputs)]
    code = Code(trace, lanes, steps)
    turns = 20 if any(node.name == "loop" for node in code.nodes) else 1
    return function_at(into_memory(code.write()), len(steps)), len(code.nodes) * turns / lanes + len(steps) / 2
