"""Steps with the patterns that networks are made of, and that the optimiser looks for: norms, attention, LSTMs, residual blocks, embeddings, each
with gradients and training; arrays large enough for the engines.

Weights are constants, or variables of the step's own, used as programs use them: read where they are needed, updated by an optimizer after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.graph.opdef import OPS

from .maker import Maker, Variable
from .state import optimizer_ops

OPTIMIZERS: list[Callable[[Any], Any]] = [
    lambda t: t.GradientDescentOptimizer(0.1), lambda t: t.AdamOptimizer(0.05), lambda t: t.MomentumOptimizer(0.1, 0.9), lambda t: t.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    lambda t: t.AdagradOptimizer(0.1), lambda t: t.RMSPropOptimizer(0.05), lambda t: t.RMSPropOptimizer(0.05, momentum=0.5, centered=True), lambda t: t.FtrlOptimizer(0.1),
    lambda t: t.AdadeltaOptimizer(0.5), lambda t: t.ProximalGradientDescentOptimizer(0.1, 0.01, 0.01), lambda t: t.ProximalAdagradOptimizer(0.1, l2_regularization_strength=0.01),
]  # fmt: skip


class Weights:
    """The weights of one step: constants, or variables that the step trains."""

    def __init__(self, m: Maker, trained: float = 0.6) -> None:
        self.m = m
        self.is_trained = not m.inside and m.chance(trained)
        self.resource = m.chance(0.5)
        self.snapshots = m.chance(0.3)
        self.variables: list[Variable] = []
        self.uses: list[Any] = []

    def __call__(self, *shape: int, near: float = 0.0, scale: float = 0.4) -> Any:
        """Numbers around `near`."""
        m = self.m
        value = (near + scale * m.uniform(shape)).astype(np.float32)
        if not self.is_trained:
            return m.tf.constant(value)
        v = m.variable(value, self.resource)
        self.variables.append(v)
        used = v.read(m.tf) if self.snapshots else v.variable
        self.uses.append(used)
        return used

    def finish(self, outputs: Sequence[Any], wrt: Sequence[Any] = ()) -> None:
        """Gradients by the weights and by `wrt`, perhaps an update, and outputs into the pool."""
        m, tf = self.m, self.m.tf
        loss = tf.add_n([tf.reduce_mean(tf.square(y - 0.3)) if m.chance(0.5) else tf.reduce_sum(y * y) * 0.1 for y in outputs])
        asked = [*self.uses, *wrt]
        found: list[Any] = []
        if asked and (self.is_trained or m.chance(0.6)):
            found = tf.gradients(loss, asked)
        results = [*outputs, loss]
        mine = list(zip(found, self.variables))
        shown = [tf.convert_to_tensor(g) if not isinstance(g, tf.IndexedSlices) else g.values for g in found[len(self.uses) :] if g is not None]
        shown += [g.values if isinstance(g, tf.IndexedSlices) else g for g, _ in mine if g is not None and m.chance(0.3)]
        if self.variables and m.chance(0.85):
            self._update([(g, v) for g, v in mine if g is not None], [*results, *shown])
            self._add([*results, *shown])
        else:
            self.show([*results, *shown])

    def show(self, results: Sequence[Any]) -> None:
        """Results into the pool. Whoever changes the weights comes after those who read them here."""
        for v in self.variables:
            v.last = list(dict.fromkeys([*v.last, *(y.op for y in results)]))
        self._add(results)

    def _add(self, results: Sequence[Any]) -> None:
        # A reference variable is read wherever its value is used: nothing built later may do that, once there is an update.
        is_shut = bool(self.variables) and not self.resource and not self.snapshots
        for y in results:
            self.m.add(self.m.tf.stop_gradient(y) if is_shut else y)

    def _update(self, pairs: Sequence[tuple[Any, Variable]], before: Sequence[Any]) -> None:
        m, tf = self.m, self.m.tf
        chosen = m.rng.choice(OPTIMIZERS)(tf.train)
        lasts = [op for v in self.variables for op in v.last]
        if m.chance(0.2):
            clipped, _ = tf.clip_by_global_norm([g for g, _ in pairs], 1.0)
            pairs = list(zip(clipped, [v for _, v in pairs]))
        # What is fetched is computed before: gradients of one product may otherwise come after the update of another one's weights.
        gradients = [g.values if isinstance(g, tf.IndexedSlices) else g for g, _ in pairs]
        with tf.variable_scope(m.name("opt")), tf.control_dependencies([*lasts, *[t.op for t in (*before, *gradients)]]):
            step = chosen.apply_gradients([(g, v.variable) for g, v in pairs])
        for v in self.variables:
            v.last = [step]
        m.updates.append(step)


def varied(m: Maker, shape: Sequence[int], scale: float = 1.0) -> Any:
    """Numbers of this shape that depend on the program's values, no two alike."""
    tf = m.tf
    base = tf.constant(scale * m.uniform(shape))
    found = m.number()
    if found is None or (not m.inside and m.chance(0.3)):
        return m.feed([scale * m.uniform(shape) for _ in range(2)], shape, "float32") if not m.inside else base
    return base * (m.fit(found.tensor, "float32", shape if m.chance(0.5) else ()) * 0.3 + 1.0)


