"""Java's producer behind a network that delivers one request of each transaction too late."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import KafkaCode
from millstream.wire.apis.end_txn import EndTxnRequest
from millstream.wire.apis.produce import ProduceRequest
from tests.interop.clients.transactional import JavaTransactions
from tests.interop.test_transactions import create, read
from tests.support.holding_proxy import HoldingProxy
from tests.support.java_client import JavaClient
from tests.support.node import MillstreamNode

ROUNDS = 10


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldingProxy]:
    folder: Path = tmp_path_factory.mktemp("late")
    with HoldingProxy() as proxy:
        told = f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxy.port}"
        with MillstreamNode(folder / "data", "--set", told) as node:
            host, _, port = node.bootstrap.rpartition(":")
            proxy.node = (host, int(port))
            yield proxy


@pytest.fixture(scope="module")
def java(proxy: HoldingProxy) -> Iterator[JavaClient]:
    with JavaClient(f"127.0.0.1:{proxy.port}") as client:
        yield client


def test_a_late_end_never_ends_the_next_transaction(proxy: HoldingProxy, java: JavaClient) -> None:
    bootstrap = f"127.0.0.1:{proxy.port}"
    create(bootstrap, "late-ends")
    producer = JavaTransactions(java, "late-ends", request_timeout_ms=500)
    for number in range(ROUNDS):
        producer.begin()
        producer.send("late-ends", [b"first %d" % number])
        proxy.hold_next(EndTxnRequest)
        producer.commit()
        producer.begin()
        producer.send("late-ends", [b"second %d" % number])
        held = proxy.held()
        assert held.version >= 5
        assert held.let_go().error_code == KafkaCode.PRODUCER_FENCED
        producer.commit()
    expected = [b"%s %d" % (word, n) for n in range(ROUNDS) for word in (b"first", b"second")]
    assert read(bootstrap, "late-ends") == expected


def test_a_late_write_never_gets_into_the_next_transaction(
    proxy: HoldingProxy, java: JavaClient
) -> None:
    bootstrap = f"127.0.0.1:{proxy.port}"
    create(bootstrap, "late-writes")
    producer = JavaTransactions(java, "late-writes", request_timeout_ms=500)
    for number in range(ROUNDS):
        producer.begin()
        proxy.hold_next(ProduceRequest)
        producer.send("late-writes", [b"first %d" % number])
        producer.commit()
        producer.begin()
        producer.send("late-writes", [b"second %d" % number])
        held = proxy.held()
        assert held.version >= 12
        [told] = held.let_go().responses[0].partition_responses
        assert told.error_code == KafkaCode.INVALID_PRODUCER_EPOCH
        producer.commit()
    expected = [b"%s %d" % (word, n) for n in range(ROUNDS) for word in (b"first", b"second")]
    assert read(bootstrap, "late-writes") == expected
