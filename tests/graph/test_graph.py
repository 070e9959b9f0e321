"""Graphs: names, scopes, devices, colocation, control dependencies, collections, look-up, finality."""

import pytest

import penstock as tf


def names(graph=None):
    return [op.name for op in (graph or tf.get_default_graph()).get_operations()]


def test_names_are_made_unique_without_regard_to_case():
    a = tf.constant(1, name="A")
    b = tf.constant(1, name="a")
    c = tf.constant(1, name="A")
    assert [t.op.name for t in (a, b, c)] == ["A", "a_1", "A_2"]


def test_constants_of_an_op_are_named_inside_its_scope():
    x = tf.placeholder(tf.float32, name="x")
    tf.add(x, 1.0)
    assert names() == ["x", "Add/y", "Add"]


def test_name_scopes_nest_and_can_be_entered_again():
    with tf.name_scope("outer") as outer:
        with tf.name_scope("inner"):
            a = tf.constant(1)
        with tf.name_scope("inner"):
            b = tf.constant(1)
    with tf.name_scope(outer):
        c = tf.constant(1)
    with tf.name_scope(None):
        d = tf.constant(1)
    assert [t.op.name for t in (a, b, c, d)] == ["outer/inner/Const", "outer/inner_1/Const", "outer/Const", "Const"]


@pytest.mark.parametrize("name", ["_x", "a b", "a:0", "é"])
def test_invalid_names_are_refused(name):
    with pytest.raises(ValueError, match="not a valid root scope name"):
        tf.identity(tf.constant(1), name=name)
    with pytest.raises(ValueError, match="not a valid node name"):
        tf.constant(1, name=name)


def test_device_scopes_merge_from_the_inside_out():
    with tf.device("/job:worker/task:1"), tf.device("/cpu:1"):
        a = tf.constant(1)
        with tf.device("/job:ps"):
            b = tf.constant(1)
        with tf.device(None):
            c = tf.constant(1)
    assert a.device == "/job:worker/task:1/device:CPU:1"
    assert b.device == "/job:ps/task:1/device:CPU:1"
    assert c.device == ""


def test_device_functions_see_the_operation():
    def choose(op):
        return "/cpu:1" if op.type == "Const" else "/cpu:0"

    with tf.device(choose):
        a = tf.constant(1)
        b = tf.identity(a)
    assert (a.device, b.device) == ("/cpu:1", "/cpu:0") or (a.device, b.device) == ("/device:CPU:1", "/device:CPU:0")


def test_colocation_copies_group_and_device():
    with tf.device("/cpu:1"):
        a = tf.constant(1, name="a")
    with tf.colocate_with(a):
        b = tf.constant(2, name="b")
    assert b.op.colocation_groups() == [b"loc:@a"]
    assert b.device == a.device


def test_control_dependencies_skip_what_inputs_imply():
    first = tf.no_op(name="first")
    with tf.control_dependencies([first]):
        a = tf.constant(1, name="a")
        b = tf.identity(a, name="b")
    with tf.control_dependencies([first]), tf.control_dependencies(None):
        c = tf.constant(1, name="c")
    assert [op.name for op in a.op.control_inputs] == ["first"]
    assert b.op.control_inputs == []
    assert c.op.control_inputs == []


def test_collections():
    tf.add_to_collection("k", 1)
    tf.get_collection_ref("k").append(2)
    assert tf.get_collection("k") == [1, 2]
    tf.get_collection("k").append(3)
    assert tf.get_collection("k") == [1, 2]
    a = tf.constant(1, name="s/a")
    tf.add_to_collection("t", a)
    assert tf.get_collection("t", scope="s/") == [a]
    assert tf.get_collection("t", scope="other") == []


def test_look_up_by_name():
    a = tf.constant(1, name="a")
    graph = tf.get_default_graph()
    assert graph.get_tensor_by_name("a:0") is a
    assert graph.get_operation_by_name("a") is a.op
    with pytest.raises(KeyError, match="does not exist"):
        graph.get_tensor_by_name("b:0")
    with pytest.raises(KeyError, match="only has 1 outputs"):
        graph.get_tensor_by_name("a:1")
    with pytest.raises(ValueError, match="refers to an Operation, not a Tensor"):
        graph.get_tensor_by_name("a")
    with pytest.raises(KeyError, match="not in the graph"):
        graph.get_operation_by_name("b")


def test_elements_of_other_graphs_are_refused():
    a = tf.constant(1)
    with tf.Graph().as_default() as other:
        b = tf.constant(1)
        with pytest.raises(ValueError, match="not an element of this graph"):
            other.as_graph_element(a)
        with pytest.raises(ValueError, match="must be from the same graph"):
            tf.add(a, b)


def test_a_finalized_graph_takes_no_nodes():
    graph = tf.get_default_graph()
    graph.finalize()
    with pytest.raises(RuntimeError, match="finalized and cannot be modified"):
        tf.constant(1)


def test_a_refused_node_leaves_nothing_behind():
    a = tf.placeholder(tf.float32, [2, 3])
    before = names()
    with pytest.raises(ValueError, match="Dimensions must be equal|must be equal"):
        tf.matmul(a, a)
    assert names() == before
    assert a.consumers() == []


def test_every_op_knows_the_users_line():
    a = tf.constant(1)
    file, _, function = a.op.user_frame
    assert file == __file__
    assert function == "test_every_op_knows_the_users_line"
    assert a.op.traceback[-1][0] != file or a.op.traceback


def test_tensors_are_no_booleans_and_hash_by_identity():
    a = tf.constant(1)
    with pytest.raises(TypeError, match="not allowed"):
        bool(a)
    assert a == a and {a: 1}[a] == 1
    assert (a == tf.constant(1)) is False


def test_gradient_override_map_marks_ops():
    with tf.get_default_graph().gradient_override_map({"Square": "Custom"}):
        a = tf.square(1.0)
    assert a.op.get_attr("_gradient_op_type") == b"Custom"


def test_container_scope_reaches_stateful_ops():
    with tf.container("box"):
        v = tf.Variable(1.0, use_resource=False)
    assert v.op.get_attr("container") == b"box"


def test_a_node_like_an_earlier_one_has_attributes_of_its_own():
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.int32)
    first, second = tf.multiply(x, x), tf.multiply(x, x)
    first.op._set_attr("_mark", b"here")
    assert "_mark" not in second.op.attrs and "_mark" not in tf.multiply(x, x).op.attrs
    assert tf.multiply(y, y).dtype == tf.int32
    for _ in range(2):
        with pytest.raises(TypeError, match="does not match type"):
            tf.multiply(x, y)
    a, b = tf.raw_ops.IdentityN(input=[x]), tf.raw_ops.IdentityN(input=[x])
    assert a[0].op.attrs["T"] is not b[0].op.attrs["T"]


def test_operators_of_two_tensors_are_named_as_their_scope():
    x = tf.placeholder(tf.float32, name="x")
    with tf.name_scope("s"):
        nodes = [x + x, tf.add(x, x), tf.add(x, x, name="sum"), x - x, x * x, x * x, x**x, x % x, x // x]
    assert [t.op.name for t in nodes] == ["s/add", "s/Add_1", "s/sum", "s/sub", "s/mul", "s/mul_1", "s/pow", "s/mod", "s/floordiv"]
    with tf.Graph().as_default():
        other = tf.placeholder(tf.float32, name="other")
    for make in (lambda: x + other, lambda: tf.add(x, other), lambda: x * other):
        with pytest.raises(ValueError, match="must be from the same graph"):
            make()