def batch(m: Maker, *rest: int, sizes: Sequence[int] = (4, 7, 1, 4)) -> Any:
    """Rows, of which there are more or fewer from run to run; a fixed number inside of control flow."""
    if m.inside:
        return varied(m, (4, *rest))
    known = m.chance(0.4)
    sizes = [sizes[0]] * 2 if known else m.rng.sample(list(sizes), len(sizes))
    return m.feed([m.uniform((n, *rest)) for n in sizes], [sizes[0] if known else None, *rest], "float32")


# -- norms and attention ------------------------------------------------------------------------------------------------------


def normalised(m: Maker, w: Weights, x: Any, depth: int) -> Any:
    """A layer norm in one of the ways to write it."""
    tf = m.tf
    scale, offset = w(depth, near=1.0, scale=0.2), w(depth, scale=0.5)
    epsilon = m.rng.choice([1e-6, 1e-5, 1e-3])
    way = m.rng.choice(["moments", "moments", "moments", "by hand", "no scale"])
    if way == "moments":
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        if m.chance(0.15):
            m.add(tf.stop_gradient(variance))
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, epsilon)
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.squared_difference(x, mean) if m.chance(0.5) else tf.square(x - mean), -1, keepdims=True)
    y = (x - mean) * tf.rsqrt(variance + epsilon)
    return y * scale + offset if way == "by hand" else y * scale


def layer_norm(m: Maker) -> None:
    """Normalised rows with a residual connection, and their gradients."""
    depth = m.rng.choice([4, 8, 64])
    x = batch(m, depth) if m.chance(0.5) else varied(m, (*m.rng.choice([(4,), (2, 3), (48,)]), depth))
    w = Weights(m)
    y = normalised(m, w, x, depth)
    y = y + x if m.chance(0.4) else m.tf.nn.relu(y) if m.chance(0.3) else y
    y = normalised(m, w, y, depth) if m.chance(0.3) else y
    w.finish([y], [x])


def softmax(m: Maker) -> None:
    """Softmax in its ways, with cross entropy or without, and gradients."""
    tf, rng = m.tf, m.rng
    classes = rng.choice([3, 10, 40])
    x = batch(m, classes)
    way = rng.choice(["softmax", "softmax", "log", "sparse", "dense", "by hand", "sigmoid"])
    w = Weights(m, 0.3)
    logits = x * 2.0 + w(classes)
    rows = tf.shape(logits)[0]
    if way == "softmax":
        y = tf.nn.softmax(logits)
    elif way == "log":
        y = tf.nn.log_softmax(logits) * 0.1
    elif way == "sparse":
        y = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.range(rows) % classes, logits=logits)
    elif way == "dense":
        y = tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.stop_gradient(tf.nn.softmax(x)), logits=logits)
    elif way == "sigmoid":
        y = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(x > 0, "float32"), logits=logits)
    else:
        e = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))
        y = e / tf.reduce_sum(e, -1, keepdims=True)
    w.finish([y], [x])


