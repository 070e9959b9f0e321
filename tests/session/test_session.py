"""Sessions: fetches, feeds, callables, partial runs, handles, options, errors, threads."""

import collections
import subprocess
import sys
import threading

import attr
import numpy as np
import pytest

import penstock as tf
from tests import steps


@pytest.fixture
def sess():
    with tf.Session() as session:
        yield session


def test_one_add(sess):
    assert sess.run(tf.constant(1.0) + 2.0) == np.float32(3.0)


def test_results_have_tensorflows_types(sess):
    scalar, vector, text, flag = sess.run([tf.constant(1), tf.constant([1.0]), tf.constant("a"), tf.constant(True)])
    assert isinstance(scalar, np.int32) and isinstance(vector, np.ndarray) and text == b"a" and isinstance(flag, np.bool_)


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024 - the kind that users pass


@attr.s
class Boxed:
    left = attr.ib()
    right = attr.ib()


def test_nested_fetches_keep_their_structure(sess):
    x = tf.constant(2)
    op = tf.no_op()
    got = sess.run({"list": [x, op], "tuple": (x,), "pair": Pair(x, x), "attrs": Boxed(x, [x]), "name": "Const:0", "empty": []})
    assert got["list"] == [2, None] and got["tuple"] == (2,) and got["pair"] == Pair(2, 2)
    assert got["attrs"] == Boxed(2, [2]) and got["name"] == 2 and got["empty"] == []
    ordered = sess.run(collections.OrderedDict([("z", x), ("a", x)]))
    assert list(ordered) == ["z", "a"] and isinstance(ordered, collections.OrderedDict)


def test_sparse_tensors_are_fetched_and_fed(sess):
    sparse = tf.SparseTensor([[0, 1]], [5.0], [2, 3])
    got = sess.run(sparse)
    assert isinstance(got, tf.SparseTensorValue) and got.values.tolist() == [5.0]
    fed = sess.run(sparse, {sparse: tf.SparseTensorValue([[1, 1]], [7.0], [2, 2])})
    assert fed.values.tolist() == [7.0] and fed.dense_shape.tolist() == [2, 2]
    slices = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([3]))
    assert sess.run(slices).indices.tolist() == [3]


def test_any_tensor_can_be_fed_and_fetched_at_once(sess):
    x = tf.constant(1.0)
    y = x * 2
    assert sess.run([x, y], {x: 5.0}) == [5.0, 10.0]
    assert sess.run(y, {y: 7.0}) == 7.0


def test_feeds_are_checked(sess):
    x = tf.placeholder(tf.float32, [2])
    with pytest.raises(ValueError, match=r"Cannot feed value of shape \(3,\) for Tensor"):
        sess.run(x, {x: [1.0, 2.0, 3.0]})
    with pytest.raises(TypeError, match="cannot be a tf.Tensor object"):
        sess.run(x, {x: tf.constant([1.0, 2.0])})
    with pytest.raises(TypeError, match="Cannot interpret feed_dict key as Tensor"):
        sess.run(x, {"nope:0": 1})
    with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed a value for placeholder"):
        sess.run(x)
    with pytest.raises(ValueError):
        sess.run(x, {x: "text"})
    i = tf.placeholder(tf.int32)
    with pytest.raises(TypeError, match="not compatible with Tensor type"):
        sess.run(i, {i: 1 << 40})


def test_unfeedable_and_unfetchable(sess):
    x = tf.constant(1)
    sess.graph.prevent_feeding(x)
    with pytest.raises(ValueError, match="may not be fed"):
        sess.run(x, {x: 2})
    y = tf.constant(1)
    sess.graph.prevent_fetching(y.op)
    with pytest.raises(ValueError, match="not fetchable"):
        sess.run(y)


def test_bad_fetches(sess):
    tf.constant(0)  # an empty graph has an error of its own
    with pytest.raises(TypeError, match="has invalid type"):
        sess.run(37)
    with pytest.raises(TypeError, match="Cannot be None"):
        sess.run(None)
    with pytest.raises(ValueError, match="cannot be interpreted as a Tensor"):
        sess.run("nope:0")
    with tf.Graph().as_default():
        other = tf.constant(1)
    with pytest.raises(ValueError, match="not an element of this graph"):
        sess.run(other)
    assert sess.run([]) == []


def test_the_graph_grows_between_runs(sess):
    x = tf.placeholder(tf.float32)
    y = x + 1
    assert sess.run(y, {x: 1}) == 2
    z = y * 10
    assert sess.run(z, {x: 1}) == 20
    assert sess.run(y, {x: 2}) == 3


