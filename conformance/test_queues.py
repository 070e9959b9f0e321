"""Queues, accumulators, barriers, readers and input pipelines: the same programs under Penstock and TensorFlow."""

import sys
import threading
import time

import numpy as np
import pytest
from both import compare, penstock, run_both, same_structure, tensorflow

pytest.importorskip("tensorflow")


def both(program):
    """Runs `program(tf, attempt)` under both packages and compares what it returns. `attempt(sess, fetches)` gives the values, or the
    class and the first line of the error."""

    def outcome(tf):
        with tf.Graph().as_default():
            return program(tf, lambda sess, fetches: _attempt(tf, sess, fetches))

    ours, theirs = outcome(penstock()), outcome(tensorflow())
    _same(ours, theirs)
    return ours


def _attempt(tf, sess, fetches):
    try:
        return sess.run(fetches)
    except tf.errors.OpError as error:
        return type(error).__name__, _text(error.message)


def _text(message):
    """What the kernel said, without TF's heading and the nodes' names."""
    lines = message.split("\n")
    nodes = [i for i, line in enumerate(lines) if line.startswith("\t [[{{node")]
    text = lines[nodes[0] - 1] if nodes else lines[0]
    return text.split("\n\t [[")[0]


def _same(ours, theirs):
    if isinstance(theirs, (str, int, bool)):
        assert ours == theirs
    elif isinstance(theirs, (list, tuple)) and not hasattr(theirs, "_fields"):
        assert len(ours) == len(theirs), (ours, theirs)
        for a, b in zip(ours, theirs, strict=True):
            _same(a, b)
    else:
        compare(ours, theirs)


def in_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()

    def wait():
        thread.join(60)
        return results[0]

    while thread.is_alive() and not _is_in_step(thread):
        time.sleep(0.01)
    time.sleep(0.5)  # to the queue, which it is on its way to
    return wait


def _is_in_step(thread):
    """Whether the thread has come to where the packages run a step."""
    frame = sys._current_frames().get(thread.ident)
    while frame is not None and frame.f_code.co_name not in ("run_step", "_call_tf_sessionrun"):
        frame = frame.f_back
    return frame is not None


# -- queues -----------------------------------------------------------------------------------------------------------


def test_errors():
    def program(tf, attempt):
        queue = tf.FIFOQueue(3, tf.float32, shapes=[(2,)], shared_name="q")
        loose = tf.FIFOQueue(3, [tf.float32] * 2, shared_name="loose")
        unknown = tf.placeholder_with_default(np.zeros(3, np.float32), None)
        raw, handle = tf.raw_ops, queue.queue_ref
        fetches = [
            queue.size(), loose.size(),
            queue.dequeue_many(tf.placeholder_with_default(-1, [])), queue.dequeue_many(0), queue.dequeue_up_to(0), loose.dequeue_many(1),
            raw.QueueEnqueueV2(handle=handle, components=[unknown]), raw.QueueEnqueueManyV2(handle=handle, components=[unknown]),
            raw.QueueEnqueueV2(handle=handle, components=[1]), raw.QueueDequeueV2(handle=handle, component_types=[tf.int32]),
            raw.QueueDequeueManyV2(handle=handle, n=1, component_types=[tf.int32, tf.float32]),
            raw.QueueDequeueV2(handle=handle, component_types=[tf.float32], timeout_ms=5),
            raw.QueueEnqueueManyV2(handle=loose.queue_ref, components=[[1.0], unknown]),
            tf.FIFOQueue(4, tf.float32, shapes=[(2,)], shared_name="q").size(),
            tf.FIFOQueue(3, tf.int32, shapes=[(2,)], shared_name="q").size(),
            tf.FIFOQueue(3, tf.float32, shapes=[(3,)], shared_name="q").size(),
            tf.PaddingFIFOQueue(3, tf.float32, [(2,)], shared_name="q").size(),
            tf.RandomShuffleQueue(3, 5, tf.float32).size(), tf.RandomShuffleQueue(3, -5, tf.float32).size(),
            raw.FIFOQueueV2(component_types=[tf.float32], shapes=[[1], [2]]).op, raw.FIFOQueueV2(component_types=[tf.float32], shapes=[[None]]).op,
            raw.PaddingFIFOQueueV2(component_types=[tf.float32], shapes=[None]).op, raw.PaddingFIFOQueueV2(component_types=[tf.float32]).op,
            queue.close(), queue.enqueue([[1.0, 2.0]]), queue.enqueue_many([[[1.0, 2.0]]]), queue.dequeue(), queue.dequeue_many(2),
            queue.dequeue_up_to(2), queue.close(), queue.close(True), queue.is_closed(),
        ]  # fmt: skip
        with tf.Session() as sess:
            return [attempt(sess, fetch) for fetch in fetches]

    both(program)


