"""Whole programs for `benchmarks/survey.py`: one file a field, each program `name(tf) -> step()`, written against TF1's API only."""