def test_a_closed_session_says_so():
    sess = tf.Session()
    x = tf.constant(1)
    assert sess.run(x) == 1
    sess.close()
    sess.close()
    with pytest.raises(RuntimeError, match="closed Session"):
        sess.run(x)


def test_fetched_arrays_belong_to_the_caller(sess):
    c = tf.constant([1.0, 2.0])
    v = tf.Variable([1.0, 2.0], use_resource=True)
    sess.run(v.initializer)
    for tensor in (c, v, tf.transpose(c), tf.reshape(v, [2, 1])):
        value = sess.run(tensor)
        value[...] = 99.0
        assert not np.any(sess.run(tensor) == 99.0), tensor


def test_a_fed_array_is_not_kept_by_variables(sess):
    p = tf.placeholder(tf.float32, [2])
    for use_resource in (False, True):
        v = tf.Variable([0.0, 0.0], use_resource=use_resource)
        assign = v.assign(p)
        data = np.array([1.0, 2.0], np.float32)
        sess.run(assign.op if hasattr(assign, "op") else assign, {p: data})
        data[:] = 7.0
        assert sess.run(v).tolist() == [1.0, 2.0]


def test_callables(sess):
    x = tf.placeholder(tf.float32, [])
    y = tf.placeholder(tf.float32, [])
    f = sess.make_callable({"sum": x + y}, [x, y])
    assert f(1.0, 2.0) == {"sum": 3.0}
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected 2 feed values, but got 1"):
        f(1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least one target"):
        sess.make_callable([])
    g = sess.make_callable(x, [x], accept_options=True)
    metadata = tf.RunMetadata()
    assert g(3.0, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata) == 3.0
    assert metadata.step_stats.dev_stats


def test_callables_from_options(sess):
    a = tf.constant(1.0, name="a")
    b = tf.identity(a, name="b")
    tf.add(b, 1.0, name="c")
    x = tf.placeholder(tf.float32, [], name="x")
    tf.multiply(x, 10.0, name="y")
    options = tf.CallableOptions(fetch=["y:0", "c:0"], feed=["x:0"])
    options.tensor_connection.add(from_tensor="y:0", to_tensor="b:0")
    options.feed_devices["x:0"] = "/device:CPU:0"
    call = sess._make_callable_from_options(options)
    assert call(2.0) == [20.0, 21.0]
    bad = tf.CallableOptions(fetch=["y:0"])
    bad.tensor_connection.add(from_tensor="nope:0", to_tensor="b:0")
    with pytest.raises(tf.errors.OpError):
        sess._make_callable_from_options(bad)


def test_partial_runs(sess):
    a, b, c = (tf.placeholder(tf.float32, []) for _ in range(3))
    first, second = a + b, (a + b) * c
    handle = sess.partial_run_setup([first, second], [a, b, c])
    with pytest.raises(tf.errors.InvalidArgumentError, match="can't be computed from the feeds"):
        sess.partial_run(handle, second, {a: 1})
    assert sess.partial_run(handle, first, {a: 1, b: 2}) == 3
    with pytest.raises(tf.errors.InvalidArgumentError, match="already been fe"):
        sess.partial_run(handle, first, {})
    assert sess.partial_run(handle, second, {c: 10}) == 30
    with pytest.raises(tf.errors.InvalidArgumentError, match="Must run 'setup'"):
        sess.partial_run(handle, second, {})


def test_tensor_handles(sess):
    x = tf.constant([1.0, 2.0])
    handle = sess.run(tf.get_session_handle(x * 10))
    assert isinstance(handle, tf.TensorHandle)
    holder, value = tf.get_session_tensor(handle.handle, tf.float32)
    assert sess.run(value + 1, {holder: handle.handle}).tolist() == [11.0, 21.0]
    holder, deleter = tf.delete_session_tensor(handle.handle)
    sess.run(deleter, {holder: handle.handle})
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in the session store"):
        holder, value = tf.get_session_tensor(handle.handle, tf.float32)
        sess.run(value, {holder: handle.handle})


def test_run_options_and_metadata(sess):
    x = tf.constant(1.0, name="x") + tf.placeholder_with_default(2.0, [])
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    sess.run(x, options=options, run_metadata=metadata)
    assert metadata.partition_graphs[0].node
    assert any(row.timeline_label for row in metadata.step_stats.dev_stats[0].node_stats)


def test_two_devices_and_list_devices():
    config = tf.ConfigProto(device_count={"CPU": 2})
    with tf.device("/cpu:0"):
        a = tf.placeholder(tf.float32, [])
    with tf.device("/cpu:1"):
        b = a * 2
    with tf.device("/cpu:0"):
        c = b + a
    with tf.Session(config=config) as sess:
        assert [d.name[-5:] for d in sess.list_devices()] == ["CPU:0", "CPU:1"]
        assert sess.run(c, {a: 3.0}) == 9.0
        explanation = sess.explain(c, [a])
        assert len(explanation.partitions) == 2 and len(explanation.transfers) == 2
        assert "asked for" in explanation.node(b.op.name).reason
        assert __file__ in explanation.node(b.op.name).line
        assert "stage" in str(explanation)


def test_placement_errors_and_soft_placement():
    with tf.device("/gpu:0"):
        x = tf.constant(1.0)
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device for operation"):
        sess.run(x)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
        assert sess.run(x) == 1.0


def test_many_threads_share_a_session(sess):
    x = tf.placeholder(tf.float32, [])
    y = tf.sqrt(x * x + 1.0)
    errors = []

    def work(i):
        try:
            for k in range(50):
                value = float(i * 100 + k)
                assert abs(sess.run(y, {x: value}) - np.sqrt(np.float32(value * value + 1))) < 1e-2
                sess.run(x + i, {x: value})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_errors_name_the_node_and_the_line(sess):
    x = tf.placeholder(tf.float32, [None], name="x")
    y = tf.placeholder(tf.float32, [None], name="y")
    z = tf.add(x, y, name="z")
    with pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes") as caught:
        sess.run(z, {x: [1.0, 2.0], y: [1.0, 2.0, 3.0]})
    error = caught.value
    assert error.op is z.op and error.node_def.name == "z"
    assert __file__ in str(error) and "float32" in str(error)
    assert sess.run(z, {x: [1.0], y: [2.0]}).tolist() == [3.0]


def test_unknown_target_names_the_factories():
    with pytest.raises(tf.errors.NotFoundError, match="No session factory registered"):
        tf.Session("nowhere://")


def test_default_sessions():
    x = tf.constant(3)
    with pytest.raises(ValueError, match="No default session is registered"):
        x.eval()
    with tf.Session():
        assert x.eval() == 3
    session = tf.InteractiveSession()
    assert x.eval() == 3
    session.close()
    assert tf.get_default_session() is None


def test_reset_clears_containers():
    v = tf.Variable(1.0, use_resource=True)
    sess = tf.Session()
    sess.run(v.initializer)
    tf.Session.reset("")
    with pytest.raises(RuntimeError, match="closed"):
        sess.run(v)


def test_conversion_functions(sess):
    class Doubled:
        def __init__(self, tensor):
            self.tensor = tensor

    tf.register_session_run_conversion_functions(Doubled, lambda d: ([d.tensor], lambda v: v[0] * 2), lambda d, v: [(d.tensor, v)])
    d = Doubled(tf.placeholder(tf.float32, []))
    assert sess.run(d, {d: 4.0}) == 8.0


def test_py_func_may_run_the_session_again(sess):
    inner = tf.constant(5.0)
    outer = tf.py_func(lambda: np.float32(sess.run(inner) + 1), [], tf.float32)
    assert sess.run(outer) == 6.0


def test_operation_timeout():
    queue = tf.FIFOQueue(1, tf.float32)
    item = queue.dequeue()
    with tf.Session(config=tf.ConfigProto(operation_timeout_in_ms=100)) as sess, pytest.raises(tf.errors.DeadlineExceededError):
        sess.run(item)
    with tf.Session() as sess, pytest.raises(tf.errors.DeadlineExceededError):
        sess.run(item, options=tf.RunOptions(timeout_in_ms=100))


def test_close_cancels_waiting_steps():
    queue = tf.FIFOQueue(1, tf.float32)
    item = queue.dequeue()
    sess = tf.Session()
    outcome = []

    def wait():
        try:
            sess.run(item)
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    steps.wait_until(lambda: steps.is_waiting(thread))
    sess.close()
    thread.join(60)
    assert not thread.is_alive() and isinstance(outcome[0], tf.errors.CancelledError)


def test_a_tuple_of_fetches_is_not_taken_for_a_fed_run(sess):
    x = tf.constant(1.0)
    y = x + 1.0
    assert sess.run(y, {x: 5.0}) == 6.0
    assert sess.run((y, x)) == (2.0, 1.0)


def test_an_empty_graph_cannot_run():
    with tf.Session(graph=tf.Graph()) as sess, pytest.raises(RuntimeError, match="The Session graph is empty"):
        sess.run([])


def test_partial_runs_know_only_what_was_set_up(sess):
    a = tf.placeholder(tf.float32, [])
    b = a + 1.0
    c = b + 1.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="fetch .* was not specified in partial_run_setup"):
        sess.partial_run(sess.partial_run_setup([b], [a]), c, {a: 1.0})
    with pytest.raises(tf.errors.InvalidArgumentError, match="feed .* was not specified in partial_run_setup"):
        sess.partial_run(sess.partial_run_setup([c], [a]), c, {b: 1.0})


