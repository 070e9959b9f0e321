"""Programs on structured data: tables, graphs, histories, flows, estimates by many samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.programs.common import (
    Step,
    cross_entropy,
    data,
    dense,
    ints,
    program,
    run,
    session,
    uniform,
    weights,
    zeros,
)


@program("DeepFM")
def deep_fm(tf: Any) -> Step:
    """Factors of pairs, a deep part and a linear one, over one table of all fields."""
    fields, y = tf.placeholder(tf.int32, [128, 10]), tf.placeholder(tf.float32, [128, 1])
    factors = tf.nn.embedding_lookup(weights(tf, "factors", 5000, 8), fields)
    linear = tf.reduce_sum(tf.nn.embedding_lookup(zeros(tf, "linear", 5000, 1), fields), 1)
    pairs = 0.5 * tf.reduce_sum(tf.square(tf.reduce_sum(factors, 1)) - tf.reduce_sum(tf.square(factors), 1), 1, keepdims=True)
    deep = tf.reshape(factors, [128, 80])
    for i in range(2):
        deep = dense(tf, deep, 32, f"deep{i}", tf.nn.relu)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=linear + pairs + dense(tf, deep, 1, "out")))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {fields: ints(5000, 128, 10), y: ints(2, 128, 1).astype("f")})


@program("interest in a history, attention")
def interest(tf: Any) -> Step:
    """What a user did before, of several lengths, weighted by how it fits the candidate."""
    history, lengths, item, y = (tf.placeholder(t, s) for t, s in ((tf.int32, [64, 20]), (tf.int32, [64]), (tf.int32, [64]), (tf.float32, [64])))
    table = weights(tf, "items", 2000, 16)
    h, c = tf.nn.embedding_lookup(table, history), tf.nn.embedding_lookup(table, item)
    both = tf.tile(tf.expand_dims(c, 1), [1, 20, 1])
    x = tf.reshape(tf.concat([h, both, h - both, h * both], 2), [-1, 64])
    scores = tf.reshape(dense(tf, dense(tf, x, 16, "look", tf.sigmoid), 1, "score"), [64, 20])
    mask = tf.sequence_mask(lengths, 20)
    scores = tf.nn.softmax(tf.where(mask, scores, tf.fill([64, 20], -1e9)))
    user = tf.reduce_sum(h * tf.expand_dims(scores, 2), 1)
    logits = tf.squeeze(dense(tf, dense(tf, tf.concat([user, c], 1), 32, "deep", tf.nn.relu), 1, "out"), 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits))
    feeds = {history: ints(2000, 64, 20), lengths: 1 + ints(20, 64), item: ints(2000, 64, seed=1), y: ints(2, 64).astype("f")}
    return run(tf, [loss, tf.train.AdagradOptimizer(0.1).minimize(loss)], feeds)


@program("cross network")
def cross(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 40]), tf.placeholder(tf.float32, [None, 1])
    h = x
    for i in range(4):
        h = x * tf.matmul(h, weights(tf, f"w{i}", 40, 1)) + zeros(tf, f"b{i}", 40) + h
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=dense(tf, h, 1, "out")))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: data(256, 40), y: ints(2, 256, 1).astype("f")})


@program("graph convolution over edges")
def graph_convolution(tf: Any) -> Step:
    x, sources, targets, y = (tf.placeholder(t, s) for t, s in ((tf.float32, [300, 32]), (tf.int32, [None]), (tf.int32, [None]), (tf.int32, [300])))
    degree = tf.maximum(tf.unsorted_segment_sum(tf.ones_like(targets, tf.float32), targets, 300), 1.0)
    h = x
    for i in range(2):
        h = dense(tf, h, 16, f"layer{i}")
        h = tf.nn.relu(tf.unsorted_segment_sum(tf.gather(h, sources), targets, 300) / degree[:, tf.newaxis] + h)
    loss = cross_entropy(tf, y, dense(tf, h, 5, "out"))
    feeds = {x: data(300, 32), sources: ints(300, 1500), targets: ints(300, 1500, seed=1), y: ints(5, 300)}
    return run(tf, [loss, tf.train.AdamOptimizer(0.01).minimize(loss)], feeds)


@program("graph attention over edges")
def graph_attention(tf: Any) -> Step:
    """Softmax of the edges that come in at each node, by segments."""
    x, sources, targets, y = (tf.placeholder(t, s) for t, s in ((tf.float32, [200, 32]), (tf.int32, [800]), (tf.int32, [800]), (tf.int32, [200])))
    h = dense(tf, x, 16, "layer")
    scores = tf.nn.leaky_relu(tf.gather(tf.matmul(h, weights(tf, "left", 16, 1)), sources) + tf.gather(tf.matmul(h, weights(tf, "right", 16, 1)), targets))
    largest = tf.unsorted_segment_max(scores, targets, 200)
    e = tf.exp(scores - tf.gather(largest, targets))
    share = e / tf.gather(tf.unsorted_segment_sum(e, targets, 200), targets)
    h = tf.nn.elu(tf.unsorted_segment_sum(share * tf.gather(h, sources), targets, 200))
    loss = cross_entropy(tf, y, dense(tf, h, 5, "out"))
    feeds = {x: data(200, 32), sources: ints(200, 800), targets: np.sort(ints(200, 800, seed=1)), y: ints(5, 200)}
    return run(tf, [loss, tf.train.AdamOptimizer(0.01).minimize(loss)], feeds)


@program("boosted trees, histogram of a split")
def histogram(tf: Any) -> Step:
    """Gradients of 2,000 rows by bin of each of 8 features, and the gain of every border."""
    bins, gradients = tf.placeholder(tf.int32, [2000, 8]), tf.placeholder(tf.float32, [2000])
    places = bins + 32 * tf.range(8)
    repeated = tf.reshape(tf.tile(gradients[:, tf.newaxis], [1, 8]), [-1])
    sums = tf.reshape(tf.unsorted_segment_sum(repeated, tf.reshape(places, [-1]), 256), [8, 32])
    counts = tf.cast(tf.reshape(tf.math.bincount(tf.reshape(places, [-1]), minlength=256, maxlength=256), [8, 32]), tf.float32)
    left, n = tf.cumsum(sums, 1), tf.cumsum(counts, 1)
    total, size = left[:, -1:], n[:, -1:]
    gain = tf.square(left) / (n + 1.0) + tf.square(total - left) / (size - n + 1.0)
    best = tf.argmax(gain, 1)
    return run(tf, [best, tf.reduce_max(gain, 1)], {bins: ints(32, 2000, 8), gradients: data(2000)})


@program("forest of trees, by gathers")
def forest(tf: Any) -> Step:
    """Twenty trees of depth 6 for 256 rows: a gather for every level."""
    x = tf.placeholder(tf.float32, [256, 16])
    features, borders = tf.constant(ints(16, 20 * 64)), tf.constant(data(20 * 64))
    leaves = tf.constant(data(20 * 64, seed=1))
    first = tf.constant((np.arange(20) * 64)[None].repeat(256, 0).astype(np.int32))
    rows = tf.constant((np.arange(256) * 16)[:, None].astype(np.int32))
    flat = tf.reshape(x, [-1])
    node = tf.ones([256, 20], tf.int32)
    for _ in range(5):
        place = first + node
        goes_right = tf.gather(flat, rows + tf.gather(features, place)) > tf.gather(borders, place)
        node = 2 * node + tf.cast(goes_right, tf.int32)
    return run(tf, tf.reduce_sum(tf.gather(leaves, first + node), 1), {x: data(256, 16)})


@program("normalising flow, coupling layers")
def flow(tf: Any) -> Step:
    x = tf.placeholder(tf.float32, [128, 8])
    h, log_det = x, tf.zeros([128])
    for i in range(4):
        a, b = tf.split(h, 2, axis=1)
        inner = dense(tf, a, 32, f"inner{i}", tf.nn.relu)
        scale, shift = tf.tanh(dense(tf, inner, 4, f"scale{i}")), dense(tf, inner, 4, f"shift{i}")
        h = tf.concat([b * tf.exp(scale) + shift, a], 1)
        log_det += tf.reduce_sum(scale, 1)
    loss = tf.reduce_mean(0.5 * tf.reduce_sum(tf.square(h), 1) - log_det)
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: data(128, 8)})


@program("mixture density network")
def mixture_density(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 1]), tf.placeholder(tf.float32, [None, 1])
    h = dense(tf, x, 32, "hidden", tf.tanh)
    parts, means, deviations = tf.nn.log_softmax(dense(tf, h, 5, "parts")), dense(tf, h, 5, "means"), tf.nn.softplus(dense(tf, h, 5, "deviations")) + 1e-3
    density = -0.5 * tf.square((y - means) / deviations) - tf.log(deviations) - 0.5 * math.log(2 * math.pi)
    loss = -tf.reduce_mean(tf.reduce_logsumexp(parts + density, 1))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: data(128, 1), y: data(128, 1, seed=1)})


@program("t-SNE step")
def tsne(tf: Any) -> Step:
    p, y = tf.placeholder(tf.float32, [200, 200]), weights(tf, "y", 200, 2)
    squares = tf.reduce_sum(tf.square(y), 1)
    distance = squares[:, tf.newaxis] - 2 * tf.matmul(y, y, transpose_b=True) + squares
    near = (1.0 / (1.0 + distance)) * (1.0 - tf.eye(200))
    q = tf.maximum(near / tf.reduce_sum(near), 1e-12)
    loss = tf.reduce_sum(p * tf.log(tf.maximum(p, 1e-12) / q))
    given = uniform(200, 200)
    return run(tf, [loss, tf.train.MomentumOptimizer(10.0, 0.8).minimize(loss)], {p: given / given.sum()})


@program("principal components by SVD")
def components(tf: Any) -> Step:
    x = tf.placeholder(tf.float32, [200, 32])
    centred = x - tf.reduce_mean(x, 0)
    s, _, v = tf.svd(centred)
    return run(tf, [tf.matmul(centred, v[:, :4]), tf.square(s) / 199.0], {x: data(200, 32)})


@program("prices of options, Monte Carlo")
def options(tf: Any) -> Step:
    """20,000 paths of 10 steps and the sensitivity to the first price."""
    spot = tf.placeholder(tf.float32, [])
    price = tf.fill([20_000], spot)
    for i in range(10):
        price *= tf.exp(0.002 + 0.06 * tf.random_normal([20_000], seed=i))
    value = tf.reduce_mean(tf.maximum(price - 100.0, 0.0))
    return run(tf, [value, tf.gradients(value, spot)[0]], {spot: np.float32(100)})


@program("particle filter, one observation")
def particles(tf: Any) -> Step:
    """Particles move, are weighted, and are drawn anew where their weights lie."""
    seen = tf.placeholder(tf.float32, [])
    state = tf.get_variable("state", initializer=data(1000))
    moved = 0.9 * state + tf.random_normal([1000], stddev=0.3, seed=1)
    share = tf.nn.softmax(-2.0 * tf.square(moved - seen))
    places = (tf.range(1000.0) + tf.random_uniform([], seed=2)) / 1000.0
    chosen = tf.minimum(tf.searchsorted(tf.cumsum(share), places), 999)
    return run(tf, tf.reduce_mean(tf.assign(state, tf.gather(moved, chosen))), {seen: np.float32(0.3)})


@program("edit distance by a loop over rows", is_loop=True)
def edit_distance(tf: Any) -> Step:
    """For 32 pairs of words of 12 letters; a row's minima come from a cumulative one."""
    a, b = tf.placeholder(tf.int32, [12, 32]), tf.placeholder(tf.int32, [32, 12])
    steps = tf.range(13.0)

    def body(i: Any, row: Any) -> Any:
        cost = tf.cast(tf.not_equal(tf.expand_dims(a[i], 1), b), tf.float32)
        first = tf.fill([32, 1], tf.cast(i + 1, tf.float32))
        best = tf.concat([first, tf.minimum(row[:, 1:] + 1.0, row[:, :-1] + cost)], 1) - steps
        columns = [best[:, 0]]
        for j in range(1, 13):
            columns.append(tf.minimum(columns[-1], best[:, j]))
        return i + 1, tf.stack(columns, 1) + steps

    start = tf.tile(steps[tf.newaxis], [32, 1])
    _, last = tf.while_loop(lambda i, _: i < 12, body, [0, start])
    return run(tf, last[:, -1], {a: ints(5, 12, 32), b: ints(5, 32, 12, seed=1)})


