"""A bound on the memory of all incoming requests together.

Bytes that have arrived count, not the size that a frame announces: a frame's account grows
with its buffer. One client may hold half of the memory, so that another one always gets
some. A frame that finds no room waits, and TCP makes its client wait. The first frame that
would wait may exceed the limit, so one of many half-received frames can always complete.

What is given back goes to those that wait: to the clients in turn, and to the frames of one
client in order. Memory is theirs from then on, so nobody who is called has to wait again.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

# A frame up to this size never waits.
FREE_BYTES_MAX: Final = 1 << 16


class FrameAccount:
    """The memory of one incomplete frame."""

    __slots__ = ("call_when_free", "client", "held_bytes", "wanted_bytes")

    def __init__(self, client: str) -> None:
        self.client = client
        self.held_bytes = 0
        # While it waits: for how much, and what is called then.
        self.wanted_bytes = 0
        self.call_when_free: Callable[[], None] | None = None


class RequestMemory:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._by_client: dict[str, int] = {}
        # May exceed the limit; at most one at a time.
        self._first: FrameAccount | None = None
        # The frames that wait, by client, first come, first served. No line is empty.
        self._lines: OrderedDict[str, OrderedDict[FrameAccount, None]] = OrderedDict()

    @property
    def is_short(self) -> bool:
        """Is memory so short that slow frames have to be dropped?"""
        return self.held_bytes > self._limit_bytes // 2

    def grow(
        self, account: FrameAccount, size_bytes: int, call_when_free: Callable[[], None]
    ) -> bool:
        """True if the frame may now hold `size_bytes`. Otherwise it holds them when called back."""
        if size_bytes <= account.held_bytes:
            return True
        if size_bytes > FREE_BYTES_MAX and not self._has_room(account, size_bytes):
            if self._first is None:
                self._first = account
            if self._first is not account:
                account.wanted_bytes, account.call_when_free = size_bytes, call_when_free
                self._lines.setdefault(account.client, OrderedDict())[account] = None
                return False
        self._leave_line(account)
        self._hold(account, size_bytes)
        return True

    def count(self, account: FrameAccount, size_bytes: int) -> None:
        """The frame holds so much that has arrived already, whether there is room or not: the
        beginning of a frame, or what is left behind one that was dispatched."""
        is_less = size_bytes < account.held_bytes
        self._leave_line(account)
        if self._first is account:
            self._first = None
        self._hold(account, size_bytes)
        if is_less and self._lines:
            self._let_in()

    def hold(self, client: str, size_bytes: int) -> FrameAccount:
        """Count a frame that is complete and has yet to be decoded; `release` has to follow."""
        account = FrameAccount(client)
        self._hold(account, size_bytes)
        return account

    def release(self, account: FrameAccount) -> None:
        """The frame is dispatched or dropped."""
        self.count(account, 0)

    def _has_room(self, account: FrameAccount, size_bytes: int) -> bool:
        more = size_bytes - account.held_bytes
        of_client = self._by_client.get(account.client, 0)
        return (
            self.held_bytes + more <= self._limit_bytes
            and of_client + more <= self._limit_bytes // 2
        )

    def _hold(self, account: FrameAccount, size_bytes: int) -> None:
        more = size_bytes - account.held_bytes
        account.held_bytes = size_bytes
        self.held_bytes += more
        of_client = self._by_client.get(account.client, 0) + more
        if of_client > 0:
            self._by_client[account.client] = of_client
        else:
            self._by_client.pop(account.client, None)

    def _leave_line(self, account: FrameAccount) -> None:
        if account.call_when_free is not None:
            account.call_when_free = None
            line = self._lines[account.client]
            del line[account]
            if not line:
                del self._lines[account.client]

    def _let_in(self) -> None:
        """Give what is free to those that wait, and then call them."""
        let_in: list[Callable[[], None]] = []
        to_try = list(self._lines)
        while to_try:
            # Of a client whose first frame finds no room, no other is tried.
            to_try = [client for client in to_try if self._let_one_in(client, let_in)]
        if self._first is None and self._lines:
            line = next(iter(self._lines.values()))
            self._first = next(iter(line))
            self._admit(self._first, let_in)
        for call in let_in:
            call()

    def _let_one_in(self, client: str, let_in: list[Callable[[], None]]) -> bool:
        """Whether there may be more of this client."""
        account = next(iter(self._lines[client]))
        if not self._has_room(account, account.wanted_bytes):
            return False
        self._admit(account, let_in)
        if client not in self._lines:
            return False
        self._lines.move_to_end(client)
        return True

    def _admit(self, account: FrameAccount, let_in: list[Callable[[], None]]) -> None:
        assert account.call_when_free is not None
        let_in.append(account.call_when_free)
        self._leave_line(account)
        self._hold(account, account.wanted_bytes)
