"""Names, keys and values of strangers do not control the terminal on which they are shown.

Covers cli/output.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.records.builder import build_batch
from millstream.records.records import Record
from tests.support.broker import Broker
from tests.support.command_line import run_millstream
from tests.support.terminal import HOSTILE, obeyed_by_terminals, on_a_terminal

pytestmark = pytest.mark.slow

TOPIC = "events"
VALUE = HOSTILE.encode() + b"\xff\r over\ttab\nline"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(settings=settings) as running:
        running.create_topic(TOPIC, partitions=1)
        begin_everything_with_the_hostile_name(running)
        yield running


def begin_everything_with_the_hostile_name(broker: Broker) -> None:
    own = {"bootstrap.servers": broker.bootstrap}
    producer = Producer({**own, "transactional.id": HOSTILE})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(TOPIC, VALUE, key=HOSTILE.encode(), headers=[(HOSTILE, HOSTILE.encode())])
    producer.commit_transaction(20)
    consumer = Consumer({**own, "group.id": HOSTILE, "client.id": HOSTILE})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1, HOSTILE)], asynchronous=False)
    consumer.close()
    acl = ["acl", "add", "--principal", f"User:{HOSTILE}", "--topic", TOPIC, "--operation", "read"]
    quota = ["quota", "set", "producer_byte_rate=1000000", "--user", HOSTILE]
    for arguments in (acl, quota):
        ran = run_millstream(*arguments, bootstrap=broker.bootstrap)
        assert ran.exit_code == 0, ran.errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "list"],
        ["group", "describe", HOSTILE],
        ["group", "delete", HOSTILE + "absent", "-y"],
        ["txn", "list"],
        ["txn", "describe", HOSTILE],
        ["acl", "list"],
        ["quota", "list"],
        ["topic", "describe", HOSTILE],
        ["share", "describe", HOSTILE],
        ["profile", "use", HOSTILE],
    ],
    ids=lambda arguments: "-".join(arguments[:2]),
)
def test_a_name_is_spelled_out(broker: Broker, arguments: list[str]) -> None:
    ran = run_millstream(*arguments, bootstrap=broker.bootstrap)
    said = ran.output + ran.errors
    assert r"evil\x1b[31m" in said
    assert obeyed_by_terminals(said) == ""


@pytest.mark.parametrize(
    "arguments",
    [["group", "list"], ["group", "describe", HOSTILE], ["txn", "list"], ["acl", "list"]],
    ids=lambda arguments: "-".join(arguments[:2]),
)
def test_json_escapes_in_its_own_way(broker: Broker, arguments: list[str]) -> None:
    ran = run_millstream(*arguments, "--json", bootstrap=broker.bootstrap)
    assert ran.exit_code == 0, ran.errors
    assert obeyed_by_terminals(ran.output) == ""
    assert any(HOSTILE in text for text in _texts(json.loads(ran.output)))


def test_records_on_a_terminal_are_spelled_out(broker: Broker) -> None:
    shown = on_a_terminal(
        ["consume", TOPIC, "-e", "-f", r"\x1b[1m%k|%h|%v|%t\n"], bootstrap=broker.bootstrap
    )
    # What the user asked for in the format itself is obeyed, and nothing else.
    assert shown.startswith("\x1b[1mevil\\x1b[31m")
    assert obeyed_by_terminals(shown) == "\x1b"
    assert r"\x9b2J\u202e\xff\r over" in shown
    assert "\ttab\r\nline|events" in shown


def test_records_as_json_on_a_terminal_are_the_same_values(broker: Broker) -> None:
    shown = on_a_terminal(["consume", TOPIC, "-e", "-J"], bootstrap=broker.bootstrap)
    assert obeyed_by_terminals(shown) == ""
    found = json.loads(shown)
    assert found["key"] == HOSTILE
    assert found["headers"] == [{"name": HOSTILE, "value": HOSTILE}]


def test_a_pipe_gets_the_bytes_of_records(broker: Broker) -> None:
    # Text of the test's own process would be decoded.
    ran = run_millstream("consume", TOPIC, "-e", "-f", "%k%h", bootstrap=broker.bootstrap)
    assert ran.output == f"{HOSTILE}{HOSTILE}={HOSTILE}"
    as_json = run_millstream("consume", TOPIC, "-e", "-J", bootstrap=broker.bootstrap)
    assert json.loads(as_json.output)["key"] == HOSTILE


def test_csv_of_a_query_on_a_terminal_is_spelled_out(broker: Broker) -> None:
    arguments = ["query", f"SELECT key FROM {TOPIC}", "--topic", TOPIC, "--csv"]
    shown = on_a_terminal(arguments, bootstrap=broker.bootstrap)
    assert r"evil\x1b[31m" in shown
    assert obeyed_by_terminals(shown) == ""
    assert HOSTILE in run_millstream(*arguments, bootstrap=broker.bootstrap).output


@pytest.mark.parametrize("flags", [["--records"], ["--records", "--json"]])
def test_records_in_files_are_spelled_out(tmp_path: Path, flags: list[str]) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    hostile = HOSTILE.encode()
    batch = build_batch([Record(0, 5, hostile, hostile, [(HOSTILE, hostile)])], base_offset=0)
    (folder / f"{0:020}.log").write_bytes(bytes(batch))
    ran = run_millstream("storage", "dump", str(folder), *flags)
    assert ran.exit_code == 0, ran.errors
    assert r"evil\u001b[31m" in ran.output
    assert obeyed_by_terminals(ran.output) == ""
    assert json.loads(ran.output.splitlines()[-1])
    assert json.dumps(HOSTILE)[1:-1].lower() in ran.output.lower()


def _texts(value: object) -> list[str]:
    match value:
        case dict():
            return [text for each in value.values() for text in _texts(each)]
        case list():
            return [text for each in value for text in _texts(each)]
        case str():
            return [value]
    return []
