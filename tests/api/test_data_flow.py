"""Queues, accumulators, barriers and staging areas through the public classes."""

import threading

import numpy as np
import pytest

import penstock as tf
from penstock.api.barriers import Barrier, MapStagingArea, StagingArea
from tests import steps


def names():
    return [op.name for op in tf.get_default_graph().get_operations()]


def test_ops_are_named_after_their_queue():
    queue = tf.FIFOQueue(100, [tf.int32] * 2, shapes=[(), ()], name="a/b")
    with tf.name_scope("s"):
        queue.enqueue([1, 2])
        queue.enqueue_many([[1], [2]])
        queue.dequeue()
        queue.dequeue_many(3)
        queue.dequeue_up_to(2)
        queue.close()
        queue.size()
        queue.is_closed()
    assert queue.name == "a/b"
    assert [n for n in names() if "component" not in n] == [
        "a/b", "s/b_enqueue", "s/b_EnqueueMany", "s/b_Dequeue", "s/b_DequeueMany/n", "s/b_DequeueMany", "s/b_DequeueUpTo/n",
        "s/b_DequeueUpTo", "s/b_Close", "s/b_Size", "s/b_Is_Closed",
    ]  # fmt: skip


def test_static_shapes():
    queue = tf.FIFOQueue(5, [tf.int32, tf.float32], shapes=[(2,), ()])
    assert [t.shape.as_list() for t in queue.dequeue()] == [[2], []]
    assert [t.shape.as_list() for t in queue.dequeue_many(3)] == [[3, 2], [3]]
    assert [t.shape.as_list() for t in queue.dequeue_many(tf.placeholder(tf.int32))] == [[None, 2], [None]]
    assert [t.shape.as_list() for t in queue.dequeue_up_to(3)] == [[None, 2], [None]]
    assert tf.FIFOQueue(5, tf.int32).dequeue().shape.ndims is None


def test_mistakes_are_found_while_building():
    queue = tf.FIFOQueue(5, [tf.int32] * 2, shapes=[(1, 2), ()])
    with pytest.raises(ValueError, match="incompatible"):
        queue.enqueue([[1], 2])
    with pytest.raises(ValueError, match="incompatible"):
        queue.enqueue_many([[[1]], [2]])
    with pytest.raises(TypeError):
        tf.FIFOQueue(5, tf.int32).enqueue(1.5)
    with pytest.raises(ValueError, match="must have the same length as dtypes"):
        tf.FIFOQueue(5, [tf.int32] * 2, shapes=[()])
    with pytest.raises(ValueError, match="All shapes must be fully defined"):
        tf.FIFOQueue(5, tf.int32, shapes=[(None,)])
    with pytest.raises(ValueError, match="Shapes must be provided for all components"):
        tf.PaddingFIFOQueue(5, [tf.int32] * 2, shapes=[(None,)])
    with pytest.raises(TypeError, match="Expected list for 'shapes'"):
        tf.PriorityQueue(5, tf.int32)


def test_elements_may_be_dictionaries():
    queue = tf.FIFOQueue(5, [tf.int32, tf.string], shapes=[(), ()], names=["n", "s"])
    fill, take, many = queue.enqueue({"s": "x", "n": 1}), queue.dequeue(), queue.dequeue_many(1)
    with tf.Session() as sess:
        sess.run(fill)
        sess.run(queue.enqueue_many({"s": ["y"], "n": [2]}))
        assert sess.run(take) == {"n": 1, "s": b"x"}
        got = sess.run(many)
        assert got["n"].tolist() == [2] and got["s"].tolist() == [b"y"]
    with pytest.raises(ValueError, match="You must enqueue a dictionary"):
        queue.enqueue([1, "x"])
    with pytest.raises(ValueError, match="Keys in dictionary to enqueue do not match names"):
        queue.enqueue({"n": 1})
    with pytest.raises(ValueError, match="Queue must have names"):
        tf.FIFOQueue(5, tf.int32).enqueue({"n": 1})


def test_from_list_chooses_when_the_step_runs():
    queues = [tf.FIFOQueue(5, tf.int32, shapes=[(n,)]) for n in (1, 2)]
    index = tf.placeholder(tf.int32, [])
    chosen = tf.QueueBase.from_list(index, queues)
    assert chosen.shapes[0].as_list() == [None]
    take = chosen.dequeue()
    with tf.Session() as sess:
        sess.run([queues[0].enqueue([[7]]), queues[1].enqueue([[8, 9]])])
        assert sess.run(take, {index: 1}).tolist() == [8, 9] and sess.run(take, {index: 0}).tolist() == [7]
    with pytest.raises(TypeError, match="matching component dtypes"):
        tf.QueueBase.from_list(0, [queues[0], tf.FIFOQueue(5, tf.float32)])
    with pytest.raises(TypeError, match="A list of queues expected"):
        tf.QueueBase.from_list(0, [])


