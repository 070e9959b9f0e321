"""Monitored sessions, their hooks, and how sessions are made ready."""

import logging
import threading
import time

import numpy as np
import pytest

import penstock as tf


def counting():
    """A graph whose `train` adds one to the global step."""
    step = tf.train.get_or_create_global_step()
    return step, tf.assign_add(step, 1)


class Diary(tf.train.SessionRunHook):
    """Notes what happens to it."""

    def __init__(self, args=None):
        self.lines, self.args, self.results = [], args, []

    def begin(self):
        self.lines.append("begin")

    def after_create_session(self, session, coord):
        self.lines.append("create")
        self.coord = coord

    def before_run(self, run_context):
        self.lines.append("before")
        self.original = run_context.original_args
        return self.args

    def after_run(self, run_context, run_values):
        self.lines.append("after")
        self.results.append(run_values.results)

    def end(self, session):
        self.lines.append("end")


def test_hooks_are_called_in_order():
    _, train = counting()
    x = tf.placeholder(tf.float32, [])
    hook = Diary(tf.train.SessionRunArgs({"y": x * 2}, feed_dict={x: 4.0}))
    with tf.train.MonitoredSession(hooks=[hook]) as sess:
        assert sess.run(train) == 1
        assert sess.run([train, [train]]) == [2, [2]] and sess.run((train,)) == (3,)
        assert sess.run({"t": train}) == {"t": 4} and not sess.should_stop()
    assert hook.lines == ["begin", "create", *["before", "after"] * 4, "end"]
    assert hook.results == [{"y": 8.0}] * 4 and hook.original.fetches == {"t": train}
    with pytest.raises(RuntimeError, match="already closed"):
        sess.close()


def test_stop_at_step():
    _, train = counting()
    with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(last_step=5)]) as sess:
        values = []
        while not sess.should_stop():
            values.append(sess.run(train))
    assert values == [1, 2, 3, 4, 5]
    with tf.train.SingularMonitoredSession(hooks=[tf.train.StopAtStepHook(num_steps=2)]) as sess:
        count = 0
        while not sess.should_stop():
            sess.run(train)
            count += 1
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
            sess.run(train)
    assert count == 2


def test_the_graph_is_finalized_while_the_session_lives():
    _, train = counting()
    with tf.train.MonitoredSession() as sess:
        sess.run(train)
        with pytest.raises(RuntimeError, match="finalized"):
            tf.constant(1)
    tf.constant(1)


def test_the_end_of_the_input_is_a_good_end():
    _, train = counting()
    queue = tf.train.range_input_producer(5, num_epochs=1, shuffle=False)
    item, hook, items = queue.dequeue(), Diary(), []
    with tf.train.MonitoredTrainingSession(hooks=[hook]) as sess:
        while not sess.should_stop():
            items.append(sess.run([item, train])[0])
    assert items == [0, 1, 2, 3, 4] and hook.lines[-1] == "end"
    assert not any(t.name.startswith("QueueRunnerThread") for t in threading.enumerate())


def test_errors_come_out_and_skip_the_hooks_end():
    _, train = counting()
    bad, hook = tf.Assert(tf.constant(False), ["broken"]), Diary()
    with pytest.raises(tf.errors.InvalidArgumentError, match="broken"), tf.train.MonitoredSession(hooks=[hook]) as sess:
        sess.run(train)
        sess.run(bad)
    assert hook.lines[-1] == "before"


def test_a_lost_worker_means_a_new_session():
    step, train = counting()
    failures = [tf.errors.AbortedError(None, None, "lost"), tf.errors.UnavailableError(None, None, "lost again")]

    class Flaky(tf.train.SessionRunHook):
        created = 0

        def after_create_session(self, session, coord):
            self.created += 1

        def before_run(self, run_context):
            if failures:
                raise failures.pop()

    hook = Flaky()
    with tf.train.MonitoredSession(hooks=[hook]) as sess:
        assert sess.run(train) == 1
    assert hook.created == 3
    failures.append(tf.errors.AbortedError(None, None, "lost"))
    with pytest.raises(tf.errors.AbortedError), tf.train.SingularMonitoredSession(hooks=[hook]) as sess:
        sess.run(train)


def test_step_functions():
    step, train = counting()
    hook, seen = Diary(), []

    def step_fn(step_context):
        seen.append(int(step_context.session.run(step)))
        if seen[-1] >= 2:
            step_context.request_stop()
        return step_context.run_with_hooks(train)

    with tf.train.MonitoredSession(hooks=[hook]) as sess:
        while not sess.should_stop():
            sess.run_step_fn(step_fn)
    assert seen == [0, 1, 2] and hook.lines.count("before") == 2
    with tf.train.MonitoredSession() as sess, pytest.raises(ValueError, match="step_context"):
        sess.run_step_fn(lambda x: x)


def test_variables_tables_and_local_variables_are_ready():
    v = tf.Variable(3.0)
    local = tf.Variable(4.0, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    fed = tf.placeholder(tf.float32, [])
    w = tf.Variable(fed)
    scaffold = tf.train.Scaffold(init_feed_dict={fed: 9.0})
    with tf.train.SingularMonitoredSession(scaffold=scaffold) as sess:
        assert sess.run([v, local, w]) == [3.0, 4.0, 9.0]
    assert scaffold.init_op is not None and scaffold.local_init_op is not None


def test_scaffolds_take_what_they_are_given():
    v = tf.Variable(3.0)
    calls = []
    init = tf.group(tf.global_variables_initializer(), name="mine")
    scaffold = tf.train.Scaffold(init_op=init, init_fn=lambda scaffold, session: calls.append((scaffold, session)))
    with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold)) as sess:
        assert sess.run(v) == 3.0
    assert calls[0][0] is scaffold and scaffold.init_op is init
    assert tf.train.Scaffold(copy_from_scaffold=scaffold).init_op is init
    with pytest.raises(TypeError, match="not a Scaffold instance"):
        tf.train.Scaffold(copy_from_scaffold=3)


