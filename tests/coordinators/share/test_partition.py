"""A share partition, case by case, and at random against one dictionary entry per record.

Covers coordinators/share/partition.py, coordinators/share/in_flight.py,
coordinators/share/acknowledging.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from millstream.coordinators.share.acknowledging import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Change,
)
from millstream.coordinators.share.acquiring import LogBatch, Wanted, acquire
from millstream.coordinators.share.partition import Acquired, Counts, ShareLimits, SharePartition
from millstream.coordinators.share.state_batches import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FINISHED,
    StateBatch,
    combine,
)
from millstream.errors import KafkaCode, KafkaError

LIMITS = ShareLimits(deliveries_max=5, in_flight_max=200, lock_ms=30_000)
NOW = 1_000
ONE, OTHER = "member-1", "member-2"


def partition_with(*sizes: int, start: int = 0) -> tuple[SharePartition, list[LogBatch]]:
    """A partition, and the log's batches: so many records each."""
    batches, first = [], start
    for size in sizes:
        batches.append(LogBatch(first, first + size - 1))
        first += size
    return SharePartition(LIMITS, start_offset=start), batches


def take(
    share: SharePartition,
    log: Sequence[LogBatch],
    member: str = ONE,
    *,
    records: int = 500,
    now_ms: int = NOW,
    is_exact: bool = False,
) -> list[Acquired]:
    offset = share.next_fetch_offset()
    return acquire(
        share,
        member,
        fetch_offset=offset,
        fetched=[batch for batch in log if batch.last >= offset],
        wanted=Wanted(records, 500, is_exact),
        now_ms=now_ms,
    )


def say(
    share: SharePartition, kind: int, first: int, last: int, member: str = ONE, now_ms: int = NOW
) -> list[StateBatch]:
    """Acknowledge, and store it."""
    change = share.acknowledge(member, [Acknowledgement(first, last, [kind])], now_ms=now_ms)
    batches = change.state_batches()
    share.stored(change)
    return batches


def code_of(share: SharePartition, *asked: Acknowledgement, member: str = ONE) -> KafkaCode:
    with pytest.raises(KafkaError) as error:
        share.acknowledge(member, asked, now_ms=NOW)
    return error.value.code


def test_accepted_records_are_forgotten_and_the_start_moves() -> None:
    share, log = partition_with(10, 10)
    assert take(share, log) == [Acquired(0, 19, 1)]
    assert say(share, ACCEPT, 0, 9) == [StateBatch(0, 9, ACKNOWLEDGED, 1)]
    assert (share.start_offset, share.next_offset, share.finished_count) == (10, 20, 0)
    say(share, ACCEPT, 10, 19)
    assert (share.start_offset, share.in_flight_count) == (20, 0)
    assert share.in_flight.batches == []


def test_nobody_else_gets_records_that_are_acquired() -> None:
    share, log = partition_with(10)
    take(share, log)
    assert share.next_fetch_offset() == 10
    assert take(share, log, OTHER) == []
    asked = Acknowledgement(0, 9, [ACCEPT])
    assert code_of(share, asked, member=OTHER) is KafkaCode.INVALID_RECORD_STATE


def test_released_records_are_delivered_again_with_a_higher_count() -> None:
    share, log = partition_with(10)
    take(share, log)
    assert say(share, RELEASE, 3, 4) == [StateBatch(3, 4, AVAILABLE, 1)]
    assert share.next_fetch_offset() == 3
    assert take(share, log, OTHER) == [Acquired(3, 4, 2)]


def test_rejected_records_and_gaps_are_archived() -> None:
    share, log = partition_with(4)
    take(share, log)
    asked = Acknowledgement(0, 3, [REJECT, GAP, ACCEPT, RELEASE])
    change = share.acknowledge(ONE, [asked], now_ms=NOW)
    assert change.state_batches() == [
        StateBatch(0, 1, ARCHIVED, 1),
        StateBatch(2, 2, ACKNOWLEDGED, 1),
        StateBatch(3, 3, AVAILABLE, 1),
    ]
    share.stored(change)
    assert (share.start_offset, share.next_fetch_offset()) == (3, 3)


def test_a_record_that_was_delivered_too_often_is_archived() -> None:
    share, log = partition_with(1)
    for count in range(1, 6):
        assert take(share, log) == [Acquired(0, 0, count)]
        [stored] = say(share, RELEASE, 0, 0)
        assert stored.state == (ARCHIVED if count == 5 else AVAILABLE)
    assert (share.start_offset, share.next_fetch_offset()) == (1, 1)


