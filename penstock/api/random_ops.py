"""Random tensors: `tf.random_uniform`, `tf.random_normal` and their kin, and the seeds behind them.

An op's numbers follow from two seeds, the graph's (`tf.set_random_seed`) and its own (`seed=`):

- neither is given: other numbers in every session;
- only the op's: that seed and a fixed graph seed;
- only the graph's: each op gets the next number 0, 1, 2, ... of its graph as its own seed;
- both: both.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api.export import export, resolve
from penstock.api.framework import name_scope
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Graph, Tensor
from penstock.graph.raw import raw
from penstock.shapes import dimension_value

DEFAULT_GRAPH_SEED = 87654321
_MAX_SEED = 2**31 - 1

# How many ops of a graph took their seed from the graph's.
_seeds_given: weakref.WeakKeyDictionary[Graph, int] = weakref.WeakKeyDictionary()


@export("set_random_seed", "random.set_random_seed")
def set_random_seed(seed: int | None) -> None:
    """Sets the default graph's seed, so that its random ops give the same numbers in every new session.

    Ops with a `seed=` of their own combine it with the graph's; the others are numbered as they are made.
    """
    get_default_graph().seed = seed


@export("get_seed", "random.get_seed")
def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    """The two seeds for an op with seed `op_seed` in the default graph; (None, None) if nothing is seeded."""
    graph = get_default_graph()
    graph_seed = graph.seed
    if graph_seed is None:
        if op_seed is None:
            return None, None
        graph_seed = DEFAULT_GRAPH_SEED
    elif op_seed is None:
        op_seed = _seeds_given.get(graph, 0)
        _seeds_given[graph] = op_seed + 1
    seeds = graph_seed % _MAX_SEED, op_seed % _MAX_SEED
    # To the kernels two zeros mean "unseeded".
    return (0, _MAX_SEED) if seeds == (0, 0) else seeds


def seed_attrs(op_seed: int | None) -> dict[str, int | None]:
    """The seed attributes of an op."""
    seed, seed2 = get_seed(op_seed)
    return {"seed": seed, "seed2": seed2}


def shape_tensor(shape: Any) -> Tensor:
    """A shape argument as an int32 or int64 vector called `shape`."""
    if isinstance(shape, (list, tuple)):
        if not shape:
            return convert_to_tensor(shape, dtypes.int32, name="shape")
        shape = tuple(dimension_value(size) for size in shape)
    return convert_to_tensor(shape, name="shape")


# -- continuous -------------------------------------------------------------------------------------------------------


@export("random_normal", "random.normal")
def random_normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32, seed: int | None = None,
                  name: str | None = None) -> Tensor:
    """Normally distributed numbers with the given mean and standard deviation.

    >>> import penstock as tf
    >>> with tf.Session() as sess:
    ...     sess.run(tf.random_normal([2], seed=1)).shape
    (2,)
    """
    with name_scope(name, "random_normal", [shape, mean, stddev]) as scope:
        return _scaled(raw.RandomStandardNormal, shape, mean, stddev, dtype, seed, scope)


@export("truncated_normal", "random.truncated_normal")
def truncated_normal(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32, seed: int | None = None,
                     name: str | None = None) -> Tensor:
    """Normally distributed numbers; those further than two standard deviations from the mean are drawn again."""
    with name_scope(name, "truncated_normal", [shape, mean, stddev]) as scope:
        return _scaled(raw.TruncatedNormal, shape, mean, stddev, dtype, seed, scope)


def _scaled(draw: Any, shape: Any, mean: Any, stddev: Any, dtype: Any, seed: int | None, scope: str) -> Tensor:
    dtype = dtypes.as_dtype(dtype)
    size = shape_tensor(shape)
    center, spread = convert_to_tensor(mean, dtype, name="mean"), convert_to_tensor(stddev, dtype, name="stddev")
    standard = draw(size, dtype=dtype, **seed_attrs(seed))
    return raw.AddV2(raw.Mul(standard, spread, name="mul"), center, name=scope)


_UNIFORM_TYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)


@export("random_uniform", "random.uniform")
def random_uniform(shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = dtypes.float32, seed: int | None = None,
                   name: str | None = None) -> Tensor:
    """Numbers in [minval, maxval), all alike; for floats [0, 1) by default, integers need `maxval`."""
    dtype = dtypes.as_dtype(dtype)
    if dtype not in _UNIFORM_TYPES:
        raise ValueError(f"Argument `dtype` got invalid value {dtype}. Accepted dtypes are {_UNIFORM_TYPES}.")
    if maxval is None:
        if dtype.is_integer:
            raise ValueError(f"Must specify maxval for integer dtype {dtype!r}")
        maxval = 1
    with name_scope(name, "random_uniform", [shape, minval, maxval]) as scope:
        size = shape_tensor(shape)
        # TensorFlow leaves scaling away for the whole numbers 0 and 1 only, and keeps it for 0.0 and 1.0.
        from_zero, to_one = isinstance(minval, int) and minval == 0, isinstance(maxval, int) and maxval == 1
        low, high = minval, maxval
        if dtype.is_integer or not (from_zero and to_one):
            low, high = convert_to_tensor(minval, dtype, name="min"), convert_to_tensor(maxval, dtype, name="max")
        if dtype.is_integer:
            return raw.RandomUniformInt(size, low, high, name=scope, **seed_attrs(seed))
        unit = raw.RandomUniform(size, dtype=dtype, **seed_attrs(seed))
        if not from_zero:
            width = raw.Sub(high, low, name="sub")
            return raw.AddV2(raw.Mul(unit, width, name="mul"), low, name=scope)
        return unit if to_one else raw.Mul(unit, high)


@export("random_gamma", "random.gamma")
def random_gamma(shape: Any, alpha: Any, beta: Any = None, dtype: Any = dtypes.float32, seed: int | None = None,
                 name: str | None = None) -> Tensor:
    """`shape` samples of the gamma distribution for every pair of `alpha` and inverse scale `beta`; differentiable in both.

    The result has the shape `shape + (alpha + beta).shape`. Samples too small for the type are its smallest number.
    """
    with name_scope(name, "random_gamma", [shape, alpha, beta]):
        size = convert_to_tensor(shape, dtypes.int32, name="shape")
        spread_alpha, beta = gamma_parameters(alpha, beta, dtype)
        drawn = raw.RandomGamma(size, spread_alpha, **seed_attrs(seed))
        return at_least_tiny(raw.RealDiv(drawn, beta, name="truediv"))


def gamma_parameters(alpha: Any, beta: Any, dtype: Any) -> tuple[Tensor, Tensor]:
    """Alpha, broadcast with beta, and beta (default 1)."""
    alpha = convert_to_tensor(alpha, dtype, name="alpha")
    beta = convert_to_tensor(1 if beta is None else beta, dtype, name="beta")
    shape_of = resolve("shape")
    return raw.BroadcastTo(alpha, raw.BroadcastArgs(shape_of(alpha), shape_of(beta))), beta


def at_least_tiny(samples: Tensor) -> Tensor:
    """Zeros, from samples too small for the type, become its smallest normal number."""
    return raw.Maximum(np.finfo(samples.dtype.as_numpy_dtype).tiny, samples)


# -- discrete ---------------------------------------------------------------------------------------------------------


@export("random_poisson", "random.poisson")
def random_poisson(lam: Any, shape: Any, dtype: Any = dtypes.float32, seed: int | None = None, name: str | None = None) -> Tensor:
    """`shape` samples of the Poisson distribution for every rate of `lam`: a tensor of shape `shape + lam.shape`."""
    with name_scope(name, "random_poisson", [lam, shape]):
        size = convert_to_tensor(shape, dtypes.int32, name="shape")
        return raw.RandomPoissonV2(size, lam, dtype=dtypes.as_dtype(dtype), **seed_attrs(seed))


@export("multinomial", "random.multinomial")
def multinomial(logits: Any, num_samples: Any, seed: int | None = None, name: str | None = None, output_dtype: Any = None) -> Tensor:
    """The older name of `tf.random.categorical`."""
    with name_scope(name, "multinomial", [logits]):
        return raw.Multinomial(*class_arguments(logits, num_samples), output_dtype=class_type(output_dtype), **seed_attrs(seed))


@export("random.categorical")
def categorical(logits: Any, num_samples: Any, dtype: Any = None, seed: int | None = None, name: str | None = None) -> Tensor:
    """`num_samples` class numbers for every row of `logits` (unnormalised log-probabilities)."""
    with name_scope(name, "categorical", [logits]):
        return raw.Multinomial(*class_arguments(logits, num_samples), output_dtype=class_type(dtype), **seed_attrs(seed))


def class_arguments(logits: Any, num_samples: Any) -> tuple[Tensor, Any]:
    return convert_to_tensor(logits, name="logits"), num_samples


def class_type(dtype: Any) -> dtypes.DType:
    wanted = dtypes.as_dtype(dtype) if dtype else dtypes.int64
    allowed = (dtypes.int32, dtypes.int64)
    if wanted not in allowed:
        raise ValueError(f"Argument `dtype` got invalid value {wanted}. Accepted dtypes are {allowed}.")
    return wanted


@export("random_shuffle", "random.shuffle")
def random_shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """The rows of `value` (slices of its first dimension) in random order."""
    return raw.RandomShuffle(value, name=name, **seed_attrs(seed))


@export("random_crop", "image.random_crop")
def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """A piece of shape `size` cut out of `value` at a random place."""
    with name_scope(name, "random_crop", [value, size]) as scope:
        whole = convert_to_tensor(value, name="value")
        piece = convert_to_tensor(size, dtypes.int32, name="size")
        shape_of = resolve("shape")
        shape = shape_of(whole)
        fits = resolve("reduce_all")(raw.GreaterEqual(shape, piece))
        check = resolve("Assert")(fits, ["Need value.shape >= size, got ", shape, piece], summarize=1000)
        graph = shape.graph
        with graph.control_dependencies([check]), graph.colocate_with(shape.op):
            shape = raw.Identity(shape, name="control_dependency")
        limit = raw.AddV2(raw.Sub(shape, piece, name="sub"), 1, name="add")
        drawn = random_uniform(shape_of(shape), maxval=piece.dtype.max, dtype=piece.dtype, seed=seed)
        return raw.Slice(whole, raw.FloorMod(drawn, limit, name="mod"), piece, name=scope)
