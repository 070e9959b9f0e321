"""GraphDef in and out, and every check on the way."""

import pytest
from google.protobuf import text_format

import penstock as tf


def graph_def(text):
    return text_format.Parse(text, tf.GraphDef())


CONST = 'node { name: "%s" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: %s } } } }'


def test_round_trip():
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    y = tf.reduce_sum(tf.square(x) * 2.0, axis=1, name="y")
    exported = tf.get_default_graph().as_graph_def()
    with tf.Graph().as_default() as graph:
        (z,) = tf.import_graph_def(exported, return_elements=["y:0"], name="")
        assert graph.as_graph_def() == exported
        assert z.shape.as_list() == [None]
        with tf.Session() as sess:
            assert sess.run(z, {"x:0": [[1.0, 2.0]]}).tolist() == [10.0]
    assert y.graph is not graph


def test_prefix_and_input_map():
    x = tf.placeholder(tf.float32, [], name="x")
    tf.add(x, 1.0, name="y")
    exported = tf.get_default_graph().as_graph_def()
    with tf.Graph().as_default():
        replacement = tf.constant(41.0)
        y, op = tf.import_graph_def(exported, input_map={"x:0": replacement}, return_elements=["y:0", "y"])
        assert op.name == "import/y"
        with tf.Session() as sess:
            assert sess.run(y) == 42.0


@pytest.mark.parametrize(
    "text, match",
    [
        ('node { name: "a" op: "NoSuchOp" }', "Op type not registered"),
        ('node { name: "a" op: "Const" }', "NodeDef missing attr"),
        ('node { name: "a" op: "NoOp" attr { key: "bad" value { i: 1 } } }', "NodeDef mentions attr 'bad'"),
        ('node { name: "a" op: "NoOp" } node { name: "a" op: "NoOp" }', "is not unique"),
        ('node { name: "a" op: "NoOp" input: "^b" }', "Unknown input node"),
        ('node { name: "a b" op: "NoOp" }', "invalid characters"),
        (CONST % ("a", "1") + ' node { name: "b" op: "Identity" input: "a:1" attr { key: "T" value { type: DT_FLOAT } } }', "invalid output 1"),
        (CONST % ("a", "1") + ' node { name: "b" op: "Identity" input: "a" attr { key: "T" value { type: DT_INT32 } } }', "incompatible with expected int32"),
        (CONST % ("a", "1") + ' node { name: "b" op: "Identity" input: "^a" input: "a" attr { key: "T" value { type: DT_FLOAT } } }', "Control dependencies must come after"),
        (CONST % ("a", "1") + ' node { name: "b" op: "Identity" attr { key: "T" value { type: DT_FLOAT } } }', "do not match 0 inputs"),
        ('node { name: "a" op: "Identity" input: "b" attr { key: "T" value { type: DT_FLOAT } } } node { name: "b" op: "Identity" input: "a" attr { key: "T" value { type: DT_FLOAT } } }', "cycle"),
        (CONST % ("a", "1") + ' node { name: "b" op: "Neg" input: "a" attr { key: "T" value { type: DT_STRING } } }', "not in list of allowed values|not in the list of allowed values"),
        ('node { name: "a" op: "Pack" attr { key: "N" value { i: 0 } } attr { key: "T" value { type: DT_FLOAT } } }', "must be at least minimum 1"),
    ],
)
def test_bad_graphs_are_refused_whole(text, match):
    # An op that nobody declared is "not found", everything else an invalid graph, as in TF.
    with pytest.raises(tf.errors.NotFoundError if "NoSuchOp" in text else ValueError, match=match):
        tf.import_graph_def(graph_def(text))
    assert len(tf.get_default_graph().get_operations()) == 0


def test_unknown_ops_are_reported_all_at_once():
    with pytest.raises(tf.errors.NotFoundError) as caught:
        tf.import_graph_def(graph_def('node { name: "a" op: "Nope" } node { name: "b" op: "Neither" } node { name: "c" op: "Nope" }'))
    assert "'Nope'" in str(caught.value) and "'Neither'" in str(caught.value) and "1 more" in str(caught.value)


def test_unmapped_inputs_and_missing_returns_are_errors():
    exported = graph_def(CONST % ("a", "1"))
    with pytest.raises(ValueError, match="not found in graph_def"):
        tf.import_graph_def(exported, input_map={"zzz:0": tf.constant(1.0)})
    with pytest.raises(ValueError, match="Requested return_element 'b'"):
        tf.import_graph_def(exported, return_elements=["b"])


def test_colocation_groups_move_with_the_prefix():
    exported = graph_def(CONST % ("a", "1") + CONST.replace("node {", 'node { attr { key: "_class" value { list { s: "loc:@a" } } }') % ("b", "2"))
    (b,) = tf.import_graph_def(exported, return_elements=["b"], name="p")
    assert b.colocation_groups() == [b"loc:@p/a"]


