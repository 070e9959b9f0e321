"""Turns at the interpreter's lock are short while code is written beside the steps."""

import sys
import threading
import time

import pytest

from penstock.engines import turns


@pytest.fixture(autouse=True)
def quiet():
    """Other tests' programs may still be compiled."""
    deadline = time.monotonic() + 60
    while not turns.is_idle() and time.monotonic() < deadline:
        time.sleep(0.01)


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
