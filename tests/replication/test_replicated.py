"""A leader and a follower over real logs: what passes between them, and who waits for it."""

import asyncio
import errno
import logging
from collections.abc import Callable

import pytest

from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID, TopicPartition
from millstream.records.batch import BatchView
from millstream.records.rewriting import emptied
from millstream.replication.admission import Generation
from millstream.replication.follower_log import whole_batches
from millstream.replication.following import (
    BackOff,
    CheckpointFirst,
    CutBack,
    FetchAnswer,
    Ignore,
    StartOver,
)
from millstream.replication.leadership import Divergence
from millstream.replication.node import Node
from millstream.replication.partition import Partition
from millstream.replication.replicated import ReplicatedPartition
from millstream.replication.role import Role
from millstream.replication.waiting import FetchWait
from millstream.storage.values import FileRange, LogConfig
from millstream.wire.fetch import FetchPartition, FetchResult
from tests.replication.writing import produce as append
from tests.storage.batch_groups import GroupOf
from tests.storage.logs import NOW_MS, batch, make_log_config, open_log
from tests.storage.memory_files import MemoryFileSystem

REPLICAS = (1, 2, 3)
BROKER_EPOCH = 40


def role(
    leader_id: int = 1,
    *,
    epoch: int = 1,
    isr: tuple[int, ...] = (1, 2),
    min_isr: int = 2,
    version: int = 1,
    unclean_epoch: int = -1,
) -> Role:
    return Role(leader_id, epoch, REPLICAS, isr, min_isr, version, unclean_epoch)


def replica(
    broker_id: int,
    config: LogConfig | None = None,
    *,
    has_lease: bool = True,
    wait_synced: "Callable[[Partition, int], asyncio.Future[None] | None]" = lambda *_: None,
    may_cut: Callable[[TopicPartition, int], bool] = lambda where, offset: True,
    on_doubt: Callable[[TopicPartition, int], None] = lambda where, offset: None,
) -> ReplicatedPartition:
    return ReplicatedPartition(
        TopicPartition("t", 0),
        NO_TOPIC_ID,
        open_log(MemoryFileSystem(), config),
        high_watermark=0,
        node=Node(
            broker_id,
            generation=Generation(),
            has_lease=lambda: has_lease,
            wait_synced=wait_synced,
            on_disk_failure=lambda reason: None,
            may_cut=may_cut,
            was_cut=lambda where: None,
            on_doubt=on_doubt,
        ),
    )


def leading(broker_id: int = 1, **given: object) -> ReplicatedPartition:
    partition = replica(broker_id)
    partition.apply(role(broker_id, **given), now_ms=0)  # type: ignore[arg-type]
    return partition


def following(broker_id: int = 2, leader_id: int = 1, **given: object) -> ReplicatedPartition:
    partition = replica(broker_id)
    partition.apply(role(leader_id, **given), now_ms=0)  # type: ignore[arg-type]
    return partition


def produce(partition: ReplicatedPartition, count: int = 1) -> int:
    return append(partition, batch(count)).next_offset


def ask(
    leader: ReplicatedPartition,
    follower: ReplicatedPartition,
    *,
    broker_id: int = 2,
    max_bytes: int = 1 << 20,
    between: Callable[[], None] = lambda: None,
) -> object:
    """One fetch, there and back; `between` happens while the answer is on its way."""
    position = follower.next_fetch()
    assert position is not None
    result = FetchResult(0)
    wanted = FetchPartition(
        0, position.offset, max_bytes, position.leader_epoch, position.last_epoch, 0
    )
    try:
        leader.require_leader().answer(
            broker_id, BROKER_EPOCH, wanted, result, max_bytes=max_bytes, now_ms=0
        )
    except KafkaError as error:
        result.code = error.code
    records = b""
    if isinstance(result.records, FileRange):
        records = result.records.read()
    diverging = None
    if result.diverging_epoch >= 0:
        diverging = Divergence(result.diverging_epoch, result.diverging_offset)
    answer = FetchAnswer(
        KafkaCode(result.code),
        result.high_watermark,
        result.log_start_offset,
        len(records),
        diverging,
    )
    between()
    return follower.take_fetched(position, answer, memoryview(records))


