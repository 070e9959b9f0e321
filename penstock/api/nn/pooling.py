"""Pooling over one, two or three spatial dimensions."""

from __future__ import annotations

from typing import Any

from penstock.api import array_ops
from penstock.api.array_ops import one_of
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.nn.layout import channel_index, explicit_paddings, per_dimension
from penstock.api.nn.space_to_batch import NOT_BOTH, with_space_to_batch
from penstock.graph.constant import constant_value
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

# -- two dimensions ---------------------------------------------------------------------------------------------------


def _max_pool(value: Any, ksize: Any, strides: Any, padding: Any, data_format: str, name: str | None) -> Tensor:
    padding, pads = explicit_paddings(padding)
    if data_format == "NCHW_VECT_C" and padding == "EXPLICIT":
        raise ValueError("`data_format='NCHW_VECT_C'` is not supported with explicit padding.")
    channel = channel_index(data_format, 2)
    ksize = per_dimension(ksize, 2, channel, "ksize")
    strides = per_dimension(strides, 2, channel, "strides")
    return raw.MaxPool(value, ksize=ksize, strides=strides, padding=padding, explicit_paddings=pads, data_format=data_format, name=name)


@export("nn.max_pool")
def max_pool(
    value: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NHWC", name: str | None = None, input: Any = None
) -> Tensor:
    """The largest value in each window. `ksize` and `strides` are given per dimension, or for rows and columns only."""
    value = one_of(value, input, "value", "input")
    with name_scope(name, "MaxPool", [value]) as scope:
        return _max_pool(value, ksize, strides, padding, data_format or "NHWC", scope)


