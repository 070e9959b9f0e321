"""Elementwise mathematics of the public API: arithmetic, functions, comparisons, conversions (tf.add, tf.exp, tf.cast, ...).

Default node names are TF's. Plain wrappers of one op are made by `_unary` and `_binary`; what does more is written out.
Reductions are in `math_reduce`, special functions in `math_special`, linear algebra in `linalg_ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import dtypes
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.graph.composite import IndexedSlices, SparseTensor
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

# -- wrappers of one op -----------------------------------------------------------------------------------------------


def map_values(function: Callable[..., Any], x: Any, name: str | None) -> Any:
    """`function` on a tensor, or on the values of a SparseTensor, which keeps its indices."""
    if isinstance(x, SparseTensor):
        with name_scope(name, function.__name__, [x.values]):
            return SparseTensor(x.indices, function(x.values), x.dense_shape)
    return function(x, name=name)


def _unary(op_type: str, *names: str, doc: str) -> Callable[..., Tensor]:
    """Exports an elementwise function of one argument."""

    def function(x: Any, name: str | None = None) -> Any:
        if x.__class__ is SparseTensor:
            return map_values(function, x, name)
        return getattr(raw, op_type)(x, name=name)

    return _named(function, names, doc)


def _binary(op_type: str, *names: str, doc: str, default: str | None = None) -> Callable[..., Tensor]:
    """Exports an elementwise function of two arguments that broadcast."""

    def function(x: Any, y: Any, name: str | None = None) -> Any:
        return getattr(raw, op_type)(x, y, name=name or default)

    return _named(function, names, doc)


def _named(function: Any, names: tuple[str, ...], doc: str) -> Any:
    function.__name__ = function.__qualname__ = names[0].rpartition(".")[2]
    function.__doc__ = doc
    return export(*names)(function)


neg = negative = _unary("Neg", "negative", "math.negative", doc="-x, elementwise.")
reciprocal = _unary("Reciprocal", "reciprocal", "math.reciprocal", doc="1 / x, elementwise.")
square = _unary("Square", "square", "math.square", doc="x * x, elementwise.")
sqrt = _unary("Sqrt", "sqrt", "math.sqrt", doc="The square root; NaN for negative numbers.")
rsqrt = _unary("Rsqrt", "rsqrt", "math.rsqrt", doc="1 / sqrt(x), elementwise.")
exp = _unary("Exp", "exp", "math.exp", doc="e to the power x, elementwise.")
expm1 = _unary("Expm1", "expm1", "math.expm1", doc="exp(x) - 1, exact for small x.")
log = _unary("Log", "log", "math.log", doc="The natural logarithm, elementwise.")
log1p = _unary("Log1p", "log1p", "math.log1p", doc="log(1 + x), exact for small x.")
sin = _unary("Sin", "sin", "math.sin", doc="The sine of an angle in radians.")
cos = _unary("Cos", "cos", "math.cos", doc="The cosine of an angle in radians.")
tan = _unary("Tan", "tan", "math.tan", doc="The tangent of an angle in radians.")
asin = _unary("Asin", "asin", "math.asin", doc="The inverse sine, in radians; NaN outside of [-1, 1].")
acos = _unary("Acos", "acos", "math.acos", doc="The inverse cosine, in radians; NaN outside of [-1, 1].")
atan = _unary("Atan", "atan", "math.atan", doc="The inverse tangent, in radians.")
sinh = _unary("Sinh", "sinh", "math.sinh", doc="The hyperbolic sine.")
cosh = _unary("Cosh", "cosh", "math.cosh", doc="The hyperbolic cosine.")
tanh = _unary("Tanh", "tanh", "math.tanh", "nn.tanh", doc="The hyperbolic tangent.")
asinh = _unary("Asinh", "asinh", "math.asinh", doc="The inverse hyperbolic sine.")
acosh = _unary("Acosh", "acosh", "math.acosh", doc="The inverse hyperbolic cosine; NaN below 1.")
atanh = _unary("Atanh", "atanh", "math.atanh", doc="The inverse hyperbolic tangent; NaN outside of [-1, 1].")
sigmoid = _unary("Sigmoid", "sigmoid", "math.sigmoid", "nn.sigmoid", doc="1 / (1 + exp(-x)), elementwise.")
ceil = _unary("Ceil", "ceil", "math.ceil", doc="The smallest whole number that is not below x.")
floor = _unary("Floor", "floor", "math.floor", doc="The largest whole number that is not above x.")
rint = _unary("Rint", "rint", "math.rint", doc="The nearest whole number; halves go to the even one.")
sign = _unary("Sign", "sign", "math.sign", doc="-1, 0 or 1 as x is negative, 0 or positive; x / |x| for complex numbers.")
is_nan = _unary("IsNan", "is_nan", "math.is_nan", "debugging.is_nan", doc="Where x is not a number.")
is_inf = _unary("IsInf", "is_inf", "math.is_inf", "debugging.is_inf", doc="Where x is infinite, of either sign.")
is_finite = _unary("IsFinite", "is_finite", "math.is_finite", "debugging.is_finite", doc="Where x is neither infinite nor NaN.")
logical_not = _unary("LogicalNot", "logical_not", "math.logical_not", doc="Where x is False.")

subtract = _binary("Sub", "subtract", "math.subtract", doc="x - y, elementwise with broadcasting.")
multiply = _binary("Mul", "multiply", "math.multiply", doc="x * y, elementwise with broadcasting.")
realdiv = _binary("RealDiv", "realdiv", doc="x / y for floating-point tensors.")
truncatediv = _binary("TruncateDiv", "truncatediv", doc="x / y rounded towards zero, as C divides integers.")
truncatemod = _binary("TruncateMod", "truncatemod", doc="The remainder of `truncatediv`; it has the sign of x.")
floormod = mod = _binary("FloorMod", "floormod", "mod", "math.floormod", "math.mod", doc="The remainder of `floordiv`; it has the sign of y, as Python's %.")
floor_div = _binary("FloorDiv", "floor_div", doc="x // y, elementwise.")
maximum = _binary("Maximum", "maximum", "math.maximum", doc="The larger of x and y, elementwise; NaN if either is NaN.")
minimum = _binary("Minimum", "minimum", "math.minimum", doc="The smaller of x and y, elementwise; NaN if either is NaN.")
squared_difference = _binary("SquaredDifference", "squared_difference", "math.squared_difference", doc="(x - y)(x - y), elementwise.")
xlogy = _binary("Xlogy", "math.xlogy", doc="x * log(y), and 0 where x is 0.")
equal = _binary("Equal", "equal", "math.equal", doc="Where x equals y.")
not_equal = _binary("NotEqual", "not_equal", "math.not_equal", doc="Where x differs from y.")
less = _binary("Less", "less", "math.less", doc="Where x < y.")
less_equal = _binary("LessEqual", "less_equal", "math.less_equal", doc="Where x <= y.")
greater = _binary("Greater", "greater", "math.greater", doc="Where x > y.")
greater_equal = _binary("GreaterEqual", "greater_equal", "math.greater_equal", doc="Where x >= y.")
logical_and = _binary("LogicalAnd", "logical_and", "math.logical_and", doc="Where x and y are both True.")
logical_or = _binary("LogicalOr", "logical_or", "math.logical_or", doc="Where x or y is True.")
bitwise_and = _binary("BitwiseAnd", "bitwise.bitwise_and", doc="The bits that are set in x and in y.")
bitwise_or = _binary("BitwiseOr", "bitwise.bitwise_or", doc="The bits that are set in x or in y.")
bitwise_xor = _binary("BitwiseXor", "bitwise.bitwise_xor", doc="The bits that are set in one of x and y.")
left_shift = _binary("LeftShift", "bitwise.left_shift", doc="x shifted left by y bits; y is clamped to the width of the type.")
right_shift = _binary("RightShift", "bitwise.right_shift", doc="x shifted right by y bits, keeping the sign; y is clamped to the width of the type.")
invert = _unary("Invert", "bitwise.invert", doc="Every bit flipped.")

# -- arithmetic -------------------------------------------------------------------------------------------------------


@export("add", "math.add")
def add(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x + y, elementwise with broadcasting; strings are joined."""
    if name is None and x.__class__ is Tensor and y.__class__ is Tensor:
        return add_tensors(x, y, "Add")  # as the scope would be called
    with name_scope(name, "Add", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", preferred_dtype=x.dtype.base_dtype)
        return add_tensors(x, y, scope)


def add_tensors(x: Tensor, y: Tensor, name: str | None) -> Tensor:
    """The node of a sum: AddV2, or Add for strings, which AddV2 does not take."""
    if x.dtype.base_dtype is dtypes.string:
        return raw.Add(x, y, name=name)
    return raw.AddV2(x, y, name=name)


@export("scalar_mul", "math.scalar_mul")
def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """`scalar * x` for a scalar and a Tensor or IndexedSlices."""
    base = x.dtype.base_dtype
    scalar = convert_to_tensor(scalar, dtype=base, name="scalar")
    if scalar.dims not in (None, ()):
        raise ValueError(f"The input scalar must be a 0-D value. Received shape {scalar.shape}.")
    if isinstance(x, IndexedSlices):
        return IndexedSlices(raw.Mul(scalar, x.values, name=name), x.indices, x.dense_shape)
    return raw.Mul(scalar, x, name=name)


_TRUEDIV_TYPES = {
    dtypes.uint8: dtypes.float32, dtypes.int8: dtypes.float32, dtypes.uint16: dtypes.float32, dtypes.int16: dtypes.float32,
    dtypes.uint32: dtypes.float64, dtypes.int32: dtypes.float64, dtypes.uint64: dtypes.float64, dtypes.int64: dtypes.float64,
    dtypes.bfloat16: None, dtypes.float16: None, dtypes.float32: None, dtypes.float64: None, dtypes.complex64: None, dtypes.complex128: None,
}  # fmt: skip


@export("truediv", "math.truediv")
def truediv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y as Python 3 divides: integers become float32 (8 and 16 bits) or float64 first."""
    with name_scope(name, "truediv", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", preferred_dtype=x.dtype.base_dtype)
        return divide_tensors(x, y, scope)


def divide_tensors(x: Tensor, y: Tensor, name: str) -> Tensor:
    """True division of two tensors inside of the scope `name`."""
    kind, other = x.dtype.base_dtype, y.dtype.base_dtype
    if kind is not other:
        raise TypeError(f"`x` and `y` must have the same dtype, got {kind!r} != {other!r}.")
    if kind not in _TRUEDIV_TYPES:
        allowed = ", ".join(repr(t) for t in _TRUEDIV_TYPES)
        raise TypeError(f"Invalid dtype {kind!r} in __truediv__. Expected one of {{{allowed}}}.")
    wide = _TRUEDIV_TYPES[kind]
    if wide is not None:
        x, y = cast(x, wide), cast(y, wide)
    return raw.RealDiv(x, y, name=name)


@export("divide", "math.divide")
def divide(x: Any, y: Any, name: str | None = None) -> Any:
    """Python style division of x by y: `x / y`."""
    if name is not None:
        return truediv(x, y, name=name)
    if not (isinstance(x, Tensor) or isinstance(y, Tensor) or hasattr(x, "dtype") or hasattr(y, "dtype")):
        x = convert_to_tensor(x)
    return x / y


@export("div")
def div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Python 2 style division: floor for integers, real division for floats."""
    with name_scope(name, "div", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        if x.dtype.is_floating or x.dtype.is_complex:
            return raw.RealDiv(x, y, name=scope)
        return raw.FloorDiv(x, y, name=scope)


@export("floordiv", "math.floordiv")
def floordiv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x // y: the quotient, rounded down."""
    with name_scope(name, "floordiv", [x, y]) as scope:
        return raw.FloorDiv(x, y, name=scope)


@export("div_no_nan", "math.divide_no_nan")
def div_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y, and 0 where y is 0."""
    with name_scope(name, "div_no_nan", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return raw.DivNoNan(x, y, name=scope)


@export("math.multiply_no_nan")
def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x * y, and 0 where y is 0, even if x is infinite or NaN."""
    with name_scope(name, "multiply_no_nan", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return raw.MulNoNan(x, y, name=scope)


@export("math.reciprocal_no_nan")
def reciprocal_no_nan(x: Any, name: str | None = None) -> Tensor:
    """1 / x, and 0 where x is 0."""
    with name_scope(name, "reciprocal_no_nan", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        one = convert_to_tensor(1, dtype=x.dtype.base_dtype, name="one")
        return raw.DivNoNan(one, x, name=scope)


@export("math.xdivy")
def xdivy(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y, and 0 where x is 0."""
    with name_scope(name, "xdivy", [x]):
        return raw.Xdivy(x, y)


@export("math.xlog1py")
def xlog1py(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x * log(1 + y), and 0 where x is 0."""
    with name_scope(name, "xlog1py", [x]):
        return raw.Xlog1py(x, y)


@export("pow", "math.pow")
def pow(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x to the power y. Integers to negative powers are an InvalidArgumentError."""
    with name_scope(name, "Pow", [x]) as scope:
        return raw.Pow(x, y, name=scope)


@export("abs", "math.abs")
def abs(x: Any, name: str | None = None) -> Any:
    """The absolute value; for complex numbers the modulus, as a real tensor."""
    if isinstance(x, SparseTensor):
        return map_values(abs, x, name)
    with name_scope(name, "Abs", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            return raw.ComplexAbs(x, Tout=x.dtype.real_dtype, name=scope)
        return raw.Abs(x, name=scope)


@export("round", "math.round")
def round(x: Any, name: str | None = None) -> Tensor:
    """The nearest whole number; halves go to the even one. Integers come back as they are."""
    if isinstance(x, SparseTensor):
        return map_values(round, x, name)
    x = convert_to_tensor(x, name="x")
    return x if x.dtype.is_integer else raw.Round(x, name=name)


@export("atan2", "math.atan2")
def atan2(y: Any, x: Any, name: str | None = None) -> Tensor:
    """The angle of the point (x, y), in (-pi, pi]."""
    return raw.Atan2(y, x, name=name)


@export("math.nextafter")
def nextafter(x1: Any, x2: Any, name: str | None = None) -> Tensor:
    """The next floating-point number after x1 in the direction of x2."""
    return raw.NextAfter(x1, x2, name=name)


@export("logical_xor", "math.logical_xor")
def logical_xor(x: Any, y: Any, name: str = "LogicalXor") -> Tensor:
    """Where exactly one of x and y is True."""
    return raw.LogicalAnd(raw.LogicalOr(x, y), raw.LogicalNot(raw.LogicalAnd(x, y)), name=name)


@export("log_sigmoid", "math.log_sigmoid")
def log_sigmoid(x: Any, name: str | None = None) -> Tensor:
    """log(1 / (1 + exp(-x))), without overflow."""
    with name_scope(name, "LogSigmoid", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return raw.Neg(raw.Softplus(raw.Neg(x)), name=scope)


@export("math.polyval")
def polyval(coeffs: Any, x: Any, name: str | None = None) -> Tensor:
    """The polynomial with these coefficients, highest power first, at x (Horner's scheme)."""
    if not isinstance(coeffs, list):
        raise ValueError(f"Argument coeffs must be list type. Received type {type(coeffs)}.")
    with name_scope(name, "polyval", [*_flat(coeffs), x]):
        x = convert_to_tensor(x, name="x")
        if not coeffs:
            from penstock.api.array_ops import zeros_like

            return zeros_like(x, name=name)
        parts = [convert_to_tensor(c, name=f"coeff_{i}") for i, c in enumerate(coeffs)]
        value = parts[0]
        for part in parts[1:]:
            value = part + value * x  # type: ignore[operator]
        return value


def _flat(values: Any) -> list[Any]:
    return [v for v in values if hasattr(v, "graph")]


# -- sums of many -----------------------------------------------------------------------------------------------------


@export("add_n", "math.add_n")
def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """The sum of a list of tensors of one shape and type."""
    tensors = _tensors(inputs, "Inputs must be an iterable of at least one Tensor/IndexedSlices with the same dtype and shape.")
    if len(tensors) == 1:
        only = convert_to_tensor(tensors[0]) if isinstance(tensors[0], IndexedSlices) else tensors[0]
        return raw.Identity(only, name=name) if name else only
    return raw.AddN([convert_to_tensor(t) for t in tensors], name=name)


def _tensors(inputs: Any, problem: str) -> list[Any]:
    if not inputs or not isinstance(inputs, (list, tuple)):
        raise ValueError(problem)
    result = [v if isinstance(v, IndexedSlices) else convert_to_tensor(v) for v in inputs]
    if not all(isinstance(v, (Tensor, IndexedSlices)) for v in result):
        raise ValueError(problem)
    return result


@export("accumulate_n", "math.accumulate_n")
def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None) -> Tensor:
    """The sum of a list of tensors of one shape and type; `shape` and `tensor_dtype` check them."""
    from penstock.shapes import TensorShape

    problem = "inputs must be a list of at least one Tensor with the same dtype and shape"
    tensors = _tensors(inputs, problem)
    if any(t.dtype.base_dtype is not tensors[0].dtype.base_dtype for t in tensors):
        raise ValueError(problem)
    merged = TensorShape(shape) if shape is not None else TensorShape(None)
    for t in tensors:
        merged = merged.merge_with(t.shape)
    if tensor_dtype is not None and dtypes.as_dtype(tensor_dtype) is not tensors[0].dtype.base_dtype:
        raise TypeError(f"The `tensor_dtype` argument is {tensor_dtype}, but `input` is of type {tensors[0].dtype}. These must be equal.")
    if len(tensors) == 1 and name is None:
        return tensors[0]
    if len(tensors) == 1:
        return raw.Identity(tensors[0], name=name)
    return add_n(tensors, name=name)


# -- conversion -------------------------------------------------------------------------------------------------------


@export("cast")
def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """`x` as `dtype`. Floats lose their fraction, complex numbers their imaginary part; the same type is no node at all."""
    base = dtypes.as_dtype(dtype).base_dtype
    if isinstance(x, Tensor) and x.dtype.base_dtype is base:
        return x
    with name_scope(name, "Cast", [x]) as scope:
        if isinstance(x, SparseTensor):
            return SparseTensor(x.indices, cast(x.values, base, name=scope), x.dense_shape)
        if isinstance(x, IndexedSlices):
            return IndexedSlices(cast(x.values, base, name=scope), x.indices, x.dense_shape)
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex and base.is_floating:
            _warn_imaginary(x.dtype, base)
        return x if x.dtype.base_dtype is base else raw.Cast(x, DstT=base, name=scope)


def _warn_imaginary(source: Any, target: Any) -> None:
    import logging

    logging.getLogger("tensorflow").warning(
        "You are casting an input of type %s to an incompatible dtype %s.  This will discard the imaginary part and may not be what you intended.",
        source.name, target.name,
    )  # fmt: skip


@export("saturate_cast")
def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor:
    """Like `cast`, but what does not fit into `dtype` becomes its nearest limit instead of wrapping around."""
    with name_scope(name, "saturate_cast", [value]) as scope:
        value = convert_to_tensor(value, name="value")
        want = dtypes.as_dtype(dtype).base_dtype
        have = value.dtype.base_dtype
        if have.is_complex and not want.is_complex:
            value = cast(value, have.real_dtype)
            have = have.real_dtype
        if not (have.is_complex or have.is_bool or want.is_complex or want.is_bool):
            low, high = _common_limits(have, want)
            value = raw.ClipByValue(value, _limit(low, have), _limit(high, have), name="clamp")
        return cast(value, want, name=scope)


def _limit(number: Any, dtype: Any) -> Tensor:
    return convert_to_tensor(np.asarray(number).astype(dtype.np), dtype=dtype)


def _common_limits(have: Any, want: Any) -> tuple[Any, Any]:
    """The range of values of type `have` that `want` can hold too, as values of `have`."""
    low, high = max(have.min, want.min), min(have.max, want.max)
    if have.is_floating and want.is_integer:
        # The integer's limit may round up to a float that no longer fits.
        zero = have.np.type(0)
        if float(np.asarray(low).astype(have.np)) < want.min:
            low = np.nextafter(np.asarray(low).astype(have.np), zero)
        if float(np.asarray(high).astype(have.np)) > want.max:
            high = np.nextafter(np.asarray(high).astype(have.np), zero)
    return low, high


def _to(dtype: Any, public: str, default: str) -> Any:
    def function(x: Any, name: str = default) -> Any:
        return cast(x, dtype, name=name)

    return _named(function, (public,), f"Deprecated: `tf.cast(x, tf.{dtype.name})`.")


to_float = _to(dtypes.float32, "to_float", "ToFloat")
to_double = _to(dtypes.float64, "to_double", "ToDouble")
to_int32 = _to(dtypes.int32, "to_int32", "ToInt32")
to_int64 = _to(dtypes.int64, "to_int64", "ToInt64")
to_bfloat16 = _to(dtypes.bfloat16, "to_bfloat16", "ToBFloat16")
to_complex64 = _to(dtypes.complex64, "to_complex64", "ToComplex64")
to_complex128 = _to(dtypes.complex128, "to_complex128", "ToComplex128")

# -- complex numbers --------------------------------------------------------------------------------------------------


@export("complex", "dtypes.complex")
def complex(real: Any, imag: Any, name: str | None = None) -> Tensor:
    """The complex number real + i * imag; both parts float32 or both float64."""
    real = convert_to_tensor(real, name="real")
    imag = convert_to_tensor(imag, name="imag")
    with name_scope(name, "Complex", [real, imag]) as scope:
        types = (real.dtype.base_dtype, imag.dtype.base_dtype)
        if types == (dtypes.float64, dtypes.float64):
            tout = dtypes.complex128
        elif types == (dtypes.float32, dtypes.float32):
            tout = dtypes.complex64
        else:
            raise TypeError(
                f"The `real` and `imag` components have incorrect types: {real.dtype.name} {imag.dtype.name}. They must be consistent, and one of "
                "[tf.float32, tf.float64]"
            )
        return raw.Complex(real, imag, Tout=tout, name=scope)


@export("real", "math.real")
def real(input: Any, name: str | None = None) -> Tensor:
    """The real part; real tensors come back as they are."""
    with name_scope(name, "Real", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        return raw.Real(input, Tout=input.dtype.real_dtype, name=scope) if input.dtype.is_complex else input


@export("imag", "math.imag")
def imag(input: Any, name: str | None = None) -> Tensor:
    """The imaginary part; zeros for a real tensor."""
    with name_scope(name, "Imag", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        if input.dtype.is_complex:
            return raw.Imag(input, Tout=input.dtype.real_dtype, name=scope)
        from penstock.api.array_ops import zeros_like

        return zeros_like(input)


@export("angle", "math.angle")
def angle(input: Any, name: str | None = None) -> Tensor:
    """The argument of complex numbers, in (-pi, pi]; 0 or pi for real ones."""
    with name_scope(name, "Angle", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        if input.dtype.is_complex:
            return raw.Angle(input, Tout=input.dtype.real_dtype, name=scope)
        from penstock.api.array_ops import ones_like, zeros_like

        return raw.Select(less(input, 0), np.pi * ones_like(input), zeros_like(input))


@export("conj", "math.conj")
def conj(x: Any, name: str | None = None) -> Tensor:
    """The complex conjugate; real tensors come back as they are."""
    if isinstance(x, Tensor) and (x.dtype.is_floating or x.dtype.is_integer):
        return x
    with name_scope(name, "Conj", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex or x.dtype.base_dtype is dtypes.variant:
            return raw.Conj(x, name=scope)
        if x.dtype.is_floating or x.dtype.is_integer:
            return x
        raise TypeError(f"Expected numeric or variant tensor, got dtype {x.dtype!r}.")
