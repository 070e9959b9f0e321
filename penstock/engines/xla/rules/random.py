"""Random numbers: the Stateless* ops, by seed or by key and counter, and those of a generator that is a variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.engines.xla import philox
from penstock.engines.xla.checks import is_known, need
from penstock.engines.xla.philox import Stream
from penstock.engines.xla.rule import Var, jnp, lax, rule, static, static_ints, unreported
from penstock.engines.xla.values import size_of
from penstock.ops.philox import RESERVED_PER_OUTPUT

_ALGORITHMS = (1, 3)  # Philox, and whatever is best, which is Philox


def _sizes(shape: Any) -> tuple[int, ...]:
    sizes = static_ints(shape)
    need(np.ndim(shape) == 1 and all(n >= 0 for n in sizes), "no shape")
    return sizes


def _seeded(seed: Any) -> Stream:
    need(seed.shape == (2,) and seed.dtype.kind == "i", "no pair of seeds")
    return Stream.from_stateless_seed(seed)


def _keyed(key: Any, counter: Any, alg: Any) -> Stream:
    need(np.ndim(alg) == 0 and int(static(alg)) in _ALGORITHMS, "another algorithm than Philox")
    need(key.shape == (1,) and counter.ndim == 1 and counter.shape[0] >= 2, "no key and counter")
    return Stream.from_key_counter(key, counter)


# -- by seed, by key and counter --------------------------------------------------------------------------------------


def _attach(name: str, fill: Callable[..., Any]) -> None:
    def by_seed(shape: Any, seed: Any, *, dtype: DType) -> Any:
        return fill(_seeded(seed), _sizes(shape), dtype.np)

    def by_key(shape: Any, key: Any, counter: Any, alg: Any, *, dtype: DType) -> Any:
        return fill(_keyed(key, counter, alg), _sizes(shape), dtype.np)

    rule(f"Stateless{name}")(by_seed)
    rule(f"Stateless{name}V2")(by_key)


for _name, _fill in (
    ("RandomUniform", philox.uniform),
    ("RandomNormal", philox.normal),
    ("TruncatedNormal", philox.truncated_normal),
    ("RandomUniformFullInt", philox.full_int),
):
    _attach(_name, _fill)


def _integers(stream: Stream, sizes: tuple[int, ...], minval: Any, maxval: Any, dtype: DType) -> Any:
    need(np.ndim(minval) == np.ndim(maxval) == 0, "bounds that are no scalars")
    unreported(minval, maxval)
    if is_known(minval) and is_known(maxval):
        need(minval < maxval or 0 in sizes, "an empty range")
    return philox.uniform_int(stream, sizes, minval, maxval, dtype.np)


@rule("StatelessRandomUniformInt")
def stateless_uniform_int(shape: Any, seed: Any, minval: Any, maxval: Any, *, dtype: DType) -> Any:
    return _integers(_seeded(seed), _sizes(shape), minval, maxval, dtype)


@rule("StatelessRandomUniformIntV2")
def stateless_uniform_int_v2(shape: Any, key: Any, counter: Any, alg: Any, minval: Any, maxval: Any, *, dtype: DType) -> Any:
    return _integers(_keyed(key, counter, alg), _sizes(shape), minval, maxval, dtype)


@rule("StatelessRandomGetKeyCounter")
def key_and_counter(seed: Any) -> list[Any]:
    stream = _seeded(seed)
    return [stream.key.reshape(1), jnp.stack([stream.low, stream.high])]


@rule("StatelessRandomGetKeyCounterAlg")
def key_counter_and_algorithm(seed: Any) -> list[Any]:
    return [*key_and_counter(seed), np.asarray(_ALGORITHMS[0], np.int32)]


# -- a generator that is a variable -----------------------------------------------------------------------------------


def _advance(var: Var, algorithm: Any, blocks: Any) -> Stream:
    """The generator that the variable stands for; the variable moves on by `blocks` (uint64)."""
    need(np.ndim(algorithm) == 0 and int(static(algorithm)) in _ALGORITHMS, "another algorithm than Philox")
    state = jnp.asarray(var.value)
    need(state.dtype == np.int64 and state.ndim == 1 and state.shape[0] >= 3, "no state of a generator")
    words = lax.bitcast_convert_type(state, np.uint64)
    stream = Stream(words[2], words[0], words[1])
    later = stream.skip(blocks)
    moved = lax.bitcast_convert_type(jnp.stack([later.low, later.high]), np.int64)
    var.value = jnp.concatenate([moved, state[2:]])
    return stream


def _reserved(sizes: tuple[int, ...]) -> np.uint64:
    return np.uint64(size_of(sizes) * RESERVED_PER_OUTPUT)


def _from_variable(fill: Callable[..., Any]) -> Callable[..., Any]:
    def draw(var: Var, algorithm: Any, shape: Any, *, dtype: DType) -> Any:
        sizes = _sizes(shape)
        return fill(_advance(var, algorithm, _reserved(sizes)), sizes, dtype.np)

    return draw


for _name, _fill in (
    ("StatefulUniform", philox.uniform),
    ("StatefulStandardNormalV2", philox.normal),
    ("StatefulTruncatedNormal", philox.truncated_normal),
    ("StatefulUniformFullInt", philox.full_int),
):
    rule(_name)(_from_variable(_fill))


@rule("StatefulUniformInt")
def stateful_uniform_int(var: Var, algorithm: Any, shape: Any, minval: Any, maxval: Any, *, dtype: DType) -> Any:
    sizes = _sizes(shape)
    return _integers(_advance(var, algorithm, _reserved(sizes)), sizes, minval, maxval, dtype)


def _blocks(delta: Any) -> Any:
    need(np.ndim(delta) == 0, "no number to skip")
    return jnp.asarray(delta).astype(np.uint64) * np.uint64(RESERVED_PER_OUTPUT)


@rule("RngSkip")
def rng_skip(var: Var, algorithm: Any, delta: Any) -> None:
    _advance(var, algorithm, _blocks(delta))


@rule("RngReadAndSkip")
def rng_read_and_skip(var: Var, alg: Any, delta: Any) -> Any:
    stream = _advance(var, alg, _blocks(delta))
    return lax.bitcast_convert_type(jnp.stack([stream.low, stream.high, stream.key]), np.int64)
