from confluent_kafka import KafkaError

from millstream.cli.bootstrap import explain
from millstream.cli.failure import ExitCode


def test_a_timeout_that_the_node_explains_is_told_in_its_words() -> None:
    error = KafkaError(KafkaError.REQUEST_TIMED_OUT, "no connection to ZooKeeper")
    failed = explain(error, "topic t")
    assert str(failed) == "topic t: no connection to ZooKeeper (REQUEST_TIMED_OUT)"
    assert failed.exit_code is ExitCode.TIMEOUT


def test_a_timeout_of_a_node_is_not_blamed_on_its_address() -> None:
    text = str(explain(KafkaError(KafkaError.REQUEST_TIMED_OUT), "topic t"))
    assert "ZooKeeper" in text
    assert "in sync" in text
    assert "advertised.listeners" not in text


def test_no_answer_at_all_may_be_a_wrong_address() -> None:
    failed = explain(KafkaError(KafkaError._TIMED_OUT), "topic t")
    assert "advertised.listeners" in str(failed)
    assert failed.exit_code is ExitCode.TIMEOUT
