import pytest
from confluent_kafka import KafkaError, KafkaException

from millstream.testing.asking import answered


def test_what_passes_is_asked_again() -> None:
    codes = KafkaError
    problems = [codes.LEADER_NOT_AVAILABLE, codes._UNKNOWN_PARTITION, codes._TRANSPORT]

    def ask() -> str:
        if problems:
            raise KafkaException(KafkaError(problems.pop()))
        return "answer"

    assert answered(ask) == "answer"


def test_what_stays_is_raised_at_once() -> None:
    asked = []

    def ask() -> None:
        asked.append(1)
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    with pytest.raises(KafkaException):
        answered(ask)
    assert len(asked) == 1
