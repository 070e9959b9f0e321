"""RE2 patterns, which TF's regular expressions are, with Python's `re`.

The pattern is rewritten: POSIX and Unicode classes are spelled out, `$` and `\\z` mean the very end, `\\s` leaves out the
vertical tab, flags in the middle become groups. What RE2 does not have (look-around, back-references) is refused as RE2
refuses it. Strings are matched as text; bytes that are no UTF-8 stand for themselves.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from typing import Any, NoReturn

import numpy as np

from penstock.errors import InvalidArgumentError, UnimplementedError
from penstock.ops.kernels.automaton import Automaton, Letters, automaton, letters
from penstock.ops.kernels.runs import replaced
from penstock.ops.native.following import last_states

if sys.version_info >= (3, 11):
    from re import _parser  # type: ignore[attr-defined]
else:
    import sre_parse as _parser

_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ", "upper": "A-Z",
    "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_PERL = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}


_REPEAT = re.compile(r"(?:[*+?]|\{(\d+)(,(\d*))?\})\??")
_LINE_START, _LINE_END = "(?:(?<=\\n)|\\A)", "(?=\\n|\\Z)"
_JOINED_ANCHORS = {"\\A": r"(?:(?<=\x00)|\A)", "\\Z": r"(?=\x00|\Z)"}
_NO_BOUNDARY = "(?!\\b)"  # which, other than Python's \\B, an empty string has
_ANCHORS = {"\\A", "\\Z", "\\b", _NO_BOUNDARY, _LINE_START, _LINE_END, *_JOINED_ANCHORS.values()}


class _Bad(Exception):
    """RE2's complaint about a pattern."""


def _bad(what: str, where: str) -> NoReturn:
    raise _Bad(f"{what}: {where}")


@functools.lru_cache(256)
def _category(name: str, negate: bool) -> str:
    """The inside of a class for a Unicode category such as L, Lu, N."""
    import unicodedata

    if name == "Any":
        return r"\U00000000-\U0010ffff"
    if len(name) > 2 or name[0] not in "CLMNPSZ":
        raise UnimplementedError(f"Unicode script {name!r} in a regular expression; only general categories such as \\pL or \\p{{Lu}} are known")
    ranges: list[str] = []
    start = -1
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)).startswith(name) != negate
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            ranges.append(f"\\U{start:08x}" if code - start == 1 else f"\\U{start:08x}-\\U{code - 1:08x}")
            start = -1
    return "".join(ranges)


class _OneByOne(Exception):
    """Strings cannot be searched for a pattern all at once."""


