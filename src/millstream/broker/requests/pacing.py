"""Long work of a thread in Python, which leaves the GIL to the loop most of the time.

A thread that computes in Python takes the GIL whenever the loop waits for anything, and the loop
gets it back after a part of a millisecond, or when the kernel runs that thread again. A request of
another client takes several such steps. So while there are others, the thread works for a moment,
and sleeps for a longer one.

On a busy machine the kernel takes the core from a thread that computes much, and the loop waits for
the GIL all that time: the moment was long, by the clock, and so is the sleep after it. A thread
that has slept long enough is left alone when it works again.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

Item = TypeVar("Item")
# Goes through the items of some work, and may pause between them.
Each = Callable[[Iterable[Any]], Iterable[Any]]

WORK_SECONDS: Final = 0.0005
PAUSE_SECONDS: Final = 0.001
PAUSE_SECONDS_MAX: Final = 0.03
# A pause is so many times as long as the work before it.
_PAUSES_PER_WORK: Final = PAUSE_SECONDS / WORK_SECONDS


def pause_after(worked_seconds: float) -> float:
    return min(max(PAUSE_SECONDS, _PAUSES_PER_WORK * worked_seconds), PAUSE_SECONDS_MAX)


def at_once(items: Iterable[Item]) -> Iterable[Item]:
    """For work on the loop, which must not sleep."""
    return items


class Pace:
    """Of one piece of work in a thread, which may go through lists in lists. Never on the loop."""

    def __init__(self, has_others: Callable[[], bool]) -> None:
        """`has_others` says whether other clients use the node right now."""
        self._has_others = has_others
        # When the work began after the last pause; None before it has begun at all.
        self._began_at: float | None = None

    def each(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, with pauses between them."""
        if self._began_at is None:
            self._began_at = time.perf_counter()
        for item in items:
            yield item
            worked = time.perf_counter() - self._began_at
            if worked > WORK_SECONDS:
                if self._has_others():
                    time.sleep(pause_after(worked))
                self._began_at = time.perf_counter()
