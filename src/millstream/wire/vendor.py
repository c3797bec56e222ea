"""Requests that are ours and not Kafka's: their own key range, from 20000 up.

They are listed in ApiVersions only to clients that call themselves `millstream`, so that
nobody else's client meets keys it does not know. `docs/protocol.md` has the table. They are
described as kio describes Kafka's messages, so that `messages` reads and writes them.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final

KEYS_FROM: Final = 20_000
CLIENT_SOFTWARE_NAME: Final = "millstream"


def _of(kafka_type: str) -> dict[str, str]:
    return {"kafka_type": kafka_type}


@dataclass(frozen=True)
class CommitGroupMember:
    __flexible__: ClassVar[bool] = True
    transactional_id: str = field(metadata=_of("string"))
    producer_id: int = field(metadata=_of("int64"))
    producer_epoch: int = field(metadata=_of("int16"))


@dataclass(frozen=True)
class CommitGroupRequest:
    """Commit the transactions of these members, abort those of the others, as batch `batch`.

    `run` is who asks, or empty: from the first request of a new run on, older ones are refused.
    """

    __flexible__: ClassVar[bool] = True
    group: str = field(metadata=_of("string"))
    run: str = field(metadata=_of("string"))
    batch: int = field(metadata=_of("int64"))
    members: tuple[CommitGroupMember, ...]


@dataclass(frozen=True)
class CommitGroupResponse:
    """`already_committed`: the batch, or a later one, was committed before; nothing was done."""

    __flexible__: ClassVar[bool] = True
    error_code: int = field(metadata=_of("error_code"))
    error_message: str | None = field(metadata=_of("string"))
    already_committed: bool = field(metadata=_of("bool"))
    last_batch: int = field(metadata=_of("int64"))


@dataclass(frozen=True)
class LastBatchRequest:
    """`run` as in CommitGroup; a new one takes the group over."""

    __flexible__: ClassVar[bool] = True
    group: str = field(metadata=_of("string"))
    run: str = field(metadata=_of("string"))


@dataclass(frozen=True)
class LastBatchResponse:
    """`last_batch` is -1 for a group that has committed none."""

    __flexible__: ClassVar[bool] = True
    error_code: int = field(metadata=_of("error_code"))
    error_message: str | None = field(metadata=_of("string"))
    last_batch: int = field(metadata=_of("int64"))


@dataclass(frozen=True)
class CompactTopicRequest:
    """Compact a topic now; where `is_started` is false, only tell how that is going."""

    __flexible__: ClassVar[bool] = True
    topic: str = field(metadata=_of("string"))
    is_started: bool = field(metadata=_of("bool"))


@dataclass(frozen=True)
class CompactedPartition:
    """`state` is 0 idle, 1 waiting, 2 running, 3 failed; then `problem` says why."""

    __flexible__: ClassVar[bool] = True
    partition: int = field(metadata=_of("int32"))
    state: int = field(metadata=_of("int8"))
    problem: str | None = field(metadata=_of("string"))
    dirty_ratio: float = field(metadata=_of("float64"))
    bytes_before: int = field(metadata=_of("int64"))
    bytes_after: int = field(metadata=_of("int64"))
    records_before: int = field(metadata=_of("int64"))
    records_after: int = field(metadata=_of("int64"))
    keys: int = field(metadata=_of("int64"))
    moved_bytes: int = field(metadata=_of("int64"))
    elapsed_ms: int = field(metadata=_of("int64"))


@dataclass(frozen=True)
class CompactTopicResponse:
    __flexible__: ClassVar[bool] = True
    error_code: int = field(metadata=_of("error_code"))
    error_message: str | None = field(metadata=_of("string"))
    partitions: tuple[CompactedPartition, ...]


# By API key: the request and the response.
SCHEMAS: Final[dict[int, tuple[type, type]]] = {
    20_000: (CommitGroupRequest, CommitGroupResponse),
    20_001: (LastBatchRequest, LastBatchResponse),
    20_002: (CompactTopicRequest, CompactTopicResponse),
}
