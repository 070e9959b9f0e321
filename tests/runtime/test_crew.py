"""How many threads a program's kernels get is found out in its own steps."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import penstock as tf
from penstock.engines import onednn
from penstock.engines.onednn import crowd, library
from penstock.engines.xla import match
from penstock.ops.kernels.threads import wish
from penstock.runtime.executor import crew as crews
from penstock.runtime.executor.crew import LONG_NS, Crew

needs_library = pytest.mark.skipif(library.get() is None, reason="no oneDNN here")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.delenv("PENSTOCK_SHARE_CORES", raising=False)
    monkeypatch.delenv("TF_DETERMINISTIC_OPS", raising=False)
    monkeypatch.setattr(match, "RESTS", (20, 40, 80))
    monkeypatch.setattr(crews.turns, "is_idle", lambda: True)
    crowd.reset()
    yield
    crowd.reset()


def steps(crew, count, times, calls=3):
    """Steps that take so many microseconds with so many threads; the numbers that they had."""
    seen = []
    for i in range(count):
        if crew.is_over:
            break
        before = crew.enter()
        number = wish.number or crew.levels[0]
        crowd.calls += calls if number > 1 else 0
        crew.leave(before)
        crew.after(times[number] * 1000 + i % 3)
        seen.append(number)
    return seen


@pytest.mark.parametrize(("times", "wins"), [({2: 350, 1: 215}, 1), ({2: 100, 1: 99}, 1), ({2: 100, 1: 105}, 1), ({2: 100, 1: 130}, 2), ({2: 100, 1: 900}, 2)])
def test_the_number_that_makes_steps_quickest_stays(times, wins):
    crew = Crew(2)
    seen = steps(crew, 400, times)
    assert set(seen) == {1, 2} and seen[:10] == [2] * 10
    assert crew.levels[crew.level] == wins
    assert wish.number == 0


@pytest.mark.parametrize("best", [8, 4, 2, 1])
def test_of_many_threads_the_best_number_is_found(best):
    crew = Crew(8)
    assert crew.levels == [8, 4, 2, 1]
    times = {n: 100 + 40 * abs(n.bit_length() - best.bit_length()) for n in crew.levels}
    steps(crew, 2000, times)
    assert crew.levels[crew.level] == best


def test_another_machine_is_another_result():
    """Virtual CPUs move: what was far apart may share a cache later."""
    crew = Crew(2)
    steps(crew, 400, {2: 350, 1: 215})
    assert crew.level == 1
    steps(crew, 2000, {2: 150, 1: 215})
    assert crew.level == 0


def test_programs_without_kernels_on_several_threads_have_nothing_to_find_out():
    crew = Crew(2)
    assert set(steps(crew, 30, {2: 100, 1: 100}, calls=0)) == {2} and crew.is_over
    assert Crew(1).is_over


def test_long_steps_keep_their_threads():
    crew = Crew(2)
    assert set(steps(crew, 30, {2: LONG_NS // 1000 + 1, 1: 1})) == {2} and crew.is_over


def test_there_is_no_look_while_others_compete_or_compile(monkeypatch):
    crew = Crew(2)
    contest = SimpleNamespace(is_open=True)
    crew.contests = [contest]
    assert set(steps(crew, 100, {2: 100, 1: 50})) == {2} and not crew.is_over
    contest.is_open = False
    monkeypatch.setattr(crews.turns, "is_idle", lambda: False)
    assert set(steps(crew, 100, {2: 100, 1: 50})) == {2}
    monkeypatch.setattr(crews.turns, "is_idle", lambda: True)
    steps(crew, 100, {2: 100, 1: 50})
    assert crew.level == 1


def test_steps_that_have_grown_get_all_threads_again():
    """A choice that was made for small batches must not hold for large ones."""
    crew = Crew(2)
    steps(crew, 400, {2: 350, 1: 215})
    assert crew.level == 1
    crew.rest = 20_000
    seen = steps(crew, 200, {2: 1500, 1: 2500})
    assert seen[-1] == 2 and crew.level == 0 and seen.count(1) < 80
    steps(crew, 400, {2: 350, 1: 215})
    assert crew.level == 1
    crew.rest = 20_000
    assert steps(crew, 200, {2: 25_000, 1: 50_000}).count(1) == crews.FIRST and crew.is_over  # too long for any more looks


def test_a_slow_step_now_and_then_changes_nothing():
    crew = Crew(2)
    steps(crew, 400, {2: 350, 1: 215})
    for _ in range(20):
        steps(crew, 1, {2: 5000, 1: 5000})
        steps(crew, 3, {2: 350, 1: 215})
    assert crew.level == 1


def test_a_crowd_and_a_wish_hold_together():
    before = library.threads()
    onednn.set_threads(8)
    try:
        assert library.threads() == 8
        wish.number = 4
        assert library.threads() == 4
        crowd._budget = 8
        for _ in range(3):
            crowd._step(1)
        assert crowd.limit == 3 and library.threads() == 3
        wish.number = 2
        assert library.threads() == 2
        wish.number = 0
        assert library.threads() == 3
    finally:
        wish.number = 0
        onednn.set_threads(before)


def test_what_a_program_wants_ends_with_its_step_and_is_its_threads_own():
    outer, inner = Crew(8), Crew(8)
    outer.level, inner.level = 3, 1
    before = outer.enter()
    assert wish.number == 1
    elsewhere = []
    other = threading.Thread(target=lambda: elsewhere.append(wish.number))
    other.start()
    other.join()
    inside = inner.enter()
    assert wish.number == 4
    inner.leave(inside)
    assert wish.number == 1
    outer.leave(before)
    assert wish.number == 0 and elsewhere == [0]


def _trained(monkeypatch, is_won):
    """A small network's steps: the numbers of threads of its last ones, and their losses."""
    used = []
    run = library.Library.run

    def spy(self, threads, function, *args):
        used.append(threads)
        return run(self, threads, function, *args)

    monkeypatch.setattr(library.Library, "run", spy)
    monkeypatch.setattr(match.Match, "is_won", lambda self, trials: setattr(self, "count", self.count + 1) or is_won)
    with tf.Graph().as_default(), tf.Session() as sess:
        x, labels = tf.placeholder(tf.float32, [128, 256]), tf.placeholder(tf.int32, [128])
        rng = np.random.RandomState(0)
        w = tf.Variable(rng.randn(256, 256).astype(np.float32) * 0.05)
        v = tf.Variable(rng.randn(256, 10).astype(np.float32) * 0.05)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.matmul(tf.nn.relu(tf.matmul(x, w)), v)))
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
        sess.run(tf.global_variables_initializer())
        feeds = {x: rng.randn(128, 256).astype(np.float32), labels: rng.randint(0, 10, 128)}
        losses = [sess.run([loss, train], feeds)[0] for _ in range(250)]
        used.clear()
        losses += [sess.run([loss, train], feeds)[0] for _ in range(5)]
        last = set(used)
        if is_won:
            with pytest.raises(tf.errors.InvalidArgumentError):
                sess.run([loss, train], {**feeds, labels: np.full(128, 77)})
    assert wish.number == 0
    return last, losses


