"""Requests that wait for a partition: fetches for bytes, deletions for the followers."""

import asyncio


class FetchWait:
    """One long-polling fetch, registered with every partition it reads."""

    __slots__ = ("future", "is_replica", "missing_bytes", "reads_committed")

    def __init__(
        self, missing_bytes: int, *, reads_committed: bool = False, is_replica: bool = False
    ) -> None:
        self.missing_bytes = missing_bytes
        # A follower's: it reads what is written, not only what is committed.
        self.is_replica = is_replica
        # Then what arrives behind an open transaction is nothing to read yet.
        self.reads_committed = reads_committed
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def arrived(self, size_bytes: int) -> None:
        self.missing_bytes -= size_bytes
        if self.missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        """Look again now: enough has come, or something else changed."""
        if not self.future.done():
            self.future.set_result(None)


class OffsetWaits:
    """Requests that wait until something has reached an offset. They are few."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def is_empty(self) -> bool:
        return not self._waiting

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
            if not future.done():
                future.set_exception(error)
                # The client may have gone; then nobody asks, and that is no news.
                future.exception()
