"""tf.Defun: Python functions as library functions of a graph (TF1's tensorflow.python.framework.function)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from penstock import dtypes
from penstock.api.export import export
from penstock.api.resource_variable import ResourceVariable
from penstock.api.variable_scope import get_variable_scope, variable_scope
from penstock.api.variable_store import _KEY, store_of
from penstock.api.variables import variable_creator_scope
from penstock.dtypes import DType
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.func_graph import FuncGraph, build, make_function
from penstock.graph.function import Function
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.graph.keys import GraphKeys


@export("Defun")
class Defun:
    """Decorator: makes a Python function that builds ops a function of the graph's library; calling it adds one node, a call.

    With types, one for each argument, there is one function. Without, there is one for each list of argument types it is called
    with. The Python function runs once, when the function is first called; what it uses of the graph outside becomes further
    arguments (`captured_inputs`); variables it makes are made outside.

    Keywords: `func_name` (default: the Python name and a hash), `out_names`, `noinline`, `shape_func(op)` for static shapes of the
    results, `grad_func` (a Defun of the arguments and the results' gradients), `python_grad_func(op, *dys)`, `capture_by_value`.

    >>> @tf.Defun(tf.float32, tf.float32)
    ... def hypotenuse(x, y):
    ...     return tf.sqrt(x * x + y * y)
    >>> hypotenuse(tf.constant(3.0), tf.constant(4.0), name="call")
    """

    def __init__(self, *input_types: Any, **kwargs: Any) -> None:
        self._input_types = [dtypes.as_dtype(t) for t in input_types]
        self._func_name = kwargs.pop("func_name", None)
        self._options = {key: kwargs.pop(key, None) for key in ("grad_func", "python_grad_func", "out_names")}
        self._extra = kwargs

    def __call__(self, func: Callable[..., Any]) -> DefinedFunction | OverloadedFunction:
        if not callable(func):
            raise ValueError(f"Function {func} must be a callable.")
        spec = inspect.getfullargspec(func)
        if spec.varkw or spec.defaults:
            raise ValueError(
                f"Functions with argument defaults or keywords arguments are not supported. {func} has defaults {spec.defaults} and keywords "
                f"{spec.varkw}."
            )
        names = spec.args[1:] if inspect.ismethod(func) else spec.args
        if self._input_types:
            count = len(self._input_types)
            most = 1_000_000 if spec.varargs else len(names)
            if not len(names) <= count <= most:
                raise ValueError(
                    f"The number of tf.function input types is not compatible with the allowed arguments of {func}. The tf.function have {count} "
                    f"input types, while the python function allows minimum {len(names)} and maximum {most} arguments."
                )
        elif names or spec.varargs:
            return OverloadedFunction(func, names, self._func_name, **self._options, **self._extra)
        return DefinedFunction(func, names, self._input_types, self._func_name, **self._options, **self._extra)


class DefinedFunction:
    """A function for given argument types. Its definition is made when something first asks for it."""

    def __init__(
        self,
        func: Callable[..., Any],
        argnames: Sequence[str],
        input_types: Sequence[DType],
        func_name: str | None = None,
        grad_func: Any = None,
        python_grad_func: Callable[..., Any] | None = None,
        out_names: Sequence[str] | None = None,
        shape_func: Callable[[Operation], Sequence[Any]] | None = None,
        capture_by_value: bool = False,
        allowlisted_stateful_ops: Any = None,
        capture_resource_var_by_value: bool = True,
        **kwargs: Any,
    ) -> None:
        self._func = func
        self._input_types = list(input_types)
        self._arg_names = [argnames[i] if i < len(argnames) else f"arg{i}" for i in range(len(input_types))]
        self._func_name = func_name
        self._grad_func = grad_func
        self._python_grad_func = python_grad_func
        self._out_names = list(out_names) if out_names else None
        self._shape_func = shape_func
        self._capture_by_value = capture_by_value
        self._allowed_stateful = tuple(allowlisted_stateful_ops or ())
        self._capture_resource_var_by_value = capture_resource_var_by_value
        self._extra = kwargs
        # As in TF, the innermost device scope around the definition holds for the body.
        stack = get_default_graph()._device_stack
        self._device = stack[-1] if stack else None
        self._function: Function | None = None
        self._extra_inputs: list[Tensor] = []
        self._stateful_ops: list[tuple[str, str]] = []

    # -- the definition -------------------------------------------------------------------------------------------------

    def _defined(self) -> Function:
        if self._function is None:
            self._function = self._define()
        return self._function

    def _define(self) -> Function:
        outer = get_default_graph()
        graph = FuncGraph(self._func_name or self._base_name(), outer, self._capture_by_value, self._allowed_stateful)
        self._share_variables(graph, outer)
        variables: list[Any] = []
        self._build(graph, variables.append)
        function = make_function(
            graph,
            self._func_name,
            self._func_name or self._base_name() + (f"_{self._grad_func.name}" if self._grad_func else ""),
            self._out_names,
            call_attrs(self._func_name or self._base_name(), outer, self._extra),
            inspect.getdoc(self._func) or "",
        )
        function.python_gradient = self._python_grad_func
        self._extra_inputs = graph.extra_inputs
        self._stateful_ops = [(op.name, op.type) for op in graph if op.op_def.stateful]
        if any(op.type in ("Enter", "Switch") for op in graph):
            function.trace = lambda other, args: self._again(other, args, variables)
        return function

    def _base_name(self) -> str:
        name = getattr(self._func, "__name__", None)
        if name is None:
            inner = getattr(self._func, "func", self._func)  # functools.partial
            name = getattr(inner, "__name__", type(inner).__name__)
        return "lambda" if name == "<lambda>" else name

    def _share_variables(self, graph: FuncGraph, outer: Graph) -> None:
        """Variables by name are one set, inside and outside."""
        store_of(outer)
        for key in [*GraphKeys._VARIABLE_COLLECTIONS, _KEY]:
            graph._collections[key] = outer.get_collection_ref(key)

    def _build(self, graph: FuncGraph, keep: Callable[[Any], None], replayed: Any = None) -> list[Tensor]:
        outer, scope = graph.outer_graph, get_variable_scope()

        def hoisted(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            """get_variable inside of the function: the variable is made outside; a resource variable is read there as well."""
            if replayed is not None:
                return next(replayed)
            kwargs.pop("custom_getter", None)
            with outer.as_default():
                variable = scope.get_variable(store_of(outer), name, *args, **kwargs)
                graph.extra_vars.append(variable)
                if isinstance(variable, ResourceVariable) and self._capture_resource_var_by_value:
                    variable = variable.value()
            keep(variable)
            return variable

        def made(next_creator: Any, **kwargs: Any) -> Any:
            """tf.Variable inside of the function."""
            if replayed is not None:
                return next(replayed)
            variable = next_creator(**kwargs)
            keep(variable)
            return variable

        def body(*args: Tensor) -> Any:
            with variable_scope("", custom_getter=hoisted), variable_creator_scope(made):
                return self._func(*args)

        if self._device is not None:
            with graph.device(self._device[0] if self._device[1] is None else self._device[1]):
                return self._run(graph, body)
        return self._run(graph, body)

    def _run(self, graph: FuncGraph, body: Callable[..., Any]) -> list[Tensor]:
        if graph.inputs:  # built once more, for arguments that are there already
            from penstock.graph.func_graph import run_body

            return run_body(graph, body, graph.inputs[: len(self._input_types)])
        return build(graph, body, self._arg_names, self._input_types)

    def _again(self, graph: FuncGraph, args: list[Tensor], variables: list[Any]) -> list[Tensor]:
        """The body once more, in a graph that has arguments for what was captured the first time."""
        graph.captures.update(zip(self._extra_inputs, args[len(self._input_types) :], strict=True))
        self._share_variables(graph, graph.outer_graph)
        return self._build(graph, lambda _: None, iter(variables))

    # -- what TF1 programs ask ----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The function's name: the type of the nodes that call it."""
        return self._defined().name

    @property
    def definition(self) -> Any:
        """The FunctionDef."""
        return self._defined().to_proto()

    cached_definition = definition

    @property
    def captured_inputs(self) -> list[Tensor]:
        """Tensors from outside that the body uses; calls pass them behind the declared arguments."""
        self._defined()
        return self._extra_inputs

    @property
    def declared_input_types(self) -> list[DType]:
        return self._input_types

    @property
    def stateful_ops(self) -> list[tuple[str, str]]:
        """(name, type) of the stateful ops in the body."""
        self._defined()
        return self._stateful_ops

    @property
    def grad_func_name(self) -> str | None:
        return self._grad_func.name if self._grad_func else None

    @property
    def python_grad_func(self) -> Callable[..., Any] | None:
        return self._python_grad_func

    def set_grad_func(self, grad_func: DefinedFunction) -> None:
        """Sets the function that computes the gradient, if there is none yet."""
        assert self._grad_func is None
        assert isinstance(grad_func, DefinedFunction)
        self._grad_func = grad_func

    def add_to_graph(self, graph: Graph) -> None:
        """Adds the function, those it calls and its gradient function to `graph`'s library."""
        function = self._defined()
        function.add_to_graph(graph)
        if self._grad_func is not None and graph.gradient_functions.get(function.name) is None:
            self._grad_func.add_to_graph(graph)
            graph.gradient_functions[function.name] = self._grad_func.name
            graph._edits += 1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a call: the result, a tuple of results, or the Operation if there are none. Keywords: `name`, `noinline`."""
        graph = get_default_graph()
        self.add_to_graph(graph)
        inputs = [convert_to_tensor(a) for a in args] + self._extra_inputs
        op = call(self._defined(), inputs, graph, **kwargs)
        op.__dict__["_defun"] = self
        if self._shape_func is not None:
            shapes = self._shape_func(op)
            if len(shapes) != len(op.outputs):
                raise ValueError(
                    f"shape_func {self._shape_func} produced {len(shapes)} shapes, which does not match {len(op.outputs)} outputs."
                )
            for tensor, shape in zip(op.outputs, shapes, strict=True):
                tensor.set_shape(shape)
        if not op.outputs:
            return op
        return op.outputs[0] if len(op.outputs) == 1 else tuple(op.outputs)


class OverloadedFunction:
    """A function that is defined for each list of argument types it is called with."""

    def __init__(
        self,
        func: Callable[..., Any],
        argnames: Sequence[str],
        func_name: str | None = None,
        grad_func: Any = None,
        python_grad_func: Callable[..., Any] | None = None,
        out_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        assert grad_func is None or isinstance(grad_func, OverloadedFunction)
        self._func = func
        self._argnames = argnames
        self._func_name = func_name
        self._grad_func = grad_func
        self._python_grad_func = python_grad_func
        self._out_names = out_names
        self._extra = kwargs
        self._overloads: dict[str, DefinedFunction] = {}

    def instantiate(self, input_types: Sequence[Any]) -> DefinedFunction:
        """The function for these argument types."""
        types = [dtypes.as_dtype(t).base_dtype for t in input_types]
        key = "".join(_letter(t) for t in types)
        found = self._overloads.get(key)
        if found is None:
            name = None if self._func_name is None else f"{self._func_name}_{key}"
            found = DefinedFunction(
                self._func, self._argnames, types, name, None, self._python_grad_func, out_names=self._out_names, **self._extra
            )
            results = found._defined().output_dtypes()
            if self._grad_func is not None:
                found._grad_func = self._grad_func.instantiate(types + results)
            self._overloads[key] = found
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [convert_to_tensor(a) for a in args]
        return self.instantiate([t.dtype for t in tensors])(*tensors, **kwargs)


_LETTERS = {
    "bfloat16": "b16", "bool": "b", "complex128": "c128", "complex64": "c64", "float16": "f16", "float32": "f32", "float64": "f64", "int16": "i16",
    "int32": "i32", "int64": "i64", "int8": "i8", "qint16": "qi16", "qint32": "qi32", "qint8": "qi8", "quint16": "qu16", "quint8": "qu8",
    "string": "s", "uint16": "u16", "uint32": "u32", "uint64": "u64", "uint8": "i8", "int4": "i4", "uint4": "u4",
}  # fmt: skip


def _letter(dtype: DType) -> str:
    found = _LETTERS.get(dtype.name)
    if found is None:
        raise ValueError(f"Unsupported dtypes [{dtype!r}] in `types`. Supported dtypes are {', '.join(_LETTERS)}.")
    return found


def call(function: Function, inputs: list[Tensor], graph: Graph, name: str | None = None, **kwargs: Any) -> Operation:
    """Adds a node that calls `function`."""
    signature = function.op_def.inputs
    if len(inputs) != len(signature):
        raise ValueError(f"Expected {len(signature)} arguments, got {len(inputs)}.")
    for arg, tensor in zip(signature, inputs, strict=True):
        if tensor.dtype.base_dtype is not arg.dtype:
            raise ValueError(
                f"Input '{arg.name}' passed {tensor.dtype.base_dtype.name} expected {arg.dtype.name} while building NodeDef "  # type: ignore[union-attr]
                f"'{name or function.name}' using Op<{function.op_def.signature}>"
            )
    attrs = call_attrs(function.name, graph, kwargs)
    return graph.create_op(function.name, inputs, name=name or function.name, attrs=attrs)


def call_attrs(name: str, graph: Graph, options: dict[str, Any]) -> dict[str, Any]:
    """Attributes of a function or a call, from the keywords that Defun and its calls take."""
    left = dict(options)
    # As in TF, static shapes do not go through calls of Defuns; `shape_func` is the way to give some.
    attrs: dict[str, Any] = {"_disable_call_shape_inference": True}
    noinline = left.pop("noinline", None)
    if noinline is not None:
        attrs["_noinline"] = bool(noinline)
    compiled, separate = left.pop("compiled", None), left.pop("separate_compiled_gradients", None)
    if compiled is not None:
        attrs["_XlaCompile"] = bool(compiled)
        attrs["_XlaSeparateCompiledGradients"] = bool(separate)
        attrs["_XlaScope"] = graph._attr_scopes.get("_XlaScope") or f"function_{name}".encode()
    for key in list(left):
        if key.startswith("experimental_"):
            value = left.pop(key)
            if not isinstance(value, (bool, int, float, str)):
                raise ValueError(f"Attribute {key} must be bool, int, float, or str. Got {type(value)}.")
            attrs["_" + key] = value.encode() if isinstance(value, str) else value
        elif key in ("_implements", "_reference"):
            value = left.pop(key)
            if not isinstance(value, str):
                raise ValueError(f"Attribute {key} must be str. Got {type(value)}.")
            attrs[key] = value.encode()
    if left:
        raise ValueError(f"Unknown keyword arguments: {left.keys()}.")
    return attrs
