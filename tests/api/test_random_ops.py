"""The public random functions; expected numbers were recorded from TensorFlow 2.21 with the same programs."""

import gc
import weakref

import numpy as np
import pytest

import penstock as tf
from penstock.api import random_ops

LOGITS = np.log([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]).astype(np.float32)


def runs(fetches, n):
    with tf.Session() as sess:
        return [sess.run(fetches) for _ in range(n)]


def check(fetches, recorded):
    for got, expected in zip(runs(fetches, len(recorded)), recorded, strict=True):
        for value, wanted in zip(got, expected, strict=True):
            np.testing.assert_array_equal(value, np.array(wanted, value.dtype))


# -- seeds ------------------------------------------------------------------------------------------------------------


def test_graph_seed_numbers_the_ops_without_a_seed():
    tf.set_random_seed(1234)
    a, b = tf.random_normal([2]), tf.random_uniform([2], 0, 100, dtype=tf.int32, seed=7)
    c, d = tf.random_uniform([2]), tf.truncated_normal([2])
    check([a, b, c, d], [
        [[-0.30200204253196716, 1.9954948425292969], [24, 65], [0.16898059844970703, 0.9725481271743774], [-0.9904607534408569, 0.5456299781799316]],
        [[1.5231897830963135, -0.9665517210960388], [73, 55], [0.4243431091308594, 0.4340393543243408], [-1.094929575920105, 0.46113231778144836]],
    ])  # fmt: skip


def test_get_seed():
    assert tf.get_seed(None) == (None, None)
    assert tf.get_seed(5) == (87654321, 5)
    tf.set_random_seed(0)
    assert tf.get_seed(None) == (0, 2**31 - 1)  # two zeros would mean "unseeded"
    assert tf.get_seed(None) == (0, 1)
    assert tf.get_seed(7) == (0, 7)
    assert tf.get_seed(2**31 + 3) == (0, 4)
    assert tf.get_seed(-1) == (0, 2**31 - 2)
    with tf.Graph().as_default():
        tf.set_random_seed(8)
        assert tf.get_seed(None) == (8, 0)
    assert tf.get_seed(None) == (0, 2)


def test_seed_count_does_not_keep_graphs_alive():
    graph = tf.Graph()
    with graph.as_default():
        tf.set_random_seed(1)
        tf.get_seed(None)
    gone = weakref.ref(graph)
    assert graph in random_ops._seeds_given
    del graph
    gc.collect()
    assert gone() is None


def test_a_new_session_starts_over_and_an_unseeded_op_does_not_repeat():
    seeded, free = tf.random_uniform([4], seed=1), tf.random_uniform([4])
    first, second = runs([seeded, free], 2), runs([seeded, free], 2)
    np.testing.assert_array_equal(first[0][0], second[0][0])
    np.testing.assert_array_equal(first[1][0], second[1][0])
    assert (first[0][0] != first[1][0]).any()
    assert (first[0][1] != second[0][1]).any()


def test_an_op_continues_across_different_fetches():
    x = tf.random_uniform([3], seed=1)
    y, z = x + 0.0, x * 1.0
    with tf.Session() as sess:
        np.testing.assert_array_equal(sess.run(y), np.array([0.2390373945236206, 0.92039954662323, 0.05051243305206299], np.float32))
        np.testing.assert_array_equal(sess.run(z), np.array([0.8514761924743652, 0.2871236801147461, 0.7976276874542236], np.float32))


def test_two_ops_with_one_seed_are_not_merged():
    # Equal attributes and inputs, but each op has a stream of its own.
    a, b = tf.random_uniform([3], seed=1), tf.random_uniform([3], seed=1)
    with tf.Session() as sess:
        sess.run(a)
        got = sess.run([a, b])
    assert (got[0] != got[1]).all()


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_uniform():
    check([tf.random_uniform([3], seed=1), tf.random_uniform([3], -2.0, 5.0, seed=1), tf.random_uniform([3], 0, 10, tf.int32, seed=1)], [
        [[0.2390373945236206, 0.92039954662323, 0.05051243305206299], [-0.32673823833465576, 4.44279670715332, -1.646412968635559], [7, 9, 3]],
        [[0.8514761924743652, 0.2871236801147461, 0.7976276874542236], [3.9603333473205566, 0.009865760803222656, 3.5833940505981445], [0, 6, 2]],
    ])  # fmt: skip


