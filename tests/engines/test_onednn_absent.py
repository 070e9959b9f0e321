"""Programs where oneDNN is not there, is something else, is switched off, or is not to be used because the process was forked."""

import os
import subprocess
import sys

import pytest

from penstock.engines.onednn import library

needs_library = pytest.mark.skipif(library.get() is None, reason="there is no oneDNN here: NumPy computes")

PROGRAM = """
import logging, os, sys
logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
import numpy as np
import penstock as tf
x = tf.placeholder(tf.float32, [4, 28, 28, 32])
w = tf.constant(np.ones((3, 3, 32, 64), np.float32))
y = tf.reduce_sum(tf.nn.conv2d(x, w, [1, 1, 1, 1], "VALID"))
z = tf.reduce_sum(tf.nn.softmax(tf.reshape(x, [-1, 32])))
feed = {x: np.ones((4, 28, 28, 32), np.float32)}
with tf.Session() as sess:
    def check():
        assert sess.run(y, feed) == 4 * 26 * 26 * 64 * 288, sess.run(y, feed)
        assert abs(sess.run(z, feed) - 4 * 28 * 28) < 1
    BODY
print("done")
"""


def program(body, **env):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("BODY", body)], env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.endswith("done\n"), done.stderr
    return done.stderr


def test_without_the_library_numpy_computes_and_says_so_once():
    told = program("check(); check()", PENSTOCK_ONEDNN_LIBRARY="/nowhere/libdnnl.so.3")
    assert told.count("penstock.engines: oneDNN is not used, NumPy computes heavy kernels: /nowhere/libdnnl.so.3") == 1


def test_a_library_that_is_not_onednn_is_refused():
    told = program("check()", PENSTOCK_ONEDNN_LIBRARY="libm.so.6")
    assert told.count("oneDNN is not used") == 1 and "dnnl_version" in told


def test_the_engine_can_be_switched_off():
    told = program("check(); from penstock.engines.onednn import library; assert not library._tried", PENSTOCK_ENGINES="numpy")
    assert not told


@needs_library
def test_a_forked_child_computes_with_numpy():
    told = program(
        "check()\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        check(); check(); os._exit(7)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "    check()"
    )
    assert told.count("oneDNN ran before this process was forked") == 1


@needs_library
def test_a_forked_child_may_be_the_first_to_use_it():
    told = program(
        "from penstock.engines.onednn import library; library.get()\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        check(); assert library.get() is not None; os._exit(7)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "    check()"
    )
    assert not told
