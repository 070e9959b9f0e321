"""The same TF1 programs timed on Penstock and on TensorFlow, in alternation. `python -m benchmarks` prints ratios."""
