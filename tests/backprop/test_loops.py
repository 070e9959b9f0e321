"""Gradients through branches and loops, checked against the derivative of what they compute."""

import numpy as np
import pytest

import penstock as tf

X = np.array([1.5, -2.0], np.float32)


def x_of(known):
    return tf.placeholder(tf.float32, [2] if known else None, name="x")


def run(fetches, **feed):
    with tf.Session() as sess:
        if tf.global_variables():
            sess.run(tf.global_variables_initializer())
        graph = tf.get_default_graph()
        return sess.run(fetches, {graph.get_tensor_by_name(k + ":0"): v for k, v in feed.items()})


def powers(x, n=3, **options):
    """x ** (n + 1), by a loop."""
    return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x), [0, x], **options)[1]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("p", [True, False])
def test_cond(known, p):
    x = x_of(known)
    y = tf.cond(tf.placeholder(tf.bool, [], name="p"), lambda: x * x * x, lambda: x * 5.0)
    (grad,) = tf.gradients(y, x)
    np.testing.assert_allclose(run(grad, x=X, p=p), 3 * X**2 if p else [5, 5])


@pytest.mark.parametrize("p", [True, False])
def test_a_branch_that_does_not_use_the_source(p):
    x = x_of(True)
    y = tf.cond(tf.placeholder(tf.bool, [], name="p"), lambda: x * x, lambda: tf.constant([7.0, 7.0]))
    (grad,) = tf.gradients(y, x)
    np.testing.assert_allclose(run(grad, x=X, p=p), 2 * X if p else [0, 0])


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_loop(known, n):
    x = x_of(known)
    y = powers(x, tf.placeholder(tf.int32, [], name="n"))
    (grad,) = tf.gradients(y, x)
    np.testing.assert_allclose(run([y, grad], x=X, n=n)[1], (n + 1) * X**n, rtol=1e-6)


@pytest.mark.parametrize("parallel_iterations", [1, 2, 32])
def test_parallel_iterations(parallel_iterations):
    x = x_of(False)
    (grad,) = tf.gradients(powers(x, 6, parallel_iterations=parallel_iterations), x)
    np.testing.assert_allclose(run(grad, x=X), 7 * X**6, rtol=1e-6)


def test_two_calls_of_gradients_share_the_loop():
    x = x_of(False)
    y = powers(x)
    first, second = tf.gradients(y, x)[0], tf.gradients(y * 2.0, x)[0]
    a, b = run([first, second], x=X)
    np.testing.assert_allclose(a, 4 * X**3)
    np.testing.assert_allclose(b, 8 * X**3)


@pytest.mark.parametrize("known", [True, False])
def test_loop_in_loop(known):
    """((x * x) * x) inside of a loop: x ** (2 * 3 + 1)."""
    x = x_of(known)

    def body(i, a):
        return i + 1, tf.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b * x), [0, a])[1]

    (grad,) = tf.gradients(tf.while_loop(lambda i, a: i < 3, body, [0, x])[1], x)
    np.testing.assert_allclose(run(grad, x=X), 7 * X**6, rtol=1e-6)


def test_inner_loops_of_different_lengths():
    """The inner loop runs 0, 1, 2, 3 times: x ** (6 + 1)."""
    x = x_of(False)

    def body(i, a):
        return i + 1, tf.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b * x), [0, a])[1]

    (grad,) = tf.gradients(tf.while_loop(lambda i, a: i < 4, body, [0, x])[1], x)
    np.testing.assert_allclose(run(grad, x=X), 7 * X**6, rtol=1e-6)


@pytest.mark.parametrize("known", [True, False])
def test_cond_in_loop(known):
    """Even iterations multiply by x, odd ones square: ((x * x) ** 2 * x) ** 2 = x ** 10."""
    x = x_of(known)

    def body(i, a):
        return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: a * x, lambda: a * a)

    (grad,) = tf.gradients(tf.while_loop(lambda i, a: i < 4, body, [0, x])[1], x)
    np.testing.assert_allclose(run(grad, x=X), 10 * X**9, rtol=1e-5)


@pytest.mark.parametrize("p", [True, False])
def test_loop_in_cond(p):
    x = x_of(False)
    y = tf.cond(tf.placeholder(tf.bool, [], name="p"), lambda: powers(x), lambda: x * 5.0)
    (grad,) = tf.gradients(y, x)
    np.testing.assert_allclose(run(grad, x=X, p=p), 4 * X**3 if p else [5, 5])


