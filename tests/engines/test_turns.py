"""Turns at the interpreter's lock are short while code is written beside the steps."""

import contextlib
import gc
import importlib
import os
import sys
import threading
import time
import weakref
from types import SimpleNamespace

import pytest

import penstock as tf
from penstock.engines import turns
from penstock.engines.xla import backend
from penstock.graph import quiet_gc
from penstock.graph.quiet_gc import paused


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Other tests' programs may still be compiled, and have left something owed."""
    deadline = time.monotonic() + 60
    while not turns.is_idle() and time.monotonic() < deadline:
        time.sleep(0.01)
    monkeypatch.setattr(turns, "_owed", 0)


def test_short_while_somebody_works():
    before = sys.getswitchinterval()
    assert turns.is_idle()
    with turns.beside():
        assert sys.getswitchinterval() == pytest.approx(turns.SHORT)
        with turns.beside():
            assert not turns.is_idle()
        assert sys.getswitchinterval() == pytest.approx(turns.SHORT)
    assert sys.getswitchinterval() == pytest.approx(before) and turns.is_idle()


def test_an_error_ends_it_too():
    before = sys.getswitchinterval()
    with pytest.raises(KeyError), turns.beside():
        raise KeyError
    assert sys.getswitchinterval() == pytest.approx(before)


def test_a_shorter_interval_of_the_users_stays():
    before = sys.getswitchinterval()
    sys.setswitchinterval(turns.SHORT / 2)
    try:
        with turns.beside():
            assert sys.getswitchinterval() == pytest.approx(turns.SHORT / 2)
        assert sys.getswitchinterval() == pytest.approx(turns.SHORT / 2)
    finally:
        sys.setswitchinterval(before)


def test_two_threads():
    before = sys.getswitchinterval()
    inside, leave = threading.Event(), threading.Event()

    def work():
        with turns.beside():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(60)
    with turns.beside():
        pass
    assert sys.getswitchinterval() == pytest.approx(turns.SHORT)
    leave.set()
    thread.join()
    assert sys.getswitchinterval() == pytest.approx(before)


@pytest.fixture
def clocks(monkeypatch):
    """The time, a thread's own time, and how long it has slept, all by hand."""
    now = {"clock": 0.0, "own": 0.0, "slept": []}

    def sleep(seconds):
        now["slept"].append(seconds)
        now["clock"] += seconds

    monkeypatch.setattr(turns, "perf_counter", lambda: now["clock"])
    monkeypatch.setattr(turns, "thread_time", lambda: now["own"])
    monkeypatch.setattr(turns, "sleep", sleep)
    return now


def _work(now, own, others):
    now["own"] += own
    now["clock"] += own + others
    turns.breathe()


def test_long_work_rests_where_others_want_to_go_on(clocks):
    with turns.resting():
        for _ in range(10):
            _work(clocks, own=turns.WORK, others=turns.WORK)
    assert clocks["slept"] == pytest.approx([turns.REST * turns.WORK] * 10)


def test_long_work_goes_on_where_nobody_else_does(clocks):
    with turns.resting():
        for _ in range(10):
            _work(clocks, own=turns.WORK, others=0.0)
    assert not clocks["slept"]


def test_other_threads_and_other_work_do_not_rest(clocks):
    _work(clocks, own=turns.WORK, others=turns.WORK)
    with turns.resting():
        other = threading.Thread(target=_work, args=(clocks, turns.WORK, turns.WORK))
        other.start()
        other.join()
    _work(clocks, own=turns.WORK, others=turns.WORK)
    assert not clocks["slept"]


def test_young_garbage_is_collected_in_long_work(clocks):
    """Collections are switched off while code is written, which takes long then."""

    class Loop:
        pass

    loop = Loop()
    loop.itself = loop
    gone = weakref.ref(loop)
    with paused(), turns.resting():
        del loop
        _work(clocks, own=turns.WORK, others=turns.WORK)
        assert gone() is None


def test_a_long_import_waits_for_steps_between_modules(clocks, tmp_path, monkeypatch):
    (tmp_path / "large_package").mkdir()
    for name in ("__init__", "first", "second"):
        (tmp_path / "large_package" / f"{name}.py").write_text("import clocks_by_hand as c\nc.work()\n" + ("from . import first, second\n" if name == "__init__" else ""))

    def work():
        clocks["own"] += turns.WORK
        clocks["clock"] += 2 * turns.WORK

    waits = []
    monkeypatch.setattr(turns, "_way", SimpleNamespace(wait=waits.append, is_set=lambda: False))
    monkeypatch.setitem(sys.modules, "clocks_by_hand", SimpleNamespace(work=work))
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    try:
        with turns.beside(), turns.importing():
            importlib.import_module("large_package")
        assert waits == pytest.approx([turns.REST * turns.WORK] * 2)  # before the two modules inside of it
        assert not clocks["slept"] and sys.meta_path == before
    finally:
        for name in [name for name in sys.modules if name.startswith("large_package")]:
            del sys.modules[name]


