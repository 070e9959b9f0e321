"""Moving blocks between space, batch and depth, and dilated windows by way of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.api import array_ops
from penstock.api.array_misc import required_space_to_batch_paddings
from penstock.api.array_ops import one_of
from penstock.api.export import export
from penstock.graph.constant import constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


@export("space_to_batch_nd")
def space_to_batch_nd(input: Any, block_shape: Any, paddings: Any, name: str | None = None) -> Tensor:
    """Pads with zeros, then moves the cells of each block of the dimensions after the first into the batch."""
    return raw.SpaceToBatchND(input, block_shape, paddings, name=name)


@export("batch_to_space_nd")
def batch_to_space_nd(input: Any, block_shape: Any, crops: Any, name: str | None = None) -> Tensor:
    """The inverse of `space_to_batch_nd`: moves batch entries back into blocks, then crops."""
    return raw.BatchToSpaceND(input, block_shape, crops, name=name)


def _square(block_size: Any, block_shape: Any) -> Any:
    block = one_of(block_size, block_shape, "block_size", "block_shape")
    return np.array([block, block], np.int64) if np.ndim(block) == 0 else block


@export("space_to_batch", "nn.space_to_batch")
def space_to_batch(input: Any, paddings: Any, block_size: Any = None, name: str | None = None, block_shape: Any = None) -> Tensor:
    """`space_to_batch_nd` with square blocks of rows and columns."""
    return space_to_batch_nd(input, _square(block_size, block_shape), paddings, name)


@export("batch_to_space")
def batch_to_space(input: Any, crops: Any, block_size: Any = None, name: str | None = None, block_shape: Any = None) -> Tensor:
    """`batch_to_space_nd` with square blocks of rows and columns."""
    return batch_to_space_nd(input, _square(block_size, block_shape), crops, name)


@export("space_to_depth", "nn.space_to_depth")
def space_to_depth(input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC") -> Tensor:
    """Moves the cells of each block of rows and columns into the channels."""
    return raw.SpaceToDepth(input, block_size=block_size, data_format=data_format, name=name)


@export("depth_to_space", "nn.depth_to_space")
def depth_to_space(input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC") -> Tensor:
    """Spreads channels over blocks of rows and columns."""
    return raw.DepthToSpace(input, block_size=block_size, data_format=data_format, name=name)


NOT_BOTH = "`strides > 1` not supported in conjunction with `dilation_rate > 1`."

# -- dilated windows --------------------------------------------------------------------------------------------------


@export("nn.with_space_to_batch")
def with_space_to_batch(
    input: Any, dilation_rate: Any, padding: str, op: Callable[[Tensor, int, str], Tensor], filter_shape: Any = None,
    spatial_dims: Any = None, data_format: str | None = None,
) -> Tensor:  # fmt: skip
    """Applies `op(input, num_spatial_dims, padding)` with a window dilated by `dilation_rate`.

    Cells that are `dilation_rate` apart are brought together in the batch, `op` runs without padding, and the result is
    put back. "SAME" padding needs `filter_shape`. `spatial_dims` defaults to the dimensions after the batch (and after the
    channels if `data_format` begins with "NC").
    """
    input = convert_to_tensor(input, name="input")
    rates = constant_value(convert_to_tensor(dilation_rate, dtype="int32", name="dilation_rate"))
    if rates is None:
        raise ValueError("dilation_rate must be known when the graph is built")
    if rates.ndim != 1:
        raise ValueError(f"`dilation_rate.shape.rank` must be 1. Received: dilation_rate={dilation_rate} of rank {rates.ndim}")
    count = len(rates)
    if (rates < 1).any():
        raise ValueError(f"all elements of `dilation_rate` must be positive. Received: dilation_rate={rates}")
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"`padding` must be one of 'VALID' or 'SAME'. Received: padding={padding}")
    first = 2 if data_format is not None and data_format.startswith("NC") else 1
    spatial = sorted(int(d) for d in (range(first, first + count) if spatial_dims is None else spatial_dims))
    if len(set(spatial)) != count or spatial[0] < 1:
        raise ValueError(f"`spatial_dims` must be {count} different dimensions after the first. Received: {spatial_dims}")
    if (rates == 1).all():
        return op(input, count, padding)
    base = np.zeros((count, 2), np.int32)
    if padding == "SAME":
        if filter_shape is None:
            raise ValueError("`filter_shape` must be specified for `padding='SAME'`.")
        shape = constant_value(convert_to_tensor(filter_shape, name="filter_shape"))
        if shape is None:
            raise ValueError("the spatial shape of the filter must be known when the graph is built")
        extra = (shape[:count].astype(np.int32) - 1) * rates
        base = np.stack([extra // 2, extra - extra // 2], 1)
    sizes = _spatial_sizes(input, spatial)
    paddings, crops = required_space_to_batch_paddings(sizes, rates, base)
    block, paddings = _widen(rates, spatial, paddings)
    _, crops = _widen(rates, spatial, crops)
    together = raw.SpaceToBatchND(input, block, paddings)
    result = op(together, count, "VALID")
    return raw.BatchToSpaceND(result, block, crops)


def _spatial_sizes(x: Tensor, spatial: list[int]) -> Any:
    if x.dims is not None and all(x.dims[d] is not None for d in spatial):
        return [x.dims[d] for d in spatial]
    dynamic = array_ops.shape(x)
    return array_ops.stack([dynamic[d] for d in spatial])


def _widen(rates: np.ndarray, spatial: list[int], pairs: Tensor) -> tuple[np.ndarray, Any]:
    """Blocks and paddings for all dimensions up to the last spatial one: 1 and (0, 0) for those that are not spatial."""
    block = np.ones(spatial[-1], np.int32)
    block[[d - 1 for d in spatial]] = rates
    if len(block) == len(spatial):
        return block, pairs
    known = constant_value(pairs)
    if known is not None:
        full = np.zeros((len(block), 2), np.int32)
        full[[d - 1 for d in spatial]] = known
        return block, full
    rows = [pairs[spatial.index(d + 1)] if d + 1 in spatial else np.zeros(2, np.int32) for d in range(len(block))]
    return block, array_ops.stack(rows)
