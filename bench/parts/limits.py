"""The machine's own limits, for the figures of the other parts to stand beside."""

from collections.abc import Callable

from bench import machine
from bench.bench import Bench
from bench.rows import Row

PART = "limits"


def run(bench: Bench) -> list[Row]:
    folder = bench.folder
    measures: list[tuple[str, str, Callable[[], float]]] = [
        ("CRC-32C of 1 MB", "MB/s", lambda: machine.crc_rate() / 1e6),
        ("page-cache write, 16 KB", "MB/s", lambda: machine.write_rate(folder, 16_384) / 1e6),
        ("page-cache write, 1 MB", "MB/s", lambda: machine.write_rate(folder, 1 << 20) / 1e6),
        (
            "write and fdatasync, 1 MB",
            "MB/s",
            lambda: machine.synced_write_rate(folder, 1 << 20) / 1e6,
        ),
        ("write and fdatasync, 4 KB", "/s", lambda: machine.synced_write_rate(folder, 4096) / 4096),
        ("sendfile over loopback", "MB/s", lambda: machine.sendfile_rate(folder) / 1e6),
    ]
    rows = []
    for name, unit, measure in measures:
        bench.say(f"limit: {name}")
        rows.append(Row(PART, name, unit, [measure() for _ in range(3)]))
    return rows
