"""Records as text: the `-f` format of kcat and rpk, and JSON lines that round-trip.

    %t topic   %p partition   %o offset   %k key   %v value (also %s)   %h headers
    %T timestamp in ms   %d timestamp as a date   %K key length   %S value length   %% percent
    \\n newline   \\t tab   \\r carriage return   \\0 zero byte   \\xNN any byte   \\\\ backslash

A null key or value prints as nothing, its length as -1. JSON lines have bytes that are not
UTF-8 under `key_base64` and `value_base64`.
"""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from millstream.cli.output import JsonValue, json_text

Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class TextRecord:
    """A record as a command reads or prints it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


Piece = Callable[[TextRecord], bytes]

_FIELDS: dict[str, Piece] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "h": lambda record: _headers_text(record.headers),
    "T": lambda record: b"%d" % record.timestamp_ms,
    "d": lambda record: _date_text(record.timestamp_ms).encode(),
    "K": lambda record: b"%d" % _length(record.key),
    "S": lambda record: b"%d" % _length(record.value),
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(?P<field>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+)")
_ESCAPED_TEXT = re.compile(
    r"\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^\\]+)", re.DOTALL
)


def as_it_is(data: bytes) -> bytes:
    return data


def compile_format(
    text: str, shown: Callable[[bytes], bytes] = as_it_is
) -> Callable[[TextRecord], bytes]:
    """A function that prints a record in the format `text`; `ValueError` if it is invalid.

    `shown` is applied to what comes from the record, and not to the format's own text.
    """
    pieces: list[bytes | Piece] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"the format ends inside {text[position:]!r}")
        pieces.append(_piece(found))
        position = found.end()

    def print_record(record: TextRecord) -> bytes:
        return b"".join(
            piece if isinstance(piece, bytes) else shown(piece(record)) for piece in pieces
        )

    return print_record


def _piece(found: re.Match[str]) -> bytes | Piece:
    if found["field"] == "%":
        return b"%"
    if found["field"]:
        if found["field"] not in _FIELDS:
            known = " ".join(f"%{name}" for name in _FIELDS)
            raise ValueError(f"%{found['field']} is not a field; there are {known}")
        return _FIELDS[found["field"]]
    if found["text"]:
        return found["text"].encode()
    return _escape(found)


def _escape(found: re.Match[str]) -> bytes:
    if found["hex"]:
        return bytes.fromhex(found["hex"])
    if found["escape"] not in _ESCAPES:
        known = r"\n \t \r \0 \xNN \\"
        raise ValueError(f"\\{found['escape']} is not an escape; there are {known}")
    return _ESCAPES[found["escape"]]


def unescaped(text: str) -> bytes:
    """The bytes of a text with the escapes of a format; `ValueError` if one is invalid."""
    return b"".join(
        found["text"].encode() if found["text"] else _escape(found)
        for found in _ESCAPED_TEXT.finditer(text)
    )


def to_json_line(record: TextRecord) -> bytes:
    """One line of JSON, newline included, that `from_json_line` reads back."""
    return json.dumps(_fields(record), ensure_ascii=False).encode() + b"\n"


def to_terminal_json_line(record: TextRecord) -> bytes:
    """The same value, with everything escaped that a terminal would act upon."""
    return json_text(_fields(record)).encode() + b"\n"


def _fields(record: TextRecord) -> dict[str, JsonValue]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_bytes_fields("key", record.key),
        **_bytes_fields("value", record.value),
        "headers": [{"name": name, **_bytes_fields("value", v)} for name, v in record.headers],
    }


@dataclass(slots=True)
class JsonRecord:
    """What a JSON line can contain about a record to send."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None
    partition: int | None


def from_json_line(line: bytes) -> JsonRecord:
    """The record of one JSON line; `ValueError` with a reason if it holds none."""
    try:
        fields = json.loads(line)
    except ValueError as wrong:
        raise ValueError(f"not JSON: {wrong}") from None
    if not isinstance(fields, dict):
        raise ValueError("a record is a JSON object, with a value and perhaps a key and headers")
    headers = fields.get("headers") or []
    if not isinstance(headers, list):
        raise ValueError("headers is not a list of objects with name and value")
    return JsonRecord(
        key=_read_bytes(fields, "key"),
        value=_read_bytes(fields, "value"),
        headers=[_read_header(header) for header in headers],
        timestamp_ms=_read_integer(fields, "timestamp"),
        partition=_read_integer(fields, "partition"),
    )


def _read_header(header: object) -> tuple[str, bytes | None]:
    if not isinstance(header, dict) or not isinstance(header.get("name"), str):
        raise ValueError("a header is an object with name and value")
    return header["name"], _read_bytes(header, "value")


def _read_bytes(fields: dict[str, object], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if isinstance(encoded, str):
        return base64.b64decode(encoded, validate=True)
    value = fields.get(name)
    if value is None:
        return None
    # A value that is JSON itself is sent as its JSON text.
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode()


def _read_integer(fields: dict[str, object], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is not a number from 0 up: {value!r}")
    return value


def _bytes_fields(name: str, data: bytes | None) -> dict[str, JsonValue]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _headers_text(headers: Headers) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers
    )


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _date_text(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        # A record may hold any 64-bit number.
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
