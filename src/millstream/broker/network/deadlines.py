"""How long a connection may take: over one frame, over reading its replies, and between requests.

`server` asks this for every connection once a second, and closes those that are overdue.
"""

from typing import Final, Protocol

# A half-sent frame, unless it keeps arriving.
FRAME_SECONDS_MAX: Final = 15.0
# A large frame over a slow line gets more time while it arrives at this rate; while memory is
# short, at the second one.
SLOWEST_BYTES_PER_SECOND: Final = 10_000
SLOWEST_WHEN_SHORT: Final = 100_000
SEND_STALL_SECONDS_MAX: Final = 30.0


class Timed(Protocol):
    """The progress of a connection, in seconds of the loop's clock."""

    @property
    def frame_began_at(self) -> float | None: ...
    @property
    def partial_bytes(self) -> int: ...
    @property
    def has_output(self) -> bool: ...
    @property
    def received_at(self) -> float: ...
    @property
    def sent_at(self) -> float: ...


def overdue(
    connection: Timed, now: float, *, idle_seconds_max: float, is_memory_short: bool
) -> str | None:
    """Why the connection has to be closed, or None."""
    began = connection.frame_began_at
    if began is not None:
        rate = SLOWEST_WHEN_SHORT if is_memory_short else SLOWEST_BYTES_PER_SECOND
        if now - began > FRAME_SECONDS_MAX + connection.partial_bytes / rate:
            return f"frame incomplete after {now - began:.0f} s"
    if connection.has_output and now - connection.sent_at > SEND_STALL_SECONDS_MAX:
        return f"replies not read for {SEND_STALL_SECONDS_MAX:.0f} s"
    if now - max(connection.received_at, connection.sent_at) > idle_seconds_max:
        return "idle (connections.max.idle.ms)"
    return None
