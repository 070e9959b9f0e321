"""Gradients of loops through XLA: stacks become blocks of values, loops that use them scans, or one round after another."""

import numpy as np
import pytest

import penstock as tf
from penstock import errors

pytest.importorskip("jax")

from penstock.engines.xla import loops, lower
from penstock.engines.xla.device import DeviceProgram
from penstock.engines.xla.hot import HotProgram, HotStateProgram

X = np.linspace(-1, 1, 6, dtype=np.float32)


@pytest.fixture
def calls(monkeypatch):
    """The programs that ran, one after another."""
    seen = []
    for cls, name in ((HotProgram, "_through_xla"), (HotStateProgram, "_run")):
        real = getattr(cls, name)
        monkeypatch.setattr(cls, name, lambda self, *args, real=real: seen.append(self) or real(self, *args))
    return seen


def ways(monkeypatch, build, steps=3):
    """Results of the executor, of generated Python and of XLA."""
    results = []
    for regions, xla in (("0", "0"), ("eager", "0"), ("eager", "eager")):
        monkeypatch.setenv("PENSTOCK_REGIONS", regions)
        monkeypatch.setenv("PENSTOCK_XLA", xla)
        with tf.Graph().as_default():
            fetches, feeds = build()
            with tf.Session() as sess:
                sess.run(tf.global_variables_initializer())
                results.append([sess.run(fetches, feeds) for _ in range(steps)])
    return results


def agree(monkeypatch, build, steps=3):
    plain, *others = ways(monkeypatch, build, steps)
    for other in others:
        for a, b in zip(tf.nest.flatten(plain), tf.nest.flatten(other), strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    return plain


def is_whole(calls, steps):
    """Whether every step from the second on was one program."""
    return steps - 1 <= len(calls) <= steps and len(set(map(id, calls))) == 1


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("rounds", [0, 1, 2, 50])
def test_gradients_of_an_invariant_and_a_variable(monkeypatch, calls, rounds, resource):
    def build():
        x = tf.placeholder(tf.float32, [6])
        w = tf.get_variable("w", initializer=np.eye(6, dtype=np.float32) * 0.7, use_resource=resource)
        _, y = tf.while_loop(lambda i, v: i < rounds, lambda i, v: (i + 1, tf.tanh(tf.reduce_sum(w * v, 1) + 0.1)), [tf.constant(0), x])
        return [y, *tf.gradients(tf.reduce_sum(y * y), [x, w])], {x: X}

    agree(monkeypatch, build)
    assert is_whole([c for c in calls if len(c._names) > 2], 3)


def test_a_long_loop_is_a_scan(monkeypatch, calls):
    monkeypatch.setattr(lower, "WRITTEN_OUT", 0)

    def build():
        x = tf.placeholder(tf.float32, [6])
        _, y = tf.while_loop(lambda i, v: i < 1, lambda i, v: (i + 1, tf.sin(v) * v), [tf.constant(0), x])
        return tf.gradients(y, x), {x: X}

    agree(monkeypatch, build)
    assert is_whole(calls, 3)


def test_a_training_step(monkeypatch, calls):
    def build():
        x = tf.placeholder(tf.float32, [6])
        w = tf.get_variable("w", initializer=np.eye(6, dtype=np.float32) * 0.7)
        _, y = tf.while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, tf.tanh(tf.reduce_sum(w * v, 1) + 0.1)), [tf.constant(0), x])
        loss = tf.reduce_sum(y * y)
        return [loss, tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)], {x: X}

    plain, _, xla = ways(monkeypatch, build, 5)
    np.testing.assert_allclose([r[0] for r in xla], [r[0] for r in plain], rtol=1e-4)
    assert plain[4][0] < plain[0][0]
    assert any(len(c._names) > 10 for c in calls)


def loop_in_loop(inner_rounds):
    def build():
        x = tf.placeholder(tf.float32, [6])

        def body(i, v):
            _, u = tf.while_loop(lambda j, u: j < inner_rounds(i), lambda j, u: (j + 1, tf.sin(u) * v), [tf.constant(0), v])
            return i + 1, tf.tanh(u * v + 0.3)

        _, y = tf.while_loop(lambda i, v: i < 4, body, [tf.constant(0), x])
        return [y, *tf.gradients(tf.reduce_sum(y), [x])], {x: X}

    return build


def test_a_loop_in_a_loop_is_a_scan_in_a_scan(monkeypatch, calls):
    monkeypatch.setattr(lower, "WRITTEN_OUT", 0)
    agree(monkeypatch, loop_in_loop(lambda i: 3))
    assert is_whole(calls, 3)


def test_rounds_that_differ_in_how_much_they_do_are_written_out(monkeypatch, calls):
    agree(monkeypatch, loop_in_loop(lambda i: i))
    assert is_whole(calls, 3)


