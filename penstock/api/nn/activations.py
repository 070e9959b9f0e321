"""Activations and what stands next to them: biases, softmax, dropout, normalising a vector, the largest entries."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes, errors
from penstock.api import array_ops, math_ops, math_reduce, random_ops
from penstock.api.array_ops import one_of
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.graph.constant import constant, constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

# -- one op each ------------------------------------------------------------------------------------------------------


def _activation(op_type: str, *names: str, doc: str) -> Callable[..., Tensor]:
    def function(features: Any, name: str | None = None) -> Tensor:
        return getattr(raw, op_type)(features, name=name)

    function.__name__ = function.__qualname__ = names[0].rpartition(".")[2]
    function.__doc__ = doc
    return export(*names)(function)


relu = _activation("Relu", "nn.relu", doc="max(x, 0), elementwise.")
relu6 = _activation("Relu6", "nn.relu6", doc="min(max(x, 0), 6), elementwise.")
elu = _activation("Elu", "nn.elu", doc="x where it is positive, exp(x) - 1 elsewhere.")
selu = _activation("Selu", "nn.selu", doc="The scaled ELU, which keeps activations near mean 0 and variance 1.")
softplus = _activation("Softplus", "nn.softplus", "math.softplus", doc="log(1 + exp(x)), elementwise.")
softsign = _activation("Softsign", "nn.softsign", "math.softsign", doc="x / (1 + |x|), elementwise.")


@export("nn.leaky_relu")
def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Tensor:
    """x where it is positive, alpha * x elsewhere; whole numbers become float32."""
    with name_scope(name, "LeakyRelu", [features, alpha]) as scope:
        features = convert_to_tensor(features, name="features")
        if features.dtype.is_integer:
            features = math_ops.cast(features, dtypes.float32)
        if isinstance(alpha, np.ndarray):
            alpha = alpha.item()
        return raw.LeakyRelu(features, alpha=alpha, name=scope)


@export("nn.crelu")
def crelu(features: Any, name: str | None = None, axis: int = -1) -> Tensor:
    """relu of `features` and of -`features`, one after the other along `axis`."""
    with name_scope(name, "CRelu", [features]) as scope:
        features = convert_to_tensor(features, name="features")
        both = array_ops.concat([features, math_ops.negative(features)], axis, name=scope)
        return raw.Relu(both)


@export("nn.swish", "nn.silu")
def swish(features: Any, beta: Any = 1.0) -> Tensor:
    """x * sigmoid(beta * x)."""
    features = convert_to_tensor(features, name="features")
    beta = convert_to_tensor(beta, dtype=features.dtype, name="beta")
    return features * math_ops.sigmoid(beta * features)


@export("nn.bias_add")
def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Tensor:
    """`value` plus one bias per channel; channels come last unless `data_format` begins with "NC"."""
    with name_scope(name, "BiasAdd", [value, bias]) as scope:
        if data_format is None:
            data_format = "NHWC"
        elif data_format.startswith("NC"):
            data_format = "NCHW"
        elif data_format.startswith("N") and data_format.endswith("C"):
            data_format = "NHWC"
        else:
            raise ValueError(f"`data_format` must be of the form `N...C` or `NC...`. Received: data_format={data_format}")
        value = convert_to_tensor(value, name="input") if not isinstance(value, Tensor) else value
        bias = convert_to_tensor(bias, dtype=value.dtype, name="bias")
        return raw.BiasAdd(value, bias, data_format=data_format, name=scope)


@export("nn.xw_plus_b")
def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """matmul(x, weights) + biases."""
    with name_scope(name, "xw_plus_b", [x, weights, biases]) as scope:
        product = raw.MatMul(convert_to_tensor(x, name="x"), convert_to_tensor(weights, name="weights"))
        return raw.BiasAdd(product, convert_to_tensor(biases, name="biases"), name=scope)


@export("nn.relu_layer")
def relu_layer(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """relu(matmul(x, weights) + biases)."""
    with name_scope(name, "relu_layer", [x, weights, biases]) as scope:
        product = raw.MatMul(convert_to_tensor(x, name="x"), convert_to_tensor(weights, name="weights"))
        return raw.Relu(raw.BiasAdd(product, convert_to_tensor(biases, name="biases")), name=scope)


# -- softmax ----------------------------------------------------------------------------------------------------------


def to_last_axis(x: Tensor, axis: int) -> tuple[Tensor, Any]:
    """`x` with `axis` and the last axis exchanged, and the permutation that did it (None: nothing to do)."""
    rank = None if x.dims is None else len(x.dims)
    if axis == -1 or (rank is not None and axis == rank - 1):
        return x, None
    if rank is not None:
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        perm: Any = np.array(order, np.int32)
    else:
        count = array_ops.rank(x)
        at = raw.FloorMod(axis, count, name="mod")
        last = count - 1
        places = math_reduce.range_(0, count)
        perm = raw.SelectV2(math_ops.equal(places, at), last, raw.SelectV2(math_ops.equal(places, last), at, places))
    return array_ops.transpose(x, perm), perm


def _softmax(logits: Any, axis: Any, op: Callable[..., Tensor], name: str | None) -> Tensor:
    logits = convert_to_tensor(logits)
    axis = -1 if axis is None else axis
    if isinstance(axis, Tensor):
        axis = int(constant_value(axis))  # type: ignore[arg-type]
    rank = None if logits.dims is None else len(logits.dims)
    if rank is not None and rank and not -rank <= axis < rank:
        raise errors.InvalidArgumentError(
            None, None,
            f"`dim` must be in the range [{-rank}, {rank}) where {rank} is the number of dimensions in the input. Received: dim={axis}",
        )  # fmt: skip
    moved, perm = to_last_axis(logits, axis)
    if perm is None:
        return op(logits, name=name)
    result = array_ops.transpose(op(moved), perm, name=name or "transpose")
    result.set_shape(logits.shape)
    return result


@export("nn.softmax", "math.softmax")
def softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """exp(logits) / sum(exp(logits), axis); `axis` is the last one by default, `dim` its old name.

    >>> tf.nn.softmax([0.0, 0.0])  # [0.5, 0.5]
    """
    return _softmax(logits, one_of(axis, dim, "axis", "dim"), raw.Softmax, name)


@export("nn.log_softmax", "math.log_softmax")
def log_softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """log(softmax(logits)), without the loss of accuracy; `dim` is the old name of `axis`."""
    return _softmax(logits, one_of(axis, dim, "axis", "dim"), raw.LogSoftmax, name)


# -- dropout ----------------------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real)


@export("nn.dropout")
def dropout(
    x: Any, keep_prob: Any = None, noise_shape: Any = None, seed: int | None = None, name: str | None = None, rate: Any = None
) -> Tensor:
    """Sets elements of `x` to 0 with probability `rate` and scales the others by 1 / (1 - rate).

    `keep_prob` is the old way to say 1 - rate. Where `noise_shape` has size 1, elements are dropped together.
    """
    if keep_prob is not None:
        if rate is not None:
            raise ValueError("Cannot specify both 'keep_prob' and 'rate'.")
        rate = 1 - keep_prob
    if rate is None:
        raise ValueError(f"`rate` must be provided. Received: rate={rate}")
    is_number = _is_number(rate)
    if is_number and not 0 <= rate < 1:
        raise ValueError(f"`rate` must be a scalar tensor or a float in the range [0, 1). Received: rate={rate}")
    x = convert_to_tensor(x, name="x") if not isinstance(x, Tensor) else x
    if not x.dtype.is_floating:
        raise ValueError(f"`x.dtype` must be a floating point tensor as `x` will be scaled. Received: x_dtype={x.dtype!r}")
    if is_number and rate == 0:
        return x
    dtype = x.dtype.base_dtype
    with name_scope(name, "dropout", [x]):
        if is_number:
            scaled = raw.Mul(x, constant(np.asarray(1 / (1 - rate)).astype(dtype.np), dtype))
        else:
            rate = convert_to_tensor(rate, dtype=dtype, name="rate")
            rate.shape.assert_has_rank(0)
            scaled = raw.RealDiv(x, raw.Sub(constant(1.0, dtype), rate))
        noise = random_ops.random_uniform(_noise_shape(x, noise_shape), seed=seed, dtype=dtype)
        # Numbers are drawn from [0, 1): those below the rate are dropped.
        keep = raw.GreaterEqual(noise, rate)
        result = raw.SelectV2(keep, scaled, constant(0.0, dtype))
        result.set_shape(x.shape)
        return result


def _noise_shape(x: Tensor, noise_shape: Any) -> Any:
    """`noise_shape` with its unknown entries taken from `x`."""
    if noise_shape is None:
        return array_ops.shape(x)
    if isinstance(noise_shape, Tensor):
        return noise_shape
    sizes = noise_shape.as_list() if hasattr(noise_shape, "as_list") else list(noise_shape)
    if None not in sizes:
        return sizes
    known = x.dims if x.dims is not None and len(x.dims) == len(sizes) else (None,) * len(sizes)
    sizes = [k if s is None else s for s, k in zip(sizes, known, strict=True)]
    if None not in sizes:
        return sizes
    dynamic = array_ops.shape(x)
    return array_ops.stack([dynamic[i] if s is None else s for i, s in enumerate(sizes)])


# -- vectors and their entries ----------------------------------------------------------------------------------------


@export("nn.l2_loss")
def l2_loss(t: Any, name: str | None = None) -> Tensor:
    """sum(t ** 2) / 2."""
    return raw.L2Loss(t, name=name)


@export("nn.l2_normalize", "math.l2_normalize", "linalg.l2_normalize")
def l2_normalize(x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None) -> Tensor:
    """x / sqrt(max(sum(x ** 2, axis), epsilon)); `dim` is the old name of `axis`."""
    axis = one_of(axis, dim, "axis", "dim")
    with name_scope(name, "l2_normalize", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            real, imag = math_ops.real(x), math_ops.imag(x)
            total = math_reduce.reduce_sum(raw.Square(real) + raw.Square(imag), axis, keepdims=True)
            inverse = raw.Rsqrt(raw.Maximum(total, epsilon))
            return raw.Complex(raw.Mul(real, inverse), raw.Mul(imag, inverse), name=scope, Tout=x.dtype)
        total = math_reduce.reduce_sum(raw.Square(x), axis, keepdims=True)
        return raw.Mul(x, raw.Rsqrt(raw.Maximum(total, epsilon)), name=scope)


@export("nn.zero_fraction", "math.zero_fraction")
def zero_fraction(value: Any, name: str | None = None) -> Tensor:
    """The share of zeros among the elements, as float32; NaN if there are none."""
    with name_scope(name, "zero_fraction", [value]):
        value = convert_to_tensor(value, name="value")
        size = array_ops.size(value, out_type=dtypes.int64)
        nonzero = math_reduce.count_nonzero(value, dtype=dtypes.int64)
        with name_scope("counts_to_fraction"):
            share = math_ops.cast(size - nonzero, dtypes.float32) / math_ops.cast(size, dtypes.float32)
        return array_ops.identity(share, name="fraction")


@export("nn.top_k", "math.top_k")
def top_k(input: Any, k: Any = 1, sorted: bool = True, index_type: Any = dtypes.int32, name: str | None = None) -> Any:
    """(values, indices) of the `k` largest entries along the last dimension; of equal ones the first comes first."""
    return raw.TopKV2(input, k, sorted=sorted, index_type=index_type, name=name)


@export("nn.in_top_k", "math.in_top_k")
def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> Tensor:
    """For each row, whether class `targets[i]` is among the `k` with the largest predictions; ties count as inside."""
    with name_scope(name, "in_top_k"):
        return raw.InTopKV2(predictions, targets, k)
