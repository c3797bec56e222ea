"""What a partition asks of the node that it is on."""

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
    # May this node still believe that it leads what it leads?
    has_lease: Callable[[], bool]
    # What an answer waits for, when nobody else has the records; None where it need not.
    wait_synced: "Callable[[Partition, int], asyncio.Future[None] | None]"
    on_disk_failure: Callable[[str], None]
    # May a log be cut at an offset, for all that the disk says; and that it was.
    may_cut: Callable[[TopicPartition, int], bool]
    was_cut: Callable[[TopicPartition], None]
    # Somebody could not use, or this node not read, what the log has at an offset.
    on_doubt: Callable[[TopicPartition, int], None]
