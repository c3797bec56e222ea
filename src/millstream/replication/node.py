"""What a partition needs from its node."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from millstream.model import TopicPartition
from millstream.replication.admission import Generation
from millstream.replication.partition import Partition


@dataclass(frozen=True, slots=True)
class Node:
    broker_id: int
    generation: Generation
    # Does this node still hold its leaderships for certain?
    has_lease: Callable[[], bool]
    # What a response waits for, if no other replica has the records; None if it need not.
    wait_synced: "Callable[[Partition, int], asyncio.Future[None] | None]"
    on_disk_failure: Callable[[str], None]
    # May a log be cut at an offset, as far as the checkpoints on disk allow; and that it was.
    may_cut: Callable[[TopicPartition, int], bool]
    was_cut: Callable[[TopicPartition], None]
    # Report that a reader could not use, or this node not read, the log at an offset.
    on_doubt: Callable[[TopicPartition, int], None]