@export("nn.max_pool2d")
def max_pool2d(input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NHWC", name: str | None = None) -> Tensor:
    """The largest value in each window of rows and columns."""
    with name_scope(name, "MaxPool2d", [input]) as scope:
        return _max_pool(input, ksize, strides, padding, data_format or "NHWC", scope)


@export("nn.avg_pool", "nn.avg_pool2d")
def avg_pool(
    value: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC", name: str | None = None, input: Any = None
) -> Tensor:
    """The mean of each window; cells in the padding do not count."""
    value = one_of(value, input, "value", "input")
    with name_scope(name, "AvgPool", [value]) as scope:
        data_format = data_format or "NHWC"
        channel = channel_index(data_format, 2)
        return raw.AvgPool(
            value, ksize=per_dimension(ksize, 2, channel, "ksize"), strides=per_dimension(strides, 2, channel, "strides"),
            padding=padding, data_format=data_format, name=scope,
        )  # fmt: skip


@export("nn.max_pool_with_argmax")
def max_pool_with_argmax(
    input: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC", Targmax: Any = None, name: str | None = None,
    output_dtype: Any = None, include_batch_in_index: bool = False,
) -> Any:  # fmt: skip
    """(maxima, argmax): argmax is the flat index ((b * height) + y) * width + x) * channels + c, without b by default."""
    if data_format != "NHWC":
        raise ValueError(f"`data_format` values other than 'NHWC' are not supported. Received: data_format={data_format}")
    Targmax = one_of(Targmax, output_dtype, "Targmax", "output_dtype")
    return raw.MaxPoolWithArgmax(
        input, ksize=per_dimension(ksize, 2, 3, "ksize"), strides=per_dimension(strides, 2, 3, "strides"), padding=padding,
        Targmax="int64" if Targmax is None else Targmax, include_batch_in_index=include_batch_in_index, name=name,
    )  # fmt: skip


@export("nn.fractional_max_pool")
def fractional_max_pool(
    value: Any, pooling_ratio: Any, pseudo_random: bool = False, overlapping: bool = False, deterministic: bool = False, seed: int = 0, seed2: int = 0,
    name: str | None = None,
) -> Any:  # fmt: skip
    """(maxima, borders of rows, borders of columns) of regions of uneven sizes, `pooling_ratio` on average, drawn at random."""
    return raw.FractionalMaxPool(
        value, pooling_ratio=pooling_ratio, pseudo_random=pseudo_random, overlapping=overlapping, deterministic=deterministic, seed=seed, seed2=seed2, name=name
    )


@export("nn.fractional_avg_pool")
def fractional_avg_pool(
    value: Any, pooling_ratio: Any, pseudo_random: bool = False, overlapping: bool = False, deterministic: bool = False, seed: int = 0, seed2: int = 0,
    name: str | None = None,
) -> Any:  # fmt: skip
    """(means, borders of rows, borders of columns) of regions of uneven sizes, `pooling_ratio` on average, drawn at random."""
    return raw.FractionalAvgPool(
        value, pooling_ratio=pooling_ratio, pseudo_random=pseudo_random, overlapping=overlapping, deterministic=deterministic, seed=seed, seed2=seed2, name=name
    )


# -- one dimension: a row of a flat image -----------------------------------------------------------------------------


def _pool1d(op: Any, value: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None, scope: str) -> Tensor:
    data_format = data_format or "NWC"
    if isinstance(padding, (list, tuple)) and data_format == "NCHW_VECT_C":
        raise ValueError("`data_format='NCHW_VECT_C'` is not supported with explicit padding.")
    channel = channel_index(data_format, 1)
    ksize = [1, *per_dimension(ksize, 1, channel, "ksize")]
    strides = [1, *per_dimension(strides, 1, channel, "strides")]
    axis = 1 if channel == 2 else 2
    if axis == 2:
        # Channels first: the batch stays in front, then channels, then the one row.
        ksize, strides = [ksize[1], ksize[2], 1, ksize[3]], [strides[1], strides[2], 1, strides[3]]
    more = {}
    if isinstance(padding, (list, tuple)):
        padding = [*padding[:axis], [0, 0], *padding[axis:]]
    padding, pads = explicit_paddings(padding)
    if pads:
        more["explicit_paddings"] = pads
    value = array_ops.expand_dims(value, axis)
    data_format = "NHWC" if channel == 2 else "NCHW"
    result = op(value, ksize=ksize, strides=strides, padding=padding, data_format=data_format, name=scope, **more)
    return array_ops.squeeze(result, [axis])


@export("nn.max_pool1d")
def max_pool1d(input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NWC", name: str | None = None) -> Tensor:
    """The largest value in each stretch of a (batch, width, channels) tensor."""
    with name_scope(name, "MaxPool1d", [input]) as scope:
        return _pool1d(raw.MaxPool, input, ksize, strides, padding, data_format, scope)


@export("nn.avg_pool1d")
def avg_pool1d(input: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NWC", name: str | None = None) -> Tensor:
    """The mean of each stretch of a (batch, width, channels) tensor."""
    with name_scope(name, "AvgPool1D", [input]) as scope:
        return _pool1d(raw.AvgPool, input, ksize, strides, padding, data_format, scope)


# -- three dimensions -------------------------------------------------------------------------------------------------


def _pool3d(op: Any, value: Any, ksize: Any, strides: Any, padding: str, data_format: str | None, scope: str) -> Tensor:
    data_format = data_format or "NDHWC"
    channel = channel_index(data_format, 3)
    return op(
        value, ksize=per_dimension(ksize, 3, channel, "ksize"), strides=per_dimension(strides, 3, channel, "strides"), padding=padding,
        data_format=data_format, name=scope,
    )  # fmt: skip


@export("nn.max_pool3d")
def max_pool3d(input: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NDHWC", name: str | None = None) -> Tensor:
    """The largest value in each window of planes, rows and columns."""
    with name_scope(name, "MaxPool3D", [input]) as scope:
        return _pool3d(raw.MaxPool3D, input, ksize, strides, padding, data_format, scope)


@export("nn.avg_pool3d")
def avg_pool3d(input: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NDHWC", name: str | None = None) -> Tensor:
    """The mean of each window of planes, rows and columns."""
    with name_scope(name, "AvgPool3D", [input]) as scope:
        return _pool3d(raw.AvgPool3D, input, ksize, strides, padding, data_format, scope)


# -- any number of dimensions -----------------------------------------------------------------------------------------


def _spatial_rank(input: Any, data_format: str | None) -> int:
    if data_format is not None:
        return len(data_format) - 2
    rank = input.shape.ndims
    if rank is None:
        raise ValueError("Rank of input must be known, or `data_format` given.")
    if not 3 <= rank <= 5:
        raise ValueError(f"`input.shape.rank` must be 3, 4 or 5. Received: input.shape={input.shape} of rank {rank}")
    return rank - 2


@export("nn.max_pool_v2")
def max_pool_v2(input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None, name: str | None = None) -> Tensor:
    """The largest value in each window, for one, two or three spatial dimensions."""
    input = convert_to_tensor(input, name="input")
    spatial = _spatial_rank(input, data_format)
    if spatial == 1:
        return max_pool1d(input, ksize, strides, padding, data_format or "NWC", name)
    if spatial == 3:
        return max_pool3d(input, ksize, strides, padding, data_format or "NDHWC", name)
    return max_pool2d(input, ksize, strides, padding, data_format or "NHWC", name)


@export("nn.avg_pool_v2")
def avg_pool_v2(input: Any, ksize: Any, strides: Any, padding: str, data_format: str | None = None, name: str | None = None) -> Tensor:
    """The mean of each window, for one, two or three spatial dimensions."""
    input = convert_to_tensor(input, name="input")
    spatial = _spatial_rank(input, data_format)
    if spatial == 1:
        return avg_pool1d(input, ksize, strides, padding, data_format or "NWC", name)
    if spatial == 3:
        return avg_pool3d(input, ksize, strides, padding, data_format or "NDHWC", name)
    return avg_pool(input, ksize, strides, padding, data_format or "NHWC", name)


@export("nn.pool")
def pool(
    input: Any, window_shape: Any, pooling_type: str, padding: str, dilation_rate: Any = None, strides: Any = None,
    name: str | None = None, data_format: str | None = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """Pooling of type "MAX" or "AVG" over windows that may be dilated; 1 to 3 spatial dimensions.

    `window_shape`, `strides` and `dilation_rate` name the spatial dimensions only.
    """
    dilation_rate = one_of(dilation_rate, dilations, "dilation_rate", "dilations")
    name_of = {"MAX": "max_pool", "AVG": "avg_pool"}.get(pooling_type, f"{pooling_type.lower()}_pool")
    with name_scope(name, name_of, [input]) as scope:
        input = convert_to_tensor(input, name="input")
        count = len(window_shape)
        if not 1 <= count <= 3:
            raise ValueError(f"`len(window_shape)` must be 1, 2 or 3. Received: window_shape={window_shape} of length {count}")
        input.shape.with_rank(count + 2)
        strides = [1] * count if strides is None else list(strides)
        rates = [1] * count if dilation_rate is None else _constant_rates(dilation_rate)
        dilated = any(rate != 1 for rate in rates)
        if padding == "SAME" and dilated:
            raise ValueError(
                "pooling with 'SAME' padding is not implemented for `dilation_rate` > 1. "
                f"Received: padding={padding} and dilation_rate={rates}"
            )
        if dilated and any(s > 1 for s in strides):
            raise ValueError(NOT_BOTH)
        if any(s > w for s, w in zip(strides, window_shape, strict=True)):
            raise ValueError(f"`strides` > `window_shape` not supported. Received: strides={strides} and window_shape={window_shape}")
        ops = {
            ("MAX", 1): max_pool1d, ("MAX", 2): max_pool, ("MAX", 3): max_pool3d,
            ("AVG", 1): avg_pool1d, ("AVG", 2): avg_pool, ("AVG", 3): avg_pool3d,
        }  # fmt: skip
        if (pooling_type, count) not in ops:
            raise ValueError(f"{count}-D {pooling_type} pooling is not supported.")
        default = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[count]

        def apply(value: Tensor, _: int, converted_padding: str) -> Tensor:
            window = list(window_shape)
            return ops[pooling_type, count](value, window, strides, converted_padding, data_format or default, scope)

        return with_space_to_batch(input, rates, padding, apply, filter_shape=None, data_format=data_format)


def _constant_rates(dilation_rate: Any) -> list[int]:
    value = constant_value(dilation_rate) if isinstance(dilation_rate, Tensor) else dilation_rate
    if value is None:
        raise ValueError("dilation_rate must be known when the graph is built")
    return [int(rate) for rate in value]
