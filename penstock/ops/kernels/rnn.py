"""LSTM and GRU cells in one kernel each, alone and over all steps of a sequence, and their gradients.

Gates of an LSTM lie side by side in the columns of the weights: i, c, f, o (`ICFO`), in BlockLSTMV2 i, f, c, o (`IFCO`). The rows are
those of the input first, then those of the previous output. Over a sequence, the inputs of all steps are multiplied at once, and
only the products with the previous output remain for the loop.

Half is widened to float32 and rounded at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.kernels.numeric import column_sums, narrow, widen
from penstock.shapes import format_dims

ICFO, IFCO = (0, 1, 2, 3), (0, 2, 1, 3)
"""Where the gates i, c, f, o stand among the four columns of blocks."""
ORDERS = {"LSTMBlockCell": ICFO, "BlockLSTM": ICFO, "BlockLSTMV2": IFCO}


def sigmoid(x: np.ndarray) -> np.ndarray:
    """In place."""
    np.negative(x, out=x)
    np.exp(x, out=x)
    x += 1
    return np.reciprocal(x, out=x)


def _expect(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise InvalidArgumentError(f"{what}: {found} vs. {expected}")


def _rank(name: str, x: Any, rank: int) -> None:
    if np.ndim(x) != rank:
        raise InvalidArgumentError(f"{name} must be {rank}D")


def check_lstm(batch: int, inputs: int, cs_prev: Any, h_prev: Any, w: Any, wci: Any, wcf: Any, wco: Any, b: Any, use_peephole: bool) -> int:
    """The number of cells; InvalidArgumentError if the shapes do not fit."""
    for name, x, rank in (("cs_prev", cs_prev, 2), ("h_prev", h_prev, 2), ("w", w, 2), ("b", b, 1)):
        _rank(name, x, rank)
    cells = cs_prev.shape[1]
    for name, x in (("cs_prev", cs_prev), ("h_prev", h_prev)):
        _expect(f"{name}.dims(0) != batch_size", x.shape[0], batch)
        _expect(f"{name}.dims(1) != cell_size", x.shape[1], cells)
    _expect("w.dim_size(0) != input_size + cell_size", w.shape[0], inputs + cells)
    _expect("w.dim_size(1) != cell_size * 4", w.shape[1], 4 * cells)
    _expect("b.dim_size(0) != cell_size * 4", b.shape[0], 4 * cells)
    if use_peephole:
        for name, x in (("wci", wci), ("wcf", wcf), ("wco", wco)):
            if np.shape(x) != (cells,):
                raise InvalidArgumentError(f"{name} must have shape [{cells}], got {format_dims(np.shape(x))}")
    return cells


class Step:
    """One step of an LSTM: from the sums of gates and the previous state to i, cs, f, o, ci, co, h."""

    def __init__(self, cells: int, order: tuple[int, ...], forget_bias: float, cell_clip: float, peepholes: tuple[Any, Any, Any] | None) -> None:
        self.cuts = [slice(k * cells, (k + 1) * cells) for k in order]
        self.forget_bias = np.float32(forget_bias)
        self.clip = np.float32(cell_clip)
        self.peepholes = peepholes

    def run(self, gates: np.ndarray, cs_prev: np.ndarray) -> tuple[np.ndarray, ...]:
        """`gates` (batch, 4 cells) is overwritten."""
        i, ci, f, o = (gates[:, cut] for cut in self.cuts)
        wci, wcf, wco = self.peepholes or (None, None, None)
        if self.forget_bias:
            f += self.forget_bias
        if wci is not None:
            i += cs_prev * wci
            f += cs_prev * wcf
        i, f, ci = sigmoid(i), sigmoid(f), np.tanh(ci, out=ci)
        cs = ci * i
        cs += cs_prev * f
        if self.clip > 0:
            np.clip(cs, -self.clip, self.clip, out=cs)
        if wco is not None:
            o += cs * wco
        o = sigmoid(o)
        co = np.tanh(cs)
        return i, cs, f, o, ci, co, co * o


def lstm_cell(x: Any, cs_prev: Any, h_prev: Any, w: Any, wci: Any, wcf: Any, wco: Any, b: Any, *, forget_bias: float, cell_clip: float,
              use_peephole: bool) -> list[Any]:  # fmt: skip
    """LSTMBlockCell."""
    _rank("x", x, 2)
    if not cs_prev.size:  # TF computes no rows at all in the other ops, but not here
        raise InvalidArgumentError(f"cs_prev_tensor is empty, has shape: ({','.join(map(str, cs_prev.shape))}).")
    cells = check_lstm(x.shape[0], x.shape[1], cs_prev, h_prev, w, wci, wcf, wco, b, use_peephole)
    dtype, inputs = x.dtype, x.shape[1]
    x, cs_prev, h_prev, w, wci, wcf, wco, b = map(widen, (x, cs_prev, h_prev, w, wci, wcf, wco, b))
    gates = np.matmul(x, w[:inputs])
    gates += np.matmul(h_prev, w[inputs:])
    gates += b
    step = Step(cells, ICFO, forget_bias, cell_clip, (wci, wcf, wco) if use_peephole else None)
    return [narrow(np.ascontiguousarray(v), dtype) for v in step.run(gates, cs_prev)]


def lstm_cell_gradient(x: Any, cs_prev: Any, h_prev: Any, w: Any, wci: Any, wcf: Any, wco: Any, b: Any, i: Any, cs: Any, f: Any, o: Any, ci: Any, co: Any,
                       cs_grad: Any, h_grad: Any, *, use_peephole: bool) -> list[Any]:  # fmt: skip
    """LSTMBlockCellGrad."""
    _rank("x", x, 2)
    cells = check_lstm(x.shape[0], x.shape[1], cs_prev, h_prev, w, wci, wcf, wco, b, use_peephole)
    for name, value in (("i", i), ("cs", cs), ("f", f), ("o", o), ("ci", ci), ("co", co), ("cs_grad", cs_grad), ("h_grad", h_grad)):
        if np.shape(value) != cs_prev.shape:
            raise InvalidArgumentError(f"{name} must have shape {format_dims(cs_prev.shape)}, got {format_dims(np.shape(value))}")
    dtype = x.dtype
    peepholes = tuple(map(widen, (wci, wcf, wco))) if use_peephole else None
    d_gates = np.empty((x.shape[0], 4 * cells), np.float32)
    saved = tuple(map(widen, (i, cs, f, o, ci, co)))
    d_cs_prev = _step_gradient(d_gates, ICFO, saved, widen(cs_prev), widen(cs_grad), widen(h_grad), peepholes)
    holes = _peephole_gradients(d_gates, ICFO, widen(cs_prev), saved[1]) if use_peephole else [np.zeros(np.shape(v), dtype) for v in (wci, wcf, wco)]
    return [narrow(v, dtype) for v in (d_cs_prev, d_gates, *holes)]


def _step_gradient(d_gates: np.ndarray, order: tuple[int, ...], saved: tuple[Any, ...], cs_prev: Any, cs_grad: Any, h_grad: Any, peepholes: Any) -> np.ndarray:
    """Writes the gradients of the gates' sums; gives that of the previous state."""
    i, _, f, o, ci, co = saved
    cells = i.shape[1]
    d_i, d_ci, d_f, d_o = (d_gates[:, k * cells : (k + 1) * cells] for k in order)
    np.multiply(o * (1 - o) * h_grad, co, out=d_o)
    d_cs = (1 - co * co) * h_grad * o + cs_grad
    if peepholes is not None:
        d_cs += d_o * peepholes[2]
    np.multiply((1 - ci * ci) * d_cs, i, out=d_ci)
    np.multiply(f * (1 - f) * d_cs, cs_prev, out=d_f)
    np.multiply(i * (1 - i) * d_cs, ci, out=d_i)
    d_cs *= f
    if peepholes is not None:
        d_cs += d_i * peepholes[0] + d_f * peepholes[1]
    return d_cs


