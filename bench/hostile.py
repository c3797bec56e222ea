"""What a hostile client costs the others: the worst wait of a client that only pings.

    python -m bench.hostile                     every attack, against this tree
    python -m bench.hostile --src DIR           against another tree's `src`
    python -m bench.hostile --only ListOffsets  attacks whose name contains this

Each attack gets a new node, and comes from another address than the pings: clients behind one
address share its part of the node's time. An attack ends with its last answer, or after 20
seconds. The time that it takes does not matter as long as nobody else notices.
"""

import argparse
import contextlib
import ctypes
import multiprocessing
import os
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millstream.wire.apis.api_versions import ApiVersionsRequest
from tests.support.attacks import (
    ATTACKS,
    Aim,
    Attack,
    batch_with,
    create_topic,
    frame,
    now_ms,
    produce,
)
from tests.support.memory_limit import memory_mb
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient

ATTACK_SECONDS_MAX: Final = 20
_PING_EVERY_SECONDS: Final = 0.002
_HOSTILE_ADDRESS: Final = "127.0.0.66"

# Three connections announce 100 MB frames and send 12 KB/s; 300 KB produces of another client wait.
SLOW_FRAMES: Final = "three frames of 100 MB at 12 KB/s, produces of 300 KB"
_SLOW_CONNECTIONS: Final = 3
_SLOW_FRAME_BYTES: Final = 100_000_000
_SLOW_BYTES_PER_SECOND: Final = 12_000
_SLOW_PIECE_SECONDS: Final = 0.05
_GOOD_PRODUCE_BYTES: Final = 300_000


@dataclass(frozen=True, slots=True)
class Outcome:
    worst_wait_ms: float
    grown_mb: float
    answered_bytes: int
    seconds: float
    # Empty, or why there is no answer.
    end: str


# -- running them ------------------------------------------------------------------------