def test_seeds_of_shuffle_queues():
    def seeds(**kwargs):
        op = tf.RandomShuffleQueue(10, 0, tf.int32, **kwargs).queue_ref.op
        return op.get_attr("seed"), op.get_attr("seed2")

    assert seeds() == (0, 0) and seeds(seed=3) == (87654321, 3) and seeds(shared_name="abc") == (0, 0)
    tf.reset_default_graph()
    tf.set_random_seed(5)
    # Taken from the shared name, so that other programs that share the queue get the same.
    assert seeds(shared_name="abc") == (5, 317586264)


# -- accumulators -----------------------------------------------------------------------------------------------------


def test_dense_accumulator():
    total = tf.ConditionalAccumulator(tf.float32, shape=[2])
    step = tf.placeholder(tf.int64, [])
    add = total.apply_grad(tf.placeholder_with_default([2.0, 4.0], None), local_step=step)
    take, count = total.take_grad(2), total.num_accumulated()
    assert take.shape.as_list() == [2]
    with tf.Session() as sess:
        sess.run([add, total.apply_grad([4.0, 10.0])], {step: 0})
        sess.run(add, {step: -1})  # out of date
        assert sess.run(count) == 2
        assert sess.run(take).tolist() == [3.0, 7.0] and sess.run(count) == 0
        sess.run(add, {step: 0})  # the take began step 1
        assert sess.run(count) == 0
        sess.run(total.set_global_step(10))
        sess.run(add, {step: 9})
        sess.run(add, {step: 10})
        assert sess.run(count) == 1
        with pytest.raises(tf.errors.InvalidArgumentError, match="Argument num_required must be positive, but was 0"):
            sess.run(total.take_grad(0))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Shape mismatch: expected \[2\], got \[3\]"):
            sess.run(total.apply_grad(tf.placeholder_with_default([1.0, 2.0, 3.0], None), local_step=20))


def test_takes_wait_for_gradients_and_end_with_the_session():
    total = tf.ConditionalAccumulator(tf.float32, shape=(), reduction_type="SUM")
    add, take, outcomes = total.apply_grad(1.5), total.take_grad(3), []
    sess = tf.Session()

    def wait():
        try:
            outcomes.append(sess.run(take))
        except tf.errors.CancelledError as error:
            outcomes.append(error.message)

    thread = threading.Thread(target=wait)
    thread.start()
    for _ in range(3):
        sess.run(add)
    thread.join(60)
    assert outcomes == [4.5]
    thread = threading.Thread(target=wait)
    thread.start()
    steps.wait_until(lambda: steps.is_waiting(thread))
    sess.close()
    thread.join(60)
    assert "TakeGrad operation was cancelled" in outcomes[1]


def test_sparse_accumulator():
    total = tf.SparseConditionalAccumulator(tf.float32, shape=[4, 2])
    first = total.apply_grad([0, 2], [[1.0, 2.0], [3.0, 4.0]], [4, 2])
    second = total.apply_indexed_slices_grad(
        tf.IndexedSlices(tf.constant([[10.0, 20.0], [30.0, 40.0]]), tf.constant([2, 3], tf.int64), tf.constant([4, 2], tf.int64))
    )
    with tf.Session() as sess:
        sess.run(first)
        sess.run(second)
        got = sess.run(total.take_indexed_slices_grad(1))
        # A row's mean counts the gradients that had the row.
        assert got.indices.tolist() == [0, 2, 3] and got.values.tolist() == [[1, 2], [6.5, 12], [30, 40]] and got.dense_shape.tolist() == [4, 2]
        for gradient, text in [
            (([0, 2, 1], [[1.0, 2.0], [3.0, 4.0]], [4, 2]), "Expected 3 non-empty input values, got 2"),
            (([0, 2], [[1.0, 2.0], [3.0, 4.0]], [4, 3]), "expected shape dim 1 to be 2, got 3"),
            (([0, 7], [[1.0, 2.0], [3.0, 4.0]], [4, 2]), "index of slice 1 exceeded limits of shape; index is 7 exceeded 4"),
        ]:
            with pytest.raises(tf.errors.InvalidArgumentError, match=text):
                sess.run(total.apply_grad(*gradient, local_step=9))
        # Unsorted indices are merged in one walk, as TensorFlow does.
        sess.run(total.apply_grad([2, 0], [[1.0, 2.0], [3.0, 4.0]], local_step=9))
        sess.run(total.apply_grad([2, 2], [[1.0, 2.0], [3.0, 4.0]], local_step=9))
        indices, values, _ = sess.run(total.take_grad(2))
        assert indices.tolist() == [2, 0, 2] and values.tolist() == [[1, 2], [3, 4], [3, 4]]


