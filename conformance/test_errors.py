"""Errors under both packages: the same class for the same mistake, and the words that programs match on.

Each case is a mistake and a text that both messages must hold ("" where TensorFlow's words say nothing worth keeping).
"""

from __future__ import annotations

import numpy as np
import pytest

from conformance.both import penstock, run_both, tensorflow

pytest.importorskip("tensorflow")

BUILDING = {}
RUNNING = {}


def building(text: str = ""):
    """A mistake that shows while the graph is built."""

    def register(fn):
        BUILDING[fn.__name__] = (fn, text)
        return fn

    return register


def running(text: str = "", feed=None):
    """A mistake that shows in a step."""

    def register(fn):
        RUNNING[fn.__name__] = (fn, text, feed)
        return fn

    return register


# -- building ---------------------------------------------------------------------------------------------------------------


@building("Dimensions must be equal, but are 2 and 3 for")
def add_shapes(tf):
    tf.ones([2]) + tf.ones([3])


@building("Dimensions must be equal, but are 3 and 2 for")
def matmul_shapes(tf):
    tf.matmul(tf.ones([2, 3]), tf.ones([2, 2]))


@building("Shape must be rank 2 but is rank 1 for")
def matmul_rank(tf):
    tf.raw_ops.MatMul(a=tf.ones([3]), b=tf.ones([3, 2]))


@building("Dimension 0 in both shapes must be equal")
def stack_shapes(tf):
    tf.stack([tf.ones([2]), tf.ones([3])])


@building("Dimension 0 in both shapes must be equal, but are 2 and 3")
def concat_shapes(tf):
    tf.concat([tf.ones([2, 2]), tf.ones([2, 3])], 0)


@building("Cannot reshape a tensor with 6 elements to shape [4]")
def reshape_size(tf):
    tf.reshape(tf.ones([2, 3]), [4])


@building("has type float32 that does not match type int32 of argument 'x'")
def mixed_types(tf):
    tf.raw_ops.AddV2(x=tf.constant(1), y=tf.constant(1.0))


@building("not in list of allowed values")
def type_not_allowed(tf):
    tf.raw_ops.Sqrt(x=tf.constant(1))


@building("Expected int32, but got 1.5 of type 'float'")
def wrong_constant(tf):
    tf.constant(1.5, tf.int32)


@building("")
def ragged_constant(tf):
    tf.constant([[1], [1, 2]])


@building("")
def none_constant(tf):
    tf.constant(None)


@building("does not exist, or was not created with tf.get_variable()")
def variable_to_reuse(tf):
    with tf.variable_scope("s", reuse=True):
        tf.get_variable("v", [1])


@building("already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in VarScope?")
def variable_twice(tf):
    tf.get_variable("v", [1])
    tf.get_variable("v", [1])


@building("Trying to share variable v, but specified shape (3,) and found shape (2,)")
def variable_shape(tf):
    tf.get_variable("v", [2])
    with tf.variable_scope("", reuse=True):
        tf.get_variable("v", [3])


@building("Graph is finalized and cannot be modified.")
def finalized(tf):
    tf.get_default_graph().finalize()
    tf.constant(1)


@building("refers to a Tensor which does not exist. The operation, 'nope', does not exist in the graph.")
def tensor_by_name(tf):
    tf.get_default_graph().get_tensor_by_name("nope:0")


@building("refers to an Operation not in the graph.")
def operation_by_name(tf):
    tf.get_default_graph().get_operation_by_name("nope")


@building("Tensor names must be of the form \"<op_name>:<output_index>\".")
def no_tensor_name(tf):
    tf.constant(1, name="x")
    tf.get_default_graph().get_tensor_by_name("x")


@building("must be from the same graph as")
def two_graphs(tf):
    with tf.Graph().as_default():
        x = tf.constant(1)
    x + tf.constant(1)


@building("No gradient defined for operation")
def no_gradient(tf):
    x = tf.ones([1, 2, 2, 1])
    tf.gradients(tf.raw_ops.ResizeBicubicGrad(grads=x, original_image=x), x)


@building("as_list() is not defined on an unknown TensorShape.")
def list_of_unknown_shape(tf):
    tf.placeholder(tf.float32).shape.as_list()


