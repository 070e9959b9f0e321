"""An unrolled LSTM that is trained, and its gradient, in one node each, as the optimiser makes them of the ops of all steps.

    _LSTMTraining(x1, x2, ..., c, h, w, b)      the output of each step (the last one first), the last state, and what the gradient needs
    _LSTMTrainingGrad(..., dh, dc)              gradients of w, b, all x, and the first h and c

`dh_steps` tells which step's output each of `dh` is a gradient of; `dc` are gradients of the last state. What is kept between the two
(`workspace`) is the engine's own affair: the kernels here keep nothing, and compute the steps once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.graph.ir import Dims
from penstock.ops.declare import op, with_rank
from penstock.ops.kernels.numeric import column_sums
from penstock.ops.kernels.rnn import lstm_steps, sigmoid


def training_kernel(x: list[Any], c: Any, h: Any, w: Any, b: Any, *, order: list[int], forget_bias: float) -> list[Any]:
    *outputs, state = lstm_steps(x, c, h, w, b, order=order, forget_bias=forget_bias)
    return [*outputs, state, np.stack(outputs[::-1]), np.empty(0, np.uint8)]


def training_grad_kernel(
    x: list[Any], c: Any, h: Any, w: Any, b: Any, h_all: Any, c_out: Any, workspace: Any, dh: list[Any], dc: list[Any],
    *, order: list[int], forget_bias: float, dh_steps: list[int],
) -> list[Any]:  # fmt: skip
    cells = h.shape[1]
    where = [slice(k * cells, (k + 1) * cells) for k in order]
    joined, gates, states = [], [], [c]
    for one, before in zip(x, [h, *h_all], strict=False):
        joined.append(np.concatenate([one, before], 1))
        g = np.matmul(joined[-1], w) + b
        g[:, where[2]] += np.float32(forget_bias)
        i, f, o = (sigmoid(g[:, where[k]]) for k in (0, 2, 3))
        j = np.tanh(g[:, where[1]])
        gates.append((i, j, f, o))
        states.append(states[-1] * f + i * j)
    d_h: Any = np.zeros_like(h)
    d_c: Any = sum(dc, np.zeros_like(c))
    d_w, d_b, d_x = np.zeros_like(w), np.zeros_like(b), []
    inputs = x[0].shape[1]
    for t in reversed(range(len(x))):
        d_h = sum((d for d, step in zip(dh, dh_steps, strict=True) if step == t), d_h)
        (i, j, f, o), squashed = gates[t], np.tanh(states[t + 1])
        d_c = d_c + d_h * o * (1 - squashed * squashed)
        d = np.empty_like(d_h, shape=(len(d_h), 4 * cells))
        d[:, where[0]] = d_c * j * i * (1 - i)
        d[:, where[1]] = d_c * i * (1 - j * j)
        d[:, where[2]] = d_c * states[t] * f * (1 - f)
        d[:, where[3]] = d_h * squashed * o * (1 - o)
        d_c = d_c * f
        d_w += np.matmul(joined[t].T, d)
        d_b += column_sums(d)
        both = np.matmul(d, w.T)
        d_x.append(both[:, :inputs])
        d_h = both[:, inputs:]
    return [d_w, d_b, *d_x[::-1], d_h, d_c]


def training_shape(c: Any) -> list[Dims]:
    steps = c.attrs["N"]
    state = with_rank(c, steps, 2)
    return [*[state] * (steps + 1), (steps, *state), (None,)]


def training_grad_shape(c: Any) -> list[Dims]:
    steps = c.attrs["N"]
    state = with_rank(c, steps, 2)
    return [with_rank(c, steps + 2, 2), with_rank(c, steps + 3, 1), *(with_rank(c, i, 2) for i in range(steps)), state, state]


_INPUTS = "x: N*T, c: T, h: T, w: T, b: T"
_ATTRS = "N: int >= 1; T: type in {float}; order: list(int); forget_bias: float"

op(f"_LSTMTraining({_INPUTS}) -> (h_out: N*T, c_out: T, h_all: T, workspace: uint8) [{_ATTRS}]",
   shape=training_shape, numpy=training_kernel, expensive=True)  # fmt: skip

op(f"_LSTMTrainingGrad({_INPUTS}, h_all: T, c_out: T, workspace: uint8, dh: M*T, dc: K*T) -> (dw: T, db: T, dx: N*T, dh_first: T, dc_first: T)"
   f" [{_ATTRS}; M: int >= 1; K: int >= 0; dh_steps: list(int)]",
   shape=training_grad_shape, numpy=training_grad_kernel, expensive=True)  # fmt: skip
