"""Errors in answers: an answer with one to any request, and the first one in an answer.

The error stands where the response has a place for it: at the top, or in each of the elements
that the request named. Fields that both have under the same name are copied.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from millstream.errors import KafkaCode, ProtocolError
from millstream.wire.codec import Field, fields_of, response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.headers import RequestHeader, response_header
from millstream.wire.message import Api, Message

_ERROR: Final = "error_code"
# Larger answers are not worth the time of a test.
_LOOKED_AT_BYTES_MAX: Final = 64 << 10
# Names of the same thing in a request and its response.
_SAME: Final = {
    "partition_index": ("partition", "index"),
    "index": ("partition_index", "partition"),
    "partition": ("partition_index", "index"),
    "name": ("topic", "topic_name"),
    "topic": ("name", "topic_name"),
    "topic_name": ("topic", "name"),
}


def error_answer(api: Api, request: Message, version: int, code: KafkaCode) -> Message:
    return _answer(api.response, request, version, code)


def first_error(pieces: Sequence[object], api: Api, header: RequestHeader) -> str | None:
    """The first error in an answer, by its name; None without one, or if it is large."""
    parts = [bytes(each) for each in pieces if isinstance(each, bytes | bytearray | memoryview)]
    data = b"".join(parts)
    if not data or len(parts) < len(pieces) or len(data) > _LOOKED_AT_BYTES_MAX:
        return None
    try:
        start = len(response_header(header))
        body = response_reader(api.request, header.version)(Cursor(memoryview(data), start))
    except (ProtocolError, IndexError, ValueError):
        # Answered in another version than it was asked in.
        return None
    code = next(_codes(body), 0)
    return _name(code) if code else None


def _codes(message: Message) -> Iterator[int]:
    """All error codes that are not 0."""
    for name in message.declared_fields:
        value = getattr(message, name, None)
        if name == _ERROR and value:
            yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    yield from _codes(each)


def _name(code: int) -> str:
    try:
        return KafkaCode(code).name
    except ValueError:
        return f"error {code}"


def _answer(kind: type[Message], asked: Message, version: int, code: KafkaCode) -> Message:
    fields = [field for field in fields_of(kind, version) if field.is_on_wire]
    says_it_itself = any(field.name == _ERROR for field in fields)
    values: dict[str, Any] = {}
    for field in fields:
        if field.name == _ERROR:
            values[field.name] = code
        elif not _has_messages(field):
            values[field.name] = _copied(field, asked)
        elif says_it_itself:
            values[field.name] = []
        else:
            elements = _elements(asked, field.name)
            values[field.name] = [_answer(field.kind, each, version, code) for each in elements]
    return kind(**values)


def _has_messages(field: Field) -> bool:
    return field.is_array and isinstance(field.kind, type) and issubclass(field.kind, Message)


def _elements(asked: Message, name: str) -> list[Message]:
    """What the request named under this name, or else its first array of messages."""
    arrays = {
        field: value
        for field in asked.declared_fields
        if isinstance(value := getattr(asked, field, None), list)
        and all(isinstance(each, Message) for each in value)
    }
    if name in arrays:
        return arrays[name]
    return next((array for array in arrays.values() if array), [])


def _copied(field: Field, asked: Message) -> object:
    for name in (field.name, *_SAME.get(field.name, ())):
        if name in asked.declared_fields and hasattr(asked, name):
            return getattr(asked, name)
    # Older versions have no null.
    return "" if field.default is None and not field.is_nullable else field.default
