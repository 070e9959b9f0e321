"""Samplers by machine code give what NumPy's way gives: the same numbers of the same stream."""

import numpy as np
import pytest

from penstock.ops import philox
from penstock.ops.kernels import samplers
from penstock.ops.native import bounded, rejection
from penstock.ops.philox import BFLOAT16, Philox


@pytest.fixture(autouse=True)
def quiet():
    """Kernels run with NumPy's warnings off."""
    with np.errstate(all="ignore"):
        yield


PAIRS = {
    "few tries": ([20.0], [0.3]),
    "many tries": ([1000.0], [0.3]),
    "nearly sure": ([1e6, 1e9], [0.9999, 1e-5]),
    "all kinds": (np.random.RandomState(0).uniform(-3, 300, 100).round(), np.random.RandomState(1).uniform(-0.1, 1.1, 100)),
    "senseless": ([5.0, np.nan, 7.0, -1.0, 0.0], [np.nan, 0.5, 1.0, 0.5, 0.5]),
}


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_binomial_numbers(kind, dtype, monkeypatch):
    count, probability = (np.array(part, dtype) for part in PAIRS[kind])
    gen = Philox(12345678901, (7 << 64) + 77)

    def drawn():
        return samplers.binomial(gen, 100, count, probability, np.float64)

    with_it = drawn()
    monkeypatch.setattr(rejection, "binomial", lambda *arguments: None)
    np.testing.assert_array_equal(with_it, drawn())


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16])
@pytest.mark.parametrize("counter", [0, (1 << 64) - 3, (1 << 63) - 5])
def test_uniform_numbers_of_few_bits(dtype, counter, monkeypatch):
    def drawn():
        return [philox.uniform(Philox(99, counter), (n,), dtype).tobytes() for n in (1, 4, 33, 5000)]

    with_it = drawn()
    monkeypatch.setattr(philox.streams, "can_fill", lambda *place: False)
    assert drawn() == with_it


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint8, np.uint64, BFLOAT16])
@pytest.mark.parametrize("strange", [(), (np.nan,), (-np.inf,), (np.inf,), (np.nan, np.inf, -np.inf)])
def test_classes_whose_logits_are_not_finite_are_out(dtype, strange):
    logits = np.abs(np.random.RandomState(0).randn(5, 33) * 9).astype(dtype)
    if np.dtype(dtype).kind not in "iu":
        for i, value in enumerate(strange):
            logits[i + 1, 3], logits[4] = value, value
    weights = np.empty(logits.shape)
    samplers._weigh(logits, logits.max(1, keepdims=True), weights, 1)
    wide = logits.astype(np.float64)
    finite = np.isfinite(wide)
    top = np.max(np.where(finite, wide, -np.inf), 1, keepdims=True)
    want = np.where(finite, np.exp(wide - np.where(np.isfinite(top), top, 0)), 0)
    np.testing.assert_array_equal(weights, want)
    across = np.empty(logits.T.shape)
    samplers._weigh(logits.T, logits.max(1, keepdims=True).T, across, 0)
    np.testing.assert_array_equal(across.T, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "per_row"), [(1, 1000), (10, 100), (300, 33), (50, 1), (3, 0)])
@pytest.mark.parametrize("kind", ["around the middle", "some in a tail", "half lines", "mirrored"])
def test_bounded_rows_share_one_stream(dtype, rows, per_row, kind, monkeypatch):
    random = np.random.RandomState(rows)
    mean, deviation = random.uniform(-1, 1, rows), random.uniform(0.5, 2, rows)
    low, high = mean - deviation * random.uniform(1.4, 3, rows), mean + deviation * random.uniform(0.1, 3, rows)
    if kind == "some in a tail":
        low[::3], high[::3] = mean[::3] + 3, mean[::3] + 5
    elif kind == "half lines":
        low[::2] = -np.inf
    elif kind == "mirrored":
        low, high = 2 * mean - high, 2 * mean - low
    parameters = [part.astype(dtype) for part in (mean, deviation, low, high)]

    def drawn():
        return samplers.bounded_normals(Philox(77, 5), parameters, rows, per_row, rows * per_row, np.dtype(dtype))

    with_it = drawn()
    values = with_it.reshape(rows, per_row)
    assert ((values >= parameters[2][:, None] - 1e-5) & (values <= parameters[3][:, None] + 1e-5)).all()
    monkeypatch.setattr(bounded, "can_take", lambda dtype: False)
    np.testing.assert_array_equal(with_it, drawn())
