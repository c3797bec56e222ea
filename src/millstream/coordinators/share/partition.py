"""A share partition: who gets which record of a partition, and what became of it.

    available --acquire--> acquired --accept--> acknowledged
        ^                     |  \\--reject, or too many deliveries--> archiving --> archived
        `---------------------'
           release, or lock over: if deliveries are left

A record that is not due yet is delayed: in flight, but not available (see `holding_back`).
A record is archiving while its dead letter has to be written; without dead letters it is
archived at once.

Records below `start_offset` are finished. Those from `next_offset` on were never delivered.
Between the two they are in flight, at most `limits.in_flight_max`.

A change that a client asks for (`acknowledge`, `release`) has two steps, because it is
answered only when it is stored: it is begun here, then it is `stored` or `not_stored`. In
between nobody else gets the records. A lock that is over (`expire`) needs no answer: it
counts at once.

Knows no log, no loop and no clock. Time is the node's uptime in milliseconds.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.coordinators.share.acknowledging import (
    REJECT,
    RENEW,
    STATE_AFTER,
    Acknowledgement,
    Change,
    check_owner,
)
from millstream.coordinators.share.dead_records import DeadRange, DeadRecords
from millstream.coordinators.share.delays import Delays
from millstream.coordinators.share.in_flight import Delivery, InFlight, InFlightBatch, counted
from millstream.coordinators.share.state_batches import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FINISHED,
    StateBatch,
    joined,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """The group's options, or else the node's."""

    deliveries_max: int  # share.delivery.count.limit
    in_flight_max: int  # share.partition.max.record.locks
    lock_ms: int  # share.record.lock.duration.ms
    may_renew: bool = True  # share.renew.acknowledge.enable
    has_dead_letters: bool = False  # errors.deadletterqueue.topic.name is set

    @property
    def isolating_from(self) -> int:
        """Records that were delivered so often are delivered in ever smaller batches: if one of
        them makes consumers fail, it must not take the others with it."""
        return max(2, -(-self.deliveries_max // 2))


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


class Counts(NamedTuple):
    """How many records in flight are in which state."""

    available: int
    acquired: int
    finished: int
    archiving: int = 0
    delayed: int = 0


class SharePartition:
    def __init__(
        self, limits: ShareLimits, *, start_offset: int, stored: Sequence[StateBatch] = ()
    ) -> None:
        """`stored` is what is known of records from `start_offset` on. Offsets between the stored
        ranges were in flight when the last leader stopped, and are delivered again."""
        self.limits = limits
        self.start_offset = start_offset
        self.next_offset = start_offset
        self.in_flight = InFlight()
        # Finished records in flight; those before them keep the start from moving.
        self.finished_count = 0
        # False if no record in flight is available: then no one has to search.
        self._may_have_available = False
        self.delays = Delays(self.in_flight)
        # `dead_letters_written` takes them out.
        self.dead = DeadRecords()
        self._load(stored)

    def _load(self, stored: Sequence[StateBatch]) -> None:
        for batch in stored:
            if batch.first < self.next_offset or batch.last < batch.first:
                raise ValueError(f"stored range {batch} is out of place at {self.next_offset}")
            if batch.first > self.next_offset:
                self._add(self.next_offset, batch.first - 1, Delivery(AVAILABLE, 0))
            self._add(batch.first, batch.last, Delivery(batch.state, batch.delivery_count))
            if batch.state in FINISHED:
                self.finished_count += batch.last - batch.first + 1
            elif batch.state == ARCHIVING:
                # Why is not stored, as in Kafka: it is guessed from the count.
                is_rejected = batch.delivery_count < self.limits.deliveries_max
                count = batch.delivery_count
                self.dead.add(batch.first, batch.last, count, is_rejected=is_rejected)
        self._may_have_available = bool(stored)
        self._move_start()

    def _add(self, first: int, last: int, delivery: Delivery) -> InFlightBatch:
        batch = InFlightBatch(first, last, delivery)
        self.in_flight.add(batch)
        self.next_offset = max(self.next_offset, last + 1)
        return batch

    # -- what to fetch ------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """Delayed records do not count, nor what was finished since the first of them."""
        return self.delays.others_before(self.next_offset, start=self.start_offset)

    def next_fetch_offset(self) -> int:
        """The first record that is available, or else the first that was never delivered."""
        if self._may_have_available:
            for batch in self.in_flight.batches:
                if batch.whole is not None:
                    if batch.whole.is_available:
                        return max(batch.first, self.start_offset)
                    continue
                for offset, one in batch.deliveries(self.start_offset, batch.last):
                    if one.is_available:
                        return offset
            self._may_have_available = False
        return self.next_offset

    def may_acquire(self) -> bool:
        """Is there room for records in flight, or one of them available?"""
        is_room = self.in_flight_count < self.limits.in_flight_max
        if is_room and self.delays.has_room:
            return True
        return self.next_fetch_offset() < self.next_offset

    def last_offset_wanted(self, fetch_offset: int, max_records: int) -> int:
        """How far a fetch has to read to find so many records that can be acquired."""
        left = min(max_records, self.limits.in_flight_max)
        for batch in self.in_flight.overlapping(fetch_offset, self.next_offset - 1):
            left -= batch.available_count(fetch_offset)
            if left <= 0:
                return batch.last
        return max(self.next_offset, fetch_offset) + left - 1

    def counts(self) -> Counts:
        available = acquired = archiving = 0
        for batch in self.in_flight.batches:
            if batch.whole is not None:
                size = batch.last - max(batch.first, self.start_offset) + 1
                available += size if batch.whole.state == AVAILABLE else 0
                acquired += size if batch.whole.state == ACQUIRED else 0
                archiving += size if batch.whole.state == ARCHIVING else 0
                continue
            for _, one in batch.deliveries(self.start_offset, batch.last):
                available += one.state == AVAILABLE
                acquired += one.state == ACQUIRED
                archiving += one.state == ARCHIVING
        return Counts(available, acquired, self.finished_count, archiving, self.delays.count)

    # -- acquiring: see `acquiring` -----------------------------------------------------

    def add_acquired(self, first: int, last: int, delivery: Delivery) -> InFlightBatch:
        """Records that were never delivered. If nothing else is in flight, the start moves there:
        the offsets before do not exist."""
        is_first = not self.in_flight.batches or first < self.in_flight.batches[0].first
        batch = self._add(first, last, delivery)
        if is_first:
            self.start_offset = first
        return batch

    def note_available(self) -> None:
        self._may_have_available = True

    def archive_missing(self, first: int, end: int) -> None:
        """The log has no record in [first, end) any more: compaction removed them."""
        for batch in self.in_flight.overlapping(first, end - 1):
            self._archive(batch, first, end - 1, AVAILABLE)

    def add_available(self, first: int, last: int) -> None:
        """Records that were never delivered, and that nobody gets yet."""
        self._add(first, last, Delivery(AVAILABLE, 0))
        self._may_have_available = True

    def postpone(self, first: int, last: int, *, until_ms: int) -> None:
        """Records that are not due yet."""
        self.delays.postpone(first, last, start=self.start_offset, until_ms=until_ms)

    def archive_available(self, first: int, last: int) -> list[StateBatch]:
        """Records that have expired; what should be stored of it."""
        archived: list[StateBatch] = []
        for batch in self.in_flight.overlapping(first, last):
            whole = batch.whole
            if whole is None:
                archived += [
                    StateBatch(offset, offset, ARCHIVED, one.count)
                    for offset, one in batch.deliveries(max(first, self.start_offset), last)
                    if one.is_available
                ]
            elif whole.is_available:
                begin, end = max(first, batch.first, self.start_offset), min(last, batch.last)
                archived.append(StateBatch(begin, end, ARCHIVED, whole.count))
            self._archive(batch, first, last, AVAILABLE)
        return joined(archived)

    def forget_finished(self) -> None:
        self._move_start()

    def archive_acquired(self, first: int, last: int) -> None:
        """The records are of a transaction that was aborted: nobody gets them."""
        for batch in self.in_flight.overlapping(first, last):
            self._archive(batch, first, last, ACQUIRED)
        self._move_start()

    def _archive(self, batch: InFlightBatch, first: int, last: int, state: int) -> None:
        if batch.whole is not None:
            if batch.whole.state != state or batch.whole.before is not None:
                return
            if first <= batch.first and batch.last <= last:
                batch.whole.settle(ARCHIVED)
                self.finished_count += self._counted(batch.first, batch.last)
                return
            if batch.is_undelivered:
                self._archive_part(batch, first, last)
                return
        batch.split()
        for offset, one in batch.deliveries(first, last):
            if one.state == state and one.before is None:
                one.settle(ARCHIVED)
                self.finished_count += offset >= self.start_offset

    def _archive_part(self, batch: InFlightBatch, first: int, last: int) -> None:
        """Of a gap, without a delivery for each record."""
        part = self.in_flight.cut_out(batch, first, last)
        assert part.whole is not None
        part.whole.settle(ARCHIVED)
        self.finished_count += self._counted(part.first, part.last)

    # -- acknowledging ------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, acknowledgements: Iterable[Acknowledgement], *, now_ms: int
    ) -> Change:
        """Begin what a member says about its records.

        Raises KafkaError if it may not say it about one of them; then nothing has changed, except
        that locks may be renewed. INVALID_RECORD_STATE: the member has not acquired the record, or
        no longer (`acknowledging.check_owner`). For offsets that are not in flight see `_named`.
        """
        change = Change()
        try:
            for one in acknowledgements:
                self._acknowledge(change, member_id, one, now_ms)
        except KafkaError:
            self.not_stored(change, now_ms=now_ms)
            raise
        return change

    def _acknowledge(
        self, change: Change, member_id: str, asked: Acknowledgement, now_ms: int
    ) -> None:
        if asked.last < self.start_offset:
            # They were deleted meanwhile, or the group was reset.
            return
        for batch in self._named(asked):
            if batch.last < self.start_offset:
                continue
            whole = batch.whole
            if whole is not None:
                check_owner(whole, member_id, "batch")
                is_all = asked.first <= batch.first and batch.last <= asked.last
                if is_all and len(asked.types) == 1 and batch.first >= self.start_offset:
                    kind = asked.types[0]
                    self._begin(change, whole, batch.first, batch.last, kind, now_ms)
                    continue
                batch.split()
            first = max(asked.first, self.start_offset)
            for offset, one in batch.deliveries(first, asked.last):
                check_owner(one, member_id, "offset")
                self._begin(change, one, offset, offset, asked.type_of(offset), now_ms)

    def _named(self, asked: Acknowledgement) -> list[InFlightBatch]:
        """What is in flight of these offsets. Raises KafkaError if that is not all of them:
        INVALID_RECORD_STATE below the first delivered one, INVALID_REQUEST above the last."""
        # Kafka knows nothing of a gap between stored ranges before it is delivered again.
        delivered = (batch for batch in self.in_flight.batches if not batch.is_undelivered)
        first = next(delivered, None)
        if first is None or self.start_offset <= asked.first < first.first:
            raise KafkaError(
                KafkaCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        overlapping = self.in_flight.overlapping(max(asked.first, self.start_offset), asked.last)
        found = [batch for batch in overlapping if not batch.is_undelivered]
        if not found or found[-1].last < asked.last:
            which = "last" if found else "first"
            raise KafkaError(
                KafkaCode.INVALID_REQUEST,
                f"Batch record not found. The {which} offset in request is past acquired records.",
            )
        return found

    def _begin(
        self, change: Change, one: Delivery, first: int, last: int, kind: int, now_ms: int
    ) -> None:
        if kind == RENEW:
            if not self.limits.may_renew:
                raise KafkaError(
                    KafkaCode.INVALID_RECORD_STATE,
                    "Renewing acquisition locks is not enabled for the group.",
                )
            one.lock_until_ms = now_ms + self.limits.lock_ms
            return
        state = STATE_AFTER[kind]
        if kind == REJECT and self.limits.has_dead_letters:
            state = ARCHIVING
            change.rejected.add(first)
        self._change(change, one, first, last, state)

    def _change(self, change: Change, one: Delivery, first: int, last: int, state: int) -> None:
        one.before = (one.state, one.member_id)
        one.state = self._without_excess(one, state)
        one.member_id = ""
        change.parts.append((one, first, last))
        if one.state in FINISHED:
            self.finished_count += self._counted(first, last)

    def _without_excess(self, one: Delivery, state: int) -> int:
        """A record that was delivered often enough is not delivered again."""
        if state != AVAILABLE or one.count < self.limits.deliveries_max:
            return state
        return ARCHIVING if self.limits.has_dead_letters else ARCHIVED

    def _counted(self, first: int, last: int) -> int:
        return counted(first, last, self.start_offset)

    def release(self, member_id: str) -> Change:
        """Begin to give back what a member has acquired: it has left."""
        change = Change()
        for batch in self.in_flight.batches:
            whole = batch.whole
            if whole is not None:
                if not whole.is_locked or whole.member_id != member_id:
                    continue
                if batch.first >= self.start_offset:
                    self._change(change, whole, batch.first, batch.last, AVAILABLE)
                    continue
                batch.split()
            for offset, one in batch.deliveries(self.start_offset, batch.last):
                if one.is_locked and one.member_id == member_id:
                    self._change(change, one, offset, offset, AVAILABLE)
        return change

    def stored(self, change: Change) -> None:
        for one, first, last in change.parts:
            # Without `before` it was archived meanwhile, and stays that.
            if one.before is not None:
                one.settle(one.state)
                self._may_have_available |= one.state == AVAILABLE
                if one.state == ARCHIVING:
                    is_rejected = first in change.rejected
                    self.dead.add(first, last, one.count, is_rejected=is_rejected)
        self._move_start()

    def not_stored(self, change: Change, *, now_ms: int) -> None:
        """Go back to before; to where the end of the lock would have led, if it ended meanwhile."""
        for one, first, last in change.parts:
            if one.before is None:
                continue
            if one.state in FINISHED:
                self.finished_count -= self._counted(first, last)
            if one.lock_until_ms <= now_ms:
                self._settle_ended(one, first, last)
            else:
                one.state, one.member_id = one.before
                one.before = None
            if one.state in FINISHED:
                self.finished_count += self._counted(first, last)
            self._may_have_available |= one.state == AVAILABLE

    # -- time ---------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When the first lock is over, or the first delayed record due; None without any."""
        ends = [one.lock_until_ms for one in self._timed()]
        return min(ends, default=None)

    def _timed(self) -> Iterable[Delivery]:
        for batch in self.in_flight.batches:
            for one in (batch.whole,) if batch.whole is not None else batch.each or ():
                if one.is_locked or one.is_delayed:
                    yield one

    def end_delays(self, now_ms: int) -> bool:
        """Make records available that are due; is there any?"""
        has_ended = self.delays.end(now_ms, start=self.start_offset)
        self._may_have_available |= has_ended
        return has_ended

    def expire(self, now_ms: int) -> list[StateBatch]:
        """End the locks that are over. They count at once; what is returned should be stored."""
        ended: list[StateBatch] = []
        for batch in self.in_flight.batches:
            whole = batch.whole
            if whole is not None:
                if not whole.is_locked or whole.lock_until_ms > now_ms:
                    continue
                if batch.first >= self.start_offset:
                    self._end_lock(ended, whole, batch.first, batch.last)
                    continue
                batch.split()
            for offset, one in batch.deliveries(self.start_offset, batch.last):
                if one.is_locked and one.lock_until_ms <= now_ms:
                    self._end_lock(ended, one, offset, offset)
        if ended:
            self._move_start()
        return joined(ended)

    def _end_lock(self, ended: list[StateBatch], one: Delivery, first: int, last: int) -> None:
        self._settle_ended(one, first, last)
        if one.state in FINISHED:
            self.finished_count += self._counted(first, last)
        else:
            self._may_have_available = True
        ended.append(StateBatch(first, last, one.state, one.count))

    def _settle_ended(self, one: Delivery, first: int, last: int) -> None:
        """The lock is over."""
        one.settle(self._without_excess(one, AVAILABLE))
        if one.state == ARCHIVING:
            self.dead.add(first, last, one.count, is_rejected=False)

    # -- dead letters -------------------------------------------------------------------

    def dead_letters_written(self, written: Sequence[DeadRange]) -> list[StateBatch]:
        """The first of `dead` are safe: archive their records. What is returned must be stored;
        if that fails, the letters are written again after the next load."""
        self.dead.written(written)
        for dead in written:
            for batch in self.in_flight.overlapping(dead.first, dead.last):
                self._archive(batch, dead.first, dead.last, ARCHIVING)
        self._move_start()
        return joined(
            StateBatch(dead.first, dead.last, ARCHIVED, dead.delivery_count) for dead in written
        )

    # -- the start ----------------------------------------------------------------------

    def log_starts_at(self, offset: int) -> None:
        """Records below were deleted."""
        if offset <= self.start_offset:
            return
        for batch in self.in_flight.overlapping(self.start_offset, offset - 1):
            self._forget_before(batch, offset)
        self.in_flight.drop_before(offset)
        self.start_offset = offset
        self.next_offset = max(self.next_offset, offset)
        self._may_have_available = True
        self._move_start()

    def _forget_before(self, batch: InFlightBatch, offset: int) -> None:
        last = min(batch.last, offset - 1)
        self.delays.forget(batch, last, start=self.start_offset)
        if batch.whole is not None:
            if batch.whole.state in FINISHED:
                self.finished_count -= self._counted(batch.first, last)
            return
        finished = (one.state in FINISHED for _, one in batch.deliveries(self.start_offset, last))
        self.finished_count -= sum(finished)

    def _move_start(self) -> None:
        """Forget finished records at the start."""
        batches = self.in_flight.batches
        passed = 0
        for batch in batches:
            first_open = self._first_open(batch)
            if first_open is not None:
                if passed or first_open > batch.first:
                    self.start_offset = max(self.start_offset, first_open)
                break
            passed += 1
        else:
            self.start_offset = self.next_offset
        del batches[:passed]
        self.delays.join_finished()

    def _first_open(self, batch: InFlightBatch) -> int | None:
        """The first offset that is not finished; the finished ones before are counted out."""
        if batch.whole is not None:
            if not batch.whole.is_finished:
                return batch.first
            self.finished_count -= self._counted(batch.first, batch.last)
            return None
        for offset, one in batch.deliveries(self.start_offset, batch.last):
            if not one.is_finished:
                return offset
            self.finished_count -= 1
        return None
