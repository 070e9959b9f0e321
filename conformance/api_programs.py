"""Small TF1 programs that exercise the API: each is a function of `tf`, run under both packages by test_api.py.

    @program(feed)      builds a graph and returns fetches: equal values, and equal nodes (names, types, wiring)
    @facts              returns plain Python values about what was built: equal values
    @sequence           runs sessions itself and returns what it saw: equal values
"""

from __future__ import annotations

import collections
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


# -- sessions -----------------------------------------------------------------------------------------------------------------

Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024


@sequence
def fetch_structures(tf):
    x, op = tf.constant([1.0, 2.0], name="x"), tf.no_op(name="op")
    with tf.Session() as sess:
        return [sess.run(f) for f in (x, [x], (x, op), {"a": x, "b": [op, {"c": x}]}, Pair(x, [x, x]), "x:0", "op", [], {}, [[], ()], tf.SparseTensor([[0]], x[:1], [1]))]


@sequence
def feeds(tf):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    y = x * 2.0
    with tf.Session() as sess:
        good = [sess.run(y, {x: v}) for v in ([[1, 2]], np.ones((3, 2)), [(1.5, 2)], np.zeros((0, 2)))]
        return good + [sess.run(y, {"x:0": [[1, 2]]}), sess.run([x, y], {y: [[5.0, 5.0]], x: [[1, 1]]}), sess.run(y, {y: np.ones((4, 2))})]


@sequence
def feed_errors(tf):
    x, s, i = tf.placeholder(tf.float32, [2], name="x"), tf.placeholder(tf.string, name="s"), tf.placeholder(tf.int32, name="i")
    c = tf.constant(1.0)
    with tf.Session() as sess:
        cases = [
            {x: [1, 2, 3]}, {x: "a"}, {x: None}, {x: [[1], [2, 3]]}, {"nope:0": 1}, {"x": [1, 2]}, {x: c}, {i: 1.5}, {i: 2**40}, {i: "1"}, {s: 1}, {3: 1}, [x], {x: np.array([1, None])},
            {x.op: [1, 2]}, {(x, i): (np.ones(2), 3)}, {(x, i): (np.ones(2),)}, {i: True}, {i: np.int64(3)}, {i: [1.5]}, {s: b"a"},
        ]  # fmt: skip
        return [error_of(lambda: sess.run([t for t in (x, s, i) if isinstance(case, dict) and t in case] or c, case)) for case in cases] + [error_of(lambda: sess.run(x))]


@sequence
def fetch_errors(tf):
    x = tf.constant(1.0, name="x")
    other = tf.Graph()
    with other.as_default():
        foreign = tf.constant(1)
    with tf.Session() as sess:
        return [error_of(lambda: sess.run(f)) for f in (None, 3, "nope", "nope:0", "x:7", "x:a", foreign, foreign.op, [x, None], {"a": 3}, object(), tf.float32)]


@sequence
def sessions_and_graphs(tf):
    out = [error_of(lambda: tf.Session(graph=3)), error_of(lambda: tf.Session(3)), error_of(lambda: tf.Session(config=3)), error_of(lambda: tf.Session("nonsense://x"))]
    x = tf.constant(2.0)
    out.append(error_of(lambda: x.eval()))
    with tf.Session() as sess:
        out += [x.eval(), sess.graph is tf.get_default_graph(), tf.get_default_session() is sess]
        out.append((x + 1).eval(session=sess))
    out.append(error_of(lambda: sess.run(x)))
    out.append(tf.get_default_session() is None)
    with tf.Graph().as_default() as g:
        y = tf.constant(3)
        with tf.Session() as inner:
            out += [inner.run(y), inner.graph is g, error_of(lambda: inner.run(x)), error_of(lambda: x + tf.cast(y, tf.float32))]
        g.finalize()
        out.append(error_of(lambda: tf.constant(1)))
    sess = tf.InteractiveSession()
    out.append(x.eval())
    sess.close()
    return out


