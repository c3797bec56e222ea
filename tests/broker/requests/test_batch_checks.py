"""Which batches of a produce are unpacked on the loop, and which in a thread."""

import asyncio
import gzip
import math
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from crc32c import crc32c

from millstream.broker.handlers import produce as produce_module
from millstream.broker.requests.batch_checks import check_heavy
from millstream.errors import KafkaCode
from millstream.model import Codec
from millstream.records.compression import compress
from millstream.records.validation import LIGHT, LIGHT_PLAIN
from millstream.wire.apis.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from tests.broker.handlers.exchanges import batch, fetch
from tests.support.attacks import batch_of
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

# One record, without key and value.
RECORD = b"\x0c\0\0\0\1\1\0"
PARTITIONS = 12


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=PARTITIONS)
    return name


@pytest.fixture
def in_thread(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The places of the batches that were checked in a thread."""
    places: list[Any] = []

    async def note(body: Any, place: Any, work: Any) -> Any:
        places.append(place)
        return await check_heavy(body, place, work)

    monkeypatch.setattr(produce_module, "check_heavy", note)
    return places


def codes(client: RawClient, topic: str, batches: list[bytes | bytearray]) -> list[int]:
    """Of one request with these batches, each to another partition while there are enough."""
    rows = [
        ProducePartitionData(index=number % PARTITIONS, records=data)
        for number, data in enumerate(batches)
    ]
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=5000,
        topic_data=[ProduceTopicData(name=topic, partition_data=rows)],
    )
    [answered] = client.ask(request, 9).responses
    return [row.error_code for row in answered.partition_responses]


def now_ms() -> int:
    return int(time.time() * 1000)


def test_what_clients_send_for_a_dozen_partitions_is_checked_on_the_loop(
    client: RawClient, topic: str, in_thread: list[Any]
) -> None:
    batches = [batch(bytes(16_000), codec=Codec.LZ4) for _ in range(PARTITIONS)]
    # The third request is the first of which the shortcut knows.
    for _ in range(4):
        assert codes(client, topic, batches) == [KafkaCode.NONE] * PARTITIONS
    assert in_thread == []


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("count", [50, 99])
def test_batches_of_one_request_share_what_may_be_unpacked_on_the_loop(
    client: RawClient, topic: str, in_thread: list[Any], codec: Codec, count: int
) -> None:
    bomb = batch(bytes(LIGHT - 1000), codec=codec)
    parts = 1
    if count * len(bomb) > LIGHT_PLAIN:
        # Snappy makes them large enough: others are served between the parts of such a request.
        parts = math.ceil(count / (produce_module._PART_BYTES // len(bomb) + 1))
    for _ in range(4):
        in_thread.clear()
        assert codes(client, topic, [bomb] * count) == [KafkaCode.NONE] * count
        assert len(in_thread) == count - parts


def test_a_batch_that_is_refused_uses_up_what_may_be_unpacked(
    client: RawClient, topic: str, in_thread: list[Any]
) -> None:
    bad = batch_of(bytes(LIGHT), 1, now_ms(), Codec.ZSTD)
    assert codes(client, topic, [bad] * 40) == [KafkaCode.INVALID_RECORD] * 40
    assert len(in_thread) == 39


def test_batches_that_are_not_compressed_need_no_thread(
    client: RawClient, topic: str, in_thread: list[Any]
) -> None:
    bomb = batch(bytes(LIGHT - 1000), codec=Codec.ZSTD)
    plain = batch(bytes(1000))
    assert codes(client, topic, [bomb, plain, bomb, plain]) == [KafkaCode.NONE] * 4
    assert in_thread == [(0, 2)]
    assert fetch(client, topic, 0, partition=3).high_watermark == 1


def test_batches_whose_topic_changes_while_they_are_checked_are_sent_again(
    broker: Broker, client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked in the append instead, they would block the loop."""
    changes = [AlterableConfig(name="max.message.bytes", value="500000")]
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=changes)
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    answers: list[Any] = []

    def change() -> None:
        with RawClient(broker.bootstrap) as other:
            answers.append(other.ask(request, 1).responses[0].error_code)

    async def check_and_change(body: Any, place: Any, work: Any) -> Any:
        checked = await check_heavy(body, place, work)
        if not answers:
            await asyncio.get_running_loop().run_in_executor(None, change)
        return checked

    monkeypatch.setattr(produce_module, "check_heavy", check_and_change)
    bomb = batch(bytes(LIGHT), codec=Codec.ZSTD)
    assert codes(client, topic, [bomb] * 3) == [KafkaCode.NOT_LEADER_OR_FOLLOWER] * 3
    assert answers == [KafkaCode.NONE]
    assert codes(client, topic, [bomb] * 3) == [KafkaCode.NONE] * 3


def empty_members(count: int) -> bytes:
    """A record in gzip, and so many members in which nothing is."""
    return gzip.compress(RECORD) + gzip.compress(b"") * count


def snappy_blocks(count: int) -> bytes:
    """A record in a block of Java's snappy stream, and so many blocks in which nothing is."""
    return compress(Codec.SNAPPY, RECORD) + b"\0\0\0\1\0" * count


@pytest.mark.parametrize(
    ("codec", "packed"),
    [(Codec.GZIP, empty_members(100)), (Codec.SNAPPY, snappy_blocks(100))],
    ids=["gzip", "snappy"],
)
def test_empty_pieces_count_as_if_something_were_in_them(
    client: RawClient, topic: str, in_thread: list[Any], codec: Codec, packed: bytes
) -> None:
    data = recoded(batch_of(packed, 1, now_ms(), Codec.NONE), codec)
    assert codes(client, topic, [data] * 20) == [KafkaCode.NONE] * 20
    assert len(in_thread) == 19


def recoded(data: bytes, codec: Codec) -> bytes:
    """The batch, of which the records were packed already."""
    changed = bytearray(data)
    changed[22] = codec
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)
