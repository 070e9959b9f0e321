"""Kernels for many strings at once: what they give is what they give for each string by itself, with machine code and without it."""

import random
import struct

import numpy as np
import pytest

import penstock as tf
from penstock import dtypes
from penstock.errors import InvalidArgumentError
from penstock.ops import sets, sorting, string_codes, string_parts, strings, unicode
from penstock.ops.kernels import csv, many_strings, number_texts, regex
from penstock.ops.kernels.numerals import read_numbers
from penstock.ops.kernels.table_rows import Rows
from penstock.ops.native import making, numerals, texts
from penstock.ops.native.index import Index

needs_code = pytest.mark.skipif(not texts.can_read(), reason="no machine code here")


@pytest.fixture(params=[None, "numpy"])
def engines(request, monkeypatch):
    if request.param:
        monkeypatch.setenv("PENSTOCK_ENGINES", request.param)


def _array(values, shape=None):
    return strings.string_array(list(values), len(values) if shape is None else shape)


def _ascii(count, letters="abcAB19 ,;.\t\n_-\0", longest=40, seed=0):
    source = random.Random(seed)
    return ["".join(source.choices(letters, k=source.choice([0, 1, 2, 5, source.randint(0, longest)]))).encode() for _ in range(count)] + [b"x" * 5000]


def _texts(count, seed=0):
    """Well formed, with characters of one to four bytes."""
    return [t.decode().translate({ord("1"): "ä", ord("9"): "東", ord("-"): "😀", ord("_"): "Σ"}).encode() for t in _ascii(count, seed=seed)]


def _bytes(count, seed=0):
    source = random.Random(seed)
    return [source.randbytes(source.choice([0, 1, 2, 31, 32, 33, source.randint(0, 70)])) for _ in range(count)]


