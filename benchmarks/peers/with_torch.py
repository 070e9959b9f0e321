"""Workloads in PyTorch, eager on the CPU: modules and optimizers as its users write them, images in channels-last memory."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import models, peers

WORKLOADS: peers.Setups = {}
workload = functools.partial(peers.register, WORKLOADS)


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape).astype(np.float32))


def _infer(function: Callable[[], Any]) -> Callable[[], Any]:
    return torch.inference_mode()(function)


def _train(module: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]) -> Callable[[], Any]:
    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        optimizer.step()
        return value.item()

    return step


# -- calls, small ops, big ops -------------------------------------------------------------------------------------------


@workload("run of one add")
@workload("callable of one add")
def one_add() -> Callable[[], Any]:
    x = torch.tensor(2.0)
    return _infer(lambda: x + 1.0)


@workload("2,000-op scalar chain")
def scalar_chain() -> Callable[[], Any]:
    x = torch.tensor(0.5)

    def step() -> Any:
        y = x
        for _ in range(1000):
            y = torch.sin(y) + x
        return y

    return _infer(step)


@workload("300-op chain on 1,000 floats")
def vector_chain() -> Callable[[], Any]:
    x = torch.linspace(-1, 1, 1000)

    def step() -> Any:
        y = x
        for _ in range(100):
            y = torch.tanh(y) * 0.9 + x
        return y

    return _infer(step)


@workload("200 independent 64x64 matmuls")
def matmuls() -> Callable[[], Any]:
    x, weights = _normal(64, 64), [_normal(64, 64, seed=i) for i in range(200)]

    def step() -> Any:
        total = x @ weights[0]
        for w in weights[1:]:
            total = total + x @ w
        return total

    return _infer(step)


@workload("30 elementwise ops on 1M floats")
def elementwise() -> Callable[[], Any]:
    x = torch.linspace(0, 1, 1_000_000)

    def step() -> Any:
        y = x
        for _ in range(10):
            y = torch.maximum(y * 1.01 + 0.5, x)
        return y.sum().item()

    return _infer(step)


# -- training -----------------------------------------------------------------------------------------------------------


def _mlp(batch: int, is_adam: bool) -> Callable[[], Any]:
    module = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    x, y = _normal(batch, 256), torch.from_numpy(np.random.RandomState(1).randint(0, 10, batch))
    optimizer = torch.optim.Adam(module.parameters(), 1e-3) if is_adam else torch.optim.SGD(module.parameters(), 0.1)
    return _train(module, optimizer, lambda: F.cross_entropy(module(x), y))


for _batch in (1, 128):
    for _optimizer in ("SGD", "Adam"):
        WORKLOADS[f"MLP training, batch {_batch}, {_optimizer}"] = functools.partial(_mlp, _batch, _optimizer == "Adam")


@workload("LSTM training, 20 steps unrolled")
def lstm(steps: int = 20, batch: int = 32, hidden: int = 128, inputs: int = 64) -> Callable[[], Any]:
    cell, out = nn.LSTM(inputs, hidden, batch_first=True), nn.Linear(hidden, 10, bias=False)
    module = nn.ModuleList([cell, out])
    x, labels = _normal(batch, steps, inputs), torch.arange(batch) % 10
    return _train(module, torch.optim.SGD(module.parameters(), 0.1), lambda: F.cross_entropy(out(cell(x)[0][:, -1]), labels))


class Block(nn.Module):
    """Multi-head self attention and a feed-forward layer, each with a residual and a layer norm."""

    def __init__(self, depth: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.mix = (nn.Linear(depth, depth) for _ in range(4))
        self.inner, self.outer = nn.Linear(depth, 4 * depth), nn.Linear(4 * depth, depth)
        self.norm1, self.norm2 = nn.LayerNorm(depth, 1e-6), nn.LayerNorm(depth, 1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, depth = x.shape
        q, k, v = (layer(x).view(batch, length, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, depth)
        x = self.norm1(x + self.mix(mixed))
        return self.norm2(x + self.outer(F.relu(self.inner(x))))


@workload("attention block, forward")
def attention_forward() -> Callable[[], Any]:
    block, x = Block(), _normal(8, 64, 256)
    return _infer(lambda: block(x))


@workload("attention block, training")
def attention_training() -> Callable[[], Any]:
    block, x, target = Block(), _normal(8, 64, 256), _normal(8, 64, 256, seed=1)
    return _train(block, torch.optim.Adam(block.parameters(), 1e-3), lambda: F.mse_loss(block(x), target))


def _embedding(is_adagrad: bool, rows: int = 100_000, width: int = 64, batch: int = 256) -> Callable[[], Any]:
    table, score = nn.Embedding(rows, width, sparse=True), nn.Linear(width, 1, bias=False)
    module = nn.ModuleList([table, score])
    ids, target = torch.from_numpy(np.random.RandomState(0).randint(0, rows, batch)), _normal(batch, 1)
    optimizer = torch.optim.Adagrad(module.parameters(), 0.1) if is_adagrad else torch.optim.SGD(module.parameters(), 0.1)
    return _train(module, optimizer, lambda: F.mse_loss(score(table(ids)), target))


WORKLOADS["embedding, sparse SGD"] = functools.partial(_embedding, False)
WORKLOADS["embedding, sparse Adagrad"] = functools.partial(_embedding, True)


# -- loops --------------------------------------------------------------------------------------------------------------


@workload("while loop of 1,000 iterations")
def loop() -> Callable[[], Any]:
    x = torch.tensor(3.0)

    def step() -> Any:
        v = x
        for _ in range(1000):
            v = v * 0.999 + 0.001
        return v

    return _infer(step)


@workload("gradient through a 50-step loop")
def loop_gradient() -> Callable[[], Any]:
    x, w = torch.ones(16, requires_grad=True), (torch.eye(16) * 0.5).requires_grad_()

    def step() -> Any:
        v = x
        for _ in range(50):
            v = torch.tanh((w * v).sum(1))
        return torch.autograd.grad(v.sum(), (x, w))

    return step


# -- convolutions -------------------------------------------------------------------------------------------------------


class Small(nn.Module):
    """The small network of `models.py`."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, 32), (32, 64), (64, 64))])
        self.dense0, self.dense1 = nn.Linear(8 * 8 * 64, 128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, conv in enumerate(self.convs):
            x = F.relu(conv(x))
            x = F.max_pool2d(x, 2) if i < 2 else x
        return self.dense1(F.relu(self.dense0(x.flatten(1))))


class Residual(nn.Module):
    """The residual network of `models.py`, in training mode."""

    def __init__(self) -> None:
        super().__init__()

        def unit(inner: int, depth: int, stride: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(inner, depth, 3, stride, 1, bias=False), nn.BatchNorm2d(depth))

        self.stem, self.dense = unit(3, 16, 1), nn.Linear(64, 10, bias=False)
        self.blocks, inner = nn.ModuleList(), 16
        for depth in (16, 32, 64):
            stride = 1 if depth == 16 else 2
            self.blocks.append(nn.ModuleList([unit(inner, depth, stride), unit(depth, depth, 1), unit(inner, depth, stride) if stride > 1 else nn.Identity()]))
            inner = depth

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.stem(x))
        for first, second, short in self.blocks:  # type: ignore[misc]
            x = F.relu(second(F.relu(first(x))) + short(x))
        return self.dense(x.mean((2, 3)))


