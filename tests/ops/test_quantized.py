"""Quantised ops: what the samples do not say (round trips, exactness of large sums, shapes, the public names)."""

import numpy as np
import pytest

import penstock as tf
from penstock.ops.kernels import quantized, quantized_products


def run(build):
    with tf.Graph().as_default():
        fetches = build()
        with tf.Session() as sess:
            return sess.run(fetches)


def quantised(array, dtype):
    return tf.bitcast(tf.constant(array), dtype)


@pytest.mark.parametrize("mode", ["MIN_COMBINED", "MIN_FIRST", "SCALED"])
@pytest.mark.parametrize("dtype", [tf.quint8, tf.qint8, tf.qint16, tf.quint16])
def test_round_trip_is_within_a_step(mode, dtype):
    x = np.linspace(0, 5, 101).astype(np.float32)

    def build():
        y, low, high = tf.quantize(x, -1.0, 5.0, dtype, mode=mode)
        return y, tf.dequantize(y, low, high, mode=mode)

    steps, back = run(build)
    assert steps.dtype == dtype.as_numpy_dtype or steps.dtype.itemsize == dtype.size
    np.testing.assert_allclose(back, x, atol=1.01 * 10 / 255)


def test_known_values():
    def build():
        x = tf.constant([-1.0, 0.0, 0.5, 1.0, 2.0])
        return [tf.quantize(x, 0.0, 1.0, tf.quint8)[0], tf.quantize(x, -1.0, 1.0, tf.qint8, mode="SCALED")[0], tf.quantize(x, -1.0, 1.0, tf.qint8, mode="SCALED", round_mode="HALF_TO_EVEN")[0]]

    unsigned, away, even = run(build)
    assert unsigned.tolist() == [0, 0, 128, 255, 255]
    assert away.tolist() == [-127, 0, 64, 127, 127]
    assert even.tolist() == [-127, 0, 64, 127, 127]


def test_quantize_v2_and_axis():
    x = np.array([[1.0, 2.0], [10.0, 20.0]], np.float32)
    output, low, high = run(lambda: tf.quantize_v2(x, [0.0, 0.0], [2.0, 20.0], tf.quint8, axis=0))
    assert output.tolist() == [[128, 255], [128, 255]]
    assert (low.tolist(), high.tolist()) == ([0, 0], [2, 20])
    again = run(lambda: tf.quantize(tf.constant(x), [0.0, 0.0], [2.0, 20.0], tf.quint8, axis=-2))[0]
    assert again.tolist() == output.tolist()


@pytest.mark.parametrize("inner", [3, 300, 70000])
def test_matmul_is_exact(inner):
    random = np.random.default_rng(0)
    a, b = random.integers(0, 256, (3, inner)).astype(np.uint8), random.integers(0, 256, (inner, 2)).astype(np.uint8)
    a[0], b[:, 0] = 255, 255
    zero_a, zero_b = quantized.zero_step(np.float32(-3), np.float32(5), np.uint8), quantized.zero_step(np.float32(1), np.float32(2), np.uint8)
    assert (zero_a, zero_b) == (96, -255)

    def build():
        return tf.raw_ops.QuantizedMatMul(a=quantised(a, tf.quint8), b=quantised(b, tf.quint8), min_a=-3.0, max_a=5.0, min_b=1.0, max_b=2.0)

    out = run(build)[0]
    expected = (a.astype(np.int64) - zero_a) @ (b.astype(np.int64) - zero_b)
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, expected.astype(np.int32))


def test_the_type_of_a_product_is_wide_enough():
    byte = (np.uint8, 0)
    assert quantized_products.exact_type(258, byte, byte) is np.float32
    assert quantized_products.exact_type(259, byte, byte) is np.float64
    assert quantized_products.exact_type(1 << 38, byte, byte) is np.int64


@pytest.mark.parametrize(("padding", "strides"), [("SAME", [1, 1, 1, 1]), ("VALID", [1, 2, 2, 1])])
def test_conv2d_equals_the_convolution_of_shifted_integers(padding, strides):
    random = np.random.default_rng(1)
    x, w = random.integers(0, 256, (2, 6, 7, 3)).astype(np.uint8), random.integers(0, 256, (3, 3, 3, 4)).astype(np.uint8)

    def build():
        ours = tf.nn.quantized_conv2d(quantised(x, tf.quint8), quantised(w, tf.quint8), -3.0, 5.0, -1.0, 1.0, strides, padding)
        zero_w = quantized.zero_step(np.float32(-1), np.float32(1), np.uint8)
        plain = tf.nn.conv2d(tf.constant(x.astype(np.float64) - 96), tf.constant(w.astype(np.float64) - zero_w), strides=strides, padding=padding)
        return ours, plain

    (out, low, high), plain = run(build)
    np.testing.assert_array_equal(out, plain.astype(np.int32))
    assert -low == high


