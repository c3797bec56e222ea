"""Topics for people who try things: created without a client library, which takes longer to
load than a node takes to start."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from millstream.cli.connection import Cluster, check
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.records.builder import build_batch
from millstream.records.records import Record
from millstream.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.wire.apis.produce import (
    ProducePartitionData,
    ProduceRequest,
    ProduceTopicData,
)

EXAMPLE_TOPIC: Final = "example"
_PRODUCE_VERSION: Final = 9
_CREATE_VERSION: Final = 5
_TIMEOUT_MS: Final = 20_000
_LEADER_TRIES_MAX: Final = 100
_RETRY_SECONDS: Final = 0.05
_ORDERS: Final = (
    (b"alice", b'{"item": "tea", "count": 2}'),
    (b"bob", b'{"item": "honey", "count": 1}'),
    (b"alice", b'{"item": "bread", "count": 1}'),
)


def create_topics(cluster: Cluster, topics: Mapping[str, int]) -> list[str]:
    """Create those that do not exist, with these numbers of partitions. Returns their names."""
    wanted = [
        CreatableTopic(
            name=name, num_partitions=count, replication_factor=-1, assignments=[], configs=[]
        )
        for name, count in topics.items()
    ]
    answer = cluster.ask(cluster.first, CreateTopicsRequest(topics=wanted), _CREATE_VERSION)
    created = []
    for topic in answer.topics:
        if topic.error_code != KafkaCode.TOPIC_ALREADY_EXISTS:
            check(topic.error_code, f"topic {topic.name}", topic.error_message)
            created.append(topic.name)
    _wait_for_leaders(cluster, created)
    return created


def _wait_for_leaders(cluster: Cluster, topics: Sequence[str]) -> None:
    """The node that is asked may hear of new topics a moment later than the one that creates."""
    for _ in range(_LEADER_TRIES_MAX):
        found = cluster.metadata(*topics).topics if topics else []
        if all(
            topic.error_code == KafkaCode.NONE
            and all(partition.leader_id >= 0 for partition in topic.partitions)
            for topic in found
        ):
            return
        time.sleep(_RETRY_SECONDS)


def send_records(cluster: Cluster, where: TopicPartition, records: Sequence[Record]) -> None:
    """One batch, to a node that leads the partition."""
    batch = bytes(build_batch(records, base_offset=0))
    data = ProducePartitionData(index=where.partition, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[ProduceTopicData(name=where.topic, partition_data=[data])],
    )
    answer = cluster.ask(cluster.first, request, _PRODUCE_VERSION)
    check(answer.responses[0].partition_responses[0].error_code, str(where))


def create_example(bootstrap: str, *, now_ms: int) -> None:
    """The example topic with a few records, unless it exists."""
    with Cluster(bootstrap) as cluster:
        if create_topics(cluster, {EXAMPLE_TOPIC: 1}):
            records = [
                Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(_ORDERS)
            ]
            send_records(cluster, TopicPartition(EXAMPLE_TOPIC, 0), records)
