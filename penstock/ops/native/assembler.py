"""x86-64 machine code: the AVX-512 instructions that vector loops need, and the few scalar ones around them.

    code = Assembler()
    code.vector("mul.f64", 0, 1, code.constant(2.0, "f64"))     # zmm0 = zmm1 * 2, the constant broadcast from memory
    code.finish()                                                # bytes: the code, then its constants

Operands are register numbers, or `Mem`. A `Mem` stands only where the instruction set has its "rm" operand: last. Encodings are those of
Intel's manual (volume 2, "EVEX"); every instruction here is one row of a table.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 = range(16)
RIP = -1
"""As the base of a `Mem`: `offset` counts within the constants."""

FULL, HALF, QUARTER = 2, 1, 0
"""Vector lengths: 512, 256 and 128 bits."""


class Mem(NamedTuple):
    """[base + offset], or [base + index * scale + offset]; `broadcast`: one element, repeated in all lanes."""

    base: int
    offset: int = 0
    broadcast: bool = False
    index: int = -1  # type: ignore[assignment]  # a tuple has a method of that name
    scale: int = 1


_SCALES = {1: 0, 2: 1, 4: 2, 8: 3}


class Row(NamedTuple):
    """One instruction: opcode map (1: 0F, 2: 0F38, 3: 0F3A), mandatory prefix (0: none, 1: 66, 2: F3, 3: F2), W bit, opcode."""

    map: int
    prefix: int
    wide: int
    opcode: int
    extension: int = -1
    """Digit that stands in the place of the register operand (shifts by a constant)."""


def _floats(map: int, opcode: int, *, single: int = 0, double: int = 1, single_opcode: int | None = None) -> dict[str, Row]:
    return {"f32": Row(map, single, 0, opcode if single_opcode is None else single_opcode), "f64": Row(map, double, 1, opcode)}


_BY_TYPE = {
    "add": _floats(1, 0x58) | {"i32": Row(1, 1, 0, 0xFE), "i64": Row(1, 1, 1, 0xD4)},
    "mul": _floats(1, 0x59) | {"i32": Row(2, 1, 0, 0x40), "i64": Row(2, 1, 1, 0x40)},
    "sub": _floats(1, 0x5C) | {"i32": Row(1, 1, 0, 0xFA), "i64": Row(1, 1, 1, 0xFB)},
    "min": _floats(1, 0x5D) | {"i32": Row(2, 1, 0, 0x39), "i64": Row(2, 1, 1, 0x39)},
    "div": _floats(1, 0x5E),
    "max": _floats(1, 0x5F) | {"i32": Row(2, 1, 0, 0x3D), "i64": Row(2, 1, 1, 0x3D)},
    "sqrt": _floats(1, 0x51),
    "round": _floats(3, 0x09, single=1, single_opcode=0x08),
    "cmp": _floats(1, 0xC2) | {"i32": Row(3, 1, 0, 0x1F), "i64": Row(3, 1, 1, 0x1F)},
    "cmpu": {"i32": Row(3, 1, 0, 0x1E), "i64": Row(3, 1, 1, 0x1E)},
    "blend": _floats(2, 0x65, single=1) | {"i32": Row(2, 1, 0, 0x64), "i64": Row(2, 1, 1, 0x64)},
    "scale": _floats(2, 0x2C, single=1),  # x * 2**floor(y)
    "exponent": _floats(2, 0x42, single=1),
    "mantissa": _floats(3, 0x26, single=1),
    "madd132": _floats(2, 0x98, single=1), "madd213": _floats(2, 0xA8, single=1), "madd231": _floats(2, 0xB8, single=1),
    "msub132": _floats(2, 0x9A, single=1), "msub213": _floats(2, 0xAA, single=1), "msub231": _floats(2, 0xBA, single=1),
    "nmadd132": _floats(2, 0x9C, single=1), "nmadd213": _floats(2, 0xAC, single=1), "nmadd231": _floats(2, 0xBC, single=1),
    "fixup": _floats(3, 0x54, single=1),  # the second operand in the place of the first, by its class; the third has the table
    "and": {"i32": Row(1, 1, 0, 0xDB), "i64": Row(1, 1, 1, 0xDB)},
    "or": {"i32": Row(1, 1, 0, 0xEB), "i64": Row(1, 1, 1, 0xEB)},
    "xor": {"i32": Row(1, 1, 0, 0xEF), "i64": Row(1, 1, 1, 0xEF)},
    "ternary": {"i32": Row(3, 1, 0, 0x25), "i64": Row(3, 1, 1, 0x25)},
    "shl": {"i32": Row(1, 1, 0, 0x72, 6), "i64": Row(1, 1, 1, 0x73, 6)},
    "shr": {"i32": Row(1, 1, 0, 0x72, 2), "i64": Row(1, 1, 1, 0x73, 2)},
    "sar": {"i32": Row(1, 1, 0, 0x72, 4), "i64": Row(1, 1, 1, 0x72, 4)},
    "lookup": _floats(2, 0x77, single=1) | {"i32": Row(2, 1, 0, 0x76), "i64": Row(2, 1, 1, 0x76)},  # two tables; indices in the first operand
    "unpack_low": _floats(1, 0x14) | {"u8": Row(1, 1, 0, 0x60), "u16": Row(1, 1, 0, 0x61)},
    "unpack_high": _floats(1, 0x15) | {"u8": Row(1, 1, 0, 0x68), "u16": Row(1, 1, 0, 0x69)},  # of each 128 bits: halves of two operands, element by element
    "load": {"f32": Row(1, 0, 0, 0x10), "f64": Row(1, 1, 1, 0x10), "i32": Row(1, 2, 0, 0x6F), "i64": Row(1, 2, 1, 0x6F), "u8": Row(1, 3, 0, 0x6F), "u16": Row(1, 3, 1, 0x6F)},
    "store": {"f32": Row(1, 0, 0, 0x11), "f64": Row(1, 1, 1, 0x11), "i32": Row(1, 2, 0, 0x7F), "i64": Row(1, 2, 1, 0x7F), "u8": Row(1, 3, 0, 0x7F), "u16": Row(1, 3, 1, 0x7F)},
    "stream": {"f32": Row(1, 0, 0, 0x2B), "f64": Row(1, 1, 1, 0x2B)},  # stores past the caches; whole vectors at multiples of 64 bytes, no mask
    "add_one": _floats(1, 0x58, single=2, double=3), "mul_one": _floats(1, 0x59, single=2, double=3),  # the first element alone
    "load_one": _floats(1, 0x10, single=2, double=3), "store_one": _floats(1, 0x11, single=2, double=3),
    "compress": _floats(2, 0x8A, single=1),  # stores the lanes of the mask side by side: the source is the register operand
    "broadcast": {"f32": Row(2, 1, 0, 0x18), "f64": Row(2, 1, 1, 0x19), "i32": Row(2, 1, 0, 0x58), "i64": Row(2, 1, 1, 0x59)},
}  # fmt: skip

VECTOR: dict[str, Row] = {f"{name}.{type}": row for name, rows in _BY_TYPE.items() for type, row in rows.items()} | {
    "quarters": Row(3, 1, 0, 0x23),  # two quarters of the first operand, two of the second; the constant says which
    "shuffle.f32": Row(1, 0, 0, 0xC6),  # of each 128 bits: two elements of the first operand, two of the second; the constant says which
    "mul_low_halves": Row(1, 1, 1, 0xF4),  # 32 x 32 -> 64 bits in each 64-bit lane
    "f64_to_f32": Row(1, 1, 1, 0x5A),
    "f32_to_f64": Row(1, 0, 0, 0x5A),
    "i64_to_f64": Row(1, 2, 1, 0xE6),
    "f64_to_i64": Row(1, 1, 1, 0x7A),  # towards zero
    "i32_to_f64": Row(1, 2, 0, 0xE6),
    "f64_to_i32": Row(1, 1, 1, 0xE6),  # towards zero
    "i32_to_f32": Row(1, 0, 0, 0x5B),
    "f32_to_i32": Row(1, 2, 0, 0x5B),  # towards zero
    "u32_to_i64": Row(2, 1, 0, 0x35),
    "i32_to_i64": Row(2, 1, 0, 0x25),
    "f16_to_f32": Row(2, 1, 0, 0x13),
    "f32_to_f16": Row(3, 1, 0, 0x1D),  # stores: the source is the register operand
    "i64_to_i32": Row(2, 2, 0, 0x35),  # stores likewise
    "u16_to_i32": Row(2, 1, 0, 0x33),
    "i32_to_u16": Row(2, 2, 0, 0x33),  # stores likewise
    "u8_to_i32": Row(2, 1, 0, 0x31),
    "i8_to_i32": Row(2, 1, 0, 0x21),
    "i16_to_i32": Row(2, 1, 0, 0x23),
    "i32_to_u8": Row(2, 2, 0, 0x31),  # stores likewise
    "shuffle.u8": Row(2, 1, 0, 0x00),  # bytes of each 16: values, indices
    "permute.i32": Row(2, 1, 0, 0x36),  # indices, values
    "permute.i64": Row(2, 1, 1, 0x36),
    "upper_half": Row(3, 1, 0, 0x1B),  # the source is the register operand, the result the other
    "test.u8": Row(2, 1, 0, 0x26),  # the mask of those that are not zero
    "i64_to_general": Row(1, 1, 1, 0x7E),  # the first one; the source is the register operand
}

LESS, LESS_EQUAL, EQUAL, UNORDERED, NOT_EQUAL, NOT_LESS, NOT_LESS_EQUAL, ORDERED = 17, 18, 0, 3, 4, 21, 22, 7
"""Predicates of `cmp` for floats: quiet; those of integers are 1, 2, 0 and 4."""

MOVE, MOVE_TO_MEMORY, ADD, SUB, CMP, MULTIPLY, MOVE_IF_ABOVE, MOVE_IF_BELOW = 0x8B, 0x89, 0x03, 0x2B, 0x3B, 0x1AF, 0x147, 0x142
"""Opcodes of `scalar`: reg, rm."""

BELOW, ABOVE_EQUAL, ZERO, NOT_ZERO, ABOVE, NOT_GREATER = 0x2, 0x3, 0x4, 0x5, 0x7, 0xE
"""Conditions of jumps, for unsigned numbers; the last one is for signed ones."""


class Assembler:
    """Collects code. Jumps go to labels, which may be placed later; constants follow the code."""

    def __init__(self) -> None:
        self._code = bytearray()
        self._pool = bytearray()
        self._known: dict[bytes, int] = {}
        self._labels: dict[int, int] = {}
        self._jumps: list[tuple[int, int]] = []  # where a distance stands, label
        self._relative: list[tuple[int, int, int]] = []  # where a distance to a constant stands, its offset, bytes of the instruction behind it

    # -- constants ------------------------------------------------------------------------------------------------------

    def constant(self, value: float, type: str) -> Mem:
        """One number, to be broadcast."""
        formats = {"f32": "<f", "f64": "<d", "i32": "<I", "i64": "<Q"}
        if type[0] == "i":
            value = int(value) & (1 << int(type[1:])) - 1
        return Mem(RIP, self._place(struct.pack(formats[type], value)), broadcast=True)

    def table(self, values: np.ndarray) -> Mem:
        """A vector of 64 bytes."""
        return Mem(RIP, self._place(values.tobytes()))

    def _place(self, data: bytes) -> int:
        found = self._known.get(data)
        if found is None:
            self._pool += bytes(-len(self._pool) % len(data))
            found = self._known[data] = len(self._pool)
            self._pool += data
        return found

    # -- vector instructions -----------------------------------------------------------------------------------------------

    def vector(self, name: str, reg: int, *sources: int | Mem, mask: int = 0, zero: bool = False, length: int = FULL, immediate: int | None = None) -> None:
        """`name` with destination `reg` and one or two sources, the last of which may be a `Mem`; for stores `reg` is the source.
        `mask`: the k register that says which lanes are written; the others stay, or become `zero`. It is the choice of `blend`."""
        row = VECTOR[name]
        *first, rm = sources
        second: int = first[0] if first else 0  # type: ignore[assignment]
        if row.extension >= 0:  # the destination stands where the second source does
            reg, second = row.extension, reg
        broadcast = isinstance(rm, Mem) and rm.broadcast
        x, b = self._high_bits(rm)
        self._code += bytes((
            0x62,
            (~reg >> 3 & 1) << 7 | (1 - x) << 6 | (1 - b) << 5 | (~reg >> 4 & 1) << 4 | row.map,
            row.wide << 7 | (~second & 15) << 3 | 4 | row.prefix,
            zero << 7 | length << 5 | broadcast << 4 | (~second >> 4 & 1) << 3 | mask,
            row.opcode,
        ))  # fmt: skip
        self._operand(reg, rm, 0 if immediate is None else 1)
        if immediate is not None:
            self._code.append(immediate)

    def _high_bits(self, rm: int | Mem) -> tuple[int, int]:
        if isinstance(rm, Mem):
            return max(rm.index, 0) >> 3, 0 if rm.base == RIP else rm.base >> 3
        return rm >> 4, rm >> 3 & 1

    def _operand(self, reg: int, rm: int | Mem, behind: int) -> None:
        low = (reg & 7) << 3
        if not isinstance(rm, Mem):
            self._code.append(0xC0 | low | rm & 7)
        elif rm.base == RIP:
            self._code.append(0x05 | low)
            self._relative.append((len(self._code), rm.offset, behind))
            self._code += bytes(4)
        else:
            if rm.index >= 0:
                self._code += bytes((0x84 | low, _SCALES[rm.scale] << 6 | (rm.index & 7) << 3 | rm.base & 7))
            else:
                self._code.append(0x80 | low | rm.base & 7)
                if rm.base & 7 == RSP:
                    self._code.append(0x24)
            self._code += struct.pack("<i", rm.offset)

    # -- masks ----------------------------------------------------------------------------------------------------------

    def mask(self, name: str, reg: int, first: int, second: int = 0) -> None:
        """reg = first op second on k registers; "not" takes one; "test" sets the zero flag if reg and first have nothing in common."""
        opcode = {"and": 0x41, "andnot": 0x42, "or": 0x45, "xor": 0x47}.get(name)
        if opcode is not None:
            self._code += bytes((0xC5, 0x84 | (~first & 15) << 3 & 0x78, opcode, 0xC0 | reg << 3 | second))
        else:
            self._code += bytes((0xC5, 0xF8, {"not": 0x44, "test": 0x99}[name], 0xC0 | reg << 3 | first))

    def mask_move(self, reg: int, memory: Mem, store: bool) -> None:
        """A k register to or from memory."""
        self._code += bytes((0xC5, 0xF8, 0x91 if store else 0x90))
        self._operand(reg, memory, 0)

    def mask_from(self, reg: int, general: int) -> None:
        self._code += bytes((0xC5, 0xF8, 0x92, 0xC0 | reg << 3 | general & 7))

    # -- scalar instructions ----------------------------------------------------------------------------------------------

    def scalar(self, opcode: int, reg: int, rm: int | Mem, *, wide: bool = True) -> None:
        """A plain instruction `opcode` reg, rm (two bytes with 0x0F in front if above 0xFF)."""
        x, b = self._high_bits(rm)
        self._code.append(0x40 | wide << 3 | (reg >> 3 & 1) << 2 | x << 1 | b)
        self._code += bytes((0x0F, opcode & 0xFF)) if opcode > 0xFF else bytes((opcode,))
        self._operand(reg, rm, 0)

    def with_number(self, digit: int, reg: int, number: int) -> None:
        """add (0), and (4), sub (5), cmp (7) of a register and a 32-bit number."""
        self._code += bytes((0x48 | reg >> 3 & 1, 0x81, 0xC0 | digit << 3 | reg & 7)) + struct.pack("<i", number)

    def set_number(self, reg: int, number: int) -> None:
        """mov of a 32-bit number."""
        self._code += bytes((0x40 | reg >> 3 & 1, 0xB8 | reg & 7)) + struct.pack("<I", number & 0xFFFFFFFF)

    def low_bits(self, reg: int, count: int) -> None:
        """reg = its lowest `count` (a register) bits: bzhi, 32 bits wide."""
        self._code += bytes((0xC4, 0xE2 & ~((reg >> 3) << 7 | (reg >> 3) << 5), (~count & 15) << 3, 0xF5, 0xC0 | (reg & 7) << 3 | reg & 7))

    def raw(self, *data: int) -> None:
        self._code += bytes(data)

    # -- jumps ------------------------------------------------------------------------------------------------------------

    def label(self, name: int) -> None:
        self._labels[name] = len(self._code)

    def jump(self, name: int, condition: int | None = None) -> None:
        self._code += bytes((0xE9,)) if condition is None else bytes((0x0F, 0x80 | condition))
        self._jumps.append((len(self._code), name))
        self._code += bytes(4)

    def finish(self) -> bytes:
        """The code and the constants behind it."""
        code = self._code
        code += b"\xcc" * (-len(code) % 64)
        start = len(code)
        for place, name in self._jumps:
            code[place:place + 4] = struct.pack("<i", self._labels[name] - place - 4)
        for place, offset, behind in self._relative:
            code[place:place + 4] = struct.pack("<i", start + offset - place - 4 - behind)
        return bytes(code + self._pool)
