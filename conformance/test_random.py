"""Random numbers against TensorFlow's: the same seeds give the same bits, run after run, and the API builds the same nodes."""

import itertools

import numpy as np
import pytest

import penstock
from penstock import dtypes
from penstock.graph.opdef import OPS
from penstock.ops.cases import cases, programs

tensorflow = pytest.importorskip("tensorflow")
tf1 = tensorflow.compat.v1
tf1.disable_v2_behavior()

MODULES = ("penstock.ops.random:", "penstock.ops.stateless_random:", "penstock.ops.candidates:", "penstock.ops.rng:")
FAMILY = sorted(name for name, opdef in OPS.items() if opdef.where.startswith(MODULES) and opdef.samples)
SEEDS = [(1, 2), (0, 7), (-3, 1 << 40), (87654321, 0), (2**63 - 1, -(2**63))]
SHAPES = [(), (0,), (1,), (5,), (2, 0, 3), (3, 5), (70001,)]
NO_KERNEL = ("No OpKernel was registered", "Could not find device for node", "no supported kernel")


def bits(array):
    array = np.asarray(array)
    return array.tolist() if array.dtype == object else array.view(f"u{array.itemsize}").tolist()


def same(ours, theirs, what, ulps=0, rtol=0.0):
    """Equal in every bit; float64 normals may be off by `ulps`, other float results by a factor of 1 + `rtol`."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, what
    assert ours.dtype == theirs.dtype, what
    if rtol and ours.dtype.kind == "f":
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-37, err_msg=str(what))
    elif ulps and ours.dtype == np.float64:
        np.testing.assert_array_almost_equal_nulp(ours, theirs, ulps)
    else:
        assert bits(ours) == bits(theirs), what


def runs(tf, build, n=3):
    """The fetches of n runs in one session."""
    with tf.Graph().as_default():
        fetches = build(tf)
        with tf.Session() as sess:
            return [sess.run(fetches) for _ in range(n)]


def compare(build, what, n=3, **tolerance):
    for i, (ours, theirs) in enumerate(zip(runs(penstock, build, n), runs(tf1, build, n), strict=True)):
        theirs = list(theirs) if isinstance(theirs, (list, tuple)) else [theirs]
        ours = list(ours) if isinstance(ours, (list, tuple)) else [ours]
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b, (what, i), **tolerance)


# -- ops --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["RandomUniform", "RandomStandardNormal", "TruncatedNormal"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats(op, dtype):
    for (seed, seed2), shape in itertools.product(SEEDS, SHAPES):
        size = np.array(shape, np.int64)
        compare(lambda tf: getattr(tf.raw_ops, op)(shape=size, dtype=dtype, seed=seed, seed2=seed2), (op, dtype, seed, shape),
                ulps=0 if op == "RandomUniform" else 4)  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers(dtype):
    info = np.iinfo(dtype)
    for (seed, seed2), shape, (low, high) in itertools.product(SEEDS, SHAPES, [(0, 1), (-7, 1000), (info.min, info.max), (0, 1 << 30)]):
        bounds = np.array([low, high], dtype)
        compare(lambda tf: tf.raw_ops.RandomUniformInt(shape=np.array(shape, np.int32), minval=bounds[0], maxval=bounds[1], seed=seed, seed2=seed2),
                (dtype, seed, shape, low))  # fmt: skip


def test_million_numbers():
    for op in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal"):
        compare(lambda tf: getattr(tf.raw_ops, op)(shape=[1000003], dtype="float32", seed=5, seed2=6), op)


@pytest.mark.parametrize("name", FAMILY)
def test_samples(name):
    opdef = OPS[name]
    failures, compared = [], 0
    for case in cases(opdef, every_type=True):
        attrs = {k: v.name if isinstance(v, dtypes.DType) else v for k, v in case.attrs.items()}
        for key, attr in opdef.attrs.items():  # types that no input determines
            if attr.kind == "type" and key not in attrs and not any(a.type_attr == key for a in opdef.inputs):
                attrs[key] = "float32" if dtypes.float32 in (attr.allowed or {dtypes.float32}) else "int64"

        def build(tf, case=case, attrs=attrs):
            inputs = {}
            for arg in opdef.inputs:
                array = case.inputs[arg.name]
                dtype = arg.dtype.name if arg.dtype else attrs.get(arg.type_attr) or dtypes.from_np(np.asarray(array).dtype).name
                inputs[arg.name] = tf.constant(array, dtype=dtype)
            given = {k: v for k, v in attrs.items() if not any(a.type_attr == k for a in opdef.inputs)}
            result = getattr(tf.raw_ops, name)(**inputs, **given)
            return list(result) if isinstance(result, tuple) else result

        try:
            runs(tf1, build, 1)
        except Exception as error:
            if any(text in str(error) for text in NO_KERNEL):
                continue
            raise
        compared += 1
        loose = "Gamma" in name or "CandidateSampler" in name
        try:
            compare(build, repr(case), ulps=8, rtol=1e-5 if loose else 0)
        except AssertionError as error:
            failures.append(f"{case}: {error}")
    for program in programs(opdef):
        compared += 1
        compare(program.fn, name, program.runs)
    assert compared
    assert not failures, "\n".join(failures[:3])


# -- the public functions ---------------------------------------------------------------------------------------------

LOGITS = np.log([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]).astype(np.float32)
PROGRAMS = {
    "normal": lambda tf: tf.random_normal([2, 3], 1.0, 2.0, seed=3, name="foo"),
    "normal64": lambda tf: tf.random_normal((4,), dtype=tf.float64, seed=3),
    "truncated": lambda tf: tf.truncated_normal([3], stddev=0.1, seed=5),
    "uniform": lambda tf: tf.random_uniform([3], seed=1),
    "uniform range": lambda tf: tf.random_uniform([3], -2.0, 5.0, seed=1),
    "uniform upper": lambda tf: tf.random_uniform([3], 0, 5.0, seed=1),
    "uniform floats": lambda tf: tf.random_uniform([], 0.0, 1.0, seed=1),
    "uniform ints": lambda tf: tf.random_uniform([3, 2], -5, 100, dtype=tf.int64, seed=1),
    "uniform half": lambda tf: tf.random_uniform([3], dtype=tf.float16, seed=1),
    "shape of tensor": lambda tf: tf.random_uniform(tf.shape(tf.ones([2, 2])), seed=1),
    "shuffle": lambda tf: tf.random_shuffle([[1, 2], [3, 4], [5, 6]], seed=4),
    "multinomial": lambda tf: tf.multinomial(LOGITS, 5, seed=4),
    "categorical": lambda tf: tf.random.categorical(LOGITS, 5, dtype=tf.int32, seed=4),
    "gamma": lambda tf: tf.random_gamma([3], [0.5, 2.0], 3.0, seed=4),
    "gamma broadcast": lambda tf: tf.random_gamma([3], [[0.5], [2.0]], [1.0, 3.0], seed=4),
    "poisson": lambda tf: tf.random_poisson([0.5, 20.0], [4], seed=4),
    "poisson ints": lambda tf: tf.random_poisson([3.0], [4], dtype=tf.int32, seed=4),
    "crop": lambda tf: tf.random_crop(np.arange(36).reshape(6, 6), [2, 3], seed=1),
    "stateless uniform": lambda tf: tf.random.stateless_uniform([3], [1, 2]),
    "stateless uniform range": lambda tf: tf.random.stateless_uniform([3], [1, 2], -1, 1, alg="auto_select"),
    "stateless ints": lambda tf: tf.random.stateless_uniform([3], [1, 2], 0, 10, dtype=tf.int32),
    "stateless full ints": lambda tf: tf.random.stateless_uniform([3], [1, 2], None, None, dtype=tf.uint64),
    "stateless normal": lambda tf: tf.random.stateless_normal([3], [1, 2]),
    "stateless truncated": lambda tf: tf.random.stateless_truncated_normal([3], [1, 2], 1.0, 2.0),
    "stateless multinomial": lambda tf: tf.random.stateless_multinomial(LOGITS, 3, [1, 2]),
    "stateless categorical": lambda tf: tf.random.stateless_categorical(LOGITS, 3, [1, 2], dtype=tf.int32),
    "stateless gamma": lambda tf: tf.random.stateless_gamma([3, 2], [1, 2], [1.0, 2.0], 3.0),
    "stateless poisson": lambda tf: tf.random.stateless_poisson([3, 2], [1, 2], [1.0, 20.0]),
    "stateless binomial": lambda tf: tf.random.stateless_binomial([3, 2], [1, 2], [10.0, 200.0], 0.5),
    "stateless bounded": lambda tf: tf.random.stateless_parameterized_truncated_normal([3, 2], [1, 2], [0.0, 1.0], 1.0, -1.0, 2.0),
    "split": lambda tf: tf.random.split([1, 2], 3),
    "fold in": lambda tf: tf.random.fold_in([1, 2], 3),
    "stateless shuffle": lambda tf: tf.random.experimental.stateless_shuffle([1, 2, 3, 4], [1, 2]),
    "index shuffle": lambda tf: tf.random.experimental.index_shuffle(3, [1, 2], 10),
    "uniform candidates": lambda tf: tf.random.uniform_candidate_sampler(np.array([[1]]), 1, 2, True, 5, seed=3)[0],
    "fixed candidates": lambda tf: tf.nn.fixed_unigram_candidate_sampler(np.array([[1]]), 1, 2, False, 3, unigrams=[1.0, 2.0, 3.0], seed=4)[0],
    "learned candidates": lambda tf: tf.nn.learned_unigram_candidate_sampler(np.array([[1]]), 1, 2, True, 5, seed=4)[0],
    "log uniform candidates": lambda tf: tf.nn.log_uniform_candidate_sampler(np.array([[1]]), 1, 2, True, 5, seed=4)[0],
    "all candidates": lambda tf: tf.nn.all_candidate_sampler(np.array([[1]]), 1, 2, True)[0],
    "accidental hits": lambda tf: tf.nn.compute_accidental_hits(np.array([[1]]), np.array([1, 2]), 1, seed=2)[1],
}


def nodes(tf, build):
    with tf.Graph().as_default() as graph:
        build(tf)
        return [(n.name, n.op, list(n.input)) for n in graph.as_graph_def().node]


@pytest.mark.parametrize("name", PROGRAMS)
def test_public_functions(name):
    build = PROGRAMS[name]
    assert nodes(penstock, build) == nodes(tf1, build)
    compare(build, name, ulps=4, rtol=1e-6 if "gamma" in name else 0)


def test_generator():
    def build(tf):
        gen = tf.random.Generator.from_seed([1, 2, 3])
        with tf.control_dependencies([gen.state.initializer]):
            first = gen.normal([5])
        with tf.control_dependencies([first]):
            second = gen.uniform([3], 0, 1000, tf.int64)
        with tf.control_dependencies([second]):
            third = gen.truncated_normal([2], dtype=tf.float64)
        with tf.control_dependencies([third]):
            return [first, second, third, gen.state.read_value()]

    tf1.enable_resource_variables()
    try:
        compare(build, "generator", ulps=4)
    finally:
        tf1.disable_resource_variables()


def seeded(tf):
    """Ops without seeds of their own in a graph with one."""
    tf.set_random_seed(1234)
    a = tf.random_normal([3])
    b = tf.random_uniform([2], 0, 10, dtype=tf.int32, seed=7)
    c = tf.random_uniform([3])
    with tf.name_scope("inner"):
        d = tf.truncated_normal([3])
    tf.set_random_seed(99)
    return [a, b, c, d, tf.random_shuffle(list(range(8)))]


def test_graph_seed():
    compare(seeded, "seeded")


@pytest.mark.parametrize("graph_seed", [None, 0, 1, -1, 2**31 - 1, 2**40])
@pytest.mark.parametrize("op_seed", [None, 0, 5, -1, 2**31 - 1, 2**40])
def test_get_seed(graph_seed, op_seed):
    def seeds(tf):
        with tf.Graph().as_default():
            tf.set_random_seed(graph_seed)
            return [tf.get_seed(op_seed) for _ in range(3)]

    assert seeds(penstock) == seeds(tf1)


def test_gradient_of_gamma_samples():
    def build(tf):
        alpha, beta = tf.constant([[0.5], [2.0]]), tf.constant([1.0, 3.0])
        samples = tf.random_gamma([20], alpha, beta, seed=4)
        stateless = tf.random.stateless_gamma([20, 2, 2], [1, 2], alpha, beta)
        return tf.gradients(samples, [alpha, beta]) + tf.gradients(stateless, [alpha, beta])

    compare(build, "gamma gradient", rtol=1e-4)


def test_gradient_of_bounded_normal_samples():
    def build(tf):
        parameters = [tf.constant(v) for v in ([[0.0], [1.0]], 1.5, [-1.0, -0.5, 0.5], [[2.0, 2.5, 9.0]])]
        samples = tf.random.stateless_parameterized_truncated_normal([20, 2, 3], [1, 2], *parameters)
        return tf.gradients(samples, parameters)

    compare(build, "bounded normal gradient", rtol=1e-4)


@pytest.mark.parametrize("build", [
    lambda tf: tf.random_uniform([2], dtype=tf.int32),
    lambda tf: tf.random_uniform([2], dtype=tf.string),
    lambda tf: tf.random_uniform([[2]]),
    lambda tf: tf.random.categorical(LOGITS[0], 3),
    lambda tf: tf.random.categorical(LOGITS, 3, dtype=tf.float32),
    lambda tf: tf.random.stateless_uniform([2], [1, 2, 3]),
    lambda tf: tf.random.stateless_uniform([2], [1, 2], 0, None, dtype=tf.int32),
    lambda tf: tf.random.stateless_uniform([2], [1, 2], 0, 5, dtype=tf.uint32),
    lambda tf: tf.random.stateless_uniform([2], [1, 2], alg="mersenne"),
    lambda tf: tf.random_uniform([2], 5, 5, dtype=tf.int32),
    lambda tf: tf.random_uniform(tf.placeholder_with_default([-1], [1])),
    lambda tf: tf.multinomial(LOGITS, tf.placeholder_with_default(-1, [])),
    lambda tf: tf.random.stateless_gamma([3], [1, 2], [1.0, 2.0]),
    lambda tf: tf.nn.uniform_candidate_sampler(np.array([[9]]), 1, 2, True, 5)[0],
    lambda tf: tf.nn.uniform_candidate_sampler(np.array([[1]]), 1, 7, True, 5)[0],
])  # fmt: skip
def test_errors_have_tensorflow_s_class(build):
    def error(tf):
        with pytest.raises(Exception) as raised:
            runs(tf, build, 1)
        return type(raised.value).__name__

    assert error(penstock) == error(tf1)
