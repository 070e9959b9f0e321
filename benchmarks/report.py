"""The page: what was measured as Markdown, in a fixed order, with machine, versions and date."""

from __future__ import annotations

import datetime
import math
import os
import platform
import re
from dataclasses import dataclass, field

from benchmarks.first import STEPS, First
from benchmarks.footprint import Footprint
from benchmarks.scaling import Curve
from benchmarks.table import OURS, PEERS, PLAIN, THEIRS, TITLES, Effort, Row
from benchmarks.timing import show

OPENVINO_BAR = 1.3
"""Frozen networks may take this many times OpenVINO's time."""
NOISY = 0.1
"""From this share of the machine in other hands on, a row's times are doubtful."""
WIDTH = 24
SECTIONS = ("table", "first", "memory", "scaling")
"""Parts of the page, each between two marks of its own: a run of the driver replaces those that it measured. The rest is written by hand."""


@dataclass
class Results:
    """All that one run of the driver measured."""

    rows: list[Row] = field(default_factory=list)
    firsts: list[First] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    footprints: list[Footprint] = field(default_factory=list)
    effort: Effort = field(default_factory=Effort)
    minutes: float = 0.0
    when: str = field(default_factory=lambda: datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"))


# -- one line on a terminal ----------------------------------------------------------------------------------------------


def line(row: Row, packages: list[str]) -> str:
    """A row as plain text."""
    cells = "".join(f"{show(row.median(p)):>12}" for p in packages)
    notes = [f"disturbed ({row.disturbed:.0%})"] * (row.disturbed > NOISY) + row.notes
    return f"{row.name:<38}{cells}{_times(row):>9}{_bar(row.bar):>8}  {_spread(row):<16}{'; '.join(notes)}".rstrip()


def heading(packages: list[str]) -> str:
    return f"{'workload':<38}" + "".join(f"{TITLES.get(p, p)[:11]:>12}" for p in packages) + f"{'ratio':>9}{'bar':>8}  spread"


def _times(row: Row) -> str:
    ratio = row.ratio()
    return _factor(ratio[0]) if ratio else "failed" if not row.median(OURS) else "-"


def _factor(value: float) -> str:
    return f"{value:.2f}x" if value < 9.995 else f"{value:.1f}x"


def _bar(value: float) -> str:
    return f"{value:g}x"


def _spread(row: Row) -> str:
    ratio = row.ratio()
    return f"{_factor(ratio[1])}..{_factor(ratio[2])}" if ratio else ""


# -- the page -----------------------------------------------------------------------------------------------------------


def sections(results: Results) -> dict[str, str]:
    """What was measured, by part of the page."""
    parts = {}
    if results.rows:
        parts["table"] = [_about(results), "## Workloads", _table(results), "### Reading the table", _reading(results)]
    if results.firsts:
        parts["first"] = ["## First result", _firsts(results.firsts), _when(results)]
    if results.footprints:
        parts["memory"] = ["## Peak memory", footprints(results.footprints), _when(results)]
    if results.curves:
        parts["scaling"] = ["## How cost grows", _curves(results.curves), _when(results)]
    return {name: "\n\n".join(texts) for name, texts in parts.items()}


def write(path: str, results: Results) -> None:
    """Puts what was measured into the page at `path`, between the marks of its parts; makes the page if there is none."""
    page = "# Performance\n\n" + "\n".join("\n".join(marks(name)) for name in SECTIONS) + "\n"
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            page = file.read()
    for name, text in sections(results).items():
        begin, end = marks(name)
        if begin not in page or end not in page:
            raise ValueError(f"{path} has no lines {begin} and {end} to write between")
        page = f"{page[: page.index(begin) + len(begin)]}\n\n{text}\n\n{page[page.index(end) :]}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)


def marks(name: str) -> tuple[str, str]:
    """The lines around a part of the page."""
    return f"<!-- measured, {name}: begin -->", f"<!-- measured, {name}: end -->"


def _when(results: Results) -> str:
    return f"Measured {results.when} on the same machine."


def _about(results: Results) -> str:
    versions = ", ".join(f"{TITLES.get(n, n)} {v}" for n, v in results.versions.items())
    effort = results.effort
    lines = [
        f"Measured {results.when} by `make bench`, in {results.minutes:.0f} minutes.",
        "",
        f"- Machine: {machine()}.",
        f"- Versions: {versions}, Python {platform.python_version()}.",
        f"- Times are medians of {effort.rounds} rounds of {effort.seconds:g} s, after a warm-up of {effort.settle:g} s or more.",
    ]
    shares = [row.disturbed for row in results.rows]
    if shares:
        busy = sum(share > NOISY for share in shares)
        lines.append(f"- Other processes had {sum(shares) / len(shares):.0%} of the machine during the rounds; more than {NOISY:.0%} in {busy} of {len(shares)} workloads.")
    lines += [f"- Not there: {TITLES.get(n, n)} ({why})." for n, why in results.missing.items()]
    return "\n".join(lines)


def machine() -> str:
    """CPU, cores, memory, system."""
    model, memory = platform.processor() or platform.machine(), ""
    try:
        with open("/proc/cpuinfo") as file:
            found = re.search(r"model name\s*:\s*(.+)", file.read())
            model = found.group(1).strip() if found else model
        with open("/proc/meminfo") as file:
            memory = f", {int(file.readline().split()[1]) / 2**20:.0f} GB"
    except (OSError, ValueError, IndexError):
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} cores{memory}, {platform.system()}"