def test_loop_invariants_are_summed():
    x = x_of(True)
    w = tf.constant([2.0, 3.0])
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + w * x), [0, x])
    gx, gw = tf.gradients(y, [x, w])
    a, b = run([gx, gw], x=X)
    np.testing.assert_allclose(a, 1 + 3 * np.array([2.0, 3.0]))
    np.testing.assert_allclose(b, 3 * X)


@pytest.mark.parametrize("known", [True, False])
def test_a_variable_that_forgets_its_past(known):
    x = x_of(known)
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, x * x), [0, x * 100.0])
    (grad,) = tf.gradients(y, x)
    np.testing.assert_allclose(run(grad, x=X), 2 * X)


def test_only_some_results_matter():
    x = x_of(False)
    _, a, b = tf.while_loop(lambda i, a, b: i < 3, lambda i, a, b: (i + 1, a * x, b + a), [0, x, x])
    np.testing.assert_allclose(run(tf.gradients(a, x)[0], x=X), 4 * X**3)
    np.testing.assert_allclose(run(tf.gradients(b, x)[0], x=X), 1 + 1 + 2 * X + 3 * X**2)


def test_back_prop_false():
    x = x_of(True)
    assert tf.gradients(powers(x, back_prop=False), x) == [None]


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")
def test_sparse_gradients_of_invariants():
    v = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2), use_resource=False)
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + tf.reduce_sum(tf.gather(v, i) ** 2)), [0, 0.0])
    (grad,) = tf.gradients(y, v)
    assert isinstance(grad, tf.IndexedSlices)
    dense = run(tf.convert_to_tensor(grad))
    want = 2 * np.arange(8, dtype=np.float32).reshape(4, 2)
    want[3] = 0
    np.testing.assert_allclose(dense, want)


@pytest.mark.parametrize("use_resource", [True, False])
def test_variables_in_loops(use_resource):
    v = tf.Variable([1.5, -2.0], use_resource=use_resource)
    (grad,) = tf.gradients(tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * v), [0, tf.ones([2])])[1], v)
    np.testing.assert_allclose(run(grad), 3 * X**2)


def test_gradients_inside_of_a_loop():
    """Three steps of gradient descent on a ** 2."""
    x = x_of(True)
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a - 0.25 * tf.gradients(a * a, a)[0]), [0, x])
    np.testing.assert_allclose(run(y, x=X), X / 8)


def test_gradient_to_the_initial_value_inside_of_the_loop():
    z = tf.constant([1.0, 2.0]) * 2.0
    with pytest.raises(ValueError, match="We do not support taking the gradient wrt or through the initial value of a loop variable"):
        tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.gradients(a * a, z)[0]), [0, z])


def test_second_derivatives_of_loops():
    x = x_of(True)
    (first,) = tf.gradients(powers(x), x)
    with pytest.raises(TypeError, match="Second-order gradient for while loops not supported"):
        tf.gradients(first, x)


def test_histories_are_stacks():
    x = x_of(False)
    tf.gradients(powers(x), x)
    kinds = [op.type for op in tf.get_default_graph().get_operations()]
    assert kinds.count("StackV2") == kinds.count("StackPushV2") == kinds.count("StackPopV2") > 0


def test_static_shapes_need_fewer_histories():
    counts = []
    for known in (True, False):
        with tf.Graph().as_default() as graph:
            x = x_of(known)
            tf.gradients(powers(x), x)
            counts.append(sum(op.type == "StackV2" for op in graph.get_operations()))
    assert counts[0] <= counts[1] and counts[0] == 1


def test_tensor_arrays():
    x = x_of(False)
    array = tf.TensorArray(tf.float32, size=3)
    _, array, _ = tf.while_loop(
        lambda i, t, a: i < 3, lambda i, t, a: (i + 1, t.write(i, a), a * x), [0, array, x]
    )
    y = array.stack()
    (grad,) = tf.gradients(y, x)
    np.testing.assert_allclose(run(grad, x=X), 1 + 2 * X + 3 * X**2)


def test_a_long_loop():
    x = tf.constant(0.999)
    (grad,) = tf.gradients(powers(x, 2000), x)
    np.testing.assert_allclose(run(grad), 2001 * 0.999**2000, rtol=1e-3)