def test_extract_sub_graph_and_remove_training_nodes():
    x = tf.constant(1.0, name="x")
    y = tf.identity(tf.identity(x, name="i"), name="y")
    tf.negative(y, name="unused")
    exported = tf.get_default_graph().as_graph_def()
    cut = tf.graph_util.extract_sub_graph(exported, ["y"])
    assert [n.name for n in cut.node] == ["x", "i", "y"]
    clean = tf.graph_util.remove_training_nodes(cut, protected_nodes=["y"])
    assert [n.name for n in clean.node] == ["x", "y"]


@pytest.mark.parametrize("use_resource", [False, True])
def test_freezing_variables(use_resource):
    v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=use_resource)
    out = tf.multiply(v, 3.0, name="out")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        want = sess.run(out)
        frozen = tf.graph_util.convert_variables_to_constants(sess, tf.get_default_graph().as_graph_def(), ["out"])
    assert not any(n.op in ("VariableV2", "VarHandleOp", "Assign", "AssignVariableOp") for n in frozen.node)
    with tf.Graph().as_default():
        (again,) = tf.import_graph_def(frozen, return_elements=["out:0"])
        with tf.Session() as sess:
            assert sess.run(again).tolist() == want.tolist()


def test_import_under_device_scopes():
    exported = graph_def(CONST % ("a", "1") + (CONST % ("b", "2"))[:-1] + 'device: "/job:ps/task:2" }')
    with tf.device("/job:worker/cpu:1"):
        a, b = tf.import_graph_def(exported, return_elements=["a", "b"])
    assert a.device == "/job:worker/device:CPU:1"
    assert b.device == "/job:ps/task:2/device:CPU:1"  # what the node says itself wins
    with tf.device(lambda op: "/cpu:5" if op.type == "Const" else ""):
        (a,) = tf.import_graph_def(exported, return_elements=["a"])
    assert a.device == "/cpu:5"


def test_import_into_the_root_gives_taken_names_a_number():
    colocated = 'node { name: "n" op: "Neg" input: "c" attr { key: "T" value { type: DT_FLOAT } } attr { key: "_class" value { list { s: "loc:@c" } } } }'
    exported = graph_def(CONST % ("c", "3") + colocated)
    tf.constant(1.0, name="c")
    c, n = tf.import_graph_def(exported, return_elements=["c:0", "n"], name="")
    assert c.name == "c_1:0" and n.inputs[0] is c
    assert n.colocation_groups() == [b"loc:@c_1"]
    with tf.name_scope("scope"):  # an empty name means the root, wherever one is
        (c,) = tf.import_graph_def(graph_def(CONST % ("c", "3")), return_elements=["c"], name="")
    assert c.name == "c_2"


def test_import_inside_loops_branches_and_control_dependencies():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [], name="x")
        tf.add(x, tf.constant(2.0) * 3.0, name="y")
        exported = graph.as_graph_def()

    def apply(value):
        return tf.import_graph_def(exported, input_map={"x:0": value}, return_elements=["y:0"])[0]

    start = tf.constant(1.0)
    pred = tf.placeholder(tf.bool, [])
    _, looped = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, apply(a)), [0, start])
    branched = tf.cond(pred, lambda: apply(start), lambda: start)
    mapped = tf.map_fn(apply, tf.constant([1.0, 2.0]))
    with tf.control_dependencies([tf.no_op(name="first")]):
        (op,) = tf.import_graph_def(exported, return_elements=["Const"])
    assert [c.name for c in op.control_inputs] == ["first"]
    with tf.Session() as sess:
        assert sess.run([looped, tf.gradients(looped, start)[0], branched], {pred: True}) == [19.0, 1.0, 7.0]
        assert sess.run(branched, {pred: False}) == 1.0
        assert sess.run(mapped).tolist() == [7.0, 8.0]


@pytest.mark.parametrize(
    "versions, match",
    [
        ("min_consumer: 99999", "min consumer version 99999 above current version"),
        ("producer: -3", "producer version -3 below"),
        ("producer: 100 bad_consumers: 2474", "disallows consumer version 2474"),
    ],
)
def test_versions_are_checked(versions, match):
    with pytest.raises(ValueError, match=match):
        tf.import_graph_def(graph_def(CONST % ("a", "1") + " versions { " + versions + " }"))


def test_malformed_devices_and_bytes_are_refused():
    with pytest.raises(ValueError, match="Malformed device specification 'junk'"):
        tf.import_graph_def(graph_def('node { name: "a" op: "NoOp" device: "junk" }'))
    with pytest.raises(TypeError, match="must be a GraphDef proto"):
        tf.import_graph_def(b"abc")
