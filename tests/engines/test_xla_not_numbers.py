"""NaN and infinities, in all combinations, through every XLA rule that works element by element: NaN and infinities come out where the kernels have them.

XLA takes some products for choices (a number times a mask), in which 0 * inf and 0 * NaN would be 0."""

import itertools

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import penstock as tf
from penstock import errors
from penstock.engines.xla import backend
from penstock.engines.xla import rule as rules
from penstock.engines.xla import rules as _all_rules  # noqa: F401 (importing registers)
from penstock.graph.bind import bind
from penstock.graph.opdef import OPS

VALUES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 7.0, 3e38], np.float32)
OTHERWISE = {"Betainc", "Igamma", "Igammac", "IgammaGradA", "Polygamma", "Zeta"}
"""JAX's functions have NaN for most infinite arguments, where TensorFlow's kernels have limits."""


def elementwise():
    """Nodes of ops of one to three float32 vectors of one length, with values and what the kernel makes of them."""
    for name in sorted(rules.RULES.keys() & OPS.keys() - OTHERWISE):
        opdef = OPS[name]
        count = len(opdef.inputs)
        if opdef.stateful or not 1 <= count <= 3:
            continue
        values = np.array(list(itertools.product(VALUES, repeat=count)), np.float32).T
        with tf.Graph().as_default():
            try:
                holders = [tf.placeholder(tf.float32, values[0].shape) for _ in values]
                made = getattr(tf.raw_ops, name)(**{a.name: h for a, h in zip(opdef.inputs, holders)})
            except (TypeError, ValueError, AttributeError):
                continue  # other types, shapes or attributes
        first = made[0] if isinstance(made, (list, tuple)) else made
        op = first.op
        if op.type != name or first.dtype not in (tf.float32, tf.bool) or first.shape.as_list() != [len(values[0])] or any(t.dtype != tf.float32 for t in op.inputs):
            continue
        bound = bind(op)
        try:
            with np.errstate(all="ignore"):
                expected = bound.fn(*values) if not bound.needs_ctx else None
        except errors.OpError:
            continue
        if expected is not None:
            yield op, values, np.asarray(expected if bound.plain else expected[0])


def test_what_is_no_number_comes_out_where_kernels_have_it():
    cases = list(elementwise())

    def call(op, values):
        rule = rules.RULES[op.type]
        result = rule.fn(*values, **{name: op.attrs[name] for name in rule.attrs})
        return result[0] if isinstance(result, (list, tuple)) else result

    with backend.x64():
        ready = []
        for case in cases:
            try:
                jax.eval_shape(lambda *v, op=case[0]: call(op, v), *case[1])
                ready.append(case)
            except (rules.Dynamic, rules.Unsupported):
                continue
        found = jax.jit(lambda every: [call(op, v) for (op, _, _), v in zip(ready, every)])([list(values) for _, values, _ in ready])
    names = {op.type for op, _, _ in ready}
    assert len(names) > 90 and {"ReluGrad", "Relu6Grad", "LeakyReluGrad", "MulNoNan", "TanhGrad"} <= names
    wrong = []
    for (op, values, expected), got in zip(ready, map(np.asarray, found), strict=True):
        if expected.dtype == bool:
            differ = expected != got
        else:
            differ = (np.isnan(expected) != np.isnan(got)) | ((np.isinf(expected) | np.isinf(got)) & (expected != got) & ~np.isnan(expected))
        wrong += [f"{op.type}{tuple(values[:, i].tolist())}: {got[i]} instead of {expected[i]}" for i in np.flatnonzero(differ)[:3]]
    assert not wrong, "\n".join(wrong)


def test_a_step_does_not_lose_nan_when_xla_takes_it_over(monkeypatch):
    monkeypatch.setenv("PENSTOCK_XLA", "eager")
    dy, x = np.array([np.nan, np.nan, np.inf, 1.0], np.float32), np.array([-1.0, 2.0, 0.0, 3.0], np.float32)
    with tf.Graph().as_default(), tf.Session() as sess:
        features = tf.placeholder(tf.float32, [4])
        slopes = tf.placeholder(tf.float32, [4])
        gradient = tf.gradients(tf.nn.relu(features), features, grad_ys=slopes * 1.0)[0]
        for _ in range(3):
            np.testing.assert_array_equal(sess.run(gradient * 1.0, {features: x, slopes: dy}), [np.nan, np.nan, np.nan, 1.0])
