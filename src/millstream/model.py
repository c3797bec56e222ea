"""Names and small values that every package shares. No behaviour, no I/O."""

import uuid
from enum import IntEnum
from typing import NewType

from millstream.lazy_dataclass import dataclass

BrokerId = NewType("BrokerId", int)
TopicId = uuid.UUID
# Who a request is from, as Kafka writes it.
Principal = NewType("Principal", str)

ANONYMOUS = Principal("User:ANONYMOUS")
NO_TOPIC_ID: TopicId = uuid.UUID(int=0)
NO_LEADER_EPOCH = -1
NO_PRODUCER_ID = -1
NO_TIMESTAMP_MS = -1

TOPIC_NAME_LENGTH_MAX = 249
_TOPIC_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

# Kafka's own; clients may read but never write or create them.
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Codec(IntEnum):
    """Compression codecs, numbered as in the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def topic_name_problem(name: str) -> str | None:
    """Why `name` cannot be a topic's name, or None if it can.

    Topic names become directory and znode names, so every path that builds one of
    those from outside input checks here first.
    """
    if not name:
        return "topic name is empty"
    if name in (".", ".."):
        return f"topic name {name!r} is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"topic name is longer than {TOPIC_NAME_LENGTH_MAX} characters"
    if not _TOPIC_CHARACTERS.issuperset(name):
        return f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None
