"""The default graph and the default session of each thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from penstock.graph.ir import Graph


class _Stack(threading.local):
    def __init__(self) -> None:
        self.items: list[Any] = []


_graphs = _Stack()
_sessions = _Stack()
_global_graph: Graph | None = None


def get_default_graph() -> Graph:
    """The innermost `Graph.as_default()` of this thread, or the process-wide default graph."""
    if _graphs.items:
        return _graphs.items[-1]
    global _global_graph
    if _global_graph is None:
        _global_graph = Graph()
    return _global_graph


def reset_default_graph() -> None:
    """Starts a new process-wide default graph. Inside of `with graph.as_default()` this is an AssertionError."""
    if _graphs.items:
        raise AssertionError("Do not use tf.reset_default_graph() to clear nested graphs. If you need a cleared graph, exit the nesting and create a new graph.")
    global _global_graph
    _global_graph = None


def push_graph(graph: Graph) -> None:
    """Makes `graph` the thread's default graph until `pop_graph`; for scopes that must be cheap to enter."""
    _graphs.items.append(graph)


def pop_graph(graph: Graph) -> None:
    if not _graphs.items or _graphs.items[-1] is not graph:
        raise AssertionError("Nesting violated for default stack of graphs: leave graph scopes in the order they were entered.")
    _graphs.items.pop()


@contextlib.contextmanager
def graph_scope(graph: Graph) -> Iterator[Graph]:
    """Makes `graph` the thread's default graph inside the `with`."""
    _graphs.items.append(graph)
    try:
        yield graph
    finally:
        if not _graphs.items or _graphs.items[-1] is not graph:
            raise AssertionError("Nesting violated for default stack of graphs: leave graph scopes in the order they were entered.")
        _graphs.items.pop()


def get_default_session() -> Any:
    """The innermost default session of this thread, or None."""
    return _sessions.items[-1] if _sessions.items else None


@contextlib.contextmanager
def session_scope(session: Any) -> Iterator[Any]:
    """Makes `session` the thread's default session inside the `with`."""
    _sessions.items.append(session)
    try:
        yield session
    finally:
        if _sessions.items and _sessions.items[-1] is session:
            _sessions.items.pop()
        elif session in _sessions.items:
            _sessions.items.remove(session)


def push_session(session: Any) -> None:
    _sessions.items.append(session)


def pop_session(session: Any) -> None:
    if session in _sessions.items:
        _sessions.items.remove(session)


def get_session(graph: Graph, session: Any, what: str) -> Any:
    """`session`, or the default session if it is None; ValueError in TF's words if neither fits `graph`."""
    if session is None:
        session = get_default_session()
        if session is None:
            raise ValueError(f"Cannot {what} using `run()`: No default session is registered. Use `with sess.as_default()` or pass an explicit session to `run(session=sess)`"
                             if "operation" in what else
                             f"Cannot {what} using `eval()`: No default session is registered. Use `with sess.as_default()` or pass an explicit session to `eval(session=sess)`")
        whose = "the default session's graph"
    else:
        whose = "the session's graph"
    if session.graph is not graph:
        raise ValueError(f"Cannot use {'the default' if whose.startswith('the default') else 'the given'} session to {what}: the {'operation' if 'operation' in what else 'tensor'}'s graph is different from {whose}. Pass an explicit session to {'run' if 'operation' in what else 'eval'}(session=sess).")
    return session


def eval_using_default_session(tensors: Any, feed_dict: dict | None, graph: Graph, session: Any = None) -> Any:
    return get_session(graph, session, "evaluate tensor").run(tensors, feed_dict)