def _peephole_gradients(d_gates: np.ndarray, order: tuple[int, ...], cs_prev: np.ndarray, cs: np.ndarray) -> list[np.ndarray]:
    """Of wci, wcf, wco; arrays are (rows, cells)."""
    cells = cs.shape[1]
    d_i, _, d_f, d_o = (d_gates[:, k * cells : (k + 1) * cells] for k in order)
    return [column_sums(d_i * cs_prev), column_sums(d_f * cs_prev), column_sums(d_o * cs)]


# ---------------------------------------------------------------------------------------------------------------------
# Sequences


def _steps(seq_len_max: Any, x: Any) -> int:
    _rank("x", x, 3)
    if np.size(seq_len_max) != 1 or np.ndim(seq_len_max):
        raise InvalidArgumentError(f"seq_len_max should be a scalar, got shape {format_dims(np.shape(seq_len_max))}")
    steps = int(seq_len_max)
    if not 0 <= steps <= x.shape[0]:
        raise InvalidArgumentError(f"seq_len_max must be between 0 and the time dimension {x.shape[0]}, got {steps}")
    return steps


def lstm_with(order: tuple[int, ...]) -> Any:
    """BlockLSTM or BlockLSTMV2; what lies behind `seq_len_max` is zero."""

    def run(given: tuple[Any, ...], forget_bias: float, cell_clip: float, use_peephole: bool) -> list[Any]:
        seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b = given
        steps = _steps(seq_len_max, x)
        time, batch, inputs = x.shape
        cells = check_lstm(batch, inputs, cs_prev, h_prev, w, wci, wcf, wco, b, use_peephole)
        outputs = [np.empty((time, batch, cells), x.dtype) for _ in range(7)]
        x, cs, h, w, wci, wcf, wco, b = map(widen, (x, cs_prev, h_prev, w, wci, wcf, wco, b))
        sums = np.matmul(x[:steps].reshape(steps * batch, inputs), w[:inputs])
        sums += b
        sums = sums.reshape(steps, batch, 4 * cells)
        recurrent = w[inputs:]
        step = Step(cells, order, forget_bias, cell_clip, (wci, wcf, wco) if use_peephole else None)
        for t in range(steps):
            gates = sums[t]
            gates += np.matmul(h, recurrent)
            found = step.run(gates, cs)
            cs, h = found[1], found[6]
            for out, value in zip(outputs, found, strict=True):
                out[t] = value
        for out in outputs:
            out[steps:] = 0
        return outputs

    if order is ICFO:

        def block_lstm(*inputs: Any, forget_bias: float, cell_clip: float, use_peephole: bool) -> list[Any]:
            return run(inputs, forget_bias, cell_clip, use_peephole)

        return block_lstm

    def block_lstm_v2(*inputs: Any, cell_clip: float, use_peephole: bool) -> list[Any]:
        return run(inputs, 0.0, cell_clip, use_peephole)

    return block_lstm_v2


