"""What an expert would feed and fetch in order to break a session."""

from __future__ import annotations

import numpy as np
import pytest

import penstock as tf

# -- feeds ----------------------------------------------------------------------------------------------------------------


def strided():
    return np.arange(20, dtype=np.float32)[::2]


def read_only():
    value = np.arange(4, dtype=np.float32)
    value.flags.writeable = False
    return value


GOOD_FEEDS = {
    "0-d": (np.array(3.0, np.float32), [], 3.0),
    "numpy scalar": (np.float32(3), [], 3.0),
    "bool for float": (True, [], 1.0),
    "not contiguous": (strided(), [10], float(np.arange(20)[::2].sum())),
    "fortran": (np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)), [2, 3], 15.0),
    "reversed": (np.arange(4, dtype=np.float32)[::-1], [4], 6.0),
    "read-only": (read_only(), [4], 6.0),
    "big-endian": (np.arange(4, dtype=">f4"), [4], 6.0),
    "big-endian ints": (np.arange(4, dtype=">i8"), [4], 6.0),
    "broadcast": (np.broadcast_to(np.float32(2), (3, 4)), [3, 4], 24.0),
    "empty": (np.zeros((0, 5), np.float32), [None, 5], 0.0),
    "empty list": ([], [None], 0.0),
    "matrix": (np.ones((2, 2)).view(np.matrix), [2, 2], 4.0),
    "masked": (np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False]), [3], None),
    "nested tuples": (((1, 2), (3, 4)), [2, 2], 10.0),
    "list of arrays": ([np.ones(2, np.float32), np.ones(2, np.float32)], [2, 2], 4.0),
    "memory view": (memoryview(np.arange(4, dtype=np.float32)), [4], 6.0),
    "range": (range(4), [4], 6.0),
    "huge": (np.ones(1 << 22, np.float32), [None], float(1 << 22)),
    "wider scalar": (np.float64(2.5), [], 2.5),
    "object array": (np.array([1, 2.5], object), [2], 3.5),
}


@pytest.mark.parametrize("name", GOOD_FEEDS)
def test_feeds_that_work(sess, name):
    value, shape, total = GOOD_FEEDS[name]
    x = tf.placeholder(tf.float32, shape)
    before = np.array(value) if not isinstance(value, memoryview) else None
    got, same = sess.run([tf.reduce_sum(x), x], {x: value})
    assert type(same) in (np.ndarray, np.float32) and same.dtype == np.float32
    if total is not None:
        assert got == total
    if isinstance(same, np.ndarray) and same.size:
        same[...] = -1  # what was fetched is the caller's own
        assert before is None or np.array_equal(np.array(value), before)


BAD_FEEDS = {
    "None": (None, (TypeError, ValueError)),
    "ragged": ([[1.0], [1.0, 2.0]], ValueError),
    "object array": (np.array([1.0, object()], object), (TypeError, ValueError)),
    "array of arrays": (np.array([np.ones(1), np.ones(2)], object), (TypeError, ValueError)),
    "structured": (np.zeros(2, [("a", "f4"), ("b", "i4")]), (TypeError, ValueError)),
    "text": ("text", (TypeError, ValueError)),
    "array of text": (np.array(["a", "b"]), (TypeError, ValueError)),
    "dates": (np.array(["2020-01-01"], "M8[D]"), (TypeError, ValueError)),
    "dict": ({"a": 1}, (TypeError, ValueError)),
    "set": ({1.0, 2.0}, (TypeError, ValueError)),
    "object": (object(), (TypeError, ValueError)),
    "function": (len, (TypeError, ValueError)),
    "deep list": (eval("[" * 60 + "1.0" + "]" * 60), (TypeError, ValueError)),
}


@pytest.mark.parametrize("name", BAD_FEEDS)
def test_feeds_that_do_not(sess, name):
    value, expected = BAD_FEEDS[name]
    x = tf.placeholder(tf.float32, [2])
    with pytest.raises(expected):
        sess.run(x, {x: value})
    assert sess.run(x, {x: [1, 2]}).tolist() == [1.0, 2.0]  # also on the quick path
    with pytest.raises(expected):
        sess.run(x, {x: value})


def test_none_in_a_list_is_nan_as_in_numpy(sess):
    x = tf.placeholder(tf.float32, [2])
    assert np.array_equal(sess.run(x, {x: [1.0, None]}), [1.0, np.nan], equal_nan=True)


def test_lists_that_contain_themselves(sess):
    loop = []
    loop.append(loop)
    x = tf.placeholder(tf.float32)
    for use in (lambda: sess.run(x, {x: loop}), lambda: tf.constant(loop), lambda: tf.convert_to_tensor(loop)):
        with pytest.raises((ValueError, TypeError)):
            use()


def test_string_feeds(sess):
    s = tf.placeholder(tf.string)
    assert sess.run(s, {s: "é\udcff".encode("utf-8", "surrogateescape")}) == b"\xc3\xa9\xff"
    assert sess.run(s, {s: ["a", b"b", np.str_("c")]}).tolist() == [b"a", b"b", b"c"]
    assert sess.run(s, {s: np.array(["ab", "c"])}).tolist() == [b"ab", b"c"]
    assert sess.run(s, {s: np.array([b"a\x00", b"b"], object)}).tolist() == [b"a\x00", b"b"]
    for wrong in (1, [1, "a"], np.array([1, "a"], object), None):
        with pytest.raises((TypeError, ValueError)):
            sess.run(s, {s: wrong})


def test_a_feed_may_change_after_the_step(sess):
    x = tf.placeholder(tf.float32, [2])
    v = tf.get_variable("v", [2], use_resource=True, initializer=tf.zeros_initializer())
    assign = tf.assign(v, x)
    value = np.array([1.0, 2.0], np.float32)
    sess.run(assign, {x: value})
    value[:] = 7
    assert sess.run(v).tolist() == [1.0, 2.0]


# -- fetches --------------------------------------------------------------------------------------------------------------


def test_one_tensor_fetched_a_thousand_times(sess):
    x = tf.placeholder(tf.float32, [3])
    y = x * 2
    values = sess.run([y] * 1000, {x: [1, 2, 3]})
    assert len(values) == 1000 and all(v.tolist() == [2.0, 4.0, 6.0] for v in values)
    values[0][:] = 0
    assert values[1].tolist() == [2.0, 4.0, 6.0] or values[1] is values[0]


def test_deeply_nested_fetches(sess):
    x = tf.constant(1)
    structure = x
    for _ in range(80):
        structure = [structure]
    value = sess.run(structure)
    for _ in range(80):
        (value,) = value
    assert value == 1
