"""Steps with variables: assignments, scatters, slices, optimizers; each use of a variable waits for the one before."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from penstock.graph.opdef import OPS

from .maker import FLOATS, Maker, Variable

ROWS, COLUMNS = 4, 3


def _variable(m: Maker, resource: bool | None = None, dtype: str | None = None, shape: tuple[int, ...] | None = None) -> Variable:
    """A variable of the program that fits, or a new one."""
    fitting = [
        v for v in m.variables
        if (resource is None or v.resource == resource) and (dtype is None or v.dtype == dtype) and (shape is None or v.shape == shape)
    ]  # fmt: skip
    if fitting and (m.inside or m.chance(0.6)):
        return m.rng.choice(fitting)
    if m.inside:
        raise ValueError("no variable to use here")
    dtype = dtype or m.rng.choice(["float32"] * 4 + ["int32", "float64"])
    shape = m.rng.choice([(), (3,), (ROWS, COLUMNS)]) if shape is None else shape
    value = (m.numbers.uniform(0.5, 1.5, shape) * (1 if dtype in FLOATS else 5)).astype(dtype)
    return m.variable(np.asarray(value), resource)


def _amount(m: Maker, v: Variable, shape: tuple[int, ...] | None = None) -> Any:
    found = m.number()
    shape = v.shape if shape is None else shape
    return m.fit(found.tensor, v.dtype, shape) if found is not None else m.tf.ones(shape, v.dtype)


def assign(m: Maker) -> None:
    """Reads, writes, adds and subtracts; what was read before a write must not change by it."""
    tf, rng = m.tf, m.rng
    v = _variable(m)
    if m.chance(0.5):
        m.add(v.read(tf))
    for _ in range(rng.randint(1, 2)):
        amount = _amount(m, v)
        kind = rng.choice(["assign", "assign_add", "assign_sub"])
        op = v.write(tf, lambda handle, kind=kind, amount=amount: getattr(v.variable, kind)(amount))
        m.updates.append(op)
        if m.chance(0.7):
            m.add(v.read(tf))


@functools.cache
def optimizer_ops() -> tuple[str, ...]:
    """Every Apply op, of reference and of resource variables, dense and sparse."""
    return tuple(n for n in sorted(OPS) if n.removeprefix("Resource").removeprefix("Sparse").startswith("Apply") and OPS[n].inputs[0].name == "var")


_RATES = {"rho": 0.9, "momentum": 0.9, "beta1": 0.9, "beta2": 0.99, "beta1_power": 0.9, "beta2_power": 0.99, "lr_power": -0.5, "epsilon": 1e-3, "logbase": 0.3}


def optimizer(m: Maker) -> None:
    """One optimizer op on variables of its own or of the program."""
    tf = m.tf
    name = m.choose(optimizer_ops())
    opdef = OPS[name]
    resource, sparse = name.startswith("Resource"), "SparseApply" in name
    dtype = "float32" if m.chance(0.8) else "float64"
    slots = [a for a in opdef.inputs if a.is_ref or (a.dtype is not None and a.dtype.name == "resource")]
    used: list[Variable] = []
    for _ in slots:
        free = [v for v in m.variables if v.resource == resource and v.dtype == dtype and v.shape == (ROWS, COLUMNS) and v not in used]
        if free and (m.inside or m.chance(0.5)):
            used.append(m.rng.choice(free))
        elif m.inside:
            raise ValueError("no variable to use here")
        else:
            used.append(m.variable(m.numbers.uniform(0.5, 1.5, (ROWS, COLUMNS)).astype(dtype), resource))
    keywords: dict[str, Any] = {}
    lead = used[0]
    gradient = _amount(m, lead, (2, COLUMNS) if sparse else (ROWS, COLUMNS))
    indices = np.array(m.rng.choice([[0, 2], [3, 1], [1, 1]]), m.rng.choice(["int32", "int64"]))
    with tf.control_dependencies([op for v in used for op in v.last]):
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
                rate = _RATES.get(arg.name, 0.1)
                scalar: Any = tf.constant(rate, dtype)
                if arg.name in ("lr", "alpha") and m.chance(0.4):
                    scalar = tf.abs(m.fit(gradient, dtype, ())) * 0.1 + tf.constant(rate, dtype)
                keywords[arg.name] = scalar
        for attr in ("use_locking", "use_nesterov", "update_slots"):
            if attr in opdef.attrs and m.chance(0.3):
                keywords[attr] = m.chance(0.7)
    lead.last = list(dict.fromkeys(op for v in used for op in v.last))
    with lead.turn(tf):
        result = getattr(tf.raw_ops, name)(**keywords)
    op = result if isinstance(result, tf.Operation) else result.op
    for v in used:
        v.last = [op]
    m.updates.append(op)
    if m.chance(0.6):
        m.add(m.rng.choice(used).read(tf))


@functools.cache
def scatter_ops() -> tuple[str, ...]:
    """Every op that changes rows of a variable."""
    return tuple(n for n in sorted(OPS) if n.removeprefix("Resource").startswith("Scatter") and not n.startswith("ScatterNd") or n.removeprefix("Resource").startswith("ScatterNd") and n not in ("ScatterNd", "ScatterNdNonAliasingAdd"))


def scatter(m: Maker) -> None:
    """Rows of a variable by position."""
    tf, rng = m.tf, m.rng
    name = m.choose(scatter_ops())
    resource = name.startswith("Resource")
    v = _variable(m, resource, rng.choice(["float32"] * 3 + ["int32"]), (ROWS, COLUMNS))
    whole = rng.random() < 0.3 and "Nd" not in name
    index = rng.choice([[0, 2], [3, 1], [1, 1]])
    indices: Any = np.array([[i] for i in index] if "Nd" in name else index[0] if whole else index, rng.choice(["int32", "int64"]))
    shape = (COLUMNS,) if whole else (2, COLUMNS)
    amount = _amount(m, v, shape)
    if "Div" in name:
        amount = tf.abs(amount) + tf.constant(1, v.dtype)
    if not whole and "Nd" not in name and "Update" not in name and m.chance(0.2):
        amount = _amount(m, v, ())
    found = m.number()
    if found is not None and m.chance(0.4) and "Nd" not in name:
        indices = m.fit(found.tensor, "uint8", np.shape(indices))
        indices = tf.cast(indices, "int32")
    first = OPS[name].inputs[0].name
    op = v.write(tf, lambda handle: getattr(tf.raw_ops, name)(**{first: handle, "indices": indices, "updates": amount}))
    m.updates.append(op)
    if m.chance(0.7):
        m.add(v.read(tf))
    if resource and m.chance(0.3):
        with v.turn(tf):
            rows = tf.raw_ops.ResourceGather(resource=v.handle, indices=indices if "Nd" not in name else index, dtype=v.dtype)
        v.last = [rows.op]
        m.add(rows)


def slices(m: Maker) -> None:
    """Assignment to a slice of a variable."""
    tf, rng = m.tf, m.rng
    resource = m.chance(0.5)
    v = _variable(m, resource, "float32", (ROWS, COLUMNS))
    begin, end = sorted(rng.sample(range(ROWS + 1), 2))
    amount = _amount(m, v, (end - begin, COLUMNS)) if m.chance(0.7) else _amount(m, v, (1,))
    name = "ResourceStridedSliceAssign" if resource else "StridedSliceAssign"
    op = v.write(tf, lambda handle: getattr(tf.raw_ops, name)(ref=handle, begin=[begin, 0], end=[end, COLUMNS], strides=[1, 1], value=amount))
    m.updates.append(op)
    m.add(v.read(tf))


def training(m: Maker) -> None:
    """A loss of a variable, minimised by one of the optimizers of the API."""
    tf, rng = m.tf, m.rng
    if m.inside:
        raise ValueError("only at the top")
    v = m.variable(m.uniform([COLUMNS, 2]))
    found = m.number()
    x = m.fit(found.tensor, "float32", (ROWS, COLUMNS)) if found is not None else tf.ones([ROWS, COLUMNS])
    weights = v.read(tf)
    loss = tf.reduce_mean(tf.square(tf.nn.sigmoid(tf.matmul(x, weights)) - 0.3))
    (gradient,) = tf.gradients(loss, [weights])
    chosen = rng.choice([
        lambda: tf.train.GradientDescentOptimizer(0.1), lambda: tf.train.AdamOptimizer(0.1), lambda: tf.train.MomentumOptimizer(0.1, 0.9), lambda: tf.train.AdagradOptimizer(0.1),
        lambda: tf.train.RMSPropOptimizer(0.1), lambda: tf.train.FtrlOptimizer(0.1), lambda: tf.train.AdadeltaOptimizer(0.5), lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    ])()  # fmt: skip
    with tf.variable_scope(m.name("opt")), v.turn(tf):
        if m.chance(0.3):
            gradient = tf.clip_by_norm(gradient, 0.5)
        step = chosen.apply_gradients([(gradient, v.variable)])
    v.last = [step]
    m.updates.append(step)
    m.add(loss)
    m.add(gradient)
