"""The benchmark driver: turns, failures, warm-up and the page it writes. Times themselves are not tested."""

import ast
import os
import pathlib
import textwrap
import time

import numpy as np
import pytest

from benchmarks import __main__ as driver
from benchmarks import (
    clients,
    early,
    first,
    footprint,
    report,
    scaling,
    survey,
    table,
    timing,
    worker,
    workers,
    workloads,
)
from benchmarks.table import OURS, PLAIN, THEIRS, Effort, Row

ROOT = pathlib.Path(__file__).parent.parent
QUICK = Effort(rounds=3, seconds=0.001, settle=0.002, limit=0.05, timeout=20.0)

FAKE = """
import json, sys, time
name = sys.argv[1]
if name == "absent":
    raise ModuleNotFoundError("No module named 'absent'")
print('{"ready": true}', flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "setup":
        work = command["name"]
    if name == "broken" and command["do"] == "round":
        answer = {"error": "ValueError: no"}
    elif work == "none" and name == "peer":
        answer = {"absent": True}
    elif work == "hang" and name == "tensorflow":
        time.sleep(60)
    elif work == "child":
        import subprocess
        answer = {"pid": subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid}
    elif work == "die" and name == "penstock":
        sys.exit("out of luck")
    else:
        answer = {"seconds": {"penstock": 1.0, "tensorflow": 3.0}.get(name, 2.0), "build": 0.1, "first": 0.2, "compiling": work == "long" and name == "penstock", "values": [1.0 if work != "odd" else len(name)]}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def pool(tmp_path):
    (tmp_path / "fake_worker.py").write_text(FAKE)
    names = ("penstock", "tensorflow", "peer", "broken", "absent")
    pool = workers.Pool({name: {"PYTHONPATH": str(tmp_path)} for name in names}, module="fake_worker")
    yield pool
    pool.close()


# -- workers --------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks at processes in /proc")
def test_what_a_worker_started_ends_with_it(pool):
    pid = pool.ask("peer", "setup", 20.0, name="child")["pid"]
    os.kill(pid, 0)
    pool.close()
    for _ in range(1000):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":  # nobody has looked after it yet
                    return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is still there")


# -- timing -------------------------------------------------------------------------------------------------------------


def test_calls_are_timed_in_batches():
    count = 0

    def step():
        nonlocal count
        count += 1

    for _ in range(5):  # a first call that is held up makes small batches
        count = 0
        times = timing.calls(step, 0.003)
        assert len(times) >= 3
        if count > 100 * len(times):
            return
    raise AssertionError(f"{count} calls in {len(times)} batches")


def test_slow_calls_are_timed_one_by_one():
    times = timing.calls(lambda: time.sleep(0.002), 0.001)
    assert len(times) == 3
    assert min(times) >= 0.002


def test_settling_waits_for_compilations(monkeypatch):
    answers = iter([True, True, True, False, False])
    asked = []

    def compiling(package):
        asked.append(next(answers))
        return asked[-1]

    monkeypatch.setattr(timing, "compiling", compiling)
    monkeypatch.setattr(timing, "calls", lambda step, seconds, least: [1.0])  # as long in each window: nothing else is waited for
    assert timing.settle(None, lambda: None, seconds=0.0, limit=60.0) < 60.0
    assert asked == [True, True, True, False, False]


def test_settling_sees_what_was_compiled_between_two_looks(monkeypatch):
    """A job that begins and ends within a window, or a program that gets warm, is no reason to stop."""
    asked = []

    def preparations(package):
        asked.append(min(len(asked), 6))
        return (asked[-1],)

    monkeypatch.setattr(timing, "preparations", preparations)
    monkeypatch.setattr(timing, "compiling", lambda package: False)
    assert timing.settle(None, lambda: None, seconds=0.004, limit=60.0) < 60.0
    assert asked[:7] == [0, 1, 2, 3, 4, 5, 6] and len(asked) >= 9


def test_preparations_count_jobs_and_time_in_programs_that_are_not_hot():
    import penstock as tf
    from penstock.engines import turns

    with tf.Graph().as_default(), tf.Session() as sess:
        y = tf.placeholder(tf.float32, [2]) + 1.0
        before = timing.preparations(tf)
        for _ in range(10):
            sess.run(y, {y.op.inputs[0]: [1, 2]})
        with turns.beside():
            pass
        after = timing.preparations(tf)
    assert after[0] > before[0]
    assert timing.preparations(None) == ()


def test_settling_ends(monkeypatch):
    monkeypatch.setattr(timing, "compiling", lambda package: True)
    assert timing.settle(None, lambda: None, seconds=0.004, limit=0.05) > 0.05


def test_ratio_of_medians_and_spread_of_rounds():
    assert timing.ratio([1.0, 2.0, 1.0], [3.0, 2.0, 5.0]) == (3.0, 1.0, 5.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (1.234e-6, "1.23 us"), (4e-9, "4.00 ns"), (12.34e-6, "12.3 us"), (0.12345, "123 ms"), (0.9999, "1.00 s"), (12.34, "12.3 s")],
)
def test_times_have_three_digits(seconds, text):
    assert timing.show(seconds) == text


# -- workers ------------------------------------------------------------------------------------------------------------


def test_packages_take_turns(pool):
    row = table.measure(pool, Row("some", bar=2.0), [OURS, THEIRS, "peer"], QUICK)
    assert row.times == {OURS: [1.0] * 3, THEIRS: [3.0] * 3, "peer": [2.0] * 3}
    assert row.ratio() == (3.0, 3.0, 3.0)
    assert row.notes == []


def test_what_fails_is_noted_and_the_rest_is_measured(pool):
    row = table.measure(pool, Row("some"), [OURS, "broken", "absent", THEIRS], QUICK)
    assert set(row.times) == {OURS, THEIRS}
    assert row.notes == ["broken: ValueError: no"]
    assert "No module named 'absent'" in pool.missing["absent"]


def test_a_peer_without_the_workload_is_left_out_silently(pool):
    row = table.measure(pool, Row("none"), [OURS, THEIRS, "peer"], QUICK)
    assert set(row.times) == {OURS, THEIRS}
    assert row.notes == []


def test_a_worker_that_hangs_or_dies_is_replaced(pool):
    hung = table.measure(pool, Row("hang"), [OURS, THEIRS], Effort(rounds=1, timeout=3.0))
    assert hung.times == {OURS: [1.0]}
    assert hung.notes == ["tensorflow: no answer within 3 s"]
    died = table.measure(pool, Row("die"), [OURS, THEIRS], QUICK)
    assert died.notes == ["penstock: died: out of luck"]
    assert set(table.measure(pool, Row("some"), [OURS, THEIRS], QUICK).times) == {OURS, THEIRS}


def test_what_other_processes_used_is_known(pool):
    pool.ask(OURS, "setup", 20.0, name="some")
    before = pool.clock()
    if before is None:
        pytest.skip("no /proc here")
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass  # our own work is not other processes' work
    after = pool.clock()
    assert after[1] > before[1] and 0 <= table.share(before, after) <= 1
    assert table.share((1.0, 10.0), (2.0, 20.0)) == 0.1
    assert table.share((1.0, 10.0), (0.0, 20.0)) == table.share(None, after) == 0.0


def test_a_warm_up_that_did_not_end_is_noted(pool):
    row = table.measure(pool, Row("long"), [OURS, THEIRS], Effort(rounds=1, limit=7.0))
    assert row.notes == ["penstock: still compiling after a warm-up of 7 s"]
    assert set(row.times) == {OURS, THEIRS}
    assert set(pool._workers) == {THEIRS}, "the one that compiles is replaced"


def test_different_results_are_noted(pool):
    assert table.measure(pool, Row("odd"), [OURS, THEIRS], QUICK).notes == ["results differ between Penstock and TensorFlow"]


def test_a_real_worker_runs_a_program():
    pool = workers.Pool()
    try:
        made = pool.ask(OURS, "setup", 60.0, module="benchmarks.scaling", name="chain", arguments=[10])
        assert made["build"] > 0 and len(made["values"]) == 2
        pool.ask(OURS, "settle", 60.0, seconds=0.01, limit=0.1)
        assert 0 < pool.ask(OURS, "round", 60.0, seconds=0.01)["seconds"] < 60
        with pytest.raises(workers.Failed, match="KeyError"):
            pool.ask(OURS, "setup", 60.0, module="benchmarks.scaling", name="no such")
        assert pool.ask(OURS, "about", 60.0)["version"]
    finally:
        pool.close()


@pytest.mark.parametrize("name", early.PROGRAMS)
def test_programs_of_the_first_seconds(name):
    import penstock

    with penstock.Graph().as_default():
        step = early.PROGRAMS[name](penstock)
        for _ in range(2):
            assert all(np.all(np.isfinite(digest)) for digest in worker.digest(step()))


def test_steps_within_the_first_seconds(monkeypatch):
    """The first step is none of them."""
    now = [0.0]
    monkeypatch.setattr(early.time, "perf_counter", lambda: now[0])
    takes = iter([9.0, 0.25, 0.5, 0.5, 0.5, 2.0, 2.0])

    def step():
        now[0] += next(takes)

    assert early.steps_within(step, [1.0, 2.0, 5.0]) == {"steps": [2, 4, 5], "slowest": 2.0}


def test_the_first_seconds_of_a_fresh_process():
    found = early.fresh(OURS, "while loop, another number of rounds each step", 0.2)
    assert len(found["steps"]) == 1 and found["slowest"] > 0


def test_new_processes_are_used_once_before_costs_are_measured(pool, monkeypatch):
    """What a package imports late is not a matter of size."""
    points = []
    monkeypatch.setattr(scaling, "_point", lambda pool, name, size, packages, effort, notes: points.append((name, packages)))
    pool.ask(THEIRS, "setup", 60.0, name="any")
    scaling._introduce(pool, (OURS, THEIRS))
    assert points == [("tangle", (OURS,))]


def test_first_result_of_a_fresh_process():
    result = first.measure("run of one add", rounds=1, packages=(OURS,))
    assert result.notes == []
    times = result.times[OURS]
    assert times["total"] > times["import"] > 0
    assert times["slowest"] >= times["median"] > 0


def test_peak_memory_of_fresh_processes():
    (found,) = footprint.measure(["embedding, sparse Adagrad"], packages=(OURS,))
    assert found.notes == []
    assert found.megabytes[OURS] > 0 and found.variables > 0
    (failed,) = footprint.measure(["no such program"], packages=(OURS,))
    assert failed.megabytes == {} and failed.notes == ["penstock: CalledProcessError"]


# -- the page -----------------------------------------------------------------------------------------------------------


def results():
    rows = [
        Row("quick one", "Calls", 2.0, {OURS: [1e-6, 1e-6], THEIRS: [5e-6, 6e-6], PLAIN: [8e-6, 8e-6], "jax": [2e-6, 2e-6]}),
        Row("slow one", "Loops", 1.0, {OURS: [2e-3], THEIRS: [1e-3]}, disturbed=0.2),
        Row("half-way | there", "Loops", 3.0, {OURS: [1e-3], THEIRS: [2e-3]}),
        Row("lost one", "Loops", 1.0, {THEIRS: [1e-3]}, ["penstock: died"]),
        Row("net", "Frozen networks", 1.0, {OURS: [0.02], THEIRS: [0.03], "openvino": [0.01]}),
    ]
    curve = scaling.Curve("chain", "nodes", [(10, {OURS: 1e-6, THEIRS: 1e-4}), (100_000, {OURS: 1e-2})], ["100,000: tensorflow: no answer"])
    times = {"total": 0.5, "import": 0.1, "build": 0.1, "run": 0.1, "slowest": 0.002, "median": 0.001}
    firsts = [first.First("quick one", {OURS: times, THEIRS: {**times, "total": 4.0}})]
    prints = [footprint.Footprint("MLP", {OURS: 30.0, THEIRS: 20.0}, 7.0), footprint.Footprint("CNN", {OURS: 10.0}, 3.0, ["tensorflow: TimeoutExpired"])]
    return report.Results(rows, firsts, [curve], {OURS: "1.0", THEIRS: "2.21.0"}, {"torch": "not installed"}, prints, when="2030-01-02 03:04 UTC", minutes=3.0)


def test_the_page_says_what_was_measured():
    text = "\n".join(report.sections(results()).values())
    assert report.sections(results()) == report.sections(results())
    assert "Measured 2030-01-02 03:04 UTC" in text
    assert "Penstock 1.0, TensorFlow 2.21.0, Python " in text
    assert "Not there: PyTorch (not installed)." in text
    assert "Other processes had 4% of the machine during the rounds; more than 10% in 1 of 5 workloads." in text
    assert "| quick one | 1.00 us | 8.00 us | 5.50 us | 5.50x | 2x | 5.00x..6.00x | 2.00 us | - |" in text
    assert "| slow one | 2.00 ms | - | 1.00 ms | **0.50x** | 1x | 0.50x..0.50x | - | - |" in text
    assert "| lost one | - | - | 1.00 ms | **failed** | 1x | - | - | - |" in text
    assert "- lost one: penstock: died." in text


def test_the_page_says_what_is_behind():
    text = "\n".join(report.sections(results()).values())
    assert "2 of 5 workloads reach their bar" in text
    assert "Slower than TensorFlow: slow one (0.50x)." in text
    assert "Slower than TensorFlow without the `xla` extra: quick one (0.69x)." in text
    assert "Not measured: lost one." in text
    assert "More than 1.3x OpenVINO's time on a frozen network: net (2.00x)." in text
    assert "Later than TensorFlow: none." in text
    assert "| MLP | 7 | 30 | 20 | 0.67x |" in text and "| CNN | 3 | 10 | - | - |" in text
    assert "More than TensorFlow: MLP." in text and "- CNN: tensorflow: TimeoutExpired." in text


def test_every_row_of_the_table_has_the_same_number_of_cells():
    lines = [x for x in "\n".join(report.sections(results()).values()).splitlines() if x.startswith("|")]
    tables = {x.count("|") - x.count("\\|") for x in lines}
    assert len(tables) == 3, "one number for the table of workloads, one for first results, one for memory"


def test_a_picture_of_a_curve():
    text = report.picture(results().curves[0])
    rows = textwrap.dedent(text).splitlines()
    small, large = rows[4], rows[5]
    assert small.split()[0] == "10" and "1.00 us" in small and small.endswith("100.0x")
    assert large.split()[0] == "100,000" and large.endswith("-")
    assert large.count("█") > small.split("us")[0].count("█")
    assert "no answer" in rows[6]


def empty_page() -> str:
    return "\n".join(f"{begin}\nlast year's {name}\n{end}\n" for name in report.SECTIONS for begin, end in [report.marks(name)])


def test_writing_keeps_what_is_written_by_hand(tmp_path):
    page = tmp_path / "performance.md"
    page.write_text(f"# Title\n\nby hand\n\n{empty_page()}\nafter\n")
    report.write(str(page), results())
    report.write(str(page), results())
    text = page.read_text()
    assert text.startswith("# Title\n\nby hand\n") and text.endswith("\nafter\n")
    assert "last year" not in text and text.count("## Workloads") == 1
    page.write_text("something else")
    with pytest.raises(ValueError, match="no lines"):
        report.write(str(page), results())


def test_writing_keeps_parts_that_were_not_measured(tmp_path):
    page = tmp_path / "performance.md"
    page.write_text(empty_page())
    everything = results()
    report.write(str(page), report.Results(curves=everything.curves))
    text = page.read_text()
    assert "## How cost grows" in text and "last year's scaling" not in text
    assert "last year's table" in text and "last year's memory" in text and "last year's first" in text


def test_the_documentation_has_the_marks():
    text = (ROOT / "docs" / "performance.md").read_text()
    places = [text.index(mark) for name in report.SECTIONS for mark in report.marks(name)]
    assert places == sorted(places)


# -- what is registered -------------------------------------------------------------------------------------------------


def test_every_workload_has_a_group_and_a_bar():
    names = {*workloads.WORKLOADS, *workloads.ONCE}
    assert names == set(workloads.BARS) == set(workloads.GROUPS)
    assert all(bar >= 1 for bar in workloads.BARS.values())
    assert set(first.NAMES) <= set(workloads.WORKLOADS)
    assert {workloads.GROUPS[n] for n in names} <= {*table.GROUPS, "More"}


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "peers").glob("with_*.py")), ids=lambda p: p.stem)
def test_peers_name_workloads_that_exist(path):
    """Read, not imported: peers need packages that are not there when tests run."""
    tree = ast.parse(path.read_text())
    decorators = [d for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for d in node.decorator_list]
    names = [d.args[0].value for d in decorators if isinstance(d, ast.Call) and isinstance(d.func, ast.Name) and d.func.id == "workload"]
    names += [n.slice.value for n in ast.walk(tree) if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Constant) and getattr(n.value, "id", "") == "WORKLOADS"]
    assert names or "in models.FROZEN:" in path.read_text()
    assert set(names) <= set(workloads.WORKLOADS)


# -- clients ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "add, callable", "MLP training, batch 32"])
def test_clients_run_steps_of_one_session(name):
    threads = clients.Clients(OURS)
    threads.setup("benchmarks.clients", name)
    for number in (1, 3):
        threads.clients(number, seconds=0.004, limit=0.05)
        answer = threads.round(0.01)
        assert answer["steps"] > 0 and answer["cpu"] >= 0
    threads.drop()


def test_rates_of_clients_are_compared():
    rates = clients.Rates({OURS: 300.0, THEIRS: 200.0}, {OURS: 2e-3, THEIRS: 5e-3}, 0.25)
    assert clients.line("some", 4, rates).split() == ["some", "4", "300", "200", "1.50x", "2.50x", "-", "-", "-", "25%"]
    assert len(clients.line("some", 4, rates)) == len(clients.heading())


# -- the survey ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", survey.WORKLOADS)
def test_a_program_of_the_survey_runs(name):
    import penstock as tf

    with tf.Graph().as_default():
        step = survey.WORKLOADS[name](tf)
        first, second = worker.digest(step()), worker.digest(step())
    assert np.isfinite(first).all() and np.isfinite(second).all()
    assert len(first) == len(second)


def test_the_survey_measures_what_is_asked_for(pool, monkeypatch, capsys):
    monkeypatch.setattr(survey, "Pool", lambda environments: pool)
    assert survey.main(["--only", "k-means", "PageRank", "--rounds", "1", "--seconds", "0.001"]) == 0
    heading, *lines, gap, _, _, _, _ = capsys.readouterr().out.splitlines()
    assert heading == survey.heading() and gap == "" and all("3.00x" in x for x in lines)
    assert [x[:38].strip() for x in lines] == [n for n in survey.WORKLOADS if "k-means" in n or "PageRank" in n]


def test_the_survey_says_who_is_slower():
    rows = results().rows
    rows[2].notes.append("results differ between Penstock and TensorFlow")
    text = survey.verdict(rows)
    assert text[0] == "Slower than TensorFlow: slow one (0.50x)."
    assert text[1] == "Slower than TensorFlow without XLA, loops left out: quick one (0.69x)."
    assert text[2:] == ["Not measured: lost one.", "Results differ: half-way | there."]
    assert survey.line(rows[0]).split() == ["quick", "one", "1.00", "us", "5.50", "us", "5.50x", "8.00", "us", "0.69x"]
    assert survey.LOOPS < set(survey.WORKLOADS)


def test_options():
    options = driver._parse(["--only", "MLP"])
    assert options.peers == [] and options.parts == ["table"]
    options = driver._parse([])
    assert options.peers == [PLAIN, *table.PEERS] and options.parts == list(driver.PARTS)
    assert driver._parse(["--peers", "plain,jax"]).peers == [PLAIN, "jax"]
    with pytest.raises(SystemExit):
        driver._parse(["--peers", "caffe"])


def test_a_part_that_fails_does_not_end_the_run(capsys):
    driver._part(lambda: 1 / 0)
    assert "ZeroDivisionError" in capsys.readouterr().err
