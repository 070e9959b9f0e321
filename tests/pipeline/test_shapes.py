"""Static shapes that follow from the shapes of arguments."""

import numpy as np
import pytest

import penstock as tf
from penstock.pipeline.shapes import Contradiction, refine


def refined(fetches, feeds, shapes):
    """{name: dims} of the graph that computes `fetches`, for feeds of these shapes."""
    with tf.Session() as sess:
        journey = sess.explain(fetches, feeds)
    pruned = next(stage.graph for stage in journey.stages if stage.name == "prune")
    before = {op.name: [t.dims for t in op.outputs] for op in pruned}
    new = refine(pruned, shapes)
    assert before == {op.name: [t.dims for t in op.outputs] for op in pruned}  # passes do not edit their input
    return {op.name: op.outputs[0].dims for op in new if op.outputs}


def test_a_layer_and_its_gradient():
    x = tf.placeholder(tf.float32, [None, 4])
    w = tf.get_variable("w", [4, 3])
    y = tf.tanh(tf.matmul(x, w), name="y")
    (g,) = tf.gradients(y * y, [w])
    flat = tf.reshape(y, [-1, 1], name="flat")
    ones = tf.ones(tf.stack([tf.shape(x)[0], 2]), name="ones")
    found = refined([g, flat, ones], [x], [(5, 4)])
    assert found["y"] == (5, 3) and found["flat"] == (15, 1) and found["ones"] == (5, 2)
    assert found["w"] == (4, 3)


def test_what_is_claimed_stays_claimed():
    x = tf.placeholder(tf.float32, [None])
    claimed = tf.py_func(lambda v: v[:1], [x], tf.float32, name="f")
    claimed.set_shape([None])
    y = tf.identity(tf.identity(claimed) * 2.0, name="y")
    found = refined(y, [x], [(6,)])
    assert found["y"] == (None,)


def test_only_some_arguments():
    x, y = tf.placeholder(tf.float32, [None], name="x"), tf.placeholder(tf.float32, [None], name="y")
    a, b, c = tf.square(x, name="a"), tf.square(y, name="b"), tf.concat([x, y], 0, name="c")
    found = refined([a, b, c], [x, y], [(3,), None])
    assert (found["a"], found["b"], found["c"]) == ((3,), (None,), (None,))


def test_variables_of_loops_keep_their_shape_if_rounds_do():
    x = tf.placeholder(tf.float32, [None, 2])
    _, h, grown = tf.while_loop(
        lambda i, h, g: i < 3, lambda i, h, g: (i + 1, tf.tanh(h) * 2.0, tf.concat([g, h], 0)), [0, x, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 2]), tf.TensorShape([None, 2])],
    )  # fmt: skip
    h, grown = tf.identity(h, name="h"), tf.identity(grown, name="grown")
    found = refined([h, grown], [x], [(5, 2)])
    assert found["h"] == (5, 2) and found["grown"] == (None, 2)


def test_loops_that_hand_variables_on_to_each_other():
    """One round later a variable has the shape of another one, two rounds later of a third."""
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    _, a, b, c = tf.while_loop(
        lambda i, a, b, c: i < 4, lambda i, a, b, c: (i + 1, b, c, c), [0, x, x, y], shape_invariants=[tf.TensorShape([]), *[tf.TensorShape([None])] * 3]
    )
    outs = [tf.identity(v, name=n) for v, n in ((a, "a"), (b, "b"), (c, "c"))]
    found = refined(outs, [x, y], [(3,), (4,)])
    assert (found["a"], found["b"], found["c"]) == ((None,), (None,), (4,))
    assert refined(outs, [x, y], [(4,), (4,)])["a"] == (4,)


