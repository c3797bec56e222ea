"""Fetch (1), versions 4-18: batches from the files, straight to the socket.

Answers at once when `min_bytes` are available, something is wrong, or the request is empty;
otherwise waits for records until `max_wait_ms`, or until the client leaves. The first batch of the
first partition with records is always sent whole, whatever the limits: otherwise a consumer could
never get past a large record. Beyond it the limits of bytes hold, and the last batch of a partition
may be cut, as with Kafka; clients ignore the part and fetch it again.
"""

import asyncio
from functools import partial
from typing import Final, Protocol

from millstream.broker.network.connection import kept_frame
from millstream.broker.network.output import (
    SMALL_RECORDS_BYTES_MAX,
    SendRange,
    copied_or_pinned,
)
from millstream.broker.network.replies import Pending, Pieces, settled
from millstream.broker.node.state import NodeState
from millstream.broker.requests.admission import Admissions
from millstream.broker.requests.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    FetchSessions,
    SessionPartition,
    wanted,
)
from millstream.broker.requests.repeated_fetches import repeated_shortcut
from millstream.broker.requests.replica_fetch import NO_ROOM, preferred_reader, read_for_replica
from millstream.broker.requests.request import Request
from millstream.broker.requests.timed_reading import TimedReads
from millstream.broker.requests.turns import Turns, stop_if_abandoned
from millstream.broker.security.quota_use import ClientQuotas
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_LEADER_EPOCH, NO_TOPIC_ID
from millstream.replication.partition import Partition
from millstream.replication.waiting import (
    FETCH_WAIT_MS_MAX,
    FetchWait,
    FetchWaits,
    add_to_all,
    remove_from_all,
)
from millstream.security.quotas import FETCH
from millstream.storage.log import FileRange
from millstream.wire.cursor import Cursor
from millstream.wire.fetch import (
    READ_COMMITTED,
    TOPIC_IDS_FROM,
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResult,
    FetchTopicResult,
    read_fetch_request,
    write_fetch_response,
)
from millstream.wire.headers import finish_frame, response_header
from millstream.wire.repeated_fetch import repeated_fetch

READS_FRAME = True
# What one fetch may name; a node does not have so many partitions.
PARTITIONS_MAX: Final = 50_000
# A larger request is read in a thread; more partitions are read in several turns.
_FRAME_BYTES_MAX: Final = 1 << 16
_PARTITIONS_AT_ONCE_MAX: Final = 500
# So many partitions of a session are looked through for news in half a millisecond.
_PARTITIONS_COMPARED_MAX: Final = 4_000
# What is copied of a whole response to a follower, which may get several batches with each: a copy
# leaves in one piece, with the bytes around the records, and wakes the follower once. Larger memory
# would come from the kernel page by page.
_COPIED_TO_REPLICA_BYTES_MAX: Final = 96 << 10
# How often a fetch waits for delivery times. Once is enough, unless what was found is forgotten
# before it is used.
_SEARCHES_MAX: Final = 3
Read = tuple[SessionPartition, FetchResult]


class Parts(Protocol):
    """The parts of the node that a fetch uses."""

    @property
    def node(self) -> NodeState: ...
    @property
    def admissions(self) -> Admissions: ...
    @property
    def fetch_sessions(self) -> FetchSessions: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def timed_reads(self) -> TimedReads: ...
    @property
    def quotas(self) -> ClientQuotas: ...
    @property
    def counts(self) -> dict[int, int]: ...


def handle(parts: Parts, request: Request, cursor: Cursor) -> Pieces | Pending:
    if cursor.end - cursor.position > _FRAME_BYTES_MAX:
        frame = kept_frame(cursor.data)
        kept = Cursor(frame, cursor.position, PARTITIONS_MAX, each=parts.turns.pace(request))
        return Pending(_handle_large(parts, request, kept, len(frame)), gate=True)
    body = read_fetch_request(cursor, request.version)
    _learn(parts, request, body, cursor.data)
    return _handle(parts, request, body)


async def _handle_large(parts: Parts, request: Request, cursor: Cursor, size_bytes: int) -> Pieces:
    turns = parts.turns
    release = request.connection.hold_memory(size_bytes)
    try:
        async with turns.large_request(request):
            stop_if_abandoned(request)
            read = partial(read_fetch_request, cursor, request.version)
            # The frame does not count any more when it is read, so nothing may refer to it then.
            del cursor
            body = await turns.in_thread(read)
            del read
    finally:
        release()
    try:
        answer = _handle(parts, request, body)
    finally:
        # What the fetch goes on with is not all that was named.
        turns.free_soon(request, body.topics, body.forgotten)
        body.topics, body.forgotten = [], []
    return await settled(answer)


