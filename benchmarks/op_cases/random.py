"""Random numbers: stateful and stateless ops (see `numbers`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.op_cases.numbers import MILLION, Build, add_case, random, whole

CASES: dict[str, Build] = {}


def case(name: str, function: Callable[..., Any], *arrays: Any, kind: str | None = None) -> None:
    add_case(CASES, name, function, *arrays, kind=kind)


def _truncated(tf: Any, mean: Any, deviation: Any, low: Any, high: Any, shape: list[int]) -> Any:
    return tf.raw_ops.ParameterizedTruncatedNormal(shape=shape, means=mean, stdevs=deviation, minvals=low, maxvals=high, seed=3)


for _n in (1000, 100_000):
    for _label, _low, _high in (("middle", -2, 2), ("narrow", 0.5, 0.6), ("tail", 3, 9), ("half line", -0.5, np.inf)):
        _bounds = [np.full(1, v, np.float32) for v in (0, 1, _low, _high)]
        case(f"parameterized_truncated_normal {_label} {_n}", lambda tf, *p, n=_n: _truncated(tf, *p, shape=[1, n]), *_bounds)
case("parameterized_truncated_normal 1000 x 100", lambda tf, *p: _truncated(tf, *p, shape=[1000, 100]), random(1000), random(1000, low=0.5), random(1000, low=-3, high=-2), random(1000, low=2, high=3))
case("parameterized_truncated_normal float64", lambda tf, *p: _truncated(tf, *p, shape=[1, 100_000]), *[np.full(1, v, np.float64) for v in (0, 1, -2, 2)])
case("multinomial 100 of 64 x 1000", lambda tf, x: tf.multinomial(x, 100, seed=3), random(64, 1000))
case("multinomial 1 of 1000 x 100", lambda tf, x: tf.multinomial(x, 1, seed=3), random(1000, 100))
case("multinomial 10^5 of 1 x 10", lambda tf, x: tf.multinomial(x, 100_000, seed=3), random(1, 10))
case("stateless_multinomial 100 of 64 x 1000", lambda tf, x, s: tf.random.stateless_multinomial(x, 100, s), random(64, 1000), np.array([1, 2]))
_SEED = np.array([3, 5])
for _kind in ("float32", "float64", "bfloat16", "half"):
    for _name in ("uniform", "normal"):
        case(f"random_{_name} {_kind} 10^6", lambda tf, n, f=_name, t=_kind: getattr(tf, f"random_{f}")(n, dtype=t, seed=3), np.array([MILLION]))
        case(f"stateless_random_{_name} {_kind} 10^6", lambda tf, s, f=_name, t=_kind: getattr(tf.random, f"stateless_{f}")([MILLION], s, dtype=t), _SEED)
    case(f"truncated_normal {_kind} 10^6", lambda tf, n, t=_kind: tf.truncated_normal(n, dtype=t, seed=3), np.array([MILLION]))
    case(f"stateless_truncated_normal {_kind} 10^6", lambda tf, s, t=_kind: tf.random.stateless_truncated_normal([MILLION], s, dtype=t), _SEED)
for _kind in ("int32", "int64"):
    case(f"random_uniform {_kind} 10^6", lambda tf, n, t=_kind: tf.random_uniform(n, 0, 1000, dtype=t, seed=3), np.array([MILLION]))
    case(f"stateless_random_uniform {_kind} 10^6", lambda tf, s, t=_kind: tf.random.stateless_uniform([MILLION], s, 0, 1000, dtype=t), _SEED)
case("random_uniform 10", lambda tf, n: tf.random_uniform(n, seed=3), np.array([10]))
case("random_gamma 10^5", lambda tf, a: tf.random_gamma([100_000], a, seed=3), np.float32(2.5))
case("random_gamma small alpha 10^5", lambda tf, a: tf.random_gamma([100_000], a, seed=3), np.float32(0.5))
case("random_gamma 1000 alphas", lambda tf, a: tf.random_gamma([10], a, seed=3), random(1000, low=0.1, high=9))
case("random_gamma float64 10^5", lambda tf, a: tf.random_gamma([100_000], a, dtype=tf.float64, seed=3), np.float64(2.5))
case("random_poisson 10^5", lambda tf, a: tf.random_poisson(a, [100_000], seed=3), np.float32(4))
case("random_poisson large rate 10^5", lambda tf, a: tf.random_poisson(a, [100_000], seed=3), np.float32(40))
case("random_poisson 1000 rates", lambda tf, a: tf.random_poisson(a, [10], seed=3), random(1000, low=0.5, high=30))
case("stateless_gamma 10^5", lambda tf, a, s: tf.random.stateless_gamma([100_000], s, a), np.float32(2.5), _SEED)
case("stateless_poisson 10^5", lambda tf, a, s: tf.random.stateless_poisson([100_000], s, a), np.float32(4), _SEED)
case("stateless_binomial 10^5", lambda tf, n, p, s: tf.random.stateless_binomial([100_000], s, n, p), np.float32(20), np.float32(0.3), _SEED)
case("stateless_binomial many tries 10^5", lambda tf, n, p, s: tf.random.stateless_binomial([100_000], s, n, p), np.float32(1000), np.float32(0.3), _SEED)
case("stateless_binomial 1000 parameters", lambda tf, n, p, s: tf.random.stateless_binomial([10, 1000], s, n, p), random(1000, low=5, high=200), random(1000, low=0), _SEED)
for _n in (1000, 100_000):
    case(f"random_shuffle {_n}", lambda tf, x: tf.random_shuffle(x, seed=3), random(_n))
case("random_shuffle rows", lambda tf, x: tf.random_shuffle(x, seed=3), random(10_000, 64))
case("random_crop", lambda tf, x: tf.random_crop(x, [100, 100], seed=3), random(300, 300))
case("dropout 10^6", lambda tf, x: tf.nn.dropout(x, rate=0.3, seed=3), random(MILLION))
case("log_uniform_candidate_sampler", lambda tf, x: tf.nn.log_uniform_candidate_sampler(x, 1, 64, True, 10_000, seed=3)[0], whole(64, 1, high=10_000, kind=np.int64))
case("uniform_candidate_sampler", lambda tf, x: tf.nn.uniform_candidate_sampler(x, 1, 64, True, 10_000, seed=3)[0], whole(64, 1, high=10_000, kind=np.int64))
case("learned_unigram_candidate_sampler", lambda tf, x: tf.nn.learned_unigram_candidate_sampler(x, 1, 64, True, 10_000, seed=3)[0], whole(64, 1, high=10_000, kind=np.int64))
