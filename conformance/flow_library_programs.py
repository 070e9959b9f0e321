"""Programs with what is built of branches and loops: cases, TensorArrays, maps, folds, scans, assertions. See flow_programs.py."""

import numpy as np

from conformance.flow_programs import PROGRAMS, X, p_of, program, x_of

# -- case, group, tuple -----------------------------------------------------------------------------------------------


@program({"x": X})
def case_with_default(tf):
    x = x_of(tf)
    s = tf.reduce_sum(x)
    y = tf.case([(s > 0, lambda: x * 1.0), (s < -100.0, lambda: x * 2.0)], default=lambda: x * 3.0)
    return y, tf.gradients(y, x)[0]


@program({"x": X})
def case_exclusive(tf):
    x = x_of(tf)
    s = tf.reduce_sum(x)
    return tf.case([(s > 0, lambda: x * 1.0), (s < 0, lambda: x * 2.0)], exclusive=True)


@program({"x": X}, message="exclusive=True: more than 1 conditions")
def case_two_are_true(tf):
    x = x_of(tf)
    s = tf.reduce_sum(x)
    return tf.case([(s < 1, lambda: x * 1.0), (s < 0, lambda: x * 2.0)], default=lambda: x, exclusive=True)


@program({"x": X}, message="None of conditions evaluated as True")
def case_none_is_true(tf):
    x = x_of(tf)
    s = tf.reduce_sum(x)
    return tf.case([(s > 1, lambda: x * 1.0), (s > 2, lambda: x * 2.0)])


@program(message="must be a list, tuple, or dict")
def case_of_nonsense(tf):
    return tf.case(3)


@program({"i": 1})
def switch_cases(tf):
    i = tf.placeholder(tf.int32, [], name="i")
    one, two, nine = (lambda: tf.constant(1.0)), (lambda: tf.constant(2.0)), (lambda: tf.constant(9.0))
    return [
        tf.switch_case(i, [one, two]), tf.switch_case(i + 5, {0: one, 1: two}, default=nine), tf.switch_case(i + 5, [one, two]),
        tf.switch_case(i - 7, [one, two]),
    ]  # fmt: skip


@program(structure=True)
def groups_and_tuples(tf):
    a, b = tf.constant(1.0), tf.constant(2.0)
    first = tf.tuple([a, None, b])
    tf.group(a, b, [a])
    with tf.device("/cpu:0"):
        c = tf.constant(3.0)
    tf.group(a, c, name="both")
    second = tf.tuple([a, b], control_inputs=[tf.no_op(name="nothing")], name="again")
    return first[0], first[2], second


# -- TensorArrays -----------------------------------------------------------------------------------------------------


@program({"x": X})
def array_filled_by_loop(tf):
    x = x_of(tf)
    array = tf.TensorArray(tf.float32, size=3)
    _, array = tf.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t.write(i, x * tf.cast(i, tf.float32))), [0, array])
    y = array.stack()
    return y, tf.gradients(y, x)[0]


@program({"x": X})
def array_read_by_loop(tf):
    x = x_of(tf, [None])
    array = tf.TensorArray(tf.float32, size=tf.shape(x)[0]).unstack(x)
    out = tf.TensorArray(tf.float32, size=0, dynamic_size=True)

    def body(i, a, o):
        a = a * array.read(i) + 1.0
        return i + 1, a, o.write(i, a)

    _, a, o = tf.while_loop(lambda i, a, o: i < tf.shape(x)[0], body, [0, x[0], out])
    y = o.stack()
    return y, a, tf.gradients([y, a], x)[0]


@program({"x": X})
def array_split_and_joined(tf):
    x = x_of(tf)
    array = tf.TensorArray(tf.float32, size=2, clear_after_read=False, infer_shape=False).split(tf.concat([x, x * x], 0), [1, 3])
    y, z = array.concat(), array.read(1)
    return y, z, array.size(), tf.gradients([y * y, z], x)[0]


@program({"x": X})
def array_gathered(tf):
    x = x_of(tf)
    array = tf.TensorArray(tf.float32, size=4, clear_after_read=False, element_shape=[]).scatter([3, 1], x)
    y = array.gather([1, 1, 3, 0])
    return y, tf.gradients(y * y, x)[0], tf.gradients(array.read(3), x)[0]


@program({"x": X, "p": True})
def array_through_cond(tf):
    x, p = x_of(tf), p_of(tf)
    array = tf.TensorArray(tf.float32, size=2)
    array = tf.cond(p, lambda: array.write(0, x).write(1, x * x), lambda: array.write(1, x).write(0, x))
    y = array.stack()
    return y, tf.gradients(y, x)[0]


@program({"x": X})
def arrays_and_nested_loops(tf):
    x = x_of(tf)
    array = tf.TensorArray(tf.float32, size=2).unstack(tf.stack([x, x * 2.0]))

    def body(i, a, o):
        r = array.read(i)
        b = tf.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b * r + a), [0, a])[1]
        return i + 1, b, o.write(i, b * r)

    _, _, o = tf.while_loop(lambda i, a, o: i < 2, body, [0, x, tf.TensorArray(tf.float32, size=2)])
    y = o.stack()
    return y, tf.gradients(y, x)[0]


@program(message="Inconsistent shapes")
def array_shape_does_not_fit(tf):
    return tf.TensorArray(tf.float32, size=2, element_shape=[3]).write(0, [1.0, 2.0]).flow


@program(message="Could not write to TensorArray index 0 because it has already been written to.")
def array_written_twice(tf):
    return tf.TensorArray(tf.float32, size=2).write(0, [1.0, 2.0]).write(0, [1.0, 2.0]).flow


