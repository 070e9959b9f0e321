"""Training ops: TF's optimizers as one op per variable, dense and sparse, for reference and resource variables.

Each line of the table below declares up to four ops: `ApplyX`, `ResourceApplyX`, `SparseApplyX`, `ResourceSparseApplyX`.
They write in place where nobody else looks (see `ops.resources`); sparse ones touch only the rows that are named. A row may be named twice; TF's optimizers
sum the gradients of such a row before. `_SumAndSparseApplyX` does both (`pipeline.optimise.duplicates` makes them).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.errors import FailedPreconditionError, InternalError, InvalidArgumentError, NotFoundError
from penstock.graph.ir import Dims
from penstock.ops.declare import NOT_DIFFERENTIABLE, op
from penstock.ops.kernels import optimizers as f
from penstock.ops.kernels.rows import are_in_range, passes, put_rows
from penstock.ops.native.duplicates import sums_by_number
from penstock.ops.native.updates import Batch, Updates, updates
from penstock.ops.resource_variables import find_variable
from penstock.ops.resources import Owned, Ref, acquire, release, take_free
from penstock.ops.segment import sum_of_duplicates_kernel
from penstock.shapes import format_dims, merge_dims

_TILE = 1 << 15  # elements: a tile of every array involved stays in the cache while the formula runs over it
_GRADIENTS = ("grad", "delta")

engine: Callable[[Callable[..., None], list[np.ndarray], tuple, dict[str, Any]], bool] | None = None
"""Set by an engine that knows formulas for large float32 variables: `engine(formula, arrays, rest, attrs)` is True if it has done it."""
ENGINE_FROM = 6144
"""Elements from which on the engine is asked."""
_FLOAT32 = np.dtype(np.float32)


def _check(names: list[str], arrays: list[np.ndarray], rest: tuple, slots: int, sparse: bool) -> None:
    shape = arrays[0].shape
    for name, array in zip(names[1:slots], arrays[1:], strict=True):
        if array.shape != shape:
            raise InvalidArgumentError(
                f"var and {name} do not have the same shape{format_dims(shape)} {format_dims(array.shape)}"
            )
    for name, value in zip(names[slots:], rest, strict=True):
        if name in _GRADIENTS:
            if not sparse and value.shape != shape:
                raise InvalidArgumentError(
                    f"var and {name} do not have the same shape{format_dims(shape)} {format_dims(value.shape)}"
                )
        elif name != "indices" and np.ndim(value):
            raise InvalidArgumentError(f"{name} is not a scalar: {format_dims(np.shape(value))}")


def _dense(formula: Callable[..., None], names: list[str], slots: int, loops: Updates | None) -> Callable[..., None]:
    """Runs `formula` over whole variables: through an engine or tile by tile if they are large."""
    at = next(i for i, name in enumerate(names) if name in _GRADIENTS) - slots

    def update(refs: tuple, rest: tuple, attrs: dict[str, Any]) -> None:
        arrays = acquire(refs)
        try:
            first = arrays[0]
            shape, size = first.shape, first.size
            # The usual case in few steps; `_check` finds out what is wrong, if anything is.
            for a in arrays:
                if a.shape != shape:
                    _check(names, arrays, rest, slots, sparse=False)
            for i, value in enumerate(rest):
                if value.shape != (shape if i == at else ()):
                    _check(names, arrays, rest, slots, sparse=False)
            if loops is not None and loops.dense(arrays, rest, attrs):
                return
            if size <= ENGINE_FROM:
                formula(*arrays, *rest, **attrs)
            elif engine is None or first.dtype != _FLOAT32 or not engine(formula, arrays, rest, attrs):
                _tiled(formula, arrays, rest, at, attrs)
        finally:
            release(refs, arrays)

    return update


class Together:
    """Updates of several variables by one formula with the same numbers: `together(rows, numbers, start)`, where a row has variables and gradient, goes
    through them from `start` on, and says at which one it stopped. That is none for a loop in machine code; its own kernel will see to it, and to what may be
    wrong."""

    def __init__(self, loops: Updates, slots: int, at: int, of_sums: bool, attrs: dict[str, Any]) -> None:
        self._loops, self._slots, self._at, self._attrs = loops, slots, at, attrs
        self._update = self._by_sums if of_sums else self._by_gradients

    def __call__(self, rows: Sequence[tuple], numbers: list[Any], start: int = 0) -> int:
        for number in numbers:
            if number.shape:
                return start
        return self._update(rows, [*numbers[: self._at], None, *numbers[self._at :]], start)

    def _by_gradients(self, rows: Sequence[tuple], rest: list[Any], start: int) -> int:
        batch, i = self._loops.of(rest, self._attrs), start
        if batch is None:
            return start
        while i < len(rows):
            done = self._at_once(batch, rows, i)
            if done == i:
                row = rows[i]
                if not self._one(row, lambda arrays: batch.add(arrays, row[-1]) and batch.run()):
                    break
                done += 1
            i = done
        return i

    def _at_once(self, batch: Batch, rows: Sequence[tuple], start: int) -> int:
        """As many as there are whose variables can be had without waiting or copying, in one call."""
        slots = self._slots
        refs: list[Ref] = []
        arrays: list[np.ndarray] = []
        i = start
        try:
            while i < len(rows) and not batch.is_full:
                row = rows[i]
                if not take_free(row[:slots], refs, arrays) or not batch.add(arrays[-slots:], row[slots]):
                    break
                i += 1
            batch.run()
        finally:
            release(refs, arrays)
        return i

    def _by_sums(self, rows: Sequence[tuple], rest: list[Any], start: int) -> int:
        run = self._loops.of_rows(rest, self._attrs)
        if run is None:
            return start
        for i in range(start, len(rows)):
            *_, gradient, indices = rows[i]

            def update(arrays: list[np.ndarray]) -> bool:
                found = _sums(arrays[0], gradient, indices)
                return found is not None and run(arrays, found[1], found[0])

            if not self._one(rows[i], update):
                return i
        return len(rows)

    def _one(self, row: tuple, update: Callable[[list[np.ndarray]], bool]) -> bool:
        refs = row[: self._slots]
        try:
            arrays = acquire(refs)
        except FailedPreconditionError:  # which the kernel will raise again
            return False
        try:
            return update(arrays)
        finally:
            release(refs, arrays)


def _sums(var: np.ndarray, gradient: Any, indices: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Sums of the rows of a gradient by their index, and the indices, all within the variable; None if the loop does not do it, or something is wrong."""
    if gradient.__class__ is not np.ndarray or indices.__class__ is not np.ndarray or indices.ndim != 1 or not indices.size:
        return None
    shape = gradient.shape
    if not shape or shape[0] != indices.size or shape[1:] != var.shape[1:]:
        return None
    return sums_by_number(gradient, indices, len(var))


