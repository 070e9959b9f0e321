"""Many operations in one pass over memory: what NumPy gives, bit for bit where nothing but the last bits of exponentials and sums may differ."""

import numpy as np
import pytest

from penstock.engines import memory
from penstock.ops import native
from penstock.ops.native import rowwise as rows
from penstock.ops.native import sweeps
from penstock.ops.native.rowwise import reduce_rows, rowwise
from penstock.ops.native.sweeps import COLUMN, CONSTANT, FLAT, FULL, NUMBER, ROW, ROWS, Formula, choose

pytestmark = [pytest.mark.skipif(not native.available(), reason="no machine code here"), pytest.mark.filterwarnings("ignore")]

TYPES = {"f32": np.float32, "f64": np.float64}
EDGES = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-310, 3.5, -2.5, 1e30]
BINARY = [np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.minimum, np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal]
UNARY = [
    np.negative, np.positive, np.absolute, np.sqrt, np.square, np.reciprocal, np.floor, np.ceil, np.trunc, np.rint, np.sign, np.isnan, np.isinf, np.isfinite,
]  # fmt: skip
ROUNDED = [np.exp, np.expm1, np.log, np.log1p, np.tanh]


def data(n, type, seed=0):
    """Every edge next to every other, then random numbers."""
    x = (np.random.RandomState(seed).randn(n) * 3).astype(TYPES[type])
    edges = np.array(EDGES, TYPES[type])
    both = np.repeat(edges, len(edges)) if seed else np.tile(edges, len(edges))
    k = min(n, both.size)
    x[:k] = both[:k]
    return x


def constant(value, type):
    return (CONSTANT, type, TYPES[type](value).tobytes())


def swept(formula, arrays, numbers=(), outputs=None, rows=1, columns=None):
    sweep = sweeps.compiled(formula)
    assert sweep is not None
    dtypes = {name: dtype for dtype, name in sweeps.TYPES.items()}
    if outputs is None:
        shape = arrays[0].shape
        outputs = [np.empty((*shape[:-1], 1) if is_column else shape, dtypes[t]) for _, t, is_column in formula.outputs]
    totals = sweep(rows, columns or arrays[0].size, arrays, numbers, outputs)
    return outputs, totals


def same_bits(got, want):
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    if got.dtype != bool:
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("n", [1, 15, 16, 1000])
def test_rounds_as_numpy_does(type, n):
    x, y = data(n, type), data(n, type, seed=1)
    inputs = ((FULL, type, b""), (FULL, type, b""))
    for ufunc in (*BINARY, *UNARY):
        operands = (0, 1)[: ufunc.nin]
        want = ufunc(*(x, y)[: ufunc.nin])
        (got,), _ = swept(Formula(type, inputs, ((ufunc, operands, False),), ((2, sweeps.TYPES[want.dtype], False),), (), FLAT), [x, y])
        same_bits(got, want)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("ufunc", ROUNDED)
def test_last_bits(ufunc, type):
    x = data(5000, type)
    with np.errstate(all="ignore"):
        want = ufunc(x)
        (got,), _ = swept(Formula(type, ((FULL, type, b""),), ((ufunc, (0,), False),), ((1, type, False),), (), FLAT), [x])
    np.testing.assert_allclose(got, want, rtol=1e-6 if type == "f32" else 1e-15, atol=np.finfo(TYPES[type]).tiny)
    zero = x == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("number", [0.0, -0.0, 6.0, np.nan, np.inf])
def test_extremes_with_numbers(number):
    x = data(1000, "f32")
    for ufunc in (np.maximum, np.minimum):
        for operands in ((0, 1), (1, 0)):
            values = [x, np.float32(number)]
            want = ufunc(*(values[o] for o in operands))
            for given, numbers in ((constant(number, "f32"), ()), ((NUMBER, "f32", b""), (np.float32(number),))):
                (got,), _ = swept(Formula("f32", ((FULL, "f32", b""), given), ((ufunc, operands, False),), ((2, "f32", False),), (), FLAT), [x], numbers)
                same_bits(got, want)


def test_truths_and_choices():
    x, y = data(777, "f32"), data(777, "f32", seed=1)
    truths = np.random.RandomState(2).rand(777) < 0.5
    inputs = ((FULL, "f32", b""), (FULL, "f32", b""), (FULL, "bool", b""), (NUMBER, "bool", b""))
    steps = (
        (np.greater, (0, 1), False), (np.logical_and, (4, 2), False), (np.logical_or, (5, 3), False), (np.logical_not, (6,), False), (choose, (7, 0, 1), False),
        (np.multiply, (0, 4), False),
    )  # fmt: skip
    for number in (True, False):
        (got, chosen, product), _ = swept(Formula("f32", inputs, steps, ((7, "bool", False), (8, "f32", False), (9, "f32", False)), (), FLAT), [x, y, truths], [np.bool_(number)])
        want = ~(((x > y) & truths) | number)
        np.testing.assert_array_equal(got, want)
        same_bits(chosen, np.where(want, x, y))
        same_bits(product, x * (x > y))


