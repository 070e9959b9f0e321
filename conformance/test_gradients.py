"""tf.gradients under TensorFlow and Penstock: the same programs, and the gradient of every op's samples."""

import numpy as np
import pytest

import penstock
from conformance.both import compare, run_both, same_structure, tensorflow
from penstock import dtypes
from penstock.graph.opdef import MISSING, OPS
from penstock.ops.cases import cases, sampled_ops

pytest.importorskip("tensorflow")

X = np.array([1.5, -2.0], np.float32)
PROGRAMS = {}


def program(feed=None, message=None, structure=False):
    def register(fn):
        PROGRAMS[fn.__name__] = (fn, feed, message, structure)
        return fn

    return register


def x_of(tf, shape=(2,), dtype="float32"):
    return tf.placeholder(dtype, shape, name="x")


@program({"x": X})
def chain(tf):
    x = x_of(tf)
    y = tf.tanh(x * x) + tf.exp(x) / (x * x + 1.0)
    return tf.gradients(y, x), tf.gradients([y, x], x), tf.gradients(y, [x, x])


@program({"x": X})
def second_and_third_order(tf):
    x = x_of(tf)
    first = tf.gradients(tf.sin(x) * x**3, x)[0]
    second = tf.gradients(first, x)[0]
    return first, second, tf.gradients(second, x)[0]


@program({"x": X})
def with_given_gradients(tf):
    x = x_of(tf)
    return tf.gradients([x * x, tf.reduce_sum(x)], x, grad_ys=[tf.constant([2.0, 3.0]), None])


@program({"x": X}, structure=True)
def names_of_given_gradients(tf):
    x = x_of(tf)
    return tf.gradients(tf.identity(x), x, grad_ys=tf.constant([2.0, 3.0]), name="gradients_of_mine")


@program({"x": X})
def not_connected(tf):
    x, z = x_of(tf), tf.constant([1.0, 2.0])
    a = tf.gradients(x * x, z)
    b = tf.gradients(x * x, [z, x], unconnected_gradients=tf.UnconnectedGradients.ZERO)
    c = tf.gradients(tf.stop_gradient(x) * 2.0, x)
    d = tf.gradients(tf.cast(tf.cast(x, tf.int32), tf.float32), x)
    return tf.constant([a[0] is None, c[0] is None, d[0] is None]), b


@program({"x": X})
def stopped(tf):
    x = x_of(tf)
    a = x * 2.0
    b = a * x
    return tf.gradients(a + b, [x, a], stop_gradients=[a]), tf.gradients(a + b, [a, b], stop_gradients=[a, b])


@program({"x": X}, structure=True)
def aggregated_as_tree(tf):
    x = tf.identity(x_of(tf))
    y = tf.identity(x) + tf.identity(x)
    return tf.gradients([y, tf.negative(x)], x, aggregation_method=tf.AggregationMethod.EXPERIMENTAL_TREE)


@program({"x": X}, structure=True)
def aggregated_by_add_n(tf):
    x = tf.identity(x_of(tf))
    y = tf.identity(x) + tf.identity(x)
    return tf.gradients([y, tf.negative(x)], x)


@program({"x": X}, structure=True)
def gated(tf):
    x, z = x_of(tf), tf.constant([3.0, 4.0])
    return tf.gradients(x + z, [x, z], gate_gradients=True)


@program({"x": X}, structure=True)
def colocated(tf):
    with tf.device("/cpu:0"):
        x = x_of(tf)
        y = tf.negative(tf.identity(x))
    return tf.gradients(y, x, colocate_gradients_with_ops=True)


@program({"x": X})
def gathered(tf):
    x = x_of(tf)
    v = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2), name="v", use_resource=False)
    a = tf.gradients(tf.gather(v, [1, 3, 1]) * x, v)[0]
    b = tf.gradients([tf.gather(v, [1, 3, 1]) * x, tf.gather(v, tf.constant([0], tf.int64))], v)[0]
    c = tf.gradients([tf.gather(v, [1, 3]) * x, v * v], v)[0]
    return a.values, a.indices, a.dense_shape, b.values, b.indices, c


@program({"x": X})
def gathered_resource(tf):
    x = x_of(tf)
    v = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2), name="v", use_resource=True)
    g = tf.gradients(tf.gather(v, [1, 3, 1]) * x, v)[0]
    return tf.convert_to_tensor(g), tf.gradients(v * v * x, v)[0], tf.gradients(tf.reduce_sum(v), v.handle)[0]


@program({"x": X})
def ref_variable(tf):
    v = tf.Variable([1.0, 2.0], use_resource=False)
    return tf.gradients(v * x_of(tf), v), tf.gradients(v * 2.0, [v, v.value()])


