import time
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer

from millstream.testing import Broker
from millstream.testing.clock import MovableClock
from tests.support.waiting import wait_until


def test_time_passes_as_it_is_told() -> None:
    clock = MovableClock()
    before = clock.now_ms(), clock.monotonic()
    clock.advance(hours=25, seconds=1)
    assert clock.now_ms() - before[0] >= 25 * 3_600_000 + 1000
    assert clock.monotonic() - before[1] >= 25 * 3600 + 1
    with pytest.raises(ValueError, match="forward"):
        clock.advance(seconds=-1)


def test_a_frozen_clock_stands_still_until_it_is_advanced() -> None:
    clock = MovableClock()
    clock.freeze("2026-01-01T00:00Z")
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    time.sleep(0.01)
    assert clock.now_ms() == start
    clock.advance(minutes=1)
    assert clock.now_ms() == start + 60_000
    clock.release()
    assert clock.now_ms() > start + 60_000


def test_a_session_expires_when_its_time_has_passed() -> None:
    with Broker(topics={"orders": 1}) as broker:
        consumer = Consumer(
            {**broker.client_config(), "group.id": "g", "session.timeout.ms": 45000}
        )
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "assigned")
        seen = len(broker.requests("JoinGroup"))
        broker.clock.advance(minutes=5)
        wait_until(
            lambda: consumer.poll(0.1) is None and len(broker.requests("JoinGroup")) > seen,
            "the member joins again",
        )
        consumer.close()


def test_retention_removes_what_is_old_enough() -> None:
    settings = {"log.retention.check.interval.ms": "60000"}
    with Broker(settings=settings) as broker:
        configs = {
            "retention.ms": "3600000",
            "segment.ms": "60000",
            # A producer's own clock does not follow.
            "message.timestamp.type": "LogAppendTime",
        }
        topic = broker.create_topic("old", configs=configs)
        topic.produce(["gone"])
        broker.clock.advance(hours=2)
        topic.produce(["new"])
        broker.clock.advance(minutes=2)
        wait_until(lambda: [record.text for record in topic.records()] == ["new"], "one is left")