def test_errors_of_the_other_queues():
    def program(tf, attempt):
        results = []
        with tf.Session() as sess:
            for queue in (
                tf.PaddingFIFOQueue(3, tf.int32, [(None,)], shared_name="p"),
                tf.RandomShuffleQueue(9, 2, tf.int32, shapes=[(2,)], shared_name="r", seed=1),
            ):
                fetches = [
                    queue.enqueue([tf.placeholder_with_default([[1]], None)]), queue.enqueue_many([tf.placeholder_with_default([1], None)]),
                    queue.enqueue([[1, 2]]), queue.close(), queue.dequeue_many(3), queue.dequeue_up_to(3), queue.dequeue(), queue.dequeue_many(1),
                    queue.enqueue([[1, 2]]),
                ]  # fmt: skip
                results.append([attempt(sess, fetch) for fetch in fetches])
            results.append(attempt(sess, tf.PaddingFIFOQueue(3, tf.int32, [(3,)], shared_name="p").size()))
            results.append(attempt(sess, tf.RandomShuffleQueue(9, 3, tf.int32, shapes=[(2,)], shared_name="r", seed=1).size()))
            results.append(attempt(sess, tf.RandomShuffleQueue(9, 2, tf.int32, shapes=[(2,)], shared_name="r", seed=2).size()))
        return results

    both(program)


@pytest.mark.parametrize("seed", [1, 87])
def test_shuffled_orders_are_the_same(seed):
    def program(tf, attempt):
        queue = tf.RandomShuffleQueue(2000, 3, [tf.int32, tf.string], shapes=[(), ()], seed=seed)
        fill = queue.enqueue_many([np.arange(1000, dtype=np.int32), [str(i) for i in range(1000)]])
        with tf.Session() as sess:
            sess.run(fill)
            first = [sess.run(queue.dequeue()) for _ in range(3)], sess.run(queue.dequeue_many(900))
            sess.run(fill)
            sess.run(queue.close())
            return first, sess.run(queue.dequeue_up_to(5000))

    both(program)


def test_priorities_with_ties():
    def program(tf, attempt):
        queue = tf.PriorityQueue(500, tf.int32, shapes=[()])
        order = np.random.RandomState(0).randint(0, 9, size=200).astype(np.int64)
        with tf.Session() as sess:
            sess.run(queue.enqueue_many([order, np.arange(200, dtype=np.int32)]))
            return sess.run(queue.dequeue_many(50)), sess.run(queue.dequeue()), sess.run(queue.dequeue_many(149))

    both(program)


def test_waiting_closing_and_restoring():
    def program(tf, attempt):
        queue = tf.FIFOQueue(3, tf.float32, shapes=[()], shared_name="q")
        many, fill, close, size = queue.dequeue_many(5), queue.enqueue_many([[1.0, 2.0]]), queue.close(), queue.size()
        results = []
        with tf.Session() as sess:
            waiting = in_thread(lambda: attempt(sess, many))
            sess.run(fill)
            while sess.run(size):
                time.sleep(0.01)
            sess.run(close)
            results += [waiting(), sess.run(size), sess.run(queue.dequeue_up_to(5)), sess.run(queue.is_closed())]
        return results

    both(program)


