"""Tests always check what every stage must leave behind, and start from an empty default graph."""

import os
import signal

os.environ.setdefault("PENSTOCK_CHECK", "1")
os.environ.setdefault("PENSTOCK_XLA_CACHE", "0")  # nothing comes from other runs, nor from one that runs beside this one
if not os.environ.get("PENSTOCK_TEST_GPU"):
    # Tests say what runs where; a GPU in the machine must not join in.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["JAX_PLATFORMS"] = "cpu"

import pytest

import penstock as tf

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts what runs in the background, and what that starts in turn: Ctrl-C is tested all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def fresh_default_graph():
    """Each test has a default graph of its own."""
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()
