"""A replica's log in the simulation: real batches in memory, and what a power cut keeps of them.

It offers what the real log offers to partitions, with the real cache of epochs and the real state
of producers.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace

from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicPartition
from millstream.records.batch import BatchView
from millstream.records.control import EndTransactionMarker, build_end_marker
from millstream.storage.epochs import EpochCache
from millstream.storage.producers import ProducerStates
from millstream.storage.values import Appended

_NEVER = 2**63 - 1


@dataclass
class Range:
    """What a read found."""

    data: bytes

    def read(self) -> bytes:
        return self.data


@dataclass
class Producers:
    states: ProducerStates = field(default_factory=ProducerStates)


class SimulatedLog:
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        # Each with its offsets and its epoch; `ends` are the offsets after each.
        self.batches: list[bytes] = []
        self.ends: list[int] = []
        self.synced = 0
        self.log_start_offset = 0
        self.high_watermark = 0
        self.is_sole_replica = True
        self.epochs = EpochCache([], lambda: self.next_offset)
        self.producers = Producers()
        self.config = SimpleNamespace(
            flush_messages=_NEVER, flush_ms=_NEVER, max_message_bytes=1 << 20
        )

    @property
    def next_offset(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def synced_offset(self) -> int:
        return self.ends[self.synced - 1] if self.synced else 0

    @property
    def last_stable_offset(self) -> int:
        first_open = self.producers.states.first_open_offset()
        if first_open is None:
            return self.high_watermark
        return max(min(first_open, self.high_watermark), self.log_start_offset)

    # -- appending --------------------------------------------------------------------

    def append(
        self, batch: BatchView, rules: object, *, leader_epoch: int, now_ms: int
    ) -> Appended:
        known = self.producers.states.check(batch)
        if known is not None:
            return Appended(known.base_offset, known.last_offset + 1, -1, 0, True)
        return self.append_unchecked(batch, leader_epoch=leader_epoch, now_ms=now_ms)

    def append_unchecked(self, batch: BatchView, *, leader_epoch: int, now_ms: int) -> Appended:
        base_offset = self.next_offset
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        self._add(bytes(batch.stamped(base_offset, leader_epoch)))
        return Appended(base_offset, self.next_offset, -1, 0, False)

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        now_ms: int,
    ) -> Appended | None:
        if not self.producers.states.check_marker(marker, producer_id, producer_epoch):
            return None
        data = build_end_marker(
            marker,
            base_offset=0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=now_ms,
        )
        batch = BatchView(memoryview(data))
        return self.append_unchecked(batch, leader_epoch=leader_epoch, now_ms=now_ms)

    def append_as_follower(self, data: memoryview, now_ms: int | None = None) -> None:
        while data:
            batch = BatchView(data)
            assert batch.base_offset == self.next_offset, "a follower's offsets have a gap"
            assert batch.partition_leader_epoch >= self.epochs.latest, "epochs go back"
            self.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            self._add(bytes(data[: batch.size_bytes]))
            data = data[batch.size_bytes :]

    def _add(self, data: bytes) -> None:
        batch = BatchView(memoryview(data))
        self.batches.append(data)
        self.ends.append(batch.next_offset)
        self.producers.states.update(batch)

    # -- reading ----------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, upto_offset: int, at_least_one: bool
    ) -> Range | None:
        """One batch at a time: a replay is interrupted as often as can be."""
        if offset >= min(upto_offset, self.next_offset):
            return None
        return Range(self.batches[self._number_of(offset)])

    def read_for_replica(self, offset: int, *, max_bytes: int) -> Range | None:
        if offset > self.next_offset:
            raise KafkaError(KafkaCode.OFFSET_OUT_OF_RANGE)
        if offset == self.next_offset:
            return None
        first = self._number_of(offset)
        return Range(b"".join(self.batches[first : first + max(max_bytes, 1)]))

    def _number_of(self, offset: int) -> int:
        return bisect_right(self.ends, offset)

    # -- cutting ----------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        if offset >= self.next_offset:
            return
        kept = sum(end <= offset for end in self.ends)
        del self.batches[kept:], self.ends[kept:]
        self.synced = min(self.synced, kept)
        self.high_watermark = min(self.high_watermark, self.next_offset)
        self.epochs.truncate_end(self.next_offset)
        self.read_producers(0)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        assert offset == 0, "nothing is deleted here"
        self.truncate_to(0)

    def delete_records_before(self, offset: int) -> None:
        raise AssertionError("nothing is deleted here")

    def sync(self) -> None:
        self.synced = len(self.batches)

    # -- the end of a process ---------------------------------------------------------

    def lose_power(self, random: Random) -> None:
        """Some of what was not synced is gone."""
        kept = random.randint(self.synced, len(self.batches))
        self.truncate_to(self.ends[kept - 1] if kept else 0)

    def recover(self, random: Random) -> None:
        """The process ended: the high watermark is a hint that may be old, and of each producer
        a snapshot has only the last batch."""
        self.high_watermark = random.randint(0, self.high_watermark)
        self.epochs = EpochCache(self.epochs.entries, lambda: self.next_offset)
        self.epochs.truncate_end(self.next_offset)
        self.read_producers(random.randint(0, len(self.batches)))

    def read_producers(self, snapshot_at: int) -> None:
        states = ProducerStates()
        for number, data in enumerate(self.batches):
            if number == snapshot_at:
                states = ProducerStates.decode(states.encode(), next_offset=states.next_offset)
            states.update(BatchView(memoryview(data)))
        self.producers = Producers(states)
