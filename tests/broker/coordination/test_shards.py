"""The timers of shards, on a node whose clock a test moves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from millstream.broker.coordination import shards
from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.member_quota import Caller
from millstream.clock import Clock
from millstream.config import load_config
from millstream.coordinators.consumer.heartbeat import HeartbeatReply, HeartbeatRequest
from millstream.coordinators.groups import requests
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.delete_groups import DeleteGroupsRequest
from tests.support.broker import Broker
from tests.support.open_node import OpenNode
from tests.support.raw_client import RawClient


class LateClock:
    """As the system's, and some seconds ahead: a loop that was busy sees such jumps."""

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self.ahead_seconds = 0.0

    def now_ms(self) -> int:
        return self._inner.now_ms()

    def monotonic(self) -> float:
        return self._inner.monotonic() + self.ahead_seconds


async def join(groups: GroupCoordinators, member_id: str) -> HeartbeatReply:
    heartbeat = HeartbeatRequest(
        group_id="g",
        member_id=member_id,
        epoch=0,
        client_id="c",
        client_host="/127.0.0.1",
        instance_id="i",
        rebalance_timeout_ms=60_000,
        topics=("t",),
        owned={},
    )
    groups.admit_member("g", Caller("127.0.0.1", heartbeat.client_host), 1)
    answer = groups.submit(
        "g", lambda state, env: requests.consumer_heartbeat(state, heartbeat, env)
    )
    return await answer if isinstance(answer, asyncio.Future) else answer


@asynccontextmanager
async def node_whose_member_is_silent(folder: Path) -> AsyncIterator[OpenNode]:
    """The session of the group's member is over."""
    flags = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
    node = OpenNode(load_config(flags=flags), dev=True)
    await node.start()
    try:
        clock = node.node.clock = LateClock(node.node.clock)
        await node.coordinators.ensure_topic()
        await join(node.coordinators, "first")
        # The loop's timer does not know that the time is over.
        clock.ahead_seconds = 60.0
        yield node
    finally:
        await node.stop()


async def joins_after_the_session_of_its_predecessor(folder: Path) -> HeartbeatReply:
    async with node_whose_member_is_silent(folder) as node:
        return await join(node.coordinators, "second")


async def deletes_the_group_after_the_session_of_its_member(folder: Path) -> int:
    async with node_whose_member_is_silent(folder) as node:

        def delete() -> int:
            with RawClient(f"127.0.0.1:{node.port}") as client:
                return client.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code

        return await asyncio.to_thread(delete)


def test_an_instance_id_is_free_when_the_session_is_over_and_its_timer_has_not_fired(
    tmp_path: Path,
) -> None:
    reply = asyncio.run(joins_after_the_session_of_its_predecessor(tmp_path))
    assert reply.member_id == "second"


def test_a_group_is_deleted_when_the_session_is_over_and_its_timer_has_not_fired(
    tmp_path: Path,
) -> None:
    code = asyncio.run(deletes_the_group_after_the_session_of_its_member(tmp_path))
    assert code == KafkaCode.NONE


def test_a_shard_that_could_not_be_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TopicPartition("t", 0, 7)
    with Broker(data_dir=tmp_path, topics={"t": 1}) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()
    failures = [KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, "I/O error"), OSError(24, "too many")]
    read = shards.PartitionPort.read

    def fail_at_first(port: shards.PartitionPort, offset: int) -> Any:
        if failures:
            raise failures.pop()
        return read(port, offset)

    monkeypatch.setattr(shards.PartitionPort, "read", fail_at_first)
    monkeypatch.setattr(shards, "_RELOAD_SECONDS", 0.05)
    with Broker(data_dir=tmp_path) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        [found] = consumer.committed([place], timeout=20)
        consumer.close()
    assert found.offset == 7
    assert failures == []


def test_hashes_of_long_names_are_computed_and_not_kept() -> None:
    shards._known_hash.cache_clear()
    long_name = "ab" * 1000
    expected = 0
    for character in long_name:
        expected = (31 * expected + ord(character)) & 0xFFFFFFFF
    assert shards.java_hash(long_name) & 0xFFFFFFFF == expected
    assert shards._known_hash.cache_info().currsize == 0
    assert shards.java_hash("ab") == shards.java_hash("ab")
    assert shards._known_hash.cache_info().currsize == 1
