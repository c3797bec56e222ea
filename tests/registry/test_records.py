import json

import pytest

from millstream.registry.model import (
    Compatibility,
    Config,
    Content,
    Mode,
    Reference,
    Registered,
    SchemaType,
)
from millstream.registry.records import (
    Change,
    ConfigSet,
    ModeSet,
    SchemaRemoved,
    SchemaWritten,
    SubjectCleared,
    SubjectDeleted,
    read_change,
    write_change,
)

PLAIN = Registered("größe", 3, 7, Content(SchemaType.AVRO, '"int"'))
RICH = Registered(
    "s",
    1,
    2,
    Content(
        SchemaType.JSON, "{}", (Reference("n", "other", 4),), '{"tags":{}}', '{"domainRules":[]}'
    ),
    is_deleted=True,
)
CHANGES: list[Change] = [
    SchemaWritten(PLAIN),
    SchemaWritten(RICH),
    SchemaRemoved("s", 1),
    ConfigSet(None, Config(Compatibility.FULL)),
    ConfigSet("s", Config(None, True)),
    ConfigSet("s", None),
    ModeSet(None, Mode.READONLY),
    ModeSet("s", None),
    SubjectDeleted("s", 5),
    SubjectCleared("s"),
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_change_is_read_as_it_was_written(change: Change) -> None:
    assert read_change(*write_change(change)) == change


def test_keys_have_the_bytes_that_other_registries_write() -> None:
    keys = [write_change(change)[0].decode() for change in CHANGES]
    assert keys == [
        '{"keytype":"SCHEMA","subject":"größe","version":3,"magic":1}',
        '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
        '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
        '{"keytype":"CONFIG","subject":null,"magic":0}',
        '{"keytype":"CONFIG","subject":"s","magic":0}',
        '{"keytype":"CONFIG","subject":"s","magic":0}',
        '{"keytype":"MODE","subject":null,"magic":0}',
        '{"keytype":"MODE","subject":"s","magic":0}',
        '{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        '{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}',
    ]


def test_the_value_of_an_avro_schema_leaves_out_what_is_usual() -> None:
    value = write_change(SchemaWritten(PLAIN))[1]
    assert value is not None
    assert json.loads(value) == {
        "subject": "größe",
        "version": 3,
        "id": 7,
        "schema": '"int"',
        "deleted": False,
    }


def test_records_of_confluents_registry_are_read() -> None:
    key = b'{"keytype":"SCHEMA","subject":"t-value","version":1,"magic":1}'
    value = (
        b'{"subject":"t-value","version":1,"id":1,"md5Bytes":"x","schemaType":"PROTOBUF",'
        b'"references":[],"schema":"syntax = \\"proto3\\";","deleted":false,"ts":5,"offset":0}'
    )
    content = Content(SchemaType.PROTOBUF, 'syntax = "proto3";')
    assert read_change(key, value) == SchemaWritten(Registered("t-value", 1, 1, content))


@pytest.mark.parametrize(
    "key",
    [b'{"keytype":"NOOP","magic":0}', b'{"keytype":"CONTEXT","tenant":"default","magic":0}'],
)
def test_what_changes_nothing_here_is_left_out(key: bytes) -> None:
    assert read_change(key, None) is None
    assert read_change(key, b"{}") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"[]", None),
        (b"5", None),
        (b"{}", None),
        (b'{"keytype":"SCHEMA"}', None),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"[]"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"subject":"s"}'),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"mode":"ODD"}'),
        (b"[" * 100_000, None),
    ],
)
def test_what_no_registry_writes_is_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ValueError):
        read_change(key, value)
