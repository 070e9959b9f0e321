"""Cases for `op_survey`: strings, parsing, lookup tables, sparse tensors, sets. Data are read from variables."""

from __future__ import annotations

import functools
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

Build = Callable[[Any], Callable[[], Any]]
CASES: dict[str, Build] = {}


def run(function: Callable[..., Any], *makers: Callable[[], Any]) -> Build:
    """A step that runs `function(tf, *variables)`, a variable for each array that is made."""

    def build(tf: Any) -> Callable[[], Any]:
        variables = [tf.Variable(tf.constant(make())) for make in makers]
        fetches = function(tf, *variables)
        sess = tf.Session()
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        return sess.make_callable(fetches)

    return build


LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789    ,,;_-", np.uint8)


def words(n: int, least: int = 5, most: int = 40) -> np.ndarray:
    """Strings of random letters, digits, spaces and commas."""
    random = np.random.default_rng(n + least)
    lengths = random.integers(least, most + 1, n)
    text = random.choice(LETTERS, int(lengths.sum())).tobytes()
    ends = np.cumsum(lengths).tolist()
    return np.array([text[e - k : e] for e, k in zip(ends, lengths.tolist(), strict=True)], object)


def add(
    name: str, function: Callable[..., Any], *makers: Callable[[int], Any], sizes: tuple[int, ...] = (10_000, 10)
) -> None:
    """Cases of a function, one for each size."""
    for n in sizes:
        CASES[f"{name}, {n:,}"] = run(function, *(functools.partial(make, n) for make in makers))


# -- strings --------------------------------------------------------------------------------------------------------------


def accented(n: int) -> np.ndarray:
    """Text with characters of one to four bytes."""
    random = np.random.default_rng(n)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz äöüß éè жзик 東京 😀"))
    return np.array(["".join(random.choice(letters, int(k))).encode() for k in random.integers(5, 30, n)], object)


def base64ed(n: int) -> np.ndarray:
    import base64

    return np.array([base64.urlsafe_b64encode(w).rstrip(b"=") for w in words(n).tolist()], object)


def padded(n: int) -> np.ndarray:
    return np.array([b"  " + w + b" \n" for w in words(n).tolist()], object)


def table_of(n: int) -> np.ndarray:
    return words(max(n, 4)).reshape(-1, 4) if n % 4 == 0 else words(n * 4).reshape(n, 4)


def floats(n: int) -> np.ndarray:
    return (np.random.default_rng(n).standard_normal(n) * 100).astype(np.float32)


