"""The processes below one that runs Spark, and kill -9 of one of its Python workers."""

import os
import random
import signal
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """All processes below one; those that end meanwhile may be missing."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    except (FileNotFoundError, ProcessLookupError):
        return found
    return found


def kill_a_worker(driver: int, chance: random.Random) -> int | None:
    """One of Spark's Python processes: a daemon or a worker, of a task or of the driver."""
    workers = [pid for pid in descendants(driver) if _is_python_worker(pid)]
    if not workers:
        return None
    victim = chance.choice(sorted(workers))
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return victim


def _is_python_worker(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"pyspark.daemon" in command or b"pyspark/daemon" in command
