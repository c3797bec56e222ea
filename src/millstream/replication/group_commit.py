"""Group commit: many produces over many partitions share one sync of the disk.

A round takes everything that is dirty when it begins and syncs it in a thread. Later appends
wait for the next round, which starts at once: the thread finds it there and does not wait
for the loop. So the more clients wait, the more each round carries.

A failed sync is never repeated: the kernel may have dropped the dirty pages and would
report success the second time. The directory then goes offline, and every waiter fails.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Final, Protocol

from millstream.errors import KafkaCode, KafkaError, LogDirFailed
from millstream.replication.partition import Partition
from millstream.storage.syncing import SyncTicket, sync

log = logging.getLogger(__name__)

# One in the thread, and one behind it that takes what is there when its turn comes.
_ROUNDS_AHEAD: Final = 2


_Taken = tuple[Partition, SyncTicket]


class _SyncThread:
    """Makes one sync after the other. An executor's future would take two turns of the loop to
    come back, and longer than a small sync on a fast disk takes to begin."""

    def __init__(
        self,
        sync_waiting: Callable[[], list[_Taken]],
        on_end: Callable[[list[_Taken], BaseException | None], None],
    ) -> None:
        self._sync_waiting = sync_waiting
        self._on_end = on_end
        # How often to sync; None ends the thread. The loop puts at most `_ROUNDS_AHEAD` here.
        self._due: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Sync once more; `on_end` is called on the loop."""
        if self._thread is None:
            # A sync that hangs must not keep the process from ending.
            self._thread = Thread(target=self._run, name="sync", daemon=True)
            self._thread.start()
        self._due.put(asyncio.get_running_loop())

    def _run(self) -> None:
        while (loop := self._due.get()) is not None:
            taken: list[_Taken] = []
            failure: BaseException | None = None
            try:
                taken = self._sync_waiting()
            except BaseException as error:
                failure = error
            try:
                loop.call_soon_threadsafe(self._on_end, taken, failure)
            except RuntimeError:
                # The loop is closed: nobody waits any more.
                return

    def stop(self) -> None:
        """When the syncs that were begun have ended."""
        if self._thread is not None:
            self._due.put(None)
            self._thread.join()
            self._thread = None


