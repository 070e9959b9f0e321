"""Staging areas: Stage and Unstage, and their keyed relatives MapStage and OrderedMapStage.

The ops of one area find each other by its shared name (an op without one uses its own name). They wait without holding a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.dtypes import DType
from penstock.errors import InvalidArgumentError
from penstock.graph.ir import Operation
from penstock.ops.declare import no_outputs, op, scalar, unknown
from penstock.ops.kernels.staging import StagingArea, StagingMap
from penstock.ops.resources import DEFAULT_CONTAINER
from penstock.shapes import format_dims


def _area(ctx: Any, node: Operation, cls: Any, make: Callable[[str, dict[str, Any]], Any]) -> Any:
    attrs = node.attrs
    container = attrs["container"].decode() or DEFAULT_CONTAINER
    name = attrs["shared_name"].decode() or node.name
    return ctx.resources.lookup_or_create(container, name, cls, lambda: make(name, attrs))


def _buffer(ctx: Any, node: Operation) -> StagingArea:
    return _area(ctx, node, StagingArea, lambda name, attrs: StagingArea(name, attrs["capacity"], attrs["memory_limit"]))


def stage_kernel(ctx: Any, done: Callable[..., Any], values: list[Any], *, node: Operation) -> None:
    _buffer(ctx, node).put(ctx, done, values)


def unstage_kernel(ctx: Any, done: Callable[..., Any], *, dtypes: list[DType], node: Operation) -> None:
    area = _buffer(ctx, node)
    area.get(ctx, done, area.take(dtypes))


def peek_kernel(ctx: Any, done: Callable[..., Any], index: Any, *, dtypes: list[DType], node: Operation) -> None:
    if int(index) < 0:
        raise InvalidArgumentError(f"index must be >= 0, got {int(index)}")
    area = _buffer(ctx, node)
    area.get(ctx, done, area.peek(int(index), dtypes))


_ATTRS = "capacity: int >= 0 = 0; memory_limit: int >= 0 = 0; dtypes: list(type){}; container: string = ''; shared_name: string = ''"
_SOME, _ANY = _ATTRS.format(" >= 1"), _ATTRS.format("")

op(f"Stage(values: list dtypes) -> () [{_SOME}] stateful", shape=no_outputs, async_kernel=stage_kernel)
op(f"Unstage() -> (values: list dtypes) [{_SOME}] stateful", shape=unknown, async_kernel=unstage_kernel)
op(f"StagePeek(index: int32) -> (values: list dtypes) [{_SOME}] stateful", shape=unknown, async_kernel=peek_kernel)
op(f"StageSize() -> (size: int32) [{_ANY}] stateful",
   shape=scalar, numpy=lambda ctx, *, node: np.int32(len(_buffer(ctx, node).items)))  # fmt: skip
op(f"StageClear() -> () [{_ANY}] stateful", shape=no_outputs, numpy=lambda ctx, *, node: _buffer(ctx, node).clear())


def _declare_map(prefix: str, ordered: bool) -> None:
    def find(ctx: Any, node: Operation) -> StagingMap:
        return _area(ctx, node, StagingMap, lambda name, attrs: StagingMap(name, attrs["capacity"], attrs["memory_limit"], ordered))

    def stage(ctx: Any, done: Callable[..., Any], key: Any, indices: Any, values: list[Any], *, dtypes: list[DType],
              node: Operation) -> None:  # fmt: skip
        find(ctx, node).put(ctx, done, _key(key), indices.tolist(), values, len(dtypes))

    def unstage(ctx: Any, done: Callable[..., Any], key: Any, indices: Any, *, dtypes: list[DType], node: Operation) -> None:
        area = find(ctx, node)
        area.get(ctx, done, area.take(_key(key), indices.tolist(), dtypes))

    def peek(ctx: Any, done: Callable[..., Any], key: Any, indices: Any, *, dtypes: list[DType], node: Operation) -> None:
        area = find(ctx, node)
        area.get(ctx, done, area.take(_key(key), indices.tolist(), dtypes, remove=False))

    def unstage_any(ctx: Any, done: Callable[..., Any], indices: Any, *, dtypes: list[DType], node: Operation) -> None:
        area = find(ctx, node)
        area.get(ctx, done, area.take(None, indices.tolist(), dtypes))

    fake = _ANY.replace("container", "fake_dtypes: list(type) >= 1; container")
    op(f"{prefix}Stage(key: int64, indices: int32, values: list fake_dtypes) -> () [{fake}] stateful", shape=no_outputs, async_kernel=stage)
    op(f"{prefix}Unstage(key: int64, indices: int32) -> (values: list dtypes) [{_SOME}] stateful", shape=unknown, async_kernel=unstage)
    op(f"{prefix}Peek(key: int64, indices: int32) -> (values: list dtypes) [{_SOME}] stateful", shape=unknown, async_kernel=peek)
    op(f"{prefix}UnstageNoKey(indices: int32) -> (key: int64, values: list dtypes) [{_SOME}] stateful", shape=unknown, async_kernel=unstage_any)
    op(f"{prefix}Size() -> (size: int32) [{_ANY}] stateful",
       shape=scalar, numpy=lambda ctx, *, node: np.int32(len(find(ctx, node).items)))  # fmt: skip
    op(f"{prefix}IncompleteSize() -> (size: int32) [{_ANY}] stateful",
       shape=scalar, numpy=lambda ctx, *, node: np.int32(len(find(ctx, node).incomplete)))  # fmt: skip
    op(f"{prefix}Clear() -> () [{_ANY}] stateful", shape=no_outputs, numpy=lambda ctx, *, node: find(ctx, node).clear())


def _key(key: Any) -> int:
    if np.ndim(key):
        raise InvalidArgumentError(f"key must be an int64 scalar, got tensor with shape: {format_dims(np.shape(key))}")
    return int(key)


_declare_map("Map", False)
_declare_map("OrderedMap", True)
