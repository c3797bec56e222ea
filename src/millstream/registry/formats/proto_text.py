"""Reads the text of a .proto file into a FileDescriptorProto: proto2, proto3 and editions.

Only the syntax is read here. Names, numbers and types are checked by protobuf itself, when the
result is added to a descriptor pool (`protobuf.py`). Time and memory are linear in the text.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message

from millstream.registry.formats.proto_tokens import ProtoTokens, Token, escaped
from millstream.registry.formats.text import InvalidSchema

_DEPTH_MAX: Final = 60
_NUMBER_MAX: Final = 536_870_911
_ENUM_NUMBER_MAX: Final = 2**31 - 1

SCALARS: Final = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
        "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
    )
}  # fmt: skip
_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}


def read_proto(text: str) -> descriptor_pb2.FileDescriptorProto:
    """Raises InvalidSchema."""
    return _Reader(text).file()


class _Reader(ProtoTokens):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._file = descriptor_pb2.FileDescriptorProto()

    def _block(self, read_one: Callable[[], None]) -> None:
        """`{`, elements, `}`."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self.wrong(f"nested deeper than {_DEPTH_MAX} levels", self.now.position)
        self.expect("{")
        while not self.takes("}"):
            if self.now.kind == "end":
                raise self.wrong("expected '}' before the end", self.now.position)
            if not self.takes(";"):
                read_one()
        self._depth -= 1

    # -- the file ---------------------------------------------------------------------

    def file(self) -> descriptor_pb2.FileDescriptorProto:
        if self.takes("syntax"):
            self._syntax()
        elif self.takes("edition"):
            self._edition()
        while self.now.kind != "end":
            if not self.takes(";"):
                self._file_element()
        return self._file

    def _syntax(self) -> None:
        self.expect("=")
        position = self.now.position
        name = self.string()
        if name not in ("proto2", "proto3"):
            raise self.wrong(f"unknown syntax {name!r}", position)
        if name == "proto3":
            self._file.syntax = name
        self.expect(";")

    def _edition(self) -> None:
        self.expect("=")
        position = self.now.position
        name = self.string()
        if f"EDITION_{name}" not in descriptor_pb2.Edition.keys():  # noqa: SIM118 (an enum)
            raise self.wrong(f"unknown edition {name!r}", position)
        self._file.syntax = "editions"
        self._file.edition = descriptor_pb2.Edition.Value(f"EDITION_{name}")
        self.expect(";")

    def _file_element(self) -> None:
        file = self._file
        token = self.now
        match self.word():
            case "package":
                file.package = self.word()
                self.expect(";")
            case "import":
                self._import()
            case "option":
                self._option_statement(file.options)
            case "message":
                self._message(file.message_type.add())
            case "enum":
                self._enum(file.enum_type.add())
            case "extend":
                self._extend(file.extension, file.message_type)
            case "service":
                self._service(file.service.add())
            case other:
                raise self.wrong(f"unexpected {other!r}", token.position)

    def _import(self) -> None:
        file = self._file
        if self.takes("public"):
            file.public_dependency.append(len(file.dependency))
        elif self.takes("weak"):
            file.weak_dependency.append(len(file.dependency))
        file.dependency.append(self.string())
        self.expect(";")

    # -- messages ---------------------------------------------------------------------

    def _message(self, message: descriptor_pb2.DescriptorProto) -> None:
        message.name = self.name()
        self._message_body(message)

    def _message_body(self, message: descriptor_pb2.DescriptorProto) -> None:
        self._block(lambda: self._message_element(message))
        # Oneofs that stand for `optional` come behind all others.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _message_element(self, message: descriptor_pb2.DescriptorProto) -> None:
        if self._is_field():
            self._field(message.field.add(), message.nested_type)
            return
        match self.word():
            case "message":
                self._message(message.nested_type.add())
            case "enum":
                self._enum(message.enum_type.add())
            case "oneof":
                self._oneof(message)
            case "option":
                self._option_statement(message.options)
            case "extend":
                self._extend(message.extension, message.nested_type)
            case "reserved":
                self._reserved(message)
            case "extensions":
                self._extension_ranges(message)

    def _is_field(self) -> bool:
        """A field may have a type with the name of a keyword: `message message = 1;`."""
        token, after = self.now, self.ahead(1)
        if token.kind != "word":
            raise self.wrong(f"unexpected {token.text!r}", token.position)
        match token.text:
            case "message" | "enum" | "oneof" | "extend":
                following = self.ahead(2)
                return following.text == "="
            case "option" | "reserved" | "extensions":
                following = self.ahead(2)
                is_option = token.text == "option"
                return after.kind == "word" and not is_option and following.text == "="
        return True

    def _field(self, field: FieldDescriptorProto, nested: Any) -> None:
        """With its label. A map or a group adds a message to `nested`."""
        label = self.now.text if self.now.kind == "word" else ""
        if label in _LABELS:
            self.take()
            field.label = _LABELS[label]
            field.proto3_optional = label == "optional" and self._file.syntax == "proto3"
            if not field.proto3_optional:
                field.ClearField("proto3_optional")
        else:
            field.label = FieldDescriptorProto.LABEL_OPTIONAL
            if not self._file.syntax and self.now.text != "map":
                raise self.wrong(
                    "a field of proto2 needs optional, required or repeated", self.now.position
                )
        self._field_after_label(field, nested)

    def _field_after_label(self, field: FieldDescriptorProto, nested: Any) -> None:
        if self.now.text == "map" and self.ahead(1).text == "<":
            self._map(field, nested)
            return
        if self.now.text == "group" and self.ahead(1).kind == "word":
            self._group(field, nested)
            return
        self._set_type(field, self.word())
        field.name = self.name()
        self._number_and_options(field)
        self.expect(";")

    @staticmethod
    def _set_type(field: FieldDescriptorProto, name: str) -> None:
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            # A message or an enum: the pool finds out.
            field.type_name = name

    def _number_and_options(self, field: FieldDescriptorProto) -> None:
        self.expect("=")
        field.number = self.integer(_NUMBER_MAX)
        for name, value in self._options_in_brackets():
            if name == "default":
                field.default_value = _default_text(value, field)
            elif name == "json_name":
                field.json_name = value.text
            else:
                _set_option(field.options, name, value)

    def _map(self, field: FieldDescriptorProto, nested: Any) -> None:
        self.take()
        self.expect("<")
        key, value = self.word(), None
        self.expect(",")
        value = self.word()
        self.expect(">")
        field.name = self.name()
        field.label = FieldDescriptorProto.LABEL_REPEATED
        entry = nested.add(name=f"{_camel(field.name)}Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            part = entry.field.add(
                name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL
            )
            self._set_type(part, kind)
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = entry.name
        self._number_and_options(field)
        self.expect(";")

    def _group(self, field: FieldDescriptorProto, nested: Any) -> None:
        self.take()
        message = nested.add(name=self.name())
        field.name = message.name.lower()
        field.type = FieldDescriptorProto.TYPE_GROUP
        field.type_name = message.name
        self._number_and_options(field)
        self._message_body(message)

    def _oneof(self, message: descriptor_pb2.DescriptorProto) -> None:
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self.name())

        def read_one() -> None:
            if self.takes("option"):
                self._option_statement(oneof.options)
                return
            field = message.field.add(label=FieldDescriptorProto.LABEL_OPTIONAL, oneof_index=index)
            self._field_after_label(field, message.nested_type)

        self._block(read_one)

    def _reserved(self, message: descriptor_pb2.DescriptorProto) -> None:
        if self.now.kind in ("string", "word"):
            message.reserved_name.extend(self._names())
        else:
            for start, end in self._ranges(_NUMBER_MAX):
                message.reserved_range.add(start=start, end=end + 1)
        self.expect(";")

    def _extension_ranges(self, message: descriptor_pb2.DescriptorProto) -> None:
        for start, end in self._ranges(_NUMBER_MAX):
            message.extension_range.add(start=start, end=end + 1)
        # Declarations of extensions say nothing about data.
        self._options_in_brackets()
        self.expect(";")

    def _names(self) -> list[str]:
        names = []
        while True:
            names.append(self.string() if self.now.kind == "string" else self.name())
            if not self.takes(","):
                return names

    def _ranges(self, limit: int) -> list[tuple[int, int]]:
        found = []
        while True:
            start = end = self.integer(limit)
            if self.takes("to"):
                end = limit if self.takes("max") else self.integer(limit)
            found.append((start, end))
            if not self.takes(","):
                return found

    def _extend(self, extensions: Any, nested: Any) -> None:
        extendee = self.word()

        def read_one() -> None:
            field = extensions.add(extendee=extendee)
            self._field(field, nested)

        self._block(read_one)

    # -- enums and services -----------------------------------------------------------

    def _enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        enum.name = self.name()

        def read_one() -> None:
            after = self.ahead(1)
            if after.text != "=" and self.takes("option"):
                self._option_statement(enum.options)
            elif after.text != "=" and self.takes("reserved"):
                self._reserved_of_enum(enum)
            else:
                value = enum.value.add(name=self.name())
                self.expect("=")
                value.number = self.integer(_ENUM_NUMBER_MAX)
                for name, option in self._options_in_brackets():
                    _set_option(value.options, name, option)
                self.expect(";")

        self._block(read_one)

    def _reserved_of_enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        if self.now.kind in ("string", "word"):
            enum.reserved_name.extend(self._names())
        else:
            for start, end in self._ranges(_ENUM_NUMBER_MAX):
                # Unlike those of messages, these include their end.
                enum.reserved_range.add(start=start, end=end)
        self.expect(";")

    def _service(self, service: descriptor_pb2.ServiceDescriptorProto) -> None:
        service.name = self.name()

        def read_one() -> None:
            if self.takes("option"):
                self._option_statement(service.options)
                return
            self.expect("rpc")
            method = service.method.add(name=self.name())
            method.input_type, method.client_streaming = self._method_type()
            self.expect("returns")
            method.output_type, method.server_streaming = self._method_type()
            if not method.client_streaming:
                method.ClearField("client_streaming")
            if not method.server_streaming:
                method.ClearField("server_streaming")
            if self.now.text == "{":
                self._block(lambda: self._method_element(method))
            else:
                self.expect(";")

        self._block(read_one)

    def _method_type(self) -> tuple[str, bool]:
        self.expect("(")
        is_stream = self.now.text == "stream" and self.ahead(1).text != ")" and self.takes("stream")
        name = self.word()
        self.expect(")")
        return name, is_stream

    def _method_element(self, method: descriptor_pb2.MethodDescriptorProto) -> None:
        self.expect("option")
        self._option_statement(method.options)

    # -- options ----------------------------------------------------------------------

    def _option_statement(self, options: Message) -> None:
        name = self._option_name()
        self.expect("=")
        _set_option(options, name, self._value())
        self.expect(";")

    def _options_in_brackets(self) -> "list[tuple[str, Token]]":
        found: list[tuple[str, Token]] = []
        if not self.takes("["):
            return found
        while True:
            name = self._option_name()
            self.expect("=")
            found.append((name, self._value()))
            if self.takes("]"):
                return found
            self.expect(",")

    def _option_name(self) -> str:
        """`deprecated`, `features.utf8_validation`, or `(custom).part`."""
        parts = []
        while self.now.text == "(" or self.now.kind == "word":
            if self.takes("("):
                parts.append(f"({self.word()})")
                self.expect(")")
            else:
                parts.append(self.word().lstrip("."))
        if not parts:
            raise self.wrong(
                f"expected the name of an option, not {self.now.text!r}", self.now.position
            )
        return ".".join(parts)

    def _value(self) -> Token:
        """A word, number, string without its quotes, or the text of a `{...}`."""
        token = self.now
        if token.kind == "string":
            return Token("string", self.string(), token.position)
        if token.text == "{":
            return self._aggregate()
        sign = self.take().text if token.text in ("-", "+") else ""
        token = self.take()
        if token.kind not in ("word", "number"):
            raise self.wrong(f"expected a value, not {token.text!r}", token.position)
        return Token(token.kind, sign.replace("+", "") + token.text, token.position)

    def _aggregate(self) -> Token:
        start, level, parts = self.now.position, 0, []
        while True:
            token = self.take()
            if token.kind == "end":
                raise self.wrong("expected '}' before the end", token.position)
            level += (token.text == "{") - (token.text == "}")
            parts.append(token.text)
            if level == 0:
                return Token("aggregate", " ".join(parts[1:-1]), start)


