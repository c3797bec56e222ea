"""A bound on the memory of all incoming requests together.

Bytes that have arrived count, not the size that a frame announces: a frame's account grows
with its buffer. One client may hold half of the memory, so that another one always gets
some. A frame that finds no room waits, and TCP makes its client wait. The first frame that
would wait may exceed the limit, so one of many half-received frames can always complete.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

# A frame up to this size never waits.
FREE_BYTES_MAX: Final = 1 << 16


class FrameAccount:
    """The memory of one incomplete frame."""

    __slots__ = ("client", "held_bytes")

    def __init__(self, client: str) -> None:
        self.client = client
        self.held_bytes = 0


class RequestMemory:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._by_client: dict[str, int] = {}
        # May exceed the limit; at most one at a time.
        self._first: FrameAccount | None = None
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def is_short(self) -> bool:
        """Is memory so short that slow frames have to be dropped?"""
        return self.held_bytes > self._limit_bytes // 2

    def grow(
        self, account: FrameAccount, size_bytes: int, call_when_free: Callable[[], None]
    ) -> bool:
        """True if the frame may now hold `size_bytes`; otherwise try again when called back."""
        more = size_bytes - account.held_bytes
        if more <= 0:
            return True
        if size_bytes > FREE_BYTES_MAX and not self._has_room(account, more):
            if self._first is None:
                self._first = account
            if self._first is not account:
                self._waiting.append(call_when_free)
                return False
        account.held_bytes = size_bytes
        self.held_bytes += more
        self._by_client[account.client] = self._by_client.get(account.client, 0) + more
        return True

    def hold(self, client: str, size_bytes: int) -> FrameAccount:
        """Count a frame that is complete and has yet to be decoded; `release` has to follow."""
        account = FrameAccount(client)
        account.held_bytes = size_bytes
        self.held_bytes += size_bytes
        self._by_client[client] = self._by_client.get(client, 0) + size_bytes
        return account

    def _has_room(self, account: FrameAccount, more: int) -> bool:
        of_client = self._by_client.get(account.client, 0)
        return (
            self.held_bytes + more <= self._limit_bytes
            and of_client + more <= self._limit_bytes // 2
        )

    def release(self, account: FrameAccount) -> None:
        """The frame is dispatched or dropped."""
        if self._first is account:
            self._first = None
        left = self._by_client.get(account.client, 0) - account.held_bytes
        if left > 0:
            self._by_client[account.client] = left
        else:
            self._by_client.pop(account.client, None)
        self.held_bytes -= account.held_bytes
        account.held_bytes = 0
        # Each frame tries again and queues again if there is still no room.
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()