_TOGETHER: dict[str, tuple[Updates, int, tuple[int, ...]]] = {}
"""Of updates of reference variables: the loops, how many variables there are, and where the gradient stands behind them, and its indices if there are any."""


def together(op_type: str, attrs: dict[str, Any]) -> tuple[Together, int, tuple[int, ...]] | None:
    """What updates several variables at once by an op, how many variables that takes, and the places of the gradient and its indices among the inputs."""
    found = _TOGETHER.get(op_type)
    if found is None:
        return None
    loops, slots, at = found
    told = {name: attrs[name] for name in ("use_nesterov", "update_slots", "multiply_linear_by_lr") if name in attrs}
    return Together(loops, slots, at[0], len(at) > 1, told), slots, tuple(slots + i for i in at)


def _tiled(formula: Callable[..., None], arrays: list[np.ndarray], rest: tuple, at: int, attrs: dict[str, Any]) -> None:
    flat = [a.reshape(-1) for a in arrays]
    scalars = list(rest)
    gradient = np.ascontiguousarray(rest[at]).reshape(-1)
    for start in range(0, gradient.size, _TILE):
        tile = slice(start, start + _TILE)
        scalars[at] = gradient[tile]
        formula(*[a[tile] for a in flat], *scalars, **attrs)


def _sparse(formula: Callable[..., None], names: list[str], slots: int, loops: Updates | None, of_sums: bool = False) -> Callable[..., None]:
    """Runs `formula` over the rows that `indices` names, in order. `of_sums`: once for each, with the sum of its rows of the gradient."""
    at = next(i for i, name in enumerate(names) if name in _GRADIENTS) - slots
    at_indices = names.index("indices") - slots
    numbers = [i for i in range(len(names) - slots) if i not in (at, at_indices)]

    def update(refs: tuple, rest: tuple, attrs: dict[str, Any]) -> None:
        gradient, indices = np.asarray(rest[at]), np.asarray(rest[at_indices])
        with Owned(*refs) as arrays:
            var = arrays[0]
            shape = var.shape
            # The usual case in few steps; `_check` finds out what is wrong, if anything is.
            for a in arrays:
                if a.shape != shape:
                    _check(names, arrays, rest, slots, sparse=True)
            for i in numbers:
                if rest[i].shape:
                    _check(names, arrays, rest, slots, sparse=True)
            found = _sums(var, gradient, indices) if of_sums and shape else None
            if found is not None:
                gradient, indices = found
            elif of_sums:
                gradient, indices = sum_of_duplicates_kernel(gradient, indices)
            if var.ndim < 1:
                raise InvalidArgumentError("var must be at least 1 dimensional")
            if indices.ndim != 1:
                raise InvalidArgumentError("indices must be one-dimensional")
            if gradient.ndim < 1 or gradient.shape[0] != indices.shape[0]:
                raise InvalidArgumentError("grad must be the same size as indices in the first dimension.")
            if gradient.shape[1:] != var.shape[1:]:
                axis = next(
                    (i for i in range(1, var.ndim) if i >= gradient.ndim or gradient.shape[i] != var.shape[i]), var.ndim
                )
                raise InvalidArgumentError(f"var and grad must match in dimension {axis}")
            if found is None and not are_in_range(indices, var.shape[0]):
                bad = np.flatnonzero((indices < 0) | (indices >= var.shape[0]))
                raise InvalidArgumentError(f"Index {indices[bad[0]]} at offset {bad[0]} in indices is out of range")
            scalars = [v for i, v in enumerate(rest) if i != at_indices]
            position = at - (at > at_indices)
            scalars[position] = gradient
            if loops is not None and indices.size and loops.rows(arrays, indices, scalars, attrs):
                return
            for which in passes(indices):
                rows = indices[which]
                parts = [a.take(rows, 0) for a in arrays]
                scalars[position] = gradient if which.__class__ is slice else gradient.take(which, 0)
                formula(*parts, *scalars, **attrs)
                for array, part in zip(arrays, parts, strict=True):
                    put_rows(array, rows, part)

    return update


