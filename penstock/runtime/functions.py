"""Calling library functions: instantiates them, and runs their bodies as nested steps.

A function's body is compiled to executors once per set of attribute values, by `compile_function`, which the pipeline provides. A call
from a kernel becomes a child step of the same driver, so that neither recursion nor a long functional loop uses the Python stack.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock import errors
from penstock.forks import renewed
from penstock.formats.attr_value import FuncAttr
from penstock.graph.build import arg_dtypes
from penstock.graph.function import attr_key
from penstock.ops.resources import ResourceHandle
from penstock.runtime.call_frame import CallFrame
from penstock.runtime.cancellation import CancellationManager
from penstock.runtime.executor.shell import Executor, run_step
from penstock.runtime.executor.step import Step
from penstock.runtime.story import as_op_error

MAX_DEPTH = 2000
"""How deep calls may nest; a function that calls itself without end stops here."""

MAX_BLOCKING_DEPTH = 40
"""The same for `run`, which uses the Python stack."""


class Instance:
    """A function instantiated with attributes: its executors, how many arguments it takes and how many results it has."""

    __slots__ = ("executors", "n_args", "n_retvals", "name")

    def __init__(self, name: str, executors: Sequence[Executor], n_args: int) -> None:
        self.name = name
        self.executors = list(executors)
        self.n_args = n_args
        self.n_retvals = max((e.plan.n_retvals for e in self.executors), default=0)


GRADIENT = "SymbolicGradient"
"""Calling a function of this name, with the attribute `f`, calls the gradient of `f`."""

_WHERE = ("_target", "_arg_devices")  # attributes that say where a body runs, and where its resources are


class FunctionRuntime:
    """The functions of a session's graph. `functions` maps names to Functions (it may grow),
    `compile_function(function, attrs)` gives the executors of a body, and `gradient_of(func)` the gradient function of a function."""

    def __init__(
        self,
        functions: Mapping[str, Any],
        compile_function: Callable[[Any, dict[str, Any]], Sequence[Executor]],
        gradient_of: Callable[[FuncAttr], Any] | None = None,
    ) -> None:
        self.functions = functions
        self._compile = compile_function
        self._gradient_of = gradient_of
        self.many_devices = False  # then bodies are placed by the devices of the resources they are given
        self._instances: dict[Any, Instance] = {}
        self._recent: dict[int, tuple[FuncAttr, Any, Instance]] = {}  # id of a node's attribute -> (it, its function, the instance)
        self._lock = renewed(threading.RLock())
        self._local = threading.local()

    def instantiate(self, func: FuncAttr | str | bytes, attrs: dict[str, Any] | None = None) -> Instance:
        """The function for these attributes, compiled on first use. NotFoundError if there is none of that name."""
        bound: dict[str, Any] = attrs or {}
        if isinstance(func, FuncAttr):
            name, bound = func.name, {**func.attrs, **bound}
        else:
            name = func.decode() if isinstance(func, bytes) else func
        if name == GRADIENT and self._gradient_of is not None and "f" in bound:
            function = self._gradient_of(bound["f"])
            bound = {**bound["f"].attrs, **{k: v for k, v in bound.items() if k in _WHERE}}
        else:
            function = self.functions.get(name)
        if function is None:
            raise errors.NotFoundError(f"Function {name} is not defined.")
        # The Function object belongs to the key: a library may replace a function by another of the same name.
        key = (function.name, id(function), attr_key(bound))
        found = self._instances.get(key)
        if found is None:
            with self._lock:
                found = self._instances.get(key)
                if found is None:
                    executors = self._compile(function, bound)
                    found = self._instances[key] = Instance(name, executors, len(arg_dtypes(function.op_def.inputs, bound)))
        return found

    def _instance(self, func: Any) -> Instance:
        """As `instantiate`, quicker for the attributes of nodes, which come again and again."""
        known = self._recent.get(id(func))
        if known is not None and known[0] is func and self.functions.get(func.name) is known[1]:
            return known[2]
        instance = self.instantiate(func)
        if isinstance(func, FuncAttr) and func.name in self.functions:
            if len(self._recent) >= 1000:
                self._recent.clear()
            self._recent[id(func)] = (func, self.functions[func.name], instance)
        return instance

    def _placed(self, func: Any, args: Sequence[Any], device: str) -> FuncAttr:
        """The function for a body on `device` whose resources are where they are."""
        if not isinstance(func, FuncAttr):
            func = FuncAttr(_name(func))
        where = {i: arg.device for i, arg in enumerate(args) if arg.__class__ is ResourceHandle and arg.device != device}
        extra: dict[str, Any] = {"_arg_devices": where} if where else {}
        return FuncAttr(func.name, {"_target": device, **func.attrs, **extra})

    def call(self, ctx: Any, func: Any, args: Sequence[Any], done: Callable[..., Any], device: Any = None) -> None:
        """Runs a function out of an asynchronous kernel. `ctx` is the kernel's OpContext (or its Step). Later, in the driver's
        turn, `done(results)` or `done(None, error)` is called."""
        parent: Step = getattr(ctx, "_step", ctx)
        driver = parent.driver
        if driver is None:
            raise errors.FailedPreconditionError(f"Function {func} was called after its step had ended")
        try:
            if parent.depth >= MAX_DEPTH:
                raise errors.ResourceExhaustedError(
                    f"Function {_name(func)} is called {MAX_DEPTH} calls deep. Does it call itself without end?"
                )
            if self.many_devices and device is not None:
                func = self._placed(func, args, device.name)
            instance = self._instance(func)
            if len(args) != instance.n_args:
                raise errors.InvalidArgumentError(f"Expects {instance.n_args} arguments, but {len(args)} is provided")
        except Exception as error:
            driver.call(parent.child(CallFrame((), 0), done), (), as_op_error(error))
            return
        driver.call(parent.child(CallFrame(args, instance.n_retvals), done), instance.executors)

    def run(
        self,
        func: Any,
        args: Sequence[Any],
        cancellation: CancellationManager | None = None,
        pool: Any = None,
        session_state: Any = None,
        collector: Any = None,
    ) -> list[Any]:
        """Runs a function in this thread, as a step of its own, and waits for its results: for threads outside of any step
        (dataset iterators) and for kernels that cannot go on without the answer."""
        depth = getattr(self._local, "depth", 0)
        if depth >= MAX_BLOCKING_DEPTH:
            raise errors.ResourceExhaustedError(
                f"Function {_name(func)} is called {MAX_BLOCKING_DEPTH} calls deep. Does it call itself without end?"
            )
        instance = self.instantiate(func)
        step = Step(
            CallFrame(args, instance.n_retvals),
            cancellation=cancellation,
            functions=self,
            pool=pool,
            session_state=session_state,
            collector=collector,
        )
        step.depth = 1
        self._local.depth = depth + 1
        try:
            run_step(instance.executors, step)
        finally:
            self._local.depth = depth
            step.step_resources.clear()
        return step.call_frame.take_retvals()


def _name(func: Any) -> str:
    return func.name if isinstance(func, FuncAttr) else func.decode() if isinstance(func, bytes) else str(func)
