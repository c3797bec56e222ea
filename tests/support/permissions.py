"""Whom files let in."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_OTHERS = 0o077


@contextlib.contextmanager
def open_umask() -> Iterator[None]:
    """What most shells have: others may read what is created."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """What other users may enter or read, the folder itself included."""
    return [str(path) for path in (folder, *sorted(folder.rglob("*"))) if _is_open(path)]


def _is_open(path: Path) -> bool:
    # What is removed at this moment is read by nobody.
    with contextlib.suppress(FileNotFoundError):
        return not path.is_symlink() and path.stat().st_mode & _OTHERS != 0
    return False
