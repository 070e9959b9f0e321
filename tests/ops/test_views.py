"""Small pieces of large arrays do not keep them in memory: within a step, in what is fetched, and in what is stored."""

import tracemalloc

import numpy as np
import pytest

import penstock as tf
from penstock.ops.kernels import views

LARGE = np.ones((1000, 1000), np.float32)
WARM = 30


def memory_of(array):
    return array.nbytes if array.base is None else array.base.nbytes


@pytest.mark.parametrize("cut", [lambda h: h[:, -1], lambda h: h[3], lambda h: tf.slice(h, [5, 0], [2, -1]), lambda h: h[:, :300], lambda h: tf.split(h, 20)[3]])
@pytest.mark.parametrize("static", [True, False])
def test_what_is_fetched_keeps_no_more_than_twice_its_memory(cut, static):
    x = tf.placeholder(tf.float32, [1000, 1000] if static else [None, None])
    y = cut(tf.tanh(x) * 2.0)
    with tf.Session() as sess:
        for _ in range(WARM):
            got = sess.run(y, {x: LARGE})
            assert memory_of(got) <= 2 * got.nbytes + 1024
        np.testing.assert_allclose(got, np.tanh(1) * 2, rtol=1e-6)


def grown(step, times=25):
    """MB that steps leave behind."""
    for _ in range(WARM):
        step()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(times):
            step()
        return (tracemalloc.get_traced_memory()[0] - before) / 2**20
    finally:
        tracemalloc.stop()


def test_what_is_stored_keeps_no_more_either():
    x = tf.placeholder(tf.float32, [None, 1000])
    y = tf.tanh(x)[:, :200]  # too much for `piece`
    puts = {
        "queue": tf.FIFOQueue(1000, [tf.float32]).enqueue(y),
        "queue of rows": tf.FIFOQueue(100_000, [tf.float32], [[200]]).enqueue_many(y),
        "stage": tf.raw_ops.Stage(values=[y], shared_name="kept"),
        "map": tf.raw_ops.MapStage(key=tf.placeholder(tf.int64, [], name="key"), indices=[0], values=[y], dtypes=[tf.float32], shared_name="kept_too"),
        "handle": tf.get_session_handle(y),
    }
    kept, numbers = [], iter(range(1000))
    with tf.Session() as sess:
        for name, put in puts.items():
            feeds = {x: LARGE}
            step = lambda: kept.append(sess.run(put, {**feeds, "key:0": next(numbers)} if name == "map" else feeds))  # noqa: B023 (called in this round)
            assert grown(step) < 40, name  # of 20 MB; 100 if whole arrays were kept


def pieces_of_layers(x):
    h, pieces = x, []
    for _ in range(20):
        h = tf.nn.softmax(tf.matmul(h, x))
        pieces.append(h[:, :10])
    return tf.concat(pieces, 1)


def pieces_of_rounds(x):
    array = tf.TensorArray(tf.float32, 20)
    return tf.while_loop(lambda i, _: i < 20, lambda i, t: (i + 1, t.write(i, (x * tf.cast(i, tf.float32))[:, 0])), [0, array])[1].stack()


@pytest.mark.parametrize("program", [pieces_of_layers, pieces_of_rounds])
@pytest.mark.parametrize("static", [True, False])
def test_a_step_lets_go_of_what_it_took_pieces_from(program, static, monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    x = tf.placeholder(tf.float32, [1000, 1000] if static else [None, 1000])
    y = program(x)
    with tf.Session() as sess:
        for _ in range(8):
            sess.run(y, {x: LARGE})
        tracemalloc.start()
        try:
            sess.run(y, {x: LARGE})
            assert tracemalloc.get_traced_memory()[1] < 40 * 2**20  # 20 arrays of 4 MB if they stayed
        finally:
            tracemalloc.stop()


def test_pieces_that_are_large_or_of_little_stay_views():
    whole = np.zeros((1 << 10, 1 << 9), np.float32)
    assert views.piece(whole[: 1 << 7]).base is whole  # an eighth
    assert views.piece(whole[: (1 << 7) - 1]).base is None
    few = np.zeros(1000)
    assert views.piece(few[:1]).base is few
    assert views.compact(few[:500]).base is few
    assert views.compact(few[:100]).base is None
    assert views.compact(few[3]) == 0 and views.compact(b"text") == b"text"
