"""How fast compaction is, beside a plain copy of the same bytes.

    python -m bench.compaction [--megabytes 600] [--keys 1000000]

A log of 100-byte values over a million keys, uncompressed, is compacted by the compiled
record loops and by the Python ones (those on a tenth of it), each in a process of its own
for the peak memory. The plain copy reads the same bytes, checks every batch's CRC and writes
them, in the same run. The files are in the page cache; nothing waits for the disk but the
one sync of each new file, in the copy as well.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from millstream.broker.node.log_config import log_config
from millstream.config import BrokerConfig
from millstream.model import TopicPartition
from millstream.records.batch import BatchView
from millstream.records.builder import build_batch
from millstream.records.columns import COMPILED, PURE
from millstream.records.records import Record
from millstream.storage.compaction_plan import CompactionLimits, plan_round
from millstream.storage.compaction_round import compact_segments
from millstream.storage.files import DescriptorCache, OsFileSystem
from millstream.storage.log import Log
from millstream.storage.recovery import Circumstances, recover_log

NOW_MS = 1_700_000_000_000
VALUE_BYTES = 100
RECORDS_PER_BATCH = 130
CONFIG = replace(log_config(BrokerConfig({}), {}), segment_bytes=128 << 20, is_compacted=True)
# Kafka's defaults.
LIMITS = CompactionLimits(keys_bytes=128 << 20, load_factor=0.9, buffer_bytes=512 << 10)
COPY_BYTES = 512 << 10


def open_log(directory: Path) -> Log:
    return recover_log(
        str(directory),
        TopicPartition("bench", 0),
        CONFIG,
        Circumstances(was_stopped_cleanly=False, power_was_cut=False, now_ms=NOW_MS),
        cache=DescriptorCache(OsFileSystem(), 100),
        device=directory.stat().st_dev,
        report=print,
    )


def write_log(directory: Path, *, size_bytes: int, keys: int) -> None:
    """Random keys. A few thousand batches are built and sent again and again."""
    directory.mkdir()
    chance = random.Random(1)
    log = open_log(directory)
    count = max(1, min(keys * 4 // RECORDS_PER_BATCH, size_bytes // 16_000))
    while log.segments.size_bytes < size_bytes:
        for _ in range(count):
            batch = build_batch(
                [
                    Record(
                        number,
                        NOW_MS + number,
                        b"key-%07d" % chance.randrange(keys),
                        chance.randbytes(VALUE_BYTES),
                    )
                    for number in range(RECORDS_PER_BATCH)
                ],
                base_offset=0,
            )
            log.append_unchecked(BatchView(memoryview(batch)), leader_epoch=0, now_ms=NOW_MS)
            if log.segments.size_bytes >= size_bytes:
                break
    log.roll(NOW_MS)
    log.finish()
    log.close()


def compact(directory: Path, name: str) -> dict[str, float]:
    """One round; the new segments are not put in place, so that it can run again."""
    implementation = PURE if name == "pure" else COMPILED
    assert implementation is not None, "the compiled module is missing"
    log = open_log(directory)
    planned = plan_round(log, LIMITS, cleaned_offset=None, now_ms=NOW_MS)
    assert planned is not None
    began, cpu = time.perf_counter(), time.process_time()
    segments = list(
        compact_segments(
            planned, OsFileSystem(), moved=lambda size: None, implementation=implementation
        )
    )
    seconds = time.perf_counter() - began
    return {
        "megabytes": sum(span.size_bytes for span in planned.spans) / 1e6,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
        "kept": sum(segment.records_after for segment in segments),
        "records": sum(segment.records_before for segment in segments),
    }


def copy(directory: Path) -> dict[str, float]:
    """Read, check the CRC of every batch, write, sync."""
    paths = sorted(directory.glob("*.log"))
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    target = directory / "copy.tmp"
    began, cpu = time.perf_counter(), time.process_time()
    file_system = OsFileSystem()
    for path in paths:
        with open(path, "rb", buffering=0) as source, open(target, "wb", buffering=0) as out:
            rest = b""
            while data := source.read(COPY_BYTES):
                data = rest + data
                position = 0
                view = memoryview(data)
                while len(data) - position >= 61:
                    batch = BatchView(view[position:])
                    if batch.size_bytes > len(data) - position:
                        break
                    assert batch.crc_is_valid()
                    position += batch.size_bytes
                out.write(view[:position])
                rest = data[position:]
            file_system.sync(out.fileno())
    target.unlink()
    seconds = time.perf_counter() - began
    return {
        "megabytes": megabytes,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
    }


def in_process(directory: Path, what: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.compaction", "--run", what, str(directory)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    for leftover in directory.glob("*.cleaned"):
        leftover.unlink()
    return found


def run(what: str, directory: Path) -> None:
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = copy(directory) if what == "copy" else compact(directory, what)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**found, "peak_mb": peak / 1024, "base_mb": base / 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", nargs=2, metavar=("WHAT", "DIR"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        run(chosen.run[0], Path(chosen.run[1]))
        return
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        large, small = Path(folder) / "large", Path(folder) / "small"
        write_log(large, size_bytes=chosen.megabytes * 1_000_000, keys=chosen.keys)
        write_log(small, size_bytes=chosen.megabytes * 100_000, keys=chosen.keys // 10)
        runs: dict[str, list[dict[str, float]]] = {"copy": [], "compiled": [], "pure": []}
        # In turn, so that whatever else the machine does hits all of them.
        for _ in range(chosen.rounds):
            for what, found in runs.items():
                found.append(in_process(small if what == "pure" else large, what))
    show({what: min(found, key=lambda each: each["seconds"]) for what, found in runs.items()})


def show(rows: dict[str, dict[str, float]]) -> None:
    print(f"{'':10}{'MB/s':>8}{'MB per CPU s':>14}{'peak MB':>9}")
    rates, per_cpu = {}, {}
    for what, row in rows.items():
        rates[what] = row["megabytes"] / row["seconds"]
        per_cpu[what] = row["megabytes"] / row["cpu_seconds"]
        print(f"{what:10}{rates[what]:8.0f}{per_cpu[what]:14.0f}{row['peak_mb']:9.0f}")
    for other, goal in (("copy", 0.3), ("pure", 20)):
        ratio = rates["compiled"] / rates[other]
        by_cpu = per_cpu["compiled"] / per_cpu[other]
        print(f"compiled to {other}: {ratio:.2f} (goal {goal}), by CPU time {by_cpu:.2f}")


if __name__ == "__main__":
    main()
