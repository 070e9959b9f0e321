"""Workloads in ONNX Runtime: the frozen networks of `models.py` written as ONNX graphs (channels first, as ONNX wants them)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from benchmarks import models, peers

WORKLOADS: peers.Setups = {}


class Value:
    """A name in the graph with its shape as TF sees it: images are rows, columns, channels, whatever the order in memory is."""

    def __init__(self, writer: Writer, name: str, *shape: int) -> None:
        self.writer, self.name, self.shape = writer, name, shape

    def __add__(self, other: Any) -> Value:
        return self.writer.node("Add", [self, other], self.shape)


class Writer:
    """Collects nodes and weights; `tf` has the few functions that the networks are written with."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.tf = SimpleNamespace(
            constant=lambda value: value, pad=self.pad, reduce_mean=self.mean, concat=self.concat, matmul=self.matmul,
            nn=SimpleNamespace(
                conv2d=self.conv, depthwise_conv2d=self.depthwise, fused_batch_norm=self.norm, relu=self.relu, relu6=self.relu6,
                max_pool=functools.partial(self.pool, "MaxPool"), avg_pool=functools.partial(self.pool, "AveragePool"), softmax=self.softmax,
                bias_add=lambda x, b: x + b,
            ),
        )  # fmt: skip

    def node(self, kind: str, inputs: list[Any], shape: tuple[int, ...], **attributes: Any) -> Value:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.named(x) for x in inputs], [name], **attributes))
        return Value(self, name, *shape)

    def named(self, x: Any) -> str:
        if isinstance(x, Value):
            return x.name
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(x), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def windowed(self, kind: str, inputs: list[Any], window: Any, stride: int, padding: str, depth: int, **attributes: Any) -> Value:
        rows, columns = inputs[0].shape[1:3]
        if padding == "SAME":
            shape = (1, -(-rows // stride), -(-columns // stride), depth)
        else:
            shape = (1, (rows - window[0]) // stride + 1, (columns - window[1]) // stride + 1, depth)
        pad = "SAME_UPPER" if padding == "SAME" else "VALID"
        return self.node(kind, inputs, shape, kernel_shape=list(window), strides=[stride, stride], auto_pad=pad, **attributes)

    def conv(self, x: Value, filter: np.ndarray, strides: Any, padding: str) -> Value:
        return self.windowed("Conv", [x, filter.transpose(3, 2, 0, 1)], filter.shape[:2], strides[1], padding, filter.shape[3])

    def depthwise(self, x: Value, filter: np.ndarray, strides: Any, padding: str) -> Value:
        depth = filter.shape[2]
        return self.windowed("Conv", [x, filter.transpose(2, 3, 0, 1)], filter.shape[:2], strides[1], padding, depth, group=depth)

    def norm(self, x: Value, scale: Any, offset: Any, mean: Any, variance: Any, epsilon: float, is_training: bool) -> Any:
        return self.node("BatchNormalization", [x, scale, offset, mean, variance], x.shape, epsilon=epsilon), None, None

    def pool(self, kind: str, x: Value, window: Any, strides: Any, padding: str) -> Value:
        return self.windowed(kind, [x], window[1:3], strides[1], padding, x.shape[3])

    def pad(self, x: Value, sides: Any) -> Value:
        (_, (top, bottom), (left, right), _) = sides
        shape = (1, x.shape[1] + top + bottom, x.shape[2] + left + right, x.shape[3])
        return self.node("Pad", [x, np.array([0, 0, top, left, 0, 0, bottom, right])], shape)

    def mean(self, x: Value, axes: Any) -> Value:
        return self.node("ReduceMean", [x, np.array([2, 3])], (1, x.shape[3]), keepdims=0)

    def concat(self, values: list[Value], axis: int) -> Value:
        return self.node("Concat", values, (*values[0].shape[:3], sum(v.shape[3] for v in values)), axis=1)

    def matmul(self, x: Value, w: np.ndarray) -> Value:
        return self.node("MatMul", [x, w.astype(np.float32)], (1, w.shape[1]))

    def relu(self, x: Value) -> Value:
        return self.node("Relu", [x], x.shape)

    def relu6(self, x: Value) -> Value:
        return self.node("Clip", [x, np.float32(0), np.float32(6)], x.shape)

    def softmax(self, x: Value) -> Value:
        return self.node("Softmax", [x], x.shape, axis=-1)


def _frozen(name: str) -> Callable[[], Any]:
    writer = Writer()
    result = models.FROZEN[name](writer.tf, Value(writer, "images", 1, models.SIZE, models.SIZE, 3))
    images = helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, [1, 3, models.SIZE, models.SIZE])
    output = helper.make_tensor_value_info(result.name, onnx.TensorProto.FLOAT, [1, models.CLASSES])
    graph = helper.make_graph(writer.nodes, "network", [images], [output], writer.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    data = np.ascontiguousarray(models.image().transpose(0, 3, 1, 2))
    return lambda: session.run([result.name], {"images": data})[0]


for _name in models.FROZEN:
    WORKLOADS[f"{_name}, frozen, batch 1"] = functools.partial(_frozen, _name)
