"""tf.nn: activations, losses, convolutions, pooling, normalisation, embeddings, sampled losses.

Functions are composed of raw ops; node names follow TensorFlow's, so that tensors can be fetched by the names that
programs expect.
"""
