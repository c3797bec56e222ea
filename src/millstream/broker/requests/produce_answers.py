"""The response to a produce: at once, or when its records are safe."""

import asyncio
from collections.abc import Callable
from functools import partial

from millstream.broker.network.replies import Pieces
from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, KafkaError, NoSpace
from millstream.records.validation import RecordErrors
from millstream.wire.headers import finish_frame, response_header
from millstream.wire.produce import ProduceResult, ProduceTopic, write_produce_response

Results = list[tuple[ProduceTopic, list[ProduceResult]]]
# Responses that wait for the disk: the result to change on failure, and what it waits for.
Waits = list[tuple[ProduceResult, "asyncio.Future[None]"]]


def refused_result(node: NodeState, result: ProduceResult, error: KafkaError) -> ProduceResult:
    """The append has failed."""
    if isinstance(error, RecordErrors):
        result.record_errors = error.record_errors
    elif isinstance(error, NoSpace):
        node.disk.note_no_space(error)
    return failed(result, error)


def failed(result: ProduceResult, error: KafkaError) -> ProduceResult:
    result.code = error.code
    result.message = error.message
    result.base_offset = result.append_time_ms = result.log_start_offset = -1
    return result


def answer_when_durable(
    request: Request, timeout_ms: int, results: Results, waits: Waits
) -> "asyncio.Future[Pieces]":
    """Done when everything is safe, or at the deadline."""
    unsafe = [future for _, future in waits]
    return answer_when_done(timeout_ms, unsafe, partial(answer_durable, request, results, waits))


def answer_when_done(
    timeout_ms: int, unsafe: list["asyncio.Future[None]"], make_answer: Callable[[], Pieces]
) -> "asyncio.Future[Pieces]":
    """The answer, made when all futures are done, or at the deadline. Callbacks, because a task
    costs more. The list is used up."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Pieces] = loop.create_future()

    def answer() -> None:
        timer.cancel()
        if answered.done():
            return
        try:
            answered.set_result(make_answer())
        except Exception as error:
            answered.set_exception(error)

    def go_on(_: "asyncio.Future[None] | None" = None) -> None:
        # One sync makes most of them safe together, so one callback serves nearly all.
        while unsafe and unsafe[-1].done():
            unsafe.pop()
        if unsafe:
            unsafe[-1].add_done_callback(go_on)
        else:
            answer()

    timer = loop.call_later(max(timeout_ms, 0) / 1000, answer)
    unsafe[-1].add_done_callback(go_on)
    return answered


def answer_durable(request: Request, results: Results, waits: Waits) -> Pieces:
    for result, future in waits:
        if future.cancelled() or not future.done():
            # It is in the log and may still become durable; the producer must retry.
            future.cancel()
            failed(result, KafkaError(KafkaCode.REQUEST_TIMED_OUT))
            continue
        error = future.exception()
        if isinstance(error, KafkaError):
            failed(result, error)
        elif error is not None:
            raise error
    return answer_produce(request, results)


def answer_produce(request: Request, results: Results) -> Pieces:
    out = response_header(request.header)
    write_produce_response(out, request.version, results)
    return [finish_frame(out)]
