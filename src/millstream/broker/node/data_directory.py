"""The node's data directory: its logs, how they reach the disk, and whether the disk works.

A directory that failed stays failed until the next start: nothing on it is served or
acknowledged any more.
"""

import asyncio
import logging
import resource
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from millstream.broker.node.disposal import NodeFileSystem
from millstream.clock import Clock
from millstream.cluster.stores.embedded import FILE_NAME
from millstream.cluster.stores.store import SESSION_FILE
from millstream.errors import LogDirFailed, NoSpace, StartError
from millstream.replication.group_commit import Durability
from millstream.replication.table import PartitionTable
from millstream.storage.store import DESCRIPTOR_LIMIT, LogStore

log = logging.getLogger(__name__)

_NO_SPACE_LOGGED_EVERY_MS: Final = 60_000


class DataDirectory:
    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        partitions: PartitionTable,
        new_durability: Callable[[Callable[[str], None]], Durability],
    ) -> None:
        self.path = path
        self.durability = new_durability(self.fail)
        # Why the disk failed; None while it works. Never returns to None.
        self.failure: str | None = None
        # Called once, when the disk fails.
        self.on_failure: Callable[[], None] = lambda: None
        # Set by `claim`, which must be called first.
        self.store: LogStore
        self._clock = clock
        self._partitions = partitions
        self._is_claimed = False
        self._no_space_logged_ms = -_NO_SPACE_LOGGED_EVERY_MS
        self._checkpointing = asyncio.Lock()

    def claim(self, broker_id: int) -> None:
        """Lock the directory for this process. Raises StartError."""
        self.store = LogStore.claim(
            self.path,
            file_system=NodeFileSystem(),
            cluster_id=None,
            broker_id=broker_id,
            clock_now_ms=self._clock.now_ms,
            report=log.warning,
            descriptor_limit=_descriptor_limit(),
        )
        # `checkpoint` writes in a thread, and a new partition may write on the loop.
        self.store.checkpoints.turns = Lock()
        self._is_claimed = True

    def release(self) -> None:
        """Release the directory after a failed start."""
        if self._is_claimed:
            self.store.close(clean=False)

    def close(self) -> None:
        """Everything is synced; the next start need not check the logs."""
        try:
            self.store.close(clean=self.failure is None)
        except (LogDirFailed, NoSpace) as error:
            log.error("not stopped cleanly, the next start checks the logs: %s", error)

    def fail(self, reason: str) -> None:
        if self.failure is not None:
            return
        self.failure = reason
        log.error("data directory %s is offline: %s", self.path, reason)
        self.durability.fail(reason)
        for partition in self._partitions:
            partition.go_offline(reason)
        self.on_failure()

    def note_no_space(self, error: NoSpace) -> None:
        """An append was refused. Clients retry at once; we log one line a minute."""
        now_ms = self._clock.now_ms()
        if not 0 <= now_ms - self._no_space_logged_ms < _NO_SPACE_LOGGED_EVERY_MS:
            self._no_space_logged_ms = now_ms
            log.error("records are refused until there is room: %s", error.message)
        # If descriptors were short, synced files can be closed.
        self.sync_soon()

    def sync_soon(self) -> None:
        """Sync everything that is not on the disk, even if no producer waits for it."""
        for partition in self._partitions:
            if partition.log.synced_offset < partition.log.next_offset:
                self.durability.request(partition)

    async def checkpoint(self) -> None:
        """Write the checkpoint files, off the loop, one writer at a time."""
        async with self._checkpointing:
            if self.failure is not None:
                return
            write = self.store.checkpoints.take()
            try:
                await asyncio.get_running_loop().run_in_executor(None, write)
            except LogDirFailed as error:
                self.fail(str(error))

    async def confirm_recovery(self) -> None:
        """After a crash: sync what may only be in the page cache, while clients are served.
        Only a clean stop waits for it."""
        confirmation = self.store.confirmation()
        if confirmation is None:
            return
        loop = asyncio.get_running_loop()
        try:
            is_synced = await loop.run_in_executor(None, confirmation.sync)
            confirmation.end(is_synced=is_synced)
            await self.checkpoint()
            if self.failure is None:
                await loop.run_in_executor(None, self.store.last_shutdown.name_boot)
        except NoSpace as error:
            log.warning("a crash from here on will count as a power cut: %s", error)
        except (OSError, LogDirFailed) as error:
            self.fail(f"sync failed: {error}")


def check_standalone(path: Path) -> None:
    """Raises StartError for the directory of a cluster member, whose topics are in ZooKeeper."""
    if (path / SESSION_FILE).exists():
        raise StartError(f"data directory {path} belongs to a cluster node: set zookeeper.connect")


def check_member(path: Path) -> None:
    """Raises StartError for the directory of a standalone node, which holds its topics."""
    if (path / FILE_NAME).exists():
        raise StartError(
            f"data directory {path} belongs to a standalone node:"
            " `millstream cluster adopt` moves its topics to ZooKeeper"
        )


def _descriptor_limit() -> int:
    """Log files may use two thirds of the process's descriptors; the store can double its limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTOR_LIMIT if soft < 0 else min(DESCRIPTOR_LIMIT, soft // 3)
