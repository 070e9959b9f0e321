"""An unrolled LSTM written with basic ops, learning to add up numbers of a sequence, trained with RMSProp.

    python -m examples.lstm
"""

import numpy as np


def program(tf, steps=15, length=8, units=16):
    """Trains and returns the losses and the predictions."""
    tf.set_random_seed(11)
    rng = np.random.RandomState(4)
    data = rng.randn(32, length, 1).astype(np.float32)
    target = data.sum(axis=1)
    x = tf.placeholder(tf.float32, [None, length, 1])
    y = tf.placeholder(tf.float32, [None, 1])
    kernel = tf.get_variable("kernel", [1 + units, 4 * units], initializer=tf.glorot_uniform_initializer())
    bias = tf.get_variable("bias", [4 * units], initializer=tf.zeros_initializer())
    batch = tf.shape(x)[0]
    c = tf.zeros([batch, units])
    h = tf.zeros([batch, units])
    for step in tf.unstack(x, axis=1):
        gates = tf.nn.bias_add(tf.matmul(tf.concat([step, h], 1), kernel), bias)
        i, j, f, o = tf.split(gates, 4, axis=1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
    w = tf.get_variable("w", [units, 1], initializer=tf.random_normal_initializer(stddev=0.3))
    prediction = tf.matmul(h, w)
    loss = tf.losses.mean_squared_error(y, prediction) if hasattr(tf, "losses") else tf.reduce_mean(tf.square(prediction - y))
    optimizer = tf.train.RMSPropOptimizer(0.01)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
    train = optimizer.apply_gradients(zip(gradients, variables))
    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(steps):
            value, _, _ = sess.run([loss, norm, train], {x: data, y: target})
            losses.append(value)
        return {"losses": np.array(losses), "prediction": sess.run(prediction, {x: data})}


if __name__ == "__main__":
    import penstock

    result = program(penstock, steps=100)
    print("loss {:.3f} -> {:.3f}".format(result["losses"][0], result["losses"][-1]))
