"""LSTM and GRU layers on oneDNN's primitives, forward: all steps of a sequence in one call.

The primitives give the outputs of all steps and the last state, and keep the gates to themselves. So they compute a node only if
nothing reads its gates, which the optimiser has found out and noted (`_read`, see `pipeline.optimise.cells`); nodes whose gates a gradient
reads are NumPy's. Their order of gates is i, f, c, o and u, r, c; weights are brought into it when they are laid out. That takes as
long as some steps do, so weights must be constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.engines.memory import address, aligned_empty
from penstock.engines.onednn import library as lib
from penstock.engines.onednn.library import Library, OneDnnError
from penstock.engines.onednn.plan import FLOPS_PER_US, Reordered, contiguous, strides_of, threads_for
from penstock.engines.onednn.primitives import FLOAT32, Buffer, Maker, cached
from penstock.graph.ir import Operation
from penstock.ops.kernels.rnn import IFCO, ORDERS

Kernel = Callable[..., Any]


class Spec(NamedTuple):
    """`steps` of `batch` rows; `gates` is 4 for an LSTM, 3 for a GRU."""

    steps: int
    batch: int
    inputs: int
    cells: int
    gates: int
    peepholes: bool = False

    @property
    def microseconds(self) -> float:
        return 2.0 * self.steps * self.batch * (self.inputs + self.cells) * self.gates * self.cells / FLOPS_PER_US


class Weights(NamedTuple):
    """What a primitive reads of a layer, laid out; `bias` with the forget bias in it."""

    layer: Buffer
    iter: Buffer
    bias: np.ndarray
    peepholes: np.ndarray | None = None


class Layer:
    """One layer, left to right."""

    def __init__(self, m: Maker, spec: Spec) -> None:
        self.spec = spec
        t, n, i, c, g = spec[:5]

        def plain(*dims: int) -> int:
            return m.md(dims, strides_of(dims))

        src, dst, state, bias = plain(t, n, i), plain(t, n, c), plain(1, 1, n, c), plain(1, 1, g, c)
        wanted = m.md((1, 1, i, g, c)), m.md((1, 1, c, g, c))
        if g == 4:
            holes = plain(1, 1, 3, c) if spec.peepholes else None
            mds = (src, state, state, *wanted, holes, None, bias, dst, state, state)
            pd = m.pd("lstm_forward", lib.FORWARD_INFERENCE, lib.LEFT_TO_RIGHT, *mds, 0, m.attr())
        else:
            holes = None
            pd = m.pd("gru_forward", lib.FORWARD_INFERENCE, lib.LEFT_TO_RIGHT, src, state, *wanted, bias, dst, state, 0, m.attr())
        layer, recurrent = m.query(pd, lib.QUERY_WEIGHTS, 0), m.query(pd, lib.QUERY_WEIGHTS, 1)
        args = [(lib.ARG_SRC, src), (lib.ARG_SRC_ITER, state), (lib.ARG_WEIGHTS, layer), (lib.ARG_WEIGHTS_ITER, recurrent), (lib.ARG_BIAS, bias)]
        args += [(lib.ARG_DST, dst), (lib.ARG_DST_ITER, state)]
        if g == 4:
            args += [(lib.ARG_SRC_ITER_C, state), (lib.ARG_DST_ITER_C, state)]
        if holes is not None:
            args.append((lib.ARG_WEIGHTS_PEEPHOLE, holes))
        self.main = m.primitive(pd, args)
        self.layer, self.recurrent = Reordered(m, plain(1, 1, i, g, c), layer), Reordered(m, plain(1, 1, c, g, c), recurrent)

    def laid_out(self, w: np.ndarray, bias: np.ndarray, peepholes: np.ndarray | None = None) -> Weights:
        """`w` is (inputs + cells, gates, cells), with gates in the primitive's order."""
        i = self.spec.inputs
        return Weights(self.layer.laid_out(contiguous(w[:i])), self.recurrent.laid_out(contiguous(w[i:])), contiguous(bias), peepholes)

    def run(self, weights: Weights, x: int, h: int, y: int, last: int, c: int = 0, last_c: int = 0) -> None:
        """All but the weights are addresses; `c` and `last_c` are an LSTM's."""
        args = [x, h, weights.layer.address, weights.iter.address, address(weights.bias), y, last]
        if self.spec.gates == 4:
            args += [c, last_c]
        if weights.peepholes is not None:
            args.append(address(weights.peepholes))
        self.main.run(*args)