def attention(m: Maker) -> None:
    """Heads of attention: scaled batches of products, softmax, a mask perhaps, and gradients."""
    tf, rng = m.tf, m.rng
    heads, length, depth = rng.choice([1, 2]), rng.choice([3, 8]), rng.choice([4, 16])
    w = Weights(m)
    x = batch(m, length, heads * depth, sizes=(2, 3, 1, 2))
    model = heads * depth

    def split(t: Any) -> Any:
        return tf.transpose(tf.reshape(t, [-1, length, heads, depth]), [0, 2, 1, 3])

    flat = tf.reshape(x, [-1, model])
    q, k, v = (split(tf.matmul(flat, w(model, model))) for _ in range(3))
    scale = 1 / np.sqrt(depth).astype(np.float32)
    way = rng.choice(["scores", "query", "divided", "none"])
    scores = tf.matmul(q * scale if way == "query" else q, k, transpose_b=True)
    scores = scores * scale if way == "scores" else scores / float(np.sqrt(depth)) if way == "divided" else scores
    if m.chance(0.4):
        scores = scores + tf.constant(np.triu(np.full((length, length), -1e9, np.float32), 1))
    y = tf.matmul(tf.nn.softmax(scores), v)
    y = tf.reshape(tf.transpose(y, [0, 2, 1, 3]), [-1, length, model])
    y = normalised(m, w, y + x, model) if m.chance(0.5) else y
    w.finish([y], [x])


# -- sequences ----------------------------------------------------------------------------------------------------------------


def lstm(m: Maker) -> None:
    """An LSTM written out step by step, inference or training; sometimes somebody looks into its gates."""
    tf, rng = m.tf, m.rng
    steps, rows, inputs, cells = rng.choice([2, 4, 5, 6]), rng.choice([1, 3]), rng.choice([2, 5]), rng.choice([4, 8])
    w = Weights(m)
    x = varied(m, (rows, steps, inputs))
    kernel, bias = w(inputs + cells, 4 * cells), w(4 * cells)
    c = h = tf.zeros([rows, cells])
    if m.chance(0.3):
        c, h = varied(m, (rows, cells), 0.5), varied(m, (rows, cells), 0.5)
    order = rng.choice(["ijfo", "ijfo", "ifjo"])
    forget = rng.choice([1.0, 1.0, None])
    outputs, gates = [], None
    for one in tf.unstack(x, axis=1):
        gates = tf.nn.bias_add(tf.matmul(tf.concat([one, h], 1), kernel), bias)
        named = dict(zip(order, tf.split(gates, 4, axis=1)))
        f = named["f"] if forget is None else named["f"] + forget
        c = c * tf.sigmoid(f) + tf.sigmoid(named["i"]) * tf.tanh(named["j"])
        h = tf.tanh(c) * tf.sigmoid(named["o"])
        outputs.append(h)
    if m.chance(0.15):  # somebody looks inside
        m.add(tf.stop_gradient(gates))
    way = rng.choice(["last", "all", "some", "state"])
    read = [outputs[-1]] if way == "last" else [tf.stack(outputs, 1)] if way == "all" else [outputs[0], outputs[-1]] if way == "some" else [h, c]
    w.finish(read, [x])