def test_what_a_loops_gradient_pops_has_the_shape_of_what_was_pushed():
    x = tf.placeholder(tf.float32, [None, 3])
    w = tf.get_variable("w", [3, 3])
    _, h = tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, w))), [0, x])
    (g,) = tf.gradients(tf.reduce_sum(h), [w])
    with tf.Session() as sess:
        pruned = next(stage.graph for stage in sess.explain(g, [x]).stages if stage.name == "prune")
    new = refine(pruned, [(6, 3)])
    pops = [op.outputs[0].dims for op in new if op.type == "StackPopV2" and op.outputs[0].dtype == tf.float32]
    assert pops and set(pops) <= {(6, 3), (3, 3)}


def test_reductions_along_no_axis_are_left_out():
    x = tf.placeholder(tf.float32, [2, 3])
    none = tf.constant([], tf.int32)
    y = tf.reduce_sum(x, none) + tf.reduce_max(x, none) * tf.reduce_mean(x, none)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    with tf.Session() as sess:
        nodes = {op.type for part in sess.explain(y, [x]).partitions.values() for op in part}
        assert not nodes & {"Sum", "Max", "Mean"}
        np.testing.assert_array_equal(sess.run(y, {x: values}), values + values * values)


def test_values_that_were_found_by_an_assumption_go_with_it():
    """The shape of what a loop makes is known in the first attempt only; nothing may remember it."""
    x = tf.placeholder(tf.float32, [None, None])
    _, rest = tf.while_loop(
        lambda i, r: i < 2, lambda i, r: (i + 1, r[1:]), [0, x], shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, None])]
    )
    filled = tf.broadcast_to(tf.reduce_sum(rest), tf.shape(rest), name="filled")
    found = refined(filled, [x], [(5, 4)])
    assert found["filled"] in (None, (None, None), (None, 4))


def test_a_wrong_claim_ends_it():
    x = tf.placeholder(tf.float32, [None, None])
    y = tf.square(x)
    y.set_shape([3, 5])
    with pytest.raises(Contradiction):
        refined(tf.identity(y), [x], [(3, 4)])


def _looped(x, n, width):
    """An array that is filled in one go, read and filled round by round, and put together again."""
    source = tf.TensorArray(tf.float32, n).unstack(x)
    made = tf.TensorArray(tf.float32, n, element_shape=[None, width])
    _, made = tf.while_loop(lambda i, _: i < n, lambda i, a: (i + 1, a.write(i, tf.tanh(source.read(i), name="inside"))), [0, made])
    return tf.square(made.stack(), name="outside")


def test_elements_of_arrays_have_the_shape_of_what_was_written():
    x = tf.placeholder(tf.float32, [5, None, 3])
    y = _looped(x, 5, 3)
    w = tf.get_variable("w", [3, 3])
    again = tf.identity(_looped(tf.einsum("tbi,ij->tbj", y, w), 5, 3), name="again")
    (g,) = tf.gradients(again, [w])
    found = refined([again, g], [x], [(5, 7, 3)])
    assert found["while/inside"] == found["while_1/inside"] == (7, 3)
    assert found["outside"] == found["again"] == (5, 7, 3)


def test_elements_of_several_shapes():
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    array = tf.TensorArray(tf.float32, 2, infer_shape=False).write(0, x).write(1, y)
    first = tf.identity(array.read(0), name="first")
    assert refined(first, [x, y], [(3,), (4,)])["first"] is None
    assert refined(first, [x, y], [(4,), (4,)])["first"] == (4,)


def test_shapes_on_a_stack_are_known_where_they_are_popped():
    x = tf.placeholder(tf.float32, [None, 3])
    b = tf.get_variable("b", [3])
    _, h = tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.tanh(h * b)), [0, x])
    (g,) = tf.gradients(tf.reduce_sum(h), [b])
    with tf.Session() as sess:
        pruned = next(stage.graph for stage in sess.explain(g, [x]).stages if stage.name == "prune")
    new = refine(pruned, [(6, 3)])
    sums = {op.name: op.outputs[0].dims for op in new if op.type == "Sum" and "while/mul_grad" in op.name}
    assert sums and set(sums.values()) == {(3,)}
