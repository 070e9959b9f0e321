"""Candidate samplers: classes drawn from a known distribution, with the number of times each is expected to appear.

A sampler turns the Philox stream `gen` (`words`, `skip`) into an endless row of classes (`classes`) and knows the probability of each
(`probability`). `sample` takes the first of that row, all of them or only the new ones, as TensorFlow does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError, NotFoundError
from penstock.forks import renewed
from penstock.ops.philox import float64_of
from penstock.ops.read_ahead import Begun


def sample(sampler: Any, gen: Any, n: int, unique: bool) -> tuple[np.ndarray, int]:
    """n classes of the sampler's row, each once if `unique`; and how many of the row it took."""
    if unique:
        return _new_ones(sampler, gen, n)
    seen = np.empty(0, np.int64)
    for drawn in sampler.classes(gen, n):
        seen = np.concatenate([seen, drawn])
        if seen.size >= n:
            break
    return seen[:n], n


def _new_ones(sampler: Any, gen: Any, n: int) -> tuple[np.ndarray, int]:
    """The first n different classes. A set, as in TF: most rows are short."""
    seen: dict[int, None] = {}
    tries = 0
    for drawn in sampler.classes(gen, n):
        numbers, at = drawn.tolist(), 0
        while at < len(numbers):
            some = numbers[at : at + n - len(seen)]  # only the last of these can be the last that is missing
            seen.update(dict.fromkeys(some))
            at += len(some)
            if len(seen) == n:
                return np.fromiter(seen, np.int64, n), tries + at
        tries += at
    raise AssertionError("a sampler's row of classes does not end")


def expected_count(sampler: Any, classes: np.ndarray, n: int, tries: int) -> np.ndarray:
    """How often each of these is expected among n classes that took `tries` draws, in float32."""
    if tries == n:
        return sampler.probability(classes).astype(np.float32) * np.float32(n)
    log = sampler.log_of_others(classes) * np.float32(tries)
    return -np.expm1(log.astype(np.float64)).astype(np.float32)


def _log_of_others(probability: np.ndarray) -> np.ndarray:
    """log(1 - p) in float32, by float64's function: that comes closest to the C library's float32 log1p."""
    return np.log1p(-probability.astype(np.float32).astype(np.float64)).astype(np.float32)


MOST_KNOWN = 1 << 16
"""Classes whose logarithms are kept."""


