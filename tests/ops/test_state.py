"""Variables at run time: what readers see, when memory is reused, and what the state ops do."""

import threading

import numpy as np
import pytest

import penstock as tf
from penstock import dtypes
from penstock.ops.kernels import optimizers
from penstock.ops.kernels.rows import passes, scatter_rows
from penstock.ops.resources import Owned, Ref


def address(ref):
    return ref.value.__array_interface__["data"][0]


def make(value):
    ref = Ref(dtypes.float32, np.shape(value), "v")
    ref.assign(np.array(value, np.float32))
    return ref


class TestRef:
    def test_a_reader_keeps_what_it_read(self):
        ref = make([1, 2, 3])
        seen = ref.read()
        ref.update(np.add, np.float32(10))
        with Owned(ref) as (array,):
            array *= 2
        assert seen.tolist() == [1, 2, 3]
        assert ref.read().tolist() == [22, 24, 26]

    def test_a_view_counts_as_a_reader(self):
        ref = make([1, 2, 3])
        part = ref.read()[1:]
        ref.update(np.add, np.float32(1))
        assert part.tolist() == [2, 3]

    def test_memory_is_reused_when_nobody_looks(self):
        ref = make(np.zeros(100))
        where = address(ref)
        for _ in range(3):
            ref.update(np.add, np.float32(1))
            with Owned(ref) as (array,):
                array += 1
            del array
        assert address(ref) == where
        assert ref.read()[0] == 6

    def test_assigned_values_are_shared_until_written_to(self):
        ref = make([0, 0])
        value = np.array([1, 2], np.float32)
        ref.assign(value)
        assert ref.read() is value
        ref.update(np.add, np.float32(1))
        assert value.tolist() == [1, 2]

    def test_assigned_views_are_copied(self):
        ref = make([0, 0])
        value = np.arange(4, dtype=np.float32)
        ref.assign(value[:2])
        value[0] = 9
        assert ref.read().tolist() == [0, 1]

    def test_scalars_stay_scalars(self):
        ref = Ref(dtypes.int64, (), "step")
        ref.assign(np.int64(3))
        ref.update(np.add, np.int64(1))
        assert ref.read() == 4 and ref.read().dtype == np.int64

    def test_an_exception_leaves_the_value(self):
        ref = make([1, 2])
        with pytest.raises(ZeroDivisionError), Owned(ref):
            raise ZeroDivisionError
        with pytest.raises(ValueError):
            ref.update(np.add, np.zeros(3, np.float32))
        assert ref.read().tolist() == [1, 2]
        assert ref.lock.acquire(blocking=False)

    def test_one_variable_twice(self):
        ref = make([1, 2])
        with Owned(ref, ref) as (a, b):
            assert a is b
            a += 1
        assert ref.read().tolist() == [2, 3]

    def test_uninitialized(self):
        ref = Ref(dtypes.float32, (2,), "v")
        with pytest.raises(tf.errors.FailedPreconditionError, match="Attempting to use uninitialized value v"):
            ref.read()
        other = make([1])
        with pytest.raises(tf.errors.FailedPreconditionError), Owned(other, ref):
            pass
        assert other.read().tolist() == [1]

    def test_no_reader_sees_half_a_write(self):
        ref = make(np.zeros(20000))
        torn = []
        stop = threading.Event()

        def read():
            while not stop.is_set():
                value = ref.read()
                if value[0] != value[-1]:
                    torn.append((value[0], value[-1]))

        readers = [threading.Thread(target=read) for _ in range(2)]
        for r in readers:
            r.start()
        for _ in range(300):
            ref.update(np.add, np.float32(1))
        stop.set()
        for r in readers:
            r.join()
        assert not torn
        assert ref.read()[0] == 300


