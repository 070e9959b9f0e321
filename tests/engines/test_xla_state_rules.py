"""XLA rules that no sample covers, against the NumPy kernels: variables, training, generators in variables, and old names of ops."""

import inspect

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import penstock as tf  # noqa: F401 (declares the ops)
from penstock import dtypes
from penstock.engines.xla import backend, philox
from penstock.engines.xla.rule import RULES, Dynamic, Unsupported, Var
from penstock.graph.opdef import MISSING, OPS
from penstock.ops import philox as numpy_philox
from penstock.ops.resources import Ref, ResourceHandle

backend.start()

OPTIONS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Compiling is what takes time here."""


@pytest.fixture(autouse=True)
def wide_types():
    with backend.x64():
        yield


def is_variable(arg):
    return arg.is_ref or arg.dtype is dtypes.resource


def attributes(name, given, wanted):
    """Those of `wanted`, given or by default; strings as bytes, as kernels see them."""
    found = {}
    for key in wanted:
        value = given.get(key, OPS[name].attrs[key].default)
        assert value is not MISSING, f"{name} needs {key}"
        found[key] = value.encode() if isinstance(value, str) else value
    return found


def by_kernel(name, variables, inputs, attrs):
    """(outputs, new values of the variables) of the op's NumPy kernel."""
    refs = []
    for value in variables:
        ref = Ref(dtypes.from_np(value.dtype), value.shape, "v")
        ref.assign(value.copy())
        refs.append(ref)
    kernel = OPS[name].kernel
    parameters = inspect.signature(kernel).parameters
    handles = refs
    if not OPS[name].inputs or OPS[name].inputs[0].dtype is dtypes.resource:
        handles = [ResourceHandle("d", "c", "v", Ref.type_name, (), ref) for ref in refs]
    args = [*handles, *inputs]
    if "ctx" in parameters:
        args.insert(0, None)
    wanted = [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY and p.name != "node"]
    keywords = attributes(name, attrs, wanted)
    if "node" in parameters:
        keywords["node"] = None
    with np.errstate(all="ignore"):
        result = kernel(*args, **keywords)
    return flat(result), [ref.value for ref in refs]


def flat(result):
    if result is None:
        return []
    return [r.value if isinstance(r, (Ref, Var)) else r for r in (result if isinstance(result, (list, tuple)) else [result])]


def by_rule(name, variables, inputs, attrs, known=()):
    """The same of its XLA rule, compiled; `known` are the positions of inputs that are not traced."""
    traced = {i: x for i, x in enumerate(inputs) if i not in known}
    return compiled(traceable(name, inputs, attrs), variables, traced)


def traceable(name, inputs, attrs):
    """The rule as a function of arrays: (outputs, new values of the variables)."""
    keywords = attributes(name, attrs, RULES[name].attrs)

    def run(values, some):
        held = [Var(v, v.dtype) for v in values]
        args = [some.get(i, x) for i, x in enumerate(inputs)]
        outputs = flat(RULES[name].fn(*held, *args, **keywords))
        return outputs, [v.value for v in held]

    return run


def compiled(function, *args):
    return jax.jit(function).lower(*args).compile(compiler_options=OPTIONS)(*args)


def agree(got, want, rtol=2e-6, what=""):
    assert len(got) == len(want), what
    for a, b in zip(got, want):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), what
        if b.dtype.kind in "iub":
            np.testing.assert_array_equal(a, b, err_msg=what)
        else:
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=rtol, err_msg=what)


def compare(name, variables, inputs, known=(), rtol=2e-6, **attrs):
    want = by_kernel(name, variables, inputs, attrs)
    got = by_rule(name, variables, inputs, attrs, known)
    agree(got[0], want[0], rtol, name)
    agree(got[1], want[1], rtol, name)


def random(*shape, dtype=np.float32, seed=0, low=-1.0, high=1.0):
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(dtype)


# -- variables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"])
def test_assignments(name):
    attrs = {"dtype": dtypes.float32} if "Variable" in name else {}
    compare(name, [random(2, 3)], [random(2, 3, seed=1)], **attrs)