class _Fixed:
    """What samplers have in common whose probabilities do not change."""

    range: int
    _logs: np.ndarray | None = None

    def probability(self, classes: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def log_of_others(self, classes: np.ndarray) -> np.ndarray:
        """log(1 - p) of each class."""
        if self.range > MOST_KNOWN:
            return _log_of_others(self.probability(classes))
        if self._logs is None:
            self._logs = _log_of_others(self.probability(np.arange(self.range)))
        return self._logs.take(classes)


def blocks_for(n: int) -> int:
    """How much of the stream is looked at in one go: about enough for n draws."""
    return max(64, n)


def _words(gen: Any, n: int) -> Iterator[np.ndarray]:
    """The stream in pieces of an even number of words."""
    blocks = blocks_for(n)
    while True:
        yield gen.words(4 * blocks)
        gen = gen.skip(blocks)


def _kept(words: np.ndarray, n: int) -> np.ndarray:
    """Words from which `word % n` is exactly uniform: TensorFlow draws again below 2**bits mod n."""
    if n & (n - 1) == 0:
        return words
    limit = np.iinfo(words.dtype).max
    return words[words >= words.dtype.type(limit % n + 1)]


def _pieces(sampler: Any, gen: Any, n: int) -> Iterator[np.ndarray]:
    """What the sampler makes of the stream, piece by piece; of its beginning perhaps it has been made before."""
    if isinstance(gen, Begun):
        yield gen.first
        gen = gen.skip(blocks_for(n))
    for words in _words(gen, n):
        yield sampler.of_words(words)


class UniformSampler(_Fixed):
    """Every class in [0, range) alike."""

    def __init__(self, range_max: int) -> None:
        self.range = range_max

    def classes(self, gen: Any, n: int) -> Iterator[np.ndarray]:
        for words in _words(gen, n):
            yield (_kept(words.view(np.uint64), self.range) % np.uint64(self.range)).astype(np.int64)

    def probability(self, classes: np.ndarray) -> np.ndarray:
        return np.full(classes.shape, 1.0 / self.range, np.float32)


class LogUniformSampler(_Fixed):
    """Class k with a probability near 1 / (k + 1): for classes sorted by falling frequency."""

    def __init__(self, range_max: int) -> None:
        self.range = range_max
        self._log_range = np.log1p(np.float64(range_max))

    def classes(self, gen: Any, n: int) -> Iterator[np.ndarray]:
        return _pieces(self, gen, n)

    def of_words(self, words: np.ndarray) -> np.ndarray:
        """A class for every two words of a row."""
        pairs = words.astype(np.uint64)
        u = float64_of(pairs[..., 0::2], pairs[..., 1::2])
        return (np.exp(u * self._log_range).astype(np.int64) - 1) % self.range

    def probability(self, classes: np.ndarray) -> np.ndarray:
        return np.log((classes + 2.0) / (classes + 1.0)) / self._log_range


class UnigramSampler:
    """Classes in proportion to how often they were true so far, counting from one."""

    def __init__(self, range_max: int) -> None:
        self.range = range_max
        self._lock = renewed(threading.Lock())
        self._weights = np.ones(range_max, np.int64)

    def classes(self, gen: Any, n: int) -> Iterator[np.ndarray]:
        with self._lock:
            limits = np.cumsum(self._weights)
        total = int(limits[-1])
        for words in _words(gen, n):
            yield np.searchsorted(limits, (_kept(words, total) % np.uint32(total)).astype(np.int64), side="right")

    def probability(self, classes: np.ndarray) -> np.ndarray:
        with self._lock:
            return self._weights[classes].astype(np.float32) / np.float32(self._weights.sum())

    def log_of_others(self, classes: np.ndarray) -> np.ndarray:
        return _log_of_others(self.probability(classes))

    def update(self, classes: np.ndarray) -> None:
        with self._lock:
            room = 2**31 - 1 - int(self._weights.sum())
            np.add.at(self._weights, classes.reshape(-1)[:room], 1)


class FixedUnigramSampler(_Fixed):
    """Classes in proportion to given weights, raised to the power `distortion`; drawn by the alias method."""

    def __init__(self, range_max: int, weights: np.ndarray, distortion: float, reserved: int, shards: int, shard: int) -> None:
        self.range = range_max
        mine = np.zeros(sum(word % shards == shard for word in range(reserved)), np.float32)
        word = np.arange(mine.size, mine.size + weights.size)
        counted = (weights[word % shards == shard].astype(np.float64) ** np.float32(distortion)).astype(np.float32)
        self._weights = np.concatenate([mine, counted])
        self._total = counted.sum(dtype=np.float64)
        if self._weights.size != range_max:
            raise InvalidArgumentError(f"range is {range_max} must be equal to weights size  {self._weights.size}")
        self._keep, self._alias = _alias_table(self._weights)

    def classes(self, gen: Any, n: int) -> Iterator[np.ndarray]:
        size = self.range
        rejected = 0 if size & (size - 1) == 0 else (2**32 - 1) % size + 1
        carried = np.empty(0, np.uint32)
        for words in _words(gen, n):
            words = np.concatenate([carried, words])
            pairs = words[:words.size // 2 * 2].reshape(-1, 2)
            slips = np.flatnonzero(pairs[:, 1] < rejected)
            used = pairs.size
            if slips.size:  # that draw takes one more word, and shifts all later ones
                pairs = pairs[:slips[0]]
                used = pairs.size
            carried = words[used:]
            if slips.size:
                carried = np.delete(carried, 1)
            mantissa = (pairs[:, 0] & np.uint32(0x7FFFFF)) | np.uint32(0x3F800000)
            u = mantissa.view(np.float32) - np.float32(1)
            slot = (pairs[:, 1] % np.uint32(size)).astype(np.int64)
            yield np.where(u < self._keep[slot], slot, self._alias[slot])

    def probability(self, classes: np.ndarray) -> np.ndarray:
        return self._weights[classes] / self._total


def _alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each slot the chance to stay in it, and where to go else."""
    n = weights.size
    share = (weights * np.float32(n)).astype(np.float64) / weights.astype(np.float64).sum()
    alias = np.full(n, -1, np.int64)
    low, high = [i for i in range(n) if share[i] < 1.0], [i for i in range(n) if not share[i] < 1.0]
    while high and low:
        small, large = low.pop(), high.pop()
        alias[small] = large
        share[large] -= 1.0 - share[small]
        (low if share[large] < 1.0 else high).append(large)
    keep = share.astype(np.float32)
    keep[high], keep[low] = 1.0, 1.0  # what rounding left over
    alias[high], alias[low] = high, low
    return keep, alias


def read_vocabulary(path: str) -> np.ndarray:
    """Weights of a vocabulary file: the last comma-separated field of each line."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        raise NotFoundError(f"{path}; No such file or directory") from None
    weights = []
    for line in lines:
        try:
            weights.append(float(line.split(",")[-1]))
        except ValueError:
            raise InvalidArgumentError(f"Wrong vocabulary format at line: {line}") from None
    return np.array(weights, np.float32)
