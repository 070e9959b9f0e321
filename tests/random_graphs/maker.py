"""What every random program is grown with: a pool of values, stable random choices, feeds, and an order for what touches state.

Programs are made of numbered steps. Whatever a step chooses depends on the program's seed, its own number and the names of the values there
are, never on what other steps did to a shared generator: if a step is left out, the others stay what they were. That is what lets a
failing program be made smaller.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

NUMERIC = frozenset("float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128".split())
FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))


class Value(NamedTuple):
    """A tensor of the program, and a name for it that does not change if other steps are left out."""

    tensor: Any
    key: str

    @property
    def kind(self) -> str:
        return self.tensor.dtype.base_dtype.name


class Feed(NamedTuple):
    """A placeholder and the values it gets, one for each run (the last one goes on)."""

    tensor: Any
    values: list[Any]

    def at(self, run: int) -> Any:
        return self.values[min(run, len(self.values) - 1)]


class Trouble(NamedTuple):
    """A tensor that cannot be computed if `feed` gets `bad`."""

    tensor: Any
    feed: Any
    bad: Any


class Variable:
    """A variable of either kind. `read` and `write` follow one another in the order in which they were asked for."""

    def __init__(self, maker: Maker, value: np.ndarray, resource: bool, initialised: bool = True) -> None:
        tf = maker.tf
        with tf.device(None):
            self.variable = tf.get_variable(maker.name("v"), initializer=value, use_resource=resource, collections=None if initialised else ["later"])
        self.resource = resource
        self.dtype = self.variable.dtype.base_dtype.name
        self.shape = value.shape
        self.last: list[Any] = []

    @property
    def handle(self) -> Any:
        """What an op takes that changes the variable."""
        return self.variable.handle if self.resource else self.variable

    @contextlib.contextmanager
    def turn(self, tf: Any) -> Iterator[None]:
        """What is built inside comes after whatever touched the variable before, on the variable's device."""
        with tf.device(None), tf.colocate_with(self.variable.handle if self.resource else self.variable.op), tf.control_dependencies(self.last):
            yield

    def read(self, tf: Any) -> Any:
        """The value at this point. A reference variable is added to, because its Identity would be the variable itself."""
        with self.turn(tf):
            value = self.variable.read_value() if self.resource else tf.add(self.variable, np.zeros((), self.variable.dtype.base_dtype.as_numpy_dtype))
        self.last = [value.op]
        return value

    def write(self, tf: Any, build: Callable[[Any], Any]) -> Any:
        """`build(handle)` gives the op or tensor that changes the variable; its operation is returned."""
        with self.turn(tf):
            result = build(self.handle)
            op = result if hasattr(result, "outputs") else result.op
        self.last = [op]
        return op