def _handle(parts: Parts, request: Request, body: FetchRequest) -> Pieces | Pending:
    if parts.quotas.are_set:
        _limit_to_quota(parts.quotas, request, body)
    uses_topic_ids = request.version >= TOPIC_IDS_FROM
    now_ms = parts.node.clock.now_ms()
    session: FetchSession | None = None
    is_incremental = False
    if body.session_epoch == FINAL_EPOCH:
        parts.fetch_sessions.close(body.session_id)
    elif body.session_epoch == INITIAL_EPOCH:
        session = parts.fetch_sessions.open(
            body,
            uses_topic_ids=uses_topic_ids,
            client=request.connection.client,
            now_ms=now_ms,
        )
    else:
        try:
            session = parts.fetch_sessions.resume(
                body, uses_topic_ids=uses_topic_ids, now_ms=now_ms
            )
        except KafkaError as error:
            return _encode(request, error.code, NO_SESSION, [])
        is_incremental = True
    if session is not None:
        partitions = list(session.partitions.values())
    else:
        partitions = _named_once(body, uses_topic_ids=uses_topic_ids)
    fetch = _Fetch(parts, request, body, session, partitions, is_incremental=is_incremental)
    if fetch.takes_turns:
        return Pending(_answer_many(fetch))
    return _answer_or_wait(fetch, parts.timed_reads)


def _named_once(body: FetchRequest, *, uses_topic_ids: bool) -> list[SessionPartition]:
    """Of a partition that is named twice the last counts, as in a session."""
    return list(
        {
            (key, partition.index): SessionPartition(key, partition)
            for key, partition in wanted(body, uses_topic_ids=uses_topic_ids)
        }.values()
    )


def _learn(parts: Parts, request: Request, body: FetchRequest, frame: memoryview) -> None:
    """The second fetch of a consumer without a session sets a shortcut for later ones."""
    if body.session_epoch != FINAL_EPOCH or len(body.topics) != 1:
        return
    connection, topic = request.connection, body.topics[0]
    reader = (topic.name, topic.topic_id, body.max_wait_ms, body.min_bytes, body.max_bytes)
    if connection.last_request != reader:
        connection.last_request, connection.shortcut = reader, None
    elif connection.shortcut is None or connection.shortcut.generation != _generation(parts):
        repeated = repeated_fetch(frame, request.header, body)
        if repeated is not None:
            read_now = partial(_read_now, parts)
            connection.shortcut = repeated_shortcut(parts, repeated, read_now)


def _generation(parts: Parts) -> int:
    return parts.node.partitions.generation.number


def _read_now(parts: Parts, request: Request, body: FetchRequest) -> Pieces:
    """The response to a request without a session whose wait is over."""
    partitions = _named_once(body, uses_topic_ids=request.version >= TOPIC_IDS_FROM)
    fetch = _Fetch(parts, request, body, None, partitions, is_incremental=False)
    return fetch.answer(fetch.read()[0])


def _answer_or_wait(fetch: "_Fetch", timed_reads: TimedReads) -> Pieces | Pending:
    timed_reads.awaited.clear()
    reads, size_bytes = fetch.read()
    if timed_reads.awaited and not size_bytes and fetch.may_search():
        return Pending(_answer_later(fetch, timed_reads, list(timed_reads.awaited)))
    if fetch.has_enough(reads, size_bytes):
        return fetch.answer(reads)
    return Pending(fetch.wait(reads, size_bytes), finish=fetch.finish)


async def _answer_later(
    fetch: "_Fetch", timed_reads: TimedReads, searches: "list[asyncio.Task[None]]"
) -> Pieces:
    """When the delivery times of a batch are known: as if the request had come only then, for
    everything may have changed."""
    await asyncio.wait(searches, return_when=asyncio.FIRST_COMPLETED)
    return await settled(_answer_or_wait(fetch, timed_reads))


def _limit_to_quota(quotas: ClientQuotas, request: Request, body: FetchRequest) -> None:
    """One response has at most what the quota allows in its whole window, as in Kafka: a larger
    one would mute the client for longer than that."""
    limits = quotas.of(request.principal, request.header.client_id)
    if limits is None or request.connection.proved_node_id >= 0:
        return
    body.max_bytes = min(body.max_bytes, limits.largest_use(FETCH))
    body.min_bytes = min(body.min_bytes, body.max_bytes)


