"""Who tells a connection that there is something to read.

Compiled, one reader of the loop serves all connections, and clients that repeat a small
produce over many connections are answered together: their batches are written with one
write where they are for one partition, and Python is asked once for all of them. Without a
C compiler, and elsewhere than on Linux, every connection is a reader of the loop by itself.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast

from millstream.storage.values import BatchGroup

# Base offset of the first batch, append time and log start offset.
Placed = tuple[int, int, int]
# None: nothing was written, and every request is to be handled by itself.
AppendGroup = Callable[[BatchGroup], Placed | None]


class Expected(Protocol):
    """A produce that is answered without its connection, when it comes again."""


class Readable(Protocol):
    """A connection, as far as receiving goes."""

    def on_readable(self) -> None: ...


class Registration(Protocol):
    """One connection among those that are received from."""

    def expect(self, expected: Expected) -> None:
        """Answer this request without asking the connection, until something else comes.

        Only while everything that came before is answered, and sent.
        """
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None:
        """Before the descriptor is closed: its number may be given out again at once."""
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
        """The connection is asked all the same."""

    def pause(self) -> None:
        self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        self._loop.add_reader(self._fd, self._on_readable)

    close = pause


class LoopReceiver:
    """Every connection by itself."""

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
