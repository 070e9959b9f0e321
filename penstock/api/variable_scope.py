"""`tf.variable_scope` and `tf.get_variable`: named variables that are shared by asking for the same name again.

A graph has one VariableStore (`variable_store.py`) and one current VariableScope. A variable scope gives prefix and
defaults to `get_variable`; with it comes a name scope for the ops made inside, which is a thing apart: re-entering the
variable scope "a" finds the same variables, while its ops are called "a_1/...".
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from penstock import dtypes
from penstock.api.export import export
from penstock.api.variable_store import AUTO_REUSE, VariableStore, store_of
from penstock.api.variables import VariableAggregation, VariableSynchronization
from penstock.formats.values import convert_typed
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Graph
from penstock.graph.keys import GraphKeys

_KEY = ("__varscope",)


@export("VariableScope")
class VariableScope:
    """The prefix and the defaults that `tf.get_variable` uses."""

    def __init__(
        self,
        reuse: Any,
        name: str = "",
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        name_scope: str = "",
        dtype: Any = dtypes.float32,
        use_resource: bool | None = None,
        constraint: Any = None,
    ) -> None:
        self._name = name
        self._initializer = initializer
        self._regularizer = regularizer
        self._reuse = reuse
        self._caching_device = caching_device
        self._partitioner = partitioner
        self._custom_getter = custom_getter
        self._name_scope = name_scope
        self._dtype = dtype
        self._use_resource = use_resource
        self._constraint = constraint

    @property
    def name(self) -> str:
        return self._name

    @property
    def original_name_scope(self) -> str:
        """The name scope in which the variable scope was made."""
        return self._name_scope

    @property
    def reuse(self) -> Any:
        return self._reuse

    @property
    def initializer(self) -> Any:
        return self._initializer

    @property
    def dtype(self) -> Any:
        return self._dtype

    @property
    def use_resource(self) -> bool | None:
        return self._use_resource

    @property
    def regularizer(self) -> Any:
        return self._regularizer

    @property
    def caching_device(self) -> Any:
        return self._caching_device

    @property
    def partitioner(self) -> Any:
        return self._partitioner

    @property
    def custom_getter(self) -> Any:
        return self._custom_getter

    @property
    def constraint(self) -> Any:
        return self._constraint

    def reuse_variables(self) -> None:
        """From now on, `get_variable` in this scope only finds variables and makes none."""
        self._reuse = True

    def set_initializer(self, initializer: Any) -> None:
        self._initializer = initializer

    def set_dtype(self, dtype: Any) -> None:
        self._dtype = dtype

    def set_use_resource(self, use_resource: bool | None) -> None:
        self._use_resource = use_resource

    def set_regularizer(self, regularizer: Any) -> None:
        self._regularizer = regularizer

    def set_caching_device(self, caching_device: Any) -> None:
        self._caching_device = caching_device

    def set_partitioner(self, partitioner: Any) -> None:
        self._partitioner = partitioner

    def set_custom_getter(self, custom_getter: Any) -> None:
        self._custom_getter = custom_getter

    def get_collection(self, name: str) -> list[Any]:
        """The items of collection `name` that lie in this scope."""
        return get_default_graph().get_collection(name, self._name + "/" if self._name else "")

    def trainable_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def get_variable(
        self,
        var_store: VariableStore,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        custom_getter: Any = None,
        constraint: Any = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
    ) -> Any:
        """The variable `name` of this scope, with the scope's defaults for what is not given."""
        full_name = f"{self._name}/{name}" if self._name else name
        # Variables are called by their full name, whatever name scope is open.
        with get_default_graph().name_scope(None):
            if dtype is not None and initializer is not None and not callable(initializer):
                found = dtypes.as_dtype(initializer.dtype).base_dtype if hasattr(initializer, "dtype") else None
                if found is not None and found != dtypes.as_dtype(dtype).base_dtype:
                    raise ValueError(
                        f"Initializer type '{found}' and explicit dtype '{dtypes.as_dtype(dtype)}' don't match."
                    )
            initializer = self._initializer if initializer is None else initializer
            if dtype is None:
                dtype = self._dtype
                if initializer is not None and not callable(initializer):
                    dtype = initializer.dtype if hasattr(initializer, "dtype") else convert_typed(initializer)[0]
            return var_store.get(
                full_name,
                shape=shape,
                dtype=dtype,
                initializer=initializer,
                regularizer=self._regularizer if regularizer is None else regularizer,
                reuse=self._reuse if reuse is None else reuse,
                trainable=trainable,
                collections=collections,
                caching_device=self._caching_device if caching_device is None else caching_device,
                partitioner=self._partitioner if partitioner is None else partitioner,
                validate_shape=validate_shape,
                use_resource=self._use_resource if use_resource is None else use_resource,
                custom_getter=self._custom_getter if custom_getter is None else custom_getter,
                constraint=self._constraint if constraint is None else constraint,
                synchronization=synchronization,
                aggregation=aggregation,
            )


def _current(graph: Graph) -> list[VariableScope]:
    """A list with the graph's current scope as its one entry."""
    found = graph.get_collection_ref(_KEY)
    if not found:
        found.append(VariableScope(False))
    return found


