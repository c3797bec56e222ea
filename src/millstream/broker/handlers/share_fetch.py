"""ShareFetch (78), versions 1-2: acquire records of a share group; acknowledge earlier ones.

Waits for records until `max_wait_ms`, like Fetch. A wait also ends when records in flight
become available again: released, or with their lock over.

A session may have thousands of partitions, and a request for all of them has 80 bytes: many are
looked at and answered in turns.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from itertools import islice
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
from millstream.broker.requests.share_fetch_rows import Row, Rows
from millstream.broker.requests.share_reading import Found
from millstream.broker.requests.timed_reading import TimedReads
from millstream.broker.requests.turns import Turns, stop_if_abandoned
from millstream.coordinators.codecs.share_state import ShareKey
from millstream.coordinators.share.acquiring import Wanted, acquire, without
from millstream.coordinators.share.holding_back import Clocks, hold_back
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.partition import Partition
from millstream.replication.waiting import FetchWait, FetchWaits, add_to_all, remove_from_all
from millstream.security.acl import ResourceType
from millstream.wire.apis.share_fetch import ShareFetchRequest, ShareFetchResponse

_EXACT_LIMIT: Final = 1
_READ_COMMITTED: Final = "read_committed"
# A client that has left does not end its wait.
_WAIT_MS_MAX: Final = 60_000
# One wait is enough, unless what was found is forgotten before it is used.
_SEARCHES_MAX: Final = 10
# More are looked at, and answered, in several turns. Of so many, one fetch takes records.
_PARTITIONS_AT_ONCE_MAX: Final = 200

_NOTHING: Final = Row()

# Where records are to be had, and the share partition there.
_Ready = list[tuple[Where, LedShare]]
_Found = list[tuple[LedShare, Found, Where]]


@dataclass(slots=True)
class _Look:
    """One look at all partitions of a session."""

    # Problems.
    rows: dict[Where, Row] = field(default_factory=dict)
    ready: _Ready = field(default_factory=list)
    # Those whose state is still being read.
    unread: set[Where] = field(default_factory=set)
    # What may end a wait for more.
    watched: list[FetchWaits] = field(default_factory=list)
    wait: FetchWait = field(default_factory=lambda: FetchWait(1))


def handle(
    sharing: Sharing,
    node: NodeState,
    turns: Turns,
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
            check_size(session.size + len(named))
            sharing.sessions.add(session, named)
            for topic in body.forgotten_topics_data:
                for index in topic.partitions:
                    session.forget(Where(topic.topic_id, index))
    except KafkaError as error:
        if error.code is KafkaCode.SHARE_SESSION_LIMIT_REACHED:
            # Other large requests wait until this one is answered.
            return _refuse(error) if request.is_long else _refuse_later(body, error)
        return _refuse(error)
    session.take_back(lambda where: _exists(node, where))
    fetch = _Fetch(sharing, node, turns, permissions, timed_reads.known, request, body, session)
    return fetch.answer(has_acknowledgements=has_acknowledgements)


def _exists(node: NodeState, where: Where) -> bool:
    topic = node.image.topics_by_id.get(where.topic_id)
    return topic is not None and 0 <= where.partition < len(topic.partitions)


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
        turns: Turns,
        permissions: Permissions,
        known_times: KnownTimes,
        request: Request,
        body: ShareFetchRequest,
        session: ShareSession,
    ) -> None:
        self._sharing = sharing
        self._node = node
        self._turns = turns
        self._permissions = permissions
        self._known_times = known_times
        self._request = request
        self._body = body
        self._session = session
        self._takes_turns = len(session.partitions) > _PARTITIONS_AT_ONCE_MAX
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
        rows: dict[Where, Row] | None = {}
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
        self, rows: dict[Where, Row] | None, results: Results | Coroutine[Any, Any, Results]
    ) -> ShareFetchResponse:
        """`rows` is None if the fetch has to wait."""
        if rows is None:
            rows, results = await self._fetch_beside(results)
        elif not isinstance(results, dict):
            results = await results
        if self._body.share_session_epoch == FINAL_EPOCH:
            await self._sharing.end_session(self._session)
        response = self._response(rows, results)
        return response if isinstance(response, ShareFetchResponse) else await response

    async def _fetch_beside(
        self, results: Results | Coroutine[Any, Any, Results]
    ) -> tuple[dict[Where, Row], Results]:
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

    def _fetch_at_once(self) -> dict[Where, Row] | None:
        """What a first look finds, as most do where records wait; None if that is nothing."""
        if self._takes_turns or self._request.connection.is_abandoned():
            return None
        look = _Look()
        found = self._look(look)
        if not look.rows and not self._is_enough(found):
            return None
        rows = look.rows
        rows.update(self._acquire(found))
        if self._unsearched:
            self._begin_search()
        return rows or None

    def _is_enough(self, found: _Found) -> bool:
        size_bytes = sum(one.file_range.length for _, one, _ in found)
        return bool(found) and size_bytes >= self._body.min_bytes

    async def _fetch(self) -> dict[Where, Row]:
        loop = asyncio.get_running_loop()
        was_long = self._request.is_long
        # Other large requests wait until this one is answered.
        wait_ms = 0 if was_long else self._body.max_wait_ms
        ends_at = loop.time() + min(max(wait_ms, 0), _WAIT_MS_MAX) / 1000
        while True:
            look = _Look()
            try:
                found = await self._look_again(look)
                if found is None:
                    # Nobody would give back what is acquired now.
                    return {}
                is_over = loop.time() >= ends_at
                if look.rows or self._is_enough(found) or is_over or not self._may_wait(look):
                    acquired = self._acquire(found)
                    if self._unsearched and await self._search(is_awaited=not acquired):
                        continue
                    rows = look.rows
                    rows.update(acquired)
                    if rows or is_over or not self._has_held_back:
                        if len(rows) <= _PARTITIONS_AT_ONCE_MAX and not was_long:
                            self._turns.long_answers.end(self._request)
                        return rows
                    # Nothing of what was there is due: look for what is behind it.
                    await asyncio.sleep(0)
                    continue
                if not was_long:
                    # Nobody stands in line behind a request that waits for records.
                    self._turns.long_answers.end(self._request)
                if not self._takes_turns:
                    add_to_all(look.watched, look.wait)
                await asyncio.wait([look.wait.future], timeout=max(ends_at - loop.time(), 0))
            finally:
                remove_from_all(look.watched, look.wait)

    def _may_wait(self, look: _Look) -> bool:
        """Is there anything that may come? Of absent partitions the next request may tell."""
        return bool(look.watched or self._session.absent)

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

    async def _look_again(self, look: _Look) -> _Found | None:
        """None if the session ended while this waited."""
        stop_if_abandoned(self._request)
        if not self._sharing.sessions.is_open(self._session):
            return None
        if not self._takes_turns:
            return self._look(look)
        async for where in self._turns.each_in_line(self._request, self._places()):
            known = len(look.watched)
            self._look_at(where, look)
            # The wait begins in the turn of the look: what comes between two turns ends it, too.
            add_to_all(look.watched[known:], look.wait)
        if not self._sharing.sessions.is_open(self._session):
            return None
        still_ready = (one for one in look.ready if _is_ready(one[1]))
        look.ready = list(islice(still_ready, _PARTITIONS_AT_ONCE_MAX))
        return self._read_ready(look)

    def _look(self, look: _Look) -> _Found:
        for where in self._places():
            self._look_at(where, look)
        return self._read_ready(look)

    def _places(self) -> list[Where]:
        return self._session.rotated(self._body.share_session_epoch)

    def _look_at(self, where: Where, look: _Look) -> None:
        try:
            led = self._find(where)
        except KafkaError as error:
            look.rows[where] = Row(error.kept())
            return
        look.watched.append(led.waits)
        if led.share is None:
            look.unread.add(where)
            return
        look.watched.append(led.partition.fetch_waits)
        if led.share.may_acquire() and not (self._takes_turns and self._is_at_end(led)):
            look.ready.append((where, led))

    def _is_at_end(self, led: LedShare) -> bool:
        """Most of many partitions are."""
        assert led.share is not None
        partition = led.partition
        end = partition.last_stable_offset if self._is_committed else partition.high_watermark
        return led.share.next_fetch_offset() >= end

    def _read_ready(self, look: _Look) -> _Found:
        """What can be read; problems are noted."""
        self._just_read, self._unread = self._unread - look.unread, look.unread
        found: _Found = []
        ready = look.ready
        bytes_max = min(self._body.max_bytes, self._node.fetch_bytes_max) // max(len(ready), 1)
        for where, led in ready:
            try:
                one = self._read(led, bytes_max, at_least_one=not found)
            except KafkaError as error:
                look.rows[where] = Row(error.kept())
                continue
            if one is not None:
                found.append((led, one, where))
        return found

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
        if led.problem is not None:
            raise led.problem
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

    def _acquire(self, found: _Found) -> dict[Where, Row]:
        """Nothing is awaited between the look at the partitions and this.

        Of partitions whose state was waited for, one is served, as in Kafka: the first consumer of
        a group that starts does not get everything before the others are there."""
        rows: dict[Where, Row] = {}
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

    def _acquire_one(self, led: LedShare, found: Found, max_records: int) -> Row:
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
            return Row()
        return Row(records=fetched.records(ranges[0].first, ranges[-1].last), acquired=ranges)

    # -- answering ----------------------------------------------------------------------

    def _response(
        self, rows: dict[Where, Row], results: Results
    ) -> ShareFetchResponse | Coroutine[Any, Any, ShareFetchResponse]:
        places = {**rows, **results}
        if len(places) > _PARTITIONS_AT_ONCE_MAX:
            return self._response_in_turns(places, rows, results)
        answer = Rows(self._node)
        for where in places:
            self._add_row(answer, where, rows, results)
        return answer.response(self._sharing, self._request, self._session.key.group_id)

    async def _response_in_turns(
        self, places: Iterable[Where], rows: dict[Where, Row], results: Results
    ) -> ShareFetchResponse:
        answer = Rows(self._node)
        async for where in self._turns.each_in_line(self._request, places):
            self._add_row(answer, where, rows, results)
        return answer.response(self._sharing, self._request, self._session.key.group_id)

    def _add_row(
        self, answer: Rows, where: Where, rows: dict[Where, Row], results: Results
    ) -> None:
        row = rows.get(where, _NOTHING)
        answer.add(where, row, results.get(where))
        if row.error is not None and not _exists(self._node, where):
            self._session.set_aside(where)


def _is_ready(led: LedShare) -> bool:
    """Still? It was before some turns of the loop."""
    return led.is_current and led.share is not None and led.share.may_acquire()
