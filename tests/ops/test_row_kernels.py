"""Rows that are written, summed and multiplied many at a time give what one after the other gives."""

from types import SimpleNamespace

import numpy as np
import pytest

import penstock as tf
from penstock import dtypes
from penstock.errors import InvalidArgumentError
from penstock.ops import gather_scatter
from penstock.ops.kernels import candidates, segments
from penstock.ops.kernels import rows as kernels
from penstock.ops.kernels.sparse import RowPlan, merge_keys, row_major

_FUNCTIONS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "update": lambda old, new: new}


def _one_by_one(array, rows, updates, how):
    for i, row in enumerate(rows.tolist()):
        array[row] = _FUNCTIONS[how](array[row], updates if np.ndim(updates) == 0 else updates[i])


@pytest.mark.parametrize("how", list(_FUNCTIONS))
@pytest.mark.parametrize("count", [1, 2, 200, 3000])
@pytest.mark.parametrize("different", [1, 3, 300])
def test_scatters_are_those_of_one_row_after_the_other(how, count, different):
    random = np.random.RandomState(count + different)
    for shape in ((300,), (300, 5), (300, 33), (300, 2, 9)):
        array = random.randn(*shape).astype(np.float32)
        rows = random.randint(0, different, count)
        for updates in (random.uniform(0.9, 1.1, (count, *shape[1:])).astype(np.float32), np.float32(1.01)):
            got, want = array.copy(), array.copy()
            with np.errstate(over="ignore"):
                kernels.scatter_rows(got, rows, updates, how)
                _one_by_one(want, rows, updates, how)
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("n", [1, 2, 100, 700, 5000])
@pytest.mark.parametrize("limit", [1, 4, 1000, 1 << 20, 1 << 40])
def test_passes_number_the_occurrences_of_each_row(n, limit):
    indices = np.random.RandomState(n).randint(0, limit, n)
    number = np.full(n, -1)
    for k, positions in enumerate(kernels.passes(indices)):
        number[positions] = k
    seen: dict[int, int] = {}
    for i, index in enumerate(indices.tolist()):
        assert number[i] == seen.get(index, 0)
        seen[index] = seen.get(index, 0) + 1


def test_indices_out_of_range():
    for indices in (np.array([0, 5, 1]), np.array([3, -1]), np.arange(200), np.array([[0, 9]])):
        with pytest.raises(InvalidArgumentError, match=r"is not in \[0, 5\)"):
            kernels.check_indices(indices, 5)
    kernels.check_indices(np.array([], np.int32), 0)
    kernels.check_indices(np.arange(200) % 5, 5)


@pytest.mark.parametrize(("n", "width", "count"), [
    (0, 3, 4), (7, 2, 5), (1280, 32, 64), (5000, 32, 1000), (3000, 64, 40), (20000, 64, 20), (4000, 16, 3), (500, 64, 3000), (900, 0, 5),
])  # fmt: skip
@pytest.mark.parametrize("is_sorted", [False, True])
def test_sums_of_segments_by_any_way(n, width, count, is_sorted):
    random = np.random.RandomState(n)
    rows = random.randn(n, width).astype(np.float32)
    ids = np.sort(random.randint(0, count, n)) if is_sorted else random.randint(-1, count, n)
    got = segments.reduce_sorted(np.add, rows, ids, count, 0) if is_sorted else segments.reduce_rows(np.add, rows, ids, count, 0)
    want = np.zeros((count, width))
    np.add.at(want, ids[ids >= 0], rows[ids >= 0])
    assert got.dtype == np.float32 and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_a_few_long_groups_among_many_short_ones():
    ids = np.concatenate([np.arange(2000), np.zeros(3000, int), np.full(700, 5)])
    rows = np.random.RandomState(0).randn(ids.size, 64).astype(np.float32)
    want = np.zeros((2000, 64))
    np.add.at(want, ids, rows)
    np.testing.assert_allclose(segments.reduce_rows(np.add, rows, ids, 2000, 0), want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_sparse_matrix_multiplied_row_by_row(adjoint):
    random = np.random.RandomState(0)
    rows, columns = np.sort(random.randint(0, 50, 400)), random.randint(0, 30, 400)
    rows[:100] = 3
    if adjoint:
        rows, columns = columns, rows
    values, right = random.randn(400).astype(np.float32), random.randn(columns.max() + 1, 12).astype(np.float32)
    result = np.zeros((60, 12), np.float32)
    RowPlan(rows, columns, 60).multiply(values, right, result)
    dense = np.zeros((60, len(right)))
    np.add.at(dense, (rows, columns), values)
    np.testing.assert_allclose(result, dense @ right, rtol=1e-4, atol=1e-4)


def test_coordinates_in_row_major_order():
    assert row_major(np.array([[0, 1], [0, 1], [2, 0]]), [3, 2]) is None
    np.testing.assert_array_equal(row_major(np.array([[2, 0], [0, 1], [0, 1], [0, 0]]), [3, 2]), [3, 1, 2, 0])
    far = np.array([[1 << 40, 5], [3, 1 << 41], [3, 7]])
    np.testing.assert_array_equal(row_major(far, [1 << 42, 1 << 42]), [2, 1, 0])
    np.testing.assert_array_equal(row_major(np.array([[5, 0], [0, 9]]), [2, 2]), [1, 0])  # outside of the shape


def test_merged_keys():
    union, a, b = merge_keys(np.array([9, 2, 4]), np.array([4, 1, 9, 9]))
    assert union.tolist() == [1, 2, 4, 9] and a.tolist() == [3, 1, 2] and b.tolist() == [2, 0, 3, 3]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int16])
