"""How the data source fails: a class in brackets as Spark writes it, then what to do.

Losses are noticed by `stream` (between two batches), `fetching` (inside one) and `planning` (the
bounds of a batch read).
"""

import logging

from millstream.model import TopicPartition

log = logging.getLogger(__name__)


class SourceError(Exception):
    """Wrong options, missing topics, lost data: a retry will not help."""

    def __init__(self, error_class: str, text: str) -> None:
        super().__init__(f"[MILLSTREAM_{error_class}] {text}")
        self.error_class = error_class
        self._text = text

    def __reduce__(self) -> tuple[type["SourceError"], tuple[str, str]]:
        # Spark passes exceptions between processes.
        return type(self), (self.error_class, self._text)


class Unreachable(SourceError):
    """No broker answered within the time in the options."""


def option_error(option: str, text: str) -> SourceError:
    return SourceError("INVALID_OPTION", f"Option '{option}': {text}")


def lose(text: str, *, fails: bool) -> None:
    """What `failOnDataLoss` does once a loss is noticed: raises, with both remedies, or warns.
    The caller then continues with what is left."""
    if not fails:
        log.warning("%s; continuing, because failOnDataLoss is false", text)
        return
    raise SourceError(
        "DATA_LOSS",
        f"{text}. Some data may have been lost because it is no longer in the topic: retention "
        "passed the reader, or the topic was deleted, truncated or recreated. If the query should "
        "continue with the remaining records, set the option 'failOnDataLoss' to 'false'; to start "
        "over, use another checkpoint location",
    )


def begins_at(partition: TopicPartition, log_start_offset: int, *, requested: int) -> str:
    """The loss of the records between the two offsets."""
    return f"{partition} begins at offset {log_start_offset}, requested was {requested}"
