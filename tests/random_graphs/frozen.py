"""Steps with networks as they are served: weights that never change, and shapes large enough for the ways that only those take. Convolutions of many channels
(Winograd's way), their branches and shortcuts, cells of recurrent networks, products of batches, and pieces of arrays among them, side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .maker import Maker
from .networks import Weights, batch, varied


def _activations(m: Maker) -> list[Callable[[Any], Any]]:
    tf = m.tf
    return [tf.nn.relu, tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.tanh, tf.sigmoid, lambda t: tf.nn.leaky_relu(t, 0.1), lambda t: t, lambda t: t * tf.sigmoid(t)]


def _odd(m: Maker, x: Any, shape: tuple[int, ...]) -> Any:
    """`x`, with a number in one place that is not like the others: infinite, no number, or large enough for its products to be infinite."""
    if not m.chance(0.15):
        return x
    extra = np.zeros(shape, np.float32)
    extra[tuple(int(m.numbers.randint(n)) for n in shape)] = m.rng.choice([np.inf, -np.inf, np.nan, 3e38, 1e19, -0.0])
    return x + m.tf.constant(extra)


def convolutions(m: Maker) -> None:
    """Convolutions of many channels one behind the other or side by side, with norms, sums, pools and concatenations: a piece of an image network."""
    tf, rng = m.tf, m.rng
    w = Weights(m, 0.0)
    channels, size = rng.choice([16, 17, 24, 32, 48]), rng.choice([4, 5, 7, 8, 9, 12])
    x = batch(m, size, size + rng.choice([0, 0, 1]), channels, sizes=(2, 1, 3, 2))
    # What a ReLU in a convolution makes of NaN is its engine's matter, as in TensorFlow.
    odd = m.chance(0.3)
    if odd:
        x = _odd(m, x, (*[1], *(int(n) for n in x.shape[1:])))
    smooth = [tf.tanh, lambda t: t]
    active = rng.choice(smooth if odd else _activations(m))

    def convolved(t: Any, out: int, window: int = 3, stride: int = 1, padding: str = "SAME") -> Any:
        depth = int(t.shape[3])
        kernel = w(window, window, depth, out, scale=1.0 / np.sqrt(window * window * depth))
        dilation = 2 if window == 3 and stride == 1 and m.chance(0.08) else 1
        y = tf.nn.conv2d(t, kernel, [1, stride, stride, 1], padding, dilations=[1, dilation, dilation, 1])
        way = rng.randrange(5)
        if way == 0:
            mean, variance = tf.constant(0.1 * m.uniform([out])), tf.constant(1 + 0.2 * m.uniform([out]))
            y = tf.nn.fused_batch_norm(y, w(out, near=1.0), w(out), mean=mean, variance=variance, is_training=False)[0]
        elif way == 1:
            y = y * w(out, near=1.0) + w(out)
        elif way < 4:
            y = tf.nn.bias_add(y, w(out))
        return y

    y = x
    results = []
    for _ in range(rng.randint(1, 3)):
        way = rng.choice(["plain", "plain", "shortcut", "shortcut", "branches", "depthwise", "pool", "shuffle"])
        depth = int(y.shape[3])
        if way == "plain":
            padding = "SAME" if min(int(n) for n in y.shape[1:3]) < 4 else rng.choice(["SAME", "SAME", "VALID"])
            y = active(convolved(y, rng.choice([16, 20, 32, 40]), padding=padding))
        elif way == "shortcut":
            inner = active(convolved(y, rng.choice([16, 24, 32]), rng.choice([1, 3])))
            inner = convolved(inner, depth)
            y = active(tf.add_n([y, inner]) if m.chance(0.3) else rng.choice([lambda: y + inner, lambda: inner + y])())
        elif way == "branches":
            parts = [active(convolved(y, n, k)) for n, k in rng.sample([(16, 1), (16, 3), (24, 3), (8, 3), (5, 1)], rng.choice([2, 3]))]
            if m.chance(0.5):
                parts.append(tf.nn.max_pool(y, [1, 3, 3, 1], [1, 1, 1, 1], "SAME"))
            y = tf.concat(parts, 3)
        elif way == "depthwise":
            stride = rng.choice([1, 1, 2])
            y = tf.nn.depthwise_conv2d(y, w(3, 3, depth, 1), [1, stride, stride, 1], "SAME")
            y = active(convolved(active(y), rng.choice([16, 32]), 1))
        elif way == "pool":
            y = rng.choice([tf.nn.max_pool, tf.nn.avg_pool])(y, [1, 2, 2, 1], [1, rng.choice([1, 2]), 2, 1], "SAME")
        else:  # half of the channels go through, all change places
            left, right = tf.split(y, [depth // 2, depth - depth // 2], 3)
            y = tf.concat([left, active(convolved(right, depth // 2, 3))], 3)
            if depth % 2 == 0:
                y = tf.reshape(tf.transpose(tf.reshape(y, [-1, *(int(n) for n in y.shape[1:3]), 2, depth // 2]), [0, 1, 2, 4, 3]), [-1, *(int(n) for n in y.shape[1:3]), depth])
        if m.chance(0.2):
            results.append(y)
    if m.chance(0.4):
        flat = tf.reduce_mean(y, [1, 2])
        y = tf.nn.softmax(tf.matmul(flat, w(int(flat.shape[1]), 10)) + w(10)) if m.chance(0.7) else flat
    results.append(y)
    if m.chance(0.25):
        w.finish(results, [x])
    else:
        for y in results:
            m.add(y)


def recurrent(m: Maker) -> None:
    """Cells of recurrent networks with constant weights, step by step, several layers, with pieces, concatenations and a softmax at the end."""
    tf, rng = m.tf, m.rng
    w = Weights(m, 0.0)
    rows, steps, inputs = rng.choice([1, 4, 8]), rng.choice([2, 3, 5]), rng.choice([6, 16])
    sizes = [rng.choice([8, 16, 32]) for _ in range(rng.choice([1, 1, 2]))]
    x = varied(m, (rows, steps, inputs))
    kind = rng.choice(["gru", "gru", "plain", "lstm", "minimal"])
    reverse = m.chance(0.2)
    sequence = tf.unstack(tf.reverse(x, [1]) if reverse else x, axis=1)

    def layer(sequence: list[Any], size: int) -> list[Any]:
        given = int(sequence[0].shape[1])
        h = c = tf.zeros([rows, size]) if m.chance(0.7) else tf.tile(tf.constant(m.uniform([1, size])), [rows, 1])
        wide = {"gru": 2, "plain": 1, "lstm": 4, "minimal": 1}[kind] * size
        apart = m.chance(0.4)
        kernel, bias = w(given + size, wide, scale=0.3), w(wide)
        candidate, candidate_bias = w(given + size, size, scale=0.3), w(size)
        top, low = kernel[:given], kernel[given:]
        outputs = []
        for one in sequence:
            gates = (tf.matmul(one, top) + tf.matmul(h, low) if apart else tf.matmul(tf.concat([one, h], 1), kernel)) + bias
            if kind == "gru":
                r, u = tf.split(tf.sigmoid(gates), 2, axis=1)
                new = tf.tanh(tf.nn.bias_add(tf.matmul(tf.concat([one, r * h], 1), candidate), candidate_bias))
                h = u * h + (1 - u) * new
            elif kind == "lstm":
                i, j, f, o = gates[:, :size], gates[:, size : 2 * size], gates[:, 2 * size : 3 * size], gates[:, 3 * size :]
                c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
                h = tf.nn.relu(c) * tf.sigmoid(o) if reverse else tf.tanh(c) * tf.sigmoid(o)
            elif kind == "minimal":
                u = tf.sigmoid(gates)
                h = (1 - u) * h + u * tf.nn.relu(tf.matmul(tf.concat([one, u * h], 1), candidate))
            else:
                h = tf.tanh(gates)
            outputs.append(h)
        return outputs

    for size in sizes:
        sequence = layer(sequence, size)
    way = rng.choice(["last", "stack", "concat", "classes", "attend"])
    if way == "attend":
        keys = tf.stack(sequence, 1)
        weights = tf.nn.softmax(tf.matmul(keys, tf.expand_dims(sequence[-1], 2)), 1)
        m.add(tf.squeeze(tf.matmul(weights, keys, transpose_a=True), [1]))
    elif way == "classes":
        m.add(tf.nn.softmax(tf.matmul(sequence[-1], w(sizes[-1], 10)) + w(10)))
    else:
        m.add(sequence[-1] if way == "last" else tf.stack(sequence, 1) if way == "stack" else tf.concat(sequence, rng.choice([0, 1])))


def products(m: Maker) -> None:
    """Layers, products of batches and softmaxes of constants side by side, with transposes, slices and sums among them."""
    tf, rng = m.tf, m.rng
    w = Weights(m, 0.0)
    length, depth, heads = rng.choice([4, 9, 16]), rng.choice([8, 16]), rng.choice([1, 2, 4])
    model = depth * heads
    x = batch(m, length, model, sizes=(2, 1, 3, 2))
    y = x
    for _ in range(rng.choice([1, 2])):
        flat = tf.reshape(y, [-1, model])
        if m.chance(0.5):
            q, k, v = tf.split(tf.nn.bias_add(tf.matmul(flat, w(model, 3 * model, scale=0.2)), w(3 * model)), 3, 1)
        else:
            q, k, v = (tf.matmul(flat, w(model, model, scale=0.2)) + w(model) for _ in range(3))
        q, k, v = (tf.transpose(tf.reshape(t, [-1, length, heads, depth]), [0, 2, 1, 3]) for t in (q, k, v))
        scores = tf.matmul(q, k, transpose_b=True) * float(depth) ** -0.5
        if m.chance(0.3):
            scores += tf.constant(np.triu(np.full((length, length), -1e9, np.float32), 1))
        mixed = tf.reshape(tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3]), [-1, model])
        y = tf.reshape(y, [-1, model]) + tf.matmul(mixed, w(model, model, scale=0.2))
        wide = 2 * model
        inner = rng.choice([tf.nn.relu, tf.tanh, lambda t: t * 0.5 * (1.0 + tf.erf(t * 0.70710677))])(tf.matmul(y, w(model, wide, scale=0.2)) + w(wide))
        y = tf.reshape(y + tf.matmul(inner, w(wide, model, scale=0.2)) + w(model), [-1, length, model])
    way = rng.choice(["all", "first", "mean", "classes"])
    if way == "all":
        m.add(y)
    elif way == "first":
        m.add(y[:, 0])
    elif way == "mean":
        m.add(tf.reduce_mean(y, 1))
    else:
        m.add(tf.nn.softmax(tf.matmul(y[:, 0], w(model, 10)) + w(10)))


def tables(m: Maker) -> None:
    """Several tables looked up by numbers that occur more than once, and trained together by one optimizer: sparse updates, in one or in several nodes."""
    tf, rng = m.tf, m.rng
    if m.inside:
        raise ValueError("only at the top")
    w = Weights(m, 1.0)
    w.snapshots = False
    count = rng.choice([1, 2, 3, 5])
    depths = [rng.choice([1, 4, 16, 17])] * count if m.chance(0.6) else [rng.choice([1, 3, 16, 33]) for _ in range(count)]
    parts = []
    for depth in depths:
        rows = rng.choice([1, 3, 20, 500])
        table = w(rows, depth)
        few = max(1, rows // 4)
        draws = [m.numbers.randint(0, rng.choice([few, rows]), n) for n in rng.sample([1, 6, 6, 40, 0], 4)]
        ids = m.feed([d.astype(np.int32) for d in draws], [None], "int32") if m.chance(0.5) else m.feed([d.astype(np.int64) for d in draws], [None], "int64")
        if m.chance(0.2):
            ids = ids[::-1]
        found = tf.nn.embedding_lookup(table, ids)
        if m.chance(0.3):  # the same table by other numbers: gradients of two lookups meet
            found = tf.concat([found, tf.gather(table, tf.constant(m.numbers.randint(0, rows, 4), tf.int64))], 0)
        if m.chance(0.15):
            ids = tf.unique(ids)[0]
            found = tf.concat([found, tf.gather(table, ids)], 0)
        parts.append(tf.reduce_sum(found, 0) if m.chance(0.8) else tf.reduce_sum(tf.tanh(found), 0))
    y = tf.concat(parts, 0)
    if m.chance(0.5):
        y = tf.tanh(tf.matmul(tf.expand_dims(y, 0), w(sum(depths), 3)))
    w.finish([y])
