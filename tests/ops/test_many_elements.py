"""Kernels that go other ways for many elements than for few: both ways give the same, for ties, zeros, NaNs and bounds too."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import penstock as tf
from penstock.ops import sets, sorting, sparse_places
from penstock.ops.kernels import hashes, products, rows, segments, short_rows, topk
from penstock.ops.kernels.einsum import einsum

RANDOM = np.random.RandomState(0)
HALVES = ("float16", ml_dtypes.bfloat16)


def by_value(x: np.ndarray, k: int) -> np.ndarray:
    """Largest first, of equal ones the first: one row after the other, with Python's stable sort."""
    return np.array([sorted(range(len(row)), key=lambda i: -row[i])[:k] for row in x.astype(np.float64).tolist()])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", *HALVES])
@pytest.mark.parametrize(("n", "k"), [(40, 40), (1003, 5), (3000, 20), (900, 300)])
def test_top_k(dtype, n, k):
    spread = RANDOM.randn(3, n) * 50
    for x in (spread, np.round(spread / 40), np.where(RANDOM.rand(3, n) < 0.5, 0.0, -0.0)):
        x = (np.abs(x) if dtype == "uint8" else x).astype(dtype)
        values, index = topk.top_k(x, np.int32(k))
        assert values.dtype == x.dtype and index.dtype == np.int32
        assert index.tolist() == by_value(x, k).tolist()
        assert (values == np.take_along_axis(x, index, -1)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int32, np.int64])
