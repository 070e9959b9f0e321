"""Nested structures: flatten, pack, map and compare lists, tuples, named tuples, mappings and attrs classes.

Mappings are walked in the order of their sorted keys and rebuilt with the key order of the structure they are packed
into. Strings, arrays and tensors are leaves. With `expand_composites`, values made of several tensors (IndexedSlices,
SparseTensor, and classes added by `register_composite`) are structures too.
"""

from __future__ import annotations

from collections import abc, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from penstock.graph.composite import IndexedSlices, SparseTensor

_composites: dict[type, tuple[Callable[[Any], list], Callable[[Any, list], Any]]] = {}


def register_composite(cls: type, to_components: Callable[[Any], list], from_components: Callable[[Any, list], Any]) -> None:
    """Lets `expand_composites=True` walk into instances of `cls`: `to_components(value)` lists the parts and
    `from_components(value, parts)` makes a new value like the given one."""
    _composites[cls] = (to_components, from_components)


def _slices_parts(value: IndexedSlices) -> list:
    parts: list[Any] = [value.values, value.indices]
    return parts if value.dense_shape is None else [*parts, value.dense_shape]


register_composite(IndexedSlices, _slices_parts, lambda value, parts: IndexedSlices(*parts))
register_composite(
    SparseTensor, lambda value: [value.indices, value.values, value.dense_shape], lambda value, parts: SparseTensor(*parts)
)


def is_attrs(value: Any) -> bool:
    """Whether `value` is an instance of a class made by the attrs package."""
    return hasattr(type(value), "__attrs_attrs__")


def is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple)


def is_composite(value: Any) -> bool:
    """Whether `expand_composites=True` walks into `value`."""
    return type(value) in _composites


def is_nested(seq: Any) -> bool:
    """True for lists, tuples, mappings and their views, attrs objects; False for strings, arrays, tensors and the rest."""
    cls = seq.__class__
    if cls is list or cls is tuple or cls is dict:
        return True
    if isinstance(seq, (str, bytes, bytearray)):
        return False
    return isinstance(seq, (abc.Sequence, abc.Mapping, abc.MappingView)) or is_attrs(seq)


def _walks(value: Any, expand: bool) -> bool:
    return is_nested(value) or (expand and is_composite(value))


def sorted_keys(mapping: Any) -> list:
    """The keys in flattening order; TypeError if they cannot be sorted."""
    try:
        return sorted(mapping)
    except TypeError as error:
        raise TypeError(f"nest only supports dicts with sortable keys. ({error})") from error


def _children(value: Any) -> list:
    """The direct parts of a structure, in flattening order."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, abc.Mapping):
        return [value[key] for key in sorted_keys(value)]
    if is_attrs(value):
        return [getattr(value, attribute.name) for attribute in type(value).__attrs_attrs__]
    composite = _composites.get(type(value))
    if composite is not None:
        return composite[0](value)
    return list(value)


def flatten(structure: Any, expand_composites: bool = False) -> list:
    """The leaves of `structure` as a flat list; a value that is no structure gives a list with itself.

    >>> flatten({"b": 1, "a": (2, [3])})
    [2, 3, 1]
    """
    if not _walks(structure, expand_composites):
        return [structure]
    result: list[Any] = []
    _flatten(structure, expand_composites, result.append)
    return result


def _flatten(structure: Any, expand: bool, emit: Callable[[Any], None]) -> None:
    for child in _children(structure):
        if _walks(child, expand):
            _flatten(child, expand, emit)
        else:
            emit(child)


def _rebuild(like: Any, parts: list) -> Any:
    """A structure of `like`'s kind that holds `parts`, which come in flattening order."""
    cls = type(like)
    if isinstance(like, abc.Mapping):
        by_key = dict(zip(sorted_keys(like), parts, strict=True))
        pairs = [(key, by_key[key]) for key in like]
        if isinstance(like, defaultdict):
            return cls(like.default_factory, pairs)
        return cls(pairs)  # type: ignore[call-arg]
    if isinstance(like, abc.MappingView):
        return list(parts)
    if is_namedtuple(like):
        return cls(*parts)
    if is_attrs(like):
        # attrs strips leading underscores from the names of its arguments
        return cls(**{a.name.lstrip("_"): part for a, part in zip(cls.__attrs_attrs__, parts, strict=True)})
    composite = _composites.get(cls)
    if composite is not None:
        return composite[1](like, parts)
    if isinstance(like, range):
        return list(parts)
    return cls(parts)  # type: ignore[call-arg]


def _pack(structure: Any, leaves: Iterator[Any], expand: bool) -> Any:
    parts = []
    for child in _children(structure):
        parts.append(_pack(child, leaves, expand) if _walks(child, expand) else next(leaves))
    return _rebuild(structure, parts)


def pack_sequence_as(structure: Any, flat_sequence: Any, expand_composites: bool = False) -> Any:
    """A structure like `structure` whose leaves are `flat_sequence`, in the order that `flatten` gives them.

    >>> pack_sequence_as({"b": 0, "a": (0, 0)}, [1, 2, 3])
    {'b': 3, 'a': (1, 2)}
    """
    if not is_nested(flat_sequence):
        raise TypeError(f"Attempted to pack value:\n  {_short(flat_sequence)}\ninto a structure, but found incompatible type `{type(flat_sequence)}` instead.")
    if not _walks(structure, expand_composites):
        if len(flat_sequence) != 1:
            raise ValueError(
                f"The target structure is of type `{type(structure)}`\n  {_short(structure)}\nHowever the input is a sequence "
                f"({type(flat_sequence)}) of length {len(flat_sequence)}.\n  {_short(flat_sequence)}\nnest cannot guarantee that it is "
                "safe to map one to the other."
            )
        return flat_sequence[0]
    wanted = len(flatten(structure, expand_composites))
    if wanted != len(flat_sequence):
        raise ValueError(
            f"Could not pack sequence. Structure had {wanted} atoms, but flat_sequence had {len(flat_sequence)} items.  "
            f"Structure: {structure}, flat_sequence: {flat_sequence}."
        )
    return _pack(structure, iter(flat_sequence), expand_composites)


