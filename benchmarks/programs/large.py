"""Programs whose steps take milliseconds: what counts is how kernels use memory and all cores, not what a step costs besides."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.programs.common import (
    Gru,
    Step,
    conv,
    cross_entropy,
    data,
    dense,
    ints,
    ones,
    program,
    run,
    uniform,
    weights,
    zeros,
)


def _norm(tf: Any, x: Any, name: str) -> Any:
    width = int(x.shape[-1])
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, zeros(tf, f"{name}/beta", width), ones(tf, f"{name}/gamma", width), 1e-6)


def _encoder(tf: Any, x: Any, batch: int, length: int, width: int, heads: int, name: str) -> Any:
    """A transformer's block behind its norms, on (batch * length, width)."""
    q, k, v = (
        tf.transpose(tf.reshape(dense(tf, x, width, f"{name}/{part}"), [batch, length, heads, width // heads]), [0, 2, 1, 3]) for part in "qkv"
    )
    share = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * float(heads / width) ** 0.5)
    mixed = tf.reshape(tf.transpose(tf.matmul(share, v), [0, 2, 1, 3]), [batch * length, width])
    x = _norm(tf, x + dense(tf, mixed, width, f"{name}/joined"), f"{name}/first")
    h = dense(tf, x, 4 * width, f"{name}/wide")
    h = 0.5 * h * (1.0 + tf.erf(h / np.sqrt(2.0).astype("f")))
    return _norm(tf, x + dense(tf, h, width, f"{name}/narrow"), f"{name}/second")


@program("BERT-like, two layers of 512, forward")
def bert(tf: Any) -> Step:
    words = tf.placeholder(tf.int32, [1, 128])
    x = tf.reshape(tf.nn.embedding_lookup(weights(tf, "words", 8000, 512), words) + weights(tf, "places", 128, 512), [128, 512])
    x = _norm(tf, x, "norm")
    for i in range(2):
        x = _encoder(tf, x, 1, 128, 512, 8, f"layer{i}")
    return run(tf, tf.tanh(dense(tf, x[:1], 512, "pooled")), {words: ints(8000, 1, 128)})


@program("transformer, one layer of 256, training")
def transformer_training(tf: Any) -> Step:
    words, target = tf.placeholder(tf.int32, [8, 64]), tf.placeholder(tf.int32, [512])
    x = tf.reshape(tf.nn.embedding_lookup(weights(tf, "words", 4000, 256), words) + weights(tf, "places", 64, 256), [512, 256])
    x = _encoder(tf, x, 8, 64, 256, 4, "layer")
    loss = cross_entropy(tf, target, dense(tf, x, 4000, "out"))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {words: ints(4000, 8, 64), target: ints(4000, 512)})


@program("wide MLP, training")
def wide(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int32, [None])
    h = x
    for i in range(3):
        h = dense(tf, h, 1024, f"layer{i}", tf.nn.relu)
    loss = cross_entropy(tf, y, dense(tf, h, 10, "out"))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: data(256, 784), y: ints(10, 256)})


@program("LSTM of 512, 20 steps, training")
def lstm(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [32, 20, 128]), tf.placeholder(tf.int32, [32])
    kernel, bias = weights(tf, "kernel", 640, 2048), zeros(tf, "bias", 2048)
    h = c = tf.zeros([32, 512])
    for step in tf.unstack(x, axis=1):
        i, j, f, o = tf.split(tf.matmul(tf.concat([step, h], 1), kernel) + bias, 4, axis=1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
    loss = cross_entropy(tf, y, dense(tf, h, 10, "out"))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: data(32, 20, 128), y: ints(10, 32)})


@program("GRU of 256 over 50 steps, dynamic_rnn, forward", is_loop=True)
def gru(tf: Any) -> Step:
    x = tf.placeholder(tf.float32, [16, 50, 64])
    outputs, _ = tf.nn.dynamic_rnn(Gru(tf, 64, 256), x, dtype=tf.float32)
    return run(tf, tf.reduce_mean(outputs, 1), {x: data(16, 50, 64)})


@program("softmax over 20,000 words, training")
def large_softmax(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [64, 128]), tf.placeholder(tf.int32, [64])
    loss = cross_entropy(tf, y, dense(tf, x, 20_000, "out"))
    return run(tf, [loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)], {x: data(64, 128), y: ints(20_000, 64)})


@program("residual CNN with batch norm, batch 16, training")
def residual(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [16, 32, 32, 3]), tf.placeholder(tf.int32, [16])

    def normed(h: Any, name: str) -> Any:
        channels = int(h.shape[3])
        return tf.nn.fused_batch_norm(h, ones(tf, f"{name}/scale", channels), zeros(tf, f"{name}/offset", channels), is_training=True)[0]

    h = conv(tf, x, 32, "stem")
    for i, (channels, stride) in enumerate([(32, 1), (64, 2), (64, 2)]):
        inner = conv(tf, tf.nn.relu(normed(h, f"n{i}")), channels, f"a{i}", stride=stride)
        inner = conv(tf, tf.nn.relu(normed(inner, f"m{i}")), channels, f"b{i}")
        h = inner + (h if int(h.shape[3]) == channels and stride == 1 else conv(tf, h, channels, f"s{i}", size=1, stride=stride))
    loss = cross_entropy(tf, y, dense(tf, tf.reduce_mean(tf.nn.relu(normed(h, "last")), [1, 2]), 10, "out"))
    return run(tf, [loss, tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)], {x: data(16, 32, 32, 3), y: ints(10, 16)})


