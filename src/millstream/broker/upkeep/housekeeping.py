"""Work that comes round by itself: retention, checkpoints, deletions, late syncs."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from millstream.broker.upkeep.consumed import delete_consumed
from millstream.broker.upkeep.strays import delete_strays
from millstream.errors import LogDirFailed, NoSpace
from millstream.replication.partition import Partition

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

log = logging.getLogger(__name__)

# Between two steps over this many partitions the loop serves clients.
PARTITIONS_PER_STEP: Final = 200
SWEEP_SECONDS: Final = 1.0


async def keep_house(broker: "Broker") -> None:
    """Runs until cancelled. The intervals are read anew each time: they are dynamic."""
    async with asyncio.TaskGroup() as group:
        group.create_task(
            _every(
                lambda: broker.config.int("log.retention.check.interval.ms") / 1000,
                lambda: apply_retention(broker),
                broker.fail_disk,
            )
        )
        group.create_task(
            _every(
                lambda: broker.config.int("log.flush.offset.checkpoint.interval.ms") / 1000,
                lambda: checkpoint(broker),
                broker.fail_disk,
            )
        )
        group.create_task(
            _every(
                lambda: broker.config.int("producer.id.expiration.check.interval.ms") / 1000,
                lambda: expire_producers(broker),
                broker.fail_disk,
            )
        )
        group.create_task(
            _every(
                lambda: broker.config.int("log.retention.check.interval.ms") / 1000,
                lambda: delete_strays(broker),
                broker.fail_disk,
            )
        )
        group.create_task(_every(lambda: SWEEP_SECONDS, lambda: sweep(broker), broker.fail_disk))


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
            # The next round tries again; a dead disk is found by whoever writes to it.
            log.warning("housekeeping failed: %s", error)
        except LogDirFailed as error:
            on_disk_failure(str(error))
        except Exception:
            # A bug in one round must not end all of them: without retention the disk fills.
            log.exception("housekeeping failed")


async def apply_retention(broker: "Broker") -> None:
    """Drop segments that are too old or too many."""
    now_ms = broker.clock.now_ms()
    has_removed = await delete_consumed(broker)
    for count, partition in enumerate(list(broker.partitions), start=1):
        if partition.offline_reason is None:
            has_removed |= _apply_to_one(partition, now_ms)
        if count % PARTITIONS_PER_STEP == 0:
            await asyncio.sleep(0)
    if has_removed:
        await broker.checkpoint()


def _apply_to_one(partition: Partition, now_ms: int) -> bool:
    try:
        return bool(partition.log.apply_retention(now_ms))
    except NoSpace as error:
        # Others may have something to remove that makes room.
        log.warning("retention of %s waits for room: %s", partition.topic_partition, error)
        return False


async def expire_producers(broker: "Broker") -> None:
    """Forget producers that have been silent for `producer.id.expiration.ms`."""
    now_ms = broker.clock.now_ms()
    for count, partition in enumerate(list(broker.partitions), start=1):
        partition.log.expire_producers(now_ms)
        if count % PARTITIONS_PER_STEP == 0:
            await asyncio.sleep(0)


async def checkpoint(broker: "Broker") -> None:
    """Sync what nobody waited for, so that a crash leaves little to check, and say so."""
    broker.sync_soon()
    await broker.checkpoint()


async def sweep(broker: "Broker") -> None:
    now_ms = broker.clock.now_ms()
    broker.store.sweep(now_ms)
    broker.topics.complete()
    if broker.store.is_short_of_descriptors:
        broker.sync_soon()
    for count, partition in enumerate(list(broker.partitions), start=1):
        if partition.is_flush_due(now_ms):
            broker.durability.request(partition)
        if count % PARTITIONS_PER_STEP == 0:
            await asyncio.sleep(0)
