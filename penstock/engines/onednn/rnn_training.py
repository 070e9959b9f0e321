"""Unrolled LSTMs that are trained, on oneDNN's primitives: all steps forward in one call, all gradients in another.

The forward primitive writes what the backward one needs into a workspace, which is an output of the forward node. Weights change in every
step of the training, so they are read as they lie, but for the order of their gates: oneDNN's is i, f, c, o. The copy in that order
stands behind the workspace, for the backward primitive wants it too, laid out across; and so do the inputs of all steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.engines.memory import ALIGNMENT, address, aligned_empty
from penstock.engines.onednn import crowd
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Library, OneDnnError
from penstock.engines.onednn.plan import contiguous, strides_of, threads_for
from penstock.engines.onednn.primitives import FLOAT32, Maker, Primitive, cached, scratch
from penstock.engines.onednn.rnn import Spec
from penstock.graph.ir import Operation

Kernel = Callable[..., Any]

_BYTES, _INT64 = np.dtype(np.uint8), np.dtype(np.int64)
_marks = itertools.count(1)


def _rounded(size: int) -> int:
    return size + -size % ALIGNMENT


def _across(reorder: Primitive | None, source: int, target: int) -> int:
    """Where weights are in the layout that `reorder` makes; None if it is the one that they have."""
    if reorder is None:
        return source
    reorder.run(source, target)
    return target


class Training:
    """Both primitives of one layer, left to right."""

    def __init__(self, m: Maker, spec: Spec) -> None:
        self.spec = spec
        t, n, i, c, g = spec[:5]

        def plain(*dims: int) -> int:
            return m.md(dims, strides_of(dims))

        src, dst, state, bias = plain(t, n, i), plain(t, n, c), plain(1, 1, n, c), plain(1, 1, g, c)
        layer, recurrent = plain(1, 1, i, g, c), plain(1, 1, c, g, c)
        given = (src, state, state, layer, recurrent, None, None, bias, dst, state, state)
        pd = m.pd("lstm_forward", lib.FORWARD_TRAINING, lib.LEFT_TO_RIGHT, *given, 0, m.attr())
        workspace = m.query(pd, lib.QUERY_WORKSPACE)
        values = [(lib.ARG_SRC, src), (lib.ARG_SRC_ITER, state), (lib.ARG_SRC_ITER_C, state), (lib.ARG_BIAS, bias)]
        values += [(lib.ARG_DST, dst), (lib.ARG_DST_ITER, state), (lib.ARG_DST_ITER_C, state), (lib.ARG_WORKSPACE, workspace)]
        self.forward = m.primitive(pd, [*values, (lib.ARG_WEIGHTS, layer), (lib.ARG_WEIGHTS_ITER, recurrent)])

        wanted = (src, state, state, m.md((1, 1, i, g, c)), m.md((1, 1, c, g, c)), None, None, bias, dst, state, state)
        back = m.pd("lstm_backward", lib.BACKWARD, lib.LEFT_TO_RIGHT, *wanted, *given, lib.RNN_OVERWRITE, pd, m.attr())
        across, across_recurrent = m.query(back, lib.QUERY_WEIGHTS, 0), m.query(back, lib.QUERY_WEIGHTS, 1)
        slopes = [(lib.ARG_DIFF_DST, dst), (lib.ARG_DIFF_DST_ITER, state), (lib.ARG_DIFF_DST_ITER_C, state), (lib.ARG_DIFF_SRC, src)]
        slopes += [(lib.ARG_DIFF_SRC_ITER, state), (lib.ARG_DIFF_SRC_ITER_C, state), (lib.ARG_DIFF_BIAS, bias)]
        slopes += [(lib.ARG_DIFF_WEIGHTS, layer), (lib.ARG_DIFF_WEIGHTS_ITER, recurrent)]
        self.backward = m.primitive(back, [*values, (lib.ARG_WEIGHTS, across), (lib.ARG_WEIGHTS_ITER, across_recurrent), *slopes])
        self.across = m.reorder(layer, across), m.reorder(recurrent, across_recurrent)
        self.sizes = _rounded(m.size(across)), _rounded(m.size(across_recurrent))
        # What is kept for the gradient: oneDNN's workspace, the weights, the inputs, and a mark: no other layer can read it.
        self.weights_at = _rounded(m.size(workspace))
        self.x_at = self.weights_at + _rounded(4 * (i + c) * g * c)
        self.mark_at = self.x_at + _rounded(4 * t * n * i)
        self.kept = self.mark_at + _INT64.itemsize
        self.mark = next(_marks)

    def is_mine(self, workspace: np.ndarray) -> bool:
        """Whether this layer, and no other engine nor one for another number of threads, computed the steps."""
        return workspace.size == self.kept and np.ndarray((), _INT64, workspace, self.mark_at) == self.mark

    def run(self, xs: Sequence[np.ndarray], c: np.ndarray, h: np.ndarray, w: np.ndarray, bias: np.ndarray, gates: Sequence[int]) -> list[np.ndarray]:
        """The outputs of all steps, the last state, and what the gradient needs. `gates` tells where oneDNN's gates stand in the weights."""
        t, n, i, cells, _ = self.spec[:5]
        y, last, state = aligned_empty((t, n, cells), FLOAT32), scratch.take(4 * n * cells), aligned_empty((n, cells), FLOAT32)
        workspace = aligned_empty((self.kept,), _BYTES)
        np.ndarray((), _INT64, workspace, self.mark_at)[...] = self.mark
        start = address(workspace)
        ours = np.ndarray((i + cells, 4, cells), FLOAT32, workspace, self.weights_at)
        theirs = w.reshape(i + cells, 4, cells)
        for k, gate in enumerate(gates):
            ours[:, k] = theirs[:, gate]
        _line_up(xs, np.ndarray((t, n, i), FLOAT32, workspace, self.x_at))
        weights = start + self.weights_at
        values = (start + self.x_at, address(h), address(c), address(bias), address(y), last.address, address(state), start)
        self.forward.run(*values, weights, weights + 16 * i * cells)
        scratch.give(last)
        return [y, state, workspace]

    def run_back(
        self, c: np.ndarray, h: np.ndarray, bias: np.ndarray, y: np.ndarray, state: np.ndarray, workspace: np.ndarray, dy: np.ndarray, dc: np.ndarray,
        gates: Sequence[int],
    ) -> list[np.ndarray]:  # fmt: skip
        """Gradients of w, bias, all x, h and c."""
        t, n, i, cells, _ = self.spec[:5]
        start = address(workspace)
        weights, split = start + self.weights_at, 16 * i * cells
        pad = scratch.take(sum(self.sizes))
        across = _across(self.across[0], weights, pad.address)
        across_recurrent = _across(self.across[1], weights + split, pad.address + self.sizes[0])
        zeros = np.zeros((n, cells), np.float32)
        dx, dh, dc_first = aligned_empty((t, n, i), FLOAT32), aligned_empty((n, cells), FLOAT32), aligned_empty((n, cells), FLOAT32)
        d_bias, theirs = np.empty((4, cells), np.float32), aligned_empty((i + cells, 4, cells), FLOAT32)
        # The last output's gradient is that of the last step: as the output of a layer, and not once more as its state.
        last = address(y) + 4 * (t - 1) * n * cells
        values = (start + self.x_at, address(h), address(c), address(bias), address(y), last, address(state), start)
        slopes = (address(dy), address(zeros), address(dc), address(dx), address(dh), address(dc_first), address(d_bias), address(theirs), address(theirs) + split)
        self.backward.run(*values, across, across_recurrent, *slopes)
        scratch.give(pad)
        dw, db = aligned_empty((i + cells, 4 * cells), FLOAT32), np.empty((4, cells), np.float32)
        ours = dw.reshape(i + cells, 4, cells)
        for k, gate in enumerate(gates):
            ours[:, gate] = theirs[:, k]
            db[gate] = d_bias[k]
        return [dw, db.reshape(-1), *dx, dh, dc_first]


