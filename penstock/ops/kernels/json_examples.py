"""JSON texts of `tf.train.Example`: the plain ones are read here, all others, and what is wrong with them, by protobuf's own reader."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from google.protobuf import json_format

from penstock.formats.protos import Example

_WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII).fullmatch
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/_-]{4})*(?:[A-Za-z0-9+/_-]{2}==|[A-Za-z0-9+/_-]{3}=)?", re.ASCII).fullmatch
_LARGEST = 3.4e38


class _Unusual(Exception):
    """Something that protobuf's reader knows about."""


def example_of(text: bytes) -> bytes:
    """The example, serialised; raises `json_format.ParseError`."""
    try:
        return _plain(text.decode())
    except (_Unusual, ValueError, TypeError, RecursionError):
        return json_format.Parse(text, Example()).SerializeToString()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Unusual
    return found


_decode = json.JSONDecoder(object_pairs_hook=_once).decode


def _plain(text: str) -> bytes:
    features = _only(_only(_decode(text), "features"), "feature")
    if type(features) is not dict:
        raise _Unusual
    example = Example()
    into = example.features.feature
    for name, feature in features.items():
        if type(feature) is not dict or len(feature) != 1:
            raise _Unusual
        [(kind, values)] = feature.items()
        values = _only(values, "value")
        if type(values) is not list or kind not in _KINDS:
            raise _Unusual
        field, read = _KINDS[kind]
        kept = getattr(into[name], field)
        if values:
            kept.value.extend(map(read, values))
        else:
            kept.SetInParent()
    if not features:
        example.features.SetInParent()
    return example.SerializeToString()


def _only(found: Any, name: str) -> Any:
    """The value of an object's one name."""
    if type(found) is not dict or len(found) != 1 or name not in found:
        raise _Unusual
    return found[name]


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is str and _WHOLE(value):
        return int(value)
    raise _Unusual


def _float(value: Any) -> float:
    if type(value) in (int, float) and -_LARGEST < value < _LARGEST:
        return float(value)
    raise _Unusual


def _bytes(value: Any) -> bytes:
    if type(value) is str and _BASE64(value):
        return base64.urlsafe_b64decode(value)
    raise _Unusual


_KINDS = {"int64List": ("int64_list", _integer), "floatList": ("float_list", _float), "bytesList": ("bytes_list", _bytes)}
