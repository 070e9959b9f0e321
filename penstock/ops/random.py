"""Random numbers that go on: each run of an op continues where its last one stopped. (`stateless_random` has the others.)

Seeds give TensorFlow's own numbers; see `philox`. A stateful op keeps its generator in its kernel state, so a session
repeats a stream from its start only for a new session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.ops import philox, read_ahead
from penstock.ops.declare import NOT_DIFFERENTIABLE, broadcast, op, same_as, with_rank
from penstock.ops.kernels import samplers
from penstock.ops.kernels.gamma_derivative import gamma_sample_derivative
from penstock.ops.philox import Philox, PhiloxState
from penstock.ops.samples import arr, empty, normal, strings, uniform
from penstock.shapes import Dims, concat_dims, format_dims

# -- what the kernels share -------------------------------------------------------------------------------------------


def generator(state: Any, seed: int, seed2: int) -> PhiloxState:
    """The node's generator; made at its first run."""
    found = state.__dict__.get("philox")
    # setdefault: two steps may meet here for the first time
    return found if found is not None else state.__dict__.setdefault("philox", PhiloxState(seed, seed2))


def shape_vector(shape: np.ndarray) -> tuple[int, ...]:
    """The value of a `shape` input."""
    if np.ndim(shape) != 1:
        raise InvalidArgumentError(
            f"shape must be a vector of {{int32,int64}}, got shape {format_dims(np.shape(shape))}")
    sizes = tuple(shape.tolist())
    for size in sizes:
        if size < 0:
            raise InvalidArgumentError(f"Dimension {size} must be >= 0")
    return sizes


def count_elements(sizes: tuple[int, ...]) -> int:
    n = 1
    for size in sizes:
        n *= size
    if n >= 1 << 63:
        raise InvalidArgumentError(f"Shape {format_dims(sizes)} would have more than 2**63 - 1 elements")
    return n


def integer_bounds(minval: Any, maxval: Any) -> tuple[int, int]:
    for name, value in (("minval", minval), ("maxval", maxval)):
        if np.ndim(value):
            raise InvalidArgumentError(f"{name} must be 0-D, got shape {format_dims(np.shape(value))}")
    low, high = int(minval), int(maxval)
    if low >= high:
        raise InvalidArgumentError(f"Need minval < maxval, got {low} >= {high}")
    return low, high


def random_shape(c: Any) -> Dims:
    with_rank(c, 0, 1)
    return c.const_dims(0)


def random_int_shape(c: Any) -> Dims:
    for name in ("minval", "maxval"):
        dims = c.dims(c.arg(name)[0])
        if dims:
            raise ValueError(f"{name} must be a scalar; got a tensor of shape {format_dims(dims)}")
    return random_shape(c)


# -- uniform and normal -----------------------------------------------------------------------------------------------


def random_uniform_kernel(shape: Any, *, dtype: DType, seed: int, seed2: int, state: Any) -> np.ndarray:
    sizes = shape_vector(shape)
    n = count_elements(sizes)
    gen = generator(state, seed, seed2).reserve_outputs(n)
    found = read_ahead.floats(state, gen, sizes, n, dtype.np, philox._UNIFORM) if n <= 4 else None
    return philox.uniform(gen, sizes, dtype.np) if found is None else found


def random_normal_kernel(shape: Any, *, dtype: DType, seed: int, seed2: int, state: Any) -> np.ndarray:
    sizes = shape_vector(shape)
    n = count_elements(sizes)
    gen = generator(state, seed, seed2).reserve_outputs(n)
    found = read_ahead.floats(state, gen, sizes, n, dtype.np, philox._NORMAL) if n <= 4 else None
    return philox.normal(gen, sizes, dtype.np) if found is None else found


def truncated_normal_kernel(shape: Any, *, dtype: DType, seed: int, seed2: int, state: Any) -> np.ndarray:
    sizes = shape_vector(shape)
    return philox.truncated_normal(generator(state, seed, seed2).reserve_outputs(count_elements(sizes)), sizes, dtype.np)


def random_uniform_int_kernel(shape: Any, minval: Any, maxval: Any, *, Tout: DType, seed: int, seed2: int,
                              state: Any) -> np.ndarray:
    sizes = shape_vector(shape)
    n = count_elements(sizes)
    if n == 0:
        return np.empty(sizes, Tout.np)
    low, high = integer_bounds(minval, maxval)
    gen = generator(state, seed, seed2).reserve_outputs(n)
    found = read_ahead.ints(state, gen, sizes, n, low, high, Tout.np) if n <= 4 else None
    return philox.uniform_int(gen, sizes, low, high, Tout.np) if found is None else found


