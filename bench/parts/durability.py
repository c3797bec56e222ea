"""acks=all that has reached the disk: our group commit beside Kafka's flush.messages=1."""

from dataclasses import replace

from bench import machine
from bench.bench import Bench
from bench.brokers import Broker
from bench.loads import (
    ACKS_ALL,
    LIBRDKAFKA_BATCH_BYTES,
    ONE_RECORD,
    Produced,
    ProduceShape,
    produce,
)
from bench.rows import Row, at_least

PART = "durability"
_FLUSH_EACH = {"flush.messages": "1"}


def run(bench: Bench) -> list[Row]:
    rows: list[Row] = []
    for name, batch_bytes in (("", 16_384), (", 1 MB batches", LIBRDKAFKA_BATCH_BYTES)):
        shape = ProduceShape(acks=ACKS_ALL, batch_bytes=batch_bytes)
        rows += _throughput(bench, f"1 KB, acks all, synced{name}", shape)
    one = replace(ONE_RECORD, acks=ACKS_ALL, in_flight=64)
    found = bench.compare(
        "one record a request, synced",
        lambda broker: _synced(bench, broker, one),
        ours=bench.synced,
    )
    rates = found.values(lambda each: each.requests_per_second)
    rows.append(Row(PART, "one record a request, synced", "/s", *rates, at_least(10)))
    return rows


def _throughput(bench: Bench, name: str, shape: ProduceShape) -> list[Row]:
    found = bench.compare(name, lambda one: _synced(bench, one, shape), ours=bench.synced)
    ours, kafka = found.values(lambda one: one.bytes_per_second / 1e6)
    disk = machine.synced_write_rate(bench.folder, shape.in_flight * shape.batch_bytes) / 1e6
    unsynced = [_unsynced(bench, shape) / 1e6 for _ in range(bench.rounds)]
    limit = [min(disk, rate) for rate in unsynced]
    what = "the disk" if disk <= max(unsynced) else "ours unsynced"
    return [
        Row(PART, f"raw, {name}", "MB/s", ours, kafka, at_least(1.2), "Kafka"),
        Row(PART, f"raw, {name}", "MB/s", ours, limit, at_least(0.8), what),
    ]


def _synced(bench: Bench, broker: Broker, shape: ProduceShape) -> Produced:
    config = _FLUSH_EACH if broker is bench.kafka else {}
    with bench.topic(broker, config=config) as topic:
        return produce(bench, broker, topic, shape)


def _unsynced(bench: Bench, shape: ProduceShape) -> float:
    with bench.topic(bench.ours) as topic:
        return produce(bench, bench.ours, topic, shape).bytes_per_second
