"""The scope stacks of a client's graph: names, devices, colocation, control dependencies, containers, attributes.

State (all per graph; stacks are plain values that a scope saves and restores, so that leaving a scope is exact)
    _name_stack        the current name scope without trailing slash, "" at the top
    _names_in_use      lower-cased name -> next suffix to try
    _device_stack      device functions and strings, outermost first
    _colocation_stack  operations to be colocated with
    _controllers       open `control_dependencies` scopes, outermost first
    _container         resource container for new stateful ops
    _attr_scopes       attributes forced on new ops (`_attr_scope`), and the gradient override map
    _control_flow_context   the open CondContext / WhileContext, or None
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from penstock import names

if TYPE_CHECKING:
    from penstock.graph.ir import Operation


class _Controller:
    """One open `control_dependencies` scope: what new ops wait for, and which ops were made inside."""

    __slots__ = ("context", "graph", "new_stack", "old_context", "old_stack", "ops", "seen")

    def __init__(self, graph: Any, ops: list[Operation] | None) -> None:
        self.graph = graph
        self.ops: list[Operation] = ops or []
        self.new_stack = ops is None
        self.seen: set[Operation] = set()
        self.old_stack: list[_Controller] = []
        self.old_context: Any = None

    def __enter__(self) -> _Controller:
        if self.new_stack:
            # control_dependencies(None): forget enclosing control scopes and control-flow contexts alike.
            self.old_stack = self.graph._controllers
            self.graph._controllers = []
            self.old_context = self.graph._control_flow_context
            self.graph._control_flow_context = None
        self.graph._controllers.append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self.graph._controllers or self.graph._controllers[-1] is not self:
            raise AssertionError("control_dependencies scopes must be left in the order they were entered")
        self.graph._controllers.pop()
        if self.new_stack:
            self.graph._controllers = self.old_stack
            self.graph._control_flow_context = self.old_context

    def op_in_group(self, op: Operation) -> bool:
        return op in self.seen


class Scopes:
    """The part of `tf.Graph` that decides what a new op is called, where it goes and what it waits for."""

    def __init__(self) -> None:
        self._name_stack = ""
        self._names_in_use: dict[str, int] = {}
        self._device_stack: list[tuple[Any, Callable[[Any], str] | None]] = []
        self._device_cache: str | None = ""
        self._colocation_stack: list[Operation] = []
        self._controllers: list[_Controller] = []
        self._container = ""
        self._attr_scopes: dict[str, Any] = {}
        self._gradient_overrides: dict[str, str] = {}
        self._control_flow_context: Any = None
        self._original_op: Operation | None = None

    if TYPE_CHECKING:  # what Graph adds

        def _check_not_finalized(self) -> None: ...
        def as_graph_element(self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True) -> Any: ...

    # -- names ----------------------------------------------------------------------------------------------------------

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """`name` within the current scope, with `_1`, `_2`, ... behind it if it is taken."""
        if self._name_stack:
            name = self._name_stack + "/" + name
        # Names are compared without case, as file systems and TensorBoard do.
        key = name.lower()
        count = self._names_in_use.get(key, 0)
        if count == 0:
            if mark_as_used:
                self._names_in_use[key] = 1
            return name
        if mark_as_used:
            self._names_in_use[key] = count + 1
        base = name
        while key in self._names_in_use:
            name = f"{base}_{count}"
            key = name.lower()
            count += 1
        if mark_as_used:
            self._names_in_use[key] = 1
        return name

    @contextlib.contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Prefixes the names of ops made inside with `name`; "" or None goes to the top, a trailing "/" re-enters a scope."""
        old = self._enter_name_scope(name)
        new = self._name_stack
        try:
            yield "" if not new else new + "/"
        finally:
            self._name_stack = old

    def _enter_name_scope(self, name: str | bytes | None) -> str:
        """Makes `name` the current scope and returns the one before, which leaving must put back."""
        old = self._name_stack
        if not name:
            self._name_stack = ""
            return old
        if isinstance(name, bytes):
            name = name.decode()
        names.check_scope_name(name, at_root=not old)
        self._name_stack = name[:-1] if name.endswith("/") else self.unique_name(name)
        return old

    def get_name_scope(self) -> str:
        return self._name_stack

    def is_name_used(self, name: str) -> bool:
        return name.lower() in self._names_in_use

    # -- devices --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def device(self, device_name_or_function: Any) -> Iterator[None]:
        """Puts ops made inside on a device: a name, a DeviceSpec, a function from Operation to name, or None (no scope)."""
        old_stack, old_cache = self._device_stack, self._device_cache
        self._device_stack = [*old_stack, _device_entry(device_name_or_function)]
        self._device_cache = None
        try:
            yield
        finally:
            if self._device_stack[: len(old_stack)] != old_stack or len(self._device_stack) != len(old_stack) + 1:
                raise RuntimeError("Exiting device scope without proper scope nesting.")
            self._device_stack, self._device_cache = old_stack, old_cache

    def _device_for(self, op: Operation) -> str:
        """The device that the open scopes give to `op`: the innermost setting of each part wins."""
        cached = self._device_cache
        if cached is not None:
            return cached
        result = ""
        only_strings = True
        for value, function in reversed(self._device_stack):
            if value is None and function is None:  # device(None): outer scopes do not count
                break
            if function is None:
                result = names.full_name(result, value)
            else:
                only_strings = False
                op.device = result
                answer = function(op)
                result = _as_text(answer)
        if only_strings:
            self._device_cache = result
        return result

    @contextlib.contextmanager
    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Iterator[None]:
        """Ops made inside share `op`'s device."""
        self._check_not_finalized()
        if op is None and not ignore_existing:
            raise ValueError("Trying to reset colocation (op is None) but ignore_existing is not True")
        target = None if op is None else getattr(op, "op", op)
        old_colocation = self._colocation_stack
        old_devices, old_cache = self._device_stack, self._device_cache
        self._colocation_stack = ([] if ignore_existing else list(old_colocation)) + ([target] if target is not None else [])
        # Inside, only the colocation decides: explicit device scopes outside of it do not apply.
        self._device_stack, self._device_cache = [], ""
        try:
            yield
        finally:
            self._colocation_stack = old_colocation
            self._device_stack, self._device_cache = old_devices, old_cache

    # -- control dependencies -------------------------------------------------------------------------------------------

    def control_dependencies(self, control_inputs: Any) -> _Controller:
        """Ops made inside run after `control_inputs`; None clears all enclosing control dependencies."""
        if control_inputs is None:
            return _Controller(self, None)
        ops: list[Operation] = []
        for item in control_inputs:
            # Composites (IndexedSlices, SparseTensor) stand for the op of their values, resource variables for their handle or the
            # write that gave them; everything else goes through the graph.
            item = getattr(item, "_control_input_op", item)
            values = getattr(item, "values", None)
            element = self.as_graph_element(values if hasattr(values, "op") else item)
            op = getattr(element, "op", element)
            if op not in ops:
                ops.append(op)
        return _Controller(self, ops)

    def _control_inputs_for(self, input_ops: list[Operation]) -> list[Operation]:
        """The control inputs of a new op: each open scope's, unless an input was itself made in that scope."""
        result: list[Operation] = []
        for controller in self._controllers:
            if any(op in controller.seen for op in input_ops):
                continue
            result.extend(op for op in controller.ops if op not in input_ops and op not in result)
        return result

    def _record_op_seen(self, op: Operation) -> None:
        for controller in self._controllers:
            controller.seen.add(op)

    def _current_control_dependencies(self) -> set[Operation]:
        return {op for controller in self._controllers for op in controller.ops}

    # -- the rest -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def container(self, container_name: str) -> Iterator[str]:
        """Stateful ops made inside keep their state in the named container (see `Session.reset`)."""
        old, self._container = self._container, container_name
        try:
            yield self._container
        finally:
            self._container = old

    @contextlib.contextmanager
    def _attr_scope(self, attr_map: dict[str, Any]) -> Iterator[None]:
        if not isinstance(attr_map, dict):
            raise TypeError(f"attr_map must be a dictionary mapping strings to Callable, but got {type(attr_map)}")
        old = self._attr_scopes
        self._attr_scopes = {**old, **attr_map}
        self._attr_scopes = {k: v for k, v in self._attr_scopes.items() if v is not None}
        try:
            yield
        finally:
            self._attr_scopes = old

    @contextlib.contextmanager
    def gradient_override_map(self, op_type_map: dict[str, str]) -> Iterator[None]:
        """Ops made inside use another registered gradient: {"Square": "CustomSquare"}."""
        if not isinstance(op_type_map, dict):
            raise TypeError("op_type_map must be a dictionary mapping strings to strings")
        for key, value in op_type_map.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError("op_type_map must be a dictionary mapping strings to strings")
        old = self._gradient_overrides
        self._gradient_overrides = {**old, **op_type_map}
        try:
            yield
        finally:
            self._gradient_overrides = old

    @contextlib.contextmanager
    def _original_op_scope(self, op: Operation | None) -> Iterator[None]:
        old, self._original_op = self._original_op, op
        try:
            yield
        finally:
            self._original_op = old

    def _get_control_flow_context(self) -> Any:
        return self._control_flow_context

    def _set_control_flow_context(self, context: Any) -> None:
        self._control_flow_context = context

    # `switch_to_thread_local` and `as_default` belong to defaults.py
    def as_default(self) -> Any:
        """A context manager that makes this graph the default graph of the thread."""
        from penstock.graph.defaults import graph_scope

        return graph_scope(cast("Any", self))

    def switch_to_thread_local(self) -> None:
        """Accepted for TF1 programs; scopes here are per graph and graphs are built by one thread at a time."""


def _as_text(device: Any) -> str:
    """A device name out of a str, bytes, DeviceSpec or None."""
    if isinstance(device, bytes):
        return device.decode()
    return device.to_string() if hasattr(device, "to_string") else device or ""


def _device_entry(value: Any) -> tuple[Any, Callable[[Any], str] | None]:
    if value is None:
        return None, None
    if callable(value) and not hasattr(value, "to_string"):
        return None, cast("Callable[[Any], str]", value)
    text = _as_text(value)
    return names.DeviceSpec.from_string(text).to_string() if text else "", None
