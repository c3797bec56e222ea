"""The output that waits on one connection: bytes, and ranges of files.

Small replies are joined into one `sendmsg`; a range of a log file goes out with
`sendfile` and never enters Python. Reading a range that is not in the page cache would block
the event loop, so a thread reads it first.
"""

import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

from millstream.storage import page_cache
from millstream.storage.log import FileRange

# One sendmsg takes at most IOV_MAX (1024) buffers; beyond a few dozen nothing is gained.
GATHER_MAX: Final = 64
# One reader of a large reply must not occupy the loop: this much, then the next socket. On one
# machine the kernel also does the receiver's part, and a megabyte takes about a millisecond.
SENDFILE_BYTES_MAX: Final = 1 << 20
COPIED_BYTES_MAX: Final = 1 << 20
# Records of one partition that are copied into the response: for so few `sendfile`, and the
# question whether they are cached, take longer than a copy.
SMALL_RECORDS_BYTES_MAX: Final = 16 << 10


Bytes = bytes | bytearray | memoryview


class Sent(Enum):
    EVERYTHING = auto()
    SOCKET_FULL = auto()
    # The next window of `OutputQueue.head` is not in the page cache: read it elsewhere first.
    COLD = auto()
    # Enough for one iteration of the loop; there is more.
    TURN_OVER = auto()


# Looked up once: a member of an enum costs as much as a function call.
EVERYTHING: Final = Sent.EVERYTHING


class SentBytes:
    """Bytes sent by all connections: straight from files, and from memory of this process."""

    __slots__ = ("by_copy", "by_sendfile")

    def __init__(self) -> None:
        self.by_sendfile = 0
        self.by_copy = 0


SENT: Final = SentBytes()


class SendRange:
    """A range of a file to send; the file stays pinned until the range is sent or dropped."""

    __slots__ = ("fd", "file", "left", "position", "warm_until")

    def __init__(self, file_range: FileRange) -> None:
        self.file = file_range.file
        self.fd = self.file.pin()
        self.position = file_range.position
        self.left = file_range.length
        # Everything before this position is known to be in the page cache.
        self.warm_until = 0

    @property
    def window_end(self) -> int:
        return self.position + min(self.left, page_cache.WINDOW_BYTES)

    def release(self) -> None:
        self.file.unpin()


def copied_or_pinned(file_range: FileRange, *, copied_bytes_max: int) -> bytearray | SendRange:
    """What is sent of a file: the bytes of a small range that is in the page cache; or the range,
    pinned from here on, as the file may be deleted while the reply waits."""
    pinned = SendRange(file_range)
    if file_range.length <= copied_bytes_max:
        copied = page_cache.read_if_cached(pinned.fd, pinned.position, pinned.left)
        if copied is not None:
            pinned.release()
            return copied
    return pinned


def release_all(pieces: Iterable[object]) -> None:
    """Unpin the files of a reply that will not be sent."""
    for piece in pieces:
        if isinstance(piece, SendRange):
            piece.release()


def memory_bytes_of(pieces: Iterable[object]) -> int:
    """How much of a reply is not in files."""
    total = 0
    for piece in pieces:
        if not isinstance(piece, SendRange):
            assert isinstance(piece, (bytes, bytearray, memoryview))
            total += len(piece)
    return total


