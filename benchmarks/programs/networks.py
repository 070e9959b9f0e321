"""Feed-forward networks and what trains them: generative models, normalisation, gates, experts, clipping, averages, schedules."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.programs.common import (
    Step,
    cross_entropy,
    data,
    dense,
    in_turn,
    ints,
    ones,
    program,
    run,
    session,
    uniform,
    weights,
    zeros,
)


@program("autoencoder")
def autoencoder(tf: Any) -> Step:
    x = h = tf.placeholder(tf.float32, [None, 256])
    for i, units in enumerate((128, 32, 128)):
        h = dense(tf, h, units, f"layer{i}", tf.nn.sigmoid)
    loss = tf.reduce_mean(tf.square(dense(tf, h, 256, "out", tf.nn.sigmoid) - x))
    return run(tf, [loss, tf.train.RMSPropOptimizer(0.01).minimize(loss)], {x: uniform(64, 256)})


@program("variational autoencoder")
def vae(tf: Any) -> Step:
    x = tf.placeholder(tf.float32, [64, 256])
    h = dense(tf, x, 128, "encoder", tf.nn.softplus)
    mean, log_variance = dense(tf, h, 16, "mean"), dense(tf, h, 16, "variance")
    z = mean + tf.exp(0.5 * log_variance) * tf.random_normal([64, 16], seed=1)
    logits = dense(tf, dense(tf, z, 128, "decoder", tf.nn.softplus), 256, "out")
    likelihood = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=logits), 1)
    divergence = -0.5 * tf.reduce_sum(1 + log_variance - tf.square(mean) - tf.exp(log_variance), 1)
    loss = tf.reduce_mean(likelihood + divergence)
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: uniform(64, 256)})


@program("GAN step")
def gan(tf: Any) -> Step:
    real, noise = tf.placeholder(tf.float32, [64, 128]), tf.placeholder(tf.float32, [64, 32])
    with tf.variable_scope("maker"):
        fake = dense(tf, dense(tf, noise, 64, "one", tf.nn.relu), 128, "two", tf.nn.tanh)

    def judge(x: Any) -> Any:
        with tf.variable_scope("judge", reuse=tf.AUTO_REUSE):
            return dense(tf, dense(tf, x, 64, "one", tf.nn.leaky_relu), 1, "two")

    def loss(logits: Any, label: float) -> Any:
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label * tf.ones_like(logits), logits=logits))

    said = judge(fake)
    judged, made = loss(judge(real), 0.9) + loss(said, 0.0), loss(said, 1.0)
    trains = [
        tf.train.AdamOptimizer(2e-4, beta1=0.5).minimize(what, var_list=tf.trainable_variables(scope))
        for what, scope in ((judged, "judge"), (made, "maker"))
    ]
    sess = session(tf)
    feeds = {real: data(64, 128), noise: data(64, 32, seed=1)}

    def step() -> Any:
        first, _ = sess.run([judged, trains[0]], feeds)
        return first, sess.run([made, trains[1]], feeds)[0]

    return step


def _highway(tf: Any, batch: int) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
    h = dense(tf, x, 50, "in", tf.nn.relu)
    for i in range(10):
        gate = dense(tf, h, 50, f"gate{i}", tf.nn.sigmoid)
        h = dense(tf, h, 50, f"layer{i}", tf.nn.relu) * gate + h * (1.0 - gate)
    loss = cross_entropy(tf, y, dense(tf, h, 10, "out"))
    return run(tf, [loss, tf.train.GradientDescentOptimizer(0.01).minimize(loss)], {x: data(batch, 64), y: ints(10, batch)})


@program("highway network, batch 32")
def highway(tf: Any) -> Step:
    return _highway(tf, 32)


@program("highway network, batch 1")
def highway_one(tf: Any) -> Step:
    return _highway(tf, 1)


@program("maxout network")
def maxout(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 128]), tf.placeholder(tf.int32, [None])
    h = x
    for i in range(2):
        h = tf.reduce_max(tf.reshape(dense(tf, h, 64 * 4, f"layer{i}"), [-1, 64, 4]), 2)
    loss = cross_entropy(tf, y, dense(tf, h, 10, "out"))
    return run(tf, [loss, tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)], {x: data(64, 128), y: ints(10, 64)})


@program("layer-norm MLP")
def layer_norm(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 128]), tf.placeholder(tf.int32, [None])
    h = x
    for i in range(3):
        h = dense(tf, h, 128, f"layer{i}")
        mean, variance = tf.nn.moments(h, [1], keepdims=True)
        h = tf.nn.relu(tf.nn.batch_normalization(h, mean, variance, zeros(tf, f"beta{i}", 128), ones(tf, f"gamma{i}", 128), 1e-6))
    loss = cross_entropy(tf, y, dense(tf, h, 10, "out"))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: data(32, 128), y: ints(10, 32)})


@program("mixture of experts, tf.cond")
def experts_cond(tf: Any) -> Step:
    """One expert a step, chosen by the gate's sum over the batch."""
    x = tf.placeholder(tf.float32, [16, 32])
    gate = tf.reduce_mean(tf.nn.softmax(dense(tf, x, 4, "gate")), 0)
    layers = [(weights(tf, f"expert{i}", 32, 32), zeros(tf, f"bias{i}", 32)) for i in range(4)]
    y = x
    for i, (w, b) in enumerate(layers):
        y = tf.cond(gate[i] > 0.25, lambda y=y, w=w, b=b: tf.nn.relu(tf.matmul(y, w) + b), lambda y=y: y)
    return run(tf, [y, tf.argmax(gate)], {x: data(16, 32)})


