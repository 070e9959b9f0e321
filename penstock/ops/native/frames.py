"""What surrounds loops that are written by hand: registers saved, functions made of code, rows shared out among threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from penstock.ops import native
from penstock.ops.native.assembler import Assembler

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
    from penstock.ops.native.compiler import into_memory

    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    return into_memory(a.finish())


def share_out(count: int, size: int, run: Callable[[int, int], None]) -> None:
    """run(start, end) for parts of `count` rows of `size` numbers, on several threads if there are many."""
    pieces = min(8, count, count * size // PIECE)
    if pieces < 2:
        run(0, count)
        return
    native.threads.parallel_for(pieces, lambda i: run(count * i // pieces, count * (i + 1) // pieces))
