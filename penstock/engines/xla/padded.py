"""Arrays with room to spare: one program for many sizes.

Where each step brings another size (lengths of sequences, batches that are not full), a program per size would be compiled all the time. A program for a
*room* takes every size up to it: what comes in is filled up with zeros, and how much of it counts is an argument. While the program is traced, such an array is
`Padded`: the numbers behind its `Size` mean nothing, and no op may let them into what counts.

    Size        how much of an axis counts: a traced number, and the room
    Padded      an array and the sizes of its padded axes
    Symbolic    whole numbers, some of which are sizes: what Shape gives, and what follows from it

`call` says what an op makes of them. Ops that treat the slices along an axis alike and apart are computed as ever, and where the axis is in the result is found by
asking for the result's shape with room for one more. Sums over it get zeros in the place of what does not count. An op that is not
in these tables has no place in such a program. Sizes are at least `LEAST`, so that no axis is broadcast.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock.engines.xla.rule import DOUBTS, RULES, Dynamic, Unsupported, jax, jnp, lax, static, static_ints
from penstock.engines.xla.sizes import Padded, Size, Symbolic, items_of, made, rooms, symbolic
from penstock.engines.xla.values import axes_of, axis_of, narrow, widen
from penstock.graph.ir import Operation


def call(op: Operation, args: list[Any], run: Callable[..., Any]) -> list[Any]:
    """What a node gives. `args` are those of its rule, lists among them; `run(*args)` applies the rule to ordinary ones."""
    handler = _HANDLERS.get(op.type)
    found = None
    if handler is not None:
        found = handler(op, args, run)
    elif not any(isinstance(v, Padded) for v in _flat(args)):
        found = run(*_traced(args))
    elif op.type in _APART:
        found = _apart(op, args, run)
    else:
        raise Unsupported("has no form for arrays with room to spare")
    if op.op_def.plain_output:
        return [found]
    return list(found)


def _flat(args: Sequence[Any]) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, list):
            yield from arg
        else:
            yield arg


def _mapped(args: Sequence[Any], fn: Callable[[Any], Any]) -> list[Any]:
    return [[fn(v) for v in arg] if isinstance(arg, list) else fn(arg) for arg in args]


def _traced(args: Sequence[Any]) -> list[Any]:
    return _mapped(args, lambda v: v.traced() if isinstance(v, Symbolic) else v)


# -- slices apart -----------------------------------------------------------------------------------------------------


def _apart(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    """An op that computes each slice along the padded axes for itself: these must all be in each of the results."""
    args = _traced(args)
    results = _as_list(run(*_mapped(args, _value)))
    found = [Padded(result, axes) for result, axes in zip(results, _axes_after(args, run), strict=True)]
    return found[0] if op.op_def.plain_output else found


def _axes_after(args: list[Any], run: Callable[..., Any]) -> list[dict[int, Size]]:
    """The padded axes of each of the results, all of which must have all sizes."""
    sizes = {size.base: None for v in _flat(args) if isinstance(v, Padded) for size in v.axes.values()}
    plain = _shapes(args, run, None)
    more = {base: _shapes(args, run, base) for base in sizes}
    found = []
    for i in range(len(plain)):
        axes: dict[int, Size] = {}
        for base, shapes in more.items():
            if len(shapes) != len(plain) or len(shapes[i]) != len(plain[i]):
                raise Unsupported("a result whose rank depends on a size")
            grown = [(axis, b - a) for axis, (a, b) in enumerate(zip(plain[i], shapes[i])) if a != b]
            if len(grown) != 1 or grown[0][0] in axes or plain[i][grown[0][0]] != base.room * grown[0][1]:
                raise Unsupported("what does not count would come into what does")
            axes[grown[0][0]] = base.times(grown[0][1])
        found.append(axes)
    return found


def _value(v: Any) -> Any:
    return v.value if isinstance(v, Padded) else v


def _as_list(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _shapes(args: list[Any], run: Callable[..., Any], grown: Size | None) -> list[tuple[int, ...]]:
    """The shapes of the results, with room for one more of `grown`."""
    padded = [v for v in _flat(args) if isinstance(v, Padded)]

    def spec(v: Padded) -> Any:
        shape = [n + (v.axes[i].factor if i in v.axes and v.axes[i].base is grown else 0) for i, n in enumerate(v.value.shape)]
        return jax.ShapeDtypeStruct(tuple(shape), v.dtype)

    def trial(values: list[Any]) -> list[Any]:
        rest = iter(values)
        return [jnp.asarray(v) for v in _as_list(run(*_mapped(args, lambda v: next(rest) if isinstance(v, Padded) else v)))]

    token = DOUBTS.set([])  # what is doubted in a trial does not count
    try:
        return [v.shape for v in jax.eval_shape(trial, [spec(v) for v in padded])]
    finally:
        DOUBTS.reset(token)


_APART = {
    "Abs", "Neg", "Sign", "Square", "Sqrt", "Rsqrt", "Exp", "Expm1", "Log", "Log1p", "Sigmoid", "Sin", "Cos", "Tan", "Tanh", "Atan", "Ceil", "Floor", "Rint",
    "Round", "IsNan", "IsInf", "IsFinite", "Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign", "Erf", "Reciprocal", "Inv",
    "SqrtGrad", "RsqrtGrad", "SigmoidGrad", "TanhGrad", "ReciprocalGrad", "InvGrad", "ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad",
    "SoftplusGrad", "SoftsignGrad", "Add", "AddV2", "Sub", "Mul", "MulNoNan", "SquaredDifference", "AddN", "AccumulateNV2", "RealDiv", "DivNoNan", "Maximum",
    "Minimum", "Xlogy", "Xdivy", "ClipByValue", "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot",
    "SelectV2", "Select", "Cast", "Identity", "StopGradient", "PreventGradient", "Snapshot", "ZerosLike", "OnesLike", "ExpandDims", "Transpose",
    "OneHot", "BiasAdd", "Pow", "FloorDiv", "FloorMod", "Div",
}  # fmt: skip
"""Ops that compute slices along any axis apart, wherever it is."""


def _unless(position: Callable[[Operation, list[Any], int], Sequence[int]]) -> Callable[..., Any]:
    """An op that computes slices apart unless they are along the axes that `position` says, of arrays of some rank."""

    def handler(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
        for v in _flat(args):
            if isinstance(v, Padded) and set(position(op, args, v.ndim)) & set(v.axes):
                raise Unsupported("an op along an axis with room to spare")
        if not any(isinstance(v, Padded) for v in _flat(args)):
            return run(*_traced(args))
        return _apart(op, args, run)

    return handler


def _last(op: Operation, args: list[Any], rank: int) -> Sequence[int]:
    return (rank - 1,)


def _classes(op: Operation, args: list[Any], rank: int) -> Sequence[int]:
    return (1,) if rank > 1 else ()  # labels have one number for each row


def _along(number: int) -> Callable[[Operation, list[Any], int], Sequence[int]]:
    return lambda op, args, rank: (axis_of(static(args[number]), rank),)


# -- shapes as values -------------------------------------------------------------------------------------------------


def _shape(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    dtype = op.attrs["out_type"].np

    def one(v: Any) -> Any:
        return symbolic(v.elements(), dtype) if isinstance(v, Padded) else np.array((len(v.items),) if v.ndim else (), dtype) if isinstance(v, Symbolic) else np.array(v.shape, dtype)

    return one(args[0]) if op.type == "Shape" else [one(v) for v in args[0]]


def _size(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    dtype = op.attrs["out_type"].np
    if not isinstance(args[0], Padded):
        return np.array(len(args[0].items), dtype)
    return math.prod(jnp.asarray(n.number if isinstance(n, Size) else n, dtype) for n in args[0].elements())


def _rank(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    return np.int32(args[0].ndim)


def _range(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    start, limit, delta = args
    if not isinstance(limit, Symbolic) or int(static(start)) or int(static(delta)) != 1:
        raise Dynamic
    (size,) = limit.items
    return Padded(lax.iota(limit.dtype, size.room), {0: size}, is_range=True)


def _items(keeps: Callable[[Operation, list[Any]], Any]) -> Callable[..., Any]:
    """An op that may know what becomes of whole numbers one by one. What it does not know is computed by the program."""

    def handler(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
        if not any(isinstance(v, Padded) for v in _flat(args)):
            try:
                found = keeps(op, args)
            except Dynamic:
                found = None
            return run(*_traced(args)) if found is None else found
        if op.type in _APART or op.type in _ELSEWHERE:
            return _ELSEWHERE.get(op.type, _apart)(op, args, run)
        raise Unsupported("has no form for arrays with room to spare")

    return handler


def _pack(op: Operation, args: list[Any]) -> Any:
    if any(v.ndim for v in args[0]) or op.attrs["axis"] not in (0, -1):
        return None
    return symbolic([item for v in args[0] for item in items_of(v)], args[0][0].dtype)


def _concat(op: Operation, args: list[Any]) -> Any:
    if any(v.ndim != 1 for v in args[0]):
        return None
    return symbolic([item for v in args[0] for item in items_of(v)], args[0][0].dtype)


def _cast(op: Operation, args: list[Any]) -> Any:
    dtype = op.attrs["DstT"].np
    return symbolic(args[0].items, dtype, args[0].ndim) if dtype in (np.int32, np.int64) else None


def _same(op: Operation, args: list[Any]) -> Any:
    return args[0]


def _ones(op: Operation, args: list[Any]) -> Any:
    n = len(args[0].items)
    return np.full(n if args[0].ndim else (), int(op.type == "OnesLike"), args[0].dtype)


def _select(op: Operation, args: list[Any]) -> Any:
    which, yes, no = args
    if yes.ndim != 1 or no.ndim != 1:
        return None
    a, b = items_of(yes), items_of(no)
    return symbolic([x if c else y for c, x, y in zip(np.broadcast_to(static(which), len(a)), a, b, strict=True)], yes.dtype)


def _product(op: Operation, args: list[Any]) -> Any:
    x, y = args
    if x.ndim or y.ndim:
        return None
    size, factor = (x, y) if isinstance(x, Symbolic) else (y, x)
    (number,) = items_of(factor)
    return None if isinstance(number, Size) or number < 1 else symbolic([size.items[0].times(number)], x.dtype, 0)


def _expand(op: Operation, args: list[Any]) -> Any:
    return None if args[0].ndim else symbolic(args[0].items, args[0].dtype)


def _broadcast_gradient_args(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    # A size is never 1, and different from any number: 1 is all that it could be broadcast with.
    numbers: dict[Any, int] = {}

    def one(item: Any) -> int:
        return numbers.setdefault(item, 2_000_000_011 + len(numbers)) if isinstance(item, Size) else int(item)

    return run(*(np.array([one(item) for item in items_of(v)], v.dtype) for v in args))


def _concat_offset(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    (axis,) = static_ints(args[0])
    shapes = [items_of(shape) for shape in args[1]]
    if any(isinstance(shape[axis], Size) or shape[:axis] + shape[axis:][1:] != shapes[0][:axis] + shapes[0][axis:][1:] for shape in shapes):
        raise Unsupported("another size")
    # Sizes are the same in all of them.
    return run(args[0], [np.array(rooms(shape), given.dtype) for shape, given in zip(shapes, args[1])])


def _slice(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    x, begin, size = args
    items = items_of(size)
    if not isinstance(x, Padded):
        raise Unsupported("a part of an ordinary array that has a size")
    starts = static_ints(begin)
    own = x.elements()
    for axis, item in enumerate(items):
        if axis in x.axes and (starts[axis] or item not in (own[axis], -1)):
            raise Unsupported("a part of an axis with room to spare")
        if axis not in x.axes and isinstance(item, Size):
            raise Unsupported("as much of another axis as of one with room to spare")
    found = run(x.value, np.array(starts), np.array(rooms(items)))
    return Padded(found, dict(x.axes))


def _prod_of(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    if isinstance(args[0], Padded):
        return _reduced(1)(op, args, run)
    return run(*_traced(args))


# -- shapes as arguments ----------------------------------------------------------------------------------------------


def _fill(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    items = items_of(args[0])
    return made(run(np.array(rooms(items), np.int32), *_traced(args[1:])), items)


def _broadcast_to(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    x, items = args[0], items_of(args[1])
    if isinstance(x, Padded):
        own = [*[1] * (len(items) - x.ndim), *x.elements()]
        if len(own) != len(items) or any(n is not item and n != item and (isinstance(n, Size) or n != 1) for n, item in zip(own, items)):
            raise Unsupported("another size")
    elif isinstance(x, Symbolic) or any(n != 1 and isinstance(item, Size) for n, item in zip(x.shape[::-1], items[::-1])):
        raise Unsupported("another size")
    return made(jnp.broadcast_to(_value(x), rooms(items)), items)


def _reshape(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    x = args[0]
    if isinstance(x, Symbolic):
        sizes = static_ints(args[1])
        if len(x.items) == 1 and all(n in (1, -1) for n in sizes) and len(sizes) <= 1:
            return symbolic(x.items, x.dtype, len(sizes))
        return run(x.traced(), args[1])
    items = list(items_of(args[1]))
    if not isinstance(x, Padded):
        if any(isinstance(item, Size) for item in items):
            raise Unsupported("the elements of an ordinary array in a shape with a size")
        return run(x, np.array(items))
    if len(x.axes) != 1:
        raise Unsupported("an array with several sizes in another shape")
    ((axis, size),) = x.axes.items()
    before, behind = (math.prod(part) for part in (x.value.shape[:axis], x.value.shape[axis + 1 :]))
    for i, item in enumerate(items):
        if not isinstance(item, Size) and item != -1:
            continue
        others = [n for j, n in enumerate(items) if j != i]
        if any(isinstance(n, Size) or n < 1 for n in others):
            continue
        left, right = math.prod(items[:i]), math.prod(items[i + 1 :])
        if left != before or not right:
            continue
        # What counts comes first in each of the `before` parts: axes behind may be joined with it, or taken from it.
        total = size.factor * behind
        if total % right:
            continue
        new = size.base.times(total // right)
        if isinstance(item, Size) and item is not new:
            continue
        items[i] = new
        return made(jnp.reshape(x.value, rooms(items)), items)
    raise Unsupported("another shape")


def _squeeze(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    if isinstance(args[0], Symbolic):
        return symbolic(args[0].items, args[0].dtype, 0) if len(args[0].items) == 1 else run(*_traced(args))
    return _apart(op, args, run)


# -- sums and the like ------------------------------------------------------------------------------------------------


def _reduced(neutral: Any) -> Callable[..., Any]:
    def handler(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
        x, axes = args
        if not isinstance(x, Padded):
            return run(*_traced(args))
        along = axes_of(axes, x.ndim)
        kept = [i for i in range(x.ndim) if i not in along]
        value = run(x.filled(neutral(x.dtype) if callable(neutral) else neutral, along), axes)
        keep = op.attrs["keep_dims"]
        sizes = {(axis if keep else kept.index(axis)): size for axis, size in x.axes.items() if axis in kept}
        return Padded(value, sizes) if sizes else value

    return handler


def _mean(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    x, axes = args
    if not isinstance(x, Padded):
        return run(*_traced(args))
    along = axes_of(axes, x.ndim)
    if not set(along) & set(x.axes):
        return _reduced(0)(op, args, run)
    if x.dtype.kind != "f" and x.dtype.name != "bfloat16":
        raise Unsupported("a mean of whole numbers")
    def mean(value: Any, axes: Any) -> Any:
        wide = widen(value)
        count = math.prod(x.axes[a].number.astype(wide.dtype) if a in x.axes else np.asarray(x.value.shape[a], wide.dtype) for a in along)
        return narrow(jnp.sum(wide, along, keepdims=op.attrs["keep_dims"]) / count, x.dtype)

    return _reduced(0)(op, args, mean)


def _extreme(dtype: Any, sign: int) -> Any:
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max
    return sign * np.inf


def _matmul(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    """Products of matrices: sums over an axis with room to spare get zeros there."""
    args = _traced(args)
    a, b = args[:2]
    names = ("transpose_a", "transpose_b") if "transpose_a" in op.attrs else ("adj_x", "adj_y")
    inner = [v.ndim - (2 if op.attrs[name] else 1) if i == 0 else v.ndim - (1 if op.attrs[name] else 2) for i, (v, name) in enumerate(zip((a, b), names))]
    summed = [v.axes.get(axis) if isinstance(v, Padded) else None for v, axis in zip((a, b), inner)]
    if summed == [None, None]:
        return _apart(op, args, run)
    if summed[0] is not summed[1]:
        raise Unsupported("another size")
    rest: list[Any] = []
    for v, axis in zip((a, b), inner):
        others = {i: size for i, size in v.axes.items() if i != axis}
        value = v.filled(0, (axis,))
        rest.append(Padded(value, others) if others else value)
    args = [*rest, *args[2:]]
    if not any(isinstance(v, Padded) for v in _flat(args)):
        return run(*args)
    return _apart(op, args, run)


def _bias_add_grad(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    x = args[0]
    if op.attrs["data_format"] == b"NCHW" or x.ndim - 1 in x.axes:
        raise Unsupported("a bias along an axis with room to spare")
    return run(x.filled(0))


# -- parts ------------------------------------------------------------------------------------------------------------


def _strided_slice(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    x, begin, end, strides = args
    if isinstance(x, Symbolic):
        attrs = op.attrs
        part = np.empty(len(x.items), object)
        part[:] = x.items
        if len(static_ints(begin)) != 1 or attrs["ellipsis_mask"] or attrs["new_axis_mask"] or x.ndim != 1:
            raise Unsupported("an unusual part of a shape")
        if attrs["shrink_axis_mask"]:
            return symbolic([part[int(begin[0])]], x.dtype, 0)
        found = part[slice(None if attrs["begin_mask"] else int(begin[0]), None if attrs["end_mask"] else int(end[0]), int(strides[0]))]
        return symbolic(list(found), x.dtype)
    if not isinstance(x, Padded):
        return run(*_traced(args))
    axis = _single_row(op, x.axes, x.ndim, strides)
    if axis is None:
        return _apart(op, [x, *_traced([begin, end]), strides], run)
    row = lax.dynamic_index_in_dim(x.value, _row(x.axes[axis], axis, begin), axis, keepdims=False)
    rest = {i - (i > axis): size for i, size in x.axes.items() if i != axis}
    return Padded(row, rest) if rest else row


def _strided_slice_grad(op: Operation, args: list[Any], run: Callable[..., Any]) -> Any:
    shape, begin, end, strides, dy = args
    items = items_of(shape)
    axes = {i: item for i, item in enumerate(items) if isinstance(item, Size)}
    axis = _single_row(op, axes, len(items), strides)
    if axis is None:
        sliced = _strided_slice_of(op, Padded(jax.ShapeDtypeStruct(tuple(rooms(items)), dy.dtype), axes), begin, end, strides)
        if not isinstance(dy, Padded) or dy.axes != sliced:
            raise Unsupported("another size")
        return made(run(np.array(rooms(items), shape.dtype), begin, end, strides, dy.value), items)
    here = lax.broadcasted_iota(np.int32, rooms(items), axis) == _row(axes[axis], axis, begin)
    return made(jnp.where(here, jnp.expand_dims(_value(dy), axis), np.zeros((), dy.dtype)), items)


def _strided_slice_of(op: Operation, x: Padded, begin: Any, end: Any, strides: Any) -> dict[int, Size]:
    """Where the sizes of an array are in a slice of it that leaves them whole."""
    masks = {name: op.attrs[name] for name in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")}
    run = functools.partial(RULES["StridedSlice"].fn, **masks)
    return _axes_after([x, begin, end, strides], run)[0]


def _single_row(op: Operation, axes: dict[int, Size], rank: int, strides: Any) -> int | None:
    """The axis with room to spare of which a slice takes a single index, the rest of the array being whole; None if it leaves all of them whole."""
    attrs = op.attrs
    steps = static_ints(strides)
    used = sum(1 for i in range(len(steps)) if not (attrs["new_axis_mask"] | attrs["ellipsis_mask"]) >> i & 1)
    axis = 0
    cut: list[int] = []
    for i, step in enumerate(steps):
        if attrs["ellipsis_mask"] >> i & 1:
            axis += rank - used
        elif not attrs["new_axis_mask"] >> i & 1:
            if attrs["shrink_axis_mask"] >> i & 1 or not attrs["begin_mask"] >> i & attrs["end_mask"] >> i & 1 or step != 1:
                cut.append(axis)
            axis += 1
    if not set(cut) & set(axes):
        return None
    if len(cut) != 1 or attrs["shrink_axis_mask"] != 1 << cut[0] or attrs["new_axis_mask"] or attrs["ellipsis_mask"]:
        raise Unsupported("a part of an axis with room to spare")
    return cut[0]


def _row(size: Size, axis: int, begin: Any) -> Any:
    """An index along an axis with room to spare."""
    at = jnp.asarray(_traced([begin])[0][axis]).astype(np.int32)
    at = jnp.where(at < 0, at + size.number, at)
    doubt((at < 0) | (at >= size.number))
    return at


def doubt(wrong: Any) -> None:
    """The host computes if that is so."""
    doubts = DOUBTS.get()
    if doubts is None:
        raise Dynamic
    doubts.append(jnp.any(wrong))


_ELSEWHERE: dict[str, Callable[..., Any]] = {
    "ConcatV2": _unless(_along(-1)),
    "Pack": _unless(lambda op, args, rank: ()),
    "Reshape": _reshape,
}

_HANDLERS: dict[str, Callable[..., Any]] = {
    "Shape": _shape, "ShapeN": _shape, "Size": _size, "Rank": _rank, "Range": _range, "BroadcastGradientArgs": _broadcast_gradient_args,
    "ConcatOffset": _concat_offset, "Slice": _slice,
    "Pack": _items(_pack), "ConcatV2": _items(_concat), "Cast": _items(_cast), "Identity": _items(_same), "StopGradient": _items(_same),
    "OnesLike": _items(_ones), "ZerosLike": _items(_ones), "SelectV2": _items(_select), "Mul": _items(_product), "ExpandDims": _items(_expand),
    "Fill": _fill, "BroadcastTo": _broadcast_to, "Reshape": _reshape, "Squeeze": _squeeze,
    "Sum": _reduced(0), "Prod": _prod_of, "Mean": _mean, "All": _reduced(True), "Any": _reduced(False),
    "Max": _reduced(lambda dtype: _extreme(dtype, -1)), "Min": _reduced(lambda dtype: _extreme(dtype, 1)),
    "MatMul": _matmul, "_FusedMatMul": _matmul, "BatchMatMulV2": _matmul, "BiasAddGrad": _bias_add_grad, "StridedSlice": _strided_slice, "StridedSliceGrad": _strided_slice_grad,
    **dict.fromkeys(("Softmax", "_SoftmaxGrad", "LogSoftmax", "SoftmaxCrossEntropyWithLogits"), _unless(_last)), "SparseSoftmaxCrossEntropyWithLogits": _unless(_classes),
    "Unpack": _unless(lambda op, args, rank: (op.attrs["axis"] % rank,)), "Split": _unless(_along(0)), "ArgMax": _unless(_along(1)), "ArgMin": _unless(_along(1)),
}  # fmt: skip