def gru(m: Maker) -> None:
    """A GRU written out step by step."""
    tf, rng = m.tf, m.rng
    steps, rows, inputs, cells = rng.choice([1, 3, 4]), rng.choice([1, 3]), rng.choice([2, 5]), rng.choice([4, 8])
    w = Weights(m)
    x, h = varied(m, (rows, steps, inputs)), tf.zeros([rows, cells])
    gate, gate_bias, candidate, bias = w(inputs + cells, 2 * cells), w(2 * cells, near=1.0), w(inputs + cells, cells), w(cells)
    for one in tf.unstack(x, axis=1):
        r, u = tf.split(tf.sigmoid(tf.nn.bias_add(tf.matmul(tf.concat([one, h], 1), gate), gate_bias)), 2, axis=1)
        new = tf.tanh(tf.nn.bias_add(tf.matmul(tf.concat([one, r * h], 1), candidate), bias))
        h = u * h + (1 - u) * new
    w.finish([h], [x])


def cells(m: Maker) -> None:
    """The ops of whole cells: BlockLSTM and its relatives."""
    tf, rng = m.tf, m.rng
    raw = tf.raw_ops
    steps, rows, inputs, size = rng.choice([1, 4]), rng.choice([1, 3]), rng.choice([2, 5]), 8
    w = Weights(m, 0.3)
    kind = rng.choice(["BlockLSTM", "BlockLSTMV2", "LSTMBlockCell", "GRUBlockCell"])
    state, zeros = varied(m, (rows, size), 0.5), tf.zeros([rows, size])
    peep = tf.constant(m.uniform([size]))
    if kind == "GRUBlockCell":
        x = varied(m, (rows, inputs))
        made = raw.GRUBlockCell(x=x, h_prev=state, w_ru=w(inputs + size, 2 * size), w_c=w(inputs + size, size), b_ru=w(2 * size), b_c=w(size))
        w.finish([made.h] if m.chance(0.7) else [made.h, made.r], [x])
        return
    weights = {"w": w(inputs + size, 4 * size), "b": w(4 * size), "wci": peep, "wcf": peep, "wco": peep}
    more: dict[str, Any] = {"use_peephole": m.chance(0.2), "cell_clip": rng.choice([0.0, 3.0, -1.0])}
    if kind != "BlockLSTMV2":
        more["forget_bias"] = rng.choice([0.0, 1.0])
    if kind == "LSTMBlockCell":
        x = varied(m, (rows, inputs))
        made = raw.LSTMBlockCell(x=x, cs_prev=zeros, h_prev=state, **weights, **more)
    else:
        x = varied(m, (steps, rows, inputs))
        made = getattr(raw, kind)(seq_len_max=np.int64(rng.choice([steps, max(1, steps - 1)])), x=x, cs_prev=zeros, h_prev=state, **weights, **more)
    # LSTMBlockCell has no gradient of its own.
    if kind == "LSTMBlockCell":
        w.show([made.h, made.cs if m.chance(0.5) else made.co])
        return
    w.finish([made.h] if m.chance(0.6) else [made.h, made.cs], [x])


def dynamic(m: Maker) -> None:
    """A recurrence in a loop over TensorArrays, and the gradient through it."""
    tf, rng = m.tf, m.rng
    if m.inside:
        raise ValueError("only at the top")
    rows, inputs, size = rng.choice([1, 3]), 3, rng.choice([4, 8])
    x = batch(m, rows, inputs, sizes=(4, 2, 5, 1))
    w = Weights(m)
    kernel, recurrent, bias = w(inputs, size), w(size, size), w(size)
    n = tf.shape(x)[0]
    given = tf.TensorArray("float32", n, element_shape=[rows, inputs]).unstack(x)
    made = tf.TensorArray("float32", n, element_shape=[rows, size])
    branch = m.chance(0.3)

    def body(i: Any, h: Any, out: Any) -> Any:
        new = tf.tanh(tf.nn.bias_add(tf.matmul(given.read(i), kernel) + tf.matmul(h, recurrent), bias))
        if branch:
            new = tf.cond(i % 2 > 0, lambda: new * 0.5, lambda: tf.square(new))
        return i + 1, new, out.write(i, new)

    _, last, out = tf.while_loop(lambda i, *_: i < n, body, [0, tf.zeros([rows, size]), made], parallel_iterations=rng.choice([1, 10]))
    w.finish([last, out.stack()] if m.chance(0.5) else [last], [x])