def _kernels(
    update: Callable[..., None], slots: int, attrs: tuple[str, ...]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The kernels of the ref op and of the resource op around one update."""

    def ref_kernel(*args: Any, **attrs: Any) -> Ref:
        update(args[:slots], args[slots:], attrs)
        return args[0]

    def resource_kernel(ctx: Any, *args: Any, **attrs: Any) -> None:
        refs = []
        for handle in args[:slots]:
            try:
                ref = find_variable(ctx, handle)
            except NotFoundError as error:
                raise InternalError(f"Invalid variable reference. {error.message}") from None
            if ref.peek() is None:
                raise InternalError(f"Invalid variable reference. The variable {handle.name} is uninitialized.")
            refs.append(ref)
        update(tuple(refs), args[slots:], attrs)

    # Which attributes a kernel wants is read off its signature.
    wanted = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in attrs]
    rest = inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)
    ctx = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_ONLY)
    ref_kernel.__signature__ = inspect.Signature([rest, *wanted])  # type: ignore[attr-defined]
    resource_kernel.__signature__ = inspect.Signature([ctx, rest, *wanted])  # type: ignore[attr-defined]
    return ref_kernel, resource_kernel


def _shape_rule(names: list[str], slots: int, sparse: bool, resource: bool) -> Callable[[Any], Any]:
    def rule(c: Any) -> Any:
        dims: Dims = None
        for i in range(slots):
            held = (c.handle(i) or (None, None))[1] if resource else c.dims(i)
            dims = merge_dims(dims, held)
        for i, name in enumerate(names[slots:], start=slots):
            given = c.dims(i)
            if name in _GRADIENTS:
                if not sparse:
                    dims = merge_dims(dims, given)
                elif dims is not None and given is not None:
                    merge_dims((None, *dims[1:]), given)
            elif name == "indices":
                if given is not None and len(given) != 1:
                    raise ValueError(f"Shape must be rank 1 but is rank {len(given)}")
            elif given:
                raise ValueError(f"Shape must be rank 0 but is rank {len(given)}")
        return [] if resource else dims

    return rule


def _declare(
    name: str,
    variables: str,
    arguments: str,
    attrs: str,
    formula: Callable[..., None],
    kinds: str,
    sparse: bool = False,
) -> None:
    """Declares `name` with ref variables ("Apply...") and with resources ("ResourceApply..."), as `kinds` says."""
    held, given = variables.split(), arguments.split()
    names, slots = held + given, len(held)
    wanted = tuple(p.name for p in inspect.signature(formula).parameters.values() if p.kind is p.KEYWORD_ONLY)
    loops = updates(formula)
    kernels = _kernels((_sparse if sparse else _dense)(formula, names, slots, loops), slots, wanted)
    of_sums = None
    at = tuple(i for i, each in enumerate(given) if each in (*_GRADIENTS, "indices"))
    if loops is not None and sparse:
        of_sums = _kernels(_sparse(formula, names, slots, loops, of_sums=True), slots, wanted)
        if "ref" in kinds:
            _TOGETHER[f"_SumAnd{name}"] = loops, slots, at
    elif loops is not None and "ref" in kinds:
        _TOGETHER[name] = loops, slots, at
    types = {"global_step": "int64", "indices": "Tindices"}
    rest = ", ".join(f"{a}: {types.get(a, 'T')}" for a in given)
    index = " Tindices: type in {int32, int64};" if sparse else ""
    for kind, kernel, summing in zip(("ref", "resource"), kernels, of_sums or (None, None), strict=True):
        if kind not in kinds.split():
            continue
        is_resource = kind == "resource"
        head = ", ".join(f"{v}: {'resource' if is_resource else 'ref T'}" for v in held)
        for prefix, function in (("", kernel), ("_SumAnd", summing)):
            if function is not None:
                op(f"{prefix}{'Resource' if is_resource else ''}{name}({head}, {rest}) -> ({'' if is_resource else 'out: ref T'})"
                   f" [T: type in NUMBERS;{index} use_locking: bool = false{attrs}]{' stateful' if is_resource else ''}",
                   shape=_shape_rule(names, slots, sparse, is_resource), numpy=function, grad=NOT_DIFFERENTIABLE)  # fmt: skip


_NESTEROV = "; use_nesterov: bool = false"
_SLOTS = "; update_slots: bool = true"
_BY_LR = "; multiply_linear_by_lr: bool = false"
_BOTH = "ref resource"

# name, variables, arguments, attributes, formula, kinds
for _row in (
    ("ApplyGradientDescent", "var", "alpha delta", "", f.gradient_descent, _BOTH),
    ("ApplyMomentum", "var accum", "lr grad momentum", _NESTEROV, f.momentum, _BOTH),
    ("ApplyKerasMomentum", "var accum", "lr grad momentum", _NESTEROV, f.keras_momentum, "resource"),
    ("ApplyAdagrad", "var accum", "lr grad", _SLOTS, f.adagrad, _BOTH),
    ("ApplyAdagradV2", "var accum", "lr epsilon grad", _SLOTS, f.adagrad_v2, _BOTH),
    (
        "ApplyAdagradDA",
        "var gradient_accumulator gradient_squared_accumulator",
        "grad lr l1 l2 global_step",
        "",
        f.adagrad_da,
        _BOTH,
    ),
    ("ApplyAdadelta", "var accum accum_update", "lr rho epsilon grad", "", f.adadelta, _BOTH),
    ("ApplyAdam", "var m v", "beta1_power beta2_power lr beta1 beta2 epsilon grad", _NESTEROV, f.adam, _BOTH),
    (
        "ApplyAdamWithAmsgrad",
        "var m v vhat",
        "beta1_power beta2_power lr beta1 beta2 epsilon grad",
        "",
        f.adam_amsgrad,
        "resource",
    ),
    ("ApplyAdaMax", "var m v", "beta1_power lr beta1 beta2 epsilon grad", "", f.adamax, _BOTH),
    ("ApplyRMSProp", "var ms mom", "lr rho momentum epsilon grad", "", f.rmsprop, _BOTH),
    ("ApplyCenteredRMSProp", "var mg ms mom", "lr rho momentum epsilon grad", "", f.centered_rmsprop, _BOTH),
    ("ApplyAddSign", "var m", "lr alpha sign_decay beta grad", "", f.add_sign, _BOTH),
    ("ApplyPowerSign", "var m", "lr logbase sign_decay beta grad", "", f.power_sign, _BOTH),
    ("ApplyFtrl", "var accum linear", "grad lr l1 l2 lr_power", _BY_LR, f.ftrl, _BOTH),
    ("ApplyFtrlV2", "var accum linear", "grad lr l1 l2 l2_shrinkage lr_power", _BY_LR, f.ftrl_v2, _BOTH),
    ("ApplyProximalGradientDescent", "var", "alpha l1 l2 delta", "", f.proximal_gradient_descent, _BOTH),
    ("ApplyProximalAdagrad", "var accum", "lr l1 l2 grad", "", f.proximal_adagrad, _BOTH),
):
    _declare(*_row)

for _row in (
    ("SparseApplyMomentum", "var accum", "lr grad indices momentum", _NESTEROV, f.sparse_momentum, _BOTH),
    ("SparseApplyKerasMomentum", "var accum", "lr grad indices momentum", _NESTEROV, f.keras_momentum, "resource"),
    ("SparseApplyAdagrad", "var accum", "lr grad indices", _SLOTS, f.adagrad, _BOTH),
    ("SparseApplyAdagradV2", "var accum", "lr epsilon grad indices", _SLOTS, f.adagrad_v2, _BOTH),
    (
        "SparseApplyAdagradDA",
        "var gradient_accumulator gradient_squared_accumulator",
        "grad indices lr l1 l2 global_step",
        "",
        f.sparse_adagrad_da,
        _BOTH,
    ),
    ("SparseApplyAdadelta", "var accum accum_update", "lr rho epsilon grad indices", "", f.adadelta, _BOTH),
    ("SparseApplyRMSProp", "var ms mom", "lr rho momentum epsilon grad indices", "", f.sparse_rmsprop, _BOTH),
    (
        "SparseApplyCenteredRMSProp",
        "var mg ms mom",
        "lr rho momentum epsilon grad indices",
        "",
        f.sparse_centered_rmsprop,
        _BOTH,
    ),
    ("SparseApplyFtrl", "var accum linear", "grad indices lr l1 l2 lr_power", _BY_LR, f.sparse_ftrl, _BOTH),
    ("SparseApplyFtrlV2", "var accum linear", "grad indices lr l1 l2 l2_shrinkage lr_power", _BY_LR, f.sparse_ftrl_v2, _BOTH),
    ("SparseApplyProximalGradientDescent", "var", "alpha l1 l2 grad indices", "", f.proximal_gradient_descent, _BOTH),
    ("SparseApplyProximalAdagrad", "var accum", "lr l1 l2 grad indices", "", f.proximal_adagrad, _BOTH),
):
    _declare(*_row, sparse=True)