@export("get_variable_scope")
def get_variable_scope() -> VariableScope:
    """The current variable scope of the default graph."""
    return _current(get_default_graph())[0]


@export("get_variable")
def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
) -> Any:
    """The variable `name` of the current variable scope: made if it is new, found again where the scope says reuse.

    `initializer` is a callable from (shape, dtype), a tensor or values; by default floats start with Glorot's uniform
    numbers and other types with zeros.
    """
    return get_variable_scope().get_variable(
        store_of(), name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer, trainable=trainable,
        collections=collections, caching_device=caching_device, partitioner=partitioner, validate_shape=validate_shape,
        use_resource=use_resource, custom_getter=custom_getter, constraint=constraint, synchronization=synchronization, aggregation=aggregation,
    )  # fmt: skip


@export("get_local_variable")
def get_local_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = False,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: Any = VariableSynchronization.AUTO,
    aggregation: Any = VariableAggregation.NONE,
) -> Any:
    """Like `get_variable`, for a variable that is local: not trained, not saved, initialised on its own."""
    keys = [*collections, GraphKeys.LOCAL_VARIABLES] if collections else [GraphKeys.LOCAL_VARIABLES]
    return get_variable(
        name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer, trainable=False, collections=keys,
        caching_device=caching_device, partitioner=partitioner, validate_shape=validate_shape, use_resource=use_resource,
        custom_getter=custom_getter, constraint=constraint, synchronization=synchronization, aggregation=aggregation,
    )  # fmt: skip


# -- entering scopes ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _pure_variable_scope(
    name_or_scope: Any, reuse: Any, old_name_scope: str | None, options: dict[str, Any]
) -> Iterator[VariableScope]:
    """Makes a variable scope current, without touching name scopes."""
    graph = get_default_graph()
    store = store_of(graph)
    current = _current(graph)
    old = current[0]
    if isinstance(name_or_scope, VariableScope):
        scope, new, counts = (
            _re_entered(name_or_scope, old, reuse, old_name_scope, options),
            name_or_scope.name,
            dict(store.open_counts),
        )
        store.open_scope(new)
    else:
        new = f"{old.name}/{name_or_scope}" if old.name else name_or_scope
        scope, counts = _nested(new, old, reuse, old_name_scope or name_or_scope, options), None
        store.open_scope(new)
    current[0] = scope
    try:
        yield scope
    finally:
        current[0] = old
        store.close_subscopes(new)
        if counts is not None:
            store.open_counts = counts


def _nested(name: str, old: VariableScope, reuse: Any, name_scope: str, options: dict[str, Any]) -> VariableScope:
    """A scope inside of `old`: its defaults, with `options` on top. Reuse is inherited and cannot be switched off."""
    scope = VariableScope(
        reuse or old.reuse, name=name, initializer=old.initializer, regularizer=old.regularizer, caching_device=old.caching_device,
        partitioner=old.partitioner, custom_getter=old.custom_getter, name_scope=name_scope, dtype=old.dtype,
        use_resource=old.use_resource, constraint=old.constraint,
    )  # fmt: skip
    return _with_options(scope, options)


def _re_entered(
    given: VariableScope, old: VariableScope, reuse: Any, name_scope: str | None, options: dict[str, Any]
) -> VariableScope:
    scope = copy.copy(given)
    scope._reuse = given.reuse if reuse is None else reuse
    if name_scope is not None:
        scope._name_scope = name_scope
    return _with_options(scope, options)


def _with_options(scope: VariableScope, options: dict[str, Any]) -> VariableScope:
    for key in ("initializer", "regularizer", "caching_device", "partitioner", "dtype", "use_resource", "constraint"):
        if options.get(key) is not None:
            setattr(scope, "_" + key, options[key])
    getter = options.get("custom_getter")
    if getter is not None:
        scope._custom_getter = _composed_getter(getter, scope.custom_getter)
    return scope