@sequence
def variables(tf):
    out = []
    for use_resource in (False, True):
        v = tf.get_variable(f"v{use_resource}", initializer=[1.0, 2.0], use_resource=use_resource)
        with tf.Session() as sess:
            out += [error_of(lambda: sess.run(v)), [n.decode() for n in sess.run(tf.report_uninitialized_variables([v]))]]
            sess.run(v.initializer)
            out += [sess.run(v), sess.run(tf.assign(v, [3.0, 4.0])), sess.run(v.assign_add([1.0, 1.0])), sess.run(tf.assign_sub(v, [1.0, 0.0])), sess.run(tf.scatter_add(v, [0], [5.0])), sess.run(v.read_value())]
            out += [sess.run(tf.is_variable_initialized(v)), error_of(lambda: tf.assign(v, [1.0])), error_of(lambda: tf.assign(v, ["a", "b"])), v.shape.as_list(), v.dtype.name]
            v.load([7.0, 8.0], sess)
            out += [sess.run(v), v.eval(sess), sess.run(v[0]), sess.run(v + 1)]
    return out


@sequence
def initialisation_order(tf):
    a = tf.get_variable("a", initializer=2.0)
    b = tf.Variable(a.initialized_value() * 3, name="b")
    c = tf.Variable(lambda: tf.constant(4.0), name="c")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        return [*sess.run([a, b, c]), [v.name for v in tf.global_variables()], b.initial_value.name, c.op.name]


@sequence
def queues(tf):
    q = tf.FIFOQueue(3, [tf.int32, tf.string], [[], []], names=["n", "s"])
    r = tf.PaddingFIFOQueue(4, [tf.int32], [[None]])
    p = tf.PriorityQueue(4, [tf.string], [[]])
    with tf.Session() as sess:
        out = [sess.run(q.size())]
        sess.run(q.enqueue({"n": 1, "s": "a"}))
        sess.run(q.enqueue_many({"n": [2, 3], "s": ["b", "c"]}))
        out += [sess.run(q.dequeue()), sess.run(q.dequeue_many(2)), sess.run(q.size())]
        for row in ([1], [2, 3]):
            sess.run(r.enqueue([row]))
        out.append(sess.run(r.dequeue_many(2)))
        for priority, text in ((3, "c"), (1, "a"), (2, "b")):
            sess.run(p.enqueue((np.int64(priority), text)))
        out += [sess.run(p.dequeue()), sess.run(p.dequeue())]
        sess.run(q.close())
        out += [error_of(lambda: sess.run(q.dequeue())), error_of(lambda: sess.run(q.enqueue({"n": 1, "s": "a"}))), sess.run(q.is_closed())]
        out += [error_of(lambda: q.enqueue([1])), error_of(lambda: tf.FIFOQueue(1, [tf.int32], [[], []])), q.name, [d.name for d in q.dtypes], q.names]
    return out


@sequence
def python_functions(tf):
    x = tf.constant([1.0, 2.0])
    good = tf.py_func(lambda a: a * 2, [x], tf.float32)
    several = tf.py_func(lambda a, b: (a + b, np.int64(7)), [x, x], [tf.float32, tf.int64])
    nothing = tf.py_func(lambda: None, [], [])
    text = tf.py_func(lambda: "text", [], tf.string)

    def raising(kind):
        def function():
            raise kind("why")

        return tf.py_func(function, [], tf.float32)

    with tf.Session() as sess:
        out = [sess.run(good), sess.run(several), sess.run(text), sess.run(nothing) is None, str(good.shape)]
        out += [error_of(lambda: sess.run(raising(k))) for k in (ValueError, TypeError, StopIteration, MemoryError, NotImplementedError, KeyError, RuntimeError, ZeroDivisionError)]
        return out + [error_of(lambda: sess.run(tf.py_func(lambda: np.float64(1), [], tf.float32)))]


