"""Assertions: the tf.assert_* family, and questions about tensors.

What can be decided while building is decided there, and raises at once. The rest becomes an Assert op, which must be made to
run: `with tf.control_dependencies([tf.assert_positive(x)]): ...`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from penstock import dtypes, errors
from penstock.api.array_ops import rank
from penstock.api.control_flow import no_op
from penstock.api.export import export
from penstock.api.logging_ops import Assert
from penstock.graph.composite import SparseTensor
from penstock.graph.constant import constant, constant_value
from penstock.graph.control_flow import dynamic_shape, with_dependencies
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw
from penstock.shapes import TensorShape


def _scope(name: str | None, default: str) -> Any:
    return get_default_graph().name_scope(name or default)


def _assert_static(condition: bool, data: Iterable[Any]) -> None:
    """Raises now if the condition is known to be false."""
    if condition:
        return
    parts = []
    for item in data:
        value = constant_value(item) if isinstance(item, Tensor) else item
        if value is None:
            parts.append(item.name)
        elif isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 0:
            text: Any = value[()]
            parts.append(text.decode() if isinstance(text, bytes) else str(text))
        else:
            parts.append(str(value))
    raise errors.InvalidArgumentError(message="\n".join(parts), node_def=None, op=None)


def _label(text: str, tensor: Tensor) -> str:
    return f"{text} ({tensor.name}) = "


# ---------------------------------------------------------------------------------------------------------------------
# Comparisons


def _binary_assert(
    sign: str, default_name: str, graph_op: str, static: Callable[..., Any], x: Any, y: Any, data: Any, summarize: int | None,
    message: str | None, name: str | None,
) -> Operation:  # fmt: skip
    with _scope(name, default_name):
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y")
        if data is None:
            data = [f"Condition x {sign} y did not hold element-wise:", _label("x", x), x, _label("y", y), y]
        if message is not None:
            data = [message, *data]
        condition = _everywhere(getattr(raw, graph_op)(x, y))
        x_value, y_value = constant_value(x), constant_value(y)
        if x_value is not None and y_value is not None:
            _assert_static(bool(np.all(static(x_value, y_value))), data)
        return Assert(condition, data, summarize=summarize)


def _everywhere(condition: Tensor) -> Tensor:
    """Whether all elements of `condition` are True."""
    if condition.dims:
        return raw.All(condition, constant(np.arange(len(condition.dims), dtype=np.int32)))
    return raw.All(condition, raw.Range(0, rank(condition), 1, name="range"))


def _comparison(function: str, sign: str, graph_op: str, static: Callable[..., Any], doc: str) -> Callable[..., Operation]:
    def check(x: Any, y: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None) -> Operation:
        return _binary_assert(sign, function, graph_op, static, x, y, data, summarize, message, name)

    check.__name__ = check.__qualname__ = function
    check.__doc__ = f"Asserts {doc} for every pair of elements, with broadcasting; InvalidArgumentError if not."
    return export(function, "debugging." + function)(check)


assert_none_equal = _comparison("assert_none_equal", "!=", "NotEqual", np.not_equal, "x != y")
assert_less = _comparison("assert_less", "<", "Less", np.less, "x < y")
assert_less_equal = _comparison("assert_less_equal", "<=", "LessEqual", np.less_equal, "x <= y")
assert_greater = _comparison("assert_greater", ">", "Greater", np.greater, "x > y")
assert_greater_equal = _comparison("assert_greater_equal", ">=", "GreaterEqual", np.greater_equal, "x >= y")


@export("assert_equal", "debugging.assert_equal")
def assert_equal(x: Any, y: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None) -> Operation:
    """Asserts x == y for every pair of elements, with broadcasting; InvalidArgumentError if not."""
    with _scope(name, "assert_equal"):
        # As in TF, a tensor always equals itself.
        if x is y and isinstance(x, Tensor):
            return no_op()
    return _binary_assert("==", "assert_equal", "Equal", np.equal, x, y, data, summarize, message, name)


def _sign_check(function: str, sign: str, inner: Callable[..., Operation], zero_first: bool, doc: str, joined: bool, spaced: bool) -> Callable[..., Operation]:
    def check(x: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None) -> Operation:
        text = "" if message is None else message + (".  " if spaced else "")
        with _scope(name, function):
            x = convert_to_tensor(x, name="x")
            if data is None:
                head = f"Condition x {sign} 0 did not hold element-wise:"
                data = [text, head + _label("x", x), x] if joined else [text, head, _label("x", x), x]
            zero = constant(0, x.dtype.base_dtype)
            return inner(zero, x, data=data, summarize=summarize) if zero_first else inner(x, zero, data=data, summarize=summarize)

    check.__name__ = check.__qualname__ = function
    check.__doc__ = f"Asserts that every element is {doc}; InvalidArgumentError if not."
    return export(function, "debugging." + function)(check)


assert_negative = _sign_check("assert_negative", "<", assert_less, False, "negative", False, True)
assert_positive = _sign_check("assert_positive", ">", assert_less, True, "positive", False, True)
assert_non_negative = _sign_check("assert_non_negative", ">=", assert_less_equal, True, "at least zero", False, True)
assert_non_positive = _sign_check("assert_non_positive", "<=", assert_less_equal, False, "at most zero", True, True)


_EPSILON = {dtypes.bfloat16: 2.0**-7, dtypes.float16: 2.0**-10, dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52}


@export("assert_near", "debugging.assert_near")
def assert_near(
    x: Any, y: Any, rtol: Any = None, atol: Any = None, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """Asserts |x - y| <= atol + rtol * |y| for every pair; the default tolerances are ten times the type's resolution."""
    text = "" if message is None else message + ".  "
    with _scope(name, "assert_near"):
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        dtype = x.dtype.real_dtype.base_dtype
        tolerance = 10 * _EPSILON.get(dtype, 0.0)
        rtol = convert_to_tensor(tolerance if rtol is None else rtol, dtype=dtype, name="rtol")
        atol = convert_to_tensor(tolerance if atol is None else atol, dtype=dtype, name="atol")
        if data is None:
            data = [text, f"x and y not equal to tolerance rtol = {rtol}, atol = {atol}", _label("x", x), x, _label("y", y), y]
        magnitude = raw.ComplexAbs if x.dtype.is_complex else raw.Abs
        allowed = raw.AddV2(atol, raw.Mul(rtol, magnitude(y, name="Abs"), name="mul"), name="add")
        difference = magnitude(raw.Sub(x, y, name="sub"), name="Abs")
        condition = _everywhere(raw.Less(difference, allowed))
        return Assert(condition, data, summarize=summarize)


