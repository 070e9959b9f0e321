"""Strings taken many at a time give what they give one by one, and errors name the one at fault."""

import random

import numpy as np
import pytest

import penstock as tf
from penstock.ops import string_parts, strings
from penstock.ops.kernels import hashes
from penstock.ops.kernels.distances import Sequences, distances, levenshtein
from penstock.ops.kernels.regex import compile_re2, decoded, replace, replace_all, rewrite_parts


def _strings(count, seed=0, longest=90):
    source = random.Random(seed)
    return [bytes(source.randrange(256) for _ in range(source.randrange(longest))) for _ in range(count)]


@pytest.mark.parametrize("zeros", [True, False])
def test_hashes_of_many_strings(zeros):
    strings = _strings(400) if zeros else [s.replace(b"\0", b"x") for s in _strings(400)]
    array = np.array(strings, object)
    for siphashes in (hashes.siphashes(array.reshape(20, 20), (1 << 63) + 5, -7), hashes._siphashes(strings, (1 << 63) + 5, -7)):
        assert siphashes.tolist() == [hashes.siphash(s, (1 << 63) + 5, -7) for s in strings]
    for murmurs in (hashes.hashes64(array.reshape(20, 20).T).reshape(20, 20).T.ravel(), hashes._hashes64(strings)):
        assert murmurs.tolist() == [hashes.hash64(s) for s in strings]
    for fingerprints in (hashes.fingerprints64(array[::-1])[::-1], hashes._fingerprints64(strings)):
        assert fingerprints.tolist() == [hashes.fingerprint64(s) for s in strings]


def _run(fetch):
    with tf.Session() as sess:
        return sess.run(fetch)


def _given(values, dtype=object):
    return tf.placeholder_with_default(np.array(values, dtype), [len(values)])


