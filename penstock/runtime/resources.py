"""What outlives a step: a device's resources in named containers, and a session's kernel state.

State of a ResourceManager
    _containers    container name -> {(class, name): resource}
    version        changes whenever a resource is let go of, so that a kernel may remember what it has looked up

Resources are kept under the class they were created for, as TF keeps them under their C++ type: a queue and a table of one
name are two resources. A resource with a `dispose()` method is told, outside of all locks, when the manager lets go of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from penstock import errors
from penstock.forks import renewed
from penstock.ops.resources import DEFAULT_CONTAINER, ResourceHandle


class ResourceManager:
    """Named resources of one device. Safe to use from many threads."""

    def __init__(self, default_container: str = DEFAULT_CONTAINER) -> None:
        self.default_container = default_container
        self._containers: dict[str, dict[tuple[Any, str], Any]] = {}
        self._lock = renewed(threading.RLock())
        self.version = 0  # goes up when something is forgotten: who remembers a resource must look again

    def _container(self, container: str | bytes) -> str:
        if container.__class__ is bytes:
            container = container.decode()  # type: ignore[union-attr]
        return container or self.default_container  # type: ignore[return-value]

    def find(self, container: str, name: str, cls: Any) -> Any:
        """The resource, or None. `cls` None finds it under any class."""
        resources = self._containers.get(self._container(container))
        if resources is None:
            return None
        if cls is not None:
            return resources.get((cls, name))
        with self._lock:
            return next((resource for (_, n), resource in resources.items() if n == name), None)

    def lookup(self, container: str, name: str, cls: Any) -> Any:
        """The resource of that name and class; NotFoundError if there is none."""
        found = self.find(container, name, cls)
        if found is None:
            self._not_found(self._container(container), name, cls)
        return found

    def lookup_handle(self, handle: ResourceHandle, cls: Any) -> Any:
        """What a handle leads to: the object it carries, or the one of its name."""
        return handle.resource if handle.resource is not None else self.lookup(handle.container, handle.name, cls)

    def lookup_or_create(self, container: str, name: str, cls: Any, make: Callable[[], Any]) -> Any:
        """The resource of that name; `make()` makes it, once, if there is none. `make` may use this manager but must not
        wait for other threads."""
        found = self.find(container, name, cls)
        if found is not None:
            return found
        with self._lock:
            found = self.find(container, name, cls)
            if found is None:
                found = make()
                self._containers.setdefault(self._container(container), {})[cls, name] = found
            return found

    def create(self, container: str, name: str, cls: Any, resource: Any) -> Any:
        """Keeps `resource` under that name; AlreadyExistsError if the name is taken."""
        container = self._container(container)
        with self._lock:
            resources = self._containers.setdefault(container, {})
            if (cls, name) in resources:
                raise errors.AlreadyExistsError(f"Resource {container}/{name}/{_class_name(cls)}")
            resources[cls, name] = resource
        return resource

    def delete(self, container: str, name: str, cls: Any) -> None:
        """Forgets the resource; NotFoundError if there is none. `cls` None takes any class."""
        container = self._container(container)
        with self._lock:
            resources = self._containers.get(container, {})
            key = next((k for k in resources if k[1] == name and cls in (None, k[0])), None)
            resource = None if key is None else resources.pop(key)
            self.version += 1
        if key is None:
            self._not_found(container, name, cls)
        _dispose([resource])

    def cleanup(self, container: str) -> None:
        """Forgets everything in `container` (`tf.Session.reset`)."""
        with self._lock:
            resources = self._containers.pop(self._container(container), {})
            self.version += 1
        _dispose(resources.values())

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            containers, self._containers = self._containers, {}
            self.version += 1
        for resources in containers.values():
            _dispose(resources.values())

    def items(self) -> list[tuple[str, str, Any]]:
        """(container, name, resource) of everything, for tools."""
        with self._lock:
            return [(c, name, r) for c, resources in self._containers.items() for (_, name), r in resources.items()]

    def _not_found(self, container: str, name: str, cls: Any) -> None:
        if container not in self._containers:
            raise errors.NotFoundError(
                f"Container {container} does not exist. (Could not find resource: {container}/{name})"
            )
        raise errors.NotFoundError(f"Resource {container}/{name}/{_class_name(cls)} does not exist.")


def _class_name(cls: Any) -> str:
    return getattr(cls, "__name__", str(cls))


def _dispose(resources: Any) -> None:
    for resource in resources:
        dispose = getattr(resource, "dispose", None)
        if dispose is not None:
            dispose()


class OpSegment:
    """Kernel state of one session: what a node's kernel keeps across steps and signatures (a random generator's counter,
    the handle of a lazily made resource)."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[str, SimpleNamespace] = {}

    def state(self, node_name: str) -> SimpleNamespace:
        """The namespace of that node; the same one for the whole life of the session."""
        found = self._states.get(node_name)
        # setdefault is atomic, so two signatures compiled at the same time agree on one namespace.
        return found if found is not None else self._states.setdefault(node_name, SimpleNamespace())
