"""Strings: hashes bit for bit, RE2's rules, splitting and cutting. Expected values are TensorFlow's."""

import numpy as np
import pytest

import penstock as tf
from penstock.errors import InvalidArgumentError
from penstock.ops.kernels.hashes import fingerprint64, hash64, siphash
from penstock.ops.kernels.regex import compile_re2, full_match, replace, rewrite_parts


@pytest.fixture
def sess():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


# -- hashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, value",
    [
        (b"", 1936946117179621455), (b"a", 3694432073954588131), (b"hello", 3786372426573024488), (b"x" * 20, 3621402210320469444),
        (b"y" * 40, 276292113409495006), (b"z" * 70, 4496752230148318907), (b"w" * 200, 526236191678461824),
    ],
)  # fmt: skip
def test_farmhash(text, value):
    assert fingerprint64(text) % 2**62 == value


def test_siphash_and_the_old_hash():
    assert [siphash(s, 1, 2) % 2**62 for s in (b"a", b"hello", b"x" * 20)] == [546566331822570742, 2957200328589801622, 407717789338964422]
    assert [hash64(s) % 1000 for s in (b"a", b"hello", b"")] == [868, 938, 899]


# -- regular expressions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, text, rewrite, result",
    [
        ("b(c)", "abcabc", r"<\1\0>", "a<cbc>a<cbc>"),
        ("", "abc", "-", "-a-b-c-"),
        ("x*", "abc", "-", "-a-b-c-"),
        ("b*", "abc", "-", "-a-c-"),
        (".", "äbc", "x", "xxx"),
        ("a.b", "a\nb", "x", "a\nb"),
        ("(?s)a.b", "a\nb", "x", "x"),
        ("(?i)X", "aXbx", "", "ab"),
        ("a(?i)B|c", "aBC", "-", "--"),
        ("[[:alpha:]]+", "foo bar", "L", "L L"),
        ("[[:^digit:]]", "a1b", "", "1"),
        (r"\pL+", "foo bär 1", "L", "L L 1"),
        (r"[^\p{Lu}]", "aBc", "", "B"),
        (r"o{2}$|\bbar\z", "foo bar", "L", "foo L"),
        (r"\Qa.b\E", "a.b axb", "x", "x axb"),
        (r"(?U)a+", "aaa", "x", "xxx"),
        (r"(?m)^a$", "a\na", "x", "x\nx"),
        (r"\s", "a\vb c", "_", "a\vb_c"),
        (r"[\w.]+@", "a.b@c", "", "c"),
        ("b(c)", "abc", r"<\2>", "abc"),
        (r"\x{61}", "abc", "x", "xbc"),
    ],
)
def test_replacing(pattern, text, rewrite, result):
    assert replace(compile_re2(pattern.encode()), text.encode(), rewrite_parts(rewrite.encode()), True).decode() == result


def test_bytes_that_are_no_text_stay():
    assert replace(compile_re2(b"a"), b"\xff\xfea", rewrite_parts(b"b"), True) == b"\xff\xfeb"


def test_full_match_needs_the_whole_string():
    assert full_match(compile_re2(b"a|abc"), b"abc")
    assert not full_match(compile_re2(b"ab?c$"), b"abc\n")


@pytest.mark.parametrize(
    "pattern, error",
    [
        ("b(c", r"missing \): b\(c"), ("a)", r"unexpected \): a\)"), ("[", r"missing \]: \["), ("(?=b)", r"invalid perl operator: \(\?="),
        (r"(a)\1", r"invalid escape sequence: \\1"), ("a**", r"bad repetition operator: \*\*"),
        ("*a", r"no argument for repetition operator: \*"), ("a{1001}", "invalid repetition size"),
    ],
)  # fmt: skip
def test_patterns_that_re2_refuses(pattern, error):
    with pytest.raises(InvalidArgumentError, match="Invalid pattern: .* error: " + error):
        compile_re2(pattern.encode())


# -- the functions ----------------------------------------------------------------------------------------------------


def test_split_gives_a_sparse_matrix(sess):
    words = sess.run(tf.strings.split(["a b  c", "", "d"]))
    assert words.values.tolist() == [b"a", b"b", b"c", b"d"]
    assert words.indices.tolist() == [[0, 0], [0, 1], [0, 2], [2, 0]]
    assert words.dense_shape.tolist() == [3, 3]
    dense = tf.sparse.to_dense(tf.string_split(["a,b", "c"], ","), default_value="-")
    assert sess.run(dense).tolist() == [[b"a", b"b"], [b"c", b"-"]]


def test_split_refuses_ragged_results(sess):
    with pytest.raises(NotImplementedError, match="RaggedTensor"):
        tf.strings.split(["a b"], result_type="RaggedTensor")


def test_numbers_and_text(sess):
    assert sess.run(tf.as_string([1.5, -2.0], precision=1)).tolist() == [b"1.5", b"-2.0"]
    assert sess.run(tf.as_string([7, -3], width=4, fill="0")).tolist() == [b"0007", b"-003"]
    np.testing.assert_array_equal(sess.run(tf.string_to_number(["1", " 2 "], tf.int64)), [1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="StringToNumberOp could not correctly convert string: 1_0"):
        sess.run(tf.string_to_number(["1_0"]))


def test_characters_and_bytes(sess):
    text = tf.constant("grün")
    assert sess.run([tf.strings.length(text), tf.strings.length(text, unit="UTF8_CHAR")]) == [5, 4]
    assert sess.run(tf.strings.substr(text, 1, 2, unit="UTF8_CHAR")).decode() == "rü"
    assert sess.run(tf.strings.upper(text, encoding="utf-8")).decode() == "GRÜN"
    with pytest.raises(tf.errors.InvalidArgumentError, match="pos 9 out of range for string b'grün' at index 0"):
        sess.run(tf.strings.substr(text, 9, 1))


def test_joining(sess):
    assert sess.run(tf.strings.join([["a", "b"], "-", ["c", "d"]])).tolist() == [b"a-c", b"b-d"]
    assert sess.run(tf.strings.reduce_join([["a", "b"], ["c", "d"]], separator=",")) == b"a,b,c,d"
    assert sess.run(tf.strings.reduce_join([["a", "b"], ["c", "d"]], axis=[0, 1], separator=",")) == b"a,c,b,d"


def test_static_patterns_become_attributes(sess):
    assert tf.strings.regex_replace(["a"], "a", "b").op.type == "StaticRegexReplace"
    assert tf.strings.regex_full_match(["a"], tf.constant("a")).op.type == "RegexFullMatch"


def test_raw_bytes(sess):
    raw = np.arange(4, dtype=np.int16)
    np.testing.assert_array_equal(sess.run(tf.decode_raw([raw.tobytes()], tf.int16)), [raw])
    np.testing.assert_array_equal(sess.run(tf.decode_raw(raw.byteswap().tobytes(), tf.int16, little_endian=False)), raw)
    assert sess.run(tf.decode_base64(tf.encode_base64([b"\xff\xfe?"]))).tolist() == [b"\xff\xfe?"]


def test_format(sess):
    assert sess.run(tf.strings.format("{} and {}", (tf.range(10), "x"))) == b'[0 1 2 ... 7 8 9] and "x"'
