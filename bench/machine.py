"""What this machine can do at most: the limits that the brokers' figures stand beside."""

import mmap
import os
import platform
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from crc32c import crc32c

MEGABYTE: Final = 1 << 20
_FILE_BYTES: Final = 256 * MEGABYTE
_SECONDS: Final = 1.0


def describe() -> str:
    """Processor, cores, memory, kernel, Python: what figures depend on."""
    processor = re.search(r"^model name\s*: (.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+)", _read("/proc/meminfo"), re.MULTILINE)
    return (
        f"{processor[1] if processor else platform.processor()}, {os.cpu_count()} cores, "
        f"{int(memory[1]) / 1e6 if memory else 0:.0f} GB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _rate(step: Callable[[], int]) -> float:
    """Bytes per second of a step that returns how many bytes it did."""
    done = step()
    began = time.perf_counter()
    done = 0
    while time.perf_counter() - began < _SECONDS:
        done += step()
    return done / (time.perf_counter() - began)


def crc_rate() -> float:
    data = os.urandom(MEGABYTE)

    def step() -> int:
        crc32c(data)
        return len(data)

    return _rate(step)


def write_rate(folder: Path, chunk_bytes: int) -> float:
    """Appending to the page cache, in chunks."""
    data = os.urandom(chunk_bytes)
    with open(folder / "write.limit", "wb", buffering=0) as file:

        def step() -> int:
            if file.tell() > _FILE_BYTES:
                file.truncate(0)
                file.seek(0)
            return file.write(data)

        rate = _rate(step)
    os.unlink(folder / "write.limit")
    return rate


def synced_write_rate(folder: Path, chunk_bytes: int) -> float:
    """Appending a chunk and waiting for the disk, again and again."""
    data = os.urandom(chunk_bytes)
    with open(folder / "sync.limit", "wb", buffering=0) as file:

        def step() -> int:
            if file.tell() > 4 * _FILE_BYTES:
                file.truncate(0)
                file.seek(0)
            written = file.write(data)
            os.fdatasync(file.fileno())
            return written

        rate = _rate(step)
    os.unlink(folder / "sync.limit")
    return rate


def sendfile_rate(folder: Path) -> float:
    """A cached file over loopback, to a reader that drops it in the kernel."""
    path = folder / "sendfile.limit"
    path.write_bytes(os.urandom(16 * MEGABYTE) * (_FILE_BYTES // MEGABYTE // 16))
    listening = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        sock, _ = listening.accept()
        with sock, open(path, "rb") as file:
            while not stop.is_set():
                position = 0
                while position < _FILE_BYTES and not stop.is_set():
                    try:
                        position += os.sendfile(sock.fileno(), file.fileno(), position, MEGABYTE)
                    except OSError:
                        return

    # Both ends spend their time in the kernel, so one process will do.
    thread = threading.Thread(target=serve)
    thread.start()
    with socket.create_connection(listening.getsockname()) as sock, mmap.mmap(-1, MEGABYTE) as room:
        rate = _rate(lambda: sock.recv_into(room, MEGABYTE, socket.MSG_TRUNC))
        stop.set()
    thread.join()
    listening.close()
    path.unlink()
    return rate
