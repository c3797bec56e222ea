"""Every declaration against kio's message classes, in every version: the same bytes.

kio describes each message as one dataclass per version, generated from Kafka's own schemas.
Random messages, written by kio, are read here field by field and written again; kio reads
what is written here. Kafka's newest defaults are what an older version's fields get.

Covers wire/apis, wire/message.py.
"""

import datetime
import io
import random
import subprocess
import sys
import types
import uuid
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Union, get_args, get_origin

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from millstream.model import NO_TOPIC_ID
from millstream.wire import codec
from millstream.wire.apis import declared, listed
from millstream.wire.cursor import Cursor
from millstream.wire.message import Api, Message
from millstream.wire.vendor import KEYS_FROM

SECOND = datetime.timedelta(seconds=1)
MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ROUNDS = 6
BITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "int64": 63}
KAFKAS = [api for api in declared() if api.key < KEYS_FROM]


def versions() -> Iterator[Any]:
    for api in KAFKAS:
        for version in range(api.min_version, api.max_version + 1):
            for kind in ("request", "response"):
                yield pytest.param(api, version, kind, id=f"{api.name}-{version}-{kind}")


@pytest.mark.parametrize(("api", "version", "kind"), versions())
def test_the_same_bytes_as_kio(api: Api, version: int, kind: str) -> None:
    load = load_request_schema if kind == "request" else load_response_schema
    schema, newest = load(api.key, version), load(api.key, api.max_version)
    if kind == "request":
        read = codec.request_reader(api.request, version)
        write = codec.request_writer(api.request, version)
    else:
        read = codec.response_reader(api.request, version)
        write = codec.response_writer(api.request, version)
    assert bool(schema.__flexible__) is api.is_flexible(version)
    assert_same_shape(api.request if kind == "request" else api.response, schema, version)
    for seed in range(ROUNDS):
        theirs = make(schema, random.Random(f"{api.key} {version} {kind} {seed}"))
        frame = io.BytesIO()
        entity_writer(schema)(frame, theirs)
        data = frame.getvalue()
        cursor = Cursor(memoryview(data))
        ours = read(cursor)
        assert cursor.position == len(data)
        assert_same(ours, theirs, newest)
        out = bytearray()
        write(out, ours)
        assert out == data
        again, size = entity_reader(schema)(bytes(out), 0)
        assert (again, size) == (theirs, len(out))


def assert_same_shape(ours: type[Message], theirs: Any, version: int) -> None:
    """The same fields are on the wire, and the same of them may be null."""
    found = {field.name: field for field in codec.fields_of(ours, version) if field.is_on_wire}
    assert set(found) == {name_of(field) for field in fields(theirs)}
    for field in fields(theirs):
        mine = found[name_of(field)]
        if kafka_type(field) not in ("uuid", "datetime_i64"):
            assert mine.is_nullable == without_none(field.type)[1], field.name
        if part(field) is not None:
            assert_same_shape(mine.kind, part(field), version)


def assert_same(ours: Message, theirs: Any, newest: Any) -> None:
    """`newest` is the class of the newest version, for the fields that this one lacks."""
    missing = {field.name: field for field in fields(newest)} if newest else {}
    for field in fields(theirs):
        twin = missing.pop(field.name, None)
        value, found = getattr(theirs, field.name), getattr(ours, name_of(field))
        assert_same_value(found, value, kafka_type(field), part(twin) if twin else None)
    for field in missing.values():
        assert_same_value(getattr(ours, name_of(field)), default(field), "", None)


def assert_same_value(ours: Any, theirs: Any, kind: str, newest: Any) -> None:
    if isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for mine, its in zip(ours, theirs, strict=True):
            assert_same_value(mine, its, kind, newest)
    elif is_dataclass(theirs):
        assert_same(ours, theirs, newest)
    else:
        assert ours == plain(theirs, kind)


