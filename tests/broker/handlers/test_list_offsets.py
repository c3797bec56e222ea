import time

from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.broker.handlers.exchanges import batch, produce
from tests.support.raw_client import RawClient


def test_list_offsets_by_ends_and_by_time(client: RawClient, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    for age_ms in (3000, 2000, 1000):
        produce(client, topic, batch(b"x", timestamp_ms=now_ms - age_ms))

    def ask(timestamp: int) -> tuple[int, int]:
        response = client.ask(
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=0, current_leader_epoch=-1, timestamp=timestamp
                            )
                        ],
                    )
                ],
            ),
            7,
        )
        found = response.topics[0].partitions[0]
        assert found.error_code == 0
        return found.offset, found.timestamp

    assert ask(-2)[0] == 0
    assert ask(-1)[0] == 3
    assert ask(-3) == (2, now_ms - 1000)
    assert ask(now_ms - 2500) == (1, now_ms - 2000)
    assert ask(now_ms) == (-1, -1)
    assert ask(0) == (0, now_ms - 3000)