def test_normal():
    check([tf.random_normal([3], 1.0, 2.0, seed=3), tf.truncated_normal([3], stddev=0.1, seed=5)], [
        [[3.123324155807495, -0.7571566104888916, 1.22374427318573], [-0.1178082823753357, -0.07099413871765137, -0.1748158037662506]],
        [[0.6669894456863403, 0.39530080556869507, -1.5472941398620605], [0.10473956912755966, 0.05587972328066826, -0.03457394242286682]],
    ])  # fmt: skip


def test_discrete():
    check([tf.random.categorical(LOGITS, 5, seed=4), tf.random_poisson([0.5, 20.0], [3], seed=4), tf.random_shuffle(list(range(6)), seed=4)], [
        [[[1, 2, 0, 1, 1], [2, 2, 1, 2, 2]], [[2, 13], [0, 18], [1, 20]], [1, 5, 4, 3, 0, 2]],
        [[[0, 0, 2, 1, 1], [2, 1, 2, 2, 2]], [[0, 17], [1, 13], [1, 21]], [3, 2, 5, 0, 1, 4]],
    ])  # fmt: skip


def test_gamma_and_its_gradient():
    alpha = tf.constant([0.5, 2.0])
    recorded = [[[0.04792727530002594, 0.9895312786102295], [0.0009787528542801738, 0.5139613151550293]],
                [[0.8770937919616699, 0.5490990877151489], [0.018242008984088898, 0.6694807410240173]]]  # fmt: skip
    # TensorFlow's optimiser multiplies by 1/beta, hence the last bit.
    np.testing.assert_allclose(runs(tf.random_gamma([2], alpha, 3.0, seed=4), 2), recorded, rtol=2e-7)
    (slope,) = tf.gradients(tf.random_gamma([4], alpha, seed=4), [alpha])
    np.testing.assert_allclose(runs(slope, 1)[0], [2.506606101989746, 3.850210189819336], rtol=1e-5)


def test_stateless():
    seed = [1, 2]
    check([tf.random.stateless_uniform([3], seed), tf.random.stateless_normal([3], seed), tf.random.stateless_uniform([3], seed, 0, 10, tf.int32),
           tf.random.stateless_categorical(LOGITS, 4, seed), tf.random.stateless_poisson([2, 2], seed, [1.0, 20.0]),
           tf.random.stateless_binomial([2, 2], seed, [10.0, 200.0], 0.5), tf.random.split(seed, 2), tf.random.fold_in(seed, 3),
           tf.random.experimental.stateless_shuffle([1, 2, 3, 4], seed)],
          [[[0.8440604209899902, 0.19204533100128174, 0.9962232112884521], [0.544110119342804, 0.20738030970096588, 0.0735643208026886], [0, 9, 4],
            [[1, 2, 0, 2], [2, 2, 2, 2]], [[3, 27], [3, 25]], [[6, 110], [6, 108]], [[1105988140, 1738052849], [-335576002, 370444179]],
            [1105988140, 3], [1, 4, 3, 2]]] * 2)  # fmt: skip


def test_crop():
    check([tf.random_crop(np.arange(36).reshape(6, 6), [2, 3], seed=1)], [[[[0, 1, 2], [6, 7, 8]]], [[[8, 9, 10], [14, 15, 16]]]])
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match=r"Need value.shape >= size"):
        sess.run(tf.random_crop(np.zeros((2, 2)), [3, 1]))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_types(dtype):
    for tensor in (tf.random_uniform([2, 3], dtype=dtype), tf.random_normal([2, 3], dtype=dtype), tf.truncated_normal([2, 3], dtype=dtype)):
        assert tensor.dtype == dtype
        assert tensor.shape.as_list() == [2, 3]
        assert runs(tensor, 1)[0].dtype == dtype.as_numpy_dtype


def test_shapes_may_be_tensors_and_dimensions():
    x = tf.placeholder(tf.float32, [None, 2])
    noise = tf.random_uniform(tf.shape(x))
    assert noise.shape.as_list() == [None, 2]
    with tf.Session() as sess:
        assert sess.run(noise, {x: np.zeros((5, 2))}).shape == (5, 2)
    assert tf.random_normal([tf.Dimension(3), 2]).shape.as_list() == [3, 2]
    assert tf.random_normal(tf.TensorShape([3, 2])).shape.as_list() == [3, 2]
    assert tf.random_normal(()).shape.as_list() == []


def test_node_names_are_tensorflow_s():
    assert tf.random_normal([2]).op.name == "random_normal"
    assert tf.random_uniform([2]).op.name == "random_uniform/RandomUniform"
    assert tf.random_uniform([2], -1.0, 1.0, name="w").op.name == "w"
    assert tf.random_shuffle([1]).op.name == "RandomShuffle"
    names = [op.name for op in tf.get_default_graph().get_operations()]
    assert names[:6] == ["random_normal/shape", "random_normal/mean", "random_normal/stddev", "random_normal/RandomStandardNormal",
                         "random_normal/mul", "random_normal"]  # fmt: skip


