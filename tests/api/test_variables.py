"""tf.Variable and tf.get_variable: names, collections, sharing, and the way to and from protos."""

import numpy as np
import pytest

import penstock as tf


def both(test):
    return pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])(test)


def nodes():
    return [op.name for op in tf.get_default_graph().get_operations()]


def run(fetches, feed=None):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return sess.run(fetches, feed)


class TestVariable:
    def test_ref_nodes(self):
        v = tf.Variable([1.0, 2.0], name="v")
        assert nodes() == ["v/initial_value", "v", "v/Assign", "v/read"]
        assert (v.name, v.op.type, v.dtype, v.value().name) == ("v:0", "VariableV2", tf.float32._as_ref, "v/read:0")
        assert repr(v) == "<tf.Variable 'v:0' shape=(2,) dtype=float32_ref>"
        assert v.initializer.name == "v/Assign" and v.initial_value.name == "v/initial_value:0"

    def test_resource_nodes(self):
        v = tf.Variable([1.0, 2.0], name="v", use_resource=True)
        assert nodes() == [
            "v/Initializer/initial_value",
            "v",
            "v/IsInitialized/VarIsInitializedOp",
            "v/Assign",
            "v/Read/ReadVariableOp",
        ]
        assert (v.name, v.op.type, v.dtype, v.handle.dtype) == ("v:0", "VarHandleOp", tf.float32, tf.resource)
        assert repr(v) == "<tf.Variable 'v:0' shape=(2,) dtype=float32>"

    @both
    def test_initial_values_from_functions_stay_with_the_variable(self, use_resource):
        with tf.device("/cpu:0"):
            v = tf.Variable(lambda: tf.zeros([2]), name="w", use_resource=use_resource)
        assert v.initial_value.op.name == "w/Initializer/zeros"
        assert v.initial_value.op.device == "" and v.op.device == "/device:CPU:0"
        assert v.initial_value.op.get_attr("_class") == [b"loc:@w"]

    def test_collections(self):
        a = tf.Variable(1.0, name="a")
        b = tf.Variable(1.0, name="b", trainable=False)
        c = tf.Variable(1.0, name="c", collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
        assert tf.global_variables() == [a, b] and tf.trainable_variables() == [a] and tf.local_variables() == [c]
        assert tf.global_variables("b") == [b]

    def test_defaults_of_the_kind(self):
        assert tf.Variable(1.0).op.type == "VariableV2"
        tf.enable_resource_variables()
        try:
            assert tf.resource_variables_enabled()
            assert tf.Variable(1.0).op.type == "VarHandleOp"
        finally:
            tf.disable_resource_variables()
        with tf.variable_scope("s", use_resource=True):
            assert tf.Variable(1.0).op.type == "VarHandleOp"

    @both
    def test_acts_as_a_tensor(self, use_resource):
        v = tf.Variable([2.0, 3.0], use_resource=use_resource)
        got = run([v + 1.0, 1.0 - v, v * v, -v, v[0], v / 2.0, tf.reduce_sum(v), v > 2.5, tf.concat([v, v], 0)])
        assert [np.asarray(g).tolist() for g in got] == [
            [3, 4],
            [-1, -2],
            [4, 9],
            [-2, -3],
            2,
            [1, 1.5],
            5,
            [False, True],
            [2, 3, 2, 3],
        ]

    def test_one_initializer_for_variables_that_use_each_other(self):
        a = tf.Variable([1.0, 2.0], name="a")
        b = tf.Variable(a * 2.0, name="b")
        c = tf.Variable(b.initialized_value() + a.initialized_value(), name="c")
        assert [x.tolist() for x in run([a, b, c])] == [[1, 2], [2, 4], [3, 6]]
        assert "a/read_b" in nodes() and "mul_b" in nodes()

    @both
    def test_load_and_eval(self, use_resource):
        v = tf.Variable([1.0, 2.0], use_resource=use_resource)
        with tf.Session() as sess:
            size = len(nodes())
            v.load([5.0, 6.0], sess)
            assert v.eval(sess).tolist() == [5, 6]
            assert len(nodes()) == size
            with sess.as_default():
                assert v.eval().tolist() == [5, 6]

    @both
    def test_proto_round_trip(self, use_resource):
        v = tf.Variable([1.0, 2.0], name="v", use_resource=use_resource, trainable=False)
        proto = v.to_proto()
        assert (
            proto.variable_name == "v:0" and proto.initializer_name == "v/Assign" and proto.is_resource == use_resource
        )
        again = tf.Variable.from_proto(proto)
        assert type(again) is type(v) and again.name == "v:0" and not again.trainable
        assert again.initializer is v.initializer and again.shape == v.shape
        assert tf.global_variables() == [v]

    def test_proto_scopes(self):
        with tf.name_scope("outer"):
            v = tf.Variable(1.0, name="v")
        proto = v.to_proto(export_scope="outer")
        assert proto.variable_name == "v:0"
        assert tf.Variable(variable_def=proto, import_scope="outer").name == "outer/v:0"
        assert v.to_proto(export_scope="inner") is None

    def test_writes_wait_for_the_write_and_not_for_a_read(self):
        v = tf.Variable(1.0, name="v", use_resource=True)
        written = v.assign(2.0)
        assert isinstance(written, tf.Variable) and written.op.type == "AssignVariableOp"
        with tf.control_dependencies([written]):
            op = tf.no_op()
        assert op.control_inputs == [written.op]
        assert v.assign(3.0, read_value=False).type == "AssignVariableOp"

    def test_made_outside_of_control_flow(self):
        p = tf.placeholder(tf.bool, [])
        made = []

        def branch():
            made.append(tf.Variable(1.0, name="inside"))
            return made[0] + 1.0

        result = tf.cond(p, branch, lambda: 0.0)
        assert made[0].op._get_control_flow_context() is None
        assert run(result, {p: True}) == 2
        with tf.control_dependencies([p]):
            assert tf.Variable(2.0).op.control_inputs == []

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: tf.Variable(), "initial_value must be specified"),
            (lambda: tf.Variable(1.0, collections="a"), "must be a list, tuple, or set"),
            (lambda: tf.Variable(1.0, constraint=3), "must be a callable"),
            (lambda: tf.Variable(tf.placeholder(tf.float32, [None])), "must have a shape specified"),
            (lambda: tf.convert_to_tensor(tf.Variable(1.0), dtype=tf.int32), "Incompatible type conversion"),
        ],
    )
    def test_refusals(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()

    def test_unknown_arguments(self):
        with pytest.raises(TypeError, match="unexpected keyword argument 'color'"):
            tf.Variable(1.0, color="red")

    def test_not_iterable(self):
        with pytest.raises(TypeError, match="not iterable"):
            list(tf.Variable([1.0]))
        assert bool(tf.Variable(0.0))

    def test_creators(self):
        seen = []

        def outer(next_creator, **kwargs):
            seen.append("outer")
            return next_creator(**{**kwargs, "trainable": False})

        def inner(next_creator, **kwargs):
            seen.append("inner")
            return next_creator(**kwargs)

        with tf.variable_creator_scope(outer), tf.variable_creator_scope(inner):
            v = tf.Variable(1.0)
            w = tf.get_variable("w", [])
        assert seen == ["inner", "outer"] * 2 and not v.trainable and not w.trainable


class TestGetVariable:
    def test_names(self):
        with tf.name_scope("n"):
            with tf.variable_scope("a") as a:
                v = tf.get_variable("v", [2])
                assert tf.add(v, 1.0).op.name == "n/a/Add"
                assert (v.name, a.name, a.original_name_scope) == ("a/v:0", "a", "n/a/")
            with tf.variable_scope(a):
                assert tf.add(v, 1.0).op.name == "n/a_1/Add"
            with tf.variable_scope(a, auxiliary_name_scope=False):
                assert tf.add(v, 1.0).op.name == "n/Add"

    def test_default_names_are_unique(self):
        def layer():
            with tf.variable_scope(None, "layer"):
                return tf.get_variable("w", [1]).name

        assert [layer(), layer()] == ["layer/w:0", "layer_1/w:0"]
        with tf.variable_scope("top"):
            assert [layer(), layer()] == ["top/layer/w:0", "top/layer_1/w:0"]

    def test_reuse(self):
        with tf.variable_scope("s"):
            v = tf.get_variable("v", [2])
        with tf.variable_scope("s", reuse=True) as scope:
            assert tf.get_variable("v", [2]) is v and scope.reuse
            with tf.variable_scope("deeper") as deeper:
                assert deeper.reuse
        with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
            assert tf.get_variable("v") is v
            assert tf.get_variable("w", [1]).name == "s/w:0"
        with tf.variable_scope("s") as scope:
            scope.reuse_variables()
            assert tf.get_variable("v") is v

    def test_refusals(self):
        tf.get_variable("v", [2])
        with pytest.raises(ValueError, match=r"Variable v already exists, disallowed[^\0]*test_variables.py"):
            tf.get_variable("v", [2])
        with tf.variable_scope("", reuse=True):
            with pytest.raises(ValueError, match=r"specified shape \(3,\) and found shape \(2,\)"):
                tf.get_variable("v", [3])
            with pytest.raises(ValueError, match="specified dtype int32"):
                tf.get_variable("v", [2], tf.int32)
            with pytest.raises(ValueError, match="Variable nope does not exist"):
                tf.get_variable("nope", [2])
        with pytest.raises(ValueError, match="did not get an initializer, so its `shape` argument must be specified"):
            tf.get_variable("w")
        with pytest.raises(ValueError, match="If initializer is a constant, do not specify shape"):
            tf.get_variable("w", [2], initializer=[1.0, 2.0])
        with pytest.raises(TypeError, match="name_or_scope is required"):
            tf.variable_scope(None)
        with (
            pytest.raises(ValueError, match="cannot be used without a name_or_scope"),
            tf.variable_scope(None, "d", reuse=True),
        ):
            pass
        with pytest.raises(ValueError, match="An initializer for variable c"):
            tf.get_variable("c", [1], tf.complex64)

    def test_scopes_pass_defaults_on(self):
        half = tf.constant_initializer(0.5)
        with tf.variable_scope(
            "a", initializer=half, regularizer=lambda w: tf.reduce_sum(w) * 2.0, dtype=tf.float64, use_resource=True
        ):
            with tf.variable_scope("b"):
                v = tf.get_variable("v", [2])
            w = tf.get_variable("w", [2], regularizer=tf.no_regularizer)
        assert v.dtype == tf.float64 and v.op.type == "VarHandleOp" and w.dtype == tf.float64
        losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
        assert [loss.op.name for loss in losses] == ["a/b/v/Regularizer/mul"]
        assert run(losses) == [2.0]
        assert tf.get_variable_scope().initializer is None

    def test_initializers_of_all_kinds(self):
        a = tf.get_variable("a", initializer=[1, 2])
        b = tf.get_variable("b", initializer=tf.constant([1.0, 2.0]))
        c = tf.get_variable("c", initializer=lambda: tf.ones([3]))
        d = tf.get_variable("d", [2], initializer=tf.ones_initializer)
        e = tf.get_variable("e", [2], tf.string)
        assert [v.dtype.base_dtype for v in (a, b, c, d, e)] == [
            tf.int32,
            tf.float32,
            tf.float32,
            tf.float32,
            tf.string,
        ]
        assert [v.tolist() for v in run([a, b, c, d, e])] == [[1, 2], [1, 2], [1, 1, 1], [1, 1], [b"", b""]]

    def test_custom_getters(self):
        calls = []

        def outer(getter, name, *args, **kwargs):
            calls.append(("outer", name))
            return getter(name, *args, **kwargs)

        def inner(getter, name, *args, **kwargs):
            calls.append(("inner", name))
            return getter(name + "_x", *args, **kwargs)

        with tf.variable_scope("a", custom_getter=outer), tf.variable_scope("b", custom_getter=inner):
            assert tf.get_variable("v", [1]).name == "a/b/v_x:0"
        assert calls == [("inner", "a/b/v"), ("outer", "a/b/v_x")]

    def test_local_variables(self):
        v = tf.get_local_variable("v", [2], initializer=tf.zeros_initializer())
        assert tf.local_variables() == [v] and not tf.global_variables() and not v.trainable

    def test_scope_collections(self):
        with tf.variable_scope("a") as a:
            v = tf.get_variable("v", [1])
        tf.get_variable("ab", [1])
        assert a.global_variables() == [v] and a.trainable_variables() == [v]


class TestPartitioned:
    def test_parts(self):
        v = tf.get_variable(
            "v", [5, 3], partitioner=tf.fixed_size_partitioner(2), initializer=tf.constant_initializer([0, 1, 2])
        )
        assert [p.name for p in v] == ["v/part_0:0", "v/part_1:0"]
        assert [p.shape.as_list() for p in v] == [[3, 3], [2, 3]]
        assert [p._get_save_slice_info().spec for p in v] == ["5 3 0,3:0,3", "5 3 3,2:0,3"]
        whole = tf.convert_to_tensor(v)
        assert whole.op.name == "v" and whole.shape.as_list() == [5, 3]
        assert run(whole).tolist() == [[0, 1, 2], [2, 2, 2], [2, 2, 2], [0, 1, 2], [2, 2, 2]]
        with tf.variable_scope("", reuse=True):
            assert tf.get_variable("v", [5, 3], partitioner=tf.fixed_size_partitioner(2)) is v
            with pytest.raises(ValueError, match=r"specified shape \(4, 3\)"):
                tf.get_variable("v", [4, 3], partitioner=tf.fixed_size_partitioner(2))

    def test_constants_are_sliced(self):
        v = tf.get_variable("c", initializer=np.arange(4, dtype=np.float32), partitioner=tf.fixed_size_partitioner(2))
        assert [p.tolist() for p in run(list(v))] == [[0, 1], [2, 3]]
        assert [p.tolist() for p in run(v.assign(tf.constant([9.0, 8.0, 7.0, 6.0])))] == [[9, 8], [7, 6]]

    @pytest.mark.parametrize(
        ("partitioner", "want"),
        [
            (lambda: tf.variable_axis_size_partitioner(24, max_shards=3), [3, 1]),
            (lambda: tf.variable_axis_size_partitioner(60, axis=1), [1, 2]),
            (lambda: tf.min_max_variable_partitioner(max_partitions=3, min_slice_size=30), [3, 1]),
            (lambda: tf.min_max_variable_partitioner(max_partitions=30, min_slice_size=25), [5, 1]),
            (lambda: tf.fixed_size_partitioner(9), [7, 1]),
        ],
    )
    def test_partitioners(self, partitioner, want):
        assert list(partitioner()(shape=tf.TensorShape([7, 4]), dtype=tf.float32)) == want
