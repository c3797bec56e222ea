"""Produce throughput: from 1 KB, one partition, no compression, acks 1, one axis at a time."""

from dataclasses import replace
from pathlib import Path

from bench import clients, frames
from bench.bench import Bench
from bench.brokers import Broker
from bench.loads import (
    ACKS_ALL,
    LIBRDKAFKA_BATCH_BYTES,
    Produced,
    ProduceShape,
    produce,
)
from bench.rows import Row, Target, at_least, at_most
from millstream.model import Codec

PART = "produce"
_BASE = ProduceShape()
_LARGE = ProduceShape(batch_bytes=LIBRDKAFKA_BATCH_BYTES)

SHAPES: list[tuple[str, ProduceShape, Target | None]] = [
    ("1 KB, acks 1", _BASE, None),
    ("100 B, acks 1", replace(_BASE, record_bytes=100), at_least(1.3)),
    ("10 KB, acks 1", replace(_BASE, record_bytes=10_240), None),
    ("1 KB, acks all", replace(_BASE, acks=ACKS_ALL), at_least(1.5)),
    ("1 KB, 12 partitions", replace(_BASE, partitions=12), None),
    ("1 KB, lz4", replace(_BASE, codec=Codec.LZ4), None),
    ("1 KB, zstd", replace(_BASE, codec=Codec.ZSTD), None),
    ("1 KB, acks 1, 1 MB batches", _LARGE, None),
    ("100 B, acks 1, 1 MB batches", replace(_LARGE, record_bytes=100), at_least(1.3)),
    ("1 KB, acks all, 1 MB batches", replace(_LARGE, acks=ACKS_ALL), at_least(1.5)),
]


def run(bench: Bench) -> list[Row]:
    rows: list[Row] = []
    for name, shape, target in SHAPES:
        rows += _raw_rows(bench, name, shape, target)
    for record_bytes, target in ((1024, None), (100, at_least(1.3))):
        rows.append(_java_row(bench, record_bytes, target))
        rows.append(_kcat_row(bench, record_bytes, target))
    return rows


def _raw_rows(bench: Bench, name: str, shape: ProduceShape, target: Target | None) -> list[Row]:
    def measure(broker: Broker) -> Produced:
        with bench.topic(broker, partitions=shape.partitions) as topic:
            return produce(bench, broker, topic, shape)

    found = bench.compare(f"produce {name}", measure)
    rows = [
        Row(
            PART,
            f"raw, {name}",
            "MB/s",
            *found.values(lambda one: one.bytes_per_second / 1e6),
            target=target,
        )
    ]
    if shape in (_BASE, _LARGE):
        cpu = found.values(lambda one: one.cpu_seconds_per_gb)
        rows.append(Row(PART, f"raw, {name}, broker CPU", "s per GB", *cpu, at_most(0.6)))
    return rows


def _java_row(bench: Bench, record_bytes: int, target: Target | None) -> Row:
    # The JVM of the client alone takes a second; fewer records would measure its start.
    records = (300_000_000 if bench.is_quick else 1_000_000_000) // (record_bytes + 150)

    def measure(broker: Broker) -> float:
        with bench.topic(broker) as topic:
            return clients.java_produce(
                broker.bootstrap,
                topic,
                records=records,
                record_bytes=record_bytes,
                acks="1",
                enable_idempotence="false",
            )

    found = bench.compare(f"Java producer, {record_bytes} B", measure, rounds=bench.client_rounds)
    return Row(
        PART,
        f"Java ProducerPerformance, {record_bytes} B, acks 1",
        "records/s",
        found.ours,
        found.kafka,
        target,
    )


def _kcat_row(bench: Bench, record_bytes: int, target: Target | None) -> Row:
    count = (300_000_000 if bench.is_quick else 1_000_000_000) // (record_bytes + 100)
    lines = bench.path("lines")
    _write_lines(lines, record_bytes, count)

    def measure(broker: Broker) -> float:
        with bench.topic(broker) as topic:
            return clients.kcat_produce(broker.bootstrap, topic, lines, count=count, acks="1")

    found = bench.compare(f"kcat producer, {record_bytes} B", measure, rounds=bench.client_rounds)
    lines.unlink()
    name = f"kcat (librdkafka), {record_bytes} B, acks 1"
    return Row(PART, name, "records/s", found.ours, found.kafka, target)


def _write_lines(path: Path, record_bytes: int, count: int) -> None:
    block = b"".join(frames.text(record_bytes, i) + b"\n" for i in range(1000))
    line_bytes = len(block) // 1000
    with open(path, "wb") as file:
        for _ in range(count // 1000):
            file.write(block)
        file.write(block[: count % 1000 * line_bytes])
