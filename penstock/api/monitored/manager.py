"""`tf.train.SessionManager`: makes a session whose model is ready, from a checkpoint or by initialising it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from penstock import errors
from penstock.api import logging as log
from penstock.api.export import resolve, table
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation
from penstock.session.base import Session


class SessionManager:
    """Makes ready sessions.

    A model is ready when `ready_op`, a vector of the names of uninitialised variables, is empty (or None, or not given). `local_init_op` runs
    in every new session, once `ready_for_local_init_op` says so in the same way.
    """

    def __init__(self, local_init_op: Any = None, ready_op: Any = None, ready_for_local_init_op: Any = None, graph: Any = None,
                 recovery_wait_secs: float = 30, local_init_run_options: Any = None, local_init_feed_dict: Any = None) -> None:  # fmt: skip
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._graph = get_default_graph() if graph is None else graph
        self._recovery_wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options
        self._local_init_feed_dict = local_init_feed_dict
        self._target: Any = None
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError(f"If you pass a ready_for_local_init_op you must also pass a local_init_op , ready_for_local_init_op [{ready_for_local_init_op}]")

    def _restore_checkpoint(self, master: str, saver: Any, checkpoint_dir: str | None, checkpoint_filename_with_path: str | None,
                            wait_for_checkpoint: bool, max_wait_secs: float, config: Any) -> tuple[Any, bool]:  # fmt: skip
        """(a new session, whether a checkpoint was loaded into it)."""
        self._target = master
        if checkpoint_dir and checkpoint_filename_with_path:
            raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        sess = Session(master, graph=self._graph, config=config)
        if not saver or not (checkpoint_dir or checkpoint_filename_with_path):
            return sess, False
        if checkpoint_filename_with_path:
            saver.restore(sess, checkpoint_filename_with_path)
            return sess, True
        waited = 0.0
        while (path := _latest_checkpoint(checkpoint_dir)) is None:
            if not wait_for_checkpoint or waited >= max_wait_secs:
                return sess, False
            log.info("Waiting for checkpoint to be available.")
            time.sleep(self._recovery_wait_secs)
            waited += self._recovery_wait_secs
        saver.restore(sess, path)
        return sess, True

    def prepare_session(self, master: str, init_op: Any = None, saver: Any = None, checkpoint_dir: str | None = None,
                        checkpoint_filename_with_path: str | None = None, wait_for_checkpoint: bool = False, max_wait_secs: float = 7200,
                        config: Any = None, init_feed_dict: Any = None, init_fn: Any = None) -> Any:  # fmt: skip
        """A ready session: restored from a checkpoint if there is one, else initialised by `init_op` and `init_fn(session)`."""
        sess, is_loaded = self._restore_checkpoint(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs, config
        )
        if not is_loaded:
            if init_op is None and not init_fn and self._local_init_op is None:
                raise RuntimeError("Model is not initialized and no init_op or init_fn or local_init_op was given")
            if init_op is not None:
                sess.run(init_op, feed_dict=init_feed_dict)
            if init_fn:
                init_fn(sess)
        initialized, text = self._try_run_local_init_op(sess)
        if not initialized:
            raise RuntimeError(
                f"Init operations did not make model ready for local_init.  Init op: {_described(init_op)}, init fn: {init_fn}, error: {text}"
            )
        ready, text = self._model_ready(sess)
        if not ready:
            raise RuntimeError(
                f"Init operations did not make model ready.  Init op: {_described(init_op)}, init fn: {init_fn}, local_init_op: "
                f"{_described(self._local_init_op)}, error: {text}"
            )
        return sess

    def recover_session(self, master: str, saver: Any = None, checkpoint_dir: str | None = None, checkpoint_filename_with_path: str | None = None,
                        wait_for_checkpoint: bool = False, max_wait_secs: float = 7200, config: Any = None) -> tuple[Any, bool]:  # fmt: skip
        """(a session, whether it is ready), restored from a checkpoint if there is one; never initialised."""
        sess, is_loaded = self._restore_checkpoint(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs, config
        )
        initialized, text = self._try_run_local_init_op(sess)
        if not is_loaded:
            return sess, False
        if not initialized:
            log.info("Restoring model from %s did not make model ready for local init: %s", checkpoint_dir or checkpoint_filename_with_path, text)
            return sess, False
        ready, text = self._model_ready(sess)
        if not ready:
            log.info("Restoring model from %s did not make model ready: %s", checkpoint_dir or checkpoint_filename_with_path, text)
            return sess, False
        log.info("Restored model from %s", checkpoint_dir or checkpoint_filename_with_path)
        return sess, True

    def wait_for_session(self, master: str, config: Any = None, max_wait_secs: float = float("inf")) -> Any:
        """A session whose model somebody else (the chief) makes ready; waits for that."""
        self._target = master
        deadline = time.monotonic() + (float("inf") if max_wait_secs is None else max_wait_secs)
        while True:
            sess = Session(master, graph=self._graph, config=config)
            text: str | None = None
            not_ready_local = None
            try:
                ready_local, not_ready_local = self._model_ready_for_local_init(sess)
                if ready_local:
                    if self._local_init_op is not None:
                        sess.run(self._local_init_op, feed_dict=self._local_init_feed_dict, options=self._local_init_run_options)
                    ready, text = self._model_ready(sess)
                    if ready:
                        return sess
            except (errors.UnavailableError, errors.AbortedError) as error:
                text = str(error)
            sess.close()
            if time.monotonic() + self._recovery_wait_secs > deadline:
                raise errors.DeadlineExceededError(None, None, f"Session was not ready after waiting {max_wait_secs} secs.")
            log.info("Waiting for model to be ready.  Ready_for_local_init_op:  %s, ready: %s", not_ready_local, text)
            time.sleep(self._recovery_wait_secs)

    # -- readiness --------------------------------------------------------------------------------------------------------

    def _model_ready(self, sess: Any) -> tuple[bool, str | None]:
        return _ready(self._ready_op, sess, "Model not ready")

    def _model_ready_for_local_init(self, sess: Any) -> tuple[bool, str | None]:
        return _ready(self._ready_for_local_init_op, sess, "Model not ready for local init")

    def _try_run_local_init_op(self, sess: Any) -> tuple[bool, str | None]:
        if self._local_init_op is None:
            return True, None
        ready, text = self._model_ready_for_local_init(sess)
        if not ready:
            return False, text
        log.info("Running local_init_op.")
        sess.run(self._local_init_op, feed_dict=self._local_init_feed_dict, options=self._local_init_run_options)
        log.info("Done running local_init_op.")
        return True, None


def _ready(op: Any, sess: Any, text: str) -> tuple[bool, str | None]:
    if op is None:
        return True, None
    try:
        value = sess.run(op)
    except errors.FailedPreconditionError as error:
        if "uninitialized" not in str(error):
            log.warning("%s : error [%s]", text, error)
            raise
        return False, str(error)
    if value is None or np.asarray(value).dtype == np.int32 or np.size(value) == 0:
        return True, None
    names = ", ".join(v.decode() for v in np.ravel(value))
    return False, f"Variables not initialized: {names}"


def _described(op: Any) -> str:
    return op.name if isinstance(op, Operation) else str(op)


def _latest_checkpoint(checkpoint_dir: str | None) -> str | None:
    if "train.latest_checkpoint" not in table():
        raise errors.UnimplementedError("Checkpoints need tf.train.latest_checkpoint and tf.train.Saver, which are not there.")
    return resolve("train.latest_checkpoint")(checkpoint_dir)
