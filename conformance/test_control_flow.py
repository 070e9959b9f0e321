"""Branches, loops, TensorArrays and what is built of them: the same programs under TensorFlow and Penstock.

Values, gradients and error classes must agree. Where nothing but control flow is in the graph, names and wiring must too.
"""

import numpy as np
import pytest

from conformance import flow_library_programs  # noqa: F401 - its programs register themselves
from conformance.both import penstock, run_both, same_structure, structure_of, tensorflow
from conformance.flow_programs import PROGRAMS, X

pytest.importorskip("tensorflow")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    fn, feed, message, _ = PROGRAMS[name]
    run_both(fn, feed, message=message)


@pytest.mark.parametrize("name", [name for name, row in PROGRAMS.items() if row[3]])
def test_same_graph(name):
    same_structure(PROGRAMS[name][0])


CONTROL = ("Switch(", "Merge(", "Enter(", "Exit(", "NextIteration(", "LoopCond(", "StackPushV2(", "StackPopV2(", "StackV2(")


@pytest.mark.parametrize("name", ["loop", "loop_in_loop", "cond_in_loop", "loop_in_cond", "array_filled_by_loop"])
def test_gradient_loops_have_tfs_nodes(name):
    """The control-flow nodes of the gradients: names and inputs."""
    fn = PROGRAMS[name][0]

    def control(tf):
        return {line for line in structure_of(tf, fn) if any(kind in line for kind in CONTROL)}

    assert control(penstock()) == control(tensorflow())


def test_contexts_travel_in_protos():
    """Loops and branches that TF wrote into a MetaGraph's collections can be differentiated after reading them back."""
    tf1, tf2 = tensorflow(), penstock()
    with tf1.Graph().as_default() as graph:
        x = tf1.placeholder(tf1.float32, [2], name="x")
        _, y = tf1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf1.cond(i < 1, lambda: a * x, lambda: a + x)), [0, x])
        tf1.identity(y, name="y")
        (context,) = graph.get_collection("while_context")
        text, graph_text = context.to_proto().SerializeToString(), graph.as_graph_def().SerializeToString()
        with tf1.Session() as session:
            wanted = session.run(tf1.gradients(y, x)[0], {x: X})
    from penstock.formats import protos
    from penstock.graph.while_context import WhileContext

    with tf2.Graph().as_default() as graph:
        graph_def = protos.GraphDef()
        graph_def.ParseFromString(graph_text)
        tf2.import_graph_def(graph_def, name="")
        context_def = protos.WhileContextDef()
        context_def.ParseFromString(text)
        context = WhileContext.from_proto(context_def)
        assert context.to_proto() == context_def
        x, y = graph.get_tensor_by_name("x:0"), graph.get_tensor_by_name("y:0")
        with tf2.Session() as session:
            np.testing.assert_allclose(session.run(tf2.gradients(y, x)[0], {x: X}), wanted, rtol=1e-6)
