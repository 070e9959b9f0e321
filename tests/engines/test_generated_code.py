"""What generated code does on its own account: it uses names and small arrays again, keeps stacks as lists, computes products together, reads
variables itself, and keeps deadlines. Always against the interpreter."""

import re
import time

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from penstock.engines.python import codegen, elementwise, products, tiles


@pytest.fixture(autouse=True)
def no_xla(monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "0")


def both_ways(monkeypatch, fetches, feeds=None, init=None, runs=2, is_exact=True):
    """Results op by op and by generated code, which must be equal bit for bit (or nearly); gives them and the code."""
    results, code = [], ""
    for setting in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        with tf.Session() as sess:
            if init is not None:
                sess.run(init)
            results.append([sess.run(fetches, feeds) for _ in range(runs)])
            if setting == "eager":
                code = sess.explain(fetches, feeds).code
    for off, on in zip(*results):
        for a, b in zip(tf.nest.flatten(off), tf.nest.flatten(on)):
            assert np.asarray(a).dtype == np.asarray(b).dtype
            if not is_exact:
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.abs(a).max()))
                continue
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    return results[1][-1], "\n".join(code) if not isinstance(code, str) else code


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("part", [7, 400])
def test_small_arrays_are_used_again(monkeypatch, seed, part):
    """A tangle in which most values die early: every name and array is somebody else's before."""
    monkeypatch.setattr(codegen, "PART", part)
    rng = np.random.RandomState(seed)
    x = tf.placeholder(tf.float32, [4])
    s = tf.placeholder(tf.float32, [])
    values, numbers = [x, x * 0.5], [s, s + 1.0]
    ops = [tf.add, tf.multiply, tf.maximum, tf.subtract, tf.minimum]
    for i in range(150):
        a, b = (values[max(0, len(values) - 1 - rng.randint(9))] for _ in range(2))
        values.append(ops[rng.randint(5)](a, b))
        a, b = (numbers[max(0, len(numbers) - 1 - rng.randint(9))] for _ in range(2))
        numbers.append(ops[rng.randint(5)](a, b))
        if i % 10 == 0:
            values.append(tf.tanh(values[-1]) * numbers[-1])
            numbers.append(tf.reduce_sum(values[-2]))
            numbers.append(tf.cond(numbers[-1] > 0, lambda: -tf.square(numbers[-2]), lambda: tf.abs(numbers[-1])))
    feeds = {x: np.array([0.5, -1.0, 0.0, np.nan], np.float32), s: np.float32(-0.3)}
    _, code = both_ways(monkeypatch, [values[-1], values[-20], values[40], numbers[-1], numbers[60]], feeds)
    assert part < 400 or len(set(re.findall(r"\bv\d+\b", code))) < 60  # of about 350 values


def test_special_numbers(monkeypatch):
    x, y = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    b = tf.logical_not(x > y)
    fetches = [tf.maximum(x, y), tf.minimum(x, y), tf.square(x), tf.abs(y), b, tf.where_v2(b, x, y), tf.maximum(y, x)]
    for p in (0.0, -0.0, np.nan, np.inf, 2.0):
        for q in (0.0, -0.0, np.nan, -np.inf):
            both_ways(monkeypatch, fetches, {x: p, y: q}, runs=1)


def test_a_claimed_shape_is_not_relied_on(monkeypatch):
    """A Python function gives another shape than the program says: nothing is written into an array of the claimed size."""
    x = tf.placeholder(tf.float32, [4])
    y = tf.py_func(lambda v: v[:1], [x], tf.float32)
    y.set_shape([4])
    spare = tf.reduce_sum(tf.tanh(x) * x)
    result = tf.add(y, y) * y + y
    (value, _), _ = both_ways(monkeypatch, [result, spare], {x: [2.0, 3.0, 4.0, 5.0]})
    assert value.tolist() == [10.0]


def test_stacks_are_lists(monkeypatch):
    x = tf.placeholder(tf.float32, [3])
    w = tf.get_variable("w", initializer=np.eye(3, dtype=np.float32) * 0.5)
    _, y = tf.while_loop(lambda i, v: i < 7, lambda i, v: (i + 1, tf.tanh(tf.reduce_sum(w * v, 1) + v)), [tf.constant(0), x])
    grads = tf.gradients(tf.reduce_sum(y), [x, w])
    _, code = both_ways(monkeypatch, [y, *grads], {x: [1.0, 2.0, 3.0]}, tf.global_variables_initializer())
    assert ".append(" in code and ".pop()" in code and "StackPushV2(" not in code


