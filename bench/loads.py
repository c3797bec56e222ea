"""The raw loads that several parts use, and what one round of them shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import frames
from bench.bench import Bench, now_ms
from bench.brokers import Broker
from bench.replay import Replayed, replay, write_frames
from millstream.model import Codec

# What Java's producer and librdkafka fill under load by default.
JAVA_BATCH_BYTES: Final = 16_384
LIBRDKAFKA_BATCH_BYTES: Final = 1_000_000
IN_FLIGHT: Final = 8
# Kafka answers a fetch from one segment only, so frames that are built beforehand would miss
# records behind its end. This much fits into one.
SEGMENT_BYTES_MAX: Final = 950_000_000
ACKS_ALL: Final = -1


@dataclass(frozen=True, slots=True)
class Produced:
    """One round of a produce load. Bytes are those of the batches, before any copy."""

    records_per_second: float
    bytes_per_second: float
    requests_per_second: float
    cpu_seconds_per_gb: float
    cpu_us_per_request: float
    replayed: Replayed


@dataclass(frozen=True, slots=True)
class ProduceShape:
    record_bytes: int = 1024
    batch_bytes: int = JAVA_BATCH_BYTES
    codec: Codec = Codec.NONE
    partitions: int = 1
    acks: int = 1
    in_flight: int = IN_FLIGHT
    connections: int = 1

    @property
    def batch_records(self) -> int:
        return frames.records_per_batch(self.record_bytes, self.batch_bytes)

    def batch(self) -> bytes:
        return frames.batch(
            record_bytes=self.record_bytes,
            count=self.batch_records,
            codec=self.codec,
            timestamp_ms=now_ms(),
        )


ONE_RECORD: Final = ProduceShape(record_bytes=100, batch_bytes=1)


def produce(
    bench: Bench,
    broker: Broker,
    topic: str,
    shape: ProduceShape,
    *options: str,
    requests: int | None = None,
) -> Produced:
    """Send for one round's time (or a number of requests) and look at the broker's cost."""
    load = frames.produce_load(
        topic, [shape.batch()], acks=shape.acks, partitions=range(shape.partitions)
    )
    path = bench.path("produce.frames")
    write_frames(load, path)
    if requests is None:
        requests = max(1, bench.round_bytes_max // len(load.frames[0]))
        options = (*options, "--seconds", str(bench.round_seconds))
    before = broker.cpu_seconds()
    done = replay(
        broker.port,
        path,
        load,
        *("--in-flight", str(shape.in_flight), "--connections", str(shape.connections)),
        *("--requests", str(requests), *options),
    )
    cpu_seconds = broker.cpu_seconds() - before
    path.unlink()
    return Produced(
        records_per_second=done.requests * shape.batch_records * shape.partitions / done.seconds,
        bytes_per_second=done.bytes_sent / done.seconds,
        requests_per_second=done.requests / done.seconds,
        cpu_seconds_per_gb=cpu_seconds / done.bytes_sent * 1e9,
        cpu_us_per_request=cpu_seconds / done.requests * 1e6,
        replayed=done,
    )


@dataclass(frozen=True, slots=True)
class Filled:
    """A topic with equal batches in partition 0."""

    topic: str
    batch_bytes: int
    batch_records: int
    batches: int

    @property
    def records(self) -> int:
        return self.batch_records * self.batches


def fill(bench: Bench, broker: Broker, topic: str, shape: ProduceShape, size_bytes: int) -> Filled:
    batch_bytes = len(shape.batch())
    batches = max(1, size_bytes // batch_bytes)
    produce(bench, broker, topic, shape, requests=batches)
    return Filled(topic, batch_bytes, shape.batch_records, batches)


@dataclass(frozen=True, slots=True)
class Consumed:
    bytes_per_second: float
    cpu_seconds_per_gb: float


def consume(bench: Bench, broker: Broker, filled: Filled, fetch_bytes: int = 1 << 20) -> Consumed:
    """Read the topic from its start to its end once; the bytes are dropped."""
    load = frames.fetch_load(
        filled.topic,
        batch_bytes=filled.batch_bytes,
        batch_records=filled.batch_records,
        batches=filled.batches,
        batches_per_fetch=max(1, fetch_bytes // filled.batch_bytes),
    )
    path = bench.path("fetch.frames")
    write_frames(load, path)
    before = broker.cpu_seconds()
    count = str(len(load.frames))
    done = replay(broker.port, path, load, "--in-flight", "2", "--requests", count)
    path.unlink()
    cpu_seconds = broker.cpu_seconds() - before
    # A broker that answers less than was asked for would only look fast.
    assert done.bytes_received >= filled.batches * filled.batch_bytes, "records are missing"
    return Consumed(done.bytes_received / done.seconds, cpu_seconds / done.bytes_received * 1e9)


def log_files(broker: Broker, topic: str) -> Sequence[Path]:
    return sorted((broker.folder / "data").glob(f"{topic}-*/*.log"))
