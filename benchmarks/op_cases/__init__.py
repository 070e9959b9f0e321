"""Single ops for `python -m benchmarks.op_survey`, a file for each family."""
