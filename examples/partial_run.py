"""A step in pieces: fetch something, decide on it in Python, feed the rest of the same step.

    python -m examples.partial_run
"""


def program(tf):
    """Returns what each piece gave."""
    a = tf.placeholder(tf.float32, [], name="a")
    b = tf.placeholder(tf.float32, [], name="b")
    c = tf.placeholder(tf.float32, [], name="c")
    first = a + b
    second = first * c
    with tf.Session() as sess:
        handle = sess.partial_run_setup([first, second], [a, b, c])
        early = sess.partial_run(handle, first, feed_dict={a: 1.0, b: 2.0})
        late = sess.partial_run(handle, second, feed_dict={c: early * 10})
    return {"first": early, "second": late}


if __name__ == "__main__":
    import penstock

    print(program(penstock))
