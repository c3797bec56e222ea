"""What a connection needs from the server it belongs to."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from millstream.broker.network.partial_frame import Buffers
from millstream.broker.network.receiving import Receiver


class Socket(Protocol):
    """As much of a socket as a connection uses; one with TLS has another class."""

    def fileno(self) -> int: ...
    def recv_into(self, buffer: memoryview) -> int: ...
    def setsockopt(self, level: int, name: int, value: int, /) -> None: ...
    def close(self) -> None: ...


class Host(Buffers, Protocol):
    @property
    def frame_bytes_max(self) -> int:
        """The largest frame that a client may send that has proved who it is."""
        ...

    @property
    def receiver(self) -> Receiver: ...
    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None: ...
    def run_blocking(self, call: Callable[[], bool]) -> "asyncio.Future[bool]": ...
