"""Einsum: sums of products in index notation, of one or two operands. The work is in `kernels.einsum`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.broadcasting import conj
from penstock.ops.declare import op
from penstock.ops.kernels.einsum import einsum, labels_of, output_labels, parse, sizes_of
from penstock.ops.samples import empty, normal
from penstock.shapes import Dims

# -- kernel and shape -------------------------------------------------------------------------------------------------


def einsum_kernel(inputs: list[Any], *, equation: bytes) -> Any:
    return einsum(equation.decode(), inputs)


def einsum_shape(c: Any) -> Dims:
    try:
        subscripts, out = parse(c.attrs["equation"].decode(), c.n)
        dims = [c.dims(i) for i in range(c.n)]
        labels = [labels_of(s, None if d is None else len(d), i) for i, (s, d) in enumerate(zip(subscripts, dims, strict=True))]
        if any(names is None for names in labels):
            return None if "..." in out else (None,) * len(out)
        known = [(names, d if d is not None else (None,) * len(names)) for names, d in zip(labels, dims, strict=True)]  # type: ignore[arg-type]
        sizes = sizes_of(known)  # type: ignore[arg-type]
        return tuple(sizes[label] for label in output_labels(out, labels))  # type: ignore[arg-type]
    except InvalidArgumentError as error:
        sizes = re.match(r"Expected dimension (\d+) at axis .* but got dimension (\d+)", error.message)
        raise ValueError(f"Dimensions must be equal, but are {sizes[1]} and {sizes[2]}" if sizes else error.message) from None


# -- gradient ---------------------------------------------------------------------------------------------------------


def _unique(text: str) -> str:
    """Subscripts without repetitions; an ellipsis counts as one label."""
    seen: list[str] = []
    for label in text.replace("...", "."):
        if label not in seen:
            seen.append(label)
    return "".join(seen).replace(".", "...")


def _without(text: str, *others: str) -> str:
    gone = set("".join(others).replace("...", "."))
    return "".join(c for c in text.replace("...", ".") if c not in gone).replace(".", "...")


def _sizes(g: Any, x: Any, subscripts: str, labels: str) -> Any:
    """The sizes of `labels` in tensor `x`, as a vector."""
    shape = g.Shape(x)
    before, _, after = subscripts.partition("...")
    parts = []
    for label in labels.replace("...", "."):
        if label == ".":
            begin, end, mask = len(before), -len(after), 0 if after else 1
        elif label in before or not after:
            begin = before.index(label)
            end, mask = begin + 1, 0
        else:
            begin = after.index(label) - len(after)
            end, mask = begin + 1, 1 if begin == -1 else 0
        parts.append(g.StridedSlice(shape, *(np.array([n], np.int32) for n in (begin, end, 1)), end_mask=mask))
    return parts[0] if len(parts) == 1 else g.ConcatV2(parts, np.int32(0))


def _gradient_of(g: Any, x: Any, mine: str, out: str, dy: Any, other: Any, theirs: str) -> Any:
    """dy, multiplied by the other operand and spread over the labels that only `x` has."""
    reachable = _without(_unique(mine), _without(mine, out, theirs))
    value, have = dy, out
    if other is not None:
        value = g.Einsum([dy, other], equation=f"{out},{theirs}->{reachable}")
        have = reachable
    alone = _without(_unique(mine), have)
    if alone:
        ones = g.Fill(_sizes(g, x, mine, alone), g.const(1, x.dtype))
        value = g.Einsum([value, ones], equation=f"{have},{alone}->{mine}")
    elif have != mine:
        value = g.Einsum([value], equation=f"{have}->{mine}")
    if "..." not in mine or (x.dims is not None and x.dims == value.dims and None not in x.dims):
        return value
    # The ellipsis may have been broadcast: sum those dimensions away again.
    front = len(mine.split("...")[0])
    hidden = [_sizes(g, t, mine, "...") for t in (x, value)]
    axes = g.BroadcastGradientArgs(*hidden)[0]
    return g.Reshape(g.Sum(value, g.AddV2(axes, np.int32(front))), g.Shape(x))


def einsum_grad(g: Any, op: Any, dy: Any) -> list[Any]:
    subscripts, out = parse(op.attr("equation").decode(), len(op.inputs))
    if len(subscripts) == 1:
        return [_gradient_of(g, op.inputs[0], subscripts[0], out, dy, None, "")]
    x, y = op.inputs
    a, b = subscripts
    return [_gradient_of(g, x, a, out, dy, conj(g, y), b), _gradient_of(g, y, b, out, dy, conj(g, x), a)]


op("Einsum(inputs: N*T) -> (output: T) [equation: string; N: int >= 1; T: type]",
   shape=einsum_shape, numpy=einsum_kernel, grad=einsum_grad, expensive=True,
   samples=[dict(inputs=[normal(2, 3, dtype=t), normal(3, 4, dtype=t)], equation="ij,jk->ik") for t in (np.float32, np.float64, np.complex64, np.float16, np.int32)] + [
       dict(inputs=[normal(2, 3, dtype=np.float32)], equation="ij->ji"), dict(inputs=[normal(2, 3, dtype=np.float32)], equation="ij->"),
       dict(inputs=[normal(3, 3, dtype=np.float32)], equation="ii->i"), dict(inputs=[normal(3, 3, 2, dtype=np.float32)], equation="ii...->..."),
       dict(inputs=[normal(3, dtype=np.float32)], equation="i->ii"), dict(inputs=[normal(2, 3, 4, dtype=np.float32), normal(2, 4, 5, dtype=np.float32)], equation="bij,bjk->bik"),
       dict(inputs=[normal(2, 2, 3, dtype=np.float32), normal(4, 1, 3, dtype=np.float32)], equation="a...b,c...b->...ac"),
       dict(inputs=[normal(2, 3, dtype=np.float32), normal(3, 2, dtype=np.float32)], equation="ab,ba->"), dict(inputs=[normal(3, dtype=np.float32), normal(2, dtype=np.float32)], equation="i,j->ij"),
       dict(inputs=[empty(0, 3, dtype=np.float32), normal(3, 4, dtype=np.float32)], equation="ij,jk->ik"), dict(inputs=[normal(2, 3, 4, dtype=np.float32), normal(4, dtype=np.float32)], equation="abc,c->ba"),
       dict(inputs=[normal(5, 2, 3, dtype=np.float32), normal(3, 4, dtype=np.float32)], equation="...ij,jk->...ik")],
   errors=[(dict(inputs=[normal(2, 3, dtype=np.float32), normal(4, 2, dtype=np.float32)], equation="ij,jk->ik"), InvalidArgumentError,
            r"Expected dimension 3 at axis 0 of the input shaped \[4,2\] but got dimension 4"),
           (dict(inputs=[normal(2, 3, dtype=np.float32)], equation="ijk->k"), InvalidArgumentError, "Expected input 0 to have rank 3 but got: 2")])  # fmt: skip
