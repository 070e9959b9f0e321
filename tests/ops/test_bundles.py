"""Variables whose values a compiled program holds together: whoever else comes gets the right value, and changes are not lost."""

import sys
import threading
import time

import numpy as np
import pytest

import penstock as tf
from penstock.dtypes import float32
from penstock.ops import bundles
from penstock.ops.bundles import Bundle, DeviceHeldRef, HeldRef, hold, put_raw, untied
from penstock.ops.resources import Ref


def _tied(n=3, kind=DeviceHeldRef):
    refs = [Ref(float32, (2,), f"v{i}") for i in range(n)]
    bundle = Bundle(refs, kind)
    for ref in refs:
        ref.lock.acquire()
    bundle.tie([np.full(2, i, np.float32) for i in range(n)])
    for ref in refs:
        ref.lock.release()
    return refs, bundle


def test_a_reader_gets_the_value_and_all_others_have_theirs():
    refs, bundle = _tied()
    assert all(ref.__class__ is DeviceHeldRef for ref in refs)
    np.testing.assert_array_equal(refs[1].read(), [1, 1])
    assert bundle.values is None and refs[1].__class__ is Ref
    np.testing.assert_array_equal(refs[2].peek(), [2, 2])


def test_a_reader_of_a_small_value_gets_a_copy_and_the_others_stay_tied(monkeypatch):
    refs, bundle = _tied(kind=HeldRef)
    mine = refs[1].read()
    np.testing.assert_array_equal(mine, [1, 1])
    bundle.values[1][:] = 5  # the next step writes over it
    np.testing.assert_array_equal(mine, [1, 1])
    np.testing.assert_array_equal(refs[1].peek(), [5, 5])
    assert bundle.values is not None and all(ref.__class__ is HeldRef for ref in refs)
    with refs[1].lock:  # a writer: between its reading and its writing no step may come
        np.testing.assert_array_equal(refs[1].value, [5, 5])
    assert bundle.values is None and refs[1].__class__ is Ref

    refs, bundle = _tied(kind=HeldRef)
    monkeypatch.setattr(bundles, "SMALL", 7)
    np.testing.assert_array_equal(refs[2].read(), [2, 2])
    assert bundle.values is None, "a large value is not copied"


def test_two_variables_of_one_bundle_in_one_update():
    """A copy to another variable of the same bundle."""
    refs, bundle = _tied(kind=HeldRef)
    refs[0].assign(refs[2].read())
    assert bundle.values is None
    refs[2].update(np.add, np.float32(1))
    assert [ref.read().tolist() for ref in refs] == [[2, 2], [1, 1], [3, 3]]


@pytest.mark.parametrize("kind", [DeviceHeldRef, HeldRef])
def test_writers(kind):
    refs, bundle = _tied(kind=kind)
    refs[0].assign(np.array([7, 8], np.float32))
    np.testing.assert_array_equal(refs[0].read(), [7, 8])
    refs, bundle = _tied(kind=kind)
    refs[2].update(np.add, np.float32(1))
    np.testing.assert_array_equal(refs[2].read(), [3, 3])
    np.testing.assert_array_equal(refs[1].read(), [1, 1])
    refs, bundle = _tied(kind=kind)
    refs[0].value = None
    assert refs[0].peek() is None
    np.testing.assert_array_equal(untied(refs[1]), [1, 1])


def test_a_reader_waits_for_the_step_that_has_the_bundle():
    refs, bundle = _tied()
    got = []
    with bundle.lock:
        reader = threading.Thread(target=lambda: got.append(refs[0].read()))
        reader.start()
        reader.join(0.05)
        assert not got
        bundle.values = [np.full(2, 9, np.float32)] * 3
    reader.join(60)
    np.testing.assert_array_equal(got[0], [9, 9])


@pytest.mark.parametrize("n_readers", [1, 3])
def test_training_while_others_read_and_assign(n_readers):
    """Two variables move together; whoever looks at both within one step must see them equal, and no step may be lost."""
    pytest.importorskip("jax")
    graph = tf.Graph()
    with graph.as_default():
        a = tf.get_variable("a", initializer=np.zeros(8, np.float32), use_resource=True)
        b = tf.get_variable("b", initializer=np.zeros(8, np.float32), use_resource=True)
        train = tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(-a) + tf.reduce_sum(-b))
        read = a.read_value()
        other = b.assign_add(np.ones(8, np.float32)).op
        init = tf.global_variables_initializer()
    with tf.Session(graph=graph) as session:
        session.run(init)
        step, look, bump = (session.make_callable(x) for x in (train, read, other))
        for _ in range(50):
            step()
        over = threading.Event()
        problems = []

        def watch():
            last = 0.0
            while not over.is_set():
                value = look()
                if value.min() != value.max() or value[0] < last:
                    problems.append(value)
                last = value[0]

        readers = [threading.Thread(target=watch) for _ in range(n_readers)]
        for reader in readers:
            reader.start()
        for _ in range(300):
            step()
        for _ in range(50):
            bump()
            step()
        over.set()
        for reader in readers:
            reader.join()
        assert not problems
        np.testing.assert_array_equal(session.run(a), np.full(8, 400))
        np.testing.assert_array_equal(session.run(b), np.full(8, 450))


class _Array:
    """As an array of XLA's: NumPy can see it."""

    def __init__(self, number):
        self.number = number

    def __array__(self, dtype=None, copy=None):
        return np.full(2, self.number, np.float32)


def test_a_reader_who_waits_while_the_variable_is_tied():
    ref = Ref(float32, (2,), "v")
    hold(ref, _Array(1))
    got = []
    with ref.lock:
        reader = threading.Thread(target=lambda: got.append(ref.value))  # finds an array of XLA's, and waits for the lock
        reader.start()
        time.sleep(0.05)
        put_raw(ref, None)
        bundle = Bundle([ref], HeldRef)
        bundle.tie([_Array(2)])
    reader.join(60)
    np.testing.assert_array_equal(got[0], [2, 2])
    assert ref.__class__ is Ref and bundle.values is None


def test_many_threads_tie_read_and_write():
    """Steps of two programs on the same variables, readers and writers: no update is lost, nobody sees anything but numbers."""
    refs = [Ref(float32, (2,), f"v{i}") for i in range(3)]
    for ref in refs:
        hold(ref, _Array(0))
    wrong, over = [], threading.Event()

    def program():
        bundle = Bundle(refs, HeldRef)
        for _ in range(300):
            if bundle.values is not None:
                with bundle.lock:
                    if bundle.values is not None:
                        bundle.values = [_Array(value.number + 1) for value in bundle.values]
                        continue
            for ref in refs:
                ref.lock.acquire()
            try:
                taken = [np.asarray(untied(ref))[0] for ref in refs]
                for ref in refs:
                    put_raw(ref, None)
                bundle.tie([_Array(number + 1) for number in taken])
            finally:
                for ref in refs:
                    ref.lock.release()

    def reader(i):
        while not over.is_set():
            value = refs[i].read()
            if value.__class__ is not np.ndarray or value.dtype != np.float32:
                wrong.append(value)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        programs = [threading.Thread(target=program) for _ in range(2)]
        readers = [threading.Thread(target=reader, args=(i,)) for i in range(3)]
        for t in [*readers, *programs]:
            t.start()
        for t in programs:
            t.join()
        over.set()
        for t in readers:
            t.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong
    assert [ref.read()[0] for ref in refs] == [600, 600, 600]
