"""From a declared kernel to a function of flat inputs.

A kernel names what it wants in its own parameter list: `ctx` first for the step's context, keyword-only parameters for
attributes, `node` for the operation itself, `state` for what must outlive a step. `bind` looks at that list once per op
type and ties attributes and grouping of list arguments once per node, so that a step pays for a call and nothing else.

Engines may `offer` faster kernels for ops on CPUs; a node takes one when it is bound, if the engine has one for such a node.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from penstock import errors
from penstock.dtypes import DType
from penstock.graph.ir import Operation
from penstock.graph.opdef import OpDef


class Bound(NamedTuple):
    """A kernel ready to run. Call `fn(*flat)`, `fn(ctx, *flat)` or, if asynchronous, `fn(ctx, done, *flat)`."""

    fn: Callable[..., Any]
    needs_ctx: bool
    is_async: bool
    plain: bool  # the result is the one output's value itself, not a sequence


class _KernelPlan(NamedTuple):
    kernel: Callable[..., Any]
    is_async: bool
    needs_ctx: bool
    attrs: tuple[str, ...]
    wants_node: bool
    wants_state: bool
    has_lists: bool


def _plan(opdef: OpDef) -> _KernelPlan:
    kernel = opdef.async_kernel or opdef.kernel
    if kernel is None:
        raise errors.UnimplementedError(
            f"No OpKernel was registered to support Op '{opdef.name}' on CPU. Its signature is known, so graphs that hold it load; "
            "a fetch that needs it cannot run. Add a kernel with penstock.ops.declare.op(..., numpy=...)."
        )
    try:
        parameters = list(inspect.signature(kernel).parameters.values())
    except (TypeError, ValueError):  # ufuncs and builtins take inputs only
        parameters = []
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    if type(kernel).__name__ == "ufunc":
        keywords = []
    special = {"node", "state"}
    unknown = [k for k in keywords if k not in opdef.attrs and k not in special]
    if unknown:
        raise TypeError(f"kernel of {opdef.name} asks for {unknown}, which are no attributes of the op")
    return _KernelPlan(
        kernel,
        opdef.async_kernel is not None,
        opdef.async_kernel is not None or (bool(parameters) and parameters[0].name == "ctx"),
        tuple(k for k in keywords if k not in special),
        "node" in keywords,
        "state" in keywords,
        any(arg.is_list for arg in opdef.inputs),
    )


def bind(op: Operation, state: Callable[[str], SimpleNamespace] | None = None) -> Bound:
    """Ties `op`'s kernel to its attributes. `state(name)` gives the namespace that lives across steps."""
    opdef = op.op_def
    plan: _KernelPlan = opdef.kernel_plan
    if plan is None:
        plan = opdef.kernel_plan = _plan(opdef)
    fn = plan.kernel
    keywords: dict[str, Any] = {name: op.attrs[name] for name in plan.attrs}
    if plan.wants_node:
        keywords["node"] = op
    if plan.wants_state:
        keywords["state"] = state(op.name) if state is not None else SimpleNamespace()
    if keywords:
        fn = functools.partial(fn, **keywords)
    if plan.has_lists:
        fn = _grouped(fn, input_ranges(op), plan.is_async + plan.needs_ctx)
    if opdef.name in FAST:
        fn = _faster(op, fn)
    return Bound(fn, plan.needs_ctx, plan.is_async, opdef.plain_output)


# -- faster kernels -----------------------------------------------------------------------------------------------------

Maker = Callable[[Operation, Callable[..., Any]], "Callable[..., Any] | None"]
"""`maker(op, kernel)` gives a function of the same flat inputs as `kernel` (the declared one, bound to the node's attributes) that is faster
for this node, or None. What it gives calls `kernel` itself for inputs that it does not take, also to word errors."""


class Offer(NamedTuple):
    """An engine's maker, and the types of nodes that it takes (None: any)."""

    maker: Maker
    only: frozenset[DType] | None


FAST: dict[str, dict[str, Offer]] = {}
"""Offers by op type and engine."""


def offer(op_type: str, engine: str, maker: Maker, only: frozenset[DType] | None = None) -> None:
    """Offers an engine's kernel for an op on CPUs. Makers are asked when a node is bound, in the order in which they were offered;
    with `only`, about nodes that have to do with one of these types: large graphs are mostly nodes that nobody wants."""
    FAST.setdefault(op_type, {})[engine] = Offer(maker, only)


def _has_type(op: Operation, types: frozenset[DType]) -> bool:
    attrs = op.attrs
    found = attrs.get("T")
    return found in types if found is not None else attrs.get("SrcT") in types or attrs.get("DstT") in types


_variables: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
"""What os.environ looks up, and by which key. Kernels of a few microseconds ask for a switch that is hardly ever set, which takes os.environ itself 0.7 of them."""
_WISH: Any = os.environ.encodekey("PENSTOCK_ENGINES")


def engine_is_on(name: str) -> bool:
    """Whether an engine may compute: PENSTOCK_ENGINES lists those that may, separated by commas; all may if it is not set.
    `PENSTOCK_ENGINES=numpy` leaves only the declared kernels."""
    wish = _variables.get(_WISH)
    return wish is None or name in (part.strip() for part in os.environ.decodevalue(wish).split(","))


def _faster(op: Operation, kernel: Callable[..., Any]) -> Callable[..., Any]:
    for name, (maker, only) in FAST[op.type].items():
        if only is not None and not _has_type(op, only):
            continue
        found = maker(op, kernel) if engine_is_on(name) else None
        if found is not None:
            with contextlib.suppress(AttributeError):  # methods have no room for it
                found.engine = name  # type: ignore[attr-defined]
            return found
    return kernel


# -- arguments ----------------------------------------------------------------------------------------------------------


def input_ranges(op: Operation) -> list[tuple[int, int, bool]]:
    """(start, stop, is_list) of each input argument in the flat list of inputs."""
    return arg_ranges(op.op_def.inputs, op.attrs)


def arg_ranges(args: list, attrs: dict[str, Any]) -> list[tuple[int, int, bool]]:
    ranges, start = [], 0
    for arg in args:
        count = attrs[arg.number_attr] if arg.number_attr else len(attrs[arg.list_attr]) if arg.list_attr else 1
        ranges.append((start, start + count, arg.is_list))
        start += count
    return ranges


def _grouped(fn: Callable[..., Any], ranges: list[tuple[int, int, bool]], leading: int) -> Callable[..., Any]:
    """Hands each list argument over as one Python list."""
    if len(ranges) == 1 and leading == 0:

        def grouped(*flat: Any) -> Any:
            return fn(list(flat))

        grouped.grouped = fn  # type: ignore[attr-defined]  # so that generated code knows what it calls
        return grouped

    def call(*flat: Any) -> Any:
        head, rest = flat[:leading], flat[leading:]
        return fn(*head, *[list(rest[a:b]) if is_list else rest[a] for a, b, is_list in ranges])

    if leading == 0:
        call.grouped = fn  # type: ignore[attr-defined]
    return call
