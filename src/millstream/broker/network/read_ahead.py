"""What one connection reads from the disk: a thread brings it into the page cache.

The head of the output has to wait for its pages. A consumer that reads a file in order gets the
next ones before it asks, while the socket drains: never more than twice what it has read so
far, so that scattered requests do not make the disk read what nobody wants.

Exists only on connections that met a range that was not cached, and until that is over.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from millstream.broker.network.host import Host
from millstream.broker.network.output import SendRange
from millstream.storage import page_cache
from millstream.storage.files import LogFile

# So far ahead of the reader; what the socket of a fast one drains within some milliseconds.
AHEAD_BYTES_MAX: Final = 4 << 20
# Files that are read in turns. One more, and the oldest begins again.
_RUNS_MAX: Final = 64
# After this many pieces that were cached already, the reader has reached what is in memory: more
# than the kernel has read ahead by itself, 8 MB on some disks.
_CACHED_PIECES_MAX: Final = 32


class Piece:
    """A piece of a file that a thread reads. It has its own pin: the connection may close
    and drop its range in the meantime, and the number of a closed descriptor is reused."""

    __slots__ = ("_descriptor", "_end", "_file", "_position")

    def __init__(self, file: LogFile, position: int, end: int) -> None:
        self._file = file
        self._descriptor = file.pin()
        self._position = position
        self._end = end

    def covers(self, pending: SendRange) -> bool:
        return self._file is pending.file and self._position <= pending.position < self._end

    def warmed(self, pending: SendRange) -> None:
        pending.warm_until = self._end

    def read(self) -> bool:
        """In a thread: False if it was cached already. Raises OSError."""
        return page_cache.warm(self._descriptor, self._position, self._end - self._position)

    def release(self) -> None:
        self._file.unpin()


class _Run:
    """Windows of a file that were sent one behind the other."""

    __slots__ = ("ahead_until", "end", "position", "start")

    def __init__(self, position: int, end: int) -> None:
        self.start = position
        self.position = position
        self.end = end
        self.ahead_until = end


class ReadAhead:
    __slots__ = ("_cached_pieces", "_host", "_on_read", "_reading", "_runs", "_waiting")

    def __init__(self, host: Host, on_read: Callable[[Piece, OSError | None], None]) -> None:
        self._host = host
        self._on_read = on_read
        self._runs: dict[LogFile, _Run] = {}
        self._reading: Piece | None = None
        # The piece that the socket waits for, and behind it at most one for each run.
        self._waiting: deque[Piece] = deque()
        self._cached_pieces = 0

    @property
    def is_over(self) -> bool:
        """The reader has reached what is in memory, and nothing is left to read."""
        is_busy = self._reading is not None or self._waiting
        return self._cached_pieces >= _CACHED_PIECES_MAX and not is_busy

    def demand(self, pending: SendRange) -> None:
        """Read the next window of the range, before anything else."""
        if self._reading is None or not self._reading.covers(pending):
            self._waiting.appendleft(Piece(pending.file, pending.position, pending.window_end))
            self._read_next()

    def follow(self, pending: SendRange) -> None:
        """The next window of the range is sent now: read on behind it, if that is in order."""
        run = self._runs.get(pending.file)
        end = pending.window_end
        if run is None or not run.position <= pending.position <= run.end:
            self._begin_run(pending.file, pending.position, end)
            return
        run.position, run.end = pending.position, end
        ahead_bytes = min(2 * (end - run.start), AHEAD_BYTES_MAX)
        start = max(run.ahead_until, end)
        target = min(end + ahead_bytes, pending.file.size_bytes)
        # In few large pieces.
        if target - start >= ahead_bytes // 2 and len(self._waiting) < _RUNS_MAX:
            run.ahead_until = target
            self._waiting.append(Piece(pending.file, start, target))
            self._read_next()

    def _begin_run(self, file: LogFile, position: int, end: int) -> None:
        self._runs.pop(file, None)
        if len(self._runs) >= _RUNS_MAX:
            del self._runs[next(iter(self._runs))]
        self._runs[file] = _Run(position, end)

    def _read_next(self) -> None:
        if self._reading is None and self._waiting:
            self._reading = self._waiting.popleft()
            self._host.spawn(self._read(self._reading))

    async def _read(self, piece: Piece) -> None:
        failure = None
        try:
            was_cold = await self._host.run_blocking(piece.read)
            self._cached_pieces = 0 if was_cold else self._cached_pieces + 1
        except OSError as error:
            failure = error
        finally:
            piece.release()
            self._reading = None
        self._on_read(piece, failure)
        self._read_next()

    def close(self) -> None:
        while self._waiting:
            self._waiting.popleft().release()
