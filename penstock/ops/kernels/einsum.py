"""Einsum by reshaping to one batched matrix product, which BLAS does fast.

Labels are characters of the equation; the dimensions under an ellipsis get the numbers ..., 2, 1, 0 counted from the
right, so that ellipses of different lengths line up and broadcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InvalidArgumentError
from penstock.ops.kernels.numeric import narrow, widen
from penstock.ops.kernels.products import product as product_of
from penstock.shapes import format_dims

Labels = list[Any]


def parse(equation: str, count: int) -> tuple[list[str], str]:
    """(input subscripts, output subscripts) without blanks; InvalidArgumentError in TF's words if it is no equation."""
    parts = equation.replace(" ", "").split("->")
    if len(parts) != 2:
        raise InvalidArgumentError(f"Expecting exactly one '->' in einsum equation: {equation}")
    inputs = parts[0].split(",")
    if len(inputs) not in (1, 2):
        raise InvalidArgumentError(f"Expecting 1 or 2 input subscripts in equation '{equation}' but got: {len(inputs)}")
    if len(inputs) != count:
        raise InvalidArgumentError(f"Expected {len(inputs)} inputs for equation {equation} but got: {count}")
    for text in (*inputs, parts[1]):
        letters = text.replace("...", "", 1)
        if not all(c.isalpha() for c in letters):
            raise InvalidArgumentError(f"Invalid character in einsum equation: {equation}")
    named = set("".join(inputs)) - {"."}
    for c in parts[1].replace("...", "", 1):
        if c not in named:
            raise InvalidArgumentError(f"Einsum output subscript '{c}' does not appear in any input of {equation}")
    return inputs, parts[1]


def labels_of(subscripts: str, rank: int | None, which: int = 0) -> Labels | None:
    """One label per dimension; None if the ellipsis' length is unknown."""
    if "..." not in subscripts:
        if rank is not None and rank != len(subscripts):
            raise InvalidArgumentError(f"Expected input {which} to have rank {len(subscripts)} but got: {rank}")
        return list(subscripts)
    if rank is None:
        return None
    before, after = subscripts.split("...")
    hidden = rank - len(before) - len(after)
    if hidden < 0:
        raise InvalidArgumentError(f"Expected input {which} to have rank at least {len(before) + len(after)} but got: {rank}")
    return [*before, *range(hidden - 1, -1, -1), *after]


def output_labels(subscripts: str, inputs: list[Labels]) -> Labels:
    """The output's labels; its ellipsis is as long as the longest of the inputs'."""
    if "..." not in subscripts:
        return list(subscripts)
    hidden = max((sum(isinstance(x, int) for x in labels) for labels in inputs), default=0)
    before, after = subscripts.split("...")
    return [*before, *range(hidden - 1, -1, -1), *after]


def sizes_of(operands: list[tuple[Labels, Any]]) -> dict[Any, int | None]:
    """The size of each label. Ellipsis dimensions broadcast, letters must agree; unknown sizes are None."""
    sizes: dict[Any, int | None] = {}
    for labels, shape in operands:
        for axis, (label, size) in enumerate(zip(labels, shape, strict=True)):
            known = sizes.get(label)
            if label not in sizes or known is None or (isinstance(label, int) and known == 1):
                if size is not None or label not in sizes:
                    sizes[label] = size
            elif size is not None and size != known and not (isinstance(label, int) and size == 1):
                raise InvalidArgumentError(f"Expected dimension {known} at axis {axis} of the input shaped {format_dims(tuple(shape))} but got dimension {size}")
    return sizes


def einsum(equation: str, inputs: list[Any]) -> Any:
    """The value of an Einsum node."""
    subscripts, out_text = parse(equation, len(inputs))
    dtype = inputs[0].dtype
    operands = [(labels_of(s, x.ndim, i) or [], np.asarray(widen(x))) for i, (s, x) in enumerate(zip(subscripts, inputs, strict=True))]
    out = output_labels(out_text, [labels for labels, _ in operands])
    sizes = sizes_of([(labels, x.shape) for labels, x in operands])
    wanted = set(out)
    reduced = []
    for i, (labels, x) in enumerate(operands):
        others = wanted.union(*(other for j, (other, _) in enumerate(operands) if j != i))
        reduced.append(_simplified(labels, x, others))
    labels, value = reduced[0]
    if len(reduced) == 2:
        labels, value = _product(labels, value, reduced[1][0], reduced[1][1], wanted, sizes)
    return narrow(_arranged(labels, value, out, sizes), dtype)


def _simplified(labels: Labels, x: np.ndarray, keep: set[Any]) -> tuple[Labels, np.ndarray]:
    """Takes diagonals of repeated labels, sums labels that nobody else has."""
    unique = list(dict.fromkeys(labels))
    for label in unique:
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = np.diagonal(x, axis1=first, axis2=second)  # the diagonal becomes the last axis
            labels = [v for i, v in enumerate(labels) if i not in (first, second)] + [label]
    gone = tuple(i for i, label in enumerate(labels) if label not in keep)
    if gone:
        x = np.add.reduce(x, axis=gone, dtype=x.dtype)
        labels = [label for i, label in enumerate(labels) if i not in gone]
    return labels, x


def _product(a: Labels, x: np.ndarray, b: Labels, y: np.ndarray, wanted: set[Any], sizes: dict[Any, Any]) -> tuple[Labels, np.ndarray]:
    shared = [label for label in a if label in b]
    batch = [label for label in shared if label in wanted]
    summed = [label for label in shared if label not in wanted]
    free_a = [label for label in a if label not in shared]
    free_b = [label for label in b if label not in shared]
    left = _flattened(a, x, (batch, free_a, summed), sizes)
    right = _flattened(b, y, (batch, summed, free_b), sizes)
    product = product_of(left, right)
    shape = [max(x.shape[a.index(n)], y.shape[b.index(n)]) if sizes[n] != 0 else 0 for n in batch]
    shape += [x.shape[a.index(n)] for n in free_a] + [y.shape[b.index(n)] for n in free_b]
    return batch + free_a + free_b, product.reshape(shape)


def _flattened(labels: Labels, x: np.ndarray, groups: tuple[Labels, Labels, Labels], sizes: dict[Any, Any]) -> np.ndarray:
    """`x` as [batch..., rows, columns]; only batch dimensions may still broadcast."""
    batch, rows, columns = groups
    x = x.transpose([labels.index(label) for label in (*batch, *rows, *columns)])
    shape = [*x.shape[: len(batch)], *(sizes[label] for label in (*rows, *columns))]
    if list(x.shape) != shape:
        x = np.broadcast_to(x, shape)
    n, r = len(batch), len(rows)
    return x.reshape(*x.shape[:n], int(np.prod(x.shape[n : n + r])), int(np.prod(x.shape[n + r :])))


def _arranged(labels: Labels, x: np.ndarray, out: Labels, sizes: dict[Any, Any]) -> np.ndarray:
    """`x` in the order of the output; a label that stands there twice spreads onto a diagonal."""
    unique = list(dict.fromkeys(out))
    missing = [label for label in unique if label not in labels]
    if missing:  # an ellipsis dimension that no operand has is impossible; letters were checked by parse
        raise InvalidArgumentError(f"Einsum output labels {missing} have no source")
    x = x.transpose([labels.index(label) for label in unique])
    if len(unique) == len(out):
        return x
    result = np.zeros([sizes[label] for label in out], dtype=x.dtype)
    index = np.ix_(*[np.arange(sizes[label]) for label in unique])
    result[tuple(index[unique.index(label)] for label in out)] = x
    return result
