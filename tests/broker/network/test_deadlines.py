"""When a connection has taken too long."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from millstream.broker.network.deadlines import overdue

NOW = 1000.0


@dataclass
class Connection:
    window_began_at: float | None = None
    window_bytes: int = 0
    arrived_bytes: int = 0
    has_output: bool = False
    received_at: float = NOW
    sent_at: float = NOW


@pytest.mark.parametrize(
    ("connection", "is_memory_short", "reason"),
    [
        (Connection(), False, None),
        (Connection(window_began_at=NOW - 15), False, None),
        (Connection(window_began_at=NOW - 16), False, "frame incomplete: 0 bytes in 16 s"),
        # What arrived in windows before does not count.
        (Connection(NOW - 16, 0, 150_000), False, None),
        (Connection(NOW - 16, 0, 149_999), False, "frame incomplete: 149999 bytes"),
        (Connection(NOW - 16, 50_000_000, 50_150_000), False, None),
        (Connection(NOW - 16, 50_000_000, 50_000_000), False, "frame incomplete: 0 bytes"),
        (Connection(NOW - 16, 0, 1_500_000), True, None),
        (Connection(NOW - 16, 0, 1_499_999), True, "frame incomplete: 1499999 bytes"),
        # The node was busy for as long, and the socket has taken what it can.
        (Connection(NOW - 60, 0, 150_000), False, None),
        (Connection(has_output=True, sent_at=NOW - 31), False, "replies not read for 30 s"),
        (Connection(sent_at=NOW - 31), False, None),
        (Connection(received_at=NOW - 601, sent_at=NOW - 700), False, "idle"),
        (Connection(received_at=NOW - 700, sent_at=NOW - 599), False, None),
    ],
)
def test_who_is_overdue(connection: Connection, is_memory_short: bool, reason: str | None) -> None:
    found = overdue(connection, NOW, idle_seconds_max=600, is_memory_short=is_memory_short)
    assert (found is None) if reason is None else (found or "").startswith(reason)


def seconds_until_closed(
    bytes_at: Callable[[int], int], *, is_memory_short: bool = False
) -> int | None:
    """Of a frame of which so much has arrived by each second; None if it gets an hour."""
    connection = Connection(window_began_at=0.0)
    for second in range(3600):
        connection.arrived_bytes = bytes_at(second)
        connection.received_at = float(second)
        found = overdue(
            connection, float(second), idle_seconds_max=600, is_memory_short=is_memory_short
        )
        if found is not None:
            return second
    return None


def test_each_window_is_judged_alone() -> None:
    assert seconds_until_closed(lambda second: 10_000 * second) is None
    assert seconds_until_closed(lambda second: 9_000 * second) == 16
    assert seconds_until_closed(lambda second: 12_000 * second, is_memory_short=True) == 16
    # Fifty megabytes at once, and then nothing, or a byte each second.
    assert seconds_until_closed(lambda second: 50_000_000) == 32
    assert seconds_until_closed(lambda second: 50_000_000 + second) == 32
    # A line that fails later.
    assert seconds_until_closed(lambda second: 100_000 * min(second, 100)) == 128
