"""Small graphs for the runtime's tests, built node by node with `graph.add_node`, and ways to run them."""

from __future__ import annotations

from typing import Any

import numpy as np

import penstock.ops.arithmetic
import penstock.ops.compare
import penstock.ops.constant
import penstock.ops.control_flow
import penstock.ops.elementwise
import penstock.ops.plumbing
import penstock.ops.state  # noqa: F401
from penstock import dtypes
from penstock.formats.attr_value import TensorAttr
from penstock.graph.build import complete_attrs, output_dtypes
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.opdef import OpDef, parse_signature
from penstock.runtime.call_frame import CallFrame
from penstock.runtime.devices import Device, make_local_devices
from penstock.runtime.executor import Executor, Step, run_step
from penstock.runtime.resources import OpSegment

TEST_OPS: dict[str, OpDef] = {}


class Builder:
    """Adds nodes to a graph: `b("AddV2", x, y)` is the new Operation; tensors, or operations for their first output, go in."""

    def __init__(self, graph: Graph | None = None) -> None:
        self.graph = graph or Graph()
        self.count = 0

    def __call__(
        self, op_type: str, *inputs: Any, name: str = "", control: Any = (), device: str = "", **attrs: Any
    ) -> Operation:
        opdef = TEST_OPS.get(op_type) or self.graph.op_def(op_type)
        flat = [self.tensor(i) for i in inputs]
        self.count += 1
        name = name or f"{op_type}_{self.count}"
        attrs = {k: v.encode() if isinstance(v, str) else v for k, v in attrs.items()}
        full = complete_attrs(opdef, flat, attrs, name)
        return self.graph.add_node(opdef, flat, full, name, output_dtypes(opdef, full), control, device)

    def tensor(self, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Operation):
            return value.outputs[0]
        return self.const(value).outputs[0]

    def const(self, value: Any, name: str = "", control: Any = ()) -> Operation:
        array = np.asarray(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        elif array.dtype == np.int64:
            array = array.astype(np.int32)
        dtype = dtypes.from_np(array.dtype)
        return self("Const", name=name, control=control, dtype=dtype, value=TensorAttr(dtype, array))

    def arg(self, index: int, dtype: Any = dtypes.float32, name: str = "") -> Operation:
        return self("_Arg", name=name, T=dtype, index=index)

    def ret(self, index: int, value: Any, control: Any = ()) -> Operation:
        return self("_Retval", value, control=control, index=index)

    def while_loop(
        self, frame: str, init: list[Any], cond: Any, body: Any, parallel: int = 10, invariants: Any = ()
    ) -> list[Operation]:
        """A TF1 while loop: cond(*vars, *invariants) -> bool, body(...) -> new vars. Gives the Exits."""
        enters = [self("Enter", v, frame_name=frame, parallel_iterations=parallel) for v in init]
        fixed = [self("Enter", v, frame_name=frame, parallel_iterations=parallel, is_constant=True) for v in invariants]
        merges = [self("Merge", e, e) for e in enters]
        # What cond and body make without inputs runs once per iteration, as TF's pivots see to it.
        self.pivot = merges[0]
        pred = self("LoopCond", cond(*merges, *fixed))
        switches = [self("Switch", m, pred) for m in merges]
        identities = [self("Identity", s.outputs[1]) for s in switches]
        self.pivot = identities[0]
        results = body(*identities, *fixed)
        for merge, result in zip(merges, results, strict=True):
            merge._update_input(1, self("NextIteration", result).outputs[0])
        return [self("Exit", s.outputs[0]) for s in switches]

    def inside(self, value: Any) -> Operation:
        """A constant inside of the loop being built."""
        return self.const(value, control=[self.pivot])

    def cond(self, pred: Any, values: list[Any], true: Any, false: Any) -> list[Operation]:
        """A TF1 cond: the branches get the switched values and give lists of results. Gives the Merges."""
        switches = [self("Switch", v, pred) for v in values]
        on_true = true(*[s.outputs[1] for s in switches])
        on_false = false(*[s.outputs[0] for s in switches])
        return [self("Merge", f, t) for f, t in zip(on_false, on_true, strict=True)]


def declare(signature: str, kernel: Any = None, async_kernel: Any = None, expensive: bool = False) -> str:
    """Adds an op for tests (or changes it). It stays out of the registry, which other tests walk through."""
    opdef = parse_signature(signature)
    opdef.kernel, opdef.async_kernel, opdef.expensive = kernel, async_kernel, expensive
    TEST_OPS[opdef.name] = opdef
    return opdef.name


def cpu(n: int = 1) -> list[Device]:
    class Config:
        device_count = {"CPU": n}

    return make_local_devices(Config())


def executor(
    builder: Builder, device: Device | None = None, segment: OpSegment | None = None, library: Any = None
) -> Executor:
    return Executor(builder.graph, device or cpu()[0], segment or OpSegment(), library)


def run(what: Any, *args: Any, general: bool = False, **step: Any) -> list[Any]:
    """Runs a Builder's graph, or executors, with arguments; gives the results. `general` keeps off the fast path."""
    executors = [executor(what)] if isinstance(what, Builder) else what if isinstance(what, list) else [what]
    if general:
        for e in executors:
            e.straight = e.compiler = None
    n = max((e.plan.n_retvals for e in executors), default=0)
    frame = CallFrame(list(args), n)
    run_step(executors, Step(frame, **step))
    return frame.take_retvals()
