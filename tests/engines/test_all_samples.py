"""Every op sample in every type it allows, and its gradients: generated code gives the bits of the interpreter.

All cases of an op stand in one graph, so that the generated function has neighbours to get wrong.
"""

import contextlib
import importlib
import importlib.util
import pathlib

import numpy as np
import pytest

import penstock as tf
from penstock import errors
from penstock.graph.opdef import OPS
from penstock.ops.cases import cases, sampled_ops
from tests.engines.agree import difference
from tests.engines.modes import MODES, setting
from tests.ops.test_samples import build
from tests.random_graphs.kernels import LEFT_OUT

NAMES = [op.name for op in sampled_ops() if op.name not in LEFT_OUT and any(True for _ in cases(op))]
EXAMPLES = sorted(p.stem for p in (pathlib.Path(__file__).parent.parent.parent / "examples").glob("*.py") if p.stem != "__init__")
BLOCKS = 24
MANY = 24
"""Cases of one op; the rest of a long list differ in shapes only."""


def everything(name):
    """All cases of an op in one graph: (graph, fetches, feeds)."""
    fetches, feeds = [], {}
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(5)
        for n, case in enumerate(list(cases(OPS[name], every_type=True))[:MANY]):
            if "seed" in OPS[name].attrs:
                case.attrs = {**case.attrs, "seed": 3, "seed2": n + 1}
            try:
                op, given = build(case, known_shapes=n % 2 == 0)
            except (ValueError, TypeError):
                continue  # not a type for this sample
            feeds.update(given)
            outputs = [t for t in op.outputs if t.dtype not in (tf.resource, tf.variant)]
            fetches += outputs or [op]
            # No rule, or none for this type or these attributes.
            with contextlib.suppress(LookupError, ValueError, TypeError, NotImplementedError, errors.OpError):
                floating = [t for t in outputs if t.dtype in (tf.float32, tf.float64)]
                wanted = [t for t in given if t.dtype in (tf.float32, tf.float64)]
                if floating and wanted:
                    fetches += [tf.convert_to_tensor(g) for g in tf.gradients(floating, wanted) if g is not None]
    return graph, fetches, feeds


def run(graph, fetches, feeds, mode):
    """Values; one by one, if a case fails by itself."""
    with setting(MODES[mode]), tf.Session(graph=graph) as sess:
        try:
            return [sess.run(fetches, feeds) for _ in range(2)][1]
        except errors.OpError:
            return [_one(sess, f, feeds) for f in fetches]


def _one(sess, fetch, feeds):
    try:
        return sess.run(fetch, feeds)
    except errors.OpError as error:
        return f"{type(error).__name__} at {error.op.name if error.op is not None else ''}: {error.message}"


@pytest.mark.parametrize("block", range(BLOCKS))
def test_all_types_and_gradients(block):
    for name in NAMES[block::BLOCKS]:
        graph, fetches, feeds = everything(name)
        if not fetches:
            continue
        plain = run(graph, fetches, feeds, "off")
        for mode in ("eager", "deadline"):
            for fetch, a, b in zip(fetches, plain, run(graph, fetches, feeds, mode)):
                text = (None if a == b else f"{a!r} and {b!r}") if isinstance(a, str) or isinstance(b, str) else difference(a, b, True)
                assert text is None, f"{name}, {mode}, {fetch.name}: {text}"


# Ops with more than one right answer: the signs of vectors.
_AMBIGUOUS = ("Svd", "Eig", "SelfAdjointEig")


@pytest.mark.parametrize("block", range(BLOCKS))
def test_all_types_and_gradients_in_the_ways_of_large_arrays(block):
    """With tiles, threads and oneDNN's kernels however small the arrays are: the same up to rounding, the same errors at the same nodes."""
    for name in NAMES[block::BLOCKS]:
        graph, fetches, feeds = everything(name)
        if not fetches or any(word in name for word in _AMBIGUOUS):
            continue
        plain = run(graph, fetches, feeds, "off")
        for mode in ("small", "small onednn"):
            for fetch, a, b in zip(fetches, plain, run(graph, fetches, feeds, mode)):
                text = (None if a == b else f"{a!r} and {b!r}") if isinstance(a, str) or isinstance(b, str) else difference(a, b, False)
                assert text is None, f"{name}, {mode}, {fetch.name}: {text}"


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("mode", ["eager", "small", "onednn", "small onednn", *(["all"] if importlib.util.find_spec("jax") else [])])
def test_all_examples(name, mode):
    results = []
    for way in ("off", mode):
        with setting(MODES[way]), tf.Graph().as_default():
            results.append(tf.nest.flatten(importlib.import_module(f"examples.{name}").program(tf)))
    assert len(results[0]) == len(results[1])
    for a, b in zip(*results):
        if isinstance(a, (str, bytes)):
            assert a == b
        else:  # training makes more of a rounding
            np.testing.assert_allclose(a, b, rtol=5e-3, atol=1e-3)


def test_all_ops_are_there():
    assert len(NAMES) > 450
    reached = [name for name in NAMES if everything(name)[1]]
    assert len(reached) >= len(NAMES) - 3, sorted(set(NAMES) - set(reached))
