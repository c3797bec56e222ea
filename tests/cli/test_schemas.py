"""`produce` and `consume` with a schema registry.

Covers cli/schemas.py, cli/produce.py, cli/consume.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from millstream.testing import Broker
from tests.support.command_line import Ran, run_millstream
from tests.support.ports import reserve_port
from tests.support.rest_client import RestClient

SCHEMAS = {
    "order.avsc": '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":["null","string"],"default":null}]}',
    "order.json": '{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}',
    "order.proto": 'syntax = "proto3"; message Order { int32 id = 1; string note = 2; }',
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(registry=True) as running:
        yield running


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in SCHEMAS.items():
        (tmp_path / name).write_text(text)


def run(broker: Broker, *arguments: str, lines: str = "") -> Ran:
    options = () if "--registry" in arguments else ("--registry", broker.registry_url)
    return run_millstream(*arguments, *options, bootstrap=broker.bootstrap, stdin=lines)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("file", SCHEMAS)
def test_lines_are_sent_encoded_and_printed_decoded(broker: Broker, file: str) -> None:
    topic = f"of-{file}"
    broker.create_topic(topic)
    lines = '{"id": 1, "note": "größe"}\n{"id": 2}\n'
    sent = run(broker, "produce", topic, "--value-schema", file, lines=lines)
    assert sent.exit_code == 0, sent.errors
    values = [record.value or b"" for record in broker.topic(topic).records()]
    assert [value[0] for value in values] == [0, 0]
    printed = run(broker, "consume", topic, "-e").output.splitlines()
    assert [json.loads(line)["id"] for line in printed] == [1, 2]
    assert json.loads(printed[0])["note"] == "größe"
    # Filters see what is printed.
    filtered = run(broker, "consume", topic, "-e", "--value", "größe", "-f", "%o\\n")
    assert filtered.output == "0\n"
    raw = run_millstream("consume", topic, "-e", bootstrap=broker.bootstrap).output
    assert (file == "order.json") == ('"id":2}' in raw)


@pytest.mark.usefixtures("files")
def test_keys_the_latest_schema_ids_and_null_values(broker: Broker) -> None:
    topic = "keys"
    broker.create_topic(topic)
    first = run(
        broker, "produce", topic, "-K", "|", "--key-schema", "order.json",
        "--value-schema", "order.avsc", lines='{"id":7}|{"id":1}\n',
    )  # fmt: skip
    assert first.exit_code == 0, first.errors
    latest = run(
        broker, "produce", topic, "-K", "|", "-Z", "--key-schema", "latest",
        "--value-schema", "latest", lines='{"id":8}|{"id":2}\n{"id":9}|\n',
    )  # fmt: skip
    assert latest.exit_code == 0, latest.errors
    printed = run(broker, "consume", topic, "-e", "-J").output.splitlines()
    records = [json.loads(line) for line in printed]
    assert [json.loads(each["key"])["id"] for each in records] == [7, 8, 9]
    assert records[2]["value"] is None
    with SchemaRegistryClient({"url": broker.registry_url}) as client:
        value_id = client.get_latest_version(f"{topic}-value").schema_id
        data = broker.topic(topic).records()[0].value
        context = SerializationContext(topic, MessageField.VALUE)
        assert AvroDeserializer(client)(data, context) == {"id": 1, "note": None}
    by_id = run(broker, "produce", topic, "--value-schema", str(value_id), lines='{"id":3}\n')
    assert by_id.exit_code == 0, by_id.errors


def test_what_is_not_encoded_is_printed_as_it_is(broker: Broker) -> None:
    broker.create_topic("plain")
    known = RestClient(broker.registry_url).register("plain-value", '"long"').body["id"]
    # Text, the id of no schema, and data that its schema cannot read.
    values = [b"text", b"\0\x0f\x0f\x0f\x0fodd", b"\0" + known.to_bytes(4, "big")]
    broker.topic("plain").produce([("k", value, {}) for value in values])
    ran = run(broker, "consume", "plain", "-e", "-f", "%v|")
    assert ran.exit_code == 0
    assert ran.output.encode() == b"|".join(values) + b"|"
    assert f"the value at plain-0 offset 2, schema {known}" in ran.errors
    assert len(ran.errors.splitlines()) == 1


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("options", "lines", "code", "reason"),
    [
        (["--value-schema", "order.avsc"], '{"id":1}\n{"id":"x"}\n', 1, "line 2: value.id"),
        (["--value-schema", "order.avsc"], "odd\n", 1, "line 1: not JSON"),
        (["--value-schema", "missing.avsc"], "", 1, "missing.avsc: No such file"),
        (["--value-schema", "order.txt"], "", 2, ".avsc, .json, .proto"),
        (["--value-schema", "99999"], "", 1, "Schema 99999 not found"),
        (["--key-schema", "latest"], "", 1, "Subject 'wrong-key' not found"),
        (["--value-schema", "latest", "--registry", "nowhere"], "", 2, "is not http"),
    ],
)
def test_what_cannot_be_sent_is_said_in_a_line(
    broker: Broker, options: list[str], lines: str, code: int, reason: str
) -> None:
    if "wrong" not in broker.topic_names():
        broker.create_topic("wrong")
    ran = run(broker, "produce", "wrong", *options, lines=lines)
    assert (ran.exit_code, "Traceback" in ran.errors) == (code, False)
    assert reason in ran.errors


def test_a_registry_that_is_not_there_is_said_in_a_line(broker: Broker) -> None:
    if "alone" not in broker.topic_names():
        broker.create_topic("alone")
    broker.topic("alone").produce([("k", b"\0\0\0\0\1x", {})])
    url = f"http://127.0.0.1:{reserve_port()}"
    for command in (["produce", "alone", "--value-schema", "1"], ["consume", "alone", "-e"]):
        ran = run(broker, *command, "--registry", url)
        assert ran.exit_code == 1
        assert url in ran.errors


def test_a_group_commits_no_record_that_could_not_be_decoded(broker: Broker) -> None:
    broker.create_topic("later")
    values = [b"text", b"\0\0\0\0\1x"]
    broker.topic("later").produce([("k", value, {}) for value in values])
    reading = ["consume", "later", "--group", "readers-of-later", "-e", "-f", "%o"]
    url = f"http://127.0.0.1:{reserve_port()}"
    failed = run(broker, *reading, "--registry", url)
    printed = run_millstream(*reading, bootstrap=broker.bootstrap)
    assert (failed.exit_code, failed.output + printed.output) == (1, "01")