def test_they_stay_with_python_if_that_would_be_long(monkeypatch, calls):
    monkeypatch.setattr(lower, "WRITTEN_OUT", 0)
    agree(monkeypatch, loop_in_loop(lambda i: i))
    assert not calls


def test_a_limit_that_is_a_shape(monkeypatch, calls):
    def build():
        x = tf.placeholder(tf.float32, [None])
        _, y = tf.while_loop(lambda i, v: i < tf.shape(x)[0], lambda i, v: (i + 1, tf.tanh(v * v + 0.1) + x[i]), [tf.constant(0), x])
        return [y, *tf.gradients(tf.reduce_sum(y), [x])], {x: X}

    agree(monkeypatch, build)
    assert is_whole(calls, 3)


def test_counters_that_others_read(monkeypatch, calls):
    def build():
        x = tf.placeholder(tf.float32, [6])

        def body(i, f, v):
            return i - 2, f * 0.5, tf.sin(v) * f + tf.cast(i, tf.float32) * v

        i, f, y = tf.while_loop(lambda i, f, v: tf.logical_and(i > 3, f > 0.01), body, [tf.constant(12), tf.constant(1.0), x])
        return [i, f, y, *tf.gradients(tf.reduce_sum(y), [x])], {x: X}

    plain = agree(monkeypatch, build)
    assert plain[0][:2] == [2, 1 / 32]
    assert is_whole(calls, 3)


def pop(stack, name=None):
    value = tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.float32, name=name)
    value.set_shape([])
    return value


def test_a_loop_that_empties_one_stack_and_fills_another(monkeypatch, calls):
    """Values are popped in the opposite order, whatever else the loop does."""

    def build():
        x = tf.placeholder(tf.float32, [])
        raw = tf.raw_ops
        first = raw.StackV2(max_size=-1, elem_type=tf.float32)
        second = raw.StackV2(max_size=-1, elem_type=tf.float32)

        def fill(i, v):
            push = raw.StackPushV2(handle=first, elem=v)
            with tf.control_dependencies([raw.StackPushV2(handle=first, elem=push * 10.0)]):
                return i + 1, v + 1.0

        n, last = tf.while_loop(lambda i, v: i < 4, fill, [tf.constant(0), x], parallel_iterations=1)

        def turn(i, v):
            a = pop(first)
            with tf.control_dependencies([a]):
                b = pop(first)
            with tf.control_dependencies([raw.StackPushV2(handle=second, elem=a - b)]):
                return i - 1, v * 2.0 + b

        m, total = tf.while_loop(lambda i, v: i > 0, turn, [n, last], parallel_iterations=1)
        with tf.control_dependencies([m]):
            top = pop(second)
        with tf.control_dependencies([top]):
            return [total, top, pop(second)], {x: 3.0}

    plain = agree(monkeypatch, build)
    assert plain[0][1:] == [27.0, 36.0]
    assert is_whole(calls, 3)


def test_an_empty_stack_names_the_node(monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "eager")
    raw = tf.raw_ops
    stack = raw.StackV2(max_size=-1, elem_type=tf.float32)
    n, _ = tf.while_loop(
        lambda i, v: i < 3, lambda i, v: (i + 1, raw.StackPushV2(handle=stack, elem=v) + 1.0), [tf.constant(0), tf.constant(0.0)], parallel_iterations=1
    )
    _, y = tf.while_loop(
        lambda i, v: i < 7, lambda i, v: (i + 1, v + pop(stack, "one_too_many")), [n, tf.constant(0.0)],
        parallel_iterations=1,
    )  # fmt: skip
    with tf.Session() as sess:
        for _ in range(2):
            with pytest.raises(errors.InvalidArgumentError, match=r"is empty when calling Pop\(\)(.|\n)*one_too_many"):
                sess.run(y)


def test_a_stack_that_is_used_outside_stays_with_python(monkeypatch, calls):
    """A host's node between filling and emptying: one program cannot hold the stack, two cannot share it."""

    def build():
        x = tf.placeholder(tf.float32, [6])
        count, y = tf.while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, tf.sin(v) * v), [tf.constant(0), x])
        y = tf.py_func(lambda v: v * 2, [y], tf.float32, stateful=True)
        y.set_shape([6])
        z = tf.gradients(tf.identity(count), x)
        assert z == [None]
        _, again = tf.while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, tf.sin(v) * v), [tf.constant(0), x])
        return [y, *tf.gradients(tf.reduce_sum(again), x, grad_ys=tf.reduce_sum(y))], {x: X}

    agree(monkeypatch, build)


