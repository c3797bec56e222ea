"""Passwords are hashed in a thread: each hash takes milliseconds on purpose."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from millstream.security.sasl.outcome import AuthenticationFailed

# A second of hashing or so. Clients beyond that try again.
_WAITING_MAX: Final = 200

_Result = TypeVar("_Result")


class SlowChecks:
    def __init__(self) -> None:
        self._waiting = 0
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, check: Callable[[], _Result]) -> _Result:
        """Raises AuthenticationFailed if too many wait."""
        if self._waiting >= _WAITING_MAX:
            raise AuthenticationFailed("Authentication failed: too many logins at once")
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="password")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, check)
        finally:
            self._waiting -= 1

    def stop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