def test_random_ops_pass_no_gradient():
    scale = tf.constant(2.0)
    noise = tf.random_uniform([3], maxval=scale, seed=1)
    np.testing.assert_allclose(runs(tf.gradients(noise, scale)[0], 1)[0], 1.2099494, rtol=1e-6)
    shuffled = tf.random_shuffle(scale * [1.0, 2.0])
    assert tf.gradients(shuffled, scale) == [None]


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("build", "error", "text"), [
    (lambda: tf.random_uniform([2], dtype=tf.int32), ValueError, "Must specify maxval for integer dtype tf.int32"),
    (lambda: tf.random_uniform([2], dtype=tf.string), ValueError, "Argument `dtype` got invalid value"),
    (lambda: tf.random_uniform([[2]]), ValueError, "Shape must be rank 1 but is rank 2"),
    (lambda: tf.random.categorical(LOGITS[0], 3), ValueError, "Shape must be rank 2 but is rank 1"),
    (lambda: tf.random.categorical(LOGITS, 3, dtype=tf.float32), ValueError, "Accepted dtypes are"),
    (lambda: tf.random.stateless_uniform([2], [1, 2, 3]), ValueError, "Dimension"),
    (lambda: tf.random.stateless_uniform([2], [1, 2], 0, None, tf.int32), ValueError, "must be both None or not None"),
    (lambda: tf.random.stateless_uniform([2], [1, 2], 0, 5, tf.uint32), ValueError, "don't use unsigned integers"),
    (lambda: tf.random.stateless_uniform([2], [1, 2], alg="mersenne"), ValueError, "got unsupported value mersenne"),
    (lambda: tf.random.stateless_uniform([2], [1, 2], alg=1.5), TypeError, "Can't convert argument `alg`"),
])  # fmt: skip
def test_errors_while_building(build, error, text):
    with pytest.raises(error, match=text):
        build()


@pytest.mark.parametrize(("build", "text"), [
    (lambda: tf.random_uniform([2], 5, 5, dtype=tf.int32), "Need minval < maxval, got 5 >= 5"),
    (lambda: tf.random_uniform(tf.placeholder_with_default([-1], [1])), "Dimension -1 must be >= 0"),
    (lambda: tf.random_normal(tf.placeholder_with_default(3, None)), r"shape must be a vector of \{int32,int64\}, got shape \[\]"),
    (lambda: tf.random.stateless_uniform([2], [1, 2], alg="threefry"), "Unsupported algorithm id: 2"),
    (lambda: tf.random.stateless_gamma([3], [1, 2], [1.0, 2.0]), "Shape passed in must end with broadcasted shape"),
    (lambda: tf.nn.uniform_candidate_sampler([[9]], 1, 2, True, 5)[0], r"out of range \[0, 5\), received 9"),
])  # fmt: skip
def test_errors_in_a_step(build, text):
    tensor = build()
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match=text):
        sess.run(tensor)


# -- candidate samplers -----------------------------------------------------------------------------------------------


def test_candidate_samplers():
    true = np.array([[0, 3]])
    kinds = (tf.random.uniform_candidate_sampler, tf.random.log_uniform_candidate_sampler, tf.random.learned_unigram_candidate_sampler)
    tf.set_random_seed(1)
    check([kind(true, 2, 4, True, 10, seed=2)[0] for kind in kinds],
          [[[9, 6, 7, 1], [0, 1, 8, 6], [9, 5, 2, 1]], [[3, 0, 7, 6], [4, 3, 1, 2], [3, 4, 8, 2]]])  # fmt: skip
    fixed = tf.random.fixed_unigram_candidate_sampler(true, 2, 6, False, 4, unigrams=[1.0, 2.0, 3.0, 4.0], seed=2)
    check([fixed.sampled_candidates], [[[3, 1, 2, 3, 2, 3]], [[3, 3, 3, 3, 1, 3]]])
    np.testing.assert_allclose(runs(fixed.true_expected_count, 1)[0], [[0.6, 2.4]], rtol=1e-6)