@sequence
def callables_and_partial_runs(tf):
    a, b = tf.placeholder(tf.float32, [], name="a"), tf.placeholder(tf.float32, [], name="b")
    c = a * 2
    d = c + b
    with tf.Session() as sess:
        call = sess.make_callable([c, d], [a, b])
        out = [call(1.0, 2.0), sess.make_callable(c, [a])(4.0), sess.make_callable(tf.no_op())()]
        handle = sess.partial_run_setup([c, d], [a, b])
        out += [sess.partial_run(handle, c, {a: 3.0}), sess.partial_run(handle, d, {b: 1.0})]
        out += [error_of(lambda: sess.partial_run(handle, d, {b: 1.0})), error_of(lambda: sess.partial_run_setup([], [])), error_of(lambda: sess.make_callable(c, a)), error_of(lambda: call(1.0))]
    return out


@sequence
def training(tf):
    out = []
    for make in (lambda: tf.train.GradientDescentOptimizer(0.1), lambda: tf.train.AdamOptimizer(0.1), lambda: tf.train.MomentumOptimizer(0.1, 0.9)):
        with tf.Graph().as_default():
            w = tf.get_variable("w", initializer=[1.0, 2.0])
            step = tf.train.get_or_create_global_step()
            loss = tf.reduce_sum(tf.square(w - 3.0))
            optimizer = make()
            train = optimizer.minimize(loss, global_step=step)
            names = [v.name for v in tf.global_variables()]
            with tf.Session() as sess:
                sess.run(tf.global_variables_initializer())
                for _ in range(3):
                    sess.run(train)
                out += [sess.run([w, step, loss]), names, train.name, optimizer.get_slot_names()]
    return out


@sequence
def graph_surgery(tf):
    x = tf.placeholder(tf.float32, [2], name="x")
    tf.multiply(x, 3.0, name="y")
    data = tf.get_default_graph().as_graph_def()
    out = []
    with tf.Graph().as_default() as g:
        z = tf.constant([1.0, 2.0], name="z")
        (y,) = tf.import_graph_def(data, {"x:0": z}, ["y:0"], name="in")
        tf.import_graph_def(data)
        out += [sorted(op.name for op in g.get_operations()), y.name]
        out += [error_of(lambda: tf.import_graph_def(data, {"nope:0": z})), error_of(lambda: tf.import_graph_def(data, return_elements=["nope"])), error_of(lambda: tf.import_graph_def(data, {"x:0": tf.constant(1)})), error_of(lambda: tf.import_graph_def(3)), error_of(lambda: tf.import_graph_def(data, {"x:0": z}, name=""))]
        with tf.Session() as sess:
            out.append(sess.run(y))
        out += [g.get_tensor_by_name("in/y:0").op.type, error_of(lambda: g.get_tensor_by_name("in/y")), error_of(lambda: g.get_operation_by_name("in/y:0")), error_of(lambda: g.get_operation_by_name("nope")), error_of(lambda: g.get_tensor_by_name("in/y:5")), error_of(lambda: g.as_graph_element(3))]
    return out


@sequence
def graph_defs(tf):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    y = tf.nn.relu(x, name="y")
    g = tf.get_default_graph()
    op = y.op
    return [
        [(n.name, n.op, list(n.input), sorted(n.attr)) for n in g.as_graph_def().node], sorted(g.as_graph_def(add_shapes=True).node[1].attr), g.version > 0, op.get_attr("T").name if hasattr(op.get_attr("T"), "name") else str(op.get_attr("T")),
        error_of(lambda: op.get_attr("nope")), op.type, [t.name for t in op.inputs], [c.name for c in x.consumers()], op.node_def.op, repr(y), str(y), repr(op), g.is_fetchable(y), g.is_feedable(y),
    ]  # fmt: skip


@sequence
def handles(tf):
    x = tf.constant([1.0, 2.0])
    h = tf.get_session_handle(x * 2)
    with tf.Session() as sess:
        handle = sess.run(h)
        holder, tensor = tf.get_session_tensor(handle.handle, tf.float32)
        out = [handle.eval(), sess.run(tensor + 1, {holder: handle.handle}), sess.run(tensor, {holder: handle.handle})]
        handle.delete()
        return [*out, error_of(lambda: sess.run(tensor, {holder: handle.handle}))]


