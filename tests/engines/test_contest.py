"""Which of two forms wins: close results are looked at again, clear ones are not."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines.xla import hot
from penstock.engines.xla.hot import Contest, Contests
from penstock.runtime.executor.compiled import Final


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


@pytest.mark.parametrize(("shape", "told"), [((0, 3), 0), ((2, 3), 1)])
def test_that_nothing_is_not_compiled_is_not_worth_a_word(monkeypatch, caplog, shape, told):
    monkeypatch.setattr(hot.spec, "enabled", False)
    program = SimpleNamespace(describe=_Program().describe, form_for=lambda *_: 1 // 0)
    contest = Contest()
    contest.compile(program, "key", hot.Given([(None, shape)], [], [], ()))  # type: ignore[arg-type]
    assert contest.choice == "host" and len(caplog.records) == told


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


class _Thing:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def _final(first_takes: int, second_takes: int, parts: list[Any]) -> tuple[Any, Any, Any]:
    """Steps of what is in place; which program that is in the end."""
    first, second = (_Thing(final=None, takes=n) for n in (first_takes, second_takes))
    compiler: Any = _Thing(program=second)
    second.final = Final(compiler, first, second, parts)  # type: ignore[arg-type]
    for i in range(100):
        program = compiler.program
        if program.final is not None:
            program.final.after(program, program.takes + i % 3)
    return compiler.program, first, second


@pytest.mark.parametrize(("first_takes", "second_takes"), [(100, 90), (90, 100)])
def test_whole_steps_decide_between_code_with_and_without_parts_for_xla(first_takes, second_takes):
    winner, first, second = _final(first_takes, second_takes, [_Thing(is_settled=True)])
    assert winner is (second if second_takes < first_takes else first)
    assert first.final is None and second.final is None


def test_there_is_no_final_while_parts_are_on_trial():
    winner, _, second = _final(1, 100, [_Thing(is_settled=True), _Thing(is_settled=False)])
    assert winner is second


@pytest.mark.parametrize("standing", [(3, 28), None])
def test_parts_on_trial_of_which_nothing_comes_go_in_the_end(monkeypatch, standing):
    monkeypatch.setattr(Final, "LONG", 40)
    winner, first, second = _final(1, 100, [_Thing(is_settled=True, standing=(1, 16)), _Thing(is_settled=False, standing=standing)])
    assert winner is (second if standing is None else first)


@pytest.mark.parametrize(
    ("choices", "standing"),
    [(("host", None), (2, 14)), (("host", "xla"), None), ((None,), None), ((), (0, 0))],
    ids=["lost and on trial", "won one", "no result yet", "never called"],
)
def test_a_part_stands_still_unless_xla_won_or_may_win(monkeypatch, choices, standing):
    monkeypatch.setattr(hot, "_rested_at", 0)
    program = hot.HotProgram.__new__(hot.HotProgram)
    program.contests = Contests(eager=False)
    for i, choice in enumerate(choices):
        contest = program.contests[i] = Contest()
        contest.form, contest.choice, contest.turn = object(), choice, 7  # type: ignore[assignment]
    assert program.standing == standing


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
    given = hot.Given([], [], [], ())
    assert contests.begin(program, "first", given).form is not None
    waiting = contests.begin(program, "second", given)
    assert waiting.form is None and waiting.choice is None and "second" not in contests  # is asked for again
    Time.now += 5 * hot.PAUSE
    assert contests.begin(program, "second", given).form is not None
    assert compiled == ["first", "second"]
    monkeypatch.setattr(hot.backend, "is_idle", lambda: False)
    Time.now += 5 * hot.PAUSE
    assert contests.begin(program, "third", given).form is None
    assert Contests(eager=False).begin(program, "first", given).form is not None  # another program's first shape does not wait
    eager = Contests(eager=True)
    assert all(eager.begin(program, key, given).form is not None for key in ("a", "b"))


@pytest.mark.parametrize(("on_trial", "waits"), [("one size", False), ("many sizes", True)])
def test_a_program_for_many_sizes_waits_for_the_trial_of_another_one_only(monkeypatch, on_trial, waits):
    """A program for the shapes of a single step is on trial until these shapes come again, which they may never do."""
    monkeypatch.setattr(hot.backend, "is_available", lambda: True)
    monkeypatch.setattr(hot.backend, "is_idle", lambda: True)
    monkeypatch.setattr(hot.backend, "in_background", lambda work: None)
    contests = Contests(eager=False)
    contest = contests["before"] = Contest()
    contest.form = SimpleNamespace(padding=None if on_trial == "one size" else object())  # type: ignore[assignment]
    given = hot.Given([], [], [], ())._replace(padding=hot.Padding((), ()))
    program = _Program()  # programs are gone when nobody holds them
    assert (contests.begin(program, "new", given) is contests.get("new")) is not waits
