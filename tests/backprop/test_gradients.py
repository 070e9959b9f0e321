"""tf.gradients: values, structure, errors."""

import numpy as np
import pytest

import penstock as tf
from penstock.backprop.slices import to_dense


def run(fetches, feed=None):
    with tf.Session() as sess:
        if tf.global_variables():
            sess.run(tf.global_variables_initializer())
        return sess.run(fetches, feed)


def names():
    return {op.name for op in tf.get_default_graph().get_operations()}


def test_polynomial_and_its_derivatives():
    x = tf.constant([1.0, 2.0, -3.0])
    y = x * x * x
    (first,) = tf.gradients(y, x)
    (second,) = tf.gradients(first, x)
    (third,) = tf.gradients(second, x)
    a, b, c = run([first, second, third])
    np.testing.assert_allclose(a, [3, 12, 27])
    np.testing.assert_allclose(b, [6, 12, -18])
    np.testing.assert_allclose(c, [6, 6, 6])


def test_several_results_and_sources():
    x, z = tf.constant(2.0), tf.constant(3.0)
    grads = tf.gradients([x * z, x + z], [x, z])
    assert run(grads) == [4.0, 3.0]


def test_broadcasting_is_summed():
    x, row = tf.ones([3, 2]), tf.constant([1.0, 2.0])
    (grad,) = tf.gradients(x * row, row)
    np.testing.assert_allclose(run(grad), [3, 3])


def test_names_are_tfs():
    x = tf.placeholder(tf.float32, [None], name="x")
    tf.gradients(tf.negative(tf.identity(x)), x)
    assert {"gradients/Shape", "gradients/grad_ys_0", "gradients/grad_ys_0/Const", "gradients/Neg_grad/Neg"} <= names()
    tf.gradients(tf.negative(x), x)
    assert "gradients_1/Neg_1_grad/Neg" in names()


def test_sums_have_one_add_n():
    x = tf.identity(tf.constant(2.0), name="x")
    (grad,) = tf.gradients(x * x + x, x)
    assert grad.op.type == "AddN" and len(grad.op.inputs) == 3
    assert run(grad) == 5.0


@pytest.mark.parametrize("method", [tf.AggregationMethod.EXPERIMENTAL_TREE, tf.AggregationMethod.EXPERIMENTAL_ACCUMULATE_N])
def test_sums_as_a_tree(method):
    x = tf.identity(tf.constant(2.0), name="x")
    (grad,) = tf.gradients(x * x + x, x, aggregation_method=method)
    assert grad.op.name.startswith("gradients/x_gradient_sum/") and len(grad.op.inputs) == 2
    assert run(grad) == 5.0


def test_unknown_aggregation_method():
    x = tf.constant(2.0)
    with pytest.raises(ValueError, match="Invalid `aggregation_method`"):
        tf.gradients(x * x, x, aggregation_method=17)


def test_none_and_zeros_where_nothing_is_connected():
    x, other = tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])
    assert tf.gradients(x * x, other) == [None]
    (zero,) = tf.gradients(x * x, other, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert run(zero).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="Unknown value for unconnected_gradients"):
        tf.gradients(x * x, other, unconnected_gradients="nonsense")


def test_integers_stop_gradients():
    x = tf.constant([1.0, 2.0])
    assert tf.gradients(tf.cast(tf.cast(x, tf.int32), tf.float32), x) == [None]
    assert tf.gradients(tf.stop_gradient(x), x) == [None]


def test_stop_gradients_argument():
    x = tf.constant(3.0)
    a = x * 2.0
    b = a * x
    assert run(tf.gradients(a + b, [x, a], stop_gradients=[a])) == [6.0, 4.0]


def test_given_gradients():
    x = tf.constant([1.0, 2.0])
    (grad,) = tf.gradients(x * x, x, grad_ys=tf.constant([10.0, 100.0]))
    assert run(grad).tolist() == [20.0, 400.0]
    assert "gradients/grad_ys_0" in names()
    with pytest.raises(ValueError, match="Passed 2 grad_ys for 1 ys"):
        tf.gradients(x, x, grad_ys=[x, x])
    with pytest.raises(TypeError, match="must be real or integer"):
        tf.gradients(x, x, grad_ys=[tf.constant("no")])


