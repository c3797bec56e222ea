"""`millstream bench`: how fast a cluster is, from here, with one ordinary client."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from millstream.cli.bootstrap import bootstrap_option, client_settings, explain, json_option
from millstream.cli.connection import Cluster
from millstream.cli.consume import connect, find_bounds, find_places
from millstream.cli.example_topic import create_topics
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.first_contact import BrokerWatch
from millstream.cli.lazy import AliasGroup
from millstream.cli.output import JsonValue, print_json, print_table
from millstream.cli.record_sender import serve
from millstream.client.start_position import FromBeginning, FromEnd, Range
from millstream.wire.apis.delete_topics import DeleteTopicsRequest

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

F = TypeVar("F", bound=Callable[..., object])

_TOPIC = "millstream-bench"
_SECONDS_MAX = 120.0
_CONSUMED_AT_ONCE = 10_000


@click.group(cls=AliasGroup)
def bench() -> None:
    """Measure the throughput and the latency of a cluster from here.

    Without --topic the records go to a new topic, which is deleted afterwards. The client
    is librdkafka in one process: a cluster can do more than one client shows.
    """


def _records(default: int) -> Callable[[F], F]:
    return click.option(
        *("-n", "--records"),
        type=click.IntRange(1),
        default=default,
        show_default=True,
        help="How many records.",
    )


def _size(default: int) -> Callable[[F], F]:
    return click.option(
        "--size",
        type=click.IntRange(1),
        default=default,
        show_default=True,
        help="Bytes of each value.",
    )


@contextlib.contextmanager
def _topic(bootstrap: str, name: str | None, partitions: int) -> Iterator[str]:
    with Cluster(bootstrap) as cluster:
        if name is not None:
            create_topics(cluster, {name: partitions})
            yield name
            return
        own = f"{_TOPIC}-{os.getpid()}"
        create_topics(cluster, {own: partitions})
    try:
        yield own
    finally:
        with contextlib.suppress(CommandFailed), Cluster(bootstrap) as cluster:
            cluster.ask(cluster.first, DeleteTopicsRequest(topic_names=[own], timeout_ms=10_000), 5)


@bench.command("produce")
@_records(100_000)
@_size(1_000)
@click.option("--topic", help="Keep the records in this topic.")
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@json_option
@bootstrap_option
def produce(
    records: int,
    size: int,
    topic: str | None,
    partitions: int,
    acks: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Send records as fast as they are accepted."""
    with _topic(bootstrap, topic, partitions) as name:
        seconds, latencies_ms = _send(bootstrap, name, records, size, acks)
    _report(as_json, records, size, seconds, latencies_ms)


@bench.command("consume")
@_records(100_000)
@_size(1_000)
@click.option("--topic", help="Read this topic, instead of records sent for the purpose.")
@json_option
@bootstrap_option
def consume(records: int, size: int, topic: str | None, as_json: bool, bootstrap: str) -> None:
    """Read records as fast as they arrive."""
    if topic is not None:
        count, bytes_read, seconds = _read(bootstrap, topic, records)
    else:
        with _topic(bootstrap, None, 4) as name:
            _send(bootstrap, name, records, size, "1")
            count, bytes_read, seconds = _read(bootstrap, name, records)
    if not count:
        raise CommandFailed(f"topic {topic} is empty")
    _report(as_json, count, bytes_read / count, seconds, [])


@bench.command("e2e")
@_records(1_000)
@_size(100)
@click.option("--acks", type=click.Choice(["all", "1"]), default="all", show_default=True)
@json_option
@bootstrap_option
def e2e(records: int, size: int, acks: str, as_json: bool, bootstrap: str) -> None:
    """Send records one after another, each when the one before it was read."""
    from confluent_kafka import Producer, TopicPartition

    with _topic(bootstrap, None, 1) as name:
        producer = Producer({**client_settings(bootstrap), "acks": acks, "linger.ms": 0})
        watch = BrokerWatch(bootstrap)
        consumer = connect(bootstrap, watch)
        with contextlib.closing(consumer):
            consumer.assign([TopicPartition(name, 0, 0)])
            latencies_ms, began = [], time.monotonic()
            for _ in range(records):
                sent = time.monotonic()
                producer.produce(name, bytes(size))
                _await_record(consumer, producer, watch)
                latencies_ms.append((time.monotonic() - sent) * 1000)
            seconds = time.monotonic() - began
    _report(as_json, records, size, seconds, latencies_ms)


def _await_record(consumer: "Consumer", producer: "Producer", watch: BrokerWatch) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while time.monotonic() < deadline:
        serve(producer, 0)
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            return
        watch.check()
    raise CommandFailed("a record did not come back", exit_code=ExitCode.TIMEOUT)


def _send(
    bootstrap: str, topic: str, records: int, size: int, acks: str
) -> tuple[float, list[float]]:
    """Seconds for all, and milliseconds to the acknowledgement of each."""
    from confluent_kafka import Producer

    watch = BrokerWatch(bootstrap)
    producer = Producer(
        {**client_settings(bootstrap), "acks": acks, "linger.ms": 5, "error_cb": watch.on_error}
    )
    latencies_ms: list[float] = []
    refused: list[KafkaError] = []

    def delivered(error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            refused.append(error)
        else:
            latencies_ms.append((message.latency() or 0.0) * 1000)

    value = os.urandom(size)
    began = time.monotonic()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                serve(producer, 0.05)
                watch.check()
        if number % 100 == 0:
            serve(producer, 0)
    while len(producer) and time.monotonic() - began < _SECONDS_MAX:
        producer.flush(0.25)
        watch.check()
    seconds = time.monotonic() - began
    if refused:
        raise explain(refused[0], f"topic {topic}")
    if len(producer):
        raise CommandFailed(
            f"{len(producer):,} records not acknowledged", exit_code=ExitCode.TIMEOUT
        )
    return seconds, latencies_ms


def _read(bootstrap: str, topic: str, records: int) -> tuple[int, int, float]:
    """Records, their bytes, and seconds from the first request to the last record."""
    from confluent_kafka import TopicPartition

    with Cluster(bootstrap) as cluster:
        places = find_places(cluster, [topic], [])
        bounds = find_bounds(cluster, places, Range(FromBeginning(), FromEnd(0)))
    wanted = min(records, sum(each.end - each.start for each in bounds.values()))
    watch = BrokerWatch(bootstrap)
    count = size = 0
    began = time.monotonic()
    with contextlib.closing(connect(bootstrap, watch)) as consumer:
        consumer.assign(
            [TopicPartition(at.topic, at.partition, each.start) for at, each in bounds.items()]
        )
        while count < wanted and time.monotonic() - began < _SECONDS_MAX:
            for message in consumer.consume(min(wanted - count, _CONSUMED_AT_ONCE), timeout=0.25):
                if message.error() is None:
                    count += 1
                    size += len(message.value() or b"")
            watch.check()
        seconds = time.monotonic() - began
    return count, size, seconds


def _report(
    as_json: bool, records: int, size: float, seconds: float, latencies_ms: Sequence[float]
) -> None:
    rate = records / max(seconds, 1e-9)
    found: dict[str, JsonValue] = {
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_second": round(rate),
        "mb_per_second": round(rate * size / 1e6, 2),
    }
    for percent in (50, 95, 99):
        value = percentile(latencies_ms, percent)
        found[f"latency_ms_p{percent}"] = None if value is None else round(value, 2)
    if as_json:
        print_json(found)
    else:
        print_table([name.upper().replace("_", "-") for name in found], [list(found.values())])


def percentile(values: Sequence[float], percent: int) -> float | None:
    """The smallest value that so many percent do not exceed; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]
