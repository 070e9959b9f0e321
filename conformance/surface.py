"""The public surface of both packages: names, kinds, signatures. What test_api.py compares.

A surface is {dotted name: object}. TensorFlow's is that of tf.compat.v1, without packages that are products of their own.
"""

from __future__ import annotations

import enum
import inspect
import pathlib
import types
from collections.abc import Iterator
from typing import Any

# Packages of tf.compat.v1 that Penstock does not set out to have.
ELSEWHERE = frozenset(
    ("keras", "lite", "tpu", "compat", "estimator", "distribute", "mlir", "xla", "autodiff", "autograph", "app", "flags", "test", "layers", "raw_ops", "pywrap_tensorflow")
)
NO_DEFAULT = inspect.Parameter.empty


def tensorflow_surface(tf: Any) -> dict[str, Any]:
    """Every public name of TensorFlow 1, by walking its modules."""
    found: dict[str, Any] = {}
    _walk(tf, "", found, set())
    return found


def _walk(module: Any, prefix: str, found: dict[str, Any], seen: set[int]) -> None:
    if id(module) in seen:
        return
    seen.add(id(module))
    for name in dir(module):
        if name.startswith("_"):
            continue
        try:
            value = getattr(module, name)
        except (AttributeError, ImportError):
            continue  # parts that need Keras
        if isinstance(value, types.ModuleType):
            if name not in ELSEWHERE and "tensorflow" in str(vars(value).get("__name__", "")) and prefix.count(".") < 3:
                _walk(value, f"{prefix}{name}.", found, seen)
        else:
            found[prefix + name] = value


def penstock_surface() -> dict[str, Any]:
    """Every public name of Penstock."""
    import penstock
    from penstock.tools.apitable import public_names

    def get(name: str) -> Any:
        value: Any = penstock
        for part in name.split("."):
            value = getattr(value, part)
        return value

    return {name: get(name) for name in public_names()}


def absent() -> list[str]:
    """The names of TensorFlow that Penstock lacks, as conformance/api_absent.txt has them."""
    from penstock.tools.apitable import absent_names

    return absent_names(pathlib.Path(__file__).resolve().parent.parent)


def kind_of(value: Any) -> str:
    if inspect.isclass(value):
        return "class"
    return "function" if callable(value) else "value"


def signature(value: Any) -> inspect.Signature | None:
    """The signature that a caller sees; None if there is none to see."""
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):
        return None


def parameters(value: Any) -> list[inspect.Parameter] | None:
    found = signature(value)
    if found is None:
        return None
    return [p for p in found.parameters.values() if p.name not in ("self", "cls")]


def plain(default: Any) -> Any:
    """A default value in a form that can be compared across the packages."""
    if default is NO_DEFAULT or default is None or isinstance(default, (bool, int, float, str, bytes)):
        return default
    if isinstance(default, enum.Enum):
        return default.name
    if isinstance(default, (tuple, list)):
        return tuple(plain(d) for d in default)
    name = getattr(default, "name", None)
    if type(default).__name__ == "DType":
        return f"dtype {name}"
    return f"<{type(default).__name__}>"


def differences(ours: Any, theirs: Any) -> Iterator[str]:
    """What a caller of `theirs` would notice when handed `ours`, one line each."""
    if kind_of(ours) != kind_of(theirs):
        if not {kind_of(ours), kind_of(theirs)} <= {"class", "function"}:
            yield f"is a {kind_of(ours)}, in TensorFlow a {kind_of(theirs)}"
            return
    if kind_of(theirs) == "value":
        return
    mine, wanted = parameters(ours), parameters(theirs)
    if mine is None or wanted is None:
        return
    if all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in wanted):
        return  # nothing to hold on to
    yield from _parameter_differences(mine, wanted)


def _parameter_differences(mine: list[inspect.Parameter], wanted: list[inspect.Parameter]) -> Iterator[str]:
    takes_anything = any(p.kind is p.VAR_KEYWORD for p in mine)
    by_name = {p.name: p for p in mine}
    positional = [p.name for p in mine if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for i, p in enumerate(wanted):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        own = by_name.get(p.name)
        if own is None:
            if not takes_anything:
                yield f"has no argument {p.name!r}"
            continue
        if p.kind is p.POSITIONAL_OR_KEYWORD and (i >= len(positional) or positional[i] != p.name):
            yield f"argument {p.name!r} is not at position {i}"
        if plain(own.default) != plain(p.default):
            if own.default is not NO_DEFAULT and (p.default is NO_DEFAULT or not _comparable(p.default)):
                continue  # more may be left out, or the value is an object of its own package
            yield f"the default of {p.name!r} is {_shown(own.default)}, in TensorFlow {_shown(p.default)}"
    known = {p.name for p in wanted}
    if not any(p.kind is p.VAR_KEYWORD for p in wanted):
        for p in mine:
            if p.name not in known and p.default is NO_DEFAULT and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                yield f"needs an argument {p.name!r} that TensorFlow does not have"


def _comparable(default: Any) -> bool:
    return not str(plain(default)).startswith("<")


def _shown(default: Any) -> str:
    return "missing" if default is NO_DEFAULT else repr(plain(default))


def methods(cls: Any) -> dict[str, Any]:
    """The public methods and properties of a class that it or its bases define."""
    found = {}
    for name in dir(cls):
        if not name.startswith("_"):
            found[name] = inspect.getattr_static(cls, name)
    return found
