"""A loaded cluster is operated by the commands alone: nothing acknowledged is lost."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.faults.cluster_load import (
    PARTITIONS,
    TOPIC,
    Reader,
    Writer,
    end_offsets,
    read_final,
    wait_until_acknowledged,
)
from tests.faults.history import History, anomalies
from tests.support.cluster import MillstreamCluster, millstream_cluster, wait_until
from tests.support.command_line import Ran, run_millstream

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.fixture(autouse=True)
def no_memory_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Loaded:
    """The cluster, and what is written to it all along."""

    def __init__(self, cluster: MillstreamCluster) -> None:
        self.cluster = cluster
        self.history = History(first_offsets=end_offsets(cluster.client))
        self.writer = Writer(cluster.client, self.history, seed=1)
        self.reader = Reader(cluster.client, self.history)
        self._began = time.monotonic()

    def run(self, *command: str) -> Ran:
        # Replicas are copied while everything else is under load.
        done = run_millstream(*command, bootstrap=self.cluster.bootstrap, seconds_max=300)
        assert done.exit_code == 0, (command, done.output, done.errors)
        return done

    def replicas(self) -> dict[int, set[int]]:
        found = self.cluster.metadata(TOPIC)
        assert found is not None
        return {n: set(one.replicas) for n, one in found.topics[TOPIC].partitions.items()}

    def check(self) -> None:
        wait_until_acknowledged([self.writer], 500)
        self.writer.stop()
        seconds = time.monotonic() - self._began
        self.reader.stop()
        read_final(self.cluster.client, self.history)
        gap_ms = max(self.writer.gaps.values()) * 1000
        rate = self.writer.acknowledged / seconds
        print(f"longest gap {gap_ms:.0f} ms, {rate:.0f} records/s acknowledged")
        assert [str(problem) for problem in anomalies(self.history)] == []
        assert self.writer.errors == []


@pytest.mark.timeout(600)
def test_a_node_is_added_and_another_removed_under_load(tmp_path: Path) -> None:
    with millstream_cluster(tmp_path) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        cluster.create_topic("other", 6)
        loaded = Loaded(cluster)
        wait_until_acknowledged([loaded.writer], 1_500)
        assert cluster.new_node is not None
        added = cluster.new_node(4)
        added.start()
        cluster.nodes[4] = added
        try:
            loaded.run("cluster", "rebalance", "--yes")
            described = loaded.run("cluster", "describe", "--json")
            held = {n["id"]: n["replicas"] for n in json.loads(described.output)["nodes"]}
            assert held[4] >= 2, "the new node has its share"
            loaded.run("cluster", "decommission", "1", "--yes")
            assert all(1 not in some for some in loaded.replicas().values())
            cluster.nodes.pop(1).stop()
            loaded.run("cluster", "health")
            loaded.check()
        finally:
            added.stop()
            cluster.nodes.pop(4, None)


@pytest.mark.timeout(600)
def test_a_rolling_restart_waits_for_the_isr(tmp_path: Path) -> None:
    with millstream_cluster(tmp_path) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        loaded = Loaded(cluster)
        wait_until_acknowledged([loaded.writer], 1_000)
        run = partial(run_millstream, bootstrap=cluster.bootstrap)
        script = tmp_path / "restart.py"
        ask = tmp_path / "ask"
        ask.mkdir()
        # Only this process can start a node again: the command asks it to, and waits.
        script.write_text(
            "import pathlib, sys, time\n"
            f"folder = pathlib.Path({str(ask)!r})\n"
            "(folder / sys.argv[1]).touch()\n"
            "while (folder / sys.argv[1]).exists(): time.sleep(0.05)\n"
        )
        command = shlex.join([sys.executable, str(script)]) + " {node}"
        restart = ["cluster", "restart", "--rolling", "--yes", "--command", command]
        with Restarter(cluster, ask) as restarter:
            kill_after_a_line(restart, cluster, "is back and in sync")
            [first, *_] = restarter.restarted
            # It may have begun with the next node.
            wait_until(lambda: not list(ask.iterdir()), "nothing is being restarted")
            wait_until(lambda: run("cluster", "health").exit_code == 0, "all are in sync")
            done = loaded.run(*restart)
        assert re.search(rf"{first} +done .* ago", done.output), done.output
        assert restarter.restarted.count(first) == 1, "a restart goes on where it was ended"
        assert set(restarter.restarted) == {1, 2, 3}
        loaded.check()


class Restarter:
    """Restarts the nodes that somebody asks for by a file."""

    def __init__(self, cluster: MillstreamCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.restarted: list[int] = []

    def _run(self) -> None:
        while not self._is_over.wait(0.05):
            for path in self._folder.iterdir():
                node = self._cluster.nodes[int(path.name)]
                node.stop()
                node.start()
                self.restarted.append(int(path.name))
                path.unlink()

    def __enter__(self) -> "Restarter":
        self._thread.start()
        return self

    def __exit__(self, *of: object) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.mark.timeout(240)
def test_a_move_whose_command_is_killed_is_cancelled_or_continued(tmp_path: Path) -> None:
    with millstream_cluster(tmp_path) as cluster:
        run = partial(run_millstream, bootstrap=cluster.bootstrap)
        assert run("topic", "create", "moved", "-p", "1", "-r", "2").exit_code == 0
        fill(cluster.bootstrap, "moved", megabytes=8)
        before = replicas_of(cluster, "moved")
        [other] = {1, 2, 3} - set(before)
        target = f"{before[0]},{other}"
        slowly = ["cluster", "reassign", "moved", "--to", target, "-y", "--mb-per-second", "0.2"]
        start_and_kill(slowly, cluster)
        found = run("cluster", "health")
        assert "is moving to other nodes" in found.output
        assert run("cluster", "reassign", "--cancel", "-y").exit_code == 0
        assert replicas_of(cluster, "moved") == before
        described = run("topic", "describe", "moved").output
        assert "throttled" not in described, "a cancelled move leaves no throttle"
        start_and_kill(slowly, cluster)
        # The same command goes on, and now as fast as it likes.
        done = run("cluster", "reassign", "moved", "--to", target, "-y", "--mb-per-second", "500")
        assert done.exit_code == 0, done.errors
        assert sorted(replicas_of(cluster, "moved")) == sorted([before[0], other])
        assert "throttled" not in run("topic", "describe", "moved").output


@pytest.mark.timeout(240)
def test_health_says_which_node_is_dead_or_silent(tmp_path: Path) -> None:
    with millstream_cluster(tmp_path) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        run = partial(run_millstream, bootstrap=cluster.bootstrap)
        assert run("cluster", "health").exit_code == 0
        os.kill(cluster.nodes[2].pid, signal.SIGSTOP)
        try:
            silent = run("cluster", "health")
        finally:
            os.kill(cluster.nodes[2].pid, signal.SIGCONT)
        assert silent.exit_code == 1
        assert re.search("node 2.* does not answer", silent.output), silent.output
        cluster.nodes[3].kill()
        found: list[Ran] = []

        def is_fenced() -> bool:
            found.append(run("cluster", "health"))
            return "node 3 is not alive; it has replicas of" in found[-1].output

        wait_until(is_fenced, "the dead node is a problem")
        assert found[-1].exit_code == 1


def replicas_of(cluster: MillstreamCluster, topic: str) -> list[int]:
    found = cluster.metadata(topic)
    assert found is not None
    return list(found.topics[topic].partitions[0].replicas)


def fill(bootstrap: str, topic: str, *, megabytes: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for _ in range(megabytes * 10):
        producer.produce(topic, b"x" * 100_000)
    assert producer.flush(60) == 0


def kill_after_a_line(command: list[str], cluster: MillstreamCluster, part: str) -> None:
    """Kill the command as soon as it has said something."""
    words = [sys.executable, "-m", "millstream", *command, "-b", cluster.bootstrap]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any(part in line for line in process.stderr), "it has said what it should"
        process.kill()


def start_and_kill(command: list[str], cluster: MillstreamCluster) -> None:
    """Kill the command as soon as the partition moves."""
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", *command, "-b", cluster.bootstrap],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: len(replicas_of(cluster, "moved")) == 3, "the move has begun")
    finally:
        process.kill()
        process.wait()
