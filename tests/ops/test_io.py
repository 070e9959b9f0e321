"""Files, readers, TFRecords, and the parsing of CSV, tensors and Example protos."""

import gzip
import threading
import zlib

import numpy as np
import pytest

import penstock as tf
from penstock.formats.records import RecordReader, RecordWriter, crc32c, masked_crc32c
from tests.steps import is_waiting, wait_until


def run(fetches, feed=None):
    with tf.Session() as sess:
        return sess.run(fetches, feed)


# -- files ------------------------------------------------------------------------------------------------------------


def test_files_are_read_written_and_matched(tmp_path):
    path = str(tmp_path / "new" / "folder" / "file")
    run(tf.write_file(path, b"some\0bytes"))
    assert run(tf.read_file(path)) == b"some\0bytes"
    with pytest.raises(tf.errors.NotFoundError, match="nowhere; No such file or directory"):
        run(tf.read_file(str(tmp_path / "nowhere")))
    with pytest.raises(tf.errors.FailedPreconditionError, match="Is a directory"):
        run(tf.read_file(str(tmp_path)))
    for name in ("b.txt", "a.txt", ".hidden.txt", "[x].txt", "sub/a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)

    def match(*patterns):
        base = str(tmp_path) + "/"
        found = run(tf.matching_files([base + p for p in patterns] if len(patterns) > 1 else base + patterns[0]))
        return [f.decode().removeprefix(base) for f in found]

    assert match("*.txt") == [".hidden.txt", "[x].txt", "a.txt", "b.txt"]
    assert match("?.txt") == ["a.txt", "b.txt"] and match("[ab].txt") == ["a.txt", "b.txt"] and match(r"\[x\].txt") == ["[x].txt"]
    assert match("*/a.txt", "b*") == ["b.txt", "sub/a.txt"] and match("zzz*") == [] and match("nothing/*") == []


# -- records ----------------------------------------------------------------------------------------------------------


def test_checksums():
    assert crc32c(b"123456789") == 0xE3069283 and crc32c(b"") == 0 and crc32c(bytes(32)) == 0x8A9136AA
    data = np.random.default_rng(0).bytes(10000)

    def bit_by_bit(data):
        crc = 0xFFFFFFFF
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        return crc ^ 0xFFFFFFFF

    for n in (1, 4095, 4096, 4097, 9999):
        assert crc32c(data[:n]) == bit_by_bit(data[:n])
    assert masked_crc32c(b"") == 0xA282EAD8


@pytest.mark.parametrize("compression", ["", "ZLIB", "GZIP"])
def test_record_files(tmp_path, compression):
    path, records = str(tmp_path / "r"), [b"abc", b"", bytes(range(256)) * 40]
    options = tf.io.TFRecordOptions(compression)
    with tf.io.TFRecordWriter(path, options) as writer:
        for record in records:
            writer.write(record)
    assert list(tf.io.tf_record_iterator(path, options)) == records
    data = open(path, "rb").read()
    plain = {"": bytes, "ZLIB": zlib.decompress, "GZIP": gzip.decompress}[compression](data)
    assert plain[:19] == b'\x03\x00\x00\x00\x00\x00\x00\x00\xb0\x99I\x0eabcnW\xf1!'  # TensorFlow's bytes
    keys, values = read_up_to(tf.TFRecordReader(options=options), [path], 5)
    assert values == records and keys == [f"{path}:{n}".encode() for n in (0, 19, 35)]


def test_damaged_records(tmp_path):
    path = str(tmp_path / "r")
    writer = RecordWriter(path)
    for record in (b"abc", b"defg"):
        writer.write(record)
    writer.close()
    data = open(path, "rb").read()
    for bad, text in [
        (data[:-2], "truncated record at 19' failed"),
        (data[:13] + b"Z" + data[14:], "corrupted record at 12$"),
        (b"\x09" + data[1:], r"corrupted record at 0 \(Is this even a TFRecord file\?\)"),
    ]:
        open(path, "wb").write(bad)
        reader = RecordReader(path)
        for _ in range(2):  # and it stays so
            with pytest.raises(tf.errors.DataLossError, match=text):
                while reader.read() is not None:
                    pass


# -- readers ----------------------------------------------------------------------------------------------------------


def work_queue(names):
    queue = tf.FIFOQueue(100, tf.string, shapes=[()])
    return queue, queue.enqueue_many([names]), queue.close()


def read_all(reader, names):
    queue, fill, close = work_queue(names)
    records, read = [], reader.read(queue)
    with tf.Session() as sess:
        sess.run(fill)
        sess.run(close)
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                records.append(tuple(sess.run(read)))
        counts = sess.run([reader.num_records_produced(), reader.num_work_units_completed()])
    assert counts == [len(records), len(names)]
    return records


def read_up_to(reader, names, n):
    queue, fill, _ = work_queue(names)
    with tf.Session() as sess:
        sess.run(fill)
        keys, values = sess.run(reader.read_up_to(queue, n))
    return keys.tolist(), values.tolist()


def test_lines(tmp_path):
    a, b, empty = (str(tmp_path / name) for name in ("a", "b", "empty"))
    open(a, "wb").write(b"h\nl1\r\n\nl3")
    open(b, "wb").write(b"h\nx\n")
    open(empty, "wb").close()
    got = read_all(tf.TextLineReader(), [a, empty, b])
    assert got == [(f"{f}:{n}".encode(), v) for f, n, v in [(a, 1, b"h"), (a, 2, b"l1"), (a, 3, b""), (a, 4, b"l3"), (b, 1, b"h"), (b, 2, b"x")]]
    assert [v for _, v in read_all(tf.TextLineReader(skip_header_lines=1), [a, b])] == [b"l1", b"", b"l3", b"x"]
    # Never from two pieces of work at once.
    assert read_up_to(tf.TextLineReader(), [b, a], 9)[1] == [b"h", b"x"]
    assert read_up_to(tf.TextLineReader(), [empty, b], 1)[1] == [b"h"]


def test_many_empty_files_need_no_stack(tmp_path):
    empty, last = str(tmp_path / "empty"), str(tmp_path / "last")
    open(empty, "wb").close()
    open(last, "wb").write(b"end")
    queue = tf.FIFOQueue(5000, tf.string, shapes=[()])
    fill = queue.enqueue_many([[empty] * 3000 + [last]])
    with tf.Session() as sess:
        sess.run(fill)
        assert sess.run(tf.TextLineReader().read(queue)).value == b"end"


def test_fixed_length_records(tmp_path):
    path = str(tmp_path / "f")
    open(path, "wb").write(b"HHaaabbbcccFF")
    got = read_all(tf.FixedLengthRecordReader(3, header_bytes=2, footer_bytes=2), [path])
    assert got == [(f"{path}:{i}".encode(), v) for i, v in enumerate([b"aaa", b"bbb", b"ccc"])]
    hops = read_all(tf.FixedLengthRecordReader(3, header_bytes=2, footer_bytes=2, hop_bytes=2), [path])
    assert [v for _, v in hops] == [b"aaa", b"abb", b"bbc", b"ccc"]
    assert [v for _, v in read_all(tf.FixedLengthRecordReader(2, hop_bytes=5), [path])] == [b"HH", b"bb", b"cF"]
    open(path, "wb").write(zlib.compress(b"aaabbb"))
    assert [v for _, v in read_all(tf.FixedLengthRecordReader(3, encoding="ZLIB"), [path])] == [b"aaa", b"bbb"]


def test_whole_files_and_identities(tmp_path):
    path = str(tmp_path / "w")
    open(path, "wb").write(b"all\nof it")
    assert read_all(tf.WholeFileReader(), [path]) == [(path.encode(), b"all\nof it")]
    assert read_all(tf.IdentityReader(), ["x", "y"]) == [(b"x", b"x"), (b"y", b"y")]


def test_a_missing_file_is_reported_and_skipped(tmp_path):
    path = str(tmp_path / "there")
    open(path, "wb").write(b"x\n")
    queue, fill, _ = work_queue([str(tmp_path / "missing"), path])
    read = tf.TextLineReader().read(queue)
    with tf.Session() as sess:
        sess.run(fill)
        with pytest.raises(tf.errors.NotFoundError):
            sess.run(read)
        assert sess.run(read).value == b"x"


def test_reader_state():
    reader, (queue, fill, _) = tf.IdentityReader(), work_queue(["a", "b", "c"])
    read, count = reader.read(queue), reader.num_records_produced()
    assert reader.supports_serialize and not tf.TextLineReader().supports_serialize
    with tf.Session() as sess:
        sess.run(fill)
        sess.run(read)
        state = sess.run(reader.serialize_state())
        assert state == b'\x08\x01\x10\x01\x18\x01"\x01a'
        sess.run(read)
        assert sess.run(count) == 2
        sess.run(reader.restore_state(state))
        assert sess.run(count) == 1
        sess.run(reader.reset())
        assert sess.run(count) == 0
        with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse state for IdentityReader"):
            sess.run(reader.restore_state(b"\xff"))
        with pytest.raises(tf.errors.UnimplementedError, match="Reader SerializeState"):
            sess.run(tf.TextLineReader().serialize_state())
        with pytest.raises(tf.errors.InvalidArgumentError, match="Expected queue with single string component"):
            sess.run(reader.read(tf.FIFOQueue(1, tf.int32)))


def test_readers_wait_for_work_in_turn():
    reader, queue = tf.IdentityReader(), tf.FIFOQueue(10, tf.string, shapes=[()])
    read, fill, results = reader.read(queue), queue.enqueue_many([["a", "b", "c"]]), []
    with tf.Session() as sess:
        threads = [threading.Thread(target=lambda: results.append(sess.run(read).value)) for _ in range(3)]
        for thread in threads:
            thread.start()
        sess.run(fill)
        for thread in threads:
            thread.join(60)
    assert sorted(results) == [b"a", b"b", b"c"]


def test_closing_the_session_ends_waiting_reads():
    reader, queue = tf.IdentityReader(), tf.FIFOQueue(10, tf.string, shapes=[()])
    read, outcomes, sess = reader.read(queue), [], tf.Session()

    def wait():
        try:
            sess.run(read)
        except tf.errors.CancelledError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(map(is_waiting, threads)))
    sess.close()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 3