@program({"x": X})
def hessian(tf):
    x = x_of(tf)
    return tf.hessians(tf.reduce_sum(x * x * x) + x[0] * x[1], [x])


@program({"x": np.array([1 + 2j, -1j], np.complex64)})
def complex_gradients(tf):
    x = x_of(tf, dtype="complex64")
    return tf.gradients(tf.abs(x), x), tf.gradients(x * x, x, grad_ys=tf.constant([1 + 1j, 2], tf.complex64)), tf.gradients(tf.real(x * x), x)


@program({"x": np.array([1 + 2j, -1j], np.complex64)}, message="must set grad_ys")
def complex_without_grad_ys(tf):
    x = x_of(tf, dtype="complex64")
    return tf.gradients(x * x, x)


@program(message="must be numeric to obtain a default gradient")
def gradient_of_a_string(tf):
    return tf.gradients(tf.constant("a"), tf.constant("b"), grad_ys=tf.constant("c"))


@program(message="Passed 2 grad_ys for 1 ys")
def too_many_grad_ys(tf):
    x = tf.constant(1.0)
    return tf.gradients(x * x, x, grad_ys=[x, x])


@program(message="must be real or integer")
def grad_ys_of_another_kind(tf):
    x = tf.constant(1.0)
    return tf.gradients(x * x, x, grad_ys=[tf.constant("c")])


@program(message="(op type: Unique)")
def no_gradient_defined(tf):
    x = tf.constant([1.0, 2.0])
    return tf.gradients(tf.unique(x)[0], x)


@program()
def integers(tf):
    x = tf.constant([1, 2])
    return tf.constant(tf.gradients(x * x, x)[0] is None)


@program({"x": X})
def overridden(tf):
    name = f"Mine{id(tf)}"

    @tf.RegisterGradient(name)
    def _grad(op, dy):
        return dy * 10.0 + op.outputs[0]

    x = x_of(tf)
    with tf.get_default_graph().gradient_override_map({"Square": name}):
        y = tf.square(x)
    return tf.gradients(y, x), tf.gradients(tf.square(x), x)


@program(message="Registering two gradient with name 'Square'")
def registered_twice(tf):
    @tf.RegisterGradient("Square")
    def _grad(op, dy):
        return dy

    return tf.constant(1)


@program({"x": X})
def wrong_number_of_gradients(tf):
    name = f"Wrong{id(tf)}"

    @tf.RegisterGradient(name)
    def _grad(op, dy):
        return dy, dy

    x = x_of(tf)
    with tf.get_default_graph().gradient_override_map({"Square": name}):
        y = tf.square(x)
    return tf.gradients(y, x)


@program({"x": X}, message="Incompatible shapes between op input and calculated input gradient")
def wrong_shape_of_gradient(tf):
    name = f"Shape{id(tf)}"

    @tf.RegisterGradient(name)
    def _grad(op, dy):
        return tf.zeros([3])

    x = x_of(tf)
    with tf.get_default_graph().gradient_override_map({"Square": name}):
        y = tf.square(x)
    return tf.gradients(y, x)


@program({"x": X})
def custom(tf):
    @tf.custom_gradient
    def log1pexp(x):
        e = tf.exp(x)
        return tf.log(1.0 + e), lambda dy: dy * (1.0 - 1.0 / (1.0 + e))

    @tf.custom_gradient
    def two(a, b):
        return (a * b, a + b), lambda da, db: (da * 100.0, db * 10.0)

    x = x_of(tf)
    p, q = two(x, x * 2.0)
    return log1pexp(x), tf.gradients(log1pexp(x), x), p, q, tf.gradients([p, q], x), tf.gradients(tf.gradients(log1pexp(x), x), x)


@program({"x": X})
def custom_with_variables(tf):
    v = tf.get_variable("v", initializer=[2.0, 3.0], use_resource=True)

    @tf.custom_gradient
    def scaled(x):
        def grad(dy, variables=None):
            return dy * 7.0, [dy * 5.0 for _ in variables]

        return x * v, grad

    x = x_of(tf)
    y = scaled(x)
    return y, tf.gradients(y, [x, v])


@program({"x": X})
def passed_through(tf):
    x = x_of(tf)
    y = tf.grad_pass_through(tf.round)(x)
    return y, tf.gradients(y * y, x)


@program({"x": X})
def recomputed(tf):
    x = x_of(tf)
    f = tf.recompute_grad(lambda a: tf.tanh(a * a))
    return f(x), tf.gradients(f(x), x)