def test_fixed_unigram_reads_a_vocabulary_file(tmp_path):
    path = tmp_path / "vocabulary.csv"
    path.write_text("a,1\nb,3\n")
    sampler = tf.nn.fixed_unigram_candidate_sampler([[1]], 1, 5, False, 2, vocab_file=str(path), seed=1)
    np.testing.assert_allclose(runs(sampler.true_expected_count, 1)[0], [[3.75]])
    path.write_text("a,one\n")
    bad = tf.nn.fixed_unigram_candidate_sampler([[1]], 1, 5, False, 2, vocab_file=str(path), seed=1)
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="Wrong vocabulary format at line: a,one"):
        sess.run(bad)
    missing = tf.nn.fixed_unigram_candidate_sampler([[1]], 1, 5, False, 2, vocab_file=str(tmp_path / "none"), seed=1)
    with tf.Session() as sess, pytest.raises(tf.errors.NotFoundError, match="No such file"):
        sess.run(missing)


def test_unique_candidates_are_unique_and_expected_counts_are_chances():
    true = np.arange(8).reshape(4, 2)
    classes, true_count, count = tf.nn.log_uniform_candidate_sampler(true, 2, 30, True, 40, seed=1)
    got, wanted, counts = runs([classes, true_count, count], 1)[0]
    assert len(set(got.tolist())) == 30
    assert ((counts > 0) & (counts <= 1)).all()
    assert (np.diff(wanted.reshape(-1)) < 0).all()


def test_accidental_hits():
    hits = tf.nn.compute_accidental_hits([[1, 4], [2, 2], [9, 1]], [4, 1, 2], 2)
    indices, ids, weights = runs(list(hits), 1)[0]
    assert indices.tolist() == [0, 0, 1, 1, 2]
    assert ids.tolist() == [1, 0, 2, 2, 1]
    assert (weights == np.finfo(np.float32).min).all()


# -- generators -------------------------------------------------------------------------------------------------------


def test_generator_draws_tensorflow_s_numbers_and_moves_its_state():
    gen = tf.random.Generator.from_seed(1234)
    assert gen.algorithm == 1
    draws = [gen.normal([3]), gen.uniform([3]), gen.uniform([3], 0, 100, tf.int32), gen.truncated_normal([2]), gen.uniform_full_int([2]),
             gen.make_seeds(2)]  # fmt: skip
    recorded = [[0.9356609, 1.0854305, -0.93788373], [0.31073415, 0.3681823, 0.96182954], [24, 79, 41], [-0.00286504, -0.69419545],
                [17749347321697340902, 4328240269465201701], [[-4896663327461904535, -5851742018268803918], [0, 0]]]  # fmt: skip
    state, key = gen.state.read_value(), gen.key
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for tensor, expected in zip(draws, recorded, strict=True):
            got = sess.run(tensor)
            np.testing.assert_allclose(got, np.array(expected, got.dtype), rtol=1e-6)
        assert sess.run(state).tolist() == [1234 + 15 * 256, 0, 0]
        assert sess.run(key) == 0


def test_generator_states():
    expected = {1: [1, 0, 0], 2**64 + 7: [7, 1, 0], -1: [-1, -1, -1], (1, 2): [0, 1, 2], (1, 2, 3): [1, 2, 3], (2**63,): [0, 0, -(2**63)]}
    for seed, state in expected.items():
        assert runs(tf.random.create_rng_state(list(seed) if isinstance(seed, tuple) else seed, "philox"), 1)[0].tolist() == state
    gen = tf.random.Generator.from_key_counter(7, [8, 9], "philox")
    copy = tf.random.Generator(copy_from=gen)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(gen.state.read_value()).tolist() == [8, 9, 7]
        assert sess.run(copy.state.read_value()).tolist() == [8, 9, 7]
        assert sess.run(gen.skip(2)).tolist() == [8, 9, 7]
        sess.run(copy.reset_from_seed(5))
        assert sess.run(copy.state.read_value()).tolist() == [5, 0, 0]
        assert sess.run(gen.state.read_value()).tolist() == [8 + 512, 9, 7]
        assert sess.run(gen.binomial([2, 3], [5.0, 50.0, 500.0], 0.4)).shape == (2, 3)


def test_generator_errors():
    gen = tf.random.Generator.from_seed(1)
    with pytest.raises(ValueError, match="both `None` or both non-`None`"):
        gen.uniform([2], dtype=tf.int32)
    with pytest.raises(ValueError, match=r"must have the same rank|are incompatible|not compatible"):
        tf.random.Generator.from_state([1, 2], "philox")
    with pytest.raises(NotImplementedError, match="make_seeds"):
        gen.split(2)
    drawn = gen.normal([2])
    with tf.Session() as sess, pytest.raises(tf.errors.FailedPreconditionError):
        sess.run(drawn)


def test_global_generator():
    own = tf.random.Generator.from_seed(3)
    tf.random.set_global_generator(own)
    assert tf.random.get_global_generator() is own
