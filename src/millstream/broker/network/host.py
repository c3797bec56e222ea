"""What a connection needs from the server it belongs to."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from millstream.broker.network.memory import RequestMemory
from millstream.broker.network.receiving import Receiver

if TYPE_CHECKING:
    from millstream.broker.network.connection import Connection
    from millstream.broker.network.replies import Pending, Pieces


class Host(Protocol):
    buffer: memoryview
    frame_bytes_max: int
    memory: RequestMemory
    receiver: Receiver

    def dispatch(self, connection: "Connection", frame: memoryview) -> "Pieces | Pending": ...
    def lend_buffer(self) -> memoryview | None:
        """The shared buffer, for one connection; another one takes its place. None when
        many are lent already."""
        ...

    def return_buffer(self, buffer: memoryview) -> None: ...
    def forget(self, connection: "Connection") -> None: ...
    def is_alone(self, connection: "Connection") -> bool:
        """Has no other connection received anything just now?"""
        ...

    def flush_soon(self, connection: "Connection") -> None:
        """Have `flush` called in the next turn of the loop."""
        ...

    def flush_with_others(self, connection: "Connection") -> None:
        """Have `flush` called, now or in the next turn: for who is done with receiving."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None: ...
    def run_blocking(self, call: Callable[[], None]) -> "asyncio.Future[None]": ...
