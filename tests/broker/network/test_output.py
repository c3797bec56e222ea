"""Output leaves in order, joined where it is small and in turns where it is large."""

import socket
from typing import Any

from millstream.broker.network.output import COPIED_BYTES_MAX, GATHER_MAX, PlainOutput, Sent


class FakeSocket:
    """Takes everything, and notes what it got in each call."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        self.calls.append(bytes(data))
        return len(data)

    def sendmsg(self, buffers: list[bytes], _: tuple[()], flags: int) -> int:
        return self.send(b"".join(buffers), flags)


def output() -> tuple[PlainOutput, FakeSocket]:
    sock: Any = FakeSocket()
    return PlainOutput(sock), sock


def test_small_replies_leave_together() -> None:
    out, sock = output()
    replies = [bytes([number]) * 10 for number in range(GATHER_MAX + 2)]
    for reply in replies:
        out.push(reply)
    assert out.send() is Sent.EVERYTHING
    assert sock.calls == [b"".join(replies[:GATHER_MAX]), b"".join(replies[GATHER_MAX:])]
    assert (out.size_bytes, out.memory_bytes) == (0, 0)


def test_a_large_reply_leaves_in_turns() -> None:
    out, sock = output()
    large = bytearray(2 * COPIED_BYTES_MAX + 5)
    large[-1] = 7
    out.push(large)
    assert [out.send() for _ in range(3)] == [Sent.TURN_OVER, Sent.TURN_OVER, Sent.EVERYTHING]
    assert [len(call) for call in sock.calls] == [COPIED_BYTES_MAX, COPIED_BYTES_MAX, 5]
    assert b"".join(sock.calls) == large


def test_small_replies_before_and_behind_a_large_one_keep_their_order() -> None:
    out, sock = output()
    large = b"x" * (COPIED_BYTES_MAX + 1)
    for reply in (b"a", b"b", large, b"c"):
        out.push(reply)
    assert out.send() is Sent.TURN_OVER
    assert sock.calls[0] == b"ab"
    assert sum(map(len, sock.calls)) == COPIED_BYTES_MAX
    assert out.send() is Sent.EVERYTHING
    assert b"".join(sock.calls) == b"ab" + large + b"c"


def test_the_rest_of_a_chunk_goes_first_next_time() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        out = PlainOutput(ours)
        data = bytes(range(256)) * 40_000
        out.push(data)
        received = bytearray()
        while out.send() is not Sent.EVERYTHING:
            received += theirs.recv(1 << 22)
        theirs.setblocking(False)
        while len(received) < len(data):
            received += theirs.recv(1 << 22)
        assert received == data
