"""`tf.metrics`: values that are gathered over many batches.

Each function gives `(value, update_op)` and makes local variables (collections LOCAL_VARIABLES and METRIC_VARIABLES). Run
`update_op` for each batch, `value` for the result so far, and `tf.local_variables_initializer()` first.
"""
