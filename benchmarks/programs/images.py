"""Programs on images: small convolutional networks, augmentation, losses on features, capsules."""

from __future__ import annotations

from typing import Any

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
    uniform,
    weights,
    zeros,
)


@program("image augmentation")
def augmentation(tf: Any) -> Step:
    image = tf.placeholder(tf.uint8, [40, 40, 3])
    x = tf.random_crop(image, [32, 32, 3], seed=1)
    x = tf.image.random_flip_left_right(x, seed=2)
    x = tf.image.convert_image_dtype(x, tf.float32)
    x = tf.image.random_brightness(x, 0.2, seed=3)
    x = tf.image.random_contrast(x, 0.8, 1.2, seed=4)
    return run(tf, tf.image.per_image_standardization(x), {image: ints(256, 40, 40, 3).astype("uint8")})


@program("image resizing, batch 16")
def resizing(tf: Any) -> Step:
    images = tf.placeholder(tf.uint8, [None, None, None, 3])
    x = tf.image.resize_bilinear(tf.cast(images, tf.float32), [64, 64])
    x = tf.image.adjust_saturation(tf.clip_by_value(x / 255.0, 0.0, 1.0), 1.2)
    return run(tf, (x - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225], {images: ints(256, 16, 80, 90, 3).astype("uint8")})


@program("Gram matrices of style")
def gram(tf: Any) -> Step:
    """The image itself is trained towards the Gram matrices of a style."""
    image = tf.get_variable("image", initializer=uniform(1, 48, 48, 3))
    style = tf.placeholder(tf.float32, [1, 48, 48, 3])

    def features(x: Any) -> list:
        with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
            one = conv(tf, x, 16, "one", activation=tf.nn.relu)
            two = conv(tf, one, 32, "two", stride=2, activation=tf.nn.relu)
        return [one, two]

    def matrix(f: Any) -> Any:
        flat = tf.reshape(f, [-1, int(f.shape[3])])
        return tf.matmul(flat, flat, transpose_a=True) / tf.cast(tf.size(flat), tf.float32)

    parts = [tf.nn.l2_loss(matrix(a) - matrix(b)) for a, b in zip(features(image), features(style))]
    loss = tf.add_n(parts) + 1e-3 * tf.reduce_sum(tf.image.total_variation(image))
    return run(tf, [loss, tf.train.AdamOptimizer(0.01).minimize(loss, var_list=[image])], {style: uniform(1, 48, 48, 3, seed=1)})


@program("perceptual loss")
def perceptual(tf: Any) -> Step:
    x, target = tf.placeholder(tf.float32, [4, 32, 32, 3]), tf.placeholder(tf.float32, [4, 32, 32, 3])
    with tf.variable_scope("maker"):
        made = conv(tf, conv(tf, x, 16, "one", activation=tf.nn.relu), 3, "two", activation=tf.nn.sigmoid)

    def features(x: Any) -> Any:
        with tf.variable_scope("judge", reuse=tf.AUTO_REUSE):
            h = tf.nn.max_pool(conv(tf, x, 16, "one", activation=tf.nn.relu), [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
            return conv(tf, h, 32, "two", activation=tf.nn.relu)

    loss = tf.reduce_mean(tf.square(features(made) - features(target))) + 0.1 * tf.reduce_mean(tf.abs(made - target))
    train = tf.train.AdamOptimizer(1e-3).minimize(loss, var_list=tf.trainable_variables("maker"))
    return run(tf, [loss, train], {x: uniform(4, 32, 32, 3), target: uniform(4, 32, 32, 3, seed=1)})


@program("U-Net, small")
def unet(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [2, 32, 32, 1]), tf.placeholder(tf.int32, [2, 32, 32])
    kept, h = [], x
    for i, channels in enumerate((8, 16)):
        h = conv(tf, h, channels, f"down{i}", activation=tf.nn.relu)
        kept.append(h)
        h = tf.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    h = conv(tf, h, 32, "bottom", activation=tf.nn.relu)
    for i, side in reversed(list(enumerate(kept))):
        shape = [2, int(side.shape[1]), int(side.shape[2]), int(side.shape[3])]
        up = tf.nn.conv2d_transpose(h, weights(tf, f"up{i}", 2, 2, shape[3], int(h.shape[3])), shape, [1, 2, 2, 1])
        h = conv(tf, tf.concat([up, side], 3), shape[3], f"join{i}", activation=tf.nn.relu)
    loss = cross_entropy(tf, y, conv(tf, h, 2, "out", size=1))
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {x: data(2, 32, 32, 1), y: ints(2, 2, 32, 32)})


@program("depthwise separable CNN")
def separable(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [8, 32, 32, 3]), tf.placeholder(tf.int32, [8])
    h = conv(tf, x, 16, "in", stride=2, activation=tf.nn.relu)
    for i, channels in enumerate((32, 64)):
        deep = tf.nn.depthwise_conv2d(h, weights(tf, f"depth{i}", 3, 3, int(h.shape[3]), 1), [1, 1, 1, 1], "SAME")
        h = conv(tf, tf.nn.relu6(deep), channels, f"point{i}", size=1, activation=tf.nn.relu6)
    loss = cross_entropy(tf, y, dense(tf, tf.reduce_mean(h, [1, 2]), 10, "out"))
    return run(tf, [loss, tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)], {x: data(8, 32, 32, 3), y: ints(10, 8)})