def _table(results: Results) -> str:
    shown = [p for p in (OURS, PLAIN, THEIRS) if any(p in r.times for r in results.rows)]
    peers = [p for p in PEERS if any(p in r.times for r in results.rows)]
    head = ["workload", *(TITLES[p] for p in shown), "ratio", "at least", "rounds", *(TITLES[p] for p in peers)]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for group in dict.fromkeys(row.group for row in results.rows):
        lines.append(f"| **{group}** |" + " |" * (len(head) - 1))
        for row in (r for r in results.rows if r.group == group):
            ratio = row.ratio()
            times = _times(row) if ratio and ratio[0] >= row.bar else f"**{_times(row)}**"
            cells = [row.name.replace("|", "\\|"), *(show(row.median(p)) for p in shown), times, _bar(row.bar), _spread(row) or "-", *(show(row.median(p)) for p in peers)]
            lines.append("| " + " | ".join(cells) + " |")
    notes = [f"- {row.name}: {note}." for row in results.rows for note in row.notes]
    if notes:
        lines += ["", "What went wrong:", "", *notes]
    return "\n".join(lines)


def _reading(results: Results) -> str:
    """What the table says, said plainly: how many bars are reached, and by name what is behind."""
    rated = [(row, r[0]) for row in results.rows if (r := row.ratio())]
    failed = [row.name for row in results.rows if not row.ratio()]
    below = sorted(((row, r) for row, r in rated if r < row.bar), key=lambda pair: pair[1] / pair[0].bar)
    lines = ["\"ratio\" is TensorFlow's time over Penstock's, \"rounds\" the smallest and largest ratio of a single round; **bold** where the ratio is below \"at least\".", ""]
    lines.append(f"- {sum(r >= row.bar for row, r in rated)} of {len(results.rows)} workloads reach their bar.")
    if below:
        lines.append("- Below their bar: " + ", ".join(f"{row.name} ({_factor(r)} of {_bar(row.bar)})" for row, r in below) + ".")
    slower = [f"{row.name} ({_factor(r)})" for row, r in rated if r < 1]
    lines.append(f"- Slower than TensorFlow: {', '.join(slower) if slower else 'none'}.")
    if any(PLAIN in row.times for row in results.rows):
        plain = [f"{row.name} ({_factor(r[0])})" for row in results.rows if (r := row.ratio(PLAIN)) and r[0] < 1]
        lines.append(f"- Slower than TensorFlow without the `xla` extra: {', '.join(plain) if plain else 'none'}.")
    if failed:
        lines.append(f"- Not measured: {', '.join(failed)}.")
    for peer in PEERS:
        pairs = [(row.name, r[0]) for row in results.rows if (r := row.ratio(OURS, peer))]
        if not pairs:
            continue
        ahead = [p for p in pairs if p[1] >= 1]
        behind = sorted((p for p in pairs if p[1] < 1), key=lambda p: p[1])
        text = f"- {TITLES[peer]}: Penstock is at least as fast in {len(ahead)} of {len(pairs)}"
        if behind:
            text += "; behind in " + ", ".join(f"{name} ({_factor(1 / r)} its time)" for name, r in behind)
        lines.append(text + ".")
        if peer == "openvino":
            worst = [f"{row.name} ({_factor(1 / r[0])})" for row in results.rows if row.group == "Frozen networks" and (r := row.ratio(OURS, peer)) and 1 / r[0] > OPENVINO_BAR]
            lines.append(f"- More than {OPENVINO_BAR}x OpenVINO's time on a frozen network: {', '.join(worst) if worst else 'none'}.")
    return "\n".join(lines)