def lstm_gradient_with(order: tuple[int, ...]) -> Any:
    """BlockLSTMGrad or BlockLSTMGradV2."""

    def kernel(seq_len_max: Any, x: Any, cs_prev: Any, h_prev: Any, w: Any, wci: Any, wcf: Any, wco: Any, b: Any, i: Any, cs: Any, f: Any, o: Any, ci: Any, co: Any,
               h: Any, cs_grad: Any, h_grad: Any, *, use_peephole: bool) -> list[Any]:  # fmt: skip
        steps = _steps(seq_len_max, x)
        time, batch, inputs = x.shape
        cells = check_lstm(batch, inputs, cs_prev, h_prev, w, wci, wcf, wco, b, use_peephole)
        for name, value in (("i", i), ("cs", cs), ("f", f), ("o", o), ("ci", ci), ("co", co), ("h", h), ("cs_grad", cs_grad), ("h_grad", h_grad)):
            if np.shape(value) != (time, batch, cells):
                raise InvalidArgumentError(f"{name} must have shape [{time},{batch},{cells}], got {format_dims(np.shape(value))}")
        dtype = x.dtype
        x, cs_prev, h_prev, w, i, cs, f, o, ci, co, h, cs_grad, h_grad = map(widen, (x, cs_prev, h_prev, w, i, cs, f, o, ci, co, h, cs_grad, h_grad))
        peepholes = tuple(map(widen, (wci, wcf, wco))) if use_peephole else None
        back = w[inputs:].T
        d_gates = np.empty((steps, batch, 4 * cells), np.float32)
        d_cs, d_h = np.zeros((batch, cells), np.float32), np.zeros((batch, cells), np.float32)
        for t in range(steps - 1, -1, -1):
            saved = (i[t], cs[t], f[t], o[t], ci[t], co[t])
            d_cs = _step_gradient(d_gates[t], order, saved, cs[t - 1] if t else cs_prev, cs_grad[t] + d_cs, h_grad[t] + d_h, peepholes)
            d_h = np.matmul(d_gates[t], back)
        # The rest has no order in time: all steps at once.
        rows = d_gates.reshape(steps * batch, 4 * cells)
        d_x = np.zeros(x.shape, np.float32)
        np.matmul(rows, w[:inputs].T, out=d_x[:steps].reshape(steps * batch, inputs))
        before = _before(h_prev, h[:steps])
        d_w = np.concatenate([np.matmul(x[:steps].reshape(steps * batch, inputs).T, rows), np.matmul(before.T, rows)])
        holes = [np.zeros(np.shape(v), np.float32) for v in (wci, wcf, wco)]
        if use_peephole:
            holes = _peephole_gradients(rows, order, _before(cs_prev, cs[:steps]), cs[:steps].reshape(steps * batch, cells))
        return [narrow(v, dtype) for v in (d_x, d_cs, d_h, d_w, *holes, column_sums(rows))]

    return kernel


