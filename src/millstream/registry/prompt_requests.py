"""HTTP connections on which requests arrive in time, for the registry and the console.

uvicorn waits for ever for the rest of a request, and answers 503 beyond a number of connections:
a client that sends half a header on each of them would lock all others out.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

# How long a connection may take to its first request, and each request to arrive.
REQUEST_SECONDS_MAX: Final = 20.0


class PromptRequests(H11Protocol):
    """Closes a connection whose request has not arrived whole in time. While a request is
    answered nothing is awaited; afterwards `timeout_keep_alive` of uvicorn counts."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._end()
        elif self._timer is None:
            self._begin()

    def _is_answering(self) -> bool:
        """A request has arrived whole, and its answer has not left."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def _begin(self) -> None:
        self._timer = self.loop.call_later(REQUEST_SECONDS_MAX, self._give_up)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self._is_answering():
            self.transport.abort()