def test_a_lock_that_is_over_makes_the_records_available() -> None:
    share, log = partition_with(10)
    take(share, log)
    assert share.next_deadline_ms() == NOW + 30_000
    assert share.expire(NOW + 29_999) == []
    assert share.expire(NOW + 30_000) == [StateBatch(0, 9, AVAILABLE, 1)]
    assert share.next_deadline_ms() is None
    assert code_of(share, Acknowledgement(0, 9, [ACCEPT])) is KafkaCode.INVALID_RECORD_STATE
    assert take(share, log, OTHER) == [Acquired(0, 9, 2)]


def test_a_renewed_lock_lasts_longer() -> None:
    share, log = partition_with(10)
    take(share, log)
    assert say(share, RENEW, 0, 4, now_ms=NOW + 20_000) == []
    assert share.expire(NOW + 30_000) == [StateBatch(5, 9, AVAILABLE, 1)]
    assert share.expire(NOW + 50_000) == [StateBatch(0, 4, AVAILABLE, 1)]


def test_a_group_may_forbid_to_renew() -> None:
    share, log = partition_with(10)
    share.limits = ShareLimits(5, 200, 30_000, may_renew=False)
    take(share, log)
    assert code_of(share, Acknowledgement(0, 9, [RENEW])) is KafkaCode.INVALID_RECORD_STATE


def test_nothing_changes_if_one_acknowledgement_is_refused() -> None:
    share, log = partition_with(10, 10)
    take(share, log[:1])
    wrong = [Acknowledgement(0, 4, [ACCEPT]), Acknowledgement(5, 30, [ACCEPT])]
    assert code_of(share, *wrong) is KafkaCode.INVALID_REQUEST
    assert share.counts() == Counts(0, 10, 0)
    say(share, ACCEPT, 0, 9)
    assert share.start_offset == 10


def test_offsets_that_were_never_acquired_are_refused() -> None:
    share, log = partition_with(10)
    assert code_of(share, Acknowledgement(0, 9, [ACCEPT])) is KafkaCode.INVALID_RECORD_STATE
    take(share, log)
    assert code_of(share, Acknowledgement(12, 12, [ACCEPT])) is KafkaCode.INVALID_REQUEST


def test_gaps_between_stored_ranges_are_unknown_until_they_are_delivered() -> None:
    """Kafka answers INVALID_REQUEST for them, as for offsets that nobody has fetched yet."""
    stored = [StateBatch(2, 3, AVAILABLE, 1), StateBatch(6, 7, AVAILABLE, 1)]
    share = SharePartition(LIMITS, start_offset=0, stored=stored)
    for first, last, code in (
        (0, 0, KafkaCode.INVALID_RECORD_STATE),
        (4, 5, KafkaCode.INVALID_REQUEST),
        (3, 4, KafkaCode.INVALID_REQUEST),
        (3, 6, KafkaCode.INVALID_RECORD_STATE),
    ):
        with pytest.raises(KafkaError) as refused:
            share.acknowledge(ONE, [Acknowledgement(first, last, [ACCEPT])], now_ms=NOW)
        assert refused.value.code is code
    take(share, [LogBatch(0, 7)])
    share.acknowledge(ONE, [Acknowledgement(4, 5, [ACCEPT])], now_ms=NOW)


def test_a_gap_that_the_logs_start_has_reached_begins_there() -> None:
    share = SharePartition(LIMITS, start_offset=0, stored=[StateBatch(20, 20, ACKNOWLEDGED, 1)])
    # Of the log's batch 0-9, the first records are deleted.
    share.log_starts_at(5)
    assert take(share, [LogBatch(0, 9), LogBatch(10, 20)]) == [Acquired(5, 19, 1)]
    assert share.start_offset == 5
    share.acknowledge(ONE, [Acknowledgement(5, 19, [ACCEPT])], now_ms=NOW)
    assert share.counts().acquired == 0


def test_while_a_change_is_being_stored_nobody_gets_the_records() -> None:
    share, log = partition_with(10)
    take(share, log)
    change = share.acknowledge(ONE, [Acknowledgement(0, 9, [RELEASE])], now_ms=NOW)
    assert share.next_fetch_offset() == 10
    assert code_of(share, Acknowledgement(0, 9, [ACCEPT])) is KafkaCode.INVALID_RECORD_STATE
    assert share.expire(NOW + 60_000) == []
    share.stored(change)
    assert share.next_fetch_offset() == 0


