"""Every message of TensorFlow's formats and cluster protocol, under TensorFlow's names.

    from penstock.formats.protos import GraphDef
    graph_def = GraphDef.FromString(data)

Messages are made when they are first asked for. `protos.data` and `protos.tfprof` are namespaces of their own, as in
TensorFlow. Full names begin with `penstock.` where TensorFlow's begin with `tensorflow.` (both may live in one
process), and the bytes are the same.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError, Message

from penstock.formats.proto.names import MODULE_OF

if TYPE_CHECKING:
    from google.protobuf.any_pb2 import Any as AnyProto

    from penstock.formats.proto import data_pb2 as data  # noqa: F401
    from penstock.formats.proto import tfprof_pb2 as tfprof  # noqa: F401
    from penstock.formats.proto.names import *  # noqa: F403

M = TypeVar("M", bound=Message)

_TYPE_URL = "type.googleapis.com/"
_NAMESPACES = {"data": "data_pb2", "tfprof": "tfprof_pb2"}


if not TYPE_CHECKING:  # for a type checker the names above are all there are

    def __getattr__(name: str) -> Any:
        if name in MODULE_OF:
            value = getattr(importlib.import_module("penstock.formats.proto." + MODULE_OF[name]), name)
        elif name in _NAMESPACES:
            value = importlib.import_module("penstock.formats.proto." + _NAMESPACES[name])
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *MODULE_OF, *_NAMESPACES})


def tensorflow_name(message: Message | type[Message]) -> str:
    """The full name that TensorFlow knows a message by, e.g. `tensorflow.GraphDef`."""
    name = message.DESCRIPTOR.full_name
    return "tensorflow." + name.removeprefix("penstock.") if name.startswith("penstock.") else name


def coerce(value: Any, cls: type[M], parameter: str = "value") -> M:
    """`value` as a `cls`: itself, or parsed from bytes, or from TensorFlow's own message of the same name.

    Lets a program hand over protos that it got from an installed TensorFlow.
    """
    if isinstance(value, cls):
        return value
    if isinstance(value, Message) and tensorflow_name(value) == tensorflow_name(cls):
        return cls.FromString(value.SerializeToString())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return parse(bytes(value), cls)
    raise TypeError(f"{parameter} must be a {cls.__name__} proto, got {type(value).__name__}.")


def parse(data: bytes, cls: type[M], source: str = "") -> M:
    """Parses bytes; DataLossError names the message and `source` (a file, a peer) if they are damaged."""
    try:
        return cls.FromString(data)
    except DecodeError as error:
        from penstock import errors

        where = f" in {source}" if source else ""
        raise errors.DataLossError(f"Can't parse{where} as {cls.__name__}: {error}") from error


def pack_any(message: Message) -> AnyProto:
    """A `google.protobuf.Any` that TensorFlow can unpack: its type URL carries TensorFlow's name."""
    from google.protobuf.any_pb2 import Any as AnyProto

    return AnyProto(type_url=_TYPE_URL + tensorflow_name(message), value=message.SerializeToString())


def unpack_any(packed: AnyProto, cls: type[M]) -> M | None:
    """The message in an `Any` if it is a `cls` (whoever packed it), else None."""
    name = packed.type_url.rpartition("/")[2]
    if name not in (tensorflow_name(cls), cls.DESCRIPTOR.full_name):
        return None
    return parse(packed.value, cls, packed.type_url)


def service_methods(service: str) -> dict[str, tuple[type[Message], type[Message]]]:
    """The RPCs of `MasterService` or `WorkerService`: method name -> (request class, response class)."""
    from penstock.formats.proto import cluster_pb2

    methods = cluster_pb2.DESCRIPTOR.services_by_name[service].methods
    return {
        m.name: (getattr(cluster_pb2, m.input_type.name), getattr(cluster_pb2, m.output_type.name)) for m in methods
    }
