"""Programs on pictures, volumes and points: generators, detectors, upscaling, dilated and three-dimensional convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.programs.common import (
    Step,
    conv,
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


def _upwards(tf: Any, x: Any, size: int, channels: int, name: str, activation: Any = None) -> Any:
    """A transposed convolution that doubles height and width."""
    kernel = weights(tf, f"{name}/kernel", 4, 4, channels, int(x.shape[-1]))
    y = tf.nn.conv2d_transpose(x, kernel, [int(x.shape[0]), size, size, channels], [1, 2, 2, 1], padding="SAME")
    return y if activation is None else activation(y)


@program("DCGAN step")
def dcgan(tf: Any) -> Step:
    noise, real = tf.placeholder(tf.float32, [8, 32]), tf.placeholder(tf.float32, [8, 32, 32, 3])
    with tf.variable_scope("generator"):
        h = tf.reshape(dense(tf, noise, 4 * 4 * 32, "in", tf.nn.relu), [8, 4, 4, 32])
        for i, (size, channels) in enumerate(((8, 16), (16, 8))):
            h = _upwards(tf, h, size, channels, f"up{i}", tf.nn.relu)
        fake = _upwards(tf, h, 32, 3, "out", tf.tanh)

    def critic(x: Any) -> Any:
        with tf.variable_scope("critic", reuse=tf.AUTO_REUSE):
            for i, channels in enumerate((8, 16, 32)):
                x = conv(tf, x, channels, f"down{i}", stride=2, activation=tf.nn.leaky_relu)
            return dense(tf, tf.reshape(x, [8, 4 * 4 * 32]), 1, "out")

    def loss(logits: Any, label: float) -> Any:
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.fill([8, 1], label), logits=logits))

    judged = critic(fake)
    of_critic, of_generator = loss(critic(real), 1.0) + loss(judged, 0.0), loss(judged, 1.0)
    steps = [
        tf.train.AdamOptimizer(2e-4, 0.5).minimize(value, var_list=tf.trainable_variables(scope))
        for value, scope in ((of_critic, "critic"), (of_generator, "generator"))
    ]
    return run(tf, [of_critic, of_generator, *steps], {noise: data(8, 32), real: data(8, 32, 32, 3)})


@program("super-resolution, depth to space")
def super_resolution(tf: Any) -> Step:
    small, large = tf.placeholder(tf.float32, [2, 24, 24, 3]), tf.placeholder(tf.float32, [2, 48, 48, 3])
    h = conv(tf, small, 16, "one", size=5, activation=tf.tanh)
    h = conv(tf, h, 16, "two", activation=tf.tanh)
    y = tf.nn.depth_to_space(conv(tf, h, 12, "three"), 2)
    loss = tf.reduce_mean(tf.abs(y - large))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {small: uniform(2, 24, 24, 3), large: uniform(2, 48, 48, 3)})


@program("segmentation, dilated convolutions")
def dilated(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [1, 48, 48, 3]), tf.placeholder(tf.int32, [1, 48, 48])
    h = conv(tf, x, 16, "stem", activation=tf.nn.relu)
    branches = [conv(tf, h, 8, "point", size=1, activation=tf.nn.relu)]
    for rate in (2, 4, 8):
        branches.append(tf.nn.relu(tf.nn.atrous_conv2d(h, weights(tf, f"rate{rate}", 3, 3, 16, 8), rate, "SAME")))
    pooled = tf.reduce_mean(h, [1, 2], keepdims=True)
    branches.append(tf.tile(conv(tf, pooled, 8, "pooled", size=1, activation=tf.nn.relu), [1, 48, 48, 1]))
    loss = cross_entropy(tf, y, conv(tf, tf.concat(branches, 3), 5, "out", size=1))
    return run(tf, [loss, tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)], {x: data(1, 48, 48, 3), y: ints(5, 1, 48, 48)})


@program("painting in a style, forward")
def stylist(tf: Any) -> Step:
    """Instance normalisation, residual blocks, nearest-neighbour upscaling."""

    def normalised(x: Any, name: str) -> Any:
        mean, variance = tf.nn.moments(x, [1, 2], keepdims=True)
        return (x - mean) * tf.rsqrt(variance + 1e-5) * ones(tf, f"{name}/scale", int(x.shape[3])) + zeros(tf, f"{name}/shift", int(x.shape[3]))

    x = tf.placeholder(tf.float32, [1, 64, 64, 3])
    h = tf.nn.relu(normalised(conv(tf, tf.pad(x, [[0, 0], [4, 4], [4, 4], [0, 0]], mode="REFLECT"), 8, "in", size=9), "in"))
    h = tf.nn.relu(normalised(conv(tf, h, 16, "down", stride=2), "down"))
    for i in range(2):
        h = h + normalised(conv(tf, tf.nn.relu(normalised(conv(tf, h, 16, f"a{i}"), f"a{i}")), 16, f"b{i}"), f"b{i}")
    h = tf.image.resize_nearest_neighbor(h, [72, 72])
    return run(tf, tf.tanh(conv(tf, h, 3, "out", size=9)), {x: uniform(1, 64, 64, 3)})


@program("3-D CNN on volumes")
def volumes(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [2, 16, 16, 16, 1]), tf.placeholder(tf.int32, [2])
    h = x
    for i, channels in enumerate((8, 16)):
        h = tf.nn.relu(tf.nn.conv3d(h, weights(tf, f"kernel{i}", 3, 3, 3, int(h.shape[4]), channels), [1, 1, 1, 1, 1], "SAME"))
        h = tf.nn.max_pool3d(h, [1, 2, 2, 2, 1], [1, 2, 2, 2, 1], "SAME")
    loss = cross_entropy(tf, y, dense(tf, tf.reshape(h, [2, 4 * 4 * 4 * 16]), 5, "out"))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: data(2, 16, 16, 16, 1), y: ints(5, 2)})


@program("detector's last steps")
def detector(tf: Any) -> Step:
    """Boxes from anchors, the best of each class by non-maximum suppression."""
    offsets, logits = tf.placeholder(tf.float32, [400, 4]), tf.placeholder(tf.float32, [400, 6])
    anchors = tf.constant(np.concatenate([uniform(400, 2), 0.05 + 0.1 * uniform(400, 2, seed=1)], 1))
    centre = anchors[:, :2] + offsets[:, :2] * anchors[:, 2:]
    size = anchors[:, 2:] * tf.exp(0.1 * offsets[:, 2:])
    boxes = tf.concat([centre - size / 2, centre + size / 2], 1)
    scores = tf.nn.softmax(logits)
    found = []
    for i in range(1, 6):
        kept = tf.image.non_max_suppression(boxes, scores[:, i], 10, 0.5, 0.2)
        found.append(tf.concat([tf.gather(boxes, kept), tf.expand_dims(tf.gather(scores[:, i], kept), 1), tf.fill([tf.size(kept), 1], float(i))], 1))
    every = tf.concat(found, 0)
    order = tf.nn.top_k(every[:, 4], tf.minimum(20, tf.shape(every)[0])).indices
    return run(tf, tf.gather(every, order), {offsets: data(400, 4), logits: data(400, 6, seed=1)})


@program("spatial transformer")
def transformer(tf: Any) -> Step:
    """An affine map for each picture, then bilinear samples by gathers, with gradients."""
    x, y = tf.placeholder(tf.float32, [16, 28, 28, 1]), tf.placeholder(tf.int32, [16])
    flat = tf.reshape(x, [16, 784])
    theta = tf.reshape(dense(tf, dense(tf, flat, 16, "look", tf.tanh), 6, "theta"), [16, 2, 3]) + tf.constant([[[1.0, 0, 0], [0, 1, 0]]])
    line = tf.linspace(-1.0, 1.0, 28)
    across, down = tf.meshgrid(line, line)
    grid = tf.stack([tf.reshape(across, [-1]), tf.reshape(down, [-1]), tf.ones([784])])
    places = (tf.matmul(theta, tf.tile(grid[tf.newaxis], [16, 1, 1])) + 1.0) * 13.5
    px, py = places[:, 0], places[:, 1]
    x0, y0 = tf.floor(px), tf.floor(py)

    def at(column: Any, row: Any) -> Any:
        column, row = (tf.cast(tf.clip_by_value(v, 0.0, 27.0), tf.int32) for v in (column, row))
        return tf.gather(tf.reshape(flat, [-1]), row * 28 + column + 784 * tf.range(16)[:, tf.newaxis])

    dx, dy = px - x0, py - y0
    seen = (at(x0, y0) * (1 - dx) + at(x0 + 1, y0) * dx) * (1 - dy) + (at(x0, y0 + 1) * (1 - dx) + at(x0 + 1, y0 + 1) * dx) * dy
    loss = cross_entropy(tf, y, dense(tf, seen, 10, "out"))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: uniform(16, 28, 28, 1), y: ints(10, 16)})


@program("squeeze and excite, training")
def squeeze(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [4, 24, 24, 3]), tf.placeholder(tf.int32, [4])
    h = conv(tf, x, 16, "stem", activation=tf.nn.relu)
    for i in range(2):
        inner = conv(tf, h, 16, f"conv{i}", activation=tf.nn.swish)
        gate = dense(tf, dense(tf, tf.reduce_mean(inner, [1, 2]), 4, f"squeeze{i}", tf.nn.relu), 16, f"excite{i}", tf.sigmoid)
        h = h + inner * gate[:, tf.newaxis, tf.newaxis, :]
    loss = cross_entropy(tf, y, dense(tf, tf.reduce_mean(h, [1, 2]), 10, "out"))
    return run(tf, [loss, tf.train.RMSPropOptimizer(1e-3).minimize(loss)], {x: data(4, 24, 24, 3), y: ints(10, 4)})


@program("points in space, shared layers")
def points(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [8, 128, 3]), tf.placeholder(tf.int32, [8])
    h = tf.reshape(x, [8 * 128, 3])
    for i, units in enumerate((32, 64)):
        h = dense(tf, h, units, f"shared{i}", tf.nn.relu)
    whole = tf.reduce_max(tf.reshape(h, [8, 128, 64]), 1)
    loss = cross_entropy(tf, y, dense(tf, dense(tf, whole, 32, "head", tf.nn.relu), 10, "out"))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: data(8, 128, 3), y: ints(10, 8)})


@program("patches attend to each other, forward")
def patches(tf: Any) -> Step:
    """A small vision transformer's block, for inference."""
    x = tf.placeholder(tf.float32, [1, 32, 32, 3])
    cut = tf.reshape(tf.image.extract_patches(x, [1, 4, 4, 1], [1, 4, 4, 1], [1, 1, 1, 1], "VALID"), [64, 48])
    h = dense(tf, cut, 64, "embed") + weights(tf, "places", 64, 64)

    def normalised(v: Any, name: str) -> Any:
        mean, variance = tf.nn.moments(v, [1], keepdims=True)
        return tf.nn.batch_normalization(v, mean, variance, zeros(tf, f"{name}/beta", 64), ones(tf, f"{name}/gamma", 64), 1e-6)

    for i in range(2):
        n = normalised(h, f"before{i}")
        q, k, v = (tf.transpose(tf.reshape(dense(tf, n, 64, f"{part}{i}"), [64, 4, 16]), [1, 0, 2]) for part in "qkv")
        mixed = tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 4.0), v)
        h = h + dense(tf, tf.reshape(tf.transpose(mixed, [1, 0, 2]), [64, 64]), 64, f"joined{i}")
        h = h + dense(tf, dense(tf, normalised(h, f"behind{i}"), 128, f"wide{i}", tf.nn.elu), 64, f"narrow{i}")
    return run(tf, tf.argmax(dense(tf, tf.reduce_mean(h, 0, keepdims=True), 10, "out"), 1), {x: uniform(1, 32, 32, 3)})


@program("mean intersection over union, streaming")
def streaming_metrics(tf: Any) -> Step:
    labels, guesses, scores = tf.placeholder(tf.int32, [256]), tf.placeholder(tf.int32, [256]), tf.placeholder(tf.float32, [256])
    updates = [
        tf.metrics.accuracy(labels, guesses)[1], tf.metrics.mean_iou(labels, guesses, 4)[1], tf.metrics.auc(labels > 1, scores, num_thresholds=50)[1],
        tf.metrics.precision(labels > 1, guesses > 1)[1], tf.metrics.recall(labels > 1, guesses > 1)[1], tf.metrics.mean(scores)[1],
    ]  # fmt: skip
    sess = session(tf)
    feeds = {labels: ints(4, 256), guesses: ints(4, 256, seed=1), scores: uniform(256)}
    return lambda: sess.run(updates, feeds)
