"""The table of public names: `docs/api.md`, made by `python -m penstock.tools.apitable` in a checkout and checked fresh by a test.

What Penstock has comes from the table of exports. What it lacks comes from `conformance/api_absent.txt`, which the conformance suite
compares with an installed TensorFlow.
"""

from __future__ import annotations

import pathlib
import sys
import types
from collections.abc import Iterable


def public_names() -> list[str]:
    """Every public name, those of modules that are public as they stand included."""
    from penstock import dtypes, errors
    from penstock.api.export import resolve, table

    found = set()
    for name in table():
        value = resolve(name)
        if isinstance(value, types.ModuleType):
            if value.__name__ == "penstock":
                continue  # tf.compat.v1 is the package itself
            found.update(f"{name}.{n}" for n, v in vars(value).items() if not n.startswith("_") and not isinstance(v, types.ModuleType))
        else:
            found.add(name)
    found.update(f"dtypes.{n}" for n, v in vars(dtypes).items() if isinstance(v, dtypes.DType) or n in ("DType", "QUANTIZED_DTYPES", "as_dtype"))
    found.update(f"errors.{n}" for n, v in vars(errors).items() if not n.startswith("_") and (n.isupper() or getattr(v, "__module__", "") == errors.__name__))
    return sorted(found)


def absent_names(root: pathlib.Path) -> list[str]:
    """The names of tf.compat.v1 that are not here."""
    lines = (root / "conformance" / "api_absent.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def as_markdown(present: Iterable[str], absent: Iterable[str]) -> str:
    """The page docs/api.md."""
    here, missing = _by_module(present), _by_module(absent)
    modules = sorted({*here, *missing})
    have, total = sum(map(len, here.values())), sum(map(len, here.values())) + sum(map(len, missing.values()))
    lines = [
        "# Public names",
        "",
        f"{have} public names; {total - have} names of `tf.compat.v1` are not here (Keras, TPU and TF2's own packages aside). Signatures of what is in both are",
        "compared with TensorFlow's by `conformance/test_api.py`. This page is made by `python -m penstock.tools.apitable`.",
        "",
        "| module | here | not here |",
        "|---|---|---|",
    ]
    lines += [f"| `{_title(m)}` | {len(here.get(m, ()))} | {len(missing.get(m, ())) or ''} |" for m in modules]
    for module in modules:
        lines += ["", f"## {_title(module)}", ""]
        if here.get(module):
            lines += [_wrapped(here[module])]
        if missing.get(module):
            lines += [*([""] if here.get(module) else []), "Not here: " + _wrapped(missing[module])]
    return "\n".join(lines) + "\n"


def _by_module(names: Iterable[str]) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for name in sorted(names, key=str.lower):
        module, _, last = name.rpartition(".")
        result.setdefault(module, []).append(last)
    return result


def _title(module: str) -> str:
    return f"tf.{module}" if module else "tf"


def _wrapped(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main() -> None:
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    sys.stdout.write(as_markdown(public_names(), absent_names(root)))


if __name__ == "__main__":
    main()
