"""Reads the text of a .proto file into a FileDescriptorProto: proto2, proto3 and editions.

Only the syntax is read here. Names, numbers and types are checked by protobuf itself, when the
result is added to a descriptor pool (`protobuf.py`). Time and memory are linear in the text.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import Message

from millstream.registry.formats.text import InvalidSchema

_DEPTH_MAX: Final = 60
_REASON_CHARACTERS_MAX: Final = 200
_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*|\.[A-Za-z_][A-Za-z0-9_.]*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>[{}\[\]()<>=;,:+/-])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|(.))", re.S
)
_SIMPLE: Final = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
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


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def read_proto(text: str) -> descriptor_pb2.FileDescriptorProto:
    """Raises InvalidSchema."""
    return _Reader(text).file()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._next = 0
        self._depth = 0
        self._file = descriptor_pb2.FileDescriptorProto()

    # -- tokens -----------------------------------------------------------------------

    def _split(self, text: str) -> list[_Token]:
        tokens, position = [], 0
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self._wrong(f"unexpected {text[position]!r}", position)
            if found.lastgroup is not None:
                tokens.append(_Token(found.lastgroup, found[0], position))
            position = found.end()
        tokens.append(_Token("end", "the end", len(text)))
        return tokens

    def _wrong(self, reason: str, position: int) -> InvalidSchema:
        line = self._text.count("\n", 0, position) + 1
        column = position - self._text.rfind("\n", 0, position)
        return InvalidSchema(f"line {line}, column {column}: {reason[:_REASON_CHARACTERS_MAX]}")

    @property
    def _now(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._now
        self._next += token.kind != "end"
        return token

    def _takes(self, text: str) -> bool:
        """Take this token if it is the next one."""
        is_next = self._now.text == text and self._now.kind in ("word", "mark")
        self._next += is_next
        return is_next

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise self._wrong(f"expected {text!r}, not {self._now.text!r}", self._now.position)

    def _word(self) -> str:
        token = self._take()
        if token.kind != "word":
            raise self._wrong(f"expected a name, not {token.text!r}", token.position)
        return token.text

    def _name(self) -> str:
        token = self._now
        name = self._word()
        if "." in name:
            raise self._wrong(f"{name!r} must be a name without dots", token.position)
        return name

    def _string(self) -> str:
        token = self._now
        if token.kind != "string":
            raise self._wrong(f"expected a string, not {token.text!r}", token.position)
        parts = []
        # Strings side by side are one.
        while self._now.kind == "string":
            parts.append(_unescaped(self._take().text[1:-1]))
        return "".join(parts)

    def _integer(self, limit: int) -> int:
        is_negative = self._takes("-")
        token = self._take()
        try:
            # A number of thousands of digits is refused here, too.
            value = _integer_of(token.text) if token.kind == "number" else None
        except ValueError:
            value = None
        if value is None or value > limit + is_negative:
            raise self._wrong(f"expected a whole number, not {token.text!r}", token.position)
        return -value if is_negative else value

    def _block(self, read_one: Callable[[], None]) -> None:
        """`{`, elements, `}`."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._wrong(f"nested deeper than {_DEPTH_MAX} levels", self._now.position)
        self._expect("{")
        while not self._takes("}"):
            if self._now.kind == "end":
                raise self._wrong("expected '}' before the end", self._now.position)
            if not self._takes(";"):
                read_one()
        self._depth -= 1

    # -- the file ---------------------------------------------------------------------

    def file(self) -> descriptor_pb2.FileDescriptorProto:
        if self._takes("syntax"):
            self._syntax()
        elif self._takes("edition"):
            self._edition()
        while self._now.kind != "end":
            if not self._takes(";"):
                self._file_element()
        return self._file

    def _syntax(self) -> None:
        self._expect("=")
        position = self._now.position
        name = self._string()
        if name not in ("proto2", "proto3"):
            raise self._wrong(f"unknown syntax {name!r}", position)
        if name == "proto3":
            self._file.syntax = name
        self._expect(";")

    def _edition(self) -> None:
        self._expect("=")
        position = self._now.position
        name = self._string()
        if f"EDITION_{name}" not in descriptor_pb2.Edition.keys():  # noqa: SIM118 (an enum)
            raise self._wrong(f"unknown edition {name!r}", position)
        self._file.syntax = "editions"
        self._file.edition = descriptor_pb2.Edition.Value(f"EDITION_{name}")
        self._expect(";")

    def _file_element(self) -> None:
        file = self._file
        token = self._now
        match self._word():
            case "package":
                file.package = self._word()
                self._expect(";")
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
                raise self._wrong(f"unexpected {other!r}", token.position)

    def _import(self) -> None:
        file = self._file
        if self._takes("public"):
            file.public_dependency.append(len(file.dependency))
        elif self._takes("weak"):
            file.weak_dependency.append(len(file.dependency))
        file.dependency.append(self._string())
        self._expect(";")

    # -- messages ---------------------------------------------------------------------

    def _message(self, message: descriptor_pb2.DescriptorProto) -> None:
        message.name = self._name()
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
        match self._word():
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
        token, after = self._now, self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        if token.kind != "word":
            raise self._wrong(f"unexpected {token.text!r}", token.position)
        match token.text:
            case "message" | "enum" | "oneof" | "extend":
                following = self._tokens[min(self._next + 2, len(self._tokens) - 1)]
                return following.text == "="
            case "option" | "reserved" | "extensions":
                following = self._tokens[min(self._next + 2, len(self._tokens) - 1)]
                is_option = token.text == "option"
                return after.kind == "word" and not is_option and following.text == "="
        return True

    def _field(self, field: FieldDescriptorProto, nested: Any) -> None:
        """With its label. A map or a group adds a message to `nested`."""
        label = self._now.text if self._now.kind == "word" else ""
        if label in _LABELS:
            self._take()
            field.label = _LABELS[label]
            field.proto3_optional = label == "optional" and self._file.syntax == "proto3"
            if not field.proto3_optional:
                field.ClearField("proto3_optional")
        else:
            field.label = FieldDescriptorProto.LABEL_OPTIONAL
            if not self._file.syntax and self._now.text != "map":
                raise self._wrong(
                    "a field of proto2 needs optional, required or repeated", self._now.position
                )
        self._field_after_label(field, nested)

    def _field_after_label(self, field: FieldDescriptorProto, nested: Any) -> None:
        if self._now.text == "map" and self._tokens[self._next + 1].text == "<":
            self._map(field, nested)
            return
        if self._now.text == "group" and self._tokens[self._next + 1].kind == "word":
            self._group(field, nested)
            return
        self._set_type(field, self._word())
        field.name = self._name()
        self._number_and_options(field)
        self._expect(";")

    @staticmethod
    def _set_type(field: FieldDescriptorProto, name: str) -> None:
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            # A message or an enum: the pool finds out.
            field.type_name = name

    def _number_and_options(self, field: FieldDescriptorProto) -> None:
        self._expect("=")
        field.number = self._integer(_NUMBER_MAX)
        for name, value in self._options_in_brackets():
            if name == "default":
                field.default_value = _default_text(value, field)
            elif name == "json_name":
                field.json_name = value.text
            else:
                _set_option(field.options, name, value)

    def _map(self, field: FieldDescriptorProto, nested: Any) -> None:
        self._take()
        self._expect("<")
        key, value = self._word(), None
        self._expect(",")
        value = self._word()
        self._expect(">")
        field.name = self._name()
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
        self._expect(";")

    def _group(self, field: FieldDescriptorProto, nested: Any) -> None:
        self._take()
        message = nested.add(name=self._name())
        field.name = message.name.lower()
        field.type = FieldDescriptorProto.TYPE_GROUP
        field.type_name = message.name
        self._number_and_options(field)
        self._message_body(message)

    def _oneof(self, message: descriptor_pb2.DescriptorProto) -> None:
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._name())

        def read_one() -> None:
            if self._takes("option"):
                self._option_statement(oneof.options)
                return
            field = message.field.add(label=FieldDescriptorProto.LABEL_OPTIONAL, oneof_index=index)
            self._field_after_label(field, message.nested_type)

        self._block(read_one)

    def _reserved(self, message: descriptor_pb2.DescriptorProto) -> None:
        if self._now.kind in ("string", "word"):
            message.reserved_name.extend(self._names())
        else:
            for start, end in self._ranges(_NUMBER_MAX):
                message.reserved_range.add(start=start, end=end + 1)
        self._expect(";")

    def _extension_ranges(self, message: descriptor_pb2.DescriptorProto) -> None:
        for start, end in self._ranges(_NUMBER_MAX):
            message.extension_range.add(start=start, end=end + 1)
        # Declarations of extensions say nothing about data.
        self._options_in_brackets()
        self._expect(";")

    def _names(self) -> list[str]:
        names = []
        while True:
            names.append(self._string() if self._now.kind == "string" else self._name())
            if not self._takes(","):
                return names

    def _ranges(self, limit: int) -> list[tuple[int, int]]:
        found = []
        while True:
            start = end = self._integer(limit)
            if self._takes("to"):
                end = limit if self._takes("max") else self._integer(limit)
            found.append((start, end))
            if not self._takes(","):
                return found

    def _extend(self, extensions: Any, nested: Any) -> None:
        extendee = self._word()

        def read_one() -> None:
            field = extensions.add(extendee=extendee)
            self._field(field, nested)

        self._block(read_one)

    # -- enums and services -----------------------------------------------------------

    def _enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        enum.name = self._name()

        def read_one() -> None:
            after = self._tokens[min(self._next + 1, len(self._tokens) - 1)]
            if after.text != "=" and self._takes("option"):
                self._option_statement(enum.options)
            elif after.text != "=" and self._takes("reserved"):
                self._reserved_of_enum(enum)
            else:
                value = enum.value.add(name=self._name())
                self._expect("=")
                value.number = self._integer(_ENUM_NUMBER_MAX)
                for name, option in self._options_in_brackets():
                    _set_option(value.options, name, option)
                self._expect(";")

        self._block(read_one)

    def _reserved_of_enum(self, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        if self._now.kind in ("string", "word"):
            enum.reserved_name.extend(self._names())
        else:
            for start, end in self._ranges(_ENUM_NUMBER_MAX):
                # Unlike those of messages, these include their end.
                enum.reserved_range.add(start=start, end=end)
        self._expect(";")

    def _service(self, service: descriptor_pb2.ServiceDescriptorProto) -> None:
        service.name = self._name()

        def read_one() -> None:
            if self._takes("option"):
                self._option_statement(service.options)
                return
            self._expect("rpc")
            method = service.method.add(name=self._name())
            method.input_type, method.client_streaming = self._method_type()
            self._expect("returns")
            method.output_type, method.server_streaming = self._method_type()
            if not method.client_streaming:
                method.ClearField("client_streaming")
            if not method.server_streaming:
                method.ClearField("server_streaming")
            if self._now.text == "{":
                self._block(lambda: self._method_element(method))
            else:
                self._expect(";")

        self._block(read_one)

    def _method_type(self) -> tuple[str, bool]:
        self._expect("(")
        is_stream = (
            self._now.text == "stream"
            and self._tokens[self._next + 1].text != ")"
            and self._takes("stream")
        )
        name = self._word()
        self._expect(")")
        return name, is_stream

    def _method_element(self, method: descriptor_pb2.MethodDescriptorProto) -> None:
        self._expect("option")
        self._option_statement(method.options)

    # -- options ----------------------------------------------------------------------

    def _option_statement(self, options: Message) -> None:
        name = self._option_name()
        self._expect("=")
        _set_option(options, name, self._value())
        self._expect(";")

    def _options_in_brackets(self) -> "list[tuple[str, _Token]]":
        found: list[tuple[str, _Token]] = []
        if not self._takes("["):
            return found
        while True:
            name = self._option_name()
            self._expect("=")
            found.append((name, self._value()))
            if self._takes("]"):
                return found
            self._expect(",")

    def _option_name(self) -> str:
        """`deprecated`, `features.utf8_validation`, or `(custom).part`."""
        parts = []
        while self._now.text == "(" or self._now.kind == "word":
            if self._takes("("):
                parts.append(f"({self._word()})")
                self._expect(")")
            else:
                parts.append(self._word().lstrip("."))
        if not parts:
            raise self._wrong(
                f"expected the name of an option, not {self._now.text!r}", self._now.position
            )
        return ".".join(parts)

    def _value(self) -> _Token:
        """A word, number, string without its quotes, or the text of a `{...}`."""
        token = self._now
        if token.kind == "string":
            return _Token("string", self._string(), token.position)
        if token.text == "{":
            return self._aggregate()
        sign = self._take().text if token.text in ("-", "+") else ""
        token = self._take()
        if token.kind not in ("word", "number"):
            raise self._wrong(f"expected a value, not {token.text!r}", token.position)
        return _Token(token.kind, sign.replace("+", "") + token.text, token.position)

    def _aggregate(self) -> _Token:
        start, level, parts = self._now.position, 0, []
        while True:
            token = self._take()
            if token.kind == "end":
                raise self._wrong("expected '}' before the end", token.position)
            level += (token.text == "{") - (token.text == "}")
            parts.append(token.text)
            if level == 0:
                return _Token("aggregate", " ".join(parts[1:-1]), start)


def _integer_of(text: str) -> int:
    """Raises ValueError."""
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text, 8) if text.startswith("0") and text != "0" else int(text)


def _unescaped(text: str) -> str:
    def one(found: "re.Match[str]") -> str:
        octal, hexadecimal, code, simple = found.groups()
        if octal or hexadecimal:
            return chr(int(octal, 8) & 0xFF if octal else int(hexadecimal, 16))
        return chr(int(code, 16)) if code else _SIMPLE.get(simple, simple)

    return _ESCAPE.sub(one, text)


def escaped(text: str) -> str:
    """Between double quotes."""
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, escape)
    return "".join(one if one >= " " else f"\\{ord(one):03o}" for one in text)


def _default_text(value: _Token, field: FieldDescriptorProto) -> str:
    """As descriptors have it: bytes are escaped, other strings are not."""
    return escaped(value.text) if field.type == FieldDescriptorProto.TYPE_BYTES else value.text


def _camel(name: str) -> str:
    """Of the message behind a map: `some_field` has `SomeFieldEntry`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _set_option(options: Message, name: str, value: _Token) -> None:
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


def _typed(field: FieldDescriptor, value: _Token, name: str) -> object:
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


def _keep_option(options: Any, name: str, value: _Token) -> None:
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
