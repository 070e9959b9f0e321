"""Threads that share a core are moved apart, and keep the right to run wherever they could."""

import os
import threading

import pytest

from penstock.engines.onednn import crowd, elbow_room

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs, and Linux")


@pytest.fixture
def other():
    """A thread that sleeps."""
    end, begun = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (begun.set(), end.wait()))
    thread.start()
    begun.wait()
    yield thread
    end.set()
    thread.join()


@pytest.fixture
def masks(monkeypatch):
    """What threads were told to run on, in order."""
    told = []

    def note(thread, cpus, set_affinity=os.sched_setaffinity):
        told.append((thread, cpus))
        set_affinity(thread, cpus)

    monkeypatch.setattr(os, "sched_setaffinity", note)
    return told


def test_moved_and_free_again(monkeypatch, other, masks):
    allowed = os.sched_getaffinity(other.native_id)
    cpu = min(allowed)
    monkeypatch.setattr(elbow_room, "_where", lambda: cpu)
    monkeypatch.setattr(elbow_room, "_wants", lambda thread, c: thread == other.native_id and c == cpu)
    assert elbow_room.make() == 1
    assert masks == [(other.native_id, allowed - {cpu}), (other.native_id, allowed)]
    assert os.sched_getaffinity(other.native_id) == allowed


def test_a_thread_that_may_run_nowhere_else_stays(monkeypatch, other, masks):
    allowed = os.sched_getaffinity(other.native_id)
    cpu = min(allowed)
    os.sched_setaffinity(other.native_id, {cpu})
    masks.clear()
    monkeypatch.setattr(elbow_room, "_where", lambda: cpu)
    monkeypatch.setattr(elbow_room, "_wants", lambda thread, c: thread == other.native_id)
    assert elbow_room.make() == 0 and masks == []
    assert os.sched_getaffinity(other.native_id) == {cpu}


def test_a_thread_that_has_ended_is_no_error(monkeypatch, other, masks):
    def wants(thread, cpu):
        raise ProcessLookupError(thread)

    monkeypatch.setattr(elbow_room, "_wants", wants)
    assert elbow_room.make() == 0 and masks == []


def test_sleepers_do_not_count(other):
    def wants(thread):
        """Whether it does on any core. It may change cores, or be about to fall asleep, while we look."""
        return any(elbow_room._wants(thread, cpu) for cpu in os.sched_getaffinity(0))

    assert elbow_room._where() in os.sched_getaffinity(0)
    for _ in range(1000):
        if wants(threading.get_native_id()) and not wants(other.native_id):
            return
    raise AssertionError("who asks is running, and who sleeps is not")


def test_where_the_system_does_not_tell(monkeypatch, masks):
    monkeypatch.setattr(elbow_room, "_getcpu", lambda: None)
    assert elbow_room.make() == 0 and masks == []


def test_a_system_that_refuses_is_no_error(monkeypatch, masks):
    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert elbow_room.make() == 0 and masks == []


def test_late_kernels_ask_for_it_less_and_less_often(monkeypatch):
    asked = []
    monkeypatch.setattr(elbow_room, "make", lambda: asked.append(crowd._bad))
    monkeypatch.setattr(crowd, "idle_ns", lambda: float("inf"))
    monkeypatch.setattr(crowd, "LOOK_NS", 1 << 60)
    monkeypatch.setattr(crowd, "FAR_NS", 1 << 60)
    crowd.reset()
    try:
        for _ in range(20):
            crowd.record(crowd.WINDOW_NS, 0, 0, 2)
        assert asked == [1, 2, 4, 8, 16]
        crowd.record(crowd.WINDOW_NS, 0, crowd.WINDOW_NS, 2)
        crowd.record(crowd.WINDOW_NS, 0, 0, 2)
        assert asked[-1] == 1, "after a good one it begins anew"
    finally:
        crowd.reset()
