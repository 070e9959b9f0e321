"""Numerical programs that are not learning: iterations, simulations, filters, optimisers."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.programs.common import Step, data, ones, program, run, uniform


def _links(nodes: int, links: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(0)
    pairs = np.unique(rng.randint(0, nodes, (links, 2)), axis=0).astype(np.int64)
    out = np.bincount(pairs[:, 1], minlength=nodes)
    return pairs, (1.0 / out[pairs[:, 1]]).astype(np.float32)


@program("PageRank, sparse loop", is_loop=True)
def pagerank_sparse(tf: Any) -> Step:
    pairs, shares = _links(1000, 5000)
    matrix = tf.SparseTensor(pairs, shares, [1000, 1000])
    start = tf.placeholder(tf.float32, [1000, 1])

    def body(i: Any, rank: Any) -> Any:
        return i + 1, 0.85 * tf.sparse_tensor_dense_matmul(matrix, rank) + 0.15 / 1000

    _, rank = tf.while_loop(lambda i, r: i < 30, body, [tf.constant(0), start])
    return run(tf, rank, {start: np.full((1000, 1), 1e-3, np.float32)})


@program("PageRank, dense")
def pagerank_dense(tf: Any) -> Step:
    pairs, shares = _links(300, 2000)
    full = np.zeros((300, 300), np.float32)
    full[pairs[:, 0], pairs[:, 1]] = shares
    matrix, rank = tf.constant(full), ones(tf, "rank", 300, 1)
    new = 0.85 * tf.matmul(matrix, rank) + 0.15
    change = tf.reduce_sum(tf.abs(new - rank))
    with tf.control_dependencies([change]):
        update = rank.assign(new)
    return run(tf, [change, update.op])


@program("power iteration", is_loop=True)
def power_iteration(tf: Any) -> Step:
    a, start = tf.placeholder(tf.float32, [100, 100]), tf.constant(uniform(100, 1))

    def body(i: Any, v: Any) -> Any:
        w = tf.matmul(a, v)
        return i + 1, w / tf.norm(w)

    _, v = tf.while_loop(lambda i, v: i < 50, body, [tf.constant(0), start])
    return run(tf, [v, tf.reduce_sum(v * tf.matmul(a, v))], {a: uniform(100, 100)})


@program("conjugate gradient", is_loop=True)
def conjugate_gradient(tf: Any) -> Step:
    a, b = tf.placeholder(tf.float32, [64, 64]), tf.placeholder(tf.float32, [64, 1])

    def goes_on(i: Any, x: Any, r: Any, p: Any, size: Any) -> Any:
        return tf.logical_and(i < 40, size > 1e-8)

    def body(i: Any, x: Any, r: Any, p: Any, size: Any) -> Any:
        ap = tf.matmul(a, p)
        alpha = size / tf.reduce_sum(p * ap)
        x, r = x + alpha * p, r - alpha * ap
        new = tf.reduce_sum(r * r)
        return i + 1, x, r, r + new / size * p, new

    x = tf.while_loop(goes_on, body, [tf.constant(0), tf.zeros([64, 1]), b, b, tf.reduce_sum(b * b)])[1]
    m = data(64, 64)
    return run(tf, x, {a: m @ m.T / 64 + np.eye(64, dtype=np.float32), b: data(64, 1, seed=1)})


@program("HMC, leapfrog loop", is_loop=True)
def hmc(tf: Any) -> Step:
    """Logistic regression's posterior, ten leapfrog steps."""
    x, y = tf.constant(data(100, 8)), tf.constant((data(100, 1, seed=1) > 0).astype(np.float32))
    w = tf.get_variable("w", initializer=np.zeros((8, 1), np.float32), trainable=False)

    def energy(w: Any) -> Any:
        return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=tf.matmul(x, w))) + 0.5 * tf.reduce_sum(tf.square(w))

    momentum = tf.random_normal([8, 1], seed=1)
    start = momentum - 0.005 * tf.gradients(energy(w), w)[0]

    def body(i: Any, w: Any, p: Any) -> Any:
        w = w + 0.01 * p
        return i + 1, w, p - 0.01 * tf.gradients(energy(w), w)[0]

    _, new, p = tf.while_loop(lambda i, *_: i < 10, body, [tf.constant(0), w, start])
    before, after = energy(w) + 0.5 * tf.reduce_sum(momentum**2), energy(new) + 0.5 * tf.reduce_sum(p**2)
    accepted = tf.log(tf.random_uniform([], seed=2)) < before - after
    return run(tf, [after, w.assign(tf.where(accepted, new, w)).op])