# -- barriers and staging ---------------------------------------------------------------------------------------------


def test_barrier():
    barrier = Barrier([tf.float32, tf.string], shapes=[(), ()], name="b")
    sizes = [barrier.ready_size(), barrier.incomplete_size()]
    with tf.Session() as sess:
        sess.run(barrier.insert_many(0, ["a", "b", "c"], [1.0, 2.0, 3.0]))
        assert sess.run(sizes) == [0, 3]
        sess.run(barrier.insert_many(1, ["c", "a"], ["C", "A"]))
        assert sess.run(sizes) == [2, 1]
        indices, keys, (numbers, texts) = sess.run(barrier.take_many(2))
        assert indices.tolist() == [-(2**63)] * 2 and keys.tolist() == [b"c", b"a"]
        assert numbers.tolist() == [3, 1] and texts.tolist() == [b"C", b"A"]
        with pytest.raises(tf.errors.InvalidArgumentError, match="Key b already has a value for component 0"):
            sess.run(barrier.insert_many(0, ["b"], [5.0]))
        sess.run(barrier.close())
        with pytest.raises(tf.errors.CancelledError, match="attempted to insert a brand new key: z"):
            sess.run(barrier.insert_many(0, ["z"], [5.0]))
        with pytest.raises(tf.errors.OutOfRangeError, match=r"insufficient elements \(requested 2, total size 1\)"):
            sess.run(barrier.take_many(2))
        sess.run(barrier.insert_many(1, ["b"], ["B"]))
        assert sess.run(barrier.take_many(5, allow_small_batch=True)).keys.tolist() == [b"b"]
        with pytest.raises(tf.errors.CancelledError, match="already closed"):
            sess.run(barrier.close())


def test_staging_area():
    area = StagingArea([tf.float32, tf.int32], shapes=[(2,), ()], capacity=1)
    put, get = area.put([[1.0, 2.0], 3]), area.get()
    with tf.Session() as sess:
        sess.run(put)
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(put, options=tf.RunOptions(timeout_in_ms=50))
        assert sess.run(area.size()) == 1 and sess.run(area.peek(0))[1] == 3
        first, second = sess.run(get)
        assert first.tolist() == [1, 2] and second == 3
        sess.run(put)
        sess.run(area.clear())
        assert sess.run(area.size()) == 0
    with pytest.raises(ValueError, match="Unexpected number of inputs"):
        area.put([[1.0, 2.0]])


def test_map_staging_area():
    area = MapStagingArea([tf.float32, tf.int32], names=["x", "n"], ordered=True)
    key = tf.placeholder(tf.int64, [])
    whole, half, rest = area.put(key, {"x": 1.5, "n": 2}), area.put(key, {"n": 7}), area.put(key, {"x": 0.5})
    with tf.Session() as sess:
        sess.run(whole, {key: 9})
        sess.run(half, {key: 3})
        assert sess.run([area.size(), area.incomplete_size()]) == [1, 1]
        waiting = []
        get = area.get(tf.constant(3, tf.int64))
        thread = threading.Thread(target=lambda: waiting.append(sess.run(get)))
        thread.start()
        assert sess.run(area.get(tf.constant(9, tf.int64), ["n"])) == (9, {"n": 2})  # not held up by those who wait for other keys
        sess.run(rest, {key: 3})
        thread.join(60)
        assert waiting == [(3, {"x": 0.5, "n": 7})]
        with pytest.raises(tf.errors.InvalidArgumentError, match="Tensor at index '1' for key '9' has already been removed"):
            sess.run(area.get(tf.constant(9, tf.int64), ["n"]))
        for k in (5, 4):
            sess.run(whole, {key: k})
        assert sess.run(area.get())[0] == 4  # the smallest whole one


def test_values_keep_their_types():
    types = [tf.bool, tf.int64, tf.float64, tf.complex64, tf.float16, tf.bfloat16, tf.string, tf.uint8]
    values = [tf.constant(np.array(v), t) for v, t in zip([True, 5, 2.5, 1 + 2j, 0.5, 0.25, "s", 200], types)]
    queue = tf.FIFOQueue(5, types, shapes=[()] * len(types))
    with tf.Session() as sess:
        sess.run(queue.enqueue(values))
        sess.run(queue.enqueue(values))
        single, batch = sess.run(queue.dequeue()), sess.run(queue.dequeue_many(1))
        for t, one, many, original in zip(types, single, batch, sess.run(values)):
            assert one == original and many.shape == (1,) and many[0] == original
            assert many.dtype == t.np