def test_closing_with_waiting_enqueues():
    def program(tf, attempt):
        queue = tf.FIFOQueue(1, tf.float32, shapes=[()], shared_name="q")
        fill, close, cancel, state = queue.enqueue_many([[1.0, 2.0, 3.0]]), queue.close(), queue.close(True), [queue.size(), queue.is_closed()]
        with tf.Session() as sess:
            waits = []
            for fetch in (fill, close, fill):
                waits.append(in_thread(lambda fetch=fetch: attempt(sess, fetch)))
            before = sess.run(state)
            sess.run(cancel)
            return before, [wait() for wait in waits], sess.run(state)

    both(program)


def test_cancelled_by_the_session():
    def program(tf, attempt):
        queue = tf.FIFOQueue(1, tf.float32, shapes=[()])
        take = queue.dequeue()
        sess = tf.Session()
        waiting = in_thread(lambda: attempt(sess, take))
        sess.close()
        return waiting()

    assert both(program) == ("CancelledError", "Dequeue operation was cancelled")


def test_string_handles_and_names():
    def program(tf):
        raw = tf.raw_ops
        handle = raw.FIFOQueue(component_types=[tf.int32], shapes=[[]], shared_name="sn", container="cc")
        with tf.control_dependencies([raw.QueueEnqueueMany(handle=handle, components=[[1, 2, 3]])]):
            return tf.identity(handle), raw.QueueDequeueMany(handle=handle, n=2, component_types=[tf.int32])

    run_both(program)

    def scopes(tf):
        with tf.name_scope("s"):
            queue = tf.FIFOQueue(10, [tf.int32] * 2, shapes=[(), ()], name="x/y")
        queue.enqueue([1, 2])
        queue.enqueue_many([[1], [2]])
        queue.dequeue()
        queue.dequeue_many(3)
        queue.dequeue_up_to(3, name="z")
        queue.close()
        queue.size()
        queue.is_closed()
        tf.PriorityQueue(5, tf.float32, shapes=[()])
        tf.RandomShuffleQueue(5, 1, tf.float32, seed=2)
        tf.PaddingFIFOQueue(5, tf.float32, shapes=[(None,)])
        total = tf.ConditionalAccumulator(tf.float32, shape=[2])
        total.apply_grad([1.0, 2.0])
        total.take_grad(1)
        total.num_accumulated()
        total.set_global_step(3)

    same_structure(scopes)


# -- accumulators and barriers ----------------------------------------------------------------------------------------


def test_accumulators():
    def program(tf, attempt):
        dense = tf.ConditionalAccumulator(tf.float32, shape=[2])
        sparse = tf.SparseConditionalAccumulator(tf.float32, shape=[None, 2], reduction_type="SUM")
        loose = tf.SparseConditionalAccumulator(tf.float32)
        odd = tf.placeholder_with_default([1.0, 2.0, 3.0], None)
        fetches = [
            dense.apply_grad([1.0, 2.0]), dense.apply_grad([3.0, 7.0]), dense.apply_grad([9.0, 9.0], local_step=-1), dense.num_accumulated(),
            dense.take_grad(1), dense.apply_grad([1.0, 2.0]), dense.num_accumulated(), dense.apply_grad(odd, local_step=5), dense.take_grad(0),
            dense.set_global_step(9), dense.apply_grad([1.0, 1.0], local_step=8), dense.num_accumulated(),
            sparse.apply_grad([0, 2], [[1.0, 2.0], [3.0, 4.0]]), sparse.apply_grad([1, 2], [[1.0, 2.0], [3.0, 4.0]], [7, 2]),
            sparse.apply_grad([0], [[1.0]]), sparse.apply_grad([0], [1.0]), sparse.apply_grad([0], [[1.0, 2.0]], [7, 3]),
            sparse.apply_grad([9], [[1.0, 2.0]], [7, 2]), sparse.apply_grad([0, 1], [[1.0, 2.0]]), sparse.num_accumulated(), sparse.take_grad(2),
            loose.apply_grad([5, 1], [1.0, 2.0]), loose.apply_grad([1, 6, 6], [1.0, 2.0, 3.0]), loose.take_indexed_slices_grad(1),
        ]  # fmt: skip
        with tf.Session() as sess:
            return [attempt(sess, fetch) for fetch in fetches]

    both(program)


