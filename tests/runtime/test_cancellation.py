import os
import threading
import time

import pytest

from penstock import errors
from penstock.runtime.cancellation import CancellationManager, Deadline, _clock, at_deadline


def test_callbacks_run_once_in_order():
    manager = CancellationManager()
    calls = []
    for i in range(3):
        assert manager.register(lambda i=i: calls.append(i)) is not None
    assert not manager.is_cancelled
    manager.start_cancel()
    manager.start_cancel()
    assert calls == [0, 1, 2]
    assert manager.is_cancelled


def test_register_after_cancel():
    manager = CancellationManager()
    manager.start_cancel()
    assert manager.register(lambda: pytest.fail("must not run")) is None


def test_deregistered_callbacks_do_not_run():
    manager = CancellationManager()
    token = manager.register(lambda: pytest.fail("must not run"))
    assert manager.deregister(token)
    assert not manager.deregister(token)
    manager.start_cancel()
    assert not manager.deregister(token)
    assert not manager.deregister(None)


def test_deregister_waits_for_a_running_callback():
    manager = CancellationManager()
    started, go_on, ended = threading.Event(), threading.Event(), []

    def callback():
        started.set()
        go_on.wait(60)
        ended.append(True)

    token = manager.register(callback)
    thread = threading.Thread(target=manager.start_cancel)
    thread.start()
    assert started.wait(60)
    assert not manager.try_deregister(token)  # does not wait
    assert not ended
    threading.Timer(0.05, go_on.set).start()
    assert not manager.deregister(token)
    assert ended, "deregister returned while the callback was still running"
    thread.join()


def test_a_callback_may_use_its_manager():
    manager = CancellationManager()
    seen = []
    token = manager.register(
        lambda: seen.append((manager.is_cancelled, manager.deregister(token), manager.register(print)))
    )
    manager.start_cancel()
    assert seen == [(True, False, None)]


def test_every_callback_runs_though_one_fails():
    manager = CancellationManager()
    calls = []
    manager.register(lambda: 1 / 0)
    manager.register(lambda: calls.append(1))
    with pytest.raises(ZeroDivisionError):
        manager.start_cancel()
    assert calls == [1]


def test_children():
    root = CancellationManager()
    left, right = CancellationManager(root), CancellationManager(root)
    below = CancellationManager(left)
    calls = []
    for name, manager in (("root", root), ("left", left), ("right", right), ("below", below)):
        manager.register(lambda name=name: calls.append(name))
    left.start_cancel()
    assert sorted(calls) == ["below", "left"] and not root.is_cancelled and not right.is_cancelled
    reason = errors.CancelledError("closed")
    root.start_cancel(reason)
    assert sorted(calls) == ["below", "left", "right", "root"]
    assert right.reason is reason and left.reason is None
    late = CancellationManager(root)
    assert late.is_cancelled and late.reason is reason


def test_detached_children_are_forgotten():
    root = CancellationManager()
    child = CancellationManager(root)
    child.detach()
    assert not root._children
    root.start_cancel()
    assert not child.is_cancelled


def test_a_very_long_chain():
    root = manager = CancellationManager()
    for _ in range(5000):
        manager = CancellationManager(manager)
    root.start_cancel()
    assert manager.is_cancelled


def test_deadlines_fire_in_order():
    fired = []
    done = threading.Event()
    now = time.monotonic()
    late, early, cancelled = (
        Deadline(now + 0.06, lambda: (fired.append("late"), done.set())),
        Deadline(now + 0.02, lambda: fired.append("early")),
        Deadline(now + 0.04, lambda: fired.append("cancelled")),
    )
    with _clock._condition:  # it does not go on before all of them are there
        for deadline in (late, early, cancelled):
            _clock.add(deadline)
        cancelled.cancel()
    assert done.wait(60)
    assert fired == ["early", "late"]


def test_cancelled_deadlines_do_not_pile_up():
    for _ in range(1000):
        at_deadline(3600, lambda: None).cancel()
    assert len(_clock._heap) < 400


def test_a_failing_deadline_does_not_stop_the_clock(capsys):
    done = threading.Event()
    at_deadline(0.0, lambda: 1 / 0)
    at_deadline(0.02, done.set)
    assert done.wait(60)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_deadlines_after_fork():
    at_deadline(0.0, lambda: None)
    time.sleep(0.05)  # the clock's thread runs now, and will not exist in the child
    pid = os.fork()
    if pid == 0:
        fired = threading.Event()
        at_deadline(0.01, fired.set)
        os._exit(0 if fired.wait(60) else 1)
    assert os.waitpid(pid, 0)[1] == 0