@facts
def tensors_in_python(tf):
    x = tf.constant([1.0, 2.0])
    u = tf.placeholder(tf.float32)
    return [error_of(lambda: bool(x)), error_of(lambda: len(x)), error_of(lambda: len(u)), error_of(lambda: u.shape.as_list()), error_of(lambda: x["a"]), error_of(lambda: x[1.5]), error_of(lambda: x[0, 0]), error_of(lambda: x[5]), error_of(lambda: np.array(x)), error_of(lambda: float(x)), x == x, x != x, x in {x}, error_of(lambda: x.set_shape([3])), hash(x) == hash(x), tf.is_tensor(x), tf.is_tensor(1)]  # fmt: skip


@facts
def static_values(tf):
    x = tf.placeholder(tf.float32, [2, None])
    get = tf.get_static_value
    return [get(tf.constant([1, 2])), get(tf.shape(tf.zeros([2, 3]))), get(tf.shape(x)), get(tf.range(3)), get(tf.constant(1) + 1), get(tf.rank(x)), get(tf.fill([2], 1)), get(tf.stack([1, 2])), get(tf.cast(1.5, tf.int32)), get(tf.concat([[1], [2]], 0)), get(x)]  # fmt: skip


@facts
def helpers(tf):
    a, b = tf.constant(1, name="a"), tf.constant(2, name="b")
    g = tf.group(a, b, name="g")
    t = tf.tuple([a, b], name="t")
    with tf.control_dependencies([g]):
        n = tf.no_op(name="n")
    return [g.type, [c.name for c in g.control_inputs], [x.name for x in t], n.control_inputs[0].name, tf.identity_n([a, b])[1].name, error_of(lambda: tf.group(1)), tf.group().type, tf.convert_to_tensor([a, b]).name, tf.convert_to_tensor([1.0, 2.0], name="c").name, error_of(lambda: tf.convert_to_tensor(a, tf.float32)), tf.as_dtype("float32").name, error_of(lambda: tf.as_dtype("nope"))]  # fmt: skip


@sequence
def checks(tf):
    x = tf.placeholder(tf.float32, [None], name="x")
    with tf.Session() as sess:

        def run(*deps):
            def go(value):
                with tf.control_dependencies([d for d in deps if d is not None]):
                    return sess.run(tf.identity(x), {x: value})

            return go

        positive = run(tf.assert_positive(x))
        equal = run(tf.assert_equal(x, [1.0, 2.0], message="mine"))
        out = [error_of(lambda: positive([1.0])), error_of(lambda: positive([-1.0])), error_of(lambda: equal([1.0, 2.0])), error_of(lambda: equal([1.0, 3.0]))]
        out += [error_of(lambda: tf.assert_rank(x, 2)), error_of(lambda: tf.assert_equal(1, 2)), error_of(lambda: tf.assert_type(x, tf.int32)), error_of(lambda: tf.assert_less([3], [2])), error_of(lambda: tf.assert_scalar(x))]
        check = tf.check_numerics(x, "bad")
        return [*out, error_of(lambda: sess.run(check, {x: [np.nan]})), error_of(lambda: sess.run(tf.ensure_shape(x, [2]), {x: [1.0]})), error_of(lambda: sess.run(tf.Assert(x[0] > 0, [x]), {x: [-1.0]}))]


# -- networks and training --------------------------------------------------------------------------------------------------


@program({"x": np.random.RandomState(1).rand(2, 6, 6, 3).astype(np.float32)}, structure=False)
def convolutions(tf):
    x = tf.placeholder(tf.float32, [None, 6, 6, 3], name="x")
    w = tf.constant(np.random.RandomState(2).randn(3, 3, 3, 4).astype(np.float32))
    conv = tf.nn.conv2d(x, w, [1, 2, 2, 1], "SAME")
    return [
        conv, tf.nn.conv2d(x, w, [1, 1, 1, 1], "VALID", dilations=[1, 2, 2, 1]), tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"), tf.nn.avg_pool(x, [1, 3, 3, 1], [1, 1, 1, 1], "VALID"),
        tf.nn.bias_add(conv, [1.0, 2.0, 3.0, 4.0]), tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"), tf.nn.conv2d_transpose(conv, w, [2, 6, 6, 3], [1, 2, 2, 1]), tf.nn.moments(x, [0, 1, 2]),
        tf.nn.batch_normalization(x, 0.5, 2.0, 0.1, 1.5, 1e-3), tf.nn.lrn(x), tf.space_to_depth(x, 2), tf.gradients(conv, w)[0],
    ]  # fmt: skip


