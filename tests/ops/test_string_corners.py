"""Corners of strings, unicode, patterns and tables in which comparison with TensorFlow has found something."""

import numpy as np
import pytest

from penstock import dtypes
from penstock.errors import InvalidArgumentError
from penstock.ops import arrange, constant, sparse, string_parts, strings, unicode
from penstock.ops.kernels.tables import DenseTable, MutableTable
from penstock.ops.native import texts

needs_code = pytest.mark.skipif(not texts.can_read(), reason="no machine code here")


@pytest.fixture(params=[None, "numpy"])
def engines(request, monkeypatch):
    if request.param:
        monkeypatch.setenv("PENSTOCK_ENGINES", request.param)


def _array(values, shape=None):
    return strings.string_array(list(values), len(values) if shape is None else shape)


def test_the_length_of_one_string_is_a_scalar(engines):
    x = np.empty((), object)
    x[()] = b"abc"
    found = string_parts.length_kernel(x, unit=b"BYTE")
    assert found.shape == () and found == 3


@pytest.mark.parametrize("count", [1, 70])
def test_control_characters_are_errors_or_not(engines, count):
    x = _array([b"a\x01\x7f\xc2\x85b"] * count)

    def convert(errors):
        options = dict(input_encoding=b"UTF-8", errors=errors, replacement_char=63, replace_control_characters=True)
        return unicode.transcode_kernel(x, output_encoding=b"UTF-8", **options), unicode.decode_with_offsets_kernel(x, Tsplits=dtypes.int64, **options)

    for errors, text, points, places in (
        (b"replace", b"a?\x7f\xc2\x85b", [97, 63, 127, 133, 98], [0, 1, 2, 3, 5]), (b"ignore", b"a\x7f\xc2\x85b", [97, 127, 133, 98], [0, 2, 3, 5])
    ):  # fmt: skip
        texts, (_, found, starts) = convert(errors)
        assert texts.tolist() == [text] * count and found.tolist() == points * count and starts.tolist() == places * count
    with pytest.raises(InvalidArgumentError, match="Invalid formatting on input string"):
        convert(b"strict")


@pytest.mark.parametrize("count", [1, 70])
def test_what_c_fills_up(engines, count):
    def written(values, dtype, fill, width=5):
        options = dict(precision=-1, scientific=False, shortest=False, width=width, fill=fill)
        return strings.as_string_kernel(np.array(values * count, dtype.np), T=dtype, **options).tolist()[: len(values)]

    assert written([np.inf, -np.inf, np.nan, 1.5], dtypes.float32, b"0") == [b"  inf", b" -inf", b"  nan", b"1.500000"]
    assert written([complex(np.inf, 2)], dtypes.complex64, b"0", 9) == [b"(      inf,02.000000)"]
    assert written([7, 0], dtypes.uint16, b"+") == written([7, 0], dtypes.uint16, b" ") == [b"    7", b"    0"]
    assert written([7, -7], dtypes.int16, b"+") == [b"   +7", b"   -7"]


@pytest.mark.parametrize("count", [1, 70])
@pytest.mark.parametrize("pattern", [b"a", b"a+(b)", b"[ab]"])
def test_a_bad_rewrite_replaces_no_first_match(engines, count, pattern):
    x = _array([b"xaab", b"-"] * count)
    for rewrite in (b"y\\", b"\\z"):
        assert strings.static_regex_replace_kernel(x, pattern=pattern, rewrite=rewrite, replace_global=False).tolist() == x.tolist()
    assert strings.static_regex_replace_kernel(x, pattern=pattern, rewrite=b"\\\\", replace_global=False)[0].startswith(b"x\\")


def test_an_empty_string_has_no_boundary():
    assert strings.static_regex_full_match_kernel(_array([b"", b"a"]), pattern=b"\\B").tolist() == [True, False]


@pytest.mark.parametrize(
    ("pattern", "text"), [(b"[b-a]", "invalid character class range: b-a"), (b"(?<a", "invalid perl operator: (?<"), (b"a\\", "trailing \\")]
)
def test_complaints_about_patterns(pattern, text):
    with pytest.raises(InvalidArgumentError) as raised:
        strings.static_regex_full_match_kernel(_array([b"a"]), pattern=pattern)
    assert raised.value.message == f"Invalid pattern: {pattern.decode()}, error: {text}"


@pytest.mark.parametrize("count", [1, 70])
def test_characters_from_the_end_need_a_length(engines, count):
    x = _array([b"abc"] * count)
    assert string_parts.substr_kernel(x, np.array(1), np.array(-1), unit=b"UTF8_CHAR").tolist() == [b""] * count
    with pytest.raises(InvalidArgumentError, match="pos -1 out of range for string at index 0"):
        string_parts.substr_kernel(x, np.array(-1), np.array(-1), unit=b"UTF8_CHAR")


