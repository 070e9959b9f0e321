"""The graphs of `tf2_graphs.py`, as TensorFlow 2 exports them, with feeds and the values TensorFlow computes for them.

Run as a script, in a process of its own because TensorFlow 2's behaviour is a switch of the whole process:

    python conformance/tf2_export.py FOLDER [NAME ...]

writes for each case NAME.pb (the GraphDef) and NAME.npz, or NAME.error. Each variant of a case is a file of its own:

    NAME           the concrete function's graph, as it is
    NAME.frozen    variables as constants, calls inlined, functional control flow kept
    NAME.lowered   the same, with control flow as Switch, Merge, Enter and Exit
    NAME.called    a TF1 graph with variables, in which a call of the function is one node
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from conformance.tf2_graphs import CASES


def specs(tf: Any, args: list[Any]) -> list[Any]:
    return [tf.TensorSpec(np.shape(a), tf.string if np.asarray(a).dtype == object else np.asarray(a).dtype) for a in args]


def export(tf: Any, name: str, folder: str) -> None:
    """Writes every variant of one case."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    case = CASES[name]
    made, args = case.make(tf)
    if "called" in case.variants:
        export_called(tf, made, args, os.path.join(folder, name + ".called"))
    if case.variants == ("called",):
        return
    # Lowering may take away the node that a result came from; an Identity stays.
    # Taking gradients changes the graph of a function: so one is exported and another one is run.
    concrete = tf.function(lambda *a: tf.nest.map_structure(tf.identity, made(*a)), autograph=False).get_concrete_function(*specs(tf, args))
    function = tf.function(made, autograph=False)
    tensors = [tf.constant(a) for a in args]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        results = tf.nest.flatten(function(*tensors))
        total = tf.reduce_sum(results[0]) if case.grads else None
    grads = tape.gradient(total, [t for t in tensors if t.dtype.is_floating], unconnected_gradients="zero") if case.grads else []
    values = [r.numpy() for r in results]
    for variant in case.variants:
        if variant == "called":
            continue
        graph_of = concrete
        if variant:
            graph_of = convert_variables_to_constants_v2(concrete, lower_control_flow=variant == "lowered")
        inputs = [t.name for t in graph_of.inputs]
        captured = [t.numpy() for t in graph_of.captured_inputs]
        outputs = [t.name for t in graph_of.outputs]
        path = os.path.join(folder, f"{name}.{variant}" if variant else name)
        save(path, graph_of.graph.as_graph_def(), inputs, args + captured, outputs, values, [g.numpy() for g in grads])


def export_called(tf: Any, made: Any, args: list[Any], path: str) -> None:
    """A TF1 graph with variables, in which the function is called twice."""
    v1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        inputs = [v1.placeholder(s.dtype, s.shape) for s in specs(tf, args)]
        function = tf.function(made, autograph=False)
        first = tf.nest.flatten(function(*inputs))
        with tf.control_dependencies(first):
            second = tf.nest.flatten(function(*inputs))
        init = v1.global_variables_initializer()
        feed = dict(zip(inputs, args))
        with v1.Session() as session:
            session.run(init)
            values = session.run(first + second, feed)
    save(path, graph.as_graph_def(), [t.name for t in inputs], args, [t.name for t in first + second], values, [], init.name)


def save(path: str, graph_def: Any, inputs: Any, args: Any, outputs: Any, values: Any, grads: Any, init: str = "") -> None:
    with open(path + ".pb", "wb") as file:
        file.write(graph_def.SerializeToString())
    arrays = {f"arg_{i}": array(a) for i, a in enumerate(args)}
    arrays |= {f"value_{i}": array(v) for i, v in enumerate(values)}
    arrays |= {f"grad_{i}": np.asarray(g) for i, g in enumerate(grads)}
    np.savez(path + ".npz", inputs=np.array(inputs), outputs=np.array(outputs), init=np.array(init), **arrays)


def array(value: Any) -> np.ndarray:
    return np.array(value, dtype=object) if isinstance(value, bytes) else np.asarray(value)


def main(folder: str, wanted: list[str]) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    import tensorflow as tf

    os.makedirs(folder, exist_ok=True)
    for name in wanted or CASES:
        try:
            export(tf, name, folder)
        except Exception:
            with open(os.path.join(folder, name + ".error"), "w") as file:
                file.write(traceback.format_exc())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
