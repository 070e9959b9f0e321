"""Raw dims, TensorShape and Dimension; the expected values are TF's with v1 tensor shapes."""

import copy
import operator
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from penstock import shapes
from penstock.shapes import Dimension, TensorShape, broadcast_dims, compatible_dims, dims_of, merge_dims, unknown_shape


def proto(*sizes, unknown_rank=False):
    return SimpleNamespace(dim=[SimpleNamespace(size=s) for s in sizes], unknown_rank=unknown_rank)


# -- raw dims


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ([], ()),
        (5, (5,)),
        ([2, None], (2, None)),
        ((2, Dimension(3), Dimension(None)), (2, 3, None)),
        (TensorShape([4]), (4,)),
        (TensorShape(None), None),
        (np.int64(4), (4,)),
        (np.array([1, 2]), (1, 2)),
        (range(3), (0, 1, 2)),
        (iter([1, 2]), (1, 2)),
        (Dimension(7), (7,)),
        (proto(2, -1), (2, None)),
        (proto(), ()),
        (proto(unknown_rank=True), None),
    ],
)
def test_dims_of(value, expected):
    dims = dims_of(value)
    assert dims == expected
    assert dims is None or all(d is None or type(d) is int for d in dims)


@pytest.mark.parametrize("value", [-1, [-1], [2, -3], [np.int32(-2)], proto(-2)])
def test_dims_of_rejects_negative_sizes(value):
    with pytest.raises(ValueError, match=r"Dimension -\d must be >= 0"):
        dims_of(value)


@pytest.mark.parametrize("value", [2.5, [2.5], ["x"], [[3]], [np.float32(2)]])
def test_dims_of_rejects_other_things(value):
    with pytest.raises(TypeError, match="Dimension value must be integer or None or have an __index__ method"):
        dims_of(value)


@pytest.mark.parametrize("value", ["x", np.array([1.0, 2.0])])
def test_dims_of_rejects_iterables_of_other_things(value):
    with pytest.raises(TypeError, match="could not be converted to a dimension. A shape should either be single dim"):
        dims_of(value)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (None, None, None),
        (None, (2,), None),
        ((), (2, 3), (2, 3)),
        ((2, 3), (2, 3), (2, 3)),
        ((1,), (None,), (None,)),
        ((0,), (None,), (None,)),
        ((2,), (None,), (2,)),
        ((None,), (None,), (None,)),
        ((0,), (1,), (0,)),
        ((8, 1, None), (3, 5), (8, 3, 5)),
        ((3, 1), (2, 1, 3), (2, 3, 3)),
        ((None, 3), (2, None), (2, 3)),
        ((1, 3), (None, 1), (None, 3)),
    ],
)
def test_broadcast_dims(a, b, expected):
    assert broadcast_dims(a, b) == expected
    assert broadcast_dims(b, a) == expected


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [((2,), (3,), "2 and 3"), ((3,), (4, 2), "3 and 2"), ((4, 2), (3,), "2 and 3"), ((0,), (2,), "0 and 2")],
)
def test_broadcast_dims_rejects(a, b, text):
    with pytest.raises(ValueError, match=f"^Dimensions must be equal, but are {text}$"):
        broadcast_dims(a, b)


def test_merge_dims():
    assert merge_dims(None, None) is None
    assert merge_dims(None, (2,)) == merge_dims((2,), None) == (2,)
    assert merge_dims((2, None, None), (None, 3, None)) == (2, 3, None)
    with pytest.raises(ValueError, match="^Shapes must be equal rank, but are 1 and 2$"):
        merge_dims((2,), (2, 3))
    with pytest.raises(ValueError) as caught:
        merge_dims((None, 2), (7, 3))
    assert str(caught.value) == (
        "Dimension 1 in both shapes must be equal, but are 2 and 3. Shapes are [?,2] and [7,3]."
    )


def test_merge_dim():
    assert shapes.merge_dim(None, None) is None
    assert shapes.merge_dim(None, 2) == shapes.merge_dim(2, None) == shapes.merge_dim(2, 2) == 2
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 2 and 0"):
        shapes.merge_dim(2, 0)


def test_compatible_dims():
    assert compatible_dims(None, (2,)) and compatible_dims((2, None), (None, 3)) and compatible_dims((), ())
    assert not compatible_dims((2,), (3,)) and not compatible_dims((), (1,)) and not compatible_dims((0,), (1,))


def test_small_dims_functions():
    assert shapes.num_elements((2, 3)) == 6 and shapes.num_elements(()) == 1 and shapes.num_elements((0, 5)) == 0
    assert shapes.num_elements(None) is None and shapes.num_elements((2, None)) is None
    assert shapes.format_dims((2, None)) == "[2,?]" and shapes.format_dims(()) == "[]"
    assert shapes.format_dims(None) == "<unknown>"
    assert shapes.is_fully_defined(()) and not shapes.is_fully_defined((None,)) and not shapes.is_fully_defined(None)
    assert shapes.concat_dims((2,), (None,)) == (2, None) and shapes.concat_dims(None, (1,)) is None


# -- Dimension


