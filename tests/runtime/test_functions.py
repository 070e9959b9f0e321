"""Library functions: calls from kernels, nodes that are calls, recursion, errors, calls from outside of steps."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from penstock import dtypes, errors
from penstock.formats.attr_value import FuncAttr
from penstock.graph.opdef import parse_signature
from penstock.runtime import functions as functions_module
from penstock.runtime.executor import Executor
from penstock.runtime.functions import FunctionRuntime
from penstock.runtime.resources import OpSegment

from .graphs import Builder, cpu, declare, run


def _while(ctx, done, args, *, cond, body):
    """A functional loop, written the way any asynchronous kernel may call functions."""

    def test(values, error=None):
        if error is not None:
            done(None, error)
        else:
            ctx.call(cond, values, lambda result, error=None: decide(values, result, error))

    def decide(values, result, error):
        if error is not None:
            done(None, error)
        elif result[0]:
            ctx.call(body, values, test)
        else:
            done(values)

    test(args)


declare("TestCall(args: list Tin) -> (output: list Tout) [Tin: list(type); Tout: list(type); f: func]",
        async_kernel=lambda ctx, done, args, *, f: ctx.call(f, args, done))  # fmt: skip
declare("TestWhile(args: list T) -> (output: list T) [T: list(type); cond: func; body: func]", async_kernel=_while)
declare("TestBoom(x: T) -> (y: T) [T: type]", kernel=lambda x: (_ for _ in ()).throw(errors.DataLossError("boom")))
declare(
    "TestLater(x: T) -> (y: T) [T: type]", async_kernel=lambda ctx, done, x: threading.Timer(0.002, done, [x]).start()
)
declare("TestStepId() -> (n: int64)", kernel=lambda ctx: np.int64(ctx.step_id))


class Library:
    """Functions made from body builders; counts compilations."""

    def __init__(self):
        self.functions = {}
        self.compiled = []
        self.device = cpu()[0]
        self.segment = OpSegment()
        self.runtime = FunctionRuntime(self.functions, self.compile)

    def compile(self, function, attrs):
        self.compiled.append((function.name, attrs))
        return [Executor(function.graph, self.device, self.segment, self.runtime)]

    def add(self, signature, make):
        opdef = parse_signature(signature)
        b = Builder()
        b.graph.functions = self.functions
        self.functions[opdef.name] = SimpleNamespace(name=opdef.name, op_def=opdef, graph=b.graph)
        make(b)

    def builder(self):
        b = Builder()
        b.graph.functions = self.functions
        return b

    def run(self, builder, *args, **step):
        return run(Executor(builder.graph, self.device, self.segment, self.runtime), *args, **step)


@pytest.fixture
def library():
    return Library()


def square(library, op="Identity"):
    library.add("Square1(x: float) -> (y: float)", lambda b: b.ret(0, b(op, b("Mul", *[b.arg(0)] * 2))))


@pytest.mark.parametrize("op", ["Identity", "TestLater"])
def test_a_node_that_is_a_call(library, op):
    square(library, op)
    b = library.builder()
    once = b("Square1", b.arg(0))
    b.ret(0, b("AddV2", once, b("Square1", once)))
    assert float(library.run(b, np.float32(2))[0]) == 20
    assert len(library.compiled) == 1


def test_a_kernel_that_calls(library):
    square(library)
    b = library.builder()
    call = b("TestCall", b.arg(0), f=FuncAttr("Square1"), Tout=[dtypes.float32])
    b.ret(0, call)
    assert float(library.run(b, np.float32(3))[0]) == 9


def test_instances_by_attributes(library):
    square(library)
    first = library.runtime.instantiate(FuncAttr("Square1", {"T": dtypes.float32, "n": [1, 2]}))
    assert library.runtime.instantiate("Square1", {"n": [1, 2], "T": dtypes.float32}) is first
    assert library.runtime.instantiate("Square1", {"T": dtypes.float64, "n": [1, 2]}) is not first
    assert library.runtime.instantiate(b"Square1") is not first
    assert len(library.compiled) == 3


def test_functional_loops_use_no_stack(library):
    library.add("Cond(i: int32, s: int32) -> (p: bool)", lambda b: b.ret(0, b("Less", b.arg(0, dtypes.int32), 3000)))

    def body(b):
        i, s = b.arg(0, dtypes.int32), b.arg(1, dtypes.int32)
        b.ret(0, b("AddV2", i, 1))
        b.ret(1, b("AddV2", s, i))

    library.add("Body(i: int32, s: int32) -> (i2: int32, s2: int32)", body)
    b = library.builder()
    loop = b("TestWhile", 0, 0, cond=FuncAttr("Cond"), body=FuncAttr("Body"))
    b.ret(0, loop.outputs[0])
    b.ret(1, loop.outputs[1])
    assert [int(v) for v in library.run(b)] == [3000, 3000 * 2999 // 2]


def factorial(library):
    def body(b):
        n = b.arg(0, dtypes.int32)
        more = b("Greater", n, 1)

        def again(n):
            smaller = b("Factorial", b("Sub", n, b.const(1, control=[n.op])))
            return [b("FloorMod", b("Mul", n, smaller), b.const(10007, control=[n.op]))]

        b.ret(0, b.cond(more, [n], again, lambda n: [b("Identity", n)])[0])

    library.add("Factorial(n: int32) -> (y: int32)", body)


def test_recursion(library):
    factorial(library)
    b = library.builder()
    b.ret(0, b("Factorial", b.arg(0, dtypes.int32)))
    assert int(library.run(b, np.int32(7))[0]) == 5040
    expected = 1
    for i in range(2, 1001):
        expected = expected * i % 10007
    assert int(library.run(b, np.int32(1000))[0]) == expected


def test_endless_recursion_is_an_error(library):
    library.add("Forever(n: int32) -> (y: int32)", lambda b: b.ret(0, b("Forever", b.arg(0, dtypes.int32))))
    b = library.builder()
    b.ret(0, b("Forever", b.const(1), name="call"))
    with pytest.raises(
        errors.ResourceExhaustedError, match=r"Forever is called 2000 calls deep\. Does it call itself"
    ) as info:
        library.run(b)
    assert info.value.op.name == "call"
    assert len(info.value.message) < 2000 and len(info.value.story) < 100, "a deep error must stay readable"


def test_errors_name_the_call_and_tell_of_the_body(library):
    library.add("Bad(x: float) -> (y: float)", lambda b: b.ret(0, b("TestBoom", b.arg(0), name="inner")))
    b = library.builder()
    b.ret(0, b("Bad", b.arg(0), name="outer"))
    with pytest.raises(errors.DataLossError) as info:
        library.run(b, np.zeros(3, np.float32))
    error = info.value
    assert error.op.name == "outer"
    assert error.message == "boom\n\t [[{{node inner}}]]\n\t [[{{node outer}}]]"
    assert "inner = TestBoom" in "\n".join(error.story) and "float32[3]" in "\n".join(error.story)


def test_a_function_that_does_not_exist(library):
    b = library.builder()
    b("TestCall", b.arg(0), f=FuncAttr("Nowhere"), Tout=[dtypes.float32], name="call")
    with pytest.raises(errors.NotFoundError, match="Function Nowhere is not defined") as info:
        library.run(b, np.float32(1))
    assert info.value.op.name == "call"


def test_a_body_that_does_not_compile(library):
    def body(b):
        b("Exit", 1)

    library.add("Broken(x: float) -> ()", body)
    b = library.builder()
    b("Broken", b.arg(0), name="call")
    with pytest.raises(errors.InvalidArgumentError, match="leaves a frame") as info:
        library.run(b, np.float32(1))
    assert info.value.op.name == "call"


def test_a_callback_that_fails_fails_its_node(library):
    square(library)

    def kernel(ctx, done, x):
        ctx.call("Square1", [x], lambda result, error=None: result.oops)

    declare("TestBadCallback(x: T) -> (y: T) [T: type]", async_kernel=kernel)
    b = library.builder()
    b("TestBadCallback", b.arg(0), name="call")
    with pytest.raises(errors.InternalError, match="oops") as info:
        library.run(b, np.float32(1))
    assert info.value.op.name == "call"


def test_a_dead_result(library):
    library.add("Half(x: float) -> (y: float)", lambda b: b.ret(0, b("Switch", b.arg(0), np.True_).outputs[0]))
    b = library.builder()
    b.ret(0, b("Half", b.arg(0)))
    with pytest.raises(errors.InvalidArgumentError, match=r"Retval\[0\] does not have value"):
        library.run(b, np.float32(1))


def test_calls_share_the_step(library):
    library.add("Id() -> (n: int64)", lambda b: b.ret(0, b("TestStepId")))
    b = library.builder()
    b.ret(0, b("Id"))
    b.ret(1, b("TestStepId"))
    first, second = library.run(b)
    assert first == second


def test_cancelling_a_step_ends_its_calls(library):
    cancelled = []

    def wait(ctx, done):
        ctx.cancellation.register(lambda: (cancelled.append(1), done(None, errors.CancelledError("told to stop"))))

    declare("TestWaitHere() -> (y: int32)", async_kernel=wait)
    library.add("Waits() -> (y: int32)", lambda b: b.ret(0, b("TestWaitHere")))
    b = library.builder()
    b("Waits")
    with pytest.raises(errors.DeadlineExceededError):
        library.run(b, timeout=0.5)
    assert cancelled == [1]
    b("TestBoom", b("TestLater", 1))
    with pytest.raises(errors.DataLossError):
        library.run(b)
    assert cancelled == [1, 1]


def test_blocking_calls(library):
    square(library, "TestLater")
    assert float(library.runtime.run("Square1", [np.float32(4)])[0]) == 16
    library.add("Bad(x: float) -> (y: float)", lambda b: b.ret(0, b("TestBoom", b.arg(0), name="inner")))
    with pytest.raises(errors.DataLossError, match="boom") as info:
        library.runtime.run(FuncAttr("Bad"), [np.float32(1)])
    assert info.value.op is None


def test_endless_blocking_recursion_is_an_error(library):
    declare("TestBlocking(x: T) -> (y: T) [T: type]", kernel=lambda ctx, x: ctx.functions.run("Again", [x])[0])
    library.add("Again(x: float) -> (y: float)", lambda b: b.ret(0, b("TestBlocking", b.arg(0))))
    b = library.builder()
    b.ret(0, b("TestBlocking", b.arg(0)))
    with pytest.raises(errors.ResourceExhaustedError, match=f"{functions_module.MAX_BLOCKING_DEPTH} calls deep"):
        library.run(b, np.float32(1))


def test_no_library():
    b = Builder()
    b("TestCall", b.arg(0), f=FuncAttr("F"), Tout=[dtypes.float32])
    with pytest.raises(errors.FailedPreconditionError, match="no function library"):
        run(b, np.float32(1))
