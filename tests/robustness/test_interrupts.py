"""Ctrl-C at any moment: no variable gets lost, no lock stays held, the session can be used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import penstock as tf
from penstock.runtime.executor import compiled

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

PROGRAM = """
import os, random, signal, sys, threading, time
import numpy as np
import penstock as tf

signal.signal(signal.SIGINT, signal.default_int_handler)
kind, wanted = sys.argv[1], int(sys.argv[2])
places = 4 if kind == "four devices" else 1
x = tf.placeholder(tf.float32, [4, 16])
w = [tf.get_variable(f"w{i}", initializer=np.eye(16, dtype=np.float32) * 0.5, use_resource=i == 1) for i in range(2)]
count = tf.get_variable("count", initializer=np.int64(0), dtype=tf.int64, trainable=False)
h = x
for i in range(2):
    with tf.device(f"/cpu:{(i + 1) % places}"):
        h = tf.tanh(tf.matmul(h, w[i]))
if kind == "loops":
    h = tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, tf.tanh(tf.matmul(a, w[1]))), [tf.constant(0), h])[1]
with tf.device(f"/cpu:{3 % places}"):
    step = tf.train.AdamOptimizer(0.001).minimize(tf.reduce_mean(tf.square(h - x)), count)
if kind == "loops":
    held = tf.get_variable("held", initializer=np.zeros(500, np.float32))
    def body(i):
        with tf.control_dependencies([held.assign_add(np.ones(500, np.float32))]):
            return i + 1
    step = tf.group(step, tf.while_loop(lambda i: i < 20, body, [tf.constant(0)], parallel_iterations=1))
if kind == "queue":
    queue = tf.FIFOQueue(9, [tf.float32], shapes=[[4, 16]])
    fill = queue.enqueue(x)
    with tf.control_dependencies([queue.dequeue()]):
        with tf.control_dependencies([queue.enqueue(x)]):
            step = tf.group(step, tf.no_op())
feeds = {x: np.ones((4, 16), np.float32)}
left, pressing, over = 0, threading.Lock(), False

def press():
    global left
    while not over:
        time.sleep(random.random() * 0.004 + 0.0005)
        with pressing:
            if left:
                left -= 1
                os.kill(os.getpid(), signal.SIGINT)

def interrupted_steps():
    global left
    try:
        left = random.choice((1, 1, 2, 3))
        while left:
            sess.run(step, feeds)
    except KeyboardInterrupt:
        pass
    with pressing:
        left = 0
    time.sleep(0.002)  # whoever pressed has been heard by the end of it

def caught(function, deep=4):
    # An interrupt may come while another one is caught, and there are at most three.
    while True:
        try:
            return caught(function, deep - 1) if deep else function()
        except KeyboardInterrupt:
            pass

with tf.Session(config=tf.ConfigProto(device_count={"CPU": places})) as sess:
    sess.run(tf.global_variables_initializer())
    if kind == "queue":
        sess.run(fill, feeds)
    for _ in range(5):
        sess.run(step, feeds)
    threading.Thread(target=press, daemon=True).start()
    for _ in range(wanted):
        caught(interrupted_steps)
        if kind == "queue" and not sess.run(queue.size()):
            sess.run(fill, feeds)  # stopped between taking and putting
        values = sess.run(tf.global_variables())
        assert all(np.isfinite(v).all() for v in values)
    over = True
    other = threading.Thread(target=lambda: sess.run(step, feeds), daemon=True)
    other.start()
    other.join(60)
    print("usable by other threads", not other.is_alive())
"""

SETTINGS = {
    "plain": ("plain", {}),
    "node by node": ("plain", {"PENSTOCK_REGIONS": "0"}),
    "loops": ("loops", {"PENSTOCK_XLA": "0"}),
    "loops, node by node": ("loops", {"PENSTOCK_REGIONS": "0"}),
    "four devices": ("four devices", {}),
    "queue": ("queue", {}),
    "XLA": ("plain", {"PENSTOCK_XLA": "eager", "PENSTOCK_REGIONS": "eager"}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_ctrl_c_at_any_moment(name):
    kind, settings = SETTINGS[name]
    if name == "XLA":
        pytest.importorskip("jax")
    env = {**os.environ, "PYTHONPATH": ROOT, "PENSTOCK_XLA": "0", **settings}
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM, kind, "60"], env=env, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout == "usable by other threads True\n"


def run(program):
    result = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": ROOT}, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


BEGIN = """
import os, signal, threading, time
import numpy as np
import penstock as tf
signal.signal(signal.SIGINT, signal.default_int_handler)
v = tf.get_variable("v", initializer=1.0)
def press(*seconds):
    for s in seconds:
        threading.Timer(s, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
sess = tf.Session()
sess.run(tf.global_variables_initializer())
"""


def test_functions_of_the_users_are_interrupted_as_ever():
    program = BEGIN + """
def slow(x):
    time.sleep(20)
    return x
step = v.assign_add(tf.py_func(slow, [v], tf.float32))
start = time.monotonic()
try:
    press(0.2)
    sess.run(step)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - start < 15, sess.run(v))
