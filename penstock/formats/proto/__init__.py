"""The .proto files and the modules made from them; `penstock.formats.protos` is the door to use.

A `*_pb2` module holds its file's serialized descriptor and calls `build`, which makes the message classes at import.
There is no generated code that protobuf could find too old or too new: see docs/decisions/0003-protobuf-gencode.md.
"""

from __future__ import annotations

from typing import Any


def build(namespace: dict[str, Any], serialized: bytes) -> None:
    """Fills a module's namespace with what protoc's own code would put there: DESCRIPTOR, messages, enums, values."""
    from google.protobuf import descriptor_pool  # here and below: a slow import, which programs without protos never need
    from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

    file = descriptor_pool.Default().AddSerializedFile(serialized)
    module = namespace["__name__"]
    namespace["DESCRIPTOR"] = file
    for name, enum in file.enum_types_by_name.items():
        namespace[name] = EnumTypeWrapper(enum)
        for value in enum.values:
            namespace[value.name] = value.number
    for name, message in file.message_types_by_name.items():
        namespace[name] = _message_class(message, module, name)


def _message_class(descriptor: Any, module: str, qualname: str) -> type:
    from google.protobuf import message_factory, symbol_database

    cls = message_factory.GetMessageClass(descriptor)
    # Where repr and pickle look for the class; for nested classes pickle asks the symbol database.
    cls.__module__ = module
    cls.__qualname__ = qualname
    symbol_database.Default().RegisterMessage(cls)
    for nested in descriptor.nested_types:
        nested_cls = _message_class(nested, module, f"{qualname}.{nested.name}")
        # protobuf's pure-Python implementation leaves this step to generated code.
        if not hasattr(cls, nested.name):
            setattr(cls, nested.name, nested_cls)
    return cls
