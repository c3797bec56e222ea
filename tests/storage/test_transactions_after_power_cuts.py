"""Open and aborted transactions after power cuts, kills and stops: always what the log says.

Covers storage/producers.py, storage/aborted_index.py.
"""

import random
import uuid

from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.records.batch import split_batches
from millstream.records.builder import build_batch
from millstream.records.control import ControlType, EndTransactionMarker
from millstream.records.records import Record
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.log import Log
from millstream.storage.producers import ProducerStates
from millstream.storage.store import LogStore
from tests.storage.logs import NOW_MS, append, batch
from tests.storage.memory_files import MemoryFileSystem
from tests.storage.test_power_cuts import CONFIG, WHERE, content, open_store, sync_log

PRODUCERS = (1, 2, 3)


def write(log: Log, producer_id: int, epoch: int) -> None:
    producer = log.producers.states.get(producer_id)
    data = build_batch(
        [Record(0, NOW_MS, None, b"x" * 30)],
        base_offset=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0 if producer is None else producer.last_sequence + 1,
        is_transactional=True,
    )
    append(log, data, leader_epoch=epoch)


def end(log: Log, producer_id: int, kind: ControlType, epoch: int) -> None:
    log.append_marker(
        EndTransactionMarker(kind, epoch),
        producer_id=producer_id,
        producer_epoch=0,
        leader_epoch=epoch,
        now_ms=NOW_MS,
    )


def live(store: LogStore, log: Log, epoch: int, chance: random.Random) -> None:
    for _ in range(chance.randint(0, 30)):
        producer_id = chance.choice(PRODUCERS)
        match chance.choice(["write", "write", "plain", "abort", "commit", "sync", "checkpoint"]):
            case "write":
                write(log, producer_id, epoch)
            case "plain":
                append(log, batch(), leader_epoch=epoch)
            case "abort":
                end(log, producer_id, ControlType.ABORT, epoch)
            case "commit":
                end(log, producer_id, ControlType.COMMIT, epoch)
            case "sync":
                sync_log(log)
            case "checkpoint":
                store.checkpoints.write()


def told_by_the_batches(log: Log) -> tuple[ProducerStates, list[AbortedTransaction]]:
    states = ProducerStates()
    aborted = []
    for one in split_batches(memoryview(content(log))):
        ended = states.update(one)
        if ended is not None:
            aborted.append(ended)
    return states, aborted


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32))
@example(783)  # an index that was rebuilt and never written
def test_transactions_are_what_the_batches_say_after_any_lives(seed: int) -> None:
    chance = random.Random(seed)
    disk = MemoryFileSystem()
    store = open_store(disk)
    log = store.create(WHERE, uuid.UUID(int=1), CONFIG)
    sync_log(log)
    for epoch in range(chance.randint(1, 5)):
        live(store, log, epoch, chance)
        ending = chance.choice(["power", "power", "kill", "stop"])
        if ending == "power":
            disk.cut_power_at_random(chance)
        elif ending == "kill":
            disk.kill()
        else:
            store.close(clean=True)
            if chance.random() < 0.5:
                disk.cut_power_at_random(chance)
        store = open_store(disk)
        log = store.logs[WHERE]
        states, aborted = told_by_the_batches(log)
        assert [one for segment in log.segments for one in segment.aborted] == aborted
        first_open = states.first_open_offset()
        assert log.last_stable_offset == (log.next_offset if first_open is None else first_open)
        open_now = {number: one.transaction_first_offset for number, one in log.producers.states}
        assert open_now == {number: one.transaction_first_offset for number, one in states}
