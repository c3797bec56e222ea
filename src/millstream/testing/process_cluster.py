"""The same as `Cluster`, with a process for each broker and a real ZooKeeper.

For what one process cannot show: `kill -9` and memory that is really gone. Starting takes seconds.
ZooKeeper needs Java, and PySpark or Debian's package zookeeper.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from millstream.client.blocking import Address, Connection
from millstream.testing.brokers import Brokers, Replicas
from millstream.testing.network import largest, sides_of, unreached
from millstream.testing.relay import Relay
from millstream.wire.apis.metadata import MetadataRequest, MetadataResponse

_START_SECONDS_MAX: Final = 60.0
# A test waits for it when a node is cut off. On a busy machine, processes stand still for seconds.
_SESSION_MS: Final = 6_000


class ProcessCluster(Brokers):
    """`with ProcessCluster(brokers=3) as cluster:` runs nodes 1, 2 and 3 until the block ends."""

    def __init__(
        self,
        *,
        brokers: int = 3,
        replication: int | None = None,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        storage: str = "memory",
    ) -> None:
        """The options are those of `Cluster`."""
        super().__init__(
            brokers=brokers,
            replication=replication,
            topics=topics,
            settings=settings,
            storage=storage,
        )
        self._processes: dict[int, _Process] = {}
        self._zookeeper: _Process | None = None
        # Each node reaches ZooKeeper through its own.
        self._relays: dict[int, Relay] = {}
        self._unreached: Mapping[int, Collection[int]] = {}
        # Those that do not reach ZooKeeper.
        self._isolated: set[int] = set()
        self._folder: Path

    # -- start and stop ---------------------------------------------------------------

    def start(self) -> None:
        """Run ZooKeeper and all brokers; they form a cluster when this returns."""
        assert self._zookeeper is None, "the cluster runs already"
        self._folder = self._temporary_folder(self._storage)
        try:
            self._start_zookeeper()
            self._start_all()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes and remove their data."""
        self._admin = None
        for process in self._processes.values():
            process.kill()
        self._processes.clear()
        for relay in self._relays.values():
            relay.close()
        self._relays.clear()
        if self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper = None
        self._remove_temporary()

    def kill(self, node_id: int) -> None:
        """SIGKILL."""
        self._processes.pop(self._check_running(node_id)).kill()

    def stop(self, node_id: int) -> None:
        """Stop a broker cleanly: it hands its leaderships over first."""
        self._processes.pop(self._check_running(node_id)).stop()

    def _start_zookeeper(self) -> None:
        # It ends when the input does, so also when this process is killed.
        until_end_of_input = '"$@" & child=$!; cat >/dev/null; kill "$child"; wait "$child"'
        self._zookeeper = _Process(
            [
                *("sh", "-c", until_end_of_input, "zookeeper"),
                *(sys.executable, "-m", "millstream", "zookeeper", "--json"),
                *("--data-dir", str(self._folder / "zookeeper"), "--listen", "127.0.0.1:0"),
            ],
            self._folder / "zookeeper.log",
        )
        address = self._zookeeper.answer()["address"]
        port = int(address.rpartition(":")[2])
        self._relays = {node_id: Relay(port) for node_id in self.ids}

    def _start_one(self, node_id: int) -> None:
        process = _Process(
            [sys.executable, "-m", "millstream.testing.node_process"],
            self._folder / f"node-{node_id}.log",
        )
        self._processes[node_id] = process
        process.send(
            {
                **self._settings,
                "node.id": str(node_id),
                "log.dirs": str(self._folder / f"node-{node_id}"),
                "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node_id]}",
                "zookeeper.connect": f"127.0.0.1:{self._relays[node_id].port}",
                "zookeeper.session.timeout.ms": str(_SESSION_MS),
            }
        )
        self._ports[node_id] = process.answer()["port"]
        self._cut(node_id)

    # -- the network ------------------------------------------------------------------

    def partition_network(self, *sides: Collection[int]) -> None:
        """Brokers of different sides do not reach each other any more. ZooKeeper is with the
        largest side, or the first of equal ones; the sessions of the others expire. Clients reach
        everyone; a broker that hears neither ZooKeeper nor the others sends them away after a
        session timeout, and tells them what it last knew before."""
        everyone = sides_of(sides, self.ids)
        self._unreached = unreached(everyone)
        for node_id in self._processes:
            self._cut(node_id)
        self._isolated = set(self.ids) - largest(everyone)
        for node_id in self._isolated:
            self._relays[node_id].cut()

    def heal_network(self) -> None:
        """Everyone reaches everyone again."""
        self._unreached = {}
        self._isolated = set()
        for relay in self._relays.values():
            relay.heal()
        for node_id in self._processes:
            self._cut(node_id)

    def _cut(self, node_id: int) -> None:
        process = self._processes[node_id]
        process.send(sorted(self._unreached.get(node_id, ())))
        process.answer()

    # -- looking ----------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._zookeeper is not None

    @property
    def running(self) -> list[int]:
        return sorted(self._processes)

    @property
    def controller(self) -> int:
        return self._metadata(self._one_reaching()).controller_id

    def _reaching(self) -> list[int]:
        return [node_id for node_id in self.running if node_id not in self._isolated]

    def _replicas_known_to(self, node_id: int) -> dict[tuple[str, int], Replicas]:
        return {
            (topic.name or "", one.partition_index): Replicas(
                one.leader_id, frozenset(one.replica_nodes), tuple(one.isr_nodes)
            )
            for topic in self._metadata(node_id).topics
            for one in topic.partitions
        }

    def _alive(self) -> Collection[int]:
        return {one.node_id for one in self._metadata(self._one_reaching()).brokers}

    def _metadata(self, node_id: int) -> MetadataResponse:
        address = Address("127.0.0.1", self._ports[node_id])
        connection = Connection(address, client_id="millstream-testing")
        try:
            return connection.ask(MetadataRequest(topics=None))
        finally:
            connection.close()


class _Process:
    """A process that reads and writes JSON lines, and ends with its input."""

    def __init__(self, command: list[str], log_path: Path) -> None:
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def send(self, value: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        # A process that hangs is ended, so that the line comes, or the end does.
        patience = threading.Timer(_START_SECONDS_MAX, self._process.kill)
        patience.start()
        try:
            line = self._process.stdout.readline()
        finally:
            patience.cancel()
        if not line:
            log = self._log_path.read_text(errors="replace")[-2_000:]
            raise RuntimeError(f"a process of the cluster has ended:\n{log}")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_START_SECONDS_MAX)
        self._close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