@pytest.mark.parametrize("count", [0, 1, 6, 200])
def test_vectors_of_one_index_are_rows(dtype, count):
    indices = (np.arange(2 * count) % 7).astype(dtype)[::2].reshape(count, 1)
    rows, good = kernels.nd_rows((7, 3), indices)
    assert good is None and rows.dtype == np.int64 and rows.tolist() == indices[:, 0].tolist()
    if count:
        for bad in (-1, 7):
            indices = indices.copy()
            indices[-1] = bad
            with pytest.raises(InvalidArgumentError, match=rf"indices\[{count - 1}\] = \[{bad}\] does not index into shape \[7,3\]"):
                kernels.nd_rows((7, 3), indices)
            assert kernels.nd_rows((7, 3), indices, b"IGNORE")[1].tolist() == [True] * (count - 1) + [False]


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("count", [1, 64, 65, 300])
def test_indices_in_range(dtype, count):
    indices = (np.arange(count) % 7).astype(dtype)
    largest = int(indices.max())
    assert kernels.are_in_range(indices, largest + 1) and not kernels.are_in_range(indices, largest)
    assert kernels.are_in_range(indices[::-1], largest + 1) and kernels.are_in_range(indices.reshape(-1, 1), largest + 1)
    assert kernels.are_in_range(indices, 1 << 40)
    if np.issubdtype(dtype, np.signedinteger):
        for bad in (-1, np.iinfo(dtype).min):
            indices[-1] = bad
            assert not kernels.are_in_range(indices, largest + 1) and not kernels.are_in_range(indices, 1 << 31) and not kernels.are_in_range(indices, 1 << 40)
    assert kernels.are_in_range(indices[:0], 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64])
@pytest.mark.parametrize("shape", [(6, 3), (6,), (6, 2, 2)])
def test_rows_that_are_scattered(dtype, shape):
    """Whole rows by machine code, anything else by the general way; the error of an index out of range leaves nothing behind."""
    indices = np.array([[4], [0], [4], [5]])
    updates = np.arange(4 * int(np.prod(shape[1:]))).reshape(4, *shape[1:]).astype(dtype)
    expected = np.zeros(shape, dtype)
    np.add.at(expected, indices[:, 0], updates)
    options = dict(T=dtypes.as_dtype(dtype), bad_indices_policy=b"")
    np.testing.assert_array_equal(gather_scatter.scatter_nd_kernel(indices, updates, np.array(shape), **options), expected)
    indices[2] = 6
    with pytest.raises(InvalidArgumentError, match=r"indices\[2\] = \[6\] does not index into shape \[6"):
        gather_scatter.scatter_nd_kernel(indices, updates, np.array(shape), **options)
    expected[4] = updates[0]
    options["bad_indices_policy"] = b"IGNORE"
    np.testing.assert_array_equal(gather_scatter.scatter_nd_kernel(indices, updates, np.array(shape), **options), expected)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [1, 5, 40])
def test_the_first_new_ones_of_a_row(seed, n):
    rng = np.random.RandomState(seed)
    pieces = [rng.randint(0, 60, size) for size in (3, 1, 7, 200, 1000)]
    sampler = SimpleNamespace(classes=lambda gen, n: iter(pieces))
    found, tries = candidates.sample(sampler, None, n, True)
    row = np.concatenate(pieces).tolist()
    seen = []
    for place, c in enumerate(row):
        if c not in seen:
            seen.append(c)
        if len(seen) == n:
            break
    assert found.tolist() == seen and tries == place + 1


@pytest.mark.parametrize("how", ["add", "sub", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(9,), (9, 3), (9, 2, 20)])
def test_scatters_into_variables(how, dtype, shape):
    """By machine code or not; a bad index, in whatever place, changes nothing."""
    rng = np.random.RandomState(0)
    start = rng.randint(1, 9, shape).astype(dtype)
    indices = rng.randint(0, 9, (2, 40)).astype(np.int32)
    updates = rng.randint(1, 3, indices.shape + shape[1:]).astype(dtype)
    expected = start.copy()
    _one_by_one(expected, indices.reshape(-1), updates.reshape(-1, *shape[1:]), how)
    with tf.Graph().as_default(), tf.Session() as sess:
        v = tf.Variable(start, use_resource=False)
        i, u = tf.placeholder(tf.int32), tf.placeholder(v.dtype.base_dtype)
        step = getattr(tf, f"scatter_{how}")(v, i, u)
        sess.run(v.initializer)
        held = sess.run(v)
        np.testing.assert_array_equal(sess.run(step, {i: indices, u: updates}), expected)
        np.testing.assert_array_equal(held, start)  # who has fetched it keeps what it was
        indices[1, 17] = 9
        with pytest.raises(InvalidArgumentError, match=r"indices\[1,17\] = 9 is not in \[0, 9\)"):
            sess.run(step, {i: indices, u: updates})
        with pytest.raises(InvalidArgumentError, match="Must have updates.shape"):
            sess.run(step, {i: indices, u: updates[:, :3]})
        np.testing.assert_array_equal(sess.run(v), expected)
