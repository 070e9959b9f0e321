"""Variables that one compiled program updates step after step, held together between its steps.

To take a training step's variables one by one (lock, look whether somebody else sees the value, make the variable empty, put the new value, unlock)
costs more than the rest of what Python does for the step. So the program keeps all new values in a `Bundle`, and the variables only say in which.
Whoever else reads or writes one of them unties the bundle first: every variable gets its value back, and the next step takes them one by one again.
Nobody can see an array in a bundle, so that it may always be written over.

Locks: a bundle's own lock comes last. A step on a bundle holds that one alone; whoever unties may hold locks of variables; to tie, the locks of the
variables are held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.ops.resources import HeldRef, Ref, put_raw, raw_value


class Bundle:
    """The values of `refs`, in the same order or as `split` finds them, or None where the variables have them. `give` hands a variable its
    value back."""

    __slots__ = ("give", "lock", "refs", "split", "values")

    def __init__(
        self, refs: Sequence[Ref], give: Callable[[Ref, Any], None], split: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    ) -> None:
        self.refs = refs
        self.give = give
        self.split = split
        self.lock = threading.RLock()
        self.values: Sequence[Any] | None = None

    def tie(self, values: Sequence[Any]) -> None:
        """Takes the values in. Call with the locks of all the variables held, and the variables empty."""
        with self.lock:
            self.values = values
            for ref in self.refs:
                ref.__class__ = BundledRef
                put_raw(ref, self)

    def untie(self) -> None:
        """The variables have their values again."""
        with self.lock:
            values = self.values
            if values is not None:
                if self.split is not None:
                    values = self.split(values)
                self.values = None
                for ref, value in zip(self.refs, values):
                    self.give(ref, value)


class BundledRef(Ref):
    """A variable whose value is in a bundle."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        held = untied(self)
        # Between two steps of `give`, or of `tie`: the value is there, the class is not yet.
        return np.asarray(held) if self.__class__ is BundledRef and held is not None else self.value

    @value.setter
    def value(self, new: Any) -> None:
        untied(self)
        put_raw(self, new)
        self.__class__ = Ref  # type: ignore[assignment]


def untied(ref: Ref) -> Any:
    """What the variable itself holds (see `raw_value`), out of its bundle if need be."""
    held = raw_value(ref)
    while held.__class__ is Bundle:
        held.untie()
        held = raw_value(ref)
    return held


def give_back(ref: Ref, value: Any) -> None:
    """How a variable of an accelerator gets its value back: as it is."""
    put_raw(ref, value)
    ref.__class__ = Ref


def give_to_hold(ref: Ref, value: Any) -> None:
    """How a variable of a CPU does: NumPy's view of it is made when somebody asks (`HeldRef`)."""
    put_raw(ref, value)
    ref.__class__ = HeldRef
