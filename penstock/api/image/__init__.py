"""`tf.image`: images are [height, width, channels], batches of them [batch, height, width, channels]."""
