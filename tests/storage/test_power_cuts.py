"""The whole engine over a disk that loses power: what was synced is there, and intact.

Each example runs a few lives of one data directory. A life appends, rolls, syncs, writes
checkpoints, and ends in a power cut that keeps an arbitrary part of what was not synced,
in a kill, or in a clean stop.

Covers storage.
"""

import random
import uuid
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.model import TopicPartition
from millstream.records.batch import split_batches
from millstream.storage.log import Log
from millstream.storage.store import LogStore
from millstream.storage.syncing import sync
from tests.storage.logs import NOW_MS, append, batch, make_log_config
from tests.storage.memory_files import MemoryFileSystem

WHERE = TopicPartition("orders", 0)
CONFIG = make_log_config(segment_bytes=700, index_interval_bytes=150)
ACTIONS = ["append", "append", "append", "produce", "sync", "checkpoint"]


def open_store(disk: MemoryFileSystem) -> LogStore:
    return LogStore.open(
        Path("/data"),
        file_system=disk,
        cluster_id="c",
        broker_id=1,
        clock_now_ms=lambda: NOW_MS,
        configs=lambda topic: CONFIG,
        report=lambda text: None,
    )


def content(log: Log) -> bytes:
    return b"".join(segment.file.read_at(0, segment.size_bytes) for segment in log.segments)


def sync_log(log: Log) -> None:
    ticket = log.begin_sync()
    if ticket is not None:
        sync([ticket])
        log.unsynced.end_sync(ticket)


def live(store: LogStore, log: Log, epoch: int, chance: random.Random) -> None:
    for _ in range(chance.randint(0, 25)):
        action = chance.choice(ACTIONS)
        if action == "append":
            value = bytes([chance.randint(1, 255)]) * chance.randint(0, 200)
            append(log, batch(chance.randint(1, 3), value=value), leader_epoch=epoch)
        elif action == "produce":
            producer = log.producers.states.get(7)
            sequence = 0 if producer is None else producer.last_sequence + 1
            append(log, batch(1, producer_id=7, sequence=sequence), leader_epoch=epoch)
        elif action == "sync":
            sync_log(log)
        else:
            store.checkpoints.write()


def check_whole(log: Log) -> None:
    """Nothing visible is damaged, and all that is derived agrees with the batches."""
    batches = list(split_batches(memoryview(content(log))))
    next_offset = 0
    epochs: list[tuple[int, int]] = []
    for one in batches:
        assert one.crc_is_valid()
        assert one.base_offset == next_offset
        next_offset = one.next_offset
        if not epochs or one.partition_leader_epoch > epochs[-1][0]:
            epochs.append((one.partition_leader_epoch, one.base_offset))
    assert log.next_offset == next_offset
    # An epoch that has written nothing yet may be known, too.
    assert [entry for entry in log.epochs.entries if entry[1] < next_offset] == epochs
    sequences = [one.last_sequence for one in batches if one.producer_id == 7]
    producer = log.producers.states.get(7)
    assert (producer.last_sequence if producer else None) == (sequences[-1] if sequences else None)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32))
@example(7002)  # an epoch file cut inside its last number
def test_what_was_synced_survives_any_sequence_of_lives(seed: int) -> None:
    chance = random.Random(seed)
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(WHERE, uuid.UUID(int=1), CONFIG)
    sync_log(log)
    for epoch in range(chance.randint(1, 5)):
        live(store, log, epoch, chance)
        promised, before = log.synced_offset, content(log)
        ending = chance.choice(["power", "power", "kill", "stop"])
        if ending == "power":
            disk.cut_power_at_random(chance)
        elif ending == "kill":
            promised = log.next_offset
            disk.kill()
        else:
            promised = log.next_offset
            store.close(clean=True)
            if chance.random() < 0.5:
                disk.cut_power_at_random(chance)
        store = open_store(disk)
        assert store.offline == {}
        log = store.logs[WHERE]
        assert log.next_offset >= promised
        assert before.startswith(content(log))
        check_whole(log)