class TestRows:
    def test_passes_name_no_row_twice_and_keep_the_order(self):
        indices = np.array([3, 1, 3, 0, 3, 1])
        rounds = [p if isinstance(p, np.ndarray) else np.arange(len(indices))[p] for p in passes(indices)]
        assert [sorted(indices[p].tolist()) for p in rounds] == [[0, 1, 3], [1, 3], [3]]
        assert [int(p[indices[p] == 3][0]) for p in rounds] == [0, 2, 4]

    @pytest.mark.parametrize("how", ["update", "add", "sub", "mul", "div", "min", "max"])
    @pytest.mark.parametrize("shape", [(5,), (5, 2)])
    def test_scatter_is_the_loop(self, how, shape):
        rng = np.random.default_rng(1)
        array = rng.standard_normal(shape).astype(np.float32)
        rows = np.array([4, 0, 4, 2, 4])
        updates = rng.standard_normal((5, *shape[1:])).astype(np.float32)
        want = array.copy()
        single = {
            "add": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "div": np.divide,
            "min": np.minimum,
            "max": np.maximum,
        }
        for row, update in zip(rows, updates, strict=True):
            want[row] = update if how == "update" else single[how](want[row], update)
        scatter_rows(array, rows, updates, how)
        np.testing.assert_array_equal(array, want)

    @pytest.mark.parametrize("how", ["add", "sub", "mul", "min", "max"])
    @pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 2, 3)])
    @pytest.mark.parametrize("dtype", [np.float32, np.int64])
    def test_scatter_of_one_row(self, how, shape, dtype):
        """A single index, which is no vector."""
        rng = np.random.default_rng(1)
        start = (rng.standard_normal(shape) * 9).astype(dtype)
        ufunc = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[how]
        x = tf.placeholder(tf.int32, [])
        for updates in ((rng.standard_normal(shape[1:]) * 9).astype(dtype), np.array(3, dtype)):
            v = tf.Variable(start, use_resource=False)
            update = getattr(tf, f"scatter_{how}")(v, x, updates)
            with started(v) as sess:
                want = start.copy()
                want[3] = ufunc(want[3], updates)
                np.testing.assert_array_equal(sess.run(update, {x: 3}), want)
                for index in (-1, 5):
                    with pytest.raises(tf.errors.InvalidArgumentError, match=f"indices = {index} is not in \\[0, 5\\)"):
                        sess.run(update, {x: index})
                np.testing.assert_array_equal(sess.run(v), want)

    def test_integers_are_divided_as_in_c(self):
        array = np.array([-7, 7], np.int32)
        scatter_rows(array, np.array([0, 1]), np.array([2, -2], np.int32), "div")
        assert array.tolist() == [-3, -3]


def both(test):
    return pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])(test)


def started(*variables):
    sess = tf.Session()
    sess.run([v.initializer for v in variables])
    return sess


