"""Time, as a value that is passed in.

`now_ms` is the wall clock: record timestamps and retention. `monotonic` is for deadlines:
it never jumps, whatever an administrator does to the wall clock.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int: ...
    def monotonic(self) -> float: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
