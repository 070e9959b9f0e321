"""Sessions by target: the registry that `tf.Session(target)` asks.

A factory says which targets it serves and makes the runtime behind a session. The direct factory serves ""; a cluster's factory will
serve "grpc://...".
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from penstock import errors
from penstock.graph.ir import Graph


class Runtime(Protocol):
    """What a session needs from the runtime behind it."""

    def prepare(self, signature: Any, options: Any = None) -> Any: ...
    def run(self, prepared: Any, args: list[Any], options: Any = None, metadata: Any = None) -> list[Any]: ...
    def close(self) -> None: ...
    def list_devices(self) -> list[Any]: ...


class SessionFactory(Protocol):
    """Makes runtimes for some targets."""

    def accepts(self, target: str) -> bool: ...
    def new_runtime(self, target: str, graph: Graph, config: Any) -> Runtime: ...
    def reset(self, target: str, containers: list[str], config: Any) -> None: ...


_factories: dict[str, SessionFactory] = {}
_BUILT_IN = ("penstock.session.direct",)  # modules that register a factory; loaded with the first session


def register_session_factory(name: str, factory: SessionFactory) -> None:
    """Adds a factory under a name of its own."""
    if name in _factories:
        raise errors.AlreadyExistsError(f"A session factory named {name} is registered already")
    _factories[name] = factory


def factory_for(target: str) -> SessionFactory:
    """The one factory that accepts `target`; NotFoundError or InternalError in TF's words otherwise."""
    for module in _BUILT_IN:
        importlib.import_module(module)
    able = {name: factory for name, factory in _factories.items() if factory.accepts(target)}
    if len(able) == 1:
        return next(iter(able.values()))
    known = ", ".join(sorted(_factories))
    if not able:
        raise errors.NotFoundError(f'No session factory registered for the given session options: {{target: "{target}"}} Registered factories are {{{known}}}.')
    raise errors.InternalError(f'Multiple session factories registered for the given session options: {{target: "{target}"}} Candidate factories are {{{", ".join(sorted(able))}}}.')
