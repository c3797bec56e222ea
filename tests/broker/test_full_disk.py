"""A disk that is full for a while: refused records are told to the client, and to a person.

Covers broker/handlers/produce.py, storage.
"""

import errno
import logging
import time
from typing import Any

import pytest

from millstream.errors import KafkaCode
from millstream.records.builder import build_batch
from millstream.records.records import Record
from millstream.storage.files import LogFile
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.message import Message
from tests.support.broker import Broker
from tests.support.raw_client import RawClient


def produce(client: RawClient) -> Any:
    now_ms = int(time.time() * 1000)
    data = build_batch([Record(0, now_ms, None, b"x", [])], base_offset=0)
    answer = client.ask(
        ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=5000,
            topic_data=[
                ProduceTopicData(
                    name="t", partition_data=[ProducePartitionData(index=0, records=data)]
                )
            ],
        ),
        11,
    )
    found = answer.responses[0].partition_responses[0]
    assert isinstance(found, Message)
    return found


def test_it_is_said_once_and_goes_on_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def append(file: LogFile, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Broker() as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        # Known by its bytes from the third on: what is refused is told on both ways.
        for _ in range(4):
            assert produce(client).error_code == KafkaCode.NONE
        with monkeypatch.context() as full, caplog.at_level(logging.ERROR):
            full.setattr(LogFile, "append", append)
            assert {produce(client).error_code for _ in range(5)} == {KafkaCode.KAFKA_STORAGE_ERROR}
        assert produce(client).base_offset == 4
    [said] = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert "No space left on device" in said
