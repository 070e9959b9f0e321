"""Programs whose data comes as text, sparse or through queues."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.programs.common import Step, cross_entropy, data, dense, ints, program, run, session, weights, zeros

WORDS = np.array([f"word{i}" for i in range(300)], object)


@program("words to buckets to sparse embedding")
def words(tf: Any) -> Step:
    lines, y = tf.placeholder(tf.string, [None]), tf.placeholder(tf.float32, [None, 1])
    tokens = tf.string_split(lines)
    ids = tf.SparseTensor(tokens.indices, tf.string_to_hash_bucket_fast(tokens.values, 1000), tokens.dense_shape)
    mean = tf.nn.embedding_lookup_sparse(weights(tf, "table", 1000, 16), ids, None, combiner="mean")
    logits = tf.matmul(mean, weights(tf, "out", 16, 1))
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits))
    train = tf.train.AdagradOptimizer(0.1).minimize(loss)
    texts = np.array([" ".join(WORDS[row]) for row in ints(300, 32, 12)], object)
    return run(tf, [loss, train], {lines: texts, y: ints(2, 32, 1).astype(np.float32)})


@program("cleaning text")
def cleaning(tf: Any) -> Step:
    lines = tf.placeholder(tf.string, [None])
    clean = tf.strings.strip(tf.regex_replace(tf.strings.lower(lines), "[^a-z ]+", " "))
    tokens = tf.string_split(clean)
    counts = tf.sparse_reduce_sum(tf.SparseTensor(tokens.indices, tf.ones_like(tokens.values, tf.float32), tokens.dense_shape), 1)
    texts = np.array([f"Hello, {WORDS[i]}! It's {i} o'clock - time for lunch." for i in range(50)], object)
    return run(tf, [counts, tf.string_to_hash_bucket_fast(tokens.values, 100)], {lines: texts})


@program("queue input and training")
def queue(tf: Any) -> Step:
    """Each step puts a batch of examples into a queue and trains on one that comes out."""
    q = tf.FIFOQueue(100, [tf.float32, tf.int32], shapes=[[32], []])
    x, y = tf.placeholder(tf.float32, [None, 32]), tf.placeholder(tf.int32, [None])
    put = q.enqueue_many([x, y])
    examples, labels = q.dequeue_many(16)
    loss = cross_entropy(tf, labels, dense(tf, dense(tf, examples, 32, "one", tf.nn.relu), 4, "out"))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    sess = session(tf)
    feeds = {x: data(16, 32), y: ints(4, 16)}

    def step() -> Any:
        sess.run(put, feeds)
        return sess.run([loss, train])

    return step


@program("parsing examples")
def examples(tf: Any) -> Step:
    def example(i: int) -> bytes:
        features = {
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=data(8, seed=i).tolist())),
            "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=list(range(i % 5 + 1)))),
            "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 3])),
        }
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    serialized = tf.placeholder(tf.string, [None])
    spec = {"x": tf.FixedLenFeature([8], tf.float32), "ids": tf.VarLenFeature(tf.int64), "y": tf.FixedLenFeature([], tf.int64)}
    parsed = tf.parse_example(serialized, spec)
    mean = tf.nn.embedding_lookup_sparse(weights(tf, "table", 10, 8), parsed["ids"], None, combiner="sum")
    loss = cross_entropy(tf, parsed["y"], dense(tf, tf.concat([parsed["x"], mean], 1), 3, "out"))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    return run(tf, [loss, train], {serialized: np.array([example(i) for i in range(32)], object)})


@program("vocabulary lookup and bag of words")
def vocabulary(tf: Any) -> Step:
    table = tf.contrib.lookup if hasattr(tf, "contrib") and hasattr(tf.contrib, "lookup") else tf.lookup
    keys, values = tf.constant([str(w) for w in WORDS]), tf.range(300, dtype=tf.int64)
    lookup = table.StaticHashTable(table.KeyValueTensorInitializer(keys, values), -1)
    tokens = tf.placeholder(tf.string, [None, None])
    ids = lookup.lookup(tokens)
    bag = tf.reduce_sum(tf.one_hot(ids, 300), 1)
    return run(tf, tf.nn.softmax(dense(tf, bag, 5, "out")), {tokens: WORDS[ints(310, 16, 20) % 300]})


@program("counting with scatters")
def counting(tf: Any) -> Step:
    counts, last = zeros(tf, "counts", 1000), zeros(tf, "last", 1000)
    ids, when = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [])
    unique, _, number = tf.unique_with_counts(ids)
    update = tf.group(tf.scatter_add(counts, unique, tf.cast(number, tf.float32)), tf.scatter_update(last, unique, when * tf.ones_like(number, tf.float32)))
    with tf.control_dependencies([update]):
        best, _ = tf.nn.top_k(counts, 10)
    return run(tf, best, {ids: ints(1000, 256), when: 1.0})