def test_a_record_is_committed_when_the_follower_asks_for_the_next() -> None:
    leader, follower = leading(), following()
    produce(leader, 3)
    ask(leader, follower)
    assert follower.log.next_offset == 3
    assert leader.high_watermark == 0
    ask(leader, follower)
    assert leader.high_watermark == 3
    # The answer to that same fetch carried it.
    assert follower.high_watermark == 3


def test_logs_are_equal_byte_for_byte() -> None:
    leader, follower = leading(), following()
    for _ in range(5):
        produce(leader, 2)
    while follower.log.next_offset < leader.log.next_offset:
        ask(leader, follower, max_bytes=100)
    whole = leader.log.read_for_replica(0, max_bytes=1 << 20)
    copy = follower.log.read_for_replica(0, max_bytes=1 << 20)
    assert whole is not None
    assert copy is not None
    assert whole.read() == copy.read()
    assert leader.log.epochs.entries == follower.log.epochs.entries


def test_what_a_follower_gets_ends_with_a_whole_batch() -> None:
    leader = leading()
    sizes = [len(batch(count)) for count in (1, 2, 3, 4)]
    for count in (1, 2, 3, 4):
        produce(leader, count)
    for limit in range(sum(sizes) + 10):
        found = leader.log.read_for_replica(0, max_bytes=limit)
        assert found is not None
        whole = [sum(sizes[:count]) for count in range(1, 5)]
        assert found.length == max([end for end in whole if end <= limit] or whole[:1])


def test_appends_behind_one_that_is_not_committed_are_committed_with_it() -> None:
    leader, follower = leading(), following()
    for _ in range(3):
        produce(leader)
    ask(leader, follower)
    produce(leader)
    ask(leader, follower)
    assert leader.high_watermark == 3
    ask(leader, follower)
    assert leader.high_watermark == 4
    # The follower leaves: from now on each append is committed at once.
    leader.apply(role(isr=(1,), min_isr=1, version=2), now_ms=0)
    for end in (5, 6):
        assert produce(leader) == leader.high_watermark == end


def test_what_waits_is_committed_when_who_was_behind_is_in_sync_no_more() -> None:
    leader = leading(min_isr=1)
    for _ in range(3):
        produce(leader)
    assert leader.high_watermark == 0
    leader.apply(role(isr=(1,), min_isr=1, version=2), now_ms=0)
    assert leader.high_watermark == 3
    assert produce(leader) == leader.high_watermark == 4


def test_a_batch_that_the_limit_cut_is_not_taken() -> None:
    one = bytes(batch(1))
    assert whole_batches(memoryview(one + one[:-1])) == one
    assert whole_batches(memoryview(one[:40])) == b""
    assert whole_batches(memoryview(one + one)) == one + one


def test_acks_all_waits_for_the_high_watermark() -> None:
    async def scenario() -> None:
        leader, follower = leading(), following()
        end = produce(leader)
        wait = leader.require_leader().wait_committed(end)
        assert wait is not None
        ask(leader, follower)
        assert not wait.done()
        ask(leader, follower)
        assert wait.done()
        assert leader.require_leader().wait_committed(end) is None

    asyncio.run(scenario())


def test_whoever_waits_learns_that_the_leadership_is_over() -> None:
    async def scenario() -> None:
        leader = leading()
        wait = leader.require_leader().wait_committed(produce(leader))
        assert wait is not None
        leader.apply(role(2, epoch=2, version=2), now_ms=0)
        with pytest.raises(KafkaError) as error:
            wait.result()
        assert error.value.code is KafkaCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())


