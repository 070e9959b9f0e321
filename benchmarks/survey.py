"""Whole programs, many of them small: which of them are slower than TensorFlow?

    python -m benchmarks.survey                            all of them, a quarter of an hour
    python -m benchmarks.survey --only "RNN" --rounds 5    some, with more care

The table of `python -m benchmarks` has a bar for every row; here the bar is 1. Programs are timed in the same way, by the same workers.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks import report, table
from benchmarks.programs import agents, images, inputs, large, learning, networks, numerics, structures, texts, vision  # noqa: F401 (each registers its programs)
from benchmarks.programs.common import LOOPS, PROGRAMS
from benchmarks.table import OURS, PLAIN, THEIRS, Effort, Row
from benchmarks.workers import Pool

WORKLOADS = PROGRAMS
"""By this name the workers look for what they shall run."""


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    effort = Effort(rounds=options.rounds, seconds=options.seconds)
    pool = Pool(table.ENVIRONMENTS)
    rows = []
    try:
        print(heading(), flush=True)
        for name in (n for n in WORKLOADS if any(text in n for text in options.only)):
            rows.append(table.measure(pool, Row(name), [OURS, THEIRS, PLAIN], effort, module="benchmarks.survey"))
            print(line(rows[-1]), flush=True)
    finally:
        pool.close()
    print("\n" + "\n".join(verdict(rows)))
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="programs whose name contains one of these")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="time per package and round")
    return parser.parse_args(arguments)


def heading() -> str:
    return f"{'program':<38}{'Penstock':>11}{'TensorFlow':>12}{'ratio':>9}{'without XLA':>13}{'ratio':>9}"


def line(row: Row) -> str:
    """Name, our time, TensorFlow's, how many times faster, and the same without XLA."""
    times = {package: report.show(row.median(package)) for package in (OURS, THEIRS, PLAIN)}
    with_xla, without = (_ratio(row, package) for package in (OURS, PLAIN))
    notes = [f"disturbed ({row.disturbed:.0%})"] * (row.disturbed > report.NOISY) + row.notes
    return f"{row.name:<38}{times[OURS]:>11}{times[THEIRS]:>12}{with_xla:>9}{times[PLAIN]:>13}{without:>9}  {'; '.join(notes)}".rstrip()


def _ratio(row: Row, package: str) -> str:
    ratio = row.ratio(package)
    return f"{ratio[0]:.2f}x" if ratio else "-"


def verdict(rows: list[Row]) -> list[str]:
    """Who is slower than TensorFlow, the slowest first, and who was not measured."""

    def behind(package: str, leave_out: set[str]) -> str:
        ratios = {row.name: row.ratio(package) for row in rows if row.name not in leave_out}
        slow = sorted((r[0], name) for name, r in ratios.items() if r is not None and r[0] < 1.0)
        return ", ".join(f"{name} ({ratio:.2f}x)" for ratio, name in slow) or "none"

    lost = ", ".join(row.name for row in rows if row.ratio() is None) or "none"
    differ = ", ".join(row.name for row in rows if any("differ" in note for note in row.notes)) or "none"
    return [
        f"Slower than TensorFlow: {behind(OURS, set())}.",
        f"Slower than TensorFlow without XLA, loops left out: {behind(PLAIN, LOOPS)}.",
        f"Not measured: {lost}.",
        f"Results differ: {differ}.",
    ]


if __name__ == "__main__":
    sys.exit(main())
