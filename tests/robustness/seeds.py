"""Valid GraphDefs for the fuzzers to start from: training, control flow, functions, strings, variables, queues, devices.

Graphs are small (mutations should hit something) and together hold every kind of attribute and edge.
"""

from __future__ import annotations

import functools
import importlib.util
import pathlib
from collections.abc import Callable

import numpy as np

import penstock as tf
from penstock.formats import protos

FLOAT, INT32, BOOL = 1, 3, 10  # DataType enums
_EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def training() -> None:
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    y = tf.placeholder_with_default(np.array([0, 1], np.int32), [None], name="y")
    w = tf.get_variable("w", [3, 2], initializer=tf.glorot_uniform_initializer(seed=1))
    b = tf.get_variable("b", [2], initializer=tf.zeros_initializer(), use_resource=True)
    logits = tf.nn.relu(tf.matmul(x, w)) + b
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    tf.train.AdamOptimizer(0.1).minimize(loss, name="train")
    tf.global_variables_initializer()


def convolution() -> None:
    image = tf.constant(np.linspace(-1, 1, 50, dtype=np.float32).reshape(1, 5, 5, 2))
    kernel = tf.constant(np.ones((3, 3, 2, 2), np.float32))
    value = tf.nn.max_pool(tf.nn.conv2d(image, kernel, [1, 1, 1, 1], "SAME"), [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    tf.gradients(tf.reduce_sum(tf.square(value)), [image, kernel])


def loops() -> None:
    x = tf.placeholder_with_default(np.float32(2.0), [], name="x")
    w = tf.constant(0.5)

    def body(i, total, rows):
        inner = tf.while_loop(lambda j, a: j < i, lambda j, a: (j + 1, a * w), [tf.constant(0), total])
        return i + 1, inner[1] + x, rows.write(i, total)

    rows = tf.TensorArray(tf.float32, 4)
    _, total, rows = tf.while_loop(lambda i, *_: i < 4, body, [tf.constant(0), x, rows], parallel_iterations=3)
    tf.gradients(total, [x, w])
    rows.stack(name="rows")


def branches() -> None:
    p = tf.placeholder_with_default(True, [], name="p")
    x = tf.constant([1.0, 2.0])
    inner = lambda: tf.cond(tf.logical_not(p), lambda: x * 2, lambda: tf.concat([x, x], 0)[:2])  # noqa: E731
    y = tf.cond(p, inner, lambda: tf.stack([x[0], x[1]]))
    tf.case([(p, lambda: y), (x[0] > 3, lambda: y + 1)], default=lambda: -y, name="case")
    tf.gradients(y, x)
    with tf.control_dependencies([tf.Assert(tf.reduce_all(x > 0), [x, "text"])]):
        tf.identity(y, name="checked")


def strings() -> None:
    words = tf.constant([b"a b", b"", b"\xff\x00c"])
    joined = tf.string_join([words, tf.as_string(tf.range(3))], separator="-")
    tf.string_to_hash_bucket_fast(joined, 10)
    tf.string_split(words)
    tf.substr(joined, 0, 2)
    tf.reduce_join(joined, 0)


def shapes() -> None:
    x = tf.placeholder_with_default(np.arange(24, dtype=np.int64).reshape(2, 3, 4), [None, 3, None], name="x")
    rows = tf.reshape(x, tf.stack([tf.shape(x)[0], -1]))
    a, b = tf.split(tf.transpose(rows), 2)
    tf.gather(a, [0, 1]), tf.tile(b, [1, 2]), tf.pad(rows, [[1, 1], [0, 0]]), tf.unstack(x, axis=1)
    tf.strided_slice(x, [0, 0, 0], [2, 3, 4], [1, 2, -1], end_mask=4), tf.one_hot(a, 3), tf.nn.top_k(rows, 2)
    tf.cast(tf.reduce_sum(x, [0, 2], keepdims=True), tf.complex64), tf.unique(tf.reshape(x, [-1]))
    tf.fill([2, 2], 7), tf.range(0, 10, 3), tf.linspace(0.0, 1.0, 5), tf.zeros([2, 0, 3], tf.float64)


def queues() -> None:
    queue = tf.FIFOQueue(4, [tf.float32, tf.string], [[2], []], name="queue")
    queue.enqueue([[1.0, 2.0], "a"])
    queue.dequeue_many(2)
    queue.size(), queue.close(cancel_pending_enqueues=True)
    shuffled = tf.RandomShuffleQueue(4, 1, [tf.int32], seed=3)
    shuffled.enqueue_many([[1, 2, 3]])
    shuffled.dequeue()


def devices() -> None:
    with tf.device("/cpu:1"):
        v = tf.Variable([1.0, 2.0], name="v")
        a = v + tf.random_uniform([2], seed=5)
    with tf.device("/cpu:0"):
        b = a * 2
        with tf.colocate_with(v):
            tf.assign_add(v, b)
        tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)])
    tf.global_variables_initializer()