def doubles(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal(n) * 100


def integers(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(-(10**6), 10**6, n).astype(np.int32)


def longs(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(-(10**12), 10**12, n)


def decimals(n: int) -> np.ndarray:
    return np.array([f"{v:.6g}".encode() for v in floats(n).tolist()], object)


def numerals(n: int) -> np.ndarray:
    return np.array([b"%d" % v for v in integers(n).tolist()], object)


def code_points(n: int) -> np.ndarray:
    return np.frombuffer("".join(w.decode() for w in accented(n).tolist()).encode("utf-32-le"), np.int32)


def code_splits(n: int) -> np.ndarray:
    return np.cumsum([0, *(len(w.decode()) for w in accented(n).tolist())])


add("encode_base64", lambda tf, x: tf.encode_base64(x), words)
add("decode_base64", lambda tf, x: tf.decode_base64(x), base64ed)
add("string_split at spaces", lambda tf, x: tf.string_split(x).values, words)
add("string_split at commas", lambda tf, x: tf.string_split(x, ",").values, words)
add("string_split at any of four", lambda tf, x: tf.string_split(x, " ,;-").values, words)
add("string_split, all results", lambda tf, x: tf.raw_ops.StringSplit(input=x, delimiter=" ", skip_empty=False), words)
add("string_split_v2 at white space", lambda tf, x: tf.raw_ops.StringSplitV2(input=x, sep="", maxsplit=-1), words)
add("string_split_v2 at commas", lambda tf, x: tf.raw_ops.StringSplitV2(input=x, sep=",", maxsplit=-1), words)
add("string_split_v2 at commas, twice", lambda tf, x: tf.raw_ops.StringSplitV2(input=x, sep=",", maxsplit=2), words)
add("substr", lambda tf, x: tf.substr(x, 2, 3), words)
add("substr from the end", lambda tf, x: tf.substr(x, -4, 10), words)
add(
    "substr by arrays",
    lambda tf, x, p, k: tf.substr(x, p, k),
    words,
    lambda n: np.arange(n, dtype=np.int32) % 5,
    lambda n: np.arange(n, dtype=np.int32) % 7,
)
add("substr of characters", lambda tf, x: tf.strings.substr(x, 1, 3, unit="UTF8_CHAR"), accented)
add("as_string of float32", lambda tf, x: tf.as_string(x), floats)
add("as_string of float64", lambda tf, x: tf.as_string(x), doubles)
add("as_string of float32, shortest", lambda tf, x: tf.as_string(x, shortest=True), floats)
add("as_string of float32, scientific", lambda tf, x: tf.as_string(x, scientific=True), floats)
add("as_string of float32, two digits", lambda tf, x: tf.as_string(x, precision=2), floats)
add("as_string of int32", lambda tf, x: tf.as_string(x), integers)
add("as_string of int64, width 12", lambda tf, x: tf.as_string(x, width=12), longs)
add("as_string of bool", lambda tf, x: tf.as_string(x), lambda n: np.arange(n) % 3 == 0)
add("regex_full_match", lambda tf, x: tf.strings.regex_full_match(x, "[a-z]+.*"), words)
add("regex_full_match, alternatives", lambda tf, x: tf.strings.regex_full_match(x, ".*(foo|ba[rz]|[0-9]{3}).*"), words)
add(
    "regex_full_match, fed pattern",
    lambda tf, x, p: tf.raw_ops.RegexFullMatch(input=x, pattern=p),
    words,
    lambda n: b"a.*b",
)
add("regex_replace", lambda tf, x: tf.strings.regex_replace(x, "[0-9]+", "#"), words)
add("regex_replace with groups", lambda tf, x: tf.strings.regex_replace(x, "([a-z]+) ([a-z]+)", "\\2 \\1"), words)
add("regex_replace, first", lambda tf, x: tf.strings.regex_replace(x, "[aeiou]", "", replace_global=False), words)
add("string_to_hash_bucket", lambda tf, x: tf.string_to_hash_bucket(x, 1000), words)
add("string_to_hash_bucket_fast", lambda tf, x: tf.string_to_hash_bucket_fast(x, 1000), words)
add("string_to_hash_bucket_strong", lambda tf, x: tf.string_to_hash_bucket_strong(x, 1000, [1, 2]), words)
add("unicode_transcode to UTF-8", lambda tf, x: tf.strings.unicode_transcode(x, "UTF-8", "UTF-8"), accented)
add("unicode_transcode to UTF-16", lambda tf, x: tf.strings.unicode_transcode(x, "UTF-8", "UTF-16-BE"), accented)
add("unicode_transcode from latin1", lambda tf, x: tf.strings.unicode_transcode(x, "ISO-8859-1", "UTF-8"), words)
add("unicode_decode", lambda tf, x: tf.raw_ops.UnicodeDecode(input=x, input_encoding="UTF-8"), accented)
add("unicode_decode of ASCII", lambda tf, x: tf.raw_ops.UnicodeDecode(input=x, input_encoding="UTF-8"), words)
add(
    "unicode_decode_with_offsets",
    lambda tf, x: tf.raw_ops.UnicodeDecodeWithOffsets(input=x, input_encoding="UTF-8"),
    accented,
)
add(
    "unicode_encode",
    lambda tf, x, s: tf.raw_ops.UnicodeEncode(input_values=x, input_splits=s, output_encoding="UTF-8"),
    code_points,
    code_splits,
)
add("string_lower", lambda tf, x: tf.strings.lower(x), words)
add("string_upper", lambda tf, x: tf.strings.upper(x), words)
add("string_lower of UTF-8", lambda tf, x: tf.strings.lower(x, encoding="utf-8"), accented)
add("string_upper of UTF-8", lambda tf, x: tf.strings.upper(x, encoding="utf-8"), accented)
add("string_strip", lambda tf, x: tf.string_strip(x), padded)
add("string_join of two", lambda tf, x, y: tf.string_join([x, y], "-"), words, words)
add("string_join with scalars", lambda tf, x: tf.string_join(["<", x, ">"]), words)
add("reduce_join", lambda tf, x: tf.reduce_join(x, 1, separator=" "), table_of)
add("reduce_join of everything", lambda tf, x: tf.reduce_join(x, 0), words)
add(
    "unsorted_segment_join",
    lambda tf, x: tf.strings.unsorted_segment_join(x, tf.range(tf.size(x)) % 100, 100, ","),
    words,
)
add("string_to_number to float32", lambda tf, x: tf.string_to_number(x), decimals)
add("string_to_number to int32", lambda tf, x: tf.string_to_number(x, tf.int32), numerals)
add("string_to_number to int64", lambda tf, x: tf.string_to_number(x, tf.int64), numerals)
add("string_length", lambda tf, x: tf.strings.length(x), words)
add("string_length of UTF-8", lambda tf, x: tf.strings.length(x, unit="UTF8_CHAR"), accented)
add("strings.format", lambda tf, x: tf.strings.format("x = {}", x), floats)
add("strings.format of everything", lambda tf, x: tf.strings.format("x = {}", x, summarize=-1), floats)
add("equal strings", lambda tf, x, y: tf.equal(x, y), words, words)
add("strings by gather", lambda tf, x: tf.gather(x, tf.range(tf.size(x))[::-1]), words)
add("strings by where", lambda tf, x, y: tf.where(tf.range(tf.size(x)) % 2 > 0, x, y), words, words)
add("strings joined by concat", lambda tf, x, y: tf.concat([x, y], 0), words, words)
add(
    "words of sentences to numbers",
    lambda tf, x: tf.string_to_hash_bucket_fast(tf.string_split(tf.strings.lower(x)).values, 1000),
    words,
)
add(
    "edit_distance",
    lambda tf, x, y: tf.edit_distance(_sparse_rows(tf, x), _sparse_rows(tf, y)),
    words,
    lambda n: np.roll(words(n), 1),
    sizes=(1000, 10),
)


def _sparse_rows(tf: Any, x: Any) -> Any:
    parts = tf.raw_ops.StringSplit(input=x, delimiter="", skip_empty=True)
    return tf.SparseTensor(*parts)


# -- parsing --------------------------------------------------------------------------------------------------------------


def records(n: int) -> np.ndarray:
    """Lines of a comma-separated file: numbers and words."""
    random = np.random.default_rng(n)
    return np.array([f"{i},{random.standard_normal():.5f},word{i},{i * 7 % 13}".encode() for i in range(n)], object)


def quoted(n: int) -> np.ndarray:
    return np.array([b'%d,"a, b",""' % i for i in range(n)], object)


def examples(n: int) -> np.ndarray:
    """Records written by the package that is measured."""
    tf: Any = sys.modules.get("tensorflow") or sys.modules["penstock"]

    def one(i: int) -> bytes:
        feature = {
            "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5 * i, 1.0, -2.0, 3.5])),
            "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"name%d" % i])),
            "tags": tf.train.Feature(int64_list=tf.train.Int64List(value=list(range(i % 4)))),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    return np.array([one(i) for i in range(n)], object)


def _parse_example(tf: Any, x: Any) -> Any:
    fixed = tf.io.FixedLenFeature
    return tf.io.parse_example(x, {
        "id": fixed([], tf.int64), "x": fixed([4], tf.float32), "name": fixed([], tf.string), "tags": tf.io.VarLenFeature(tf.int64),
    })  # fmt: skip


add("decode_raw to uint8", lambda tf, x: tf.decode_raw(x, tf.uint8), lambda n: words(n, 32, 32))
add("decode_raw to float32", lambda tf, x: tf.decode_raw(x, tf.float32), lambda n: words(n, 32, 32))
add("decode_raw, big endian", lambda tf, x: tf.decode_raw(x, tf.int16, little_endian=False), lambda n: words(n, 32, 32))
add(
    "decode_padded_raw",
    lambda tf, x: tf.raw_ops.DecodePaddedRaw(input_bytes=x, fixed_length=32, out_type=tf.uint8),
    words,
)
add("decode_csv", lambda tf, x: tf.decode_csv(x, [[0], [0.0], [""], [0]]), records)
add("decode_csv with quotes", lambda tf, x: tf.decode_csv(x, [[0], [""], ["none"]]), quoted)
add("parse_example", _parse_example, examples, sizes=(1000, 10))
add(
    "parse_single_example",
    lambda tf, x: tf.io.parse_single_example(x, {"id": tf.io.FixedLenFeature([], tf.int64)}),
    lambda n: examples(n)[0],
    sizes=(1,),
)
add("serialize_tensor", lambda tf, x: tf.io.serialize_tensor(x), floats)
add("serialize_tensor of strings", lambda tf, x: tf.io.serialize_tensor(x), words)
add("parse_tensor", lambda tf, x: tf.io.parse_tensor(tf.io.serialize_tensor(x), tf.float32), floats)
add("parse_tensor of strings", lambda tf, x: tf.io.parse_tensor(tf.io.serialize_tensor(x), tf.string), words)
add(
    "decode_json_example",
    lambda tf, x: tf.io.decode_json_example(x),
    lambda n: np.array(
        [b'{"features": {"feature": {"a": {"int64List": {"value": ["%d"]}}}}}' % i for i in range(n)], object
    ),
    sizes=(100, 10),
)
add(
    "decode_compressed",
    lambda tf, x: tf.io.decode_compressed(x, "ZLIB"),
    lambda n: np.array([zlib.compress(w) for w in words(n).tolist()], object),
    sizes=(1000, 10),
)


# -- lookup tables --------------------------------------------------------------------------------------------------------


def _looked_up(tf: Any, keys: Any) -> Any:
    vocabulary = words(5000)
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(vocabulary), tf.range(5000, dtype=tf.int64)), -1
    )
    return table.lookup(keys)


def _mutable(kind: str, keys_type: str, values_type: str) -> Callable[..., Any]:
    def build(tf: Any, keys: Any, values: Any) -> Any:
        k, v = getattr(tf, keys_type), getattr(tf, values_type)
        missing = {"string": "", "int64": -1, "float32": -1.0}[values_type]
        table = tf.lookup.experimental.MutableHashTable(k, v, missing)
        with tf.control_dependencies([table.insert(keys, values)]):
            return table.lookup(keys) if kind == "find" else tf.no_op() if kind == "insert" else table.size()

    return build


def picked(n: int) -> np.ndarray:
    vocabulary = words(5000)
    chosen = vocabulary[np.random.default_rng(n).integers(0, 5000, n)]
    chosen[::7] = b"not there"
    return chosen


def _by_index(tf: Any, x: Any) -> Any:
    vocabulary = tf.constant(words(5000))
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(vocabulary, tf.range(5000, dtype=tf.int64)), 10
    )
    return table.lookup(x)


def _dense_table(tf: Any, keys: Any, values: Any) -> Any:
    table = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.int64, -1, empty_key=-(10**15), deleted_key=-(10**15) - 1
    )
    with tf.control_dependencies([table.insert(keys, values)]):
        return table.lookup(keys)


