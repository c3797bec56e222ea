"""ShareFetch (78), versions 1-2: acquire records of a share group; acknowledge earlier ones.

Waits for records until `max_wait_ms`, like Fetch. A wait also ends when records in flight
become available again: released, or with their lock over.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.broker.coordination.share_partitions import LedShare
from millstream.broker.coordination.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareSession,
    Where,
)
from millstream.broker.coordination.sharing import Sharing
from millstream.broker.node.state import NodeState
from millstream.broker.requests import share_reading
from millstream.broker.requests.known_times import KnownTimes
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.share_acknowledgements import (
    Asked,
    Begun,
    Results,
    begin,
    check_size,
    session_key,
    store,
    topic_name,
)
from millstream.broker.requests.share_leaders import current_leader, endpoints
from millstream.broker.requests.share_reading import Found
from millstream.broker.requests.timed_reading import TimedReads
from millstream.broker.requests.turns import stop_if_abandoned
from millstream.coordinators.codecs.share_state import ShareKey
from millstream.coordinators.share.acquiring import Wanted, acquire, without
from millstream.coordinators.share.holding_back import Clocks, hold_back
from millstream.coordinators.share.partition import Acquired
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.partition import Partition
from millstream.replication.waiting import FetchWait, FetchWaits
from millstream.security.acl import ResourceType
from millstream.wire.apis.share_fetch import (
    AcquiredRecords,
    ShareFetchPartitionResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopicResponse,
)

_EXACT_LIMIT: Final = 1
_READ_COMMITTED: Final = "read_committed"
# A client that has left does not end its wait.
_WAIT_MS_MAX: Final = 60_000
# One wait is enough, unless what was found is forgotten before it is used.
_SEARCHES_MAX: Final = 10


@dataclass(slots=True)
class _Row:
    """What one partition answers."""

    error: KafkaError | None = None
    records: bytes = b""
    acquired: list[Acquired] = field(default_factory=list)


def handle(
    sharing: Sharing,
    node: NodeState,
    permissions: Permissions,
    timed_reads: TimedReads,
    request: Request,
    body: ShareFetchRequest,
) -> ShareFetchResponse | Coroutine[Any, Any, ShareFetchResponse]:
    try:
        key = session_key(permissions, request, body.group_id, body.member_id)
        _check(body)
        check_size(len(body.topics))
        check_size(sum(len(topic.partitions) for topic in body.topics))
        rows = [row for topic in body.topics for row in topic.partitions]
        batches = sum(len(row.acknowledgement_batches) for row in rows)
        check_size(len(rows), batches)
        has_acknowledgements = batches > 0
        named = [
            Where(topic.topic_id, row.partition_index)
            for topic in body.topics
            for row in topic.partitions
        ]
        if body.share_session_epoch == FINAL_EPOCH:
            session = sharing.sessions.require(key)
        elif body.share_session_epoch == INITIAL_EPOCH:
            if has_acknowledgements:
                text = "A first fetch has nothing to acknowledge."
                raise KafkaError(KafkaCode.INVALID_REQUEST, text)
            session = sharing.sessions.open(key, request.connection, named)
        else:
            session = sharing.sessions.resume(key, body.share_session_epoch)
            check_size(len(session.partitions) + len(named))
            sharing.sessions.add(session, named)
            for topic in body.forgotten_topics_data:
                for index in topic.partitions:
                    session.partitions.pop(Where(topic.topic_id, index), None)
    except KafkaError as error:
        if error.code is KafkaCode.SHARE_SESSION_LIMIT_REACHED:
            # Other large requests wait until this one is answered.
            return _refuse(error) if request.is_long else _refuse_later(body, error)
        return _refuse(error)
    fetch = _Fetch(sharing, node, permissions, timed_reads.known, request, body, session)
    return fetch.answer(has_acknowledgements=has_acknowledgements)


def _check(body: ShareFetchRequest) -> None:
    wanted = (body.max_bytes, body.min_bytes, body.max_records, body.max_wait_ms)
    if body.is_renew_ack and any(wanted):
        raise KafkaError(
            KafkaCode.INVALID_REQUEST,
            "MaxBytes, MinBytes, MaxRecords and MaxWaitMs must be 0 if IsRenewAck is set.",
        )


async def _refuse_later(body: ShareFetchRequest, error: KafkaError) -> ShareFetchResponse:
    """A client would ask again at once."""
    await asyncio.sleep(min(max(body.max_wait_ms, 0), 30_000) / 1000)
    return _refuse(error)


def _refuse(error: KafkaError) -> ShareFetchResponse:
    return ShareFetchResponse(
        error_code=error.code,
        error_message=error.message,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


class _Fetch:
    """One request, from its first look at the partitions to its response."""

    def __init__(
        self,
        sharing: Sharing,
        node: NodeState,
        permissions: Permissions,
        known_times: KnownTimes,
        request: Request,
        body: ShareFetchRequest,
        session: ShareSession,
    ) -> None:
        self._sharing = sharing
        self._node = node
        self._permissions = permissions
        self._known_times = known_times
        self._request = request
        self._body = body
        self._session = session
        config = sharing.partitions.config_of(session.key.group_id)
        self._is_committed = config.string("share.isolation.level") == _READ_COMMITTED
        # Those whose state is being read; if that fails, here is why.
        self._loading: dict[Where, LedShare] = {}
        # Those whose state was not read at the last look, and those for which it was read since
        # the look before.
        self._unread: set[Where] = set()
        self._just_read: set[Where] = set()
        # Were records found that may not be delivered now?
        self._has_held_back = False
        # Where the last look found batches whose times are not known, and how often this request
        # may still wait for those.
        self._unsearched: list[tuple[Partition, int]] = []
        self._searches_left = _SEARCHES_MAX

    def answer(
        self, *, has_acknowledgements: bool
    ) -> ShareFetchResponse | Coroutine[Any, Any, ShareFetchResponse]:
        body = self._body
        begun = self._begin_acknowledging() if has_acknowledgements else Begun({})
        is_last = body.share_session_epoch == FINAL_EPOCH
        rows: dict[Where, _Row] | None = {}
        if not is_last and not body.is_renew_ack and body.max_records > 0 and body.max_bytes > 0:
            try:
                rows = self._fetch_at_once()
            except OSError:
                # The acknowledgements count even if the fetch fails. The next look at the log
                # meets the same problem, and reports it.
                rows = None
        # Begun before the fetch, stored after its first look, as in Kafka: what is released here is
        # acquired here only if nothing else was found.
        results = store(self._sharing.partitions, begun)
        if rows is not None and isinstance(results, dict) and not is_last:
            return self._response(rows, results)
        return self._answer_later(rows, results)

    async def _answer_later(
        self, rows: dict[Where, _Row] | None, results: Results | Coroutine[Any, Any, Results]
    ) -> ShareFetchResponse:
        """`rows` is None if the fetch has to wait."""
        if rows is None:
            rows, results = await self._fetch_beside(results)
        elif not isinstance(results, dict):
            results = await results
        if self._body.share_session_epoch == FINAL_EPOCH:
            await self._sharing.end_session(self._session)
        return self._response(rows, results)

    async def _fetch_beside(
        self, results: Results | Coroutine[Any, Any, Results]
    ) -> tuple[dict[Where, _Row], Results]:
        """Fetch while the changes are stored."""
        if isinstance(results, dict):
            return await self._fetch(), results
        storing = asyncio.get_running_loop().create_task(results)
        try:
            rows = await self._fetch()
        except BaseException:
            # What was acknowledged counts, whether the client is still there or not.
            await asyncio.shield(storing)
            raise
        return rows, await storing

    def _begin_acknowledging(self) -> Begun:
        asked = Asked(
            {
                Where(topic.topic_id, row.partition_index): row.acknowledgement_batches
                for topic in self._body.topics
                for row in topic.partitions
                if row.acknowledgement_batches
            },
            self._body.is_renew_ack,
        )
        return begin(
            self._sharing, self._node, self._permissions, self._request, self._session.key, asked
        )

    # -- waiting ------------------------------------------------------------------------

    def _fetch_at_once(self) -> dict[Where, _Row] | None:
        """What a first look finds, as most do where records wait; None if that is nothing."""
        if self._request.connection.is_abandoned():
            return None
        rows, found, _ = self._look()
        if not rows and not self._is_enough(found):
            return None
        rows.update(self._acquire(found))
        if self._unsearched:
            self._begin_search()
        return rows or None

    def _is_enough(self, found: Sequence[tuple[LedShare, Found, Where]]) -> bool:
        size_bytes = sum(one.file_range.length for _, one, _ in found)
        return bool(found) and size_bytes >= self._body.min_bytes

    async def _fetch(self) -> dict[Where, _Row]:
        loop = asyncio.get_running_loop()
        # Other large requests wait until this one is answered.
        wait_ms = 0 if self._request.is_long else self._body.max_wait_ms
        ends_at = loop.time() + min(max(wait_ms, 0), _WAIT_MS_MAX) / 1000
        while True:
            stop_if_abandoned(self._request)
            if not self._sharing.sessions.is_open(self._session):
                # Ended while this waited: nobody would give back what is acquired now.
                return {}
            is_over = loop.time() >= ends_at
            rows, found, watched = self._look()
            if rows or self._is_enough(found) or is_over or not watched:
                acquired = self._acquire(found)
                if self._unsearched and await self._search(is_awaited=not acquired):
                    continue
                rows.update(acquired)
                if rows or is_over or not self._has_held_back:
                    return rows
                # Nothing of what was there is due: look for what is behind it.
                await asyncio.sleep(0)
                continue
            await _wait(watched, ends_at - loop.time())

    async def _search(self, *, is_awaited: bool) -> bool:
        """Have the missing times searched; was that awaited? Then everything has to be looked at
        again: the log, the leader and the state may be others."""
        searches = self._begin_search()
        if not is_awaited or not self._searches_left:
            return False
        self._searches_left -= 1
        # Of those whose state was waited for, one is served, however often they are looked at.
        self._unread |= self._just_read
        await asyncio.wait(searches, return_when=asyncio.FIRST_COMPLETED)
        return True

    def _begin_search(self) -> "list[asyncio.Task[None]]":
        return [self._known_times.search(*where) for where in self._unsearched]

    def _look(
        self,
    ) -> tuple[dict[Where, _Row], list[tuple[LedShare, Found, Where]], list[FetchWaits]]:
        """Problems, what can be read, and what to wait for."""
        rows: dict[Where, _Row] = {}
        ready: list[tuple[Where, LedShare]] = []
        watched: list[FetchWaits] = []
        unread: set[Where] = set()
        for where in self._session.rotated(self._body.share_session_epoch):
            try:
                led = self._find(where)
            except KafkaError as error:
                rows[where] = _Row(error.kept())
                continue
            watched.append(led.waits)
            if led.share is None:
                unread.add(where)
            else:
                watched.append(led.partition.fetch_waits)
                if led.share.may_acquire():
                    ready.append((where, led))
        self._just_read, self._unread = self._unread - unread, unread
        found: list[tuple[LedShare, Found, Where]] = []
        bytes_max = min(self._body.max_bytes, self._node.fetch_bytes_max) // max(len(ready), 1)
        for where, led in ready:
            try:
                one = self._read(led, bytes_max, at_least_one=not found)
            except KafkaError as error:
                rows[where] = _Row(error.kept())
                continue
            if one is not None:
                found.append((led, one, where))
        return rows, found, watched

    def _find(self, where: Where) -> LedShare:
        """Raises KafkaError."""
        failed = self._loading.get(where)
        if failed is not None and failed.problem is not None:
            raise failed.problem
        name = topic_name(self._node, where)
        self._permissions.require(self._request, ResourceType.TOPIC, name)
        partition = self._node.partitions.get(name, where.partition)
        partition.require_online()
        key = ShareKey(self._session.key.group_id, *where)
        led = self._sharing.partitions.find_or_load(key, partition)
        self._loading[where] = led
        return led

    def _read(self, led: LedShare, bytes_max: int, *, at_least_one: bool) -> Found | None:
        assert led.share is not None
        return share_reading.find(
            led.partition,
            led.share.next_fetch_offset(),
            max_bytes=bytes_max,
            at_least_one=at_least_one,
            is_committed=self._is_committed,
        )

    # -- acquiring ----------------------------------------------------------------------

    def _acquire(self, found: Iterable[tuple[LedShare, Found, Where]]) -> dict[Where, _Row]:
        """Nothing is awaited between the look at the partitions and this.

        Of partitions whose state was waited for, one is served, as in Kafka: the first consumer of
        a group that starts does not get everything before the others are there."""
        rows: dict[Where, _Row] = {}
        self._has_held_back = False
        self._unsearched.clear()
        left = self._body.max_records
        for led, one, where in found:
            if left <= 0:
                break
            if where in self._just_read and not self._just_read.isdisjoint(rows):
                continue
            row = self._acquire_one(led, one, left)
            if row.acquired:
                rows[where] = row
                left -= sum(each.last - each.first + 1 for each in row.acquired)
        return rows

    def _acquire_one(self, led: LedShare, found: Found, max_records: int) -> _Row:
        share = led.share
        assert share is not None
        wanted_last = share.last_offset_wanted(found.offset, max_records)
        fetched = share_reading.read(found, last_offset=wanted_last, known_times=self._known_times)
        if fetched.unsearched_offset is not None:
            self._unsearched.append((led.partition, fetched.unsearched_offset))
        batches = fetched.batches
        if fetched.times:
            clocks = Clocks(self._node.clock.now_ms(), self._node.now_ms())
            times = fetched.times_since(found.offset)
            held = hold_back(share, fetched.batches, times, clocks=clocks)
            self._sharing.partitions.held_back(led, held.archived)
            self._has_held_back |= held.has_changed
            batches = held.fetched
        ranges = acquire(
            share,
            self._session.key.member_id,
            fetch_offset=found.offset,
            fetched=batches,
            wanted=Wanted(
                max_records,
                max(self._body.batch_size, 1),
                self._body.share_acquire_mode == _EXACT_LIMIT,
            ),
            now_ms=self._node.now_ms(),
        )
        if fetched.aborted and ranges:
            for batch in fetched.aborted:
                share.archive_acquired(batch.first, batch.last)
            ranges = without(ranges, fetched.aborted)
        self._sharing.partitions.arm(led)
        if not ranges:
            return _Row()
        return _Row(records=fetched.records(ranges[0].first, ranges[-1].last), acquired=ranges)

    # -- answering ----------------------------------------------------------------------

    def _response(self, rows: dict[Where, _Row], results: Results) -> ShareFetchResponse:
        topics: dict[object, ShareFetchTopicResponse] = {}
        leaders = []
        for where in {**rows, **results}:
            row = rows.get(where, _Row())
            code = KafkaCode.NONE if row.error is None else row.error.code
            said = results.get(where)
            state = self._node.image.topics_by_id.get(where.topic_id)
            name = None if state is None else state.name
            leader = current_leader(self._node, code, name, where.partition)
            leaders.append(leader)
            topic = topics.setdefault(
                where.topic_id, ShareFetchTopicResponse(topic_id=where.topic_id, partitions=[])
            )
            topic.partitions.append(
                ShareFetchPartitionResponse(
                    partition_index=where.partition,
                    error_code=code,
                    error_message=None if row.error is None else row.error.message,
                    acknowledge_error_code=KafkaCode.NONE if said is None else said.code,
                    acknowledge_error_message=None if said is None else said.message,
                    current_leader=leader,
                    records=row.records,
                    acquired_records=[
                        AcquiredRecords(
                            first_offset=one.first,
                            last_offset=one.last,
                            delivery_count=one.delivery_count,
                        )
                        for one in row.acquired
                    ],
                )
            )
        limits = self._sharing.partitions.limits_of(self._session.key.group_id)
        return ShareFetchResponse(
            error_code=KafkaCode.NONE,
            error_message=None,
            acquisition_lock_timeout_ms=limits.lock_ms,
            responses=list(topics.values()),
            node_endpoints=endpoints(self._node, self._request.listener, leaders),
        )


async def _wait(watched: Iterable[FetchWaits], seconds: float) -> None:
    """Until something has changed at one of the partitions, or the time is over."""
    wait = FetchWait(1)
    places = list(watched)
    for place in places:
        place.add(wait)
    try:
        await asyncio.wait([wait.future], timeout=max(seconds, 0))
    finally:
        for place in places:
            place.remove(wait)
