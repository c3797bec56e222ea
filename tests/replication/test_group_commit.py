"""Who waits for which sync, and what a failed sync does."""

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID, TopicPartition
from millstream.replication.admission import Generation
from millstream.replication.group_commit import GroupCommit, PageCacheDurability
from millstream.replication.partition import Partition
from millstream.storage.values import LogConfig
from tests.replication.writing import produce
from tests.storage.logs import batch, make_log_config, open_log
from tests.storage.memory_files import MemoryFileSystem


class World:
    def __init__(
        self, config: LogConfig | None = None, *, disk: MemoryFileSystem | None = None
    ) -> None:
        self.disk = disk or MemoryFileSystem()
        self.failures: list[str] = []
        self.commit = GroupCommit(self.failures.append)
        self.partition = Partition(
            TopicPartition("t", 0),
            NO_TOPIC_ID,
            open_log(self.disk, config),
            leader_id=1,
            leader_epoch=0,
            generation=Generation(),
            on_disk_failure=self.failures.append,
        )

    def append(self, data: bytearray | None = None) -> int:
        return produce(self.partition, batch(1) if data is None else data).next_offset

    def wait(self, next_offset: int, *, is_acks_all: bool = True) -> "asyncio.Future[None] | None":
        return self.commit.wait_if_needed(self.partition, next_offset, is_acks_all=is_acks_all)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_acks_all_waits_until_its_record_is_on_the_disk() -> None:
    async def scenario() -> None:
        world = World()
        end = world.append()
        wait = world.wait(end)
        assert wait is not None
        assert not wait.done()
        await wait
        assert world.partition.log.synced_offset == end
        assert world.wait(end) is None
        await world.commit.stop()

    run(scenario)


def test_everything_of_one_turn_shares_one_sync() -> None:
    async def scenario() -> None:
        world = World()
        waits = [world.wait(world.append()) for _ in range(50)]
        await asyncio.gather(*(wait for wait in waits if wait is not None))
        assert world.commit.rounds == 1
        await world.commit.stop()

    run(scenario)


class SlowDisk(MemoryFileSystem):
    """Its syncs wait until the test lets them go on."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()
        self.may_sync = threading.Event()
        self.calls = 0

    def sync(self, descriptor: int) -> None:
        self.calls += 1
        self.has_begun.set()
        assert self.may_sync.wait(20)
        super().sync(descriptor)


async def waits_of_turns(world: World, disk: SlowDisk, turns: int) -> list[Any]:
    """One append a turn; the first one is being synced when the others come."""
    waits = []
    for _ in range(turns):
        waits.append(world.wait(world.append()))
        await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(None, disk.has_begun.wait, 20)
    disk.may_sync.set()
    return waits


def test_what_is_appended_during_a_round_waits_for_the_next_one() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        world = World(disk=disk)
        first, second = await waits_of_turns(world, disk, 2)
        await first
        await second
        assert world.partition.log.synced_offset == 2
        assert world.commit.rounds == 2
        await world.commit.stop()

    run(scenario)


def test_all_turns_of_a_round_share_the_next_one() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        world = World(disk=disk)
        await asyncio.gather(*await waits_of_turns(world, disk, 6))
        assert world.partition.log.synced_offset == 6
        assert world.commit.rounds == 2
        await world.commit.stop()

    run(scenario)


def test_a_log_that_is_cut_while_one_round_has_taken_all_is_synced_again() -> None:
    async def scenario() -> None:
        world = World()
        may_take = threading.Event()
        thread: Any = world.commit._thread
        sync_waiting = thread._sync_waiting

        def sync_when_told() -> Any:
            assert may_take.wait(20)
            return sync_waiting()

        thread._sync_waiting = sync_when_told
        waits = []
        for _ in range(2):
            waits.append(world.wait(world.append()))
            await asyncio.sleep(0)
        # Two rounds are begun, and the first takes what both are for.
        world.partition.log.truncate_to(1)
        may_take.set()
        assert waits[0] is not None
        await waits[0]
        assert world.partition.log.synced_offset == 1
        await world.commit.stop()

    run(scenario)


def test_nothing_is_synced_behind_a_round_that_failed() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        disk.sync_error = errno.EIO
        world = World(disk=disk)
        waits = await waits_of_turns(world, disk, 3)
        answers = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(answer) for answer in answers] == [KafkaError] * 3
        await world.commit.stop()
        assert (world.commit.rounds, disk.calls) == (1, 1)

    run(scenario)


def test_a_duplicate_waits_for_the_sync_of_its_original() -> None:
    async def scenario() -> None:
        world = World()
        original = world.append(batch(1, producer_id=7, sequence=0))
        assert world.wait(original) is not None
        again = produce(world.partition, batch(1, producer_id=7, sequence=0))
        assert (again.is_duplicate, again.next_offset) == (True, original)
        wait = world.wait(again.next_offset)
        assert wait is not None
        await wait
        await world.commit.stop()

    run(scenario)


def test_acks_1_does_not_wait_unless_flush_messages_says_so() -> None:
    async def scenario() -> None:
        world = World()
        assert world.wait(world.append(), is_acks_all=False) is None
        strict = World(make_log_config(flush_messages=2))
        assert strict.wait(strict.append(), is_acks_all=False) is None
        wait = strict.wait(strict.append(), is_acks_all=False)
        assert wait is not None
        await wait
        await strict.commit.stop()
        await world.commit.stop()

    run(scenario)


def test_a_failed_sync_is_never_repeated_and_nothing_more_is_acknowledged() -> None:
    async def scenario() -> None:
        world = World()
        world.disk.sync_error = errno.EIO
        wait = world.wait(world.append())
        assert wait is not None
        with pytest.raises(KafkaError) as refused:
            await wait
        assert refused.value.code is KafkaCode.KAFKA_STORAGE_ERROR
        assert len(world.failures) == 1
        # The disk says that it is well again; what it dropped is gone all the same.
        world.disk.sync_error = None
        later = world.wait(world.append())
        assert later is not None
        with pytest.raises(KafkaError):
            await later
        assert world.commit.rounds == 1
        await world.commit.stop()

    run(scenario)


def test_a_deleted_partition_answers_whoever_waits() -> None:
    async def scenario() -> None:
        world = World()
        wait = world.wait(world.append())
        assert wait is not None
        world.commit.forget(world.partition)
        with pytest.raises(KafkaError) as refused:
            await wait
        assert refused.value.code is KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
        await world.commit.stop()

    run(scenario)


def test_dev_never_waits_but_syncs_in_the_background() -> None:
    async def scenario() -> None:
        world = World()
        world.commit = PageCacheDurability(world.failures.append)
        end = world.append()
        assert world.wait(end) is None
        world.commit.request(world.partition)
        await asyncio.sleep(0)
        await world.commit.stop()
        assert world.partition.log.synced_offset == end

    run(scenario)
