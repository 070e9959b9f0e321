"""`tf.CriticalSection`: ops that never run at the same time as others of the same section, in any step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from penstock.api.export import export
from penstock.graph import nest
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw

_uids = itertools.count()


@export("CriticalSection")
class CriticalSection:
    """A lock around what `execute` builds.

    >>> section = tf.CriticalSection(name="counter")                        # doctest: +SKIP
    >>> value = section.execute(lambda: v.assign_add(1.0))                  # doctest: +SKIP
    """

    def __init__(
        self,
        name: str | None = None,
        shared_name: str | None = None,
        critical_section_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        if critical_section_def is not None:
            raise ValueError("Argument `critical_section_def` is not supported.")
        graph = get_default_graph()
        with graph.name_scope("CriticalSection" if name is None else name) as scope, graph.control_dependencies(None):
            self._handle = raw.MutexV2(shared_name=shared_name or f"{scope[:-1]}_{next(_uids)}")

    @property
    def name(self) -> str:
        return self._handle.op.name

    def execute(self, fn: Callable[[], Any], exclusive_resource_access: bool = True, name: str | None = None) -> Any:
        """Runs the ops that `fn()` makes under the lock; the result is what `fn` returned, available once the lock is free again."""
        graph = get_default_graph()
        with graph.name_scope("critical_section_execute" if name is None else name):
            lock = raw.MutexLock(self._handle)
            first = len(graph)
            with graph.control_dependencies([lock.op]):
                result = fn()
            made = list(graph)[first:]
            self._wait_for_inputs(lock.op, made)
            flat = [
                convert_to_tensor(r) if not isinstance(r, (Operation, type(None))) else r for r in nest.flatten(result)
            ]
            held = [r for r in flat if r is not None] or made
            with graph.control_dependencies(held):
                release = raw.ConsumeMutexLock(lock)
            with graph.control_dependencies([release]):
                done = [
                    raw.Identity(r) if isinstance(r, Tensor) else raw.NoOp() if isinstance(r, Operation) else None
                    for r in flat
                ]
            return nest.pack_sequence_as(result, done)

    @staticmethod
    def _wait_for_inputs(lock: Operation, made: list[Operation]) -> None:
        """Whatever the section needs from outside is computed before the lock is taken, or two sections could wait for each other."""
        inside = {lock, *made}
        for op in made:
            for source in [t.op for t in op.inputs] + list(op.control_inputs):
                if source not in inside:
                    lock._add_control_input(source)
