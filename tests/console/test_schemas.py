"""Records of all formats through a registry.

Covers console/schemas.py, console/display.py.
"""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from millstream.console.display import Display
from millstream.console.schemas import Schemas
from millstream.registry.encoding import Codec, join
from millstream.registry.model import Content, SchemaType
from millstream.testing import Broker
from tests.support.console_node import ConsoleNode
from tests.support.rest_client import RestClient
from tests.support.set_clock import SetClock

AVRO = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
JSON = '{"type":"object"}'
PROTOBUF = 'syntax = "proto3"; message M { int32 a = 1; }'


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(registry=True, topics={"coded": 1}) as broker:
        yield broker


def encoded(broker: Broker, schema_type: SchemaType, text: str, value: object) -> bytes:
    rest = RestClient(broker.registry_url)
    made = rest.register(f"coded-{schema_type}", text, schemaType=schema_type)
    codec = Codec(Content(schema_type, text))
    return join(made.body["id"], codec.encode(json.dumps(value).encode()))


def test_the_message_page_shows_what_serializers_sent(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for schema_type, text in (
        (SchemaType.AVRO, AVRO),
        (SchemaType.JSON, JSON),
        (SchemaType.PROTOBUF, PROTOBUF),
    ):
        producer.produce("coded", encoded(broker, schema_type, text, {"a": 5}), b"key")
    producer.produce("coded", b"\0\0\0\x7fnot ours", b"plain")
    assert producer.flush(30) == 0
    with ConsoleNode(bootstrap=broker.bootstrap, registry_url=broker.registry_url) as node:
        rows = node.browser.api("/topics/coded?start=beginning")["rows"]
        kinds = [row["value"]["kind"] for row in rows]
        assert kinds == ["Avro", "JSON Schema", "Protobuf", "text"]
        assert [json.loads(row["value"]["text"]) for row in rows[:3]] == [{"a": 5}] * 3
        assert rows[0]["value"]["schema_id"] is not None
        assert rows[3]["value"]["schema_id"] is None
        page = node.browser.get("/topics/coded/records/0/0").text
        assert f"Avro schema {rows[0]['value']['schema_id']}" in page
        assert "&#34;a&#34;: 5" in page
        as_hex = node.browser.api("/topics/coded/records/0/0?as=hex")
        assert as_hex["row"]["value"]["kind"] == "hex"


def test_without_the_registry_records_are_shown_as_they_are() -> None:
    clock = SetClock()
    schemas = Schemas("http://127.0.0.1:9", clock)
    data = join(1, b"\x0a")
    assert schemas.decode(data) is None
    shown = Display("auto", schemas).show(data)
    assert (shown.kind, shown.schema_id) == ("text", None)


def test_a_schema_that_is_registered_later_is_found_later(broker: Broker) -> None:
    clock = SetClock()
    schemas = Schemas(broker.registry_url, clock)
    known = encoded(broker, SchemaType.AVRO, AVRO, {"a": 7})
    decoded = schemas.decode(known)
    assert decoded is not None
    assert (decoded.json, decoded.kind) == (b'{"a": 7}', "Avro")
    rest = RestClient(broker.registry_url)
    last_id = rest.register("last", '{"type":"fixed","name":"Last","size":1}').body["id"]
    data = join(last_id + 1, b"xx")
    assert schemas.decode(data) is None
    made = rest.register("later", '{"type":"fixed","name":"Later","size":2}')
    assert made.body["id"] == last_id + 1
    assert schemas.decode(data) is None, "the registry is not asked for each record"
    clock.seconds += 60
    assert schemas.decode(data) is not None


def test_damaged_data_is_shown_as_it_is(broker: Broker) -> None:
    schemas = Schemas(broker.registry_url, SetClock())
    known = encoded(broker, SchemaType.AVRO, AVRO, {"a": 7})
    assert schemas.decode(known[:5]) is None
    assert schemas.decode(b"plain text") is None
    assert schemas.decode(b"") is None


def test_what_is_not_a_url_is_refused() -> None:
    with pytest.raises(ValueError, match="is not http"):
        Schemas("ftp://x", SetClock())
