"""Produce, fetch and what they need, each as one exchange with a raw client."""

import time
from typing import Any

from millstream.model import NO_TOPIC_ID, Codec, TimestampType
from millstream.records.batch import split_batches
from millstream.records.builder import build_batch
from millstream.records.records import Record, read_records
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.message import Message
from tests.support.raw_client import RawClient


def batch(
    *values: bytes,
    keys: list[bytes | None] | None = None,
    timestamp_ms: int | None = None,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
    is_transactional: bool = False,
) -> bytearray:
    now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    records = [
        Record(i, now_ms, keys[i] if keys else None, value, []) for i, value in enumerate(values)
    ]
    return build_batch(
        records,
        base_offset=0,
        codec=codec,
        timestamp_type=TimestampType.CREATE_TIME,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def produce(
    client: RawClient,
    topic: str,
    data: bytes | bytearray | None,
    *,
    partition: int = 0,
    acks: int = 1,
    version: int = 11,
) -> Any:
    response = client.ask(
        ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=5000,
            topic_data=[
                ProduceTopicData(
                    name=topic, partition_data=[ProducePartitionData(index=partition, records=data)]
                ),
            ],
        ),
        version,
    )
    result = response.responses[0].partition_responses[0]
    assert isinstance(result, Message)
    return result


def fetch(client: RawClient, topic: str, offset: int, *, version: int = 11, **changes: int) -> Any:
    fields: dict[str, int] = {
        "partition": 0,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "partition_max_bytes": 1 << 20,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        **changes,
    }
    response = client.ask(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=fields["max_wait_ms"],
            min_bytes=fields["min_bytes"],
            max_bytes=fields["max_bytes"],
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=fields["partition"],
                            current_leader_epoch=fields["current_leader_epoch"],
                            fetch_offset=offset,
                            last_fetched_epoch=fields["last_fetched_epoch"],
                            log_start_offset=-1,
                            partition_max_bytes=fields["partition_max_bytes"],
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
            rack_id="",
        ),
        version,
    )
    result = response.responses[0].partitions[0]
    assert isinstance(result, Message)
    return result


def values_in(result: Any) -> list[bytes | None]:
    return [
        record.value
        for found in split_batches(memoryview(bytes(result.records)))
        for record in read_records(found, limit_bytes=1 << 20)
    ]


def leader_epoch(client: RawClient, topic: str) -> int:
    response = client.ask(
        MetadataRequest(
            topics=[MetadataRequestTopic(name=topic, topic_id=NO_TOPIC_ID)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        ),
        12,
    )
    epoch = response.topics[0].partitions[0].leader_epoch
    assert isinstance(epoch, int)
    return epoch