class _Translator:
    """Reads an RE2 pattern from left to right and writes the same thing for `re`.

    If it is `joined`, for a text of many strings with zero bytes between them: nothing matches these, and each string begins and ends there.
    """

    def __init__(self, pattern: str, joined: bool = False) -> None:
        self.joined = joined
        self.text = pattern
        self._keep_out("\0" in pattern)
        self.at = 0
        self.out: list[str] = []
        self.open: list[tuple[list[str], bool, bool]] = []  # per open group: what to restore when it closes
        self.flags: list[str] = []  # flag groups opened inside of the current group, e.g. "(?i:"
        self.multiline = False
        self.swapped = False

    def run(self) -> str:
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == "\\":
                self.out.append(self._escape(False))
            elif c == "[":
                self.out.append(self._class())
            elif c == "(":
                self._open_group()
            elif c == ")":
                self._close_group()
            elif c == "|":
                # Flags hold on the other side as well.
                self.at += 1
                self.out.append(")" * len(self.flags) + "|" + "".join(self.flags))
            elif c == "$":
                self.at += 1
                self.out.append(_LINE_END if self.multiline else self._anchor("\\Z"))
            elif c == "^":
                self.at += 1
                self.out.append(_LINE_START if self.multiline else self._anchor("\\A"))
            elif c in "*+?" or (c == "{" and re.match(r"\{\d+(,\d*)?\}", self.text[self.at :])):
                self._repeat()
            else:
                self.at += 1
                self.out.append(self._dot() if c == "." else "\\{" if c == "{" else "\\}" if c == "}" else c)
        if self.open:
            _bad("missing )", self.text)
        return "".join(self.out) + ")" * len(self.flags)

    def _keep_out(self, has_zero: bool) -> None:
        """What matches the zero byte has no place in a joined pattern."""
        if self.joined and has_zero:
            raise _OneByOne

    def _anchor(self, plain: str) -> str:
        return _JOINED_ANCHORS[plain] if self.joined else plain

    def _dot(self) -> str:
        return r"[^\n\x00]" if self.joined else "."

    def _repeat(self) -> None:
        match = _REPEAT.match(self.text, self.at)
        assert match is not None
        before = self.out[-1] if self.out else "("
        if before[-1] in "(|:" and before[0] in "()|":
            _bad("no argument for repetition operator", match.group())
        for bound in (match.group(1), match.group(3)):
            if bound and int(bound) > 1000:
                _bad("invalid repetition size", match.group())
        self.at = match.end()
        following = _REPEAT.match(self.text, self.at)
        if following is not None:
            _bad("bad repetition operator", self.text[match.start() : following.end()])
        if before in _ANCHORS:
            self.out[-1] = f"(?:{before})"  # Python does not repeat anchors by themselves
        lazy = match.group().endswith("?") and len(match.group()) > 1
        operator = match.group()[:-1] if lazy else match.group()
        self.out.append(operator + ("?" if lazy != self.swapped else ""))

    def _open_group(self) -> None:
        rest = self.text[self.at :]
        self.open.append((self.flags, self.multiline, self.swapped))
        if not rest.startswith("(?"):
            self.at += 1
            self.flags = []
            self.out.append("(")
            return
        named = re.match(r"\(\?P?<(\w+)>", rest)
        if named:
            self.at += named.end()
            self.flags = []
            self.out.append("(")  # rewrites know numbers only
            return
        flags = re.match(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])", rest)
        if flags is None:
            _bad("invalid perl operator", rest[:4] if rest.startswith(("(?<=", "(?<!")) else rest[:3])
        self.at += flags.end()
        on, off, end = flags.groups()
        self._keep_out("m" in on or "s" in on)  # lines, and a dot that matches all
        off = off or ""
        keep = "".join(f for f in on if f in "is")
        drop = "".join(f for f in off if f in "is")
        opening = f"(?{keep}{'-' + drop if drop else ''}:"
        if end == ")":
            # The flags hold up to the end of the group around: one more group that is closed with it.
            self.open.pop()
            self.flags = [*self.flags, opening]
        else:
            self.flags = []
        self.multiline = ("m" in on) or (self.multiline and "m" not in off)
        self.swapped = ("U" in on) or (self.swapped and "U" not in off)
        self.out.append(opening)

    def _close_group(self) -> None:
        if not self.open:
            _bad("unexpected )", self.text)
        self.at += 1
        self.out.append(")" * len(self.flags) + ")")
        self.flags, self.multiline, self.swapped = self.open.pop()

    def _escape(self, in_class: bool) -> str:
        rest = self.text[self.at :]
        if len(rest) < 2:
            raise _Bad("trailing \\")
        c = rest[1]
        if c in _PERL or c.lower() in _PERL:
            self.at += 2
            if self.joined and c.isupper():
                self._keep_out(in_class)
                return f"[^{_PERL[c.lower()]}\\x00]"
            return self._set(_PERL[c.lower()], c.isupper(), in_class, rest[:2])
        if c in "pP":
            found = re.match(r"\\[pP](?:\{(\^?)(\w+)\}|(\w))", rest)
            if found is None:
                _bad("invalid character class range", rest[:2])
            self.at += found.end()
            negate = (c == "P") != bool(found.group(1))
            inside = _category(found.group(2) or found.group(3), negate)
            self._keep_out(re.match(f"[{inside}]", "\0") is not None)
            return inside if in_class else f"[{inside}]"
        if c == "x":
            found = re.match(r"\\x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))", rest)
            if found is None:
                _bad("invalid escape sequence", rest[:2])
            self.at += found.end()
            code = int(found.group(1) or found.group(2), 16)
            self._keep_out(code == 0)
            return f"\\U{code:08x}"
        if c == "0" or re.match(r"\\[1-7][0-7]{2}", rest):
            found = re.match(r"\\([0-7]{1,3})", rest)
            assert found is not None
            self.at += found.end()
            self._keep_out(int(found.group(1), 8) == 0)
            return f"\\x{int(found.group(1), 8):02x}"
        if c == "Q" and not in_class:
            literal, _, _ = rest[2:].partition("\\E")
            self.at += 2 + len(literal) + (2 if "\\E" in rest else 0)
            return re.escape(literal)
        if c in "aftnrv" or (c.isascii() and not c.isalnum()):
            self.at += 2
            return rest[:2] if c in "aftnrv" else re.escape(c)
        if not in_class and c in "AbBzC":
            self.at += 2
            self._keep_out(c in "BC")
            plain = {"A": "\\A", "b": "\\b", "B": _NO_BOUNDARY, "z": "\\Z", "C": "(?s:.)"}[c]
            return self._anchor(plain) if c in "Az" else plain
        _bad("invalid escape sequence", rest[:2])

    @staticmethod
    def _set(inside: str, negate: bool, in_class: bool, shown: str) -> str:
        if not in_class:
            return f"[{'^' if negate else ''}{inside}]"
        if not negate:
            return inside
        # Python has no nested classes; its own ASCII classes serve for the negated ones.
        return shown if shown != "\\S" else r"\S\v"

    def _class(self) -> str:
        start = self.at
        self.at += 1
        parts = ["["]
        if self.text.startswith("^", self.at):
            parts.append("^")
            self.at += 1
        first = True
        while True:
            if self.at >= len(self.text):
                _bad("missing ]", self.text[start:])
            c = self.text[self.at]
            if c == "]" and not first:
                self.at += 1
                if self.joined and parts[1] == "^":
                    parts.insert(2, r"\x00")
                return "".join(parts) + "]"
            first = False
            posix = re.compile(r"\[:(\^?)(\w+):\]").match(self.text, self.at)
            if posix:
                if posix.group(2) not in _POSIX:
                    _bad("invalid character class range", posix.group())
                self.at = posix.end()
                inside = _POSIX[posix.group(2)]
                self._keep_out(bool(posix.group(1)) != (re.match(f"[{inside}]", "\0") is not None))
                parts.append(inside if not posix.group(1) else _complement(inside))
            elif c == "\\":
                parts.append(self._escape(True))
            else:
                self.at += 1
                parts.append("\\" + c if c in "[]&~|" else c)


