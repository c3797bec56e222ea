import time

from millstream.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.broker.handlers.exchanges import batch, produce
from tests.support.raw_client import RawClient


def ask(client: RawClient, topic: str, timestamp: int) -> tuple[int, int]:
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
    response = client.ask(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), 7)
    found = response.topics[0].partitions[0]
    assert found.error_code == 0
    return found.offset, found.timestamp


def test_list_offsets_by_ends_and_by_time(client: RawClient, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    for age_ms in (3000, 2000, 1000):
        produce(client, topic, batch(b"x", timestamp_ms=now_ms - age_ms))
    assert ask(client, topic, -2)[0] == 0
    assert ask(client, topic, -1)[0] == 3
    assert ask(client, topic, -3) == (2, now_ms - 1000)
    assert ask(client, topic, now_ms - 2500) == (1, now_ms - 2000)
    assert ask(client, topic, now_ms) == (-1, -1)
    assert ask(client, topic, 0) == (0, now_ms - 3000)


def test_a_deleted_record_does_not_have_the_largest_timestamp(
    client: RawClient, topic: str
) -> None:
    produce(client, topic, batch(b"a", b"b"))
    partitions = [DeleteRecordsPartition(partition_index=0, offset=2)]
    deleted = DeleteRecordsTopic(name=topic, partitions=partitions)
    client.ask(DeleteRecordsRequest(topics=[deleted], timeout_ms=5000), 2)
    assert ask(client, topic, -3) == (-1, -1)
