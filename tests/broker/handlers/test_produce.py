"""What producers send: accepted, or refused with a code and nothing appended."""

import asyncio
import itertools
import os
import time
from typing import Any

import pytest

from millstream.broker.handlers import produce as produce_module
from millstream.broker.network.memory import RequestMemory
from millstream.errors import KafkaCode, KafkaError
from millstream.model import Codec
from millstream.records.batch import TIMESTAMP_TYPE_MASK, split_batches
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from millstream.wire.apis.init_producer_id import InitProducerIdRequest
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from tests.broker.handlers.exchanges import batch, fetch, produce, values_in
from tests.support.broker import Broker
from tests.support.raw_client import RawClient


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_versions_are_refused_with_a_code(
    client: RawClient, topic: str, version: int
) -> None:
    from millstream.wire import output

    body = bytearray()
    for number in (0, version):
        output.int16(body, number)
    output.int32(body, 1)
    output.string(body, "old")
    output.int16(body, 1)
    output.int32(body, 1000)
    output.array_count(body, 1)
    output.string(body, topic)
    output.array_count(body, 1)
    output.int32(body, 0)
    output.bytes_(body, b"whatever")
    client.send_frame(bytes(body))
    answer = client.receive_frame()
    name_end = 4 + 4 + 2 + len(topic)
    code = int.from_bytes(answer[name_end + 8 : name_end + 10], "big", signed=True)
    assert code == KafkaCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_and_fetch_give_back_what_was_sent(
    client: RawClient, topic: str, version: int
) -> None:
    result = produce(client, topic, batch(b"a", b"b"), version=version)
    assert (result.error_code, result.base_offset) == (0, 0)
    again = produce(client, topic, batch(b"c"), version=version)
    assert again.base_offset == 2
    assert values_in(fetch(client, topic, 0)) == [b"a", b"b", b"c"]
    # An offset inside a batch gets the whole batch.
    assert values_in(fetch(client, topic, 1)) == [b"a", b"b", b"c"]
    assert values_in(fetch(client, topic, 2)) == [b"c"]


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("crc", KafkaCode.CORRUPT_MESSAGE),
        ("magic", KafkaCode.INVALID_RECORD),
        ("count", KafkaCode.INVALID_RECORD),
        ("control", KafkaCode.INVALID_RECORD),
        ("short", KafkaCode.INVALID_RECORD),
        ("empty", KafkaCode.INVALID_RECORD),
        ("two", KafkaCode.INVALID_RECORD),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_is_appended(
    client: RawClient, topic: str, damage: str, code: KafkaCode
) -> None:
    data = bytearray(batch(b"a", b"b"))
    if damage == "crc":
        data[-1] ^= 1
    elif damage == "magic":
        data[16] = 1
    elif damage == "count":
        data[57:61] = (5).to_bytes(4, "big")
        _fix_crc(data)
    elif damage == "control":
        data[22] |= 0x20
        _fix_crc(data)
    elif damage == "short":
        del data[-3:]
    elif damage == "empty":
        data = bytearray()
    elif damage == "two":
        data += batch(b"c")
    result = produce(client, topic, data)
    assert KafkaCode(result.error_code) == code
    assert fetch(client, topic, 0).high_watermark == 0


def _fix_crc(data: bytearray) -> None:
    from crc32c import crc32c

    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")


def test_a_batch_over_max_message_bytes_is_refused(client: RawClient, broker: Broker) -> None:
    broker.create_topic("small-batches", configs={"max.message.bytes": "1000"})
    result = produce(client, "small-batches", batch(b"x" * 2000))
    assert result.error_code == KafkaCode.MESSAGE_TOO_LARGE


def test_a_record_without_key_on_a_compacted_topic_names_the_record(
    client: RawClient, broker: Broker
) -> None:
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    result = produce(client, "compacted", batch(b"a", b"b", b"c", keys=[b"k", None, b"k"]))
    assert result.error_code == KafkaCode.INVALID_RECORD
    assert [error.batch_index for error in result.record_errors] == [1]
    assert fetch(client, "compacted", 0).high_watermark == 0


def test_a_timestamp_too_far_ahead_is_refused(client: RawClient, topic: str) -> None:
    ahead = int(time.time() * 1000) + 2 * 3_600_000
    result = produce(client, topic, batch(b"a", timestamp_ms=ahead))
    assert result.error_code == KafkaCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_false_largest_timestamp_is_not_stored(
    client: RawClient, topic: str, codec: Codec
) -> None:
    now_ms = int(time.time() * 1000)
    # The second time on the short way.
    for offset in range(2):
        data = batch(b"a", b"b", timestamp_ms=now_ms, codec=codec)
        data[35:43] = (2**63 - 1).to_bytes(8, "big")
        _fix_crc(data)
        result = produce(client, topic, data)
        assert (result.error_code, result.base_offset) == (0, 2 * offset)
    stored = list(split_batches(memoryview(fetch(client, topic, 0).records)))
    assert [(one.max_timestamp_ms, one.crc_is_valid()) for one in stored] == [(now_ms, True)] * 2


