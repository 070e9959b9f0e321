"""Training formulas as loops in machine code: the numbers are NumPy's, bit for bit."""

import threading

import numpy as np
import pytest

from penstock import dtypes, errors
from penstock.ops import native
from penstock.ops.kernels import optimizers as f
from penstock.ops.native.duplicates import sums_by_number
from penstock.ops.native.updates import updates
from penstock.ops.resources import Ref, acquire, release

pytestmark = pytest.mark.skipif(not native.available(), reason="no AVX-512 here")

FORMULAS = {
    "descent": (f.gradient_descent, 1, lambda g, n: (n(0.1), g), {}),
    "momentum": (f.momentum, 2, lambda g, n: (n(0.1), g, n(0.9)), {"use_nesterov": False}),
    "nesterov": (f.momentum, 2, lambda g, n: (n(0.1), g, n(0.9)), {"use_nesterov": True}),
    "sparse momentum": (f.sparse_momentum, 2, lambda g, n: (n(0.1), g, n(0.9)), {"use_nesterov": False}),
    "adagrad": (f.adagrad, 2, lambda g, n: (n(0.1), g), {"update_slots": True}),
    "adam": (f.adam, 3, lambda g, n: (n(0.9), n(0.99), n(0.01), n(0.9), n(0.999), n(1e-8), g), {"use_nesterov": False}),
    "rmsprop": (f.rmsprop, 3, lambda g, n: (n(0.1), n(0.9), n(0.5), n(1e-10), g), {}),
    "ftrl": (f.ftrl, 3, lambda g, n: (g, n(0.1), n(0.3), n(0.02), n(-0.5)), {"multiply_linear_by_lr": False}),
    "sparse ftrl": (f.sparse_ftrl, 3, lambda g, n: (g, n(0.1), n(0.0), n(0.0), n(-0.5)), {"multiply_linear_by_lr": False}),
}


def _eager(formula):
    found = updates(formula)
    assert found is not None
    found._patience = 0
    return found


def _at_once(loops, rest, attrs, arrays, gradient):
    batch = loops.of(rest, attrs)
    return batch.add(arrays, gradient) and batch.run()


def _arrays(count, shape, dtype, seed=0):
    random = np.random.RandomState(seed)
    return [random.rand(*shape).astype(dtype) + dtype(0.1) for _ in range(count)], random.randn(*shape).astype(dtype)


def _same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_loops_are_written_at_once_where_bits_must_not_depend_on_what_was_done_before(monkeypatch):
    formula, count, rest, attrs = FORMULAS["adam"]
    arrays, g = _arrays(count, (33, 40), np.float32)
    assert not updates(formula).dense(arrays, rest(g, np.float32), attrs)
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")
    assert updates(formula).dense(arrays, rest(g, np.float32), attrs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FORMULAS)
def test_dense_updates_are_numpys(name, dtype):
    formula, count, rest, attrs = FORMULAS[name]
    loops = _eager(formula)
    for shape in ((1,), (7, 5), (64,), (33, 40), (300, 1001)):  # the last one is shared out to threads
        ours, g = _arrays(count, shape, dtype)
        theirs = [a.copy() for a in ours]
        g.reshape(-1)[::3] *= dtype(1000)
        if name == "descent" and g.size < 4096:
            assert not loops.dense(ours, rest(g, dtype), attrs)  # NumPy takes no longer
            assert _at_once(loops, rest(None, dtype), attrs, ours, g)
        else:
            assert loops.dense(ours, rest(g, dtype), attrs)
        formula(*theirs, *rest(g, dtype), **attrs)
        _same(ours, theirs)


