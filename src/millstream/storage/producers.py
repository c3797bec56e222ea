"""The state of each idempotent producer of a partition: epoch, sequence numbers, last batches.

A producer numbers its records per partition. A batch that continues the sequence is new,
one that equals any of the last five is a retry whose response was lost, everything else is
out of order. The state is saved in Kafka's `.snapshot` format whenever a segment is rolled
and at a clean stop, and replayed from the log after that.
"""

import heapq
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK, BatchView
from millstream.records.checksum import crc32c
from millstream.records.control import ControlType, EndTransactionMarker, read_end_marker
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.producer_budget import ProducerBudget

# A producer has at most five requests in flight, so a retry is one of the last five.
BATCHES_KEPT: Final = 5
SEQUENCE_MAX: Final = 2**31 - 1
_NO_SEQUENCE: Final = -1
_NO_OFFSET: Final = -1

_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEADER: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")

# Of one partition; each takes about half a kilobyte. Those with an open transaction stay.
PRODUCERS_MAX: Final = 20_000


@dataclass(slots=True)
class ProducedBatch:
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


@dataclass(slots=True)
class Producer:
    epoch: int
    batches: deque[ProducedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    last_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    transaction_first_offset: int = _NO_OFFSET
    # Markers since the state was read, written or not: whether one came between two moments. Not
    # in snapshots.
    markers: int = 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE


class ProducerStates:
    def __init__(self, budget: ProducerBudget | None = None) -> None:
        """A log shares the budget with others; there is none where nothing is appended."""
        self.budget = budget
        self._producers: dict[int, Producer] = {}
        # Where each open transaction began, by producer; ordered by these offsets.
        self._open: dict[int, int] = {}
        # Every batch below this offset is included in the state.
        self.next_offset = 0
        # Below this offset only the last batch of each producer is, because a snapshot has no more;
        # None if all are.
        self.read_from: int | None = None

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._producers.items())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        for first_offset in self._open.values():
            return first_offset
        return None

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.epoch == epoch
            and producer.transaction_first_offset >= 0
        )

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raises KafkaError if a newer producer has taken over."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise self._fenced(producer_id, epoch, producer)

    def check_marker(self, marker: EndTransactionMarker, producer_id: int, epoch: int) -> bool:
        """Whether a marker has an effect here; KafkaError if its writer is outdated.

        A marker is sent again when it is unknown whether it arrived; the second one would end
        nothing. It may also be the first of a transaction that has written nothing here yet. So it
        is counted all the same: a write that is being verified must not follow it.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return True
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                KafkaCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than"
                f" {producer.coordinator_epoch}",
            )
        if epoch < producer.epoch:
            raise self._fenced(producer_id, epoch, producer)
        is_known = epoch == producer.epoch and marker.coordinator_epoch == (
            producer.coordinator_epoch
        )
        if producer.transaction_first_offset >= 0 or not is_known:
            return True
        producer.markers += 1
        return False

    def check(self, batch: BatchView) -> ProducedBatch | None:
        """The earlier append if this is a retry of it; KafkaError if it is out of order, or of a
        new producer for which there is no room."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            # Its state has expired, or its records were deleted: any sequence may start.
            if self.budget is not None:
                self.budget.admit(self)
            return None
        if batch.producer_epoch < producer.epoch:
            raise self._fenced(batch.producer_id, batch.producer_epoch, producer)
        if producer.transaction_first_offset >= 0 and not batch.is_transactional:
            # It would take the producer to an epoch that the transaction's marker does not have.
            raise KafkaError(
                KafkaCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has an open transaction, and sent a batch without",
            )
        base_sequence = batch.base_sequence
        if batch.producer_epoch > producer.epoch:
            if base_sequence != 0:
                raise self._out_of_order(batch, producer)
            return None
        batches = producer.batches
        expected = (batches[-1].last_sequence + 1) & SEQUENCE_MAX if batches else 0
        # The usual case. None of the last batches begins behind the last of them.
        if base_sequence == expected:
            return None
        last_sequence = batch.last_sequence
        for known in batches:
            if known.base_sequence == base_sequence and known.last_sequence == last_sequence:
                return known
        raise self._out_of_order(batch, producer)

    @staticmethod
    def _fenced(producer_id: int, epoch: int, producer: Producer) -> KafkaError:
        return KafkaError(
            KafkaCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id} has epoch {producer.epoch}, not {epoch}",
        )

    @staticmethod
    def _out_of_order(batch: BatchView, producer: Producer) -> KafkaError:
        return KafkaError(
            KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} epoch {batch.producer_epoch} sent sequence"
            f" {batch.base_sequence} after {producer.last_sequence} of epoch {producer.epoch}",
        )

    def add_earlier(self, batches: Sequence[BatchView]) -> None:
        """Complete the last five of each producer with batches below `read_from`, in order."""
        for batch in reversed(batches):
            producer = self._producers.get(batch.producer_id)
            if producer is None or producer.epoch != batch.producer_epoch:
                continue
            known = producer.batches
            if not known or len(known) == BATCHES_KEPT:
                continue
            follows = (batch.last_sequence + 1) & SEQUENCE_MAX == known[0].base_sequence
            if follows and batch.last_offset < known[0].base_offset:
                known.appendleft(
                    ProducedBatch(
                        batch.base_sequence,
                        batch.last_sequence,
                        batch.base_offset,
                        batch.last_offset,
                        batch.max_timestamp_ms,
                    )
                )

    def update(self, batch: BatchView) -> AbortedTransaction | None:
        """Add a batch that is in the log; return the aborted transaction if it ends one."""
        base_offset = batch.base_offset
        last_offset = base_offset + batch.last_offset_delta
        self.next_offset = last_offset + 1
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        producer = self._producers.get(producer_id)
        if producer is None:
            if len(self._producers) >= PRODUCERS_MAX:
                self._forget_oldest()
            producer = self._producers[producer_id] = Producer(batch.producer_epoch)
            if self.budget is not None:
                self.budget.note_taken(self)
        if batch.producer_epoch != producer.epoch:
            producer.epoch = batch.producer_epoch
            producer.batches.clear()
        timestamp_ms = producer.last_timestamp_ms = batch.max_timestamp_ms
        # Nearly always there is nothing but the codec.
        attributes = batch.attributes
        if attributes & CONTROL_MASK:
            return self._end_transaction(batch, producer)
        producer.batches.append(
            ProducedBatch(
                batch.base_sequence, batch.last_sequence, base_offset, last_offset, timestamp_ms
            )
        )
        if attributes & TRANSACTIONAL_MASK and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = base_offset
            self._open[producer_id] = base_offset
        return None

    def _end_transaction(self, batch: BatchView, producer: Producer) -> AbortedTransaction | None:
        marker = read_end_marker(batch)
        if marker is None:
            return None
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.markers += 1
        first_offset = producer.transaction_first_offset
        producer.transaction_first_offset = _NO_OFFSET
        self._open.pop(batch.producer_id, None)
        if first_offset < 0 or marker.type is ControlType.COMMIT:
            return None
        return AbortedTransaction(
            batch.producer_id, first_offset, batch.last_offset, self.first_undecided(batch)
        )

    def first_undecided(self, batch: BatchView) -> int:
        """The last stable offset with `batch` included: where the oldest open transaction began."""
        first_offset = self.first_open_offset()
        return batch.next_offset if first_offset is None else first_offset

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have been silent for long and have no open transaction."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.transaction_first_offset < 0
            and now_ms - producer.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        if self.budget is not None:
            self.budget.note_forgotten(len(expired))

    def _forget_oldest(self) -> None:
        """Make room: a client may invent producer ids. By offsets, as timestamps are invented,
        too, and several at once, as finding them takes long. Producers of which only the end of
        a transaction is known go last."""
        idle = (
            (
                producer.batches[-1].last_offset if producer.batches else self.next_offset,
                producer_id,
            )
            for producer_id, producer in self._producers.items()
            if producer.transaction_first_offset < 0
        )
        for _, producer_id in heapq.nsmallest(PRODUCERS_MAX // 10, idle):
            del self._producers[producer_id]

    def clear(self, next_offset: int) -> None:
        self._producers.clear()
        self._open.clear()
        self.next_offset = next_offset

    def encode(self) -> bytes:
        """The `.snapshot` file: only the last batch of each producer."""
        body = bytearray(_COUNT.pack(len(self._producers)))
        for producer_id, producer in self._producers.items():
            last = producer.batches[-1] if producer.batches else None
            body += _ENTRY.pack(
                producer_id,
                producer.epoch,
                last.last_sequence if last else _NO_SEQUENCE,
                last.last_offset if last else _NO_OFFSET,
                last.last_offset - last.base_offset if last else 0,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
            )
        return _SNAPSHOT_HEADER.pack(_SNAPSHOT_VERSION, crc32c(body)) + bytes(body)

    @classmethod
    def decode(cls, data: bytes, *, next_offset: int) -> "ProducerStates":
        """Raises ValueError if the snapshot is damaged or of another version."""
        states = cls()
        states.next_offset = states.read_from = next_offset
        if len(data) < _SNAPSHOT_HEADER.size + _COUNT.size:
            raise ValueError(f"snapshot of {len(data)} bytes is too short")
        version, crc = _SNAPSHOT_HEADER.unpack_from(data)
        if version != _SNAPSHOT_VERSION:
            raise ValueError(f"snapshot of version {version}")
        body = memoryview(data)[_SNAPSHOT_HEADER.size :]
        if crc32c(body) != crc:
            raise ValueError("snapshot checksum does not match")
        (count,) = _COUNT.unpack_from(body)
        if count * _ENTRY.size != len(body) - _COUNT.size:
            raise ValueError(f"snapshot says {count} producers in {len(body)} bytes")
        for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
            states._producers[fields[0]] = _decode_producer(fields)
        states._open = dict(
            sorted(
                (
                    (producer_id, producer.transaction_first_offset)
                    for producer_id, producer in states
                    if producer.transaction_first_offset >= 0
                ),
                key=lambda entry: entry[1],
            )
        )
        return states


def _decode_producer(fields: tuple[int, ...]) -> Producer:
    _, epoch, last_sequence, last_offset, offset_delta, timestamp_ms, *transaction = fields
    producer = Producer(
        epoch,
        last_timestamp_ms=timestamp_ms,
        coordinator_epoch=transaction[0],
        transaction_first_offset=transaction[1],
    )
    if last_sequence != _NO_SEQUENCE:
        producer.batches.append(
            ProducedBatch(
                (last_sequence - offset_delta) & SEQUENCE_MAX,
                last_sequence,
                last_offset - offset_delta,
                last_offset,
                timestamp_ms,
            )
        )
    return producer
