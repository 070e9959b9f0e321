"""Optimizers, the global step, learning rates and moving averages."""

import numpy as np
import pytest

import penstock as tf


def both(test):
    return pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])(test)


def session():
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    return sess


LR, MOM, EPS, B1, B2, RHO = (np.float32(x) for x in (0.1, 0.9, 1e-3, 0.9, 0.99, 0.8))


def adam(var, slots, grad, t):
    m, v = slots
    m += (grad - m) * (1 - B1)
    v += (grad * grad - v) * (1 - B2)
    var -= LR * np.sqrt(1 - B2**t) / (1 - B1**t) * m / (np.sqrt(v) + EPS)


def momentum(var, slots, grad, t):
    slots[0] *= MOM
    slots[0] += grad
    var -= LR * slots[0]


def nesterov(var, slots, grad, t):
    slots[0] *= MOM
    slots[0] += grad
    var -= LR * (grad + MOM * slots[0])


def adagrad(var, slots, grad, t):
    slots[0] += grad * grad
    var -= LR * grad / np.sqrt(slots[0])


def adadelta(var, slots, grad, t):
    accum, updates = slots
    accum *= RHO
    accum += (1 - RHO) * grad * grad
    step = np.sqrt(updates + EPS) / np.sqrt(accum + EPS) * grad
    updates *= RHO
    updates += (1 - RHO) * step * step
    var -= LR * step


def rmsprop(var, slots, grad, t):
    ms, mom = slots
    ms += (1 - RHO) * (grad * grad - ms)
    mom *= MOM
    mom += LR * grad / np.sqrt(ms + EPS)
    var -= mom


# name -> (optimizer, initial slots, update by the textbook)
REFERENCE = {
    "gradient_descent": (
        lambda: tf.train.GradientDescentOptimizer(LR),
        [],
        lambda var, slots, grad, t: var.__isub__(LR * grad),
    ),
    "momentum": (lambda: tf.train.MomentumOptimizer(LR, MOM), [0.0], momentum),
    "nesterov": (lambda: tf.train.MomentumOptimizer(LR, MOM, use_nesterov=True), [0.0], nesterov),
    "adagrad": (lambda: tf.train.AdagradOptimizer(LR, initial_accumulator_value=0.2), [0.2], adagrad),
    "adadelta": (lambda: tf.train.AdadeltaOptimizer(LR, RHO, EPS), [0.0, 0.0], adadelta),
    "adam": (lambda: tf.train.AdamOptimizer(LR, B1, B2, EPS), [0.0, 0.0], adam),
    "rmsprop": (lambda: tf.train.RMSPropOptimizer(LR, RHO, MOM, EPS), [1.0, 0.0], rmsprop),
}