def test_stack_errors(monkeypatch):
    def program(size, pops):
        stack = tf.raw_ops.StackV2(max_size=size, elem_type=tf.float32, stack_name="s")
        last = tf.constant(0.0)
        for value in (1.0, 2.0):
            with tf.control_dependencies([last]):
                last = tf.raw_ops.StackPushV2(handle=stack, elem=value)
        out = [last]
        for _ in range(pops):
            with tf.control_dependencies([out[-1]]):
                out.append(tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.float32))
        return out

    result, code = both_ways(monkeypatch, program(2, 2))
    assert result == [2.0, 2.0, 1.0] and ".append(" in code
    for size, pops, text in ((1, 0, r"Stack\[s.*\] overflowed its max_size \(1\)"), (-1, 3, r"Stack\[s.*\] is empty when calling Pop")):
        fetches = program(size, pops)
        for setting in ("0", "eager"):
            monkeypatch.setenv("PENSTOCK_REGIONS", setting)
            with tf.Session() as sess, pytest.raises(errors.InvalidArgumentError, match=text) as info:
                sess.run(fetches)
            assert info.value.op.type in ("StackPushV2", "StackPopV2")


@pytest.mark.parametrize("kind", ["constants", "moved", "across", "waiting"])
@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("engine", ["numpy", "onednn"])
def test_products_together(monkeypatch, engine, kind, flags):
    monkeypatch.setenv("PENSTOCK_ENGINES", engine)
    monkeypatch.setattr(products, "WORTH", 100_000)
    monkeypatch.setattr(products, "BATCH", 200_000)
    transpose_a, transpose_b = flags
    rng = np.random.RandomState(0)
    x = tf.placeholder(tf.float32, [40, 48] if transpose_a else [48, 40])
    out = []
    for i in range(8):
        w = rng.randn(*((56, 40) if transpose_b else (40, 56))).astype(np.float32)
        if kind == "constants":
            c = tf.constant(w)
        elif kind == "moved":
            c = tf.sin(tf.constant(w) * tf.reduce_sum(x))
        elif kind == "across":
            c = tf.transpose(tf.constant(w.T.copy()) * tf.reduce_sum(x))
        else:
            c = tf.constant(w) + (tf.reduce_sum(out[-1]) if i == 4 else 0.0)
        out.append(tf.matmul(x, c, transpose_a=transpose_a, transpose_b=transpose_b))
    data = rng.randn(*x.shape.as_list()).astype(np.float32)
    is_exact = engine == "numpy"  # NumPy multiplies each matrix of a batch as it does a single one
    _, code = both_ways(monkeypatch, [tf.add_n(out)], {x: data}, is_exact=is_exact)
    assert ("added as AddN" in code) == (kind != "waiting")
    _, code = both_ways(monkeypatch, [tf.add_n(out), out[3], out[-1]], {x: data}, is_exact=is_exact)
    assert "added as" not in code
    assert code.count(" products, ") == 1  # in "waiting", one product waits for another and is computed alone


def test_products_keep_the_order_of_state(monkeypatch):
    """Assignments stay in their order although products around them move."""
    monkeypatch.setattr(products, "WORTH", 1)
    x = tf.placeholder(tf.float32, [32, 32])
    v = tf.get_variable("v", initializer=np.zeros((32, 32), np.float32))
    seen = []
    last = tf.no_op()
    for i in range(5):
        with tf.control_dependencies([last]):
            last = tf.assign_add(v, tf.matmul(x, tf.constant(np.full((32, 32), i + 1.0, np.float32))))
        with tf.control_dependencies([last]):
            seen.append(tf.reduce_sum(tf.identity(v) * 1.0))
            last = seen[-1].op
    both_ways(monkeypatch, seen, {x: np.ones((32, 32), np.float32)}, tf.global_variables_initializer())


def test_variables_are_read_where_the_node_stands(monkeypatch):
    v = tf.Variable([1.0, 2.0], name="v", use_resource=False)
    before = v * 3.0
    with tf.control_dependencies([before]):
        change = tf.assign(v, v + 1.0)
    with tf.control_dependencies([change]):
        after = v * 3.0
    result, _ = both_ways(monkeypatch, [before, after], None, tf.global_variables_initializer(), runs=1)
    assert result[0].tolist() == [3.0, 6.0] and result[1].tolist() == [6.0, 9.0]
    for setting in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        with tf.Session() as sess, pytest.raises(errors.FailedPreconditionError, match="uninitialized value v"):
            sess.run(before)


def test_deadlines(monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    y = tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, [tf.constant(0)])
    slow = tf.py_func(lambda: (time.sleep(0.1), np.float32(1))[1], [], tf.float32)
    quick = tf.constant(2.0) * slow
    with tf.Session() as sess:
        for fetch in (y, quick):
            with pytest.raises(errors.DeadlineExceededError, match="Timed out"):
                sess.run(fetch, options=tf.RunOptions(timeout_in_ms=30))
        assert sess.run(quick, options=tf.RunOptions(timeout_in_ms=10_000)) == 2.0
        assert sess.run(quick) == 2.0


