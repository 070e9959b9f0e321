"""tf.map_fn, tf.foldl, tf.foldr, tf.scan: functions applied along the first axis, as loops over TensorArrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import dtypes
from penstock.api import operators as _operators  # noqa: F401 - `+` and `<` of tensors
from penstock.api.control_flow import while_loop
from penstock.api.export import export
from penstock.api.tensor_array import TensorArray
from penstock.graph import nest
from penstock.graph.composite import SparseTensor
from penstock.graph.constant import constant
from penstock.graph.control_flow import dynamic_shape
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.shapes import TensorShape, merge_dim


def _check_callable(fn: Any) -> None:
    if not callable(fn):
        raise TypeError("The provided function `fn` is not callable.")


def _elements(elems: Any, single_ok: bool = True) -> tuple[list[Tensor], Callable[[list], Any]]:
    """(the tensors to walk along, how to pack one slice of each into what the function takes)."""
    if not nest.is_nested(elems):
        flat = [elems]
    else:
        flat = nest.flatten(elems)
        if not flat:
            raise ValueError("elems must be a Tensor or (possibly nested) sequence of Tensors. Got [].")
    if any(isinstance(e, SparseTensor) for e in flat):
        raise TypeError("elems must be dense Tensors; a SparseTensor has no first axis to walk along. Use tf.SparseTensor's values, or make it dense.")
    tensors = [convert_to_tensor(e, name="elem") for e in flat]
    for tensor in tensors:
        if tensor.dims is not None and len(tensor.dims) == 0:
            raise ValueError("Elements in elems must be 1+ dimensional Tensors, not scalars")
    if nest.is_nested(elems):
        return tensors, lambda parts: nest.pack_sequence_as(elems, parts)
    return tensors, lambda parts: parts[0]


def _length(tensors: list[Tensor]) -> tuple[Any, int | None]:
    """(the number of slices as an int or a tensor, what all tensors say of it or None)."""
    static: int | None = None
    for tensor in tensors:
        static = merge_dim(static, None if tensor.dims is None else tensor.dims[0])
    first = tensors[0].dims
    if first is not None and first[0] is not None:
        return first[0], static
    return dynamic_shape(tensors[0])[0], static  # type: ignore[index]


def _unstacked(tensors: list[Tensor], n: Any, **options: Any) -> list[TensorArray]:
    arrays = [TensorArray(dtype=t.dtype.base_dtype, size=n, dynamic_size=False, infer_shape=True, **options) for t in tensors]
    return [array.unstack(t) for array, t in zip(arrays, tensors, strict=True)]


def _stacked(arrays: list[TensorArray], static: int | None) -> list[Tensor]:
    results = [array.stack() for array in arrays]
    for result in results:
        if result.dims is not None:
            result.set_shape(TensorShape([static, *result.dims[1:]]))
    return results


@export("map_fn")
def map_fn(
    fn: Callable[..., Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> Any:
    """Applies `fn` to each slice of `elems` along the first axis and stacks the results.

    `elems` may be a structure of tensors with equal first axes; `fn` then takes one structure of slices. If the result differs
    from `elems` in types or structure, `dtype` (or `fn_output_signature`) must say how.

    >>> tf.map_fn(lambda x: x * x, tf.constant([1, 2, 3]))
    """
    _check_callable(fn)
    signature = dtype if fn_output_signature is None else fn_output_signature
    graph = get_default_graph()
    with graph.name_scope(name or "map"):
        tensors, pack = _elements(elems)
        if signature is None:
            out_types = [t.dtype.base_dtype for t in tensors]
            like = elems
        else:
            out_types = [_output_dtype(s) for s in nest.flatten(signature)]
            like = signature
        n, static = _length(tensors)
        inputs = _unstacked(tensors, n)
        outputs = [TensorArray(dtype=t, size=n, dynamic_size=False, infer_shape=infer_shape) for t in out_types]

        def step(i: Any, arrays: list[TensorArray]) -> Any:
            values = fn(pack([array.read(i) for array in inputs]))
            nest.assert_same_structure(like, values)
            flat = nest.flatten(values)
            return i + 1, [array.write(i, value) for array, value in zip(arrays, flat, strict=True)]

        _, arrays = while_loop(
            lambda i, _: i < n, step, (constant(0, dtypes.int32), outputs), parallel_iterations=parallel_iterations or 10, back_prop=back_prop,
            swap_memory=swap_memory, maximum_iterations=n,
        )  # fmt: skip
        results = _stacked(arrays, static)
        return nest.pack_sequence_as(like, results) if nest.is_nested(like) else results[0]


def _output_dtype(value: Any) -> Any:
    return dtypes.as_dtype(value.dtype if hasattr(value, "dtype") and not isinstance(value, dtypes.DType) else value)


@export("vectorized_map")
def vectorized_map(fn: Callable[..., Any], elems: Any, fallback_to_while_loop: bool = True, warn: bool = True) -> Any:
    """Applies `fn` to each slice of `elems` along the first axis; the result's types and structure come from `fn` itself."""
    _check_callable(fn)
    graph = get_default_graph()
    with graph.name_scope("vectorized_map"):
        tensors, pack = _elements(elems)
        # What `fn` returns is only known once it was called: one call on the first slice tells, and is not run.
        example = nest.map_structure(convert_to_tensor, fn(pack([t[0] for t in tensors])))  # type: ignore[index]
        signature = nest.map_structure(lambda t: t.dtype.base_dtype, example)
        packed = pack(tensors)
        return map_fn(lambda e: nest.map_structure(convert_to_tensor, fn(e)), packed, dtype=signature)


