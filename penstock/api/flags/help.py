"""The text that --help shows."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any


def get_help_width() -> int:
    """The width of help texts: that of the terminal, at least 40, 80 where there is none."""
    width = shutil.get_terminal_size((80, 24)).columns
    return width if width >= 40 else 80


def text_wrap(text: str, length: int | None = None, indent: str = "", firstline_indent: str | None = None) -> str:
    """`text` broken into lines of `length`, its paragraphs kept."""
    length = get_help_width() if length is None else length
    first = indent if firstline_indent is None else firstline_indent
    if len(indent) >= length or len(first) >= length:
        raise ValueError("Length of indent exceeds length")
    result: list[str] = []
    for paragraph in (p.strip() for p in text.splitlines()):
        lines = textwrap.wrap(paragraph, length, initial_indent=first, subsequent_indent=indent) if paragraph else [""]
        result += lines
        first = indent
    return "\n".join(result)


def doc_to_help(doc: str) -> str:
    """A docstring as help text: its lines joined into paragraphs."""
    paragraphs = textwrap.dedent(doc).strip().split("\n\n")
    return "\n\n".join(" ".join(line.strip() for line in p.splitlines()) for p in paragraphs)


def flag_help(flag: Any) -> str:
    """The lines of one flag."""
    head = f"-{flag.short_name}," if flag.short_name else ""
    head += f"--[no]{flag.name}:" if flag.boolean else f"--{flag.name}:"
    lines = [text_wrap(f"{head} {flag.help}", indent="    ", firstline_indent="  ")]
    if flag.default_as_str is not None:
        lines.append(f"    (default: {flag.default_as_str})")
    if flag.parser.syntactic_help:
        lines.append(f"    ({flag.parser.syntactic_help})")
    return "\n".join(lines)
