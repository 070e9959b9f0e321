"""Random numbers that are a function of a seed tensor: `tf.random.stateless_*`, and making seeds out of seeds."""

from __future__ import annotations

import enum
from typing import Any

from penstock import dtypes
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.random_ops import at_least_tiny, class_arguments, class_type, gamma_parameters, shape_tensor
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


@export("random.Algorithm", "random.experimental.Algorithm")
class Algorithm(enum.Enum):
    """Random number generators. Penstock has Philox; ThreeFry is refused when the op runs, as TensorFlow's CPU does."""

    PHILOX = 1
    THREEFRY = 2
    AUTO_SELECT = 3


def algorithm_number(alg: Any) -> Any:
    """The number of an algorithm given by number, name, `Algorithm` or tensor."""
    if isinstance(alg, Algorithm):
        return alg.value
    if isinstance(alg, Tensor):
        return alg
    if isinstance(alg, str):
        known = {"philox": 1, "threefry": 2, "autoselect": 3}
        number = known.get(alg.strip().lower().replace("-", "").replace("_", ""))
    elif isinstance(alg, int):
        number = alg if alg in (1, 2, 3) else None
    else:
        raise TypeError(f"Can't convert argument `alg` (of value {alg} and type {type(alg)}) to int.")
    if number is None:
        names = ("philox", "threefry", "auto_select") if isinstance(alg, str) else (1, 2, 3)
        raise ValueError(f"Argument `alg` got unsupported value {alg}. Supported values are {names[0]} for the Philox algorithm, "
                         f"{names[1]} for the ThreeFry algorithm, and {names[2]} for auto-selection.")
    return number


def _keyed(seed: Any, alg: Any) -> tuple[Tensor, Tensor, Any]:
    """Key, counter and algorithm number, the inputs of the V2 ops."""
    number = algorithm_number(alg)
    key, counter = raw.StatelessRandomGetKeyCounter(seed)
    return key, counter, number


_UNIFORM_TYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.uint32,
                  dtypes.uint64)


@export("random.stateless_uniform")
def stateless_random_uniform(shape: Any, seed: Any, minval: Any = 0, maxval: Any = None, dtype: Any = dtypes.float32,
                             name: str | None = None, alg: Any = "auto_select") -> Tensor:
    """Numbers in [minval, maxval) that depend on `seed` (two integers) and the shape only.

    For integers, `minval=None, maxval=None` asks for the type's whole range.
    """
    dtype = dtypes.as_dtype(dtype)
    if dtype not in _UNIFORM_TYPES:
        raise ValueError(f"Argument `dtype` got invalid value {dtype}. Accepted dtypes are {_UNIFORM_TYPES}.")
    if dtype.is_integer:
        if (minval is None) != (maxval is None):
            raise ValueError(f"For integer `dtype` argument {dtype}, argument `minval` and `maxval` must be both None or not None. "
                             f"Got `minval`={minval} and `maxval`={maxval}.")
        if minval is not None and dtype.is_unsigned:
            raise ValueError(f"Argument `dtype` got invalid value {dtype} when argument `minval` is not None. "
                             "Please don't use unsigned integers in this case.")
    elif maxval is None:
        maxval = 1
    with name_scope(name, "stateless_random_uniform", [shape, seed, minval, maxval]) as scope:
        size = shape_tensor(shape)
        if minval is None:
            return raw.StatelessRandomUniformFullIntV2(size, *_keyed(seed, alg), dtype=dtype, name=scope)
        low, high = convert_to_tensor(minval, dtype, name="min"), convert_to_tensor(maxval, dtype, name="max")
        if dtype.is_integer:
            return raw.StatelessRandomUniformIntV2(size, *_keyed(seed, alg), low, high, name=scope)
        unit = raw.StatelessRandomUniformV2(size, *_keyed(seed, alg), dtype=dtype)
        width = raw.Sub(high, low, name="sub")
        return raw.AddV2(raw.Mul(unit, width, name="mul"), low, name=scope)


@export("random.stateless_normal")
def stateless_random_normal(shape: Any, seed: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32,
                            name: str | None = None, alg: Any = "auto_select") -> Tensor:
    """Normally distributed numbers that depend on `seed` and the shape only."""
    with name_scope(name, "stateless_random_normal", [shape, seed, mean, stddev]) as scope:
        return _scaled(raw.StatelessRandomNormalV2, shape, seed, mean, stddev, dtype, scope, alg)


@export("random.stateless_truncated_normal")
def stateless_truncated_normal(shape: Any, seed: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32,
                               name: str | None = None, alg: Any = "auto_select") -> Tensor:
    """Like `tf.truncated_normal`; the numbers depend on `seed` and the shape only."""
    with name_scope(name, "stateless_truncated_normal", [shape, seed, mean, stddev]) as scope:
        return _scaled(raw.StatelessTruncatedNormalV2, shape, seed, mean, stddev, dtype, scope, alg)


def _scaled(draw: Any, shape: Any, seed: Any, mean: Any, stddev: Any, dtype: Any, scope: str, alg: Any) -> Tensor:
    dtype = dtypes.as_dtype(dtype)
    size = shape_tensor(shape)
    center, spread = convert_to_tensor(mean, dtype, name="mean"), convert_to_tensor(stddev, dtype, name="stddev")
    standard = draw(size, *_keyed(seed, alg), dtype=dtype)
    return raw.AddV2(raw.Mul(standard, spread, name="mul"), center, name=scope)


