"""`tf.random.Generator`: a random number generator whose state is a variable.

In a graph, each method makes ops that move the state on when they run; the state is initialised with the variables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api.export import export, resolve
from penstock.api.framework import name_scope
from penstock.api.stateless_random_ops import Algorithm, algorithm_number
from penstock.api.variables import Variable
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

_COUNTER_SIZES = {Algorithm.PHILOX.value: 2, Algorithm.THREEFRY.value: 1, Algorithm.AUTO_SELECT.value: 2}


def _wrapped(value: int) -> int:
    """A 64-bit number as TensorFlow keeps it in an int64 variable."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


@export("random.create_rng_state", "random.experimental.create_rng_state")
def create_rng_state(seed: Any, alg: Any) -> Tensor:
    """The state of a generator with this seed: an int, cut into 64-bit pieces, or a vector, filled up with zeros in front."""
    size = _COUNTER_SIZES[algorithm_number(alg)] + 1
    if isinstance(seed, (int, np.integer)):
        seed = [int(seed) >> 64 * i for i in range(size)]
    if isinstance(seed, Tensor):
        flat = raw.Reshape(raw.Cast(seed, DstT=dtypes.int64), [-1])
        length = flat.dims[0] if flat.dims is not None else None
        if length is None:
            raise ValueError("The seed of a generator must have a known size.")
        flat = raw.Slice(flat, [0], [min(length, size)])
        return raw.PadV2(flat, [[max(size - length, 0), 0]], np.int64(0))
    numbers = [_wrapped(int(v)) for v in np.ravel(seed)][:size]
    return convert_to_tensor([0] * (size - len(numbers)) + numbers, dtypes.int64)


def _state_tensor(state: Any) -> Tensor:
    if isinstance(state, Tensor):
        return state if state.dtype == dtypes.int64 else raw.Cast(state, DstT=dtypes.int64)
    if isinstance(state, (list, tuple)):
        state = [_wrapped(int(v)) if isinstance(v, (int, np.integer)) else v for v in state]
    return convert_to_tensor(state, dtypes.int64)


