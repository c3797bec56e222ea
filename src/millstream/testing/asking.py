"""Questions of a test to a Kafka whose leaders may be changing at this moment."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from millstream.errors import KafkaCode

SECONDS_MAX: Final = 20.0
_PAUSE_SECONDS: Final = 0.02
_Answer = TypeVar("_Answer")


def answered(ask: Callable[[], _Answer]) -> _Answer:
    """What `ask` returns, once it does. Raises the KafkaException that it goes on to raise, or one
    that trying again does not change."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return ask()
        except KafkaException as failed:
            if failed.args[0].code() not in _passing_codes() or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def _passing_codes() -> set[int]:
    """Of a broker that has died and a leader that is being elected."""
    from confluent_kafka import KafkaError

    return {
        KafkaCode.LEADER_NOT_AVAILABLE,
        KafkaCode.NOT_LEADER_OR_FOLLOWER,
        KafkaCode.FENCED_LEADER_EPOCH,
        KafkaCode.UNKNOWN_LEADER_EPOCH,
        # A new leader does not know yet what the old one has shown.
        KafkaCode.OFFSET_NOT_AVAILABLE,
        KafkaCode.COORDINATOR_NOT_AVAILABLE,
        KafkaCode.NOT_COORDINATOR,
        KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaCode.REQUEST_TIMED_OUT,
        # What librdkafka says of a partition that has no leader at this moment.
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
    }
