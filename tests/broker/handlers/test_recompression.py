"""A produce that waits for recompression keeps its own copy of every batch in it.

Covers broker/handlers/produce.py.
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from millstream.broker.network.replies import Pending
from millstream.cluster.changes import NewTopic
from millstream.config import load_config
from millstream.model import ANONYMOUS
from millstream.records.builder import build_batch
from millstream.records.records import Record
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.codec import request_writer
from millstream.wire.headers import RequestHeader, write_request_header
from tests.support.open_node import OpenNode


def two_topics_frame(now_ms: int) -> bytearray:
    out = bytearray()
    write_request_header(out, RequestHeader(ProduceRequest.api.key, 9, 1, "app"))
    data = build_batch([Record(0, now_ms, None, b"v" * 1000, [])], base_offset=0)
    topics = [
        ProduceTopicData(name=name, partition_data=[ProducePartitionData(index=0, records=data)])
        for name in ("packed", "plain")
    ]
    request_writer(ProduceRequest, 9)(
        out, ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=topics)
    )
    return out


async def produced_while_the_buffer_is_reused(folder: Path) -> list[int]:
    flags = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
    node = OpenNode(load_config(flags=flags), dev=True)
    await node.start()
    try:
        wanted = [
            NewTopic("packed", 1, 1, configs={"compression.type": "lz4"}),
            NewTopic("plain", 1, 1),
        ]
        await node.topics.create(wanted, validate_only=False)
        frame = two_topics_frame(node.clock.now_ms())
        connection: Any = SimpleNamespace(
            client_id=None,
            listener="PLAINTEXT",
            principal=ANONYMOUS,
            proved_node_id=-1,
            client="127.0.0.1",
            shortcut=None,
            last_request=None,
            is_closed=False,
            hold_memory=lambda size_bytes: lambda: None,
        )
        answer = node.dispatch(connection, memoryview(frame))
        assert isinstance(answer, Pending)
        # Another connection receives before the loop comes to the waiting one.
        frame[:] = b"\xdd" * len(frame)
        await answer.answer
        return [node.partitions.get(name, 0).log.next_offset for name in ("packed", "plain")]
    finally:
        await node.stop()


def test_batches_outlive_the_shared_buffer(tmp_path: Path) -> None:
    assert asyncio.run(produced_while_the_buffer_is_reused(tmp_path)) == [1, 1]
