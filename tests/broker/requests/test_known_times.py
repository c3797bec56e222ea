"""Delivery times of batches: searched at once or in a thread, and kept."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from millstream.broker.requests import known_times
from millstream.broker.requests.known_times import KnownTimes, QuickSearch, whole_batches
from millstream.errors import KafkaCode, KafkaError
from millstream.model import Codec, TopicPartition
from millstream.records import delivery_times
from millstream.records.batch import BatchView
from millstream.records.builder import build_batch
from millstream.records.delivery_times import BatchTimes, headers_for
from millstream.records.records import Record
from millstream.replication.partition import Partition
from millstream.replication.waiting import FetchWait, FetchWaits
from millstream.storage.log import FileRange


class File:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_at(self, position: int, length: int) -> bytes:
        return self.data[position : position + length]


class FakePartition:
    """Its log is the batches."""

    def __init__(self, *batches: bytes) -> None:
        self.topic_id = "id"
        self.topic_partition = TopicPartition("t", 0)
        self.fetch_waits = FetchWaits()
        self.batches = list(batches)
        self.is_readable = True

    def require_readable(self) -> None:
        if not self.is_readable:
            raise KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER)

    def read(self, offset: int, *, max_bytes: int, at_least_one: bool) -> FileRange | None:
        left = [one for one in self.batches if BatchView(memoryview(one)).next_offset > offset]
        data = b"".join(left)
        return range_of(data) if data else None

    def views(self) -> list[BatchView]:
        return [BatchView(memoryview(one)) for one in self.batches]


def range_of(data: bytes) -> FileRange:
    return FileRange(cast(Any, File(data)), 0, len(data))


def batch(base_offset: int, due_ms: int, *, count: int = 1, codec: Codec = Codec.NONE) -> bytes:
    headers: list[tuple[str, bytes | None]] = [
        *headers_for(not_before_ms=due_ms, not_after_ms=None)
    ]
    records = [Record(base_offset + n, 0, None, b"v", headers) for n in range(count)]
    return bytes(build_batch(records, base_offset=base_offset, codec=codec))


def run(scenario: Callable[[KnownTimes], Awaitable[None]], kept_bytes_max: int = 1 << 20) -> None:
    async def started() -> None:
        await scenario(KnownTimes(kept_bytes_max))

    asyncio.run(started())


def find(known: KnownTimes, partition: FakePartition, batch: BatchView) -> BatchTimes | None:
    return known.find(cast(Partition, partition), batch, QuickSearch())


async def search(known: KnownTimes, partition: FakePartition, offset: int = 0) -> None:
    await known.search(cast(Partition, partition), offset)


def dues(known: KnownTimes, partition: FakePartition) -> list[int | None]:
    found = [find(known, partition, view) for view in partition.views()]
    return [None if one is None else one.due_ms for one in found]


@pytest.fixture
def nothing_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_times, "QUICK_BYTES", 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_small_batch_is_searched_at_once_and_not_kept(codec: Codec) -> None:
    async def scenario(known: KnownTimes) -> None:
        assert dues(known, FakePartition(batch(0, 100, codec=codec))) == [100]
        assert known.size_bytes == 0

    run(scenario)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_large_batch_is_searched_in_a_thread(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    search_here = delivery_times.search

    def note(one: BatchView) -> BatchTimes:
        threads.append(threading.get_ident())
        return search_here(one)

    monkeypatch.setattr(known_times, "search", note)
    partition = FakePartition(batch(0, 100, count=8_000, codec=codec), batch(8_000, 200))

    async def scenario(known: KnownTimes) -> None:
        assert dues(known, partition) == [None, 200]
        assert threads == []
        await search(known, partition)
        assert len(threads) == 2
        assert threading.get_ident() not in threads
        assert dues(known, partition) == [100, 200]
        await search(known, partition)
        assert len(threads) == 2, "they are known"

    run(scenario)


def test_one_look_searches_only_so_much_on_the_loop() -> None:
    partition = FakePartition(*(batch(100 * n, n, count=100) for n in range(30)))

    async def scenario(known: KnownTimes) -> None:
        quick = QuickSearch()
        found = [known.find(cast(Partition, partition), one, quick) for one in partition.views()]
        assert 0 < found.index(None) < 20
        assert found[-1] is None

    run(scenario)


@pytest.mark.usefixtures("nothing_is_quick")
def test_what_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    partition = FakePartition(*(batch(10 * n, n + 1, count=10) for n in range(9)))

    async def scenario(known: KnownTimes) -> None:
        await search(known, partition)
        assert known.size_bytes <= 2_000
        found = dues(known, partition)
        assert found == [None] * 6 + [7, 8, 9]

    run(scenario, kept_bytes_max=2_000)


@pytest.mark.usefixtures("nothing_is_quick")
def test_a_batch_that_replaces_another_is_searched_again() -> None:
    partition = FakePartition(batch(0, 100), batch(1, 200))

    async def scenario(known: KnownTimes) -> None:
        await search(known, partition)
        partition.batches[1] = batch(1, 300)
        assert dues(known, partition) == [100, None]
        await search(known, partition, 1)
        assert dues(known, partition) == [100, 300]

    run(scenario)


@pytest.mark.usefixtures("nothing_is_quick")
def test_a_log_that_is_truncated_meanwhile_gets_no_times_of_other_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partition = FakePartition(batch(0, 100))
    search_here = delivery_times.search

    def truncate(one: BatchView) -> BatchTimes:
        partition.batches[0] = batch(0, 300)
        return search_here(one)

    monkeypatch.setattr(known_times, "search", truncate)

    async def scenario(known: KnownTimes) -> None:
        await search(known, partition)
        assert dues(known, partition) == [None]

    run(scenario)


@pytest.mark.usefixtures("nothing_is_quick")
@pytest.mark.parametrize("is_readable", [True, False])
def test_those_who_wait_are_woken_whether_anything_was_found_or_not(is_readable: bool) -> None:
    partition = FakePartition(batch(0, 100))
    partition.is_readable = is_readable

    async def scenario(known: KnownTimes) -> None:
        wait = FetchWait(1)
        partition.fetch_waits.add(wait)
        first = known.search(cast(Partition, partition), 0)
        assert known.search(cast(Partition, partition), 0) is first
        await wait.future
        assert dues(known, partition) == [100 if is_readable else None]

    run(scenario)


def test_the_whole_batches_of_a_range_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch(n, 1, count=1 + n % 5) for n in range(0, 50, 5)]
    data = b"".join(batches)
    for chunk_bytes in (1, 200, 1 << 16):
        monkeypatch.setattr(known_times, "_CHUNK_BYTES", chunk_bytes)
        for cut in (0, 1, len(batches[-1]) - 10):
            found = [bytes(one.bytes) for one in whole_batches(range_of(data[: len(data) - cut]))]
            assert found == (batches if not cut else batches[:-1])
