"""Kafka's console producer and consumer, while the node that leads their topic is killed.

Covers broker, cluster, replication.
"""

import subprocess
import threading
from pathlib import Path

import pytest

from tests.support.cluster import MillstreamCluster, millstream_cluster
from tests.support.jars import classpath
from tests.support.tools import require
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.java]

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPIC = "typed"
LINES = 2_000


def java(name: str, *arguments: str) -> list[str]:
    flags = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [require("java"), *flags, "-cp", classpath(), name, *arguments]


class Consumed:
    """The lines that a console consumer has printed so far."""

    def __init__(self, cluster: MillstreamCluster) -> None:
        where = ["--bootstrap-server", cluster.bootstrap, "--topic", TOPIC, "--group", "readers"]
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            java(CONSUMER, *where, "--from-beginning"), stdout=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._thread.join(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


def test_they_go_on_where_they_were(tmp_path: Path) -> None:
    expected = [f"line {number}" for number in range(LINES)]
    with millstream_cluster(tmp_path, "--dev") as cluster:
        # In one partition, so that the order is one.
        cluster.create_topic(TOPIC, 1)
        consumed = Consumed(cluster)
        where = ["--bootstrap-server", cluster.bootstrap, "--topic", TOPIC]
        producer = subprocess.Popen(
            java(PRODUCER, *where, "--command-property", "acks=all"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert producer.stdin is not None
            producer.stdin.write("\n".join(expected[: LINES // 2]) + "\n")
            producer.stdin.flush()
            wait_until(lambda: bool(consumed.lines), "something is read", seconds_max=60)
            cluster.nodes[cluster.leaders(TOPIC)[0]].kill()
            producer.stdin.write("\n".join(expected[LINES // 2 :]) + "\n")
            producer.stdin.close()
            assert producer.wait(60) == 0
            wait_until(lambda: len(consumed.lines) >= LINES, "all is read", seconds_max=60)
        finally:
            producer.kill()
            producer.wait()
            consumed.stop()
    assert consumed.lines == expected
