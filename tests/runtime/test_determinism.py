"""Results that repeat bit for bit: no clock decides what computes."""

import os
import subprocess
import sys
import textwrap

import pytest

from penstock.ops.kernels import threads
from penstock.runtime.executor.chooser import Chooser

PROGRAM = """
    import hashlib, numpy as np, penstock as tf
    {switch}
    numbers = np.random.RandomState(0)
    x = tf.placeholder(tf.float32, [None, 600])
    weights = [tf.Variable(numbers.randn(600, 500).astype("f") * 0.04), tf.Variable(numbers.randn(500, 300).astype("f") * 0.04)]
    y = tf.tanh(tf.matmul(tf.nn.relu(tf.matmul(x, weights[0])), weights[1]))
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(tf.reduce_mean(tf.square(y - 0.3)))
    fed = [numbers.rand(n, 600).astype("f") for n in (128, 64, 128, 3)]
    from penstock.runtime.executor.chooser import Chooser
    Chooser.WORTH_NS, Chooser.STEPS = 0, 2
    {favour}
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for i in range(16):
            sess.run(train, {{x: fed[i % 4]}})
        print(hashlib.md5(b"".join(v.tobytes() for v in sess.run(weights))).hexdigest())
"""
SWITCH = "tf.config.experimental.enable_op_determinism()"


def digest(favour, switch=SWITCH, **environment):
    """Of the weights after some steps, in a process of its own in which one way or the other seems to be the quicker one."""
    code = textwrap.dedent(PROGRAM).format(favour=f"Chooser._on_pool_is_quicker = {favour}", switch=switch)
    code = code.replace("with tf.Session()", "record = Chooser.record\nChooser.record = lambda self, on_pool, ns, shapes: record(self, on_pool, 1 if on_pool == Chooser._on_pool_is_quicker else 10**9, shapes)\nwith tf.Session()", 1)
    env = {**os.environ, "PENSTOCK_XLA": "0", **environment}
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env, timeout=100).stdout.strip()


def test_steps_repeat_whatever_seems_to_be_quicker():
    found = {digest(True), digest(False), digest(True, switch="", TF_DETERMINISTIC_OPS="1")}
    assert len(found) == 1 and len(found.pop()) == 32


@pytest.mark.parametrize("determined", [True, False])
def test_a_choice_by_trial_is_made_beforehand(determined, monkeypatch):
    monkeypatch.setattr(threads, "_required", determined)
    monkeypatch.delenv("TF_DETERMINISTIC_OPS", raising=False)
    chooser = Chooser()
    for i in range(len(Chooser.TRIAL)):
        chooser.record(chooser.on_pool(), 10**9 if not chooser.on_pool() else 10**7, (i,) * 0)
    assert chooser.on_pool() is not determined