def test_mixed_products_take_zero_as_zero():
    a, b = np.array([[1, 2, 255]], np.uint8), np.array([[-1], [3], [-127]], np.int8)

    def build(form, **attrs):
        more = dict(min_freezed_output=0.0, max_freezed_output=6.0) if "Requantize" in form else {}
        return getattr(tf.raw_ops, "QuantizedMatMulWithBias" + form)(
            a=quantised(a, tf.quint8), b=quantised(b, tf.qint8), bias=tf.constant([10.0]), min_a=0.0, max_a=6.0, min_b=-1.0, max_b=1.0, **more, **attrs
        )

    total = 1 * -1 + 2 * 3 - 255 * 127 + round(10 * 255 * 127 / 6)
    assert run(lambda: build(""))[0].tolist() == [[total]]
    assert run(lambda: build("AndRelu"))[0].tolist() == [[max(total, 0)]]
    assert run(lambda: build("AndReluAndRequantize"))[0].tolist() == [[round(total * 6 / (255 * 127) * 255 / 6)]]


def test_fused_products_say_what_they_cannot_do():
    def build():
        return tf.raw_ops.QuantizedMatMulWithBias(
            a=quantised(np.zeros((1, 2), np.uint8), tf.quint8), b=quantised(np.zeros((2, 1), np.int8), tf.qint8), bias=tf.constant([1.0]),
            min_a=-1.0, max_a=6.0, min_b=-1.0, max_b=1.0,
        )  # fmt: skip

    with pytest.raises(tf.errors.UnimplementedError, match="must start at 0"):
        run(build)


def test_add_broadcasts():
    x, y = np.arange(6, dtype=np.uint8).reshape(2, 3), np.array([[10], [20]], np.uint8)

    def build():
        z = tf.raw_ops.QuantizedAdd(x=quantised(x, tf.quint8), y=quantised(y, tf.quint8), min_x=0.0, max_x=255.0, min_y=0.0, max_y=255.0)
        return tf.dequantize(z[0], z[1], z[2], mode="MIN_FIRST")

    # The range is 2**14 times wider than the inputs': the sums are right to about a tenth.
    np.testing.assert_allclose(run(build), x.astype(np.float32) + y, atol=0.2)


def test_relu_x_and_pools():
    x = np.array([[0, 100, 200, 255]], np.uint8)
    assert run(lambda: tf.nn.quantized_relu_x(quantised(x, tf.quint8), 3.0, -1.0, 4.0))[0].tolist() == [[51, 100, 200, 204]]
    image = np.array([3, 4, 4, 4], np.uint8).reshape(1, 2, 2, 1)
    window = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    assert run(lambda: tf.nn.quantized_avg_pool(quantised(image, tf.quint8), 0.0, 1.0, **window))[0].ravel().tolist() == [3]
    assert run(lambda: tf.nn.quantized_max_pool(quantised(image, tf.quint8), 0.0, 1.0, **window))[0].ravel().tolist() == [4]


def test_concat_requantizes():
    one, two = np.array([255], np.uint8), np.array([255], np.uint8)
    output, low, high = run(lambda: tf.quantized_concat(0, [quantised(one, tf.quint8), quantised(two, tf.quint8)], [0.0, 0.0], [1.0, 2.0]))
    assert output.tolist() == [128, 255]
    assert (low, high) == (0, 2)