def _int_table(tf: Any, keys: Any) -> Any:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(0, 50000, 10, dtype=tf.int64), tf.range(5000, dtype=tf.int64)), -1
    )
    return table.lookup(keys)


def _names(tf: Any, numbers: Any) -> Any:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(5000, dtype=tf.int64), tf.constant(words(5000))), "none"
    )
    return table.lookup(numbers)


add("hash table, strings to numbers", _looked_up, picked)
add("hash table, numbers to strings", _names, lambda n: np.random.default_rng(n).integers(0, 6000, n))
add("hash table, numbers to numbers", _int_table, lambda n: np.random.default_rng(n).integers(0, 50000, n))
add("vocabulary table with buckets", _by_index, picked)
add("mutable table, insert and find, strings", _mutable("find", "string", "int64"), words, lambda n: np.arange(n))
add(
    "mutable table, insert and find, int64",
    _mutable("find", "int64", "int64"),
    lambda n: np.arange(n) * 3,
    lambda n: np.arange(n),
)
add("mutable table, insert, strings to floats", _mutable("insert", "string", "float32"), words, floats)
add("mutable table, size", _mutable("size", "int64", "float32"), lambda n: np.arange(n) * 3, floats)
add("dense table, insert and find", _dense_table, lambda n: np.arange(n) * 3, lambda n: np.arange(n))