def branch_of_two(v, i):
    return tf.cond(tf.reduce_sum(v) > 0.1 * tf.cast(i, tf.float32), lambda: tf.tanh(v * v), lambda: tf.sin(v) + 0.2)


def branch_of_one(v, i):
    return tf.cond(i % 3 > 0, lambda: tf.tanh(v * v), lambda: v + 0.2)


def branch_after_branch(v, i):
    return branch_of_two(branch_of_one(v, i), i)


@pytest.mark.parametrize("branch", [branch_of_two, branch_of_one, branch_after_branch])
@pytest.mark.parametrize("limit", ["known", "unknown", "long"])
def test_branches_in_a_loop(monkeypatch, calls, branch, limit):
    """Each side of a branch pushes what only it computes; in a program the other side pushes zeros."""
    if limit == "long":
        monkeypatch.setattr(lower, "WRITTEN_OUT", 0)

    def build():
        x = tf.placeholder(tf.float32, [6])
        n = tf.placeholder(tf.int32, []) if limit == "unknown" else 6
        _, y = tf.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, branch(v, i)), [tf.constant(0), x])
        return [y, *tf.gradients(tf.reduce_sum(y), [x])], {x: X, n: 6} if limit == "unknown" else {x: X}

    agree(monkeypatch, build)
    assert is_whole(calls, 3)


def test_branches_are_code(monkeypatch):
    """The trigger that waits for the pushes of both sides is alive whichever side runs."""
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    x = tf.placeholder(tf.float32, [6])
    _, y = tf.while_loop(lambda i, v: i < 6, lambda i, v: (i + 1, branch_of_two(v, i)), [tf.constant(0), x])
    with tf.Session() as sess:
        code = sess.explain(tf.gradients(y, x), {x: X}).code
    text = code if isinstance(code, str) else "\n".join(code)
    assert text.count(".append(") >= 3 and "for n0 in count()" in text


def test_a_branch_in_a_branch_in_a_loop(monkeypatch):
    def build():
        x = tf.placeholder(tf.float32, [6])

        def body(i, v):
            return i + 1, tf.cond(i > 2, lambda: branch_of_two(v, i) * v, lambda: tf.sin(v) * v)

        _, y = tf.while_loop(lambda i, v: i < 6, body, [tf.constant(0), x])
        return [y, *tf.gradients(tf.reduce_sum(y), [x])], {x: X}

    agree(monkeypatch, build)


def test_a_stack_whose_size_depends_on_data_stays_with_python(monkeypatch, calls):
    """Pushed to under one predicate, popped from as often as was counted."""

    def build():
        x = tf.placeholder(tf.float32, [])
        stack = tf.raw_ops.StackV2(max_size=-1, elem_type=tf.float32)

        def fill(i, count):
            pushed = tf.cond(x * i > 2.0, lambda: tf.raw_ops.StackPushV2(handle=stack, elem=i * x) * 0.0 + 1.0, lambda: tf.constant(0.0))
            return i + 1.0, count + pushed

        _, count = tf.while_loop(lambda i, c: i < 6.0, fill, [tf.constant(0.0), tf.constant(0.0)], parallel_iterations=1)
        _, total = tf.while_loop(lambda c, t: c > 0.0, lambda c, t: (c - 1.0, t * 2.0 + pop(stack)), [count, tf.constant(0.0)], parallel_iterations=1)
        return [count, total], {x: 1.0}

    plain = agree(monkeypatch, build)
    assert plain[0] == [3.0, 4 * 5 + 2 * 4 + 3]


@pytest.mark.parametrize("branches", [False, True])
@pytest.mark.parametrize("limit", ["known", "fed"])
def test_an_accelerator_runs_it_as_one_program(monkeypatch, limit, branches):
    monkeypatch.setenv("PENSTOCK_GPU_PLATFORM", "cpu")
    seen = []
    real = DeviceProgram._run
    monkeypatch.setattr(DeviceProgram, "_run", lambda self, *args: seen.append(self) or real(self, *args))
    results = []
    for device in ("/cpu:0", "/gpu:0"):
        with tf.Graph().as_default(), tf.device(device), tf.Session() as sess:
            x, n = tf.placeholder(tf.float32, [6]), tf.placeholder(tf.int32, [])
            body = branch_of_two if branches else lambda v, i: tf.tanh(v * v + 0.1)
            _, y = tf.while_loop(lambda i, v: i < (7 if limit == "known" else n), lambda i, v: (i + 1, body(v, i)), [tf.constant(0), x])
            fetches = [y, *tf.gradients(y, x)]
            results.append([sess.run(fetches, {x: X, n: 7}) for _ in range(4)])
    for a, b in zip(tf.nest.flatten(results[0]), tf.nest.flatten(results[1])):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    assert len(seen) == 4