@export("random.stateless_multinomial")
def stateless_multinomial(logits: Any, num_samples: Any, seed: Any, output_dtype: Any = dtypes.int64, name: str | None = None) -> Tensor:
    """The older name of `tf.random.stateless_categorical`."""
    with name_scope(name, "stateless_multinomial", [logits, seed]):
        return raw.StatelessMultinomial(*class_arguments(logits, num_samples), seed, output_dtype=class_type(output_dtype))


@export("random.stateless_categorical")
def stateless_categorical(logits: Any, num_samples: Any, seed: Any, dtype: Any = dtypes.int64, name: str | None = None) -> Tensor:
    """Like `tf.random.categorical`; the numbers depend on `seed` and the inputs only."""
    with name_scope(name, "stateless_categorical", [logits, seed]):
        return raw.StatelessMultinomial(*class_arguments(logits, num_samples), seed, output_dtype=class_type(dtype))


@export("random.stateless_gamma")
def stateless_random_gamma(shape: Any, seed: Any, alpha: Any, beta: Any = None, dtype: Any = dtypes.float32,
                           name: str | None = None) -> Tensor:
    """Gamma samples of the full shape `shape`, which must end with that of alpha and beta."""
    with name_scope(name, "stateless_random_gamma", [shape, seed, alpha, beta]):
        size = shape_tensor(shape)
        spread_alpha, beta = gamma_parameters(alpha, beta, dtype)
        drawn = raw.StatelessRandomGammaV3(size, *_keyed(seed, "auto_select"), spread_alpha)
        return at_least_tiny(raw.RealDiv(drawn, beta, name="truediv"))


@export("random.stateless_poisson")
def stateless_random_poisson(shape: Any, seed: Any, lam: Any, dtype: Any = dtypes.int32, name: str | None = None) -> Tensor:
    """Poisson samples of the full shape `shape`, which must end with that of `lam`."""
    with name_scope(name, "stateless_random_poisson", [shape, seed, lam]):
        return raw.StatelessRandomPoisson(shape_tensor(shape), seed, lam, dtype=dtypes.as_dtype(dtype))


@export("random.stateless_binomial")
def stateless_random_binomial(shape: Any, seed: Any, counts: Any, probs: Any, output_dtype: Any = dtypes.int32,
                              name: str | None = None) -> Tensor:
    """Binomial samples of the full shape `shape`, which must end with that of counts and probs."""
    with name_scope(name, "stateless_random_binomial", [shape, seed, counts, probs]):
        size = shape_tensor(shape)
        chance = convert_to_tensor(probs, name="probs", dtype_hint=dtypes.float32)
        count = convert_to_tensor(counts, name="counts", dtype_hint=chance.dtype)
        return raw.StatelessRandomBinomial(size, seed, count, chance, dtype=dtypes.as_dtype(output_dtype))


@export("random.stateless_parameterized_truncated_normal")
def stateless_parameterized_truncated_normal(shape: Any, seed: Any, means: Any = 0.0, stddevs: Any = 1.0, minvals: Any = -2.0,
                                             maxvals: Any = 2.0, name: str | None = None) -> Tensor:
    """Normal numbers between given bounds, of the full shape `shape`, which must end with that of the parameters."""
    with name_scope(name, "stateless_parameterized_truncated_normal", [shape, means, stddevs, minvals, maxvals]):
        size = shape_tensor(shape)
        parameters = [convert_to_tensor(value, name=label) for label, value in (
            ("means", means), ("stddevs", stddevs), ("minvals", minvals), ("maxvals", maxvals))]
        return raw.StatelessParameterizedTruncatedNormal(size, seed, *parameters)


# -- seeds out of seeds -----------------------------------------------------------------------------------------------


@export("random.split", "random.experimental.stateless_split")
def split(seed: Any, num: int = 2, alg: Any = "auto_select") -> Tensor:
    """`num` new seeds, a tensor of shape [num, 2]."""
    seed = convert_to_tensor(seed)
    return stateless_random_uniform([num, 2], seed, None, None, seed.dtype, alg=alg)


@export("random.fold_in", "random.experimental.stateless_fold_in")
def fold_in(seed: Any, data: Any, alg: Any = "auto_select") -> Tensor:
    """A new seed that depends on the number `data` too."""
    data = convert_to_tensor(data)
    return raw.Pack([stateless_random_uniform([], seed, None, None, data.dtype, alg=alg), data], name="stack")


@export("random.experimental.stateless_shuffle")
def stateless_shuffle(value: Any, seed: Any, alg: Any = "auto_select", name: str | None = None) -> Tensor:
    """The rows of `value` in an order that depends on `seed` only."""
    with name_scope(name, "stateless_shuffle", [value, seed]):
        return raw.StatelessShuffle(value, *_keyed(seed, alg))


@export("random.experimental.index_shuffle")
def index_shuffle(index: Any, seed: Any, max_index: Any) -> Tensor:
    """Where `index` goes in a random permutation of 0 ... max_index that is never written down."""
    seed = convert_to_tensor(seed)
    rank = 1 if seed.dims is None else len(seed.dims)
    padded = raw.PadV2(seed, [[1, 0]] + [[0, 0]] * (rank - 1), 498247692)
    return raw.RandomIndexShuffle(index, padded, max_index, rounds=4)


@export("random_index_shuffle")
def random_index_shuffle(index: Any, seed: Any, max_index: Any, rounds: int = 4, name: str | None = None) -> Tensor:
    """Like `tf.random.experimental.index_shuffle`, with a seed of three integers."""
    return raw.RandomIndexShuffle(index, seed, max_index, rounds=rounds, name=name)
