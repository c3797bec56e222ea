"""confluent-kafka's serializers and deserializers through the registry.

Covers registry.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, struct_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from millstream.testing import Broker
from tests.support.rest_client import RestClient

SECONDS_MAX = 60.0
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
AVRO = str(ORDER).replace("'", '"').replace("None", "null")
JSON = """{
  "$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
  "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}, "required": ["id"]
}"""
VALUES = [{"id": 1, "note": "first"}, {"id": 2**40, "note": "größe"}]


@pytest.fixture
def client(registry_broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_broker.registry_url}) as connected:
        yield connected


def through_a_topic(broker: Broker, topic: str, data: list[bytes]) -> list[bytes]:
    producer = Producer(broker.client_config())
    for each in data:
        producer.produce(topic, each)
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer(
        {**broker.client_config(), "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        received = consumer.consume(len(data), timeout=SECONDS_MAX)
        return [message.value() or b"" for message in received]
    finally:
        consumer.close()


def sent_and_received(
    broker: Broker, topic: str, values: list[Any], serialize: Any, deserialize: Any
) -> list[Any]:
    broker.create_topic(topic)
    context = SerializationContext(topic, MessageField.VALUE)
    data = through_a_topic(broker, topic, [serialize(value, context) for value in values])
    assert all(each[0] == 0 for each in data)
    return [deserialize(each, context) for each in data]


def test_avro(registry_broker: Broker, client: SchemaRegistryClient, subject: str) -> None:
    serialize = AvroSerializer(client, AVRO)
    deserialize = AvroDeserializer(client)
    assert sent_and_received(registry_broker, subject, VALUES, serialize, deserialize) == VALUES
    assert client.get_latest_version(f"{subject}-value").schema.schema_type == "AVRO"


def test_json(registry_broker: Broker, client: SchemaRegistryClient, subject: str) -> None:
    serialize = JSONSerializer(JSON, client)
    deserialize = JSONDeserializer(None, schema_registry_client=client)
    assert sent_and_received(registry_broker, subject, VALUES, serialize, deserialize) == VALUES
    assert client.get_latest_version(f"{subject}-value").schema.schema_type == "JSON"


def message_classes() -> tuple[type, type]:
    """`Line` in one file, `Order` in another that imports it, as protoc would make them."""
    lines = descriptor_pb2.FileDescriptorProto(name="lines.proto", package="shop", syntax="proto3")
    lines.message_type.add(name="Line").field.add(name="text", number=1, label=1, type=9)
    orders = descriptor_pb2.FileDescriptorProto(
        name="orders.proto",
        package="shop",
        syntax="proto3",
        dependency=["lines.proto", "google/protobuf/struct.proto"],
    )
    order = orders.message_type.add(name="Order")
    order.field.add(name="id", number=1, label=1, type=3)
    order.field.add(name="lines", number=2, label=3, type=11, type_name=".shop.Line")
    order.field.add(name="more", number=3, label=1, type=11, type_name=".google.protobuf.Struct")
    pool = DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(lines.SerializeToString())
    pool.AddSerializedFile(orders.SerializeToString())
    found = [
        GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in ("Order", "Line")
    ]
    return found[0], found[1]


def test_protobuf_with_an_import_of_its_own(
    registry_broker: Broker, client: SchemaRegistryClient, subject: str
) -> None:
    order_class, line_class = message_classes()
    values = [order_class(id=7, lines=[line_class(text="a"), line_class(text="b")])]
    serialize = ProtobufSerializer(order_class, client)
    deserialize = ProtobufDeserializer(order_class, schema_registry_client=client)
    found = sent_and_received(registry_broker, subject, values, serialize, deserialize)
    assert found == values
    latest = client.get_latest_version(f"{subject}-value")
    assert latest.schema.schema_type == "PROTOBUF"
    assert [one.subject for one in latest.schema.references] == ["lines.proto"]
    assert "repeated .shop.Line lines = 2;" in latest.schema.schema_str


def test_an_evolved_schema_reads_old_data(
    registry_broker: Broker, client: SchemaRegistryClient, subject: str
) -> None:
    newer = AVRO.replace('"fields": [', '"fields": [{"name":"more","type":"int","default":5},')
    serialize, deserialize = AvroSerializer(client, AVRO), AvroDeserializer(client, newer)
    expected = [{**value, "more": 5} for value in VALUES]
    found = sent_and_received(registry_broker, subject, VALUES, serialize, deserialize)
    assert found == expected
    context = SerializationContext(subject, MessageField.VALUE)
    AvroSerializer(client, newer)({"id": 1, "more": 6}, context)
    assert client.get_versions(f"{subject}-value") == [1, 2]


def test_a_producer_with_an_incompatible_schema_is_stopped(
    client: SchemaRegistryClient, subject: str
) -> None:
    context = SerializationContext(subject, MessageField.VALUE)
    AvroSerializer(client, AVRO)(VALUES[0], context)
    serialize = AvroSerializer(client, AVRO.replace('"long"', '"string"'))
    with pytest.raises(SchemaRegistryError, match="incompatible") as raised:
        serialize({"id": "x"}, context)
    assert raised.value.error_code == 409


def test_other_settings_of_serializers(client: SchemaRegistryClient, subject: str) -> None:
    context = SerializationContext(subject, MessageField.VALUE)
    by_record = {"subject.name.strategy": record_subject_name_strategy}
    AvroSerializer(client, AVRO, conf={**by_record, "normalize.schemas": True})(VALUES[0], context)
    assert client.get_versions("shop.Order")
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    with pytest.raises(SchemaRegistryError) as raised:
        AvroSerializer(client, AVRO, conf=latest)(VALUES[0], context)
    assert raised.value.error_code == 40401
    schema_id = client.register_schema(f"{subject}-value", Schema(AVRO, "AVRO"))
    data = AvroSerializer(client, AVRO, conf=latest)(VALUES[0], context)
    assert data is not None
    assert int.from_bytes(data[1:5], "big") == schema_id


def test_the_client_of_confluent_kafka(client: SchemaRegistryClient, subject: str) -> None:
    low = Schema('{"type":"enum","name":"Low","symbols":["A"]}', "AVRO")
    client.register_schema(f"{subject}-low", low)
    reference = SchemaReference("Low", f"{subject}-low", 1)
    high = Schema('{"type":"array","items":"Low"}', "AVRO", [reference])
    schema_id = client.register_schema(subject, high)
    assert client.get_schema(schema_id).references == [reference]
    assert client.lookup_schema(subject, high).version == 1
    assert client.get_referenced_by(f"{subject}-low", 1) == [schema_id]
    assert client.get_subjects_by_schema_id(schema_id) == [subject]
    assert [one.version for one in client.get_schema_versions(schema_id)] == [1]
    assert sorted(client.get_schema_types()) == ["AVRO", "JSON", "PROTOBUF"]
    assert client.test_compatibility(subject, high)
    assert client.test_compatibility_all_versions(subject, high)
    client.set_compatibility(subject, "FULL")
    assert client.get_compatibility(subject) == "FULL"
    client.update_mode(subject, "READONLY")
    assert client.get_mode(subject) == "READONLY"
    client.delete_mode(subject)
    assert client.delete_version(subject, 1) == 1
    assert client.get_versions(subject, deleted=True) == [1]
    assert client.delete_version(subject, 1, permanent=True) == 1
    assert client.get_contexts() == ["."]


def test_registering_from_many_threads_gives_each_schema_one_id(
    registry_broker: Broker, subject: str
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    rest = RestClient(registry_broker.registry_url)

    def register(number: int) -> tuple[int, int]:
        kind = number % 10
        schema = f'{{"type":"enum","name":"E","symbols":["A{kind}"]}}'
        return kind, rest.register(f"{subject}-{number}", schema).body["id"]

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(register, range(40)))
    assert len(found) == 10
    assert len({schema_id for _, schema_id in found}) == 10
