"""Steps of ordinary programs: arithmetic on values of any shape, arrays whose sizes change from run to run, gradients, several values at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from .maker import FLOATS, Maker

SHAPES = ((), (3,), (2, 3), (2, 1), (1, 3), (40,), (4, 5), (2, 2, 2), (3, 0), (1,))


def source(m: Maker) -> None:
    """A placeholder: of known shape, or of sizes that change from run to run."""
    rng = m.rng
    if m.inside:
        raise ValueError("only at the top")
    dtype = rng.choice(["float32"] * 5 + ["float64", "int32", "int64", "float16", "bfloat16"])
    make = (lambda s: m.uniform(s).astype(dtype if dtype != "bfloat16" else "float32")) if dtype.startswith(("f", "b")) else (lambda s: m.numbers.randint(-5, 6, s).astype(dtype))
    if m.chance(0.6):
        shape = rng.choice(SHAPES)
        m.add(m.feed([make(shape) for _ in range(3)], shape, dtype))
    else:
        rank = rng.choice([1, 1, 2])
        sizes = [(rng.choice([1, 2, 3, 5, 7, 0]), *([3] if rank == 2 else [])) for _ in range(4)]
        m.add(m.feed([make(s) for s in sizes], rng.choice([[None, *([3] if rank == 2 else [])], [None] * rank, None]), dtype))


def big(m: Maker) -> None:
    """An array that is long enough for tiles."""
    if m.inside:
        raise ValueError("only at the top")
    n = m.rng.choice([1 << 16, 70001, 1 << 17])
    x = m.feed([m.uniform([n])], [n] if m.chance(0.5) else [None], "float32")
    y = x
    for _ in range(m.rng.randint(2, 5)):
        y = unary_of(m, y) if m.chance(0.5) else binary_of(m, y, m.rng.choice([x, y]))
    m.add(m.tf.reduce_max(y, 0))
    if m.chance(0.3):
        m.add(y)
    m.add(y[:7])


def unary_of(m: Maker, x: Any) -> Any:
    tf = m.tf
    return m.rng.choice([
        tf.tanh, tf.sigmoid, tf.nn.relu, tf.square, tf.negative, tf.sin, tf.abs, tf.identity, tf.stop_gradient, tf.nn.relu6, tf.nn.elu, tf.nn.softplus, tf.floor,
        tf.sign, tf.zeros_like, tf.ones_like, lambda t: tf.exp(-tf.abs(t)), lambda t: t * 0.5 + 0.25, lambda t: tf.sqrt(tf.abs(t)), lambda t: 1 / (t * t + 1),
        lambda t: tf.cast(tf.cast(t, "float64"), t.dtype), lambda t: tf.clip_by_value(t, -0.5, 0.5), lambda t: t ** 2, lambda t: tf.pow(tf.abs(t) + 1, 0.5),
        lambda t: tf.log1p(tf.abs(t)), lambda t: tf.where(t > 0, t, -t), lambda t: -t,
    ])(x)  # fmt: skip


def binary_of(m: Maker, x: Any, y: Any) -> Any:
    tf = m.tf
    return m.rng.choice([
        tf.add, tf.subtract, tf.maximum, tf.minimum, lambda a, b: tf.tanh(a) * tf.tanh(b), tf.squared_difference, lambda a, b: a / (tf.abs(b) + 1),
        lambda a, b: tf.where(tf.less(a, a + b - b), a, a * 2), lambda a, b: tf.add_n([a, b, a]) if a.shape.ndims is not None and a.shape == b.shape else a + b,
        lambda a, b: tf.cast(a > b, a.dtype) * a, lambda a, b: tf.atan2(a, tf.abs(b) + 1), lambda a, b: a - b * 0.5, lambda a, b: tf.div_no_nan(a, b),
    ])(x, y)  # fmt: skip


def arithmetic(m: Maker) -> None:
    """A few elementwise steps on one or two values."""
    tf, rng = m.tf, m.rng
    found = m.number()
    if found is None:
        raise ValueError("nothing to compute with")
    x = found.tensor
    if found.kind not in ("float32", "float64"):
        if found.kind.startswith(("int", "uint")) and m.chance(0.6):
            return _whole(m, x)
        x = tf.cast(x, "float32") if not found.kind.startswith("complex") else tf.real(x)
    for _ in range(rng.randint(1, 4)):
        if m.chance(0.5):
            x = unary_of(m, x)
        else:
            other = m.number()
            assert other is not None
            dims = x.shape.as_list() if x.shape.ndims is not None else None
            name = x.dtype.base_dtype.name
            if other.kind == name and other.tensor.shape.ndims == 0:
                y = other.tensor
            elif dims is not None and None not in dims:
                shape = [1 if m.chance(0.2) else n for n in dims][rng.randint(0, len(dims)) if m.chance(0.2) else 0 :]
                y = m.fit(other.tensor, name, shape)
            else:
                y = m.fit(other.tensor, name, ()) if m.chance(0.5) else unary_of(m, x)
            x, y = (y, x) if m.chance(0.3) else (x, y)
            x = binary_of(m, x, y)
    m.add(x)
    return None


def _whole(m: Maker, x: Any) -> None:
    tf = m.tf
    for _ in range(m.rng.randint(1, 3)):
        c = tf.constant(m.rng.randint(1, 5), x.dtype)
        x = m.rng.choice([
            lambda t: t + c, lambda t: t * c, lambda t: t // c, lambda t: t % c, lambda t: tf.maximum(t, c), lambda t: tf.bitwise.bitwise_and(t, c), lambda t: t - c,
            lambda t: tf.truncatediv(t, c), lambda t: tf.where(t > c, t, t + c), tf.square,
        ])(x)  # fmt: skip
    m.add(x)


def shaping(m: Maker) -> None:
    """Reductions, slices, concatenations, products: ops that change the shape, on values of any shape."""
    tf, rng = m.tf, m.rng
    found = m.number()
    if found is None:
        raise ValueError("nothing to shape")
    x = found.tensor
    if found.kind == "bool":
        x = tf.cast(x, "int32")
    rank = x.shape.ndims
    wide = found.kind in FLOATS
    choices = [lambda: tf.reduce_sum(x), lambda: tf.reshape(x, [-1]), lambda: tf.shape(x), lambda: tf.size(x), lambda: tf.reduce_prod(x), lambda: tf.rank(x)]
    if wide:
        choices += [lambda: tf.reduce_mean(x), lambda: tf.nn.l2_loss(x), lambda: tf.add_n([tf.reduce_sum(x), tf.reduce_mean(x)])]
    if rank is not None and rank > 0:
        axis = rng.randrange(rank)
        choices += [
            lambda: tf.reduce_sum(x, axis, keepdims=True), lambda: tf.concat([x, x], axis), lambda: x[:1], lambda: x[..., ::-1], lambda: tf.stack([x, x], axis), lambda: x[-1:],
            lambda: tf.unstack(tf.stack([x, x + x]))[1], lambda: tf.expand_dims(x, axis), lambda: tf.transpose(x), lambda: tf.pad(x, [[1, 0]] * rank), lambda: x[1:],
            lambda: tf.concat([x, tf.zeros_like(x)], 0)[: tf.shape(x)[0]], lambda: tf.reverse(x, [axis]), lambda: tf.tile(x, [2] * rank), lambda: tf.cumsum(x, axis),
            lambda: tf.reshape(x, tf.concat([tf.shape(x), [1]], 0)), lambda: tf.squeeze(tf.expand_dims(x, 0), [0]), lambda: tf.reduce_sum(x, list(range(rank))),
        ]  # fmt: skip
        if wide:
            choices += [lambda: tf.nn.softmax(x) if found.kind != "bfloat16" else x, lambda: tf.reduce_mean(x, axis), lambda: tf.reduce_logsumexp(x, axis)]
    if rank == 2 and wide:
        choices += [lambda: tf.matmul(x, x, transpose_b=True), lambda: tf.matmul(x, tf.transpose(x)), lambda: tf.nn.bias_add(x, tf.reduce_sum(x, 0))]
    y = rng.choice(choices)()
    if isinstance(y.shape.num_elements(), int) and y.shape.num_elements() > 20000:
        y = tf.reduce_max(y)
    m.add(y)


def gradients(m: Maker) -> None:
    """tf.gradients of one value with respect to others, sometimes of the result once more."""
    tf = m.tf
    if m.inside:
        raise ValueError("only at the top")
    ys = m.having(lambda v: v.kind in ("float32", "float64"))
    if not ys:
        raise ValueError("nothing to differentiate")
    y = m.pick(ys[-5:]).tensor
    before = _before(y)
    xs = [v for v in ys if v.tensor is not y and v.tensor.op in before and v.tensor.op.type not in ("Switch",)]
    chosen = list(dict.fromkeys(m.pick(xs) for _ in range(3))) if xs else []
    wrt = [v.tensor for v in chosen] + [v.variable for v in m.variables if v.dtype in FLOATS][:2]
    if not wrt:
        raise ValueError("nothing to differentiate by")
    if y.dtype.base_dtype.name == "float32" and y.shape.ndims != 0:
        y = tf.reduce_sum(tf.tanh(y)) if m.chance(0.7) else y
    found = [tf.convert_to_tensor(g) for g in tf.gradients(y, wrt) if g is not None]
    if found and m.chance(0.3):
        total = tf.add_n([tf.reduce_sum(tf.tanh(tf.cast(g, "float32"))) for g in found])
        found += [tf.convert_to_tensor(g) for g in tf.gradients(total, wrt[:1]) if g is not None]
    for g in found:
        m.add(g)


def _before(tensor: Any) -> set[Any]:
    seen, todo = set(), [tensor.op]
    while todo:
        op = todo.pop()
        if op not in seen:
            seen.add(op)
            todo += [t.op for t in op.inputs]
    return seen


def layer(m: Maker) -> None:
    """What networks are made of: products with bias and activation, convolutions with pooling and norms."""
    tf, rng = m.tf, m.rng
    found = m.number()
    if found is None:
        raise ValueError("nothing to feed a layer with")
    if m.chance(0.5):
        rows, depth, units = rng.choice([1, 4, 32]), rng.choice([3, 8, 64]), rng.choice([2, 16])
        x = m.fit(found.tensor, "float32", (rows, depth))
        y = tf.nn.bias_add(tf.matmul(x, tf.constant(m.uniform([depth, units]))), tf.constant(m.uniform([units])))
        y = rng.choice([tf.nn.relu, tf.tanh, tf.sigmoid, tf.nn.elu, tf.identity])(y)
        y = tf.nn.softmax(y) if m.chance(0.3) else y
    else:
        x = m.fit(found.tensor, "float32", (1, 6, 6, 3))
        y = tf.nn.conv2d(x, tf.constant(m.uniform([3, 3, 3, 4])), rng.choice([[1, 1, 1, 1], [1, 2, 2, 1]]), rng.choice(["SAME", "VALID"]))
        if m.chance(0.5):
            y = tf.nn.bias_add(y, tf.constant(m.uniform([4])))
        if m.chance(0.4):
            y = tf.nn.fused_batch_norm(y, np.ones(4, np.float32), np.zeros(4, np.float32), is_training=m.chance(0.5), mean=np.zeros(4, np.float32), variance=np.ones(4, np.float32))[0]
        y = tf.nn.relu(y) if m.chance(0.5) else y
        if m.chance(0.5):
            y = rng.choice([tf.nn.max_pool, tf.nn.avg_pool])(y, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    m.add(y)