class _Fetch:
    """One request: what it reads, and how long it waits for more."""

    __slots__ = (
        "_body",
        "_is_incremental",
        "_partitions",
        "_parts",
        "_reads",
        "_request",
        "_searches_left",
        "_session",
        "_timer",
        "_wait",
        "_watched",
    )

    # Of a request that waits: what was read before.
    _reads: list[Read]
    _timer: asyncio.TimerHandle | None
    _wait: FetchWait
    _watched: list[FetchWaits]

    def __init__(
        self,
        parts: Parts,
        request: Request,
        body: FetchRequest,
        session: FetchSession | None,
        partitions: list[SessionPartition],
        *,
        is_incremental: bool,
    ) -> None:
        self._parts = parts
        self._request = request
        self._body = body
        self._session = session
        self._partitions = partitions
        self._is_incremental = is_incremental
        self._searches_left = _SEARCHES_MAX
        self._timer = None

    @property
    def _generation(self) -> int:
        return self._parts.node.partitions.generation.number

    def _to_read(self) -> list[SessionPartition]:
        """All partitions, or those of an incremental session that may have news."""
        if not self._is_incremental or self._body.replica_id >= 0:
            return self._partitions
        assert self._session is not None
        return self._session.awake(self._generation)

    @property
    def takes_turns(self) -> bool:
        """Are there so many partitions that the loop should not read them in one go?"""
        if len(self._partitions) <= _PARTITIONS_AT_ONCE_MAX:
            return False
        return (
            len(self._partitions) > _PARTITIONS_COMPARED_MAX
            or len(self._to_read()) > _PARTITIONS_AT_ONCE_MAX
        )

    def read(self) -> tuple[list[Read], int]:
        parts, request, body = self._parts, self._request, self._body
        budget = min(body.max_bytes, parts.node.fetch_bytes_max)
        reads: list[Read] = []
        total = 0
        for partition in self._to_read():
            result = _read(parts, request, body, partition, budget - total, is_first=total == 0)
            reads.append((partition, result))
            total += result.records_bytes
        return reads, total

    async def read_in_turns(self) -> tuple[list[Read], int]:
        """The wait begins here, at each partition in the turn in which it is read: an append
        between two turns would wake nothing otherwise. `end_wait` has to follow."""
        parts, request, body = self._parts, self._request, self._body
        budget = min(body.max_bytes, parts.node.fetch_bytes_max)
        reads: list[Read] = []
        total = 0
        async for partition in parts.turns.each(request, self._partitions):
            result = _read(parts, request, body, partition, budget - total, is_first=total == 0)
            reads.append((partition, result))
            total += result.records_bytes
            if result.code == KafkaCode.NONE:
                waits = self._waits_of(partition)
                waits.add(self._wait)
                self._watched.append(waits)
        return reads, total

    def may_search(self) -> bool:
        """May it wait once more for the delivery times of batches?"""
        self._searches_left -= 1
        return self._searches_left >= 0 and not self._request.connection.is_closed

    def has_enough(self, reads: list[Read], size_bytes: int) -> bool:
        return (
            size_bytes >= self._body.min_bytes
            or self._body.max_wait_ms <= 0
            or not self._partitions
            or any(
                r.code != KafkaCode.NONE or r.diverging_epoch >= 0 or r.preferred_replica >= 0
                for _, r in reads
            )
        )

    def wait(self, reads: list[Read], size_bytes: int) -> "asyncio.Future[None]":
        """Done when the missing bytes are there, or at the deadline; `end_wait` has to follow.

        Registered with the partitions in the same turn: an append in between would wake nothing.
        """
        self._reads = reads
        self.begin_wait()
        self._watched = self._all_waits()
        add_to_all(self._watched, self._wait)
        return self.wait_for_more(size_bytes)

    def begin_wait(self) -> None:
        """For the smallest response, at no partition yet."""
        body = self._body
        self._wait = FetchWait(
            body.min_bytes,
            reads_committed=body.isolation_level == READ_COMMITTED,
            is_replica=body.replica_id >= 0,
        )
        self._watched = []

    def wait_for_more(self, size_bytes: int) -> "asyncio.Future[None]":
        """Done at once if what was read, and has arrived since the wait began, is enough."""
        self._wait.arrived(size_bytes)
        loop = asyncio.get_running_loop()
        seconds = min(self._body.max_wait_ms, FETCH_WAIT_MS_MAX) / 1000
        self._timer = loop.call_later(seconds, self._wait.wake)
        self._request.connection.begin_wait(self._wait)
        return self._wait.future

    def _all_waits(self) -> list[FetchWaits]:
        """Of every partition that this request reads."""
        if self._session is not None and self._is_incremental:
            known = self._session.known_waits(self._generation)
            if known is not None:
                return known
        return [self._waits_of(each) for each in self._partitions]

    def _waits_of(self, each: SessionPartition) -> FetchWaits:
        """Of a partition that was read without an error."""
        if each.generation == self._generation and each.partition is not None:
            return each.partition.fetch_waits
        return _locate(self._parts, self._request, each).fetch_waits

    def end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        remove_from_all(self._watched, self._wait)
        self._request.connection.end_wait(self._wait)

    def stop_if_abandoned(self) -> None:
        stop_if_abandoned(self._request)

    def end_long(self) -> None:
        """It takes no more turns."""
        turns = self._parts.turns
        turns.long_answers.end(self._request)
        if not self._is_incremental:
            turns.free_soon(self._request, self._partitions)

    def finish(self, _: "asyncio.Future[None]") -> Pieces:
        """The wait is over."""
        self.end_wait()
        if self._request.connection.is_closed:
            return []
        return self.answer(self._read_again())

    def _read_again(self) -> list[Read]:
        """Everything, but what is as it was when the wait began is not looked up once more."""
        parts, request, body = self._parts, self._request, self._body
        if self._is_incremental or body.replica_id >= 0:
            return self.read()[0]
        generation = self._generation
        budget = min(body.max_bytes, parts.node.fetch_bytes_max)
        reads: list[Read] = []
        total = 0
        for partition, result in self._reads:
            if not partition.is_as_read(result, generation):
                result = _read(parts, request, body, partition, budget - total, is_first=total == 0)
                total += result.records_bytes
            reads.append((partition, result))
        return reads

    def answer(self, reads: list[Read]) -> Pieces:
        copied_bytes_max = SMALL_RECORDS_BYTES_MAX
        if self._body.replica_id >= 0:
            size_bytes = sum(result.records_bytes for _, result in reads)
            if size_bytes <= _COPIED_TO_REPLICA_BYTES_MAX:
                copied_bytes_max = size_bytes
        return _answer(
            self._request,
            self._session,
            reads,
            is_incremental=self._is_incremental,
            copied_bytes_max=copied_bytes_max,
        )


