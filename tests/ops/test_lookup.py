"""Lookup tables and mutexes."""

import threading

import numpy as np
import pytest

import penstock as tf
from penstock import dtypes
from penstock.ops.kernels.table_rows import CannotTell, Rows
from penstock.ops.kernels.tables import MutableTable, StaticTable
from penstock.ops.native import texts
from penstock.ops.native.text_index import TextIndex

raw = tf.raw_ops


def static(keys=("a", "b"), values=(1, 2), default=-1):
    init = tf.lookup.KeyValueTensorInitializer(list(keys), tf.constant(list(values), tf.int64))
    return tf.lookup.StaticHashTable(init, default)


class TestStatic:
    def test_lookup(self):
        table = static()
        found = table.lookup(tf.constant([["b", "x"], ["a", "a"]]))
        assert found.shape.as_list() == [2, 2] and table.name == "hash_table"
        with tf.Session() as sess:
            with pytest.raises(tf.errors.FailedPreconditionError, match="Table not initialized"):
                sess.run(found)
            sess.run(tf.tables_initializer())
            sess.run(tf.tables_initializer())
            assert sess.run(found).tolist() == [[2, -1], [1, 1]]
            assert sess.run(table.size()) == 2
            keys, values = sess.run(table.export())
            assert dict(zip(keys.tolist(), values.tolist(), strict=True)) == {b"a": 1, b"b": 2}

    def test_sparse_keys(self):
        table = static()
        keys = tf.SparseTensor([[0, 1], [2, 0]], ["b", "q"], [3, 2])
        with tf.Session() as sess:
            sess.run(tf.tables_initializer())
            got = sess.run(table.lookup(keys))
        assert got.values.tolist() == [2, -1] and got.dense_shape.tolist() == [3, 2]

    def test_conflicts(self):
        with tf.Session() as sess:
            with pytest.raises(tf.errors.FailedPreconditionError, match="Key a has 1 and trying to add value 2"):
                sess.run(static(["a", "a"], [1, 2]).initializer)
            handle = raw.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
            sess.run(raw.InitializeTableV2(table_handle=handle, keys=["a"], values=np.array([1])))
            with pytest.raises(tf.errors.FailedPreconditionError, match="already initialized with different data"):
                sess.run(raw.InitializeTableV2(table_handle=handle, keys=["a"], values=np.array([2])))
            with pytest.raises(tf.errors.UnimplementedError, match="Insert not supported"):
                sess.run(raw.LookupTableInsertV2(table_handle=handle, keys=["a"], values=np.array([2])))
            with pytest.raises(
                tf.errors.InvalidArgumentError, match="have: resource, int64, int64->int64 expected: resource, string"
            ):
                sess.run(raw.LookupTableFindV2(table_handle=handle, keys=np.array([1]), default_value=np.int64(0)))
        with pytest.raises(TypeError, match="Dtype of argument `keys` must be"):
            static().lookup(tf.constant([1]))

    def test_text_files(self, tmp_path):
        words = tmp_path / "words"
        words.write_text("apple\nbanana\ncherry\n")
        pairs = tmp_path / "pairs"
        pairs.write_text("a\t1\nb\t2\n")
        index = tf.lookup.TextFileIndex
        numbers = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(str(words), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER), -1
        )
        columns = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(str(pairs), tf.string, 0, tf.float32, 1), 0.0)
        missing = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(str(pairs), tf.string, 0, tf.int64, 2), 0)
        too_big = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(str(words), tf.string, -2, tf.int64, -1, vocab_size=9), 0
        )
        with tf.Session() as sess:
            sess.run([numbers.initializer, columns.initializer])
            assert sess.run(numbers.lookup(tf.constant(["cherry", "date"]))).tolist() == [2, -1]
            assert sess.run(columns.lookup(tf.constant(["a", "b", "c"]))).tolist() == [1, 2, 0]
            with pytest.raises(tf.errors.InvalidArgumentError, match="expected at least 3 got 2"):
                sess.run(missing.initializer)
            with pytest.raises(tf.errors.InvalidArgumentError, match="expected 9 but got 3"):
                sess.run(too_big.initializer)
        assert len(tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS)) == 4

    def test_vocabulary_with_buckets(self):
        init = tf.lookup.KeyValueTensorInitializer(["apple", "banana", "cherry"], tf.constant([0, 1, 2], tf.int64))
        table = tf.lookup.StaticVocabularyTable(init, 3)
        ids = table.lookup(tf.constant(["banana", "x", "y", "zebra"]))
        with tf.Session() as sess:
            sess.run(tf.tables_initializer())
            assert sess.run(ids).tolist() == [1, 5, 5, 5]  # TF's buckets
            assert sess.run(table.size()) == 6

    def test_ref_handles(self):
        handle = raw.HashTable(key_dtype=tf.string, value_dtype=tf.int64)
        with tf.Session() as sess:
            sess.run(raw.InitializeTable(table_handle=handle, keys=["a"], values=np.array([5])))
            assert sess.run(
                raw.LookupTableFind(table_handle=handle, keys=["a", "b"], default_value=np.int64(0))
            ).tolist() == [5, 0]