def test_an_assignment_does_not_read():
    var = Var(np.zeros(2, np.float32), np.dtype(np.float32))
    assert RULES["Assign"].fn(var, np.ones(2, np.float32), validate_shape=True) is var
    assert var.is_written and not var.is_read
    empty = Var(None, np.dtype(np.float32))
    RULES["AssignVariableOp"].fn(empty, np.ones(2, np.float32), validate_shape=True)
    np.testing.assert_array_equal(empty.value, [1, 1])


def test_assignments_that_do_not_fit_are_refused():
    var = Var(np.zeros(2, np.float32), np.dtype(np.float32))
    with pytest.raises(Unsupported):
        RULES["Assign"].fn(var, np.ones(3, np.float32), validate_shape=True)
    with pytest.raises(Unsupported):
        RULES["AssignVariableOp"].fn(var, np.ones(2, np.float64), validate_shape=False)
    with pytest.raises(Unsupported):
        RULES["AssignAdd"].fn(var, np.ones(3, np.float32))
    RULES["Assign"].fn(var, np.ones(3, np.float32), validate_shape=False)
    assert var.shape == (3,)


def test_reading():
    compare("ReadVariableOp", [random(2, 3)], [], dtype=dtypes.float32)
    var = Var(random(2, 3), np.dtype(np.float32))
    shape = RULES["VariableShape"].fn(var, out_type=dtypes.int64)
    assert isinstance(shape, np.ndarray) and shape.dtype == np.int64 and shape.tolist() == [2, 3]
    with pytest.raises(Unsupported):
        RULES["ReadVariableOp"].fn(var, dtype=dtypes.int32)


def test_gathering():
    compare("ResourceGather", [random(5, 3)], [np.array([[4, 0], [2, 2]], np.int32)], dtype=dtypes.float32)
    compare("ResourceGather", [random(2, 5, 3)], [np.array([[4, 0], [2, 2]], np.int64)], dtype=dtypes.float32, batch_dims=1)
    compare("ResourceGatherNd", [random(4, 3, 2)], [np.array([[3, 1], [0, 2]], np.int32)], dtype=dtypes.float32)


HOWS = ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max")


@pytest.mark.parametrize("kind", ["Scatter", "ResourceScatter"])
@pytest.mark.parametrize("how", HOWS)
def test_scattering_rows(kind, how):
    attrs = {"dtype": dtypes.float32} if kind == "ResourceScatter" else {}
    rows = np.array([2, 0] if how == "Update" else [2, 0, 2], np.int32)
    compare(kind + how, [random(4, 3)], [rows, random(len(rows), 3, seed=1, low=0.5)], **attrs)
    compare(kind + how, [random(4, 3)], [rows, random(seed=2, low=0.5)], **attrs)


@pytest.mark.parametrize("kind", ["ScatterNd", "ResourceScatterNd"])
@pytest.mark.parametrize("how", ["Update", "Add", "Sub", "Min", "Max"])
def test_scattering_slices(kind, how):
    places = np.array([[0, 2], [3, 1]] if how == "Update" else [[0, 2], [3, 1], [0, 2]], np.int64)
    compare(kind + how, [random(4, 3, 2)], [places, random(len(places), 2, seed=1)])


def test_rows_that_are_not_there_are_dropped():
    indices, updates = np.array([-1, 1, 9], np.int32), np.ones((3, 2), np.float32)
    _, (new,) = by_rule("ScatterAdd", [np.zeros((4, 2), np.float32)], [indices, updates], {})
    np.testing.assert_array_equal(new, [[0, 0], [1, 1], [0, 0], [0, 0]])
    (found,), _ = by_rule("ResourceGather", [np.ones((4, 2), np.float32)], [indices], {"dtype": dtypes.float32})
    np.testing.assert_array_equal(found, [[0, 0], [1, 1], [0, 0]])


@pytest.mark.parametrize("name", ["StridedSliceAssign", "ResourceStridedSliceAssign"])
def test_assigning_slices(name):
    bounds = [np.array(v, np.int32) for v in ([1, 0], [4, 2], [2, 1])]
    compare(name, [random(5, 3)], [*bounds, random(2, 2, seed=1)], known=(0, 1, 2))
    compare(name, [random(5, 3)], [*bounds, random(3, seed=1)], known=(0, 1, 2), shrink_axis_mask=1, end_mask=2)
    with pytest.raises(Dynamic):
        by_rule(name, [random(5, 3)], [*bounds, random(2, 2)], {})


