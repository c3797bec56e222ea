"""Requests that wait for a partition: fetches for bytes, produces for the high watermark,
deletions for the followers."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

# A fetch waits no longer, whatever it asks for: its client may be gone without a word. Clients ask
# for half a second, and give up after 30.
FETCH_WAIT_MS_MAX: Final = 300_000


class FetchWait:
    """One long-polling fetch, registered with every partition it reads."""

    __slots__ = ("future", "is_replica", "missing_bytes", "reads_committed")

    def __init__(
        self, missing_bytes: int, *, reads_committed: bool = False, is_replica: bool = False
    ) -> None:
        self.missing_bytes = missing_bytes
        # A follower's: it reads what is written, not only what is committed.
        self.is_replica = is_replica
        # If set, records after an open transaction do not count yet.
        self.reads_committed = reads_committed
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def arrived(self, size_bytes: int) -> None:
        self.missing_bytes -= size_bytes
        if self.missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        """Check again now: enough has arrived, or something else changed."""
        if not self.future.done():
            self.future.set_result(None)


class FetchWaits:
    """The fetches that wait at one partition. Most partitions never have any."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: set[FetchWait] | None = None

    def add(self, wait: FetchWait) -> None:
        if self.waiting is None:
            self.waiting = set()
        self.waiting.add(wait)

    def remove(self, wait: FetchWait) -> None:
        if self.waiting is not None:
            self.waiting.discard(wait)

    def wake(self) -> None:
        for wait in tuple(self.waiting or ()):
            wait.wake()

    def wake_replicas(self) -> None:
        for wait in tuple(self.waiting or ()):
            if wait.is_replica:
                wait.wake()

    def written(self, size_bytes: int) -> None:
        """Records that followers may read. Consumers wait until they are committed."""
        for wait in tuple(self.waiting or ()):
            if wait.is_replica:
                wait.arrived(size_bytes)

    def committed(self, size_bytes: int, *, is_undecided: bool) -> None:
        """Records that consumers may read; `is_undecided`: a transaction before them is open."""
        for wait in tuple(self.waiting or ()):
            if not wait.is_replica and not (is_undecided and wait.reads_committed):
                wait.arrived(size_bytes)


def add_to_all(places: Iterable[FetchWaits], wait: FetchWait) -> None:
    """As `FetchWaits.add`; written out, because a consumer may read a thousand partitions."""
    for each in places:
        waiting = each.waiting
        if waiting is None:
            each.waiting = {wait}
        else:
            waiting.add(wait)


def remove_from_all(places: Iterable[FetchWaits], wait: FetchWait) -> None:
    for each in places:
        if each.waiting is not None:
            each.waiting.discard(wait)


class OffsetWaits:
    """Requests that wait until something has reached an offset. They are few."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    @property
    def offsets(self) -> list[int]:
        """What is waited for, once for each request."""
        return [offset for offset, _ in self._waiting]

    def add(self, offset: int) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        return future

    def reached(self, offset: int) -> None:
        for wanted, future in self._waiting:
            if wanted <= offset and not future.done():
                future.set_result(None)
        self._waiting = [each for each in self._waiting if not each[1].done()]

    def fail(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            fail(future, error)


class CommitWaits:
    """Requests that wait for the high watermark, by the offset that it has to reach."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # In the order of the offsets.
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def offsets(self) -> list[int]:
        """What is waited for, once for each request."""
        return [next_offset for next_offset, _ in self._waiting]

    def add(self, next_offset: int) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiting and self._waiting[-1][0] > next_offset:
            # A duplicate waits for its original, which is before newer appends.
            waiting = sorted([*self._waiting, (next_offset, future)], key=lambda one: one[0])
            self._waiting = deque(waiting)
        else:
            self._waiting.append((next_offset, future))
        return future

    def reached(self, high_watermark: int) -> Iterator[tuple[int, "asyncio.Future[None]"]]:
        """Remove and return the requests that have waited for this."""
        while self._waiting and self._waiting[0][0] <= high_watermark:
            yield self._waiting.popleft()

    def fail(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            fail(future, error)


def fail(future: "asyncio.Future[None]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        # If the client is gone, an unread exception is no news.
        future.exception()
