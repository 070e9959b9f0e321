"""Ops that move elements: gathers, scatters, segments, transposes, pads and the like (see `numbers`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.op_cases.numbers import MILLION, Build, add_case, random, whole

CASES: dict[str, Build] = {}


def case(name: str, function: Callable[..., Any], *arrays: Any, kind: str | None = None) -> None:
    add_case(CASES, name, function, *arrays, kind=kind)


_TABLE, _IDS = random(10_000, 64), whole(5000, high=10_000)

# -- gathers and scatters ---------------------------------------------------------------------------------------------------

for _kind in ("float32", "float64", "bfloat16"):
    case(f"gather {_kind} 5000 of 10,000 x 64", lambda tf, x, i: tf.gather(x, i), _TABLE, _IDS, kind=_kind)
    case(f"gather {_kind} 10^6 elements", lambda tf, x, i: tf.gather(x, i), random(100_000), whole(MILLION, high=100_000), kind=_kind)
    case(f"gather {_kind} columns", lambda tf, x, i: tf.gather(x, i, axis=1), random(1000, 1000), whole(500, high=1000), kind=_kind)
case("gather of 10 rows", lambda tf, x, i: tf.gather(x, i), _TABLE, _IDS[:10])
case("gather batch_dims 100 x 1000", lambda tf, x, i: tf.gather(x, i, batch_dims=1), random(100, 1000), whole(100, 100, high=1000))
case("gather_nd 10^5 elements", lambda tf, x, i: tf.gather_nd(x, i), random(1000, 1000), whole(100_000, 2, high=1000))
case("gather_nd 5000 rows", lambda tf, x, i: tf.gather_nd(x, i), _TABLE, _IDS[:, None])
case("scatter_nd 10^5 elements", lambda tf, i, v: tf.scatter_nd(i, v, [1000, 1000]), whole(100_000, 2, high=1000), random(100_000))
case("scatter_nd 5000 rows", lambda tf, i, v: tf.scatter_nd(i, v, [10_000, 64]), _IDS[:, None], random(5000, 64))
for _name in ("update", "add", "max", "sub"):
    case(f"tensor_scatter_nd_{_name} 10^5 elements", lambda tf, x, i, v, f=_name: getattr(tf, f"tensor_scatter_nd_{f}")(x, i, v), random(1000, 1000), whole(100_000, 2, high=1000), random(100_000))
    case(f"tensor_scatter_nd_{_name} 5000 rows", lambda tf, x, i, v, f=_name: getattr(tf, f"tensor_scatter_nd_{f}")(x, i, v), _TABLE, _IDS[:, None], random(5000, 64))
for _name in ("update", "add", "mul", "max"):
    case(f"scatter_{_name} of a variable 5000 rows", lambda tf, x, i, v, f=_name: getattr(tf, f"scatter_{f}")(x, i, v).op, _TABLE, _IDS, random(5000, 64))
case("dynamic_partition 10^5 into 4", lambda tf, x, i: tf.dynamic_partition(x, i, 4), random(100_000), whole(100_000, high=4))
case("dynamic_partition rows into 4", lambda tf, x, i: tf.dynamic_partition(x, i, 4), _TABLE, whole(10_000, high=4))
case("dynamic_stitch 10^5", lambda tf, i, j, x, y: tf.dynamic_stitch([i, j], [x, y]), np.arange(0, 100_000, 2, dtype=np.int32), np.arange(1, 100_000, 2, dtype=np.int32), random(50_000), random(50_000))
case("dynamic_stitch rows", lambda tf, i, j, x, y: tf.dynamic_stitch([i, j], [x, y]), np.arange(0, 10_000, 2, dtype=np.int32), np.arange(1, 10_000, 2, dtype=np.int32), random(5000, 64), random(5000, 64))
_SORTED = np.sort(whole(10_000, high=500))
for _name in ("sum", "mean", "max", "min", "prod"):
    for _kind in ("float32", "float64", "bfloat16"):
        case(f"segment_{_name} {_kind} 10,000 x 64", lambda tf, x, i, f=_name: getattr(tf, f"segment_{f}")(x, i), _TABLE, _SORTED, kind=_kind)
        if _name != "mean":
            case(f"unsorted_segment_{_name} {_kind} 10,000 x 64", lambda tf, x, i, f=_name: getattr(tf, f"unsorted_segment_{f}")(x, i, 500), _TABLE, whole(10_000, high=500), kind=_kind)
    case(f"segment_{_name} 10^5 elements", lambda tf, x, i, f=_name: getattr(tf, f"segment_{f}")(x, i), random(100_000), np.sort(whole(100_000, high=500)))
    if _name != "mean":
        case(f"unsorted_segment_{_name} 10^5 elements", lambda tf, x, i, f=_name: getattr(tf, f"unsorted_segment_{f}")(x, i, 500), random(100_000), whole(100_000, high=500))
case("unsorted_segment_sum int32 10^5", lambda tf, x, i: tf.unsorted_segment_sum(x, i, 500), whole(100_000, high=9), whole(100_000, high=500))
for _name in ("sum", "mean", "sqrt_n"):
    case(f"sparse_segment_{_name} 10,000 of 10,000 x 64", lambda tf, x, j, i, f=_name: getattr(tf, f"sparse_segment_{f}")(x, j, i), _TABLE, whole(10_000, high=10_000), _SORTED)
case("embedding_lookup_sparse 10,000", lambda tf, x, j, i: tf.nn.embedding_lookup_sparse(x, tf.SparseTensor(tf.stack([i, tf.zeros_like(i)], 1), j, [500, 1]), None, combiner="mean"), _TABLE, whole(10_000, high=10_000, kind=np.int64), _SORTED.astype(np.int64))
case("where indices 10^6", lambda tf, x: tf.where(x > 0), random(MILLION))
case("where indices 1000 x 1000", lambda tf, x: tf.where(x), random(1000, 1000) > 0.9)
case("boolean_mask 10^6", lambda tf, x, m: tf.boolean_mask(x, m), random(MILLION), random(MILLION) > 0)
case("boolean_mask rows", lambda tf, x, m: tf.boolean_mask(x, m), _TABLE, random(10_000) > 0)
case("one_hot 10,000 of 100", lambda tf, i: tf.one_hot(i, 100), whole(10_000, high=100))
case("one_hot 100 of 10", lambda tf, i: tf.one_hot(i, 10), whole(100, high=10))
case("one_hot int32 axis 0", lambda tf, i: tf.one_hot(i, 100, axis=0, dtype=tf.int32), whole(10_000, high=100))

# -- arrangements -----------------------------------------------------------------------------------------------------------

for _kind in ("uint8", "bfloat16", "float32", "float64", "complex64"):
    for _order, _shape in (((1, 0), (1000, 1000)), ((1, 0), (3, 100_000)), ((1, 0), (100_000, 3)), ((0, 2, 1), (32, 49, 257)), ((0, 2, 3, 1), (16, 3, 64, 64)), ((0, 3, 1, 2), (16, 64, 64, 3)), ((0, 2, 1, 3), (16, 128, 8, 32)), ((2, 1, 0), (50, 60, 70))):
        _x = random(*_shape) if _kind == "bfloat16" else random(*_shape, high=100, kind=_kind)
        case(f"transpose {_kind} {_order} {_shape}", lambda tf, x, p=_order: tf.transpose(x, p), _x, kind=_kind if _kind == "bfloat16" else None)
for _kind in ("float32", "uint8", "float64"):
    _image = random(16, 64, 64, 32, high=100, kind=_kind)
    case(f"pad {_kind} images", lambda tf, x: tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), _image)
    case(f"mirror_pad {_kind} images", lambda tf, x: tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT"), _image)
    case(f"mirror_pad {_kind} symmetric 1000 x 1000", lambda tf, x: tf.pad(x, [[3, 3], [5, 5]], "SYMMETRIC"), random(1000, 1000, high=100, kind=_kind))
    case(f"pad {_kind} 1000 x 1000", lambda tf, x: tf.pad(x, [[3, 3], [5, 5]]), random(1000, 1000, high=100, kind=_kind))
    case(f"tile {_kind} 100 x 100 by 10 x 10", lambda tf, x: tf.tile(x, [10, 10]), random(100, 100, high=100, kind=_kind))
    case(f"tile {_kind} 1000 x 1 by 1 x 100", lambda tf, x: tf.tile(x, [1, 100]), random(1000, 1, high=100, kind=_kind))
    case(f"reverse {_kind} rows 1000 x 1000", lambda tf, x: tf.reverse(x, [0]), random(1000, 1000, high=100, kind=_kind))
    case(f"reverse {_kind} columns 1000 x 1000", lambda tf, x: tf.reverse(x, [1]), random(1000, 1000, high=100, kind=_kind))
    case(f"reverse {_kind} images left right", lambda tf, x: tf.reverse(x, [2]), random(16, 64, 64, 3, high=100, kind=_kind))
    case(f"roll {_kind} 1000 x 1000", lambda tf, x: tf.roll(x, [3, 7], [0, 1]), random(1000, 1000, high=100, kind=_kind))
    case(f"space_to_depth {_kind}", lambda tf, x: tf.space_to_depth(x, 2), _image)
    case(f"depth_to_space {_kind}", lambda tf, x: tf.depth_to_space(x, 2), _image)
    case(f"space_to_batch {_kind}", lambda tf, x: tf.space_to_batch_nd(x, [2, 2], [[0, 0], [0, 0]]), _image)
    case(f"batch_to_space {_kind}", lambda tf, x: tf.batch_to_space_nd(x, [2, 2], [[0, 0], [1, 1]]), _image)
    case(f"concat {_kind} columns", lambda tf, x: tf.concat([x, x, x], 1), random(1000, 300, high=100, kind=_kind))
    case(f"concat {_kind} thin columns", lambda tf, x: tf.concat([x, x, x], 1), random(30_000, 3, high=100, kind=_kind))
    case(f"stack {_kind} last axis", lambda tf, x: tf.stack([x, x, x], -1), random(300, 300, high=100, kind=_kind))
    case(f"unstack {_kind} last axis", lambda tf, x: tf.unstack(x, axis=-1), random(300, 300, 3, high=100, kind=_kind))
    case(f"split {_kind} columns", lambda tf, x: tf.split(x, 4, 1), random(1000, 1000, high=100, kind=_kind))
    case(f"slice {_kind} columns", lambda tf, x: x[:, 100:900], random(1000, 1000, high=100, kind=_kind))
    case(f"strided slice {_kind}", lambda tf, x: x[::2, ::3] + 0, random(1000, 1000, high=100, kind=_kind))
    case(f"broadcast_to {_kind}", lambda tf, x: tf.broadcast_to(x, [1000, 1000]), random(1000, 1, high=100, kind=_kind))
    case(f"fill {_kind}", lambda tf, x: tf.fill([1000, 1000], x), np.asarray(3, _kind))
    case(f"repeat {_kind}", lambda tf, x: tf.repeat(x, 3), random(100_000, high=100, kind=_kind))
    case(f"select rows {_kind}", lambda tf, c, x, y: tf.where(c, x, y), random(10_000) > 0, random(10_000, 64, high=100, kind=_kind), random(10_000, 64, high=100, kind=_kind))
    case(f"zeros_like {_kind} 10^6", lambda tf, x: tf.zeros_like(x), random(MILLION, high=100, kind=_kind))
case("reverse_sequence 64 x 100 x 32", lambda tf, x, n: tf.reverse_sequence(x, n, 1, 0), random(64, 100, 32), whole(64, low=1, high=100))
case("sequence_mask 1000 x 200", lambda tf, n: tf.sequence_mask(n, 200), whole(1000, high=200))
case("range 10^6", lambda tf, n: tf.range(n), np.int32(MILLION))
case("linspace 10^6", lambda tf, x: tf.linspace(x, 1.0, MILLION), np.float32(0))
case("meshgrid 1000 x 1000", lambda tf, x: tf.meshgrid(x, x), random(1000))
case("matrix_band_part 1000 x 1000", lambda tf, x: tf.matrix_band_part(x, 3, 5), random(1000, 1000))
case("matrix_band_part 1000 of 16 x 16", lambda tf, x: tf.matrix_band_part(x, -1, 0), random(1000, 16, 16))
case("diag 1000", lambda tf, x: tf.diag(x), random(1000))
case("matrix_diag 1000 x 30", lambda tf, x: tf.matrix_diag(x), random(1000, 30))
case("matrix_diag_part 1000 of 30 x 30", lambda tf, x: tf.matrix_diag_part(x), random(1000, 30, 30))
case("matrix_set_diag 1000 of 30 x 30", lambda tf, x, d: tf.matrix_set_diag(x, d), random(1000, 30, 30), random(1000, 30))
case("eye 1000", lambda tf, x: tf.eye(1000) * x, np.float32(2))
case("trace 1000 of 30 x 30", lambda tf, x: tf.trace(x), random(1000, 30, 30))

# -- quantised values -------------------------------------------------------------------------------------------------------

case("quantize 10^6", lambda tf, x: tf.quantize(x, -1.0, 1.0, tf.quint8), random(MILLION))
case("quantize scaled int8 10^6", lambda tf, x: tf.quantize(x, -1.0, 1.0, tf.qint8, mode="SCALED"), random(MILLION))
case("quantize then dequantize 10^6", lambda tf, x: tf.dequantize(tf.quantize(x, -1.0, 1.0, tf.quint8)[0], -1.0, 1.0), random(MILLION))
case("fake_quant 10^6", lambda tf, x: tf.fake_quant_with_min_max_args(x, -1, 1), random(MILLION))
case("fake_quant per channel 10,000 x 64", lambda tf, x, a, b: tf.fake_quant_with_min_max_vars_per_channel(x, a, b), random(10_000, 64), random(64, low=-2, high=-1), random(64, low=1, high=2))
case("quantize_and_dequantize 10^6", lambda tf, x: tf.quantization.quantize_and_dequantize(x, -1.0, 1.0), random(MILLION))
