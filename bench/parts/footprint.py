"""Start-up, memory, and what an idle connection costs."""

import socket
import time

from bench.bench import Bench
from bench.brokers import Broker, Kafka, Millstream, ask_metadata
from bench.loads import SEGMENT_BYTES_MAX, ProduceShape, consume, fill
from bench.rows import Row, at_most

PART = "footprint"


def run(bench: Bench) -> list[Row]:
    starts: dict[str, list[float]] = {"ours": [], "kafka": []}
    idle: dict[str, list[float]] = {"ours": [], "kafka": []}
    held: dict[str, list[float]] = {"ours": [], "kafka": []}
    brokers: dict[str, Broker] = {
        "kafka": Kafka(bench.path("kafka-start")),
        "ours": Millstream(bench.path("millstream-start")),
    }
    # The first start of each makes its files, and is not what people wait for every day.
    for round_number in range(bench.client_rounds + 1):
        for key, broker in brokers.items():
            bench.say(f"start: {broker.name}, round {round_number} of {bench.client_rounds}")
            seconds = broker.start()
            if round_number > 0:
                starts[key].append(seconds)
                idle[key].append(settled_memory(broker) / 1e6)
                held[key].append(_bytes_per_connection(broker) / 1e3)
            broker.stop()
    return [
        Row(PART, "start to first answer", "s", starts["ours"], starts["kafka"], at_most(0.08)),
        Row(PART, "memory, idle", "MB", idle["ours"], idle["kafka"], at_most(0.15)),
        _loaded_row(bench),
        Row(PART, "per idle connection", "KB", held["ours"], held["kafka"], at_most(0.7)),
    ]


def settled_memory(broker: Broker) -> int:
    """Resident bytes once it has been left alone for a moment."""
    time.sleep(1)
    return broker.memory_bytes()


def _bytes_per_connection(broker: Broker) -> float:
    # Fewer would fit into what a JVM's heap happens to have left.
    count = 5000
    before = broker.memory_bytes()
    opened = []
    try:
        for _ in range(count):
            sock = socket.create_connection(("127.0.0.1", broker.port))
            ask_metadata(sock)
            opened.append(sock)
        return (settled_memory(broker) - before) / count
    finally:
        for sock in opened:
            sock.close()


def _loaded_row(bench: Bench) -> Row:
    """After a gigabyte in and out, whatever came before it in this run."""

    def measure(broker: Broker) -> float:
        with bench.topic(broker) as topic:
            size_bytes = min(bench.round_bytes_max, SEGMENT_BYTES_MAX)
            filled = fill(bench, broker, topic, ProduceShape(), size_bytes)
            consume(bench, broker, filled)
            return broker.memory_bytes() / 1e6

    ours, kafka = measure(bench.ours), measure(bench.kafka)
    return Row(PART, "memory, loaded", "MB", [ours], [kafka], at_most(0.1))
