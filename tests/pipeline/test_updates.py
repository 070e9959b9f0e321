"""Updates of variables that are computed where they go, and sums of duplicate rows: `optimise.updates` and `optimise.duplicates`."""

import numpy as np
import pytest

import penstock as tf

ROWS, WIDTH = 2048, 16
_PLAIN = tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=tf.OptimizerOptions(opt_level=-1)))


def _data(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


def _types(sess, fetches, feeds):
    return [op.type for part in sess.explain(fetches, feeds).partitions.values() for op in part]


def _embedding(use_resource, optimizer):
    with tf.variable_scope("scope", use_resource=use_resource):
        table = tf.get_variable("table", initializer=_data(ROWS, WIDTH))
    ids = tf.placeholder(tf.int32, [50])
    loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, ids)))
    return ids, optimizer().minimize(loss)


def _trained(config, use_resource, optimizer):
    """All variables after some steps, and the types of the nodes that ran."""
    with tf.Graph().as_default(), tf.Session(config=config) as sess:
        ids, train = _embedding(use_resource, optimizer)
        sess.run(tf.global_variables_initializer())
        feeds = {ids: np.arange(50, dtype=np.int32) % 23 * 7}
        for _ in range(8):
            sess.run(train, feeds)
        types = _types(sess, train, feeds)
        return sess.run(tf.global_variables()), types


@pytest.mark.parametrize("use_resource", [False, True])
def test_sparse_adam_makes_no_copies_of_its_variables(use_resource):
    got, types = _trained(None, use_resource, lambda: tf.train.AdamOptimizer(0.1))
    want, plain = _trained(_PLAIN, use_resource, lambda: tf.train.AdamOptimizer(0.1))
    end = "VariableOp" if use_resource else ""
    assert types.count("_AssignMul" + end) == 2 and types.count("_AssignSubRatio" + end) == 1
    assert types.count("Sqrt") == 1  # of one number, for the rate
    assert "_SumOfDuplicates" in types and "Unique" not in types
    assert not any(t.startswith("_AssignMul") or t == "_SumOfDuplicates" for t in plain)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


OPTIMIZERS = {
    "Adagrad": lambda: tf.train.AdagradOptimizer(0.1), "Momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9), "Ftrl": lambda: tf.train.FtrlOptimizer(0.1),
}  # fmt: skip


def test_duplicate_rows_are_summed_by_one_node():
    got, types = _trained(None, False, lambda: tf.train.RMSPropOptimizer(0.1))
    want, _ = _trained(_PLAIN, False, lambda: tf.train.RMSPropOptimizer(0.1))
    assert "_SumOfDuplicates" in types and "Unique" not in types and "UnsortedSegmentSum" not in types
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("deterministic", [False, True])  # then updates are machine code at once
@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_sum_duplicate_rows_themselves(monkeypatch, name, use_resource, deterministic):
    if deterministic:
        monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")
    got, types = _trained(None, use_resource, OPTIMIZERS[name])
    want, _ = _trained(_PLAIN, use_resource, OPTIMIZERS[name])
    assert f"_SumAnd{'Resource' * use_resource}SparseApply{name}" in types and not {"Unique", "UnsortedSegmentSum"} & set(types)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("optimizer, kind", [(tf.train.AdagradOptimizer, "_SumAndSparseApplyAdagrad"), (tf.train.RMSPropOptimizer, "_SumOfDuplicates")])
def test_sums_behind_control_dependencies(optimizer, kind):
    """As around an optimizer with moving averages: constants wait as well. What waited still does."""
    table, before = tf.Variable(_data(60, 3), use_resource=False), tf.Variable(0.0, use_resource=False)
    ids = tf.placeholder(tf.int32, [None])
    loss = tf.reduce_sum(tf.square(tf.gather(table, ids)))
    with tf.control_dependencies([tf.assign_add(before, 1.0)]):
        train = optimizer(0.1).minimize(loss)
    feeds = {ids: [3, 1, 3, 1, 59]}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        types = _types(sess, train, feeds)
        assert kind in types and "Unique" not in types
        for _ in range(3):
            sess.run(train, feeds)
        assert sess.run(before) >= 3


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_several_tables_with_the_same_indices(monkeypatch, name):
    """Their sums share one node that finds the indices; their updates are one call. One table is too large for that."""
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")

    def trained(config):
        with tf.Graph().as_default(), tf.Session(config=config) as sess:
            tables = [tf.get_variable(f"t{i}", initializer=_data(60, width, seed=i), use_resource=False) for i, width in enumerate((3, 1, 800, 8))]
            ids = tf.placeholder(tf.int32, [40, 2])
            losses = [tf.reduce_sum(tf.square(tf.gather(t, ids[:, 1]))) for t in tables]
            train = OPTIMIZERS[name]().minimize(tf.add_n(losses))
            sess.run(tf.global_variables_initializer())
            for step in range(8):
                sess.run(train, {ids: np.random.RandomState(step).randint(0, 60, (40, 2))})
            return sess.run(tf.global_variables())

    for a, b in zip(trained(None), trained(_PLAIN), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("given, rows, message", [
    ([3, 1, 60, 1], 4, "Index 60 at offset 2 in indices is out of range"), ([3, -1, 3, 3], 4, "Index -1 at offset 1 in indices is out of range"),
    ([3, 1, 3], 4, r"data.shape = \[4,3\] does not start with segment_ids.shape = \[3\]"),
])  # fmt: skip
def test_updates_that_sum_report_what_is_wrong(given, rows, message):
    table, accum = (tf.Variable(_data(60, 3), use_resource=False) for _ in range(2))
    ids, gradient = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None, 3])
    y, idx = tf.unique(ids)
    update = tf.raw_ops.SparseApplyAdagrad(
        var=table._ref(), accum=accum._ref(), lr=0.1, grad=tf.unsorted_segment_sum(gradient, idx, tf.shape(y)[0]), indices=y
    )
    feeds = {ids: given, gradient: _data(rows, 3)}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert "_SumAndSparseApplyAdagrad" in _types(sess, update.op, feeds)
        for _ in range(5):
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                sess.run(update.op, feeds)
        np.testing.assert_array_equal(sess.run(table), _data(60, 3))


