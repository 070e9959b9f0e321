"""The fused quantised products against TensorFlow's oneDNN kernels, which want constant weights and oneDNN switched on.

TensorFlow reads the switch when it is imported, so the comparison runs in a process of its own.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tensorflow")


def test_fused_ops_equal_tensorflow():
    environment = dict(os.environ, TF_ENABLE_ONEDNN_OPTS="1", TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "18 ops" in done.stdout, done.stdout[-3000:]


def _constant(tf, array, dtype):
    """A Const node of a quantised type."""
    proto = tf.make_tensor_proto(array)
    proto.dtype = tf.as_dtype(dtype).as_datatype_enum
    type_ = tf.as_dtype(dtype)
    attrs = {"value": tf.AttrValue(tensor=proto), "dtype": tf.AttrValue(type=type_.as_datatype_enum)}
    return tf.get_default_graph().create_op("Const", [], [type_], attrs=attrs).outputs[0]


def _run(tf, case):
    with tf.Graph().as_default():
        keywords = {}
        for arg in case.opdef.inputs:
            value = case.inputs[arg.name]
            quantised = str(case.attrs.get(arg.type_attr, "")).startswith("q")
            keywords[arg.name] = _constant(tf, value, case.attrs[arg.type_attr]) if quantised else tf.constant(value)
        inferred = {arg.type_attr for arg in case.opdef.inputs}
        keywords.update({k: v for k, v in case.attrs.items() if k not in inferred})
        if case.opdef.name.startswith("QuantizedMatMul"):
            default = case.opdef.attrs["Toutput"].default
            keywords["Toutput"] = getattr(default, "name", "float32")
        with tf.Session() as session:
            result = session.run(getattr(tf.raw_ops, case.opdef.name)(**keywords))
            return result if isinstance(result, tuple) else [result]


def _compare_all():
    import tensorflow

    import penstock
    from penstock.graph.opdef import OPS
    from penstock.ops import quantized_fused  # noqa: F401
    from penstock.ops.cases import cases

    tf1 = tensorflow.compat.v1
    tf1.disable_v2_behavior()
    names = [n for n in OPS if n.startswith(("QuantizedConv2D", "QuantizedDepthwiseConv2D", "QuantizedMatMulWithBias")) and n != "QuantizedConv2D"]
    # TensorFlow 2.21 ends with a segmentation fault in the forms that add a summand.
    names = [n for n in names if "Sum" not in n]
    for name in sorted(names):
        for case in cases(OPS[name]):
            for i, (mine, its) in enumerate(zip(_run(penstock, case), _run(tf1, case), strict=True)):
                np.testing.assert_array_equal(mine, its, err_msg=f"{case} output {i}")
                assert np.asarray(mine).dtype == np.asarray(its).dtype, case
    _compare_mixed(tf1, penstock)
    _compare_channels(tf1, penstock)
    print(len(names) + 1, "ops")


def _compare_mixed(tf1, penstock):
    """QuantizedConv2D on unsigned images and signed weights."""
    random = np.random.default_rng(0)
    image, weights = random.integers(0, 256, (2, 6, 7, 3)).astype(np.uint8), random.integers(-127, 128, (3, 3, 3, 4)).astype(np.int8)
    results = []
    for tf in (penstock, tf1):
        with tf.Graph().as_default():
            result = tf.raw_ops.QuantizedConv2D(
                input=_constant(tf, image, "quint8"), filter=_constant(tf, weights, "qint8"), min_input=tf.constant(0.0), max_input=tf.constant(6.0),
                min_filter=tf.constant(-0.7), max_filter=tf.constant(0.9), strides=[1, 1, 1, 1], padding="SAME",
            )  # fmt: skip
            with tf.Session() as session:
                results.append(session.run(result))
    for mine, its in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, its)


def _compare_channels(tf1, penstock):
    """Ranges of the filter for each channel."""
    random = np.random.default_rng(1)
    image, weights = random.integers(0, 256, (2, 6, 7, 3)).astype(np.uint8), random.integers(-127, 128, (3, 3, 3, 4)).astype(np.int8)
    reach = np.array([0.5, 0.9, 0.2, 0.7], np.float32)
    for name, more in (
        ("QuantizedConv2DPerChannel", {}), ("QuantizedConv2DWithBias", dict(bias=[0.5, -1.0, 2.0, 9.0])), ("QuantizedConv2DWithBiasAndRelu", dict(bias=[0.5, -1.0, 2.0, 9.0])),
        ("QuantizedConv2DAndRelu", {}),
    ):  # fmt: skip
        results = []
        for tf in (penstock, tf1):
            with tf.Graph().as_default():
                result = getattr(tf.raw_ops, name)(
                    input=_constant(tf, image, "quint8"), filter=_constant(tf, weights, "qint8"), min_input=tf.constant(0.0), max_input=tf.constant(6.0),
                    min_filter=tf.constant(-reach), max_filter=tf.constant(reach * 0.5), strides=[1, 1, 1, 1], padding="SAME", **{k: tf.constant(v) for k, v in more.items()},
                )  # fmt: skip
                with tf.Session() as session:
                    results.append(session.run(result))
        for mine, its in zip(*results, strict=True):
            np.testing.assert_array_equal(mine, its, err_msg=name)


if __name__ == "__main__":
    _compare_all()