def test_an_append_time_far_ahead_is_refused(client: RawClient, topic: str) -> None:
    data = batch(b"a")
    data[22] |= TIMESTAMP_TYPE_MASK
    data[35:43] = (2**63 - 1).to_bytes(8, "big")
    _fix_crc(data)
    assert produce(client, topic, data).error_code == KafkaCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("version", [3, 6, 7])
def test_zstd_is_refused_where_the_request_is_too_old_for_it(
    client: RawClient, topic: str, version: int
) -> None:
    refused = KafkaCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else KafkaCode.NONE
    result = produce(client, topic, batch(b"a", codec=Codec.ZSTD), version=version)
    assert KafkaCode(result.error_code) is refused
    assert produce(client, topic, batch(b"a", codec=Codec.LZ4), version=version).error_code == 0


def test_log_append_time_is_answered_and_stored(client: RawClient, broker: Broker) -> None:
    broker.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    result = produce(client, "stamped", batch(b"a", timestamp_ms=1000))
    assert result.log_append_time_ms >= before
    [found] = split_batches(memoryview(bytes(fetch(client, "stamped", 0).records)))
    assert found.max_timestamp_ms == result.log_append_time_ms
    assert found.crc_is_valid()


def test_wrong_acks_unknown_topics_and_unknown_partitions_are_refused(
    client: RawClient, topic: str
) -> None:
    assert produce(client, topic, batch(b"a"), acks=5).error_code == (
        KafkaCode.INVALID_REQUIRED_ACKS
    )
    for name, partition in (("no-such-topic", 0), (topic, 99), (topic, -1)):
        result = produce(client, name, batch(b"a"), partition=partition)
        assert result.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION


def test_acks_0_gets_no_answer_and_an_error_closes_the_connection(
    broker: Broker, topic: str
) -> None:
    fields = {"transactional_id": None, "acks": 0, "timeout_ms": 1000}
    with RawClient(broker.bootstrap) as client:
        good = [
            ProduceTopicData(
                name=topic, partition_data=[ProducePartitionData(index=0, records=batch(b"a"))]
            )
        ]
        client.send(ProduceRequest(topic_data=good, **fields), 9)
        # The next answer is for the next question.
        assert fetch(client, topic, 0).high_watermark == 1
        bad = [
            ProduceTopicData(
                name=topic, partition_data=[ProducePartitionData(index=77, records=batch(b"a"))]
            )
        ]
        client.send(ProduceRequest(topic_data=bad, **fields), 9)
        assert client.is_closed_by_peer()


def test_an_idempotent_retry_gets_the_first_offset_and_a_gap_is_refused(
    client: RawClient, topic: str
) -> None:
    given = client.ask(
        InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
        ),
        4,
    )
    assert given.error_code == 0

    def numbered(sequence: int, *values: bytes) -> bytearray:
        return batch(
            *values, producer_id=given.producer_id, epoch=given.producer_epoch, sequence=sequence
        )

    first = produce(client, topic, numbered(0, b"a", b"b"), acks=-1)
    second = produce(client, topic, numbered(2, b"c"), acks=-1)
    retry = produce(client, topic, numbered(0, b"a", b"b"), acks=-1)
    assert (first.base_offset, second.base_offset, retry.base_offset) == (0, 2, 0)
    assert retry.error_code == 0
    gap = produce(client, topic, numbered(9, b"d"), acks=-1)
    assert gap.error_code == KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values_in(fetch(client, topic, 0)) == [b"a", b"b", b"c"]


