"""Steps that run one kernel: every op that has samples, on the sample's own inputs mixed with values of the program."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.graph.opdef import OPS
from penstock.graph.raw import PYTHON_NAMES
from penstock.ops.cases import Case, cases, programs
from penstock.shapes import TensorShape

from .maker import FLOATS, NUMERIC, Maker

# Not part of random programs: they end the process, look at the clock or the disk, print, or are never the same twice.
LEFT_OUT = frozenset(
    "Abort Timestamp Print PrintV2 ReadFile WriteFile MatchingFiles NonDeterministicInts PyFunc PyFuncStateless EagerPyFunc RemoteCall".split()
)

# Ops without samples that take the inputs of another op.
LIKE = {
    "BatchCholesky": "Cholesky", "BatchCholeskyGrad": "CholeskyGrad", "BatchMatrixBandPart": "MatrixBandPart", "BatchMatrixDeterminant": "MatrixDeterminant",
    "BatchMatrixDiag": "MatrixDiag", "BatchMatrixDiagPart": "MatrixDiagPart", "BatchMatrixInverse": "MatrixInverse", "BatchMatrixSetDiag": "MatrixSetDiag",
    "BatchMatrixSolve": "MatrixSolve", "BatchMatrixSolveLs": "MatrixSolveLs", "BatchMatrixTriangularSolve": "MatrixTriangularSolve",
    "MatrixExponential": "MatrixInverse", "BatchSelfAdjointEig": "Cholesky", "BatchSelfAdjointEigV2": "Cholesky", "SelfAdjointEig": "Cholesky",
    "BatchSvd": "MatrixInverse", "TileGrad": "Tile", "QuantizeAndDequantize": "Tanh", "DebugIdentity": "Tanh",
    "RandomPoisson": "RandomPoissonV2",
}  # fmt: skip


@functools.cache
def sampled() -> tuple[str, ...]:
    """The ops that a kernel step may draw, by name."""
    own = [name for name in sorted(OPS) if OPS[name].samples and name not in LEFT_OUT and not name.startswith("_") and any(True for _ in cases(OPS[name]))]
    return tuple(own + sorted(set(LIKE) & set(OPS)))


@functools.cache
def with_programs() -> tuple[str, ...]:
    """The ops that have small programs as samples."""
    # Samples with accumulators and queues wait for ever if they are run again and again: gradients are stale, queues full.
    return tuple(name for name in sorted(OPS) if OPS[name].samples and programs(OPS[name]) and name not in LEFT_OUT and not any(w in name for w in ("Accumulator", "Queue")))


@functools.cache
def _cases(name: str) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """An op's cases: in its usual type, and in every type."""
    return tuple(cases(OPS[name])), tuple(cases(OPS[name], every_type=True))


def apply(tf: Any, name: str, keywords: dict[str, Any]) -> Any:
    """The op by the names of its signature; TensorFlow's raw_ops rename some."""
    renamed = PYTHON_NAMES.get(name, {})
    return getattr(tf.raw_ops, name)(**{renamed.get(key, key): value for key, value in keywords.items()})


