"""Nested structures: flatten, pack, map, compare."""

import collections
import types

import numpy as np
import pytest

import penstock as tf
from penstock.graph import nest

Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024
Other = collections.namedtuple("Other", "a b")  # noqa: PYI024


class Attrs:
    """Looks like a class made by the attrs package."""

    __attrs_attrs__ = (types.SimpleNamespace(name="x"), types.SimpleNamespace(name="_y"))

    def __init__(self, x, y):
        self.x = x
        self._y = y


@pytest.mark.parametrize(
    "structure, leaves",
    [
        (3, [3]), (None, [None]), ("abc", ["abc"]), ([], []), ([1, (2, [3])], [1, 2, 3]), ({"b": 1, "a": (2, 3)}, [2, 3, 1]),
        (Pair(1, [2]), [1, 2]), (collections.OrderedDict([("b", 1), ("a", 2)]), [2, 1]), (range(3), [0, 1, 2]), (Attrs(1, [2]), [1, 2]),
        ({"b": 1, "a": 2}.values(), [1, 2]),
    ],
)  # fmt: skip
def test_flatten(structure, leaves):
    assert tf.nest.flatten(structure) == leaves


@pytest.mark.parametrize(
    "structure", [[1, (2, [3])], {"b": 1, "a": (2, 3)}, Pair(1, [2]), collections.OrderedDict([("b", 1), ("a", (2,))]), collections.defaultdict(int, {"z": 1, "y": 2})]
)
def test_packing_undoes_flattening(structure):
    packed = tf.nest.pack_sequence_as(structure, tf.nest.flatten(structure))
    assert packed == structure
    assert type(packed) is type(structure)
    if isinstance(structure, dict):
        assert list(packed) == list(structure)


def test_arrays_and_tensors_are_leaves():
    array, tensor = np.zeros([2, 2]), tf.constant([1, 2])
    assert tf.nest.flatten([array, {"t": tensor}]) == [array, tensor]
    assert not tf.nest.is_nested(array) and not tf.nest.is_nested(tensor) and not tf.nest.is_nested("ab")
    assert tf.nest.is_nested({}.keys()) and not tf.nest.is_nested({1, 2})


def test_composites_on_demand():
    slices = tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))
    sparse = tf.SparseTensor([[0]], [1.0], [2])
    assert tf.nest.flatten([slices, sparse]) == [slices, sparse]
    flat = tf.nest.flatten([slices, sparse], expand_composites=True)
    assert flat == [slices.values, slices.indices, sparse.indices, sparse.values, sparse.dense_shape]
    back = tf.nest.pack_sequence_as([slices, sparse], flat, expand_composites=True)
    assert isinstance(back[0], tf.IndexedSlices) and back[0].values is slices.values
    assert isinstance(back[1], tf.SparseTensor) and back[1].values is sparse.values


def test_map_structure():
    assert tf.nest.map_structure(lambda a, b: a + b, Pair(1, [2]), Pair(10, [20])) == Pair(11, [22])
    assert tf.nest.map_structure(lambda a, b: a + b, [1, 2], (3, 4), check_types=False) == [4, 6]
    with pytest.raises(TypeError, match="func must be callable"):
        tf.nest.map_structure(3, [1])
    with pytest.raises(ValueError, match="at least one structure"):
        tf.nest.map_structure(lambda: 1)
    with pytest.raises(ValueError, match="Only valid keyword arguments"):
        tf.nest.map_structure(lambda x: x, [1], wrong=1)


@pytest.mark.parametrize(
    "a, b, error, text",
    [
        ([1, 2], [1], ValueError, "same number of elements"),
        ([1, [2]], [1, 2], ValueError, "is a sequence, while substructure"),
        ([1, 2], (1, 2), TypeError, "same sequence type"),
        (Pair(1, 2), Other(1, 2), TypeError, "same sequence type"),
        ({"a": 1}, {"b": 1}, ValueError, "same set of keys"),
    ],
)
def test_structures_differ(a, b, error, text):
    with pytest.raises(error, match=text) as caught:
        tf.nest.assert_same_structure(a, b)
    assert "The two structures don't have the same nested structure." in str(caught.value)
    assert "Entire first structure:" in str(caught.value)


def test_structures_agree():
    tf.nest.assert_same_structure({"a": 1}, collections.OrderedDict(a=2))
    tf.nest.assert_same_structure([1, 2], (3, 4), check_types=False)


def test_packing_errors():
    with pytest.raises(ValueError, match="Structure had 2 atoms, but flat_sequence had 1 items"):
        tf.nest.pack_sequence_as([1, 2], [1])
    with pytest.raises(ValueError, match="The target structure is of type"):
        tf.nest.pack_sequence_as(1, [1, 2])
    with pytest.raises(TypeError, match="Attempted to pack value"):
        tf.nest.pack_sequence_as([1], 5)
    with pytest.raises(TypeError, match="sortable keys"):
        tf.nest.flatten({1: 2, "a": 3})


def test_paths():
    rows = nest.flatten_with_paths({"b": [1, Pair(2, 3)]})
    assert rows == [(("b", 0), 1), (("b", 1, "a"), 2), (("b", 1, "b"), 3)]
