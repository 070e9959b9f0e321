"""DirectSession: the runtime of one process behind a session.

State
    devices, placer     what there is to run on, and where every node of the graph was put
    _prepared           Signature -> Prepared: the executor cache
    _cancellation       cancels every running step when the session closes
    _compiled           names of all client nodes that some executor was built from

`prepare` compiles a signature once (prune, place, optimise, partition, executors); `Prepared.run` is a step.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np

from penstock import errors
from penstock.engines.xla.backend import is_device_array, to_host
from penstock.forks import renewed
from penstock.formats import protos
from penstock.formats.attr_value import FuncAttr
from penstock.graph.function import Function
from penstock.graph.ir import Dims, Graph
from penstock.graph.quiet_gc import paused
from penstock.ops.kernels.views import is_wasteful
from penstock.ops.native import transposes
from penstock.ops.resources import Ref
from penstock.pipeline import CompileOptions, Trail, compile_step, debug
from penstock.pipeline.place import Placer
from penstock.pipeline.regions import group
from penstock.pipeline.signature import Signature
from penstock.runtime import turnstile
from penstock.runtime.call_frame import MISSING, CallFrame
from penstock.runtime.cancellation import CancellationManager
from penstock.runtime.devices import DeviceSet, make_local_devices
from penstock.runtime.executor import Executor, Step, run_step, run_step_async, sources
from penstock.runtime.executor.joined import together
from penstock.runtime.functions import FunctionRuntime
from penstock.runtime.resources import OpSegment
from penstock.runtime.step_stats import Collector
from penstock.runtime.threads import SessionPools, limit_intra_op
from penstock.session.config import SessionConfig
from penstock.session.factory import register_session_factory
from penstock.session.handles import SessionState
from penstock.session.kept import kept_feeds
from penstock.session.partial import PartialRun
from penstock.session.repeated import Repeated, repeated

_handles = itertools.count(1)
_ARRAYS: Any = (np.ndarray,)
_NUMBERS: Any = np.generic


class Prepared:
    """A compiled signature."""

    __slots__ = ("__weakref__", "executors", "kept", "n_fetches", "partitions", "repeated", "runtime", "signature", "steps", "turns")

    def __init__(self, runtime: DirectRuntime, signature: Signature, executors: list[Executor], partitions: dict[str, Graph]) -> None:
        self.runtime = runtime
        self.signature = signature
        self.executors = executors
        self.partitions = partitions
        self.n_fetches = len(signature.fetches)
        self.kept = kept_feeds(partitions)
        self.steps = 0
        # Only where nothing waits for another step.
        self.turns = turnstile.SURE if len(executors) == 1 and executors[0].straight is not None else 0
        self.repeated: Repeated | None = None

    def run(self, args: list[Any]) -> list[Any]:
        """One step: fed values in, fetched values out."""
        runtime = self.runtime
        if runtime.closed:
            raise RuntimeError("Attempted to use a closed Session.")
        if runtime.traces_kernels:
            return runtime.run(self, args)
        if self.repeated is not None:
            form = self.repeated.form_for(args)
            if form is not None:
                return form.run(args)
        if self.kept:
            args = self.own_feeds(args)
        frame = CallFrame(args, self.n_fetches)
        step = Step(frame, runtime.cancellation, runtime.session_state, runtime.functions, runtime.pool, runtime.timeout)
        if self.turns:
            turnstile.run(self, run_step, self.executors, step)
        else:
            run_step(self.executors, step)
        del step, args
        retvals = frame.retvals
        for i in range(len(retvals)):
            value: Any = retvals[i]
            if value.__class__ not in _ARRAYS and not isinstance(value, _NUMBERS):
                if isinstance(value, Ref):
                    value = retvals[i] = value.read()
                if is_device_array(value):
                    value = retvals[i] = np.array(value)
            if value.__class__ is np.ndarray:
                if value.ndim == 0:
                    retvals[i] = value[()]
                # References: the list, `value`, getrefcount's own. More means that the array is also a constant, a
                # variable or a feed, which the caller must not be able to change.
                elif sys.getrefcount(value) > 3 or value.base is not None or not value.flags.writeable:
                    retvals[i] = owned(value)
            elif value is MISSING:
                raise self.not_computed(i)
        return retvals

    def not_computed(self, i: int) -> errors.InvalidArgumentError:
        """The error for a fetch that the step left out."""
        return errors.InvalidArgumentError(
            f"Retval[{i}] does not have value: the fetch '{self.signature.fetches[i]}' was not computed, because it is on a branch that was not taken."
        )

    def own_feeds(self, args: list[Any]) -> list[Any]:
        """The arguments, with copies of those that may outlive the step."""
        args = list(args)
        for i in self.kept:
            if args[i].__class__ is np.ndarray:
                args[i] = args[i].copy()
        return args


def owned(value: np.ndarray) -> np.ndarray:
    """`value` if nobody else can see its memory, else a copy."""
    base = value.base
    if base is None or not value.flags.writeable or is_wasteful(value):
        return _copied(value)
    if base.__class__ is np.ndarray and base.base is None and sys.getrefcount(base) <= 3 and sys.getrefcount(value) <= 4:
        return value  # a view of an array that only this view holds
    return _copied(value)


def _copied(value: np.ndarray) -> np.ndarray:
    try:
        found = None if value.flags.c_contiguous or 0 in value.strides else transposes.turned(value)  # what einsum leaves, for one
        return value.copy() if found is None else found
    except MemoryError as error:  # a value that was never laid out in memory (a broadcast) may not fit there
        raise errors.ResourceExhaustedError(f"OOM when copying a fetched value: {error}") from error


class DirectRuntime:
    """See the module's docstring."""

    def __init__(self, graph: Graph, proto: Any) -> None:
        self.graph = graph
        self.config = SessionConfig(proto)
        _apply_intra_op_threads(proto)
        self.devices = DeviceSet(self.config.visible(make_local_devices(proto)))
        self.client_device = self.devices.client_device.name
        self.segment = OpSegment()
        self.session_state = SessionState()
        self.cancellation = CancellationManager()
        self.pools = SessionPools(proto)
        self.pool = self.pools.get(0)
        self.timeout = self.config.timeout
        self.closed = False
        self.traces_kernels = debug.at_least(debug.KERNELS)
        self.functions = FunctionRuntime(graph.functions, self._compile_function, self._gradient_function)
        self.functions.many_devices = len(self.devices.devices) > 1
        preferred = sorted(self.devices.devices, key=lambda d: -d.kind.priority)
        self.placer = Placer(preferred, self.config.soft_placement, self.config.log_placement)
        self._prepared: dict[Signature, Prepared] = {}
        self._compiled: set[str] = set()
        self._changes_seen = len(graph._change_log)
        self._lock = renewed(threading.RLock())
        self.incarnations = {d.name: d.attributes.incarnation for d in self.devices.devices}

    # -- preparing ----------------------------------------------------------------------------------------------------------

    def prepare(self, signature: Signature, options: Any = None) -> Prepared:
        """The executors for `signature`, from the cache or compiled now."""
        if len(self.graph._change_log) != self._changes_seen:
            self._look_at_changes()
        found = self._prepared.get(signature)
        if found is None:
            with self._lock:
                found = self._prepared.get(signature)
                if found is None:
                    with paused():
                        found = self._compile(signature, Trail())
                        found.repeated = repeated(found, found.partitions)
                        self._prepared[signature] = found
        return found

    def prepare_for(self, signature: Signature, shapes: tuple[Dims, ...]) -> Prepared:
        """The executors for `signature` where feeds have these shapes (None: any), with their code."""
        with self._lock, paused():
            found = self._compile(signature, Trail(), shapes)
        compiler = together(found.executors).compiler
        if compiler is not None:
            compiler.find()
        return found

    def _compile(self, signature: Signature, trail: Trail, shapes: tuple[Dims, ...] | None = None) -> Prepared:
        if self.closed:
            raise RuntimeError("Attempted to use a closed Session.")
        signature = self._with_full_devices(signature)
        partitions = compile_step(self.graph, signature, self.placer, self._options(signature)._replace(shapes=shapes), trail)
        library = self.functions
        xla = self.config.xla
        executors = [Executor(part, self.devices.lookup(device), self.segment, library, group, xla) for device, part in partitions.items()]
        self._compiled.update((op.origin or op).name for part in partitions.values() for op in part)
        if debug.at_least(debug.LINES):
            debug.tell_compilation(signature, trail, self.placer, partitions)
        return Prepared(self, signature, executors, partitions)

    def _with_full_devices(self, signature: Signature) -> Signature:
        """Devices of feeds and fetches by their full names; an unknown one is an InvalidArgumentError."""
        if not signature.feed_devices and not signature.fetch_devices:
            return signature
        feeds = tuple((name, self.devices.lookup(device).name) for name, device in signature.feed_devices)
        fetches = tuple((name, self.devices.lookup(device).name) for name, device in signature.fetch_devices)
        return signature._replace(feed_devices=feeds, fetch_devices=fetches)

    def _options(self, signature: Signature) -> CompileOptions:
        config = self.config
        return CompileOptions(
            self.client_device,
            self.incarnations,
            config.optimiser._replace(targets=frozenset(signature.targets)),
            config.place_pruned_graph,
            config.compress_transfers,
        )

    def _compile_function(self, function: Function, attrs: dict[str, Any]) -> list[Executor]:
        """The executors of a library function's body. Its nodes keep their state apart from nodes of the same names elsewhere."""
        from penstock.pipeline import compile_function

        body = function.body(attrs, self.graph.functions)
        device = self._function_device(attrs["_target"]) if "_target" in attrs else ""
        partitions = compile_function(body, self.placer, self._options(Signature()), None, device, attrs.get("_arg_devices"))
        segment = OpSegment()
        xla = self.config.xla
        return [Executor(part, self.devices.lookup(device), segment, self.functions, group, xla) for device, part in partitions.items()]

    def _function_device(self, target: str | bytes) -> str:
        """The device of this process that `target` names, in full or in part."""
        text = target.decode("utf-8", "replace") if isinstance(target, bytes) else target
        fitting = self.devices.matching(text)
        if not fitting:
            raise errors.InternalError(
                f"Currently don't support instantiating functions on device: {text}. Devices of this process: "
                f"{', '.join(d.name for d in self.devices.devices)}"
            )
        return fitting[0].name

    def _gradient_function(self, func: FuncAttr) -> Function:
        from penstock.backprop.function_bodies import gradient_function

        return gradient_function(self.graph, func)

    def _look_at_changes(self) -> None:
        """Nodes that were changed after executors had been built from them make those executors stale."""
        with self._lock:
            changed = self.graph._change_log[self._changes_seen :]
            self._changes_seen = len(self.graph._change_log)
            stale = next((name for name in changed if name in self._compiled), None)
            if stale is not None:
                import logging

                logging.getLogger("penstock").warning(
                    "Operation '%s' was changed after it was run by a session. Steps are compiled anew; avoid changing nodes after running them.", stale
                )
                self._prepared.clear()
                self._compiled.clear()

    # -- running ------------------------------------------------------------------------------------------------------------

    def run(self, prepared: Prepared, args: list[Any], options: Any = None, metadata: Any = None) -> list[Any]:
        """A step with RunOptions and RunMetadata."""
        timeout, pool, trace, wants_partitions = self.timeout, self.pool, False, False
        if options is not None:
            if options.timeout_in_ms > 0:
                timeout = options.timeout_in_ms / 1000.0
            pool = self.pools.get(options.inter_op_thread_pool)
            trace = options.trace_level >= protos.RunOptions.SOFTWARE_TRACE
            wants_partitions = options.output_partition_graphs
        if self.closed:
            raise RuntimeError("Attempted to use a closed Session.")
        prepared.steps += 1
        costs = self._wants_costs(prepared)
        tell = debug.at_least(debug.KERNELS)
        collector = Collector() if trace or costs or tell else None
        frame = CallFrame(prepared.own_feeds(args) if prepared.kept else args, prepared.n_fetches)
        step = Step(
            frame, cancellation=self.cancellation, session_state=self.session_state, functions=self.functions, collector=collector, pool=pool,
            timeout=timeout,
        )  # fmt: skip
        try:
            run_step(prepared.executors, step)
        finally:
            if tell and collector is not None:
                debug.tell_kernels(collector)
            if metadata is not None:
                self._fill_metadata(metadata, prepared, collector if trace else None, collector if costs else None, wants_partitions)
        values = frame.take_retvals(allow_dead=True)
        for i, value in enumerate(values):
            if value is MISSING:
                raise prepared.not_computed(i)
        return [self.public(value) for value in values]

    def _wants_costs(self, prepared: Prepared) -> bool:
        every = self.config.build_cost_model
        return every > 0 and prepared.steps > self.config.build_cost_model_after and (prepared.steps - self.config.build_cost_model_after) % every == 0

    def _fill_metadata(self, metadata: Any, prepared: Prepared, stats: Any, costs: Any, wants_partitions: bool) -> None:
        metadata.Clear()
        if stats is not None:
            _merge(metadata.step_stats, stats.step_stats())
        if costs is not None:
            _merge(metadata.cost_graph, costs.cost_graph(prepared.executors))
        if wants_partitions:
            for part in prepared.partitions.values():
                _merge(metadata.partition_graphs.add(), part.as_graph_def())

    @staticmethod
    def public(value: Any) -> Any:
        """A run-time value as callers get it: NumPy scalars for scalars, an array of their own otherwise."""
        value = to_host(value)
        if value.__class__ is np.ndarray:
            return value[()] if value.ndim == 0 else _copied(value)
        return value

    def start_partial(self, signature: Signature) -> tuple[str, PartialRun]:
        """Starts a step whose feeds and fetches go through its rendezvous."""
        prepared = self.prepare(signature)
        step = Step(
            CallFrame((), 0), cancellation=self.cancellation, session_state=self.session_state, functions=self.functions, pool=self.pool,
            timeout=self.timeout,
        )  # fmt: skip
        partial = PartialRun(self.graph, signature, self.client_device, step)
        handle = f"{','.join(signature.feeds)}->{','.join(signature.fetches)}/{','.join(signature.targets)}/{next(_handles)};0"
        run_step_async(prepared.executors, step, partial.finished)
        return handle, partial

    # -- the rest -------------------------------------------------------------------------------------------------------------

    def list_devices(self) -> list[Any]:
        return [DeviceRow(d.attributes) for d in self.devices.devices]

    def explain(self, signature: Signature) -> Any:
        from penstock.pipeline.explain import Explanation

        trail = Trail()
        start = time.perf_counter()
        with self._lock:
            prepared = self._compile(signature, trail)
        seconds = time.perf_counter() - start
        return Explanation(signature, trail, self.placer, prepared.partitions, seconds, sources(prepared.executors))

    def reset_containers(self, containers: list[str]) -> None:
        for device in self.devices.devices:
            for container in containers or [device.resources.default_container]:
                device.resources.cleanup(container)

    def close(self) -> None:
        """Cancels what runs and frees what the session holds."""
        if self.closed:
            return
        self.closed = True
        self.cancellation.start_cancel(errors.CancelledError("Session has been closed."))
        self.pools.close()
        with self._lock:
            self._prepared.clear()
        for device in self.devices.devices:
            device.resources.clear()