async def _answer_many(fetch: _Fetch) -> Pieces:
    """For so many partitions that reading them takes several turns."""
    fetch.begin_wait()
    try:
        reads, size_bytes = await fetch.read_in_turns()
        if not fetch.has_enough(reads, size_bytes):
            await fetch.wait_for_more(size_bytes)
            fetch.stop_if_abandoned()
            reads, _ = await fetch.read_in_turns()
        return fetch.answer(reads)
    finally:
        fetch.end_wait()
        fetch.end_long()


def _locate(parts: Parts, request: Request, partition: SessionPartition) -> Partition:
    """Raises KafkaError: to a client that may not read the topic, not whether it exists."""
    topic = partition.topic
    name = topic if isinstance(topic, str) else parts.node.partitions.name_of(topic)
    try:
        return parts.node.partitions.get(name, partition.request.index)
    except KafkaError:
        denied = parts.admissions.read_denial(request.connection, name)
        if denied is not None:
            raise denied.error() from None
        raise


def _read(
    parts: Parts,
    request: Request,
    body: FetchRequest,
    wanted_partition: SessionPartition,
    budget: int,
    *,
    is_first: bool,
) -> FetchResult:
    fetch = wanted_partition.request
    result = FetchResult(fetch.index)
    partition: Partition | None = None
    try:
        partition = _locate(parts, request, wanted_partition)
        admission = parts.admissions.of(request.connection, partition)
        if body.replica_id >= 0:
            budget = budget if budget > 0 or is_first else NO_ROOM
            read_for_replica(parts.node, request, body, admission, fetch, result, budget)
            return result
        # A consumer that declares its rack may read from a nearby follower (KIP-392).
        is_near_enough = partition.is_replicated and body.rack_id
        refusal = admission.near_read if is_near_enough else admission.read
        if refusal is not None:
            parts.admissions.read_denial(request.connection, partition.topic_partition.topic)
            raise refusal.error()
        if is_near_enough:
            preferred = preferred_reader(parts.node, partition, body.rack_id, fetch.offset)
            if preferred is not None:
                result.preferred_replica = preferred
                return _without_records(partition, result)
        partition.check_leader_epoch(fetch.current_leader_epoch)
        log = partition.log
        result.high_watermark = end = log.high_watermark
        result.last_stable_offset = partition.last_stable_offset
        result.log_start_offset = log.log_start_offset
        if body.isolation_level == READ_COMMITTED:
            result.aborted = []
            end = result.last_stable_offset
        if _has_diverged(partition, fetch, result):
            return result
        # Most consumers are at the end, where there is nothing to look for.
        if (budget > 0 or is_first) and not end <= fetch.offset <= log.next_offset:
            max_bytes = max(min(fetch.max_bytes, budget), 0)
            if log.config.honours_delivery_times:
                _read_timed(parts, body, fetch, partition, result, max_bytes, is_first=is_first)
            elif body.isolation_level == READ_COMMITTED:
                result.records, aborted = partition.read_committed(
                    fetch.offset, max_bytes=max_bytes, at_least_one=is_first
                )
                result.aborted = [
                    AbortedTransaction(one.producer_id, one.first_offset) for one in aborted
                ]
            else:
                result.records = partition.read(
                    fetch.offset, max_bytes=max_bytes, at_least_one=is_first
                )
    except KafkaError as error:
        result.code = error.code
        is_moved = error.code in (KafkaCode.FENCED_LEADER_EPOCH, KafkaCode.NOT_LEADER_OR_FOLLOWER)
        if is_moved and partition is not None:
            result.leader_id, result.leader_epoch = partition.leader_id, partition.leader_epoch
        return result
    if isinstance(result.records, FileRange):
        result.records_bytes = result.records.length
    if not is_near_enough:
        wanted_partition.was_read(partition, admission.generation)
    return result


