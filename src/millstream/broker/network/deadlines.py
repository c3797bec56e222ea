"""How long a connection may take: over one frame, over reading its replies, and between requests.

`server` asks this for every connection once a second, and closes those that are overdue.
"""

from typing import Final, Protocol

# A half-sent frame, unless it keeps arriving: it is judged after each window of this length, by
# what has arrived in that window alone.
FRAME_SECONDS_MAX: Final = 15.0
# A large frame over a slow line gets another window when it has arrived at this rate; while memory
# is short, at the second one.
SLOWEST_BYTES_PER_SECOND: Final = 10_000
SLOWEST_WHEN_SHORT: Final = 100_000
SEND_STALL_SECONDS_MAX: Final = 30.0


class Timed(Protocol):
    """The progress of a connection, in seconds of the loop's clock."""

    # Of the incomplete frame: when it began, or its last window; and how many of its bytes had
    # arrived by then. None while no frame is incomplete, or nothing is read.
    window_began_at: float | None
    window_bytes: int

    @property
    def arrived_bytes(self) -> int:
        """How many bytes of the incomplete frame have arrived."""
        ...

    @property
    def has_output(self) -> bool: ...
    @property
    def received_at(self) -> float: ...
    @property
    def sent_at(self) -> float: ...


def overdue(
    connection: Timed, now: float, *, idle_seconds_max: float, is_memory_short: bool
) -> str | None:
    """Why the connection has to be closed, or None. Begins the next window of a frame."""
    began = connection.window_began_at
    if began is not None and now - began > FRAME_SECONDS_MAX:
        arrived = connection.arrived_bytes
        rate = SLOWEST_WHEN_SHORT if is_memory_short else SLOWEST_BYTES_PER_SECOND
        # Not what belongs to a longer window: the node may have been busy, and read nothing.
        in_window = arrived - connection.window_bytes
        if in_window < rate * FRAME_SECONDS_MAX:
            return f"frame incomplete: {in_window} bytes in {now - began:.0f} s"
        connection.window_began_at, connection.window_bytes = now, arrived
    if connection.has_output and now - connection.sent_at > SEND_STALL_SECONDS_MAX:
        return f"replies not read for {SEND_STALL_SECONDS_MAX:.0f} s"
    if now - max(connection.received_at, connection.sent_at) > idle_seconds_max:
        return "idle (connections.max.idle.ms)"
    return None
