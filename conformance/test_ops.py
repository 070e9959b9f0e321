"""Every sample of every op against TensorFlow's own kernel: values, types and error classes."""

import numpy as np
import pytest

import penstock
from penstock import dtypes
from penstock.graph.opdef import OPS
from penstock.graph.raw import PYTHON_NAMES
from penstock.ops.cases import cases, errors_of, expand, programs, sampled_ops

tensorflow = pytest.importorskip("tensorflow")
tf1 = tensorflow.compat.v1
tf1.disable_v2_behavior()

# What counts as equal, by type: (relative, absolute). TF's vectorised float functions are a few ulps off the true value.
TOLERANCE = {
    "float16": (2e-2, 2e-3), "bfloat16": (4e-2, 2e-2), "float32": (2e-5, 2e-6), "float64": (1e-10, 1e-12),
    "complex64": (5e-5, 5e-6), "complex128": (1e-10, 1e-12),
}  # fmt: skip

# Ops whose results are not determined by their inputs, or which only make sense inside a program.
RANDOM = {name for name in OPS if "Random" in name or name in ("Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal")} - {
    name for name in OPS if name.startswith("Stateless")
}


def run(tf, case):
    """The op on placeholders in a fresh graph: list of values."""
    with tf.Graph().as_default():
        feeds = {}

        def placeholder(arg, array):
            dtype = arg.dtype.name if arg.dtype is not None else dtypes.from_np(array.dtype).name
            if arg.type_attr in case.attrs:
                dtype = dtypes.as_dtype(case.attrs[arg.type_attr]).name
            tensor = tf.placeholder(dtype, array.shape)
            feeds[tensor] = array
            return tensor

        keywords = {}
        for arg in case.opdef.inputs:
            value = case.inputs[arg.name]
            keywords[arg.name] = [placeholder(arg, v) for v in value] if arg.is_list else placeholder(arg, value)
        inferred = {a for arg in case.opdef.inputs for a in (arg.type_attr, arg.list_attr, arg.number_attr)}
        keywords.update({k: _plain(v) for k, v in case.attrs.items() if k not in inferred})
        op = _operation(apply(tf, case.opdef.name, keywords))
        # TensorFlow's graph optimizer has bugs of its own (it folds FusedBatchNorm into one constant): compare kernels, not optimizers.
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.Session(config=config) as sess:
            return [v for v in sess.run(list(op.outputs) or op, feeds) or []]


def apply(tf, name, keywords):
    """The op by the names of its signature; TensorFlow's raw_ops rename some."""
    renamed = PYTHON_NAMES.get(name, {})
    return getattr(tf.raw_ops, name)(**{renamed.get(key, key): value for key, value in keywords.items()})


def _plain(value):
    """Attributes in a form that both packages take."""
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dtypes.DType):
        return value.name
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, penstock.TensorShape):
        return None if value.ndims is None else value.as_list()
    return value


def _operation(result):
    while not hasattr(result, "outputs"):
        result = result.op if hasattr(result, "op") else result[0]
    return result


def same(ours, theirs, what):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.dtype == object or theirs.dtype == object or theirs.dtype.kind in "SU":
        assert ours.tolist() == theirs.tolist(), what
        return
    assert ours.dtype == theirs.dtype, f"{what}: {ours.dtype} is not {theirs.dtype}"
    assert ours.shape == theirs.shape, f"{what}: {ours.shape} is not {theirs.shape}"
    relative, absolute = TOLERANCE.get(str(ours.dtype), (0, 0))
    if ours.dtype.kind in "biu":
        np.testing.assert_array_equal(ours, theirs, err_msg=what)
    else:
        wide = np.complex128 if ours.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), relative, absolute, err_msg=what)