# -- sparse tensors -------------------------------------------------------------------------------------------------------


def places(n: int, columns: int = 1000, seed: int = 0) -> np.ndarray:
    """Indices of `n` elements of a matrix with n / 10 rows, in order."""
    rows = max(1, n // 10)
    flat = np.sort(np.random.default_rng(n + seed).choice(rows * columns, n, replace=False))
    return np.stack([flat // columns, flat % columns], 1)


def other_places(n: int) -> np.ndarray:
    return places(n, seed=1)


def mixed_places(n: int) -> np.ndarray:
    return np.random.default_rng(n).permutation(places(n))


def _matrix(tf: Any, indices: Any, values: Any) -> Any:
    return tf.SparseTensor(indices, values, [max(1, int(indices.shape[0]) // 10), 1000])


def sparse(
    name: str,
    function: Callable[..., Any],
    *more: Callable[[int], Any],
    order: Callable[[int], np.ndarray] = places,
    values: Callable[[int], Any] = floats,
) -> None:
    add(name, lambda tf, i, v, *rest: function(tf, _matrix(tf, i, v), *rest), order, values, *more)


def two(name: str, function: Callable[..., Any]) -> None:
    add(
        name,
        lambda tf, i, v, j, w: function(tf, _matrix(tf, i, v), _matrix(tf, j, w)),
        places,
        floats,
        other_places,
        floats,
    )


def _dense(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((1000, 32)).astype(np.float32)


def _full(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((max(1, n // 10), 1000)).astype(np.float32)


two("sparse.add", lambda tf, a, b: tf.sparse.add(a, b))
two("sparse.concat of columns", lambda tf, a, b: tf.sparse.concat(1, [a, b]))
two("sparse.concat of rows", lambda tf, a, b: tf.sparse.concat(0, [a, b]))
two("sparse.maximum", lambda tf, a, b: tf.sparse.maximum(a, b))
sparse("sparse.add to dense", lambda tf, a, d: tf.sparse.add(a, d), _full)
sparse("sparse.slice", lambda tf, a: tf.sparse.slice(a, [0, 100], [10**6, 500]))
sparse("sparse.split", lambda tf, a: [part.values for part in tf.sparse.split(sp_input=a, num_split=4, axis=1)])
sparse("sparse.reorder", lambda tf, a: tf.sparse.reorder(a), order=mixed_places)
sparse("sparse.reshape", lambda tf, a: tf.sparse.reshape(a, [-1, 100]))
sparse("sparse.transpose", lambda tf, a: tf.sparse.transpose(a))
sparse("sparse.to_dense", lambda tf, a: tf.sparse.to_dense(a))
sparse("sparse.to_dense of strings", lambda tf, a: tf.sparse.to_dense(a, default_value=""), values=words)
sparse(
    "sparse_to_dense, unchecked",
    lambda tf, a: tf.sparse_to_dense(a.indices, a.dense_shape, a.values, validate_indices=False),
)
sparse("sparse.to_indicator", lambda tf, a: tf.sparse.to_indicator(a, 1000), values=lambda n: np.arange(n) % 1000)
sparse("sparse.reduce_sum of rows", lambda tf, a: tf.sparse.reduce_sum(a, 1))
sparse("sparse.reduce_sum of columns", lambda tf, a: tf.sparse.reduce_sum(a, 0))
sparse("sparse.reduce_sum of everything", lambda tf, a: tf.sparse.reduce_sum(a))
sparse("sparse.reduce_max of rows", lambda tf, a: tf.sparse.reduce_max(a, 1))
sparse("sparse.reduce_sum_sparse", lambda tf, a: tf.sparse.reduce_sum_sparse(a, 1))
sparse("sparse.matmul with dense", lambda tf, a, b: tf.sparse.sparse_dense_matmul(a, b), _dense)
sparse(
    "sparse.matmul of the adjoint",
    lambda tf, a, b: tf.sparse.sparse_dense_matmul(a, b, adjoint_a=True),
    lambda n: np.ones((max(1, n // 10), 32), np.float32),
)
sparse("sparse.matmul gradient", lambda tf, a, b: tf.gradients(tf.sparse.sparse_dense_matmul(a, b), b), _dense)
sparse("sparse.softmax", lambda tf, a: tf.sparse.softmax(a))
sparse("sparse.retain", lambda tf, a: tf.sparse.retain(a, a.values > 0))
sparse("sparse.fill_empty_rows", lambda tf, a: tf.sparse.fill_empty_rows(a, 0.0))
sparse("sparse.reset_shape", lambda tf, a: tf.sparse.reset_shape(a))
sparse("sparse times dense", lambda tf, a, d: a * d, lambda n: np.ones((1, 1000), np.float32))
sparse("sparse divided by dense", lambda tf, a, d: a / d, lambda n: np.ones((1, 1000), np.float32))
sparse(
    "sparse.mask of slices",
    lambda tf, a: tf.sparse_mask(tf.IndexedSlices(a.indices, tf.range(tf.size(a.values))), [1, 2, 3]).values,
)
sparse(
    "embedding_lookup_sparse",
    lambda tf, a, d: tf.nn.embedding_lookup_sparse(d, a, None, combiner="mean"),
    _dense,
    values=lambda n: np.arange(n) % 1000,
)
add(
    "dense to sparse",
    lambda tf, d: tf.sparse.from_dense(d),
    lambda n: np.where(_full(n) > 2.3, _full(n), 0).astype(np.float32),
)


# -- sets, uniques, Python functions --------------------------------------------------------------------------------------


def repeated(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, max(2, n // 5), n).astype(np.int32)


def repeated_words(n: int) -> np.ndarray:
    return words(max(2, n // 5))[repeated(n)]


def rows_of_numbers(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 50, (max(1, n // 10), 10)).astype(np.int64)


def other_rows(n: int) -> np.ndarray:
    return rows_of_numbers(n)[:, ::-1] + 3


add("unique of int32", lambda tf, x: tf.unique(x), repeated)
add("unique of strings", lambda tf, x: tf.unique(x), repeated_words)
add("unique_with_counts of int32", lambda tf, x: tf.unique_with_counts(x), repeated)
add("unique_with_counts of strings", lambda tf, x: tf.unique_with_counts(x), repeated_words)
add(
    "unique of rows",
    lambda tf, x: tf.raw_ops.UniqueV2(x=x, axis=[0]),
    lambda n: np.stack([repeated(n) % 50, repeated(n) % 7], 1),
)
add("setdiff1d of int32", lambda tf, x, y: tf.setdiff1d(x, y), repeated, lambda n: np.arange(0, n, 3, dtype=np.int32))
add("setdiff1d of strings", lambda tf, x, y: tf.setdiff1d(x, y), repeated_words, lambda n: words(max(2, n // 5))[::3])
add("sets.intersection", lambda tf, x, y: tf.sets.intersection(x, y).values, rows_of_numbers, other_rows)
add("sets.union", lambda tf, x, y: tf.sets.union(x, y).values, rows_of_numbers, other_rows)
add("sets.difference", lambda tf, x, y: tf.sets.difference(x, y).values, rows_of_numbers, other_rows)
add("sets.size", lambda tf, x: tf.sets.size(tf.sparse.from_dense(x)), rows_of_numbers)
add("py_func", lambda tf, x: tf.py_func(lambda v: v * 2, [x], tf.float32), floats)
add("py_func of strings", lambda tf, x: tf.py_func(lambda v: v, [x], tf.string), words)
add(
    "py_func of scalars",
    lambda tf, x, y: tf.py_func(lambda v, w: v + w, [x, y], tf.float32),
    lambda n: np.float32(n),
    lambda n: np.float32(2),
    sizes=(1,),
)