def _line_up(xs: Sequence[np.ndarray], target: np.ndarray) -> None:
    """Copies arrays of one shape into `target`, one after the other; in one go if they are slices of one array, as those of Unpack."""
    first = xs[0]
    base, start = first.base, address(first)
    step = address(xs[-1]) - start
    if len(xs) > 1 and isinstance(base, np.ndarray) and base.flags.c_contiguous and step % (len(xs) - 1) == 0:
        step //= len(xs) - 1
        if step > 0 and all(x.base is base and x.strides == first.strides and address(x) == start + k * step for k, x in enumerate(xs)):
            target[...] = np.ndarray((len(xs), *first.shape), first.dtype, base, start - address(base), (step, *first.strides))
            return
    np.stack(xs, out=target)


def training_for(library: Library, spec: Spec) -> Training | None:
    """The cached primitives, or None if oneDNN has none. What it calls its reference code here is made of its quick products."""
    threads = threads_for(spec.microseconds)

    def make() -> Training | None:
        try:
            with Maker(library, threads) as m:
                return Training(m, spec)
        except OneDnnError as error:
            if error.status != lib.UNIMPLEMENTED:
                lib.log.warning("%s; NumPy computes %s", error, spec)
            return None

    return cached((Training, threads, spec), make)


# -- kernels --------------------------------------------------------------------------------------------------------------


