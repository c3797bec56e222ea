"""Writes a FileDescriptorProto as the text of a .proto file: `proto_text.py` the other way round.

The text is canonical: the same descriptor gives the same text, without comments. Types of the
file's own package are written without it, where no other name could be meant.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message

from millstream.registry.formats.proto_text import SCALARS
from millstream.registry.formats.proto_tokens import escaped

_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
    FieldDescriptorProto.LABEL_REQUIRED: "required ",
    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}
_NUMBER_END: Final = 536_870_912
_ENUM_NUMBER_MAX: Final = 2**31 - 1


def print_proto(file: descriptor_pb2.FileDescriptorProto) -> str:
    """Of a descriptor whose type names are full, as those of a pool are."""
    return "\n".join(_Printer(file).lines()) + "\n"


class _Printer:
    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self._file = file
        # How often a name is declared in the file, at whatever depth.
        self._declared: dict[str, int] = {}
        for message in file.message_type:
            self._count(message)
        for enum in file.enum_type:
            self._declare(enum.name)

    def _count(self, message: descriptor_pb2.DescriptorProto) -> None:
        self._declare(message.name)
        for nested in message.nested_type:
            self._count(nested)
        for enum in message.enum_type:
            self._declare(enum.name)

    def _declare(self, name: str) -> None:
        self._declared[name] = self._declared.get(name, 0) + 1

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            edition = descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")
            yield f'edition = "{edition}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        for index, name in enumerate(file.dependency):
            kind = "public " if index in file.public_dependency else ""
            kind = "weak " if index in file.weak_dependency else kind
            yield f'import {kind}"{escaped(name)}";'
        yield from _statements(file.options)
        for enum in file.enum_type:
            yield from ("", *self._enum(enum))
        for message in file.message_type:
            yield from ("", *self._message(message))
        yield from self._extensions(file.extension)
        for service in file.service:
            yield from ("", *self._service(service))

    def _message(self, message: descriptor_pb2.DescriptorProto) -> Iterator[str]:
        yield f"message {message.name} {{"
        yield from _indented(self._body(message))
        yield "}"

    def _body(self, message: descriptor_pb2.DescriptorProto) -> Iterator[str]:
        yield from _statements(message.options)
        generated = {one.name: one for one in message.nested_type if one.options.map_entry}
        groups = {
            one.type_name.rpartition(".")[2]: one
            for one in message.field
            if one.type == FieldDescriptorProto.TYPE_GROUP
        }
        bodies = {one.name: one for one in message.nested_type if one.name in groups}
        written: set[int] = set()
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                if field.oneof_index not in written:
                    written.add(field.oneof_index)
                    yield from self._oneof(message, field.oneof_index, bodies)
            else:
                yield from self._field(field, generated, bodies, self._label(field))
        yield from _reserved(message)
        for one in message.extension_range:
            yield f"extensions {_range(one.start, one.end - 1, _NUMBER_END - 1)};"
        for enum in message.enum_type:
            yield from self._enum(enum)
        for nested in message.nested_type:
            if nested.name not in generated and nested.name not in bodies:
                yield from self._message(nested)
        yield from self._extensions(message.extension)

    def _oneof(
        self, message: descriptor_pb2.DescriptorProto, index: int, bodies: dict[str, Any]
    ) -> Iterator[str]:
        oneof = message.oneof_decl[index]
        yield f"oneof {oneof.name} {{"
        yield from _indented(_statements(oneof.options))
        for field in message.field:
            is_inside = field.HasField("oneof_index") and field.oneof_index == index
            if is_inside and not field.proto3_optional:
                yield from _indented(self._field(field, {}, bodies, ""))
        yield "}"

    def _label(self, field: FieldDescriptorProto) -> str:
        if (
            field.label == FieldDescriptorProto.LABEL_OPTIONAL
            and self._file.syntax
            and not field.proto3_optional
        ):
            return ""
        return _LABELS[field.label]

    def _field(
        self, field: FieldDescriptorProto, maps: dict[str, Any], groups: dict[str, Any], label: str
    ) -> Iterator[str]:
        short = field.type_name.rpartition(".")[2]
        tail = f"= {field.number}{_options_of(field)}"
        if field.type == FieldDescriptorProto.TYPE_GROUP and short in groups:
            yield f"{label}group {short} {tail} {{"
            yield from _indented(self._body(groups[short]))
            yield "}"
            return
        kind = f"{label}{self._type(field)}"
        if short in maps and field.label == FieldDescriptorProto.LABEL_REPEATED:
            key, value = maps[short].field
            kind = f"map<{self._type(key)}, {self._type(value)}>"
        yield f"{kind} {field.name} {tail};"

    def _type(self, field: FieldDescriptorProto) -> str:
        return _NAMES[field.type] if field.type in _NAMES else self._short(field.type_name)

    def _short(self, full: str) -> str:
        prefix = f".{self._file.package}." if self._file.package else "."
        short = full.removeprefix(prefix)
        if short == full or self._declared.get(short.partition(".")[0], 0) != 1:
            return full
        return short

    def _enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> Iterator[str]:
        yield f"enum {enum.name} {{"
        yield from _indented(_statements(enum.options))
        for value in enum.value:
            yield f"  {value.name} = {value.number}{_brackets(_settings(value.options))};"
        ranges = [_range(one.start, one.end, _ENUM_NUMBER_MAX) for one in enum.reserved_range]
        if ranges:
            yield f"  reserved {', '.join(ranges)};"
        yield from _indented(_reserved_names(enum.reserved_name))
        yield "}"

    def _extensions(self, extensions: Iterable[FieldDescriptorProto]) -> Iterator[str]:
        for field in extensions:
            yield f"extend {self._short(field.extendee)} {{"
            yield from _indented(self._field(field, {}, {}, self._label(field)))
            yield "}"

    def _service(self, service: descriptor_pb2.ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from _indented(_statements(service.options))
        for method in service.method:
            taken = (
                f"{'stream ' if method.client_streaming else ''}{self._short(method.input_type)}"
            )
            given = "stream " if method.server_streaming else ""
            given += self._short(method.output_type)
            options = list(_statements(method.options))
            end = " {" if options else ";"
            yield f"  rpc {method.name} ({taken}) returns ({given}){end}"
            if options:
                yield from _indented(_indented(options))
                yield "  }"
        yield "}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _reserved(message: descriptor_pb2.DescriptorProto) -> Iterator[str]:
    ranges = [_range(one.start, one.end - 1, _NUMBER_END - 1) for one in message.reserved_range]
    if ranges:
        yield f"reserved {', '.join(ranges)};"
    yield from _reserved_names(message.reserved_name)


def _reserved_names(names: Iterable[str]) -> Iterator[str]:
    quoted = [f'"{escaped(name)}"' for name in names]
    if quoted:
        yield f"reserved {', '.join(quoted)};"


def _range(start: int, end: int, limit: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == limit else end}"


def _statements(options: Message) -> Iterator[str]:
    return (f"option {one};" for one in _settings(options))


def _options_of(field: FieldDescriptorProto) -> str:
    settings = []
    if field.HasField("default_value"):
        settings.append(f"default = {_default(field)}")
    if field.HasField("json_name") and field.json_name != default_json_name(field.name):
        settings.append(f'json_name = "{escaped(field.json_name)}"')
    return _brackets([*settings, *_settings(field.options)])


def _brackets(settings: Iterable[str]) -> str:
    joined = ", ".join(settings)
    return f" [{joined}]" if joined else ""


def _default(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return f'"{escaped(field.default_value)}"'
    # Bytes are escaped already.
    return (
        f'"{field.default_value}"'
        if field.type == FieldDescriptorProto.TYPE_BYTES
        else field.default_value
    )


def default_json_name(name: str) -> str:
    """`some_field` is `someField`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _settings(options: Message, prefix: str = "") -> Iterator[str]:
    for field, value in options.ListFields():
        name = f"{prefix}{field.name}"
        if field.name == "map_entry" or field.is_extension:
            continue
        if field.name == "uninterpreted_option":
            yield from (_kept(one) for one in value)
        elif field.message_type is not None and not field.is_repeated:
            yield from _settings(value, f"{name}.")
        elif not field.is_repeated:
            yield f"{name} = {_value(field, value)}"


def _value(field: FieldDescriptor, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{escaped(value)}"' if isinstance(value, str) else str(value)


def _kept(option: descriptor_pb2.UninterpretedOption) -> str:
    name = ".".join(
        f"({one.name_part})" if one.is_extension else one.name_part for one in option.name
    )
    if option.HasField("string_value"):
        return f'{name} = "{escaped(option.string_value.decode("latin-1"))}"'
    if option.HasField("aggregate_value"):
        return f"{name} = {{ {option.aggregate_value} }}"
    return f"{name} = {option.identifier_value}"
