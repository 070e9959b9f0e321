"""Small TF1 programs. Each has `program(tf)`: the same source runs under Penstock and under tensorflow.compat.v1."""
