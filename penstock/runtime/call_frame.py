"""The call frame: how arguments get into a step and results out of it.

Fed values stand in `args`, where `_Arg` nodes find them; `_Retval` nodes put results into `retvals`. An entry that is still
`MISSING` at the end belongs to a fetch that the step never computed (the untaken side of a Switch).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock import errors
from penstock.ops.resources import Ref


class _Missing:
    def __repr__(self) -> str:
        return "<no value>"


MISSING: Any = _Missing()


class CallFrame:
    """Arguments and results of one step or one function call."""

    __slots__ = ("args", "retvals")

    def __init__(self, args: Sequence[Any], n_retvals: int) -> None:
        self.args = args
        self.retvals: list[Any] = [MISSING] * n_retvals

    def get_arg(self, index: int) -> Any:
        if 0 <= index < len(self.args):
            return self.args[index]
        raise errors.InvalidArgumentError(f"GetArg {index} is not within [0, {len(self.args)})")

    def set_retval(self, index: int, value: Any) -> None:
        retvals = self.retvals
        if not 0 <= index < len(retvals):
            raise errors.InvalidArgumentError(f"SetRetval {index} is not within [0, {len(retvals)})")
        if retvals[index] is not MISSING:
            raise errors.InternalError(f"Retval[{index}] has already been set.")
        retvals[index] = value

    def take_retvals(self, allow_dead: bool = False) -> list[Any]:
        """All results, in order; the frame forgets them. InvalidArgumentError if one was never set, unless
        `allow_dead`, which leaves `MISSING` in its place."""
        retvals = self.retvals
        for i, value in enumerate(retvals):
            if value is MISSING and not allow_dead:
                raise errors.InvalidArgumentError(f"Retval[{i}] does not have value")
            if isinstance(value, Ref):
                retvals[i] = value.read()
        self.retvals = [MISSING] * len(retvals)
        return retvals