@program({"x": np.random.RandomState(3).randn(3, 4).astype(np.float32), "y": np.array([0, 3, 1], np.int32)}, structure=False)
def cross_entropies(tf):
    x, y = tf.placeholder(tf.float32, [None, 4], name="x"), tf.placeholder(tf.int32, [None], name="y")
    onehot = tf.one_hot(y, 4)
    return [
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x), tf.nn.softmax_cross_entropy_with_logits_v2(labels=onehot, logits=x), tf.nn.sigmoid_cross_entropy_with_logits(labels=onehot, logits=x),
        tf.nn.weighted_cross_entropy_with_logits(onehot, x, 2.0), tf.nn.in_top_k(x, y, 2), tf.nn.top_k(x, 2),
    ]  # fmt: skip


@program({"x": np.ones((4, 5), np.float32)}, structure=False)
def dropout_with_seeds(tf):
    tf.set_random_seed(3)
    x = tf.placeholder(tf.float32, [4, 5], name="x")
    return [tf.nn.dropout(x, keep_prob=0.5, seed=1), tf.nn.dropout(x, rate=0.3, seed=2), tf.nn.dropout(x, 0.5, noise_shape=[4, 1], seed=4), tf.nn.dropout(x, 1.0)]


@sequence
def learning_rates(tf):
    step = tf.placeholder(tf.int32, [], name="step")
    rates = [
        tf.train.exponential_decay(0.1, step, 10, 0.5), tf.train.exponential_decay(0.1, step, 10, 0.5, staircase=True), tf.train.piecewise_constant(step, [5, 10], [1.0, 0.5, 0.1]), tf.train.polynomial_decay(1.0, step, 20, 0.1),
        tf.train.inverse_time_decay(1.0, step, 5, 0.5), tf.train.natural_exp_decay(1.0, step, 5, 0.5), tf.train.cosine_decay(1.0, step, 20),
    ]  # fmt: skip
    with tf.Session() as sess:
        return [sess.run(rates, {step: s}) for s in (0, 7, 15, 30)]


@sequence
def moving_averages(tf):
    v = tf.get_variable("v", initializer=0.0, use_resource=False)
    ema = tf.train.ExponentialMovingAverage(0.9, zero_debias=False)
    with tf.control_dependencies([tf.assign_add(v, 1.0)]):
        update = ema.apply([v])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        out = []
        for _ in range(3):
            sess.run(update)
            out.append(sess.run([v, ema.average(v)]))
        return [out, ema.average_name(v), [x.name for x in tf.moving_average_variables()], sorted(ema.variables_to_restore())]


@sequence
def clipping(tf):
    grads = [tf.constant([3.0, 4.0]), None, tf.IndexedSlices(tf.constant([[6.0, 8.0]]), tf.constant([1]), tf.constant([3, 2]))]
    clipped, norm = tf.clip_by_global_norm(grads, 5.0)
    with tf.Session() as sess:
        return [sess.run([clipped[0], clipped[2].values, norm]), clipped[1] is None, sess.run(tf.global_norm(grads)), sess.run(tf.clip_by_average_norm(tf.constant([3.0, 4.0]), 0.5))]


