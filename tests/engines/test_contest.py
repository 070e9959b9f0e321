"""Which of two forms wins: close results are looked at again, clear ones are not."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines import trials
from penstock.engines.xla import hot
from penstock.engines.xla.hot import Contest, Contests
from penstock.runtime.executor.compiled import Rival


class _Program:
    def describe(self):
        return "a program"


def _decided(contest, python, xla):
    contest.python, contest.xla = python, xla
    contest.decide(_Program())
    return contest.choice


def test_the_faster_form_wins_and_a_clear_result_stays():
    contest = Contest()
    assert _decided(contest, 300, 100) == "xla"
    assert contest.rest == 0
    contest = Contest()
    assert _decided(contest, 100, 300) == "host"
    assert contest.rest == 0


@pytest.mark.parametrize(("looks", "winner"), [((90, 110, 95), "xla"), ((110, 90, 120), "host")])
def test_the_middle_one_of_three_close_looks_stays(looks, winner):
    contest = Contest()
    contest.form = object()  # type: ignore[assignment]
    for i, xla in enumerate(looks):
        choice = _decided(contest, 100, xla)
        assert (contest.rest > 0) == (i < 2)
        if i < 2:
            contest.reopen()
            assert contest.choice is None and contest.xla == contest.python == float("inf")
    assert choice == winner


def test_a_form_that_failed_is_not_looked_at_again():
    contest = Contest()
    contest.form = object()  # type: ignore[assignment]
    _decided(contest, 100, 90)
    contest.give_up()
    contest.reopen()
    assert contest.choice == "host"


def test_a_form_that_is_a_little_behind_gets_more_turns():
    contest = Contest()
    contest.turn, contest.python, contest.xla = 16, 100, 120
    assert not contest.is_over(8)
    contest.turn = 32
    assert contest.is_over(8)
    contest.turn, contest.xla = 16, 99
    assert contest.is_over(8)


class _Part(_Program):
    TRIALS = 8


def test_forms_have_their_turns_until_one_has_won():
    contest = Contest()
    part: Any = _Part()
    for turn in range(16):
        assert contest.choice is None
        form = "xla" if turn & 2 else "host"
        contest.record(form, 90 if form == "xla" else 100, part)
    assert contest.choice == "xla" and contest.turn == 16
    contest.record("xla", 1, part)
    assert contest.ratios == [0.9]


def test_a_trial_lasts_to_the_end_of_its_own_step():
    taken: list[Any] = []
    outer = trials.opened()
    assert not outer
    trials.begin("outer", "host", lambda ns: taken.append(("outer", ns)))
    trials.begin("inner", "xla", lambda ns: taken.append(("inner", ns)))  # a function that the step calls
    trials.settle(outer, 1, True)
    trials.settle(outer, 0, True)
    assert [name for name, _ in taken] == ["inner", "outer"] and taken[0][1] <= taken[1][1] and not outer


def test_a_step_that_fails_says_nothing_about_its_time():
    taken: list[int] = []
    trials.begin("step", "host", taken.append)
    trials.settle(trials.opened(), 0, False)
    assert not taken and not trials.opened()


def test_the_first_program_comes_back_if_all_parts_have_lost():
    compiler: Any = SimpleNamespace(program="second")
    won, lost = SimpleNamespace(has_lost=False), SimpleNamespace(has_lost=True)
    first: Any = "first"
    Rival(compiler, first, [lost, won]).reconsider()
    assert compiler.program == "second"
    Rival(compiler, first, [lost, lost]).reconsider()
    assert compiler.program == "first"


def test_a_program_whose_shapes_keep_changing_leaves_the_compiler_pauses(monkeypatch):
    """Not each new shape is compiled as soon as it is there: steps would have to share the cores with the compiler all the time."""

    class Time:
        now = 10**9

    compiled = []

    class Program(_Program):
        def form_for(self, key, given):
            compiled.append(key)
            Time.now += 5  # what it takes
            return object()

    monkeypatch.setattr(hot, "time", SimpleNamespace(perf_counter_ns=lambda: Time.now))
    monkeypatch.setattr(hot, "_rested_at", 0)
    monkeypatch.setattr(hot.backend, "is_available", lambda: True)
    monkeypatch.setattr(hot.backend, "is_idle", lambda: True)
    monkeypatch.setattr(hot.backend, "in_background", lambda work: work())
    program, contests = Program(), Contests(eager=False)
    assert contests.begin(program, "first", None).form is not None
    waiting = contests.begin(program, "second", None)
    assert waiting.form is None and waiting.choice is None and "second" not in contests  # is asked for again
    Time.now += 5 * hot.PAUSE
    assert contests.begin(program, "second", None).form is not None
    assert compiled == ["first", "second"]
    monkeypatch.setattr(hot.backend, "is_idle", lambda: False)
    Time.now += 5 * hot.PAUSE
    assert contests.begin(program, "third", None).form is None
    assert Contests(eager=False).begin(program, "first", None).form is not None  # another program's first shape does not wait
    eager = Contests(eager=True)
    assert all(eager.begin(program, key, None).form is not None for key in ("a", "b"))
