"""What a kernel sees of its step: `ctx`, for kernels whose first parameter is called so.

One OpContext serves all kernels of a partition during a step, so that it costs next to nothing to make. It joins the
device's side (name, resources) with the step's side (call frame, rendezvous, cancellation, per-step resources), which is any
object with the attributes that the properties below read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Dead:
    """The value of an edge that carries none: what the untaken output of a Switch, or a Recv of a dead value, gives."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DEAD"

    def __reduce__(self) -> str:
        return "DEAD"


DEAD = _Dead()

ROOT_FRAME_ITER = "0:0"


class OpContext:
    """The step, as kernels of one device see it."""

    __slots__ = ("_step", "device", "iteration", "resources")

    def __init__(self, step: Any, device: Any) -> None:
        self._step = step
        self.device = device
        self.resources = device.resources
        self.iteration: Any = None  # the executor's loop iteration while a kernel inside of a loop is called

    @property
    def step_id(self) -> int:
        return self._step.step_id

    @property
    def step_resources(self) -> dict[Any, Any]:
        """Objects that live until the step ends (TensorArrays, stacks); calls of functions share their caller's."""
        return self._step.step_resources

    @property
    def rendezvous(self) -> Any:
        return self._step.rendezvous

    @property
    def call_frame(self) -> Any:
        return self._step.call_frame

    @property
    def cancellation(self) -> Any:
        """CancellationManager of the step: `register(callback) -> token or None`, `deregister(token)`, `is_cancelled`."""
        return self._step.cancellation

    @property
    def session_state(self) -> Any:
        return self._step.session_state

    @property
    def functions(self) -> Any:
        """The FunctionRuntime, for kernels that call functions after their step has ended (dataset iterators)."""
        return self._step.functions

    @property
    def frame_iter(self) -> str:
        """ "frame:iteration" for rendezvous keys. Only meaningful while the kernel is being called."""
        iteration = self.iteration
        return ROOT_FRAME_ITER if iteration is None else iteration.frame_iter

    def call(self, func: Any, args: list[Any], done: Callable[..., Any]) -> None:
        """Runs a library function (a FuncAttr or a name). Later, never before this returns, `done(results)` is called with
        the list of results, or `done(None, error)`. For asynchronous kernels only."""
        self._step.call_function(func, args, done, self.device)

    def run_blocking(self, function: Callable[[], Any]) -> None:
        """Runs `function()` on a thread that may wait. It must report its own errors, through `done`."""
        self._step.run_blocking(function)