def test_top_k_of_a_single_row(dtype, monkeypatch):
    rng = np.random.RandomState(0)
    rows = [(rng.randint(-5, 6, n)).astype(dtype) for n in (1, 2, 7, 20, 60, 200)]
    if np.dtype(dtype).kind == "f":
        for row, value in zip(rows, (np.nan, -0.0, np.nan, np.inf, np.nan, -np.inf), strict=True):
            row[len(row) // 2] = value

    def results():
        return [part.tobytes() for row in rows for k in {0, 1, 2, 3, len(row) // 5, len(row)} if k <= len(row) for part in topk.top_k(row, np.int32(k))]

    at_once = results()
    monkeypatch.setattr(topk, "ONE_SHORT_ROW", -1)
    assert results() == at_once


def test_top_k_puts_nans_first_and_fills_with_nothing():
    x = np.full((2, 5000), -np.inf, np.float32)
    x[0, 17], x[1, 4999] = 5, np.nan
    assert topk.top_k(x, np.int32(3))[1].tolist() == [[17, 0, 1], [4999, 0, 1]]
    least = np.full((1, 5000), np.iinfo(np.int32).min, np.int32)
    least[0, 17] = 5
    assert topk.top_k(least, np.int32(3))[1].tolist() == [[17, 0, 1]]


def unique(x: np.ndarray) -> tuple[list, list]:
    numbers: dict = {}
    keys = [("nan", i) if v != v else v for i, v in enumerate(x.tolist())]
    inverse = [numbers.setdefault(key, len(numbers)) for key in keys]
    return [inverse.index(i) for i in range(len(numbers))], inverse


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64", "uint8"])
@pytest.mark.parametrize("span", [10, 5000, 2**31 - 1])
def test_unique_integers(dtype, span):
    x = RANDOM.randint(0, span, 1500).astype(dtype) + np.array(-5).astype(dtype)
    first, inverse = sorting.first_occurrences(x)
    assert (first.tolist(), inverse.tolist()) == unique(x)


def test_unique_integers_of_64_bits():
    for x in (RANDOM.randint(0, 99, 1500).astype(np.uint64) + np.uint64(2**63 + 5), RANDOM.randint(-(2**62), 2**62, 1500)):
        first, inverse = sorting.first_occurrences(np.concatenate([x, x]))
        assert (x[first] == x[np.sort(first)]).all() and first.max() < 1500
        assert (np.concatenate([x, x])[first][inverse] == np.concatenate([x, x])).all()
        assert len(first) == len(set(x.tolist()))


@pytest.mark.parametrize("dtype", ["float32", "float64", *HALVES])
@pytest.mark.parametrize("with_nans", [False, True])
def test_unique_floats(dtype, with_nans):
    x = np.round(RANDOM.randn(1500) * 20)
    x[::7], x[3::7] = 0, -0.0
    if with_nans:
        x[::50] = np.nan
    first, inverse = sorting.first_occurrences(x.astype(dtype))
    if dtype in HALVES:  # whose zeros are two
        x = np.where((x == 0) & np.signbit(x), 1e4, x)
    assert (first.tolist(), inverse.tolist()) == unique(x.astype(dtype))


def test_unique_strings():
    x = np.array([b"w%d" % i for i in RANDOM.randint(0, 50, 500)], object)
    first, inverse = sorting.first_occurrences(x)
    assert (first.tolist(), inverse.tolist()) == unique(x)


@pytest.mark.parametrize("n", [9, 48, 49, 301, 5000])
@pytest.mark.parametrize("longest", [0, 2, 70, 200])
def test_unique_strings_of_any_length(n, longest):
    letters = [bytes([letter]) for letter in (0, 97, 255)]
    x = np.empty(2 * n, object)
    x[:] = [b"x" * RANDOM.randint(0, longest + 1) + letters[RANDOM.randint(3)] * RANDOM.randint(3) for _ in range(2 * n)]
    for strings in (x[::2], x[:n], np.append(x[:n], "a letter that is no byte")):
        first, inverse = sorting.first_occurrences(strings)
        assert (first.tolist(), inverse.tolist()) == unique(strings)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "uint8", "int16"])
def test_products_of_integers_are_exact_and_wrap(dtype):
    info = np.iinfo(dtype)
    for low, high in ((0, 5), (info.min // 2, info.max // 2), (info.min, info.max)):
        a, b = (RANDOM.randint(low, high, shape, dtype=dtype) for shape in ((40, 50), (50, 30)))
        wanted = (a.astype(object) @ b.astype(object)) % 2 ** (8 * a.itemsize)
        for product in (products.product(a, b), products.product(a[None], b)[0]):
            assert product.dtype == a.dtype
            assert (product.astype(object) % 2 ** (8 * a.itemsize) == wanted).all()


def test_stable_order():
    for high in (100, 1 << 16, 1 << 20, 1 << 40):
        x = RANDOM.randint(0, high, 3000)
        x[::2] = x[1::2]
        assert (rows.stable_order(x) == np.argsort(x, kind="stable")).all()
        assert (rows.stable_order(x - 7) == np.argsort(x - 7, kind="stable")).all()


@pytest.mark.parametrize("how", ["add", "sub", "max"])
def test_scatter_of_rows_that_come_often(how):
    where, updates = RANDOM.randint(0, 40, 2000), RANDOM.randn(2000, 3).astype(np.float32)
    array = RANDOM.randn(40, 3).astype(np.float32)
    wanted = array.copy()
    function = {"add": np.add, "sub": np.subtract, "max": np.maximum}[how]
    for i, update in zip(where, updates, strict=True):
        wanted[i] = function(wanted[i], update)
    rows.scatter_rows(array, where, updates, how)
    assert (array == wanted).all()  # in the same order, so with the same rounding


@pytest.mark.parametrize(("count", "width"), [(30, 4), (700, 4), (700, 100), (70000, 2)])
def test_sums_of_groups(count, width):
    ids, data = RANDOM.randint(-1, count, 2000), RANDOM.randint(-9, 9, (2000, width)).astype(np.float32)
    wanted = np.zeros((count, width), np.float32)
    np.add.at(wanted, ids[ids >= 0], data[ids >= 0])
    assert (segments.reduce_rows(np.add, data, ids, count, 0) == wanted).all()


def test_fingerprints_of_many_strings():
    strings = [RANDOM.bytes(i % 90) for i in range(400)]
    assert hashes.fingerprints64(np.array(strings, object)).tolist() == [hashes.fingerprint64(s) for s in strings]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_fingerprints_of_many_numbers(dtype):
    info = np.iinfo(dtype)
    x = np.array([0, 1, 9, 10, 99, 100, info.min, info.max, *RANDOM.randint(info.min, info.max, 100, dtype=dtype)], dtype)
    for numbers in (x, x[(x >= 0) & (x < 10)].repeat(20), x[x >= 0]):
        assert hashes.decimal_fingerprints64(numbers).tolist() == [hashes.fingerprint64(b"%d" % v) for v in numbers.tolist()]


@pytest.mark.parametrize("axis", [2, -1, (1, 2), (2, 1), 0, (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_short_rows(axis, keepdims):
    x = RANDOM.randint(-9, 9, (300, 4, 5)).astype(np.float32)
    x[0, 0, 0], x[1, 1, 1] = np.inf, np.nan
    for ufunc in (np.add, np.maximum, np.minimum):
        found = short_rows.reduce_short_rows(ufunc, x, axis, keepdims)
        assert (found is None) == (axis == (0, 1, 2))
        if found is not None:
            np.testing.assert_array_equal(found, ufunc.reduce(x, axis, keepdims=keepdims))
    assert short_rows.are_short_rows((300, 4, 5), [2]) and not short_rows.are_short_rows((300, 4, 5), [0, 1, 2])


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("off", [0.0, -0.0, 2.0])
def test_one_hot(axis, off):
    indices = np.array([[0, 3, -1], [2, 4, 1]])
    with tf.Session() as session:
        found = session.run(tf.one_hot(tf.placeholder_with_default(indices, [None, 3]), 4, 5.0, off, axis))
    wanted = np.moveaxis(np.where(indices[..., None] == np.arange(4), np.float32(5), np.float32(off)), -1, axis)
    np.testing.assert_array_equal(found, wanted)
    assert (np.signbit(found) == np.signbit(wanted)).all()


def test_strings_fed_as_text():
    text = tf.placeholder(tf.string, [None])
    with tf.Session() as session:
        for values in (["a", "\u00e9"], ["a\0b", "c"], [b"a", "b"], []):
            found = session.run(tf.identity(text), {text: np.array(values, object)})
            assert found.tolist() == [v.encode() if isinstance(v, str) else v for v in values]


def test_numbers_that_are_only_hashed_are_never_text():
    x = tf.placeholder(tf.int32, [None])
    hashed = tf.strings.to_hash_bucket_fast(tf.as_string(x), 1000)
    wide = tf.strings.to_hash_bucket_fast(tf.as_string(x, width=5), 1000)
    text = tf.as_string(x)
    both = [tf.strings.to_hash_bucket_fast(text, 1000), text]
    values = np.arange(-60, 60)
    wanted = [hashes.fingerprint64(b"%d" % v) % 1000 for v in values.tolist()]
    with tf.Session() as session:
        assert session.run(hashed, {x: values}).tolist() == wanted
        assert session.run(wide, {x: values}).tolist() == [hashes.fingerprint64(b"%5d" % v) % 1000 for v in values.tolist()]
        codes, words = session.run(both, {x: values})
    assert codes.tolist() == wanted and words.tolist() == [b"%d" % v for v in values.tolist()]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    "shape, axes",
    [((4, 8, 8, 4, 8), (1, 2, 4)), ((4, 8, 8, 4, 8), (-1, 2, -4)), ((6, 40, 24), (0, 1)), ((5, 17, 9, 12), (1, 2)), ((4096, 2), (0,)), ((3, 64, 32), (1,)), ((20, 127, 3), (1,)), ((9, 131, 2, 2), (1, 3)), ((300, 17, 3), (1,))],
)
def test_many_short_rows_are_reduced_to_one(shape, axes, keepdims):
    x = np.random.RandomState(0).randn(*shape).astype(np.float32)
    x.flat[17] = np.inf
    assert short_rows.are_short_rows(shape, [a % len(shape) for a in axes])
    for ufunc in (np.add, np.maximum, np.minimum):
        found = short_rows.reduce_short_rows(ufunc, x, axes, keepdims)
        expected = ufunc.reduce(x.astype(np.float64), axis=axes, keepdims=keepdims)
        assert found.shape == expected.shape and found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_rows_that_are_not_short_or_not_many_are_left_to_numpy():
    for shape, axes in (((64, 1000), (0,)), ((8, 4096), (0,)), ((8, 8, 8, 16), (0, 2)), ((16, 8, 4), (0, 2))):
        x = np.ones(shape, np.float32)
        assert short_rows.reduce_short_rows(np.add, x, axes, False) is None and not short_rows.are_short_rows(shape, list(axes))
    assert short_rows.reduce_short_rows(np.add, np.ones((4096, 4), np.int32), (0,), False) is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "float16"])
@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_places_of_extremes(dtype, axis):
    x = RANDOM.randint(0, 90, (30, 40, 50)).astype(dtype)  # many are equal
    if x.dtype.kind == "f":
        x[3, 4, :], x[:, 5, 6], x[7, 8, 9] = np.nan, np.nan, -np.inf
    for build, function, worst in ((tf.argmax, np.argmax, -np.inf), (tf.argmin, np.argmin, np.inf)):
        want = function(np.where(np.isnan(x), worst, x), axis) if x.dtype.kind == "f" else function(x, axis)
        with tf.Session() as sess:
            np.testing.assert_array_equal(sess.run(build(tf.constant(x), axis)), want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("bins", [7, 20000])
def test_histograms(dtype, bins):
    x = (RANDOM.randn(100003) * 1000).astype(dtype)
    low, high = -1500.0, 1200.0
    want = np.bincount(np.clip((x.astype(float) - low) / ((high - low) / bins), 0, bins - 1).astype(int), minlength=bins)
    with tf.Session() as sess:
        np.testing.assert_array_equal(sess.run(tf.histogram_fixed_width(tf.constant(x), np.array([low, high], dtype), bins)), want)
        if x.dtype.kind == "f":
            x[99999] = np.nan
            with pytest.raises(tf.errors.InvalidArgumentError, match="must not contain NaN"):
                sess.run(tf.histogram_fixed_width(tf.constant(x), np.array([low, high], dtype), bins))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_places_in_sorted_rows(dtype):
    rows = np.sort(RANDOM.randint(-50, 50, (3, 60)), 1).astype(dtype)
    values = RANDOM.randint(-55, 55, (3, 900)).astype(dtype)
    if dtype[0] == "f":
        rows[0, 0], rows[1, -1], values[0, :4] = -np.inf, np.inf, [np.inf, -np.inf, 0.0, -0.0]
    with tf.Session() as sess:
        for with_nan in (False, True)[: 1 + (dtype[0] == "f")]:
            values[2, 5] = np.nan if with_nan else 1
            for side in ("left", "right"):
                want = np.stack([np.searchsorted(row, some, side) for row, some in zip(rows, values, strict=True)])
                want[values != values] = 0 if side == "left" else 60
                np.testing.assert_array_equal(sess.run(tf.searchsorted(tf.constant(rows), tf.constant(values), side)), want)
        edges = [-20.0, 0.0, 0.5, 30.0]
        found = sess.run(tf.raw_ops.Bucketize(input=tf.constant(values[:2]), boundaries=edges))
    np.testing.assert_array_equal(found, np.searchsorted(edges, values[:2].astype(float), "right"))


def test_indices_of_what_is_true():
    for shape in ((40, 30), (7, 11, 40), (5, 1, 300, 2)):
        x = RANDOM.rand(*shape) < 0.3
        with tf.Session() as sess:
            for given in (x, np.where(x, np.nan, 0.0), x.astype(np.int32)):
                found = sess.run(tf.where(tf.constant(given)))
                assert found.dtype == np.int64
                np.testing.assert_array_equal(found, np.argwhere(x))


@pytest.mark.parametrize("shape, batch_axis, axis", [((30, 200), 0, 1), ((5, 20, 7), 0, 1), ((200, 6, 3), 1, 0), ((3, 4, 9, 2), 3, 2), ((0, 4), 0, 1)])
def test_sequences_reversed(shape, batch_axis, axis):
    x, lengths = RANDOM.randn(*shape).astype(np.float32), RANDOM.randint(0, shape[axis] + 1, shape[batch_axis])
    want = x.copy()
    for new, old, length in zip(np.moveaxis(want, (batch_axis, axis), (0, 1)), np.moveaxis(x, (batch_axis, axis), (0, 1)), lengths, strict=True):
        new[:length] = old[:length][::-1]
    with tf.Session() as sess:
        np.testing.assert_array_equal(sess.run(tf.reverse_sequence(tf.constant(x), tf.constant(lengths), axis, batch_axis=batch_axis)), want)


@pytest.mark.parametrize("shape, multiples", [((20, 300), (7, 3)), ((3, 5, 400), (2, 4, 6)), ((300,), (500,)), ((4, 300), (0, 900)), ((2, 3), (300, 200))])
def test_copies_along_several_axes(shape, multiples):
    x = RANDOM.randn(*shape)
    with tf.Session() as sess:
        np.testing.assert_array_equal(sess.run(tf.tile(tf.constant(x), multiples)), np.tile(x, multiples))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint64"])
def test_unique_numbers_far_apart(dtype):
    x = RANDOM.choice(RANDOM.randint(0, 1 << 62, 30000), 40000).astype(dtype)
    if dtype[0] == "f":
        x *= RANDOM.choice([-1, 1, 0, 1e-30], x.shape).astype(dtype)  # both zeros, too
    values, index = np.unique(x, return_inverse=True)
    first = np.full(len(values), x.size)
    np.minimum.at(first, index, np.arange(x.size))
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    with tf.Session() as sess:
        found, where = sess.run(list(tf.unique(tf.constant(x))))
    np.testing.assert_array_equal(found, values[order])
    np.testing.assert_array_equal(where, rank[index])


def test_targets_among_many_classes():
    x = RANDOM.randn(40, 900).astype(np.float32)
    x[3, 700], x[4, 800] = np.nan, np.inf
    targets = RANDOM.randint(-5, 905, 40)
    for k in (1, 300, 700):
        valid = (targets >= 0) & (targets < 900) & np.isfinite(x).all(1)
        want = [bool(ok) and int((row > row[t]).sum()) < k for ok, row, t in zip(valid, x, np.where(valid, targets, 0), strict=True)]
        assert topk.in_top_k(x, targets, np.int32(k)).tolist() == want


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_of_floats(dtype):
    some = np.array([0.0, -0.0, 1, -1, 0.5, 3, -7, 0.1, 4, 1e-40, 1e16, -1e30, np.inf, -np.inf, np.nan], dtype)
    pairs = [np.meshgrid(some, some), (RANDOM.randn(1000) * 100, RANDOM.randn(1000)), (RANDOM.randint(-99, 99, 1000) * 0.1, np.full(1000, 0.1))]
    with tf.Session() as sess, np.errstate(all="ignore"):
        for x, y in pairs:
            x, y = np.ravel(x).astype(dtype), np.ravel(y).astype(dtype)
            for build, function in ((tf.floormod, np.mod), (tf.truncatemod, np.fmod)):
                found, want = sess.run(build(tf.constant(x), tf.constant(y))), function(x, y)
                np.testing.assert_array_equal(found, want)
                np.testing.assert_array_equal(np.signbit(found[want == 0]), np.signbit(x[want == 0]))  # the dividend's, where NumPy has the divisor's


@pytest.mark.parametrize("spread", [50, 1 << 60])
def test_rows_of_wide_numbers_sorted_downwards(spread):
    x = RANDOM.randint(-spread, spread, (5, 300)) << 3
    x[:, 100:150] = x[:, :50]  # equal ones keep their order
    for given in (x, x.astype(np.float64)):
        assert topk.top_k(given, np.int32(300))[1].tolist() == [sorted(range(300), key=lambda i, row=row: -row[i]) for row in given.tolist()]


def test_rows_of_unsigned_numbers_of_32_bits_sorted_downwards():
    x = np.concatenate([RANDOM.randint(0, 1 << 32, (2, 300), np.int64), [np.arange(300) + (1 << 31) - 150]]).astype(np.uint32)
    values, index = topk.top_k(x, np.int32(300))
    assert index.tolist() == by_value(x, 300).tolist() and values.tolist() == np.sort(x)[:, ::-1].tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_places_in_sorted_rows_however_they_lie(dtype):
    keys = np.sort(RANDOM.randint(0, 1000, (40, 60))).astype(dtype)
    values = RANDOM.randint(0, 1000, (40, 50)).astype(dtype)
    want = np.array([np.searchsorted(k, v) for k, v in zip(keys, values)])
    with tf.Session() as sess:
        a, v = tf.placeholder(dtype, [40, 60]), tf.placeholder(dtype, [40, 50])
        found = tf.searchsorted(a, v)
        for order in ("CC", "FC", "CF", "FF"):
            np.testing.assert_array_equal(sess.run(found, {a: np.array(keys, order=order[0]), v: np.array(values, order=order[1])}), want)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("large", [False, True])
def test_products_of_integers_wrap_around_as_numpys(dtype, large):
    limits = np.iinfo(dtype)
    low, high = (limits.min, limits.max) if large else (0, 50)
    for x_shape, y_shape in (((200, 300), (300, 1)), ((7, 50, 60), (7, 60, 1)), ((20, 32, 100), (20, 100, 32)), ((1, 9000), (9000, 1))):
        x, y = RANDOM.randint(low, high, x_shape, dtype), RANDOM.randint(low, high, y_shape, dtype)
        turned = np.swapaxes(np.ascontiguousarray(np.swapaxes(x, -1, -2)), -1, -2)
        for given in (x, turned):
            found = products.product(given, y)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, np.matmul(x, y))
            np.testing.assert_array_equal(einsum("...ij,...jk->...ik", [given, y]), np.matmul(x, y))


@pytest.mark.parametrize("in_order", [True, False])
def test_empty_rows_among_many_entries(in_order):
    row = RANDOM.randint(0, 300, 500)
    row = np.sort(row) if in_order else row
    indices, values = np.stack([row, np.arange(500)], 1), np.arange(500.0)
    places, filled, is_empty, back = sparse_places.fill_empty_rows_kernel(indices, values, np.array([300, 500]), np.array(-1.0), T=tf.float64)
    missing = sorted(set(range(300)) - set(row.tolist()))
    entries = [(r, c, v) for (r, c), v in zip(indices.tolist(), values.tolist(), strict=True)] + [(r, 0, -1.0) for r in missing]
    want = sorted(entries, key=lambda entry: entry[0])
    assert [(r, c, v) for (r, c), v in zip(places.tolist(), filled.tolist(), strict=True)] == want
    assert np.flatnonzero(is_empty).tolist() == missing
    np.testing.assert_array_equal(filled[back], values)
    indices[:300, 0] = range(300)  # no row is empty
    indices[300:, 0] = 299 if in_order else 5
    found = sparse_places.fill_empty_rows_kernel(indices, values, np.array([300, 500]), np.array(-1.0), T=tf.float64)
    order = np.argsort(indices[:, 0], kind="stable")
    for x, y in zip(found, (indices[order], values[order], np.zeros(300, bool), np.argsort(order)), strict=True):
        np.testing.assert_array_equal(x, y)
        assert not np.shares_memory(x, indices) and not np.shares_memory(x, values)


@pytest.mark.parametrize("row, message", [(-1, r"indices\(3, 0\) is invalid: -1 < 0"), (9, r"indices\(3, 0\) is invalid: 9 >= 9")])
def test_entries_of_rows_that_there_are_not(row, message):
    indices = np.array([[1, 0], [2, 0], [3, 0], [row, 0], [-2, 0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        sparse_places.fill_empty_rows_kernel(indices, np.zeros(5), np.array([9, 1]), np.array(0.0), T=tf.float64)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16"])
@pytest.mark.parametrize("operation", [b"a-b", b"b-a", b"intersection", b"Union"])
@pytest.mark.parametrize("in_order", [True, False])
def test_sets_of_integers_are_those_of_any_values(monkeypatch, dtype, operation, in_order):
    limits = np.iinfo(dtype)
    for shape, low, high in (((2, 3, 7), 0, 6), ((20, 50), 0, 90), ((4, 9), limits.min, limits.max), ((0, 3), 0, 5), ((3, 0), 0, 5)):
        a, b = (RANDOM.randint(low, high, shape, dtype) for _ in range(2))
        if in_order:
            a, b = np.sort(a), np.sort(b)
        found = sets.dense_dense_kernel(a, b, set_operation=operation)
        with monkeypatch.context() as patched:
            patched.setattr(sets, "_combine_integers", lambda *args: None)
            patched.setattr(sets, "FEW", -1)
            want = sets.dense_dense_kernel(a, b, set_operation=operation)
        for x, y in zip(found, want, strict=True):
            assert x.dtype == y.dtype and x.tolist() == y.tolist()


def test_sets_of_few_members(monkeypatch):
    """Those of any values, whether dense or sparse, in several dimensions, or with rows that have none."""
    random, cases = np.random.RandomState(5), []
    for _ in range(300):
        rows, width = (3, 2) if random.rand() < 0.5 else (4,), random.randint(0, 6)
        dense = random.randint(0, 5, (*rows, width)).astype(random.choice(["int8", "uint16", "int64"]))
        if random.rand() < 0.3:
            dense = np.array([b"%d" % v for v in dense.ravel()], object).reshape(dense.shape)
        flat = np.sort(random.choice(np.prod(rows) * 4, random.randint(0, 9), replace=False))
        values = random.randint(0, 5, len(flat)).astype(dense.dtype) if dense.dtype != object else np.array([b"%d" % (v % 5) for v in flat], object)
        sparse = np.stack(np.unravel_index(flat, (*rows, 4)), 1), values, np.array([*rows, 4])
        cases.append((dense, sparse, bytes(random.choice(list(sets._OPERATIONS)))))

    def results():
        for dense, sparse, operation in cases:
            yield from sets.dense_dense_kernel(dense, dense[..., 1::2], set_operation=operation)
            yield from sets.dense_sparse_kernel(dense, *sparse, set_operation=operation, validate_indices=True)
            yield from sets.sparse_sparse_kernel(*sparse, *sparse, set_operation=operation, validate_indices=True)
            yield sets.size_kernel(*sparse, validate_indices=True)

    found = list(results())
    monkeypatch.setattr(sets, "FEW", 0)
    for x, y in zip(found, results(), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape and x.tolist() == y.tolist()


@pytest.mark.parametrize("outside", [False, True])
def test_splits_of_sparse_tensors_are_boxes(outside):
    random = np.random.RandomState(3)
    for rank in (1, 2, 3):
        shape = np.array([7, 10, 5])[:rank]
        indices = random.randint(-2 if outside else 0, 12 if outside else 5, (200, rank))
        values = np.arange(200.0)
        for axis, splits in ((0, 1), (rank - 1, 4), (-1, 5)):
            found = sparse_places.split_kernel(np.array(axis), indices, values, shape, num_split=splits)
            edges = np.cumsum([0, *(len(part) for part in np.array_split(np.arange(shape[axis]), splits))])
            for i in range(splits):
                low, extent = np.zeros(rank, int), shape.copy()
                low[axis], extent[axis] = edges[i], edges[i + 1] - edges[i]
                want = sparse_places.cut(indices, values, shape, low, extent)
                assert [found[i + k * splits].tolist() for k in range(3)] == [x.tolist() for x in want]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint32, np.int8, np.int64])
@pytest.mark.parametrize(("rows", "n"), [(3000, 4), (1000, 10), (999, 33), (3, 4000), (9000, 5)])
@pytest.mark.parametrize("k", [2, 3])
def test_few_largest_of_short_rows(dtype, rows, n, k):
    random = np.random.RandomState(n)
    x = random.randint(-3, 4, (rows, n)).astype(dtype)  # many are equal
    if x.dtype.kind == "f":
        x[random.rand(rows, n) < 0.1] = -0.0
        x[random.rand(rows, n) < 0.1], x[random.rand(rows, n) < 0.3] = np.inf, -np.inf
    else:
        lowest = max(np.iinfo(dtype).min, -(1 << 31))
        x[random.rand(rows, n) < 0.5], x[0] = lowest, lowest
    found = topk.top_k(x, k)
    index = np.argsort(-x.astype(np.float64), 1, kind="stable")[:, :k]
    np.testing.assert_array_equal(found[1], index)
    np.testing.assert_array_equal(np.signbit(found[0]), np.signbit(np.take_along_axis(x, index, 1)))
    np.testing.assert_array_equal(found[0], np.take_along_axis(x, index, 1), strict=True)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("size", "bins", "most"), [(7, 3, 3), (1000, 10, 14), (100_001, 100, 90), (50_000, 40_000, 40_000), (40_000, 1, 3), (0, 5, 5), (9000, 0, 5)])
def test_bincount(dtype, size, bins, most):
    values = np.random.RandomState(size).randint(0, most, size).astype(dtype)
    x = tf.placeholder(dtype)
    counted = tf.raw_ops.DenseBincount(input=x, size=dtype(bins), weights=np.zeros(0, np.float32))
    with tf.Session() as session:
        for given in (values, np.repeat(values, 2)[::2], values.reshape(-1, 1)[:, 0][::-1], values[None]):
            want = np.bincount(given.ravel()[given.ravel() < bins], minlength=bins).astype(np.float32)
            np.testing.assert_array_equal(session.run(counted, {x: given}).reshape(-1), want, strict=True)
        if size and bins:
            values[size // 2] = -1
            with pytest.raises(tf.errors.InvalidArgumentError, match="must be non-negative"):
                session.run(counted, {x: values})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("rows", "classes"), [(100, 1000), (1000, 64), (3, 9000), (400, 65), (200, 300)])
@pytest.mark.parametrize("k", [0, 1, 5, 50, 10_000, -1])
def test_in_top_k_of_many_classes(rows, classes, k):
    random = np.random.RandomState(classes)
    x = random.randint(-20, 21, (rows, classes)).astype(np.float32) * (random.rand(rows, classes) < 0.3).astype(np.float32)
    x[::2] = random.randn(*x[::2].shape)
    targets = random.randint(-1, classes + 1, rows)
    targets[: rows // 2] = x[: rows // 2].argmax(1)
    for i, value in enumerate((np.nan, np.inf, -np.inf)):
        x[i, random.randint(classes)] = value
        x[rows // 2 + i % (rows - rows // 2), -1] = value
    inside = np.clip(targets, 0, classes - 1)
    want = [bool(t == c and np.isfinite(row).all() and (row > row[c]).sum() < k) for row, t, c in zip(x, targets, inside)]
    for given in (x, np.asfortranarray(x)):
        assert topk.in_top_k(given, targets, np.int32(k)).tolist() == want


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (3,), (0, 3)])
def test_the_gradient_of_no_values_is_zero(shape):
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, shape)
        gradient = tf.gradients(tf.reduce_sum(tf.nn.top_k(x, 0)[0]), x)[0]
        np.testing.assert_array_equal(sess.run(gradient, {x: np.ones(shape)}), np.zeros(shape))
