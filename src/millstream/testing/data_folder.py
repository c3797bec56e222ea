"""Where a test's brokers keep data that nobody keeps."""

import tempfile
from pathlib import Path
from typing import Final

STORAGE: Final = ("memory", "disk")
# A file system in memory, where Linux has one.
_MEMORY: Final = Path("/dev/shm")


def check_storage(storage: str) -> None:
    if storage not in STORAGE:
        raise ValueError(f"storage is one of {', '.join(STORAGE)}, not {storage!r}")


def new_folder(storage: str) -> Path:
    """A new, empty one. Its owner removes it."""
    place = _MEMORY if storage == "memory" and _MEMORY.is_dir() else None
    return Path(tempfile.mkdtemp(prefix="millstream-", dir=place))
