"""Stacks: what the gradients of loops keep forward values in. They live as long as the step that made them."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np

from penstock.dtypes import DType, string
from penstock.errors import InvalidArgumentError, NotFoundError
from penstock.graph.ir import Dims, Operation
from penstock.ops.declare import NOT_DIFFERENTIABLE, no_outputs, op, unknown, vector
from penstock.ops.resources import Ref, ResourceHandle, carried, pair_of
from penstock.ops.samples import program
from penstock.shapes import format_dims

CONTAINER = "_stacks"
_numbers = itertools.count()


class Stack:
    """Values, last in first out."""

    __slots__ = ("dtype", "items", "lock", "max_size", "name")

    type_name = "N10tensorflow5StackE"

    def __init__(self, name: str, dtype: DType, max_size: int) -> None:
        self.name = name
        self.dtype = dtype
        self.max_size = max_size
        self.items: list[Any] = []
        self.lock = threading.Lock()

    def push(self, value: Any) -> None:
        with self.lock:
            if 0 <= self.max_size <= len(self.items):
                raise InvalidArgumentError(f"Stack[{self.name}] overflowed its max_size ({self.max_size})")
            self.items.append(value)

    def pop(self) -> Any:
        with self.lock:
            if not self.items:
                raise InvalidArgumentError(f"Stack[{self.name}] is empty when calling Pop().")
            return self.items.pop()


def _new(ctx: Any, elem_type: DType, stack_name: bytes, node: Operation, max_size: int) -> Stack:
    name = f"{stack_name.decode() or node.name}_{next(_numbers)}"
    stack = ctx.step_resources[CONTAINER, name] = Stack(name, elem_type, max_size)
    return stack


def find(ctx: Any, handle: Any) -> Stack:
    """The stack that a handle of either kind means."""
    if isinstance(handle, ResourceHandle):
        found = carried(handle, Stack)
        if found is not None:
            return found
        key = (handle.container, handle.name)
    else:
        key = pair_of(handle)
    stack = ctx.step_resources.get(key)
    if not isinstance(stack, Stack):
        raise NotFoundError(f"Resource {key[0]}/{key[1]}/{Stack.type_name} does not exist.")
    return stack


def stack_v2_kernel(ctx: Any, max_size: Any, *, elem_type: DType, stack_name: bytes, node: Operation) -> ResourceHandle:
    if np.ndim(max_size) != 0:
        raise InvalidArgumentError(f"Stack size must be a scalar, but had shape: {format_dims(np.shape(max_size))}")
    stack = _new(ctx, elem_type, stack_name, node, int(max_size))
    return ResourceHandle(ctx.device.name, CONTAINER, stack.name, Stack.type_name, resource=stack)


def stack_kernel(ctx: Any, *, elem_type: DType, stack_name: bytes, node: Operation) -> Ref:
    stack = _new(ctx, elem_type, stack_name, node, -1)
    ref = Ref(string, (2,), stack.name)
    ref.value = np.array([CONTAINER.encode(), stack.name.encode()], dtype=object)
    return ref


def push_kernel(ctx: Any, handle: Any, value: Any, *, T: DType) -> Any:
    stack = find(ctx, handle)
    if stack.dtype is not T:
        raise InvalidArgumentError(f"Must have type {stack.dtype.as_datatype_enum} but got {T.as_datatype_enum}")
    stack.push(value)
    return value


def pop_kernel(ctx: Any, handle: Any) -> Any:
    return find(ctx, handle).pop()


def close_kernel(ctx: Any, handle: Any) -> None:
    stack = find(ctx, handle)
    ctx.step_resources.pop((CONTAINER, stack.name), None)


def push_shape(c: Any) -> Dims:
    return c.dims(1)


def two_pushes(tf: Any) -> Any:
    stack = tf.raw_ops.StackV2(max_size=-1, elem_type=tf.float32)
    first = tf.raw_ops.StackPushV2(handle=stack, elem=[1.0, 2.0])
    with tf.control_dependencies([first]):
        second = tf.raw_ops.StackPushV2(handle=stack, elem=[3.0])
    with tf.control_dependencies([second]):
        last = tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.float32)
    with tf.control_dependencies([last]):
        return [last, tf.raw_ops.StackPopV2(handle=stack, elem_type=tf.float32)]


op("StackV2(max_size: int32) -> (handle: resource) [elem_type: type; stack_name: string = ''] stateful",
   shape=vector(2), numpy=stack_v2_kernel, grad=NOT_DIFFERENTIABLE, samples=[program(two_pushes)])  # fmt: skip
op("StackPushV2(handle: resource, elem: T) -> (output: T) [T: type; swap_memory: bool = false] stateful",
   shape=push_shape, numpy=push_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("StackPopV2(handle: resource) -> (elem: elem_type) [elem_type: type] stateful",
   shape=unknown, numpy=pop_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("StackCloseV2(handle: resource) -> () stateful", shape=no_outputs, numpy=close_kernel, grad=NOT_DIFFERENTIABLE)

op("Stack() -> (handle: ref string) [elem_type: type; stack_name: string = ''] stateful",
   shape=vector(2), numpy=stack_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("StackPush(handle: ref string, elem: T) -> (output: T) [T: type; swap_memory: bool = false]",
   shape=push_shape, numpy=push_kernel, grad=NOT_DIFFERENTIABLE)  # fmt: skip
op("StackPop(handle: ref string) -> (elem: elem_type) [elem_type: type]", shape=unknown, numpy=pop_kernel, grad=NOT_DIFFERENTIABLE)
op("StackClose(handle: ref string) -> ()", shape=no_outputs, numpy=close_kernel, grad=NOT_DIFFERENTIABLE)
