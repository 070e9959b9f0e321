"""tf.TensorArray, and the ops under it."""

import numpy as np
import pytest

import penstock as tf


def run(fetches, feed=None):
    with tf.Session() as sess:
        return sess.run(fetches, feed)


def test_write_read_stack():
    array = tf.TensorArray(tf.float32, size=3, clear_after_read=False)
    array = array.write(0, [1.0, 2.0]).write(2, [5.0, 6.0]).write(1, [3.0, 4.0])
    assert array.element_shape.as_list() == [2]
    stack = array.stack()
    assert stack.shape.as_list() == [3, 2]
    assert run(stack).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert run(array.read(2)).tolist() == [5, 6]
    assert run(array.gather([2, 0])).tolist() == [[5, 6], [1, 2]]
    assert run(array.concat()).tolist() == [1, 2, 3, 4, 5, 6]
    assert run(array.size()) == 3


def test_unstack_scatter_split():
    x = tf.constant([[1, 2], [3, 4], [5, 6]])
    a = tf.TensorArray(tf.int32, size=3).unstack(x)
    b = tf.TensorArray(tf.int32, size=0, dynamic_size=True).scatter([2, 0, 1], x)
    c = tf.TensorArray(tf.int32, size=2, infer_shape=False, clear_after_read=False).split(x, [1, 2])
    values = run([a.stack(), b.stack(), b.size(), c.read(1), c.concat()])
    assert values[0].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert values[1].tolist() == [[3, 4], [5, 6], [1, 2]]
    assert values[2] == 3 and values[3].tolist() == [[3, 4], [5, 6]] and values[4].tolist() == [[1, 2], [3, 4], [5, 6]]


def test_strings():
    array = tf.TensorArray(tf.string, size=3, clear_after_read=False, element_shape=[]).unstack(["a", "b", "c"])
    assert run(array.stack()).tolist() == [b"a", b"b", b"c"]
    assert run(array.read(1)) == b"b"
    assert run(tf.TensorArray(tf.string, size=2, element_shape=[]).write(0, "x").stack()).tolist() == [b"x", b""]


def test_elements_never_written_are_zeros_if_their_shape_is_known():
    array = tf.TensorArray(tf.float32, size=3, element_shape=[2]).write(1, [1.0, 2.0])
    assert run(array.stack()).tolist() == [[0, 0], [1, 2], [0, 0]]


def test_each_step_has_its_own_array():
    array = tf.TensorArray(tf.float32, size=1).write(0, 1.0)
    value = array.read(0)
    with tf.Session() as sess:
        assert [sess.run(value) for _ in range(3)] == [1.0, 1.0, 1.0]


def test_identity_waits():
    array = tf.TensorArray(tf.float32, size=1).write(0, 1.0)
    wait = tf.constant(1.0)
    with tf.control_dependencies([wait]):
        later = array.identity()
    assert later.flow.op.control_inputs == [wait.op]
    assert run(later.read(0)) == 1.0


def test_close():
    array = tf.TensorArray(tf.float32, size=1).write(0, 1.0)
    with tf.control_dependencies([array.close()]):
        value = array.read(0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="has already been closed"):
        run(value)


def test_gradient_array_adds_up():
    array = tf.TensorArray(tf.float32, size=2, clear_after_read=False).write(0, [1.0, 2.0]).write(1, [3.0, 4.0])
    grads = array.grad("mine").write(0, [5.0, 6.0]).write(0, [5.0, 6.0])
    same = array.grad("mine", flow=grads.flow)
    values = run([same.read(0), same.read(1)])
    assert values[0].tolist() == [10, 12] and values[1].tolist() == [0, 0]


def once(build, **options):
    return lambda: build(tf.TensorArray(tf.float32, size=2, **options))


@pytest.mark.parametrize(
    "build, text",
    [
        (once(lambda t: t.write(5, 1.0).flow), "Tried to write to index 5 but array is not resizeable and size is: 2"),
        (once(lambda t: t.write(-1, 1.0).flow), "Tried to write to index -1"),
        (once(lambda t: t.write(0, 1.0).write(0, 1.0).flow), "Could not write to TensorArray index 0 because it has already been written to"),
        (once(lambda t: t.write(0, 1.0).read(7)), "Tried to read from index 7 but array size is: 2"),
        (once(lambda t: t.write(0, 1.0).read(1), infer_shape=False), "Could not read from TensorArray index 1"),
        (once(lambda t: t.write(0, [1.0]).write(1, [1.0, 2.0]).stack(), infer_shape=False), "TensorArray has inconsistent shapes"),
        (once(lambda t: t.scatter([0, 4], [1.0, 2.0]).flow), r"Max scatter index must be < array size \(4 vs. 2\)"),
        (once(lambda t: t.split([1.0, 2.0, 3.0], [1, 1]).flow), "Expected sum of lengths to be equal to values.shape"),
        (once(lambda t: t.split([1.0, 2.0, 3.0], [1, 1, 1]).flow), r"size of lengths \(2 vs. 3\)"),
        (once(lambda t: t.write(0, 1.0).write(1, 1.0).concat(), infer_shape=False), "Concat saw a scalar shape"),
        (lambda: tf.TensorArray(tf.float32, size=tf.constant(-1)).flow, "Size should be >= 0"),
        (lambda: tf.TensorArray(tf.float32, size=0).stack(), "TensorArray has size zero, but element shape <unknown> is not fully defined"),
    ],
)
def test_run_time_errors(build, text):
    kind = tf.errors.UnimplementedError if "size zero" in text else tf.errors.InvalidArgumentError
    with pytest.raises(kind, match=text):
        run(build())


@pytest.mark.parametrize(
    "build, text",
    [
        (lambda: tf.TensorArray(tf.float32), "Argument `size` must be provided"),
        (lambda: tf.TensorArray(tf.float32, size=1, handle=tf.TensorArray(tf.float32, 1).handle), "Cannot provide both `handle` and `size`"),
        (lambda: tf.TensorArray(tf.float32, handle=tf.TensorArray(tf.float32, 1).handle), "flow must not be None"),
        (lambda: tf.TensorArray(tf.float32, size=2, element_shape=[3]).write(0, [1.0]), "Inconsistent shapes: saw"),
    ],
)
def test_build_errors(build, text):
    with pytest.raises(ValueError, match=text):
        build()


def test_gradients_through_all_ops():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    array = tf.TensorArray(tf.float32, size=3, clear_after_read=False, element_shape=[2]).unstack(x)
    y = array.read(0) * array.read(0) + array.read(2)
    grads = [tf.gradients(y, x)[0], tf.gradients(array.gather([2, 2]), x)[0], tf.gradients(array.concat() * 3.0, x)[0]]
    a, b, c = run(grads)
    np.testing.assert_allclose(a, [[2, 4], [0, 0], [1, 1]])
    np.testing.assert_allclose(b, [[0, 0], [0, 0], [2, 2]])
    np.testing.assert_allclose(c, np.full([3, 2], 3.0))
    z = tf.TensorArray(tf.float32, size=2, infer_shape=False, clear_after_read=False).split(x, [1, 2])
    np.testing.assert_allclose(run(tf.gradients(z.read(1) * 2.0, x)[0]), [[0, 0], [2, 2], [2, 2]])
