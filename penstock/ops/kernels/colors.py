"""Colours of images whose last axis is (red, green, blue) or (hue, saturation, value); all in [0, 1] but the values themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError


def _channels(images: Any, what: str = "input") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if images.ndim < 1:
        raise InvalidArgumentError(f"input must be at least 1D {images.shape}")
    if images.shape[-1] != 3:
        raise InvalidArgumentError(f"input must have 3 channels but instead has {images.shape[-1]} channels.")
    return images[..., 0], images[..., 1], images[..., 2]


def _wide(images: np.ndarray) -> np.ndarray:
    """Half precision is computed in float32."""
    return images if images.dtype in (np.float32, np.float64) else images.astype(np.float32)


def _planes(wide: np.ndarray) -> np.ndarray:
    """The three channels one after the other, (3, pixels): whole channels are much quicker to compute with than every third number."""
    _channels(wide)
    return np.ascontiguousarray(wide.reshape(-1, 3).T)


def _interleaved(planes: Sequence[np.ndarray], like: np.ndarray) -> np.ndarray:
    """The images of shape and type of `like` that have these channels."""
    images = np.empty(like.shape, like.dtype)
    pixels = images.reshape(-1, 3)
    for i, plane in enumerate(planes):
        pixels[:, i] = plane
    return images


def _hue(r: np.ndarray, g: np.ndarray, b: np.ndarray, top: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The hue in [0, 1); 0 for greys."""
    kind = spread.dtype.type
    norm = spread * kind(6)
    np.divide(kind(1), norm, out=norm)
    hue = r - g
    hue *= norm
    hue += kind(4) / 6
    part = b - r
    part *= norm
    part += kind(2) / 6
    np.copyto(hue, part, where=g == top)
    np.subtract(g, b, out=part)
    part *= norm
    np.copyto(hue, part, where=r == top)
    np.copyto(hue, kind(0), where=~(spread > 0))
    np.copyto(hue, hue + kind(1), where=hue < 0)
    return hue


def _ends(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest and the smallest of the channels."""
    r, g, b = planes
    top, bottom = np.maximum(r, g), np.minimum(r, g)
    return np.maximum(top, b, out=top), np.minimum(bottom, b, out=bottom)


def _hsv(wide: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    planes = _planes(wide)
    top, bottom = _ends(planes)
    spread = top - bottom
    saturation = spread / top
    np.copyto(saturation, top.dtype.type(0), where=~(top > 0))
    return _hue(planes[0], planes[1], planes[2], top, spread), saturation, top


def rgb_to_hsv(images: Any) -> np.ndarray:
    return _interleaved(_hsv(_wide(images)), images)


def _shares(hue: np.ndarray) -> Iterator[np.ndarray]:
    """How much of red, of green and of blue there is in a pure colour."""
    angle = hue * hue.dtype.type(6)
    for middle, sign in ((3, 1), (2, -1), (4, -1)):
        share = angle - middle
        np.abs(share, out=share)
        if sign > 0:
            share -= 1
        else:
            np.subtract(2, share, out=share)
        yield np.clip(share, 0, 1, out=share)


def _rgb(h: np.ndarray, s: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    rest = 1 - s
    return [(rest + s * share) * v for share in _shares(h)]


def hsv_to_rgb(images: Any) -> np.ndarray:
    return _interleaved(_rgb(*_planes(_wide(images))), images)


def _image_and_scalar(images: Any, scalar: Any, name: str) -> None:
    if images.ndim < 3:
        raise InvalidArgumentError(f"input must be at least 3-D, got shape{_text(images)}")
    if np.ndim(scalar) != 0:
        raise InvalidArgumentError(f"{name} must be scalar: {_text(scalar)}")


def _text(array: Any) -> str:
    return "[" + ",".join(str(d) for d in np.shape(array)) + "]"


def adjust_hue(images: Any, delta: Any) -> np.ndarray:
    _image_and_scalar(images, delta, "delta")
    wide = _wide(images)
    planes = _planes(wide)
    top, bottom = _ends(planes)
    spread = top - bottom
    hue = (_hue(planes[0], planes[1], planes[2], top, spread) + np.asarray(delta, wide.dtype)) % 1
    return _interleaved([bottom + spread * share for share in _shares(hue)], images)


def adjust_saturation(images: Any, scale: Any) -> np.ndarray:
    _image_and_scalar(images, scale, "scale")
    h, s, v = _hsv(_wide(images))
    s *= np.asarray(scale, s.dtype)
    return _interleaved(_rgb(h, np.clip(s, 0, 1, out=s), v), images)


def adjust_contrast(images: Any, factor: Any) -> np.ndarray:
    """Moves each channel away from its mean over height and width."""
    _image_and_scalar(images, factor, "contrast_factor")
    wide = _wide(images)
    if not wide.size:
        return images
    *lead, height, width, depth = wide.shape
    # Rows are long and quick to compute with; only their sum is taken apart into channels.
    rows = wide.reshape(*lead, height, width * depth)
    columns = rows.sum(-2, dtype=np.float64).reshape(*lead, width, depth)
    mean = (columns.sum(-2, keepdims=True) / (height * width)).astype(wide.dtype)
    mean = np.broadcast_to(mean, columns.shape).reshape(*lead, 1, width * depth)
    result = rows - mean
    result *= np.asarray(factor, wide.dtype)
    result += mean
    return result.reshape(wide.shape).astype(images.dtype, copy=False)
