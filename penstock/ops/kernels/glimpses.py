"""Windows of images around points that may lie near the border: ExtractGlimpse, ExtractGlimpseV2. What lies outside is noise, or zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.kernels.window import show


def extract_glimpse(input: Any, size: Any, offsets: Any, *, centered: bool, normalized: bool, uniform_noise: bool, noise: bytes) -> np.ndarray:
    """The windows whose middles are at `offsets`: (y, x) from the upper left corner, or with `centered` twice that from the middle of the image."""
    _check(input, size, offsets, uniform_noise, noise)
    return _windows(input, size, _middles(input, offsets, centered, normalized) - size.astype(np.float32) / np.float32(2), noise)


def extract_glimpse_v2(input: Any, size: Any, offsets: Any, *, centered: bool, normalized: bool, uniform_noise: bool, noise: bytes) -> np.ndarray:
    """As `extract_glimpse`, but windows begin at `offsets`, unless these are both centred and normalized."""
    if centered and normalized:
        return extract_glimpse(input, size, offsets, centered=True, normalized=True, uniform_noise=uniform_noise, noise=noise)
    _check(input, size, offsets, uniform_noise, noise)
    starts = _middles(input, offsets, False, normalized)
    return _windows(input, size, starts + np.array(input.shape[1:3], np.float32) / np.float32(2) if centered else starts, noise)


def _middles(input: Any, offsets: Any, centered: bool, normalized: bool) -> np.ndarray:
    sizes = np.array(input.shape[1:3], np.float32)
    at = offsets * sizes if normalized else offsets
    return at / np.float32(2) + sizes / np.float32(2) if centered else at


def _check(input: Any, size: Any, offsets: Any, uniform_noise: bool, noise: bytes) -> None:
    if uniform_noise and noise != b"uniform":
        raise InvalidArgumentError("The uniform_noise and noise could not be specified at the same time")
    if input.ndim != 4:
        raise InvalidArgumentError(f"input must be 4-dimensional (batch_size, height, width, depth){show(input.shape)}")
    if size.shape != (2,):
        raise InvalidArgumentError(f"input must be a vector of size 2 (height, width){show(size.shape)}")
    if offsets.ndim != 2:
        raise InvalidArgumentError(f"input must be a matrix{show(offsets.shape)}")
    if len(offsets) != len(input):
        raise InvalidArgumentError(f"first dimension should be batch{show(offsets.shape)}")
    if offsets.shape[1] != 2:
        raise InvalidArgumentError(f"second dimension should be of size 2 (y,x){show(offsets.shape)}")
    if min(size) < 0:
        raise InvalidArgumentError(f"window size must not be negative: {show(size.tolist())}")


def _windows(input: Any, size: Any, starts: np.ndarray, noise: bytes) -> np.ndarray:
    result = np.empty((len(input), *size.tolist(), input.shape[3]), np.float32)
    random: np.random.Generator | None = None
    # Towards zero, as C++ makes integers.
    for image, glimpse, (top, left) in zip(input, result, np.trunc(starts).astype(np.int64).tolist(), strict=True):
        there = [slice(max(first, 0), max(min(first + n, whole), 0)) for first, n, whole in zip((top, left), glimpse.shape, image.shape, strict=False)]
        here = [slice(s.start - first, s.stop - first) for s, first in zip(there, (top, left), strict=True)]
        is_inside = all(s.start < s.stop for s in there)
        if not is_inside or image[tuple(there)].size < glimpse.size:
            random = random or np.random.default_rng()
            _fill_with_noise(glimpse, image, noise, random)
        if is_inside:
            glimpse[tuple(here)] = image[tuple(there)]
    return result


def _fill_with_noise(glimpse: np.ndarray, image: np.ndarray, kind: bytes, random: np.random.Generator) -> None:
    """Zeros, or numbers within the range of the image's: evenly distributed, or with the mean and deviation of each channel."""
    if kind == b"zero" or not image.size:
        glimpse[...] = 0
        return
    if kind == b"gaussian":
        numbers = random.standard_normal(glimpse.shape, np.float32) * image.std((0, 1)) + image.mean((0, 1))
        np.clip(numbers, image.min((0, 1)), image.max((0, 1)), glimpse)
        return
    low = image.min()
    random.random(out=glimpse, dtype=np.float32)
    glimpse *= image.max() - low
    glimpse += low