class _Node:
    """What both kernels know of their node: its steps, and how the gates lie."""

    def __init__(self, op: Operation) -> None:
        i, c, f, o = op.attrs["order"]
        self.op, self.steps, self.gates, self.forget_bias = op, op.attrs["N"], (i, f, c, o), np.float32(op.attrs["forget_bias"])
        self._known: tuple[Any, Training | None] = (None, None)

    def layer(self, inputs: Sequence[np.ndarray]) -> Training | None:
        """The primitives for these inputs; the last ones are remembered."""
        x, c, h, w, b = inputs[0], *inputs[self.steps : self.steps + 4]
        shape = x.shape
        if any(one.shape != shape for one in inputs[: self.steps]):
            return None
        key = (shape, c.shape, h.shape, w.shape, b.shape, crowd.stamp())
        known, found = self._known
        if known != key:
            found = None
            library = lib.get()
            fits = x.ndim == h.ndim == 2 and x.size and h.size and len(x) == len(h) and c.shape == h.shape
            if library is not None and fits and w.shape == (x.shape[1] + h.shape[1], 4 * h.shape[1]) and b.shape == w.shape[1:]:
                found = training_for(library, Spec(self.steps, len(x), x.shape[1], h.shape[1], 4))
            self._known = (key, found)
        return found

    def bias(self, b: np.ndarray) -> np.ndarray:
        gates = b.reshape(4, -1)[list(self.gates)]
        gates[1] += self.forget_bias
        return gates

    def guarded(self, run: Kernel, fallback: Kernel) -> Kernel:
        """`run(layer, *inputs)`, or NumPy's kernel where there is no layer or it fails."""

        def kernel(*inputs: Any) -> Any:
            layer = self.layer(inputs)
            if layer is not None:
                try:
                    return run(layer, *inputs)
                except OneDnnError as error:
                    if error.status != lib.FORKED:
                        lib.log.warning("%s in '%s' (%s); NumPy computes it", error, self.op.name, self.op.type)
            return fallback(*inputs)

        return kernel


def lstm_training(op: Operation, fallback: Kernel) -> Kernel | None:
    """_LSTMTraining: the outputs of all steps, the last one first; the last state; all outputs in one array; the workspace."""
    node = _Node(op)
    steps, gates = node.steps, node.gates

    def run(layer: Training, *inputs: Any) -> Any:
        c, h, w, b = inputs[steps:]
        y, state, workspace = layer.run(inputs[:steps], contiguous(c), contiguous(h), contiguous(w), node.bias(b), gates)
        return [*y[::-1], state, y, workspace]

    return node.guarded(run, fallback)


def lstm_training_gradient(op: Operation, fallback: Kernel) -> Kernel | None:
    """_LSTMTrainingGrad: gradients of w, b, all x, and the first h and c."""
    node = _Node(op)
    steps, gates, at = node.steps, node.gates, op.attrs["dh_steps"]
    number = len(at)

    def run(layer: Training, *inputs: Any) -> Any:
        (c, h, w, b, y, state, workspace), slopes = inputs[steps : steps + 7], inputs[steps + 7 :]
        c, h, bias = contiguous(c), contiguous(h), node.bias(b)
        if not layer.is_mine(workspace):
            y, state, workspace = layer.run(inputs[:steps], c, h, contiguous(w), bias, gates)
        dy = np.zeros((steps, *h.shape), np.float32)
        for step, slope in zip(at, slopes, strict=False):
            dy[step] += slope
        dc = np.zeros(h.shape, np.float32)
        for slope in slopes[number:]:
            dc += slope
        return layer.run_back(c, h, bias, contiguous(y), contiguous(state), workspace, dy, dc, gates)

    return node.guarded(run, fallback)


MAKERS: dict[str, Callable[[Operation, Kernel], Kernel | None]] = {
    "_LSTMTraining": lstm_training,
    "_LSTMTrainingGrad": lstm_training_gradient,
}