def test_barriers():
    def program(tf, attempt):
        raw = tf.raw_ops
        handle = raw.Barrier(component_types=[tf.float32, tf.string], shapes=[[], []], shared_name="b")

        def insert(i, keys, values):
            return raw.BarrierInsertMany(handle=handle, keys=keys, values=values, component_index=i)

        def take(n, small=False):
            return raw.BarrierTakeMany(handle=handle, num_elements=n, component_types=[tf.float32, tf.string], allow_small_batch=small)

        sizes = [raw.BarrierReadySize(handle=handle), raw.BarrierIncompleteSize(handle=handle)]
        fetches = [
            insert(0, ["a", "b", "c"], [1.0, 2.0, 3.0]), sizes, insert(1, ["c", "a"], ["C", "A"]), sizes, take(2), insert(0, ["b"], [5.0]),
            insert(0, ["a"], [5.0]), insert(2, ["a"], [5.0]), insert(0, ["a"], ["x"]), raw.BarrierClose(handle=handle), insert(0, ["z"], [1.0]),
            take(3), insert(1, ["b"], ["B"]), take(3, True), take(3, True), sizes, raw.BarrierClose(handle=handle),
            raw.BarrierClose(handle=handle, cancel_pending_enqueues=True), insert(1, ["a"], ["A"]), sizes, take(1), take(0, True),
        ]  # fmt: skip
        with tf.Session() as sess:
            return [attempt(sess, fetch) for fetch in fetches]

    both(program)


def test_staging():
    def program(tf, attempt):
        raw, area = tf.raw_ops, dict(dtypes=[tf.float32, tf.string], shared_name="st")
        put = raw.Stage(values=[tf.constant(1.0), tf.constant("x")], shared_name="st")
        key = tf.constant(5, tf.int64)
        put_map = raw.OrderedMapStage(key=key, indices=[1], values=[tf.constant("x")], dtypes=[tf.float32, tf.string], shared_name="m")
        rest = raw.OrderedMapStage(key=key, indices=[0], values=[tf.constant(2.0)], dtypes=[tf.float32, tf.string], shared_name="m")
        fetches = [
            put, put, raw.StageSize(**area), raw.StagePeek(index=1, **area), raw.Unstage(**area), raw.StageClear(**area), raw.StageSize(**area),
            raw.Stage(values=[tf.zeros([10])], shared_name="tight", memory_limit=20),
            put_map, put_map, raw.OrderedMapIncompleteSize(dtypes=[tf.float32, tf.string], shared_name="m"), rest,
            raw.OrderedMapSize(dtypes=[tf.float32, tf.string], shared_name="m"),
            raw.OrderedMapPeek(key=key, indices=[1], dtypes=[tf.string], shared_name="m"),
            raw.OrderedMapUnstage(key=key, indices=[1], dtypes=[tf.string], shared_name="m"),
            raw.OrderedMapUnstage(key=key, indices=[1], dtypes=[tf.string], shared_name="m"),
            raw.OrderedMapUnstageNoKey(indices=[0], dtypes=[tf.float32], shared_name="m"),
        ]  # fmt: skip
        with tf.Session() as sess:
            return [attempt(sess, fetch) for fetch in fetches]

    both(program)


