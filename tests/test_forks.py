"""A forked child uses what other threads of its parent were in the middle of using."""

import gc
import os
import signal
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

import penstock as tf
from penstock import forks
from penstock.dtypes import float32
from penstock.graph.quiet_gc import paused
from penstock.ops import bundles
from penstock.ops.resources import Owned, Ref, variables

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:os.fork"),
]

if hasattr(os, "fork"):
    others = threading.Lock()  # as concurrent.futures has one: another fork between its hooks would wait for ever
    os.register_at_fork(before=others.acquire, after_in_parent=others.release, after_in_child=others.release)


def in_child(work):
    """Runs `work()` in a forked child, which has to end by itself."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


@contextmanager
def held(block):
    """Another thread is inside of `block`."""
    inside, over = threading.Event(), threading.Event()

    def hold():
        with block:
            inside.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_variable_that_is_being_written_for_ever(monkeypatch):
    monkeypatch.setattr(bundles, "PATIENCE", 0.05)
    ref = Ref(float32, (2,), "v")
    ref.assign(np.ones(2, np.float32))

    def work():
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value v"):
            ref.read()
        ref.assign(np.zeros(2, np.float32))
        ref.update(np.add, np.float32(3))
        assert ref.read().tolist() == [3, 3]

    with held(Owned(ref)):
        in_child(work)
    in_child(lambda: ref.update(np.add, ref.read()))  # the parent's is as it was
    assert ref.read().tolist() == [1, 1]


def test_a_fork_waits_for_the_end_of_a_write():
    ref = Ref(float32, (2,), "v")
    ref.assign(np.ones(2, np.float32))
    inside = threading.Event()

    def write():
        with Owned(ref) as (array,):
            inside.set()
            time.sleep(0.2)
            array += 1

    thread = threading.Thread(target=write)
    thread.start()
    inside.wait()

    def work():
        assert ref.read().tolist() == [2, 2]

    in_child(work)
    thread.join()


def test_a_session_whose_locks_are_taken():
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable(1.0)
        queue = tf.FIFOQueue(2, [tf.float32])
        session.run([tf.global_variables_initializer(), queue.enqueue(2.0)])
        runtime = session._runtime
        resources = [device.resources for device in runtime.devices.devices]
        found = next(r for manager in resources for _, _, r in manager.items() if hasattr(r, "lines"))

        def work():
            assert session.run(v + 1) == 2
            assert session.run(tf.while_loop(lambda i: i < 5, lambda i: i + 1, [tf.constant(0)])) == 5
            assert session.run(queue.dequeue()) == 2
            session.run(tf.Variable(3.0).initializer)
            session.close()

        with held(runtime._lock), held(resources[0]._lock), held(runtime.cancellation._lock), held(found.lock):
            in_child(work)
        assert session.run(queue.dequeue()) == 2


def test_what_the_forking_thread_holds_it_goes_on_to_hold():
    lock = forks.renewed(threading.RLock())

    def work():
        lock.release()
        assert lock.acquire(False)

    with lock:
        in_child(work)


def test_collections_go_on():
    def work():
        assert gc.isenabled()
        with paused():
            assert not gc.isenabled()
        assert gc.isenabled()

    with held(paused()):
        assert not gc.isenabled()
        in_child(work)
    assert gc.isenabled()


def test_variables_and_locks_are_not_kept_alive():
    ref, lock = Ref(float32, (), "v"), forks.renewed(threading.Lock())
    keys = id(ref), id(lock)
    assert keys[0] in variables and keys[1] in forks._locks
    del ref, lock
    gc.collect()
    assert keys[0] not in variables and keys[1] not in forks._locks


def test_who_waited_in_the_parent_gets_nothing_in_the_child():
    with tf.Graph().as_default(), tf.Session() as session:
        queue = tf.FIFOQueue(9, [tf.int32])
        put, get, size = queue.enqueue(1), queue.dequeue(), queue.size()
        assert session.run(size) == 0
        room = next(r for device in session._runtime.devices.devices for _, _, r in device.resources.items() if hasattr(r, "lines"))
        taken: list[int] = []
        thread = threading.Thread(target=lambda: taken.append(session.run(get)))
        thread.start()
        while not any(room.lines):
            time.sleep(0.001)

        def work():
            session.run(put)
            assert session.run(size) == 1 and session.run(get) == 1

        in_child(work)
        session.run(put)
        thread.join()
        assert taken == [1]


def fork_beside_a_writer(number):
    """Forks while another thread writes a variable, so that the fork waits; a signal comes meanwhile."""
    ref = Ref(float32, (), "v")
    with held(ref.lock):
        waits = threading.Event()
        acquire = ref.lock.acquire

        class Watched:
            release = ref.lock.release
            _at_fork_reinit = ref.lock._at_fork_reinit

            def acquire(self, timeout):
                waits.set()
                return acquire(timeout=timeout)

        def press():
            waits.wait()
            os.kill(os.getpid(), number)

        ref.lock = Watched()
        threading.Thread(target=press).start()
        in_child(lambda: None)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(bundles, "PATIENCE", 0.3)


def test_ctrl_c_while_a_fork_waits_is_not_lost(short):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            fork_beside_a_writer(signal.SIGINT)
            time.sleep(20)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGWINCH])
def test_a_handler_may_fork_while_a_fork_waits(short, number):
    """It is put off until the fork is over."""
    forked = threading.Event()
    before = signal.signal(number, lambda *_: (in_child(lambda: None), forked.set()))
    try:
        fork_beside_a_writer(number)
        deadline = time.monotonic() + 20
        while not forked.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert forked.is_set() and not bundles._forks
        assert bundles._forking.acquire(False)
        bundles._forking.release()
    finally:
        signal.signal(number, before)
