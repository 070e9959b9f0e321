"""Special functions against values computed with 30 digits."""

import numpy as np
import pytest

import penstock as tf
from penstock.ops import native
from penstock.ops.kernels.numeric import NARROW
from penstock.ops.native.maths import power_of_single
from penstock.ops.special import erf_kernel, unary

ONE = {
    "Erf": ([-3.5, -0.3, 0.7, 2.5], [-0.9999992569016276, -0.3286267594591274, 0.6778011938374184, 0.999593047982555]),
    "Erfc": ([-3.5, 0.3, 5, 20], [1.9999992569016276, 0.6713732405408726, 1.537459794428035e-12, 5.395865611607901e-176]),
    "Erfinv": ([-0.75, 0.125, 0.6875], [-0.8134198475976185, 0.11123545184094996, 0.7141708976081284]),
    "Lgamma": ([-1.5, 0.1, 3.7, 50.5], [0.860047015376481, 2.252712651734206, 1.428072326665388, 146.51925549072064]),
    "Digamma": ([-1.5, 0.1, 3.7, 50.5], [0.7031566406452432, -10.423754940411076, 1.1671535393615113, 3.912039670928392]),
    "BesselJ0": ([0.5, 5, 12.5], [0.9384698072408129, -0.1775967713143383, 0.1468840547004211]),
    "BesselJ1": ([0.5, 5, 12.5], [0.2422684576748739, -0.32757913759146523, -0.16548380461475973]),
    "BesselY0": ([0.5, 5, 12.5], [-0.44451873350670656, -0.30851762524903376, -0.1712143068446693]),
    "BesselY1": ([0.5, 5, 12.5], [-1.471472392670243, 0.14786314339122683, -0.1538382565375012]),
    "BesselI0": ([0.5, 5, 12.5], [1.0634833707413236, 27.239871823604446, 30596.335155785153]),
    "BesselI1": ([0.5, 5, 12.5], [0.2578943053908963, 24.335642142450528, 29345.74964207113]),
    "BesselK0": ([0.5, 5, 12.5], [0.9244190712276659, 0.0036910983340425942, 1.3084036967769775e-06]),
    "BesselK1": ([0.5, 5, 12.5], [1.656441120003301, 0.004044613445452165, 1.3597678438215176e-06]),
    "Dawsn": ([0.5, 3, 9], [0.4244363835020223, 0.1782710306105583, 0.05590504672435046]),
    "Expint": ([0.5, 3, 30, 70], [0.4542199048631736, 9.933832570625416, 368973209407.2742, 3.6463527595797357e28]),
    "FresnelCos": ([0.5, 3, 9], [0.4923442258714464, 0.6057207892976856, 0.5353661274681198]),
    "FresnelSin": ([0.5, 3, 9], [0.06473243285999927, 0.496312998967375, 0.4998610456296849]),
    "Spence": ([0.1, 0.9, 1.7, 8], [1.2997147230049586, 0.1026177910993911, -0.6051584023377052, -3.4001620444283867]),
}
SEVERAL = {
    "Igamma": ([[0.5, 3, 100, 2], [0.2, 4, 90, 30]], [0.4729107431344619, 0.7618966944464557, 0.15822098918643016, 0.9999999999970991]),
    "Igammac": ([[0.5, 3, 100, 2], [0.2, 4, 90, 30]], [0.5270892568655381, 0.23810330555354434, 0.8417790108135699, 2.900863120340454e-12]),
    "IgammaGradA": ([[0.5, 3, 100, 2], [0.2, 4, 90, 30]], [-0.8201614064863388, -0.17824735787332882, -0.02461191684397991, -8.736566345616549e-12]),
    "Betainc": ([[0.5, 3, 100, 2], [0.5, 4, 90, 30], [0.3, 0.8, 0.5, 0.01]], [0.36901011956554536, 0.98304, 0.23353963193704325, 0.03838951459523545]),
    "Zeta": ([[1.5, 3, 10, 2], [1, 0.2, 5, -1.5]], [2.612375348685488, 125.73901805721795, 1.2386569324880045e-07, 9.379246644989124]),
    "Polygamma": ([[1, 2, 5], [0.5, 3, 1.2]], [4.934802200544679, -0.15411380631918858, 41.38967841777252]),
}