def plain(value: Any, kind: str) -> Any:
    """kio's value as ours: times are milliseconds, no UUID is the zero one."""
    if kind == "uuid" and value is None:
        return NO_TOPIC_ID
    if kind == "datetime_i64":
        return -1 if value is None else (value - EPOCH) // MILLISECOND
    return value // MILLISECOND if isinstance(value, datetime.timedelta) else value


def default(field: Field[Any]) -> Any:
    """What a field has that is not on the wire: Kafka's default, or the zero of its type."""
    inner, is_nullable = without_none(field.type)
    kind = kafka_type(field)
    if field.default is not MISSING and not isinstance(field.default, tuple):
        return plain(field.default, kind)
    if is_nullable and kind != "uuid":
        return None
    if get_origin(inner) is tuple:
        return []
    zero = {"string": "", "bytes": b"", "uuid": NO_TOPIC_ID, "bool": False}
    return zero.get(kind, 0)


def kafka_type(field: Field[Any]) -> str:
    return str(field.metadata.get("kafka_type", ""))


def name_of(field: Field[Any]) -> str:
    is_time = kafka_type(field).startswith(("timedelta", "datetime"))
    return f"{field.name}_ms" if is_time and not field.name.endswith("_ms") else field.name


def without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(a for a in get_args(annotation) if a is not types.NoneType), True
    return annotation, False


def part(field: Field[Any]) -> Any:
    """The class of a field's values, if they are structures."""
    inner, _ = without_none(field.type)
    if get_origin(inner) is tuple:
        inner = get_args(inner)[0]
    return inner if is_dataclass(inner) else None


def make(schema: Any, chance: random.Random) -> Any:
    """A message with random values; defaults, nulls and empty arrays among them."""
    values = {}
    for field in fields(schema):
        if field.default is not MISSING and chance.random() < 0.3:
            continue
        values[field.name] = make_value(field, chance)
    return schema(**values)


def make_value(field: Field[Any], chance: random.Random) -> Any:
    inner, is_nullable = without_none(field.type)
    is_array = get_origin(inner) is tuple
    # A tagged field that is null is one with its default: it is left out.
    if is_nullable and "tag" not in field.metadata and chance.random() < 0.3:
        return None
    if is_array:
        # 130 needs two bytes for its count.
        counts = (0, 1, 2) if part(field) else (0, 1, 2, 130)
        return tuple(make_one(field, chance) for _ in range(chance.choice(counts)))
    return make_one(field, chance)


def make_one(field: Field[Any], chance: random.Random) -> Any:
    schema, kind = part(field), kafka_type(field)
    if schema is not None:
        return make(schema, chance)
    if kind in BITS:
        low = 0 if kind == "uint16" else -(1 << BITS[kind])
        return chance.choice((-low, 0, low, chance.randrange(low, 1 << BITS[kind]))[1:])
    texts = ("", "orders", "nöte ✓", "x" * 300)
    made: dict[str, Any] = {
        "string": chance.choice(texts),
        "bytes": chance.choice(texts).encode(),
        "records": chance.choice(texts).encode(),
        "bool": chance.random() < 0.5,
        "float64": chance.random(),
        "uuid": chance.choice((None, uuid.UUID(int=chance.getrandbits(128)))),
        "error_code": chance.choice(list(ErrorCode)),
        "timedelta_i32": chance.randrange(-5, 100_000) * SECOND,
        "timedelta_i64": chance.randrange(-5, 100_000) * SECOND,
        "datetime_i64": EPOCH + chance.randrange(1 << 31) * SECOND,
    }
    return made[kind]


def test_what_is_listed_without_an_import_is_what_is_declared() -> None:
    assert list(listed().values()) == [
        (api.key, api.name, api.min_listed, api.max_listed) for api in declared()
    ]


def test_listing_imports_nothing() -> None:
    program = (
        "import sys; from millstream.wire.apis import declared_api, listed; listed()\n"
        "names = lambda: [n for n in sys.modules if n.startswith('millstream.wire.apis.')]\n"
        "assert names() == []; assert declared_api(19).name == 'create_topics'\n"
        "assert names() == ['millstream.wire.apis.create_topics']"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
