"""Candidate samplers: classes to compare with the true ones, for losses over very many classes.

Each returns (sampled_candidates, true_expected_count, sampled_expected_count).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.api.export import export
from penstock.api.random_ops import seed_attrs
from penstock.graph.raw import raw


@export("random.uniform_candidate_sampler", "nn.uniform_candidate_sampler")
def uniform_candidate_sampler(true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int,
                              seed: int | None = None, name: str | None = None) -> Any:
    """Classes in [0, range_max), all alike; each at most once if `unique`."""
    return raw.UniformCandidateSampler(true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique, range_max=range_max,
                                       name=name, **seed_attrs(seed))


@export("random.log_uniform_candidate_sampler", "nn.log_uniform_candidate_sampler")
def log_uniform_candidate_sampler(true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int,
                                  seed: int | None = None, name: str | None = None) -> Any:
    """Classes by Zipf's law: right for classes sorted by falling frequency."""
    return raw.LogUniformCandidateSampler(true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique,
                                          range_max=range_max, name=name, **seed_attrs(seed))


@export("random.learned_unigram_candidate_sampler", "nn.learned_unigram_candidate_sampler")
def learned_unigram_candidate_sampler(true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int,
                                      seed: int | None = None, name: str | None = None) -> Any:
    """Classes as often as they were among the true classes of earlier steps."""
    return raw.LearnedUnigramCandidateSampler(true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique,
                                              range_max=range_max, name=name, **seed_attrs(seed))


@export("random.fixed_unigram_candidate_sampler", "nn.fixed_unigram_candidate_sampler")
def fixed_unigram_candidate_sampler(true_classes: Any, num_true: int, num_sampled: int, unique: bool, range_max: int,
                                    vocab_file: str = "", distortion: float = 1.0, num_reserved_ids: int = 0, num_shards: int = 1,
                                    shard: int = 0, unigrams: Sequence[float] = (), seed: int | None = None,
                                    name: str | None = None) -> Any:
    """Classes in proportion to `unigrams`, or to the last column of a CSV file, raised to the power `distortion`."""
    return raw.FixedUnigramCandidateSampler(
        true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique, range_max=range_max, vocab_file=vocab_file,
        distortion=distortion, num_reserved_ids=num_reserved_ids, num_shards=num_shards, shard=shard, unigrams=list(unigrams),
        name=name, **seed_attrs(seed))


@export("random.all_candidate_sampler", "nn.all_candidate_sampler")
def all_candidate_sampler(true_classes: Any, num_true: int, num_sampled: int, unique: bool, seed: int | None = None,
                          name: str | None = None) -> Any:
    """All classes in [0, num_sampled): turns a sampled loss into the full one, for tests."""
    return raw.AllCandidateSampler(true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique, name=name,
                                   **seed_attrs(seed))


@export("nn.compute_accidental_hits")
def compute_accidental_hits(true_classes: Any, sampled_candidates: Any, num_true: int, seed: int | None = None,
                            name: str | None = None) -> Any:
    """Where sampled candidates happen to be true classes: (indices of the row, ids of the candidate, weights of -FLT_MAX)."""
    return raw.ComputeAccidentalHits(true_classes, sampled_candidates, num_true=num_true, name=name, **seed_attrs(seed))
