"""Random programs, run plainly and in the quick ways: a few hundred of those that `make agree` runs by the ten thousand.

A failing seed is looked at with `python -m tests.engines.agree --graphs 1 --seed SEED`, which makes it smaller and prints it.
"""

import pkgutil

import numpy as np
import pytest

import penstock as tf
from penstock.engines.onednn import library
from penstock.ops import native
from tests.engines.agree import (
    MODES,
    check,
    compare,
    difference,
    listing,
    modes_for,
    outcomes,
    shrink,
    story,
    time_limit,
)
from tests.random_graphs import frozen, make

FIRST = 1_000_000
"""Other seeds than those of `make agree`."""


@pytest.mark.parametrize("block", range(12))
def test_regions(block):
    for seed in range(FIRST + 10 * block, FIRST + 10 * block + 10):
        with time_limit(60):
            result = check(seed, modes_for(seed, ["regions"]))
        assert not result.differences, f"seed {seed}\n{story(result)}"


@pytest.mark.skipif(library.get() is None, reason="there is no oneDNN here: NumPy computes")
@pytest.mark.parametrize("block", range(3))
def test_onednn(block):
    for seed in range(FIRST + 5000 + 10 * block, FIRST + 5000 + 10 * block + 10):
        with time_limit(60):
            result = check(seed, ["onednn"])
        assert not result.differences, f"seed {seed}\n{story(result)}"


@pytest.mark.skipif(library.get() is None, reason="there is no oneDNN here: NumPy computes")
@pytest.mark.parametrize("block", range(3))
def test_both_engines(block):
    for seed in range(FIRST + 7000 + 10 * block, FIRST + 7000 + 10 * block + 10):
        with time_limit(60):
            result = check(seed, modes_for(seed, ["engines"]))
        assert not result.differences, f"seed {seed}\n{story(result)}"


@pytest.mark.skipif(library.get() is None or not native.available(), reason="needs oneDNN and AVX-512")
@pytest.mark.parametrize("kind, mode, function", [
    (frozen.convolutions, "winograd", "penstock.engines.onednn.winograd.Winograd.__init__"), (frozen.convolutions, "winograd", "penstock.engines.onednn.chains._Plan.run"),
    (frozen.recurrent, "engines", "penstock.engines.onednn.chains._Plan.run"), (frozen.products, "small engines", "penstock.engines.onednn.chains._Plan.run"),
    (frozen.tables, "engines", "penstock.ops.training.Together.__call__"), (frozen.tables, "engines", "penstock.ops.native.duplicates.sums_by_number"),
])  # fmt: skip
def test_programs_reach_what_only_large_ones_take(monkeypatch, kind, mode, function):
    """Winograd's way, chains, updates of several tables at once."""
    owner_name, _, name = function.rpartition(".")
    owner = pkgutil.resolve_name(owner_name)
    original, reached = getattr(owner, name), []

    def noted(*args, **kwargs):
        reached.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, noted)
    if name == "sums_by_number":
        monkeypatch.setattr("penstock.ops.training.sums_by_number", noted)
    for seed in range(40):
        outcomes(make(tf, seed, range(1, 12), 2, only=kind), MODES[mode])
        if reached:
            return
    raise AssertionError(f"no program reached {function}")


# -- the tools themselves ------------------------------------------------------------------------------------------------------


def graph_text(program):
    return str(program.graph.as_graph_def()), [[f.name for f in run.fetches] for run in program.runs]


def test_a_seed_is_a_program():
    assert graph_text(make(tf, 7)) == graph_text(make(tf, 7))
    assert graph_text(make(tf, 7)) != graph_text(make(tf, 8))


def test_leaving_a_step_out_leaves_the_others_as_they_were():
    """Steps that do not read what is gone are the same nodes."""
    whole, less = make(tf, 11), make(tf, 11, skip={max(make(tf, 11).steps)})
    kept = [n for n in less.graph.as_graph_def().node if n.name.startswith("s0")]
    assert kept and kept == [n for n in whole.graph.as_graph_def().node if n.name.startswith("s0")]


def test_differences_are_seen():
    a = np.array([1.0, np.nan, 0.0], np.float32)
    assert difference(a, a.copy(), True) is None
    assert difference(a, np.array([1.0, np.nan, -0.0], np.float32), True) is not None
    assert difference(a, np.nextafter(a, np.float32(2)), True) is not None
    assert difference(a, np.nextafter(a, np.float32(2)), False) is None
    assert difference(a, a.astype(np.float64), False) is not None
    assert difference(a, a[:2], False) is not None
    assert difference(np.array([b"x"], object), np.array([b"y"], object), True) is not None
    assert difference(np.int32(1), np.int32(2), False) is not None


def test_a_wrong_kernel_is_found_and_made_small(monkeypatch):
    """The comparison can fail: a line of generated code that is wrong shows up, at its node."""
    from penstock.engines.python import codegen

    written = codegen._Writer._compile

    def wrong(self):
        self.lines = [line.replace("v0 = tanh_", "v0 = -tanh_") for line in self.lines]
        return written(self)

    monkeypatch.setattr(codegen._Writer, "_compile", wrong)
    seed = next(s for s in range(200) if check(s, ["eager"]).differences)
    gone, runs = shrink(seed, "eager")
    small = check(seed, ["eager"], gone, runs, repair=False)
    assert small.differences and runs is not None
    assert len(small.program.steps) <= 3 and "Tanh" in story(small)


def test_outcomes_hold_state_and_errors():
    program = next(p for p in (make(tf, s) for s in range(100)) if p.reads and any(r.what == "trouble" for r in p.runs))
    found = outcomes(program, MODES["off"])
    assert len(found) == len(program.runs)
    assert all(len(o.state) == len(program.reads) for o in found)
    assert listing(program, program.runs[0].fetches)
    assert not compare("eager", program, found, found)