def test_the_interpreter_ends_with_an_open_partial_run():
    program = "import penstock as tf; a = tf.placeholder(tf.float32, []); s = tf.Session(); h = s.partial_run_setup([a + 1.0], [a])"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


@pytest.mark.parametrize(
    "connections, match",
    [
        ([("nope:0", "p:0")], "unknown node"),
        ([("y:0", "p:0")], "would create a cycle"),
        ([("whole:0", "p:0")], "of type int32"),
        ([("c:0", "p:0"), ("y:0", "p:0")], "more than once"),
    ],
)
def test_bad_tensor_connections(sess, connections, match):
    p = tf.placeholder(tf.float32, [], name="p")
    tf.add(p, 1.0, name="y")
    tf.constant(8.0, name="c")
    tf.constant(8, name="whole")
    options = tf.CallableOptions(fetch=["y:0"])
    for source, to in connections:
        options.tensor_connection.add(from_tensor=source, to_tensor=to)
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        sess._make_callable_from_options(options)()


def test_tensor_connections_that_only_control_edges_or_nobody_needs(sess):
    p = tf.placeholder(tf.float32, [], name="p")
    tf.constant(8.0, name="c")
    tf.constant(1.0, name="alone")
    with tf.control_dependencies([p]):
        tf.constant(4.0, name="y")
    for fetch, value in (("y:0", 4.0), ("alone:0", 1.0)):
        options = tf.CallableOptions(fetch=[fetch])
        options.tensor_connection.add(from_tensor="c:0", to_tensor="p:0")
        assert sess._make_callable_from_options(options)() == [value]


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_variable_is_written_where_it_lives(use_resource):
    with tf.device("/cpu:0"):
        v = tf.Variable(1.0, use_resource=use_resource)
    with tf.device("/cpu:1"):
        write = v.assign(2.0)
        read = v + 1.0
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        sess.run(v.initializer)
        assert sess.run(read) == 2.0
        sess.run(write)
        assert sess.run(read) == 3.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8])