def evaluate(name, args, dtype):
    op = getattr(tf.raw_ops, name)
    with tf.Session() as sess:
        return sess.run(op(*[tf.constant(a, dtype) for a in args]))


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_argument(name):
    x, want = ONE[name]
    assert np.allclose(evaluate(name, [x], tf.float64), want, rtol=2e-14, atol=0)
    assert np.allclose(evaluate(name, [x], tf.float32), np.array(want, np.float32), rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("name", SEVERAL)
def test_functions_of_several_arguments(name):
    args, want = SEVERAL[name]
    assert np.allclose(evaluate(name, args, tf.float64), want, rtol=2e-13, atol=0)


def test_ends_of_the_domain():
    with tf.Session() as sess:
        assert sess.run(tf.math.erfinv(tf.constant([-1.0, 1.0, 2.0]))).tolist()[:2] == [-np.inf, np.inf]
        assert sess.run(tf.math.ndtri(tf.constant([0.0, 1.0], tf.float64))).tolist() == [-np.inf, np.inf]
        assert sess.run(tf.lgamma(tf.constant([0.0, -1.0, -2.0, np.inf]))).tolist() == [np.inf] * 4
        assert sess.run(tf.erf(tf.constant([-np.inf, np.inf, 0.0]))).tolist() == [-1, 1, 0]
        assert np.isnan(sess.run(tf.igamma(tf.constant([-1.0, 1.0]), tf.constant([1.0, -1.0])))).all()
        assert sess.run(tf.igamma(tf.constant([2.0, 2.0]), tf.constant([0.0, np.inf]))).tolist() == [0, 1]


def test_float32_erf_stays_within_one():
    x = np.linspace(-6, 6, 10001, dtype=np.float32)
    with tf.Session() as sess:
        y = sess.run(tf.erf(tf.constant(x)))
        exact = sess.run(tf.erf(tf.constant(x, tf.float64)))
    assert np.abs(y).max() <= 1 and np.abs(y - exact).max() < 5e-7


def test_large_parameters_converge():
    assert evaluate("Igamma", [[1e6], [1e6]], tf.float64)[0] == pytest.approx(0.500132980, rel=1e-8)
    assert evaluate("Betainc", [[1e5], [1e5], [0.5]], tf.float64)[0] == pytest.approx(0.5, rel=1e-9)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", sorted(NARROW, key=str), ids=str)
def test_every_half_is_computed_as_in_single_or_double_precision_and_rounded(dtype):
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    wide = x.astype(np.float32)
    is_number = ~np.isnan(wide)
    root = lambda v: np.sqrt(np.abs(v) + 1)  # noqa: E731
    for kernel, precise in ((erf_kernel, lambda v: erf_kernel(v.astype(np.float64)).astype(np.float32)), (unary(root), root), (unary(root, root), root)):
        got, want = kernel(x), precise(wide).astype(dtype)
        assert got.dtype == dtype and np.isnan(got[~is_number].astype(np.float32)).all()
        np.testing.assert_array_equal(got[is_number].view(np.uint16), want[is_number].view(np.uint16))
        np.testing.assert_array_equal(kernel(x.reshape(256, 256).T)[:3, 1::7].view(np.uint16), got.reshape(256, 256).T[:3, 1::7].view(np.uint16))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.skipif(not native.available(), reason="no machine code here")
@pytest.mark.parametrize("exponent", [-0.6, -10.3, 0.37, -1000.2])
def test_powers_for_single_precision(exponent):
    """All but the last bit of a single, over the whole range; zero, infinity and NaN as NumPy has them."""
    x = np.exp(np.linspace(-80, 80, 10_001) / abs(exponent)).clip(1e-37, 3e38).astype(np.float32)
    x[:5] = 0, np.inf, np.nan, -1, 1e-45
    got = native.Loop(lambda x: power_of_single(x, exponent), "f64").run(x)
    assert got is not None
    want = x.astype(np.float64) ** exponent
    np.testing.assert_array_equal(got[:5], want[:5].astype(np.float32))
    assert (np.abs(got[5:] - want[5:]) <= 0.6 * np.spacing(np.abs(want[5:].astype(np.float32)))).all()
