"""Reinforcement learning: values, policies, tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.programs.common import Step, data, dense, ints, program, run, session, uniform, weights, zeros


@program("DQN with target copy")
def dqn(tf: Any) -> Step:
    """Four training steps, then the target network takes the weights over."""
    now, then = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.float32, [None, 8])
    action, reward, done = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])

    def values(x: Any, name: str) -> Any:
        with tf.variable_scope(name):
            return dense(tf, dense(tf, dense(tf, x, 64, "one", tf.nn.relu), 64, "two", tf.nn.relu), 4, "out")

    chosen = tf.reduce_sum(values(now, "online") * tf.one_hot(action, 4), 1)
    goal = tf.stop_gradient(reward + 0.99 * (1.0 - done) * tf.reduce_max(values(then, "target"), 1))
    gap = goal - chosen
    loss = tf.reduce_mean(tf.where(tf.abs(gap) < 1.0, 0.5 * tf.square(gap), tf.abs(gap) - 0.5))
    online, target = tf.trainable_variables("online"), tf.trainable_variables("target")
    train = tf.train.AdamOptimizer(1e-3).minimize(loss, var_list=online)
    copy = tf.group(*[t.assign(o) for o, t in zip(online, target)])
    sess = session(tf)
    feeds = {now: data(32, 8), then: data(32, 8, seed=1), action: ints(4, 32), reward: uniform(32), done: np.zeros(32, np.float32)}

    def step() -> Any:
        losses = [sess.run([loss, train], feeds)[0] for _ in range(4)]
        sess.run(copy)
        return losses[-1]

    return step


@program("acting, one observation")
def acting(tf: Any) -> Step:
    x = tf.placeholder(tf.float32, [None, 8])
    h = dense(tf, dense(tf, x, 64, "one", tf.nn.relu), 64, "two", tf.nn.relu)
    return run(tf, tf.argmax(dense(tf, h, 4, "out"), 1), {x: data(1, 8)})


@program("policy gradient")
def policy_gradient(tf: Any) -> Step:
    x, action, advantage = tf.placeholder(tf.float32, [None, 4]), tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None])
    logits = dense(tf, dense(tf, x, 32, "one", tf.nn.tanh), 2, "out")
    log_p = tf.nn.log_softmax(logits)
    taken = tf.gather_nd(log_p, tf.stack([tf.range(tf.shape(x)[0]), action], 1))
    entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(log_p) * log_p, 1))
    loss = -tf.reduce_mean(taken * advantage) - 0.01 * entropy
    train = tf.train.AdamOptimizer(1e-2).minimize(loss)
    return run(tf, [loss, train], {x: data(200, 4), action: ints(2, 200), advantage: data(200, seed=1)})


@program("actor and critic")
def actor_critic(tf: Any) -> Step:
    x, action, goal = tf.placeholder(tf.float32, [None, 16]), tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None])
    h = dense(tf, x, 64, "shared", tf.nn.elu)
    logits, value = dense(tf, h, 6, "policy"), dense(tf, h, 1, "value")[:, 0]
    advantage = tf.stop_gradient(goal - value)
    p = tf.nn.softmax(logits)
    chosen = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=action, logits=logits)
    entropy = tf.reduce_sum(p * tf.log(p + 1e-8))
    loss = tf.reduce_sum(chosen * advantage) + 0.5 * tf.nn.l2_loss(value - goal) + 0.01 * entropy
    params = tf.trainable_variables()
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, params), 40.0)
    train = tf.train.RMSPropOptimizer(1e-3).apply_gradients(zip(grads, params))
    return run(tf, [loss, train], {x: data(20, 16), action: ints(6, 20), goal: data(20, seed=1)})


@program("PPO, clipped")
def ppo(tf: Any) -> Step:
    x, action = tf.placeholder(tf.float32, [None, 16]), tf.placeholder(tf.float32, [None, 4])
    old, advantage = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
    mean = dense(tf, dense(tf, dense(tf, x, 64, "one", tf.nn.tanh), 64, "two", tf.nn.tanh), 4, "mean")
    log_std = zeros(tf, "log_std", 4)
    new = -tf.reduce_sum(0.5 * tf.square((action - mean) / tf.exp(log_std)) + log_std + 0.919, 1)
    ratio = tf.exp(new - old)
    loss = -tf.reduce_mean(tf.minimum(ratio * advantage, tf.clip_by_value(ratio, 0.8, 1.2) * advantage))
    train = tf.train.AdamOptimizer(3e-4).minimize(loss)
    feeds = {x: data(64, 16), action: data(64, 4, seed=1), old: data(64, seed=2) - 6.0, advantage: data(64, seed=3)}
    return run(tf, [loss, train], feeds)


@program("Q-learning, table")
def table(tf: Any) -> Step:
    q = zeros(tf, "q", 500, 6)
    state, action, reward, then = (tf.placeholder(d, []) for d in (tf.int32, tf.int32, tf.float32, tf.int32))
    row = tf.gather(q, state)
    value = row[action] + 0.1 * (reward + 0.95 * tf.reduce_max(tf.gather(q, then)) - row[action])
    update = tf.scatter_nd_update(q, [[state, action]], [value])
    with tf.control_dependencies([update]):
        best = tf.argmax(tf.gather(q, then))
    return run(tf, [value, best], {state: 3, action: 2, reward: 1.0, then: 7})


@program("bandits, Thompson sampling")
def bandits(tf: Any) -> Step:
    wins, tries = zeros(tf, "wins", 50), zeros(tf, "tries", 50)
    mean = (wins + 1.0) / (tries + 2.0)
    drawn = mean + tf.random_normal([50], seed=1) * tf.sqrt(mean * (1.0 - mean) / (tries + 3.0))
    arm = tf.argmax(drawn)
    won = tf.cast(tf.random_uniform([], seed=2) < tf.gather(tf.constant(uniform(50)), arm), tf.float32)
    update = tf.group(tf.scatter_add(wins, arm, won), tf.scatter_add(tries, arm, 1.0))
    return run(tf, [won, update])


@program("evolution strategy")
def evolution(tf: Any) -> Step:
    w = weights(tf, "w", 16, 4)
    x, y = tf.placeholder(tf.float32, [32, 16]), tf.placeholder(tf.float32, [32, 4])
    noise = tf.random_normal([20, 16, 4], seed=1)
    tried = tf.einsum("bi,nij->nbj", x, w + 0.1 * noise)
    score = -tf.reduce_mean(tf.square(tf.tanh(tried) - y), [1, 2])
    mean, variance = tf.nn.moments(score, [0])
    change = tf.tensordot((score - mean) / tf.sqrt(variance + 1e-6), noise, 1) / 20
    return run(tf, [mean, w.assign_add(0.1 * change).op], {x: data(32, 16), y: uniform(32, 4)})
