"""Requests that wait for a partition: fetches for bytes, produces for durability."""

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
