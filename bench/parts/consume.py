"""Consume throughput: hot from the page cache, and cold from the disk."""

import os
from pathlib import Path

from bench import clients, machine
from bench.bench import Bench
from bench.brokers import Broker
from bench.loads import (
    SEGMENT_BYTES_MAX,
    Consumed,
    Filled,
    ProduceShape,
    consume,
    fill,
    log_files,
)
from bench.rows import Row, Target, at_least, at_most

PART = "consume"


def run(bench: Bench) -> list[Row]:
    size_bytes = 500_000_000 if bench.is_quick else SEGMENT_BYTES_MAX
    limit = [machine.sendfile_rate(bench.folder) / 1e6 for _ in range(3)]
    rows: list[Row] = []
    for record_bytes, name, target in (
        (1024, "1 KB", at_least(1.25)),
        (100, "100 B", at_least(1.5)),
    ):
        with (
            bench.topic(bench.ours) as our_topic,
            bench.topic(bench.kafka) as kafka_topic,
        ):
            shape = ProduceShape(record_bytes=record_bytes)
            filled = {
                bench.ours: fill(bench, bench.ours, our_topic, shape, size_bytes),
                bench.kafka: fill(bench, bench.kafka, kafka_topic, shape, size_bytes),
            }
            rows += _rows(bench, name, filled, target, limit)
    return rows


def _rows(
    bench: Bench, name: str, filled: dict[Broker, Filled], target: Target, limit: list[float]
) -> list[Row]:
    hot = bench.compare(
        f"consume {name}, hot", lambda broker: consume(bench, broker, filled[broker])
    )
    ours, kafka = hot.values(lambda one: one.bytes_per_second / 1e6)
    rows = [
        Row(PART, f"raw, {name}, hot", "MB/s", ours, kafka, target),
        Row(PART, f"raw, {name}, hot", "MB/s", ours, limit, at_least(0.6), "sendfile limit"),
    ]
    if name == "1 KB":
        cpu = hot.values(lambda one: one.cpu_seconds_per_gb)
        rows.append(Row(PART, f"raw, {name}, hot, broker CPU", "s per GB", *cpu, at_most(0.9)))
        cold = bench.compare(f"consume {name}, cold", lambda one: _cold(bench, one, filled[one]))
        rates = cold.values(lambda one: one.bytes_per_second / 1e6)
        rows.append(Row(PART, f"raw, {name}, cold", "MB/s", *rates))
    rows.append(_java_row(bench, name, filled, target))
    rows.append(_kcat_row(bench, name, filled, target))
    return rows


def _cold(bench: Bench, broker: Broker, filled: Filled) -> Consumed:
    os.sync()
    for path in log_files(broker, filled.topic):
        forget_cached(path)
    return consume(bench, broker, filled)


def forget_cached(path: Path) -> None:
    """Have the kernel drop a file, all of it synced, from the page cache."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _java_row(bench: Bench, name: str, filled: dict[Broker, Filled], target: Target) -> Row:
    found = bench.compare(
        f"Java consumer, {name}",
        lambda broker: clients.java_consume(
            broker.bootstrap, filled[broker].topic, records=filled[broker].records
        ),
        rounds=bench.client_rounds,
    )
    return Row(
        PART, f"Java ConsumerPerformance, {name}, hot", "records/s", found.ours, found.kafka, target
    )


def _kcat_row(bench: Bench, name: str, filled: dict[Broker, Filled], target: Target) -> Row:
    found = bench.compare(
        f"kcat consumer, {name}",
        lambda broker: clients.kcat_consume(
            broker.bootstrap, filled[broker].topic, count=filled[broker].records
        ),
        rounds=bench.client_rounds,
    )
    name = f"kcat (librdkafka), {name}, hot"
    return Row(PART, name, "records/s", found.ours, found.kafka, target)
