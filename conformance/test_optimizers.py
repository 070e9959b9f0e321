"""Optimizers against TensorFlow: the same program trains the same model, and the losses, variables and slots must agree."""

from __future__ import annotations

import numpy as np
import pytest
from both import penstock, tensorflow

OPTIMIZERS = {
    "gradient_descent": lambda tf: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda tf: tf.train.MomentumOptimizer(0.05, 0.9),
    "nesterov": lambda tf: tf.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "adagrad": lambda tf: tf.train.AdagradOptimizer(0.3),
    "adagrad_da": lambda tf: tf.train.AdagradDAOptimizer(
        0.3, tf.train.get_or_create_global_step(), l1_regularization_strength=0.001
    ),
    "adadelta": lambda tf: tf.train.AdadeltaOptimizer(1.0, epsilon=1e-4),
    "adam": lambda tf: tf.train.AdamOptimizer(0.05),
    "ftrl": lambda tf: tf.train.FtrlOptimizer(0.3, l1_regularization_strength=0.001, l2_regularization_strength=0.001),
    "ftrl_shrinking": lambda tf: tf.train.FtrlOptimizer(0.3, l2_shrinkage_regularization_strength=0.01),
    "rmsprop": lambda tf: tf.train.RMSPropOptimizer(0.02, momentum=0.5),
    "rmsprop_centered": lambda tf: tf.train.RMSPropOptimizer(0.02, centered=True),
    "proximal_gradient_descent": lambda tf: tf.train.ProximalGradientDescentOptimizer(
        0.1, l1_regularization_strength=0.001
    ),
    "proximal_adagrad": lambda tf: tf.train.ProximalAdagradOptimizer(0.3, l2_regularization_strength=0.01),
}


def train(tf, make, use_resource, steps=12):
    """Trains a small model with a dense and a sparse variable; the losses and the final state, by name."""
    rng = np.random.default_rng(3)
    table = rng.standard_normal((7, 3)).astype(np.float32)
    weights = rng.standard_normal((3, 2)).astype(np.float32)
    rows = rng.integers(0, 7, (steps, 5)).astype(np.int32)
    targets = rng.standard_normal((steps, 5, 2)).astype(np.float32)
    with tf.Graph().as_default():
        e = tf.Variable(table, name="e", use_resource=use_resource)
        w = tf.Variable(weights, name="w", use_resource=use_resource)
        b = tf.Variable(np.zeros(2, np.float32), name="b", use_resource=use_resource)
        x = tf.placeholder(tf.int32, [None], name="x")
        y = tf.placeholder(tf.float32, [None, 2], name="y")
        out = tf.matmul(tf.gather(e, x), w) + b
        loss = tf.reduce_mean(tf.square(out - y))
        step = tf.train.get_or_create_global_step()
        op = make(tf).minimize(loss, global_step=step)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            losses = [sess.run([loss, op], {x: rows[i], y: targets[i]})[0] for i in range(steps)]
            state = {v.name: sess.run(v) for v in tf.global_variables()}
    return losses, state


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_curve(name, use_resource):
    ours, our_state = train(penstock(), OPTIMIZERS[name], use_resource)
    theirs, their_state = train(tensorflow(), OPTIMIZERS[name], use_resource)
    np.testing.assert_allclose(ours, theirs, rtol=3e-5, atol=1e-6)
    assert set(our_state) == set(their_state)
    for key, value in their_state.items():
        np.testing.assert_allclose(our_state[key], value, rtol=2e-4, atol=2e-5, err_msg=key)


SCHEDULES = {
    "exponential": lambda tf, s: tf.train.exponential_decay(0.1, s, 10, 0.9),
    "exponential_staircase": lambda tf, s: tf.train.exponential_decay(0.1, s, 10, 0.9, staircase=True),
    "piecewise": lambda tf, s: tf.train.piecewise_constant(s, [5, 12], [1.0, 0.5, 0.1]),
    "polynomial": lambda tf, s: tf.train.polynomial_decay(0.1, s, 10, power=2.0),
    "polynomial_cycle": lambda tf, s: tf.train.polynomial_decay(0.1, s, 10, cycle=True),
    "natural_exp": lambda tf, s: tf.train.natural_exp_decay(0.1, s, 10, 0.5),
    "inverse_time": lambda tf, s: tf.train.inverse_time_decay(0.1, s, 10, 0.5, staircase=True),
    "cosine": lambda tf, s: tf.train.cosine_decay(0.1, s, 20, alpha=0.1),
    "cosine_restarts": lambda tf, s: tf.train.cosine_decay_restarts(0.1, s, 5),
    "cosine_restarts_even": lambda tf, s: tf.train.cosine_decay_restarts(0.1, s, 5, t_mul=1.0, m_mul=0.5),
    "linear_cosine": lambda tf, s: tf.train.linear_cosine_decay(0.1, s, 20),
}


def schedule(tf, make):
    with tf.Graph().as_default():
        step = tf.placeholder(tf.int64, [])
        rate = make(tf, step)
        with tf.Session() as sess:
            return [sess.run(rate, {step: i}) for i in (0, 1, 5, 6, 10, 13, 20, 31)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_learning_rate(name):
    np.testing.assert_allclose(
        schedule(penstock(), SCHEDULES[name]), schedule(tensorflow(), SCHEDULES[name]), rtol=2e-6
    )


def moving_average(tf, zero_debias):
    with tf.Graph().as_default():
        v = tf.Variable(0.0, name="v")
        r = tf.Variable(2.0, name="r", use_resource=True)
        ema = tf.train.ExponentialMovingAverage(
            0.9, num_updates=tf.train.get_or_create_global_step(), zero_debias=zero_debias
        )
        change = tf.group(v.assign_add(1.0), r.assign_sub(0.5))
        with tf.control_dependencies([change]):
            x = tf.multiply(v.read_value(), 2.0, name="x")  # after the change: TF gives no order otherwise
            update = ema.apply([v, r, x])
        values = []
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            for _ in range(4):
                sess.run(update)
                values.append(sess.run([ema.average(v), ema.average(r), ema.average(x)]))
        return values, sorted(ema.variables_to_restore()), sorted(v.name for v in tf.global_variables())


@pytest.mark.parametrize("zero_debias", [False, True])
def test_moving_average(zero_debias):
    ours, theirs = moving_average(penstock(), zero_debias), moving_average(tensorflow(), zero_debias)
    assert ours[1:] == theirs[1:]
    if not zero_debias:
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
