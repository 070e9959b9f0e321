"""Single ops as steps of a session, Penstock against TensorFlow: which of them are slower?

    python -m benchmarks.op_survey                              every case, some twenty minutes
    python -m benchmarks.op_survey --only base64 --rounds 3     those whose name contains a text
    python -m benchmarks.op_survey --groups strings,arrays      those of some files

Cases are in `op_cases/`: `CASES` of a file there maps a name to `build(tf) -> step()`. Their data come from variables or feeds, so that nothing is
folded into constants. The packages take turns, each in a process of its own, as in `python -m benchmarks`.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

from benchmarks import op_cases, table, timing
from benchmarks.table import OURS, PLAIN, THEIRS, Effort, Row
from benchmarks.workers import Pool


def cases(groups: list[str] | None = None) -> dict[str, str]:
    """The module of each case by its name; of some groups, or of all."""
    found: dict[str, str] = {}
    for group in sorted(m.name for m in pkgutil.iter_modules(op_cases.__path__)) if groups is None else groups:
        module = f"{op_cases.__name__}.{group}"
        for name in importlib.import_module(module).CASES:
            if name in found:
                raise ValueError(f"two cases are named {name!r}")
            found[name] = module
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name contains one of these texts")
    parser.add_argument(
        "--groups",
        type=lambda text: text.split(","),
        help="the cases of some files of op_cases/, by their names",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="time per package and round")
    parser.add_argument(
        "--bar", type=float, default=1.0, help="the ratio below which a case is listed again at the end"
    )
    parser.add_argument("--plain", action="store_true", help="Penstock without XLA")
    options = parser.parse_args(arguments)
    effort = Effort(rounds=options.rounds, seconds=options.seconds, settle=4 * options.seconds, limit=10.0)
    chosen = {name: module for name, module in cases(options.groups).items() if any(text in name for text in options.only)}
    rows = survey(chosen, effort, PLAIN if options.plain else OURS)
    slow = sorted((ratio[0], row.name) for row, ratio in rows if ratio is not None and ratio[0] < options.bar)
    print(f"\n{len(rows)} cases, {len(slow)} below {options.bar:g}")
    for ratio, name in slow:
        print(f"{ratio:8.2f}  {name}")
    return 0


def survey(
    chosen: dict[str, str], effort: Effort, ours: str = OURS
) -> list[tuple[Row, tuple[float, float, float] | None]]:
    """Measures and prints a line for each case: their time over ours, with the smallest and largest of a round."""
    pool = Pool(table.ENVIRONMENTS)
    rows = []
    print(f"{'case':<52}{'Penstock':>10}{'TensorFlow':>12}{'ratio':>8}", flush=True)
    try:
        for name, module in chosen.items():
            row = table.measure(pool, Row(name), [ours, THEIRS], effort, module=module)
            ratio = row.ratio(ours)
            shown = "-" if ratio is None else f"{ratio[0]:.2f}"
            spread = "" if ratio is None else f"  {ratio[1]:.2f} to {ratio[2]:.2f}"
            notes = "".join(f"  ({note})" for note in row.notes)
            print(
                f"{name:<52}{timing.show(row.median(ours)):>10}{timing.show(row.median(THEIRS)):>12}{shown:>8}{spread}{notes}",
                flush=True,
            )
            rows.append((row, ratio))
    finally:
        pool.close()
    return rows


if __name__ == "__main__":
    sys.exit(main())