class TestWrites:
    @both
    def test_assign(self, use_resource):
        v = tf.Variable([1.0, 2.0], use_resource=use_resource)
        with started(v) as sess:
            assert sess.run(v.assign([3.0, 4.0])).tolist() == [3, 4]
            assert sess.run(v.assign_add([1.0, 1.0])).tolist() == [4, 5]
            assert sess.run(v.assign_sub([0.5, 1.0])).tolist() == [3.5, 4]
            assert sess.run(v).tolist() == [3.5, 4]

    @both
    def test_shapes_must_fit(self, use_resource):
        v = tf.Variable([1.0, 2.0], use_resource=use_resource)
        x = tf.placeholder(tf.float32, None)
        with started(v) as sess:
            message = "lhs shape= \\[2\\] rhs shape= \\[3\\]" if not use_resource else "Expected \\[2\\] got \\[3\\]"
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                sess.run(v.assign(x), {x: [1, 2, 3]})
            with pytest.raises(tf.errors.InvalidArgumentError):
                sess.run(v.assign_add(x), {x: [1, 2, 3]})
        with pytest.raises(ValueError):
            v.assign([1.0, 2.0, 3.0])

    def test_a_ref_variable_may_change_its_shape(self):
        v = tf.Variable([1.0, 2.0], validate_shape=False, use_resource=False)
        with started(v) as sess:
            assert sess.run(tf.assign(v, [[1.0], [2.0], [3.0]], validate_shape=False)).shape == (3, 1)

    @both
    def test_scatter(self, use_resource):
        v = tf.Variable(np.zeros((3, 2), np.float32), use_resource=use_resource)
        with started(v) as sess:
            sess.run(tf.scatter_add(v, [2, 0, 2], [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
            assert sess.run(v).tolist() == [[2, 2], [0, 0], [4, 4]]
            sess.run(tf.scatter_update(v, 1, [5.0, 6.0]))
            assert sess.run(v)[1].tolist() == [5, 6]
            assert sess.run(tf.scatter_nd_add(v, [[0, 1], [2, 0]], [10.0, 20.0])).tolist() == [[2, 12], [5, 6], [24, 4]]
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[1\] = 3 is not in \[0, 3\)"):
                sess.run(tf.scatter_sub(v, [0, 3], [[1.0, 1.0], [1.0, 1.0]]))
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"indices\[0\] = \[3, 0\] does not index into shape \[3,2\]"
            ):
                sess.run(tf.scatter_nd_update(v, [[3, 0]], [1.0]))

    @both
    def test_slices(self, use_resource):
        v = tf.Variable(np.zeros((3, 4), np.float32), use_resource=use_resource)
        with started(v) as sess:
            sess.run(v[1:, ::2].assign([[1.0, 2.0], [3.0, 4.0]]).op)
            sess.run(v[0].assign(7.0).op)
            sess.run(v[-1, 3].assign(9.0).op)
            assert sess.run(v).tolist() == [[7, 7, 7, 7], [1, 0, 2, 0], [3, 0, 4, 9]]
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"Cannot broadcast input shape \[3\] into final shape \[4\]"
            ):
                sess.run(v[0].assign(tf.placeholder_with_default([1.0, 2.0, 3.0], None)).op)

    @both
    def test_counting(self, use_resource):
        v = tf.Variable(0, use_resource=use_resource)
        count = v.count_up_to(2)
        with started(v) as sess:
            assert [sess.run(count), sess.run(count)] == [0, 1]
            with pytest.raises(tf.errors.OutOfRangeError, match="Reached limit of 2"):
                sess.run(count)

    @both
    def test_uninitialized(self, use_resource):
        v = tf.Variable([1.0], name="v", use_resource=use_resource)
        with tf.Session() as sess:
            message = "Could not find variable v" if use_resource else "Attempting to use uninitialized value v"
            with pytest.raises(tf.errors.FailedPreconditionError, match=message):
                sess.run(v)
            with pytest.raises(tf.errors.OpError):
                sess.run(v.assign_add([1.0]))
            assert not sess.run(tf.is_variable_initialized(v))
            assert sess.run(tf.report_uninitialized_variables()).tolist() == [b"v"]

    def test_strings_and_bools(self):
        s = tf.Variable(["a", "b"])
        b = tf.Variable([True, False])
        with started(s, b) as sess:
            assert sess.run(tf.scatter_update(s, [1], ["c"])).tolist() == [b"a", b"c"]
            assert sess.run(b.assign([False, False])).tolist() == [False, False]

    def test_temporary_variable(self):
        ref = tf.raw_ops.TemporaryVariable(shape=[2], dtype=tf.float32, var_name="t")
        done = tf.raw_ops.DestroyTemporaryVariable(
            ref=tf.assign_add(tf.assign(ref, [1.0, 2.0]), [1.0, 1.0]), var_name="t"
        )
        with tf.Session() as sess:
            assert sess.run(done).tolist() == [2, 3]
            assert sess.run(done).tolist() == [2, 3]


class TestReads:
    """TF's reference variables share memory with what reads them; resource variables are read when their read runs."""

    @both
    def test_behind_an_assignment(self, use_resource):
        v = tf.Variable(0.0, use_resource=use_resource)
        with tf.control_dependencies([v.assign_add(1.0)]):
            fetches = [tf.identity(v), v + 0.0, v.read_value()]
        with started(v) as sess:
            assert sess.run(fetches) == [1, 1, 1]
            assert sess.run(fetches) == [2, 2, 2]

    def test_an_identity_of_a_ref_is_no_copy(self):
        v = tf.Variable(0.0, use_resource=False)
        old, copied = tf.identity(v), v + 0.0
        with tf.control_dependencies([old, copied]):
            added = v.assign_add(1.0)
        with tf.control_dependencies([added]):
            fetches = [tf.identity(old), tf.identity(copied)]
        with started(v) as sess:
            assert sess.run(fetches) == [1, 0]

    def test_in_a_branch(self):
        v = tf.Variable(0.0, use_resource=False)

        def add():
            with tf.control_dependencies([v.assign_add(1.0)]):
                return tf.identity(v)

        result = tf.cond(tf.constant(True), add, lambda: v)
        with started(v) as sess:
            assert [sess.run(result), sess.run(result)] == [1, 2]

    def test_fetched_arrays_do_not_change(self):
        v = tf.Variable(np.zeros(3, np.float32))
        with started(v) as sess:
            first = sess.run(v)
            sess.run(v.assign_add([1.0, 1.0, 1.0]))
            first[0] = 100
            assert sess.run(v).tolist() == [1, 1, 1]
            assert first.tolist() == [100, 0, 0]

    def test_fed_arrays_may_change_afterwards(self):
        v = tf.Variable(np.zeros(3, np.float32))
        x = tf.placeholder(tf.float32, [3])
        assign = v.assign(x)
        with started(v) as sess:
            fed = np.ones(3, np.float32)
            sess.run(assign, {x: fed})
            fed[:] = 7
            assert sess.run(v).tolist() == [1, 1, 1]


class TestResources:
    def test_handles_share_by_name(self):
        one = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="q")
        two = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="q")
        with tf.Session() as sess:
            sess.run(tf.raw_ops.AssignVariableOp(resource=one, value=[1.0, 2.0]))
            assert sess.run(tf.raw_ops.ReadVariableOp(resource=two, dtype=tf.float32)).tolist() == [1, 2]
            assert sess.run(tf.raw_ops.VariableShape(input=two)).tolist() == [2]
            sess.run(tf.raw_ops.DestroyResourceOp(resource=one))
            assert not sess.run(tf.raw_ops.VarIsInitializedOp(resource=two))
            with pytest.raises(tf.errors.NotFoundError):
                sess.run(tf.raw_ops.DestroyResourceOp(resource=one, ignore_lookup_error=False))

    def test_types_must_fit(self):
        one = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="q")
        two = tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[2], shared_name="q")
        with tf.Session() as sess:
            sess.run(tf.raw_ops.AssignVariableOp(resource=one, value=[1.0, 2.0]))
            with pytest.raises(tf.errors.InvalidArgumentError, match="Expected int32 got float"):
                sess.run(tf.raw_ops.ReadVariableOp(resource=two, dtype=tf.int32))
        with pytest.raises(ValueError, match="Trying to read variable with wrong dtype"):
            tf.raw_ops.ReadVariableOp(resource=one, dtype=tf.int32)

    def test_gather(self):
        v = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3), use_resource=True)
        with started(v) as sess:
            assert sess.run(v.sparse_read([[3], [0]])).tolist() == [[[9, 10, 11]], [[0, 1, 2]]]
            assert sess.run(v.gather_nd([[1, 2], [3, 0]])).tolist() == [5, 9]
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 4 is not in \[0, 4\)"):
                sess.run(v.sparse_read([4]))
        assert v.sparse_read([0, 1]).shape.as_list() == [2, 3]

    def test_gradient_of_a_gather_is_sparse(self):
        v = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3), use_resource=True)
        (grad,) = tf.gradients(v.sparse_read([3, 0, 3]) * 2.0, [v])
        assert isinstance(grad, tf.IndexedSlices)
        with started(v) as sess:
            got = sess.run(grad)
        assert got.indices.tolist() == [3, 0, 3] and (got.values == 2).all() and got.dense_shape.tolist() == [4, 3]