def test_a_sum_that_others_read_stays():
    table, accum = (tf.Variable(np.abs(_data(60, 3)) + 1, use_resource=False) for _ in range(2))
    ids, gradient = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None, 3])
    y, idx = tf.unique(ids)
    total = tf.unsorted_segment_sum(gradient, idx, tf.shape(y)[0])
    update = tf.raw_ops.SparseApplyAdagrad(var=table._ref(), accum=accum._ref(), lr=0.1, grad=total, indices=y)
    feeds = {ids: [3, 1, 3, 1], gradient: np.ones((4, 3), np.float32)}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert "_SumAndSparseApplyAdagrad" not in _types(sess, [update.op, total], feeds)
        _, summed = sess.run([update.op, total], feeds)
        np.testing.assert_array_equal(summed, np.full((2, 3), 2, np.float32))


def test_a_sum_by_the_different_numbers_themselves_stays():
    """`y` says where the rows go, not which of the different numbers each row has."""
    table, accum = (tf.Variable(np.ones((3, 1), np.float32), use_resource=False) for _ in range(2))
    ids, gradient = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None, 1])
    y, _ = tf.unique(ids)
    total = tf.unsorted_segment_sum(gradient, y, tf.shape(y)[0])
    update = tf.raw_ops.SparseApplyAdagrad(var=table._ref(), accum=accum._ref(), lr=0.1, grad=total, indices=y)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(update.op, {ids: [2, 0, 1], gradient: [[1], [2], [3]]})
        np.testing.assert_array_equal(sess.run(accum), [[10], [2], [5]])


def test_indices_that_change_before_the_update_are_those_of_the_sum():
    """The different numbers are found, then the variable with the numbers changes, then comes the update."""
    table, accum = (tf.Variable(np.ones((4, 1), np.float32), use_resource=False) for _ in range(2))
    ids = tf.Variable([1, 2, 1], use_resource=False)
    y, idx = tf.unique(ids.value())
    total = tf.unsorted_segment_sum(tf.ones((3, 1)), idx, tf.shape(y)[0])
    with tf.control_dependencies([y]):
        change = tf.assign(ids, [0, 0, 0])
    with tf.control_dependencies([change]):
        update = tf.raw_ops.SparseApplyAdagrad(var=table._ref(), accum=accum._ref(), lr=0.1, grad=total, indices=y)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(update.op)
        np.testing.assert_array_equal(sess.run(accum), [[1], [5], [2], [1]])


def test_a_product_that_others_read_stays():
    variable = tf.Variable(_data(ROWS, WIDTH), use_resource=False)
    product = variable * tf.constant(0.5)
    update = tf.assign(variable, product)
    with tf.Session() as sess:
        sess.run(variable.initializer)
        assert "_AssignMul" not in _types(sess, [update, product], {})
        for step in range(1, 8):
            _, seen = sess.run([update.op, product])
            np.testing.assert_array_equal(seen, _data(ROWS, WIDTH) * np.float32(0.5**step))
        assert "_AssignMul" in _types(sess, update.op, {})


def test_another_variable_times_a_number_is_no_update_in_place():
    one, other = (tf.Variable(_data(ROWS, WIDTH, seed=seed), use_resource=False) for seed in (1, 2))
    update = tf.assign(one, other * tf.constant(0.5))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert "_AssignMul" not in _types(sess, update.op, {})
        sess.run(update.op)
        np.testing.assert_array_equal(sess.run(one), _data(ROWS, WIDTH, seed=2) * np.float32(0.5))