def test_steps_make_way_for_a_part_of_their_time(clocks):
    with turns.beside():
        for _ in range(6):
            turns.make_way(turns.SLICE // 2)
    assert clocks["slept"] == pytest.approx([turns.SLICE / turns.PART / 1e9] * 3)
    turns.make_way(1000 * turns.LONGEST)
    assert clocks["slept"][3:] == [turns.LONGEST / 1e9]


def test_work_goes_on_while_steps_make_way(clocks, monkeypatch):
    waits = []
    monkeypatch.setattr(turns, "_way", way := threading.Event())
    monkeypatch.setattr(way, "wait", waits.append)

    def sleep(seconds):
        assert way.is_set()
        for _ in range(5):
            _work(clocks, own=turns.WORK, others=turns.WORK)
        assert not waits

    monkeypatch.setattr(turns, "sleep", sleep)
    with turns.beside(), turns.resting(waits=True):
        turns.make_way(turns.SLICE)
        _work(clocks, own=turns.WORK, others=turns.WORK)
    assert waits and not way.is_set()


def test_nobody_makes_way_for_who_waits_or_rests(clocks, monkeypatch):
    assert turns.hungry == 0
    seen = []
    monkeypatch.setattr(turns, "sleep", lambda seconds: seen.append(turns.hungry))
    with turns.away():  # no such work
        assert turns.hungry == 0
    with turns.beside():
        assert turns.hungry == 1
        with turns.away():
            assert turns.hungry == 0
        assert turns.hungry == 1
        with turns.resting():
            _work(clocks, own=turns.WORK, others=turns.WORK)
    assert seen == [0] and turns.hungry == 0


def test_steps_make_way_for_work_that_has_not_begun():
    """The thread has been woken up, and waits for the interpreter."""
    compiler = backend._Compiler()
    begun, leave = threading.Event(), threading.Event()
    compiler.submit(lambda: (begun.set(), leave.wait(60)))
    compiler.submit(begun.clear)
    assert begun.wait(60)
    assert turns.hungry == 2  # one is at work, one waits
    leave.set()
    deadline = time.monotonic() + 60
    while compiler.pending and time.monotonic() < deadline:
        time.sleep(0.01)
    assert turns.hungry == 0 and not begun.is_set()
    compiler.work.put(lambda: None)
    compiler.is_closing = True


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_nobody_is_at_work_in_a_child_that_was_forked_by_such_work():
    before = sys.getswitchinterval()
    with contextlib.ExitStack() as stack:
        stack.enter_context(turns.beside())
        stack.enter_context(turns.beside())
        stack.enter_context(turns.away())
        child = os.fork()
        if not child:
            stack.close()
            os._exit(turns.hungry or turns._active or bool(turns._workers) or abs(sys.getswitchinterval() - before) > 1e-6)
    assert os.waitpid(child, 0)[1] == 0
    assert turns.hungry == 0 and turns.is_idle()


def test_a_step_in_generated_code_makes_way(monkeypatch):
    made = []
    monkeypatch.setattr(turns, "make_way", made.append)
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32)
        y = x + 1.0
        assert sess.run(y, {x: 1.0}) == 2.0 and not made
        with turns.beside():
            assert sess.run(y, {x: 2.0}) == 3.0
        assert len(made) == 1 and made[0] > 0
        sess.run(y, {x: 2.0})
        assert len(made) == 1


def test_what_was_made_in_a_long_pause_is_not_looked_at_at_once(monkeypatch):
    monkeypatch.setattr(quiet_gc, "MANY", 1000)
    gc.collect()
    with paused():
        made = [[] for _ in range(5000)]
    young = {id(o) for generation in (0, 1) for o in gc.get_objects(generation)}
    assert not any(id(o) in young for o in made)


def test_an_import_that_steps_wait_for_does_not_rest(clocks):
    """Another thread is at work, this one has to go on."""
    inside, leave = threading.Event(), threading.Event()

    def work():
        with turns.beside():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(60)
    with turns.importing():
        _work(clocks, own=turns.WORK, others=turns.WORK)
    leave.set()
    thread.join()
    assert not clocks["slept"]
