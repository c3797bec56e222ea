"""Runs a round of compaction beside the event loop, never on it.

A large round runs in a child process with low priority: a thread shares the interpreter with the
event loop, and a core without a priority. A small one, which is over before a process has started,
runs in a thread; its compiled record loops release the GIL, and it rests. Without compiled loops
every round runs in a child. The child gets the round on its standard input and answers with a line
per segment. Both wait for permission before the next segment: the previous one must be in place by
then. A child ends with its node, or it would write beside the next one.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import asdict
from queue import SimpleQueue
from typing import Final

from millstream.records.columns import COMPILED, IMPLEMENTATION, PURE
from millstream.storage.compaction_round import (
    CannotCompact,
    CleanedSegment,
    Round,
    compact_segments,
)
from millstream.storage.files import OsFileSystem

_NICENESS: Final = 19
# A process takes as long to start as a thread to compact this much.
IN_THREAD_BYTES_MAX: Final = 32 << 20
# Room for a line of the child: a segment that replaces thousands names each.
_LINE_BYTES_MAX: Final = 1 << 24
_WAIT_SECONDS_MIN: Final = 0.001
# Long enough for a sleep to be exact, short enough for a request to wait for.
_TURN_SECONDS: Final = 0.001
# A quarter of the time is left for the work: still more than 100 MB of log a second.
_REST_PER_WORK: Final = 3.0
# A node without clients has its timers and its metrics.
_IDLE_SHARE_MAX: Final = 0.02


class Stopped(Exception):
    """The round was ended from outside."""


class Throttle:
    """Keeps the bytes moved below a rate, counts them, and can end the round."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._began = time.monotonic()
        self._stop = threading.Event()
        self.moved_bytes = 0

    def stop(self) -> None:
        self._stop.set()

    def __call__(self, size_bytes: int) -> None:
        self.moved_bytes += size_bytes
        due = self._began + self.moved_bytes / self.bytes_per_second
        self.wait(due - time.monotonic())

    def wait(self, seconds: float) -> None:
        if seconds > _WAIT_SECONDS_MIN:
            self._stop.wait(seconds)
        if self._stop.is_set():
            raise Stopped


class RestingThrottle:
    """Has a thread work and rest in turns while the event loop is in use.

    On few cores a request that comes while the thread works waits for a core, for the interpreter's
    lock or for the disk.
    """

    def __init__(self, throttle: Throttle, loop_cpu_seconds: Callable[[], float]) -> None:
        self._throttle = throttle
        self._loop_cpu_seconds = loop_cpu_seconds
        self._loop_seconds = loop_cpu_seconds()
        # When the last turn was over, and when this one began.
        self._over = self._began = time.monotonic()

    def __call__(self, size_bytes: int) -> None:
        """Called often, in the thread."""
        self._throttle(size_bytes)
        now = time.monotonic()
        if now - self._began < _TURN_SECONDS:
            return
        loop_seconds = self._loop_cpu_seconds()
        loop_share = (loop_seconds - self._loop_seconds) / (now - self._over)
        self._throttle.wait(rest_seconds(now - self._began, loop_share=loop_share))
        self._over, self._loop_seconds = now, loop_seconds
        self._began = time.monotonic()


def rest_seconds(worked_seconds: float, *, loop_share: float) -> float:
    """After a turn, during which the event loop had this share of a core."""
    return worked_seconds * _REST_PER_WORK if loop_share > _IDLE_SHARE_MAX else 0.0


async def run_round(what: Round, throttle: Throttle) -> AsyncGenerator[CleanedSegment, None]:
    """The segments of a round. Raises CannotCompact, OSError and Stopped."""
    size_bytes = sum(span.size_bytes for span in what.spans)
    is_quick = IMPLEMENTATION is COMPILED and size_bytes <= IN_THREAD_BYTES_MAX
    segments = _in_thread(what, throttle) if is_quick else _in_child(what, throttle)
    async with aclosing(segments):
        async for segment in segments:
            yield segment


async def _in_thread(what: Round, throttle: Throttle) -> AsyncGenerator[CleanedSegment, None]:
    loop = asyncio.get_running_loop()
    steps = compact_segments(what, OsFileSystem(), moved=RestingThrottle(throttle, _cpu_clock()))
    with ThreadPoolExecutor(1, thread_name_prefix="cleaner") as executor:
        try:
            while True:
                segment = await loop.run_in_executor(executor, next, steps, None)
                if segment is None:
                    return
                yield segment
        finally:
            # A caller that stops early must not wait for the rest.
            throttle.stop()
            await loop.run_in_executor(executor, steps.close)


def _cpu_clock() -> Callable[[], float]:
    """How much CPU time the calling thread has had, for another thread to ask."""
    if not hasattr(time, "pthread_getcpuclockid"):
        # The whole process: the work itself counts, and so it always rests.
        return time.process_time
    clock = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(clock)


async def _in_child(what: Round, throttle: Throttle) -> AsyncGenerator[CleanedSegment, None]:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "millstream.broker.upkeep.compaction_worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        task = [what.to_plain(), throttle.bytes_per_second, IMPLEMENTATION.NAME]
        child.stdin.write(json.dumps(task).encode() + b"\n")
        while line := await child.stdout.readline():
            kind, value = json.loads(line)
            if kind == "moved":
                throttle.moved_bytes = value
            elif kind == "segment":
                yield CleanedSegment.from_plain(value)
                child.stdin.write(b"\n")
            elif kind == "os-error":
                raise OSError(*value)
            else:
                raise CannotCompact(value)
        if await child.wait() != 0:
            raise CannotCompact(f"the child process ended with {child.returncode}")
    except (BrokenPipeError, ConnectionResetError):
        raise CannotCompact("the child process is gone") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


def main() -> None:
    """The child: one round from standard input, a JSON line per event to standard output."""
    # Ctrl-C, and what a service manager sends to all processes of a service, are meant for the
    # node, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(_NICENESS)
    plain, rate, name = json.loads(sys.stdin.readline())
    loops = COMPILED if COMPILED is not None and name == COMPILED.NAME else PURE
    permissions: SimpleQueue[None] = SimpleQueue()
    threading.Thread(target=_listen, args=(permissions,), daemon=True).start()
    throttle = Throttle(rate)
    bytes_reported = 0

    def moved(size_bytes: int) -> None:
        nonlocal bytes_reported
        throttle(size_bytes)
        if throttle.moved_bytes - bytes_reported > 1 << 20:
            bytes_reported = throttle.moved_bytes
            _report("moved", bytes_reported)

    try:
        for segment in compact_segments(
            Round.from_plain(plain), OsFileSystem(), moved=moved, implementation=loops
        ):
            _report("segment", asdict(segment))
            permissions.get()
    except CannotCompact as error:
        _report("cannot-compact", str(error))
    except OSError as error:
        _report("os-error", [error.errno, error.strerror, error.filename])


def _listen(permissions: "SimpleQueue[None]") -> None:
    """A line is the permission for the next segment; the end of input is that of the node."""
    while sys.stdin.readline():
        permissions.put(None)
    os._exit(1)


def _report(kind: str, value: object) -> None:
    sys.stdout.write(json.dumps([kind, value]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
    # At once: a thread still reads the input, and the interpreter would wait for its lock.
    os._exit(0)
