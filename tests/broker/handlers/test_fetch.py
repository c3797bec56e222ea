"""Fetches that wait, that are small, that are outside the log, and those of a session."""

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.requests.turns import Turns
from millstream.errors import KafkaCode
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from tests.broker.handlers.exchanges import batch, fetch, leader_epoch, produce, values_in
from tests.support.broker import Broker
from tests.support.raw_client import RawClient


def test_the_first_batch_is_whole_however_small_the_limits(client: RawClient, topic: str) -> None:
    produce(client, topic, batch(b"x" * 5000))
    produce(client, topic, batch(b"y" * 5000))
    result = fetch(client, topic, 0, partition_max_bytes=1, max_bytes=1)
    assert values_in(result) == [b"x" * 5000]


def test_a_fetch_waits_for_min_bytes_and_is_woken_by_a_produce(broker: Broker, topic: str) -> None:
    with RawClient(broker.bootstrap) as reader, RawClient(broker.bootstrap) as writer:
        topics = [
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),
                ],
            )
        ]
        reader.send(
            FetchRequest(
                replica_id=-1,
                max_wait_ms=60_000,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=0,
                topics=topics,
            ),
            4,
        )
        produce(writer, topic, batch(b"wake up"))
        result = reader.receive(FetchRequest, 4).responses[0].partitions[0]
        assert values_in(result) == [b"wake up"]


def test_a_fetch_is_woken_by_a_produce_that_came_in_the_same_packet(
    client: RawClient, topic: str
) -> None:
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    sent = [ProducePartitionData(index=0, records=batch(b"wake up"))]
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    client.send(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            topics=[FetchTopic(topic=topic, partitions=wanted)],
        ),
        4,
    )
    client.send(
        ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=1000,
            topic_data=[ProduceTopicData(name=topic, partition_data=sent)],
        ),
        3,
    )
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    result = client.receive(FetchRequest, 4).responses[0].partitions[0]
    assert values_in(result) == [b"wake up"]