def test_whoever_waits_learns_that_too_few_are_left() -> None:
    async def scenario() -> None:
        leader = leading()
        wait = leader.require_leader().wait_committed(produce(leader))
        assert wait is not None
        leader.apply(role(isr=(1,), version=2), now_ms=0)
        with pytest.raises(KafkaError) as error:
            wait.result()
        assert error.value.code is KafkaCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("isr", "is_acks_all", "has_lease", "code"),
    [
        ((1, 2), True, True, None),
        ((1, 2), True, False, None),
        ((1, 2), False, True, None),
        ((1,), True, True, KafkaCode.NOT_ENOUGH_REPLICAS),
        ((1,), False, True, None),
        ((1, 2), False, False, KafkaCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_a_produce_needs(
    isr: tuple[int, ...], is_acks_all: bool, has_lease: bool, code: KafkaCode | None
) -> None:
    leader = replica(1, has_lease=has_lease)
    leader.apply(role(isr=isr), now_ms=0)
    if code is None:
        append(leader, batch(), is_acks_all=is_acks_all)
        return
    with pytest.raises(KafkaError) as refused:
        append(leader, batch(), is_acks_all=is_acks_all)
    assert refused.value.code is code
    assert leader.log.next_offset == 0


def test_only_a_leader_appends() -> None:
    for partition in (following(), replica(1)):
        with pytest.raises(KafkaError) as refused:
            produce(partition)
        assert refused.value.code is KafkaCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(4, KafkaCode.FENCED_LEADER_EPOCH), (6, KafkaCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_follower_of_another_epoch_is_refused(epoch: int, code: KafkaCode) -> None:
    leader, follower = leading(epoch=5), following(epoch=epoch)
    produce(leader)
    assert ask(leader, follower) == BackOff(code)
    assert leader.high_watermark == 0


def test_a_node_that_is_no_replica_is_refused() -> None:
    leader, stranger = leading(), following(9)
    assert ask(leader, stranger, broker_id=9) == BackOff(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_diverged_follower_is_cut_and_counts_only_afterwards() -> None:
    leader, follower = leading(), following()
    produce(leader, 2)
    ask(leader, follower)
    # The follower leads for a moment, and writes what nobody gets.
    follower.apply(role(2, epoch=2, version=2), now_ms=0)
    produce(follower, 3)
    leader.apply(role(1, epoch=3, version=3), now_ms=0)
    follower.apply(role(1, epoch=3, version=3), now_ms=0)
    produce(leader, 5)
    assert ask(leader, follower) == CutBack(2)
    assert leader.high_watermark == 0
    ask(leader, follower)
    ask(leader, follower)
    assert follower.log.next_offset == leader.log.next_offset == leader.high_watermark == 7
    assert follower.log.epochs.entries == leader.log.epochs.entries == [(1, 0), (3, 2)]


def cut_after_an_election(*, unclean_epoch: int) -> None:
    """A leader is killed with five records, of which the next leader has two; it returns."""
    killed, elected = leading(1), following(2)
    produce(killed, 2)
    ask(killed, elected)
    produce(killed, 3)
    elected.apply(role(2, epoch=2, version=2, unclean_epoch=unclean_epoch), now_ms=0)
    killed.apply(role(2, epoch=2, version=2, unclean_epoch=unclean_epoch), now_ms=0)
    produce(elected)
    assert ask(elected, killed, broker_id=1) == CutBack(2)


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


def test_a_cut_after_an_unclean_election_says_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cut_after_an_election(unclean_epoch=2)
    assert errors_in(caplog) == [
        "t-0: offsets 2 to 4, written from epoch=1 on, are lost after an unclean election"
        " (epoch=2): 0 of them are known to be committed, all may have been acknowledged"
    ]


@pytest.mark.parametrize("unclean_epoch", [-1, 0, 1], ids=["never", "long ago", "its own"])
def test_a_cut_after_a_clean_election_is_no_error(
    unclean_epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    cut_after_an_election(unclean_epoch=unclean_epoch)
    assert errors_in(caplog) == []


def test_a_cut_below_the_high_watermark_is_an_error_whatever_is_known_of_elections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    killed, elected = leading(1, isr=(1,), min_isr=1), following(2)
    produce(killed, 3)
    assert killed.high_watermark == 3
    elected.apply(role(2, epoch=2, version=2), now_ms=0)
    killed.apply(role(2, epoch=2, version=2), now_ms=0)
    produce(elected)
    assert ask(elected, killed, broker_id=1) == CutBack(0)
    (error,) = errors_in(caplog)
    assert "offsets 0 to 2" in error
    assert "3 of them are known to be committed" in error


def test_a_log_is_not_cut_below_what_the_disk_says_of_it() -> None:
    limits: list[int] = []
    follower = replica(
        2, may_cut=lambda where, offset: bool(limits) or limits.append(offset) or False
    )
    follower.apply(role(2, epoch=2, version=2), now_ms=0)
    produce(follower, 3)
    leader = leading(epoch=3, version=3)
    follower.apply(role(1, epoch=3, version=3), now_ms=0)
    produce(leader, 5)
    assert ask(leader, follower) == CheckpointFirst()
    assert (limits, follower.log.next_offset) == ([0], 3)
    assert ask(leader, follower) == CutBack(0)


def test_an_answer_of_an_older_leadership_changes_nothing() -> None:
    leader, follower = leading(), following()
    produce(leader, 2)
    step = ask(
        leader, follower, between=lambda: follower.apply(role(2, epoch=2, version=2), now_ms=0)
    )
    assert step == Ignore()
    assert follower.log.next_offset == 0


def test_a_follower_behind_the_leaders_log_start_starts_over() -> None:
    leader, follower = leading(isr=(1,), min_isr=1), following(isr=(1,), min_isr=1)
    for _ in range(4):
        produce(leader)
        leader.log.roll(NOW_MS)
    leader.log.delete_records_before(3)
    assert ask(leader, follower) == StartOver(3)
    ask(leader, follower)
    assert (follower.log.log_start_offset, follower.log.next_offset) == (3, 4)


def test_alone_with_min_isr_1_a_leader_commits_at_once() -> None:
    leader = leading(isr=(1,), min_isr=1)
    produce(leader, 2)
    assert leader.high_watermark == 2


def test_alone_the_answer_waits_for_the_disk() -> None:
    async def scenario() -> None:
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        leader = replica(1, wait_synced=lambda *_: synced)
        leader.apply(role(isr=(1, 2), min_isr=1), now_ms=0)
        wait = leader.require_leader().wait_committed(produce(leader))
        assert wait is not None
        leader.apply(role(isr=(1,), min_isr=1, version=2), now_ms=0)
        assert leader.high_watermark == 1
        await asyncio.sleep(0)
        assert not wait.done()
        synced.set_result(None)
        await asyncio.sleep(0)
        assert wait.done()

    asyncio.run(scenario())


def test_consumers_wait_for_the_commit_and_followers_for_the_append() -> None:
    async def scenario() -> None:
        leader, follower = leading(), following()
        consumer, replica_wait = FetchWait(1), FetchWait(1, is_replica=True)
        leader.fetch_waits.add(consumer)
        leader.fetch_waits.add(replica_wait)
        produce(leader)
        assert replica_wait.future.done()
        assert not consumer.future.done()
        ask(leader, follower)
        assert not consumer.future.done()
        ask(leader, follower)
        assert consumer.future.done()

    asyncio.run(scenario())


def test_a_new_leader_is_settled_when_its_first_offset_is_committed() -> None:
    old, new = leading(), following()
    produce(old, 4)
    ask(old, new)
    new.apply(role(2, epoch=2, isr=(2, 3), version=2), now_ms=0)
    assert new.high_watermark == 0
    assert not new.is_settled
    third = following(3, 2, epoch=2, isr=(2, 3), version=2)
    ask(new, third, broker_id=3)
    ask(new, third, broker_id=3)
    assert new.high_watermark == 4
    assert new.is_settled


def test_where_every_replica_syncs_first_the_disk_counts() -> None:
    config = make_log_config(flush_messages=1)
    leader = replica(1, config)
    leader.apply(role(isr=(1,), min_isr=1), now_ms=0)
    produce(leader)
    assert leader.high_watermark == 0
    ticket = leader.log.begin_sync()
    assert ticket is not None
    leader.log.unsynced.end_sync(ticket)
    leader.advance()
    assert leader.high_watermark == 1


def test_a_fenced_node_leads_and_follows_nothing() -> None:
    leader, follower = leading(), following()
    leader.stand_by()
    follower.stand_by()
    assert not leader.is_leader
    assert follower.next_fetch() is None
    # And takes its role again when it is told.
    follower.apply(role(), now_ms=0)
    assert follower.next_fetch() is not None


def test_batches_without_records_are_replicated_too() -> None:
    """Compaction leaves them for the producers' sake; a consumer's read passes over them."""
    leader, follower = leading(), following()
    empty = emptied(BatchView(memoryview(batch(1))))
    leader.log.append_unchecked(BatchView(memoryview(empty)), leader_epoch=1, now_ms=NOW_MS)
    produce(leader)
    ask(leader, follower)
    assert follower.log.segments.size_bytes == leader.log.segments.size_bytes


def test_a_follower_does_not_take_records_whose_checksum_is_wrong() -> None:
    follower = replica(2)
    follower.apply(role(1), now_ms=0)
    asked = follower.next_fetch()
    assert asked is not None
    records = batch(3)
    records[-1] ^= 0x40
    with pytest.raises(KafkaError) as refused:
        follower.take_fetched(asked, FetchAnswer(KafkaCode.NONE, 3, 0), memoryview(records))
    assert refused.value.code is KafkaCode.CORRUPT_MESSAGE
    assert follower.log.next_offset == 0


def test_a_follower_that_cannot_read_its_producers_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(disk: MemoryFileSystem, descriptor: int, length: int, position: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    leader, follower = leading(), following()
    for sequence in range(3):
        append(leader, batch(1, producer_id=7, sequence=sequence))
    ask(leader, follower)
    follower.log.truncate_to(2)
    asked, records = follower.next_fetch(), leader.log.read_for_replica(2, max_bytes=1)
    assert asked is not None
    assert records is not None
    data, answer = memoryview(bytearray(records.read())), FetchAnswer(KafkaCode.NONE, 2, 0)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "read_at", unreadable)
        with pytest.raises(KafkaError) as refused:
            follower.take_fetched(asked, answer, data)
    assert refused.value.code is KafkaCode.KAFKA_STORAGE_ERROR
    assert follower.log.next_offset == 2
    follower.take_fetched(asked, answer, data)
    assert follower.log.next_offset == 3
    assert follower.log.segments.size_bytes == leader.log.segments.size_bytes


def test_a_damaged_replica_tells_no_leader_how_far_it_is() -> None:
    follower = replica(2)
    follower.apply(role(1), now_ms=0)
    follower.is_damaged = True
    assert follower.next_fetch() is None


def test_batches_written_together_are_committed_when_the_follower_has_them() -> None:
    leader, follower = leading(), following()
    produce(leader)
    ask(leader, follower)
    ask(leader, follower)
    appended = append(leader, GroupOf(batch(2), batch(3)))
    assert (appended.base_offset, appended.next_offset) == (1, 6)
    assert leader.high_watermark == 1
    ask(leader, follower)
    ask(leader, follower)
    assert (leader.high_watermark, follower.log.next_offset) == (6, 6)


def test_a_leader_alone_commits_batches_written_together_at_once() -> None:
    leader = leading(isr=(1,), min_isr=1)
    produce(leader)
    append(leader, GroupOf(batch(2)))
    assert leader.high_watermark == 3


def test_what_is_committed_is_acknowledged_where_transactions_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether one is open matters to consumers that wait, and to nobody else."""
    doubts: list[int] = []

    async def scenario() -> None:
        leader = replica(1, on_doubt=lambda _, offset: doubts.append(offset))
        leader.apply(role(1), now_ms=0)
        follower, wait = following(), FetchWait(1)
        leader.fetch_waits.add(wait)
        produce(leader, 3)
        acknowledged = leader.require_leader().wait_committed(3)
        assert acknowledged is not None

        def fail(*_: object, **__: object) -> None:
            raise OSError(errno.EIO, "cannot read")

        # As after a start, with a damaged file.
        leader.log.producers._states = None
        monkeypatch.setattr(leader.log.producers._snapshots, "load", fail)
        for _ in range(2):
            ask(leader, follower)
        assert leader.high_watermark == 3
        assert acknowledged.done()
        assert wait.future.done(), "it finds out by itself"

    asyncio.run(scenario())
    assert doubts == [2], "the end of the log is checked"