def test_complex_results_need_given_gradients():
    x = tf.constant([1 + 2j], tf.complex64)
    with pytest.raises(TypeError, match="must set grad_ys"):
        tf.gradients(x * x, x)
    (grad,) = tf.gradients(x * x, x, grad_ys=tf.constant([1.0 + 0j], tf.complex64))
    np.testing.assert_allclose(run(grad), [2 - 4j])


def test_missing_gradient_names_the_op():
    x = tf.constant([1.0, 2.0])
    y = tf.raw_ops.UniqueV2(x=x, axis=tf.constant([0]), name="mine")[0]
    with pytest.raises(LookupError, match=r"No gradient defined for operation 'mine' \(op type: UniqueV2\)"):
        tf.gradients(y, x)
    assert tf.gradients(y, tf.constant(1.0)) == [None]  # not on the way, so nobody asks


# -- variables and sparse gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables(use_resource):
    v = tf.Variable([1.0, 2.0], use_resource=use_resource)
    (grad,) = tf.gradients(v * v, v)
    np.testing.assert_allclose(run(grad), [2, 4])


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")
@pytest.mark.parametrize("use_resource", [False, True])
def test_gathers_give_indexed_slices(use_resource):
    v = tf.Variable(np.ones([4, 2], np.float32), use_resource=use_resource)
    (grad,) = tf.gradients(tf.gather(v, [1, 3, 1]) * 2.0, v)
    assert isinstance(grad, tf.IndexedSlices)
    value = run(grad)
    assert value.indices.tolist() == [1, 3, 1] and value.values.tolist() == [[2, 2]] * 3
    assert run(tf.convert_to_tensor(grad)).tolist() == [[0, 0], [4, 4], [0, 0], [2, 2]]


def test_indexed_slices_are_joined():
    v = tf.Variable(np.ones([4, 2], np.float32), use_resource=False)
    (grad,) = tf.gradients([tf.gather(v, [1]), tf.gather(v, tf.constant([3, 0], tf.int64))], v)
    value = run(grad)
    assert sorted(value.indices.tolist()) == [0, 1, 3] and value.indices.dtype == np.int64
    (dense,) = tf.gradients([tf.gather(v, [1]), v * 3.0], v)
    assert isinstance(dense, tf.Tensor)
    assert run(dense).tolist() == [[3, 3], [4, 4], [3, 3], [3, 3]]


def test_slices_without_shape_cannot_be_dense():
    with pytest.raises(ValueError, match="no dense_shape information"):
        to_dense(tf.IndexedSlices(tf.constant([1.0]), tf.constant([0])))


# -- registered and custom gradients ----------------------------------------------------------------------------------


def test_override_map():
    @tf.RegisterGradient("TestOverride")
    def _grad(op, dy):
        assert isinstance(op, tf.Operation)
        return dy * 10.0

    x = tf.constant(3.0)
    with tf.get_default_graph().gradient_override_map({"Square": "TestOverride"}):
        y = tf.square(x)
    assert run(tf.gradients(y, x)) == [10.0]
    assert run(tf.gradients(tf.square(x), x)) == [6.0]
    with pytest.raises(KeyError, match="Registering two gradient with name 'TestOverride'"):
        tf.RegisterGradient("TestOverride")(lambda op, dy: dy)
    with pytest.raises(KeyError, match="Registering two gradient with name 'Square'"):
        tf.RegisterGradient("Square")(lambda op, dy: dy)
    with pytest.raises(TypeError, match="op_type must be a string"):
        tf.RegisterGradient(3)


def test_not_differentiable():
    tf.NotDifferentiable("TestConstant")
    x = tf.constant(3.0)
    with tf.get_default_graph().gradient_override_map({"Square": "TestConstant"}):
        y = tf.square(x)
    assert tf.gradients(y, x) == [None]


@pytest.mark.parametrize(
    "result, error, text",
    [
        (lambda dy: (dy, dy), ValueError, "do not match num inputs 1"),
        (lambda dy: tf.zeros([7]), ValueError, "Incompatible shapes between op input and calculated input gradient"),
    ],
)
def test_bad_results_of_gradient_functions(result, error, text):
    name = f"TestBad{text[:3]}{len(text)}"
    tf.RegisterGradient(name)(lambda op, dy: result(dy))
    x = tf.constant([3.0, 4.0])
    with tf.get_default_graph().gradient_override_map({"Square": name}):
        y = tf.square(x)
    with pytest.raises(error, match=text):
        tf.gradients(y, x)


