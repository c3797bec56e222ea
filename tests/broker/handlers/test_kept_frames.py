"""Requests that wait for their answer keep none of their frame, which nobody counts any more.

Covers broker/handlers/join_group.py, broker/handlers/push_telemetry.py.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from millstream.broker.network.connection import SHARED_BUFFER_BYTES
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.requests.routes import import_handler, served
from millstream.config import load_config
from millstream.errors import KafkaCode
from millstream.model import ANONYMOUS
from millstream.wire.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from millstream.wire.apis.join_group import JoinGroupProtocol, JoinGroupRequest
from millstream.wire.apis.push_telemetry import PushTelemetryRequest
from millstream.wire.codec import request_writer, response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.headers import SIZE_BYTES, RequestHeader, write_request_header
from millstream.wire.message import Message
from tests.support.open_node import OpenNode
from tests.support.otlp import gauge, metrics_data

# A frame of this size is not copied before it is decoded.
_TAG_BYTES = 2 * SHARED_BUFFER_BYTES
_UNKNOWN_TAG = 77


class _Socket:
    def fileno(self) -> int:
        return 0


class _Connection:
    sock = _Socket()
    client_id = client_software = session = shortcut = last_request = None
    listener = "PLAINTEXT"
    principal = ANONYMOUS
    peer = "127.0.0.1:1"
    address = client = "127.0.0.1"
    proved_node_id = -1
    is_closed = False

    def __init__(self) -> None:
        self.held: list[int] = []

    def hold_memory(self, size_bytes: int) -> Callable[[], None]:
        self.held.append(size_bytes)
        return self.held.clear

    def is_abandoned(self) -> bool:
        return self.is_closed


def _frame(request: Message, version: int) -> bytearray:
    """The request with a large tagged field that nobody knows."""
    out = bytearray()
    write_request_header(out, RequestHeader(request.api.key, version, 1, "app"))
    request_writer(type(request), version)(out, request)
    assert out.pop() == 0, "no tagged fields"
    out += bytes([1, _UNKNOWN_TAG])
    size = _TAG_BYTES
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    out += bytes(_TAG_BYTES)
    return out


def _ask(node: OpenNode, connection: Any, request: Message, version: int) -> Any:
    """A task for the answer; what comes in between keeps nothing of the frame."""
    frame = _frame(request, version)
    reply = node.dispatch(connection, memoryview(frame))
    if isinstance(reply, Pending):
        assert asyncio.iscoroutine(reply.answer)
        waiting = asyncio.ensure_future(reply.answer)
        # Refused with BufferError while there is a view of it.
        frame.clear()
        return waiting, reply.gate
    return _read(request, version, reply)


def _read(request: Message, version: int, pieces: Pieces) -> Any:
    [piece] = pieces
    assert isinstance(piece, bytearray)
    cursor = Cursor(memoryview(piece)[SIZE_BYTES + 4 :])
    cursor.skip_tags()
    return response_reader(type(request), version)(cursor)


def play(folder: Path, scenario: Callable[[OpenNode], Awaitable[None]], **options: str) -> None:
    async def run() -> None:
        flags = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", **options}
        # The first request of a process waits for this as well, in whichever test it is.
        for request in (JoinGroupRequest, GetTelemetrySubscriptionsRequest, PushTelemetryRequest):
            import_handler(served()[request.api.key])
        node = OpenNode(load_config(flags=flags), dev=True)
        await node.start()
        try:
            await scenario(node)
        finally:
            await node.stop()

    asyncio.run(run())


def test_a_member_that_waits_for_others_keeps_none_of_its_frame(tmp_path: Path) -> None:
    metadata = b"m" * 1000
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupProtocol(name="range", metadata=metadata)],
    )

    async def scenario(node: OpenNode) -> None:
        await node.coordinators.ensure_topic()
        request.member_id = _ask_for_id(node)
        waiting, _ = _ask(node, _Connection(), request, 9)
        await asyncio.sleep(0)
        [group] = _groups(node)
        [member] = group.members.values()
        assert member.protocols == (("range", metadata),)
        assert type(member.protocols[0][1]) is bytes
        assert not waiting.done()
        answer = _read(request, 9, await waiting)
        assert (answer.error_code, answer.member_id) == (KafkaCode.NONE, request.member_id)
        assert answer.members[0].metadata == metadata

    def _ask_for_id(node: OpenNode) -> str:
        refused = _ask(node, _Connection(), request, 9)
        assert refused.error_code == KafkaCode.MEMBER_ID_REQUIRED
        member_id = refused.member_id
        assert isinstance(member_id, str)
        return member_id

    play(tmp_path, scenario, **{"group.initial.rebalance.delay.ms": "200"})


def _groups(node: OpenNode) -> list[Any]:
    shards = node.coordinators.shards.all
    return [group for shard in shards for group in shard.state.groups.values()]


def test_metrics_that_wait_for_the_thread_count_and_keep_none_of_their_frame(
    tmp_path: Path,
) -> None:
    metrics = metrics_data(gauge("m", 1.0))

    async def scenario(node: OpenNode) -> None:
        connection = _Connection()
        node.image.client_metrics["all"] = {"metrics": "*"}
        given = _ask(
            node,
            connection,
            GetTelemetrySubscriptionsRequest(client_instance_id=uuid.UUID(int=0)),
            0,
        )
        push = PushTelemetryRequest(
            client_instance_id=given.client_instance_id,
            subscription_id=given.subscription_id,
            terminating=False,
            compression_type=0,
            metrics=metrics,
        )
        async with node.services.turns._thread:
            waiting, is_gate = _ask(node, connection, push, 0)
            await asyncio.sleep(0)
            assert is_gate
            assert connection.held == [len(metrics)]
        assert _read(push, 0, await waiting).error_code == KafkaCode.NONE
        assert connection.held == []
        [client] = node.services.telemetry.clients(node.node.now_ms())
        assert client.metrics is not None
        assert [point.name for point in client.metrics.points] == ["m"]

    play(tmp_path, scenario)