_SEEDS = "seed: int = 0; seed2: int = 0"
_FLOATS = "dtype: type in {half, bfloat16, float, double}; T: type in {int32, int64}"
_SHAPES = [dict(shape=arr([3, 5]), seed=1, seed2=2), dict(shape=arr([]), seed=3), dict(shape=arr([0, 2]), seed2=4),
           dict(shape=arr([70001]), seed=-5, seed2=1 << 40)]
_BAD_SHAPES = [
    (dict(shape=[[1]], dtype="float32"), InvalidArgumentError, r"shape must be a vector of \{int32,int64\}, got shape \[1,1\]"
     "|Shape must be rank 1 but is rank 2"),
    (dict(shape=[-1], dtype="float32"), InvalidArgumentError, r"Dimension -1 must be >= 0"),
]

op(f"RandomUniform(shape: T) -> (output: dtype) [{_SEEDS}; {_FLOATS}] stateful",
   shape=random_shape, numpy=random_uniform_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["shape"],
   samples=_SHAPES, errors=_BAD_SHAPES)  # fmt: skip

op(f"RandomStandardNormal(shape: T) -> (output: dtype) [{_SEEDS}; {_FLOATS}] stateful",
   shape=random_shape, numpy=random_normal_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["shape"],
   samples=_SHAPES, errors=_BAD_SHAPES)  # fmt: skip

op(f"TruncatedNormal(shape: T) -> (output: dtype) [{_SEEDS}; {_FLOATS}] stateful",
   shape=random_shape, numpy=truncated_normal_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["shape"],
   samples=_SHAPES, errors=_BAD_SHAPES)  # fmt: skip

op("RandomUniformInt(shape: T, minval: Tout, maxval: Tout) -> (output: Tout)"
   f" [{_SEEDS}; Tout: type in {{int32, int64}}; T: type in {{int32, int64}}] stateful",
   shape=random_int_shape, numpy=random_uniform_int_kernel, host_memory=["shape", "minval", "maxval"],
   samples=[dict(shape=arr([3, 5]), minval=arr(-3), maxval=arr(10), seed=1, seed2=2),
            dict(shape=arr([0]), minval=arr(3), maxval=arr(3), seed=1),
            dict(shape=arr([7]), minval=arr(-(2**31)), maxval=arr(2**31 - 1), seed=3)],
   errors=[(dict(shape=[2], minval=np.int32(5), maxval=np.int32(5)), InvalidArgumentError,
            "Need minval < maxval, got 5 >= 5")])  # fmt: skip


