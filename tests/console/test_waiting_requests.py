import asyncio

from millstream.console.waiting_requests import (
    WaitCounts,
    WaitingRequests,
    count_waiting,
    waiting_requests,
)
from millstream.model import NO_TOPIC_ID, TopicPartition
from millstream.replication.admission import Generation
from millstream.replication.group_commit import GroupCommit
from millstream.replication.node import Node
from millstream.replication.replicated import ReplicatedPartition
from millstream.replication.role import Role
from millstream.replication.waiting import FetchWait
from tests.replication.writing import produce
from tests.storage.logs import batch, open_log
from tests.storage.memory_files import MemoryFileSystem
from tests.support.console_node import Browser


def leading() -> ReplicatedPartition:
    """Of three replicas, all in sync; the others have fetched nothing yet."""
    node = Node(
        1,
        generation=Generation(),
        has_lease=lambda: True,
        wait_synced=lambda *_: None,
        on_disk_failure=lambda reason: None,
        may_cut=lambda where, offset: True,
        was_cut=lambda where: None,
        on_doubt=lambda where, offset: None,
    )
    log = open_log(MemoryFileSystem())
    partition = ReplicatedPartition(
        TopicPartition("t", 0), NO_TOPIC_ID, log, high_watermark=0, node=node
    )
    partition.apply(Role(1, 1, (1, 2, 3), (1, 2, 3), 2, 1), now_ms=0)
    return partition


def test_each_kind_is_counted_and_says_what_it_waits_for() -> None:
    async def scenario() -> None:
        commit = GroupCommit(lambda reason: None)
        partition = leading()
        assert waiting_requests(partition, commit) == []
        leader = partition.require_leader()
        first, second = (produce(partition, batch(1)).next_offset for _ in range(2))
        assert leader.wait_committed(second) is not None
        assert leader.wait_committed(first) is not None
        assert leader.wait_deleted(1) is not None
        synced = commit.wait_synced(partition, second)
        for wait in (FetchWait(500), FetchWait(70_000), FetchWait(1, is_replica=True)):
            partition.fetch_waits.add(wait)
        assert waiting_requests(partition, commit) == [
            WaitingRequests("Fetches of consumers", 2, "500 B more arrive"),
            WaitingRequests("Fetches of followers", 1, "1 B more arrive"),
            WaitingRequests("Produces, for replicas in sync", 2, "the high watermark reaches 1"),
            WaitingRequests("Produces, for the disk", 1, "everything below 2 is synced"),
            WaitingRequests("Deletions of records", 1, "no replica has anything below 1"),
        ]
        assert count_waiting(partition, commit) == WaitCounts(fetches=3, produces=3)
        await synced
        assert count_waiting(partition, commit) == WaitCounts(fetches=3, produces=2)
        await commit.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_the_storage_page_says_that_nothing_waits(web: Browser, topic: str) -> None:
    assert web.api(f"/topics/{topic}/storage")["storage"]["waiting"] == []
    assert "No request waits here" in web.get(f"/topics/{topic}/storage").text
    assert "millstream_produces_waiting 0" in web.get("/metrics").text