@program("HMC, leapfrog unrolled")
def hmc_unrolled(tf: Any) -> Step:
    place = tf.get_variable("place", initializer=data(32, 10), trainable=False)
    precision = tf.constant(np.linspace(1, 2, 10).astype(np.float32))

    def energy(q: Any) -> Any:
        return 0.5 * tf.reduce_sum(precision * tf.square(q), 1)

    q, p = place, tf.random_normal([32, 10], seed=1)
    before = energy(q) + 0.5 * tf.reduce_sum(tf.square(p), 1)
    for _ in range(8):
        p = p - 0.05 * tf.gradients(energy(q), q)[0]
        q = q + 0.1 * p
        p = p - 0.05 * tf.gradients(energy(q), q)[0]
    after = energy(q) + 0.5 * tf.reduce_sum(tf.square(p), 1)
    accepted = tf.random_uniform([32], seed=2) < tf.exp(before - after)
    return run(tf, [after, place.assign(tf.where(accepted, q, place)).op])


@program("Kalman filter", is_loop=True)
def kalman(tf: Any) -> Step:
    seen = tf.placeholder(tf.float32, [50, 2])
    f = tf.constant(np.eye(4, dtype=np.float32) + np.eye(4, k=2, dtype=np.float32))
    h = tf.constant(np.eye(2, 4, dtype=np.float32))

    def body(state: Any, z: Any) -> Any:
        x, p = state
        x, p = tf.matmul(f, x), tf.matmul(tf.matmul(f, p), f, transpose_b=True) + 0.01 * tf.eye(4)
        s = tf.matmul(tf.matmul(h, p), h, transpose_b=True) + 0.1 * tf.eye(2)
        gain = tf.matmul(tf.matmul(p, h, transpose_b=True), tf.matrix_inverse(s))
        x = x + tf.matmul(gain, tf.expand_dims(z, 1) - tf.matmul(h, x))
        return x, tf.matmul(tf.eye(4) - tf.matmul(gain, h), p)

    xs, _ = tf.scan(body, seen, initializer=(tf.zeros([4, 1]), tf.eye(4)))
    return run(tf, xs, {seen: np.cumsum(data(50, 2), 0)})


@program("game of life, convolution")
def life_conv(tf: Any) -> Step:
    board = tf.get_variable("board", initializer=(uniform(1, 64, 64, 1) > 0.7).astype(np.float32))
    kernel = np.ones((3, 3, 1, 1), np.float32)
    kernel[1, 1] = 0.0
    count = tf.nn.conv2d(board, tf.constant(kernel), strides=[1, 1, 1, 1], padding="SAME")
    lives = tf.logical_or(tf.equal(count, 3.0), tf.logical_and(tf.equal(count, 2.0), tf.equal(board, 1.0)))
    return run(tf, [tf.reduce_sum(count), board.assign(tf.cast(lives, tf.float32)).op])


@program("game of life, slices")
def life_slices(tf: Any) -> Step:
    board = tf.placeholder(tf.int32, [64, 64])
    wide = tf.pad(board, [[1, 1], [1, 1]])
    count = tf.add_n([wide[i : i + 64, j : j + 64] for i in range(3) for j in range(3) if (i, j) != (1, 1)])
    lives = tf.logical_or(tf.equal(count, 3), tf.logical_and(tf.equal(count, 2), tf.equal(board, 1)))
    return run(tf, tf.cast(lives, tf.int32), {board: (uniform(64, 64) > 0.7).astype(np.int32)})


@program("Mandelbrot")
def mandelbrot(tf: Any) -> Step:
    y, x = np.mgrid[-1.3:1.3:0.02, -2:1:0.02]
    points = tf.constant((x + 1j * y).astype(np.complex64))
    zs, ns = tf.get_variable("zs", initializer=(x + 1j * y).astype(np.complex64)), tf.get_variable("ns", initializer=np.zeros(x.shape, np.float32))
    new = zs * zs + points
    stays = tf.abs(new) < 4.0
    with tf.control_dependencies([stays]):
        step = tf.group(zs.assign(tf.where(stays, new, zs)), ns.assign_add(tf.cast(stays, tf.float32)))
    return run(tf, [tf.reduce_sum(tf.cast(stays, tf.float32)), step])


@program("Mandelbrot, loop of reals", is_loop=True)
def mandelbrot_loop(tf: Any) -> Step:
    y, x = (v.astype(np.float32) for v in np.mgrid[-1.3:1.3:0.04, -2:1:0.04])
    cx, cy = tf.placeholder(tf.float32, x.shape), tf.placeholder(tf.float32, x.shape)

    def body(i: Any, a: Any, b: Any, n: Any) -> Any:
        stays = a * a + b * b < 4.0
        return i + 1, tf.where(stays, a * a - b * b + cx, a), tf.where(stays, 2 * a * b + cy, b), n + tf.cast(stays, tf.int32)

    begin = [tf.constant(0), tf.zeros(x.shape), tf.zeros(x.shape), tf.zeros(x.shape, tf.int32)]
    n = tf.while_loop(lambda i, *_: i < 50, body, begin)[3]
    return run(tf, tf.cast(n, tf.float32), {cx: x, cy: y})


@program("heat equation, 10 steps")
def heat(tf: Any) -> Step:
    u = start = tf.placeholder(tf.float32, [100, 100])
    for _ in range(10):
        inner = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]
        u = u + 0.1 * tf.pad(inner, [[1, 1], [1, 1]])
    return run(tf, u, {start: uniform(100, 100)})


