"""The survey of single ops: its cases run, and what is slower is listed. Times themselves are not tested."""

import numpy as np
import pytest

import penstock as tf
from benchmarks import op_survey, worker
from benchmarks.op_cases import strings
from benchmarks.table import OURS, THEIRS, Effort, Row

SMALL = [name for name in strings.CASES if not name.endswith("000")]


@pytest.mark.parametrize("name", SMALL)
def test_a_case_runs(name):
    with tf.Graph().as_default():
        step = strings.CASES[name](tf)
        assert worker.digest(step()) == worker.digest(step())


def test_every_case_has_its_module():
    found = op_survey.cases()
    assert set(strings.CASES) <= set(found)
    assert op_survey.cases(["strings"]) == dict.fromkeys(strings.CASES, "benchmarks.op_cases.strings")


def test_what_is_slower_is_listed_again(monkeypatch, capsys):
    seconds = {"substr, 10": 2.0, "substr, 10,000": 0.5}

    def measure(pool, row, packages, effort, module):
        assert isinstance(effort, Effort) and module == "benchmarks.op_cases.strings"
        row.times = {OURS: [1.0] * 3, THEIRS: [seconds[row.name]] * 3}
        return row

    monkeypatch.setattr(op_survey.table, "measure", measure)
    assert op_survey.main(["--groups", "strings", "--only", "substr, "]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[-4:] == ["0.50", "0.50", "to", "0.50"]
    assert lines[-2:] == ["2 cases, 1 below 1", "    0.50  substr, 10,000"]


def test_a_case_that_fails_is_noted(monkeypatch, capsys):
    def measure(pool, row, packages, effort, module):
        row.notes.append("penstock: ValueError: no")
        return row

    monkeypatch.setattr(op_survey.table, "measure", measure)
    ((row, ratio),) = op_survey.survey({"some": "benchmarks.nothing"}, Effort())
    assert isinstance(row, Row) and ratio is None
    assert "ValueError: no" in capsys.readouterr().out


def test_digests():
    words = np.array([b"a", b"b"], object)
    assert worker.digest(words) == worker.digest([words]) == worker.digest({"x": words}) != worker.digest(words[::-1])
    assert worker.digest([b"a", (1.5, np.array([-2, 1]))])[2:] == [1.5, 1.5, 1.5, 2.0]
    assert worker.digest(np.array([3 + 4j])) == [5.0, 5.0]
    assert worker.digest([None, np.zeros(0)]) == []
