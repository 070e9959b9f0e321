"""`tf.layers`: layers that make their own variables, as functions (`tf.layers.dense(x, 10)`) and as classes (`tf.layers.Dense(10)`).

Names and behaviour are those of TensorFlow 1.15: variables "dense/kernel" and "dense/bias", ops in the layer's name scope,
regularization losses and moving-average updates in the graph's collections. TensorFlow 2.21 has no `tf.layers` without another
package, so this folder is tested on its own.
"""
