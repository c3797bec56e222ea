"""How far each file is acknowledged, and the file that remembers it.

The state moves only over lines that the broker acknowledged, in the order of the file. After
a crash the lines after the last state written are sent again: none is lost, and those that
were acknowledged since may be there twice.
"""

import json
import os
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from millstream.ingest.tail import FileMark

_VERSION = 1


class StateUnreadable(Exception):
    """The file is there but is not a state of ours."""


@dataclass(slots=True)
class Sent:
    generation: int
    end_position: int
    is_acknowledged: bool = False


class Acknowledged:
    """Lines of one file in order, from the first that is not acknowledged."""

    def __init__(self) -> None:
        self._waiting: deque[Sent] = deque()
        self._last: Sent | None = None

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def sent(self, generation: int, end_position: int) -> Sent:
        line = Sent(generation, end_position)
        self._waiting.append(line)
        return line

    def take_last(self) -> Sent | None:
        """The last line up to which all are acknowledged; None where none is new."""
        while self._waiting and self._waiting[0].is_acknowledged:
            self._last = self._waiting.popleft()
        last, self._last = self._last, None
        return last


def load_state(path: Path) -> dict[str, FileMark]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        value = json.loads(data)
        if value["version"] != _VERSION:
            raise StateUnreadable(f"{path} has version {value['version']}, not {_VERSION}")
        return {name: _mark(mark) for name, mark in value["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise StateUnreadable(f"{path} is not a state of `millstream ship`: {wrong}") from None


def _mark(fields: dict[str, int]) -> FileMark:
    for name, number in fields.items():
        if type(number) is not int or number < 0:
            raise ValueError(f"{name} is {number!r}")
    return FileMark(**fields)


def save_state(path: Path, marks: dict[str, FileMark]) -> None:
    """Whole or not at all, also in a power cut."""
    value = {"version": _VERSION, "files": {name: asdict(mark) for name, mark in marks.items()}}
    new = path.with_name(path.name + ".new")
    with new.open("w") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
