"""`millstream txn` against a node with transactions in all sorts of states."""

import json
import uuid
from collections.abc import Iterator

import pytest

from millstream.errors import KafkaCode
from tests.broker.coordination.transactional import RawProducer, fetch
from tests.support.broker import Broker
from tests.support.command_line import run_millstream
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"transaction.state.log.num.partitions": "2"}) as running:
        yield running


@pytest.fixture
def producer(broker: Broker) -> Iterator[RawProducer]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name)
    with RawClient(broker.bootstrap) as client:
        producer = RawProducer(client, f"id-{name}", name, is_new=False)
        producer.take_over()
        assert producer.add() is KafkaCode.NONE
        assert producer.produce(b"x") is KafkaCode.NONE
        yield producer


def test_an_open_transaction_is_listed_described_and_aborted(
    broker: Broker, producer: RawProducer
) -> None:
    name = producer.transactional_id
    listed = run_millstream("txn", "list", "--json", bootstrap=broker.bootstrap)
    states = {one["transactional_id"]: one["state"] for one in json.loads(listed.output)}
    assert states[name] == "Ongoing"
    told = run_millstream("txn", "describe", name, "--json", bootstrap=broker.bootstrap)
    assert json.loads(told.output)["partitions"] == [f"{producer.topic}-0"]
    table = run_millstream("txn", "describe", name, bootstrap=broker.bootstrap)
    assert f"{producer.topic}-0" in table.output
    ran = run_millstream("txn", "abort", name, bootstrap=broker.bootstrap)
    assert (ran.exit_code, ran.errors) == (0, f"aborted the open transaction of {name}\n")
    assert fetch(producer.client, producer.topic).last_stable_offset == 2
    assert producer.end() is KafkaCode.PRODUCER_FENCED
    state = run_millstream("txn", "list", "--state", "Ongoing", bootstrap=broker.bootstrap)
    assert name not in state.output
    again = run_millstream("txn", "abort", name, bootstrap=broker.bootstrap)
    assert (again.exit_code, again.errors) == (1, f"millstream: {name} has no open transaction\n")


def test_only_a_transaction_without_a_coordinator_hangs_and_is_ended(
    broker: Broker, producer: RawProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ["--topic", producer.topic, "--partition", "0"]
    where += ["--producer-id", str(producer.producer_id)]
    refused = run_millstream("txn", "abort", *where, bootstrap=broker.bootstrap)
    assert refused.exit_code == 1
    assert "does not hang" in refused.errors
    hanging = ["txn", "hanging", "--older-than-minutes", "0", "--json"]
    assert json.loads(run_millstream(*hanging, bootstrap=broker.bootstrap).output) == []
    assert producer.end(commit=False) is KafkaCode.NONE
    # What brokers without KIP-890 let happen: a late write opens what nobody will end.
    monkeypatch.setattr(
        "millstream.broker.requests.verification.check_produce", lambda *request: {}
    )
    assert producer.produce(b"late") is KafkaCode.NONE
    [found] = json.loads(run_millstream(*hanging, bootstrap=broker.bootstrap).output)
    assert (found["topic"], found["first_offset"]) == (producer.topic, 2)
    ran = run_millstream("txn", "abort", *where, bootstrap=broker.bootstrap)
    assert ran.exit_code == 0, ran.errors
    assert json.loads(run_millstream(*hanging, bootstrap=broker.bootstrap).output) == []


def test_an_id_that_nobody_used_is_said_to_be_unknown(broker: Broker) -> None:
    for command in ("describe", "abort"):
        ran = run_millstream("txn", command, "nobody", bootstrap=broker.bootstrap)
        assert ran.exit_code == 1
        assert "was never used" in ran.errors


def test_abort_wants_to_know_what(broker: Broker) -> None:
    ran = run_millstream("txn", "abort", "--topic", "t", bootstrap=broker.bootstrap)
    assert ran.exit_code == 2
