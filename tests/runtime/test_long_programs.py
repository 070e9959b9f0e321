"""Very long straight programs, which run as functions of a few hundred calls each: results, errors, when values are let go of."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from penstock import dtypes, errors
from penstock.formats.attr_value import TensorAttr
from penstock.runtime.executor import pieces

from . import executor_ops  # noqa: F401 - declares what the tests run
from .graphs import Builder, declare, executor, run


@pytest.fixture(autouse=True)
def _in_short_pieces(monkeypatch):
    monkeypatch.setenv("PENSTOCK_REGIONS", "1")
    monkeypatch.setattr(pieces, "LEAST", 4)
    monkeypatch.setattr(pieces, "PART", 3)


def _written(b: Builder):
    e = executor(b)
    assert e.straight.pieces is not None
    e.compiler = None
    return e


def _chain(b: Builder, value, length: int):
    for i in range(length):
        value = b("AddV2", value, value, name=f"sum{i}")
    return value


def test_a_program_in_pieces_gives_the_same():
    b = Builder()
    x = b.arg(0)
    c = b("Const", name="c", value=TensorAttr(dtypes.float32, np.float32(3)), dtype=dtypes.float32)
    early = b("Mul", x, c)
    b.ret(0, b("AddV2", _chain(b, x, 11), early))
    b.ret(1, x)
    b.ret(2, c)
    e = _written(b)
    assert len(e.straight.pieces) == 5
    for value in (1.0, 2.0):
        assert [float(v) for v in run(e, np.float32(value))] == [value * (2048 + 3), value, 3]


def test_without_generated_code_there_are_none(monkeypatch):
    b = Builder()
    b.ret(0, _chain(b, b.arg(0), 11))
    monkeypatch.setenv("PENSTOCK_REGIONS", "0")
    assert executor(b).straight.pieces is None


def test_many_outputs_and_unread_ones():
    b = Builder()
    split = b("TestSplit", b.arg(0))
    b("TestSplit", split)
    b("Neg", split)
    total = _chain(b, b("AddV2", split.outputs[1], split.outputs[1]), 3)
    b.ret(0, total)
    expected = run(b, np.float32(1), general=True)
    assert run(_written(b), np.float32(1)) == expected


@pytest.mark.parametrize("place", range(7))
def test_an_error_names_its_node_and_inputs(place):
    def fail(x):
        raise errors.OutOfRangeError(None, None, "too far")

    declare("TestFar(x: T) -> (y: T) [T: type]", fail)
    b = Builder()
    value = _chain(b, b.arg(0), place)
    value = b("TestFar", value, name="far")
    for _ in range(7):
        value = b("Neg", value)
    b.ret(0, value)
    told = []
    for e in (_written(b), executor(b)):
        e.straight.pieces = e.straight.pieces if not told else None
        e.compiler = None
        with pytest.raises(errors.OutOfRangeError) as info:
            run(e, np.float32(1))
        told.append((info.value.op.name, str(info.value).partition("running step")[0]))
    assert told[0] == told[1] and told[0][0] == "far"


def test_a_wrong_number_of_outputs_is_reported():
    b = Builder()
    b.ret(0, _chain(b, b("TestLie", b.arg(0), name="liar"), 5))
    with pytest.raises(errors.InternalError, match="gave 1 outputs; 2 were expected") as info:
        run(_written(b), np.float32(1))
    assert info.value.op.name == "liar"


def test_a_value_is_let_go_of_after_its_last_reader():
    """Within a piece, and if it was made in an earlier one."""
    seen: list[weakref.ref] = []
    alive: list[list[bool]] = []

    def remember(x):
        made = np.array(x) + 1
        seen.append(weakref.ref(made))
        alive.append([ref() is not None for ref in seen])
        return made

    declare("TestRemember(x: T) -> (y: T) [T: type]", remember)
    b = Builder()
    value = b.arg(0)
    for _ in range(8):
        value = b("TestRemember", value)
    b.ret(0, value)
    e = _written(b)
    run(e, np.ones(3, np.float32))
    counts = [sum(row) for row in alive]
    assert counts == [1, 2, 2, 2, 2, 2, 2, 2]  # the one that is made, and the one it is made of