class TestTrainingOps:
    @pytest.mark.parametrize("kind", ["Apply", "SparseApply"])
    @pytest.mark.parametrize(("name", "numbers", "words"), [
        ("ProximalAdagrad", dict(lr=0.0, l1=0.0, l2=0.0), "lr is not a positive scalar"),
        ("ProximalAdagrad", dict(lr=np.nan, l1=0.0, l2=0.0), "lr is not a positive scalar"),
        ("ProximalAdagrad", dict(lr=0.1, l1=-1.0, l2=0.0), "l1 regularization strength is not a non-negative scalar"),
        ("Ftrl", dict(lr=0.0, l1=0.0, l2=0.0, lr_power=-0.5), "lr is not a positive scalar .or zero if multiply_linear_by_lr is set"),
        ("Ftrl", dict(lr=0.1, l1=0.0, l2=-1.0, lr_power=-0.5), "l2 regularization strength is not a non-negative scalar"),
        ("Ftrl", dict(lr=0.1, l1=0.0, l2=0.0, lr_power=0.5), "lr_power is not a non-positive scalar"),
        ("FtrlV2", dict(lr=0.1, l1=0.0, l2=0.0, l2_shrinkage=-1.0, lr_power=-0.5), "l2 shrinkage regularization strength is not a non-negative scalar"),
    ])  # fmt: skip
    def test_numbers_that_make_no_sense(self, kind, name, numbers, words):
        slots = ["var", "accum"] + (["linear"] if name.startswith("Ftrl") else [])
        with tf.Graph().as_default(), tf.Session() as sess:
            variables = {slot: tf.Variable(np.ones((2, 2), np.float32), use_resource=True) for slot in slots}
            given = {"grad": np.ones((2, 2), np.float32), **numbers, **({"indices": [0, 1]} if kind == "SparseApply" else {})}
            train = getattr(tf.raw_ops, f"Resource{kind}{name}")(**{slot: v.handle for slot, v in variables.items()}, **given)
            sess.run(tf.global_variables_initializer())
            if kind == "Apply" and name.startswith("Ftrl"):  # TF's dense op takes them as they are
                sess.run(train)
                return
            with pytest.raises(tf.errors.InvalidArgumentError, match=words):
                sess.run(train)
            assert all((value == 1).all() for value in sess.run(list(variables.values())))

    @pytest.mark.parametrize("by_lr", [False, True])
    @pytest.mark.parametrize("name", ["Ftrl", "FtrlV2"])
    def test_a_gradient_that_is_no_number_stays_so_in_a_sparse_ftrl(self, name, by_lr):
        """A dense one makes the variable 0, as in TensorFlow."""
        numbers = dict(lr=0.1, l1=0.01, l2=0.0, lr_power=-0.5, multiply_linear_by_lr=by_lr, **({"l2_shrinkage": 0.1} if name == "FtrlV2" else {}))
        gradient = np.array([[np.nan], [1.0]], np.float32)
        with tf.Graph().as_default(), tf.Session() as sess:
            slots = [{slot: tf.Variable(np.ones((2, 1), np.float32), use_resource=True) for slot in ("var", "accum", "linear")} for _ in range(2)]
            sparse, dense = ({slot: v.handle for slot, v in variables.items()} for variables in slots)
            train = [
                getattr(tf.raw_ops, f"ResourceSparseApply{name}")(**sparse, grad=gradient, indices=[0, 1], **numbers),
                getattr(tf.raw_ops, f"ResourceApply{name}")(**dense, grad=gradient, **numbers),
            ]
            sess.run(tf.global_variables_initializer())
            sess.run(train)
            a, b = sess.run([variables["var"] for variables in slots])
            assert np.isnan(a[0, 0]) and b[0, 0] == 0
            np.testing.assert_allclose(a[1], b[1], rtol=1e-6)

    def test_a_gradient_that_is_no_number_leaves_the_norm_of_adamax(self):
        var, m, v = (np.ones(3, np.float32) for _ in range(3))
        numbers = [np.float32(n) for n in (0.9, 0.1, 0.9, 0.5, 1e-8)]
        optimizers.adamax(var, m, v, *numbers, np.array([np.nan, 2, 0.1], np.float32))
        assert v.tolist() == [0.5, 2, 0.5] and np.isnan(var[0]) and np.isnan(m[0])
