"""Periodic work: retention, checkpoints, deletions, late syncs."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.broker.upkeep.consumed import FindCommits, delete_consumed
from millstream.broker.upkeep.strays import delete_strays
from millstream.errors import KafkaError, LogDirFailed, NoSpace
from millstream.model import TopicPartition

log = logging.getLogger(__name__)

# Between two steps over this many partitions the loop serves clients.
PARTITIONS_PER_STEP: Final = 200
SWEEP_SECONDS: Final = 1.0


async def keep_house(node: NodeState, topics: Topics, find_commits: FindCommits) -> None:
    """Runs until cancelled. The intervals are read each time: they are dynamic options."""
    logged: dict[TopicPartition, str] = {}
    rounds: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = [
        ("log.retention.check.interval.ms", lambda: apply_retention(node, find_commits, logged)),
        ("log.flush.offset.checkpoint.interval.ms", lambda: checkpoint(node)),
        ("producer.id.expiration.check.interval.ms", lambda: expire_producers(node)),
        ("log.retention.check.interval.ms", lambda: delete_strays(node)),
    ]
    fail = node.disk.fail
    async with asyncio.TaskGroup() as group:
        for option, step in rounds:
            group.create_task(_every(partial(_seconds, node, option), step, fail))
        group.create_task(_every(lambda: SWEEP_SECONDS, lambda: sweep(node, topics), fail))


def _seconds(node: NodeState, option: str) -> float:
    return node.config.int(option) / 1000


async def _every(
    seconds: Callable[[], float],
    step: Callable[[], Coroutine[Any, Any, None]],
    on_disk_failure: Callable[[str], None],
) -> None:
    while True:
        await asyncio.sleep(seconds())
        try:
            await step()
        except (OSError, NoSpace) as error:
            # The next round tries again; the next write finds a dead disk.
            log.warning("housekeeping failed: %s", error)
        except LogDirFailed as error:
            on_disk_failure(str(error))
        except Exception:
            # A bug in one round must not end all of them: without retention the disk fills up.
            log.exception("housekeeping failed")


async def apply_retention(
    node: NodeState, find_commits: FindCommits, logged: dict[TopicPartition, str]
) -> None:
    """Drop segments that are too old, or exceed the size limit.

    `logged` are the problems of the last round, and then those of this one. Raises LogDirFailed.
    """
    has_removed = await delete_consumed(node, find_commits)
    problems: dict[TopicPartition, str] = {}
    for count, partition in enumerate(list(node.partitions), start=1):
        where = partition.topic_partition
        try:
            if partition.offline_reason is None:
                # Not the time when the round began: what was written since would be in the future.
                has_removed |= bool(partition.log.apply_retention(node.clock.now_ms()))
        except (KafkaError, OSError) as error:
            # A damaged segment, or no room, which retention of another partition may free.
            problems[where] = str(error)
            if logged.get(where) != problems[where]:
                log.warning("retention of %s is tried again later: %s", where, error)
        if count % PARTITIONS_PER_STEP == 0:
            await asyncio.sleep(0)
    logged.clear()
    logged.update(problems)
    if has_removed:
        await node.disk.checkpoint()


async def expire_producers(node: NodeState) -> None:
    """Forget producers that have been silent for `producer.id.expiration.ms`."""
    now_ms = node.clock.now_ms()
    for count, partition in enumerate(list(node.partitions), start=1):
        partition.log.producers.expire(now_ms, partition.log.config.producer_expiration_ms)
        if count % PARTITIONS_PER_STEP == 0:
            await asyncio.sleep(0)


async def checkpoint(node: NodeState) -> None:
    """Sync what no producer waited for, so that a crash leaves little to check, and record it."""
    node.disk.sync_soon()
    await node.disk.checkpoint()


async def sweep(node: NodeState, topics: Topics) -> None:
    now_ms = node.clock.now_ms()
    store = node.disk.store
    if due := store.take_due_directories(now_ms):
        await asyncio.get_running_loop().run_in_executor(None, store.remove_directories, due)
    for count, each in enumerate(list(store.logs.values()), start=1):
        each.segments.sweep(now_ms)
        if count % PARTITIONS_PER_STEP == 0:
            await asyncio.sleep(0)
    topics.complete()
    if store.is_short_of_descriptors:
        node.disk.sync_soon()
    for count, partition in enumerate(list(node.partitions), start=1):
        if partition.is_flush_due(now_ms):
            node.disk.durability.request(partition)
        if count % PARTITIONS_PER_STEP == 0:
            await asyncio.sleep(0)
