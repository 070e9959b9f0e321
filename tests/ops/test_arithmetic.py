"""Arithmetic, comparisons and conversions: what the samples do not say by themselves."""

import numpy as np
import pytest

import penstock as tf
from penstock.ops.arithmetic import pow_kernel


def run(fetches, feeds=None):
    with tf.Session() as sess:
        return sess.run(fetches, feeds)


def unknown(value, dtype=None):
    """A placeholder without a static shape, and its value."""
    value = np.asarray(value, dtype)
    return tf.placeholder(value.dtype), value


def test_incompatible_shapes_at_run_time():
    (x, a), (y, b) = unknown([1.0, 2.0]), unknown([1.0, 2.0, 3.0])
    for op in (tf.add, tf.subtract, tf.multiply, tf.maximum, tf.pow, tf.less, tf.equal, tf.squared_difference, tf.atan2):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Incompatible shapes: \[2\] vs\. \[3\]"):
            run(op(x, y), {x: a, y: b})


def test_integer_division_by_zero():
    (x, a), (y, b) = unknown([7, 1], np.int32), unknown([0, 2], np.int32)
    for op in (tf.div, tf.floordiv, tf.floormod):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Integer division by zero"):
            run(op(x, y), {x: a, y: b})


def test_no_elements_no_division():
    x, y = tf.placeholder(tf.int32), tf.placeholder(tf.int32)
    assert run(tf.floordiv(x, y), {x: np.zeros(0, np.int32), y: np.zeros(1, np.int32)}).shape == (0,)


@pytest.mark.parametrize(("op", "want"), [
    ("FloorDiv", [3, -4, -4, 3]), ("TruncateDiv", [3, -3, -3, 3]), ("Div", [3, -3, -3, 3]), ("FloorMod", [1, 1, -1, -1]), ("TruncateMod", [1, -1, 1, -1]),
])  # fmt: skip
def test_signs_of_integer_division(op, want):
    x, y = tf.constant([7, -7, 7, -7]), tf.constant([2, 2, -2, -2])
    assert run(getattr(tf.raw_ops, op)(x=x, y=y)).tolist() == want


def test_integer_powers():
    assert run(tf.pow(tf.constant([2, -3]), tf.constant([3, 3]))).tolist() == [8, -27]
    y = tf.placeholder(tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Integers to negative integer powers are not allowed"):
        run(tf.pow(tf.constant([2, 3]), y), {y: [-1, 1]})


def test_strings_add_and_compare():
    s = tf.constant(["a", "b"])
    assert run(s + "x").tolist() == [b"ax", b"bx"]
    assert run(tf.constant("a") + "b") == b"ab"
    assert run(tf.equal(s, "a")).tolist() == [True, False]


def test_unequal_shapes_are_just_unequal_if_asked():
    x, y = tf.zeros([2]), tf.zeros([3])
    assert run(tf.raw_ops.Equal(x=x, y=y, incompatible_shape_error=False)) == np.False_
    assert run(tf.raw_ops.NotEqual(x=x, y=y, incompatible_shape_error=False)) == np.True_


def test_add_n_names_the_node_in_its_error():
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Inputs to operation total of type AddN must have the same size and shape"):
        run(tf.add_n([x, y], name="total"), {x: [1.0], y: [1.0, 2.0]})


def test_casts_out_of_range():
    x = tf.constant([300.7, -300.7, float("nan"), 3e9], tf.float32)
    assert run(tf.cast(x, tf.int8)).tolist() == [44, -44, 0, 0]
    assert run(tf.cast(x, tf.int32)).tolist() == [300, -300, -(2**31), -(2**31)]
    assert run(tf.saturate_cast(x[:2], tf.int8)).tolist() == [127, -128]
    assert run(tf.saturate_cast(tf.constant([3e9, -3e9]), tf.int32)).tolist() == [2147483520, -(2**31)]


def test_cast_of_complex_and_bool():
    z = tf.constant([1 + 2j, 1j])
    assert run(tf.cast(z, tf.float32)).tolist() == [1.0, 0.0]
    assert run(tf.cast(z, tf.bool)).tolist() == [True, False]
    assert run(tf.cast(tf.constant([True, False]), tf.complex64)).tolist() == [1, 0]


def test_cast_to_and_from_strings_is_refused():
    with pytest.raises(tf.errors.UnimplementedError, match="Cast string to int32 is not supported"):
        run(tf.cast(tf.constant(["1"]), tf.int32))


def test_truncating_cast_cuts_instead_of_rounding():
    x = tf.constant([1.999999, -1.999999], tf.float32)
    assert run(tf.raw_ops.Cast(x=x, DstT=tf.bfloat16, Truncate=True)).astype(np.float32).tolist() == [1.9921875, -1.9921875]
    assert run(tf.cast(x, tf.bfloat16)).astype(np.float32).tolist() == [2.0, -2.0]


def test_shifts_are_clamped():
    x, y = tf.constant([1, 1, -1], tf.int8), tf.constant([-1, 9, 3], tf.int8)
    assert run(tf.bitwise.left_shift(x, y)).tolist() == [1, -128, -8]
    assert run(tf.bitwise.right_shift(tf.constant([-128], tf.int8), tf.constant([9], tf.int8))).tolist() == [-1]


def test_population_count_of_negative_numbers():
    assert run(tf.raw_ops.PopulationCount(x=tf.constant([-1, 1, 0], tf.int16))).tolist() == [16, 1, 0]


def test_no_nan_family():
    x, y = tf.constant([1.0, np.inf, 0.0, np.nan]), tf.constant([0.0, 0.0, 0.0, 0.0])
    assert run(tf.div_no_nan(x, y)).tolist() == [0, 0, 0, 0]
    assert run(tf.math.multiply_no_nan(x, y)).tolist() == [0, 0, 0, 0]
    assert run(tf.math.xlogy(y, y)).tolist() == [0, 0, 0, 0]
    assert run(tf.math.reciprocal_no_nan(tf.constant([2.0, 0.0]))).tolist() == [0.5, 0]


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_narrow_floats_round_once(dtype):
    # 1/3 rounded to the type and 1 - that: two roundings would differ in the last bit.
    x = tf.cast(tf.constant([0.1, 3.0, -7.0]), dtype)
    want = (1 / (1 + np.exp(-run(tf.cast(x, tf.float32))))).astype(dtype.as_numpy_dtype)
    assert (run(tf.sigmoid(x)) == want).all()


def test_scalars_stay_numpy_scalars_or_arrays():
    value = run(tf.constant(2.0) * 3.0)
    assert value.dtype == np.float32 and value == 6.0


def test_broadcast_gradients_are_summed():
    x, y = tf.placeholder(tf.float32, [2, 1, 3]), tf.placeholder(tf.float32, [4, 1])
    dx, dy = tf.gradients(x * y, [x, y])
    a, b = np.ones((2, 1, 3), np.float32), np.arange(4, dtype=np.float32).reshape(4, 1)
    got = run([dx, dy], {x: a, y: b})
    assert got[0].shape == a.shape and (got[0] == 6).all()
    assert got[1].shape == b.shape and (got[1] == 6).all()


def test_equal_static_shapes_need_no_reduction():
    x, y = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.float32, [3])
    tf.gradients(x * y, [x, y])
    assert not [op for op in tf.get_default_graph().get_operations() if op.type in ("BroadcastGradientArgs", "Sum")]


