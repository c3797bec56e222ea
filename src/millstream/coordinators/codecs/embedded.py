"""The subscription and the assignment inside the bytes of classic consumers.

The group passes them through unchanged. They are parsed only to know which topics a group
reads, and when a group changes between the classic and the consumer protocol.
"""

from dataclasses import field
from typing import Final

from millstream.encoding import Reader, Writer
from millstream.lazy_dataclass import dataclass

CONSUMER_PROTOCOL: Final = "consumer"
_NEWEST: Final = 3


@dataclass(slots=True)
class Subscription:
    version: int
    topics: tuple[str, ...]
    # Partitions by topic name.
    owned: dict[str, list[int]] = field(default_factory=dict)
    rack_id: str | None = None


def decode_subscription(data: bytes) -> Subscription:
    """Raises ValueError if the bytes are something else."""
    reader = Reader(data)
    version = reader.int16()
    if version < 0:
        raise ValueError(f"a subscription has version {version}")
    topics = tuple(reader.string() for _ in range(reader.array_length() or 0))
    _skip_user_data(reader)
    subscription = Subscription(version, topics)
    # Fields of newer versions come last, so a reader may stop early.
    if version >= 1:
        subscription.owned = _read_partitions(reader)
    if version >= 2:
        reader.int32()
    if version >= 3:
        subscription.rack_id = reader.nullable_string()
    return subscription


def encode_subscription(topics: tuple[str, ...]) -> bytes:
    writer = Writer()
    writer.int16(0)
    writer.array_length(len(topics))
    for topic in topics:
        writer.string(topic)
    writer.int32(-1)
    return writer.getvalue()


def encode_assignment(partitions: dict[str, list[int]], *, version: int) -> bytes:
    """Partitions by topic name, in the version of the member's subscription."""
    writer = Writer()
    writer.int16(min(version, _NEWEST))
    writer.array_length(len(partitions))
    for topic in sorted(partitions):
        writer.string(topic)
        writer.array_length(len(partitions[topic]))
        for partition in partitions[topic]:
            writer.int32(partition)
    writer.int32(-1)
    return writer.getvalue()


def decode_assignment(data: bytes) -> dict[str, list[int]]:
    """Partitions by topic name. Raises ValueError if the bytes are something else."""
    if not data:
        return {}
    reader = Reader(data)
    if reader.int16() < 0:
        raise ValueError("an assignment has a negative version")
    return _read_partitions(reader)


def _read_partitions(reader: Reader) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for _ in range(reader.array_length() or 0):
        topic = reader.string()
        found[topic] = [reader.int32() for _ in range(reader.array_length() or 0)]
    return found


def _skip_user_data(reader: Reader) -> None:
    length = reader.int32()
    if length > 0:
        reader.raw(length)