def _firsts(firsts: list[First]) -> str:
    head = ["fresh process", "package", "first result after", "import", "build", "first run", f"slowest of the next {STEPS}", "median of those"]
    lines = [
        "From the start of the process to the first result: interpreter, import, building the graph, first run. A compilation that held up a",
        "step would show as a slow one among the steps that follow.",
        "",
        "| " + " | ".join(head) + " |",
        "|---|---" + "|---:" * (len(head) - 2) + "|",
    ]
    for first in firsts:
        for package, times in first.times.items():
            cells = [first.name, TITLES.get(package, package), *(show(times[k]) for k in ("total", "import", "build", "run", "slowest", "median"))]
            lines.append("| " + " | ".join(cells) + " |")
    late = [f.name for f in firsts if OURS in f.times and THEIRS in f.times and f.times[OURS]["total"] > f.times[THEIRS]["total"]]
    lines += ["", f"Later than TensorFlow: {', '.join(late) if late else 'none'}."]
    lines += [f"- {first.name}: {note}." for first in firsts for note in first.notes]
    return "\n".join(lines)


def footprints(found: list[Footprint]) -> str:
    """Peak memory of training steps."""
    lines = [
        "How far the peak of building, initialising and twelve training steps lies above what was resident before, in MB. \"variables\" is the size of the",
        "weights and the optimizer's slots, which are in it once.",
        "",
        "| program | variables | Penstock | TensorFlow | ratio |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in found:
        cells = [f"{row.megabytes[p]:.0f}" if p in row.megabytes else "-" for p in (OURS, THEIRS)]
        ours, theirs = row.megabytes.get(OURS), row.megabytes.get(THEIRS)
        ratio = _factor(theirs / max(ours, 1.0)) if ours is not None and theirs is not None else "-"
        lines.append(f"| {row.name} | {row.variables:.0f} | {cells[0]} | {cells[1]} | {ratio} |")
    more = [r.name for r in found if len(r.megabytes) == 2 and r.megabytes[OURS] > r.megabytes[THEIRS]]
    lines += ["", f"More than TensorFlow: {', '.join(more) if more else 'none'}."]
    lines += [f"- {row.name}: {note}." for row in found for note in row.notes]
    return "\n".join(lines)


def _curves(curves: list[Curve]) -> str:
    parts = ["Bars are logarithmic, on one scale in each picture."]
    for axis in dict.fromkeys(c.axis for c in curves):
        parts.append(f"### {axis.capitalize()}")
        parts += [picture(c) for c in curves if c.axis == axis]
    return "\n\n".join(parts)


def picture(curve: Curve) -> str:
    """A curve as rows of bars, one row a size, with times and ratios."""
    values = [v for _, point in curve.points for v in point.values() if v > 0]
    low, high = (math.log10(min(values)), math.log10(max(values))) if values else (0.0, 1.0)
    lines = [f"{curve.title}", "", f"{curve.axis:>12}  {'Penstock':<{WIDTH + 10}}  {'TensorFlow':<{WIDTH + 10}}  {'ratio':>8}"]
    for size, point in curve.points:
        bars = "  ".join(f"{_blocks(point.get(p), low, high):<{WIDTH}}{show(point.get(p)):>10}" for p in (OURS, THEIRS))
        ratio = _factor(point[THEIRS] / point[OURS]) if OURS in point and THEIRS in point else "-"
        lines.append(f"{size:>12,}  {bars}  {ratio:>8}")
    lines += [f"{'':>12}  {note}" for note in curve.notes]
    return "```text\n" + "\n".join(lines) + "\n```"


def _blocks(value: float | None, low: float, high: float) -> str:
    """A bar of at least one block; eighths of a block at its end."""
    if not value:
        return ""
    share = (math.log10(value) - low) / (high - low) if high > low else 1.0
    eighths = 8 + round(share * 8 * (WIDTH - 1))
    full, rest = divmod(eighths, 8)
    return "█" * full + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]