def shared_products(m: Maker) -> None:
    """The same weights several times over: gradients that are sums of products, large enough for the engine."""
    tf, rng = m.tf, m.rng
    size = rng.choice([8, 64, 80])
    w = Weights(m, 0.8)
    x = h = varied(m, (rng.choice([1, 4]), size))
    kernel, bias = w(size, size, scale=0.1), w(size)
    for _ in range(rng.choice([2, 3, 5])):
        h = tf.matmul(h, kernel)
        h = tf.nn.bias_add(h, bias) if m.chance(0.8) else h
        h = tf.tanh(h)
    w.finish([h], [x])


# -- images -------------------------------------------------------------------------------------------------------------------


def block(m: Maker) -> None:
    """Convolutions with norms, activations, a shortcut and pooling: trained, or frozen with constants that fold."""
    tf, rng = m.tf, m.rng
    w = Weights(m)
    channels, layout = rng.choice([3, 8, 16]), "NHWC"
    x = batch(m, 6, 6, channels, sizes=(2, 1, 3, 2))
    training = w.is_trained and m.chance(0.7)

    def convolved(t: Any, out: int, window: int, stride: int = 1) -> Any:
        if window == 3 and m.chance(0.2):
            t = tf.nn.depthwise_conv2d(t, w(3, 3, int(t.shape[3]), 1), [1, stride, stride, 1], "SAME")
            stride, window = 1, 1
        t = tf.nn.conv2d(t, w(window, window, int(t.shape[3]), out, scale=0.2), [1, stride, stride, 1], "SAME", data_format=layout)
        return tf.nn.bias_add(t, w(out)) if m.chance(0.4) else t

    def normed(t: Any) -> Any:
        n = int(t.shape[3])
        if training:
            return tf.nn.fused_batch_norm(t, w(n, near=1.0), w(n), is_training=True)[0]
        mean, variance = tf.constant(0.1 * m.uniform([n])), tf.constant(1 + 0.2 * m.uniform([n]))
        if m.chance(0.5):
            return tf.nn.fused_batch_norm(t, w(n, near=1.0), w(n), mean=mean, variance=variance, is_training=False)[0]
        return tf.nn.batch_normalization(t, mean, variance, w(n), w(n, near=1.0), 1e-3)

    active = rng.choice([tf.nn.relu, tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.sigmoid, lambda t: tf.nn.leaky_relu(t, 0.1), tf.tanh])
    out, stride = rng.choice([channels, channels, 4]), rng.choice([1, 1, 2])
    y = active(normed(convolved(x, 8, rng.choice([1, 3]), stride)))
    y = normed(convolved(y, out, 3)) if m.chance(0.7) else convolved(y, out, 3)
    if m.chance(0.6):
        shortcut = x if stride == 1 and out == channels else convolved(x, out, 1, stride)
        y = y + shortcut if m.chance(0.6) else tf.add_n([shortcut, y])
    y = active(y) if m.chance(0.8) else y
    if m.chance(0.5):
        y = rng.choice([tf.nn.max_pool, tf.nn.avg_pool])(y, [1, 2, 2, 1], [1, rng.choice([1, 2]), 2, 1], rng.choice(["SAME", "VALID"]))
    if m.chance(0.4):
        y = tf.matmul(tf.reduce_mean(y, [1, 2]), w(out, 5)) + w(5)
        y = tf.nn.softmax(y) if m.chance(0.5) else y
    w.finish([y], [x])


# -- large weights ------------------------------------------------------------------------------------------------------------


