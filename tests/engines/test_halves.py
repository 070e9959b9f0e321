"""Half precision: the loops give what NumPy gives."""

import numpy as np
import pytest

import penstock as tf
from penstock.ops import native

RANDOM = np.random.RandomState(0)
X, Y = (RANDOM.randn(40, 50) * 3).astype(np.float16), RANDOM.randn(40, 50).astype(np.float16)
X[0, :4] = np.nan, np.inf, 1, 60000
Y[0, :4] = 1, np.inf, 0, 2

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(("build", "compute"), [
    (tf.add, np.add), (tf.subtract, np.subtract), (tf.multiply, np.multiply), (tf.divide, np.divide), (tf.maximum, np.maximum), (tf.minimum, np.minimum),
    (tf.less, np.less), (tf.equal, np.equal), (lambda x, y: x + y[0], lambda x, y: x + y[0]), (lambda x, y: x * 3, lambda x, y: x * np.float16(3)),
    (lambda x, y: x[:, :1] + y, lambda x, y: x[:, :1] + y), (lambda x, y: tf.nn.bias_add(x, y[1]), lambda x, y: x + y[1]),
    (lambda x, y: tf.sqrt(x), lambda x, y: np.sqrt(x)), (lambda x, y: tf.square(x), lambda x, y: np.square(x)), (lambda x, y: -x, lambda x, y: -x),
    (lambda x, y: tf.nn.relu(x), lambda x, y: np.maximum(x, np.float16(0))), (lambda x, y: tf.reduce_max(x, 1), lambda x, y: x.max(1)),
    (lambda x, y: tf.argmax(y, 1), lambda x, y: y.argmax(1)), (lambda x, y: tf.cast(x, tf.float32), lambda x, y: x.astype(np.float32)),
])  # fmt: skip
def test_same_bits_as_numpy(build, compute):
    x, y = (tf.placeholder(tf.float16, [40, 50]) for _ in range(2))
    with tf.Session() as sess, np.errstate(all="ignore"):
        got, want = sess.run(build(x, y), {x: X, y: Y}), compute(X, Y)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


NAMES = {
    "Ceil": np.ceil, "Exp": np.exp, "Expm1": np.expm1, "Floor": np.floor, "Inv": np.reciprocal, "Log": np.log, "Log1p": np.log1p, "Neg": np.negative,
    "Reciprocal": np.reciprocal, "Rint": np.rint, "Rsqrt": lambda x: 1 / np.sqrt(x), "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Sign": np.sign, "Sqrt": np.sqrt, "Square": np.square,
    "Tanh": np.tanh, "IsNan": np.isnan, "IsInf": np.isinf, "IsFinite": np.isfinite, "Sin": np.sin, "Atan": np.arctan, "Relu6": lambda x: np.clip(x, 0, 6),
    "Softsign": lambda x: x / (1 + abs(x)), "LeakyRelu": lambda x: np.where(x > 0, x, x * np.float32(0.2)), "Softplus": lambda x: np.logaddexp(x, 0),
}  # fmt: skip
PAIRS = {
    "Sub": np.subtract, "RealDiv": np.divide, "Maximum": np.maximum, "DivNoNan": lambda x, y: np.where(y == 0, 0, x / y), "MulNoNan": lambda x, y: np.where(y == 0, 0, x * y),
    "Less": np.less, "GreaterEqual": np.greater_equal, "Equal": np.equal, "NotEqual": np.not_equal,
}  # fmt: skip
GRADIENTS = {
    "ReluGrad": lambda dy, x: dy * (x > 0), "Relu6Grad": lambda dy, x: dy * ((x > 0) & (x < 6)), "EluGrad": lambda dy, y: np.where(y < 0, (y + 1) * dy, dy),
    "LeakyReluGrad": lambda dy, x: np.where(x > 0, dy, dy * np.float32(0.2)), "SoftplusGrad": lambda dy, x: dy / (1 + np.exp(-x)),
    "SigmoidGrad": lambda y, dy: dy * y * (1 - y), "TanhGrad": lambda y, dy: dy * (1 - y * y), "SqrtGrad": lambda y, dy: dy * np.float32(0.5) / y,
    "RsqrtGrad": lambda y, dy: dy * np.float32(-0.5) * y * y * y, "ReciprocalGrad": lambda y, dy: -dy * y * y,
}  # fmt: skip
ARGUMENTS = {1: (("x",), ("features",)), 2: (("x", "y"), ("gradients", "features"), ("gradients", "outputs"), ("y", "dy"))}


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
@pytest.mark.parametrize("name", [*NAMES, *PAIRS, *GRADIENTS])
def test_one_rounding(name, dtype):
    """What float32 gives, rounded once; exponentials may fall on the other side of a number halfway between two."""
    compute = {**NAMES, **PAIRS, **GRADIENTS}[name]
    inputs = (X, Y)[: 1 if name in NAMES else 2]
    for given in ARGUMENTS[len(inputs)]:
        try:
            x = [tf.placeholder(dtype, [40, 50]) for _ in inputs]
            y = getattr(tf.raw_ops, name)(**dict(zip(given, x, strict=True)))
            break
        except TypeError:
            continue
    values = [v.astype(dtype.as_numpy_dtype) for v in inputs]
    with tf.Session() as sess, np.errstate(all="ignore"):
        got = sess.run(y, dict(zip(x, values, strict=True)))
        want = np.asarray(compute(*(v.astype(np.float32) for v in values)))
    assert got.dtype == (np.bool_ if want.dtype == bool else dtype.as_numpy_dtype)
    if want.dtype == bool:
        np.testing.assert_array_equal(got, want)
        return
    want = want.astype(dtype.as_numpy_dtype).astype(np.float32)
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=2e-3 if dtype == tf.float16 else 1e-2, atol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_squared_differences_are_rounded_twice(dtype):
    x, y = X.astype(dtype.as_numpy_dtype), Y.astype(dtype.as_numpy_dtype)
    with tf.Session() as sess, np.errstate(all="ignore"):
        got = sess.run(tf.squared_difference(x, y))
        np.testing.assert_array_equal(got.astype(np.float32), np.square(x - y).astype(np.float32))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_sums_of_several(dtype):
    values = [v.astype(dtype.as_numpy_dtype) for v in (X, Y, Y)]
    with tf.Session() as sess, np.errstate(all="ignore"):
        got = sess.run(tf.add_n([tf.constant(v) for v in values]))
        want = sum(v.astype(np.float32) for v in values).astype(dtype.as_numpy_dtype)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("source", [np.float64, np.int32, np.int64, np.float16, tf.bfloat16.as_numpy_dtype, np.bool_])
