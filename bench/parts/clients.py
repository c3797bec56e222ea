"""Clients as people run them: default options, several partitions, producer ids, groups.

Java's producer and librdkafka's, a group that tails a topic, a Java consumer of many quiet
partitions, and commits. Each load runs twice: *pinned*, with one core for the broker and the other
for all clients, and with both cores for everybody. The CPU is the broker's, per record or request;
it is what a client costs, whatever limits the rate.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Producer

from bench import clients
from bench.bench import Bench
from bench.brokers import Broker
from bench.parts.groups import commit_load, prepare_group
from bench.replay import replay, write_frames
from bench.rows import Row, at_most
from tests.support.jars import classpath
from tests.support.tools import require

PART = "clients"
_PARTITIONS = 12
_COMMITTING = 16
_BROKER_CORES, _CLIENT_CORES = {0}, {1}
_CPU_TARGET = at_most(0.3)


@dataclass(frozen=True, slots=True)
class Loaded:
    per_second: float
    cpu_us_each: float


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    # What is counted.
    unit: str
    measure: Callable[[Bench, Broker], Loaded]
    # A load at a fixed rate has no other to show.
    is_paced: bool = False


def run(bench: Bench) -> list[Row]:
    rows: list[Row] = []
    for load in LOADS:
        for is_pinned in (True, False):
            rows += _rows(bench, load, is_pinned=is_pinned)
    return rows


def _rows(bench: Bench, load: Load, *, is_pinned: bool) -> list[Row]:
    name = f"{load.name}, pinned" if is_pinned else load.name

    def measure(broker: Broker) -> Loaded:
        if not is_pinned:
            return load.measure(bench, broker)
        with _pinned(broker):
            return load.measure(bench, broker)

    # In a hurry both cores for everybody get one round: they say less, for they vary more.
    rounds = 1 if bench.is_quick and not is_pinned else bench.client_rounds
    found = bench.compare(name, measure, rounds=rounds)
    cpu = Row(
        PART,
        f"{name}, broker CPU",
        f"us a {load.unit}",
        *found.values(lambda one: one.cpu_us_each),
        target=_CPU_TARGET,
    )
    if load.is_paced:
        return [cpu]
    rates = found.values(lambda one: one.per_second)
    return [Row(PART, name, f"{load.unit}s/s", *rates), cpu]


@contextmanager
def _pinned(broker: Broker) -> Iterator[None]:
    """A core for the broker, another for this process and all that it starts."""
    every = os.sched_getaffinity(0)
    assert every >= _BROKER_CORES | _CLIENT_CORES, f"cores 0 and 1 are needed, there are {every}"
    _pin(broker.pid, _BROKER_CORES)
    os.sched_setaffinity(0, _CLIENT_CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)
        _pin(broker.pid, every)


def _pin(pid: int, cores: set[int]) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            os.sched_setaffinity(int(thread), cores)
        except ProcessLookupError:
            # It has ended in the meantime.
            continue


def _java_producer(record_bytes: int, **settings: str) -> Callable[[Bench, Broker], Loaded]:
    def measure(bench: Bench, broker: Broker) -> Loaded:
        size = 120_000_000 if bench.is_quick else 600_000_000
        records = size // (record_bytes + 50)
        with bench.topic(broker, partitions=_PARTITIONS) as topic:
            before = broker.cpu_seconds()
            rate = clients.java_produce(
                broker.bootstrap, topic, records=records, record_bytes=record_bytes, **settings
            )
            return Loaded(rate, (broker.cpu_seconds() - before) / records * 1e6)

    return measure


def _librdkafka_producers(bench: Bench, broker: Broker) -> Loaded:
    with bench.topic(broker, partitions=_PARTITIONS) as topic:
        return _librdkafka(broker, "produce", topic, _PARTITIONS, 4, 2 * bench.round_seconds)


def _tailing_group(bench: Bench, broker: Broker) -> Loaded:
    partitions = 24
    with bench.topic(broker, partitions=partitions) as topic:
        return _librdkafka(broker, "tail", topic, partitions, 8, 4000, 2 * bench.round_seconds)


def _quiet_partitions(bench: Bench, broker: Broker) -> Loaded:
    """Its fetch session has all partitions, and few of them have news."""
    with bench.topic(broker, partitions=300) as topic, _console_consumer(broker, topic):
        return _librdkafka(broker, "tail", topic, 3, 0, 300, 2 * bench.round_seconds)


def _librdkafka(broker: Broker, kind: str, *numbers: object) -> Loaded:
    """Run `bench.librdkafka`, and look at the broker when it says that it begins and ends."""
    command = [sys.executable, "-m", "bench.librdkafka", kind, broker.bootstrap]
    command += [str(each) for each in numbers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n", f"{command} did not begin"
        before = broker.cpu_seconds()
        line = process.stdout.readline()
        cpu_seconds = broker.cpu_seconds() - before
        assert line.startswith("end "), f"{command} did not end: {line}"
        _, records, seconds = line.split()
        return Loaded(int(records) / float(seconds), cpu_seconds / int(records) * 1e6)


@contextmanager
def _console_consumer(broker: Broker, topic: str) -> Iterator[None]:
    """Java's console consumer, from its first record on."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(topic, b"first", partition=0)
    producer.flush(60)
    command = [
        *(require("java"), "-Xmx256M", "-cp", classpath()),
        *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic),
        *("--bootstrap-server", broker.bootstrap, "--from-beginning"),
    ]
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process,
        ThreadPoolExecutor(1) as reader,
    ):
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "first\n", "the consumer has read nothing"
            # Or it would wait for somebody to read what it prints.
            reader.submit(process.stdout.read)
            yield
        finally:
            process.terminate()


def _commits(bench: Bench, broker: Broker) -> Loaded:
    with bench.topic(broker) as topic:
        groups = [uuid.uuid4().hex for _ in range(_COMMITTING)]
        prepare_group(broker, topic, groups[0])
        load = commit_load(topic, groups)
        path = bench.path("commits.frames")
        write_frames(load, path)
        before = broker.cpu_seconds()
        done = replay(
            *(broker.port, path, load),
            *("--connections", str(_COMMITTING), "--in-flight", "1", "--own-frame", "1"),
            *("--seconds", str(bench.round_seconds)),
        )
        cpu_seconds = broker.cpu_seconds() - before
        path.unlink()
        return Loaded(done.requests / done.seconds, cpu_seconds / done.requests * 1e6)


LOADS = [
    Load("Java producer, 100 B, 12 partitions", "record", _java_producer(100)),
    Load(
        "Java producer, 1 KB, lz4, 12 partitions",
        "record",
        _java_producer(1024, compression_type="lz4"),
    ),
    Load("4 librdkafka producers, 100 B, 12 partitions", "record", _librdkafka_producers),
    Load("8 librdkafka consumers of 24 partitions", "record", _tailing_group, is_paced=True),
    Load("Java consumer of 300 partitions, 3 busy", "record", _quiet_partitions, is_paced=True),
    Load("commits of 16 clients", "commit", _commits),
]
