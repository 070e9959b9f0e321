"""`tf.train.SessionRunHook`, and what it is told about a run."""

from __future__ import annotations

from typing import Any, NamedTuple


class SessionRunHook:
    """Extends the runs of a monitored session. Override what you need.

    Called in this order: `begin` once, before the graph is finalized; `after_create_session` for every session that is made; `before_run` and
    `after_run` around every run; `end` once, unless the session ended with an error.
    """

    def begin(self) -> None:
        """The last chance to add to the graph."""

    def after_create_session(self, session: Any, coord: Any) -> None:
        """A session was made. The graph is finalized."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """May return further things to fetch or feed in the coming run."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """The run is over; `run_values.results` are what `before_run` asked for."""

    def end(self, session: Any) -> None:
        """The session is about to be closed; `session` can still be used."""


class SessionRunArgs(NamedTuple):
    """What to add to a run: fetches, feeds, RunOptions."""

    fetches: Any
    feed_dict: Any = None
    options: Any = None


class SessionRunValues(NamedTuple):
    """What a run gave: results of the hook's fetches, the RunOptions and the RunMetadata."""

    results: Any
    options: Any
    run_metadata: Any


class SessionRunContext:
    """A run, as hooks see it: what the caller asked for, the session, and a way to end the loop."""

    def __init__(self, original_args: SessionRunArgs, session: Any) -> None:
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        return self._original_args

    @property
    def session(self) -> Any:
        return self._session

    @property
    def stop_requested(self) -> bool:
        return self._stop_requested

    def request_stop(self) -> None:
        """Makes the session's `should_stop()` true from now on."""
        self._stop_requested = True