# -- training -----------------------------------------------------------------------------------------------------------

SMALL = {"l1": 0.05, "l2": 0.1, "l2_shrinkage": 0.02, "lr_power": -0.5, "epsilon": 1e-3, "beta1_power": 0.9, "beta2_power": 0.99,
         "beta1": 0.9, "beta2": 0.99, "sign_decay": 0.7, "logbase": 1.1}  # fmt: skip
APPLY = sorted(name for name in RULES if "Apply" in name)


def training_case(name, dtype, rows=5):
    """Variables and inputs; the sparse ones name a row three times, so that the order counts."""
    variables, inputs = [], []
    for i, arg in enumerate(OPS[name].inputs):
        if is_variable(arg):
            variables.append(random(rows, 3, dtype=dtype, seed=i, low=0.3 if i else -1.0))
        elif arg.name in ("grad", "delta"):
            inputs.append(random(*((4, 3) if "Sparse" in name else (rows, 3)), dtype=dtype, seed=i))
        elif arg.name == "indices":
            inputs.append(np.array([3, 0, 3, 3], np.int32))
        elif arg.name == "global_step":
            inputs.append(np.array(7, np.int64))
        else:
            inputs.append(np.array(SMALL.get(arg.name, 0.25), dtype))
    return variables, inputs


def test_every_training_op_has_a_rule():
    ops = {n for n, op in OPS.items() if n.startswith(("Apply", "ResourceApply", "SparseApply", "ResourceSparseApply")) and op.kernel}
    assert ops == set(APPLY)


FLAGS = ("use_nesterov", "update_slots", "multiply_linear_by_lr")


@pytest.mark.parametrize("name", [name for name in APPLY if name.startswith("Resource")])
def test_training(name):
    variables, inputs = training_case(name, np.float32)
    flags = [key for key in FLAGS if key in OPS[name].attrs]
    for value in (False, True) if flags else (None,):
        compare(name, variables, inputs, rtol=2e-5, **dict.fromkeys(flags, value))


@pytest.mark.parametrize("name", [name for name in APPLY if not name.startswith("Resource")])
def test_training_of_references_is_the_same_program(name):
    variables, inputs = training_case(name, np.float32)
    traced = dict(enumerate(inputs))

    def program(name):
        run = traceable(name, inputs, {})
        return str(jax.make_jaxpr(lambda values, some: run(values, some)[1])(variables, traced))

    assert program(name) == program(f"Resource{name}")

    def returns_its_variable(values):
        held = [Var(v, v.dtype) for v in values]
        assert RULES[name].fn(*held, *inputs, **attributes(name, {}, RULES[name].attrs)) is held[0]
        return held[0].value

    jax.eval_shape(returns_its_variable, variables)


@pytest.mark.parametrize("name", ["ResourceApplyAdam", "ResourceSparseApplyFtrlV2", "ResourceApplyAdagradDA"])
def test_training_with_known_hyperparameters_and_in_double(name):
    variables, inputs = training_case(name, np.float64)
    traced = [i for i, x in enumerate(inputs) if x.ndim]
    compare(name, variables, inputs, known=[i for i in range(len(inputs)) if i not in traced], rtol=1e-12)


@pytest.mark.parametrize("power", [-0.5, -0.3])
def test_any_power_of_ftrl(power):
    variables, inputs = training_case("ResourceApplyFtrl", np.float32)
    inputs[-1] = np.float32(power)
    compare("ResourceApplyFtrl", variables, inputs, rtol=2e-5)


@pytest.mark.parametrize("name", ["ResourceApplyProximalAdagrad", "ResourceApplyAdagradDA", "ResourceSparseApplyAdagradDA"])
def test_without_l1_nothing_is_cut_off(name):
    variables, inputs = training_case(name, np.float32)
    names = [a.name for a in OPS[name].inputs if not is_variable(a)]
    inputs[names.index("l1")] = np.float32(0)
    compare(name, variables, inputs, rtol=2e-5)


def test_training_in_half_precision_keeps_its_type():
    for dtype in (np.float16, dtypes.bfloat16.np):
        variables, inputs = training_case("ApplyAdam", dtype)
        compare("ApplyAdam", variables, inputs, rtol=2e-2)