@program("batch-norm CNN")
def batch_norm(tf: Any) -> Step:
    x, y = tf.placeholder(tf.float32, [16, 24, 24, 3]), tf.placeholder(tf.int32, [16])
    h, updates = x, []
    for i, channels in enumerate((16, 32)):
        h = tf.nn.conv2d(h, weights(tf, f"kernel{i}", 3, 3, int(h.shape[3]), channels), strides=[1, 2, 2, 1], padding="SAME")
        h, mean, variance = tf.nn.fused_batch_norm(h, ones(tf, f"scale{i}", channels), zeros(tf, f"offset{i}", channels))
        for name, value in (("mean", mean), ("variance", variance)):
            moving = tf.get_variable(f"{name}{i}", [channels], initializer=tf.zeros_initializer(), trainable=False)
            updates.append(moving.assign_sub(0.01 * (moving - value)))
        h = tf.nn.relu(h)
    loss = cross_entropy(tf, y, dense(tf, tf.reshape(h, [16, 6 * 6 * 32]), 10, "out"))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    return run(tf, [loss, train, *[u.op for u in updates]], {x: data(16, 24, 24, 3), y: ints(10, 16)})


@program("1-D CNN on text")
def text_cnn(tf: Any) -> Step:
    words, y = tf.placeholder(tf.int32, [32, 40]), tf.placeholder(tf.int32, [32])
    x = tf.nn.embedding_lookup(weights(tf, "table", 2000, 32), words)
    pooled = []
    for size in (3, 4, 5):
        h = tf.nn.relu(tf.nn.conv1d(x, weights(tf, f"kernel{size}", size, 32, 32), 1, "VALID") + zeros(tf, f"bias{size}", 32))
        pooled.append(tf.reduce_max(h, 1))
    logits = dense(tf, tf.nn.dropout(tf.concat(pooled, 1), rate=0.5, seed=1), 2, "out")
    loss = cross_entropy(tf, y, logits)
    return run(tf, [loss, tf.train.AdamOptimizer(1e-3).minimize(loss)], {words: ints(2000, 32, 40), y: ints(2, 32)})


@program("LeNet, batch 1")
def lenet(tf: Any) -> Step:
    x = tf.placeholder(tf.float32, [None, 28, 28, 1])
    h = x
    for i, channels in enumerate((6, 16)):
        h = tf.nn.max_pool(conv(tf, h, channels, f"conv{i}", size=5, activation=tf.nn.tanh), [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    h = dense(tf, tf.reshape(h, [-1, 7 * 7 * 16]), 84, "dense", tf.nn.tanh)
    return run(tf, tf.nn.softmax(dense(tf, h, 10, "out")), {x: data(1, 28, 28, 1)})


@program("capsules, routing loop", is_loop=True)
def capsules(tf: Any) -> Step:
    """64 lower capsules of 8 numbers, 10 upper ones of 16, three rounds of routing."""
    x = tf.placeholder(tf.float32, [8, 64, 8])
    votes = tf.einsum("bip,ipjq->bijq", x, weights(tf, "votes", 64, 8, 10, 16))

    def squash(s: Any) -> Any:
        size = tf.reduce_sum(tf.square(s), -1, keepdims=True)
        return s * size / (1.0 + size) / tf.sqrt(size + 1e-9)

    def body(i: Any, logits: Any, _: Any) -> Any:
        share = tf.nn.softmax(logits, axis=2)
        v = squash(tf.reduce_sum(tf.expand_dims(share, 3) * votes, 1))
        return i + 1, logits + tf.reduce_sum(votes * tf.expand_dims(v, 1), 3), v

    _, _, v = tf.while_loop(lambda i, *_: i < 3, body, [tf.constant(0), tf.zeros([8, 64, 10]), tf.zeros([8, 10, 16])])
    return run(tf, tf.sqrt(tf.reduce_sum(tf.square(v), 2)), {x: data(8, 64, 8)})
