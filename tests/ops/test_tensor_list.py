"""TensorLists and stacks: what they do, and what they say when they cannot."""

import numpy as np
import pytest

import penstock as tf

OPS = tf.raw_ops
F = tf.float32
A, B = [1.0, 2.0], [3.0, 4.0]


def ints(value):
    return np.array(value, np.int32)


def empty(shape=-1, limit=-1, dtype=F):
    return OPS.EmptyTensorList(element_shape=ints(shape), max_num_elements=limit, element_dtype=dtype)


def reserve(shape, n):
    return OPS.TensorListReserve(element_shape=ints(shape), num_elements=n, element_dtype=F)


def push(values, item):
    return OPS.TensorListPushBack(input_handle=values, tensor=tf.constant(item))


def pop(values, shape=-1):
    return OPS.TensorListPopBack(input_handle=values, element_shape=ints(shape), element_dtype=F)


def stack(values, shape=-1, n=-1):
    return OPS.TensorListStack(input_handle=values, element_shape=ints(shape), num_elements=n, element_dtype=F)


def get(values, index, shape=-1):
    return OPS.TensorListGetItem(input_handle=values, index=index, element_shape=ints(shape), element_dtype=F)


def put(values, index, item, **options):
    return OPS.TensorListSetItem(input_handle=values, index=index, item=tf.constant(item), **options)


def length(values):
    return OPS.TensorListLength(input_handle=values)


def rows(value, shape=-1):
    return OPS.TensorListFromTensor(tensor=tf.constant(value), element_shape=ints(shape))


def scatter(indices, n=-1, shape=(2,)):
    return OPS.TensorListScatterV2(tensor=tf.constant([A, B]), indices=indices, element_shape=ints(shape), num_elements=n)


def concat(values, shape=-1, leading=()):
    return OPS.TensorListConcatV2(input_handle=values, element_shape=ints(shape), leading_dims=np.array(leading, np.int64), element_dtype=F)


def gather(values, indices):
    return OPS.TensorListGather(input_handle=values, indices=ints(indices), element_shape=ints(-1), element_dtype=F)


def run(fetches):
    with tf.Session() as sess:
        return sess.run(fetches)


@pytest.mark.parametrize(
    "build, want",
    [
        (lambda: stack(push(push(empty(), A), B)), [A, B]),
        (lambda: pop(push(push(empty(), A), B))[1], B),
        (lambda: length(pop(push(push(empty(), A), B))[0]), 1),
        (lambda: stack(put(reserve([2], 2), 1, A)), [[0, 0], A]),
        (lambda: stack(put(reserve([2], 1), 2, A, resize_if_index_out_of_bounds=True)), [[0, 0], [0, 0], A]),
        (lambda: stack(put(reserve(-1, 2), 0, A)), [A, [0, 0]]),
        (lambda: get(reserve([-1, 2], 1), 0, [3, -1]), np.zeros([3, 2])),
        (lambda: stack(OPS.TensorListResize(input_handle=rows([A, B], [2]), size=3)), [A, B, [0, 0]]),
        (lambda: gather(rows([A, B]), [1, 1, 0]), [B, B, A]),
        (lambda: stack(scatter([2, 0])), [B, [0, 0], A]),
        (lambda: length(scatter([1, 0], 5)), 5),
        (lambda: concat(push(push(empty(), A), [9.0]))[0], [1, 2, 9]),
        (lambda: concat(put(reserve([-1], 2), 0, A), leading=[2, 1])[0], [1, 2, 0]),
        (lambda: stack(OPS.TensorListConcatLists(input_a=rows([A]), input_b=rows([B]), element_dtype=F)), [A, B]),
        (lambda: stack(OPS.AddN(inputs=[rows([A, B]), rows([B, B])])), [[4, 6], [6, 8]]),
        (lambda: stack(tf.zeros_like(rows([A, B])), [2]), np.zeros([2, 2])),
        (lambda: OPS.TensorListElementShape(input_handle=empty([-1, 3]), shape_type=tf.int32), [-1, 3]),
    ],
)
def test_values(build, want):
    np.testing.assert_array_equal(run(build()), want)


def test_lists_are_values():
    """Changing a list leaves the one it was made from alone."""
    first = rows([A, B])
    second = put(first, 0, [9.0, 9.0])
    a, b = run([stack(first), stack(second)])
    assert a.tolist() == [A, B] and b.tolist() == [[9, 9], B]