@pytest.mark.parametrize("is_over", [False, True])
def test_a_change_that_could_not_be_stored_is_undone(is_over: bool) -> None:
    share, log = partition_with(10)
    take(share, log)
    change = share.acknowledge(ONE, [Acknowledgement(0, 9, [ACCEPT])], now_ms=NOW)
    assert share.finished_count == 10
    share.not_stored(change, now_ms=NOW + (30_000 if is_over else 1))
    assert share.counts() == (Counts(10, 0, 0) if is_over else Counts(0, 10, 0))
    assert share.next_fetch_offset() == (0 if is_over else 10)


def test_a_member_that_leaves_gives_back_its_records() -> None:
    share, log = partition_with(10, 10)
    take(share, log[:1])
    take(share, log, OTHER)
    say(share, ACCEPT, 2, 3)
    change = share.release(ONE)
    assert change.state_batches() == [
        StateBatch(0, 1, AVAILABLE, 1),
        StateBatch(4, 9, AVAILABLE, 1),
    ]
    share.stored(change)
    assert share.counts() == Counts(8, 10, 2)


def test_records_that_are_deleted_from_the_log_are_forgotten() -> None:
    share, log = partition_with(10, 10)
    take(share, log[:1])
    take(share, log, OTHER)
    say(share, ACCEPT, 2, 6)
    share.log_starts_at(5)
    assert (share.start_offset, share.finished_count) == (7, 0)
    # About what is gone, anything may be said.
    say(share, ACCEPT, 0, 4)
    say(share, ACCEPT, 0, 9)
    assert share.start_offset == 10
    share.log_starts_at(100)
    assert (share.start_offset, share.next_offset, share.in_flight.batches) == (100, 100, [])


def test_loading_delivers_gaps_again_in_the_sizes_of_the_logs_batches() -> None:
    _, log = partition_with(5, 5, 5, 5)
    stored = [StateBatch(10, 14, ACKNOWLEDGED, 1)]
    share = SharePartition(LIMITS, start_offset=0, stored=stored)
    assert (share.start_offset, share.next_offset, share.finished_count) == (0, 15, 5)
    assert take(share, log, records=3) == [Acquired(0, 4, 1)]
    assert take(share, log, records=1, is_exact=True) == [Acquired(5, 5, 1)]
    assert take(share, log) == [Acquired(6, 9, 1), Acquired(15, 19, 1)]
    assert say(share, ACCEPT, 0, 9) == [StateBatch(0, 9, ACKNOWLEDGED, 1)]
    assert share.start_offset == 15


def test_loading_moves_the_start_over_finished_records() -> None:
    stored = [StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(5, 9, ARCHIVED, 5)]
    share = SharePartition(LIMITS, start_offset=0, stored=stored)
    assert (share.start_offset, share.next_offset, share.finished_count) == (10, 10, 0)


def test_stored_ranges_that_overlap_are_refused() -> None:
    stored = [StateBatch(0, 4, AVAILABLE, 1), StateBatch(4, 9, AVAILABLE, 1)]
    with pytest.raises(ValueError, match="out of place"):
        SharePartition(LIMITS, start_offset=0, stored=stored)


def test_offsets_that_compaction_removed_do_not_block_the_start() -> None:
    share, _ = partition_with(10)
    take(share, [LogBatch(0, 9)])
    say(share, RELEASE, 0, 4)
    # Now the log has only 7 to 9, and 20 to 24.
    log = [LogBatch(7, 9), LogBatch(20, 24)]
    # Consumers acknowledge offsets inside that they do not find as gaps.
    assert take(share, log) == [Acquired(10, 24, 1)]
    say(share, ACCEPT, 5, 9)
    assert share.start_offset == 10


# -- at random --------------------------------------------------------------------------


@dataclass
class Record:
    state: int = AVAILABLE
    count: int = 0
    member: str = ""
    lock_until_ms: int = 0
    is_changing: bool = False


