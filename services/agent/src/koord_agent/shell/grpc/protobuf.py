"""Protobuf message classes from tables of field numbers, for the few messages of foreign interfaces that are used.

protobuf is imported with the first table, so an agent without kubelet and runtime does not load it.
"""

from collections.abc import Mapping
from typing import Any, Final

Fields = Mapping[str, tuple[int, str]]
"""Name -> (number, kind). A kind is string, int64, bool or the name of a message; `repeated` before it for lists."""

_REPEATED: Final = "repeated "


def message_classes(package: str, messages: Mapping[str, Fields]) -> Mapping[str, Any]:
    """Create protobuf message classes from tables of fields: message name -> class.

    Fields that a table lacks are kept when a message is decoded and encoded again.

    Args:
        package: Name of the protobuf package.
        messages: Message name -> its fields.

    Raises:
        KeyError: A field has an unknown type.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_type = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": field_type.TYPE_STRING, "int64": field_type.TYPE_INT64, "bool": field_type.TYPE_BOOL}
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            of = kind.removeprefix(_REPEATED)
            label = field_type.LABEL_REPEATED if kind != of else field_type.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            if of in messages:
                field.type, field.type_name = field_type.TYPE_MESSAGE, f".{package}.{of}"
            else:
                field.type = scalars[of]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}
