"""Random numbers that are a function of their inputs: the Stateless* ops, by seed or by key and counter."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.ops import philox
from penstock.ops.declare import NOT_DIFFERENTIABLE, op, scalar, with_rank
from penstock.ops.kernels import samplers
from penstock.ops.philox import Philox
from penstock.ops.random import (
    LOGIT_SAMPLES,
    LOGITS,
    RATES,
    count_elements,
    draw_classes,
    integer_bounds,
    multinomial_shape,
    random_int_shape,
    random_shape,
    shape_vector,
)  # fmt: skip
from penstock.ops.samples import arr, normal, strings
from penstock.shapes import Dims, format_dims, merge_dim

# -- where the numbers come from --------------------------------------------------------------------------------------


def stateless_generator(seed: Any) -> Philox:
    if np.ndim(seed) != 1 or np.size(seed) != 2:
        raise InvalidArgumentError(f"seed must have shape [2], not {format_dims(np.shape(seed))}")
    if seed.dtype.kind == "u":
        raise InvalidArgumentError(f"Invalid seed type: {seed.dtype.name}")
    return Philox.from_stateless_seed(seed)


def keyed_generator(key: Any, counter: Any, alg: Any) -> Philox:
    if np.ndim(alg):
        raise InvalidArgumentError(f"input 3 (0-based) must have shape [], not {format_dims(np.shape(alg))}")
    if int(alg) not in (_PHILOX, _AUTO_SELECT):
        raise InvalidArgumentError(f"Unsupported algorithm id: {int(alg)}")
    if np.shape(key) != (1,):
        raise InvalidArgumentError(f"key must have shape [1], not {format_dims(np.shape(key))}")
    if np.ndim(counter) != 1 or len(counter) < 2:
        raise InvalidArgumentError(
            f"counter must be a vector with length at least 2; got shape: {format_dims(np.shape(counter))}."
            " (Note that batched counters are not supported yet.)")
    return Philox.from_key_counter(key, counter)


_PHILOX, _AUTO_SELECT = 1, 3


def _seed_dims(c: Any, name: str = "seed") -> None:
    dims = with_rank(c, c.arg(name)[0], 1)
    merge_dim(dims[0], 2)


def stateless_shape(c: Any) -> Dims:
    _seed_dims(c)
    return random_shape(c)


def stateless_int_shape(c: Any) -> Dims:
    _seed_dims(c)
    return random_int_shape(c)


def keyed_shape(c: Any) -> Dims:
    merge_dim(with_rank(c, c.arg("key")[0], 1)[0], 1)
    with_rank(c, c.arg("counter")[0], 1)
    with_rank(c, c.arg("alg")[0], 0)
    return random_shape(c)


def keyed_int_shape(c: Any) -> Dims:
    keyed_shape(c)
    return random_int_shape(c)


def _by_seed(fill: Any) -> Any:
    def kernel(shape: Any, seed: Any, *, dtype: DType) -> np.ndarray:
        return fill(stateless_generator(seed), shape_vector(shape), dtype.np)

    return kernel


def _by_key(fill: Any) -> Any:
    def kernel(shape: Any, key: Any, counter: Any, alg: Any, *, dtype: DType) -> np.ndarray:
        return fill(keyed_generator(key, counter, alg), shape_vector(shape), dtype.np)

    return kernel


def stateless_int_kernel(shape: Any, seed: Any, minval: Any, maxval: Any, *, dtype: DType) -> np.ndarray:
    gen, sizes = stateless_generator(seed), shape_vector(shape)
    if not count_elements(sizes):
        return np.empty(sizes, dtype.np)
    return philox.uniform_int(gen, sizes, *integer_bounds(minval, maxval), dtype.np)


def keyed_int_kernel(shape: Any, key: Any, counter: Any, alg: Any, minval: Any, maxval: Any, *, dtype: DType) -> np.ndarray:
    gen, sizes = keyed_generator(key, counter, alg), shape_vector(shape)
    if not count_elements(sizes):
        return np.empty(sizes, dtype.np)
    return philox.uniform_int(gen, sizes, *integer_bounds(minval, maxval), dtype.np)


_BY_SEED = "T: type in {int32, int64} = int32; Tseed: type in {int32, int64} = int64"
_BY_KEY = "Tshape: type in {int32, int64} = int32"
_SOME_FLOAT = "dtype: type in {half, bfloat16, float, double} = float"
_SEED_SAMPLES = [dict(shape=arr([3, 5]), seed=arr([1, 2])), dict(shape=arr([]), seed=arr([-1, 0])), dict(shape=arr([0]), seed=arr([7, 7]))]
_SEED_ERRORS = [(dict(shape=[2], seed=np.array([1, 2, 3])), InvalidArgumentError, "seed must have shape|Dimension must be 2|must be equal")]
_KEY = dict(key=arr([0x123456789ABCDEF], np.uint64), counter=arr([5, 6], np.uint64), alg=arr(1, np.int32))
_KEY_SAMPLES = [dict(shape=arr([3, 5]), **_KEY), dict(shape=arr([0]), **_KEY),
                dict(shape=arr([9]), key=_KEY["key"], counter=arr([2**64 - 1, 2**64 - 1], np.uint64), alg=arr(3, np.int32))]
_KEY_ERRORS = [(dict(shape=[2], key=np.array([1], np.uint64), counter=np.array([1, 2], np.uint64), alg=np.int32(2)),
                InvalidArgumentError, "Unsupported algorithm id: 2")]

for _name, _fill in (("RandomUniform", philox.uniform), ("RandomNormal", philox.normal), ("TruncatedNormal", philox.truncated_normal)):
    op(f"Stateless{_name}(shape: T, seed: Tseed) -> (output: dtype) [{_SOME_FLOAT}; {_BY_SEED}]",
       shape=stateless_shape, numpy=_by_seed(_fill), grad=NOT_DIFFERENTIABLE, host_memory=["shape", "seed"],
       samples=_SEED_SAMPLES, errors=_SEED_ERRORS)  # fmt: skip
    op(f"Stateless{_name}V2(shape: Tshape, key: uint64, counter: uint64, alg: int32) -> (output: dtype) [{_SOME_FLOAT}; {_BY_KEY}]",
       shape=keyed_shape, numpy=_by_key(_fill), grad=NOT_DIFFERENTIABLE, host_memory=["shape", "alg"],
       samples=_KEY_SAMPLES, errors=_KEY_ERRORS)  # fmt: skip

op("StatelessRandomUniformInt(shape: T, seed: Tseed, minval: dtype, maxval: dtype) -> (output: dtype)"
   " [dtype: type in {int32, int64}; T: type in {int32, int64}; Tseed: type in {int32, int64} = int64]",
   shape=stateless_int_shape, numpy=stateless_int_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["shape", "seed", "minval", "maxval"],
   samples=[dict(s, minval=arr(-3), maxval=arr(100)) for s in _SEED_SAMPLES],
   errors=[(dict(shape=[2], seed=np.array([1, 2]), minval=np.int32(5), maxval=np.int32(4)), InvalidArgumentError,
            "Need minval < maxval, got 5 >= 4")])  # fmt: skip

op("StatelessRandomUniformIntV2(shape: Tshape, key: uint64, counter: uint64, alg: int32, minval: dtype, maxval: dtype) -> (output: dtype)"
   f" [dtype: type in {{int32, int64, uint32, uint64}}; {_BY_KEY}]",
   shape=keyed_int_shape, numpy=keyed_int_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["shape", "alg", "minval", "maxval"],
   samples=[dict(s, minval=arr(-3), maxval=arr(100), dtype=t) for s in _KEY_SAMPLES for t in ("int32", "int64")], errors=_KEY_ERRORS[:0])  # fmt: skip

op("StatelessRandomUniformFullInt(shape: T, seed: Tseed) -> (output: dtype) [dtype: type in {int32, int64, uint32, uint64} = uint64;"
   " T: type in {int32, int64} = int32; Tseed: type in {int32, int64, uint32, uint64} = int64]",
   shape=stateless_shape, numpy=_by_seed(philox.full_int), grad=NOT_DIFFERENTIABLE, host_memory=["shape", "seed"],
   samples=[dict(s, Tseed=t) for s in _SEED_SAMPLES for t in ("int32", "int64")], errors=_SEED_ERRORS)  # fmt: skip

op("StatelessRandomUniformFullIntV2(shape: Tshape, key: uint64, counter: uint64, alg: int32) -> (output: dtype)"
   f" [dtype: type in {{int32, int64, uint32, uint64}} = uint64; {_BY_KEY}]",
   shape=keyed_shape, numpy=_by_key(philox.full_int), grad=NOT_DIFFERENTIABLE, host_memory=["shape", "alg"],
   samples=_KEY_SAMPLES, errors=_KEY_ERRORS)  # fmt: skip


def stateless_multinomial_kernel(logits: Any, num_samples: Any, seed: Any, *, output_dtype: DType) -> np.ndarray:
    gen = stateless_generator(seed)
    return draw_classes(lambda _: gen, logits, num_samples, output_dtype)


def stateless_multinomial_shape(c: Any) -> Dims:
    _seed_dims(c)
    return multinomial_shape(c)


op("StatelessMultinomial(logits: T, num_samples: int32, seed: Tseed) -> (output: output_dtype)"
   f" [{LOGITS.split(';')[0]}; Tseed: type in {{int32, int64}} = int64; {LOGITS.split('; ')[1]}]",
   shape=stateless_multinomial_shape, numpy=stateless_multinomial_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["num_samples", "seed"],
   samples=[dict(s, seed=arr([i, 5])) for i, s in enumerate(LOGIT_SAMPLES)])  # fmt: skip


def _samples_per_parameter(sizes: tuple[int, ...], parameter_dims: tuple[int, ...]) -> int:
    lead = len(sizes) - len(parameter_dims)
    if lead < 0 or sizes[lead:] != parameter_dims:
        raise InvalidArgumentError("Shape passed in must end with broadcasted shape.")
    return count_elements(sizes[:lead])


def _stateless_gamma(gen: Philox, sizes: tuple[int, ...], alpha: Any, dtype: DType) -> np.ndarray:
    alpha = np.asarray(alpha)
    if not count_elements(sizes):
        return np.empty(sizes, dtype.np)
    samples = _samples_per_parameter(sizes, alpha.shape)
    return samplers.gamma(gen, samples, alpha, dtype.np).reshape(sizes)


def stateless_gamma_kernel(shape: Any, seed: Any, alpha: Any, *, dtype: DType) -> np.ndarray:
    return _stateless_gamma(stateless_generator(seed), shape_vector(shape), alpha, dtype)


def keyed_gamma_kernel(shape: Any, key: Any, counter: Any, alg: Any, alpha: Any, *, dtype: DType) -> np.ndarray:
    return _stateless_gamma(keyed_generator(key, counter, alg), shape_vector(shape), alpha, dtype)


def stateless_gamma_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    moved = g.Mul(dy, g.RandomGammaGrad(op.alpha, op.outputs[0]))
    lead = g.Sub(g.Size(op.shape), g.Rank(op.alpha))
    return [None] * (len(op.inputs) - 1) + [g.Sum(moved, g.Range(0, lead, 1))]


_ALPHAS = dict(shape=arr([7, 3]), alpha=arr([0.5, 1.0, 3.0]))
_PARAMETER_ERRORS = "Shape passed in must end with broadcasted shape"

op("StatelessRandomGammaV2(shape: T, seed: Tseed, alpha: dtype) -> (output: dtype) [dtype: type in {half, float, double};"
   " T: type in {int32, int64}; Tseed: type in {int32, int64} = int64]",
   shape=stateless_shape, numpy=stateless_gamma_kernel, grad=stateless_gamma_grad, host_memory=["shape", "seed", "alpha"], expensive=True,
   samples=[dict(_ALPHAS, seed=arr([1, 2]))],
   errors=[(dict(shape=[3], seed=np.array([1, 2]), alpha=np.ones(2, np.float32)), InvalidArgumentError, _PARAMETER_ERRORS)])  # fmt: skip

op("StatelessRandomGammaV3(shape: shape_dtype, key: uint64, counter: uint64, alg: int32, alpha: dtype) -> (output: dtype)"
   " [dtype: type in {half, float, double}; shape_dtype: type in {int32, int64} = int32]",
   shape=keyed_shape, numpy=keyed_gamma_kernel, grad=stateless_gamma_grad, host_memory=["shape", "alg", "alpha"], expensive=True,
   samples=[dict(_ALPHAS, **_KEY)])  # fmt: skip


def stateless_poisson_kernel(shape: Any, seed: Any, lam: Any, *, dtype: DType) -> np.ndarray:
    gen, sizes, lam = stateless_generator(seed), shape_vector(shape), np.asarray(lam)
    if not count_elements(sizes):
        return np.empty(sizes, dtype.np)
    samples = _samples_per_parameter(sizes, lam.shape)
    return samplers.poisson(gen, samples, lam, dtype.np).reshape(sizes)


op("StatelessRandomPoisson(shape: T, seed: Tseed, lam: Rtype) -> (output: dtype) [Rtype: type in {half, float, double, int32, int64};"
   " dtype: type in {half, float, double, int32, int64}; T: type in {int32, int64}; Tseed: type in {int32, int64} = int64]",
   shape=stateless_shape, numpy=stateless_poisson_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["shape", "seed"], expensive=True,
   samples=[dict(shape=arr([9, 3]), seed=arr([1, 2]), lam=RATES, Rtype="float32", dtype="int32")],
   errors=[(dict(shape=[3], seed=np.array([1, 2]), lam=np.ones(2, np.float32), dtype="int32"), InvalidArgumentError, _PARAMETER_ERRORS)])  # fmt: skip


def stateless_binomial_kernel(shape: Any, seed: Any, counts: Any, probs: Any, *, dtype: DType) -> np.ndarray:
    gen, sizes = stateless_generator(seed), shape_vector(shape)
    try:
        n, p = np.broadcast_arrays(counts, probs)
    except ValueError:
        raise InvalidArgumentError("counts and probs must have compatible batch dimensions: "
                                   f"{format_dims(np.shape(counts))} vs. {format_dims(np.shape(probs))}") from None
    samples = _samples_per_parameter(sizes, n.shape)
    if not count_elements(sizes):
        return np.empty(sizes, dtype.np)
    return samplers.binomial(gen, samples, n, p, dtype.np).reshape(sizes)


op("StatelessRandomBinomial(shape: S, seed: Tseed, counts: T, probs: T) -> (output: dtype) [S: type in {int32, int64};"
   " Tseed: type in {int32, int64} = int64; T: type in {half, float, double, int32, int64} = double;"
   " dtype: type in {half, float, double, int32, int64} = int64]",
   shape=stateless_shape, numpy=stateless_binomial_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["shape", "seed"], expensive=True,
   samples=[dict(shape=arr([9, 2, 3]), seed=arr([1, 2]), counts=arr([[5.0], [200.0]]), probs=arr([0.1, 0.5, 0.9]), T="float64")])  # fmt: skip


def stateless_parameterized_kernel(shape: Any, seed: Any, means: Any, stddevs: Any, minvals: Any, maxvals: Any, *,
                                   dtype: DType) -> np.ndarray:
    gen, sizes = stateless_generator(seed), shape_vector(shape)
    try:
        parameters = np.broadcast_arrays(means, stddevs, minvals, maxvals)
    except ValueError:
        dims = " vs. ".join(format_dims(np.shape(p)) for p in (means, stddevs, minvals, maxvals))
        raise InvalidArgumentError(f"means, stddevs, minvals, maxvals must have compatible batch dimensions: {dims}") from None
    samples = _samples_per_parameter(sizes, parameters[0].shape)
    rows = parameters[0].size
    out = samplers.bounded_normals(gen, parameters, rows, samples, rows * samples, dtype.np).reshape(rows, samples)
    return out.T.reshape(sizes)


def bounded_normal_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    """Bounds move a sample by how near it is to them; mean and deviation move it as they move an unbounded one."""
    sample, mean, stddev = op.outputs[0], op.means, op.stddevs
    low, high, place = (g.RealDiv(g.Sub(value, mean), stddev) for value in (op.minvals, op.maxvals, sample))
    below = _normal_cdf(g, low)
    fraction = g.RealDiv(g.Sub(_normal_cdf(g, place), below), g.Sub(_normal_cdf(g, high), below))
    info = np.finfo(op.attr("dtype").as_numpy_dtype)
    fraction = g.Maximum(g.Minimum(fraction, 1 - info.eps), info.tiny)
    square = g.Square(place)
    to_low = g.Exp(g.AddV2(g.Mul(g.Sub(square, g.Square(low)), 0.5), g.Log1p(g.Neg(fraction))))
    to_high = g.Exp(g.AddV2(g.Mul(g.Sub(square, g.Square(high)), 0.5), g.Log(fraction)))
    moved = (dy, g.Mul(dy, place), g.Mul(dy, to_low), g.Mul(dy, to_high))
    full = g.Shape(sample)
    grads = []
    for parameter, change in zip((mean, stddev, op.minvals, op.maxvals), moved, strict=True):
        shape = g.Shape(parameter)
        grads.append(g.Reshape(g.Sum(change, g.BroadcastGradientArgs(full, shape)[1]), shape))
    return [None, None, *grads]


def _normal_cdf(g: Any, x: Any) -> Any:
    w = g.Mul(x, 0.5 * np.sqrt(2.0))
    far = g.Erfc(g.Abs(w))
    tail = g.SelectV2(g.Greater(w, 0.0), g.Sub(2.0, far), far)
    return g.Mul(g.SelectV2(g.Less(g.Abs(w), 0.5 * np.sqrt(2.0)), g.AddV2(g.Erf(w), 1.0), tail), 0.5)


op("StatelessParameterizedTruncatedNormal(shape: S, seed: Tseed, means: dtype, stddevs: dtype, minvals: dtype, maxvals: dtype)"
   " -> (output: dtype) [S: type in {int32, int64}; Tseed: type in {int32, int64} = int64; dtype: type in {half, float, double}]",
   shape=stateless_shape, numpy=stateless_parameterized_kernel, grad=bounded_normal_grad, host_memory=["shape", "seed", "means", "stddevs", "minvals", "maxvals"],
   samples=[dict(shape=arr([9, 2]), seed=arr([1, 2]), means=arr([0.0, 1.0]), stddevs=arr(1.0), minvals=arr(-1.0), maxvals=arr(2.0))])  # fmt: skip


# -- shuffles ---------------------------------------------------------------------------------------------------------


def stateless_shuffle_kernel(value: Any, key: Any, counter: Any, alg: Any) -> Any:
    gen = keyed_generator(key, counter, alg)
    if np.ndim(value) == 0 or np.size(value) <= 1 or len(value) <= 1:
        return value
    return samplers.shuffled(gen, value)


def stateless_shuffle_shape(c: Any) -> Dims:
    merge_dim(with_rank(c, 1, 1)[0], 1)
    with_rank(c, 2, 1)
    with_rank(c, 3, 0)
    return c.dims(0)


op("StatelessShuffle(value: T, key: uint64, counter: uint64, alg: int32) -> (output: T) [T: type]",
   shape=stateless_shuffle_shape, numpy=stateless_shuffle_kernel, host_memory=["alg"],
   samples=[dict(value=normal(9), **_KEY), dict(value=normal(5, 2), **_KEY), dict(value=strings(["a", "b", "c"]), **_KEY)])  # fmt: skip


def random_index_shuffle_kernel(index: Any, seed: Any, max_index: Any, *, rounds: int, dtype: DType) -> Any:
    if rounds < 4 or rounds % 2:
        raise InvalidArgumentError(f"rounds must be an even number of at least 4, got {rounds}")
    n = max(np.size(index), np.size(max_index), np.size(seed) // 3)
    if np.ndim(index) > 1 or (np.ndim(index) == 1 and np.size(index) != n):
        raise InvalidArgumentError("Index bust be a scalar or vector.")
    if np.shape(seed) != (3,) and np.shape(seed) != (n, 3):
        raise InvalidArgumentError(f"Seed must be a vector of size [3] or a matrix of size [{n}, 3] but got {format_dims(np.shape(seed))}.")
    if np.ndim(max_index) > 1 or (np.ndim(max_index) == 1 and np.size(max_index) != n):
        raise InvalidArgumentError("Maxval must be a scalar or a vector of the same size as index but got "
                                   f"{format_dims(np.shape(max_index))}")
    alone = np.ndim(index) == 0 and np.ndim(seed) == 1 and np.ndim(max_index) == 0
    keys = np.broadcast_to(np.asarray(seed).astype(np.uint32), (n, 3))
    indices, limits = (np.broadcast_to(np.asarray(v).astype(np.uint64), (n,)) for v in (index, max_index))
    moved = samplers.index_shuffle(indices, keys.astype(np.uint64), limits, rounds).astype(dtype.np)
    return moved[0] if alone else moved


def random_index_shuffle_shape(c: Any) -> Dims:
    index, seed, limit = c.dims(0), c.dims(1), c.dims(2)
    for dims, what in ((index, "Index"), (limit, "Maxval")):
        if dims is not None and len(dims) > 1:
            raise ValueError(f"{what} must be a scalar or vector.")
    if seed is not None and (len(seed) not in (1, 2) or seed[-1] not in (3, None)):
        raise ValueError(f"Seed must have shape [3] or [n, 3] but got {format_dims(seed)}.")
    if index is None or seed is None or limit is None:
        return None
    lengths = [dims[0] for dims, rank in ((index, 0), (seed, 1), (limit, 0)) if len(dims) > rank]
    if not lengths:
        return ()
    length = None
    for size in lengths:
        length = merge_dim(length, size)
    return (length,)


op("RandomIndexShuffle(index: dtype, seed: Tseed, max_index: dtype) -> (output: dtype) [rounds: int = 4;"
   " dtype: type in {int32, uint32, int64, uint64}; Tseed: type in {int32, uint32, int64, uint64}]",
   shape=random_index_shuffle_shape, numpy=random_index_shuffle_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(index=arr(3), seed=arr([1, 2, 3]), max_index=arr(10)), dict(index=arr([0, 1, 2, 3]), seed=arr([7, 8, 9]), max_index=arr(3)),
            dict(index=arr([5, 70000]), seed=arr([[1, 2, 3], [4, 5, 6]]), max_index=arr([9, 100000]), rounds=8)])  # fmt: skip


# -- keys and counters ------------------------------------------------------------------------------------------------


def _key_and_counter(seed: Any) -> tuple[np.ndarray, np.ndarray]:
    gen = stateless_generator(seed)
    return np.array([gen.key], np.uint64), np.array([gen.counter & (1 << 64) - 1, gen.counter >> 64], np.uint64)


def key_counter_shape(c: Any) -> list[Dims]:
    _seed_dims(c)
    return [(1,), (2,), ()][:len(c.op.outputs)]


_SEED_ONLY = [dict(seed=arr([1, 2])), dict(seed=arr([-1, 1 << 30]))]

op("StatelessRandomGetKeyCounter(seed: Tseed) -> (key: uint64, counter: uint64) [Tseed: type in {int32, int64} = int64]",
   shape=key_counter_shape, numpy=_key_and_counter, host_memory=["seed", "key", "counter"], samples=_SEED_ONLY)  # fmt: skip

op("StatelessRandomGetKeyCounterAlg(seed: Tseed) -> (key: uint64, counter: uint64, alg: int32) [Tseed: type in {int32, int64} = int64]",
   shape=key_counter_shape, numpy=lambda seed: (*_key_and_counter(seed), np.int32(_PHILOX)),
   host_memory=["seed", "key", "counter", "alg"], samples=_SEED_ONLY)  # fmt: skip

op("StatelessRandomGetAlg() -> (alg: int32) stateful", shape=scalar, numpy=lambda: np.int32(_PHILOX), host_memory=["alg"], samples=[dict()])
