"""Blocks of lines, each joined into one record: a line that begins with a given text starts one.

Some logs are no lines: apt writes the time, the command and the packages of a run below each
other. Only the first line of such a block has its time.

Knows lines. Does not know files or time: the caller decides when nothing more is to come.
"""

from collections.abc import Iterable
from typing import Final

from millstream.ingest.lines import Line
from millstream.ingest.traces import RECORD_BYTES_MAX

# Programs on Windows begin a file with it.
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class BlockJoiner:
    """Gives each block when the next one begins; the last one waits.

    Lines before the first block, and what does not fit into a record, are records of their own.
    """

    # A program may write the last lines of a block when its work is done.
    quiet_seconds: Final = 60.0

    def __init__(self, first: bytes) -> None:
        assert first, "every line would start a block"
        self._first = first
        self._block: Line | None = None

    def join(self, lines: Iterable[Line]) -> list[Line]:
        found: list[Line] = []
        for line in lines:
            if line.data.removeprefix(_BYTE_ORDER_MARK).startswith(self._first):
                found += self.flush()
                self._block = line
            elif self._block is not None and self._belongs(self._block, line):
                self._append(self._block, line)
            else:
                found += [*self.flush(), line]
        return found

    def flush(self) -> list[Line]:
        """What waited: nothing that belongs to it is to come."""
        block, self._block = self._block, None
        return [] if block is None else [block]

    def _belongs(self, block: Line, line: Line) -> bool:
        return (
            block.generation == line.generation
            and block.is_complete
            and line.is_complete
            and len(block.data) + 1 + len(line.data) <= RECORD_BYTES_MAX
        )

    def _append(self, block: Line, line: Line) -> None:
        block.end_position = line.end_position
        if line.data:
            block.data += b"\n" + line.data
