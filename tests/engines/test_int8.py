"""Quantised products on oneDNN: the same whole numbers as NumPy's kernels, and only where it is offered."""

import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import int8
from penstock.engines.onednn import library as lib
from penstock.ops.kernels import quantized_products

library = lib.get()
pytestmark = pytest.mark.skipif(library is None or not library.has_bf16, reason="needs oneDNN and VNNI")


def operands(first, second, signed):
    random = np.random.default_rng(0)
    x = random.integers(0, 256, first).astype(np.uint8)
    w = random.integers(-128, 128, second).astype(np.int8) if signed else random.integers(0, 256, second).astype(np.uint8)
    # The largest sums.
    x[0], w[..., 0] = 255, 127 if signed else 255
    return x, w


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("zero_x", "zero_w"), [(0, 0), (96, 128), (-255, 300)])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(64, 512, 256), (8, 70000, 16)])
def test_matmul(rows, inner, columns, zero_x, zero_w, signed):
    x, w = operands((rows, inner), (inner, columns), signed)
    products = int8.Products(library, "node")
    expected = quantized_products.int_matmul(x, w, zero_x, zero_w)
    for _ in range(2):  # the second one with weights that are laid out already
        np.testing.assert_array_equal(products._matmul(x, w, zero_x, zero_w), expected)
    across = [np.ascontiguousarray(v.T).T for v in (x, w)]
    np.testing.assert_array_equal(int8.Products(library, "node")._matmul(*across, zero_x, zero_w), expected)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("zero_x", "zero_w"), [(0, 0), (96, 128), (0, -7)])
@pytest.mark.parametrize(("padding", "stride", "dilation", "depth"), [(b"SAME", 1, 1, 64), (b"SAME", 2, 1, 33), (b"VALID", 1, 2, 8), (b"SAME", 1, 1, 400)])
def test_conv2d(padding, stride, dilation, depth, zero_x, zero_w, signed, monkeypatch):
    monkeypatch.setattr(int8, "MIN_FLOPS", 0)
    x, w = operands((2, 16, 15, depth), (3, 3, depth, 24), signed)
    attrs = dict(strides=[1, stride, stride, 1], padding=padding, dilations=[1, dilation, dilation, 1])
    products = int8.Products(library, "node")
    expected = quantized_products.int_conv2d(x, w, zero_x, zero_w, **attrs)
    for _ in range(2):
        np.testing.assert_array_equal(products._conv2d(x, w, zero_x, zero_w, **attrs, depthwise_=False), expected)


def test_depthwise():
    x, w = operands((2, 28, 28, 128), (3, 3, 128, 1), True)
    attrs = dict(strides=[1, 1, 1, 1], padding=b"SAME", dilations=[1, 1, 1, 1], depthwise_=True)
    found = int8.Products(library, "node")._conv2d(x, w, 0, 0, **attrs)
    np.testing.assert_array_equal(found, quantized_products.int_conv2d(x, w, 0, 0, **attrs))


def test_a_zero_outside_of_the_bytes_is_numpys():
    x, w = operands((1, 32, 32, 32), (3, 3, 32, 32), False)
    attrs = dict(strides=[1, 1, 1, 1], padding=b"SAME", dilations=[1, 1, 1, 1])
    products = int8.Products(library, "node")
    assert products._conv2d(x, w, 300, 0, **attrs, depthwise_=False) is None
    np.testing.assert_array_equal(products.conv2d(x, w, 300, 0, **attrs), quantized_products.int_conv2d(x, w, 300, 0, **attrs))


@pytest.mark.parametrize("is_constant", [True, False])
def test_sessions_use_it(is_constant, monkeypatch):
    x, w = operands((64, 512), (512, 256), False)
    calls, layouts = [], []
    real, lay_out = int8.ByteMatMul.run, int8._signed
    monkeypatch.setattr(int8.ByteMatMul, "run", lambda self, *args: calls.append(1) or real(self, *args))
    monkeypatch.setattr(int8, "_signed", lambda w: layouts.append(1) or lay_out(w))
    with tf.Graph().as_default():
        constant = tf.import_graph_def(_const_graph(w), return_elements=["w:0"], name="")[0]
        weights = constant if is_constant else tf.placeholder_with_default(constant, w.shape)
        image = tf.placeholder(tf.quint8, x.shape)
        out = tf.raw_ops.QuantizedMatMul(a=image, b=weights, min_a=-3.0, max_a=5.0, min_b=-1.0, max_b=1.0)
        with tf.Session() as sess:
            for _ in range(3):
                np.testing.assert_array_equal(sess.run(out, {image: x})[0], quantized_products.int_matmul(x, w, 96, 128))
            if not is_constant:
                other = w ^ np.uint8(255)
                np.testing.assert_array_equal(sess.run(out, {image: x, weights: other})[0], quantized_products.int_matmul(x, other, 96, 128))
    assert len(calls) == (3 if is_constant else 4)
    assert len(layouts) <= 2 if is_constant else len(layouts) == 4  # a node may be bound twice


def test_few_rows_of_changing_weights_are_numpys():
    x, w = operands((4, 512), (512, 512), False)
    assert int8.Products(library, "node", is_constant=False)._matmul(x, w, 0, 0) is None
    assert int8.Products(library, "node")._matmul(x, w, 0, 0) is not None


@pytest.mark.parametrize("name", ["QuantizedConv2DPerChannel", "QuantizedConv2DWithBiasSumAndRelu", "QuantizedConv2DWithBiasSumAndReluAndRequantize",
                                  "QuantizedConv2DWithBiasSignedSumAndReluAndRequantize", "QuantizedMatMulWithBiasAndDequantize"])  # fmt: skip
def test_forms_are_numpys(name, monkeypatch):
    """Samples of each form, with oneDNN's product and with NumPy's."""
    from penstock.graph.opdef import OPS
    from penstock.ops.cases import cases

    monkeypatch.setattr(int8, "MIN_FLOPS", 0)
    for case in cases(OPS[name]):
        results = []
        for engines in ("onednn", "numpy"):
            monkeypatch.setenv("PENSTOCK_ENGINES", engines)
            with tf.Graph().as_default():
                feeds = {}
                for arg in case.opdef.inputs:
                    feeds[arg.name] = tf.placeholder(arg.dtype or case.attrs[arg.type_attr], np.shape(case.inputs[arg.name]))
                inferred = {arg.type_attr for arg in case.opdef.inputs}
                out = getattr(tf.raw_ops, name)(**feeds, **{k: v for k, v in case.attrs.items() if k not in inferred})
                with tf.Session() as sess:
                    results.append(sess.run(out, {feeds[k]: v for k, v in case.inputs.items()}))
        for mine, plain in zip(*(r if isinstance(r, tuple) else (r,) for r in results), strict=True):
            np.testing.assert_array_equal(mine, plain)


def _const_graph(array):
    graph = tf.GraphDef()
    node = graph.node.add(name="w", op="Const")
    node.attr["dtype"].type = tf.quint8.as_datatype_enum
    proto = tf.make_tensor_proto(array)
    proto.dtype = tf.quint8.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(proto)
    return graph