def _images() -> torch.Tensor:
    return _normal(32, 3, 32, 32).to(memory_format=torch.channels_last)


@workload("CNN forward, batch 32")
def cnn_forward() -> Callable[[], Any]:
    module, x = Small().to(memory_format=torch.channels_last), _images()
    return _infer(lambda: torch.softmax(module(x), 1))


def _cnn_training(kind: type[nn.Module], momentum: float) -> Callable[[], Any]:
    module, x, y = kind().to(memory_format=torch.channels_last), _images(), torch.arange(32) % 10
    return _train(module, torch.optim.SGD(module.parameters(), 0.01, momentum), lambda: F.cross_entropy(module(x), y))


WORKLOADS["CNN training, batch 32, SGD"] = functools.partial(_cnn_training, Small, 0.0)
WORKLOADS["CNN training, batch 32, Momentum"] = functools.partial(_cnn_training, Small, 0.9)
WORKLOADS["residual CNN training, batch 32"] = functools.partial(_cnn_training, Residual, 0.9)


def _same(size: int, window: int, stride: int) -> tuple[int, int]:
    """TF's padding before and after."""
    total = max(0, (-(-size // stride) - 1) * stride + window - size)
    return total // 2, total - total // 2


def _padded(x: torch.Tensor, window: Any, strides: Any, padding: str, fill: float = 0.0) -> tuple[torch.Tensor, tuple[int, int]]:
    """`x` and the padding left for the op: uneven sides are padded beforehand."""
    if padding == "VALID":
        return x, (0, 0)
    (top, bottom), (left, right) = (_same(x.shape[i], window[i - 1], strides[i]) for i in (1, 2))
    if top == bottom and left == right:
        return x, (top, left)
    return F.pad(x, (0, 0, left, right, top, bottom), value=fill), (0, 0)


def _first(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2)


def _last(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1)


def _conv2d(x: torch.Tensor, filter: torch.Tensor, strides: Any, padding: str, groups: int = 1) -> torch.Tensor:
    x, left = _padded(x, filter.shape[:2], strides, padding)
    weights = filter.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return _last(F.conv2d(_first(x), weights, None, tuple(strides[1:3]), left, 1, groups))


def _depthwise(x: torch.Tensor, filter: torch.Tensor, strides: Any, padding: str) -> torch.Tensor:
    return _conv2d(x, filter.reshape(*filter.shape[:2], 1, -1), strides, padding, int(x.shape[-1]))


def _norm(x: torch.Tensor, scale: Any, offset: Any, mean: Any, variance: Any, epsilon: float, is_training: bool) -> Any:
    return _last(F.batch_norm(_first(x), mean, variance, scale, offset, is_training, 0.0, epsilon)), None, None


def _max_pool(x: torch.Tensor, window: Any, strides: Any, padding: str) -> torch.Tensor:
    x, left = _padded(x, window[1:3], strides, padding, -float("inf"))
    return _last(F.max_pool2d(_first(x), tuple(window[1:3]), tuple(strides[1:3]), left))


def _avg_pool(x: torch.Tensor, window: Any, strides: Any, padding: str) -> torch.Tensor:
    x, left = _padded(x, window[1:3], strides, padding)
    return _last(F.avg_pool2d(_first(x), tuple(window[1:3]), tuple(strides[1:3]), left, count_include_pad=False))


TF = SimpleNamespace(
    constant=torch.from_numpy, reduce_mean=torch.mean, matmul=torch.matmul, concat=torch.cat,
    pad=lambda x, sides: F.pad(x, [n for pair in reversed(sides) for n in pair]),
    nn=SimpleNamespace(
        conv2d=_conv2d, depthwise_conv2d=_depthwise, fused_batch_norm=_norm, relu=F.relu, relu6=F.relu6, max_pool=_max_pool, avg_pool=_avg_pool,
        softmax=lambda x: torch.softmax(x, -1), bias_add=torch.add,
    ),
)  # fmt: skip
"""The few functions that the networks of `models.py` are written with."""


class Frozen(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.network = models.FROZEN[name]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(TF, x)


def _frozen(name: str) -> Callable[[], Any]:
    """Traced once, so that the weights are made once, frozen and optimised for inference: batch norms fold into convolutions."""
    images = torch.from_numpy(models.image())
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(Frozen(name).eval(), images, check_trace=False)))
    return _infer(lambda: traced(images).numpy())


for _name in models.FROZEN:
    WORKLOADS[f"{_name}, frozen, batch 1"] = functools.partial(_frozen, _name)