def _before(first: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """What each step found: `first`, then all of `rest` but the last; as rows."""
    return np.concatenate([first[None], rest])[: len(rest)].reshape(len(rest) * len(first), first.shape[1])


def lstm_steps(x: list[Any], c: Any, h: Any, w: Any, b: Any, *, order: list[int], forget_bias: float) -> list[Any]:
    """_LSTMSteps: h of each step, the last one first, and the last state."""
    cells = check_lstm(x[0].shape[0], x[0].shape[1], c, h, w, None, None, None, b, False)
    inputs = x[0].shape[1]
    step = Step(cells, tuple(order), forget_bias, 0.0, None)
    found = []
    for one in x:
        if one.shape != x[0].shape:
            raise InvalidArgumentError(f"All inputs must have one shape: {format_dims(x[0].shape)} vs. {format_dims(one.shape)}")
        gates = np.matmul(one, w[:inputs])
        gates += np.matmul(h, w[inputs:])
        gates += b
        _, c, _, _, _, _, h = step.run(gates, c)
        found.append(h)
    return [*found[::-1], c]


block_lstm, block_lstm_v2 = lstm_with(ICFO), lstm_with(IFCO)
block_lstm_gradient, block_lstm_gradient_v2 = lstm_gradient_with(ICFO), lstm_gradient_with(IFCO)


# ---------------------------------------------------------------------------------------------------------------------
# GRU


def check_gru(x: Any, h_prev: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any) -> int:
    for name, value, rank in (("x", x, 2), ("h_prev", h_prev, 2), ("w_ru", w_ru, 2), ("w_c", w_c, 2), ("b_ru", b_ru, 1), ("b_c", b_c, 1)):
        if np.ndim(value) != rank:
            raise InvalidArgumentError(f"Rank of {name} must be {rank}")
    (batch, inputs), cells = x.shape, h_prev.shape[1]
    _expect("h_prev.dims(0) != batch_size", h_prev.shape[0], batch)
    for name, value, columns in (("w_ru", w_ru, 2), ("w_c", w_c, 1)):
        _expect(f"{name}.dim_size(0) != input_size + cell_size", value.shape[0], inputs + cells)
        _expect(f"{name}.dim_size(1) != cell_size{' * 2' if columns == 2 else ''}", value.shape[1], columns * cells)
    _expect("b_ru.dim_size(0) != cell_size * 2", b_ru.shape[0], 2 * cells)
    _expect("b_c.dim_size(0) != cell_size", b_c.shape[0], cells)
    return cells


def gru_cell(x: Any, h_prev: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any) -> list[Any]:
    """GRUBlockCell: r, u, c, h. The reset gate works on the previous output, before the product."""
    cells = check_gru(x, h_prev, w_ru, w_c, b_ru, b_c)
    inputs = x.shape[1]
    gates = np.matmul(x, w_ru[:inputs])
    gates += np.matmul(h_prev, w_ru[inputs:])
    gates += b_ru
    gates = sigmoid(gates)
    r, u = np.ascontiguousarray(gates[:, :cells]), np.ascontiguousarray(gates[:, cells:])
    c = np.matmul(x, w_c[:inputs])
    c += np.matmul(h_prev * r, w_c[inputs:])
    c += b_c
    np.tanh(c, out=c)
    return [r, u, c, u * h_prev + (1 - u) * c]


def gru_cell_gradient(x: Any, h_prev: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any, r: Any, u: Any, c: Any, d_h: Any) -> list[Any]:
    """GRUBlockCellGrad: of x and h_prev, and of the sums that go into c and into r and u."""
    cells = check_gru(x, h_prev, w_ru, w_c, b_ru, b_c)
    for name, value in (("r", r), ("u", u), ("c", c), ("d_h", d_h)):
        if np.shape(value) != h_prev.shape:
            raise InvalidArgumentError(f"{name} must have shape {format_dims(h_prev.shape)}, got {format_dims(np.shape(value))}")
    inputs = x.shape[1]
    d_c_bar = d_h * (1 - u) * (1 - c * c)
    d_gates = np.empty((x.shape[0], 2 * cells), x.dtype)
    d_reset = np.matmul(d_c_bar, w_c[inputs:].T)
    np.multiply(d_reset * h_prev * r, 1 - r, out=d_gates[:, :cells])
    np.multiply(d_h * (h_prev - c) * u, 1 - u, out=d_gates[:, cells:])
    d_x = np.matmul(d_c_bar, w_c[:inputs].T) + np.matmul(d_gates, w_ru[:inputs].T)
    d_h_prev = np.matmul(d_gates, w_ru[inputs:].T) + d_reset * r + d_h * u
    return [d_x, d_h_prev, d_c_bar, d_gates]