def _read_timed(
    parts: Parts,
    body: FetchRequest,
    fetch: FetchPartition,
    partition: Partition,
    result: FetchResult,
    max_bytes: int,
    *,
    is_first: bool,
) -> None:
    result.records, aborted = parts.timed_reads.read(
        partition,
        body,
        fetch.offset,
        max_bytes=max_bytes,
        at_least_one=is_first,
        now_ms=parts.node.clock.now_ms(),
    )
    if body.isolation_level == READ_COMMITTED:
        result.aborted = [AbortedTransaction(one.producer_id, one.first_offset) for one in aborted]


def _without_records(partition: Partition, result: FetchResult) -> FetchResult:
    result.high_watermark = partition.high_watermark
    result.last_stable_offset = partition.last_stable_offset
    result.log_start_offset = partition.log.log_start_offset
    return result


def _has_diverged(partition: Partition, fetch: FetchPartition, result: FetchResult) -> bool:
    """Has the reader seen records that a power cut removed? (KIP-595)"""
    if fetch.last_fetched_epoch == NO_LEADER_EPOCH:
        return False
    epoch, end_offset = partition.log.epochs.end_offset_for(fetch.last_fetched_epoch)
    if epoch == fetch.last_fetched_epoch and end_offset >= fetch.offset:
        return False
    if epoch < 0:
        raise KafkaError(KafkaCode.OFFSET_OUT_OF_RANGE)
    result.diverging_epoch, result.diverging_offset = epoch, end_offset
    return True


def _answer(
    request: Request,
    session: FetchSession | None,
    reads: list[Read],
    *,
    is_incremental: bool,
    copied_bytes_max: int,
) -> Pieces:
    """`copied_bytes_max` are the most records of a partition that are copied into the response."""
    session_id = session.id if session is not None else NO_SESSION
    topics: list[FetchTopicResult] = []
    by_key: dict[object, FetchTopicResult] = {}
    for partition, result in reads:
        is_news = partition.is_news(result)
        if is_incremental and not is_news:
            continue
        if result.records_bytes and session is not None and is_incremental:
            session.move_to_end(partition)
        topic = by_key.get(partition.topic)
        if topic is None:
            key = partition.topic
            topic = (
                FetchTopicResult(key, NO_TOPIC_ID)
                if isinstance(key, str)
                else FetchTopicResult("", key)
            )
            by_key[key] = topic
            topics.append(topic)
        topic.partitions.append(result)
    return _encode(request, KafkaCode.NONE, session_id, topics, copied_bytes_max=copied_bytes_max)


def _encode(
    request: Request,
    code: KafkaCode,
    session_id: int,
    topics: list[FetchTopicResult],
    *,
    copied_bytes_max: int = 0,
) -> Pieces:
    extra = 0
    for topic in topics:
        for result in topic.partitions:
            if isinstance(result.records, FileRange):
                piece = copied_or_pinned(result.records, copied_bytes_max=copied_bytes_max)
                result.records = piece
                if isinstance(piece, SendRange):
                    extra += result.records_bytes
    out = response_header(request.header)
    pieces = write_fetch_response(
        out, request.version, code=code, session_id=session_id, topics=topics
    )
    later = sum(len(piece) for piece in pieces[1:] if isinstance(piece, bytearray))
    finish_frame(out, extra + later)
    return pieces