"""
    assert run(program) == "interrupted True 1.0\n"


def test_an_endless_loop_that_updates_a_variable_ends():
    program = BEGIN + """
def body(i):
    with tf.control_dependencies([v.assign_add(1.0)]):
        return tf.identity(i)
loop = tf.while_loop(lambda i: i >= 0, body, [tf.constant(0)])
for _ in range(2):
    try:
        press(0.2)
        sess.run(loop)
    except KeyboardInterrupt:
        print("interrupted", sess.run(v) > 1.0)
"""
    assert run(program) == "interrupted True\n" * 2


def test_a_handler_that_does_not_raise_lets_the_step_go_on():
    program = BEGIN + """
came = []
signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
n = tf.placeholder(tf.int32, [])
def body(i):
    with tf.control_dependencies([v.assign_add(1.0)]):
        return i + 1
loop = tf.while_loop(lambda i: i < n, body, [tf.constant(0)])
press(0.05)
while not came:
    print(end=str(sess.run(loop, {n: 50000}))[50:])
print(came, sess.run(v) % 50000, signal.getsignal(signal.SIGINT).__name__)
"""
    assert run(program) == "[2] 1.0 <lambda>\n"


def test_who_presses_again_does_not_wait():
    """A kernel that updates a variable does not end, for whatever reason."""
    program = BEGIN + """
from penstock.ops import interrupts
def press_again():
    while not interrupts.came:
        time.sleep(0.01)
    press(interrupts.PATIENCE + 0.2)
try:
    with interrupts.Uninterrupted():
        try:
            press(0)
            threading.Thread(target=press_again).start()
            time.sleep(50)
            print("waits")
        except KeyboardInterrupt:
            print("at once", len(interrupts.came))
except KeyboardInterrupt:
    print("not twice")
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    assert run(program) == "at once 0\nTrue\n"


ALARMS = """
import random, signal, sys
import numpy as np
import penstock as tf

class TimedOut(Exception):
    pass

def ring(*_):
    global armed
    if armed:
        armed = False
        if sys.argv[1] == "exit":
            sys.exit(3)
        raise TimedOut

armed = False
signal.signal(signal.SIGALRM, ring)
x = tf.placeholder(tf.float32, [16, 32])
h = x
for i in range(4):
    h = tf.tanh(tf.matmul(h, tf.get_variable(f"w{i}", initializer=np.eye(32, dtype=np.float32))))
step = tf.train.AdamOptimizer(1e-4).minimize(tf.reduce_mean(h**2))
feeds = {x: np.ones((16, 32), np.float32)}
kinds = set()
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for _ in range(50):
        sess.run(step, feeds)
    rings = 0
    while rings < 500:
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, 0.0003 + 0.001 * random.random())
            while armed:  # what is raised inside of a destructor is not heard of
                sess.run(step, feeds)
        except BaseException as error:
            kinds.add(type(error).__name__)
            rings += 1
        armed = False
        sess.run(tf.global_variables())  # all of them are there
assert signal.getsignal(signal.SIGALRM) is ring
print(kinds)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that send signals here")
@pytest.mark.parametrize("way", ["raise", "exit"])
@pytest.mark.parametrize("settings", [{}, {"PENSTOCK_REGIONS": "0"}, {"PENSTOCK_XLA": "eager"}], ids=["default", "by node", "xla"])
def test_handlers_of_other_signals_lose_nothing_and_their_errors_are_theirs(way, settings):
    env = {**os.environ, "PYTHONPATH": ROOT, **settings}
    done = subprocess.run([sys.executable, "-c", ALARMS, way], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    kind = "SystemExit" if way == "exit" else "TimedOut"
    assert done.stdout == f"{{'{kind}'}}\n"


def test_a_signal_while_code_is_written(monkeypatch):
    """What the handler raises comes out of the step, and the code is there for the next one."""
    monkeypatch.setenv("PENSTOCK_REGIONS", "eager")
    real = compiled.generate

    def generate(*args, **more):
        os.kill(os.getpid(), signal.SIGUSR1)
        return real(*args, **more)

    class Late(Exception):
        pass

    def handler(*_):
        raise Late

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with tf.Graph().as_default(), tf.Session() as sess:
            x = tf.placeholder(tf.float32, [3])
            y = tf.sin(x) * 2.0
            monkeypatch.setattr(compiled, "generate", generate)
            with pytest.raises(Late):
                sess.run(y, {x: [0.0, 0.0, 0.0]})
            monkeypatch.setattr(compiled, "generate", real)
            np.testing.assert_array_equal(sess.run(y, {x: [0.0, 0.0, 0.0]}), [0, 0, 0])
            programs = [e.compiler.program for prepared in sess._runtime._prepared.values() for e in prepared.executors]
            assert programs and None not in programs
    finally:
        signal.signal(signal.SIGUSR1, before)
