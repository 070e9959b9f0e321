"""Random numbers from a generator that is a variable: the ops behind `tf.random.Generator`.

The variable holds three int64 numbers: the low and high half of Philox's counter, and its key.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.ops import philox
from penstock.ops.declare import NOT_DIFFERENTIABLE, no_outputs, op, with_rank
from penstock.ops.kernels import samplers
from penstock.ops.philox import RESERVED_PER_OUTPUT, Philox
from penstock.ops.random import count_elements, integer_bounds, random_shape, shape_vector
from penstock.ops.resource_variables import find_variable, read_value
from penstock.ops.samples import program
from penstock.shapes import Dims, format_dims

_PHILOX, _AUTO_SELECT = 1, 3
_LOW64 = (1 << 64) - 1


def _advance(ctx: Any, handle: Any, algorithm: Any, blocks: int) -> tuple[np.ndarray, Philox]:
    """The variable's state, and the generator that it stands for; the variable moves on by `blocks`."""
    if np.ndim(algorithm):
        raise InvalidArgumentError(f"algorithm must be of shape [], not {format_dims(np.shape(algorithm))}")
    if int(algorithm) not in (_PHILOX, _AUTO_SELECT):
        raise InvalidArgumentError(f"Unsupported algorithm id: {int(algorithm)}")
    read_value(ctx, handle)
    ref = find_variable(ctx, handle)
    with ref.lock:
        state = np.asarray(ref.read())
        if state.dtype != np.int64:
            raise InvalidArgumentError(f"dtype of RNG state variable must be int64, not {state.dtype.name}")
        if state.ndim != 1:
            raise InvalidArgumentError(f"RNG state must have one and only one dimension, not {state.ndim}")
        if state.size < 3:
            raise InvalidArgumentError(f"For the Philox algorithm, the size of state must be at least 3; got {state.size}")
        words = state.view(np.uint64)
        gen = Philox.from_key_counter(words[2:], words[:2])
        later = gen.skip(blocks).counter
        words = words.copy()
        words[0], words[1] = later & _LOW64, later >> 64
        ref.value = words.view(np.int64)
    return state, gen


def rng_read_and_skip_kernel(ctx: Any, resource: Any, alg: Any, delta: Any) -> np.ndarray:
    if np.ndim(delta):
        raise InvalidArgumentError(f"delta must be of shape [], not {format_dims(np.shape(delta))}")
    state, _ = _advance(ctx, resource, alg, int(delta) * RESERVED_PER_OUTPUT & _LOW64)
    return state[:3].copy()


def rng_skip_kernel(ctx: Any, resource: Any, algorithm: Any, delta: Any) -> None:
    _advance(ctx, resource, algorithm, int(delta) * RESERVED_PER_OUTPUT & _LOW64)


def _filling(fill: Callable[..., np.ndarray]) -> Any:
    def kernel(ctx: Any, resource: Any, algorithm: Any, shape: Any, *, dtype: DType) -> np.ndarray:
        sizes = shape_vector(shape)
        _, gen = _advance(ctx, resource, algorithm, count_elements(sizes) * RESERVED_PER_OUTPUT)
        return fill(gen, sizes, dtype.np)

    return kernel


def old_normal_kernel(ctx: Any, resource: Any, shape: Any, *, dtype: DType) -> np.ndarray:
    # The first version kept the algorithm's number in front of the state.
    raise InvalidArgumentError("StatefulStandardNormal stores its algorithm inside the variable; use StatefulStandardNormalV2")


def stateful_uniform_int_kernel(ctx: Any, resource: Any, algorithm: Any, shape: Any, minval: Any, maxval: Any, *, dtype: DType) -> np.ndarray:
    sizes = shape_vector(shape)
    low, high = integer_bounds(minval, maxval)
    _, gen = _advance(ctx, resource, algorithm, count_elements(sizes) * RESERVED_PER_OUTPUT)
    return philox.uniform_int(gen, sizes, low, high, dtype.np)


