"""`tf.Session`: from Python values to a signature and flat arguments, and back.

A run whose fetches and feed keys were seen before finds its `Plan` in a dictionary and goes straight to the executor. Everything
else (nested fetches, names, sparse feeds, options, metadata) is worked out here, once, and becomes a Plan where it can.

State of a session
    _runtime       what runs the steps, made by the factory for the target; None once closed
    _plans         (fetches, feed keys) as given -> Plan
    _edits         the graph's edit count that `_plans` was made for
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from penstock import errors
from penstock.formats import protos
from penstock.graph import defaults
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.pipeline.signature import Signature
from penstock.session import default_config
from penstock.session.factory import Runtime, factory_for
from penstock.session.feeds import FeedSlot, flatten_feeds
from penstock.session.fetches import Fetches, partial_feed_elements
from penstock.session.handles import TensorHandle, wrap_handles

_FED = object()  # first in the keys of fed plans: a tuple of fetches must never look like one


class Plan:
    """What a repeated run needs: where the feeds go, the prepared step, and how results are packed."""

    __slots__ = ("build", "fetches", "prepared", "slots", "wrap")

    def __init__(self, slots: list[FeedSlot], prepared: Any, fetches: Fetches, session: Any) -> None:
        self.slots = slots
        self.prepared = prepared
        self.fetches = fetches
        self.build = fetches.build
        self.wrap = wrap_handles(fetches.tensors, session)


class BaseSession:
    """Runs parts of a graph. See `Session` and `InteractiveSession`."""

    def __init__(self, target: Any = "", graph: Graph | None = None, config: Any = None) -> None:
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"Argument `graph` must be a tf.Graph, but got \"{type(graph).__name__}\"")
        if isinstance(target, bytes):
            target = target.decode()
        if not isinstance(target, str):
            raise TypeError(f"Argument `target` must be a string, but got \"{type(target).__name__}\"")
        if config is not None and not isinstance(config, protos.ConfigProto):
            try:
                config = protos.coerce(config, protos.ConfigProto, "config")
            except TypeError as error:
                raise TypeError(f"Argument `config` must be a tf.ConfigProto, but got \"{type(config).__name__}\"") from error
        self._graph = graph if graph is not None else defaults.get_default_graph()
        self._target = target
        self._config = config if config is not None else default_config.current()
        self._plans: dict[Any, Plan] = {}
        self._partial_runs: dict[str, Any] = {}
        self._closed = False
        self._edits = self._graph._edits
        self._runtime: Runtime = factory_for(target).new_runtime(target, self._graph, self._config)

    # -- what a session is ------------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph that this session runs."""
        return self._graph

    @property
    def graph_def(self) -> Any:
        """The session's graph as a GraphDef."""
        return self._graph.as_graph_def(add_shapes=False)

    @property
    def sess_str(self) -> str:
        return self._target

    def list_devices(self) -> list[Any]:
        """The devices that this session can use, with name, device_type, memory_limit_bytes and incarnation."""
        self._check_open()
        return self._runtime.list_devices()

    def close(self) -> None:
        """Ends the session: running steps are cancelled, state is freed. Closing twice is fine."""
        if not self._closed:
            self._closed = True
            self._plans.clear()
            self._partial_runs.clear()
            self._runtime.close()

    def __del__(self) -> None:
        # At the interpreter's end no thread can be started or waited for: closing then could hang it.
        try:
            if not getattr(self, "_closed", True) and not sys.is_finalizing():
                self.close()
        except Exception:  # the interpreter may be shutting down
            pass

    def as_default(self) -> Any:
        """A context manager that makes this the default session; it does not close the session at its end."""
        return defaults.session_scope(self)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")

    # -- run --------------------------------------------------------------------------------------------------------------

    def run(self, fetches: Any, feed_dict: dict | None = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs what `fetches` need and returns their values in the same structure.

        `fetches` is a tensor, an operation, a name, or lists, tuples, dicts, namedtuples and attrs classes of them; an operation's
        value is None. `feed_dict` gives values to tensors. `options` (RunOptions) and `run_metadata` (RunMetadata) are for timeouts,
        tracing and partition graphs.

        >>> import penstock as tf
        >>> x = tf.placeholder(tf.float32)
        >>> with tf.Session() as sess:
        ...     float(sess.run(x * 2, {x: 3.0}))
        6.0
        """
        if options is None and run_metadata is None and not self._closed and self._edits == self._graph._edits:
            try:
                if fetches.__class__ is list:
                    plan = self._plans[(list, *fetches, None, *feed_dict) if feed_dict else (list, *fetches)]
                else:
                    plan = self._plans[(_FED, fetches, *feed_dict) if feed_dict else fetches]
            except (KeyError, TypeError):
                return self._first_run(fetches, feed_dict, None, None)
            slots = plan.slots
            args = [slot.convert(value) for slot, value in zip(slots, feed_dict.values())] if slots else []  # type: ignore[union-attr]
            values = plan.prepared.run(args)
            if plan.wrap is not None:
                values = plan.wrap(values)
            return plan.build(values)
        return self._first_run(fetches, feed_dict, options, run_metadata)

    def _first_run(self, structure: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        self._check_open()
        if not len(self._graph):
            raise RuntimeError("The Session graph is empty. Add operations to the graph before calling run().")
        if self._graph._edits != self._edits:
            self._plans.clear()
            self._edits = self._graph._edits
        if options is not None:
            options = protos.coerce(options, protos.RunOptions, "options")
        if run_metadata is not None and not hasattr(run_metadata, "step_stats"):
            raise TypeError(f"Argument `run_metadata` must be a RunMetadata, but got {type(run_metadata).__name__}")
        fetches = Fetches(self._graph, structure)
        feeds = flatten_feeds(self._graph, feed_dict) if feed_dict else {}
        slots = [FeedSlot(tensor) for tensor in feeds]
        args = [self._feed_value(slot, value) for slot, value in zip(slots, feeds.values(), strict=True)]
        if not fetches.tensors and not fetches.targets:
            return fetches.build([])
        signature = Signature(
            tuple(t.name for t in feeds), tuple(t.name for t in fetches.tensors), tuple(op.name for op in fetches.targets)
        )
        prepared = self._runtime.prepare(signature, options)
        plan = Plan(slots, prepared, fetches, self)
        if options is None and run_metadata is None:
            self._remember(plan, structure, feed_dict, feeds)
            values = prepared.run(args)
        else:
            values = self._runtime.run(prepared, args, options, run_metadata)
        if plan.wrap is not None:
            values = plan.wrap(values)
        return fetches.build(values)

    def _feed_value(self, slot: FeedSlot, value: Any) -> Any:
        if isinstance(value, TensorHandle):
            value = value.feed_value(slot.dtype, self._runtime)
        return slot.convert(value)

    def _remember(self, plan: Plan, structure: Any, feed_dict: Any, feeds: dict[Tensor, Any]) -> None:
        """Keeps the plan if its key says everything: flat fetches, and feed keys that each mean one tensor."""
        if feed_dict:
            if len(feeds) != len(feed_dict) or any(isinstance(v, TensorHandle) for v in feed_dict.values()):
                return
            if not all(isinstance(k, (Tensor, str)) or hasattr(k, "_as_graph_element") for k in feed_dict):
                return
        if structure.__class__ is list:
            if not all(isinstance(f, (Tensor, Operation, str)) or hasattr(f, "_as_graph_element") for f in structure):
                return
            key = (list, *structure, None, *feed_dict) if feed_dict else (list, *structure)
        else:
            if not (isinstance(structure, (Tensor, Operation, str)) or hasattr(structure, "_as_graph_element")):
                return
            key = (_FED, structure, *feed_dict) if feed_dict else structure
        if len(self._plans) > 10_000:
            self._plans.clear()
        self._plans[key] = plan

    # -- callables ----------------------------------------------------------------------------------------------------------

    def make_callable(self, fetches: Any, feed_list: list | None = None, accept_options: bool = False) -> Any:
        """A function of the values of `feed_list` that runs `fetches`: the cheapest way to repeat a step."""
        self._check_open()
        if feed_list is not None and not isinstance(feed_list, (list, tuple)):
            raise TypeError("Argument `feed_list` must be a list or tuple.")
        checked = Fetches(self._graph, fetches)
        if not checked.tensors and not checked.targets:
            raise errors.InvalidArgumentError("Must specify at least one target to fetch or execute.")
        tensors = [self._graph.as_graph_element(feed, allow_operation=False) for feed in feed_list or ()]
        for tensor in tensors:
            if not self._graph.is_feedable(tensor):
                raise ValueError(f"Tensor {tensor.name} may not be fed.")
        signature = Signature(tuple(t.name for t in tensors), tuple(t.name for t in checked.tensors), tuple(op.name for op in checked.targets))
        prepared = self._runtime.prepare(signature)
        slots = [FeedSlot(tensor) for tensor in tensors]
        plan = Plan(slots, prepared, checked, self)
        runtime = self._runtime
        build = plan.build

        def call(*feed_args: Any, options: Any = None, run_metadata: Any = None) -> Any:
            if self._closed:
                self._check_open()
            if len(feed_args) != len(slots):
                raise errors.InvalidArgumentError(f"Expected {len(slots)} feed values, but got {len(feed_args)}.")
            args = [slot.convert(value) for slot, value in zip(slots, feed_args)]
            if options is None and run_metadata is None:
                values = prepared.run(args)
            else:
                if not accept_options:
                    raise TypeError("options and run_metadata need make_callable(..., accept_options=True)")
                values = runtime.run(prepared, args, options, run_metadata)
            if plan.wrap is not None:
                values = plan.wrap(values)
            return build(values)

        return call

    def _make_callable_from_options(self, callable_options: Any) -> Any:
        """A callable from CallableOptions: feeds, fetches, targets, tensor connections, devices for feeds and fetches."""
        self._check_open()
        options = protos.coerce(callable_options, protos.CallableOptions, "callable_options")
        if not options.fetch and not options.target:
            raise errors.InvalidArgumentError("Must specify at least one target to fetch or execute.")
        for table, names, what in ((options.feed_devices, options.feed, "feed"), (options.fetch_devices, options.fetch, "fetch")):
            for name in table:
                if name not in names:
                    raise errors.InvalidArgumentError(f"Callable {what} device for {name}, which is not among the {what} names of the callable.")
        signature = Signature(
            tuple(options.feed),
            tuple(options.fetch),
            tuple(options.target),
            tuple((c.from_tensor, c.to_tensor) for c in options.tensor_connection),
            feed_devices=tuple(sorted(options.feed_devices.items())),
            fetch_devices=tuple(sorted(options.fetch_devices.items())),
        )
        prepared = self._runtime.prepare(signature)
        slots = [FeedSlot(self._graph.get_tensor_by_name(_with_index(name))) for name in options.feed]
        runtime = self._runtime
        run_options = options.run_options if options.HasField("run_options") else None

        def call(*args: Any, run_metadata: Any = None) -> list[Any]:
            self._check_open()
            if len(args) != len(slots):
                raise errors.InvalidArgumentError(f"Expected {len(slots)} feed tensors, but got {len(args)}.")
            values = [slot.convert(value) for slot, value in zip(slots, args, strict=True)]
            return runtime.run(prepared, values, run_options, run_metadata)

        return call

    # -- partial runs -------------------------------------------------------------------------------------------------------

    def partial_run_setup(self, fetches: Any, feeds: list | None = None) -> str:
        """Starts a step that `partial_run` then feeds and fetches piece by piece; returns its handle."""
        self._check_open()
        checked = Fetches(self._graph, fetches)
        names: list[str] = []
        for feed in feeds or ():
            for element in partial_feed_elements(feed):
                tensor = self._graph.as_graph_element(element, allow_operation=False)
                if not self._graph.is_feedable(tensor):
                    raise ValueError(f"Tensor {tensor.name} may not be fed.")
                names.append(tensor.name)
        if not checked.tensors and not checked.targets:
            raise errors.InvalidArgumentError("Must specify at least one target to fetch or execute.")
        signature = Signature(
            tuple(names), tuple(t.name for t in checked.tensors), tuple(op.name for op in checked.targets), through_rendezvous=True
        )
        handle, partial = self._runtime.start_partial(signature)  # type: ignore[attr-defined]
        self._partial_runs[handle] = partial
        return handle

    def partial_run(self, handle: str, fetches: Any, feed_dict: dict | None = None) -> Any:
        """Goes on with the step `handle`: feeds `feed_dict`, waits for `fetches`."""
        self._check_open()
        partial = self._partial_runs.get(handle)
        if partial is None:
            raise errors.InvalidArgumentError("Must run 'setup' before performing partial runs!")
        checked = Fetches(self._graph, fetches)
        feeds = flatten_feeds(self._graph, feed_dict) if feed_dict else {}
        values = {t.name: self._feed_value(FeedSlot(t), v) for t, v in feeds.items()}
        results = partial.run(values, [t.name for t in checked.tensors])
        if partial.exhausted:
            self._partial_runs.pop(handle, None)
        return checked.build([self._runtime.public(v) for v in results])  # type: ignore[attr-defined]

    # -- looking inside -----------------------------------------------------------------------------------------------------

    def explain(self, fetches: Any, feeds: Any = None) -> Any:
        """What the runtime does with these fetches: every stage's graph, every pass, where each node runs and why.

        The result prints as a report; `.stages`, `.partitions` and `.nodes` hold the parts.
        """
        self._check_open()
        checked = Fetches(self._graph, fetches)
        keys = feeds or ()
        tensors = [self._graph.as_graph_element(k, allow_operation=False) for key in keys for k in partial_feed_elements(key)]
        signature = Signature(tuple(t.name for t in tensors), tuple(t.name for t in checked.tensors), tuple(op.name for op in checked.targets))
        return self._runtime.explain(signature)  # type: ignore[attr-defined]


def _with_index(name: str) -> str:
    return name if ":" in name else name + ":0"


class Session(BaseSession):
    """A session that is used with `with`: it is the default session inside, and closed at the end."""

    def __init__(self, target: Any = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        self._scopes: list[Any] = []

    def __enter__(self) -> Session:
        scopes = (self._graph.as_default(), self.as_default())
        for scope in scopes:
            scope.__enter__()
        self._scopes.append(scopes)
        return self

    def __exit__(self, exc_type: object, exc_value: object, traceback: object) -> None:
        if self._scopes:
            for scope in reversed(self._scopes.pop()):
                scope.__exit__(None, None, None)
        self.close()

    @staticmethod
    def reset(target: Any, containers: list[str] | None = None, config: Any = None) -> None:
        """Frees the state in `containers` (all of it by default) of every session with this target, and closes those sessions."""
        if isinstance(target, bytes):
            target = target.decode()
        if not isinstance(target, str):
            raise TypeError(f"Argument `target` must be a string, but got \"{type(target).__name__}\"")
        factory_for(target).reset(target, list(containers or ()), config)


class InteractiveSession(BaseSession):
    """A session that makes itself, and its graph, the default until it is closed. For notebooks and shells."""

    _active = 0

    def __init__(self, target: Any = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        if InteractiveSession._active > 0:
            warnings.warn(
                "An interactive session is already active. This can cause out-of-memory errors in some cases. You must explicitly call "
                "`InteractiveSession.close()` to release resources held by the other session(s).",
                stacklevel=2,
            )
        InteractiveSession._active += 1
        self._graph_scope = None
        if graph is not None:
            self._graph_scope = graph.as_default()
            self._graph_scope.__enter__()
        defaults.push_session(self)

    def close(self) -> None:
        """Closes the session and stops being the default."""
        if not self._closed:
            InteractiveSession._active -= 1
            defaults.pop_session(self)
            if self._graph_scope is not None:
                self._graph_scope.__exit__(None, None, None)
                self._graph_scope = None
        super().close()
