"""Loops in machine code against NumPy, element by element."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from penstock.ops import arithmetic, native, nn, philox
from penstock.ops.kernels import incomplete, numeric, samplers, special
from penstock.ops.native import products, shuffles, streams, vectors
from penstock.ops.native import rows as row_loops
from penstock.ops.native.vectors import Trace

pytestmark = [pytest.mark.skipif(not native.available(), reason="no AVX-512"), pytest.mark.filterwarnings("ignore")]

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 5e-324, 1e-310, 1e308, 709.7, 709.9, -745.1, -746.0])
RANDOM = np.random.RandomState(0)


def ulps(got, want):
    """How far apart, in units of the last place of what is wanted; infinite where only one is NaN."""
    with np.errstate(all="ignore"):
        apart = np.abs(got - want) / np.spacing(np.abs(want))
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0, np.where(np.isnan(apart), np.inf, apart))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 17, 40])
def test_every_length_and_nothing_beyond(n, dtype):
    whole = np.full(n + 64, 7, dtype)
    x = RANDOM.randn(n).astype(dtype)
    function, _ = native.Loop(lambda x: x * 2 + 1, "same")._make((np.dtype(dtype),))
    function(n, x.ctypes.data, whole.ctypes.data)
    np.testing.assert_array_equal(whole[:n], (x.astype(np.float64) * 2 + 1).astype(dtype))
    assert (whole[n:] == 7).all()


@pytest.mark.parametrize(("function", "x", "most"), [
    (np.exp, RANDOM.randn(3000) * 200, 2), (np.expm1, RANDOM.randn(3000) * 3, 2), (np.log, np.exp(RANDOM.randn(3000) * 50), 2),
    (np.log, 1 + RANDOM.randn(3000) * 1e-3, 2), (np.log1p, RANDOM.rand(3000) - 0.5, 2), (np.sqrt, RANDOM.rand(1000), 0),
    (np.floor, RANDOM.randn(1000) * 9, 0), (np.rint, RANDOM.randn(1000) * 9, 0), (np.trunc, RANDOM.randn(1000) * 9, 0), (np.sign, RANDOM.randn(1000), 0),
    (np.abs, RANDOM.randn(1000), 0), (np.negative, RANDOM.randn(1000), 0), (np.square, RANDOM.randn(1000), 0),
], ids=lambda v: getattr(v, "__name__", ""))  # fmt: skip
def test_functions_of_numpy(function, x, most):
    x = np.concatenate([x, SPECIAL])
    got = native.Loop(function).run(x)
    if function in (np.log, np.sqrt):  # the logarithm of -0 has no sign worth keeping
        x, got = x[x != 0], got[x != 0]
    with np.errstate(all="ignore"):
        assert ulps(got, function(x)).max() <= most


@pytest.mark.parametrize("function", [np.sin, np.cos])
def test_waves(function):
    x = np.concatenate([RANDOM.randn(3000) * 10, RANDOM.randn(3000) * 1e6])
    assert np.abs(native.Loop(function).run(x) - function(x)).max() < 3e-16


def test_powers():
    x, y = np.concatenate([RANDOM.rand(2000) * 50, [0, 1, 2, -2, -2, 3]]), np.concatenate([RANDOM.randn(2000) * 80, [-1, np.inf, 0, 3, -4, 5]])
    with np.errstate(all="ignore"):
        assert ulps(native.Loop(np.power).run(x, y), np.power(x, y)).max() <= 3


def test_more_values_than_registers():
    def formula(x):
        parts = [x * float(i) for i in range(60)]
        masks = [x > i / 20 for i in range(20)]
        total = x.like(0.0) if isinstance(x, vectors.Vec) else np.zeros_like(x)
        for part in reversed(parts):
            total = total + part
        for i, mask in enumerate(reversed(masks)):
            total = np.where(mask, total + i, total)
        return total

    x = RANDOM.rand(100)
    np.testing.assert_allclose(native.Loop(formula, fuse=False).run(x), formula(x), rtol=1e-13)


def test_branches_and_loops_leave_other_lanes_alone():
    def formula(x):
        def steps(x):
            return special.repeat(lambda n, v: v < 100, lambda n, v: (n + 1, v * 2), np.zeros_like(x), x)[0]

        return special.piecewise(x, (x > 0, lambda v: special.piecewise(v, (v > 1, steps), (v <= 1, lambda w: -w))), (x < 0, lambda v: v * v))

    x = np.concatenate([RANDOM.randn(501), [0.0]])
    np.testing.assert_array_equal(native.Loop(formula).run(x), formula(x))


def test_what_is_computed_twice_is_computed_once():
    trace = Trace()
    x = trace.add("input", [], "f64", (0, "f64"))
    assert (np.exp(x) + np.exp(x)).node.inputs[0] is (np.exp(x) + 1).node.inputs[0]


def test_the_bytes_are_those_of_the_manual():
    from penstock.ops.native.assembler import R11, RAX, RSP, Assembler, Mem

    code = Assembler()
    code.vector("add.f64", 1, 2, 3)
    code.vector("mul.f32", 30, 17, Mem(RAX, 64, index=R11))
    code.vector("load.i64", 9, Mem(RSP, 128), mask=1, zero=True)
    code.mask("and", 1, 2, 3)
    assert code._code.hex() == (
        "62f1ed4858cb"  # vaddpd zmm1, zmm2, zmm3
        "6221744059b41840000000"  # vmulps zmm30, zmm17, [rax + r11 + 64], written with 32 bits
        "6271fec96f8c2480000000"  # vmovdqu64 zmm9{k1}{z}, [rsp + 128]
        "c5ec41cb"  # kandw k1, k2, k3
    )


# -- what is made of it -----------------------------------------------------------------------------------------------------


WIDE = np.concatenate([RANDOM.randn(600) * 2, RANDOM.randn(600) * 30, RANDOM.rand(300), 10.0 ** RANDOM.uniform(-10, 7, 300), np.arange(-9, 20), SPECIAL[:8]])


@pytest.mark.parametrize("name", [
    "erf", "erfc", "erfinv", "ndtri", "lgamma", "digamma", "i0e", "i1e", "i0", "i1", "k0", "k0e", "k1", "k1e", "j0", "j1", "y0", "y1", "dawsn", "expint",
    "fresnel_cos", "fresnel_sin", "spence",
])  # fmt: skip
def test_special_functions(name):
    function = getattr(special, name)
    x = np.tanh(WIDE) if name in ("erfinv", "ndtri") else WIDE
    with np.errstate(all="ignore"):
        want = function(x)
    got = native.Loop(function).run(x)
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("name", ["igamma", "igammac", "igamma_grad_a", "zeta", "betainc"])
def test_special_functions_of_several_arguments(name):
    function = getattr(incomplete, name)
    values = np.concatenate([RANDOM.rand(12) * 3, RANDOM.rand(8) * 30, [0, 1, 2, np.inf, -1, -0.5, np.nan, 10]])
    grid = [g.ravel() for g in np.meshgrid(values, values)]
    if name == "betainc":
        grid.append(np.resize(np.concatenate([RANDOM.rand(30), [0, 1, -1, 2]]), grid[0].shape))
    with np.errstate(all="ignore"):
        want = function(*grid)
    np.testing.assert_allclose(native.Loop(function).run(*grid), want, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("function", [nn.elu, nn.selu, nn.softsign])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activations(function, dtype):
    x = np.concatenate([RANDOM.randn(999), SPECIAL, [-1e-8, -50, -200]]).astype(dtype)
    with np.errstate(all="ignore"):
        assert ulps(function(x), function.__wrapped__(x)).max() <= 3


@pytest.mark.parametrize("counter", [5, (1 << 64) - 300, (7 << 64) | (1 << 32) - 5])
@pytest.mark.parametrize("n", [1, 31, 33, 100, 5000])
def test_random_numbers_are_the_same_bit_for_bit(n, counter, monkeypatch):
    gen = philox.Philox(0x123456789ABCDEF0, counter)
    kinds = [np.dtype(t) for t in (np.float16, philox.BFLOAT16, np.float32, np.float64)]
    draws = [lambda f=f, t=t: f(gen, (n,), t) for f, t in itertools.product((philox.uniform, philox.normal, philox.truncated_normal), kinds)]
    draws += [lambda t=t: philox.uniform_int(gen, (n,), -5, 77, np.dtype(t)) for t in (np.int32, np.int64)]
    draws += [lambda: philox.full_int(gen, (n,), np.dtype(np.uint64)), lambda: gen.words(n)]
    by_loop = [draw() for draw in draws]
    monkeypatch.setattr(streams, "can_fill", lambda *args: False)
    for got, draw in zip(by_loop, draws, strict=True):
        np.testing.assert_array_equal(got, draw())


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("width", [1, 3, 8, 16, 17, 100])
def test_rows_into_rows(width, dtype):
    rows = (RANDOM.randn(300, width) * 5).astype(dtype)
    start = (RANDOM.randn(20, width) * 3).astype(dtype)
    ids = RANDOM.randint(0, 20, 300)
    if np.dtype(dtype).kind == "f":
        rows[3, 0] = start[4, 0] = np.nan
    for ufunc in (np.add, np.subtract, np.multiply, np.maximum, np.minimum):
        for places, fold in ((ids, row_loops.fold), (np.sort(ids), row_loops.fold_sorted)):
            got, want = start.copy(), start.copy()
            fold(ufunc, got, places, rows)
            ufunc.at(want, places, rows)
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bad", [-1, 20])
def test_no_row_is_written_outside(bad):
    with pytest.raises(IndexError):
        row_loops.fold(np.add, np.zeros((20, 3)), np.array([0, bad]), np.ones((2, 3)))
    with pytest.raises(IndexError):
        shuffles.exchange(np.arange(5), np.array([1, 4]))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("sizes", [(5, 7, 9), (64, 64, 64), (33, 100, 130), (401, 97, 3)])
def test_products_of_integers_wrap_around(sizes, dtype):
    rows, inner, columns = sizes
    x, y = (RANDOM.randint(-(2**31), 2**31, shape).astype(dtype) for shape in ((rows, inner), (inner, columns)))
    np.testing.assert_array_equal(products.multiply(x, y), np.matmul(x, y))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_quotients_of_integers(dtype):
    x, y = RANDOM.randint(-(2**31), 2**31, 5000).astype(dtype), RANDOM.randint(-40, 40, 5000).astype(dtype)
    y[y == 0] = 7
    x[:6], y[:6] = [7, -7, 0, -(2**31), 2**31 - 1, -(2**31)], [-2, 2, 5, -(2**31), 2**31 - 1, 1]
    floor, remainder = np.divmod(x, y)
    np.testing.assert_array_equal(arithmetic.floor_of_quotient(x, y), floor)
    np.testing.assert_array_equal(arithmetic.floored_remainder(x, y), remainder)
    np.testing.assert_array_equal(arithmetic.truncated_remainder(x, y), np.fmod(x, y))
    np.testing.assert_array_equal(arithmetic.truncated_quotient(x, y), floor + ((floor < 0) & (remainder != 0)))


def test_remainders_by_large_numbers_stay_exact():
    """The dividends fit into a double, the divisors do not."""
    x = np.resize(np.array([-1, 1, -7, 2**50]), 200)
    y = np.resize(np.array([2**53 + 1, 2**62 + 1, -(2**63), 2**63 - 1, -(2**54) - 3]), 200)
    np.testing.assert_array_equal(arithmetic.floored_remainder(x, y), x % y)
    np.testing.assert_array_equal(arithmetic.truncated_remainder(x, y), np.fmod(x, y))


def test_large_quotients_stay_exact():
    x, y = np.full(100, 2**62 + 1), np.full(100, 3)
    np.testing.assert_array_equal(arithmetic.floor_of_quotient(x, y), x // y)


def test_halves():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(numeric.to_single(every), every.astype(np.float32))
    x = np.concatenate([RANDOM.randn(9999) * 10 ** RANDOM.uniform(-9, 6, 9999), SPECIAL, [65504, 65520, 65519.9, 6e-8, 2.98e-8, 2.99e-8]]).astype(np.float32)
    np.testing.assert_array_equal(numeric.to_half(x), x.astype(np.float16))


def test_shuffles_are_the_same(monkeypatch):
    order = samplers.permutation(philox.Philox(7), 1000)
    monkeypatch.setattr(native, "available", lambda: False)
    np.testing.assert_array_equal(order, samplers.permutation(philox.Philox(7), 1000))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8, object])
def test_shuffled_rows_follow_the_permutation(dtype):
    value = np.arange(300).astype(dtype)
    np.testing.assert_array_equal(samplers.shuffled(philox.Philox(7), value), value[samplers.permutation(philox.Philox(7), 300)])


@pytest.mark.parametrize(("name", "arguments"), [
    ("poisson", [0.0, 0.5, 3.0, 9.99, 10.0, 25.0, 1000.0, -1.0, np.inf, np.nan]),
    ("gamma", [0.1, 0.5, 1.0, 1.5, 3.0, 100.0, np.nan, np.inf]),
])  # fmt: skip
def test_rejection_samplers_draw_the_same(name, arguments, monkeypatch):
    gen = philox.Philox(99, 1 << 64)
    draw = lambda: getattr(samplers, name)(gen, 100, np.array(arguments), np.dtype(np.float64))  # noqa: E731
    got = draw()
    monkeypatch.setattr(samplers.rejection, name, lambda *args: None)
    np.testing.assert_allclose(got, draw(), rtol=1e-13)


def test_other_engines_can_be_asked_for():
    code = "from penstock.ops import native; print(native.available())"
    for wish, want in (("numpy", "False"), ("onednn, native", "True")):
        run = subprocess.run([sys.executable, "-c", code], env={"PENSTOCK_ENGINES": wish, "PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True)
        assert run.stdout.strip() == want, run.stderr


def test_first_occurrences_are_those_of_a_dictionary():
    from penstock.ops.native.occurrences import LARGEST, SHORT, first_occurrences

    random = np.random.RandomState(0)
    for n, limit in ((0, 5), (1, 1), (9, 3), (200, 1000), (SHORT + 5, 3000), (50, LARGEST)):
        for dtype in (np.int32, np.int64):
            numbers = random.randint(0, limit, n).astype(dtype)
            found = first_occurrences(numbers)
            if found is None:
                assert not native.available()
                return
            first: dict[int, int] = {}
            for i, number in enumerate(numbers.tolist()):
                first.setdefault(number, i)
            which = {number: k for k, number in enumerate(first)}
            assert found[0].tolist() == list(first.values())
            assert found[1].tolist() == [which[number] for number in numbers.tolist()]


def test_numbers_that_have_no_place_in_the_table():
    from penstock.ops.native.occurrences import LARGEST, first_occurrences

    for numbers in ([1, -1], [LARGEST], [2**40, 3]):
        assert first_occurrences(np.array(numbers)) is None
    assert first_occurrences(np.array([1.0, 2.0])) is None
    assert first_occurrences(np.array([[1, 2]])) is None