class TestFormulas:
    @both
    @pytest.mark.parametrize("name", REFERENCE)
    def test_dense(self, name, use_resource):
        make, starts, update = REFERENCE[name]
        rng = np.random.default_rng(2)
        start = rng.standard_normal(5).astype(np.float32)
        grads = rng.standard_normal((4, 5)).astype(np.float32)
        v = tf.Variable(start, use_resource=use_resource)
        g = tf.placeholder(tf.float32, [5])
        train = make().apply_gradients([(g, v)])
        want, slots = start.copy(), [np.full(5, s, np.float32) for s in starts]
        with session() as sess:
            for t, grad in enumerate(grads, start=1):
                sess.run(train, {g: grad})
                update(want, slots, grad, t)
                np.testing.assert_allclose(sess.run(v), want, rtol=1e-5, atol=1e-6)

    @both
    @pytest.mark.parametrize("name", ["gradient_descent", "momentum", "nesterov", "adagrad", "adadelta"])
    def test_sparse_touches_only_its_rows(self, name, use_resource):
        make, starts, update = REFERENCE[name]
        start = np.arange(12, dtype=np.float32).reshape(4, 3)
        v = tf.Variable(start, use_resource=use_resource)
        rows = tf.IndexedSlices(
            tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [0.5, 0.5, 0.5]]),
            tf.constant([2, 0, 2]),
            tf.constant([4, 3]),
        )
        train = make().apply_gradients([(rows, v)])
        grad = np.zeros((4, 3), np.float32)
        grad[2], grad[0] = [1.5, 2.5, 3.5], [4, 5, 6]
        want, slots = start.copy(), [np.full((4, 3), s, np.float32) for s in starts]
        update(want, slots, grad, 1)
        with session() as sess:
            sess.run(train)
            got = sess.run(v)
        np.testing.assert_allclose(got[[0, 2]], want[[0, 2]], rtol=1e-5)
        np.testing.assert_array_equal(got[[1, 3]], start[[1, 3]])

    def test_large_variables_are_done_in_tiles(self):
        rng = np.random.default_rng(2)
        start, grad = (rng.standard_normal((300, 401)).astype(np.float32) for _ in range(2))
        v = tf.Variable(start)
        train = tf.train.AdamOptimizer(LR, B1, B2, EPS).apply_gradients([(tf.constant(grad), v)])
        want, slots = start.copy(), [np.zeros_like(start) for _ in range(2)]
        adam(want, slots, grad, 1)
        with session() as sess:
            sess.run(train)
            np.testing.assert_allclose(sess.run(v), want, rtol=1e-5, atol=1e-6)

    @both
    def test_bad_arguments(self, use_resource):
        v = tf.Variable([1.0, 2.0], use_resource=use_resource)
        x = tf.placeholder(tf.float32, None)
        i = tf.placeholder(tf.int32, None)
        dense = tf.train.GradientDescentOptimizer(0.1).apply_gradients([(x, v)])
        rate = tf.train.GradientDescentOptimizer(x).apply_gradients([(tf.constant([1.0, 1.0]), v)])
        with session() as sess:
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"var and delta do not have the same shape\[2\] \[3\]"
            ):
                sess.run(dense, {x: [1, 2, 3]})
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"alpha is not a scalar: \[2\]"):
                sess.run(rate, {x: [1, 2]})
        a = tf.Variable([1.0, 1.0], use_resource=use_resource)
        if use_resource:
            op = tf.raw_ops.ResourceSparseApplyAdagrad(var=v.handle, accum=a.handle, lr=0.1, grad=x, indices=i)
        else:
            op = tf.raw_ops.SparseApplyAdagrad(var=v, accum=a, lr=0.1, grad=x, indices=i).op
        with session() as sess:
            with pytest.raises(tf.errors.InvalidArgumentError, match="Index 7 at offset 1 in indices is out of range"):
                sess.run(op, {x: [1.0, 1.0], i: [0, 7]})
            with pytest.raises(tf.errors.InvalidArgumentError, match="same size as indices in the first dimension"):
                sess.run(op, {x: [1.0], i: [0, 1]})
            assert sess.run(v).tolist() == [1, 2]