class OutputQueue:
    """What waits; how it is sent depends on the socket."""

    __slots__ = ("_chunks", "follow", "memory_bytes", "size_bytes")

    def __init__(self) -> None:
        self._chunks: deque[Bytes | SendRange] = deque()
        self.size_bytes = 0
        # Of that, what is not in files.
        self.memory_bytes = 0
        # Is told of each window before it is sent.
        self.follow: Callable[[SendRange], None] | None = None

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def push(self, piece: object) -> None:
        """Queue bytes, or a range of a file."""
        if isinstance(piece, SendRange):
            self._chunks.append(piece)
            self.size_bytes += piece.left
        else:
            assert isinstance(piece, (bytes, bytearray, memoryview))
            self._chunks.append(piece)
            self.size_bytes += len(piece)
            self.memory_bytes += len(piece)

    def clear(self) -> None:
        """Drop everything and unpin the files."""
        release_all(self._chunks)
        self._chunks.clear()
        self.size_bytes = self.memory_bytes = 0

    def send(self) -> Sent:
        """Send as much as the socket takes. Raises OSError when the peer is gone."""
        raise NotImplementedError

    def _is_warm(self, pending: SendRange) -> bool:
        if pending.position >= pending.warm_until:
            window_end = pending.window_end
            length = window_end - pending.position
            if not page_cache.is_cached(pending.fd, pending.position, length):
                return False
            pending.warm_until = window_end
            if self.follow is not None:
                self.follow(pending)
        return True

    @property
    def head(self) -> SendRange:
        """The range that `send` has stopped at."""
        head = self._chunks[0]
        assert isinstance(head, SendRange)
        return head

    def _range_sent(self, pending: SendRange, count: int) -> None:
        pending.position += count
        pending.left -= count
        self.size_bytes -= count
        if not pending.left:
            self._chunks.popleft()
            pending.release()

    def _sent(self, count: int) -> None:
        """Remove the bytes that were sent; the rest of a chunk goes first next time."""
        chunks = self._chunks
        self.size_bytes -= count
        self.memory_bytes -= count
        SENT.by_copy += count
        while count:
            head = chunks[0]
            assert not isinstance(head, SendRange)
            size = len(head)
            if count < size:
                chunks[0] = memoryview(head)[count:]
                return
            count -= size
            chunks.popleft()


class PlainOutput(OutputQueue):
    """Output of a socket that sends what it is given."""

    __slots__ = ("_sock",)

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock

    def send(self) -> Sent:
        budget = SENDFILE_BYTES_MAX
        to_copy = COPIED_BYTES_MAX
        while self._chunks:
            head = self._chunks[0]
            try:
                if isinstance(head, SendRange):
                    if budget <= 0:
                        return Sent.TURN_OVER
                    if not self._is_warm(head):
                        return Sent.COLD
                    budget -= self._send_range(head, budget)
                else:
                    if to_copy <= 0:
                        return Sent.TURN_OVER
                    to_copy -= self._send_bytes(to_copy)
            except BlockingIOError:
                return Sent.SOCKET_FULL
        return EVERYTHING

    def _send_range(self, pending: SendRange, budget: int) -> int:
        # Never past what is known to be cached.
        count = min(pending.left, budget, pending.warm_until - pending.position)
        sent = os.sendfile(self._sock.fileno(), pending.fd, pending.position, count)
        if sent == 0:
            # The file is shorter than the range promised; the client would wait forever.
            raise OSError(f"log file ended {pending.left} bytes early")
        self._range_sent(pending, sent)
        SENT.by_sendfile += sent
        return sent

    def _send_bytes(self, budget: int) -> int:
        """How many were sent, of those that the budget allows."""
        chunks = self._chunks
        head = chunks[0]
        assert not isinstance(head, SendRange)
        if len(head) > budget:
            sent = self._sock.send(memoryview(head)[:budget])
            self._sent(sent)
            return sent
        if len(chunks) == 1:
            # A single reply, as in most iterations, and nearly always all of it.
            sent = self._sock.send(head)
            if sent != len(head):
                self._sent(sent)
                return sent
            chunks.clear()
            self.size_bytes = self.memory_bytes = 0
            SENT.by_copy += sent
            return sent
        buffers: list[Bytes] = []
        flags = 0
        for chunk in chunks:
            if isinstance(chunk, SendRange):
                # The range follows at once: let the kernel put both in one packet.
                flags = socket.MSG_MORE
                break
            budget -= len(chunk)
            if budget < 0 or len(buffers) == GATHER_MAX:
                break
            buffers.append(chunk)
        if len(buffers) == 1:
            sent = self._sock.send(buffers[0], flags)
        else:
            sent = self._sock.sendmsg(buffers, (), flags)
        self._sent(sent)
        return sent
