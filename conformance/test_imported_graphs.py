"""Graphs that TensorFlow exports run here with the same results; graphs built here run in TensorFlow.

TensorFlow's graphs come from `tf2_graphs.py`: concrete functions, frozen graphs with functional and with lowered control flow, Keras
models, TF1 graphs with calls. Gradients through them are those of TensorFlow's tape.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import penstock as tf
from conformance import tf2_export, tf2_graphs

pytestmark = pytest.mark.timeout(600)  # the first test waits until TensorFlow has exported everything

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """The folder with everything that TensorFlow exported."""
    folder = tmp_path_factory.mktemp("tf2")
    subprocess.run([sys.executable, str(HERE / "tf2_export.py"), str(folder)], check=True, capture_output=True, timeout=600)
    return folder


class Exported:
    """One exported graph, imported here."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        failed = folder / f"{name.split('.')[0]}.error"
        assert not failed.exists(), f"TensorFlow could not export {name}:\n{failed.read_text()}"
        data = np.load(folder / f"{name}.npz", allow_pickle=True)
        self.graph_def = tf.GraphDef()
        self.graph_def.ParseFromString((folder / f"{name}.pb").read_bytes())
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.import_graph_def(self.graph_def, name="")
        self.args = [data[f"arg_{i}"] for i in range(len(data["inputs"]))]
        self.values = [data[f"value_{i}"] for i in range(len(data["outputs"]))]
        self.grads = [data[k] for k in sorted(data.files) if k.startswith("grad_")]
        self.inputs = [self.graph.get_tensor_by_name(str(n)) for n in data["inputs"]]
        self.outputs = [self.graph.get_tensor_by_name(str(n)) for n in data["outputs"]]
        self.init = str(data["init"])

    def run(self, fetches, **options):
        with tf.Session(graph=self.graph, **options) as session:
            if self.init:
                session.run(self.init)
            return session.run(fetches, dict(zip(self.inputs, self.args, strict=True)))


def same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        a = tf2_export.array(a)
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype == object:
            assert a.tolist() == b.tolist()
        else:
            # Sums in another order: an error of float32's size, relative to what was summed.
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6 + 3e-5 * np.abs(b).max(initial=0))


@pytest.mark.parametrize("name", tf2_graphs.names())
def test_runs_as_in_tensorflow(exported, name):
    case = Exported(exported, name)
    for tensor, value in zip(case.outputs, case.values, strict=True):
        assert tensor.shape.is_compatible_with(value.shape)
    same(case.run(case.outputs), case.values)


@pytest.mark.parametrize("name", tf2_graphs.names())
def test_runs_without_optimiser(exported, name):
    case = Exported(exported, name)
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.opt_level = -1
    same(case.run(case.outputs, config=config), case.values)


# The gradient of a loop needs its record, which lowered graphs have lost.
WITH_GRADS = [n for n in tf2_graphs.names() if tf2_graphs.CASES[n.split(".")[0]].grads and not n.endswith(".lowered")]


@pytest.mark.parametrize("name", WITH_GRADS)
def test_gradients_as_in_tensorflow(exported, name):
    case = Exported(exported, name)
    with case.graph.as_default():
        xs = [x for x in case.inputs if x.dtype.is_floating][: len(case.grads)]
        grads = tf.gradients(tf.reduce_sum(case.outputs[0]), xs, unconnected_gradients="zero")
    same(case.run(grads), case.grads)
    same(case.run(case.outputs), case.values)


@pytest.mark.parametrize("name", tf2_graphs.names())
def test_round_trip(exported, name):
    case = Exported(exported, name)
    again = case.graph.as_graph_def()
    assert {f.signature.name for f in again.library.function} == {f.signature.name for f in case.graph_def.library.function}
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(again, name="")
    case.inputs = [graph.get_tensor_by_name(t.name) for t in case.inputs]
    case.graph = graph
    same(case.run([t.name for t in case.outputs]), case.values)