def test_the_older_string_handles(tmp_path):
    raw = tf.raw_ops
    reader = raw.TextLineReader(skip_header_lines=0)
    queue = raw.FIFOQueue(component_types=[tf.string], shapes=[[]])
    path = str(tmp_path / "t")
    open(path, "wb").write(b"line\n")
    with tf.Session() as sess:
        sess.run(raw.QueueEnqueueMany(queue, [[path]]))
        assert sess.run(raw.ReaderRead(reader, queue)).value == b"line"
        assert sess.run(raw.ReaderNumRecordsProduced(reader)) == 1


# -- parsing ----------------------------------------------------------------------------------------------------------


def test_csv():
    numbers, floats, texts = run(tf.decode_csv(["1,2.5,abc", ',-4,"x ""y"", z"'], [[7], [0.5], [""]]))
    assert numbers.tolist() == [1, 7] and floats.tolist() == [2.5, -4] and texts.tolist() == [b"abc", b'x "y", z']
    assert run(tf.decode_csv("1;NA;c", [[5.0], ["z"]], field_delim=";", na_value="NA", select_cols=[1, 2])) == [5.0, b"c"]
    for record, text in [
        ("1,2,3", "Expect 2 fields but have 3 in record 0"),
        ("1", "Expect 2 fields but have 1 in record 0"),
        ("a,2", "Field 0 in record 0 is not a valid int32: a"),
        ("9999999999,2", "Field 0 in record 0 is not a valid int32: 9999999999"),
        ("1,1_0", "Field 1 in record 0 is not a valid float: 1_0"),
        ('"1,2', "Quoted field has to end with quote followed by delim or end"),
        ('1"1,2', "Unquoted fields cannot have quotes/CRLFs inside"),
        ('"1"1,2', "Quote inside a string has to be escaped by another quote"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            run(tf.decode_csv([record], [[0], [0.0]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Field 0 is required but missing in record 1!"):
        run(tf.decode_csv(["1", '""'], [tf.constant([], tf.int32)]))
    with pytest.raises(ValueError, match="strictly increasing"):
        tf.decode_csv(["1,2"], [[0], [0]], select_cols=[1, 0])


def test_tensors_as_strings():
    for value in (np.float32([[1, 2]]), np.int64(3), np.array([b"a", b"bc"], dtype=object), np.zeros((0, 2), np.complex64)):
        dtype = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
        text = tf.serialize_tensor(tf.constant(value, dtype))
        np.testing.assert_array_equal(run(tf.parse_tensor(text, dtype)), value)
    assert run(tf.serialize_tensor(tf.constant([1.0]))) == b'\x08\x01\x12\x04\x12\x02\x08\x01"\x04\x00\x00\x80?'
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Type mismatch between parsed tensor \(float\) and dtype \(int32\)"):
        run(tf.parse_tensor(tf.serialize_tensor([1.0]), tf.int32))


def example(**features):
    message = tf.train.Example()
    for name, values in features.items():
        feature = message.features.feature[name]
        if values and isinstance(values[0], float):
            feature.float_list.value.extend(values)
        elif values and isinstance(values[0], int):
            feature.int64_list.value.extend(values)
        elif values:
            feature.bytes_list.value.extend(values)
    return message.SerializeToString()


def test_examples():
    features = {
        "f": tf.io.FixedLenFeature([2], tf.float32),
        "d": tf.io.FixedLenFeature([], tf.int64, default_value=7),
        "v": tf.io.VarLenFeature(tf.string),
        "s": tf.io.FixedLenSequenceFeature([2], tf.int64, allow_missing=True, default_value=-1),
        "x": tf.io.SparseFeature("i", "w", tf.float32, 10),
    }
    serialized = [
        example(f=[1.0, 2.0], d=[3], v=[b"a", b"b"], s=[1, 2, 3, 4], i=[5, 2], w=[0.5, 0.25]),
        example(f=[3.0, 4.0], s=[5, 6]),
    ]
    parsed = tf.io.parse_example(serialized, features)
    assert parsed["f"].shape.as_list() == [2, 2] and parsed["s"].shape.as_list() == [2, None, 2]
    got = run(parsed)
    assert got["f"].tolist() == [[1, 2], [3, 4]] and got["d"].tolist() == [3, 7]
    assert got["s"].tolist() == [[[1, 2], [3, 4]], [[5, 6], [-1, -1]]]
    assert got["v"].indices.tolist() == [[0, 0], [0, 1]] and got["v"].values.tolist() == [b"a", b"b"] and got["v"].dense_shape.tolist() == [2, 2]
    assert got["x"].indices.tolist() == [[0, 2], [0, 5]] and got["x"].values.tolist() == [0.25, 0.5] and got["x"].dense_shape.tolist() == [2, 10]
    one = run(tf.io.parse_single_example(serialized[0], features))
    assert one["f"].tolist() == [1, 2] and one["s"].tolist() == [[1, 2], [3, 4]] and one["v"].indices.tolist() == [[0], [1]]
    assert one["x"].indices.tolist() == [[2], [5]] and one["x"].dense_shape.tolist() == [10]


def test_long_feature_lists_are_read_whole():
    numbers = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    got = run(tf.io.parse_example([example(f=[float(x) for x in numbers])], {"f": tf.io.FixedLenFeature([1000], tf.float32)}))
    np.testing.assert_array_equal(got["f"][0], numbers)


def test_bad_examples():
    needed = {"a": tf.io.FixedLenFeature([], tf.float32)}
    for serialized, names, text in [
        (example(), None, r"Name: <unknown>, Feature: a \(data type: float\) is required but could not be found."),
        (example(), ["n"], r"Name: n, Feature: a \(data type: float\) is required"),
        (example(a=[1.0, 2.0]), None, r"Key: a, Index: 0.  Number of float values != expected.  Values size: 2 but output shape: \[\]"),
        (example(a=[1]), None, "Key: a, Index: 0.  Data types don't match. Data type: int64 but expected type: float"),
        (b"\xff", None, "Could not parse example input"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            run(tf.io.parse_example([serialized], needed, example_names=names))
    for features, text in [
        ({}, "cannot be None or falsy"),
        ({"a": 3}, "Unsupported int 3 for key 'a'"),
        ({"a": tf.io.FixedLenFeature(None, tf.float32)}, "Missing shape for feature a"),
        ({"a": tf.io.FixedLenFeature([None], tf.float32)}, "First dimension of shape for feature a unknown"),
        ({"a": tf.io.FixedLenSequenceFeature([], tf.float32)}, "requires allow_missing to be True"),
    ]:
        with pytest.raises(ValueError, match=text):
            tf.io.parse_example([b""], features)


def test_sequence_examples():
    def sequence(context, **lists):
        message = tf.train.SequenceExample()
        for name, values in context.items():
            message.context.feature[name].float_list.value.extend(values)
        for name, steps in lists.items():
            for values in steps:
                message.feature_lists.feature_list[name].feature.add().int64_list.value.extend(values)
        return message.SerializeToString()

    context = {"c": tf.io.FixedLenFeature([], tf.float32, default_value=9.0)}
    lists = {"d": tf.io.FixedLenSequenceFeature([2], tf.int64), "s": tf.io.VarLenFeature(tf.int64)}
    serialized = [sequence({"c": [1.5]}, d=[[1, 2], [3, 4]], s=[[1], [], [2, 3]]), sequence({}, d=[[5, 6]])]
    c, s, lengths = run(tf.io.parse_sequence_example(serialized, context, lists))
    assert c["c"].tolist() == [1.5, 9.0] and lengths["d"].tolist() == [2, 1]
    assert s["d"].tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
    assert s["s"].indices.tolist() == [[0, 0, 0], [0, 2, 0], [0, 2, 1]] and s["s"].dense_shape.tolist() == [2, 3, 2]
    c, s = run(tf.io.parse_single_sequence_example(serialized[0], context, lists))
    assert c["c"] == 1.5 and s["d"].tolist() == [[1, 2], [3, 4]] and s["s"].indices.tolist() == [[0, 0], [2, 0], [2, 1]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Feature list 'q' is required but could not be found"):
        run(tf.io.parse_single_sequence_example(serialized[0], None, {"q": tf.io.FixedLenSequenceFeature([2], tf.int64)}))
    _, s = run(tf.io.parse_single_sequence_example(serialized[0], None, {"q": tf.io.FixedLenSequenceFeature([2], tf.int64, allow_missing=True)}))
    assert s["q"].shape == (0, 2)
