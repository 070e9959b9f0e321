"""Random structured programs over whole numbers, as TF1 dataflow graphs and as plain Python.

A program is a list of statements over variables v0..vn (int32, kept small by a modulus):
    ("add", target, a, b), ("mul", target, a, b), ("const", target, number)
    ("if", a, [statements], [statements])                 taken when a is even
    ("while", counter, times, [statements])               the statements `times` times, counting in `counter`
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from .graphs import Builder

MODULUS = 1009


def random_program(rng: random.Random, n_vars: int, depth: int) -> list[tuple]:
    statements: list[tuple] = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(["add", "mul", "const", "if", "while"] if depth else ["add", "mul", "const"])
        target, a, b = (rng.randrange(n_vars) for _ in range(3))
        if kind in ("add", "mul"):
            statements.append((kind, target, a, b))
        elif kind == "const":
            statements.append((kind, target, rng.randrange(10)))
        elif kind == "if":
            statements.append((kind, a, random_program(rng, n_vars, depth - 1), random_program(rng, n_vars, depth - 1)))
        else:
            statements.append((kind, rng.randint(0, 4), rng.choice([1, 2, 10]), random_program(rng, n_vars, depth - 1)))
    return statements


def interpret(program: list[tuple], values: list[int]) -> list[int]:
    values = list(values)
    for statement in program:
        kind = statement[0]
        if kind == "add":
            values[statement[1]] = (values[statement[2]] + values[statement[3]]) % MODULUS
        elif kind == "mul":
            values[statement[1]] = (values[statement[2]] * values[statement[3]]) % MODULUS
        elif kind == "const":
            values[statement[1]] = statement[2]
        elif kind == "if":
            values = interpret(statement[2] if values[statement[1]] % 2 == 0 else statement[3], values)
        else:
            for _ in range(statement[1]):
                values = interpret(statement[3], values)
    return values


class Emitter:
    """Writes a program into a graph. All variables go through every Switch and every loop, so that deadness and frames are
    exercised; constants wait for a variable of their frame, as TF's pivots make them."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.loops = 0

    def const(self, value: int, near: Any) -> Any:
        return self.b.const(np.int32(value), control=[near.op])

    def emit(self, program: list[tuple], values: list[Any]) -> list[Any]:
        b = self.b
        values = list(values)
        for statement in program:
            kind = statement[0]
            if kind in ("add", "mul"):
                op = b("AddV2" if kind == "add" else "Mul", values[statement[2]], values[statement[3]])
                values[statement[1]] = b("FloorMod", op, self.const(MODULUS, values[0])).outputs[0]
            elif kind == "const":
                # Through an Identity of something switched, so that it is dead on the untaken side.
                zero = b("Sub", values[statement[1]], values[statement[1]])
                values[statement[1]] = b("AddV2", zero, self.const(statement[2], values[0])).outputs[0]
            elif kind == "if":
                rest = b("FloorMod", values[statement[1]], self.const(2, values[0]))
                pred = b("Equal", rest, self.const(0, values[0]))
                merges = b.cond(
                    pred,
                    values,
                    lambda *inner, s=statement: self.emit(s[2], list(inner)),
                    lambda *inner, s=statement: self.emit(s[3], list(inner)),
                )
                values = [m.outputs[0] for m in merges]
            else:
                self.loops += 1
                counter = self.const(0, values[0]).outputs[0]
                exits = b.while_loop(
                    f"loop{self.loops}",
                    [counter, *values],
                    lambda i, *rest, s=statement: b("Less", i, self.const(s[1], i.outputs[0])),
                    lambda i, *rest, s=statement: [
                        b("AddV2", i, self.const(1, i.outputs[0])),
                        *self.emit(s[3], [r.outputs[0] for r in rest]),
                    ],
                    parallel=statement[2],
                )
                values = [e.outputs[0] for e in exits[1:]]
        return values