@program("mixture of experts, gather")
def experts_gather(tf: Any) -> Step:
    """Each row goes through its own best expert, and all are trained."""
    x, target = tf.placeholder(tf.float32, [64, 32]), tf.placeholder(tf.float32, [64, 32])
    gate = tf.nn.softmax(dense(tf, x, 8, "gate"))
    chosen = tf.argmax(gate, 1)
    outputs = []
    for i in range(8):
        rows = tf.where(tf.equal(chosen, i))[:, 0]
        h = tf.nn.relu(tf.matmul(tf.gather(x, rows), weights(tf, f"expert{i}", 32, 32)))
        outputs.append(tf.scatter_nd(tf.expand_dims(rows, 1), h, tf.constant([64, 32], tf.int64)))
    y = tf.add_n(outputs) * tf.reduce_max(gate, 1, keepdims=True)
    loss = tf.reduce_mean(tf.square(y - target))
    return run(tf, [loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)], {x: data(64, 32), target: data(64, 32, seed=1)})


@program("dropout MLP")
def dropout(tf: Any) -> Step:
    x, y, keep = tf.placeholder(tf.float32, [None, 256]), tf.placeholder(tf.int32, [None]), tf.placeholder_with_default(0.5, [])
    h = x
    for i in range(2):
        h = tf.nn.dropout(dense(tf, h, 256, f"layer{i}", tf.nn.relu), rate=1.0 - keep, seed=i)
    loss = cross_entropy(tf, y, dense(tf, h, 10, "out"))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: data(64, 256), y: ints(10, 64)})


@program("clipping by global norm")
def clipping(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 128]), tf.placeholder(tf.int32, [None])
    h = x
    for i in range(4):
        h = dense(tf, h, 128, f"layer{i}", tf.nn.tanh)
    loss = cross_entropy(tf, y, dense(tf, h, 10, "out"))
    params = tf.trainable_variables()
    grads, norm = tf.clip_by_global_norm(tf.gradients(loss, params), 0.5)
    train = tf.train.MomentumOptimizer(0.1, 0.9).apply_gradients(zip(grads, params))
    return run(tf, [loss, norm, train], {x: data(32, 128), y: ints(10, 32)})


@program("exponential moving averages")
def averages(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
    h = x
    for i in range(3):
        h = dense(tf, h, 64, f"layer{i}", tf.nn.elu)
    loss = cross_entropy(tf, y, dense(tf, h, 10, "out"))
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    with tf.control_dependencies([train]):
        update = tf.train.ExponentialMovingAverage(0.99, step).apply(tf.trainable_variables())
    return run(tf, [loss, update], {x: data(32, 64), y: ints(10, 32)})


@program("learning-rate schedule")
def schedule(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.float32, [None, 1])
    loss = tf.reduce_mean(tf.square(dense(tf, dense(tf, x, 32, "hidden", tf.nn.relu), 1, "out") - y))
    step = tf.train.get_or_create_global_step()
    decayed = tf.train.exponential_decay(0.1, step, 100, 0.9, staircase=True)
    pieces = tf.train.piecewise_constant(step, [1000, 5000], [1.0, 0.5, 0.1])
    rate = decayed * pieces * tf.train.cosine_decay(1.0, step, 100_000)
    train = tf.train.GradientDescentOptimizer(rate).minimize(loss, global_step=step)
    return run(tf, [loss, train], {x: data(32, 64), y: data(32, 1, seed=1)})


@program("batch sizes that change")
def changing_batches(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
    h = dense(tf, dense(tf, x, 64, "one", tf.nn.relu), 64, "two", tf.nn.relu)
    loss = cross_entropy(tf, y, dense(tf, h, 10, "out"))
    train = tf.train.AdamOptimizer(1e-3).minimize(loss)
    return in_turn(tf, [loss, train], [{x: data(n, 64), y: ints(10, n)} for n in np.random.RandomState(0).randint(1, 65, 50)])


@program("evaluation every 10 steps")
def evaluation(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
    logits = dense(tf, dense(tf, x, 64, "one", tf.nn.relu), 10, "out")
    loss = cross_entropy(tf, y, logits)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
    best = tf.reduce_mean(tf.cast(tf.nn.in_top_k(logits, y, 3), tf.float32))
    sess = session(tf)
    feeds = {x: data(32, 64), y: ints(10, 32)}
    seen = {x: data(200, 64, seed=1), y: ints(10, 200, seed=1)}

    def step() -> Any:
        for _ in range(10):
            sess.run(train, feeds)
        return sess.run([loss, accuracy, best], seen)

    return step


@program("two towers, cosine, triplet loss")
def triplets(tf: Any) -> Step:
    places = [tf.placeholder(tf.float32, [None, 64]) for _ in range(3)]

    def tower(x: Any) -> Any:
        with tf.variable_scope("tower", reuse=tf.AUTO_REUSE):
            return tf.nn.l2_normalize(dense(tf, dense(tf, x, 64, "one", tf.nn.relu), 32, "two"), 1)

    anchor, near, far = (tower(p) for p in places)
    loss = tf.reduce_mean(tf.nn.relu(0.2 + tf.reduce_sum(anchor * far, 1) - tf.reduce_sum(anchor * near, 1)))
    train = tf.train.AdamOptimizer(1e-3).minimize(loss)
    return run(tf, [loss, train], {p: data(32, 64, seed=i) for i, p in enumerate(places)})