def of_unknown_length(build_loop):
    def build():
        x = tf.placeholder(tf.float32, [6])
        n = tf.placeholder(tf.int32, [])
        return build_loop(x, n), {x: X, n: 7}

    return build


def fed(x, n):
    _, y = tf.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, tf.tanh(v * v + 0.1)), [tf.constant(0), x])
    return [y, *tf.gradients(tf.reduce_sum(y), [x])]


def until_small(x, n):
    w = tf.get_variable("w", initializer=np.float32(0.9))
    y = tf.while_loop(lambda v: tf.reduce_sum(tf.abs(v)) > 0.5, lambda v: tf.tanh(v) * w, [x])
    return [y, *tf.gradients(tf.reduce_sum(y), [x, w])]


def bounded(x, n):
    y = tf.while_loop(lambda v: tf.reduce_sum(tf.abs(v)) > 0.5, lambda v: tf.tanh(v) * 0.9, [x], maximum_iterations=4)
    return [y, *tf.gradients(tf.reduce_sum(y), [x])]


@pytest.mark.parametrize("loop", [fed, until_small, bounded])
def test_loops_of_unknown_length(monkeypatch, calls, loop):
    agree(monkeypatch, of_unknown_length(loop))
    assert is_whole(calls, 3)


@pytest.mark.parametrize("uses_variable", [False, True])
def test_a_loop_of_another_length_every_time(monkeypatch, calls, uses_variable):
    """One program for all of them; where the room is not enough, the host computes, from then on."""
    monkeypatch.setattr(loops, "MOST_ROUNDS", 16)
    results = []
    for xla in ("0", "eager"):
        monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
        monkeypatch.setenv("PENSTOCK_XLA", xla)
        with tf.Graph().as_default(), tf.Session() as sess:
            x, n = tf.placeholder(tf.float32, [6]), tf.placeholder(tf.int32, [])
            w = tf.get_variable("w", initializer=np.float32(0.9)) if uses_variable else 0.9
            _, y = tf.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, tf.sin(v) * v * w + 0.3), [tf.constant(0), x])
            fetches = [y, *tf.gradients(y, x)]
            sess.run(tf.global_variables_initializer())
            before = len(calls)
            results.append([sess.run(fetches, {x: X, n: rounds}) for rounds in (3, 0, 16, 5, 17, 40, 3)])
            if xla == "eager":
                programs = calls[before:]
                assert 4 <= len(programs) <= 6 and len(set(programs)) == 1  # it has given up after 17
    for a, b in zip(tf.nest.flatten(results[0]), tf.nest.flatten(results[1])):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_nothing_is_written_before_the_length_is_known(monkeypatch, calls):
    """A step that trains is no program if that might have to take it back."""

    def build():
        x, n = tf.placeholder(tf.float32, [6]), tf.placeholder(tf.int32, [])
        w = tf.get_variable("w", initializer=np.float32(0.9))
        _, y = tf.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, tf.sin(v) * v * w + 0.3), [tf.constant(0), x])
        loss = tf.reduce_sum(y)
        return [loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)], {x: X, n: 300}

    plain, *others = ways(monkeypatch, build, 4)
    for other in others:
        np.testing.assert_allclose([r[0] for r in other], [r[0] for r in plain], rtol=1e-5)


@pytest.mark.parametrize("in_loop", [False, True])
@pytest.mark.parametrize("writes_first", [False, True])
def test_what_is_written_before_an_error_is_written(monkeypatch, in_loop, writes_first):
    """And what would be written after it is not."""
    monkeypatch.setenv("PENSTOCK_XLA", "eager")
    with tf.Graph().as_default(), tf.Session() as sess:
        x, last = tf.placeholder(tf.float32, [8]), tf.placeholder(tf.int32, [])
        count = tf.get_variable("count", initializer=0.0, use_resource=True)

        def body(j, a):
            if writes_first:
                with tf.control_dependencies([count.assign_add(1.0)]):
                    return j + 1, tf.sin(a) + tf.gather(a, [j, 0, 1, 2, 3, 4, 5, 6])
            found = tf.gather(a, [j, 0, 1, 2, 3, 4, 5, 6])
            with tf.control_dependencies([found]):
                with tf.control_dependencies([count.assign_add(1.0)]):
                    return j + 1, tf.sin(a) + tf.identity(found)

        y = tf.while_loop(lambda j, a: j < last, body, [0, x])[1] if in_loop else body(last, x)[1]
        sess.run(tf.global_variables_initializer())
        for _ in range(3):
            sess.run(y, {x: np.ones(8), last: 3})
        before = sess.run(count)
        with pytest.raises(tf.errors.InvalidArgumentError):
            sess.run(y, {x: np.ones(8), last: 20})
        assert sess.run(count) - before == (8 if in_loop else 0) + writes_first
