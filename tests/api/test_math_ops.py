"""Node names, operators and argument handling of the mathematical API."""

import numpy as np
import pytest

import penstock as tf


def run(fetches, feeds=None):
    with tf.Session() as sess:
        return sess.run(fetches, feeds)


def nodes_of(build):
    """[(name, type), ...] of the nodes that `build(x, i, b)` makes."""
    with tf.Graph().as_default() as graph:
        x, i, b = tf.placeholder(tf.float32, [2, 2], "x"), tf.placeholder(tf.int32, [2, 2], "i"), tf.placeholder(tf.bool, [2, 2], "b")
        build(x, i, b)
        return [(op.name, op.type) for op in graph.get_operations()[3:]]


@pytest.mark.parametrize(("build", "want"), [
    (lambda x, i, b: x + 1, [("add/y", "Const"), ("add", "AddV2")]),
    (lambda x, i, b: 2 * x, [("mul/x", "Const"), ("mul", "Mul")]),
    (lambda x, i, b: x / 2, [("truediv/y", "Const"), ("truediv", "RealDiv")]),
    (lambda x, i, b: -x, [("Neg", "Neg")]),
    (lambda x, i, b: x**2, [("pow/y", "Const"), ("pow", "Pow")]),
    (lambda x, i, b: 1 - x, [("sub/x", "Const"), ("sub", "Sub")]),
    (lambda x, i, b: x // 2, [("floordiv/y", "Const"), ("floordiv", "FloorDiv")]),
    (lambda x, i, b: x % 2, [("mod/y", "Const"), ("mod", "FloorMod")]),
    (lambda x, i, b: x @ x, [("matmul", "MatMul")]),
    (lambda x, i, b: x < 1, [("Less/y", "Const"), ("Less", "Less")]),
    (lambda x, i, b: 1 >= x, [("LessEqual/y", "Const"), ("LessEqual", "LessEqual")]),
    (lambda x, i, b: b & b, [("and", "LogicalAnd")]),
    (lambda x, i, b: b * i, [("mul/Cast", "Cast"), ("mul/Cast_1", "Cast"), ("mul", "Mul"), ("mul/Cast_2", "Cast")]),
    (lambda x, i, b: tf.add(x, x, name=""), [("AddV2", "AddV2")]),
    (lambda x, i, b: i & 3, [("and/BitwiseAnd/y", "Const"), ("and/BitwiseAnd", "BitwiseAnd")]),
    (lambda x, i, b: ~b, [("LogicalNot", "LogicalNot")]),
    (lambda x, i, b: ~i, [("Invert", "Invert")]),
    (lambda x, i, b: i / 2, [("truediv/y", "Const"), ("truediv/Cast", "Cast"), ("truediv/Cast_1", "Cast"), ("truediv", "RealDiv")]),
    (lambda x, i, b: abs(x), [("Abs", "Abs")]),
    (lambda x, i, b: tf.add(x, x), [("Add", "AddV2")]),
    (lambda x, i, b: tf.reduce_sum(x), [("Const", "Const"), ("Sum", "Sum")]),
    (lambda x, i, b: tf.reduce_mean(x, 1, name="m"), [("m/reduction_indices", "Const"), ("m", "Mean")]),
    (lambda x, i, b: tf.cast(i, tf.float32), [("Cast", "Cast")]),
    (lambda x, i, b: tf.to_float(i), [("ToFloat", "Cast")]),
    (lambda x, i, b: tf.matmul(x, x, transpose_b=True), [("MatMul", "MatMul")]),
    (lambda x, i, b: tf.clip_by_value(x, 0.0, 1.0), [("clip_by_value/Minimum/y", "Const"), ("clip_by_value/Minimum", "Minimum"), ("clip_by_value/y", "Const"), ("clip_by_value", "Maximum")]),
])  # fmt: skip
def test_node_names(build, want):
    assert nodes_of(build) == want


def test_same_type_casts_make_no_node():
    x = tf.placeholder(tf.float32)
    assert tf.cast(x, tf.float32) is x and tf.real(x) is x and tf.conj(x) is x
    i = tf.placeholder(tf.int32)
    assert tf.round(i) is i
    assert tf.add_n([x]) is x


def test_tensors_compare_by_identity():
    x, y = tf.constant(1.0), tf.constant(1.0)
    assert x == x and x != y and len({x, y, x}) == 2


def test_division_by_type():
    i = tf.constant([7, -7])
    assert run(i / 2).dtype == np.float64 and run(tf.constant([7], tf.int8) / 2).dtype == np.float32
    assert run(tf.div(i, 2)).tolist() == [3, -4]
    assert run(i // 2).tolist() == [3, -4]
    with pytest.raises(TypeError, match="must have the same dtype"):
        tf.truediv(tf.constant([1]), tf.constant([1.0]))
    with pytest.raises(TypeError, match="Invalid dtype"):
        tf.constant([True]) / tf.constant([True])


def test_numbers_take_the_tensor_type():
    half = tf.constant([1.0], tf.float16)
    assert (half + 1).dtype == tf.float16 and (2 * half).dtype == tf.float16
    assert (tf.constant([1.0]) + np.array([1.0])).dtype == tf.float32
    with pytest.raises(TypeError, match="has type float32 that does not match type int32 of argument 'x'"):
        tf.constant([1]) + 1.5


def test_arrays_on_the_left():
    x = tf.constant([1.0, 2.0])
    assert run(np.array([1.0, 2.0], np.float32) + x).tolist() == [2, 4]
    assert run(np.float32(2) * x).tolist() == [2, 4]


def test_wrong_types_name_the_parameter():
    with pytest.raises(TypeError, match="Value passed to parameter 'x' has DataType int32 not in list of allowed values"):
        tf.exp(tf.constant([1]))


def test_sparse_tensors_keep_their_indices():
    sparse = tf.SparseTensor([[0, 1]], [-2.0], [2, 2])
    assert run(tf.abs(sparse).values).tolist() == [2]
    assert run(tf.cast(sparse, tf.int32).values).tolist() == [-2]


def test_clip_by_global_norm():
    (a, none), norm = tf.clip_by_global_norm([tf.constant([3.0, 4.0]), None], 1.0)
    assert none is None
    values = run([a, norm])
    assert np.allclose(values[0], [0.6, 0.8]) and values[1] == 5
    (bad,), _ = tf.clip_by_global_norm([tf.constant([np.inf, 1.0])], 1.0)
    assert np.isnan(run(bad)).all()


def test_clip_by_norm_of_zeros_has_a_gradient():
    x = tf.constant([0.0, 0.0])
    assert run(tf.gradients(tf.clip_by_norm(x, 1.0), x)[0]).tolist() == [1, 1]
    assert np.allclose(run(tf.clip_by_norm([3.0, 4.0], 1.0)), [0.6, 0.8])


def test_complex_numbers():
    z = tf.complex([3.0], [4.0])
    assert run([tf.abs(z), tf.real(z), tf.imag(z)]) == [5, 3, 4]
    assert run(tf.angle(tf.constant([-1.0, 1.0]))).tolist() == [np.float32(np.pi), 0]
    with pytest.raises(TypeError, match="components have incorrect types"):
        tf.complex(tf.constant([1.0]), tf.constant([1.0], tf.float64))


def test_logical_xor():
    assert run(tf.logical_xor([True, True, False], [True, False, False])).tolist() == [False, True, False]


def test_accumulate_n_checks_its_inputs():
    x = tf.constant([1.0, 2.0])
    assert run(tf.accumulate_n([x, x, x], shape=[2], tensor_dtype=tf.float32)).tolist() == [3, 6]
    with pytest.raises(ValueError, match="inputs must be a list of at least one Tensor"):
        tf.accumulate_n([])


def test_polyval():
    assert run(tf.math.polyval([1.0, 2.0, 3.0], tf.constant([2.0]))).tolist() == [11]


def test_einsum_equations_are_checked():
    x = tf.zeros([2, 2])
    with pytest.raises(ValueError, match="expecting 2"):
        tf.einsum("ij,jk->ik", x)
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 2 and 3"):
        tf.einsum("ij,jk->ik", x, tf.zeros([3, 2]))


def test_products_of_bools():
    a, b, i = tf.constant([True, True, False]), tf.constant([True, False, False]), tf.constant([2, 0, 3])
    found = run([a * b, a * True, False * a, a * i, i * a, a * 1.5])
    assert all(y.dtype == np.bool_ for y in found)
    assert [y.tolist() for y in found] == [[True, False, False], [True, True, False], [False] * 3, [True, False, False], [True, False, False], [True, True, False]]
    with pytest.raises(TypeError, match="bool"):
        a + b


def test_an_empty_name_is_none():
    with tf.name_scope("s"):
        names = [tf.identity(1.0, name="").name, tf.identity(1.0, name="").name, tf.add(1, 2, name="").name]
    assert names == ["s/Identity:0", "s/Identity_1:0", "AddV2:0"]