def parameterized_truncated_normal_kernel(shape: Any, means: Any, stdevs: Any, minvals: Any, maxvals: Any, *,
                                          dtype: DType, seed: int, seed2: int, state: Any) -> np.ndarray:
    if np.ndim(shape) != 1:
        raise InvalidArgumentError(f"Input shape should be a vector, got shape: {format_dims(np.shape(shape))}")
    if not np.size(shape):
        raise InvalidArgumentError("Shape tensor must not be empty, got []")
    sizes = shape_vector(shape)
    n, rows = count_elements(sizes), sizes[0]
    per_row = n // rows if rows else 0
    parameters = [np.asarray(p) for p in (means, stdevs, minvals, maxvals)]
    for name, p in zip(("means", "stddevs", "minvals", "maxvals"), parameters, strict=True):
        if p.ndim > 1:
            raise InvalidArgumentError(f"Input {name} should be a scalar or vector, got shape: {format_dims(p.shape)}")
    if parameters[0].size == 1 and parameters[1].size == 1 and not parameters[2].ndim and not parameters[3].ndim:
        per_row, rows = 100, -(-n // 100)  # one distribution for all: TensorFlow cuts it into rows of its own
    else:
        for name, p in zip(("means", "stddevs", "minvals", "maxvals"), parameters, strict=True):
            if p.ndim and p.size not in (1, rows):
                raise InvalidArgumentError(f"Input {name} should have length 1 or shape[0], got shape: {format_dims(p.shape)}")
    gen = generator(state, seed, seed2).reserve(rows * 2000 * (per_row + 3) // 4)
    out = samplers.bounded_normals(gen, parameters, rows, per_row, n, dtype.np)
    return out.reshape(sizes)


def parameterized_shape(c: Any) -> Dims:
    for i in range(1, 5):
        dims = c.dims(i)
        if dims is not None and len(dims) > 1:
            raise ValueError(f"Shape must be at most rank 1 but is rank {len(dims)}")
    return random_shape(c)


op("ParameterizedTruncatedNormal(shape: T, means: dtype, stdevs: dtype, minvals: dtype, maxvals: dtype) -> (output: dtype)"
   f" [{_SEEDS}; {_FLOATS}] stateful",
   shape=parameterized_shape, numpy=parameterized_truncated_normal_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["shape"],
   samples=[dict(shape=arr([120]), means=arr(0.5), stdevs=arr(2.0), minvals=arr(-2.0), maxvals=arr(2.5), seed=1, seed2=2, dtype="float32"),
            dict(shape=arr([2, 3]), means=arr([0.0, 1.0]), stdevs=arr(1.0), minvals=arr(2.0), maxvals=arr(9.0), seed=3, dtype="float64")],
   errors=[(dict(shape=[2], means=np.float32(0), stdevs=np.float32(-1), minvals=np.float32(0), maxvals=np.float32(1)),
            InvalidArgumentError, "Invalid parameters")])  # fmt: skip


# -- discrete choices -------------------------------------------------------------------------------------------------


def draw_classes(reserve: Callable[[int], Philox], logits: Any, num_samples: Any, dtype: DType) -> np.ndarray:
    if np.ndim(logits) != 2:
        raise InvalidArgumentError(f"logits should be a matrix, got shape {format_dims(np.shape(logits))}")
    if np.ndim(num_samples):
        raise InvalidArgumentError(f"num_samples should be a scalar, got shape {format_dims(np.shape(num_samples))}")
    n = int(num_samples)
    if n < 0:
        raise InvalidArgumentError(f"num_samples should be non-negative, got {n}")
    rows, classes = logits.shape
    if classes == 0:
        raise InvalidArgumentError("num_classes should be positive, got 0")
    if rows * n == 0:
        return np.empty((rows, n), dtype.np)
    gen = reserve(rows * ((n + 3) // 4 * 4) * 2)
    return samplers.multinomial(gen, logits, n, dtype.np)


def multinomial_kernel(logits: Any, num_samples: Any, *, output_dtype: DType, seed: int, seed2: int, state: Any) -> np.ndarray:
    return draw_classes(generator(state, seed, seed2).reserve_outputs, logits, num_samples, output_dtype)


def multinomial_shape(c: Any) -> Dims:
    rows = with_rank(c, 0, 2)[0]
    with_rank(c, 1, 0)
    n = c.const(1)
    return rows, None if n is None else int(n)


LOGITS = ("T: type in {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64};"
           " output_dtype: type in {int32, int64} = int64")
LOGIT_SAMPLES = [dict(logits=normal(5, 4), num_samples=arr(7), T="float32"), dict(logits=normal(2, 3), num_samples=arr(40), T="float64"),
                  dict(logits=arr([[-np.inf, 0.0, 2.0]]), num_samples=arr(9), output_dtype="int32", T="half"),
                  dict(logits=normal(2, 3), num_samples=arr(0), T="bfloat16")]  # fmt: skip

op(f"Multinomial(logits: T, num_samples: int32) -> (output: output_dtype) [{_SEEDS}; {LOGITS}] stateful",
   shape=multinomial_shape, numpy=multinomial_kernel, grad=NOT_DIFFERENTIABLE, host_memory=["num_samples"],
   samples=[dict(s, seed=i + 1, seed2=i) for i, s in enumerate(LOGIT_SAMPLES)],
   errors=[(dict(logits=np.zeros((1, 2), np.float32), num_samples=-1), InvalidArgumentError,
            "num_samples should be non-negative, got -1|must be >= 0")])  # fmt: skip


def random_shuffle_kernel(value: Any, *, seed: int, seed2: int, state: Any) -> Any:
    if np.ndim(value) == 0 or np.size(value) <= 1 or len(value) <= 1:
        return value
    gen = generator(state, seed, seed2).reserve_words(len(value) - 1)
    return samplers.shuffled(gen, value)


op(f"RandomShuffle(value: T) -> (output: T) [{_SEEDS}; T: type] stateful",
   shape=same_as("value"), numpy=random_shuffle_kernel, grad=NOT_DIFFERENTIABLE,
   samples=[dict(value=normal(9), seed=1, seed2=2), dict(value=normal(5, 2, 3), seed=3), dict(value=normal(), seed=1),
            dict(value=empty(0, 3), seed=1), dict(value=strings(["a", "b", "c"]), seed=7)])  # fmt: skip


# -- gamma, Poisson, binomial -----------------------------------------------------------------------------------------


def random_gamma_kernel(shape: Any, alpha: Any, *, T: DType, seed: int, seed2: int, state: Any) -> np.ndarray:
    sizes = shape_vector(shape)
    alpha = np.asarray(alpha)
    samples = count_elements(sizes)
    out = sizes + alpha.shape
    if not samples * alpha.size:
        return np.empty(out, T.np)
    gen = generator(state, seed, seed2).reserve_outputs(samples * alpha.size)
    return samplers.gamma(gen, samples, alpha, T.np).reshape(out)


def random_poisson_kernel(shape: Any, rate: Any, *, dtype: DType, seed: int, seed2: int, state: Any) -> np.ndarray:
    sizes = shape_vector(shape)
    rate = np.asarray(rate)
    samples = count_elements(sizes)
    out = sizes + rate.shape
    if not samples * rate.size:
        return np.empty(out, dtype.np)
    gen = generator(state, seed, seed2).reserve_outputs(samples * rate.size)
    return samplers.poisson(gen, samples, rate, dtype.np).reshape(out)


def per_parameter_shape(c: Any) -> Dims:
    return concat_dims(random_shape(c), c.dims(1))


def random_gamma_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    moved = g.Mul(dy, g.RandomGammaGrad(op.alpha, op.outputs[0]))
    return [None, g.Sum(moved, g.Range(0, g.Size(op.shape), 1))]


op(f"RandomGamma(shape: S, alpha: T) -> (output: T) [{_SEEDS}; S: type in {{int32, int64}};"
   " T: type in {half, float, double}] stateful",
   shape=per_parameter_shape, numpy=random_gamma_kernel, grad=random_gamma_grad, host_memory=["shape"], expensive=True,
   samples=[dict(shape=arr([7]), alpha=arr([0.5, 1.0, 3.0]), seed=1, seed2=2), dict(shape=arr([2, 3]), alpha=arr(2.0), seed=3),
            dict(shape=arr([0]), alpha=arr([0.5]), seed=3), dict(shape=arr([2]), alpha=empty(0), seed=3)],
   errors=[(dict(shape=[-1], alpha=np.float32(1)), InvalidArgumentError, "Dimension -1 must be >= 0")])  # fmt: skip


def random_gamma_grad_kernel(alpha: Any, sample: Any, *, T: DType) -> Any:
    return gamma_sample_derivative(alpha, sample).astype(T.np)


op("RandomGammaGrad(alpha: T, sample: T) -> (output: T) [T: type in {float, double}]",
   shape=broadcast, numpy=random_gamma_grad_kernel, expensive=True,
   samples=[dict(alpha=uniform(3, 4, lo=0.1, hi=5.0), sample=uniform(3, 4, lo=0.01, hi=8.0)),
            dict(alpha=uniform(3, 1, lo=0.1, hi=5.0), sample=uniform(4, lo=0.01, hi=8.0))])  # fmt: skip

RATES = arr([0.5, 3.0, 25.0])

op(f"RandomPoisson(shape: S, rate: dtype) -> (output: dtype) [{_SEEDS}; S: type in {{int32, int64}};"
   " dtype: type in {half, float, double}] stateful deprecated@25",
   shape=per_parameter_shape, numpy=random_poisson_kernel, host_memory=["shape"], expensive=True)  # fmt: skip

op(f"RandomPoissonV2(shape: S, rate: R) -> (output: dtype) [{_SEEDS}; S: type in {{int32, int64}};"
   " R: type in {half, float, double, int32, int64} = double;"
   " dtype: type in {half, float, double, int32, int64} = int64] stateful",
   shape=per_parameter_shape, numpy=random_poisson_kernel, host_memory=["shape"], expensive=True,
   samples=[dict(shape=arr([9]), rate=RATES, seed=1, seed2=2), dict(shape=arr([2]), rate=RATES, seed=1, R="int32", dtype="float32"),
            dict(shape=arr([0]), rate=RATES, seed=1)])  # fmt: skip