def ping(port: int, request: bytes, worst: Any, asked_at: Any, is_over: Any) -> None:
    """Ask the same again and again. Runs as a process."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as sock:
        while not is_over.value:
            asked_at.value = began = time.monotonic()
            sock.sendall(request)
            [size] = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
            sock.recv(size, socket.MSG_WAITALL)
            worst.value = max(worst.value, time.monotonic() - began)
            asked_at.value = 0.0
            time.sleep(_PING_EVERY_SECONDS)


class Pinging:
    """The worst wait while the block runs, a wait that has not ended included."""

    def __init__(self, port: int, request: bytes | None = None) -> None:
        request = request or frame(ApiVersionsRequest(), 2)
        spawn = multiprocessing.get_context("spawn")
        self._worst: Any = spawn.Value(ctypes.c_double, 0.0, lock=False)
        self._asked_at: Any = spawn.Value(ctypes.c_double, 0.0, lock=False)
        self._is_over: Any = spawn.Value(ctypes.c_bool, False, lock=False)
        self._process = spawn.Process(
            target=ping,
            args=(port, request, self._worst, self._asked_at, self._is_over),
            daemon=True,
        )

    def __enter__(self) -> "Pinging":
        self._process.start()
        while not self._worst.value:
            time.sleep(0.01)
        time.sleep(0.2)
        self._worst.value = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.value = True
        self._process.join(1)
        if self._process.is_alive():
            self._process.kill()

    @property
    def worst_ms(self) -> float:
        asked_at = self._asked_at.value
        waiting = time.monotonic() - asked_at if asked_at else 0.0
        return float(1000 * max(self._worst.value, waiting))


def send_all(port: int, frames: list[bytes], *, reads_answers: bool) -> tuple[int, str]:
    """How many bytes came back, and why no more."""
    answered = 0
    deadline = time.monotonic() + ATTACK_SECONDS_MAX
    with socket.create_connection(
        ("127.0.0.1", port), ATTACK_SECONDS_MAX, (_HOSTILE_ADDRESS, 0)
    ) as sock:
        try:
            for each in frames:
                sock.sendall(each)
                if not reads_answers:
                    continue
                left = received_bytes(sock, 4, deadline)
                size = struct.unpack(">i", left)[0]
                answered += 4 + size
                discard_bytes(sock, size, deadline)
        except TimeoutError:
            return answered, f"given up after {ATTACK_SECONDS_MAX} s"
        except ConnectionError:
            return answered, "connection closed"
    return answered, "" if reads_answers else "client left"


def received_bytes(sock: socket.socket, size: int, deadline: float) -> bytes:
    sock.settimeout(max(deadline - time.monotonic(), 0.001))
    data = sock.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionResetError
    return data


def discard_bytes(sock: socket.socket, size: int, deadline: float) -> None:
    while size:
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        part = len(sock.recv(min(size, 1 << 20)))
        if not part:
            raise ConnectionResetError
        size -= part


def run(attack: Attack, source: str) -> Outcome:
    with tempfile.TemporaryDirectory() as folder, node_of(source, Path(folder)) as node:
        with RawClient(node.bootstrap, timeout_seconds=60) as client:
            frames = list(attack.frames(client, Aim()))
        port = int(node.bootstrap.rpartition(":")[2])
        with Pinging(port) as pinging:
            before_mb = memory_mb(node.pid, "VmRSS")
            Path(f"/proc/{node.pid}/clear_refs").write_text("5")
            began = time.monotonic()
            answered, end = send_all(port, frames, reads_answers=attack.reads_answers)
            seconds = time.monotonic() - began
            # What an attack leaves behind shows in the seconds after it.
            time.sleep(0.5 if attack.reads_answers else 5)
            worst_ms = pinging.worst_ms
            grown = memory_mb(node.pid, "VmHWM") - before_mb
        return Outcome(worst_ms, grown, answered, seconds, end)


def run_slow_frames(source: str) -> Outcome:
    """For as long as other attacks last at most."""
    with tempfile.TemporaryDirectory() as folder, node_of(source, Path(folder)) as node:
        with RawClient(node.bootstrap, timeout_seconds=60) as client:
            create_topic(client, "good")
        good = produce(batch_with(bytes(_GOOD_PRODUCE_BYTES), now_ms()), "good")
        port = int(node.bootstrap.rpartition(":")[2])
        with contextlib.ExitStack() as stack:
            pinging = stack.enter_context(Pinging(port, good))
            before_mb = memory_mb(node.pid, "VmRSS")
            Path(f"/proc/{node.pid}/clear_refs").write_text("5")
            slow = [
                stack.enter_context(
                    socket.create_connection(("127.0.0.1", port), 5, (_HOSTILE_ADDRESS, 0))
                )
                for _ in range(_SLOW_CONNECTIONS)
            ]
            began = time.monotonic()
            end = send_slowly(slow, began + ATTACK_SECONDS_MAX)
            seconds = time.monotonic() - began
            worst_ms = pinging.worst_ms
            grown = memory_mb(node.pid, "VmHWM") - before_mb
        return Outcome(worst_ms, grown, 0, seconds, end)


def send_slowly(socks: list[socket.socket], deadline: float) -> str:
    for sock in socks:
        sock.sendall(struct.pack(">i", _SLOW_FRAME_BYTES))
    piece = bytes(int(_SLOW_BYTES_PER_SECOND * _SLOW_PIECE_SECONDS))
    try:
        while time.monotonic() < deadline:
            for sock in socks:
                sock.sendall(piece)
            time.sleep(_SLOW_PIECE_SECONDS)
    except ConnectionError:
        return "connection closed"
    return f"given up after {ATTACK_SECONDS_MAX} s"


@contextlib.contextmanager
def node_of(source: str, folder: Path) -> Iterator[MillstreamNode]:
    os.environ["PYTHONPATH"] = source
    node = MillstreamNode(folder / "data")
    node.start()
    try:
        yield node
    finally:
        # A node that an attack keeps busy would not stop in time.
        node.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--src", default=str(Path(__file__).parents[1] / "src"))
    parser.add_argument("--only", default="", help="part of an attack's name")
    options = parser.parse_args()
    print(f"{'attack':56}{'worst wait':>12}{'memory':>10}{'answer':>12}{'took':>8}")
    for attack in ATTACKS:
        if options.only in attack.name:
            show(attack.name, run(attack, options.src))
    if options.only in SLOW_FRAMES:
        show(SLOW_FRAMES, run_slow_frames(options.src))


def show(name: str, found: Outcome) -> None:
    print(
        f"{name:56}{found.worst_wait_ms:9.0f} ms{found.grown_mb:7.0f} MB"
        f"{found.answered_bytes / 1000:9.0f} KB{found.seconds:6.1f} s  {found.end}",
        flush=True,
    )


if __name__ == "__main__":
    main()