def perceptron(m: Maker) -> None:
    """Layers of weights that are large enough for the engines, trained."""
    tf, rng = m.tf, m.rng
    inputs, hidden, out = rng.choice([20, 100]), rng.choice([80, 120]), 80
    w = Weights(m, 0.9)
    x = batch(m, inputs, sizes=(4, 7, 1, 64))
    y = rng.choice([tf.nn.relu, tf.tanh])(tf.nn.xw_plus_b(x, w(inputs, hidden, scale=0.2), w(hidden)) if m.chance(0.5) else tf.matmul(x, w(inputs, hidden, scale=0.2)) + w(hidden))
    if m.chance(0.3):
        y = tf.nn.dropout(y, keep_prob=0.8, seed=rng.randint(1, 99))
    y = tf.matmul(y, w(hidden, out, scale=0.2))
    w.finish([y])


_RATES = {"rho": 0.9, "momentum": 0.9, "beta1": 0.9, "beta2": 0.99, "beta1_power": 0.9, "beta2_power": 0.99, "lr_power": -0.5, "epsilon": 1e-3, "logbase": 0.3}


def large_optimizer(m: Maker) -> None:
    """One optimizer op on large variables, with a gradient that is a product, a sum of rows, or anything else."""
    tf, rng = m.tf, m.rng
    if m.inside:
        raise ValueError("only at the top")
    name = m.choose(optimizer_ops())
    opdef = OPS[name]
    resource, sparse = name.startswith("Resource"), "SparseApply" in name
    rows, columns = rng.choice([(80, 80), (96, 65), (6400, 1)])
    slots = [a for a in opdef.inputs if a.is_ref or (a.dtype is not None and a.dtype.name == "resource")]
    used = [m.variable(m.numbers.uniform(0.5, 1.5, (rows, columns)).astype("float32"), resource) for _ in slots]
    if sparse:
        count = rng.choice([3, 40, 1100])
        indices = m.numbers.randint(0, rows, count).astype(rng.choice(["int32", "int64"]))
        gradient = varied(m, (count, columns), 0.5)
    else:
        gradient = tf.matmul(varied(m, (3, rows), 0.5), varied(m, (3, columns), 0.5), transpose_a=True) if m.chance(0.5) else varied(m, (rows, columns), 0.5)
        indices = np.zeros(0, np.int32)
    keywords: dict[str, Any] = {}
    for arg in opdef.inputs:
        if arg in slots:
            keywords[arg.name] = used[slots.index(arg)].handle
        elif arg.name in ("grad", "delta"):
            keywords[arg.name] = gradient
        elif arg.name == "indices":
            keywords[arg.name] = tf.constant(indices)
        elif arg.name == "global_step":
            keywords[arg.name] = tf.constant(3, tf.int64)
        else:
            keywords[arg.name] = tf.constant(_RATES.get(arg.name, 0.1))
    for attr in ("use_locking", "use_nesterov", "update_slots"):
        if attr in opdef.attrs and m.chance(0.3):
            keywords[attr] = m.chance(0.7)
    with used[0].turn(tf):
        result = getattr(tf.raw_ops, name)(**keywords)
    op = result if isinstance(result, tf.Operation) else result.op
    for v in used:
        v.last = [op]
    m.updates.append(op)
    if m.chance(0.6):
        m.add(tf.reduce_sum(rng.choice(used).read(tf)))


def embedding(m: Maker) -> None:
    """Rows of a table by number, combined and trained: sparse updates."""
    tf, rng = m.tf, m.rng
    if m.inside:
        raise ValueError("only at the top")
    rows, depth = rng.choice([(20, 4), (500, 16)])
    w = Weights(m, 0.9)
    w.snapshots = False
    table = w(rows, depth)
    sizes = rng.sample([4, 7, 1, 30], 4)
    ids = m.feed([m.numbers.randint(0, rows, n).astype(np.int32) for n in sizes], [None], "int32")
    if rng.random() < 0.3:
        ids = tf.reshape(tf.concat([ids, ids], 0), [2, -1])
    y = tf.nn.embedding_lookup(table, ids) if m.chance(0.6) else tf.gather(table, ids)
    if m.chance(0.4):
        y = tf.nn.embedding_lookup(table, tf.unique(tf.reshape(ids, [-1]))[0])
    if m.chance(0.5):
        y = tf.tanh(tf.matmul(tf.reshape(y, [-1, depth]), w(depth, 3)))
    w.finish([y])


