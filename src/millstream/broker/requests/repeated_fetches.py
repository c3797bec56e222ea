"""A consumer that reads partitions of one topic again and again: its fetches, without decoding.

`wire.repeated_fetch` recognises such a request. Which partitions the client may read here is known
for the generation of the shortcut, and what it gets comes from the same reads as on the general
route. A request with anything unusual about it, above all an error, is left to that route.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from millstream.broker.network.connection import Connection
from millstream.broker.network.output import SMALL_RECORDS_BYTES_MAX, copied_or_pinned
from millstream.broker.network.replies import Pending, Pieces, Shortcut
from millstream.broker.node.state import NodeState
from millstream.broker.requests.admission import Admissions
from millstream.broker.requests.request import Request
from millstream.errors import KafkaError
from millstream.model import NO_LEADER_EPOCH
from millstream.replication.partition import Partition
from millstream.replication.waiting import (
    FETCH_WAIT_MS_MAX,
    FetchWait,
    add_to_all,
    remove_from_all,
)
from millstream.storage.log import FileRange
from millstream.wire.apis import fetch as messages
from millstream.wire.fetch import READ_COMMITTED, FetchRequest
from millstream.wire.headers import finish_frame
from millstream.wire.repeated_fetch import ANSWER_END, Named, RepeatedFetch

FETCH: Final = messages.FetchRequest.api.key
# Partitions that a connection knows. Beyond, it learns them anew.
KNOWN_MAX: Final = 500

# A partition that is asked for: its index, the consumer's offset, and the most bytes of it.
Place = tuple[Partition, int, int, int]
# What is sent of a partition: its last stable offset, and its records.
Found = tuple[int, FileRange | None]
# The general route, for a request that has waited: it answers now.
ReadNow = Callable[[Request, FetchRequest], Pieces]


class Parts(Protocol):
    """The parts of the node that a repeated fetch uses."""

    @property
    def node(self) -> NodeState: ...
    @property
    def admissions(self) -> Admissions: ...
    @property
    def counts(self) -> dict[int, int]: ...


class _RepeatedFetches:
    """The requests of one connection for one topic, in one generation.

    Its shortcut refers to it, and it does not refer to its shortcut: the partitions, which may be
    deleted, would be in memory until all garbage is collected.
    """

    __slots__ = (
        "_generation",
        "_is_committed",
        "_known",
        "_may_wait",
        "_parts",
        "_read_now",
        "_repeated",
    )

    def __init__(self, parts: Parts, repeated: RepeatedFetch, read_now: ReadNow) -> None:
        self._parts = parts
        self._repeated = repeated
        self._read_now = read_now
        self._generation = parts.node.partitions.generation.number
        self._known: dict[int, Partition] = {}
        body = repeated.body
        self._is_committed = body.isolation_level == READ_COMMITTED
        self._may_wait = body.min_bytes > 0 and body.max_wait_ms > 0

    def answer(self, connection: Connection, frame: memoryview) -> Pieces | Pending | None:
        """The request once more, for other offsets; None for any other."""
        repeated = self._repeated
        named = repeated.partitions_of(frame)
        if named is None:
            return None
        answer: Pieces | Pending | None
        try:
            places = self._places(connection, named)
            if places is None:
                return None
            correlation_id = repeated.correlation_of(frame)
            if self._may_wait and all(map(self._is_at_end, places)):
                answer = _LongPoll(self, connection, correlation_id, named, places).pending()
            else:
                least_bytes = repeated.body.min_bytes if self._may_wait else 0
                answer = self.read(correlation_id, places, least_bytes)
        except KafkaError:
            return None
        if answer is not None:
            self._parts.counts[FETCH] += 1
        return answer

    def _places(self, connection: Connection, named: Sequence[Named]) -> list[Place] | None:
        """None where a partition may not be read, or where epochs need a closer look."""
        known = self._known
        places = []
        for index, leader_epoch, offset, last_epoch, _, max_bytes, _ in named:
            partition = known.get(index) or self._learn(connection, index)
            if (
                partition is None
                or last_epoch != NO_LEADER_EPOCH
                or leader_epoch not in (NO_LEADER_EPOCH, partition.leader_epoch)
            ):
                return None
            places.append((partition, index, offset, max_bytes))
        return places

    def _learn(self, connection: Connection, index: int) -> Partition | None:
        """A partition that the client may read here, in this generation. Raises KafkaError."""
        topic, partitions = self._repeated.topic, self._parts.node.partitions
        partition = partitions.get(topic.name or partitions.name_of(topic.topic_id), index)
        admission = self._parts.admissions.of(connection, partition)
        if admission.read is not None or partition.log.config.honours_delivery_times:
            return None
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[index] = partition
        return partition

    def _is_at_end(self, place: Place) -> bool:
        """Is there nothing to read, and nothing wrong with the consumer's offset?"""
        partition, _, offset, _ = place
        end = partition.last_stable_offset if self._is_committed else partition.log.high_watermark
        return end <= offset <= partition.log.next_offset

    def wait(self) -> FetchWait:
        return FetchWait(self._repeated.body.min_bytes, reads_committed=self._is_committed)

    @property
    def max_wait_seconds(self) -> float:
        return min(self._repeated.body.max_wait_ms, FETCH_WAIT_MS_MAX) / 1000

    def read_after_wait(
        self,
        connection: Connection,
        correlation_id: int,
        named: Sequence[Named],
        places: Sequence[Place],
    ) -> Pieces:
        """The response, with what there is. Everything may have changed since the request came."""
        if self._generation == self._parts.node.partitions.generation.number:
            try:
                pieces = self.read(correlation_id, places, 0)
            except KafkaError:
                pieces = None
            if pieces is not None:
                return pieces
        request = Request(self._repeated.header_of(correlation_id), connection)
        return self._read_now(request, self._repeated.body_of(named))

    def read(self, correlation_id: int, places: Sequence[Place], least_bytes: int) -> Pieces | None:
        """The response; None where there is less, or an aborted transaction. Raises KafkaError."""
        budget = min(self._repeated.body.max_bytes, self._parts.node.fetch_bytes_max)
        total = 0
        found = []
        for partition, _, offset, max_bytes in places:
            log, stable_offset = partition.log, partition.last_stable_offset
            end = stable_offset if self._is_committed else log.high_watermark
            records, is_first = None, total == 0
            # As in `_is_at_end`.
            if (budget > total or is_first) and not end <= offset <= log.next_offset:
                limit = max(min(max_bytes, budget - total), 0)
                if not self._is_committed:
                    records = partition.read(offset, max_bytes=limit, at_least_one=is_first)
                else:
                    records, aborted = partition.read_committed(
                        offset, max_bytes=limit, at_least_one=is_first
                    )
                    if aborted:
                        return None
                if records is not None:
                    total += records.length
            found.append((stable_offset, records))
        return self._written(correlation_id, places, found) if total >= least_bytes else None

    def _written(
        self, correlation_id: int, places: Sequence[Place], found: Sequence[Found]
    ) -> Pieces:
        repeated = self._repeated
        first = out = repeated.begin_answer(correlation_id, len(places))
        pieces: Pieces = [out]
        later_bytes = 0
        for (partition, index, _, _), (stable_offset, records) in zip(places, found, strict=True):
            log = partition.log
            size_bytes = 0 if records is None else records.length
            repeated.write_result(
                out, index, log.high_watermark, stable_offset, log.log_start_offset, size_bytes
            )
            if records is not None:
                piece = copied_or_pinned(records, copied_bytes_max=SMALL_RECORDS_BYTES_MAX)
                if isinstance(piece, bytearray):
                    out += piece
                else:
                    later_bytes += size_bytes
                    out = bytearray()
                    pieces += piece, out
            out.append(0)
        out += ANSWER_END
        if out is not first:
            later_bytes += sum(len(one) for one in pieces[1:] if isinstance(one, bytearray))
        finish_frame(first, later_bytes)
        return pieces