@pytest.mark.parametrize("target", [tf.float16, tf.bfloat16, tf.float64, tf.bool])
def test_conversions_go_by_way_of_singles(source, target):
    x = np.concatenate([np.linspace(-70000, 70000, 3000), [0.0, 1 + 2**-11 + 2**-40, 1 + 2**-8 + 2**-40]]).astype(source)
    with tf.Session() as sess, np.errstate(all="ignore"):
        got = sess.run(tf.cast(tf.constant(x), target))
        want = (x if target in (tf.float64, tf.bool) else x.astype(np.float32)).astype(target.as_numpy_dtype)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_gradients_of_other_shapes_are_refused():
    dy, x = tf.placeholder(tf.float16), tf.placeholder(tf.float16)
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError):
        sess.run(tf.raw_ops.ReluGrad(gradients=dy, features=x), {dy: np.zeros((40, 50), np.float16), x: np.zeros(50, np.float16)})


def test_gradient_of_relu():
    x = tf.placeholder(tf.float16, [40, 50])
    with tf.Session() as sess:
        np.testing.assert_array_equal(sess.run(tf.gradients(tf.nn.relu(x), x), {x: Y})[0], (Y > 0).astype(np.float16))


@pytest.mark.parametrize("shape", [(40, 64), (3, 40, 64)])
def test_products_are_summed_in_single_precision(shape):
    x = tf.placeholder(tf.float16, shape)
    value = RANDOM.randn(*shape).astype(np.float16)
    with tf.Session() as sess:
        got = sess.run(tf.matmul(x, x, transpose_b=True), {x: value})
    wide = value.astype(np.float32)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(np.float32), wide @ np.swapaxes(wide, -1, -2), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
@pytest.mark.parametrize("shapes", [((40, 50), (40, 1)), ((40, 1), (1, 50)), ((50,), (7, 1, 50)), ((3, 4, 50), (3, 1, 50)), ((40, 50), (1, 1)), ((0, 50), (40, 1, 1)), ((2, 700), (2, 1))])
def test_shapes_are_broadcast(shapes, dtype):
    x, y = (np.random.RandomState(i).randn(*s).astype(dtype.as_numpy_dtype) for i, s in enumerate(shapes))
    if x.size:
        x.flat[0], y.flat[0] = np.nan, np.inf
    a, b = tf.placeholder(dtype), tf.placeholder(dtype)
    functions = {tf.add: np.add, tf.subtract: np.subtract, tf.multiply: np.multiply, tf.divide: np.divide, tf.maximum: np.maximum, tf.less: np.less, tf.not_equal: np.not_equal}
    with tf.Session() as sess, np.errstate(all="ignore"):
        for function, ufunc in functions.items():
            for _ in range(2):
                got = sess.run(function(a, b), {a: x, b: y})
            want = ufunc(x.astype(np.float32), y.astype(np.float32))
            want = want if want.dtype == bool else want.astype(x.dtype)
            assert got.dtype == want.dtype and got.shape == want.shape
            np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


def test_shapes_that_do_not_fit_are_refused_as_ever():
    x = tf.placeholder(tf.float16)
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes"):
        sess.run(x + tf.zeros([3, 1000], tf.float16), {x: np.zeros((2, 1000), np.float16)})
    x = tf.placeholder(tf.bfloat16)
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes"):
        sess.run(x * tf.zeros([3, 100000], tf.bfloat16), {x: np.zeros((2, 100000), tf.bfloat16.as_numpy_dtype)})


def test_who_computes():
    from penstock.graph import bind

    with tf.Graph().as_default():
        total = tf.placeholder(tf.float16, [4]) + 1
    engine = getattr(bind.bind(total.op).fn, "engine", None)
    assert engine == ("native" if native.available() else None)
