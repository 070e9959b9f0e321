"""Refusals that many rules share: what a rule does not take stays with the CPU kernel, which words the error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.engines.xla.rule import Unsupported
from penstock.errors import OpError


def need(fits: bool, why: str) -> None:
    """Raises Unsupported unless `fits`."""
    if not fits:
        raise Unsupported(why)


def is_known(value: Any) -> bool:
    """Whether a value is known when the program is compiled."""
    return isinstance(value, (np.ndarray, np.generic))


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turns the errors of helpers that rules borrow from kernels (window arithmetic and the like) into Unsupported."""
    try:
        yield
    except OpError as error:
        raise Unsupported(error.message) from None
