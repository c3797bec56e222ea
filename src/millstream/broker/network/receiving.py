"""Watches sockets, and notifies a connection that has something to read.

In compiled code, one reader of the loop serves all connections. Clients that repeat a small
produce over many connections are answered together: batches for one partition go into one
write, with one call to Python for all of them. Without a C compiler, and on systems other
than Linux, every connection is a separate reader of the loop.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast

from millstream.storage.values import BatchGroup

# Base offset of the first batch, append time and log start offset.
Placed = tuple[int, int, int]
# None: nothing was written, and every request must be handled separately.
AppendGroup = Callable[[BatchGroup], Placed | None]


class Expected(Protocol):
    """A produce that is answered without its connection when it is repeated."""


class Readable(Protocol):
    """A connection, as the receiver sees it."""

    def on_readable(self) -> None: ...


class Registration(Protocol):
    """One connection that the receiver watches."""

    def expect(self, expected: Expected) -> None:
        """Answer this request without the connection, until a different one arrives.

        Only while every earlier request is answered and its reply is sent.
        """
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None:
        """Call before the descriptor is closed: its number may be reused at once."""
        ...


class Receiver(Protocol):
    def register(self, connection: Readable, fd: int) -> Registration: ...
    def close(self) -> None: ...


class LoopRegistration:
    __slots__ = ("_fd", "_loop", "_on_readable")

    def __init__(self, connection: Readable, fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._on_readable = connection.on_readable
        self.resume()

    def expect(self, expected: Expected) -> None:
        """No effect: the connection handles every request."""

    def pause(self) -> None:
        self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        self._loop.add_reader(self._fd, self._on_readable)

    close = pause


class LoopReceiver:
    """Watches every connection separately."""

    def register(self, connection: Readable, fd: int) -> Registration:
        return LoopRegistration(connection, fd)

    def close(self) -> None:
        pass


class Implementation(Protocol):
    def Receiver(self, loop: asyncio.AbstractEventLoop, frame_bytes_max: int) -> Receiver: ...
    def Expected(
        self,
        before_records: bytes,
        answer: bytes,
        offsets_at: int,
        *,
        terms: object,
        append: AppendGroup,
    ) -> Expected: ...


def _compiled() -> Implementation | None:
    if not TYPE_CHECKING:
        try:
            from millstream.broker.network import _receiving
        except ImportError:
            return None
    else:
        from millstream.broker.network import _receiving
    return cast(Implementation, _receiving)


COMPILED: Final = _compiled()
NAME: Final = "pure Python" if COMPILED is None else "compiled"


def start_receiving(loop: asyncio.AbstractEventLoop, frame_bytes_max: int) -> Receiver:
    if COMPILED is None:
        return LoopReceiver()
    return COMPILED.Receiver(loop, frame_bytes_max)
