"""Bytes into lines, with the position after each, whatever the bytes are.

A line ends at a newline, which is not part of it; a carriage return before it is left out,
too. A line longer than the limit comes in pieces: a record has a largest size, and nothing
that was in the file may be missing from the topic.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class Line:
    data: bytes
    # Where in its file the next line begins.
    end_position: int
    # Which of the files that had this name one after another; see `tail`.
    generation: int = 0
    # False for a piece of a long line after which more of it comes.
    is_complete: bool = True


class Joiner(Protocol):
    """Makes one record of several lines; the last one waits for what may belong to it."""

    @property
    def quiet_seconds(self) -> float:
        """After this long without a line, nothing more of a record is expected."""

    def join(self, lines: Iterable[Line]) -> list[Line]: ...
    def flush(self) -> list[Line]: ...


class LineSplitter:
    """Takes what was read, gives the lines that are whole; the rest waits for its end."""

    def __init__(self, *, position: int, line_bytes_max: int) -> None:
        assert line_bytes_max > 0
        self._rest = bytearray()
        # Of the first byte of the rest.
        self._position = position
        self._line_bytes_max = line_bytes_max

    @property
    def next_position(self) -> int:
        """Where to read on."""
        return self._position + len(self._rest)

    def split(self, data: bytes) -> list[Line]:
        self._rest += data
        lines = []
        start = 0
        while (newline := self._rest.find(b"\n", start)) >= 0:
            lines += self._pieces(start, newline)
            start = newline + 1
        while len(self._rest) - start > self._line_bytes_max:
            end = start + self._line_bytes_max
            lines.append(Line(bytes(self._rest[start:end]), self._position + end, 0, False))
            start = end
        del self._rest[:start]
        self._position += start
        return lines

    def flush(self) -> list[Line]:
        """What is left as a last line: the file will not grow any more."""
        if not self._rest:
            return []
        lines = self._pieces(0, len(self._rest))
        self._position += len(self._rest)
        lines[-1].end_position = self._position
        self._rest.clear()
        return lines

    def _pieces(self, start: int, end: int) -> list[Line]:
        pieces = []
        while end - start > self._line_bytes_max:
            cut = start + self._line_bytes_max
            pieces.append(Line(bytes(self._rest[start:cut]), self._position + cut, 0, False))
            start = cut
        text = bytes(self._rest[start:end]).removesuffix(b"\r")
        pieces.append(Line(text, self._position + end + 1))
        return pieces
