"""Ten thousand partitions: creating them, and starting again after kill -9.

Created in two senses: Metadata names a leader of every partition, and every leader answers
for its partitions (ListOffsets). Kafka's controller names leaders before they serve.
"""

import time

from confluent_kafka.admin import NewTopic

from bench.bench import Bench
from bench.brokers import Broker, Kafka, Millstream
from bench.clients import admin_client, wait_for_leaders, wait_until_served
from bench.loads import ProduceShape, produce
from bench.rows import Row, at_least, at_most

PART = "partitions"
_PER_TOPIC = 100
# Kafka refuses a request that makes more than 10,000 records for its controller.
_TOPICS_PER_REQUEST = 20


def run(bench: Bench) -> list[Row]:
    count = 1_000 if bench.is_quick else 10_000
    named: dict[str, float] = {}
    created: dict[str, float] = {}
    started: dict[str, float] = {}
    rates: list[float] = []
    brokers: list[Broker] = [
        Millstream(bench.path("millstream-many"), "--dev"),
        Kafka(bench.path("kafka-many")),
    ]
    for broker in brokers:
        bench.say(f"{count} partitions: {broker.name} creates")
        broker.start()
        if broker.name == "Millstream":
            rates = [_rate(bench, broker) for _ in range(bench.rounds)]
        named[broker.name], created[broker.name] = _create(broker, count)
        broker.kill()
        bench.say(f"{count} partitions: {broker.name} starts after kill -9")
        began = time.perf_counter()
        broker.start()
        wait_until_served(broker.bootstrap, _partitions(count))
        started[broker.name] = time.perf_counter() - began
        if broker.name == "Millstream":
            after = [_rate(bench, broker) for _ in range(bench.rounds)]
        broker.stop()
    return [
        Row(PART, f"create {count} partitions, all served", "s", *_pair(created), at_most(0.2)),
        Row(PART, f"create {count} partitions, leaders named", "s", *_pair(named), at_most(0.2)),
        Row(PART, f"start with {count} after kill -9", "s", *_pair(started), at_most(0.15)),
        Row(
            *(PART, f"produce beside {count} partitions", "MB/s", after, rates),
            *(at_least(0.9), "with one"),
        ),
    ]


def _pair(figures: dict[str, float]) -> tuple[list[float], list[float]]:
    return [figures["Millstream"]], [figures["Kafka"]]


def _partitions(count: int) -> dict[str, int]:
    return {f"many-{i}": _PER_TOPIC for i in range(count // _PER_TOPIC)}


def _create(broker: Broker, count: int) -> tuple[float, float]:
    """Seconds until all leaders are named, and until all of them serve."""
    admin = admin_client(broker.bootstrap)
    wanted = [NewTopic(name, partitions, 1) for name, partitions in _partitions(count).items()]
    began = time.perf_counter()
    for start in range(0, len(wanted), _TOPICS_PER_REQUEST):
        topics = wanted[start : start + _TOPICS_PER_REQUEST]
        created = admin.create_topics(topics, operation_timeout=240, request_timeout=240)
        for future in created.values():
            future.result(240)
    wait_for_leaders(broker.bootstrap, count)
    named = time.perf_counter() - began
    wait_until_served(broker.bootstrap, _partitions(count))
    return named, time.perf_counter() - began


def _rate(bench: Bench, broker: Broker) -> float:
    with bench.topic(broker) as topic:
        return produce(bench, broker, topic, ProduceShape()).bytes_per_second / 1e6
