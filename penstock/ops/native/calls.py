"""Several functions, one after the other, in one call: while it lasts, nobody here needs the interpreter's lock.

    walk(address of a table, rows)      # each row: a function's address, its six arguments, and which bits of its answer mean that it failed

The walk ends at the first function that fails, and gives its answer; 0 if none did. Behind it are functions for such tables that no library has: sums of
a matrix's rows, copies of rows, and what the class of each row does to a softmax.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, R14, RAX, RBX, RCX, RDI, RDX, RSI, Assembler, Mem

WORDS = 8
"""Of a row."""
FAILS, ALWAYS_WORKS = 0xFFFFFFFF, 0
"""The last word: a function's answer is a status, or there is none."""
_ARGUMENTS = (RDI, RSI, RDX, RCX, R8, R9)
_SIGN_EXTENDED = 0x63
_END = (0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret


@cache
def walk() -> Callable[[int, int], int]:
    a = Assembler()
    a.raw(0x53, 0x55, 0x41, 0x54)  # push rbx, rbp (for the stack's alignment), r12
    a.scalar(asm.MOVE, RBX, RDI)
    a.scalar(asm.MOVE, R12, RSI)
    top, done, out = range(3)
    a.label(top)
    a.with_number(7, R12, 0)
    a.jump(done, asm.ZERO)
    for i, register in enumerate(_ARGUMENTS):
        a.scalar(asm.MOVE, register, Mem(RBX, 8 + 8 * i))
    a.raw(0xFF, 0x13)  # call [rbx]
    a.raw(0x23, 0x43, 8 * (WORDS - 1))  # and eax, [rbx + ...]
    a.jump(out, asm.NOT_ZERO)
    a.with_number(0, RBX, 8 * WORDS)
    a.with_number(5, R12, 1)
    a.jump(top)
    a.label(done)
    a.set_number(RAX, 0)
    a.label(out)
    a.raw(0x41, 0x5C, 0x5D, 0x5B, 0xC3)
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)(_placed(a))


@cache
def for_each() -> Callable[[bytes, int, int, int], None]:
    """for_each(tables, count, bytes of a table, address of a function): calls the function with each of the tables. Keeps the interpreter's lock."""
    a = Assembler()
    a.raw(0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56)  # push rbx, rbp (for the stack's alignment), r12, r13, r14
    for kept, given in ((RBX, RDI), (R12, RSI), (R13, RDX), (R14, RCX)):
        a.scalar(asm.MOVE, kept, given)
    a.label(0)
    a.scalar(asm.MOVE, RDI, RBX)
    a.raw(0x41, 0xFF, 0xD6)  # call r14
    a.scalar(asm.ADD, RBX, R13)
    a.with_number(5, R12, 1)
    a.jump(0, asm.NOT_ZERO)
    a.raw(0x41, 0x5E, 0x41, 0x5D, 0x41, 0x5C, 0x5D, 0x5B, 0xC3)
    return ctypes.PYFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(_placed(a))


@cache
def sum_of_rows() -> int:
    """The address of f(x, y, rows, columns): y = the sum of the rows of x, float32, from the first to the last as NumPy adds them."""
    a = Assembler()
    columns, inner, end = range(3)
    a.scalar(asm.MOVE, R8, RCX)
    a.raw(0x49, 0xC1, 0xE0, 2)  # shl r8, 2: bytes of a row
    a.label(columns)
    a.with_number(7, RCX, 0)
    a.jump(end, asm.ZERO)
    _mask_next(a, R9, RCX)
    a.scalar(asm.MOVE, R10, RDI)
    a.scalar(asm.MOVE, R11, RDX)
    a.vector("xor.i32", 0, 0, 0)
    a.label(inner)
    a.vector("add.f32", 0, 0, Mem(R10), mask=1)
    a.scalar(asm.ADD, R10, R8)
    a.with_number(5, R11, 1)
    a.jump(inner, asm.NOT_ZERO)
    a.vector("store.f32", 0, Mem(RSI), mask=1)
    a.with_number(0, RDI, 64)
    a.with_number(0, RSI, 64)
    a.scalar(asm.SUB, RCX, R9)
    a.jump(columns)
    a.label(end)
    a.raw(*_END)
    return _placed(a)