def test_numbers_that_python_reads_and_tensorflow_does_not():
    with pytest.raises(tf.errors.InvalidArgumentError, match="could not correctly convert string: 1_000"):
        _run(tf.string_to_number(_given([b"1", b"1_000"]), tf.int32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="could not correctly convert string: -0"):
        _run(tf.string_to_number(_given([b"5", b"-0"]), tf.uint32))
    with pytest.raises(tf.errors.InvalidArgumentError, match="could not correctly convert string: 4294967296"):
        _run(tf.string_to_number(_given([b"5", b"4294967296"]), tf.int32))
    np.testing.assert_array_equal(_run(tf.string_to_number(_given([b" 1.5 ", b"0x10", b"-inf", b"1e3"]))), np.array([1.5, 16, -np.inf, 1000], np.float32))
    np.testing.assert_array_equal(_run(tf.string_to_number(_given([b" 7 ", b"+3", b"-2"]), tf.int64)), [7, 3, -2])


_PARTS = [b"1", b"-2", b"+3.25", b"", b"0.1", b".5", b"5.", b"-0.0", b"1e3", b"abc", b"123456789012345678", b"9007199254740993", b"1.2.3", b"--1", b"-", b".", b"NA", b" 7"]


def _decoded(records, defaults, **options):
    try:
        return [v.tolist() for v in _run(tf.decode_csv(_given(records), defaults, **options))]
    except tf.errors.InvalidArgumentError as error:
        return error.message.splitlines()[0]


@pytest.mark.parametrize("seed", range(8))
def test_records_read_by_machine_code_and_by_python_are_the_same(seed, monkeypatch):
    source = random.Random(seed)
    cases = []
    for _ in range(12):
        parts = source.sample(_PARTS, 4)
        records = [b";".join(source.choice(parts) for _ in range(3)) for _ in range(4)]
        if source.random() < 0.2:
            records[1] = source.choice([b"", b"1;2", b"1;2;3;4", b'1;"2";3', b"1;2\n;3"])
        defaults = [source.choice([[0.0], tf.constant([0.0], tf.float64), [0], tf.constant([], tf.float32), ["x"], tf.constant([7], tf.int64)]) for _ in range(3)]
        cases.append((records, defaults, dict(field_delim=";", na_value=source.choice(["", "NA", "1"]))))
    by_code = [_decoded(records, defaults, **options) for records, defaults, options in cases]
    monkeypatch.setattr("penstock.ops.kernels.csv.split", lambda *_: None)
    for got, (records, defaults, options) in zip(by_code, cases, strict=True):
        np.testing.assert_equal(got, _decoded(records, defaults, **options))


def test_columns_of_records():
    records = _given([b"1,2.5,a", b",0x10,NA", b"3,,c"])
    a, b, c = _run(tf.decode_csv(records, [[7], [0.5], ["d"]], na_value="NA"))
    np.testing.assert_array_equal(a, [1, 7, 3])
    np.testing.assert_array_equal(b, np.array([2.5, 16, 0.5], np.float32))
    np.testing.assert_array_equal(c, np.array([b"a", b"d", b"c"], object))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Field 1 is required but missing in record 2!"):
        _run(tf.decode_csv(records, [[7], tf.constant([], tf.float32), ["d"]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Field 1 in record 1 is not a valid float: x"):
        _run(tf.decode_csv(_given([b"1,2", b",x"]), [[7], [0.5]]))


@pytest.mark.parametrize("count, longest", [(50, 12), (300, 40)])
def test_base64_with_and_without_padding(count, longest):
    strings = _strings(count, seed=1, longest=longest)
    for pad in (False, True):
        encoded = tf.io.encode_base64(_given(strings), pad=pad)
        assert _run(tf.io.decode_base64(encoded)).tolist() == strings
    with pytest.raises(tf.errors.InvalidArgumentError, match="length cannot be 1 modulo 4"):
        _run(tf.io.decode_base64(_given([b"aGVsbG8", b"a"])))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid character"):
        _run(tf.io.decode_base64(_given([b"aGVsbG8", b"aG+/"])))


def test_parts_of_strings_that_are_too_short():
    assert _run(tf.strings.substr(_given([b"hello", b"abc"]), 3, 9)).tolist() == [b"lo", b""]
    assert _run(tf.strings.substr(_given([b"hello", b"abc"]), 1, -1)).tolist() == [b"ello", b"bc"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="pos 4 out of range for string b'abc' at index 1"):
        _run(tf.strings.substr(_given([b"hello", b"abc"]), 4, 1))


def test_splits_at_one_and_at_several_delimiters():
    found = _run(tf.string_split(_given([b"a b  c", b"", b" d"]), " "))
    assert found.values.tolist() == [b"a", b"b", b"c", b"d"] and found.indices.tolist() == [[0, 0], [0, 1], [0, 2], [2, 0]]
    found = _run(tf.string_split(_given([b"a b,,c"]), " ,", skip_empty=False))
    assert found.values.tolist() == [b"a", b"b", b"", b"c"]


def test_characters_are_counted_where_they_are_not_bytes():
    assert _run(tf.strings.length(_given(["äö".encode(), b"abc", b""]), unit="UTF8_CHAR")).tolist() == [2, 3, 0]


@pytest.mark.parametrize(("pairs", "longest"), [(1, 3), (60, 9), (40, 30), (3, 0)])
def test_distances_of_many_pairs(pairs, longest):
    source = np.random.RandomState(pairs)
    sides = []
    for _ in range(2):
        rows = np.repeat(np.arange(pairs), source.randint(0, longest + 1, pairs))
        sides.append(Sequences(rows, source.randint(0, 4, rows.size), pairs))
    a, b = sides
    assert distances(a, b).tolist() == [levenshtein(a.one(i), b.one(i)) for i in range(pairs)]


def test_a_table_gives_its_default_where_there_is_no_key():
    keys = np.array([b"w%d" % i for i in range(100)], object)
    for values, default in ((np.arange(100), -1), (np.arange(100) % 2 == 0, False), (np.arange(100).astype(np.float32) / 3, 0.5), (keys, b"?")):
        with tf.Graph().as_default(), tf.Session() as sess:
            table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), default)
            sess.run(tf.tables_initializer())
            found = sess.run(table.lookup(tf.constant([[b"w7", b"x"], [b"w99", b"w0"]])))
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, np.array([[values[7], default], [values[99], values[0]]], values.dtype))


_PATTERNS = [
    b"[0-9]+", b"w([0-9])", b"b*", b"a|ab", b"^a", b"b$", b"^a+$", b".", b"[^a]", b"[^a-b ]+", rb"\bw", rb"\Bb", rb"\s+", rb"\S+", b"[[:cntrl:]]", b"[[:^alpha:]]", rb"\pL+",
    rb"\PL", b"(?i)AB", b"(?s).b", b"(?m)^a", rb"\x00", rb"\C", rb"[\x00-b]", b"(a)(b)?", b"a{2,3}", b"a??b", rb"\Aa", rb"b\z", b"(?U)a+", b"[ab]|c$", rb"[\Da]", b"(a|)b", b"(^a)|(b$)",
]  # fmt: skip


@pytest.mark.parametrize("pattern", _PATTERNS)
def test_replacing_in_many_strings_is_replacing_in_each(pattern):
    source = random.Random(0)
    compiled = compile_re2(pattern)
    for turn in range(8):
        letters = "aabbc1 .\nwAB\xe4" + "\0" * (turn % 4 == 0)
        values = ["".join(source.choice(letters) for _ in range(source.randrange(9))).encode() + b"\xff" * (source.random() < 0.1) for _ in range(turn)]
        for rewrite in (b"-", rb"<\1>", rb"\0\0", b"", rb"\\", rb"x\2y", b"\0"):
            for everywhere in (True, False):
                want = [replace(compiled, v, rewrite_parts(rewrite), everywhere) for v in values]
                assert replace_all(pattern, values, rewrite, everywhere) == want
        assert decoded(values) == [v.decode("utf-8", "surrogateescape") for v in values]


def test_distances_by_machine_code_and_by_tables(monkeypatch):
    source = random.Random(3)
    pairs = [[[source.randrange(4) for _ in range(source.randrange(13))] for _ in range(2)] for _ in range(60)]
    sides = []
    for side in zip(*pairs, strict=True):
        rows, codes = np.repeat(np.arange(60), [len(s) for s in side]), np.concatenate([np.array(s, np.int64) for s in side])
        order = np.random.RandomState(0).permutation(60)[rows].argsort(kind="stable")  # rows in another order, each in its own
        sides.append(Sequences(rows[order], codes[order], 60))
    wanted = [levenshtein(*pair) for pair in pairs]
    assert distances(*sides).tolist() == wanted
    monkeypatch.setattr("penstock.ops.native.available", lambda: False)
    assert distances(*sides).tolist() == wanted


@pytest.mark.parametrize("text", [b"\0", b"5\0", b"\x005", b"1\x002", b"1.\0"])
def test_a_zero_byte_is_no_digit(text):
    values = np.array([b"1", text], object)
    for dtype in (tf.float32, tf.int64):
        with pytest.raises(tf.errors.InvalidArgumentError):
            _run(tf.string_to_number(tf.constant(values), dtype))
    with pytest.raises(tf.errors.InvalidArgumentError):
        _run(tf.decode_csv(tf.constant(values), [[0]]))


@pytest.mark.parametrize("count, different, longest", [(3000, 40, 12), (9000, 6000, 12), (3000, 500, 90)])
def test_unique_strings_in_the_order_of_their_first_occurrence(count, different, longest):
    some = _strings(different, seed=4, longest=longest)
    strings = [some[i] for i in np.random.RandomState(5).randint(0, different, count)]
    numbers: dict[bytes, int] = {}
    want = [numbers.setdefault(s, len(numbers)) for s in strings]
    y, index, counts = _run(list(tf.unique_with_counts(_given(strings))))
    assert y.tolist() == list(numbers) and index.tolist() == want
    assert counts.tolist() == np.bincount(want).tolist()


def test_unique_strings_of_which_parts_of_the_fingerprints_are_equal():
    strings = [b"w%d" % i for i in range(20000)] * 2  # with 21 bits of each, some are alike
    y, index = _run(list(tf.unique(_given(strings))))
    assert y.tolist() == strings[:20000] and index.tolist() == [*range(20000)] * 2


@pytest.mark.parametrize("letters", [b"ab", b"ab ", b"abcdefgh "])
@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("skip_empty", [True, False])
def test_many_strings_are_split_as_one_by_one(letters, least, skip_empty):
    source = random.Random(0)
    for count in (0, 1, 63, 500):
        values = [bytes(source.choices(letters, k=source.randint(least, 9))) for _ in range(count)]
        found = string_parts.string_split_kernel(strings.string_array(values, count), np.array(b" ", object), skip_empty=skip_empty)
        want = string_parts._ragged([string_parts.split_at_any(v, b" ", skip_empty) for v in values])
        for a, b in zip(found, want, strict=True):
            assert a.dtype == b.dtype and a.tolist() == b.tolist()


@pytest.mark.parametrize("engines", [None, "numpy"])
def test_lengths_of_many_strings(monkeypatch, engines):
    if engines:
        monkeypatch.setenv("PENSTOCK_ENGINES", engines)
    values = [*_strings(299), "äö€".encode()]
    grid = strings.string_array(values, (20, 15)).T
    assert string_parts.length_kernel(grid, unit=b"BYTE").T.ravel().tolist() == [len(v) for v in values]
    ascii_only = strings.string_array([b"abc", b"", b"d" * 1000], 3)
    assert string_parts.length_kernel(ascii_only, unit=b"UTF8_CHAR").tolist() == [3, 0, 1000]
    assert string_parts.length_kernel(strings.string_array(values[-1:], 1), unit=b"UTF8_CHAR").tolist() == [3]
