"""Programs that TensorFlow 2 exports as graphs (`tf2_export.py` writes them)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

CASES: dict[str, Case] = {}


class Case:
    """`make(tf)` returns (function, example arguments). `grads`: the gradients of the first result's sum with respect to
    the floating arguments are compared as well. `variants` says in which forms the graph is exported."""

    def __init__(self, make: Callable[[Any], Any], grads: bool, variants: tuple[str, ...]) -> None:
        self.make = make
        self.grads = grads
        self.variants = variants


FUNCTIONAL = ("", "lowered")
"""For Case, which freezing always lowers."""


def case(grads: bool = False, variants: tuple[str, ...] = ("", "frozen", "lowered")) -> Callable[[Any], Any]:
    def register(make: Any) -> Any:
        CASES[make.__name__] = Case(make, grads, variants)
        return make

    return register


def names() -> list[str]:
    """Every case in each of its variants."""
    return [f"{name}.{variant}" if variant else name for name, c in CASES.items() for variant in c.variants]


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).normal(size=shape).astype(np.float32)


# -- calls ----------------------------------------------------------------------------------------------------------------


@case(grads=True)
def plain(tf):
    return lambda x, y: (tf.tanh(x) * y + tf.reduce_mean(x), tf.argmax(y, axis=1)), [rand(3, 4), rand(3, 4, seed=1)]


@case(grads=True)
def nested_calls(tf):
    @tf.function
    def inner(x):
        return tf.nn.relu(x) + 1.0, tf.reduce_sum(x, axis=0)

    @tf.function
    def middle(x, w):
        a, b = inner(tf.matmul(x, w))
        c, _ = inner(a * 2.0)
        return c, b

    return lambda x, w: middle(x, w)[0] + middle(x + 1.0, w)[1], [rand(3, 4), rand(4, 5)]


@case(grads=True)
def captured_constants(tf):
    weights = tf.constant(rand(4, 2))

    @tf.function
    def inner(x):
        return tf.sigmoid(tf.matmul(x, weights))

    return lambda x: inner(inner(x) @ tf.transpose(weights)), [rand(3, 4)]


@case()
def polymorphic(tf):
    @tf.function
    def double(x):
        return x + x

    return lambda a, b, c: (double(a), double(b), double(c)), [rand(2), np.int32([1, 2]), np.float64([[1.5]])]


@case()
def strings(tf):
    @tf.function
    def join(x):
        return tf.strings.join([x, tf.strings.upper(x)], separator="-")

    return lambda x: (join(x), tf.strings.length(x)), [np.array([b"ab", b"", "grün".encode()], dtype=object)]


@case()
def custom_gradient(tf):
    @tf.custom_gradient
    def clipped(x):
        return tf.clip_by_value(x, -1.0, 1.0), lambda dy: dy * 2.0

    return lambda x: tf.reduce_sum(clipped(x * 1.0) ** 2), [np.float32([-2.0, 0.3, 5.0])]


@case()
def asserted(tf):
    def f(x):
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x > -100.0), [x]), tf.debugging.assert_equal(tf.shape(x)[1] + tf.cast(x[0, 0] * 0.0, tf.int32), 3)]):
            return tf.identity(x) * 2.0

    return f, [rand(2, 3)]


# -- branches ---------------------------------------------------------------------------------------------------------------


@case(grads=True)
def cond_true(tf):
    return lambda p, x: tf.cond(p > 0, lambda: tf.sin(x) * 3.0, lambda: tf.cos(x)), [np.int32(1), rand(4)]


@case(grads=True)
def cond_false(tf):
    return lambda p, x: tf.cond(p > 0, lambda: tf.sin(x) * 3.0, lambda: tf.cos(x)), [np.int32(-1), rand(4)]


@case(grads=True)
def cond_nested(tf):
    def f(x):
        s = tf.reduce_sum(x)
        return tf.cond(
            s > 0.0,
            lambda: tf.cond(s > 10.0, lambda: x * 3.0, lambda: tf.exp(x) * s),
            lambda: tf.concat([x, x], 0)[:4],
        )

    return f, [np.abs(rand(4))]


@case(grads=True)
def cond_different_shapes(tf):
    return lambda p, x: tf.cond(p, lambda: tf.reshape(x, [2, 2]) * 2.0, lambda: tf.reshape(x, [4, 1]) ** 2), [np.bool_(False), rand(4)]


@case(grads=True, variants=FUNCTIONAL)
def switch_case(tf):
    def f(i, x):
        return tf.switch_case(i, [lambda: x * 2.0, lambda: tf.square(x), lambda: tf.reduce_sum(x) + x])

    return f, [np.int32(1), rand(3)]


@case(grads=True, variants=FUNCTIONAL)
def switch_default(tf):
    def f(i, x):
        return tf.switch_case(i, [lambda: x * 2.0, lambda: tf.square(x)], default=lambda: -x)

    return f, [np.int32(7), rand(3)]


@case()
def case_exclusive(tf):
    def f(x):
        return tf.case([(x < 0.0, lambda: tf.constant(1)), (x > 10.0, lambda: tf.constant(2))], default=lambda: tf.constant(3), exclusive=True)

    return f, [np.float32(3.0)]


@case()
def cond_several_results(tf):
    return lambda p, x: tf.cond(p, lambda: (x, tf.shape(x), tf.constant("a")), lambda: (x * 2.0, tf.shape(x) + 1, tf.constant("b"))), [
        np.bool_(True),
        rand(2, 3),
    ]


# -- loops ------------------------------------------------------------------------------------------------------------------


@case(grads=True)
def while_power(tf):
    def f(x):
        return tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * x), [tf.constant(0), tf.ones_like(x)])[1]

    return f, [rand(3)]


@case(grads=True)
def while_data_dependent(tf):
    def f(x, w):
        return tf.while_loop(lambda y: tf.reduce_sum(tf.abs(y)) < 50.0, lambda y: (tf.matmul(y, w) + y,), [x])[0]

    return f, [np.abs(rand(2, 3)), np.abs(rand(3, 3))]


@case(grads=True)
def while_no_iterations(tf):
    return lambda x: tf.while_loop(lambda i, y: i < 0, lambda i, y: (i + 1, y * x), [tf.constant(0), x * 2.0])[1], [rand(3)]


@case(grads=True)
def while_nested(tf):
    def f(x):
        def outer(i, y):
            inner = tf.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, tf.sin(z) * x), [tf.constant(0), y])[1]
            return i + 1, inner + y

        return tf.while_loop(lambda i, y: i < 4, outer, [tf.constant(0), x])[1]

    return f, [rand(3)]


@case(grads=True)
def while_with_cond(tf):
    def f(x):
        def body(i, y):
            y = tf.cond(tf.equal(i % 2, 0), lambda: y * x, lambda: y + tf.square(x))
            return i + 1, y

        return tf.while_loop(lambda i, y: i < 5, body, [tf.constant(0), x])[1]

    return f, [rand(3)]


@case(grads=True)
def while_growing(tf):
    def f(x):
        shape = tf.TensorShape([None])
        loop = tf.while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, tf.concat([y, x * y[-1]], 0)), [tf.constant(0), x],
            shape_invariants=[tf.TensorShape([]), shape],
        )  # fmt: skip
        return loop[1]

    return f, [rand(2)]


@case(grads=True)
def tensor_array(tf):
    def f(x):
        n = tf.shape(x)[0]
        array = tf.TensorArray(tf.float32, size=n)
        for i in tf.range(n):
            array = array.write(i, tf.reduce_sum(x[: i + 1]) ** 2)
        return array.stack()

    return tf.autograph.to_graph(f), [rand(4)]


@case(grads=True)
def map_fn(tf):
    return lambda x: tf.map_fn(lambda row: tf.reduce_sum(row) * row, x), [rand(3, 2)]


@case()
def map_fn_types(tf):
    return lambda x: tf.map_fn(lambda v: (v * 2, tf.strings.as_string(v)), x, fn_output_signature=(tf.int32, tf.string)), [np.int32([1, 2, 3])]


@case(grads=True)
def scan(tf):
    return lambda x: tf.scan(lambda a, v: a * 0.5 + v, x), [rand(5)]


@case(grads=True)
def foldl(tf):
    return lambda x: tf.foldl(lambda a, v: a * v + 1.0, x), [rand(4)]


@case(grads=True)
def vectorized_map(tf):
    w = tf.constant(rand(3, 2))
    return lambda x: tf.vectorized_map(lambda row: tf.linalg.matvec(w, row, transpose_a=True), x), [rand(4, 3)]


@case()
def autograph_break(tf):
    def f(x):
        total = tf.constant(0.0)
        for v in x:
            if v < 0.0:
                continue
            total += v
            if total > 1.0:
                break
        return total

    return tf.autograph.to_graph(f), [rand(6)]


@case()
def functional_loop_of_strings(tf):
    def f(x):
        return tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + x), [tf.constant(0), x])[1]

    return f, [np.array(b"ab", dtype=object)]


@case()
def accumulated_list(tf):
    def f(x):
        handle = tf.raw_ops.EmptyTensorList(element_shape=tf.constant([2]), max_num_elements=tf.constant(-1), element_dtype=tf.float32)

        def body(i, values):
            return i + 1, tf.raw_ops.TensorListPushBack(input_handle=values, tensor=x * tf.cast(i, tf.float32))

        _, handle = tf.while_loop(lambda i, _: i < 3, body, [tf.constant(0), handle])
        return tf.raw_ops.TensorListStack(input_handle=handle, element_shape=tf.constant([2]), element_dtype=tf.float32, num_elements=3)

    return f, [rand(2)]


# -- gradients that TensorFlow built itself ---------------------------------------------------------------------------------


@case()
def taped_loop(tf):
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, tf.sin(y * x)), [tf.constant(0), x])[1]
        return tape.gradient(y, x)

    return f, [rand(3)]


@case()
def taped_cond(tf):
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.exp(x) * x, lambda: tf.sin(x))
        return tape.gradient(y, x)

    return f, [rand(3)]


@case()
def jacobian(tf):
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.tanh(x) * tf.reduce_sum(x)
        return tape.jacobian(y, x)

    return f, [rand(3)]


# -- variables ----------------------------------------------------------------------------------------------------------------

WITH_VARIABLES = ("frozen", "lowered", "called")


@case(variants=("called",))
def counter(tf):
    v = [None]

    def f(x):
        if v[0] is None:
            v[0] = tf.Variable(np.float32([1.0, 2.0]), name="v")
        v[0].assign_add(x)
        first = v[0] * 10.0
        v[0].assign(v[0] * 2.0)
        return first, v[0].read_value()

    return f, [np.float32([0.5, 0.25])]


@case(variants=("called",))
def stateful_branches(tf):
    v = [None]

    def f(p, x):
        if v[0] is None:
            v[0] = tf.Variable(np.float32([1.0, 2.0]), name="v")

        def add():
            v[0].assign_add(x)
            return v[0].read_value()

        def sub():
            v[0].assign_sub(x * 3.0)
            return v[0].read_value() * 100.0

        return tf.cond(p, add, sub), tf.cond(tf.logical_not(p), add, sub)

    return f, [np.bool_(True), np.float32([0.5, 0.25])]


@case(variants=("called",))
def stateful_loop(tf):
    v = [None]

    def f(x):
        if v[0] is None:
            v[0] = tf.Variable(np.float32([1.0, 2.0]), name="v")

        def body(i, s):
            v[0].assign(v[0] * x)
            return i + 1, s + v[0].read_value()

        return tf.while_loop(lambda i, s: i < 4, body, [tf.constant(0), tf.zeros([2])])[1], v[0].read_value()

    return f, [np.float32(1.5)]


def keras_case(grads: bool = False) -> Callable[[Any], Any]:
    def register(make: Any) -> Any:
        def wrapped(tf: Any) -> Any:
            import keras

            keras.utils.set_random_seed(7)
            inputs, outputs, shape = make(keras, keras.layers)
            model = keras.Model(inputs, outputs)
            rng = np.random.default_rng(3)
            for weight in model.weights:  # not the initial zeros and ones
                if "seed" not in weight.path:
                    weight.assign(np.abs(rng.normal(size=weight.shape)) * 0.3 if "variance" in weight.path else rng.normal(size=weight.shape) * 0.3)
            return (lambda x: model(x, training=False)), [rand(*shape) if not isinstance(shape, np.ndarray) else shape]

        wrapped.__name__ = make.__name__
        CASES[make.__name__] = Case(wrapped, grads, ("frozen", "lowered"))
        return make

    return register


@keras_case(grads=True)
def dense(keras, layers):
    x = keras.Input((6,))
    y = layers.Dense(8, activation="relu")(x)
    y = layers.BatchNormalization()(y)
    y = layers.LayerNormalization()(y)
    return x, layers.Dense(3, activation="softmax")(layers.Dropout(0.5)(y)), (4, 6)


@keras_case(grads=True)
def conv(keras, layers):
    x = keras.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    y = layers.BatchNormalization()(y)
    y = layers.MaxPooling2D()(y)
    y = layers.DepthwiseConv2D(3, padding="same")(y)
    y = layers.SeparableConv2D(5, 3, activation="elu")(y)
    y = layers.UpSampling2D()(y)
    y = layers.Conv2DTranspose(2, 2, strides=2)(y)
    y = layers.AveragePooling2D(2)(y)
    return x, layers.Dense(3)(layers.GlobalAveragePooling2D()(y)), (2, 8, 8, 3)


@keras_case(grads=True)
def lstm(keras, layers):
    x = keras.Input((5, 3))
    return x, layers.Dense(2)(layers.LSTM(4)(layers.LSTM(4, return_sequences=True)(x))), (2, 5, 3)


@keras_case(grads=True)
def gru(keras, layers):
    x = keras.Input((5, 3))
    return x, layers.Bidirectional(layers.GRU(4, return_sequences=True))(x), (2, 5, 3)


@keras_case(grads=True)
def rnn_of_cells(keras, layers):
    x = keras.Input((None, 3))
    y = layers.RNN([layers.SimpleRNNCell(4), layers.GRUCell(3)], return_sequences=True)(x)
    return x, layers.TimeDistributed(layers.Dense(2))(y), (2, 4, 3)


@keras_case()
def embedding(keras, layers):
    x = keras.Input((5,), dtype="int32")
    y = layers.Embedding(10, 4, mask_zero=True)(x)
    return x, layers.LSTM(3)(y), np.int32([[1, 2, 3, 0, 0], [4, 5, 6, 7, 9]])


@keras_case(grads=True)
def attention(keras, layers):
    x = keras.Input((4, 6))
    y = layers.MultiHeadAttention(2, 3)(x, x)
    y = layers.LayerNormalization()(x + y)
    return x, layers.Attention()([y, x]), (2, 4, 6)


@keras_case(grads=True)
def conv1d(keras, layers):
    x = keras.Input((10, 3))
    y = layers.Conv1D(4, 3, dilation_rate=2, padding="causal", activation="gelu")(x)
    y = layers.GlobalMaxPooling1D()(y)
    return x, layers.Dense(2, activation="tanh")(y), (2, 10, 3)


@keras_case(grads=True)
def mobilenet(keras, layers):
    model = keras.applications.MobileNetV2(weights=None, include_top=False, input_shape=(32, 32, 3), alpha=0.35)
    return model.inputs, layers.GlobalAveragePooling2D()(model.outputs[0]), (1, 32, 32, 3)