# ---------------------------------------------------------------------------------------------------------------------
# Ranks, shapes and types


def _shape_text(x: Any) -> Any:
    return x.shape


def _static_rank(x: Any) -> int | None:
    return x.shape.rank


def _rank_tensor(rank: Any) -> Tensor:
    tensor = convert_to_tensor(rank, name="rank")
    if tensor.dtype.base_dtype != dtypes.int32:
        raise TypeError(f"must be of type tf.int32; got tf.{tensor.dtype.base_dtype.name}")
    return tensor


def _known_rank(tensor: Tensor) -> int | None:
    value = constant_value(tensor)
    if value is not None and value.ndim != 0:
        raise ValueError("Rank must be a scalar.")
    if value is None and tensor.dims is not None and len(tensor.dims) != 0:
        raise ValueError("Rank must be a scalar.")
    return None if value is None else int(value)


def _runtime_shape(x: Any) -> Tensor:
    if isinstance(x, SparseTensor):
        return raw.Cast(x.dense_shape, DstT=dtypes.int32)
    return dynamic_shape(x)


def _runtime_rank(x: Any) -> Tensor:
    if isinstance(x, SparseTensor):
        return raw.Size(x.dense_shape)
    return raw.Rank(x)


def _rank_check(
    x: Any, ranks: list[Tensor], static_ok: Callable[[int, tuple], bool], dynamic_ok: Callable[[Tensor, list[Tensor]], Tensor], what: str,
    shown: Any, data: Any, summarize: int | None, text: str,
) -> Operation:  # fmt: skip
    known = [_known_rank(r) for r in ranks]
    x_rank = _static_rank(x)
    if x_rank is not None and all(k is not None for k in known):
        if not static_ok(x_rank, tuple(known)):
            raise ValueError(f"{text}Tensor {x.name} must have rank {what}{shown(known)}.  Received rank {x_rank}, shape {x.shape}")
        return no_op(name="static_checks_determined_all_ok")
    condition = dynamic_ok(_runtime_rank(x), ranks)
    if data is None:
        data = [text, f"Tensor {x.name} must have rank {what}".rstrip(), *ranks, "Received shape: ", _runtime_shape(x)]
    return Assert(condition, data, summarize=summarize)


