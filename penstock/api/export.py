"""The table of public names: what `penstock/__init__.py` assembles into modules.

A name is dotted and without the package: "add" is `tf.add`, "math.add" is `tf.math.add`. One name stands for one
object; two objects under one name are an error at import. Values that are costly to make are exported lazily.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*\Z")


class Lazy:
    """A public name whose object is imported on first use."""

    __slots__ = ("target",)

    def __init__(self, target: str) -> None:
        self.target = target

    def resolve(self) -> Any:
        module, _, attribute = self.target.partition(":")
        value: Any = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
        return value

    def __repr__(self) -> str:
        return f"Lazy({self.target!r})"


_table: dict[str, Any] = {}


def export(*names: str) -> Callable[[T], T]:
    """Decorator: makes a function or class public under every one of `names`."""
    if not names:
        raise TypeError("export() needs at least one public name")

    def decorate(value: T) -> T:
        for name in names:
            export_value(name, value)
        return value

    return decorate


def export_value(name: str, value: Any) -> None:
    """Makes `value` public under `name`. The same object may come twice; another one is a ValueError."""
    if not _NAME.match(name):
        raise ValueError(f"{name!r} is not a dotted public name")
    if name in _table and not _same(_table[name], value):
        raise ValueError(f"public name {name!r} already stands for {_table[name]!r}, it cannot stand for {value!r} too")
    _table[name] = value


def export_lazy(name: str, target: str) -> None:
    """Makes the object at `target` ("module:attribute") public under `name`, without importing it now."""
    if not _TARGET.match(target):
        raise ValueError(f"{target!r} is not of the form 'module:attribute'")
    export_value(name, Lazy(target))


def table() -> Mapping[str, Any]:
    """Every public name and its object; a `Lazy` where the object is not imported yet. The view is live."""
    return MappingProxyType(_table)


def resolve(name: str) -> Any:
    """The object that the public `name` stands for, imported if need be; KeyError if there is none."""
    value = _table[name]
    if isinstance(value, Lazy):
        value = _table[name] = value.resolve()
    return value


def _same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    return isinstance(old, Lazy) and isinstance(new, Lazy) and old.target == new.target