class DeviceRow:
    """One row of `Session.list_devices`."""

    def __init__(self, attributes: Any) -> None:
        self._attributes = attributes

    @property
    def name(self) -> str:
        return self._attributes.name

    @property
    def device_type(self) -> str:
        return self._attributes.device_type

    @property
    def memory_limit_bytes(self) -> int:
        return self._attributes.memory_limit

    @property
    def incarnation(self) -> int:
        return self._attributes.incarnation

    def __repr__(self) -> str:
        return f"_DeviceAttributes({self.name}, {self.device_type}, {self.memory_limit_bytes}, {self.incarnation})"


def _merge(target: Any, source: Any) -> None:
    """Copies one of our messages into `target`, which may be TensorFlow's message of the same name."""
    if type(target) is type(source):
        target.CopyFrom(source)
    else:
        target.MergeFromString(source.SerializeToString())


def _apply_intra_op_threads(proto: Any) -> None:
    number = proto.intra_op_parallelism_threads
    if number > 0:
        from threadpoolctl import threadpool_limits

        from penstock.engines import onednn
        from penstock.engines.xla.backend import limit_threads as limit_xla_threads

        threadpool_limits(limits=number, user_api="blas")
        onednn.set_threads(number)
        limit_xla_threads(number)
        limit_intra_op(number)


class DirectSessionFactory:
    """Serves the target "": everything in this process."""

    def __init__(self) -> None:
        self._live: weakref.WeakSet[DirectRuntime] = weakref.WeakSet()

    def accepts(self, target: str) -> bool:
        return target == ""

    def new_runtime(self, target: str, graph: Graph, config: Any) -> DirectRuntime:
        runtime = DirectRuntime(graph, config)
        self._live.add(runtime)
        return runtime

    def reset(self, target: str, containers: list[str], config: Any) -> None:
        for runtime in list(self._live):
            if not runtime.closed:
                runtime.reset_containers(containers)
                runtime.close()


register_session_factory("DIRECT_SESSION", DirectSessionFactory())
