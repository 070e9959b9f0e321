"""TF1's Python surface: composed functions, operators, scopes, variables, control flow, nn, train.

Modules here export their public names with `@export`; `assemble` turns the table of those names into the package's
attributes and submodules (`tf.nn`, `tf.train`, ...).
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import types
from typing import Any

from penstock import ops
from penstock.api.compat import VERSION
from penstock.api.export import Lazy, resolve, table
from penstock.api.lazy import MODULES as LAZY_MODULES
from penstock.graph.quiet_gc import paused, settle

__all__ = ["VERSION", "assemble", "lazy_names", "load_all", "resolve"]


def load_all() -> None:
    """Imports every op family and every module of this folder that is not lazy, so that registry and export table are complete."""
    ops.load_all()
    _import_below(__name__, __path__)


def _import_below(package: str, path: Any) -> None:
    for module in pkgutil.iter_modules(path):
        if f"{package}.{module.name}" in LAZY_MODULES:
            continue
        loaded = importlib.import_module(f"{package}.{module.name}")
        if module.ispkg:
            _import_below(loaded.__name__, loaded.__path__)


def assemble(package: str) -> None:
    """Puts every exported name where `import penstock as tf` users look for it."""
    with paused():
        load_all()
        _fill(package)
        settle()  # tens of thousands of objects that live as long as the process


def _fill(package: str) -> None:
    root = sys.modules[package]
    for name, value in table().items():
        *path, last = name.split(".")
        module: Any = root
        for depth, part in enumerate(path):
            module = _submodule(module, part, ".".join([package, *path[: depth + 1]]))
        if isinstance(value, Lazy):
            if path:
                _make_lazy(module, last, name)
        else:
            setattr(module, last, value)


def lazy_names() -> frozenset[str]:
    """Top-level names that are imported on first use."""
    return frozenset(name for name, value in table().items() if isinstance(value, Lazy) and "." not in name)


def _submodule(parent: Any, part: str, full: str) -> types.ModuleType:
    """The module that stands for `tf.<part>`: one of ours if it exists (errors, dtypes), else made here."""
    found = parent.__dict__.get(part)
    if isinstance(found, types.ModuleType):
        return found
    module = sys.modules.get(full)
    if module is None:
        module = types.ModuleType(full, f"Public names of tf.{full.split('.', 1)[1]}.")
        module.__path__ = []  # type: ignore[attr-defined]
        sys.modules[full] = module
    setattr(parent, part, module)
    return module


def _make_lazy(module: Any, last: str, name: str) -> None:
    pending: dict[str, str] = module.__dict__.setdefault("_pending", {})
    pending[last] = name
    if "__getattr__" not in module.__dict__:

        def getter(attribute: str) -> Any:
            if attribute in pending:
                value = resolve(pending[attribute])
                setattr(module, attribute, value)
                return value
            raise AttributeError(f"module {module.__name__!r} has no attribute {attribute!r}")

        module.__getattr__ = getter
        module.__dir__ = lambda: sorted({*module.__dict__, *pending} - {"_pending"})
