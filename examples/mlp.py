"""A two-layer perceptron on points of two spirals, trained with Adam.

    python -m examples.mlp
"""

import numpy as np


def spirals(count, seed=0):
    """Points of two interleaved spirals, and which one each belongs to."""
    rng = np.random.RandomState(seed)
    turn = np.sqrt(rng.rand(count)) * 3.0
    label = rng.randint(0, 2, count)
    angle = turn * 2.0 + label * np.pi
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) + rng.randn(count, 2) * 0.05
    return points.astype(np.float32), label.astype(np.int32)


def program(tf, steps=60):
    """Trains and returns the losses, the accuracy and the weights."""
    tf.set_random_seed(7)
    points, labels = spirals(256)
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    y = tf.placeholder(tf.int32, [None], name="y")
    with tf.variable_scope("hidden"):
        w1 = tf.get_variable("w", [2, 32], initializer=tf.glorot_uniform_initializer())
        b1 = tf.get_variable("b", [32], initializer=tf.zeros_initializer())
        h = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w1), b1))
    with tf.variable_scope("output"):
        w2 = tf.get_variable("w", [32, 2], initializer=tf.glorot_uniform_initializer())
        b2 = tf.get_variable("b", [2], initializer=tf.zeros_initializer())
        logits = tf.matmul(h, w2) + b2
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y), tf.float32))
    train = tf.train.AdamOptimizer(0.02).minimize(loss)
    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            value, _ = sess.run([loss, train], {x: points, y: labels})
            losses.append(value)
        return {"losses": np.array(losses), "accuracy": sess.run(accuracy, {x: points, y: labels}), "w1": sess.run(w1)}


if __name__ == "__main__":
    import penstock

    result = program(penstock)
    print("loss {:.3f} -> {:.3f}, accuracy {:.1%}".format(result["losses"][0], result["losses"][-1], result["accuracy"]))