@program("U-Net, 96 x 96, forward")
def unet(tf: Any) -> Step:
    x = tf.placeholder(tf.float32, [1, 96, 96, 3])
    one = conv(tf, conv(tf, x, 16, "a", activation=tf.nn.relu), 16, "b", activation=tf.nn.relu)
    two = conv(tf, tf.nn.max_pool(one, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"), 32, "c", activation=tf.nn.relu)
    low = conv(tf, tf.nn.max_pool(two, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"), 64, "d", activation=tf.nn.relu)
    up = tf.nn.conv2d_transpose(low, weights(tf, "e", 2, 2, 32, 64), [1, 48, 48, 32], [1, 2, 2, 1])
    up = conv(tf, tf.concat([up, two], 3), 32, "f", activation=tf.nn.relu)
    up = tf.nn.conv2d_transpose(up, weights(tf, "g", 2, 2, 16, 32), [1, 96, 96, 16], [1, 2, 2, 1])
    return run(tf, tf.nn.sigmoid(conv(tf, tf.concat([up, one], 3), 1, "h")), {x: uniform(1, 96, 96, 3)})


@program("statistics of a large table")
def statistics(tf: Any) -> Step:
    """Means, deviations, extremes, correlations and a histogram of 200,000 rows."""
    x = tf.placeholder(tf.float32, [200_000, 16])
    mean, variance = tf.nn.moments(x, [0])
    scaled = (x - mean) * tf.rsqrt(variance)
    shares = tf.histogram_fixed_width(x, [-3.0, 3.0], 60)
    return run(tf, [mean, variance, tf.reduce_max(x, 0), tf.reduce_min(x, 0), tf.matmul(scaled, scaled, transpose_a=True) / 200_000.0, shares], {x: data(200_000, 16)})


@program("ranking a million scores")
def ranking(tf: Any) -> Step:
    scores = tf.placeholder(tf.float32, [1_000_000])
    best = tf.nn.top_k(scores, 100)
    return run(tf, [best.values, best.indices, tf.reduce_sum(tf.cast(scores > 0.5, tf.int32)), tf.cumsum(scores)[-1]], {scores: data(1_000_000)})


@program("solving 500 equations in doubles")
def equations(tf: Any) -> Step:
    a, b = tf.placeholder(tf.float64, [500, 500]), tf.placeholder(tf.float64, [500, 8])
    x = tf.matrix_solve(a, b)
    return run(tf, [x, tf.norm(tf.matmul(a, x) - b)], {a: data(500, 500).astype("d"), b: data(500, 8, seed=1).astype("d")})


@program("attention over a long text, forward")
def long_attention(tf: Any) -> Step:
    q, k, v = (tf.placeholder(tf.float32, [4, 512, 64]) for _ in range(3))
    mask = tf.matrix_band_part(tf.ones([512, 512]), -1, 0)
    scores = tf.matmul(q, k, transpose_b=True) * 0.125 + (mask - 1.0) * 1e9
    return run(tf, tf.matmul(tf.nn.softmax(scores), v), {q: data(4, 512, 64), k: data(4, 512, 64, seed=1), v: data(4, 512, 64, seed=2)})


@program("a batch of pictures made ready")
def preparation(tf: Any) -> Step:
    """Bytes to normalised floats: crop, flip, transpose to channels first."""
    x = tf.placeholder(tf.uint8, [16, 128, 128, 3])
    y = tf.cast(x[:, 8:120, 8:120], tf.float32) / 255.0
    y = tf.where(tf.random_uniform([16], seed=1) < 0.5, y, tf.reverse(y, [2]))
    y = (y - tf.constant([0.485, 0.456, 0.406])) / tf.constant([0.229, 0.224, 0.225])
    return run(tf, tf.transpose(y, [0, 3, 1, 2]), {x: ints(256, 16, 128, 128, 3).astype("uint8")})


@program("embedding of 200,000 words, Adagrad")
def large_embedding(tf: Any) -> Step:
    words, y = tf.placeholder(tf.int32, [512, 20]), tf.placeholder(tf.float32, [512, 1])
    found = tf.reduce_mean(tf.nn.embedding_lookup(weights(tf, "table", 200_000, 64), words), 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=dense(tf, found, 1, "out")))
    return run(tf, [loss, tf.train.AdagradOptimizer(0.1).minimize(loss)], {words: ints(200_000, 512, 20), y: ints(2, 512, 1).astype("f")})


@program("waves, complex numbers")
def waves(tf: Any) -> Step:
    """A discrete Fourier transform by products, and a spectrum's power."""
    x = tf.placeholder(tf.float32, [64, 256])
    turns = np.exp(-2j * np.pi * np.outer(np.arange(256), np.arange(256)) / 256).astype(np.complex64)
    spectrum = tf.matmul(tf.cast(x, tf.complex64), tf.constant(turns))
    power = tf.square(tf.abs(spectrum))
    return run(tf, [tf.log(power[:, :129] + 1e-6), tf.angle(spectrum)[:, 1]], {x: data(64, 256)})


@program("bfloat16 MLP, forward")
def half_mlp(tf: Any) -> Step:
    x = tf.placeholder(tf.float32, [128, 512])
    h = tf.cast(x, tf.bfloat16)
    for i in range(3):
        h = tf.nn.relu(tf.matmul(h, tf.cast(weights(tf, f"w{i}", 512, 512), tf.bfloat16)) + tf.cast(zeros(tf, f"b{i}", 512), tf.bfloat16))
    return run(tf, tf.cast(h, tf.float32), {x: data(128, 512)})