def test_sparse_training_drops_rows_that_are_not_there():
    variables, inputs = training_case("ResourceSparseApplyAdagrad", np.float32)
    at = [a.name for a in OPS["ResourceSparseApplyAdagrad"].inputs if not is_variable(a)].index("indices")
    inputs[at] = np.array([-1, 5, -1, 2], np.int32)
    _, new = by_rule("ResourceSparseApplyAdagrad", variables, inputs, {})
    for a, b in zip(new, variables):
        changed = np.any(np.asarray(a) != b, axis=1)
        assert changed.tolist() == [False, False, True, False, False]


def test_training_that_does_not_fit_is_refused():
    variables, inputs = training_case("ApplyMomentum", np.float32)
    with pytest.raises(Unsupported):
        by_rule("ApplyMomentum", [variables[0], variables[1][:2]], inputs, {})
    with pytest.raises(Unsupported):
        by_rule("ApplyMomentum", variables, [inputs[0], inputs[1][:2], inputs[2]], {})


def test_updates_happen_in_place():
    """A donated variable is overwritten: the program needs no second copy of it."""
    name = "ResourceApplyAdam"
    variables, inputs = training_case(name, np.float32, rows=1000)
    keywords = attributes(name, {}, RULES[name].attrs)

    def run(values, rest):
        held = [Var(v, v.dtype) for v in values]
        RULES[name].fn(*held, *rest, **keywords)
        return [v.value for v in held]

    memory = jax.jit(run, donate_argnums=0).lower(variables, inputs).compile().memory_analysis()
    assert memory.alias_size_in_bytes == sum(v.nbytes for v in variables)
    assert memory.temp_size_in_bytes < variables[0].nbytes


# -- random numbers -----------------------------------------------------------------------------------------------------

GENERATOR = np.array([(1 << 63) - 3, -7, 1 << 60], np.int64)


