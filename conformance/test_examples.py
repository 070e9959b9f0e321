"""The programs in examples/ under both packages: the same source, the same results."""

import importlib
import pathlib

import numpy as np
import pytest

import penstock

tensorflow = pytest.importorskip("tensorflow")
tf1 = tensorflow.compat.v1
tf1.disable_v2_behavior()

EXAMPLES = sorted(p.stem for p in (pathlib.Path(__file__).parent.parent / "examples").glob("*.py") if p.stem != "__init__")


def run(tf, name):
    with tf.Graph().as_default():
        return importlib.import_module(f"examples.{name}").program(tf)


def compare(ours, theirs, what):
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), what
        for key in theirs:
            compare(ours[key], theirs[key], f"{what}/{key}")
    elif isinstance(theirs, str):
        assert ours == theirs, what
    else:
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, what
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4, err_msg=what)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    compare(run(penstock, name), run(tf1, name), name)