def stateful_binomial_kernel(ctx: Any, resource: Any, algorithm: Any, shape: Any, counts: Any, probs: Any, *, dtype: DType) -> np.ndarray:
    sizes = shape_vector(shape)
    try:
        n, p = np.broadcast_arrays(counts, probs)
    except ValueError:
        raise InvalidArgumentError("counts and probs must have compatible batch dimensions: "
                                   f"{format_dims(np.shape(counts))} vs. {format_dims(np.shape(probs))}") from None
    lead = len(sizes) - n.ndim
    if lead < 0 or sizes[lead:] != n.shape:
        raise InvalidArgumentError("Shape passed in must end with broadcasted shape.")
    samples = count_elements(sizes[:lead])
    _, gen = _advance(ctx, resource, algorithm, n.size * 2 * 100 * (samples + 3) // 4 * RESERVED_PER_OUTPUT)
    return samplers.binomial(gen, samples, n, p, dtype.np).reshape(sizes)


def non_deterministic_kernel(shape: Any, *, dtype: DType) -> np.ndarray:
    sizes = shape_vector(shape)
    n = count_elements(sizes)
    return np.frombuffer(os.urandom(n * dtype.np.itemsize), dtype.np, n).reshape(sizes).copy()


# -- declarations -----------------------------------------------------------------------------------------------------


def state_shape(c: Any) -> Dims:
    for i in range(c.n):
        with_rank(c, i, 0)
    return (3,)


def _shape_at(i: int) -> Any:
    def rule(c: Any) -> Dims:
        with_rank(c, 0, 0)
        with_rank(c, i, 1)
        return c.const_dims(i)

    return rule


def stateful_int_shape(c: Any) -> Dims:
    for name in ("minval", "maxval"):
        dims = c.dims(c.arg(name)[0])
        if dims:
            raise ValueError(f"{name} must be a scalar; got a tensor of shape {format_dims(dims)}")
    return _shape_at(2)(c)


def _with_state(draw: Callable[[Any, Any], Any], show_state: bool = True) -> Any:
    """A program that draws from a variable and then shows the variable."""

    def build(tf: Any) -> Any:
        v = tf.Variable(np.array([5, -7, 1 << 60], np.int64), use_resource=True)
        with tf.control_dependencies([v.initializer]):
            drawn = draw(tf.raw_ops, v.handle)
        with tf.control_dependencies([drawn]):
            return [drawn, v.read_value()] if show_state else drawn

    return program(build)


_SIZE = np.array([2, 3], np.int64)
_FLOAT = "[dtype: type = float; shape_dtype: type = int64] stateful"
_BY_ALGORITHM = "resource: resource, algorithm: int64, shape: shape_dtype"

op("RngReadAndSkip(resource: resource, alg: int32, delta: uint64) -> (value: int64) stateful",
   shape=state_shape, numpy=rng_read_and_skip_kernel, host_memory=["alg", "delta"],
   samples=[_with_state(lambda raw, h: raw.RngReadAndSkip(resource=h, alg=1, delta=np.uint64(1 << 61)))])  # fmt: skip

op("RngSkip(resource: resource, algorithm: int64, delta: int64) -> () stateful",
   shape=no_outputs, numpy=rng_skip_kernel, host_memory=["algorithm", "delta"])  # fmt: skip

op(f"StatefulUniform({_BY_ALGORITHM}) -> (output: dtype) {_FLOAT}", shape=_shape_at(2), numpy=_filling(philox.uniform),
   samples=[_with_state(lambda raw, h: raw.StatefulUniform(resource=h, algorithm=1, shape=_SIZE))])  # fmt: skip

op(f"StatefulStandardNormalV2({_BY_ALGORITHM}) -> (output: dtype) {_FLOAT}", shape=_shape_at(2), numpy=_filling(philox.normal),
   samples=[_with_state(lambda raw, h: raw.StatefulStandardNormalV2(resource=h, algorithm=1, shape=_SIZE))])  # fmt: skip

op("StatefulStandardNormal(resource: resource, shape: shape_dtype) -> (output: dtype) [dtype: type = float; shape_dtype: type = int64]"
   " stateful deprecated@29", shape=_shape_at(1), numpy=old_normal_kernel)  # fmt: skip

op(f"StatefulTruncatedNormal({_BY_ALGORITHM}) -> (output: dtype) {_FLOAT}", shape=_shape_at(2), numpy=_filling(philox.truncated_normal),
   samples=[_with_state(lambda raw, h: raw.StatefulTruncatedNormal(resource=h, algorithm=1, shape=_SIZE))])  # fmt: skip

op(f"StatefulUniformFullInt({_BY_ALGORITHM}) -> (output: dtype) [dtype: type = uint64; shape_dtype: type = int64] stateful",
   shape=_shape_at(2), numpy=_filling(philox.full_int),
   samples=[_with_state(lambda raw, h: raw.StatefulUniformFullInt(resource=h, algorithm=1, shape=_SIZE))])  # fmt: skip

op(f"StatefulUniformInt({_BY_ALGORITHM}, minval: dtype, maxval: dtype) -> (output: dtype) [dtype: type = int64; shape_dtype: type = int64] stateful",
   shape=stateful_int_shape, numpy=stateful_uniform_int_kernel,
   samples=[_with_state(lambda raw, h: raw.StatefulUniformInt(resource=h, algorithm=1, shape=_SIZE, minval=np.int64(-5), maxval=np.int64(90)))])  # fmt: skip

op("StatefulRandomBinomial(resource: resource, algorithm: int64, shape: S, counts: T, probs: T) -> (output: dtype) [S: type in {int32, int64};"
   " T: type in {half, float, double, int32, int64} = double; dtype: type in {half, float, double, int32, int64} = int64] stateful",
   shape=_shape_at(2), numpy=stateful_binomial_kernel, grad=NOT_DIFFERENTIABLE, expensive=True,
   samples=[_with_state(lambda raw, h: raw.StatefulRandomBinomial(resource=h, algorithm=1, shape=_SIZE.astype(np.int32), counts=[5.0, 50.0, 500.0], probs=0.4),
                        show_state=False)])  # TensorFlow's kernel loses the update if the variable shares its buffer  # fmt: skip

op("NonDeterministicInts(shape: shape_dtype) -> (output: dtype) [dtype: type = int64; shape_dtype: type = int64] stateful",
   shape=random_shape, numpy=non_deterministic_kernel, host_memory=["shape"])  # fmt: skip
