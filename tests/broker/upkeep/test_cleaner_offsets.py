"""Where the rounds ended, in memory and in the file, whatever happens to the logs.

Covers broker/upkeep/cleaner.py.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.broker.node.state import NodeState
from millstream.broker.upkeep import cleaner as cleaner_module
from millstream.broker.upkeep.cleaner import Cleaner
from millstream.config import load_config
from millstream.model import NO_TOPIC_ID, TopicPartition
from millstream.storage.checkpoints import format_offsets, parse_offsets
from millstream.storage.compaction_round import CleanedSegment, Round, compact_segments
from millstream.storage.log import Log
from millstream.storage.store import LogStore
from tests.storage.compacted_logs import CONFIG, fill, keyed, newest, records_in
from tests.storage.logs import NOW_MS, append
from tests.storage.memory_files import MemoryFileSystem

WHERE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
PATH = "/data/cleaner-offset-checkpoint"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner_module, "FILE_CHECKED_SECONDS", 0.001)


async def wait(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110  # a file tells nobody when it changes
            await asyncio.sleep(0.001)


class CompactedStore:
    """A data directory in memory, and the cleaner of its node."""

    def __init__(self, disk: MemoryFileSystem | None = None) -> None:
        self.disk = disk or MemoryFileSystem()
        self.store = LogStore.open(
            Path("/data"),
            file_system=self.disk,
            cluster_id=None,
            broker_id=1,
            clock_now_ms=lambda: NOW_MS,
            configs=lambda topic: CONFIG,
            report=lambda text: None,
        )
        self.now_ms = NOW_MS
        self.node = SimpleNamespace(
            config=load_config(sets=[]),
            partitions=[],
            clock=SimpleNamespace(now_ms=lambda: self.now_ms, monotonic=lambda: 0.0),
            disk=SimpleNamespace(failure=None, store=self.store),
        )
        self.cleaner = cast(Any, Cleaner(cast(NodeState, self.node)))
        self.cleaner._file_system = self.disk

    def create(self, where: TopicPartition = WHERE, batches: int = 0) -> Log:
        log = self.store.create(where, NO_TOPIC_ID, CONFIG)
        fill(log, batches)
        return log

    @property
    def stored(self) -> dict[TopicPartition, int]:
        return parse_offsets(bytes(self.disk.data(PATH)))

    def write_file(self, offsets: dict[TopicPartition, int]) -> None:
        descriptor = self.disk.open(PATH, create=True)
        self.disk.truncate(descriptor, 0)
        self.disk.write_at(descriptor, format_offsets(offsets), 0)
        self.disk.close(descriptor)

    def run(self, *steps: Callable[[], object], until: dict[TopicPartition, int]) -> None:
        """The cleaner runs, these steps happen, and then the file says that."""

        async def scenario() -> None:
            self.cleaner.start()
            for step in steps:
                await asyncio.sleep(0)
                step()
            await wait(lambda: self.stored == until)
            await self.cleaner.stop()

        asyncio.run(scenario())

    def clean(
        self,
        log: Log,
        monkeypatch: pytest.MonkeyPatch,
        at_the_end: Callable[[], None] = lambda: None,
    ) -> None:
        async def in_memory(planned: Round, throttle: object) -> AsyncIterator[CleanedSegment]:
            for cleaned in compact_segments(planned, self.disk, moved=lambda size: None):
                yield cleaned
            at_the_end()

        monkeypatch.setattr(cleaner_module, "run_round", in_memory)
        partition = SimpleNamespace(topic_partition=WHERE, log=log, offline_reason=None)
        asyncio.run(self.cleaner._clean(partition, is_asked=False))


def test_a_start_goes_on_where_the_last_round_ended() -> None:
    made = CompactedStore()
    log = made.create(batches=20)
    made.write_file({WHERE: 8})
    made.run(until={WHERE: 8})
    assert log.segments.cleaned_offset == 8


def test_an_entry_for_a_log_that_was_created_since_counts_for_nothing() -> None:
    made = CompactedStore()
    made.write_file({WHERE: 8, OTHER: 4})
    log = made.create()
    made.run(lambda: fill(log, 20), lambda: made.create(OTHER, 20), until={})
    assert log.segments.cleaned_offset is None
    assert made.store.logs[OTHER].segments.cleaned_offset is None


def test_a_deleted_key_stays_deleted_in_a_log_with_the_name_of_an_older_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = CompactedStore()
    made.write_file({WHERE: 5})
    log = made.create()
    made.run(until={})
    for value in (b"secret", None):
        append(log, keyed([(b"k", value)]))
        log.roll(NOW_MS)
    for days in range(3):
        fill(log, 6)
        log.roll(NOW_MS)
        made.now_ms = NOW_MS + days * 2 * CONFIG.delete_retention_ms
        made.clean(log, monkeypatch)
        assert newest(records_in(log)).get(b"k", (1, None)) == (1, None)
    assert b"k" not in newest(records_in(log))


def test_the_entry_of_a_deleted_log_leaves_the_file() -> None:
    made = CompactedStore()
    made.create(batches=20)
    made.create(OTHER, batches=20)
    made.write_file({WHERE: 8, OTHER: 4})
    made.run(lambda: made.store.delete_later(WHERE), until={OTHER: 4})
    made.create(WHERE, batches=20)
    made.run(until={OTHER: 4})
    assert made.store.logs[WHERE].segments.cleaned_offset is None


def test_a_log_that_takes_the_place_of_another_has_no_entry() -> None:
    made = CompactedStore()
    made.create(batches=20)
    made.write_file({WHERE: 8})

    def replace() -> None:
        made.store.delete(WHERE)
        made.create(WHERE, batches=20)

    made.run(replace, until={})


def test_a_cut_lowers_the_entry_for_good() -> None:
    made = CompactedStore()
    log = made.create(batches=20)
    made.write_file({WHERE: 8})

    def cut_and_grow() -> None:
        log.truncate_to(4)
        fill(log, 20)

    made.run(cut_and_grow, until={WHERE: 4})
    assert log.segments.cleaned_offset == 4


def test_what_changes_at_the_end_is_written_at_the_stop() -> None:
    made = CompactedStore()
    made.create(batches=20)
    made.write_file({WHERE: 8})

    async def scenario() -> None:
        made.cleaner.start()
        await asyncio.sleep(0)
        made.store.delete(WHERE)
        await made.cleaner.stop()

    asyncio.run(scenario())
    assert made.stored == {}


def test_a_full_disk_is_tried_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    made = CompactedStore()
    made.write_file({WHERE: 8})
    made.disk.write_error = errno.ENOSPC

    async def scenario() -> None:
        made.cleaner.start()
        tried = made.cleaner._writes
        await wait(lambda: made.cleaner._writes >= tried + 5)
        assert made.stored == {WHERE: 8}
        made.disk.write_error = None
        await wait(lambda: not made.stored)
        await made.cleaner.stop()

    asyncio.run(scenario())
    assert caplog.text.count("cleaner-offset-checkpoint") == 1


def test_a_slow_writer_does_not_replace_what_a_later_one_wrote() -> None:
    made = CompactedStore()
    log = made.create(batches=20)
    log.segments.cleaned_offset = 8
    earlier = made.cleaner._take_offsets()
    made.store.delete(WHERE)
    made.cleaner._take_offsets()()
    earlier()
    assert made.stored == {}


def test_a_round_during_which_the_log_was_cut_ends_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = CompactedStore()
    log = made.create(batches=20)
    made.clean(log, monkeypatch)
    end_offset = log.segments.cleaned_offset
    assert end_offset is not None
    assert made.stored == {WHERE: end_offset}
    fill(log, 20)

    def cut() -> None:
        log.truncate_to(4)
        fill(log, 60)

    made.clean(log, monkeypatch, at_the_end=cut)
    assert log.segments.cleaned_offset == 4
