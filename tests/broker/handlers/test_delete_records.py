from typing import Any

import pytest

from millstream.broker.handlers import delete_records
from millstream.broker.handlers.delete_records import wait_seconds
from millstream.errors import KafkaCode
from millstream.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from millstream.wire.message import Message
from tests.broker.handlers.exchanges import batch, fetch, produce
from tests.support.raw_client import RawClient


def test_delete_records_moves_the_start_and_refuses_what_is_not_there(
    client: RawClient, topic: str
) -> None:
    produce(client, topic, batch(b"a", b"b", b"c"))

    def delete(offset: int) -> Any:
        response = client.ask(
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)],
                    )
                ],
                timeout_ms=5000,
            ),
            2,
        )
        result = response.topics[0].partitions[0]
        assert isinstance(result, Message)
        return result

    assert delete(2).low_watermark == 2
    assert fetch(client, topic, 1).error_code == KafkaCode.OFFSET_OUT_OF_RANGE
    assert delete(99).error_code == KafkaCode.OFFSET_OUT_OF_RANGE
    assert delete(-1).low_watermark == 3


def test_a_large_request_does_not_wait_for_hours() -> None:
    """Two large requests at a time are under way: the others would wait as long as it does."""

    def asked(timeout_ms: int) -> DeleteRecordsRequest:
        return DeleteRecordsRequest(topics=[], timeout_ms=timeout_ms)

    assert wait_seconds(asked(3_600_000), is_large=False) == 3600
    assert wait_seconds(asked(3_600_000), is_large=True) == 5
    assert wait_seconds(asked(1_000), is_large=True) == 1
    assert wait_seconds(asked(-1), is_large=True) == 0


def test_a_small_request_that_took_turns_waits_as_long_as_its_client_allows(
    client: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy node makes turns of what would have taken one."""
    produce(client, topic, batch(b"a"))
    asked: list[bool] = []

    def wait_seconds_of(body: DeleteRecordsRequest, *, is_large: bool) -> float:
        asked.append(is_large)
        return wait_seconds(body, is_large=is_large)

    monkeypatch.setattr("millstream.broker.requests.turns.FIRST_TURN_SECONDS_MAX", -1)
    monkeypatch.setattr(delete_records, "wait_seconds", wait_seconds_of)
    partitions = [DeleteRecordsPartition(partition_index=0, offset=1)]
    response = client.ask(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=30_000
        ),
        2,
    )
    assert response.topics[0].partitions[0].low_watermark == 1
    assert asked == [False]
