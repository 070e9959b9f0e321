"""Patches of images and volumes laid out in the depth dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import UnimplementedError
from penstock.graph.ir import Dims
from penstock.ops.declare import op, with_rank
from penstock.ops.kernels.patches import pad, patch_view
from penstock.ops.kernels.window import slide, static_size
from penstock.ops.samples import normal


def _spatial(name: str, values: list[int]) -> list[int]:
    if values[0] != 1 or values[-1] != 1:
        raise UnimplementedError(f"Only support {name} across space.")
    return values[1:-1]


def extract(x: np.ndarray, ksizes: list[int], strides: list[int], rates: list[int], padding: bytes) -> np.ndarray:
    """(N, *out, product of windows * C): every window's cells, row by row, channels innermost."""
    windows, steps, dilations = _spatial("ksizes", ksizes), _spatial("strides", strides), _spatial("rates", rates)
    slides = [slide(d, k, s, padding, r) for d, k, s, r in zip(x.shape[1:-1], windows, steps, dilations, strict=True)]
    out = [s.out for s in slides]
    depth = int(np.prod(windows)) * x.shape[-1]
    if not x.size or not all(out):
        return np.zeros((x.shape[0], *out, depth), x.dtype)
    return patch_view(np.ascontiguousarray(pad(x, slides)), slides).reshape(x.shape[0], *out, depth)


def image_kernel(x: Any, *, ksizes: list[int], strides: list[int], rates: list[int], padding: bytes) -> np.ndarray:
    return extract(x, ksizes, strides, rates, padding)


def volume_kernel(x: Any, *, ksizes: list[int], strides: list[int], padding: bytes) -> np.ndarray:
    return extract(x, ksizes, strides, [1] * 5, padding)


def patches_shape(c: Any) -> Dims:
    windows, strides = c.attrs["ksizes"], c.attrs["strides"]
    rates = c.attrs.get("rates") or [1] * len(windows)
    for name, values in (("ksizes", windows), ("strides", strides), ("rates", rates)):
        if len(values) != len(windows):
            raise ValueError(f"ExtractImagePatches requires the {name} attribute to contain {len(windows)} values, but got: {len(values)}")
    dims = with_rank(c, 0, len(windows))
    sizes = [
        static_size(d, k, s, c.attrs["padding"], r)
        for d, k, s, r in zip(dims[1:-1], windows[1:-1], strides[1:-1], rates[1:-1], strict=True)  # type: ignore[index]
    ]
    depth = dims[-1]  # type: ignore[index]
    return (dims[0], *sizes, None if depth is None else depth * int(np.prod(windows[1:-1])))  # type: ignore[index]


def patches_grad(g: Any, op: Any, dy: Any) -> Any:
    """Each cell gets the sum over the windows that it was in: patches of the cells' own numbers say which."""
    attrs = {name: op.attr(name) for name in ("ksizes", "strides", "padding")}
    if op.type == "ExtractImagePatches":
        attrs["rates"] = op.attr("rates")
    images = op.inputs[0]
    rank = len(attrs["ksizes"])
    shape = g.Shape(images)
    spatial = g.Slice(shape, [1], [rank - 2])
    cells = g.Prod(spatial, [0])
    batch, depth = g.Slice(shape, [0], [1]), g.Slice(shape, [rank - 1], [1])
    one = g.const([1], "int32")
    # Padding is 0, so numbers start at 1 and row 0 collects what fell on it.
    numbers = g.Reshape(g.Range(1, g.AddV2(cells, 1), 1), g.ConcatV2([one, spatial, one], 0))
    owner = g.Reshape(getattr(g, op.type)(numbers, **attrs), [-1])
    pieces = g.Reshape(dy, g.ConcatV2([batch, g.const([-1], "int32"), depth], 0))
    summed = g.UnsortedSegmentSum(g.Transpose(pieces, [1, 0, 2]), owner, g.AddV2(cells, 1))
    return g.Reshape(g.Transpose(g.Slice(summed, [1, 0, 0], [-1, -1, -1]), [1, 0, 2]), shape)


op("ExtractImagePatches(images: T) -> (patches: T) [ksizes: list(int) >= 4; strides: list(int) >= 4; rates: list(int) >= 4;"
   " T: type in {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128, bool};"
   " padding: string in {'SAME', 'VALID'}]",
   shape=patches_shape, numpy=image_kernel, grad=patches_grad,
   samples=[
       dict(images=normal(2, 4, 5, 2), ksizes=[1, 2, 3, 1], strides=[1, 2, 1, 1], rates=[1, 1, 1, 1], padding="VALID"),
       dict(images=normal(1, 4, 5, 1), ksizes=[1, 3, 3, 1], strides=[1, 2, 2, 1], rates=[1, 1, 1, 1], padding="SAME"),
       dict(images=normal(1, 5, 5, 1), ksizes=[1, 2, 2, 1], strides=[1, 1, 1, 1], rates=[1, 2, 2, 1], padding="SAME"),
   ],
   errors=[
       (dict(images=np.zeros((1, 2, 2, 1)), ksizes=[2, 2, 2, 1], strides=[1] * 4, rates=[1] * 4, padding="VALID"), UnimplementedError,
        "Only support ksizes across space."),
   ])  # fmt: skip
op("ExtractVolumePatches(input: T) -> (patches: T) [ksizes: list(int) >= 5; strides: list(int) >= 5; T: type in REALS;"
   " padding: string in {'SAME', 'VALID'}]",
   shape=patches_shape, numpy=volume_kernel, grad=patches_grad,
   samples=[
       dict(input=normal(1, 3, 4, 3, 2), ksizes=[1, 2, 2, 2, 1], strides=[1, 1, 2, 1, 1], padding="VALID"),
       dict(input=normal(1, 3, 3, 3, 1), ksizes=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="SAME"),
   ])  # fmt: skip