def _short(value: Any, limit: int = 100) -> str:
    text = str(value)
    return text if len(text) <= limit else text[:limit] + "..."


def map_structure(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """Applies `func` to corresponding leaves and packs the results like the first structure.

    Keyword arguments: `check_types=True` also compares the classes of the structures, `expand_composites=False`.
    """
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func}")
    if not structure:
        raise ValueError("Must provide at least one structure")
    check_types = kwargs.pop("check_types", True)
    expand = kwargs.pop("expand_composites", False)
    if kwargs:
        raise ValueError(f"Only valid keyword arguments are `check_types` and `expand_composites`, not: `{'`, `'.join(kwargs)}`")
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types=check_types, expand_composites=expand)
    columns = [flatten(s, expand) for s in structure]
    return pack_sequence_as(structure[0], [func(*row) for row in zip(*columns, strict=True)], expand)


class _Difference(Exception):
    def __init__(self, kind: type[Exception], text: str) -> None:
        self.kind = kind
        self.text = text


def _typed(value: Any) -> str:
    return f"type={type(value).__name__} str={value}"


def _same_class(a: Any, b: Any) -> bool:
    if type(a) is type(b):
        return True
    if is_namedtuple(a) and is_namedtuple(b):
        # A class may be defined twice (in two calls of a function): equal name and fields are enough.
        return type(a).__name__ == type(b).__name__ and a._fields == b._fields
    if isinstance(a, abc.Mapping) and isinstance(b, abc.Mapping):
        return True
    return isinstance(a, type(b)) or isinstance(b, type(a))


def _compare(a: Any, b: Any, check_types: bool, expand: bool) -> None:
    a_walks, b_walks = _walks(a, expand), _walks(b, expand)
    if a_walks != b_walks:
        nested, leaf = (a, b) if a_walks else (b, a)
        raise _Difference(ValueError, f'Substructure "{_typed(nested)}" is a sequence, while substructure "{_typed(leaf)}" is not')
    if not a_walks:
        return
    if check_types and not _same_class(a, b):
        raise _Difference(
            TypeError,
            "The two namedtuples don't have the same sequence type. "
            f"First structure {_typed(a)} has type {type(a).__name__}, while second structure {_typed(b)} has type {type(b).__name__}",
        )
    if isinstance(a, abc.Mapping) and isinstance(b, abc.Mapping) and set(a) != set(b):
        raise _Difference(
            ValueError,
            "The two dictionaries don't have the same set of keys. "
            f"First structure has keys {_typed(list(a))}, while second structure has keys {_typed(list(b))}",
        )
    a_parts, b_parts = _children(a), _children(b)
    if len(a_parts) != len(b_parts):
        raise _Difference(
            ValueError,
            f"The two structures don't have the same number of elements. First structure: {_typed(a)}. Second structure: {_typed(b)}",
        )
    for x, y in zip(a_parts, b_parts, strict=True):
        _compare(x, y, check_types, expand)


class _Dot:
    """Stands for a leaf where only the outline of a structure is shown."""

    def __repr__(self) -> str:
        return "."


def _outline(structure: Any, expand: bool) -> str:
    if not _walks(structure, expand):
        return "."
    if is_composite(structure):
        return f"{type(structure).__name__}({', '.join('.' for _ in _children(structure))})"
    return str(pack_sequence_as(structure, [_Dot()] * len(flatten(structure))))


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False) -> None:
    """Raises ValueError if the two do not nest in the same way, TypeError if only the classes of their structures differ."""
    try:
        _compare(nest1, nest2, bool(check_types), expand_composites)
    except _Difference as found:
        raise found.kind(
            "The two structures don't have the same nested structure.\n\n"
            f"First structure: {_typed(nest1)}\n\nSecond structure: {_typed(nest2)}\n\nMore specifically: {found.text}\n"
            f"Entire first structure:\n{_outline(nest1, expand_composites)}\n"
            f"Entire second structure:\n{_outline(nest2, expand_composites)}"
        ) from None


def flatten_with_paths(structure: Any, expand_composites: bool = False) -> list[tuple[tuple, Any]]:
    """[(path, leaf), ...] where a path holds keys, indices and field names from the outside in."""
    rows: list[tuple[tuple, Any]] = []

    def walk(value: Any, path: tuple) -> None:
        if not _walks(value, expand_composites):
            rows.append((path, value))
            return
        if isinstance(value, abc.Mapping):
            labels: list[Any] = sorted_keys(value)
        elif is_namedtuple(value):
            labels = list(value._fields)
        elif is_attrs(value):
            labels = [a.name for a in type(value).__attrs_attrs__]
        else:
            labels = list(range(len(_children(value))))
        for label, child in zip(labels, _children(value), strict=True):
            walk(child, (*path, label))

    walk(structure, ())
    return rows
