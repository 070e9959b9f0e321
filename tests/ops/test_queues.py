"""Queues at run time: order, waiting, closing, cancelling, sharing, errors; and the queue classes with many threads."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import penstock as tf
from penstock.ops.kernels.queues import FIFOQueue, PaddingFIFOQueue, PriorityQueue, RandomShuffleQueue
from penstock.runtime.cancellation import CancellationManager
from tests import steps


class Box:
    """A `done` that keeps what it was told."""

    def __init__(self):
        self.event = threading.Event()
        self.calls = 0

    def __call__(self, result=None, error=None):
        self.calls += 1
        self.result, self.error = result, error
        self.event.set()

    @property
    def waiting(self):
        return not self.event.is_set()


@pytest.fixture
def ctx():
    return SimpleNamespace(cancellation=CancellationManager())


def fifo(capacity=10, dtype=tf.int32, shapes=((),)):
    return FIFOQueue("q", capacity, [dtype], list(shapes))


def put(queue, ctx, value):
    box = Box()
    queue.enqueue(ctx, box, [np.int32(value)])
    return box


def put_many(queue, ctx, values):
    box = Box()
    queue.enqueue_many(ctx, box, [np.array(values, np.int32)])
    return box


def get(queue, ctx):
    box = Box()
    queue.dequeue(ctx, box)
    return box


def get_many(queue, ctx, n, small_ok=False):
    box = Box()
    queue.dequeue_many(ctx, box, n, small_ok)
    return box


# -- the classes ------------------------------------------------------------------------------------------------------


def test_waiters_are_served_in_the_order_they_came(ctx):
    queue = fifo(capacity=1)
    boxes = [put(queue, ctx, i) for i in range(5)]
    assert [box.waiting for box in boxes] == [False, True, True, True, True]
    assert [get(queue, ctx).result[0] for _ in range(5)] == [0, 1, 2, 3, 4]
    gets = [get(queue, ctx) for _ in range(3)]
    put_many(queue, ctx, [7, 8, 9])
    assert [box.result[0] for box in gets] == [7, 8, 9]


def test_a_big_dequeue_is_not_overtaken(ctx):
    queue = fifo()
    many, one = get_many(queue, ctx, 3), get(queue, ctx)
    put_many(queue, ctx, [1, 2])
    assert many.waiting and one.waiting and queue.size == 0
    put_many(queue, ctx, [3, 4])
    assert many.result[0].tolist() == [1, 2, 3] and one.result[0] == 4


def test_a_batch_can_pass_through_a_smaller_queue(ctx):
    queue = fifo(capacity=2)
    filled, taken = put_many(queue, ctx, range(7)), get_many(queue, ctx, 7)
    assert taken.result[0].tolist() == list(range(7)) and not filled.waiting


def test_a_long_line_of_waiters_needs_no_stack(ctx):
    queue = fifo(capacity=1)
    puts = [put(queue, ctx, i) for i in range(5000)]
    taken = get_many(queue, ctx, 5000)
    assert taken.result[0].tolist() == list(range(5000)) and not any(box.waiting for box in puts)
    gets = [get(queue, ctx) for _ in range(5000)]
    put_many(queue, ctx, range(5000))
    assert [box.result[0] for box in gets] == list(range(5000))


def test_callbacks_may_use_the_queue(ctx):
    queue = fifo(capacity=1)
    seen = []
    queue.dequeue(ctx, lambda result=None, error=None: (seen.append(result[0]), put(queue, ctx, 5)))
    put(queue, ctx, 1)
    assert seen == [1] and get(queue, ctx).result[0] == 5


def test_pieces_of_batches_come_back_whole(ctx):
    queue = FIFOQueue("q", 100, [tf.float32, tf.string], [(2,), ()])
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    names = np.array([b"a", b"b", b"c", b"d", b"e", b"f"], dtype=object)
    box = Box()
    queue.enqueue_many(ctx, box, [rows, names])
    queue.enqueue(ctx, Box(), [np.float32([98, 99]), np.array(b"z", dtype=object)])
    first, middle, last = get(queue, ctx), get_many(queue, ctx, 2), get_many(queue, ctx, 4)
    assert first.result[0].tolist() == [0, 1] and first.result[1] == np.array(b"a", dtype=object) and first.result[1].shape == ()
    assert middle.result[0].tolist() == rows[1:3].tolist() and middle.result[1].tolist() == [b"b", b"c"]
    assert last.result[0].tolist() == [*rows[3:].tolist(), [98, 99]] and last.result[1].tolist() == [b"d", b"e", b"f", b"z"]


def test_cancelled_waiters_leave_and_the_others_go_on(ctx):
    queue, other = fifo(capacity=2), SimpleNamespace(cancellation=CancellationManager())
    first, second = get_many(queue, other, 3), get(queue, ctx)
    put_many(queue, ctx, [1, 2])
    other.cancellation.start_cancel()
    assert isinstance(first.error, tf.errors.CancelledError) and first.error.message == "Dequeue operation was cancelled"
    # What it had gathered goes back to the front, for those behind it.
    assert second.result[0] == 1 and queue.size == 1
    put(queue, ctx, 3)
    waiting = put(queue, SimpleNamespace(cancellation=(manager := CancellationManager())), 4)
    manager.start_cancel()
    assert waiting.error.message == "Enqueue operation was cancelled"
    assert get_many(queue, ctx, 2).result[0].tolist() == [2, 3]
    late = get(queue, other)
    assert isinstance(late.error, tf.errors.CancelledError)
    assert late.calls == first.calls == waiting.calls == 1


def test_nothing_is_left_of_those_who_gave_up(ctx):
    queue = fifo()
    get(queue, ctx)
    for _ in range(10):
        manager = CancellationManager()
        waiting = get(queue, SimpleNamespace(cancellation=manager))
        manager.start_cancel()
        assert not waiting.waiting
    assert len(queue.dequeues) == 1


def test_close_lets_waiting_enqueues_finish(ctx):
    queue = fifo(capacity=1)
    put(queue, ctx, 1)
    waiting = put_many(queue, ctx, [2, 3])
    closing = Box()
    queue.close(ctx, closing, False)
    late = put(queue, ctx, 9)
    assert closing.waiting and late.waiting and not queue.closed
    assert get_many(queue, ctx, 3).result[0].tolist() == [1, 2, 3]
    assert not closing.waiting and not waiting.waiting and queue.closed
    assert late.error.message == "FIFOQueue 'q' is closed."
    again = Box()
    queue.close(ctx, again, False)
    assert isinstance(again.error, tf.errors.CancelledError) and again.error.message == "Queue 'q' is already closed."
    again = Box()
    queue.close(ctx, again, True)
    assert again.error is None


def test_close_with_cancel_ends_waiting_enqueues_and_closes(ctx):
    queue = fifo(capacity=1)
    put(queue, ctx, 1)
    waiting, closing, cancelling = put(queue, ctx, 2), Box(), Box()
    queue.close(ctx, closing, False)
    queue.close(ctx, cancelling, True)
    for box in (waiting, closing):
        assert box.error.message == "Enqueue operation was cancelled"
    assert cancelling.error is None and queue.closed
    assert get(queue, ctx).result[0] == 1
    assert isinstance(get(queue, ctx).error, tf.errors.OutOfRangeError)


def test_close_while_dequeues_wait(ctx):
    queue = fifo()
    three, up_to = get_many(queue, ctx, 3), get_many(queue, ctx, 3, small_ok=True)
    put_many(queue, ctx, [1, 2])
    queue.close(ctx, Box(), False)
    assert three.error.message == "FIFOQueue 'q' is closed and has insufficient elements (requested 1, current size 0)"
    assert up_to.result[0].tolist() == [1, 2]
    empty = get_many(queue, ctx, 3, small_ok=True)
    assert isinstance(empty.error, tf.errors.OutOfRangeError)


def test_padding(ctx):
    queue = PaddingFIFOQueue("q", 10, [tf.float32, tf.string, tf.int32], [(None, 2), (None,), ()])
    for rows, names, number in (([[1, 2]], [b"a", b"b"], 1), ([[3, 4], [5, 6]], [], 2)):
        queue.enqueue(ctx, Box(), [np.float32(rows), np.array(names, dtype=object), np.int32(number)])
    rows, names, numbers = get_many(queue, ctx, 2).result
    assert rows.tolist() == [[[1, 2], [0, 0]], [[3, 4], [5, 6]]] and names.tolist() == [[b"a", b"b"], [b"", b""]] and numbers.tolist() == [1, 2]
    assert [x.shape for x in get_many(queue, ctx, 0).result] == [(0, 0, 2), (0, 0), (0,)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Expected \[\?,2\], got \[1,3\]"):
        queue.enqueue(ctx, Box(), [np.zeros((1, 3), np.float32), names[0], numbers[0]])


def test_priorities(ctx):
    queue = PriorityQueue("q", 100, [tf.int64, tf.int32], [(), ()])
    waiting = get_many(queue, ctx, 3)
    for priority in (5, 3):
        queue.enqueue(ctx, Box(), [np.int64(priority), np.int32(priority * 10)])
    # The third may be the first to go, so that the batch waits for it.
    assert waiting.waiting and queue.size == 2
    queue.enqueue(ctx, Box(), [np.int64(1), np.int32(10)])
    assert waiting.result[0].tolist() == [1, 3, 5] and waiting.result[1].tolist() == [10, 30, 50]
    # Equal priorities come out as TensorFlow's heap has them.
    priorities = [0, 3, 1, 0, 3, 3, 3, 3, 1, 3, 1, 2, 0, 3, 2, 0, 0, 0, 2, 1, 2, 3, 3, 2, 0, 1, 1, 1, 1, 0]
    queue.enqueue_many(ctx, Box(), [np.array(priorities, np.int64), np.arange(30, dtype=np.int32)])
    assert get_many(queue, ctx, 30).result[1].tolist() == [
        0, 12, 29, 24, 3, 15, 17, 16, 27, 28, 25, 26, 2, 10, 19, 8, 14, 20, 18, 23, 11, 6, 13, 7, 5, 21, 9, 1, 4, 22,
    ]  # fmt: skip


def test_shuffling_keeps_a_reserve_and_gives_everything_at_the_end(ctx):
    queue = RandomShuffleQueue("q", 100, [tf.int32], [()], 4, 87654321, 3)
    put_many(queue, ctx, range(6))
    two, third = get_many(queue, ctx, 2), get(queue, ctx)
    assert third.waiting and queue.size == 4
    queue.close(ctx, Box(), False)
    rest = get_many(queue, ctx, 3)
    assert sorted([*two.result[0], third.result[0], *rest.result[0]]) == list(range(6))


def test_shuffling_follows_tensorflows_generator(ctx):
    queue = RandomShuffleQueue("q", 100, [tf.int32], [()], 0, 87654321, 3)
    put_many(queue, ctx, range(20))
    assert [get(queue, ctx).result[0] for _ in range(5)] == [7, 4, 10, 11, 15]
    assert get_many(queue, ctx, 10).result[0].tolist() == [16, 18, 14, 1, 3, 0, 2, 13, 12, 6]


def test_many_threads_lose_and_double_nothing(ctx):
    queue = fifo(capacity=7)
    per_thread, threads = 300, 4
    taken = []

    def produce(k):
        for i in range(per_thread):
            put(queue, ctx, k * per_thread + i).event.wait()

    def consume():
        for _ in range(per_thread // 10):
            box = get_many(queue, ctx, 10)
            box.event.wait()
            taken.append(box.result[0])

    workers = [threading.Thread(target=produce, args=(k,)) for k in range(threads)]
    workers += [threading.Thread(target=consume) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    values = np.concatenate(taken)
    assert sorted(values.tolist()) == list(range(threads * per_thread)) and queue.size == 0
    for k in range(threads):  # each producer's own order is kept within every batch
        for batch in taken:
            mine = [v for v in batch if v // per_thread == k]
            assert mine == sorted(mine)


# -- in sessions --------------------------------------------------------------------------------------------------------


def in_thread(function, *args, **kwargs):
    """Runs `function` elsewhere; `.outcome()` waits for its result or exception."""
    box = SimpleNamespace(result=None, error=None)

    def run():
        try:
            box.result = function(*args, **kwargs)
        except Exception as error:
            box.error = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def outcome(timeout=60):
        thread.join(timeout)
        assert not thread.is_alive()
        return box.error if box.error is not None else box.result

    return SimpleNamespace(outcome=outcome, alive=thread.is_alive, thread=thread)


def test_a_step_waits_for_another():
    queue = tf.FIFOQueue(2, tf.float32, shapes=[()])
    fill, take = queue.enqueue(3.5), queue.dequeue()
    with tf.Session() as sess:
        waiting = in_thread(sess.run, take)
        sess.run(fill)
        assert waiting.outcome() == 3.5


def test_closing_the_session_ends_waiting_steps():
    queue = tf.FIFOQueue(1, tf.float32, shapes=[()])
    take, fill = queue.dequeue(), queue.enqueue_many([[1.0, 2.0, 3.0]])
    sess = tf.Session()
    waiting = in_thread(sess.run, take)
    steps.wait_until(lambda: steps.is_waiting(waiting.thread))
    sess.close()
    error = waiting.outcome()
    assert isinstance(error, tf.errors.CancelledError) and "Dequeue operation was cancelled" in error.message
    sess = tf.Session()
    waiting = in_thread(sess.run, fill)
    steps.wait_until(lambda: steps.is_waiting(waiting.thread))
    sess.close()
    assert "Enqueue operation was cancelled" in waiting.outcome().message


def test_a_timeout_ends_a_waiting_step_and_keeps_what_it_had():
    queue = tf.FIFOQueue(5, tf.int32, shapes=[()])
    with tf.Session() as sess:
        sess.run(queue.enqueue_many([[1, 2]]))
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(queue.dequeue_many(3), options=tf.RunOptions(timeout_in_ms=50))
        assert sess.run(queue.dequeue_many(2)).tolist() == [1, 2]


def test_an_error_in_the_step_ends_its_waiting_ops():
    queue = tf.FIFOQueue(5, tf.int32, shapes=[()])
    bad = tf.Assert(tf.constant(False), ["no"])
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
        sess.run([queue.dequeue(), bad])


def test_one_step_may_fill_and_empty():
    queue = tf.FIFOQueue(1, tf.int32, shapes=[()])
    fill, take = queue.enqueue_many([list(range(50))]), queue.dequeue_many(50)
    with tf.Session() as sess:
        assert sess.run([take, fill])[0].tolist() == list(range(50))


def test_errors_in_tensorflows_words():
    queue = tf.FIFOQueue(3, tf.float32, shapes=[(2,)], shared_name="named")
    loose = tf.FIFOQueue(3, [tf.float32, tf.float32], shared_name="loose")
    raw, handle = tf.raw_ops, queue.queue_ref
    anything = tf.placeholder_with_default(np.zeros(3, np.float32), None)
    cases = [
        (queue.dequeue_many(tf.placeholder_with_default(-1, [])), "DequeueManyOp requested -1 < 0 elements"),
        (queue.dequeue_up_to(tf.placeholder_with_default(-1, [])), "DequeueUpToOp requested -1 < 0 elements"),
        (loose.dequeue_many(1), "FIFOQueue's DequeueMany and DequeueUpTo require the components to have specified shapes."),
        (raw.QueueEnqueueV2(handle, [anything]), r"Shape mismatch in tuple component 0. Expected \[2\], got \[3\]"),
        (raw.QueueEnqueueManyV2(handle, [anything]), r"Shape mismatch in tuple component 0. Expected \[3,2\], got \[3\]"),
        (raw.QueueEnqueueManyV2(loose.queue_ref, [[1.0], anything]), "Component 1 has 3, and should have 1"),
        (raw.QueueEnqueueV2(handle, [1]), "Signature mismatch, have: resource, int32-> expected: resource, float->"),
        (raw.QueueDequeueV2(handle, component_types=[tf.int32]), "Signature mismatch, have: resource->int32 expected: resource->float"),
        (raw.QueueDequeueV2(handle, component_types=[tf.float32], timeout_ms=5), "Timeout not supported yet."),
        (tf.FIFOQueue(4, tf.float32, shapes=[(2,)], shared_name="named").size(), "Shared queue 'named' has capacity 3 but requested capacity was 4"),
        (tf.FIFOQueue(3, tf.int32, shapes=[(2,)], shared_name="named").size(), "component types float but requested component types were int32"),
        (tf.FIFOQueue(3, tf.float32, shared_name="named").size(), r"component shapes \[\[2\]\] but requested component shapes were \[\]"),
        (tf.PaddingFIFOQueue(3, tf.float32, [(2,)], shared_name="named").size(), "Expected FIFOQueue, found PaddingFIFOQueueV2"),
        (tf.RandomShuffleQueue(3, 5, tf.float32).size(), "min_after_dequeue 5 must be < capacity 3"),
        (tf.RandomShuffleQueue(3, -5, tf.float32).size(), "min_after_dequeue -5 must be >= 0"),
        (raw.QueueSizeV2(tf.get_variable("v", [], use_resource=True).handle), "of type 'tensorflow::Var' but you are trying"),
    ]
    with tf.Session() as sess:
        sess.run([queue.size(), loose.size()])
        for fetch, text in cases:
            with pytest.raises(tf.errors.InvalidArgumentError, match=text):
                sess.run(fetch)
    with pytest.raises(ValueError, match="Input 'n' must be >= 0, but is -1"):
        queue.dequeue_many(-1)


def test_the_older_string_handles():
    raw = tf.raw_ops
    handle = raw.FIFOQueue(component_types=[tf.int32, tf.string], shapes=[[], []], shared_name="old")
    assert handle.dtype.name == "string_ref" and handle.shape == [2]
    fill = raw.QueueEnqueueMany(handle, [[1, 2, 3], ["a", "b", "c"]])
    with tf.Session() as sess:
        assert sess.run(handle).tolist() == [b"localhost", b"old"]
        sess.run(fill)
        assert sess.run(raw.QueueSize(handle)) == 3
        assert sess.run(raw.QueueDequeue(handle, component_types=[tf.int32, tf.string])) == [1, b"a"]
        # A queue is one queue, whichever way one comes to it.
        newer = tf.FIFOQueue(-1, [tf.int32, tf.string], shapes=[(), ()], shared_name="old")
        assert sess.run(newer.size()) == 2
        fake = raw.FakeQueue(newer.queue_ref)
        assert sess.run(raw.QueueSize(fake)) == 2
        sess.run(raw.QueueClose(handle))
        assert sess.run(raw.QueueIsClosed(handle))
        numbers, names = sess.run(raw.QueueDequeueUpTo(handle, 5, component_types=[tf.int32, tf.string]))
        assert numbers.tolist() == [2, 3] and names.tolist() == [b"b", b"c"]


def test_queues_without_a_shared_name_belong_to_their_session():
    queue = tf.FIFOQueue(3, tf.int32, shapes=[()])
    fill, size = queue.enqueue(1), queue.size()
    with tf.Session() as one, tf.Session() as two:
        one.run(fill)
        assert one.run(size) == 1 and two.run(size) == 0


def test_results_can_be_changed_without_harm():
    rows = tf.constant(np.arange(6, dtype=np.int32).reshape(3, 2))
    queue = tf.FIFOQueue(10, tf.int32, shapes=[(2,)])
    fill, one, all_ = queue.enqueue_many([rows]), queue.dequeue(), queue.dequeue_many(3)
    with tf.Session() as sess:
        sess.run(fill)
        got = sess.run(one)
        got[:] = 100
        sess.run(queue.dequeue_many(2))[:] = 100
        sess.run(fill)
        got = sess.run(all_)
        assert got.tolist() == [[0, 1], [2, 3], [4, 5]]
        got[:] = 100
        assert sess.run(rows).tolist() == [[0, 1], [2, 3], [4, 5]]
