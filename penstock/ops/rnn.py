"""LSTM and GRU cells as one op each, as `LSTMBlockCell`, `LSTMBlockFusedCell` and `GRUBlockCell` of TF1's contrib used them."""

from __future__ import annotations

from typing import Any

from penstock.dtypes import int64
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Dims
from penstock.ops.declare import op, with_rank
from penstock.ops.kernels import rnn
from penstock.ops.samples import arr, normal, program, uniform

_LSTM_WEIGHTS = "w: T, wci: T, wcf: T, wco: T, b: T"
_LSTM_OUTPUTS = "i: T, cs: T, f: T, o: T, ci: T, co: T, h: T"
_LSTM_SAVED = "i: T, cs: T, f: T, o: T, ci: T, co: T"
_T = "T: type in {half, float}"

# -- shapes -----------------------------------------------------------------------------------------------------------


def cell_shape(c: Any) -> Dims:
    """(batch, cells) of x and the previous state."""
    (batch, _), (_, cells) = with_rank(c, 0, 2), with_rank(c, 1, 2)
    return (batch, cells)


def _quarter(n: int | None) -> int | None:
    return None if n is None else n // 4


def block_shape(c: Any) -> Dims:
    """(time, batch, cells) of x and the biases."""
    time, batch, _ = with_rank(c, 1, 3)
    (columns,) = with_rank(c, c.n - 1, 1)
    return (time, batch, _quarter(columns))


def cell_gradient_shape(c: Any) -> list[Dims]:
    (batch, _), (_, cells) = with_rank(c, 0, 2), with_rank(c, 1, 2)
    return [(batch, cells), (batch, None if cells is None else 4 * cells), *([(cells,)] * 3)]


def block_gradient_shape(c: Any) -> list[Dims]:
    return [with_rank(c, 1, 3), with_rank(c, 2, 2), with_rank(c, 3, 2), with_rank(c, 4, 2), *(with_rank(c, i, 1) for i in (5, 6, 7, 8))]


def gru_gradient_shape(c: Any) -> list[Dims]:
    x, h_prev = with_rank(c, 0, 2), with_rank(c, 1, 2)
    batch, cells = x[0], h_prev[1]
    with_rank(c, 2, 2)
    return [x, (batch, cells), (batch, cells), (batch, None if cells is None else 2 * cells)]


# -- gradients --------------------------------------------------------------------------------------------------------


def lstm_cell_grad(g: Any, op: Any, *dys: Any) -> list[Any]:
    given = (op.x, op.cs_prev, op.h_prev, op.w, op.wci, op.wcf, op.wco, op.b)
    saved = (op.i, op.cs, op.f, op.o, op.ci, op.co)
    d_cs_prev, d_gates, d_wci, d_wcf, d_wco = g.LSTMBlockCellGrad(*given, *saved, dys[1], dys[6], use_peephole=op.attr("use_peephole"))
    d_x, d_h_prev = _split_columns(g, g.MatMul(d_gates, op.w, transpose_b=True), op.x, op.h_prev)
    d_w = g.MatMul(g.ConcatV2([op.x, op.h_prev], 1), d_gates, transpose_a=True)
    return [d_x, d_cs_prev, d_h_prev, d_w, d_wci, d_wcf, d_wco, g.BiasAddGrad(d_gates)]


def _split_columns(g: Any, joined: Any, first: Any, second: Any) -> list[Any]:
    """Gradients of two arrays that were put side by side."""
    places = g.ConcatOffset(1, [g.Shape(first), g.Shape(second)])
    return [g.Slice(joined, place, g.Shape(value)) for place, value in zip(places, (first, second), strict=True)]


def block_grad(gradient: str) -> Any:
    def rule(g: Any, op: Any, *dys: Any) -> list[Any]:
        build = getattr(g, gradient)
        return [None, *build(*op.inputs, *op.outputs, dys[1], dys[6], use_peephole=op.attr("use_peephole"))]

    return rule


