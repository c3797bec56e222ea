"""What a log takes and returns: its options, batches, ranges of files, errors."""

import errno
from typing import Final, Protocol

from millstream.errors import KafkaCode, KafkaError, LogDirFailed, NoSpace
from millstream.lazy_dataclass import dataclass
from millstream.model import Codec, TimestampType
from millstream.records.validation import WellFormedGroup
from millstream.storage.files import LogFile

INT64_MAX = 2**63 - 1

# Temporary errors: files can be deleted or closed. Everything else is a broken disk.
_PASSING_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The topic's settings for its files. The table of options has the defaults."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    max_message_bytes: int
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    # None keeps the producer's choice.
    compression_type: Codec | None
    is_compacted: bool
    is_deleted: bool
    cleanable_ratio_min: float
    compaction_lag_min_ms: int
    compaction_lag_max_ms: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    producer_expiration_ms: int
    # May this node and others write dead letters of share groups here?
    takes_dead_letters: bool
    # Do ordinary consumers get records at the times in their headers?
    honours_delivery_times: bool


@dataclass(slots=True)
class Appended:
    base_offset: int
    next_offset: int
    # -1 if the records keep the producer's timestamps.
    append_time_ms: int
    log_start_offset: int
    is_duplicate: bool


class BatchGroup(WellFormedGroup, Protocol):
    """Batches of several producers, to be written with one write.

    From producers without an id, outside of transactions, at most some kilobytes together.
    """

    def __len__(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def last_offset_delta(self) -> int:
        """The index of the last record, counted from the first of the group."""
        ...

    @property
    def max_timestamp_delta(self) -> int:
        """The index of the last record of the first batch with the largest timestamp."""
        ...

    def stamped(self, base_offset: int, leader_epoch: int) -> memoryview:
        """The bytes, with offsets from `base_offset` on."""
        ...

    def positions(self, first: int) -> list[int]:
        """The position of each batch, if the first begins at `first`."""
        ...

    def last_offsets(self, base_offset: int) -> list[int]:
        """The last offset of each batch, if the first begins with `base_offset`."""
        ...


@dataclass(slots=True)
class FileRange:
    """Bytes of a log file. Callers pin the file while they use its descriptor."""

    file: LogFile
    position: int
    length: int

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.length)


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    timestamp_ms: int
    offset: int
    leader_epoch: int


class CorruptLog(KafkaError):
    """Bytes of the log are damaged. Nothing was cut; a person has to decide."""

    def __init__(self, message: str) -> None:
        super().__init__(KafkaCode.KAFKA_STORAGE_ERROR, message)


def storage_failure(error: OSError, path: str) -> NoSpace | LogDirFailed:
    """What a failed write to `path` means for the caller."""
    if error.errno in _PASSING_ERRORS:
        return NoSpace(f"{path}: {error.strerror}")
    return LogDirFailed(f"{path}: {error.strerror}")
