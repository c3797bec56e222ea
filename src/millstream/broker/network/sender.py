"""The sending side of one connection: what waits, and when it may be sent."""

import asyncio
from typing import Final, Protocol

from millstream.broker.network.host import Host, Socket
from millstream.broker.network.output import EVERYTHING, OutputQueue, Sent
from millstream.broker.network.read_ahead import Piece, ReadAhead
from millstream.broker.network.replies import Pieces

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
        "_read_ahead",
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
        self._read_ahead: ReadAhead | None = None

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
        if sent is EVERYTHING:
            self.is_scheduled = False
            if self._has_writer:
                self._watch_writable(False)
            self._owner.on_sent_everything()
            return True
        if sent is Sent.COLD:
            self._is_warming = True
            self._demand()
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

    def _demand(self) -> None:
        """Have the next window read into the page cache, off the loop."""
        if self._read_ahead is None:
            self._read_ahead = ReadAhead(self._host, self._on_read)
            self.output.follow = self._read_ahead.follow
        self._read_ahead.demand(self.output.head)

    def _on_read(self, piece: Piece, failure: OSError | None) -> None:
        read_ahead = self._read_ahead
        assert read_ahead is not None
        if read_ahead.is_over:
            self._read_ahead = self.output.follow = None
        if not self._is_warming or not piece.covers(self.output.head):
            return
        self._is_warming = False
        if failure is not None:
            self._owner.close(f"log read failed: {failure}")
            return
        piece.warmed(self.output.head)
        read_ahead.follow(self.output.head)
        self._owner.flush()

    def close(self) -> None:
        """Call before the socket is closed."""
        if self._has_writer:
            self._watch_writable(False)
        self._is_warming = False
        if self._read_ahead is not None:
            self._read_ahead.close()
        self.output.clear()
