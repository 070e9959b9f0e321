"""Normalised rows: what `tf.nn.moments` and `tf.nn.batch_normalization` make of a layer norm, and what `tf.gradients` makes of that, become
one node each; so does the gradient of a softmax.

    x * k + (offset - mean * k), k = rsqrt(variance + epsilon) * scale      -> _LayerNorm(x, scale, offset), 9 nodes
    (x - mean) * rsqrt(variance + epsilon) * scale + offset                 -> the same: people write it down so
    the gradients of x, scale and offset of either                          -> _LayerNormGrad(dy, x, scale, mean, variance), 20 nodes
    (dy - sum(dy * y)) * y, y = softmax(...)                                -> _SoftmaxGrad(dy, y), 4 nodes

An engine computes such a node in one or two passes over its rows; op by op it is up to 20. Nodes vanish only together: if anything else reads what
is inside, all of it stays as it is. Acts on nodes of CPUs while the oneDNN engine is on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock import dtypes
from penstock.graph.bind import engine_is_on
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.rewrite import topological
from penstock.pipeline.optimise.edit import Edit, is_pure

_ADDS = ("AddV2", "Add", "AddN")
_CONSTANTS = ("Const", "HostConst")


class _Norm(NamedTuple):
    """A layer norm: its last node, what goes in, and the values inside that gradients read."""

    out: Operation
    x: Tensor
    scale: Tensor
    offset: Tensor
    epsilon: float
    mean: Tensor
    variance: Tensor
    root: Tensor
    """1 / sqrt(variance + epsilon)"""
    factor: Tensor | None
    """root * scale, if that is computed at all"""
    centred: Tensor | None
    """x - mean, if that is computed"""
    inside: list[Operation]


class _Gradient(NamedTuple):
    """The gradient of a layer norm: the node that becomes it, and those whose values it gives instead."""

    norm: _Norm
    dy: Tensor
    head: Operation
    total: Operation
    """The AddN in which the three parts of dx meet, perhaps with other gradients of x."""
    parts: list[Tensor]
    dscale: Operation | None
    doffset: Operation | None
    inside: list[Operation]


def join_norms(graph: Graph, context: Any) -> Graph:
    """moments, batch_normalization and their gradients -> one node each"""
    if not engine_is_on("onednn") or not any(op.type in ("Rsqrt", "Softmax") for op in graph):
        return graph
    order = {op: i for i, op in enumerate(topological(graph))}
    edit = Edit(graph)
    for op in graph:
        if op.type == "Rsqrt" and op.attrs["T"] is dtypes.float32 and "device:CPU" in op.device:
            norm = _find_norm(op)
            if norm is not None:
                _join(norm, list(_find_gradients(norm)), edit, context, order)
        elif op.type == "Softmax" and op.attrs["T"] is dtypes.float32 and "device:CPU" in op.device:
            for last, dy, inside in list(_find_softmax_gradients(op)):
                waits: dict[Operation, None] = {}
                gone = _vanish(inside, [last], context.targets, waits)
                if gone is not None and not waits and _in_time(inside, (), [dy, op.outputs[0]], gone, order):
                    _wait_instead(edit, dict.fromkeys(inside, last), gone)
                    edit.retyped[last] = ("_SoftmaxGrad", [dy, op.outputs[0]], {"T": dtypes.float32})
                    edit.why.append(f"{last.name} = gradient of {op.name}")
    if not edit:
        return graph
    context.note(edit)
    return edit.apply(context.roots(graph))


# -- matching -----------------------------------------------------------------------------------------------------------


def _behind(tensor: Tensor) -> Tensor:
    """The tensor behind Identities, by which gradients are made to wait for each other."""
    while tensor.op.type == "Identity" and not tensor.op.inputs[0].dtype._is_ref_dtype:
        tensor = tensor.op.inputs[0]
    return tensor


def _before_joins(tensor: Tensor) -> Tensor:
    """The tensor behind those Identities that wait for nothing but values."""
    while _behind(tensor) is not tensor and all(join.type == "NoOp" and all(map(is_pure, join.control_inputs)) for join in tensor.op.control_inputs):
        tensor = tensor.op.inputs[0]
    return tensor


def _made_by(tensor: Tensor, *types: str) -> Operation | None:
    op = _behind(tensor).op
    return op if op.type in types and not op.control_inputs else None


def _other(op: Operation | None, tensor: Tensor) -> Tensor | None:
    """The other operand of a node of two, one of which is `tensor`."""
    if op is None or len(op.inputs) != 2:
        return None
    a, b = map(_behind, op.inputs)
    if b is tensor:
        return op.inputs[0]
    return op.inputs[1] if a is tensor else None


def _readers(tensor: Tensor, *types: str) -> Iterator[Operation]:
    """Nodes that read a tensor, Identities between them left out."""
    for op in dict.fromkeys(tensor._consumers or ()):
        if op.type == "Identity":
            yield from _readers(op.outputs[0], *types)
        elif op.type in types and not op.control_inputs:
            yield op


def _reader(tensor: Tensor, *types: str) -> Operation | None:
    """The only reader of these types."""
    found = list(dict.fromkeys(_readers(tensor, *types)))
    return found[0] if len(found) == 1 else None


def _number(tensor: Tensor) -> float | None:
    op = tensor.op
    value = op.attrs["value"].array if op.type in _CONSTANTS else None
    return float(value.ravel()[0]) if value is not None and value.size == 1 and not op.control_inputs else None


def _reduces(op: Operation | None, keep_dims: bool, last: bool = True) -> bool:
    """Whether a node reduces the last dimension alone, or all others alone."""
    if op is None or op.attrs["keep_dims"] is not keep_dims:
        return False
    dims, axes = op.inputs[0].dims, op.inputs[1].op
    if dims is None or not dims or axes.type not in _CONSTANTS or axes.control_inputs:
        return False
    found = sorted(int(a) % len(dims) for a in np.ravel(axes.attrs["value"].array))
    return found == ([len(dims) - 1] if last else list(range(len(dims) - 1)))


def _find_norm(rsqrt: Operation) -> _Norm | None:
    """The layer norm around a Rsqrt."""
    shifted = _made_by(rsqrt.inputs[0], "AddV2", "Add")
    if shifted is None or rsqrt.control_inputs:
        return None
    epsilon = _number(shifted.inputs[1])
    variance = _made_by(shifted.inputs[0], "Mean")
    if epsilon is None or variance is None or not _reduces(variance, True):
        return None
    squares = _made_by(variance.inputs[0], "SquaredDifference")
    if squares is None:
        return None
    x, mean = squares.inputs[0], _made_by(squares.inputs[1], "Mean")
    if mean is None or not _reduces(mean, True) or _behind(mean.inputs[0]) is not _behind(x):
        return None
    x, root, centre = _behind(x), rsqrt.outputs[0], mean.outputs[0]
    form = _folded(x, centre, root) or _centred(x, centre, root)
    if form is None or x.dims is None or x.dims[-1] is None or form.scale.dims != x.dims[-1:] or form.offset.dims != x.dims[-1:]:
        return None
    inside = [mean, squares, variance, shifted, rsqrt, *form.inside]
    if any(op.device != form.out.device for op in inside) or any(t.dtype is not dtypes.float32 for t in (x, form.scale, form.offset)):
        return None
    return _Norm(form.out, x, form.scale, form.offset, epsilon, centre, variance.outputs[0], root, form.factor, form.centred, inside)


class _Form(NamedTuple):
    """What follows mean and root in one of the ways to write a layer norm down; the names are those of `_Norm`."""

    out: Operation
    scale: Tensor
    offset: Tensor
    factor: Tensor | None
    centred: Tensor | None
    inside: list[Operation]


def _folded(x: Tensor, mean: Tensor, root: Tensor) -> _Form | None:
    """x * k + (offset - mean * k), k = root * scale: as `tf.nn.batch_normalization` has it."""
    # The gradient multiplies with `root` too; the product with the scale is the one that multiplies the mean.
    for factor in _readers(root, "Mul"):
        scale = _other(factor, root)
        product = factor.outputs[0]
        times_x = [m for m in _readers(product, "Mul") if _is(_other(m, product), x)]
        times_mean = [m for m in _readers(product, "Mul") if _is(_other(m, product), mean)]
        if scale is None or len(times_x) != 1 or len(times_mean) != 1:
            continue
        shift = _reader(times_mean[0].outputs[0], "Sub")
        if shift is None or _behind(shift.inputs[1]) is not times_mean[0].outputs[0]:
            continue
        out = _reader(shift.outputs[0], "AddV2", "Add")
        if out is not None and _is(_other(out, shift.outputs[0]), times_x[0].outputs[0]):
            return _Form(out, scale, shift.inputs[0], product, None, [factor, times_x[0], times_mean[0], shift])
    return None


def _centred(x: Tensor, mean: Tensor, root: Tensor) -> _Form | None:
    """(x - mean) * root * scale + offset"""
    for normal in _readers(root, "Mul"):
        other = _other(normal, root)
        difference = None if other is None else _made_by(other, "Sub")
        if difference is None or not _is(difference.inputs[0], x) or not _is(difference.inputs[1], mean):
            continue
        # The gradient multiplies with normal rows too; those that are scaled are the ones that something is added to.
        for scaled in _readers(normal.outputs[0], "Mul"):
            scale, out = _other(scaled, normal.outputs[0]), _reader(scaled.outputs[0], "AddV2", "Add")
            offset = _other(out, scaled.outputs[0])
            if out is not None and scale is not None and offset is not None:
                return _Form(out, scale, offset, None, difference.outputs[0], [difference, normal, scaled])
    return None


def _is(tensor: Tensor | None, wanted: Tensor) -> bool:
    return tensor is not None and _behind(tensor) is wanted


def _find_gradients(norm: _Norm) -> Iterator[_Gradient]:
    """The gradients of a layer norm, by what `tf.gradients` writes down for it."""
    find = _find_centred_gradient if norm.factor is None else _find_gradient
    for head in _readers(norm.root if norm.factor is None else norm.factor, "Mul"):
        if head not in norm.inside:
            found = find(norm, head)
            if found is not None:
                yield found


def _find_gradient(norm: _Norm, head: Operation) -> _Gradient | None:
    """The gradient of which `head` is dy * factor."""
    x, mean, root, factor = norm.x, norm.mean, norm.root, norm.factor
    given = _other(head, factor) if factor is not None else None
    if factor is None or given is None:
        return None
    dy = _behind(given)
    if dy.dims != x.dims:
        return None
    negative = next((n for n in _readers(dy, "Neg") if any(_is(_other(m, n.outputs[0]), factor) for m in _readers(n.outputs[0], "Mul"))), None)
    if negative is None:
        return None
    minus = negative.outputs[0]
    by_factor = next((m for m in _readers(minus, "Mul") if _is(_other(m, minus), factor)), None)
    by_mean = next((m for m in _readers(minus, "Mul") if _is(_other(m, minus), mean)), None)
    by_x = _product(dy, x)
    if by_factor is None or by_mean is None or by_x is None:
        return None
    slope = _reader(by_x.outputs[0], *_ADDS)
    if slope is None or not _is(_other(slope, by_x.outputs[0]), by_mean.outputs[0]):
        return None
    h = slope.outputs[0]
    by_scale, by_root = _product(h, _behind(norm.scale)), _product(h, root)
    if by_scale is None:
        return None
    inside = [negative, by_factor, by_mean, by_x, slope, by_scale]
    return _completed(norm, given, head, by_factor, by_scale, by_root, inside)


def _find_centred_gradient(norm: _Norm, head: Operation) -> _Gradient | None:
    """The gradient of which `head` is dy * scale * root."""
    slope = _other(head, norm.root)
    by_scale = _made_by(slope, "Mul") if slope is not None else None
    given = _other(by_scale, _behind(norm.scale))
    negative = _reader(head.outputs[0], "Neg")
    if by_scale is None or given is None or negative is None or norm.centred is None or _behind(given).dims != norm.x.dims:
        return None
    by_centred = _product(by_scale.outputs[0], norm.centred)
    normal = next((op.outputs[0] for op in norm.inside if op.type == "Mul" and _other(op, norm.root) is not None), None)
    by_normal = _product(_behind(given), normal) if normal is not None else None
    if by_centred is None:
        return None
    # Identities make dy wait for the gradient of the offset, which is computed with the rest.
    return _completed(norm, _before_joins(given), head, negative, by_centred, by_normal, [by_scale, negative, by_centred])


def _completed(
    norm: _Norm, given: Tensor, head: Operation, by_mean: Operation, by_root: Operation, by_scale: Operation | None, inside: list[Operation]
) -> _Gradient | None:
    """What all gradients end with. The rows of `by_mean` add up to the gradient of the mean, those of `by_root` to that of the root; the columns of `by_scale` to
    that of the scale."""
    x, mean, root = norm.x, norm.mean, norm.root
    depth = float(x.dims[-1])  # type: ignore[index, arg-type]
    # dx by way of the mean
    row_sum = _reader(by_mean.outputs[0], "Sum")
    spread = _spread(row_sum, depth) if _reduces(row_sum, True) else None
    # dx by way of the variance
    root_sum = _reader(by_root.outputs[0], "Sum")
    rsqrt_grad = _reader(root_sum.outputs[0], "RsqrtGrad") if root_sum is not None and _reduces(root_sum, True) else None
    if row_sum is None or spread is None or root_sum is None or rsqrt_grad is None or not _is(rsqrt_grad.inputs[0], root):
        return None
    spread_variance = _spread(rsqrt_grad, depth)
    if spread_variance is None:
        return None
    twice = _reader(spread_variance[-1].outputs[0], "Mul")
    if twice is None or 2.0 not in map(_number, twice.inputs):
        return None
    centred = _reader(twice.outputs[0], "Mul")
    difference = _made_by(other, "Sub") if centred is not None and (other := _other(centred, twice.outputs[0])) is not None else None
    if centred is None or difference is None or not _is(difference.inputs[0], x) or not _is(difference.inputs[1], mean):
        return None
    parts = [head.outputs[0], centred.outputs[0], spread[-1].outputs[0]]
    total = _reader(parts[1], "AddN")
    if total is None or any([_behind(t) for t in total.inputs].count(part) != 1 for part in parts):
        return None
    inside = [*inside, row_sum, *spread, root_sum, rsqrt_grad, *spread_variance, twice, centred]
    if difference not in norm.inside:
        inside.append(difference)
    dscale = _reader(by_scale.outputs[0], "Sum") if by_scale is not None else None
    if by_scale is not None:
        if not _reduces(dscale, False, last=False):
            return None
        inside.append(by_scale)
    doffset = next((s for s in _readers(_behind(given), "Sum") if _reduces(s, False, last=False)), None)
    return _Gradient(norm, given, head, total, parts, dscale, doffset, inside)


def _product(a: Tensor, b: Tensor) -> Operation | None:
    """A node that multiplies two tensors."""
    return next((m for m in _readers(a, "Mul") if _is(_other(m, a), b)), None)


def _spread(op: Operation | None, depth: float) -> list[Operation] | None:
    """The gradient of a mean: broadcast along the rows, divided by their length."""
    broadcast = _reader(op.outputs[0], "BroadcastTo") if op is not None else None
    divided = _reader(broadcast.outputs[0], "RealDiv") if broadcast is not None else None
    if broadcast is None or divided is None or not _is(divided.inputs[0], broadcast.outputs[0]) or _number(divided.inputs[1]) != depth:
        return None
    return [broadcast, divided]


def _find_softmax_gradients(softmax: Operation) -> Iterator[tuple[Operation, Tensor, list[Operation]]]:
    """The last node of a softmax's gradient, dy, and the nodes before the last."""
    y = softmax.outputs[0]
    for product in _readers(y, "Mul"):
        given = _other(product, y)
        total = _reader(product.outputs[0], "Sum")
        if given is None or total is None or not _reduces(total, True):
            continue
        difference = _reader(total.outputs[0], "Sub")
        if difference is None or not _is(difference.inputs[0], _behind(given)) or not _is(difference.inputs[1], total.outputs[0]):
            continue
        last = _reader(difference.outputs[0], "Mul")
        if last is None or not _is(_other(last, difference.outputs[0]), y) or given.dims is None or given.dims != y.dims:
            continue
        if all(op.device == softmax.device for op in (product, total, difference, last)):
            yield last, given, [product, total, difference]


