"""A disk that is full or broken while a round puts its segments in place.

The log is in memory.

Covers broker/upkeep/cleaner.py.
"""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.upkeep import cleaner as cleaner_module
from millstream.broker.upkeep.cleaner import Cleaner, State
from millstream.config import load_config
from millstream.model import TopicPartition
from millstream.storage.compaction_round import CleanedSegment, Round, compact_segments
from millstream.storage.log import Log
from tests.storage.compacted_logs import CONFIG, fill, newest, records_in
from tests.storage.logs import CRASHED, NOW_MS, open_log
from tests.storage.memory_files import MemoryFileSystem

WHERE = TopicPartition("t", 0)


class FailingFileSystem(MemoryFileSystem):
    """One call that changes a name fails, or that one and all after it."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_left: int | None = None
        self.error = errno.ENOSPC
        self.fails_on = False
        self.has_failed = False

    def _change(self) -> None:
        if self.changes_left is None:
            return
        self.changes_left -= 1
        if self.changes_left == -1 or (self.changes_left < 0 and self.fails_on):
            self.has_failed = True
            raise OSError(self.error, os.strerror(self.error))

    def rename(self, old: str, new: str) -> None:
        self._change()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._change()
        super().remove(path)


class FakeDisk:
    def __init__(self, log: Log) -> None:
        self.failure: str | None = None
        self.store = SimpleNamespace(logs={WHERE: log}, directory="")

    def fail(self, reason: str) -> None:
        self.failure = reason


def clean(disk: MemoryFileSystem, log: Log, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One round of a cleaner; its progress, and the disk of its node."""

    async def round_in_memory(planned: Round, throttle: object) -> AsyncIterator[CleanedSegment]:
        for cleaned in compact_segments(planned, disk, moved=lambda size: None):
            yield cleaned

    monkeypatch.setattr(cleaner_module, "run_round", round_in_memory)
    node = SimpleNamespace(
        config=load_config(sets=[]),
        clock=SimpleNamespace(now_ms=lambda: NOW_MS, monotonic=lambda: 0.0),
        disk=FakeDisk(log),
    )
    made: Any = Cleaner(node)  # type: ignore[arg-type]
    made._file_system = disk
    partition = SimpleNamespace(topic_partition=WHERE, log=log, offline_reason=None)
    return asyncio.run(made._clean(partition, is_asked=False)), node.disk


@pytest.mark.parametrize("fails_on", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_what_compaction_keeps_is_there_after_a_failure_at_any_change(
    error: int, fails_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, offline = 0, 0
    while True:
        disk = FailingFileSystem()
        log = open_log(disk, CONFIG)
        fill(log, 30, keys=25)
        expected = newest(records_in(log))
        disk.changes_left, disk.error, disk.fails_on = failures, error, fails_on
        progress, node_disk = clean(disk, log, monkeypatch)
        disk.changes_left = None
        if node_disk.failure is None:
            assert newest(records_in(log)) == expected
        else:
            offline += 1
            assert progress.state is State.FAILED
        again = open_log(disk, CONFIG, CRASHED)
        again.segments.sweep(NOW_MS)
        assert newest(records_in(again)) == expected
        assert not [path for path in disk.paths() if path.endswith((".cleaned", ".swap"))]
        if not disk.has_failed:
            break
        failures += 1
    assert failures > 20
    assert offline > 10
