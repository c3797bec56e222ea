"""The node's data directory: checkpoints that are written in a thread."""

import asyncio
import uuid
from pathlib import Path
from threading import Thread

import pytest

from millstream.broker.node.data_directory import DataDirectory
from millstream.broker.node.disposal import NodeFileSystem
from millstream.clock import SystemClock
from millstream.model import TopicPartition
from millstream.replication.group_commit import GroupCommit
from millstream.replication.table import PartitionTable
from tests.storage.logs import make_log_config

ORDERS = TopicPartition("orders", 0)


def test_a_slow_checkpoint_does_not_replace_one_that_was_captured_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = DataDirectory(
        tmp_path, clock=SystemClock(), partitions=PartitionTable(), new_durability=GroupCommit
    )
    disk.claim(1)
    store = disk.store
    store.owner.keep()
    store.load(lambda topic: make_log_config())
    store.create(ORDERS, uuid.UUID(int=1), make_log_config())
    later: list[Thread] = []
    rename = NodeFileSystem.rename

    def slow_rename(old: str, new: str) -> None:
        monkeypatch.setattr(NodeFileSystem, "rename", staticmethod(rename))
        store.delete(ORDERS)
        later.append(Thread(target=store.checkpoints.take()))
        later[0].start()
        later[0].join(0.2)
        rename(old, new)

    monkeypatch.setattr(NodeFileSystem, "rename", staticmethod(slow_rename))
    asyncio.run(disk.checkpoint())
    later[0].join()
    assert store.checkpoints.read("recovery-point-offset-checkpoint") == {}
    disk.release()