def layer_for(library: Library, spec: Spec) -> Layer | None:
    """The cached layer, or None if oneDNN has none. What it calls its reference code here is made of its quick products."""
    threads = threads_for(spec.microseconds)

    def make() -> Layer | None:
        try:
            with Maker(library, threads) as m:
                return Layer(m, spec)
        except OneDnnError as error:
            if error.status != lib.UNIMPLEMENTED:
                lib.log.warning("%s; NumPy computes %s", error, spec)
            return None

    return cached((Layer, threads, spec), make)


def lstm_weights(w: np.ndarray, bias: np.ndarray, order: Sequence[int], forget_bias: float) -> tuple[np.ndarray, np.ndarray]:
    """TF's weights with the gates in oneDNN's order, and the forget bias in the bias. `order` tells where i, c, f, o stand."""
    i, c, f, o = order
    gates = bias.reshape(4, -1)
    gates = gates[[i, f, c, o]]
    gates[1] += np.float32(forget_bias)
    w = w.reshape(len(w), 4, -1)
    return (w if tuple(order) == IFCO else w[:, [i, f, c, o]]), gates


def gru_weights(w_ru: np.ndarray, w_c: np.ndarray, b_ru: np.ndarray, b_c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows, cells = w_c.shape
    w = np.concatenate([w_ru.reshape(rows, 2, cells)[:, ::-1], w_c.reshape(rows, 1, cells)], 1)
    return w, np.concatenate([b_ru.reshape(2, cells)[::-1], b_c.reshape(1, cells)])


# -- kernels --------------------------------------------------------------------------------------------------------------


class _Node:
    """A node's layer and its weights, laid out once if they are constant."""

    def __init__(self, op: Operation, fallback: Kernel, first_weight: int, number: int) -> None:
        from penstock.engines.onednn.binding import is_constant

        self.op, self.fallback = op, fallback
        self.library = lib.get() if all(is_constant(t) for t in op.inputs[first_weight : first_weight + number]) else None
        self._layer: tuple[Spec | None, Layer | None] = (None, None)
        self._weights: tuple[Any, Any, Any] = (None, None, None)

    def layer(self, *spec: Any) -> Layer | None:
        """The layer of that spec; the last one is remembered."""
        known, layer = self._layer
        if known != spec:
            assert self.library is not None
            layer = layer_for(self.library, Spec(*spec))
            self._layer = (Spec(*spec), layer)
        return layer

    def weights(self, layer: Layer, arrays: tuple[np.ndarray, ...], make: Callable[[], Weights]) -> Weights:
        known, kept, value = self._weights
        # The arrays are kept alive here: the same ones are the same weights.
        if known is not layer or any(a is not b for a, b in zip(arrays, kept, strict=True)):
            value = make()
            self._weights = (layer, arrays, value)
        return value

    def guarded(self, run: Kernel) -> Kernel:
        """`run(*inputs)`, or NumPy's kernel where that gives None or fails."""

        def kernel(*inputs: Any) -> Any:
            try:
                found = run(*inputs)
            except OneDnnError as error:
                if error.status != lib.FORKED:
                    lib.log.warning("%s in '%s' (%s); NumPy computes it", error, self.op.name, self.op.type)
                found = None
            return self.fallback(*inputs) if found is None else found

        return kernel


def _fits(x: np.ndarray, rank: int, c: np.ndarray, h: np.ndarray, w: np.ndarray, b: np.ndarray) -> bool:
    """Whether shapes are as they must be; if not, NumPy's kernel says so."""
    if x.ndim != rank or h.ndim != 2 or c.shape != h.shape or not x.size or not h.size:
        return False
    return h.shape[0] == x.shape[-2] and w.shape == (x.shape[-1] + h.shape[1], 4 * h.shape[1]) and b.shape == (4 * h.shape[1],)


def _empty(*shape: int) -> np.ndarray:
    return aligned_empty(shape, FLOAT32)


def _block(op: Operation, fallback: Kernel) -> Kernel | None:
    """BlockLSTM, BlockLSTMV2 and LSTMBlockCell, if nothing but `cs` and `h` is read."""
    read = op.attrs.get("_read")
    is_cell = op.type == "LSTMBlockCell"
    if read is None or op.attrs["T"].np != FLOAT32 or op.attrs["cell_clip"] > 0:
        return None
    node = _Node(op, fallback, 3 if is_cell else 4, 5)
    if node.library is None:
        return None
    order, forget_bias, holes = ORDERS[op.type], op.attrs.get("forget_bias", 0.0), op.attrs["use_peephole"]
    wants_states = b"cs" in read

    def run(*inputs: Any) -> Any:
        time, (x, c, h, w, wci, wcf, wco, b) = (1, inputs) if is_cell else (int(inputs[0]), inputs[1:])
        if not _fits(x, 2 if is_cell else 3, c, h, w, b) or (not is_cell and time != len(x)):
            return None
        batch, inputs_, cells = x.shape[-2], x.shape[-1], h.shape[1]
        if holes and not wci.shape == wcf.shape == wco.shape == (cells,):
            return None
        at_once = 1 if wants_states else time
        layer = node.layer(at_once, batch, inputs_, cells, 4, holes)
        if layer is None:
            return None

        def make() -> Weights:
            return layer.laid_out(*lstm_weights(w, b, order, forget_bias), np.stack([wci, wcf, wco]) if holes else None)

        weights = node.weights(layer, (w, b, wci, wcf, wco), make)
        x, h, c = contiguous(x), contiguous(h), contiguous(c)
        y, last = _empty(time, batch, cells), _empty(batch, cells)
        states = _empty(time, batch, cells) if wants_states else _empty(batch, cells)
        if not wants_states:
            layer.run(weights, address(x), address(h), address(y), address(last), address(c), address(states))
            return [y[0] if is_cell else y] * 7
        row, step = 4 * batch * cells, 4 * batch * inputs_
        at_x, at_y, at_c, at_h, before = address(x), address(y), address(states), address(h), address(c)
        for t in range(time):
            layer.run(weights, at_x + t * step, at_h, at_y + t * row, address(last), before, at_c + t * row)
            at_h, before = at_y + t * row, at_c + t * row
        if is_cell:
            y, states = y[0], states[0]
        return [y, states, *[y] * 5]

    return node.guarded(run)


def lstm_steps(op: Operation, fallback: Kernel) -> Kernel | None:
    """_LSTMSteps: what the optimiser makes of an unrolled LSTM."""
    steps = op.attrs["N"]
    node = _Node(op, fallback, steps + 2, 2)
    if node.library is None:
        return None
    order, forget_bias = op.attrs["order"], op.attrs["forget_bias"]

    def run(*inputs: Any) -> Any:
        xs, (c, h, w, b) = inputs[:steps], inputs[steps:]
        first = xs[0]
        if not _fits(first, 2, c, h, w, b) or any(x.shape != first.shape for x in xs):
            return None
        (batch, width), cells = first.shape, h.shape[1]
        layer = node.layer(steps, batch, width, cells, 4, False)
        if layer is None:
            return None
        weights = node.weights(layer, (w, b), lambda: layer.laid_out(*lstm_weights(w, b, order, forget_bias)))
        x, h, c = _in_a_row(xs), contiguous(h), contiguous(c)
        y, last, state = _empty(steps, batch, cells), _empty(batch, cells), _empty(batch, cells)
        layer.run(weights, address(x), address(h), address(y), address(last), address(c), address(state))
        return [*y[::-1], state]

    return node.guarded(run)


def _in_a_row(xs: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of one shape, one after the other in memory: as they are if they lie there already, as those of Unpack do."""
    first = xs[0]
    start, size = address(first), first.nbytes
    if all(x.flags.c_contiguous and address(x) == start + i * size for i, x in enumerate(xs)):
        return first
    return np.stack(xs)


def gru_cell(op: Operation, fallback: Kernel) -> Kernel | None:
    """GRUBlockCell, if nothing but `h` is read."""
    node = _Node(op, fallback, 2, 4)
    if node.library is None or op.attrs.get("_read") != [b"h"]:
        return None

    def run(x: np.ndarray, h: np.ndarray, w_ru: np.ndarray, w_c: np.ndarray, b_ru: np.ndarray, b_c: np.ndarray) -> Any:
        if x.ndim != 2 or h.ndim != 2 or not x.size or not h.size or len(x) != len(h):
            return None
        (batch, width), cells = x.shape, h.shape[1]
        rows = width + cells
        if w_ru.shape != (rows, 2 * cells) or w_c.shape != (rows, cells) or b_ru.shape != (2 * cells,) or b_c.shape != (cells,):
            return None
        layer = node.layer(1, batch, width, cells, 3, False)
        if layer is None:
            return None
        weights = node.weights(layer, (w_ru, w_c, b_ru, b_c), lambda: layer.laid_out(*gru_weights(w_ru, w_c, b_ru, b_c)))
        x, h = contiguous(x), contiguous(h)
        y, last = _empty(batch, cells), _empty(batch, cells)
        layer.run(weights, address(x), address(h), address(y), address(last))
        return [y] * 4

    return node.guarded(run)


MAKERS: dict[str, Callable[[Operation, Kernel], Kernel | None]] = {
    "BlockLSTM": _block,
    "BlockLSTMV2": _block,
    "GRUBlockCell": gru_cell,
    "LSTMBlockCell": _block,
    "_LSTMSteps": lstm_steps,
}
