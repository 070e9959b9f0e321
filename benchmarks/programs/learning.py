"""Classical learning: regressions, clusters, factors, mixtures, embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.programs.common import (
    Step,
    cross_entropy,
    data,
    dense,
    ints,
    ones,
    program,
    run,
    session,
    uniform,
    weights,
    zeros,
)


@program("logistic regression")
def logistic(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.float32, [None, 1])
    logits = dense(tf, x, 1, "linear")
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits)) + 1e-3 * tf.nn.l2_loss(logits)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    return run(tf, [loss, train], {x: data(128, 64), y: ints(2, 128, 1).astype(np.float32)})


@program("linear regression, closed form")
def closed_form(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 32]), tf.placeholder(tf.float32, [None, 1])
    gram = tf.matmul(x, x, transpose_a=True) + 0.1 * tf.eye(32)
    w = tf.matrix_solve(gram, tf.matmul(x, y, transpose_a=True))
    error = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
    return run(tf, [w, error], {x: data(500, 32), y: data(500, 1, seed=1)})


@program("k-means")
def kmeans(tf: Any) -> Step:
    points = tf.placeholder(tf.float32, [None, 16])
    centres = tf.get_variable("centres", initializer=data(10, 16, seed=1))
    distances = tf.reduce_sum(tf.square(tf.expand_dims(points, 1) - tf.expand_dims(centres, 0)), 2)
    nearest = tf.argmin(distances, 1)
    sums, counts = tf.unsorted_segment_sum(points, nearest, 10), tf.unsorted_segment_sum(tf.ones_like(points[:, :1]), nearest, 10)
    update = tf.assign(centres, tf.where(tf.tile(counts > 0, [1, 16]), sums / tf.maximum(counts, 1.0), centres))
    return run(tf, [tf.reduce_mean(tf.reduce_min(distances, 1)), update.op], {points: data(1000, 16)})


@program("matrix factorisation")
def factors(tf: Any) -> Step:
    users, items = weights(tf, "users", 2000, 32), weights(tf, "items", 1000, 32)
    u, i, rating = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None])
    p, q = tf.nn.embedding_lookup(users, u), tf.nn.embedding_lookup(items, i)
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(p * q, 1) - rating)) + 0.01 * (tf.nn.l2_loss(p) + tf.nn.l2_loss(q)) / 256
    train = tf.train.AdagradOptimizer(0.1).minimize(loss)
    return run(tf, [loss, train], {u: ints(2000, 256), i: ints(1000, 256, seed=1), rating: uniform(256)})


def _word2vec(tf: Any, sampled_softmax: bool) -> Step:
    words, labels = tf.placeholder(tf.int32, [128]), tf.placeholder(tf.int64, [128, 1])
    found = tf.nn.embedding_lookup(weights(tf, "table", 5000, 64), words)
    w, b = weights(tf, "out", 5000, 64), zeros(tf, "bias", 5000)
    loss = tf.nn.sampled_softmax_loss if sampled_softmax else tf.nn.nce_loss
    sampled = tf.nn.log_uniform_candidate_sampler(labels, 1, 32, True, 5000, seed=1)
    loss = tf.reduce_mean(loss(weights=w, biases=b, labels=labels, inputs=found, num_sampled=32, num_classes=5000, sampled_values=sampled))
    train = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
    return run(tf, [loss, train], {words: ints(5000, 128), labels: ints(5000, 128, 1, seed=1).astype(np.int64)})


@program("word2vec, NCE")
def word2vec_nce(tf: Any) -> Step:
    return _word2vec(tf, False)


@program("word2vec, sampled softmax")
def word2vec_softmax(tf: Any) -> Step:
    return _word2vec(tf, True)


@program("wide and deep")
def wide_deep(tf: Any) -> Step:
    numbers, y = tf.placeholder(tf.float32, [None, 13]), tf.placeholder(tf.float32, [None, 1])
    columns = [tf.placeholder(tf.int32, [None], name=f"column{i}") for i in range(8)]
    deep = tf.concat([numbers] + [tf.nn.embedding_lookup(weights(tf, f"table{i}", 1000, 8), c) for i, c in enumerate(columns)], 1)
    for i, units in enumerate((64, 32)):
        deep = dense(tf, deep, units, f"deep{i}", tf.nn.relu)
    wide = tf.add_n([tf.nn.embedding_lookup(zeros(tf, f"wide{i}", 1000, 1), c) for i, c in enumerate(columns)])
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=dense(tf, deep, 1, "top") + wide))
    tops = [v for v in tf.trainable_variables() if "wide" in v.name]
    rest = [v for v in tf.trainable_variables() if "wide" not in v.name]
    train = [tf.train.FtrlOptimizer(0.1).minimize(loss, var_list=tops), tf.train.AdagradOptimizer(0.05).minimize(loss, var_list=rest)]
    feeds = {numbers: data(64, 13), y: ints(2, 64, 1).astype(np.float32), **{c: ints(1000, 64, seed=i) for i, c in enumerate(columns)}}
    return run(tf, [loss, *train], feeds)


@program("Gaussian mixture, EM step")
def mixture(tf: Any) -> Step:
    x = tf.placeholder(tf.float32, [None, 8])
    mean, variance = tf.get_variable("mean", initializer=data(5, 8, seed=1)), ones(tf, "variance", 5, 8)
    prior = tf.get_variable("prior", initializer=np.full(5, 0.2, np.float32))
    gap = tf.expand_dims(x, 1) - mean
    log_p = tf.log(prior) - 0.5 * tf.reduce_sum(tf.square(gap) / variance + tf.log(2 * np.pi * variance), 2)
    total = tf.reduce_logsumexp(log_p, 1, keepdims=True)
    share = tf.exp(log_p - total)
    size = tf.reduce_sum(share, 0)
    new_mean = tf.matmul(share, x, transpose_a=True) / tf.expand_dims(size, 1)
    new_variance = tf.matmul(share, tf.square(x), transpose_a=True) / tf.expand_dims(size, 1) - tf.square(new_mean) + 1e-3
    with tf.control_dependencies([total]):
        update = tf.group(mean.assign(new_mean), variance.assign(new_variance), prior.assign(size / tf.reduce_sum(size)))
    return run(tf, [tf.reduce_mean(total), update], {x: data(500, 8)})


@program("k nearest neighbours")
def neighbours(tf: Any) -> Step:
    known, labels = tf.constant(data(2000, 32)), tf.constant(ints(10, 2000))
    x = tf.placeholder(tf.float32, [None, 32])
    distance = tf.reduce_sum(tf.square(x), 1, keepdims=True) - 2 * tf.matmul(x, known, transpose_b=True) + tf.reduce_sum(tf.square(known), 1)
    values, near = tf.nn.top_k(-distance, 5)
    votes = tf.reduce_sum(tf.one_hot(tf.gather(labels, near), 10), 1)
    return run(tf, [tf.argmax(votes, 1), tf.reduce_mean(values)], {x: data(16, 32, seed=1)})


@program("RBM, contrastive divergence")
def rbm(tf: Any) -> Step:
    w, a, b = weights(tf, "w", 256, 64), zeros(tf, "a", 256), zeros(tf, "b", 64)
    v = tf.placeholder(tf.float32, [64, 256])

    def sample(p: Any, seed: int) -> Any:
        return tf.cast(tf.random_uniform(tf.shape(p), seed=seed) < p, tf.float32)

    hidden = tf.sigmoid(tf.matmul(v, w) + b)
    again = tf.sigmoid(tf.matmul(sample(hidden, 1), w, transpose_b=True) + a)
    last = tf.sigmoid(tf.matmul(again, w) + b)
    change = (tf.matmul(v, hidden, transpose_a=True) - tf.matmul(again, last, transpose_a=True)) / 64
    train = tf.group(
        w.assign_add(0.1 * change), a.assign_add(0.1 * tf.reduce_mean(v - again, 0)), b.assign_add(0.1 * tf.reduce_mean(hidden - last, 0))
    )
    return run(tf, [tf.reduce_mean(tf.square(v - again)), train], {v: (uniform(64, 256) > 0.5).astype(np.float32)})


@program("sparse logistic regression, fed sparse")
def sparse_logistic(tf: Any) -> Step:
    x, y = tf.sparse_placeholder(tf.float32, [64, 10_000]), tf.placeholder(tf.float32, [64, 1])
    w = zeros(tf, "w", 10_000, 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=tf.sparse_tensor_dense_matmul(x, w)))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    where = np.stack([np.repeat(np.arange(64), 20), np.sort(ints(10_000, 64, 20), 1).ravel()], 1).astype(np.int64)
    value = tf.SparseTensorValue(where, uniform(64 * 20), np.array([64, 10_000], np.int64))
    return run(tf, [loss, train], {x: value, y: ints(2, 64, 1).astype(np.float32)})


@program("MAML, one inner step")
def maml(tf: Any) -> Step:
    """The gradient goes through an inner step of gradient descent, for four tasks."""
    shapes = [(1, 40), (40,), (40, 40), (40,), (40, 1), (1,)]
    params = [weights(tf, f"p{i}", *s) if len(s) == 2 else zeros(tf, f"p{i}", *s) for i, s in enumerate(shapes)]
    x, y = tf.placeholder(tf.float32, [4, 20, 1]), tf.placeholder(tf.float32, [4, 20, 1])

    def loss(p: list, x: Any, y: Any) -> Any:
        h = tf.nn.relu(tf.matmul(x, p[0]) + p[1])
        h = tf.nn.relu(tf.matmul(h, p[2]) + p[3])
        return tf.reduce_mean(tf.square(tf.matmul(h, p[4]) + p[5] - y))

    losses = []
    for i in range(4):
        inner = tf.gradients(loss(params, x[i, :10], y[i, :10]), params)
        losses.append(loss([p - 0.01 * g for p, g in zip(params, inner)], x[i, 10:], y[i, 10:]))
    total = tf.add_n(losses) / 4
    train = tf.train.AdamOptimizer(1e-3).minimize(total)
    points = data(4, 20, 1)
    return run(tf, [total, train], {x: points, y: np.sin(points)})


@program("softmax regression, batch 1")
def softmax_one(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int32, [None])
    loss = cross_entropy(tf, y, dense(tf, x, 10, "linear"))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    return run(tf, [loss, train], {x: data(1, 784), y: ints(10, 1)})


@program("online perceptron, 20 runs")
def perceptron(tf: Any) -> Step:
    """Many tiny runs, as a program does that looks at one example at a time."""
    w = zeros(tf, "w", 16)
    x, y = tf.placeholder(tf.float32, [16]), tf.placeholder(tf.float32, [])
    score = tf.reduce_sum(w * x)
    update = w.assign_add(tf.where(score * y <= 0, x * y, tf.zeros_like(x)))
    sess = session(tf)
    points, sides = data(20, 16), np.where(data(20, seed=1) > 0, 1.0, -1.0).astype(np.float32)

    def step() -> Any:
        return [sess.run(update, {x: point, y: side}) for point, side in zip(points, sides)][-1]

    return step
