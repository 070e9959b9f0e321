"""Arithmetic of sliding windows: output sizes and padding, for kernels and for shape rules.

Convolutions, pools and morphology slide a window over each spatial dimension. Two views of one rule:

- `static_size` works on raw dimensions, in which None is unknown, and raises ValueError in the words of TensorFlow's
  shape functions;
- `slide` works on the sizes at run time and raises InvalidArgumentError in the words of TensorFlow's kernels.

Attributes that are written per dimension of the tensor (`strides`, `ksize`, `dilations`, `explicit_paddings`) are
split by `Layout` into their batch, channel and spatial parts.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from penstock import errors


class Slide(NamedTuple):
    """One dimension of a sliding window: `out` positions over an input with `before` and `after` cells of padding."""

    size: int
    window: int
    stride: int
    dilation: int
    out: int
    before: int
    after: int

    @property
    def reach(self) -> int:
        """How many cells, padding included, the windows touch."""
        return (self.out - 1) * self.stride + (self.window - 1) * self.dilation + 1 if self.out else 0

    @property
    def is_plain(self) -> bool:
        """True if every window is exactly one cell of an input without padding."""
        return self.window == 1 and not self.before and not self.after


class Layout:
    """Where batch, channel and spatial dimensions stand in a data format such as b"NHWC"."""

    __slots__ = ("channel", "format", "from_last", "rank", "spatial", "to_last")

    def __init__(self, data_format: bytes) -> None:
        text = data_format.decode()
        self.format = text
        self.rank = len(text)
        self.channel = text.index("C")
        self.spatial = tuple(i for i, c in enumerate(text) if c not in "NC")
        # Permutations to and from the channels-last order in which the kernels compute.
        self.to_last = (0, *self.spatial, self.channel)
        self.from_last = (
            0,
            *(1 + self.spatial.index(i) if i in self.spatial else self.rank - 1 for i in range(1, self.rank)),
        )

    @property
    def channels_last(self) -> bool:
        return self.channel == self.rank - 1

    def of_spatial(self, values: Sequence) -> tuple:
        """The spatial entries of a per-dimension sequence."""
        return tuple(values[i] for i in self.spatial)

    def pairs(self, paddings: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """The spatial (before, after) pairs of an `explicit_paddings` attribute; zeros if it is empty."""
        if not paddings:
            return ((0, 0),) * len(self.spatial)
        return tuple((paddings[2 * i], paddings[2 * i + 1]) for i in self.spatial)

    def build(self, batch, spatial: Sequence, channel) -> tuple:
        """A shape in this format."""
        last = (batch, *spatial, channel)
        return tuple(last[i] for i in self.from_last)


_LAYOUTS: dict[bytes, Layout] = {}


def layout(data_format: bytes) -> Layout:
    """The Layout of a data format, made once."""
    found = _LAYOUTS.get(data_format)
    if found is None:
        if data_format == b"NCHW_VECT_C":
            raise errors.UnimplementedError("The data format NCHW_VECT_C is for GPUs; use NHWC or NCHW.")
        found = _LAYOUTS[data_format] = Layout(data_format)
    return found


def static_size(
    size: int | None,
    window: int | None,
    stride: int,
    padding: bytes,
    dilation: int = 1,
    pads: tuple[int, int] = (0, 0),
) -> int | None:
    """How many windows fit, as far as it is known.

    >>> static_size(5, 3, 2, b"SAME"), static_size(5, 3, 2, b"VALID"), static_size(None, 3, 2, b"SAME")
    (3, 2, None)
    """
    if stride <= 0:
        raise ValueError(f"Stride must be > 0, but got {stride}")
    if dilation < 1:
        raise ValueError(f"Dilation rate must be >= 1, but got {dilation}")
    if size is None:
        return None
    if padding == b"SAME":
        return -(-size // stride)
    if window is None:
        return None
    reach, total = (window - 1) * dilation + 1, size + pads[0] + pads[1]
    if total < reach:
        raise ValueError(f"Negative dimension size caused by subtracting {reach} from {total}")
    return (total - reach) // stride + 1


@functools.lru_cache(4096)
def slide(
    size: int, window: int, stride: int, padding: bytes, dilation: int = 1, pads: tuple[int, int] = (0, 0)
) -> Slide:
    """The window positions over one dimension; SAME puts the odd cell of padding after."""
    if stride <= 0:
        raise errors.InvalidArgumentError(f"Stride must be > 0, but got {stride}")
    if dilation < 1:
        raise errors.InvalidArgumentError(f"Dilation rate must be >= 1, but got {dilation}")
    reach = (window - 1) * dilation + 1
    if padding == b"SAME":
        out = -(-size // stride)
        missing = max(0, (out - 1) * stride + reach - size)
        before, after = missing // 2, missing - missing // 2
    else:
        before, after = pads if padding == b"EXPLICIT" else (0, 0)
        # Division rounds towards zero, as in C: a window that is a little too long gives an empty output.
        room = size + before + after - reach + stride
        out = room // stride if room >= 0 else -(-room // stride)
        if out < 0:
            raise errors.InvalidArgumentError(
                f"Computed output size would be negative: {out} "
                f"[input_size: {size}, effective_filter_size: {reach}, stride: {stride}]"
            )
    return Slide(size, window, stride, dilation, out, before, after)


def slides_of(
    lay: Layout,
    spatial: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    padding: bytes,
    dilations: Sequence[int] | None = None,
    explicit_paddings: Sequence[int] = (),
) -> list[Slide]:
    """One Slide for each spatial dimension; `strides` and `dilations` are given per dimension of the tensor."""
    return [
        slide(size, k, stride, padding, dilation, pads)
        for size, k, stride, dilation, pads in zip(
            spatial,
            window,
            lay.of_spatial(strides),
            lay.of_spatial(dilations or (1,) * lay.rank),
            lay.pairs(explicit_paddings),
            strict=True,
        )
    ]


def shape_vector(sizes, label: str, what: str) -> tuple[int, ...]:
    """The shape that an op was given as a tensor (`input_sizes` and the like)."""
    if sizes.ndim != 1:
        raise errors.InvalidArgumentError(f"{label}: {what} input must be 1-dim, not {sizes.ndim}")
    shape = tuple(int(size) for size in sizes)
    for size in shape:
        if size < 0:
            raise errors.InvalidArgumentError(f"Dimension {size} must be >= 0")
    return shape


def check_explicit_paddings(padding: bytes, explicit_paddings: Sequence[int], lay: Layout) -> None:
    """ValueError in TF's words unless `explicit_paddings` fits `padding` and the format."""
    if padding != b"EXPLICIT":
        if explicit_paddings:
            raise ValueError("explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT")
        return
    if len(explicit_paddings) != 2 * lay.rank:
        raise ValueError(
            f"explicit_paddings attribute must contain {2 * lay.rank} values, but got: {len(explicit_paddings)}"
        )
    if any(p < 0 for p in explicit_paddings):
        raise ValueError("All elements of explicit_paddings must be nonnegative")
    if any(explicit_paddings[2 * i + side] for i in (0, lay.channel) for side in (0, 1)):
        raise ValueError("Nonzero explicit padding in the batch or depth dimensions is not supported")


def show(shape: Sequence[int]) -> str:
    """A shape as TF prints it in messages: [1,2,3]."""
    return "[" + ",".join(map(str, shape)) + "]"
