"""The topic: written by another registry, compacted, with records that belong to nobody."""

import json
from collections.abc import Iterator

import pytest

from millstream.testing import Broker
from millstream.testing.registry import RegistryThread
from tests.support.command_line import run_millstream
from tests.support.rest_client import RestClient

COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def schema_record(
    subject: str, version: int, schema_id: int, schema: str, **fields: object
) -> tuple[str, str, dict[str, str]]:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": schema_id, "schema": schema, **fields}
    return json.dumps(key, separators=(",", ":")), json.dumps(value), {}


# What Karapace wrote into a topic that this registry had begun, and back: it orders the attributes
# of a schema, leaves the subject out of configs, and removes with empty values.
OF_KARAPACE = [
    (
        '{"keytype":"SCHEMA","subject":"k","version":1,"magic":1}',
        '{"subject":"k","version":1,"id":9,"schema":"{\\"fields\\":[{\\"name\\":\\"a\\",'
        '\\"type\\":\\"int\\"}],\\"name\\":\\"K\\",\\"type\\":\\"record\\"}","deleted":false}',
    ),
    (
        '{"keytype":"SCHEMA","subject":"j","version":1,"magic":1}',
        '{"subject":"j","version":1,"id":10,"schema":"{\\"type\\":\\"string\\"}","deleted":false,'
        '"schemaType":"JSON"}',
    ),
    (
        '{"keytype":"CONFIG","subject":"k","magic":0}',
        '{"compatibilityLevel":"BACKWARD_TRANSITIVE"}',
    ),
    ('{"keytype":"CONFIG","subject":"j","magic":0}', '{"compatibilityLevel":"NONE"}'),
    ('{"keytype":"CONFIG","subject":"j","magic":0}', ""),
    (
        '{"keytype":"SCHEMA","subject":"d","version":1,"magic":1}',
        '{"subject":"d","version":1,"id":11,"schema":"\\"bytes\\"","deleted":false}',
    ),
    ('{"keytype":"DELETE_SUBJECT","subject":"d","magic":0}', '{"subject":"d","version":1}'),
    ('{"keytype":"SCHEMA","subject":"d","version":1,"magic":1}', ""),
]


def test_records_of_karapace_are_read(broker: Broker) -> None:
    broker.create_topic("_schemas", configs=COMPACTED)
    broker.topic("_schemas").produce([(key, value, {}) for key, value in OF_KARAPACE])
    registry = RegistryThread(broker)
    registry.start()
    try:
        rest = RestClient(registry.url)
        assert rest.get("/subjects?deleted=true").body == ["j", "k"]
        assert rest.get("/subjects/k/versions/1").body["id"] == 9
        same = '{"type":"record","name":"K","fields":[{"name":"a","type":"int"}]}'
        assert rest.register("k", same).body == {"id": 9}
        assert rest.get("/config/k").body == {"compatibilityLevel": "BACKWARD_TRANSITIVE"}
        assert rest.get("/config/j").error_code == 40408
        assert rest.get("/schemas/ids/10").body["schemaType"] == "JSON"
        assert rest.register("new", '"float"').body == {"id": 12}
    finally:
        registry.stop()


def test_a_topic_of_another_registry_is_taken_over(broker: Broker) -> None:
    broker.create_topic("_schemas", configs=COMPACTED)
    broker.topic("_schemas").produce(
        [
            ('{"keytype":"NOOP","magic":0}', None, {}),
            schema_record("a", 1, 1, '"int"', deleted=False),
            schema_record("a", 2, 2, '"long"', deleted=True),
            schema_record("b", 1, 7, "{}", schemaType="JSON", deleted=False, ts=1, offset=3),
            ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}', {}),
            ('{"keytype":"MODE","subject":"b","magic":0}', '{"mode":"READONLY"}', {}),
            schema_record("c", 1, 8, '"string"', deleted=False),
            (
                '{"keytype":"DELETE_SUBJECT","subject":"c","magic":0}',
                '{"subject":"c","version":1}',
                {},
            ),
            ('{"keytype":"LATER","magic":3}', "{}", {}),
            ("not of a registry", "at all", {}),
        ]
    )
    registry = RegistryThread(broker)
    registry.start()
    try:
        rest = RestClient(registry.url)
        assert rest.get("/subjects").body == ["a", "b"]
        assert rest.get("/subjects?deleted=true").body == ["a", "b", "c"]
        assert rest.get("/subjects/a/versions?deleted=true").body == [1, 2]
        assert rest.get("/schemas/ids/7").body == {"schemaType": "JSON", "schema": "{}"}
        assert rest.get("/config").body == {"compatibilityLevel": "FULL"}
        assert rest.register("b", '"int"').error_code == 42205
        assert rest.register("d", '"bytes"').body == {"id": 9}
    finally:
        registry.stop()


def test_compaction_loses_nothing_that_counts() -> None:
    with Broker(registry=True) as broker:
        rest = RestClient(broker.registry_url)
        for number in range(10):
            rest.register(f"s{number}", f'{{"type":"enum","name":"E{number}","symbols":["A"]}}')
            rest.put("/config", {"compatibility": "FULL" if number % 2 else "NONE"})
        rest.delete("/subjects/s0")
        rest.delete("/subjects/s0?permanent=true")
        rest.delete("/subjects/s1")

        def everything() -> list[object]:
            paths = ("/schemas?deleted=true", "/subjects", "/config")
            return [rest.get(path).body for path in paths]

        before = everything()
        # Only a segment that is complete is compacted.
        altered = run_millstream(
            "topic", "alter", "_schemas", "-c", "segment.ms=1", "-y", bootstrap=broker.bootstrap
        )
        assert altered.exit_code == 0, altered.errors
        rest.put("/config", {"compatibility": "FULL"})
        ran = run_millstream("storage", "compact", "_schemas", bootstrap=broker.bootstrap)
        assert ran.exit_code == 0, ran.errors
        kept = [record.key for record in broker.topic("_schemas").records()]
        assert kept.count(b'{"keytype":"CONFIG","subject":null,"magic":0}') <= 2
        broker.stop()
        broker.start()
        assert everything() == before
        assert rest.register("new", '"int"').body == {"id": 11}


def test_a_write_that_did_not_commit_was_never_there(broker: Broker) -> None:
    from confluent_kafka import Producer

    registry = RegistryThread(broker)
    registry.start()
    try:
        rest = RestClient(registry.url)
        assert rest.register("a", '"int"').body == {"id": 1}
        # As a leader that dies in the middle: another writer with the same transactional id.
        writer = Producer(
            {
                **broker.client_config(),
                "transactional.id": "schema-registry_schemas._schemas",
                "log_level": 0,
            }
        )
        writer.init_transactions(30)
        writer.begin_transaction()
        key, value, _ = schema_record("b", 1, 2, '"string"', deleted=False)
        writer.produce("_schemas", key=key, value=value)
        writer.flush(30)
        assert rest.get("/subjects").body == ["a"]
        # The registry was fenced, fences the other one in turn, and gives the id itself.
        answers = [rest.register("c", '"long"') for _ in range(3)]
        assert answers[-1].body == {"id": 2}
        assert rest.get("/subjects").body == ["a", "c"]
    finally:
        registry.stop()