@needs_code
def test_a_table_that_becomes_rows_while_it_is_read():
    table = MutableTable(dtypes.int64, dtypes.int64)
    table.insert(np.arange(3), np.arange(3) * 10)
    lock = table.lock

    class Lock:
        """Lets another one in as soon as it is free."""

        def __enter__(self):
            lock.acquire()

        def __exit__(self, *_):
            lock.release()
            table.lock = lock
            table.insert(np.arange(100, 200), np.zeros(100, np.int64))

    table.lock = Lock()
    assert table.find(np.arange(3), np.array(-1)).tolist() == [0, 10, 20]
    assert table.rows is not None and len(table) == 103


@pytest.mark.parametrize("count", [3, 70])
def test_one_default_string_for_all_of_a_row(count):
    table = MutableTable(dtypes.int64, dtypes.string, (2,))
    table.insert(np.arange(count), _array([b"x"] * 2 * count, (count, 2)))
    assert table.find(np.array([1, 99]), _array([b"d\0"])).tolist() == [[b"x", b"x"], [b"d\0", b"d\0"]]


@pytest.mark.parametrize("encoding, text, points, places", [
    (b"UTF-8", b"\xe2\x82A", [63, 65], [0, 2]), (b"UTF-8", b"\xf0\x9f\x98A", [63, 65], [0, 3]), (b"UTF-8", b"\xed\xa0", [63, 63], [0, 1]), (b"UTF-8", b"\xf0\x9f\x98", [63], [0]),
    (b"UTF-8", b"\xc0\x80", [63, 63], [0, 1]), (b"UTF-16-BE", b"\xdc\x00\x00a", [63, 97], [0, 2]), (b"UTF-16-BE", b"\xd8\x3d\x00a", [63, 97], [0, 2]), (b"UTF-16-BE", b"\x00a\xd8\x3d\xde", [97, 63], [0, 2]),
    (b"UTF-16-BE", b"\x00a\x00", [97, 63], [0, 2]), (b"UTF-16-BE", b"\xd8\x3d\xde\x00", [0x1F600], [0]), (b"UTF-32-BE", b"\x00\x11\x00\x00\x00\x00\x00a\x00", [63, 97, 63], [0, 4, 8]),
])  # fmt: skip
@pytest.mark.parametrize("count", [1, 70])
def test_how_much_of_what_is_not_well_formed_is_one_character(encoding, text, points, places, count):
    """As TensorFlow has it: with 57,000 random texts of bytes that begin, go on with, or cannot be in a character, nothing differed."""
    options = dict(input_encoding=encoding, replacement_char=63, replace_control_characters=False, Tsplits=dtypes.int64)
    _, found, starts = unicode.decode_with_offsets_kernel(_array([text] * count), errors=b"replace", **options)
    assert found.tolist() == points * count and starts.tolist() == places * count
    assert 63 not in unicode.decode_with_offsets_kernel(_array([text]), errors=b"ignore", **options)[1]


@pytest.mark.parametrize("count", [2, 70])
def test_nuls_at_the_end_of_strings_stay(engines, count):
    """NumPy takes them off a string that it makes an array of."""
    x = _array([b"a"] * count)
    scalar = np.empty((), object)
    scalar[()] = b"k\0"
    assert strings.string_join_kernel([x, scalar, x], separator=b"<\0").tolist() == [b"a<\0k\0<\0a"] * count
    assert strings.reduce_join_kernel(np.stack([x, x], 1), np.array([1]), keep_dims=False, separator=b"-\0").tolist() == [b"a-\0a"] * count
    assert constant.fill_kernel(np.array([2]), scalar).tolist() == [b"k\0"] * 2
    assert arrange.pad_kernel(x[:1], np.array([[1, 0]]), scalar).tolist() == [b"k\0", b"a"]
    assert sparse.sparse_to_dense_kernel(np.array([0]), np.array([2]), x[:1], scalar, validate_indices=True).tolist() == [b"a", b"k\0"]
    table = DenseTable(dtypes.string, dtypes.int64, (), scalar, None)
    with pytest.raises(InvalidArgumentError, match="empty_key"):
        table.insert(_array([b"k\0"] * count), np.zeros(count, np.int64))
    table.insert(_array([b"k"]), np.zeros(1, np.int64))


def test_a_table_from_which_little_is_removed_is_a_dictionary():
    table = MutableTable(dtypes.int64, dtypes.int64)
    table.insert(np.arange(2000), np.arange(2000))
    table.remove(np.arange(500))
    assert len(table) == 1500
    table.remove(np.array([600, 601]))
    assert len(table) == 1498 and table.rows is None
    assert table.find(np.array([1, 600, 999]), np.array(-1)).tolist() == [-1, -1, 999]
