"""A forked child uses what other threads of its parent were in the middle of using."""

import gc
import os
import signal
import subprocess
import sys
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

def in_child(work):
    """Runs `work()` in a forked child, which has to end by itself."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
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


def test_a_fork_waits_for_the_end_of_a_write(monkeypatch):
    monkeypatch.setattr(bundles, "PATIENCE", 60)
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


# -- signals in the middle of a fork. In processes of their own: what goes wrong here waits for ever. --------------------------------------------

FORK_BESIDE_A_WRITER = """
import os, signal, sys, threading, time
others = threading.Lock()  # as concurrent.futures has one: another fork between its hooks would wait for ever
os.register_at_fork(before=others.acquire, after_in_parent=others.release, after_in_child=others.release)
os.register_at_fork(before=lambda: time.sleep(0.1))  # as if the process were large

import numpy as np
from penstock.dtypes import float32
from penstock.ops import bundles, interrupts
from penstock.ops.resources import Owned, Ref

bundles.PATIENCE = 60
ref = Ref(float32, (), "v")
later = threading.Lock()
os.register_at_fork(before=later.acquire, after_in_parent=later.release, after_in_child=later.release)


def in_child():
    pid = os.fork()
    if pid == 0:
        os._exit(0 if not interrupts.came and signal.getsignal(signal.SIGINT).__name__ == "default_int_handler" else 1)
    assert os.waitpid(pid, 0)[1] == 0


def fork_beside_a_writer(numbers):
    '''Forks while another thread writes a variable, so that the fork waits; signals come meanwhile.'''
    inside, over, waits = threading.Event(), threading.Event(), threading.Event()
    acquire = ref.lock.acquire

    def hold():
        with ref.lock:
            inside.set()
            over.wait()

    class Watched:
        release = ref.lock.release
        _at_fork_reinit = ref.lock._at_fork_reinit

        def acquire(self, timeout):
            waits.set()
            return acquire(timeout=timeout)

    def press():
        waits.wait()
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.02)
        over.set()

    threading.Thread(target=hold).start()
    inside.wait()
    ref.lock = Watched()
    threading.Thread(target=press).start()
    in_child()
"""


def run_beside_a_writer(program):
    found = subprocess.run([sys.executable, "-c", FORK_BESIDE_A_WRITER + program], capture_output=True, text=True, timeout=100)
    assert found.returncode == 0 and "Exception ignored" not in found.stderr, found.stderr
    return found.stdout.split()


def test_ctrl_c_while_a_fork_waits_is_not_lost():
    program = "try:\n    fork_beside_a_writer([signal.SIGINT])\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('stopped')\n"
    assert run_beside_a_writer(program) == ["stopped"]


def test_impatient_ctrl_c_while_a_fork_waits_is_not_lost():
    program = "interrupts.PATIENCE = 0.01\ntry:\n    fork_beside_a_writer([signal.SIGINT] * 4)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('stopped')\n"
    assert run_beside_a_writer(program) == ["stopped"]


@pytest.mark.parametrize("later", ["", "interrupts.LATER = 0"], ids=["", "at once"])
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGWINCH])
def test_a_handler_may_fork_while_a_fork_waits(number, later):
    """It is put off until the fork is over, however long that takes."""
    program = later + """
forked = threading.Event()
signal.signal(%d, lambda *_: (in_child(), forked.set()))
fork_beside_a_writer([%d])
end = time.monotonic() + 60
while not forked.is_set() and time.monotonic() < end:
    time.sleep(0.01)
assert forked.is_set() and not bundles._forks
assert bundles._forking.acquire(False)
print("over")
"""
    assert run_beside_a_writer(program % (number, number)) == ["over"]


def test_a_thread_forks_while_the_main_thread_puts_signals_off():
    """The child's signals are what they were: nobody there would open them again."""
    program = """
thread = threading.Thread(target=in_child)
failed = []
threading.excepthook = failed.append
with interrupts.Uninterrupted():
    os.kill(os.getpid(), signal.SIGINT)
    while not interrupts.came:
        time.sleep(0.001)
    thread.start()
    thread.join()
    interrupts.came.clear()
print(len(failed))
"""
    assert run_beside_a_writer(program) == ["0"]
