"""A node's kernel as the executor calls it: bound by its device, with ref inputs read, and library functions as kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engines import complexes, halves, onednn
from penstock.formats.attr_value import FuncAttr
from penstock.graph.bind import Bound, input_ranges
from penstock.graph.ir import Operation, Tensor, ref_error
from penstock.ops.context import DEAD
from penstock.runtime.devices import Device
from penstock.runtime.resources import OpSegment
from penstock.runtime.threads import cpu_count

onednn.install(cpu_count)
halves.install()
complexes.install()

RefInputs = tuple[tuple[int, bool, str | None], ...]
"""(flat input, give the value instead of the ref, name for "uninitialized" or None if that is no error) per ref edge."""


def bind_node(op: Operation, device: Device, segment: OpSegment | None) -> Bound:
    """The kernel of `op` on `device`, ready for `fn(*inputs)`, `fn(ctx, *inputs)` or `fn(ctx, done, *inputs)`."""
    if op.type in op.graph.functions and not device.has_kernel(op.op_def):
        bound = Bound(_call_kernel(op), True, True, False)
    else:
        bound = device.kind.bind(op, segment.state if segment is not None else None)
    refs = ref_inputs(op)
    if refs:
        reading = _reading(bound.fn, refs, bound.needs_ctx + bound.is_async)
        if not bound.needs_ctx and not bound.is_async:
            reading.reads = (bound.fn, refs)  # type: ignore[attr-defined]  # so that generated code can do it itself
        bound = bound._replace(fn=reading)
    return bound


def _call_kernel(op: Operation) -> Callable[..., None]:
    """A node whose type is a function of the graph's library calls that function."""
    func = FuncAttr(op.type, {k: v for k, v in op.attrs.items() if k in op.op_def.attrs})

    def call(ctx: Any, done: Callable[..., Any], *args: Any) -> None:
        ctx.call(func, list(args), done)

    return call


_HARMLESS = (
    "Assert", "CheckNumerics", "GuaranteeConst", "IsVariableInitialized", "LookupTableFind", "LookupTableSize", "Multinomial", "Print", "Random",
    "ReadVariableOp", "Ref", "ResourceGather", "Stack", "Stateless", "TensorArray", "Timestamp", "TruncatedNormal", "VarHandleOp", "VarIsInitialized",
    "VariableShape", "Variable", "VariableV2", "_Arg", "_DeviceArg", "_DeviceRetval", "_HostRecv", "_HostSend", "_ReadVariablesOp", "_Recv",
    "_Retval", "_Send", "_VarHandlesOp",
)  # fmt: skip


def changes_state(op: Operation) -> bool:
    """Whether the kernel changes something that lives longer than the step, and must not be left halfway."""
    return (op.op_def.stateful or any(arg.is_ref for arg in op.op_def.inputs)) and not op.type.startswith(_HARMLESS)


_PASSES_REFS = frozenset(("Identity", "Enter", "Switch"))


def is_live(tensor: Tensor) -> bool:
    """Whether the edge carries the variable itself although its type is a plain one.

    TF's reference variables are written in place, and an Identity of one shares its memory. So what `v/read` gives is always the
    variable's present value: an op that a control dependency puts behind an assignment sees the assigned value. Programs depend on
    that (moving averages behind a training op), so such an Identity hands the variable on and its readers read.
    """
    op = tensor.op
    if op.type not in _PASSES_REFS or not op.inputs:
        return False
    source = op.inputs[0]
    return source.dtype._is_ref_dtype or is_live(source)


def carries_ref(tensor: Tensor) -> bool:
    """Whether the edge carries a variable rather than a value."""
    return tensor.dtype._is_ref_dtype or is_live(tensor)


def ref_inputs(op: Operation) -> RefInputs:
    """Which inputs of `op` come over ref edges, and what to do about them."""
    for tensor in op.inputs:
        if tensor.dtype._is_ref_dtype or tensor.op.type in _PASSES_REFS:
            break
    else:
        return ()  # the usual case
    carries = [carries_ref(t) for t in op.inputs]
    if not any(carries):
        return ()
    takes_ref: list[bool] = []
    for arg, (start, stop, _) in zip(op.op_def.inputs, input_ranges(op), strict=True):
        takes_ref += [arg.is_ref] * (stop - start)
    if op.type in _PASSES_REFS or op.type == "_Retval":  # a fetched variable is read when the step has ended
        takes_ref[0] = True
    checked = not op.op_def.uninitialized_ok
    rows = []
    for i, tensor in enumerate(op.inputs):
        if carries[i]:
            source = _variable_op(tensor)
            name = source.op.name if source.value_index == 0 else f"{source.op.name}:{source.value_index}"
            rows.append((i, not takes_ref[i], name if checked else None))
    return tuple(row for row in rows if row[1] or row[2] is not None)


def _variable_op(tensor: Tensor) -> Tensor:
    while not tensor.dtype._is_ref_dtype:
        tensor = tensor.op.inputs[0]
    origin = tensor.op.origin
    return tensor if origin is None else origin.outputs[tensor.value_index]


def read_ref(ref: Any, deref: bool, name: str | None) -> Any:
    """What a kernel gets for a ref edge; FailedPreconditionError if it needs a value and there is none."""
    if ref is DEAD:
        return ref
    value = ref.value
    if value is None:
        value = ref.peek()
        if value is None and name is not None:
            raise ref_error(name)
    return value if deref else ref


def _reading(fn: Callable[..., Any], refs: RefInputs, leading: int) -> Callable[..., Any]:
    if leading == 0 and len(refs) == 1 and refs[0][0] == 0 and refs[0][1]:
        name = refs[0][2]

        def read_first(ref: Any, *rest: Any) -> Any:
            value = ref.value
            return fn(value if value is not None else read_ref(ref, True, name), *rest)

        return read_first
    if leading == 0 and refs == ((0, False, refs[0][2]),):
        only = refs[0][2]

        def check_first(ref: Any, *rest: Any) -> Any:
            return fn(ref if ref.value is not None else read_ref(ref, False, only), *rest)

        return check_first

    checked = [(leading + i, name) for i, deref, name in refs if not deref]
    wanted = [(leading + i, name) for i, deref, name in refs if deref]

    def read_some(*args: Any) -> Any:
        for i, name in checked:
            ref = args[i]
            if ref is DEAD or ref.value is None:
                read_ref(ref, False, name)
        if not wanted:
            return fn(*args)
        values = list(args)
        for i, name in wanted:
            values[i] = read_ref(values[i], True, name)
        return fn(*values)

    return read_some
