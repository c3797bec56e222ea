"""A partition as its leader: epochs, waiting fetches, going offline."""

import asyncio
import errno
import logging

import pytest

from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID, TopicPartition
from millstream.records.control import ControlType, EndTransactionMarker
from millstream.replication.admission import Generation
from millstream.replication.partition import Partition
from millstream.replication.table import PartitionTable
from millstream.replication.waiting import FetchWait
from millstream.storage.values import Appended, LogConfig
from tests.replication.writing import produce
from tests.storage.batch_groups import GroupOf
from tests.storage.logs import NOW_MS, batch, make_log_config, open_log
from tests.storage.memory_files import MemoryFileSystem


def open_partition(
    config: LogConfig | None = None,
    *,
    epoch: int = 5,
    disk: MemoryFileSystem | None = None,
    topic: str = "t",
) -> Partition:
    return Partition(
        TopicPartition(topic, 0),
        NO_TOPIC_ID,
        open_log(disk or MemoryFileSystem(), config),
        leader_id=1,
        leader_epoch=epoch,
        generation=Generation(),
        on_disk_failure=lambda reason: None,
    )


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, None),
        (5, None),
        (4, KafkaCode.FENCED_LEADER_EPOCH),
        (6, KafkaCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_clients_of_another_leadership_are_fenced(epoch: int, code: KafkaCode | None) -> None:
    partition = open_partition(epoch=5)
    if code is None:
        partition.check_leader_epoch(epoch)
        return
    with pytest.raises(KafkaError) as refused:
        partition.check_leader_epoch(epoch)
    assert refused.value.code is code


def test_a_waiting_fetch_is_woken_when_enough_has_arrived() -> None:
    async def scenario() -> None:
        partition = open_partition()
        size = len(batch(1))
        wait = FetchWait(size + 1)
        partition.fetch_waits.add(wait)
        produce(partition, batch(1))
        assert not wait.future.done()
        produce(partition, batch(1))
        assert wait.future.done()

    asyncio.run(scenario())


def test_going_offline_wakes_whoever_waits_and_refuses_the_rest() -> None:
    async def scenario() -> None:
        partition = open_partition()
        wait = FetchWait(1)
        partition.fetch_waits.add(wait)
        partition.go_offline("the disk is gone")
        assert wait.future.done()
        with pytest.raises(KafkaError) as refused:
            produce(partition, batch(1))
        assert refused.value.code is KafkaCode.KAFKA_STORAGE_ERROR
        for require in (partition.require_online, partition.require_readable):
            with pytest.raises(KafkaError) as refused:
                require()
            assert refused.value.code is KafkaCode.KAFKA_STORAGE_ERROR

    asyncio.run(scenario())


def test_a_flush_is_due_after_flush_ms_and_not_when_synced() -> None:
    partition = open_partition(make_log_config(flush_ms=1000))
    assert not partition.is_flush_due(NOW_MS)
    produce(partition, batch(1))
    assert not partition.is_flush_due(NOW_MS)
    assert not partition.is_flush_due(NOW_MS + 999)
    assert partition.is_flush_due(NOW_MS + 1000)
    partition.log.unsynced.forget()
    assert not partition.is_flush_due(NOW_MS + 5000)


def test_a_table_finds_by_name_and_id_and_forgets_a_topic_whole() -> None:
    table = PartitionTable()
    partition = open_partition()
    table.add(partition)
    assert table.get("t", 0) is partition
    with pytest.raises(KafkaError) as refused:
        table.get("t", 1)
    assert refused.value.code is KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as refused:
        table.name_of(NO_TOPIC_ID)
    assert refused.value.code is KafkaCode.UNKNOWN_TOPIC_ID
    assert table.remove_topic("t") == [partition]
    assert table.find("t", 0) is None
    assert list(table) == []


class UnreadableFileSystem(MemoryFileSystem):
    is_broken = False

    def read_at(self, descriptor: int, length: int, position: int) -> bytes:
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")
        return super().read_at(descriptor, length, position)


def test_records_that_cannot_be_read_are_an_answer_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = UnreadableFileSystem()
    produce(open_partition(disk=disk), batch(1))
    partition = open_partition(disk=disk)
    disk.is_broken = True
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            with pytest.raises(KafkaError) as refused:
                partition.read(0, max_bytes=1000, at_least_one=True)
            assert refused.value.code is KafkaCode.KAFKA_STORAGE_ERROR
    assert len(caplog.records) == 1
    for ask in (
        lambda: partition.read_committed(0, max_bytes=1000, at_least_one=True),
        lambda: partition.offset_for_timestamp(NOW_MS, upto_offset=1, searched={}),
        lambda: partition.offset_of_max_timestamp(upto_offset=1, searched={}),
        lambda: produce(partition, batch(1, producer_id=7, sequence=0)),
    ):
        with pytest.raises(KafkaError) as refused:
            ask()
        assert refused.value.code is KafkaCode.KAFKA_STORAGE_ERROR
    disk.is_broken = False
    assert partition.read(0, max_bytes=1000, at_least_one=True) is not None


def test_batches_that_are_written_together_wake_a_fetch() -> None:
    async def scenario() -> None:
        partition = open_partition()
        produce(partition, batch(1))
        wait = FetchWait(2 * len(batch(1)))
        partition.fetch_waits.add(wait)
        appended = produce(partition, GroupOf(batch(1), batch(1)))
        assert (appended.base_offset, appended.next_offset) == (1, 3)
        assert wait.future.done()

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_batches_that_cannot_be_written_together_are_not_written(error: int) -> None:
    disk = MemoryFileSystem()
    failures: list[str] = []
    partition = open_partition(disk=disk)
    partition._on_disk_failure = failures.append
    produce(partition, batch(1))
    disk.write_error = error
    with pytest.raises(KafkaError) as refused:
        produce(partition, GroupOf(batch(1), batch(1)))
    assert refused.value.code is KafkaCode.KAFKA_STORAGE_ERROR
    assert partition.log.next_offset == 1
    # A full disk may have room for one of them; a broken one is told of.
    assert len(failures) == (error == errno.EIO)
    disk.write_error = None
    partition.go_offline("gone")
    with pytest.raises(KafkaError):
        produce(partition, GroupOf(batch(1)))
    assert partition.log.next_offset == 1


def forget_producers(partition: Partition) -> None:
    """As after a start, or a cut."""
    partition.log.producers._states = None


def test_a_marker_is_refused_while_the_producers_cannot_be_read() -> None:
    """The coordinator sends it again after this error, and only after a KafkaError."""
    disk = UnreadableFileSystem()
    partition = open_partition(disk=disk)
    produce(partition, batch(1))
    forget_producers(partition)

    def end_transaction() -> Appended | None:
        return partition.append_marker(
            EndTransactionMarker(ControlType.COMMIT, 1),
            producer_id=7,
            producer_epoch=0,
            now_ms=NOW_MS,
        )

    disk.is_broken = True
    with pytest.raises(KafkaError) as refused:
        end_transaction()
    assert refused.value.code is KafkaCode.KAFKA_STORAGE_ERROR
    assert partition.log.next_offset == 1
    disk.is_broken = False
    appended = end_transaction()
    assert appended is not None
    assert appended.base_offset == 1


def test_what_is_written_is_acknowledged_where_transactions_cannot_be_read() -> None:
    """Whether one is open matters to consumers that wait, and to nobody else."""

    async def scenario() -> None:
        disk = UnreadableFileSystem()
        partition, wait = open_partition(disk=disk), FetchWait(1 << 20)
        produce(partition, batch(1))
        forget_producers(partition)
        partition.fetch_waits.add(wait)
        disk.is_broken = True
        assert produce(partition, batch(1)).base_offset == 1
        assert produce(partition, batch(1)).base_offset == 2
        assert wait.future.done(), "it finds out by itself"

    asyncio.run(scenario())