def _complement(inside: str) -> str:
    """The inside of a class for everything else (POSIX classes are ASCII only)."""
    member = re.compile(f"[{inside}]")
    others = [c for c in range(128) if not member.match(chr(c))]
    return "".join(f"\\x{c:02x}" for c in others) + r"\x80-\U0010ffff"


@functools.lru_cache(512)
def compile_re2(pattern: bytes) -> re.Pattern[str]:
    """The compiled pattern; InvalidArgumentError in TF's words if RE2 would refuse it."""
    text = pattern.decode("utf-8", "surrogateescape")
    try:
        return re.compile(_Translator(text).run(), re.ASCII)
    except _Bad as bad:
        raise InvalidArgumentError(f"Invalid pattern: {text}, error: {bad}") from None
    except (re.error, OverflowError) as error:
        backwards = re.match(r"bad character range (.*) at position", str(error))
        shown = f"invalid character class range: {backwards.group(1)}" if backwards else error
        raise InvalidArgumentError(f"Invalid pattern: {text}, error: {shown}") from None


@functools.lru_cache(512)
def _compile_joined(pattern: bytes) -> re.Pattern[str] | None:
    """The pattern, as a group of its own, for many strings at once; None if there is no such form, or RE2 has rules of its own because it may match nothing at all."""
    try:
        text = _Translator(pattern.decode("utf-8", "surrogateescape"), joined=True).run()
        compiled = re.compile(f"({text})", re.ASCII)
        least, _ = _parser.parse(text, re.ASCII).getwidth()
    except (_OneByOne, _Bad, re.error, OverflowError):
        return None
    return compiled if least else None


def decoded(values: list[bytes]) -> list[str]:
    """The strings as text; bytes that are no UTF-8 stand for themselves."""
    texts = b"\0".join(values).decode("utf-8", "surrogateescape").split("\0")
    return texts if len(texts) == len(values) else [v.decode("utf-8", "surrogateescape") for v in values]


def _replace_joined(pattern: re.Pattern[str], text: str, parts: list[Any]) -> str:
    if not any(isinstance(p, int) for p in parts):
        return pattern.sub("".join(parts).replace("\\", "\\\\"), text)
    # What lies between the matches, and the groups of each: `re` finds these at once, but puts groups into a template one by one.
    found = pattern.split(text)
    step = pattern.groups + 1
    columns: list[Any] = [found[:-1:step]]
    for part in parts:
        if isinstance(part, int):
            group = found[1 + part :: step]
            columns.append([g or "" for g in group] if None in group else group)
        else:
            columns.append(itertools.repeat(part))
    return "".join(itertools.chain.from_iterable(zip(*columns))) + found[-1]


@functools.lru_cache(128)
def _one_kind(pattern: bytes) -> Letters | None:
    compiled = compile_re2(pattern)
    return letters(compiled.pattern, compiled.flags)