def _composed_getter(inner: Callable[..., Any], outer: Callable[..., Any] | None) -> Callable[..., Any]:
    """Inner scopes' custom getters are asked first, and call the outer scopes' in turn."""
    if outer is None:
        return inner

    def composed(getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def through_outer(*a: Any, **k: Any) -> Any:
            return outer(getter, *a, **k)

        return inner(through_outer, *args, **kwargs)

    return composed


def _unique_scope_name(prefix: str) -> str:
    store = store_of()
    current = get_variable_scope()
    full = f"{current.name}/{prefix}" if current.name else prefix
    if store.count(full) == 0:
        return prefix
    index = 1
    while store.count(f"{full}_{index}") > 0:
        index += 1
    return f"{prefix}_{index}"


@export("variable_scope")
class variable_scope:
    """Opens a variable scope and, unless told otherwise, a name scope of the same last name.

    >>> with tf.variable_scope("layer", reuse=tf.AUTO_REUSE):          # doctest: +SKIP
    ...     w = tf.get_variable("w", [2, 3])                           # "layer/w", made or found

    `name_or_scope` is a name or a VariableScope to re-enter; None takes `default_name`, made unique.
    """

    def __init__(
        self,
        name_or_scope: Any,
        default_name: str | None = None,
        values: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        reuse: Any = None,
        dtype: Any = None,
        use_resource: bool | None = None,
        constraint: Any = None,
        auxiliary_name_scope: bool = True,
    ) -> None:
        if default_name is None and name_or_scope is None:
            raise TypeError("If default_name is None then name_or_scope is required")
        if reuse is False:
            reuse = None  # means: inherit
        if not (reuse is True or reuse is AUTO_REUSE or reuse is None):
            raise ValueError("The reuse parameter must be True or False or None.")
        if not isinstance(auxiliary_name_scope, bool):
            raise TypeError(f"The auxiliary_name_scope must be `True` or `False`, while get {auxiliary_name_scope}")
        self._name_or_scope = name_or_scope
        self._default_name = default_name
        self._reuse = reuse
        self._auxiliary_name_scope = auxiliary_name_scope
        self._options = {
            "initializer": initializer, "regularizer": regularizer, "caching_device": caching_device, "partitioner": partitioner,
            "custom_getter": custom_getter, "dtype": dtype, "use_resource": use_resource, "constraint": constraint,
        }  # fmt: skip
        self._graph = _graph_of(values)
        self._stack: contextlib.ExitStack | None = None

    def __enter__(self) -> VariableScope:
        with contextlib.ExitStack() as stack:
            if self._graph is not get_default_graph():
                stack.enter_context(self._graph.as_default())
            scope = self._enter(stack)
            self._stack = stack.pop_all()
            return scope

    def _enter(self, stack: contextlib.ExitStack) -> VariableScope:
        graph = self._graph
        given = self._name_or_scope
        name = None
        if given is None:
            if self._reuse:
                raise ValueError("reuse=True cannot be used without a name_or_scope")
            own_scope = self._default_name
        elif isinstance(given, str):
            own_scope = name = given
        elif isinstance(given, VariableScope):
            own_scope = given.name.split("/")[-1]
        else:
            raise TypeError(
                f"VariableScope: name_or_scope must be a string or VariableScope, got {type(given).__name__}."
            )
        opened = None
        if self._auxiliary_name_scope:
            # Re-entering the root scope leaves the name scope as it is.
            if own_scope:
                opened = stack.enter_context(graph.name_scope(own_scope))
            else:
                opened = graph.get_name_scope() + "/" if graph.get_name_scope() else ""
        else:
            current = graph.get_name_scope()
            opened = current + "/" if current else ""
        if given is None:
            name = _unique_scope_name(self._default_name or "")
        if isinstance(given, VariableScope):
            return stack.enter_context(
                _pure_variable_scope(given, self._reuse, given.original_name_scope, self._options)
            )
        return stack.enter_context(_pure_variable_scope(name, self._reuse, opened, self._options))

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.__exit__(exc_type, exc_value, traceback)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        raise TypeError("variable_scope cannot be used as a decorator; write `with tf.variable_scope(...):`")


def _graph_of(values: Any) -> Graph:
    graph = None
    for value in values or ():
        found = getattr(value, "graph", None)
        if found is None:
            continue
        if graph is not None and found is not graph:
            raise ValueError(f"{value} must be from the same graph as the other values.")
        graph = found
    return graph if graph is not None and not get_default_graph().building_function else get_default_graph()


@export("variable_op_scope")
@contextlib.contextmanager
def variable_op_scope(
    values: Any,
    name_or_scope: Any,
    default_name: str | None = None,
    initializer: Any = None,
    regularizer: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    reuse: Any = None,
    dtype: Any = None,
    use_resource: bool | None = None,
    constraint: Any = None,
) -> Iterator[VariableScope]:
    """The older form of `variable_scope`, with `values` first."""
    with variable_scope(
        name_or_scope, default_name=default_name, values=values, initializer=initializer, regularizer=regularizer,
        caching_device=caching_device, partitioner=partitioner, custom_getter=custom_getter, reuse=reuse, dtype=dtype,
        use_resource=use_resource, constraint=constraint,
    ) as scope:  # fmt: skip
        yield scope


@export("create_partitioned_variables")
def create_partitioned_variables(
    shape: Any, slicing: Any, initializer: Any, dtype: Any = dtypes.float32, trainable: bool = True, collections: Any = None, name: str | None = None,
    reuse: Any = None,
) -> list[Any]:  # fmt: skip
    """The parts of a new partitioned variable, `slicing[i]` of them along dimension i."""
    if len(shape) != len(slicing):
        raise ValueError(
            f"The 'shape' and 'slicing' of a partitioned Variable must have the length: shape: {shape}, slicing: {slicing}"
        )
    if len(shape) < 1:
        raise ValueError(f"A partitioned Variable must have rank at least 1: shape: {shape}")
    with variable_scope(name, "PartitionedVariable", reuse=reuse):
        whole = get_variable(
            name="part", shape=shape, dtype=dtype, initializer=initializer, trainable=trainable, partitioner=lambda **unused: slicing,
            collections=collections,
        )  # fmt: skip
        return list(whole)
