"""Weights that never change are laid out once for all sizes of what is fed."""

import gc

import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import library, plan, primitives, winograd
from penstock.graph.bind import engine_is_on

pytestmark = pytest.mark.skipif(library.get() is None or not engine_is_on("onednn"), reason="oneDNN is not there")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    monkeypatch.setenv("PENSTOCK_XLA", "0")
    primitives.clear_cache()
    gc.collect()


def laid_out():
    """Bytes of constants in layouts of their own, and in how many."""
    stores = {id(s): s for s in (*primitives._layouts, plan.COPIES, winograd._TRANSFORMED)}.values()
    sizes = [sum(buffer.array.nbytes for _, buffer in store._known.values()) for store in stores]
    return sum(sizes), sum(map(bool, sizes))


def weights(*shape):
    return tf.constant(np.random.RandomState(0).randn(*shape).astype(np.float32) * 0.01)


def run(build, shapes):
    """What is laid out after each of the shapes has been fed a few times; the results are those of NumPy's kernels."""
    found = []
    before = laid_out()[0]
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None] * (len(shapes[0]) - 1) + [shapes[0][-1]])
        y = build(x)
        results = []
        for shape in shapes:
            value = np.random.RandomState(1).randn(*shape).astype(np.float32)
            for _ in range(20):  # oneDNN makes no plan for shapes that may not come again
                last = sess.run(y, {x: value})
            results.append((value, last))
            found.append(laid_out()[0] - before)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PENSTOCK_ENGINES", "numpy")
            patch.setenv("PENSTOCK_REGIONS", "0")
            with tf.Session() as plain:
                for value, last in results:
                    np.testing.assert_allclose(last, plain.run(y, {x: value}), rtol=1e-3, atol=1e-4)
    return found


def test_dense_layers():
    def build(x):
        for _ in range(2):
            x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights(512, 512)), weights(512)))
        return x

    found = run(build, [(n, 512) for n in (3, 8, 20, 33, 64, 100, 7, 51)])
    assert 0 < found[-1] <= 4 * (2 * 512 * 512 * 4) * 1.05  # a few layouts, by numbers of rows and threads, where there are eight sizes


def test_convolutions():
    def build(x):
        for _ in range(2):
            x = tf.nn.relu(tf.nn.conv2d(x, weights(3, 3, 256, 256), [1, 1, 1, 1], "SAME"))
        return x

    found = run(build, [(1, n, n, 256) for n in range(4, 18, 2)])
    size = 2 * 3 * 3 * 256 * 256 * 4
    assert 0 < found[-1] <= 2 * size * (1 + 16 / 9) * 1.05  # directly and the Winograd way, for two numbers of threads at most; there are seven sizes


def test_what_is_laid_out_goes_with_the_graph():
    before = laid_out()[0]
    run(lambda x: tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights(300, 700)), weights(700))), [(n, 300) for n in (16, 40)])
    gc.collect()
    primitives.clear_cache()
    gc.collect()
    assert laid_out()[0] <= before


def test_the_same_layout_is_one_store():
    library_ = library.get()

    def store(columns):
        spec = plan.strides_of((96, columns))
        with primitives.Maker(library_, 1) as maker:
            source = maker.md((96, columns), strides=spec)
            target = maker.md((96, columns), strides=(1, 96))
            return plan.Reordered(maker, source, target).constants

    first, second, other = store(64), store(64), store(80)
    assert first is second and first is not other