def test_a_model_that_is_not_initialised_is_refused():
    tf.Variable(3.0, name="v")
    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables())
    with pytest.raises(RuntimeError, match="Init operations did not make model ready.*Variables not initialized: v"):
        manager.prepare_session("", init_op=tf.no_op())
    with pytest.raises(RuntimeError, match="no init_op or init_fn or local_init_op was given"):
        manager.prepare_session("")
    with pytest.raises(ValueError, match="must also pass a local_init_op"):
        tf.train.SessionManager(ready_for_local_init_op=tf.no_op())
    sess, ready = manager.recover_session("")
    assert not ready
    sess.close()
    manager = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), recovery_wait_secs=0.01)
    with pytest.raises(tf.errors.DeadlineExceededError, match="Session was not ready"):
        manager.wait_for_session("", max_wait_secs=0.05)


def test_logging_tensors(caplog):
    step, train = counting()
    loss = tf.multiply(tf.cast(step, tf.float32), 0.5, name="loss")
    hooks = [
        tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=2),
        tf.train.LoggingTensorHook(["loss:0"], at_end=True),
        tf.train.LoggingTensorHook([loss], every_n_iter=100, formatter=lambda values: f"formatted {sorted(values)}"),
    ]
    with caplog.at_level(logging.INFO, logger="tensorflow"), tf.train.MonitoredSession(hooks=hooks) as sess:
        for _ in range(4):
            sess.run(train)
    logged = [r.getMessage() for r in caplog.records]
    assert sum(m.startswith("loss = ") for m in logged) == 2 and any("sec)" in m for m in logged)
    assert "loss:0 = 2.0" in logged and "formatted ['loss:0']" in logged
    with pytest.raises(ValueError, match="exactly one of every_n_iter and every_n_secs"):
        tf.train.LoggingTensorHook([loss])


def test_counting_steps(caplog):
    _, train = counting()
    with caplog.at_level(logging.INFO, logger="tensorflow"), tf.train.MonitoredSession(hooks=[tf.train.StepCounterHook(every_n_steps=2)]) as sess:
        for _ in range(5):
            sess.run(train)
    assert any(r.getMessage().startswith("global_step/sec: ") for r in caplog.records)


def test_nan_losses():
    _, train = counting()
    loss = tf.placeholder_with_default(np.float32(1.0), [])
    with pytest.raises(tf.train.NanLossDuringTrainingError), tf.train.MonitoredSession(hooks=[tf.train.NanTensorHook(loss)]) as sess:
        sess.run(train)
        sess.run(train, {loss: np.nan})
    with tf.train.MonitoredSession(hooks=[tf.train.NanTensorHook(loss, fail_on_nan_loss=False)]) as sess:
        sess.run(train, {loss: np.nan})
        assert sess.should_stop()


def test_feeds_final_ops_and_waiting():
    step, train = counting()
    x = tf.placeholder(tf.float32, [])
    final = tf.train.FinalOpsHook([step, x + 1], final_ops_feed_dict={x: 1.0})
    hooks = [tf.train.FeedFnHook(lambda: {x: 5.0}), final, tf.train.GlobalStepWaiterHook(0)]
    with tf.train.MonitoredSession(hooks=hooks) as sess:
        assert sess.run([x, train]) == [5.0, 1]
        with pytest.raises(RuntimeError, match="Same tensor is fed by a SessionRunHook and user"):
            sess.run(x, {x: 1.0})
    assert final.final_ops_values == [1, 2.0]


class FakeSaver:
    """Keeps what it is told to save."""

    def __init__(self):
        self.saved = []

    def save(self, sess, path, global_step, write_meta_graph):
        self.saved.append((path.rsplit("/")[-1], global_step))


def test_checkpoints_are_saved_in_time(tmp_path):
    _, train = counting()
    saver, heard = FakeSaver(), []

    class Listener(tf.train.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            heard.append(global_step_value)
            return global_step_value >= 4

    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=2, saver=saver, listeners=[Listener()])
    with tf.train.MonitoredSession(hooks=[hook]) as sess:
        while not sess.should_stop():
            sess.run(train)
    assert saver.saved == [("model.ckpt", n) for n in (0, 2, 4)] and heard == [0, 2, 4]
    assert "global_step" in (tmp_path / "graph.pbtxt").read_text()


def test_timers():
    timer = tf.train.SecondOrStepTimer(every_steps=3)
    assert timer.should_trigger_for_step(1) and timer.update_last_triggered_step(1) == (None, None)
    assert [timer.should_trigger_for_step(n) for n in (1, 2, 3, 4)] == [False, False, False, True]
    assert timer.update_last_triggered_step(5)[1] == 4 and timer.last_triggered_step() == 5
    for seconds, is_over in ((1000.0, False), (0.02, True)):
        timer = tf.train.SecondOrStepTimer(every_secs=seconds)
        timer.update_last_triggered_step(1)
        time.sleep(0.03)
        assert timer.should_trigger_for_step(2) == is_over
    with pytest.raises(ValueError, match="Can not provide both"):
        tf.train.SecondOrStepTimer(1.0, 2)


def test_run_options_of_hooks_are_merged():
    _, train = counting()
    hook = Diary(tf.train.SessionRunArgs(None, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)))
    metadata = []

    class Watcher(tf.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            metadata.append(run_values.run_metadata)

    with tf.train.MonitoredSession(hooks=[hook, Watcher()]) as sess:
        sess.run(train)
    assert metadata[0].step_stats.dev_stats
