"""What surrounds loops that are written by hand: registers saved, functions made of code, rows shared out among threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from penstock.ops import native
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import RAX, RCX, RDX, Assembler, Mem

_SAVED = ((0x53,), (0x55,), (0x41, 0x54), (0x41, 0x55))  # push rbx, rbp, r12, r13
_RESTORED = ((0x41, 0x5D), (0x41, 0x5C), (0x5D,), (0x5B,))

PIECE = 1 << 15
"""Numbers that are worth a thread."""


def begun() -> Assembler:
    """Code that begins by saving RBX, RBP, R12 and R13."""
    a = Assembler()
    for push in _SAVED:
        a.raw(*push)
    return a


def ended(a: Assembler) -> Any:
    """The function, for code that was begun by `begun`."""
    for pop in _RESTORED:
        a.raw(*pop)
    return finished(a)


def finished(a: Assembler) -> Any:
    """The function of six arguments that some code is."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return ctypes.CFUNCTYPE(None, number, pointer, pointer, pointer, pointer, number)(placed(a))


def code_of(a: Assembler) -> int:
    """As `ended`, but the address of the function."""
    for pop in _RESTORED:
        a.raw(*pop)
    return placed(a)


def placed(a: Assembler) -> int:
    """The address of some code, which returns at its end."""
    from penstock.ops.native.executable import into_memory

    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    return into_memory(a.finish())


def share_out(count: int, size: int, run: Callable[[int, int], None]) -> None:
    """run(start, end) for parts of `count` rows of `size` numbers, on several threads if there are many."""
    pieces = min(8, count, count * size // PIECE)
    if pieces < 2:
        run(0, count)
        return
    native.threads.parallel_for(pieces, lambda i: run(count * i // pieces, count * (i + 1) // pieces))


def write_products(
    a: Assembler, top: int, sums: Sequence[Sequence[int]], inner: int, row: int, column_row: int, values: int, factors: int, masks: Sequence[int]
) -> None:
    """sums[r][v] = the product of the r-th row at rcx and the v-th vector of columns at rdx, over `inner` numbers; registers from `values` and four from `factors` on are anybody's, so are rax, rcx and rdx.

    `row`, `column_row`: bytes from one row to the next on either side; `top`: a label; `masks`: of each vector, 0 for a whole one."""
    for register in (r for row_of_sums in sums for r in row_of_sums):
        a.vector("xor.i32", register, register, register)
    a.set_number(RAX, inner)
    a.label(top)
    for v, mask in enumerate(masks):
        a.vector("load.f32", values + v, Mem(RDX, 64 * v), mask=mask, zero=mask > 0)
    for r, row_of_sums in enumerate(sums):
        a.vector("broadcast.f32", factors + r % 4, Mem(RCX, r * row))
        for v, register in enumerate(row_of_sums):
            a.vector("madd231.f32", register, factors + r % 4, values + v)
    a.with_number(0, RCX, 4)
    a.with_number(0, RDX, column_row)
    a.with_number(5, RAX, 1)
    a.jump(top, asm.NOT_ZERO)
