"""Steps with control flow: cond, while_loop and case with anything inside of them, Switch and Merge by hand, functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .maker import Maker

DEPTH = 2


def _inner(m: Maker, key: str, steps: int) -> None:
    """Builds a few steps inside; `m.pool` then has their values. Called anew for each branch, with choices of its own."""
    from . import INNER, attempt

    for i in range(steps):
        attempt(m, f"{key}.{i}", INNER)


def _predicate(m: Maker) -> Any:
    """A bool that depends on the program, made after everything that touched a variable."""
    tf = m.tf
    found = m.number()
    with tf.control_dependencies(m.barrier()):
        if found is None or m.chance(0.2):
            return tf.placeholder_with_default(m.chance(0.5), [])
        if found.kind == "bool" and found.tensor.shape.ndims == 0:
            return tf.identity(found.tensor)
        x = m.fit(found.tensor, "float32", ())
        return x > m.rng.uniform(-0.7, 0.7)


def _result(m: Maker, dtype: str, shape: tuple[int, ...], fallback: Any) -> Any:
    """One of the newest values as (dtype, shape), after all that was done to variables here."""
    tf = m.tf
    found = m.number()
    y = m.fit(found.tensor if found is not None else fallback, dtype, shape)
    with tf.control_dependencies(m.barrier() + m.updates):
        y = tf.identity(y)
    y.set_shape(shape)
    return y


def _spec(m: Maker) -> tuple[str, tuple[int, ...]]:
    return m.rng.choice(["float32"] * 4 + ["int32", "float64", "bool"]), m.rng.choice([(), (3,), (2, 3)])


def _too_deep(m: Maker) -> None:
    if m.inside >= DEPTH:
        raise ValueError("deep enough")


def cond(m: Maker) -> None:
    """tf.cond with up to three results; the branches may change variables."""
    _too_deep(m)
    tf, rng = m.tf, m.rng
    key = m.step
    found = m.number()
    if found is None:
        raise ValueError("nothing to branch on")
    specs = [_spec(m) for _ in range(rng.choice([1, 1, 2, 3]))]
    sizes = rng.randint(0, 2), rng.randint(0, 2)
    pred = _predicate(m)

    def branch(side: int) -> Callable[[], Any]:
        def build() -> Any:
            with m.nested():
                _inner(m, f"{key}b{side}", sizes[side])
                m.begin(f"{key}r{side}")
                return [_result(m, dtype, shape, found.tensor) for dtype, shape in specs]

        return build

    results = tf.cond(pred, branch(1), branch(0))
    m.begin(f"{key}z")
    results = results if isinstance(results, (list, tuple)) else [results]
    m.passed(results[0].op)
    m.step = key
    for y in results:
        m.add(y)
    m.updates.append(results[0].op)


def case(m: Maker) -> None:
    """tf.case of three ways."""
    _too_deep(m)
    tf = m.tf
    key = m.step
    found = m.number()
    if found is None:
        raise ValueError("nothing to branch on")
    dtype, shape = _spec(m)
    first, second = _predicate(m), _predicate(m)

    def branch(side: int) -> Callable[[], Any]:
        def build() -> Any:
            with m.nested():
                _inner(m, f"{key}b{side}", 1)
                m.begin(f"{key}r{side}")
                return _result(m, dtype, shape, found.tensor)

        return build

    y = tf.case([(first, branch(0)), (second, branch(1))], default=branch(2))
    m.begin(f"{key}z")
    m.passed(y.op)
    m.step = key
    m.add(y)
    m.updates.append(y.op)


def loop(m: Maker) -> None:
    """tf.while_loop over a counter and one to three values, some of them of changing size or in a TensorArray."""
    _too_deep(m)
    tf, rng = m.tf, m.rng
    key = m.step
    found = m.number()
    if found is None:
        raise ValueError("nothing to go round with")
    specs = [_spec(m) for _ in range(rng.choice([1, 2, 3]))]
    firsts = [m.fit(v.tensor, dtype, shape) for (dtype, shape), v in zip(specs, [m.number() or found for _ in specs])]
    rounds = rng.randint(0, 4)
    collects, grows, moving = m.chance(0.3), m.chance(0.2), m.chance(0.3)
    steps = rng.randint(1, 2)
    swap = m.chance(0.3)
    with tf.control_dependencies(m.barrier()):
        start = tf.constant(0) if not m.barrier() else tf.identity(tf.constant(0))
        limit = tf.cast(m.fit(found.tensor, "int32", ()), "int32") + 2 if moving else tf.constant(rounds)
    variables: list[Any] = [start, *firsts]
    shapes: list[Any] = [tf.TensorShape([]), *(tf.TensorShape(s) for _, s in specs)]
    if grows:
        variables.append(m.fit(found.tensor, "float32", (2,)))
        shapes.append(tf.TensorShape([None]))
    if collects:
        variables.append(tf.TensorArray("float32", 0, dynamic_size=True, clear_after_read=False))
        shapes.append(tf.TensorShape(None))

    def body(i: Any, *values: Any) -> Any:
        with m.nested():
            m.begin(f"{key}l")
            for v in values[: len(specs)]:
                m.add(v)
            m.add(i)
            _inner(m, f"{key}b", steps)
            m.begin(f"{key}r")
            news = [_result(m, dtype, shape, values[0]) for dtype, shape in specs]
            if swap and len(specs) > 1 and specs[0] == specs[1]:
                news[0], news[1] = values[1], news[0]
            rest = []
            if grows:
                grown = tf.concat([values[len(specs)], [tf.cast(i, "float32")]], 0)
                rest.append(grown * 0.5 if m.chance(0.5) else grown)
            if collects:
                rest.append(values[-1].write(i, tf.cast(tf.reduce_sum(tf.cast(news[0], "float32")), "float32")))
            with tf.control_dependencies(m.barrier() + m.updates):
                again = i + 1
        return [again, *news, *rest]

    results = tf.while_loop(lambda i, *_: i < limit, body, variables, shape_invariants=shapes, parallel_iterations=rng.choice([1, 10]), swap_memory=m.chance(0.2))
    m.begin(f"{key}z")
    m.step = key
    if collects:
        array = results[-1]
        m.add(tf.concat([array.stack(), [0.0]], 0))
        results = results[:-1]
    m.passed(results[0].op)
    for y in results:
        m.add(y)
    m.updates.append(results[0].op)


def switch_merge(m: Maker) -> None:
    """Switch and Merge as nodes: both sides joined again, or one side that may be dead and is joined by what replaces it."""
    tf, rng = m.tf, m.rng
    found = m.number()
    if found is None:
        raise ValueError("nothing to switch")
    x = m.fit(found.tensor, "float32", rng.choice([(), (3,)]))
    pred = _predicate(m)
    no, yes = tf.raw_ops.Switch(data=x, pred=pred)
    a, b = tf.tanh(no) + 1.0, tf.square(yes) * 0.5
    if m.chance(0.3):
        other = _predicate(m)
        c, d = tf.raw_ops.Switch(data=a, pred=other)
        a, _ = tf.raw_ops.Merge(inputs=[c * 2.0, d - 1.0])
    y, index = tf.raw_ops.Merge(inputs=[a, b] if m.chance(0.5) else [b, a])
    # In a loop, a gradient would keep values of the side that is not taken: there are none, and TensorFlow waits for them for ever.
    m.add(tf.stop_gradient(y) if m.inside else y)
    m.add(index)
    if not m.inside and m.chance(0.4):
        m.dead.append(no if m.chance(0.5) else b)


def functional(m: Maker) -> None:
    """If, While, Case, For and calls: control flow by functions of the graph's library."""
    tf, rng = m.tf, m.rng
    raw = tf.raw_ops
    found = m.number()
    if found is None:
        raise ValueError("nothing to call with")
    shape = rng.choice([(), (3,)])
    x = m.fit(found.tensor, "float32", shape)
    which = rng.choice(["call", "If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase", "For", "PartitionedCall", "StatefulPartitionedCall"])
    make = [rng.choice([tf.tanh, tf.square, lambda t: t * 0.5 - 1.0, lambda t: tf.nn.relu(t) + tf.reduce_sum(t)]) for _ in range(3)]
    rounds = rng.randint(0, 3)
    defun = _defun(tf)

    def function(body: Callable[..., Any], *types: Any) -> Any:
        made = defun(*types, func_name=m.name("f").replace(".", "_"))(body)
        made.add_to_graph(tf.get_default_graph())
        return made

    bodies = [function(lambda t, g=g: tf.reshape(g(t), shape), tf.float32) for g in make]
    if which == "call":
        y = bodies[0](bodies[1](x))
    elif which.endswith("PartitionedCall"):
        y = getattr(raw, which)(args=[x], Tout=[tf.float32], f=bodies[0])[0]
    elif which.endswith("If"):
        y = getattr(raw, which)(cond=_predicate(m), input=[x], Tout=[tf.float32], then_branch=bodies[0], else_branch=bodies[1])[0]
    elif which.endswith("Case"):
        y = getattr(raw, which)(branch_index=m.fit(found.tensor, "int32", ()), input=[x], Tout=[tf.float32], branches=bodies)[0]
    elif which == "For":
        step = function(lambda i, t: tf.reshape(tf.tanh(t) + tf.cast(i, "float32") * 0.1, shape), tf.int32, tf.float32)
        y = raw.For(start=tf.constant(0), limit=tf.constant(rounds), delta=tf.constant(1), input=[x], body=step)[0]
    else:
        test = function(lambda i, t: i < rounds, tf.int32, tf.float32)
        step = function(lambda i, t: (i + 1, tf.reshape(make[0](t), shape)), tf.int32, tf.float32)
        y = getattr(raw, which)(input=[tf.constant(0), x], cond=test, body=step)[1]
    if y.shape.ndims is None:
        y.set_shape(shape)
    m.add(y)


def _defun(tf: Any) -> Any:
    if hasattr(tf, "Defun"):
        return tf.Defun
    import importlib

    return importlib.import_module("tensorflow.python.framework.function").Defun


def mapped(m: Maker) -> None:
    """map_fn, scan and foldl: loops over TensorArrays."""
    _too_deep(m)
    tf, rng = m.tf, m.rng
    found = m.number()
    if found is None:
        raise ValueError("nothing to map over")
    x = m.fit(found.tensor, "float32", (rng.choice([1, 3]), 2))
    g = rng.choice([tf.tanh, tf.square, lambda t: t * 0.5 - 1.0, lambda t: tf.nn.relu(t) + tf.reduce_sum(t)])
    way = rng.choice(["map", "scan", "foldl", "foldr"])
    if way == "map":
        m.add(tf.map_fn(g, x, parallel_iterations=rng.choice([1, 10])))
    elif way == "scan":
        m.add(tf.scan(lambda a, t: g(a) * 0.5 + t, x, reverse=m.chance(0.3)))
    else:
        m.add(getattr(tf, way)(lambda a, t: g(a) * 0.5 + t, x))
