"""Three nodes beside three of Kafka, all defaults, replication factor 3, acks=all.

Ours have a ZooKeeper of their own, whose processor time counts as theirs. Raw loads have one
connection to the leader of each partition. Kafka takes one request at a time from each, so its
rows with 16 KB batches show round trips; those with 1 MB batches show throughput.

Failures of a cluster with 3,000 partitions are those of `bench.failover`: a fifth of the partitions
is written to every 100 ms, and a gap is the longest time without an acknowledgement. These clusters
run one after the other, and ours with `--dev`.
"""

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from confluent_kafka import KafkaError, Message, Producer

from bench import clients, failover, frames
from bench.bench import Bench, Compared
from bench.clusters import Cluster, KafkaCluster, MillstreamCluster, wait_until
from bench.loads import ACKS_ALL, LIBRDKAFKA_BATCH_BYTES, ONE_RECORD, ProduceShape
from bench.replay import Replayed, replay, write_frames
from bench.rows import Row, at_least, at_most

PART = "cluster"
T = TypeVar("T")
_PARTITIONS: Final = 3
_AWAY: Final = 3
_AWAY_BYTES: Final = 1_000_000_000
_RATE: Final = 1000
_RATE_P99_MS_MAX: Final = 50.0
_PACE_SECONDS: Final = 0.002
# Kafka notices a dead broker after nine seconds; this must see it and what follows.
_GAP_SECONDS_MAX: Final = 60.0
_SHAPE: Final = ProduceShape(acks=ACKS_ALL)
_LARGE: Final = replace(_SHAPE, batch_bytes=LIBRDKAFKA_BATCH_BYTES)
_NUMBERS: Final = itertools.count()
# Three idle JVMs use about a tenth of a core.
_IDLE_CORES_MAX: Final = 0.25
_SETTLE_SECONDS: Final = 0.5
_SETTLE_SECONDS_MAX: Final = 20.0
_LARGE_CLUSTER: Final = 3_000
_FAILOVER_SECONDS_MAX: Final = 1.0
# The default of zookeeper.session.timeout.ms. Its end alone shows that a process is stuck, or that
# a second node is dead.
_SESSION_SECONDS: Final = 18.0
# ZooKeeper notices the end of a session at its next tick.
_TICK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What the connections to all leaders did together."""

    bytes_per_second: float
    cpu_seconds_per_gb: float
    p99_us: float
    requests_per_second: float


def run(bench: Bench) -> list[Row]:
    clusters = Pair(bench, MillstreamCluster(bench.path("ours")), KafkaCluster(bench.path("kafka")))
    with clusters.running():
        rows = [
            *_throughput_rows(bench, clusters),
            _java_row(bench, clusters),
            *_rate_rows(bench, clusters),
            *_memory_rows(clusters),
            _away_row(bench, clusters),
            _gap_row(bench, clusters),
        ]
    # Nine thousand replicas of each would not fit beside each other.
    return [*rows, *_failover_rows(bench)]


class Pair:
    def __init__(self, bench: Bench, ours: Cluster, kafka: Cluster) -> None:
        self._bench = bench
        self.ours = ours
        self.kafka = kafka

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            for cluster in (self.kafka, self.ours):
                self._bench.say(f"starting three nodes of {cluster.name}")
                cluster.start()
            yield
        finally:
            self.kafka.stop()
            self.ours.stop()

    def compare(
        self, name: str, measure: Callable[[Cluster], T], *, rounds: int, uncounted: int = 0
    ) -> Compared[T]:
        found: Compared[T] = Compared([], [])
        for number in range(1 - uncounted, rounds + 1):
            for cluster, results in ((self.kafka, found.kafka), (self.ours, found.ours)):
                os.sync()
                self._settle()
                self._bench.say(f"{name}: {cluster.name}, round {number} of {rounds}")
                measured = measure(cluster)
                if number > 0:
                    results.append(measured)
        return found

    def _settle(self) -> None:
        """Until neither has anything left to do: a round must not pay for the other's."""
        deadline = time.perf_counter() + _SETTLE_SECONDS_MAX
        is_busy = True
        while is_busy and time.perf_counter() < deadline:
            before = self.ours.cpu_seconds() + self.kafka.cpu_seconds()
            time.sleep(_SETTLE_SECONDS)
            used = self.ours.cpu_seconds() + self.kafka.cpu_seconds() - before
            is_busy = used / _SETTLE_SECONDS > _IDLE_CORES_MAX


@contextmanager
def _topic(cluster: Cluster, partitions: int = _PARTITIONS) -> Iterator[str]:
    name = f"bench-{next(_NUMBERS)}"
    cluster.create_topic(name, partitions=partitions)
    try:
        yield name
    finally:
        cluster.delete_topic(name)