def test_tiles_are_written_into_what_dies(monkeypatch):
    monkeypatch.setattr(elementwise, "MIN_SIZE", 2)
    x = tf.placeholder(tf.float32, [64])
    y = tf.reduce_max(x) * tf.exp(x)
    held = tf.cumsum(y)  # no ufunc: it may hold on to what it reads
    a = tf.tanh(held * 0.5) + x
    b = tf.nn.relu(tf.matmul(tf.reshape(a, [8, 8]), tf.reshape(a, [8, 8])))
    c = tf.sqrt(b) * 2.0 + tf.square(b)
    d = tf.cumsum(c * 0.1, 1) * c
    both_ways(monkeypatch, [d, held, tf.reduce_sum(c)], {x: np.linspace(-1, 1, 64, dtype=np.float32)}, is_exact=False)


def test_a_run_writes_into_its_input():
    """Only where the input is read before the output is written."""
    graph = tf.Graph()
    with graph.as_default():
        x, y = tf.placeholder(tf.float32, [8]), tf.placeholder(tf.float32, [8])
        first = x + y
        second = first * x

    class Node:
        def __init__(self, op):
            self.op, self.fn = op, op.op_def.kernel

    run = elementwise.Fused([Node(first.op), Node(second.op)], [], [x, y], [], [first, second])
    names = {}
    _, runner = tiles.write_tile(run, "tile", lambda t: t, lambda o, p: names.setdefault(id(o), p), {x, y})
    assert runner.into == {0: 1, 1: 0}  # x is still needed when `first` is written
    _, runner = tiles.write_tile(run, "tile", lambda t: t, lambda o, p: names.setdefault(id(o), p), {x})
    assert runner.into == {1: 0}


def test_errors_of_unread_nodes_are_told(monkeypatch):
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    unread = tf.add(x, y)
    with tf.control_dependencies([unread, tf.exp(x)]):
        z = tf.constant(1.0) * 2.0
    for setting in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", setting)
        with tf.Session() as sess:
            assert sess.run(tf.identity(z), {x: [1.0], y: [1.0, 2.0]}) == 2.0
            with pytest.raises(errors.InvalidArgumentError, match="Incompatible shapes"):
                sess.run(unread.op, {x: [1.0, 2.0, 3.0], y: [1.0, 2.0]})
            # What is asked for by a control edge alone, and has no effect, does not run, here and in TensorFlow.
            assert sess.run(z, {x: [1.0, 2.0, 3.0], y: [1.0, 2.0]}) == 2.0
            assert setting == "0" or "Exp" not in sess.explain(z, [x, y]).code


def test_counters_are_integers(monkeypatch):
    x = tf.placeholder(tf.float32, [])
    body = lambda i, v: (i + 1, v * 0.5 + 1.0)  # noqa: E731
    _, up = tf.while_loop(lambda i, v: i < 9, body, [tf.constant(0), x])
    _, down = tf.while_loop(lambda i, v: i >= -3, lambda i, v: (i - 2, v + 1.0), [tf.constant(5, tf.int64), x])
    result, code = both_ways(monkeypatch, [up, down], {x: 3.0})
    assert re.search(r"if not v\d+ < 9: break", code) and re.search(r"if not v\d+ >= -3: break", code) and result[1] == 8.0
    # Whoever else reads the counter gets the type that it has; a counter that would leave its range wraps around.
    most = np.iinfo(np.int32).max
    n, _ = tf.while_loop(lambda i, v: i < 9, body, [tf.constant(0), x])
    _, seen = tf.while_loop(lambda i, v: i < 9, lambda i, v: (i + 1, v + tf.cast(i, tf.float32)), [tf.constant(0), x])
    last, _ = tf.while_loop(lambda i, v: i > 0, body, [tf.constant(most - 2), x])
    jump, rounds = tf.while_loop(lambda i, v: i <= most - 1, lambda i, v: (i + 5, v + 1.0), (tf.constant(most - 8), x), maximum_iterations=9)
    result, _ = both_ways(monkeypatch, [n, seen, last, jump, rounds], {x: 3.0})
    assert result[0].dtype == np.int32 and result[0] == 9 and result[2] == np.iinfo(np.int32).min


def test_memory_that_has_a_result_is_not_written_again(monkeypatch):
    """A gradient of max pooling is written over the pool's input, which is dead by then."""
    monkeypatch.setenv("PENSTOCK_ENGINES", "onednn")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    x = tf.placeholder(tf.float32, [1, 9, 10, 16])
    h = tf.tanh(x) * tf.cos(x)
    window = {"ksize": [1, 3, 3, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
    pooled = tf.nn.max_pool(h, **window)
    gradient = tf.raw_ops.MaxPoolGrad(orig_input=h, orig_output=pooled, grad=tf.sin(pooled), **window)
    with tf.control_dependencies([gradient]):
        later = tf.identity(x)
    y = tf.stack([gradient, *(f(later) for f in (tf.tanh, tf.cos, tf.sin, tf.exp))])
    fed = np.random.RandomState(0).randn(1, 9, 10, 16).astype(np.float32)
    found = []
    for mode in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", mode)
        with tf.Session() as sess:
            found.append(sess.run(y, {x: fed}))
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)