def _fold(
    fn: Callable[..., Any], elems: Any, initializer: Any, backwards: bool, parallel_iterations: int, back_prop: bool, swap_memory: bool,
    name: str,
) -> Any:  # fmt: skip
    _check_callable(fn)
    graph = get_default_graph()
    with graph.name_scope(name):
        tensors, pack = _elements(elems)
        n, _ = _length(tensors)
        inputs = _unstacked(tensors, n)
        start: Any
        if backwards:
            start = n
            if initializer is None:
                start = n - 1
                initializer = pack([array.read(start) for array in inputs])
        else:
            if initializer is None:
                initializer = pack([array.read(0) for array in inputs])
                start = constant(1, dtypes.int32)
            else:
                start = constant(0, dtypes.int32)

        def forwards_step(i: Any, a: Any) -> Any:
            a = fn(a, pack([array.read(i) for array in inputs]))
            return [i + 1, a]

        def backwards_step(i: Any, a: Any) -> Any:
            i = i - 1
            return [i, fn(a, pack([array.read(i) for array in inputs]))]

        _, result = while_loop(
            (lambda i, a: i > 0) if backwards else (lambda i, a: i < n), backwards_step if backwards else forwards_step, [start, initializer],
            parallel_iterations=parallel_iterations, back_prop=back_prop, swap_memory=swap_memory, maximum_iterations=n,
        )  # fmt: skip
        return result


@export("foldl")
def foldl(
    fn: Callable[..., Any], elems: Any, initializer: Any = None, parallel_iterations: int = 10, back_prop: bool = True, swap_memory: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """`fn(... fn(fn(initializer, elems[0]), elems[1]) ..., elems[-1])`; without `initializer`, elems[0] is the start.

    >>> tf.foldl(lambda a, x: a + x, tf.constant([1, 2, 3]))
    """
    return _fold(fn, elems, initializer, False, parallel_iterations, back_prop, swap_memory, name or "foldl")


@export("foldr")
def foldr(
    fn: Callable[..., Any], elems: Any, initializer: Any = None, parallel_iterations: int = 10, back_prop: bool = True, swap_memory: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """`fn(... fn(fn(initializer, elems[-1]), elems[-2]) ..., elems[0])`; without `initializer`, elems[-1] is the start."""
    return _fold(fn, elems, initializer, True, parallel_iterations, back_prop, swap_memory, name or "foldr")


@export("scan")
def scan(
    fn: Callable[..., Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """All intermediate results of a fold, stacked: `a[i] = fn(a[i-1], elems[i])`, from the back if `reverse`.

    Without `initializer`, elems[0] is the first result; with it, results have its structure.

    >>> tf.scan(lambda a, x: a + x, tf.constant([1, 2, 3]))
    """
    _check_callable(fn)
    graph = get_default_graph()
    with graph.name_scope(name or "scan"):
        tensors, pack = _elements(elems)
        n, static = _length(tensors)
        inputs = _unstacked(tensors, n, clear_after_read=False)
        like = elems if initializer is None else initializer
        if initializer is None:
            first = n - 1 if reverse else 0
            start = [array.read(first) for array in inputs]
            i = constant(1, dtypes.int32)
        else:
            start = [convert_to_tensor(v) for v in nest.flatten(initializer)]
            first = None
            i = constant(0, dtypes.int32)
        arrays = [
            TensorArray(dtype=a.dtype.base_dtype, size=n, element_shape=a.shape if infer_shape else None, dynamic_size=False, infer_shape=infer_shape)
            for a in start
        ]
        if initializer is None:
            arrays = [array.write(first, a) for array, a in zip(arrays, start, strict=True)]

        def packed(parts: list[Any]) -> Any:
            return nest.pack_sequence_as(like, parts) if nest.is_nested(like) else parts[0]

        def step(i: Any, a: list[Any], outputs: list[TensorArray]) -> Any:
            value = fn(packed(a), pack([array.read(i) for array in inputs]))
            nest.assert_same_structure(like, value)
            flat = nest.flatten(value)
            outputs = [array.write(i, v) for array, v in zip(outputs, flat, strict=True)]
            return (i - 1 if reverse else i + 1), flat, outputs

        begin = n - 1 - i if reverse else i
        _, _, arrays = while_loop(
            (lambda i, *_: i >= 0) if reverse else (lambda i, *_: i < n), step, (begin, start, arrays), parallel_iterations=parallel_iterations,
            back_prop=back_prop, swap_memory=swap_memory, maximum_iterations=n,
        )  # fmt: skip
        results = _stacked(arrays, static)
        return packed(results)