# -- joining ------------------------------------------------------------------------------------------------------------


def _join(norm: _Norm, gradients: list[_Gradient], edit: Edit, context: Any, order: dict[Operation, int]) -> None:
    inputs = [norm.x, norm.scale, norm.offset]
    inside = [*norm.inside]
    ends = [norm.out]
    for g in gradients:
        inside += [*g.inside, g.head]
        ends += [op for op in (g.total, g.dscale, g.doffset) if op is not None]
    if any(op.device != norm.out.device for op in (*inside, *ends)):
        return
    if norm.out.control_inputs or any(op.name in context.targets for op in ends[1:]):
        return
    waits: dict[Operation, None] = {}
    gone = _vanish(inside, ends, context.targets, waits)
    if gone is None or len(set(inside)) < len(inside) or not _in_time(norm.inside, (), inputs, gone, order):
        return
    for g in gradients:
        sums = [op for op in (g.dscale, g.doffset) if op is not None]
        if not _in_time([*g.inside, g.head], sums, [g.dy, *inputs, norm.out.outputs[0]], gone, order):
            return
    out, numbers = norm.out, {"T": dtypes.float32, "epsilon": norm.epsilon}
    mean, variance = (Tensor(out, i, t.dtype, t.dims) for i, t in ((1, norm.mean), (2, norm.variance)))
    edit.retyped[out] = ("_LayerNorm", inputs, numbers)
    edit.more_outputs[out] = [mean, variance]
    edit.why.append(f"{out.name} = layer norm of {norm.x.name}{', with its gradient' if gradients else ''}")
    for g in gradients:
        head, depth = g.head, norm.scale.dims
        sums = [Tensor(head, i, dtypes.float32, depth) for i in (1, 2)]
        edit.retyped[head] = ("_LayerNormGrad", [g.dy, norm.x, norm.scale, mean, variance], numbers)
        edit.more_outputs[head] = sums
        edit.computes[head] = g.inside
        if waits:
            edit.controls[head] = [*waits]
        for op, tensor in zip((g.dscale, g.doffset), sums, strict=True):
            if op is not None:
                edit.redirect[op.outputs[0]] = tensor
        rest = [t for t in g.total.inputs if _behind(t) not in g.parts]
        if rest:
            inputs_of_total = [*rest, head.outputs[0]]
            edit.retyped[g.total] = ("AddN", inputs_of_total, {**g.total.attrs, "N": len(inputs_of_total)})
        else:
            edit.redirect[g.total.outputs[0]] = head.outputs[0]
        instead = {op: head for op in (*g.inside, g.dscale, g.doffset, *(() if rest else (g.total,))) if op is not None}
        _wait_instead(edit, instead, gone)
    _wait_instead(edit, dict.fromkeys(norm.inside, out), gone)