def test_a_fetch_that_is_read_in_turns_is_woken_by_a_produce_between_two_of_them(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_between, goes_on = threading.Event(), threading.Event()
    next_turn = Turns._next_turn

    async def hold(self: Turns, request: Any, work: Any) -> Any:
        is_between.set()
        await asyncio.get_running_loop().run_in_executor(None, goes_on.wait, 60)
        return await next_turn(self, request, work)

    monkeypatch.setattr(Turns, "_next_turn", hold)
    monkeypatch.setattr("millstream.broker.requests.turns.FIRST_TURN_SECONDS_MAX", -1)
    monkeypatch.setattr("millstream.broker.handlers.fetch._PARTITIONS_AT_ONCE_MAX", 1)
    with RawClient(broker.bootstrap) as reader, RawClient(broker.bootstrap) as writer:
        wanted = [
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
            for index in range(2)
        ]
        reader.send(
            FetchRequest(
                replica_id=-1,
                # Longer than the client waits for anything.
                max_wait_ms=600_000,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=0,
                topics=[FetchTopic(topic=topic, partitions=wanted)],
            ),
            4,
        )
        assert is_between.wait(60)
        produce(writer, topic, batch(b"wake up"))
        goes_on.set()
        assert values_in(reader.receive(FetchRequest, 4).responses[0].partitions[0]) == [b"wake up"]


def test_fetch_outside_the_log_and_with_wrong_epochs_is_refused(
    client: RawClient, topic: str
) -> None:
    produce(client, topic, batch(b"a"))
    assert fetch(client, topic, 2).error_code == KafkaCode.OFFSET_OUT_OF_RANGE
    assert fetch(client, topic, -1).error_code == KafkaCode.OFFSET_OUT_OF_RANGE
    epoch = leader_epoch(client, topic)
    assert fetch(client, topic, 0, current_leader_epoch=epoch).error_code == 0
    ahead = fetch(client, topic, 0, current_leader_epoch=epoch + 1)
    assert ahead.error_code == KafkaCode.UNKNOWN_LEADER_EPOCH


def test_a_restart_raises_the_leader_epoch_and_fences_the_old_one(tmp_path: Path) -> None:
    running = Broker(data_dir=tmp_path / "data")
    running.start()
    running.create_topic("t")
    with RawClient(running.bootstrap) as client:
        produce(client, "t", batch(b"a", b"b"))
        old = leader_epoch(client, "t")
    running.stop()
    running.start()
    try:
        with RawClient(running.bootstrap) as client:
            assert leader_epoch(client, "t") > old
            fenced = fetch(client, "t", 0, current_leader_epoch=old)
            assert fenced.error_code == KafkaCode.FENCED_LEADER_EPOCH
            end = client.ask(
                OffsetForLeaderEpochRequest(
                    replica_id=-1,
                    topics=[
                        OffsetForLeaderTopic(
                            topic="t",
                            partitions=[
                                OffsetForLeaderPartition(
                                    partition=0, current_leader_epoch=-1, leader_epoch=old
                                )
                            ],
                        )
                    ],
                ),
                4,
            )
            assert end.topics[0].partitions[0].end_offset == 2
    finally:
        running.stop()


def test_fetch_sessions_send_only_what_is_new(client: RawClient, topic: str) -> None:
    produce(client, topic, batch(b"a"))

    def ask(session_id: int, epoch: int, offset: int | None) -> Any:
        topics = []
        if offset is not None:
            partitions = [
                FetchPartition(
                    partition=index,
                    current_leader_epoch=-1,
                    fetch_offset=offset if index == 0 else 0,
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    partition_max_bytes=1 << 20,
                )
                for index in (0, 1)
            ]
            topics = [FetchTopic(topic=topic, partitions=partitions)]
        return client.ask(
            FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=0,
                session_id=session_id,
                session_epoch=epoch,
                topics=topics,
                forgotten_topics_data=[],
                rack_id="",
            ),
            11,
        )

    full = ask(0, 0, 0)
    assert full.session_id > 0
    assert [p.partition_index for p in full.responses[0].partitions] == [0, 1]
    assert ask(full.session_id, 1, 1).responses == []
    produce(client, topic, batch(b"b"))
    news = ask(full.session_id, 2, None)
    assert [p.partition_index for p in news.responses[0].partitions] == [0]
    assert values_in(news.responses[0].partitions[0]) == [b"b"]
    assert ask(full.session_id, 2, None).error_code == KafkaCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(full.session_id + 1, 3, None).error_code == KafkaCode.FETCH_SESSION_ID_NOT_FOUND


def _long_poll(
    client: RawClient, topic: str, offsets: dict[int, int], *, min_bytes: int = 1
) -> None:
    """Send a fetch that waits as long as it takes, without reading the response."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    client.send(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=60_000,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            isolation_level=0,
            topics=[FetchTopic(topic=topic, partitions=partitions)],
        ),
        4,
    )


def test_a_wait_ends_with_all_that_changed_during_it(broker: Broker, topic: str) -> None:
    with RawClient(broker.bootstrap) as reader, RawClient(broker.bootstrap) as writer:
        produce(writer, topic, batch(b"before"), partition=1)
        _long_poll(reader, topic, {0: 0, 1: 1}, min_bytes=200)
        produce(writer, topic, batch(b"a" * 100), partition=1)
        produce(writer, topic, batch(b"b" * 100), partition=0)
        results = reader.receive(FetchRequest, 4).responses[0].partitions
        assert [values_in(result) for result in results] == [[b"b" * 100], [b"a" * 100]]
        assert [result.high_watermark for result in results] == [1, 2]


def test_few_and_many_bytes_in_one_response_keep_their_order(client: RawClient, topic: str) -> None:
    """Few are copied into the response, many are sent from their file."""
    produce(client, topic, batch(b"few"), partition=0)
    produce(client, topic, batch(b"m" * 60_000), partition=1)
    for offsets in ({0: 0, 1: 0}, {1: 0, 0: 0}):
        _long_poll(client, topic, offsets)
        results = client.receive(FetchRequest, 4).responses[0].partitions
        found = {result.partition_index: values_in(result) for result in results}
        assert found == {0: [b"few"], 1: [b"m" * 60_000]}
