"""Tests that write themselves: every sample of every declared op runs, and keeps what its declaration says.

Checked for each sample: the result's type is the declared one, its shape fits the shape rule's answer, and a second run with unknown
static shapes gives the same values. Declared errors are raised.
"""

import numpy as np
import pytest

import penstock as tf
from penstock import dtypes
from penstock.graph.opdef import OPS
from penstock.ops.cases import cases, errors_of, expand, programs, sampled_ops
from penstock.shapes import compatible_dims

SAMPLED = [op.name for op in sampled_ops()]
WITH_ERRORS = sorted(name for name, op in OPS.items() if op.errors)


def build(case, known_shapes=True):
    """The op on placeholders of the case's inputs: (operation, feeds)."""
    feeds = {}

    def placeholder(arg, array):
        dtype = arg.dtype or dtypes.from_np(array.dtype)
        if arg.type_attr in case.attrs:
            dtype = dtypes.as_dtype(case.attrs[arg.type_attr])
        tensor = tf.placeholder(dtype, array.shape if known_shapes else None)
        feeds[tensor] = array
        return tensor

    args = []
    for arg in case.opdef.inputs:
        value = case.inputs[arg.name]
        args.append([placeholder(arg, v) for v in value] if arg.is_list else placeholder(arg, value))
    result = getattr(tf.raw_ops, case.opdef.name)(*args, **case.attrs)
    op = result if isinstance(result, tf.Operation) else _first(result).op
    return op, feeds


def _first(result):
    while not isinstance(result, tf.Tensor):
        result = result[0]
    return result


def run(case, known_shapes=True):
    with tf.Graph().as_default():
        op, feeds = build(case, known_shapes)
        with tf.Session() as sess:
            fetches = op.outputs or op
            return op, sess.run(fetches, feeds) or []


@pytest.mark.parametrize("name", SAMPLED)
def test_samples(name):
    for case in cases(OPS[name]):
        op, values = run(case)
        for tensor, value in zip(op.outputs, values):
            if tensor.dtype in (dtypes.resource, dtypes.variant, dtypes.string):
                continue
            assert np.asarray(value).dtype == tensor.dtype.np, f"{case}: output {tensor.value_index}"
            assert compatible_dims(tensor.dims, np.shape(value)), f"{case}: rule said {tensor.dims}, result is {np.shape(value)}"
        if not op.op_def.stateful:
            _, again = run(case, known_shapes=False)
            for first, second in zip(values, again):
                np.testing.assert_array_equal(np.asarray(first), np.asarray(second), err_msg=str(case))
    for program in programs(OPS[name]):
        with tf.Graph().as_default():
            fetches = program.fn(tf)
            with tf.Session() as sess:
                if isinstance(fetches, dict) and "init" in fetches:
                    sess.run(fetches["init"])
                for _ in range(program.runs):
                    sess.run(fetches)


@pytest.mark.parametrize("name", WITH_ERRORS)
def test_declared_errors(name):
    for index, (sample, error, match) in enumerate(errors_of(OPS[name])):
        for case in expand(OPS[name], index, sample):
            with pytest.raises((error, ValueError)):  # with known shapes the shape rule may refuse it first, in its own words
                run(case)
            with pytest.raises(error, match=match):
                run(case, known_shapes=False)


@pytest.mark.parametrize(
    "name",
    ["Lu", "MatrixInverse", "ScatterNd", "SparseSoftmaxCrossEntropyWithLogits", "SparseTensorDenseAdd", "TensorScatterAdd", "TensorScatterMax", "TensorScatterUpdate"],
)
def test_inputs_in_another_order_give_the_same_and_stay_as_they_are(name):
    for case in cases(OPS[name]):
        _, expected = run(case)
        with tf.Graph().as_default():
            op, feeds = build(case)
            feeds = {tensor: np.array(value, order="F") for tensor, value in feeds.items()}
            before = {tensor: value.copy() for tensor, value in feeds.items()}
            with tf.Session() as sess:
                values = sess.run(op.outputs, feeds)
        for value, other in zip(values, expected, strict=True):
            if value.dtype == object:
                np.testing.assert_array_equal(value, other, err_msg=str(case))
            else:
                np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6, err_msg=str(case))
        for tensor, value in feeds.items():
            np.testing.assert_array_equal(value, before[tensor])