# -- readers and pipelines ----------------------------------------------------------------------------------------------


def test_record_files_are_read_by_the_other_package(tmp_path):
    records = [b"abc", b"", bytes(range(256)) * 100]
    for writer, reader in ((penstock(), tensorflow()), (tensorflow(), penstock())):
        for kind in ("", "ZLIB", "GZIP"):
            path = str(tmp_path / f"{writer.__name__}{kind}")
            with writer.io.TFRecordWriter(path, writer.io.TFRecordOptions(kind)) as out:
                for record in records:
                    out.write(record)
            assert list(reader.io.tf_record_iterator(path, reader.io.TFRecordOptions(kind))) == records


def test_readers(tmp_path):
    a, b, c = (str(tmp_path / name) for name in "abc")
    open(a, "wb").write(b"h1\nl1\r\nl2\n\nl4")
    open(b, "wb").write(b"h2\nx\n")
    open(c, "wb").write(b"HHaaabbbcccFF")

    def program(tf, attempt):
        results = []
        for make, files in [
            (lambda: tf.TextLineReader(), [a, b]), (lambda: tf.TextLineReader(skip_header_lines=1), [a, b]), (lambda: tf.WholeFileReader(), [a]),
            (lambda: tf.FixedLengthRecordReader(3, 2, 2), [c]), (lambda: tf.FixedLengthRecordReader(3, 2, 2, 1), [c]),
            (lambda: tf.IdentityReader(), ["x", "y"]), (lambda: tf.TextLineReader(), ["/nowhere", b]), (lambda: tf.TFRecordReader(), [a]),
        ]:  # fmt: skip
            queue = tf.FIFOQueue(9, [tf.string], shapes=[()], shared_name=f"q{len(results)}")
            reader = make()
            read, up_to, counts = reader.read(queue), reader.read_up_to(queue, 3), [reader.num_records_produced(), reader.num_work_units_completed()]
            with tf.Session() as sess:
                sess.run(queue.enqueue_many([files]))
                sess.run(queue.close())
                results.append([attempt(sess, fetch) for fetch in [read, up_to, up_to, read, read, read, read, counts]])
        return results

    both(program)


def pipeline(tf, fetches, runs=20):
    results = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        try:
            for _ in range(runs):
                results.append(sess.run(fetches))
        except tf.errors.OutOfRangeError:
            results.append("end")
        coord.request_stop()
        coord.join(threads)
    return results


