"""A multi-head self-attention block with layer normalisation and a position-wise network, with its gradients.

    python -m examples.attention
"""

import numpy as np


def program(tf, batch=2, length=5, width=16, heads=4):
    """Returns the block's output and the gradient of its sum of squares by every weight."""
    tf.set_random_seed(13)
    rng = np.random.RandomState(1)
    data = rng.randn(batch, length, width).astype(np.float32)
    x = tf.placeholder(tf.float32, [None, length, width])

    def dense(name, value, out):
        w = tf.get_variable(name + "_w", [int(value.shape[-1]), out], initializer=tf.glorot_normal_initializer())
        b = tf.get_variable(name + "_b", [out], initializer=tf.constant_initializer(0.1))
        return tf.tensordot(value, w, [[2], [0]]) + b

    def layer_norm(name, value):
        gamma = tf.get_variable(name + "_gamma", [width], initializer=tf.ones_initializer())
        beta = tf.get_variable(name + "_beta", [width], initializer=tf.zeros_initializer())
        mean, variance = tf.nn.moments(value, [-1], keep_dims=True)
        return tf.nn.batch_normalization(value, mean, variance, beta, gamma, 1e-6)

    def split_heads(value):
        shape = tf.concat([tf.shape(value)[:2], [heads, width // heads]], 0)
        return tf.transpose(tf.reshape(value, shape), [0, 2, 1, 3])

    q, k, v = (split_heads(dense(name, x, width)) for name in ("q", "k", "v"))
    scores = tf.matmul(q, k, transpose_b=True) / np.sqrt(width // heads).astype(np.float32)
    mask = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
    weights = tf.nn.softmax(tf.where(tf.tile(mask[None, None] > 0, [batch, heads, 1, 1]), scores, tf.fill(tf.shape(scores), -1e9)))
    mixed = tf.einsum("bhqk,bhkd->bqhd", weights, v)
    mixed = tf.reshape(mixed, [-1, length, width])
    value = layer_norm("n1", x + dense("o", mixed, width))
    value = layer_norm("n2", value + dense("f2", tf.nn.relu(dense("f1", value, 4 * width)), width))
    loss = tf.reduce_sum(tf.square(value[:, 1:-1]))
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        output, grads = sess.run([value, gradients], {x: data})
    return {"output": output, "gradients": {v.op.name: g for v, g in zip(variables, grads)}}


if __name__ == "__main__":
    import penstock

    result = program(penstock)
    print("output", result["output"].shape, "and gradients of", len(result["gradients"]), "weights")
