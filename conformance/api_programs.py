"""Small TF1 programs that exercise the API: each is a function of `tf`, run under both packages by test_api.py.

    @program(feed)      builds a graph and returns fetches: equal values, and equal nodes (names, types, wiring)
    @facts              returns plain Python values about what was built: equal values
    @sequence           runs sessions itself and returns what it saw: equal values

Those about sessions are in api_sessions.py, those about networks and training in api_training.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

PROGRAMS: dict[str, tuple[Any, dict | None, bool]] = {}
FACTS: dict[str, Any] = {}
SEQUENCES: dict[str, Any] = {}


def program(feed: dict | None = None, structure: bool = True) -> Any:
    """Registers a program; without `structure`, only its values are compared."""

    def register(fn: Any) -> Any:
        PROGRAMS[fn.__name__] = (fn, feed, structure)
        return fn

    return register


def facts(fn: Any) -> Any:
    FACTS[fn.__name__] = fn
    return fn


def sequence(fn: Any) -> Any:
    SEQUENCES[fn.__name__] = fn
    return fn


def error_of(action: Any) -> str:
    """The class of the error that `action` raises, or what it gives."""
    try:
        action()
    except Exception as error:
        # What TF1 called a TypeError has a class of its own in TF2, which is a TypeError too.
        return type(error).__name__.replace("OperatorNotAllowedInGraphError", "TypeError")
    return "nothing"


# -- scopes and names -----------------------------------------------------------------------------------------------------


@program()
def name_scopes(tf):
    with tf.name_scope("a"):
        x = tf.constant(1.0)
        with tf.name_scope("b") as scope:
            y = tf.add(x, 1.0, name="y")
        with tf.name_scope(scope):
            z = tf.add(y, 1.0, name="y")
        with tf.name_scope("b"):
            w = y * 2
    with tf.name_scope("a"), tf.name_scope(None):
        v = tf.identity(w, name="top")
    return [z, v, tf.add(v, z, name="a/y")]


@facts
def names_are_made_unique(tf):
    names = [tf.constant(0, name=n).op.name for n in ("x", "x", "X", "x_1", "x", "y/x", "y/x", "y")]
    graph = tf.get_default_graph()
    return names + [graph.unique_name(n, mark) for n, mark in (("x", False), ("x", False), ("x", True), ("x", True))]


@facts
def name_scope_forms(tf):
    seen = []
    for args in (("s",), (None, "default"), (None, "default", [1.0]), ("s", "default"), ("",), ("s/",)):
        with tf.name_scope(*args) as scope:
            seen.append((scope, tf.constant(1).op.name))
    return seen


@facts
def variable_scopes(tf):
    seen = []
    with tf.variable_scope("a") as outer:
        seen.append(tf.get_variable("v", [2]).name)
        seen.append((tf.constant(1) + 1).name)
        with tf.variable_scope("b"):
            seen.append(tf.get_variable("v", [2]).name)
        with tf.variable_scope(None, "default"):
            seen.append(tf.get_variable("v", [2]).name)
        with tf.variable_scope(None, "default"):
            seen.append(tf.get_variable("v", [2]).name)
    with tf.variable_scope(outer, reuse=True):
        seen.append(tf.get_variable("v").name)
        seen.append((tf.constant(1) + 1).name)
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE):
        seen.append(tf.get_variable("v", [2]).name)
        seen.append(tf.get_variable("w", [2]).name)
        seen.append(tf.get_variable_scope().name)
        seen.append((tf.constant(1) * 2).name)
    with tf.variable_scope("a", auxiliary_name_scope=False):
        seen.append((tf.constant(1) * 2).name)
    return seen, [v.name for v in tf.global_variables()], [v.op.type for v in tf.trainable_variables()]


@facts
def reuse_errors(tf):
    with tf.variable_scope("a"):
        tf.get_variable("v", [2])

    def again():
        with tf.variable_scope("a"):
            tf.get_variable("v", [2])

    def missing():
        with tf.variable_scope("a", reuse=True):
            tf.get_variable("w", [2])

    def other_shape():
        with tf.variable_scope("a", reuse=True):
            tf.get_variable("v", [3])

    def other_type():
        with tf.variable_scope("a", reuse=True):
            tf.get_variable("v", [2], dtype=tf.int32)

    def no_shape():
        tf.get_variable("fresh")

    def default_without_name():
        with tf.variable_scope(None):
            pass

    return [error_of(f) for f in (again, missing, other_shape, other_type, no_shape, default_without_name)]


@program(structure=False)
def scope_defaults(tf):
    regularizer = lambda v: tf.reduce_sum(v) * 0.5  # noqa: E731
    with tf.variable_scope("s", initializer=tf.constant_initializer(2.0), regularizer=regularizer, use_resource=True):
        v = tf.get_variable("v", [3])
        with tf.variable_scope("t", initializer=tf.ones_initializer()):
            w = tf.get_variable("w", [2])
    return [v, w, tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)]


@facts
def collections_of_a_graph(tf):
    tf.add_to_collection("c", 1)
    tf.add_to_collections(["c", "d"], 2)
    tf.get_collection_ref("d").append(3)
    with tf.name_scope("s"):
        tf.add_to_collection("named", tf.constant(1, name="x"))
    tf.add_to_collection("named", tf.constant(1, name="t"))
    tf.get_variable("v", [1], collections=["mine"])
    tf.get_variable("local", [1], collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
    graph = tf.get_default_graph()
    keys = sorted(k for k in graph.get_all_collection_keys())
    return (
        tf.get_collection("c"), tf.get_collection("d"), [t.name for t in tf.get_collection("named", "s")], [v.name for v in tf.get_collection("mine")],
        [v.name for v in tf.local_variables()], len(tf.global_variables()), tf.get_collection("nothing"), keys,
    )  # fmt: skip


@facts
def devices_and_colocation(tf):
    seen = []
    with tf.device("/cpu:0"):
        a = tf.constant(1)
        with tf.device("/job:worker"):
            b = tf.constant(1)
        with tf.device(None):
            c = tf.constant(1)
        with tf.colocate_with(b):
            d = tf.constant(1)
        with tf.device(lambda op: "/job:ps" if op.type == "VariableV2" else ""):
            v = tf.get_variable("v", [1], use_resource=False)
    seen += [t.device for t in (a, b, c, d)] + [v.op.device]
    seen += [[g.decode() for g in t.op.colocation_groups()] for t in (a, d)]
    with tf.control_dependencies([a, b.op]), tf.control_dependencies([c]):
        e = tf.constant(1)
        f = tf.identity(e)
        with tf.control_dependencies(None):
            g = tf.constant(1)
    seen += [[o.name for o in t.op.control_inputs] for t in (e, f, g)]
    return seen


# -- shapes and dtypes ------------------------------------------------------------------------------------------------------


@facts
def static_shapes(tf):
    x = tf.placeholder(tf.float32, [None, 3, 4], name="x")
    u = tf.placeholder(tf.float32, name="u")
    n = tf.placeholder(tf.int32, [], name="n")
    shapes = [
        tf.reshape(x, [-1, 12]), tf.reshape(x, [tf.shape(x)[0], 2, 6]), tf.transpose(x), tf.transpose(x, [2, 0, 1]), tf.concat([x, x], 0), tf.concat([x, x], 1),
        tf.stack([x, x], 1), x[0], x[:, 1:], x[..., tf.newaxis], x[:, ::2, -1], tf.expand_dims(x, -1), tf.squeeze(x[:, :1], [1]), tf.tile(x, [2, 2, 1]),
        tf.reduce_sum(x), tf.reduce_mean(x, 1), tf.reduce_max(x, [0, 2], keepdims=True), tf.reduce_sum(u, 0), tf.matmul(x[:, 0], tf.ones([4, 5])), tf.split(x, 2, 2)[1],
        tf.split(x, [1, 2], 1)[1], tf.gather(x, [0, 1], axis=1), tf.gather(x, tf.constant([[0], [1]])), tf.one_hot(tf.constant([1, 2]), 7), tf.zeros([n, 2]),
        tf.zeros(tf.shape(x)), tf.fill([2, 3], 1.0), tf.range(5), tf.range(n), tf.pad(x, [[0, 0], [1, 2], [0, 0]]), tf.where(x > 0), tf.where(x > 0, x, -x), x + u,
        x + tf.ones([4]), x * tf.ones([2, 1, 1]), tf.broadcast_to(x[:1], [5, 3, 4]), tf.unstack(x, axis=1)[0], tf.shape(x), tf.rank(x), tf.size(x), tf.argmax(x, 1),
        tf.nn.softmax(u), tf.boolean_mask(x, [True, False, True], axis=1), tf.nn.top_k(x, 2)[0], tf.cumsum(x, 1), tf.reverse(x, [1]), tf.unique(tf.constant([1, 1]))[0],
        tf.linspace(0.0, 1.0, 5), tf.eye(3), tf.einsum("bij,jk->bik", x, tf.ones([4, 2])), tf.tensordot(x, tf.ones([4, 2]), 1), tf.map_fn(lambda r: r[0], x), tf.placeholder_with_default([1.0], [None]),
    ]  # fmt: skip
    return [str(t.shape) for t in shapes], [t.dtype.name for t in shapes]


@facts
def shape_objects(tf):
    s, t = tf.TensorShape([None, 3]), tf.TensorShape([2, None])
    return [
        str(s), str(tf.TensorShape(None)), str(tf.TensorShape([])), s.merge_with(t).as_list(), s.is_fully_defined(), s.ndims, s.num_elements(), s[1], str(s[0]),
        str(s.concatenate([4])), str(s[1:]), s.is_compatible_with(t), s == t, s.as_list(), error_of(lambda: s.merge_with([2, 4])), error_of(lambda: tf.TensorShape(None).as_list()),
        error_of(lambda: s.assert_is_compatible_with([1, 4])), error_of(lambda: s.with_rank(3)), str(s.with_rank_at_least(1)), bool(tf.TensorShape(None)), str(tf.TensorShape([1, None, 3])[::2]),
        str(tf.broadcast_static_shape(tf.TensorShape([2, 1]), tf.TensorShape([3]))), error_of(lambda: tf.TensorShape([-2])), error_of(lambda: tf.Dimension("a")), repr(tf.Dimension(3) + 2 == 5),
    ]  # fmt: skip


@facts
def dtype_promotion(tf):
    f, i, d, b, s = tf.constant(1.0), tf.constant(1), tf.constant(1.0, tf.float64), tf.constant(True), tf.constant("a")
    pairs = [
        lambda: f + i, lambda: f + d, lambda: f + 1, lambda: i + 1.5, lambda: 1 + f, lambda: i / i, lambda: i // 2, lambda: i % 2, lambda: f + b, lambda: s + "b", lambda: -b,
        lambda: f + np.float64(1), lambda: i + np.int64(1), lambda: f * np.array([1, 2]), lambda: f < i, lambda: b & b, lambda: i & 1, lambda: f & f, lambda: f ** 2, lambda: i ** 2.5,
        lambda: tf.matmul([[f]], [[i]]), lambda: tf.concat([[f], [i]], 0), lambda: tf.stack([f, i]), lambda: tf.stack([f, 1]), lambda: tf.stack([1, f]), lambda: tf.add_n([f, d]),
        lambda: tf.cast(s, tf.int32), lambda: tf.reduce_sum(b), lambda: tf.reduce_mean(i), lambda: tf.sqrt(i), lambda: tf.where(i, f, f), lambda: tf.gather([1.0], f), lambda: tf.range(1, 2.5),
        lambda: tf.constant([1, 2.5]), lambda: tf.constant([1, "a"]), lambda: tf.constant(1.5, tf.int32), lambda: tf.constant(300, tf.uint8), lambda: tf.constant(2**40), lambda: tf.constant([True, 1]),
        lambda: abs(i), lambda: ~b, lambda: ~i, lambda: tf.constant(1j), lambda: tf.complex(f, f), lambda: tf.complex(f, d), lambda: divmod, lambda: tf.div(i, 2), lambda: tf.truediv(i, 2), lambda: f // 2.0,
    ]  # fmt: skip

    def outcome(make):
        try:
            value = make()
        except Exception as error:
            return type(error).__name__
        return value.dtype.name if hasattr(value, "dtype") else "none"

    return [outcome(make) for make in pairs]


@facts
def operators_name_their_nodes(tf):
    a, b = tf.constant([3.0], name="a"), tf.constant([2.0], name="b")
    p, i = tf.constant([True], name="p"), tf.constant([5], name="i")
    made = [a + b, a - b, a * b, a / b, a // b, a % b, a**b, -a, abs(a), a < b, a <= b, a > b, a >= b, p & p, p | p, p ^ p, ~p, 1.0 + a, 1.0 - a, 2.0 / a, 2.0**a, i // 2, i % 2, i / 2, a[0], a[:1], a @ [[1.0]] if False else a]  # fmt: skip
    return [(t.op.name, t.op.type) for t in made]


# -- slicing, reductions, arrays --------------------------------------------------------------------------------------------


@program({"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4)})
def slicing(tf):
    x = tf.placeholder(tf.float32, [None, 3, 4], name="x")
    i = tf.constant(1)
    return [x[0], x[-1], x[:, 1], x[..., 0], x[:, ::-1], x[0, 1:3, ::2], x[:, tf.newaxis, 2], x[i], x[i - 1 :, : i + 1], x[:, :, -2:], x[tf.newaxis, ..., i]]


@program({"x": np.arange(6, dtype=np.int32).reshape(2, 3)})
def array_moves(tf):
    x = tf.placeholder(tf.int32, [2, 3], name="x")
    a, b, c = tf.unstack(x, axis=1)
    parts = tf.split(x, [1, 2], 1)
    return [tf.stack([a, b, c], axis=1), tf.concat(parts, -1), tf.transpose(x), tf.reverse(x, [-1]), tf.tile(x, [1, 2]), tf.gather_nd(x, [[0, 1], [1, 2]]), tf.scatter_nd([[0], [2]], [7, 8], [4]), tf.invert_permutation([2, 0, 1]), tf.meshgrid([1, 2], [3, 4, 5])]  # fmt: skip


@program({"x": np.array([[1.0, -2.0], [3.5, 0.25]], np.float32)})
def reductions(tf):
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    return [tf.reduce_sum(x), tf.reduce_mean(x, 0), tf.reduce_max(x, axis=1, keepdims=True), tf.reduce_min(x, reduction_indices=[0]), tf.reduce_prod(x, -1), tf.reduce_all(x > 0, 1), tf.reduce_any(x > 3), tf.reduce_logsumexp(x, 1), tf.norm(x), tf.nn.moments(x, [0]), tf.argmax(x, 0), tf.argmin(x, 1, output_type=tf.int32), tf.count_nonzero(x, axis=0), tf.reduce_sum(x, keep_dims=True)]  # fmt: skip


@program({"x": np.array([-1.5, 0.0, 0.5, 2.5], np.float32)})
def elementwise(tf):
    x = tf.placeholder(tf.float32, [None], name="x")
    return [tf.nn.relu(x), tf.nn.relu6(x), tf.nn.elu(x), tf.nn.leaky_relu(x), tf.sigmoid(x), tf.tanh(x), tf.nn.softplus(x), tf.nn.softmax(x), tf.nn.log_softmax(x), tf.round(x), tf.sign(x), tf.square(x), tf.clip_by_value(x, -1.0, 1.0), tf.clip_by_norm(x, 1.0), tf.floor(x), tf.maximum(x, 0.0), tf.squared_difference(x, 1.0), tf.nn.l2_loss(x), tf.nn.l2_normalize(x, 0), tf.where(x > 0, x, tf.zeros_like(x)), tf.ones_like(x, tf.int32), tf.zeros_like(x), tf.is_nan(x / x), tf.cumsum(x, exclusive=True, reverse=True)]  # fmt: skip


@program({"x": np.random.RandomState(0).randn(2, 3).astype(np.float32)}, structure=False)
def matrices(tf):
    x = tf.placeholder(tf.float32, [2, 3], name="x")
    return [tf.matmul(x, x, transpose_b=True), tf.tensordot(x, x, [[1], [1]]), tf.einsum("ij,kj->ik", x, x), tf.matrix_transpose(x), tf.linalg.band_part(x, 0, -1), tf.eye(2, batch_shape=[2]), tf.trace(tf.matmul(x, x, transpose_b=True)) if hasattr(tf, "trace") else 0 * x]


@program()
def sequences_and_masks(tf):
    lengths = tf.constant([1, 3, 0])
    data = tf.constant([[1, 2, 3, 4], [5, 6, 7, 8]])
    return [tf.sequence_mask(lengths, 4), tf.sequence_mask(lengths, 4, tf.float32), tf.boolean_mask(data, [True, False]), tf.reverse_sequence(data, [2, 3], seq_axis=1), tf.one_hot([0, 2, -1], 3, on_value=5, off_value=1), tf.dynamic_partition(data, [1, 0], 2), tf.dynamic_stitch([[0], [1]], [[1.0], [2.0]]), tf.segment_sum(data, [0, 0]), tf.unsorted_segment_max(data, [1, 0], 2), tf.searchsorted([[1, 3, 5]], [[2, 3]]), tf.bincount([1, 1, 3]), tf.unique_with_counts([4, 4, 5])]  # fmt: skip


# -- control flow -----------------------------------------------------------------------------------------------------------


@program({"p": True, "x": np.float32(3.0)})
def conditionals(tf):
    p, x = tf.placeholder(tf.bool, [], name="p"), tf.placeholder(tf.float32, [], name="x")
    y = tf.cond(p, lambda: x * 2, lambda: tf.zeros([]))
    z = tf.cond(x > 5, lambda: (x, [y]), lambda: (y, [x]))
    return [y, z, tf.case([(x > 5, lambda: tf.constant(1)), (p, lambda: tf.constant(2))], default=lambda: tf.constant(3))]


@facts
def conditional_shapes(tf):
    p = tf.placeholder(tf.bool, [])
    x = tf.placeholder(tf.float32, [None, 2])
    y = tf.cond(p, lambda: x, lambda: tf.zeros([3, 2]))
    z = tf.cond(p, lambda: tf.zeros([2]), lambda: tf.zeros([3]))
    return [str(y.shape), str(z.shape), error_of(lambda: tf.cond(p, lambda: x, lambda: tf.constant(1))), error_of(lambda: tf.cond(p, lambda: (x, x), lambda: x)), error_of(lambda: tf.cond(True, lambda: x, lambda: x)), error_of(lambda: tf.cond(p, x, lambda: x))]  # fmt: skip


@program({"x": np.float32(1.5)})
def loops(tf):
    x = tf.placeholder(tf.float32, [], name="x")
    i, total = tf.while_loop(lambda i, t: i < 5, lambda i, t: [i + 1, t * x], [tf.constant(0), tf.constant(1.0)], parallel_iterations=2)
    rows = tf.while_loop(lambda i, r: i < 3, lambda i, r: (i + 1, tf.concat([r, [x]], 0)), [tf.constant(0), tf.zeros([1])], [tf.TensorShape([]), tf.TensorShape([None])])[1]
    return [i, total, rows]


@facts
def loop_shapes(tf):
    x = tf.placeholder(tf.float32, [None])
    grow = lambda r: tf.concat([r, [1.0]], 0)  # noqa: E731
    rows = tf.while_loop(lambda r: tf.size(r) < 9, grow, [x])
    return [str(rows.shape), error_of(lambda: tf.while_loop(lambda r: True, grow, [tf.zeros([2])])), error_of(lambda: tf.while_loop(lambda i: i < 3, lambda i: (i, i), [tf.constant(0)])), error_of(lambda: tf.while_loop(lambda: True, lambda: [], [])), error_of(lambda: tf.while_loop(1, lambda i: i, [tf.constant(0)]))]  # fmt: skip


@program({"x": np.arange(6, dtype=np.float32).reshape(3, 2)}, structure=False)
def functional(tf):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    return [tf.map_fn(lambda r: r * 2, x), tf.scan(lambda a, r: a + r, x), tf.foldl(lambda a, r: a + r, x), tf.foldr(lambda a, r: a * 2 + r, x), tf.map_fn(lambda r: (r[0], r), x, dtype=(tf.float32, tf.float32))]


@program(structure=False)
def tensor_arrays(tf):
    ta = tf.TensorArray(tf.float32, 3, element_shape=[2])
    ta = ta.write(0, [1.0, 2.0]).write(2, [5.0, 6.0]).write(1, [3.0, 4.0])
    dynamic = tf.TensorArray(tf.int32, 0, dynamic_size=True, infer_shape=False).write(3, [1, 2]).write(0, 7)
    return [ta.stack(), tf.TensorArray(tf.float32, 2).unstack([[1.0], [2.0]]).concat(), tf.TensorArray(tf.float32, 2, clear_after_read=False).unstack([1.0, 2.0]).gather([1, 1]), dynamic.size(), dynamic.read(3), tf.TensorArray(tf.float32, 2).split([1.0, 2.0, 3.0], [1, 2]).read(1)]  # fmt: skip


# -- gradients --------------------------------------------------------------------------------------------------------------


@program({"x": np.array([1.0, 2.0], np.float32)}, structure=False)
def gradients(tf):
    x = tf.placeholder(tf.float32, [2], name="x")
    w = tf.constant([3.0, 4.0])
    y = tf.reduce_sum(x * w + tf.square(x))
    return [tf.gradients(y, [x, w]), tf.gradients([y, x[0]], x), tf.gradients(y, x, grad_ys=tf.constant(2.0)), tf.gradients(y, x, stop_gradients=[w]), tf.gradients(tf.stop_gradient(x) * x, x)]


@facts
def gradients_that_are_none(tf):
    x, i = tf.constant(1.0), tf.constant(1)
    y = x * 2
    return [
        [g is None for g in tf.gradients(y, [x, tf.constant(1.0)])], [g is None for g in tf.gradients(tf.cast(i, tf.float32), [i])], error_of(lambda: tf.gradients(y, [x], grad_ys=[1.0, 2.0])),
        [g.op.type for g in tf.gradients(y, [tf.constant(1.0)], unconnected_gradients="zero")], error_of(lambda: tf.gradients(tf.py_func(lambda a: a, [x], tf.float32), x)), [g is None for g in tf.gradients(tf.argmax([x, x]), [x])],
        error_of(lambda: tf.gradients(i, [i])),
    ]  # fmt: skip


@program({"x": np.array([1.0, 2.0], np.float32)}, structure=False)
def custom_gradients(tf):
    x = tf.placeholder(tf.float32, [2], name="x")

    @tf.custom_gradient
    def clipped(v):
        return v * v, lambda dy: tf.clip_by_value(dy, 0.0, 1.0) * 10.0

    graph = tf.get_default_graph()
    with graph.gradient_override_map({"Identity": "Neg" if False else "Identity"}):
        same = tf.identity(x)
    return [clipped(x), tf.gradients(clipped(x), x), tf.gradients(same, x), tf.hessians(tf.reduce_sum(x**3), x)]


@program({"i": np.array([0, 2, 0], np.int32)}, structure=False)
def sparse_gradients(tf):
    i = tf.placeholder(tf.int32, [None], name="i")
    table = tf.get_variable("table", initializer=np.arange(6, dtype=np.float32).reshape(3, 2), use_resource=False)
    rows = tf.gather(table, i)
    slices = tf.gradients(tf.reduce_sum(rows * rows), table)[0]
    return [slices, tf.convert_to_tensor(slices), tf.nn.embedding_lookup(table, i)]


# -- strings, sparse, random ----------------------------------------------------------------------------------------------------


@program({"s": np.array([b"a b", b"", b"c,d e"], object)})
def strings(tf):
    s = tf.placeholder(tf.string, [None], name="s")
    return [tf.string_join([s, "x"], "-"), tf.string_split(s), tf.substr(s, 0, 1), tf.strings.length(s), tf.as_string([1.5, 2.0], precision=2), tf.string_to_number(["1", "2.5"]), tf.string_to_hash_bucket_fast(s, 100), tf.regex_replace(s, "[a-c]", "_"), tf.reduce_join(s, 0), tf.strings.lower("ABC"), tf.decode_raw("\x01\x00", tf.int16), tf.encode_base64("hi"), tf.equal(s, "")]  # fmt: skip


@program(structure=False)
def sparse(tf):
    st = tf.SparseTensor([[0, 1], [2, 0]], [1.0, 2.0], [3, 2])
    return [st, st.values * 2, tf.sparse.to_dense(st) if hasattr(tf, "sparse") else st, tf.sparse_reorder(st) if hasattr(tf, "sparse_reorder") else st, str(st.get_shape()) and st.dense_shape]


@program()
def seeded_random(tf):
    tf.set_random_seed(42)
    return [tf.random_uniform([3]), tf.random_normal([3], seed=1), tf.truncated_normal([3], stddev=2.0), tf.random_uniform([3], 0, 10, tf.int32, seed=7), tf.random_shuffle([1, 2, 3, 4], seed=3), tf.multinomial([[0.0, 1.0]], 4, seed=5), tf.random_gamma([2], 1.5, seed=9)]


@program()
def op_seed_only(tf):
    return [tf.random_uniform([3], seed=11), tf.random_normal([2], 1.0, 2.0, seed=12)]


@program(structure=False)
def initializers(tf):
    tf.set_random_seed(1)
    made = [tf.zeros_initializer(), tf.ones_initializer(), tf.constant_initializer([1, 2, 3, 4]), tf.random_uniform_initializer(-1, 1, seed=2), tf.random_normal_initializer(seed=3), tf.truncated_normal_initializer(seed=4), tf.glorot_uniform_initializer(seed=5), tf.glorot_normal_initializer(seed=6), tf.variance_scaling_initializer(seed=7), tf.orthogonal_initializer(seed=8)]  # fmt: skip
    return [m([2, 2]) for m in made[:-1]]