@program("self-organising map")
def map_of_units(tf: Any) -> Step:
    x, rate = tf.placeholder(tf.float32, [16]), tf.placeholder(tf.float32, [])
    units = weights(tf, "units", 100, 16)
    grid = tf.constant(np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), -1).reshape(100, 2).astype("f"))
    best = tf.argmin(tf.reduce_sum(tf.square(units - x), 1))
    near = tf.exp(-tf.reduce_sum(tf.square(grid - tf.gather(grid, best)), 1) / 4.0)
    return run(tf, tf.assign_add(units, rate * near[:, tf.newaxis] * (x - units)).op, {x: data(16), rate: np.float32(0.1)})


@program("knowledge graph, TransE")
def translations(tf: Any) -> Step:
    heads, links, tails, wrong = (tf.placeholder(tf.int32, [128]) for _ in range(4))
    things, relations = weights(tf, "things", 3000, 32), weights(tf, "relations", 20, 32)
    h, r, t, w = (tf.nn.embedding_lookup(table, ids) for table, ids in ((things, heads), (relations, links), (things, tails), (things, wrong)))
    near, far = tf.norm(h + r - t, axis=1), tf.norm(h + r - w, axis=1)
    loss = tf.reduce_mean(tf.maximum(0.0, 1.0 + near - far))
    feeds = {heads: ints(3000, 128), links: ints(20, 128), tails: ints(3000, 128, seed=1), wrong: ints(3000, 128, seed=2)}
    return run(tf, [loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)], feeds)


