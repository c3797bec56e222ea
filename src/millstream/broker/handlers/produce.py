"""Produce (0), versions 3-13; 0-2 are listed for old librdkafka and refused.

Per partition: append, restamped in place. acks 0 and 1 answer at once; acks all answers
when the record is safe, or says at the request's deadline that it may not be.
"""

import asyncio
from typing import TYPE_CHECKING

from millstream.broker.connection import Pending, Pieces
from millstream.broker.request import Request
from millstream.errors import KafkaCode, KafkaError, NoSpace
from millstream.model import NO_TOPIC_ID
from millstream.records.validation import RecordErrors
from millstream.wire.cursor import Cursor
from millstream.wire.headers import finish_frame, response_header
from millstream.wire.produce import (
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    read_produce_request,
    write_produce_response,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

Results = list[tuple[ProduceTopic, list[ProduceResult]]]
# Answers that wait for the disk: the result to change when they fail, and what they wait for.
Waits = list[tuple[ProduceResult, "asyncio.Future[None]"]]

ACKS_ALL = -1
VERSION_MIN = 3


def handle(broker: "Broker", request: Request, cursor: Cursor) -> Pieces | Pending:
    body = read_produce_request(cursor, request.version)
    waits: Waits = []
    if request.version < VERSION_MIN:
        results = _refuse(body, KafkaError(KafkaCode.UNSUPPORTED_VERSION))
    elif body.acks not in (ACKS_ALL, 0, 1):
        results = _refuse(body, KafkaError(KafkaCode.INVALID_REQUIRED_ACKS))
    else:
        results = [
            (topic, [_append(broker, body, topic, i, data, waits) for i, data in topic.partitions])
            for topic in body.topics
        ]
    if body.acks == 0:
        _close_on_error(request, results)
        return []
    if waits:
        return Pending(_answer_when_durable(request, body, results, waits))
    return _answer(request, results)


def _append(
    broker: "Broker",
    body: ProduceRequest,
    topic: ProduceTopic,
    index: int,
    data: memoryview | None,
    waits: Waits,
) -> ProduceResult:
    result = ProduceResult(index)
    try:
        if topic.topic_id != NO_TOPIC_ID:
            topic.name = broker.partitions.name_of(topic.topic_id)
        partition = broker.partitions.get(topic.name, index)
        if not data:
            raise KafkaError(KafkaCode.INVALID_RECORD, "no record batch")
        if body.transactional_id is not None:
            raise KafkaError(KafkaCode.INVALID_TXN_STATE, "transactions are not supported yet")
        appended = partition.append(data, now_ms=broker.clock.now_ms())
    except RecordErrors as error:
        result.record_errors = error.record_errors
        return _failed(result, error)
    except KafkaError as error:
        if isinstance(error, NoSpace):
            # If descriptors were short, synced files can be closed.
            broker.sync_soon()
        return _failed(result, error)
    result.base_offset = appended.base_offset
    result.append_time_ms = appended.append_time_ms
    result.log_start_offset = appended.log_start_offset
    if body.acks != 0:
        wait = broker.durability.wait_if_needed(
            partition, appended.next_offset, is_acks_all=body.acks == ACKS_ALL
        )
        if wait is not None:
            waits.append((result, wait))
    return result


def _failed(result: ProduceResult, error: KafkaError) -> ProduceResult:
    result.code = error.code
    result.message = error.message
    result.base_offset = result.append_time_ms = result.log_start_offset = -1
    return result


def _refuse(body: ProduceRequest, error: KafkaError) -> Results:
    return [
        (topic, [_failed(ProduceResult(index), error) for index, _ in topic.partitions])
        for topic in body.topics
    ]


def _close_on_error(request: Request, results: Results) -> None:
    """With acks 0 nothing is answered; closing is how the producer learns of an error."""
    for topic, partition_results in results:
        for result in partition_results:
            if result.code != KafkaCode.NONE:
                request.connection.close(
                    f"acks=0 produce to {topic.name}-{result.index} failed: "
                    f"{KafkaCode(result.code).name}"
                )
                return


async def _answer_when_durable(
    request: Request, body: ProduceRequest, results: Results, waits: Waits
) -> Pieces:
    done, _ = await asyncio.wait(
        [future for _, future in waits], timeout=max(body.timeout_ms, 0) / 1000
    )
    for result, future in waits:
        if future not in done:
            # It is in the log and may yet become durable; the producer must ask again.
            future.cancel()
            _failed(result, KafkaError(KafkaCode.REQUEST_TIMED_OUT))
            continue
        error = future.exception()
        if isinstance(error, KafkaError):
            _failed(result, error)
        elif error is not None:
            raise error
    return _answer(request, results)


def _answer(request: Request, results: Results) -> Pieces:
    out = response_header(request.header)
    write_produce_response(out, request.version, results)
    return [finish_frame(out)]