def _default_text(value: Token, field: FieldDescriptorProto) -> str:
    """As descriptors have it: bytes are escaped, other strings are not."""
    return escaped(value.text) if field.type == FieldDescriptorProto.TYPE_BYTES else value.text


def _camel(name: str) -> str:
    """Of the message behind a map: `some_field` has `SomeFieldEntry`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _set_option(options: Message, name: str, value: Token) -> None:
    """Options that protobuf knows get their field; all others are kept as they are."""
    target, parts = options, name.split(".") if "(" not in name else [name]
    for part in parts[:-1]:
        field = target.DESCRIPTOR.fields_by_name.get(part)
        if field is None or field.message_type is None or field.is_repeated:
            break
        target = getattr(target, part)
    else:
        field = target.DESCRIPTOR.fields_by_name.get(parts[-1])
        if field is not None and field.message_type is None and not field.is_repeated:
            setattr(target, parts[-1], _typed(field, value, name))
            return
    _keep_option(options, name, value)


def _typed(field: FieldDescriptor, value: Token, name: str) -> object:
    if field.enum_type is not None:
        known = field.enum_type.values_by_name.get(value.text)
        if known is None:
            raise InvalidSchema(f"option {name}: {value.text!r} is not one of its values")
        return known.number
    if field.type == FieldDescriptor.TYPE_BOOL:
        if value.text not in ("true", "false"):
            raise InvalidSchema(f"option {name} is true or false, not {value.text!r}")
        return value.text == "true"
    if field.type == FieldDescriptor.TYPE_STRING and value.kind == "string":
        return value.text
    raise InvalidSchema(f"option {name} cannot be {value.text!r}")


def _keep_option(options: Any, name: str, value: Token) -> None:
    kept = options.uninterpreted_option.add()
    for part in re.findall(r"\([^)]*\)|[^.()]+", name):
        kept.name.add(name_part=part.strip("()"), is_extension=part.startswith("("))
    if value.kind == "string":
        kept.string_value = value.text.encode("latin-1", "replace")
    elif value.kind == "aggregate":
        kept.aggregate_value = value.text
    else:
        # Numbers, too: only their text matters for those who read it again.
        kept.identifier_value = value.text
