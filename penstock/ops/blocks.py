"""Moving blocks of cells between space, batch and depth."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import op, with_rank, with_rank_at_least
from penstock.ops.kernels import blocks
from penstock.ops.kernels.window import layout
from penstock.ops.samples import arr, empty, ints
from penstock.shapes import merge_dims


def divided(size: int | None, by: int) -> int | None:
    if size is None:
        return None
    if size % by:
        raise ValueError(f"Dimension size must be evenly divisible by {by} but is {size}")
    return size // by


def product(values: list[int]) -> int:
    total = 1
    for v in values:
        total *= v
    return total


def check_pairs(pairs: Any, count: int, what: str) -> list[list[int]] | None:
    if pairs is None:
        return None
    values = pairs.reshape(count, 2).tolist()
    if any(v < 0 for pair in values for v in pair):
        raise ValueError(f"{what} cannot be negative")
    return values


def space_to_batch_dims(dims: Any, block: list[int] | None, count: int, pads: list[list[int]] | None) -> Dims:
    if block is None:
        return (None,) * (1 + count) + dims[1 + count :]
    sizes: list[int | None] = [None] * count
    if pads is not None:
        for i, size in enumerate(dims[1 : 1 + count]):
            sizes[i] = None if size is None else divided(size + sum(pads[i]), block[i])
    return (None if dims[0] is None else dims[0] * product(block), *sizes, *dims[1 + count :])


def batch_to_space_dims(dims: Any, block: list[int] | None, count: int, crops: list[list[int]] | None) -> Dims:
    if block is None:
        return (None,) * (1 + count) + dims[1 + count :]
    batch = dims[0]
    for b in block:
        batch = divided(batch, b)
    sizes: list[int | None] = [None] * count
    if crops is not None:
        for i, size in enumerate(dims[1 : 1 + count]):
            if size is None:
                continue
            left = size * block[i] - sum(crops[i])
            if left < 0:
                raise ValueError(f"Negative dimension size caused by subtracting {sum(crops[i])} from {size * block[i]}")
            sizes[i] = left
    return (batch, *sizes, *dims[1 + count :])


def nd_shape(transform: Any, what: str) -> Any:
    """Rule of the ND ops: block sizes are input 1, paddings or crops input 2."""

    def rule(c: Any) -> Dims:
        block_dims = c.dims(1)
        if block_dims is not None and len(block_dims) != 1:
            raise ValueError("block_shape must have rank 1.")
        count = None if block_dims is None else block_dims[0]
        if count is None:
            return None
        dims = with_rank_at_least(c, 0, 1 + count)
        merge_dims(c.dims(2), (count, 2))
        block = c.const(1)
        if block is not None and (block < 1).any():
            raise ValueError("block_shape must be positive")
        pairs = check_pairs(c.const(2), count, what)
        return None if dims is None else transform(dims, None if block is None else block.tolist(), count, pairs)

    return rule


def square_shape(transform: Any, what: str) -> Any:
    """Rule of the ops with one block size for rows and columns; paddings or crops are input 1."""

    def rule(c: Any) -> Dims:
        dims = with_rank(c, 0, 4)
        merge_dims(c.dims(1), (2, 2))
        size = c.attrs["block_size"]
        return transform(dims, [size, size], 2, check_pairs(c.const(1), 2, what))

    return rule


SAMPLES_ND = [
    (([2, 2], [[0, 0], [0, 0]]), (2, 4, 6, 3), (8, 2, 3, 3)),
    (([2, 3], [[1, 1], [0, 3]]), (2, 4, 6, 3), (12, 3, 3, 3)),
    (([1, 2], [[0, 0], [1, 1]]), (1, 2, 4), (2, 2, 3)),
    (([2], [[1, 1]]), (2, 4, 6, 3), (4, 3, 6, 3)),
]

op("SpaceToBatchND(input: T, block_shape: Tblock_shape, paddings: Tpaddings) -> (output: T)"
   " [T: type; Tblock_shape: type in {int32, int64} = int32; Tpaddings: type in {int32, int64} = int32]",
   shape=nd_shape(space_to_batch_dims, "paddings"), numpy=blocks.space_to_batch_nd, host_memory=["block_shape", "paddings"],
   grad=lambda g, op, dy: [g.BatchToSpaceND(dy, op.block_shape, op.paddings), None, None],
   samples=[*(dict(input=ints(*x), block_shape=arr(block), paddings=arr(pads)) for (block, pads), x, _ in SAMPLES_ND),
            dict(input=empty(0, 4, 4, 2), block_shape=arr([2, 2]), paddings=arr([[0, 0], [0, 0]]))],
   errors=[(dict(input=ints(1, 4, 4, 2), block_shape=[3, 2], paddings=[[0, 0], [0, 0]]), InvalidArgumentError, r"padded_shape\[0\]=4 is not divisible by block_shape\[0\]=3")])  # fmt: skip

op("BatchToSpaceND(input: T, block_shape: Tblock_shape, crops: Tcrops) -> (output: T)"
   " [T: type; Tblock_shape: type in {int32, int64} = int32; Tcrops: type in {int32, int64} = int32]",
   shape=nd_shape(batch_to_space_dims, "crops"), numpy=blocks.batch_to_space_nd, host_memory=["block_shape", "crops"],
   grad=lambda g, op, dy: [g.SpaceToBatchND(dy, op.block_shape, op.crops), None, None],
   samples=[dict(input=ints(*y), block_shape=arr(block), crops=arr(pads)) for (block, pads), _, y in SAMPLES_ND],
   errors=[(dict(input=ints(4, 2, 2, 2), block_shape=[3, 2], crops=[[0, 0], [0, 0]]), InvalidArgumentError, r"Input batch dimension \(4\) is not divisible by product of block sizes \(6\)")])  # fmt: skip

op("SpaceToBatch(input: T, paddings: Tpaddings) -> (output: T) [T: type; Tpaddings: type in {int32, int64} = int32; block_size: int >= 2]",
   shape=square_shape(space_to_batch_dims, "paddings"), numpy=blocks.space_to_batch, host_memory=["paddings"],
   grad=lambda g, op, dy: [g.BatchToSpace(dy, op.paddings, block_size=op.attr("block_size")), None],
   samples=[dict(input=ints(1, 4, 4, 2), paddings=arr([[0, 0], [1, 1]]), block_size=2)])  # fmt: skip

op("BatchToSpace(input: T, crops: Tidx) -> (output: T) [T: type; block_size: int >= 2; Tidx: type in {int32, int64} = int32]",
   shape=square_shape(batch_to_space_dims, "crops"), numpy=blocks.batch_to_space, host_memory=["crops"],
   grad=lambda g, op, dy: [g.SpaceToBatch(dy, op.crops, block_size=op.attr("block_size")), None],
   samples=[dict(input=ints(4, 2, 3, 2), crops=arr([[0, 0], [1, 1]]), block_size=2)])  # fmt: skip


# -- depth ------------------------------------------------------------------------------------------------------------


def depth_shape(to_depth: bool) -> Any:
    def rule(c: Any) -> Dims:
        if c.attrs["data_format"] == b"NCHW_VECT_C":
            return (None,) * 5
        lay, size = layout(c.attrs["data_format"]), c.attrs["block_size"]
        dims = with_rank(c, 0, 4)
        assert dims is not None
        height, width = lay.of_spatial(dims)
        depth = dims[lay.channel]
        if to_depth:
            spatial = (divided(height, size), divided(width, size))
            return lay.build(dims[0], spatial, None if depth is None else depth * size * size)
        spatial = tuple(None if d is None else d * size for d in (height, width))
        return lay.build(dims[0], spatial, divided(depth, size * size))

    return rule


def depth_grad(name: str) -> Any:
    return lambda g, op, dy: getattr(g, name)(dy, block_size=op.attr("block_size"), data_format=op.attr("data_format"))


op("SpaceToDepth(input: T) -> (output: T) [T: type; block_size: int >= 2; data_format: string in {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC']",
   shape=depth_shape(True), numpy=blocks.space_to_depth, grad=depth_grad("DepthToSpace"),
   samples=[dict(input=ints(2, 4, 6, 3), block_size=2)],
   errors=[(dict(input=ints(1, 4, 4, 2), block_size=3), InvalidArgumentError, "should be divisible by block_size: 3")])  # fmt: skip

op("DepthToSpace(input: T) -> (output: T) [T: type; block_size: int >= 2; data_format: string in {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC']",
   shape=depth_shape(False), numpy=blocks.depth_to_space, grad=depth_grad("SpaceToDepth"),
   samples=[dict(input=ints(2, 2, 3, 12), block_size=2)],
   errors=[(dict(input=ints(1, 2, 2, 6), block_size=2), InvalidArgumentError, "Input depth dimension 6 should be divisible by: 4")])  # fmt: skip