@building("Shapes (2, ?) and (3,) are incompatible")
def merging_shapes(tf):
    tf.placeholder(tf.float32, [2, None]).shape.assert_is_compatible_with(tf.TensorShape([3]))


@building("enters the loop with shape")
def loop_shape(tf):
    tf.while_loop(lambda x: True, lambda x: tf.concat([x, x], 0), [tf.ones([2])])


@building("")
def loop_structure(tf):
    tf.while_loop(lambda i: i < 1, lambda i: (i, i), [tf.constant(0)])


@building("")
def cond_structure(tf):
    tf.cond(tf.placeholder(tf.bool, []), lambda: (tf.constant(1), tf.constant(2)), lambda: tf.constant(1))


@building("must have the same type")
def cond_types(tf):
    tf.cond(tf.placeholder(tf.bool, []), lambda: tf.constant(1), lambda: tf.constant(1.0))


@building("Unknown attribute")
def device_name(tf):
    with tf.device("nonsense"):
        tf.constant(1)


@building("slice index 5 of dimension 0 out of bounds")
def slice_index(tf):
    tf.ones([3])[5]


@building("")
def slice_with_a_string(tf):
    tf.ones([3])["a"]


@building("")
def negative_shape(tf):
    tf.zeros([-1])


@building("Attr 'padding' of 'Conv2D' Op passed string 'NOPE' not in: ")
def attribute_value(tf):
    tf.nn.conv2d(tf.ones([1, 3, 3, 1]), tf.ones([1, 1, 1, 1]), [1, 1, 1, 1], "NOPE")


@building("No variables to save")
def saver_without_variables(tf):
    tf.train.Saver()


@building("No variables to optimize.")
def nothing_to_train(tf):
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.constant(1.0))


@building("No gradients provided for any variable")
def nothing_depends_on_variables(tf):
    tf.get_variable("v", [1])
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.constant(1.0))


@building("")
def session_target(tf):
    tf.Session("no_such_runtime://")


# -- running ----------------------------------------------------------------------------------------------------------------


@running("You must feed a value for placeholder tensor 'x' with dtype float")
def unfed(tf):
    return tf.placeholder(tf.float32, name="x") + 1


@running("Attempting to use uninitialized value v")
def uninitialised_ref(tf):
    return tf.get_variable("v", [1], use_resource=False, collections=[])


@running("")
def uninitialised_resource(tf):
    return tf.get_variable("v", [1], use_resource=True, collections=[])


