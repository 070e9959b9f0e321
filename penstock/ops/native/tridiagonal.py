"""Eigenvalues and eigenvectors of stacks of symmetric matrices: one matrix in each lane, as in `rotations`.

Reflections make a matrix tridiagonal, then QR steps make it diagonal. Each lane has a shift of its own, for the lowest entry beside its diagonal that is left; the steps
have explicit shifts, so that zeros further up need no attention, and go as far as any lane still has work.

A block holds, in vectors: the matrix, in whose place the eigenvectors come, by rows; the reflections' vectors, one a row; and some rows of numbers. Rows are filled up
to whole groups of four, which loops take together: where a vector holds zeros, it does not matter what else lies in a group.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from penstock.ops import native
from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RBX, RDI, RSI, Assembler, Mem
from penstock.ops.native.rotations import TYPES, scaled

_PUSHED = (RBX, RBP, R12, R13, R14, R15)
_LARGEST = 64
"""Rows up to which LAPACK is no quicker."""
_GROUP = 4
_STEPS = 30
"""QR steps for each row, of which two are the rule, before LAPACK has to try."""
_WORK = 1 << 15
"""Blocks times the third power of a matrix's rows that are worth a thread."""
_CHOSEN, _REST = 1, 2  # k registers
_ZERO, _ONE, _SIGN, _BITS, _EPSILON, _NOTHING, _TINY, _HALF, _SMALLEST = range(31, 22, -1)


def can_reduce(x: np.ndarray) -> bool:
    """Whether this is a stack of matrices of the right size, half a block of them at least, and all of them finite."""
    n = x.shape[-1]
    return x.dtype in TYPES and 1 < n <= _LARGEST and x.size // n**2 >= 32 // x.itemsize and native.available() and bool(np.isfinite(x).all())


