"""Assert, Print, py_func and session handles."""

import gc
import time

import numpy as np
import pytest

import penstock as tf
from penstock.ops.debug import PY_FUNCTIONS
from penstock.ops.kernels.summarize import summarize


class TestSummaries:
    @pytest.mark.parametrize(
        ("value", "limit", "want"),
        [
            (np.float32(1.5), 3, "1.5"),
            (np.arange(1, 6), 3, "1 2 3..."),
            (np.arange(1, 6), -1, "1 2 3 4 5"),
            (np.arange(6.0).reshape(2, 3), 3, "[0 1 2]..."),
            (np.arange(6.0).reshape(2, 3), 2, "[0 1...]..."),
            (np.arange(24).reshape(2, 3, 4), 3, "[[0 1 2...]]..."),
            (np.arange(16).reshape(2, 2, 2, 2), 3, "[[[0 1][2...]]]..."),
            (np.arange(10).reshape(10, 1), 3, "[0][1][2]..."),
            (np.array([True, False]), 3, "1 0"),
            (np.array([b"ab", b"c\n'", "é".encode()], object), 3, "ab c\\n\\' é"),
            (
                np.array([1e-10, 1e10, 3.14159274, np.nan, np.inf, 1e5, 123456789.0], np.float32),
                -1,
                "1e-10 1e+10 3.14159274 nan inf 100000 123456792",
            ),
            (np.array([np.pi, 0.1]), -1, "3.1415926535897931 0.1"),
            (np.zeros((0, 3)), 3, ""),
        ],
    )
    def test_first_values(self, value, limit, want):
        assert summarize(value, limit) == want


class TestAssert:
    @pytest.mark.parametrize("data", [[1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0]])
    def test_message(self, data):
        x = tf.placeholder(tf.bool, [])
        check = tf.Assert(x, ["x was false:", tf.constant(data)])
        with tf.control_dependencies([check]):
            y = tf.constant(1.0) + 1.0
        with tf.Session() as sess:
            assert sess.run(y, {x: True}) == 2
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"assertion failed: \[x was false:\] \[1 2 3\.\.\.\]"
            ):
                sess.run(y, {x: False})


class TestPrint:
    def test_print(self, capfd):
        x = tf.placeholder(tf.float32, [None])
        y = tf.Print(x, [x, tf.shape(x)], "x: ", first_n=2, summarize=2)
        with tf.Session() as sess:
            for _ in range(3):
                assert sess.run(y, {x: [1, 2, 3]}).tolist() == [1, 2, 3]
        assert capfd.readouterr().err == "x: [1 2...][3]\n" * 2

    def test_gradient_passes(self):
        x = tf.constant(2.0)
        (grad,) = tf.gradients(tf.Print(x * x, [x]), [x])
        with tf.Session() as sess:
            assert sess.run(grad) == 4

    def test_print_v2(self, capfd, tmp_path):
        with tf.Session() as sess:
            sess.run(tf.print(tf.constant("hello"), end="!\n"))
            sess.run(tf.print(tf.constant("out"), output_stream="stdout"))
            path = tmp_path / "log"
            for _ in range(2):
                sess.run(tf.print(tf.constant("line"), output_stream=f"file://{path}"))
            sess.run(tf.print("x:", tf.constant([1, 2]), {"a": tf.constant(1.5), "b": [2, None]}, sep="|"))
        got = capfd.readouterr()
        assert got.err == "hello!\nx:|[1 2]|{'a': 1.5, 'b': [2, None]}\n" and got.out == "out\n"
        assert path.read_text() == "line\nline\n"
        with pytest.raises(ValueError, match="Unsupported output stream"):
            tf.print("a", output_stream="nowhere")
        with pytest.raises(ValueError, match="Unrecognized keyword"):
            tf.print("a", colour="red")

    def test_timestamp(self):
        with tf.Session() as sess:
            assert (
                abs(sess.run(tf.timestamp() if hasattr(tf, "timestamp") else tf.raw_ops.Timestamp()) - time.time()) < 60
            )