@pytest.mark.parametrize("use_resource", [False, True])
def test_who_waits_for_a_read_still_does(use_resource):
    """The variable is read, then changed by somebody who waits for that, then assigned what was read."""
    variable = tf.Variable(_data(ROWS, WIDTH), use_resource=use_resource)
    product = variable.read_value() * tf.constant(0.5)
    with tf.control_dependencies([tf.group(product)]):
        change = tf.assign_add(variable, np.ones((ROWS, WIDTH), np.float32))
    with tf.control_dependencies([change]):
        update = tf.assign(variable, product)
    with tf.Session() as sess:
        sess.run(variable.initializer)
        for step in range(1, 8):
            sess.run(update.op)
            np.testing.assert_array_equal(sess.run(variable), _data(ROWS, WIDTH) * np.float32(0.5**step))


@pytest.mark.parametrize("use_resource", [False, True])
def test_what_was_fetched_before_does_not_change(use_resource):
    variable = tf.Variable(_data(ROWS, WIDTH), use_resource=use_resource)
    update = tf.assign(variable, variable * tf.constant(2.0))
    with tf.Session() as sess:
        sess.run(variable.initializer)
        for step in range(8):
            before = sess.run(variable)
            sess.run(update.op)
            np.testing.assert_array_equal(before, _data(ROWS, WIDTH) * np.float32(2.0**step))


def test_a_variable_without_a_value_is_an_error_as_ever():
    variable = tf.Variable(_data(ROWS, WIDTH), use_resource=False, name="nothing")
    m, v = (tf.Variable(np.ones((ROWS, WIDTH), np.float32), use_resource=False) for _ in range(2))
    shrink = tf.assign(variable, variable * tf.constant(0.5))
    step = tf.assign_sub(variable, tf.constant(0.1) * m / (tf.sqrt(v) + tf.constant(1e-8)))
    with tf.Session() as sess:
        sess.run([m.initializer, v.initializer])
        for update in (shrink.op, step.op):
            for _ in range(6):
                with pytest.raises(tf.errors.FailedPreconditionError, match="Attempting to use uninitialized value nothing"):
                    sess.run(update)


def test_the_ratio_is_the_nodes_to_the_bit():
    m, v = _data(ROWS, WIDTH), np.abs(_data(ROWS, WIDTH, seed=1))
    m[0, :4], v[0, :4] = (np.inf, np.nan, 0, 1), (1, 1, 0, -1)
    variable = tf.Variable(_data(ROWS, WIDTH, seed=2), use_resource=False)
    m_given, v_given = (tf.placeholder_with_default(x, x.shape) for x in (m, v))
    update = tf.assign_sub(variable, tf.constant(0.1) * m_given / (tf.sqrt(v_given) + tf.constant(1e-8)))
    with tf.Session() as sess:
        sess.run(variable.initializer)
        assert "_AssignSubRatio" in _types(sess, update.op, {})
        sess.run(update.op)
        with np.errstate(all="ignore"):
            want = _data(ROWS, WIDTH, seed=2) - np.float32(0.1) * m / (np.sqrt(v) + np.float32(1e-8))
        np.testing.assert_array_equal(sess.run(variable), want)


def test_what_the_rows_need_is_not_computed_behind_their_sum():
    """`values` are looked up by the unique indices themselves: these cannot come with the sum."""
    ids = tf.placeholder(tf.int32, [6])
    y, idx = tf.unique(ids)
    values = tf.gather(tf.gather(tf.constant(_data(10, 4)), y), idx)
    total = tf.unsorted_segment_sum(values, idx, tf.shape(y)[0])
    with tf.Session() as sess:
        given = np.array([3, 1, 3, 0, 1, 3], np.int32)
        assert "_SumOfDuplicates" not in _types(sess, [total, y], {ids: given})
        for _ in range(5):
            sess.run([total, y], {ids: given})
        got, names = sess.run([total, y], {ids: given})
        np.testing.assert_array_equal(names, [3, 1, 0])
        np.testing.assert_allclose(got, _data(10, 4)[[3, 1, 0]] * np.array([[3], [2], [1]], np.float32), rtol=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 5, 60, 100, 101, 3000])
@pytest.mark.parametrize("different", [1, 7, 100_000])
@pytest.mark.parametrize("width", [None, 3, 40])
@pytest.mark.parametrize("engines", [None, "numpy"])
def test_sums_of_duplicates(monkeypatch, rows, different, width, engines):
    from penstock.ops.segment import sum_of_duplicates_kernel

    if engines:
        monkeypatch.setenv("PENSTOCK_ENGINES", engines)

    random = np.random.RandomState(rows + different)
    indices = random.randint(0, different, rows)
    values = random.randn(*((rows,) if width is None else (rows, width))).astype(np.float32)
    if rows:
        values[0] = -0.0
    total, unique = sum_of_duplicates_kernel(values, indices)
    order = list(dict.fromkeys(indices.tolist()))
    assert unique.tolist() == order and unique.dtype == indices.dtype and total.dtype == np.float32
    want = np.zeros((len(order), *values.shape[1:]), np.float64)
    for index, value in zip(indices.tolist(), values, strict=True):
        want[order.index(index)] += value
    np.testing.assert_allclose(total, want, rtol=1e-4, atol=1e-4)
    assert width is None or not np.signbit(total[total == 0]).any()