def _send(
    bench: Bench,
    cluster: Cluster,
    topic: str,
    shape: ProduceShape,
    options: Callable[[frames.Load], list[str]],
) -> Sent:
    """Every partition's load to its leader, all at once."""

    def send(partition: int, leader: int) -> Replayed:
        load = frames.produce_load(topic, [shape.batch()], acks=ACKS_ALL, partitions=[partition])
        path = bench.path("produce.frames")
        write_frames(load, path)
        try:
            return replay(cluster.nodes[leader].port, path, load, *options(load))
        finally:
            path.unlink()

    before = cluster.cpu_seconds()
    leaders = cluster.leaders(topic)
    with ThreadPoolExecutor(len(leaders)) as pool:
        done = list(pool.map(send, leaders.keys(), leaders.values()))
    size_bytes = sum(one.bytes_sent for one in done)
    seconds = max(one.seconds for one in done)
    return Sent(
        bytes_per_second=size_bytes / seconds,
        cpu_seconds_per_gb=(cluster.cpu_seconds() - before) / size_bytes * 1e9,
        p99_us=max(one.p99_us for one in done),
        requests_per_second=sum(one.requests for one in done) / seconds,
    )


def _throughput_rows(bench: Bench, clusters: Pair) -> list[Row]:
    rows = []
    for name, shape in (("1 KB", _SHAPE), ("1 KB, 1 MB batches", _LARGE)):
        found = _throughput(bench, clusters, name, shape)
        speed = found.values(lambda one: one.bytes_per_second / 1e6)
        cpu = found.values(lambda one: one.cpu_seconds_per_gb)
        rows.append(Row(PART, f"raw, {name}, 3 partitions", "MB/s", *speed, at_least(1.5)))
        rows.append(Row(PART, f"raw, {name}, CPU of all", "s per GB", *cpu, at_most(0.6)))
    return rows


