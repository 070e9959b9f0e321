"""Max and average pooling with their gradients.

oneDNN's gradient of a maximum needs to know where the maxima were: a workspace that only its own forward pass writes. TF's op has no
output for that. So the gradient runs the forward pass again, unless the forward pass has kept a workspace for just this result: it
begins to do so once a gradient of the same pooling has been asked for, and the workspace lives as long as the pooled array.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.memory import address, aligned_empty
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Dims, Library, OneDnnError
from penstock.engines.onednn.plan import BYTES_PER_US, channels_last_strides, contiguous, planned, strides_of
from penstock.engines.onednn.primitives import Buffer, Maker, buffer, cached, scratch
from penstock.ops.kernels.window import Slide

LARGE = 24 << 20


class Spec(NamedTuple):
    """A pooling on fixed shapes; `alg` is POOLING_MAX or POOLING_AVG_EXCLUDE_PADDING."""

    alg: int
    batch: int
    depth: int
    slides: tuple[Slide, ...]
    channels_last: bool
    dtype: np.dtype

    @property
    def src_dims(self) -> tuple[int, ...]:
        return (self.batch, self.depth, *(s.size for s in self.slides))

    @property
    def dst_dims(self) -> tuple[int, ...]:
        return (self.batch, self.depth, *(s.out for s in self.slides))

    def shape(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        return (dims[0], *dims[2:], dims[1]) if self.channels_last else dims

    @property
    def microseconds(self) -> float:
        """What one thread takes, roughly: memory once, or a comparison for each cell of each window."""
        cells = float(np.prod(self.dst_dims)) * float(np.prod([s.window for s in self.slides]))
        return max(np.prod(self.src_dims) * self.dtype.itemsize / BYTES_PER_US, cells / 2e4)


class _Plan:
    def __init__(self, m: Maker, spec: Spec) -> None:
        self.spec = spec
        self.dtype = spec.dtype
        lay_out = channels_last_strides if spec.channels_last else strides_of
        self._src = m.md(spec.src_dims, lay_out(spec.src_dims), spec.dtype)
        self._dst = m.md(spec.dst_dims, lay_out(spec.dst_dims), spec.dtype)
        s = spec.slides
        self._geometry = (
            Dims(*(d.stride for d in s)),
            Dims(*(d.window for d in s)),
            Dims(*(0 for _ in s)),
            Dims(*(d.before for d in s)),
            Dims(*(d.after for d in s)),
        )
        self.src_shape, self.dst_shape = spec.shape(spec.src_dims), spec.shape(spec.dst_dims)

    def _forward_pd(self, m: Maker, prop: int) -> int:
        return m.pd("pooling_forward", prop, self.spec.alg, self._src, self._dst, *self._geometry, m.attr())


class _Kept:
    """Workspaces of the maxima that arrays were made of, by the arrays."""

    def __init__(self) -> None:
        self.wanted = False
        self._known: dict[int, tuple[weakref.ref, Buffer]] = {}

    def put(self, array: np.ndarray, workspace: Buffer) -> None:
        key, known = id(array), self._known
        known[key] = (weakref.ref(array, lambda _: known.pop(key, None)), workspace)

    def get(self, array: np.ndarray) -> Buffer | None:
        found = self._known.get(id(array))
        return found[1] if found is not None and found[0]() is array else None


def _kept_of(spec: Spec) -> _Kept:
    return cached((_Kept, spec), _Kept)


class Forward(_Plan):
    """y = pool(x)."""

    def __init__(self, m: Maker, spec: Spec) -> None:
        super().__init__(m, spec)
        pd = self._forward_pd(m, lib.FORWARD_INFERENCE)
        self.main = m.primitive(pd, [(lib.ARG_SRC, self._src), (lib.ARG_DST, self._dst)])
        self.kept = _kept_of(spec)
        # oneDNN's code with a workspace is the quicker one for arrays that do not fit into caches.
        is_large = np.prod(spec.src_dims) * spec.dtype.itemsize >= LARGE and all(s.stride > 1 for s in spec.slides)
        self.uses_training = bool(is_large and spec.alg == lib.POOLING_MAX)

    def run(self, x: np.ndarray) -> np.ndarray:
        x = contiguous(x)
        y = aligned_empty(self.dst_shape, self.dtype)
        training = max_training(self.main.library, self.spec) if self.kept.wanted or self.uses_training else None
        if training is None:
            self.main.run(address(x), address(y))
        elif self.kept.wanted:
            workspace = buffer(training.workspace_size)
            training.main.run(address(x), address(y), workspace.address)
            self.kept.put(y, workspace)
        else:
            workspace = scratch.take(training.workspace_size)
            training.main.run(address(x), address(y), workspace.address)
            scratch.give(workspace)
        return y


class MaxTraining(_Plan):
    """The forward pass that also writes the workspace."""

    def __init__(self, m: Maker, spec: Spec) -> None:
        super().__init__(m, spec)
        pd = self._forward_pd(m, lib.FORWARD_TRAINING)
        workspace = m.query(pd, lib.QUERY_WORKSPACE)
        self.workspace_size = m.size(workspace)
        self.dst_size = m.size(self._dst)
        self.main = m.primitive(pd, [(lib.ARG_SRC, self._src), (lib.ARG_DST, self._dst), (lib.ARG_WORKSPACE, workspace)])


class MaxBackward(_Plan):
    """dx = dy at the first maximum of each window of x."""

    def __init__(self, m: Maker, spec: Spec) -> None:
        super().__init__(m, spec)
        hint = self._forward_pd(m, lib.FORWARD_TRAINING)
        pd = m.pd("pooling_backward", spec.alg, self._src, self._dst, *self._geometry, hint, m.attr())
        workspace = m.query(pd, lib.QUERY_WORKSPACE)
        self.main = m.primitive(pd, [(lib.ARG_DIFF_DST, self._dst), (lib.ARG_WORKSPACE, workspace), (lib.ARG_DIFF_SRC, self._src)])
        training = max_training(m.library, spec)
        if training is None or training.workspace_size != m.size(workspace):
            raise OneDnnError("max pooling without a workspace", lib.UNIMPLEMENTED)
        self.training = training
        self.kept = _kept_of(spec)

    def run(self, x: np.ndarray, y: np.ndarray, dy: np.ndarray, over: bool = False) -> np.ndarray:
        """`over`: the result may be written over x, which nobody needs any more; it is read before, if at all."""
        dy = contiguous(dy)
        is_free = over and x.flags.c_contiguous and x.flags.writeable
        dx = x if is_free else aligned_empty(self.src_shape, self.dtype)
        workspace = self.kept.get(y)
        if workspace is not None:
            self.main.run(address(dy), workspace.address, address(dx))
            return dx
        self.kept.wanted = True
        x = contiguous(x)
        # Once only, as a rule; so these are none of the buffers that stay.
        again, workspace = buffer(self.training.dst_size), buffer(self.training.workspace_size)
        self.training.main.run(address(x), again.address, workspace.address)
        self.main.run(address(dy), workspace.address, address(dx))
        return dx


class AvgBackward(_Plan):
    """dx = dy shared out evenly over each window."""

    def __init__(self, m: Maker, spec: Spec) -> None:
        super().__init__(m, spec)
        hint = self._forward_pd(m, lib.FORWARD_TRAINING)
        pd = m.pd("pooling_backward", spec.alg, self._src, self._dst, *self._geometry, hint, m.attr())
        self.main = m.primitive(pd, [(lib.ARG_DIFF_DST, self._dst), (lib.ARG_DIFF_SRC, self._src)])

    def run(self, dy: np.ndarray) -> np.ndarray:
        dy = contiguous(dy)
        dx = aligned_empty(self.src_shape, self.dtype)
        self.main.run(address(dy), address(dx))
        return dx


def forward(library: Library, spec: Spec) -> Forward | None:
    return planned(Forward, library, spec.microseconds, spec)


def max_training(library: Library, spec: Spec) -> MaxTraining | None:
    return planned(MaxTraining, library, spec.microseconds, spec)


def backward(library: Library, spec: Spec) -> Any:
    kind = MaxBackward if spec.alg == lib.POOLING_MAX else AvgBackward
    return planned(kind, library, spec.microseconds, spec)