def _function(name: str, nodes: list[dict], args: list[str], rets: dict[str, str], **signature: object) -> protos.FunctionDef:
    function = protos.FunctionDef()
    function.signature.name = name
    for arg in args:
        function.signature.input_arg.add(name=arg, **(signature or {"type": FLOAT}))
    for ret, source in rets.items():
        function.signature.output_arg.add(name=ret, **(signature or {"type": FLOAT}))
        function.ret[ret] = source
    for node in nodes:
        attrs = node.pop("attr", {})
        row = function.node_def.add(**node)
        for key, value in attrs.items():
            row.attr[key].CopyFrom(value)
    return function


def functions() -> protos.GraphDef:
    """Calls by name, polymorphic functions, functions that call functions, recursion; op-based calls where the ops exist."""
    as_type = lambda t: protos.AttrValue(type=t)  # noqa: E731
    t = {"T": as_type(FLOAT)}
    graph = tf.Graph()
    with graph.as_default():
        tf.constant([1.0, 2.0], name="x")
    result = graph.as_graph_def()
    library = result.library
    double = _function("Double", [dict(name="y", op="AddV2", input=["x", "x"], attr=t)], ["x"], {"out": "y:z:0"})
    library.function.append(double)
    twice = [
        dict(name="first", op="Double", input=["x"]),
        dict(name="second", op="Double", input=["first:out:0", "^first"]),
        dict(name="both", op="Split", input=["axis:output:0", "second:out:0"], attr={**t, "num_split": protos.AttrValue(i=2)}),
        dict(name="axis", op="Const", attr={"dtype": as_type(INT32), "value": protos.AttrValue(tensor=tf.make_tensor_proto(0))}),
    ]
    library.function.append(_function("Twice", twice, ["x"], {"out": "both:output:1", "same": "x"}))
    generic = _function("Generic", [dict(name="y", op="Neg", input=["x"], attr={"T": protos.AttrValue(placeholder="T")})], ["x"], {"out": "y:y:0"}, type_attr="T")
    generic.signature.attr.add(name="T", type="type")
    library.function.append(generic)
    library.function.append(_function("Forever", [dict(name="y", op="Forever", input=["x"])], ["x"], {"out": "y:out:0"}))
    library.gradient.add(function_name="Double", gradient_func="Generic")
    for name, op, attrs in (("a", "Double", {}), ("b", "Twice", {}), ("c", "Generic", t), ("d", "Forever", {})):
        node = result.node.add(name=name, op=op, input=["x"])
        for key, value in attrs.items():
            node.attr[key].CopyFrom(value)
    calls = {
        "PartitionedCall": {"f": "Twice", "Tin": [1], "Tout": [1, 1]},
        "StatefulPartitionedCall": {"f": "Double", "Tin": [1], "Tout": [1]},
        "SymbolicGradient": {"f": "Double", "Tin": [1, 1], "Tout": [1]},
    }
    from penstock.graph.opdef import OPS

    for op, row in calls.items():
        if op in OPS:
            node = result.node.add(name=op.lower(), op=op, input=["x"] * len(row["Tin"]))
            node.attr["f"].func.name = row["f"]
            node.attr["Tin"].list.type.extend(row["Tin"])
            node.attr["Tout"].list.type.extend(row["Tout"])
    return result