class _LongPoll:
    """One request that waits until a partition has something for it."""

    _timer: asyncio.TimerHandle

    __slots__ = (
        "_connection",
        "_correlation_id",
        "_fetches",
        "_named",
        "_places",
        "_timer",
        "_wait",
        "_waits",
    )

    def __init__(
        self,
        fetches: _RepeatedFetches,
        connection: Connection,
        correlation_id: int,
        named: Sequence[Named],
        places: Sequence[Place],
    ) -> None:
        self._fetches = fetches
        self._connection = connection
        self._correlation_id = correlation_id
        self._named = named
        self._places = places
        self._wait = fetches.wait()
        self._waits = [partition.fetch_waits for partition, _, _, _ in places]

    def pending(self) -> Pending:
        """In the turn in which the partitions were looked at: an append in between would wake
        nothing."""
        wait = self._wait
        add_to_all(self._waits, wait)
        self._connection.begin_wait(wait)
        self._timer = asyncio.get_running_loop().call_later(
            self._fetches.max_wait_seconds, wait.wake
        )
        return Pending(wait.future, finish=self._finish)

    def _finish(self, _: "asyncio.Future[None]") -> Pieces:
        self._timer.cancel()
        remove_from_all(self._waits, self._wait)
        self._connection.end_wait(self._wait)
        if self._connection.is_closed:
            return []
        return self._fetches.read_after_wait(
            self._connection, self._correlation_id, self._named, self._places
        )


def repeated_shortcut(parts: Parts, repeated: RepeatedFetch, read_now: ReadNow) -> Shortcut:
    """What answers this request when it is repeated."""
    fetches = _RepeatedFetches(parts, repeated, read_now)
    return Shortcut(fetches.answer, parts.node.partitions.generation.number)
