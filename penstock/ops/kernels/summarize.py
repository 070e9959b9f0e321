"""How TF's runtime writes a tensor's first values: in assertions, and in Print."""

from __future__ import annotations

from typing import Any

import numpy as np

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def number_text(value: Any) -> str:
    """A number with as few digits as tell it apart: 6 or 9 for float32, 15 or 17 for float64."""
    kind = getattr(value, "dtype", np.asarray(value).dtype)
    if kind == np.bool_:
        return "1" if value else "0"
    if kind.kind in "iu":
        return str(int(value))
    if kind.kind == "c":
        return f"({number_text(value.real)},{number_text(value.imag)})"
    number = float(value)
    if np.isnan(number):
        return "nan"
    if np.isinf(number):
        return "inf" if number > 0 else "-inf"
    if kind == np.float64:
        text = f"{number:.15g}"
        return text if float(text) == number else f"{number:.17g}"
    text = f"{number:.6g}"
    return text if np.float32(text) == np.float32(number) else f"{number:.9g}"


def string_text(value: bytes) -> str:
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return "".join(_ESCAPES.get(c, c) for c in text)


def summarize(value: Any, limit: int) -> str:
    """The first `limit` values (all if negative): `0 1 2...`, `[0 1 2][3...]...`."""
    array = np.asarray(value)
    size = array.size
    if limit < 0:
        limit = size
    if size == 0:
        return ""
    write = string_text if array.dtype == object else number_text
    flat = array.ravel()
    if array.ndim == 0:
        return write(flat[0])
    parts: list[str] = []
    taken = 0

    def walk(axis: int) -> None:
        nonlocal taken
        if taken >= limit:
            return
        count = array.shape[axis]
        if axis == array.ndim - 1:
            for i in range(count):
                if taken >= limit:
                    parts.append("...")
                    return
                parts.append((" " if i else "") + write(flat[taken]))
                taken += 1
            return
        for _ in range(count):
            opened = taken < limit
            if opened:
                parts.append("[")
            walk(axis + 1)
            if opened:
                parts.append("]")

    walk(0)
    if size > limit and array.ndim > 1:
        parts.append("...")
    return "".join(parts)