def _throughput(bench: Bench, clusters: Pair, name: str, shape: ProduceShape) -> Compared[Sent]:
    seconds = str(bench.round_seconds * 2)
    share = bench.round_bytes_max // _PARTITIONS

    def options(load: frames.Load) -> list[str]:
        requests = max(1, share // len(load.frames[0]))
        return [
            *("--in-flight", str(shape.in_flight), "--seconds", seconds),
            *("--requests", str(requests)),
        ]

    def measure(cluster: Cluster) -> Sent:
        with _topic(cluster) as topic:
            return _send(bench, cluster, topic, shape, options)

    # The first round warms the JVMs, in a short run too.
    return clusters.compare(f"produce {name}", measure, rounds=bench.rounds, uncounted=1)


def _java_row(bench: Bench, clusters: Pair) -> Row:
    """As most users produce: one client, its defaults, batches that grow with the delay."""
    records = 100_000 if bench.is_quick else 400_000

    def measure(cluster: Cluster) -> float:
        with _topic(cluster) as topic:
            return clients.java_produce(
                cluster.bootstrap, topic, records=records, record_bytes=1024, acks="all"
            )

    found = clusters.compare("Java producer", measure, rounds=bench.client_rounds, uncounted=1)
    speed = found.values(lambda rate: rate * 1024 / 1e6)
    return Row(PART, "Java, 1 KB, 3 partitions", "MB/s", *speed, at_least(1.5))


def _rate_rows(bench: Bench, clusters: Pair) -> list[Row]:
    """A request's time counts from when it was due, so who does not hold the rate shows it."""
    each = _RATE / _PARTITIONS
    requests = int(each * bench.round_seconds * 4)

    def options(load: frames.Load) -> list[str]:
        # A server that stalls must not stop the timetable.
        return [
            *("--rate", str(each), "--requests", str(requests)),
            *("--in-flight", "20000"),
        ]

    def measure(cluster: Cluster) -> Sent:
        with _topic(cluster) as topic:
            return _send(bench, cluster, topic, ONE_RECORD, options)

    found = clusters.compare(f"{_RATE} requests/s", measure, rounds=bench.rounds, uncounted=1)
    ours, theirs = found.values(lambda one: one.p99_us / 1e3)
    held = found.values(lambda one: one.requests_per_second)
    name = f"{_RATE} one-record requests/s"
    limit = Row(
        PART,
        f"{name}, p99",
        "ms",
        ours,
        [_RATE_P99_MS_MAX] * len(ours),
        at_most(1.0),
        against="limit",
    )
    return [
        limit,
        Row(PART, f"{name}, p99 beside Kafka's", "ms", ours, theirs),
        Row(PART, f"{name}, done", "per s", *held),
    ]


def _memory_rows(clusters: Pair) -> list[Row]:
    ours, kafka = clusters.ours, clusters.kafka
    return [
        Row(
            PART,
            "memory of the three nodes, loaded",
            "MB",
            [ours.nodes_memory_bytes() / 1e6],
            [kafka.nodes_memory_bytes() / 1e6],
            at_most(0.15),
        ),
        Row(
            PART,
            "the same with our ZooKeeper",
            "MB",
            [ours.memory_bytes() / 1e6],
            [kafka.memory_bytes() / 1e6],
        ),
    ]


def _away_row(bench: Bench, clusters: Pair) -> Row:
    def options(load: frames.Load) -> list[str]:
        requests = _AWAY_BYTES // _PARTITIONS // len(load.frames[0])
        return ["--in-flight", str(_LARGE.in_flight), "--requests", str(requests)]

    def measure(cluster: Cluster) -> float:
        with _topic(cluster) as topic:
            node = cluster.nodes[_AWAY]
            node.stop()
            wait_until(lambda: _AWAY not in cluster.leaders(topic).values(), "others lead")
            _send(bench, cluster, topic, _LARGE, options)
            os.sync()
            began = time.perf_counter()
            node.launch()
            cluster.wait_in_sync(topic)
            return time.perf_counter() - began

    rounds = 1 if bench.is_quick else 2
    found = clusters.compare("away for 1 GB", measure, rounds=rounds)
    name = "start of a node away for 1 GB, until in sync"
    return Row(PART, name, "s", found.ours, found.kafka, at_most(0.7))


def _gap_row(bench: Bench, clusters: Pair) -> Row:
    rounds = 2 if bench.is_quick else 3
    found = clusters.compare("gap after kill -9 of a leader", _gap, rounds=rounds)
    name = "longest gap in acknowledgements after kill -9 of the leader"
    return Row(PART, name, "s", found.ours, found.kafka, at_most(0.15))


def _gap(cluster: Cluster) -> float:
    """The longest time without an acknowledgement, by librdkafka with its defaults."""
    with _topic(cluster, partitions=1) as topic:
        times = Acknowledgements(cluster.bootstrap, topic)
        times.wait(count=500, after=0.0)
        victim = cluster.nodes[cluster.leaders(topic)[0]]
        killed_at = time.perf_counter()
        victim.kill()
        # What had been acknowledged may still be under way to us for a moment.
        times.wait(count=500, after=killed_at + 0.05)
        times.stop()
        victim.start()
        cluster.wait_in_sync(topic)
        return times.longest_gap()


def _failover_rows(bench: Bench) -> list[Row]:
    rounds = 2 if bench.is_quick else 5
    killed = _p99_after(bench, "kill", rounds)
    kafka = [failover.p99(_kafka_gaps(bench))]
    name = f"{_LARGE_CLUSTER:,} partitions, p99 of gaps"
    rows = [
        _limited(f"{name}, kill -9 of who leads a third", killed, _FAILOVER_SECONDS_MAX),
        Row(PART, f"{name}, the same beside Kafka's", "s", killed, kafka),
    ]
    for fault, what in (
        ("second", "a second dead node of three"),
        ("freeze", "SIGSTOP of the leader"),
    ):
        found = _p99_after(bench, fault, 1)
        noticed = _SESSION_SECONDS + _TICK_SECONDS
        rows.append(_limited(f"{name}, {what}", found, noticed + _FAILOVER_SECONDS_MAX))
    moved = _p99_after(bench, "zookeeper-leader", 1)
    rows.append(_limited(f"{name}, kill -9 of ZooKeeper's leader", moved, _FAILOVER_SECONDS_MAX))
    return rows


def _limited(name: str, seconds: list[float], limit: float) -> Row:
    return Row(PART, name, "s", seconds, [limit] * len(seconds), at_most(1.0), against="limit")


def _p99_after(bench: Bench, fault: str, rounds: int) -> list[float]:
    """Of the partitions that the fault hit, in each round."""
    bench.say(f"{_LARGE_CLUSTER} partitions, {fault}: Millstream, {rounds} rounds")
    found = failover.failures(
        bench.path(fault), fault=fault, partitions=_LARGE_CLUSTER, rounds=rounds
    )
    return [failover.p99(hit) for hit, _ in found]


def _kafka_gaps(bench: Bench) -> list[float]:
    """One round: to start three JVMs and create the partitions takes minutes."""
    bench.say(f"{_LARGE_CLUSTER} partitions, kill: Kafka, one round")
    cluster = KafkaCluster(bench.path("kafka-large"))
    cluster.start()
    try:
        topics = failover.topics_for(_LARGE_CLUSTER)
        for topic in topics:
            cluster.create_topic(topic, partitions=failover.PER_TOPIC)
        victim = cluster.leaders(topics[0])[0]
        harm = cluster.nodes[victim].kill
        hit, _ = asyncio.run(failover.measure(cluster, topics, victim, harm))
        return hit
    finally:
        cluster.stop()


class Acknowledgements:
    """A producer that sends all the time, and when it was answered."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._times: list[float] = []
        self._stopped = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
        self._topic = topic
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def wait(self, *, count: int, after: float) -> None:
        """Until so many have come after a moment."""
        deadline = time.perf_counter() + _GAP_SECONDS_MAX
        while sum(moment > after for moment in self._times[-2 * count :]) < count:
            assert time.perf_counter() < deadline, "acknowledgements did not come again"
            time.sleep(_PACE_SECONDS)

    def longest_gap(self) -> float:
        return max(b - a for a, b in itertools.pairwise(self._times))

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _send(self) -> None:
        value = b"x" * 1024
        while not self._stopped.is_set():
            self._producer.produce(self._topic, value, on_delivery=self._delivered)
            self._producer.poll(_PACE_SECONDS)
        assert self._producer.flush(_GAP_SECONDS_MAX) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self._times.append(time.perf_counter())
