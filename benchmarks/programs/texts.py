"""Programs on sequences: recurrent networks, attention, decoding, sequence losses, memories."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.arrays import Lstm
from benchmarks.programs.common import (
    Gru,
    Step,
    cross_entropy,
    data,
    dense,
    in_turn,
    ints,
    ones,
    program,
    run,
    weights,
    zeros,
)


def _gru_char_rnn(tf: Any, dynamic: bool, steps: int = 25, batch: int = 16, classes: int = 60, hidden: int = 64) -> Step:
    x, y = tf.placeholder(tf.int32, [batch, steps]), tf.placeholder(tf.int32, [batch, steps])
    cell = Gru(tf, classes, hidden)
    inputs = tf.one_hot(x, classes)
    if dynamic:
        outputs, _ = tf.nn.dynamic_rnn(cell, inputs, dtype=tf.float32)
    else:
        h, kept = cell.zero_state(batch, tf.float32), []
        for x_t in tf.unstack(inputs, axis=1):
            out, h = cell(x_t, h)
            kept.append(out)
        outputs = tf.stack(kept, 1)
    logits = dense(tf, tf.reshape(outputs, [-1, hidden]), classes, "out")
    loss = cross_entropy(tf, tf.reshape(y, [-1]), logits)
    params = tf.trainable_variables()
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, params), 5.0)
    train = tf.train.AdamOptimizer(1e-3).apply_gradients(zip(grads, params))
    return run(tf, [loss, train], {x: ints(classes, batch, steps), y: ints(classes, batch, steps, seed=1)})


@program("GRU char RNN, unrolled")
def gru_unrolled(tf: Any) -> Step:
    return _gru_char_rnn(tf, False)


@program("GRU char RNN, dynamic_rnn", is_loop=True)
def gru_dynamic(tf: Any) -> Step:
    return _gru_char_rnn(tf, True)


@program("RNN sampling, state fed back")
def sampling(tf: Any) -> Step:
    """One character a run: the state is fetched and fed again."""
    token, state = tf.placeholder(tf.int32, [1]), tf.placeholder(tf.float32, [1, 64])
    h, _ = Gru(tf, 60, 64)(tf.one_hot(token, 60), state)
    p = tf.nn.softmax(dense(tf, h, 60, "out"))
    return run(tf, [p, h], {token: ints(60, 1), state: data(1, 64)})


@program("bidirectional RNN, static")
def bidirectional_static(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [16, 12, 32]), tf.placeholder(tf.int32, [16])
    sides = []
    for name, series in (("ahead", tf.unstack(x, axis=1)), ("back", tf.unstack(x, axis=1)[::-1])):
        cell = Gru(tf, 32, 32, name)
        h = cell.zero_state(16, tf.float32)
        for x_t in series:
            _, h = cell(x_t, h)
        sides.append(h)
    loss = cross_entropy(tf, y, dense(tf, tf.concat(sides, 1), 5, "out"))
    return run(tf, [loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)], {x: data(16, 12, 32), y: ints(5, 16)})


@program("bidirectional_dynamic_rnn, lengths", is_loop=True)
def bidirectional_dynamic(tf: Any) -> Step:
    x, y, sizes = tf.placeholder(tf.float32, [16, 20, 32]), tf.placeholder(tf.int32, [16, 20]), tf.placeholder(tf.int32, [16])
    with tf.variable_scope("ahead"):
        ahead = Lstm(tf, 32, 32)
    with tf.variable_scope("back"):
        back = Lstm(tf, 32, 32)
    outputs, _ = tf.nn.bidirectional_dynamic_rnn(ahead, back, x, sequence_length=sizes, dtype=tf.float32)
    logits = dense(tf, tf.reshape(tf.concat(outputs, 2), [-1, 64]), 5, "out")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(y, [-1]), logits=logits)
    mask = tf.reshape(tf.sequence_mask(sizes, 20, tf.float32), [-1])
    loss = tf.reduce_sum(losses * mask) / tf.reduce_sum(mask)
    train = tf.train.AdamOptimizer(1e-3).minimize(loss)
    return run(tf, [loss, train], {x: data(16, 20, 32), y: ints(5, 16, 20), sizes: ints(20, 16) + 1})


@program("seq2seq with attention")
def seq2seq(tf: Any) -> Step:
    source, target = tf.placeholder(tf.int32, [16, 10]), tf.placeholder(tf.int32, [16, 8])
    table = weights(tf, "table", 500, 32)
    encoder, decoder = Gru(tf, 32, 32, "encoder"), Gru(tf, 64, 32, "decoder")
    h, memory = encoder.zero_state(16, tf.float32), []
    for x in tf.unstack(tf.nn.embedding_lookup(table, source), axis=1):
        h, _ = encoder(x, h)
        memory.append(h)
    memory = tf.stack(memory, 1)
    keys = tf.reshape(dense(tf, tf.reshape(memory, [-1, 32]), 32, "keys"), [16, 10, 32])
    v, logits = weights(tf, "v", 32), []
    query = weights(tf, "query", 32, 32)
    for x in tf.unstack(tf.nn.embedding_lookup(table, target), axis=1):
        scores = tf.reduce_sum(v * tf.tanh(keys + tf.expand_dims(tf.matmul(h, query), 1)), 2)
        context = tf.reduce_sum(tf.expand_dims(tf.nn.softmax(scores), 2) * memory, 1)
        h, _ = decoder(tf.concat([x, context], 1), h)
        logits.append(h)
    loss = cross_entropy(tf, tf.reshape(target, [-1]), dense(tf, tf.reshape(tf.stack(logits, 1), [-1, 32]), 500, "out"))
    train = tf.train.AdamOptimizer(1e-3).minimize(loss)
    return run(tf, [loss, train], {source: ints(500, 16, 10), target: ints(500, 16, 8, seed=1)})


@program("beam search, 10 steps of 5", is_loop=True)
def beam_search(tf: Any) -> Step:
    beams, classes = 5, 40
    cell, table, out = Gru(tf, 16, 32), weights(tf, "table", classes, 16), weights(tf, "out", 32, classes)
    start = tf.placeholder(tf.float32, [1, 32])

    def body(i: Any, scores: Any, state: Any, words: Any) -> Any:
        h, _ = cell(tf.gather(table, words[:, -1]), state)
        total = tf.expand_dims(scores, 1) + tf.nn.log_softmax(tf.matmul(h, out))
        best, where = tf.nn.top_k(tf.reshape(total, [-1]), beams)
        parent, word = where // classes, where % classes
        words = tf.concat([tf.gather(words, parent), tf.expand_dims(word, 1)], 1)
        return i + 1, best, tf.gather(h, parent), words

    begin = [tf.constant(0), tf.constant([0.0] + [-1e9] * (beams - 1)), tf.tile(start, [beams, 1]), tf.zeros([beams, 1], tf.int32)]
    shapes = [tf.TensorShape([]), tf.TensorShape([beams]), tf.TensorShape([beams, 32]), tf.TensorShape([beams, None])]
    _, scores, _, words = tf.while_loop(lambda i, *_: i < 10, body, begin, shape_invariants=shapes)
    return run(tf, [scores, words], {start: data(1, 32)})


@program("CRF, forward by scan", is_loop=True)
def crf(tf: Any) -> Step:
    x, tags = tf.placeholder(tf.float32, [16, 15, 20]), tf.placeholder(tf.int32, [16, 15])
    scores = tf.reshape(dense(tf, tf.reshape(x, [-1, 20]), 8, "scores"), [16, 15, 8])
    steps = weights(tf, "steps", 8, 8)
    series = tf.transpose(scores, [1, 0, 2])
    alphas = tf.scan(lambda a, s: tf.reduce_logsumexp(tf.expand_dims(a, 2) + steps, 1) + s, series[1:], initializer=series[0])
    norm = tf.reduce_logsumexp(alphas[-1], 1)
    own = tf.reduce_sum(scores * tf.one_hot(tags, 8), [1, 2])
    between = tf.reduce_sum(tf.gather_nd(steps, tf.stack([tags[:, :-1], tags[:, 1:]], 2)), 1)
    loss = tf.reduce_mean(norm - own - between)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    return run(tf, [loss, train], {x: data(16, 15, 20), tags: ints(8, 16, 15)})


@program("transformer decoder step")
def decoder_step(tf: Any) -> Step:
    """One new token: its keys and values join those kept; masked attention, feed-forward."""
    x, position = tf.placeholder(tf.float32, [1, 64]), tf.placeholder(tf.int32, [])
    kept = [tf.get_variable(n, [32, 64], initializer=tf.zeros_initializer(), trainable=False) for n in ("keys", "values")]
    updates = [tf.scatter_update(k, [position], dense(tf, x, 64, f"new{i}")) for i, k in enumerate(kept)]
    keys, values = (tf.transpose(tf.reshape(u, [32, 4, 16]), [1, 0, 2]) for u in updates)
    query = tf.transpose(tf.reshape(dense(tf, x, 64, "query"), [1, 4, 16]), [1, 0, 2])
    scores = tf.matmul(query, keys, transpose_b=True) * 0.25 + tf.where(tf.range(32) <= position, tf.zeros([32]), tf.fill([32], -1e9))
    mixed = tf.reshape(tf.transpose(tf.matmul(tf.nn.softmax(scores), values), [1, 0, 2]), [1, 64])
    h = x + dense(tf, mixed, 64, "mix")
    mean, variance = tf.nn.moments(h, [1], keepdims=True)
    h = tf.nn.batch_normalization(h, mean, variance, zeros(tf, "beta", 64), ones(tf, "gamma", 64), 1e-6)
    h = h + dense(tf, dense(tf, h, 256, "inner", tf.nn.relu), 64, "outer")
    return in_turn(tf, dense(tf, h, 100, "logits"), [{x: data(1, 64, seed=i), position: np.int32(i)} for i in range(32)])


@program("memory network, three hops")
def memory_network(tf: Any) -> Step:
    story, question, answer = tf.placeholder(tf.int32, [16, 10, 6]), tf.placeholder(tf.int32, [16, 6]), tf.placeholder(tf.int32, [16])
    tables = [weights(tf, f"table{i}", 100, 32) for i in range(4)]
    u = tf.reduce_sum(tf.nn.embedding_lookup(tables[0], question), 1)
    for i in range(3):
        m, c = (tf.reduce_sum(tf.nn.embedding_lookup(tables[j], story), 2) for j in (i, i + 1))
        p = tf.nn.softmax(tf.reduce_sum(m * tf.expand_dims(u, 1), 2))
        u = u + tf.reduce_sum(c * tf.expand_dims(p, 2), 1)
    loss = cross_entropy(tf, answer, tf.matmul(u, tables[3], transpose_b=True))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    return run(tf, [loss, train], {story: ints(100, 16, 10, 6), question: ints(100, 16, 6, seed=1), answer: ints(100, 16)})


@program("neural Turing machine step")
def turing(tf: Any) -> Step:
    """A controller that addresses a memory by content, then by a shift, four steps, trained."""
    x, target = tf.placeholder(tf.float32, [8, 4, 10]), tf.placeholder(tf.float32, [8, 10])
    memory, w = tf.fill([8, 20, 12], 0.1), tf.fill([8, 20], 0.05)
    controller, head, write = weights(tf, "controller", 22, 32), weights(tf, "head", 32, 17), weights(tf, "write", 32, 24)
    read = tf.zeros([8, 12])
    for x_t in tf.unstack(x, axis=1):
        h = tf.tanh(tf.matmul(tf.concat([x_t, read], 1), controller))
        key, beta, gate, shift = tf.split(tf.matmul(h, head), [12, 1, 1, 3], axis=1)
        cosine = tf.reduce_sum(tf.nn.l2_normalize(memory, 2) * tf.expand_dims(tf.nn.l2_normalize(key, 1), 1), 2)
        content = tf.nn.softmax(tf.nn.softplus(beta) * cosine)
        gate = tf.sigmoid(gate)
        w = gate * content + (1.0 - gate) * w
        s = tf.nn.softmax(shift)
        w = s[:, 0:1] * tf.manip.roll(w, 1, 1) + s[:, 1:2] * w + s[:, 2:3] * tf.manip.roll(w, -1, 1)
        erase, add = tf.split(tf.matmul(h, write), 2, axis=1)
        memory = memory * (1.0 - tf.expand_dims(w, 2) * tf.expand_dims(tf.sigmoid(erase), 1)) + tf.expand_dims(w, 2) * tf.expand_dims(tf.tanh(add), 1)
        read = tf.reduce_sum(tf.expand_dims(w, 2) * memory, 1)
    loss = tf.reduce_mean(tf.square(dense(tf, read, 10, "out") - target))
    train = tf.train.RMSPropOptimizer(1e-3).minimize(loss)
    return run(tf, [loss, train], {x: data(8, 4, 10), target: data(8, 10, seed=1)})


@program("LSTM language model, sampled softmax")
def language_model(tf: Any) -> Step:
    x, y = tf.placeholder(tf.int32, [16, 10]), tf.placeholder(tf.int64, [16, 10])
    cell = Lstm(tf, 32, 64)
    state, kept = cell.zero_state(16, tf.float32), []
    for x_t in tf.unstack(tf.nn.embedding_lookup(weights(tf, "table", 5000, 32), x), axis=1):
        h, state = cell(x_t, state)
        kept.append(h)
    labels = tf.reshape(y, [-1, 1])
    sampled = tf.nn.log_uniform_candidate_sampler(labels, 1, 64, True, 5000, seed=1)
    losses = tf.nn.sampled_softmax_loss(
        weights=weights(tf, "out", 5000, 64), biases=zeros(tf, "out_bias", 5000), labels=labels,
        inputs=tf.reshape(tf.stack(kept, 1), [-1, 64]), num_sampled=64, num_classes=5000, sampled_values=sampled,
    )  # fmt: skip
    loss = tf.reduce_mean(losses)
    train = tf.train.AdagradOptimizer(0.1).minimize(loss)
    return run(tf, [loss, train], {x: ints(5000, 16, 10), y: ints(5000, 16, 10, seed=1).astype(np.int64)})


@program("buckets of lengths", is_loop=True)
def buckets(tf: Any) -> Step:
    """Batches come padded to the longest of their bucket."""
    x, y = tf.placeholder(tf.int32, [None, None]), tf.placeholder(tf.int32, [None])
    sizes = tf.reduce_sum(tf.sign(x), 1)
    inputs = tf.nn.embedding_lookup(weights(tf, "table", 500, 16), x)
    _, h = tf.nn.dynamic_rnn(Gru(tf, 16, 32), inputs, sequence_length=sizes, dtype=tf.float32)
    loss = cross_entropy(tf, y, dense(tf, h, 5, "out"))
    train = tf.train.AdamOptimizer(1e-3).minimize(loss)
    return in_turn(tf, [loss, train], [{x: ints(499, 8, n, seed=n) + 1, y: ints(5, 8, seed=n)} for n in (5, 10, 20, 10, 5)])
