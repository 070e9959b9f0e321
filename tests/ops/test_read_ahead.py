"""Draws of a few numbers come from tables made ahead; no number depends on that."""

from types import SimpleNamespace

import numpy as np
import pytest

from penstock import dtypes
from penstock.ops import candidates as candidate_ops
from penstock.ops import philox, random, read_ahead
from penstock.ops.kernels import candidates
from penstock.ops.philox import PhiloxState

SHAPES = [()] * 100 + [(3,)] * 9 + [()] * 7 + [(2, 1)] * 30 + [(5,)] * 3 + [(0,)] * 9 + [()] * 80


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("kernel", "plain"), [(random.random_uniform_kernel, philox.uniform), (random.random_normal_kernel, philox.normal)])
def test_floats(kernel, plain, kind):
    dtype, state, source = dtypes.as_dtype(kind), SimpleNamespace(), PhiloxState(3, 4)
    for shape in SHAPES:
        found = kernel(np.array(shape, np.int32), dtype=dtype, seed=3, seed2=4, state=state)
        expected = plain(source.reserve_outputs(int(np.prod(shape))), shape, dtype.np)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_ints(kind):
    dtype, state, source = dtypes.as_dtype(kind), SimpleNamespace(), PhiloxState(3, 4)
    for i, shape in enumerate(SHAPES):
        low, high = (-5, 7) if i < 50 else (-(2**31), 2**31 - 1)
        found = random.random_uniform_int_kernel(np.array(shape, np.int32), low, high, Tout=dtype, seed=3, seed2=4, state=state)
        n = int(np.prod(shape))
        expected = philox.uniform_int(source.reserve_outputs(n), shape, low, high, dtype.np) if n else np.empty(shape, dtype.np)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()


def test_who_writes_into_a_draw_changes_no_other_one(monkeypatch):
    calls = []
    blocks = philox.Philox.blocks
    monkeypatch.setattr(philox.Philox, "blocks", lambda self, *a: calls.append(a) or blocks(self, *a))
    state, source = SimpleNamespace(), PhiloxState(1, 2)
    draws = read_ahead.PATIENCE + read_ahead.ROWS
    for _ in range(draws):
        found = random.random_uniform_kernel(np.array([2]), dtype=dtypes.float32, seed=1, seed2=2, state=state)
        expected = philox.uniform(source.reserve_outputs(2), (2,))
        assert found.tobytes() == expected.tobytes()
        found[:] = 7
    assert sum(len(place) == 3 for place in calls) == 1  # one table; other draws have no stride


@pytest.mark.parametrize("make", [candidates.LogUniformSampler, candidates.UniformSampler, candidates.UnigramSampler])
@pytest.mark.parametrize("unique", [True, False])
def test_candidates(make, unique):
    state, source = SimpleNamespace(), PhiloxState(5, 6)
    sampler, true = make(1000), np.array([[3], [999]])
    for i in range(read_ahead.PATIENCE + read_ahead.ROWS + 9):
        n = 20 if i % 40 < 35 else 300
        found, _, _ = candidate_ops._run(make(1000), true, 1, n, unique, state, 5, 6)
        expected, _ = candidates.sample(sampler, source.reserve_words(2048 * n), n, unique)
        assert found.tobytes() == expected.tobytes()
        assert not unique or len(set(found.tolist())) == n
