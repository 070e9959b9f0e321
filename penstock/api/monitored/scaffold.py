"""`tf.train.Scaffold`: the operations that a session needs to begin, and `SessionCreator`s, which make the sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.api.control_flow import group
from penstock.api.export import resolve, table
from penstock.api.monitored.manager import SessionManager
from penstock.graph.defaults import get_default_graph
from penstock.graph.keys import GraphKeys

USE_DEFAULT: Any = object()


class Scaffold:
    """The operations that get a model ready: initialise it, say whether that is done, save it, summarise it.

    What is not given comes from the graph's collections, or is made, when the session is made (`finalize`).
    """

    def __init__(self, init_op: Any = None, init_feed_dict: Any = None, init_fn: Any = None, ready_op: Any = None,
                 ready_for_local_init_op: Any = None, local_init_op: Any = None, summary_op: Any = None, saver: Any = None,
                 copy_from_scaffold: Any = None, local_init_feed_dict: Any = None) -> None:  # fmt: skip
        if copy_from_scaffold is not None:
            if not isinstance(copy_from_scaffold, Scaffold):
                raise TypeError(f"copy_from_scaffold is not a Scaffold instance. Got {copy_from_scaffold}")

            def pick(mine: Any, name: str) -> Any:
                return getattr(copy_from_scaffold, name) if mine is None else mine
        else:

            def pick(mine: Any, name: str) -> Any:
                return mine

        self._init_op = pick(init_op, "init_op")
        self._init_feed_dict = pick(init_feed_dict, "init_feed_dict")
        self._user_init_fn = pick(init_fn, "_user_init_fn")
        self._init_fn = (lambda sess: self._user_init_fn(self, sess)) if self._user_init_fn else None
        self._ready_op = pick(ready_op, "ready_op")
        self._ready_for_local_init_op = pick(ready_for_local_init_op, "ready_for_local_init_op")
        self._local_init_op = pick(local_init_op, "local_init_op")
        self._summary_op = pick(summary_op, "summary_op")
        self._saver = pick(saver, "saver")
        self._local_init_feed_dict = pick(local_init_feed_dict, "local_init_feed_dict")

    def finalize(self) -> Scaffold:
        """Makes what is missing, and finalizes the graph."""
        if self._init_op is None:
            self._init_op = Scaffold.get_or_default("init_op", GraphKeys.INIT_OP, lambda: group(resolve("global_variables_initializer")(), name="init"))
        report = resolve("report_uninitialized_variables")
        if self._ready_op is None:
            self._ready_op = Scaffold.get_or_default("ready_op", GraphKeys.READY_OP, report)
        if self._ready_for_local_init_op is None:
            self._ready_for_local_init_op = Scaffold.get_or_default(
                "ready_for_local_init_op", GraphKeys.READY_FOR_LOCAL_INIT_OP, lambda: report(resolve("global_variables")())
            )
        if self._local_init_op is None:
            self._local_init_op = Scaffold.get_or_default("local_init_op", GraphKeys.LOCAL_INIT_OP, Scaffold.default_local_init_op)
        if self._summary_op is None and "summary.merge_all" in table():
            self._summary_op = Scaffold.get_or_default("summary_op", GraphKeys.SUMMARY_OP, resolve("summary.merge_all"))
        if self._saver is None and "train.Saver" in table():
            self._saver = _default_saver()
        if self._saver is not None and hasattr(self._saver, "build"):
            self._saver.build()
        get_default_graph().finalize()
        return self

    @property
    def init_fn(self) -> Any:
        return self._init_fn

    @property
    def init_op(self) -> Any:
        return self._init_op

    @property
    def ready_op(self) -> Any:
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        return self._ready_for_local_init_op

    @property
    def local_init_op(self) -> Any:
        return self._local_init_op

    @property
    def local_init_feed_dict(self) -> Any:
        return self._local_init_feed_dict

    @property
    def summary_op(self) -> Any:
        return self._summary_op

    @property
    def saver(self) -> Any:
        return self._saver

    @property
    def init_feed_dict(self) -> Any:
        return self._init_feed_dict

    @staticmethod
    def get_or_default(arg_name: str, collection_key: str, default_constructor: Callable[[], Any]) -> Any:
        """The one item of a collection; made by `default_constructor`, and added, if there is none."""
        graph = get_default_graph()
        found = graph.get_collection(collection_key)
        if len(found) > 1:
            raise RuntimeError(f"More than one item in the collection \"{collection_key}\". Please indicate which one to use by passing it to the tf.Scaffold constructor as:  tf.Scaffold({arg_name}=item to use)")
        if found:
            return found[0]
        made = default_constructor()
        if made is not None:
            graph.add_to_collection(collection_key, made)
        return made

    @staticmethod
    def default_local_init_op() -> Any:
        """Initialises local variables and tables."""
        return group(resolve("local_variables_initializer")(), resolve("tables_initializer")())


def _default_saver() -> Any:
    graph = get_default_graph()
    found = graph.get_collection(GraphKeys.SAVERS)
    if len(found) > 1:
        raise RuntimeError(f"More than one item in collection {GraphKeys.SAVERS}. Please indicate which one to use by passing it to the constructor.")
    if found:
        return found[0]
    saver = resolve("train.Saver")(sharded=True, allow_empty=True)
    graph.add_to_collection(GraphKeys.SAVERS, saver)
    return saver


class SessionCreator:
    """Makes sessions: `create_session()`."""

    def create_session(self) -> Any:
        raise NotImplementedError(f"create_session is not implemented for {self}.")


class ChiefSessionCreator(SessionCreator):
    """Makes sessions that initialise the model, or restore it from a checkpoint."""

    def __init__(self, scaffold: Scaffold | None = None, master: str = "", config: Any = None, checkpoint_dir: str | None = None,
                 checkpoint_filename_with_path: str | None = None) -> None:  # fmt: skip
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename_with_path = checkpoint_filename_with_path
        self._scaffold = scaffold or Scaffold()
        self._session_manager: SessionManager | None = None
        self._master = master
        self._config = config

    def _manager(self) -> SessionManager:
        if self._session_manager is None:
            self._session_manager = _session_manager(self._scaffold)
        return self._session_manager

    def create_session(self) -> Any:
        self._scaffold.finalize()
        return self._manager().prepare_session(
            self._master, saver=self._scaffold.saver, checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path, config=self._config, init_op=self._scaffold.init_op,
            init_feed_dict=self._scaffold.init_feed_dict, init_fn=self._scaffold.init_fn,
        )  # fmt: skip


class WorkerSessionCreator(SessionCreator):
    """Makes sessions that wait until the chief has made the model ready."""

    def __init__(self, scaffold: Scaffold | None = None, master: str = "", config: Any = None, max_wait_secs: float = 30 * 60) -> None:
        self._scaffold = scaffold or Scaffold()
        self._session_manager: SessionManager | None = None
        self._master = master
        self._config = config
        self._max_wait_secs = max_wait_secs

    def _manager(self) -> SessionManager:
        if self._session_manager is None:
            self._session_manager = _session_manager(self._scaffold)
        return self._session_manager

    def create_session(self) -> Any:
        self._scaffold.finalize()
        return self._manager().wait_for_session(self._master, config=self._config, max_wait_secs=self._max_wait_secs)


def _session_manager(scaffold: Scaffold) -> SessionManager:
    return SessionManager(
        local_init_op=scaffold.local_init_op, local_init_feed_dict=scaffold.local_init_feed_dict, ready_op=scaffold.ready_op,
        ready_for_local_init_op=scaffold.ready_for_local_init_op, graph=get_default_graph(),
    )  # fmt: skip
