"""An answer with an error to any request.

The error stands where the response has a place for it: at the top, or in each of the elements
that the request named. Fields that both have under the same name are copied.
"""

from typing import Any, Final

from millstream.errors import KafkaCode
from millstream.wire.codec import Field, fields_of
from millstream.wire.message import Api, Message

_ERROR: Final = "error_code"
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