@pytest.mark.parametrize("type", TYPES)
def test_more_arrays_and_values_than_registers(type):
    """Twelve arrays, forty values that are all needed at the end, and as many results as arrays."""
    arrays = [np.random.RandomState(i).randn(333).astype(TYPES[type]) for i in range(12)]
    steps, want = [], []
    for i in range(40):
        steps.append((np.multiply, (i % 12, (i * 5 + 1) % 12), False))
        want.append(arrays[i % 12] * arrays[(i * 5 + 1) % 12])
    total = want[-1]
    for i in range(38, -1, -1):
        steps.append((np.subtract, (12 + len(steps) - 1, 12 + i), False))
        total = total - want[i]
    outputs = tuple((12 + i, type, False) for i in range(11)) + ((12 + len(steps) - 1, type, False),)
    got, _ = swept(Formula(type, ((FULL, type, b""),) * 12, tuple(steps), outputs, (), FLAT), arrays)
    for a, b in zip(got, [*want[:11], total]):
        same_bits(a, b)


def test_results_in_the_place_of_inputs():
    x, y = data(1000, "f64"), data(1000, "f64", seed=1)
    want = (x + y) * x
    swept(Formula("f64", ((FULL, "f64", b""),) * 2, ((np.add, (0, 1), False), (np.multiply, (2, 0), False)), ((3, "f64", False),), (), FLAT), [x, y], (), [x])
    same_bits(x, want)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("n", [5, 4096, 1_000_003])
