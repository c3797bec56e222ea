"""A limit on the memory of one process: a cgroup where there is one, else an address space."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_VERSION_1 = Path("/sys/fs/cgroup/memory")
_VERSION_2 = Path("/sys/fs/cgroup")
# Threads reserve far more addresses than they use.
_ADDRESSES_PER_BYTE = 4


@dataclass(frozen=True)
class MemoryLimit:
    # What to run the process behind.
    command: list[str]
    description: str


@contextlib.contextmanager
def limited_memory(size_bytes: int) -> Iterator[MemoryLimit]:
    """The limit holds for what is run behind the command, until the block ends."""
    folder = _new_cgroup(size_bytes)
    if folder is None:
        kilobytes = size_bytes * _ADDRESSES_PER_BYTE // 1024
        command = ["sh", "-c", f'ulimit -v {kilobytes}; exec "$@"', "sh"]
        yield MemoryLimit(command, f"address space of {kilobytes >> 10} MiB")
        return
    procs = folder / "cgroup.procs"
    try:
        yield MemoryLimit(
            ["sh", "-c", f'echo $$ > {procs}; exec "$@"', "sh"], f"cgroup of {size_bytes >> 20} MiB"
        )
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _new_cgroup(size_bytes: int) -> Path | None:
    name = f"millstream-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    for root, limit in ((_VERSION_1, "memory.limit_in_bytes"), (_VERSION_2, "memory.max")):
        folder = root / name
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit).write_text(str(size_bytes))
        except OSError:
            folder.rmdir()
            continue
        return folder
    return None


def memory_mb(pid: int, field: str) -> float:
    """A field of the process's status, such as VmRSS, or VmHWM for its peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise ValueError(field)
