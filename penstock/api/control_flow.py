"""tf.cond, tf.while_loop, tf.case, tf.switch_case, tf.group, tf.tuple and their kin, built as TF1 builds them.

Branches and loops become Switch/Merge and Enter/Exit nodes of the graph itself (TF1's control flow), not functions.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from penstock import dtypes
from penstock.api.export import export
from penstock.graph import nest
from penstock.graph.constant import constant
from penstock.graph.contexts import CondContext, with_flows
from penstock.graph.control_flow import identity, merge, switch, with_dependencies
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw
from penstock.graph.while_context import WhileContext

COND_CONTEXT = "cond_context"
WHILE_CONTEXT = "while_context"


@export("enable_control_flow_v2")
def enable_control_flow_v2() -> None:
    """Accepted for TF1 programs. Penstock always builds TF1 control flow, which gives the same results."""


@export("control_flow_v2_enabled")
def control_flow_v2_enabled() -> bool:
    """Always False: branches and loops are built as TF1's Switch, Merge and frames."""
    return False


# ---------------------------------------------------------------------------------------------------------------------
# cond


@export("cond")
def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Callable[[], Any] | None = None,
    fn2: Callable[[], Any] | None = None,
) -> Any:
    """Runs `true_fn()`'s ops if `pred` is true, else `false_fn()`'s.

    Both functions are called now and must return the same structure of tensors of the same types; only ops made inside of
    them are conditional. Lists and tuples with one element are unpacked unless `strict` is set. `fn1` and `fn2` are old
    names of `true_fn` and `false_fn`.

    >>> y = tf.cond(x < 0.0, lambda: -x, lambda: x)
    """
    true_fn = _one_name("true_fn", true_fn, "fn1", fn1)
    false_fn = _one_name("false_fn", false_fn, "fn2", fn2)
    if not callable(true_fn):
        raise TypeError("true_fn must be callable.")
    if not callable(false_fn):
        raise TypeError("false_fn must be callable.")
    graph = get_default_graph()
    with graph.name_scope(name or "cond"):
        if isinstance(pred, bool):
            raise TypeError("'pred' must not be a Python bool.")
        p_2, p_1 = switch(pred, pred)
        pivot_1 = identity(p_1, name="switch_t")
        pivot_2 = identity(p_2, name="switch_f")
        pred = identity(pred, name="pred_id")
        for tensor in (p_1, p_2, pivot_1, pivot_2, pred):
            graph.prevent_fetching(tensor.op)
        original_true, flat_true, context_true = _branch(pred, pivot_1, 1, true_fn, "true_fn")
        original_false, flat_false, context_false = _branch(pred, pivot_2, 0, false_fn, "false_fn")
        if not strict:
            original_true = _unpack_singleton(original_true)
            original_false = _unpack_singleton(original_false)
        try:
            nest.assert_same_structure(original_true, original_false, expand_composites=True)
        except (TypeError, ValueError) as error:
            kind = type(error)
            raise kind(f"Incompatible return types of true_fn and false_fn: {error}") from error
        for x, y in zip(flat_true, flat_false, strict=True):
            if x.dtype.base_dtype != y.dtype.base_dtype:
                raise ValueError(f"Outputs of true_fn and false_fn must have the same type(s). Received {x.dtype.name} from true_fn and {y.dtype.name} from false_fn.")
        merges = [merge(pair)[0] for pair in zip(flat_false, flat_true, strict=True)]
        merges = with_flows(nest.flatten(original_true, expand_composites=True), merges)
        if context_true.outer_context is None:
            graph.add_to_collection(COND_CONTEXT, context_true)
            graph.add_to_collection(COND_CONTEXT, context_false)
        result = nest.pack_sequence_as(original_true, merges, expand_composites=True)
        return result if strict else _unpack_singleton(result)


def _one_name(name: str, value: Any, old_name: str, old_value: Any) -> Any:
    if old_value is not None:
        if value is not None:
            raise TypeError(f"cond(): '{old_name}' and '{name}' are mutually exclusive; '{old_name}' is the deprecated name")
        return old_value
    if value is None:
        raise TypeError(f"cond(): '{name}' argument required")
    return value


def _branch(pred: Tensor, pivot: Tensor, branch: int, fn: Callable[[], Any], what: str) -> tuple[Any, list[Tensor], CondContext]:
    context = CondContext(pred, pivot, branch)
    with context:
        original, flat = context.BuildCondBranch(fn)
        if flat is None:
            raise ValueError(f"'{what}' must have a return value.")
        context.ExitResult(flat)
    return original, flat, context


