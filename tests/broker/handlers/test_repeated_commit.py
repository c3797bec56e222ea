"""One client committing the same partitions again and again: the third commit takes a
shortcut, and nobody can tell by the answers.

Covers broker/handlers/offset_commit.py, broker/requests/dispatch.py.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.handlers import offset_commit
from millstream.broker.network.replies import Pending
from millstream.broker.requests.admission import CommitAdmission
from millstream.broker.requests.request import Request
from millstream.broker.requests.routes import import_handler, served
from millstream.cluster.changes import NewTopic
from millstream.config import load_config
from millstream.errors import KafkaCode, KafkaError
from millstream.model import ANONYMOUS
from millstream.replication.admission import Refusal
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from millstream.wire.codec import request_writer, response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.headers import RequestHeader, read_request_header, write_request_header
from tests.broker.handlers.test_groups import commit, fetch, find_coordinator
from tests.broker.handlers.test_produce_durability import HeldDurability
from tests.support.broker import Broker
from tests.support.open_node import OpenNode as Node
from tests.support.raw_client import RawClient

REPEATED = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 3}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        find_coordinator(connected)
        yield connected


@pytest.mark.parametrize("version", [8, 9, 10])
def test_the_last_offset_counts(client: RawClient, version: int) -> None:
    for offset in range(REPEATED + 2):
        assert commit(client, f"again-{version}", offset, version=version) == KafkaCode.NONE
        assert fetch(client, f"again-{version}", 9) == offset


def test_another_group_of_the_same_length_is_another_group(client: RawClient) -> None:
    for offset in range(REPEATED):
        commit(client, "group-a", offset)
    assert commit(client, "group-b", 77) == KafkaCode.NONE
    assert fetch(client, "group-a", 9) == REPEATED - 1
    assert fetch(client, "group-b", 9) == 77


def going_frame(correlation_id: int) -> bytearray:
    out = bytearray()
    write_request_header(out, RequestHeader(OffsetCommitRequest.api.key, 8, correlation_id, "app"))
    one = OffsetCommitPartition(
        partition_index=0,
        committed_offset=correlation_id,
        committed_leader_epoch=-1,
        committed_metadata="",
    )
    request_writer(OffsetCommitRequest, 8)(
        out,
        OffsetCommitRequest(
            group_id="readers",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[OffsetCommitTopic(name="going", partitions=[one])],
        ),
    )
    return out


def code_in(frame: bytes) -> int:
    cursor = Cursor(memoryview(frame))
    cursor.int32()
    cursor.skip_tags()
    answer = response_reader(OffsetCommitRequest, 8)(cursor)
    return int(answer.topics[0].partitions[0].error_code)


def test_a_partition_that_is_gone_is_refused(client: RawClient, broker: Broker) -> None:
    broker.create_topic("going")
    for number in range(REPEATED):
        client.send_frame(bytes(going_frame(number)))
        assert code_in(client.receive_frame()) == KafkaCode.NONE
    broker.delete_topic("going")
    client.send_frame(bytes(going_frame(REPEATED)))
    assert code_in(client.receive_frame()) == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_refused_commit_leaves_nothing_with_the_connection() -> None:
    admission = CommitAdmission(1, Refusal(KafkaCode.GROUP_AUTHORIZATION_FAILED), {})
    parts: Any = SimpleNamespace(
        node=SimpleNamespace(
            config=SimpleNamespace(int=lambda name: 1 << 20), image=SimpleNamespace(topics={})
        ),
        admissions=SimpleNamespace(of_commit=lambda *asked: admission),
    )
    connection: Any = SimpleNamespace(shortcut=None, last_request=None, client="127.0.0.1")
    for number in range(REPEATED):
        cursor = Cursor(memoryview(going_frame(number)))
        request = Request(read_request_header(cursor), connection)
        [piece] = offset_commit.handle(parts, request, cursor)  # type: ignore[misc]
        assert isinstance(piece, bytearray)
        assert code_in(bytes(piece)[4:]) == KafkaCode.GROUP_AUTHORIZATION_FAILED
        assert (connection.shortcut, connection.last_request) == (None, None)


async def codes_of_held_commits(folder: Path) -> list[int]:
    flags = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
    # The first request of a process waits for this as well, in whichever test it is.
    import_handler(served()[OffsetCommitRequest.api.key])
    node = Node(load_config(flags=flags), dev=True)
    await node.start()
    kept = node.node.disk.durability
    codes = []
    try:
        await node.topics.create([NewTopic("going", 1, 1)], validate_only=False)
        await node.coordinators.ensure_topic()
        disk = HeldDurability()
        node.node.disk.durability = disk  # type: ignore[assignment]
        connection: Any = SimpleNamespace(
            client_id=None,
            listener="PLAINTEXT",
            principal=ANONYMOUS,
            peer="127.0.0.1:1",
            proved_node_id=-1,
            client="127.0.0.1",
            shortcut=None,
            last_request=None,
            is_closed=False,
        )
        for number in range(REPEATED + 1):
            reply = node.dispatch(connection, memoryview(going_frame(number)))
            assert isinstance(reply, Pending)
            if number < REPEATED:
                disk.waits[-1].set_result(None)
            else:
                disk.waits[-1].set_exception(KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, "gone"))
            done: Any = reply.answer
            await asyncio.wait([done])
            assert reply.finish is not None
            [piece] = reply.finish(done)
            assert isinstance(piece, (bytes, bytearray))
            codes.append(code_in(bytes(piece)[4:]))
        assert connection.shortcut is not None
    finally:
        node.node.disk.durability = kept
        await node.stop()
    return codes


def test_the_answer_waits_for_the_disk_and_tells_of_its_failure(tmp_path: Path) -> None:
    codes = asyncio.run(codes_of_held_commits(tmp_path))
    assert codes == [KafkaCode.NONE] * REPEATED + [KafkaCode.NOT_COORDINATOR]
