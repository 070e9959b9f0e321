"""Recurrent networks: `tf.nn.dynamic_rnn` and relatives run a cell over time; `tf.nn.rnn_cell` has the cells."""
