"""Colours of images whose last axis is (red, green, blue) or (hue, saturation, value); all in [0, 1] but the values themselves."""

from __future__ import annotations

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


def _hue(r: np.ndarray, g: np.ndarray, b: np.ndarray, top: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The hue in [0, 1); 0 for greys."""
    norm = 1 / (spread * spread.dtype.type(6))
    two, four = spread.dtype.type(2) / 6, spread.dtype.type(4) / 6
    hue = np.where(r == top, norm * (g - b), np.where(g == top, norm * (b - r) + two, norm * (r - g) + four))
    hue = np.where(spread > 0, hue, spread.dtype.type(0))
    return np.where(hue < 0, hue + 1, hue)


def rgb_to_hsv(images: Any) -> np.ndarray:
    wide = _wide(images)
    r, g, b = _channels(wide)
    top = wide.max(axis=-1) if wide.size else r
    spread = top - (wide.min(axis=-1) if wide.size else r)
    saturation = np.where(top > 0, spread / top, top.dtype.type(0))
    return np.stack([_hue(r, g, b, top, spread), saturation, top], axis=-1).astype(images.dtype)


def _mix(hue: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The colour of this hue whose channels lie between `low` and `high`."""
    angle = hue * hue.dtype.type(6)
    shares = (np.abs(angle - 3) - 1, 2 - np.abs(angle - 2), 2 - np.abs(angle - 4))
    return np.stack([low + (high - low) * np.clip(share, 0, 1) for share in shares], axis=-1)


def hsv_to_rgb(images: Any) -> np.ndarray:
    wide = _wide(images)
    h, s, v = _channels(wide)
    angle = h * h.dtype.type(6)
    shares = (np.abs(angle - 3) - 1, 2 - np.abs(angle - 2), 2 - np.abs(angle - 4))
    rest = 1 - s
    return np.stack([(rest + s * np.clip(share, 0, 1)) * v for share in shares], axis=-1).astype(images.dtype)


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
    r, g, b = _channels(wide)
    if not wide.size:
        return images
    top, bottom = wide.max(axis=-1), wide.min(axis=-1)
    hue = (_hue(r, g, b, top, top - bottom) + np.asarray(delta, wide.dtype)) % 1
    return _mix(hue, bottom, top).astype(images.dtype)


def adjust_saturation(images: Any, scale: Any) -> np.ndarray:
    _image_and_scalar(images, scale, "scale")
    wide = _wide(images)
    if not wide.size:
        _channels(wide)
        return images
    hsv = rgb_to_hsv(wide)
    hsv[..., 1] = np.clip(hsv[..., 1] * np.asarray(scale, wide.dtype), 0, 1)
    return hsv_to_rgb(hsv).astype(images.dtype)


def adjust_contrast(images: Any, factor: Any) -> np.ndarray:
    """Moves each channel away from its mean over height and width."""
    _image_and_scalar(images, factor, "contrast_factor")
    wide = _wide(images)
    if not wide.size:
        return images
    mean = wide.mean(axis=(-3, -2), keepdims=True, dtype=np.float64).astype(wide.dtype)
    return ((wide - mean) * np.asarray(factor, wide.dtype) + mean).astype(images.dtype)