def _tensor(x: Any) -> Any:
    return x if isinstance(x, SparseTensor) else convert_to_tensor(x, name="x")


@export("assert_rank", "debugging.assert_rank")
def assert_rank(x: Any, rank: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None) -> Operation:
    """Asserts that `x` has this rank: ValueError now if that is known to be wrong, InvalidArgumentError later."""
    text = "" if not message else message + ".  "
    with _scope(name, "assert_rank"):
        return _rank_check(
            _tensor(x), [_rank_tensor(rank)], lambda r, want: r == want[0], lambda r, want: raw.Equal(r, want[0]), "",
            lambda known: known[0], data, summarize, text,
        )  # fmt: skip


@export("assert_rank_at_least", "debugging.assert_rank_at_least")
def assert_rank_at_least(x: Any, rank: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None) -> Operation:
    """Asserts that `x` has this rank or a higher one."""
    text = "" if not message else message + ".  "
    with _scope(name, "assert_rank_at_least"):
        return _rank_check(
            _tensor(x), [_rank_tensor(rank)], lambda r, want: r >= want[0], lambda r, want: raw.GreaterEqual(r, want[0]), "at least ",
            lambda known: known[0], data, summarize, text,
        )  # fmt: skip


@export("assert_rank_in", "debugging.assert_rank_in")
def assert_rank_in(x: Any, ranks: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None) -> Operation:
    """Asserts that `x` has one of these ranks."""

    def any_of(rank: Tensor, wanted: list[Tensor]) -> Tensor:
        result = raw.Equal(wanted[0], rank)
        for other in wanted[1:]:
            result = raw.LogicalOr(result, raw.Equal(other, rank))
        return result

    text = "" if not message else message + ".  "
    with _scope(name, "assert_rank_in"):
        return _rank_check(
            _tensor(x), [_rank_tensor(r) for r in ranks], lambda r, want: r in want, any_of, "in ", lambda known: tuple(known), data, summarize, text
        )


@export("assert_scalar", "debugging.assert_scalar")
def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Tensor:
    """Returns `tensor` if its static shape is that of a scalar; ValueError if not."""
    with _scope(name, "assert_scalar"):
        tensor = convert_to_tensor(tensor, name=name)
        if tensor.dims is None or len(tensor.dims) != 0:
            text = "" if not message else message + ".  "
            raise ValueError(f"{text}Expected scalar shape for {tensor.name}, saw shape: {tensor.shape}.")
        return tensor


@export("assert_type", "debugging.assert_type")
def assert_type(tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None) -> Operation:
    """TypeError if `tensor` is not of type `tf_type`."""
    tf_type = dtypes.as_dtype(tf_type)
    with _scope(name, "assert_type"):
        tensor = tensor if isinstance(tensor, SparseTensor) else convert_to_tensor(tensor, name="tensor")
        if tensor.dtype.base_dtype != tf_type:
            text = "" if not message else message + ".  "
            raise TypeError(f"{text}{tensor.name} must be of type {tf_type!r}; got {tensor.dtype!r}")
        return no_op("statically_determined_correct_type")


@export("assert_integer", "debugging.assert_integer")
def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Operation:
    """TypeError if `x` is not of an integer type."""
    with _scope(name, "assert_integer"):
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_integer:
            text = "" if not message else message + ".  "
            raise TypeError(f'{text}Expected "x" to be integer type.  Found: {x.name} of dtype {x.dtype}')
        return no_op("statically_determined_was_integer")