@sequence
def optimizer_steps(tf):
    x = tf.get_variable("x", initializer=[1.0, -1.0], use_resource=False)
    frozen = tf.get_variable("frozen", initializer=1.0, trainable=False)
    loss = tf.reduce_sum(tf.square(x) * frozen)
    optimizer = tf.train.AdagradOptimizer(0.5)
    pairs = optimizer.compute_gradients(loss)
    train = optimizer.apply_gradients([(g * 2, v) for g, v in pairs], name="apply")
    out = [[v.name for _, v in pairs], train.name, optimizer.get_name(), optimizer.get_slot(x, "accumulator").name]
    out += [error_of(lambda: optimizer.apply_gradients([])), error_of(lambda: optimizer.apply_gradients([(None, x)])), error_of(lambda: optimizer.minimize(tf.constant(1)))]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(train)
        return [*out, sess.run([x, frozen, optimizer.get_slot(x, "accumulator")])]


@sequence
def coordinators(tf):
    coordinator = tf.train.Coordinator()
    out = [coordinator.should_stop()]
    with coordinator.stop_on_exception():
        raise ValueError("inside")
    out += [coordinator.should_stop(), error_of(lambda: coordinator.join([]))]
    coordinator.clear_stop()
    return [*out, coordinator.should_stop(), coordinator.wait_for_stop(0.01)]


@facts
def partitioned_variables(tf):
    v = tf.get_variable("v", [5, 2], partitioner=tf.fixed_size_partitioner(2))
    with tf.variable_scope("s", partitioner=tf.fixed_size_partitioner(3, axis=1)):
        w = tf.get_variable("w", [2, 4])
    return [[p.name for p in v], [p.shape.as_list() for p in v], v.as_tensor().shape.as_list(), [p.shape.as_list() for p in w], tf.convert_to_tensor(w).name, len(tf.global_variables())]


@facts
def local_and_custom_variables(tf):
    local = tf.get_local_variable("l", [1])
    seen = []

    def creator(next_creator, **kwargs):
        seen.append(kwargs["name"])
        return next_creator(**kwargs)

    with tf.variable_creator_scope(creator):
        made = tf.Variable(1.0, name="made")

    def getter(getter, name, *args, **kwargs):
        return getter(name + "_renamed", *args, **kwargs)

    with tf.variable_scope("s", custom_getter=getter):
        renamed = tf.get_variable("v", [1])
    return [local.name, local in tf.local_variables(), local.trainable, seen, made.name, renamed.name, [v.name for v in tf.trainable_variables()]]


@facts
def control_of_variables(tf):
    v = tf.get_variable("v", initializer=1.0, use_resource=False)
    r = tf.get_variable("r", initializer=1.0, use_resource=True)
    with tf.control_dependencies([v, r, v.initializer]):
        op = tf.no_op()
    doubled = v * 2 + r
    return [sorted(c.name for c in op.control_inputs), doubled.op.type, [t.name for t in doubled.op.inputs], v.value().name, r.value().name, v.initializer.name, r.initializer.name, v.op.type, r.op.type, str(v.shape), v.dtype == v.dtype.base_dtype, tf.is_tensor(v)]


@program({"x": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)}, structure=False)
def linear_algebra(tf):
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    return [tf.matrix_inverse(x), tf.matrix_determinant(x), tf.cholesky(tf.matmul(x, x, transpose_a=True)), tf.matrix_solve(x, [[1.0], [2.0]]), tf.diag([1.0, 2.0]), tf.matrix_diag_part(x), tf.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]), tf.linalg.norm(x, axis=1)]


@sequence
def lookups_and_summaries(tf):
    out = []
    if hasattr(tf, "lookup") and hasattr(tf.lookup, "StaticHashTable"):
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
        found = table.lookup(tf.constant(["a", "c"]))
        with tf.Session() as sess:
            out.append(error_of(lambda: sess.run(found)))
            sess.run(tf.tables_initializer())
            out += [sess.run(found), sess.run(table.size())]
    return out


@sequence
def tracing(tf):
    with tf.device("/cpu:0"):
        y = tf.matmul(tf.ones([4, 4]), tf.ones([4, 4]), name="y")
    metadata = tf.RunMetadata()
    with tf.Session() as sess:
        sess.run(y, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True), run_metadata=metadata)
    return [len(metadata.partition_graphs), len(metadata.step_stats.dev_stats) >= 1]