def gru_cell_grad(g: Any, op: Any, *dys: Any) -> list[Any]:
    d_x, d_h_prev, d_c_bar, d_gates = g.GRUBlockCellGrad(op.x, op.h_prev, op.w_ru, op.w_c, op.b_ru, op.b_c, op.r, op.u, op.c, dys[3])
    d_w_ru = g.MatMul(g.ConcatV2([op.x, op.h_prev], 1), d_gates, transpose_a=True)
    d_w_c = g.MatMul(g.ConcatV2([op.x, g.Mul(op.h_prev, op.r)], 1), d_c_bar, transpose_a=True)
    return [d_x, d_h_prev, d_w_ru, d_w_c, g.BiasAddGrad(d_gates), g.BiasAddGrad(d_c_bar)]


# -- samples ----------------------------------------------------------------------------------------------------------

_BATCH, _INPUTS, _CELLS, _TIME = 2, 5, 3, 4
_WEIGHTS = dict(
    w=normal(_INPUTS + _CELLS, 4 * _CELLS), wci=normal(_CELLS), wcf=normal(_CELLS), wco=normal(_CELLS), b=normal(4 * _CELLS), cs_prev=normal(_BATCH, _CELLS),
    h_prev=normal(_BATCH, _CELLS),
)  # fmt: skip
_CELL = dict(_WEIGHTS, x=normal(_BATCH, _INPUTS))
_SEQUENCE = dict(_WEIGHTS, x=normal(_TIME, _BATCH, _INPUTS), seq_len_max=arr(_TIME, int64.np))
_GRU = dict(
    x=normal(_BATCH, _INPUTS), h_prev=normal(_BATCH, _CELLS), w_ru=normal(_INPUTS + _CELLS, 2 * _CELLS), w_c=normal(_INPUTS + _CELLS, _CELLS), b_ru=normal(2 * _CELLS),
    b_c=normal(_CELLS),
)  # fmt: skip


def _saved(*shape: int) -> dict[str, Any]:
    """What a forward pass may have left."""
    gates = {name: uniform(*shape, lo=0.1, hi=0.9) for name in ("i", "f", "o")}
    return gates | {name: uniform(*shape, lo=-0.9, hi=0.9) for name in ("cs", "ci", "co", "cs_grad", "h_grad")}