def inner(m: Maker) -> None:
    """One of those that may stand in a branch or a loop."""
    m.rng.choice([layer_norm, softmax, block, lstm, attention])(m)


# -- devices and functions ----------------------------------------------------------------------------------------------------


def crossings(m: Maker) -> None:
    """A chain that goes from device to device and back, with a variable on one of them."""
    tf, rng = m.tf, m.rng
    if m.inside or m.devices < 2:
        raise ValueError("only at the top of programs for several devices")
    x = varied(m, rng.choice([(), (3,), (2, 70)]))
    values = [x]
    for i in range(rng.randint(2, 6)):
        with tf.device(f"/cpu:{rng.randrange(m.devices)}"):
            y = rng.choice([tf.tanh, tf.square, lambda t: t * 0.5, lambda t: tf.cond(tf.reduce_sum(t) > 0, lambda: t * 2.0, lambda: t - 1.0)])(values[-1])
            values.append(y + rng.choice(values) if m.chance(0.5) else y)
        if i == 1 and m.chance(0.5):
            found = m.rng.choice(m.variables) if m.variables else m.variable(m.uniform([3]))
            values[-1] = values[-1] + tf.cast(tf.reduce_sum(found.read(tf)), "float32") * 0.1
    m.add(values[-1])
    (gradient,) = tf.gradients(values[-1], [x])
    if gradient is not None and m.chance(0.7):
        m.add(gradient)


def stateful_function(m: Maker) -> None:
    """Functions that read and change a resource variable they are handed, by a call, in a branch or in a loop."""
    from .control import _defun

    tf, rng = m.tf, m.rng
    if m.inside:
        raise ValueError("only at the top")
    raw = tf.raw_ops
    v = m.variable(m.uniform([3]), True)
    x = varied(m, (3,))
    which = rng.choice(["StatefulPartitionedCall", "If", "While", "nested"])

    def function(body: Callable[..., Any], *types: Any) -> Any:
        made = _defun(tf)(*types, func_name=m.name("f").replace(".", "_"))(body)
        made.add_to_graph(tf.get_default_graph())
        return made

    def change(handle: Any, t: Any) -> Any:
        with tf.control_dependencies([raw.AssignAddVariableOp(resource=handle, value=tf.reshape(tf.tanh(t), [3]))]):
            return raw.ReadVariableOp(resource=handle, dtype=tf.float32) * 0.5

    def look(handle: Any, t: Any) -> Any:
        return raw.ReadVariableOp(resource=handle, dtype=tf.float32) - t

    types = (tf.resource, tf.float32)
    with v.turn(tf):
        if which == "If":
            pred = tf.reduce_sum(x) > 0
            y = raw.If(cond=pred, input=[v.handle, x], Tout=[tf.float32], then_branch=function(change, *types), else_branch=function(look, *types))[0]
        elif which == "While":
            rounds = rng.randint(0, 3)
            test = function(lambda i, handle, t: i < rounds, tf.int32, *types)
            step = function(lambda i, handle, t: (i + 1, handle, change(handle, t)), tf.int32, *types)
            y = raw.While(input=[tf.constant(0), v.handle, x], cond=test, body=step, output_shapes=[[], [], [3]])[2]
        else:
            inner = function(change, *types)
            made = inner if which != "nested" else function(lambda h, t: raw.StatefulPartitionedCall(args=[h, t * 2.0], Tout=[tf.float32], f=inner)[0] + 1.0, *types)
            y = raw.StatefulPartitionedCall(args=[v.handle, x], Tout=[tf.float32], f=made)[0]
    v.last = [y.op]
    y.set_shape([3])
    m.updates.append(y.op)
    m.add(y)
