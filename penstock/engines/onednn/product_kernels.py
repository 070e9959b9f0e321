"""Kernels of products of matrices: plain and batched ones, products that add to one result, and those that BLAS is left alone with."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.engines.memory import aligned_empty
from penstock.engines.onednn import binding, matmul
from penstock.engines.onednn.binding import Kernel, layouts_2, library_for, remembering, shapes, shapes_2
from penstock.engines.onednn.library import Library
from penstock.engines.onednn.primitives import CODES, FLOAT32, Eltwise, PostOps
from penstock.graph.ir import Operation
from penstock.ops.kernels import blas
from penstock.ops.native import tiny


def wakes_blas(spec: matmul.Spec) -> bool:
    rows, columns, inner = spec.sizes
    if inner == 1:  # the declared kernel computes outer products without BLAS
        return rows * columns > binding.BLAS_ALONE
    if min(rows, columns) == 1:
        return max(rows, columns) * inner > binding.BLAS_ALONE_VECTOR
    return rows * columns * inner > binding.BLAS_ALONE


def is_vector_product(spec: matmul.Spec) -> bool:
    """A vector times a matrix that BLAS alone is best at."""
    rows, columns, inner = spec.sizes
    return inner > 1 and min(rows, columns) == 1 and max(rows, columns) * inner <= binding.LARGE_VECTOR_PRODUCT


def product(a_flag: str, b_flag: str, types: Sequence[str], same_batches: bool = False) -> Kernel:
    """MatMul and the batched products; `types` are the attributes that must all be one type."""

    def maker(op: Operation, fallback: Kernel) -> Kernel | None:
        dtype = op.attrs[types[0]].np
        if dtype not in CODES or any(op.attrs[name].np != dtype for name in types):
            return None
        across_a, across_b = op.attrs[a_flag], op.attrs[b_flag]
        order = None if op.type == "MatMul" else _order_of_reader(op)
        post_ops: PostOps = (Eltwise("linear", op.attrs["scale"], 0.0),) if op.type == "_ScaledBatchMatMul" else ()

        def prepare(a: np.ndarray, b: np.ndarray, at_once: bool = False) -> Kernel | None:
            if min(a.ndim, b.ndim) < 2 or max(a.ndim, b.ndim) > 12 or not a.size or not b.size:
                return None
            if a.shape[-2 if across_a else -1] != b.shape[-1 if across_b else -2] or (same_batches and a.shape[:-2] != b.shape[:-2]):
                return None
            if op.type != "MatMul" and a.shape[-2 if across_a else -1] == 1 and dtype == FLOAT32 and not post_ops:
                return None  # outer products are one multiplication of arrays
            spec = matmul.Spec(a.shape, b.shape, across_a, across_b, dtype)
            try:
                shape, flops = spec.shape, spec.flops
            except ValueError:  # batches that do not broadcast
                return None
            if len(shape) > 2 and not post_ops and a.shape[:-2] == b.shape[:-2]:
                rows, columns, inner = spec.sizes
                if tiny.fits(a.dtype, math.prod(shape[:-2]), rows, inner, columns, across_b):
                    return None
            if not (wakes_blas(spec) if dtype == FLOAT32 else flops >= binding.MIN_NARROW_FLOPS) and (len(shape) == 2 or flops < binding.MIN_BATCH_FLOPS):
                return None
            library = library_for(dtype)
            if library and dtype == FLOAT32 and len(shape) == 2 and is_vector_product(spec):
                run = blas.alone(fallback)
                if run is not None:
                    return run
            if library and at_once and dtype == FLOAT32:
                if len(shape) == 2:
                    return matmul.Gemm(library, spec).run
                if a.flags.c_contiguous and b.flags.c_contiguous and not wakes_blas(spec):
                    return None
            if library and len(shape) > 2:
                spec = spec._replace(a_strides=_strides(a), b_strides=_strides(b), order=order if order and len(order) == len(shape) else None)
            plan = matmul.matmul(library, spec, False, post_ops) if library else None
            return plan and plan.run

        return remembering(op, fallback, shapes_2 if op.type == "MatMul" else layouts_2, prepare, functools.partial(prepare, at_once=True))

    return maker


def _strides(x: np.ndarray) -> tuple[int, ...] | None:
    """Where the elements of an array lie that is a view with its dimensions in another order, if a product can read it as it is:
    heads of an attention layer, which are columns of one matrix. Anything else is copied."""
    if x.flags.c_contiguous or not x.size or x.strides[-1] != x.itemsize:
        return None
    if any(s < x.itemsize or s % x.itemsize for s in x.strides):
        return None
    by_size = sorted((s, n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1)
    if any(s * n > further for (s, n), (further, _) in itertools.pairwise(by_size)):  # elements that lie over each other
        return None
    return tuple(s // x.itemsize for s in x.strides)


def _order_of_reader(op: Operation) -> tuple[int, ...] | None:
    """The permutation of the Transpose that alone reads a product: if the result lies in that order, to transpose it takes no copy."""
    tensor = op.outputs[0]
    while len(tensor._consumers or ()) == 1:
        reader = tensor._consumers[0]  # type: ignore[index]
        if reader.type == "Identity":
            tensor = reader.outputs[0]
            continue
        source = reader.inputs[1].op if reader.type == "Transpose" and reader.inputs[0] is tensor else None
        if source is None or source.type not in ("Const", "HostConst"):
            return None
        order = tuple(np.ravel(source.attrs["value"].array).tolist())
        return order if sorted(order) == list(range(len(order))) and len(order) > 2 and order[-1] == len(order) - 1 else None
    return None


def product_columns(op: Operation, fallback: Kernel) -> Kernel | None:
    """_MatMulColumns: the product with some rows of `b`, transposed."""
    if op.attrs["T"].np != FLOAT32:
        return None
    start, stop = op.attrs["start"], op.attrs["start"] + op.attrs["count"]

    def prepare(a: np.ndarray, b: np.ndarray, at_once: bool = False) -> Kernel | None:
        if a.ndim != 2 or b.ndim != 2 or not a.size or a.shape[1] != b.shape[1] or len(b) < stop:
            return None
        spec = matmul.Spec(a.shape, (stop - start, b.shape[1]), False, True, FLOAT32)
        library = library_for(FLOAT32) if wakes_blas(spec) else None
        plan = (matmul.Gemm if at_once else matmul.matmul)(library, spec) if library else None
        if plan is None:
            return None
        run = plan.run
        return lambda a, b: run(a, b[start:stop])

    return remembering(op, fallback, shapes_2, prepare, functools.partial(prepare, at_once=True))


FEW_TO_SUM = 64
"""Rows of each of several products that add to one result up to which it is quicker to lay them one below the other first."""


def sum_of_products(op: Operation, fallback: Kernel) -> Kernel | None:
    """_SumOfProducts: products that add to one result; _SumOfProductsAndRows: with the sum of all rows of the second operands."""
    count, with_rows = op.attrs["N"], op.type == "_SumOfProductsAndRows"
    if op.attrs["T"].np != FLOAT32:
        return None

    def prepare(*inputs: np.ndarray) -> Kernel | None:
        a, b = inputs[:count], inputs[count:]
        if any(x.ndim != 2 or y.ndim != 2 or not x.size or not y.size for x, y in zip(a, b, strict=True)):
            return None
        rows, columns = a[0].shape[1], b[0].shape[1]
        if any(x.shape != (len(y), rows) or y.shape[1] != columns for x, y in zip(a, b, strict=True)):
            return None
        library = library_for(FLOAT32)
        if library is None:
            return None
        if max(map(len, a)) <= FEW_TO_SUM:
            return together(library, sum(map(len, a)), rows, columns)
        plans = [matmul.Gemm(library, matmul.Spec(x.shape, y.shape, True, False, FLOAT32)) for x, y in zip(a, b, strict=True)]

        def run(*inputs: np.ndarray) -> Any:
            total = plans[0].run(inputs[0], inputs[count])
            for i in range(1, count):
                plans[i].add_to(total, 1.0, inputs[i], inputs[count + i])
            if not with_rows:
                return total
            sums = np.add.reduce(inputs[count], 0)
            for y in inputs[count + 1 :]:
                sums += np.add.reduce(y, 0)
            return [total, sums]

        return run

    def together(library: Library, inner: int, rows: int, columns: int) -> Kernel:
        """One product of all operands, laid one below the other. A column of ones gives the sum of rows."""
        plan = matmul.Gemm(library, matmul.Spec((inner, rows + with_rows), (inner, columns), True, False, FLOAT32))

        def run(*inputs: np.ndarray) -> Any:
            a, b = aligned_empty((inner, rows + with_rows), FLOAT32), aligned_empty((inner, columns), FLOAT32)
            np.concatenate(inputs[:count], 0, a[:, :rows])
            np.concatenate(inputs[count:], 0, b)
            if not with_rows:
                return plan.run(a, b)
            a[:, rows] = 1
            total = plan.run(a, b)
            return [total[:rows], total[rows]]

        return run

    return remembering(op, fallback, shapes, prepare)