def test_custom_gradient():
    @tf.custom_gradient
    def clipped(x, scale):
        def grad(dy):
            return tf.clip_by_value(dy, -1.0, 1.0) * scale, None

        return x * 5.0, grad

    x = tf.constant([1.0, 2.0])
    y = clipped(x, 3.0)
    (grad,) = tf.gradients(y, x, grad_ys=tf.constant([0.5, 100.0]))
    assert run(y).tolist() == [5.0, 10.0]
    assert run(grad).tolist() == [1.5, 3.0]


def test_custom_gradient_with_variables():
    v = tf.get_variable("v", initializer=2.0, use_resource=True)

    @tf.custom_gradient
    def scaled(x):
        return x * v, lambda dy, variables=None: (dy * 7.0, [dy * 5.0 for _ in variables])

    @tf.custom_gradient
    def careless(x):
        return x * v, lambda dy: dy

    x = tf.constant(3.0)
    assert run(tf.gradients(scaled(x), [x, v])) == [7.0, 5.0]
    with pytest.raises(TypeError, match="must accept keyword argument 'variables'"):
        careless(x)


def test_gradient_passes_through():
    x = tf.constant([1.4, 2.6])
    y = tf.grad_pass_through(tf.round)(x)
    assert run([y, *tf.gradients(y * 3.0, x)])[1].tolist() == [3.0, 3.0]


def test_recomputed_gradient():
    calls = []

    @tf.recompute_grad
    def f(a):
        calls.append(a)
        return tf.tanh(a) * a

    x = tf.constant([0.5, 1.0])
    y = f(x)
    (grad,) = tf.gradients(y, x)
    (plain,) = tf.gradients(tf.tanh(x) * x, x)
    a, b = run([grad, plain])
    np.testing.assert_allclose(a, b, rtol=1e-6)
    assert len(calls) == 2


# -- options ----------------------------------------------------------------------------------------------------------


def test_gated_gradients_wait_for_each_other():
    x, z = tf.constant(2.0), tf.constant(3.0)
    grads = tf.gradients(x * z, [x, z], gate_gradients=True)
    assert run(grads) == [3.0, 2.0]
    assert all(g.op.name.startswith("gradients/mul_grad/tuple/control_dependency") for g in grads)
    gate = grads[0].op.control_inputs[0]
    assert gate.type == "NoOp" and len(gate.control_inputs) == 2


def test_colocation_with_forward_ops():
    x = tf.constant(2.0)
    with tf.device("/cpu:0"):
        y = tf.square(tf.negative(x), name="y")
    (grad,) = tf.gradients(y, x, colocate_gradients_with_ops=True)
    assert b"loc:@Neg" in grad.op.colocation_groups()
    (grad,) = tf.gradients(y, x)
    assert grad.op.device == ""


def test_hessians():
    x = tf.constant([1.0, 2.0])
    (h,) = tf.hessians(tf.reduce_sum(x**3) + x[0] * x[1], [x])
    np.testing.assert_allclose(run(h), [[6, 1], [1, 12]])


# -- checking gradients -----------------------------------------------------------------------------------------------


def test_compute_gradient():
    x = tf.constant([[0.3, -0.5], [1.0, 0.2]], tf.float64)
    y = tf.matmul(x, tf.sin(x))
    with tf.Session():
        theory, numeric = tf.test.compute_gradient(x, [2, 2], y, [2, 2])
        assert theory.shape == numeric.shape == (4, 4)
        np.testing.assert_allclose(theory, numeric, atol=1e-5)
        assert tf.test.compute_gradient_error(x, [2, 2], y, [2, 2]) < 1e-5


def test_compute_gradient_of_complex_numbers_and_lists():
    x = tf.placeholder(tf.complex128, [2])
    z = tf.placeholder(tf.complex128, [2])
    y = x * z * x
    with tf.Session():
        assert tf.test.compute_gradient_error([x, z], [[2], [2]], y, [2]) < 1e-4


def test_compute_gradient_finds_mistakes():
    tf.RegisterGradient("TestMistake")(lambda op, dy: dy * 3.0)
    x = tf.constant([1.0, 2.0], tf.float64)
    with tf.get_default_graph().gradient_override_map({"Square": "TestMistake"}):
        y = tf.square(x)
    with tf.Session():
        assert tf.test.compute_gradient_error(x, [2], y, [2], x_init_value=[1.0, 2.0]) > 0.5
    with pytest.raises(ValueError, match="open a session first"):
        tf.test.compute_gradient_error(x, [2], y, [2])