@export("assert_same_float_dtype", "debugging.assert_same_float_dtype")
def assert_same_float_dtype(tensors: Any = None, dtype: Any = None) -> Any:
    """The one floating-point type of all `tensors` (float32 if there are none); ValueError if they differ."""
    first: Any = None
    expected = None if dtype is None else dtypes.as_dtype(dtype)
    for tensor in tensors or ():
        got = tensor.dtype.base_dtype
        if expected is None:
            expected, first = got, tensor
        elif got != expected:
            behind = f" as {first.name}" if first is not None else ""
            raise ValueError(f"{getattr(tensor, 'name', tensor)}, type={got}, must be of the same type ({expected}){behind}.")
        else:
            first = first if first is not None else tensor
    if expected is None:
        return dtypes.float32
    if not expected.is_floating:
        raise ValueError(f"Expected floating point type, got {expected}.")
    return expected


@export("assert_proper_iterable", "debugging.assert_proper_iterable")
def assert_proper_iterable(values: Any) -> None:
    """TypeError if `values` is a tensor, an array or a string, which iterate in other ways than a list does."""
    if isinstance(values, (Tensor, SparseTensor, np.ndarray, str, bytes)):
        raise TypeError(f'Expected argument "values" to be a "proper" iterable.  Found: {type(values)}')
    if not hasattr(values, "__iter__"):
        raise TypeError(f'Expected argument "values" to be iterable.  Found: {type(values)}')


@export("debugging.assert_shapes")
def assert_shapes(shapes: Any, data: Any = None, summarize: int | None = None, message: str | None = None, name: str | None = None) -> Operation:
    """Asserts shapes and how they hang together: `[(x, ("N", 3)), (y, ("N", None))]`.

    A size is an int, None or "." (anything), or a name: equal names mean equal sizes. `...` or "*" as the first entry stands
    for any number of leading axes.
    """
    pairs = list(shapes.items()) if isinstance(shapes, dict) else list(shapes)
    text = "" if message is None else message + ".  "
    checks: list[Any] = []
    sizes: dict[str, tuple[Any, Any, int]] = {}  # name -> (size, tensor that gave it, axis)
    with _scope(name, "assert_shapes"):
        for x, wanted in pairs:
            x = _tensor(x)
            if isinstance(wanted, (list, tuple)):
                wanted = list(wanted)
            elif wanted is None:
                continue
            elif isinstance(wanted, TensorShape):
                wanted = wanted.as_list()
            else:
                wanted = [wanted] if isinstance(wanted, (str, int)) else list(wanted)
            open_ended = bool(wanted) and (wanted[0] is Ellipsis or wanted[0] == "*")
            if open_ended:
                wanted = wanted[1:]
            checks += _check_shape(x, wanted, open_ended, sizes, data, summarize, message, text)
        checks = [c for c in checks if c is not None and c.type != "NoOp"]
        if not checks:
            return no_op(name="static_checks_determined_all_ok")
        graph = get_default_graph()
        with graph.control_dependencies(checks):
            return no_op()


def _check_shape(
    x: Any, wanted: list[Any], open_ended: bool, sizes: dict, data: Any, summarize: int | None, message: str | None, text: str
) -> list[Any]:
    check = assert_rank_at_least if open_ended else assert_rank
    checks: list[Any] = [check(x, len(wanted), data=data, summarize=summarize, message=message)]
    static = None if x.shape.rank is None else x.shape.as_list()
    graph = get_default_graph()
    for position, entry in enumerate(wanted):
        if entry is None or entry == ".":
            continue
        axis = position - len(wanted) if open_ended else position
        with graph.control_dependencies([c for c in checks if c is not None]):
            size: Any = None if static is None else static[axis]
            if size is None:
                size = _axis_size(x, axis)
        if isinstance(entry, (int, np.integer)) or (isinstance(entry, str) and entry.isdigit()):
            want, source = int(entry), ""
        elif entry not in sizes:
            sizes[entry] = (size, x, axis)
            continue
        else:
            want, giver, giver_axis = sizes[entry]
            source = f"Specified by tensor {giver.name} dimension {giver_axis}"
        if isinstance(size, int) and isinstance(want, int):
            if size != want:
                lead = source + ".  " if source else ""
                raise ValueError(f"{text}{lead}Tensor {x.name} dimension {axis} must have size {want}.  Received size {size}, shape {x.shape}")
            continue
        details = [text, *([source] if source else []), f"Tensor {x.name} dimension", axis, "must have size", want, "Received shape: ", _runtime_shape(x)]
        checks.append(Assert(raw.Equal(size, want) if isinstance(size, Tensor) else raw.Equal(want, size), data or details, summarize=summarize))
    return checks