@pytest.mark.parametrize(
    "build, text",
    [
        (lambda: length(push(empty([3]), A)), "Tried to append a tensor with incompatible shape to a list. Op element shape: .2. list shape: .3."),
        (lambda: length(push(push(empty(limit=1), A), B)), "Tried to push item into a full list"),
        (lambda: pop(empty())[1], "Trying to pop from an empty list"),
        (lambda: pop(reserve(-1, 3))[1], "Trying to read an uninitialized tensor but element_shape is not fully defined"),
        (lambda: get(push(empty(), A), 1), "Trying to access element 1 in a list with 1 elements"),
        (lambda: length(put(reserve([2], 2), 2, A)), "Trying to modify element 2 in a list with 2 elements"),
        (lambda: stack(empty()), "Tried to stack elements of an empty list"),
        (lambda: stack(push(empty(), A), n=2), "Operation expected a list with 2 elements but got a list with 1 elements"),
        (lambda: stack(reserve(-1, 2)), "only contains uninitialized tensors"),
        (lambda: stack(push(push(empty(), A), [1.0])), "Incompatible shapes during merge"),
        (lambda: length(rows(1.0)), "Tensor must be at least a vector"),
        (lambda: gather(rows([A, B]), [2]), "Trying to gather element 2 in a list with 2 elements"),
        (lambda: length(scatter([-1, 0])), "must all be non-negative"),
        (lambda: length(scatter([3, 0], 2)), "Trying to scatter at index 3 in list with size 2"),
        (lambda: length(scatter([1])), "Invalid number of rows in input tensor. Expected: 1 Actual: 2"),
        (lambda: concat(empty())[0], "All except the first dimension must be fully defined"),
        (lambda: concat(push(empty(), 1.0))[0], "Concat saw a scalar shape at index 0"),
        (lambda: length(OPS.AddN(inputs=[rows([A, B]), rows([A])])), "different lengths. One is 2 and the other is 1"),
        (lambda: length(reserve([2], -1)), "must be a non negative number"),
    ],
)
def test_errors(build, text):
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        run(build())


@pytest.mark.parametrize(
    "build, text",
    [
        (lambda: push(empty(), 1), "Trying to push to list with wrong element dtype"),
        (lambda: put(reserve([3], 2), 0, A), "must be equal"),
        (lambda: rows([A, B], [3]), "must be equal"),
        (lambda: empty([[1]]), "Shape must be at most rank 1"),
    ],
)
def test_build_errors(build, text):
    with pytest.raises(ValueError, match=text):
        build()


def test_gradients():
    x = tf.constant([A, B])
    values = OPS.TensorListFromTensor(tensor=x, element_shape=ints([2]))
    longer = OPS.TensorListPushBack(input_handle=values, tensor=x[0])
    changed = OPS.TensorListSetItem(input_handle=longer, index=1, item=x[1] * 2.0)
    y = stack(changed, [2], 3)
    item = get(values, 0, [2]) * 3.0
    rest, last = pop(changed, [2])
    a, b, c, d = run([tf.gradients(y * y, x)[0], tf.gradients(item, x)[0], tf.gradients(last, x)[0], tf.gradients(stack(rest, [2], 2), x)[0]])
    np.testing.assert_allclose(a, [[4, 8], [24, 32]])
    np.testing.assert_allclose(b, [[3, 3], [0, 0]])
    np.testing.assert_allclose(c, [[1, 1], [0, 0]])
    np.testing.assert_allclose(d, [[1, 1], [2, 2]])


# -- stacks -----------------------------------------------------------------------------------------------------------


def pushed(values, limit=-1, dtype=F):
    handle = OPS.StackV2(max_size=limit, elem_type=dtype)
    last = []
    for value in values:
        with tf.control_dependencies(last):
            last = [OPS.StackPushV2(handle=handle, elem=value)]
    with tf.control_dependencies(last):
        return OPS.StackPopV2(handle=handle, elem_type=F)


def test_stack():
    assert run(pushed([1.0, 2.0])) == 2.0


@pytest.mark.parametrize(
    "build, text",
    [
        (lambda: pushed([]), r"Stack\[StackV2_\d+\] is empty when calling Pop\(\)"),
        (lambda: pushed([1.0, 2.0, 3.0], 2), r"overflowed its max_size \(2\)"),
        (lambda: pushed([1.0], dtype=tf.int32), "Must have type 3 but got 1"),
    ],
)
def test_stack_errors(build, text):
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        run(build())


def test_old_stacks():
    """Stacks whose handles are references, as graphs of TF's first year have them."""
    handle = OPS.Stack(elem_type=F)
    with tf.control_dependencies([OPS.StackPush(handle=handle, elem=5.0)]):
        value = OPS.StackPop(handle=handle, elem_type=F)
    assert run(value) == 5.0