_UNICODE = dict(errors=b"replace", replacement_char=65533, replace_control_characters=False)
ONE_BY_ONE = {
    "lower": (string_parts.lower_kernel, dict(encoding=b""), _bytes),
    "upper": (string_parts.upper_kernel, dict(encoding=b""), _bytes),
    "lower text": (string_parts.lower_kernel, dict(encoding=b"utf-8"), _texts),
    "upper text": (string_parts.upper_kernel, dict(encoding=b"utf-8"), _texts),
    "lower of what is no text": (string_parts.lower_kernel, dict(encoding=b"utf-8"), _bytes),
    "length": (string_parts.length_kernel, dict(unit=b"BYTE"), _bytes),
    "characters": (string_parts.length_kernel, dict(unit=b"UTF8_CHAR"), _texts),
    "characters of what is no text": (string_parts.length_kernel, dict(unit=b"UTF8_CHAR"), _bytes),
    "start": (string_parts.substr_kernel, dict(pos=np.array(0), length=np.array(3), unit=b"BYTE"), _bytes),
    "all but nothing": (string_parts.substr_kernel, dict(pos=np.array(0), length=np.array(-1), unit=b"BYTE"), _bytes),
    "first characters": (string_parts.substr_kernel, dict(pos=np.array(0), length=np.array(3), unit=b"UTF8_CHAR"), _texts),
    "characters that are none": (string_parts.substr_kernel, dict(pos=np.array(0), length=np.array(2), unit=b"UTF8_CHAR"), _bytes),
    "base64": (string_codes.encode_base64_kernel, dict(pad=False), _bytes),
    "base64 padded": (string_codes.encode_base64_kernel, dict(pad=True), _bytes),
    "to UTF-8": (unicode.transcode_kernel, dict(input_encoding=b"UTF-8", output_encoding=b"UTF-8", **_UNICODE), _texts),
    "to UTF-16": (unicode.transcode_kernel, dict(input_encoding=b"UTF-8", output_encoding=b"UTF-16-BE", **_UNICODE), _texts),
    "to UTF-32": (unicode.transcode_kernel, dict(input_encoding=b"UTF-8", output_encoding=b"UTF-32-BE", **_UNICODE), _texts),
    "from latin": (unicode.transcode_kernel, dict(input_encoding=b"latin1", output_encoding=b"UTF-8", **_UNICODE), _bytes),
    "from what is no text": (unicode.transcode_kernel, dict(input_encoding=b"UTF-8", output_encoding=b"UTF-8", **_UNICODE), _bytes),
    **{
        f"no controls, {errors.decode()}": (
            unicode.transcode_kernel,
            dict(input_encoding=b"UTF-8", output_encoding=b"UTF-8", errors=errors, replacement_char=63, replace_control_characters=True),
            _texts,
        )
        for errors in (b"replace", b"ignore")
    },
    "match": (strings.static_regex_full_match_kernel, dict(pattern=b"^(a|B1?)[^c]*,?.*$"), _ascii),
    "match of text": (strings.static_regex_full_match_kernel, dict(pattern=b"(?s).*\xc3\xa4.?"), _texts),
    "match that is no automaton": (strings.static_regex_full_match_kernel, dict(pattern=rb"\ba.*"), _ascii),
    "replace a run": (strings.static_regex_replace_kernel, dict(pattern=b"[0-9]+", rewrite=b"<#>", replace_global=True), _ascii),
    "replace the first": (strings.static_regex_replace_kernel, dict(pattern=b"[^a]", rewrite=b"", replace_global=False), _ascii),
    "replace in text": (strings.static_regex_replace_kernel, dict(pattern=b".", rewrite=b"\xc3\xa4", replace_global=True), _texts),
    "replace what is rare": (strings.static_regex_replace_kernel, dict(pattern=b"(a)(9|1)", rewrite=rb"\2\1", replace_global=True), _ascii),
    "replace by what matched": (strings.static_regex_replace_kernel, dict(pattern=b"[ab]", rewrite=rb"<\0>", replace_global=True), _ascii),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_many_strings_as_one_by_one(name, engines):
    kernel, attrs, make = ONE_BY_ONE[name]
    positional = [attrs[k] for k in ("pos", "length") if k in attrs]
    named = {k: v for k, v in attrs.items() if k not in ("pos", "length")}
    values = make(299)[:300]
    values += [b""] * (300 - len(values))
    grid = _array(values, (20, 15)).T  # not as it lies in memory
    found = kernel(grid, *positional, **named)
    assert found.shape == (15, 20)
    one_by_one = [kernel(_array([v]), *positional, **named).tolist()[0] for v in values]
    assert found.T.ravel().tolist() == one_by_one
    assert kernel(_array([]), *positional, **named).shape == (0,)
    only_empty = kernel(_array([b""] * 70), *positional, **named).tolist()
    assert only_empty == kernel(_array([b""]), *positional, **named).tolist() * 70


def test_parts_by_arrays(engines):
    values = [b"x" + v for v in _texts(200)]
    x, source = _array(values), np.random.RandomState(0)
    for unit, sizes in ((b"BYTE", list(map(len, values))), (b"UTF8_CHAR", [len(v.decode()) for v in values])):
        pos = np.array([source.randint(-n, n + 1) for n in sizes], np.int32)
        length = source.randint(-2, 9, len(values)).astype(np.int32)
        if unit == b"UTF8_CHAR":
            length = np.where(pos < 0, np.abs(length), length)  # those from the end need one
        want = [string_parts.substr_kernel(_array([v]), pos[i : i + 1], length[i : i + 1], unit=unit).item() for i, v in enumerate(values)]
        assert string_parts.substr_kernel(x, pos, length, unit=unit).tolist() == want
        too_far = np.where(np.arange(len(values)) == 77, sizes[77] + 1, pos)
        with pytest.raises(InvalidArgumentError, match="out of range for string .*at index 77"):
            string_parts.substr_kernel(x, too_far, length, unit=unit)
    row = string_parts.substr_kernel(_array([b"hello"]), np.arange(90).reshape(-1, 1) % 5, np.full((90, 1), 2), unit=b"BYTE")
    assert row.shape == (90, 1) and row.ravel().tolist() == [b"he", b"el", b"ll", b"lo", b"o"] * 18


@pytest.mark.parametrize("sep", [b"", b",", b"ab"])
@pytest.mark.parametrize("maxsplit", [-1, 0, 1, 3])
def test_splits_as_python_splits(sep, maxsplit, engines):
    values = _ascii(150)
    found = string_parts.string_split_v2_kernel(_array(values)[::-1], np.array(sep, object), maxsplit=maxsplit)
    want = string_parts._ragged([string_parts.split_like_python(v, sep, maxsplit) for v in values[::-1]])
    for a, b in zip(found, want, strict=True):
        assert a.dtype == b.dtype and a.tolist() == b.tolist()


@pytest.mark.parametrize("delimiters", [b"", b",", b",; \t"])
@pytest.mark.parametrize("skip_empty", [True, False])
def test_splits_at_any_delimiter(delimiters, skip_empty, engines):
    values = _ascii(150)
    found = string_parts.string_split_kernel(_array(values), np.array(delimiters, object), skip_empty=skip_empty)
    want = string_parts._ragged([string_parts.split_at_any(v, delimiters, skip_empty) for v in values])
    for a, b in zip(found, want, strict=True):
        assert a.dtype == b.dtype and a.tolist() == b.tolist()


def _accumulated(values, separator):
    """TF puts a separator behind what it has, unless it has nothing yet."""
    total = b""
    for value in values:
        total = total + separator + value if total else value
    return total


@pytest.mark.parametrize("separator", [b"", b"-", b"<>"])
def test_joins(separator, engines):
    a, b = _bytes(120), _bytes(120, seed=1)
    x, y, one = _array(a, (12, 10)).T, _array(b, (12, 10)).T, np.array(b"one", object)
    found = strings.string_join_kernel([x, one, y], separator=separator)
    assert found.T.ravel().tolist() == [separator.join((p, b"one", q)) for p, q in zip(a, b, strict=True)]
    rows = _array(a + b, (80, 3))
    for axes in ([1], [-1], [0]):
        want = [separator.join(row) for row in (rows if axes != [0] else rows.T).tolist()]
        assert strings.reduce_join_kernel(rows, np.array(axes), keep_dims=False, separator=separator).tolist() == want
    ids = np.random.RandomState(0).randint(0, 9, 80)
    found = strings.segment_join_kernel(rows, ids, np.array(10), separator=separator)
    assert found.tolist() == [[_accumulated(rows[ids == s, c].tolist(), separator) for c in range(3)] for s in range(10)]
    nothing = strings.segment_join_kernel(rows[:0], ids[:0], np.array(2), separator=separator)
    assert nothing.tolist() == [[b""] * 3] * 2


def test_base64_of_many_and_back(engines):
    values = _bytes(200)
    for pad in (True, False):
        encoded = string_codes.encode_base64_kernel(_array(values), pad=pad)
        assert string_codes.decode_base64_kernel(encoded).tolist() == values
    for bad, message in ((b"a", "cannot be 1 modulo 4"), (b"aG+/", "Invalid character"), (b"aGVs\xff\xff\xff\xff", "Invalid character")):
        with pytest.raises(InvalidArgumentError, match=message):
            string_codes.decode_base64_kernel(_array([b"aGVsbG8"] * 99 + [bad]))


def test_characters_of_many_strings(engines):
    kernel = unicode.decode_with_offsets_kernel
    for values in (_texts(150), _ascii(150), [b""] * 80, [*_texts(80), b"\xff"], [*_texts(80), b"\xe2", b"\x82\xac"]):
        splits, points, places = kernel(_array(values), input_encoding=b"UTF-8", Tsplits=dtypes.int32, **_UNICODE)
        rows = [unicode.code_points(v, "utf-8", b"replace", 65533, False) for v in values]
        assert splits.dtype == np.int32 and splits.tolist() == [0, *np.cumsum([len(p) for p, _ in rows]).tolist()]
        assert points.tolist() == [p for row, _ in rows for p in row] and points.dtype == np.int32
        assert places.tolist() == [s for _, row in rows for s in row]
        for encoding in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
            written = unicode.encode_kernel(points, splits, output_encoding=encoding.encode(), errors=b"strict", replacement_char=65533)
            assert written.tolist() == ["".join(map(chr, row)).encode(encoding) for row, _ in rows]


def test_points_that_are_no_characters(engines):
    points, splits = np.tile(np.array([97, 0xD800, -1, 0x110000, 0x1F600], np.int32), 70), np.arange(0, 351, 5)

    def encode(errors):
        return unicode.encode_kernel(points, splits, output_encoding=b"UTF-8", errors=errors, replacement_char=63).tolist()

    assert encode(b"replace") == ["a???😀".encode()] * 70
    assert encode(b"ignore") == ["a😀".encode()] * 70
    with pytest.raises(InvalidArgumentError, match="out of range for Unicode"):
        encode(b"strict")


def test_bytes_as_numbers(engines):
    values = [np.random.RandomState(i).bytes(12) for i in range(100)]
    for dtype in (dtypes.int32, dtypes.uint8, dtypes.float32):
        found = string_codes.decode_raw_kernel(_array(values, (10, 10)).T, out_type=dtype, little_endian=True)
        want = np.frombuffer(b"".join(values), dtype.np).reshape(10, 10, -1).transpose(1, 0, 2)
        assert found.tobytes() == np.ascontiguousarray(want).tobytes()
    with pytest.raises(InvalidArgumentError, match="element 70 has size 12 != 3"):
        string_codes.decode_raw_kernel(_array(values[:70] + [b"abc"]), out_type=dtypes.uint8, little_endian=True)


@pytest.mark.parametrize("length", [1, 2, 8, 31, 63, 64, 65, 128, 130, 300])
def test_rows_of_bytes(engines, length):
    mixed = _bytes(100) + [bytes(range(1, 201))[:n] for n in (62, 63, 64, 65, 66, 127, 128, 129, 200)]
    found = string_codes.decode_padded_raw_kernel(_array(mixed), np.array(length), out_type=dtypes.uint8, little_endian=True)
    assert found.tobytes() == b"".join(v[:length].ljust(length, b"\0") for v in mixed)
    turned = string_codes.decode_padded_raw_kernel(_array(mixed[:60], (6, 10)).T, np.array(length), out_type=dtypes.uint8, little_endian=True)
    assert (turned == found[:60].reshape(6, 10, length).transpose(1, 0, 2)).all()
    even = [v[:length].ljust(length, b"x") for v in mixed]
    for some in (even, even[:1], even[:2]):
        found = string_codes.decode_raw_kernel(_array(some), out_type=dtypes.uint8, little_endian=True)
        assert found.shape == (len(some), length) and found.tobytes() == b"".join(some)
    with pytest.raises(InvalidArgumentError, match=f"element 70 has size {length} != {length - 1}"):
        string_codes.decode_raw_kernel(_array(even[:70] + [even[0][1:]] + even), out_type=dtypes.uint8, little_endian=True)


# -- numbers ------------------------------------------------------------------------------------------------------------


_ODD = [0.0, -0.0, np.nan, np.inf, -np.inf, 1, 10, 999999.5, 9999995, 0.1, 1e-4, 1e-5, 0.5, 1.5, 2.5, 0.125, 9.9999995, 99999.95, 1e22, 5e-324, 1e300]


@pytest.mark.parametrize("form", ["%f", "%.2f", "%.1f", "%.12f", "%e", "%.3e", "%.11e", "%g", "%.3g", "%.9g"])
@pytest.mark.parametrize("scale", [1e-30, 1e-5, 1.0, 100.0, 1e6, 1e15, 1e25])
def test_floats_as_c_writes_them(form, scale, engines):
    values = np.append(np.random.RandomState(0).standard_normal(300) * scale, _ODD)
    precision = int(form[2:-1]) if "." in form else -1
    found = number_texts.floats(values, form[-1], precision, form.encode().__mod__, len(values))
    assert found is not None and found.tolist() == [(form % v).encode() for v in values.tolist()]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
@pytest.mark.parametrize("form", ["%d", "%5d", "%12d", "%1d", "%30d", "%05d", "%025d", "%0d"])
def test_integers_as_c_writes_them(dtype, form, engines):
    info = np.iinfo(dtype)
    values = np.concatenate([np.random.RandomState(0).randint(max(info.min, -(10**9)), min(info.max, 10**9), 200), [0, 1, 9, 10]]).astype(dtype)
    values = np.append(values, np.array([info.min, info.max], dtype))
    zeros, width = form.startswith("%0"), int(form[1:-1] or 0)
    found = number_texts.integers(values, width, zeros, len(values))
    assert found.tolist() == [(form % v).encode() for v in values.tolist()]


def test_rare_formats_of_many_numbers():
    values = np.arange(100, dtype=np.int32) - 50
    attrs = dict(precision=-1, scientific=False, shortest=False)
    for fill, width in ((b"+", -1), (b" ", 6), (b"-", 6), (b"", 200)):
        form = b"%" + fill + (b"%d" % width if width > 0 else b"") + b"d"
        assert strings.as_string_kernel(values, T=dtypes.int32, width=width, fill=fill, **attrs).tolist() == [form % v for v in values.tolist()]


def test_floats_written_so_that_they_read_back(engines):
    for scale in (1e-40, 1e-4, 1.0, 1e5, 1e9):
        values = np.append(np.random.RandomState(1).standard_normal(300) * scale, [*np.round(np.random.RandomState(2).standard_normal(80), 2), *_ODD])
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        for x in (narrow, values, narrow[:10]):
            assert string_codes._elements(x) == [string_codes.shortest_float(v) for v in x]
    assert string_codes.format_tensor(np.array([1 / 3, 0.5], np.float32), 3) == "[0.333333343 0.5]"


@needs_code
def test_plain_integers():
    source = random.Random(0)
    values = [b"%d" % source.randint(-(10**k), 10**k) for k in range(18) for _ in range(9)] + [b"+5", b"-0", b"000123", b"-" + b"9" * 18]
    assert numerals.integers(_array(values)).tolist() == list(map(int, values))
    for bad in (b"", b"-", b"+", b"1.5", b" 1", b"1 ", b"--1", b"1" * 19, b"a", b"1\0", b"\xff", b"1_0"):
        assert numerals.integers(_array([b"1", bad])) is None
    assert read_numbers(_array([b"2147483648"]), dtypes.int32) is None
    assert read_numbers(_array([b"1" * 19]), dtypes.int64).tolist() == [int(b"1" * 19)]


def test_few_strings_are_joined_as_many_are(monkeypatch):
    random, cases = np.random.RandomState(4), []
    for _ in range(200):
        shape = [(5,), (20,), (3, 4), (0, 2), (4, 0), (63,)][random.randint(6)]
        texts = _array([b"ab\0c"[: random.randint(5)] for _ in range(int(np.prod(shape)))], shape)
        ids = random.randint(0, 4, shape[: random.randint(1, len(shape) + 1)])
        cases.append((texts, ids, np.array(4 + random.randint(3)), [b"", b",", b"<>", b"<\0"][random.randint(4)]))
    found = [strings.segment_join_kernel(*case[:3], separator=case[3]) for case in cases]
    monkeypatch.setattr(strings, "MANY", 0)
    for case, result in zip(cases, found, strict=True):
        want = strings.segment_join_kernel(*case[:3], separator=case[3])
        assert result.shape == want.shape and result.tolist() == want.tolist()


# -- records ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_records_with_quotes(seed, engines):
    source = random.Random(seed)
    good = [b"a", b'"a"', b'"a,b"', b'"x""y"', b"", b'""', b'""""', b'"\n"', b"1", b'"""a"""', b"\xff"]
    odd = [b"a", b'"', b'""', b",", b"\n", b'"a"', b'"x""y"', b"", b"\r", b" ", b"1"]
    count = source.randint(1, 3)
    records = [b",".join(source.choices(good, k=count)) or b"a" for _ in range(70)]
    if seed % 2:
        records[source.randrange(70)] = b"".join(source.choices(odd, k=source.randint(0, 5)))
    found = csv._split_quoted(_array(records), b",", count)
    try:
        want = [csv.split_record(r, b",", True) for r in records]
        is_good = all(len(row) == count for row in want)
    except InvalidArgumentError:
        is_good = False
    assert (found is not None) == is_good
    if found is not None:
        assert found.tolist() == want


# -- patterns -----------------------------------------------------------------------------------------------------------


def _pattern(source, depth=0):
    atoms = ["a", "b", "[ab]", "[^a]", ".", "\\d", "\\W", "(?:ab)", "(a|bc)", "(?i:a)", "(?s:.)", "[[:alpha:]]", "x{2,3}", "(?i)B", "ä", "[a-ä]", "\\s", "\\n", "(?i:[a-c])"]
    piece = [("(" + _pattern(source, depth + 1) + ")") if depth < 2 and source.random() < 0.25 else source.choice(atoms) for _ in range(source.randint(1, 3))]
    text = "".join(p + source.choice(["", "*", "+", "?", "{2}", "{0,2}", "*?", "{2,}"]) for p in piece)
    return ("^" if source.random() < 0.15 else "") + text + source.choice(["", "", "|b", "$"])


@pytest.mark.parametrize("seed", range(150))
def test_automata_match_as_patterns_do(seed):
    source = random.Random(seed)
    pattern = _pattern(source).encode()
    try:
        compiled = regex.compile_re2(pattern)
    except InvalidArgumentError:
        return
    values = ["".join(source.choices("abcAB1 .x\nä_", k=source.randint(0, 6))).encode() for _ in range(60)] + [b"", b"\xff", b"a\xff", b"\0"]
    assert regex.full_matches(pattern, _array(values)).tolist() == [regex.full_match(compiled, v) for v in values]
    replaced = regex.replace_in(_array(values), pattern, b"-", True)
    if replaced is not None:
        assert replaced.tolist() == [regex.replace(compiled, v, regex.rewrite_parts(b"-"), True) for v in values]


def test_what_has_no_automaton():
    assert regex._automaton(b"(a{900}b{900}){2}") is None  # too large
    assert regex._automaton(b"(a|b)*a(a|b){12}") is None  # too many states
    assert regex._automaton(rb"\bword") is None
    assert regex._automaton(b"^a[bc]*$") is not None


# -- tables -------------------------------------------------------------------------------------------------------------


@needs_code
def test_rows_by_number():
    source, index, known = np.random.RandomState(0), Index(), {}
    for step in range(40):
        numbers = source.randint(-50, 50, source.randint(0, 300)) * [1, 10**15, 1 << 56][step % 3]
        assert index.insert(numbers).tolist() == [known.setdefault(n, len(known)) for n in numbers.tolist()]
        assert index.count == len(known)
        sought = np.concatenate([numbers[::-1], source.randint(-100, 100, 50)])
        assert index.find(sought).tolist() == [known.get(n, -1) for n in sought.tolist()]


@needs_code
@pytest.mark.parametrize("kind", ["string", "int32", "int64"])
def test_entries_as_rows(kind):
    source, known = random.Random(0), {}
    rows = Rows(getattr(dtypes, kind), dtypes.float32, (2,))
    for step in range(30):
        numbers = [source.randint(0, 400) for _ in range(source.randint(1, 90))]
        keys = [b"key%d" % n * (1 + n % 3) for n in numbers] if kind == "string" else numbers
        array = np.array(keys, object if kind == "string" else kind)
        values = np.array([[step, n] for n in numbers], np.float32)
        if step % 5 == 4:
            rows.remove(array)
            for key in keys:
                known.pop(key, None)
        else:
            rows.insert(array, values)
            known.update(zip(keys, values.tolist(), strict=True))
        assert len(rows) == len(known)
        found = rows.find(array)
        assert [rows.values[r].tolist() if r >= 0 else None for r in found.tolist()] == [known.get(k) for k in keys]
        assert dict(zip(rows.items()[0].tolist(), rows.items()[1].tolist(), strict=True)) == known


@needs_code
@pytest.mark.parametrize("around", [(b"", b""), (b"", b"." * 48 + b"rest"), (b"a" * 64, b""), (b"a" * 64, b"." * 48 + b"b" * 64)])
def test_keys_with_the_same_hash(around):
    """Two halves of words that make the products of their words zero: what is left is the sum of the others."""
    upper = [(i * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 32 for i in (1, 2)]
    keys = [around[0] + struct.pack("<4I", 1000 + k, upper[0], 2000 - k, upper[1]) + around[1] for k in range(100)]
    rows = Rows(dtypes.string, dtypes.int64, ())
    rows.insert(_array(keys[:90]), np.arange(90))
    copies = [bytes(bytearray(key)) for key in keys]
    assert rows.find(_array(copies)).tolist() == [*range(90), *[-1] * 10]
    rows.insert(_array(copies[::-1]), np.arange(100))
    assert len(set(rows._index._slots[:, 0].tolist())) == 2, "no longer the same hash: 0 is that of free slots"
    assert rows.take(rows.find(_array(keys)), np.array(-1)).tolist() == list(range(100))[::-1]


def test_tables_of_many_keys(engines):
    keys = [b"w%d" % i for i in range(200)]
    for kind, given in ((tf.string, keys), (tf.int64, list(range(0, 2000, 10)))):
        with tf.Graph().as_default(), tf.Session() as sess:
            table = tf.lookup.experimental.MutableHashTable(kind, tf.float32, [-1.0, -2.0])
            all_keys, values = tf.constant(given, kind), tf.constant(np.arange(400, dtype=np.float32).reshape(200, 2))
            sess.run(table.insert(all_keys[:3], values[:3]))
            sess.run(table.insert(all_keys, values))
            assert sess.run(table.size()) == 200
            assert sess.run(table.lookup(all_keys[5])).tolist() == [10.0, 11.0]
            sess.run(table.remove(all_keys[:150]))
            found = sess.run(table.lookup(tf.reshape(all_keys, [10, 20])))
            assert found.shape == (10, 20, 2) and found[0, 0].tolist() == [-1.0, -2.0] and found[9, 19].tolist() == [398.0, 399.0]
            exported_keys, exported = sess.run(table.export())
            assert sorted(zip(exported_keys.tolist(), exported.tolist())) == sorted(zip(given[150:], np.arange(300.0, 400).reshape(50, 2).tolist()))
            sess.run(table.insert(all_keys[:1], values[7:8]))
            assert sess.run([table.size(), table.lookup(all_keys[0])])[1].tolist() == [14.0, 15.0]


# -- uniques and sets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [1, 2, 8, 9])
def test_rows_that_come_first(columns, engines):
    source = np.random.RandomState(columns)
    for x in (
        source.randint(-2, 3, (300, columns)), source.choice([0.0, -0.0, np.nan, 1.5], (300, columns)), source.randint(0, 2, (300, columns)).astype(bool),
        source.choice([0.0, -0.0], (300, columns)).astype(np.float16), source.choice(_array([b"a", b"", b"b"]), (300, columns)),
        source.randint(0, 2, (300, columns, 2))[:, ::-1], source.randint(0, 3, (300, columns)) * (1 << 60),
    ):  # fmt: skip
        first, which = sorting.first_occurrences(x)
        known: dict = {}
        want = [known.setdefault(tuple(np.ravel(row).tolist()), i) for i, row in enumerate(x)]
        assert first.tolist() == list(known.values())
        assert first[which].tolist() == want


@pytest.mark.parametrize("operation", sets._OPERATIONS)
def test_sets_in_short_rows(operation):
    source = np.random.RandomState(0)
    for shape, widths in (((90,), (6, 4)), ((9, 4), (1, 7)), ((3,), (0, 2)), ((0,), (2, 2))):
        a, b = (source.randint(-4, 4, (*shape, w)) for w in widths)
        indices, values, _ = sets.dense_dense_kernel(a, b, set_operation=operation)
        want = [
            ([*place, k], member)
            for place in np.ndindex(*shape)
            for k, member in enumerate(sorted(sets._OPERATIONS[operation](set(a[place].tolist()), set(b[place].tolist()))))
        ]
        assert list(zip(indices.tolist(), values.tolist(), strict=True)) == want


def test_sizes_of_many_sets():
    x = np.random.RandomState(0).randint(-5, 5, (100, 6)).astype(np.int64)
    with tf.Graph().as_default(), tf.Session() as sess:
        indices = tf.constant([[i, j] for i in range(100) for j in range(6)], tf.int64)
        found = sess.run(tf.sets.size(tf.SparseTensor(indices, tf.constant(x.ravel()), [101, 6])))
    assert found.tolist() == [len(set(row)) for row in x.tolist()] + [0] and found.dtype == np.int32


# -- machine code -------------------------------------------------------------------------------------------------------


@needs_code
def test_strings_are_made_and_laid_out():
    import sys

    values = _bytes(300) + [b"long" * 5000]
    x = _array(values)
    sizes = many_strings.lengths_of(x)
    before = sys.getrefcount(None)
    for _ in range(50):
        letters = many_strings.letters_of(x, sizes)
        again = many_strings.cut(letters, many_strings.starts_of(sizes), sizes, x.shape)
    assert letters.tobytes() == b"".join(values) and again.tolist() == values
    assert abs(sys.getrefcount(None) - before) < 100  # arrays of objects begin with None
    assert making.are_same(x, again)
    for i in range(0, 300, 7):
        other = again.copy()
        other[i] = values[i] + b"x" if i % 2 or not values[i] else values[i][:-1] + bytes([values[i][-1] ^ 1])
        assert not making.are_same(x, other)
    other[0] = None
    assert not making.are_same(x, other)
    around = np.full(sum(map(len, values)) + 64, 7, np.uint8)
    making.gather(making.pointers(x) + texts.LETTERS, sizes, around)
    assert around[:-64].tobytes() == b"".join(values) and (around[-64:] == 7).all()


def test_other_objects_in_an_array_of_strings(engines):
    class Sub(bytes):
        pass

    values = [Sub(b"abc") if i == 70 else b"%d" % i for i in range(100)]
    assert string_parts.length_kernel(_array(values), unit=b"BYTE").tolist() == [len(v) for v in values]
    assert string_parts.upper_kernel(_array(values), encoding=b"").tolist() == [v.upper() for v in values]
    assert string_parts.substr_kernel(_array(values), np.array(0), np.array(2), unit=b"BYTE").tolist() == [v[:2] for v in values]
    assert string_parts.string_split_kernel(_array(values), np.array(b"b", object), skip_empty=True)[1].tolist()[70:72] == [b"a", b"c"]


@needs_code
def test_strings_that_grew_since_they_were_measured_do_not_fit():
    x = _array([b"abc", b"de" * 20, b"f"])
    sizes = many_strings.lengths_of(x)
    letters = np.full(int(sizes.sum()) + 64, 7, np.uint8)
    room, starts = letters[:-64], many_strings.starts_of(sizes)
    x[2] = b"longer" * 10
    assert not making.place(x, starts, room)
    assert (letters[-64:] == 7).all()
    x[2] = b"g"
    assert making.place(x, starts, room) and room.tobytes() == b"".join(x.tolist())


# -- records --------------------------------------------------------------------------------------------------------------


def _outcome(function, *arguments):
    try:
        return [found.tolist() if isinstance(found, np.ndarray) else found for found in function(*arguments)]
    except InvalidArgumentError as error:
        return str(error)


def test_records_with_quotes_at_once_or_letter_by_letter(monkeypatch):
    source = random.Random(1)
    cases = [
        (bytes(source.choices(b'aab,,"""\n\r x^]-\\', k=source.randint(0, 9))), source.choice([b",", b"a", b"^", b"]", b"-", b'"', b"\n", b"\\"]))
        for _ in range(5000)
    ]
    found = [_outcome(csv.split_record, record, delimiter, True) for record, delimiter in cases]
    monkeypatch.setattr(csv, "_plain_fields", lambda delimiter: lambda record: [])
    assert found == [_outcome(csv.split_record, record, delimiter, True) for record, delimiter in cases]


def test_few_records_are_read_as_many_are(monkeypatch):
    source = random.Random(2)
    usual, odd = ["1", "2", '"33"', "-4", "+5", "12345678", ""], ["007", "2147483648", "NA", "1.5", " 4", "nan", "1_0", "x", "0x10", "1e3"]
    cases = []
    for _ in range(1000):
        types = source.choices([dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64, dtypes.string], k=source.randint(1, 4))
        values = usual if source.random() < 0.7 else usual + odd
        defaults = [np.array([b"dd" if t is dtypes.string else 7][: source.randint(0, 1)], t.np) for t in types]
        rows = _array([",".join(source.choices(values, k=len(types))).encode() for _ in range(source.choice([1, 2, 5, 32, 33]))])
        cases.append((rows, defaults, types, b",", True, source.choice([b"", b"NA", b"1"]), []))
    found = [_outcome(csv.decode_csv, *case) for case in cases]
    monkeypatch.setattr(csv, "FEW", 0)
    for case, outcome in zip(cases, found, strict=True):
        assert str(outcome) == str(_outcome(csv.decode_csv, *case)), case  # as text: NaNs are the same there
