"""How fast a test gets its Kafka, beside the mock cluster that librdkafka brings along.

    python -m bench.startup [--rounds 7]

Every round is a new process. Prints the median of each step in milliseconds, as JSON. The mock
cluster keeps its records in the client's memory, and knows no admin requests: topics come into
being when they are first used, and there is nothing to reset.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

TOPICS = 1_000


def steps_of_millstream() -> dict[str, float]:
    watch = Stopwatch()
    from millstream.testing.broker import Broker

    watch.note("import")
    with Broker() as broker:
        watch.note("broker")
        broker.create_topic("first")
        watch.note("first topic, with the client's import")
        broker.create_topic("second")
        watch.note("another topic")
        broker.delete_topic("second")
        watch.note("reset: its deletion")
        broker.topic("first").produce(["x"])
        watch.start()
        first_record({**broker.client_config(), "group.id": "g"}, "first")
        watch.note("first record of a group")
        many = Many(broker.client_config())
        watch.start()
        many.create()
        watch.note(f"{TOPICS:,} topics")
    from millstream.testing.cluster import Cluster

    watch.start()
    with Cluster():
        watch.note("three brokers")
    return watch.steps


def steps_of_the_mock() -> dict[str, float]:
    watch = Stopwatch()
    from confluent_kafka import Producer

    watch.note("import")
    producer = Producer({"test.mock.num.brokers": 3, "log_level": 0})
    cluster = producer.list_topics(timeout=10)
    bootstrap = ",".join(f"{one.host}:{one.port}" for one in cluster.brokers.values())
    watch.note("three brokers")
    producer.list_topics("first", timeout=10)
    watch.note("first topic, with the client's import")
    producer.produce("first", b"x")
    producer.flush(10)
    watch.start()
    first_record({"bootstrap.servers": bootstrap, "group.id": "g"}, "first")
    watch.note("first record of a group")
    return watch.steps


class Many:
    """A thousand topics, created in one request."""

    def __init__(self, config: dict[str, Any]) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        self._admin = AdminClient(config)
        self._admin.list_topics(timeout=10)
        self._wanted = [NewTopic(f"t{number}", 1, 1) for number in range(TOPICS)]

    def create(self) -> None:
        for answer in self._admin.create_topics(self._wanted).values():
            answer.result(60)


def first_record(config: dict[str, Any], topic: str) -> None:
    """From subscribing to the first record."""
    from confluent_kafka import Consumer

    consumer = Consumer({**config, "auto.offset.reset": "earliest", "log_level": 0})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    assert message is not None, "no record within 30 s"
    assert message.error() is None, message.error()


class Stopwatch:
    def __init__(self) -> None:
        self.steps: dict[str, float] = {}
        self.start()

    def start(self) -> None:
        self._began = time.perf_counter()

    def note(self, step: str) -> None:
        self.steps[step] = (time.perf_counter() - self._began) * 1000
        self.start()


SIDES: dict[str, Callable[[], dict[str, float]]] = {
    "millstream": steps_of_millstream,
    "mock cluster": steps_of_the_mock,
}


def measure(side: str, rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    # As for everybody, modules are compiled once; the first round does that and does not count.
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for number in range(rounds + 1):
        done = subprocess.run(
            [sys.executable, "-m", "bench.startup", "--one", side],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            check=True,
            timeout=120,
        )
        if number == 0:
            continue
        for step, milliseconds in json.loads(done.stdout).items():
            found.setdefault(step, []).append(milliseconds)
    return {step: round(statistics.median(times), 1) for step, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--one", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(SIDES[arguments.one]()))
        return
    found = {}
    for side in SIDES:
        print(f"{side}, {arguments.rounds} rounds", file=sys.stderr)
        found[side] = measure(side, arguments.rounds)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
