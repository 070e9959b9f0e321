"""The dataflow executor: an immutable plan per partition, a state machine without I/O, and a shell that drives it."""

from penstock.runtime.executor.shell import Executor, run_step, run_step_async, sources
from penstock.runtime.executor.step import Step

__all__ = ["Executor", "Step", "run_step", "run_step_async", "sources"]