class TestPyFunc:
    def run(self, *args, **kwargs):
        with tf.Session() as sess:
            return sess.run(tf.py_func(*args, **kwargs))

    def test_values(self):
        seen = []

        def function(a, b, c, d):
            seen.extend([a, b, c, d])
            b += 1
            return np.float32(1), [b"x", b"y"], b

        one, text, b = self.run(
            lambda *args: (function(*args)[0], np.array(["x", "y"]), args[1]),
            [tf.constant(1.5), tf.constant([1, 2]), tf.constant("s"), tf.constant(["t"])],
            [tf.float32, tf.string, tf.int32],
        )
        assert (one, text.tolist(), b.tolist()) == (1, [b"x", b"y"], [2, 3])
        assert isinstance(seen[0], np.float32) and seen[2] == b"s" and seen[3].tolist() == [b"t"]

    def test_inputs_are_copies(self):
        constant = tf.constant([1.0, 2.0])

        def function(x):
            x += 1
            return x

        result = tf.py_func(function, [constant], tf.float32)
        with tf.Session() as sess:
            assert sess.run([result, constant])[1].tolist() == [1, 2]
            assert sess.run(result).tolist() == [2, 3]

    def test_results_do_not_change_later(self):
        buffer = np.zeros(2, np.float32)

        def function():
            buffer[:] += 1
            return buffer

        v = tf.Variable([0.0, 0.0])
        value = tf.py_func(function, [], tf.float32)
        value.set_shape([2])
        with tf.Session() as sess:
            first = sess.run(v.assign(value))
            assert sess.run(value).tolist() == [2, 2]
            assert first.tolist() == [1, 1] and sess.run(v).tolist() == [1, 1]

    def test_shapes_of_results(self):
        assert isinstance(tf.py_func(lambda: 1.0, [], tf.float64), tf.Tensor)
        assert isinstance(tf.py_func(lambda: 1.0, [], [tf.float64]), list)
        assert isinstance(tf.py_func(lambda: None, [], []), tf.Operation)
        assert tf.py_func(lambda x: x, [1.0], tf.float32, stateful=False).op.type == "PyFuncStateless"
        assert tf.numpy_function(lambda x: x, [1.0], tf.float32, name="f").op.name == "f"

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda: 1.0, "0-th value returned by pyfunc_[0-9]+ is double, but expects float"),
            (lambda: (1.0, 2.0), "returns 2 values, but expects to see 1 values"),
            (lambda: None, "returns 0 values, but expects to see 1 values"),
        ],
    )
    def test_wrong_results(self, function, message):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            self.run(function, [], tf.float32)

    @pytest.mark.parametrize(
        ("raised", "expected"),
        [
            (ValueError("bad"), tf.errors.InvalidArgumentError),
            (TypeError("bad"), tf.errors.InvalidArgumentError),
            (StopIteration("bad"), tf.errors.OutOfRangeError),
            (MemoryError("bad"), tf.errors.ResourceExhaustedError),
            (NotImplementedError("bad"), tf.errors.UnimplementedError),
            (RuntimeError("bad"), tf.errors.UnknownError),
            (KeyError("bad"), tf.errors.UnknownError),
        ],
    )
    def test_exceptions(self, raised, expected):
        def function():
            raise raised

        with pytest.raises(expected, match=type(raised).__name__ + ": '?bad"):
            self.run(function, [], tf.float32)

    def test_functions_live_as_long_as_their_graph(self):
        gc.collect()
        before = len(PY_FUNCTIONS)
        graph = tf.Graph()
        with graph.as_default():
            tf.py_func(lambda: 1.0, [], tf.float64)
        assert len(PY_FUNCTIONS) == before + 1
        del graph
        gc.collect()
        assert len(PY_FUNCTIONS) == before


class TestHandles:
    def test_round_trip(self):
        with tf.Session() as sess:
            handle = sess.run(tf.get_session_handle(tf.constant([1.0, 2.0]) * 2.0))
            holder, value = tf.get_session_tensor(handle.handle, tf.float32)
            assert sess.run(value * 10.0, {holder: handle.handle}).tolist() == [20, 40]
            assert handle.handle.startswith("GetSessionHandle;") and "CPU:0" in handle.handle
            holder, delete = tf.delete_session_tensor(handle.handle)
            sess.run(delete, {holder: handle.handle})
            with pytest.raises(tf.errors.InvalidArgumentError, match="is not in the session store"):
                sess.run(value, {tf.get_default_graph().get_tensor_by_name("Placeholder:0"): handle.handle})
