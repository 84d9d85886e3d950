"""Create protobuf message classes from tables of field numbers, for the few messages of CRI and hooks that are used.

protobuf is imported with the first table, so a process that speaks to no such interface does not load it.
"""

from collections.abc import Mapping
from typing import Any, Final

Fields = Mapping[str, tuple[int, str]]
"""Name of a field -> (number, kind).

A kind is string, bytes, bool, int32, uint32, int64, uint64 or the name of a message; `repeated ` before it for a list;
`map` for a map from string to string.
"""

_REPEATED: Final = "repeated "
_MAP: Final = "map"


def message_classes(package: str, messages: Mapping[str, Fields]) -> Mapping[str, Any]:
    """Return name -> protobuf class for every message of a table.

    An object keeps the fields that the table lacks, so that it is written as it was read.

    Args:
        package: Protobuf package of the messages.
        messages: Name of a message -> its fields.

    Raises:
        KeyError: The type of a field is unknown.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {name: getattr(kinds, f"TYPE_{name.upper()}") for name in _SCALARS}
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            of = kind.removeprefix(_REPEATED)
            label = kinds.LABEL_REPEATED if kind != of or of == _MAP else kinds.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            if of == _MAP:
                entry_name = "".join(part.capitalize() for part in field_name.split("_")) + "Entry"
                entry = message.nested_type.add(name=entry_name)
                entry.options.map_entry = True
                for key, position in (("key", 1), ("value", 2)):
                    entry.field.add(name=key, number=position, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_STRING)
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{package}.{name}.{entry_name}"
            elif of in messages:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{package}.{of}"
            else:
                field.type = scalars[of]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


_SCALARS: Final = ("string", "bytes", "bool", "int32", "uint32", "int64", "uint64")