class TestOptimizer:
    def test_minimize(self):
        w = tf.Variable([1.0, 2.0], name="w")
        loss = tf.reduce_sum(tf.square(w))
        step = tf.train.get_or_create_global_step()
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step, name="train")
        assert train.name == "train" and tf.get_collection(tf.GraphKeys.TRAIN_OP) == [train]
        with session() as sess:
            losses = [sess.run([loss, train])[0] for _ in range(3)]
            np.testing.assert_allclose(losses, [5, 3.2, 2.048], rtol=1e-6)
            assert tf.train.global_step(sess, step) == 3

    def test_slots(self):
        v = tf.Variable([1.0, 2.0], name="v")
        opt = tf.train.AdamOptimizer(0.1)
        assert opt.get_slot(v, "m") is None
        opt.apply_gradients([(tf.constant([1.0, 1.0]), v)])
        assert opt.get_slot_names() == ["m", "v"]
        assert [s.name for s in opt.variables()] == ["beta1_power:0", "beta2_power:0", "v/Adam:0", "v/Adam_1:0"]
        assert opt.get_slot(v, "v").name == "v/Adam_1:0"
        assert not set(opt.variables()) & set(tf.trainable_variables())
        opt.apply_gradients([(tf.constant([1.0, 1.0]), v)])
        assert len(opt.variables()) == 4

    def test_slots_are_colocated(self):
        with tf.device("/device:CPU:1"):
            v = tf.Variable([1.0, 2.0], name="v")
        opt = tf.train.MomentumOptimizer(0.1, 0.9)
        op = opt.apply_gradients([(tf.constant([1.0, 1.0]), v)])
        slot = opt.get_slot(v, "momentum")
        assert slot.op.get_attr("_class") == [b"loc:@v"] and slot.device == "/device:CPU:1"
        assert op.control_inputs[0].device == "/device:CPU:1"

    @both
    def test_constraints(self, use_resource):
        v = tf.Variable([1.0, -1.0], use_resource=use_resource, constraint=lambda x: tf.maximum(x, 0.0))
        train = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(tf.constant([0.5, 0.5]), v)])
        with session() as sess:
            sess.run(train)
            assert sess.run(v).tolist() == [0.5, 0]

    def test_gates_and_other_variables(self):
        a, b = tf.Variable(2.0, name="a"), tf.Variable(3.0, name="b")
        loss = a * b
        opt = tf.train.GradientDescentOptimizer(0.1)
        for gate in (opt.GATE_NONE, opt.GATE_OP, opt.GATE_GRAPH):
            pairs = opt.compute_gradients(loss, gate_gradients=gate)
            with session() as sess:
                assert sess.run([g for g, _ in pairs]) == [3, 2]
        ((grad, var),) = opt.compute_gradients(loss, var_list=[b])
        assert var is b
        with session() as sess:
            assert sess.run(grad) == 2

    def test_own_optimizer(self):
        class Sign(tf.train.Optimizer):
            def __init__(self):
                super().__init__(False, "Sign")

            def _apply_dense(self, grad, var):
                return tf.assign_sub(var, tf.sign(grad))

        v = tf.Variable([1.0, 5.0])
        train = Sign().minimize(tf.reduce_sum(v * tf.constant([2.0, -3.0])))
        with session() as sess:
            sess.run(train)
            assert sess.run(v).tolist() == [0, 6]

    def test_refusals(self):
        v = tf.Variable([1.0, 2.0], name="v")
        opt = tf.train.GradientDescentOptimizer(0.1)
        with pytest.raises(ValueError, match="No gradients provided for any variable, check your graph"):
            opt.minimize(tf.constant(1.0))
        with pytest.raises(ValueError, match="No gradients provided for any variable: "):
            opt.apply_gradients([(None, v)])
        with pytest.raises(ValueError, match="No variables provided"):
            opt.apply_gradients([])
        with pytest.raises(ValueError, match="No variables to optimize"):
            opt.compute_gradients(tf.constant(1.0), var_list=[])
        with pytest.raises(ValueError, match=r"Invalid type tf.int32 for Const"):
            opt.compute_gradients(tf.constant(1))
        with pytest.raises(ValueError, match="gate_gradients must be one of"):
            opt.compute_gradients(tf.reduce_sum(v), gate_gradients=7)
        with pytest.raises(NotImplementedError, match="Trying to update a Tensor"):
            opt.apply_gradients([(tf.constant(1.0), tf.constant(2.0))])
        with pytest.raises(ValueError, match="Must specify the optimizer name"):
            tf.train.Optimizer(False, "")
        with pytest.raises(ValueError, match="must be positive"):
            tf.train.AdagradOptimizer(0.1, initial_accumulator_value=0.0)

    @both
    def test_uninitialized_slots(self, use_resource):
        v = tf.Variable([1.0, 2.0], name="v", use_resource=use_resource)
        train = tf.train.MomentumOptimizer(0.1, 0.9).apply_gradients([(tf.constant([1.0, 1.0]), v)])
        with tf.Session() as sess:
            sess.run(v.initializer)
            with pytest.raises(tf.errors.OpError, match="v/Momentum"):
                sess.run(train)