@pytest.mark.parametrize("name", [name for name in FORMULAS if name not in ("nesterov", "descent")])
def test_rows_are_updated_one_after_the_other(name):
    formula, count, rest, attrs = FORMULAS[name]
    ours, _ = _arrays(count, (9, 20), np.float32)
    theirs = [a.copy() for a in ours]
    indices = np.array([8, 0, 3, 3, 5, 3, 0], np.int32)
    g = np.random.RandomState(1).randn(len(indices), 20).astype("f")
    assert _eager(formula).rows(ours, indices, rest(g, np.float32), attrs)
    for i, row in zip(indices, g, strict=True):
        formula(*[a[i] for a in theirs], *rest(row, np.float32), **attrs)
    _same(ours, theirs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sums_of_rows_that_have_the_same_number(dtype, index):
    random = np.random.RandomState(0)
    for n, width in ((1, 1), (5, 3), (64, 8), (64, 16), (1000, 17), (200, 130)):
        numbers = random.randint(0, 20, (n, 3)).astype(index)[:, 1]
        rows = (random.randn(n, width) * 10).astype(dtype)
        rows[0] = dtype(-0.0)
        sums, named = sums_by_number(rows, numbers)
        order = list(dict.fromkeys(numbers.tolist()))
        want = np.zeros((len(order), width), dtype)
        np.add.at(want, [order.index(i) for i in numbers.tolist()], rows)
        assert named.tolist() == order and sums.tobytes() == want.tobytes()
        assert sums_by_number(rows, numbers, int(numbers.max())) is None and sums_by_number(rows, -1 - numbers) is None


def test_infinite_and_undefined_gradients():
    formula, count, rest, attrs = FORMULAS["adam"]
    ours, g = _arrays(count, (40,), np.float32)
    g[[1, 5, 20]] = np.inf, -np.inf, np.nan
    theirs = [a.copy() for a in ours]
    with np.errstate(all="ignore"):
        assert _eager(formula).dense(ours, rest(g, np.float32), attrs)
        formula(*theirs, *rest(g, np.float32), **attrs)
    _same(ours, theirs)


def test_a_gradient_that_is_a_view():
    formula, count, rest, attrs = FORMULAS["adagrad"]
    ours, g = _arrays(count, (12, 12), np.float32)
    theirs = [a.copy() for a in ours]
    assert _eager(formula).dense(ours, rest(g.T, np.float32), attrs)
    formula(*theirs, *rest(g.T, np.float32), **attrs)
    _same(ours, theirs)


def test_what_decays_becomes_zero():
    formula, count, rest, attrs = FORMULAS["momentum"]
    accum = np.full(64, 1e-38, np.float32)
    assert _eager(formula).dense([np.ones(64, np.float32), accum], rest(np.zeros(64, np.float32), np.float32), attrs)
    assert not accum.any()
    assert np.float32(1e-38) * np.float32(0.1) > 0  # outside of the loop, arithmetic is as it was


@pytest.mark.parametrize("name, left", [("ftrl", 0), ("sparse ftrl", np.nan)])
def test_ftrl_of_no_number(name, left):
    """TensorFlow's dense update makes it 0; its sparse one leaves it, and divides 0 by 0."""
    formula, count, rest, attrs = FORMULAS[name]
    theirs, g = _arrays(count, (1, 16), np.float32)
    g[0, 0] = np.nan
    g[0, 1] = np.inf
    for a in (*theirs[1:], g):
        a[0, 2] = 0
    numbers = [*rest(g, np.float32)]
    numbers[3] = np.float32(0)  # l2
    ours = [a.copy() for a in theirs]
    assert _eager(formula).rows(ours, np.zeros(1, np.int64), numbers, attrs)
    with np.errstate(invalid="ignore"):
        formula(*theirs, *numbers, **attrs)
    _same(ours, theirs)
    np.testing.assert_array_equal(ours[0][0, :3], np.full(3, left, np.float32))


def test_left_to_numpy():
    loops = _eager(f.momentum)
    var = np.ones(8, np.float32)
    numbers = np.float32(0.1), np.ones(8, np.float32), np.float32(0.9)
    assert not loops.dense([var, var], numbers, {"use_nesterov": False})  # one variable in two places
    assert not loops.dense([var.astype(np.float16)] * 2, numbers, {"use_nesterov": False})
    assert not updates(f.adagrad).dense([var, var.copy()], numbers[:2], {"update_slots": True})  # it has to be called often
    ftrl = _eager(f.sparse_ftrl)
    numbers = np.ones((1, 8), np.float32), np.float32(0.1), np.float32(-1), np.float32(0), np.float32(-0.5)
    assert not ftrl.rows([var.reshape(1, 8).copy() for _ in range(3)], np.zeros(1, np.int64), numbers, {"multiply_linear_by_lr": False})
    assert updates(f.adamax) is None
    _same([var], [np.ones(8, np.float32)])


def _variable(value):
    ref = Ref(dtypes.float32, None, "v")
    if value is not None:
        ref.assign(np.asarray(value, np.float32))
    return ref


def test_acquiring_waits_for_who_has_a_variable():
    a, b = _variable([1.0]), _variable([2.0])
    done = []

    def other():
        arrays = acquire((a, b))
        arrays[0] += 1
        release((a, b), arrays)
        done.append(1)

    arrays = acquire((b,))
    thread = threading.Thread(target=other)
    thread.start()
    thread.join(0.05)
    assert not done
    release((b,), arrays)
    thread.join(60)
    assert done and a.read()[0] == 2


def test_acquiring_leaves_nothing_locked_or_empty_if_a_value_is_missing():
    a, missing = _variable([1.0]), _variable(None)
    with pytest.raises(errors.FailedPreconditionError):
        acquire((a, missing))
    assert a.read()[0] == 1
    arrays = acquire((a, a))
    assert arrays[0] is arrays[1]
    release((a, a), arrays)
    held = a.read()
    arrays = acquire((a,))
    assert arrays[0] is not held  # somebody else sees it
    release((a,), arrays)