def plain(value: Any) -> Any:
    """Attributes in a form that both packages take."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dtypes.DType):
        return value.name
    if isinstance(value, TensorShape):
        return None if value.ndims is None else value.as_list()
    return value


def tensors(tf: Any, result: Any) -> list[Any]:
    """The tensors of what an op function gave."""
    if isinstance(result, tf.Operation):
        return list(result.outputs)
    return [t for t in tf.nest.flatten(result) if isinstance(t, tf.Tensor)]


def kernel(m: Maker) -> None:
    """One op, drawn from all that have samples."""
    tf, rng = m.tf, m.rng
    name = m.choose(sampled())
    usual, every = _cases(LIKE.get(name, name))
    case = rng.choice(every if m.chance(0.4) else usual)
    inferred = {a for arg in OPS[name].inputs for a in (arg.type_attr, arg.list_attr, arg.number_attr)}
    keywords: dict[str, Any] = {k: plain(v) for k, v in case.attrs.items() if k not in inferred and k in OPS[name].attrs}
    if "seed" in OPS[name].attrs:
        keywords["seed"] = keywords.get("seed") or m.seed % 1000 + 1
        keywords["seed2"] = keywords.get("seed2") or 7
    moving = False
    count = sum(len(v) if isinstance(v, list) else 1 for v in case.inputs.values())
    number = 0
    given = case.inputs
    if name in LIKE:  # its arguments may have other names
        given = dict(zip((a.name for a in OPS[name].inputs), given.values()))
    for arg in OPS[name].inputs:
        dtype = None
        if arg.type_attr in case.attrs:
            dtype = dtypes.as_dtype(case.attrs[arg.type_attr]).name

        def one(array: np.ndarray, arg: Any = arg, dtype: str | None = dtype) -> Any:
            nonlocal moving, number
            number += 1
            want = dtype or (arg.dtype or dtypes.from_np(array.dtype)).name
            tensor, moves = _input(m, array, want, must_move=number == count and not moving)
            moving = moving or moves
            return tensor

        value = given[arg.name]
        keywords[arg.name] = [one(v) for v in value] if arg.is_list else one(value)
    for tensor in tensors(tf, apply(tf, name, keywords)):
        if tensor.dtype.base_dtype.name not in ("resource", "variant") and not tensor.dtype._is_ref_dtype:
            m.add(tensor)


def _input(m: Maker, array: np.ndarray, dtype: str, must_move: bool) -> tuple[Any, bool]:
    """A tensor that stands for a sample's array, and whether it depends on feeds: the pass that folds constants would run the kernel otherwise."""
    tf = m.tf
    array = np.asarray(array)
    numeric = dtype in NUMERIC
    way = m.rng.random()
    if way < 0.3 and not must_move:
        return _constant(tf, array, dtype), False
    if way < 0.55 or not numeric or not m.pool or array.size > 4096:
        if m.inside and m.chance(0.8):
            return _constant(tf, array, dtype), False
        shape: Any = array.shape
        if m.chance(0.3):
            shape = None if m.chance(0.5) else [None] * array.ndim
        values = [array]
        if dtype in FLOATS:
            values.append((array * np.asarray(0.9, array.dtype)).astype(array.dtype))
        return m.feed(values, shape, dtype), True
    source = m.number()
    if source is None:
        return _constant(tf, array, dtype), False
    x = source.tensor
    fits = source.kind == dtype and x.shape.is_fully_defined() and tuple(x.shape.as_list()) == array.shape
    if fits and dtype in FLOATS and m.chance(0.5):
        return x, True
    base = _constant(tf, array, dtype)
    if dtype in FLOATS:
        return base * (m.fit(x, dtype, array.shape if m.chance(0.5) else ()) * tf.constant(0.1, dtype) + tf.constant(1, dtype)), True
    if dtype.startswith("complex"):
        return base * tf.cast(m.fit(x, "float32", ()) + 1.5, dtype), True
    # Whole numbers are often positions: the same ones, or the same in another order.
    other = array[::-1] if array.ndim and m.chance(0.25) else array
    chosen = tf.cast(m.fit(x, "bool", ()), "int32")
    return tf.gather(tf.stack([base, _constant(tf, np.ascontiguousarray(other), dtype)]), chosen), True


def _constant(tf: Any, array: np.ndarray, dtype: str) -> Any:
    return tf.constant(array.tolist() if dtype == "string" else array, dtype, array.shape)


def sample_program(m: Maker) -> None:
    """One of the small programs that ops with state have as samples; whoever reads a result waits for all of them."""
    tf = m.tf
    if m.inside:
        raise ValueError("only at the top")
    chosen = m.choose(with_programs())
    program = m.rng.choice(programs(OPS[chosen]))
    with tf.variable_scope(m.name("p")), tf.device(None):
        made = program.fn(tf)
        if isinstance(made, dict):
            made = {k: v for k, v in made.items() if k != "init"}
        flat = [v for v in tf.nest.flatten(made) if isinstance(v, (tf.Tensor, tf.Operation))]
        flat += [v.op for v in tf.nest.flatten(made) if hasattr(v, "op") and not isinstance(v, tf.Tensor)]
        with tf.control_dependencies(flat):
            done = tf.no_op()
            for tensor in flat:
                if isinstance(tensor, tf.Tensor) and not tensor.dtype._is_ref_dtype and tensor.dtype.base_dtype.name not in ("resource", "variant"):
                    m.add(tf.identity(tensor))
    m.updates.append(done)
