"""A partial frame, and the memory it grows in.

Its memory grows with what has arrived, not with what the frame announces, and counts against
the bound on all of them (`memory`), from the bytes on that have arrived with the frame before it.
A frame that fits the shared buffer stays where its beginning arrived: that buffer is lent to it,
and the other connections share another one.
`deadlines` says how long it may take.
"""

import struct
from collections.abc import Callable
from typing import Final, Protocol

from millstream.broker.network.memory import FREE_BYTES_MAX, FrameAccount, RequestMemory
from millstream.errors import ProtocolError
from millstream.security.tls_session import is_client_hello
from millstream.wire.apis.produce import ProduceRequest
from millstream.wire.headers import SIZE_BYTES

# A frame gets memory for this much, and then for twice what it has, but not for more than the
# maximum at a time: clearing ten megabytes would keep other clients waiting.
_GROWTH_BYTES_MIN: Final = 1 << 17
_GROWTH_BYTES_MAX: Final = 1 << 20
_FRAME_BYTES_MIN: Final = 8
# While this much is missing, and more than TLS may have received and not decrypted, the connection
# need not be woken for less.
_WAKE_BYTES: Final = 64 << 10
_UNDECRYPTED_BYTES_MAX: Final = 32 << 10
# Only records may be larger: 200,000 partitions, the most that a request may name, take less.
_FRAME_WITHOUT_RECORDS_BYTES_MAX: Final = 16 << 20

_SIZE = struct.Struct(">i")
_API_KEY = struct.Struct(">h")


class Buffers(Protocol):
    """The buffers for receiving."""

    @property
    def buffer(self) -> memoryview:
        """The buffer that all connections share."""
        ...

    @property
    def memory(self) -> RequestMemory: ...
    def lend_buffer(self) -> memoryview | None:
        """Lend the shared buffer to one connection and replace it with another. None if many
        are lent already."""
        ...

    def return_buffer(self, buffer: memoryview) -> None: ...


class Receives(Protocol):
    def recv_into(self, buffer: memoryview) -> int: ...


def frame_size(data: memoryview | bytearray, position: int, frame_bytes_max: int) -> int:
    """The size that a frame announces. Raises ProtocolError for an impossible one."""
    size: int = _SIZE.unpack_from(data, position)[0]
    if not _FRAME_BYTES_MIN <= size <= frame_bytes_max:
        if is_client_hello(data[position : position + SIZE_BYTES]):
            raise ProtocolError("it speaks TLS, and this listener does not")
        raise ProtocolError(
            f"frame of {size} bytes (allowed: {_FRAME_BYTES_MIN} to {frame_bytes_max})"
        )
    return size


class PartialFrame:
    __slots__ = (
        "_account",
        "_buffers",
        "_data",
        "frame_bytes_max",
        "have",
        "waits_for_memory",
    )

    def __init__(
        self, buffers: Buffers, rest: memoryview, client: str, *, frame_bytes_max: int
    ) -> None:
        self._buffers = buffers
        self.frame_bytes_max = frame_bytes_max
        self._account = FrameAccount(client)
        # Lent by `buffers` if it is a memoryview. There are few of them, and they do not count.
        self._data: bytearray | memoryview = self._borrow(rest) or bytearray(rest)
        if isinstance(self._data, bytearray):
            buffers.memory.count(self._account, len(rest))
        # This many bytes of `_data` have arrived: 0 <= it <= len(_data).
        self.have = len(rest)
        # Nothing is received until there is memory.
        self.waits_for_memory = False

    def _borrow(self, rest: memoryview) -> memoryview | None:
        """The shared buffer with `rest` at its start, if a large frame begins there."""
        if len(rest) < SIZE_BYTES:
            return None
        buffers = self._buffers
        wanted = SIZE_BYTES + frame_size(rest, 0, self.frame_bytes_max)
        if not max(FREE_BYTES_MAX, len(rest)) < wanted <= len(buffers.buffer):
            return None
        lent = buffers.lend_buffer()
        if lent is not None:
            lent[: len(rest)] = rest
        return lent

    @property
    def view(self) -> memoryview:
        """Must be released before the next `receive`, which may have to grow the memory."""
        return memoryview(self._data)

    @property
    def _wanted(self) -> int:
        if self.have < SIZE_BYTES:
            return SIZE_BYTES
        size = frame_size(self._data, 0, self.frame_bytes_max)
        if size > _FRAME_WITHOUT_RECORDS_BYTES_MAX and self.have >= SIZE_BYTES + _API_KEY.size:
            api_key = _API_KEY.unpack_from(self._data, SIZE_BYTES)[0]
            if api_key != ProduceRequest.api.key:
                raise ProtocolError(f"frame of {size} bytes for API key {api_key}")
        return SIZE_BYTES + size

    @property
    def is_whole(self) -> bool:
        return self.have >= SIZE_BYTES and self.have >= self._wanted

    @property
    def wake_bytes(self) -> int:
        """How many bytes must arrive before it is worth receiving again."""
        if self.have < SIZE_BYTES:
            return 1
        missing = self._wanted - self.have - _UNDECRYPTED_BYTES_MAX
        return _WAKE_BYTES if missing >= _WAKE_BYTES else 1

    def grow(self, when_free: Callable[[], None]) -> bool:
        """Make room for what may arrive next. False if there is none: `when_free` follows."""
        data = self._data
        if isinstance(data, memoryview):
            return True
        growth = min(max(self.have, _GROWTH_BYTES_MIN), _GROWTH_BYTES_MAX)
        room = min(self._wanted, self.have + growth)
        if len(data) >= room:
            return True
        if not self._buffers.memory.grow(self._account, room, when_free):
            self.waits_for_memory = True
            return False
        data.extend(bytes(room - len(data)))
        return True

    def receive(self, sock: Receives) -> bool:
        """Receive into the room that `grow` made. False at the end of the stream."""
        have, wanted = self.have, self._wanted
        if have >= wanted:
            return True
        with memoryview(self._data) as view:
            count = sock.recv_into(view[have:wanted])
        self.have = have + count
        return count > 0

    def cut(self, consumed: int) -> None:
        """The beginning was dispatched; another frame begins after it."""
        # A lent buffer holds one frame only. Copied, not moved: the dispatched part may still
        # be in use.
        assert isinstance(self._data, bytearray)
        self._data = self._data[consumed : self.have]
        self.have -= consumed
        self._buffers.memory.count(self._account, self.have)

    def drop(self) -> None:
        """Give everything back."""
        self._buffers.memory.release(self._account)
        if isinstance(self._data, memoryview):
            self._buffers.return_buffer(self._data)
        self._data = bytearray()
        self.have = 0