def _forward_samples(base: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [base, dict(base, cell_clip=0.5, **more), dict(base, use_peephole=True, cell_clip=0.0), dict(base, use_peephole=True, cell_clip=0.3, **more)]


def short_sequence(name: str) -> Any:
    """Only the state and the output are zero behind the last step; what TF leaves in the gates there is chance."""

    def build(tf: Any) -> list[Any]:
        given = {key: tf.constant(recipe.make(None, i)) for i, (key, recipe) in enumerate(_SEQUENCE.items()) if key != "seq_len_max"}
        found = getattr(tf.raw_ops, name)(seq_len_max=tf.constant(2, tf.int64), **given)
        return [found.cs, found.h, found.i[:2]]

    return build


# -- LSTM -------------------------------------------------------------------------------------------------------------

op(f"LSTMBlockCell(x: T, cs_prev: T, h_prev: T, {_LSTM_WEIGHTS}) -> ({_LSTM_OUTPUTS})"
   f" [forget_bias: float = 1; cell_clip: float = 3; use_peephole: bool = false; {_T}]",
   shape=cell_shape, numpy=rnn.lstm_cell, grad=lstm_cell_grad, expensive=True, samples=_forward_samples(_CELL, forget_bias=0.0),
   errors=[(dict(_CELL, w=normal(_INPUTS, 4 * _CELLS)), InvalidArgumentError, "input_size"), (dict(_CELL, b=normal(5)), InvalidArgumentError, "b.dim_size")])  # fmt: skip

op(f"LSTMBlockCellGrad(x: T, cs_prev: T, h_prev: T, {_LSTM_WEIGHTS}, {_LSTM_SAVED}, cs_grad: T, h_grad: T)"
   f" -> (cs_prev_grad: T, dicfo: T, wci_grad: T, wcf_grad: T, wco_grad: T) [use_peephole: bool; {_T}]",
   shape=cell_gradient_shape, numpy=rnn.lstm_cell_gradient, expensive=True,
   samples=[dict(_CELL, **_saved(_BATCH, _CELLS), use_peephole=on) for on in (False, True)],
   errors=[(dict(_CELL, **dict(_saved(_BATCH, _CELLS), i=normal(1, 1)), use_peephole=False), InvalidArgumentError, "i must have shape|i.dim_size")])  # fmt: skip

for _name, _kernel, _gradient, _attrs in (
    ("BlockLSTM", rnn.block_lstm, "BlockLSTMGrad", "forget_bias: float = 1; cell_clip: float = 3"),
    ("BlockLSTMV2", rnn.block_lstm_v2, "BlockLSTMGradV2", "cell_clip: float = 0"),
):
    op(f"{_name}(seq_len_max: int64, x: T, cs_prev: T, h_prev: T, {_LSTM_WEIGHTS}) -> ({_LSTM_OUTPUTS}) [{_attrs}; use_peephole: bool = false; {_T}]",
       shape=block_shape, numpy=_kernel, grad=block_grad(_gradient), expensive=True, host_memory=["seq_len_max"],
       samples=[*_forward_samples(_SEQUENCE), program(short_sequence(_name))],
       errors=[(dict(_SEQUENCE, w=normal(_INPUTS, 4 * _CELLS)), InvalidArgumentError, "input_size")])  # fmt: skip

for _name, _kernel in (("BlockLSTMGrad", rnn.block_lstm_gradient), ("BlockLSTMGradV2", rnn.block_lstm_gradient_v2)):
    op(f"{_name}(seq_len_max: int64, x: T, cs_prev: T, h_prev: T, {_LSTM_WEIGHTS}, {_LSTM_OUTPUTS}, cs_grad: T, h_grad: T)"
       " -> (x_grad: T, cs_prev_grad: T, h_prev_grad: T, w_grad: T, wci_grad: T, wcf_grad: T, wco_grad: T, b_grad: T)"
       f" [use_peephole: bool; {_T}]",
       shape=block_gradient_shape, numpy=_kernel, expensive=True, host_memory=["seq_len_max"],
       samples=[dict(_SEQUENCE, **_saved(_TIME, _BATCH, _CELLS), h=uniform(_TIME, _BATCH, _CELLS, lo=-0.9, hi=0.9), use_peephole=on) for on in (False, True)]
       + [dict(_SEQUENCE, **_saved(_TIME, _BATCH, _CELLS), h=uniform(_TIME, _BATCH, _CELLS, lo=-0.9, hi=0.9), use_peephole=True, seq_len_max=arr(3, int64.np))])  # fmt: skip

# -- GRU --------------------------------------------------------------------------------------------------------------

op("GRUBlockCell(x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T) -> (r: T, u: T, c: T, h: T) [T: type in {float}]",
   shape=cell_shape, numpy=rnn.gru_cell, grad=gru_cell_grad, expensive=True, samples=[_GRU],
   errors=[(dict(_GRU, w_ru=normal(_INPUTS, 2 * _CELLS)), InvalidArgumentError, "w_ru.dim_size"), (dict(_GRU, b_c=normal(2)), InvalidArgumentError, "b_c.dim_size")])  # fmt: skip

op("GRUBlockCellGrad(x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T, r: T, u: T, c: T, d_h: T)"
   " -> (d_x: T, d_h_prev: T, d_c_bar: T, d_r_bar_u_bar: T) [T: type in {float}]",
   shape=gru_gradient_shape, numpy=rnn.gru_cell_gradient, expensive=True,
   samples=[dict(_GRU, r=uniform(_BATCH, _CELLS), u=uniform(_BATCH, _CELLS), c=uniform(_BATCH, _CELLS, lo=-0.9, hi=0.9), d_h=normal(_BATCH, _CELLS))],
   errors=[(dict(_GRU, r=normal(1, 1), u=normal(_BATCH, _CELLS), c=normal(_BATCH, _CELLS), d_h=normal(_BATCH, _CELLS)), InvalidArgumentError, "r must have shape|r.dim_size")])  # fmt: skip


# -- made by the optimiser --------------------------------------------------------------------------------------------

op("_LSTMSteps(x: N*T, c: T, h: T, w: T, b: T) -> (h_out: N*T, c_out: T) [N: int >= 1; T: type in {float}; order: list(int); forget_bias: float]",
   shape=lambda c: with_rank(c, c.n - 3, 2), numpy=rnn.lstm_steps, expensive=True)  # fmt: skip
