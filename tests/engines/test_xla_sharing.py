"""Training steps in two halves: the same numbers as in one, no update is lost, readers in between get whole values."""

import gc
import threading

import numpy as np
import pytest

pytest.importorskip("jax")

import penstock as tf
from penstock.engines.xla import sharing
from penstock.engines.xla.sharing import Clients, halves


@pytest.fixture(autouse=True)
def _eager(monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "eager")


X = np.random.RandomState(0).randn(8, 4).astype(np.float32)
Y = np.arange(8, dtype=np.int32) % 3


class _Trained:
    """A small network whose steps are one program of XLA's."""

    def __init__(self, optimizer):
        graph = tf.Graph()
        with graph.as_default():
            self.step_number = tf.train.get_or_create_global_step()
            x, y = tf.placeholder(tf.float32, [8, 4]), tf.placeholder(tf.int32, [8])
            self.feeds = {x: X, y: Y}
            hidden = tf.nn.relu(tf.matmul(x, tf.get_variable("w0", initializer=np.eye(4, dtype=np.float32))))
            logits = tf.matmul(hidden, tf.get_variable("w1", initializer=np.zeros((4, 3), np.float32))) + tf.get_variable("b", initializer=np.zeros(3, np.float32))
            self.loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            self.train = optimizer().minimize(self.loss, global_step=self.step_number)
            self.variables = tf.global_variables()
            init = tf.global_variables_initializer()
        self.session = tf.Session(graph=graph)
        self.session.run(init)
        known = {id(c) for c in gc.get_objects() if isinstance(c, Clients)}
        for _ in range(8):
            self.step()
        (self.clients,) = [c for c in gc.get_objects() if isinstance(c, Clients) and id(c) not in known]

    def step(self):
        return self.session.run([self.train, self.loss], self.feeds)[1]

    def in_halves(self):
        """All further steps."""
        assert self.clients._make is not None
        self.clients.compile(self.clients._make)
        assert self.clients.halves is not None
        self.clients._crowd = 1 << 40


OPTIMIZERS = [
    lambda: tf.train.GradientDescentOptimizer(0.1),
    lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    lambda: tf.train.AdamOptimizer(0.01),
    lambda: tf.train.RMSPropOptimizer(0.01),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_halves_are_the_whole(optimizer):
    whole, split = _Trained(optimizer), _Trained(optimizer)
    split.in_halves()
    calls = []
    found = split.clients.halves
    split.clients.halves = found._replace(first=lambda *args: (calls.append(1), found.first(*args))[1])
    for _ in range(5):
        assert whole.step() == pytest.approx(split.step(), rel=1e-6)
    assert len(calls) == 5
    for a, b in zip(whole.session.run(whole.variables), split.session.run(split.variables)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_what_others_change_between_the_halves_is_not_lost():
    """Between the halves another client takes a step, and the variables are untied by a reader."""
    trained, other = _Trained(OPTIMIZERS[0]), _Trained(OPTIMIZERS[0])
    trained.in_halves()
    found = trained.clients.halves

    def first(*args):
        carried = found.first(*args)
        trained.clients.halves = found
        trained.step()
        trained.session.run(trained.variables)
        return carried

    trained.clients.halves = found._replace(first=first)
    trained.step()
    after = trained.session.run(trained.variables)
    assert trained.clients.readers == 0
    before = other.session.run(other.variables)
    other.step()
    # Both clients have read the same values, and so have moved them by the same.
    for old, once, twice in zip(before, other.session.run(other.variables), after):
        np.testing.assert_allclose(twice - old, 2 * (once - old), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_threads_lose_no_step(optimizer):
    trained = _Trained(optimizer)
    trained.in_halves()
    number = trained.session.run(trained.step_number)
    wrong = []

    def work(i):
        for n in range(40):
            if not np.isfinite(trained.step()):
                wrong.append((i, n))
            if n % 10 == i:
                trained.session.run(trained.variables)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and trained.session.run(trained.step_number) == number + 160 and trained.clients.readers == 0


def test_a_first_half_that_fails_leaves_everything_as_it_was():
    trained = _Trained(OPTIMIZERS[0])
    trained.in_halves()
    found = trained.clients.halves
    before = trained.session.run(trained.variables)

    def fails(*args):
        raise RuntimeError("out of memory")

    trained.step()  # ties them again
    trained.clients.halves = found._replace(first=fails)
    with pytest.raises(tf.errors.OpError):
        trained.step()
    trained.clients.halves = found
    assert trained.clients.readers == 0
    trained.step()
    assert trained.session.run(trained.step_number) == before[0] + 2


def test_steps_are_whole_until_they_meet_and_again_when_they_are_alone(monkeypatch):
    monkeypatch.setattr(sharing.backend, "in_background", lambda function: function())
    made = []
    clients = Clients(lambda: made.append(1) or "halves")  # type: ignore[arg-type, return-value]
    lock = threading.RLock()
    assert not clients.is_crowd(lock)
    clients.readers = 1
    met = [clients.is_crowd(lock) for _ in range(sharing.MEETINGS)]
    assert made == [1] and met == [False] * (sharing.MEETINGS - 1) + [True]
    clients.readers = 0
    assert [clients.is_crowd(lock) for _ in range(sharing.STAYS)] == [True] * (sharing.STAYS - 1) + [False]


def _spec(*dims):
    import jax

    return jax.ShapeDtypeStruct(dims, np.float32)


def test_an_update_that_cannot_be_told_from_its_computation_has_no_halves():
    import jax

    def power(values, constants, kept, state):
        return [], [state[0] @ state[0]]

    assert halves(jax, power, ([], [], [], [_spec(3, 3)])) is None

    def counter(values, constants, kept, state):
        return [], [state[0] + 1]

    assert halves(jax, counter, ([], [], [], [_spec()])) is None  # nothing to do beside it


def test_the_second_half_has_the_formula_and_the_first_one_the_products():
    import jax
    import jax.numpy as jnp

    def step(values, constants, kept, state):
        w, table, count = state
        g = values[0].T @ (values[0] @ w)
        return [jnp.sum(g)], [w - 0.1 * g, table.at[jnp.array([1])].add(g[0]), count + 1]

    found = halves(jax, step, ([_spec(5, 3)], [], [], [_spec(3, 3), _spec(4, 3), _spec()]))
    assert found is not None
    x = np.random.RandomState(0).randn(5, 3).astype(np.float32)
    old = [np.eye(3, dtype=np.float32), np.zeros((4, 3), np.float32), np.float32(0)]
    carried = found.first([x], [], [], old)
    moved = [v + 1 for v in old]
    (total,), new = found.second([x], [], [], moved, *carried)
    g = x.T @ x
    assert float(total) == pytest.approx(g.sum(), rel=1e-4)
    np.testing.assert_allclose(new[0], moved[0] - 0.1 * g, rtol=1e-4)
    np.testing.assert_allclose(new[1][1], moved[1][1] + g[0], rtol=1e-4)
    assert float(new[2]) == 2