class TestMutable:
    def test_changes(self):
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, -1.0)
        with tf.Session() as sess:
            sess.run(table.insert(["a", "b", "a"], [1.0, 2.0, 3.0]))
            assert sess.run(table.lookup(["a", "b", "c"])).tolist() == [3, 2, -1]
            sess.run(table.remove(["a", "nobody"]))
            assert sess.run(table.size()) == 1
            sess.run(raw.LookupTableImportV2(table_handle=table.resource_handle, keys=["q"], values=[9.0]))
            assert [x.tolist() for x in sess.run(table.export())] == [[b"q"], [9]]

    def test_rows(self):
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, [0.0, -1.0])
        with tf.Session() as sess:
            sess.run(table.insert([1, 2], [[1.0, 2.0], [3.0, 4.0]]))
            assert sess.run(table.lookup([[2], [5]])).tolist() == [[[3, 4]], [[0, -1]]]
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"Expected shape \[2,2\] for value, got \[2,1\]"):
                sess.run(table.insert([1, 2], tf.placeholder_with_default([[1.0], [2.0]], None)))

    def test_reserved_keys(self):
        table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, empty_key=0, deleted_key=-5)
        with tf.Session() as sess:
            sess.run(table.insert([3, 4], [1, 2]))
            assert sess.run(table.lookup([3, 9])).tolist() == [1, -1]
            with pytest.raises(tf.errors.InvalidArgumentError, match="empty_key"):
                sess.run(table.insert([0], [1]))
            with pytest.raises(tf.errors.InvalidArgumentError, match="deleted_key"):
                sess.run(table.lookup([-5]))


def random_texts(random, n, longest, letters=b"a\0\xff"):
    texts = np.empty(n, object)
    texts[:] = [bytes(random.choice(list(letters), random.integers(0, longest + 1)).astype(np.uint8)) for _ in range(n)]
    return texts