PIPELINES = {
    "strings": lambda tf: tf.train.string_input_producer(["a", "b", "c"], num_epochs=2, seed=5).dequeue(),
    "range": lambda tf: tf.train.range_input_producer(7, num_epochs=2, seed=5).dequeue(),
    "slices": lambda tf: tf.train.slice_input_producer([tf.constant([1, 2, 3]), tf.constant(["a", "b", "c"])], num_epochs=2, seed=1),
    "batch": lambda tf: tf.train.batch(
        {"i": tf.train.range_input_producer(7, num_epochs=1, shuffle=False).dequeue()}, 3, allow_smaller_final_batch=True
    ),
    "drop": lambda tf: tf.train.batch([tf.train.range_input_producer(7, num_epochs=1, shuffle=False).dequeue()], 3),
    "padded": lambda tf: tf.train.batch(
        [tf.fill([tf.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()], "x")], 2, dynamic_pad=True
    ),
    "rows": lambda tf: tf.train.batch(
        [tf.range(3) + 10 * tf.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()], 4, enqueue_many=True
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines(name):
    both(lambda tf, attempt: pipeline(tf, PIPELINES[name](tf)))


def test_sparse_pipelines():
    def program(tf, attempt):
        i = tf.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
        return pipeline(tf, tf.train.batch([tf.SparseTensor([[0, 1], [1, 0]], tf.stack([i, i * 10]), [2, 3]), i], 2))

    ours, theirs = [], []
    for tf, out in ((penstock(), ours), (tensorflow(), theirs)):
        with tf.Graph().as_default():
            out.extend(program(tf, None))
    assert len(ours) == len(theirs) == 3
    compare(ours[:2], theirs[:2])


def _not_a_summary(line):
    # How full a queue is goes into summaries, which may not exist.
    return not any(part in line for part in ("fraction_", "/mul", "/Cast", "_Size =", "/sub", "/Maximum"))


@pytest.mark.parametrize("name", ["strings", "range", "batch", "drop", "rows"])
def test_pipelines_have_tensorflows_nodes(name):
    same_structure(PIPELINES[name], _not_a_summary)


# -- parsing ----------------------------------------------------------------------------------------------------------


def test_csv():
    def program(tf, attempt):
        records = [
            "1,2.5,abc", "1,,", ",,", "1,2", "1,2,3,4", "x,1,a", "1,z,a", '1,2,"a,b"', '1,2,"a""b"', '1,2,"a', '1,2,a"b', '1,2,"a"b', " 1 , 2 ,a",
            "1e2,1,a", "1,1e40,a", "1,nan,a", "9999999999,1,a", "-1,+2,a", "", "1,2,a\n", "1,0x10,a", "1,1_0,a",
        ]  # fmt: skip
        with tf.Session() as sess:
            return [attempt(sess, tf.decode_csv([record], [[7], [0.5], ["d"]])) for record in records]

    both(program)


def test_examples():
    def program(tf, attempt):
        def example(**features):
            message = tf.train.Example()
            for name, values in features.items():
                kind = {float: "float_list", int: "int64_list", bytes: "bytes_list"}[type(values[0])]
                getattr(message.features.feature[name], kind).value.extend(values)
            return message.SerializeToString()

        io = tf.io
        features = {
            "a": io.FixedLenFeature([2], tf.float32), "d": io.FixedLenFeature([], tf.int64, 7), "v": io.VarLenFeature(tf.string),
            "s": io.FixedLenSequenceFeature([2], tf.int64, True, -1), "x": io.SparseFeature("i", "w", tf.float32, 10),
        }  # fmt: skip
        good = [example(a=[1.0, 2.0], d=[3], v=[b"p", b"q"], s=[1, 2, 3, 4], i=[5, 2], w=[0.5, 0.25]), example(a=[3.0, 4.0], s=[5, 6])]
        with tf.Session() as sess:
            results = [attempt(sess, io.parse_example(good, features)), attempt(sess, io.parse_single_example(good[0], features))]
            for bad in (example(a=[1.0]), example(a=[1]), example(d=[1]), example(a=[1.0, 2.0], v=[1])):
                results.append(attempt(sess, io.parse_example([bad], features)))
            return results

    both(program)


# -- monitored sessions -----------------------------------------------------------------------------------------------


def test_monitored_sessions():
    def program(tf, attempt):
        step = tf.train.get_or_create_global_step()
        train = tf.assign_add(step, 1)
        item, twice = tf.train.range_input_producer(50, shuffle=False).dequeue(), tf.cast(step, tf.int32) * 2
        diary = []

        class Hook(tf.train.SessionRunHook):
            def begin(self):
                diary.append("begin")

            def after_create_session(self, session, coord):
                diary.append("create")

            def before_run(self, run_context):
                diary.append("before")
                return tf.train.SessionRunArgs({"twice": twice})

            def after_run(self, run_context, run_values):
                diary.append(sorted(run_values.results))

            def end(self, session):
                diary.append("end")

        final = tf.train.FinalOpsHook([step])
        with tf.train.MonitoredTrainingSession(hooks=[Hook(), tf.train.StopAtStepHook(last_step=4), final]) as sess:
            while not sess.should_stop():
                diary.append([int(v) for v in sess.run([item, train])])
        return diary, [int(v) for v in final.final_ops_values]

    both(program)