def test_static_shapes():
    with tf.Graph().as_default():
        image, weights = tf.placeholder(tf.quint8, [None, 8, 8, 3]), tf.placeholder(tf.quint8, [3, 3, 3, 5])
        out = tf.nn.quantized_conv2d(image, weights, 0.0, 1.0, 0.0, 1.0, [1, 2, 2, 1], "SAME")
        assert [t.shape.as_list() for t in out] == [[None, 4, 4, 5], [], []]
        assert [t.dtype for t in out] == [tf.qint32, tf.float32, tf.float32]
        with pytest.raises(ValueError, match="axis should be at least -1"):
            tf.raw_ops.QuantizeV2(input=tf.placeholder(tf.float32, [2]), min_range=0.0, max_range=1.0, T=tf.quint8, axis=-2)
        with pytest.raises(ValueError, match="rank 4"):
            tf.nn.quantized_max_pool(tf.placeholder(tf.quint8, [4, 4, 1]), 0.0, 1.0, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")


# -- forms that TensorFlow 2.21 cannot run (its kernels of sums end the process) ------------------------------------------


def convolved(name, **more):
    """One pixel, one channel: 10 steps of 6 / 255 times 20 steps of 0.5 / 127, with bias 0.25 and a summand."""
    image, weights = np.full((1, 1, 1, 1), 10, np.uint8), np.full((1, 1, 1, 1), 20, np.int8)
    return run(
        lambda: getattr(tf.raw_ops, name)(
            input=quantised(image, tf.quint8), filter=quantised(weights, tf.qint8), bias=[0.25], min_input=0.0, max_input=6.0, min_filter=-0.5, max_filter=0.5,
            strides=[1, 1, 1, 1], padding="SAME", **{k: v() if callable(v) else v for k, v in more.items()},
        )
    )  # fmt: skip


REAL = 10 * 6 / 255 * 20 * 0.5 / 127 + 0.25


def test_real_summands_are_added_in_steps_of_the_product():
    step = 6 / 255 * 0.5 / 127
    for summand in (1.5, -3.0):
        output, low, high = convolved("QuantizedConv2DWithBiasSumAndRelu", summand=np.full((1, 1, 1, 1), summand, np.float32))
        assert output.ravel().tolist() == [max(0, round(REAL / step) + round(summand / step))]
        assert high == -low


def test_quantised_summands_are_added_before_rounding():
    frozen = dict(min_freezed_output=0.0, max_freezed_output=5.1)
    steps = np.full((1, 1, 1, 1), 100, np.uint8)
    output, low, high = convolved("QuantizedConv2DWithBiasSumAndReluAndRequantize", summand=lambda: quantised(steps, tf.quint8), min_summand=0.0, max_summand=2.0, **frozen)
    assert output.ravel().tolist() == [round((REAL + 100 * 2.0 / 255) / 0.02)]
    assert (low, high) == (0.0, np.float32(5.1))
    steps = np.full((1, 1, 1, 1), -10, np.int8)
    output, _, _ = convolved("QuantizedConv2DWithBiasSignedSumAndReluAndRequantize", summand=lambda: quantised(steps, tf.qint8), min_summand=-2.0, max_summand=1.0, **frozen)
    assert output.ravel().tolist() == [round((REAL - 10 * 2.0 / 127) / 0.02)]


WHOLE = [tf.quint8, tf.qint8, tf.quint16, tf.qint16, tf.qint32]
AWKWARD = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 3e38, -3e38, 2**31, -(2**31), 0.5, -0.5, 1.5, 2.5, -2.5])


def by_both(monkeypatch, compute):
    """What machine code gives, which must be there, and what NumPy does."""
    found = compute()
    with monkeypatch.context() as patched:
        patched.setenv("PENSTOCK_ENGINES", "numpy")
        return found, compute()


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("mode", [b"MIN_COMBINED", b"MIN_FIRST", b"SCALED"])
def test_machine_code_gives_numpys_steps(monkeypatch, kind, mode):
    random = np.random.default_rng(0)
    for size, low, high in ((64, -1, 1), (1001, -3, 3.5), (5000, 0, 200), (333, -0.1, 1e-3), (70, -1e30, 3e38), (70, 0.0, 0.0), (90, -2.0, np.nan)):
        near = np.linspace(min(low, -1), 1 if high != high else max(high, 1), 257)  # many of them half way between two steps
        x = np.concatenate([AWKWARD, near, random.normal(0, max(1e-3, abs(low)), size)]).astype(np.float32)[-max(size, 64) :]
        for value in (x, np.repeat(x, 2)[::2], np.asfortranarray(np.stack([x[:64], x[-64:]]))):
            for round_mode in (b"HALF_AWAY_FROM_ZERO", b"HALF_TO_EVEN") if mode == b"SCALED" else (b"HALF_AWAY_FROM_ZERO",):
                def steps(value=value, low=low, high=high, round_mode=round_mode):
                    return quantized.quantize_v2(value, np.float32(low), np.float32(high), T=kind, mode=mode, round_mode=round_mode, narrow_range=False, axis=-1, ensure_minimum_range=0.01)

                with np.errstate(all="ignore"):
                    for got, wanted in zip(*by_both(monkeypatch, steps), strict=True):
                        assert got.dtype == wanted.dtype
                        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("mode", [b"MIN_COMBINED", b"MIN_FIRST", b"SCALED"])
def test_machine_code_gives_numpys_numbers(monkeypatch, kind, mode):
    first, last = quantized.bounds(kind.np)
    x = np.random.default_rng(1).integers(first, last, 1003, endpoint=True).astype(kind.np)
    x[:2] = first, last
    for value in (x, x[1:].reshape(2, -1).T, x[::3]):
        for low, high in ((-1, 1), (0, 7), (-2, 1e9), (3, 3)):
            def numbers(value=value, low=low, high=high):
                return quantized.dequantize(value, np.float32(low), np.float32(high), mode=mode, narrow_range=False, axis=-1, dtype=quantized.dtypes.float32)

            got, wanted = by_both(monkeypatch, numbers)
            np.testing.assert_array_equal(got.view(np.int32), wanted.view(np.int32))