def eigh(x: np.ndarray, vectors: bool = True) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Eigenvalues, from the smallest on, and the eigenvectors in columns. Of symmetric matrices (..., n, n), of which the lower triangle is read.

    None if some of them do not converge.
    """
    n = x.shape[-1]
    i = np.arange(n)
    lower = np.maximum(i[:, None], i) * n + np.minimum(i[:, None], i)
    flat, exponents = scaled(x.reshape(-1, n * n).take(lower.ravel(), 1))
    found = _in_lanes(flat.reshape(-1, n, n), vectors)
    if found is None:
        return None
    values, rows = np.ldexp(found[0], exponents), found[1]
    order = np.argsort(values, 1)
    values = np.take_along_axis(values, order, 1).reshape(x.shape[:-1])
    if not vectors:
        return values, None
    rows = rows.reshape(-1, n).take((order + np.arange(len(flat))[:, None] * n).ravel(), 0)
    return values, np.swapaxes(rows.reshape(x.shape), -1, -2)


class _Layout:
    """Where a block has what, in bytes, for matrices of n rows."""

    def __init__(self, n: int) -> None:
        self.rows = -(-n // _GROUP) * _GROUP
        self.row = _GROUP * (self.rows // _GROUP | 1)  # odd, so that rows do not fight for the same places of a cache
        at = self.rows * self.row
        self.reflections = at * 64
        names = ("diagonal", "before", "beside", "cosines", "sines", "factors", "sums")
        at *= 2
        self.places = {}
        for name in names:
            self.places[name] = at * 64
            at += 1 if name == "before" else self.rows
        self.vectors = at


def _in_lanes(x: np.ndarray, vectors: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """Eigenvalues (count, n) in no order, and (count, n, n) with the eigenvectors in rows, of matrices (count, n, n) whose largest number is about one.

    None if there are some that do not converge.
    """
    count, n = x.shape[:2]
    layout, lanes = _Layout(n), 64 // x.itemsize
    blocks = np.empty((-(-count // lanes), layout.vectors, lanes), x.dtype)
    matrices = blocks[:, : layout.rows * layout.row].reshape(len(blocks), layout.rows, layout.row, lanes)
    matrices[:, n:], matrices[:, :, n:] = 0, 0
    inner = matrices[:, :n, :n]
    whole = count // lanes
    inner[:whole] = x[: whole * lanes].reshape(whole, lanes, n, n).transpose(0, 2, 3, 1)
    if whole * lanes < count:
        inner[whole, ..., : count - whole * lanes] = x[whole * lanes :].transpose(1, 2, 0)
        inner[whole, ..., count - whole * lanes :] = 0
    function = _loop(TYPES[x.dtype], n, vectors)
    pieces = max(1, min(8, len(blocks), len(blocks) * n**3 // _WORK))
    left = [0] * pieces

    def work(i: int) -> None:
        first, end = len(blocks) * i // pieces, len(blocks) * (i + 1) // pieces
        left[i] = function(end - first, address_of(blocks) + first * blocks.strides[0])

    native.threads.parallel_for(pieces, work)
    if any(left):
        return None
    at = layout.places["diagonal"] // 64
    values = blocks[:, at : at + n].transpose(0, 2, 1).reshape(-1, n)[:count]
    return values, inner.transpose(0, 3, 1, 2).reshape(-1, n, n)[:count] if vectors else x


@cache
def _loop(type: str, n: int, vectors: bool) -> Any:
    """f(blocks, their address): how many blocks are left, the first of which has a matrix that does not converge."""
    a = Assembler()
    for register in _PUSHED:
        a.raw(*((0x41,) if register > 7 else ()), 0x50 | register & 7)
    bits = int(type[1:])
    info = np.finfo(np.float32 if bits == 32 else np.float64)
    epsilon = float(info.eps) / 2
    for register, value in ((_ONE, 1.0), (_EPSILON, epsilon), (_NOTHING, epsilon**2), (_TINY, float(info.tiny)), (_HALF, 0.5), (_SMALLEST, float(info.tiny) / epsilon)):
        a.vector(f"broadcast.{type}", register, a.constant(value, type)._replace(broadcast=False))
    for register, number in ((_BITS, (1 << bits - 1) - 1), (_SIGN, 1 << bits - 1)):
        a.vector(f"broadcast.i{bits}", register, a.constant(number, f"i{bits}")._replace(broadcast=False))
    a.vector("xor.i32", _ZERO, _ZERO, _ZERO)
    code = _Code(a, type, n)
    block, out = next(code.labels), next(code.labels)
    a.label(block)
    code.reduce()
    if vectors:
        code.expand()
    code.diagonalise(vectors, out)
    a.with_number(0, RSI, code.layout.vectors * 64)
    a.with_number(5, RDI, 1)
    a.jump(block, asm.NOT_ZERO)
    a.label(out)
    a.scalar(asm.MOVE, RAX, RDI)
    for register in reversed(_PUSHED):
        a.raw(*((0x41,) if register > 7 else ()), 0x58 | register & 7)
    a.raw(0xC5, 0xF8, 0x77, 0xC3)  # vzeroupper; ret
    from penstock.ops.native.executable import into_memory

    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(into_memory(a.finish()))


class _Code:
    """The parts of the loop, for the block at RSI. R8 is the number of a step or row, times 64; R9 that times a row's length."""

    def __init__(self, a: Assembler, type: str, n: int) -> None:
        self.a, self.type, self.n, self.layout = a, type, n, _Layout(n)
        self.step, self.end, self.filled = self.layout.row * 64, n * 64, self.layout.rows * 64
        self.labels = iter(range(1000))

    def at(self, name: str, index: int, more: int = 0) -> Mem:
        return Mem(RSI, self.layout.places[name] + more, index=index)

    def do(self, name: str, reg: int, *sources: Any, **options: Any) -> None:
        self.a.vector(f"{name}.{self.type}", reg, *sources, **options)

    def bits(self, name: str, reg: int, *sources: int) -> None:
        self.a.vector(f"{name}.i{self.type[1:]}", reg, *sources)

    def up_to(self, register: int, end: int, each: Callable[[], None], step: int = 64) -> None:
        """each() while the register, which counts in bytes, is below a number."""
        top, done = next(self.labels), next(self.labels)
        self.a.label(top)
        self.a.with_number(7, register, end)
        self.a.jump(done, asm.ABOVE_EQUAL)
        each()
        self.a.with_number(0, register, step)
        self.a.jump(top)
        self.a.label(done)

    def group_of_next(self, register: int) -> None:
        """Where the group begins that has the row behind that of R8."""
        self.a.scalar(asm.MOVE, register, R8)
        self.a.with_number(0, register, 64)
        self.a.with_number(4, register, -64 * _GROUP)

    def rows_from_next(self, each: Callable[[], None]) -> None:
        """each() for all groups of rows from that of the next one on: R14 the number of the first, R13 its address, R15 the first column."""
        self.group_of_next(R15)
        self.a.scalar(asm.MOVE, R14, R15)
        self.a.scalar(asm.MOVE, R13, R15)
        self.a.raw(0x4D, 0x69, 0xED, *self.layout.row.to_bytes(4, "little"))  # imul r13, r13, row
        self.a.scalar(asm.ADD, R13, RSI)

        def group() -> None:
            each()
            self.a.with_number(0, R13, _GROUP * self.step)

        self.up_to(R14, self.filled, group, 64 * _GROUP)

    def over_columns(self, each: Callable[[], None]) -> None:
        """each() for all columns from R15 on; R12 is the number."""
        self.a.scalar(asm.MOVE, R12, R15)
        self.up_to(R12, self.filled, each)

    def row(self, r: int) -> Mem:
        return Mem(R13, r * self.step, index=R12)

    def add_products(self, vector: Callable[[], Mem]) -> None:
        """Registers 0 to 3: the rows of a group times a vector."""
        for r in range(_GROUP):
            self.a.vector("xor.i32", r, r, r)

        def column() -> None:
            self.do("load", 8, vector())
            for r in range(_GROUP):
                self.do("madd231", r, 8, self.row(r))

        self.over_columns(column)

    def reduce(self) -> None:
        """Makes the matrix tridiagonal: `diagonal` and `beside`; keeps the reflections 1 - f v v', f in `factors`."""
        a, do = self.a, self.do
        sigma, alpha, beta, factor, scale = 0, 1, 2, 3, 4

        def step() -> None:
            a.scalar(asm.MOVE, R10, RSI)
            a.scalar(asm.ADD, R10, R9)
            a.scalar(asm.MOVE, R11, R10)
            a.with_number(0, R11, self.layout.reflections)
            do("load", 5, Mem(R10, index=R8))
            do("store", 5, self.at("diagonal", R8))
            a.set_number(R12, 0)
            self.up_to(R12, self.filled, lambda: do("store", _ZERO, Mem(R11, index=R12)))
            do("load", sigma, _ZERO)

            def square() -> None:
                do("load", 5, Mem(R10, index=R12))
                do("madd231", sigma, 5, 5)

            a.scalar(asm.MOVE, R12, R8)
            a.with_number(0, R12, 128)
            self.up_to(R12, self.end, square)
            do("cmp", _CHOSEN, sigma, _SMALLEST, immediate=asm.LESS)  # squares have lost their digits, and are nothing beside the matrix
            do("load", alpha, Mem(R10, 64, index=R8))
            do("madd231", sigma, alpha, alpha)
            do("sqrt", sigma, sigma)
            self.bits("and", beta, alpha, _SIGN)
            self.bits("xor", beta, beta, _SIGN)
            self.bits("or", beta, beta, sigma)
            do("sub", scale, alpha, beta)
            do("div", factor, scale, beta)
            do("sub", factor, _ZERO, factor)
            do("div", scale, _ONE, scale)
            do("load", factor, _ZERO, mask=_CHOSEN)
            do("load", scale, _ZERO, mask=_CHOSEN)
            do("load", beta, alpha, mask=_CHOSEN)
            do("store", beta, self.at("beside", R8))
            do("store", factor, self.at("factors", R8))
            do("store", _ONE, Mem(R11, 64, index=R8))

            def divide() -> None:
                do("mul", 5, scale, Mem(R10, index=R12))
                do("store", 5, Mem(R11, index=R12))

            a.scalar(asm.MOVE, R12, R8)
            a.with_number(0, R12, 128)
            self.up_to(R12, self.end, divide)

            # w = f A v, less so much of v that the new matrix is A - v w' - w v'.
            do("load", 10, factor)
            do("load", 11, _ZERO)

            def product() -> None:
                self.add_products(lambda: Mem(R11, index=R12))
                for r in range(_GROUP):
                    do("mul", r, r, 10)
                    do("madd231", 11, r, Mem(R11, 64 * r, index=R14))
                    do("store", r, self.at("sums", R14, 64 * r))

            self.rows_from_next(product)
            do("mul", 11, 11, 10)
            do("mul", 11, 11, _HALF)

            def less() -> None:
                do("load", 0, self.at("sums", R12))
                do("nmadd231", 0, 11, Mem(R11, index=R12))
                do("store", 0, self.at("sums", R12))

            self.over_columns(less)

            def update() -> None:
                for r in range(_GROUP):
                    do("load", r, Mem(R11, 64 * r, index=R14))
                    do("load", 4 + r, self.at("sums", R14, 64 * r))

                def column() -> None:
                    do("load", 8, Mem(R11, index=R12))
                    do("load", 9, self.at("sums", R12))
                    for r in range(_GROUP):
                        do("load", 12 + r, self.row(r))
                        do("nmadd231", 12 + r, r, 9)
                        do("nmadd231", 12 + r, 4 + r, 8)
                        do("store", 12 + r, self.row(r))

                self.over_columns(column)

            self.rows_from_next(update)
            a.with_number(0, R9, self.step)

        a.set_number(R8, 0)
        a.set_number(R9, 0)
        self.up_to(R8, self.end - 128, step)
        corner = (self.n - 2) * (self.step + 64)
        for name, more, place in (("diagonal", 0, corner), ("diagonal", 64, corner + self.step + 64), ("beside", 0, corner + 64)):
            do("load", 0, Mem(RSI, place))
            do("store", 0, self.at(name, R8, more))
        do("store", _ZERO, self.at("beside", R8, 64))

    def expand(self) -> None:
        """The product of the reflections, transposed, in the matrix's place; R8 and R9 stand behind the last one."""
        a, do = self.a, self.do
        a.scalar(asm.MOVE, R12, RSI)
        a.set_number(R13, 0)

        def clear() -> None:
            do("store", _ZERO, Mem(R12))
            a.with_number(0, R12, 64)

        self.up_to(R13, self.layout.rows * self.step, clear)
        a.set_number(R12, 0)
        self.up_to(R12, self.layout.rows * (self.step + 64), lambda: do("store", _ONE, Mem(RSI, index=R12)), self.step + 64)

        def back() -> None:
            a.with_number(5, R8, 64)
            a.with_number(5, R9, self.step)
            a.scalar(asm.MOVE, R11, RSI)
            a.scalar(asm.ADD, R11, R9)
            a.with_number(0, R11, self.layout.reflections)
            do("load", 10, self.at("factors", R8))

            def rows() -> None:
                self.add_products(lambda: Mem(R11, index=R12))
                for r in range(_GROUP):
                    do("mul", r, r, 10)

                def column() -> None:
                    do("load", 8, Mem(R11, index=R12))
                    for r in range(_GROUP):
                        do("load", 12 + r, self.row(r))
                        do("nmadd231", 12 + r, r, 8)
                        do("store", 12 + r, self.row(r))

                self.over_columns(column)

            self.rows_from_next(rows)

        a.set_number(R10, 0)
        self.up_to(R10, self.end - 128, back)  # as many times

    def diagonalise(self, vectors: bool, failed: int) -> None:
        """QR steps until nothing is left beside the diagonal; RBX is how far one goes."""
        a, do = self.a, self.do
        above, below, between, shift = 19, 20, 21, 22
        step, done = next(self.labels), next(self.labels)
        a.set_number(RBP, _STEPS * self.n)
        a.label(step)
        a.set_number(RBX, 0)
        for register in (above, below, between):
            do("load", register, _ZERO)

        def look() -> None:
            skip = next(self.labels)
            do("load", 0, self.at("diagonal", R12))
            do("load", 1, self.at("diagonal", R12, 64))
            do("load", 2, self.at("beside", R12))
            for register, source in ((3, 0), (4, 1), (5, 2)):
                self.bits("and", register, source, _BITS)
            do("add", 3, 3, 4)
            do("mul", 3, 3, _EPSILON)
            do("max", 3, 3, _NOTHING)
            do("cmp", _CHOSEN, 3, 5, immediate=asm.LESS)
            do("load", 2, 2, mask=_CHOSEN, zero=True)
            do("store", 2, self.at("beside", R12))
            for register, source in ((above, 0), (below, 1), (between, 2)):
                do("load", register, source, mask=_CHOSEN)
            a.mask("test", _CHOSEN, _CHOSEN)
            a.jump(skip, asm.ZERO)
            a.scalar(asm.MOVE, RBX, R12)
            a.with_number(0, RBX, 64)
            a.label(skip)

        a.set_number(R12, 0)
        self.up_to(R12, self.end - 64, look)
        a.with_number(7, RBX, 0)
        a.jump(done, asm.ZERO)
        a.with_number(5, RBP, 1)
        a.jump(failed, asm.ZERO)

        # The eigenvalue of the lowest two that is nearer to the lower one.
        do("sub", 0, above, below)
        do("mul", 0, 0, _HALF)
        do("mul", 1, 0, 0)
        do("mul", 2, between, between)
        do("add", 1, 1, 2)
        do("sqrt", 1, 1)
        self.bits("and", 3, 0, _BITS)
        do("add", 1, 1, 3)
        do("max", 1, 1, _TINY)
        self.bits("and", 3, 0, _SIGN)
        self.bits("or", 1, 1, 3)
        do("div", 2, 2, 1)
        do("sub", shift, below, 2)

        p, cosine, sine = 0, 1, 2  # of the row before
        do("load", p, self.at("diagonal", R12, -self.end + 64))  # the first: R12 is at the last one
        do("sub", p, p, shift)
        do("load", cosine, _ONE)
        do("load", sine, _ZERO)

        def rotate() -> None:
            e, r, c, s, h, d, new = 3, 4, 5, 6, 7, 8, 9
            do("load", e, self.at("beside", R12))
            do("mul", r, p, p)
            do("madd231", r, e, e)
            do("sqrt", r, r)
            do("div", c, p, r)
            do("div", s, e, r)
            do("cmp", _REST, e, _ZERO, immediate=asm.EQUAL)  # no rotation at all
            do("load", c, _ONE, mask=_REST)
            do("load", s, _ZERO, mask=_REST)
            do("load", r, p, mask=_REST)
            do("mul", r, r, sine)
            do("store", r, self.at("beside", R12, -64))
            do("mul", h, cosine, e)
            do("load", d, self.at("diagonal", R12, 64))
            do("sub", d, d, shift)
            do("load", new, shift)
            do("madd231", new, p, cosine)
            do("mul", p, c, d)
            do("nmadd231", p, s, h)
            do("mul", d, d, s)
            do("madd231", d, c, h)
            do("madd231", new, d, s)
            do("store", new, self.at("diagonal", R12))
            do("store", c, self.at("cosines", R12))
            do("store", s, self.at("sines", R12))
            do("load", cosine, c)
            do("load", sine, s)

        top = next(self.labels)
        a.set_number(R12, 0)
        a.label(top)
        rotate()
        a.with_number(0, R12, 64)
        a.scalar(asm.CMP, R12, RBX)
        a.jump(top, asm.BELOW)
        do("mul", sine, sine, p)
        do("store", sine, self.at("beside", R12, -64))
        do("load", 3, shift)
        do("madd231", 3, p, cosine)
        do("store", 3, self.at("diagonal", R12))
        if vectors:
            self.turn_rows()
        a.jump(step)
        a.label(done)

    def turn_rows(self) -> None:
        """Each row and the next by their rotation, up to the row of RBX: four columns at a time, what is below in registers."""
        a, do = self.a, self.do

        def columns() -> None:
            top = next(self.labels)
            a.scalar(asm.MOVE, R14, RSI)
            a.scalar(asm.ADD, R14, R13)
            for v in range(_GROUP):
                do("load", v, Mem(R14, 64 * v))
            a.set_number(R12, 0)
            a.label(top)
            do("load", 4, self.at("cosines", R12))
            do("load", 5, self.at("sines", R12))
            for v in range(_GROUP):
                do("load", 8 + v, Mem(R14, self.step + 64 * v))
                do("mul", 12 + v, v, 4)
                do("madd231", 12 + v, 5, 8 + v)
                do("store", 12 + v, Mem(R14, 64 * v))
                do("mul", v, v, 5)
                do("msub231", v, 4, 8 + v)
            a.with_number(0, R14, self.step)
            a.with_number(0, R12, 64)
            a.scalar(asm.CMP, R12, RBX)
            a.jump(top, asm.BELOW)
            for v in range(_GROUP):
                do("store", v, Mem(R14, 64 * v))

        a.set_number(R13, 0)
        self.up_to(R13, self.filled, columns, 64 * _GROUP)
