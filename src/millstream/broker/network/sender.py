"""The sending side of one connection: what waits, and when it may be sent."""

import asyncio
from typing import Final, Protocol

from millstream.broker.network.host import Host, Socket
from millstream.broker.network.output import OutputQueue, Sent
from millstream.broker.network.replies import Pieces
from millstream.storage import page_cache

_GOES_ON_WHEN_WRITABLE: Final = (Sent.SOCKET_FULL, Sent.TURN_OVER)


class Owner(Protocol):
    def flush(self) -> None: ...
    def close(self, reason: str | None = None) -> None: ...
    def on_send_failed(self, error: OSError) -> None: ...
    def on_sent_everything(self) -> None: ...


class Sender:
    """
    | state    | `is_scheduled` | `_has_writer` | `_is_warming` | continues when              |
    |----------|----------------|---------------|---------------|-----------------------------|
    | idle     | no             | no            | no            | something is queued         |
    | due      | yes            | no            | no            | the loop iteration ends     |
    | blocked  | yes            | yes           | no            | the socket is writable      |
    | cold     | yes            | no            | yes           | a thread has read the pages |
    """

    __slots__ = (
        "_has_writer",
        "_host",
        "_is_warming",
        "_loop",
        "_owner",
        "_sock",
        "is_scheduled",
        "output",
    )

    def __init__(self, owner: Owner, host: Host, sock: Socket, output: OutputQueue) -> None:
        self._owner = owner
        self._host = host
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self.output = output
        # There is output, and it is decided when it is sent next.
        self.is_scheduled = False
        self._has_writer = False
        self._is_warming = False

    def push(self, pieces: Pieces) -> bool:
        """Queue a reply; True if a flush has to be scheduled."""
        output = self.output
        is_new = not output and not self.is_scheduled
        for piece in pieces:
            output.push(piece)
        if is_new:
            self.is_scheduled = True
        return is_new

    @property
    def is_due(self) -> bool:
        """There is something that can be sent now."""
        return self.is_scheduled and not self._has_writer

    def flush(self) -> bool:
        """Send what waits, as far as the socket takes it; False if it failed or must wait."""
        if self._is_warming:
            return False
        try:
            sent = self.output.send()
        except OSError as error:
            self._owner.on_send_failed(error)
            return False
        if sent is Sent.EVERYTHING:
            self.is_scheduled = False
            self._owner.on_sent_everything()
        elif sent is Sent.COLD:
            self._is_warming = True
            self._host.spawn(self._warm())
        wants_writer = sent in _GOES_ON_WHEN_WRITABLE
        if wants_writer != self._has_writer:
            self._watch_writable(wants_writer)
        return True

    def _watch_writable(self, wanted: bool) -> None:
        self._has_writer = wanted
        if wanted:
            self._loop.add_writer(self._sock.fileno(), self._owner.flush)
        else:
            self._loop.remove_writer(self._sock.fileno())

    async def _warm(self) -> None:
        """Read the next range into the page cache, off the loop."""
        pin = self.output.pin_cold_window()
        try:
            await self._host.run_blocking(lambda: page_cache.warm(*pin.window))
        except OSError as error:
            self._owner.close(f"log read failed: {error}")
        finally:
            pin.release()
        self._is_warming = False
        if self.output:
            self.output.window_is_warm()
            self._owner.flush()

    def close(self) -> None:
        """Call before the socket is closed."""
        if self._has_writer:
            self._watch_writable(False)
        self.output.clear()