@export("random.Generator", "random.experimental.Generator")
class Generator:
    """A random number generator with a state of its own.

    >>> import penstock as tf
    >>> g = tf.random.Generator.from_seed(1234)
    >>> x = g.normal([3])
    >>> with tf.Session() as sess:
    ...     _ = sess.run(tf.global_variables_initializer())
    ...     print(sess.run(x))
    [ 0.9356609   1.0854305  -0.93788373]
    """

    def __init__(self, copy_from: Generator | None = None, state: Any = None, alg: Any = None) -> None:
        if copy_from is not None:
            if state is not None or alg is not None:
                raise ValueError("`copy_from` cannot be combined with `state` or `alg`.")
            self._alg = copy_from.algorithm
            self._state_var = self._variable(copy_from.state.read_value())
            return
        if state is None or alg is None:
            raise ValueError("A generator needs `copy_from`, or both `state` and `alg`.")
        self._alg = algorithm_number(alg)
        if isinstance(state, Variable):
            self._check(state.shape)
            self._state_var: Any = state
        else:
            tensor = _state_tensor(state)
            self._check(tensor.shape)
            self._state_var = self._variable(tensor)

    def _check(self, shape: Any) -> None:
        if isinstance(self._alg, int):
            shape.assert_is_compatible_with([_COUNTER_SIZES[self._alg] + 1])

    @staticmethod
    def _variable(initial: Tensor) -> Any:
        with name_scope("random_generator"):
            return resolve("Variable")(initial, dtype=dtypes.int64, trainable=False, name="StateVar", use_resource=True)

    @classmethod
    def from_state(cls, state: Any, alg: Any) -> Generator:
        """A generator with this state: counter (for Philox two numbers), then key."""
        return cls(state=state, alg=alg)

    @classmethod
    def from_seed(cls, seed: Any, alg: Any = None) -> Generator:
        """A generator with a state made of `seed` (see `tf.random.create_rng_state`)."""
        number = Algorithm.PHILOX.value if alg is None else algorithm_number(alg)
        return cls(state=create_rng_state(seed, number), alg=number)

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> Generator:
        """A generator that nobody can predict."""
        number = Algorithm.PHILOX.value if alg is None else algorithm_number(alg)
        with name_scope("random_generator"):
            state = raw.NonDeterministicInts([_COUNTER_SIZES[number] + 1], dtype=dtypes.int64)
        return cls(state=state, alg=number)

    @classmethod
    def from_key_counter(cls, key: Any, counter: Any, alg: Any) -> Generator:
        """A generator with this key (a number) and counter (a vector)."""
        return cls(state=_joined(key, counter), alg=alg)

    @property
    def state(self) -> Any:
        """The variable that holds counter and key."""
        return self._state_var

    @property
    def algorithm(self) -> Any:
        """The number of the algorithm, as in `tf.random.Algorithm`."""
        return self._alg

    @property
    def key(self) -> Tensor:
        """The key: the last number of the state."""
        return raw.Reshape(raw.Slice(self._state_var.read_value(), [_COUNTER_SIZES[self._alg]], [1]), [])

    # Unlike TensorFlow's, the reset methods return the op that resets: in a graph somebody has to run it.

    def reset(self, state: Any) -> Any:
        """Makes `state` the generator's state."""
        tensor = _state_tensor(state)
        self._check(tensor.shape)
        return self._state_var.assign(tensor)

    def reset_from_seed(self, seed: Any) -> Any:
        """Sets the state as `from_seed` does."""
        return self._state_var.assign(create_rng_state(seed, self._alg))

    def reset_from_key_counter(self, key: Any, counter: Any) -> Any:
        """Sets the state as `from_key_counter` does."""
        return self._state_var.assign(_joined(key, counter))

    def skip(self, delta: Any) -> Tensor:
        """Moves on as if `delta` numbers had been drawn; gives the state before."""
        amount = convert_to_tensor(delta, dtypes.int64) if not isinstance(delta, Tensor) else delta
        return raw.RngReadAndSkip(self._state_var.handle, self._alg, raw.Cast(amount, DstT=dtypes.uint64))

    def _key_counter(self, shape: Tensor) -> tuple[Tensor, Tensor]:
        before = self.skip(raw.Prod(shape, [0]))
        counter, key = (raw.Bitcast(raw.Slice(before, [start], [size]), type=dtypes.uint64) for start, size in ((0, 2), (2, 1)))
        return key, counter

    def _draw(self, op: Any, shape: Tensor, dtype: Any, **keywords: Any) -> Tensor:
        return op(shape, *self._key_counter(shape), self._alg, dtype=dtype, **keywords)

    def normal(self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
        """Normally distributed numbers."""
        with name_scope(name, "stateful_normal", [shape, mean, stddev]) as scope:
            return self._scaled(raw.StatelessRandomNormalV2, shape, mean, stddev, dtype, scope)

    def truncated_normal(self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32,
                         name: str | None = None) -> Tensor:
        """Normally distributed numbers within two standard deviations of the mean."""
        with name_scope(name, "truncated_normal", [shape, mean, stddev]) as scope:
            return self._scaled(raw.StatelessTruncatedNormalV2, shape, mean, stddev, dtype, scope)

    def _scaled(self, op: Any, shape: Any, mean: Any, stddev: Any, dtype: Any, scope: str) -> Tensor:
        dtype = dtypes.as_dtype(dtype)
        size = _shape_tensor(shape)
        center, spread = convert_to_tensor(mean, dtype, name="mean"), convert_to_tensor(stddev, dtype, name="stddev")
        return raw.AddV2(raw.Mul(self._draw(op, size, dtype), spread, name="mul"), center, name=scope)

    def uniform(self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
        """Numbers in [minval, maxval); for integers, None and None ask for the whole range of the type."""
        dtype = dtypes.as_dtype(dtype)
        if dtype.is_integer:
            if (minval is None) != (maxval is None):
                raise ValueError(f"For integer dtype {dtype}, minval and maxval must be both `None` or both non-`None`; got minval={minval} and "
                                 f"maxval={maxval}")
        elif maxval is None:
            maxval = 1
        with name_scope(name, "stateful_uniform", [shape, minval, maxval]) as scope:
            size = _shape_tensor(shape)
            if minval is None:
                return self._draw(raw.StatelessRandomUniformFullIntV2, size, dtype, name=scope)
            low, high = convert_to_tensor(minval, dtype, name="min"), convert_to_tensor(maxval, dtype, name="max")
            if dtype.is_integer:
                key, counter = self._key_counter(size)
                return raw.StatelessRandomUniformIntV2(size, key, counter, self._alg, low, high, name=scope)
            unit = self._draw(raw.StatelessRandomUniformV2, size, dtype)
            return raw.AddV2(raw.Mul(unit, raw.Sub(high, low, name="sub"), name="mul"), low, name=scope)

    def uniform_full_int(self, shape: Any, dtype: Any = dtypes.uint64, name: str | None = None) -> Tensor:
        """Integers over the whole range of the type."""
        with name_scope(name, "stateful_uniform_full_int", [shape]) as scope:
            return self._draw(raw.StatelessRandomUniformFullIntV2, _shape_tensor(shape), dtypes.as_dtype(dtype), name=scope)

    def binomial(self, shape: Any, counts: Any, probs: Any, dtype: Any = dtypes.int32, name: str | None = None) -> Tensor:
        """Binomial samples of the full shape `shape`, which must end with that of counts and probs."""
        with name_scope(name, "binomial", [shape, counts, probs]) as scope:
            counts, probs = convert_to_tensor(counts, name="counts"), convert_to_tensor(probs, name="probs")
            return raw.StatefulRandomBinomial(self._state_var.handle, self._alg, _shape_tensor(shape), counts, probs,
                                              dtype=dtypes.as_dtype(dtype), name=scope)

    def make_seeds(self, count: int = 1) -> Tensor:
        """Seeds for the stateless functions: a tensor of shape [2, count]."""
        keys = self.uniform_full_int([count], dtypes.int64)
        return raw.Pack([keys, raw.ZerosLike(keys)], name="stack")

    def split(self, count: int = 1) -> list[Generator]:
        """New generators made at run time. A graph's variables are made while it is built, so this raises, as in TensorFlow."""
        raise NotImplementedError("A graph cannot make generators while it runs. Draw seeds with make_seeds() and use the tf.random.stateless_* "
                                  "functions, or make the generators with Generator.from_seed().")


def _joined(key: Any, counter: Any) -> Tensor:
    return raw.ConcatV2([_state_tensor(counter), raw.Reshape(_state_tensor(key), [1])], 0)


def _shape_tensor(shape: Any) -> Tensor:
    empty = isinstance(shape, (list, tuple)) and not shape
    return convert_to_tensor(shape, dtypes.int64 if empty else None, name="shape")


_global: Generator | None = None


@export("random.get_global_generator", "random.experimental.get_global_generator")
def get_global_generator() -> Generator:
    """The one generator that a program shares; made unpredictable at the first call."""
    global _global
    if _global is None:
        _global = Generator.from_non_deterministic_state()
    return _global


@export("random.set_global_generator", "random.experimental.set_global_generator")
def set_global_generator(generator: Generator) -> None:
    """Makes `generator` the global one."""
    global _global
    _global = generator