def test_fetched_views_are_copies_in_order(dtype):
    given = np.random.RandomState(0).randn(300, 170).astype(dtype)
    variable = tf.Variable(given)
    rows = tf.placeholder(tf.int32)
    fetches = [tf.transpose(variable), tf.einsum("ij->ji", tf.cast(variable, tf.float32)), variable[::2, ::-1], tf.broadcast_to(variable[0], [rows, 170])]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(5):
            found = sess.run(fetches, {rows: 500})
            for got, want in zip(found, [given.T, given.T.astype(np.float32), given[::2, ::-1], np.broadcast_to(given[0], (500, 170))], strict=True):
                np.testing.assert_array_equal(got, want, strict=True)
                got[...] = 7
        np.testing.assert_array_equal(sess.run(variable), given)


@pytest.mark.parametrize("value", [2, -1, 3])
def test_a_number_that_is_no_truth_value_is_not_fed_for_one(value):
    x = tf.placeholder(tf.bool, [])
    with tf.Session() as sess:
        assert [bool(sess.run(tf.identity(x), {x: fed})) for fed in (0, 1, True)] == [False, True, True]
        with pytest.raises(TypeError, match=f"Type of feed value {value} .* is not compatible"):
            sess.run(tf.identity(x), {x: value})


def test_errors_call_feeds_by_the_users_names():
    x = tf.placeholder(tf.float32, [None, 3], name="mine")
    y = tf.matmul(x, x)
    with tf.Session() as sess:
        for _ in range(3):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"MatMul\(mine:0, mine:0\)\n.*\n  input mine:0: float32\[2,3\]"):
                sess.run(y, {x: np.ones((2, 3), np.float32)})
