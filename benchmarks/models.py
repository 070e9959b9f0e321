"""Convolutional networks as TF1 programs: a small one that trains, and well-known ones as frozen graphs (weights are constants).

Each function takes the package (`penstock` or TensorFlow's `compat.v1`), builds its graph in the default graph with seeded weights and
returns `step()`, one unit of work. `FROZEN` gives the large networks as functions of the images, for whoever wants the graph itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

SIZE = 224
CLASSES = 1000


class Net:
    """Layers with constant, seeded weights, as a frozen graph has them."""

    def __init__(self, tf: Any, seed: int = 0) -> None:
        self.tf = tf
        self.rng = np.random.RandomState(seed)

    def weights(self, *shape: int) -> Any:
        fan_in = int(np.prod(shape[:-1]))
        return self.tf.constant((self.rng.randn(*shape) * np.sqrt(2.0 / fan_in)).astype(np.float32))

    def vector(self, depth: int, mean: float, spread: float) -> Any:
        return self.tf.constant((mean + spread * self.rng.uniform(-1, 1, depth)).astype(np.float32))

    def batch_norm(self, x: Any) -> Any:
        depth = int(x.shape[-1])
        y, _, _ = self.tf.nn.fused_batch_norm(
            x, self.vector(depth, 1.0, 0.2), self.vector(depth, 0.0, 0.2), mean=self.vector(depth, 0.0, 0.2),
            variance=self.vector(depth, 1.0, 0.3), epsilon=1e-3, is_training=False,
        )  # fmt: skip
        return y

    def conv(self, x: Any, depth: int, window: Any, stride: int = 1, padding: str = "SAME", activation: Any = "relu") -> Any:
        """Convolution, batch normalisation, activation."""
        rows, columns = (window, window) if isinstance(window, int) else window
        y = self.tf.nn.conv2d(x, self.weights(rows, columns, int(x.shape[-1]), depth), strides=[1, stride, stride, 1], padding=padding)
        return self.activate(self.batch_norm(y), activation)

    def depthwise(self, x: Any, stride: int = 1, activation: Any = "relu6") -> Any:
        depth = int(x.shape[-1])
        filter = self.tf.constant((self.rng.randn(3, 3, depth, 1) * np.sqrt(2.0 / 9)).astype(np.float32))
        y = self.tf.nn.depthwise_conv2d(x, filter, strides=[1, stride, stride, 1], padding="SAME")
        return self.activate(self.batch_norm(y), activation)

    def activate(self, x: Any, activation: Any) -> Any:
        return x if activation is None else getattr(self.tf.nn, activation)(x)

    def max_pool(self, x: Any, window: int = 3, stride: int = 2, padding: str = "SAME") -> Any:
        return self.tf.nn.max_pool(x, [1, window, window, 1], [1, stride, stride, 1], padding)

    def avg_pool(self, x: Any, window: int = 3) -> Any:
        return self.tf.nn.avg_pool(x, [1, window, window, 1], [1, 1, 1, 1], "SAME")

    def classify(self, x: Any) -> Any:
        """Mean over positions, dense layer, softmax."""
        tf = self.tf
        x = tf.reduce_mean(x, [1, 2])
        return tf.nn.softmax(tf.nn.bias_add(tf.matmul(x, self.weights(int(x.shape[-1]), CLASSES) * 0.1), self.vector(CLASSES, 0.0, 0.1)))


def resnet50(tf: Any, images: Any) -> Any:
    """ResNet-50, version 1.5 (the stride sits in the 3x3 convolution); the image is padded by an op of its own, as Keras does."""
    net = Net(tf)
    x = tf.pad(images, [[0, 0], [3, 3], [3, 3], [0, 0]])
    x = net.conv(x, 64, 7, 2, "VALID")
    x = net.max_pool(x)
    for block, (depth, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for i in range(count):
            stride = 2 if i == 0 and block else 1
            short = net.conv(x, 4 * depth, 1, stride, activation=None) if i == 0 else x
            y = net.conv(x, depth, 1)
            y = net.conv(y, depth, 3, stride)
            y = net.conv(y, 4 * depth, 1, activation=None)
            x = tf.nn.relu(y + short)
    return net.classify(x)


def mobilenet_v1(tf: Any, images: Any) -> Any:
    """MobileNet v1, width 1.0."""
    net = Net(tf, 1)
    x = net.conv(images, 32, 3, 2, activation="relu6")
    for depth, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)):
        x = net.depthwise(x, stride)
        x = net.conv(x, depth, 1, activation="relu6")
    return net.classify(x)


def mobilenet_v2(tf: Any, images: Any) -> Any:
    """MobileNet v2, width 1.0."""
    net = Net(tf, 2)
    x = net.conv(images, 32, 3, 2, activation="relu6")
    for factor, depth, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            inner = int(x.shape[-1]) * factor
            y = net.conv(x, inner, 1, activation="relu6") if factor > 1 else x
            y = net.depthwise(y, stride if i == 0 else 1)
            y = net.conv(y, depth, 1, activation=None)
            x = x + y if i > 0 else y
    x = net.conv(x, 1280, 1, activation="relu6")
    return net.classify(x)


def inception(tf: Any, images: Any) -> Any:
    """In the manner of Inception v3: branches of 1x1, 3x3, 5x5, 1x7 and 7x1 convolutions and pools, concatenated."""
    net = Net(tf, 3)
    conv = net.conv
    x = conv(images, 32, 3, 2, "VALID")
    x = conv(x, 32, 3, padding="VALID")
    x = conv(x, 64, 3)
    x = net.max_pool(x, padding="VALID")
    x = conv(x, 80, 1, padding="VALID")
    x = conv(x, 192, 3, padding="VALID")
    x = net.max_pool(x, padding="VALID")
    for pooled in (32, 64, 64):
        x = tf.concat([
            conv(x, 64, 1), conv(conv(x, 48, 1), 64, 5), conv(conv(conv(x, 64, 1), 96, 3), 96, 3), conv(net.avg_pool(x), pooled, 1),
        ], 3)  # fmt: skip
    x = tf.concat([conv(x, 384, 3, 2, "VALID"), conv(conv(conv(x, 64, 1), 96, 3), 96, 3, 2, "VALID"), net.max_pool(x, padding="VALID")], 3)
    for depth in (128, 160, 160, 192):
        far = conv(conv(conv(conv(conv(x, depth, 1), depth, (7, 1)), depth, (1, 7)), depth, (7, 1)), 192, (1, 7))
        x = tf.concat([conv(x, 192, 1), conv(conv(conv(x, depth, 1), depth, (1, 7)), 192, (7, 1)), far, conv(net.avg_pool(x), 192, 1)], 3)
    wide = conv(conv(conv(conv(x, 192, 1), 192, (1, 7)), 192, (7, 1)), 192, 3, 2, "VALID")
    x = tf.concat([conv(conv(x, 192, 1), 320, 3, 2, "VALID"), wide, net.max_pool(x, padding="VALID")], 3)
    for _ in range(2):
        a, b = conv(x, 384, 1), conv(conv(x, 448, 1), 384, 3)
        branches = [conv(x, 320, 1), conv(a, 384, (1, 3)), conv(a, 384, (3, 1)), conv(b, 384, (1, 3)), conv(b, 384, (3, 1)), conv(net.avg_pool(x), 192, 1)]
        x = tf.concat(branches, 3)
    return net.classify(x)


FROZEN: dict[str, Callable[[Any, Any], Any]] = {
    "ResNet-50": resnet50, "MobileNet v1": mobilenet_v1, "MobileNet v2": mobilenet_v2, "Inception-like": inception,
}  # fmt: skip


def image(batch: int = 1) -> np.ndarray:
    return np.random.RandomState(7).uniform(-1, 1, (batch, SIZE, SIZE, 3)).astype(np.float32)


def frozen(name: str, batch: int = 1) -> Callable[[Any], Callable[[], Any]]:
    """`setup(tf)` of one of `FROZEN` at 224x224."""

    def setup(tf: Any) -> Callable[[], Any]:
        images = tf.placeholder(tf.float32, [batch, SIZE, SIZE, 3], name="images")
        result = tf.identity(FROZEN[name](tf, images), name="probabilities")
        sess = tf.Session()
        data = image(batch)
        return lambda: sess.run(result, {images: data})

    return setup


# -- a small one that trains ---------------------------------------------------------------------------------------------


def _small(tf: Any, images: Any) -> Any:
    """Three convolutions with bias and ReLU, two pools, two dense layers, on 32x32x3."""
    rng = np.random.RandomState(0)

    def variable(name: str, *shape: int) -> Any:
        fan_in = max(1, int(np.prod(shape[:-1])))
        value = rng.randn(*shape) * np.sqrt(2.0 / fan_in) if len(shape) > 1 else np.zeros(shape)
        return tf.get_variable(name, initializer=value.astype(np.float32))

    x = images
    for i, depth in enumerate((32, 64, 64)):
        x = tf.nn.conv2d(x, variable(f"filter{i}", 3, 3, int(x.shape[-1]), depth), strides=[1, 1, 1, 1], padding="SAME")
        x = tf.nn.relu(tf.nn.bias_add(x, variable(f"bias{i}", depth)))
        if i < 2:
            x = tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    x = tf.reshape(x, [-1, 8 * 8 * 64])
    x = tf.nn.relu(tf.matmul(x, variable("dense0", 8 * 8 * 64, 128)) + variable("dense_bias0", 128))
    return tf.matmul(x, variable("dense1", 128, 10)) + variable("dense_bias1", 10)


def cnn_forward(tf: Any, batch: int = 32) -> Callable[[], Any]:
    images = tf.placeholder(tf.float32, [None, 32, 32, 3])
    result = tf.nn.softmax(_small(tf, images))
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    data = np.random.RandomState(1).randn(batch, 32, 32, 3).astype(np.float32)
    return lambda: sess.run(result, {images: data})


def cnn_training(tf: Any, batch: int = 32, momentum: bool = False) -> Callable[[], Any]:
    images = tf.placeholder(tf.float32, [None, 32, 32, 3])
    labels = tf.placeholder(tf.int32, [None])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=_small(tf, images)))
    optimizer = tf.train.MomentumOptimizer(0.01, 0.9) if momentum else tf.train.GradientDescentOptimizer(0.01)
    train = optimizer.minimize(loss)
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    rng = np.random.RandomState(1)
    data, target = rng.randn(batch, 32, 32, 3).astype(np.float32), rng.randint(0, 10, batch).astype(np.int32)
    return lambda: sess.run([loss, train], {images: data, labels: target})


def _residual(tf: Any, images: Any) -> Any:
    """A small residual network with batch normalisation in training mode, on 32x32x3."""
    rng = np.random.RandomState(0)
    count = 0

    def conv_norm(x: Any, depth: int, stride: int, relu: bool = True) -> Any:
        nonlocal count
        count += 1
        inner = int(x.shape[-1])
        filter = tf.get_variable(f"filter{count}", initializer=(rng.randn(3, 3, inner, depth) * np.sqrt(2.0 / (9 * inner))).astype(np.float32))
        scale = tf.get_variable(f"scale{count}", initializer=np.ones(depth, np.float32))
        offset = tf.get_variable(f"offset{count}", initializer=np.zeros(depth, np.float32))
        x = tf.nn.conv2d(x, filter, strides=[1, stride, stride, 1], padding="SAME")
        x, _, _ = tf.nn.fused_batch_norm(x, scale, offset, is_training=True)
        return tf.nn.relu(x) if relu else x

    x = conv_norm(images, 16, 1)
    for depth in (16, 32, 64):
        stride = 1 if depth == 16 else 2
        y = conv_norm(conv_norm(x, depth, stride), depth, 1, relu=False)
        short = x if stride == 1 else conv_norm(x, depth, stride, relu=False)
        x = tf.nn.relu(y + short)
    x = tf.reduce_mean(x, [1, 2])
    return tf.matmul(x, tf.get_variable("dense", initializer=(rng.randn(64, 10) * 0.1).astype(np.float32)))


def residual_training(tf: Any, batch: int = 32) -> Callable[[], Any]:
    """Residual network with batch normalisation and Momentum."""
    images = tf.placeholder(tf.float32, [batch, 32, 32, 3])
    labels = tf.placeholder(tf.int32, [batch])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=_residual(tf, images)))
    train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    sess = tf.Session()
    sess.run(tf.global_variables_initializer())
    rng = np.random.RandomState(1)
    data, target = rng.randn(batch, 32, 32, 3).astype(np.float32), rng.randint(0, 10, batch).astype(np.int32)
    return lambda: sess.run([loss, train], {images: data, labels: target})