def _wait_instead(edit: Edit, instead: dict[Operation, Operation], gone: set[Operation]) -> None:
    """Who waited for a node that vanishes waits for the one that stands for it."""
    for waiting in {w for op in instead for w in op._control_outputs or () if w not in gone}:
        controls = edit.controls.get(waiting, waiting.control_inputs)
        edit.controls[waiting] = list(dict.fromkeys(instead.get(c, c) for c in controls))


def _vanish(inside: list[Operation], ends: Iterable[Operation], targets: frozenset[str], waits: dict[Operation, None]) -> set[Operation] | None:
    """`inside` with the Identities between them, if nothing but them and `ends` reads them; what the Identities waited for goes into `waits`."""
    group = {*inside, *ends}
    gone = set(inside)

    def only_here(op: Operation) -> bool:
        if op.name in targets:
            return False
        for tensor in op.outputs:
            for reader in tensor._consumers or ():
                if reader in group:
                    continue
                if reader.type != "Identity" or any(c.type != "NoOp" or c.name in targets for c in reader.control_inputs) or not only_here(reader):
                    return False
                waits.update((c, None) for join in reader.control_inputs for c in join.control_inputs if c not in group and not is_pure(c))
                gone.add(reader)
        return True

    return gone if all(only_here(op) for op in inside) else None


def _in_time(inside: Iterable[Operation], early: Iterable[Operation], inputs: Iterable[Tensor], gone: set[Operation], order: dict[Operation, int]) -> bool:
    """Whether nothing that reads one of `early`, or waits for a node inside, has to come before one of `inputs`: else it could not be computed
    at once with the rest."""
    sources = {t.op for t in inputs}
    furthest = max(order[op] for op in sources)
    stack = [w for op in (*inside, *early) for w in op._control_outputs or ()] + [r for op in early for t in op.outputs for r in t._consumers or ()]
    seen = {op for op in stack if op not in gone}
    stack = list(seen)
    while stack:
        op = stack.pop()
        if op in sources:
            return False
        if order[op] >= furthest:
            continue
        for reader in [r for t in op.outputs for r in t._consumers or ()] + list(op._control_outputs or ()):
            if reader not in seen and reader not in gone:
                seen.add(reader)
                stack.append(reader)
    return True
