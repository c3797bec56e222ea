import logging
from collections.abc import Iterator

import pytest

from millstream.broker.requests.loggers import change_levels, logger_entries
from millstream.cluster.changes import ConfigChange, ConfigOperation
from millstream.errors import KafkaCode, KafkaError

NAME = "millstream.test.levels"


@pytest.fixture(autouse=True)
def a_logger() -> Iterator[None]:
    logger = logging.getLogger(NAME)
    yield
    logger.setLevel(logging.NOTSET)


def shown() -> str | None:
    [entry] = logger_entries(names=[NAME])
    return entry.value


@pytest.mark.parametrize(
    ("level", "number"), [("DEBUG", logging.DEBUG), ("warn", logging.WARNING), ("TRACE", 5)]
)
def test_a_level_is_set_in_the_process(level: str, number: int) -> None:
    change_levels([ConfigChange(NAME, level)], validate_only=False)
    assert logging.getLogger(NAME).level == number
    assert shown() == level.upper()


def test_a_deleted_level_is_that_of_the_logger_above() -> None:
    change_levels([ConfigChange(NAME, "FATAL")], validate_only=False)
    change_levels([ConfigChange(NAME, None, ConfigOperation.DELETE)], validate_only=False)
    assert logging.getLogger(NAME).level == logging.NOTSET


def test_validation_changes_nothing() -> None:
    change_levels([ConfigChange(NAME, "ERROR")], validate_only=True)
    assert logging.getLogger(NAME).level == logging.NOTSET


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (ConfigChange(NAME, "LOUD"), KafkaCode.INVALID_CONFIG),
        (ConfigChange("kafka.server", "INFO"), KafkaCode.INVALID_CONFIG),
        (ConfigChange("root", None, ConfigOperation.DELETE), KafkaCode.INVALID_REQUEST),
        (ConfigChange(NAME, "INFO", ConfigOperation.APPEND), KafkaCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_set_is_refused_and_nothing_is_changed(
    change: ConfigChange, code: KafkaCode
) -> None:
    good = ConfigChange("millstream.test.other", "DEBUG")
    with pytest.raises(KafkaError) as refused:
        change_levels([good, change], validate_only=False)
    assert refused.value.code is code
    assert logging.getLogger(good.name).level == logging.NOTSET


def test_all_loggers_of_the_node_are_listed_and_no_others() -> None:
    names = [entry.name for entry in logger_entries(names=None)]
    assert NAME in names
    assert all(name == "root" or name.startswith("millstream") for name in names)