class TestGlobalStep:
    def test_one_per_graph(self):
        assert tf.train.get_global_step() is None
        step = tf.train.create_global_step()
        assert step.dtype.base_dtype == tf.int64 and not step.trainable
        assert tf.train.get_global_step() is step and tf.train.get_or_create_global_step() is step
        with pytest.raises(ValueError, match='"global_step" already exists'):
            tf.train.create_global_step()
        with pytest.raises(TypeError, match="does not have integer type"):
            tf.train.assert_global_step(tf.constant(1.0))


class TestLearningRates:
    @pytest.mark.parametrize(
        ("make", "want"),
        [
            (lambda s: tf.train.exponential_decay(1.0, s, 10, 0.5), lambda s: 0.5 ** (s / 10)),
            (lambda s: tf.train.exponential_decay(1.0, s, 10, 0.5, staircase=True), lambda s: 0.5 ** (s // 10)),
            (lambda s: tf.train.natural_exp_decay(1.0, s, 10, 0.5), lambda s: np.exp(-0.5 * s / 10)),
            (lambda s: tf.train.inverse_time_decay(1.0, s, 10, 0.5), lambda s: 1 / (1 + 0.5 * s / 10)),
            (
                lambda s: tf.train.piecewise_constant(s, [5, 12], [1.0, 0.5, 0.1]),
                lambda s: 1.0 if s <= 5 else 0.5 if s <= 12 else 0.1,
            ),
            (
                lambda s: tf.train.polynomial_decay(1.0, s, 10, 0.1, power=2.0),
                lambda s: 0.9 * (1 - min(s, 10) / 10) ** 2 + 0.1,
            ),
            (lambda s: tf.train.cosine_decay(1.0, s, 20), lambda s: 0.5 * (1 + np.cos(np.pi * min(s, 20) / 20))),
        ],
    )
    def test_values(self, make, want):
        step = tf.placeholder(tf.int64, [])
        rate = make(step)
        with tf.Session() as sess:
            for s in (0, 3, 5, 6, 10, 13, 30):
                assert sess.run(rate, {step: s}) == pytest.approx(want(s), rel=1e-5)

    def test_refusals(self):
        with pytest.raises(ValueError, match="global_step is required"):
            tf.train.exponential_decay(0.1, None, 10, 0.5)
        with pytest.raises(ValueError, match="length of boundaries should be 1 less"):
            tf.train.piecewise_constant(tf.constant(1), [1], [0.1])


class TestMovingAverages:
    @both
    def test_behind_a_training_op(self, use_resource):
        v = tf.Variable(0.0, name="v", use_resource=use_resource)
        change = v.assign_add(1.0)
        ema = tf.train.ExponentialMovingAverage(0.5)
        with tf.control_dependencies([change]):
            update = ema.apply([v])
        with session() as sess:
            got = []
            for _ in range(3):
                sess.run(update)
                got.append(sess.run(ema.average(v)))
        assert got == [0.5, 1.25, 2.125]
        assert ema.average_name(v) == "v/ExponentialMovingAverage"
        assert tf.moving_average_variables() == [v]
        assert ema.variables_to_restore() == {"v/ExponentialMovingAverage": v}

    def test_zero_debias(self):
        x = tf.placeholder(tf.float32, [], name="x")
        ema = tf.train.ExponentialMovingAverage(0.9, zero_debias=True)
        y = tf.multiply(x, 1.0, name="y")
        update = ema.apply([y])
        with session() as sess:
            for _ in range(3):
                sess.run(update, {x: 4.0})
                assert sess.run(ema.average(y)) == pytest.approx(4.0, rel=1e-5)
