"""Choosing elements by a condition: long arrays by arithmetic on bits, with the results of np.where."""

import ml_dtypes
import numpy as np
import pytest

import penstock as tf
from penstock.errors import InvalidArgumentError
from penstock.ops import select
from penstock.ops.gather_scatter import dynamic_partition_kernel
from penstock.ops.native import choosing
from penstock.ops.select import choose


def _numbers(rng, n, dtype):
    if np.dtype(dtype).kind == "b":
        return rng.random(n) < 0.5
    return (rng.standard_normal(n) * 50).astype(dtype)


@pytest.fixture(autouse=True)
def quiet():
    """Kernels run with NumPy's warnings off."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize(
    "dtype",
    ["f4", "f8", "f2", ml_dtypes.bfloat16, "i1", "u1", "i2", "i4", "i8", "u8", "?", "c8", "c16", "O"],
    ids=lambda d: np.dtype(d).name,
)
@pytest.mark.parametrize("n", [0, 10, 2048, 70001])
def test_choose_is_where(dtype, n, monkeypatch):
    monkeypatch.setattr(select, "_PIECE", 1000)
    rng = np.random.default_rng(n)
    a, b, condition = _numbers(rng, n, dtype), _numbers(rng, n, dtype), rng.random(n) < 0.5
    zero, three = np.zeros((), dtype), np.array(3, dtype)
    for t, e in ((a, b), (a, zero), (zero, b), (three, b), (a, three), (zero, three), (three, zero), (a[::-1], b), (a, zero[()])):
        got, expected = choose(condition, t, e), np.where(condition, t, e)
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        assert got.tolist() == expected.tolist() if got.dtype.hasobject else got.tobytes() == expected.tobytes()


def test_choose_keeps_the_bits_of_special_numbers():
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, -np.nan, 1.0], np.float32)
    a, b = np.resize(special, 4096), np.resize(special[::-1], 4096)
    condition = np.arange(4096) % 3 == 0
    for t, e in ((a, b), (a, np.float32(0)), (a, np.float32(-0.0)), (np.float32(0), b), (np.float32(np.nan), b)):
        assert choose(condition, t, e).tobytes() == np.where(condition, t, e).tobytes()


def test_choose_leaves_its_inputs_alone_and_takes_matrices():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 60, 50)).astype("f")
    condition = rng.random((60, 50)) < 0.5
    before = a.copy(), b.copy(), condition.copy()
    np.testing.assert_array_equal(choose(condition, a, b), np.where(condition, a, b))
    np.testing.assert_array_equal(choose(condition.T, a.T, b.T), np.where(condition, a, b).T)
    np.testing.assert_array_equal(choose(condition, a, b[0]), np.where(condition, a, b[0]))
    for x, y in zip((a, b, condition), before, strict=True):
        np.testing.assert_array_equal(x, y)


def test_dropout_and_its_gradient_use_one_mask():
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.constant(np.arange(1, 4097, dtype=np.float32).reshape(64, 64))
        y = tf.nn.dropout(x, keep_prob=0.5, seed=3)
        kept, slope = sess.run([y, tf.gradients(y, x)[0]])
    np.testing.assert_array_equal(kept, slope * np.arange(1, 4097, dtype=np.float32).reshape(64, 64))
    assert set(np.unique(slope)) == {0.0, 2.0}
    assert 0.4 < (slope > 0).mean() < 0.6


@pytest.mark.parametrize("x", [
    np.zeros(0, bool), np.zeros(5, bool), np.arange(7) % 3 == 0, np.array([0.0, -0.0, np.nan, 1.0], np.float32), np.array([0, 2j, 0]), (np.arange(10) % 4)[::-3],
    np.array([0, 3], np.uint8), np.eye(3), np.zeros((2, 0, 3)),
], ids=lambda x: f"{x.dtype}{x.shape}")  # fmt: skip
def test_places_of_what_is_not_zero(x):
    found = select.where_kernel(x)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.argwhere(x))


_WITH_CODE = pytest.mark.skipif(not choosing.can_choose(4), reason="needs machine code")


@_WITH_CODE
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint32, np.complex64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 15, 16, 17, 31, 64, 100, 1023, 70_001])
def test_bits_are_chosen_by_machine_code(dtype, n):
    rng = np.random.RandomState(n)
    condition = rng.rand(n) > 0.4
    room = rng.bytes(dtype().itemsize * (2 * n + 2))  # any bits, NaNs among them
    integer = f"i{dtype().itemsize}"
    yes, no, one, other = np.split(np.frombuffer(room, integer), [n, 2 * n, 2 * n + 1])
    for a, b in ((yes, no), (one, no), (yes, other), (one, other)):
        out = np.full(n + 3, 7, integer)
        choosing.choose(condition, a, b, out[1:-2])
        np.testing.assert_array_equal(out[1:-2], np.where(condition, a, b))
        assert out[0] == 7 and (out[-2:] == 7).all()  # nothing beside it is written


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.bool_, np.complex64, np.complex128], ids=lambda d: d.__name__)
def test_choices_of_many_are_those_of_numpy(dtype, native, monkeypatch):
    if not native:
        monkeypatch.setenv("PENSTOCK_ENGINES", "numpy")
    rng = np.random.RandomState(0)
    shape = (70, 61)
    condition = rng.rand(*shape) > 0.5
    x, y = (rng.randint(-3, 4, shape).astype(dtype) for _ in range(2))
    if np.issubdtype(dtype, np.floating):
        x[0], y[1] = np.nan, -0.0
    zero, one = np.zeros((), dtype), np.ones((), dtype)
    for a, b in ((x, y), (x, zero), (zero, y), (x, one), (one, y), (x.T.copy().T, y), (x, y[:, :1])):
        found = select.choose(condition, a, b)
        np.testing.assert_array_equal(found.view(np.uint8), np.where(condition, a, b).view(np.uint8))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "complex64", "float16", "object"])
@pytest.mark.parametrize("n", [0, 1, 7, 1024, 1025, 1031, 5003])
def test_values_of_each_partition(dtype, n):
    random = np.random.default_rng(n)
    values, numbers = random.integers(0, 1000, n).astype(dtype), random.integers(0, 5, n).astype(np.int32)
    for data, places in ((values, numbers), (values[::-1], numbers[::-1]), (values.reshape(1, n), numbers.reshape(1, n))):
        got = dynamic_partition_kernel(data, places, num_partitions=7)
        for i, piece in enumerate(got):
            np.testing.assert_array_equal(piece, data[places == i])
            assert piece.dtype == values.dtype and piece.ndim == 1
    for bad in (-1, 7, -(2**31)):
        if n:
            numbers[n // 2] = bad
            with pytest.raises(InvalidArgumentError, match=rf"partitions\[{n // 2}\] = {bad} is not in \[0, 7\)"):
                dynamic_partition_kernel(values, numbers, num_partitions=7)
