"""A share partition that was forgotten while a change was being stored, or is not loaded."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from millstream.broker.coordination import share_partitions as module
from millstream.broker.coordination.share_partitions import SharePartitions
from millstream.config import BrokerConfig
from millstream.coordinators.codecs.share_state import ShareKey, StoredShare
from millstream.coordinators.share.acknowledging import ACCEPT, Acknowledgement
from millstream.coordinators.share.acquiring import LogBatch, Wanted, acquire
from millstream.coordinators.share.state_batches import StateBatch, combine
from millstream.coordinators.share.stored import Written
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.waiting import FetchWait

KEY = ShareKey("g", UUID(int=1), 0)


class SlowStore:
    """The share coordinator of another node: a write arrives when the test lets it."""

    def __init__(self) -> None:
        self.batches: tuple[StateBatch, ...] = ()
        self.may_write = asyncio.Event()

    async def read(self, key: ShareKey, *, leader_epoch: int) -> StoredShare:
        return StoredShare(0, 1, leader_epoch, 0, 0, 0, 0, self.batches)

    async def write(self, key: ShareKey, written: Written) -> None:
        await self.may_write.wait()
        self.batches = combine(self.batches, written.batches, start_offset=0)


def node() -> Any:
    return SimpleNamespace(
        now_ms=lambda: 0,
        clock=SimpleNamespace(monotonic=lambda: 0.0, now_ms=lambda: 0),
        config=BrokerConfig({}),
        image=SimpleNamespace(group_overrides={}),
        disk=SimpleNamespace(
            durability=SimpleNamespace(wait_if_needed=lambda *found, is_acks_all: None)
        ),
    )


def partition() -> Any:
    return SimpleNamespace(
        is_leader=True,
        leader_epoch=3,
        offline_reason=None,
        log=SimpleNamespace(log_start_offset=0),
    )


async def loaded(partitions: SharePartitions, where: Any) -> Any:
    led = partitions.find_or_load(KEY, where)
    if led.share is None:
        wait = FetchWait(1)
        led.waits.add(wait)
        await wait.future
    return led


def test_it_is_read_again_only_after_the_change_is_stored() -> None:
    async def scenario() -> None:
        store = SlowStore()
        no_letters: Any = None
        partitions = SharePartitions(node(), store, no_letters)  # type: ignore[arg-type]
        where = partition()
        led = await loaded(partitions, where)
        wanted = Wanted(10, 10)
        log = [LogBatch(0, 9)]
        acquire(led.share, "m", fetch_offset=0, fetched=log, wanted=wanted, now_ms=0)
        asked = [Acknowledgement(0, 9, [ACCEPT])]
        change = partitions.acknowledge(led, "m", asked)
        store_later = partitions.store(led, led.share, change)
        assert store_later is not None
        # From here on, even if nothing of it was sent yet.
        partitions.forget_group("g")
        storing = asyncio.ensure_future(store_later)
        again = partitions.find_or_load(KEY, where)
        for _ in range(5):
            await asyncio.sleep(0)
        assert again.share is None, "the write is still on its way"
        store.may_write.set()
        await storing
        assert (await loaded(partitions, where)).share.start_offset == 10
        await partitions.stop()

    asyncio.run(scenario())


class EmptyStore:
    """The share coordinator knows nothing of any group."""

    def __init__(self) -> None:
        self.reads: list[ShareKey] = []

    async def read(self, key: ShareKey, *, leader_epoch: int) -> StoredShare:
        self.reads.append(key)
        raise KafkaError(KafkaCode.GROUP_ID_NOT_FOUND)


def test_a_state_that_could_not_be_read_is_not_asked_for_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        store = EmptyStore()
        no_letters: Any = None
        partitions = SharePartitions(node(), store, no_letters)  # type: ignore[arg-type]
        where = partition()
        first = await loaded(partitions, where)
        assert first.problem is not None
        assert first.problem.code is KafkaCode.GROUP_ID_NOT_FOUND
        assert partitions.find(KEY) is None
        assert partitions.find_or_load(KEY, where) is first
        assert store.reads == [KEY]
        # An administrator has begun it, or a member has joined.
        partitions.forget_group("g")
        monkeypatch.setattr(module, "_FAILED_SECONDS", 0.0)
        await loaded(partitions, where)
        assert store.reads == [KEY, KEY]
        # Time has passed, and nobody asks: nothing is left.
        gone = FetchWait(1)
        partitions.find_or_load(KEY, where).waits.add(gone)
        await gone.future
        assert partitions.all() == []
        await loaded(partitions, where)
        assert store.reads == [KEY] * 3
        await partitions.stop()

    asyncio.run(scenario())


def test_many_states_are_read_a_few_at_a_time() -> None:
    async def scenario() -> None:
        store = EmptyStore()
        no_letters: Any = None
        partitions = SharePartitions(node(), store, no_letters)  # type: ignore[arg-type]
        where = partition()
        for number in range(1_000):
            partitions.find_or_load(ShareKey("g", UUID(int=1), number), where)
        counts = [0]
        async with asyncio.timeout(20):
            while counts[-1] < 1_000:
                await asyncio.sleep(0)
                counts.append(len(store.reads))
        assert max(after - before for before, after in pairwise(counts)) <= 20
        await partitions.stop()

    asyncio.run(scenario())


def test_the_options_of_groups_with_long_ids_are_not_kept() -> None:
    unused: Any = None
    partitions = SharePartitions(node(), unused, unused)
    for length in (256, 257):
        assert partitions.limits_of("g" * length).in_flight_max == 2_000
    assert [len(group_id) for group_id in partitions._configs] == [256]
