"""Which of two forms wins: close results are looked at again, clear ones are not."""

import pytest

from penstock.engines.xla.hot import Contest


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