def _unpack_singleton(result: Any) -> Any:
    if isinstance(result, (list, tuple)) and len(result) == 1:
        return result[0]
    return result


def smart_cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any], name: str | None = None) -> Any:
    """Like `cond`, but calls just one of the functions if `pred` is a Python bool or a constant."""
    value = smart_constant_value(pred)
    if value is not None:
        return true_fn() if value else false_fn()
    return cond(pred, true_fn=true_fn, false_fn=false_fn, name=name)


def smart_constant_value(pred: Any) -> bool | None:
    """`pred` as a Python bool if it can be known now; TypeError if it is neither a bool nor a tensor."""
    if isinstance(pred, Tensor):
        from penstock.graph.constant import constant_value

        value = constant_value(pred)
        return None if value is None else bool(value)
    if isinstance(pred, bool) or (isinstance(pred, int) and pred in (0, 1)) or type(pred).__name__ in ("bool_", "bool"):
        return bool(pred)
    if hasattr(pred, "_as_graph_element"):
        return None
    raise TypeError(f"`pred` must be a Tensor, or a Python bool, or 1 or 0. Found instead: {pred}")


# ---------------------------------------------------------------------------------------------------------------------
# while_loop


@export("while_loop")
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:
    """Repeats `body` while `cond` is true; both take the loop variables, and `body` returns their next values.

    Loop variables may be nested structures of tensors, TensorArrays, IndexedSlices and SparseTensors. A variable must keep
    its static shape unless `shape_invariants` gives a less specific one. Up to `parallel_iterations` iterations run at a time.
    `back_prop=False` makes the loop's results have no gradient. With one loop variable the result is that variable itself,
    unless `return_same_structure` is set.

    >>> i, total = tf.while_loop(lambda i, s: i < 10, lambda i, s: (i + 1, s + i), [0, 0])
    """
    graph = get_default_graph()
    with graph.name_scope(name or "while"):
        if loop_vars is None or (nest.is_nested(loop_vars) and not loop_vars):
            raise ValueError("'loop_vars' must be provided.")
        if not callable(cond):
            raise TypeError("'cond' must be callable.")
        if not callable(body):
            raise TypeError("'body' must be callable.")
        if isinstance(parallel_iterations, Tensor) or parallel_iterations < 1:
            raise TypeError("'parallel_iterations' must be a positive integer.")
        if not nest.is_nested(loop_vars):
            loop_vars = [loop_vars]
        limit = None
        if maximum_iterations is not None:
            limit = convert_to_tensor(maximum_iterations, name="maximum_iterations")
            if limit.dims is not None and len(limit.dims) != 0:
                raise ValueError(f"'maximum_iterations' must be a scalar. Received shape: {limit.shape}")
            # One variable is handed to the functions as itself, and not as a list of one.
            single = len(loop_vars) == 1 and not return_same_structure
            counter = constant(0, limit.dtype, name="iteration_counter")
            cond, body = _limited(cond, body, limit, single)
            loop_vars = (counter, loop_vars[0] if single else loop_vars)
            if shape_invariants is not None:
                shape_invariants = (counter.shape, shape_invariants[0] if single else shape_invariants)
        context = WhileContext(limit, parallel_iterations, back_prop, swap_memory)
        if context.outer_context is None:
            graph.add_to_collection(WHILE_CONTEXT, context)
        result = context.BuildLoop(cond, body, loop_vars, shape_invariants, return_same_structure)
        return result if limit is None else result[1]


