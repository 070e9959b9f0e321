"""Fuzzing of GraphDefs: damaged bytes and senseless structures end in a result or a typed error, never in anything else.

Seeded, and always the same cases, however quick the machine is. PENSTOCK_FUZZ_SEED picks others, PENSTOCK_FUZZ_SECONDS says for how long to go on. A finding names the case;
`python -m pytest ... -k replay` with PENSTOCK_FUZZ_CASE=kind:number runs that one alone.
"""

from __future__ import annotations

import collections
import os
import random
import time

import pytest

from penstock import errors
from penstock.formats import protos
from penstock.graph.opdef import OPS

from .judge import Finding, judge, limited_memory
from .mutate import mutate, mutate_bytes, mutate_nodes, random_op
from .seeds import seed_graphs

SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", "1"))
SECONDS = float(os.environ.get("PENSTOCK_FUZZ_SECONDS", "0"))
CASE = os.environ.get("PENSTOCK_FUZZ_CASE", "")

pytestmark = pytest.mark.timeout(SECONDS + 120)


def bytes_case(r: random.Random):
    """A GraphDef whose bytes were damaged, parsed again; None where they no longer parse."""
    names = list(seed_graphs())
    if r.random() < 0.5:  # bytes of single nodes: most damage to a whole file only makes it unreadable
        graph_def = protos.GraphDef()
        graph_def.CopyFrom(seed_graphs()[r.choice(names)])
        mutate_nodes(graph_def, r)
        return graph_def, ["nodes"]
    data, other = (seed_graphs()[r.choice(names)].SerializeToString() for _ in range(2))
    try:
        return protos.parse(mutate_bytes(data, other, r), protos.GraphDef), ["bytes"]
    except errors.DataLossError:
        return None, ["bytes"]


def structure_case(r: random.Random):
    """A GraphDef changed through its messages."""
    names = list(seed_graphs())
    graph_def = protos.GraphDef()
    graph_def.CopyFrom(seed_graphs()[r.choice(names)])
    return graph_def, mutate(graph_def, seed_graphs()[r.choice(names)], r)


def ops_case(r: random.Random):
    """One node of any registered op, with inputs of the right types and random values, shapes and attributes."""
    graph_def = protos.GraphDef()
    name = r.choice(sorted(OPS.keys() - {"Abort"}))  # Abort ends the process if it is told to
    random_op(graph_def, name, r)
    if any(attr.kind in ("func", "list(func)") for attr in OPS[name].attrs.values()):
        graph_def.library.CopyFrom(seed_graphs()["functional"].library)
    return graph_def, [name]


KINDS = {"bytes": (bytes_case, 400), "structure": (structure_case, 200), "ops": (ops_case, 1000)}
"""How a case is made, and how many there are unless a time is given."""


def run_case(kind: str, number: int) -> str:
    r = random.Random(f"{SEED}:{kind}:{number}")
    case, how = KINDS[kind][0](r)
    if case is None:
        return "refused"
    try:
        return judge(case, r, timeout_ms=100 if kind == "ops" else 500)
    except Finding as finding:
        raise AssertionError(f"PENSTOCK_FUZZ_SEED={SEED} PENSTOCK_FUZZ_CASE={kind}:{number} ({', '.join(how)}): {finding}") from finding


@pytest.mark.parametrize("kind", KINDS)
def test_fuzz(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some graphs write files
    seed_graphs()
    outcomes = collections.Counter()
    findings = []
    end = time.monotonic() + SECONDS
    number = 0
    with limited_memory():
        while (time.monotonic() < end if SECONDS else number < KINDS[kind][1]) and len(findings) < 20:
            try:
                outcomes[run_case(kind, number)] += 1
            except AssertionError as error:
                findings.append(str(error))
            number += 1
    print(f"\n{kind}: {number} cases, {dict(outcomes)}, {len(findings)} findings")
    assert not findings, f"{len(findings)} findings in {number} cases\n\n" + "\n\n".join(findings)
    assert outcomes["ran"] and outcomes["refused"], outcomes


def test_seeds_are_sound():
    """Without damage, every seed is accepted and survives being written and read."""
    for name, graph_def in seed_graphs().items():
        outcome = judge(graph_def, random.Random(name))
        assert outcome in ("ran", "failed"), f"{name} was {outcome}"


@pytest.mark.skipif(not CASE, reason="set PENSTOCK_FUZZ_CASE=kind:number to run one case")
def test_replay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind, _, number = CASE.partition(":")
    seed_graphs()
    with limited_memory():
        print(run_case(kind, int(number)))
