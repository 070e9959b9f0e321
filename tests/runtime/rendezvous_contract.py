"""What every Rendezvous must do. A test module for an implementation subclasses `RendezvousContract` and says how to make one.

The pair (`sender`, `receiver`) may be one object, or the two ends of a connection.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from penstock import errors
from penstock.names import make_key
from penstock.runtime.cancellation import CancellationManager

KEY = make_key("/job:a/replica:0/task:0/device:CPU:0", 0x1234, "/job:b/replica:0/task:0/device:CPU:0", "edge_1_x", 0, 0)
OTHER = make_key(
    "/job:a/replica:0/task:0/device:CPU:0", 0x1234, "/job:b/replica:0/task:0/device:CPU:0", "edge_2_y", 0, 0
)

WAIT = 60.0


class Inbox:
    """A `done` that remembers what it was told, and can be waited for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, bool]] = []
        self._arrived = threading.Event()

    def __call__(self, error: Any, value: Any, is_dead: bool) -> None:
        self.calls.append((error, value, is_dead))
        self._arrived.set()

    def result(self) -> tuple[Any, Any, bool]:
        assert self._arrived.wait(WAIT), "done was never called"
        assert len(self.calls) == 1, "done was called more than once"
        return self.calls[0]


class RendezvousContract:
    """Subclasses override `make`."""

    def make(self) -> tuple[Any, Any]:
        """(sender, receiver)"""
        raise NotImplementedError

    @pytest.fixture
    def pair(self):
        yield self.make()

    def test_send_then_recv(self, pair):
        sender, receiver = pair
        sender.send(KEY, np.float32(3))
        inbox = Inbox()
        receiver.recv_async(KEY, inbox)
        error, value, is_dead = inbox.result()
        assert error is None and value == np.float32(3) and not is_dead

    def test_recv_then_send(self, pair):
        sender, receiver = pair
        inbox = Inbox()
        receiver.recv_async(KEY, inbox)
        assert not inbox.calls
        sender.send(KEY, np.array([1, 2], np.int32))
        error, value, is_dead = inbox.result()
        assert error is None and value.tolist() == [1, 2] and not is_dead

    def test_dead_values_travel(self, pair):
        sender, receiver = pair
        sender.send(KEY, None, True)
        inbox = Inbox()
        receiver.recv_async(KEY, inbox)
        error, _, is_dead = inbox.result()
        assert error is None and is_dead

    def test_keys_do_not_mix(self, pair):
        sender, receiver = pair
        first, second = Inbox(), Inbox()
        receiver.recv_async(KEY, first)
        receiver.recv_async(OTHER, second)
        sender.send(OTHER, np.int32(2))
        sender.send(KEY, np.int32(1))
        assert first.result()[1] == 1 and second.result()[1] == 2

    def test_values_of_one_key_keep_their_order(self, pair):
        sender, receiver = pair
        for i in range(3):
            sender.send(KEY, np.int32(i))
        got = []
        for _ in range(3):
            inbox = Inbox()
            receiver.recv_async(KEY, inbox)
            got.append(int(inbox.result()[1]))
        assert got == [0, 1, 2]

    def test_waiting_receivers_are_served_in_order(self, pair):
        sender, receiver = pair
        inboxes = [Inbox() for _ in range(3)]
        for inbox in inboxes:
            receiver.recv_async(KEY, inbox)
        for i in range(3):
            sender.send(KEY, np.int32(i))
        assert [int(inbox.result()[1]) for inbox in inboxes] == [0, 1, 2]

    def test_strings(self, pair):
        sender, receiver = pair
        value = np.empty((2,), object)
        value[:] = [b"a", b"\x00\xff"]
        sender.send(KEY, value)
        inbox = Inbox()
        receiver.recv_async(KEY, inbox)
        assert inbox.result()[1].tolist() == [b"a", b"\x00\xff"]

    def test_abort_fails_those_who_wait(self, pair):
        _, receiver = pair
        inbox = Inbox()
        receiver.recv_async(KEY, inbox)
        receiver.abort(errors.AbortedError("stop it"))
        error, _, _ = inbox.result()
        assert isinstance(error, errors.AbortedError) and "stop it" in error.message

    def test_abort_fails_what_comes_after(self, pair):
        sender, receiver = pair
        sender.abort(errors.AbortedError("stop it"))
        receiver.abort(
            errors.UnavailableError("too late, the first one counts")
            if sender is receiver
            else errors.AbortedError("stop it")
        )
        inbox = Inbox()
        receiver.recv_async(KEY, inbox)
        assert isinstance(inbox.result()[0], errors.AbortedError)
        with pytest.raises(errors.AbortedError, match="stop it"):
            sender.send(KEY, np.int32(1))

    def test_abort_drops_values(self, pair):
        sender, receiver = pair
        sender.send(KEY, np.int32(1))
        sender.abort(errors.AbortedError("stop"))
        receiver.abort(errors.AbortedError("stop"))
        inbox = Inbox()
        receiver.recv_async(KEY, inbox)
        assert isinstance(inbox.result()[0], errors.AbortedError)

    def test_cancelled_receiver(self, pair):
        sender, receiver = pair
        manager = CancellationManager()
        inbox, later = Inbox(), Inbox()
        receiver.recv_async(KEY, inbox, manager)
        manager.start_cancel()
        error, _, _ = inbox.result()
        assert isinstance(error, errors.CancelledError)
        # Only that receiver is gone: the next value goes to the next one.
        receiver.recv_async(KEY, later)
        sender.send(KEY, np.int32(5))
        assert later.result()[1] == 5

    def test_recv_of_a_cancelled_step(self, pair):
        _, receiver = pair
        manager = CancellationManager()
        manager.start_cancel()
        inbox = Inbox()
        receiver.recv_async(KEY, inbox, manager)
        assert isinstance(inbox.result()[0], errors.CancelledError)

    def test_blocking_recv(self, pair):
        sender, receiver = pair
        threading.Timer(0.02, lambda: sender.send(KEY, np.int32(9))).start()
        value, is_dead = receiver.recv(KEY, timeout=WAIT)
        assert value == 9 and not is_dead
        with pytest.raises(errors.DeadlineExceededError):
            receiver.recv(OTHER, timeout=0.01)

    def test_callbacks_may_use_the_rendezvous(self, pair):
        sender, receiver = pair
        inbox = Inbox()

        def forward(error: Any, value: Any, is_dead: bool) -> None:
            sender.send(OTHER, value)
            receiver.recv_async(OTHER, inbox)

        receiver.recv_async(KEY, forward)
        sender.send(KEY, np.int32(4))
        assert inbox.result()[1] == 4

    def test_many_threads(self, pair):
        sender, receiver = pair
        keys = [make_key("/device:CPU:0", 1, "/device:CPU:1", f"e{i}") for i in range(200)]
        inboxes = [Inbox() for _ in keys]

        def send() -> None:
            for i, key in enumerate(keys):
                sender.send(key, np.int32(i))

        def receive() -> None:
            for key, inbox in zip(keys, inboxes, strict=True):
                receiver.recv_async(key, inbox)

        threads = [threading.Thread(target=f) for f in (send, receive)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert [int(inbox.result()[1]) for inbox in inboxes] == list(range(200))
