"""`tf.train`'s part about training itself: optimizers, the global step, learning rates, moving averages."""
