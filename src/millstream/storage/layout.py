"""Names of directories and files, as Kafka has them, and how to parse them.

Names on a disk are input like any other: a directory becomes a partition only if its name
is one that we would have written.
"""

import uuid
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.model import TopicPartition, topic_name_problem

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
ABORTED_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TORN_SUFFIX: Final = ".torn"
SEGMENT_SUFFIXES: Final = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    ABORTED_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
)

EPOCHS_FILE: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE: Final = "partition.metadata"
RECOVERY_POINTS_FILE: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS_FILE: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS_FILE: Final = "cleaner-offset-checkpoint"
LOG_STARTS_FILE: Final = "log-start-offset-checkpoint"
ABORTED_COUNTS_FILE: Final = "millstream-aborted-transactions"
META_FILE: Final = "meta.properties"
LOCK_FILE: Final = ".lock"
CLEAN_STOP_FILE: Final = ".kafka_cleanshutdown"
BOOT_FILE: Final = "millstream-boot"
# The disk failed once: data may be lost, until the cluster knows.
SUSPECT_FILE: Final = "millstream-suspect"

# Kafka's own metadata log; it is read when a directory is adopted and never opened as data.
CLUSTER_METADATA_DIRECTORY: Final = "__cluster_metadata-0"

_OFFSET_DIGITS: Final = 20
_DIRECTORY_NAME_BYTES_MAX: Final = 255
_DELETED_DIRECTORY_SUFFIX: Final = "-delete"
_STRAY_DIRECTORY_SUFFIX: Final = "-stray"
_OTHER_DIRECTORY_SUFFIXES: Final = ("-future", _STRAY_DIRECTORY_SUFFIX)


@dataclass(frozen=True, slots=True)
class SegmentFileName:
    base_offset: int
    suffix: str


def offset_file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def parse_segment_file(name: str) -> SegmentFileName | None:
    """What a file in a partition directory is; None if it does not belong to a segment."""
    stem, dot, suffix = name.partition(".")
    if not dot or len(stem) != _OFFSET_DIGITS or not stem.isascii() or not stem.isdigit():
        return None
    return SegmentFileName(int(stem), dot + suffix)


def directory_name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def deleted_directory_name(partition: TopicPartition, unique: uuid.UUID) -> str:
    return _unique_directory_name(partition, unique, _DELETED_DIRECTORY_SUFFIX)


def stray_directory_name(partition: TopicPartition, unique: uuid.UUID) -> str:
    return _unique_directory_name(partition, unique, _STRAY_DIRECTORY_SUFFIX)


def _unique_directory_name(partition: TopicPartition, unique: uuid.UUID, end: str) -> str:
    """Long topic names are cut: the result must stay a legal file name."""
    suffix = f"-{partition.partition}.{unique.hex}{end}"
    return partition.topic[: _DIRECTORY_NAME_BYTES_MAX - len(suffix)] + suffix


def parse_directory(name: str) -> TopicPartition | None:
    """The partition in a directory; None if it is something else."""
    if name == CLUSTER_METADATA_DIRECTORY or is_deleted_directory(name):
        return None
    if name.endswith(_OTHER_DIRECTORY_SUFFIXES):
        return None
    topic, dash, number = name.rpartition("-")
    if not dash or not number.isascii() or not number.isdigit() or len(number) > 10:
        return None
    if number != str(int(number)) or topic_name_problem(topic) is not None:
        return None
    return TopicPartition(topic, int(number))


def is_deleted_directory(name: str) -> bool:
    return _is_unique_directory(name, _DELETED_DIRECTORY_SUFFIX)


def is_stray_directory(name: str) -> bool:
    return _is_unique_directory(name, _STRAY_DIRECTORY_SUFFIX)


def _is_unique_directory(name: str, end: str) -> bool:
    if not name.endswith(end):
        return False
    stem, dot, unique = name[: -len(end)].rpartition(".")
    return bool(dot) and "-" in stem and len(unique) == 32 and unique.isalnum()