@needs_library
def test_steps_of_a_network_have_fewer_threads_if_these_have_won(monkeypatch):
    before = library.threads()
    onednn.set_threads(2)
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    monkeypatch.setattr(crews, "LONG_NS", 1 << 62)
    monkeypatch.setattr(crowd, "_judge", lambda *args: None)  # whatever else this machine does
    try:
        with monkeypatch.context() as context:
            many, expected = _trained(context, is_won=False)
        with monkeypatch.context() as context:
            few, losses = _trained(context, is_won=True)
    finally:
        onednn.set_threads(before)
    assert 2 in many and few == {1}
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


@pytest.mark.parametrize(("name", "value"), [("PENSTOCK_SHARE_CORES", "0"), ("TF_DETERMINISTIC_OPS", "1")])
def test_it_can_be_switched_off(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    crowd.reset()
    node = SimpleNamespace(op=SimpleNamespace(type="MatMul"), fn=SimpleNamespace(engine="onednn"))
    assert crews.crew_for([node]) is None


def test_loops_over_tiles_have_as_many_threads_as_the_program_wants(monkeypatch):
    from penstock.runtime import threads

    monkeypatch.setattr(threads, "_intra_op_limit", 2)
    helped = []
    monkeypatch.setattr(threads._intra_op, "submit", helped.append)
    monkeypatch.setattr(wish, "number", 1)
    threads.parallel_for(4, lambda i: None)
    assert not helped
    monkeypatch.setattr(wish, "number", 2)
    threads.parallel_for(4, lambda i: None)
    monkeypatch.setattr(wish, "number", 0)
    threads.parallel_for(4, lambda i: None)
    assert len(helped) == 2


def test_programs_on_small_arrays_have_no_crew():
    with tf.Graph().as_default():
        x, y = tf.placeholder(tf.float32, [300]), tf.placeholder(tf.float32, [300, 300])
        small, large = (SimpleNamespace(op=op, fn=None) for op in ((x + x).op, (y + y).op))
    assert crews.crew_for([small]) is None
    assert crews.crew_for([small, large]) is not None or library.budget() < 2


@needs_library
def test_several_clients_share_a_program(monkeypatch):
    """Looks begin and end while other steps are under way; nothing is lost, and no wish stays."""
    before = library.threads()
    onednn.set_threads(2)
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    monkeypatch.setattr(match, "RESTS", (3, 3, 3))
    try:
        with tf.Graph().as_default(), tf.Session() as sess:
            x = tf.placeholder(tf.float32, [128, 256])
            y = tf.reduce_sum(tf.matmul(tf.matmul(x, tf.ones([256, 256])), tf.ones([256, 128])), 1)
            data = np.random.RandomState(0).rand(128, 256).astype(np.float32)
            expected, wrong = data.sum(1) * 256 * 128, []

            def client():
                for _ in range(150):
                    if not np.allclose(sess.run(y, {x: data}), expected, rtol=1e-4):
                        wrong.append(1)

            threads = [threading.Thread(target=client) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        onednn.set_threads(before)
    assert not wrong and wish.number == 0
