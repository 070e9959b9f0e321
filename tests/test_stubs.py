"""The stub files and the table of public names say what the package really has."""

import importlib.util
import pathlib
import re

import penstock as tf

ROOT = pathlib.Path(__file__).resolve().parent.parent


def generator():
    spec = importlib.util.spec_from_file_location("gen_stubs", ROOT / "scripts" / "gen_stubs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stubs_are_fresh():
    assert generator().stale() == [], "run: python scripts/gen_stubs.py"


def test_every_line_of_a_stub_holds():
    """What a stub imports is there, and is the object that the public name stands for."""
    checked = 0
    for path in generator().stubs():
        module = "" if path.name == "__init__.pyi" and path.parent.name == "penstock" else ".".join(path.relative_to(ROOT / "penstock").with_suffix("").parts).removesuffix(".__init__")
        if module == "raw_ops":
            continue
        holder = tf
        for part in module.split(".") if module else ():
            holder = getattr(holder, part)
        for where, what, name in re.findall(r"^from ([\w.]+) import (\w+) as (\w+)$", path.read_text(), re.M):
            source = importlib.import_module(where)
            value = getattr(source, what, None)
            if value is None:
                value = importlib.import_module(f"{where}.{what}")
            assert getattr(holder, name) is value, f"{path.name}: {name}"
            checked += 1
    assert checked > 1000


def test_the_table_of_names_is_fresh():
    from penstock.tools.apitable import absent_names, as_markdown, public_names

    present, absent = public_names(), absent_names(ROOT)
    assert not set(present) & set(absent), "these are here now; take them out of conformance/api_absent.txt"
    assert (ROOT / "docs" / "api.md").read_text() == as_markdown(present, absent), "run: python -m penstock.tools.apitable > docs/api.md"
