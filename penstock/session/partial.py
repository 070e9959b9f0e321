"""Partial runs: one step that is fed and fetched piece by piece.

State of a partial run
    pending_feeds     declared feeds that have not come yet
    pending_fetches   declared fetches that nobody has taken yet
    finished          the executors' end: None while they run, then True or the error

Values travel through the step's rendezvous: a feed is a send, a fetch a receive, under the keys of the `_Recv` and `_Send` nodes that
pruning made for them.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from penstock import errors
from penstock.graph.ir import Graph, Tensor
from penstock.names import make_key
from penstock.pipeline.prune import CLIENT_DEVICE_INCARNATION
from penstock.pipeline.signature import Signature


class PartialRun:
    """One started step; see the module's docstring."""

    def __init__(self, graph: Graph, signature: Signature, client_device: str, step: Any) -> None:
        self.graph = graph
        self.signature = signature
        self.client_device = client_device
        self.step = step
        self.pending_feeds = set(signature.feeds)
        self.pending_fetches = set(signature.fetches)
        self.lock = threading.Lock()
        self.done = threading.Event()
        self.error: BaseException | None = None

    def finished(self, error: BaseException | None) -> None:
        """The executors have ended."""
        self.error = error
        if error is not None:
            self.step.rendezvous.abort(error)
        self.done.set()

    def run(self, feeds: dict[str, Any], fetches: list[str]) -> list[Any]:
        """Feeds some of the declared feeds and waits for some of the declared fetches."""
        with self.lock:
            self._check(feeds, fetches)
            self.pending_feeds -= set(feeds)
            self.pending_fetches -= set(fetches)
        for name, value in feeds.items():
            self.step.rendezvous.send(self._key(name), np.array(value, copy=True) if isinstance(value, np.ndarray) else value, False)
        results = [self._receive(name) for name in fetches]
        if not self.pending_fetches and not self.pending_feeds:
            self.done.wait()
            if self.error is not None:
                raise self.error
        return results

    @property
    def exhausted(self) -> bool:
        return not self.pending_fetches and not self.pending_feeds

    def _key(self, name: str) -> str:
        return make_key(self.client_device, CLIENT_DEVICE_INCARNATION, self.client_device, name, 0, 0)

    def _receive(self, name: str) -> Any:
        arrived = threading.Event()
        box: list[Any] = [None, None, False]

        def done(error: BaseException | None, value: Any = None, is_dead: bool = False) -> None:
            box[:] = [error, value, is_dead]
            arrived.set()

        self.step.rendezvous.recv_async(self._key(name), done)
        arrived.wait()
        error, value, is_dead = box
        if error is not None:
            raise error
        if is_dead:
            raise errors.InvalidArgumentError(f"The tensor returned for {name} was not valid.")
        return value

    def _check(self, feeds: dict[str, Any], fetches: list[str]) -> None:
        if self.error is not None:
            raise self.error
        for name in feeds:
            if name not in self.signature.feeds:
                raise errors.InvalidArgumentError(f"The feed {name} was not specified in partial_run_setup: {', '.join(self.signature.feeds)}.")
            if name not in self.pending_feeds:
                raise errors.InvalidArgumentError(f"The feed {name} has already been fed.")
        for name in fetches:
            if name not in self.signature.fetches:
                raise errors.InvalidArgumentError(f"The fetch {name} was not specified in partial_run_setup: {', '.join(self.signature.fetches)}.")
            if name not in self.pending_fetches:
                raise errors.InvalidArgumentError(f"The fetch {name} has already been fetched.")
        missing = self.pending_feeds - set(feeds)
        for name in fetches:
            needed = self._needs(name, missing)
            if needed is not None:
                raise errors.InvalidArgumentError(f"Fetch {name} can't be computed from the feeds that have been fed so far: it needs {needed}.")

    def _needs(self, fetch: str, missing: set[str]) -> str | None:
        """A feed that `fetch` depends on and that is still missing, or None."""
        if not missing:
            return None
        fed = {self.graph.get_tensor_by_name(n): n for n in self.signature.feeds}
        stack: list[Tensor] = [self.graph.get_tensor_by_name(fetch)]
        seen: set[Any] = set()
        while stack:
            tensor = stack.pop()
            name = fed.get(tensor)
            if name is not None:
                if name in missing:
                    return name
                continue
            if tensor.op in seen:
                continue
            seen.add(tensor.op)
            stack.extend(tensor.op.inputs)
            for control in tensor.op.control_inputs:
                if control not in seen:
                    seen.add(control)
                    stack.extend(control.inputs)
        return None