def compare(ours, theirs, what):
    """Compares nested results."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), what
        for key in theirs:
            compare(ours[key], theirs[key], f"{what}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), what
        for i, (a, b) in enumerate(zip(ours, theirs)):
            compare(a, b, f"{what}[{i}]")
    elif theirs is None or isinstance(theirs, (str, bytes, int, bool)):
        assert ours == theirs, what
    else:
        same(ours, theirs, what)


NO_KERNEL = ("No OpKernel was registered", "could not find valid kernel", "no supported kernel", "Could not find device for node", "has no kernel", "is not available in GraphDef version", "Missing 0-th output", "filter must be a constant")


def outcome(tf, case):
    """("value", list) or ("error", class name, text)."""
    try:
        return "value", run(tf, case), ""
    except Exception as error:
        return "error", type(error).__name__, str(error)


@pytest.mark.parametrize("name", [op.name for op in sampled_ops() if op.name not in RANDOM])
def test_samples_equal_tensorflow(name):
    opdef = OPS[name]
    if not hasattr(tensorflow.raw_ops, name) and not programs(opdef):
        pytest.skip("TensorFlow offers no raw op of this name")
    failures = []
    compared = 0
    for case in cases(opdef, every_type=True):
        theirs = outcome(tf1, case)
        if theirs[0] == "error" and any(text in theirs[2] for text in NO_KERNEL):
            continue  # the type is in the signature but TensorFlow has no CPU kernel for it, or the op is gone from new graphs
        ours = outcome(penstock, case)
        compared += 1
        try:
            assert ours[0] == theirs[0], f"{case}: ours {ours[:2]} {ours[2][:300]}, TensorFlow's {theirs[:2]} {theirs[2][:300]}"
            if ours[0] == "value":
                compare(ours[1], theirs[1], repr(case))
            else:
                assert ours[1] == theirs[1], f"{case}: {ours[1]} is not TensorFlow's {theirs[1]}: {theirs[2][:200]}"
        except AssertionError as error:
            failures.append(str(error))
    for number, program in enumerate(programs(opdef)):
        compared += 1
        compare(run_program(penstock, program), run_program(tf1, program), f"{name} program {number}")
    assert not failures, f"{len(failures)} of {compared} cases differ:\n" + "\n".join(f[:700] for f in failures[:4])
    if not compared:
        pytest.skip("TensorFlow has no CPU kernel for any sample's type")


def run_program(tf, program):
    with tf.Graph().as_default():
        fetches = program.fn(tf)
        with tf.Session() as sess:
            if isinstance(fetches, dict) and "init" in fetches:
                sess.run(fetches.pop("init"))
            return [sess.run(fetches) for _ in range(program.runs)]


@pytest.mark.parametrize("name", sorted(n for n, op in OPS.items() if op.errors))
def test_errors_equal_tensorflow(name):
    for index, (sample, _, _) in enumerate(errors_of(OPS[name])):
        for case in expand(OPS[name], index, sample):
            theirs = outcome(tf1, case)
            if any(text in theirs[2] for text in NO_KERNEL):
                continue
            ours = outcome(penstock, case)
            assert ours[0] == theirs[0] == "error", f"{case}: ours {ours}, TensorFlow's {theirs}"
            assert ours[1] == theirs[1], f"{case}: ours {ours[1]} ({ours[2][:200]}), TensorFlow's {theirs[1]} ({theirs[2][:200]})"


# -- signatures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(n for n in OPS if not n.startswith("_")))
def test_signature_equals_tensorflows(name):
    from tensorflow.python.framework import op_def_registry

    from penstock.graph.function import opdef_to_proto

    theirs = op_def_registry.get(name)
    if theirs is None:
        pytest.fail(f"TensorFlow has no op {name}")
    ours = opdef_to_proto(OPS[name])
    for kind in ("input_arg", "output_arg"):
        mine = [(a.name, a.type, a.type_attr, a.number_attr, a.type_list_attr, a.is_ref) for a in getattr(ours, kind)]
        its = [(a.name, a.type, a.type_attr, a.number_attr, a.type_list_attr, a.is_ref) for a in getattr(theirs, kind)]
        assert mine == its, kind
    mine = {a.name: a for a in ours.attr}
    its = {a.name: a for a in theirs.attr}
    assert set(mine) == set(its)
    for key in its:
        assert mine[key].type == its[key].type, key
        assert mine[key].HasField("default_value") == its[key].HasField("default_value"), key
        assert mine[key].default_value.SerializeToString(deterministic=True) == its[key].default_value.SerializeToString(deterministic=True), key
        assert (mine[key].has_minimum, mine[key].minimum) == (its[key].has_minimum, its[key].minimum), key
        assert set(mine[key].allowed_values.list.type) == set(its[key].allowed_values.list.type), key
        assert set(mine[key].allowed_values.list.s) == set(its[key].allowed_values.list.s), key
    assert OPS[name].stateful == theirs.is_stateful