class Model(RuleBasedStateMachine):
    """The same in the simplest way. Changes are stored later, in any order, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.log: list[LogBatch] = []
        self.log_start = self.log_end = 0
        self.records: dict[int, Record] = {}
        self.changes: list[tuple[Change, dict[int, tuple[int, int, str]]]] = []
        self.stored: tuple[StateBatch, ...] = ()
        self.stored_start = 0

    @initialize(
        deliveries=st.integers(2, 6), in_flight=st.integers(5, 60), has_dead_letters=st.booleans()
    )
    def begin(self, deliveries: int, in_flight: int, has_dead_letters: bool) -> None:
        self.limits = ShareLimits(deliveries, in_flight, 1_000, has_dead_letters=has_dead_letters)
        self.dead_state = ARCHIVING if has_dead_letters else ARCHIVED
        self.share = SharePartition(self.limits, start_offset=0)

    @rule(
        sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
        hole=st.sampled_from([0, 0, 0, 3]),
    )
    def produce(self, sizes: list[int], hole: int) -> None:
        first = self.log_end + hole
        for size in sizes:
            self.log.append(LogBatch(first, first + size - 1))
            first += size
        self.log_end = first

    @rule(
        member=st.sampled_from([ONE, OTHER]),
        most=st.integers(1, 12),
        batch_size=st.integers(1, 20),
        is_exact=st.booleans(),
        read=st.integers(1, 8),
    )
    def acquire(self, member: str, most: int, batch_size: int, is_exact: bool, read: int) -> None:
        share = self.share
        offset = share.next_fetch_offset()
        fetched = [batch for batch in self.log if batch.last >= offset][:read]
        could = share.may_acquire()
        ranges = acquire(
            share,
            member,
            fetch_offset=offset,
            fetched=fetched,
            wanted=Wanted(most, batch_size, is_exact),
            now_ms=self.now_ms,
        )
        if not could:
            assert not ranges
        elif fetched and offset >= fetched[0].first:
            assert ranges, "something was available"
            assert ranges[0].first == offset
        total = 0
        for one in ranges:
            for number in range(one.first, one.last + 1):
                assert self.log_start <= number
                record = self.records.setdefault(number, Record())
                assert (record.state, record.is_changing) == (AVAILABLE, False), number
                record.state, record.member = ACQUIRED, member
                record.count += 1
                record.lock_until_ms = self.now_ms + self.limits.lock_ms
                assert record.count == one.delivery_count <= self.limits.deliveries_max
                total += 1
        if is_exact:
            assert total <= most
        # What was passed over and is not in the log is finished.
        for number in range(share.start_offset, share.next_offset):
            record = self.records.setdefault(number, Record())
            is_missing = offset <= number < (fetched[0].first if fetched else offset)
            if record.state == AVAILABLE and is_missing and not record.is_changing:
                record.state = ARCHIVED

    def _owned(self, member: str) -> list[int]:
        return [
            number
            for number, record in sorted(self.records.items())
            if record.state == ACQUIRED and record.member == member and not record.is_changing
        ]

    @rule(
        member=st.sampled_from([ONE, OTHER]),
        kind=st.sampled_from([ACCEPT, RELEASE, REJECT, RENEW]),
        data=st.data(),
    )
    def acknowledge(self, member: str, kind: int, data: Any) -> None:
        owned = self._owned(member)
        if not owned:
            return
        first = data.draw(st.sampled_from(owned))
        last = first
        size = data.draw(st.integers(1, 15))
        while last + 1 in owned and last + 1 - first < size:
            last += 1
        asked = Acknowledgement(first, last, [kind])
        change = self.share.acknowledge(member, [asked], now_ms=self.now_ms)
        if kind == RENEW:
            assert change.parts == []
            for number in range(first, last + 1):
                self.records[number].lock_until_ms = self.now_ms + self.limits.lock_ms
            return
        after = {ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: self.dead_state}[kind]
        self._begin(change, range(first, last + 1), after)

    @rule(member=st.sampled_from([ONE, OTHER]))
    def leave(self, member: str) -> None:
        change = self.share.release(member)
        self._begin(change, self._owned(member), AVAILABLE)

    def _begin(self, change: Change, numbers: Sequence[int], after: int) -> None:
        before = {}
        for number in numbers:
            record = self.records[number]
            before[number] = (record.state, record.lock_until_ms, record.member)
            record.state = self._limited(record, after)
            record.is_changing = True
        assert {
            number
            for batch in change.state_batches()
            for number in range(batch.first, batch.last + 1)
        } == set(numbers)
        self.changes.append((change, before))

    def _limited(self, record: Record, state: int) -> int:
        is_last = record.count >= self.limits.deliveries_max
        return self.dead_state if state == AVAILABLE and is_last else state

    @rule(most=st.integers(1, 20))
    def letters_are_written(self, most: int) -> None:
        dead = self.share.dead.next(most)
        numbers = [n for one in dead for n in range(one.first, one.last + 1)]
        assert len(numbers) == len(set(numbers)) <= most
        self._store(self.share.dead_letters_written(dead))
        for number in numbers:
            if number in self.records:
                assert self.records[number].state == ARCHIVING
                self.records[number].state = ARCHIVED

    @precondition(lambda self: self.changes)
    @rule(data=st.data(), is_stored=st.booleans())
    def end_change(self, data: Any, is_stored: bool) -> None:
        index = data.draw(st.integers(0, len(self.changes) - 1))
        change, before = self.changes.pop(index)
        if is_stored:
            self._store(change.state_batches())
            self.share.stored(change)
        else:
            self.share.not_stored(change, now_ms=self.now_ms)
        for number, (state, lock_until_ms, member) in before.items():
            record = self.records.get(number)
            if record is None or not record.is_changing:
                continue
            record.is_changing = False
            if is_stored:
                record.member = ""
            elif lock_until_ms <= self.now_ms:
                record.state, record.member = self._limited(record, AVAILABLE), ""
            else:
                record.state, record.member = state, member

    @rule(later_ms=st.integers(0, 700))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self._store(self.share.expire(self.now_ms))
        for record in self.records.values():
            is_over = record.state == ACQUIRED and record.lock_until_ms <= self.now_ms
            if is_over and not record.is_changing:
                record.state, record.member = self._limited(record, AVAILABLE), ""

    @rule(data=st.data())
    def records_are_deleted(self, data: Any) -> None:
        self.log_start = data.draw(st.integers(self.log_start, self.log_end))
        self.log = [batch for batch in self.log if batch.last >= self.log_start]
        self.share.log_starts_at(self.log_start)
        for number in [n for n in self.records if n < self.log_start]:
            del self.records[number]

    def _store(self, batches: Sequence[StateBatch]) -> None:
        self.stored_start = max(self.stored_start, self.share.start_offset)
        self.stored = combine(self.stored, batches, start_offset=self.stored_start)

    @rule()
    def leader_changes(self) -> None:
        """Only what is stored is known. Changes in progress are lost or not, here lost."""
        self.changes.clear()
        self.share = SharePartition(self.limits, start_offset=self.stored_start, stored=self.stored)
        # What is known now is what was stored, not what has happened.
        self.records = {n: Record() for n in range(self.stored_start, self.share.next_offset)}
        for batch in self.stored:
            for number in range(batch.first, batch.last + 1):
                self.records[number] = Record(batch.state, batch.delivery_count)
        self.share.log_starts_at(self.log_start)
        for number in [n for n in self.records if n < self.log_start]:
            del self.records[number]

    @invariant()
    def is_the_same(self) -> None:
        if not hasattr(self, "share"):
            return
        share = self.share
        found: dict[int, tuple[int, int, str]] = {}
        for batch in share.in_flight.batches:
            for number in range(max(batch.first, share.start_offset), batch.last + 1):
                whole, each = batch.whole, batch.each
                assert (whole is None) != (each is None)
                one = whole if whole is not None else (each or [])[number - batch.first]
                found[number] = (one.state, one.count, one.member_id)
        for number, (state, count, member) in found.items():
            record = self.records[number]
            shown = "" if record.is_changing else record.member
            assert (state, count, member) == (record.state, record.count, shown), number
        for number, record in self.records.items():
            if number not in found:
                is_done = record.state in FINISHED and not record.is_changing
                # Between two batches are offsets that the log never had.
                is_hole = record.count == 0
                assert is_done or is_hole, number
                assert number < share.start_offset or is_hole
        assert share.finished_count == sum(state in FINISHED for state, _, _ in found.values())
        # Every record that died waits for its letter, and no other.
        dying = {
            n for n, one in self.records.items() if one.state == ARCHIVING and not one.is_changing
        }
        dead = {n for one in share.dead.ranges for n in range(one.first, one.last + 1)}
        assert dying == {n for n in dead if n >= self.log_start}
        numbers = [n for n, one in found.items() if one[0] == AVAILABLE]
        free = [n for n in numbers if not self.records[n].is_changing]
        assert share.next_fetch_offset() == min(free, default=share.next_offset)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
