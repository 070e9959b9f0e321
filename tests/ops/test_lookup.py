"""Lookup tables and mutexes."""

import threading

import numpy as np
import pytest

import penstock as tf

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
