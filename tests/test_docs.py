"""The documentation is true: the journey runs, the layout names every package, the README's example works."""

import doctest
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent


def test_the_journey_runs():
    results = doctest.testfile(str(ROOT / "docs" / "journey.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 20
    assert results.failed == 0


def test_the_layout_names_every_package():
    text = (ROOT / "docs" / "layout.md").read_text()
    for package in sorted(p.parent for p in (ROOT / "penstock").glob("*/__init__.py")):
        assert f"`penstock/{package.name}/`" in text, package.name
    for module in sorted((ROOT / "penstock").glob("*.py")):
        assert module.name in text, module.name


def test_the_readmes_example_runs(capsys):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    exec(compile(code, "README.md", "exec"), {})
    assert float(capsys.readouterr().out) < 0.1


def test_linked_files_exist():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([\w./-]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_table_of_ops_is_fresh():
    from penstock.tools.optable import as_markdown

    assert (ROOT / "docs" / "ops.md").read_text() == as_markdown(), "run: penstock ops --markdown > docs/ops.md"
