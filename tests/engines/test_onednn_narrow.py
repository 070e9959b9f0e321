"""Elementwise ops on bfloat16 through oneDNN: bit for bit what float32 gives, rounded once."""

import ml_dtypes
import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import library as lib
from penstock.engines.onednn import narrow

library = lib.get()
pytestmark = pytest.mark.skipif(library is None or not library.has_bf16, reason="needs oneDNN and instructions for bfloat16")

BF16 = ml_dtypes.bfloat16
ONE = np.float32(1)


def array(*shape, seed=0):
    x = (np.random.default_rng(seed).standard_normal(shape) * 4).astype(BF16)
    if not seed:
        x.ravel()[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30]
    return x


def exact(x):
    return np.asarray(x).astype(np.float32)


@pytest.fixture
def passes(monkeypatch):
    """How many arrays oneDNN made."""
    made = []
    for kind in (narrow.Pass, narrow.Cast):
        real = kind.run
        monkeypatch.setattr(kind, "run", lambda self, *args, _real=real, **more: made.append(1) or _real(self, *args, **more))
    return made


X, Y, ROW, NUMBER = array(32, 8, 64), array(32, 8, 64, seed=1), array(64, seed=2), array(1, seed=3)
UNARY = {
    "Abs": np.abs, "Neg": np.negative, "Relu": lambda x: np.maximum(x, 0), "Sigmoid": lambda x: ONE / (ONE + np.exp(-x)), "Sqrt": np.sqrt,
    "Square": np.square, "Tanh": np.tanh,
}  # fmt: skip
BINARY = {"Add": np.add, "AddV2": np.add, "Mul": np.multiply, "RealDiv": np.divide, "Sub": np.subtract}
GRADIENTS = {
    "ReluGrad": lambda dy, x: np.where(x > 0, dy, dy * 0), "SigmoidGrad": lambda y, dy: dy * (y - y * y), "TanhGrad": lambda y, dy: dy * (ONE - y * y),
}  # fmt: skip


def check(name, inputs, formula, **attrs):
    names = {"SigmoidGrad": ("y", "dy"), "TanhGrad": ("y", "dy"), "ReluGrad": ("gradients", "features"), "Relu": ("features",), "BiasAdd": ("value", "bias")}
    with tf.Graph().as_default():
        feeds = {tf.placeholder(tf.bfloat16, x.shape): x for x in inputs}
        out = getattr(tf.raw_ops, name)(**dict(zip(names.get(name, ("x", "y")), feeds, strict=False)), **attrs)
        with tf.Session() as sess:
            found = sess.run(out, feeds)
    with np.errstate(all="ignore"):
        wanted = formula(*map(exact, inputs)).astype(BF16)
    assert found.dtype == BF16
    np.testing.assert_array_equal(exact(found), exact(wanted))


@pytest.mark.parametrize("name", UNARY)
def test_of_one_array(name, passes):
    check(name, [X], UNARY[name])
    assert passes


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(("first", "second"), [(X, Y), (X, ROW), (X, NUMBER), (X[..., ::2], Y[..., ::2])])
def test_of_two_arrays(name, first, second, passes):
    check(name, [first, second], BINARY[name])
    assert passes


@pytest.mark.parametrize("name", BINARY)
def test_a_row_first(name, passes):
    check(name, [ROW, X], BINARY[name])
    assert bool(passes) == (name in ("Add", "AddV2", "Mul"))


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, passes):
    check(name, [Y, X] if name == "ReluGrad" else [X, Y], GRADIENTS[name])
    assert passes


def test_bias_add(passes):
    check("BiasAdd", [X, ROW], np.add)
    assert passes


def test_other_broadcasts_and_small_arrays_are_left(passes):
    check("Mul", [X, Y[:, :1]], np.multiply)
    check("Tanh", [X[0]], np.tanh)
    check("Tanh", [X[:0]], np.tanh)
    assert not passes


@pytest.mark.parametrize("name", BINARY)
def test_a_number_that_is_no_array(name, passes):
    """Reductions over everything give NumPy scalars, which have no address."""
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.bfloat16, [None])
        y = getattr(tf.raw_ops, name)(x=x, y=tf.reduce_max(x))
        values = array(8192, seed=1)
        for _ in range(4):
            found = sess.run(y, {x: values})
    wanted = BINARY[name](exact(values), exact(values.max())).astype(BF16)
    np.testing.assert_array_equal(exact(found), exact(wanted))
    assert passes


def test_casts(passes):
    wide = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, wide.shape)
        there = tf.cast(x, tf.bfloat16)
        with tf.Session() as sess:
            narrow_, back = sess.run([there, tf.cast(there, tf.float32)], {x: wide})
    np.testing.assert_array_equal(exact(narrow_), exact(wide.astype(BF16)))
    np.testing.assert_array_equal(back, exact(narrow_))
    assert len(passes) == 2


def test_a_wrong_shape_is_numpys_error():
    with tf.Graph().as_default():
        a, b = tf.placeholder(tf.bfloat16), tf.placeholder(tf.bfloat16)
        with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes"):
            sess.run(a + b, {a: X, b: X[:, :3]})
