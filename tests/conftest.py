"""Tests always check what every stage must leave behind, and start from an empty default graph."""

import os

os.environ.setdefault("PENSTOCK_CHECK", "1")

import pytest

import penstock as tf


@pytest.fixture(autouse=True)
def fresh_default_graph():
    """Each test has a default graph of its own."""
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()
