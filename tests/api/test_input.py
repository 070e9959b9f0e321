"""Coordinators, queue runners, input producers and batches."""

import threading
import time

import numpy as np
import pytest

import penstock as tf


def run_all(fetch, most=50):
    """Runs `fetch` until the input ends."""
    results = []
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        try:
            while not coord.should_stop() and len(results) < most:
                results.append(sess.run(fetch))
        except tf.errors.OutOfRangeError:
            pass
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=10)
        assert not any(t.is_alive() for t in threads)
    return results


# -- coordinator ------------------------------------------------------------------------------------------------------


def test_the_first_error_is_raised_by_join():
    coord = tf.train.Coordinator()

    def fail(text):
        with coord.stop_on_exception():
            if text == "second":
                coord.wait_for_stop()
            raise ValueError(text)

    threads = [threading.Thread(target=fail, args=(text,)) for text in ("second", "first")]
    for thread in threads:
        thread.start()
    with pytest.raises(ValueError, match="first"):
        coord.join(threads)
    assert coord.joined and coord.should_stop()
    with pytest.raises(ValueError, match="first"):
        coord.raise_requested_exception()
    with pytest.raises(KeyError):  # nobody joins any more
        coord.request_stop(KeyError("late"))
    coord.clear_stop()
    assert not coord.should_stop() and not coord.joined


def test_clean_errors_only_stop():
    coord = tf.train.Coordinator()
    coord.request_stop(tf.errors.OutOfRangeError(None, None, "end"))
    coord.join()
    coord = tf.train.Coordinator(clean_stop_exception_types=(KeyError,))
    coord.request_stop(KeyError())
    coord.join()
    with pytest.raises(tf.errors.OutOfRangeError):
        coord = tf.train.Coordinator(clean_stop_exception_types=(KeyError,))
        coord.request_stop(tf.errors.OutOfRangeError(None, None, "end"))
        coord.join()


def test_join_names_those_who_do_not_stop():
    coord, leave = tf.train.Coordinator(), threading.Event()
    thread = threading.Thread(target=leave.wait, name="straggler", daemon=True)
    thread.start()
    coord.register_thread(thread)
    coord.request_stop()
    with pytest.raises(RuntimeError, match="Coordinator stopped with threads still running: straggler"):
        coord.join(stop_grace_period_secs=0.05)
    coord.join([thread], stop_grace_period_secs=0.05, ignore_live_threads=True)
    leave.set()


def test_join_ends_when_the_threads_do():
    coord = tf.train.Coordinator()
    threads = [threading.Thread(target=time.sleep, args=(0.02,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    coord.join(threads)
    assert not coord.should_stop() and not coord.wait_for_stop(0.0)


def test_looper_threads():
    coord, calls = tf.train.Coordinator(), []
    looper = tf.train.LooperThread.loop(coord, 0.01, target=lambda x: calls.append(x), args=(7,))
    end = time.monotonic() + 60
    while len(calls) < 3 and time.monotonic() < end:
        time.sleep(0.005)
    coord.request_stop()
    coord.join()
    assert not looper.is_alive() and calls[:3] == [7, 7, 7]
    with pytest.raises(ValueError, match="must be a Coordinator"):
        tf.train.LooperThread(None, 1.0)


# -- queue runners ----------------------------------------------------------------------------------------------------


def test_a_runner_fills_its_queue_and_closes_it_at_the_end():
    count = tf.Variable(0, trainable=False)
    queue = tf.FIFOQueue(2, tf.int32, shapes=[()])
    runner = tf.train.QueueRunner(queue, [queue.enqueue(count.count_up_to(5))])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        threads = runner.create_threads(sess, start=True)
        assert runner.create_threads(sess) == []  # they run already
        assert [sess.run(queue.dequeue()) for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(queue.dequeue())
        for thread in threads:
            thread.join(60)
        assert runner.exceptions_raised == []


def test_an_error_in_a_runner_reaches_the_coordinator():
    queue = tf.FIFOQueue(2, tf.int32, shapes=[()])
    with tf.control_dependencies([tf.Assert(tf.constant(False), ["broken input"])]):
        fill = queue.enqueue(1)
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [fill]))
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        with pytest.raises(tf.errors.OpError):
            sess.run(queue.dequeue())
        with pytest.raises(tf.errors.InvalidArgumentError, match="broken input"):
            coord.join(threads, stop_grace_period_secs=10)


def test_stopping_frees_runners_that_wait_for_room():
    queue = tf.FIFOQueue(1, tf.int32, shapes=[()])
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1)] * 3))
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        sess.run(queue.dequeue())
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=10)


def test_runners_as_protos():
    with tf.name_scope("in"):
        queue = tf.FIFOQueue(1, tf.int32, name="q")
        runner = tf.train.QueueRunner(queue, [queue.enqueue(1, name="e")], queue_closed_exception_types=(tf.errors.CancelledError,))
    proto = runner.to_proto()
    assert (proto.queue_name, list(proto.enqueue_op_name)) == ("in/q", ["in/e"])
    assert list(proto.queue_closed_exception_types) == [tf.errors.CANCELLED]
    again = tf.train.QueueRunner.from_proto(proto)
    assert again.to_proto() == proto and again.close_op is runner.close_op
    inner = runner.to_proto(export_scope="in")
    assert inner.queue_name == "q" and runner.to_proto(export_scope="out") is None
    assert tf.train.QueueRunner.from_proto(inner, import_scope="in").to_proto() == proto