def _axis_size(x: Any, axis: int) -> Tensor:
    shape = _runtime_shape(x)
    end = axis + 1
    return raw.StridedSlice(shape, [axis], [end], [1], shrink_axis_mask=1)


# ---------------------------------------------------------------------------------------------------------------------
# Questions


@export("is_numeric_tensor", "debugging.is_numeric_tensor")
def is_numeric_tensor(tensor: Any) -> bool:
    """Whether `tensor` is a Tensor of numbers."""
    return isinstance(tensor, Tensor) and tensor.dtype.base_dtype in _NUMERIC


_NUMERIC = frozenset({
    dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8,
    dtypes.uint16, dtypes.uint32, dtypes.uint64, dtypes.qint8, dtypes.qint32, dtypes.quint8, dtypes.complex64, dtypes.complex128,
})  # fmt: skip


def _neighbours(x: Any) -> tuple[Tensor, Tensor]:
    """(all but the last, all but the first) of x's elements in row-major order."""
    flat = raw.Reshape(x, constant([-1], dtypes.int32))
    begin, one = constant([0], dtypes.int32), constant([1], dtypes.int32)
    return (
        raw.StridedSlice(flat, begin, constant([-1], dtypes.int32), one, begin_mask=1),
        raw.StridedSlice(flat, one, begin, one, end_mask=1),
    )


@export("is_non_decreasing", "math.is_non_decreasing", "debugging.is_non_decreasing")
def is_non_decreasing(x: Any, name: str | None = None) -> Tensor:
    """Whether x[i] <= x[i+1] holds for all elements in row-major order; True for fewer than two elements."""
    with _scope(name, "is_non_decreasing"):
        x = convert_to_tensor(x)
        before, behind = _neighbours(x)
        return raw.All(raw.LessEqual(before, behind), constant([0], dtypes.int32))


@export("is_strictly_increasing", "math.is_strictly_increasing", "debugging.is_strictly_increasing")
def is_strictly_increasing(x: Any, name: str | None = None) -> Tensor:
    """Whether x[i] < x[i+1] holds for all elements in row-major order; True for fewer than two elements."""
    with _scope(name, "is_strictly_increasing"):
        x = convert_to_tensor(x)
        before, behind = _neighbours(x)
        return raw.All(raw.Less(before, behind), constant([0], dtypes.int32))


@export("verify_tensor_all_finite", "debugging.assert_all_finite")
def verify_tensor_all_finite(t: Any = None, msg: str | None = None, name: str | None = None, x: Any = None, message: str | None = None) -> Tensor:
    """The tensor itself, after a check that it holds neither infinities nor NaNs (`x`, `message`: newer names)."""
    x = x if x is not None else t
    message = message if message is not None else msg
    with _scope(name, "VerifyFinite"):
        x = convert_to_tensor(x, name="x")
        graph = get_default_graph()
        with graph.colocate_with(x.op):
            return with_dependencies([raw.CheckNumerics(x, message=message or "")], x)


@export("add_check_numerics_ops")
def add_check_numerics_ops() -> Operation:
    """An op that checks every floating-point tensor of the default graph for infinities and NaNs, in graph order."""
    graph = get_default_graph()
    checks: list[Operation] = []
    for op in graph.get_operations():
        for output in op.outputs:
            if output.dtype.base_dtype not in (dtypes.float16, dtypes.float32, dtypes.float64, dtypes.bfloat16):
                continue
            if op._control_flow_context is not None:
                raise ValueError(
                    "`tf.add_check_numerics_ops() is not compatible with TensorFlow control flow operations such as `tf.cond()` or "
                    "`tf.while_loop()`."
                )
            with graph.control_dependencies(checks[-1:]):
                checks.append(raw.CheckNumerics(output, message=output.name).op)
    with graph.control_dependencies(checks[-1:]):
        return no_op(name="group_deps")
