"""Protobuf: does data of one schema mean the same to another one?

Fields are found by number, messages by name without the package. Fields may come and go, names of
fields and packages may change; types may change where the bytes stay the same. A message that is
gone is a difference, so a new message is one in the direction FORWARD.
"""

from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from millstream.registry.compatibility.difference import (
    DIFFERENCES_MAX,
    PAIRS_MAX,
    Difference,
    TooManyPairs,
)
from millstream.registry.formats.protobuf import ProtobufSchema

_F = FieldDescriptor
# Types of one group have the same bytes.
_GROUPS: Final = (
    {_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
)
_MESSAGES: Final = (_F.TYPE_MESSAGE, _F.TYPE_GROUP)
# The last value wins where one is expected; numbers are packed and cannot be read so.
_MAY_CHANGE_LABEL: Final = (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE)


def compare_protobuf(reader: ProtobufSchema, writer: ProtobufSchema) -> list[Difference]:
    """Why `reader` cannot take over from `writer`; nothing if it can. Raises TooManyPairs."""
    comparison = _Comparison()
    found: list[Difference] = []
    for name, message in writer.file.message_types_by_name.items():
        found += comparison.compare_found(reader.file.message_types_by_name.get(name), message, "")
    return found[:DIFFERENCES_MAX]


class _Comparison:
    def __init__(self) -> None:
        # Messages may contain themselves: a pair is looked at once.
        self._seen: set[tuple[str, str]] = set()
        self._pairs = 0

    def compare_found(
        self, reader: Descriptor | None, writer: Descriptor, path: str
    ) -> Iterator[Difference]:
        where = f"{path}/{writer.name}"
        if reader is None:
            text = f"The message {writer.full_name} was removed"
            yield Difference("MESSAGE_REMOVED", where, text)
        else:
            yield from self.compare(reader, writer, where)

    def compare(self, reader: Descriptor, writer: Descriptor, path: str) -> Iterator[Difference]:
        pair = (reader.full_name, writer.full_name)
        if pair in self._seen:
            return
        self._seen.add(pair)
        for nested in writer.nested_types:
            if not _is_map_entry(nested):
                yield from self.compare_found(
                    reader.nested_types_by_name.get(nested.name), nested, path
                )
        yield from self._fields(reader, writer, path)
        yield from _moved_fields(reader, writer, path)

    def _fields(self, reader: Descriptor, writer: Descriptor, path: str) -> Iterator[Difference]:
        for field in reader.fields:
            source = writer.fields_by_number.get(field.number)
            where = f"{path}/{field.number}"
            if source is not None:
                yield from self._field(field, source, where)
            elif field.is_required:
                text = f"The required field {field.name} was added"
                yield Difference("REQUIRED_FIELD_ADDED", where, text)
        kept = {one.name for one in reader.oneofs}
        for field in writer.fields:
            if field.number in reader.fields_by_number:
                continue
            where, oneof = f"{path}/{field.number}", _oneof_of(field)
            if field.is_required:
                text = f"The required field {field.name} was removed"
                yield Difference("REQUIRED_FIELD_REMOVED", where, text)
            elif oneof is not None and oneof.name in kept:
                text = f"The field {field.name} was removed from the oneof {oneof.name}"
                yield Difference("ONEOF_FIELD_REMOVED", where, text)

    def _field(
        self, field: FieldDescriptor, source: FieldDescriptor, where: str
    ) -> Iterator[Difference]:
        self._pairs += 1
        if self._pairs > PAIRS_MAX:
            raise TooManyPairs
        is_message, was_message = field.type in _MESSAGES, source.type in _MESSAGES
        if is_message != was_message:
            text = f"The field {field.name} is a message in one schema only"
            yield Difference("FIELD_KIND_CHANGED", where, text)
            return
        if field.is_repeated != source.is_repeated and field.type not in _MAY_CHANGE_LABEL:
            text = f"The number {field.name} is repeated in one schema only"
            yield Difference("FIELD_NUMERIC_LABEL_CHANGED", where, text)
        if is_message:
            yield from self._message_field(field, source, where)
        elif not _have_same_bytes(field, source):
            text = f"The type of {field.name} is {_type(field)} and was {_type(source)}"
            yield Difference("FIELD_SCALAR_KIND_CHANGED", where, text)

    def _message_field(
        self, field: FieldDescriptor, source: FieldDescriptor, where: str
    ) -> Iterator[Difference]:
        message, other = field.message_type, source.message_type
        is_map = _is_map_entry(message) and _is_map_entry(other)
        if not is_map and _local_name(message) != _local_name(other):
            text = f"The type of {field.name} is {message.full_name} and was {other.full_name}"
            yield Difference("FIELD_NAMED_TYPE_CHANGED", where, text)
        else:
            yield from self.compare(message, other, where)


def _moved_fields(reader: Descriptor, writer: Descriptor, path: str) -> Iterator[Difference]:
    """Fields that were on their own and are in a oneof now: setting one deletes the others."""
    for oneof in reader.oneofs:
        if _is_synthetic(oneof):
            continue
        sources = [writer.fields_by_number.get(field.number) for field in oneof.fields]
        known = [one for one in sources if one is not None]
        alone = [one for one in known if _oneof_of(one) is None]
        where = f"{path}/{oneof.name}"
        if len(alone) > 1:
            text = f"Several fields were moved to the oneof {oneof.name}"
            yield Difference("MULTIPLE_FIELDS_MOVED_TO_ONEOF", where, text)
        elif alone and len(known) > 1:
            text = f"The field {alone[0].name} was moved to the existing oneof {oneof.name}"
            yield Difference("FIELD_MOVED_TO_EXISTING_ONEOF", where, text)


def _oneof_of(field: FieldDescriptor) -> OneofDescriptor | None:
    oneof = field.containing_oneof
    return None if oneof is None or _is_synthetic(oneof) else oneof


def _is_synthetic(oneof: OneofDescriptor) -> bool:
    """One that stands for `optional` of proto3."""
    return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"


def _is_map_entry(message: Descriptor) -> bool:
    return bool(message.GetOptions().map_entry)


def _local_name(message: Descriptor) -> str:
    name: str = message.full_name
    return name.removeprefix(f"{message.file.package}.") if message.file.package else name


def _have_same_bytes(field: FieldDescriptor, source: FieldDescriptor) -> bool:
    return field.type == source.type or any(
        field.type in group and source.type in group for group in _GROUPS
    )


def _type(field: FieldDescriptor) -> str:
    name: str = FieldDescriptorProto.Type.Name(field.type)
    return name.removeprefix("TYPE_").lower()
