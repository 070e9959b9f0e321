"""Newton's iteration for cube roots by tf.while_loop, and the gradient through the loop.

    python -m examples.newton
"""

import numpy as np


def program(tf):
    """Returns the roots, the number of iterations, and d root / d x."""
    x = tf.placeholder(tf.float64, [None])

    def unfinished(i, root):
        return tf.logical_and(i < 50, tf.reduce_any(tf.abs(root**3 - x) > 1e-12 * x))

    def improve(i, root):
        return i + 1, root - (root**3 - x) / (3.0 * root**2)

    count, root = tf.while_loop(unfinished, improve, [tf.constant(0), tf.ones_like(x)])
    (slope,) = tf.gradients(root, x)
    with tf.Session() as sess:
        values, steps, slopes = sess.run([root, count, slope], {x: np.array([1.0, 8.0, 27.0, 1000.0])})
    return {"roots": values, "steps": steps, "slopes": slopes}


if __name__ == "__main__":
    import penstock

    print(program(penstock))
