"""When a connection has taken too long."""

from dataclasses import dataclass

import pytest

from millstream.broker.network.deadlines import overdue

NOW = 1000.0


@dataclass
class Connection:
    frame_began_at: float | None = None
    partial_bytes: int = 0
    has_output: bool = False
    received_at: float = NOW
    sent_at: float = NOW


@pytest.mark.parametrize(
    ("connection", "is_memory_short", "reason"),
    [
        (Connection(), False, None),
        (Connection(frame_began_at=NOW - 15), False, None),
        (Connection(frame_began_at=NOW - 16), False, "frame incomplete after 16 s"),
        # A megabyte at the slowest rate gets 100 s more, and 10 s while memory is short.
        (Connection(frame_began_at=NOW - 114, partial_bytes=1_000_000), False, None),
        (Connection(frame_began_at=NOW - 116, partial_bytes=1_000_000), False, "frame incomplete"),
        (Connection(frame_began_at=NOW - 26, partial_bytes=1_000_000), True, "frame incomplete"),
        (Connection(has_output=True, sent_at=NOW - 31), False, "replies not read for 30 s"),
        (Connection(sent_at=NOW - 31), False, None),
        (Connection(received_at=NOW - 601, sent_at=NOW - 700), False, "idle"),
        (Connection(received_at=NOW - 700, sent_at=NOW - 599), False, None),
    ],
)
def test_who_is_overdue(connection: Connection, is_memory_short: bool, reason: str | None) -> None:
    found = overdue(connection, NOW, idle_seconds_max=600, is_memory_short=is_memory_short)
    assert (found is None) if reason is None else (found or "").startswith(reason)
