"""How TF's runtime writes types and positions in messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.dtypes import DType

_SHORT = {"float32": "float", "float64": "double", "float16": "half"}


def dtype_text(dtype: DType) -> str:
    """The name that TF's runtime uses: `float` for float32, `half` for float16."""
    return _SHORT.get(dtype.name, dtype.name)


def index_text(position: Iterable[Any]) -> str:
    """A position as "1,2"."""
    return ",".join(str(int(i)) for i in position)
