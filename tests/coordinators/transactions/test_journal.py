"""The journal where transactions meet it: pending records, markers, and work after a sync.

Covers coordinators/journal.py, coordinators/transactions.
"""

import asyncio
import random
from collections.abc import Sequence

import pytest

from millstream.coordinators.codecs.changes import CommittedOffset, OffsetChange
from millstream.coordinators.codecs.table import KeyValue
from millstream.coordinators.decision import Decision, Env, ProducerEpoch, Ticket
from millstream.coordinators.groups import offsets
from millstream.coordinators.groups.machine import GROUPS, GroupShard
from millstream.coordinators.groups.offsets import CommitReply, CommitRequest
from millstream.coordinators.groups.state import ShardState
from millstream.coordinators.journal import LoggedBatch, Shard, ShardStatus
from millstream.coordinators.transactions import decisions as transaction
from millstream.coordinators.transactions.decisions import EndRequest, InitRequest
from millstream.coordinators.transactions.machine import TRANSACTIONS, TransactionShard
from millstream.coordinators.transactions.state import (
    ProducerReply,
    Status,
    TransactionEnv,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.records.control import ControlType, EndTransactionMarker
from millstream.wire.offset_commit import OffsetToCommit
from tests.coordinators.test_journal import committed
from tests.coordinators.test_journal import env as group_env
from tests.coordinators.world import TRANSACTION_SETTINGS

PRODUCER = ProducerEpoch(7, 0)


class MemoryPort:
    """A log of batches and markers that is synced when the test says so."""

    batch_bytes_max = 1_000_000

    def __init__(self) -> None:
        self.batches: list[LoggedBatch] = []
        self.newest_epoch = 0
        self.is_synced_at_once = True
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def start_offset(self) -> int:
        return 0

    def append(self, records: Sequence[KeyValue], transaction: ProducerEpoch | None) -> int:
        if transaction is not None and transaction.epoch < self.newest_epoch:
            raise KafkaError(KafkaCode.INVALID_PRODUCER_EPOCH)
        producer_id = -1 if transaction is None else transaction.producer_id
        self.batches.append(LoggedBatch(list(records), producer_id))
        return len(self.batches)

    def append_marker(self, marker: EndTransactionMarker, producer: ProducerEpoch) -> int | None:
        if self.batches and self.batches[-1].marker is not None:
            return None
        self.batches.append(LoggedBatch([], producer.producer_id, marker.type))
        return len(self.batches)

    def wait_committed(self, next_offset: int) -> "asyncio.Future[None] | None":
        if self.is_synced_at_once:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def sync(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set_result(None)

    def read(self, offset: int) -> tuple[list[LoggedBatch], int] | None:
        if offset >= len(self.batches):
            return None
        return [self.batches[offset]], offset + 1


async def group_shard(port: MemoryPort) -> GroupShard:
    shard: GroupShard = Shard("offsets-0", GROUPS, port, group_env)
    await shard.load()
    return shard


def commit_pending(shard: GroupShard, offset: int) -> "CommitReply | asyncio.Future[CommitReply]":
    request = CommitRequest("g", "", None, -1, [("orders", [OffsetToCommit(0, offset, -1, "")])])

    def decide(state: ShardState, env: Env) -> Decision[CommitReply]:
        return offsets.commit_in_transaction(state, request, PRODUCER, env)

    return shard.submit("g", decide)


def marker(kind: ControlType) -> EndTransactionMarker:
    return EndTransactionMarker(kind, 0)


@pytest.mark.parametrize(("kind", "offset"), [(ControlType.COMMIT, 5), (ControlType.ABORT, None)])
def test_pending_offsets_count_with_the_commit_marker_now_and_in_a_replay(
    kind: ControlType, offset: int | None
) -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await group_shard(port)
        assert commit_pending(shard, 5) == [[KafkaCode.NONE]]
        half_way = await group_shard(port)
        for each in (shard, half_way):
            assert committed(each.state) is None
            assert each.state.has_pending_offsets("g", "orders", 0)
        assert shard.end_transaction(marker(kind), PRODUCER) == 2
        assert shard.end_transaction(marker(kind), PRODUCER) is None
        for each in (shard, await group_shard(port)):
            assert committed(each.state) == offset
            assert not each.state.has_pending_offsets("g", "orders", 0)

    asyncio.run(main())


def test_the_later_of_two_records_counts_whichever_transaction_ends_last() -> None:
    def offset(number: int) -> OffsetChange:
        return OffsetChange("g", "orders", 0, CommittedOffset(number))

    state = ShardState()
    state.apply_pending(offset(1), 7)
    state.apply_pending(offset(2), 8)
    state.end_transaction(8, True)
    assert committed(state) == 2
    state.end_transaction(7, True)
    assert committed(state) == 2
    state.apply_pending(offset(3), 7)
    state.apply(offset(4))
    state.end_transaction(7, True)
    assert committed(state) == 4
    state.apply_pending(offset(5), 7)
    state.end_transaction(7, True)
    assert committed(state) == 5
    state.apply_pending(offset(6), 7)
    state.apply(OffsetChange("g", "orders", 0, None))
    state.end_transaction(7, True)
    assert committed(state) is None


def test_an_outdated_producer_is_refused_and_the_shard_goes_on() -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await group_shard(port)
        port.newest_epoch = 1
        with pytest.raises(KafkaError) as refused:
            commit_pending(shard, 5)
        assert refused.value.code is KafkaCode.INVALID_PRODUCER_EPOCH
        assert shard.status is ShardStatus.ACTIVE
        assert port.batches == []

    asyncio.run(main())


def transaction_env(ticket: Ticket) -> TransactionEnv:
    return TransactionEnv(1_000, 1_000, TRANSACTION_SETTINGS, ticket, lambda: 7)


async def transaction_shard(port: MemoryPort, acted: list[str]) -> TransactionShard:
    shard: TransactionShard = Shard("transactions-0", TRANSACTIONS, port, transaction_env)
    shard.on_committed(lambda shard, name: acted.append(name))
    await shard.load()
    return shard


def begin(shard: TransactionShard) -> None:
    request = InitRequest("mill", 60_000)
    shard.submit("mill", lambda state, env: transaction.init_producer(state, request, env))
    shard.submit(
        "mill",
        lambda state, env: transaction.add_partitions(
            state, "mill", PRODUCER, {"t": frozenset({0})}, client_version=2, env=env
        ),
    )


def test_a_decision_is_acted_upon_when_it_is_safe_and_answered_when_that_is_done() -> None:
    async def main() -> None:
        acted: list[str] = []
        port = MemoryPort()
        shard = await transaction_shard(port, acted)
        begin(shard)
        port.is_synced_at_once = False
        request = EndRequest("mill", PRODUCER, True, 2)
        answer = shard.submit("mill", lambda state, env: transaction.end(state, request, env))
        assert isinstance(answer, asyncio.Future)
        assert acted == []
        port.sync()
        await asyncio.sleep(0)
        assert acted == ["mill"]
        assert not answer.done()
        prepared = shard.state.transactions["mill"].stored
        port.is_synced_at_once = True
        shard.submit_internal(
            "mill",
            lambda state, env: transaction.markers_are_written(state, "mill", prepared, env),
        )
        assert await answer == ProducerReply(7, 1)
        assert shard.state.transactions["mill"].status is Status.COMPLETE_COMMIT

    asyncio.run(main())


def test_after_a_restart_what_was_decided_is_acted_upon_again() -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await transaction_shard(port, [])
        begin(shard)
        request = EndRequest("mill", PRODUCER, False, 2)
        shard.submit("mill", lambda state, env: transaction.end(state, request, env))
        acted: list[str] = []
        await transaction_shard(port, acted)
        assert acted == ["mill"]

    asyncio.run(main())


def test_who_waits_for_an_end_is_sent_away_when_the_shard_closes() -> None:
    async def main() -> None:
        shard = await transaction_shard(MemoryPort(), [])
        begin(shard)
        request = EndRequest("mill", PRODUCER, True, 2)
        answer = shard.submit("mill", lambda state, env: transaction.end(state, request, env))
        assert isinstance(answer, asyncio.Future)
        shard.close()
        with pytest.raises(KafkaError) as refused:
            await answer
        assert refused.value.code is KafkaCode.NOT_COORDINATOR

    asyncio.run(main())


def test_an_offset_is_pending_while_a_transaction_may_still_change_it() -> None:
    """As if all open transactions were looked through, which commits cannot afford."""
    chance = random.Random(7)
    for _ in range(200):
        state = ShardState()
        opened: dict[int, dict[int, int]] = {}
        for number in range(60):
            producer, partition = chance.randrange(4), chance.randrange(3)
            change = OffsetChange("g", "orders", partition, CommittedOffset(number))
            step = chance.randrange(4)
            if step < 2:
                state.apply_pending(change, producer)
                opened.setdefault(producer, {})[partition] = number
            elif step == 2:
                state.apply(change)
                for pending in opened.values():
                    pending.pop(partition, None)
            else:
                is_commit = chance.random() < 0.5
                state.end_transaction(producer, is_commit)
                ended = opened.pop(producer, {})
                for at, begun in ended.items() if is_commit else ():
                    for pending in opened.values():
                        if pending.get(at, begun) < begun:
                            del pending[at]
            for at in range(3):
                is_pending = any(at in pending for pending in opened.values())
                assert state.has_pending_offsets("g", "orders", at) == is_pending
