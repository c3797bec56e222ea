"""Consumer groups: commits of offsets per second, and how long a group takes to form.

Commits are whole round trips, one at a time per client, each client with a group of its
own. A group has formed when, by its members' own callbacks, all partitions have owners and
no member is idle; the clients are librdkafka as it is set up by itself.
"""

import struct
import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.bench import Bench
from bench.brokers import Broker
from bench.frames import CLIENT_ID, Load, varint
from bench.replay import replay, write_frames
from bench.rows import Row, at_least, at_most
from tests.interop.groups.crowd import Crowd

PART = "groups"
MEMBERS = 50
PARTITIONS = 60
_PROCESSES = 5
OFFSET_COMMIT, _VERSION = 8, 8


def run(bench: Bench) -> list[Row]:
    rows = [_commits(bench, clients) for clients in (1, 16)]
    for kind, protocol, target in (
        ("confluent-default", "classic", 0.5),
        ("confluent-consumer", "consumer", 0.2),
    ):
        rows.append(_forming(bench, kind, protocol, target))
    return rows


# -- commits ------------------------------------------------------------------------------


def _commits(bench: Bench, clients: int) -> Row:
    def measure(broker: Broker) -> float:
        with bench.topic(broker) as topic:
            groups = [uuid.uuid4().hex for _ in range(clients)]
            prepare_group(broker, topic, groups[0])
            load = commit_load(topic, groups)
            path: Path = bench.path("commits.frames")
            write_frames(load, path)
            options = ["--connections", str(clients), "--in-flight", "1", "--own-frame", "1"]
            done = replay(broker.port, path, load, *options, "--seconds", str(bench.round_seconds))
            path.unlink()
            return done.requests / done.seconds

    noun = "client" if clients == 1 else "clients"
    name = f"commits from {clients} {noun}"
    found = bench.compare(name, measure)
    return Row(PART, name, "/s", *found.values(float), at_least(2))


def prepare_group(broker: Broker, topic: str, group: str) -> None:
    """The first question about a group creates the topic of offsets; Kafka takes a while."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    give_up = time.monotonic() + 60
    while True:
        try:
            consumer.committed([TopicPartition(topic, 0)], timeout=60)
            break
        except KafkaException:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.2)
    consumer.close()


def commit_load(topic: str, groups: list[str]) -> Load:
    """A commit for each group, all of one length so that errors are found."""
    return Load([commit_frame(topic, group) for group in groups], [_error_at(topic)])


def commit_frame(topic: str, group: str) -> bytes:
    def compact(data: bytes) -> bytes:
        return varint(len(data) + 1) + data

    body = b"\0" + compact(group.encode()) + struct.pack(">i", -1) + compact(b"") + b"\0"
    position = struct.pack(">iqi", 0, 1234, -1) + compact(b"") + b"\0"
    body += varint(2) + compact(topic.encode()) + varint(2) + position + b"\0\0"
    head = struct.pack(">hhih", OFFSET_COMMIT, _VERSION, 1, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(head) + len(body)) + head + body


def _error_at(topic: str) -> int:
    """Correlation id, tags, throttle time, topics, the topic, partitions, its index."""
    return 4 + 1 + 4 + 1 + 1 + len(topic) + 1 + 4


# -- a group that forms -------------------------------------------------------------------


def _forming(bench: Bench, kind: str, protocol: str, target: float) -> Row:
    def measure(broker: Broker) -> float:
        with bench.topic(broker, partitions=PARTITIONS) as topic:
            return seconds_to_form(broker.bootstrap, kind, topic)

    name = f"{MEMBERS} members own {PARTITIONS} partitions, {protocol}"
    # Kafka's 50 members take some ten seconds a round.
    found = bench.compare(name, measure, rounds=1 if bench.is_quick else bench.client_rounds)
    return Row(PART, name, "s", *found.values(float), at_most(target))


def seconds_to_form(bootstrap: str, kind: str, topic: str) -> float:
    with Crowd(bootstrap, uuid.uuid4().hex, topic, PARTITIONS) as crowd:
        processes = [crowd.start(kind, 0) for _ in range(_PROCESSES)]
        for process in processes:
            process.wait_until_ready()
        began_ns = time.monotonic_ns()
        for number in range(MEMBERS):
            crowd.add(processes[number % _PROCESSES])
        crowd.wait_until_shared(120)
        return (crowd.ledger.last_change_ns() - began_ns) / 1e9