def test_totals(type, n):
    x = np.random.RandomState(0).rand(n).astype(TYPES[type])
    totals = ((np.add, 1), (np.maximum, 1), (np.minimum, 0), (np.multiply, 2))
    formula = Formula(type, ((FULL, type, b""),), ((np.negative, (0,), False), (np.sign, (0,), False)), (), totals, FLAT)
    _, (total, largest, smallest, product) = swept(formula, [x])
    np.testing.assert_allclose(total, -np.sum(x, dtype=np.float64), rtol=1e-6 if type == "f32" else 1e-12)
    assert (largest, smallest, product) == (-x.min(), x.min(), 1)
    again = swept(formula, [x])[1]
    assert [total, largest, smallest, product] == again
    x[n // 2] = np.nan
    assert np.isnan(swept(formula, [x])[1][:3]).all()


def test_rows_and_columns():
    x, row, column = data(1900, "f32").reshape(100, 19), data(19, "f32"), data(100, "f32").reshape(100, 1)
    inputs = ((FULL, "f32", b""), (ROW, "f32", b""), (COLUMN, "f32", b""))
    steps = ((np.multiply, (0, 1), False), (np.add, (3, 2), False), (np.maximum, (4,), True), (np.negative, (5,), False), (np.subtract, (0, 6), False))
    (got, negative), _ = swept(Formula("f32", inputs, steps, ((7, "f32", False), (6, "f32", True)), (), ROWS), [x, row, column], rows=100, columns=19)
    largest = (x * row + column).max(1, keepdims=True)
    same_bits(negative, -largest)
    same_bits(got, x + largest)


def test_what_is_not_known_is_left_alone():
    unknown = Formula("f32", ((FULL, "f32", b""),), ((np.arcsinh, (0,), False),), ((1, "f32", False),), (), FLAT)
    assert sweeps.compiled(unknown) is None and not sweeps.knows(np.arcsinh)


@rowwise
def normalised(x, gain):
    centred = x - np.add.reduce(x, -1, keepdims=True) / 40.0
    return centred / np.sqrt(np.add.reduce(centred * centred, -1, keepdims=True) / 40.0 + 1e-3) * gain


@rowwise
def softmax(x):
    e = np.exp(x - np.maximum.reduce(x, -1, keepdims=True))
    total = np.add.reduce(e, -1, keepdims=True)
    return e / total, np.log(total)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_formulas_of_rows(dtype):
    x, gain = np.random.RandomState(0).randn(7, 30, 40).astype(dtype), np.random.RandomState(1).randn(40).astype(dtype)
    tolerance = 1e-5 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(normalised(x, gain)[0], normalised.__wrapped__(x, gain), rtol=tolerance, atol=tolerance)
    for columns in (9, 40, 5000):
        x = (np.random.RandomState(0).randn(-(-rows.SMALLEST // columns), columns) * 5).astype(dtype)
        for got, want in zip(softmax(x), softmax.__wrapped__(x)):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_rows_that_are_left_to_numpy():
    assert softmax(np.zeros((4, 16), np.float32)) is None
    assert softmax(np.zeros((4000, 4), np.float32)) is None
    assert softmax(np.zeros((400, 40), np.float16)) is None
    assert normalised(np.zeros((400, 40), np.float32), np.zeros((400, 1), np.float32)) is None


@pytest.mark.parametrize("axes, keepdims", [((1,), False), ((0, 1, 2), False), ((1, 2), True), ((0, 1, 2), True), ((2,), True)])
def test_products(axes, keepdims):
    x = np.random.RandomState(0).uniform(0.9, 1.1, (20, 33, 17))
    got, want = reduce_rows(np.multiply, x, axes, keepdims), np.multiply.reduce(x, axes, keepdims=keepdims)
    if axes == (1,):
        assert got is None
        return
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-12)


def deep(ufunc, rounds, type, outputs):
    """y = 0.9 ufunc(y) + x again and again; `outputs` are rounds whose result is wanted, and the last one is summed up too."""
    steps, at, results = [], 0, []
    for i in range(rounds):
        first = 2 + len(steps)
        steps += [(ufunc, (at,), False), (np.multiply, (first, 1), False), (np.add, (first + 1, 0), False)]
        at = first + 2
        if i in outputs:
            results.append((at, type, False))
    return Formula(type, ((FULL, type, b""), constant(0.9, type)), tuple(steps), tuple(results), ((np.maximum, at),), FLAT)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("n", [1, 15, 1023, 1024, 1025, 5000, 300_000])
@pytest.mark.parametrize(("ufunc", "phases"), [(np.tanh, 12), (np.absolute, 2), (np.floor, 2)])
def test_what_waits_for_long_is_done_in_phases(ufunc, phases, n, type):
    outputs = {2, 5, 11}
    formula = deep(ufunc, 12, type, outputs)
    plan = sweeps.Plan(formula)
    assert plan.has_tiles and len(plan.phases) == phases and plan.n_kept <= 2
    x = np.random.RandomState(n).randn(n).astype(TYPES[type])
    got, (largest,) = swept(formula, [x])
    y, wanted = x, []
    for i in range(12):
        y = ufunc(y) * x.dtype.type(0.9) + x
        if i in outputs:
            wanted.append(y)
    for result, want in zip(got, wanted, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-5 if type == "f32" else 1e-13)
    assert largest == got[-1].max()


def test_phases_of_tiles_may_write_over_what_they_read():
    formula = deep(np.tanh, 6, "f32", {5})
    sweep = sweeps.compiled(formula)
    assert sweep.may_overwrite and not sweeps.compiled(deep(np.tanh, 6, "f32", {2, 5})).may_overwrite
    x = np.random.RandomState(0).randn(5000).astype(np.float32)
    (want,), _ = swept(formula, [x])
    swept(formula, [x], outputs=[x])
    same_bits(x, want)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("n", [17, 1000, 300_001])
@pytest.mark.parametrize(("first", "second", "streams"), [(0, 0, True), (3, 3, True), (15, 15, True), (0, 1, False)])
def test_large_results_go_past_the_caches(type, n, first, second, streams, monkeypatch):
    """Wherever they begin in a cache line, if that is the same place for all; nothing beside them is touched."""
    monkeypatch.setattr(sweeps, "STREAMED", 0)
    formula = Formula(type, ((FULL, type, b""), (NUMBER, type, b"")), ((np.add, (0, 1), False), (np.multiply, (2, 0), False)), ((2, type, False), (3, type, False)), (), FLAT)
    sweep, dtype = sweeps.compiled(formula), np.dtype(TYPES[type])
    pieces = []
    monkeypatch.setattr(sweep, "_in_pieces", lambda *args, run=sweep._in_pieces: pieces.append(args) or run(*args))
    x, number = data(n, type), TYPES[type](1.5)
    buffers = [memory.aligned_empty((n + 32 + (1 << 14),), dtype) for _ in range(2)]
    for buffer in buffers:
        buffer.fill(7)
    outputs = [buffer[start : start + n] for buffer, start in zip(buffers, (first, second))]
    swept(formula, [x], [number], outputs)
    same_bits(outputs[0], x + number)
    same_bits(outputs[1], (x + number) * x)
    for buffer, start in zip(buffers, (first, second)):
        assert (buffer[:start] == 7).all() and (buffer[start + n :] == 7).all()
    assert any(args[-1] is sweep.streaming for args in pieces) is streams


def test_only_results_of_their_own_are_streamed(monkeypatch):
    """What lies where an input was is in a cache already; totals and truths have no such form, nor have small results."""
    formula = Formula("f32", ((FULL, "f32", b""),), ((np.negative, (0,), False),), ((1, "f32", False),), (), FLAT)
    sweep = sweeps.compiled(formula)
    x = memory.aligned_empty((100_000,), np.dtype(np.float32))
    x[:] = data(x.size, "f32")
    addresses = [native.address_of(x)]
    assert sweep.streams and not sweep._stream(x.size, [*addresses, *addresses], [])
    monkeypatch.setattr(sweeps, "STREAMED", 0)
    assert not sweep._stream(x.size, [*addresses, *addresses], [])
    want = -x
    swept(formula, [x], outputs=[x])
    same_bits(x, want)
    assert not sweeps.compiled(formula._replace(totals=((np.add, 1),))).streams
    assert not sweeps.compiled(formula._replace(steps=((np.isnan, (0,), False),), outputs=((1, "bool", False),))).streams
    assert not sweeps.compiled(formula._replace(shape=ROWS)).streams