def _mask_next(a: Assembler, count: int, left: int) -> None:
    """Puts into `count` how many words of those that are left the next vector has, and makes mask 1 theirs. RAX may be `left`, and is changed."""
    a.set_number(count, 16)
    a.scalar(asm.CMP, left, count)
    a.scalar(asm.MOVE_IF_BELOW, count, left)
    a.set_number(RAX, -1)
    a.low_bits(RAX, count)
    a.mask_from(1, RAX)


@cache
def copy_rows() -> int:
    """The address of f(target, step, source, step, rows, words): copies rows of so many words of 32 bits, which lie `step` bytes apart in either place."""
    a = Assembler()
    target, target_step, source, source_step, rows, words = _ARGUMENTS
    at, count = R10, R11
    row, inner, part, end = range(4)
    a.label(row)
    a.set_number(at, 0)
    a.label(inner)
    a.scalar(asm.MOVE, RAX, words)
    a.scalar(asm.SUB, RAX, at)
    a.jump(end, asm.ZERO)
    a.with_number(7, RAX, 16)
    a.jump(part, asm.BELOW)
    a.vector("load.f32", 0, Mem(source, index=at, scale=4))
    a.vector("store.f32", 0, Mem(target, index=at, scale=4))
    a.with_number(0, at, 16)
    a.jump(inner)
    a.label(part)
    _mask_next(a, count, RAX)
    a.vector("load.f32", 0, Mem(source, index=at, scale=4), mask=1, zero=True)
    a.vector("store.f32", 0, Mem(target, index=at, scale=4), mask=1)
    a.label(end)
    a.scalar(asm.ADD, target, target_step)
    a.scalar(asm.ADD, source, source_step)
    a.with_number(5, rows, 1)
    a.jump(row, asm.NOT_ZERO)
    a.raw(*_END)
    return _placed(a)


@cache
def less_label(size: int) -> int:
    """The address of f(table) with (rows, columns, labels of `size` bytes, gradient, x, largest, loss): what the label of each row does to a cross entropy.

    gradient[label] -= 1 and loss -= x[label] - largest. The answer is 1 at a label that is no column."""
    a = Assembler()
    top, bad = range(2)
    one = a.constant(1.0, "f32")
    rows, columns, labels, gradient, x, largest, loss = RCX, RDX, RSI, R8, R9, R10, R11
    for i, register in enumerate((rows, columns, labels, gradient, x, largest, loss)):
        a.scalar(asm.MOVE, register, Mem(RDI, 8 * i))
    a.scalar(asm.MOVE, RDI, columns)
    a.raw(0x48, 0xC1, 0xE7, 2)  # shl rdi, 2: bytes of a row
    a.set_number(RAX, 1)
    a.mask_from(1, RAX)
    a.label(top)
    a.scalar(_SIGN_EXTENDED if size == 4 else asm.MOVE, RAX, Mem(labels))
    a.scalar(asm.CMP, RAX, columns)
    a.jump(bad, asm.ABOVE_EQUAL)
    a.vector("load.f32", 0, Mem(x, index=RAX, scale=4), mask=1, zero=True)
    a.vector("sub.f32", 0, 0, Mem(largest), mask=1)
    a.vector("load.f32", 1, Mem(loss), mask=1, zero=True)
    a.vector("sub.f32", 1, 1, 0, mask=1)
    a.vector("store.f32", 1, Mem(loss), mask=1)
    a.vector("load.f32", 2, Mem(gradient, index=RAX, scale=4), mask=1, zero=True)
    a.vector("sub.f32", 2, 2, one, mask=1)
    a.vector("store.f32", 2, Mem(gradient, index=RAX, scale=4), mask=1)
    a.scalar(asm.ADD, x, RDI)
    a.scalar(asm.ADD, gradient, RDI)
    for register, step in ((labels, size), (largest, 4), (loss, 4)):
        a.with_number(0, register, step)
    a.with_number(5, rows, 1)
    a.jump(top, asm.NOT_ZERO)
    a.set_number(RAX, 0)
    a.raw(*_END)
    a.label(bad)
    a.set_number(RAX, 1)
    a.raw(*_END)
    return _placed(a)


def _placed(a: Assembler) -> int:
    from penstock.ops.native.executable import into_memory

    return into_memory(a.finish())
