"""After kill -9 with data that no checkpoint vouches for: how long until it is served."""

import struct
import time

from bench import clients
from bench.bench import Bench
from bench.brokers import Broker, Kafka, Millstream
from bench.loads import ProduceShape, produce
from bench.rows import Row, at_most
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.raw_client import RawClient

PART = "recovery"
# Spread over partitions that have not rolled a segment yet: Kafka syncs at every roll.
_PARTITIONS = 12
_LATEST = -1


def run(bench: Bench) -> list[Row]:
    size_bytes = 600_000_000 if bench.is_quick else 3_000_000_000
    seconds: dict[str, list[float]] = {"Millstream": [], "Kafka": []}
    for round_number in range(1 if bench.is_quick else 2):
        brokers: list[Broker] = [
            Kafka(bench.path("kafka-recovery")),
            Millstream(bench.path("millstream-recovery"), "--dev"),
        ]
        for broker in brokers:
            bench.say(f"recovery: {broker.name}, round {round_number + 1}")
            seconds[broker.name].append(_recover(bench, broker, size_bytes))
    name = f"recovery of {size_bytes / 1e9:g} GB, start-up taken off"
    return [Row(PART, name, "s", seconds["Millstream"], seconds["Kafka"], at_most(0.2))]


def _recover(bench: Bench, broker: Broker, size_bytes: int) -> float:
    broker.start()
    shape = ProduceShape(partitions=_PARTITIONS)
    clients.create_topic(broker.bootstrap, "recovered", partitions=_PARTITIONS, config={})
    broker.stop()
    plain = _start(broker)
    requests = size_bytes // (len(shape.batch()) * _PARTITIONS)
    produce(bench, broker, "recovered", shape, requests=requests)
    expected = requests * shape.batch_records
    broker.kill()
    recovering = _start(broker)
    assert end_offsets(broker) == [expected] * _PARTITIONS, "recovery lost records"
    broker.stop()
    return max(recovering - plain, 0.001)


def _start(broker: Broker) -> float:
    """Seconds until every partition of the topic answers with its end offset."""
    began = time.perf_counter()
    broker.start()
    while min(end_offsets(broker)) < 0:
        time.sleep(0.01)
    return time.perf_counter() - began


def end_offsets(broker: Broker) -> list[int]:
    """The end of each partition, -1 where it is not served yet."""
    wanted = [
        ListOffsetsPartition(partition_index=i, current_leader_epoch=-1, timestamp=_LATEST)
        for i in range(_PARTITIONS)
    ]
    topics = [ListOffsetsTopic(name="recovered", partitions=wanted)]
    try:
        with RawClient(broker.bootstrap) as client:
            answer = client.ask(
                ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), 5
            )
    except (OSError, struct.error):
        return [-1]
    found = answer.topics[0].partitions
    return [one.offset if one.error_code == 0 else -1 for one in found]
