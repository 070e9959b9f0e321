"""Convolutions in which few channels meet filters of their own, in machine code: images in colours blurred, signals filtered.

Arrays are float32, contiguous and channels last; filters are (*window, C, M): M results for each channel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.ops.kernels.patches import pad, reverse
from penstock.ops.kernels.window import Slide
from penstock.ops.native import channels

MOST_RESULTS = 2
"""For each channel: it is repeated so often."""


def suits(dtype: np.dtype, depth: int, out_depth: int, slides: Sequence[Slide]) -> bool:
    """Whether the functions below are the way to compute such a convolution and its gradients."""
    if dtype != np.float32 or out_depth > depth * MOST_RESULTS or any(s.stride != 1 for s in slides):
        return False
    return channels.suits(out_depth, slides) and all(s.before >= 0 for s in reverse(slides))


def forward(x: np.ndarray, w: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    return channels.correlate(pad(_repeated(x, w.shape[-1]), slides), w.reshape(*w.shape[:-2], -1), slides)


def input_gradient(dy: np.ndarray, w: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    multiplier, back = w.shape[-1], reverse(slides)
    flipped = np.flip(w, tuple(range(len(slides)))).reshape(*w.shape[:-2], -1)
    dx = channels.correlate(pad(dy, back), flipped, back)
    if multiplier == 1:
        return dx
    total = dx[..., ::multiplier] + dx[..., 1::multiplier]
    for i in range(2, multiplier):
        total += dx[..., i::multiplier]
    return total


def filter_gradient(x: np.ndarray, dy: np.ndarray, slides: Sequence[Slide]) -> np.ndarray:
    multiplier = dy.shape[-1] // x.shape[-1]
    dw = channels.weight_gradient(pad(_repeated(x, multiplier), slides), dy, slides)
    return dw.reshape(*dw.shape[:-1], x.shape[-1], multiplier)


def _repeated(x: np.ndarray, multiplier: int) -> np.ndarray:
    return x if multiplier == 1 else np.stack([x] * multiplier, -1).reshape(*x.shape[:-1], x.shape[-1] * multiplier)
