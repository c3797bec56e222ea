"""The levels of this process's loggers, as options of the resource type BROKER_LOGGER.

They are not stored: a restart returns to the levels of the start, as in Kafka.
"""

import logging
from collections.abc import Iterable
from typing import Final

from millstream.cluster.changes import ConfigChange, ConfigOperation
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.describe_configs import DescribedConfig

ROOT: Final = "root"
_OURS: Final = "millstream"
# Kafka's names, from the most to the least detailed.
_LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_DYNAMIC_LOGGER_SOURCE: Final = 6
_STRING: Final = 2


def logger_entries(*, names: Iterable[str] | None) -> list[DescribedConfig]:
    known = _known()
    chosen = known if names is None else [name for name in names if name in known]
    return [_entry(name) for name in chosen]


def change_levels(changes: Iterable[ConfigChange], *, validate_only: bool) -> None:
    """Set or reset levels: all of them, or none. Raises KafkaError."""
    wanted = {change.name: _level(change) for change in changes}
    if not validate_only:
        for name, level in wanted.items():
            _logger(name).setLevel(level)


def _level(change: ConfigChange) -> int:
    """The level after a change; NOTSET follows the logger above."""
    if change.name != ROOT and change.name.partition(".")[0] != _OURS:
        raise KafkaError(KafkaCode.INVALID_CONFIG, f"there is no logger {change.name}")
    match change.operation:
        case ConfigOperation.SET:
            level = _LEVELS.get((change.value or "").upper())
            if level is None:
                raise KafkaError(
                    KafkaCode.INVALID_CONFIG,
                    f"{change.value!r} is not a level; there are {', '.join(_LEVELS)}",
                )
            return level
        case ConfigOperation.DELETE:
            if change.name == ROOT:
                raise KafkaError(KafkaCode.INVALID_REQUEST, "the root logger must have a level")
            return logging.NOTSET
        case _:
            raise KafkaError(
                KafkaCode.INVALID_REQUEST, f"a level is set or deleted, not {change.operation.name}"
            )


def _known() -> list[str]:
    # Places in the hierarchy without a logger of their own have an entry, too.
    found = logging.root.manager.loggerDict.items()
    ours = [name for name, logger in found if isinstance(logger, logging.Logger)]
    return [ROOT, *sorted(name for name in ours if name.partition(".")[0] == _OURS)]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _entry(name: str) -> DescribedConfig:
    level = _logger(name).getEffectiveLevel()
    text = next((text for text, number in _LEVELS.items() if level <= number), "FATAL")
    return DescribedConfig(
        name=name,
        value=text,
        read_only=False,
        config_source=_DYNAMIC_LOGGER_SOURCE,
        is_sensitive=False,
        synonyms=[],
        config_type=_STRING,
        documentation=None,
    )
