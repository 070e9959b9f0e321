"""Complex numbers: the loops give what the formulas give in double precision, and what NumPy gives where numbers are special."""

import numpy as np
import pytest

import penstock as tf
from penstock.engines import complexes
from penstock.ops import native

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.skipif(not native.available(), reason="no machine code here")]

FUNCTIONS = {"Exp": (tf.exp, np.exp), "RealDiv": (tf.divide, np.true_divide), "Sqrt": (tf.sqrt, np.sqrt), "Tanh": (tf.tanh, np.tanh)}
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 100, -100, np.pi / 2, 1e7, 1e-30, 88.9, 60, -60], np.float32)


def random(*shape, seed=0, scale=1.0):
    random = np.random.RandomState(seed)
    return (scale * (random.randn(*shape) + 1j * random.randn(*shape))).astype(np.complex64)


def arguments(name, x):
    return (x, random(*x.shape, seed=7)) if name == "RealDiv" else (x,)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 20.0])
@pytest.mark.parametrize("shape", [(521,), (33, 31), (8, 125, 100)])
def test_each_part_is_rounded_once(name, scale, shape):
    build, exact = FUNCTIONS[name]
    given = arguments(name, random(*shape, scale=scale))
    with tf.Session() as sess, np.errstate(all="ignore"):
        got, want = sess.run(build(*map(tf.constant, given))), exact(*(x.astype(np.complex128) for x in given))
    assert got.dtype == np.complex64
    for part in (np.real, np.imag):
        here, there = part(got), part(want)
        near = np.abs(there).astype(np.float32)
        is_normal = np.isfinite(near) & (near > 1e-37)
        assert (np.abs(here - there)[is_normal] <= 0.501 * np.spacing(near[is_normal])).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_numbers_are_as_before(name):
    compute = FUNCTIONS[name][1]
    x = np.empty(SPECIAL.size**2, np.complex64)
    x.real, x.imag = np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)
    given = (np.repeat(x, 7), np.tile(x[::41], x.size)) if name == "RealDiv" else (np.tile(x, 3),)
    given = tuple(v[: min(map(len, given))] for v in given)
    with np.errstate(all="ignore"):
        got, want = complexes.computed(name, compute, *given), compute(*given)
        strange = ~np.logical_and.reduce([np.isfinite(v) for v in given])
    np.testing.assert_array_equal(got[strange].view(np.uint32), want[strange].view(np.uint32))
    if name != "RealDiv":  # sums of the C library's quotients lose what is small
        for here, there in ((got.real, want.real), (got.imag, want.imag)):
            np.testing.assert_array_equal(np.isnan(here), np.isnan(there))
            same = ~np.isnan(here)
            np.testing.assert_array_equal(np.signbit(here[same]), np.signbit(there[same]))
            np.testing.assert_allclose(here[same], there[same], rtol=2e-5, atol=1e-44)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_views_and_other_shapes(name):
    build, compute = FUNCTIONS[name]
    x = random(60, 40)
    for view in (x.T, x[::2, ::-1], x[:0], x[:1, :1]):
        given = arguments(name, view)
        places = [tf.placeholder(tf.complex64) for _ in given]
        with tf.Session() as sess, np.errstate(all="ignore"):
            np.testing.assert_allclose(sess.run(build(*places), dict(zip(places, given, strict=True))), compute(*given), rtol=1e-5, atol=1e-6)


def test_quotients_by_zero_and_of_rows():
    x, zero = random(1000), np.zeros(1000, np.complex64)
    row = random(1, 40, seed=3)
    with tf.Session() as sess, np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.isnan(sess.run(tf.divide(tf.constant(x), zero))), np.isnan(x / zero))
        np.testing.assert_allclose(sess.run(tf.divide(tf.constant(x.reshape(25, 40)), row)), x.reshape(25, 40) / row, rtol=1e-5)
