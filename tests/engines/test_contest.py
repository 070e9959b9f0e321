"""Which of two forms wins, whatever the machine does meanwhile: close results are looked at again, very clear ones are not."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines.xla import hot, match
from penstock.engines.xla.hot import Contest, Contests
from penstock.runtime.executor.compiled import Final


class _Program:
    def describe(self):
        return "a program"


def _look(contest, python, xla, cpu=(1, 1), noise=lambda i: 1):
    """One look: each form takes so long, and `noise` times that in its i-th step."""
    while not contest.is_over(9):
        is_xla = contest.is_xlas_turn
        taken = (xla if is_xla else python) * noise(contest.turn)
        contest.note(is_xla, taken, cpu[is_xla])
    contest.decide(_Program(), 9)
    return contest.choice


@pytest.mark.parametrize("block", [2, 4, 16])
def test_the_faster_form_wins_and_a_very_clear_result_stays(block):
    for python, xla, winner in ((900, 100, "xla"), (100, 900, "host")):
        contest = Contest(block)
        assert _look(contest, python, xla) == winner
        assert contest.rest == 0


def test_a_clear_result_is_looked_at_once_more():
    contest = Contest()
    contest.form = object()  # type: ignore[assignment]
    assert _look(contest, 300, 100) == "xla" and contest.rest > 0
    contest.reopen()
    assert contest.choice is None
    assert _look(contest, 300, 100) == "xla" and contest.rest == 0


@pytest.mark.parametrize(("looks", "winner"), [((80, 110, 85), "xla"), ((110, 80, 120), "host")])
def test_the_middle_one_of_three_close_looks_stays(looks, winner):
    contest = Contest()
    contest.form = object()  # type: ignore[assignment]
    rests = []
    for xla in looks:
        contest.reopen()
        choice = _look(contest, 100, xla)
        rests.append(contest.rest)
    assert choice == winner
    assert 0 < rests[0] < rests[1] < rests[2]


def test_who_won_long_ago_may_lose():
    """Circumstances change: only the last looks count, and there is always another one while it is close."""
    contest = Contest()
    contest.form = object()  # type: ignore[assignment]
    choices = []
    for xla in (80, 80, 80, 80, 120, 120):
        contest.reopen()
        choices.append(_look(contest, 100, xla))
        assert contest.rest > 0
    assert choices == ["xla"] * 5 + ["host"]


@pytest.mark.parametrize(("xla", "cpu", "winner"), [(97, (1, 1), "host"), (93, (100, 100), "xla"), (93, (100, 180), "host"), (88, (100, 180), "xla"), (93, (0, 0), "xla")])
def test_xla_has_to_be_faster_by_a_margin_and_by_more_if_it_takes_more_cpus(xla, cpu, winner):
    assert _look(Contest(), 100, xla, cpu) == winner


def _stopped(turn):
    return 1_000_000 if turn in (7, 13, 21) else 1


def _slow_phase(begin, end=1_000):
    return lambda turn: 4 if begin <= turn < end else 1


def _waking(turn):
    return 1 if turn % 2 else 5


@pytest.mark.parametrize("block", [2, 4, 16])
@pytest.mark.parametrize("noise", [_stopped, *(_slow_phase(n) for n in range(1, 24)), *(_slow_phase(n, n + 9) for n in range(15))])
@pytest.mark.parametrize(("xla", "winner"), [(80, "xla"), (125, "host")])
def test_what_the_machine_does_meanwhile_does_not_decide(block, noise, xla, winner):
    assert _look(Contest(block), 100, xla, noise=noise) == winner


def test_the_first_step_after_a_change_does_not_count():
    contest = Contest()
    assert _look(contest, 100, 80, noise=_waking) == "xla"
    assert {wall for wall, _ in contest.host} == {100} and {wall for wall, _ in contest.xla} == {80}


@pytest.mark.parametrize("block", [4, 8, 16])
def test_what_forms_do_to_each_other_when_they_change_places_does_not_count(block):
    """Python's form finds its variables elsewhere, and threads of XLA's that still wait for work."""
    contest = Contest(block)
    assert _look(contest, 100, 120, noise=lambda turn: 3 if turn % (2 * block) < block // 2 else 1) == "host"
    assert {wall for wall, _ in contest.host} == {100}


@pytest.mark.parametrize(("looks", "winner"), [((40, 110), "host"), ((160, 80), "xla")])
def test_of_two_looks_the_second_one_counts(looks, winner):
    contest = Contest()
    contest.form = object()  # type: ignore[assignment]
    for xla in looks:
        contest.reopen()
        choice = _look(contest, 100, xla)
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
    _look(contest, 100, 90)
    contest.give_up()
    contest.reopen()
    assert contest.choice == "host"


@pytest.mark.parametrize(("xla", "steps"), [(120, 18), (99, 9), (160, 9)])
def test_a_form_that_is_a_little_behind_gets_more_turns(xla, steps):
    contest = Contest()
    _look(contest, 100, xla)
    assert len(contest.xla) == steps


class _Part(_Program):
    TRIALS = 8


class _Thing:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def _final(first_takes: int, second_takes: int, parts: list[Any], steps: int = 100) -> tuple[Any, Any, Any]:
    """Steps of what is in place; which program that is in the end."""
    first, second = (_Thing(final=None, takes=n) for n in (first_takes, second_takes))
    compiler: Any = _Thing(program=second)
    second.final = Final(compiler, first, second, parts)  # type: ignore[arg-type]
    for i in range(steps):
        program = compiler.program
        if program.final is not None:
            program.final.after(program, program.takes + i % 3)
    return compiler.program, first, second


@pytest.mark.parametrize(("first_takes", "second_takes", "wins"), [(1000, 100, True), (100, 90, True), (100, 99, False), (90, 100, False), (100, 1000, False)])
def test_whole_steps_decide_between_code_with_and_without_parts_for_xla(first_takes, second_takes, wins):
    winner, first, second = _final(first_takes, second_takes, [_Thing(is_settled=True)])
    assert winner is (second if wins else first)
    assert (winner.final is not None) == (first_takes < 2 * second_takes < 4 * first_takes)  # looked at again


def test_whole_steps_have_done_with_it_after_a_while(monkeypatch):
    monkeypatch.setattr(match, "RESTS", (2, 4, 8))
    winner, first, second = _final(100, 90, [_Thing(is_settled=True)], steps=300)
    assert winner is second and first.final is None and second.final is None


def test_whole_steps_are_looked_at_again(monkeypatch):
    """Who was slow while it mattered may turn out to be quick."""
    monkeypatch.setattr(match, "RESTS", (2, 4, 8))
    first, second = (_Thing(final=None, takes=100), _Thing(final=None, takes=120))
    compiler: Any = _Thing(program=second)
    second.final = final = Final(compiler, first, second, [_Thing(is_settled=True)])  # type: ignore[arg-type]
    seen = []
    while compiler.program.final is not None:
        final.after(compiler.program, compiler.program.takes)
        if final.match.count > len(seen):
            seen.append(compiler.program)
            second.takes = 80
    assert seen[0] is first and seen[-1] is second and len(seen) == Final.LOOKS


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


@pytest.mark.parametrize("scores", [[], [0.9]])
def test_a_part_that_cannot_be_compiled_for_shape_after_shape_stands_still(monkeypatch, scores):
    monkeypatch.setattr(hot, "_rested_at", 1 << 62)  # the compiler rests all the time
    program = hot.HotProgram.__new__(hot.HotProgram)
    program.contests = Contests(eager=False)
    for i in range(hot.HOPELESS):
        assert program.standing is None
        program.contests[i] = contest = Contest()
        contest.choice = "host"
    waiting = program.contests["one more"] = Contest()
    waiting.form, waiting.scores = object(), scores  # type: ignore[assignment]
    assert program.standing == (None if scores else (0, 0))


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
