"""How TF's runtime writes a tensor's first values, in failed assertions and in Print: `0 1 2...`, `[0 1 2][3...]...`."""

from __future__ import annotations

from typing import Any

import numpy as np


def scalar_text(value: Any) -> str:
    """One element as C++ prints it: the shorter of two precisions that reads back the same; bool as 0 and 1."""
    if isinstance(value, bytes):
        return _escaped(value)
    if isinstance(value, (np.bool_, bool)):
        return "1" if value else "0"
    kind = np.asarray(value).dtype
    if kind.kind in "iu":
        return str(int(value))
    if kind.kind == "c" or kind.hasobject:
        return "?"  # so does TF
    number = float(value)
    if number != number:
        return "nan"
    if number in (float("inf"), float("-inf")):
        return "inf" if number > 0 else "-inf"
    if kind == np.float64:
        short = f"{number:.15g}"
        return short if float(short) == number else f"{number:.17g}"
    short = f"{number:.6g}"
    return short if np.float32(short) == np.float32(number) else f"{number:.9g}"


_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def _escaped(value: bytes) -> str:
    """C escapes for control characters and quotes; UTF-8 text stays readable."""
    out = []
    for c in value.decode("utf-8", "surrogateescape"):
        code = ord(c)
        if c in _ESCAPES:
            out.append(_ESCAPES[c])
        elif 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\{code - 0xDC00:03o}")
        elif code < 32 or code == 127:
            out.append(f"\\{code:03o}")
        else:
            out.append(c)
    return "".join(out)


def summarize(value: Any, limit: int) -> str:
    """The first `limit` elements (all, if negative), rows in brackets, "..." where something was left out."""
    array = np.asarray(value)
    flat = array.ravel()
    size = flat.size
    if size == 0:
        return ""
    if limit < 0:
        limit = size
    if array.ndim == 0:
        return scalar_text(flat[0])
    out: list[str] = []
    _one_dimension(array.shape, 0, 0, flat, limit, out)
    if size > limit:
        out.append("...")
    return "".join(out)


def _one_dimension(
    shape: tuple[int, ...], axis: int, position: int, flat: np.ndarray, limit: int, out: list[str]
) -> int:
    """Writes what `axis` and the ones behind it hold, from flat `position` on; the position after it."""
    if position >= limit:
        return position
    if axis == len(shape) - 1:
        for i in range(shape[axis]):
            if position >= limit:
                if axis:
                    out.append("...")
                return position
            out.append((" " if i else "") + scalar_text(flat[position]))
            position += 1
        return position
    for _ in range(shape[axis]):
        opened = position < limit
        if opened:
            out.append("[")
        position = _one_dimension(shape, axis + 1, position, flat, limit, out)
        if opened:
            out.append("]")
    return position
