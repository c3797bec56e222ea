"""Covers produce: what it answers to batches that no producer should send, beside Apache Kafka.

Wherever Kafka refuses a batch, so do we. Where the codes differ, the reason is below.
"""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.errors import KafkaCode
from tests.broker.handlers.exchanges import batch, produce
from tests.interop.differences import in_page, table
from tests.interop.malformed import CODECS, cases
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import Broker
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

COMPRESSED = [codec.name.lower() for codec in CODECS[1:]]
UNSURE = "UNKNOWN_SERVER_ERROR"
# Kafka stores these, and its consumers or other clients then meet wrong offsets, sizes that
# do not add up, or data behind the end.
STRICTER = {
    *(
        f"{codec} records: {name}"
        for codec in ("none", *COMPRESSED)
        for name in (
            "offsets 0 and 0",
            "offsets 1 and 2",
            "offsets 1 and 0",
            "offsets 0 and 5",
            "an offset below zero",
            # A null for Java's consumer, an error for librdkafka's.
            "key length -2",
            "value length -2",
        )
    ),
    *(
        f"{codec} records: {name}"
        for codec in COMPRESSED
        for name in (
            "size one too large",
            "size one too small",
            "first size one too large",
            "first size one too small",
        )
    ),
    "gzip data has bytes behind it",
    "lz4 data has bytes behind it",
    "snappy data comes twice",
    "a byte behind the batch",
}


def codes_of(bootstrap: str, topic: str, wanted: dict[str, bytes]) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    configs = {"cleanup.policy": "compact"} if topic == "compacted" else {}
    [created] = admin.create_topics([NewTopic(topic, 1, 1, config=configs)]).values()
    created.result(30)

    def is_led() -> bool:
        with RawClient(bootstrap) as client:
            return produce(client, topic, batch(b"x", keys=[b"k"])).error_code == KafkaCode.NONE

    # Kafka shows a topic a moment before it leads it.
    wait_until(is_led, "the topic has a leader")
    found = {}
    for name, data in wanted.items():
        with RawClient(bootstrap) as client:
            found[name] = KafkaCode(produce(client, topic, data, version=9).error_code).name
    return found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> "ApacheKafka":
    with ApacheKafka(tmp_path_factory.mktemp("kafka") / "data") as running:
        yield running


@pytest.mark.java
@pytest.mark.parametrize("topic", ["plain", "compacted"])
def test_what_kafka_refuses_is_refused(topic: str, kafka: ApacheKafka, tmp_path: Path) -> None:
    wanted = dict(cases())
    assert len(wanted) > 200
    if topic == "compacted":
        wanted = {name: data for name, data in wanted.items() if name.startswith("none records")}
    theirs = codes_of(kafka.bootstrap, topic, wanted)
    with Broker() as broker:
        ours = codes_of(broker.bootstrap, topic, wanted)
    if topic == "plain":
        assert table(theirs, ours) == in_page(), "run python -m tests.interop.differences"
    for name in wanted:
        if name in STRICTER:
            assert ours[name] == "INVALID_RECORD", name
        elif theirs[name] == UNSURE:
            # Kafka's code says that it did not expect this; ours says what is wrong.
            assert ours[name] not in ("NONE", UNSURE), name
        else:
            assert ours[name] == theirs[name], name
