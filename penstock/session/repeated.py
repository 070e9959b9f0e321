"""Shapes that are fed again and again: a signature that leaves sizes open (`[None, 784]`) gets executors of their own for them.

State of `Repeated`
    open      which feeds may come in another shape
    counts    shapes of these -> steps that have had them; None when they are not counted any more
    forms     shapes of these -> the Prepared for them, or None while it is compiled or if it could not be

They are compiled beside the steps, code and all, so that no step waits and none runs node by node again.

`PENSTOCK_SHAPES` in the environment: 0 never, 1 when they have been repeated (the default), eager in the first step.
"""

from __future__ import annotations

import logging
import os
import weakref
from typing import Any

from penstock.engines.turns import beside
from penstock.engines.xla.backend import is_deterministic
from penstock.graph import spec
from penstock.graph.ir import Graph
from penstock.pipeline.shapes import Contradiction
from penstock.runtime.executor.compiled import OFF, mode
from penstock.runtime.executor.joined import together
from penstock.runtime.threads import run_blocking
from penstock.shapes import is_fully_defined

STEPS = 16
"""Steps with the same shapes after which they are worth executors of their own."""
MOST_FORMS = 4
MOST_COUNTED = 64
"""Different shapes after which nobody counts any more: these are data, not a batch size."""


def repeated(prepared: Any, partitions: dict[str, Graph]) -> Repeated | None:
    """What watches the shapes of a signature's feeds, if that could gain something."""
    signature = prepared.signature
    wish = os.environ.get("PENSTOCK_SHAPES", "1").strip().lower()
    if not signature.feeds or signature.through_rendezvous or wish in ("0", "off", "false") or mode() == OFF:
        return None
    if is_deterministic():
        return None  # when they take over would depend on how busy the machine is
    args = [op for part in partitions.values() for op in part if op.type == "_Arg"]
    if any(executor._offloads for executor in prepared.executors):
        return None  # what compiles by shapes anyway
    is_open = sorted({op.attrs["index"] for op in args if not is_fully_defined(op.outputs[0].dims)})
    return Repeated(prepared, is_open, wish == "eager") if is_open else None


class Repeated:
    """See the module's docstring."""

    __slots__ = ("_eager", "_prepared", "counts", "forms", "open")

    def __init__(self, prepared: Any, is_open: list[int], eager: bool = False) -> None:
        self._prepared = weakref.ref(prepared)
        self._eager = eager
        self.open = is_open
        self.counts: dict[Any, int] | None = {}
        self.forms: dict[Any, Any] = {}

    def form_for(self, args: list[Any]) -> Any:
        """The Prepared for the shapes of these values, if there is one."""
        try:
            key = tuple([args[i].shape for i in self.open])
        except AttributeError:  # a handle of a tensor that is kept in the session, say
            return None
        found = self.forms.get(key)
        if found is None and self.counts is not None and key not in self.forms:
            self._count(key, args)
            found = self.forms.get(key)
        return found

    def _count(self, key: Any, args: list[Any]) -> None:
        counts = self.counts
        if counts is None:
            return
        counts[key] = seen = counts.get(key, 0) + 1
        if seen >= STEPS or self._eager:
            self.forms[key] = None
            shapes = tuple(tuple(args[i].shape) if i in self.open else None for i in range(len(args)))
            if self._eager:
                self._compile(key, shapes)
            else:
                run_blocking(lambda: self._compile(key, shapes))
        if len(self.forms) >= MOST_FORMS or len(counts) > MOST_COUNTED:
            self.counts = None

    def _compile(self, key: Any, shapes: tuple) -> None:
        prepared = self._prepared()
        if prepared is None or prepared.runtime.closed:
            return
        try:
            with beside():
                form = prepared.runtime.prepare_for(prepared.signature, shapes)
            general, own = _program(prepared), _program(form)
            if general is not None and own is not None and general.is_for_kernels:
                own.watch = None  # one of many shapes: XLA would be tried on each of their forms
            self.forms[key] = form
        except Contradiction:
            return  # the executors for any shape go on
        except Exception:
            if prepared.runtime.closed:
                return  # meanwhile
            if spec.enabled:
                raise
            # The executors for any shape go on.
            logging.getLogger("penstock.regions").exception("Nothing was compiled for the shapes that are fed again and again")


def _program(prepared: Any) -> Any:
    """The generated program that a signature's steps run as, if there is one by now."""
    compiler = together(prepared.executors).compiler
    return None if compiler is None else compiler.program
