"""A caller may use a fed array again: what a step has stored does not change with it."""

import numpy as np
import pytest

import penstock as tf
from penstock import dtypes
from penstock.graph.opdef import OPS
from penstock.ops.cases import cases, sampled_ops
from penstock.session import kept
from tests.ops.test_samples import build

NAMES = [op.name for op in sampled_ops() if not op.stateful and op.kernel is not None and op.async_kernel is None and not op.name.startswith("_")]
GROUPS = [NAMES[i::16] for i in range(16)]
UNSTORED = (dtypes.resource, dtypes.variant, dtypes.string)


def overwrite(feeds):
    for array in feeds.values():
        if isinstance(array, np.ndarray) and array.dtype != object:
            array.reshape(-1).view(np.uint8)[:] = 1 if array.dtype == bool else 77


def stored(op):
    """Puts the op's results into queues, and takes them out again: (put, get)."""
    puts, gets = [], []
    for tensor in op.outputs:
        if tensor.dtype not in UNSTORED and not tensor.dtype._is_ref_dtype:
            queue = tf.FIFOQueue(4, [tensor.dtype])
            puts.append(queue.enqueue(tensor))
            gets.append(queue.dequeue())
    return puts, gets


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_what_any_op_gives_is_stored_for_good(names):
    checked = 0
    for name in names:
        for case in list(cases(OPS[name]))[:6]:
            with tf.Graph().as_default():
                op, feeds = build(case)
                feeds = {tensor: np.array(value, order="C") for tensor, value in feeds.items()}
                puts, gets = stored(op)
                with tf.Session() as sess:
                    sess.run(puts, feeds)
                    sess.run(puts, feeds)
                    before = sess.run(gets)
                    overwrite(feeds)
                    after = sess.run(gets)
            for x, y in zip(before, after):
                if "Random" not in name:
                    assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), (name, case)
                    checked += 1
    assert checked >= len(names) // 2


@pytest.mark.parametrize("name", sorted(kept.FRESH))
def test_fresh_results_share_nothing(name):
    opdef = OPS[name]
    for case in cases(opdef, every_type=True):
        with tf.Graph().as_default():
            op, feeds = build(case)
            handles = [tf.get_session_handle(t) for t in op.outputs]
            with tf.Session() as sess:
                arrays = {t: np.array(v, order="C") for t, v in feeds.items()}
                found = sess.run(handles, arrays)
                held = [sess._runtime.session_state.get(h.handle) for h in found]
                for value in held:
                    assert not any(np.shares_memory(value, a) for a in arrays.values()), (name, case)


SHAPED = {
    "reverse": lambda x: tf.reverse(x, [0]),
    "einsum": lambda x: tf.einsum("i->i", x),
    "mirror pad": lambda x: tf.pad(x, [[0, 0]], "REFLECT"),
    "blocks": lambda x: tf.reshape(tf.space_to_batch_nd(tf.reshape(x, [1, 2, 2, 1]), [1, 1], [[0, 0], [0, 0]]), [4]),
    "loop": lambda x: tf.while_loop(lambda i, y: i < 2, lambda i, y: [i + 1, tf.reverse(y, [0])], [0, x])[1],
    "cond": lambda x: tf.cond(tf.constant(True), lambda: tf.reverse(x, [0]), lambda: x + 1),
}


@pytest.mark.parametrize("shaped", SHAPED)
@pytest.mark.parametrize("warm", [0, 20])
def test_everything_that_keeps_a_value_keeps_its_own(shaped, warm):
    x = tf.placeholder(tf.float32, [4])
    y = SHAPED[shaped](x)
    queue = tf.FIFOQueue(100, tf.float32, [[4]])
    total = tf.ConditionalAccumulator(tf.float32, [4])
    variables = [tf.get_variable(f"v{i}", [4], use_resource=bool(i)) for i in range(2)]
    stage = tf.raw_ops.Stage(values=[y], shared_name="stage")
    unstage = tf.raw_ops.Unstage(dtypes=[tf.float32], shared_name="stage")[0]
    puts = [queue.enqueue(y), stage, total.apply_grad(y, 1000), *(tf.assign(v, y).op for v in variables)]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        fed = np.arange(4, dtype=np.float32)
        expected = sess.run(y, {x: fed}).copy()
        for _ in range(warm):
            sess.run(puts, {x: fed})
            sess.run([queue.dequeue(), total.take_grad(1), unstage])
        sess.run(puts, {x: fed})
        handle = sess.run(tf.get_session_handle(y), {x: fed})
        fed[:] = -1
        for value in [*sess.run([queue.dequeue(), total.take_grad(1), unstage, *variables]), handle.eval()]:
            np.testing.assert_array_equal(value, expected)


def test_feeds_of_training_steps_are_not_copied():
    x, y = tf.placeholder(tf.float32, [None, 8, 8, 1]), tf.placeholder(tf.int64, [None])
    h = tf.layers.batch_normalization(tf.layers.conv2d(x, 4, 3), training=True)
    loss = tf.losses.sparse_softmax_cross_entropy(y, tf.layers.dense(tf.layers.flatten(tf.nn.relu(h)), 3))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = tf.train.AdamOptimizer().minimize(loss, tf.train.get_or_create_global_step())
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run([loss, train], {x: np.zeros((2, 8, 8, 1)), y: [0, 1]})
        (prepared,) = [p for p in sess._runtime._prepared.values() if p.signature.feeds]
        assert prepared.kept == ()
