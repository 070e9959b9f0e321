"""Products of matrices, alone or in batches, with bias and post-ops.

`MatMul` is oneDNN's primitive: batches with broadcasting, bias, post-ops; a constant second operand is laid out once in the blocks
that it reads fastest. `Gemm` is its sgemm, which copies less and so is quicker for few rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.engines.memory import address, aligned_empty
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Library, OneDnnError
from penstock.engines.onednn.plan import (
    BYTES_PER_US,
    FLOPS_PER_US,
    Reordered,
    contiguous,
    planned,
    strides_of,
    threads_for,
)
from penstock.engines.onednn.primitives import FLOAT32, Maker, PostOps

FEW_ROWS = 16


class Spec(NamedTuple):
    """A product on fixed shapes. `a` and `b` are the operands' shapes as they come; transposed ones are read across.

    Operands may lie in memory in another order than their dimensions, as transposed views do: then their strides are given, in elements.
    The result lies in `order`, its dimensions from the outermost in, if that is given: for a Transpose that reads it."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    transpose_a: bool
    transpose_b: bool
    dtype: np.dtype
    a_strides: tuple[int, ...] | None = None
    b_strides: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns, and the length of the sums."""
        rows, inner = self.a[-2:][::-1] if self.transpose_a else self.a[-2:]
        columns = self.b[-2] if self.transpose_b else self.b[-1]
        return rows, columns, inner

    @property
    def shape(self) -> tuple[int, ...]:
        rows, columns, _ = self.sizes
        batch = self.a[:-2]
        return (*(batch if batch == self.b[:-2] else np.broadcast_shapes(batch, self.b[:-2])), rows, columns)

    @property
    def flops(self) -> float:
        return 2.0 * math.prod(self.shape) * self.sizes[2]


class Gemm:
    """a @ b for two float32 matrices, either of which may be read across."""

    def __init__(self, library: Library, spec: Spec) -> None:
        self.library = library
        self.shape = spec.shape
        self.threads = threads_for(spec.flops / FLOPS_PER_US)
        rows, columns, inner = spec.sizes
        self._head = (b"T" if spec.transpose_a else b"N", b"T" if spec.transpose_b else b"N", rows, columns, inner, 1.0)
        self._lda, self._ldb, self._ldc = spec.a[1], spec.b[1], columns
        library.used = True

    def run(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        c = aligned_empty(self.shape, FLOAT32)
        self.add_to(c, 0.0, a, b)
        return c

    def add_to(self, c: np.ndarray, factor: float, a: np.ndarray, b: np.ndarray) -> None:
        """c = factor * c + a @ b"""
        a, b = contiguous(a), contiguous(b)
        library = self.library
        operands = (address(a), self._lda, address(b), self._ldb, factor, address(c), self._ldc)
        status = library.run(self.threads, library.sgemm, *self._head, *operands)
        if status:
            raise OneDnnError("sgemm", status)


def _across(dims: Sequence[int], rank: int, transpose: bool, strides: Sequence[int] | None = None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dims of `rank` dimensions and strides of an operand as it takes part in the product."""
    more = rank - len(dims)
    strides = strides_of((*(1,) * more, *dims)) if strides is None else (*(strides[0],) * more, *strides)
    dims = (*(1,) * more, *dims)
    if transpose:
        dims, strides = (*dims[:-2], dims[-1], dims[-2]), (*strides[:-2], strides[-1], strides[-2])
    return dims, strides


class MatMul:
    """a @ b [+ bias] [post-ops], batched and broadcast."""

    def __init__(self, m: Maker, spec: Spec, has_bias: bool, post_ops: PostOps, is_constant: bool) -> None:
        self.shape, self.dtype = spec.shape, spec.dtype
        self.a_strides, self.b_strides = spec.a_strides, spec.b_strides
        rank = len(self.shape)
        dims, strides = _across(spec.b, rank, spec.transpose_b, spec.b_strides)
        src, plain = m.md(*_across(spec.a, rank, spec.transpose_a, spec.a_strides), spec.dtype), m.md(dims, strides, spec.dtype)
        order = spec.order or tuple(range(rank))
        self.lies = tuple(self.shape[i] for i in order)  # the result as it lies in memory, and the way back
        self.back = tuple(order.index(i) for i in range(rank)) if spec.order else None
        memory = dict(zip(order, strides_of(self.lies), strict=True))
        dst = m.md(self.shape, tuple(memory[i] for i in range(rank)), spec.dtype)
        bias = m.md((*(1,) * (rank - 1), self.shape[-1]), strides_of((*(1,) * (rank - 1), self.shape[-1])), spec.dtype) if has_bias else None
        weights = m.md(dims, None, spec.dtype) if is_constant else plain
        pd = m.pd("matmul", src, weights, bias, dst, m.attr(post_ops, spec.dtype))
        weights = m.query(pd, lib.QUERY_WEIGHTS)
        args = [(lib.ARG_SRC, src), (lib.ARG_WEIGHTS, weights), (lib.ARG_DST, dst)]
        if bias is not None:
            args.append((lib.ARG_BIAS, bias))
        self.main = m.primitive(pd, [*args, *m.post_op_args(post_ops, spec.dtype)])
        self.weights = Reordered(m, plain, weights)
        self.run = self.run_constant if is_constant else self.run_strided if spec.a_strides or spec.b_strides or spec.order else self.run_plain

    def run_strided(self, a: np.ndarray, b: np.ndarray, *more: np.ndarray) -> np.ndarray:
        """With operands that lie as the spec says; one of which it says nothing is contiguous, or becomes so."""
        a = a if self.a_strides else contiguous(a)
        b = b if self.b_strides else contiguous(b)
        c = aligned_empty(self.lies, self.dtype)
        self.main.run(address(a), address(b), address(c), *map(address, more))
        return c if self.back is None else c.transpose(self.back)

    def run_plain(self, a: np.ndarray, b: np.ndarray, *more: np.ndarray) -> np.ndarray:
        a, b = contiguous(a), contiguous(b)
        c = aligned_empty(self.shape, self.dtype)
        self.main.run(address(a), address(b), address(c), *map(address, more))
        return c

    def run_constant(self, a: np.ndarray, b: np.ndarray, *more: np.ndarray) -> np.ndarray:
        a = contiguous(a)
        c = aligned_empty(self.shape, self.dtype)
        self.main.run(address(a), self.weights.constant(b), address(c), *map(address, more))
        return c


def matmul(
    library: Library, spec: Spec, has_bias: bool = False, post_ops: PostOps = (), is_constant: bool = False
) -> Gemm | MatMul | None:
    """The plan of a product, or None if oneDNN has none worth using. `is_constant`: the second operand never changes."""
    is_plain = spec.dtype == FLOAT32 and not (has_bias or post_ops or is_constant)
    if is_plain and len(spec.shape) == 2 and spec.sizes[0] <= FEW_ROWS:
        return Gemm(library, spec)
    # Few rows wait for the other operand, which comes out of main memory if it is constant and large.
    waits = math.prod(spec.b) * spec.dtype.itemsize / BYTES_PER_US if is_constant else 0.0
    return planned(MatMul, library, max(spec.flops / FLOPS_PER_US, waits), spec, has_bias, post_ops, is_constant)