class GroupCommit:
    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure
        self._waiting: dict[Partition, list[tuple[int, asyncio.Future[None]]]] = {}
        self._dirty: set[Partition] = set()
        self._is_turn_ending = False
        # Filled by the loop, emptied by the thread.
        self._tickets: deque[tuple[Partition, SyncTicket]] = deque()
        self._rounds_ahead = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._failure: str | None = None
        self._has_sync_failed = False
        self._thread = _SyncThread(self._sync_waiting, self._end_round)
        self.rounds = 0

    def wait_if_needed(
        self, partition: Partition, next_offset: int, *, is_acks_all: bool
    ) -> "asyncio.Future[None] | None":
        """What a response has to wait for; None if it may be sent at once."""
        partition_log = partition.log
        unsynced = next_offset - partition_log.synced_offset
        if unsynced <= 0 and self._failure is None:
            return None
        # flush.messages counts records that may be unsynced, whatever the acks.
        if not is_acks_all and unsynced < partition_log.config.flush_messages:
            return None
        return self.wait_synced(partition, next_offset)

    def wait_synced(self, partition: Partition, next_offset: int) -> "asyncio.Future[None]":
        """Done when everything below `next_offset` is on the disk."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            future.set_exception(_storage_error(self._failure))
        elif partition.log.synced_offset >= next_offset:
            future.set_result(None)
        else:
            waiting = self._waiting.get(partition)
            if waiting is None:
                self._waiting[partition] = [(next_offset, future)]
            else:
                waiting.append((next_offset, future))
            self.request(partition)
        return future

    def offsets_awaited(self, partition: Partition) -> list[int]:
        """Up to where each request that waits here needs the log on the disk."""
        return [next_offset for next_offset, _ in self._waiting.get(partition, ())]

    def request(self, partition: Partition) -> None:
        """Have the partition synced soon."""
        if self._failure is not None:
            return
        self._dirty.add(partition)
        self._take_tickets_soon()

    def forget(self, partition: Partition) -> None:
        """The partition is deleted; requests for it get no answer any more."""
        self._dirty.discard(partition)
        for _, future in self._waiting.pop(partition, ()):
            _fail(future, KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION))

    def _take_tickets_soon(self) -> None:
        if not self._is_turn_ending:
            self._is_turn_ending = True
            self._idle.clear()
            # At the end of this iteration: everything it appends joins the round.
            asyncio.get_running_loop().call_soon(self._take_tickets)

    def _take_tickets(self) -> None:
        self._is_turn_ending = False
        dirty, self._dirty = self._dirty, set()
        for partition in dirty:
            try:
                ticket = partition.log.begin_sync()
            except (OSError, LogDirFailed) as error:
                self.fail(f"sync failed: {error}")
                return
            if ticket is not None:
                self._tickets.append((partition, ticket))
            else:
                self._release(partition)
        self._go_on()

    def _go_on(self) -> None:
        if self._tickets and self._rounds_ahead < _ROUNDS_AHEAD and self._failure is None:
            self._rounds_ahead += 1
            self._thread.begin()
        elif self._rounds_ahead == 0 and not self._is_turn_ending:
            self._idle.set()

    def _sync_waiting(self) -> list[_Taken]:
        """One round, in the thread; returns what it brought to the disk."""
        if self._has_sync_failed:
            # It has already failed, and must not be tried again.
            return []
        taken = []
        while self._tickets:
            taken.append(self._tickets.popleft())
        try:
            sync([ticket for _, ticket in taken])
        except BaseException:
            self._has_sync_failed = True
            raise
        return taken

    def _end_round(self, taken: list[_Taken], error: BaseException | None) -> None:
        self._rounds_ahead -= 1
        if taken or error is not None:
            self.rounds += 1
        if error is not None:
            self.fail(f"sync failed: {error}")
        elif self._failure is None:
            for partition, ticket in taken:
                partition.log.unsynced.end_sync(ticket)
            for partition in dict.fromkeys(partition for partition, _ in taken):
                self._release(partition)
            if self._rounds_ahead == 0 and not self._tickets and self._waiting:
                # A log was cut while it was synced: waiting requests still need another sync. This
                # round may be one that found nothing left to take.
                self._dirty.update(self._waiting)
                self._take_tickets_soon()
        self._go_on()

    def _release(self, partition: Partition) -> None:
        waiting = self._waiting.get(partition)
        if waiting is None:
            return
        synced = partition.log.synced_offset
        # Not in offset order: a duplicate waits for its original, behind newer appends.
        left: list[tuple[int, asyncio.Future[None]]] = []
        for next_offset, future in waiting:
            if next_offset > synced:
                left.append((next_offset, future))
            elif not future.done():
                future.set_result(None)
        if left:
            self._waiting[partition] = left
        else:
            del self._waiting[partition]

    def fail(self, reason: str) -> None:
        """The disk has failed: nothing is acknowledged from here on."""
        if self._failure is not None:
            return
        self._failure = reason
        for waiting in self._waiting.values():
            for _, future in waiting:
                _fail(future, _storage_error(reason))
        self._waiting.clear()
        self._dirty.clear()
        if self._rounds_ahead == 0:
            self._idle.set()
        self._on_failure(reason)

    async def stop(self) -> None:
        """Let the current round finish."""
        await self._idle.wait()
        self._thread.stop()


def _storage_error(reason: str) -> KafkaError:
    return KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, reason)


def _fail(future: "asyncio.Future[None]", error: KafkaError) -> None:
    if not future.done():
        future.set_exception(error)
        # If the client is gone, an unread exception is no news.
        future.exception()


class Durability(Protocol):
    """How a produce learns that its records are safe."""

    def wait_if_needed(
        self, partition: Partition, next_offset: int, *, is_acks_all: bool
    ) -> "asyncio.Future[None] | None": ...
    def offsets_awaited(self, partition: Partition) -> list[int]: ...
    def request(self, partition: Partition) -> None: ...
    def forget(self, partition: Partition) -> None: ...
    def fail(self, reason: str) -> None: ...
    async def stop(self) -> None: ...


class PageCacheDurability(GroupCommit):
    """`--dev`: the page cache counts as safe, a killed process loses nothing. Syncs still
    happen in the background."""

    def wait_if_needed(
        self, partition: Partition, next_offset: int, *, is_acks_all: bool
    ) -> "asyncio.Future[None] | None":
        return None
