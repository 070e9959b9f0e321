"""Sliding windows the slow way: plain loops over positions and cells, in float64, to check the fast kernels against."""

import itertools

import numpy as np


def geometry(size, window, stride, dilation, padding):
    """(positions, first cell of window 0): padding is "SAME", "VALID" or a (before, after) pair."""
    reach = (window - 1) * dilation + 1
    if padding == "SAME":
        out = -(-size // stride)
        return out, -(max((out - 1) * stride + reach - size, 0) // 2)
    before, after = (0, 0) if padding == "VALID" else padding
    return (size + before + after - reach) // stride + 1, -before


def windows(spatial, window, strides, dilations, paddings):
    """Yields (output position, [(cell of the window, input position), ...]) with cells inside the input only."""
    axes = [geometry(*args) for args in zip(spatial, window, strides, dilations, paddings, strict=True)]
    for position in itertools.product(*(range(out) for out, _ in axes)):
        cells = []
        for cell in itertools.product(*(range(k) for k in window)):
            at = tuple(
                first + p * s + k * d for (_, first), p, s, k, d in zip(axes, position, strides, cell, dilations, strict=True)
            )
            if all(0 <= a < size for a, size in zip(at, spatial, strict=True)):
                cells.append((cell, at))
        yield position, cells


def out_shape(spatial, window, strides, dilations, paddings):
    return tuple(geometry(*args)[0] for args in zip(spatial, window, strides, dilations, paddings, strict=True))


def convolve(x, w, strides, dilations, paddings):
    """Channels-last convolution, grouped if the filter has fewer input channels."""
    spatial, window = x.shape[1:-1], w.shape[:-2]
    y = np.zeros((x.shape[0], *out_shape(spatial, window, strides, dilations, paddings), w.shape[-1]))
    groups = x.shape[-1] // w.shape[-2]
    ins, outs = w.shape[-2], w.shape[-1] // groups
    for position, cells in windows(spatial, window, strides, dilations, paddings):
        for cell, at in cells:
            for g in range(groups):
                part = x[(slice(None), *at, slice(g * ins, (g + 1) * ins))].astype(float)
                weights = w[cell][:, g * outs : (g + 1) * outs].astype(float)
                y[(slice(None), *position, slice(g * outs, (g + 1) * outs))] += part @ weights
    return y


def depthwise(x, w, strides, dilations, paddings):
    spatial, window = x.shape[1:-1], w.shape[:-2]
    y = np.zeros((x.shape[0], *out_shape(spatial, window, strides, dilations, paddings), w.shape[-2], w.shape[-1]))
    for position, cells in windows(spatial, window, strides, dilations, paddings):
        for cell, at in cells:
            y[(slice(None), *position)] += x[(slice(None), *at)].astype(float)[..., None] * w[cell].astype(float)
    return y.reshape(*y.shape[:-2], -1)


def pool(x, window, strides, paddings, reduce):
    """`reduce` turns an array (cells, batch, channels) into (batch, channels)."""
    spatial, ones = x.shape[1:-1], (1,) * len(window)
    y = np.zeros((x.shape[0], *out_shape(spatial, window, strides, ones, paddings), x.shape[-1]))
    for position, cells in windows(spatial, window, strides, ones, paddings):
        y[(slice(None), *position)] = reduce(np.stack([x[(slice(None), *at)].astype(float) for _, at in cells]))
    return y


def pool_grad(x, dy, window, strides, paddings, kind):
    """Gradient of max pooling (to the first maximum) or average pooling."""
    spatial, ones = x.shape[1:-1], (1,) * len(window)
    dx = np.zeros(x.shape)
    for position, cells in windows(spatial, window, strides, ones, paddings):
        for n, c in itertools.product(range(x.shape[0]), range(x.shape[-1])):
            g = dy[(n, *position, c)]
            if kind == "avg":
                for _, at in cells:
                    dx[(n, *at, c)] += g / len(cells)
            else:
                values = [x[(n, *at, c)] for _, at in cells]
                dx[(n, *cells[int(np.argmax(values))][1], c)] += g
    return dx
