"""Word vectors by skip-gram on a toy corpus: embedding lookups with sparse updates, trained with Adagrad.

    python -m examples.embedding
"""

import numpy as np


def pairs(count=200, vocabulary=20, seed=0):
    """(centre, context) word pairs in which neighbours in number tend to stand together."""
    rng = np.random.RandomState(seed)
    centre = rng.randint(0, vocabulary, count)
    context = (centre + rng.choice([-1, 1], count)) % vocabulary
    return centre.astype(np.int32), context.astype(np.int32)


def program(tf, steps=20, vocabulary=20, size=8):
    """Trains and returns the losses and the vectors of a few words."""
    tf.set_random_seed(2)
    centre, context = pairs(vocabulary=vocabulary)
    words = tf.placeholder(tf.int32, [None])
    labels = tf.placeholder(tf.int32, [None])
    table = tf.get_variable("table", [vocabulary, size], initializer=tf.random_uniform_initializer(-1.0, 1.0))
    out = tf.get_variable("out", [vocabulary, size], initializer=tf.random_normal_initializer(stddev=0.1))
    vectors = tf.nn.embedding_lookup(table, words)
    logits = tf.matmul(vectors, out, transpose_b=True)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf.train.AdagradOptimizer(0.5).minimize(loss)
    losses = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for step in range(steps):
            part = slice(step * 10 % 200, step * 10 % 200 + 10)
            value, _ = sess.run([loss, train], {words: centre[part], labels: context[part]})
            losses.append(value)
        near = tf.nn.l2_normalize(table, 1)
        similarity = tf.matmul(near, near, transpose_b=True)
        values, _ = tf.nn.top_k(similarity[:4], k=3)
        return {"losses": np.array(losses), "top": sess.run(values), "vectors": sess.run(tf.gather(table, [0, 5, 5, 19]))}


if __name__ == "__main__":
    import penstock

    result = program(penstock, steps=400)
    print("loss {:.3f} -> {:.3f}".format(result["losses"][0], result["losses"][-1]))
