"""Times every workload on Penstock, TensorFlow and peers in alternation, prints a table of ratios and writes docs/performance.md.

    python -m benchmarks                                   everything, some ten minutes
    python -m benchmarks --only "MLP" --rounds 3           Penstock and TensorFlow on some workloads
    python -m benchmarks --only "MLP" --peers jax,torch    with peers beside them
    python -m benchmarks --quick                           a smoke run: every part, no peers, sloppy times
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
import traceback
from collections.abc import Callable

from benchmarks import first, footprint, memory, report, scaling, table, timing
from benchmarks.table import OURS, PEERS, PLAIN, THEIRS, Effort, Row
from benchmarks.timing import load  # noqa: F401  (benchmarks written before timing.py had it import it from here)
from benchmarks.workers import Failed, Pool

PARTS = report.SECTIONS


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    start = time.monotonic()
    effort = Effort.quick() if options.quick else Effort()
    for name in ("rounds", "seconds"):
        if getattr(options, name) is not None:
            setattr(effort, name, getattr(options, name))
    results = report.Results(effort=effort)
    packages = [OURS, THEIRS, *options.peers]
    pool = Pool(table.ENVIRONMENTS)
    try:
        print(report.machine(), flush=True)
        results.versions = _versions(pool, packages)
        results.missing = {p: why for p, why in pool.missing.items() if p != PLAIN}
        print(", ".join(f"{n} {v}" for n, v in results.versions.items()), flush=True)
        packages = [p for p in packages if p not in pool.missing]
        if "table" in options.parts:
            _part(lambda: _table(pool, results, packages, effort, options.only))
        if "scaling" in options.parts:
            _part(lambda: _scaling(pool, results, effort, options.quick))
    finally:
        pool.close()
    if "first" in options.parts:
        _part(lambda: _first(results, options.quick))
    if "memory" in options.parts:
        _part(lambda: _memory(results, options.quick))
    results.minutes = (time.monotonic() - start) / 60
    if options.save:
        with open(options.save, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(results), file, indent=1)
    if options.write:
        report.write(options.write, results)
        print(f"\nwrote {options.write}")
    return 0


def _part(run: Callable[[], None]) -> None:
    """Runs a part of the page. What was measured before it fails is kept, and the other parts follow."""
    try:
        run()
    except Exception:
        traceback.print_exc()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="workloads whose name contains this, without the other parts")
    parser.add_argument("--peers", help=f"'all', 'none' (with --only and --quick), or some of plain,{','.join(PEERS)}; plain is Penstock without XLA")
    parser.add_argument("--parts", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="time per package and round")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--write", metavar="PAGE", help="put the results into this page")
    parser.add_argument("--save", metavar="FILE", help="write all numbers as JSON")
    options = parser.parse_args(arguments)
    wish = options.peers or ("none" if options.only or options.quick else "all")
    known = {"plain": PLAIN, **{p: p for p in PEERS}}
    names = [] if wish == "none" else list(known) if wish == "all" else wish.split(",")
    parts = (options.parts or ("table" if options.only else ",".join(PARTS))).split(",")
    for given, allowed in ((names, known), (parts, PARTS)):
        if unknown := [n for n in given if n not in allowed]:
            parser.error(f"{', '.join(unknown)} is none of {', '.join(allowed)}")
    options.peers, options.parts = [known[n] for n in names], parts
    return options


def _versions(pool: Pool, packages: list[str]) -> dict[str, str]:
    """Starts every worker, so that what is not installed is known before the first row."""
    versions = {}
    for package in packages:
        try:
            versions[package] = pool.ask(package, "about", 120.0)["version"]
        except Failed as error:
            pool.missing.setdefault(package, str(error))
    return {p: v for p, v in versions.items() if p != PLAIN}


def _table(pool: Pool, results: report.Results, packages: list[str], effort: Effort, only: str) -> None:
    from benchmarks import workloads

    print("\n" + report.heading(packages), flush=True)
    order = [*table.GROUPS, *workloads.GROUPS.values()]
    names = sorted([*workloads.WORKLOADS, *workloads.ONCE], key=lambda name: order.index(workloads.GROUPS[name]))
    for name in (n for n in names if only in n):
        row = Row(name, workloads.GROUPS[name], workloads.BARS[name])
        results.rows.append(table.measure(pool, row, packages, effort, repeats=name in workloads.WORKLOADS))
        print(report.line(row, packages), flush=True)


def _scaling(pool: Pool, results: report.Results, effort: Effort, is_quick: bool) -> None:
    light = dataclasses.replace(effort, rounds=min(3, effort.rounds), seconds=effort.seconds / 2, settle=effort.settle / 2, limit=effort.limit / 2)
    for curve in scaling.curves(pool, light, is_quick):
        results.curves.append(curve)
        print("\n" + report.picture(curve), flush=True)


def _first(results: report.Results, is_quick: bool) -> None:
    for name in first.NAMES[:1] if is_quick else first.NAMES:
        found = first.measure(name, 1 if is_quick else 3)
        results.firsts.append(found)
        totals = ", ".join(f"{table.TITLES[p]} {timing.show(times['total'])}" for p, times in found.times.items())
        print("; ".join([f"\nfirst result, {name}: {totals}", *found.notes]), flush=True)


def _memory(results: report.Results, is_quick: bool) -> None:
    names = list(memory.PROGRAMS)
    results.footprints = footprint.measure(names[:1] if is_quick else names)
    print(f"\n{report.footprints(results.footprints)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
