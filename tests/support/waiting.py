"""Waiting for another process, which offers no event to wait on."""

import time
from collections.abc import Callable

_POLL_SECONDS = 0.02


def wait_until(condition: Callable[[], bool], what: str, *, seconds_max: float = 60) -> None:
    """Return as soon as `condition` holds; fail with `what` if it never does."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds_max} s in vain until {what}")
        time.sleep(_POLL_SECONDS)
