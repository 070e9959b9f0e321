"""Views that are copied line by line hold what NumPy's copies hold."""

import numpy as np
import pytest

from penstock.ops import arrange, select
from penstock.ops.kernels import blocks, joins
from penstock.ops.native import lines

needs_loops = pytest.mark.skipif(not lines.native.available(), reason="no machine code here")
TYPES = ["uint8", "int16", "float32", "float64", "complex128", "bool"]


def numbers(*shape, dtype="float32"):
    return np.random.default_rng(sum(shape)).integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8).reshape(-1).view(f"V{np.dtype(dtype).itemsize}").reshape(shape).view(
        "uint8" if dtype == "bool" else dtype)  # fmt: skip


def same(x, y):
    assert x.shape == y.shape and x.dtype == y.dtype
    assert x.tobytes() == y.tobytes()


@pytest.fixture
def all_sizes(monkeypatch):
    for module in (lines, arrange, joins):
        monkeypatch.setattr(module, "_LARGE", 1)


@needs_loops
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("depth", [1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 200, 511, 513, 600, 1030, 5000])
def test_lines_of_any_length(all_sizes, dtype, depth):
    x = numbers(3, 5, 4, depth, dtype=dtype)
    views = [x.transpose(0, 2, 1, 3), x.transpose(2, 1, 0, 3), x[:, ::2, 1::2], x[::-1, :, ::-1], x[..., ::-1], x[::-1, ::2, :, ::-1], x[..., 1:], x[..., : depth // 2], x[..., ::-2],
             x[:, :, :0], x[0, 0, 0, ::-1], np.broadcast_to(x[:1], x.shape), np.asfortranarray(x), x[1:2, :, 3:, ::-1]]  # fmt: skip
    for view in views:
        same(lines.in_order(view), np.ascontiguousarray(view))
        same(lines.laid_out(view).copy(), view.copy())
        around = np.full(tuple(n + 2 for n in view.shape), 7, x.dtype)
        want = around.copy()
        middle = (slice(1, -1),) * view.ndim
        lines.copy(around[middle], view)
        want[middle] = view
        same(around, want)


@needs_loops
def test_which_views_are_laid_out(all_sizes):
    x = numbers(4, 6, 100)
    assert lines.laid_out(x.transpose(1, 0, 2)).base is not None and not lines.laid_out(x.transpose(1, 0, 2)).flags.c_contiguous
    assert lines.laid_out(x[..., ::-1]).flags.c_contiguous and lines.laid_out(x[..., :3].transpose(1, 0, 2)).flags.c_contiguous
    assert lines.laid_out(x) is x


@needs_loops
@pytest.mark.parametrize("dtype", [*TYPES, object])
@pytest.mark.parametrize("width", [1, 2, 15, 64, 100, 2000])
def test_rows_by_a_condition(all_sizes, dtype, width):
    yes, no = (np.full((40, width), fill, object) for fill in "yn") if dtype is object else (numbers(40, width, dtype=dtype), numbers(width, 40, dtype=dtype).reshape(40, width))
    condition = np.random.default_rng(width).random(40) > 0.5
    want = np.where(condition[:, None], yes, no)
    for a, b in ((yes, no), (np.asfortranarray(yes), no), (yes.reshape(40, 1, width), no.reshape(40, 1, width))):
        got = select.select_kernel(condition, a, b)
        assert got.shape == a.shape
        if dtype is object:
            np.testing.assert_array_equal(got.reshape(want.shape), want)
        else:
            same(got.reshape(want.shape), want)
    if dtype is not object:
        same(select.select_v2_kernel(condition[:, None], yes, no), want)
        same(select.select_v2_kernel(condition[::-1, None], yes, no), np.where(condition[::-1, None], yes, no))


@pytest.mark.parametrize("dtype", TYPES)
def test_paddings_and_joins(all_sizes, dtype):
    x = numbers(3, 4, 5, dtype=dtype)
    for paddings in ([[0, 0], [1, 2], [3, 0]], [[2, 2], [0, 3], [4, 4]], [[0, 0], [0, 0], [0, 1]], [[0, 0]] * 3):
        for view in (x, x.transpose(2, 0, 1), x[..., ::-1]):
            same(arrange.pad_kernel(view, np.array(paddings)), np.pad(view, paddings))
            value = np.asarray(x[0, 0, 0])
            same(arrange.pad_kernel(view, np.array(paddings), value), np.pad(view, paddings, constant_values=value))
    for axis in (0, 1, 2, -1, -2):
        pieces = [x, x[..., ::-1], np.concatenate([x, x], axis)]
        same(joins.concat_v2_kernel(pieces, np.array(axis)), np.concatenate(pieces, axis))


@pytest.mark.parametrize("block", [[1, 2], [2, 2], [3, 2], [2, 9], [9, 9]])
@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize("border", [[[0, 0], [0, 0]], [[0, 1], [2, 0]], [[2, 3], [1, 4]], [[5, 0], [0, 7]], [[12, 6], [1, 10]]])
def test_blocks_of_batches(all_sizes, monkeypatch, block, border, is_small):
    monkeypatch.setattr(blocks, "_SMALL", (1 << 30) * is_small)
    batch, depth = 2, 3
    sizes = [b * 6 for b in block]
    space = [size - before - after for size, (before, after) in zip(sizes, border, strict=True)]
    if min(space) < 0:
        return
    x = numbers(batch, *space, depth)
    got = blocks.space_to_batch_nd(x, np.array(block), np.array(border))
    padded = np.pad(x, [(0, 0), *map(tuple, border), (0, 0)])
    want = np.stack([padded[:, i :: block[0], j :: block[1]] for i in range(block[0]) for j in range(block[1])]).reshape(got.shape)
    same(got, want)
    same(blocks.batch_to_space_nd(got, np.array(block), np.array(border)), x)
