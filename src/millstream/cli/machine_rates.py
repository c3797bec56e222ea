"""Measures this machine for `millstream cluster advise`: a separate node under load.

Takes up to a minute and two gigabytes of disk, which it frees. The result is kept in the
user's cache and reused until a new measurement is requested.
"""

import dataclasses
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.cli.bootstrap import client_settings, connect_admin, wait_for
from millstream.cli.failure import CommandFailed
from millstream.cli.node_process import FREE_PORT, NodeProcess
from millstream.cluster.sizing import Rates

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaError, Message

SECONDS: Final = 60.0
RECORD_BYTES: Final = 1024
_TOPIC: Final = "measured"
_BYTES_MAX: Final = 2_000_000_000
_DISK_CHUNK_BYTES: Final = 8 << 20
_MEGABYTE: Final = 1_000_000
# Shares of the available time; the rest is for starting and stopping.
_DISK_SHARE: Final = 0.1
_PRODUCE_SHARE: Final = 0.4
_CONSUME_SHARE: Final = 0.4


@dataclass(frozen=True, slots=True)
class Measurement:
    rates: Rates
    day: str


def cache_path() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "millstream" / "rates.json"


def read_measurement(path: Path) -> Measurement | None:
    """The last measurement; None if there is none that can be read."""
    try:
        content = json.loads(path.read_text())
        return Measurement(Rates(**content["rates"]), str(content["day"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_measurement(path: Path, measurement: Measurement) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dataclasses.asdict(measurement), indent=2) + "\n")


def measure(folder: Path, *, seconds: float = SECONDS) -> Measurement:
    """On the disk of `folder`. Raises CommandFailed."""
    if sys.platform != "linux":
        raise CommandFailed("measuring needs Linux, which reports the CPU time of a process")
    with tempfile.TemporaryDirectory(prefix=".millstream-measure-", dir=folder) as name:
        work = Path(name)
        disk = disk_rate(work, seconds=seconds * _DISK_SHARE)
        node = NodeProcess(work, 1, [], address=FREE_PORT)
        node.start()
        try:
            bootstrap = node.wait_serving()
            assert node.process is not None
            rates = _node_rates(bootstrap, node.process.pid, disk, seconds=seconds)
        finally:
            node.ask_to_stop()
            node.wait_stopped()
    return Measurement(rates, date.today().isoformat())


def _node_rates(bootstrap: str, pid: int, disk: float, *, seconds: float) -> Rates:
    from confluent_kafka.admin import NewTopic

    admin = connect_admin(bootstrap)
    wait_for(admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC], f"topic {_TOPIC}")
    written = _watch(pid, lambda: produce_for(bootstrap, seconds * _PRODUCE_SHARE))
    read = _watch(pid, lambda: consume_for(bootstrap, seconds * _CONSUME_SHARE))
    return Rates(
        partition_mb_per_second=written.mb_per_second,
        consumer_mb_per_second=read.mb_per_second,
        disk_mb_per_second=disk,
        cpu_seconds_per_mb_in=written.cpu_seconds_per_mb,
        cpu_seconds_per_mb_out=read.cpu_seconds_per_mb,
    )


@dataclass(frozen=True, slots=True)
class _Watched:
    mb_per_second: float
    cpu_seconds_per_mb: float


def _watch(pid: int, work: "Callable[[], int]") -> _Watched:
    """Work that returns how many bytes it moved, and what the node spent on it."""
    cpu_before, began = cpu_seconds(pid), time.perf_counter()
    megabytes = work() / _MEGABYTE
    taken = time.perf_counter() - began
    if not megabytes:
        raise CommandFailed(f"nothing was moved in {taken:.0f} s")
    return _Watched(megabytes / taken, (cpu_seconds(pid) - cpu_before) / megabytes)


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_rate(folder: Path, *, seconds: float) -> float:
    """Megabytes a second, written sequentially and synced."""
    data = os.urandom(_DISK_CHUNK_BYTES)
    written = 0
    path = folder / "disk"
    began = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        while time.perf_counter() - began < seconds and written < _BYTES_MAX:
            written += file.write(data)
            os.fdatasync(file.fileno())
        taken = time.perf_counter() - began
    path.unlink()
    return written / _MEGABYTE / taken


def produce_for(bootstrap: str, seconds: float) -> int:
    """Bytes of acknowledged values, acks=all."""
    from confluent_kafka import Producer

    acknowledged = 0
    refused: list[KafkaError] = []

    def delivered(error: "KafkaError | None", message: "Message") -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += RECORD_BYTES
        else:
            refused.append(error)

    producer = Producer({**client_settings(bootstrap), "acks": "all", "linger.ms": 5})
    value = b"x" * RECORD_BYTES
    sent = 0
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline and sent < _BYTES_MAX and not refused:
        try:
            producer.produce(_TOPIC, value, on_delivery=delivered)
            sent += RECORD_BYTES
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
    producer.flush(seconds + 10)
    if refused:
        raise CommandFailed(f"the node refused a record: {refused[0].str()}")
    return acknowledged


def consume_for(bootstrap: str, seconds: float) -> int:
    """Bytes of values that one consumer read, starting over whenever it reached the end."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {**client_settings(bootstrap), "group.id": _TOPIC, "enable.auto.commit": False}
    )
    start = TopicPartition(_TOPIC, 0, 0)
    consumer.assign([start])
    _, end = consumer.get_watermark_offsets(start, timeout=10)
    count = 0
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline and end:
        count += len(consumer.consume(10_000, timeout=0.5))
        if consumer.position([start])[0].offset >= end:
            consumer.seek(start)
    consumer.close()
    return count * RECORD_BYTES
