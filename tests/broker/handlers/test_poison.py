"""No batch gets in that a consumer cannot get past.

Covers broker/handlers, broker/network.
"""

import socket
import threading
import time
from collections.abc import Callable

import pytest
from crc32c import crc32c

from millstream.errors import KafkaCode
from millstream.model import Codec
from millstream.records.batch import CRC_START, HEADER_BYTES, split_batches
from millstream.records.compression import compress
from millstream.records.records import read_records
from millstream.wire.apis.api_versions import ApiVersionsRequest
from tests.broker.handlers.exchanges import batch, fetch, produce
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

Spoil = Callable[[bytearray], bytearray]


def fetched_values(client: RawClient, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = 0
    while True:
        result = fetch(client, topic, offset)
        assert result.error_code == KafkaCode.NONE
        batches = list(split_batches(memoryview(bytes(result.records or b""))))
        if not batches:
            return found
        for each in batches:
            found += [record.value for record in read_records(each, limit_bytes=1 << 24)]
        offset = batches[-1].next_offset


def sealed(data: bytearray) -> bytearray:
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:CRC_START] = crc32c(bytes(data[CRC_START:])).to_bytes(4, "big")
    return data


def garbage(data: bytearray) -> bytearray:
    data[HEADER_BYTES:] = b"\xff" * (len(data) - HEADER_BYTES)
    return sealed(data)


def too_many(data: bytearray) -> bytearray:
    data[23:27] = (2**31 - 2).to_bytes(4, "big")
    data[57:61] = (2**31 - 1).to_bytes(4, "big")
    return sealed(data)


def a_byte_more(data: bytearray) -> bytearray:
    return sealed(data + b"\0")


def not_compressed(data: bytearray) -> bytearray:
    data[22] = int(Codec.LZ4)
    return sealed(data)


def bomb(data: bytearray) -> bytearray:
    header = data[:HEADER_BYTES]
    header[22] = int(Codec.ZSTD)
    return sealed(header + compress(Codec.ZSTD, bytes(100 << 20)))


@pytest.mark.parametrize("spoil", [garbage, too_many, a_byte_more, not_compressed, bomb])
def test_poison_is_refused_on_every_route(spoil: Spoil, client: RawClient, topic: str) -> None:
    poison = bytes(spoil(batch(b"v")))
    assert produce(client, topic, poison).error_code in (
        KafkaCode.INVALID_RECORD,
        KafkaCode.CORRUPT_MESSAGE,
    )
    # The same connection, once the client is known to repeat itself.
    for _ in range(4):
        assert produce(client, topic, batch(b"good")).error_code == KafkaCode.NONE
    assert produce(client, topic, poison).error_code != KafkaCode.NONE
    assert produce(client, topic, batch(b"last")).error_code == KafkaCode.NONE
    assert fetched_values(client, topic) == [b"good"] * 4 + [b"last"]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_good_batches_get_in_whatever_their_codec_and_size(
    codec: Codec, client: RawClient, topic: str
) -> None:
    values = [b"small", b"x" * 3_000_000]
    for value in values:
        assert produce(client, topic, batch(value, codec=codec)).error_code == KafkaCode.NONE
    assert fetched_values(client, topic) == values


def test_a_bomb_keeps_nobody_waiting(broker: Broker, topic: str) -> None:
    poison = bytes(bomb(batch(b"v")))
    waits: list[float] = []
    is_over = threading.Event()

    def ping() -> None:
        with RawClient(broker.bootstrap) as other:
            while not is_over.is_set():
                began = time.monotonic()
                other.ask(ApiVersionsRequest(), 2)
                waits.append(time.monotonic() - began)

    pinging = threading.Thread(target=ping)
    pinging.start()
    with RawClient(broker.bootstrap) as client:
        for _ in range(5):
            assert produce(client, topic, poison).error_code == KafkaCode.INVALID_RECORD
    is_over.set()
    pinging.join()
    assert len(waits) > 20


def test_of_many_bad_records_only_the_first_are_named(client: RawClient, broker: Broker) -> None:
    broker.create_topic("compacted-many", configs={"cleanup.policy": "compact"})
    values = [b""] * 50_000
    answer = produce(client, "compacted-many", batch(*values), version=11)
    assert answer.error_code == KafkaCode.INVALID_RECORD
    assert 0 < len(answer.record_errors) <= 128


def test_clients_that_leave_while_their_batches_are_checked_hurt_nobody(
    broker: Broker, topic: str
) -> None:
    large = bytes(batch(b"x" * 3_000_000, codec=Codec.GZIP))
    for _ in range(3):
        with RawClient(broker.bootstrap) as leaving:
            sending = threading.Thread(target=_try_produce, args=(leaving, topic, large))
            sending.start()
            leaving.sock.shutdown(socket.SHUT_RDWR)
            sending.join()
    with RawClient(broker.bootstrap) as client:
        assert produce(client, topic, batch(b"after")).error_code == KafkaCode.NONE
        # What was received from the others may still be written, before it or behind it.
        assert b"after" in fetched_values(client, topic)


def _try_produce(client: RawClient, topic: str, data: bytes) -> None:
    try:
        produce(client, topic, data)
    except OSError:
        return