def test_second_derivatives():
    x = tf.constant(1.3)
    functions = {tf.tanh: lambda v: -2 * np.tanh(v) / np.cosh(v) ** 2, tf.sqrt: lambda v: -0.25 * v**-1.5, tf.rsqrt: lambda v: 0.75 * v**-2.5, tf.reciprocal: lambda v: 2 * v**-3}
    for function, want in functions.items():
        first = tf.gradients(function(x), x)[0]
        assert run(tf.gradients(first, x)[0]) == pytest.approx(want(1.3), rel=1e-5)


def test_pow_gradient_at_zero_has_no_nan():
    x, y = tf.constant([0.0, 2.0]), tf.constant([2.0, 3.0])
    dx, dy = run(tf.gradients(tf.pow(x, y), [x, y]))
    assert dx.tolist() == [0.0, 12.0]
    assert np.allclose(dy, [0.0, 8 * np.log(2.0)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("times", [1, 300])
def test_a_remainder_of_zero_has_the_sign_of_the_dividend(dtype, times):
    x, y = (np.tile(np.array(v, getattr(tf, dtype).as_numpy_dtype), times) for v in ([0.0, -0.0, -6.0, 6.0, -5.0, 5.0], [1.0, 1.0, 2.0, -2.0, 3.0, -3.0]))
    got = run(tf.floormod(tf.constant(x), tf.constant(y))).astype(np.float64)[:6]
    np.testing.assert_array_equal(got, [0, 0, 0, 0, 1, -1])
    np.testing.assert_array_equal(np.signbit(got[:4]), [False, True, True, False])


@pytest.mark.parametrize("times", [1, 300])
def test_a_quotient_of_a_narrow_type_is_rounded_before_its_floor_is_taken(times):
    for dtype, x, y, expected in ((tf.float16, [93.4, 34.1, 66.8], [-1.004, 0.3376, -0.1936], [-93, 101, -345]), (tf.bfloat16, [10.125, 19.75], [-0.458984, 0.0830078], [-22, 238])):
        x, y = (np.tile(np.array(v, dtype.as_numpy_dtype), times) for v in (x, y))
        np.testing.assert_array_equal(run(tf.floordiv(tf.constant(x), tf.constant(y))).astype(np.float64)[: len(expected)], expected)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("n", [1, 63, 64, 1003])
def test_powers_of_whole_numbers_wrap_as_numpys(dtype, n):
    random = np.random.RandomState(n)
    x, y = random.randint(-100, 100, n).astype(dtype), random.randint(0, 60, n).astype(dtype)
    y[0] = 0
    z = pow_kernel(x, y)
    assert z.dtype == dtype
    np.testing.assert_array_equal(z, np.power(x, y))
    for exponent in (0, 1, 2, 3, 7, 30):
        same = pow_kernel(x, np.array(exponent, dtype))
        assert same.dtype == dtype and same is not x
        np.testing.assert_array_equal(same, np.power(x, dtype(exponent)))