def test_dimension_value_and_text():
    assert repr(Dimension(3)) == "Dimension(3)" and str(Dimension(3)) == "3"
    assert repr(Dimension(None)) == "Dimension(None)" and str(Dimension(None)) == "?"
    assert Dimension(Dimension(4)).value == 4
    assert int(Dimension(3)) == 3 and list(range(5))[Dimension(3)] == 3
    assert bool(Dimension(3)) and not Dimension(0) and not Dimension(None)
    with pytest.raises(TypeError):
        int(Dimension(None))
    with pytest.raises(TypeError):
        hash(Dimension(3))
    assert pickle.loads(pickle.dumps(Dimension(3))).value == 3


def test_dimension_arithmetic():
    d = Dimension(7)
    results = [d + 2, 2 + d, d - 2, 9 - d, d * 2, 2 * d, d // 2, 15 // d, d % 4, 15 % d, d + Dimension(1)]
    assert [r.value for r in results] == [9, 9, 5, 2, 14, 14, 3, 2, 3, 1, 8]
    assert all(type(r) is Dimension for r in results)
    unknown = Dimension(None)
    for result in (unknown + 1, 1 + unknown, d * unknown, unknown // 2, 2 - unknown, d % unknown, d + None):
        assert result.value is None
    with pytest.raises(TypeError, match="please use // instead"):
        d / 2
    with pytest.raises(TypeError, match="please use // instead"):
        2 / d
    with pytest.raises(ValueError, match="Dimension -1 must be >= 0"):
        Dimension(1) - 2
    with pytest.raises(TypeError):
        d + "a"


def test_dimension_comparison_is_three_valued():
    d, unknown = Dimension(3), Dimension(None)
    assert (d == 3) is True and (d == 4) is False and (d != 4) is True and (d == 3) is True
    assert (d < 4) is True and (d <= 2) is False and (d > 2) is True and (d >= 4) is False
    for answer in (unknown == 3, unknown != 3, d == unknown, unknown == Dimension(None), unknown < 3, d >= unknown):
        assert answer is None
    assert operator.ne(d, "a") is True and operator.eq(d, "a") is False and operator.eq(d, None) is None
    with pytest.raises(TypeError):
        _ = d < "a"


def test_dimension_merging():
    assert Dimension(3).merge_with(None).value == 3 and Dimension(None).merge_with(3).value == 3
    assert Dimension(None).is_compatible_with(3) and not Dimension(2).is_compatible_with(3)
    for method in ("merge_with", "assert_is_compatible_with"):
        with pytest.raises(ValueError, match="^Dimensions 2 and 3 are not compatible$"):
            getattr(Dimension(2), method)(3)


# -- TensorShape


@pytest.mark.parametrize(
    ("value", "text", "representation"),
    [
        (None, "<unknown>", "TensorShape(None)"),
        ([], "()", "TensorShape([])"),
        ([2], "(2,)", "TensorShape([Dimension(2)])"),
        ([None], "(?,)", "TensorShape([Dimension(None)])"),
        ([2, None], "(2, ?)", "TensorShape([Dimension(2), Dimension(None)])"),
    ],
)
def test_shape_text(value, text, representation):
    shape = TensorShape(value)
    assert str(shape) == f"{shape}" == "%s" % shape == text  # noqa: UP031
    assert repr(shape) == representation


def test_shape_parts():
    shape = TensorShape([2, None, 4])
    assert shape.rank == shape.ndims == len(shape) == 3
    assert shape.as_list() == [2, None, 4]
    assert [type(d) for d in shape] == [Dimension] * 3 and [d.value for d in shape] == [2, None, 4]
    assert [d.value for d in shape.dims] == [2, None, 4]
    assert shape[0].value == 2 and shape[-1].value == 4 and shape[1:].as_list() == [None, 4]
    assert isinstance(shape[:1], TensorShape) and shape[::2].as_list() == [2, 4]
    with pytest.raises(IndexError):
        shape[3]
    assert bool(TensorShape([])) and not TensorShape(None)
    assert TensorShape([2, 3]).num_elements() == 6 and shape.num_elements() is None
    assert TensorShape([2]).is_fully_defined() and not shape.is_fully_defined()


def test_shape_of_unknown_rank():
    shape = TensorShape(None)
    assert shape.dims is None and shape.rank is None and shape.ndims is None and shape.num_elements() is None
    assert not shape.is_fully_defined()
    assert shape[3].value is None
    assert shape[1:].rank is None and shape[:-1].rank is None and shape[1:3].as_list() == [None, None]
    for action, text in [
        (len, "Cannot take the length of shape with unknown rank."),
        (list, "Cannot take the length of shape with unknown rank.|Cannot iterate over a shape with unknown rank."),
        (iter, "Cannot iterate over a shape with unknown rank."),
        (TensorShape.as_list, r"as_list\(\) is not defined on an unknown TensorShape."),
        (lambda s: s[0:4:2], "Steps are not yet handled"),
    ]:
        with pytest.raises(ValueError, match=text):
            action(shape)


def test_shape_equality():
    assert TensorShape([2, None]) == [2, None] and TensorShape([2]) == (2,) and operator.eq(TensorShape(None), None)
    assert TensorShape([2]) != [3] and TensorShape([2]) != TensorShape(None) and TensorShape([2]) != [2, None]
    assert TensorShape([None]) == TensorShape([None])
    assert TensorShape([2]) != "a" and operator.eq(TensorShape([2]), object()) is False
    assert hash(TensorShape([2, None])) == hash(TensorShape((2, None)))


def test_shape_merging():
    assert TensorShape([2, None]).merge_with([None, 3]) == [2, 3]
    assert TensorShape(None).merge_with([2]) == [2] and TensorShape([2]).merge_with(None) == [2]
    with pytest.raises(ValueError, match=r"^Shapes \(2,\) and \(3,\) are not compatible$"):
        TensorShape([2]).merge_with([3])
    with pytest.raises(ValueError, match=r"^Shapes \(2,\) and \(2, \?\) are not compatible$"):
        TensorShape([2]).merge_with([2, None])


def test_shape_joining():
    assert TensorShape([2]).concatenate([None, 3]) == [2, None, 3]
    assert TensorShape([2]) + [3] == [2, 3] and [3] + TensorShape([2]) == [3, 2]
    assert TensorShape([2]).concatenate(None).rank is None
    assert TensorShape([2]).concatenate(Dimension(3)) == [2, 3]


def test_shape_generalising():
    most_specific = TensorShape([2, 3]).most_specific_compatible_shape
    assert most_specific([2, 4]) == [2, None] and most_specific([2]).rank is None and most_specific(None).rank is None
    assert TensorShape([2]).is_subtype_of(TensorShape([None])) and TensorShape([2]).is_subtype_of(TensorShape(None))
    assert not TensorShape([None]).is_subtype_of(TensorShape([2])) and not TensorShape([2]).is_subtype_of([2])
    common = TensorShape([2, 3]).most_specific_common_supertype([TensorShape([2, 4]), TensorShape([2, 3])])
    assert common == [2, None]


def test_shape_ranks():
    assert TensorShape(None).with_rank(2) == [None, None] and TensorShape([2]).with_rank(1) == [2]
    assert TensorShape([2]).with_rank_at_least(1) == [2] and TensorShape([2]).with_rank_at_most(1) == [2]
    assert TensorShape(None).with_rank_at_least(4).rank is None
    shape = TensorShape([2, None])
    for action, text in [
        (lambda: shape.with_rank(3), r"Shape \(2, \?\) must have rank 3"),
        (lambda: shape.with_rank_at_least(3), r"Shape \(2, \?\) must have rank at least 3"),
        (lambda: shape.with_rank_at_most(1), r"Shape \(2, \?\) must have rank at most 1"),
        (lambda: shape.assert_has_rank(1), r"Shape \(2, \?\) must have rank 1"),
        (lambda: shape.assert_same_rank([2]), r"Shapes \(2, \?\) and \(2,\) must have the same rank"),
        (lambda: shape.assert_is_fully_defined(), r"Shape \(2, \?\) is not fully defined"),
        (
            lambda: shape.assert_is_compatible_with(TensorShape([3, 1])),
            r"Shapes \(2, \?\) and \(3, 1\) are incompatible",
        ),
    ]:
        with pytest.raises(ValueError, match=f"^{text}$"):
            action()
    shape.assert_has_rank(2)
    shape.assert_same_rank(None)
    shape.assert_is_compatible_with([None, 5])
    TensorShape([1]).assert_is_fully_defined()


def test_shape_proto():
    from_proto = TensorShape(proto(2, -1))
    assert from_proto == [2, None]
    for value in ([2, None], [], None):
        shape = TensorShape(value)
        message = shape.as_proto()
        assert message.unknown_rank == (value is None)
        assert [d.size for d in message.dim] == [-1 if d is None else d for d in value or []]
        assert TensorShape(message) == shape


def test_shape_copies_and_stays_small():
    shape = TensorShape([2, None])
    assert pickle.loads(pickle.dumps(shape)) == shape and copy.deepcopy(shape) == shape
    assert TensorShape.from_dims((2, None)) == shape
    assert not hasattr(shape, "__dict__") and not hasattr(Dimension(1), "__dict__")


def test_helpers():
    assert unknown_shape().rank is None and unknown_shape(rank=2) == [None, None] and unknown_shape(ndims=1) == [None]
    with pytest.raises(TypeError, match="Unknown argument: {'foo': 2}"):
        unknown_shape(foo=2)
    assert shapes.dimension_value(Dimension(3)) == 3 and shapes.dimension_value(3) == 3
    assert shapes.dimension_value(None) is None
    assert shapes.dimension_at_index(TensorShape([2, 3]), 1).value == 3
    assert shapes.dimension_at_index(TensorShape(None), 1).value is None
    d, s = Dimension(2), TensorShape([2])
    assert shapes.as_dimension(d) is d and shapes.as_dimension(2).value == 2
    assert shapes.as_shape(s) is s and shapes.as_shape([2]) == s
