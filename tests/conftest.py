"""Tests always check what every stage must leave behind, and start from an empty default graph."""

import os

os.environ.setdefault("PENSTOCK_CHECK", "1")
if not os.environ.get("PENSTOCK_TEST_GPU"):
    # Tests say what runs where; a GPU in the machine must not join in.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["JAX_PLATFORMS"] = "cpu"

import pytest

import penstock as tf


@pytest.fixture(autouse=True)
def fresh_default_graph():
    """Each test has a default graph of its own."""
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()
