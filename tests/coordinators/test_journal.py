"""A shard over a log in memory: order of effects, waiting replies, failures, replay."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from millstream.coordinators.codecs.table import KeyValue
from millstream.coordinators.consumer.group import ConsumerGroup
from millstream.coordinators.consumer.heartbeat import HeartbeatRequest
from millstream.coordinators.decision import Decision, Env, ProducerEpoch, Ticket
from millstream.coordinators.groups import offsets, requests
from millstream.coordinators.groups.machine import GROUPS, GroupShard
from millstream.coordinators.groups.offsets import CommitRequest
from millstream.coordinators.groups.state import ShardState
from millstream.coordinators.journal import (
    BATCH_BYTES_MAX,
    PUT_OFF_MS,
    LoggedBatch,
    Shard,
    ShardStatus,
    split_batches,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.records.control import EndTransactionMarker
from millstream.wire.offset_commit import OffsetToCommit
from tests.coordinators.world import SETTINGS, durable, image_of


class MemoryPort:
    """A log that is synced when the test says so."""

    batch_bytes_max = 1_000_000

    def __init__(self) -> None:
        self.batches: list[list[KeyValue]] = []
        self.synced = 0
        self.is_synced_at_once = True
        self.failure: KafkaError | None = None
        self.has_lease = True
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def start_offset(self) -> int:
        return 0

    def append(self, records: Sequence[KeyValue], transaction: ProducerEpoch | None) -> int:
        if self.failure is not None:
            raise self.failure
        self.batches.append(list(records))
        if self.is_synced_at_once:
            self.synced = len(self.batches)
        return len(self.batches)

    def append_marker(self, marker: EndTransactionMarker, producer: ProducerEpoch) -> int | None:
        raise AssertionError("no transactions here")

    def wait_committed(self, next_offset: int) -> "asyncio.Future[None] | None":
        if next_offset <= self.synced:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((next_offset, future))
        return future

    def sync(self, error: Exception | None = None) -> None:
        self.synced = len(self.batches)
        for _, future in self._waiting:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        self._waiting.clear()

    def read(self, offset: int) -> tuple[list[LoggedBatch], int] | None:
        if offset >= len(self.batches):
            return None
        return [LoggedBatch(self.batches[offset])], offset + 1


def env(ticket: Ticket) -> Env:
    return Env(1000, 1000, image_of(orders=4), 1, SETTINGS, lambda: UUID(int=1), ticket)


async def loaded(port: MemoryPort) -> GroupShard:
    shard: GroupShard = Shard("offsets-0", GROUPS, port, env)
    await shard.load()
    return shard


def commit(shard: GroupShard, offset: int, group: str = "g") -> Any:
    request = CommitRequest(group, "", None, -1, [("orders", [OffsetToCommit(0, offset, -1, "")])])
    return shard.submit(group, lambda state, env: offsets.commit(state, request, env))


def fetch(shard: GroupShard, group: str = "g") -> Any:
    return shard.submit(
        group,
        lambda state, env: offsets.fetch(
            state, group, topics=None, member_id=None, member_epoch=-1, require_stable=False
        ),
    )


def committed(state: ShardState, group: str = "g") -> int | None:
    found = state.committed(group, "orders", 0)
    return None if found is None else found.offset


def test_a_reply_that_need_not_wait_is_there_at_once() -> None:
    async def main() -> None:
        shard = await loaded(MemoryPort())
        assert commit(shard, 5) == [[KafkaCode.NONE]]
        assert committed(shard.state) == 5

    asyncio.run(main())


def test_a_second_replay_does_not_take_back_what_was_decided_after_the_first() -> None:
    async def main() -> None:
        port = MemoryPort()
        shard: GroupShard = Shard("offsets-0", GROUPS, port, env)
        await shard.load()
        commit(shard, 5)
        port.batches.clear()
        await shard.load()
        assert committed(shard.state) == 5

    asyncio.run(main())


def test_replies_wait_until_what_they_show_is_safe_and_reads_do_too() -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await loaded(port)
        port.is_synced_at_once = False
        writing = commit(shard, 5)
        reading = fetch(shard)
        assert not writing.done()
        assert not reading.done()
        # Another group has nothing in the log that is not safe.
        assert fetch(shard, "other") == []
        port.sync()
        assert await writing == [[KafkaCode.NONE]]
        [topic] = await reading
        assert topic.partitions[0][1].offset == 5

    asyncio.run(main())


def test_refusals_wait_as_well() -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await loaded(port)
        port.is_synced_at_once = False
        commit(shard, 5)

        def refuse(state: ShardState, env: Env) -> Decision[None]:
            raise KafkaError(KafkaCode.NON_EMPTY_GROUP)

        refused = shard.submit("g", refuse)
        assert isinstance(refused, asyncio.Future)
        port.sync()
        with pytest.raises(KafkaError):
            await refused

    asyncio.run(main())


def test_before_the_replay_has_ended_clients_are_told_to_wait() -> None:
    async def main() -> None:
        shard: GroupShard = Shard("offsets-0", GROUPS, MemoryPort(), env)
        with pytest.raises(KafkaError) as refused:
            fetch(shard)
        assert refused.value.code is KafkaCode.COORDINATOR_LOAD_IN_PROGRESS

    asyncio.run(main())


def test_a_list_of_all_shards_is_not_made_without_one_that_loads() -> None:
    async def main() -> None:
        shard = await loaded(MemoryPort())
        assert shard.listed_state() is shard.state
        shard.drop(ShardStatus.LOADING, "an append failed")
        with pytest.raises(KafkaError) as refused:
            shard.listed_state()
        assert refused.value.code is KafkaCode.COORDINATOR_LOAD_IN_PROGRESS
        shard.drop(ShardStatus.CLOSED, "another node leads it")
        assert not shard.listed_state().groups

    asyncio.run(main())


def test_the_state_after_a_restart_is_the_replay() -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await loaded(port)
        for offset in range(5):
            commit(shard, offset, f"g{offset % 2}")
        again = await loaded(port)
        assert durable(again.state) == durable(shard.state)

    asyncio.run(main())


def test_a_failed_append_drops_the_state_and_sends_everyone_away() -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await loaded(port)
        failed: list[GroupShard] = []
        shard.on_failure(failed.append)
        commit(shard, 5)
        waiting: Any = shard.submit("g", lambda state, env: Decision())
        port.failure = KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, "full")
        with pytest.raises(KafkaError) as refused:
            commit(shard, 6)
        assert refused.value.code is KafkaCode.NOT_COORDINATOR
        with pytest.raises(KafkaError) as sent_away:
            await waiting
        assert sent_away.value.code is KafkaCode.NOT_COORDINATOR
        assert failed == [shard]
        assert shard.status is ShardStatus.LOADING
        port.failure = None
        await shard.load()
        assert committed(shard.state) == 5

    asyncio.run(main())


class Sizes:
    """Changes that are only sizes of records."""

    def encode(self, size_bytes: int) -> KeyValue:
        return b"", bytes(size_bytes)


@pytest.mark.parametrize("before", [0, 2], ids=["alone", "after other batches"])
def test_what_is_too_large_for_a_batch_is_refused_and_the_state_stays(before: int) -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await loaded(port)
        commit(shard, 5)
        written = len(port.batches)
        sizes: Any = [800_000] * before + [port.batch_bytes_max]
        if not before:
            port.failure = KafkaError(KafkaCode.MESSAGE_TOO_LARGE)
        machine = shard._machine
        shard._machine = Sizes()  # type: ignore[assignment]
        with pytest.raises(KafkaError) as refused:
            shard.submit("g", lambda state, env: Decision(1, sizes))
        shard._machine = machine
        assert refused.value.code is KafkaCode.INVALID_REQUEST
        assert shard.status is ShardStatus.ACTIVE
        assert len(port.batches) == written
        assert committed(shard.state) == 5

    asyncio.run(main())


def test_a_sync_that_fails_withholds_the_reply() -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await loaded(port)
        port.is_synced_at_once = False
        writing = commit(shard, 5)
        port.sync(OSError("broken"))
        with pytest.raises(KafkaError) as refused:
            await writing
        assert refused.value.code is KafkaCode.NOT_COORDINATOR
        with pytest.raises(KafkaError):
            fetch(shard)

    asyncio.run(main())


def test_a_decision_that_no_client_waits_for_is_read_again_when_it_was_not_committed() -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await loaded(port)
        acted: list[str] = []
        failed: list[GroupShard] = []
        shard.on_committed(lambda shard, name: acted.append(name))
        shard.on_failure(failed.append)
        port.is_synced_at_once = False
        change = offsets.commit(
            shard.state,
            CommitRequest("g", "", None, -1, [("orders", [OffsetToCommit(0, 5, -1, "")])]),
            env(Ticket()),
        )
        # As a deadline does it: too few replicas are in sync for a while.
        shard.submit_internal(
            "g", lambda state, env: Decision(records=change.records, when_committed=["g"])
        )
        port.sync(KafkaError(KafkaCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        await asyncio.sleep(0)
        assert (acted, failed) == ([], [shard])
        await shard.load()
        assert committed(shard.state) == 5

    asyncio.run(main())


def heartbeat(shard: GroupShard, member_id: str) -> Any:
    request = HeartbeatRequest(
        "g", member_id, 0, "", "/", rebalance_timeout_ms=600, topics=("orders",), owned={}
    )
    return shard.submit("g", lambda state, env: requests.consumer_heartbeat(state, request, env))


def members(shard: GroupShard) -> list[str]:
    group = shard.state.groups["g"]
    assert isinstance(group, ConsumerGroup)
    return sorted(group.members)


def test_a_deadline_that_cannot_be_acted_upon_for_want_of_replicas_is_put_off() -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await loaded(port)
        heartbeat(shard, "a")
        over_ms = 1000 + SETTINGS.consumer_session_timeout_ms
        port.failure = KafkaError(KafkaCode.NOT_ENOUGH_REPLICAS)
        shard.deadlines_are_over(over_ms)
        assert members(shard) == ["a"]
        port.failure = None
        shard.deadlines_are_over(over_ms + PUT_OFF_MS - 1)
        assert members(shard) == ["a"]
        shard.deadlines_are_over(over_ms + PUT_OFF_MS)
        assert members(shard) == []

    asyncio.run(main())


def test_requests_that_wait_for_a_decision_get_its_error_if_it_cannot_be_written() -> None:
    """The members that wait for the assignment of a classic group, for example."""

    async def main() -> None:
        port = MemoryPort()
        shard = await loaded(port)
        tickets: list[Ticket] = []

        def wait(state: ShardState, env: Env) -> Decision[str]:
            tickets.append(env.ticket)
            return Decision()

        change = offsets.commit(
            shard.state,
            CommitRequest("g", "", None, -1, [("orders", [OffsetToCommit(0, 5, -1, "")])]),
            env(Ticket()),
        )
        waiting: Any = shard.submit("g", wait)
        port.failure = KafkaError(KafkaCode.NOT_ENOUGH_REPLICAS)
        with pytest.raises(KafkaError) as refused:
            shard.submit(
                "g",
                lambda state, env: Decision(
                    reply="mine", records=change.records, replies=[(tickets[0], "yours")]
                ),
            )
        assert refused.value.code is KafkaCode.COORDINATOR_NOT_AVAILABLE
        assert waiting.done()
        with pytest.raises(KafkaError) as told:
            await waiting
        assert told.value.code is KafkaCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(main())


def test_a_silent_member_stays_while_the_lease_is_over() -> None:
    async def main() -> None:
        port = MemoryPort()
        shard = await loaded(port)
        heartbeat(shard, "a")
        over_ms = 1000 + SETTINGS.consumer_session_timeout_ms
        port.has_lease = False
        shard.deadlines_are_over(over_ms)
        assert members(shard) == ["a"]
        port.has_lease = True
        shard.deadlines_are_over(over_ms + PUT_OFF_MS)
        assert members(shard) == []

    asyncio.run(main())


def test_a_reply_to_someone_who_has_gone_is_dropped() -> None:
    async def main() -> None:
        shard = await loaded(MemoryPort())
        tickets: list[Ticket] = []

        def wait(state: ShardState, env: Env) -> Decision[str]:
            tickets.append(env.ticket)
            return Decision()

        waiting: Any = shard.submit("g", wait)
        waiting.cancel()
        shard.submit_internal("g", lambda state, env: Decision(replies=[(tickets[0], "late")]))
        assert waiting.cancelled()

    asyncio.run(main())


def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    async def main() -> None:
        port = MemoryPort()
        commit(await loaded(port), 5)
        port.batches.insert(0, [(b"\x00\x01broken", b"x")])
        shard = await loaded(port)
        assert committed(shard.state) == 5

    asyncio.run(main())


def test_only_a_huge_decision_is_split() -> None:
    small = [(b"k", b"v")] * 10
    assert list(split_batches(small)) == [small]
    large = [(b"k", bytes(BATCH_BYTES_MAX // 3))] * 7
    parts = list(split_batches(large))
    assert [len(part) for part in parts] == [2, 2, 2, 1]