class Maker:
    """A program that grows. `pool` holds the values that the step at hand may use."""

    def __init__(self, tf: Any, seed: int, devices: int = 1) -> None:
        self.tf = tf
        self.seed = seed
        self.devices = devices
        self.pool: list[Value] = []
        self.feeds: list[Feed] = []
        self.variables: list[Variable] = []
        self.updates: list[Any] = []  # operations that every full run executes
        self.troubles: list[Trouble] = []
        self.dead: list[Any] = []  # tensors that one side of a Switch leaves out
        self.initialisers: list[Any] = []
        self.inside = 0  # conds, loops and functions around what is being built
        self.rng = random.Random(0)
        self.numbers = np.random.RandomState(0)
        self.step = ""
        self._picks = 0
        self._names = 0

    # -- choices ----------------------------------------------------------------------------------------------------------

    def begin(self, step: str) -> None:
        """Choices from here on belong to `step`."""
        self.step = step
        self.rng = random.Random(f"{self.seed}/{step}")
        self.numbers = np.random.RandomState(zlib.crc32(f"{self.seed}/{step}".encode()))
        self._picks = 0
        self._names = 0

    def name(self, what: str) -> str:
        """A name for a node that nobody else has."""
        self._names += 1
        return f"{self.step}_{what}{self._names}"

    def pick(self, values: Sequence[Value]) -> Value:
        """One of the values. Leaving out one that was not chosen does not change the choice."""
        self._picks += 1
        prefix = f"{self.seed}/{self.step}/{self._picks}/"
        return max(values, key=lambda v: zlib.crc32((prefix + v.key).encode()))

    def choose(self, names: Sequence[str]) -> str:
        """One of the names, likewise: a new op does not change what other programs are."""
        self._picks += 1
        prefix = f"{self.seed}/{self.step}/{self._picks}/"
        return max(names, key=lambda name: zlib.crc32((prefix + name).encode()))

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def having(self, test: Callable[[Value], bool]) -> list[Value]:
        return [v for v in self.pool if test(v)]

    def number(self) -> Value | None:
        """Some numeric value of the pool; later ones are likelier."""
        values = self.having(lambda v: v.kind in NUMERIC)
        if not values:
            return None
        return self.pick(values[-6:]) if self.chance(0.5) else self.pick(values)

    def add(self, tensor: Any) -> Value:
        """Puts a tensor into the pool."""
        value = Value(tensor, f"{self.step}.{len(self.pool)}.{self._names}" if self.inside else f"{self.step}.{sum(v.key.startswith(self.step + '.') for v in self.pool)}")
        self.pool.append(value)
        return value

    # -- sources ----------------------------------------------------------------------------------------------------------

    def feed(self, values: Sequence[Any], shape: Any, dtype: str | None = None) -> Any:
        """A placeholder that gets these values, run by run."""
        with self.tf.device(None), self.tf.control_dependencies(None):  # outside of every branch and loop
            x = self.tf.placeholder(dtype or np.asarray(values[0]).dtype.name, shape)
        self.feeds.append(Feed(x, list(values)))
        return x

    def uniform(self, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
        return self.numbers.uniform(-1, 1, tuple(shape)).astype(dtype)

    # -- fitting values to a place -----------------------------------------------------------------------------------------

    def fit(self, x: Any, dtype: str, shape: Sequence[int]) -> Any:
        """`x`, whatever it is, as a finite tensor of this type and shape with elements of about -1 to 1 (integers: -3 to 3)."""
        tf = self.tf
        shape = tuple(int(n) for n in shape)
        kind = x.dtype.base_dtype.name
        if kind == "bool":
            x, kind = tf.cast(x, "float32"), "float32"
        if kind.startswith("complex"):
            x = tf.real(x)
            kind = x.dtype.base_dtype.name
        x = self._shaped(x, shape)
        if kind in FLOATS:
            x = tf.where(tf.is_finite(x), x, tf.zeros_like(x))
            way = self.rng.randrange(4)
            x = tf.tanh(x) if way == 0 else tf.sin(x) if way == 1 else tf.clip_by_value(x, -1, 1) if way == 2 else x / (tf.abs(x) + 1)
            if dtype.startswith(("int", "uint")):
                x = tf.round(x * 3)
        else:
            x = tf.floormod(x, tf.constant(4, x.dtype))
        if dtype == "bool":
            return x > 0 if kind in FLOATS else tf.cast(x, "int32") > 1
        if dtype.startswith("uint"):
            x = tf.abs(tf.cast(x, "int32"))
        return x if x.dtype.base_dtype.name == dtype else tf.cast(x, dtype)

    def _shaped(self, x: Any, shape: tuple[int, ...]) -> Any:
        tf = self.tf
        dims = x.shape.as_list() if x.shape.ndims is not None else None
        if dims is not None and tuple(dims) == shape:
            return x
        need = int(np.prod(shape))
        have = None if dims is None or None in dims else int(np.prod(dims))
        if have == need:
            return tf.reshape(x, shape)
        if have and have > need:
            return tf.reshape(tf.reshape(x, [-1])[:need], shape)
        if have and need <= 200:
            return tf.reshape(tf.tile(tf.reshape(x, [-1]), [-(-need // have)])[:need], shape)
        if have is None and dims is not None and len(dims) == 1 and len(shape) == 1 and self.chance(0.3):
            # As many as there are, and zeros for the rest.
            return tf.reshape(tf.concat([x, tf.zeros([need], x.dtype)], 0)[:need], shape)
        number = tf.reduce_sum(x)
        return tf.broadcast_to(number, shape) if self.chance(0.5) else number + tf.zeros(shape, x.dtype)

    # -- state ------------------------------------------------------------------------------------------------------------

    def variable(self, value: np.ndarray, resource: bool | None = None) -> Variable:
        """A new variable; one built inside of control flow would be initialised there, so it is made at the top."""
        assert not self.inside
        made = Variable(self, value, self.chance(0.5) if resource is None else resource)
        self.variables.append(made)
        return made

    def barrier(self) -> list[Any]:
        """Operations after which nothing built so far touches a variable any more."""
        return [op for v in self.variables for op in v.last]

    @contextlib.contextmanager
    def nested(self) -> Iterator[None]:
        """Inside: a copy of the pool, and variables whose earlier uses are known to be over."""
        pool, lasts, updates, outer_rng = self.pool, [v.last for v in self.variables], self.updates, self.rng
        self.pool = list(pool)
        self.updates = []
        self.inside += 1
        for v in self.variables:
            v.last = []
        try:
            yield
        finally:
            self.pool, self.updates, self.rng = pool, updates, outer_rng
            self.inside -= 1
            for v, last in zip(self.variables, lasts):
                v.last = last

    def passed(self, op: Any) -> None:
        """All variables are touched next after `op`."""
        for v in self.variables:
            v.last = [op]