def functional() -> protos.GraphDef:
    """Branches and loops whose parts are functions."""
    graph = tf.Graph()
    with graph.as_default():
        tf.constant(1.0, name="x")
        tf.placeholder_with_default(True, [], name="p")
        tf.constant(1, name="i")
        tf.constant(4, name="limit")
    result = graph.as_graph_def()
    t = {"T": protos.AttrValue(type=FLOAT)}
    ten = dict(name="ten", op="Const", attr={"dtype": protos.AttrValue(type=FLOAT), "value": protos.AttrValue(tensor=tf.make_tensor_proto(10.0))})
    less = _function("Less10", [ten, dict(name="y", op="Less", input=["x", "ten:output:0"], attr=t)], ["x"], {"out": "y:z:0"})
    less.signature.output_arg[0].type = BOOL
    double = _function("Double", [dict(name="y", op="AddV2", input=["x", "x"], attr=t)], ["x"], {"out": "y:z:0"})
    negate = _function("Negate", [dict(name="y", op="Neg", input=["x"], attr=t)], ["x"], {"out": "y:y:0"})
    indexed = _function("Indexed", [dict(name="y", op="AddV2", input=["x", "x"], attr=t)], ["i", "x"], {"out": "y:z:0"})
    indexed.signature.input_arg[0].type = INT32
    result.library.function.extend([less, double, negate, indexed])

    def call(name: str, op: str, inputs: list[str], functions: dict[str, str], **types: list[int]) -> None:
        node = result.node.add(name=name, op=op, input=inputs)
        for key, function in functions.items():
            node.attr[key].func.name = function
        for key, values in types.items():
            node.attr[key].list.type.extend(values)

    call("if", "If", ["p", "x"], {"then_branch": "Double", "else_branch": "Negate"}, Tin=[FLOAT], Tout=[FLOAT])
    result.node[-1].attr["Tcond"].type = BOOL
    call("while", "While", ["x"], {"cond": "Less10", "body": "Double"}, T=[FLOAT])
    call("stateless", "StatelessWhile", ["while"], {"cond": "Less10", "body": "Double"}, T=[FLOAT])
    call("case", "Case", ["i", "x"], {}, Tin=[FLOAT], Tout=[FLOAT])
    for function in ("Double", "Negate"):
        result.node[-1].attr["branches"].list.func.add(name=function)
    call("for", "For", ["i", "limit", "i", "x"], {"body": "Indexed"}, T=[FLOAT])
    return result


PROGRAMS: tuple[Callable[[], object], ...] = (training, convolution, loops, branches, strings, shapes, queues, devices, functions, functional)


def _graph_def(program: Callable[[], object]) -> protos.GraphDef:
    with tf.Graph().as_default() as graph:
        result = program()
        return result if isinstance(result, protos.GraphDef) else graph.as_graph_def()


def _example(name: str) -> protos.GraphDef:
    """The graph that a program in examples/ builds; it is not trained."""
    options = {"newton": {}, "mlp": {"steps": 1}}[name]
    spec = importlib.util.spec_from_file_location(f"example_{name}", _EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tf.Graph().as_default() as graph:
        module.program(tf, **options)
        return graph.as_graph_def()


@functools.cache
def seed_graphs() -> dict[str, protos.GraphDef]:
    """Name -> valid GraphDef. Do not change them: copy first."""
    found = {program.__name__: _graph_def(program) for program in PROGRAMS}
    for name in ("newton", "mlp"):
        found[name] = _example(name)
    return found
