"""Every declared gradient against finite differences, on the op's own samples in double precision."""

import numpy as np
import pytest

import penstock as tf
from penstock import dtypes
from penstock.backprop.check import directional_error
from penstock.graph.opdef import MISSING, OPS
from penstock.ops.cases import cases, sampled_ops
from penstock.ops.declare import NOT_DIFFERENTIABLE

# Ops whose gradient is, by TF's definition, not the derivative of what they compute.
NOT_THE_DERIVATIVE = {
    "FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel", "QuantizeAndDequantize", "QuantizeAndDequantizeV2",
    "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4", "CheckNumerics", "PreventGradient", "Round", "Rint", "Floor", "Ceil", "Sign",
    "FractionalMaxPool", "FractionalAvgPool", "DynamicStitch", "ParallelDynamicStitch", "MaxPoolGrad", "MaxPoolGradV2",
    "Cholesky", "CholeskyGrad", "SelfAdjointEigV2", "BatchCholesky",  # right for symmetric changes of a symmetric matrix
    "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits",  # their second result has no gradient
}  # fmt: skip

# Samples where the derivative is a matter of definition: min above max, zero times infinity.
EDGES = {("ClipByValue", 4), ("Xlog1py", 1), ("Xlogy", 1)}

# Random kernels draw anew in every run.
RANDOM = {name for name in OPS if "Random" in name or "Dropout" in name}


def differentiable():
    for op in sampled_ops():
        has_rule = op.gradient is not MISSING and op.gradient is not NOT_DIFFERENTIABLE
        if has_rule and not op.stateful and op.name not in NOT_THE_DERIVATIVE | RANDOM:
            yield op.name


def wide(case):
    """The case's inputs with floats as float64 and complex numbers as complex128; None if the op does not take those."""

    def convert(array):
        kind = np.asarray(array).dtype
        if kind.hasobject or kind.kind in "iub":
            return array
        return np.asarray(array).astype(np.complex128 if kind.kind == "c" else np.float64)

    for arg in case.opdef.inputs:
        if arg.type_attr:
            allowed = case.opdef.attrs[arg.type_attr].allowed
            if arg.type_attr in case.attrs or (allowed is not None and dtypes.float64 not in allowed and arg.dtype is None):
                return None
        elif arg.dtype is not None and arg.dtype.is_floating and arg.dtype != dtypes.float64:
            return None
    return {k: [convert(v) for v in value] if isinstance(value, list) else convert(value) for k, value in case.inputs.items()}


def sources(case, inputs):
    """(arguments for the raw op, placeholders of numbers, their values)."""
    args, xs, values = [], [], []
    for arg in case.opdef.inputs:
        items = inputs[arg.name] if arg.is_list else [inputs[arg.name]]
        made = []
        for array in items:
            array = np.asarray(array)
            if array.dtype.hasobject or array.dtype.kind in "iub":
                made.append(tf.constant(array) if arg.dtype is None else tf.constant(array, arg.dtype))
            else:
                tensor = tf.placeholder(dtypes.from_np(array.dtype), array.shape)
                xs.append(tensor)
                values.append(array)
                made.append(tensor)
        args.append(made if arg.is_list else made[0])
    return args, xs, values


@pytest.mark.parametrize("name", list(differentiable()))
def test_gradient(name):
    checked = 0
    for case in cases(OPS[name]):
        inputs = wide(case)
        if inputs is None or (name, case.index) in EDGES:
            continue
        with tf.Graph().as_default():
            args, xs, values = sources(case, inputs)
            if not xs:
                continue
            result = getattr(tf.raw_ops, name)(*args, **case.attrs)
            outputs = result.op.outputs if isinstance(result, tf.Tensor) else [t for r in result for t in (r if isinstance(r, list) else [r])]
            ys = [t for t in outputs if t.dtype in (dtypes.float64, dtypes.complex128)]
            if not ys:
                continue
            with tf.Session() as session:
                results = session.run(ys, dict(zip(xs, values, strict=True)))
                if not all(np.isfinite(r).all() for r in results):
                    continue  # at a pole, differences say nothing
                try:
                    error = directional_error(session, ys, xs, values)
                except (tf.errors.UnimplementedError, NotImplementedError):
                    continue  # as in TF, some settings have no gradient kernel
                except ValueError as refusal:
                    if "Gradient not defined" not in str(refusal):
                        raise
                    continue
        assert error < 1e-5, f"{case}: relative error {error}"
        checked += 1
    if not checked:
        pytest.skip("no sample in double precision")