@running("Incompatible shapes: [2] vs. [3]", {"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)})
def shapes_at_run_time(tf):
    return tf.placeholder(tf.float32, name="x") + tf.placeholder(tf.float32, name="y")


@running("Matrix size-incompatible: In[0]: [2,2], In[1]: [3,2]", {"x": np.ones((2, 2), np.float32), "y": np.ones((3, 2), np.float32)})
def matmul_at_run_time(tf):
    return tf.matmul(tf.placeholder(tf.float32, name="x"), tf.placeholder(tf.float32, name="y"))


@running("Input to reshape is a tensor with 3 values, but the requested shape has 2", {"x": np.ones(3, np.float32)})
def reshape_at_run_time(tf):
    return tf.reshape(tf.placeholder(tf.float32, name="x"), [2])


@running("indices[1] = 7 is not in [0, 3)", {"i": np.array([0, 7], np.int32)})
def gather_out_of_range(tf):
    return tf.gather([1.0, 2.0, 3.0], tf.placeholder(tf.int32, name="i"))


@running("assertion failed: [x is] [-1]", {"x": np.int32(-1)})
def assertion(tf):
    x = tf.placeholder(tf.int32, [], name="x")
    with tf.control_dependencies([tf.Assert(x > 0, ["x is", x])]):
        return tf.identity(x)


@running("Integer division by zero", {"x": np.int32(0)})
def division_by_zero(tf):
    return tf.constant(1) // tf.placeholder(tf.int32, [], name="x")


@running("had NaN values", {"x": np.float32(np.nan)})
def check_numerics(tf):
    return tf.check_numerics(tf.placeholder(tf.float32, [], name="x"), "here")


@running("is closed and has insufficient elements (requested 1, current size 0)")
def closed_queue(tf):
    q = tf.FIFOQueue(1, [tf.float32], [[]], name="q")
    with tf.control_dependencies([q.close()]):
        return q.dequeue()


@running("slice index 5 of dimension 0 out of bounds", {"x": np.ones(3, np.float32)})
def slice_at_run_time(tf):
    return tf.placeholder(tf.float32, name="x")[5]


@running("StringToNumberOp could not correctly convert string: abc")
def string_to_number(tf):
    return tf.string_to_number("abc")


@running("Cannot assign a device for operation x")
def no_such_device(tf):
    with tf.device("/device:NOPE:0"):
        return tf.constant(1, name="x")


@running("Tried to read from index 5 but array size is: 2")
def tensor_array_index(tf):
    return tf.TensorArray(tf.float32, 2).unstack([1.0, 2.0]).read(5)


@running("because it has already been read", None)
def tensor_array_twice(tf):
    ta = tf.TensorArray(tf.float32, 1, clear_after_read=False).write(0, 1.0)
    with tf.control_dependencies([ta.read(0)]):
        return ta.write(0, 2.0).flow


@running("Need minval < maxval, got 5 >= 5")
def random_range(tf):
    return tf.random_uniform([2], 5, 5, tf.int32)


@running("Expected begin[0] in [0, 3], but got 4", {"b": np.array([4], np.int32)})
def slice_begin(tf):
    return tf.slice([1, 2, 3], tf.placeholder(tf.int32, [1], name="b"), [1])


@running("Expected size[0] in [0, 2], but got 3", {"n": np.array([3], np.int32)})
def slice_size(tf):
    return tf.slice([1, 2, 3], [1], tf.placeholder(tf.int32, [1], name="n"))


@running("Segment id -1 out of range [0, 1), possibly because 'segment_ids' input is not sorted.")
def segment_ids(tf):
    return tf.segment_sum([1.0, 2.0], [-1, 0])


@running("ConcatOp : Dimension 1 in both shapes must be equal", {"x": np.ones((1, 3), np.float32)})
def concat_at_run_time(tf):
    return tf.concat([tf.ones([1, 2]), tf.placeholder(tf.float32, name="x")], 0)


@running("Invalid reduction dimension", {"i": np.int32(5)})
def reduction_axis(tf):
    return tf.reduce_sum(tf.ones([2]), tf.placeholder(tf.int32, [], name="i"))


@running("Dimension -3 must be >= 0", {"n": np.array([-3], np.int32)})
def fill_dims(tf):
    return tf.fill(tf.placeholder(tf.int32, [1], name="n"), 1.0)


@running("my own message")
def python_error(tf):
    def fail():
        raise ValueError("my own message")

    return tf.py_func(fail, [], tf.float32)


def error_of(tf, fn):
    with tf.Graph().as_default():
        try:
            fn(tf)
        except Exception as error:
            return error
    return None


def message(error):
    return getattr(error, "message", None) or str(error)


@pytest.mark.parametrize("name", BUILDING)
def test_while_building(name):
    fn, text = BUILDING[name]
    if name == "saver_without_variables" and not hasattr(penstock().train, "Saver"):
        pytest.skip("there is no Saver yet")
    theirs, ours = error_of(tensorflow(), fn), error_of(penstock(), fn)
    assert type(ours).__name__ == type(theirs).__name__, f"Penstock: {ours!r}\nTensorFlow: {theirs!r}"
    assert text in message(theirs), f"TensorFlow says: {message(theirs)}"
    assert text in message(ours), f"Penstock says: {message(ours)}\nTensorFlow says: {message(theirs)}"


@pytest.mark.parametrize("name", RUNNING)
def test_while_running(name):
    fn, text, feed = RUNNING[name]
    error = run_both(fn, feed, message=text)
    assert isinstance(error, Exception), f"there was no error, but {error}"


def test_codes():
    """Status codes and classes belong together as in TensorFlow."""
    ours, theirs = penstock().errors, tensorflow().errors
    for code in range(17):
        if code == 0:
            continue
        mine, wanted = ours.exception_type_from_error_code(code), theirs.exception_type_from_error_code(code)
        assert mine.__name__ == wanted.__name__
        assert ours.error_code_from_exception_type(mine) == code
