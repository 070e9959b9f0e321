"""NumPy's floating-point warnings, off while kernels run.

TF's kernels compute infinities and NaNs in silence. NumPy would warn, and a warning costs microseconds; so a step switches
them off once (`enter`, `leave`), and threads of our own for good (`silence_thread`). `np.errstate` does the same in about
0.9 us, most of which goes into building an object that never changes; the context variable behind it can be set directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _direct() -> tuple[Callable[[], Any], Callable[[Any], None]] | None:
    """enter and leave by NumPy's own context variable, if this NumPy has it and it does what we think."""
    try:
        from numpy._core._ufunc_config import _extobj_contextvar as variable  # type: ignore[attr-defined]
        from numpy._core._ufunc_config import _make_extobj  # type: ignore[attr-defined]

        ignore = _make_extobj(all="ignore")
        token = variable.set(ignore)
        works = set(np.geterr().values()) == {"ignore"}
        variable.reset(token)
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    return ((lambda: variable.set(ignore)), variable.reset) if works else None


def _by_errstate() -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def enter_errstate() -> Any:
        state = np.errstate(all="ignore")
        state.__enter__()
        return state

    return enter_errstate, lambda state: state.__exit__(None, None, None)


enter, leave = _direct() or _by_errstate()
"""`token = enter()` switches warnings off in this thread; `leave(token)` brings back what was before."""


def silence_thread() -> None:
    """Switches the warnings off for the rest of this thread's life."""
    np.seterr(all="ignore")
