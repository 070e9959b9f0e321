"""A small convolutional network with batch normalisation and dropout, trained with momentum on synthetic images.

    python -m examples.cnn
"""

import numpy as np


def images(count, seed=0):
    """12x12 images with a bright horizontal or vertical bar or a blob, plus noise."""
    rng = np.random.RandomState(seed)
    data = rng.randn(count, 12, 12, 1) * 0.3
    labels = rng.randint(0, 3, count)
    for image, label in zip(data, labels):
        at = rng.randint(2, 9)
        if label == 0:
            image[at : at + 2, :, 0] += 1.0
        elif label == 1:
            image[:, at : at + 2, 0] += 1.0
        else:
            image[at - 1 : at + 3, at - 1 : at + 3, 0] += 1.0
    return data.astype(np.float32), labels.astype(np.int64)


def program(tf, steps=12):
    """Trains and returns the losses and the class probabilities."""
    tf.set_random_seed(3)
    data, labels = images(64)
    x = tf.placeholder(tf.float32, [None, 12, 12, 1])
    y = tf.placeholder(tf.int64, [None])
    keep = tf.placeholder_with_default(tf.constant(1.0), [], name="keep")

    def convolution(name, value, channels):
        with tf.variable_scope(name):
            w = tf.get_variable("w", [3, 3, int(value.shape[3]), channels], initializer=tf.truncated_normal_initializer(stddev=0.2))
            scale = tf.get_variable("scale", [channels], initializer=tf.ones_initializer())
            offset = tf.get_variable("offset", [channels], initializer=tf.zeros_initializer())
            value = tf.nn.conv2d(value, w, [1, 1, 1, 1], "SAME")
            value, _, _ = tf.nn.fused_batch_norm(value, scale, offset, is_training=True)
            return tf.nn.max_pool(tf.nn.relu(value), [1, 2, 2, 1], [1, 2, 2, 1], "SAME")

    value = convolution("c1", x, 8)
    value = convolution("c2", value, 16)
    flat = tf.reshape(value, [-1, 3 * 3 * 16])
    flat = tf.nn.dropout(flat, keep_prob=keep, seed=5)
    w = tf.get_variable("w", [3 * 3 * 16, 3], initializer=tf.variance_scaling_initializer())
    b = tf.get_variable("b", [3], initializer=tf.zeros_initializer())
    logits = tf.nn.xw_plus_b(flat, w, b)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    loss += 1e-3 * tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables() if v.op.name.endswith("w")])
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            value, _ = sess.run((loss, train), {x: data, y: labels, keep: 0.8})
            losses.append(value)
        return {"losses": np.array(losses), "probabilities": sess.run(tf.nn.softmax(logits), {x: data})}


if __name__ == "__main__":
    import penstock

    result = program(penstock)
    print("loss {:.3f} -> {:.3f}".format(result["losses"][0], result["losses"][-1]))