def replace_in(strings: np.ndarray, pattern: bytes, rewrite: bytes, everywhere: bool) -> np.ndarray | None:
    """`replace` in each string of an array, where that is quicker for many: for patterns that are a kind of letters, or that few strings have. None
    otherwise."""
    kind, (parts, largest) = _one_kind(pattern), rewrite_parts(rewrite)
    if not everywhere and not _is_good(rewrite):
        return strings
    if kind is not None and largest <= compile_re2(pattern).groups and all(isinstance(p, str) for p in parts):
        return replaced(strings, kind, "".join(parts).encode("utf-8", "surrogateescape"), everywhere)
    states = _search_automaton(pattern)
    ends = None if states is None else last_states(np.ascontiguousarray(strings), states.table)
    if states is None or ends is None:
        return None
    changed = np.append(states.accepts, np.ones(256 - len(states.accepts), bool))[ends]
    if 2 * np.count_nonzero(changed) > strings.size:
        return None
    result = strings.copy()
    result[changed] = replace_all(pattern, strings[changed].tolist(), rewrite, everywhere)
    return result


@functools.lru_cache(128)
def _search_automaton(pattern: bytes) -> Automaton | None:
    """The automaton of strings that have a match."""
    compiled = compile_re2(pattern)
    return automaton(f"(?s:.)*(?:{compiled.pattern})(?s:.)*", compiled.flags)


def replace_all(pattern: bytes, values: list[bytes], rewrite: bytes, everywhere: bool) -> list[bytes]:
    """`replace` in each of the strings, in all at once where that is the same."""
    compiled, parts = compile_re2(pattern), rewrite_parts(rewrite)
    if not everywhere and not _is_good(rewrite):
        return values
    joined = _compile_joined(pattern) if everywhere and len(values) > 1 else None
    if joined is not None and parts[1] <= compiled.groups and "\0" not in parts[0]:
        text = b"\0".join(values)
        if text.count(b"\0") == len(values) - 1:
            return _replace_joined(joined, text.decode("utf-8", "surrogateescape"), parts[0]).encode("utf-8", "surrogateescape").split(b"\0")
    return [replace(compiled, v, parts, everywhere) for v in values]


@functools.lru_cache(128)
def _automaton(pattern: bytes) -> Automaton | None:
    compiled = compile_re2(pattern)
    return automaton(compiled.pattern, compiled.flags)


def full_matches(pattern: bytes, strings: np.ndarray) -> np.ndarray:
    """Which of the strings of an array match as a whole."""
    match = compile_re2(pattern).fullmatch
    states = _automaton(pattern)
    ends = None if states is None else last_states(np.ascontiguousarray(strings), states.table)
    if states is None or ends is None:
        return np.array([match(s) is not None for s in decoded(strings.ravel().tolist())], bool).reshape(strings.shape)
    result = np.append(states.accepts, np.zeros(256 - len(states.accepts), bool))[ends]
    for i in np.flatnonzero(ends.ravel() == 255).tolist():
        result.reshape(-1)[i] = match(strings.ravel().item(i).decode("utf-8", "surrogateescape")) is not None
    return result


def full_match(pattern: re.Pattern[str], value: bytes) -> bool:
    return pattern.fullmatch(value.decode("utf-8", "surrogateescape")) is not None


def _is_good(rewrite: bytes) -> bool:
    """Whether every backslash has a digit or another one behind it. With a bad one RE2 replaces nothing, unless it replaces everything."""
    return re.fullmatch(rb"(?s:[^\\]|\\[0-9\\])*", rewrite) is not None


def rewrite_parts(rewrite: bytes) -> tuple[list[Any], int]:
    """A replacement as texts and group numbers, up to the first mistake, and the largest group number."""
    text = rewrite.decode("utf-8", "surrogateescape")
    parts: list[Any] = []
    i = 0
    while i < len(text):
        if text[i] != "\\":
            parts.append(text[i])
        else:
            i += 1
            following = text[i : i + 1]
            if following.isdigit():
                parts.append(int(following))
            elif following == "\\":
                parts.append("\\")
            else:
                break
        i += 1
    largest = max((int(d) for d in re.findall(r"\\(?:\\|(\d))", text) if d), default=0)
    return parts, largest


def replace(pattern: re.Pattern[str], value: bytes, rewrite: tuple[list[Any], int], everywhere: bool) -> bytes:
    """`value` with the first or every match replaced, by RE2's rules for empty matches."""
    parts, largest = rewrite
    if largest > pattern.groups:
        return value
    text = value.decode("utf-8", "surrogateescape")
    out: list[str] = []
    at, last = 0, -1
    while at <= len(text):
        match = pattern.search(text, at)
        if match is None:
            break
        out.append(text[at : match.start()])
        if match.end() == match.start() == last:
            # No empty match right behind another match.
            out.append(text[last : last + 1])
            at = last + 1
            last = -1
            continue
        out += [p if isinstance(p, str) else (match.group(p) or "") for p in parts]
        at = last = match.end()
        if not everywhere:
            break
    out.append(text[at:])
    return "".join(out).encode("utf-8", "surrogateescape")
