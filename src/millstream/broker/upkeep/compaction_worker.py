"""Where a round of compaction runs: beside the event loop, never on it.

The compiled record loops leave the GIL alone, so a thread will do. The Python ones would
take it from the loop for most of the time; they run in a child process with low priority,
which is told the round on its standard input and answers with a line per segment. Both
wait for a word before the next segment: the one before must be in its place by then.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import asdict
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
# Room for a line of the child: a segment that replaces thousands names each.
_LINE_BYTES_MAX: Final = 1 << 24
_WAIT_SECONDS_MIN: Final = 0.001


class Stopped(Exception):
    """The round was ended from outside."""


class Throttle:
    """Keeps the bytes moved below a rate, counts them, and is where a round can be ended."""

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
        ahead_seconds = due - time.monotonic()
        if ahead_seconds > _WAIT_SECONDS_MIN:
            self._stop.wait(ahead_seconds)
        if self._stop.is_set():
            raise Stopped


async def run_round(what: Round, throttle: Throttle) -> AsyncGenerator[CleanedSegment, None]:
    """The segments of a round. Raises CannotCompact, OSError and Stopped."""
    in_child = IMPLEMENTATION is not COMPILED
    segments = _in_child(what, throttle) if in_child else _in_thread(what, throttle)
    async with aclosing(segments):
        async for segment in segments:
            yield segment


async def _in_thread(what: Round, throttle: Throttle) -> AsyncGenerator[CleanedSegment, None]:
    loop = asyncio.get_running_loop()
    steps = compact_segments(what, OsFileSystem(), moved=throttle)
    with ThreadPoolExecutor(1, thread_name_prefix="cleaner") as executor:
        try:
            while True:
                segment = await loop.run_in_executor(executor, next, steps, None)
                if segment is None:
                    return
                yield segment
        finally:
            # Whoever is done with us early must not wait for the rest.
            throttle.stop()
            await loop.run_in_executor(executor, steps.close)


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
        rate = throttle.bytes_per_second
        child.stdin.write(json.dumps([what.to_plain(), rate]).encode() + b"\n")
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
        raise CannotCompact("the child process went away") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


def main() -> None:
    """The child: one round from standard input, a JSON line per event to standard output."""
    os.nice(_NICENESS)
    plain, rate = json.loads(sys.stdin.readline())
    throttle = Throttle(rate)
    told_bytes = 0

    def moved(size_bytes: int) -> None:
        nonlocal told_bytes
        throttle(size_bytes)
        if throttle.moved_bytes - told_bytes > 1 << 20:
            told_bytes = throttle.moved_bytes
            _tell("moved", told_bytes)

    try:
        for segment in compact_segments(
            Round.from_plain(plain), OsFileSystem(), moved=moved, implementation=PURE
        ):
            _tell("segment", asdict(segment))
            if not sys.stdin.readline():
                # The node is gone, and nobody would put the next one in its place.
                return
    except CannotCompact as error:
        _tell("cannot-clean", str(error))
    except OSError as error:
        _tell("os-error", [error.errno, error.strerror, error.filename])


def _tell(kind: str, value: object) -> None:
    sys.stdout.write(json.dumps([kind, value]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
