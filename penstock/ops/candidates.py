"""Candidate sampling: the classes against which sampled_softmax and nce_loss compare the true one."""

from __future__ import annotations

from itertools import compress
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops import read_ahead
from penstock.ops.declare import op, with_rank
from penstock.ops.kernels import candidates
from penstock.ops.kernels.rows import are_in_range
from penstock.ops.random import generator
from penstock.ops.samples import arr
from penstock.shapes import Dims


def _checked(true_classes: Any, num_true: int, limit: int) -> np.ndarray:
    if true_classes.ndim != 2:
        raise InvalidArgumentError("true_classes must be a matrix")
    if true_classes.shape[1] != num_true:
        raise InvalidArgumentError("true_classes must have num_true columns, "
                                   f"expected: {true_classes.shape[1]} was: {num_true}")
    if not are_in_range(true_classes, limit):
        wrong = true_classes[(true_classes < 0) | (true_classes >= limit)]
        raise InvalidArgumentError(f"`true_candidate` out of range [0, {limit}), received {wrong[0]}")
    return true_classes


_RESERVED = 2048
"""Words of the stream that TF sets aside for each class to be drawn."""


def _run(sampler: Any, true_classes: Any, num_true: int, n: int, unique: bool, state: Any, seed: int,
         seed2: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    true_classes = _checked(true_classes, num_true, sampler.range)
    if unique and n > sampler.range:
        raise InvalidArgumentError("Sampler's range is too small.")
    gen = generator(state, seed, seed2).reserve_words(_RESERVED * n)
    begun = read_ahead.stream(state, gen, candidates.blocks_for(n), _RESERVED * n // 4, getattr(sampler, "of_words", None))
    classes, tries = candidates.sample(sampler, begun, n, unique)
    both = candidates.expected_count(sampler, np.concatenate([true_classes.ravel(), classes]), n, tries)
    true_count, count = both[:true_classes.size].reshape(true_classes.shape), both[true_classes.size:]
    if isinstance(sampler, candidates.UnigramSampler):
        sampler.update(true_classes)
    return classes, true_count, count


def _simple(make: Any) -> Any:
    def kernel(true_classes: Any, *, num_true: int, num_sampled: int, unique: bool, range_max: int, seed: int, seed2: int,
               state: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        sampler = state.__dict__.get("sampler") or state.__dict__.setdefault("sampler", make(range_max))
        return _run(sampler, true_classes, num_true, num_sampled, unique, state, seed, seed2)

    return kernel


def fixed_unigram_kernel(true_classes: Any, *, num_true: int, num_sampled: int, unique: bool, range_max: int, vocab_file: bytes,
                         distortion: float, num_reserved_ids: int, num_shards: int, shard: int, unigrams: list[float],
                         seed: int, seed2: int, state: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    sampler = state.__dict__.get("sampler")
    if sampler is None:
        if not vocab_file and not unigrams:
            raise InvalidArgumentError("Must provide either vocab_file or unigrams.")
        if vocab_file and unigrams:
            raise InvalidArgumentError("Must only provide one of vocab_file and unigrams.")
        weights = candidates.read_vocabulary(vocab_file.decode()) if vocab_file else np.array(unigrams, np.float32)
        made = candidates.FixedUnigramSampler(range_max, weights, distortion, num_reserved_ids, num_shards, shard)
        sampler = state.__dict__.setdefault("sampler", made)
    return _run(sampler, true_classes, num_true, num_sampled, unique, state, seed, seed2)


def all_candidates_kernel(true_classes: Any, *, num_true: int, num_sampled: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    true_classes = _checked(true_classes, num_true, num_sampled)
    return np.arange(num_sampled), np.ones(true_classes.shape, np.float32), np.ones(num_sampled, np.float32)


def sampler_shape(c: Any) -> list[Dims]:
    n, num_true = c.attrs["num_sampled"], c.attrs["num_true"]
    return [(n,), (with_rank(c, 0, 2)[0], num_true), (n,)]


_SAMPLER = "(true_classes: int64) -> (sampled_candidates: int64, true_expected_count: float, sampled_expected_count: float)"
_ATTRS = "num_true: int >= 1; num_sampled: int >= 1; unique: bool"
_SEEDS = "seed: int = 0; seed2: int = 0"
_TRUE = arr([[0, 4], [1, 2], [3, 3]], np.int64)
_SAMPLES = [dict(true_classes=_TRUE, num_true=2, num_sampled=5, unique=True, range_max=9, seed=1, seed2=2),
            dict(true_classes=_TRUE, num_true=2, num_sampled=20, unique=False, range_max=16, seed=3)]
_ERRORS = [
    (dict(true_classes=[[1]], num_true=1, num_sampled=5, unique=True, range_max=4), InvalidArgumentError, "Sampler's range is too small"),
    (dict(true_classes=[[7]], num_true=1, num_sampled=2, unique=True, range_max=4), InvalidArgumentError, r"out of range \[0, 4\), received 7"),
]

for _name, _make in (("UniformCandidateSampler", candidates.UniformSampler), ("LogUniformCandidateSampler", candidates.LogUniformSampler),
                     ("LearnedUnigramCandidateSampler", candidates.UnigramSampler),
                     ("ThreadUnsafeUnigramCandidateSampler", candidates.UnigramSampler)):  # fmt: skip
    op(f"{_name}{_SAMPLER} [{_ATTRS}; range_max: int >= 1; {_SEEDS}] stateful",
       shape=sampler_shape, numpy=_simple(_make), samples=_SAMPLES, errors=_ERRORS)  # fmt: skip

op(f"FixedUnigramCandidateSampler{_SAMPLER} [{_ATTRS}; range_max: int >= 1; vocab_file: string = ''; distortion: float = 1;"
   " num_reserved_ids: int = 0; num_shards: int >= 1 = 1; shard: int >= 0 = 0; unigrams: list(float) = [];"
   f" {_SEEDS}] stateful",
   shape=sampler_shape, numpy=fixed_unigram_kernel,
   samples=[dict(s, range_max=9, unigrams=[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0], distortion=0.75) for s in _SAMPLES]
   + [dict(_SAMPLES[0], range_max=8, unigrams=[3.0, 1.0, 4.0, 1.0, 5.0, 9.0], num_reserved_ids=2)],
   errors=[(dict(true_classes=[[1]], num_true=1, num_sampled=2, unique=True, range_max=3), InvalidArgumentError,
            "Must provide either vocab_file or unigrams"),
           (dict(true_classes=[[1]], num_true=1, num_sampled=2, unique=True, range_max=3, unigrams=[1.0]), InvalidArgumentError,
            "range is 3 must be equal to weights size  1")])  # fmt: skip

op(f"AllCandidateSampler{_SAMPLER} [{_ATTRS}; {_SEEDS}] stateful",
   shape=sampler_shape, numpy=all_candidates_kernel,
   samples=[dict(true_classes=_TRUE, num_true=2, num_sampled=5, unique=True, seed=1)])  # fmt: skip


_LOWEST = np.finfo(np.float32).min


def accidental_hits_kernel(true_classes: Any, sampled_candidates: Any, *, num_true: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if np.ndim(true_classes) != 2 or true_classes.shape[1] != num_true:
        raise InvalidArgumentError("true_candidates must be a batch_size * num_true matrix")
    if np.ndim(sampled_candidates) != 1:
        raise InvalidArgumentError("sampled_candidates must be a vector, which is typically an output from CandidateSampler")
    place = dict(zip(sampled_candidates.tolist(), range(sampled_candidates.size)))
    flat = true_classes.ravel().tolist()
    hits = [*compress(range(len(flat)), map(place.__contains__, flat))]
    weights = np.empty(len(hits), np.float32)
    weights.fill(_LOWEST)
    return np.array([i // num_true for i in hits], np.int32), np.array([place[flat[i]] for i in hits], np.int64), weights


def accidental_hits_shape(c: Any) -> list[Dims]:
    dims = with_rank(c, 0, 2)
    if dims[1] is not None and dims[1] != c.attrs["num_true"]:
        raise ValueError(f"Dimension must be {c.attrs['num_true']} but is {dims[1]}")
    return [(None,), (None,), (None,)]


op("ComputeAccidentalHits(true_classes: int64, sampled_candidates: int64) -> (indices: int32, ids: int64, weights: float)"
   f" [num_true: int; {_SEEDS}]",
   shape=accidental_hits_shape, numpy=accidental_hits_kernel,
   samples=[dict(true_classes=_TRUE, sampled_candidates=arr([4, 7, 3, 8, 1], np.int64), num_true=2),
            dict(true_classes=_TRUE, sampled_candidates=arr([], np.int64), num_true=2)])  # fmt: skip
