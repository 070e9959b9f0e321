"""Numeric ops at sizes that programs have: CASES names each and builds its step. Other themes: `images`, `linalg`, `random`.

What an op reads comes from variables, so that no package can compute it once and for all; a step is a callable without feeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Build = Callable[[Any], Callable[[], Any]]
CASES: dict[str, Build] = {}

MILLION = 1_000_000
HALVES = "half", "bfloat16"


def random(*shape: int, kind: Any = np.float32, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    """Numbers between two bounds, the same for each call with the same arguments."""
    values = np.random.RandomState(len(shape) + sum(shape) % 97).uniform(low, high, shape)
    return values.astype(kind) if isinstance(kind, str) or np.dtype(kind).kind != "c" else (values + 1j * values[..., ::-1]).astype(kind)


def whole(*shape: int, high: int, low: int = 0, kind: Any = np.int32) -> np.ndarray:
    return np.random.RandomState(sum(shape) % 97).randint(low, high, shape).astype(kind)


def add_case(cases: dict[str, Build], name: str, function: Callable[..., Any], *arrays: Any, kind: str | None = None) -> None:
    """The case that computes function(tf, *variables). `kind`: the type that the variables are cast to first, outside of the step."""

    def build(tf: Any) -> Callable[[], Any]:
        holders = [tf.placeholder(np.asarray(a).dtype, np.shape(a)) for a in arrays]
        values = [tf.cast(h, kind) if kind is not None and h.dtype.is_floating else h for h in holders]
        variables = [tf.Variable(v) for v in values]
        fetch = function(tf, *variables)
        session = tf.Session()
        session.run(tf.global_variables_initializer(), dict(zip(holders, arrays, strict=True)))
        return session.make_callable(fetch)

    assert name not in cases, name
    cases[name] = build


def case(name: str, function: Callable[..., Any], *arrays: Any, kind: str | None = None) -> None:
    add_case(CASES, name, function, *arrays, kind=kind)


# -- elementwise ------------------------------------------------------------------------------------------------------------

for _kind in ("int32", "int64"):
    case(f"pow {_kind} 10^6", lambda tf, x, y: tf.pow(x, y), whole(MILLION, low=-9, high=9, kind=_kind), whole(MILLION, high=8, kind=_kind))
    case(f"pow {_kind} 1000", lambda tf, x, y: tf.pow(x, y), whole(1000, low=-9, high=9, kind=_kind), whole(1000, high=8, kind=_kind))
    case(f"pow {_kind} by 3 10^6", lambda tf, x: tf.pow(x, 3), whole(MILLION, low=-9, high=9, kind=_kind))
    for _name in ("floordiv", "floormod", "truncatediv", "truncatemod", "maximum", "multiply", "abs", "square"):
        if _name in ("abs", "square"):
            case(f"{_name} {_kind} 10^6", lambda tf, x, f=_name: getattr(tf, f)(x), whole(MILLION, low=-99, high=99, kind=_kind))
        else:
            case(f"{_name} {_kind} 10^6", lambda tf, x, y, f=_name: getattr(tf, f)(x, y), whole(MILLION, low=-99, high=99, kind=_kind), whole(MILLION, low=1, high=9, kind=_kind))
for _kind in ("float32", "float64", *HALVES):
    case(f"pow {_kind} 10^6", lambda tf, x, y: tf.pow(x, y), random(MILLION, low=0.1, high=3), random(MILLION), kind=_kind)
    case(f"floormod {_kind} 10^6", lambda tf, x, y: tf.floormod(x, y), random(MILLION), random(MILLION, low=0.1), kind=_kind)
    for _name in ("exp", "log", "tanh", "sigmoid", "sin", "cos", "rsqrt", "sqrt", "floor", "round", "erf", "atan", "asinh", "log1p", "expm1", "sign", "tan", "acos"):
        case(f"{_name} {_kind} 10^6", lambda tf, x, f=_name: getattr(tf, f)(x), random(MILLION, low=0.01), kind=_kind)
    case(f"where {_kind} 10^6", lambda tf, c, x, y: tf.where(c, x, y), random(MILLION) > 0, random(MILLION), random(MILLION, low=0), kind=_kind)
    case(f"clip {_kind} 10^6", lambda tf, x: tf.clip_by_value(x, -0.5, 0.5), random(MILLION), kind=_kind)
    case(f"softmax {_kind} 1000 x 1000", lambda tf, x: tf.nn.softmax(x), random(1000, 1000), kind=_kind)
    case(f"softmax {_kind} 100,000 x 10", lambda tf, x: tf.nn.softmax(x), random(100_000, 10), kind=_kind)
    case(f"log_softmax {_kind} 1000 x 1000", lambda tf, x: tf.nn.log_softmax(x), random(1000, 1000), kind=_kind)
    case(f"cross entropy {_kind} 1000 x 1000", lambda tf, x, y: tf.nn.softmax_cross_entropy_with_logits_v2(logits=x, labels=y), random(1000, 1000), random(1000, 1000, low=0), kind=_kind)
    case(f"sparse cross entropy {_kind} 1000 x 1000", lambda tf, x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(logits=x, labels=y), random(1000, 1000), whole(1000, high=1000), kind=_kind)
    for _name in ("relu", "relu6", "elu", "selu", "softplus", "softsign"):
        case(f"{_name} {_kind} 10^6", lambda tf, x, f=_name: getattr(tf.nn, f)(x), random(MILLION), kind=_kind)
    case(f"add {_kind} 10^6", lambda tf, x, y: x + y, random(MILLION), random(MILLION, low=0), kind=_kind)
    case(f"add {_kind} columns 1000 x 1000", lambda tf, x, y: x + y, random(1000, 1000), random(1000, 1), kind=_kind)
    case(f"less {_kind} 10^6", lambda tf, x, y: x < y, random(MILLION), random(MILLION, low=0), kind=_kind)
    case(f"is_nan {_kind} 10^6", lambda tf, x: tf.is_nan(x), random(MILLION), kind=_kind)
for _name in ("add", "multiply", "divide"):
    for _kind in ("complex64", "complex128"):
        case(f"{_name} {_kind} 10^5", lambda tf, x, y, f=_name: getattr(tf, f)(x, y), random(100_000, kind=_kind), random(100_000, kind=_kind))
for _name in ("abs", "angle", "exp", "conj", "real", "sqrt", "tanh", "square"):
    case(f"{_name} complex64 10^5", lambda tf, x, f=_name: getattr(tf, f)(x), random(100_000, kind=np.complex64))
for _name in ("bitwise_and", "bitwise_xor", "left_shift", "right_shift"):
    for _kind in ("int8", "int32", "int64"):
        case(f"{_name} {_kind} 10^6", lambda tf, x, y, f=_name: getattr(tf.bitwise, f)(x, y), whole(MILLION, high=100, kind=_kind), whole(MILLION, high=7, kind=_kind))
case("population_count int64 10^6", lambda tf, x: tf.raw_ops.PopulationCount(x=x), whole(MILLION, high=1 << 30, kind=np.int64))
for _name in ("lgamma", "digamma", "erfc", "erfinv", "ndtri"):
    case(f"{_name} 10^5", lambda tf, x, f=_name: getattr(tf.math, f)(x), random(100_000, low=0.1, high=0.9))

# -- casts ------------------------------------------------------------------------------------------------------------------

_ALL = ("bool", "uint8", "int8", "int16", "int32", "int64", "half", "bfloat16", "float32", "float64")
for _from in _ALL:
    for _to in _ALL:
        if _from != _to:
            case(f"cast {_from} to {_to} 10^6", lambda tf, x, t=_to: tf.cast(x, t), whole(MILLION, high=2 if _from == "bool" else 100, kind="float32" if _from in HALVES else _from), kind=_from if _from in HALVES else None)
case("cast complex64 to complex128 10^5", lambda tf, x: tf.cast(x, tf.complex128), random(100_000, kind=np.complex64))
case("cast float32 to complex64 10^5", lambda tf, x: tf.cast(x, tf.complex64), random(100_000))
case("bitcast float32 to uint8 10^6", lambda tf, x: tf.bitcast(x, tf.uint8), random(MILLION))

# -- reductions and scans ---------------------------------------------------------------------------------------------------

for _kind in ("float32", "float64", *HALVES, "int32", "int64"):
    _x = whole(100, 100, 100, low=-9, high=9, kind=_kind) if _kind[0] == "i" else random(100, 100, 100)
    _cast = None if _kind[0] == "i" else _kind
    for _name in ("sum", "mean", "max", "prod"):
        for _axis in (None, 0, 1, 2, (0, 2)):
            case(f"reduce_{_name} {_kind} {_axis} 100^3", lambda tf, x, f=_name, a=_axis: getattr(tf, f"reduce_{f}")(x, a), _x, kind=_cast)
    for _axis in (0, 1, 2):
        case(f"argmax {_kind} {_axis} 100^3", lambda tf, x, a=_axis: tf.argmax(x, a), _x, kind=_cast)
        case(f"cumsum {_kind} {_axis} 100^3", lambda tf, x, a=_axis: tf.cumsum(x, a), _x, kind=_cast)
    case(f"cumsum {_kind} reverse exclusive 100^3", lambda tf, x: tf.cumsum(x, -1, reverse=True, exclusive=True), _x, kind=_cast)
    case(f"cumprod {_kind} 100^3", lambda tf, x: tf.cumprod(x, -1), _x, kind=_cast)
case("cumsum float32 10^6", lambda tf, x: tf.cumsum(x), random(MILLION))
case("cumsum int32 1000", lambda tf, x: tf.cumsum(x), whole(1000, high=9))
case("cumulative_logsumexp 1000 x 1000", lambda tf, x: tf.math.cumulative_logsumexp(x, -1), random(1000, 1000))
case("reduce_logsumexp 1000 x 1000", lambda tf, x: tf.reduce_logsumexp(x, -1), random(1000, 1000))
case("reduce_any bool 1000 x 1000", lambda tf, x: tf.reduce_any(x, -1), np.zeros((1000, 1000), bool))
case("reduce_all bool columns 1000 x 1000", lambda tf, x: tf.reduce_all(x, 0), np.ones((1000, 1000), bool))
case("reduce_sum complex64 1000 x 1000", lambda tf, x: tf.reduce_sum(x, -1), random(1000, 1000, kind=np.complex64))
case("reduce_max uint8 10^6", lambda tf, x: tf.reduce_max(x), whole(MILLION, high=255, kind=np.uint8))
case("moments 1000 x 1000", lambda tf, x: tf.nn.moments(x, [0]), random(1000, 1000))
case("l2_normalize 1000 x 1000", lambda tf, x: tf.nn.l2_normalize(x, -1), random(1000, 1000))
case("l2_loss 10^6", lambda tf, x: tf.nn.l2_loss(x), random(MILLION))
case("norm 10^6", lambda tf, x: tf.norm(x), random(MILLION))
case("bincount 10^6 into 100", lambda tf, x: tf.math.bincount(x, minlength=100, maxlength=100), whole(MILLION, high=100))
case("bincount weighted 10^6 into 100", lambda tf, x, w: tf.math.bincount(x, w, minlength=100, maxlength=100), whole(MILLION, high=100), random(MILLION))
case("histogram 10^6 into 100", lambda tf, x: tf.histogram_fixed_width(x, [-1.0, 1.0], 100), random(MILLION))
case("bucketize 10^5", lambda tf, x: tf.raw_ops.Bucketize(input=x, boundaries=[-0.8, -0.3, 0.0, 0.2, 0.7]), random(100_000))
case("unique int32 10^5", lambda tf, x: tf.unique(x)[0], whole(100_000, high=1000))
case("unique int64 with counts 10^5 few alike", lambda tf, x: tf.unique_with_counts(x)[2], whole(100_000, high=1 << 30, kind=np.int64))

# -- order ------------------------------------------------------------------------------------------------------------------

for _kind in ("float32", "int32", "float64"):
    _rows = random(1000, 1000) if _kind[0] == "f" else whole(1000, 1000, high=1 << 30)
    _cast = None if _kind[0] == "i" else _kind
    for _k in (1, 5, 100):
        case(f"top_k {_k} {_kind} 1000 x 1000", lambda tf, x, k=_k: tf.nn.top_k(x, k), _rows, kind=_cast)
    case(f"top_k 10 {_kind} 10^6", lambda tf, x: tf.nn.top_k(x, 10), _rows.ravel(), kind=_cast)
    case(f"sort {_kind} 1000 x 1000", lambda tf, x: tf.sort(x), _rows, kind=_cast)
    case(f"sort {_kind} 10^5", lambda tf, x: tf.sort(x), _rows.ravel()[:100_000], kind=_cast)
    case(f"argsort {_kind} 1000 x 1000", lambda tf, x: tf.argsort(x), _rows, kind=_cast)
    case(f"argsort {_kind} 1000 x 10", lambda tf, x: tf.argsort(x), _rows[:, :10], kind=_cast)
    case(f"nth_element {_kind} 1000 x 1000", lambda tf, x: tf.raw_ops.NthElement(input=x, n=100), _rows, kind=_cast)
case("top_k 5 bfloat16 1000 x 1000", lambda tf, x: tf.nn.top_k(x, 5), random(1000, 1000), kind="bfloat16")
case("top_k 3 100,000 x 10", lambda tf, x: tf.nn.top_k(x, 3), random(100_000, 10))
case("in_top_k 1000 x 1000", lambda tf, x, y: tf.nn.in_top_k(x, y, 5), random(1000, 1000), whole(1000, high=1000))
case("searchsorted 10^5 in 1000", lambda tf, x, y: tf.searchsorted(x, y), np.sort(random(1000)), random(100_000))
case("invert_permutation 10^5", lambda tf, x: tf.invert_permutation(x), np.random.RandomState(1).permutation(100_000).astype(np.int32))
case("edit_distance 100 x 10", lambda tf, x, y: tf.edit_distance(tf.SparseTensor(_PLACES, x, [100, 10]), tf.SparseTensor(_PLACES, y, [100, 10])), whole(1000, high=5, kind=np.int64), whole(1000, high=6, kind=np.int64))
_PLACES = np.stack(np.meshgrid(np.arange(100), np.arange(10), indexing="ij"), -1).reshape(-1, 2).astype(np.int64)

# -- products ---------------------------------------------------------------------------------------------------------------

case("matmul 7 x 1000 x 3", lambda tf, a, b: tf.matmul(a, b), random(7, 1000), random(1000, 3))
case("matmul 1 x 1000 x 1000", lambda tf, a, b: tf.matmul(a, b), random(1, 1000), random(1000, 1000))
case("matmul 1000 x 1000 x 1", lambda tf, a, b: tf.matmul(a, b), random(1000, 1000), random(1000, 1))
case("matmul transposed 300 x 300", lambda tf, a, b: tf.matmul(a, b, transpose_a=True, transpose_b=True), random(300, 300), random(300, 300))
for _kind in ("float32", "float64", *HALVES):
    case(f"matmul {_kind} 300 x 300", lambda tf, a, b: tf.matmul(a, b), random(300, 300), random(300, 300), kind=_kind)
    for _n, _count in ((3, 10_000), (8, 1000), (17, 500), (64, 64)):
        case(f"matmul {_kind} {_count} of {_n} x {_n}", lambda tf, a, b: tf.matmul(a, b), random(_count, _n, _n), random(_count, _n, _n), kind=_kind)
case("matmul int32 200 x 200", lambda tf, a, b: tf.matmul(a, b), whole(200, 200, high=99), whole(200, 200, high=99))
case("matmul complex64 200 x 200", lambda tf, a, b: tf.matmul(a, b), random(200, 200, kind=np.complex64), random(200, 200, kind=np.complex64))
case("matmul complex64 500 of 8 x 8", lambda tf, a, b: tf.matmul(a, b), random(500, 8, 8, kind=np.complex64), random(500, 8, 8, kind=np.complex64))
case("einsum bij,bjk->bik 64", lambda tf, a, b: tf.einsum("bij,bjk->bik", a, b), random(64, 64, 64), random(64, 64, 64))
case("einsum bhqd,bhkd->bhqk", lambda tf, a, b: tf.einsum("bhqd,bhkd->bhqk", a, b), random(4, 8, 64, 32), random(4, 8, 64, 32))
case("einsum bqhd,bkhd->bhqk", lambda tf, a, b: tf.einsum("bqhd,bkhd->bhqk", a, b), random(4, 64, 8, 32), random(4, 64, 8, 32))
case("einsum ij->ji 1000", lambda tf, a: tf.einsum("ij->ji", a), random(1000, 1000))
case("tensordot 20^4", lambda tf, a, b: tf.tensordot(a, b, [[1, 3], [0, 2]]), random(20, 20, 20, 20), random(20, 20, 20, 20))
case("broadcast matmul 50 x 30 x 20 by 20 x 40", lambda tf, a, b: tf.matmul(a, b), random(50, 30, 20), random(1, 20, 40))