@program(message="Tried to write to index 5 but array is not resizeable and size is: 2")
def array_written_out_of_bounds(tf):
    return tf.TensorArray(tf.float32, size=2).write(5, [1.0, 2.0]).flow


@program(message="twice because it was cleared after a previous read")
def array_read_twice(tf):
    array = tf.TensorArray(tf.float32, size=2).write(0, 1.0)
    first = array.read(0)
    with tf.control_dependencies([first]):
        return array.read(0)


@program(message="Argument `size` must be provided")
def array_without_size(tf):
    return tf.TensorArray(tf.float32).flow


# -- map, fold, scan --------------------------------------------------------------------------------------------------


@program({"x": X})
def mapped(tf):
    x = x_of(tf, [None])
    y = tf.map_fn(lambda a: a * a + x, x)
    return y, tf.gradients(y, x)[0]


@program()
def mapped_structures(tf):
    e = (tf.constant([1.0, 2.0, 3.0]), {"b": tf.constant([[1, 2], [3, 4], [5, 6]])})
    return (
        tf.map_fn(lambda t: (t[0] * 2.0, tf.reduce_sum(t[1]["b"])), e, dtype=(tf.float32, tf.int32)),
        tf.map_fn(lambda t: t[0], e, dtype=tf.float32),
        tf.map_fn(lambda a: tf.cast(a, tf.float32), tf.range(3), dtype=tf.float32),
        tf.map_fn(lambda a: a * 2.0, tf.zeros([0, 3])),
    )


@program()
def map_knows_its_shape(tf):
    return tf.constant(tf.map_fn(lambda a: a[0] * 2.0, tf.zeros([4, 3])).shape.as_list())


@program()
def map_over_a_scalar(tf):
    return tf.map_fn(lambda a: a, tf.constant(1.0))


@program()
def map_to_another_structure(tf):
    return tf.map_fn(lambda a: (a, a), tf.constant([1.0]))


@program()
def map_to_another_type(tf):
    return tf.map_fn(lambda a: tf.cast(a, tf.int32), tf.constant([1.0]))


@program({"x": X})
def folds(tf):
    x = x_of(tf)
    a = tf.foldl(lambda a, b: a * b + 1.0, x)
    b = tf.foldr(lambda a, b: a * b + 1.0, x)
    c = tf.foldl(lambda a, b: a * b + 1.0, x, initializer=2.0)
    d = tf.foldr(lambda a, b: a - b, x, initializer=2.0)
    e = tf.foldl(lambda a, b: (a[0] + b, a[1] * b), x, initializer=(1.0, 2.0))
    return a, b, c, d, e, tf.gradients([a, b, c, d, e[1]], x)[0]


@program({"x": X})
def scans(tf):
    x = x_of(tf, [None])
    a = tf.scan(lambda a, b: a * b + 1.0, x)
    b = tf.scan(lambda a, b: a * b + 1.0, x, reverse=True)
    c = tf.scan(lambda a, b: a * b + 1.0, x, initializer=2.0)
    d = tf.scan(lambda a, b: a - b, x, initializer=2.0, reverse=True)
    e = tf.scan(lambda a, b: (a[0] + b, a[1] * b), x, initializer=(1.0, 2.0))
    f = tf.scan(lambda a, b: (a[0] + b[1], a[1] * b[0]), (x, x * 2.0))
    return a, b, c, d, e, f, tf.gradients([a, b, c, d, e[1], f[0]], x)[0]


@program({"x": X})
def recurrent_net(tf):
    x = x_of(tf)
    w = tf.Variable(np.eye(2, dtype=np.float32) * 0.5, use_resource=True)
    xs = tf.stack([x, x * 2.0, x * 3.0])
    hs = tf.scan(lambda h, e: tf.tanh(tf.squeeze(tf.matmul(tf.expand_dims(h, 0), w), 0) + e), xs, initializer=tf.zeros([2]))
    return hs, tf.gradients(tf.reduce_sum(hs**2), [w, x])


# -- assertions -------------------------------------------------------------------------------------------------------


def _assertion(name, build, message=None):
    def fn(tf):
        x = x_of(tf, None)
        with tf.control_dependencies([c for c in [build(tf, x)] if c is not None]):
            return tf.identity(x)

    PROGRAMS["assertion_" + name] = (fn, {"x": X}, message, False)


_assertion("equal", lambda tf, x: tf.assert_equal(x, [1.5, -2.0]))
_assertion("not_equal", lambda tf, x: tf.assert_equal(x, 3.0, message="hello"), "[hello] [Condition x == y did not hold element-wise:]")
_assertion("less", lambda tf, x: tf.assert_less(x, 1.0), "Condition x < y did not hold element-wise:")
_assertion("positive", lambda tf, x: tf.assert_positive(x), "Condition x > 0 did not hold element-wise:")
_assertion("near", lambda tf, x: tf.assert_near(x, [1.5, -2.00001]), "x and y not equal to tolerance")
_assertion("rank", lambda tf, x: tf.assert_rank(x, 2), "must have rank")
_assertion("rank_in", lambda tf, x: tf.assert_rank_in(x, [1, 2]))
_assertion("static", lambda tf, x: tf.assert_equal([1, 2], [1, 3]), "Condition x == y did not hold element-wise:")
_assertion("type", lambda tf, x: tf.assert_type(x, tf.int32), "must be of type tf.int32; got tf.float32")
_assertion("integer", lambda tf, x: tf.assert_integer(x), 'Expected "x" to be integer type.')
_assertion("shapes", lambda tf, x: tf.debugging.assert_shapes([(x, ("N",)), (tf.zeros([3, 3]), ("M", "N"))]), "must have size")
