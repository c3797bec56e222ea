"""Debian's Prometheus scrapes nodes and a cluster, and the generated alerts fire for real causes.

Covers console/metrics/alerts.py, console/metrics/exposition.py.
"""

import contextlib
import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.console.asking import Address
from millstream.console.metrics.alerts import alert_rules
from millstream.console.serving import ConsoleServer, console_of_node
from millstream.testing.cluster import Cluster
from tests.support.cluster import wait_until
from tests.support.console_node import ConsoleNode
from tests.support.ports import reserve_port
from tests.support.tools import require, run_checked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LAG = 100_001


class Prometheus:
    def __init__(self, folder: Path, targets: list[str]) -> None:
        self._folder = folder
        self._targets = targets
        self._port = reserve_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Prometheus":
        self._folder.mkdir()
        rules = self._folder / "alerts.yml"
        # The rules as users get them, without the time that a person would want to wait.
        rules.write_text(re.sub(r"for: \w+", "for: 1s", alert_rules()))
        config = self._folder / "prometheus.yml"
        config.write_text(
            "global: { scrape_interval: 1s, evaluation_interval: 1s }\n"
            f"rule_files: [{json.dumps(str(rules))}]\n"
            "scrape_configs:\n"
            "  - job_name: millstream\n"
            f"    static_configs: [{{ targets: {json.dumps(self._targets)} }}]\n"
        )
        run_checked([require("promtool"), "check", "config", str(config)], timeout_seconds=60)
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    require("prometheus"),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        wait_until(self._is_ready, "Prometheus is ready")
        return self

    def __exit__(self, *of: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), self._open("/-/ready") as answer:
            return bool(answer.status == 200)
        return False

    def _open(self, path: str) -> Any:
        return urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10)

    def query(self, text: str) -> dict[str, float]:
        """The value of each series, by instance."""
        with self._open(f"/api/v1/query?query={urllib.parse.quote(text)}") as answer:
            found = json.load(answer)["data"]["result"]
        return {one["metric"].get("instance", ""): float(one["value"][1]) for one in found}

    def firing(self) -> set[str]:
        with self._open("/api/v1/alerts") as answer:
            found = json.load(answer)["data"]["alerts"]
        return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    run_checked(mount, timeout_seconds=30)
    yield folder
    run_checked(["umount", str(folder)], timeout_seconds=30)


def lag_behind(cluster: Cluster) -> None:
    """A group that has committed, and is far behind."""
    producer = Producer({**cluster.client_config(), "log_level": 0})
    for _ in range(LAG):
        producer.produce("busy", b"x")
        producer.poll(0)
    assert producer.flush(60) == 0
    consumer = Consumer({**cluster.client_config(), "group.id": "slow", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("busy", 0, 0)], asynchronous=False)
    consumer.close()


def test_alerts_fire_for_what_they_are_about(tmp_path: Path, small_disk: Path) -> None:
    with Cluster(topics={"busy": 1}) as cluster, ConsoleNode(small_disk / "data") as other:
        admin = AdminClient({**cluster.client_config(), "log_level": 0})
        # Only the node that dies has it.
        alone = NewTopic("alone", 1, replica_assignment=[[3]])
        admin.create_topics([alone])["alone"].result(30)
        consoles: dict[int, ConsoleServer] = {}
        for node_id in cluster.ids:
            node = cluster._nodes[node_id]
            consoles[node_id] = console_of_node(node, Address("127.0.0.1", 0))
            cluster._run(consoles[node_id].start())
        instances = {
            node_id: urllib.parse.urlsplit(one.url).netloc for node_id, one in consoles.items()
        }
        with Prometheus(tmp_path / "p", [*instances.values(), other.browser.netloc]) as prometheus:
            wait_until(lambda: len(prometheus.query("kafka_brokers")) == 4, "everything is scraped")
            assert set(prometheus.query("up").values()) == {1.0}
            brokers = prometheus.query("kafka_brokers")
            assert {brokers[one] for one in instances.values()} == {3.0}
            assert brokers[other.browser.netloc] == 1.0
            assert prometheus.firing() == set(), "nothing is wrong yet"
            lag_behind(cluster)
            filler = (64 << 20) * 19 // 20
            (small_disk / "filler").write_bytes(bytes(filler))
            cluster._run(consoles.pop(3).stop())
            cluster.kill(3)
            expected = {
                "MillstreamNodeDead",
                "MillstreamNodeSilent",
                "MillstreamPartitionOffline",
                "MillstreamUnderReplicated",
                "MillstreamDiskFull",
                "MillstreamLag",
            }
            wait_until(
                lambda: expected <= prometheus.firing(),
                f"all of {sorted(expected)} fire",
            )
        for console in consoles.values():
            cluster._run(console.stop())
