"""Dead letters of share groups (KIP-1191): where they go, and what is in them.

A record that was rejected, or delivered too often, is written to the topic that its group
names. A letter says where its record is and why it died; with
`errors.deadletterqueue.copy.record.enable` it is a copy of the record as well.

Knows no log, no loop and no clock.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from millstream.coordinators.share.dead_records import DeadRange
from millstream.lazy_dataclass import dataclass
from millstream.model import INTERNAL_TOPICS, topic_name_problem
from millstream.records.records import Record

TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERY_COUNT: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"
PREFIX: Final = "__dlq.errors."

# Kafka's words, which programs compare.
REJECTED: Final = "Offset rejected by client."
TOO_MANY_DELIVERIES: Final = "Offset delivery count exceeded the threshold."

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Destination:
    """What is known of the topic that a group names."""

    name: str
    # None if there is no such topic.
    partitions: int | None
    takes_dead_letters: bool
    is_compacted: bool
    prefix: str
    may_create: bool


@dataclass(frozen=True, slots=True)
class Source:
    """Where dead records are."""

    group_id: str
    topic: str
    partition: int


def problem_with(destination: Destination) -> str | None:
    """Why no letters can be written to the topic until an administrator changes something."""
    name = destination.name
    if name in INTERNAL_TOPICS or name.startswith("__"):
        return f"{name} is an internal topic"
    invalid = topic_name_problem(name)
    if invalid is not None:
        return f"{invalid} (errors.deadletterqueue.topic.name)"
    if destination.prefix and not name.startswith(destination.prefix):
        return (
            f"{name} does not begin with {destination.prefix!r}"
            " (errors.deadletterqueue.topic.name.prefix)"
        )
    if destination.partitions is None:
        if destination.may_create:
            return None
        return (
            f"{name} does not exist; create it with errors.deadletterqueue.group.enable=true,"
            " or set errors.deadletterqueue.auto.create.topics.enable=true"
        )
    if not destination.takes_dead_letters:
        return f"{name} takes no dead letters; set its errors.deadletterqueue.group.enable=true"
    if destination.is_compacted:
        return f"{name} is compacted, but dead letters may have no key; set cleanup.policy=delete"
    return None


def partition_of(source: Source, partitions: int) -> int:
    return source.partition % partitions


def reason(dead: DeadRange) -> str:
    return REJECTED if dead.is_rejected else TOO_MANY_DELIVERIES


def letters(source: Source, dead: DeadRange, *, now_ms: int) -> Iterator[Record]:
    """One for each record, without its key and value. Offsets are those of the records."""
    before: Headers = [
        (TOPIC, source.topic.encode()),
        (PARTITION, b"%d" % source.partition),
    ]
    after: Headers = [
        (GROUP, source.group_id.encode()),
        (DELIVERY_COUNT, b"%d" % dead.delivery_count),
        (MESSAGE, reason(dead).encode()),
    ]
    for offset in range(dead.first, dead.last + 1):
        headers = [*before, (OFFSET, b"%d" % offset), *after]
        yield Record(offset, now_ms, None, None, headers)


def with_copy(letter: Record, record: Record, *, left_out: Sequence[str]) -> Record:
    """The letter with what is in its record. A record that is a letter itself keeps only what the
    last group says; `left_out` are headers that would have an effect on the letter."""
    kept = [
        (name, value)
        for name, value in record.headers
        if not name.startswith(PREFIX) and name not in left_out
    ]
    return Record(
        letter.offset, letter.timestamp_ms, record.key, record.value, [*letter.headers, *kept]
    )