def _many(topic: str, count: int, *, acks: int, codec: Codec = Codec.NONE) -> ProduceRequest:
    """So many batches for one partition, and one for a partition that is not there."""
    rows = [
        ProducePartitionData(index=0, records=batch(str(number).encode(), codec=codec))
        for number in range(count)
    ]
    rows.insert(count // 2, ProducePartitionData(index=99, records=batch(b"lost")))
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[ProduceTopicData(name=topic, partition_data=rows)],
    )


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("count", [120, 1_200])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_many_batches_are_appended_in_order_and_answered_together(
    client: RawClient, topic: str, acks: int, count: int, codec: Codec
) -> None:
    response = client.ask(_many(topic, count, acks=acks, codec=codec), 9)
    [answered] = response.responses
    found = answered.partition_responses
    lost = found.pop(count // 2)
    assert (lost.index, lost.error_code) == (99, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [(row.index, row.error_code) for row in found] == [(0, 0)] * count
    assert [row.base_offset for row in found] == list(range(count))
    assert values_in(fetch(client, topic, 0)) == [str(number).encode() for number in range(count)]


def test_many_batches_with_acks_0_are_appended_before_the_next_request(
    broker: Broker, topic: str
) -> None:
    with RawClient(broker.bootstrap) as client:
        request = _many(topic, 300, acks=0)
        request.topic_data[0].partition_data.pop(150)
        client.send(request, 9)
        assert fetch(client, topic, 0).high_watermark == 300
        client.send(_many(topic, 300, acks=0), 9)
        assert client.is_closed_by_peer()


def test_a_request_waits_for_many_batches_before_it(client: RawClient, topic: str) -> None:
    for _ in range(2):
        client.send(_many(topic, 300, acks=1), 9)
    for first in (0, 300):
        [answered] = client.receive(ProduceRequest, 9).responses
        assert answered.partition_responses[0].base_offset == first


def test_others_are_served_between_the_parts_of_many_batches(
    client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    # What the loop did after each part: how many parts there were by then.
    others: list[int] = []
    append = produce_module._append_batches

    def note(parts: Any, request: Any, body: Any, *rest: Any) -> Any:
        sizes.append(len(body.topics[0].partitions))
        asyncio.get_running_loop().call_soon(lambda: others.append(len(sizes)))
        return append(parts, request, body, *rest)

    monkeypatch.setattr(produce_module, "_append_batches", note)
    client.ask(_many(topic, 499, acks=1), 9)
    assert sizes == [50] * 10
    assert others == list(range(1, 11))


@pytest.mark.parametrize("acks", [1, -1])
def test_large_batches_are_appended_in_parts_of_about_a_megabyte(
    client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    sizes: list[list[int]] = []
    append = produce_module._append_batches

    def note(parts: Any, request: Any, body: Any, *rest: Any) -> Any:
        sizes.append([len(data) // 1000 for _, data in body.topics[0].partitions])
        return append(parts, request, body, *rest)

    monkeypatch.setattr(produce_module, "_append_batches", note)
    small = _sized(topic, [300] * 2, acks=acks)
    for request in (small, small, small):
        client.ask(request, 9)
    # From the third time on a request takes the shortcut, unless it is large.
    assert sizes == [[300] * 2] * 2
    sizes.clear()
    for first in (6, 12):
        [answered] = client.ask(_sized(topic, [100, 900, 700, 900, 10, 20], acks=acks), 9).responses
        found = answered.partition_responses
        assert [(row.error_code, row.base_offset) for row in found] == [
            (0, first + number) for number in range(6)
        ]
    assert sizes == [[100, 900, 700], [900, 10, 20]] * 2


def _sized(topic: str, sizes: list[int], *, acks: int, codec: Codec = Codec.NONE) -> ProduceRequest:
    """A batch for each of these numbers of kilobytes, all to one partition."""
    rows = [
        ProducePartitionData(index=0, records=batch(os.urandom(size * 1000), codec=codec))
        for size in sizes
    ]
    topics = [ProduceTopicData(name=topic, partition_data=rows)]
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=topics)


def test_a_frame_that_has_memory_of_its_own_is_not_copied(
    client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[list[int]] = []
    check = produce_module._check_heavy

    async def note(parts: Any, request: Any, body: Any, *rest: Any) -> Any:
        owners.append([len(data.obj) // 1000 for _, data in body.topics[0].partitions])
        return await check(parts, request, body, *rest)

    monkeypatch.setattr(produce_module, "_check_heavy", note)
    for sizes in ([400, 500], [600, 700], [900, 900, 900]):
        request = _sized(topic, sizes, acks=1, codec=Codec.GZIP)
        [answered] = client.ask(request, 9).responses
        assert {row.error_code for row in answered.partition_responses} == {0}
    # Copied record by record; then views of the frame, the last in two parts.
    assert owners == [[400, 500], [1300, 1300], [2701, 2701], [2701]]


def test_batches_that_wait_for_their_transaction_count_as_received(
    client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories: list[RequestMemory] = []
    held: list[int] = []

    def check(parts: Any, request: Any, body: Any) -> Any:
        async def later() -> dict[tuple[str, int], KafkaError]:
            memories.append(request.connection._host.memory)
            held.append(memories[0].held_bytes)
            return {}

        return later()

    monkeypatch.setattr(produce_module, "_check_transaction", check)
    request = _sized(topic, [300, 200], acks=1)
    request.transactional_id = "t"
    [answered] = client.ask(request, 9).responses
    assert {row.error_code for row in answered.partition_responses} == {0}
    assert 500_000 <= held[0] <= 500_300
    assert memories[0].held_bytes == 0


def test_many_batches_that_are_checked_in_a_thread_are_dropped_with_their_connection(
    broker: Broker, client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked in the append instead, they would block the loop."""
    checks: list[int] = []

    async def close_and_check(parts: Any, request: Any, *rest: Any) -> Any:
        checks.append(1)
        request.connection.close("the test closes it")
        return {}

    make_ready = produce_module.make_ready

    def make_heavy(*arguments: Any, **options: Any) -> Any:
        ready, _ = make_ready(*arguments, **options)
        return {}, dict.fromkeys(ready)

    monkeypatch.setattr(produce_module, "make_ready", make_heavy)
    monkeypatch.setattr(produce_module, "_check_heavy", close_and_check)
    with RawClient(broker.bootstrap) as leaving:
        leaving.send(_many(topic, 300, acks=1, codec=Codec.ZSTD), 9)
        assert leaving.is_closed_by_peer()
    assert checks == [1]
    assert fetch(client, topic, 0).high_watermark == 0


@pytest.mark.parametrize("count", [1, 300])
def test_batches_that_wait_for_their_check_count_as_received(
    client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    memories: list[RequestMemory] = []
    held: list[int] = []
    check = produce_module._check_heavy

    async def note(parts: Any, request: Any, *rest: Any) -> Any:
        memories.append(request.connection._host.memory)
        held.append(memories[0].held_bytes)
        return await check(parts, request, *rest)

    monkeypatch.setattr(produce_module, "_check_heavy", note)
    heavy = batch(os.urandom(400_000), codec=Codec.GZIP)
    rows = [ProducePartitionData(index=0, records=batch(b"light"))] * (count - 1)
    rows.append(ProducePartitionData(index=0, records=heavy))
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=30_000,
        topic_data=[ProduceTopicData(name=topic, partition_data=rows)],
    )
    [answered] = client.ask(request, 9).responses
    assert [row.error_code for row in answered.partition_responses] == [0] * count
    assert len(heavy) <= held[0] <= len(heavy) + 100 * count
    assert memories[0].held_bytes == 0


def test_more_batches_than_a_node_has_partitions_are_no_request(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_module, "BATCHES_MAX", 1_500)
    with RawClient(broker.bootstrap) as client:
        client.send(_many(topic, 1_600, acks=1), 9)
        assert client.is_closed_by_peer()


def test_many_topics_in_one_request_are_answered_in_order(client: RawClient, topic: str) -> None:
    names = [topic if number % 2 else f"no-topic-{number}" for number in range(130)]
    data = [
        ProduceTopicData(
            name=name,
            # One of them has no batch. All are larger than the buffer that connections share.
            partition_data=[
                ProducePartitionData(index=0, records=batch(bytes(10_000)))
                for _ in range(0 if number == 60 else 2)
            ],
        )
        for number, name in enumerate(names)
    ]
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=5000, topic_data=data)
    found = client.ask(request, 9).responses
    assert [answered.name for answered in found] == names
    codes = [[row.error_code for row in answered.partition_responses] for answered in found]
    unknown = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    expected = [[0, 0] if number % 2 else [unknown, unknown] for number in range(130)]
    expected[60] = []
    assert codes == expected
    assert fetch(client, topic, 0).high_watermark == 130


def test_a_node_remembers_no_more_producers_than_it_may(client: RawClient, topic: str) -> None:
    ids = itertools.count(10**6)

    def code() -> int:
        data = batch(b"v", producer_id=next(ids), epoch=0, sequence=0)
        return int(produce(client, topic, data).error_code)

    set_option(client, "millstream.producers.max", "3")
    try:
        codes = [code() for _ in range(10)]
    finally:
        set_option(client, "millstream.producers.max", None)
    assert codes[-1] == KafkaCode.THROTTLING_QUOTA_EXCEEDED
    assert code() == KafkaCode.NONE


def set_option(client: RawClient, name: str, value: str | None) -> None:
    """Of all nodes, while they run; None deletes it."""
    config = IncrementallyAlterableConfig(
        name=name, config_operation=1 if value is None else 0, value=value
    )
    resource = IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    assert client.ask(request, 1).responses[0].error_code == KafkaCode.NONE
