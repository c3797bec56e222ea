"""Produce (0), versions 3-13; 0-2 are listed for old librdkafka and refused.

Each partition's batch is restamped in place and appended. acks 0 and 1 are answered at once.
acks all is answered when the record is safe; at the request's deadline it gets a timeout.

A connection that writes to the same topic repeatedly gets a shortcut, which recognises the
request by its first bytes (`requests.repeated_produces`). In compiled code, many connections
share a write (`network.receiving`). A request with more than a hundred batches, or two megabytes,
is appended in parts, and read in a thread if there are thousands of batches. All routes get their
terms from `requests.admission` and end in `Partition.append`, which takes one batch or a group of
them.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.broker.coordination.hosting import Coordinators
from millstream.broker.network.connection import SHARED_BUFFER_BYTES, kept_writable_frame
from millstream.broker.network.replies import Pending, Pieces, settled
from millstream.broker.node.state import NodeState
from millstream.broker.requests.admission import Admissions
from millstream.broker.requests.batch_checks import Heavy, Ready, check_heavy, make_ready
from millstream.broker.requests.heavy_checks import HeavyChecks
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.produce_answers import (
    Results,
    Waits,
    answer_produce,
    answer_when_durable,
    failed,
    refused_result,
)
from millstream.broker.requests.repeated_produces import repeated_shortcut
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import REST_SECONDS, Turns
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID, Codec
from millstream.records.batch import CODEC_MASK, HEADER_BYTES, MAGIC, BatchView
from millstream.records.validation import LIGHT_PLAIN, CheckedBatch, produced_batch
from millstream.replication.partition import Partition
from millstream.security.acl import ResourceType
from millstream.wire.cursor import Cursor, TooManyElements
from millstream.wire.produce import (
    ACKS_ALL,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    read_produce_request,
)
from millstream.wire.repeated import repeated_produce

if TYPE_CHECKING:
    from millstream.broker.requests.verification import Refused

READS_FRAME = True
VERSION_MIN = 3
# Clients that are older do not know it.
_ZSTD_VERSION_MIN: Final = 7
# What one produce may hold; a node does not have so many partitions.
BATCHES_MAX: Final = 20_000
# More are read in a thread: so many take a millisecond.
_READ_AT_ONCE_MAX: Final = 1_000
# With more, or more than `LIGHT_PLAIN` bytes, it is appended in parts of so many, or so many bytes:
# about a millisecond. While several clients use the node, they have the loop to themselves after a
# few parts, as with floods (`network.client_turns`).
_FEW_BATCHES: Final = 100
_PART_BATCHES: Final = 50
_PART_BYTES: Final = 1 << 20
_PARTS_BEFORE_REST: Final = 4


class Parts(Protocol):
    """The parts of the node that a produce uses."""

    @property
    def node(self) -> NodeState: ...
    @property
    def admissions(self) -> Admissions: ...
    @property
    def permissions(self) -> Permissions: ...
    @property
    def coordination(self) -> Coordinators: ...
    @property
    def counts(self) -> dict[int, int]: ...
    @property
    def heavy_checks(self) -> HeavyChecks: ...
    @property
    def turns(self) -> Turns: ...


def handle(parts: Parts, request: Request, cursor: Cursor) -> Pieces | Pending:
    start = cursor.position
    if len(cursor.data) > LIGHT_PLAIN:
        return _later(parts, request, cursor.data, start)
    # The topics count, too.
    cursor.elements_left = _FEW_BATCHES
    try:
        body = read_produce_request(cursor, request.version)
    except TooManyElements:
        return _later(parts, request, cursor.data, start)
    _resolve_topic_ids(parts, body)
    if body.transactional_id is not None:
        denied = _transaction_denial(parts, request, body.transactional_id)
        if denied is not None:
            return _answer(request, body, _refuse(body, denied), [])
    ready, heavy = make_ready(parts.node, parts.admissions, request.connection, body)
    if heavy:
        # The effect comes after a wait. So the connection's next frame has to wait too.
        _keep_records(body, cursor.data)
        return Pending(_append_heavy(parts, request, body, heavy), gate=True)
    if body.transactional_id is None:
        return _append_and_remember(parts, request, body, ready, cursor.data)
    checked = _check_transaction(parts, request, body)
    if isinstance(checked, dict):
        return _append_all(parts, request, body, ready, checked)
    _keep_records(body, cursor.data)
    return Pending(_append_when_checked(parts, request, body, checked), gate=True)


def _later(parts: Parts, request: Request, frame: memoryview, start: int) -> Pending:
    kept = kept_writable_frame(frame)
    return Pending(_handle_large(parts, request, kept, start), gate=True)


async def _handle_large(parts: Parts, request: Request, frame: memoryview, start: int) -> Pieces:
    # What waits to be appended counts as received.
    release = request.connection.hold_memory(len(frame))
    try:
        answer = await _append_large(parts, request, frame, start)
    finally:
        release()
    return await settled(answer)


async def _append_large(
    parts: Parts, request: Request, frame: memoryview, start: int
) -> Pieces | Pending:
    turns = parts.turns
    try:
        body = read_produce_request(Cursor(frame, start, _READ_AT_ONCE_MAX), request.version)
    except TooManyElements:
        cursor = Cursor(frame, start, BATCHES_MAX, each=turns.pace(request))
        async with turns.large_request(request):
            body = await turns.in_thread(partial(read_produce_request, cursor, request.version))
    _resolve_topic_ids(parts, body)
    if body.transactional_id is not None:
        denied = _transaction_denial(parts, request, body.transactional_id)
        if denied is not None:
            return _answer(request, body, _refuse(body, denied), [])
    results: Results = []
    waits: Waits = []
    for number, part in enumerate(_parts_of(body), 1):
        ready, heavy = make_ready(parts.node, parts.admissions, request.connection, part)
        if heavy or body.transactional_id is not None:
            ready = await _check_heavy(parts, request, part, heavy)
            if request.connection.is_closed:
                return []
            results += await _append_checked(parts, request, part, ready, waits)
        else:
            results += _append_batches(parts, request, part, ready, waits, None)
        must_rest = number % _PARTS_BEFORE_REST == 0 and turns.must_rest(request)
        await asyncio.sleep(REST_SECONDS if must_rest else 0)
    return _answer(request, body, _joined(results), waits)


def _parts_of(body: ProduceRequest) -> Iterator[ProduceRequest]:
    """Requests with a few of the batches each, in order."""
    topics: list[ProduceTopic] = []
    count = size_bytes = 0
    for topic in body.topics:
        # A topic without any is answered, too.
        few: list[tuple[int, memoryview | None]] = []
        topics.append(ProduceTopic(topic.name, topic.topic_id, few))
        count += 1
        for index, data in topic.partitions:
            if few and (count > _PART_BATCHES or size_bytes > _PART_BYTES):
                yield ProduceRequest(body.transactional_id, body.acks, body.timeout_ms, topics)
                few = []
                topics = [ProduceTopic(topic.name, topic.topic_id, few)]
                count, size_bytes = 1, 0
            few.append((index, data))
            count += 1
            size_bytes += len(data or b"")
        if count > _PART_BATCHES or size_bytes > _PART_BYTES:
            yield ProduceRequest(body.transactional_id, body.acks, body.timeout_ms, topics)
            topics, count, size_bytes = [], 0, 0
    if topics:
        yield ProduceRequest(body.transactional_id, body.acks, body.timeout_ms, topics)


def _joined(results: Results) -> Results:
    """The parts of a topic together, as it was named."""
    joined: Results = []
    for topic, found in results:
        if joined and (joined[-1][0].name, joined[-1][0].topic_id) == (topic.name, topic.topic_id):
            joined[-1][1].extend(found)
        else:
            joined.append((topic, found))
    return joined


def _transaction_denial(parts: Parts, request: Request, transactional_id: str) -> KafkaError | None:
    denied = parts.permissions.denial(request, ResourceType.TRANSACTIONAL_ID, transactional_id)
    return None if denied is None else denied.error()


def _append_and_remember(
    parts: Parts, request: Request, body: ProduceRequest, ready: Ready, frame: memoryview
) -> Pieces | Pending:
    answer = _append_all(parts, request, body, ready)
    connection = request.connection
    written = (body.topics[0].name, body.acks) if len(body.topics) == 1 else None
    # Only from the second time on: a client that alternates topics would pay for nothing.
    if written is not None and written == connection.last_request:
        repeated = repeated_produce(frame, request.header, body)
        indexes = [index for index, _ in body.topics[0].partitions]
        connection.shortcut = (
            None if repeated is None else repeated_shortcut(parts, connection, repeated, indexes)
        )
    connection.last_request = written
    return answer


def _check_transaction(
    parts: Parts, request: Request, body: ProduceRequest
) -> "Refused | Coroutine[Any, Any, Refused]":
    if request.version < VERSION_MIN:
        return {}
    # With the coordinators, which no other produce needs: their import takes as long as a start.
    from millstream.broker.requests.verification import check_produce

    return check_produce(parts.node, parts.coordination.transactions, request.version, body)


async def _append_when_checked(
    parts: Parts,
    request: Request,
    body: ProduceRequest,
    checked: "Coroutine[Any, Any, Refused]",
) -> Pieces:
    release = request.connection.hold_memory(_records_bytes(body))
    try:
        refused = await checked
    finally:
        release()
    ready, heavy = make_ready(parts.node, parts.admissions, request.connection, body)
    if heavy:
        # A topic's options have changed meanwhile.
        return await _append_heavy(parts, request, body, heavy)
    answer = _append_all(parts, request, body, ready, refused)
    return await answer.answer if isinstance(answer, Pending) else answer


def _keep_records(body: ProduceRequest, frame: memoryview) -> None:
    """Copies them from the shared buffer, which belongs to the next request once we wait."""
    if len(frame) > SHARED_BUFFER_BYTES:
        return
    for topic in body.topics:
        topic.partitions = [
            (index, None if data is None else memoryview(bytearray(data)))
            for index, data in topic.partitions
        ]


def _records_bytes(body: ProduceRequest) -> int:
    return sum(len(data or b"") for topic in body.topics for _, data in topic.partitions)


def _resolve_topic_ids(parts: Parts, body: ProduceRequest) -> None:
    for topic in body.topics:
        if topic.topic_id is not NO_TOPIC_ID:
            with contextlib.suppress(KafkaError):
                topic.name = parts.node.partitions.name_of(topic.topic_id)


async def _append_heavy(
    parts: Parts, request: Request, body: ProduceRequest, heavy: Heavy
) -> Pieces:
    release = request.connection.hold_memory(_records_bytes(body))
    try:
        checked = await _check_heavy(parts, request, body, heavy)
    finally:
        release()
    if request.connection.is_closed:
        return []
    waits: Waits = []
    results = await _append_checked(parts, request, body, checked, waits)
    return await settled(_answer(request, body, results, waits))


async def _check_heavy(parts: Parts, request: Request, body: ProduceRequest, heavy: Heavy) -> Ready:
    """Ends early when the client is gone."""
    checked: Ready = {}
    for place, work in heavy.items():
        async with parts.heavy_checks.turn(request.connection.client):
            if request.connection.is_closed:
                break
            checked[place] = await check_heavy(body, place, work)
    return checked


async def _append_checked(
    parts: Parts, request: Request, body: ProduceRequest, checked: Ready, waits: Waits
) -> Results:
    refused: Refused | None = None
    if body.transactional_id is not None:
        # Last, so that nothing can end the transaction between the check and the append.
        verified = _check_transaction(parts, request, body)
        refused = verified if isinstance(verified, dict) else await verified
    ready, late = make_ready(parts.node, parts.admissions, request.connection, body, done=checked)
    # Their topic was created or changed meanwhile: clients send them again.
    again = KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER, "the topic has changed meanwhile")
    ready |= dict.fromkeys(late, again)
    return _append_batches(parts, request, body, {**checked, **ready}, waits, refused)


def _append_all(
    parts: Parts,
    request: Request,
    body: ProduceRequest,
    ready: Ready,
    refused: "Refused | None" = None,
) -> Pieces | Pending:
    waits: Waits = []
    results = _append_batches(parts, request, body, ready, waits, refused)
    return _answer(request, body, results, waits)


def _append_batches(
    parts: Parts,
    request: Request,
    body: ProduceRequest,
    ready: Ready,
    waits: Waits,
    refused: "Refused | None",
) -> Results:
    if request.version < VERSION_MIN:
        return _refuse(body, KafkaError(KafkaCode.UNSUPPORTED_VERSION))
    if body.acks not in (ACKS_ALL, 0, 1):
        return _refuse(body, KafkaError(KafkaCode.INVALID_REQUIRED_ACKS))
    return [
        (
            topic,
            [
                _append(
                    *(parts, request, body, topic, index, data),
                    ready.get((number, place)) if ready else None,
                    waits,
                    refused,
                )
                for place, (index, data) in enumerate(topic.partitions)
            ],
        )
        for number, topic in enumerate(body.topics)
    ]


def _answer(
    request: Request, body: ProduceRequest, results: Results, waits: Waits
) -> Pieces | Pending:
    if body.acks == 0:
        _close_on_error(request, results)
        return []
    if waits:
        return Pending(answer_when_durable(request, body.timeout_ms, results, waits))
    return answer_produce(request, results)


def _append(
    parts: Parts,
    request: Request,
    body: ProduceRequest,
    topic: ProduceTopic,
    index: int,
    data: memoryview | None,
    ready: CheckedBatch | KafkaError | None,
    waits: Waits,
    refused: "Refused | None",
) -> ProduceResult:
    """`refused` is None outside of transactions."""
    result = ProduceResult(index)
    try:
        if topic.topic_id is not NO_TOPIC_ID and not topic.name:
            raise KafkaError(KafkaCode.UNKNOWN_TOPIC_ID)
        partition = _locate(parts, request, topic.name, index)
        admission = parts.admissions.of(request.connection, partition)
        if admission.write_denial is not None:
            parts.admissions.write_denial(request.connection, topic.name)
            raise admission.write_denial.error()
        if not data:
            raise KafkaError(KafkaCode.INVALID_RECORD, "no record batch")
        if request.version < _ZSTD_VERSION_MIN and _is_zstd(data):
            raise KafkaError(
                KafkaCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer"
            )
        if refused is not None and (problem := refused.get((topic.name, index))) is not None:
            raise problem
        terms = admission.write_terms(
            is_acks_all=body.acks == ACKS_ALL, is_transactional=refused is not None
        )
        if isinstance(ready, KafkaError):
            raise ready
        appended = partition.append(
            ready or produced_batch(data), terms, now_ms=parts.node.clock.now_ms()
        )
    except KafkaError as error:
        return refused_result(parts.node, result, error.kept())
    result.base_offset = appended.base_offset
    result.append_time_ms = appended.append_time_ms
    result.log_start_offset = appended.log_start_offset
    if not terms.answers_at_once:
        # With flush.messages also what nobody waits for has to be synced.
        wait = parts.node.disk.durability.wait_if_needed(
            partition, appended.next_offset, is_acks_all=body.acks == ACKS_ALL
        )
        if wait is not None and body.acks != 0:
            waits.append((result, wait))
    return result


def _is_zstd(data: memoryview) -> bool:
    if len(data) < HEADER_BYTES:
        return False
    batch = BatchView(data)
    return batch.magic == MAGIC and batch.attributes & CODEC_MASK == Codec.ZSTD


def _locate(parts: Parts, request: Request, topic: str, index: int) -> Partition:
    """Raises KafkaError: to a client that may not write to the topic, not whether it exists."""
    try:
        return parts.node.partitions.get(topic, index)
    except KafkaError:
        denied = parts.admissions.write_denial(request.connection, topic)
        if denied is not None:
            raise denied.error() from None
        raise


def _refuse(body: ProduceRequest, error: KafkaError) -> Results:
    return [
        (topic, [failed(ProduceResult(index), error) for index, _ in topic.partitions])
        for topic in body.topics
    ]


def _close_on_error(request: Request, results: Results) -> None:
    """acks 0 has no response; the producer learns of an error when we close the connection."""
    for topic, partition_results in results:
        for result in partition_results:
            if result.code != KafkaCode.NONE:
                request.connection.close(
                    f"acks=0 produce to {topic.name}-{result.index} failed: "
                    f"{KafkaCode(result.code).name}"
                )
                return
