"""A share group as a queue: in flight, waiting, retried, dead, and the age of the oldest."""

from dataclasses import dataclass
from typing import Final

from millstream.client.share_queue import QueuePartition, total
from millstream.console.asking import AskFailed
from millstream.console.console import Console, NotFound
from millstream.console.groups import Group, describe_group
from millstream.console.page import Page, Values
from millstream.console.share_queues import PeekedQueue, dead_letter_topic, read_queue
from millstream.errors import KafkaCode

_SHARE: Final = "share"


@dataclass(frozen=True, slots=True)
class Queue:
    """None: the cluster does not say."""

    group: Group
    is_queue: bool
    partitions: list[QueuePartition]
    in_flight: int | None
    retried: int | None
    waiting: int | None
    delayed: int | None
    # Their dead letters have to be written.
    dying: int | None
    # The age of the oldest record that is not finished.
    oldest_age_ms: int | None
    # Letters that the nodes have written since their starts, and all records of the topic.
    dead_letters: int | None
    dead_letter_topic: str | None
    dead_letter_records: int | None
    dead_letter_problem: str | None
    failures: list[str]
    now_ms: int


async def queue(console: Console, values: Values) -> Queue:
    group_id = values.text("group")
    facts = await console.facts()
    try:
        group = await describe_group(console.client, facts, group_id)
    except AskFailed as failed:
        if failed.code == KafkaCode.GROUP_ID_NOT_FOUND:
            raise NotFound(f"There is no group {group_id}.") from failed
        raise
    is_queue = group.kind == _SHARE
    found = PeekedQueue([], None, None, [])
    topic: str | None = None
    if is_queue:
        found = await read_queue(console.client, facts, group_id)
        topic = await dead_letter_topic(console.client, group_id)
    rows = found.partitions
    now_ms = console.clock.now_ms()
    oldest_ms = min((row.oldest_ms for row in rows if row.oldest_ms is not None), default=None)
    return Queue(
        group,
        is_queue,
        rows,
        in_flight=total(row.in_flight for row in rows),
        retried=total(row.retried for row in rows),
        waiting=total(row.waiting for row in rows),
        delayed=total(row.delayed for row in rows),
        dying=total(row.dying for row in rows),
        oldest_age_ms=None if oldest_ms is None else max(now_ms - oldest_ms, 0),
        dead_letters=found.dead_letters,
        dead_letter_topic=topic,
        dead_letter_records=facts.topics[topic].records if topic in facts.topics else None,
        dead_letter_problem=found.dead_letter_problem,
        failures=found.failures,
        now_ms=now_ms,
    )


PAGES = (
    Page(
        "/groups/{group:path}/queue",
        "queue.html",
        queue,
        "A share group as a queue: in flight, waiting, retried, dead",
    ),
)