@pytest.mark.parametrize("name", ["StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulUniformFullInt"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_generators_in_variables(name, dtype):
    if "Int" in name:
        dtype = {dtypes.float32: dtypes.int32, dtypes.float64: dtypes.uint64}[dtype]
    # The counter's low half is about to run over.
    state = np.array([-3, -1, 1 << 60], np.int64)
    compare(name, [state], [np.array(1), np.array([7, 5])], known=(0, 1), dtype=dtype)


def test_whole_numbers_of_a_generator():
    for low, high in ((-5, 90), (-(1 << 62), 1 << 62)):
        inputs = [np.array(1), np.array([7, 5]), np.array(low), np.array(high)]
        compare("StatefulUniformInt", [GENERATOR], inputs, known=(0, 1), dtype=dtypes.int64)
    with pytest.raises(Unsupported):
        by_rule("StatefulUniformInt", [GENERATOR], [np.array(1), np.array([2]), np.array(5), np.array(5)], {}, known=(0, 1, 2, 3))


def test_skipping():
    compare("RngSkip", [GENERATOR], [np.array(1), np.array(1 << 40)], known=(0,))
    compare("RngReadAndSkip", [GENERATOR], [np.array(1, np.int32), np.array(1 << 61, np.uint64)], known=(0,))
    with pytest.raises(Unsupported):
        by_rule("RngSkip", [GENERATOR], [np.array(2), np.array(1)], {}, known=(0,))


@pytest.mark.parametrize("dtype", [np.float16, dtypes.bfloat16.np, np.float32, np.float64])
def test_streams_are_those_of_numpy(dtype):
    key, counter, shape = np.array([0x123456789ABCDEF], np.uint64), np.array([2**64 - 2, 5], np.uint64), (7, 301)
    stream = numpy_philox.Philox.from_key_counter(key, counter)
    fills = (philox.philox_uniform, philox.philox_normal, philox.philox_truncated_normal)
    got = compiled(lambda k, c: [fill(k, c, shape, dtype) for fill in fills], key, counter)
    want = [fill(stream, shape, np.dtype(dtype)) for fill in (numpy_philox.uniform, numpy_philox.normal, numpy_philox.truncated_normal)]
    np.testing.assert_array_equal(got[0], want[0])
    for a, b in zip(got[1:], want[1:]):
        assert np.asarray(a).dtype == dtype
        a, b = np.asarray(a).astype(np.float64), b.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=1e-12 if dtype == np.float64 else 1e-6)
        if dtype != np.float64:
            assert np.mean(a != b) < 1e-3  # a multiplication fused with an addition may round the other way


# -- old names, and what samples reach by programs only -------------------------------------------------------------------


REGULAR = np.array([[[4.0, 1.0], [1.0, 3.0]], [[2.0, 0.5], [0.5, 1.0]]])


@pytest.mark.parametrize("name", ["BatchCholesky", "BatchMatrixInverse", "BatchMatrixDeterminant", "MatrixExponential"])
def test_old_names_of_one_matrix(name):
    compare(name, [], [REGULAR], rtol=1e-10)


@pytest.mark.parametrize("name", ["BatchMatrixSolve", "BatchMatrixTriangularSolve", "BatchCholeskyGrad"])
def test_old_names_of_two_matrices(name):
    compare(name, [], [np.tril(REGULAR) if name == "BatchCholeskyGrad" else REGULAR, random(2, 2, 2, dtype=np.float64)], rtol=1e-10)


@pytest.mark.parametrize("name", ["SelfAdjointEig", "BatchSelfAdjointEig", "SelfAdjointEigV2", "BatchSelfAdjointEigV2"])
def test_eigenvectors_up_to_their_sign(name):
    # Only the lower triangle counts.
    matrix = REGULAR.copy()
    matrix[:, 0, 1] = 99.0
    found, _ = by_rule(name, [], [matrix], {})
    if len(found) == 1:
        e, v = np.asarray(found[0])[:, 0], np.asarray(found[0])[:, 1:]
    else:
        e, v = (np.asarray(f) for f in found)
    np.testing.assert_allclose(e, np.linalg.eigvalsh(REGULAR), rtol=1e-10)
    np.testing.assert_allclose(v * e[:, None, :] @ v.swapaxes(1, 2), REGULAR, rtol=1e-10)


def test_values_without_vectors():
    compare("SelfAdjointEigV2", [], [REGULAR], rtol=1e-10, compute_v=False)
    compare("Svd", [], [random(3, 2, dtype=np.float64)], rtol=1e-10, compute_uv=False)


@pytest.mark.parametrize("name", ["Svd", "BatchSvd"])
@pytest.mark.parametrize("full", [False, True])
def test_singular_vectors_up_to_their_sign(name, full):
    x = random(2, 4, 3, dtype=np.float64)
    want, _ = by_kernel(name, [], [x], {"full_matrices": full})
    (s, u, v), _ = by_rule(name, [], [x], {"full_matrices": full})
    assert [t.shape for t in (s, u, v)] == [t.shape for t in want]
    np.testing.assert_allclose(s, want[0], rtol=1e-10)
    np.testing.assert_allclose(np.asarray(u)[..., :3] * np.asarray(s)[:, None, :] @ np.asarray(v).swapaxes(1, 2)[..., :3, :], x, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("fmt", ["NHWC", "NCHW"])
def test_convolutions_with_shapes_of_tensors_and_channels_first(fmt):
    def order(x):
        return x if fmt == "NHWC" else np.ascontiguousarray(x.transpose(0, 3, 1, 2))

    x, w, dy = order(random(2, 7, 6, 4)), random(3, 2, 2, 6, seed=1), order(random(2, 4, 3, 6, seed=2))
    attrs = dict(strides=[1, 2, 2, 1] if fmt == "NHWC" else [1, 1, 2, 2], padding=b"SAME", data_format=fmt)
    compare("Conv2D", [], [x, w], rtol=2e-5, **attrs)
    compare("Conv2DBackpropInputV2", [], [x, w, dy], rtol=2e-5, **attrs)
    compare("Conv2DBackpropFilterV2", [], [x, w, dy], rtol=2e-5, **attrs)
    compare("DepthwiseConv2dNative", [], [x, random(3, 2, 4, 2, seed=3)], rtol=2e-5, **attrs)


@pytest.mark.parametrize("fmt", ["NHWC", "NCHW"])
def test_pools_find_the_first_maximum(fmt):
    x = np.random.default_rng(3).integers(0, 4, (2, 5, 6, 3)).astype(np.float32)  # many ties
    x = x if fmt == "NHWC" else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    window = dict(zip(("ksize", "strides"), ([1, 3, 2, 1], [1, 2, 1, 1]) if fmt == "NHWC" else ([1, 1, 3, 2], [1, 1, 2, 1])))
    attrs = dict(**window, padding=b"SAME", data_format=fmt)
    (y,), _ = by_kernel("MaxPool", [], [x], attrs)
    compare("MaxPool", [], [x], **attrs)
    compare("AvgPool", [], [x], **attrs)
    compare("MaxPoolGrad", [], [x, y, random(*y.shape)], rtol=1e-5, **attrs)
    compare("MaxPoolGradGrad", [], [x, y, random(*x.shape)], **attrs)
    inputs = [x, y, random(*x.shape), np.array(attrs["ksize"], np.int32), np.array(attrs["strides"], np.int32)]
    compare("MaxPoolGradGradV2", [], inputs, known=(3, 4), padding=b"SAME", data_format=fmt)
    if fmt == "NHWC":
        rest = dict(**window, padding=b"SAME")
        (_, argmax), _ = by_kernel("MaxPoolWithArgmax", [], [x], {**rest, "Targmax": dtypes.int64})
        compare("MaxPoolGradGradWithArgmax", [], [x, random(*x.shape), argmax], **rest)


@pytest.mark.parametrize("fmt", ["NDHWC", "NCDHW"])
def test_pools_in_three_dimensions(fmt):
    x = np.random.default_rng(3).permutation(360).reshape(1, 4, 5, 6, 3).astype(np.float32)
    x = x if fmt == "NDHWC" else np.ascontiguousarray(x.transpose(0, 4, 1, 2, 3))
    window = dict(zip(("ksize", "strides"), ([1, 2, 1, 3, 1], [1, 1, 2, 2, 1]) if fmt == "NDHWC" else ([1, 1, 2, 1, 3], [1, 1, 1, 2, 2])))
    attrs = dict(**window, padding=b"SAME", data_format=fmt)
    (y,), _ = by_kernel("MaxPool3D", [], [x], attrs)
    compare("MaxPool3D", [], [x], **attrs)
    compare("MaxPool3DGrad", [], [x, y, random(*y.shape)], rtol=1e-5, **attrs)
    compare("MaxPool3DGradGrad", [], [x, y, random(*x.shape)], **attrs)


def test_numbers_win_against_nans_in_a_maximum():
    x = np.array([np.nan, 1, np.nan, np.nan, -np.inf, -np.inf], np.float32).reshape(1, 1, 6, 1)
    compare("MaxPool", [], [x], ksize=[1, 1, 2, 1], strides=[1, 1, 2, 1], padding=b"VALID")


def test_labels_outside_of_the_classes_are_nan():
    labels = np.array([1, -1, 3], np.int64)
    (loss, backprop), _ = by_rule("SparseSoftmaxCrossEntropyWithLogits", [], [random(3, 3), labels], {})
    assert np.isnan(loss).tolist() == [False, True, True]
    assert np.isnan(backprop).all(axis=1).tolist() == [False, True, True]


def test_quantisation_of_the_first_kind():
    compare("QuantizeAndDequantize", [], [random(4, 3)])
    compare("QuantizeAndDequantize", [], [np.array([3.0, np.nan, -2.0, 0.3], np.float32)])
    compare("QuantizeAndDequantize", [], [random(4, 3)], range_given=True, input_min=-0.5, input_max=0.75, num_bits=4)
    with pytest.raises(Unsupported):
        by_rule("QuantizeAndDequantize", [], [random(4)], {"range_given": True, "input_min": 1.0, "input_max": 0.0})


def test_batch_norm_with_fixed_statistics():
    vectors = [random(3, seed=i, low=0.5) for i in range(4)]
    found, _ = by_rule("FusedBatchNormV3", [], [random(2, 4, 5, 3), *vectors], {"is_training": False})
    want, _ = by_kernel("FusedBatchNormV3", [], [random(2, 4, 5, 3), *vectors], {"is_training": False})
    agree(found, want, 1e-5)