@program("support vectors, hinge loss")
def hinge(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.float32, [None, 1])
    w = weights(tf, "w", 64, 1)
    loss = tf.reduce_mean(tf.nn.relu(1.0 - y * (tf.matmul(x, w) + zeros(tf, "b", 1)))) + 1e-3 * tf.nn.l2_loss(w)
    return run(tf, [loss, tf.train.FtrlOptimizer(0.1).minimize(loss)], {x: data(100, 64), y: 2.0 * ints(2, 100, 1).astype("f") - 1.0})


@program("time series, dilated causal convolutions")
def causal(tf: Any) -> Step:
    x = tf.placeholder(tf.float32, [8, 64, 1])
    h = x
    for i, rate in enumerate((1, 2, 4, 8)):
        padded = tf.pad(h, [[0, 0], [rate, 0], [0, 0]])
        w = weights(tf, f"w{i}", 2, int(h.shape[2]), 16)
        h = tf.nn.relu(tf.tensordot(padded[:, :-rate], w[0], 1) + tf.tensordot(padded[:, rate:], w[1], 1)) + (h if i else 0.0)
    y = dense(tf, tf.reshape(h, [-1, 16]), 1, "out")
    loss = tf.reduce_mean(tf.square(tf.reshape(y, [8, 64])[:, :-1] - x[:, 1:, 0]))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: data(8, 64, 1)})


@program("several sessions' worth of fetches")
def many_fetches(tf: Any) -> Step:
    """A dictionary of fifty fetched tensors of several types, as summaries and hooks ask for."""
    x = tf.placeholder(tf.float32, [16, 16])
    fetches: dict[str, Any] = {}
    for i in range(10):
        y = x * float(i + 1)
        fetches.update({f"mean{i}": tf.reduce_mean(y), f"max{i}": tf.reduce_max(y), f"any{i}": tf.reduce_any(y > 3.0), f"norm{i}": tf.norm(y), f"best{i}": tf.argmax(y, 1)})
    sess, feeds = session(tf), {x: data(16, 16)}
    return lambda: sess.run(fetches, feeds)
