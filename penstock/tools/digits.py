"""Handwritten-looking digits, made by the program itself: a small font, drawn at random sizes, places, slants and strengths."""

from __future__ import annotations

import numpy as np

_FONT = {
    0: ("01110", "10001", "10011", "10101", "11001", "10001", "01110"),
    1: ("00100", "01100", "00100", "00100", "00100", "00100", "01110"),
    2: ("01110", "10001", "00001", "00110", "01000", "10000", "11111"),
    3: ("11110", "00001", "00001", "01110", "00001", "00001", "11110"),
    4: ("00010", "00110", "01010", "10010", "11111", "00010", "00010"),
    5: ("11111", "10000", "11110", "00001", "00001", "10001", "01110"),
    6: ("00110", "01000", "10000", "11110", "10001", "10001", "01110"),
    7: ("11111", "00001", "00010", "00100", "01000", "01000", "01000"),
    8: ("01110", "10001", "10001", "01110", "10001", "10001", "01110"),
    9: ("01110", "10001", "10001", "01111", "00001", "00010", "01100"),
}
SIZE = 20


def make_digits(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(images [count, 20, 20, 1] in [0, 1], labels [count])."""
    rng = np.random.default_rng(seed)
    glyphs = np.array([[[float(c) for c in row] for row in _FONT[d]] for d in range(10)])
    labels = rng.integers(0, 10, count)
    scale = rng.uniform(1.6, 2.6, (count, 2))
    slant = rng.uniform(-0.3, 0.3, count)
    shift = rng.uniform(-2.0, 2.0, (count, 2))
    grid_y, grid_x = np.mgrid[0:SIZE, 0:SIZE] - (SIZE - 1) / 2.0
    y = (grid_y[None] - shift[:, 0, None, None]) / scale[:, 0, None, None] + 3.0
    x = (grid_x[None] - shift[:, 1, None, None]) / scale[:, 1, None, None] + slant[:, None, None] * (y - 3.0) + 2.0
    images = _bilinear(glyphs[labels], y, x) * rng.uniform(0.6, 1.0, (count, 1, 1))
    images += rng.normal(0.0, 0.12, images.shape)
    return np.clip(images, 0.0, 1.0)[..., None].astype(np.float32), labels.astype(np.int64)


def _bilinear(glyphs: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    padded = np.pad(glyphs, ((0, 0), (1, 1), (1, 1)))
    y0 = np.clip(np.floor(y).astype(int) + 1, 0, 7)
    x0 = np.clip(np.floor(x).astype(int) + 1, 0, 5)
    inside = (y > -1) & (y < 7) & (x > -1) & (x < 5)
    fy, fx = y - np.floor(y), x - np.floor(x)
    n = np.arange(len(glyphs))[:, None, None]
    top = padded[n, y0, x0] * (1 - fx) + padded[n, y0, x0 + 1] * fx
    bottom = padded[n, y0 + 1, x0] * (1 - fx) + padded[n, y0 + 1, x0 + 1] * fx
    return np.where(inside, top * (1 - fy) + bottom * fy, 0.0)
