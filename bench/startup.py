"""How fast a node starts and how little it needs, beside Apache Kafka on this machine.

    python -m bench.startup [--no-kafka] [--partitions 10000]

Prints a table: start to first answered Metadata, idle memory, memory per idle connection,
start with many partitions after a clean stop and after kill -9. Kafka's part with many
partitions takes minutes and is left out unless asked for with --kafka-partitions.
"""

import argparse
import os
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 5
CONNECTIONS = 2000
# Metadata version 1 for no topics: header, correlation id, client id, empty array.
METADATA = struct.pack(">hhih5si", 3, 1, 1, 5, b"bench", 0)


class Node:
    def __init__(self, data_dir: Path, *options: str) -> None:
        self._command = [
            *(sys.executable, "-m", "millstream", "broker", "--data-dir", str(data_dir)),
            *("--listen", "127.0.0.1:0", *options),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def start(self) -> float:
        """Seconds from starting the process to an answered Metadata request."""
        began = time.perf_counter()
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(rb":(\d+)\s*$", line)
        assert found, f"the node did not start: {line!r}"
        self.port = int(found[1])
        ask_metadata(self.port)
        return time.perf_counter() - began

    def memory_bytes(self) -> int:
        assert self._process is not None
        return resident_bytes(self._process.pid)

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def resident_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/statm").read_text()
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ask_metadata(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=120) as sock:
        sock.sendall(struct.pack(">i", len(METADATA)) + METADATA)
        size = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))[0]
        assert len(sock.recv(size, socket.MSG_WAITALL)) == size


def idle_connections(port: int, count: int) -> list[socket.socket]:
    """Connections that have asked once and then stay."""
    opened = []
    for _ in range(count):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(struct.pack(">i", len(METADATA)) + METADATA)
        size = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))[0]
        sock.recv(size, socket.MSG_WAITALL)
        opened.append(sock)
    return opened


def create_partitions(port: int, count: int) -> float:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    began = time.perf_counter()
    wanted = [NewTopic(f"many-{i}", 100, 1) for i in range(count // 100)]
    for future in admin.create_topics(wanted, request_timeout=120).values():
        future.result(120)
    return time.perf_counter() - began


def measure_millstream(folder: Path, partitions: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    node = Node(folder / "small")
    starts = []
    for _ in range(ROUNDS):
        starts.append(node.start())
        node.stop()
    figures["start to first Metadata, s"] = statistics.median(starts)
    node.start()
    before = node.memory_bytes()
    figures["idle memory, MB"] = before / 1e6
    held = idle_connections(node.port, CONNECTIONS)
    figures["per idle connection, KB"] = (node.memory_bytes() - before) / CONNECTIONS / 1e3
    for sock in held:
        sock.close()
    node.stop()
    large = Node(folder / "large")
    large.start()
    figures[f"create {partitions} partitions, s"] = create_partitions(large.port, partitions)
    large.stop()
    figures[f"start, {partitions} partitions, clean, s"] = large.start()
    large.kill()
    figures[f"start, {partitions} partitions, after kill -9, s"] = large.start()
    large.stop()
    return figures


def measure_kafka(folder: Path, partitions: int) -> dict[str, float]:
    from tests.support.apache_kafka import ApacheKafka

    figures: dict[str, float] = {}
    starts = []
    for _ in range(3):
        with ApacheKafka(folder / "kafka-small") as kafka:
            starts.append(kafka.start_seconds)
            before = resident_bytes(kafka.pid)
            figures["idle memory, MB"] = before / 1e6
            port = int(kafka.bootstrap.rpartition(":")[2])
            held = idle_connections(port, CONNECTIONS)
            grown = resident_bytes(kafka.pid) - before
            figures["per idle connection, KB"] = grown / CONNECTIONS / 1e3
            for sock in held:
                sock.close()
    figures["start to first Metadata, s"] = statistics.median(starts)
    if partitions:
        with ApacheKafka(folder / "kafka-large") as kafka:
            port = int(kafka.bootstrap.rpartition(":")[2])
            figures[f"create {partitions} partitions, s"] = create_partitions(port, partitions)
        with ApacheKafka(folder / "kafka-large") as kafka:
            figures[f"start, {partitions} partitions, clean, s"] = kafka.start_seconds
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--kafka-partitions", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        ours = measure_millstream(Path(folder), arguments.partitions)
        theirs: dict[str, float] = {}
        if not arguments.no_kafka:
            theirs = measure_kafka(Path(folder), arguments.kafka_partitions)
    print(f"{'':46} {'Millstream':>12} {'Kafka':>10} {'ratio':>8}")
    for name, value in ours.items():
        other = theirs.get(name)
        compared = f"{other:10.2f} {value / other:8.3f}" if other else f"{'-':>10} {'-':>8}"
        print(f"{name:46} {value:12.3f} {compared}")


if __name__ == "__main__":
    main()