def _limited(cond: Callable[..., Any], body: Callable[..., Any], limit: Tensor, single: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The loop's functions with a counter in front of the loop variables."""

    def limited_cond(i: Tensor, variables: Any) -> Tensor:
        return raw.LogicalAnd(raw.Less(i, limit), cond(variables) if single else cond(*variables))

    def counting_body(i: Tensor, variables: Any) -> Any:
        return raw.AddV2(i, 1, name="add"), body(variables) if single else body(*variables)

    return limited_cond, counting_body


# ---------------------------------------------------------------------------------------------------------------------
# case


@export("case")
def case(pred_fn_pairs: Any, default: Callable[[], Any] | None = None, exclusive: bool = False, strict: bool = False, name: str = "case") -> Any:
    """Runs the function of the first pair whose predicate is true, or `default`.

    Without `default`, it is an InvalidArgumentError at run time if no predicate is true; with `exclusive`, if more than one is.

    >>> r = tf.case([(tf.less(x, y), lambda: 17), (tf.greater(x, z), lambda: 23)], default=lambda: -1)
    """
    predicates, actions = _checked_pairs(pred_fn_pairs, exclusive, name)
    graph = get_default_graph()
    with graph.name_scope(name or "case"):
        if default is None:
            default, predicates, actions = _default_action(predicates, actions)
        elif not callable(default):
            raise TypeError("default must be callable.")
        fn: Callable[[], Any] = default
        # To look at predicates in order, the last one is nested innermost.
        for predicate, action in reversed(list(zip(predicates, actions, strict=True))):
            fn = functools.partial(cond, predicate, true_fn=action, false_fn=fn, strict=strict)
        if not exclusive:
            return fn()
        with graph.control_dependencies([_at_most_n_true(predicates, 1, "Input error: exclusive=True")]):
            return fn()


def _checked_pairs(pred_fn_pairs: Any, exclusive: bool, name: str) -> tuple[list[Any], list[Any]]:
    if not isinstance(pred_fn_pairs, (list, tuple, dict)):
        raise TypeError(f"'pred_fn_pairs' must be a list, tuple, or dict. Received: {type(pred_fn_pairs)}")
    if isinstance(pred_fn_pairs, OrderedDict):
        pairs = list(pred_fn_pairs.items())
    elif isinstance(pred_fn_pairs, dict):
        if not exclusive:
            import warnings

            warnings.warn(f"{name}: an unordered dictionary of predicate/fn pairs was provided, but exclusive=False. The order of conditional tests is deterministic but not guaranteed.", stacklevel=3)
        pairs = sorted(pred_fn_pairs.items(), key=lambda item: item[0].name)
    else:
        pairs = list(pred_fn_pairs)
    predicates, actions = [], []
    for pair in pairs:
        if not isinstance(pair, tuple):
            raise TypeError(f"Each entry in 'pred_fn_pairs' must be a tuple. Received {pair}.")
        if len(pair) != 2:
            raise ValueError(f"Each tuple in 'pred_fn_pairs' must have length 2. Received {pair} of length {len(pair)}.")
        predicate, action = pair
        if isinstance(predicate, Tensor):
            if predicate.dtype.base_dtype != dtypes.bool:
                raise TypeError(f"pred must be Tensor of type bool: {predicate.name}")
        elif not hasattr(predicate, "_as_graph_element"):
            raise TypeError(f"pred must be a Tensor, got: {predicate}")
        if not callable(action):
            raise TypeError(f"fn for pred {predicate.name} must be callable.")
        predicates.append(predicate)
        actions.append(action)
    return predicates, actions


def _at_most_n_true(predicates: list[Any], n: int, message: str) -> Operation:
    from penstock.api.logging_ops import Assert

    stacked = raw.Pack(list(predicates), axis=0, name="preds_c")
    count = raw.Sum(raw.Cast(stacked, DstT=dtypes.int32), constant([0], dtypes.int32, name="num_true_conds/reduction_indices"), name="num_true_conds")
    condition = raw.LessEqual(count, constant(n, dtypes.int32, name="n_true_conds"))
    names = ", ".join(getattr(p, "name", "?") for p in predicates)
    data = [f"{message}: more than {n} conditions ({names}) evaluated as True:", stacked]
    return Assert(condition, data=data, summarize=len(predicates))


def _default_action(predicates: list[Any], actions: list[Any]) -> tuple[Callable[[], Any], list[Any], list[Any]]:
    """Without a default, the last action takes its place, after a check that its predicate holds."""
    from penstock.api.logging_ops import Assert

    if not predicates:
        raise ValueError("'pred_fn_pairs' must not be empty when there is no default.")
    k = len(predicates) - 1
    predicate, action = predicates[k], actions[k]
    others = predicates[:k]

    def default_action() -> Any:
        data = ["Input error: None of conditions evaluated as True:", raw.Pack(list(predicates), axis=0, name="preds_c")]
        checks = [Assert(predicate, data=data)]
        if others:
            message = f"Implementation error: selected default action #{k} was called, but some of other predicates are True: "
            checks.insert(0, _at_most_n_true(others, 0, message))
        with get_default_graph().control_dependencies(checks):
            return action()

    return default_action, others, actions[:k]


@export("switch_case")
def switch_case(branch_index: Any, branch_fns: Any, default: Callable[[], Any] | None = None, name: str = "switch_case") -> Any:
    """Runs `branch_fns[branch_index]()`; an index out of range runs `default`, or the branch with the largest index.

    `branch_fns` is a list of functions, or a dict or list of pairs from int to function.
    """
    branches = _indexed_branches(branch_fns)
    if default is not None and not callable(default):
        raise TypeError("default must be callable.")
    graph = get_default_graph()
    with graph.name_scope(name or "switch_case"):
        index = convert_to_tensor(branch_index, dtypes.int32, name="branch_index")
        if default is None:
            default = branches[-1][1]
            branches = branches[:-1]
        fn: Callable[[], Any] = default
        for number, action in reversed(branches):
            predicate = raw.Equal(index, constant(number, dtypes.int32))
            fn = functools.partial(cond, predicate, true_fn=action, false_fn=fn)
        return fn()


def _indexed_branches(branch_fns: Any) -> list[tuple[int, Callable[[], Any]]]:
    if not isinstance(branch_fns, (list, tuple, dict)):
        raise TypeError(f"'branch_fns' must be a list, tuple, or dict. Received: {type(branch_fns)}")
    if isinstance(branch_fns, dict):
        pairs = sorted(branch_fns.items())
    elif branch_fns and all(callable(fn) for fn in branch_fns):
        pairs = list(enumerate(branch_fns))
    else:
        pairs = list(branch_fns)
    if not pairs:
        raise ValueError("Must provide at least one item in 'branch_fns'")
    for pair in pairs:
        if not isinstance(pair, tuple):
            raise TypeError(f"Each entry in 'branch_fns' must be a tuple. Received {pair}.")
        if len(pair) != 2:
            raise ValueError(f"Each tuple in 'branch_fns' must have length 2. Received {pair} of length {len(pair)}.")
        if not isinstance(pair[0], int):
            raise TypeError(f"Key for `branch_fns` must be a Python `int`. Received {pair[0]}.")
        if not callable(pair[1]):
            raise TypeError(f"fn for key {pair[0]} must be callable.")
    keys = [pair[0] for pair in pairs]
    if min(keys) < 0 or max(keys) >= len(keys) or len(set(keys)) < len(keys):
        raise ValueError(f"branch indices (keys) must form contiguous range of [0 to {len(keys)}) but found {{{','.join(str(k) for k in keys)}}}")
    return sorted(pairs)


# ---------------------------------------------------------------------------------------------------------------------
# Grouping


@export("no_op")
def no_op(name: str | None = None) -> Operation:
    """Does nothing; useful as something to wait for."""
    return raw.NoOp(name=name)


def _group_on(device: str, inputs: list[Any], name: str | None = None) -> Operation:
    graph = get_default_graph()
    with graph.control_dependencies(inputs):
        if not device:
            return no_op(name=name)
        with graph.device(device):
            return no_op(name=name)


@export("group")
def group(*inputs: Any, **kwargs: Any) -> Operation:
    """An op that finishes when all `inputs` (tensors, ops, or structures of them) have finished. It has no output."""
    name = kwargs.pop("name", None)
    if kwargs:
        raise ValueError(f"Unknown keyword arguments: {', '.join(kwargs)}.")
    graph = get_default_graph()
    with graph.name_scope(name or "group_deps") as scope:
        if not inputs:
            return no_op(name=scope)
        by_device: dict[str, list[Any]] = {}
        for item in nest.flatten(list(inputs), expand_composites=True):
            if not hasattr(item, "device"):
                raise TypeError(f"'inputs' should be zero or more (nested) Tensors. Received '{item}' with type '{type(item)}'.")
            by_device.setdefault(item.device or "", []).append(item)
        if len(by_device) == 1:
            ((device, items),) = by_device.items()
            return _group_on(device, items, name=scope)
        parts = [_group_on(device, by_device[device]) for device in sorted(by_device)]
        with graph.control_dependencies(parts):
            return no_op(name=scope)


@export("tuple")
def tuple_(tensors: Any, name: str | None = None, control_inputs: Any = None) -> list[Any]:
    """The same tensors, each available only after all of them (and `control_inputs`) have been computed. None stays None."""
    graph = get_default_graph()
    with graph.name_scope(name or "tuple"):
        tensors = list(tensors)
        gating = [t if isinstance(t, Operation) else t.op for t in tensors if t is not None]
        for item in control_inputs or []:
            if isinstance(item, Operation):
                gating.append(item)
            elif isinstance(item, Tensor) or hasattr(item, "op"):
                gating.append(item.op)
            else:
                raise TypeError(f"'control_inputs' must only contain Operation or Tensor. Received: {type(item)}")
        gating = sorted(set(gating), key=lambda op: op.id)
        if not gating:
            raise ValueError(f"'tensors' must have at least one Tensor. Received: {tensors}.")
        gate = group(*gating)
        result: list[Any] = []
        for t in tensors:
            if t is None:
                result.append(None)
            elif isinstance(t, Operation):
                with graph.control_dependencies([gate]):
                    result.append(no_op())
            else:
                result.append(with_dependencies([gate], t))
        return result


tuple_.__name__ = "tuple"
