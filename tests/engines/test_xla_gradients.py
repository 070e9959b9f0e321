"""The gradients of every op's samples through XLA, as a GPU would compute them: the values of the NumPy kernels, up to rounding.

The samples of many ops stand in one graph, since compiling is what takes time. (`test_xla_rules.py` has the rules one by one,
`test_all_samples.py` the same gradients in generated code and through oneDNN.)
"""

import contextlib

import pytest

pytest.importorskip("jax")

import penstock as tf
from penstock import errors
from penstock.graph.opdef import OPS
from penstock.ops.cases import cases
from tests.engines.agree import difference
from tests.engines.test_all_samples import _AMBIGUOUS, NAMES, run
from tests.ops.test_samples import build

BLOCKS = 20
FEW = 3
"""Samples of one op."""
FLOATS = (tf.float32, tf.float64)


def gradients(names):
    """(graph, gradients, feeds, the op of each gradient) for the first samples of each op that have gradients."""
    fetches, feeds, owners = [], {}, []
    with tf.Graph().as_default() as graph:
        for name in names:
            found = 0
            for case in cases(OPS[name]):
                with contextlib.suppress(LookupError, ValueError, TypeError, NotImplementedError, errors.OpError):  # no rule, or not for this sample
                    op, given = build(case, known_shapes=True)
                    ys, xs = [t for t in op.outputs if t.dtype in FLOATS], [t for t in given if t.dtype in FLOATS]
                    made = [tf.convert_to_tensor(g) for g in tf.gradients(ys, xs) if g is not None] if ys and xs else []
                    found += bool(made)
                    fetches += made
                    owners += [name] * len(made)
                    feeds.update(given if made else {})
                if found == FEW:
                    break
    return graph, fetches, feeds, owners


@pytest.mark.parametrize("block", range(BLOCKS))
def test_gradients_of_samples(block):
    graph, fetches, feeds, owners = gradients([n for n in NAMES[block::BLOCKS] if not any(word in n for word in _AMBIGUOUS)])
    assert len(set(owners)) > 3
    for fetch, name, a, b in zip(fetches, owners, run(graph, fetches, feeds, "off"), run(graph, fetches, feeds, "gpu")):
        text = (None if a == b else f"{a!r} and {b!r}") if isinstance(a, str) or isinstance(b, str) else difference(a, b, False)
        assert text is None, f"{name}, {fetch.name}: {text}"