@pytest.mark.skipif(not texts.can_read(), reason="strings cannot be read by machine code here")
class TestManyTexts:
    @pytest.mark.parametrize("longest", [0, 1, 3, 63, 64, 65, 66, 128, 129, 300])
    def test_index(self, longest):
        random, index, rows, alive = np.random.default_rng(longest), TextIndex(), {}, []
        for n in (1, 5, 300, 70, 1000):
            alive.append(random_texts(random, n, longest))
            assert index.insert(alive[-1]).tolist() == [rows.setdefault(text, len(rows)) for text in alive[-1].tolist()]
            others = random_texts(random, 200, longest)
            assert index.find(others).tolist() == [rows.get(text, -1) for text in others.tolist()]
            copies = np.array([*(bytes(bytearray(text)) for text in rows), None], object)[:-1]
            assert index.find(copies).tolist() == list(range(len(rows))) and index.count == len(rows)

    def test_long_texts_that_differ_in_one_block(self):
        some = [b"x" * k + b"y" + b"x" * (200 - k) for k in range(200)]
        strings = np.array(some + [b"x" * k for k in range(260)], object)
        index = TextIndex()
        assert index.insert(strings).tolist() == list(range(460))
        assert index.find(strings[::-1].copy()).tolist() == list(range(460))[::-1]

    def test_what_is_no_string(self):
        index = TextIndex()
        assert index.find(np.array([b"a", "b"], object)) is None and index.find(np.array([1], object)) is None
        assert index.find(np.empty(0, object)).size == 0
        rows = Rows(dtypes.string, dtypes.int64, ())
        rows.insert(np.array([b"a", b"b"], object), np.array([1, 2]))
        with pytest.raises(CannotTell):
            rows.insert(np.array([b"c", b"a", "d", b"e"], object), np.arange(4))
        assert rows.items()[0].tolist() == [b"a", b"b"] and rows.items()[1].tolist() == [1, 2]
        assert rows.find(np.array([b"b", b"c", b"a"], object)).tolist() == [1, -1, 0]

    @pytest.mark.parametrize("shape", [(), (3,)])
    def test_mutable_table(self, shape):
        """Against a dictionary: what is put in, replaced, removed, and not there; keys are views, and are changed by their owner afterwards."""
        random, table, want = np.random.default_rng(7), MutableTable(dtypes.string, dtypes.float32, shape), {}
        for _ in range(30):
            keys = random_texts(random, 400, 6)[::2]
            values = random.standard_normal((200, *shape)).astype(np.float32)
            table.insert(keys, values)
            want |= zip(keys.tolist(), values, strict=True)
            keys[:] = [b"%d" % k for k in range(200)]
            gone = random_texts(random, 100, 4)
            table.remove(gone)
            for key in gone.tolist():
                want.pop(key, None)
            sought = random_texts(random, 600, 6).reshape(20, 30)
            for default in (np.full(shape, 9, np.float32), random.standard_normal((20, 30, *shape)).astype(np.float32)):
                each = np.broadcast_to(default, (20, 30, *shape)).reshape(600, *shape)
                right = np.array([want.get(key, each[i]) for i, key in enumerate(sought.ravel().tolist())])
                assert (table.find(sought, default) == right.reshape(20, 30, *shape)).all()
            assert (
                len(table) == len(want)
                and dict(zip(table.export()[0].tolist(), table.export()[1], strict=True)).keys() == want.keys()
            )

    @pytest.mark.parametrize("keys", ["texts", "numbers"])
    def test_static_table(self, keys):
        random = np.random.default_rng(1)
        some = np.unique(random_texts(random, 500, 9)) if keys == "texts" else np.arange(0, 900, 3)
        table = StaticTable(dtypes.string if keys == "texts" else dtypes.int64, dtypes.string)
        table.initialize(some, np.array([b"=%d" % i for i in range(len(some))], object))
        sought = random_texts(random, 500, 9) if keys == "texts" else np.arange(900)
        numbers = {key: b"=%d" % i for i, key in enumerate(some.tolist())}
        assert table.find(sought, np.array(b"none", object)).tolist() == [
            numbers.get(key, b"none") for key in sought.tolist()
        ]
        assert table.find(some, np.array(b"", object)).tolist() == list(numbers.values())
        nothing = StaticTable(dtypes.string, dtypes.int64)
        nothing.initialize(np.empty(0, object), np.empty(0, np.int64))
        assert (nothing.find(random_texts(random, 100, 9), np.array(-5)) == -5).all()

    def test_keys_live_as_long_as_the_table(self):
        table = MutableTable(dtypes.string, dtypes.int64)
        for start in range(0, 3000, 500):
            texts = np.array([b"key %d" % (k // 2) for k in range(start, start + 500)], object)
            table.insert(texts, np.arange(start, start + 500))
            del texts
        garbage = [b"other %d" % k for k in range(5000)]
        found = table.find(np.array([b"key %d" % k for k in range(1500)], object), np.array(-1))
        assert garbage and found.tolist() == list(range(1, 3000, 2))


class TestMutex:
    def test_one_at_a_time(self):
        mutex = raw.MutexV2(shared_name="m")
        lock = raw.MutexLock(mutex=mutex)
        inside, most = [], []

        def work():
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            return np.float64(0)

        with tf.control_dependencies([lock]):
            done = tf.py_func(work, [], tf.float64)
        with tf.control_dependencies([done]):
            release = raw.ConsumeMutexLock(mutex_lock=lock)
        with tf.Session() as sess:
            threads = [threading.Thread(target=lambda: [sess.run(release) for _ in range(5)]) for _ in range(3)]
            for t in threads:
                t.start()
            for t in threads:
                t.join(60)
        assert len(most) == 15 and max(most) == 1

    def test_critical_sections(self):
        v = tf.Variable(0.0, use_resource=True)
        section = tf.CriticalSection(name="count")

        def add():
            old = v.read_value()
            with tf.control_dependencies([old]):
                pause = tf.py_func(lambda x: x, [old], tf.float32)
                with tf.control_dependencies([v.assign(pause + 1.0)]):
                    return tf.identity(pause)

        results = [section.execute(add) for _ in range(4)]
        with tf.Session() as sess:
            sess.run(v.initializer)
            assert sorted(sess.run(results)) == [0, 1, 2, 3]
            threads = [threading.Thread(target=lambda: [sess.run(results[0]) for _ in range(10)]) for _ in range(3)]
            for t in threads:
                t.start()
            for t in threads:
                t.join(60)
            assert sess.run(v) == 34