def test_mistakes():
    with pytest.raises(ValueError, match="Must provide queue and enqueue_ops"):
        tf.train.QueueRunner()
    with pytest.raises(TypeError, match="must be a tuple of tf.error types"):
        queue = tf.FIFOQueue(1, tf.int32)
        tf.train.QueueRunner(queue, [queue.enqueue(1)], queue_closed_exception_types=tf.errors.CancelledError)
    with pytest.raises(ValueError, match="No default session is registered"):
        tf.train.start_queue_runners()
    with pytest.raises(TypeError, match="sess must be a `tf.Session` object"):
        tf.train.start_queue_runners(sess=3)
    with pytest.raises(ValueError, match="num_epochs must be > 0 not 0"):
        tf.train.limit_epochs(tf.constant(1), 0)
    with pytest.raises(ValueError, match="non-null input tensor"):
        tf.train.string_input_producer([])
    with pytest.raises(ValueError, match="`keep_input` cannot be a vector"):
        tf.train.maybe_batch([tf.constant([1])], tf.constant([True]), 1)
    with pytest.raises(ValueError, match="must be bigger than min_after_dequeue"):
        tf.train.shuffle_batch([tf.constant(1)], 1, 5, 5)


# -- producers and batches --------------------------------------------------------------------------------------------


def test_epochs_of_strings():
    queue = tf.train.string_input_producer(["a", "b", "c"], num_epochs=2, shuffle=False)
    assert run_all(queue.dequeue()) == [b"a", b"b", b"c"] * 2


def test_shuffled_epochs_hold_everything():
    values = run_all(tf.train.range_input_producer(20, num_epochs=2, seed=1).dequeue())
    assert sorted(values[:20]) == sorted(values[20:]) == list(range(20)) and values[:20] != values[20:]


def test_slices_stay_together():
    number, letter = tf.train.slice_input_producer([tf.constant([1, 2, 3]), tf.constant(["a", "b", "c"])], num_epochs=1)
    assert sorted(run_all([number, letter])) == [[1, b"a"], [2, b"b"], [3, b"c"]]


def test_batches_with_a_smaller_last_one():
    i = tf.train.range_input_producer(5, num_epochs=1, shuffle=False).dequeue()
    batches = run_all(tf.train.batch({"i": i, "square": i * i}, 2, allow_smaller_final_batch=True))
    assert [b["i"].tolist() for b in batches] == [[0, 1], [2, 3], [4]] and batches[1]["square"].tolist() == [4, 9]


def test_batches_of_batches_are_cut_up():
    i = tf.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
    batches = run_all(tf.train.batch([tf.stack([i, i + 100])], 4, enqueue_many=True))
    assert [b.tolist() for b in batches] == [[0, 100, 1, 101], [2, 102, 3, 103]]


def test_padded_batches():
    i = tf.train.range_input_producer(3, num_epochs=1, shuffle=False).dequeue() + 1
    (batch,) = run_all(tf.train.batch([tf.fill([i], i)], 3, dynamic_pad=True))
    assert batch.tolist() == [[1, 0, 0], [2, 2, 0], [3, 3, 3]]


def test_kept_inputs_only():
    i = tf.train.range_input_producer(10, num_epochs=1, shuffle=False).dequeue()
    batches = run_all(tf.train.maybe_batch([i], tf.equal(i % 3, 0), 2, allow_smaller_final_batch=True))
    assert [b.tolist() for b in batches] == [[0, 3], [6, 9]]


def test_kept_rows_only():
    i = tf.train.range_input_producer(3, num_epochs=1, shuffle=False).dequeue()
    rows = tf.stack([i, i + 10, i + 20])
    batches = run_all(tf.train.maybe_batch([rows], tf.constant([True, False, True]), 2, enqueue_many=True))
    assert [b.tolist() for b in batches] == [[0, 20], [1, 21], [2, 22]]


def test_joined_batches_come_from_several_threads():
    readers = [[tf.train.range_input_producer(5, num_epochs=1, shuffle=False, name=f"p{k}").dequeue() + 100 * k] for k in range(3)]
    batches = run_all(tf.train.batch_join(readers, 5))
    assert sorted(np.concatenate(batches).tolist()) == [*range(5), *range(100, 105), *range(200, 205)]


def test_shuffled_batches_hold_everything():
    i = tf.train.range_input_producer(50, num_epochs=1, shuffle=False).dequeue()
    values = np.concatenate(run_all(tf.train.shuffle_batch([i], 10, capacity=40, min_after_dequeue=20, seed=3))).tolist()
    assert sorted(values) == list(range(50)) and values != list(range(50))
    tf.reset_default_graph()
    readers = [[tf.train.range_input_producer(10, num_epochs=1, name=f"p{k}").dequeue()] for k in range(2)]
    values = np.concatenate(run_all(tf.train.shuffle_batch_join(readers, 5, capacity=40, min_after_dequeue=5)))
    assert sorted(values.tolist()) == sorted([*range(10)] * 2)


def test_sparse_batches():
    i = tf.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
    sparse = tf.SparseTensor([[0, 1], [1, 0]], tf.stack([i, i * 10]), [2, 3])
    batches = run_all(tf.train.batch([sparse, i], 2))
    assert len(batches) == 2 and batches[1][1].tolist() == [2, 3]
    value = batches[1][0]
    assert value.indices.tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 1], [1, 1, 0]]
    assert value.values.tolist() == [2, 20, 3, 30] and value.dense_shape.tolist() == [2, 2, 3]


def test_file_names_are_matched_once(tmp_path):
    for name in ("b.txt", "a.txt", "c.bin"):
        (tmp_path / name).write_text(name)
    files = tf.train.match_filenames_once(str(tmp_path / "*.txt"))
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        (tmp_path / "d.txt").write_text("later")
        assert [f.decode().rsplit("/")[-1] for f in sess.run(files)] == ["a.txt", "b.txt"]
