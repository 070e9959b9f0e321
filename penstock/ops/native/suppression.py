"""Non-maximum suppression: which boxes stay when those that overlap a better one go, or lose some of their score.

Boxes are float32 and finite, (..., 4).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from penstock.ops.native import address_of
from penstock.ops.native import assembler as asm
from penstock.ops.native.assembler import R8, R9, R10, R11, R12, R13, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Assembler, Mem
from penstock.ops.native.frames import begun, ended, share_out

_LANES = 16
_FIELDS = 5
"""y1, x1, y2, x2 and the area of a box."""


def _planes(count: int) -> np.ndarray:
    """Room for the fields of so many boxes, (5, n); boxes of infinite area overlap nothing."""
    planes = np.zeros((_FIELDS, -(-count // _LANES) * _LANES), np.float32)
    planes[4] = np.inf
    return planes


def _areas(boxes: np.ndarray) -> np.ndarray:
    """Boxes without an area overlap nothing."""
    area = (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    return np.where(area > 0, area, np.float32(np.inf))


def _overlap(a: Assembler, zero: int) -> None:
    """zmm7 = intersection over union of the box whose fields are in zmm0 to zmm4 and those at RAX, whose planes are RBX bytes apart."""
    for register, name in ((5, "max"), (6, "max"), (7, "min"), (8, "min")):
        a.vector(f"{name}.f32", register, register - 5, Mem(RAX))
        a.scalar(asm.ADD, RAX, RBX)
    for low, high in ((5, 7), (6, 8)):
        a.vector("sub.f32", high, high, low)
        a.vector("max.f32", high, high, zero)
    a.vector("mul.f32", 7, 7, 8)
    a.vector("add.f32", 9, 4, Mem(RAX))
    a.vector("sub.f32", 9, 9, 7)
    a.vector("div.f32", 7, 7, 9)


# -- all or nothing -----------------------------------------------------------------------------------------------------


def suppress(boxes: np.ndarray, order: np.ndarray, sizes: Sequence[int] | np.ndarray, limit: int, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """For each of several groups the numbers of at most `limit` boxes, and how many they are: each overlaps none of those before it by more than the
    threshold (at least 0).

    order[g, : sizes[g]] are the numbers of a group's boxes, best first. `boxes` are several contiguous sets, (s, n, 4): the first groups are of the first set,
    as many of the next one, and so on. Which corners they are given by does not matter.
    """
    groups, count = order.shape
    found, counts = np.zeros((groups, max(limit, 0)), np.int64), np.zeros(groups, np.int64)
    if limit <= 0 or not order.size:
        return found, counts
    of_order, of_boxes, per_set = address_of(order), address_of(boxes), groups // len(boxes)
    records = np.array([(of_order + g * order.strides[0], sizes[g], of_boxes + g // per_set * boxes.strides[0]) for g in range(groups)])
    (bits,) = struct.unpack("<i", struct.pack("<f", threshold))

    def run(start: int, end: int) -> None:
        chosen = np.empty((_FIELDS, -(-limit // _LANES) * _LANES), np.float32)
        block = np.array([chosen.strides[0], limit, bits, address_of(counts) + start * 8])
        first = address_of(records) + start * records.strides[0], address_of(chosen), address_of(found) + start * found.strides[0]
        _suppress()(end - start, *first, address_of(block), 0)

    share_out(groups, count, run)
    return found, counts


@cache
def _suppress() -> Any:
    """f(groups, their records (address of the order, how many, address of boxes), planes of chosen boxes, their numbers, (bytes of a plane, limit,
    threshold, address of counts), -)"""
    a = begun()
    group, candidate, others, kept, placed, gone, done = range(7)
    threshold, zero, far, one_lane, too_near, has_area = 16, 17, 18, 1, 2, 3
    a.vector("broadcast.f32", threshold, Mem(R8, 16))
    a.vector("xor.i32", zero, zero, zero)
    _fill(a, far, np.inf, "f32")
    a.set_number(RAX, 1)
    a.mask_from(one_lane, RAX)
    a.scalar(asm.MOVE, RBX, Mem(R8))
    a.label(group)
    for register, field in ((R13, 0), (RBP, 8), (R9, 16)):
        a.scalar(asm.MOVE, register, Mem(RSI, field))
    a.scalar(asm.SUB, R12, R12)  # how many are chosen
    a.label(candidate)
    a.with_number(5, RBP, 1)
    a.jump(done, asm.BELOW)
    a.scalar(asm.MOVE, RAX, Mem(R13))
    a.scalar(asm.ADD, RAX, RAX)
    for i in range(4):
        a.vector("broadcast.f32", i + 5, Mem(R9, 4 * i, index=RAX, scale=8))
    for i in range(2):
        a.vector("min.f32", i, i + 5, i + 7)
        a.vector("max.f32", i + 2, i + 5, i + 7)
        a.vector("sub.f32", i + 5, i + 2, i)
    a.vector("mul.f32", 5, 5, 6)
    a.vector("load.f32", 4, far)  # what has no area overlaps nothing
    a.vector("cmp.f32", has_area, zero, 5, immediate=asm.LESS)
    a.vector("load.f32", 4, 5, mask=has_area)
    a.scalar(asm.MOVE, R10, RDX)
    a.scalar(asm.MOVE, R11, R12)
    a.label(others)
    a.with_number(7, R11, 0)
    a.jump(kept, asm.NOT_GREATER)
    a.scalar(asm.MOVE, RAX, R10)
    _overlap(a, zero)
    a.vector("cmp.f32", too_near, threshold, 7, immediate=asm.LESS)
    a.mask("test", too_near, too_near)
    a.jump(gone, asm.NOT_ZERO)
    a.with_number(0, R10, 64)
    a.with_number(5, R11, _LANES)
    a.jump(others)
    a.label(kept)
    a.scalar(asm.MOVE, RAX, RDX)
    for i in range(_FIELDS - 1):
        a.vector("store.f32", i, Mem(RAX, index=R12, scale=4), mask=one_lane)
        a.scalar(asm.ADD, RAX, RBX)
    a.scalar(asm.MOVE, R10, R12)
    a.with_number(4, R10, _LANES - 1)
    a.jump(placed, asm.NOT_ZERO)
    a.vector("store.f32", far, Mem(RAX, index=R12, scale=4))  # the first of a vector: nothing is beside it, whatever another group has left there
    a.label(placed)
    a.vector("store.f32", _FIELDS - 1, Mem(RAX, index=R12, scale=4), mask=one_lane)
    a.scalar(asm.MOVE, RAX, Mem(R13))
    a.scalar(asm.MOVE_TO_MEMORY, RAX, Mem(RCX, index=R12, scale=8))
    a.with_number(0, R12, 1)
    a.scalar(asm.CMP, R12, Mem(R8, 8))
    a.jump(done, asm.ZERO)
    a.label(gone)
    a.with_number(0, R13, 8)
    a.jump(candidate)
    a.label(done)
    a.scalar(asm.MOVE, RAX, Mem(R8, 24))
    a.scalar(asm.MOVE_TO_MEMORY, R12, Mem(RAX))
    a.with_number(0, RAX, 8)
    a.scalar(asm.MOVE_TO_MEMORY, RAX, Mem(R8, 24))
    for _ in range(8):
        a.scalar(asm.ADD, RCX, Mem(R8, 8))
    a.with_number(0, RSI, 24)
    a.with_number(5, RDI, 1)
    a.jump(group, asm.NOT_ZERO)
    return ended(a)


# -- by degrees ---------------------------------------------------------------------------------------------------------


def suppress_softly(
    boxes: np.ndarray, scores: np.ndarray, limit: int, threshold: float, score_threshold: float, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of at most `limit` boxes, best first, and their scores (at least 0), which exp(scale * overlap**2) of each better one lowers: to 0
    where the overlap is above the threshold. Those with scores not above `score_threshold` go."""
    found, kept = np.empty(max(limit, 0), np.int64), np.empty(max(limit, 0), np.float32)
    if limit <= 0 or not len(boxes):
        return found[:0], kept[:0]
    planes = np.concatenate([_planes(len(boxes)), np.full((1, -(-len(boxes) // _LANES) * _LANES), -np.inf, np.float32)])
    planes[:4, : len(boxes)], planes[4, : len(boxes)] = boxes.T, _areas(boxes)
    planes[5, : len(boxes)] = np.where(scores > np.float32(score_threshold), scores, -np.inf)
    numbers = np.array([threshold, score_threshold, scale], np.float32)
    block = np.array([planes.strides[0], limit, 0, 0])
    _suppress_softly()(planes.shape[1] * 4, planes.ctypes.data, kept.ctypes.data, found.ctypes.data, block.ctypes.data, numbers.ctypes.data)
    return found[: block[3]], kept[: block[3]]


_EXP = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)
_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.693359375, -2.12194440e-4


@cache
def _suppress_softly() -> Any:
    """f(bytes of a plane, planes of fields and scores, scores found, numbers found, (bytes of a plane, limit, room, how many), thresholds and scale)

    A step lowers all scores by what is left beside the box chosen last, and looks for the best of them on the way.
    """
    a = begun()
    step, vector, done = range(3)
    least, limit, scale, zero, gone, best, best_at, at, more = 16, 17, 18, 19, 20, 21, 22, 23, 24
    one_lane, near, here, better = 1, 2, 3, 4
    for register, offset in ((limit, 0), (least, 4), (scale, 8)):
        a.vector("broadcast.f32", register, Mem(R9, offset))
    a.vector("xor.i32", zero, zero, zero)
    _fill(a, gone, -np.inf, "f32")
    _fill(a, more, _LANES, "i32")
    a.set_number(RAX, 1)
    a.mask_from(one_lane, RAX)
    a.scalar(asm.MOVE, RBX, Mem(R8))
    a.scalar(asm.SUB, R12, R12)
    for i in range(4):
        a.vector("xor.i32", i, i, i)
    _fill(a, 4, np.inf, "f32")
    a.label(step)
    a.vector("load.f32", best, gone)
    a.vector("xor.i32", best_at, best_at, best_at)
    a.vector("load.i32", at, a.table(np.arange(_LANES, dtype=np.int32)))
    a.scalar(asm.SUB, R10, R10)
    a.label(vector)
    a.scalar(asm.MOVE, RAX, RSI)
    a.scalar(asm.ADD, RAX, R10)
    _overlap(a, zero)
    a.scalar(asm.ADD, RAX, RBX)
    a.vector("cmp.f32", near, 7, limit, immediate=asm.LESS_EQUAL)
    a.vector("mul.f32", 8, 7, 7)
    a.vector("mul.f32", 8, 8, scale)
    _exp(a, 10, 8, 9)
    a.vector("load.f32", 11, Mem(RAX))
    a.vector("cmp.f32", here, gone, 11, immediate=asm.LESS)
    a.vector("mul.f32", 11, 11, 10, mask=near, zero=True)
    a.vector("cmp.f32", here, least, 11, immediate=asm.LESS, mask=here)
    a.vector("blend.f32", 11, gone, 11, mask=here)
    a.vector("store.f32", 11, Mem(RAX))
    a.vector("cmp.f32", better, best, 11, immediate=asm.LESS)
    a.vector("load.f32", best, 11, mask=better)
    a.vector("load.i32", best_at, at, mask=better)
    a.vector("add.i32", at, at, more)
    a.with_number(0, R10, 64)
    a.scalar(asm.CMP, R10, RDI)
    a.jump(vector, asm.BELOW)
    # The best of the lanes, in all lanes; of equal ones, the first.
    a.vector("load.f32", 12, best)
    _over_lanes(a, "max.f32", 12)
    a.vector("cmp.f32", better, 12, gone, immediate=asm.EQUAL)
    a.mask("test", better, better)
    a.jump(done, asm.NOT_ZERO)
    a.vector("cmp.f32", better, 12, best, immediate=asm.EQUAL)
    _fill(a, 13, (1 << 31) - 1, "i32")
    a.vector("load.i32", 13, best_at, mask=better)
    _over_lanes(a, "min.i32", 13)
    a.vector("store.f32", 12, Mem(RDX, index=R12, scale=4), mask=one_lane)
    a.vector("store.i32", 13, Mem(R8, 16), mask=one_lane)
    a.scalar(asm.MOVE, R11, Mem(R8, 16))
    a.scalar(asm.MOVE_TO_MEMORY, R11, Mem(RCX, index=R12, scale=8))
    a.scalar(asm.MOVE, RAX, RSI)
    for i in range(_FIELDS):
        a.vector("broadcast.f32", i, Mem(RAX, index=R11, scale=4))
        a.scalar(asm.ADD, RAX, RBX)
    a.vector("store.f32", gone, Mem(RAX, index=R11, scale=4), mask=one_lane)
    a.with_number(0, R12, 1)
    a.scalar(asm.CMP, R12, Mem(R8, 8))
    a.jump(step, asm.BELOW)
    a.label(done)
    a.scalar(asm.MOVE_TO_MEMORY, R12, Mem(R8, 24))
    return ended(a)


def _fill(a: Assembler, register: int, number: float, type: str) -> None:
    a.vector(f"broadcast.{type}", register, a.constant(number, type)._replace(broadcast=False))


def _exp(a: Assembler, result: int, x: int, spare: int) -> None:
    """exp of numbers that are not above 0; x and the spare register are overwritten."""
    a.vector("mul.f32", spare, x, a.constant(_LOG2_E, "f32"))
    a.vector("round.f32", spare, spare, immediate=8)
    for part in (_LN2_HIGH, _LN2_LOW):
        a.vector("nmadd231.f32", x, spare, a.constant(part, "f32"))
    _fill(a, result, _EXP[0], "f32")
    for coefficient in _EXP[1:]:
        a.vector("madd213.f32", result, x, a.constant(coefficient, "f32"))
    a.vector("scale.f32", result, result, spare)


def _over_lanes(a: Assembler, name: str, register: int) -> None:
    """The largest (or smallest) lane, in all lanes."""
    for distance in (8, 4, 2, 1):
        a.vector("load.i32", 14, a.table((np.arange(_LANES, dtype=np.int32) + distance) % _LANES))
        a.vector("permute.i32", 14, 14, register)
        a.vector(name, register, register, 14)
