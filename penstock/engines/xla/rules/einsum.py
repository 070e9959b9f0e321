"""Einsum: sums of products in index notation."""

from __future__ import annotations

from typing import Any

from penstock.engines.xla.checks import need, refusals
from penstock.engines.xla.rule import jnp, rule
from penstock.engines.xla.rules.diagonals import matrix_diag
from penstock.engines.xla.values import array, narrow, widen
from penstock.ops.kernels.einsum import labels_of, output_labels, parse, sizes_of
from penstock.ops.kernels.numeric import NARROW


@rule("Einsum", heavy=True)
def einsum(inputs: list[Any], *, equation: bytes) -> Any:
    with refusals():
        subscripts, out_text = parse(equation.decode(), len(inputs))
        labels = [labels_of(s, x.ndim, i) or [] for i, (s, x) in enumerate(zip(subscripts, inputs, strict=True))]
        out = output_labels(out_text, labels)
        sizes = sizes_of([(names, x.shape) for names, x in zip(labels, inputs, strict=True)])
    numbers = {label: i for i, label in enumerate(sizes)}
    operands: list[Any] = []
    for names, x in zip(labels, inputs, strict=True):
        operands += [jnp.broadcast_to(array(x), [sizes[n] for n in names]), [numbers[n] for n in names]]
    unique = list(dict.fromkeys(out))
    dtype = inputs[0].dtype
    # Products of half and bfloat16 are summed in float32.
    wide = {"preferred_element_type": widen(jnp.zeros((), dtype)).dtype} if dtype in NARROW else {}
    result = jnp.einsum(*operands, [numbers[n] for n in unique], **wide)
    return narrow(_repeated(result, unique, out), dtype)


def _repeated(x: Any, unique: list[Any], out: list[Any]) -> Any:
    """A label that stands twice in the output spreads onto a diagonal."""
    for i, label in enumerate(unique):
        count = out.count(label)
        if count > 1:
            need(count == 2, "a label that stands three times in the output")
            x = jnp.moveaxis(matrix_diag(jnp.moveaxis(x, i, -1)), -2, i)
            unique = [*unique, label]  # the second one is the last axis now
    order = [_nth(unique, label, out[:i].count(label)) for i, label in enumerate(out)]
    return jnp.transpose(x, order)


def _nth(labels: list[Any], label: Any, n: int) -> int:
    return [i for i, other in enumerate(labels) if other == label][n]
