"""An input pipeline of queues: threads fill a queue, a coordinator stops them, the consumer reads batches until the end.

    python -m examples.queue_pipeline
"""

import threading

import numpy as np


def program(tf, count=40, batch=8):
    """Returns the sum of every batch, and what the end of the queue says."""
    queue = tf.FIFOQueue(capacity=10, dtypes=[tf.float32, tf.int32], shapes=[[2], []])
    row = tf.placeholder(tf.float32, [2])
    number = tf.placeholder(tf.int32, [])
    enqueue = queue.enqueue([row, number])
    close = queue.close()
    rows, numbers = queue.dequeue_many(batch)
    total = tf.reduce_sum(rows) + tf.cast(tf.reduce_sum(numbers), tf.float32)
    sums = []
    with tf.Session() as sess:
        coordinator = tf.train.Coordinator()

        def fill():
            with coordinator.stop_on_exception():
                for i in range(count):
                    sess.run(enqueue, {row: np.array([i, 2 * i], np.float32), number: i})
                sess.run(close)

        thread = threading.Thread(target=fill)
        thread.start()
        end = ""
        try:
            while True:
                sums.append(sess.run(total))
        except tf.errors.OutOfRangeError as error:
            end = type(error).__name__
        coordinator.join([thread])
        size = sess.run(queue.size())
    return {"sums": np.array(sums), "end": end, "left": size}


if __name__ == "__main__":
    import penstock

    print(program(penstock))
