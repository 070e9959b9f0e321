"""Shapes that change from step to step: what oneDNN makes plans for, who computes meanwhile, and what is not tried."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import binding, library, matmul, primitives
from penstock.engines.onednn.library import OneDnnError
from penstock.graph.bind import bind
from penstock.runtime.executor import compiled
from penstock.runtime.executor.chooser import Chooser
from penstock.runtime.executor.compiled import HotWatch
from penstock.session import repeated

needs_library = pytest.mark.skipif(library.get() is None, reason="there is no oneDNN here: NumPy computes")


class _Asked:
    """A kernel of arrays that says who computed: "plan", "meanwhile" or "fallback"."""

    def __init__(self, has_other_way=True):
        self.prepared = []
        self.fails = False
        op = SimpleNamespace(name="x", type="X")
        self.kernel = binding.remembering(op, lambda x: "fallback", binding.shape_1, self.prepare, (lambda x: lambda x: "meanwhile") if has_other_way else None)

    def prepare(self, x):
        self.prepared.append(len(x))
        return self.run

    def run(self, x):
        if self.fails:
            raise OneDnnError("execute", library.FORKED)
        return "plan"

    def __call__(self, n):
        return self.kernel(np.zeros(n, np.float32))


def test_the_first_shapes_get_plans_and_later_ones_when_they_come_often():
    asked = _Asked()
    assert [asked(n) for n in range(1, binding.FEW_SHAPES + 1)] == ["plan"] * binding.FEW_SHAPES
    assert [asked(99) for _ in range(binding.OFTEN + 1)] == ["meanwhile"] * (binding.OFTEN - 1) + ["plan"] * 2
    assert [asked(n) for n in (1, 99, 2)] == ["plan"] * 3
    assert asked.prepared == [*range(1, binding.FEW_SHAPES + 1), 99]


def test_plans_are_few_where_there_is_another_way():
    asked = _Asked()
    for n in range(1, 2 * binding.MOST_PLANNED):
        for _ in range(binding.OFTEN + 1):
            asked(n)
    assert len(asked.prepared) == binding.MOST_PLANNED


def test_every_shape_gets_its_plan_where_there_is_no_other_way(monkeypatch):
    monkeypatch.setattr(binding, "MOST_KEPT", 8)
    asked = _Asked(has_other_way=False)
    assert {asked(n) for n in range(1, 30)} == {"plan"}
    assert asked(29) == "plan" and len(asked.prepared) == 29


def test_what_comes_first_does_not_count_if_results_must_repeat(monkeypatch):
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")
    asked = _Asked()
    assert {asked(n) for n in range(1, 30)} == {"plan"}


def test_plans_that_made_room_for_others_are_asked_for_again(monkeypatch):
    asked = _Asked()
    asked(1), asked(2)
    monkeypatch.setattr(primitives, "dropped", primitives.dropped + primitives.CAPACITY)
    assert [asked(1), asked(2), asked(1)] == ["plan"] * 3
    assert asked.prepared == [1, 2, 1, 2]


def test_what_fails_stays_with_numpy():
    asked = _Asked()
    asked(1), asked(2)
    asked.fails = True
    assert [asked(1), asked(2), asked(1)] == ["fallback"] * 3
    asked.fails = False
    assert [asked(1), asked(3)] == ["fallback", "plan"]


@needs_library
@pytest.mark.parametrize("across", [(False, False), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("kind", ["MatMul", "_FusedMatMul", "BatchMatMulV2"])
def test_products_of_many_sizes(kind, across, monkeypatch):
    for name in ("BLAS_ALONE", "BLAS_ALONE_VECTOR", "MIN_BATCH_FLOPS", "MIN_FUSED_FLOPS"):
        monkeypatch.setattr(binding, name, 0)
    monkeypatch.setattr(matmul, "FEW_ROWS", 0)
    made = []
    monkeypatch.setattr(matmul, "planned", functools.partial(_counting, made, matmul.planned))
    random = np.random.default_rng(0)
    batch = (2,) if kind == "BatchMatMulV2" else ()
    a, b = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    if kind == "_FusedMatMul":
        bias = tf.placeholder(tf.float32)
        op = tf.raw_ops._FusedMatMul(a=a, b=b, args=[bias], fused_ops=["BiasAdd", "Relu"], name="fused", transpose_a=across[0], transpose_b=across[1]).op
    elif kind == "MatMul":
        op = tf.raw_ops.MatMul(a=a, b=b, transpose_a=across[0], transpose_b=across[1]).op
    else:
        op = tf.raw_ops.BatchMatMulV2(x=a, y=b, adj_x=across[0], adj_y=across[1]).op
    kernel = bind(op).fn
    for rows in range(2, 14):
        x, y = (random.standard_normal((*batch, *sides)).astype(np.float32) for sides in ((rows, 5), (5, 7)))
        more = [np.linspace(-1, 1, 7, dtype=np.float32)] if kind == "_FusedMatMul" else []
        expected = x @ y
        for bias in more:
            expected = np.maximum(expected + bias, 0)
        x, y = (np.ascontiguousarray(m.swapaxes(-1, -2)) if is_across else m for m, is_across in zip((x, y), across, strict=True))
        np.testing.assert_allclose(kernel(x, y, *more), expected, rtol=1e-5, atol=1e-5)
    assert len(made) == (12 if kind == "BatchMatMulV2" else binding.FEW_SHAPES)  # here, batches would wake BLAS's threads


def _counting(made, planned, *args):
    made.append(args)
    return planned(*args)


# -- straight or on the pool --------------------------------------------------------------------------------------------


def _chosen(straight, pool, shapes):
    chooser, n = Chooser(), 0
    while chooser.choice is None:
        on_pool = chooser.on_pool()
        chooser.record(on_pool, (pool if on_pool else straight)(n), shapes(n))
        n += 1
    return chooser.choice


def test_steps_of_other_shapes_are_other_work():
    def sizes(n):
        return 1 + n * 7 % 11

    def per_size(ns):
        return lambda n: ns * sizes(n)

    # The quickest step of a few would be one of a small size: whichever way it was run.
    assert _chosen(per_size(1_000_000), per_size(1_200_000), sizes) is False
    assert _chosen(per_size(1_200_000), per_size(500_000), sizes) is True
    assert _chosen(per_size(100_000), per_size(50_000), sizes) is False  # not worth it
    assert _chosen(lambda n: 5_000_000, lambda n: 4_000_000, lambda n: 1) is True


# -- XLA ----------------------------------------------------------------------------------------------------------------


class _Written:
    def write(self, offload):
        raise AssertionError("nothing is written here")


@pytest.mark.parametrize(
    ("n_nodes", "ns", "shapes", "is_left_alone"),
    [(40, 400_000, 100, True), (40, 400_000, 2, False), (4000, 400_000, 100, False), (0, 400_000, 100, False)],
    ids=["large nodes", "few shapes", "a tangle", "loops"],
)
def test_programs_of_many_sizes_are_left_alone_if_nodes_are_large(n_nodes, ns, shapes, is_left_alone):
    owner = _Written()
    watch = HotWatch(owner.write, False, n_nodes)
    n = 0
    while not watch.is_hot(ns, [np.zeros((n % shapes, 3), np.float32), None]):
        n += 1
    assert n * ns >= compiled.HOT_NS - ns
    assert watch.is_for_kernels is is_left_alone


@pytest.mark.parametrize("is_left_alone", [True, False], ids=["large nodes", "small nodes"])
def test_so_are_the_forms_for_some_of_the_sizes(is_left_alone, monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setattr(compiled, "watch_for", lambda write, wish, n_nodes, has_loops: HotWatch(write, False, n_nodes))
    monkeypatch.setattr(compiled, "MANY_SHAPES", 3)
    monkeypatch.setattr(compiled, "LONG_NS", 0 if is_left_alone else 1e15)
    monkeypatch.setattr(compiled, "HOT_NS", 1e15)
    monkeypatch.setattr(repeated, "run_blocking", lambda work: work())
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None, 3])
        y = tf.exp(x) * x
        for n in (*range(1, 6), *[9] * repeated.STEPS):
            assert sess.run(y, {x: np.ones((n, 3), np.float32)}).shape == (n, 3)
        (prepared,) = sess._runtime._prepared.values()
        (form,) = prepared.repeated.forms.values()
        assert (repeated._program(form).watch is None) is is_left_alone
