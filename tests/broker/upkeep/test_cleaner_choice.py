"""Which partition the cleaner takes next, over logs in memory.

Covers broker/upkeep/cleaner.py.
"""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from millstream.broker.upkeep.cleaner import Cleaner, State
from millstream.config import load_config
from millstream.model import TopicPartition
from millstream.storage.log import Log
from tests.storage.compacted_logs import CONFIG, fill
from tests.storage.logs import NOW_MS, open_log
from tests.storage.memory_files import MemoryFileSystem


class FakePartition:
    def __init__(self, name: str, log: Log) -> None:
        self.topic_partition = TopicPartition(name, 0)
        self.log = log
        self.offline_reason: str | None = None


class FakePartitions(list[FakePartition]):
    def find(self, topic: str, index: int) -> FakePartition | None:
        return next((p for p in self if p.topic_partition.topic == topic), None)


def partition(name: str, batches: int, **config: Any) -> FakePartition:
    log = open_log(MemoryFileSystem(), replace(CONFIG, **config))
    fill(log, batches)
    return FakePartition(name, log)


def cleaner(*partitions: FakePartition, **settings: str) -> Any:
    sets = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    node = SimpleNamespace(
        config=load_config(sets=sets),
        partitions=FakePartitions(partitions),
        clock=SimpleNamespace(now_ms=lambda: NOW_MS, monotonic=lambda: 0.0),
        disk=SimpleNamespace(failure=None),
    )
    made: Any = Cleaner(node)  # type: ignore[arg-type]
    return made


def chosen(made: Any) -> str | None:
    found = asyncio.run(made._choose())
    return None if found is None else found.topic_partition.topic


def clean_up_to(which: FakePartition, offset: int) -> None:
    which.log.segments.cleaned_offset = offset


def test_the_dirtiest_comes_first() -> None:
    some, more = partition("some", 40), partition("more", 40)
    made = cleaner(some, more)
    clean_up_to(some, some.log.segments[3].base_offset)
    clean_up_to(more, more.log.segments[1].base_offset)
    assert chosen(made) == "more"


def test_below_the_ratio_nothing_is_done() -> None:
    only = partition("only", 40)
    made = cleaner(only)
    clean_up_to(only, only.log.segments[-2].base_offset)
    assert chosen(made) is None


def test_partitions_that_failed_are_offline_or_not_compacted_are_passed_over() -> None:
    failed, offline = partition("failed", 40), partition("offline", 40)
    other = partition("other", 40, is_compacted=False)
    offline.offline_reason = "gone"
    made = cleaner(failed, offline, other)
    made._give_up(failed, "damaged")
    assert chosen(made) is None
    failed.log = partition("failed", 40).log
    assert chosen(made) == "failed"


def test_who_was_asked_for_and_went_offline_is_not_waited_for() -> None:
    offline = partition("offline", 40)
    made = cleaner(offline)
    made.ask(offline)
    offline.offline_reason = "gone"
    assert chosen(made) is None
    assert made.progress(offline).state is State.FAILED
    assert made.progress(offline).problem == "gone"


def test_who_was_asked_for_comes_before_all_others() -> None:
    dirty, asked = partition("dirty", 40), partition("asked", 1)
    made = cleaner(dirty, asked)
    made.ask(asked)
    assert chosen(made) == "asked"
    assert made.progress(asked).state is State.WAITING


def test_a_cleaner_that_is_turned_off_only_does_what_it_is_asked() -> None:
    dirty = partition("dirty", 40)
    made = cleaner(dirty, log_cleaner_enable="false")
    assert chosen(made) is None
    made.ask(dirty)
    assert chosen(made) == "dirty"


def test_where_a_log_of_the_same_name_was_cleaned_counts_for_nothing() -> None:
    only = partition("only", 40)
    made = cleaner(only)
    clean_up_to(only, only.log.segments[-1].base_offset)
    assert chosen(made) is None
    again = partition("only", 40)
    made._node.partitions[:] = [again]
    assert chosen(made) == "only"