@program("rain on a pond, convolution")
def pond(tf: Any) -> Step:
    u, v = tf.get_variable("u", initializer=uniform(200, 200)), tf.get_variable("v", initializer=np.zeros((200, 200), np.float32))
    kernel = tf.constant(np.array([[0.5, 1, 0.5], [1, -6, 1], [0.5, 1, 0.5]], np.float32).reshape(3, 3, 1, 1))
    bend = tf.nn.conv2d(tf.reshape(u, [1, 200, 200, 1]), kernel, strides=[1, 1, 1, 1], padding="SAME")[0, :, :, 0]
    new_u, new_v = u + 0.03 * v, v + 0.03 * (bend - 0.04 * v)
    with tf.control_dependencies([new_u, new_v]):
        step = tf.group(u.assign(new_u), v.assign(new_v))
    return run(tf, [tf.reduce_mean(new_u), step])


@program("L-BFGS, two-loop recursion")
def lbfgs(tf: Any) -> Step:
    g, s, y = tf.placeholder(tf.float32, [500]), tf.placeholder(tf.float32, [8, 500]), tf.placeholder(tf.float32, [8, 500])
    rho, q, alphas = 1.0 / tf.reduce_sum(s * y, 1), g, []
    for i in reversed(range(8)):
        alphas.insert(0, rho[i] * tf.reduce_sum(s[i] * q))
        q = q - alphas[0] * y[i]
    r = q * tf.reduce_sum(s[7] * y[7]) / tf.reduce_sum(y[7] * y[7])
    for i in range(8):
        r = r + s[i] * (alphas[i] - rho[i] * tf.reduce_sum(y[i] * r))
    steps = data(8, 500)
    return run(tf, -r, {g: data(500, seed=1), s: steps, y: steps * 0.5 + 0.1 * data(8, 500, seed=2)})


@program("finite differences")
def differences(tf: Any) -> Step:
    x = tf.placeholder(tf.float64, [20])

    def f(v: Any) -> Any:
        return tf.reduce_sum(100.0 * tf.square(v[..., 1:] - tf.square(v[..., :-1])) + tf.square(1.0 - v[..., :-1]), -1)

    steps = 1e-5 * tf.eye(20, dtype=tf.float64)
    numeric = (f(x + steps) - f(x - steps)) / 2e-5
    exact = tf.gradients(f(x), x)[0]
    return run(tf, [numeric, tf.reduce_max(tf.abs(numeric - exact))][:1], {x: np.linspace(-1, 1, 20)})


@program("n-body simulation")
def bodies(tf: Any) -> Step:
    place, speed = tf.get_variable("place", initializer=data(128, 3)), tf.get_variable("speed", initializer=0.1 * data(128, 3, seed=1))
    mass = tf.constant(uniform(128) + 0.5)
    gap = tf.expand_dims(place, 0) - tf.expand_dims(place, 1)
    cube = tf.pow(tf.reduce_sum(tf.square(gap), 2) + 0.01, -1.5)
    force = tf.reduce_sum(gap * tf.expand_dims(cube * mass, 2), 1)
    new_speed = speed + 0.001 * force
    new_place = place + 0.001 * new_speed
    with tf.control_dependencies([new_place, new_speed]):
        step = tf.group(place.assign(new_place), speed.assign(new_speed))
    return run(tf, [tf.reduce_sum(tf.square(new_speed)), step])


@program("Gaussian process, Cholesky")
def gaussian_process(tf: Any) -> Step:
    x, y, scale = tf.placeholder(tf.float32, [60, 4]), tf.placeholder(tf.float32, [60, 1]), tf.get_variable("scale", initializer=np.float32(0.5))
    gap = tf.reduce_sum(tf.square(tf.expand_dims(x, 0) - tf.expand_dims(x, 1)), 2)
    lower = tf.cholesky(tf.exp(-gap * tf.exp(scale)) + 0.1 * tf.eye(60))
    alpha = tf.cholesky_solve(lower, y)
    loss = 0.5 * tf.reduce_sum(y * alpha) + tf.reduce_sum(tf.log(tf.matrix_diag_part(lower)))
    return run(tf, [loss, tf.train.GradientDescentOptimizer(1e-3).minimize(loss)], {x: data(60, 4), y: data(60, 1, seed=1)})


@program("Sinkhorn, 20 rounds", is_loop=True)
def sinkhorn(tf: Any) -> Step:
    cost = tf.placeholder(tf.float32, [50, 50])
    log_k = -cost / 0.1

    def body(i: Any, f: Any, g: Any) -> Any:
        f = -tf.reduce_logsumexp(log_k + g, 1, keepdims=True)
        return i + 1, f, -tf.reduce_logsumexp(log_k + f, 0, keepdims=True)

    _, f, g = tf.while_loop(lambda i, *_: i < 20, body, [tf.constant(0), tf.zeros([50, 1]), tf.zeros([1, 50])])
    return run(tf, tf.reduce_sum(tf.exp(log_k + f + g) * cost), {cost: uniform(50, 50)})