@program({"x": X})
def prevented(tf):
    x = x_of(tf)
    return tf.gradients(tf.raw_ops.PreventGradient(input=x, message="no way"), x)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    fn, feed, message, _ = PROGRAMS[name]
    run_both(fn, feed, message=message)


@pytest.mark.parametrize("name", [name for name, row in PROGRAMS.items() if row[3]])
def test_same_graph(name):
    same_structure(PROGRAMS[name][0])


# -- every op -----------------------------------------------------------------------------------------------------------

# TF crashes (transposes of scalars), reads memory that it never wrote (sparse segments, depthwise filters without input), or
# rounds float16 in another order (Einsum); samples at a pole (Zeta) or whose inputs are no real pooling (MaxPoolGrad) prove nothing.
# TF differentiates BlockLSTMV2 with the gates in the order of BlockLSTM, which is wrong.
NOT_COMPARED = {
    "ConjugateTranspose", "Transpose", "SparseSegmentMean", "SparseSegmentMeanWithNumSegments", "SparseSegmentSqrtN",
    "SparseSegmentSqrtNWithNumSegments", "SparseSegmentSum", "SparseSegmentSumWithNumSegments", "DepthwiseConv2dNative", "Einsum", "Zeta",
    "MaxPoolGrad", "MaxPoolGradV2", "BlockLSTMV2",
}  # fmt: skip


def _plain(value):
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dtypes.DType):
        return value.name
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, penstock.TensorShape):
        return None if value.ndims is None else value.as_list()
    return value


def op_gradients(tf, case):
    """("present", values) of the gradients of one sample: which inputs have one, and what they are."""
    from tensorflow.python.framework import op_def_library

    with tf.Graph().as_default():
        feeds, xs = {}, []

        def source(arg, array):
            dtype = arg.dtype.name if arg.dtype is not None else dtypes.from_np(array.dtype).name
            if arg.type_attr in case.attrs:
                dtype = dtypes.as_dtype(case.attrs[arg.type_attr]).name
            if array.dtype.kind in "iu" and array.size < 20:
                tensor = tf.constant(array, dtype)
            else:
                tensor = tf.placeholder(dtype, array.shape)
                feeds[tensor] = array
            xs.append(tensor)
            return tensor

        keywords = {}
        for arg in case.opdef.inputs:
            value = case.inputs[arg.name]
            keywords[arg.name] = [source(arg, v) for v in value] if arg.is_list else source(arg, value)
        inferred = {a for arg in case.opdef.inputs for a in (arg.type_attr, arg.list_attr, arg.number_attr)}
        for key, attr in case.opdef.attrs.items():
            if key in case.attrs and key not in inferred:
                keywords[key] = _plain(case.attrs[key])
            elif key not in inferred and attr.default is not MISSING:
                keywords[key] = _plain(attr.default)
        apply = getattr(tf.raw_ops, case.opdef.name) if tf is penstock else None
        result = apply(**keywords) if apply is not None else op_def_library.apply_op(case.opdef.name, **keywords)
        while not hasattr(result, "outputs"):
            result = result.op if hasattr(result, "op") else result[0]
        ys = [t for t in result.outputs if t.dtype.is_floating or t.dtype.is_complex]
        if not ys:
            return None
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.Session(config=config) as session:
            random = np.random.default_rng(3)
            weights = []
            for value in session.run(ys, feeds):
                w = random.standard_normal(np.shape(value))
                if np.asarray(value).dtype.kind == "c":
                    w = w + 1j * random.standard_normal(np.shape(value))
                weights.append(tf.constant(w.astype(np.asarray(value).dtype)))
            # What TF returns for integer inputs (None, or zeros) is of no use to anybody.
            grads = tf.gradients(ys, [x for x in xs if x.dtype.is_floating or x.dtype.is_complex], grad_ys=weights)
            dense = [tf.convert_to_tensor(g) for g in grads if g is not None]
            return [g is not None for g in grads], session.run(dense, feeds) if dense else []


@pytest.mark.parametrize("name", [op.name for op in sampled_ops() if op.name not in NOT_COMPARED and not op.deprecated])
def test_gradient_of_op(name):
    for case in cases(OPS[name]):
        if case.dtype is not None and not (case.dtype.is_floating or case.dtype.is_complex):
            continue
        try:
            theirs = op_gradients(tensorflow(), case)
        except Exception:
            continue  # TF cannot differentiate this sample; what we do with it is our own affair
        ours = op_gradients(penstock, case)
        if theirs is None or ours is None:
            assert theirs is ours, case
            continue
        assert ours[0] == theirs[0], f"{case}: which inputs have gradients"
        compare(list(ours[1]), list(theirs[1]), 2e-4, 2e-5, repr(case))
