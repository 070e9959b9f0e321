"""Programs about networks and training: layers, optimizers, moving averages, checkpoints. See api_programs.py."""

from __future__ import annotations

import numpy as np

from conformance.api_programs import error_of, facts, program, sequence


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
