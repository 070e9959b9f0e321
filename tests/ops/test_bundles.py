"""Variables whose values a compiled program holds together: whoever else comes gets the right value, and changes are not lost."""

import threading

import numpy as np
import pytest

import penstock as tf
from penstock.dtypes import float32
from penstock.ops.bundles import Bundle, BundledRef, give_back, give_to_hold, untied
from penstock.ops.resources import Ref


def _tied(n=3, give=give_back):
    refs = [Ref(float32, (2,), f"v{i}") for i in range(n)]
    bundle = Bundle(refs, give)
    for ref in refs:
        ref.lock.acquire()
    bundle.tie([np.full(2, i, np.float32) for i in range(n)])
    for ref in refs:
        ref.lock.release()
    return refs, bundle


def test_a_reader_gets_the_value_and_all_others_have_theirs():
    refs, bundle = _tied()
    assert all(ref.__class__ is BundledRef for ref in refs)
    np.testing.assert_array_equal(refs[1].read(), [1, 1])
    assert bundle.values is None and all(ref.__class__ is Ref for ref in refs)
    np.testing.assert_array_equal(refs[2].peek(), [2, 2])


@pytest.mark.parametrize("give", [give_back, give_to_hold])
def test_writers(give):
    refs, bundle = _tied(give=give)
    refs[0].assign(np.array([7, 8], np.float32))
    np.testing.assert_array_equal(refs[0].read(), [7, 8])
    refs, bundle = _tied(give=give)
    refs[2].update(np.add, np.float32(1))
    np.testing.assert_array_equal(refs[2].read(), [3, 3])
    np.testing.assert_array_equal(refs[1].read(), [1, 1])
    refs, bundle = _tied(give=give)
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
    reader.join(5)
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
