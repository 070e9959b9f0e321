"""Arguments that come in many forms: strides as a number or a list, padding as a word or a list, data formats."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def channel_index(data_format: str | None, spatial: int) -> int:
    """Where channels stand in a tensor with `spatial` spatial dimensions."""
    return 1 if data_format is not None and data_format.startswith("NC") else spatial + 1


def per_dimension(value: Any, spatial: int, channel: int, name: str) -> list[int]:
    """`value`, one number, one for each spatial dimension or one for each dimension, as the last of these."""
    if value is None:
        return [1] * (spatial + 2)
    numbers = list(value) if isinstance(value, Iterable) else [value]
    if len(numbers) == spatial + 2:
        return numbers
    if len(numbers) == 1:
        numbers = numbers * spatial
    elif len(numbers) != spatial:
        allowed = f"1, {spatial} or {spatial + 2}" if spatial > 1 else f"1 or {spatial + 2}"
        raise ValueError(f"{name} should be of length {allowed}. Received: {name}={value} of length {len(numbers)}")
    return [1, 1, *numbers] if channel == 1 else [1, *numbers, 1]


def explicit_paddings(padding: Any, length: int = 4) -> tuple[Any, list[int]]:
    """(padding, explicit_paddings): a list of (before, after) pairs becomes "EXPLICIT" and a flat list."""
    if not isinstance(padding, (list, tuple)):
        if padding == "EXPLICIT":
            raise ValueError(
                "'EXPLICIT' is not a valid value for `padding`. To use explicit padding, `padding` must be a list."
            )
        return padding, []
    for i, pair in enumerate(padding):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise ValueError(
                "When `padding` is a list, each element of `padding` must be a list/tuple of size 2. "
                f"Received: padding={padding} with element at index {i} of type {type(pair)}"
            )
    if len(padding) != length:
        raise ValueError(f"When padding is a list, it must be of size {length}. Received: padding={padding} of size {len(padding)}")
    return "EXPLICIT", [number for pair in padding for number in pair]
