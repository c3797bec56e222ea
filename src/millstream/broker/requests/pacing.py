"""Long work of a thread in Python, which leaves the GIL to the loop most of the time.

A thread that computes in Python takes the GIL whenever the loop waits for anything, and the loop
gets it back after a part of a millisecond, or when the kernel runs that thread again. A request of
another client takes several such steps. So while there are others, the thread works for a moment,
and sleeps for a longer one.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

Item = TypeVar("Item")

WORK_SECONDS: Final = 0.0005
PAUSE_SECONDS: Final = 0.001


def with_pauses(is_shared: Callable[[], bool], items: Iterable[Item]) -> Iterator[Item]:
    """The items, for a thread that does something with each of them. Never on the loop.

    `is_shared` says whether other clients use the node right now."""
    ends_at = time.perf_counter() + WORK_SECONDS
    for item in items:
        yield item
        if time.perf_counter() > ends_at:
            if is_shared():
                time.sleep(PAUSE_SECONDS)
            ends_at = time.perf_counter() + WORK_SECONDS
